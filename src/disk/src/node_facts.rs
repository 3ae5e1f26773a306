//! How Kubernetes is asked what a node uses. It comes through a function, because this crate knows nothing of its client.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use lazuli_storage::dangling::NodeFacts;

type Read = dyn Fn(String) -> BoxFuture<'static, Result<NodeFacts, String>> + Send + Sync;

/// How to ask Kubernetes, live, what a node uses.
#[derive(Clone)]
pub struct NodeFactsReader {
    driver: String,
    read: Arc<Read>,
}

impl fmt::Debug for NodeFactsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeFactsReader").field("driver", &self.driver).finish_non_exhaustive()
    }
}

impl NodeFactsReader {
    /// `read` gives the facts about the node of a name, or why they are not known; `driver` is the CSI driver's name.
    pub fn new(
        driver: &str,
        read: impl Fn(String) -> BoxFuture<'static, Result<NodeFacts, String>> + Send + Sync + 'static,
    ) -> Self {
        Self { driver: driver.to_owned(), read: Arc::new(read) }
    }

    /// The name of the CSI driver.
    pub(crate) fn driver(&self) -> &str {
        &self.driver
    }

    /// The facts about the node of a name, or why they are not known.
    pub(crate) async fn read(&self, node: String) -> Result<NodeFacts, String> {
        (self.read)(node).await
    }
}
