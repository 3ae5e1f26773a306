//! Which Services are reached at an address that several share, as load balancers show it.
//!
//! A rule of a shared address bears no Service's name. The port of a load-balancing rule is the record of whose the security
//! rule is; a port without one has no such record once its Service's spec has dropped it. Only when every Service of the
//! address asks for its rules there is it known that a rule is nobody's.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::ArmId;

use super::{Env, Gone, Part, Wants, plan::lower};
use crate::{
    ask::names::{self, BaseName},
    network::load_balancer::LoadBalancer,
};

/// The Services whose rules of one load balancer use its frontends, by their base names in lower case. A rule with a name
/// that no Service makes counts as that of a Service of this name, which nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Users {
    public: BTreeMap<ArmId, BTreeSet<String>>,
    private: BTreeMap<IpAddr, BTreeSet<String>>,
}

impl Users {
    /// What a load balancer shows.
    pub fn of(balancer: &LoadBalancer) -> Self {
        let mut users = Self::default();
        let mut at: BTreeMap<ArmId, BTreeSet<String>> = BTreeMap::new();
        for rule in &balancer.rules {
            let Some(frontend) = &rule.frontend else { continue };
            let base = names::base_in(&rule.name).unwrap_or(&rule.name);
            at.entry(frontend.clone()).or_default().insert(base.to_lowercase());
        }
        for frontend in &balancer.frontends {
            let Some(of) = at.remove(&LoadBalancer::frontend_id(&balancer.id, &frontend.name)) else { continue };
            match (&frontend.public_ip, frontend.private_address) {
                (Some(id), _) => users.public.entry(id.clone()).or_default().extend(of),
                (None, Some(address)) => users.private.entry(address).or_default().extend(of),
                (None, None) => {}
            }
        }
        users
    }

    /// The Services at an address: that of a public IP, or one of a subnet.
    fn at(&self, address: &IpAddr, public_ip: Option<&ArmId>) -> Option<&BTreeSet<String>> {
        public_ip.map_or_else(|| self.private.get(address), |id| self.public.get(id))
    }
}

/// The shared addresses, of those at which `gone` gives up something, whose Services are all known: each asks for its rules
/// there, or gives up the address. Which Services there are is what load balancers and statuses show. One of another cluster
/// is never known; nor is one without a valid specification, or whose rules stay as they are.
pub(super) fn known(wants: &Wants, gone: &[&Gone], env: &Env) -> BTreeSet<IpAddr> {
    let shared: BTreeSet<&IpAddr> = gone.iter().flat_map(|gone| gone.shared.keys()).collect();
    if shared.is_empty() {
        return BTreeSet::new();
    }
    let public_ips: BTreeMap<&IpAddr, &ArmId> = gone.iter().flat_map(|gone| &gone.public_ips).collect();
    let parts: BTreeMap<String, &Part> =
        wants.iter().map(|(service, want)| (lower(&BaseName::of(service)), &want.present)).collect();
    let is_known = |address: &&IpAddr| {
        let leaves = |base: &str| {
            gone.iter()
                .filter(|gone| gone.shared.contains_key(address) || gone.destinations.contains(address))
                .any(|gone| gone.base.as_ref().is_some_and(|own| own.as_str().eq_ignore_ascii_case(base)))
        };
        let asks = |base: &str| parts.get(base).is_some_and(|part| asks_at(part, address));
        let public_ip = public_ips.get(address).copied();
        let of_rules: Vec<&BTreeSet<String>> =
            env.users.iter().filter_map(|users| users.at(address, public_ip)).collect();
        let by_status = env.reached.range((**address, String::new())..).take_while(|(there, _)| there == *address);
        let mut all = of_rules.iter().copied().flatten().chain(by_status.map(|(_, base)| base));
        // Without the rules of a load balancer nothing shows who is there.
        !of_rules.is_empty() && all.all(|base| asks(base) || leaves(base))
    };
    shared.into_iter().filter(is_known).copied().collect()
}

/// Whether a Service asks for its rules at an address, and for nothing to stay there that it does not ask for.
fn asks_at(part: &Part, address: &IpAddr) -> bool {
    let stays = part.keep.contains_key(address) || part.guest.keep.contains(address);
    !stays && part.allows().any(|allow| allow.destinations.contains(address))
}
