//! Actions on several instances of a scale set in one operation.
//!
//! Documented: the body names instances, `*` or no body means all; deletion and upgrade must name them; an instance
//! that is not there is refused with its number (azure-cli#25476). Unverified: the whole request is refused while an
//! operation of its own runs on one of them.

use std::time::Duration;

use serde_json::Value;

use super::members::{count_change, is_busy, is_flexible, lose, members};
use super::upgrades;
use crate::answer::{Answer, Context, Reply, Start};
use crate::arm::compute::base::RETRY_AFTER;
use crate::arm::compute::{attachments, vm_work};
use crate::arm::{kinds, writes};
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::operations::{Outcome, Style};
use crate::path;
use crate::phases::Moved;
use crate::state::{HypervisorStep, State};
use crate::store::Power;

/// What is done to each instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Turn(Power, Option<&'static str>),
    Delete,
    Upgrade,
}

impl Action {
    fn of(word: &str) -> Self {
        match word {
            "delete" => Self::Delete,
            "manualupgrade" => Self::Upgrade,
            "poweroff" => Self::Turn(Power::Stopped, Some("stopping")),
            "deallocate" => Self::Turn(Power::Deallocated, Some("deallocating")),
            "start" => Self::Turn(Power::Running, Some("starting")),
            // restart, reimage
            _ => Self::Turn(Power::Running, None),
        }
    }

    fn kind(self) -> OperationKind {
        match self {
            Self::Turn(..) => OperationKind::VmPower,
            Self::Delete => OperationKind::VmDelete,
            Self::Upgrade => OperationKind::InstanceUpdate,
        }
    }

    /// The end.
    fn carry_out(self, state: &mut State, set: &str, machines: &[String], at: Duration) {
        for id in machines {
            state.store.change(id, at, |resource| {
                resource.set_provisioning("Succeeded");
                vm_work::free(resource);
                if let (Some(machine), Self::Turn(power, _)) = (&mut resource.machine, self) {
                    machine.power = power;
                }
            });
            match self {
                Self::Turn(..) => attachments::mark_disks(state, id, at),
                Self::Delete => lose(state, &[id], at),
                Self::Upgrade => {
                    if let Some(set) = state.store.document(set).filter(|set| !is_flexible(set)) {
                        upgrades::apply(state, &set, id, at);
                    }
                }
            }
        }
    }
}

/// The ids of the instances that a request names.
fn named(context: &Context<'_>, set: &Value, action: Action) -> Result<Vec<String>, Fault> {
    let asked = context.request.json.as_ref().map_or(&Value::Null, |body| &body["instanceIds"]);
    let asked: Vec<&str> = match asked.as_array() {
        Some(list) => list.iter().filter_map(Value::as_str).collect(),
        None if matches!(action, Action::Turn(..)) => vec!["*"],
        None => return Err(fault::missing_parameter("instanceIds")),
    };
    let members = members(context.state, set);
    if asked.contains(&"*") {
        return Ok(members);
    }
    let find = |name: &&str| {
        let found = members.iter().find(|id| path::name_of(id).eq_ignore_ascii_case(name));
        found.cloned().ok_or_else(|| match is_flexible(set) || name.parse::<u64>().is_ok() {
            true => fault::instance_not_active(name),
            false => fault::instance_id_no_number(),
        })
    };
    asked.iter().map(find).collect()
}

/// POST of an action.
pub(crate) fn act(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let of_type = context.state.types.of_kind(kinds::SCALE_SET);
    let set = context.state.store.document(&of_type.id(context)).ok_or_else(|| of_type.not_found(context))?;
    let id = path::of(&set).to_owned();
    let action = Action::of(&context.request.segment(2).to_ascii_lowercase());
    writes::refuse_if_busy(context, &id)?;
    let machines = named(context, &set, action)?;
    if machines.iter().any(|machine| is_busy(context.state, machine)) {
        return Err(fault::concurrent_request());
    }
    let now = context.now;
    let word = if action == Action::Delete { "Deleting" } else { "Updating" };
    for machine in &machines {
        context.state.store.change(machine, now, |resource| resource.set_provisioning(word));
    }
    let steps = machines.iter().filter(|_| action == Action::Delete);
    let steps = steps.map(|machine| HypervisorStep::DeleteMachine { vm: machine.clone() }).collect();
    let (effect_id, concerned, undone) = (id.clone(), machines.clone(), machines.clone());
    let started = context.start(Start {
        style: Style::Compute,
        kind: action.kind(),
        resource: &id,
        collection: vm_work::collection(set["location"].as_str().unwrap_or("")),
        retry_after: RETRY_AFTER,
        steps,
        effect: Box::new(move |state, at| {
            action.carry_out(state, &effect_id, &concerned, at);
            count_change(state, &effect_id, at, |_| ());
            Ok(Outcome::default())
        }),
        undo: Some(Box::new(move |state, at, _| {
            for machine in undone {
                state.store.change(&machine, at, |resource| {
                    resource.set_provisioning("Failed");
                    vm_work::free(resource);
                });
            }
        })),
        together_with: None,
    });
    for machine in &machines {
        context.state.store.change(machine, now, |resource| {
            if let (Some(machine), turning) = (&mut resource.machine, action) {
                machine.busy = Some(started.id.clone());
                machine.turning = match turning {
                    Action::Turn(power, word) => word.filter(|_| machine.power != power),
                    Action::Delete | Action::Upgrade => None,
                };
            }
        });
    }
    writes::record(context, action.kind(), &id, &started, Moved::default());
    Ok(Answer::empty(202).started(started, vm_work::BOTH))
}
