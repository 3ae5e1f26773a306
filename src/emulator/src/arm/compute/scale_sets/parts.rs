//! What all instances of a uniform set have in the network.

use serde_json::Value;

use super::members::is_flexible;
use crate::answer::{Context, Reply};
use crate::arm::{kinds, lists};
use crate::document::Document;
use crate::fault;
use crate::path;

pub(super) fn hide_type(doc: &mut Value) {
    if let Some(doc) = doc.as_object_mut() {
        doc.shift_remove("type");
    }
}

/// As it is shown.
pub(super) fn shown(mut doc: Document) -> Document {
    hide_type(&mut doc);
    doc
}

/// The interfaces of all instances of a set.
pub(super) fn interfaces(context: &mut Context<'_>) -> Reply {
    parts_of_set(kinds::INSTANCE_NIC, context)
}

/// Their public addresses.
pub(super) fn addresses(context: &mut Context<'_>) -> Reply {
    parts_of_set(kinds::INSTANCE_ADDRESS, context)
}

/// The parts of one kind of all instances of a uniform set.
fn parts_of_set(kind: &str, context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = context.state.types.of_kind(kinds::SCALE_SET).id(context);
    let set = context.state.store.document(&id).filter(|set| !is_flexible(set));
    let set = set.ok_or_else(|| fault::network_child_not_found(id))?;
    lists::select(context, path::of(&set), Some(kind), |doc| Some(shown(doc.clone())))
}
