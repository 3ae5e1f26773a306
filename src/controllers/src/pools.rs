//! What load balancers are observed to hold, and the members of their pools: addresses and NICs.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_azure::{Until, error::ArmError};
use lazuli_balancing::{
    balancers, events,
    interfaces::{self, Interfaces, Membership, Needs, Unknown},
};
use lazuli_engine::{
    Acceptance, Outcome,
    object::{EnvChange, Event},
};
use lazuli_model::{ArmId, ServiceKey, fault::Fault};
use lazuli_services::{
    ask::{names::BaseName, selector::LabelSelector},
    network::{
        load_balancer::{Gone, LoadBalancer, PoolMembers},
        nic::{self, Nic},
        security_group::SecurityGroup,
        settings::{LoadBalancerConfiguration, LoadBalancerSku, PoolKind},
    },
    service::ServiceObject,
};
use serde_json::Value;
use tracing::warn;

use crate::informed::{Informed, Told};

/// How long the list of the instances of a scale set may take.
const INSTANCES: Duration = Duration::from_secs(300);

/// The id of a body.
pub(crate) fn id_of(body: &Value) -> Option<ArmId> {
    body.get("id")?.as_str()?.parse().ok()
}

/// The keys that selectors ask for.
fn keys<'s>(selectors: impl Iterator<Item = &'s LabelSelector>) -> impl Iterator<Item = &'s String> {
    selectors.flat_map(|one| one.labels.keys().chain(one.expressions.iter().map(|part| &part.key)))
}

impl Informed {
    fn selectors(
        &self,
        of: fn(&LoadBalancerConfiguration) -> &Option<LabelSelector>,
    ) -> impl Iterator<Item = &LabelSelector> {
        self.settings.configurations.iter().filter_map(move |one| of(one).as_ref())
    }

    /// Whether a load balancer takes Services by the labels of their namespaces.
    pub(crate) fn follows_namespaces(&self) -> bool {
        self.settings.has_several_load_balancers() && self.selectors(|one| &one.namespace_labels).next().is_some()
    }

    /// Whether Services have pools of their own.
    pub(crate) fn follows_endpoints(&self) -> bool {
        self.settings.has_several_load_balancers() && self.settings.pool_kind == PoolKind::NodeIp
    }

    /// The labels of Services that selectors ask for.
    pub(crate) fn service_labels(&self) -> BTreeSet<String> {
        keys(self.selectors(|one| &one.service_labels)).cloned().collect()
    }

    /// The labels of Nodes that selectors ask for.
    pub(crate) fn node_labels(&self) -> BTreeSet<&str> {
        keys(self.selectors(|one| &one.node_labels)).map(String::as_str).collect()
    }

    /// The members of the pools of a load balancer.
    pub(crate) fn pools(&self, told: &Told, id: &ArmId) -> BTreeMap<String, PoolMembers> {
        let (Some(nodes), settings) = (&told.nodes, &self.settings) else { return BTreeMap::new() };
        let services = told.services.iter().flat_map(BTreeMap::values).map(|service| &service.object);
        let local = services.filter(|object| object.is_local && told.balancers.place_of(&object.key) == Some(id));
        let endpoints = |key: &ServiceKey| told.endpoints.as_ref().and_then(|all| all.nodes_of(&key.tag_name()));
        let local = local.map(|object| (&object.key, endpoints(&object.key)));
        let mut pools =
            balancers::pools(id, settings, nodes, &self.selection(), &told.balancers, &told.admitted, local);
        pools.values_mut().for_each(|members| members.keeps = told.acceptance == Acceptance::Awaited);
        pools
    }

    /// A read has shown this of a security group, or that it does not exist.
    pub(crate) fn group_observed(&self, actual: Option<&SecurityGroup>) {
        let replan = {
            let told = &mut *self.told();
            told.admitted.observed(actual) && told.balancers.sends_to_nodes()
        };
        if replan {
            // A node that is admitted now may join.
            self.replan_load_balancers(None);
            self.update_nics();
        }
    }

    /// A read that was sent at this time has shown this of a load balancer, or that it does not exist.
    pub(crate) fn balancer_observed(&self, id: &ArmId, sent_at: Duration, actual: Option<&LoadBalancer>) {
        let (replan, retry, nics) = {
            let told = &mut *self.told();
            told.evidence.balancer_seen(id, sent_at, actual);
            let consequences = told.balancers.observed(id, actual, &self.settings);
            let moved = consequences.placement && self.assign_nodes(told);
            let changed = consequences.members || consequences.placement;
            let replan = (consequences.members && self.settings.has_several_load_balancers()) || moved;
            (replan, consequences.placement && !told.unplaced.is_empty(), changed)
        };
        self.trim_security_group();
        if retry {
            self.retry.notify_one();
        }
        if replan {
            self.replan_load_balancers(Some(id));
        }
        if nics {
            self.update_nics();
            self.look_for_members();
        }
    }

    /// A read has shown this of a NIC, or that it does not exist.
    pub(crate) fn nic_observed(&self, id: &ArmId, actual: Option<&Nic>) {
        let differs = self.told().machines.observed(id, actual);
        if differs {
            self.update_nics();
            self.trim_security_group();
        }
    }

    /// A node that has left its last pool need not be admitted any more.
    fn trim_security_group(&self) {
        if self.told().admitted.has_departed()
            && let (Some(workers), Ok(group)) = (self.workers.get(), self.settings.security_group_id())
        {
            workers.security_groups.send(&group, Event::EnvChanged(EnvChange::Replan).into());
        }
    }

    /// Lists the instances of a uniform scale set: their NICs, and whether all are in line with the model.
    pub(crate) async fn look_at_instances(&self, set: &ArmId) -> Result<(), ArmError> {
        let mut nics: Vec<Nic> = Vec::new();
        let mut lags = false;
        let each = |body: Value| {
            lags |= body.pointer("/properties/latestModelApplied").and_then(Value::as_bool) == Some(false);
            nics.extend(id_of(&body).and_then(|id| Nic::read(&id, &body).ok()));
        };
        self.network.each_instance(set, &Until::within(INSTANCES), each).await?;
        let differs = {
            let told = &mut *self.told();
            // One that this process has just written may be shown as it was before.
            let news = nics.iter().filter(|nic| !self.wrote_lately(&nic.id) || told.machines.nic(&nic.id).is_none());
            let news: Vec<&Nic> = news.collect();
            let mut differs = false;
            for nic in news {
                differs |= told.machines.observed(&nic.id, Some(nic));
            }
            told.machines.lags(set, lags) || differs
        };
        if differs {
            self.update_nics();
            self.trim_security_group();
            if let Some(workers) = self.workers.get() {
                workers.nics.send(set, Event::EnvChanged(EnvChange::Replan).into());
            }
        }
        Ok(())
    }

    /// Whether an instance that could not be read is no instance of its scale set any more: Azure answers a request about
    /// one as it answers wrong requests.
    pub(crate) async fn is_instance_gone(&self, instance: &ArmId) -> bool {
        let Some(set) = instance.parent() else { return false };
        let mut is_there = false;
        let each = |body: Value| is_there |= id_of(&body).as_ref() == Some(instance);
        let listed = self.network.each_instance(&set, &Until::within(INSTANCES), each).await;
        listed.is_ok() && !is_there
    }

    /// The pools of a load balancer that models of scale sets name. Until the scale sets have been looked at, any may be.
    pub(crate) fn pools_in_models(&self, told: &Told, balancer: &ArmId) -> BTreeSet<ArmId> {
        let pools = told.balancers.nic_pools(&self.settings, &told.leaving).into_iter();
        let of_this = pools.filter(|pool| pool.balancer == *balancer).map(|pool| pool.id);
        of_this.filter(|pool| !told.has_looked || told.machines.is_in_model(pool)).collect()
    }

    /// The model of a scale set cannot join or leave pools now. Of its Nodes the first is told.
    pub(crate) fn model_waits(&self, set: &ArmId, why: &str) {
        warn!(scale_set = set.name(), why, "the model of a scale set is not changed");
        let told = self.told();
        if let Some(node) = told.nodes.as_ref().and_then(|nodes| interfaces::node_of_set(nodes, set)) {
            self.events.send(events::model_waits(node, set, why));
        }
    }

    /// The availability sets of the Nodes that are backends.
    pub(crate) fn vm_sets(&self, told: &Told) -> Vec<String> {
        let nodes =
            told.nodes.iter().flat_map(|nodes| self.selection().of(nodes).map(|(_, node)| node).collect::<Vec<_>>());
        told.machines.sets(nodes)
    }

    /// What is to be known of machines.
    pub(crate) fn needs(&self, told: &Told) -> Needs {
        Needs {
            nics: self.settings.pool_kind == PoolKind::Nic || told.balancers.has_nic_pools(),
            sets: self.settings.sku == LoadBalancerSku::Basic || self.settings.has_several_load_balancers(),
        }
    }

    /// What is to be looked for of machines, beside what this look has read.
    pub(crate) fn unknown_machines(&self, looked: &Unknown) -> Unknown {
        let told = self.told();
        let needs = self.needs(&told);
        let Some(nodes) = told.nodes.as_ref().filter(|_| needs.nics || needs.sets) else { return Unknown::default() };
        let mut unknown = told.machines.unknown(nodes, &self.selection(), needs, looked);
        unknown.add(self.unknown_members(&told, looked));
        unknown
    }

    /// What is to be looked for of the members of pools that their last Service leaves.
    fn unknown_members(&self, told: &Told, looked: &Unknown) -> Unknown {
        told.machines.unknown_members(&told.balancers.nic_pools(&self.settings, &told.leaving), looked)
    }

    /// Has the members looked for that are to leave a pool and that no read has shown.
    fn look_for_members(&self) {
        if self.unknown_members(&self.told(), &Unknown::default()) != Unknown::default() {
            self.look.notify_one();
        }
    }

    /// Tells each NIC in which pools it should be, where that differs from what it was told or is.
    pub(crate) fn update_nics(&self) {
        let (Some(workers), true) = (self.workers.get(), self.shared().synced) else { return };
        let mut events: Vec<(ArmId, Event<Interfaces>)> = Vec::new();
        let mut left: BTreeSet<ArmId> = BTreeSet::new();
        let mut followed: BTreeSet<ArmId> = BTreeSet::new();
        let have_joined;
        {
            let told = &mut *self.told();
            let Some(nodes) = &told.nodes else { return };
            if !told.balancers.has_nic_pools() && told.nic_wants.is_empty() {
                return;
            }
            let pools = told.balancers.nic_pools(&self.settings, &told.leaving);
            left.extend(pools.iter().filter(|pool| !pool.is_in_use).map(|pool| pool.balancer.clone()));
            let mut wants = interfaces::memberships(
                &self.settings,
                nodes,
                &self.selection(),
                &told.machines,
                &told.admitted,
                &pools,
            );
            let without_members = interfaces::without_members(&pools, &told.machines, &wants);
            have_joined = told.note_without_members(without_members);
            // A NIC that was told to join may do so any moment: it is told to leave, though no read shows it there.
            for (id, (_, before)) in &told.nic_wants {
                if told.machines.nic(id).is_some() {
                    let leave = || nic::Env { wanted: BTreeMap::new(), managed: before.managed.clone() };
                    wants.entry(id.clone()).or_insert_with(leave);
                }
            }
            let gone: Vec<ArmId> = told.nic_wants.keys().filter(|id| !wants.contains_key(id)).cloned().collect();
            followed.extend(gone.iter().flat_map(|id| told.underway.arrived(id)));
            events.extend(gone.into_iter().map(|id| (id, Event::Withdrawn(Membership))));
            told.nic_wants.retain(|id, _| wants.contains_key(id));
            for (id, want) in wants {
                let before = told.nic_wants.get(&id);
                if !interfaces::is_news(before.map(|(_, want)| want), &want, told.machines.nic(&id)) {
                    continue;
                }
                let generation = before.map_or(0, |(generation, _)| *generation) + 1;
                told.underway.told(&id, &want, told.machines.nic(&id));
                told.nic_wants.insert(id.clone(), (generation, want.clone()));
                let acceptance = Acceptance::Given;
                events.push((id, Event::Requested { from: Membership, generation, want, acceptance }));
            }
        }
        for (id, event) in events {
            workers.nics.send(&id, event.into());
        }
        self.pools_followed(followed, &Ok(()));
        if have_joined {
            // Services may have a status now.
            workers.services.wake_all();
        }
        // One whose last Service goes may be deleted once its members have left.
        for id in left {
            workers.load_balancers.send(&id, Event::EnvChanged(EnvChange::Replan).into());
        }
    }

    /// Takes in what became of the pools that a NIC was told.
    pub(crate) fn nic_ended<R>(&self, nic: &ArmId, outcome: &Outcome<R>) {
        let (balancers, result) = self.told().underway.ended(nic, outcome);
        self.pools_followed(balancers, &result);
    }

    /// Tells the Services that are served by load balancers that their pools have followed the Nodes, or cannot.
    fn pools_followed(&self, balancers: BTreeSet<ArmId>, result: &Result<(), Fault>) {
        for balancer in balancers {
            let services: Vec<ServiceKey> = {
                let told = self.told();
                let all = told.services.iter().flatten().map(|(_, service)| &service.object);
                let is_here = |object: &&ServiceObject| {
                    !object.ingress.is_empty() && told.balancers.place_of(&object.key) == Some(&balancer)
                };
                all.filter(is_here).map(|object| object.key.clone()).collect()
            };
            self.backends_followed(&balancer, services, result);
        }
    }

    /// Notes what a Service that leaves a load balancer gives up there, or that it does not leave: the NICs leave with the
    /// last frontend.
    pub(crate) fn note_leaving(&self, balancer: &ArmId, service: &ServiceKey, gone: Option<Gone>) {
        let base = BaseName::of(service).as_str().to_lowercase();
        let differs = {
            let told = &mut *self.told();
            let leaving = told.leaving.entry(balancer.clone()).or_default();
            match gone {
                Some(gone) => leaving.insert(base, gone.clone()).as_ref() != Some(&gone),
                None => leaving.remove(&base).is_some(),
            }
        };
        if differs {
            self.update_nics();
            self.look_for_members();
        }
    }

    /// Spreads the Nodes over the load balancers. Returns whether one belongs elsewhere now.
    pub(crate) fn assign_nodes(&self, told: &mut Told) -> bool {
        let is_asked = self.settings.has_several_load_balancers() && !told.holds_nodes;
        let Some(nodes) = told.nodes.as_ref().filter(|_| is_asked) else {
            return false;
        };
        let machines = &told.machines;
        let vm_set = |name: &str| nodes.get(name).map(|node| machines.set_of(node)).unwrap_or_default().to_owned();
        told.balancers.assign(nodes, &self.selection(), &self.settings, vm_set)
    }

    /// The members of pools may be others now. `but` has been read just now and is planned anyway.
    pub(crate) fn replan_load_balancers(&self, but: Option<&ArmId>) {
        let Some(workers) = self.workers.get() else { return };
        for id in self.load_balancers().iter().filter(|id| Some(*id) != but) {
            workers.load_balancers.send(id, Event::EnvChanged(EnvChange::Replan).into());
        }
    }
}
