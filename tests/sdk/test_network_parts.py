"""What the cloud controllers rely on beyond single load balancers: both address families, parts of other people, etags,
tags, private links on a frontend in use, whole route tables. All through the SDK's typed network client."""

import pytest

from cloud import LOCATION, refusal


@pytest.fixture
def subnets(group, network):
    """A subnet of both families for nodes, and one in which private link services may be: their ids by name."""
    nodes = {"addressPrefixes": ["10.1.0.0/24", "fd00:1::/64"]}
    links = {"addressPrefix": "10.1.1.0/24", "privateLinkServiceNetworkPolicies": "Disabled"}
    body = {
        "location": LOCATION,
        "properties": {
            "addressSpace": {"addressPrefixes": ["10.1.0.0/16", "fd00:1::/48"]},
            "subnets": [{"name": "nodes", "properties": nodes}, {"name": "links", "properties": links}],
        },
    }
    made = network.virtual_networks.begin_create_or_update(group.name, "net", body).result()
    return {subnet.name: subnet.id for subnet in made.properties.subnets}


def address(network, group, name: str, version: str = "IPv4") -> str:
    body = {
        "location": LOCATION,
        "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": version},
    }
    return network.public_ip_addresses.begin_create_or_update(group.name, name, body).result().id


def balancer(cloud, group, **parts) -> dict:
    """A body, and the ids of its parts by a function in `at`."""
    root = f"/subscriptions/{cloud.subscription}/resourceGroups/{group.name}/providers/Microsoft.Network"
    at = lambda member, name: {"id": f"{root}/loadBalancers/lb/{member}/{name}"}  # noqa: E731
    properties = {member: make(at) for member, make in parts.items()}
    return {"location": LOCATION, "sku": {"name": "Standard"}, "properties": properties}


def put(network, group, body, **more):
    return network.load_balancers.begin_create_or_update(group.name, "lb", body, **more).result()


def rule(at, name: str, port: int) -> dict:
    return {
        "name": name,
        "properties": {
            "frontendIPConfiguration": at("frontendIPConfigurations", name),
            "backendAddressPool": at("backendAddressPools", name),
            "protocol": "Tcp", "frontendPort": port, "backendPort": port,
        },
    }


def refused(call) -> str:
    """The code of a 400."""
    error = refusal(call)
    assert error.status_code == 400, error
    return error.error.code


def test_both_families_have_frontends_pools_and_members_of_their_own(cloud, group, network, subnets):
    four, six = address(network, group, "four"), address(network, group, "six", "IPv6")
    body = balancer(
        cloud, group,
        frontendIPConfigurations=lambda at: [
            {"name": "four", "properties": {"publicIPAddress": {"id": four}}},
            {"name": "six", "properties": {"publicIPAddress": {"id": six}}},
        ],
        backendAddressPools=lambda at: [{"name": "four"}, {"name": "six"}],
        loadBalancingRules=lambda at: [rule(at, "four", 80), rule(at, "six", 80)],
    )
    made = put(network, group, body)
    pools = {pool.name: pool.id for pool in made.properties.backend_address_pools}
    subnet = {"id": subnets["nodes"]}
    configurations = [
        {"name": name, "properties": {
            "subnet": subnet, "primary": name == "four", "privateIPAddressVersion": version,
            "loadBalancerBackendAddressPools": [{"id": pools[name]}],
        }}
        for name, version in (("four", "IPv4"), ("six", "IPv6"))
    ]
    nic = {"location": LOCATION, "properties": {"ipConfigurations": configurations}}
    interface = network.network_interfaces.begin_create_or_update(group.name, "nic", nic).result()
    own = {each.name: each for each in interface.properties.ip_configurations}
    assert own["four"].properties.private_ip_address_version == "IPv4"
    assert own["six"].properties.private_ip_address_version == "IPv6"
    for name in ("four", "six"):
        shown = network.load_balancer_backend_address_pools.get(group.name, "lb", name)
        assert [member.id for member in shown.properties.backend_ip_configurations] == [own[name].id]
    # One family leaves; the other's member stays.
    own["six"].properties.load_balancer_backend_address_pools = []
    network.network_interfaces.begin_create_or_update(group.name, "nic", interface).result()
    left = network.load_balancer_backend_address_pools.get(group.name, "lb", "six")
    assert not left.properties.backend_ip_configurations
    left = network.load_balancer_backend_address_pools.get(group.name, "lb", "four")
    assert len(left.properties.backend_ip_configurations) == 1


def test_parts_that_another_client_made_survive_a_write_that_was_read(cloud, group, network):
    out = address(network, group, "out")
    body = balancer(
        cloud, group,
        frontendIPConfigurations=lambda at: [{"name": "out", "properties": {"publicIPAddress": {"id": out}}}],
        backendAddressPools=lambda at: [{"name": "out"}],
        outboundRules=lambda at: [{"name": "out", "properties": {
            "protocol": "All", "allocatedOutboundPorts": 1024,
            "frontendIPConfigurations": [at("frontendIPConfigurations", "out")],
            "backendAddressPool": at("backendAddressPools", "out"),
        }}],
        inboundNatRules=lambda at: [{"name": "ssh", "properties": {
            "frontendIPConfiguration": at("frontendIPConfigurations", "out"),
            "protocol": "Tcp", "frontendPort": 2222, "backendPort": 22,
        }}],
    )
    read = put(network, group, body)
    again = put(network, group, read)
    assert again.properties.outbound_rules[0].properties.allocated_outbound_ports == 1024
    assert again.properties.inbound_nat_rules[0].properties.frontend_port == 2222
    # A frontend that an outbound rule uses does not go alone.
    again.properties.frontend_ip_configurations = []
    assert refused(lambda: put(network, group, again))


def test_a_condition_holds_and_tags_are_changed_by_themselves(cloud, group, network):
    front = address(network, group, "ip")
    body = balancer(
        cloud, group,
        frontendIPConfigurations=lambda at: [{"name": "f", "properties": {"publicIPAddress": {"id": front}}}],
    )
    made = put(network, group, body)
    changed = put(network, group, made, headers={"If-Match": made.etag})
    tagged = network.load_balancers.update_tags(group.name, "lb", {"tags": {"team": "x"}})
    assert tagged.tags == {"team": "x"} and len(tagged.properties.frontend_ip_configurations) == 1
    tagged.etag = None
    stale = 'W/"00000000-0000-0000-0000-000000000000"'
    error = refusal(lambda: put(network, group, tagged, headers={"If-Match": stale}))
    assert (error.status_code, error.error.code) == (412, "PreconditionFailed")
    assert error.error.details[0].code == "PreconditionFailedEtagMismatch"
    assert changed.etag
    for operations, name in ((network.public_ip_addresses, "ip"), (network.load_balancers, "lb")):
        assert operations.update_tags(group.name, name, {"tags": {"a": "b"}}).tags == {"a": "b"}


def test_a_private_link_service_holds_its_frontend_and_needs_its_subnets_policy(cloud, group, network, subnets):
    body = balancer(
        cloud, group,
        frontendIPConfigurations=lambda at: [{"name": "f", "properties": {"subnet": {"id": subnets["nodes"]}}}],
        backendAddressPools=lambda at: [{"name": "f"}],
        loadBalancingRules=lambda at: [rule(at, "f", 80)],
    )
    front = put(network, group, body).properties.frontend_ip_configurations[0].id
    services = network.private_link_services

    def link(subnet: str, **more) -> dict:
        configurations = [
            {"name": name, "properties": {"subnet": {"id": subnets[subnet]}, "primary": name == "a"}} for name in "ab"
        ]
        properties = {"loadBalancerFrontendIpConfigurations": [{"id": front}], "ipConfigurations": configurations}
        return {"location": LOCATION, "properties": properties | more}

    write = lambda body: services.begin_create_or_update(group.name, "pls", body).result()  # noqa: E731
    code = refused(lambda: write(link("nodes")))
    assert code == "PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled"
    made = write(link("links", fqdns=["a.example"], visibility={"subscriptions": ["*"]}))
    assert len(made.properties.ip_configurations) == 2 and made.properties.fqdns == ["a.example"]
    changed = write(link("links", enableProxyProtocol=True))
    assert changed.properties.enable_proxy_protocol and changed.properties.alias == made.properties.alias
    assert refusal(lambda: network.load_balancers.begin_delete(group.name, "lb").result()).status_code == 400
    services.begin_delete(group.name, "pls").result()
    network.load_balancers.begin_delete(group.name, "lb").result()


def test_a_route_table_is_written_whole(group, network):
    def table(*routes: tuple[str, str, str]) -> dict:
        listed = [
            {"name": name, "properties": {
                "addressPrefix": prefix, "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop,
            }}
            for name, prefix, hop in routes
        ]
        return {"location": LOCATION, "properties": {"routes": listed}}

    write = lambda body: network.route_tables.begin_create_or_update(group.name, "rt", body).result()  # noqa: E731
    first, second = ("a", "10.244.0.0/24", "10.1.0.4"), ("b", "10.244.1.0/24", "10.1.0.5")
    made = write(table(first, second))
    assert [route.name for route in made.properties.routes] == ["a", "b"]
    assert made.properties.disable_bgp_route_propagation is False
    moved = write(table(("a", "10.244.0.0/24", "10.1.0.6")))
    assert [route.properties.next_hop_ip_address for route in moved.properties.routes] == ["10.1.0.6"]
    refused(lambda: write(table(first, ("c", first[1], second[2]))))
    assert [route.name for route in network.routes.list(group.name, "rt")] == ["a"]
    six = write(table(first, ("six", "fd00:2::/64", "fd00:1::4")))
    assert len(six.properties.routes) == 2
    network.route_tables.begin_delete(group.name, "rt").result()
