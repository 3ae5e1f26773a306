//! Look-ups in an observed load balancer: it holds up to 1,500 rules, and each Service asks about several.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::ArmId;

use super::{
    Wants,
    model::{Frontend, LoadBalancer, Probe, Rule},
};
use crate::ask::names::BaseName;

/// What a load balancer shows of one Service, found by its base name.
#[derive(Default)]
pub(super) struct Owned<'a> {
    pub(super) frontends: Vec<&'a Frontend>,
    pub(super) rules: Vec<&'a Rule>,
    pub(super) probes: Vec<&'a Probe>,
}

/// An observed load balancer, by name.
#[derive(Default)]
pub(super) struct Index<'a> {
    pub(super) model: Option<&'a LoadBalancer>,
    frontends: BTreeMap<String, &'a Frontend>,
    rules: BTreeMap<String, &'a Rule>,
    probes: BTreeMap<String, &'a Probe>,
    owned: BTreeMap<String, Owned<'a>>,
    /// Rules, by the frontend that they refer to.
    at: BTreeMap<&'a ArmId, Vec<&'a Rule>>,
    by_public_ip: BTreeMap<&'a ArmId, &'a Frontend>,
    by_address: BTreeMap<IpAddr, &'a Frontend>,
    /// Frontends that outbound rules and inbound NAT refer to.
    held: BTreeSet<&'a ArmId>,
    /// The frontend that no Service has any more and that stays because it was the last.
    pub(super) released: Option<&'a Frontend>,
}

/// What a name is found by: Azure ignores the case of letters.
pub(super) fn fold(name: &str) -> String {
    name.to_ascii_lowercase()
}

/// The part of a name before its first dash: the base name, if the name is a Service's.
fn stem(name: &str) -> String {
    fold(name.split('-').next().unwrap_or(name))
}

impl<'a> Index<'a> {
    pub(super) fn of(model: Option<&'a LoadBalancer>) -> Self {
        let Some(model) = model else { return Self::default() };
        let mut index = Self { model: Some(model), released: model.released_frontend(), ..Self::default() };
        for frontend in &model.frontends {
            index.frontends.entry(fold(&frontend.name)).or_insert(frontend);
            index.owned.entry(stem(&frontend.name)).or_default().frontends.push(frontend);
            if let Some(id) = &frontend.public_ip {
                index.by_public_ip.entry(id).or_insert(frontend);
            }
            if let (Some(address), None) = (frontend.private_address, &frontend.public_ip) {
                index.by_address.entry(address).or_insert(frontend);
            }
        }
        for rule in &model.rules {
            index.rules.entry(fold(&rule.name)).or_insert(rule);
            index.owned.entry(stem(&rule.name)).or_default().rules.push(rule);
            if let Some(frontend) = &rule.frontend {
                index.at.entry(frontend).or_default().push(rule);
            }
        }
        for probe in &model.probes {
            index.probes.entry(fold(&probe.name)).or_insert(probe);
            index.owned.entry(stem(&probe.name)).or_default().probes.push(probe);
        }
        index.held.extend(model.outbound_rules.iter().flat_map(|rule| &rule.frontends));
        index.held.extend(model.nat.iter().filter_map(|range| range.frontend.as_ref()));
        index
    }

    pub(super) fn frontend(&self, name: &str) -> Option<&'a Frontend> {
        self.frontends.get(&fold(name)).copied()
    }

    pub(super) fn rule(&self, name: &str) -> Option<&'a Rule> {
        self.rules.get(&fold(name)).copied()
    }

    pub(super) fn probe(&self, name: &str) -> Option<&'a Probe> {
        self.probes.get(&fold(name)).copied()
    }

    /// What bears a base name.
    pub(super) fn owned(&self, base: &BaseName) -> Option<&Owned<'a>> {
        self.owned.get(&fold(base.as_str()))
    }

    /// The rules of a frontend.
    pub(super) fn rules_at(&self, frontend: &ArmId) -> &[&'a Rule] {
        self.at.get(frontend).map_or(&[], Vec::as_slice)
    }

    /// The frontend of a public IP.
    pub(super) fn with_public_ip(&self, id: &ArmId) -> Option<&'a Frontend> {
        self.by_public_ip.get(id).copied()
    }

    /// The frontend of a private address.
    pub(super) fn with_address(&self, address: IpAddr) -> Option<&'a Frontend> {
        self.by_address.get(&address).copied()
    }

    /// Whether an outbound rule or inbound NAT uses a frontend.
    pub(super) fn is_held(&self, frontend: &ArmId) -> bool {
        self.held.contains(frontend)
    }

    /// The names of rules that go because their Services no longer ask for them.
    pub(super) fn leaving_rules(&self, wants: &Wants) -> BTreeSet<String> {
        let mut leaving = BTreeSet::new();
        for want in wants.values() {
            let Some(owned) = want.gone.rules().and_then(|base| self.owned(base)) else { continue };
            let asked: BTreeSet<String> = want.present.rules.iter().map(|rule| fold(&rule.ask.name)).collect();
            leaving.extend(owned.rules.iter().map(|rule| fold(&rule.name)).filter(|name| !asked.contains(name)));
        }
        leaving
    }
}

/// The Service whose base name a name begins with.
pub(super) fn owner_of(name: &str, wants: &Wants) -> Option<String> {
    wants.keys().find(|service| BaseName::of(service).owns(name)).map(|service| format!("Service {service}"))
}
