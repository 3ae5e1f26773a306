//! On which Nodes the endpoints of Services are.
//!
//! Of a slice only its Service and the names of its Nodes are kept. Whether an endpoint is ready does not matter: the
//! health check of the Node decides about that, so that a pod which is not ready for a moment costs no write.

use std::collections::BTreeSet;

use kube::Client;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::client::null_as_empty;
use super::follow::{Change, Interest, Slim, SlimMetadata, WAITING, follow};

pub(super) const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

/// The Nodes of one EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointNodes {
    /// The Service, as `namespace/name`.
    pub service: String,
    /// The names of the Nodes that have an endpoint.
    pub nodes: BTreeSet<String>,
}

/// A change of EndpointSlices.
pub type EndpointsChange = Change<EndpointNodes>;

/// Follows the EndpointSlices until the receiver is dropped. Poll the future beside the receiver.
pub fn follow_endpoints(client: Client) -> (impl Future<Output = ()>, mpsc::Receiver<EndpointsChange>) {
    let (changes, told) = mpsc::channel(WAITING);
    (follow::<SlimSlice>(client, SLICES, Interest::default(), changes), told)
}

#[derive(Debug, Clone, Deserialize)]
struct SlimSlice {
    metadata: SliceMetadata,
    #[serde(default, deserialize_with = "null_as_empty")]
    endpoints: Vec<SlimEndpoint>,
}

#[derive(Debug, Clone, Deserialize)]
struct SliceMetadata {
    #[serde(flatten)]
    base: SlimMetadata,
    #[serde(default, deserialize_with = "null_as_empty")]
    labels: SliceLabels,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SliceLabels {
    /// Source: Kubernetes, well-known labels.
    #[serde(rename = "kubernetes.io/service-name")]
    service: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimEndpoint {
    node_name: Option<String>,
}

impl Slim for SlimSlice {
    type Kept = EndpointNodes;

    fn metadata(&self) -> &SlimMetadata {
        &self.metadata.base
    }

    /// A slice without a Service belongs to none.
    fn keep(self, _: &Interest) -> Option<EndpointNodes> {
        let Self { metadata, endpoints } = self;
        if metadata.labels.service.is_empty() {
            return None;
        }
        let nodes = endpoints.into_iter().filter_map(|endpoint| endpoint.node_name).collect();
        Some(EndpointNodes { service: format!("{}/{}", metadata.base.namespace, metadata.labels.service), nodes })
    }
}

#[cfg(test)]
mod tests {
    use lazuli_apiserver::{ApiServer, Options};
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slice_brings_the_nodes_of_its_endpoints_ready_or_not() {
        let server = ApiServer::start(Options::default());
        let slice = |name: &str, service: serde_json::Value, endpoints: serde_json::Value| {
            json!({"metadata": {"name": name, "namespace": "shop", "labels": service}, "addressType": "IPv4",
                "endpoints": endpoints, "ports": null})
        };
        let endpoints = json!([{"addresses": ["10.0.0.1"], "nodeName": "a", "conditions": {"ready": false}},
            {"addresses": ["10.0.0.2"], "nodeName": "b"}, {"addresses": ["10.0.0.3"]},
            {"addresses": ["10.0.0.4"], "nodeName": "a"}]);
        server.put("endpointslices", slice("web-1", json!({"kubernetes.io/service-name": "web"}), endpoints)).unwrap();
        server.put("endpointslices", slice("bare", json!(null), json!(null))).unwrap();
        let (following, mut told) = follow_endpoints(Client::new(server.router(), "default"));
        tokio::spawn(following);
        let Some(Change::Replaced(all)) = told.recv().await else { panic!("no list") };
        let nodes = ["a", "b"].map(str::to_owned).into();
        let expected = EndpointNodes { service: "shop/web".to_owned(), nodes };
        assert_eq!(all, [("shop/web-1".to_owned(), expected)]);
    }
}
