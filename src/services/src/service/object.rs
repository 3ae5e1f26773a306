//! The fields of a Service that this provider reads.

use std::{collections::BTreeMap, net::IpAddr};

use lazuli_model::{ServiceKey, address::Family};

use crate::{ask::PortProtocol, network::load_balancer::limits::STANDARD_RULES};

/// The finalizer of generic service controllers: a Service that bears it keeps its load balancer until it is removed.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// The most ports of a Service: Azure takes no more rules on a load balancer.
pub const MOST_PORTS: usize = STANDARD_RULES;

/// The most external IPs that are known of a Service: who may write it could give it tens of thousands.
pub const MOST_EXTERNAL_IPS: usize = 100;

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
    /// `spec.ports`, in their order; of more than [`MOST_PORTS`] at least one more than those.
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
    pub source_ranges: SourceRanges,
    /// `spec.loadBalancerIP`, the deprecated field.
    pub load_balancer_ip: Option<String>,
    /// `spec.clusterIPs`, as far as they are addresses.
    pub cluster_ips: Vec<IpAddr>,
    /// `spec.externalIPs`, as far as they are addresses: the first [`MOST_EXTERNAL_IPS`] that differ.
    pub external_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress[].ip`, as far as they are addresses.
    pub ingress: Vec<IpAddr>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub is_deleting: bool,
    /// Whether it bears [`FINALIZER`].
    pub has_finalizer: bool,
}

/// Source ranges as they are written. They are one string: a list of many short strings has ten times their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceRanges(String);

impl SourceRanges {
    /// What ends each of them. No range has it.
    const END: char = '\0';

    /// Adds one.
    pub fn push(&mut self, range: &str) {
        // One that has it is none, and so are its parts.
        self.0.extend(range.chars().map(|character| if character == Self::END { '\u{fffd}' } else { character }));
        self.0.push(Self::END);
    }

    /// Them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split_terminator(Self::END)
    }

    /// The bytes that they have, with one more for each.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Leaves the first ones that have no more bytes than these.
    pub fn truncate(&mut self, most: usize) {
        let most = self.0.floor_char_boundary(most);
        self.0.truncate(self.0[..most].rfind(Self::END).map_or(0, |end| end + 1));
        self.0.shrink_to_fit();
    }

    /// Gives back memory that is not needed.
    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }
}

impl<T: AsRef<str>> FromIterator<T> for SourceRanges {
    fn from_iter<I: IntoIterator<Item = T>>(ranges: I) -> Self {
        let mut all = Self::default();
        ranges.into_iter().for_each(|range| all.push(range.as_ref()));
        all
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ranges_are_those_that_were_added_and_none_is_two() {
        for ranges in [&[][..], &[""], &["", ""], &["10.0.0.0/8"], &["10.0.0.0/8,0.0.0.0/0", " 20.0.0.0/8", "ä"]] {
            let all: SourceRanges = ranges.iter().collect();
            assert_eq!(all.iter().collect::<Vec<_>>(), ranges);
            assert_eq!(all.bytes(), ranges.iter().map(|range| range.len() + 1).sum::<usize>());
        }
        let all: SourceRanges = ["10.0.0.0/8\x000.0.0.0/0"].iter().collect();
        assert_eq!(all.iter().count(), 1);
    }

    #[test]
    fn of_truncated_source_ranges_whole_ones_are_left() {
        let left = |most| {
            let mut all: SourceRanges = ["10.0.0.0/8", "äöü", "x"].iter().collect();
            all.truncate(most);
            all.iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(left(10), Vec::<String>::new());
        assert_eq!(left(11), ["10.0.0.0/8"]);
        assert_eq!(left(12), ["10.0.0.0/8"]);
        assert_eq!(left(18), ["10.0.0.0/8", "äöü"]);
        assert_eq!(left(1000), ["10.0.0.0/8", "äöü", "x"]);
    }
}
