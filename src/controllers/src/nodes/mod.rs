//! The node, node-lifecycle and route controllers.
//!
//! ```text
//!   Nodes ──▶ nodes ──Changed──▶ node ──Requested──▶ route table ──▶ subnet ──▶ Azure
//!                                 │ ▲ └─Asked──▶ breaker
//!                                 │ └─ read, check ──▶ VMs, NICs of Azure
//!                                 └─ patch, delete ──▶ API server
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `interfaces` | the lists by which the addresses of Nodes are kept |
//! | `known` | what all keys share |
//! | `machine` | the reads of machines: for a new Node, and for one that is not Ready |
//! | `node` | a Node as a key of the engine |
//! | `breaker` | the breaker as a key of the engine |
//! | `routes` | route tables and subnets as objects of the engine |

mod breaker;
mod interfaces;
mod known;
mod machine;
mod node;
mod routes;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use lazuli_azure::{
    Until,
    compute::{Compute, Freshness},
    network::{Network, NetworkType},
};
use lazuli_cluster::{Change, follow_cloud_nodes, node_exists};
use lazuli_engine::{Acceptance, object::Event as ObjectEvent};
use lazuli_journal::Recorder;
use lazuli_model::{ArmId, address::Cidr, fault::Fault, tags::TagPolicy};
use lazuli_nodes::{
    cloud_node::{
        BetaLabels, CloudNode,
        step::{Controllers, Event, PodRanges},
    },
    routing::{self, RouteTable, Want, names},
};
use lazuli_reconcile::{Clock, Kind, Lease, Workers, metrics::Metrics, object::Objects};
use lazuli_telemetry::lossy;
use tokio::sync::Notify;
use tracing::{error, info, warn};

use self::{
    breaker::Breaker,
    known::{Known, NodeWorkers},
    node::Nodes,
    routes::RoutingOf,
};
use crate::{api::Api, operations::Operations};

/// How long the search for routes without a Node may take.
const SEARCH: Duration = Duration::from_secs(120);

/// What the controllers of Nodes need to know.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Which of them run.
    pub controllers: Controllers,
    /// Whether new Nodes get the labels of before Kubernetes 1.17 too.
    pub beta_labels: BetaLabels,
    /// Who gives Nodes the ranges of their pods.
    pub pod_ranges: PodRanges,
    /// The subscription of the machines.
    pub subscription: String,
    /// The resource group of the machines.
    pub resource_group: String,
    /// How long this process has known a Node at least before it deletes it.
    pub grace: Duration,
    /// How often the addresses of initialised Nodes are compared with Azure's; zero for never.
    pub address_refresh: Duration,
    /// How long after it was seen first a new route is expected to work.
    pub route_settle: Duration,
    /// How long a new Node waits for what its plugin publishes of the machine before Azure is asked.
    pub metadata_wait: Duration,
    /// Where routes are; `None` without the route controller.
    pub routes: Option<RouteOptions>,
}

/// Where routes are.
#[derive(Debug, Clone)]
pub struct RouteOptions {
    /// The route table.
    pub table: ArmId,
    /// The subnet that a table without any is given.
    pub subnet: Option<ArmId>,
    /// The region of a new table.
    pub location: String,
    /// The tags of the table.
    pub tags: TagPolicy,
    /// The least time between two writes of the table.
    pub update_interval: Duration,
    /// The ranges from which Nodes get theirs.
    pub cluster_ranges: Vec<Cidr>,
    /// The ranges of Services, which no Node's range may overlap.
    pub service_ranges: Vec<Cidr>,
}

/// The controllers of Nodes.
pub(crate) struct NodeControllers {
    known: Arc<Known>,
    leads: Notify,
}

impl NodeControllers {
    pub(crate) fn new(
        options: NodeOptions,
        (compute, network, api): (Compute, Network, Api),
        (clock, lease): (Clock, Lease),
        (events, journal, operations): (lossy::Sender<lazuli_model::event::Event>, Recorder, Operations),
        metrics: &Metrics,
    ) -> Self {
        fn workers<K: Kind>(kind: K, clock: Clock, metrics: &Metrics, journal: &Recorder) -> Workers<K> {
            Workers::with_journal(Arc::new(kind), clock, metrics.clone(), journal.clone())
        }
        let known = Arc::new(Known::new(options, (compute, network, api), (clock, lease), (events, operations)));
        let workers = NodeWorkers {
            nodes: workers(Nodes::new(known.clone()), clock, metrics, &journal),
            breaker: workers(Breaker::new(known.clone()), clock, metrics, &journal),
            tables: workers(Objects::new(Arc::new(RoutingOf::new(known.clone())), clock), clock, metrics, &journal),
            subnets: workers(Objects::new(Arc::new(RoutingOf::new(known.clone())), clock), clock, metrics, &journal),
        };
        _ = known.workers.set(workers);
        Self { known, leads: Notify::new() }
    }

    /// This process begins to lead. From then on a read shows what the leader before has written.
    pub(crate) fn leads(&self, trusted_from: Duration) {
        self.known.told().trusted_from = trusted_from;
        self.leads.notify_one();
    }

    pub(crate) fn wake_all(&self) {
        self.known.wake_all();
    }

    pub(crate) async fn drain(&self) {
        if let Some(workers) = self.known.workers.get() {
            tokio::join!(
                workers.nodes.drain(),
                workers.breaker.drain(),
                workers.tables.drain(),
                workers.subnets.drain()
            );
        }
    }

    /// Follows the Nodes and passes their changes on.
    pub(crate) async fn feed(&self) {
        let (following, mut of_nodes) = follow_cloud_nodes(self.known.api.client.clone());
        let feeding = async {
            let mut is_searched = true;
            loop {
                tokio::select! {
                    change = of_nodes.recv() => match change {
                        Some(change) => self.changed(change).await,
                        None => return,
                    },
                    () = self.leads.notified() => is_searched = false,
                }
                if !is_searched && self.known.shared().synced {
                    is_searched = true;
                    self.remove_routes_of_deleted_nodes().await;
                }
            }
        };
        tokio::select! {
            () = async { _ = tokio::join!(following, feeding); } => {}
            () = Box::pin(interfaces::follow(&self.known)) => {}
        }
    }

    async fn changed(&self, change: Change<CloudNode>) {
        let was_synced = self.known.shared().synced;
        match change {
            // An empty list of Nodes is more likely a mistake than a cluster.
            Change::Replaced(all) if all.is_empty() => warn!("the API server lists no Nodes: nothing is done about it"),
            Change::Replaced(all) => {
                let all: BTreeMap<String, CloudNode> = all.into_iter().collect();
                let before = self.known.told().nodes.replace(all.clone()).unwrap_or_default();
                for (name, node) in before {
                    if !all.contains_key(&name) && !self.is_deleted(&name).await {
                        self.known.told().nodes.get_or_insert_default().insert(name, node);
                    }
                }
                for node in all.into_values() {
                    self.known.to_node(&node.name.clone(), Event::Changed(node));
                }
            }
            Change::Applied(name, Some(node)) => {
                self.known.told().nodes.get_or_insert_default().insert(name.clone(), node.clone());
                self.known.to_node(&name, Event::Changed(node));
            }
            Change::Applied(name, None) | Change::Deleted(name) => {
                if self.known.told().nodes.as_mut().is_some_and(|nodes| nodes.remove(&name).is_some()) {
                    self.known.to_node(&name, Event::Removed);
                }
            }
            Change::Confirmed => {}
            Change::Lost(why) => warn!(why, "Nodes cannot be followed; it is tried again"),
        }
        if !was_synced && self.known.shared().synced {
            self.known.wake_all();
        }
    }

    /// A Node that a list lacks was deleted only if a read of it says so.
    async fn is_deleted(&self, name: &str) -> bool {
        match node_exists(&self.known.api.client, name).await {
            Ok(false) => {
                self.known.to_node(name, Event::Removed);
                true
            }
            Ok(true) => false,
            Err(error) => {
                warn!(node = name, %error, "a list lacks the Node, and it cannot be read; its routes stay");
                false
            }
        }
    }

    /// Routes of Nodes that were deleted while no process of ours led. Each is removed when the API server says that its
    /// Node does not exist.
    async fn remove_routes_of_deleted_nodes(&self) {
        let Some(routes) = self.known.options.routes.as_ref().filter(|_| self.known.options.controllers.route) else {
            return;
        };
        let (freshness, until) = (Freshness::single(), Until::within(SEARCH));
        let read = self.known.network.read(NetworkType::RouteTable, &routes.table, freshness, &until);
        let table = match read.await {
            Ok(read) => RouteTable::read(&routes.table, &read.body),
            Err(error) if error.fault == Fault::NotFound => return,
            Err(error) => return error!(%error, "the route table cannot be searched for routes without a Node"),
        };
        let Ok(table) = table else { return };
        let env = self.known.route_env(routes);
        let mut without_node: BTreeMap<String, BTreeSet<Cidr>> = BTreeMap::new();
        for route in &table.routes {
            let (Some(node), Some(range)) = (names::node(&route.name), route.range) else { continue };
            let node = node.to_lowercase();
            let is_known = self.known.told().nodes.as_ref().is_none_or(|nodes| nodes.contains_key(&node));
            if !is_known && env.is_of_cluster(&range) {
                without_node.entry(node).or_default().insert(range);
            }
        }
        for (node, ranges) in without_node {
            match node_exists(&self.known.api.client, &node).await {
                Ok(false) => {
                    info!(node, "the Node of a route does not exist: the route is removed");
                    self.known.told().without_node.insert(node.clone());
                    let want = Want::Gone(ranges);
                    let acceptance = Acceptance::Given;
                    let event =
                        ObjectEvent::<routing::RouteTables>::Requested { from: node, generation: 0, want, acceptance };
                    if let Some(workers) = self.known.workers.get() {
                        workers.tables.send(&routes.table, event.into());
                    }
                }
                Ok(true) => {}
                Err(error) => {
                    warn!(node, %error, "it cannot be told whether the Node of a route exists; the route stays")
                }
            }
        }
    }
}
