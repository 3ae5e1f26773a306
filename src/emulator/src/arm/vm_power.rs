//! Power actions of machines, and the instance view.
//!
//! Documented: POST answers 202 with both headers; a deallocated machine's disks are `Reserved`; the
//! instance view names provisioning and power state. The instance view's disk list is documented;
//! its `statuses` codes follow the recorded instance views of other types.

use serde_json::{Value, json};

use super::data_disks::disk_of;
use super::vms::{self, BOTH};
use crate::answer::{Answer, Context, Reply, Start};
use crate::latency::OperationKind;
use crate::operations::{Outcome, Style};
use crate::path;
use crate::store::Power;

/// `start`, `powerOff`, `deallocate`, `restart`, `redeploy`, `reapply`.
pub(crate) fn act(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = vms::id_of(context);
    let action = context.request.segment(2).to_ascii_lowercase();
    let Some(resource) = context.state.store.get(&id) else {
        return Err(vms::not_found(context));
    };
    let id = resource.id().to_owned();
    let location = resource.doc["location"].as_str().unwrap_or("").to_owned();
    if action == "simulateeviction" {
        return Ok(Answer::empty(204));
    }
    for old in vms::make_way(context, &id, false)? {
        let now = context.now;
        context.state.preempt(&old, now, crate::fault::preempted());
    }
    let to = match action.as_str() {
        "poweroff" => Some(Power::Stopped),
        "deallocate" => Some(Power::Deallocated),
        "start" | "restart" | "redeploy" => Some(Power::Running),
        _ => None,
    };
    let now = context.now;
    context.state.store.change(&id, now, |resource| resource.set_provisioning("Updating"));
    let (effect_id, undo_id) = (id.clone(), id.clone());
    let started = context.start(Start {
        style: Style::Compute,
        kind: OperationKind::VmPower,
        resource: &id,
        collection: vms::collection(&location),
        retry_after: vms::RETRY_AFTER,
        steps: Vec::new(),
        effect: Box::new(move |state, at| {
            state.store.change(&effect_id, at, |resource| {
                resource.set_provisioning("Succeeded");
                vms::free(resource);
                if let (Some(machine), Some(to)) = (&mut resource.machine, to) {
                    machine.power = to;
                }
            });
            if let Some(power) = to {
                mark_disks(state, &effect_id, power, at);
            }
            Ok(Outcome::default())
        }),
        undo: Some(Box::new(move |state, at, _| {
            state.store.change(&undo_id, at, |resource| {
                resource.set_provisioning("Failed");
                vms::free(resource);
            });
        })),
        together_with: None,
    });
    context.state.store.change(&id, now, |resource| {
        if let Some(machine) = &mut resource.machine {
            machine.busy = Some(started.id.clone());
        }
    });
    super::record(context, OperationKind::VmPower, &id, started.latency, Vec::new());
    Ok(Answer::empty(202).started(started, BOTH))
}

fn mark_disks(state: &mut crate::state::State, vm: &str, power: Power, at: std::time::Duration) {
    let mut held: Vec<String> = state.store.lun_map(vm).into_values().collect();
    if let Some(doc) = state.store.vm(vm)
        && let Some(os) = disk_of(&doc["properties"]["storageProfile"]["osDisk"])
    {
        held.push(os.to_owned());
    }
    for disk in held {
        state.store.change(&disk, at, |resource| {
            resource.doc["properties"]["diskState"] = json!(vms::state_word(power));
        });
    }
}

/// GET `instanceView`.
pub(crate) fn get_instance_view(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = vms::id_of(context);
    let Some(doc) = context.state.store.shown(&id, context.now) else {
        return Err(vms::not_found(context));
    };
    Ok(Answer::json(200, instance_view(context, &doc)))
}

/// The instance view of a machine.
pub(crate) fn instance_view(context: &Context<'_>, doc: &Value) -> Value {
    let id = doc["id"].as_str().unwrap_or("");
    let power = context.state.store.power(id).unwrap_or_default();
    let provisioning = doc["properties"]["provisioningState"].as_str().unwrap_or("Succeeded");
    let stamp = doc["properties"]["timeCreated"].clone();
    let status =
        |code: String, display: &str, level: &str| json!({"code": code, "level": level, "displayStatus": display});
    let mut provisioned = status(
        format!("ProvisioningState/{}", provisioning.to_ascii_lowercase()),
        &format!("Provisioning {}", provisioning.to_ascii_lowercase()),
        if provisioning == "Failed" { "Error" } else { "Info" },
    );
    provisioned["time"] = stamp.clone();
    let profile = &doc["properties"]["storageProfile"];
    let mut disks = Vec::new();
    let elements = profile["dataDisks"].as_array().cloned().unwrap_or_default();
    for element in std::iter::once(&profile["osDisk"]).chain(&elements) {
        let name = element["name"].as_str().or_else(|| disk_of(element).map(path::name_of)).unwrap_or("");
        disks.push(json!({
            "name": name,
            "statuses": [{
                "code": "ProvisioningState/succeeded",
                "level": "Info",
                "displayStatus": "Provisioning succeeded",
                "time": stamp,
            }],
        }));
    }
    let mut view = json!({
        "computerName": doc["properties"]["osProfile"]["computerName"].as_str().unwrap_or(""),
        "vmAgent": {
            "vmAgentVersion": "2.9.1.1",
            "statuses": [status("ProvisioningState/succeeded".to_owned(), "Ready", "Info")],
        },
        "disks": disks,
        "hyperVGeneration": "V2",
        "statuses": [
            provisioned,
            status(format!("PowerState/{}", power.word()), &format!("VM {}", power.word()), "Info"),
        ],
    });
    if let Some(set) = doc["properties"]["availabilitySet"]["id"].as_str() {
        let members = super::availability_sets::members(context.state, set);
        let at = members.iter().position(|vm| path::same(vm, id)).unwrap_or(0);
        let (faults, updates) = super::availability_sets::domains(context.state, set);
        view["platformFaultDomain"] = json!(at % faults.max(1));
        view["platformUpdateDomain"] = json!(at % updates.max(1));
    }
    view
}
