//! A write, before it is sent.

use lazuli_quota::{permit::Priority, poll::Kind};
use serde_json::Value;

use crate::{error::Verb, permits::Permit};

/// Whether a write may be sent again when it is not known what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Twice is as good as once.
    Safe,
    /// Twice may do something else.
    Never,
}

/// Whether a request may wait before it goes out, or goes out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// For as long as Azure asks, within [`Retry::longest_wait`](super::Retry::longest_wait).
    AsAzureSays,
    /// Not at all: see [the module's words on it](super#writes-that-may-not-wait).
    None,
}

/// One write.
#[derive(Debug)]
pub struct Write {
    pub(super) verb: Verb,
    pub(super) path: String,
    pub(super) api_version: String,
    /// Parameters besides the API version.
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) body: Option<Value>,
    pub(super) if_match: Option<String>,
    pub(super) if_absent: bool,
    pub(super) kind: Kind,
    pub(super) priority: Priority,
    pub(super) repeat: Repeat,
    pub(super) patience: Patience,
    /// The permit that it brings along for its first sending.
    pub(super) permit: Option<Permit>,
}

impl Write {
    fn new(verb: Verb, path: &str, api_version: &str, body: Option<Value>, kind: Kind, repeat: Repeat) -> Self {
        Self {
            verb,
            path: path.to_owned(),
            api_version: api_version.to_owned(),
            query: Vec::new(),
            body,
            if_match: None,
            if_absent: false,
            kind,
            priority: Priority::Create,
            repeat,
            patience: Patience::AsAzureSays,
            permit: None,
        }
    }

    /// Makes or replaces a resource. May be repeated.
    pub fn put(path: &str, api_version: &str, body: Value, kind: Kind) -> Self {
        Self::new(Verb::Put, path, api_version, Some(body), kind, Repeat::Safe)
    }

    /// Changes a resource in part. Repeated only under `If-Match`, or when declared safe.
    pub fn patch(path: &str, api_version: &str, body: Value, kind: Kind) -> Self {
        Self::new(Verb::Patch, path, api_version, Some(body), kind, Repeat::Never)
    }

    /// Acts on a resource: the path ends in the action. Never repeated blindly.
    pub fn post(path: &str, api_version: &str, body: Option<Value>, kind: Kind) -> Self {
        Self::new(Verb::Post, path, api_version, body, kind, Repeat::Never)
    }

    /// Deletes a resource. May be repeated.
    pub fn delete(path: &str, api_version: &str, kind: Kind) -> Self {
        Self::new(Verb::Delete, path, api_version, None, kind, Repeat::Safe)
    }

    pub(crate) fn verb(&self) -> Verb {
        self.verb
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// With this parameter in the query.
    #[must_use]
    pub fn query(mut self, name: &'static str, value: &str) -> Self {
        self.query.push((name, value.to_owned()));
        self
    }

    /// Only if the resource has still this etag.
    #[must_use]
    pub fn if_match(mut self, etag: Option<&str>) -> Self {
        self.if_match = etag.map(str::to_owned);
        if self.verb == Verb::Patch && self.if_match.is_some() {
            self.repeat = Repeat::Safe;
        }
        self
    }

    /// Only if there is no such resource, where the type knows `If-None-Match`.
    #[must_use]
    pub fn if_absent(mut self) -> Self {
        self.if_absent = true;
        self
    }

    /// How it ranks when requests run short; [`Priority::Create`] unless said.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Whether it may wait; [`Patience::AsAzureSays`] unless said.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Brings the permit for its first sending, from [`Arm::permit`](super::Arm::permit) for the same verb and resource.
    /// A permit for another request is returned.
    #[must_use]
    pub fn with_permit(mut self, permit: impl Into<Option<Permit>>) -> Self {
        self.permit = permit.into();
        self
    }

    /// Whether it may be sent again when its answer was lost.
    #[must_use]
    pub fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }
}
