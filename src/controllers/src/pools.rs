//! Several load balancers: what they are observed to hold, and the members of their pools.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_plan::{
    balancing::balancers,
    engine::object::{EnvChange, Event},
    model::ArmId,
    network::{
        load_balancer::{LoadBalancer, PoolMembers},
        settings::{LoadBalancerConfiguration, LoadBalancerSku, PoolKind},
    },
    service::selector::LabelSelector,
};

use crate::informed::{Informed, Told};

impl Informed {
    /// Whether a Service may be on one of several load balancers of its side.
    pub(crate) fn spreads(&self) -> bool {
        self.settings.has_several_load_balancers() || self.settings.sku == LoadBalancerSku::Basic
    }

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

    /// The labels of Nodes that selectors ask for.
    pub(crate) fn node_labels(&self) -> BTreeSet<&str> {
        let selectors = self.selectors(|one| &one.node_labels);
        let keys = selectors.flat_map(|one| one.labels.keys().chain(one.expressions.iter().map(|part| &part.key)));
        keys.map(String::as_str).collect()
    }

    /// The members of the pools of a load balancer.
    pub(crate) fn pools(&self, told: &Told, id: &ArmId) -> BTreeMap<String, PoolMembers> {
        let (Some(nodes), settings) = (&told.nodes, &self.settings) else { return BTreeMap::new() };
        let services = told.services.iter().flat_map(BTreeMap::values).map(|service| &service.object);
        let local = services.filter(|object| object.is_local && told.balancers.place_of(&object.key) == Some(id));
        let (keys, none) = (local.map(|object| &object.key), Default::default());
        let endpoints = told.endpoints.as_ref().unwrap_or(&none);
        balancers::pools(id, settings, nodes, &self.selection(), &told.balancers, keys, endpoints)
    }

    /// A read has shown this of a load balancer, or that it does not exist.
    pub(crate) fn balancer_observed(&self, id: &ArmId, actual: Option<&LoadBalancer>) {
        if !self.spreads() {
            return;
        }
        let (replan, retry) = {
            let told = &mut *self.told();
            let consequences = told.balancers.observed(id, actual, &self.settings);
            let moved = consequences.placement && self.assign_nodes(told);
            (consequences.members || moved, consequences.placement && !told.unplaced.is_empty())
        };
        if retry {
            self.retry.notify_one();
        }
        if replan {
            self.replan_load_balancers(Some(id));
        }
    }

    /// Spreads the Nodes over the load balancers. Returns whether one belongs elsewhere now.
    pub(crate) fn assign_nodes(&self, told: &mut Told) -> bool {
        let Some(nodes) = told.nodes.as_ref().filter(|_| self.settings.has_several_load_balancers()) else {
            return false;
        };
        let vm_set = |name: &str| nodes.get(name).and_then(|node| node.scale_set()).unwrap_or_default().to_owned();
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
