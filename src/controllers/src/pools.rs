//! What load balancers are observed to hold, and the members of their pools: addresses and NICs.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_plan::{
    balancing::{
        balancers,
        interfaces::{self, Interfaces, Membership},
    },
    engine::{
        Acceptance,
        object::{EnvChange, Event},
    },
    model::ArmId,
    network::{
        load_balancer::{LoadBalancer, PoolMembers},
        nic::{self, Nic},
        settings::{LoadBalancerConfiguration, LoadBalancerSku, PoolKind},
    },
    service::{names::BaseName, selector::LabelSelector},
};

use crate::informed::{Informed, Told};

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
        let (replan, retry, nics) = {
            let told = &mut *self.told();
            let consequences = told.balancers.observed(id, actual, &self.settings);
            let moved = consequences.placement && self.assign_nodes(told);
            let changed = consequences.members || consequences.placement;
            let replan = (consequences.members && self.settings.has_several_load_balancers()) || moved;
            (replan, consequences.placement && !told.unplaced.is_empty(), changed)
        };
        if retry {
            self.retry.notify_one();
        }
        if replan {
            self.replan_load_balancers(Some(id));
        }
        if nics {
            self.update_nics();
        }
    }

    /// A read has shown this of a NIC, or that it does not exist.
    pub(crate) fn nic_observed(&self, id: &ArmId, actual: Option<&Nic>) {
        let differs = self.told().machines.observed(id, actual);
        if differs {
            self.update_nics();
        }
    }

    /// The availability sets of the Nodes that are backends.
    pub(crate) fn vm_sets(&self, told: &Told) -> Vec<String> {
        let nodes =
            told.nodes.iter().flat_map(|nodes| self.selection().of(nodes).map(|(_, node)| node).collect::<Vec<_>>());
        told.machines.sets(nodes)
    }

    /// Whether the sets of machines decide about something.
    pub(crate) fn needs_sets(&self) -> bool {
        self.settings.sku == LoadBalancerSku::Basic || self.settings.has_several_load_balancers()
    }

    /// The resource groups of machines that are to be looked for.
    pub(crate) fn unknown_machines(&self) -> BTreeSet<(String, String)> {
        let told = self.told();
        let lists_nics = self.settings.pool_kind == PoolKind::Nic || told.balancers.has_nic_pools();
        let needs_sets = self.needs_sets();
        match &told.nodes {
            Some(nodes) if lists_nics || needs_sets => told.machines.unknown(nodes, &self.selection(), needs_sets),
            _ => BTreeSet::new(),
        }
    }

    /// Tells each NIC in which pools it should be, where that differs from what it was told or is.
    pub(crate) fn update_nics(&self) {
        let (Some(workers), true) = (self.workers.get(), self.shared().synced) else { return };
        let mut events: Vec<(ArmId, Event<Interfaces>)> = Vec::new();
        let mut left: BTreeSet<ArmId> = BTreeSet::new();
        let have_joined;
        {
            let told = &mut *self.told();
            let Some(nodes) = &told.nodes else { return };
            if !told.balancers.has_nic_pools() && told.nic_wants.is_empty() {
                return;
            }
            let services = told.services.iter().flat_map(BTreeMap::values).map(|service| &service.object);
            let going = services.filter(|object| object.is_deleting || !object.is_load_balancer);
            let going: BTreeSet<String> =
                going.map(|object| BaseName::of(&object.key).as_str().to_lowercase()).collect();
            let pools = told.balancers.nic_pools(&self.settings, &going);
            left.extend(pools.iter().filter(|pool| !pool.is_in_use).map(|pool| pool.balancer.clone()));
            let mut wants = interfaces::memberships(
                &self.settings,
                nodes,
                &self.selection(),
                &told.machines,
                &told.balancers,
                &going,
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
            let gone = told.nic_wants.keys().filter(|id| !wants.contains_key(id)).cloned();
            events.extend(gone.map(|id| (id, Event::Withdrawn(Membership))));
            told.nic_wants.retain(|id, _| wants.contains_key(id));
            for (id, want) in wants {
                let before = told.nic_wants.get(&id);
                if !interfaces::is_news(before.map(|(_, want)| want), &want, told.machines.nic(&id)) {
                    continue;
                }
                let generation = before.map_or(0, |(generation, _)| *generation) + 1;
                told.nic_wants.insert(id.clone(), (generation, want.clone()));
                let acceptance = Acceptance::Given;
                events.push((id, Event::Requested { from: Membership, generation, want, acceptance }));
            }
        }
        for (id, event) in events {
            workers.nics.send(&id, event.into());
        }
        if have_joined {
            // Services may have a status now.
            workers.services.wake_all();
        }
        // One whose last Service goes may be deleted once its members have left.
        for id in left {
            workers.load_balancers.send(&id, Event::EnvChanged(EnvChange::Replan).into());
        }
    }

    /// Spreads the Nodes over the load balancers. Returns whether one belongs elsewhere now.
    pub(crate) fn assign_nodes(&self, told: &mut Told) -> bool {
        let Some(nodes) = told.nodes.as_ref().filter(|_| self.settings.has_several_load_balancers()) else {
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
