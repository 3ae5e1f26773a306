//! Operations on one disk or snapshot: how it is named, and how they are accepted and pointed at.

use serde_json::Value;

use super::base::DISK_FAMILY;
use crate::answer::{Context, OperationHeaders, Start, Started};
use crate::arm::kinds::{DISK, SNAPSHOT};
use crate::arm::writes;
use crate::blob::vhd;
use crate::fault::{self, Fault};
use crate::hypervisor::DiskFacts;
use crate::latency::OperationKind;
use crate::operations::Style;
use crate::phases::Moved;
use crate::state::{Effect, HypervisorStep, State, Undo};

pub(crate) const HEADERS: OperationHeaders =
    OperationHeaders { asynchronous: true, location: true, notification: false };

/// The type of the disk or snapshot that a request names.
fn kind_of(context: &Context<'_>) -> &'static str {
    if context.request.segment(0).eq_ignore_ascii_case("snapshots") { SNAPSHOT } else { DISK }
}

pub(crate) fn id_of(context: &Context<'_>) -> String {
    format!("{}/providers/{}/{}", context.request.group_id(), kind_of(context), context.request.segment(1))
}

pub(crate) fn not_found(context: &Context<'_>) -> Fault {
    fault::resource_not_found(kind_of(context), context.request.segment(1), context.request.group())
}

/// What the hypervisor must know of a disk.
pub(crate) fn facts(doc: &Value) -> DiskFacts {
    DiskFacts {
        id: doc["id"].as_str().unwrap_or("").to_owned(),
        unique_id: doc["properties"]["uniqueId"].as_str().unwrap_or("").to_owned(),
        size_bytes: doc["properties"]["diskSizeBytes"].as_u64().unwrap_or(0),
        file: None,
    }
}

/// How the hypervisor makes a disk: from another, from a blob, or blank.
pub(crate) fn creation_step(state: &State, doc: &Value) -> HypervisorStep {
    let (disk, data) = (facts(doc), &doc["properties"]["creationData"]);
    if let Some(from) = data["sourceResourceId"].as_str() {
        return HypervisorStep::Copy { from: from.to_owned(), disk };
    }
    let blob = data["sourceUri"].as_str().zip(data["storageAccountId"].as_str());
    match blob.and_then(|(uri, account)| vhd::source(state, uri, account).ok()) {
        Some(source) => HypervisorStep::Import { file: source.file, bytes: source.bytes, disk },
        None => HypervisorStep::Create { disk },
    }
}

/// Which disk an operation is about.
pub(crate) struct Named {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) location: String,
}

impl Named {
    pub(crate) fn of(doc: &Value) -> Self {
        let text = |member: &str| doc[member].as_str().unwrap_or("").to_owned();
        Self { id: text("id"), name: text("name"), location: text("location") }
    }
}

/// What an operation on a disk does.
pub(crate) struct Work {
    pub(crate) kind: OperationKind,
    pub(crate) steps: Vec<HypervisorStep>,
    pub(crate) effect: Effect,
    pub(crate) undo: Undo,
}

/// Accepts an operation and makes the disk busy with it.
pub(crate) fn accept(context: &mut Context<'_>, disk: &Named, work: Work) -> Started {
    let Work { kind, steps, effect, undo } = work;
    let started = context.start(Start {
        style: Style::Compute,
        kind,
        resource: &disk.id,
        collection: DISK_FAMILY.operations(&disk.location),
        retry_after: (DISK_FAMILY.retry_after)(&context.shared.options),
        steps,
        effect,
        undo: Some(undo),
        together_with: None,
    });
    context.state.store.change(&disk.id, context.now, |resource| resource.occupy(&started.id));
    writes::record(context, kind, &disk.id, &started, Moved::default());
    started
}
