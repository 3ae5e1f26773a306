//! Incidents: failures on order.
//!
//! An [`Incident`] says which requests it strikes and what then happens. [`Incidents`] keeps them in
//! the order in which they were added and tells the request pipeline what happens to the next request.
//! It holds counters and nothing else: no clock, no randomness, so the same requests in the same order
//! meet the same incidents. It never answers a request itself.
//!
//! ```yaml
//! - match: {method: PUT, path: "*/virtualMachines/node-0", nth: 2}
//!   then: {status: 429, code: TooManyRequests, retryAfter: 5}
//!   times: 3
//! - match: {operation: "disks.delete"}
//!   then: {lateFailure: {code: InternalExecutionError, message: "An internal error occurred."}}
//! - match: {path: "*/attachDetachDataDisks"}
//!   then: {loseAnswer: after}
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Incident {
    /// Which requests it strikes. All given conditions must hold; none given means every request.
    #[serde(default, rename = "match")]
    pub matching: Match,
    /// What happens to them.
    pub then: Effect,
    /// How many requests it strikes before it is spent; 0 means it never is.
    #[serde(default = "once")]
    pub times: u64,
}

const fn once() -> u64 {
    1
}

/// The conditions of an incident.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Match {
    /// HTTP method, in any letter case, or several with `|` between them: `PUT|PATCH|DELETE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Path without query; `*` stands for any text, slashes included. Letter case does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The emulator's name of the operation; `*` stands for any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The first request struck, counted from 1 among those that match otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    /// Text that the body contains, letter case included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_contains: Option<String>,
}

/// What happens to a request that an incident strikes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Effect {
    /// Answer with this status instead of doing what was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// ARM error code of that answer; one that suits the status when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// ARM error message of that answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// ARM error target of that answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `Retry-After` in seconds, on whatever answer is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// Further headers, on whatever answer is given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Milliseconds to wait before anything else happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Drop the connection instead of answering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lose_answer: Option<LoseAnswer>,
    /// Accept the request and let its long-running operation fail at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_failure: Option<LateFailure>,
}

/// When the connection is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LoseAnswer {
    /// Before the request takes effect.
    Before,
    /// After the request took effect.
    After,
}

/// The error of a long-running operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LateFailure {
    /// ARM error code.
    pub code: String,
    /// ARM error message.
    #[serde(default)]
    pub message: String,
}

/// An incident that makes no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum IncidentError {
    /// Nothing would happen.
    #[error("then: empty: give status, delayMs, loseAnswer, lateFailure, retryAfter or headers")]
    NoEffect,
    /// Not a status of an answer.
    #[error("then.status: {status} is no HTTP status of an answer (200 to 599)")]
    Status {
        /// What was given.
        status: u16,
    },
    /// Two members that exclude each other.
    #[error("then.{first} and then.{second} exclude each other")]
    Exclusive {
        /// One.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A member that means nothing without another.
    #[error("then.{member} needs then.{needs}")]
    Needs {
        /// The member given.
        member: &'static str,
        /// The member missing.
        needs: &'static str,
    },
    /// Requests are counted from 1.
    #[error("match.nth: requests are counted from 1")]
    NthZero,
    /// Not a header.
    #[error("then.headers: {name:?} is no valid HTTP header")]
    Header {
        /// The name given.
        name: String,
    },
}

impl Incident {
    /// Checks that the incident can do something and does not contradict itself.
    ///
    /// # Errors
    /// The first thing that is wrong, naming the key.
    pub fn check(&self) -> Result<(), IncidentError> {
        let then = &self.then;
        if *then == Effect::default() {
            return Err(IncidentError::NoEffect);
        }
        if self.matching.nth == Some(0) {
            return Err(IncidentError::NthZero);
        }
        if let Some(status) = then.status
            && !(200..=599).contains(&status)
        {
            return Err(IncidentError::Status { status });
        }
        for (given, member) in
            [(then.code.is_some(), "code"), (then.message.is_some(), "message"), (then.target.is_some(), "target")]
        {
            if given && then.status.is_none() {
                return Err(IncidentError::Needs { member, needs: "status" });
            }
        }
        for (both, first, second) in [
            (then.status.is_some() && then.late_failure.is_some(), "status", "lateFailure"),
            (then.status.is_some() && then.lose_answer.is_some(), "status", "loseAnswer"),
        ] {
            if both {
                return Err(IncidentError::Exclusive { first, second });
            }
        }
        for (name, value) in &then.headers {
            if http::HeaderName::from_bytes(name.as_bytes()).is_err() || http::HeaderValue::from_str(value).is_err() {
                return Err(IncidentError::Header { name: name.clone() });
            }
        }
        Ok(())
    }
}

impl Effect {
    /// The ARM error envelope of an answer with [`Self::status`].
    #[must_use]
    pub fn error_body(&self) -> Value {
        let status = self.status.unwrap_or(500);
        let code = self.code.clone().unwrap_or_else(|| {
            match status {
                400 => "BadRequest",
                401 => "InvalidAuthenticationToken",
                403 => "AuthorizationFailed",
                404 => "ResourceNotFound",
                409 => "Conflict",
                412 => "PreconditionFailed",
                429 => "TooManyRequests",
                503 => "ServiceUnavailable",
                504 => "GatewayTimeout",
                _ => "InternalServerError",
            }
            .to_owned()
        });
        let message = self.message.clone().unwrap_or_else(|| "An incident was injected.".to_owned());
        let mut error = json!({"code": code, "message": message});
        if let Some(target) = &self.target {
            error["target"] = json!(target);
        }
        json!({ "error": error })
    }
}

/// What an incident may look at.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFacts<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// Path; a query is ignored.
    pub path: &'a str,
    /// The emulator's name of the operation; empty when it has none.
    pub operation: &'a str,
    /// The body as received.
    pub body: &'a [u8],
}

/// An incident with its counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Given when it was added; rises.
    pub id: u64,
    /// The incident.
    pub incident: Incident,
    /// Requests that matched.
    pub seen: u64,
    /// Requests that were struck.
    pub struck: u64,
}

impl Listed {
    fn spent(&self) -> bool {
        self.incident.times != 0 && self.struck >= self.incident.times
    }
}

/// All incidents, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Incidents {
    last_id: u64,
    listed: Vec<Listed>,
}

impl Incidents {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one after all others.
    ///
    /// # Errors
    /// When the incident makes no sense.
    pub fn add(&mut self, incident: Incident) -> Result<u64, IncidentError> {
        incident.check()?;
        self.last_id += 1;
        self.listed.push(Listed { id: self.last_id, incident, seen: 0, struck: 0 });
        Ok(self.last_id)
    }

    /// All, with their counters; spent ones stay until cleared.
    #[must_use]
    pub fn list(&self) -> &[Listed] {
        &self.listed
    }

    /// Forgets one. False when there is none with that id.
    pub fn remove(&mut self, id: u64) -> bool {
        let before = self.listed.len();
        self.listed.retain(|listed| listed.id != id);
        self.listed.len() != before
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.listed.clear();
    }

    /// What happens to this request.
    ///
    /// Every incident that matches counts the request, whether or not an earlier one strikes it, so
    /// that `nth` means the nth request of that kind. The first one added that is due and not spent
    /// strikes.
    pub fn next(&mut self, request: &RequestFacts<'_>) -> Option<Effect> {
        let mut effect = None;
        for listed in &mut self.listed {
            if listed.spent() || !listed.incident.matching.holds(request) {
                continue;
            }
            listed.seen += 1;
            let due = listed.seen >= listed.incident.matching.nth.unwrap_or(1);
            if due && effect.is_none() {
                listed.struck += 1;
                effect = Some(listed.incident.then.clone());
            }
        }
        effect
    }
}

impl Match {
    fn holds(&self, request: &RequestFacts<'_>) -> bool {
        let path = request.path.split('?').next().unwrap_or_default();
        let is_asked = |methods: &str| methods.split('|').any(|method| method.eq_ignore_ascii_case(request.method));
        let method = self.method.as_deref().is_none_or(is_asked);
        let body = || self.body_contains.as_deref().is_none_or(|text| contains(request.body, text.as_bytes()));
        method
            && self.path.as_deref().is_none_or(|glob| matches(glob, path))
            && self.operation.as_deref().is_none_or(|glob| matches(glob, request.operation))
            && body()
    }
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    text.is_empty() || body.windows(text.len()).any(|window| window == text)
}

/// Whether `text` matches `glob`, in any letter case; `*` stands for any text.
pub(crate) fn matches(glob: &str, text: &str) -> bool {
    let glob = glob.trim_end_matches('/').to_ascii_lowercase();
    let text = text.trim_end_matches('/').to_ascii_lowercase();
    let mut parts = glob.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        // No star at all: the whole text must be the glob.
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(yaml: &str) -> Incident {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn put(path: &str) -> RequestFacts<'_> {
        RequestFacts { method: "PUT", path, ..RequestFacts::default() }
    }

    #[test]
    fn an_incident_strikes_once_unless_told_otherwise() {
        let mut incidents = Incidents::new();
        incidents.add(incident("then: {status: 500}")).unwrap();
        assert!(incidents.next(&put("/a")).is_some());
        assert!(incidents.next(&put("/a")).is_none());

        incidents.clear();
        incidents.add(incident("{then: {status: 500}, times: 0}")).unwrap();
        assert!((0..10).all(|_| incidents.next(&put("/a")).is_some()));
    }

    #[test]
    fn nth_counts_only_requests_that_match() {
        let mut incidents = Incidents::new();
        incidents
            .add(incident("{match: {method: put, path: '*/disks/*', nth: 3}, then: {status: 409}, times: 2}"))
            .unwrap();
        let disk = put("/s/disks/a?api-version=1");
        assert!(incidents.next(&disk).is_none());
        assert!(incidents.next(&put("/s/snapshots/a")).is_none());
        assert!(incidents.next(&disk).is_none());
        assert!(incidents.next(&disk).is_some());
        assert!(incidents.next(&disk).is_some());
        assert!(incidents.next(&disk).is_none());
    }

    #[test]
    fn several_methods_can_be_named() {
        let mut incidents = Incidents::new();
        incidents.add(incident("{match: {method: 'put|Delete'}, then: {status: 409}, times: 0}")).unwrap();
        let struck = |incidents: &mut Incidents, method| {
            incidents.next(&RequestFacts { method, path: "/a", ..RequestFacts::default() }).is_some()
        };
        assert_eq!(["PUT", "DELETE", "GET"].map(|method| struck(&mut incidents, method)), [true, true, false]);
    }

    #[test]
    fn a_later_incident_counts_requests_that_an_earlier_one_struck() {
        let mut incidents = Incidents::new();
        incidents.add(incident("then: {status: 500}")).unwrap();
        incidents.add(incident("{match: {nth: 2}, then: {status: 503}}")).unwrap();
        assert_eq!(incidents.next(&put("/a")).unwrap().status, Some(500));
        assert_eq!(incidents.next(&put("/a")).unwrap().status, Some(503));
    }

    #[test]
    fn paths_match_in_any_letter_case_and_as_a_whole() {
        for (glob, path, expected) in [
            ("/a/b", "/A/B", true),
            ("/a/b", "/a/b/", true),
            ("/a/b", "/a/bc", false),
            ("*/virtualMachines/node-0", "/x/virtualmachines/NODE-0", true),
            ("*/virtualMachines/node-0", "/x/virtualMachines/node-01", false),
            ("*/virtualMachines/*/start", "/x/virtualMachines/n/start", true),
            ("*a*a", "a", false),
            ("*a*a", "aa", true),
            ("*", "", true),
            ("/s*", "/t", false),
        ] {
            assert_eq!(matches(glob, path), expected, "{glob} {path}");
        }
    }

    #[test]
    fn the_body_and_the_operation_can_be_asked_for() {
        let mut incidents = Incidents::new();
        incidents
            .add(incident(
                "{match: {operation: 'vm.*', bodyContains: '\"toBeDetached\":true'}, then: {loseAnswer: after}}",
            ))
            .unwrap();
        let mut request = put("/vm");
        request.operation = "vm.createOrUpdate";
        assert!(incidents.next(&request).is_none());
        request.body = br#"{"x":{"toBeDetached":true}}"#;
        let effect = incidents.next(&request).unwrap();
        assert_eq!(effect.lose_answer, Some(LoseAnswer::After));
    }

    #[test]
    fn the_answer_is_an_arm_error_with_a_code_that_suits_its_status() {
        let effect = incident("then: {status: 429, retryAfter: 7, target: t}").then;
        assert_eq!(effect.error_body()["error"]["code"], "TooManyRequests");
        assert_eq!(effect.error_body()["error"]["target"], "t");
        assert_eq!(effect.retry_after, Some(7));
    }

    #[test]
    fn an_incident_that_makes_no_sense_is_refused() {
        let error = |yaml| Incidents::new().add(incident(yaml)).unwrap_err();
        assert_eq!(error("then: {}"), IncidentError::NoEffect);
        assert_eq!(error("{match: {nth: 0}, then: {status: 500}}"), IncidentError::NthZero);
        assert!(matches!(error("then: {status: 99}"), IncidentError::Status { status: 99 }));
        assert!(matches!(error("then: {code: X}"), IncidentError::Needs { member: "code", .. }));
        assert!(matches!(error("then: {status: 500, lateFailure: {code: X}}"), IncidentError::Exclusive { .. }));
        assert!(matches!(error("then: {headers: {'a b': c}}"), IncidentError::Header { .. }));
    }

    #[test]
    fn an_incident_survives_json_and_refuses_unknown_keys() {
        let original =
            incident("{match: {path: '*'}, then: {delayMs: 5, headers: {x-a: b}, lateFailure: {code: C}}, times: 4}");
        let text = serde_json::to_string(&original).unwrap();
        assert_eq!(serde_json::from_str::<Incident>(&text).unwrap(), original);
        let error = serde_json::from_str::<Incident>(r#"{"then":{"statsu":1}}"#).unwrap_err();
        assert!(error.to_string().contains("statsu"));
    }

    #[test]
    fn one_incident_can_be_taken_back() {
        let mut incidents = Incidents::new();
        let id = incidents.add(incident("then: {status: 500}")).unwrap();
        assert_eq!(incidents.list().len(), 1);
        assert!(incidents.remove(id));
        assert!(!incidents.remove(id));
        assert!(incidents.next(&put("/a")).is_none());
    }
}
