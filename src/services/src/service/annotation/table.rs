//! The rows.

use super::{Annotation, Kind};

/// The keys, by name.
pub mod key {
    macro_rules! keys {
        ($($name:ident = $key:literal),+ $(,)?) => {
            $(
                #[doc = concat!("`", $key, "`")]
                pub const $name: &str = concat!("service.beta.kubernetes.io/", $key);
            )+
        };
    }
    keys! {
        INTERNAL = "azure-load-balancer-internal",
        INTERNAL_SUBNET = "azure-load-balancer-internal-subnet",
        IPV4 = "azure-load-balancer-ipv4",
        IPV6 = "azure-load-balancer-ipv6",
        PIP_NAME = "azure-pip-name",
        PIP_NAME_IPV6 = "azure-pip-name-ipv6",
        PIP_PREFIX = "azure-pip-prefix-id",
        PIP_PREFIX_IPV6 = "azure-pip-prefix-id-ipv6",
        RESOURCE_GROUP = "azure-load-balancer-resource-group",
        MODE = "azure-load-balancer-mode",
        CONFIGURATIONS = "azure-load-balancer-configurations",
        ADDITIONAL_IPS = "azure-additional-public-ips",
        DNS_LABEL = "azure-dns-label-name",
        PIP_TAGS = "azure-pip-tags",
        PIP_IP_TAGS = "azure-pip-ip-tags",
        IDLE_TIMEOUT = "azure-load-balancer-tcp-idle-timeout",
        DISABLE_TCP_RESET = "azure-load-balancer-disable-tcp-reset",
        HA_PORTS = "azure-load-balancer-enable-high-availability-ports",
        DISABLE_FLOATING_IP = "azure-disable-load-balancer-floating-ip",
        PORT_NO_RULE = "port_{port}_no_lb_rule",
        PORT_NO_PROBE = "port_{port}_no_probe_rule",
        PROBE_PROTOCOL = "azure-load-balancer-health-probe-protocol",
        PROBE_PATH = "azure-load-balancer-health-probe-request-path",
        PROBE_INTERVAL = "azure-load-balancer-health-probe-interval",
        PROBE_COUNT = "azure-load-balancer-health-probe-num-of-probe",
        PORT_PROBE_PROTOCOL = "port_{port}_health-probe_protocol",
        PORT_PROBE_PORT = "port_{port}_health-probe_port",
        PORT_PROBE_INTERVAL = "port_{port}_health-probe_interval",
        PORT_PROBE_COUNT = "port_{port}_health-probe_num-of-probe",
        PORT_PROBE_PATH = "port_{port}_health-probe_request-path",
        SERVICE_TAGS = "azure-allowed-service-tags",
        IP_RANGES = "azure-allowed-ip-ranges",
        SOURCE_RANGES = "load-balancer-source-ranges",
        DENY_ALL = "azure-deny-all-except-load-balancer-source-ranges",
        DISABLE_SECURITY_RULES = "azure-disable-load-balancer-nsg-rule",
        SHARED_SECURITY_RULE = "azure-shared-securityrule",
        PLS_CREATE = "azure-pls-create",
        PLS_NAME = "azure-pls-name",
        PLS_RESOURCE_GROUP = "azure-pls-resource-group",
        PLS_SUBNET = "azure-pls-ip-configuration-subnet",
        PLS_ADDRESS_COUNT = "azure-pls-ip-configuration-ip-address-count",
        PLS_ADDRESSES = "azure-pls-ip-configuration-ip-address",
        PLS_FQDNS = "azure-pls-fqdns",
        PLS_PROXY_PROTOCOL = "azure-pls-proxy-protocol",
        PLS_VISIBILITY = "azure-pls-visibility",
        PLS_AUTO_APPROVAL = "azure-pls-auto-approval",
    }
}

const fn row(key: &'static str, kind: Kind, effect: &'static str) -> Annotation {
    Annotation { key, kind, effect }
}

const PROBE_WORDS: Kind = Kind::Choice(&["tcp", "http", "https"]);
const INTERVAL: Kind = Kind::Number { least: 5, most: 59, unit: "seconds" };
const COUNT: Kind = Kind::Number { least: 2, most: 23, unit: "failures" };
const PATH: Kind = Kind::Text("a path such as /healthz");

/// Every annotation.
pub const TABLE: &[Annotation] = &[
    row(key::INTERNAL, Kind::Flag, "Serves on an address of a subnet instead of a public IP."),
    row(
        key::INTERNAL_SUBNET,
        Kind::Text("the name of a subnet of the cluster's virtual network"),
        "Subnet of the frontend; part of the names of frontend and rules.",
    ),
    row(
        key::IPV4,
        Kind::Text("an IPv4 address"),
        "Address of the frontend; of a public Service that of an existing public IP, which several Services may share.",
    ),
    row(key::IPV6, Kind::Text("an IPv6 address"), "The same for IPv6."),
    row(
        key::PIP_NAME,
        Kind::Text("the name of a public IP"),
        "Serves on this existing public IP, which is neither tagged nor deleted if a user made it.",
    ),
    row(key::PIP_NAME_IPV6, Kind::Text("the name of a public IP"), "The same for IPv6."),
    row(
        key::PIP_PREFIX,
        Kind::Text("the id of a public IP prefix"),
        "Takes a new public IP from this prefix; its name is part of the public IP's.",
    ),
    row(key::PIP_PREFIX_IPV6, Kind::Text("the id of a public IP prefix"), "The same for IPv6."),
    row(
        key::RESOURCE_GROUP,
        Kind::Text("the name of a resource group"),
        "Resource group of the public IP, not of the load balancer.",
    ),
    row(
        key::MODE,
        Kind::CommaList("__auto__, or names of availability sets"),
        "Basic load balancers: the availability sets whose load balancer may serve; the one with the fewest rules does.",
    ),
    row(
        key::CONFIGURATIONS,
        Kind::CommaList("names of load balancer configurations"),
        "Several Standard load balancers: those that may serve; the one with the fewest rules does.",
    ),
    row(
        key::ADDITIONAL_IPS,
        Kind::CommaList("public addresses that nothing of the cluster has"),
        "Further addresses for status and security rules; the load balancer does not get them.",
    ),
    row(
        key::DNS_LABEL,
        Kind::Text("a DNS label of 3 to 63 lower-case letters, digits and dashes, or nothing to remove it"),
        "DNS label of the public IP.",
    ),
    row(key::PIP_TAGS, Kind::Pairs("tags such as a=b"), "Tags of the public IP, over those of the configuration."),
    row(
        key::PIP_IP_TAGS,
        Kind::Pairs("IP tags such as RoutingPreference=Internet"),
        "IP tags of a new public IP; a change leaves an existing one as it is.",
    ),
    row(
        key::IDLE_TIMEOUT,
        Kind::Number { least: 4, most: 100, unit: "minutes" },
        "Idle time after which flows end, of every rule.",
    ),
    row(key::DISABLE_TCP_RESET, Kind::Flag, "Sends no TCP reset when an idle flow ends; Standard load balancers."),
    row(key::HA_PORTS, Kind::Flag, "One rule for all ports and protocols; internal Standard load balancers."),
    row(
        key::DISABLE_FLOATING_IP,
        Kind::Flag,
        "Sends traffic to node address and node port; security rules then name every node.",
    ),
    row(key::PORT_NO_RULE, Kind::Flag, "No rule and no probe for this port."),
    row(key::PORT_NO_PROBE, Kind::Flag, "A rule without a probe for this port."),
    row(key::PROBE_PROTOCOL, PROBE_WORDS, "Protocol of probes; appProtocol of a port comes before it."),
    row(key::PROBE_PATH, PATH, "Path of HTTP and HTTPS probes; / by default."),
    row(key::PROBE_INTERVAL, INTERVAL, "Time between probes; times the number of failures it is below 120 s."),
    row(key::PROBE_COUNT, COUNT, "Failures after which a node gets no new flows."),
    row(key::PORT_PROBE_PROTOCOL, PROBE_WORDS, "Protocol of the probe of this port; comes before appProtocol."),
    row(
        key::PORT_PROBE_PORT,
        Kind::Text("the name or number of a port of the Service, or a port of the nodes from 1 to 65535"),
        "Port that the probe of this port asks, instead of its node port.",
    ),
    row(key::PORT_PROBE_INTERVAL, INTERVAL, "Time between probes of this port."),
    row(key::PORT_PROBE_COUNT, COUNT, "Failures after which a node gets no new flows on this port."),
    row(key::PORT_PROBE_PATH, PATH, "Path of the probe of this port."),
    row(
        key::SERVICE_TAGS,
        Kind::CommaList("service tags such as AzureCloud"),
        "Only these service tags may reach the Service; an empty list lets none in.",
    ),
    row(
        key::IP_RANGES,
        Kind::CommaList("address ranges such as 10.0.0.0/8"),
        "Only these ranges may reach the Service; kube-proxy does not see them. An item that is none closes it to all others.",
    ),
    row(
        key::SOURCE_RANGES,
        Kind::CommaList("address ranges such as 10.0.0.0/8"),
        "The same, under its Kubernetes name.",
    ),
    row(key::DENY_ALL, Kind::Flag, "With ranges: denies all else, the virtual network too; needs floating IP."),
    row(key::DISABLE_SECURITY_RULES, Kind::Flag, "Writes no security rule for the Service."),
    row(
        key::SHARED_SECURITY_RULE,
        Kind::Ignored,
        "Accepted from older clusters: rules of the same sources and ports are always shared.",
    ),
    row(
        key::PLS_CREATE,
        Kind::Flag,
        "Makes a private link service in front of the frontend; internal IPv4 Services, or floating IP off.",
    ),
    row(key::PLS_NAME, Kind::Text("a name"), "Its name; pls-<frontend> by default. It cannot change."),
    row(key::PLS_RESOURCE_GROUP, Kind::Text("the name of a resource group"), "Its resource group."),
    row(
        key::PLS_SUBNET,
        Kind::Text("the name of a subnet of the cluster's virtual network"),
        "Subnet of its addresses.",
    ),
    row(
        key::PLS_ADDRESS_COUNT,
        Kind::Number { least: 1, most: 8, unit: "addresses" },
        "How many addresses it has; 1 by default.",
    ),
    row(key::PLS_ADDRESSES, Kind::SpaceList("IPv4 addresses"), "Its fixed addresses, the primary one first."),
    row(key::PLS_FQDNS, Kind::SpaceList("host names"), "Its host names."),
    row(key::PLS_PROXY_PROTOCOL, Kind::Flag, "Sends the TCP proxy protocol to the backends."),
    row(key::PLS_VISIBILITY, Kind::SpaceList("ids of subscriptions, or *"), "Who may see it."),
    row(key::PLS_AUTO_APPROVAL, Kind::SpaceList("ids of subscriptions"), "Whose connections are approved at once."),
];
