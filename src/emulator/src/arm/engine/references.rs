//! Who names whom: what a document names must exist, and what is named cannot be deleted.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::document;
use crate::arm::descriptor::{BackReference, By, Children, Descriptor, Form, InUse, NamedBy, Reference};
use crate::arm::routes;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

/// Visits each id at a path.
fn walk<'a>(value: &'a Value, path: &str, visit: &mut dyn FnMut(&'a str)) {
    let (segment, rest) = path.split_once('/').unwrap_or((path, ""));
    let mut enter = |inner: &'a Value| match (rest.is_empty(), inner["id"].as_str()) {
        (true, Some(id)) => visit(id),
        (true, None) => {}
        (false, _) => walk(inner, rest, visit),
    };
    match (segment, value) {
        ("*", Value::Array(items)) => items.iter().for_each(enter),
        ("*", _) => {}
        (segment, value) => enter(&value[segment]),
    }
}

/// The id of a child.
fn id_of_child(own: &str, children: &Children, child: &Value) -> String {
    format!("{own}/{}/{}", children.member, child["name"].as_str().unwrap_or(""))
}

/// A reference that was found.
struct Found<'a> {
    reference: &'static Reference,
    /// The children in one of which it stands.
    children: Option<&'static Children>,
    /// The id that it names.
    id: &'a str,
    /// The id of the part that names it: a child, or the resource.
    element: String,
}

/// Visits each reference to a type, or to all, in the document or body of the resource `own`.
fn each_in<'a>(
    descriptor: &'static Descriptor,
    doc: &'a Value,
    own: &str,
    to: Option<&str>,
    visit: &mut dyn FnMut(Found<'a>),
) {
    let wanted = |reference: &&Reference| to.is_none_or(|to| reference.to == to);
    for reference in descriptor.references.iter().filter(wanted) {
        walk(doc, reference.at, &mut |id| visit(Found { reference, children: None, id, element: own.to_owned() }));
    }
    for children in descriptor.children {
        for reference in children.references.iter().filter(wanted) {
            for child in document::list(doc, children) {
                walk(child, reference.at, &mut |id| {
                    let element = id_of_child(own, children, child);
                    visit(Found { reference, children: Some(children), id, element });
                });
            }
        }
    }
}

/// Whether what a reference names exists: a resource, or a child in the document of one.
fn exists(state: &State, id: &str, kind: &str) -> bool {
    if let Some(resource) = state.store.get(id) {
        return resource.doc["type"].as_str().is_some_and(|own| own.eq_ignore_ascii_case(kind));
    }
    child(state, id).is_some_and(|(children, _)| children.kind.eq_ignore_ascii_case(kind))
}

/// The child of that id, and of which kind it is.
pub(crate) fn child(state: &State, id: &str) -> Option<(&'static Children, Value)> {
    let (rest, name) = id.trim_end_matches('/').rsplit_once('/')?;
    let (parent, member) = rest.rsplit_once('/')?;
    let parent = state.store.get(parent)?;
    let descriptor = routes::descriptor(parent.doc["type"].as_str()?)?;
    let children = descriptor.children.iter().find(|children| children.member.eq_ignore_ascii_case(member))?;
    Some((children, document::find(&parent.doc, children, name)?.clone()))
}

/// What a body names must exist, in the store or among its own children. Documented.
///
/// # Errors
///
/// 400 `InvalidResourceReference`, also where the type is not emulated: then nothing of it exists.
pub(crate) fn check(descriptor: &'static Descriptor, state: &State, body: &Value, own: &str) -> Result<(), Fault> {
    let here = |named: &str, kind: &str| {
        descriptor.children.iter().filter(|children| children.kind == kind).any(|children| {
            document::list(body, children).iter().any(|child| path::same(&id_of_child(own, children, child), named))
        })
    };
    let mut refused = Ok(());
    each_in(descriptor, body, own, None, &mut |found| {
        if refused.is_ok() && !here(found.id, found.reference.to) && !exists(state, found.id, found.reference.to) {
            let of_child = found.children.is_some_and(|children| children.named_by == NamedBy::Child);
            let by = if of_child { found.element.as_str() } else { own };
            refused = Err(fault::invalid_reference(found.id, by));
        }
    });
    refused
}

/// Ids of one type that a document names.
pub(crate) fn named<'a>(descriptor: &'static Descriptor, doc: &'a Value, kind: &str) -> Vec<&'a str> {
    let mut ids = Vec::new();
    each_in(descriptor, doc, "", Some(kind), &mut |found| ids.push(found.id));
    ids
}

/// What only one may name must be named by nothing else than a document.
pub(crate) fn check_exclusive(descriptor: &'static Descriptor, state: &State, doc: &Value) -> Result<(), Fault> {
    let own = path::of(doc);
    let mut named = Vec::new();
    each_in(descriptor, doc, own, None, &mut |found| named.push(found));
    for (at, found) in named.iter().enumerate() {
        let Some(exclusive) = found.reference.exclusive else {
            continue;
        };
        if named.iter().take(at).any(|before| path::same(before.id, found.id)) {
            return Err((exclusive.twice)(found.id, own));
        }
        let others = referrers(state, found.reference.to, found.id, None);
        if let Some(other) = others.iter().find(|other| !path::same(other.resource, own)) {
            return Err((exclusive.taken)(&found.element, found.id, other.resource));
        }
    }
    Ok(())
}

/// What refers to a resource.
pub(crate) struct Referrer<'a> {
    /// Id of the resource that does.
    pub(crate) resource: &'a str,
    /// Id of the child of it that does, such as an IP configuration; else of the resource.
    pub(crate) element: String,
}

/// Visits every reference to a type, of the type `from` only, where it is given: the id, and who refers to it.
fn each_reference<'a>(state: &'a State, kind: &str, from: Option<&str>, visit: &mut dyn FnMut(&'a str, Referrer<'a>)) {
    for descriptor in routes::descriptors().filter(|descriptor| from.is_none_or(|from| descriptor.kind == from)) {
        let children = descriptor.children.iter().flat_map(|children| children.references);
        if !descriptor.references.iter().chain(children).any(|reference| reference.to == kind) {
            continue;
        }
        for doc in state.store.of_kind(descriptor.kind) {
            let resource = path::of(doc);
            each_in(descriptor, doc, resource, Some(kind), &mut |found| {
                visit(found.id, Referrer { resource, element: found.element });
            });
        }
    }
}

/// What refers to `id`, which is of `kind`; of the type `from` only, where it is given.
pub(crate) fn referrers<'a>(state: &'a State, kind: &str, id: &str, from: Option<&str>) -> Vec<Referrer<'a>> {
    let mut found = Vec::new();
    each_reference(state, kind, from, &mut |named, referrer| {
        if path::same(named, id) {
            found.push(referrer);
        }
    });
    found
}

/// Who stops the deletion of a resource or child, by one rule: ids to show and ids of resources.
fn users_by(rule: &InUse, state: &State, kind: &str, doc: &Value) -> Vec<(String, String)> {
    match rule.by {
        By::Named(named) => named(doc).into_iter().map(|id| (id.clone(), id)).collect(),
        By::References => referrers(state, kind, path::of(doc), None)
            .into_iter()
            .map(|referrer| (referrer.element, referrer.resource.to_owned()))
            .collect(),
    }
}

/// A document with what is in it that can be in use, each with its rules.
fn rules<'a>(
    descriptor: &'static Descriptor,
    doc: &'a Value,
) -> impl Iterator<Item = (&'static InUse, &'static str, &'a Value)> {
    let own = descriptor.in_use.iter().map(move |rule| (rule, descriptor.kind, doc));
    let parts = descriptor.children.iter().flat_map(move |children| {
        let list = document::list(doc, children);
        children.in_use.iter().flat_map(move |rule| list.iter().map(move |part| (rule, children.kind, part)))
    });
    own.chain(parts)
}

/// Refuses while something else than the resource `own` uses a resource or child.
fn refuse(rule: &InUse, state: &State, kind: &str, doc: &Value, own: Option<&str>) -> Result<(), Fault> {
    let users = users_by(rule, state, kind, doc);
    match users.iter().find(|(_, resource)| own.is_none_or(|own| !path::same(own, resource))) {
        Some((by, _)) => Err((rule.fault)(doc, by)),
        None => Ok(()),
    }
}

/// Refuses while something uses a resource or one of its children. Documented.
pub(crate) fn unused(descriptor: &'static Descriptor, state: &State, doc: &Value) -> Result<(), Fault> {
    let mut rules = rules(descriptor, doc);
    rules.try_for_each(|(rule, kind, part)| refuse(rule, state, kind, part, doc["id"].as_str()))
}

/// Refuses while something uses a child, another part of its document too.
pub(crate) fn child_unused(children: &'static Children, state: &State, doc: &Value) -> Result<(), Fault> {
    children.in_use.iter().try_for_each(|rule| refuse(rule, state, children.kind, doc, None))
}

/// Refuses a new document that leaves out a child which something uses.
pub(crate) fn left_out_unused(
    descriptor: &'static Descriptor,
    state: &State,
    old: &Value,
    new: &Value,
) -> Result<(), Fault> {
    for children in descriptor.children {
        let gone = document::list(old, children)
            .iter()
            .filter(|child| !document::list(new, children).iter().any(|kept| kept["name"] == child["name"]));
        for child in gone {
            let mut rules = children.in_use.iter();
            rules.try_for_each(|rule| refuse(rule, state, children.kind, child, old["id"].as_str()))?;
        }
    }
    Ok(())
}

/// Ids of the resources that stop the deletion of a resource.
pub(crate) fn users(state: &State, doc: &Value) -> Vec<String> {
    let Some(descriptor) = doc["type"].as_str().and_then(routes::descriptor) else {
        return Vec::new();
    };
    rules(descriptor, doc)
        .flat_map(|(rule, kind, doc)| users_by(rule, state, kind, doc))
        .map(|(_, resource)| resource)
        .filter(|resource| !doc["id"].as_str().is_some_and(|own| path::same(own, resource)))
        .collect()
}

/// What shows in the documents of a type of those who refer to them.
pub(crate) struct BackReferences {
    /// Each member with its form, and with who refers to which id (in lower case).
    members: Vec<(&'static BackReference, BTreeMap<String, Vec<Value>>)>,
}

impl BackReferences {
    /// Those of a type, all at once: one look at who refers serves a whole list.
    pub(crate) fn of(descriptor: &'static Descriptor, state: &State) -> Self {
        let members = descriptor.shows.iter().map(|shown| {
            let mut by: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            each_reference(state, descriptor.kind, Some(shown.from), &mut |named, referrer| {
                by.entry(path::key(named)).or_default().push(json!({ "id": referrer.element }));
            });
            (shown, by)
        });
        Self { members: members.collect() }
    }

    /// A document with what shows in it.
    pub(crate) fn shown_in(&self, mut doc: Document) -> Document {
        for (shown, by) in &self.members {
            let by = doc["id"].as_str().and_then(|id| by.get(&path::key(id))).cloned().unwrap_or_default();
            match (shown.form, by.first()) {
                (Form::Many, _) | (Form::Some, Some(_)) => doc["properties"][shown.member] = by.into(),
                (Form::One, Some(first)) => doc["properties"][shown.member] = first.clone(),
                (Form::One | Form::Some, None) => {}
            }
        }
        doc
    }
}
