//! What every write goes through, whatever it writes: names, other writers, and the note for the lower bound.

use serde_json::{Map, Value, json};

use crate::answer::{Answer, Context, Reply, Started};
use crate::arm::protocol::Schema;
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::path;
use crate::phases::{Accepted, Moved};
use crate::store::Resource;

/// Names of network resources and availability sets. Documented: 1 to 80 characters; letters, digits,
/// `_`, `-`, `.`; begins with a letter or digit and ends with one or with `_`.
pub(crate) fn check_name(kind: &str, name: &str) -> Result<(), Fault> {
    let fits = (1..=80).contains(&name.chars().count())
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
        && name.starts_with(char::is_alphanumeric)
        && name.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    if fits { Ok(()) } else { Err(fault::invalid_name(kind, name)) }
}

/// Refuses a write while another operation runs on the same resource. Documented.
pub(crate) fn refuse_if_busy(context: &Context<'_>, id: &str) -> Result<(), Fault> {
    let running = context
        .state
        .store
        .get(id)
        .and_then(|resource| resource.busy.as_deref())
        .is_some_and(|busy| context.state.operations.is_running(busy));
    if running { Err(fault::concurrent_request()) } else { Ok(()) }
}

/// With `--future-fields`: refuses and records a write that drops what the client had been given.
pub(crate) fn refuse_if_dropped(context: &mut Context<'_>, old: &Value) -> Result<(), Fault> {
    let dropped = match &context.request.json {
        Some(body) if context.shared.options.future_fields => crate::unknown_fields::dropped(old, body),
        _ => None,
    };
    let Some(dropped) = dropped else {
        return Ok(());
    };
    let id = old["id"].as_str().unwrap_or("");
    context.state.violations.push(format!("{} {id}: {dropped}", context.request.method));
    Err(fault::bad_request(dropped))
}

/// `If-Match` and `If-None-Match` of an etag that is a number. Recorded mismatch; `*` is documented.
pub(crate) fn numbered_preconditions(context: &Context<'_>, have: Option<&str>) -> Result<(), Fault> {
    if let Some(wanted) = context.request.header("if-match") {
        let quoted = format!("\"{}\"", wanted.trim().trim_matches('"'));
        let matches = match have {
            Some(have) => wanted.trim() == "*" || quoted == have,
            None => false,
        };
        if !matches {
            return Err(fault::etag_mismatch(&quoted, have.unwrap_or("\"\"")));
        }
    }
    if let (Some(unwanted), Some(have)) = (context.request.header("if-none-match"), have) {
        let quoted = format!("\"{}\"", unwanted.trim().trim_matches('"'));
        if unwanted.trim() == "*" || quoted == have {
            return Err(fault::already_exists(unwanted.trim(), have));
        }
    }
    Ok(())
}

/// Notes an accepted operation for the lower bound and the record of ends.
pub(crate) fn record(context: &mut Context<'_>, kind: OperationKind, resource: &str, started: &Started, moved: Moved) {
    let phase = context.state.phases.number();
    context.state.phases.accept(Accepted {
        id: started.id.clone(),
        phase,
        principal: context.principal.to_owned(),
        resource: path::key(resource),
        kind,
        nth: started.nth,
        accepted: context.now,
        due: context.now + started.latency,
        attached: moved.attached,
        detached: moved.detached,
    });
}

/// What a document of the compute provider begins with: what identifies it, and these members as asked.
pub(crate) fn base(kind: &str, id: &str, location: &str, members: &[&str], asked: &Value) -> Value {
    let own = json!({"name": path::name_of(id), "id": id, "type": kind, "location": location});
    with(own, members, asked)
}

/// An object without nothing in it.
pub(crate) fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// The PATCH that changes tags and nothing else: reads the body and replaces the tags of a resource that exists, at
/// once. Documented. `also` is what else such a write does to it.
pub(crate) fn patch_tags(
    context: &mut Context<'_>,
    id: &str,
    schema: Schema,
    also: impl FnOnce(&mut Resource),
) -> Reply {
    let body = context.read(schema.name, schema.root, true)?;
    let now = context.now;
    let doc = context.state.store.change(id, now, |resource| {
        if let Some(tags) = body.get("tags") {
            resource.doc["tags"] = tags.clone();
        }
        also(resource);
        resource.doc.clone()
    });
    Ok(Answer::json(200, doc.unwrap_or_default()))
}

/// An object with these members of another, where that has them.
pub(crate) fn with(mut value: Value, members: &[&str], others: &Value) -> Value {
    for member in members {
        if let Some(other) = others.get(member) {
            value[*member] = other.clone();
        }
    }
    value
}

/// An object with these members of another, each a reference or a list of them, of which the id alone stays. Recorded.
pub(crate) fn with_ids(mut value: Value, members: &[&str], others: &Value) -> Value {
    let id = |reference: &Value| json!({"id": reference["id"]});
    for member in members {
        match &others[*member] {
            Value::Array(references) => value[*member] = references.iter().map(id).collect(),
            reference if reference["id"].is_string() => value[*member] = id(reference),
            _ => {}
        }
    }
    value
}

/// An object with what it does not have yet of another.
pub(crate) fn with_others(mut value: Value, others: &Value) -> Value {
    for (member, other) in object(others) {
        if value.get(&member).is_none() {
            value[member] = other;
        }
    }
    value
}
