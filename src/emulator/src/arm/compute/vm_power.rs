//! Power actions of machines, and the request for the instance view.
//!
//! Documented: POST answers 202 with both headers; a deallocated machine's disks are `Reserved`; what is
//! deallocated is started, not switched off or restarted (terraform#28218, common VM error codes).

use super::disk_plan::{self, Plan};
use super::scale_sets::members;
use super::vm_work::{self, BOTH, Doing};
use super::{attachments, instance_view};
use crate::answer::{Answer, Context, Reply, Start};
use crate::arm::compute::base::RETRY_AFTER;
use crate::arm::writes;
use crate::fault;
use crate::latency::OperationKind;
use crate::operations::{Outcome, Style};
use crate::path;
use crate::phases::Moved;
use crate::store::Power;

/// `start`, `powerOff`, `deallocate`, `restart`, `redeploy`, `reapply`.
pub(crate) fn act(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = vm_work::id_of(context);
    let action = context.request.path.rest.last().map(|action| action.to_ascii_lowercase()).unwrap_or_default();
    let Some(resource) = context.state.store.get(&id) else {
        return Err(vm_work::not_found(context));
    };
    let id = resource.id().to_owned();
    let location = resource.doc["location"].as_str().unwrap_or("").to_owned();
    if action == "simulateeviction" {
        return Ok(Answer::empty(204));
    }
    let (name, to, turning) = match action.as_str() {
        "poweroff" => ("powerOff", Some(Power::Stopped), Some("stopping")),
        "deallocate" => ("deallocate", Some(Power::Deallocated), Some("deallocating")),
        "start" => ("start", Some(Power::Running), Some("starting")),
        "restart" => ("restart", Some(Power::Running), None),
        "redeploy" => ("redeploy", Some(Power::Running), None),
        "reimage" | "reimageall" => ("reimage", Some(Power::Running), None),
        _ => ("reapply", None, None),
    };
    let doc = resource.doc.clone();
    vm_work::refuse_unsettled(context, &doc, name)?;
    if to == Some(Power::Running) {
        attachments::refuse_retired(context.state, &doc)?;
    }
    vm_work::make_way(context, &id, Doing::Power(name))?;
    match (name, context.state.store.power(&id)) {
        ("powerOff" | "restart" | "redeploy", Some(Power::Deallocated)) => {
            return Err(fault::vm_deallocated(name, path::machine_name(&id)));
        }
        ("restart", Some(Power::Stopped)) => return Err(fault::vm_must_run()),
        _ => {}
    }
    let now = context.now;
    context.state.store.change(&id, now, |resource| resource.set_provisioning("Updating"));
    // Unverified: what a failed attach left in the model is done with whatever comes next.
    let wanted = attachments::wanted(context.state, &id);
    let plan = Plan { attach: wanted.clone(), ..Plan::default() };
    let steps = disk_plan::steps(context.state, &id, &plan);
    let (effect_id, undo_id) = (id.clone(), id.clone());
    let started = context.start(Start {
        style: Style::Compute,
        kind: OperationKind::VmPower,
        resource: &id,
        collection: vm_work::collection(&location),
        retry_after: RETRY_AFTER,
        steps,
        effect: Box::new(move |state, at| {
            attachments::all_free(state, &effect_id, &wanted)?;
            for (lun, disk) in wanted {
                attachments::take(state, &effect_id, lun, &disk, at);
            }
            state.store.change(&effect_id, at, |resource| {
                resource.set_provisioning("Succeeded");
                vm_work::free(resource);
                if let (Some(machine), Some(to)) = (&mut resource.machine, to) {
                    machine.power = to;
                }
            });
            attachments::mark_disks(state, &effect_id, at);
            members::touch(state, &effect_id, at);
            Ok(Outcome::default())
        }),
        undo: Some(Box::new(move |state, at, _| {
            state.store.change(&undo_id, at, |resource| {
                resource.set_provisioning("Failed");
                vm_work::free(resource);
            });
        })),
        together_with: None,
    });
    context.state.store.change(&id, now, |resource| {
        if let Some(machine) = &mut resource.machine {
            machine.busy = Some(started.id.clone());
            machine.turning = turning.filter(|_| Some(machine.power) != to);
        }
    });
    writes::record(context, OperationKind::VmPower, &id, &started, Moved::default());
    Ok(Answer::empty(202).started(started, BOTH))
}

/// GET `instanceView`.
pub(crate) fn get_instance_view(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = vm_work::id_of(context);
    let Some(doc) = context.state.store.shown(&id, context.now) else {
        return Err(vm_work::not_found(context));
    };
    Ok(Answer::json(200, instance_view::instance_view(context, &doc)))
}
