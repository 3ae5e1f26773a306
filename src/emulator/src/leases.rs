//! Leases: locks with an id and a length, of shares against their deletion, of containers and blobs.
//!
//! ```text
//! available ──acquire──► leased ──time──► expired        break: leased ──► breaking ──time──► broken
//!     ▲                    │ ▲ renew         │                     expired ──────────────────► broken
//!     └──────release───────┴─┴───────────────┘            acquire: expired, broken ──────────► leased
//! ```
//!
//! Documented (lease-share, lease-blob): the actions, their states and codes, and lengths of 15 to 60 seconds or without an
//! end. This module reads no request and keeps nothing.

use serde::{Deserialize, Serialize};

use crate::fault::{self, Fault};

/// In nanoseconds.
pub(crate) const SECOND: i128 = 1_000_000_000;

/// A lease. Moments are nanoseconds of Unix time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lease {
    pub(crate) id: String,
    /// Seconds; none for one without an end.
    pub(crate) length: Option<i64>,
    /// When it ends; when it is broken, if it is being broken.
    pub(crate) ends: Option<i128>,
    pub(crate) is_breaking: bool,
}

/// What has become of a lease at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Available,
    Leased,
    Expired,
    Breaking,
    Broken,
}

/// What a request does to a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Acquire { proposed: String, length: Option<i64> },
    Renew { id: String },
    Change { id: String, proposed: String },
    Release { id: String },
    Break { period: Option<i64> },
}

/// What an action answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Id(String),
    Seconds(i64),
    Nothing,
}

fn ends(length: Option<i64>, now: i128) -> Option<i128> {
    length.map(|seconds| now + i128::from(seconds) * SECOND)
}

/// The state of a lease, or of what has none.
pub(crate) fn state(lease: Option<&Lease>, now: i128) -> State {
    let Some(lease) = lease else { return State::Available };
    match (lease.is_breaking, lease.ends.is_some_and(|ends| ends <= now)) {
        (false, false) => State::Leased,
        (false, true) => State::Expired,
        (true, false) => State::Breaking,
        (true, true) => State::Broken,
    }
}

/// The lease after an action, and what is answered.
pub(crate) fn act(lease: Option<Lease>, action: Action, now: i128) -> Result<(Option<Lease>, Answered), Fault> {
    let state = state(lease.as_ref(), now);
    let has = |id: &str| lease.as_ref().is_some_and(|lease| lease.id.eq_ignore_ascii_case(id));
    match action {
        Action::Acquire { proposed, length } => {
            let is_own = has(&proposed);
            match state {
                State::Breaking if is_own => return Err(fault::lease_not_acquired()),
                State::Breaking => return Err(fault::lease_present()),
                State::Leased if !is_own => return Err(fault::lease_present()),
                State::Available | State::Leased | State::Expired | State::Broken => {}
            }
            let answered = Answered::Id(proposed.clone());
            Ok((Some(Lease { id: proposed, length, ends: ends(length, now), is_breaking: false }), answered))
        }
        Action::Renew { id } => {
            let found = lease.clone().filter(|_| has(&id)).ok_or_else(fault::lease_of_another)?;
            match state {
                State::Breaking | State::Broken => Err(fault::lease_broken()),
                _ => Ok((Some(Lease { ends: ends(found.length, now), ..found }), Answered::Id(id))),
            }
        }
        Action::Change { id, proposed } => {
            let found = lease.clone().filter(|_| matches!(state, State::Leased | State::Breaking));
            let found = found.ok_or_else(fault::lease_absent)?;
            if !has(&id) && !has(&proposed) {
                return Err(fault::lease_of_another());
            }
            match state {
                State::Breaking => Err(fault::lease_not_changed()),
                _ => Ok((Some(Lease { id: proposed.clone(), ..found }), Answered::Id(proposed))),
            }
        }
        Action::Release { id } => match has(&id) {
            true => Ok((None, Answered::Nothing)),
            false => Err(fault::lease_of_another()),
        },
        Action::Break { period } => {
            let found = lease.ok_or_else(fault::lease_absent)?;
            let left = found.ends.map(|ends| i64::try_from((ends - now).max(0) / SECOND).unwrap_or(0));
            // Of a lease without an end nothing is left to wait for, unless the caller says so.
            let wait = match (left, period) {
                (Some(left), Some(period)) => left.min(period),
                (Some(left), None) => left,
                (None, period) => period.unwrap_or(0),
            };
            let broken = Lease { ends: Some(now + i128::from(wait) * SECOND), is_breaking: true, ..found };
            Ok((Some(broken), Answered::Seconds(wait)))
        }
    }
}

/// The words for a state: status, state.
pub(crate) const fn words(state: State) -> (&'static str, &'static str) {
    match state {
        State::Available => ("unlocked", "available"),
        State::Leased => ("locked", "leased"),
        State::Expired => ("unlocked", "expired"),
        State::Breaking => ("locked", "breaking"),
        State::Broken => ("unlocked", "broken"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire(id: &str, length: Option<i64>) -> Action {
        Action::Acquire { proposed: id.to_owned(), length }
    }

    /// The states, answers and codes of a story of actions, each at a second.
    fn story(actions: &[(i128, Action)]) -> Vec<String> {
        let mut lease = None;
        let mut told = Vec::new();
        for (second, action) in actions {
            let now = second * SECOND;
            match act(lease.clone(), action.clone(), now) {
                Ok((after, answer)) => {
                    told.push(format!("{:?} {answer:?}", state(after.as_ref(), now)));
                    lease = after;
                }
                Err(fault) => told.push(format!("{} {}", fault.status, fault.code)),
            }
        }
        told
    }

    #[test]
    fn a_lease_is_acquired_renewed_changed_and_released_by_its_id() {
        let id = |id: &str| id.to_owned();
        let told = story(&[
            (0, Action::Renew { id: id("a") }),
            (0, Action::Change { id: id("a"), proposed: id("b") }),
            (0, Action::Break { period: None }),
            (0, acquire("a", Some(15))),
            (1, acquire("b", Some(15))),
            (2, acquire("A", Some(15))),
            (3, Action::Change { id: id("a"), proposed: id("b") }),
            (3, Action::Change { id: id("x"), proposed: id("y") }),
            (4, Action::Release { id: id("a") }),
            (40, Action::Change { id: id("b"), proposed: id("c") }),
            (40, Action::Renew { id: id("b") }),
            (41, Action::Release { id: id("b") }),
        ]);
        assert_eq!(
            told,
            [
                "409 LeaseIdMismatchWithLeaseOperation",
                "409 LeaseNotPresentWithLeaseOperation",
                "409 LeaseNotPresentWithLeaseOperation",
                "Leased Id(\"a\")",
                "409 LeaseAlreadyPresent",
                "Leased Id(\"A\")",
                "Leased Id(\"b\")",
                "409 LeaseIdMismatchWithLeaseOperation",
                "409 LeaseIdMismatchWithLeaseOperation",
                "409 LeaseNotPresentWithLeaseOperation",
                "Leased Id(\"b\")",
                "Available Nothing",
            ]
        );
    }

    #[test]
    fn a_lease_that_is_broken_ends_when_its_time_is_over() {
        let id = "a".to_owned();
        let told = story(&[
            (0, acquire("a", Some(30))),
            (10, Action::Break { period: Some(60) }),
            (11, acquire("a", Some(30))),
            (11, acquire("b", Some(30))),
            (11, Action::Change { id: id.clone(), proposed: "b".to_owned() }),
            (12, Action::Renew { id: id.clone() }),
            (13, Action::Break { period: Some(5) }),
            (18, Action::Renew { id: id.clone() }),
            (18, acquire("b", None)),
            (1_000, Action::Break { period: None }),
            (1_000, Action::Release { id: "b".to_owned() }),
        ]);
        assert_eq!(
            told,
            [
                "Leased Id(\"a\")",
                "Breaking Seconds(20)",
                "409 LeaseIsBreakingAndCannotBeAcquired",
                "409 LeaseAlreadyPresent",
                "409 LeaseIsBreakingAndCannotBeChanged",
                "409 LeaseIsBrokenAndCannotBeRenewed",
                "Breaking Seconds(5)",
                "409 LeaseIsBrokenAndCannotBeRenewed",
                "Leased Id(\"b\")",
                "Broken Seconds(0)",
                "Available Nothing",
            ]
        );
    }

    #[test]
    fn a_lease_survives_the_state_file() {
        let kept = |lease: &Lease| serde_json::from_value::<Lease>(serde_json::to_value(lease).unwrap()).unwrap();
        for ends in [None, Some(1_767_225_600 * SECOND)] {
            let lease = Lease { id: "a".to_owned(), length: ends.map(|_| 15), ends, is_breaking: false };
            assert_eq!(kept(&lease), lease);
        }
    }
}
