//! What a person's command reads of the snapshot API of Kubernetes (source: kubernetes-csi/external-snapshotter): which of its
//! types there are, VolumeSnapshotClasses and VolumeSnapshotContents. No server needs it.

use std::collections::BTreeMap;

use kube::{Client, api::ListParams, core::Request};
use lazuli_diagnosis::snapshots::{OwnedType, SnapshotClass, SnapshotContent};
use lazuli_model::kube_name::is_subdomain;
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    client::{PAGE, Page, answered},
    inventory::{ClaimReference, ListError, list},
};

const GROUP: &str = "snapshot.storage.k8s.io/v1";
const CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
pub(super) const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
/// The annotation of the class of VolumeSnapshots that name none.
const DEFAULT: &str = "snapshot.storage.kubernetes.io/is-default-class";

/// The collections of the snapshot API that the API server has; none where it does not know the group.
///
/// # Errors
/// [`ListError`].
pub async fn snapshot_types(client: &Client) -> Result<Vec<String>, ListError> {
    match answered(client.list_api_group_resources(GROUP)).await {
        Ok(listed) => Ok(listed.resources.into_iter().map(|one| one.name).filter(|name| !name.contains('/')).collect()),
        Err(source) => known(Err(ListError::new("the types of snapshot.storage.k8s.io/v1", source))),
    }
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The annotations by which Helm knows the objects of a release. Source: Helm.
const HELM_RELEASE: [&str; 2] = ["meta.helm.sh/release-name", "meta.helm.sh/release-namespace"];

#[derive(Deserialize)]
struct SlimDefinition {
    metadata: SlimMetadata,
}

/// The CustomResourceDefinitions of these collections of the snapshot API that a Helm release has made. An API server that has
/// no such objects has none.
///
/// # Errors
/// [`ListError`].
pub async fn owned_snapshot_types(client: &Client, types: &[String]) -> Result<Vec<OwnedType>, ListError> {
    let group = GROUP.trim_end_matches("/v1");
    let mut owned = Vec::new();
    for collection in types {
        let name = format!("{collection}.{group}");
        let found = known_one(one::<SlimDefinition>(client, DEFINITIONS, &name, "customresourcedefinitions").await)?;
        let Some(found) = found.filter(|found| found.metadata.name == name) else { continue };
        let annotations = found.metadata.annotations.unwrap_or_default();
        let [release, namespace] = HELM_RELEASE.map(|key| annotations.get(key).cloned());
        if let Some(release) = release {
            owned.push(OwnedType { name, release, namespace: namespace.unwrap_or_default() });
        }
    }
    owned.sort();
    Ok(owned)
}

#[derive(Deserialize)]
struct SlimMetadata {
    name: String,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct SlimClass {
    metadata: SlimMetadata,
    #[serde(default)]
    driver: String,
    parameters: Option<BTreeMap<String, String>>,
}

/// Lists the VolumeSnapshotClasses; none where the API server does not know such objects.
///
/// # Errors
/// [`ListError`].
pub async fn list_snapshot_classes(client: &Client) -> Result<Vec<SnapshotClass>, ListError> {
    let class = |SlimClass { metadata, driver, parameters }: SlimClass| SnapshotClass {
        name: metadata.name,
        driver,
        parameters: parameters.unwrap_or_default(),
        is_default: metadata.annotations.unwrap_or_default().get(DEFAULT).is_some_and(|value| value == "true"),
    };
    let listed = known(list::<SlimClass>(client, CLASSES, "volumesnapshotclasses").await)?;
    Ok(listed.into_iter().map(class).collect())
}

#[derive(Deserialize)]
struct SlimContent {
    metadata: SlimMetadata,
    spec: SlimSpec,
    #[serde(default)]
    status: Option<SlimHandle>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    #[serde(default)]
    driver: String,
    #[serde(default)]
    source: SlimHandle,
    volume_snapshot_ref: Option<ClaimReference>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimHandle {
    snapshot_handle: Option<String>,
}

/// Lists the VolumeSnapshotContents; none where the API server does not know such objects.
///
/// # Errors
/// [`ListError`].
pub async fn list_snapshot_contents(client: &Client) -> Result<Vec<SnapshotContent>, ListError> {
    let content = |SlimContent { metadata, spec, status }: SlimContent| SnapshotContent {
        name: metadata.name,
        driver: spec.driver,
        handles: spec.source.snapshot_handle.into_iter().chain(status.unwrap_or_default().snapshot_handle).collect(),
        snapshot: spec.volume_snapshot_ref.map(|of| of.to_string()),
    };
    let listed = known(list::<SlimContent>(client, CONTENTS, "volumesnapshotcontents").await)?;
    Ok(listed.into_iter().map(content).collect())
}

/// Lists the handles of the VolumeSnapshotContents of a driver: none where the cluster does not know such objects.
///
/// # Errors
/// [`ListError`].
pub async fn list_snapshot_handles(client: &Client, driver: &str) -> Result<Vec<String>, ListError> {
    let contents = list_snapshot_contents(client).await?.into_iter().filter(|content| content.driver == driver);
    Ok(contents.flat_map(|content| content.handles).collect())
}

/// What the snapshot API says of a VolumeSnapshot and the VolumeSnapshotContent that it is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TakenSnapshot {
    /// The VolumeSnapshotContent; `None` while there is none.
    pub content: Option<String>,
    /// The handle of the snapshot; `None` before the first answer to external-snapshotter.
    pub handle: Option<String>,
    /// The name by which external-snapshotter asks for it (source: its option `--snapshot-name-prefix`, whose default is
    /// `snapshot`).
    pub request: String,
    /// Whether the VolumeSnapshot says that it is ready.
    pub is_ready: bool,
    /// The last failure, in the words of external-snapshotter.
    pub error: Option<String>,
}

#[derive(Deserialize)]
struct SlimSnapshot {
    metadata: NamedWithUid,
    status: Option<SnapshotStatus>,
}

#[derive(Deserialize)]
struct NamedWithUid {
    name: String,
    #[serde(default)]
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SnapshotStatus {
    bound_volume_snapshot_content_name: Option<String>,
    ready_to_use: Option<bool>,
    error: Option<SlimError>,
}

#[derive(Deserialize)]
struct SlimError {
    message: Option<String>,
}

/// Reads what became of a VolumeSnapshot; `None` where there is no such object.
///
/// # Errors
/// [`ListError`].
pub async fn taken_snapshot(client: &Client, namespace: &str, name: &str) -> Result<Option<TakenSnapshot>, ListError> {
    // Both come from a person: a slash in one of them would ask for another resource.
    if !is_subdomain(namespace) || !is_subdomain(name) {
        return Ok(None);
    }
    let collection = format!("/apis/{GROUP}/namespaces/{namespace}/volumesnapshots");
    let found: Option<SlimSnapshot> = known_one(one(client, &collection, name, "volumesnapshots").await)?;
    let Some(found) = found.filter(|found| found.metadata.name == name) else { return Ok(None) };
    let status = found.status.unwrap_or_default();
    let mut taken = TakenSnapshot {
        content: status.bound_volume_snapshot_content_name.filter(|content| !content.is_empty()),
        handle: None,
        request: format!("snapshot-{}", found.metadata.uid),
        is_ready: status.ready_to_use == Some(true),
        error: status.error.and_then(|error| error.message),
    };
    if let Some(name) = taken.content.as_deref().filter(|name| is_subdomain(name)) {
        let content: Option<SlimContent> = known_one(one(client, CONTENTS, name, "volumesnapshotcontents").await)?;
        let content = content.filter(|content| content.metadata.name == name);
        taken.handle = content.and_then(|content| {
            let made = content.status.unwrap_or_default().snapshot_handle;
            made.or(content.spec.source.snapshot_handle)
        });
    }
    Ok(Some(taken))
}

/// The object of a name. A list of one name needs no right that the sidecars, of the same account, do not have.
async fn one<K: DeserializeOwned>(
    client: &Client,
    collection: &str,
    name: &str,
    resource: &'static str,
) -> Result<Option<K>, ListError> {
    let failed = |source| ListError::new(resource, source);
    let only = ListParams::default().fields(&format!("metadata.name={name}")).limit(PAGE);
    let request = Request::new(collection).list(&only).map_err(|error| failed(kube::Error::BuildRequest(error)))?;
    let page: Page<K> = answered(client.request(request)).await.map_err(failed)?;
    Ok(page.into_items().into_iter().next())
}

/// What was found; nothing where the API server does not know such objects.
fn known_one<T>(found: Result<Option<T>, ListError>) -> Result<Option<T>, ListError> {
    match found {
        Err(error) if error.is_unknown_resource() => Ok(None),
        found => found,
    }
}

/// What was listed; nothing where the API server does not know such objects.
fn known<T>(listed: Result<Vec<T>, ListError>) -> Result<Vec<T>, ListError> {
    match listed {
        Err(error) if error.is_unknown_resource() => Ok(vec![]),
        listed => listed,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use lazuli_apiserver::{ApiServer, Options};
    use lazuli_diagnosis::snapshots::TYPES;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake::{FakeApiServer, Mood};

    const DISKS: &str = "disk.csi.azure.com";

    #[tokio::test]
    async fn the_types_of_snapshots_are_those_that_the_api_server_has() {
        let server = ApiServer::start(Options::default());
        let client = Client::new(server.router(), "default");
        let mut types = snapshot_types(&client).await.unwrap();
        types.sort_unstable();
        assert_eq!(types, TYPES);
        let unknown = tower::service_fn(|_: http::Request<Body>| async {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404});
            Ok::<_, Infallible>(
                http::Response::builder().status(404).body(Body::from(status.to_string().into_bytes())).unwrap(),
            )
        });
        let client = Client::new(unknown, "default");
        assert_eq!(snapshot_types(&client).await.unwrap(), Vec::<String>::new());
        assert_eq!(list_snapshot_classes(&client).await.unwrap(), []);
        assert_eq!(list_snapshot_contents(&client).await.unwrap(), []);
    }

    #[tokio::test]
    async fn the_types_that_a_helm_release_has_made_are_told_with_the_release() {
        let answer = |request: http::Request<Body>| async move {
            assert_eq!(request.uri().path(), DEFINITIONS);
            let name = format!("{}.snapshot.storage.k8s.io", TYPES[0]);
            let is_first = request.uri().query().is_some_and(|query| query.contains(&name));
            let annotations = json!({HELM_RELEASE[0]: "azuredisk", HELM_RELEASE[1]: "kube-system"});
            let items =
                if is_first { json!([{"metadata": {"name": name, "annotations": annotations}}]) } else { json!([]) };
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items});
            Ok::<_, Infallible>(http::Response::new(Body::from(list.to_string().into_bytes())))
        };
        let types = TYPES.map(str::to_owned);
        let owned = owned_snapshot_types(&Client::new(tower::service_fn(answer), "default"), &types).await.unwrap();
        let name = format!("{}.snapshot.storage.k8s.io", TYPES[0]);
        assert_eq!(owned, [OwnedType { name, release: "azuredisk".into(), namespace: "kube-system".into() }]);
        // An API server without such objects.
        let client = Client::new(ApiServer::start(Options::default()).router(), "default");
        assert_eq!(owned_snapshot_types(&client, &types).await.unwrap(), []);
    }

    #[tokio::test]
    async fn what_became_of_a_volume_snapshot_is_read_with_its_content_and_its_last_failure() {
        let server = ApiServer::start(Options::default());
        let put = |collection: &str, object| server.put(collection, object).unwrap();
        let snapshot = |name: &str, status| {
            put(
                "volumesnapshots",
                json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {}, "status": status}),
            )
        };
        let nightly = snapshot(
            "nightly",
            json!({"boundVolumeSnapshotContentName": "content-1", "readyToUse": false, "error": {"message": "no"}}),
        );
        snapshot("fresh", Value::Null);
        let spec = json!({"driver": DISKS, "source": {"volumeHandle": "v"}, "deletionPolicy": "Delete"});
        let status = json!({"snapshotHandle": "id"});
        put("volumesnapshotcontents", json!({"metadata": {"name": "content-1"}, "spec": spec, "status": status}));
        let client = Client::new(server.router(), "default");
        let read = async |namespace: &str, name: &str| taken_snapshot(&client, namespace, name).await.unwrap();
        let uid = nightly["metadata"]["uid"].as_str().unwrap();
        let expected = TakenSnapshot {
            content: Some("content-1".into()),
            handle: Some("id".into()),
            request: format!("snapshot-{uid}"),
            is_ready: false,
            error: Some("no".into()),
        };
        assert_eq!(read("shop", "nightly").await, Some(expected));
        let fresh = read("shop", "fresh").await.unwrap();
        assert_eq!((fresh.content, fresh.handle, fresh.error), (None, None, None));
        for (namespace, name) in [("shop", "weekly"), ("db", "nightly"), ("..", "x"), ("shop", "../nightly"), ("", "")]
        {
            assert_eq!(read(namespace, name).await, None, "{namespace}/{name}");
        }
    }

    #[tokio::test]
    async fn classes_and_contents_are_read_with_parameters_handles_and_what_they_are_of() {
        let server = ApiServer::start(Options::default());
        let put = |collection: &str, object| drop(server.put(collection, object).unwrap());
        put(
            "volumesnapshotclasses",
            json!({"metadata": {"name": "plain"}, "driver": DISKS, "deletionPolicy": "Delete"}),
        );
        let metadata = json!({"name": "first", "annotations": {DEFAULT: "true"}});
        let parameters = json!({"incremental": "true"});
        put("volumesnapshotclasses", json!({"metadata": metadata, "driver": DISKS, "parameters": parameters}));
        let client = Client::new(server.router(), "default");
        let classes = list_snapshot_classes(&client).await.unwrap();
        let shown: Vec<_> =
            classes.iter().map(|one| (one.name.as_str(), one.parameters.len(), one.is_default)).collect();
        assert_eq!(shown, [("first", 1, true), ("plain", 0, false)]);

        let content = |name: &str, driver: &str, source: Value, status: Value| {
            let of = json!({"namespace": "shop", "name": format!("of-{name}")});
            let spec = json!({"driver": driver, "source": source, "volumeSnapshotRef": of, "deletionPolicy": "Delete"});
            put("volumesnapshotcontents", json!({"metadata": {"name": name}, "spec": spec, "status": status}));
        };
        content("a", DISKS, json!({"volumeHandle": "v"}), json!({"snapshotHandle": "made"}));
        content("b", DISKS, json!({"snapshotHandle": "given"}), Value::Null);
        content("c", "file.csi.azure.com", json!({"volumeHandle": "v"}), json!({"snapshotHandle": "share"}));
        content("d", DISKS, json!({"volumeHandle": "v"}), json!({}));
        let contents = list_snapshot_contents(&client).await.unwrap();
        let shown: Vec<_> = contents.iter().map(|one| (one.name.as_str(), one.handles.len())).collect();
        assert_eq!(shown, [("a", 1), ("b", 1), ("c", 1), ("d", 0)]);
        assert_eq!(contents[0].snapshot.as_deref(), Some("shop/of-a"));
        assert_eq!(list_snapshot_handles(&client, DISKS).await.unwrap(), ["made", "given"]);
        let server = FakeApiServer::default();
        server.mood(CONTENTS, Mood::Forbids);
        let refused = list_snapshot_handles(&server.client(), DISKS).await.unwrap_err().to_string();
        assert!(refused.contains("the user needs list on volumesnapshotcontents"), "{refused}");
    }
}
