//! The labels of namespaces, which selectors of load balancers may ask for.

use std::collections::BTreeMap;

use kube::Client;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::client::null_as_empty;
use super::follow::{Change, Interest, Slim, SlimMetadata, WAITING, follow};

const NAMESPACES: &str = "/api/v1/namespaces";

/// A change of the labels of namespaces.
pub type NamespacesChange = Change<BTreeMap<String, String>>;

/// Follows the labels of namespaces until the receiver is dropped. Poll the future beside the receiver.
pub fn follow_namespaces(client: Client) -> (impl Future<Output = ()>, mpsc::Receiver<NamespacesChange>) {
    let (changes, told) = mpsc::channel(WAITING);
    (follow::<SlimNamespace>(client, NAMESPACES, Interest::default(), changes), told)
}

#[derive(Debug, Clone, Deserialize)]
struct SlimNamespace {
    metadata: NamespaceMetadata,
}

#[derive(Debug, Clone, Deserialize)]
struct NamespaceMetadata {
    #[serde(flatten)]
    base: SlimMetadata,
    #[serde(default, deserialize_with = "null_as_empty")]
    labels: BTreeMap<String, String>,
}

impl Slim for SlimNamespace {
    type Kept = BTreeMap<String, String>;

    fn metadata(&self) -> &SlimMetadata {
        &self.metadata.base
    }

    fn keep(self, _: &Interest) -> Option<Self::Kept> {
        Some(self.metadata.labels)
    }
}
