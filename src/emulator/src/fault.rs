//! What the emulator answers when it refuses: the error envelope, and the [`catalogue`] of errors.

mod catalogue;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub(crate) use catalogue::*;

/// An error as Azure Resource Manager answers it, or as it stands in a failed operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// The HTTP status.
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
    /// Boxed, like the narrow types below, to keep refusals small enough to return by value.
    pub(crate) target: Option<Box<str>>,
    pub(crate) details: Vec<Value>,
    /// `innererror.internalErrorCode`.
    pub(crate) inner: Option<&'static str>,
    /// The gateway said it, not the resource provider: `x-ms-failure-cause: gateway`.
    pub(crate) gateway: bool,
    /// Seconds.
    pub(crate) retry_after: Option<u32>,
    /// The provider prints `details: []` even when there are none (the network provider does).
    pub(crate) empty_details: bool,
}

/// Who says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// The gateway.
    Gateway,
    /// A resource provider.
    Provider,
    /// A provider that prints `details` always, as the network provider does.
    Network,
}

impl Fault {
    pub(crate) fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
            target: None,
            details: Vec::new(),
            inner: None,
            gateway: false,
            retry_after: None,
            empty_details: false,
        }
    }

    fn at(mut self, target: impl Into<Box<str>>) -> Self {
        self.target = Some(target.into());
        self
    }

    fn by(mut self, speaker: Speaker) -> Self {
        self.gateway = speaker == Speaker::Gateway;
        self.empty_details = speaker == Speaker::Network;
        self
    }

    fn detail(mut self, detail: Value) -> Self {
        self.details.push(detail);
        self
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    fn inner(mut self, code: &'static str) -> Self {
        self.inner = Some(code);
        self
    }

    /// The object that stands under `error`.
    pub(crate) fn object(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".to_owned(), json!(self.code));
        error.insert("message".to_owned(), json!(self.message));
        if let Some(target) = &self.target {
            error.insert("target".to_owned(), json!(target));
        }
        if !self.details.is_empty() || self.empty_details {
            error.insert("details".to_owned(), Value::Array(self.details.clone()));
        }
        if let Some(inner) = &self.inner {
            error.insert("innererror".to_owned(), json!({ "internalErrorCode": inner }));
        }
        Value::Object(error)
    }

    /// The whole body.
    pub(crate) fn body(&self) -> Value {
        json!({ "error": self.object() })
    }
}

/// A deployment some of whose resources were refused.
pub(crate) fn deployment_failed(failures: &[&Fault]) -> Fault {
    let mut fault = any_deployment_failed();
    // Real bodies have the refusal of each resource as a text.
    fault.details =
        failures.iter().map(|failed| json!({"code": failed.code, "message": failed.body().to_string()})).collect();
    fault
}

/// The newest first.
pub(crate) fn invalid_api_version(version: &str, known: &[&str]) -> Fault {
    let known: Vec<&str> = known.iter().rev().copied().collect();
    api_version_unknown(version, known.join(","))
}

/// The oldest first.
pub(crate) fn no_registered_provider(
    kind: &str,
    location: &str,
    version: &str,
    known: &[&str],
    locations: &[&str],
) -> Fault {
    provider_not_registered(kind, location, version, known.join(", "), locations.join(", "))
}

/// A version that no type of a list has.
pub(crate) fn version_of_no_type(kind: &str, namespace: &str, version: &str, known: &[&str]) -> Fault {
    type_without_version(kind, namespace, version, known.join(","))
}

/// As .NET prints a moment in the invariant culture.
fn american(at: Timestamp) -> String {
    at.strftime("%-m/%-d/%Y %-I:%M:%S %p").to_string()
}

/// A token whose time is over.
pub(crate) fn expired_token(at: Timestamp, now: Timestamp) -> Fault {
    token_expired(american(at), american(now))
}

/// The inner texts are unverified.
pub(crate) fn group_deletion_blocked(group: &str, staying: &[String]) -> Fault {
    let short = |id: &String| id.split_once("/providers/").map_or(id.as_str(), |(_, rest)| rest).to_owned();
    let tracking = crate::derived::guid_of(&staying.join(","));
    let mut fault = deletion_blocked(group, staying.iter().map(short).collect::<Vec<_>>().join(","), tracking);
    fault.details = staying
        .iter()
        .map(|id| json!({"target": id, "message": "The resource is in use by a resource of another group."}))
        .collect();
    fault
}

/// Documented family; the texts that pass through here are marked where they are written.
pub(crate) fn invalid_parameter(target: &str, message: impl Into<String>) -> Fault {
    Fault::new(400, "InvalidParameter", message).at(target)
}

/// Documented (public trackers).
pub(crate) fn bad_request(message: impl Into<String>) -> Fault {
    Fault::new(400, "BadRequest", message)
}

/// Documented family.
pub(crate) fn not_allowed(message: impl Into<String>) -> Fault {
    Fault::new(409, "OperationNotAllowed", message)
}

/// A quota of the compute provider.
pub(crate) fn quota(name: &str, location: &str, limit: u64, usage: u64, more: u64) -> Fault {
    quota_exceeded(name, location, limit, usage, more, usage + more)
}

/// The compute provider's throttling; `window` is its begin and end.
pub(crate) fn compute_throttled(
    group: &str,
    window: (&str, &str),
    allowed: u64,
    measured: u64,
    retry_after: u32,
) -> Fault {
    let message = json!({
        "operationGroup": group,
        "startTime": window.0,
        "endTime": window.1,
        "allowedRequestCount": allowed,
        "measuredRequestCount": measured,
    });
    let detail = json!({"code": "TooManyRequests", "target": group, "message": message.to_string()});
    too_many_requests().detail(detail).retry_after(retry_after)
}

/// The front door's throttling.
pub(crate) fn front_door_throttled(kind: &str, subscription: &str, limit: u64, retry_after: u32) -> Fault {
    door_throttled(kind.trim_end_matches('s'), subscription, limit, retry_after).retry_after(retry_after)
}

/// `If-Match` on a resource of the network provider, which prints the header in its own form.
pub(crate) fn network_etag_mismatch(given: &str, actual: &str, id: &str) -> Fault {
    let given = if given.starts_with("W/") { given.to_owned() } else { format!("W/\"{}\"", given.trim_matches('"')) };
    etag_of_network_differs(given, actual, id)
}
