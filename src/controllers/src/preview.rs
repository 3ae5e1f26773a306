//! What the controller would write: for `--dry-run`, and for the decision at a take-over.

use std::{collections::BTreeSet, sync::Arc};

use lazuli_azure::{Until, error::ArmError, network::NetworkType};
use lazuli_balancing::{
    Key, LoadBalancers, PrivateLinks, PublicIps, SecurityGroups, Spec,
    preview::{Environment, Observed, Planned, Subject, not_served, preview},
};
use lazuli_engine::service::{Desired, Snapshot};
use lazuli_model::{ArmId, ServiceKey, digest::digits};
use lazuli_services::network::{load_balancer, private_link, public_ip, security_group};
use serde_json::Value;
use tracing::warn;

use crate::{
    controller::{LISTS, is_closed},
    informed::Informed,
    objects::Planned as Object,
};

/// The hash of what of a plan removes or replaces something: the operator accepts that plan by it, and no other. `None` where
/// nothing is removed or replaced.
pub(crate) fn plan_hash(planned: &[Planned]) -> Option<String> {
    let held = planned.iter().filter(|one| one.replaces).map(|one| format!("{one}\n"));
    let text: String = held.collect();
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    (!text.is_empty()).then(|| digits(&digest.as_ref()[..8]))
}

impl Environment for Informed {
    /// Members that leave are shown, though they stay until the operator accepts that.
    fn load_balancer(&self, id: &ArmId) -> Arc<load_balancer::Env> {
        let mut env = Arc::unwrap_or_clone(<LoadBalancers as Object>::inputs(self, id));
        env.pools.values_mut().for_each(|members| members.keeps = false);
        Arc::new(env)
    }

    fn public_ip(&self, id: &ArmId) -> Arc<public_ip::Env> {
        <PublicIps as Object>::inputs(self, id)
    }

    /// Every Service says what it asks for, so nothing is kept for those that say nothing.
    fn security_group(&self, id: &ArmId) -> Arc<security_group::Env> {
        let env = Arc::unwrap_or_clone(<SecurityGroups as Object>::inputs(self, id));
        Arc::new(security_group::Env { keep: Default::default(), ..env })
    }

    fn private_link(&self, id: &ArmId) -> Arc<private_link::Env> {
        <PrivateLinks as Object>::inputs(self, id)
    }
}

/// A Service as a preview knows it. Of one whose specification is wrong nothing changes: what is said of it instead.
pub(crate) fn subject(
    key: &ServiceKey,
    snapshot: Snapshot<lazuli_balancing::Balanced>,
) -> Result<Subject, Box<Planned>> {
    let spec: Option<Spec> = match snapshot.desired {
        Desired::Present(spec) => Some(spec),
        Desired::Gone => None,
        Desired::Invalid(mistakes) => return Err(Box::new(not_served(key, snapshot.status.is_some(), &mistakes))),
    };
    let (key, mut found, status) = (key.clone(), snapshot.found, snapshot.status);
    found.extend(snapshot.ownerless);
    Ok(Subject { key, spec, found, status, finalizer: snapshot.finalizer })
}

/// What a list of a resource group showed. A group that only a Service's annotation names may not exist or be closed to
/// the identity: that Service is told so, and the plan of the others does not fail for it.
fn in_named<T>(listed: Result<Vec<T>, ArmError>, group: &str, is_own: bool) -> Result<Vec<T>, ArmError> {
    match listed {
        Err(error) if !is_own && is_closed(&error.fault) => {
            warn!(group, %error, "a resource group that a Service names cannot be read; the plan goes without it");
            Ok(vec![])
        }
        listed => listed,
    }
}

impl Informed {
    /// What would be written for these Services.
    pub(crate) async fn preview(&self, subjects: &[Subject]) -> Result<Vec<Planned>, ArmError> {
        let settings = &self.settings;
        let until = &Until::within(LISTS);
        let list = |kind, group: String| async move {
            let bodies = self.network.list(kind, &settings.subscription, &group, until).await?;
            let with_id = |body: Value| Some((body.get("id")?.as_str()?.parse::<ArmId>().ok()?, body));
            Ok::<_, ArmError>(bodies.into_iter().filter_map(with_id).collect::<Vec<_>>())
        };
        let own = [&settings.resource_group, &settings.private_link_resource_group];
        let is_own = |group: &str| own.iter().any(|own| own.eq_ignore_ascii_case(group));
        let mut observed = Observed::default();
        let managed = self.load_balancers();
        for (id, body) in list(NetworkType::LoadBalancer, settings.load_balancer_resource_group.clone()).await? {
            let read = load_balancer::LoadBalancer::read(&id, &body).ok();
            observed.load_balancers.extend(read.filter(|_| managed.contains(&id)).map(|read| (id, read)));
        }
        let specs = || subjects.iter().filter_map(|subject| subject.spec.as_ref());
        let found = || subjects.iter().flat_map(|subject| &subject.found);
        let found_ips = found().filter_map(|key| if let Key::PublicIp(id) = key { Some(id) } else { None });
        let named = specs().flat_map(|spec| spec.public_ips.values()).chain(found_ips);
        let named = named.map(|ip| ip.resource_group().to_lowercase());
        let groups: BTreeSet<String> = named.chain([settings.resource_group.to_lowercase()]).collect();
        for group in groups {
            for (id, body) in in_named(list(NetworkType::PublicIp, group.clone()).await, &group, is_own(&group))? {
                observed.public_ips.extend(public_ip::PublicIp::read(&id, &body).ok().map(|read| (id, read)));
            }
        }
        for (id, body) in list(NetworkType::SecurityGroup, settings.security_group_resource_group.clone()).await? {
            let read = security_group::SecurityGroup::read(&id, &body).ok();
            observed.security_groups.extend(read.map(|read| (id, read)));
        }
        let found_links = found().filter_map(|key| if let Key::PrivateLink(id) = key { Some(id) } else { None });
        let named = specs().filter_map(|spec| spec.private_link.as_ref()).chain(found_links);
        let named = named.map(|link| link.resource_group().to_lowercase());
        let groups: BTreeSet<String> = named.chain([settings.private_link_resource_group.to_lowercase()]).collect();
        for group in groups {
            let listed = list(NetworkType::PrivateLinkService, group.clone()).await;
            for (id, body) in in_named(listed, &group, is_own(&group))? {
                observed.private_links.extend(private_link::PrivateLink::read(&id, &body).ok().map(|read| (id, read)));
            }
        }
        Ok(preview(observed, subjects, &self.inputs(), self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(object: &str, changes: &[&str], replaces: bool) -> Planned {
        Planned {
            object: object.to_owned(),
            changes: changes.iter().map(|&change| change.to_owned()).collect(),
            replaces,
            ..Planned::default()
        }
    }

    #[test]
    fn each_plan_that_removes_something_else_has_a_hash_of_its_own() {
        let base = || planned("load balancer kubernetes", &["delete rule a"], true);
        let plans = [
            vec![base()],
            vec![planned("load balancer kubernetes", &["delete rule b"], true)],
            vec![planned("load balancer kubernetes", &["delete rule a", "delete rule b"], true)],
            vec![planned("load balancer kubernetes-internal", &["delete rule a"], true)],
            vec![base(), planned("public IP a", &["delete it"], true)],
        ];
        let hashes: BTreeSet<String> =
            plans.iter().map(|plan| plan_hash(plan).expect("something is removed")).collect();
        assert_eq!(hashes.len(), plans.len(), "{hashes:?}");
        assert!(hashes.iter().all(|hash| hash.len() == 16), "{hashes:?}");
        // What is only added, whatever it is, changes nothing of what the operator has accepted.
        let added = planned("public IP b", &["create it, IPv4"], false);
        assert_eq!(plan_hash(&[base(), added.clone()]), plan_hash(&[base()]));
        assert_eq!(plan_hash(&[added]), None);
        assert_eq!(plan_hash(&[]), None);
    }
}
