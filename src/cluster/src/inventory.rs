//! What a person's command reads of a cluster, once and whole: Nodes, PersistentVolumes, the LUNs that VolumeAttachments
//! name, Services, the containers of managers, the holder of a Lease. The servers follow these; a command that ends asks
//! for each by one list and fails where the list fails.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use kube::Client;
use lazuli_diagnosis::managers::Container;
use lazuli_model::ServiceKey;
use lazuli_storage::{
    inventory::Volume,
    lun::{LunReservations, Reservation},
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    client::{Pages, get},
    follow::{Interest, Slim as _, SlimMetadata},
    nodes::NODES,
    reservations::{ATTACHMENTS, SlimAttachment, SlimAttachmentSpec, SlimSource, SlimVolumeSpec, VOLUMES},
    server::ApiError,
};

/// Why something of the cluster could not be listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot list {resource}{}", hint(.resource, .source))]
pub struct ListError {
    resource: &'static str,
    #[source]
    source: Box<ApiError>,
}

/// What to do, where a right is missing.
fn hint(resource: &str, source: &ApiError) -> String {
    let is_refused = matches!(source.call(), kube::Error::Api(status) if matches!(status.code, 401 | 403));
    if is_refused { format!(" (the user needs list on {resource})") } else { String::new() }
}

impl ListError {
    /// Why a list of this resource failed.
    pub(super) fn new(resource: &'static str, source: kube::Error) -> Self {
        Self { resource, source: ApiError::boxed(source) }
    }

    /// Whether no API server answered at all, so that nothing else can be listed either.
    pub fn is_unanswered(&self) -> bool {
        matches!(self.source.call(), kube::Error::Service(_) | kube::Error::HyperError(_))
    }

    /// Whether the API server does not know such objects: their definition is not installed.
    pub(super) fn is_unknown_resource(&self) -> bool {
        matches!(self.source.call(), kube::Error::Api(status) if status.code == 404)
    }
}

/// All objects of a collection.
pub(super) async fn list<K: DeserializeOwned>(
    client: &Client,
    collection: &str,
    resource: &'static str,
) -> Result<Vec<K>, ListError> {
    let mut pages = Pages::new(client, collection);
    let mut all = Vec::new();
    let failed = |source| ListError::new(resource, source);
    while let Some(page) = pages.next::<K>().await.map_err(failed)? {
        all.extend(page.into_items());
    }
    Ok(all)
}

/// A Node and what its provider id says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedNode {
    /// Its name.
    pub name: String,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// `spec.podCIDRs`, or `spec.podCIDR` alone.
    pub pod_ranges: Vec<String>,
    /// Its addresses of type `InternalIP`.
    pub addresses: Vec<IpAddr>,
    /// Its other addresses, such as those of type `ExternalIP`.
    pub other_addresses: Vec<IpAddr>,
}

#[derive(Deserialize)]
struct SlimNode {
    metadata: NodeMetadata,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Default, Deserialize)]
struct NodeStatus {
    addresses: Option<Vec<NodeAddress>>,
}

#[derive(Deserialize)]
struct NodeAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

#[derive(Deserialize)]
struct NodeMetadata {
    name: String,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
struct NodeSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    #[serde(rename = "podCIDR")]
    pod_range: Option<String>,
    #[serde(rename = "podCIDRs")]
    pod_ranges: Option<Vec<String>>,
}

/// Lists the Nodes.
///
/// # Errors
/// [`ListError`].
pub async fn list_nodes(client: &Client) -> Result<Vec<ListedNode>, ListError> {
    let parsed = |all: Vec<NodeAddress>| all.into_iter().filter_map(|one| one.address.parse().ok()).collect();
    let listed = |SlimNode { metadata, spec, status }: SlimNode| {
        let all = status.addresses.unwrap_or_default().into_iter();
        let (internal, others): (Vec<_>, Vec<_>) = all.partition(|one| one.kind == "InternalIP");
        ListedNode {
            addresses: parsed(internal),
            other_addresses: parsed(others),
            name: metadata.name,
            provider_id: spec.provider_id.filter(|id| !id.is_empty()),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            pod_ranges: match spec.pod_ranges.unwrap_or_default() {
                none if none.is_empty() => spec.pod_range.into_iter().filter(|range| !range.is_empty()).collect(),
                ranges => ranges,
            },
        }
    };
    Ok(list::<SlimNode>(client, NODES, "nodes").await?.into_iter().map(listed).collect())
}

#[derive(Deserialize)]
struct BoundVolume {
    metadata: SlimMetadata,
    spec: BoundSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BoundSpec {
    #[serde(flatten)]
    volume: SlimVolumeSpec,
    claim_ref: Option<ClaimReference>,
}

#[derive(Clone, Deserialize)]
pub(super) struct ClaimReference {
    #[serde(default)]
    namespace: String,
    // The watch of shares reads it too, and must not lose a volume for a reference that names nothing.
    #[serde(default)]
    name: String,
}

/// As people write it: `namespace/name`.
impl fmt::Display for ClaimReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Lists the PersistentVolumes of a driver, and those of the in-tree plugin.
///
/// # Errors
/// [`ListError`].
pub async fn list_volumes(client: &Client, driver: &str) -> Result<Vec<Volume>, ListError> {
    let volume = |BoundVolume { metadata, spec }: BoundVolume| {
        let claim = spec.claim_ref.map(|claim| claim.to_string());
        Some(Volume { name: metadata.name, handle: spec.volume.handle(driver)?, claim })
    };
    Ok(list::<BoundVolume>(client, VOLUMES, "persistentvolumes").await?.into_iter().filter_map(volume).collect())
}

/// A VolumeAttachment that has attached its volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedAttachment {
    /// The Node.
    pub node: String,
    /// The volume.
    pub volume: AttachedVolume,
}

/// What a VolumeAttachment is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachedVolume {
    /// The PersistentVolume of this name.
    Persistent(String),
    /// The volume with this handle, which a Pod names itself.
    Inline(String),
}

#[derive(Deserialize)]
struct AttachedAttachment {
    spec: SlimAttachmentSpec,
    #[serde(default)]
    status: AttachedStatus,
}

#[derive(Default, Deserialize)]
struct AttachedStatus {
    #[serde(default)]
    attached: bool,
}

/// Lists the VolumeAttachments of a driver that have attached their volume.
///
/// # Errors
/// [`ListError`].
pub async fn list_attachments(client: &Client, driver: &str) -> Result<Vec<ListedAttachment>, ListError> {
    let attachment = |AttachedAttachment { spec, status }: AttachedAttachment| {
        let SlimSource { persistent_volume_name, inline_volume_spec } = spec.source;
        let volume = match persistent_volume_name {
            Some(name) => AttachedVolume::Persistent(name),
            None => AttachedVolume::Inline(inline_volume_spec?.handle(driver)?),
        };
        (status.attached && spec.attacher == driver).then_some(ListedAttachment { node: spec.node_name, volume })
    };
    let all = list::<AttachedAttachment>(client, ATTACHMENTS, "volumeattachments").await?;
    Ok(all.into_iter().filter_map(attachment).collect())
}

/// Lists the LUNs that the VolumeAttachments of a driver name, by node. `volumes` tell the handle of each.
///
/// # Errors
/// [`ListError`].
pub async fn list_reservations(
    client: &Client,
    driver: &str,
    volumes: &[Volume],
) -> Result<LunReservations, ListError> {
    let handles: BTreeMap<&str, &str> =
        volumes.iter().map(|volume| (volume.name.as_str(), volume.handle.as_str())).collect();
    let mut nodes: BTreeMap<String, Vec<Reservation>> = BTreeMap::new();
    let interest = Interest::of_driver(driver);
    for attachment in list::<SlimAttachment>(client, ATTACHMENTS, "volumeattachments").await? {
        let name = attachment.metadata().name.clone();
        if let Some(kept) = attachment.keep(&interest) {
            let (node, reservation) =
                kept.into_reservation(name, |volume| handles.get(volume).map(|h| (*h).to_owned()));
            nodes.entry(node).or_default().push(reservation);
        }
    }
    Ok(LunReservations::Synced(nodes))
}

#[derive(Deserialize)]
struct SlimService {
    metadata: ServiceMetadata,
}

#[derive(Deserialize)]
struct ServiceMetadata {
    name: String,
    namespace: String,
    #[serde(default)]
    uid: String,
}

/// Lists all Services, of whichever type.
///
/// # Errors
/// [`ListError`].
pub async fn list_services(client: &Client) -> Result<Vec<ServiceKey>, ListError> {
    let key = |SlimService { metadata }: SlimService| ServiceKey::new(metadata.namespace, metadata.name, metadata.uid);
    Ok(list::<SlimService>(client, "/api/v1/services", "services").await?.into_iter().map(key).collect())
}

#[derive(Deserialize)]
struct SlimPod {
    metadata: PodMetadata,
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMetadata {
    name: String,
    namespace: String,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct OwnerReference {
    kind: String,
    name: String,
}

#[derive(Deserialize)]
struct PodSpec {
    containers: Option<Vec<SlimContainer>>,
}

#[derive(Deserialize)]
struct SlimContainer {
    #[serde(default)]
    image: String,
    command: Option<Vec<String>>,
    args: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: String,
}

/// The label with which a Deployment tells the pods of its versions apart. Source: Kubernetes.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The label by which charts name their release. Source: Helm's labels.
const INSTANCE: &str = "app.kubernetes.io/instance";

impl PodMetadata {
    fn label(&self, key: &str) -> Option<String> {
        self.labels.as_ref()?.get(key).filter(|value| !value.is_empty()).cloned()
    }

    /// What made the pod. Of a ReplicaSet it is the Deployment, for an update of that makes another ReplicaSet.
    fn owner(&self) -> String {
        let Some(owner) = self.owner_references.iter().flatten().next() else { return format!("Pod/{}", self.name) };
        let hash = self.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH));
        let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
        match deployment {
            Some(name) if owner.kind == "ReplicaSet" => format!("Deployment/{name}"),
            _ => format!("{}/{}", owner.kind, owner.name),
        }
    }
}

/// Lists the containers of the pods that run in a namespace.
///
/// # Errors
/// [`ListError`].
pub async fn list_containers(client: &Client, namespace: &str) -> Result<Vec<Container>, ListError> {
    let mut containers = Vec::new();
    for pod in list::<SlimPod>(client, &format!("/api/v1/namespaces/{namespace}/pods"), "pods").await? {
        if pod.status.phase != "Running" || pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let (owner, release) = (pod.metadata.owner(), pod.metadata.label(INSTANCE));
        for container in pod.spec.containers.into_iter().flatten() {
            let command = container.command.into_iter().chain(container.args).flatten().collect();
            containers.push(Container {
                namespace: pod.metadata.namespace.clone(),
                pod: pod.metadata.name.clone(),
                owner: owner.clone(),
                image: container.image,
                command,
                release: release.clone(),
            });
        }
    }
    Ok(containers)
}

#[derive(Deserialize)]
struct SlimLease {
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
}

/// Reads who holds a Lease; `None` where no replica does, or where there is none.
///
/// # Errors
/// [`ListError`].
pub async fn lease_holder(client: &Client, namespace: &str, name: &str) -> Result<Option<String>, ListError> {
    let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let read = get::<SlimLease>(client, &collection, name).await;
    let lease = read.map_err(|source| ListError { resource: "leases", source: ApiError::boxed(source) })?;
    Ok(lease.and_then(|lease| lease.spec.holder_identity).filter(|holder| !holder.is_empty()))
}

#[cfg(test)]
mod tests {
    use lazuli_apiserver::{ApiServer, Options};
    use lazuli_storage::lun::NodeReservations;
    use serde_json::json;

    use super::*;

    const DRIVER: &str = "disk.csi.azure.com";
    const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";

    #[tokio::test]
    async fn nodes_volumes_and_reserved_luns_are_listed_whole() {
        let server = ApiServer::start(Options::default());
        let put = |collection: &str, object| drop(server.put(collection, object).unwrap());
        put("nodes", json!({"metadata": {"name": "a", "labels": {"k": "v"}}, "spec": {"podCIDR": "10.244.0.0/24"}}));
        put("nodes", json!({"metadata": {"name": "b"}, "spec": {"providerID": "azure:///x", "podCIDRs": ["c", "d"]}}));
        let csi = json!({"driver": DRIVER, "volumeHandle": DISK});
        let claim = json!({"namespace": "shop", "name": "data"});
        put("persistentvolumes", json!({"metadata": {"name": "p"}, "spec": {"csi": csi, "claimRef": claim}}));
        put("persistentvolumes", json!({"metadata": {"name": "old"}, "spec": {"azureDisk": {"diskURI": DISK}}}));
        let other = json!({"driver": "other", "volumeHandle": "h"});
        put("persistentvolumes", json!({"metadata": {"name": "q"}, "spec": {"csi": other}}));
        let attachment = |name: &str, attacher: &str| {
            json!({"metadata": {"name": name},
                "spec": {"attacher": attacher, "nodeName": "a", "source": {"persistentVolumeName": "p"}},
                "status": {"attached": true, "attachmentMetadata": {"LUN": "5"}}})
        };
        put("volumeattachments", attachment("one", DRIVER));
        put("volumeattachments", attachment("two", "other"));
        let client = Client::new(server.router(), "default");

        let nodes = list_nodes(&client).await.unwrap();
        assert_eq!(nodes[0].labels["k"], "v");
        assert_eq!(nodes[0].pod_ranges, ["10.244.0.0/24"]);
        assert_eq!(
            (nodes[1].provider_id.as_deref(), &nodes[1].pod_ranges[..]),
            (Some("azure:///x"), &["c".to_owned(), "d".to_owned()][..])
        );
        let volumes = list_volumes(&client, DRIVER).await.unwrap();
        let named = |name: &str, claim: Option<&str>| Volume {
            name: name.to_owned(),
            handle: DISK.to_owned(),
            claim: claim.map(str::to_owned),
        };
        assert_eq!(volumes, [named("old", None), named("p", Some("shop/data"))]);
        let reserved = list_reservations(&client, DRIVER, &volumes).await.unwrap();
        let NodeReservations::Known(luns) = reserved.of_node(&["a"]) else { panic!("{reserved:?}") };
        let disks = [Some(DISK.parse().unwrap())].into();
        assert_eq!(luns, [("5".parse().unwrap(), disks)].into());
    }

    #[tokio::test]
    async fn services_containers_and_holders_are_listed() {
        let server = ApiServer::start(Options::default());
        let put = |collection: &str, object| drop(server.put(collection, object).unwrap());
        put("services", json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"ports": [{"port": 80}]}}));
        let pod = |name: &str, owner: serde_json::Value, phase: &str| {
            let labels = json!({"pod-template-hash": "5d4"});
            let container = json!({"name": "c", "image": "i:1", "command": ["/lazuli"], "args": ["cloud-controllers"]});
            json!({"metadata": {"name": name, "namespace": "kube-system", "labels": labels, "ownerReferences": owner},
                "spec": {"containers": [container]}, "status": {"phase": phase}})
        };
        let owner = |kind: &str, name: &str| json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": "u"}]);
        put("pods", pod("a", owner("ReplicaSet", "lazuli-5d4"), "Running"));
        put("pods", pod("b", owner("Node", "cp-1"), "Running"));
        put("pods", pod("c", json!([]), "Running"));
        put("pods", pod("d", json!([]), "Succeeded"));
        let lease = json!({"metadata": {"name": "l", "namespace": "kube-system"}, "spec": {"holderIdentity": "me"}});
        put("leases", lease);
        let client = Client::new(server.router(), "default");
        let services = list_services(&client).await.unwrap();
        assert_eq!(services[0].tag_name(), "shop/web");
        assert!(!services[0].uid.is_empty());
        let containers = list_containers(&client, "kube-system").await.unwrap();
        let owners: Vec<&str> = containers.iter().map(|container| container.owner.as_str()).collect();
        assert_eq!(owners, ["Deployment/lazuli", "Node/cp-1", "Pod/c"]);
        assert_eq!(containers[0].command, ["/lazuli", "cloud-controllers"]);
        assert_eq!(lease_holder(&client, "kube-system", "l").await.unwrap().as_deref(), Some("me"));
        assert_eq!(lease_holder(&client, "kube-system", "none").await.unwrap(), None);
    }
}
