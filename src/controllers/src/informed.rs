//! What all keys share: what the informers and the lease have told, and the ways to Azure, to the API server and to other
//! keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use lazuli_azure::{error::ArmError, network::Network};
use lazuli_balancing::{
    Balancers, Inputs, Key, LoadBalancers, LocalPools, PrivateLinks, PublicIps, SecurityGroups, Subnets, Want,
    admitted::AdmittedNodes,
    balancers::Leaving,
    discovery::Discovered,
    events,
    interfaces::{Interfaces, Machines, Underway},
};
use lazuli_cluster::{Change, ClusterIps, VersionedService};
use lazuli_engine::{
    Acceptance, Shared,
    object::{Event, Taint},
    service,
};
use lazuli_model::{ArmId, ServiceKey, address::Cidr, fault::Fault};
use lazuli_reconcile::{Clock, Lease, Workers, object::Objects};
use lazuli_services::{
    ask::names,
    network::{
        Settings,
        backends::{BackendNodes, Selection},
        load_balancer, nic,
        settings::{LoadBalancerSku, PoolKind},
    },
    service::{ClusterAddresses, Peers},
};
use lazuli_telemetry::lossy;
use tokio::{sync::Notify, time::Instant};

use crate::{
    Options, api::Api, controller::Lost, evidence::Evidence, objects::Of, operations::Operations, refusals::Refusals,
    services::Services,
};

/// For so long after a write has begun an object is read alone: the longest operation, and the lag of lists.
const LATELY: Duration = Duration::from_secs(600);

/// The workers of all kinds.
pub(crate) struct AllWorkers {
    pub(crate) public_ips: Workers<Objects<PublicIps, Of<PublicIps>>>,
    pub(crate) load_balancers: Workers<Objects<LoadBalancers, Of<LoadBalancers>>>,
    pub(crate) security_groups: Workers<Objects<SecurityGroups, Of<SecurityGroups>>>,
    pub(crate) private_links: Workers<Objects<PrivateLinks, Of<PrivateLinks>>>,
    pub(crate) subnets: Workers<Objects<Subnets, Of<Subnets>>>,
    pub(crate) nics: Workers<Objects<Interfaces, Of<Interfaces>>>,
    pub(crate) services: Workers<Services>,
}

/// What the informers have told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) services: Option<BTreeMap<String, VersionedService>>,
    /// The addresses inside the cluster of all other Services.
    pub(crate) cluster_ips: ClusterIps,
    /// Only [`Told::change_nodes`] changes them.
    pub(crate) nodes: Option<BackendNodes>,
    /// Services that have told the security group what they want. What others were given stays.
    pub(crate) at_security_group: BTreeSet<ServiceKey>,
    /// From when on a read shows everything that the leader before has written.
    pub(crate) trusted_from: Duration,
    /// Whether changes that remove or replace something wait for the operator.
    pub(crate) acceptance: Acceptance,
    /// The load balancers that Services are spread over.
    pub(crate) balancers: Balancers,
    /// Whether Nodes stay where they are, because Services are being placed one after the other.
    pub(crate) holds_nodes: bool,
    /// The labels of namespaces, where selectors of load balancers ask for them.
    pub(crate) namespaces: Option<BTreeMap<String, BTreeMap<String, String>>>,
    /// The machines behind Nodes, where pools list their NICs or load balancers belong to their sets.
    pub(crate) machines: Machines,
    /// Whether machines have been looked for.
    pub(crate) has_looked: bool,
    /// Which nodes the security group admits.
    pub(crate) admitted: AdmittedNodes,
    /// Which Services give up their frontends, by load balancer.
    pub(crate) leaving: Leaving,
    /// What each NIC was told last, with the number of the want.
    pub(crate) nic_wants: BTreeMap<ArmId, (u64, nic::Env)>,
    /// The NICs that are on their way into or out of pools.
    pub(crate) underway: Underway,
    /// Load balancers whose pool of NICs has no member yet and gets one.
    without_members: BTreeSet<ArmId>,
    /// On which Nodes the endpoints of Services are, where Services have pools of their own.
    pub(crate) endpoints: Option<LocalPools>,
    /// Services, as `namespace/name`, that are not served now: they have no place, name an address that is not there, or have
    /// a value that cannot be used.
    pub(crate) unplaced: BTreeSet<String>,
    /// What lists have shown of what Services may own.
    pub(crate) discovered: Discovered,
    /// What load balancers and public IPs have shown.
    pub(crate) evidence: Evidence,
    /// What is to be told again after a panic.
    pub(crate) lost: Lost,
    /// The Services, which may own addresses that others use.
    pub(crate) peers: Arc<Peers>,
    /// What every Service's step needs of the nodes, made once for each change of them.
    inputs: Option<Arc<Inputs>>,
}

impl Told {
    /// Changes the nodes. Returns whether they differ afterwards.
    pub(crate) fn change_nodes(&mut self, change: impl FnOnce(&mut Option<BackendNodes>) -> bool) -> bool {
        let differs = change(&mut self.nodes);
        if differs {
            self.inputs = None;
        }
        differs
    }

    /// Takes in which Services there are. Returns whether one agrees with others than before.
    pub(crate) fn note_peers(&mut self, change: &Change<VersionedService>) -> bool {
        let services = &self.services;
        let known = |name: &String| Some(services.as_ref()?.get(name)?.object.key.clone());
        let peers = Arc::make_mut(&mut self.peers);
        let differs = match change {
            Change::Replaced(all) => {
                let before = std::mem::replace(peers, all.iter().map(|(_, service)| &service.object).collect());
                before != *peers
            }
            Change::Applied(_, Some(service)) => peers.insert(&service.object),
            Change::Applied(name, None) | Change::Deleted(name) => {
                known(name).iter().for_each(|key| peers.remove(key));
                false
            }
            Change::Confirmed | Change::Lost(_) => return false,
        };
        if let Some(inputs) = &mut self.inputs {
            Arc::make_mut(inputs).peers = Arc::clone(&self.peers);
        }
        differs
    }

    /// The addresses of nodes that are backends no more and have left every pool.
    pub(crate) fn departed(&self, settings: &Settings) -> BTreeSet<IpAddr> {
        if !self.admitted.has_departed() {
            return BTreeSet::new();
        }
        let pools = self.balancers.nic_pools(settings, &self.leaving);
        self.admitted.departed(|address, machine| {
            self.balancers.has_member(address)
                || machine.is_some_and(|machine| self.machines.is_member(machine, &pools))
        })
    }

    /// Notes which pools of NICs have no member yet. Returns whether others have none now.
    pub(crate) fn note_without_members(&mut self, balancers: BTreeSet<ArmId>) -> bool {
        let differs = self.without_members != balancers;
        if differs {
            self.inputs = None;
            self.without_members = balancers;
        }
        differs
    }
}

impl Default for Told {
    fn default() -> Self {
        Self {
            services: None,
            cluster_ips: ClusterIps::default(),
            nodes: None,
            at_security_group: BTreeSet::new(),
            trusted_from: Duration::ZERO,
            // Until the first leadership has decided.
            acceptance: Acceptance::Awaited,
            balancers: Balancers::default(),
            holds_nodes: false,
            namespaces: None,
            machines: Machines::default(),
            has_looked: false,
            admitted: AdmittedNodes::default(),
            leaving: Leaving::new(),
            nic_wants: BTreeMap::new(),
            underway: Underway::default(),
            without_members: BTreeSet::new(),
            endpoints: None,
            unplaced: BTreeSet::new(),
            evidence: Evidence::default(),
            discovered: Discovered::default(),
            lost: Lost::default(),
            peers: Arc::default(),
            inputs: None,
        }
    }
}

/// What Azure held when this process began to lead.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The prefixes of the subnets of the configured virtual network.
    pub(crate) subnets: BTreeMap<ArmId, Vec<Cidr>>,
}

/// The code and the message of what Azure answered.
pub(crate) fn answer(error: &ArmError) -> String {
    let words = [error.code.as_str(), error.message.as_str()];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(": ")
}

/// What all keys share.
pub(crate) struct Informed {
    pub(crate) clock: Clock,
    pub(crate) lease: Lease,
    pub(crate) settings: Settings,
    /// The zones of the region, for new public IPs and internal frontends.
    zones: Mutex<Vec<String>>,
    /// Addresses that no Service may name as its own, as far as the operator gives them.
    pub(crate) external: ClusterAddresses,
    /// How old an observation may become before its object is read again.
    pub(crate) resync: Option<Duration>,
    pub(crate) network: Network,
    pub(crate) api: Api,
    /// Where events for the owners of Services go.
    pub(crate) events: lossy::Sender<lazuli_model::event::Event>,
    /// What is counted of work on Services.
    pub(crate) operations: Operations,
    /// When this process began its last write of an object.
    written: Mutex<BTreeMap<ArmId, Instant>>,
    /// The code and the message of Azure's last refusal of a write, by object, for those events.
    refusals: Mutex<Refusals>,
    pub(crate) found: OnceLock<Found>,
    pub(crate) workers: OnceLock<AllWorkers>,
    /// Services that have no place may have one now.
    pub(crate) retry: Notify,
    /// Machines are to be looked for.
    pub(crate) look: Notify,
    /// Keys have lost their states.
    pub(crate) recover: Notify,
    /// Pools may wait for the end of their interval.
    pub(crate) pools_wait: Notify,
    /// Every informer has brought its first list.
    pub(crate) listed: Notify,
    told: Mutex<Told>,
}

impl Informed {
    pub(crate) fn new(clock: Clock, lease: Lease, options: &Options, network: Network, api: Api) -> Self {
        let (found, workers, told, refusals) = (OnceLock::new(), OnceLock::new(), Mutex::default(), Mutex::default());
        Self {
            clock,
            lease,
            settings: options.settings.clone(),
            zones: Mutex::new(options.zones.clone().unwrap_or_default()),
            external: options.external.clone(),
            resync: options.resync,
            network,
            api,
            events: options.events.clone(),
            operations: options.operations.clone(),
            written: Mutex::default(),
            refusals,
            found,
            workers,
            retry: Notify::new(),
            look: Notify::new(),
            recover: Notify::new(),
            pools_wait: Notify::new(),
            listed: Notify::new(),
            told,
        }
    }

    /// The zones that new public IPs and internal frontends get.
    pub(crate) fn zones(&self) -> Vec<String> {
        self.zones.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_zones(&self, zones: Vec<String>) {
        *self.zones.lock().unwrap_or_else(PoisonError::into_inner) = zones;
    }

    /// A write of this object begins.
    pub(crate) fn writes(&self, object: &ArmId) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|_, at| at.elapsed() < LATELY);
        written.insert(object.clone(), Instant::now());
    }

    /// Whether a write of this object began so lately that a list may not show it.
    pub(crate) fn wrote_lately(&self, object: &ArmId) -> bool {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.get(object).is_some_and(|at| at.elapsed() < LATELY)
    }

    /// Notes what Azure answered when it refused a write.
    pub(crate) fn refused(&self, object: &ArmId, error: &ArmError) {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).note(object, answer(error));
    }

    /// The code and the message of Azure's last refusal of a write of the object.
    pub(crate) fn refusal_of(&self, object: &ArmId) -> String {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).of(object)
    }

    /// A load balancer has followed a change of the Nodes, or cannot, for these Services.
    pub(crate) fn backends_followed(&self, balancer: &ArmId, services: Vec<ServiceKey>, result: &Result<(), Fault>) {
        let answer = self.refusal_of(balancer);
        for service in services {
            self.events.send(events::of_backends(&service, balancer, result, &answer));
        }
    }

    /// How much is remembered of what Services have named.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> BTreeMap<&'static str, usize> {
        let (told, workers) = (self.told(), self.workers().expect("the controller has workers"));
        let mut all: BTreeMap<&'static str, usize> = told.discovered.sizes().into();
        all.insert("addresses of public IPs", told.evidence.addresses());
        all.insert("refusals", self.refusals.lock().unwrap_or_else(PoisonError::into_inner).len());
        all.insert("unplaced Services", told.unplaced.len());
        all.insert("Services at the security group", told.at_security_group.len());
        all.insert("cluster IPs", told.cluster_ips.iter().count());
        all.insert("released public IPs", told.balancers.released_public_ips().len());
        all.insert("work on public IPs", workers.public_ips.len());
        all.insert("work on private link services", workers.private_links.len());
        all.insert("work on subnets", workers.subnets.len());
        all.insert("work on Services", workers.services.len());
        all
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        // Every change under this lock is complete.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every informer has brought its first list, also one that is empty.
    pub(crate) fn is_listed(&self) -> bool {
        let told = self.told();
        told.services.is_some()
            && told.nodes.is_some()
            && (told.namespaces.is_some() || !self.follows_namespaces())
            && (told.endpoints.is_some() || !self.follows_endpoints())
    }

    /// What every step shares.
    pub(crate) fn shared(&self) -> Shared {
        let told = self.told();
        // An empty list of Services is more likely a mistake than a cluster. What goes with the last Node waits for none:
        // pools keep their last members, and security groups their nodes.
        let synced = told.services.as_ref().is_some_and(|services| !services.is_empty())
            && told.nodes.is_some()
            && self.found.get().is_some()
            && (told.namespaces.is_some() || !self.follows_namespaces())
            && (told.endpoints.is_some() || !self.follows_endpoints());
        Shared {
            synced,
            lease: self.lease.now(),
            trusted_from: told.trusted_from,
            acceptance: told.acceptance,
            resync: self.resync,
        }
    }

    /// The load balancers of both sides that a Service of this cluster may be on.
    pub(crate) fn load_balancers(&self) -> Vec<ArmId> {
        let settings = &self.settings;
        let main = || settings.load_balancer_name.clone().unwrap_or_else(|| settings.cluster_name.clone());
        let stems: Vec<String> = match settings.sku {
            LoadBalancerSku::Standard if settings.configurations.is_empty() => vec![main()],
            LoadBalancerSku::Standard => settings.configurations.iter().map(|one| one.name.clone()).collect(),
            LoadBalancerSku::Basic => [main()].into_iter().chain(self.vm_sets(&self.told())).collect(),
        };
        let names = stems.iter().flat_map(|stem| [false, true].map(|inner| names::load_balancer(stem, inner)));
        names.filter_map(|name| settings.load_balancer_id(&name).ok()).collect()
    }

    /// Which Nodes are backends.
    pub(crate) fn selection(&self) -> Selection<'_> {
        let lists_nics = self.settings.pool_kind == PoolKind::Nic;
        let is_standard = self.settings.sku == LoadBalancerSku::Standard;
        let leaves_out_control_plane = !lists_nics || (is_standard && self.settings.exclude_control_plane);
        Selection { resource_group: &self.settings.resource_group, leaves_out_control_plane }
    }

    /// Whether the Nodes are known, and none of them is a backend.
    pub(crate) fn has_no_backends(&self) -> bool {
        self.told().nodes.as_ref().is_some_and(|nodes| self.selection().of(nodes).next().is_none())
    }

    /// What the wants of a Service depend on.
    pub(crate) fn inputs(&self) -> Arc<Inputs> {
        let told = &mut *self.told();
        let make = || {
            let nodes = told.nodes.as_ref().map(|nodes| self.selection().destinations(nodes));
            let mut inputs = Inputs::new(self.settings.clone(), nodes.unwrap_or_default());
            let all = told.nodes.iter().flat_map(BTreeMap::values);
            inputs.all_nodes.extend(all.flat_map(|node| node.addresses.iter().chain(&node.other_addresses)));
            inputs.without_members.clone_from(&told.without_members);
            inputs.peers = Arc::clone(&told.peers);
            Arc::new(inputs)
        };
        told.inputs.get_or_insert_with(make).clone()
    }

    fn workers(&self) -> Option<&AllWorkers> {
        self.workers.get()
    }

    /// Tells an object what a Service wants of it.
    pub(crate) fn want(&self, key: &Key, from: &ServiceKey, generation: u64, want: Want, acceptance: Acceptance) {
        let Some(workers) = self.workers() else { return };
        let from = from.clone();
        match (key, want) {
            (Key::PublicIp(id), Want::PublicIp(want)) => {
                workers.public_ips.send(id, Event::Requested { from, generation, want, acceptance }.into());
            }
            (Key::LoadBalancer(id), Want::LoadBalancer(want)) => {
                let leaves =
                    want.present.frontends.is_empty() && matches!(want.gone, load_balancer::Gone::Everything { .. });
                self.note_leaving(id, &from, leaves.then(|| want.gone.clone()));
                workers.load_balancers.send(id, Event::Requested { from, generation, want, acceptance }.into());
            }
            (Key::SecurityGroup(id), Want::SecurityGroup(want)) => {
                self.told().at_security_group.insert(from.clone());
                workers.security_groups.send(id, Event::Requested { from, generation, want, acceptance }.into());
            }
            (Key::PrivateLink(id), Want::PrivateLink(want)) => {
                workers.private_links.send(id, Event::Requested { from, generation, want, acceptance }.into());
            }
            (Key::Subnet(id), Want::Subnet(want)) => {
                workers.subnets.send(id, Event::Requested { from, generation, want, acceptance }.into());
            }
            (key, want) => unreachable!("{key} takes no {want:?}: a key and its want are made together"),
        }
    }

    /// Tells an object that a Service has no further interest in it.
    pub(crate) fn withdraw(&self, key: &Key, from: &ServiceKey) {
        let Some(workers) = self.workers() else { return };
        let from = from.clone();
        match key {
            Key::PublicIp(id) => workers.public_ips.send(id, Event::Withdrawn(from).into()),
            Key::LoadBalancer(id) => {
                self.note_leaving(id, &from, None);
                workers.load_balancers.send(id, Event::Withdrawn(from).into());
            }
            Key::SecurityGroup(id) => {
                self.told().at_security_group.remove(&from);
                workers.security_groups.send(id, Event::Withdrawn(from).into());
            }
            Key::PrivateLink(id) => workers.private_links.send(id, Event::Withdrawn(from).into()),
            Key::Subnet(id) => workers.subnets.send(id, Event::Withdrawn(from).into()),
        }
    }

    /// Tells objects that what was read of them is stale. One that no Service wants anything of has nothing read.
    pub(crate) fn taint(&self, keys: Vec<Key>, taint: Taint) {
        let Some(workers) = self.workers() else { return };
        for key in keys {
            match key {
                Key::PublicIp(id) => workers.public_ips.send(&id, Event::Tainted(taint).into()),
                Key::LoadBalancer(id) => workers.load_balancers.send(&id, Event::Tainted(taint).into()),
                Key::SecurityGroup(id) => workers.security_groups.send(&id, Event::Tainted(taint).into()),
                Key::PrivateLink(id) => workers.private_links.send(&id, Event::Tainted(taint).into()),
                Key::Subnet(id) => workers.subnets.send(&id, Event::Tainted(taint).into()),
            }
        }
    }

    /// Passes an event to a Service.
    pub(crate) fn to_service(&self, key: &ServiceKey, event: service::Event<lazuli_balancing::Balanced>) {
        if let Some(workers) = self.workers() {
            workers.services.send(key, event);
        }
    }

    /// The lease, the informers or what both share have changed.
    pub(crate) fn wake_all(&self) {
        let Some(workers) = self.workers() else { return };
        workers.public_ips.wake_all();
        workers.load_balancers.wake_all();
        workers.security_groups.wake_all();
        workers.private_links.wake_all();
        workers.subnets.wake_all();
        workers.nics.wake_all();
        workers.services.wake_all();
    }
}
