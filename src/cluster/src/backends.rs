//! Nodes as backends of load balancers.
//!
//! kubelet's report every few minutes changes nothing that is kept here: its receiver compares, after it has dropped the
//! labels that it does not need.

use std::{collections::BTreeMap, net::IpAddr};

use kube::Client;
use lazuli_services::network::backends::{BackendNode, Exclusion, labels};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::{
    client::null_as_empty,
    follow::{Change, Interest, Slim, SlimMetadata, WAITING, follow},
    nodes::NODES,
};

/// A change of the Nodes.
pub type BackendsChange = Change<BackendNode>;

/// Follows the Nodes until the receiver is dropped. Poll the future beside the receiver.
pub fn follow_backends(client: Client) -> (impl Future<Output = ()>, mpsc::Receiver<BackendsChange>) {
    let (changes, told) = mpsc::channel(WAITING);
    (follow::<SlimBackend>(client, NODES, Interest::default(), changes), told)
}

#[derive(Debug, Clone, Deserialize)]
struct SlimBackend {
    metadata: BackendMetadata,
    #[serde(default)]
    spec: BackendSpec,
    #[serde(default)]
    status: BackendStatus,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BackendMetadata {
    #[serde(flatten)]
    base: SlimMetadata,
    #[serde(default, deserialize_with = "null_as_empty")]
    labels: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct BackendSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    #[serde(rename = "podCIDRs", deserialize_with = "null_as_empty")]
    pod_ranges: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct BackendStatus {
    #[serde(deserialize_with = "null_as_empty")]
    addresses: Vec<SlimAddress>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlimAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

impl Slim for SlimBackend {
    type Kept = BackendNode;

    fn metadata(&self) -> &SlimMetadata {
        &self.metadata.base
    }

    /// A Node that is being deleted is no backend.
    fn keep(self, _: &Interest) -> Option<BackendNode> {
        let Self { metadata, spec, status } = self;
        if metadata.deletion_timestamp.is_some() {
            return None;
        }
        let label = |key: &str| metadata.labels.get(key).map(String::as_str);
        let (internal, others): (Vec<_>, Vec<_>) =
            status.addresses.iter().partition(|one: &&SlimAddress| one.kind == "InternalIP");
        let addresses = |all: Vec<&SlimAddress>| -> Vec<IpAddr> {
            all.into_iter().filter_map(|one| one.address.parse().ok()).collect()
        };
        Some(BackendNode {
            provider_id: spec.provider_id.filter(|id| !id.is_empty()),
            addresses: addresses(internal),
            other_addresses: addresses(others),
            pod_ranges: spec.pod_ranges.iter().filter_map(|range| range.parse().ok()).collect(),
            exclusion: Exclusion::of(label),
            resource_group: label(labels::RESOURCE_GROUP).map(str::to_owned),
            labels: metadata.labels,
        })
    }
}

#[cfg(test)]
mod tests {
    use lazuli_apiserver::{ApiServer, Options};
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nodes_bring_their_addresses_and_what_excludes_them() {
        let server = ApiServer::start(Options::default());
        let node = |name: &str, labels: serde_json::Value| {
            json!({"metadata": {"name": name, "labels": labels}, "spec": {"providerID": format!("azure:///{name}"),
                    "podCIDRs": ["10.244.1.0/24"]},
                "status": {"addresses": [{"type": "Hostname", "address": name},
                    {"type": "InternalIP", "address": "10.0.0.4"}, {"type": "ExternalIP", "address": "20.0.0.4"}]}})
        };
        server.put("nodes", node("a", json!({}))).unwrap();
        server.put("nodes", node("b", json!({labels::EXCLUDE: "false", labels::RESOURCE_GROUP: "g"}))).unwrap();
        let (following, mut told) = follow_backends(Client::new(server.router(), "default"));
        tokio::spawn(following);
        let Some(Change::Replaced(all)) = told.recv().await else { panic!("no list") };
        let nodes: BTreeMap<String, BackendNode> = all.into_iter().collect();
        assert_eq!(nodes["a"].addresses, ["10.0.0.4".parse::<IpAddr>().unwrap()]);
        assert_eq!(nodes["a"].other_addresses, ["20.0.0.4".parse::<IpAddr>().unwrap()]);
        assert_eq!(nodes["a"].pod_ranges, ["10.244.1.0/24".parse().unwrap()]);
        assert_eq!((nodes["a"].exclusion, nodes["b"].exclusion), (None, Some(Exclusion::Label)));
        assert_eq!(nodes["b"].resource_group.as_deref(), Some("g"));
        server.delete("nodes", "", "a").unwrap();
        assert_eq!(told.recv().await, Some(Change::Deleted("a".to_owned())));
    }
}
