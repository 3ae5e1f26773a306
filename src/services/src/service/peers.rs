//! The Services of the cluster, as all of them show: which of them may own an address that others use, and with whom each
//! agrees. A Service is known here before it has told any object what it wants, and also while its values cannot be used.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::ServiceKey;

use super::{ServiceObject, shares_with};
use crate::ask::names::BaseName;

/// A Service that may own an address that others use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Which Service.
    pub service: ServiceKey,
    /// The namespaces whose Services may do at its addresses what they may do at their own.
    pub shares_with: BTreeSet<String>,
}

impl Peer {
    /// Whether the Service agrees with what another one does at its address.
    pub fn agrees_with(&self, other: &ServiceKey) -> bool {
        self.service.namespace == other.namespace || self.shares_with.contains(&other.namespace)
    }
}

/// The Services of the cluster, by their base names in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Peers(BTreeMap<String, Peer>);

fn lower(service: &ServiceKey) -> String {
    BaseName::of(service).as_str().to_lowercase()
}

impl Peers {
    /// Takes in a Service. Returns whether one that was known agrees with others than before.
    pub fn insert(&mut self, object: &ServiceObject) -> bool {
        let peer = Peer { service: object.key.clone(), shares_with: shares_with(object).0 };
        let now = peer.shares_with.clone();
        self.0.insert(lower(&object.key), peer).is_some_and(|before| before.shares_with != now)
    }

    /// A Service does not exist any more.
    pub fn remove(&mut self, service: &ServiceKey) {
        self.0.remove(&lower(service));
    }

    /// The Service of a base name.
    pub fn of(&self, base: &str) -> Option<&Peer> {
        self.0.get(&base.to_lowercase())
    }
}

impl<'o> FromIterator<&'o ServiceObject> for Peers {
    fn from_iter<I: IntoIterator<Item = &'o ServiceObject>>(objects: I) -> Self {
        let mut peers = Self::default();
        objects.into_iter().for_each(|object| _ = peers.insert(object));
        peers
    }
}
