"""Load balancers, security groups, route tables and private links through the SDK's typed network client."""

import pytest

from cloud import LOCATION, refusal


@pytest.fixture
def subnet(group, network):
    """A subnet in which private link services may be."""
    policies = {"privateLinkServiceNetworkPolicies": "Disabled"}
    body = {
        "location": LOCATION,
        "properties": {
            "addressSpace": {"addressPrefixes": ["10.1.0.0/16"]},
            "subnets": [{"name": "nodes", "properties": {"addressPrefix": "10.1.0.0/24", **policies}}],
        },
    }
    return network.virtual_networks.begin_create_or_update(group.name, "net", body).result().properties.subnets[0].id


@pytest.fixture
def address(group, network):
    body = {
        "location": LOCATION,
        "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static"},
    }
    return network.public_ip_addresses.begin_create_or_update(group.name, "ip", body).result().id


class Balancer:
    """The load balancer `lb` of a group, by its parts."""

    def __init__(self, cloud, group, network):
        self.group, self.network = group.name, network
        root = f"/subscriptions/{cloud.subscription}/resourceGroups/{group.name}/providers/Microsoft.Network"
        self.id = f"{root}/loadBalancers/lb"

    def part(self, member: str, name: str) -> dict:
        return {"id": f"{self.id}/{member}/{name}"}

    def rule(self, name: str, port: int, **properties) -> dict:
        own = {
            "frontendIPConfiguration": self.part("frontendIPConfigurations", "f"),
            "backendAddressPool": self.part("backendAddressPools", "pool"),
            "probe": self.part("probes", "probe"),
            "protocol": "Tcp", "frontendPort": port, "backendPort": port, "enableFloatingIP": True,
        }
        return {"name": name, "properties": own | properties}

    def write(self, frontend: dict, rules: list):
        body = {
            "location": LOCATION,
            "sku": {"name": "Standard"},
            "properties": {
                "frontendIPConfigurations": [{"name": "f", "properties": frontend}],
                "backendAddressPools": [{"name": "pool"}],
                "probes": [{"name": "probe", "properties": {"protocol": "Tcp", "port": 30080}}],
                "loadBalancingRules": rules,
            },
        }
        return self.put(body)

    def put(self, body):
        return self.network.load_balancers.begin_create_or_update(self.group, "lb", body).result()


@pytest.fixture
def balancer(cloud, group, network):
    return Balancer(cloud, group, network)


def refused(call) -> str:
    """The code of a 400."""
    error = refusal(call)
    assert error.status_code == 400, error
    return error.error.code


def test_a_load_balancer_is_created_read_changed_and_deleted(group, network, balancer, address):
    made = balancer.write({"publicIPAddress": {"id": address}}, [balancer.rule("rule", 80)])
    rule, frontend = made.properties.load_balancing_rules[0], made.properties.frontend_ip_configurations[0]
    for named in (frontend, made.properties.backend_address_pools[0], made.properties.probes[0]):
        assert [shown.id for shown in named.properties.load_balancing_rules] == [rule.id]
    assert (rule.properties.idle_timeout_in_minutes, rule.properties.load_distribution) == (4, "Default")
    shown = network.public_ip_addresses.get(group.name, "ip")
    assert shown.properties.ip_configuration.id == frontend.id
    # What the SDK has read it can write.
    rule.properties.idle_timeout_in_minutes = 30
    changed = balancer.put(made)
    assert changed.properties.load_balancing_rules[0].properties.idle_timeout_in_minutes == 30
    assert changed.etag != made.etag
    assert [found.name for found in network.load_balancers.list(group.name)] == ["lb"]
    assert [found.name for found in network.load_balancer_load_balancing_rules.list(group.name, "lb")] == ["rule"]
    assert network.load_balancer_probes.get(group.name, "lb", "probe").properties.port == 30080
    used = refused(lambda: network.public_ip_addresses.begin_delete(group.name, "ip").result())
    assert used == "PublicIPAddressCannotBeDeleted"
    network.load_balancers.begin_delete(group.name, "lb").result()
    network.public_ip_addresses.begin_delete(group.name, "ip").result()
    assert list(network.load_balancers.list(group.name)) == []


def test_interfaces_and_addresses_are_backends(cloud, group, network, balancer, subnet):
    made = balancer.write({"subnet": {"id": subnet}}, [])
    frontend = made.properties.frontend_ip_configurations[0].properties.private_ip_address
    assert frontend == "10.1.0.4"
    pool = made.properties.backend_address_pools[0].id
    configuration = {"subnet": {"id": subnet}, "loadBalancerBackendAddressPools": [{"id": pool}]}
    body = {"location": LOCATION, "properties": {"ipConfigurations": [{"name": "c", "properties": configuration}]}}
    interface = network.network_interfaces.begin_create_or_update(group.name, "nic", body).result()
    own = interface.properties.ip_configurations[0]
    assert own.properties.private_ip_address == "10.1.0.5"
    pools = network.load_balancer_backend_address_pools
    shown = pools.get(group.name, "lb", "pool")
    assert [member.id for member in shown.properties.backend_ip_configurations] == [own.id]
    in_use = refused(lambda: pools.begin_delete(group.name, "lb", "pool").result())
    assert in_use == "InUseBackendAddressPoolCannotBeDeleted"
    virtual_network = {"id": subnet.split("/subnets/")[0]}
    addresses = [{"name": "node-0", "properties": {"ipAddress": "10.1.0.9"}}]
    body = {"properties": {"loadBalancerBackendAddresses": addresses, "virtualNetwork": virtual_network}}
    second = pools.begin_create_or_update(group.name, "lb", "second", body).result()
    assert second.properties.load_balancer_backend_addresses[0].properties.ip_address == "10.1.0.9"
    assert [found.name for found in pools.list(group.name, "lb")] == ["pool", "second"]
    pools.begin_delete(group.name, "lb", "second").result()
    error = refusal(lambda: pools.get(group.name, "lb", "second"))
    assert (error.status_code, error.error.code) == (404, "NotFound")
    # The interface leaves with the whole load balancer.
    network.load_balancers.begin_delete(group.name, "lb").result()
    left = network.network_interfaces.get(group.name, "nic").properties.ip_configurations[0]
    assert not left.properties.load_balancer_backend_address_pools
    network.network_interfaces.begin_delete(group.name, "nic").result()


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"idleTimeoutInMinutes": 101}, "InvalidIdleTimeout"),
        ({"frontendPort": 80}, "RulesUseSameFrontendPortProtocolAndIPConfig"),
        ({"frontendPort": 0}, "LoadBalancingRuleInvalidProtocolAndPort"),
        ({"probe": {"id": "/subscriptions/x/none"}}, "InvalidResourceReference"),
        ({"loadDistribution": "Evenly"}, "InvalidParameter"),
        ({"frontendPort": "soon"}, "BadRequest"),
    ],
)
def test_a_wrong_rule_is_refused(balancer, address, properties, code):
    rules = [balancer.rule("rule", 80), balancer.rule("wrong", 81, **properties)]
    assert refused(lambda: balancer.write({"publicIPAddress": {"id": address}}, rules)) == code


def test_security_rules_and_routes_are_parts_with_a_life_of_their_own(group, network, subnet):
    groups, rules = network.network_security_groups, network.security_rules
    made = groups.begin_create_or_update(group.name, "nsg", {"location": LOCATION}).result()
    assert len(made.properties.default_security_rules) == 6
    rule = {
        "properties": {
            "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": 500,
            "sourceAddressPrefix": "Internet", "sourcePortRange": "*",
            "destinationAddressPrefixes": ["198.18.0.1"], "destinationPortRanges": ["80"],
        }
    }
    rules.begin_create_or_update(group.name, "nsg", "a", rule).result()
    conflict = refused(lambda: rules.begin_create_or_update(group.name, "nsg", "b", rule).result())
    assert conflict == "SecurityRuleConflict"
    assert [found.name for found in rules.list(group.name, "nsg")] == ["a"]
    routes = network.routes
    network.route_tables.begin_create_or_update(group.name, "rt", {"location": LOCATION}).result()
    hop = {"nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.1.0.4"}
    route = {"properties": {"addressPrefix": "10.244.0.0/24", **hop}}
    assert routes.begin_create_or_update(group.name, "rt", "a", route).result().properties.next_hop_ip_address
    body = network.subnets.get(group.name, "net", "nodes")
    body.properties.network_security_group = {"id": made.id}
    body.properties.route_table = {"id": network.route_tables.get(group.name, "rt").id}
    network.subnets.begin_create_or_update(group.name, "net", "nodes", body).result()
    assert [shown.id for shown in groups.get(group.name, "nsg").properties.subnets] == [subnet]
    for delete, code in (
        (groups.begin_delete, "InUseNetworkSecurityGroupCannotBeDeleted"),
        (network.route_tables.begin_delete, "InUseRouteTableCannotBeDeleted"),
    ):
        assert refused(lambda: delete(group.name, "nsg" if "Security" in code else "rt").result()) == code
    rules.begin_delete(group.name, "nsg", "a").result()
    routes.begin_delete(group.name, "rt", "a").result()
    assert groups.get(group.name, "nsg").properties.security_rules == []


def test_a_private_endpoint_connects_to_a_service(group, network, balancer, subnet):
    made = balancer.write({"subnet": {"id": subnet}}, [])
    body = {
        "location": LOCATION,
        "properties": {
            "loadBalancerFrontendIpConfigurations": [{"id": made.properties.frontend_ip_configurations[0].id}],
            "ipConfigurations": [{"name": "c", "properties": {"subnet": {"id": subnet}}}],
        },
    }
    services = network.private_link_services
    service = services.begin_create_or_update(group.name, "pls", body).result()
    assert service.properties.alias.startswith("pls.")
    connection = {"name": "c", "properties": {"privateLinkServiceId": service.id}}
    body = {
        "location": LOCATION,
        "properties": {"subnet": {"id": subnet}, "privateLinkServiceConnections": [connection]},
    }
    network.private_endpoints.begin_create_or_update(group.name, "pe", body).result()
    found = list(services.list_private_endpoint_connections(group.name, "pls"))
    assert [one.properties.private_link_service_connection_state.status for one in found] == ["Approved"]
    services.begin_delete_private_endpoint_connection(group.name, "pls", found[0].name).result()
    services.begin_delete(group.name, "pls").result()
    network.private_endpoints.begin_delete(group.name, "pe").result()
    network.load_balancers.begin_delete(group.name, "lb").result()
