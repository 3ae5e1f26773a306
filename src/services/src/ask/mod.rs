//! What a valid Service asks of Azure, and the names that follow from it.
//!
//! The words that [`service`](crate::service) and [`network`](crate::network) share: the first makes an [`Ask`] of a
//! Service, the second plans for it.

mod mistake;
pub mod names;
pub mod selector;

use std::{collections::BTreeMap, net::IpAddr};

use lazuli_model::{
    ArmId, ServiceKey,
    address::{Cidr, Family},
};

use names::BaseName;

pub use mistake::{Mistake, Subject, Warning, WarningReason};

/// The side of a load balancer: Azure does not mix public and internal frontends on one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Reached through public IPs.
    Public,
    /// Reached through an address of a subnet.
    Internal,
}

/// A valid Service, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Which Service.
    pub service: ServiceKey,
    /// The first part of the names of everything it owns.
    pub base: BaseName,
    /// Which side it is served on.
    pub side: Side,
    /// What it asks per IP family, IPv4 first.
    pub families: Vec<FamilyAsk>,
    /// Who may reach it.
    pub access: Access,
    /// Which load balancers it may be placed on.
    pub placement: PlacementAsk,
    /// The public addresses beside its own, for `status` and security rules: `azure-additional-public-ips`.
    pub additional_addresses: Vec<IpAddr>,
    /// The private link service it asks for.
    pub private_link: Option<PrivateLinkAsk>,
    /// Whether its private link service stays as it is, since what it asks of it cannot be read.
    pub private_link_stays: bool,
    /// Whether traffic goes only to nodes that have a ready endpoint.
    pub is_local: bool,
    /// Whether traffic arrives with the frontend's address as destination; otherwise it arrives at node address and
    /// node port, and security rules name the nodes.
    pub floating_ip: bool,
    /// Whether a value is read by what load balancers show of the Service, which must not be old then.
    pub reads_shown: bool,
    /// What is odd about it, for events.
    pub warnings: Vec<Warning>,
}

/// What a Service asks of one IP family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyAsk {
    /// The family.
    pub family: Family,
    /// The name of its frontend if it gets one of its own.
    pub frontend: String,
    /// Where its address comes from.
    pub address: AddressAsk,
    /// The load-balancing rules.
    pub rules: Vec<RuleAsk>,
    /// The probes that its rules name.
    pub probes: Vec<ProbeAsk>,
}

/// Where a frontend's address comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressAsk {
    /// A public IP.
    Public(PublicIpAsk),
    /// An address of a subnet.
    Private {
        /// The name of the subnet.
        subnet: String,
        /// Whether an annotation names it; otherwise it is the configured one.
        is_subnet_named: bool,
        /// The address that was asked for; otherwise Azure chooses one.
        address: Option<IpAddr>,
        /// The address that the Service had before, to be kept when it fits the subnet.
        previous: Option<IpAddr>,
    },
}

/// A public IP of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublicIpAsk {
    /// One that this provider makes and deletes.
    Managed {
        /// Its name.
        name: String,
        /// The prefix to take it from.
        prefix: Option<ArmId>,
        /// Its resource group.
        resource_group: String,
        /// What else is asked of it.
        settings: PublicIpSettings,
    },
    /// One that exists, named by `azure-pip-name`.
    Named {
        /// Its name.
        name: String,
        /// Its resource group.
        resource_group: String,
        /// What else is asked of it.
        settings: PublicIpSettings,
    },
    /// One that exists and has this address: the user's, or that of another Service.
    WithAddress {
        /// The address.
        address: IpAddr,
        /// Its resource group.
        resource_group: String,
        /// What else is asked of it.
        settings: PublicIpSettings,
    },
}

impl PublicIpAsk {
    /// The resource group that holds it.
    pub fn resource_group(&self) -> &str {
        match self {
            Self::Managed { resource_group, .. }
            | Self::Named { resource_group, .. }
            | Self::WithAddress { resource_group, .. } => resource_group,
        }
    }

    /// What is asked of it beside its being there.
    pub fn settings(&self) -> &PublicIpSettings {
        match self {
            Self::Managed { settings, .. } | Self::Named { settings, .. } | Self::WithAddress { settings, .. } => {
                settings
            }
        }
    }
}

/// What a Service asks of its public IP.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PublicIpSettings {
    /// `azure-dns-label-name`.
    pub dns_label: DnsLabel,
    /// `azure-pip-tags`, over those of the configuration.
    pub tags: BTreeMap<String, String>,
    /// Whether its tags stay as they are, since those of the annotation cannot be read.
    pub tags_stay: bool,
    /// `azure-pip-ip-tags`, sorted; `None` leaves them as they are.
    pub ip_tags: Option<Vec<IpTag>>,
}

/// `azure-dns-label-name`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DnsLabel {
    /// No annotation: the label stays as it is.
    #[default]
    Untouched,
    /// An empty annotation: the label goes.
    Removed,
    /// This label.
    Set(String),
}

/// An IP tag of a public IP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpTag {
    /// `ipTagType`, such as `RoutingPreference`.
    pub kind: String,
    /// `tag`, such as `Internet`.
    pub tag: String,
}

/// The transport of a load-balancing rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransportProtocol {
    /// `Tcp`.
    Tcp,
    /// `Udp`.
    Udp,
    /// `All`: high-availability ports, and SCTP.
    All,
}

impl TransportProtocol {
    /// The protocol of security rules for it.
    pub fn in_security_rules(self) -> SecurityProtocol {
        match self {
            Self::Tcp => SecurityProtocol::Tcp,
            Self::Udp => SecurityProtocol::Udp,
            Self::All => SecurityProtocol::Any,
        }
    }
}

/// Which flows of one client go to one backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Affinity {
    /// Five-tuple: `Default`.
    None,
    /// Source and destination address: `SourceIP`.
    ClientIp,
}

/// A load-balancing rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleAsk {
    /// Its name.
    pub name: String,
    /// Its transport.
    pub protocol: TransportProtocol,
    /// The port on the frontend; 0 for all.
    pub frontend_port: u16,
    /// The port on the backends; 0 for all.
    pub backend_port: u16,
    /// The name of its probe.
    pub probe: Option<String>,
    /// `enableFloatingIP`.
    pub floating_ip: bool,
    /// `idleTimeoutInMinutes`.
    pub idle_timeout_minutes: u16,
    /// `enableTcpReset`; `None` where the rule has no such property.
    pub tcp_reset: Option<bool>,
    /// `loadDistribution`.
    pub affinity: Affinity,
    /// `disableOutboundSnat`.
    pub disable_outbound_snat: bool,
}

/// The protocol of a health probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeProtocol {
    /// `Tcp`.
    Tcp,
    /// `Http`.
    Http,
    /// `Https`.
    Https,
}

/// A health probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeAsk {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: ProbeProtocol,
    /// The port on the backends.
    pub port: u16,
    /// The path; HTTP and HTTPS only.
    pub path: Option<String>,
    /// `intervalInSeconds`.
    pub interval_seconds: u32,
    /// `probeThreshold`.
    pub threshold: u32,
}

/// Who may reach a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Whether this provider writes security rules for it: false with `azure-disable-load-balancer-nsg-rule`.
    pub has_rules: bool,
    /// Service tags, `Internet` among them where the world may reach it.
    pub service_tags: Vec<String>,
    /// Address ranges, aggregated.
    pub ranges: Vec<Cidr>,
    /// Whether all else is denied, the virtual network too.
    pub denial: Denial,
    /// What the security group has for it and keeps, since what it asks cannot be read.
    pub kept: KeptRules,
    /// The ports that traffic arrives at, by protocol in the sense of a security rule.
    pub ports: Vec<(SecurityProtocol, u16)>,
}

/// What of its security rules a Service keeps as it is, unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum KeptRules {
    /// Nothing: the rules are those that it asks for.
    #[default]
    None,
    /// The denials: one that is there stays.
    Denials,
    /// All: none is made, and none goes.
    All,
}

/// Whether what a Service does not allow is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Denial {
    /// It is not: what Azure lets in by default, such as the virtual network, reaches the Service.
    #[default]
    None,
    /// It is, by `azure-deny-all-except-load-balancer-source-ranges`.
    Asked,
    /// It is, since an item of the ranges cannot be read: what the item meant to allow is not known. That must not cut off
    /// others, so nothing is denied at an address that another Service has too.
    OfInvalidRange,
}

/// The protocol of a security rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecurityProtocol {
    /// `Tcp`.
    Tcp,
    /// `Udp`.
    Udp,
    /// `*`: SCTP, and deny rules.
    Any,
}

impl SecurityProtocol {
    /// Azure's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "Tcp",
            Self::Udp => "Udp",
            Self::Any => "*",
        }
    }
}

/// Which load balancers a Service may be placed on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlacementAsk {
    /// `azure-load-balancer-mode`; read for Basic load balancers.
    pub mode: Mode,
    /// `azure-load-balancer-configurations`, in lower case; read where several Standard load balancers are configured.
    pub configurations: Vec<String>,
    /// Whether it names its address or its public IP, which then decides the load balancer.
    pub pins_address: bool,
}

/// `azure-load-balancer-mode`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Mode {
    /// Absent: the primary availability set.
    #[default]
    Primary,
    /// `__auto__`: the one with the fewest rules.
    Auto,
    /// These availability sets.
    Sets(Vec<String>),
}

/// A private link service in front of a frontend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateLinkAsk {
    /// `azure-pls-name`; otherwise `pls-<frontend>`.
    pub name: Option<String>,
    /// Its resource group.
    pub resource_group: String,
    /// The name of the subnet of its addresses.
    pub subnet: String,
    /// How many addresses it has.
    pub address_count: u8,
    /// The addresses that were asked for, the primary one first.
    pub addresses: Vec<IpAddr>,
    /// `azure-pls-fqdns`.
    pub host_names: Vec<String>,
    /// `azure-pls-proxy-protocol`.
    pub proxy_protocol: bool,
    /// `azure-pls-visibility`.
    pub visible_to: Vec<String>,
    /// `azure-pls-auto-approval`.
    pub approved_for: Vec<String>,
    /// Whether any annotation beside `azure-pls-create` is set: only the owner of a shared one may.
    pub is_configured: bool,
}

/// The protocol of a port of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortProtocol {
    /// `TCP`, the default.
    Tcp,
    /// `UDP`.
    Udp,
    /// `SCTP`.
    Sctp,
}

impl PortProtocol {
    /// The name in Kubernetes, which is also the one in names of rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// The protocol of security rules for it: they know no SCTP.
    pub fn in_security_rules(self) -> SecurityProtocol {
        match self {
            Self::Tcp => SecurityProtocol::Tcp,
            Self::Udp => SecurityProtocol::Udp,
            Self::Sctp => SecurityProtocol::Any,
        }
    }
}
