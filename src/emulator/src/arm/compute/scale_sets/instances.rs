//! Instances of uniform scale sets: GET, list, PUT, DELETE and actions.
//!
//! They are machines whose documents are below their set; what a write of data disks, a power action and a deletion do
//! is that of a virtual machine ([`vms`], [`vm_power`]). Recorded: a PUT answers 200 with the asynchronous header,
//! `Updating`, and `x-ms-request-charge: 0`; what is no number is refused. Documented: an instance that is not there
//! refuses writes with 400; what a GET of it answers is [`Switches::missing_instance`].
//!
//! [`Switches::missing_instance`]: crate::options::Switches::missing_instance

use serde_json::{Value, json};

use super::members::{all_members, is_flexible};
use super::{SCALE_SET, model};
use crate::answer::{Answer, Context, Reply};
use crate::arm::compute::base::{OF_MACHINES, RESOURCE, VM_FAMILY, post};
use crate::arm::compute::{extension_views, instance_view, vm_power, vm_removal, vm_work, vms};
use crate::arm::descriptor::{Descriptor, Extra, Handler, Hooks, Own, Planned, Verb};
use crate::arm::engine::put;
use crate::arm::protocol::{Limits, Scope};
use crate::arm::{kinds, lists};
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::options::MissingInstance;
use crate::path;
use crate::throttle::{DELETE_INSTANCE, GET_SCALE_SET, LIST_SCALE_SET, UPDATE_INSTANCE};

pub(crate) static INSTANCE: Descriptor = Descriptor {
    kind: kinds::INSTANCE,
    path: "virtualMachineScaleSets/*/virtualMachines",
    operations: Some("virtualMachineScaleSetVMs"),
    parent: Some(&SCALE_SET),
    family: &VM_FAMILY,
    lists: &[Scope::Group],
    limits: Limits {
        get: Some(GET_SCALE_SET),
        list: Some(LIST_SCALE_SET),
        write: Some(UPDATE_INSTANCE),
        delete: Some(DELETE_INSTANCE),
        ..Limits::NONE
    },
    own_buckets: true,
    headers: OF_MACHINES,
    hooks: Hooks { missing: Some(missing), plan: Some(plan), remove: Some(vm_removal::remove), ..Hooks::NONE },
    own: Own { put: Some(put_instance), patch: None, get: Some(vms::get), delete: Some(delete), list: Some(list) },
    routes: &[
        Extra {
            method: "GET",
            limit: Some(LIST_SCALE_SET),
            headers: OF_MACHINES,
            ..post("instanceview", "virtualMachineScaleSetVMs.getInstanceView", vm_power::get_instance_view)
        },
        Extra {
            since: Some(vms::ATTACH_DETACH_FROM),
            ..action("attachdetachdatadisks", "virtualMachineScaleSetVMs.attachDetachDataDisks", vms::attach_detach)
        },
        action("start", "virtualMachineScaleSetVMs.start", vm_power::act),
        action("poweroff", "virtualMachineScaleSetVMs.powerOff", vm_power::act),
        action("deallocate", "virtualMachineScaleSetVMs.deallocate", vm_power::act),
        action("restart", "virtualMachineScaleSetVMs.restart", vm_power::act),
        action("redeploy", "virtualMachineScaleSetVMs.redeploy", vm_power::act),
        action("reimage", "virtualMachineScaleSetVMs.reimage", vm_power::act),
        action("reimageall", "virtualMachineScaleSetVMs.reimageAll", vm_power::act),
        action("simulateeviction", "virtualMachineScaleSetVMs.simulateEviction", vm_power::act),
    ],
    ..RESOURCE
};

const fn action(path: &'static str, operation: &'static str, handler: Handler) -> Extra {
    Extra { limit: Some(UPDATE_INSTANCE), headers: OF_MACHINES, ..post(path, operation, handler) }
}

/// The refusal of an instance that is not there.
fn missing(context: &Context<'_>) -> Fault {
    let (set, number) = (context.request.segment(1), context.request.segment(3));
    let uniform = match context.state.store.document(&SCALE_SET.id(context)) {
        None => return fault::nested_parent_not_found(set),
        Some(set) => !is_flexible(&set),
    };
    if uniform && number.parse::<u64>().is_err() {
        return fault::instance_id_no_number();
    }
    let asked_only = context.request.method == "GET";
    if uniform && (!asked_only || context.state.switches.missing_instance == MissingInstance::InvalidParameter) {
        return fault::instance_not_active(number);
    }
    fault::resource_not_found(format!("{}/{set}/virtualMachines", kinds::SCALE_SET), number, context.request.group())
}

/// PUT: data disks, network interfaces and other members of the instance's own model. Documented: what is left out
/// stays. The region may be left out: the Go disk driver has attached disks so for years.
fn plan(context: &mut Context<'_>, _: Verb) -> Result<Planned, Fault> {
    let mut old = vms::existing(context)?;
    let mut body = context.read("VirtualMachineScaleSetVM", "parameters", true)?;
    let location = path::location(body["location"].as_str().unwrap_or(""));
    let there = old["location"].as_str().unwrap_or("");
    if !location.is_empty() && there != location {
        let name = old["name"].as_str().unwrap_or("");
        return Err(fault::location_conflict(name, there, context.request.group(), &location));
    }
    let pointer = "/properties/networkProfileConfiguration/networkInterfaceConfigurations";
    if let Some(asked) = body.pointer(pointer) {
        let made = model::configurations(asked);
        model::check_named(context.state, path::of(&old), &made)?;
        model::check_interfaces(context.state, path::of(&old), &made)?;
        // Unverified: an instance with interfaces of its own has a model of its own.
        if old.pointer(pointer) != Some(&made) {
            body["properties"]["modelDefinitionApplied"] = json!("VirtualMachine");
        }
        body["properties"]["networkProfileConfiguration"] = json!({"networkInterfaceConfigurations": made});
    }
    if body.pointer("/properties/hardwareProfile").is_none() && !context.state.switches.instance_put_keeps_hardware {
        old["properties"]["hardwareProfile"] = json!({});
    }
    let left_out = context.state.switches.left_out_of_put;
    vms::plan_update(context, &old, &body, left_out)
}

/// PUT. Recorded: what it is charged.
fn put_instance(context: &mut Context<'_>) -> Reply {
    Ok(put::put(&INSTANCE, context)?.with("x-ms-request-charge", "0"))
}

/// DELETE. Recorded: 202 with both headers. Documented: 204 for one that is not there.
fn delete(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    if context.state.store.contains(&INSTANCE.id(context)) {
        return vms::delete(context);
    }
    match missing(context) {
        refused if refused.code == "InvalidParameter" && refused.target.as_deref() == Some("instanceIds") => {
            Ok(Answer::empty(204))
        }
        refused => Err(refused),
    }
}

/// A condition of `$filter`.
enum Wanted {
    All,
    LatestModel(bool),
    Status { begins_with: String, exact: bool },
}

/// `$filter`. Documented: by `latestModelApplied` and by codes of the instance view; the forms that are taken besides
/// the published examples are unverified.
fn wanted(context: &Context<'_>) -> Result<Wanted, Fault> {
    let filter = context.request.query.get("$filter").map(|filter| filter.trim()).unwrap_or("");
    let refused =
        || fault::bad_request(format!("The filter '{filter}' is not supported for virtual machine scale set VMs."));
    if filter.is_empty() {
        return Ok(Wanted::All);
    }
    let (left, right) = filter.rsplit_once(" eq ").ok_or_else(refused)?;
    let (left, right) = (left.trim().to_ascii_lowercase(), right.trim().trim_matches('\''));
    let code = |text: &str| text.trim().trim_matches('\'').to_ascii_lowercase();
    if let Some(inner) = left.strip_prefix("startswith(").and_then(|inner| inner.strip_suffix(')')) {
        let (path, begin) = inner.split_once(',').ok_or_else(refused)?;
        let fits = path.trim() == "instanceview/statuses/code" && right.eq_ignore_ascii_case("true");
        return if fits { Ok(Wanted::Status { begins_with: code(begin), exact: false }) } else { Err(refused()) };
    }
    match left.as_str() {
        "properties/latestmodelapplied" => Ok(Wanted::LatestModel(right.eq_ignore_ascii_case("true"))),
        "instanceview/statuses/code" => Ok(Wanted::Status { begins_with: code(right), exact: true }),
        _ => Err(refused()),
    }
}

impl Wanted {
    fn fits(&self, doc: &Value, view: &dyn Fn() -> Value) -> bool {
        match self {
            Self::All => true,
            Self::LatestModel(latest) => doc["properties"]["latestModelApplied"] == *latest,
            Self::Status { begins_with, exact } => view()["statuses"].as_array().into_iter().flatten().any(|status| {
                let code = status["code"].as_str().unwrap_or("").to_ascii_lowercase();
                if *exact { code == *begins_with } else { code.starts_with(begins_with.as_str()) }
            }),
        }
    }
}

/// The instances of a set. Documented: `$expand` and `$select` of the instance view. That those of a flexible set are
/// listed too, under their names, is unverified.
fn list(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let set = context.state.store.document(&SCALE_SET.id(context));
    let set = set.ok_or_else(|| fault::nested_parent_not_found(context.request.segment(1)))?;
    let expanded = vms::expansion(context, &["instanceView"])?.is_some();
    let selected =
        context.request.query.get("$select").is_some_and(|words| {
            words.split(',').any(|word| word.trim().to_ascii_lowercase().starts_with("instanceview"))
        });
    let wanted = wanted(context)?;
    let show = |doc: &Document| {
        let view = || instance_view::instance_view(context, doc);
        if !wanted.fits(doc, &view) {
            return None;
        }
        let mut shown = doc.clone();
        vm_work::hide_user_data(&mut shown);
        if expanded || selected {
            shown["properties"]["instanceView"] = view();
        }
        extension_views::show(context.state, &mut shown);
        Some(shown)
    };
    if !is_flexible(&set) {
        return lists::select(context, path::of(&set), Some(kinds::INSTANCE), show);
    }
    let machines = all_members(context.state, &set).into_iter().filter_map(|id| context.state.store.document(&id));
    let machines = machines.filter_map(|doc| {
        let mut shown = show(&doc)?;
        shown["instanceId"] = shown["name"].clone();
        Some(shown)
    });
    lists::of_documents(context, machines.collect())
}
