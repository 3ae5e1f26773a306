"""Virtual networks and what is in them, through the SDK's typed network client."""

import pytest
from azure.core.exceptions import HttpResponseError

from cloud import LOCATION, refusal


@pytest.fixture
def subnet(group, network):
    """The only subnet of the network `net`, with room for three addresses."""
    body = {
        "location": LOCATION,
        "properties": {
            "addressSpace": {"addressPrefixes": ["10.1.0.0/16"]},
            "subnets": [{"name": "small", "properties": {"addressPrefix": "10.1.0.0/29"}}],
        },
    }
    return network.virtual_networks.begin_create_or_update(group.name, "net", body).result().properties.subnets[0].id


def interface(network, group, name: str, *configurations: dict, location: str = LOCATION):
    listed = [{"name": f"c{at}", "properties": properties} for at, properties in enumerate(configurations)]
    body = {"location": location, "properties": {"ipConfigurations": listed}}
    return network.network_interfaces.begin_create_or_update(group.name, name, body).result()


def refused(call) -> str:
    """The code of a 400."""
    error = refusal(call)
    assert error.status_code == 400, error
    return error.error.code


def test_a_network_tells_which_addresses_are_free(group, network, subnet):
    ask = lambda address: network.virtual_networks.check_ip_address_availability(  # noqa: E731
        group.name, "net", ip_address=address
    )
    assert ask("10.1.0.4").available
    made = interface(network, group, "nic", {"subnet": {"id": subnet}})
    taken = ask(made.properties.ip_configurations[0].properties.private_ip_address)
    assert (taken.available, taken.available_ip_addresses) == (False, ["10.1.0.5", "10.1.0.6"])
    assert refused(lambda: ask("10.9.0.4")) == "PrivateIPAddressNotInAnySubnet"
    (usage,) = network.virtual_networks.list_usage(group.name, "net")
    assert (usage.id, usage.current_value, usage.limit) == (subnet, 1, 3)


def test_a_subnet_and_a_load_balancer_know_who_is_in_them(group, network, subnet):
    balancer = {
        "location": LOCATION,
        "sku": {"name": "Standard"},
        "properties": {
            "frontendIPConfigurations": [{"name": "f", "properties": {"subnet": {"id": subnet}}}],
            "backendAddressPools": [{"name": "pool"}],
        },
    }
    made = network.load_balancers.begin_create_or_update(group.name, "lb", balancer).result()
    pool = made.properties.backend_address_pools[0].id
    interface(network, group, "out", {"subnet": {"id": subnet}})
    member = interface(
        network, group, "in", {"subnet": {"id": subnet}, "loadBalancerBackendAddressPools": [{"id": pool}]}
    )
    assert [nic.id for nic in network.load_balancer_network_interfaces.list(group.name, "lb")] == [member.id]
    assert [own.id for own in network.network_interface_load_balancers.list(group.name, "in")] == [made.id]
    assert not list(network.network_interface_load_balancers.list(group.name, "out"))
    shown = network.subnets.get(group.name, "net", "small").properties.ip_configurations
    assert len(shown) == 3 and f"{made.id}/frontendIPConfigurations/f" in {own.id for own in shown}
    # A network that is written as it was read, or without its subnets, keeps them.
    whole = network.virtual_networks.get(group.name, "net")
    again = network.virtual_networks.begin_create_or_update(group.name, "net", whole).result()
    assert again.properties.subnets[0].id == subnet
    whole.properties.subnets = None
    again = network.virtual_networks.begin_create_or_update(group.name, "net", whole).result()
    assert again.properties.subnets[0].id == subnet
    with pytest.raises(HttpResponseError):
        network.virtual_networks.begin_delete(group.name, "net").result()


def test_what_an_interface_cannot_be_is_refused(group, network, subnet):
    one = {"subnet": {"id": subnet}}
    far = lambda: interface(network, group, "nic", one, location="northeurope")  # noqa: E731
    assert refused(far) == "InvalidResourceReference"
    both = lambda: interface(network, group, "nic", one, one)  # noqa: E731
    assert refused(both) == "NetworkInterfaceMustHaveOneOneIPConfigAsPrimary"
    made = interface(network, group, "nic", one | {"primary": True}, one)
    assert [own.properties.primary for own in made.properties.ip_configurations] == [True, False]
