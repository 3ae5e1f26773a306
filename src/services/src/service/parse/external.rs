//! The addresses beside its own that a Service may name: `azure-additional-public-ips`.
//!
//! They come into the status of the Service, so that every node takes what is sent to them, and into the rules of the security
//! group. So a Service must not name what is another's: an address of the cluster or of Azure itself.

use std::{collections::BTreeSet, net::IpAddr};

use lazuli_model::address::Cidr;

use super::Reader;
use crate::{
    ask::{Warning, WarningReason},
    service::{ServiceObject, annotation::key},
};

/// The address that stands for Azure itself in every virtual network (source: what-is-ip-address-168-63-129-16).
const AZURE_ITSELF: &str = "168.63.129.16/32";

/// Ranges that no public IP comes from (source: RFC 1918, RFC 6598, RFC 4193, RFC 4291, RFC 3879, RFC 3927, RFC 1122). The
/// metadata service is among those of a link.
const NOT_PUBLIC: [&str; 12] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    AZURE_ITSELF,
    "127.0.0.0/8",
    "169.254.0.0/16",
    "0.0.0.0/8",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "::/127",
];

/// Ranges of groups, of broadcasts and of what is kept for later (source: RFC 5771, RFC 4291, RFC 1112).
const NOT_OF_ONE: [&str; 3] = ["224.0.0.0/4", "240.0.0.0/4", "ff00::/8"];

/// IPv4 addresses in the form of IPv6 (source: RFC 4291).
const MAPPED: &str = "::ffff:0:0/96";

/// Why no address of a range may be named, whatever is allowed; `None` where one may be.
pub fn never_allowed(range: &Cidr) -> Option<&'static str> {
    let is_within = |all: &[&str]| all.iter().any(|outer| outer.parse::<Cidr>().is_ok_and(|outer| outer.covers(range)));
    if is_within(&NOT_PUBLIC) || is_within(&[MAPPED]) {
        return Some(PRIVATE);
    }
    is_within(&NOT_OF_ONE).then_some(OF_MANY)
}

/// What is said of addresses that no public IP has.
const PRIVATE: &str = "is private, of the local link or of Azure itself";
/// What is said of addresses of groups.
const OF_MANY: &str = "is not the address of one machine";

fn is_in(address: IpAddr, ranges: &[&str]) -> bool {
    ranges.iter().any(|range| range.parse::<Cidr>().is_ok_and(|range| range.contains(address)))
}

/// Whether an address may be that of a public IP.
pub(super) fn may_be_public(address: IpAddr) -> bool {
    !is_in(address, &NOT_PUBLIC)
}

/// What is known of addresses that are not a Service's to name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterAddresses {
    /// The ranges that the operator allows; without one every range is allowed that is not refused by what follows.
    pub allowed: Vec<Cidr>,
    /// The addresses of the Nodes.
    pub nodes: BTreeSet<IpAddr>,
    /// The ranges of Pods.
    pub pods: Vec<Cidr>,
    /// The ranges that Services get their addresses inside the cluster from, as far as the operator gives them.
    pub services: Vec<Cidr>,
    /// The addresses of Services of every type inside the cluster.
    pub cluster_ips: BTreeSet<IpAddr>,
    /// `spec.externalIPs` of other Services of every type: nodes take what is sent there for them.
    pub external_ips: BTreeSet<IpAddr>,
    /// The addresses at which other Services are reached.
    pub frontends: BTreeSet<IpAddr>,
    /// The addresses of the frontends that load balancers show of the Service itself.
    pub own: BTreeSet<IpAddr>,
}

impl ClusterAddresses {
    /// Notes the addresses of another Service: those inside the cluster, its external IPs, and those at which it is reached.
    /// What it only names in the annotation, such as the address of a load balancer in front of several clusters, two may name.
    pub fn note_service(&mut self, object: &ServiceObject, other: &ServiceObject) {
        self.cluster_ips.extend(&other.cluster_ips);
        if other.key == object.key {
            return;
        }
        self.external_ips.extend(&other.external_ips);
        let named = other.annotations.get(key::ADDITIONAL_IPS).map(String::as_str).unwrap_or_default();
        let named: BTreeSet<IpAddr> = named.split(',').filter_map(|item| item.trim().parse().ok()).collect();
        self.frontends.extend(other.ingress.iter().filter(|address| !named.contains(address)));
    }

    /// Why a Service may not name an address; `None` when it may.
    pub fn refuses(&self, address: IpAddr) -> Option<&'static str> {
        if !may_be_public(address) || is_in(address, &[MAPPED]) {
            return Some(PRIVATE);
        }
        if is_in(address, &NOT_OF_ONE) {
            return Some(OF_MANY);
        }
        if self.nodes.contains(&address) {
            return Some("is the address of a Node");
        }
        if self.cluster_ips.contains(&address) {
            return Some("is the cluster IP of a Service");
        }
        if self.services.iter().any(|range| range.contains(address)) {
            return Some("is in the range of Services");
        }
        if self.pods.iter().any(|range| range.contains(address)) {
            return Some("is in the range of Pods");
        }
        if self.external_ips.contains(&address) {
            return Some("is in spec.externalIPs of another Service");
        }
        if self.frontends.contains(&address) {
            return Some("is the address of another Service");
        }
        let is_allowed = self.allowed.is_empty() || self.allowed.iter().any(|range| range.contains(address));
        (!is_allowed).then_some("is in no range of --allowed-external-addresses")
    }
}

/// What an item of the annotation is.
pub(super) enum Item {
    /// It may be had, or the status has it already.
    Address(IpAddr),
    /// It may not be had, and why.
    Refused(IpAddr, &'static str),
    /// No address.
    Malformed,
}

/// The items of the annotation. What the status has stays, unless it is there as the address of a frontend of the Service's
/// own: then it is free for others once the frontend has gone. A status is changed before its frontend goes, so the frontend
/// is shown for as long as the status has its address.
pub(super) fn items<'t>(
    items: impl IntoIterator<Item = &'t str>,
    status: &[IpAddr],
    cluster: &ClusterAddresses,
) -> Vec<Item> {
    let item = |text: &'t str| match text.parse::<IpAddr>() {
        Err(_) => Item::Malformed,
        Ok(address) if status.contains(&address) && !cluster.own.contains(&address) => Item::Address(address),
        Ok(address) => cluster.refuses(address).map_or(Item::Address(address), |why| Item::Refused(address, why)),
    };
    items.into_iter().map(item).collect()
}

pub(super) fn read(read: &mut Reader) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    let list = read.annotations.comma_list(key::ADDITIONAL_IPS);
    for item in items(list, &read.object.ingress, &read.existing.cluster) {
        match item {
            Item::Address(address) => {
                if let Some(why) = read.existing.cluster.refuses(address) {
                    read.annotations.warnings.push(Warning::new(
                        WarningReason::KeptValue,
                        format!(
                            "annotation {} names {address}, which {why}; it stays since the status has it, and would not be \
                             taken from a new Service",
                            key::ADDITIONAL_IPS
                        ),
                    ));
                }
                addresses.push(address);
            }
            Item::Refused(address, why) => {
                let allowed = format!(
                    "{address} {why}; allowed are public addresses that no Node, Pod or other Service of the cluster has"
                );
                read.annotations.refuse(key::ADDITIONAL_IPS, allowed);
            }
            Item::Malformed => read.annotations.refuse_by_table(key::ADDITIONAL_IPS),
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_not_a_services_to_name_is_refused_whatever_its_class() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let cluster = ClusterAddresses {
            pods: vec!["20.244.0.0/16".parse().unwrap(), "2603:1030:f::/64".parse().unwrap()],
            services: vec!["20.97.0.0/16".parse().unwrap(), "2603:1030:6::/112".parse().unwrap()],
            cluster_ips: ["20.96.0.10", "2603:1030:5::a"].map(address).into(),
            ..ClusterAddresses::default()
        };
        let private = Some("is private, of the local link or of Azure itself");
        let of_many = Some("is not the address of one machine");
        for (text, why) in [
            ("10.1.2.3", private),
            ("172.31.255.255", private),
            ("192.168.1.1", private),
            ("100.127.0.1", private),
            ("168.63.129.16", private),
            ("127.0.0.1", private),
            ("169.254.169.254", private),
            ("0.1.2.3", private),
            ("fd00::1", private),
            ("fe80::1", private),
            ("fec0::1", private),
            ("::1", private),
            ("::", private),
            ("::ffff:20.1.2.3", private),
            ("239.255.255.250", of_many),
            ("255.255.255.255", of_many),
            ("ff02::1", of_many),
            ("20.96.0.10", Some("is the cluster IP of a Service")),
            ("2603:1030:5::a", Some("is the cluster IP of a Service")),
            ("20.97.255.255", Some("is in the range of Services")),
            ("2603:1030:6::1", Some("is in the range of Services")),
            ("20.244.3.4", Some("is in the range of Pods")),
            ("2603:1030:f::9", Some("is in the range of Pods")),
            // Next to them.
            ("11.0.0.1", None),
            ("172.32.0.1", None),
            ("192.167.255.255", None),
            ("100.128.0.1", None),
            ("168.63.129.17", None),
            ("20.96.0.11", None),
            ("20.98.0.0", None),
            ("2603:1030:6::1:0", None),
            ("20.245.0.1", None),
            ("2603:1030::1", None),
        ] {
            assert_eq!(cluster.refuses(address(text)), why, "{text}");
        }
    }

    #[test]
    fn the_cluster_ips_of_all_services_are_refused_also_the_services_own() {
        let with = |name: &str, address: &str| {
            let mut object = crate::service::fixtures::service();
            object.key = lazuli_model::ServiceKey::new("default", name, name);
            object.cluster_ips = vec![address.parse().unwrap()];
            object
        };
        let (own, other) = (with("own", "20.96.0.10"), with("other", "20.96.0.11"));
        let mut cluster = ClusterAddresses::default();
        [&own, &other].into_iter().for_each(|service| cluster.note_service(&own, service));
        for address in own.cluster_ips.iter().chain(&other.cluster_ips) {
            assert_eq!(cluster.refuses(*address), Some("is the cluster IP of a Service"), "{address}");
        }
    }

    #[test]
    fn the_external_ips_of_other_services_are_refused_and_the_services_own_are_not() {
        let with = |name: &str, address: &str| {
            let mut object = crate::service::fixtures::annotated(&[("azure-additional-public-ips", address)]);
            object.key = lazuli_model::ServiceKey::new("default", name, name);
            object.external_ips = vec![address.parse().unwrap()];
            object
        };
        let (own, other) = (with("own", "20.95.0.10"), with("other", "20.95.0.11"));
        let mut cluster = ClusterAddresses::default();
        [&own, &other].into_iter().for_each(|service| cluster.note_service(&own, service));
        assert_eq!(cluster.refuses(own.external_ips[0]), None);
        assert_eq!(cluster.refuses(other.external_ips[0]), Some("is in spec.externalIPs of another Service"));
    }

    #[test]
    fn with_allowed_ranges_a_service_names_no_address_outside_of_them() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let refuses = |allowed: &[&str], text: &str| {
            let allowed = allowed.iter().map(|range| range.parse().unwrap()).collect();
            let nodes = [address("20.1.0.9")].into();
            ClusterAddresses { allowed, nodes, ..ClusterAddresses::default() }.refuses(address(text))
        };
        let outside = Some("is in no range of --allowed-external-addresses");
        let ranges = ["20.1.0.0/24", "2603:1030::/64"];
        for (text, inside) in [
            ("20.1.0.0", true),
            ("20.1.0.255", true),
            ("20.0.255.255", false),
            ("20.1.1.0", false),
            ("2603:1030::1", true),
            ("2603:1030:0:1::", false),
        ] {
            assert_eq!(refuses(&ranges, text), outside.filter(|_| !inside), "{text}");
            assert_eq!(refuses(&[], text), None, "without ranges all public addresses are allowed: {text}");
        }
        assert_eq!(refuses(&ranges, "20.1.0.9"), Some("is the address of a Node"), "a range allows no Node");
        assert!(refuses(&["10.0.0.0/8"], "10.0.0.1").is_some(), "nor a private address");
    }

    #[test]
    fn a_range_of_which_no_address_is_ever_allowed_is_known() {
        let why = |range: &str| never_allowed(&range.parse().unwrap());
        for range in ["10.0.0.0/8", "10.1.0.0/16", "192.168.1.1/32", "fd00::/8", "::ffff:20.0.0.0/104"] {
            assert_eq!(why(range), Some(PRIVATE), "{range}");
        }
        for range in ["224.0.0.0/8", "ff02::/16"] {
            assert_eq!(why(range), Some(OF_MANY), "{range}");
        }
        for range in ["0.0.0.0/0", "10.0.0.0/7", "20.0.0.0/8", "::/0", "2603:1030::/32"] {
            assert_eq!(why(range), None, "{range}");
        }
    }
}
