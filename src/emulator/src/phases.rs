//! The phases of a run: what each found in the buckets, counted, started, and how fast it could have been.
//!
//! A phase begins when it is named (`POST /_emulator/phases`) and ends when the next one begins; the first
//! begins with the emulator, and again whenever the log is emptied. Beginning a phase changes nothing
//! for clients: no bucket is filled, nothing is forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Serialize;

use crate::call_log::{Call, Counters};
use crate::latency::OperationKind;
use crate::lower_bound::LowerBound;
use crate::throttle::Contents;

/// How many accepted operations are kept, the newest. With fewer a bound is lower, and still one.
pub(crate) const OPERATIONS_MOST: usize = 100_000;
/// How many phases are kept, the newest.
pub const PHASES_MOST: usize = 100;

/// Disks (lower-case ids) that a write moves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) attached: Vec<String>,
    pub(crate) detached: Vec<String>,
}

/// An accepted operation, as the lower bound and the record of ends need it.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) id: String,
    /// The phase in which it was accepted.
    pub(crate) phase: u64,
    /// The object id of the caller.
    pub(crate) principal: String,
    /// Lower-case id.
    pub(crate) resource: String,
    pub(crate) kind: OperationKind,
    /// Which write of the resource it was, counted from 1.
    pub(crate) nth: u64,
    pub(crate) accepted: Duration,
    /// When it ends unless a newer one replaces it.
    pub(crate) due: Duration,
    /// Disks (lower-case ids) that it attaches to and detaches from a machine.
    pub(crate) attached: Vec<String>,
    pub(crate) detached: Vec<String>,
}

/// A phase that has just begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Begun {
    /// Counted from 1 since the start.
    pub number: u64,
    /// Milliseconds of emulated time since the start of the emulator.
    pub started_ms: u64,
}

/// A phase and all that was counted in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// Counted from 1 since the start.
    pub number: u64,
    /// As it was named; empty for the first.
    pub name: String,
    /// Milliseconds of emulated time since the start of the emulator.
    pub started_ms: u64,
    /// When the next phase began, if one has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// What the buckets of principals and subscriptions held at its start, as far as they were not full.
    pub buckets: BTreeMap<String, f64>,
    /// Sums over the calls that were answered in it.
    pub counters: Counters,
    /// How fast it could have been.
    pub lower_bound: LowerBound,
}

/// An operation with its end as Azure's clock has it, whether or not anybody has seen it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationRecord {
    /// The operation.
    pub id: String,
    /// Lower-case id of the disk, machine or group that it changes.
    pub resource: String,
    /// What it does.
    pub kind: OperationKind,
    /// Milliseconds of emulated time since the start of the emulator.
    pub accepted_ms: u64,
    /// When it ended; none while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Whether it ended well.
    pub succeeded: bool,
    /// Lower-case ids of the disks that it attaches to a machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<String>,
    /// Lower-case ids of the disks that it detaches from a machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub detached: Vec<String>,
}

/// A phase as it is counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) started: Duration,
    pub(crate) contents: Contents,
    pub(crate) counters: Counters,
}

/// The phases of this run and the operations accepted in them.
#[derive(Debug)]
pub(crate) struct Phases {
    /// Never empty; the last one is running.
    pub(crate) kept: VecDeque<Counted>,
    pub(crate) accepted: VecDeque<Accepted>,
}

impl Default for Phases {
    fn default() -> Self {
        Self { kept: [Counted { number: 1, ..Counted::default() }].into(), accepted: VecDeque::new() }
    }
}

impl Phases {
    /// Begins a phase with these buckets. Returns its number.
    pub(crate) fn begin(&mut self, name: &str, now: Duration, contents: Contents) -> u64 {
        let number = self.number() + 1;
        if self.kept.len() == PHASES_MOST {
            self.kept.pop_front();
        }
        let counters = Counters::default();
        self.kept.push_back(Counted { number, name: name.to_owned(), started: now, contents, counters });
        number
    }

    /// Forgets all phases and begins one without a name.
    pub(crate) fn reset(&mut self, now: Duration, contents: Contents) {
        let number = self.number();
        self.kept.clear();
        self.accepted.clear();
        self.kept.push_back(Counted { number, started: now, contents, ..Counted::default() });
    }

    /// The number of the running phase.
    pub(crate) fn number(&self) -> u64 {
        self.kept.back().map_or(1, |phase| phase.number)
    }

    pub(crate) fn count(&mut self, call: &Call) {
        if let Some(phase) = self.kept.back_mut() {
            phase.counters.count(call);
        }
    }

    pub(crate) fn accept(&mut self, operation: Accepted) {
        if self.accepted.len() == OPERATIONS_MOST {
            self.accepted.pop_front();
        }
        self.accepted.push_back(operation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_phase_goes_on_and_the_oldest_of_too_many_go() {
        let mut phases = Phases::default();
        for at in 0..PHASES_MOST + 4 {
            assert_eq!(phases.begin("again", Duration::ZERO, Contents::new()), at as u64 + 2);
        }
        assert_eq!(phases.kept.len(), PHASES_MOST);
        phases.reset(Duration::from_secs(1), Contents::new());
        assert_eq!((phases.kept.len(), phases.number()), (1, PHASES_MOST as u64 + 5));
    }
}
