"""The Services of a recording: each case is a list of steps, run on an empty cloud with its settings.

A step is a change of one Service: the name of the Service, and what it becomes, or None for its deletion. Every Service
that a case leaves is deleted at its end, which is recorded too.
"""

PREFIX = "service.beta.kubernetes.io/"
NETWORK = ("/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/lazuli/providers/Microsoft.Network")

# The settings, by their name: what azure.json says beside the defaults of the recording.
COMMON = {"loadBalancerSku": "standard", "vmType": "standard", "securityGroupName": "nsg", "subnetName": "nodes"}
SETTINGS = {
    "node-ip": COMMON | {"loadBalancerBackendPoolConfigurationType": "nodeIP"},
    "nic": COMMON | {"loadBalancerBackendPoolConfigurationType": "nodeIPConfiguration"},
    # The nodes' interfaces have an address of each family.
    "nic-dual-stack": COMMON | {"loadBalancerBackendPoolConfigurationType": "nodeIPConfiguration"},
    "nic-no-snat-tags": COMMON | {
        "disableOutboundSNAT": True, "tags": "team=x,cost=1", "loadBalancerName": "balancer",
    },
    "basic": COMMON | {"loadBalancerSku": "basic", "primaryAvailabilitySetName": "agents"},
    "shared-probe": COMMON | {
        "loadBalancerBackendPoolConfigurationType": "nodeIP", "clusterServiceLoadBalancerHealthProbeMode": "shared",
    },
}


def service(*annotations, ports=("TCP:80",), node_ports=30000, **spec):
    """A Service: annotations as KEY=VALUE without the prefix, ports as PROTOCOL:PORT, further fields of its spec."""
    listed = []
    for port in ports:
        protocol, number, *rest = port.split(":")
        entry = {
            "name": f"p{number}" if protocol == "TCP" else f"{protocol.lower()}{number}", "protocol": protocol,
            "port": int(number), "targetPort": int(number), "nodePort": node_ports + int(number) % 1000,
        }
        if protocol == "UDP":
            entry["nodePort"] += 1
        if rest:
            entry["appProtocol"] = rest[0]
        listed.append(entry)
    if spec.get("allocateLoadBalancerNodePorts") is False:
        for entry in listed:
            del entry["nodePort"]
    return {
        "annotations": {PREFIX + key: value for key, value in (pair.split("=", 1) for pair in annotations)},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": listed} | spec,
    }


INTERNAL = "azure-load-balancer-internal=true"
LOCAL = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 31000}
DUAL = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
V6 = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]}
LINK = "azure-pls-create=true"
PREFIX_ID = f"{NETWORK}/publicIPPrefixes/prefix"


def one(name, *annotations, settings="node-ip", **more):
    return case(name, [("web", service(*annotations, **more))], settings)


def case(name, steps, settings="node-ip"):
    return {"name": name, "settings": settings, "steps": steps}


MIXED = {"ports": ("TCP:80", "UDP:53", "TCP:443")}

CASES = [
    one("one public TCP port"),
    one("one public TCP port, NIC pool", settings="nic"),
    # Placement and address.
    one("internal", INTERNAL),
    one("internal, NIC pool", INTERNAL, settings="nic"),
    one("internal in a named subnet", INTERNAL, "azure-load-balancer-internal-subnet=apps"),
    one("internal with an address", INTERNAL, "azure-load-balancer-ipv4=10.240.0.99"),
    one("internal with loadBalancerIP", INTERNAL, loadBalancerIP="10.240.0.98"),
    one("public with an address", "azure-load-balancer-ipv4={mine}"),
    one("public with loadBalancerIP", loadBalancerIP="{mine}"),
    one("public IP by name", "azure-pip-name=mine"),
    one("public IP prefix", f"azure-pip-prefix-id={PREFIX_ID}"),
    one("public IP prefixes of both families", f"azure-pip-prefix-id={PREFIX_ID}", f"azure-pip-prefix-id-ipv6={PREFIX_ID}6", **DUAL),
    one("public IP in another group", "azure-load-balancer-resource-group=other"),
    one("mode on Standard", "azure-load-balancer-mode=__auto__"),
    one("additional public IPs", "azure-additional-public-ips=20.9.9.9,20.9.9.8"),
    one("DNS label", "azure-dns-label-name=my-label"),
    one("public IP tags", "azure-pip-tags=a=b,c=d"),
    one("IP tags", "azure-pip-ip-tags=RoutingPreference=Internet"),
    one("internal is false", "azure-load-balancer-internal=false"),
    one("internal with an address, NIC pool", INTERNAL, "azure-load-balancer-ipv4=10.240.0.99", settings="nic"),
    one("internal in a named subnet with an address", INTERNAL, "azure-load-balancer-internal-subnet=apps",
        "azure-load-balancer-ipv4=10.241.0.99"),
    # Traffic.
    one("idle timeout", "azure-load-balancer-tcp-idle-timeout=30", **MIXED),
    one("no TCP reset", "azure-load-balancer-disable-tcp-reset=true"),
    one("high availability ports", INTERNAL, "azure-load-balancer-enable-high-availability-ports=true", **MIXED),
    one("high availability ports, public", "azure-load-balancer-enable-high-availability-ports=true"),
    one("floating IP off", "azure-disable-load-balancer-floating-ip=true", **MIXED),
    one("floating IP off, internal with ranges", INTERNAL, "azure-disable-load-balancer-floating-ip=true",
        "azure-allowed-ip-ranges=10.1.0.0/16"),
    one("a port without a rule", "port_443_no_lb_rule=true", **MIXED),
    one("a port without a probe", "port_80_no_probe_rule=true"),
    one("mixed protocols", **MIXED),
    one("two mixed protocols on one port", ports=("TCP:53", "UDP:53")),
    one("SCTP", INTERNAL, ports=("SCTP:3868",)),
    one("session affinity", sessionAffinity="ClientIP"),
    one("session affinity, internal", INTERNAL, sessionAffinity="ClientIP"),
    one("session affinity with a timeout", sessionAffinity="ClientIP",
        sessionAffinityConfig={"clientIP": {"timeoutSeconds": 60}}),
    one("high availability ports with timeout and affinity", INTERNAL, sessionAffinity="ClientIP",
        *("azure-load-balancer-enable-high-availability-ports=true", "azure-load-balancer-tcp-idle-timeout=30")),
    one("high availability ports, floating IP off", INTERNAL, "azure-disable-load-balancer-floating-ip=true",
        "azure-load-balancer-enable-high-availability-ports=true"),
    one("external addresses", externalIPs=["198.51.100.7"]),
    one("publishNotReadyAddresses and local internal traffic", publishNotReadyAddresses=True,
        internalTrafficPolicy="Local"),
    # Probes.
    one("HTTP probe", "azure-load-balancer-health-probe-protocol=http"),
    one("HTTPS probe with a path", "azure-load-balancer-health-probe-protocol=Https",
        "azure-load-balancer-health-probe-request-path=/ready"),
    one("probe interval and count", "azure-load-balancer-health-probe-interval=15",
        "azure-load-balancer-health-probe-num-of-probe=4"),
    one("probes of ports", "port_80_health-probe_protocol=http", "port_80_health-probe_port=p443",
        "port_443_health-probe_port=10256", "port_80_health-probe_interval=20",
        "port_80_health-probe_num-of-probe=3", "port_80_health-probe_request-path=/own", **MIXED),
    one("appProtocol", ports=("TCP:80:http", "TCP:443:https", "TCP:9090:grpc")),
    one("appProtocol before the annotation", "azure-load-balancer-health-probe-protocol=tcp", ports=("TCP:80:HTTP",)),
    one("local traffic", **LOCAL, **MIXED),
    one("local traffic with a probe of a port", "port_80_health-probe_port=80", **LOCAL),
    one("local traffic, internal", INTERNAL, **LOCAL),
    one("no node ports", allocateLoadBalancerNodePorts=False, **LOCAL),
    one("shared probe", settings="shared-probe", **MIXED),
    one("shared probe, local traffic", settings="shared-probe", **LOCAL),
    one("shared probe, high availability ports", INTERNAL, "azure-load-balancer-enable-high-availability-ports=true",
        settings="shared-probe", **MIXED),
    one("probes of all ports and of one", "azure-load-balancer-health-probe-protocol=http",
        "azure-load-balancer-health-probe-request-path=/all", "azure-load-balancer-health-probe-interval=7",
        "port_443_health-probe_protocol=https", "port_443_health-probe_request-path=/one", **MIXED),
    one("a probe's path of an appProtocol", "azure-load-balancer-health-probe-request-path=/ready",
        ports=("TCP:80:http", "TCP:443:https")),
    one("shared probe, floating IP off", "azure-disable-load-balancer-floating-ip=true", settings="shared-probe"),
    # Access.
    one("service tags", "azure-allowed-service-tags=AzureCloud, Storage"),
    one("IP ranges", "azure-allowed-ip-ranges=10.1.0.0/16,10.0.0.0/16, 192.168.1.0/24"),
    one("IP ranges of both families", "azure-allowed-ip-ranges=10.1.0.0/16,2001:db8::/32", **DUAL),
    one("source ranges", loadBalancerSourceRanges=["10.0.0.0/8", "172.16.0.0/12"], **MIXED),
    one("source ranges by annotation", "load-balancer-source-ranges=10.0.0.0/8,172.16.0.0/12"),
    one("deny all else", "azure-deny-all-except-load-balancer-source-ranges=true", loadBalancerSourceRanges=["10.0.0.0/8"]),
    one("no security rule", "azure-disable-load-balancer-nsg-rule=true"),
    one("shared security rule", "azure-shared-securityrule=true"),
    one("internal with ranges", INTERNAL, "azure-allowed-ip-ranges=0.0.0.0/0"),
    one("internal with service tags", INTERNAL, "azure-allowed-service-tags=AzureCloud"),
    one("internal, deny all else", INTERNAL, "azure-deny-all-except-load-balancer-source-ranges=true",
        loadBalancerSourceRanges=["10.0.0.0/8"], **MIXED),
    one("deny all else, ranges by annotation", "azure-deny-all-except-load-balancer-source-ranges=true",
        "azure-allowed-ip-ranges=10.1.0.0/16"),
    one("service tags and IP ranges", "azure-allowed-service-tags=AzureCloud", "azure-allowed-ip-ranges=10.1.0.0/16"),
    one("source ranges of all addresses", loadBalancerSourceRanges=["0.0.0.0/0"]),
    one("service tags and source ranges", "azure-allowed-service-tags=AzureCloud", loadBalancerSourceRanges=["10.0.0.0/8"]),
    # Families.
    one("dual stack", **DUAL),
    one("dual stack, internal", INTERNAL, **DUAL),
    one("IPv6 alone", **V6),
    one("dual stack, public IPs by name", "azure-pip-name=mine", "azure-pip-name-ipv6=mine6", **DUAL),
    one("dual stack, addresses", "azure-load-balancer-ipv4={mine}", "azure-load-balancer-ipv6={mine6}", **DUAL),
    one("dual stack, local traffic", **DUAL, **LOCAL),
    one("dual stack, NIC pool", settings="nic-dual-stack", **DUAL),
    one("dual stack, internal with addresses", INTERNAL, "azure-load-balancer-ipv4=10.240.0.99",
        "azure-load-balancer-ipv6=fd00:0:0:1::99", **DUAL),
    one("dual stack, internal, NIC pool", INTERNAL, settings="nic-dual-stack", **DUAL),
    one("dual stack, high availability ports", INTERNAL, "azure-load-balancer-enable-high-availability-ports=true", **DUAL),
    one("dual stack, floating IP off", "azure-disable-load-balancer-floating-ip=true", **DUAL),
    one("dual stack, mixed protocols and affinity", sessionAffinity="ClientIP", **DUAL, **MIXED),
    one("dual stack, probes", "azure-load-balancer-health-probe-protocol=http", "port_80_health-probe_interval=20",
        **DUAL, **MIXED),
    one("dual stack, shared probe", settings="shared-probe", **DUAL),
    one("dual stack, DNS label", "azure-dns-label-name=my-label", **DUAL),
    one("dual stack, public IP tags", "azure-pip-tags=a=b", **DUAL),
    one("dual stack, additional public IPs", "azure-additional-public-ips=20.9.9.9,2603:1030::9", **DUAL),
    one("dual stack, source ranges", loadBalancerSourceRanges=["10.0.0.0/8", "2001:db8::/32"], **DUAL),
    one("dual stack, source ranges of one family", loadBalancerSourceRanges=["10.0.0.0/8"], **DUAL),
    one("dual stack, deny all else", "azure-deny-all-except-load-balancer-source-ranges=true",
        loadBalancerSourceRanges=["10.0.0.0/8", "2001:db8::/32"], **DUAL),
    one("dual stack, service tags", "azure-allowed-service-tags=AzureCloud", **DUAL),
    one("dual stack, IPv6 first", ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv6", "IPv4"]),
    one("IPv6 alone, internal", INTERNAL, **V6),
    one("IPv6 alone, NIC pool", settings="nic-dual-stack", **V6),
    one("IPv6 alone, local traffic", **V6, **LOCAL),
    one("IPv6 alone, source ranges", loadBalancerSourceRanges=["2001:db8::/32"], **V6),
    one("IPv6 alone, public IP by name", "azure-pip-name-ipv6=mine6", **V6),
    # Private link.
    one("private link on a pool of addresses", INTERNAL, LINK),
    one("private link", INTERNAL, LINK, settings="nic"),
    one("private link, all annotations", INTERNAL, LINK, "azure-pls-name=mine", "azure-pls-ip-configuration-subnet=links",
        "azure-pls-ip-configuration-ip-address-count=3", "azure-pls-ip-configuration-ip-address=10.242.0.9 10.242.0.8",
        "azure-pls-fqdns=a.example b.example", "azure-pls-proxy-protocol=true", "azure-pls-visibility=*",
        "azure-pls-auto-approval=00000000-0000-0000-0000-000000000001",
        settings="nic"),
    one("private link in another group", INTERNAL, LINK, "azure-pls-resource-group=other",
        "azure-pls-visibility=00000000-0000-0000-0000-000000000001", settings="nic"),
    one("private link on a public Service", LINK, settings="nic"),
    one("private link with dynamic addresses", INTERNAL, LINK, "azure-pls-ip-configuration-ip-address-count=2",
        "azure-pls-ip-configuration-subnet=links", settings="nic"),
    one("private link, floating IP off", INTERNAL, LINK, "azure-disable-load-balancer-floating-ip=true", settings="nic"),
    # Settings.
    one("tags, name and no SNAT", settings="nic-no-snat-tags"),
    one("tags of the Service too", "azure-pip-tags=a=b,team=y", settings="nic-no-snat-tags"),
    one("internal, tags, name and no SNAT", INTERNAL, settings="nic-no-snat-tags"),
    one("Basic", settings="basic", **MIXED),
    one("Basic, internal", INTERNAL, settings="basic"),
    one("Basic, mode", "azure-load-balancer-mode=__auto__", settings="basic"),
    one("Basic, a named availability set", "azure-load-balancer-mode=agents", settings="basic"),
    one("Basic, source ranges", settings="basic", loadBalancerSourceRanges=["10.0.0.0/8"]),
    one("Basic, session affinity and timeout", "azure-load-balancer-tcp-idle-timeout=30", settings="basic",
        sessionAffinity="ClientIP"),
    one("Basic, HTTPS probe", "azure-load-balancer-health-probe-protocol=https", settings="basic"),
    one("Basic, local traffic", settings="basic", **LOCAL),
    # Changes.
    case("public becomes internal", [("web", service()), ("web", service(INTERNAL))]),
    case("internal becomes public", [("web", service(INTERNAL)), ("web", service())]),
    case("public becomes internal, NIC pool", [("web", service()), ("web", service(INTERNAL))], "nic"),
    case("ports change", [("web", service(**MIXED)), ("web", service(ports=("TCP:80", "TCP:8443")))]),
    case("ranges change", [("web", service(loadBalancerSourceRanges=["10.0.0.0/8"])),
                           ("web", service(loadBalancerSourceRanges=["10.0.0.0/9", "11.0.0.0/8"])), ("web", service())]),
    case("ranges with deny-all go", [
        ("web", service("azure-deny-all-except-load-balancer-source-ranges=true", loadBalancerSourceRanges=["10.0.0.0/8"])),
        ("web", service())]),
    case("subnet changes", [("web", service(INTERNAL)), ("web", service(INTERNAL, "azure-load-balancer-internal-subnet=apps"))]),
    case("DNS label changes and goes", [("web", service("azure-dns-label-name=one")),
                                        ("web", service("azure-dns-label-name=two")),
                                        ("web", service("azure-dns-label-name="))]),
    case("public IP name appears", [("web", service()), ("web", service("azure-pip-name=mine"))]),
    case("public IP prefix appears", [("web", service()), ("web", service(f"azure-pip-prefix-id={PREFIX_ID}"))]),
    case("IP tags change", [("web", service("azure-pip-ip-tags=RoutingPreference=Internet")),
                            ("web", service("azure-pip-ip-tags=FirstPartyUsage=/x"))]),
    case("local traffic appears", [("web", service()), ("web", service(**LOCAL))]),
    case("dual stack appears", [("web", service()), ("web", service(**DUAL))]),
    case("floating IP goes off", [("web", service()), ("web", service("azure-disable-load-balancer-floating-ip=true"))]),
    case("local traffic goes", [("web", service(**LOCAL)), ("web", service())]),
    case("dual stack goes", [("web", service(**DUAL)),
                             ("web", service(ipFamilyPolicy="SingleStack", ipFamilies=["IPv4"]))]),
    case("floating IP comes back", [("web", service("azure-disable-load-balancer-floating-ip=true")), ("web", service())]),
    case("idle timeout and reset change", [
        ("web", service()), ("web", service("azure-load-balancer-tcp-idle-timeout=30",
                                            "azure-load-balancer-disable-tcp-reset=true")), ("web", service())]),
    case("session affinity comes and goes", [("web", service()), ("web", service(sessionAffinity="ClientIP")),
                                             ("web", service())]),
    case("probes change", [("web", service()), ("web", service("azure-load-balancer-health-probe-protocol=http")),
                           ("web", service("port_80_no_probe_rule=true"))]),
    case("a port becomes UDP", [("web", service()), ("web", service(ports=("UDP:80",)))]),
    case("high availability ports come and go", [
        ("web", service(INTERNAL, **MIXED)),
        ("web", service(INTERNAL, "azure-load-balancer-enable-high-availability-ports=true", **MIXED)),
        ("web", service(INTERNAL, **MIXED))]),
    case("service tags change", [("web", service("azure-allowed-service-tags=AzureCloud")),
                                 ("web", service("azure-allowed-service-tags=Storage")), ("web", service())]),
    case("IP ranges change", [("web", service("azure-allowed-ip-ranges=10.1.0.0/16")),
                              ("web", service("azure-allowed-ip-ranges=10.2.0.0/16,10.3.0.0/16"))]),
    case("public IP tags change", [("web", service("azure-pip-tags=a=b,c=d")), ("web", service("azure-pip-tags=a=e"))]),
    case("address of an internal Service changes", [
        ("web", service(INTERNAL, "azure-load-balancer-ipv4=10.240.0.99")),
        ("web", service(INTERNAL, "azure-load-balancer-ipv4=10.240.0.98"))]),
    case("private link comes and goes", [("web", service(INTERNAL)), ("web", service(INTERNAL, LINK)),
                                         ("web", service(INTERNAL, "azure-pls-create=false"))], "nic"),
    case("private link's visibility changes", [
        ("web", service(INTERNAL, LINK, "azure-pls-visibility=*")),
        ("web", service(INTERNAL, LINK, "azure-pls-visibility=00000000-0000-0000-0000-000000000001"))], "nic"),
    case("becomes ClusterIP", [("web", service()), ("web", {"annotations": {}, "spec": {"type": "ClusterIP"}})]),
    case("dual stack comes and goes, NIC pool", [
        ("web", service()), ("web", service(**DUAL)),
        ("web", service(ipFamilyPolicy="SingleStack", ipFamilies=["IPv4"]))], "nic-dual-stack"),
    case("private link goes with its Service", [("web", service(INTERNAL, LINK)), ("web", None)], "nic"),
    # Several Services.
    case("two Services", [("web", service()), ("api", service(node_ports=31000, **MIXED)), ("web", None)]),
    case("two Services, NIC pool", [("web", service()), ("api", service(INTERNAL, node_ports=31000)), ("web", None)], "nic"),
    case("two Services with a shared address", [
        ("web", service("azure-pip-name=mine")), ("api", service("azure-pip-name=mine", ports=("TCP:8080",), node_ports=31000)), ("web", None)]),
    case("two dual-stack Services", [("web", service(**DUAL)), ("api", service(node_ports=31000, **DUAL)), ("web", None)]),
    case("two Services, deny all else", [
        ("web", service("azure-deny-all-except-load-balancer-source-ranges=true", loadBalancerSourceRanges=["10.0.0.0/8"])),
        ("api", service("azure-deny-all-except-load-balancer-source-ranges=true", node_ports=31000,
                        loadBalancerSourceRanges=["11.0.0.0/8"])), ("web", None)]),
    case("two Services with one range", [
        ("web", service(loadBalancerSourceRanges=["10.0.0.0/8"])), ("api", service(node_ports=31000, loadBalancerSourceRanges=["10.0.0.0/8"])),
        ("web", service())]),
    case("two internal Services with a shared address", [
        ("web", service(INTERNAL, "azure-load-balancer-ipv4=10.240.0.77")),
        ("api", service(INTERNAL, "azure-load-balancer-ipv4=10.240.0.77", ports=("TCP:8080",), node_ports=31000)), ("web", None)]),
]
