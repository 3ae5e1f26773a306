//! Why there is no key.

use lazuli_model::{chain, fault::Code};
use lazuli_shares::secret::{Refusal, handout::NoKey};

/// Why there is no key, as a node tells kubelet. The text says what to do, and never holds a key or a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct KeyError {
    /// The gRPC code.
    pub code: Code,
    /// In words.
    pub message: String,
}

impl KeyError {
    /// An error.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Of an error with the errors behind it.
    pub(crate) fn of(code: Code, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(code, chain(error))
    }

    /// Whether another replica may answer otherwise, or this one in a moment.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.code, Code::Unavailable | Code::DeadlineExceeded)
    }
}

impl From<Refusal> for KeyError {
    fn from(refusal: Refusal) -> Self {
        Self::of(refusal.code(), &refusal)
    }
}

impl From<NoKey> for KeyError {
    fn from(none: NoKey) -> Self {
        Self::of(none.code(), &none)
    }
}
