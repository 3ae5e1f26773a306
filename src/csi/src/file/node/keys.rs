//! Where the key of a share comes from when the request has none.

use std::{collections::BTreeMap, fmt, future::Future, pin::Pin, sync::Arc};

use lazuli_model::Secret;
use lazuli_shares::secret::Credentials;

/// A question for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRequest {
    /// The volume id.
    pub volume_id: String,
    /// The context of the volume: it may name the Secret ([`lazuli_shares::secret::key_source`]).
    pub context: BTreeMap<String, String>,
    /// The key that the server has refused, where it has: another one is asked for.
    pub refused: Option<Secret>,
}

/// Why there is no key. The text is for people, and holds no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It cannot be asked for now; a repetition may succeed.
    #[error("the key of the account cannot be had now: {0}")]
    Unavailable(String),
    /// This node may not have it.
    #[error("this node is not given the key of the account: {0}")]
    Refused(String),
    /// There is none.
    #[error("there is no key for the volume: {0}")]
    NoKey(String),
}

type Read = dyn Fn(KeyRequest) -> Pin<Box<dyn Future<Output = Result<Credentials, KeyError>> + Send>> + Send + Sync;

/// How to ask for the key of a share.
#[derive(Clone)]
pub struct KeyReader(Arc<Read>);

impl fmt::Debug for KeyReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyReader")
    }
}

impl KeyReader {
    /// `read` gives the account of a volume and its key. It ends by itself.
    pub fn new(
        read: impl Fn(KeyRequest) -> Pin<Box<dyn Future<Output = Result<Credentials, KeyError>> + Send>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(read))
    }

    pub(super) async fn read(&self, request: KeyRequest) -> Result<Credentials, KeyError> {
        (self.0)(request).await
    }
}
