//! Virtual machine scale sets, of uniform and of flexible orchestration.
//!
//! The document of a set is its model: how many instances there are, and what a new one is made of. Instances of a
//! uniform set are documents below it ([`instances`]) with network interfaces below them ([`interfaces`]); those of a
//! flexible set are virtual machines with interfaces of their own, which name the set.
//!
//! ```text
//!            write accepted                     write ended
//!  capacity up   ──▶ instances are Creating  ──▶ Succeeded
//!  capacity down ──▶ instances are Deleting  ──▶ gone, with their disks and interfaces
//!  model changed ──▶ latestModelApplied: false ─▶ by upgradePolicy: stays, or the model is applied ([`upgrades`])
//! ```
//!
//! Recorded: the members and defaults of a uniform set of Windows machines, its etag, the answers to PUT, list and
//! DELETE, and `x-ms-request-charge`. Documented: names of instances, that members left out of a PUT stay, what
//! scale-in takes first, upgrade policies. Unverified is marked where it is written.

mod actions;
pub(crate) mod addresses;
mod growth;
pub(crate) mod instances;
pub(crate) mod interfaces;
pub(crate) mod members;
mod model;
pub(crate) mod nics;
mod parts;
mod upgrades;

use std::time::Duration;

use serde_json::{Value, json};

use self::members::{all_members, capacity, is_busy, is_flexible, members};
use super::base::{OF_MACHINES, RESOURCE, VM_FAMILY, post};
use super::{quotas, vm_removal, vm_work};
use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::{Begun, Descriptor, Exceeded, Extra, Family, Handler, Hooks, Own, Quota, Reference};
use crate::arm::engine::{delete, put};
use crate::arm::kinds;
use crate::arm::protocol::{Absent, Answered, Commit, Etags, Latency, Limits, Patch, Put, Schema, Scope, Shape};
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::path;
use crate::state::{HypervisorStep, State};
use crate::throttle::{DELETE_SCALE_SET, GET_SCALE_SET, LIST_SCALE_SET, PUT_SCALE_SET, READ_NETWORK, UPDATE_SCALE_SET};

/// Recorded: the etag of a set counts its changes.
static FAMILY: Family = Family { etags: Etags::Counted, ..VM_FAMILY };

const SCHEMA: Schema = Schema { name: "VirtualMachineScaleSet", root: "parameters" };

/// A path below each of the model's interfaces.
macro_rules! of_interfaces {
    ($path:literal) => {
        concat!("properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations/*/properties/", $path)
    };
}

pub(crate) static SCALE_SET: Descriptor = Descriptor {
    kind: kinds::SCALE_SET,
    path: "virtualMachineScaleSets",
    family: &FAMILY,
    lists: &[Scope::Either, Scope::Location],
    limits: Limits {
        get: Some(GET_SCALE_SET),
        list: Some(LIST_SCALE_SET),
        write: Some(PUT_SCALE_SET),
        change: Some(UPDATE_SCALE_SET),
        delete: Some(DELETE_SCALE_SET),
    },
    headers: OF_MACHINES,
    latency: Latency { write: OperationKind::ScaleSetUpdate, delete: OperationKind::VmDelete },
    schema: SCHEMA,
    layout: &["name", "id", "type", "location", "tags", "plan", "identity", "zones", "sku", "etag", "properties"],
    put: Put {
        created: Answered::new(201, Shape::AsyncOperation),
        updated: |_| Answered::new(200, Shape::AsyncOperation),
        running: |_| "Updating",
        commit: Commit::AtOnce,
    },
    creating: Some("Creating"),
    absent: Absent::Stay,
    patch: Patch::Merge { operation: "update", schema: SCHEMA, answered: Answered::new(200, Shape::AsyncOperation) },
    references: &[
        Reference::new(of_interfaces!("networkSecurityGroup"), kinds::SECURITY_GROUP),
        Reference::new(of_interfaces!("ipConfigurations/*/properties/subnet"), kinds::SUBNET),
        Reference::new(
            of_interfaces!("ipConfigurations/*/properties/loadBalancerBackendAddressPools/*"),
            kinds::BACKEND_POOL,
        ),
        Reference::new(of_interfaces!("ipConfigurations/*/properties/loadBalancerInboundNatPools/*"), kinds::NAT_POOL),
        Reference::new(
            of_interfaces!("ipConfigurations/*/properties/applicationSecurityGroups/*"),
            kinds::APPLICATION_GROUP,
        ),
        Reference::new("properties/virtualMachineProfile/networkProfile/healthProbe", kinds::PROBE),
    ],
    quotas: &[Quota {
        name: "virtualMachineScaleSets",
        local_name: "Virtual Machine Scale Sets",
        limit: 2500,
        counts: |_| true,
        fault: |Exceeded { name, location, limit, used }| fault::quota(name, location, *limit, *used, 1),
    }],
    hooks: Hooks {
        name: model::check_name,
        complete: model::complete,
        check: model::check,
        begun,
        settle,
        failed,
        changed,
        ..Hooks::NONE
    },
    own: Own { put: Some(put_set), delete: Some(delete_set), ..Own::NONE },
    routes: &[
        read("instanceview", "virtualMachineScaleSets.getInstanceView", instance_view),
        Extra {
            limit: Some(READ_NETWORK),
            headers: &[],
            ..read("networkinterfaces", "virtualMachineScaleSetNetworkInterfaces.listOfSet", parts::interfaces)
        },
        Extra {
            limit: Some(READ_NETWORK),
            headers: &[],
            ..read("publicipaddresses", "virtualMachineScaleSetPublicIPAddresses.listOfSet", parts::addresses)
        },
        action("start", "virtualMachineScaleSets.start"),
        action("poweroff", "virtualMachineScaleSets.powerOff"),
        action("deallocate", "virtualMachineScaleSets.deallocate"),
        action("restart", "virtualMachineScaleSets.restart"),
        action("reimage", "virtualMachineScaleSets.reimage"),
        action("delete", "virtualMachineScaleSets.deleteInstances"),
        action("manualupgrade", "virtualMachineScaleSets.updateInstances"),
    ],
    ..RESOURCE
};

const fn read(path: &'static str, operation: &'static str, handler: Handler) -> Extra {
    Extra { method: "GET", limit: Some(LIST_SCALE_SET), headers: OF_MACHINES, ..post(path, operation, handler) }
}

const fn action(path: &'static str, operation: &'static str) -> Extra {
    Extra { limit: Some(UPDATE_SCALE_SET), headers: OF_MACHINES, ..post(path, operation, actions::act) }
}

/// PUT. Recorded: `x-ms-request-charge`, 1 for the creation of a set of one instance and 0 where nothing changes. That
/// it is the number of instances that come or go is unverified.
fn put_set(context: &mut Context<'_>) -> Reply {
    let count =
        |context: &Context<'_>| context.state.store.document(&SCALE_SET.id(context)).map_or(0, |set| capacity(&set));
    let before = count(context);
    let answer = put::put(&SCALE_SET, context)?;
    Ok(answer.with("x-ms-request-charge", count(context).abs_diff(before).to_string()))
}

/// DELETE. Recorded; its charge as that of PUT.
fn delete_set(context: &mut Context<'_>) -> Reply {
    let set = context.state.store.document(&SCALE_SET.id(context));
    let charge = set.map_or(0, |set| members(context.state, &set).len());
    let answer = delete::delete(&SCALE_SET, context)?;
    Ok(if answer.status == 204 { answer } else { answer.with("x-ms-request-charge", charge.to_string()) })
}

/// Instances come and go, and learn that the model is another.
fn begun(context: &mut Context<'_>, old: Option<&Value>, new: Option<&Value>) -> Result<Begun, Fault> {
    let now = context.now;
    let Some(set) = new else {
        let going = old.map(|set| members(context.state, set)).unwrap_or_default();
        return Ok(Begun::with(leave(context.state, &going, now)));
    };
    let had = members(context.state, set);
    let (wanted, mut begun) = (capacity(set), Begun::default());
    if wanted > had.len() && set["properties"]["virtualMachineProfile"].is_object() {
        let more = wanted - had.len();
        let (location, size) = (set["location"].as_str().unwrap_or(""), set["sku"]["name"].as_str().unwrap_or(""));
        quotas::check_machines(context, location, size, more as u64)?;
        let stamp = context.shared.clock.stamp(now);
        let fresh = growth::plan(context.state, set, more, &stamp)?;
        begun = Begun { kind: Some(OperationKind::VmCreate), steps: growth::place(context.state, set, fresh, now) };
    } else if wanted < had.len() {
        let going = growth::first_to_go(context.state, had.clone(), had.len() - wanted);
        begun = Begun { kind: Some(OperationKind::VmDelete), steps: leave(context.state, &going, now) };
    }
    if old.is_some_and(|old| upgrades::is_another(old, set)) {
        upgrades::outdate(context.state, &had, now);
        if upgrades::happens_by_itself(set) {
            begun.kind = begun.kind.or(Some(OperationKind::InstanceUpdate));
        }
    }
    Ok(begun)
}

/// Instances are on their way out.
fn leave(state: &mut State, going: &[String], at: Duration) -> Vec<HypervisorStep> {
    for id in going {
        state.store.change(id, at, |resource| resource.set_provisioning("Deleting"));
    }
    going.iter().map(|id| HypervisorStep::DeleteMachine { vm: id.clone() }).collect()
}

/// The instances that a write of the set brings or takes, each with its state.
fn in_flight(state: &State, set: &Value) -> Vec<(String, String)> {
    let with_state = |id: String| {
        let provisioning = state.store.get(&id)?.provisioning().to_owned();
        (["Creating", "Deleting"].contains(&provisioning.as_str()) && !is_busy(state, &id))
            .then_some((id, provisioning))
    };
    all_members(state, set).into_iter().filter_map(with_state).collect()
}

fn settle(state: &mut State, set: &mut Value, at: Duration) -> Result<(), Fault> {
    for (id, provisioning) in in_flight(state, set) {
        if provisioning == "Deleting" {
            vm_removal::remove(state, &id, at);
            continue;
        }
        state.store.change(&id, at, |resource| {
            resource.set_provisioning("Succeeded");
            vm_work::bump(resource);
        });
        state.remember_luns(&id, at);
    }
    upgrades::after_write(state, set, at);
    Ok(())
}

/// A write that failed leaves the instances that it brought in the state `Failed`. Unverified.
fn failed(state: &mut State, id: &str, at: Duration) {
    let Some(set) = state.store.document(id) else {
        return;
    };
    for (id, provisioning) in in_flight(state, &set) {
        let word = if provisioning == "Creating" { "Failed" } else { "Succeeded" };
        state.store.change(&id, at, |resource| resource.set_provisioning(word));
    }
}

/// Numbers of instances are not given out twice; the machines of a flexible set go with it. The latter is unverified.
fn changed(state: &mut State, old: Option<&Value>, new: Option<&Value>, at: Duration) {
    match (old, new) {
        (_, Some(set)) => {
            let members = all_members(state, set);
            let next = match is_flexible(set) {
                true => members.len() as u64,
                false => {
                    members.iter().filter_map(|id| path::name_of(id).parse::<u64>().ok()).max().map_or(0, |n| n + 1)
                }
            };
            state.store.change(path::of(set), at, |resource| {
                resource.next_instance = resource.next_instance.max(next);
            });
        }
        (Some(set), None) => {
            for machine in all_members(state, set) {
                vm_removal::remove(state, &machine, at);
            }
        }
        (None, None) => {}
    }
}

/// The instance view of a set. Documented shape.
fn instance_view(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let set = context.state.store.shown(&SCALE_SET.id(context), context.now);
    let set = set.ok_or_else(|| SCALE_SET.not_found(context))?;
    let word = |doc: &Value| doc["properties"]["provisioningState"].as_str().unwrap_or("").to_ascii_lowercase();
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    for id in all_members(context.state, &set) {
        let doc = context.state.store.document(&id).unwrap_or_default();
        *counts.entry(word(&doc)).or_default() += 1;
    }
    let summary = counts.iter().map(|(state, count)| {
        let code = format!("ProvisioningState/{state}");
        json!({"code": code, "count": count})
    });
    let state = word(&set);
    Ok(Answer::json(
        200,
        json!({
            "virtualMachine": {"statusesSummary": summary.collect::<Vec<_>>()},
            "statuses": [{
                "code": format!("ProvisioningState/{state}"),
                "level": if state == "failed" { "Error" } else { "Info" },
                "displayStatus": format!("Provisioning {state}"),
                "time": set["properties"]["timeCreated"],
            }],
        }),
    ))
}

impl State {
    /// Puts a set in place with its instances, as if it had been made before the start.
    pub(crate) fn seed_scale_set(&mut self, set: Value, stamp: &str) {
        let at = Duration::ZERO;
        let id = path::of(&set).to_owned();
        self.store.insert(&id, crate::store::Resource::new(set.clone()), at);
        if let Ok(fresh) = growth::plan(self, &set, capacity(&set), stamp) {
            growth::place(self, &set, fresh, at);
        }
        let mut set = set;
        changed(self, None, Some(&set), at);
        // Nothing in it can fail.
        let _ = settle(self, &mut set, at);
    }
}
