//! What a node plugin asks about its own Node, and what it changes there: the start-up taint, and an annotation with what
//! the instance metadata tells of the machine.
//!
//! A cluster may start nodes with the taint `disk.csi.azure.com/agent-not-ready`, so that no pod with a volume is
//! scheduled to a node before its driver is registered (kubernetes-sigs/azuredisk-csi-driver 2309). The driver removes it.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use lazuli_model::node::MachineLabels;
use lazuli_nodes::cloud_node::facts::{self, InstanceFacts};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    client::{answered, get, null_as_empty},
    nodes::NODES,
    server::ApiError,
};

/// The collection. Source: Kubernetes; kubelet writes an object a node, with the drivers that are registered.
pub(super) const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";

/// What stands behind the driver's name in the taint's key. Source: the Go driver.
const NOT_READY: &str = "agent-not-ready";
/// First and longest wait between two looks.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// So many failures in a row are told once.
const TOLD_AFTER: u32 = 3;

/// Why the own Node cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} (the role needs {needs})")]
pub struct OwnNodeError {
    action: String,
    needs: &'static str,
    #[source]
    source: Box<ApiError>,
}

fn failed(action: impl Into<String>, needs: &'static str) -> impl FnOnce(kube::Error) -> OwnNodeError {
    move |source| OwnNodeError { action: action.into(), needs, source: ApiError::boxed(source) }
}

/// What the Node says of its machine; `None` before a cloud controller has said it.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn machine_labels(client: &Client, node: &str) -> Result<Option<MachineLabels>, OwnNodeError> {
    let read = answered(nodes(client).get_metadata(node)).await;
    let labels = read.map_err(failed(format!("read node {node}"), "get on nodes"))?.metadata.labels.unwrap_or_default();
    let label = |name: &str| labels.get(name).filter(|value| !value.is_empty());
    let Some(region) = label("topology.kubernetes.io/region") else { return Ok(None) };
    let Some(zone) = label("topology.kubernetes.io/zone") else { return Ok(None) };
    let is_zone = zone.strip_prefix(region.as_str()).is_some_and(|rest| rest.starts_with('-'));
    Ok(Some(MachineLabels {
        region: region.clone(),
        zone: is_zone.then(|| zone.clone()),
        vm_size: label("node.kubernetes.io/instance-type").cloned().unwrap_or_default(),
    }))
}

/// Writes what the instance metadata tells of the machine into the annotation [`facts::ANNOTATION`] of the own Node, where
/// it says anything else.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn publish_facts(client: &Client, node: &str, told: &InstanceFacts) -> Result<(), OwnNodeError> {
    let read: Option<Annotated> =
        get(client, NODES, node).await.map_err(failed(format!("read node {node}"), "get on nodes"))?;
    let annotation = told.annotation();
    if read.is_some_and(|node| node.metadata.annotations.get(facts::ANNOTATION) == Some(&annotation)) {
        return Ok(());
    }
    let patch = json!({"metadata": {"annotations": {facts::ANNOTATION: annotation}}});
    let patched = answered(nodes(client).patch(node, &PatchParams::default(), &Patch::Merge(patch))).await;
    patched.map_err(failed(format!("write annotation {} of node {node}", facts::ANNOTATION), "patch on nodes"))?;
    info!(node, "what the instance metadata tells of the machine is published");
    Ok(())
}

fn nodes(client: &Client) -> Api<Node> {
    Api::all(client.clone())
}

/// Removes the start-up taint from the own Node as soon as kubelet has registered the driver, then ends. Other taints,
/// and whatever others change at the same time, stay.
pub async fn remove_startup_taint(client: Client, node: String, driver: String, stop: CancellationToken) {
    let work = async {
        let (mut wait, mut failures) = (WAIT.0, 0u32);
        loop {
            match remove(&client, &node, &driver).await {
                Ok(Removal::Done) => return,
                Ok(Removal::NotYet) => failures = 0,
                Err(error) => {
                    failures += 1;
                    if failures == TOLD_AFTER {
                        let source = &error.source;
                        warn!(node, %error, %source, "the start-up taint of this node cannot be removed; trying again");
                    }
                }
            }
            sleep(wait).await;
            wait = (wait * 2).min(WAIT.1);
        }
    };
    stop.run_until_cancelled(work).await;
}

#[derive(Deserialize)]
struct Annotated {
    metadata: Annotations,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(default, deserialize_with = "null_as_empty")]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct SlimCsiNode {
    spec: CsiNodeSpec,
}

#[derive(Deserialize)]
struct CsiNodeSpec {
    /// Null before the first registration.
    #[serde(default, deserialize_with = "null_as_empty")]
    drivers: Vec<CsiDriver>,
}

#[derive(Deserialize)]
struct CsiDriver {
    name: String,
}

#[derive(Default, Deserialize)]
struct SlimNode {
    #[serde(default)]
    spec: NodeSpec,
}

/// The taints with all their members: the patch compares them.
#[derive(Default, Deserialize)]
struct NodeSpec {
    #[serde(default, deserialize_with = "null_as_empty")]
    taints: Vec<Value>,
}

enum Removal {
    /// There is no such taint any more.
    Done,
    /// kubelet has not registered the driver, or another writer came first.
    NotYet,
}

async fn remove(client: &Client, node: &str, driver: &str) -> Result<Removal, OwnNodeError> {
    let registered = get::<SlimCsiNode>(client, CSI_NODES, node)
        .await
        .map_err(failed(format!("read csinode {node}"), "get on csinodes"))?
        .is_some_and(|csi_node| csi_node.spec.drivers.iter().any(|one| one.name == driver));
    if !registered {
        return Ok(Removal::NotYet);
    }
    let key = format!("{driver}/{NOT_READY}");
    let is_ours = |taint: &Value| taint["key"] == key.as_str();
    let read: Option<SlimNode> =
        get(client, NODES, node).await.map_err(failed(format!("read node {node}"), "get on nodes"))?;
    let taints = read.unwrap_or_default().spec.taints;
    if !taints.iter().any(is_ours) {
        return Ok(Removal::Done);
    }
    // The list has no keys that a patch could name, so it is replaced whole, and only if it is still the one that was
    // read.
    let kept: Vec<&Value> = taints.iter().filter(|taint| !is_ours(taint)).collect();
    let patch = json!([
        {"op": "test", "path": "/spec/taints", "value": taints},
        {"op": "replace", "path": "/spec/taints", "value": kept},
    ]);
    let patch: json_patch::Patch = serde_json::from_value(patch).expect("is a list of operations");
    match answered(nodes(client).patch(node, &PatchParams::default(), &Patch::Json::<()>(patch))).await {
        Ok(_) => {
            info!(node, taint = key, "the start-up taint is removed");
            Ok(Removal::Done)
        }
        // Source: an operation "test" that fails is 422; a conflict in storage is 409.
        Err(kube::Error::Api(status)) if matches!(status.code, 409 | 422) => Ok(Removal::NotYet),
        Err(error) => Err(failed(format!("remove taint {key} from node {node}"), "patch on nodes")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeApiServer;

    const DRIVER: &str = "disk.csi.azure.com";

    fn node(taints: Value, labels: Value) -> Value {
        json!({"metadata": {"name": "n0", "labels": labels}, "spec": {"taints": taints}})
    }

    fn register(server: &FakeApiServer) {
        let drivers = json!([{"name": DRIVER, "nodeID": "n0", "topologyKeys": []}]);
        server.put(CSI_NODES, json!({"metadata": {"name": "n0"}, "spec": {"drivers": drivers}}));
    }

    #[tokio::test(start_paused = true)]
    async fn the_start_up_taint_goes_once_the_driver_is_registered_and_no_other_taint_does() {
        let server = FakeApiServer::default();
        let other = json!({"key": "dedicated", "value": "db", "effect": "NoSchedule"});
        let ours = json!({"key": "disk.csi.azure.com/agent-not-ready", "effect": "NoExecute"});
        server.put(NODES, node(json!([other, ours]), json!({})));
        // As kubelet makes it.
        server.put(CSI_NODES, json!({"metadata": {"name": "n0"}, "spec": {"drivers": null}}));
        assert!(matches!(remove(&server.client(), "n0", DRIVER).await, Ok(Removal::NotYet)));
        let stop = CancellationToken::new();
        let task = tokio::spawn(remove_startup_taint(server.client(), "n0".into(), DRIVER.into(), stop));
        sleep(Duration::from_secs(120)).await;
        assert!(!task.is_finished());
        assert_eq!(server.object(NODES, "n0")["spec"]["taints"].as_array().map(Vec::len), Some(2));
        register(&server);
        task.await.unwrap();
        assert_eq!(server.object(NODES, "n0")["spec"]["taints"], json!([other]));
    }

    #[tokio::test]
    async fn taints_that_are_null_are_none() {
        let server = FakeApiServer::default();
        server.put(NODES, node(Value::Null, json!({})));
        register(&server);
        assert!(matches!(remove(&server.client(), "n0", DRIVER).await, Ok(Removal::Done)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_taint_that_another_writer_adds_meanwhile_stays() {
        let server = FakeApiServer::default();
        let ours = json!({"key": "disk.csi.azure.com/agent-not-ready", "effect": "NoExecute"});
        let other = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"});
        server.put(NODES, node(json!([ours]), json!({})));
        register(&server);
        // Between the read and the patch.
        server.before_patch(NODES, node(json!([ours, other]), json!({})));
        remove_startup_taint(server.client(), "n0".into(), DRIVER.into(), CancellationToken::new()).await;
        assert_eq!(server.object(NODES, "n0")["spec"]["taints"], json!([other]));
    }

    #[tokio::test]
    async fn what_the_metadata_tells_is_written_where_the_annotation_says_anything_else() {
        let server = lazuli_apiserver::ApiServer::start(lazuli_apiserver::Options::default());
        let client = Client::new(server.router(), "default");
        server.put("nodes", json!({"metadata": {"name": "n0", "annotations": {"a": "b"}}})).unwrap();
        let mut told = InstanceFacts { resource_id: "/vm".into(), vm_size: "s".into(), ..InstanceFacts::default() };
        let mut versions = Vec::new();
        for domain in [None, Some(2), Some(2)] {
            told.fault_domain = domain;
            publish_facts(&client, "n0", &told).await.unwrap();
            let node = server.get("nodes", "", "n0").unwrap();
            assert_eq!(node["metadata"]["annotations"], json!({"a": "b", facts::ANNOTATION: told.annotation()}));
            versions.push(node["metadata"]["resourceVersion"].clone());
        }
        assert!(versions[0] != versions[1] && versions[1] == versions[2], "{versions:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn labels_tell_region_zone_and_size_and_a_fault_domain_is_no_zone() {
        let server = FakeApiServer::default();
        let read = async |labels: Value| {
            server.put(NODES, node(json!([]), labels));
            machine_labels(&server.client(), "n0").await.unwrap()
        };
        let labels = |zone: &str| {
            json!({"topology.kubernetes.io/region": "eastus", "topology.kubernetes.io/zone": zone,
                "node.kubernetes.io/instance-type": "Standard_D2s_v5"})
        };
        let told = |zone: Option<&str>| {
            let zone = zone.map(str::to_owned);
            Some(MachineLabels { region: "eastus".into(), zone, vm_size: "Standard_D2s_v5".into() })
        };
        assert_eq!(read(labels("eastus-2")).await, told(Some("eastus-2")));
        assert_eq!(read(labels("0")).await, told(None));
        assert_eq!(read(json!({"topology.kubernetes.io/region": "eastus"})).await, None);
        assert_eq!(read(json!({})).await, None);
    }
}
