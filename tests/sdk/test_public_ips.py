"""Public IP addresses and prefixes through the SDK's generic resources: its own poller, any type."""

import pytest

from cloud import LOCATION, NETWORK_API, refusal


class Network:
    """Network resources of one group, by kind and name."""

    def __init__(self, group):
        self.resources = group.cloud.resources.resources
        self.root = (
            f"/subscriptions/{group.cloud.subscription}/resourceGroups/{group.name}/providers/Microsoft.Network"
        )

    def id(self, kind: str, name: str) -> str:
        return f"{self.root}/{kind}/{name}"

    def put(self, kind: str, name: str, properties: dict, **members):
        body = {"location": LOCATION, "properties": properties, **members}
        return self.resources.begin_create_or_update_by_id(self.id(kind, name), body, api_version=NETWORK_API).result()

    def get(self, kind: str, name: str):
        return self.resources.get_by_id(self.id(kind, name), api_version=NETWORK_API)

    def delete(self, kind: str, name: str):
        return self.resources.begin_delete_by_id(self.id(kind, name), api_version=NETWORK_API).result()

    def address(self, name: str, **properties):
        """A Standard public IP address."""
        return self.put(
            "publicIPAddresses", name, {"publicIPAllocationMethod": "Static", **properties}, sku={"name": "Standard"}
        )


@pytest.fixture
def network(group):
    return Network(group)


def test_a_public_ip_address_is_created_read_listed_and_deleted(cloud, group, network):
    created = network.address("ip", idleTimeoutInMinutes=15)
    assert created.properties["provisioningState"] == "Succeeded"
    assert created.properties["ipAddress"]
    assert created.properties["idleTimeoutInMinutes"] == 15
    assert (created.sku.name, created.sku.tier) == ("Standard", "Regional")
    again = network.address("ip", idleTimeoutInMinutes=15)
    assert again.properties["ipAddress"] == created.properties["ipAddress"]
    listed = cloud.resources.resources.list_by_resource_group(
        group.name, filter="resourceType eq 'Microsoft.Network/publicIPAddresses'"
    )
    assert [found.name for found in listed] == ["ip"]
    network.delete("publicIPAddresses", "ip")
    error = refusal(lambda: network.get("publicIPAddresses", "ip"))
    assert (error.status_code, error.error.code) == (404, "ResourceNotFound")
    network.delete("publicIPAddresses", "ip")


def test_an_address_that_an_interface_names_cannot_be_deleted(network):
    network.put(
        "virtualNetworks", "net",
        {
            "addressSpace": {"addressPrefixes": ["10.1.0.0/16"]},
            "subnets": [{"name": "nodes", "properties": {"addressPrefix": "10.1.0.0/24"}}],
        },
    )
    address = network.address("ip").id
    configuration = {
        "name": "first",
        "properties": {
            "subnet": {"id": f"{network.id('virtualNetworks', 'net')}/subnets/nodes"},
            "publicIPAddress": {"id": address},
        },
    }
    interface = network.put("networkInterfaces", "nic", {"ipConfigurations": [configuration]})
    used_by = network.get("publicIPAddresses", "ip").properties["ipConfiguration"]["id"]
    assert used_by == f"{interface.id}/ipConfigurations/first"
    error = refusal(lambda: network.delete("publicIPAddresses", "ip"))
    assert (error.status_code, error.error.code) == (400, "PublicIPAddressCannotBeDeleted")
    assert used_by in error.error.message
    error = refusal(lambda: network.put("networkInterfaces", "other", {"ipConfigurations": [configuration]}))
    assert error.status_code == 400 and "already allocated to resource" in error.error.message
    network.delete("networkInterfaces", "nic")
    network.delete("publicIPAddresses", "ip")


def test_a_dns_label_is_taken_once_in_a_region(group, network):
    label = f"label-{group.name[-6:]}"
    created = network.address("one", dnsSettings={"domainNameLabel": label})
    assert created.properties["dnsSettings"]["fqdn"] == f"{label}.{LOCATION}.cloudapp.azure.com"
    error = refusal(lambda: network.address("two", dnsSettings={"domainNameLabel": label}))
    assert (error.status_code, error.error.code) == (400, "DnsRecordInUse")


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"publicIPAllocationMethod": "Dynamic"}, "StandardSkuPublicIPAddressesMustBeStatic"),
        ({"dnsSettings": {"domainNameLabel": "Not-A-Label"}}, "InvalidDomainNameLabel"),
        ({"publicIPPrefix": {"id": "/subscriptions/x/none"}}, "InvalidResourceReference"),
        ({"idleTimeoutInMinutes": "soon"}, "BadRequest"),
        ({"noSuchProperty": 1}, "BadRequest"),
    ],
)
def test_a_wrong_address_is_refused(network, properties, code):
    error = refusal(lambda: network.address("wrong", **properties))
    assert (error.status_code, error.error.code) == (400, code)


def test_a_prefix_gives_out_its_addresses_and_stays_until_they_are_gone(network):
    prefix = network.put("publicIPPrefixes", "prefix", {"prefixLength": 30}, sku={"name": "Standard"})
    first = prefix.properties["ipPrefix"].removesuffix("/30")
    address = network.address("ip", publicIPPrefix={"id": prefix.id})
    assert address.properties["ipAddress"] == first
    shown = network.get("publicIPPrefixes", "prefix").properties["publicIPAddresses"]
    assert shown == [{"id": address.id}]
    error = refusal(lambda: network.delete("publicIPPrefixes", "prefix"))
    assert (error.status_code, error.error.code) == (400, "InUsePublicIpPrefixCannotBeDeleted")
    network.delete("publicIPAddresses", "ip")
    network.delete("publicIPPrefixes", "prefix")
