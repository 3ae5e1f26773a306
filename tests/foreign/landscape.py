"""The network that other people have: what the cloud controllers find, share and must leave as it is."""

from cloud import Cloud

NODES = {"node-0": 4, "node-1": 5, "Node-2": 6}


def rule(name: str, priority: int, **properties) -> dict:
    """A security rule."""
    return {
        "name": name,
        "properties": {
            "protocol": "Tcp",
            "sourcePortRange": "*",
            "destinationPortRange": "22",
            "sourceAddressPrefix": "198.51.100.0/24",
            "destinationAddressPrefix": "*",
            "access": "Allow",
            "priority": priority,
            "direction": "Inbound",
            **properties,
        },
    }


def lay_out(cloud: Cloud, sku: str = "Standard") -> None:
    """A virtual network, its security group and route table, an interface for each machine, a public IP without use, the
    load balancer of another team, and the cluster's own load balancer with an outbound rule of its operator. With
    Basic load balancers the machines are in one availability set, and there are no outbound rules."""
    network, compute = cloud.network, cloud.compute
    future = {"futureNote": {"kept": ["as", None, "it is"]}} if cloud.dialect.new_properties else {}
    standard, owned = {"sku": {"name": sku}}, {"tags": {"owner": "someone else"}}

    def at(kind: str, name: str, part: str = "") -> dict:
        return {"id": network.path(kind, name) + part}

    rules = [
        rule("Their-SSH", 500),
        rule("Their-Deny", 4000, access="Deny", sourceAddressPrefix="*", destinationPortRange="23", **future),
        rule("Their-Outbound", 500, direction="Outbound", destinationPortRange="443"),
    ]
    network.place("networkSecurityGroups", "Their-Group", {"securityRules": rules, **future}, **owned)
    routes = [{"name": "Their-Way", "properties": {"addressPrefix": "172.16.0.0/16", "nextHopType": "VnetLocal"}}]
    network.place("routeTables", "Their-Routes", {"routes": routes, **future}, **owned)
    nodes = {
        "addressPrefixes": ["10.240.0.0/16", "fd00:0:0:1::/64"],
        "networkSecurityGroup": at("networkSecurityGroups", "Their-Group"),
        "routeTable": at("routeTables", "Their-Routes"),
    }
    subnets = [
        {"name": "nodes", "properties": nodes | future},
        {"name": "apps", "properties": {"addressPrefix": "10.241.0.0/16"}},
        {
            "name": "links",
            "properties": {"addressPrefix": "10.242.0.0/16", "privateLinkServiceNetworkPolicies": "Disabled"},
        },
    ]
    space = {"addressPrefixes": ["10.0.0.0/8", "fd00::/48"]}
    network.place("virtualNetworks", "Their-Network", {"addressSpace": space, "subnets": subnets}, **owned)

    for name, number in NODES.items():
        place = {"subnet": at("virtualNetworks", "Their-Network", "/subnets/nodes"), "primary": True}
        first = {"name": "ipconfig1", "properties": {**place, "privateIPAddress": f"10.240.0.{number}"}}
        interface = {**at("networkInterfaces", f"{name}-nic"), "properties": {"primary": True}}
        machine = compute.machines[compute.path("virtualMachines", name).lower()]["resource"]["properties"]
        if sku == "Basic":
            machine["availabilitySet"] = {"id": compute.path("availabilitySets", "AGENTS")}
        machine["networkProfile"] = {"networkInterfaces": [interface]}
        network.place("networkInterfaces", f"{name}-nic", {"ipConfigurations": [first], **future}, **owned)

    static = {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"}
    for number, name in enumerate(("Their-Address", "Their-Way-Out", "Their-Spare"), 1):
        properties = {**static, "ipAddress": f"20.40.0.{number}", **future}
        network.place("publicIPAddresses", name, properties, **standard, **owned)
    for name, address in (("Their-Balancer", "Their-Address"), ("kubernetes", "Their-Way-Out")):
        self_ = network.path("loadBalancers", name)
        front = {"publicIPAddress": at("publicIPAddresses", address), **future}
        outbound = {
            "protocol": "All",
            "allocatedOutboundPorts": 1024,
            "frontendIPConfigurations": [{"id": f"{self_}/frontendIPConfigurations/Their-Front"}],
            "backendAddressPool": {"id": f"{self_}/backendAddressPools/Their-Pool"},
        }
        properties = {
            "frontendIPConfigurations": [{"name": "Their-Front", "properties": front}],
            "backendAddressPools": [{"name": "Their-Pool", "properties": {}}],
            "loadBalancingRules": [],
            "probes": [{"name": "Their-Probe", "properties": {"protocol": "Tcp", "port": 8443}}],
            **({"outboundRules": [{"name": "Their-Rule", "properties": outbound}]} if sku == "Standard" else {}),
            **future,
        }
        network.place("loadBalancers", name, properties, **standard, **owned)


def provider_id(cloud: Cloud, name: str) -> str:
    return "azure://" + cloud.compute.path("virtualMachines", name)
