//! Which Service an address belongs to, and whether others may do there what its owner does not see.
//!
//! The owner is read from names in Azure, so that it is the same in every process: the Service whose uid the name of the
//! public IP bears, else the one whose uid the name of the frontend bears. Whether it agrees is read from its annotation
//! [`SHARE_WITH`](lazuli_services::service::annotation::SHARE_WITH); Services of one namespace agree with each other.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_engine::service::Seen;
use lazuli_model::{ArmId, ServiceKey, address::Family};
use lazuli_services::{
    ask::names::{self, BaseName},
    service::{ServiceObject, shares_with},
};

use super::{Key, Spec, service::Balanced};

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
    fn of(&self, base: &str) -> Option<&Peer> {
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

/// How a Service stands to an address that it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is the Service's own, or no Service has it yet.
    Own,
    /// Its frontend was not made for a Service.
    Operators,
    /// It is another Service's.
    Guest {
        /// Whether that Service agrees. One that is not of this cluster, or does not exist any more, does not.
        agreed: bool,
    },
}

impl Standing {
    /// Whether the Service may do there only what the owner sees.
    pub fn is_restricted(&self) -> bool {
        matches!(self, Self::Guest { agreed: false })
    }
}

/// How a Service stands to the address of one family.
pub(super) fn standing(
    id: &ServiceKey,
    spec: &Spec,
    family: Family,
    seen: &Seen<'_, Balanced>,
    peers: &Peers,
) -> Standing {
    let own = lower(id);
    let public_ip = spec.public_ips.get(&family);
    let balancer = seen.reports.get(&Key::LoadBalancer(spec.load_balancer.clone()));
    let shown = balancer.and_then(|report| report.found.frontends.get(&family));
    let used_by = || seen.reports.get(&Key::PublicIp(public_ip?.clone()))?.used_by.as_ref();
    let frontend = shown.or_else(used_by).map(ArmId::name);
    let owner = match (public_ip.and_then(names::base_of_maker), frontend.map(|name| (name, names::base_in(name)))) {
        (Some(maker), _) => maker,
        (None, None) => return Standing::Own,
        (None, Some((_, Some(base)))) => base,
        // A uid of another form makes a base name of another form.
        (None, Some((name, None))) if BaseName::of(id).owns(name) => return Standing::Own,
        (None, Some((_, None))) => return Standing::Operators,
    };
    if owner.eq_ignore_ascii_case(&own) {
        return Standing::Own;
    }
    let is_alone = || balancer.is_some_and(|report| shown.is_some() && report.shared.is_empty());
    match peers.of(owner) {
        None if is_alone() => Standing::Own,
        peer => Standing::Guest { agreed: peer.is_some_and(|peer| peer.agrees_with(id)) },
    }
}
