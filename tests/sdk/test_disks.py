"""Managed disks: their life, and what is refused."""

import pytest

from cloud import LOCATION, refusal


def test_a_disk_is_created_read_listed_and_deleted(cloud, group):
    disks = cloud.compute.disks
    created = disks.begin_create_or_update(
        group.name, "Data-1",
        {
            "location": LOCATION,
            "sku": {"name": "StandardSSD_LRS"},
            "tags": {"made-by": "sdk"},
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 5},
        },
    ).result()
    assert created.name == "Data-1"
    assert created.sku.name == "StandardSSD_LRS"
    assert created.properties.disk_size_gb == 5
    assert created.properties.disk_size_bytes == 5 * 1024**3
    assert created.properties.disk_state == "Unattached"
    assert created.properties.provisioning_state == "Succeeded"
    assert created.properties.unique_id
    assert created.tags == {"made-by": "sdk"}
    assert created.managed_by is None

    read = disks.get(group.name, "data-1")
    assert read.name == "Data-1", "names compare without case and keep their spelling"
    assert read.properties.unique_id == created.properties.unique_id
    assert [disk.name for disk in disks.list_by_resource_group(group.name)] == ["Data-1"]
    assert created.id in [disk.id for disk in disks.list()]

    disks.begin_delete(group.name, "Data-1").result()
    assert refusal(lambda: disks.get(group.name, "Data-1")).status_code == 404
    assert list(disks.list_by_resource_group(group.name)) == []


def test_creating_a_disk_twice_gives_the_same_disk(cloud, group):
    first = group.disk("twice")
    unique = cloud.compute.disks.get(group.name, "twice").properties.unique_id
    assert group.disk("twice") == first
    assert cloud.compute.disks.get(group.name, "twice").properties.unique_id == unique


def test_deleting_an_absent_disk_succeeds(cloud, group):
    cloud.compute.disks.begin_delete(group.name, "absent").result()


def test_a_disk_grows_and_never_shrinks(cloud, group):
    group.disk("grows", gib=8)
    grown = cloud.compute.disks.begin_update(group.name, "grows", {"properties": {"diskSizeGB": 16}}).result()
    assert grown.properties.disk_size_gb == 16
    assert grown.properties.disk_size_bytes == 16 * 1024**3

    error = refusal(
        lambda: cloud.compute.disks.begin_update(
            group.name, "grows", {"properties": {"diskSizeGB": 15}}
        ).result()
    )
    assert error.status_code in (400, 409)
    assert cloud.compute.disks.get(group.name, "grows").properties.disk_size_gb == 16


def test_tags_are_replaced_by_an_update(cloud, group):
    group.disk("tagged")
    cloud.compute.disks.begin_update(group.name, "tagged", {"tags": {"a": "1"}}).result()
    updated = cloud.compute.disks.begin_update(group.name, "tagged", {"tags": {"b": "2"}}).result()
    assert updated.tags == {"b": "2"}
    assert updated.properties.disk_size_gb == 8


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"sku": {"name": "Premium_Turbo"}}, id="unknown-sku"),
        pytest.param({"location": "atlantis"}, id="unknown-location"),
        pytest.param({"zones": ["9"]}, id="zone-that-the-location-lacks"),
        pytest.param({"properties": {"diskSizeGB": 5}}, id="no-creation-data"),
        pytest.param({"properties": {"creationData": {"createOption": "Empty"}}}, id="empty-without-size"),
        pytest.param({"properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 0}}, id="size-zero"),
        pytest.param({"properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 70000}}, id="too-large"),
        pytest.param({"properties": {"creationData": {"createOption": "Magic"}, "diskSizeGB": 5}}, id="unknown-origin"),
    ],
)
def test_a_wrong_disk_is_refused_and_leaves_nothing(cloud, group, change):
    body = {
        "location": LOCATION,
        "sku": {"name": "Premium_LRS"},
        "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 5},
        **change,
    }
    error = refusal(lambda: cloud.compute.disks.begin_create_or_update(group.name, "wrong", body).result())
    assert error.status_code == 400, str(error)
    assert list(cloud.compute.disks.list_by_resource_group(group.name)) == []


def test_a_group_that_does_not_exist_takes_no_disk(cloud):
    body = {"location": LOCATION, "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 5}}
    error = refusal(lambda: cloud.compute.disks.begin_create_or_update("nowhere", "disk", body).result())
    assert (error.status_code, error.error.code) == (404, "ResourceGroupNotFound")


def test_a_body_that_is_no_json_is_refused(cloud, group):
    path = (
        f"/subscriptions/{cloud.subscription}/resourceGroups/{group.name}"
        "/providers/Microsoft.Compute/disks/broken?api-version=2025-01-02"
    )
    answer = cloud.send("PUT", path, json_body=["not", "a", "disk"])
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "InvalidRequestContent"


def test_a_disk_becomes_premium_v2_in_the_background(cloud, group):
    disks = cloud.compute.disks
    body = {
        "location": LOCATION,
        "zones": ["1"],
        "sku": {"name": "Premium_LRS"},
        "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8},
    }
    before = disks.begin_create_or_update(group.name, "disk", body).result()
    assert before.properties.completion_percent is None
    disks.begin_update(group.name, "disk", {"sku": {"name": "PremiumV2_LRS"}}).result()
    changed = disks.get(group.name, "disk")
    assert (changed.sku.name, changed.properties.completion_percent) == ("PremiumV2_LRS", 100)
    disks.begin_update(group.name, "disk", {"properties": {"diskIOPSReadWrite": 4000}}).result()
    assert disks.get(group.name, "disk").properties.disk_iops_read_write == 4000
    error = refusal(lambda: disks.begin_update(group.name, "disk", {"sku": {"name": "Premium_LRS"}}).result())
    assert (error.status_code, error.error.code) == (409, "OperationNotAllowed")
