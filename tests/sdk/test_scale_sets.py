"""Virtual machine scale sets, their instances and extensions through the SDK's typed clients."""

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceModifiedError

from cloud import LOCATION, refusal


class Set:
    """A scale set of a group, with a network of its own and a load balancer with an empty pool."""

    def __init__(self, group, network, name="set"):
        self.group, self.name = group.name, name
        self.cloud, self.network = group.cloud, network
        self.sets = group.cloud.compute.virtual_machine_scale_sets
        self.instances = group.cloud.compute.virtual_machine_scale_set_vms
        space = {
            "location": LOCATION,
            "properties": {
                "addressSpace": {"addressPrefixes": ["10.1.0.0/16"]},
                "subnets": [{"name": "nodes", "properties": {"addressPrefix": "10.1.0.0/24"}}],
            },
        }
        made = network.virtual_networks.begin_create_or_update(self.group, "net", space).result()
        self.subnet = made.properties.subnets[0].id

    def balancer(self) -> str:
        """Makes a load balancer; returns its pool."""
        body = {
            "location": LOCATION,
            "sku": {"name": "Standard"},
            "properties": {
                "frontendIPConfigurations": [{"name": "f", "properties": {"subnet": {"id": self.subnet}}}],
                "backendAddressPools": [{"name": "pool"}],
            },
        }
        made = self.network.load_balancers.begin_create_or_update(self.group, "lb", body).result()
        return made.properties.backend_address_pools[0].id

    def interfaces(self, *pools: str) -> list:
        own = {"subnet": {"id": self.subnet}, "loadBalancerBackendAddressPools": [{"id": pool} for pool in pools]}
        addresses = [{"name": "first", "properties": own}]
        return [{"name": "nic", "properties": {"primary": True, "ipConfigurations": addresses}}]

    def make(self, capacity: int, mode="Uniform", **changes):
        body = {
            "location": LOCATION,
            "sku": {"name": "Standard_D2s_v3", "capacity": capacity},
            "properties": {
                "orchestrationMode": mode,
                "upgradePolicy": {"mode": "Manual"},
                "virtualMachineProfile": {
                    "osProfile": {"computerNamePrefix": "node", "adminUsername": "someone", "adminPassword": "Aa1!aaaa"},
                    "storageProfile": {
                        "imageReference": {
                            "publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest",
                        },
                    },
                    "networkProfile": {"networkInterfaceConfigurations": self.interfaces()},
                },
            },
        }
        return self.put(body | changes)

    def put(self, body, **conditions):
        return self.sets.begin_create_or_update(self.group, self.name, body, **conditions).result()

    def read(self):
        return self.sets.get(self.group, self.name)

    def instance(self, number: str, **options):
        return self.instances.get(self.group, self.name, number, **options)

    def names(self) -> list[str]:
        return [vm.name for vm in self.instances.list(self.group, self.name)]


@pytest.fixture
def scale_set(group, network):
    return Set(group, network)


def status_of(view) -> str:
    return next(status.code for status in view.statuses if status.code.startswith("PowerState/"))


def test_a_uniform_set_is_created_scaled_read_and_deleted(cloud, group, scale_set):
    made = scale_set.make(2)
    assert (made.name, made.sku.capacity, made.etag) == ("set", 2, '"1"')
    assert made.properties.unique_id and made.properties.orchestration_mode == "Uniform"
    assert scale_set.names() == ["set_0", "set_1"]
    one = scale_set.instance("1")
    assert (one.instance_id, one.sku.name) == ("1", "Standard_D2s_v3")
    assert one.properties.os_profile.computer_name == "node000001"
    assert one.properties.latest_model_applied is True
    # What the SDK has read it can write.
    made.sku.capacity = 3
    assert scale_set.put(made).sku.capacity == 3
    scale_set.sets.begin_delete_instances(group.name, "set", {"instanceIds": ["0"]}).result()
    assert scale_set.names() == ["set_1", "set_2"]
    assert scale_set.read().sku.capacity == 2
    assert [found.name for found in scale_set.sets.list(group.name)] == ["set"]
    assert any(found.name == "set" for found in scale_set.sets.list_all())
    scale_set.sets.begin_delete(group.name, "set").result()
    assert list(scale_set.sets.list(group.name)) == []


def test_a_stale_etag_is_refused(scale_set):
    made = scale_set.make(1)
    with pytest.raises(ResourceModifiedError):
        scale_set.put(made, etag='"7"', match_condition=MatchConditions.IfNotModified)
    changed = scale_set.put(
        {"location": LOCATION, "tags": {"a": "b"}}, etag=made.etag, match_condition=MatchConditions.IfNotModified
    )
    assert changed.tags == {"a": "b"} and changed.etag != made.etag
    assert changed.properties.virtual_machine_profile.network_profile is not None


def test_an_instance_attaches_and_detaches_disks(cloud, group, scale_set):
    scale_set.make(2)
    first, second = group.disk("first"), group.disk("second")
    scale_set.instances.begin_attach_detach_data_disks(
        group.name, "set", "1", {"dataDisksToAttach": [{"diskId": first, "lun": 4}]}
    ).result()
    one = scale_set.instance("1")
    assert [disk.lun for disk in one.properties.storage_profile.data_disks] == [4]
    assert cloud.compute.disks.get(group.name, "first").managed_by.lower() == one.id.lower()
    # The whole instance is written back with another disk.
    disk = {"lun": 5, "createOption": "Attach", "managedDisk": {"id": second}}
    kept = [{"lun": 4, "createOption": "Attach", "managedDisk": {"id": first}}]
    body = {"location": LOCATION, "properties": {"storageProfile": {"dataDisks": [*kept, disk]}}}
    written = scale_set.instances.begin_update(group.name, "set", "1", body).result()
    assert {disk.lun for disk in written.properties.storage_profile.data_disks} == {4, 5}
    error = refusal(
        lambda: scale_set.instances.begin_attach_detach_data_disks(
            group.name, "set", "0", {"dataDisksToAttach": [{"diskId": first}]}
        ).result()
    )
    assert error.error.code == "ConflictingUserInput"
    scale_set.instances.begin_attach_detach_data_disks(
        group.name, "set", "1", {"dataDisksToDetach": [{"diskId": first}, {"diskId": second}]}
    ).result()
    assert cloud.compute.disks.get(group.name, "first").disk_state == "Unattached"


def test_the_model_and_then_the_instances_join_a_pool(group, network, scale_set):
    scale_set.make(2)
    pool = scale_set.balancer()
    model = {"networkProfile": {"networkInterfaceConfigurations": scale_set.interfaces(pool)}}
    scale_set.put({"location": LOCATION, "properties": {"virtualMachineProfile": model}})
    assert [vm.properties.latest_model_applied for vm in scale_set.instances.list(group.name, "set")] == [False, False]
    own = {"networkInterfaceConfigurations": scale_set.interfaces(pool)}
    body = {"location": LOCATION, "properties": {"networkProfileConfiguration": own}}
    scale_set.instances.begin_update(group.name, "set", "0", body).result()
    scale_set.sets.begin_update_instances(group.name, "set", {"instanceIds": ["1"]}).result()
    shown = network.load_balancers.get(group.name, "lb").properties.backend_address_pools[0]
    members = [member.id for member in shown.properties.backend_ip_configurations]
    assert [member.split("/virtualMachines/")[1].split("/")[0] for member in members] == ["0", "1"]
    interfaces = list(network.network_interfaces.list_virtual_machine_scale_set_network_interfaces(group.name, "set"))
    assert len(interfaces) == 2
    one = network.network_interfaces.get_virtual_machine_scale_set_network_interface(group.name, "set", "1", "nic")
    assert one.properties.ip_configurations[0].properties.private_ip_address.startswith("10.1.0.")
    error = refusal(lambda: network.load_balancers.begin_delete(group.name, "lb").result())
    assert error.error.code == "LoadBalancerInUseByVirtualMachineScaleSet"


def test_instances_are_switched_off_and_on(group, scale_set):
    scale_set.make(2)
    scale_set.instances.begin_power_off(group.name, "set", "0").result()
    scale_set.instances.begin_deallocate(group.name, "set", "1").result()
    views = [scale_set.instances.get_instance_view(group.name, "set", number) for number in ("0", "1")]
    assert [status_of(view) for view in views] == ["PowerState/stopped", "PowerState/deallocated"]
    scale_set.sets.begin_start(group.name, "set").result()
    listed = list(scale_set.instances.list(group.name, "set", expand="instanceView"))
    assert {status_of(vm.properties.instance_view) for vm in listed} == {"PowerState/running"}
    counted = scale_set.sets.get_instance_view(group.name, "set").virtual_machine.statuses_summary
    assert [(one.code, one.count) for one in counted] == [("ProvisioningState/succeeded", 2)]


def test_a_flexible_set_has_virtual_machines(cloud, group, scale_set):
    made = scale_set.make(2, mode="Flexible")
    query = f"'virtualMachineScaleSet/id' eq '{made.id}'"
    machines = list(cloud.compute.virtual_machines.list(group.name, filter=query))
    assert len(machines) == 2
    assert all(vm.name.startswith("set_") and vm.virtual_machine_scale_set.id == made.id for vm in machines)
    cloud.compute.virtual_machines.begin_delete(group.name, machines[0].name).result()
    assert scale_set.read().sku.capacity == 1


def test_wrong_requests_are_refused(group, scale_set):
    error = refusal(lambda: scale_set.make(1, sku={"name": "Standard_Nothing", "capacity": 1}))
    assert (error.status_code, error.error.code) == (400, "InvalidParameter")
    scale_set.make(1)
    error = refusal(lambda: scale_set.instance("0notfound"))
    assert (error.status_code, error.error.target) == (400, "instanceId")
    error = refusal(lambda: scale_set.instance("7"))
    assert (error.status_code, error.error.code) == (404, "ResourceNotFound")
    error = refusal(lambda: scale_set.instances.begin_start(group.name, "set", "7").result())
    assert (error.status_code, error.error.target) == (400, "instanceIds")
    with pytest.raises(HttpResponseError):
        scale_set.sets.get(group.name, "none")


def test_a_key_is_added_by_an_extension(cloud, group, scale_set):
    scale_set.make(1)
    body = {
        "publisher": "Microsoft.OSTCExtensions",
        "type": "VMAccessForLinux",
        "typeHandlerVersion": "1.5",
        "protectedSettings": {"username": "someone", "ssh_key": "ssh-ed25519 AAAA"},
    }
    of_instances = cloud.compute.virtual_machine_scale_set_vm_extensions
    made = of_instances.begin_create_or_update(group.name, "set", "0", "access", {"properties": body}).result()
    assert made.properties.provisioning_state == "Succeeded" and made.properties.protected_settings is None
    assert [one.name for one in of_instances.list(group.name, "set", "0").value] == ["access"]
    of_instances.begin_delete(group.name, "set", "0", "access").result()
    group.machine("vm")
    of_machines = cloud.compute.virtual_machine_extensions
    located = {"location": LOCATION, "properties": body}
    of_machines.begin_create_or_update(group.name, "vm", "access", located).result()
    assert of_machines.get(group.name, "vm", "access").properties.type_handler_version == "1.5"
