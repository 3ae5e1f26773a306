//! Who names whom: what a document names must exist, and what is named cannot be deleted.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::document;
use crate::arm::descriptor::{BackReference, By, Children, Descriptor, Form, InUse, Reference};
use crate::arm::routes;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

/// Visits each id at a path, together with the id of the innermost object around it that has one.
fn walk<'a>(value: &'a Value, path: &str, holder: &'a str, visit: &mut dyn FnMut(&'a str, &'a str)) {
    let holder = value["id"].as_str().unwrap_or(holder);
    let (segment, rest) = path.split_once('/').unwrap_or((path, ""));
    let mut enter = |inner: &'a Value| match (rest.is_empty(), inner["id"].as_str()) {
        (true, Some(id)) => visit(id, holder),
        (true, None) => {}
        (false, _) => walk(inner, rest, holder, visit),
    };
    match (segment, value) {
        ("*", Value::Array(items)) => items.iter().for_each(enter),
        ("*", _) => {}
        (segment, value) => enter(&value[segment]),
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

/// What a body names must exist. Documented; `by` is the resource that names it, and `here` says what of a type exists
/// in the body itself.
///
/// # Errors
///
/// 400 `InvalidResourceReference`, also where the type is not emulated: then nothing of it exists.
pub(crate) fn check(
    state: &State,
    references: &[Reference],
    body: &Value,
    by: &str,
    here: &dyn Fn(&str, &str) -> bool,
) -> Result<(), Fault> {
    for reference in references {
        let mut missing = None;
        walk(body, reference.at, by, &mut |id, _| {
            if missing.is_none() && !here(id, reference.to) && !exists(state, id, reference.to) {
                missing = Some(id);
            }
        });
        if let Some(id) = missing {
            return Err(fault::invalid_reference(id, by));
        }
    }
    Ok(())
}

/// The same for a resource with its children, which may name each other.
pub(crate) fn check_all(descriptor: &Descriptor, state: &State, body: &Value, id: &str) -> Result<(), Fault> {
    let of_child =
        |children: &Children, item: &Value| format!("{id}/{}/{}", children.member, item["name"].as_str().unwrap_or(""));
    let here = |named: &str, kind: &str| {
        descriptor.children.iter().filter(|children| children.kind == kind).any(|children| {
            document::list(body, children).iter().any(|item| path::same(&of_child(children, item), named))
        })
    };
    check(state, descriptor.references, body, id, &here)?;
    for children in descriptor.children.iter().filter(|children| !children.references.is_empty()) {
        for item in document::list(body, children) {
            check(state, children.references, item, &of_child(children, item), &here)?;
        }
    }
    Ok(())
}

/// Ids of one type that a document names.
pub(crate) fn named<'a>(descriptor: &Descriptor, doc: &'a Value, kind: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for reference in descriptor.references.iter().filter(|reference| reference.to == kind) {
        walk(doc, reference.at, "", &mut |id, _| found.push(id));
    }
    found
}

/// What only one may name must be named by nothing else than a document.
pub(crate) fn check_exclusive(descriptor: &Descriptor, state: &State, doc: &Value) -> Result<(), Fault> {
    let own = doc["id"].as_str().unwrap_or("");
    for reference in descriptor.references {
        let Some(exclusive) = reference.exclusive else {
            continue;
        };
        let mut named: Vec<(&str, &str)> = Vec::new();
        walk(doc, reference.at, own, &mut |id, element| named.push((id, element)));
        for (at, (id, element)) in named.iter().enumerate() {
            if named.iter().take(at).any(|(before, _)| path::same(before, id)) {
                return Err((exclusive.twice)(id, own));
            }
            let others = referrers(state, reference.to, id, None);
            if let Some(other) = others.iter().find(|other| !path::same(other.resource, own)) {
                return Err((exclusive.taken)(element, id, other.resource));
            }
        }
    }
    Ok(())
}

/// What refers to a resource.
pub(crate) struct Referrer<'a> {
    /// Id of the resource that does.
    pub(crate) resource: &'a str,
    /// Id of the part of it that does, such as an IP configuration; else of the resource.
    pub(crate) element: &'a str,
}

/// Visits every reference to a type, of the type `from` only, where it is given: the id, and who refers to it.
fn each_reference<'a>(state: &'a State, kind: &str, from: Option<&str>, visit: &mut dyn FnMut(&'a str, Referrer<'a>)) {
    for descriptor in routes::descriptors().filter(|descriptor| from.is_none_or(|from| descriptor.kind == from)) {
        let own = descriptor.references.iter().map(|reference| (reference, None));
        let parts = descriptor
            .children
            .iter()
            .flat_map(|children| children.references.iter().map(|reference| (reference, Some(children.member))));
        for (reference, member) in own.chain(parts).filter(|(reference, _)| reference.to == kind) {
            for doc in state.store.of_kind(descriptor.kind) {
                let resource = doc["id"].as_str().unwrap_or("");
                let mut found = |named, element| visit(named, Referrer { resource, element });
                match member {
                    None => walk(doc, reference.at, resource, &mut found),
                    Some(member) => {
                        let parts = doc["properties"][member].as_array().into_iter().flatten();
                        parts.for_each(|part| walk(part, reference.at, resource, &mut found));
                    }
                }
            }
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
        By::References => referrers(state, kind, doc["id"].as_str().unwrap_or(""), None)
            .into_iter()
            .map(|referrer| (referrer.element.to_owned(), referrer.resource.to_owned()))
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
