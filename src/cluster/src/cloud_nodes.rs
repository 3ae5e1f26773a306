//! Nodes and their machines: which there are, and the writes that initialise, taint and delete them.
//!
//! kubelet's report every few minutes changes nothing that is kept here but the version.

use std::collections::BTreeMap;

use http::{Method, Request};
use jiff::Timestamp;
use kube::Client;
use lazuli_nodes::cloud_node::{
    CloudNode, NodeAddress, Taint,
    facts::{self, InstanceFacts},
    is_unmanaged, labels,
    step::{Patch, PatchFault},
};
use lazuli_services::network::backends::{
    is_control_plane,
    labels::{MANAGED, RESOURCE_GROUP},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::{
    client::{Pages, answered, get, null_as_empty},
    follow::{Change, Interest, Slim, SlimMetadata, WAITING, follow},
    nodes::{NODES, NodeCondition, is_ready},
    server::ApiError,
};

/// The addresses that kubelet was told to use, as a list with commas. Source: Kubernetes, `cloud-provider/api`.
const PROVIDED_ADDRESSES: &str = "alpha.kubernetes.io/provided-node-ip";
/// Source: Kubernetes, the conditions of a Node.
const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// A change of the Nodes.
pub type CloudNodesChange = Change<CloudNode>;

/// Why a Node was not patched or deleted.
#[derive(Debug, thiserror::Error)]
pub enum WriteNodeError {
    /// It does not exist any more.
    #[error("Node {0} does not exist any more")]
    Gone(String),
    /// It was changed since the version that the patch was planned from, or another of that name is there.
    #[error("Node {0} has changed since it was read")]
    Changed(String),
    /// The API server refused, or did not answer.
    #[error("cannot write Node {node} (the role needs {needs})")]
    Failed {
        /// Which Node.
        node: String,
        /// The rule of the role.
        needs: &'static str,
        /// Why.
        #[source]
        source: Box<ApiError>,
    },
}

impl WriteNodeError {
    /// What the step is told.
    pub fn fault(&self) -> PatchFault {
        match self {
            Self::Gone(_) => PatchFault::Gone,
            Self::Changed(_) => PatchFault::Changed,
            Self::Failed { .. } => PatchFault::Failed,
        }
    }

    fn of(node: &str, needs: &'static str, source: kube::Error) -> Self {
        match source {
            kube::Error::Api(status) if status.code == 404 => Self::Gone(node.to_owned()),
            kube::Error::Api(status) if status.code == 409 => Self::Changed(node.to_owned()),
            source => Self::Failed { node: node.to_owned(), needs, source: ApiError::boxed(source) },
        }
    }
}

/// Follows the Nodes until the receiver is dropped. Poll the future beside the receiver.
pub fn follow_cloud_nodes(client: Client) -> (impl Future<Output = ()>, mpsc::Receiver<CloudNodesChange>) {
    let (changes, told) = mpsc::channel(WAITING);
    (follow::<SlimCloudNode>(client, NODES, Interest::default(), changes), told)
}

/// Patches the Node of this uid. A patch of its taints needs that it is still at this version. Returns the Node after it.
///
/// # Errors
/// [`WriteNodeError`].
pub async fn patch_node(
    client: &Client,
    node: &str,
    uid: &str,
    version: u64,
    patch: &Patch,
) -> Result<CloudNode, WriteNodeError> {
    let whole = |labels: Map<String, Value>, provider_id: Option<&String>, taints: &[Taint]| {
        let mut metadata = json!({"uid": uid, "resourceVersion": version.to_string()});
        if !labels.is_empty() {
            metadata["labels"] = labels.into();
        }
        let taints: Vec<SlimTaint> = taints.iter().cloned().map(SlimTaint::from).collect();
        // The list has no keys that a patch could name, so it is replaced, and the version guards it.
        let mut spec = json!({ "taints": if taints.is_empty() { Value::Null } else { json!(taints) } });
        if let Some(provider_id) = provider_id {
            spec["providerID"] = json!(provider_id);
        }
        json!({"metadata": metadata, "spec": spec})
    };
    let (part, needs, media, body) = match patch {
        Patch::Status { addresses, network } => {
            let mut status = Map::new();
            if let Some(addresses) = addresses {
                // Merged by type, two addresses of one type would become one.
                let replaced = json!({"$patch": "replace"});
                let all = addresses.iter().map(|one| json!({"type": one.kind, "address": one.address}));
                status.insert("addresses".to_owned(), [replaced].into_iter().chain(all).collect());
            }
            if let Some(network) = network {
                let now = format!("{:.0}", Timestamp::now());
                let condition = json!({
                    "type": NETWORK_UNAVAILABLE,
                    "status": if network.is_unavailable { "True" } else { "False" },
                    "reason": network.reason, "message": network.message,
                    "lastTransitionTime": now, "lastHeartbeatTime": now,
                });
                status.insert("conditions".to_owned(), json!([condition]));
            }
            let body = json!({"metadata": {"uid": uid}, "status": status});
            ("/status", "patch on nodes/status", "application/strategic-merge-patch+json", body)
        }
        Patch::Initialise { provider_id, labels, taints } => {
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
            let body = whole(labels, provider_id.as_ref(), taints);
            ("", "patch on nodes", "application/merge-patch+json", body)
        }
        Patch::Labels(labels) => {
            let labels: Map<String, Value> =
                labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
            let body = json!({"metadata": {"uid": uid, "labels": labels}});
            ("", "patch on nodes", "application/merge-patch+json", body)
        }
        Patch::Taints(taints) => {
            ("", "patch on nodes", "application/merge-patch+json", whole(Map::new(), None, taints))
        }
    };
    let failed = |source| WriteNodeError::of(node, needs, source);
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("{NODES}/{node}{part}?fieldManager=lazuli"))
        .header("content-type", media)
        .body(body.to_string().into_bytes())
        .map_err(|error| failed(kube::Error::HttpError(error)))?;
    let patched = answered(client.request::<SlimCloudNode>(request)).await.map_err(failed)?;
    Ok(patched.into_node())
}

/// Deletes the Node of this uid. One that is gone already is deleted.
///
/// # Errors
/// [`WriteNodeError`]; another Node of the name is there.
pub async fn delete_node(client: &Client, node: &str, uid: &str) -> Result<(), WriteNodeError> {
    let failed = |source| WriteNodeError::of(node, "delete on nodes", source);
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    let request = Request::builder()
        .method(Method::DELETE)
        .uri(format!("{NODES}/{node}"))
        .header("content-type", "application/json")
        .body(options.to_string().into_bytes())
        .map_err(|error| failed(kube::Error::HttpError(error)))?;
    match answered(client.request::<Value>(request)).await.map_err(failed) {
        Ok(_) | Err(WriteNodeError::Gone(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The names of the Nodes of the control plane.
///
/// # Errors
/// The API server refused, or did not answer.
pub async fn control_plane(client: &Client) -> Result<Vec<String>, WriteNodeError> {
    let mut names = Vec::new();
    let mut pages = Pages::new(client, NODES);
    let failed = |source| WriteNodeError::of("of the control plane", "list on nodes", source);
    while let Some(page) = pages.next::<SlimCloudNode>().await.map_err(failed)? {
        for node in page.into_items() {
            let label = |key: &str| node.metadata.labels.get(key).map(String::as_str);
            if is_control_plane(label) {
                names.push(node.metadata.base.name);
            }
        }
    }
    Ok(names)
}

/// Whether a Node of this name exists, by a read that no cache answers.
///
/// # Errors
/// The API server refused, or did not answer.
pub async fn node_exists(client: &Client, node: &str) -> Result<bool, WriteNodeError> {
    let read = get::<SlimCloudNode>(client, NODES, node).await;
    read.map(|node| node.is_some()).map_err(|source| WriteNodeError::of(node, "get on nodes", source))
}

#[derive(Debug, Clone, Deserialize)]
struct SlimCloudNode {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(flatten)]
    base: SlimMetadata,
    #[serde(default)]
    uid: String,
    #[serde(default, deserialize_with = "null_as_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_empty")]
    annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
    creation_timestamp: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    #[serde(rename = "podCIDR")]
    pod_range: Option<String>,
    #[serde(rename = "podCIDRs", deserialize_with = "null_as_empty")]
    pod_ranges: Vec<String>,
    #[serde(deserialize_with = "null_as_empty")]
    taints: Vec<SlimTaint>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimTaint {
    key: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_empty")]
    value: String,
    effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_added: Option<String>,
}

impl From<Taint> for SlimTaint {
    fn from(Taint { key, value, effect, time_added }: Taint) -> Self {
        Self { key, value, effect, time_added }
    }
}

impl From<SlimTaint> for Taint {
    fn from(SlimTaint { key, value, effect, time_added }: SlimTaint) -> Self {
        Self { key, value, effect, time_added }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "null_as_empty")]
    addresses: Vec<SlimAddress>,
    #[serde(deserialize_with = "null_as_empty")]
    conditions: Vec<NodeCondition>,
    #[serde(rename = "nodeInfo", deserialize_with = "null_as_empty")]
    info: NodeInfo,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "bootID")]
    boot_id: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlimAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

impl SlimCloudNode {
    fn into_node(self) -> CloudNode {
        let Self { metadata, spec, status } = self;
        let label = |key: &str| metadata.labels.get(key).map(String::as_str);
        let provided = metadata.annotations.get(PROVIDED_ADDRESSES).map(String::as_str).unwrap_or_default();
        let network = status.conditions.iter().find(|one| one.kind == NETWORK_UNAVAILABLE);
        let (resource_group, is_unmanaged) = (label(RESOURCE_GROUP).map(str::to_owned), is_unmanaged(label(MANAGED)));
        let only = spec.pod_range.filter(|_| spec.pod_ranges.is_empty());
        CloudNode {
            version: metadata.base.resource_version.parse().unwrap_or_default(),
            name: metadata.base.name,
            uid: metadata.uid,
            provider_id: spec.provider_id.filter(|id| !id.is_empty()),
            is_unmanaged,
            resource_group: resource_group.filter(|group| !group.is_empty()),
            taints: spec.taints.into_iter().map(Taint::from).collect(),
            addresses: status
                .addresses
                .into_iter()
                .map(|SlimAddress { kind, address }| NodeAddress { kind, address })
                .collect(),
            provided_addresses: provided.split(',').filter_map(|text| text.trim().parse().ok()).collect(),
            pod_ranges: spec.pod_ranges.into_iter().chain(only.filter(|range| !range.is_empty())).collect(),
            is_ready: is_ready(&status.conditions),
            is_network_unavailable: match network.map(|one| one.status.as_str()) {
                Some("True") => Some(true),
                Some("False") => Some(false),
                _ => None,
            },
            created: metadata.creation_timestamp.unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            boot_id: Some(status.info.boot_id).filter(|boot| !boot.is_empty()),
            facts: metadata.annotations.get(facts::ANNOTATION).and_then(|text| InstanceFacts::parse(text)),
            metadata_labels: labels::OF_METADATA.into_iter().filter(|key| metadata.labels.contains_key(*key)).collect(),
        }
    }
}

impl Slim for SlimCloudNode {
    type Kept = CloudNode;

    fn metadata(&self) -> &SlimMetadata {
        &self.metadata.base
    }

    fn keep(self, _: &Interest) -> Option<CloudNode> {
        Some(self.into_node())
    }
}

#[cfg(test)]
mod tests {
    use lazuli_apiserver::{ApiServer, Options};
    use lazuli_nodes::cloud_node::step::NetworkCondition;

    use super::*;

    fn start(node: Value) -> (ApiServer, Client, CloudNode) {
        let server = ApiServer::start(Options::default());
        let client = Client::new(server.router(), "default");
        let made: SlimCloudNode = serde_json::from_value(server.put("nodes", node).unwrap()).unwrap();
        (server, client, made.into_node())
    }

    fn node() -> Value {
        let taint =
            |key: &str| json!({"key": key, "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
        json!({"metadata": {"name": "n", "labels": {"team": "x", MANAGED: "true"},
                "annotations": {PROVIDED_ADDRESSES: "10.0.0.5, fd01::5",
                    facts::ANNOTATION: r#"{"resourceId": "/x", "vmSize": "s", "subFaultDomain": "2"}"#}},
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00::/64"],
                "taints": [taint("a"), taint("b")]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}],
                "nodeInfo": {"bootID": "b", "kernelVersion": "6"}, "addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]}})
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_followed_with_what_a_cloud_controller_needs() {
        let (_server, client, made) = start(node());
        let (following, mut told) = follow_cloud_nodes(client);
        tokio::spawn(following);
        let Some(Change::Replaced(all)) = told.recv().await else { panic!("no list") };
        assert_eq!(all, [("n".to_owned(), made.clone())]);
        assert_eq!(made.pod_ranges, ["10.244.1.0/24", "fd00::/64"]);
        assert_eq!(made.provided_addresses.len(), 2);
        assert_eq!(made.facts.as_ref().and_then(|facts| facts.sub_fault_domain.as_deref()), Some("2"));
        assert_eq!(made.boot_id.as_deref(), Some("b"));
        assert_eq!(made.metadata_labels, [""; 0]);
        assert_eq!(made.taints[0].time_added.as_deref(), Some("2026-01-01T00:00:00Z"));
        assert!(made.is_ready && !made.is_unmanaged && made.is_network_unavailable.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn patches_change_what_they_name_and_leave_the_rest() {
        let (server, client, made) = start(node());
        let address = |address: &str| NodeAddress { kind: "InternalIP".to_owned(), address: address.to_owned() };
        let network = NetworkCondition { is_unavailable: true, reason: "R", message: "m" };
        let status =
            Patch::Status { addresses: Some(vec![address("10.0.0.5"), address("fd01::5")]), network: Some(network) };
        let patched = patch_node(&client, "n", &made.uid, made.version, &status).await.unwrap();
        assert_eq!(patched.addresses, [address("10.0.0.5"), address("fd01::5")]);
        assert_eq!((patched.is_ready, patched.is_network_unavailable), (true, Some(true)));
        let taints = patched.taints[1..].to_vec();
        let whole = Patch::Initialise {
            provider_id: Some("azure:///x".to_owned()),
            labels: vec![("zone", "1".to_owned())],
            taints: taints.clone(),
        };
        let old = patch_node(&client, "n", &made.uid, made.version, &whole).await;
        assert!(matches!(old, Err(WriteNodeError::Changed(_))), "{old:?}");
        let patched = patch_node(&client, "n", &made.uid, patched.version, &whole).await.unwrap();
        assert_eq!((patched.provider_id.as_deref(), patched.taints), (Some("azure:///x"), taints));
        let now = server.get("nodes", "", "n").unwrap();
        assert_eq!(now["metadata"]["labels"], json!({"team": "x", MANAGED: "true", "zone": "1"}));
        assert_eq!(now["status"]["conditions"].as_array().unwrap().len(), 3);
        let none = Patch::Taints(vec![]);
        let patched = patch_node(&client, "n", &made.uid, patched.version, &none).await.unwrap();
        assert_eq!(patched.taints, []);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_node_of_the_uid_is_written_and_deleted() {
        let (server, client, made) = start(node());
        let other = "00000000-0000-0000-0000-000000000000";
        let status = Patch::Status { addresses: Some(vec![]), network: None };
        let patched = patch_node(&client, "n", other, made.version, &status).await;
        assert!(matches!(patched, Err(WriteNodeError::Changed(_))), "{patched:?}");
        let deleted = delete_node(&client, "n", other).await;
        assert!(matches!(deleted, Err(WriteNodeError::Changed(_))), "{deleted:?}");
        assert!(server.get("nodes", "", "n").is_some());
        delete_node(&client, "n", &made.uid).await.unwrap();
        assert!(server.get("nodes", "", "n").is_none());
        delete_node(&client, "n", &made.uid).await.unwrap();
        let gone = patch_node(&client, "n", &made.uid, made.version, &status).await;
        assert!(matches!(gone, Err(WriteNodeError::Gone(_))), "{gone:?}");
    }
}
