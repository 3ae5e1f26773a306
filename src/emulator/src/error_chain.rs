//! An error with all that led to it, for a log or an answer.

use std::error::Error;

/// The error's text, then that of each source.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
