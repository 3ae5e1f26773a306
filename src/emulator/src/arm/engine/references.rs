//! Who names whom: what a document names must exist, and what is named cannot be deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::document;
use crate::arm::descriptor::{BackReference, By, Children, Descriptor, Form, InUse, Reference};
use crate::arm::protocol::{Etags, NamedBy};
use crate::arm::regions;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::options::RelatedEtags;
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

/// Which references are visited.
#[derive(Clone, Copy, Default)]
struct Wanted<'a> {
    /// Those to this type, or to all.
    to: Option<&'a str>,
    /// Those that stand in this type, or in these children; or in all.
    from: Option<&'a str>,
}

/// Visits each wanted reference in the document or body of the resource `own`.
fn each_in<'a>(
    descriptor: &'static Descriptor,
    doc: &'a Value,
    own: &str,
    wanted: Wanted<'_>,
    visit: &mut dyn FnMut(Found<'a>),
) {
    let whole = wanted.from.is_none_or(|from| from == descriptor.kind);
    let in_part = |children: &&Children| whole || wanted.from == Some(children.kind);
    let wanted = |reference: &&Reference| wanted.to.is_none_or(|to| reference.to == to);
    for reference in descriptor.references.iter().filter(|_| whole).filter(wanted) {
        walk(doc, reference.at, &mut |id| visit(Found { reference, children: None, id, element: own.to_owned() }));
    }
    for children in descriptor.children.iter().filter(in_part) {
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
    let descriptor = state.types.of(&parent.doc)?;
    let children = descriptor.children.iter().find(|children| children.member.eq_ignore_ascii_case(member))?;
    Some((children, document::find(&parent.doc, children, name)?.clone()))
}

/// What a body names must exist, in the store or among its own children. Documented.
///
/// # Errors
///
/// 400 `InvalidResourceReference`, also where the type is not emulated: then nothing of it exists; and where it is in
/// another region. 429 where what is
/// named must be provisioned, and is not.
pub(crate) fn check(descriptor: &'static Descriptor, state: &State, body: &Value, own: &str) -> Result<(), Fault> {
    // Its own children by their ids in lower case; those that it no longer has do not exist.
    let here: BTreeSet<String> = descriptor
        .children
        .iter()
        .flat_map(|children| document::list(body, children).iter().map(move |child| (children, child)))
        .map(|(children, child)| path::key(&id_of_child(own, children, child)))
        .collect();
    let is_own = |found: &Found<'_>| {
        is_below(found.id, own) && descriptor.children.iter().any(|children| children.kind == found.reference.to)
    };
    let mut refused = Ok(());
    each_in(descriptor, body, own, Wanted::default(), &mut |found| {
        let of_child = found.children.is_some_and(|children| children.named_by == NamedBy::Child);
        let by = if of_child { found.element.as_str() } else { own };
        let known = match is_own(&found) {
            true => here.contains(&path::key(found.id)),
            false => exists(state, found.id, found.reference.to) && is_near(descriptor, state, body, found.id),
        };
        if refused.is_ok() {
            refused = match found.reference.provisioned_by {
                _ if !known => Err(fault::invalid_reference(found.id, by)),
                Some(operation) => provisioned(state, found.id, by, operation),
                None => Ok(()),
            };
        }
    });
    refused
}

/// Whether what a resource of the network provider names is in the region of that resource. Documented: the refusal
/// says so.
fn is_near(descriptor: &Descriptor, state: &State, body: &Value, id: &str) -> bool {
    let named = [id, path::parent_of(id)].into_iter().find_map(|id| state.store.get(id));
    let there = named.and_then(|resource| resource.doc["location"].as_str());
    match (body["location"].as_str(), there) {
        (Some(here), Some(there)) if descriptor.family.etags == Etags::Weak => {
            let here = path::location(here);
            here == regions::ANYWHERE || here == path::location(there)
        }
        _ => true,
    }
}

/// Whether an id is below another.
fn is_below(id: &str, above: &str) -> bool {
    let (id, above) = (id.as_bytes(), above.as_bytes());
    id.len() > above.len() && id[above.len()] == b'/' && id[..above.len()].eq_ignore_ascii_case(above)
}

/// What must be in the state `Succeeded` for another to name it. Documented.
fn provisioned(state: &State, id: &str, by: &str, operation: &str) -> Result<(), Fault> {
    let own = state.store.document(id).or_else(|| child(state, id).map(|(_, child)| child.into()));
    match own.as_ref().and_then(|doc| doc["properties"]["provisioningState"].as_str()) {
        Some("Succeeded") | None => Ok(()),
        Some(other) => Err(fault::not_provisioned(id, by, other, operation)),
    }
}

/// Ids of the other resources that a document names, or whose children it names; those that exist.
pub(crate) fn resources_named(
    descriptor: &'static Descriptor,
    state: &State,
    doc: &Value,
    own: &str,
) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    each_in(descriptor, doc, own, Wanted::default(), &mut |found| {
        if !is_below(found.id, own) {
            ids.extend(resource_of(state, found.id));
        }
    });
    ids
}

/// The key of a resource, or of the one that has a child.
fn resource_of(state: &State, id: &str) -> Option<String> {
    [id, path::parent_of(id)].into_iter().find(|id| state.store.contains(id)).map(path::key)
}

/// Gives what a document names, or no longer names, a new etag, where it shows who names it: other resources are
/// changed by that. Documented for a load balancer's public addresses (cloud-provider-azure's notes on stale etags);
/// whether each write does it, or only one that changes who names whom, is unverified.
pub(crate) fn retag_named(
    descriptor: &'static Descriptor,
    state: &mut State,
    old: Option<&Value>,
    new: Option<&Value>,
    at: Duration,
) {
    if descriptor.family.etags != Etags::Weak {
        return;
    }
    let types = state.types;
    let shown_by = |children: Option<&Children>, to: &str| {
        let shows = |shows: &[BackReference]| {
            shows.iter().any(|shown| {
                shown.from == descriptor.kind || children.is_some_and(|children| children.kind == shown.from)
            })
        };
        types.all().any(|named| {
            named.kind == to && shows(named.shows)
                || named.children.iter().any(|part| part.kind == to && shows(part.shows))
        })
    };
    let named = |doc: Option<&Value>| {
        let mut named = BTreeSet::new();
        if let Some(doc) = doc {
            let own = path::of(doc);
            each_in(descriptor, doc, own, Wanted::default(), &mut |found| {
                if !is_below(found.id, own) && shown_by(found.children, found.reference.to) {
                    named.insert((found.element, found.id.to_owned()));
                }
            });
        }
        named
    };
    let (had, has) = (named(old), named(new));
    let concerned: Vec<&(String, String)> = match state.switches.related_etags {
        RelatedEtags::EveryWrite => had.union(&has).collect(),
        RelatedEtags::References => had.symmetric_difference(&has).collect(),
    };
    let resources: BTreeSet<String> = concerned.into_iter().filter_map(|(_, id)| resource_of(state, id)).collect();
    for id in resources {
        let etag = document::weak(&state.guid());
        state.store.change(&id, at, |resource| {
            if let Some(descriptor) = types.of(&resource.doc) {
                document::retag(descriptor, &mut resource.doc, &etag);
            }
        });
    }
}

/// Ids of one type that a document names.
pub(crate) fn named<'a>(descriptor: &'static Descriptor, doc: &'a Value, kind: &str) -> Vec<&'a str> {
    let mut ids = Vec::new();
    each_in(descriptor, doc, "", Wanted { to: Some(kind), from: None }, &mut |found| ids.push(found.id));
    ids
}

/// What only one may name must be named by nothing else than a document.
pub(crate) fn check_exclusive(descriptor: &'static Descriptor, state: &State, doc: &Value) -> Result<(), Fault> {
    let own = path::of(doc);
    let mut named = Vec::new();
    each_in(descriptor, doc, own, Wanted::default(), &mut |found| {
        named.extend(found.reference.exclusive.map(|exclusive| (exclusive, found)));
    });
    let mut here = BTreeSet::new();
    for (exclusive, found) in &named {
        if !here.insert(path::key(found.id)) {
            return Err((exclusive.twice)(found.id, own));
        }
    }
    let mut elsewhere: BTreeMap<String, &str> = BTreeMap::new();
    let kinds: BTreeSet<&str> = named.iter().map(|(_, found)| found.reference.to).collect();
    for kind in kinds {
        each_reference(state, kind, None, &mut |id, referrer| {
            // What may be named by many beside the one does not take it: a rule names its frontend.
            if referrer.is_exclusive && !path::same(referrer.resource, own) && here.contains(&path::key(id)) {
                elsewhere.insert(path::key(id), referrer.resource);
            }
        });
    }
    let taken = named.iter().find_map(|(exclusive, found)| {
        let other = elsewhere.get(&path::key(found.id))?;
        Some((exclusive.taken)(&found.element, found.id, other))
    });
    taken.map_or(Ok(()), Err)
}

/// What refers to a resource.
pub(crate) struct Referrer<'a> {
    /// Id of the resource that does.
    pub(crate) resource: &'a str,
    /// Id of the child of it that does, such as an IP configuration; else of the resource.
    pub(crate) element: String,
    /// Whether only one may refer to it in this way.
    is_exclusive: bool,
}

/// Visits every reference to a type, of the type or children `from` only, where they are given: the id, and who refers
/// to it.
fn each_reference<'a>(state: &'a State, kind: &str, from: Option<&str>, visit: &mut dyn FnMut(&'a str, Referrer<'a>)) {
    let is_from = |descriptor: &&'static Descriptor| {
        let parts = || descriptor.children.iter().map(|children| children.kind);
        from.is_none_or(|from| descriptor.kind == from || parts().any(|kind| kind == from))
    };
    for descriptor in state.types.all().filter(is_from) {
        let children = descriptor.children.iter().flat_map(|children| children.references);
        if !descriptor.references.iter().chain(children).any(|reference| reference.to == kind) {
            continue;
        }
        for doc in state.store.of_kind(descriptor.kind) {
            let resource = path::of(doc);
            each_in(descriptor, doc, resource, Wanted { to: Some(kind), from }, &mut |found| {
                let is_exclusive = found.reference.exclusive.is_some();
                visit(found.id, Referrer { resource, element: found.element, is_exclusive });
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

/// What is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deleted {
    /// A resource with all its children.
    Whole,
    /// A child alone.
    Part,
}

/// Who stops the deletion of a resource or child, by one rule: ids to show and ids of resources.
fn users_by(rule: &InUse, state: &State, kind: &str, doc: &Value, deleted: Deleted) -> Vec<(String, String)> {
    let leaving = match rule.by {
        By::Named(named) => return named(doc).into_iter().map(|id| (id.clone(), id)).collect(),
        By::ToChildren(from) => return users_of_children(state, doc, from),
        By::ReferencesBut(kind, leave) if deleted == Deleted::Whole && leave(&state.switches) => Some(kind),
        By::References | By::ReferencesBut(..) => None,
    };
    let leaves = |referrer: &Referrer<'_>| {
        leaving.is_some_and(|kind| state.store.get(referrer.resource).is_some_and(|by| by.doc["type"] == kind))
    };
    referrers(state, kind, path::of(doc), None)
        .into_iter()
        .filter(|referrer| !leaves(referrer))
        .map(|referrer| (referrer.element, referrer.resource.to_owned()))
        .collect()
}

/// Who of these types refers to a child of a resource: ids to show and ids of resources.
fn users_of_children(state: &State, doc: &Value, from: &[&'static str]) -> Vec<(String, String)> {
    let own = path::of(doc);
    let mut users = Vec::new();
    for children in state.types.of(doc).map_or(&[][..], |descriptor| descriptor.children) {
        for from in from {
            each_reference(state, children.kind, Some(from), &mut |named, referrer| {
                if is_below(named, own) {
                    users.push((referrer.element, referrer.resource.to_owned()));
                }
            });
        }
    }
    users
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
fn refuse(
    rule: &InUse,
    state: &State,
    (kind, doc): (&str, &Value),
    own: Option<&str>,
    deleted: Deleted,
) -> Result<(), Fault> {
    let users = users_by(rule, state, kind, doc, deleted);
    match users.iter().find(|(_, resource)| own.is_none_or(|own| !path::same(own, resource))) {
        Some((by, _)) => Err((rule.fault)(doc, by)),
        None => Ok(()),
    }
}

/// Refuses while something uses a resource or one of its children. Documented.
pub(crate) fn unused(descriptor: &'static Descriptor, state: &State, doc: &Value) -> Result<(), Fault> {
    let mut rules = rules(descriptor, doc);
    rules.try_for_each(|(rule, kind, part)| refuse(rule, state, (kind, part), doc["id"].as_str(), Deleted::Whole))
}

/// Refuses while something uses a child, another part of its document too.
pub(crate) fn child_unused(children: &'static Children, state: &State, doc: &Value) -> Result<(), Fault> {
    children.in_use.iter().try_for_each(|rule| refuse(rule, state, (children.kind, doc), None, Deleted::Part))
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
            let own = old["id"].as_str();
            rules.try_for_each(|rule| refuse(rule, state, (children.kind, child), own, Deleted::Part))?;
        }
    }
    Ok(())
}

/// Ids of the resources that stop the deletion of a resource.
pub(crate) fn users(state: &State, doc: &Value) -> Vec<String> {
    let Some(descriptor) = state.types.of(doc) else {
        return Vec::new();
    };
    rules(descriptor, doc)
        .flat_map(|(rule, kind, doc)| users_by(rule, state, kind, doc, Deleted::Whole))
        .map(|(_, resource)| resource)
        .filter(|resource| !doc["id"].as_str().is_some_and(|own| path::same(own, resource)))
        .collect()
}

/// Ids of those who refer, by the id (in lower case) that they name.
type Referring = BTreeMap<String, Vec<String>>;

/// What shows in the documents of a type, and in their children, of those who refer to them.
pub(crate) struct BackReferences {
    /// In the resource, or in these children: each member with its form, and who refers.
    members: Vec<(Option<&'static Children>, &'static BackReference, Referring)>,
}

impl BackReferences {
    /// Those of a type, all at once: one look at who refers serves a whole list.
    pub(crate) fn of(descriptor: &'static Descriptor, state: &State) -> Self {
        let own = descriptor.shows.iter().map(|shown| (None, descriptor.kind, shown));
        let parts = descriptor
            .children
            .iter()
            .flat_map(|children| children.shows.iter().map(move |shown| (Some(children), children.kind, shown)));
        let members = own.chain(parts).filter(|(_, _, shown)| match shown.form {
            Form::Addresses => state.switches.interface_pool_shows_addresses,
            Form::Hidden => false,
            _ => true,
        });
        let members = members.map(|(children, kind, shown)| {
            let mut by = Referring::new();
            each_reference(state, kind, Some(shown.from), &mut |named, referrer| {
                let known = by.entry(path::key(named)).or_default();
                if known.last() != Some(&referrer.element) {
                    known.push(referrer.element);
                }
            });
            (children, shown, by)
        });
        Self { members: members.collect() }
    }

    /// A document with what shows in it.
    pub(crate) fn shown_in(&self, mut doc: Document) -> Document {
        for (children, shown, by) in
            self.members.iter().filter(|(_, shown, by)| shown.form == Form::Many || !by.is_empty())
        {
            match children {
                None => show(&mut doc, shown, by),
                Some(children) => {
                    let list = doc["properties"].get_mut(children.member).and_then(Value::as_array_mut);
                    list.into_iter().flatten().for_each(|child| show(child, shown, by));
                }
            }
        }
        doc
    }
}

/// Shows in a resource or child who refers to it.
fn show(doc: &mut Value, shown: &BackReference, by: &Referring) {
    let by = doc["id"].as_str().and_then(|id| by.get(&path::key(id))).map_or(&[][..], Vec::as_slice);
    let member = &mut doc["properties"];
    match (shown.form, by.first()) {
        // Several types may refer to it.
        (Form::Many, _) | (Form::Some, Some(_)) => {
            let known = member[shown.member].as_array().cloned().unwrap_or_default();
            member[shown.member] = known.into_iter().chain(by.iter().map(|id| json!({"id": id}))).collect();
        }
        (Form::One, Some(first)) => member[shown.member] = json!({"id": first}),
        (Form::Addresses, Some(_)) => {
            let listed = by.iter().map(|id| {
                let interface = path::name_of(path::parent_of(id));
                let name = format!("{}_{interface}{}", path::group_of(id), path::name_of(id));
                json!({"name": name, "properties": {"networkInterfaceIPConfiguration": {"id": id}}})
            });
            let known = member[shown.member].as_array().cloned().unwrap_or_default();
            member[shown.member] = known.into_iter().chain(listed).collect();
        }
        (Form::One | Form::Some | Form::Addresses, None) | (Form::Hidden, _) => {}
    }
}

/// A document of the network provider as the answer to its write shows it.
pub(crate) fn shown(descriptor: &'static Descriptor, state: &State, doc: Value) -> Document {
    match descriptor.family.etags {
        Etags::Weak => BackReferences::of(descriptor, state).shown_in(doc.into()),
        Etags::None | Etags::Counted => doc.into(),
    }
}
