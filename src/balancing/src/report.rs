//! What an object shows of one Service.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::{ArmId, ServiceKey};
use lazuli_services::{
    ask::{SecurityProtocol, TransportProtocol, names::BaseName},
    network::{
        Found,
        load_balancer::{Frontend as LoadBalancerFrontend, LoadBalancer, Rule},
        public_ip::PublicIp,
    },
};

use super::objects::load_balancer_of;

/// What an object shows of one Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What the Service was told that it serves it with.
    pub found: Found,
    /// Of a public IP or a private link service: whether it exists.
    pub exists: bool,
    /// Of a load balancer: the frontends that bear the Service's name or that its rules use.
    pub frontends: BTreeSet<Frontend>,
    /// Those of them that rules of others use too.
    pub shared: BTreeSet<Frontend>,
    /// Of a load balancer: the ports at which traffic of the Service's rules passes the security group.
    pub ports: BTreeSet<(SecurityProtocol, u16)>,
    /// The same by frontend.
    pub ports_at: BTreeMap<Frontend, BTreeSet<(SecurityProtocol, u16)>>,
    /// Of a public IP: its address.
    pub address: Option<IpAddr>,
    /// Of a public IP: whether its tag lists the Service.
    pub is_tagged: bool,
    /// Of a public IP: whether its tag lists another Service, or none because a user made it.
    pub is_shared: bool,
    /// Of a public IP: the frontend of a load balancer that has it.
    pub used_by: Option<ArmId>,
}

/// A frontend, as far as its address goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frontend {
    /// It has this public IP.
    Public(ArmId),
    /// It has this address of a subnet.
    Private(IpAddr),
}

impl Report {
    /// What a public IP shows.
    pub fn of_public_ip(service: &ServiceKey, actual: Option<&PublicIp>) -> Self {
        let Some(actual) = actual else { return Self::default() };
        let is_tagged = actual.lists(&service.tag_name());
        let is_shared = actual.is_users() || actual.lists_another(&service.tag_name());
        let used_by = actual.used_by.clone().filter(|user| load_balancer_of(user).is_some());
        Self { exists: true, address: actual.address, is_tagged, is_shared, used_by, ..Self::default() }
    }
}

/// The parts of an observed load balancer by the Services that they belong to: it holds up to 1,500 rules, and each Service
/// asks about its own.
#[derive(Debug, Default)]
pub struct Shown<'a> {
    /// The frontends, by their ids.
    frontends: BTreeMap<ArmId, &'a LoadBalancerFrontend>,
    /// The ids of frontends, by the base name in the frontend's name.
    own: BTreeMap<String, Vec<ArmId>>,
    /// The rules, by the base name in the rule's name.
    rules: BTreeMap<String, Vec<&'a Rule>>,
    /// The base names of the Services whose rules use a frontend.
    users: BTreeMap<&'a ArmId, BTreeSet<String>>,
}

/// The part of a name that is a base name, if the name is a Service's. The case of letters does not count.
fn base_of(name: &str) -> String {
    name.split('-').next().unwrap_or(name).to_ascii_lowercase()
}

impl<'a> Shown<'a> {
    /// The parts of a load balancer; none of one that does not exist.
    pub fn of(actual: Option<&'a LoadBalancer>) -> Self {
        let Some(actual) = actual else { return Self::default() };
        let mut shown = Self::default();
        let released = actual.released_frontend().map(|frontend| &frontend.name);
        for frontend in actual.frontends.iter().filter(|frontend| Some(&frontend.name) != released) {
            let id = LoadBalancer::frontend_id(&actual.id, &frontend.name);
            shown.own.entry(base_of(&frontend.name)).or_default().push(id.clone());
            shown.frontends.insert(id, frontend);
        }
        for rule in &actual.rules {
            let base = base_of(&rule.name);
            if let Some(frontend) = &rule.frontend {
                shown.users.entry(frontend).or_default().insert(base.clone());
            }
            shown.rules.entry(base).or_default().push(rule);
        }
        shown
    }

    /// What the load balancer shows of one Service.
    pub fn report(&self, service: &ServiceKey) -> Report {
        let mut report = Report::default();
        let base = BaseName::of(service).as_str().to_ascii_lowercase();
        let rules = self.rules.get(&base).map_or(&[][..], Vec::as_slice);
        let own = self.own.get(&base).into_iter().flatten();
        let address = |id: &ArmId| {
            let frontend = self.frontends.get(id)?;
            let public = frontend.public_ip.clone().map(Frontend::Public);
            public.or(frontend.private_address.map(Frontend::Private))
        };
        for rule in rules {
            if let Some(frontend) = rule.frontend.as_ref().and_then(address) {
                report.ports_at.entry(frontend).or_default().insert(admitted_port(rule));
            }
        }
        let used: BTreeSet<&ArmId> = own.chain(rules.iter().filter_map(|rule| rule.frontend.as_ref())).collect();
        for id in used {
            let address = address(id);
            if self.users.get(id).is_some_and(|users| users.iter().any(|user| *user != base)) {
                report.shared.extend(address.clone());
            }
            report.frontends.extend(address);
        }
        report.ports = rules.iter().map(|rule| admitted_port(rule)).collect();
        report
    }
}

/// The port at which a rule's traffic passes the security group: that of the frontend with floating IP, else that of the
/// backends.
pub(super) fn admitted_port(rule: &Rule) -> (SecurityProtocol, u16) {
    let protocol = rule.protocol.map_or(SecurityProtocol::Any, TransportProtocol::in_security_rules);
    (protocol, if rule.floating_ip { rule.frontend_port } else { rule.backend_port })
}

/// The ports of several reports.
pub fn ports<'r>(reports: impl IntoIterator<Item = &'r Report>) -> BTreeSet<(SecurityProtocol, u16)> {
    reports.into_iter().flat_map(|report| report.ports.iter().copied()).collect()
}
