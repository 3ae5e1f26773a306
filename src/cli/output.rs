//! What people read: tables or JSON.

/// How to print a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}
