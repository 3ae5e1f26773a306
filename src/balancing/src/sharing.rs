//! Which Service an address belongs to, and whether others may do there what its owner does not see.
//!
//! The owner is read from names in Azure, so that it is the same in every process: the Service whose uid the name of the
//! public IP bears, else the one whose uid the name of the frontend bears. Whether it agrees is read from its annotation
//! [`SHARE_WITH`](lazuli_services::service::annotation::SHARE_WITH); Services of one namespace agree with each other.

use lazuli_engine::service::Seen;
use lazuli_model::{ArmId, ServiceKey, address::Family};
use lazuli_services::{
    ask::names::{self, BaseName},
    service::Peers,
};

use super::{Key, Spec, service::Balanced};

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
    let own = BaseName::of(id);
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
    if owner.eq_ignore_ascii_case(own.as_str()) {
        return Standing::Own;
    }
    let is_alone = || balancer.is_some_and(|report| shown.is_some() && report.shared.is_empty());
    match peers.of(owner) {
        None if is_alone() => Standing::Own,
        peer => Standing::Guest { agreed: peer.is_some_and(|peer| peer.agrees_with(id)) },
    }
}
