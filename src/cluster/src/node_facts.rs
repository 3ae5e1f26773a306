//! What a node uses of its disks, read live: for the question whether an attachment is dangling
//! ([`lazuli_storage::dangling`]).
//!
//! No snapshot answers here. The VolumeAttachments are listed by a consistent read that begins when the question is
//! asked; PersistentVolumes only resolve handles; the Node and its Lease are read after them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use kube::{
    Client,
    api::GetParams,
    client::Body,
    core::{Request, Status},
};
use lazuli_storage::dangling::{NodeAttachment, NodeFacts};
use serde::Deserialize;

use super::{
    client::{Pages, answered, get, null_as_empty},
    nodes::{NODES, NodeCondition, is_ready},
    reservations::{ATTACHMENTS, SlimAttachment, SlimVolume, SlimVolumeSpec, VOLUMES},
    server::ApiError,
};

/// The nodes' Leases. Source: Kubernetes, `v1.NamespaceNodeLease`.
pub(super) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// By how much a node's clock may run ahead of the API server's.
const AHEAD: SignedDuration = SignedDuration::from_secs(5);

/// Why the facts are not known.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what} (the role needs {needs})")]
pub struct NodeFactsError {
    what: String,
    needs: &'static str,
    #[source]
    source: Box<ApiError>,
}

fn failed(what: impl Into<String>, needs: &'static str) -> impl FnOnce(kube::Error) -> NodeFactsError {
    move |source| NodeFactsError { what: what.into(), needs, source: ApiError::boxed(source) }
}

/// Reads what Kubernetes says about a node. `driver` is the CSI driver's name.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn node_facts(client: &Client, driver: &str, node: &str) -> Result<NodeFacts, NodeFactsError> {
    let attachments = Box::pin(attachments(client, driver, node)).await?;
    let read: SlimNode =
        get(client, NODES, node).await.map_err(failed(format!("node {node}"), "get on nodes"))?.unwrap_or_default();
    let ready = is_ready(&read.status.conditions);
    let attached = read.status.volumes_attached.into_iter().map(|volume| volume.name);
    let volumes = read.status.volumes_in_use.into_iter().chain(attached).collect();
    let lease_age = Box::pin(lease_age(client, node)).await?;
    Ok(NodeFacts { attachments, ready, lease_age, volumes })
}

/// The VolumeAttachments on a node that may be about a disk of this driver, deleted ones that still exist included.
async fn attachments(client: &Client, driver: &str, node: &str) -> Result<Vec<NodeAttachment>, NodeFactsError> {
    let failed_list = |source| failed("the VolumeAttachments", "list on volumeattachments")(source);
    let mut found = Vec::new();
    let mut pages = Pages::new(client, ATTACHMENTS);
    while let Some(page) = pages.next::<SlimAttachment>().await.map_err(failed_list)? {
        let here = |one: &SlimAttachment| one.spec.node_name == node && one.spec.attacher == driver;
        for one in page.into_items().into_iter().filter(here) {
            let source = one.spec.source;
            let spec = match (source.inline_volume_spec, source.persistent_volume_name) {
                (Some(spec), _) => Some(spec),
                (None, Some(volume)) => get::<SlimVolume>(client, VOLUMES, &volume)
                    .await
                    .map_err(failed(format!("PersistentVolume {volume}"), "get on persistentvolumes"))?
                    .map(|volume| volume.spec),
                (None, None) => None,
            };
            let handle = spec.and_then(SlimVolumeSpec::any_handle);
            found.push(NodeAttachment { name: one.metadata.name, handle });
        }
    }
    Ok(found)
}

/// What Kubernetes has attached to a node, by its Node's status: the handles of the driver's volumes. `None` where there
/// is no such Node.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn attached_volumes(
    client: &Client,
    driver: &str,
    node: &str,
) -> Result<Option<Vec<String>>, NodeFactsError> {
    let read: Option<SlimNode> =
        get(client, NODES, node).await.map_err(failed(format!("node {node}"), "get on nodes"))?;
    let handle = |volume: AttachedVolume| {
        // Source: kubelet, `GetUniqueVolumeName` of the CSI plugin.
        let rest = volume.name.strip_prefix("kubernetes.io/csi/")?;
        Some(rest.strip_prefix(driver)?.strip_prefix('^')?.to_owned())
    };
    Ok(read.map(|node| node.status.volumes_attached.into_iter().filter_map(handle).collect()))
}

#[derive(Default, Deserialize)]
struct SlimNode {
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeStatus {
    #[serde(deserialize_with = "null_as_empty")]
    conditions: Vec<NodeCondition>,
    #[serde(deserialize_with = "null_as_empty")]
    volumes_in_use: Vec<String>,
    #[serde(deserialize_with = "null_as_empty")]
    volumes_attached: Vec<AttachedVolume>,
}

#[derive(Deserialize)]
struct AttachedVolume {
    name: String,
}

/// How long ago the node's Lease was renewed, by the clock of the API server that answers: this machine's may be wrong.
/// `None` for a node without a Lease, and for one whose clock runs ahead.
async fn lease_age(client: &Client, node: &str) -> Result<Option<Duration>, NodeFactsError> {
    let failed = |source| failed(format!("the Lease of node {node}"), "get on leases in kube-node-lease")(source);
    let request = Request::new(LEASES)
        .get(node, &GetParams::default())
        .map_err(|source| failed(kube::Error::BuildRequest(source)))?;
    let answer = answered(client.send(request.map(Body::from))).await.map_err(failed)?;
    let status = answer.status();
    let date = answer.headers().get("date").and_then(|date| date.to_str().ok()).map(str::to_owned);
    let body = answered(answer.into_body().collect_bytes()).await.map_err(failed)?;
    if status == 404 {
        return Ok(None);
    }
    if !status.is_success() {
        let refusal = Status::failure(status.canonical_reason().unwrap_or("refused"), "").with_code(status.as_u16());
        return Err(failed(kube::Error::Api(refusal.boxed())));
    }
    let renewed = serde_json::from_slice::<SlimLease>(&body).ok().and_then(|lease| lease.spec.renew_time?.parse().ok());
    let now = date.and_then(|date| rfc2822::parse(&date).ok()).map(|now| now.timestamp());
    Ok(renewed.zip(now).and_then(|(renewed, now)| age(renewed, now)))
}

#[derive(Deserialize)]
struct SlimLease {
    spec: LeaseSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    renew_time: Option<String>,
}

/// The time since a renewal. The header counts whole seconds and clocks differ a little, so one that lies a moment ahead
/// is as old as now; one that lies further ahead tells nothing.
fn age(renewed: Timestamp, now: Timestamp) -> Option<Duration> {
    let age = now.duration_since(renewed);
    if age < -AHEAD { None } else { Some(Duration::try_from(age).unwrap_or_default()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::{FakeApiServer, Mood};

    const DRIVER: &str = "disk.csi.azure.com";

    fn server() -> FakeApiServer {
        let server = FakeApiServer::default();
        let attachment = |name: &str, attacher: &str, node: &str, source: serde_json::Value| {
            let spec = json!({"attacher": attacher, "nodeName": node, "source": source});
            server.put(ATTACHMENTS, json!({"metadata": {"name": name}, "spec": spec, "status": {"attached": false}}));
        };
        let csi = |handle: &str| json!({"csi": {"driver": DRIVER, "volumeHandle": handle}});
        server.put(VOLUMES, json!({"metadata": {"name": "pv-a"}, "spec": csi("a")}));
        server.put(
            VOLUMES,
            json!({"metadata": {"name": "pv-t"}, "spec": {"azureDisk": {"diskName": "t", "diskURI": "t"}}}),
        );
        attachment("by-name", DRIVER, "n0", json!({"persistentVolumeName": "pv-a"}));
        attachment("in-tree", DRIVER, "n0", json!({"persistentVolumeName": "pv-t"}));
        attachment("inline", DRIVER, "n0", json!({"inlineVolumeSpec": csi("i")}));
        attachment("lost", DRIVER, "n0", json!({"persistentVolumeName": "pv-gone"}));
        attachment("elsewhere", DRIVER, "n1", json!({"persistentVolumeName": "pv-a"}));
        attachment("other", "other.example", "n0", json!({"persistentVolumeName": "pv-a"}));
        server.put(
            NODES,
            json!({"metadata": {"name": "n0"}, "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "volumesInUse": ["kubernetes.io/csi/disk.csi.azure.com^a"],
                "volumesAttached": [{"name": "kubernetes.io/csi/disk.csi.azure.com^b", "devicePath": ""}]}}),
        );
        server
    }

    fn renewed(server: &FakeApiServer, at: &str) {
        server.put(LEASES, json!({"metadata": {"name": "n0"}, "spec": {"renewTime": at, "holderIdentity": "n0"}}));
    }

    #[tokio::test(start_paused = true)]
    async fn every_attachment_on_the_node_counts_and_one_that_cannot_be_resolved_is_told() {
        let server = server();
        renewed(&server, "2026-03-01T11:59:52.000000Z");
        let facts = node_facts(&server.client(), DRIVER, "n0").await.unwrap();
        let named: Vec<_> = facts.attachments.iter().map(|one| (one.name.as_str(), one.handle.as_deref())).collect();
        assert_eq!(named, [("by-name", Some("a")), ("in-tree", Some("t")), ("inline", Some("i")), ("lost", None)]);
        assert!(facts.ready);
        assert_eq!(facts.lease_age, Some(Duration::from_secs(8)));
        assert_eq!(facts.volumes, ["a", "b"].map(|name| format!("kubernetes.io/csi/disk.csi.azure.com^{name}")));
    }

    /// An attachment that begins meanwhile would show: its VolumeAttachment is made before anything is attached, and kubelet
    /// reports a volume as in use before it mounts it.
    #[tokio::test(start_paused = true)]
    async fn the_attachments_are_read_before_the_node_and_the_node_before_its_lease() {
        let server = server();
        renewed(&server, "2026-03-01T11:59:52.000000Z");
        node_facts(&server.client(), DRIVER, "n0").await.unwrap();
        let asked = server.asked();
        let collections: Vec<&str> =
            asked.iter().map(String::as_str).filter(|path| !path.starts_with(VOLUMES)).collect();
        assert_eq!(collections, [ATTACHMENTS.to_owned(), format!("{NODES}/n0"), format!("{LEASES}/n0")]);
    }

    #[tokio::test]
    async fn what_is_attached_is_told_by_the_handles_of_the_driver_s_own_volumes() {
        let server = FakeApiServer::default();
        assert_eq!(attached_volumes(&server.client(), DRIVER, "n0").await.unwrap(), None);
        let attached =
            ["kubernetes.io/csi/disk.csi.azure.com^/subscriptions/S/b^c", "kubernetes.io/csi/other.example^d"];
        let attached = attached.map(|name| json!({"name": name, "devicePath": ""}));
        for (attached, expected) in [(json!(attached), vec!["/subscriptions/S/b^c"]), (json!(null), vec![])] {
            server.put(NODES, json!({"metadata": {"name": "n0"}, "status": {"volumesAttached": attached}}));
            let found = attached_volumes(&server.client(), DRIVER, "n0").await.unwrap().unwrap();
            assert_eq!(found, expected);
        }
    }

    #[tokio::test]
    async fn lists_that_are_null_are_empty() {
        let server = FakeApiServer::default();
        let status = json!({"conditions": null, "volumesInUse": null, "volumesAttached": null});
        server.put(NODES, json!({"metadata": {"name": "n0"}, "status": status}));
        let facts = node_facts(&server.client(), DRIVER, "n0").await.unwrap();
        assert!(!facts.ready);
        assert_eq!(facts.volumes, [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_counts_by_the_servers_clock_and_not_when_it_is_missing_or_ahead() {
        let server = server();
        let age = async || node_facts(&server.client(), DRIVER, "n0").await.unwrap().lease_age;
        assert_eq!(age().await, None);
        for (at, expected) in [
            ("2026-03-01T11:58:30.500000Z", Some(Duration::from_millis(89_500))),
            ("2026-03-01T12:00:00.900000Z", Some(Duration::ZERO)),
            ("2026-03-01T12:00:06.000000Z", None),
        ] {
            renewed(&server, at);
            assert_eq!(age().await, expected, "{at}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_role_does_not_allow_is_an_error_that_names_the_right() {
        let server = server();
        for (path, right) in [
            (ATTACHMENTS.to_owned(), "list on volumeattachments"),
            (format!("{VOLUMES}/pv-a"), "get on persistentvolumes"),
            (format!("{NODES}/n0"), "get on nodes"),
            (format!("{LEASES}/n0"), "get on leases"),
        ] {
            server.mood(&path, Mood::Forbids);
            let error = node_facts(&server.client(), DRIVER, "n0").await.unwrap_err();
            assert!(error.to_string().contains(right), "{error}");
            server.mood(&path, Mood::Answers);
        }
    }
}
