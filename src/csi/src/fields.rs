//! Fields of requests that must be there.

use std::path::PathBuf;

/// A field that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FieldError {
    /// It is empty.
    #[error("{0} is missing in the request")]
    Missing(&'static str),
    /// It is no absolute path.
    #[error("{what} {} is not an absolute path", path.display())]
    Relative {
        /// The field.
        what: &'static str,
        /// Its value.
        path: PathBuf,
    },
}

/// A text that must not be empty.
pub(crate) fn required(what: &'static str, value: String) -> Result<String, FieldError> {
    if value.is_empty() { Err(FieldError::Missing(what)) } else { Ok(value) }
}

/// An absolute path.
pub(crate) fn absolute(what: &'static str, value: String) -> Result<PathBuf, FieldError> {
    let path = PathBuf::from(required(what, value)?);
    if path.is_absolute() { Ok(path) } else { Err(FieldError::Relative { what, path }) }
}
