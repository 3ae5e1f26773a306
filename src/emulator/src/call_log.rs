//! What was asked and answered: the call log and its counters.
//!
//! Entries carry emulated time only and no port, so two runs from one seed have the same log.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

/// One request and its answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// Counted from 1 since the start; survives a reset of the log.
    pub number: u64,
    /// Milliseconds of emulated time since the start, at arrival.
    pub at_ms: u64,
    /// `arm`, `login`, `metadata`.
    pub plane: String,
    /// HTTP method.
    pub method: String,
    /// Path as sent, without query.
    pub path: String,
    /// The api-version asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The emulator's name of the operation, such as `virtualMachines.attachDetachDataDisks`.
    pub operation: String,
    /// `User-Agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// `If-Match`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_match: Option<String>,
    /// The body as sent, when it was JSON. Secrets are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// HTTP status answered; 0 when the answer was lost on purpose.
    pub status: u16,
    /// ARM error code of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The long-running operation that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// Milliseconds drawn for that operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// Whether an incident struck.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub incident: bool,
}

/// Sums over the call log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// All requests.
    pub calls: u64,
    /// PUT, PATCH, POST and DELETE to the resource manager.
    pub writes: u64,
    /// GET and HEAD to the resource manager, polls of operations left out.
    pub reads: u64,
    /// GETs of operations.
    pub polls: u64,
    /// Answers with 429.
    pub throttled: u64,
    /// Answers with 409.
    pub conflicts: u64,
    /// Answers with 412.
    pub precondition_failed: u64,
    /// By operation name.
    pub by_operation: BTreeMap<String, u64>,
    /// By HTTP status.
    pub by_status: BTreeMap<u16, u64>,
}

/// The log of a run.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    calls: Vec<Call>,
    next: u64,
    /// When the log was last emptied.
    pub(crate) since: Duration,
}

impl CallLog {
    pub(crate) fn push(&mut self, mut call: Call) {
        self.next += 1;
        call.number = self.next;
        self.calls.push(call);
    }

    pub(crate) fn calls(&self) -> &[Call] {
        &self.calls
    }

    pub(crate) fn reset(&mut self, now: Duration) {
        self.calls.clear();
        self.since = now;
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for call in &self.calls {
            counters.calls += 1;
            *counters.by_operation.entry(call.operation.clone()).or_default() += 1;
            *counters.by_status.entry(call.status).or_default() += 1;
            if call.plane == "arm" {
                match call.method.as_str() {
                    "GET" | "HEAD" if call.operation == "operations.get" => counters.polls += 1,
                    "GET" | "HEAD" => counters.reads += 1,
                    _ => counters.writes += 1,
                }
            }
            match call.status {
                429 => counters.throttled += 1,
                409 => counters.conflicts += 1,
                412 => counters.precondition_failed += 1,
                _ => {}
            }
        }
        counters
    }
}
