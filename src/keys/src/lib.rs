//! How a node gets the key of a storage account.
//!
//! ```text
//!  node                                          controller, every replica
//!  NodeKeys ── broker ──▶ BrokerClient ──TLS──▶ router ──▶ whose token (TokenReview), the PersistentVolume and its claim,
//!     │                    token, volume id,      │         the Pods of the node
//!     │                    which key was refused  ├──▶ lazuli_shares::secret::may_have
//!     └── cluster, namespaces ──▶ Secret          └──▶ lazuli_shares::secret::handout: Secret, else Azure ──▶ account and key
//! ```
//!
//! A key that the file server refuses may have been rotated. The node then asks once more and says which key it was, by a
//! fingerprint. The broker gives another one, of Azure where it may, and writes it into the Secret if a driver has made that.
//!
//! The node sends a token and a volume id, and nothing else that counts: which Secret it is, the PersistentVolume says, and
//! which node asks, the API server. Whoever has taken over a node gets the keys of the volumes that Pods on it use, and no
//! others; it could read those from its own memory as well. A key opens every share of its account, also those of other
//! namespaces: a class with accounts of its own (`createAccount`) keeps them apart.
//!
//! Keys and tokens are in no log, error, `Debug` output or file. Any client that reaches the broker's port can connect:
//! connections of one address have a limit (`lazuli_telemetry::http`), the body of a request has one, few reviews of tokens
//! run at a time and fewer of one address, a node asks at a bounded rate, and each request has an end. The broker keeps nothing between two requests: a right that is withdrawn ends with the next
//! one, and a Secret that is corrected counts at once.

mod broker;
mod client;
mod error;
mod fingerprint;
mod metrics;
mod node;
mod rate;
mod reviews;
mod stored;
mod wire;

#[cfg(test)]
mod tests;

pub use broker::{AccountReader, AzureAccount, Reading, Settings, router};
pub use client::{BrokerClient, BrokerPlace};
pub use error::KeyError;
pub use metrics::{METRICS, Metrics};
pub use node::NodeKeys;

/// How many connections one address may have to the broker at a time. A node asks for eight keys at a time.
pub const CONNECTIONS_OF_A_SOURCE: usize = 32;

/// The audience of the tokens that the broker takes. One for the API server is none for the broker, and the other way round.
pub const AUDIENCE: &str = "lazuli-key-broker";
