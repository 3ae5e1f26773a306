"""The members of the network types, and what refers to what.

Source: the published shapes of 2025-05-01 (Azure/bicep-types-az, network), and the swagger for what is read-only and
required. Knows no state: all functions are about one document.
"""

from collections.abc import Iterator

from dialect import Dialect

# Members of `properties` that a client may set, then what only Azure writes.
_LISTED = {
    "loadBalancers": (
        "frontendIPConfigurations backendAddressPools loadBalancingRules probes inboundNatRules inboundNatPools "
        "outboundRules scope",
        "",
    ),
    "loadBalancers/frontendIPConfigurations": (
        "privateIPAddress privateIPAllocationMethod privateIPAddressVersion subnet publicIPAddress publicIPPrefix "
        "gatewayLoadBalancer",
        "inboundNatRules inboundNatPools outboundRules loadBalancingRules",
    ),
    "loadBalancers/backendAddressPools": (
        "location tunnelInterfaces loadBalancerBackendAddresses drainPeriodInSeconds virtualNetwork syncMode",
        "backendIPConfigurations loadBalancingRules outboundRule outboundRules inboundNatRules",
    ),
    "loadBalancers/loadBalancingRules": (
        "frontendIPConfiguration backendAddressPool backendAddressPools probe protocol loadDistribution frontendPort "
        "backendPort idleTimeoutInMinutes enableFloatingIP enableTcpReset disableOutboundSnat enableConnectionTracking",
        "",
    ),
    "loadBalancers/probes": (
        "protocol port intervalInSeconds noHealthyBackendsBehavior numberOfProbes probeThreshold requestPath",
        "loadBalancingRules",
    ),
    "loadBalancers/outboundRules": (
        "allocatedOutboundPorts frontendIPConfigurations backendAddressPool protocol enableTcpReset "
        "idleTimeoutInMinutes",
        "",
    ),
    "loadBalancers/inboundNatRules": (
        "frontendIPConfiguration protocol frontendPort backendPort idleTimeoutInMinutes enableFloatingIP "
        "enableTcpReset frontendPortRangeStart frontendPortRangeEnd backendAddressPool",
        "backendIPConfiguration",
    ),
    "networkSecurityGroups": (
        "securityRules flushConnection",
        "defaultSecurityRules networkInterfaces subnets flowLogs",
    ),
    "networkSecurityGroups/securityRules": (
        "description protocol sourcePortRange destinationPortRange sourceAddressPrefix sourceAddressPrefixes "
        "sourceApplicationSecurityGroups destinationAddressPrefix destinationAddressPrefixes "
        "destinationApplicationSecurityGroups sourcePortRanges destinationPortRanges access priority direction",
        "",
    ),
    "publicIPAddresses": (
        "publicIPAllocationMethod publicIPAddressVersion dnsSettings ddosSettings ipTags ipAddress publicIPPrefix "
        "idleTimeoutInMinutes servicePublicIPAddress natGateway migrationPhase linkedPublicIPAddress deleteOption",
        "ipConfiguration",
    ),
    "networkInterfaces": (
        "networkSecurityGroup ipConfigurations dnsSettings enableAcceleratedNetworking disableTcpStateTracking "
        "enableIPForwarding workloadType nicType privateLinkService migrationPhase auxiliaryMode auxiliarySku",
        "virtualMachine privateEndpoint tapConfigurations macAddress primary vnetEncryptionSupported hostedWorkloads "
        "dscpConfiguration defaultOutboundConnectivityEnabled",
    ),
    "networkInterfaces/ipConfigurations": (
        "gatewayLoadBalancer virtualNetworkTaps applicationGatewayBackendAddressPools loadBalancerBackendAddressPools "
        "loadBalancerInboundNatRules privateIPAddress privateIPAddressPrefixLength privateIPAllocationMethod "
        "privateIPAddressVersion subnet primary publicIPAddress applicationSecurityGroups",
        "privateLinkConnectionProperties",
    ),
    "privateLinkServices": (
        "loadBalancerFrontendIpConfigurations ipConfigurations destinationIPAddress accessMode visibility autoApproval "
        "fqdns enableProxyProtocol",
        "networkInterfaces privateEndpointConnections alias",
    ),
    "privateLinkServices/ipConfigurations": (
        "privateIPAddress privateIPAllocationMethod subnet primary privateIPAddressVersion",
        "",
    ),
    "routeTables": ("routes disableBgpRoutePropagation", "subnets"),
    "routeTables/routes": ("addressPrefix nextHopType nextHopIpAddress", "hasBgpOverride"),
    "virtualNetworks": (
        "addressSpace dhcpOptions flowTimeoutInMinutes subnets virtualNetworkPeerings enableDdosProtection "
        "enableVmProtection ddosProtectionPlan bgpCommunities encryption ipAllocations privateEndpointVNetPolicies",
        "flowLogs defaultPublicNatGateway",
    ),
    "virtualNetworks/subnets": (
        "addressPrefix addressPrefixes networkSecurityGroup routeTable natGateway serviceEndpoints "
        "serviceEndpointPolicies ipAllocations delegations privateEndpointNetworkPolicies "
        "privateLinkServiceNetworkPolicies applicationGatewayIPConfigurations sharingScope defaultOutboundAccess "
        "ipamPoolPrefixAllocations serviceGateway",
        "privateEndpoints ipConfigurations ipConfigurationProfiles resourceNavigationLinks serviceAssociationLinks "
        "purpose",
    ),
}
WRITABLE = {kind: set(own.split()) for kind, (own, _) in _LISTED.items()}
READ_ONLY = {kind: set(azure.split()) | {"provisioningState", "resourceGuid"} for kind, (_, azure) in _LISTED.items()}
# Members that the swagger of 2021-05-01 does not have yet, so no earlier version has them either. Azure Stack Hub
# refuses what is newer than its api-version (recorded for compute).
SINCE_2021 = {
    "scope", "drainPeriodInSeconds", "virtualNetwork", "syncMode", "enableConnectionTracking",
    "noHealthyBackendsBehavior", "probeThreshold", "flushConnection", "disableTcpStateTracking", "auxiliaryMode",
    "auxiliarySku", "privateIPAddressPrefixLength", "destinationIPAddress", "accessMode", "sharingScope",
    "defaultOutboundAccess", "ipamPoolPrefixAllocations", "serviceGateway",
}  # fmt: skip
KINDS = {kind.lower(): kind for kind in _LISTED if "/" not in kind}
# Lists of parts: each has a name, an id and an etag of its own.
PARTS: dict[str, tuple[str, ...]] = {
    kind: tuple(part.split("/")[1] for part in _LISTED if part.startswith(f"{kind}/")) for kind in KINDS.values()
}
TOP = {"id", "name", "type", "etag", "location", "tags", "sku", "zones", "extendedLocation", "properties", "kind"}
REQUIRED = {
    "loadBalancers/loadBalancingRules": {"protocol", "frontendPort", "frontendIPConfiguration"},
    "loadBalancers/probes": {"protocol", "port"},
    "networkSecurityGroups/securityRules": {"protocol", "access", "direction", "priority"},
    "routeTables/routes": {"nextHopType"},
}
# Source: recordings of the load balancer, public IP, security group, route table and virtual network clients.
DEFAULTS = {
    "loadBalancers": {part: [] for part in PARTS["loadBalancers"]} | {"inboundNatPools": []},
    "networkSecurityGroups": {"securityRules": []},
    "publicIPAddresses": {
        "publicIPAddressVersion": "IPv4",
        "publicIPAllocationMethod": "Dynamic",
        "idleTimeoutInMinutes": 4,
        "ipTags": [],
    },
    "routeTables": {"disableBgpRoutePropagation": False, "routes": []},
    "networkInterfaces": {"nicType": "Standard", "enableIPForwarding": False},
    "virtualNetworks": {"virtualNetworkPeerings": [], "enableDdosProtection": False},
}
PART_DEFAULTS = {
    "loadBalancers/frontendIPConfigurations": {"privateIPAllocationMethod": "Dynamic"},
    "loadBalancers/loadBalancingRules": {
        "enableFloatingIP": False,
        "enableTcpReset": False,
        "disableOutboundSnat": False,
        "idleTimeoutInMinutes": 4,
        "loadDistribution": "Default",
    },
    "loadBalancers/backendAddressPools": {},
    "networkSecurityGroups/securityRules": {
        "sourcePortRanges": [],
        "destinationPortRanges": [],
        "sourceAddressPrefixes": [],
        "destinationAddressPrefixes": [],
    },
    "networkInterfaces/ipConfigurations": {"privateIPAllocationMethod": "Dynamic", "privateIPAddressVersion": "IPv4"},
    "virtualNetworks/subnets": {
        "delegations": [],
        "privateEndpointNetworkPolicies": "Disabled",
        "privateLinkServiceNetworkPolicies": "Enabled",
    },
}


def spelled(kind: str) -> str:
    """A type as Azure spells it."""
    return KINDS[kind.lower()]


def parts(kind: str, document: dict) -> Iterator[tuple[str, dict]]:
    """The parts of a document, by `list/name`."""
    for member in PARTS.get(kind, ()):
        for part in document["properties"].get(member) or []:
            yield f"{member}/{part['name']}", part


def references(kind: str, document: dict) -> Iterator[tuple[str, str]]:
    """What a document refers to: (the id of what refers, the id that it names)."""

    def walk(value, where: str) -> Iterator[tuple[str, str]]:
        if isinstance(value, list):
            for inner in value:
                yield from walk(inner, where)
        elif isinstance(value, dict):
            target = value.get("id")
            if isinstance(target, str) and "/providers/Microsoft.Network/".lower() in target.lower():
                yield where, target
                return
            for inner in value.values():
                yield from walk(inner, where)

    named = dict(parts(kind, document))
    for name, part in named.items():
        yield from walk(part["properties"], f"{document['id']}/{name}")
    for member, value in document["properties"].items():
        if member not in PARTS.get(kind, ()):
            yield from walk(value, document["id"])


def add_defaults(kind: str, body: dict) -> None:
    """What Azure adds to what a client left out."""
    properties = body["properties"]
    for member, value in DEFAULTS.get(kind, {}).items():
        if properties.get(member) is None:
            properties[member] = [] if value == [] else value
    for member in PARTS.get(kind, ()):
        for part in properties.get(member) or []:
            for name, value in PART_DEFAULTS.get(f"{kind}/{member}", {}).items():
                part["properties"].setdefault(name, [] if value == [] else value)
    if kind == "loadBalancers":
        body["sku"] = {"tier": "Regional", **(body.get("sku") or {"name": "Basic"})}
    if kind == "publicIPAddresses":
        body["sku"] = {"tier": "Regional", **(body.get("sku") or {"name": "Basic"})}


def clean(kind: str, document: dict, dialect: Dialect) -> Iterator[str]:
    """Takes away what only Azure writes; says what the shape does not have."""

    def inner(shape: str, properties: dict) -> Iterator[str]:
        for member in list(properties):
            if member in READ_ONLY[shape]:
                del properties[member]
            elif dialect.stack and member in SINCE_2021:
                yield f"Could not find member '{member}' on object of type '{shape}'."
            elif member not in WRITABLE[shape] and not (dialect.new_properties and member.startswith("future")):
                yield f"Could not find member '{member}' on object of type '{shape}'."

    for member in list(document):
        if member not in TOP and not (dialect.new_properties and member.startswith("future")):
            yield f"Could not find member '{member}' on object of type '{kind}'."
    for member in ("etag", "type", "id", "name", "kind"):
        document.pop(member, None)
    properties = document.setdefault("properties", {})
    yield from inner(kind, properties)
    for member in PARTS.get(kind, ()):
        for part in properties.get(member) or []:
            if not part.get("name"):
                yield f"A part of '{member}' has no name."
            for top in ("etag", "type", "id"):
                part.pop(top, None)
            yield from inner(f"{kind}/{member}", part.setdefault("properties", {}))


def problems(kind: str, document: dict) -> Iterator[str]:
    """What a document says that Azure refuses, by itself."""
    for member in PARTS.get(kind, ()):
        names = [part["name"].lower() for part in document["properties"].get(member) or []]
        if len(names) != len(set(names)):
            yield f"Two of '{member}' have one name."
    for name, part in parts(kind, document):
        for member in REQUIRED.get(f"{kind}/{name.split('/')[0]}", ()):
            if part["properties"].get(member) is None:
                yield f"Required member '{member}' of {name} is missing."
    check = {"loadBalancers": _balancer, "networkSecurityGroups": _group, "routeTables": _routes}.get(kind)
    if check:
        yield from check(document)


def _balancer(document: dict) -> Iterator[str]:
    properties = document["properties"]
    fronts = properties.get("frontendIPConfigurations") or []
    # Recorded: hashicorp/terraform-provider-azurerm#774.
    if not fronts and any(properties.get(member) for member in ("backendAddressPools", "loadBalancingRules", "probes")):
        yield "A load balancer needs at least one frontend IP configuration."
    for front in fronts:
        places = [each for each in ("subnet", "publicIPAddress", "publicIPPrefix") if front["properties"].get(each)]
        if len(places) != 1:
            yield f"{front['name']} has {places or 'neither subnet nor public IP'}."
    seen = set()
    for rule in properties.get("loadBalancingRules") or []:
        inner = rule["properties"]
        one = (inner["frontendIPConfiguration"]["id"].lower(), inner["frontendPort"], inner["protocol"].lower())
        if one in seen:
            yield f"Two rules have frontend port {one[1]} and protocol {one[2]}."
        seen.add(one)
        if inner["protocol"].lower() == "all" and (inner["frontendPort"], inner.get("backendPort")) != (0, 0):
            yield "A rule of all protocols has ports."
    for pool in properties.get("backendAddressPools") or []:
        network = pool["properties"].get("virtualNetwork")
        for member in pool["properties"].get("loadBalancerBackendAddresses") or []:
            inner = member.get("properties") or {}
            if inner.get("ipAddress") and not (inner.get("virtualNetwork") or inner.get("subnet") or network):
                yield f"{inner['ipAddress']} of {pool['name']} has no virtual network."


def _group(document: dict) -> Iterator[str]:
    taken: dict[tuple, str] = {}
    for rule in document["properties"].get("securityRules") or []:
        inner = rule["properties"]
        at = (inner["direction"].lower(), inner["priority"])
        # Documented: 100 to 4096, once per direction.
        if at in taken:
            yield f"{taken[at]} and {rule['name']} have priority {at[1]}."
        if not 100 <= inner["priority"] <= 4096:
            yield f"{rule['name']} has priority {inner['priority']}."
        taken[at] = rule["name"]
        for one, many in (
            ("sourceAddressPrefix", "sourceAddressPrefixes"),
            ("destinationAddressPrefix", "destinationAddressPrefixes"),
            ("destinationPortRange", "destinationPortRanges"),
            ("sourcePortRange", "sourcePortRanges"),
        ):
            if bool(inner.get(one)) == bool(inner.get(many)):
                yield f"{rule['name']} has {'both' if inner.get(one) else 'neither'} {one} and {many}."


def _routes(document: dict) -> Iterator[str]:
    taken: dict[str, str] = {}
    for route in document["properties"].get("routes") or []:
        prefix = route["properties"].get("addressPrefix")
        if prefix in taken:
            yield f"{taken[prefix]} and {route['name']} lead {prefix}."
        taken[prefix] = route["name"]
        if route["properties"]["nextHopType"] == "VirtualAppliance" and not route["properties"].get("nextHopIpAddress"):
            yield f"{route['name']} has no next hop."


# ---- members of a cloud that is newer than its client


def future(document, at: tuple = ()) -> Iterator[tuple[tuple, object]]:
    """The members that no client of today knows: (where, value). A part of a list is named by its name."""
    if isinstance(document, dict):
        for member, value in document.items():
            if member.startswith("future"):
                yield (*at, member), value
            else:
                yield from future(value, (*at, member))
    elif isinstance(document, list):
        for value in document:
            if isinstance(value, dict) and "name" in value:
                yield from future(value, (*at, value["name"]))


def find(document, where: tuple):
    """The value at a place that `future` named, or None."""
    for step in where:
        if isinstance(document, list):
            document = next((each for each in document if each.get("name") == step), None)
        elif isinstance(document, dict):
            document = document.get(step)
        else:
            return None
    return document
