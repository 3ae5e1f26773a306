//! Objects in Azure that were made for Services which the cluster does not have.
//!
//! Another cluster may own them: two clusters can share a resource group, and nothing in such a name says which made it. So
//! no program deletes them, and a person is told.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::ServiceKey;
use lazuli_services::{
    ask::names::{self, BaseName, OldSecurityRule},
    network::{
        load_balancer::LoadBalancer,
        public_ip::{PublicIp, tags},
        security_group::SecurityGroup,
    },
};

use super::{Finding, Grade, some};

/// The check.
const UNKNOWN: &str = "objects of unknown Services";

/// What Azure holds.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The load balancers.
    pub load_balancers: Vec<LoadBalancer>,
    /// The public IPs.
    pub public_ips: Vec<PublicIp>,
    /// The security groups.
    pub security_groups: Vec<SecurityGroup>,
}

/// The objects of Services that are not among these: a finding for each Service.
pub fn unknown(observed: &Observed, services: &[ServiceKey]) -> Vec<Finding> {
    let known: BTreeSet<String> =
        services.iter().map(|service| BaseName::of(service).as_str().to_lowercase()).collect();
    let names: BTreeSet<String> = services.iter().map(|service| service.tag_name().to_lowercase()).collect();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut note = |base: Option<&str>, object: String| {
        if let Some(base) = base.map(str::to_lowercase).filter(|base| !known.contains(base)) {
            found.entry(base).or_default().insert(object);
        }
    };
    for balancer in &observed.load_balancers {
        let place = balancer.id.name();
        let frontends = balancer.frontends.iter().map(|one| ("frontend", &one.name));
        let rules = balancer.rules.iter().map(|one| ("rule", &one.name));
        let probes = balancer.probes.iter().map(|one| ("probe", &one.name));
        for (kind, name) in frontends.chain(rules).chain(probes) {
            note(names::base_in(name), format!("{kind} {name} of load balancer {place}"));
        }
    }
    for group in &observed.security_groups {
        for rule in &group.rules {
            let base = match names::old_security_rule(&rule.name) {
                Some(OldSecurityRule::Own { base }) => Some(base),
                Some(OldSecurityRule::Shared) | None => None,
            };
            note(base, format!("rule {} of security group {}", rule.name, group.id.name()));
        }
    }
    let of_names = found.into_iter().map(|(base, objects)| {
        let objects: Vec<String> = objects.into_iter().collect();
        format!(
            "{} {} named after a Service that this cluster does not have ({base}): another cluster may own it; where none \
             does, delete it by hand",
            some(&objects),
            if objects.len() == 1 { "is" } else { "are" }
        )
    });
    let of_tags = observed.public_ips.iter().filter_map(|ip| {
        let unknown: Vec<&str> =
            tags::services(&ip.tags).into_iter().filter(|name| !names.contains(&name.to_lowercase())).collect();
        let cluster = tags::cluster(&ip.tags).unwrap_or("unknown");
        (!unknown.is_empty()).then(|| {
            format!(
                "public IP {} is tagged for {}, which this cluster does not have (its cluster is {cluster}): another cluster \
                 may own it; where none does, delete it by hand",
                ip.id.name(),
                some(&unknown)
            )
        })
    });
    let findings: Vec<Finding> = of_names.chain(of_tags).map(|text| Finding::new(UNKNOWN, Grade::Note, text)).collect();
    if findings.is_empty() { vec![Finding::new(UNKNOWN, Grade::Fine, "there are none")] } else { findings }
}
