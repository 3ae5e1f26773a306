"""Snapshots of disks: their life, copies to other regions, disks made of them, and what is refused."""

import time

import pytest

from cloud import LOCATION, refusal

OTHER_REGION = "northeurope"
assert OTHER_REGION != LOCATION


class Snapshots:
    """Snapshots of one group."""

    def __init__(self, group):
        self.group = group.name
        self.client = group.cloud.compute.snapshots

    def put(self, name: str, source: str, *, option="Copy", location=LOCATION, sku=None, **properties):
        data = {"createOption": option, "sourceResourceId": source}
        body = {"location": location, "properties": {"creationData": data, **properties}}
        if sku:
            body["sku"] = {"name": sku}
        return self.client.begin_create_or_update(self.group, name, body).result()

    def get(self, name: str):
        return self.client.get(self.group, name)

    def delete(self, name: str):
        return self.client.begin_delete(self.group, name).result()

    def complete(self, name: str):
        """Waits for the background copy of a snapshot."""
        for _ in range(600):
            snapshot = self.get(name)
            if snapshot.properties.completion_percent == 100:
                return snapshot
            time.sleep(0.1)
        raise AssertionError(f"the copy never ends: {snapshot}")


@pytest.fixture
def snapshots(group):
    return Snapshots(group)


def restored(group, name: str, snapshot: str, **change):
    """Creates a disk from a snapshot."""
    body = {
        "location": LOCATION,
        "sku": {"name": "Premium_LRS"},
        "properties": {"creationData": {"createOption": "Copy", "sourceResourceId": snapshot}},
        **change,
    }
    return group.cloud.compute.disks.begin_create_or_update(group.name, name, body).result()


def test_a_snapshot_is_created_read_changed_listed_and_deleted(cloud, group, snapshots):
    disk = group.disk("disk", gib=8)
    created = snapshots.put("Snap", disk)
    assert created.name == "Snap"
    assert created.sku.name == "Standard_LRS"
    assert created.properties.disk_size_gb == 8
    assert created.properties.disk_size_bytes == 8 * 1024**3
    assert created.properties.incremental is False
    assert created.properties.provisioning_state == "Succeeded"
    assert created.properties.time_created and created.properties.unique_id
    unique = cloud.compute.disks.get(group.name, "disk").properties.unique_id
    assert created.properties.creation_data.source_unique_id == unique

    changed = snapshots.client.begin_update(group.name, "snap", {"tags": {"a": "1"}}).result()
    assert changed.tags == {"a": "1"}
    assert changed.properties.unique_id == created.properties.unique_id
    assert [found.name for found in snapshots.client.list_by_resource_group(group.name)] == ["Snap"]
    assert created.id in [found.id for found in snapshots.client.list()]

    snapshots.delete("Snap")
    assert refusal(lambda: snapshots.get("Snap")).status_code == 404
    snapshots.delete("Snap")


def test_an_attached_disk_has_incremental_snapshots_of_one_family(group, snapshots):
    disk = group.disk("disk")
    machine = group.machine("vm")
    machine.attach((disk, 0))
    first = snapshots.put("first", disk, incremental=True)
    second = snapshots.put("second", disk, incremental=True)
    family = first.properties.incremental_snapshot_family_id
    assert family and second.properties.incremental_snapshot_family_id == family
    assert first.sku.name == second.sku.name


def test_a_disk_made_of_a_snapshot_is_at_least_as_large(cloud, group, snapshots):
    snapshot = snapshots.put("snap", group.disk("disk", gib=8))
    cloud.compute.disks.begin_delete(group.name, "disk").result()
    disk = restored(group, "same", snapshot.id)
    assert disk.properties.disk_size_gb == 8
    assert disk.properties.creation_data.source_unique_id == snapshot.properties.unique_id
    data = {"createOption": "Copy", "sourceResourceId": snapshot.id}
    grown = restored(group, "grown", snapshot.id, properties={"creationData": data, "diskSizeGB": 16})
    assert grown.properties.disk_size_gb == 16
    error = refusal(
        lambda: restored(group, "small", snapshot.id, properties={"creationData": data, "diskSizeGB": 4})
    )
    assert (error.status_code, error.error.code) == (400, "InvalidParameter")
    error = refusal(lambda: restored(group, "elsewhere", snapshot.id, location=OTHER_REGION))
    assert (error.status_code, error.error.code) == (404, "NotFound")


def test_an_incremental_snapshot_is_copied_to_another_region(group, snapshots):
    source = snapshots.put("source", group.disk("disk"), incremental=True)
    copy = snapshots.put("copy", source.id, option="CopyStart", location=OTHER_REGION, incremental=True)
    assert copy.location == OTHER_REGION
    assert copy.properties.provisioning_state == "Succeeded"
    copy = snapshots.complete("copy")
    assert copy.properties.copy_completion_error is None
    disk = restored(group, "there", copy.id, location=OTHER_REGION)
    assert disk.location == OTHER_REGION


def test_access_to_a_snapshot_keeps_it(group, snapshots):
    snapshots.put("snap", group.disk("disk"))
    access = {"access": "Read", "durationInSeconds": 300}
    granted = snapshots.client.begin_grant_access(group.name, "snap", access).result()
    assert granted.access_sas.startswith("http")
    error = refusal(lambda: snapshots.delete("snap"))
    assert (error.status_code, error.error.code) == (409, "Conflict")
    snapshots.client.begin_revoke_access(group.name, "snap").result()
    snapshots.delete("snap")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        pytest.param({"location": OTHER_REGION}, 404, "NotFound", id="disk-of-another-region"),
        pytest.param({"option": "CopyStart"}, 400, "InvalidParameter", id="copy-start-of-a-disk"),
        pytest.param({"option": "Attach"}, 400, "InvalidParameter", id="origin-of-a-disk"),
        pytest.param({"option": "Magic"}, 400, "InvalidParameter", id="unknown-origin"),
        pytest.param({"sku": "StandardSSD_LRS"}, 400, "InvalidParameter", id="sku-of-a-disk"),
        pytest.param({"sku": "Premium_LRS", "incremental": True}, 400, "InvalidParameter", id="premium-incremental"),
        pytest.param({"diskSizeGB": 4}, 400, "InvalidParameter", id="smaller-than-its-disk"),
        pytest.param({"diskSizeGB": "many"}, 400, "BadRequest", id="size-that-is-no-number"),
        pytest.param({"noSuchProperty": 1}, 400, "BadRequest", id="unknown-property"),
        pytest.param({"networkAccessPolicy": "AllowPrivate"}, 400, "InvalidParameter", id="private-without-access"),
    ],
)
def test_a_wrong_snapshot_is_refused_and_leaves_nothing(group, snapshots, change, status, code):
    disk = group.disk("disk", gib=8)
    error = refusal(lambda: snapshots.put("wrong", disk, **change))
    assert (error.status_code, error.error.code) == (status, code)
    assert list(snapshots.client.list_by_resource_group(group.name)) == []


def test_a_full_snapshot_is_not_copied_to_another_region(group, snapshots):
    full = snapshots.put("full", group.disk("disk"))
    error = refusal(
        lambda: snapshots.put("copy", full.id, option="CopyStart", location=OTHER_REGION, incremental=True)
    )
    assert (error.status_code, error.error.code) == (409, "OperationNotAllowed")


def test_the_source_of_a_snapshot_stays(group, snapshots):
    one, other = group.disk("one"), group.disk("other")
    snapshots.put("snap", one)
    error = refusal(lambda: snapshots.put("snap", other))
    assert (error.status_code, error.error.code) == (400, "BadRequest")
    assert "sourceResourceId" in error.error.message


def zonal(name: str, group, **properties):
    """Creates a Premium v2 disk in a zone and returns what Azure shows of it."""
    body = {
        "location": LOCATION,
        "zones": ["1"],
        "sku": {"name": "PremiumV2_LRS"},
        "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4, **properties},
    }
    return group.cloud.compute.disks.begin_create_or_update(group.name, name, body).result()


def test_a_snapshot_with_instant_access_makes_disks_of_its_size(group, snapshots):
    disk = zonal("disk", group)
    data = {"createOption": "Copy", "sourceResourceId": disk.id, "instantAccessDurationMinutes": 60}
    body = {"location": LOCATION, "properties": {"creationData": data, "incremental": True}}
    made = snapshots.client.begin_create_or_update(group.name, "snap", body).result()
    assert made.properties.creation_data.instant_access_duration_minutes == 60
    complete = snapshots.complete("snap")
    assert complete.properties.snapshot_access_state == "AvailableWithInstantAccess"
    change = {"sku": {"name": "PremiumV2_LRS"}, "zones": ["2"]}
    copy = restored(group, "copy", made.id, **change)
    assert copy.properties.disk_size_bytes == 4 * 1024**3
    for _ in range(600):
        copy = group.cloud.compute.disks.get(group.name, "copy")
        if copy.properties.completion_percent == 100:
            break
        time.sleep(0.1)
    assert copy.properties.completion_percent == 100
    data = {"createOption": "Copy", "sourceResourceId": made.id}
    larger = {**change, "properties": {"creationData": data, "diskSizeGB": 8}}
    for name, wrong in [("larger", larger), ("premium", {"zones": ["1"]})]:
        error = refusal(lambda: restored(group, name, made.id, **wrong))
        assert (error.status_code, error.error.code) == (409, "OperationNotAllowed")


def test_a_disk_is_copied_within_its_zone(group):
    disk = zonal("disk", group)
    restored(group, "near", disk.id, sku={"name": "PremiumV2_LRS"}, zones=["1"])
    error = refusal(lambda: restored(group, "far", disk.id, sku={"name": "PremiumV2_LRS"}, zones=["2"]))
    assert (error.status_code, error.error.code) == (400, "InvalidParameter")
    assert "in a different availability zone" in error.error.message
