//! Writes of one machine: how the machine is named, its etag, and who makes way for whom.

use serde_json::Value;

use crate::answer::{Answer, Context, OperationHeaders};
use crate::arm::kinds;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::options::Concurrent;
use crate::path;
use crate::store::Resource;

pub(crate) const BOTH: OperationHeaders = OperationHeaders { asynchronous: true, location: true, notification: true };

/// The id of the machine that a request names: a virtual machine, or an instance of a scale set.
pub(crate) fn id_of(context: &Context<'_>) -> String {
    context.state.types.at(&context.request.path).map(|of_type| of_type.id(context)).unwrap_or_default()
}

/// The refusal of a machine that is not there.
pub(crate) fn not_found(context: &Context<'_>) -> Fault {
    match context.state.types.at(&context.request.path) {
        Some(of_type) => of_type.missing(context),
        None => fault::path_not_found(&context.request.raw_path),
    }
}

pub(crate) fn collection(location: &str) -> String {
    format!("providers/Microsoft.Compute/locations/{location}/operations")
}

pub(crate) fn etag(resource: &Resource) -> String {
    format!("\"{}\"", resource.etag)
}

/// The first api-version in which a machine has an etag (source: azure-rest-api-specs, `VirtualMachine.etag` of the compute
/// provider). Azure Stack Hub has older ones only.
const FIRST_WITH_ETAG: &str = "2024-03-01";

/// An answer that shows a machine: with its etag, in body and header, where the api-version has one.
pub(crate) fn shown(context: &Context<'_>, mut doc: Document, tag: String) -> Answer {
    if context.request.api_version.as_str() >= FIRST_WITH_ETAG {
        return Answer::json(200, doc).with("etag", tag);
    }
    if let Some(members) = doc.as_object_mut() {
        members.shift_remove("etag");
    }
    Answer::json(200, doc)
}

/// The next etag, in the header's form also in the body. Recorded.
pub(crate) fn bump(resource: &mut Resource) {
    resource.renumber(resource.etag + 1);
}

pub(crate) fn free(resource: &mut Resource) {
    if let Some(machine) = &mut resource.machine {
        machine.busy = None;
        machine.turning = None;
    }
}

/// What a request is about to do to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// A change of the model, by the name that refusals give it.
    Change(&'static str),
    /// A power action.
    Power(&'static str),
    /// Its deletion.
    Deletion,
}

/// The operation in flight on a machine.
pub(crate) fn in_flight<'a>(context: &'a Context<'_>, id: &str) -> Option<&'a str> {
    let machine = context.state.store.get(id)?.machine.as_ref()?;
    machine.busy.as_deref().filter(|busy| context.state.operations.is_running(busy))
}

/// Refuses a write of an instance that is not there yet, or that goes with a write of its set.
pub(crate) fn refuse_unsettled(context: &Context<'_>, doc: &Value, operation: &str) -> Result<(), Fault> {
    let id = path::of(doc);
    match doc["properties"]["provisioningState"].as_str() {
        Some("Creating") if doc["type"] == kinds::INSTANCE => {
            Err(fault::instance_not_provisioned(operation, path::name_of(id), path::name_of(path::parent_of(id))))
        }
        Some("Deleting") if in_flight(context, id).is_none() => {
            Err(fault::marked_for_deletion(operation, path::machine_name(id)))
        }
        _ => Ok(()),
    }
}

/// Lets a request go ahead beside an operation in flight, or refuses it, as the switch says. Returns the
/// operations that it preempts. Documented: what is being deleted takes no other write. Unverified: a
/// power action preempts nothing.
pub(crate) fn make_way(context: &Context<'_>, id: &str, doing: Doing) -> Result<Vec<String>, Fault> {
    let Some(busy) = in_flight(context, id) else {
        return Ok(Vec::new());
    };
    let kind = context.state.operations.get(busy).map(|op| op.kind);
    if let (Some(OperationKind::VmDelete), Doing::Change(name) | Doing::Power(name)) = (kind, doing) {
        return Err(fault::marked_for_deletion(name, path::machine_name(id)));
    }
    let is_write = matches!(kind, Some(OperationKind::VmUpdate | OperationKind::VmAttach | OperationKind::VmDetach));
    let preempts = match doing {
        Doing::Change(_) => is_write,
        Doing::Power(_) => false,
        Doing::Deletion => true,
    };
    if context.shared.options.unverified.concurrent_vm_write == Concurrent::Preempt && preempts {
        return Ok(vec![busy.to_owned()]);
    }
    Err(fault::concurrent_request())
}

/// Documented (azure-rest-api-specs#13220): user data show where they are asked for, and nowhere else.
pub(crate) fn hide_user_data(doc: &mut Document) {
    // Looked for first: the document is shared, and a change would copy it.
    if doc["properties"].get("userData").is_some()
        && let Some(properties) = doc["properties"].as_object_mut()
    {
        properties.shift_remove("userData");
    }
}
