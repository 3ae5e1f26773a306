//! The load balancers that Services and Nodes are spread over: what was observed of them, what is placed on them and not on
//! Azure yet, and which members their pools get.
//!
//! Only names, addresses and counts are kept of an observation, so that the memory is bounded by what Azure allows on a load
//! balancer.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use lazuli_model::{ArmId, ServiceKey, address::Family};
use lazuli_services::{
    ask::{Ask, SecurityProtocol, names},
    network::{
        Refusal, RefusalReason, Settings,
        backends::{BackendNodes, Selection},
        load_balancer::{
            Frontend, Gone, LoadBalancer, Pool, PoolMembers,
            placement::{Balancer, NodePlace, Surroundings, place, place_nodes},
        },
        public_ip::PublicIp,
        security_group::Users,
        settings::PoolKind,
    },
    service::ServiceObject,
};

use super::{admitted::AdmittedNodes, interfaces::PoolOfNics, report::admitted_port};

/// What is known of all load balancers of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Balancers {
    seen: BTreeMap<ArmId, Seen>,
    placed: BTreeMap<ServiceKey, Placed>,
    /// The configuration that each Node belongs to, where there are several.
    nodes: BTreeMap<String, String>,
    /// Public IPs that no Service has any more and that stay, or stayed, with the last frontend of a load balancer. Each is
    /// kept until it is read as gone, or as that of a user or of another cluster.
    released: BTreeSet<ArmId>,
}

/// What is known of one load balancer.
#[derive(Debug, Clone)]
struct Seen {
    /// Frontends and rules: those that were observed, and a frontend for each Service that is placed on it.
    actual: LoadBalancer,
    /// The frontend that no Service has any more: it is not among those above.
    released: Option<Frontend>,
    /// Rules of Services that are placed on it and not on Azure yet.
    planned_rules: usize,
    /// The addresses of its pools, by the name of the pool in lower case.
    members: BTreeMap<String, BTreeSet<IpAddr>>,
    /// The pools whose members are NICs, in lower case.
    of_nics: BTreeSet<String>,
    /// The NICs, and instances of scale sets, that its pools list as members.
    nics: BTreeSet<ArmId>,
    /// The Services whose rules use its frontends.
    users: Arc<Users>,
}

/// What the Services that leave a load balancer give up there, by their base name in lower case.
pub type Leaving = BTreeMap<ArmId, BTreeMap<String, Gone>>;

/// Where a Service was placed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Placed {
    on: ArmId,
    base: names::BaseName,
    rules: usize,
}

/// What a further observation of a load balancer changes for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Consequences {
    /// A Service that had no place may have one now, and Nodes may belong elsewhere.
    pub placement: bool,
    /// Pools may have other members.
    pub members: bool,
}

impl Seen {
    fn new(id: &ArmId, settings: &Settings) -> Self {
        let actual = LoadBalancer {
            id: id.clone(),
            sku: settings.sku,
            tags: BTreeMap::new(),
            frontends: vec![],
            rules: vec![],
            probes: vec![],
            pools: vec![],
            outbound_rules: vec![],
            nat: vec![],
            provisioning: Default::default(),
        };
        let (members, of_nics, nics, users) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new(), Arc::default());
        Self { actual, released: None, planned_rules: 0, members, of_nics, nics, users }
    }

    fn is_in_use(&self) -> bool {
        !self.actual.frontends.is_empty()
    }

    fn sends_to_nodes(&self) -> bool {
        self.actual.rules.iter().any(|rule| !rule.floating_ip)
    }
}

/// A frontend that stands for a Service that is placed on a load balancer.
fn planned(base: &names::BaseName) -> Frontend {
    Frontend {
        name: base.as_str().to_owned(),
        public_ip: None,
        subnet: None,
        private_address: None,
        is_static: false,
        family: Family::V4,
        zones: vec![],
    }
}

fn is_internal(id: &ArmId) -> bool {
    names::load_balancer_stem(id.name()) != id.name()
}

fn members_of(pools: &[Pool]) -> BTreeMap<String, BTreeSet<IpAddr>> {
    let addresses = |pool: &Pool| pool.addresses.iter().filter_map(|member| member.address).collect();
    pools.iter().map(|pool| (pool.name.to_lowercase(), addresses(pool))).collect()
}

impl Balancers {
    /// Takes in what a read has shown of a load balancer; `None` when it does not exist.
    pub fn observed(&mut self, id: &ArmId, actual: Option<&LoadBalancer>, settings: &Settings) -> Consequences {
        let before = self.seen.remove(id);
        let mut seen = Seen::new(id, settings);
        let mut bases: BTreeSet<String> = BTreeSet::new();
        if let Some(actual) = actual {
            let released = actual.released_frontend();
            self.released.extend(released.and_then(|frontend| frontend.public_ip.clone()));
            let in_service = actual.frontends.iter().filter(|frontend| Some(*frontend) != released);
            seen.actual.frontends = in_service.cloned().collect();
            seen.released = released.cloned();
            seen.actual.rules.clone_from(&actual.rules);
            seen.members = members_of(&actual.pools);
            seen.users = Arc::new(Users::of(actual));
            // A pool that exists keeps its kind; one without members gets the configured one.
            let has_addresses = |pool: &Pool| pool.addresses.iter().any(|member| member.address.is_some());
            let lists_nics =
                |pool: &&Pool| pool.has_nics() || (settings.pool_kind == PoolKind::Nic && !has_addresses(pool));
            seen.of_nics = actual.pools.iter().filter(lists_nics).map(|pool| pool.name.to_lowercase()).collect();
            seen.nics = actual.pools.iter().flat_map(|pool| &pool.nics).cloned().collect();
            let all = seen.actual.frontends.iter().map(|one| &one.name).chain(actual.rules.iter().map(|one| &one.name));
            bases.extend(all.filter_map(|name| names::base_in(name)).map(str::to_lowercase));
        }
        let missing = |placed: &&Placed| placed.on == *id && !bases.contains(&placed.base.as_str().to_lowercase());
        for placed in self.placed.values().filter(missing) {
            seen.planned_rules += placed.rules;
            seen.actual.frontends.push(planned(&placed.base));
        }
        let counts = |seen: &Seen| (seen.actual.rules.len() + seen.planned_rules, seen.is_in_use());
        let consequences = Consequences {
            placement: before.as_ref().map(counts).unwrap_or_default() != counts(&seen),
            members: before.as_ref().map(|before| (&before.members, &before.of_nics, &before.nics))
                != Some((&seen.members, &seen.of_nics, &seen.nics)),
        };
        self.seen.insert(id.clone(), seen);
        consequences
    }

    /// A read or a list has shown this of a public IP, or that it, or its resource group, does not exist.
    pub fn public_ip_observed(&mut self, id: &ArmId, actual: Option<&PublicIp>, settings: &Settings) {
        match actual {
            // Clusters that share a resource group may have Services of one name.
            Some(ip) if ip.is_users() || ip.is_of_another_cluster(&settings.cluster_name) => {
                _ = self.released.remove(id)
            }
            Some(ip) if ip.is_released() => _ = self.released.insert(id.clone()),
            Some(_) => {}
            None => _ = self.released.remove(id),
        }
    }

    /// A list has shown that a resource group does not exist, and so nothing that was in it.
    pub fn group_is_gone(&mut self, group: &str) {
        self.released.retain(|id| !id.resource_group().eq_ignore_ascii_case(group));
    }

    /// The public IPs that no Service has any more: each Service asks for their end.
    pub fn released_public_ips(&self) -> &BTreeSet<ArmId> {
        &self.released
    }

    /// Chooses the load balancer of a Service, and counts its rules there from now on. `public_ips` are those that it uses.
    /// Returns also whether that load balancer begins to be used, so that Nodes belong to it.
    ///
    /// # Errors
    /// When none fits; the sentence is for the owner of the Service.
    pub fn place(
        &mut self,
        ask: &Ask,
        object: &ServiceObject,
        settings: &Settings,
        vm_sets: &[String],
        public_ips: &BTreeMap<Family, ArmId>,
    ) -> Result<(ArmId, bool), Refusal> {
        let balancers: Vec<Balancer<'_>> = self
            .seen
            .values()
            .map(|seen| Balancer {
                name: seen.actual.id.name(),
                actual: seen.is_in_use().then_some(&seen.actual),
                planned_rules: seen.planned_rules,
            })
            .collect();
        let pinned = self.seen.values().filter(|_| ask.placement.pins_address);
        let user = pinned.into_iter().find_map(|seen| {
            let uses =
                |one: &&Frontend| one.public_ip.as_ref().is_some_and(|ip| public_ips.values().any(|id| id == ip));
            let frontend = seen.actual.frontends.iter().chain(&seen.released).find(uses)?;
            Some(LoadBalancer::frontend_id(&seen.actual.id, &frontend.name))
        });
        let around = Surroundings { balancers: &balancers, vm_sets, public_ip_user: user.as_ref() };
        let name = place(ask, object, settings, &around)?;
        let id = settings
            .load_balancer_id(&name)
            .map_err(|error| Refusal::new(RefusalReason::NoPlacement, error.to_string()))?;
        let rules = ask.families.iter().map(|family| family.rules.len()).sum();
        let is_in_use = |balancers: &Self| balancers.seen.get(&id).is_some_and(Seen::is_in_use);
        let was_in_use = is_in_use(self);
        self.note(&ask.service, Placed { on: id.clone(), base: ask.base.clone(), rules }, settings);
        let begins = !was_in_use && is_in_use(self);
        Ok((id, begins))
    }

    fn note(&mut self, service: &ServiceKey, placed: Placed, settings: &Settings) {
        if self.placed.get(service) == Some(&placed) {
            return;
        }
        self.forget(service);
        let seen = self.seen.entry(placed.on.clone()).or_insert_with_key(|id| Seen::new(id, settings));
        let is_there = seen.actual.frontends.iter().any(|one| placed.base.owns(&one.name))
            || seen.actual.rules.iter().any(|one| placed.base.owns(&one.name));
        if !is_there {
            seen.planned_rules += placed.rules;
            seen.actual.frontends.push(planned(&placed.base));
        }
        self.placed.insert(service.clone(), placed);
    }

    /// Forgets where a Service was placed. What was observed of it stays until the next observation.
    pub fn forget(&mut self, service: &ServiceKey) {
        let Some(placed) = self.placed.remove(service) else { return };
        let Some(seen) = self.seen.get_mut(&placed.on) else { return };
        let planned = planned(&placed.base);
        if let Some(at) = seen.actual.frontends.iter().position(|one| *one == planned) {
            seen.actual.frontends.remove(at);
            seen.planned_rules = seen.planned_rules.saturating_sub(placed.rules);
        }
    }

    /// The load balancer that a Service was placed on.
    pub fn place_of(&self, service: &ServiceKey) -> Option<&ArmId> {
        self.placed.get(service).map(|placed| &placed.on)
    }

    /// Spreads the Nodes over the configured load balancers that are in use. Returns whether one belongs elsewhere now.
    pub fn assign(
        &mut self,
        nodes: &BackendNodes,
        selection: &Selection<'_>,
        settings: &Settings,
        vm_set: impl Fn(&str) -> String,
    ) -> bool {
        let in_use: BTreeSet<String> = self
            .seen
            .values()
            .filter(|seen| seen.is_in_use())
            .map(|seen| names::load_balancer_stem(seen.actual.id.name()).to_owned())
            .collect();
        let places: Vec<NodePlace> = selection
            .of(nodes)
            .map(|(name, node)| NodePlace {
                name: name.to_owned(),
                vm_set: vm_set(name),
                labels: node.labels.clone(),
                current: self.nodes.get(name).cloned().or_else(|| self.stem_with(&node.addresses, settings)),
            })
            .collect();
        let after: BTreeMap<String, String> = place_nodes(&places, settings, &in_use)
            .nodes
            .into_iter()
            .flat_map(|(stem, nodes)| nodes.into_iter().map(move |node| (node, stem.clone())))
            .collect();
        let differs = after != self.nodes;
        self.nodes = after;
        differs
    }

    /// The configuration whose pool of all Nodes has one of these addresses.
    fn stem_with(&self, addresses: &[IpAddr], settings: &Settings) -> Option<String> {
        let pools = [Family::V4, Family::V6].map(|family| settings.pool_name(family).to_lowercase());
        let has = |seen: &&Seen| {
            pools
                .iter()
                .filter_map(|pool| seen.members.get(pool))
                .any(|members| addresses.iter().any(|address| members.contains(address)))
        };
        let seen = self.seen.values().find(has)?;
        Some(names::load_balancer_stem(seen.actual.id.name()).to_owned())
    }

    /// The ports of nodes that rules without floating IP send to, by the base name of their Service in lower case.
    pub fn node_ports(&self) -> BTreeMap<String, BTreeSet<(SecurityProtocol, u16)>> {
        let mut ports: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
        let rules = self.seen.values().flat_map(|seen| &seen.actual.rules).filter(|rule| !rule.floating_ip);
        for (base, rule) in rules.filter_map(|rule| Some((names::base_in(&rule.name)?, rule))) {
            ports.entry(base.to_lowercase()).or_default().insert(admitted_port(rule));
        }
        ports
    }

    /// Which Services' rules use the frontends of each load balancer.
    pub fn users(&self) -> Vec<Arc<Users>> {
        self.seen.values().map(|seen| Arc::clone(&seen.users)).collect()
    }

    /// Whether an address is in a pool of a load balancer.
    pub fn has_member(&self, address: IpAddr) -> bool {
        self.seen.values().flat_map(|seen| seen.members.values()).any(|members| members.contains(&address))
    }

    /// Whether a rule without floating IP sends to the nodes by their own addresses.
    pub fn sends_to_nodes(&self) -> bool {
        self.seen.values().any(Seen::sends_to_nodes)
    }

    /// Leaves out of the members of a pool the nodes that a rule without floating IP would send to before they are admitted.
    fn that_may_join(
        &self,
        id: &ArmId,
        pool: &str,
        wanted: BTreeMap<IpAddr, String>,
        admitted: &AdmittedNodes,
    ) -> BTreeMap<IpAddr, String> {
        let Some(seen) = self.seen.get(id).filter(|seen| seen.sends_to_nodes()) else { return wanted };
        let Some(members) = seen.members.get(&pool.to_lowercase()) else { return wanted };
        wanted.into_iter().filter(|(address, _)| admitted.may_join(*address, members)).collect()
    }

    /// The pools of all Nodes whose members are NICs, and whether a Service is served through each.
    pub fn nic_pools(&self, settings: &Settings, leaving: &Leaving) -> Vec<PoolOfNics> {
        let mut pools = Vec::new();
        for (id, seen) in &self.seen {
            if settings.is_preconfigured(id) {
                continue;
            }
            let none = BTreeMap::new();
            let leave = leaving.get(id).unwrap_or(&none);
            let is_in_use = seen.actual.frontends.iter().any(|frontend| !self.goes(id, seen, frontend, leave));
            let sends_to_nodes = seen.sends_to_nodes();
            let leave = || if is_in_use { BTreeSet::new() } else { seen.nics.clone() };
            for family in [Family::V4, Family::V6] {
                if seen.of_nics.contains(&settings.pool_name(family).to_lowercase()) {
                    let pool = PoolOfNics::new(id, family, settings);
                    pools.push(PoolOfNics { is_in_use, sends_to_nodes, leave: leave(), ..pool });
                }
            }
        }
        pools
    }

    /// Whether a frontend goes with the Services that leave: with those whose rules are at it, for another Service may use
    /// the frontend of one that is deleted. Where it has no rule it goes with its own, or with one that gives up its address.
    fn goes(&self, id: &ArmId, seen: &Seen, frontend: &Frontend, leave: &BTreeMap<String, Gone>) -> bool {
        let leaves = |base: &str| leave.contains_key(&base.to_lowercase());
        let at = LoadBalancer::frontend_id(id, &frontend.name);
        let mut rules = seen.actual.rules.iter().filter(|rule| rule.frontend.as_ref() == Some(&at)).peekable();
        let has_rules = rules.peek().is_some();
        let stays =
            |placed: &Placed| placed.on == *id && placed.base.owns(&frontend.name) && !leaves(placed.base.as_str());
        rules.all(|rule| names::base_in(&rule.name).is_some_and(leaves))
            && !self.placed.values().any(stays)
            && (has_rules
                || names::base_in(&frontend.name).is_some_and(leaves)
                || leave.values().any(|gone| gone.gives_up(frontend)))
    }

    /// Whether a pool has NICs as members.
    pub fn has_nic_pools(&self) -> bool {
        self.seen.values().any(|seen| !seen.of_nics.is_empty())
    }

    /// The members of the pool of all Nodes of a load balancer, where there are several. A Node that moves between two leaves
    /// the pool of one before it joins that of the other.
    pub fn members(&self, id: &ArmId, pool: &str, all: BTreeMap<IpAddr, String>) -> BTreeMap<IpAddr, String> {
        let stem = names::load_balancer_stem(id.name());
        let pool = pool.to_lowercase();
        let belongs = |node: &String| self.nodes.get(node).is_some_and(|on| on.eq_ignore_ascii_case(stem));
        let is_elsewhere = |address: &IpAddr| {
            let others = self.seen.values().filter(|seen| seen.actual.id != *id);
            let mut others = others.filter(|seen| is_internal(&seen.actual.id) == is_internal(id));
            others.any(|seen| seen.members.get(&pool).is_some_and(|members| members.contains(address)))
        };
        all.into_iter().filter(|(address, node)| belongs(node) && !is_elsewhere(address)).collect()
    }

    /// The members of a pool whose Service's endpoints are on these Nodes. Members are added before others leave, so that
    /// the Service is served all the time.
    pub fn local_members(&self, id: &ArmId, pool: &str, wanted: BTreeMap<IpAddr, String>) -> BTreeMap<IpAddr, String> {
        let there = self.seen.get(id).and_then(|seen| seen.members.get(&pool.to_lowercase()));
        let Some(there) = there else { return wanted };
        if wanted.keys().all(|address| there.contains(address)) {
            return wanted;
        }
        let stay = there.iter().filter(|address| !wanted.contains_key(address));
        let stay: Vec<(IpAddr, String)> = stay.map(|address| (*address, address.to_string())).collect();
        wanted.into_iter().chain(stay).collect()
    }
}

/// The members of the pools of one load balancer.
///
/// `local` are the Services that are placed on it and have pools of their own, each with the Nodes of its endpoints. The pool
/// of one whose endpoints are not known stays as it is.
pub fn pools<'a>(
    id: &ArmId,
    settings: &Settings,
    nodes: &BackendNodes,
    selection: &Selection<'_>,
    balancers: &Balancers,
    admitted: &AdmittedNodes,
    local: impl Iterator<Item = (&'a ServiceKey, Option<BTreeSet<String>>)>,
) -> BTreeMap<String, PoolMembers> {
    let Ok(vnet) = settings.vnet_id() else { return BTreeMap::new() };
    let kind = settings.pool_kind;
    // The operator fills them: a name without members changes nothing.
    let is_preconfigured = settings.is_preconfigured(id);
    let several = settings.has_several_load_balancers();
    let of_family = [Family::V4, Family::V6].map(|family| {
        let lists = kind == PoolKind::NodeIp && !is_preconfigured;
        (family, if lists { selection.addresses(nodes, family) } else { BTreeMap::new() })
    });
    let mut pools = BTreeMap::new();
    for (family, all) in &of_family {
        let name = settings.pool_name(*family);
        let addresses = if several { balancers.members(id, &name, all.clone()) } else { all.clone() };
        let addresses = balancers.that_may_join(id, &name, addresses, admitted);
        // A list without Nodes may be a mistake of what answers: no pool is emptied by it.
        let may_be_empty = several && !is_preconfigured && kind == PoolKind::NodeIp && !nodes.is_empty();
        pools.insert(name, PoolMembers { kind, vnet: vnet.clone(), addresses, may_be_empty, keeps: false });
    }
    if !several || is_preconfigured || kind != PoolKind::NodeIp {
        return pools;
    }
    for (service, on) in local {
        for (family, all) in &of_family {
            let name = names::local_pool(service, *family);
            let Some(on) = &on else {
                let addresses = BTreeMap::new();
                pools.insert(
                    name,
                    PoolMembers { kind, vnet: vnet.clone(), addresses, may_be_empty: false, keeps: false },
                );
                continue;
            };
            let own = all.iter().filter(|(_, node)| on.contains(*node));
            let wanted = own.map(|(address, node)| (*address, node.clone())).collect();
            let addresses = balancers.local_members(id, &name, wanted);
            let addresses = balancers.that_may_join(id, &name, addresses, admitted);
            pools.insert(
                name,
                PoolMembers { kind, vnet: vnet.clone(), addresses, may_be_empty: !nodes.is_empty(), keeps: false },
            );
        }
    }
    pools
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_that_the_operator_fills_have_no_members_of_ours() {
        use lazuli_services::network::{backends::BackendNode, settings::PreconfiguredPools};
        let node = BackendNode {
            provider_id: Some("azure:///n".to_owned()),
            addresses: vec!["10.0.0.4".parse().unwrap()],
            ..BackendNode::default()
        };
        let nodes: BackendNodes = [("node".to_owned(), node)].into();
        let selection = Selection { resource_group: "group", leaves_out_control_plane: true };
        let count = |preconfigured_pools, name: &str| {
            let settings = Settings {
                preconfigured_pools,
                pool_kind: PoolKind::NodeIp,
                ..lazuli_services::service::fixtures::settings()
            };
            let id = settings.load_balancer_id(name).unwrap();
            let none = (Balancers::default(), AdmittedNodes::default());
            let pools = pools(&id, &settings, &nodes, &selection, &none.0, &none.1, std::iter::empty());
            let members = &pools[&settings.pool_name(Family::V4)];
            assert!(!members.may_be_empty);
            members.addresses.len()
        };
        assert_eq!(count(PreconfiguredPools::None, "kubernetes"), 1);
        assert_eq!(count(PreconfiguredPools::External, "kubernetes"), 0);
        assert_eq!(count(PreconfiguredPools::External, "kubernetes-internal"), 1);
        assert_eq!(count(PreconfiguredPools::All, "kubernetes-internal"), 0);
    }

    #[test]
    fn a_public_ip_that_no_service_has_is_forgotten_when_it_is_gone_or_not_ours() {
        use serde_json::json;
        let settings = lazuli_services::service::fixtures::settings();
        let id = |group: &str, name: &str| settings.public_ip_id(group, name).unwrap();
        let read = |id: &ArmId, tags| PublicIp::read(id, &json!({"tags": tags, "properties": {}})).unwrap();
        let released = |id: &ArmId, cluster: &str| {
            let tags = json!({"k8s-azure-service": "default/web", "lazuli-released-service": "default/web",
                "k8s-azure-cluster-name": cluster});
            read(id, tags)
        };
        let ours = settings.cluster_name.as_str();
        let mut balancers = Balancers::default();
        let all = ["gone", "a-users", "anothers", "in-use"].map(|name| id("addresses", name));
        for id in all.iter().chain([&id("deleted", "one"), &id("Deleted", "two")]) {
            balancers.public_ip_observed(id, Some(&released(id, ours)), &settings);
        }
        assert_eq!(balancers.released_public_ips().len(), 6);
        balancers.group_is_gone("DELETED");
        assert_eq!(*balancers.released_public_ips(), all.clone().into());
        let [gone, users, anothers, in_use] = &all;
        balancers.public_ip_observed(gone, None, &settings);
        balancers.public_ip_observed(users, Some(&read(users, json!({}))), &settings);
        balancers.public_ip_observed(anothers, Some(&released(anothers, "another")), &settings);
        // Its frontend may be released before its tag says so.
        balancers.public_ip_observed(
            in_use,
            Some(&read(in_use, json!({"k8s-azure-service": "default/web"}))),
            &settings,
        );
        assert_eq!(*balancers.released_public_ips(), [in_use.clone()].into());
    }

    #[test]
    fn a_pool_grows_before_it_shrinks() {
        let settings = lazuli_services::service::fixtures::settings();
        let id = settings.load_balancer_id("one").unwrap();
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let wanted = |all: &[u8]| all.iter().map(|last| (address(*last), format!("node-{last}"))).collect();
        let mut balancers = Balancers::default();
        let mut observe = |all: &[u8]| {
            let mut seen = Seen::new(&id, &settings);
            seen.members.insert("shop-web".to_owned(), all.iter().map(|last| address(*last)).collect());
            balancers.seen.insert(id.clone(), seen);
            let members = |wanted: BTreeMap<IpAddr, String>| -> Vec<IpAddr> {
                balancers.local_members(&id, "Shop-Web", wanted).into_keys().collect()
            };
            members(wanted(&[2, 3]))
        };
        assert_eq!(observe(&[1, 2]), [1, 2, 3].map(address), "3 joins, and 1 stays meanwhile");
        assert_eq!(observe(&[1, 2, 3]), [2, 3].map(address));
        assert_eq!(observe(&[]), [2, 3].map(address));
    }
}
