//! What all keys share: what the informers and the lease have told, and the ways to Azure, to the API server and to other
//! keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use kube::Client;
use lazuli_azure::network::Network;
use lazuli_cluster::VersionedService;
use lazuli_plan::{
    balancing::{Inputs, Key, LoadBalancers, PrivateLinks, PublicIps, SecurityGroups, Want},
    engine::{
        Acceptance, Shared,
        object::{Event, Taint},
        service,
    },
    model::ArmId,
    network::{
        Cidr, Family, Settings,
        backends::{BackendNodes, Selection},
        load_balancer::{self, PoolMembers},
        settings::PoolKind,
    },
    service::{ServiceKey, Side, names::BaseName},
};
use lazuli_reconcile::{Clock, Lease, Workers, object::Objects};

use crate::{objects::Of, services::Services};

/// The workers of all kinds.
pub(crate) struct AllWorkers {
    pub(crate) public_ips: Workers<Objects<PublicIps, Of<PublicIps>>>,
    pub(crate) load_balancers: Workers<Objects<LoadBalancers, Of<LoadBalancers>>>,
    pub(crate) security_groups: Workers<Objects<SecurityGroups, Of<SecurityGroups>>>,
    pub(crate) private_links: Workers<Objects<PrivateLinks, Of<PrivateLinks>>>,
    pub(crate) services: Workers<Services>,
}

/// What the informers have told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) services: Option<BTreeMap<String, VersionedService>>,
    nodes: Option<BackendNodes>,
    /// Services that have told the security group what they want. What others were given stays.
    pub(crate) at_security_group: BTreeSet<ServiceKey>,
    /// From when on a read shows everything that the leader before has written.
    pub(crate) trusted_from: Duration,
    made: Made,
}

/// What every step needs of the nodes, made once for each change of them.
#[derive(Debug, Default)]
struct Made {
    inputs: Option<Arc<Inputs>>,
    load_balancers: BTreeMap<ArmId, Arc<load_balancer::Env>>,
}

impl Told {
    /// Changes the nodes. Returns whether they differ afterwards.
    pub(crate) fn change_nodes(&mut self, change: impl FnOnce(&mut Option<BackendNodes>) -> bool) -> bool {
        let differs = change(&mut self.nodes);
        if differs {
            self.made = Made::default();
        }
        differs
    }
}

/// What Azure held when this process began to lead.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Public IPs by the Services in their tags, as `namespace/name` in lower case.
    pub(crate) tagged: BTreeMap<String, BTreeSet<ArmId>>,
    /// Public IPs by their address.
    pub(crate) by_address: BTreeMap<std::net::IpAddr, ArmId>,
    /// The prefixes of the subnets of the configured virtual network.
    pub(crate) subnets: BTreeMap<ArmId, Vec<Cidr>>,
    /// The sides on which a frontend or rule bears the base name of a Service, in lower case.
    pub(crate) sides: BTreeMap<String, Side>,
}

impl Found {
    pub(crate) fn side(&self, service: &ServiceKey) -> Option<Side> {
        self.sides.get(&BaseName::of(service).as_str().to_lowercase()).copied()
    }
}

/// What all keys share.
pub(crate) struct Informed {
    pub(crate) clock: Clock,
    pub(crate) lease: Lease,
    pub(crate) settings: Settings,
    /// The zones of the region, for new public IPs and internal frontends.
    pub(crate) zones: Vec<String>,
    pub(crate) network: Network,
    pub(crate) api: Client,
    pub(crate) found: OnceLock<Found>,
    pub(crate) workers: OnceLock<AllWorkers>,
    told: Mutex<Told>,
}

impl Informed {
    pub(crate) fn new(
        clock: Clock,
        lease: Lease,
        settings: Settings,
        zones: Vec<String>,
        network: Network,
        api: Client,
    ) -> Self {
        let (found, workers, told) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        Self { clock, lease, settings, zones, network, api, found, workers, told }
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        // Every change under this lock is complete.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What every step shares.
    pub(crate) fn shared(&self) -> Shared {
        let told = self.told();
        // An empty list of Services or Nodes is more likely a mistake than a cluster.
        let is_listed = |empty: Option<bool>| empty == Some(false);
        let synced = is_listed(told.services.as_ref().map(BTreeMap::is_empty))
            && is_listed(told.nodes.as_ref().map(BTreeMap::is_empty))
            && self.found.get().is_some();
        Shared {
            synced,
            lease: self.lease.now(),
            trusted_from: told.trusted_from,
            acceptance: Acceptance::Given,
            resync: None,
        }
    }

    /// Which Nodes are backends.
    pub(crate) fn selection(&self) -> Selection<'_> {
        Selection { resource_group: &self.settings.resource_group, leaves_out_control_plane: true }
    }

    /// What the wants of a Service depend on.
    pub(crate) fn inputs(&self) -> Arc<Inputs> {
        let told = &mut *self.told();
        let make = || {
            let nodes = told.nodes.as_ref().map(|nodes| self.selection().destinations(nodes));
            Arc::new(Inputs::new(self.settings.clone(), nodes.unwrap_or_default()))
        };
        told.made.inputs.get_or_insert_with(make).clone()
    }

    /// What the planner of a load balancer needs to know. It plans once the informers are synced, when the subnets are
    /// known.
    pub(crate) fn of_load_balancer(&self, id: &ArmId) -> Arc<load_balancer::Env> {
        let told = &mut *self.told();
        let make = || {
            let settings = &self.settings;
            let mut pools = BTreeMap::new();
            if let (Ok(vnet), Some(nodes)) = (settings.vnet_id(), &told.nodes) {
                for family in [Family::V4, Family::V6] {
                    let addresses = match settings.pool_kind {
                        PoolKind::NodeIp => self.selection().addresses(nodes, family),
                        PoolKind::Nic | PoolKind::PodIp => BTreeMap::new(),
                    };
                    let kind = settings.pool_kind;
                    let members = PoolMembers { kind, vnet: vnet.clone(), addresses, may_be_empty: false };
                    pools.insert(settings.pool_name(family), members);
                }
            }
            Arc::new(load_balancer::Env {
                id: id.clone(),
                location: settings.location.clone(),
                sku: settings.sku,
                edge_zone: settings.edge_zone.clone(),
                zones: self.zones.clone(),
                subnets: self.found.get().map(|found| found.subnets.clone()).unwrap_or_default(),
                tags: settings.tags.clone(),
                pools,
                maximum_rules: settings.maximum_rules,
            })
        };
        told.made.load_balancers.entry(id.clone()).or_insert_with(make).clone()
    }

    fn workers(&self) -> Option<&AllWorkers> {
        self.workers.get()
    }

    /// Tells an object what a Service wants of it.
    pub(crate) fn want(&self, key: &Key, from: &ServiceKey, generation: u64, want: Want) {
        let Some(workers) = self.workers() else { return };
        let from = from.clone();
        match (key, want) {
            (Key::PublicIp(id), Want::PublicIp(want)) => {
                workers.public_ips.send(id, Event::Requested { from, generation, want }.into());
            }
            (Key::LoadBalancer(id), Want::LoadBalancer(want)) => {
                workers.load_balancers.send(id, Event::Requested { from, generation, want }.into());
            }
            (Key::SecurityGroup(id), Want::SecurityGroup(want)) => {
                self.told().at_security_group.insert(from.clone());
                workers.security_groups.send(id, Event::Requested { from, generation, want }.into());
            }
            (Key::PrivateLink(id), Want::PrivateLink(want)) => {
                workers.private_links.send(id, Event::Requested { from, generation, want }.into());
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
            Key::LoadBalancer(id) => workers.load_balancers.send(id, Event::Withdrawn(from).into()),
            Key::SecurityGroup(id) => {
                self.told().at_security_group.remove(&from);
                workers.security_groups.send(id, Event::Withdrawn(from).into());
            }
            Key::PrivateLink(id) => workers.private_links.send(id, Event::Withdrawn(from).into()),
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
            }
        }
    }

    /// Passes an event to a Service.
    pub(crate) fn to_service(&self, key: &ServiceKey, event: service::Event<lazuli_plan::balancing::Balanced>) {
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
        workers.services.wake_all();
    }
}
