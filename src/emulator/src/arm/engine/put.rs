//! PUT and PATCH of resources.

use serde_json::{Value, json};

use super::{
    another_operation, changed, document, location_of, next_etag, preconditions, quotas, references, refuse_if_deleting,
};
use crate::answer::{Answer, Context, Reply, Start, Started};
use crate::arm::descriptor::{Begun, Beside, Descriptor, Draft, Family, Origin, Planned, Verb, Writers};
use crate::arm::protocol::{Absent, Answered, Commit, Etags, Patch, Shape, Stamps};
use crate::arm::{regions, writes};
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::operations::{Outcome, Style};
use crate::options::ConcurrentNetwork;
use crate::path;
use crate::phases::Moved;
use crate::state::{State, Undo};
use crate::store::Resource;

/// A write whose body has been read.
struct Write<'a> {
    id: &'a str,
    location: &'a str,
    body: &'a Value,
    old: Option<Document>,
    /// How a change of what exists is answered.
    updated: Answered,
    verb: Verb,
}

/// PUT.
pub(crate) fn put(descriptor: &'static Descriptor, context: &mut Context<'_>) -> Reply {
    if let Some(plan) = descriptor.hooks.plan {
        let planned = plan(context, Verb::Put)?;
        return accept(descriptor, context, planned);
    }
    let group = context.require_group()?;
    let stays = match descriptor.absent {
        Absent::Default | Absent::DefaultBut { .. } => None,
        Absent::Stay => context.state.store.document(&descriptor.id(context)),
    };
    let mut body = context.read(descriptor.schema.name, descriptor.schema.root, stays.is_some())?;
    if let Some(old) = stays {
        let asked = std::mem::replace(&mut body, old.into_value());
        merge(&mut body, asked);
    }
    if let Absent::DefaultBut { member, since } = descriptor.absent {
        keep_parts(descriptor, context, &mut body, (member, since));
    }
    let (base, location) = match descriptor.parent {
        None => {
            let location = path::location(body["location"].as_str().unwrap_or(""));
            regions::check(&location, descriptor.kind)?;
            (group, location)
        }
        Some(parent) => {
            let found = context.state.store.document(&parent.id(context));
            let found = found.ok_or_else(|| fault::parent_not_found(descriptor.kind, parent.id(context)))?;
            refuse_if_deleting(parent, context, &found)?;
            let location = found["location"].as_str().unwrap_or("").to_owned();
            (found, location)
        }
    };
    (descriptor.hooks.name)(descriptor.kind, descriptor.name(context))?;
    let id = descriptor.id_below(path::of(&base), context);
    let old = context.state.store.document(&id);
    // The id stays as it was first spelt.
    let id = old.as_ref().and_then(|old| old["id"].as_str()).map_or(id, str::to_owned);
    let updated = (descriptor.put.updated)(&context.shared.options.unverified);
    write(descriptor, context, Write { id: &id, location: &location, body: &body, old, updated, verb: Verb::Put })
}

/// Puts into a body the parts of what exists, where it says nothing of them. Documented for the subnets of a virtual
/// network: an empty list takes them away, and so did none before that version.
fn keep_parts(
    descriptor: &Descriptor,
    context: &Context<'_>,
    body: &mut Value,
    (member, since): (&'static str, &'static str),
) {
    let version = context.request.query.get("api-version").map_or("", String::as_str);
    if version >= since
        && body["properties"].get(member).is_none()
        && let Some(old) = context.state.store.document(&descriptor.id(context))
    {
        body["properties"][member] = old["properties"][member].clone();
    }
}

/// PATCH.
pub(crate) fn patch(descriptor: &'static Descriptor, context: &mut Context<'_>) -> Reply {
    if let Some(plan) = descriptor.hooks.plan {
        let planned = plan(context, Verb::Patch)?;
        return accept(descriptor, context, planned);
    }
    context.require_group()?;
    let id = descriptor.id(context);
    let old = context.state.store.document(&id).ok_or_else(|| descriptor.not_found(context))?;
    match descriptor.patch {
        Patch::None => Err(fault::method_not_allowed("PATCH")),
        Patch::Tags { schema, .. } => {
            preconditions(descriptor.family, context, Some(&old))?;
            refuse_if_deleting(descriptor, context, &old)?;
            let etag = next_etag(descriptor.family, context.state, Some(&old));
            writes::patch_tags(context, &id, schema, |resource| {
                if let Some(etag) = &etag {
                    document::retag(descriptor, &mut resource.doc, etag);
                }
            })
        }
        Patch::Merge { schema, answered, .. } => {
            let patch = context.read(schema.name, schema.root, true)?;
            let mut body = old.clone().into_value();
            merge(&mut body, patch);
            let (id, location) = (path::of(&old), location_of(descriptor, context, &old));
            let (old, verb) = (Some(old.clone()), Verb::Patch);
            write(descriptor, context, Write { id, location: &location, body: &body, old, updated: answered, verb })
        }
        Patch::Asked { schema, answered, .. } => {
            let body = context.read(schema.name, schema.root, true)?;
            let (id, location) = (path::of(&old), location_of(descriptor, context, &old));
            let (old, verb) = (Some(old.clone()), Verb::Patch);
            write(descriptor, context, Write { id, location: &location, body: &body, old, updated: answered, verb })
        }
    }
}

/// Lays one document over another. Tags are replaced as a whole.
fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, value) in over {
                match under.get_mut(&name).filter(|_| name != "tags") {
                    Some(inner) => merge(inner, value),
                    None => {
                        under.insert(name, value);
                    }
                }
            }
        }
        (under, over) => *under = over,
    }
}

fn write(descriptor: &'static Descriptor, context: &mut Context<'_>, asked: Write<'_>) -> Reply {
    let Write { id, location, body, old, updated, verb } = asked;
    let old = old.as_deref();
    preconditions(descriptor.family, context, old)?;
    if let Some(old) = old.filter(|_| !matches!(descriptor.writers, Writers::Judged(_))) {
        refuse_if_deleting(descriptor, context, old)?;
        let there = old["location"].as_str().unwrap_or(location);
        if there != location {
            return Err(fault::location_conflict(path::name_of(id), there, context.request.group(), location));
        }
    }
    if let Beside::Joins(first) = beside(descriptor, context, id, (old, body))? {
        return join(descriptor, context, (id, location), old, &first);
    }
    if let Some(old) = old.filter(|_| descriptor.family.etags != Etags::None) {
        writes::refuse_if_dropped(context, old)?;
    }
    if descriptor.hooks.document.is_none() && descriptor.layout.contains(&"zones") {
        let zones = body["zones"].as_array().map_or(&[][..], Vec::as_slice);
        regions::check_zones(location, zones, descriptor.kind, path::name_of(id))?;
    }
    references::check(descriptor, context.state, body, id)?;
    refuse_if_named_is_busy(descriptor, context, body, id)?;
    let etag = next_etag(descriptor.family, context.state, old);
    let guid = match old.map(|old| old["properties"]["resourceGuid"].as_str()) {
        Some(guid) => guid.unwrap_or("").to_owned(),
        None if descriptor.stamps == Stamps::Nothing => String::new(),
        None => context.state.guid(),
    };
    let answered = if old.is_some() { updated } else { descriptor.put.created };
    let stamp = context.shared.clock.stamp(context.now);
    let draft = Draft {
        state: context.state,
        id,
        name: path::name_of(id),
        location,
        body,
        old,
        guid: &guid,
        stamp: &stamp,
        switches: &context.shared.options.unverified,
        origin: Origin::Request,
        verb,
    };
    let running = match answered.shape {
        Shape::Synchronous => "Succeeded",
        _ => descriptor
            .creating
            .filter(|_| old.is_none())
            .unwrap_or_else(|| (descriptor.put.running)(&context.state.switches)),
    };
    let mut doc = document::complete(descriptor, &draft, etag.as_deref(), running)?;
    if let Some(old) = old {
        references::left_out_unused(descriptor, context.state, old, &doc)?;
        let same = document::same(old, &doc);
        match descriptor.family.etags {
            Etags::Counted if same => doc["etag"] = old["etag"].clone(),
            Etags::Weak | Etags::None if same && descriptor.put.commit == Commit::AtOnce => {
                document::set_state(descriptor, &mut doc, "Succeeded");
            }
            _ => {}
        }
    }
    references::check_exclusive(descriptor, context.state, &doc)?;
    quotas::check(descriptor, context, &doc, old)?;
    (descriptor.hooks.check)(context.state, &doc, old)?;
    let begun = (descriptor.hooks.begun)(context, old, Some(&doc))?;
    commit(descriptor, context, (id, location), (doc, body, old), (answered, begun))
}

/// Puts a document that nothing refuses in place, now or at the end of an operation, and answers.
fn commit(
    descriptor: &'static Descriptor,
    context: &mut Context<'_>,
    (id, location): (&str, &str),
    (mut doc, body, old): (Value, &Value, Option<&Value>),
    (answered, begun): (Answered, Begun),
) -> Reply {
    match (answered.shape, descriptor.put.commit) {
        (Shape::Synchronous, _) => {
            let now = context.now;
            (descriptor.hooks.settle)(context.state, &mut doc, now)?;
            store(descriptor, context, id, &doc, old);
            let shown = references::shown(descriptor, context.state, doc.clone());
            Ok(with_etag(descriptor, Answer::json(answered.status, shown), &doc))
        }
        (_, Commit::AtOnce) => {
            store(descriptor, context, id, &doc, old);
            let started = settle_later(descriptor, context, (id, location), begun, Some(fail(descriptor, id)));
            let shown = references::shown(descriptor, context.state, doc);
            Ok(accepted(descriptor, answered, (&shown, body, old), started))
        }
        (_, Commit::AtEnd) => {
            let undo: Undo = hold_back(descriptor, context, id, &doc, old);
            let started = settle_later(descriptor, context, (id, location), begun, Some(undo));
            Ok(accepted(descriptor, answered, (&doc, body, old), started))
        }
    }
}

/// The header, where the family shows it on writes.
fn with_etag(descriptor: &Descriptor, answer: Answer, doc: &Value) -> Answer {
    match doc["etag"].as_str().filter(|_| descriptor.family.etags == Etags::Counted) {
        Some(etag) => answer.with("etag", etag),
        None => answer,
    }
}

/// The answer to an accepted write, of the document, of what was asked, and of the document before.
fn accepted(
    descriptor: &Descriptor,
    answered: Answered,
    (doc, body, old): (&Value, &Value, Option<&Value>),
    started: Started,
) -> Answer {
    let answer = match answered.status {
        // Documented for the types that answer 202 to a PUT without both headers: there is no body.
        202 if answered.shape == Shape::Location => Answer::empty(202),
        status => with_etag(descriptor, Answer::json(status, (descriptor.hooks.accepted)(doc, body, old)), doc),
    };
    answer.started(started, descriptor.family.headers(answered))
}

/// Refuses a write while another one runs, where the type takes one at a time.
pub(super) fn refuse_if_busy(descriptor: &Descriptor, context: &Context<'_>, id: &str) -> Result<(), Fault> {
    match descriptor.writers {
        Writers::Refuse | Writers::Judged(_) => writes::refuse_if_busy(context, id),
        Writers::Together => Ok(()),
        Writers::Supersede => refuse_while_written(descriptor, context, id),
    }
}

/// How a write stands to what runs, or its refusal.
fn beside(
    descriptor: &Descriptor,
    context: &mut Context<'_>,
    id: &str,
    (old, body): (Option<&Value>, &Value),
) -> Result<Beside, Fault> {
    match descriptor.writers {
        Writers::Judged(judge) => judge(context, old, body),
        _ => refuse_if_busy(descriptor, context, id).map(|()| Beside::Alone),
    }
}

/// Accepts a repeated creation: a new operation that ends with the first. Documented: a repeated PUT is answered as the
/// first one was.
fn join(
    descriptor: &'static Descriptor,
    context: &mut Context<'_>,
    (id, location): (&str, &str),
    old: Option<&Value>,
    first: &str,
) -> Reply {
    let (family, answered, effect_id) = (descriptor.family, descriptor.put.created, id.to_owned());
    let kind = context.state.operations.get(first).map_or(descriptor.latency.write, |operation| operation.kind);
    let started = context.start(Start {
        style: family.style,
        kind,
        resource: id,
        collection: family.operations(location),
        retry_after: (family.retry_after)(&context.shared.options),
        steps: Vec::new(),
        effect: Box::new(move |state, _| match state.store.document(&effect_id) {
            Some(doc) => Ok(Outcome::both(&doc)),
            None => (descriptor.hooks.gone)(&effect_id).map(|()| Outcome::default()),
        }),
        undo: None,
        together_with: Some(first),
    });
    let mut shown = old.cloned().unwrap_or_default();
    document::set_state(descriptor, &mut shown, (descriptor.put.running)(&context.state.switches));
    Ok(Answer::json(answered.status, shown).started(started, family.headers(answered)))
}

/// Answers a second write of a resource while one runs, and a write of what names the resource, as the switch says.
/// All three answers are documented; when Azure gives which is unverified.
fn refuse_while_written(descriptor: &Descriptor, context: &Context<'_>, id: &str) -> Result<(), Fault> {
    let found = context.state.store.get(id);
    let running = found.and_then(|resource| context.state.operations.get(resource.busy.as_deref()?));
    let (Some(resource), Some(running)) = (found, running.filter(|running| running.ended.is_none())) else {
        return Ok(());
    };
    match context.state.switches.concurrent_network_write {
        ConcurrentNetwork::Cancel => Ok(()),
        ConcurrentNetwork::Conflict => Err(another_operation(descriptor, context, &resource.doc)),
        ConcurrentNetwork::Retry => {
            let seconds = running.due.saturating_sub(context.now).as_secs() + 1;
            Err(fault::retry_after_operation(operation_name(descriptor), &running.id, resource.id(), seconds))
        }
    }
}

/// Refuses a write of a document that names a resource on which another write runs, where the switch says so.
fn refuse_if_named_is_busy(
    descriptor: &'static Descriptor,
    context: &Context<'_>,
    body: &Value,
    own: &str,
) -> Result<(), Fault> {
    if context.state.switches.concurrent_network_write == ConcurrentNetwork::Cancel {
        return Ok(());
    }
    references::resources_named(descriptor, context.state, body, own).iter().try_for_each(|id| {
        let kind = context.state.store.get(id).and_then(|resource| context.state.types.of(&resource.doc));
        kind.map_or(Ok(()), |named| refuse_if_busy(named, context, id))
    })
}

/// The provider's name of a write: `PutLoadBalancerOperation`, `PutPublicIpAddressOperation`.
fn operation_name(descriptor: &Descriptor) -> String {
    let (first, rest) = descriptor.schema.root.split_at(descriptor.schema.root.len().min(1));
    format!("Put{}{}Operation", first.to_ascii_uppercase(), rest.replace("IP", "Ip"))
}

/// Ends the write that runs, where a newer one supersedes it, which has been accepted.
pub(super) fn supersede(descriptor: &Descriptor, context: &mut Context<'_>, id: &str, newer: &str) {
    let busy = context.state.store.get(id).and_then(|resource| resource.busy.clone());
    let running = busy.filter(|busy| context.state.operations.is_running(busy));
    if let Some(older) = running.filter(|_| matches!(descriptor.writers, Writers::Supersede)) {
        let name = operation_name(descriptor);
        context.state.preempt(&older, context.now, fault::superseded(&name, &older, newer));
    }
}

/// Puts the document in place at once.
fn store(descriptor: &'static Descriptor, context: &mut Context<'_>, id: &str, doc: &Value, old: Option<&Value>) {
    let now = context.now;
    match old {
        None => context.state.store.insert(id, Resource::new(doc.clone()), now),
        Some(_) => {
            context.state.store.change(id, now, |resource| resource.doc = doc.clone().into());
        }
    }
    changed(descriptor, context.state, old, Some(doc), now);
}

/// Accepts a write that its type has planned: its document stands, and the operation starts.
pub(crate) fn accept(descriptor: &'static Descriptor, context: &mut Context<'_>, planned: Planned) -> Reply {
    let Planned { id, doc, machine, kind, steps, moved, effect, undo, shape, answer } = planned;
    let (now, family) = (context.now, descriptor.family);
    let location = location_of(descriptor, context, &doc);
    if context.state.store.contains(&id) {
        context.state.store.change(&id, now, |resource| {
            resource.doc = doc.into();
            resource.renumber(resource.etag + 1);
        });
    } else {
        let mut resource = Resource { machine, ..Resource::new(doc) };
        resource.renumber(1);
        context.state.store.insert(&id, resource, now);
    }
    let order = Start {
        style: family.style,
        kind,
        resource: &id,
        collection: family.operations(&location),
        retry_after: 0,
        steps,
        effect,
        undo: Some(undo),
        together_with: None,
    };
    let started = start_moving(family, context, order, moved);
    context.state.store.change(&id, now, |resource| resource.occupy(&started.id));
    let shown = context.state.store.get(&id).map(|resource| answer(context, resource)).unwrap_or_default();
    let status = shown.status;
    Ok(shown.started(started, family.headers(Answered::new(status, shape))))
}

/// Keeps the document until the operation has ended; a creation shows it from the start. Returns what a failure
/// does.
fn hold_back(
    descriptor: &'static Descriptor,
    context: &mut Context<'_>,
    id: &str,
    doc: &Value,
    old: Option<&Value>,
) -> Undo {
    let (now, running) = (context.now, (descriptor.put.running)(&context.state.switches));
    let undo_id = id.to_owned();
    if old.is_none() {
        context.state.store.insert(id, Resource::new(doc.clone()), now);
        return Box::new(move |state, at, _| {
            state.store.remove(&undo_id, at);
        });
    }
    context.state.store.change(id, now, |resource| {
        document::set_state(descriptor, &mut resource.doc, running);
        resource.next = Some(doc.clone());
    });
    Box::new(move |state, at, _| {
        state.store.change(&undo_id, at, |resource| {
            resource.busy = None;
            resource.next = None;
            document::set_state(descriptor, &mut resource.doc, "Succeeded");
        });
    })
}

/// What a late failure does to a document that is in place. Documented: the state that others are told of.
pub(super) fn fail(descriptor: &'static Descriptor, id: &str) -> Undo {
    let id = id.to_owned();
    Box::new(move |state, at, _| {
        state.store.change(&id, at, |resource| {
            resource.busy = None;
            document::set_state(descriptor, &mut resource.doc, "Failed");
        });
        (descriptor.hooks.failed)(state, &id, at);
    })
}

/// Accepts the operation at whose end a write settles.
pub(super) fn settle_later(
    descriptor: &'static Descriptor,
    context: &mut Context<'_>,
    (id, location): (&str, &str),
    begun: Begun,
    undo: Option<Undo>,
) -> Started {
    let effect_id = id.to_owned();
    let started = start(
        descriptor.family,
        context,
        Start {
            style: descriptor.family.style,
            kind: begun.kind.unwrap_or(descriptor.latency.write),
            resource: id,
            collection: descriptor.family.operations(location),
            retry_after: 0,
            steps: begun.steps,
            effect: Box::new(move |state, at| finish(descriptor, state, &effect_id, at)),
            undo,
            together_with: None,
        },
    );
    supersede(descriptor, context, id, &started.id);
    if !matches!(descriptor.writers, Writers::Together) {
        context.state.store.change(id, context.now, |resource| resource.busy = Some(started.id.clone()));
    }
    started
}

/// Accepts an operation of a family.
pub(super) fn start(family: &Family, context: &mut Context<'_>, order: Start<'_>) -> Started {
    start_moving(family, context, order, Moved::default())
}

/// The same of one that moves disks.
fn start_moving(family: &Family, context: &mut Context<'_>, mut order: Start<'_>, moved: Moved) -> Started {
    order.retry_after = (family.retry_after)(&context.shared.options);
    let (kind, resource) = (order.kind, order.resource);
    let started = context.start(order);
    if family.counted {
        writes::record(context, kind, resource, &started, moved);
    }
    started
}

/// The end of a write: the document that was held back, or the one that stands, with what the service adds.
pub(crate) fn finish(
    descriptor: &'static Descriptor,
    state: &mut State,
    id: &str,
    at: std::time::Duration,
) -> Result<Outcome, Fault> {
    let old = state.store.document(id);
    let etag = match descriptor.family.etags {
        Etags::Counted => None,
        Etags::None | Etags::Weak => next_etag(descriptor.family, state, old.as_deref()),
    };
    let Some(old) = old.filter(|old| old["properties"]["provisioningState"] != "Deleting") else {
        return (descriptor.hooks.gone)(id).map(|()| Outcome::default());
    };
    // A creation holds nothing back: its document is the one that stands.
    let held_back = state.store.get(id).and_then(|resource| resource.next.clone());
    let before = held_back.is_some().then(|| old.clone());
    let mut doc = held_back.unwrap_or_else(|| old.into_value());
    (descriptor.hooks.settle)(state, &mut doc, at)?;
    if let Some(etag) = etag.filter(|_| doc["properties"]["provisioningState"] != json!("Succeeded")) {
        document::retag(descriptor, &mut doc, &etag);
    }
    document::set_state(descriptor, &mut doc, "Succeeded");
    let shown = state.store.change(id, at, |resource| {
        resource.busy = None;
        resource.next = None;
        resource.doc = doc.into();
        resource.doc.clone()
    });
    let Some(shown) = shown else {
        return Ok(Outcome::default());
    };
    if descriptor.put.commit == Commit::AtOnce {
        return Ok(Outcome::default());
    }
    changed(descriptor, state, before.as_deref(), Some(&shown), at);
    // Recorded for disks and storage accounts; operations on scale sets show no output.
    Ok(match descriptor.family.style {
        Style::Compute => Outcome::both(&shown),
        Style::Storage => Outcome::at_location(&shown),
        Style::Network | Style::Group | Style::Deployment => Outcome::default(),
    })
}
