//! The model of a scale set: its defaults, and what it cannot be.

use serde_json::{Map, Value, json};

use super::members::is_flexible;
use crate::arm::descriptor::Draft;
use crate::arm::engine::references;
use crate::arm::network::backends;
use crate::arm::{kinds, writes};
use crate::fault::{self, Fault};
use crate::path;
use crate::sizes;
use crate::state::State;

/// Documented: instances of a set at most, and of one in a single placement group.
const INSTANCES_MOST: u64 = 1000;
const INSTANCES_OF_ONE_GROUP: u64 = 100;

/// Documented: as of machines, 1 to 64 characters.
pub(crate) fn check_name(kind: &str, name: &str) -> Result<(), Fault> {
    let fits = (1..=64).contains(&name.chars().count())
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && !name.starts_with(['_', '-', '.'])
        && !name.ends_with(['-', '.']);
    if fits { Ok(()) } else { Err(fault::invalid_name(kind, name)) }
}

/// The document. Recorded for a uniform set of Windows machines; the defaults of a flexible one are unverified.
pub(crate) fn complete(draft: &Draft<'_>) -> Result<Value, Fault> {
    let asked = draft.asked();
    let flexible = draft.text("orchestrationMode", "Uniform") == "Flexible";
    let zonal = draft.body["zones"].as_array().is_some_and(|zones| !zones.is_empty());
    let had = |member: &str| draft.old.map(|old| old["properties"][member].clone()).filter(|value| !value.is_null());
    let mut properties = writes::object(asked);
    // What is merged with a document that is there has the state of that.
    properties.shift_remove("provisioningState");
    properties.insert("orchestrationMode".to_owned(), json!(if flexible { "Flexible" } else { "Uniform" }));
    if let Some(policy) =
        properties.get_mut("upgradePolicy").and_then(|policy| policy.get_mut("automaticOSUpgradePolicy"))
    {
        let defaults = json!({
            "enableAutomaticOSUpgrade": false, "useRollingUpgradePolicy": false, "disableAutomaticRollback": false,
        });
        *policy = writes::with_others(policy.take(), &defaults);
    }
    if asked["virtualMachineProfile"].is_object() {
        let made = profile(&asked["virtualMachineProfile"], &draft.body["sku"], draft.stamp);
        properties.insert("virtualMachineProfile".to_owned(), made);
    }
    let defaults: &[(&str, Value)] = &[
        ("singlePlacementGroup", json!(!flexible)),
        ("overprovision", json!(true)),
        ("doNotRunExtensionsOnOverprovisionedVMs", json!(false)),
        ("platformFaultDomainCount", json!(if zonal || flexible { 1 } else { 5 })),
    ];
    for (member, value) in defaults.iter().filter(|(member, _)| !flexible || !member.contains("verprovision")) {
        properties.entry((*member).to_owned()).or_insert_with(|| value.clone());
    }
    properties.insert("uniqueId".to_owned(), had("uniqueId").unwrap_or_else(|| json!(draft.guid)));
    properties.insert("timeCreated".to_owned(), had("timeCreated").unwrap_or_else(|| json!(draft.stamp)));
    let mut made = json!({"properties": properties});
    for member in ["plan", "identity"] {
        if let Some(value) = draft.body.get(member) {
            made[member] = value.clone();
        }
    }
    if draft.body["sku"].is_object() {
        let tier = if draft.body["sku"]["name"].as_str().is_some_and(|name| name.starts_with("Basic_")) {
            "Basic"
        } else {
            "Standard"
        };
        made["sku"] = writes::with_others(draft.body["sku"].clone(), &json!({"tier": tier, "capacity": 0}));
    }
    Ok(made)
}

/// What a new instance is made of. Recorded members and defaults.
fn profile(asked: &Value, sku: &Value, stamp: &str) -> Value {
    let mut profile = writes::object(asked);
    let publisher = asked["storageProfile"]["imageReference"]["publisher"].as_str().unwrap_or("").to_ascii_lowercase();
    let windows = asked["storageProfile"]["osDisk"]["osType"] == "Windows"
        || publisher.contains("windows")
        || asked["osProfile"]["windowsConfiguration"].is_object();
    if let Some(os) = profile.get_mut("osProfile") {
        let mut own = writes::object(os);
        own.shift_remove("adminPassword");
        own.shift_remove("customData");
        if windows {
            let defaults = json!({"provisionVMAgent": true, "enableAutomaticUpdates": true});
            own.entry("windowsConfiguration").or_insert(defaults);
        }
        let defaults = json!({"secrets": [], "allowExtensionOperations": true, "requireGuestProvisionSignal": true});
        *os = writes::with_others(Value::Object(own), &defaults);
    }
    if let Some(storage) = profile.get_mut("storageProfile") {
        let premium = sku["name"].as_str().and_then(sizes::find).is_some_and(|size| size.premium);
        let defaults = json!({
            "osType": if windows { "Windows" } else { "Linux" },
            "createOption": "FromImage",
            "caching": "None",
            "managedDisk": {"storageAccountType": if premium { "Premium_LRS" } else { "Standard_LRS" }},
            "diskSizeGB": if windows { 127 } else { 30 },
        });
        let disk = storage.get("osDisk").cloned().unwrap_or_else(|| json!({}));
        storage["osDisk"] = writes::with_others(disk, &defaults);
    }
    if let Some(network) = profile.get_mut("networkProfile") {
        network["networkInterfaceConfigurations"] = configurations(&network["networkInterfaceConfigurations"]);
    }
    profile.entry("timeCreated").or_insert_with(|| json!(stamp));
    Value::Object(profile)
}

/// Network interfaces of a model, with their defaults. Recorded.
pub(crate) fn configurations(asked: &Value) -> Value {
    let list = asked.as_array().map_or(&[][..], Vec::as_slice);
    let alone = list.len() == 1;
    let configuration = |asked: &Value| {
        let mut properties = writes::object(&asked["properties"]);
        let addresses = properties.get("ipConfigurations").and_then(Value::as_array).cloned().unwrap_or_default();
        let addresses: Vec<Value> = addresses
            .into_iter()
            .map(|mut own| {
                own["properties"] =
                    writes::with_others(own["properties"].take(), &json!({"privateIPAddressVersion": "IPv4"}));
                own
            })
            .collect();
        properties.insert("ipConfigurations".to_owned(), Value::Array(addresses));
        let defaults = json!({
            "primary": alone, "enableAcceleratedNetworking": false, "disableTcpStateTracking": false,
            "dnsSettings": {"dnsServers": []}, "enableIPForwarding": false,
        });
        let mut own: Map<String, Value> = writes::object(asked);
        own.insert("properties".to_owned(), writes::with_others(Value::Object(properties), &defaults));
        Value::Object(own)
    };
    list.iter().map(configuration).collect()
}

/// The network interfaces of a set's model.
pub(crate) fn of_set(set: &Value) -> &Value {
    &set["properties"]["virtualMachineProfile"]["networkProfile"]["networkInterfaceConfigurations"]
}

/// What a set cannot be. The rules are documented.
pub(crate) fn check(state: &State, set: &Value, old: Option<&Value>) -> Result<(), Fault> {
    let (id, properties) = (path::of(set), &set["properties"]);
    let profile = &properties["virtualMachineProfile"];
    if !is_flexible(set) || profile.is_object() {
        let size = set["sku"]["name"].as_str().ok_or_else(|| fault::missing_parameter("sku.name"))?;
        if sizes::find(size).is_none() {
            return Err(fault::size_of_set_unknown(size));
        }
        for member in ["storageProfile", "networkProfile"] {
            if !profile[member].is_object() {
                return Err(fault::missing_parameter(format!("virtualMachineProfile.{member}")));
            }
        }
        check_interfaces(state, id, of_set(set))?;
    }
    let capacity = set["sku"]["capacity"].as_i64().unwrap_or(0);
    let most = if properties["singlePlacementGroup"] == true { INSTANCES_OF_ONE_GROUP } else { INSTANCES_MOST };
    if u64::try_from(capacity).map_or(true, |capacity| capacity > INSTANCES_MOST) {
        return Err(fault::out_of_range("sku.capacity", capacity, 0, INSTANCES_MOST));
    }
    if capacity.unsigned_abs() > most {
        return Err(fault::too_many_instances_of_one_group(path::name_of(id), INSTANCES_OF_ONE_GROUP));
    }
    match old {
        Some(old) => check_change(old, set),
        None => Ok(()),
    }
}

/// What stays as it was made.
fn check_change(old: &Value, set: &Value) -> Result<(), Fault> {
    const FIXED: [(&str, &str); 6] = [
        ("/properties/orchestrationMode", "orchestrationMode"),
        ("/properties/platformFaultDomainCount", "platformFaultDomainCount"),
        ("/properties/virtualMachineProfile/osProfile/computerNamePrefix", "osProfile.computerNamePrefix"),
        ("/properties/virtualMachineProfile/osProfile/adminUsername", "osProfile.adminUsername"),
        ("/properties/virtualMachineProfile/storageProfile/osDisk/createOption", "osDisk.createOption"),
        ("/properties/virtualMachineProfile/storageProfile/osDisk/osType", "osDisk.osType"),
    ];
    for (pointer, name) in FIXED {
        if old.pointer(pointer).is_some_and(|had| set.pointer(pointer) != Some(had)) {
            return Err(fault::property_change(name));
        }
    }
    let grows_together =
        old["properties"]["singlePlacementGroup"] == false && set["properties"]["singlePlacementGroup"] == true;
    if grows_together {
        return Err(fault::property_change("singlePlacementGroup"));
    }
    let zones = |set: &Value| set["zones"].as_array().cloned().unwrap_or_default();
    let (had, has) = (zones(old), zones(set));
    // Documented: zones can be added to a zonal set, and none removed.
    if had.iter().any(|zone| !has.contains(zone)) || had.is_empty() && !has.is_empty() {
        return Err(fault::property_change("zones"));
    }
    Ok(())
}

/// What network interfaces of a model, or of an instance, cannot be. `own` is who has them.
pub(crate) fn check_interfaces(state: &State, own: &str, configurations: &Value) -> Result<(), Fault> {
    let list = configurations.as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() {
        return Err(fault::missing_parameter("networkInterfaceConfigurations"));
    }
    if list.iter().filter(|configuration| configuration["properties"]["primary"] == true).count() != 1 {
        return Err(fault::one_primary_interface(own));
    }
    for configuration in list {
        let mut shaped = configuration.clone();
        shaped["id"] = json!(format!("{own}/networkInterfaces/{}", configuration["name"].as_str().unwrap_or("")));
        backends::check_interface(state, &shaped)?;
    }
    Ok(())
}

/// That what they name exists. Documented: the refusal names the set, or the instance.
pub(crate) fn check_named(state: &State, own: &str, configurations: &Value) -> Result<(), Fault> {
    let body = json!({"properties": {"virtualMachineProfile": {"networkProfile": {"networkInterfaceConfigurations": configurations}}}});
    references::check(state.types.of_kind(kinds::SCALE_SET), state, &body, own)
}

/// The type of a set's machines.
pub(crate) fn kind_of_members(set: &Value) -> &'static str {
    if is_flexible(set) { kinds::MACHINE } else { kinds::INSTANCE }
}
