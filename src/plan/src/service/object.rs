//! The fields of a Service that this provider reads.

use std::{collections::BTreeMap, net::IpAddr};

use super::{SecurityProtocol, ServiceKey};
use crate::network::Family;

/// The finalizer of generic service controllers: a Service that bears it keeps its load balancer until it is removed.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// A Service, as far as load balancers need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceObject {
    /// Which Service.
    pub key: ServiceKey,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The labels of its namespace.
    pub namespace_labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// Whether `spec.type` is `LoadBalancer`.
    pub is_load_balancer: bool,
    /// `spec.loadBalancerClass`.
    pub load_balancer_class: Option<String>,
    /// `spec.ports`, in their order.
    pub ports: Vec<ServicePort>,
    /// `spec.ipFamilies`, in their order; empty stands for IPv4 alone.
    pub families: Vec<Family>,
    /// Whether `spec.externalTrafficPolicy` is `Local`.
    pub is_local: bool,
    /// `spec.healthCheckNodePort`; 0 when unset.
    pub health_check_node_port: u16,
    /// Whether `spec.sessionAffinity` is `ClientIP`.
    pub is_client_ip_affine: bool,
    /// `spec.loadBalancerSourceRanges`.
    pub source_ranges: Vec<String>,
    /// `spec.loadBalancerIP`, the deprecated field.
    pub load_balancer_ip: Option<String>,
    /// `spec.clusterIPs`, as far as they are addresses.
    pub cluster_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress[].ip`, as far as they are addresses.
    pub ingress: Vec<IpAddr>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub is_deleting: bool,
    /// Whether it bears [`FINALIZER`].
    pub has_finalizer: bool,
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

/// One of `spec.ports`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// `name`; empty when unset.
    pub name: String,
    /// `protocol`.
    pub protocol: PortProtocol,
    /// `port`.
    pub port: u16,
    /// `nodePort`; 0 when none is allocated.
    pub node_port: u16,
    /// `appProtocol`.
    pub app_protocol: Option<String>,
}

impl ServiceObject {
    /// Whether the Service wants a load balancer of a provider: of the one that claims `class`, or of the default one, which
    /// claims no class and, as the Go manager, leaves every Service alone that names one.
    pub fn wants_load_balancer(&self, class: Option<&str>) -> bool {
        self.is_load_balancer && !self.is_deleting && self.load_balancer_class.as_deref() == class
    }

    /// Whether two IP families are asked for.
    pub fn is_dual_stack(&self) -> bool {
        self.families.len() == 2
    }

    /// The families to serve: IPv4 when none is named.
    pub fn served_families(&self) -> Vec<Family> {
        let mut families: Vec<Family> = self.families.clone();
        if families.is_empty() {
            families.push(Family::V4);
        }
        families.sort_unstable();
        families.dedup();
        families
    }
}
