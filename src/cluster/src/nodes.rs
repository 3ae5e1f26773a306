//! The cluster's Nodes: which machine each is, and whether it is out of work.
//!
//! Of a Node some 200 bytes are kept, so that 5,000 of them fit in a megabyte; a list is decoded page by page. kubelet's
//! report every few minutes changes no snapshot.
//!
//! The snapshot is `NoCluster` where there is no client and `Cold` until the first list. After that it stays known: a
//! provider id does not change while its Node lives. When nothing has been heard for [`STALE_AFTER`], the snapshot
//! only says no more that a missing Node does not exist.

use std::collections::BTreeSet;

use kube::Client;
use lazuli_model::node::{ClusterNodes, KnownNodes, Machine, Node};
use lazuli_telemetry::Condition;
use serde::Deserialize;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    client::null_as_empty,
    follow::{Change, Interest, Slim, SlimMetadata, WAITING, follow},
    liveness::{Heard, Liveness, STALE_AFTER, keep_watching},
};

/// The collection.
pub(super) const NODES: &str = "/api/v1/nodes";
/// The taint by which a person or a controller says that a node's pods may be moved without its consent. Source:
/// Kubernetes, well-known taints.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Keeps `snapshot` up to date until `stop`. Without a client it becomes `NoCluster` and the call returns. `live` is
/// fulfilled while the Nodes are followed, or need not be.
///
/// Run it as a task of its own. At the end nothing looks after the snapshot, and a missing Node says nothing more.
pub async fn watch_nodes(
    client: Option<Client>,
    snapshot: watch::Sender<ClusterNodes>,
    live: Condition,
    stop: CancellationToken,
) {
    let Some(client) = client else {
        snapshot.send_replace(ClusterNodes::NoCluster);
        live.ready("there is no cluster to watch");
        return;
    };
    let cold = || went_stale(&snapshot);
    keep_watching("Nodes", &live, &stop, cold, || keep(&client, &snapshot, &live)).await;
}

/// Follows the Nodes and tells the snapshot; does not return by itself.
async fn keep(client: &Client, snapshot: &watch::Sender<ClusterNodes>, live: &Condition) {
    let (changes, mut told) = mpsc::channel(WAITING);
    let following = follow::<SlimNode>(client.clone(), NODES, Interest::default(), changes);
    let keeping = async {
        let mut liveness = Liveness::of(live, "Nodes");
        let mut heard = Heard::default();
        loop {
            liveness.show(heard.is_fresh());
            let stale_at = heard.at.filter(|_| heard.is_fresh()).map(|at| at + STALE_AFTER);
            tokio::select! {
                // In this order: what is waiting is told before the age is judged.
                biased;
                Some(change) = told.recv() => {
                    liveness.note("Nodes", &change);
                    heard.note(&change);
                    snapshot.send_if_modified(|nodes| apply(nodes, change, heard.is_fresh()));
                }
                () = sleep_until(stale_at.unwrap_or_else(Instant::now)), if stale_at.is_some() => {
                    warn!(seconds = STALE_AFTER.as_secs(), "no word from the API server about Nodes");
                    went_stale(snapshot);
                }
            }
        }
    };
    tokio::select! {
        () = following => {}
        () = keeping => {}
    }
}

fn went_stale(snapshot: &watch::Sender<ClusterNodes>) {
    snapshot.send_if_modified(|nodes| match nodes {
        ClusterNodes::Known(known) => known.set_current(false),
        ClusterNodes::NoCluster | ClusterNodes::Cold => false,
    });
}

/// Applies a change. Returns whether the snapshot differs.
fn apply(nodes: &mut ClusterNodes, change: Change<Node>, fresh: bool) -> bool {
    let shared_before = shared(nodes);
    let differs = applied(nodes, change, fresh);
    for (machine, names) in shared(nodes).difference(&shared_before) {
        warn!(
            nodes = names.join(", "),
            "several Nodes have the providerID azure://{machine}, and it is only the one of them that has the VM's own name; \
             delete the Node that it is not"
        );
    }
    differs
}

/// The machines that several Nodes name, with the names of these Nodes.
fn shared(nodes: &ClusterNodes) -> BTreeSet<(String, Vec<String>)> {
    let ClusterNodes::Known(known) = nodes else { return BTreeSet::new() };
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    known.shared_machines().map(|(machine, names)| (machine.to_string(), owned(names))).collect()
}

fn applied(nodes: &mut ClusterNodes, change: Change<Node>, fresh: bool) -> bool {
    let (differs, known) = match (nodes, change) {
        (nodes, Change::Replaced(all)) => {
            // What Nodes named before the list stays known beside it.
            let mut known = match nodes {
                ClusterNodes::Known(known) => known.clone(),
                ClusterNodes::NoCluster | ClusterNodes::Cold => KnownNodes::default(),
            };
            known.replace(all);
            if *nodes == ClusterNodes::Cold {
                info!(nodes = known.len(), "the cluster's Nodes are known");
            }
            let told = ClusterNodes::Known(known);
            let differs = *nodes != told;
            *nodes = told;
            return differs;
        }
        (ClusterNodes::NoCluster | ClusterNodes::Cold, _) => return false,
        (ClusterNodes::Known(known), Change::Applied(name, Some(node))) => (known.apply(&name, node), known),
        (ClusterNodes::Known(known), Change::Applied(name, None) | Change::Deleted(name)) => {
            (known.remove(&name), known)
        }
        (ClusterNodes::Known(known), Change::Confirmed | Change::Lost(_)) => (false, known),
    };
    known.set_current(fresh) || differs
}

#[derive(Clone, Deserialize)]
struct SlimNode {
    metadata: NodeMetadata,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Clone, Deserialize)]
struct NodeMetadata {
    #[serde(flatten)]
    common: SlimMetadata,
    #[serde(default, deserialize_with = "null_as_empty")]
    labels: NodeLabels,
}

#[derive(Clone, Default, Deserialize)]
struct NodeLabels {
    /// Source: AKS and cloud-provider-azure set it on nodes outside of the cluster's resource group.
    #[serde(rename = "kubernetes.azure.com/resource-group")]
    resource_group: Option<String>,
    /// The VM size. Source: Kubernetes, well-known labels.
    #[serde(rename = "node.kubernetes.io/instance-type")]
    instance_type: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
struct NodeSpec {
    #[serde(default, rename = "providerID")]
    provider_id: String,
    #[serde(default, deserialize_with = "null_as_empty")]
    taints: Vec<Taint>,
}

#[derive(Clone, Deserialize)]
struct Taint {
    key: String,
}

#[derive(Clone, Default, Deserialize)]
struct NodeStatus {
    #[serde(default, deserialize_with = "null_as_empty")]
    conditions: Vec<NodeCondition>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct NodeCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
}

/// Whether kubelet reports that the node is ready: its condition Ready is True.
pub(super) fn is_ready(conditions: &[NodeCondition]) -> bool {
    conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
}

impl Slim for SlimNode {
    type Kept = Node;

    fn metadata(&self) -> &SlimMetadata {
        &self.metadata.common
    }

    fn keep(self, _: &Interest) -> Option<Node> {
        let out_of_service = self.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE);
        let group = self.metadata.labels.resource_group.filter(|group| !group.is_empty());
        Some(Node {
            machine: Machine::of_provider_id(&self.spec.provider_id),
            resource_group: group.map(Into::into),
            vm_size: self.metadata.labels.instance_type.filter(|size| !size.is_empty()).map(Into::into),
            healthy: is_ready(&self.status.conditions) && !out_of_service,
        })
    }
}

#[cfg(test)]
mod tests;
