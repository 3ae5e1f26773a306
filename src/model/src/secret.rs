//! A value that must never be shown.

use std::fmt;

use serde::{Serialize, Serializer};

/// What is printed instead of a secret.
pub const REDACTED: &str = "<redacted>";

/// A password, key or token.
///
/// `Debug`, `Display` and serialisation all give [`REDACTED`]; [`Secret::expose`] is the one way to the
/// text, so a search for it lists every place that can leak.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text. From here on it is not printable.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the request that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}
