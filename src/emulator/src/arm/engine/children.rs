//! Requests for the children of a resource: the parts that stand in its document.

use serde_json::{Value, json};

use super::references::BackReferences;
use super::{changed, document, next_etag, preconditions, put, references, refuse_if_deleting};
use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::{Begun, Children, Descriptor, Draft, Origin, Verb};
use crate::arm::protocol::{Answered, Etags, Shape};
use crate::arm::{lists, writes};
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::path;

/// Recorded for subnets: the answers to a write.
const CREATED: Answered = Answered::new(201, Shape::AsyncOperation);
const UPDATED: Answered = Answered::new(200, Shape::AsyncOperation);
const DELETED: Answered = Answered::new(202, Shape::Both);

/// The name of the child that a request names.
fn name<'a>(descriptor: &Descriptor, context: &'a Context<'_>) -> &'a str {
    context.request.segment(descriptor.depth() + 2)
}

/// The parent's document, and the child in it: as readers with lag see it for a GET, as it is for a write.
fn found(
    descriptor: &'static Descriptor,
    children: &Children,
    context: &Context<'_>,
) -> Result<(Document, Option<Value>), Fault> {
    context.require_group()?;
    let (store, id) = (&context.state.store, descriptor.id(context));
    let parent = if context.request.method == "GET" {
        store.shown(&id, context.now).map(|parent| BackReferences::of(descriptor, context.state).shown_in(parent))
    } else {
        store.document(&id)
    };
    let parent = parent.ok_or_else(|| descriptor.not_found(context))?;
    let child = document::find(&parent, children, name(descriptor, context)).cloned();
    Ok((parent, child))
}

/// GET. Recorded 404 of the provider.
pub(crate) fn get(descriptor: &'static Descriptor, children: &'static Children, context: &mut Context<'_>) -> Reply {
    let (parent, child) = found(descriptor, children, context)?;
    let parent = path::of(&parent);
    let missing =
        || fault::network_child_not_found(format!("{parent}/{}/{}", children.member, name(descriptor, context)));
    let doc = child.ok_or_else(missing)?;
    let etag = doc["etag"].as_str().unwrap_or("").to_owned();
    Ok(Answer::json(200, doc).with("etag", etag))
}

/// LIST.
pub(crate) fn list(descriptor: &'static Descriptor, children: &'static Children, context: &mut Context<'_>) -> Reply {
    let (parent, _) = found(descriptor, children, context)?;
    let all = document::list(&parent, children).iter().cloned().map(Document::from).collect();
    lists::of_documents(context, all)
}

/// PUT. Documented.
pub(crate) fn put(descriptor: &'static Descriptor, children: &'static Children, context: &mut Context<'_>) -> Reply {
    let (parent, old) = found(descriptor, children, context)?;
    preconditions(descriptor.family, context, old.as_ref())?;
    refuse_if_deleting(descriptor, context, &parent)?;
    put::refuse_if_busy(descriptor, context, path::of(&parent))?;
    if let Some(old) = old.as_ref().filter(|_| descriptor.family.etags == Etags::Weak) {
        writes::refuse_if_dropped(context, old)?;
    }
    let mut asked = context.read_part(children.schema.name, children.schema.root)?;
    writes::check_name(children.kind, name(descriptor, context))?;
    let spelt =
        old.as_ref().and_then(|old| old["name"].as_str()).unwrap_or_else(|| name(descriptor, context)).to_owned();
    asked["name"] = json!(spelt);
    let etag = next_etag(descriptor.family, context.state, Some(&parent));
    let text = |member: &str| parent[member].as_str().unwrap_or("").to_owned();
    let (id, location) = (text("id"), text("location"));
    let stamp = context.shared.clock.stamp(context.now);
    let draft = Draft {
        state: context.state,
        id: &id,
        name: path::name_of(&id),
        location: &location,
        body: &parent,
        old: Some(&parent),
        guid: "",
        stamp: &stamp,
        switches: &context.shared.options.unverified,
        origin: Origin::Request,
        verb: Verb::Put,
    };
    let others: Vec<Value> =
        document::list(&parent, children).iter().filter(|child| child["name"] != spelt.as_str()).cloned().collect();
    let mut whole = parent.clone().into_value();
    // As asked, for what it names; and then complete.
    replace(&mut whole, children, others.clone(), Some(&asked));
    references::check(descriptor, context.state, &whole, &id)?;
    let running = (descriptor.put.running)(&context.state.switches);
    let doc = document::part(children, &draft, (&spelt, &asked), &others, (etag.as_deref(), running))?;
    replace(&mut whole, children, others, Some(&doc));
    references::check_exclusive(descriptor, context.state, &whole)?;
    (descriptor.hooks.check)(context.state, &whole, Some(&parent))?;
    let answered = if old.is_none() { CREATED } else { UPDATED };
    let started = change(descriptor, context, &parent, whole, etag);
    let shown = context.state.store.document(&id).unwrap_or_default();
    let shown = BackReferences::of(descriptor, context.state).shown_in(shown);
    let doc = document::find(&shown, children, &spelt).cloned().unwrap_or(doc);
    Ok(Answer::json(answered.status, doc).started(started, descriptor.family.headers(answered)))
}

/// DELETE. Documented.
pub(crate) fn delete(descriptor: &'static Descriptor, children: &'static Children, context: &mut Context<'_>) -> Reply {
    let (parent, old) = found(descriptor, children, context)?;
    let Some(old) = old else {
        return Ok(Answer::empty(204));
    };
    references::child_unused(children, context.state, &old)?;
    put::refuse_if_busy(descriptor, context, path::of(&parent))?;
    let mut whole = parent.clone().into_value();
    let others =
        document::list(&parent, children).iter().filter(|child| child["name"] != old["name"]).cloned().collect();
    replace(&mut whole, children, others, None);
    let etag = next_etag(descriptor.family, context.state, Some(&parent));
    let started = change(descriptor, context, &parent, whole, etag);
    Ok(Answer::empty(DELETED.status).started(started, descriptor.family.headers(DELETED)))
}

fn replace(whole: &mut Value, children: &Children, mut others: Vec<Value>, new: Option<&Value>) {
    others.extend(new.cloned());
    whole["properties"][children.member] = Value::Array(others);
}

/// Puts a changed parent in place with its new etag, and accepts the operation at whose end it settles.
fn change(
    descriptor: &'static Descriptor,
    context: &mut Context<'_>,
    old: &Value,
    mut whole: Value,
    etag: Option<String>,
) -> crate::answer::Started {
    let text = |member: &str| whole[member].as_str().unwrap_or("").to_owned();
    let (id, location) = (text("id"), text("location"));
    let now = context.now;
    if let Some(etag) = etag {
        document::retag(descriptor, &mut whole, &etag);
    }
    whole["properties"]["provisioningState"] = json!((descriptor.put.running)(&context.state.switches));
    context.state.store.change(&id, now, |resource| resource.doc = whole.clone().into());
    changed(descriptor, context.state, Some(old), Some(&whole), now);
    put::settle_later(descriptor, context, (&id, &location), Begun::default(), Some(put::fail(descriptor, &id)))
}
