//! From bytes to a tree: JSON or YAML, as the Go peers read it (`sigs.k8s.io/yaml`, YAML 1.1 rules).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::error::ConfigError;

/// Limit of a configuration document, bytes. Source: the Go peers read at most 10 MiB.
pub const MAX_BYTES: usize = 10 << 20;

/// A parsed document with the name of the place it came from. Its `Debug` shows key names only.
#[derive(Clone)]
pub struct Document {
    origin: Arc<str>,
    entries: Vec<(String, Value)>,
    has_mark: bool,
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("origin", &self.origin)
            .field("keys", &self.entries.iter().map(|(k, _)| k).collect::<Vec<_>>())
            .finish()
    }
}

impl Document {
    /// Parses JSON or YAML bytes. `origin` names the place in error messages: a path, or
    /// `secret kube-system/azure-cloud-provider`.
    ///
    /// An empty document is an empty mapping, as for the Go peers.
    ///
    /// # Errors
    /// [`ConfigError::TooLarge`] or [`ConfigError::Syntax`].
    pub fn parse(origin: impl Into<String>, bytes: &[u8]) -> Result<Self, ConfigError> {
        let origin = origin.into();
        if bytes.len() > MAX_BYTES {
            return Err(ConfigError::TooLarge { origin, limit: MAX_BYTES });
        }
        let syntax = |origin: String, what, position| ConfigError::Syntax { origin, what, position };
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Err(syntax(origin, "is not UTF-8 text", None));
        };
        let has_mark = text.starts_with('\u{feff}');
        let text = text.trim_start_matches('\u{feff}').trim();
        let value = if text.is_empty() {
            Value::Null
        } else {
            match parse_value(text) {
                Ok(value) => value,
                Err((what, position)) => return Err(syntax(origin, what, position)),
            }
        };
        let entries = match value {
            Value::Null => Vec::new(),
            Value::Object(map) => map.into_iter().collect(),
            _ => {
                return Err(syntax(origin, "is not a mapping of keys to values", None));
            }
        };
        Ok(Self { origin: origin.into(), entries, has_mark })
    }

    /// Reads and parses a file. Blocking, for as long as a small local file takes.
    ///
    /// # Errors
    /// [`ConfigError::Read`] and those of [`Document::parse`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        use std::io::Read as _;
        let failed = |source| ConfigError::Read { path: PathBuf::from(path), source };
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .map_err(failed)?
            .take(MAX_BYTES as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        Self::parse(path.display().to_string(), &bytes)
    }

    /// Where the document came from.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether it begins with a byte order mark. The Go peers skip it too; most readers of JSON do not.
    pub(super) fn has_mark(&self) -> bool {
        self.has_mark
    }

    pub(super) fn origin_arc(&self) -> Arc<str> {
        Arc::clone(&self.origin)
    }

    pub(super) fn entries(&self) -> &[(String, Value)] {
        &self.entries
    }
}

type ParseFailure = (&'static str, Option<(u64, u64)>);

/// JSON first: it is what nearly every installation has, and its error positions are better. JSON with
/// comments or trailing commas is still YAML, so a failure is not final.
///
/// Messages of the parsers are dropped on purpose: they may quote the text around the fault.
fn parse_value(text: &str) -> Result<Value, ParseFailure> {
    let json_error = match serde_json::from_str::<Value>(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    // Go's YAML library follows YAML 1.1: `yes` is a boolean, `010` is eight, the last of two equal keys
    // wins.
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        strict_booleans: false,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Value>(text, options) {
        Ok(value) => Ok(value),
        Err(_) if text.starts_with('{') => {
            Err(("is not valid JSON", Some((json_error.line() as u64, json_error.column() as u64))))
        }
        Err(error) => {
            Err(("is neither valid JSON nor valid YAML", error.location().map(|at| (at.line(), at.column()))))
        }
    }
}
