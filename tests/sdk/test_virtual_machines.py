"""Virtual machines and their data disks."""

import pytest

from azure.core import MatchConditions
from azure.core.exceptions import ResourceModifiedError
from cloud import LOCATION, refusal


def test_a_machine_is_created_with_an_os_disk_of_its_own(cloud, group, machine):
    read = machine.read()
    assert read.properties.provisioning_state == "Succeeded"
    assert read.properties.vm_id
    assert read.properties.hardware_profile.vm_size == "Standard_D2s_v3"
    assert read.properties.storage_profile.data_disks == []
    os_disk = cloud.compute.disks.get(group.name, "vm-os")
    assert os_disk.managed_by.lower() == read.id.lower()
    assert os_disk.properties.os_type == "Linux"

    view = machine.operations.instance_view(group.name, "vm")
    assert "PowerState/running" in [status.code for status in view.statuses]
    assert [vm.name for vm in machine.operations.list(group.name)] == ["vm"]
    assert read.id in [vm.id for vm in machine.operations.list_all()]


def test_disks_attach_at_their_luns_and_detach_again(cloud, group, machine):
    first, second = group.disk("first"), group.disk("second")
    profile = machine.attach((first, 3), (second, 0))
    assert sorted(disk.lun for disk in profile.data_disks) == [0, 3]
    assert machine.luns() == {3: first.lower(), 0: second.lower()}
    attached = cloud.compute.disks.get(group.name, "first")
    assert attached.managed_by.lower() == machine.read().id.lower()
    assert attached.properties.disk_state == "Attached"

    machine.detach(first)
    assert machine.luns() == {0: second.lower()}
    freed = cloud.compute.disks.get(group.name, "first")
    assert freed.managed_by is None
    assert freed.properties.disk_state == "Unattached"


def test_a_machine_that_made_its_disks_goes_back_as_it_was_read(group, machine):
    read = machine.read()
    read.properties.storage_profile.data_disks = [{"lun": 1, "createOption": "Empty", "diskSizeGB": 4, "name": "made"}]
    machine.write(read)
    read = machine.read()
    assert [disk.create_option for disk in read.properties.storage_profile.data_disks] == ["Empty"]
    machine.write(read)
    read = machine.read()
    read.properties.storage_profile.data_disks[0].to_be_detached = True
    machine.write(read)
    assert machine.luns() == {}


def test_a_lun_is_chosen_when_none_is_given(group, machine):
    machine.attach((group.disk("at-zero"), 0))
    machine.attach((group.disk("anywhere"), None))
    assert sorted(machine.luns()) == [0, 1]


def test_one_request_attaches_one_disk_and_detaches_another(group, machine):
    leaving, coming = group.disk("leaving"), group.disk("coming")
    machine.attach((leaving, 0))
    machine.operations.begin_attach_detach_data_disks(
        group.name, machine.name,
        {"dataDisksToAttach": [{"diskId": coming, "lun": 1}], "dataDisksToDetach": [{"diskId": leaving}]},
    ).result()
    assert machine.luns() == {1: coming.lower()}


def test_the_model_attaches_and_detaches_by_put(cloud, group, machine):
    disk = group.disk("by-put")
    model = machine.read()
    model.properties.storage_profile.data_disks.append(
        {"lun": 2, "createOption": "Attach", "caching": "ReadOnly", "managedDisk": {"id": disk}}
    )
    written = machine.write(model)
    assert [(entry.lun, entry.caching) for entry in written.properties.storage_profile.data_disks] == [(2, "ReadOnly")]

    model = machine.read()
    model.properties.storage_profile.data_disks[0].to_be_detached = True
    machine.write(model)
    assert machine.luns() == {}
    assert cloud.compute.disks.get(group.name, "by-put").managed_by is None


def test_each_write_gives_a_new_etag_and_a_stale_one_is_refused(group, machine):
    before = machine.read()
    machine.attach((group.disk("moves-on"), 0))
    after = machine.read()
    assert after.etag != before.etag
    with pytest.raises(ResourceModifiedError) as stale:
        machine.write(
            {"location": LOCATION, "tags": {"late": "yes"}},
            etag=before.etag, match_condition=MatchConditions.IfNotModified,
        )
    assert stale.value.status_code == 412
    assert stale.value.error.code == "PreconditionFailed"
    assert sorted(machine.luns()) == [0], "the refused write changed nothing"

    machine.write(
        {"location": LOCATION, "tags": {"in-time": "yes"}},
        etag=after.etag, match_condition=MatchConditions.IfNotModified,
    )
    assert machine.read().tags == {"in-time": "yes"}
    assert sorted(machine.luns()) == [0], "a write that leaves the disks out keeps them"


def test_a_machine_that_is_deleted_frees_its_disks(cloud, group, machine):
    disk = group.disk("outlives")
    machine.attach((disk, 0))
    machine.operations.begin_delete(group.name, machine.name).result()
    assert refusal(machine.read).status_code == 404
    assert cloud.compute.disks.get(group.name, "outlives").properties.disk_state == "Unattached"


def test_a_deallocated_machine_keeps_its_disks_reserved(cloud, group, machine):
    disk = group.disk("reserved")
    machine.attach((disk, 0))
    machine.operations.begin_deallocate(group.name, machine.name).result()
    view = machine.operations.instance_view(group.name, machine.name)
    assert "PowerState/deallocated" in [status.code for status in view.statuses]
    assert cloud.compute.disks.get(group.name, "reserved").properties.disk_state == "Reserved"
    machine.operations.begin_start(group.name, machine.name).result()
    assert cloud.compute.disks.get(group.name, "reserved").properties.disk_state == "Attached"


def test_a_lun_is_taken_once(group, machine):
    taken = group.disk("taken")
    machine.attach((taken, 3))
    error = refusal(lambda: machine.attach((group.disk("late"), 3)))
    assert (error.status_code, error.error.code) == (400, "InvalidParameter")
    assert "LUN 3" in error.error.message
    assert machine.luns() == {3: taken.lower()}


def test_one_request_may_not_use_a_lun_twice(group, machine):
    error = refusal(lambda: machine.attach((group.disk("one"), 1), (group.disk("two"), 1)))
    assert (error.status_code, error.error.code) == (400, "InvalidParameter")
    assert machine.luns() == {}


def test_lun_64_is_out_of_range(group, machine):
    error = refusal(lambda: machine.attach((group.disk("far"), 64)))
    assert (error.status_code, error.error.code) == (400, "InvalidParameter")
    assert error.error.target == "dataDisk.lun"
    assert "between '0' and '63'" in error.error.message


def test_a_disk_has_one_machine(cloud, group, machine):
    disk = group.disk("wanted")
    machine.attach((disk, 0))
    other = group.machine("other")
    error = refusal(lambda: other.attach((disk, 0)))
    assert (error.status_code, error.error.code) == (409, "ConflictingUserInput")
    assert other.luns() == {}
    assert cloud.compute.disks.get(group.name, "wanted").managed_by.lower() == machine.read().id.lower()


def test_a_size_takes_so_many_disks_and_no_more(group, machine):
    disks = [group.disk(f"many-{number}") for number in range(5)]
    machine.attach(*((disk, lun) for lun, disk in enumerate(disks[:4])))
    error = refusal(lambda: machine.attach((disks[4], 4)))
    assert (error.status_code, error.error.code) == (409, "OperationNotAllowed")
    assert error.error.target == "dataDisks"
    assert "is 4." in error.error.message
    assert sorted(machine.luns()) == [0, 1, 2, 3]


def test_an_attached_disk_is_not_deleted(cloud, group, machine):
    disk = group.disk("in-use")
    machine.attach((disk, 0))
    error = refusal(lambda: cloud.compute.disks.begin_delete(group.name, "in-use").result())
    assert (error.status_code, error.error.code) == (409, "OperationNotAllowed")
    assert machine.luns() == {0: disk.lower()}


def test_a_disk_that_does_not_exist_is_not_attached(cloud, group, machine):
    absent = (
        f"/subscriptions/{cloud.subscription}/resourceGroups/{group.name}"
        "/providers/Microsoft.Compute/disks/absent"
    )
    error = refusal(lambda: machine.attach((absent, 0)))
    assert error.status_code == 404
    assert machine.luns() == {}


def test_a_disk_of_another_zone_is_not_attached(group, machine):
    disk = group.cloud.compute.disks.begin_create_or_update(
        group.name, "zoned",
        {
            "location": LOCATION,
            "zones": ["1"],
            "sku": {"name": "Premium_LRS"},
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4},
        },
    ).result()
    error = refusal(lambda: machine.attach((disk.id, 0)))
    assert error.status_code == 400
    assert machine.luns() == {}


def test_one_bad_disk_attaches_none_of_its_batch(cloud, group, machine):
    good = group.disk("good")
    error = refusal(lambda: machine.attach((good, 0), (good + "-absent", 1)))
    assert error.status_code == 404
    assert machine.luns() == {}
    assert cloud.compute.disks.get(group.name, "good").managed_by is None


def test_a_machine_without_an_interface_is_refused(cloud, group):
    body = {
        "location": LOCATION,
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_D2s_v3"},
            "networkProfile": {
                "networkInterfaces": [
                    {
                        "id": f"/subscriptions/{cloud.subscription}/resourceGroups/{group.name}"
                        "/providers/Microsoft.Network/networkInterfaces/absent"
                    }
                ]
            },
            "storageProfile": {
                "imageReference": {"publisher": "a", "offer": "b", "sku": "c", "version": "latest"},
                "osDisk": {"createOption": "FromImage"},
            },
        },
    }
    error = refusal(lambda: cloud.compute.virtual_machines.begin_create_or_update(group.name, "vm", body).result())
    assert error.status_code in (400, 404)
    assert refusal(lambda: cloud.compute.virtual_machines.get(group.name, "vm")).status_code == 404


def test_an_unknown_size_is_refused(group):
    error = refusal(lambda: group.machine("vm", size="Standard_Nonsense"))
    assert error.status_code == 400
