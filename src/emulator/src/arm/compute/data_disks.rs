//! Data disks of a machine: what a write asks for, whether it may, and what follows.
//!
//! A write is first turned into a [`Plan`], which changes nothing; the machine's handlers carry it
//! out. The order of the checks and the choice among several errors are unverified; the errors
//! themselves are in the catalogue with their evidence.
//!
//! ```text
//!            accepted                 operation ends
//!  absent ──────────────▶ in model ──────────────────▶ attached   (managedBy, diskState, LUN map)
//!  attached ────────────▶ toBeDetached ──────────────▶ absent     (element leaves the model)
//!                              │ operation fails
//!                              └────▶ still toBeDetached: AttachDiskWhileBeingDetached elsewhere
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::attachments::{disk_of, named_by, owners};
use super::disk_access;
use super::disk_plan::{Detach, NewDisk, Plan};
use crate::answer::Context;
use crate::arm::kinds;
use crate::blob::vhd;
use crate::disk_skus;
use crate::fault::{self, Fault};
use crate::options::{Already, LeftOut};
use crate::path;
use crate::sizes;

/// LUNs go from 0 to 63 (documented).
const LAST_LUN: i64 = 63;
/// Documented.
const LARGEST_BLOB_GIB: u64 = 4095;
/// Host caching ends below this size (documented).
const CACHING_LIMIT_GIB: u64 = 4096;

/// The machine as the checks see it.
pub(crate) struct Target<'a> {
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    /// The document with the changes of this write outside of `dataDisks` already in it.
    pub(crate) doc: &'a Value,
}

impl Target<'_> {
    fn size(&self) -> &str {
        sizes::of_machine(self.doc)
    }

    fn most_disks(&self) -> u8 {
        sizes::find(self.size()).map_or(sizes::UNKNOWN_SIZE_DATA_DISKS, |size| size.max_data_disks)
    }

    fn elements(&self) -> Vec<Value> {
        self.doc["properties"]["storageProfile"]["dataDisks"].as_array().cloned().unwrap_or_default()
    }
}

fn lun_of(element: &Value) -> Option<u8> {
    element["lun"].as_u64().and_then(|lun| u8::try_from(lun).ok())
}

fn leaves(element: &Value) -> bool {
    element["toBeDetached"] == json!(true)
}

fn check_lun(element: &Value) -> Result<u8, Fault> {
    if element["lun"].is_null() {
        return Err(fault::missing_parameter("dataDisk.lun"));
    }
    let lun = element["lun"].as_i64().unwrap_or(-1);
    if !(0..=LAST_LUN).contains(&lun) {
        return Err(fault::out_of_range("dataDisk.lun", element["lun"].to_string(), "0", "63"));
    }
    Ok(u8::try_from(lun).unwrap_or_default())
}

/// The plan of a PUT or PATCH that gives a `dataDisks` array.
pub(crate) fn plan_array(
    context: &Context<'_>,
    target: &Target<'_>,
    given: &[Value],
    left_out: LeftOut,
    creating: bool,
) -> Result<Plan, Fault> {
    let current = target.elements();
    let mut plan = Plan::default();
    let mut seen = BTreeSet::new();
    let mut seen_disks = BTreeSet::new();
    let mut kept = BTreeSet::new();
    for element in given {
        let lun = check_lun(element)?;
        if !seen.insert(lun) {
            return Err(fault::lun_in_use(i64::from(lun)));
        }
        if let Some(disk) = named_by(element)
            && !seen_disks.insert(vhd::key(disk))
        {
            return Err(fault::invalid_parameter(
                "dataDisk.managedDisk.id",
                format!("Disk '{disk}' is referenced more than once in the data disks of VM '{}'.", target.name),
            ));
        }
        let here = current.iter().find(|e| lun_of(e) == Some(lun));
        check_options(element, here.is_some())?;
        let same_disk = |e: &Value| matches!((disk_of(e), disk_of(element)), (Some(a), Some(b)) if path::same(a, b));
        match here {
            Some(have) => {
                kept.insert(lun);
                if let (Some(uri), Some(own)) = (element["vhd"]["uri"].as_str(), have["vhd"]["uri"].as_str())
                    && uri != own
                {
                    return Err(fault::property_change("dataDisk.vhd.uri"));
                }
                if disk_of(element).is_some() && disk_of(have).is_some() && !same_disk(have) {
                    return Err(fault::property_change("dataDisk.managedDisk.id"));
                }
                existing(context, target, &mut plan, have, element, lun)?;
            }
            None => {
                if leaves(element) {
                    not_here(context, target, element)?;
                    continue;
                }
                if current.iter().any(same_disk) {
                    return Err(fault::property_change("dataDisk.lun"));
                }
                fresh(context, target, &mut plan, element, lun, creating)?;
            }
        }
    }
    for have in &current {
        let Some(lun) = lun_of(have).filter(|lun| !kept.contains(lun)) else {
            continue;
        };
        match left_out {
            LeftOut::Keep => plan.model.push(have.clone()),
            LeftOut::Detach => go(&mut plan, have, lun, false),
        }
    }
    limits(target, &plan)?;
    Ok(plan)
}

/// An element whose LUN the machine has.
fn existing(
    context: &Context<'_>,
    target: &Target<'_>,
    plan: &mut Plan,
    have: &Value,
    element: &Value,
    lun: u8,
) -> Result<(), Fault> {
    if leaves(element) {
        go(plan, have, lun, element["detachOption"] == json!("ForceDetach"));
        return Ok(());
    }
    if leaves(have) {
        return Err(fault::being_detached(disk_of(have).map_or("", path::name_of), target.name));
    }
    let mut new = have.clone();
    for member in ["caching", "writeAcceleratorEnabled", "deleteOption"] {
        if let Some(value) = element.get(member)
            && have.get(member) != Some(value)
        {
            new[member] = value.clone();
            plan.changed = true;
        }
    }
    for member in ["createOption", "name"] {
        if let (Some(value), Some(old)) = (element[member].as_str(), have[member].as_str())
            && !value.eq_ignore_ascii_case(old)
        {
            return Err(fault::property_change(format!("dataDisk.{member}")));
        }
    }
    if let Some(disk) = disk_of(have).and_then(|id| context.state.store.disk(id)) {
        check_caching(&new, &disk)?;
    }
    plan.model.push(new);
    Ok(())
}

/// A detach of what the machine does not have.
fn not_here(context: &Context<'_>, target: &Target<'_>, element: &Value) -> Result<(), Fault> {
    match context.shared.options.unverified.detach_unattached {
        Already::Ignore => Ok(()),
        Already::Refuse => Err(fault::detach_unattached(
            disk_of(element).or(element["name"].as_str()).map_or("", path::name_of),
            target.name,
        )),
    }
}

fn go(plan: &mut Plan, have: &Value, lun: u8, force: bool) {
    let mut leaving = have.clone();
    leaving["toBeDetached"] = json!(true);
    if force {
        leaving["detachOption"] = json!("ForceDetach");
    }
    plan.model.push(leaving);
    plan.detach.push(Detach { lun, disk: named_by(have).unwrap_or("").to_owned() });
}

/// Members that exclude each other. Documented. An element that the machine has keeps the option it was
/// made with, and comes back with it and the id of its disk in whatever a client sends that was read.
fn check_options(element: &Value, here: bool) -> Result<(), Fault> {
    let option = element["createOption"].as_str().unwrap_or("Attach");
    let managed = disk_of(element).is_some();
    if option == "Empty" && managed && !here {
        return Err(fault::empty_disk_with_id());
    }
    if element["detachOption"].is_string() && !leaves(element) {
        return Err(fault::invalid_parameter(
            "dataDisk.detachOption",
            "The property 'dataDisk.detachOption' can be set only when property 'dataDisk.toBeDetached' is true.",
        ));
    }
    Ok(())
}

/// An element that the machine does not have yet.
fn fresh(
    context: &Context<'_>,
    target: &Target<'_>,
    plan: &mut Plan,
    element: &Value,
    lun: u8,
    creating: bool,
) -> Result<(), Fault> {
    let unmanaged = target.doc["properties"]["storageProfile"]["osDisk"]["vhd"].is_object();
    if element["vhd"].is_object() {
        if !unmanaged {
            return Err(fault::not_allowed("Addition of a blob based disk to VM with managed disks is not supported."));
        }
        return fresh_blob(target, plan, element, lun);
    }
    if unmanaged {
        return Err(fault::not_allowed("Addition of a managed disk to a VM with blob based disks is not supported."));
    }
    let Some(option) = element["createOption"].as_str() else {
        return Err(fault::missing_parameter("dataDisk.createOption"));
    };
    match option {
        "Attach" => {
            let Some(id) = disk_of(element) else {
                return Err(fault::missing_parameter("dataDisk.managedDisk.id"));
            };
            let disk = attachable(context, target, id)?;
            let new = dressed(element, &disk, lun);
            check_caching(&new, &disk)?;
            check_accelerator(&new, target, &disk)?;
            plan.attach.push((lun, disk["id"].as_str().unwrap_or(id).to_owned()));
            plan.model.push(new);
        }
        option @ ("Empty" | "Copy" | "Restore") => {
            let body = new_disk(target, element, option)?;
            check_sku(target, &body, element["name"].as_str().unwrap_or(""))?;
            let name = element["name"].as_str().map_or_else(
                || {
                    // Unverified form of the name that the service gives.
                    let stem = format!("{}_disk{}_", target.name, lun + 2);
                    format!("{stem}{}", crate::derived::guid_of(&format!("{}{lun}", target.id)).replace('-', ""))
                },
                str::to_owned,
            );
            let id =
                format!("{}/providers/{}/{name}", target.id.split("/providers/").next().unwrap_or(""), kinds::DISK);
            if context.state.store.contains(&id) {
                return Err(fault::disk_exists(&name, path::group_of(&id)));
            }
            // Documented (common VM error codes).
            if plan.create.iter().any(|new| path::same(&new.id, &id)) {
                return Err(fault::invalid_parameter(
                    "dataDisk.name",
                    format!("A disk named '{name}' already exists."),
                ));
            }
            let mut new = element.clone();
            new["lun"] = json!(lun);
            new["name"] = json!(name);
            new["managedDisk"]["id"] = json!(id);
            if new.get("caching").is_none() {
                new["caching"] = json!("None");
            }
            if new.get("deleteOption").is_none() {
                new["deleteOption"] = json!("Detach");
            }
            new["managedDisk"]["storageAccountType"] = body["sku"]["name"].clone();
            new["toBeDetached"] = json!(false);
            plan.attach.push((lun, id.clone()));
            plan.create.push(NewDisk { id, body });
            plan.model.push(new);
        }
        "FromImage" if creating => {
            return Err(fault::invalid_parameter(
                "dataDisk.createOption",
                "The image of this virtual machine has no data disks.",
            ));
        }
        option => {
            return Err(fault::invalid_parameter(
                "dataDisk.createOption",
                format!(
                    "The value '{option}' of parameter 'dataDisk.createOption' is not allowed for a data disk that is added to a VM."
                ),
            ));
        }
    }
    Ok(())
}

/// An element with a blob that the machine does not have yet. Documented: it is named, and an empty one has a size.
fn fresh_blob(target: &Target<'_>, plan: &mut Plan, element: &Value, lun: u8) -> Result<(), Fault> {
    let uri = element["vhd"]["uri"].as_str().ok_or_else(|| fault::missing_parameter("dataDisk.vhd.uri"))?;
    vhd::check_address(uri)?;
    if element["name"].as_str().is_none() {
        return Err(fault::missing_parameter("dataDisk.name"));
    }
    match element["createOption"].as_str() {
        None => return Err(fault::missing_parameter("dataDisk.createOption")),
        Some("Attach") => {}
        Some("Empty") => {
            let gib = element["diskSizeGB"].as_u64().ok_or_else(|| fault::missing_parameter("dataDisk.diskSizeGB"))?;
            // Documented: the largest disk that a blob can be.
            if !(1..=LARGEST_BLOB_GIB).contains(&gib) {
                return Err(fault::out_of_range("dataDisk.diskSizeGB", gib.to_string(), "1", "4095"));
            }
            plan.blobs.push((uri.to_owned(), gib));
        }
        Some(option) => {
            return Err(fault::invalid_parameter(
                "dataDisk.createOption",
                format!(
                    "The value '{option}' of parameter 'dataDisk.createOption' is not allowed for a blob based disk."
                ),
            ));
        }
    }
    if target.elements().iter().any(|have| named_by(have).is_some_and(|own| vhd::key(own) == vhd::key(uri))) {
        return Err(fault::property_change("dataDisk.lun"));
    }
    let mut new = element.clone();
    new["lun"] = json!(lun);
    for (member, value) in [("caching", json!("None")), ("toBeDetached", json!(false))] {
        if new.get(member).is_none() {
            new[member] = value;
        }
    }
    plan.attach.push((lun, uri.to_owned()));
    plan.model.push(new);
    Ok(())
}

fn new_disk(target: &Target<'_>, element: &Value, option: &str) -> Result<Value, Fault> {
    let mut body = json!({
        "location": target.doc["location"],
        "sku": {"name": element["managedDisk"]["storageAccountType"].as_str().unwrap_or("Standard_LRS")},
        "properties": {"creationData": {"createOption": option}},
    });
    if let Some(zones) = target.doc.get("zones") {
        body["zones"] = zones.clone();
    }
    if let Some(size) = element.get("diskSizeGB") {
        body["properties"]["diskSizeGB"] = size.clone();
    } else if option == "Empty" {
        return Err(fault::missing_parameter("dataDisk.diskSizeGB"));
    }
    if option != "Empty" {
        let source = element["sourceResource"]["id"]
            .as_str()
            .ok_or_else(|| fault::missing_parameter("dataDisk.sourceResource.id"))?;
        body["properties"]["creationData"]["sourceResourceId"] = json!(source);
    }
    Ok(body)
}

/// The element as the model shows it, with the service's defaults. Documented: the name defaults to
/// the disk's, caching to `None` for Standard and `ReadOnly` for Premium, `deleteOption` to `Detach`.
fn dressed(element: &Value, disk: &Value, lun: u8) -> Value {
    let sku = disk["sku"]["name"].as_str().unwrap_or("");
    let gib = disk["properties"]["diskSizeGB"].as_u64().unwrap_or(0);
    let cacheable = sku.starts_with("Premium_")
        && gib < CACHING_LIMIT_GIB
        && disk["properties"]["maxShares"].as_u64().unwrap_or(1) < 2;
    let mut new = json!({
        "lun": lun,
        "name": element["name"].as_str().or(disk["name"].as_str()).unwrap_or(""),
        "createOption": "Attach",
        "caching": element["caching"].as_str().unwrap_or(if cacheable { "ReadOnly" } else { "None" }),
    });
    if let Some(accelerated) = element.get("writeAcceleratorEnabled") {
        new["writeAcceleratorEnabled"] = accelerated.clone();
    }
    new["managedDisk"] = json!({
        "storageAccountType": sku,
        "id": disk["id"],
    });
    if let Some(set) = element["managedDisk"].get("diskEncryptionSet") {
        new["managedDisk"]["diskEncryptionSet"] = set.clone();
    }
    new["deleteOption"] = json!(element["deleteOption"].as_str().unwrap_or("Detach"));
    new["diskSizeGB"] = json!(gib);
    new["toBeDetached"] = json!(false);
    if let Some(future) = element.get(crate::unknown_fields::MEMBER) {
        new[crate::unknown_fields::MEMBER] = future.clone();
    }
    new
}

/// Whether a disk may be attached to the machine at all.
fn attachable(context: &Context<'_>, target: &Target<'_>, id: &str) -> Result<Value, Fault> {
    let kind_matches = id.to_ascii_lowercase().contains("/providers/microsoft.compute/disks/");
    if !kind_matches || !id.to_ascii_lowercase().starts_with("/subscriptions/") {
        return Err(fault::invalid_parameter(
            "dataDisk.managedDisk.id",
            format!(
                "The value '{id}' of parameter 'dataDisk.managedDisk.id' is not a resource id of type Microsoft.Compute/disks."
            ),
        ));
    }
    // Documented: no disk of another subscription (AKS#1760); code and text: common VM error codes.
    let (own, other) = (path::subscription_of(target.id), path::subscription_of(id));
    if !other.eq_ignore_ascii_case(own) {
        return Err(fault::invalid_parameter(
            "dataDisk.managedDisk.id",
            format!(
                "Subscription {own} of the request must match the subscription {other} contained in the managed disk id."
            ),
        ));
    }
    let Some(resource) = context.state.store.get(id) else {
        return Err(fault::disk_not_found(path::name_of(id)));
    };
    let disk = resource.doc.clone();
    let own = disk["id"].as_str().unwrap_or(id);
    let name = disk["name"].as_str().unwrap_or("");
    if resource.provisioning() == "Deleting" {
        return Err(fault::disk_not_found(name));
    }
    // Unverified: a disk whose creation has not ended cannot be attached yet.
    let creating = resource
        .busy
        .as_deref()
        .and_then(|busy| context.state.operations.get(busy))
        .is_some_and(|op| op.kind == crate::latency::OperationKind::DiskCreate);
    if creating {
        return Err(fault::concurrent_request());
    }
    shared(context, target, &disk, own, name)?;
    disk_access::refuse_attach(&disk)?;
    if disk["location"] != target.doc["location"] {
        return Err(fault::bad_request(format!(
            "Disk {own} cannot be attached to the VM because it is not in the same location as the VM. VM location: '{}'. Disk location: '{}'.",
            target.doc["location"].as_str().unwrap_or(""),
            disk["location"].as_str().unwrap_or("")
        )));
    }
    check_zone(target, &disk, own)?;
    check_sku(target, &disk, name)?;
    Ok(disk.into_value())
}

/// One machine at a time, unless the disk is shared.
fn shared(context: &Context<'_>, target: &Target<'_>, disk: &Value, id: &str, name: &str) -> Result<(), Fault> {
    let holders = owners(disk);
    let most = disk["properties"]["maxShares"].as_u64().unwrap_or(1);
    if holders.iter().any(|vm| path::same(vm, target.id)) {
        return Err(fault::attached_elsewhere(name, id, target.id, target.id));
    }
    for holder in &holders {
        let leaving = context
            .state
            .store
            .vm(holder)
            .and_then(|vm| vm["properties"]["storageProfile"]["dataDisks"].as_array().cloned())
            .unwrap_or_default()
            .iter()
            .any(|e| leaves(e) && disk_of(e).is_some_and(|d| path::same(d, id)));
        if leaving && (holders.len() as u64) >= most {
            return Err(fault::being_detached(name, target.name));
        }
    }
    if (holders.len() as u64) >= most
        && let Some(holder) = holders.first()
    {
        return Err(fault::attached_elsewhere(name, id, target.id, holder));
    }
    Ok(())
}

/// Documented texts (jrudlin/Azure PR#7, jenkins-infra/azure PR#1406, terraform#11992).
fn check_zone(target: &Target<'_>, disk: &Value, id: &str) -> Result<(), Fault> {
    let sku = disk["sku"]["name"].as_str().and_then(disk_skus::find);
    if sku.is_some_and(disk_skus::Sku::zone_redundant) {
        return Ok(());
    }
    let first = |doc: &Value| doc["zones"][0].as_str().map(str::to_owned);
    let in_set = target.doc["properties"]["availabilitySet"].is_object();
    match (first(target.doc), first(disk)) {
        (None, None) => Ok(()),
        (Some(vm), Some(disk)) if vm == disk => Ok(()),
        (None, Some(_)) if in_set => Err(fault::bad_request(format!(
            "Zonal Disk '{id}' cannot be attached to resource '{}' because the resource belongs to an Availability Set and this feature is not supported.",
            target.name
        ))),
        (Some(vm), None) => {
            Err(fault::bad_request(format!("Disk {id} cannot be attached to the VM because it is not in zone '{vm}'.")))
        }
        (vm, disk) => Err(fault::bad_request(format!(
            "Disk {id} cannot be attached to the VM because it is not in the same zone as the VM. VM zone: '{}'. Disk zone: '{}'.",
            vm.unwrap_or_default(),
            disk.unwrap_or_default()
        ))),
    }
}

/// Documented: Premium needs a size with premium storage, Ultra needs it switched on, Premium v2
/// and Ultra need a zonal machine where the region has zones.
fn check_sku(target: &Target<'_>, disk: &Value, name: &str) -> Result<(), Fault> {
    let Some(sku) = disk["sku"]["name"].as_str().and_then(disk_skus::find) else {
        return Ok(());
    };
    premium_fits(target.size(), sku.name, name)?;
    if sku.ultra() && target.doc["properties"]["additionalCapabilities"]["ultraSSDEnabled"] != json!(true) {
        return Err(fault::invalid_parameter(
            "managedDisk.storageAccountType",
            "StorageAccountType UltraSSD_LRS can be used only when additionalCapabilities.ultraSSDEnabled is set.",
        ));
    }
    Ok(())
}

/// Documented: a disk of premium storage needs a size with premium storage.
fn premium_fits(size: &str, sku: &str, name: &str) -> Result<(), Fault> {
    let needed = disk_skus::find(sku).is_some_and(disk_skus::Sku::needs_premium_size);
    if needed && sizes::find(size).is_some_and(|size| !size.premium) {
        return Err(fault::premium_unsupported(size, sku, name));
    }
    Ok(())
}

/// Whether a machine's size takes what the model names: its disks, the OS disk too, and Ultra. Documented.
pub(crate) fn size_fits(context: &Context<'_>, machine: &Value) -> Result<(), Fault> {
    let size = sizes::of_machine(machine);
    let ultra = machine["properties"]["additionalCapabilities"]["ultraSSDEnabled"] == json!(true);
    if ultra && machine["properties"]["availabilitySet"].is_object() {
        // Documented text (public trackers); the code is unverified.
        return Err(fault::bad_request(
            "Property 'additionalCapabilities.ultraSSDEnabled' is not allowed for Virtual Machines in an Availability Set.",
        ));
    }
    if ultra && sizes::find(size).is_some_and(|size| !size.ultra) {
        // Documented rule, unverified text.
        return Err(fault::invalid_parameter(
            "additionalCapabilities.ultraSSDEnabled",
            format!("The VM size {size} does not support the storage account type UltraSSD_LRS."),
        ));
    }
    let profile = &machine["properties"]["storageProfile"];
    for element in profile["dataDisks"].as_array().into_iter().flatten().chain(std::iter::once(&profile["osDisk"])) {
        let disk = disk_of(element).and_then(|id| context.state.store.disk(id)).unwrap_or_default();
        let sku = disk["sku"]["name"].as_str().or(element["managedDisk"]["storageAccountType"].as_str());
        premium_fits(size, sku.unwrap_or(""), element["name"].as_str().unwrap_or(""))?;
    }
    Ok(())
}

/// Documented rules, unverified texts.
fn check_caching(element: &Value, disk: &Value) -> Result<(), Fault> {
    let caching = element["caching"].as_str().unwrap_or("None");
    if caching == "None" {
        return Ok(());
    }
    let sku = disk["sku"]["name"].as_str().and_then(disk_skus::find);
    let name = disk["name"].as_str().unwrap_or("");
    if let Some(sku) = sku.filter(|sku| sku.adjustable()) {
        return Err(fault::invalid_parameter(
            "dataDisk.caching",
            format!(
                "Caching type '{caching}' is not supported for disk '{name}' of storage account type {}. Supported caching type is 'None'.",
                sku.name
            ),
        ));
    }
    if disk["properties"]["diskSizeGB"].as_u64().unwrap_or(0) >= CACHING_LIMIT_GIB {
        return Err(fault::invalid_parameter(
            "dataDisk.caching",
            format!(
                "Caching type '{caching}' is not supported for disk '{name}' because it is larger than 4095 GiB. Supported caching type is 'None'."
            ),
        ));
    }
    if disk["properties"]["maxShares"].as_u64().unwrap_or(1) > 1 {
        return Err(fault::invalid_parameter(
            "dataDisk.caching",
            format!(
                "Caching type '{caching}' is not supported for shared disk '{name}'. Supported caching type is 'None'."
            ),
        ));
    }
    Ok(())
}

/// Documented rule (M series and Premium only), unverified text.
fn check_accelerator(element: &Value, target: &Target<'_>, disk: &Value) -> Result<(), Fault> {
    if element["writeAcceleratorEnabled"] != json!(true) {
        return Ok(());
    }
    let series = target.size().to_ascii_lowercase().starts_with("standard_m");
    let premium = disk["sku"]["name"] == "Premium_LRS";
    if series && premium {
        Ok(())
    } else {
        Err(fault::invalid_parameter(
            "dataDisk.writeAcceleratorEnabled",
            format!(
                "Write Accelerator is not supported on disk '{}' of VM '{}': it needs an M-series size and a Premium_LRS disk.",
                disk["name"].as_str().unwrap_or(""),
                target.name
            ),
        ))
    }
}

/// The size's limit counts what the machine has when the operation ends.
fn limits(target: &Target<'_>, plan: &Plan) -> Result<(), Fault> {
    let most = target.most_disks();
    let staying = plan.model.iter().filter(|element| !leaves(element)).count();
    if staying > usize::from(most) && !plan.attach.is_empty() {
        return Err(fault::too_many_data_disks(most));
    }
    Ok(())
}

/// The plan of an `attachDetachDataDisks` request. Documented: `lun` is assigned when absent; that
/// it is the lowest free one is unverified.
pub(crate) fn plan_request(context: &Context<'_>, target: &Target<'_>, body: &Value) -> Result<Plan, Fault> {
    let empty = Vec::new();
    let attach = body["dataDisksToAttach"].as_array().unwrap_or(&empty);
    let detach = body["dataDisksToDetach"].as_array().unwrap_or(&empty);
    if attach.is_empty() && detach.is_empty() {
        return Err(fault::invalid_parameter(
            "dataDisksToAttach",
            "At least one of 'dataDisksToAttach' and 'dataDisksToDetach' must name a disk.",
        ));
    }
    let mut plan = Plan::default();
    let current = target.elements();
    let mut named = BTreeSet::new();
    for entry in attach.iter().chain(detach) {
        let id = entry["diskId"].as_str().unwrap_or("");
        if !named.insert(path::key(id)) {
            return Err(fault::invalid_parameter(
                "diskId",
                format!("Disk '{id}' is referenced more than once in the request."),
            ));
        }
    }
    let mut leaving: BTreeMap<u8, bool> = BTreeMap::new();
    for entry in detach {
        let id = entry["diskId"].as_str().unwrap_or("");
        let have = current.iter().find(|e| disk_of(e).is_some_and(|disk| path::same(disk, id)));
        match have.and_then(lun_of) {
            Some(lun) => {
                leaving.insert(lun, entry["detachOption"] == json!("ForceDetach"));
            }
            None => not_here(context, target, &json!({"managedDisk": {"id": id}}))?,
        }
    }
    let mut taken: BTreeSet<u8> = current.iter().filter_map(lun_of).collect();
    // LUNs named in the request come first, so that an assigned one never takes them.
    let mut named_luns = BTreeSet::new();
    for entry in attach.iter().filter(|e| e.get("lun").is_some()) {
        let lun = check_lun(entry)?;
        let id = entry["diskId"].as_str().unwrap_or("");
        let own = current.iter().any(|e| lun_of(e) == Some(lun) && disk_of(e).is_some_and(|disk| path::same(disk, id)));
        if !named_luns.insert(lun) || (taken.contains(&lun) && !own) {
            return Err(fault::lun_in_use(i64::from(lun)));
        }
    }
    taken.extend(&named_luns);
    for have in &current {
        match lun_of(have).and_then(|lun| leaving.get(&lun).map(|force| (lun, *force))) {
            Some((lun, force)) => go(&mut plan, have, lun, force),
            None => plan.model.push(have.clone()),
        }
    }
    for entry in attach {
        let id = entry["diskId"].as_str().unwrap_or("");
        if let Some(have) = current.iter().find(|e| disk_of(e).is_some_and(|disk| path::same(disk, id))) {
            if leaves(have) {
                return Err(fault::being_detached(path::name_of(id), target.name));
            }
            if context.shared.options.unverified.attach_attached == Already::Ignore {
                continue;
            }
            return Err(fault::attached_elsewhere(path::name_of(id), id, target.id, target.id));
        }
        let lun = match entry.get("lun") {
            Some(_) => check_lun(entry)?,
            None => {
                let free = (0..=63_u8).find(|lun| !taken.contains(lun));
                let Some(free) = free else {
                    return Err(fault::too_many_data_disks(target.most_disks()));
                };
                taken.insert(free);
                free
            }
        };
        let mut element = json!({
            "lun": lun,
            "createOption": "Attach",
            "managedDisk": {"id": id},
        });
        for member in ["caching", "deleteOption", "writeAcceleratorEnabled"] {
            if let Some(value) = entry.get(member) {
                element[member] = value.clone();
            }
        }
        if let Some(set) = entry.get("diskEncryptionSet") {
            element["managedDisk"]["diskEncryptionSet"] = set.clone();
        }
        fresh(context, target, &mut plan, &element, lun, false)?;
    }
    limits(target, &plan)?;
    Ok(plan)
}
