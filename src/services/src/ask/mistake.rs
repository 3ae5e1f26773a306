//! What is wrong with a Service, in words for its owner.

use std::fmt;

/// An annotation or a field of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// An annotation, by its whole key.
    Annotation(String),
    /// A field, by its path, such as `spec.loadBalancerSourceRanges`.
    Field(&'static str),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation(key) => write!(f, "annotation {key}"),
            Self::Field(path) => f.write_str(path),
        }
    }
}

/// Why a Service cannot be served as it is. Its text is one sentence that names annotation or field, value and what is
/// allowed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{subject} is {value:?}: {allowed}")]
pub struct Mistake {
    /// Where the value is.
    pub subject: Subject,
    /// The value that was found.
    pub value: String,
    /// What is allowed instead, or why this is not.
    pub allowed: String,
}

impl Mistake {
    /// A mistake in an annotation.
    pub fn annotation(key: impl Into<String>, value: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { subject: Subject::Annotation(key.into()), value: value.into(), allowed: allowed.into() }
    }

    /// A mistake in a field.
    pub fn field(path: &'static str, value: impl fmt::Display, allowed: impl Into<String>) -> Self {
        Self { subject: Subject::Field(path), value: value.to_string(), allowed: allowed.into() }
    }
}

/// The reason of a warning event: a bounded set, since reasons are aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WarningReason {
    /// An annotation of this provider's prefix that no provider knows.
    UnknownAnnotation,
    /// A value that cannot be used; the Service is served without it.
    IgnoredValue,
    /// A value that would be refused today, and that stays since the Service has it.
    KeptValue,
    /// A value that has no effect on this Service.
    NoEffect,
    /// Two settings that contradict each other in practice; the name is the Go manager's.
    ConflictConfiguration,
}

impl WarningReason {
    /// The reason, as an event spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownAnnotation => "UnknownAnnotation",
            Self::IgnoredValue => "IgnoredValue",
            Self::KeptValue => "KeptValue",
            Self::NoEffect => "NoEffect",
            Self::ConflictConfiguration => "ConflictConfiguration",
        }
    }
}

/// Something odd about a Service that is served all the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// The reason of the event.
    pub reason: WarningReason,
    /// One sentence for the owner of the Service.
    pub message: String,
}

impl Warning {
    pub(crate) fn new(reason: WarningReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}
