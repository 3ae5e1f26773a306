//! Leases of shares: locks against their deletion.
//!
//! ```text
//! available ──acquire──► leased ──time──► expired        break: leased ──► breaking ──time──► broken
//!     ▲                    │ ▲ renew         │                     expired ──────────────────► broken
//!     └──────release───────┴─┴───────────────┘            acquire: expired, broken ──────────► leased
//! ```
//!
//! Documented (lease-share): the actions, their states and codes, and lengths of 15 to 60 seconds or without an end. Unverified:
//! that the provider shows the states in lower case, as the file service does, and what it answers a body that it cannot use.
//! Leases of snapshots are not emulated.

use serde_json::{Value, json};

use super::base::location;
use super::own_documents::{LEASE, OVER};
use super::share_base::{self, Asked, below_service};
use super::windows;
use crate::answer::{Answer, Context, Reply};
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::path;
use crate::store::Resource;

const SECOND: i128 = 1_000_000_000;

/// A lease. Moments are nanoseconds of Unix time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    id: String,
    /// Seconds; none for one without an end.
    length: Option<i64>,
    /// When it ends; when it is broken, if it is being broken.
    ends: Option<i128>,
    is_breaking: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Available,
    Leased,
    Expired,
    Breaking,
    Broken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Acquire { proposed: String, length: Option<i64> },
    Renew { id: String },
    Change { id: String, proposed: String },
    Release { id: String },
    Break { period: Option<i64> },
}

/// What an action answers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answered {
    Id(String),
    Seconds(i64),
    Nothing,
}

fn ends(length: Option<i64>, now: i128) -> Option<i128> {
    length.map(|seconds| now + i128::from(seconds) * SECOND)
}

fn state(lease: Option<&Lease>, now: i128) -> State {
    let Some(lease) = lease else { return State::Available };
    match (lease.is_breaking, lease.ends.is_some_and(|ends| ends <= now)) {
        (false, false) => State::Leased,
        (false, true) => State::Expired,
        (true, false) => State::Breaking,
        (true, true) => State::Broken,
    }
}

/// The lease after an action, and what is answered.
fn act(lease: Option<Lease>, action: Action, now: i128) -> Result<(Option<Lease>, Answered), Fault> {
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

/// POST `lease`.
pub(super) fn lease(context: &mut Context<'_>) -> Reply {
    let asked = share_base::asked(context, "write")?;
    windows::write(context, location(&asked.account))?;
    let body = context.request.body()?.clone();
    let generated = context.state.guid();
    let action = read(&body, generated).ok_or_else(|| fault::account_parameters_invalid("leaseShareRequest"))?;
    take(context, &asked, action).map_err(|refused| share_base::said(context, refused))
}

fn take(context: &mut Context<'_>, asked: &Asked, action: Action) -> Reply {
    if share_base::snapshot_header(context).is_some() {
        return Err(fault::share_header_invalid());
    }
    if !context.state.store.contains(&asked.id) {
        return Err(fault::share_not_found());
    }
    let now = context.shared.clock.at(context.now).as_nanosecond();
    let id = id_of(asked);
    let before = context.state.store.document(&id).and_then(|doc| of_document(&doc));
    let (after, answered) = act(before, action, now)?;
    forget(context, asked);
    if let Some(lease) = after {
        let doc = document(&id, path::name_of(&asked.id), &lease);
        let at = context.now;
        context.state.store.insert(&id, Resource::new(doc), at);
    }
    show(context, &asked.account, path::name_of(&asked.id), now);
    Ok(Answer::json(
        200,
        match answered {
            Answered::Id(id) => json!({"leaseId": id}),
            Answered::Seconds(seconds) => json!({"leaseTimeSeconds": seconds.to_string()}),
            Answered::Nothing => json!({}),
        },
    ))
}

/// Reads a request; none of what the published specification does not allow.
fn read(body: &Value, generated: String) -> Option<Action> {
    let number = |member: &str| match body.get(member) {
        None | Some(Value::Null) => Some(None),
        Some(value) => value.as_i64().map(Some),
    };
    let guid = |member: &str| match body.get(member) {
        None | Some(Value::Null) => Some(None),
        Some(value) => uuid::Uuid::try_parse(value.as_str()?).ok().map(|id| Some(id.to_string())),
    };
    let (id, proposed) = (guid("leaseId")?, guid("proposedLeaseId")?);
    match body["action"].as_str()?.to_ascii_lowercase().as_str() {
        "acquire" => {
            let length = match number("leaseDuration")?? {
                -1 => None,
                seconds if (15..=60).contains(&seconds) => Some(seconds),
                _ => return None,
            };
            Some(Action::Acquire { proposed: proposed.unwrap_or(generated), length })
        }
        "renew" => Some(Action::Renew { id: id? }),
        "change" => Some(Action::Change { id: id?, proposed: proposed? }),
        "release" => Some(Action::Release { id: id? }),
        "break" => {
            let period = number("breakPeriod")?;
            period.is_none_or(|seconds| (0..=60).contains(&seconds)).then_some(Action::Break { period })
        }
        _ => None,
    }
}

fn id_of(asked: &Asked) -> String {
    below_service(&asked.account, "leases", path::name_of(&asked.id))
}

fn document(id: &str, share: &str, lease: &Lease) -> Value {
    json!({"id": id, "name": share, "type": LEASE, OVER: lease.ends.map(|ends| ends.to_string()), "properties": {
        "leaseId": lease.id, "length": lease.length, "isBreaking": lease.is_breaking,
    }})
}

fn of_document(doc: &Value) -> Option<Lease> {
    let properties = &doc["properties"];
    Some(Lease {
        id: properties["leaseId"].as_str()?.to_owned(),
        length: properties["length"].as_i64(),
        ends: doc[OVER].as_str().and_then(|ends| ends.parse().ok()),
        is_breaking: properties["isBreaking"] == true,
    })
}

/// Has a share show that it has no lease.
pub(super) fn show_none(properties: &mut Value) {
    put(properties, State::Available, None);
}

fn put(properties: &mut Value, state: State, lease: Option<&Lease>) {
    let (status, word) = match state {
        State::Available => ("unlocked", "available"),
        State::Leased => ("locked", "leased"),
        State::Expired => ("unlocked", "expired"),
        State::Breaking => ("locked", "breaking"),
        State::Broken => ("unlocked", "broken"),
    };
    properties["leaseStatus"] = json!(status);
    properties["leaseState"] = json!(word);
    let length = lease.filter(|_| state == State::Leased).map(|lease| lease.length);
    match (length, properties.as_object_mut()) {
        (Some(length), _) => {
            properties["leaseDuration"] = json!(if length.is_some() { "fixed" } else { "infinite" });
        }
        (None, Some(properties)) => drop(properties.shift_remove("leaseDuration")),
        (None, None) => {}
    }
}

/// Has a share show what its lease is now.
fn show(context: &mut Context<'_>, account: &Value, name: &str, now: i128) {
    let (id, share) = (below_service(account, "leases", name), share_base::id_of(account, name));
    let lease = context.state.store.document(&id).and_then(|doc| of_document(&doc));
    let Some(mut doc) = context.state.store.document(&share).map(Document::into_value) else { return };
    let before = doc.clone();
    put(&mut doc["properties"], state(lease.as_ref(), now), lease.as_ref());
    if before != doc {
        let at = context.now;
        context.state.store.change(&share, at, |resource| resource.doc = doc.clone().into());
    }
}

/// Has the shares of an account show what became of their leases.
pub(super) fn follow_time(context: &mut Context<'_>, account: &Value) {
    let now = context.shared.clock.at(context.now).as_nanosecond();
    let leases = context.state.store.below_of_kind(path::of(account), LEASE);
    let shares: Vec<String> = leases.map(|lease| lease.name().to_owned()).collect();
    for share in shares {
        show(context, account, &share, now);
    }
}

/// Whether a share is locked against its deletion.
pub(super) fn is_locked(share: &Value) -> bool {
    share["properties"]["leaseStatus"] == "locked"
}

/// Ends the lease of a share, as it goes.
pub(super) fn forget(context: &mut Context<'_>, asked: &Asked) {
    let (id, now) = (id_of(asked), context.now);
    if context.state.store.contains(&id) {
        context.state.store.remove(&id, now);
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
    fn what_the_specification_does_not_allow_is_no_action() {
        let read = |body: Value| read(&body, "new".to_owned());
        assert_eq!(read(json!({"action": "Acquire", "leaseDuration": -1})), Some(acquire("new", None)));
        for body in [
            json!({}),
            json!({"action": "Steal"}),
            json!({"action": "Acquire"}),
            json!({"action": "Acquire", "leaseDuration": 14}),
            json!({"action": "Acquire", "leaseDuration": 61}),
            json!({"action": "Acquire", "leaseDuration": 15, "proposedLeaseId": "no guid"}),
            json!({"action": "Renew"}),
            json!({"action": "Break", "breakPeriod": 61}),
        ] {
            assert_eq!(read(body.clone()), None, "{body}");
        }
    }
}
