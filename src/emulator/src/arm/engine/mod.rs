//! The engine that answers PUT, PATCH, GET, LIST and DELETE of every type that a [`Descriptor`] describes.
//!
//! The order of a write: the group, the body, the region or the parent, the name, the preconditions, other writers,
//! zones, what it refers to, the document, what it leaves out, the quota, the check of the whole. Only then is the
//! document stored, and an operation starts where the descriptor says so, which supersedes one that runs.

pub(crate) mod children;
pub(crate) mod delete;
pub(crate) mod document;
pub(crate) mod put;
pub(crate) mod quotas;
pub(crate) mod read;
pub(crate) mod references;

use std::time::Duration;

use serde_json::Value;

use super::descriptor::{Descriptor, Family};
use super::protocol::Etags;
use super::writes;
use crate::answer::Context;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

/// `If-Match`. Recorded mismatch; `*` is documented.
fn preconditions(family: &Family, context: &Context<'_>, doc: Option<&Value>) -> Result<(), Fault> {
    if family.etags == Etags::Counted {
        return writes::numbered_preconditions(context, doc.and_then(|doc| doc["etag"].as_str()));
    }
    let Some(wanted) = context.request.header("if-match").map(str::trim).filter(|_| family.etags == Etags::Weak) else {
        return Ok(());
    };
    let text = |member: &str| doc.map_or("", |doc| doc[member].as_str().unwrap_or(""));
    if wanted == "*" && doc.is_some() || wanted == text("etag") {
        return Ok(());
    }
    Err(fault::network_etag_mismatch(wanted, text("etag"), text("id")))
}

/// The next etag of a resource.
fn next_etag(family: &Family, state: &mut State, old: Option<&Value>) -> Option<String> {
    match family.etags {
        Etags::None => None,
        Etags::Weak => Some(document::weak(&state.guid())),
        Etags::Counted => {
            let had = old.and_then(|old| old["etag"].as_str()?.trim_matches('"').parse::<u64>().ok());
            Some(format!("\"{}\"", had.unwrap_or(0) + 1))
        }
    }
}

/// A document has been put in place or removed: what it names may have a new etag, and what its type does besides.
pub(crate) fn changed(
    descriptor: &'static Descriptor,
    state: &mut State,
    old: Option<&Value>,
    new: Option<&Value>,
    at: Duration,
) {
    references::retag_named(descriptor, state, old, new, at);
    (descriptor.hooks.changed)(state, old, new, at);
}

/// The location of a document, or of its parent where it shows none.
fn location_of(descriptor: &Descriptor, context: &Context<'_>, doc: &Value) -> String {
    if let Some(own) = doc["location"].as_str() {
        return own.to_owned();
    }
    let parent = descriptor.parent.and_then(|parent| context.state.store.document(&parent.id(context)));
    parent.and_then(|parent| parent["location"].as_str().map(str::to_owned)).unwrap_or_default()
}

/// Refuses a write of what is being deleted. Documented.
fn refuse_if_deleting(descriptor: &Descriptor, context: &Context<'_>, doc: &Value) -> Result<(), Fault> {
    if doc["properties"]["provisioningState"] != "Deleting" {
        return Ok(());
    }
    Err(another_operation(descriptor, context, doc))
}

/// The refusal that names the operation which runs on a resource.
fn another_operation(descriptor: &Descriptor, context: &Context<'_>, doc: &Value) -> Fault {
    let busy = context.state.store.get(path::of(doc)).and_then(|resource| resource.busy.clone());
    let request = context.request;
    fault::another_operation(format!(
        "{}{}/{}/{}?api-version={}",
        request.base,
        request.subscription_id(),
        descriptor.family.operations(doc["location"].as_str().unwrap_or("")),
        busy.unwrap_or_default(),
        request.api_version
    ))
}
