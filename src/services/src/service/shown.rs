//! What load balancers show of one Service: the evidence by which a value that cannot be used is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::{ArmId, address::Family};

use crate::{
    ask::{Side, names::BaseName},
    network::load_balancer::{Frontend, LoadBalancer, Probe, Rule},
};

/// What load balancers show of one Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shown {
    /// The frontends that bear its name or that its rules use, by their ids.
    pub frontends: BTreeMap<ArmId, Frontend>,
    /// The rules that bear its name.
    pub rules: Vec<Rule>,
    /// The probes that those use.
    pub probes: Vec<Probe>,
}

/// What one load balancer shows, by the base names of Services in lower case.
pub type ShownServices = BTreeMap<String, Shown>;

/// The part of a name that is a base name, if the name is a Service's.
fn base_of(name: &str) -> String {
    name.split('-').next().unwrap_or(name).to_ascii_lowercase()
}

impl Shown {
    /// What a load balancer shows of all Services.
    pub fn all(balancer: &LoadBalancer) -> ShownServices {
        let mut all = ShownServices::new();
        let mut frontends: BTreeMap<ArmId, &Frontend> = BTreeMap::new();
        // One that stayed as the last of its load balancer is no Service's any more.
        let released = balancer.released_frontend();
        for frontend in balancer.frontends.iter().filter(|frontend| released != Some(*frontend)) {
            let id = LoadBalancer::frontend_id(&balancer.id, &frontend.name);
            all.entry(base_of(&frontend.name)).or_default().frontends.insert(id.clone(), frontend.clone());
            frontends.insert(id, frontend);
        }
        let probes: BTreeMap<String, &Probe> =
            balancer.probes.iter().map(|probe| (probe.name.to_ascii_lowercase(), probe)).collect();
        for rule in &balancer.rules {
            let shown = all.entry(base_of(&rule.name)).or_default();
            if let Some((id, frontend)) = rule.frontend.as_ref().and_then(|id| frontends.get_key_value(id)) {
                shown.frontends.entry(id.clone()).or_insert_with(|| (*frontend).clone());
            }
            let probe = rule.probe.as_ref().and_then(|id| probes.get(&id.name().to_ascii_lowercase()));
            shown.probes.extend(probe.filter(|probe| !shown.probes.contains(**probe)).map(|probe| (*probe).clone()));
            shown.rules.push(rule.clone());
        }
        all
    }

    /// What several load balancers show of a Service; `None` when they show nothing of it.
    pub fn of<'s>(base: &BaseName, balancers: impl IntoIterator<Item = &'s ShownServices>) -> Option<Self> {
        let base = base.as_str().to_ascii_lowercase();
        balancers.into_iter().filter_map(|all| all.get(&base)).fold(None, |before: Option<Self>, there| {
            let mut all = before.unwrap_or_default();
            all.frontends.extend(there.frontends.clone());
            all.rules.extend(there.rules.iter().cloned());
            all.probes
                .extend(there.probes.iter().filter(|probe| !all.probes.contains(probe)).cloned().collect::<Vec<_>>());
            Some(all)
        })
    }

    /// The side that serves the Service, whose status has these addresses. While it moves from one to the other, that of the
    /// status; `None` when that is not known either.
    pub fn side(&self, status: &[IpAddr]) -> Option<Side> {
        let side = |frontend: &Frontend| match frontend.public_ip {
            Some(_) => Side::Public,
            None => Side::Internal,
        };
        let sides: BTreeSet<Side> = self.frontends.values().map(side).collect();
        if sides.len() == 1 {
            return sides.first().copied();
        }
        let is_private = |address: &IpAddr| self.private_addresses().any(|there| there == *address);
        match status {
            [] => None,
            all if all.iter().any(is_private) => Some(Side::Internal),
            _ => Some(Side::Public),
        }
    }

    /// The addresses of its internal frontends.
    pub fn private_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.frontends.values().filter(|one| one.public_ip.is_none()).filter_map(|one| one.private_address)
    }

    /// The address of each of its frontends; `None` for one that is not known. `of_public_ip` gives those of public IPs.
    pub fn addresses(&self, of_public_ip: impl Fn(&ArmId) -> Option<IpAddr>) -> Vec<Option<IpAddr>> {
        let address = |frontend: &Frontend| match &frontend.public_ip {
            Some(id) => of_public_ip(id),
            None => frontend.private_address,
        };
        self.frontends.values().map(address).collect()
    }

    /// Whether traffic arrives with the frontend's address; `None` while no rule tells. Rules of IPv6 on the internal side never have
    /// a floating IP, and show nothing.
    pub fn floating_ip(&self) -> Option<bool> {
        let tells = |rule: &&Rule| {
            let frontend = rule.frontend.as_ref().and_then(|id| self.frontends.get(id));
            rule.floating_ip || frontend.is_some_and(|one| one.public_ip.is_some() || one.family == Family::V4)
        };
        let mut rules = self.rules.iter().filter(tells).peekable();
        rules.peek()?;
        Some(rules.any(|rule| rule.floating_ip))
    }

    /// The rules for a port of the frontend.
    pub fn rules_of(&self, port: u16) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.frontend_port == port)
    }

    /// The probe of a rule.
    pub fn probe_of(&self, rule: &Rule) -> Option<&Probe> {
        let name = rule.probe.as_ref()?.name();
        self.probes.iter().find(|probe| probe.name.eq_ignore_ascii_case(name))
    }
}
