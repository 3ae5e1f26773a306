//! What was asked and answered: the call log and its counters.
//!
//! The log keeps the newest [`KEPT_MOST`] calls; the counters count all since the last reset.
//! Entries carry emulated time only and no port, so two runs from one seed have the same log.

use std::collections::{BTreeMap, VecDeque};

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
    /// Of the writes, those that are DELETE.
    pub deletes: u64,
    /// GET and HEAD to the resource manager, polls of operations among them.
    pub reads: u64,
    /// Of the reads, those of operations.
    pub polls: u64,
    /// Of the reads, those about virtual machines: of machines, of lists of them, and of their operations.
    pub vm_reads: u64,
    /// Of the reads, pages of lists.
    pub list_pages: u64,
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

/// How many calls are kept, the newest: what a run of any length keeps in memory. The counters count all.
pub const KEPT_MOST: usize = 25_000;

/// The log of a run.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    calls: VecDeque<Call>,
    counters: Counters,
    next: u64,
}

impl CallLog {
    pub(crate) fn push(&mut self, mut call: Call) {
        self.next += 1;
        call.number = self.next;
        self.counters.count(&call);
        if self.calls.len() == KEPT_MOST {
            self.calls.pop_front();
        }
        self.calls.push_back(call);
    }

    /// The newest calls, oldest first.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter()
    }

    pub(crate) fn reset(&mut self) {
        self.calls.clear();
        self.counters = Counters::default();
    }

    /// Sums over all calls since the last reset, kept or not.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Counters {
    pub(crate) fn count(&mut self, call: &Call) {
        self.calls += 1;
        *self.by_operation.entry(call.operation.clone()).or_default() += 1;
        *self.by_status.entry(call.status).or_default() += 1;
        if call.plane == "arm" {
            match call.method.as_str() {
                "GET" | "HEAD" => self.count_read(call),
                method => {
                    self.writes += 1;
                    self.deletes += u64::from(method == "DELETE");
                }
            }
        }
        match call.status {
            429 => self.throttled += 1,
            409 => self.conflicts += 1,
            412 => self.precondition_failed += 1,
            _ => {}
        }
    }

    fn count_read(&mut self, call: &Call) {
        let (resource, verb) = call.operation.split_once('.').unwrap_or_default();
        let poll = call.operation == "operations.get";
        self.reads += 1;
        self.polls += u64::from(poll);
        self.list_pages += u64::from(verb.starts_with("list"));
        // The compute provider has two collections of operations: DiskOperations and operations.
        let path = call.path.to_ascii_lowercase();
        let of_vm = poll && path.contains("/microsoft.compute/") && !path.contains("/diskoperations/");
        self.vm_reads += u64::from(of_vm || resource == "virtualMachines");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_calls_are_dropped_and_all_are_counted() {
        let mut log = CallLog::default();
        let call = Call {
            number: 0,
            at_ms: 0,
            plane: "arm".to_owned(),
            method: "GET".to_owned(),
            path: String::new(),
            api_version: None,
            operation: "disks.get".to_owned(),
            user_agent: None,
            if_match: None,
            body: None,
            status: 200,
            code: None,
            started: None,
            latency_ms: None,
            incident: false,
        };
        for _ in 0..KEPT_MOST + 3 {
            log.push(call.clone());
        }
        assert_eq!(log.calls().count(), KEPT_MOST);
        assert_eq!(log.calls().next().map(|call| call.number), Some(4));
        assert_eq!((log.counters().calls, log.counters().reads), (25_003, 25_003));
        log.reset();
        assert_eq!(*log.counters(), Counters::default());
    }
}
