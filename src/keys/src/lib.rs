//! How a node gets the key of a storage account.
//!
//! ```text
//!  node                                          controller, every replica
//!  NodeKeys ── broker ──▶ BrokerClient ──TLS──▶ router ──▶ whose token (TokenReview), the PersistentVolume and its claim,
//!     │                    token, volume id       │         the Pods of the node
//!     │                                           ├──▶ lazuli_shares::secret::may_have
//!     └── cluster, namespaces ──▶ Secret          └──▶ Secret, else Azure ──▶ account and key
//! ```
//!
//! The node sends a token and a volume id, and nothing else that counts: which Secret it is, the PersistentVolume says, and
//! which node asks, the API server. Whoever has taken over a node gets the keys of the volumes that Pods on it use, and no
//! others; it could read those from its own memory as well. A key opens every share of its account, also those of other
//! namespaces: a class with accounts of its own (`createAccount`) keeps them apart.
//!
//! Keys and tokens are in no log, error, `Debug` output or file. Any client that reaches the broker's port can connect:
//! the body of a request has a limit, few reviews of tokens and few requests run at a time, a node asks at a bounded rate,
//! and each request has an end. The broker keeps nothing between two requests: a right that is withdrawn ends with the next
//! one, and a Secret that is corrected counts at once.

mod broker;
mod client;
mod error;
mod metrics;
mod node;
mod rate;
mod stored;
mod wire;

#[cfg(test)]
mod tests;

pub use broker::{AccountReader, AzureAccount, Reading, Settings, router};
pub use client::{BrokerClient, BrokerPlace};
pub use error::KeyError;
pub use metrics::Metrics;
pub use node::NodeKeys;

/// The audience of the tokens that the broker takes. One for the API server is none for the broker, and the other way round.
pub const AUDIENCE: &str = "lazuli-key-broker";
