//! What a request of a node for the key of a storage account rests on ([`lazuli_shares::secret::may_have`]): whose token it
//! is, the PersistentVolume and its claim, and the Pods of the node. Each is read when the request has come; no snapshot
//! answers here.
//!
//! And how a node finds those that answer: the addresses of a Service.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use kube::{Client, api::ListParams};
use lazuli_model::{Secret, kube_name::is_subdomain};
use lazuli_shares::{
    secret::{PodSeen, Requester, VolumeSeen, key_source_of},
    volume_id::ShareVolumeId,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    client::{get, null_as_empty, select},
    endpoints::SLICES,
    metrics_review::{ReviewError, TOKEN_REVIEWS, UserInfo, made},
    reservations::VOLUMES,
    server::ApiError,
    shares::StageSecret,
};

const PODS: &str = "/api/v1/pods";

/// Where a TokenReview names the node to which a token is bound. Source: Kubernetes 1.30, `ServiceAccountTokenPodNodeInfo`.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// What the users of ServiceAccounts are named after. Source: Kubernetes.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// What kubelet writes on the Pods that it has made from its own files. Source: Kubernetes.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Why the cluster does not tell.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what} (the role needs {needs})")]
pub struct KeyFactsError {
    what: String,
    needs: &'static str,
    #[source]
    source: Box<ApiError>,
}

fn failed(what: impl Into<String>, needs: &'static str) -> impl FnOnce(kube::Error) -> KeyFactsError {
    move |source| KeyFactsError { what: what.into(), needs, source: ApiError::boxed(source) }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: UserInfo,
    #[serde(deserialize_with = "null_as_empty")]
    audiences: Vec<String>,
}

/// Asks the API server whose token this is; `None` where it is not the token of a ServiceAccount for this audience.
///
/// # Errors
/// [`ReviewError`]: there is no answer.
pub async fn review_node_token(
    client: &Client,
    token: &Secret,
    audience: &str,
) -> Result<Option<Requester>, ReviewError> {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token.expose(), "audiences": [audience]},
    });
    let status: TokenStatus = made(client, TOKEN_REVIEWS, "tokenreviews", &review).await?;
    Ok(requester(&status, audience))
}

/// An authenticator that knows no audiences answers without any, and its word is not taken (source:
/// `TokenReviewStatus.audiences`).
fn requester(status: &TokenStatus, audience: &str) -> Option<Requester> {
    if !status.authenticated || !status.audiences.iter().any(|one| one == audience) {
        return None;
    }
    let (namespace, service_account) = status.user.username.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let node = match status.user.extra.get(NODE_NAME).and_then(Value::as_array).map(Vec::as_slice) {
        Some([node]) => node.as_str().map(str::to_owned),
        _ => None,
    };
    Some(Requester { namespace: namespace.to_owned(), service_account: service_account.to_owned(), node })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyVolume {
    spec: KeyVolumeSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyVolumeSpec {
    csi: Option<KeyVolumeCsi>,
    claim_ref: Option<ClaimRef>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyVolumeCsi {
    driver: String,
    volume_handle: String,
    #[serde(default, deserialize_with = "null_as_empty")]
    volume_attributes: BTreeMap<String, String>,
    node_stage_secret_ref: Option<StageSecret>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClaimRef {
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyClaim {
    metadata: KeyClaimMetadata,
    #[serde(default)]
    spec: KeyClaimSpec,
}

#[derive(Deserialize)]
struct KeyClaimMetadata {
    #[serde(default)]
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KeyClaimSpec {
    volume_name: String,
}

impl ClaimRef {
    /// Whether this claim, which now has the name, is the one that was bound: one that was deleted and made anew is
    /// another, and a claim may be bound to another volume than the one that is reserved for it. kubelet judges so too.
    fn is_bound(&self, volume: &str, claim: &KeyClaim) -> bool {
        !self.uid.is_empty() && claim.metadata.uid == self.uid && claim.spec.volume_name == volume
    }
}

/// Reads a PersistentVolume that may have this volume id, and its claim; `None` where it is not of the driver, or has
/// another id by now.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn share_volume(
    client: &Client,
    driver: &str,
    name: &str,
    volume_id: &str,
) -> Result<Option<VolumeSeen>, KeyFactsError> {
    let read: Option<KeyVolume> = get(client, VOLUMES, name)
        .await
        .map_err(failed(format!("PersistentVolume {name}"), "get on persistentvolumes"))?;
    let Some(KeyVolumeSpec { csi: Some(csi), claim_ref }) = read.map(|volume| volume.spec) else { return Ok(None) };
    if csi.driver != driver || csi.volume_handle != volume_id {
        return Ok(None);
    }
    let mut bound = None;
    if let Some(claim) = claim_ref.filter(|claim| is_subdomain(&claim.namespace) && is_subdomain(&claim.name)) {
        let collection = format!("/api/v1/namespaces/{}/persistentvolumeclaims", claim.namespace);
        let what = format!("PersistentVolumeClaim {}/{}", claim.namespace, claim.name);
        let now: Option<KeyClaim> =
            get(client, &collection, &claim.name).await.map_err(failed(what, "get on persistentvolumeclaims"))?;
        bound = now.filter(|now| claim.is_bound(name, now)).map(|_| (claim.namespace, claim.name));
    }
    let id = ShareVolumeId::parse(volume_id).ok();
    let staged = csi.node_stage_secret_ref.and_then(StageSecret::secret);
    let key = key_source_of(&csi.volume_attributes, id.as_ref(), staged.as_ref());
    Ok(Some(VolumeSeen { name: name.to_owned(), claim: bound, key }))
}

#[derive(Deserialize)]
struct KeyPod {
    metadata: KeyPodMetadata,
    #[serde(default)]
    spec: KeyPodSpec,
    #[serde(default)]
    status: KeyPodStatus,
}

#[derive(Deserialize)]
struct KeyPodMetadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default, deserialize_with = "null_as_empty")]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KeyPodSpec {
    node_name: String,
    #[serde(deserialize_with = "null_as_empty")]
    volumes: Vec<KeyPodVolume>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeyPodStatus {
    phase: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyPodVolume {
    name: String,
    persistent_volume_claim: Option<ClaimSource>,
    ephemeral: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSource {
    claim_name: String,
}

impl KeyPod {
    fn seen(self) -> PodSeen {
        let Self { metadata, spec, status } = self;
        // A node itself writes the Pods that mirror its files, and kubelet gives such Pods no claims.
        let is_mirror = metadata.annotations.contains_key(MIRROR);
        let claim = |volume: KeyPodVolume| match (volume.persistent_volume_claim, volume.ephemeral) {
            (Some(source), _) => Some(source.claim_name),
            // Source of the name: Kubernetes, generic ephemeral volumes.
            (None, Some(_)) => Some(format!("{}-{}", metadata.name, volume.name)),
            (None, None) => None,
        };
        let claims: BTreeSet<String> = spec.volumes.into_iter().filter(|_| !is_mirror).filter_map(claim).collect();
        let has_ended = matches!(status.phase.as_str(), "Succeeded" | "Failed");
        PodSeen { namespace: metadata.namespace, node: spec.node_name, claims, has_ended }
    }
}

/// The Pods of a node, and the claims that they use.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn pods_of_node(client: &Client, node: &str) -> Result<Vec<PodSeen>, KeyFactsError> {
    if !is_subdomain(node) {
        return Ok(Vec::new());
    }
    let only = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods: Vec<KeyPod> =
        select(client, PODS, &only).await.map_err(failed(format!("the Pods of node {node}"), "list on pods"))?;
    Ok(pods.into_iter().map(KeyPod::seen).collect())
}

#[derive(Deserialize)]
struct AddressSlice {
    #[serde(default, deserialize_with = "null_as_empty")]
    endpoints: Vec<AddressEndpoint>,
    #[serde(default, deserialize_with = "null_as_empty")]
    ports: Vec<AddressPort>,
}

#[derive(Deserialize)]
struct AddressEndpoint {
    #[serde(default, deserialize_with = "null_as_empty")]
    addresses: Vec<String>,
    #[serde(default, deserialize_with = "null_as_empty")]
    conditions: AddressConditions,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AddressConditions {
    ready: Option<bool>,
}

#[derive(Deserialize)]
struct AddressPort {
    port: Option<u16>,
}

/// Where the Pods of a Service with one port answer, by its EndpointSlices: first those that are ready. One that is not ready
/// may answer all the same.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn service_addresses(
    client: &Client,
    namespace: &str,
    service: &str,
) -> Result<Vec<SocketAddr>, KeyFactsError> {
    if !is_subdomain(namespace) || !is_subdomain(service) {
        return Ok(Vec::new());
    }
    let collection = SLICES.replace("/endpointslices", &format!("/namespaces/{namespace}/endpointslices"));
    let only = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    let what = format!("the EndpointSlices of Service {namespace}/{service}");
    let slices: Vec<AddressSlice> =
        select(client, &collection, &only).await.map_err(failed(what, "list on endpointslices"))?;
    let mut found: BTreeMap<SocketAddr, bool> = BTreeMap::new();
    for slice in slices {
        let Some(port) = slice.ports.iter().find_map(|port| port.port) else { continue };
        for endpoint in &slice.endpoints {
            let ready = endpoint.conditions.ready.unwrap_or(true);
            for ip in endpoint.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok()) {
                *found.entry(SocketAddr::new(ip, port)).or_default() |= ready;
            }
        }
    }
    let (ready, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, ready)| *ready);
    Ok(ready.into_iter().chain(others).map(|(address, _)| address).collect())
}

#[cfg(test)]
mod tests {
    use lazuli_apiserver::{ApiServer, Options};
    use lazuli_shares::secret::SecretRef;

    use super::*;

    const DRIVER: &str = "file.csi.azure.com";

    fn server() -> (ApiServer, Client) {
        let server = ApiServer::start(Options::default());
        let client = Client::new(server.router(), "default");
        (server, client)
    }

    fn status(status: Value) -> TokenStatus {
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn a_token_counts_for_its_audience_alone_and_names_one_node() {
        let user =
            |node: Value| json!({"username": "system:serviceaccount:kube-system:csi-node", "extra": {NODE_NAME: node}});
        let of = |authenticated: bool, audiences: Value, user: Value| {
            let told = json!({"authenticated": authenticated, "audiences": audiences, "user": user});
            requester(&status(told), "broker")
        };
        let expected = |node: Option<&str>| {
            Some(Requester {
                namespace: "kube-system".into(),
                service_account: "csi-node".into(),
                node: node.map(str::to_owned),
            })
        };
        assert_eq!(of(true, json!(["broker"]), user(json!(["n1"]))), expected(Some("n1")));
        assert_eq!(of(false, json!(["broker"]), user(json!(["n1"]))), None);
        for audiences in [json!(null), json!([]), json!(["https://kubernetes.default.svc"])] {
            assert_eq!(of(true, audiences, user(json!(["n1"]))), None);
        }
        for node in [json!(null), json!([]), json!(["n1", "n2"]), json!("n1"), json!([1])] {
            assert_eq!(of(true, json!(["broker"]), user(node)), expected(None));
        }
        for name in ["system:node:n1", "system:serviceaccount:kube-system", "", "kube-system:csi-node"] {
            assert_eq!(of(true, json!(["broker"]), json!({"username": name})), None, "{name}");
        }
    }

    #[tokio::test]
    async fn a_volume_counts_with_the_claim_that_was_bound_and_no_other_of_its_name() {
        let (server, client) = server();
        let claim = |uid: &str, volume: &str| {
            let object =
                json!({"metadata": {"name": "data", "namespace": "db", "uid": uid}, "spec": {"volumeName": volume}});
            server.put("persistentvolumeclaims", object).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
        };
        let uid = claim("u1", "pv-1");
        let put = |driver: &str, uid: &str| {
            let spec = json!({"csi": {"driver": driver, "volumeHandle": "g#f1#s###db", "volumeAttributes": null},
                "claimRef": {"namespace": "db", "name": "data", "uid": uid}});
            server.put("persistentvolumes", json!({"metadata": {"name": "pv-1"}, "spec": spec})).unwrap();
        };
        let read = async |id: &str| share_volume(&client, DRIVER, "pv-1", id).await.unwrap();
        assert_eq!(read("g#f1#s###db").await, None);
        put(DRIVER, &uid);
        let seen = read("g#f1#s###db").await.unwrap();
        assert_eq!(seen.claim, Some(("db".to_owned(), "data".to_owned())));
        assert_eq!(seen.key.unwrap().account.as_deref(), Some("f1"));
        assert_eq!(read("g#f1#s###dB").await, None);
        let spec = json!({"csi": {"driver": DRIVER, "volumeHandle": "any text", "volumeAttributes": {"shareName": "s"},
            "nodeStageSecretRef": {"name": "mine", "namespace": "team"}}});
        server.put("persistentvolumes", json!({"metadata": {"name": "pv-1"}, "spec": spec})).unwrap();
        let staged = read("any text").await.unwrap().key.unwrap().secret;
        assert_eq!(staged, Some(SecretRef { namespace: "team".into(), name: "mine".into() }));
        put(DRIVER, "of-a-claim-before");
        assert_eq!(read("g#f1#s###db").await.unwrap().claim, None);
        put(DRIVER, "");
        assert_eq!(read("g#f1#s###db").await.unwrap().claim, None);
        put(DRIVER, &uid);
        claim("u1", "pv-2");
        assert_eq!(read("g#f1#s###db").await.unwrap().claim, None);
        put("disk.csi.azure.com", &uid);
        assert_eq!(read("g#f1#s###db").await, None);
    }

    #[tokio::test]
    async fn the_pods_of_a_node_are_those_with_its_name_and_mirrors_use_no_claim() {
        let (server, client) = server();
        let put = |name: &str, node: &str, annotations: Value, phase: &str| {
            let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}, {"name": "e", "emptyDir": {}}]);
            let pod = json!({"metadata": {"name": name, "namespace": "db", "annotations": annotations},
                "spec": {"nodeName": node, "volumes": volumes}, "status": {"phase": phase}});
            server.put("pods", pod).unwrap();
        };
        put("a", "n1", Value::Null, "Running");
        put("b", "n1", json!({MIRROR: "hash"}), "Running");
        put("c", "n2", Value::Null, "Running");
        put("d", "n1", Value::Null, "Succeeded");
        let seen = pods_of_node(&client, "n1").await.unwrap();
        let shown: Vec<_> =
            seen.iter().map(|pod| (pod.claims.iter().map(String::as_str).collect::<Vec<_>>(), pod.has_ended)).collect();
        assert_eq!(shown, [(vec!["a-scratch", "data"], false), (vec![], false), (vec!["d-scratch", "data"], true)]);
        assert!(seen.iter().all(|pod| pod.node == "n1" && pod.namespace == "db"));
        for hostile in ["n1,spec.nodeName!=n1", "", "n1&limit=1"] {
            assert_eq!(pods_of_node(&client, hostile).await.unwrap(), []);
        }
    }

    #[tokio::test]
    async fn the_addresses_of_a_service_are_those_of_its_slices_ready_ones_first() {
        let (server, client) = server();
        let slice = |name: &str, service: &str, endpoints: Value, ports: Value| {
            let metadata = json!({"name": name, "namespace": "ns", "labels": {"kubernetes.io/service-name": service}});
            server
                .put("endpointslices", json!({"metadata": metadata, "endpoints": endpoints, "ports": ports}))
                .unwrap();
        };
        let endpoints = json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": false}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": true}}, {"addresses": ["name.example"]}]);
        slice("k-1", "keys", endpoints, json!([{"name": "keys", "port": 9443}]));
        slice("k-2", "keys", json!([{"addresses": ["fd00::3"]}]), json!([{"port": 9444}]));
        slice("k-3", "keys", json!([{"addresses": ["10.0.0.4"]}]), Value::Null);
        slice("o-1", "other", json!([{"addresses": ["10.0.0.5"]}]), json!([{"port": 1}]));
        let found = service_addresses(&client, "ns", "keys").await.unwrap();
        assert_eq!(found, ["10.0.0.2:9443", "[fd00::3]:9444", "10.0.0.1:9443"].map(|one| one.parse().unwrap()));
        assert_eq!(service_addresses(&client, "ns", "../pods").await.unwrap(), []);
    }
}
