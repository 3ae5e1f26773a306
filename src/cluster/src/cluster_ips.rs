//! The addresses inside the cluster of Services that are no load balancers: no Service may name one of them as its own.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    follow::Change,
    services::{ServicesChange, VersionedService, WatchedService},
};

/// The addresses inside the cluster of the Services that are no load balancers, by `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterIps(BTreeMap<String, Vec<IpAddr>>);

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

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> {
        self.0.values().flatten().copied()
    }
}
