//! The pools that the NICs of Nodes belong to, where pools list NICs.
//!
//! ```text
//! Nodes, machines' NICs, load balancers ──memberships──▶ one want per NIC ──▶ Interfaces (an object per NIC)
//! ```
//!
//! The instances of a uniform scale set hold their NICs themselves, and the model of a scale set holds that of its next
//! instances: what is said of NICs here is true of all three ([`Holder`]). The model joins a pool like the instances, so
//! that a new instance is in it from the start, without a write. It leaves first: an instance made in between would join
//! again.
//!
//! A NIC has no wants of Services: which pools it belongs to follows from its Node and from the load balancers that are in
//! use. Its one requester is [`Membership`]. A NIC joins a pool once a read has shown the pool, and leaves the pools of a
//! load balancer whose last Service goes, for Azure may refuse to delete a load balancer with members.
//!
//! [`Machines`] is the seam to what a Node's machine is: it names the NICs of a machine and the set that it belongs to.

mod underway;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

pub use underway::Underway;

use lazuli_engine::object::{Object, Plan, Served, Write};
use lazuli_model::{
    ArmId,
    address::Family,
    json::{Provisioning, at, list, text},
};
use lazuli_quota::permit::Priority;
use lazuli_services::{
    ask::names,
    network::{
        Settings,
        backends::{BackendNode, BackendNodes, Selection},
        load_balancer::{LoadBalancer, most_that_leave},
        nic::{self, Holder, Nic},
        settings::LoadBalancerSku,
    },
};
use serde_json::Value;

use super::{Key, admitted::AdmittedNodes, objects::load_balancer_of};

/// Why a model is not written.
const INSTANCES_LAG: &str = "instances of the scale set are not in line with its model, and a write of the model would \
                             upgrade them";

/// The one requester of a NIC: the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Membership;

/// NICs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interfaces;

/// What is known beside a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// Whether instances of the scale set are not in line with its model, as its list of instances says.
    pub instances_lag: bool,
}

impl Object for Interfaces {
    type Requester = Membership;
    type Want = nic::Env;
    type Model = Nic;
    type Inputs = Surroundings;
    type Op = Vec<nic::Edit>;
    /// What the NIC cannot join.
    type Report = Vec<nic::Conflict>;
    type Related = Key;

    const CONDITIONAL: bool = true;

    fn plan(wants: &BTreeMap<Membership, nic::Env>, actual: Option<&Nic>, beside: &Surroundings) -> Plan<Self> {
        let (Some(want), Some(actual)) = (wants.get(&Membership), actual) else {
            // A NIC that is gone has left every pool.
            return Plan { write: None, served: wants.keys().map(|one| (*one, Served::Met(vec![]))).collect() };
        };
        let plan = nic::plan(actual, want);
        if !plan.edits.is_empty() && actual.upgrades_instances && beside.instances_lag {
            // Any write of the model would have Azure upgrade machines that the operator has not upgraded, perhaps on purpose.
            return Plan { write: None, served: [(Membership, Served::Waiting(INSTANCES_LAG.to_owned()))].into() };
        }
        let write = (!plan.edits.is_empty()).then(|| {
            let pools = plan.edits.iter().map(|edit| match edit {
                nic::Edit::Join { pool, .. } | nic::Edit::Leave { pool, .. } => pool,
            });
            let balancers: BTreeSet<ArmId> = pools.filter_map(load_balancer_of).collect();
            Write {
                priority: Priority::Attach,
                // A Node behind an address does not change it. The last one to leave is held by its own rule.
                replaces: false,
                is_partial: false,
                taints: balancers.into_iter().map(Key::LoadBalancer).collect(),
                op: plan.edits,
            }
        });
        let served = if write.is_some() { Served::Pending } else { Served::Met(plan.conflicts) };
        Plan { write, served: [(Membership, served)].into() }
    }

    fn is_updating(model: &Nic) -> bool {
        model.provisioning == Provisioning::Updating && !model.is_deleting
    }

    /// Nothing is given up with a membership that another could be given.
    fn removes(_: &nic::Env) -> bool {
        false
    }
}

/// What is known of the machines behind Nodes.
#[derive(Debug, Clone, Default)]
pub struct Machines {
    nics: BTreeMap<ArmId, Nic>,
    /// The NICs of a machine; the primary one is the first.
    of_machine: BTreeMap<ArmId, Vec<ArmId>>,
    /// The NICs that a machine itself names; the primary one is the first. They may be in any resource group.
    profiles: BTreeMap<ArmId, Vec<ArmId>>,
    /// The availability set of a machine, in its own spelling.
    sets: BTreeMap<ArmId, String>,
    /// The models of scale sets.
    models: BTreeMap<ArmId, Nic>,
    /// Scale sets with instances that are not in line with their model.
    lagging: BTreeSet<ArmId>,
}

impl Machines {
    /// Takes in what a read or list has shown of a NIC; `None` when it does not exist. Returns whether its pools differ.
    pub fn observed(&mut self, id: &ArmId, actual: Option<&Nic>) -> bool {
        if Holder::of(id) == Holder::Model {
            return match actual {
                Some(model) => self.models.insert(id.clone(), model.clone()).as_ref() != Some(model),
                None => self.models.remove(id).is_some(),
            };
        }
        let Some(nic) = actual else {
            let Some(before) = self.nics.remove(id) else { return false };
            if let Some(machine) = before.machine.as_ref().and_then(|machine| self.of_machine.get_mut(machine)) {
                machine.retain(|nic| nic != id);
            }
            return true;
        };
        if self.nics.get(id) == Some(nic) {
            return false;
        }
        if let Some(machine) = &nic.machine {
            let nics = self.of_machine.entry(machine.clone()).or_default();
            nics.retain(|other| other != id);
            nics.insert(if nic.is_primary { 0 } else { nics.len() }, id.clone());
        }
        self.nics.insert(id.clone(), nic.clone());
        true
    }

    /// Takes in what a list has shown of a machine: its availability set and the ids of its NICs.
    pub fn machine_observed(&mut self, machine: ArmId, body: &Value) {
        let set = text(body, &["properties", "availabilitySet", "id"]);
        let set = set.and_then(|set| set.rsplit('/').next()).unwrap_or_default();
        self.sets.insert(machine.clone(), set.to_owned());
        let nics = list(body, &["properties", "networkProfile", "networkInterfaces"]);
        let is_primary = |nic: &&Value| at(nic, &["properties", "primary"]).and_then(Value::as_bool) == Some(true);
        let (first, others): (Vec<&Value>, Vec<&Value>) = nics.iter().partition(is_primary);
        let ids = first.into_iter().chain(others).filter_map(|nic| text(nic, &["id"])?.parse().ok());
        self.profiles.insert(machine, ids.collect());
    }

    /// Takes in whether instances of a scale set lag behind its model. Returns whether that is new.
    pub fn lags(&mut self, set: &ArmId, lags: bool) -> bool {
        if lags { self.lagging.insert(set.clone()) } else { self.lagging.remove(set) }
    }

    /// What is known beside a NIC.
    pub fn beside(&self, id: &ArmId) -> Surroundings {
        Surroundings { instances_lag: self.lagging.contains(id) }
    }

    /// Whether a NIC of a machine is in one of these pools.
    pub fn is_member(&self, machine: &ArmId, pools: &[PoolOfNics]) -> bool {
        let mut nics = self.of_machine.get(machine).into_iter().flatten().filter_map(|id| self.nics.get(id));
        nics.any(|nic| pools.iter().any(|pool| nic.is_in(&pool.id)))
    }

    /// Whether the model of a scale set names a pool: Azure refuses to delete its load balancer then.
    pub fn is_in_model(&self, pool: &ArmId) -> bool {
        self.models.values().any(|model| model.is_in(pool))
    }

    /// A NIC as it was observed.
    pub fn nic(&self, id: &ArmId) -> Option<&Nic> {
        self.nics.get(id).or_else(|| self.models.get(id))
    }

    /// The NIC of a Node that its pools name: the one that its machine names as primary, else the one that says so.
    fn of(&self, node: &BackendNode) -> Option<&ArmId> {
        let machine = node.machine()?;
        let named = self.profiles.get(&machine).and_then(|nics| nics.first());
        named.filter(|nic| self.nics.contains_key(nic)).or_else(|| self.of_machine.get(&machine)?.first())
    }

    /// Whether the primary NIC of a machine is known. One that another NIC of the machine may be is not.
    fn knows_nic(&self, machine: &ArmId) -> bool {
        match self.profiles.get(machine).and_then(|nics| nics.first()) {
            Some(named) => self.nics.contains_key(named),
            None => {
                let mut nics = self.of_machine.get(machine).into_iter().flatten().filter_map(|id| self.nics.get(id));
                nics.any(|nic| nic.is_primary || Holder::of(machine) == Holder::Instance)
            }
        }
    }

    /// The scale set or availability set of a Node; empty where it is in none.
    pub fn set_of<'a>(&'a self, node: &'a BackendNode) -> &'a str {
        let set = || self.sets.get(&node.machine()?).map(String::as_str);
        node.scale_set().or_else(set).unwrap_or_default()
    }

    /// The sets of these Nodes, each once, in the order of the Nodes.
    pub fn sets<'n>(&self, nodes: impl Iterator<Item = &'n BackendNode>) -> Vec<String> {
        let mut sets: Vec<String> = Vec::new();
        for node in nodes {
            let set = self.set_of(node);
            if !set.is_empty() && !sets.iter().any(|there| there.eq_ignore_ascii_case(set)) {
                sets.push(set.to_owned());
            }
        }
        sets
    }

    /// What is to be read next of machines whose NIC or set is needed and not known, beside what this look has read.
    ///
    /// A list of the NICs in the group of the machines shows most NICs. The list of the machines names those of other groups,
    /// which are read by their ids. The provider id of an instance names its set.
    pub fn unknown(&self, nodes: &BackendNodes, selection: &Selection<'_>, needs: Needs, looked: &Unknown) -> Unknown {
        let mut unknown = Unknown::default();
        for (_, node) in selection.of(nodes) {
            let Some(machine) = node.machine() else { continue };
            let lacks_nic = needs.nics && !self.knows_nic(&machine);
            if Holder::of(&machine) == Holder::Instance {
                let set = machine.parent().filter(|set| lacks_nic && !looked.scale_sets.contains(set));
                unknown.scale_sets.extend(set);
                continue;
            }
            let group = (machine.subscription().to_lowercase(), machine.resource_group().to_lowercase());
            let named = self.profiles.get(&machine).and_then(|nics| nics.first());
            match named {
                Some(nic) if lacks_nic && !looked.nics.contains(nic) => _ = unknown.nics.insert(nic.clone()),
                None if lacks_nic && !looked.nic_groups.contains(&group) => {
                    _ = unknown.nic_groups.insert(group.clone())
                }
                _ if lacks_nic && !looked.machine_groups.contains(&group) => {
                    unknown.machine_groups.insert(group.clone());
                }
                _ => {}
            }
            if needs.sets && !self.sets.contains_key(&machine) && !looked.machine_groups.contains(&group) {
                unknown.machine_groups.insert(group);
            }
        }
        unknown
    }

    /// What is to be read next of the members of pools that their last Service leaves, likewise. They leave by the load
    /// balancer's own list, for their Nodes may be gone.
    pub fn unknown_members(&self, pools: &[PoolOfNics], looked: &Unknown) -> Unknown {
        let mut unknown = Unknown::default();
        for member in pools.iter().flat_map(|pool| &pool.leave).filter(|member| !self.nics.contains_key(member)) {
            if Holder::of(member) == Holder::Instance {
                unknown.scale_sets.extend(member.parent().filter(|set| !looked.scale_sets.contains(set)));
            } else if !looked.nics.contains(member) {
                unknown.nics.insert(member.clone());
            }
        }
        unknown
    }
}

/// What is to be known of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Their NICs, where pools list NICs.
    pub nics: bool,
    /// Their availability sets, where load balancers belong to sets.
    pub sets: bool,
}

/// What is to be read of machines, or has been. Resource groups are subscription and name in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unknown {
    /// Resource groups whose NICs are listed.
    pub nic_groups: BTreeSet<(String, String)>,
    /// Resource groups whose machines are listed.
    pub machine_groups: BTreeSet<(String, String)>,
    /// NICs that machines name, and that are in other groups, and NICs that are to leave a pool.
    pub nics: BTreeSet<ArmId>,
    /// Uniform scale sets whose instances are listed.
    pub scale_sets: BTreeSet<ArmId>,
}

impl Unknown {
    /// Adds what has been read.
    pub fn add(&mut self, read: Self) {
        self.nic_groups.extend(read.nic_groups);
        self.machine_groups.extend(read.machine_groups);
        self.nics.extend(read.nics);
        self.scale_sets.extend(read.scale_sets);
    }
}

/// The first Node, by name, that is an instance of a uniform scale set.
pub fn node_of_set<'n>(nodes: &'n BackendNodes, set: &ArmId) -> Option<&'n str> {
    nodes.iter().find(|(_, node)| scale_set(node).as_ref() == Some(set)).map(|(name, _)| name.as_str())
}

/// The scale set of a Node whose machine is an instance of a uniform one.
fn scale_set(node: &BackendNode) -> Option<ArmId> {
    node.machine().filter(|machine| Holder::of(machine) == Holder::Instance)?.parent()
}

/// The pools that each NIC should be in. A load balancer that all its Services are leaving loses its members. Where a rule
/// without floating IP sends to a pool, a NIC joins it once the security group admits its Node.
///
/// The model of a scale set should be in the pools of the Nodes that are its instances. Of a set without Nodes, as one that
/// is scaled to none, it stays where it is while a Service is served there.
///
/// Of the NICs whose machine is no backend any more, at most a tenth of a pool and no fewer than ten leave at a time, and
/// never the last member. The others are told to stay where they are until those have left.
pub fn memberships(
    settings: &Settings,
    nodes: &BackendNodes,
    selection: &Selection<'_>,
    machines: &Machines,
    admitted: &AdmittedNodes,
    pools: &[PoolOfNics],
) -> BTreeMap<ArmId, nic::Env> {
    let managed: BTreeSet<ArmId> = pools.iter().map(|pool| pool.id.clone()).collect();
    let belongs = |pool: &PoolOfNics, node: &BackendNode| {
        settings.sku != LoadBalancerSku::Basic || {
            let set = machines.set_of(node);
            let stem = if set.eq_ignore_ascii_case(&settings.primary_vm_set) { pool.main_stem.as_str() } else { set };
            stem.eq_ignore_ascii_case(&pool.stem)
        }
    };
    let waits = nodes_that_wait(nodes, selection, machines, admitted, pools);
    let mut envs: BTreeMap<ArmId, nic::Env> = BTreeMap::new();
    for (name, node) in selection.of(nodes) {
        let Some(nic) = machines.of(node) else { continue };
        let env =
            envs.entry(nic.clone()).or_insert_with(|| nic::Env { managed: managed.clone(), ..Default::default() });
        let may_join = |pool: &PoolOfNics| !waits.contains(&(&pool.id, name));
        for pool in pools.iter().filter(|pool| pool.is_in_use && belongs(pool, node) && may_join(pool)) {
            env.wanted.entry(pool.family).or_default().insert(pool.id.clone());
        }
    }
    let models = of_models(nodes, machines, &envs, pools, &managed);
    let mut stay: BTreeMap<ArmId, BTreeMap<Family, BTreeSet<ArmId>>> = BTreeMap::new();
    for pool in pools.iter().filter(|pool| pool.is_in_use) {
        let wants = |id: &ArmId| {
            envs.get(id).and_then(|env| env.wanted.get(&pool.family)).is_some_and(|wanted| wanted.contains(&pool.id))
        };
        let there: Vec<&ArmId> =
            machines.nics.iter().filter(|(_, nic)| nic.is_in(&pool.id)).map(|(id, _)| id).collect();
        let (stays, leaves): (Vec<&ArmId>, Vec<&ArmId>) = there.iter().partition(|id| wants(id));
        // A list without a Node is more likely a mistake than a cluster.
        let mut most = if nodes.is_empty() { 0 } else { most_that_leave(there.len()).min(leaves.len()) };
        if stays.is_empty() && most == leaves.len() {
            // The last member leaves when another has joined.
            most = most.saturating_sub(1);
        }
        for id in &leaves[most..] {
            let kept = stay.entry((*id).clone()).or_default().entry(pool.family).or_default();
            kept.insert(pool.id.clone());
        }
    }
    // An instance leaves when the model of its set has left.
    for (id, nic) in machines.nics.iter().filter(|(id, _)| Holder::of(id) == Holder::Instance) {
        let Some(set) = id.parent() else { continue };
        let Some((model, env)) = machines.models.get(&set).zip(models.get(&set)) else { continue };
        for pool in pools {
            let wants = env.wanted.get(&pool.family).is_some_and(|wanted| wanted.contains(&pool.id));
            if !wants && model.is_in(&pool.id) && nic.is_in(&pool.id) {
                let kept = stay.entry(id.clone()).or_default().entry(pool.family).or_default();
                kept.insert(pool.id.clone());
            }
        }
    }
    for (id, nic) in &machines.nics {
        if !envs.contains_key(id) && managed.iter().any(|pool| nic.is_in(pool)) {
            envs.insert(id.clone(), nic::Env { wanted: BTreeMap::new(), managed: managed.clone() });
        }
    }
    for (id, kept) in stay {
        let env = envs.entry(id).or_insert_with(|| nic::Env { managed: managed.clone(), ..Default::default() });
        for (family, pools) in kept {
            env.wanted.entry(family).or_default().extend(pools);
        }
    }
    envs.extend(models);
    envs
}

/// The Nodes whose NICs may not join a pool yet: a rule without floating IP would send to them, and the security group does
/// not admit them.
fn nodes_that_wait<'a>(
    nodes: &'a BackendNodes,
    selection: &Selection<'_>,
    machines: &Machines,
    admitted: &AdmittedNodes,
    pools: &'a [PoolOfNics],
) -> BTreeSet<(&'a ArmId, &'a str)> {
    let mut waits = BTreeSet::new();
    for pool in pools.iter().filter(|pool| pool.sends_to_nodes) {
        let is_member = |node: &BackendNode| {
            machines.of(node).and_then(|nic| machines.nics.get(nic)).is_some_and(|nic| nic.is_in(&pool.id))
        };
        let there = selection.of(nodes).filter(|(_, node)| is_member(node));
        let members: BTreeSet<IpAddr> = there.filter_map(|(_, node)| node.address(pool.family)).collect();
        let may_join = |address| admitted.may_join(address, &members);
        let wait = selection.of(nodes).filter(|(_, node)| !node.address(pool.family).is_none_or(may_join));
        waits.extend(wait.map(|(name, _)| (&pool.id, name)));
    }
    waits
}

/// The pools that each model of a scale set should be in. `envs` holds those of the NICs of Nodes.
fn of_models(
    nodes: &BackendNodes,
    machines: &Machines,
    envs: &BTreeMap<ArmId, nic::Env>,
    pools: &[PoolOfNics],
    managed: &BTreeSet<ArmId>,
) -> BTreeMap<ArmId, nic::Env> {
    if machines.models.is_empty() {
        return BTreeMap::new();
    }
    let mut wanted: BTreeMap<ArmId, BTreeMap<Family, BTreeSet<ArmId>>> = BTreeMap::new();
    for node in nodes.values() {
        let Some(set) = scale_set(node) else { continue };
        let wanted = wanted.entry(set).or_default();
        let env = machines.of(node).and_then(|nic| envs.get(nic));
        for (family, pools) in env.iter().flat_map(|env| &env.wanted) {
            wanted.entry(*family).or_default().extend(pools.iter().cloned());
        }
    }
    let of_model = |(set, model): (&ArmId, &Nic)| {
        let wanted = wanted.remove(set).unwrap_or_else(|| {
            let mut stay: BTreeMap<Family, BTreeSet<ArmId>> = BTreeMap::new();
            for pool in pools.iter().filter(|pool| pool.is_in_use && model.is_in(&pool.id)) {
                stay.entry(pool.family).or_default().insert(pool.id.clone());
            }
            stay
        });
        let concerns = wanted.values().any(|pools| !pools.is_empty()) || managed.iter().any(|pool| model.is_in(pool));
        concerns.then(|| (set.clone(), nic::Env { wanted, managed: managed.clone() }))
    };
    machines.models.iter().filter_map(of_model).collect()
}

/// The load balancers with a pool that has no member, though a NIC is told to join it.
pub fn without_members(
    pools: &[PoolOfNics],
    machines: &Machines,
    wants: &BTreeMap<ArmId, nic::Env>,
) -> BTreeSet<ArmId> {
    let has_member = |pool: &ArmId| {
        let mut configurations = machines.nics.values().flat_map(|nic| &nic.configurations);
        configurations.any(|one| one.pools.contains(pool))
    };
    let is_wanted = |pool: &PoolOfNics| {
        wants.values().filter_map(|want| want.wanted.get(&pool.family)).any(|wanted| wanted.contains(&pool.id))
    };
    let empty = pools.iter().filter(|pool| pool.is_in_use && is_wanted(pool) && !has_member(&pool.id));
    empty.map(|pool| pool.balancer.clone()).collect()
}

/// A pool whose members are NICs, of a load balancer of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolOfNics {
    /// The pool.
    pub id: ArmId,
    /// Its load balancer.
    pub balancer: ArmId,
    /// The family of its members.
    pub family: Family,
    /// The stem of its load balancer's name.
    pub stem: String,
    /// The stem of the load balancers of the primary set.
    pub main_stem: String,
    /// Whether a Service is served through its load balancer.
    pub is_in_use: bool,
    /// Whether a rule without floating IP sends to its members by their own addresses.
    pub sends_to_nodes: bool,
    /// Of a pool that is in use no more: the NICs, and instances of scale sets, that its load balancer lists as members.
    pub leave: BTreeSet<ArmId>,
}

impl PoolOfNics {
    /// A pool of a load balancer.
    pub fn new(balancer: &ArmId, family: Family, settings: &Settings) -> Self {
        Self {
            id: LoadBalancer::pool_id(balancer, &settings.pool_name(family)),
            balancer: balancer.clone(),
            family,
            stem: names::load_balancer_stem(balancer.name()).to_owned(),
            main_stem: settings.load_balancer_name.clone().unwrap_or_else(|| settings.cluster_name.clone()),
            is_in_use: false,
            sends_to_nodes: false,
            leave: BTreeSet::new(),
        }
    }
}

/// What a NIC is to be told: its want differs from the one before, and a read shows that it is not met or a want is told
/// already.
pub fn is_news(before: Option<&nic::Env>, now: &nic::Env, actual: Option<&Nic>) -> bool {
    match before {
        Some(before) => before != now,
        None => actual.is_none_or(|actual| nic::plan(actual, now) != nic::NicPlan::default()),
    }
}

#[cfg(test)]
mod tests;
