//! What was asked and answered: the call log and its counters.
//!
//! The log keeps the newest calls, [`KEPT_MOST`] of them at most and [`KEPT_BYTES`] in all; of each call no more than
//! [`BODY_BYTES`] of the body and [`TEXT_BYTES`] of each text. The counters count all calls since the last reset.
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
    /// `arm`, `blob`, `login`, `metadata`.
    pub plane: String,
    /// HTTP method.
    pub method: String,
    /// Path as sent, without query.
    pub path: String,
    /// The api-version asked for; to the blob service `x-ms-version`.
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
    /// The body as sent, when it was JSON, with `<redacted>` in place of secrets. Of a body of more than
    /// [`BODY_BYTES`] a text with its beginning and its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// HTTP status answered; 0 when the answer was lost on purpose.
    pub status: u16,
    /// Error code of the answer.
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
/// How many bytes the kept calls take in memory at most, as the log estimates them: 25,000 calls with a body of
/// 2 KiB each, which is more than a machine with 8 data disks has. A limit of the emulator's own.
pub const KEPT_BYTES: usize = 64 * 1024 * 1024;
/// How many bytes the kept body of a call takes in memory at most: a machine with 64 data disks, written whole, fits
/// twice. Azure takes bodies of 4 MiB.
pub const BODY_BYTES: usize = 128 * 1024;
/// How many bytes of a path, `User-Agent` or other text of a call are kept.
pub const TEXT_BYTES: usize = 4 * 1024;
/// How many bytes of a body that is too large are kept, as text.
const CUT_BODY_BYTES: usize = 1024;

/// How much the log holds, and what it could not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogSize {
    /// The number of the oldest call that is kept, or that the next call will have.
    pub first: u64,
    /// How many calls are kept.
    pub kept: usize,
    /// How many bytes these take in memory, estimated.
    pub kept_bytes: usize,
    /// How many calls are kept no more, to make room for newer ones, since the log was last emptied.
    pub dropped: u64,
    /// How many calls had a body or a text that was cut, since the log was last emptied.
    pub cut: u64,
}

/// The log of a run.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    /// With the estimated size of each.
    calls: VecDeque<(usize, Call)>,
    counters: Counters,
    next: u64,
    bytes: usize,
    dropped: u64,
    cut: u64,
}

impl CallLog {
    pub(crate) fn push(&mut self, mut call: Call) {
        self.next += 1;
        call.number = self.next;
        self.counters.count(&call);
        self.cut += u64::from(call.cut());
        let bytes = call.bytes();
        self.bytes += bytes;
        self.calls.push_back((bytes, call));
        while self.calls.len() > KEPT_MOST || self.bytes > KEPT_BYTES {
            let Some((bytes, _)) = self.calls.pop_front() else { break };
            self.bytes -= bytes;
            self.dropped += 1;
        }
    }

    /// How much it holds.
    pub(crate) fn size(&self) -> LogSize {
        LogSize {
            first: self.calls.front().map_or(self.next + 1, |(_, call)| call.number),
            kept: self.calls.len(),
            kept_bytes: self.bytes,
            dropped: self.dropped,
            cut: self.cut,
        }
    }

    /// The newest calls, oldest first.
    pub(crate) fn calls(&self) -> impl DoubleEndedIterator<Item = &Call> {
        self.calls.iter().map(|(_, call)| call)
    }

    pub(crate) fn reset(&mut self) {
        *self = Self { next: self.next, ..Self::default() };
    }

    /// Sums over all calls since the last reset, kept or not.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Call {
    /// Cuts what is too long, with a mark; whether anything was.
    fn cut(&mut self) -> bool {
        let mut cut = cut_text(&mut self.path, TEXT_BYTES) | cut_text(&mut self.method, TEXT_BYTES);
        for text in [&mut self.api_version, &mut self.user_agent, &mut self.if_match, &mut self.code] {
            cut |= text.as_mut().is_some_and(|text| cut_text(text, TEXT_BYTES));
        }
        if let Some(body) = &mut self.body
            && bytes_of(body) > BODY_BYTES
        {
            let mut text = body.to_string();
            cut_text(&mut text, CUT_BODY_BYTES);
            *body = Value::String(text);
            cut = true;
        }
        cut
    }

    /// How many bytes it takes in memory, estimated.
    fn bytes(&self) -> usize {
        let texts = [&self.api_version, &self.user_agent, &self.if_match, &self.code, &self.started];
        let texts: usize = texts.into_iter().flatten().map(String::capacity).sum();
        let named = self.plane.capacity() + self.method.capacity() + self.path.capacity() + self.operation.capacity();
        size_of::<(usize, Self)>() + texts + named + self.body.as_ref().map_or(0, bytes_of)
    }
}

/// Cuts a text, with a mark that says how long it was; whether it was too long.
fn cut_text(text: &mut String, most: usize) -> bool {
    if text.len() <= most {
        return false;
    }
    let whole = text.len();
    text.truncate(text.floor_char_boundary(most));
    text.push_str(&format!("… (cut; {whole} bytes in all)"));
    text.shrink_to_fit();
    true
}

/// How many bytes a JSON value takes in memory, estimated: its own size, what its texts hold, and for each member of
/// an object a name and two words of index.
fn bytes_of(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.capacity(),
            Value::Array(items) => items.iter().map(bytes_of).sum(),
            Value::Object(members) => {
                let member = size_of::<String>() + 2 * size_of::<usize>();
                members.iter().map(|(name, value)| member + name.capacity() + bytes_of(value)).sum()
            }
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

    fn call() -> Call {
        Call {
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
        }
    }

    #[test]
    fn the_oldest_of_too_many_calls_are_dropped_and_all_are_counted() {
        let mut log = CallLog::default();
        for _ in 0..KEPT_MOST + 3 {
            log.push(call());
        }
        assert_eq!(log.calls().count(), KEPT_MOST);
        assert_eq!(log.calls().next().map(|call| call.number), Some(4));
        assert_eq!((log.counters().calls, log.counters().reads), (25_003, 25_003));
        assert_eq!((log.size().first, log.size().kept, log.size().dropped), (4, KEPT_MOST, 3));
        log.reset();
        assert_eq!(*log.counters(), Counters::default());
        assert_eq!(log.size(), LogSize { first: 25_004, ..LogSize::default() });
    }

    #[test]
    fn no_number_of_large_calls_takes_more_memory_than_the_limit() {
        let mut log = CallLog::default();
        // Just below the size at which a body is cut.
        let body = serde_json::json!({ "text": "x".repeat(BODY_BYTES - 200) });
        let calls = 2 * KEPT_BYTES / BODY_BYTES;
        for _ in 0..calls {
            log.push(Call { body: Some(body.clone()), ..call() });
        }
        let size = log.size();
        assert!(size.kept_bytes <= KEPT_BYTES && size.kept_bytes > KEPT_BYTES - 2 * BODY_BYTES, "{size:?}");
        assert_eq!((size.kept as u64 + size.dropped, size.cut), (calls as u64, 0));
        assert_eq!(log.counters().calls, calls as u64);
        let summed: usize = log.calls().map(Call::bytes).sum();
        assert_eq!(summed, size.kept_bytes);
    }

    #[test]
    fn a_large_body_and_a_long_text_are_cut_with_a_mark() {
        let mut log = CallLog::default();
        let body = serde_json::json!({ "text": "ä".repeat(BODY_BYTES) });
        let whole = body.to_string().len();
        log.push(Call { body: Some(body), user_agent: Some("a".repeat(TEXT_BYTES + 1)), ..call() });
        log.push(Call { user_agent: Some("a".repeat(TEXT_BYTES)), ..call() });
        let calls: Vec<&Call> = log.calls().collect();
        let body = calls[0].body.as_ref().and_then(Value::as_str).unwrap();
        assert!(body.starts_with("{\"text\":\"ää") && body.len() < 2 * CUT_BODY_BYTES, "{body}");
        assert!(body.ends_with(&format!("… (cut; {whole} bytes in all)")), "{body}");
        assert!(calls[0].user_agent.as_ref().unwrap().ends_with("a… (cut; 4097 bytes in all)"));
        assert_eq!(calls[1].user_agent.as_ref().unwrap().len(), TEXT_BYTES);
        assert_eq!(log.size().cut, 1);
    }
}
