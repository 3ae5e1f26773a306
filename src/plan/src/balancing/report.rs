//! What an object shows of one Service.

use std::{collections::BTreeSet, net::IpAddr};

use crate::{
    model::ArmId,
    network::{
        Found,
        load_balancer::{LoadBalancer, Rule},
        public_ip::PublicIp,
    },
    service::{SecurityProtocol, ServiceKey, TransportProtocol, names::BaseName},
};

/// What an object shows of one Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What the Service was told that it serves it with.
    pub found: Found,
    /// Of a load balancer: the frontends that bear the Service's name or that its rules use.
    pub frontends: BTreeSet<Frontend>,
    /// Those of them that rules of others use too.
    pub shared: BTreeSet<Frontend>,
    /// Of a load balancer: the ports at which traffic of the Service's rules passes the security group.
    pub ports: BTreeSet<(SecurityProtocol, u16)>,
    /// Of a public IP: its address.
    pub address: Option<IpAddr>,
    /// Of a public IP: whether its tag lists the Service.
    pub is_tagged: bool,
    /// Of a public IP: whether its tag lists another Service, or none because a user made it.
    pub is_shared: bool,
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
    /// What a load balancer shows.
    pub fn of_load_balancer(service: &ServiceKey, actual: Option<&LoadBalancer>) -> Self {
        let mut report = Self::default();
        let Some(actual) = actual else { return report };
        let base = BaseName::of(service);
        let own: Vec<&Rule> = actual.rules.iter().filter(|rule| base.owns(&rule.name)).collect();
        for frontend in &actual.frontends {
            let id = LoadBalancer::frontend_id(&actual.id, &frontend.name);
            if base.owns(&frontend.name) || own.iter().any(|rule| rule.frontend.as_ref() == Some(&id)) {
                let shown = frontend.public_ip.clone().map(Frontend::Public);
                let shown = shown.or(frontend.private_address.map(Frontend::Private));
                if actual.rules.iter().any(|rule| rule.frontend.as_ref() == Some(&id) && !base.owns(&rule.name)) {
                    report.shared.extend(shown.clone());
                }
                report.frontends.extend(shown);
            }
        }
        report.ports = own.into_iter().map(admitted_port).collect();
        report
    }

    /// What a public IP shows.
    pub fn of_public_ip(service: &ServiceKey, actual: Option<&PublicIp>) -> Self {
        let Some(actual) = actual else { return Self::default() };
        let is_tagged = actual.lists(&service.tag_name());
        let is_shared = actual.is_users() || actual.lists_another(&service.tag_name());
        Self { address: actual.address, is_tagged, is_shared, ..Self::default() }
    }
}

/// The port at which a rule's traffic passes the security group: that of the frontend with floating IP, else that of the
/// backends.
pub(super) fn admitted_port(rule: &Rule) -> (SecurityProtocol, u16) {
    let protocol = match rule.protocol {
        Some(TransportProtocol::Tcp) => SecurityProtocol::Tcp,
        Some(TransportProtocol::Udp) => SecurityProtocol::Udp,
        Some(TransportProtocol::All) | None => SecurityProtocol::Any,
    };
    (protocol, if rule.floating_ip { rule.frontend_port } else { rule.backend_port })
}

/// The ports of several reports.
pub fn ports<'r>(reports: impl IntoIterator<Item = &'r Report>) -> BTreeSet<(SecurityProtocol, u16)> {
    reports.into_iter().flat_map(|report| report.ports.iter().copied()).collect()
}
