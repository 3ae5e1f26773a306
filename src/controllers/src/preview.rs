//! What the controller would write: for `--dry-run`, and for the decision at a take-over.

use std::{collections::BTreeSet, sync::Arc};

use lazuli_azure::{Until, error::ArmError, network::NetworkType};
use lazuli_plan::{
    balancing::{
        LoadBalancers, PrivateLinks, PublicIps, SecurityGroups, Spec,
        preview::{Environment, Observed, Planned, Subject, preview},
    },
    engine::service::{Desired, Snapshot},
    model::ArmId,
    network::{load_balancer, private_link, public_ip, security_group},
    service::ServiceKey,
};
use serde_json::Value;

use crate::{controller::LISTS, informed::Informed, objects::Planned as Object};

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

/// A Service as a preview knows it; `None` where its specification is wrong, for then nothing of it changes.
pub(crate) fn subject(key: &ServiceKey, snapshot: Snapshot<lazuli_plan::balancing::Balanced>) -> Option<Subject> {
    let spec: Option<Spec> = match snapshot.desired {
        Desired::Present(spec) => Some(spec),
        Desired::Gone => None,
        Desired::Invalid(_) => return None,
    };
    let (key, found, status) = (key.clone(), snapshot.found, snapshot.status);
    Some(Subject { key, spec, found, status, finalizer: snapshot.finalizer })
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
        let mut observed = Observed::default();
        let managed = self.load_balancers();
        for (id, body) in list(NetworkType::LoadBalancer, settings.load_balancer_resource_group.clone()).await? {
            let read = load_balancer::LoadBalancer::read(&id, &body).ok();
            observed.load_balancers.extend(read.filter(|_| managed.contains(&id)).map(|read| (id, read)));
        }
        let specs = || subjects.iter().filter_map(|subject| subject.spec.as_ref());
        let named = specs().flat_map(|spec| spec.public_ips.values()).map(|ip| ip.resource_group().to_lowercase());
        let groups: BTreeSet<String> = named.chain([settings.resource_group.to_lowercase()]).collect();
        for group in groups {
            for (id, body) in list(NetworkType::PublicIp, group).await? {
                observed.public_ips.extend(public_ip::PublicIp::read(&id, &body).ok().map(|read| (id, read)));
            }
        }
        for (id, body) in list(NetworkType::SecurityGroup, settings.security_group_resource_group.clone()).await? {
            let read = security_group::SecurityGroup::read(&id, &body).ok();
            observed.security_groups.extend(read.map(|read| (id, read)));
        }
        let named =
            specs().filter_map(|spec| spec.private_link.as_ref()).map(|link| link.resource_group().to_lowercase());
        let groups: BTreeSet<String> = named.chain([settings.private_link_resource_group.to_lowercase()]).collect();
        for group in groups {
            for (id, body) in list(NetworkType::PrivateLinkService, group).await? {
                observed.private_links.extend(private_link::PrivateLink::read(&id, &body).ok().map(|read| (id, read)));
            }
        }
        Ok(preview(observed, subjects, &self.inputs(), self))
    }
}
