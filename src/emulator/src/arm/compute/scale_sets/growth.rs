//! How instances come, and which of them go first.
//!
//! Documented: instances of a uniform set are numbered from 0, no number is given out twice, an instance is called
//! `SET_NUMBER`, and its computer name is the set's prefix and the number in six digits of base 36 (that these are
//! capitals is unverified). Instances of a flexible set are called `SET_` and eight hexadecimal digits. A set spreads
//! its instances over its zones. By default the instance with the highest number in the zone with the most instances
//! goes first.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::members::{all_members, is_flexible};
use super::{model, nics};
use crate::arm::compute::{disk_controller, disk_rules, disk_work};
use crate::arm::network::public_ip_addresses;
use crate::arm::{engine, kinds, writes};
use crate::derived::guid_of;
use crate::fault::Fault;
use crate::path;
use crate::state::{HypervisorStep, State};
use crate::store::{Machine, Resource};

/// An instance with what comes with it.
pub(crate) struct Fresh {
    id: String,
    doc: Value,
    interfaces: Vec<Value>,
    /// By LUN; the OS disk has none.
    disks: Vec<(Option<u8>, Value)>,
}

/// The number in six digits of base 36.
fn six_digits(mut number: u64) -> String {
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        let value = u8::try_from(number % 36).unwrap_or(0);
        *digit = if value < 10 { b'0' + value } else { b'A' + value - 10 };
        number /= 36;
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

/// The zone of each of so many new instances.
fn zones(state: &State, set: &Value, count: usize) -> Vec<Option<String>> {
    let zones: Vec<&str> = set["zones"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut members: Vec<(usize, &str)> = zones.iter().map(|zone| (0, *zone)).collect();
    for id in all_members(state, set) {
        let doc = state.store.document(&id).unwrap_or_default();
        if let Some((number, _)) = members.iter_mut().find(|(_, zone)| doc["zones"][0] == *zone) {
            *number += 1;
        }
    }
    let mut next = || {
        let (number, zone) = members.iter_mut().min_by_key(|(number, _)| *number)?;
        *number += 1;
        Some((*zone).to_owned())
    };
    (0..count).map(|_| next()).collect()
}

/// So many more instances of a set.
///
/// # Errors
///
/// When a subnet has no more addresses.
pub(crate) fn plan(state: &State, set: &Value, count: usize, stamp: &str) -> Result<Vec<Fresh>, Fault> {
    let configurations = model::of_set(set);
    let addresses = nics::allocate(state, configurations, count)?;
    let made = state.store.get(path::of(set)).map_or(0, |resource| resource.next_instance);
    let mut public = public_ip_addresses::taken(state);
    let numbered = zones(state, set, count).into_iter().zip(addresses).zip(made..);
    numbered
        .map(|((zone, addresses), number)| {
            let names = Names::of(set, number);
            let Disks { documents: disks, os, data } = disks(set, &names, zone.as_deref(), stamp);
            let doc = document(set, &names, zone.as_deref(), (os, data), stamp);
            let interfaces = nics::documents(state, &doc, configurations, &addresses, &mut public)?;
            Ok(Fresh { id: names.id, doc, interfaces, disks })
        })
        .collect()
}

/// Puts new instances in place; says what the hypervisor does.
pub(crate) fn place(state: &mut State, set: &Value, fresh: Vec<Fresh>, at: Duration) -> Vec<HypervisorStep> {
    let count = fresh.len() as u64;
    let mut steps = Vec::new();
    for Fresh { id, doc, interfaces, disks } in fresh {
        steps.push(HypervisorStep::CreateMachine { vm: id.clone(), shown: disk_controller::shown(&doc, false) });
        let mut machine = Machine::default();
        for (lun, disk) in disks {
            if let Some(lun) = lun {
                machine.attached.insert(lun, path::of(&disk).to_owned());
                let facts = disk_work::facts(&disk);
                steps.push(HypervisorStep::Create { disk: facts.clone() });
                steps.push(HypervisorStep::Attach { vm: id.clone(), lun, disk: facts });
            }
            state.store.insert(path::of(&disk), Resource::new(disk.clone()), at);
        }
        let mut resource = Resource::new(doc);
        resource.doc["etag"] = json!("\"1\"");
        resource.machine = Some(machine);
        state.store.insert(&id, resource, at);
        for interface in interfaces {
            state.store.insert(path::of(&interface), Resource::new(interface.clone()), at);
            if let Some(descriptor) = state.types.of(&interface) {
                engine::changed(descriptor, state, None, Some(&interface), at);
            }
        }
    }
    state.store.change(path::of(set), at, |resource| resource.next_instance += count);
    steps
}

/// What an instance is called.
struct Names {
    id: String,
    name: String,
    number: u64,
    computer: String,
    /// Begins the names of its disks.
    disks: String,
    /// What is unique in it.
    unique: String,
}

impl Names {
    fn of(set: &Value, number: u64) -> Self {
        let (set_id, set_name) = (path::of(set), set["name"].as_str().unwrap_or(""));
        let unique = guid_of(&format!("{}/{}/{number}", path::key(set_id), set["properties"]["uniqueId"]));
        let prefix = set["properties"]["virtualMachineProfile"]["osProfile"]["computerNamePrefix"].as_str();
        let computer = format!("{}{}", prefix.unwrap_or(set_name), six_digits(number));
        if !is_flexible(set) {
            let (id, name) = (format!("{set_id}/virtualMachines/{number}"), format!("{set_name}_{number}"));
            return Self { id, disks: format!("{set_name}_{name}"), name, number, computer, unique };
        }
        let name = format!("{set_name}_{}", unique.get(..8).unwrap_or(""));
        let group = set_id.split("/providers/").next().unwrap_or("");
        let id = format!("{group}/providers/{}/{name}", kinds::MACHINE);
        Self { id, disks: name.clone(), name, number, computer, unique }
    }
}

/// The disks of a new instance: their documents by LUN, and what its storage profile says of them.
struct Disks {
    documents: Vec<(Option<u8>, Value)>,
    os: Value,
    data: Vec<Value>,
}

fn disks(set: &Value, names: &Names, zone: Option<&str>, stamp: &str) -> Disks {
    let profile = &set["properties"]["virtualMachineProfile"]["storageProfile"];
    let location = set["location"].as_str().unwrap_or("");
    let group = names.id.split("/providers/").next().unwrap_or("");
    let suffix = names.unique.replace('-', "");
    let make = |name: &str, asked: &Value, gib: u64| {
        let id = format!("{group}/providers/{}/{name}", kinds::DISK);
        let sku = asked["managedDisk"]["storageAccountType"].as_str().unwrap_or("Standard_LRS");
        let mut disk = disk_rules::existing(&id, location, sku, gib, zone, stamp);
        disk["managedBy"] = json!(names.id);
        disk["properties"]["diskState"] = json!("Attached");
        let mut element = writes::with(
            json!({"name": name}),
            &["lun", "osType", "createOption", "caching", "diffDiskSettings"],
            asked,
        );
        element["managedDisk"] = json!({"storageAccountType": sku, "id": id});
        // Documented: disks that come with an instance go with it.
        element["deleteOption"] = json!(asked["deleteOption"].as_str().unwrap_or("Delete"));
        element["diskSizeGB"] = json!(gib);
        (disk, element)
    };
    let os = &profile["osDisk"];
    let (mut disk, os) =
        make(&format!("{}_OsDisk_1_{suffix}", names.disks), os, os["diskSizeGB"].as_u64().unwrap_or(30));
    disk["properties"]["osType"] = os["osType"].clone();
    disk["properties"]["creationData"] = json!({"createOption": "FromImage"});
    let (mut documents, mut data) = (vec![(None, disk)], Vec::new());
    for asked in profile["dataDisks"].as_array().into_iter().flatten() {
        let Some(lun) = asked["lun"].as_u64().and_then(|lun| u8::try_from(lun).ok()) else {
            continue;
        };
        let name = format!("{}_disk{}_{suffix}", names.disks, u64::from(lun) + 2);
        let (disk, mut element) = make(&name, asked, asked["diskSizeGB"].as_u64().unwrap_or(30));
        element["toBeDetached"] = json!(false);
        documents.push((Some(lun), disk));
        data.push(element);
    }
    Disks { documents, os, data }
}

/// The document of a new instance. Documented members.
fn document(set: &Value, names: &Names, zone: Option<&str>, (os, data): (Value, Vec<Value>), stamp: &str) -> Value {
    let profile = &set["properties"]["virtualMachineProfile"];
    let flexible = is_flexible(set);
    let mut doc =
        json!({"name": names.name, "id": names.id, "type": model::kind_of_members(set), "location": set["location"]});
    if !flexible {
        doc["instanceId"] = json!(names.number.to_string());
        doc["sku"] = json!({"name": set["sku"]["name"], "tier": set["sku"]["tier"]});
    }
    doc = writes::with(doc, &["tags", "plan", "identity"], set);
    if let Some(zone) = zone {
        doc["zones"] = json!([zone]);
    }
    let mut image = profile["storageProfile"]["imageReference"].clone();
    if image["publisher"].is_string() {
        let version = image["version"].as_str().filter(|version| *version != "latest").unwrap_or("1.0.0").to_owned();
        image["exactVersion"] = json!(version);
    }
    let mut os_profile = writes::object(&profile["osProfile"]);
    os_profile.shift_remove("computerNamePrefix");
    os_profile.insert("computerName".to_owned(), json!(names.computer));
    let mut storage = json!({"imageReference": image, "osDisk": os, "dataDisks": data});
    storage = writes::with(storage, &["diskControllerType"], &profile["storageProfile"]);
    if let Some(storage) = storage.as_object_mut() {
        disk_controller::complete(storage, set["sku"]["name"].as_str().unwrap_or(""));
    }
    if storage["imageReference"].is_null() {
        storage.as_object_mut().map(|storage| storage.shift_remove("imageReference"));
    }
    let ids = nics::names(&names.id, model::of_set(set), &names.unique);
    let mut properties = match flexible {
        true => json!({
            "hardwareProfile": {"vmSize": set["sku"]["name"]},
            "virtualMachineScaleSet": {"id": set["id"]},
        }),
        false => json!({
            "latestModelApplied": true,
            "modelDefinitionApplied": "VirtualMachineScaleSet",
            "networkProfileConfiguration": {"networkInterfaceConfigurations": model::of_set(set)},
            "hardwareProfile": {},
        }),
    };
    properties["provisioningState"] = json!("Creating");
    properties["vmId"] = json!(names.unique);
    properties["storageProfile"] = storage;
    properties["osProfile"] = os_profile.into();
    properties["networkProfile"] = json!({"networkInterfaces": ids});
    let faults = set["properties"]["platformFaultDomainCount"].as_u64().unwrap_or(1);
    if flexible && faults > 1 {
        properties["platformFaultDomain"] = json!(names.number % faults);
    }
    properties =
        writes::with(properties, &["securityProfile", "priority", "licenseType", "diagnosticsProfile"], profile);
    properties["timeCreated"] = json!(stamp);
    doc["properties"] = properties;
    doc
}

/// Which instances go first.
pub(crate) fn first_to_go(state: &State, members: Vec<String>, count: usize) -> Vec<String> {
    let mut by_zone: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    for id in members {
        let doc = state.store.document(&id).unwrap_or_default();
        let zone = doc["zones"][0].as_str().unwrap_or("").to_owned();
        // The names of flexible instances are no numbers: among themselves they go by name.
        by_zone.entry(zone).or_default().push((path::name_of(&id).parse().unwrap_or(0), id));
    }
    by_zone.values_mut().for_each(|members| members.sort());
    let mut going = Vec::new();
    while going.len() < count {
        let Some(fullest) = by_zone.values_mut().max_by_key(|members| members.len()).and_then(Vec::pop) else {
            break;
        };
        going.push(fullest.1);
    }
    going
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_instances_have_six_digits_of_base_36() {
        for (number, digits) in [(0, "000000"), (10, "00000A"), (35, "00000Z"), (36, "000010"), (46_655, "000ZZZ")] {
            assert_eq!(six_digits(number), digits);
        }
    }
}
