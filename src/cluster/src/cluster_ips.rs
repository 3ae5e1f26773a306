//! The addresses of Services that are no load balancers: no Service may name one of them as its own.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use lazuli_model::address::lax_address;
use lazuli_services::service::object::MOST_EXTERNAL_IPS;
use serde::{
    Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

use super::{
    follow::Change,
    services::{ServicesChange, VersionedService, WatchedService},
};

/// The addresses of a Service that is no load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtherAddresses {
    /// `spec.clusterIPs`.
    pub cluster: Vec<IpAddr>,
    /// `spec.externalIPs`, as far as a `ServiceObject` has them.
    pub external: Vec<IpAddr>,
}

/// The addresses of the Services that are no load balancers, by `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterIps(BTreeMap<String, OtherAddresses>);

impl ClusterIps {
    /// Takes in a change, and returns what of it is about load balancers.
    pub fn take_in(&mut self, change: ServicesChange) -> Change<VersionedService> {
        match change {
            Change::Replaced(all) => {
                self.0.clear();
                let kept =
                    all.into_iter().filter_map(|(name, service)| Some((name.clone(), self.note(name, service)?)));
                Change::Replaced(kept.collect())
            }
            Change::Applied(name, Some(service)) => Change::Applied(name.clone(), self.note(name, service)),
            Change::Applied(name, None) => {
                self.0.remove(&name);
                Change::Applied(name, None)
            }
            Change::Deleted(name) => {
                self.0.remove(&name);
                Change::Deleted(name)
            }
            Change::Confirmed => Change::Confirmed,
            Change::Lost(why) => Change::Lost(why),
        }
    }

    /// Takes in one Service. Returns it where it is or was a load balancer.
    pub(super) fn note(&mut self, name: String, service: WatchedService) -> Option<VersionedService> {
        match service {
            WatchedService::Balanced(service) => {
                self.0.remove(&name);
                Some(*service)
            }
            WatchedService::Other(addresses) => {
                self.0.insert(name, addresses);
                None
            }
        }
    }

    /// The addresses inside the cluster.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> {
        self.0.values().flat_map(|addresses| &addresses.cluster).copied()
    }

    /// The external IPs.
    pub fn external(&self) -> impl Iterator<Item = IpAddr> {
        self.0.values().flat_map(|addresses| &addresses.external).copied()
    }
}

/// Decodes the external IPs, of which the first ones that differ are kept.
pub(super) fn external_ips_in_bounds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    struct InBounds;

    impl<'de> Visitor<'de> for InBounds {
        type Value = Vec<IpAddr>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("addresses")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(vec![])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut kept: Vec<IpAddr> = Vec::new();
            while kept.len() < MOST_EXTERNAL_IPS {
                let Some(text) = all.next_element::<String>()? else { break };
                kept.extend(lax_address(&text).filter(|address| !kept.contains(address)));
            }
            while all.next_element::<IgnoredAny>()?.is_some() {}
            kept.shrink_to_fit();
            Ok(kept)
        }
    }

    deserializer.deserialize_any(InBounds)
}
