//! Addresses that Services name beside their own and would be refused today.
//!
//! The controller leaves them where a Service has them: what works is not broken by it. `doctor` reports them.

use std::{collections::BTreeSet, net::IpAddr};

use lazuli_services::service::{ClusterAddresses, ServiceObject, annotation::key::ADDITIONAL_IPS};

use super::{Finding, Grade, managers::ServiceFlags};

/// The check.
const ADDITIONAL: &str = "additional addresses of Services";

/// The addresses in `azure-additional-public-ips` that the status of a Service has, and that no Service would get: a finding
/// each. `cluster` has what is known beside the Services, and `flags` what the managers allow. The Services of the classes in
/// `planned` are left out: a plan of their manager tells the same of them. Nothing is said where that is all of them.
pub fn additional(
    services: &[ServiceObject],
    cluster: &ClusterAddresses,
    flags: &[ServiceFlags],
    planned: &BTreeSet<Option<String>>,
) -> Vec<Finding> {
    let is_left = |service: &&ServiceObject| !planned.contains(&service.load_balancer_class);
    if !planned.is_empty() && !services.iter().any(|service| is_left(&service)) {
        return vec![];
    }
    let mut findings = Vec::new();
    let named = services.iter().filter(|service| service.annotations.contains_key(ADDITIONAL_IPS));
    for service in named.filter(is_left) {
        let of_class = flags.iter().filter(|flags| flags.class == service.load_balancer_class);
        let allowed = of_class.flat_map(|flags| flags.allowed_external.clone()).collect();
        let mut known = ClusterAddresses { allowed, ..cluster.clone() };
        services.iter().for_each(|other| known.note_service(service, other));
        let items =
            service.annotations[ADDITIONAL_IPS].split(',').filter_map(|item| item.trim().parse::<IpAddr>().ok());
        for address in items.filter(|address| service.ingress.contains(address)) {
            let Some(why) = known.refuses(address) else { continue };
            let text = format!(
                "Service {} has {address}, which {why}: every node takes what is sent to it; remove it from annotation \
                 {ADDITIONAL_IPS} when nothing needs it",
                service.key
            );
            findings.push(Finding::new(ADDITIONAL, Grade::Note, text));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::new(ADDITIONAL, Grade::Fine, "none is an address of the cluster or of Azure itself"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use lazuli_model::ServiceKey;
    use lazuli_services::service::fixtures::annotated;

    #[test]
    fn an_address_that_a_service_has_and_would_not_get_is_named() {
        let names = |name: &str, addresses: &str, ingress: &[&str]| ServiceObject {
            key: ServiceKey::new("shop", name, name),
            ingress: ingress.iter().map(|text| text.parse().unwrap()).collect(),
            ..annotated(&[("azure-additional-public-ips", addresses)])
        };
        let cluster = ClusterAddresses {
            nodes: ["20.1.1.1".parse().unwrap()].into(),
            services: vec!["20.97.0.0/16".parse().unwrap()],
            cluster_ips: ["20.96.0.10".parse().unwrap()].into(),
            ..ClusterAddresses::default()
        };
        let fine = [names("a", "20.9.9.9", &["20.0.0.1", "20.9.9.9"]), names("b", "10.0.0.10", &["20.0.0.2"])];
        let additional = |services: &[ServiceObject], cluster: &ClusterAddresses| {
            additional(services, cluster, &[ServiceFlags::default()], &BTreeSet::new())
        };
        let found = additional(&fine, &cluster);
        assert_eq!(found[0].grade, Grade::Fine, "{found:?}");
        let odd =
            [names("a", "10.0.0.10", &["20.0.0.1", "10.0.0.10"]), names("b", "20.0.0.1,x", &["20.0.0.2", "20.0.0.1"])];
        let found = additional(&odd, &cluster);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].text.starts_with("Service shop/a has 10.0.0.10, which is private"), "{found:?}");
        assert!(found[1].text.starts_with("Service shop/b has 20.0.0.1, which is the address of another"), "{found:?}");
        let all = "20.1.1.1, 20.96.0.10, 20.97.0.1";
        let of_cluster = [names("a", all, &["20.1.1.1", "20.96.0.10", "20.97.0.1"])];
        let found = additional(&of_cluster, &cluster);
        let why = [
            "20.1.1.1, which is the address of a Node",
            "20.96.0.10, which is the cluster IP",
            "20.97.0.1, which is in",
        ];
        assert!(found.len() == 3 && found.iter().zip(why).all(|(one, why)| one.text.contains(why)), "{found:?}");
    }

    #[test]
    fn services_of_every_class_that_no_plan_tells_of_are_looked_at_with_what_their_manager_allows() {
        let of_class = |name: &str, class: Option<&str>, address: &str| ServiceObject {
            key: ServiceKey::new("shop", name, name),
            load_balancer_class: class.map(str::to_owned),
            ingress: vec![address.parse().unwrap()],
            ..annotated(&[("azure-additional-public-ips", address)])
        };
        let services = [of_class("a", None, "20.1.1.1"), of_class("b", Some("ours"), "20.2.2.2")];
        let allows = |class: Option<&str>, range: &str| ServiceFlags {
            class: class.map(str::to_owned),
            allowed_external: vec![range.parse().unwrap()],
            ..ServiceFlags::default()
        };
        let cluster = ClusterAddresses::default();
        let named = |flags: &[ServiceFlags], planned: &[Option<&str>]| {
            let planned = planned.iter().map(|class| class.map(str::to_owned)).collect();
            let found = additional(&services, &cluster, flags, &planned);
            let of = |one: &Finding| match one.grade {
                Grade::Fine => "fine",
                _ if one.text.contains("shop/a has") => "a",
                _ => "b",
            };
            found.iter().map(of).collect::<Vec<_>>()
        };
        let none = [allows(None, "20.9.0.0/16"), allows(Some("ours"), "20.9.0.0/16")];
        assert_eq!(named(&none, &[]), ["a", "b"]);
        assert_eq!(named(&none, &[None]), ["b"], "the plan of another class tells nothing of it");
        assert_eq!(named(&none, &[Some("ours")]), ["a"]);
        assert_eq!(named(&none, &[None, Some("ours")]), Vec::<&str>::new());
        let own = [allows(None, "20.1.0.0/16"), allows(Some("ours"), "20.2.0.0/16")];
        assert_eq!(named(&own, &[]), ["fine"], "each class has what its own manager allows");
    }
}
