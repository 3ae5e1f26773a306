//! Creation of machines, and the members outside of `dataDisks` that a later write may change.
//!
//! Recorded: the members of the 201 body and of the finished document. Documented: what is required,
//! that references must exist, that the network interface must be free.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::data_disks::{self, Target};
use super::disk_plan::{self, Plan};
use super::{attachments, disk_access, disk_controller, disk_rules, quotas, vm_work};
use crate::answer::{Answer, Context};
use crate::arm::descriptor::Planned;
use crate::arm::kinds::{self, MACHINE};
use crate::arm::network::interfaces;
use crate::arm::protocol::Shape;
use crate::arm::{regions, writes};
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::operations::Outcome;
use crate::options::LeftOut;
use crate::path;
use crate::phases::Moved;
use crate::sizes;
use crate::state::{HypervisorStep, State};
use crate::store::{Machine, Power, Resource};

/// PUT of a machine that does not exist. Recorded.
pub(crate) fn plan(context: &mut Context<'_>, body: &Value) -> Result<Planned, Fault> {
    let group = context.require_group()?;
    let name = context.request.segment(1).to_owned();
    check_name(&name)?;
    let id = format!("{}/providers/{MACHINE}/{name}", group["id"].as_str().unwrap_or(""));
    let location = path::location(body["location"].as_str().unwrap_or(""));
    regions::check(&location, MACHINE)?;
    let zones = body["zones"].as_array().cloned().unwrap_or_default();
    regions::check_zones(&location, &zones, MACHINE, &name)?;
    let now = context.now;
    let vm_guid = context.state.guid();
    let mut doc = document(context, body, &id, &name, &location, &vm_guid)?;
    attachments::refuse_retired(context.state, body)?;
    let os_disk = os_disk(context, &mut doc, &id, &name, &location)?;
    data_disks::size_fits(context, &doc)?;
    let target = Target { id: &id, name: &name, doc: &doc };
    let given = body["properties"]["storageProfile"]["dataDisks"].as_array().cloned().unwrap_or_default();
    let mut bare = doc.clone();
    bare["properties"]["storageProfile"]["dataDisks"] = json!([]);
    let target = Target { doc: &bare, ..target };
    let plan = data_disks::plan_array(context, &target, &given, LeftOut::Keep, true)?;
    doc["properties"]["storageProfile"]["dataDisks"] = Value::Array(plan.model.clone());
    quotas::check_machine(context, &doc)?;
    let nics = claim_nics(context, &doc, &id)?;
    let made = disk_plan::make_disks(context, &plan)?;
    disk_plan::insert(context, made);
    for nic in &nics {
        context.state.store.change(nic, now, |resource| interfaces::join(&mut resource.doc, &id));
    }
    let mut steps = vec![HypervisorStep::CreateMachine { vm: id.clone(), shown: disk_controller::shown(&doc, false) }];
    steps.extend(disk_plan::steps(context.state, &id, &plan));
    let (effect_id, undo_id) = (id.clone(), id.clone());
    let Plan { attach, create, blobs, .. } = plan;
    let stays = context.shared.options.unverified.failed_attach_stays_in_model;
    Ok(Planned {
        id,
        doc,
        machine: Some(Machine { os_disk, ..Machine::default() }),
        kind: OperationKind::VmCreate,
        steps,
        moved: Moved::default(),
        shape: Shape::AsyncOperation,
        answer: created,
        effect: Box::new(move |state, at| {
            // What was free when the creation was accepted may be gone or in use by now.
            disk_plan::make_blobs(state, &effect_id, &blobs, at)?;
            attachments::all_free(state, &effect_id, &attach)?;
            system_disk_free(state, &effect_id)?;
            for (lun, disk) in attach {
                attachments::take(state, &effect_id, lun, &disk, at);
            }
            take_os_disk(state, &effect_id, at);
            state.store.change(&effect_id, at, |resource| {
                resource.set_provisioning("Succeeded");
                vm_work::bump(resource);
                vm_work::free(resource);
            });
            Ok(Outcome::default())
        }),
        undo: Box::new(move |state, at, _| {
            let made: Vec<String> = create.into_iter().map(|new| new.id).collect();
            if !stays {
                disk_plan::remove_unheld(state, &made, at);
            }
            state.store.change(&undo_id, at, |resource| {
                resource.set_provisioning("Failed");
                if !stays {
                    resource.doc["properties"]["storageProfile"]["dataDisks"] = json!([]);
                }
                if let Some(machine) = &mut resource.machine {
                    machine.os_disk = None;
                }
                vm_work::bump(resource);
                vm_work::free(resource);
            });
        }),
    })
}

/// The answer to a creation. Recorded.
fn created(_: &Context<'_>, machine: &Resource) -> Answer {
    let mut shown = machine.doc.clone();
    vm_work::hide_user_data(&mut shown);
    Answer::json(201, shown).with("etag", vm_work::etag(machine))
}

/// Whether the OS disk of a creation can still be made, or taken.
pub(crate) fn system_disk_free(state: &State, vm: &str) -> Result<(), Fault> {
    let Some(resource) = state.store.get(vm) else {
        return Ok(());
    };
    let Some((disk, _)) = resource.machine.as_ref().and_then(|machine| machine.os_disk.as_ref()) else {
        return Ok(());
    };
    if resource.doc["properties"]["storageProfile"]["osDisk"]["createOption"] == "Attach" {
        return attachments::still_free(state, vm, disk);
    }
    match state.store.contains(disk) {
        true => Err(fault::disk_exists(path::name_of(disk), path::group_of(disk))),
        false => Ok(()),
    }
}

/// The OS disk that the creation made comes into being, or the given one is taken.
pub(crate) fn take_os_disk(state: &mut State, vm: &str, at: std::time::Duration) {
    let held = state.store.change(vm, at, |resource| resource.machine.as_mut().and_then(|m| m.os_disk.take()));
    let Some((disk_id, mut disk)) = held.flatten() else {
        return;
    };
    let hold = |doc: &mut Value| {
        doc["managedBy"] = json!(vm);
        doc["properties"]["diskState"] = json!("Attached");
    };
    if state.store.contains(&disk_id) {
        state.store.change(&disk_id, at, |resource| hold(&mut resource.doc));
    } else {
        hold(&mut disk);
        state.store.insert(&disk_id, Resource::new(disk), at);
    }
    state.store.change(vm, at, |resource| {
        resource.doc["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"] = json!(disk_id);
    });
}

/// Documented: 1 to 64 characters for Linux (15 for a Windows computer name, which is not the
/// resource's), none of a list of symbols, no period or hyphen at the end. Unverified text.
fn check_name(name: &str) -> Result<(), Fault> {
    let fits = (1..=64).contains(&name.chars().count())
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && !name.starts_with(['_', '-', '.'])
        && !name.ends_with(['-', '.']);
    if fits { Ok(()) } else { Err(fault::invalid_name(MACHINE, name)) }
}

/// The document of the 201. Recorded members and defaults.
fn document(
    context: &mut Context<'_>,
    body: &Value,
    id: &str,
    name: &str,
    location: &str,
    vm_guid: &str,
) -> Result<Value, Fault> {
    let asked = &body["properties"];
    let size = asked["hardwareProfile"]["vmSize"]
        .as_str()
        .ok_or_else(|| fault::missing_parameter("vm.hardwareProfile.vmSize"))?;
    check_size(size)?;
    if asked.get("storageProfile").is_none() {
        return Err(fault::missing_parameter("vm.storageProfile"));
    }
    if asked["storageProfile"].get("osDisk").is_none() {
        return Err(fault::missing_parameter("vm.storageProfile.osDisk"));
    }
    // Documented (public trackers): an image of the marketplace is generalised and needs one; whether an
    // image by id does depends on the image, which is not known here.
    let storage = &asked["storageProfile"];
    let of_marketplace =
        storage["osDisk"]["createOption"] == "FromImage" && storage["imageReference"]["publisher"].is_string();
    if of_marketplace && asked.get("osProfile").is_none() {
        return Err(fault::missing_parameter("osProfile"));
    }
    let interfaces = asked["networkProfile"]["networkInterfaces"].as_array();
    if interfaces.is_none_or(Vec::is_empty) {
        return Err(fault::missing_parameter("networkProfile"));
    }
    references(context, asked)?;
    if body["zones"][0].is_string() && asked["availabilitySet"].is_object() {
        return Err(fault::bad_request(format!(
            "Virtual Machine {name} cannot be in an Availability Set and in an Availability Zone at once."
        )));
    }
    let mut properties = writes::object(asked);
    properties.insert("hardwareProfile".to_owned(), asked["hardwareProfile"].clone());
    properties.insert("provisioningState".to_owned(), json!("Creating"));
    properties.insert("vmId".to_owned(), json!(vm_guid));
    if are_empty(&asked["additionalCapabilities"]) {
        properties.shift_remove("additionalCapabilities");
    }
    let mut storage = writes::object(&asked["storageProfile"]);
    if let Some(image) = storage.get_mut("imageReference").filter(|image| image["publisher"].is_string()) {
        let version = image["version"].as_str().unwrap_or("latest").to_owned();
        // Recorded that an exact version is shown; its number is of no meaning here.
        image["exactVersion"] = json!(if version == "latest" { "1.0.0".to_owned() } else { version });
    }
    let os = storage
        .get("osDisk")
        .and_then(|disk| disk["osType"].as_str())
        .map(str::to_owned)
        .unwrap_or_else(|| guess_os(asked).to_owned());
    if let Some(disk) = storage.get_mut("osDisk").and_then(Value::as_object_mut) {
        disk.insert("osType".to_owned(), json!(os));
        for (member, value) in [("caching", json!("ReadWrite")), ("deleteOption", json!("Detach"))] {
            disk.entry(member.to_owned()).or_insert(value);
        }
    }
    storage.insert("dataDisks".to_owned(), json!([]));
    disk_controller::complete(&mut storage, size);
    properties.insert("storageProfile".to_owned(), Value::Object(storage));
    if let Some(profile) = properties.get_mut("osProfile").and_then(Value::as_object_mut) {
        profile.shift_remove("adminPassword");
        profile.shift_remove("customData");
        if os == "Windows" {
            profile.entry("windowsConfiguration".to_owned()).or_insert_with(|| {
                json!({
                    "provisionVMAgent": true,
                    "enableAutomaticUpdates": true,
                    "patchSettings": {"patchMode": "AutomaticByOS", "assessmentMode": "ImageDefault"},
                    "enableVMAgentPlatformUpdates": true
                })
            });
        }
        for (member, value) in [
            ("secrets", json!([])),
            ("allowExtensionOperations", json!(true)),
            ("requireGuestProvisionSignal", json!(true)),
        ] {
            profile.entry(member.to_owned()).or_insert(value);
        }
    }
    properties.insert("timeCreated".to_owned(), json!(context.shared.clock.stamp(context.now)));
    let mut doc = writes::base(MACHINE, id, location, &["tags", "zones", "plan", "extendedLocation"], body);
    if let Some(identity) = identity(context, &body["identity"], vm_guid) {
        doc["identity"] = identity;
    }
    doc["properties"] = Value::Object(properties);
    Ok(doc)
}

fn guess_os(asked: &Value) -> &'static str {
    let publisher = asked["storageProfile"]["imageReference"]["publisher"].as_str().unwrap_or("");
    if publisher.to_ascii_lowercase().contains("windows") || asked["osProfile"]["windowsConfiguration"].is_object() {
        "Windows"
    } else {
        "Linux"
    }
}

/// Documented: principal and tenant ids are filled in. `None` leaves no trace (recorded).
fn identity(context: &Context<'_>, asked: &Value, vm_guid: &str) -> Option<Value> {
    let kind = asked["type"].as_str()?;
    if kind == "None" {
        return None;
    }
    let mut identity = json!({ "type": kind });
    if kind.contains("SystemAssigned") {
        identity["principalId"] = json!(crate::derived::guid_of(&format!("{vm_guid}/principal")));
        identity["tenantId"] = json!(context.shared.options.scenario.tenant_id);
    }
    if let Some(users) = asked["userAssignedIdentities"].as_object() {
        for id in users.keys() {
            let known = context.shared.options.scenario.identities.iter().find(|known| {
                known.resource_id.as_deref().is_some_and(|r| path::same(r, id)) || path::name_of(id) == known.name
            });
            let named = |what: &str| crate::derived::guid_of(&format!("{}/{what}", path::key(id)));
            let scenario = &context.shared.options.scenario;
            let principal = known.map_or_else(|| named("principal"), |known| scenario.identity_principal(known));
            let client = known.and_then(|known| known.client_id.clone()).unwrap_or_else(|| named("client"));
            identity["userAssignedIdentities"][id] = json!({ "principalId": principal, "clientId": client });
        }
    }
    Some(identity)
}

/// Documented (viya4-iac-azure#116); real answers name every size, this one the first ten.
fn check_size(size: &str) -> Result<(), Fault> {
    if sizes::find(size).is_some() {
        return Ok(());
    }
    let known: Vec<&str> = sizes::all().take(10).map(|size| size.name).collect();
    Err(fault::invalid_parameter(
        "vmSize",
        format!(
            "The value {size} provided for the VM size is not valid. The valid sizes in the current region are: {}. Find out more on the available VM sizes in each region at https://aka.ms/azure-regions.",
            known.join(",")
        ),
    ))
}

/// Availability set and network interfaces must exist. Documented.
fn references(context: &Context<'_>, asked: &Value) -> Result<(), Fault> {
    for member in ["availabilitySet", "virtualMachineScaleSet", "proximityPlacementGroup", "host"] {
        if let Some(id) = asked[member]["id"].as_str()
            && !context.state.store.contains(id)
        {
            return Err(missing_reference(id));
        }
    }
    if let Some(set) = asked["virtualMachineScaleSet"]["id"].as_str().and_then(|id| context.state.store.document(id))
        && !super::scale_sets::members::is_flexible(&set)
    {
        return Err(fault::set_is_not_flexible(path::of(&set)));
    }
    for nic in asked["networkProfile"]["networkInterfaces"].as_array().into_iter().flatten() {
        let Some(id) = nic["id"].as_str() else {
            return Err(fault::missing_parameter("networkInterface.id"));
        };
        match context.state.store.get(id) {
            None => return Err(missing_reference(id)),
            Some(nic) if nic.provisioning() == "Deleting" => {
                return Err(fault::not_provisioned(id, vm_work::id_of(context), "Deleting", "DeleteNicOperation"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Documented: the gateway's 404 in the provider's mouth.
fn missing_reference(id: &str) -> Fault {
    let kind = id.to_ascii_lowercase().find("/providers/").map_or("", |at| &id[at + "/providers/".len()..]);
    let kind = kind.rsplit_once('/').map_or(kind, |(kind, _)| kind);
    let mut fault = fault::resource_not_found(kind, path::name_of(id), path::group_of(id));
    fault.gateway = false;
    fault
}

fn claim_nics(context: &Context<'_>, doc: &Value, id: &str) -> Result<Vec<String>, Fault> {
    let mut claimed = Vec::new();
    let named = doc["properties"]["networkProfile"]["networkInterfaces"].as_array().map_or(&[][..], Vec::as_slice);
    let primary = |nic: &Value| nic["properties"]["primary"].as_bool();
    // Documented: one of several is the primary one.
    if named.len() > 1
        && !named.iter().any(|nic| primary(nic) == Some(true))
        && let Some(unset) = named.iter().find(|nic| primary(nic).is_none())
    {
        return Err(fault::interface_without_primary(path::name_of(unset["id"].as_str().unwrap_or(""))));
    }
    for nic in named {
        let nic_id = nic["id"].as_str().unwrap_or("");
        let holder = context
            .state
            .store
            .document(nic_id)
            .and_then(|nic| nic["properties"]["virtualMachine"]["id"].as_str().map(str::to_owned));
        if let Some(holder) = holder.filter(|holder| !path::same(holder, id)) {
            return Err(fault::nic_in_use(nic_id, &holder));
        }
        claimed.push(nic_id.to_owned());
    }
    Ok(claimed)
}

/// The OS disk: made from the image, or attached. Its id shows when the creation is done (recorded).
fn os_disk(
    context: &mut Context<'_>,
    doc: &mut Value,
    id: &str,
    name: &str,
    location: &str,
) -> Result<Option<(String, Value)>, Fault> {
    let disk = doc["properties"]["storageProfile"]["osDisk"].clone();
    if disk["vhd"].is_object() {
        return Ok(None);
    }
    match disk["createOption"].as_str().unwrap_or("") {
        "Attach" => {
            let Some(disk_id) = disk["managedDisk"]["id"].as_str() else {
                return Err(fault::missing_parameter("osDisk.managedDisk.id"));
            };
            let Some(found) = context.state.store.disk(disk_id) else {
                return Err(fault::disk_not_found(path::name_of(disk_id)));
            };
            if let Some(holder) = attachments::owners(&found).first() {
                return Err(fault::attached_elsewhere(path::name_of(disk_id), disk_id, id, holder));
            }
            if found["properties"]["provisioningState"] == "Deleting" {
                return Err(fault::disk_not_found(path::name_of(disk_id)));
            }
            disk_access::refuse_attach(&found)?;
            Ok(Some((disk_id.to_owned(), found.into_value())))
        }
        "FromImage" => {
            if doc["properties"]["storageProfile"].get("imageReference").is_none() {
                return Err(fault::missing_parameter("vm.storageProfile.imageReference"));
            }
            let unique = context.state.guid();
            let disk_name = disk["name"]
                .as_str()
                .map_or_else(|| format!("{name}_OsDisk_1_{}", unique.replace('-', "")), str::to_owned);
            let windows = disk["osType"] == "Windows";
            let gib = disk["diskSizeGB"].as_u64().unwrap_or(if windows { 127 } else { 30 });
            let sku = disk["managedDisk"]["storageAccountType"].as_str().unwrap_or("Standard_LRS").to_owned();
            let disk_id =
                format!("{}/providers/{}/{disk_name}", id.split("/providers/").next().unwrap_or(""), kinds::DISK);
            if context.state.store.contains(&disk_id) {
                return Err(fault::disk_exists(&disk_name, path::group_of(&disk_id)));
            }
            let mut body = json!({
                "location": location,
                "sku": {"name": sku},
                "properties": {
                    "osType": disk["osType"],
                    "creationData": {
                        "createOption": "FromImage",
                        "imageReference": {"id": format!("/subscriptions/{}/providers/Microsoft.Compute/locations/{location}/publishers/emulator", path::subscription_of(id))}
                    },
                    "diskSizeGB": gib
                }
            });
            if let Some(zones) = doc.get("zones") {
                body["zones"] = zones.clone();
            }
            let created = context.shared.clock.stamp(context.now);
            let made = disk_rules::complete(context.state, &disk_id, location, &body, &created, &unique)?;
            let shown = &mut doc["properties"]["storageProfile"]["osDisk"];
            shown["name"] = json!(disk_name);
            shown["diskSizeGB"] = json!(gib);
            shown["managedDisk"]["storageAccountType"] = json!(sku);
            Ok(Some((disk_id, made)))
        }
        option => Err(fault::invalid_parameter(
            "osDisk.createOption",
            format!("The value '{option}' of parameter 'osDisk.createOption' is not allowed."),
        )),
    }
}

/// Merges the members outside of `dataDisks` into the document; says whether anything changed.
///
/// Documented: what may not change answers 409 `PropertyChangeNotAllowed`; a size change needs room
/// for the data disks the machine has.
pub(crate) fn merge(context: &Context<'_>, doc: &mut Value, body: &Value) -> Result<bool, Fault> {
    let before = doc.clone();
    for member in ["tags", "plan"] {
        if let Some(value) = body.get(member) {
            doc[member] = value.clone();
        }
    }
    let zones = body.get("zones").filter(|zones| **zones != json!([]));
    if zones.is_some_and(|zones| doc.get("zones") != Some(zones)) {
        return Err(fault::property_change("zones"));
    }
    if body.get("identity").is_some() {
        let vm_guid = doc["properties"]["vmId"].as_str().unwrap_or("").to_owned();
        match identity(context, &body["identity"], &vm_guid) {
            Some(identity) => doc["identity"] = identity,
            None => {
                if let Some(object) = doc.as_object_mut() {
                    object.shift_remove("identity");
                }
            }
        }
    }
    let asked = writes::object(&body["properties"]);
    for (member, value) in asked {
        match member.as_str() {
            "storageProfile" => storage(doc, &value)?,
            "osProfile" => os_profile(doc, &value)?,
            "availabilitySet" | "virtualMachineScaleSet" => {
                let have = doc["properties"][&member]["id"].as_str();
                if !have.zip(value["id"].as_str()).is_some_and(|(a, b)| path::same(a, b)) {
                    return Err(fault::property_change(format!("{member}.id")));
                }
            }
            "hardwareProfile" => {
                let size = value["vmSize"].as_str().unwrap_or("");
                if !size.is_empty() {
                    check_size(size)?;
                    let most = sizes::find(size).map_or(sizes::UNKNOWN_SIZE_DATA_DISKS, |s| s.max_data_disks);
                    let count = doc["properties"]["storageProfile"]["dataDisks"].as_array().map_or(0, Vec::len);
                    if count > usize::from(most) {
                        return Err(fault::too_many_data_disks(most));
                    }
                }
                for (name, value) in writes::object(&value) {
                    doc["properties"]["hardwareProfile"][name] = value;
                }
                if doc["properties"]["hardwareProfile"] != before["properties"]["hardwareProfile"] {
                    data_disks::size_fits(context, doc)?;
                }
            }
            "additionalCapabilities" => {
                capabilities(context, doc, value)?;
            }
            // Its interfaces follow from its model.
            "networkProfile" if doc["type"] == kinds::INSTANCE => {}
            "networkProfile" => {
                network(context, doc, value, &body["properties"])?;
            }
            _ => doc["properties"][member] = value,
        }
    }
    Ok(*doc != before)
}

/// Documented: Ultra is switched on and off while the machine is deallocated. Unverified text.
fn capabilities(context: &Context<'_>, doc: &mut Value, asked: Value) -> Result<(), Fault> {
    let enabled = |capabilities: &Value| capabilities["ultraSSDEnabled"] == json!(true);
    let id = doc["id"].as_str().unwrap_or("");
    let switched = enabled(&asked) != enabled(&doc["properties"]["additionalCapabilities"]);
    if switched && context.state.store.power(id) != Some(Power::Deallocated) {
        return Err(fault::not_allowed(
            "The property 'additionalCapabilities.ultraSSDEnabled' can be changed only while the VM is deallocated.",
        ));
    }
    doc["properties"]["additionalCapabilities"] = asked;
    if let Some(properties) = doc["properties"].as_object_mut().filter(|all| are_empty(&all["additionalCapabilities"]))
    {
        properties.shift_remove("additionalCapabilities");
    }
    data_disks::size_fits(context, doc)
}

/// Whether capabilities have no member. Recorded: Azure then shows none. Those that are off it shows as they were sent
/// (recorded in public trackers).
fn are_empty(capabilities: &Value) -> bool {
    capabilities.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Network interfaces may be exchanged while the machine is deallocated, for free ones.
fn network(context: &Context<'_>, doc: &mut Value, asked: Value, properties: &Value) -> Result<(), Fault> {
    if asked.get("networkInterfaces").is_none() {
        for (member, value) in writes::object(&asked) {
            doc["properties"]["networkProfile"][member] = value;
        }
        return Ok(());
    }
    if asked["networkInterfaces"].as_array().is_none_or(Vec::is_empty) {
        return Err(fault::missing_parameter("networkProfile"));
    }
    references(context, properties)?;
    let keys = |doc: &Value| -> BTreeSet<String> { interfaces(doc).iter().map(|id| path::key(id)).collect() };
    let before = keys(doc);
    doc["properties"]["networkProfile"] = asked;
    if keys(doc) == before {
        return Ok(());
    }
    let id = doc["id"].as_str().unwrap_or("").to_owned();
    claim_nics(context, doc, &id)?;
    if context.state.store.power(&id) != Some(Power::Deallocated) {
        return Err(fault::interfaces_need_deallocation(&id));
    }
    Ok(())
}

/// The network interfaces that a machine's document names.
pub(crate) fn interfaces(doc: &Value) -> Vec<String> {
    let list = doc["properties"]["networkProfile"]["networkInterfaces"].as_array().into_iter().flatten();
    list.filter_map(|nic| nic["id"].as_str().map(str::to_owned)).collect()
}

/// Releases the interfaces that a machine no longer names, and takes those that it names now.
pub(crate) fn exchange_interfaces(
    state: &mut State,
    vm: &str,
    before: &[String],
    after: &[String],
    at: std::time::Duration,
) {
    let in_list = |list: &[String], id: &str| list.iter().any(|own| path::same(own, id));
    for gone in before.iter().filter(|id| !in_list(after, id)) {
        state.store.change(gone, at, |resource| {
            if let Some(properties) = resource.doc["properties"].as_object_mut() {
                properties.shift_remove("virtualMachine");
            }
        });
    }
    for new in after.iter().filter(|id| !in_list(before, id)) {
        state.store.change(new, at, |resource| interfaces::join(&mut resource.doc, vm));
    }
}

fn storage(doc: &mut Value, asked: &Value) -> Result<(), Fault> {
    for (member, value) in writes::object(asked) {
        match member.as_str() {
            "dataDisks" => {}
            "imageReference" => {
                let have = &doc["properties"]["storageProfile"]["imageReference"];
                for (name, value) in writes::object(&value) {
                    if name != "exactVersion" && have.get(&name).is_some_and(|have| *have != value) {
                        return Err(fault::property_change("imageReference"));
                    }
                }
            }
            "osDisk" => {
                for (name, value) in writes::object(&value) {
                    let have = doc["properties"]["storageProfile"]["osDisk"][&name].clone();
                    match name.as_str() {
                        "createOption" | "name" | "osType" if !have.is_null() && have != value => {
                            return Err(fault::property_change(format!("osDisk.{name}")));
                        }
                        "managedDisk" => {
                            if let (Some(a), Some(b)) = (have["id"].as_str(), value["id"].as_str())
                                && !path::same(a, b)
                            {
                                return Err(fault::property_change("osDisk.managedDisk.id"));
                            }
                        }
                        _ => doc["properties"]["storageProfile"]["osDisk"][name] = value,
                    }
                }
            }
            _ => doc["properties"]["storageProfile"][member] = value,
        }
    }
    Ok(())
}

fn os_profile(doc: &mut Value, asked: &Value) -> Result<(), Fault> {
    for (member, value) in writes::object(asked) {
        match member.as_str() {
            // Unverified: sent again they are ignored, as recorded for adminPassword.
            "adminPassword" | "customData" => {}
            "computerName" | "adminUsername" => {
                let have = &doc["properties"]["osProfile"][&member];
                if !have.is_null() && *have != value {
                    return Err(fault::property_change(format!("osProfile.{member}")));
                }
            }
            _ => doc["properties"]["osProfile"][member] = value,
        }
    }
    Ok(())
}
