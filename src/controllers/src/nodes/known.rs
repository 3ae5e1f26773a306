//! What all keys of the controllers of Nodes share.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use lazuli_azure::{compute::Compute, network::Network};
use lazuli_engine::{Acceptance, Shared, object};
use lazuli_model::{ArmId, event};
use lazuli_nodes::{
    cloud_node::{
        CloudNode,
        facts::Scope,
        step::{Env, Event},
    },
    routing::{self, RouteTables, SubnetAssociations},
};
use lazuli_reconcile::{Clock, Lease, Workers, object::Objects};
use lazuli_telemetry::lossy;
use tokio::time::Instant;

use super::{NodeOptions, RouteOptions, breaker::Breaker, node::Nodes, routes::RoutingOf};
use crate::{api::Api, operations::Operations};

/// How old what was read of a route table may become before it is read again.
const RESYNC: Duration = Duration::from_secs(300);

/// The workers of all kinds.
pub(crate) struct NodeWorkers {
    pub(super) nodes: Workers<Nodes>,
    pub(super) breaker: Workers<Breaker>,
    pub(super) tables: Workers<Objects<RouteTables, RoutingOf<RouteTables>>>,
    pub(super) subnets: Workers<Objects<SubnetAssociations, RoutingOf<SubnetAssociations>>>,
}

/// What the informers and the lease have told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(super) nodes: Option<BTreeMap<String, CloudNode>>,
    /// When this process began its last write of the route table.
    table_written: Option<Instant>,
    /// Names in routes whose Nodes do not exist.
    pub(super) without_node: BTreeSet<String>,
    /// From when on a read shows everything that the leader before has written.
    pub(super) trusted_from: Duration,
}

/// What all keys share.
pub(crate) struct Known {
    pub(super) clock: Clock,
    pub(super) lease: Lease,
    pub(super) options: NodeOptions,
    pub(super) compute: Compute,
    pub(super) network: Network,
    pub(super) api: Api,
    /// Where events about Nodes go.
    pub(super) events: lossy::Sender<event::Event>,
    /// What is counted of routes and new Nodes.
    pub(super) operations: Operations,
    pub(super) workers: OnceLock<NodeWorkers>,
    /// Whether the subnet was asked to belong to the route table.
    is_association_asked: AtomicBool,
    told: Mutex<Told>,
}

impl Known {
    pub(super) fn new(
        options: NodeOptions,
        (compute, network, api): (Compute, Network, Api),
        (clock, lease): (Clock, Lease),
        (events, operations): (lossy::Sender<event::Event>, Operations),
    ) -> Self {
        let (workers, told) = (OnceLock::new(), Mutex::default());
        let is_association_asked = AtomicBool::new(false);
        Self { clock, lease, options, compute, network, api, events, operations, workers, is_association_asked, told }
    }

    pub(super) fn told(&self) -> MutexGuard<'_, Told> {
        // Every change under this lock is complete.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What every step shares.
    pub(super) fn shared(&self) -> Shared {
        let told = self.told();
        Shared {
            synced: told.nodes.as_ref().is_some_and(|nodes| !nodes.is_empty()),
            lease: self.lease.now(),
            trusted_from: told.trusted_from,
            acceptance: Acceptance::Given,
            resync: Some(RESYNC),
        }
    }

    /// What the step of a Node needs.
    pub(super) fn env(&self) -> Env<'_> {
        let NodeOptions { controllers, grace, metadata_wait, route_settle, beta_labels, pod_ranges, .. } = self.options;
        let (shared, scope) = (self.shared(), self.scope());
        Env { shared, scope, metadata_wait, route_settle, controllers, beta_labels, pod_ranges, grace }
    }

    /// Where machines are looked for.
    pub(super) fn scope(&self) -> Scope<'_> {
        Scope { subscription: &self.options.subscription, resource_group: &self.options.resource_group }
    }

    /// What the planner of the route table needs.
    pub(super) fn route_env(&self, routes: &RouteOptions) -> routing::Env {
        let RouteOptions { table, location, tags, cluster_ranges, service_ranges, .. } = routes.clone();
        routing::Env { id: table, location, tags, cluster_ranges, reserved: service_ranges }
    }

    /// Counts a Node that has been initialised.
    pub(super) fn initialised(&self, node: &str) {
        let created = self.told().nodes.as_ref().and_then(|nodes| nodes.get(node)?.created.parse::<Timestamp>().ok());
        let age = created.map(|created| Timestamp::now().duration_since(created));
        if let Some(age) = age.and_then(|age| Duration::try_from(age).ok()) {
            self.operations.initialised(age);
        }
    }

    /// How many Nodes there are.
    pub(super) fn count(&self) -> usize {
        self.told().nodes.as_ref().map_or(0, BTreeMap::len)
    }

    /// Passes an event to a Node.
    pub(super) fn to_node(&self, node: &str, event: Event) {
        if let Some(workers) = self.workers.get() {
            workers.nodes.send(&node.to_owned(), event);
        }
    }

    /// A write of the route table begins.
    pub(super) fn writes_table(&self) {
        self.told().table_written = Some(Instant::now());
    }

    /// When the route table may be written again.
    pub(super) fn table_due(&self) -> Option<Instant> {
        let every = self.options.routes.as_ref()?.update_interval;
        Some(self.told().table_written? + every)
    }

    /// Asks the subnet, once, to belong to the route table.
    pub(super) fn associate(&self, table: &ArmId) {
        let subnet = self.options.routes.as_ref().and_then(|routes| routes.subnet.as_ref());
        let (Some(subnet), Some(workers)) = (subnet, self.workers.get()) else { return };
        if !self.is_association_asked.swap(true, Ordering::Relaxed) {
            let (from, acceptance) = (table.clone(), Acceptance::Given);
            let request = object::Event::Requested { from, generation: 1, want: (), acceptance };
            workers.subnets.send(subnet, request.into());
        }
    }

    /// The subnet has lost what it was asked.
    pub(super) fn association_lost(&self) {
        self.is_association_asked.store(false, Ordering::Relaxed);
    }

    /// The lease, the informers or what both share have changed.
    pub(super) fn wake_all(&self) {
        let Some(workers) = self.workers.get() else { return };
        workers.nodes.wake_all();
        workers.breaker.wake_all();
        workers.tables.wake_all();
        workers.subnets.wake_all();
    }
}
