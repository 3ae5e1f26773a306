//! What a VolumeAttachment is about, read live: for the question whether its disk may be attached
//! ([`lazuli_storage::inline_volume`]).
//!
//! No snapshot answers here: external-attacher asks for an attach as soon as it has seen the VolumeAttachment, and a
//! watch of this process may see it later.

use kube::{Client, api::ListParams, core::Request};
use lazuli_model::digest::digits;
use lazuli_storage::inline_volume::AttachmentSource;
use ring::digest::{Context, SHA256};

use super::{
    client::{PAGE, Page, answered},
    reservations::{ATTACHMENTS, SlimAttachment},
    server::ApiError,
};

/// Why it is not known what a VolumeAttachment is about.
#[derive(Debug, thiserror::Error)]
#[error("cannot read VolumeAttachment {name} (the role needs list on volumeattachments)")]
pub struct AttachmentSourceError {
    name: String,
    #[source]
    source: Box<ApiError>,
}

/// The name that Kubernetes gives to the VolumeAttachment of a volume on a node (source: `getAttachmentName` of the
/// in-tree plugin for CSI volumes, which kube-controller-manager uses).
fn name(handle: &str, driver: &str, node: &str) -> String {
    let mut digest = Context::new(&SHA256);
    for part in [handle, driver, node] {
        digest.update(part.as_bytes());
    }
    format!("csi-{}", digits(digest.finish().as_ref()))
}

/// Reads what the VolumeAttachment of a volume on a node is about. `driver` is the CSI driver's name.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn attachment_source(
    client: &Client,
    driver: &str,
    handle: &str,
    node: &str,
) -> Result<AttachmentSource, AttachmentSourceError> {
    let name = name(handle, driver, node);
    let failed = |source| AttachmentSourceError { name: name.clone(), source: ApiError::boxed(source) };
    // A list of one name needs no right that following all of them does not. Without a resource version it is as new as a
    // read of the object: the API server asks its storage for this one name (source: Kubernetes API concepts, semantics of
    // get and list).
    let only = ListParams::default().fields(&format!("metadata.name={name}")).limit(PAGE);
    let request = Request::new(ATTACHMENTS).list(&only).map_err(|error| failed(kube::Error::BuildRequest(error)))?;
    let page: Page<SlimAttachment> = answered(client.request(request)).await.map_err(failed)?;
    let found = page.into_items().into_iter().find(|one| one.metadata.name == name && one.spec.attacher == driver);
    Ok(match found.map(|one| one.spec.source) {
        Some(source) if source.inline_volume_spec.is_some() => AttachmentSource::Inline,
        Some(_) => AttachmentSource::PersistentVolume,
        None => AttachmentSource::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::{FakeApiServer, Mood};

    const DRIVER: &str = "disk.csi.azure.com";

    #[tokio::test(start_paused = true)]
    async fn the_attachment_of_a_pods_own_volume_is_found_by_the_name_that_kubernetes_gives_it() {
        let server = FakeApiServer::default();
        let put = |handle: &str, source: serde_json::Value| {
            let spec = json!({"attacher": DRIVER, "nodeName": "n0", "source": source});
            server.put(ATTACHMENTS, json!({"metadata": {"name": name(handle, DRIVER, "n0")}, "spec": spec}));
        };
        let csi = json!({"csi": {"driver": DRIVER, "volumeHandle": "a"}});
        put("a", json!({"inlineVolumeSpec": csi}));
        put("b", json!({"persistentVolumeName": "pv-b"}));
        for (handle, node, expected) in [
            ("a", "n0", AttachmentSource::Inline),
            ("b", "n0", AttachmentSource::PersistentVolume),
            ("a", "n1", AttachmentSource::Unknown),
            ("c", "n0", AttachmentSource::Unknown),
        ] {
            let source = attachment_source(&server.client(), DRIVER, handle, node).await.unwrap();
            assert_eq!(source, expected, "{handle} {node}");
            // One request for one name, and never what the API server remembers.
            let asked = [&*format!("fieldSelector=metadata.name%3D{}", name(handle, DRIVER, node))];
            assert_eq!(server.count(&asked), 1, "{handle} {node}");
        }
        assert_eq!(server.asked().len(), 4);
        assert_eq!(server.count(&["resourceVersion"]), 0);
        server.mood(ATTACHMENTS, Mood::Forbids);
        let error = attachment_source(&server.client(), DRIVER, "a", "n0").await.unwrap_err();
        assert!(error.to_string().contains("list on volumeattachments"), "{error}");
    }

    #[test]
    fn the_name_is_a_digest_of_handle_driver_and_node() {
        // By `printf 'handledisk.csi.azure.comnode-0' | sha256sum`.
        assert_eq!(
            name("handle", DRIVER, "node-0"),
            "csi-6f8b908ef3a243775f96022558e0819b5044f9010251873fe6318a6993cf3463"
        );
    }
}
