//! Leases of shares: locks against their deletion, as [`crate::leases`] has them.
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
use crate::fault;
use crate::leases::{Action, Answered, Lease, State, act, state, words};
use crate::path;
use crate::store::Resource;

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
    let (status, word) = words(state);
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

    #[test]
    fn what_the_specification_does_not_allow_is_no_action() {
        let read = |body: Value| read(&body, "new".to_owned());
        assert_eq!(
            read(json!({"action": "Acquire", "leaseDuration": -1})),
            Some(Action::Acquire { proposed: "new".to_owned(), length: None })
        );
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
