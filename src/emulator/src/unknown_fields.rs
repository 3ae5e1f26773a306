//! `--future-fields`: members newer than every published type, and the check that clients keep them; and a machine size
//! that no table has.
//!
//! A client that reads a machine, a scale set, a disk or a network resource, changes something and writes it back must not lose
//! what it does not know. With the switch on, each answer carries [`MEMBER`] in places that such clients
//! rewrite; a PUT that sends one of these objects back without it is refused and recorded. Objects
//! that a partial PUT leaves out altogether are not a loss, nor are parts that are made anew.

use serde_json::{Value, json};

/// The member's name.
pub(crate) const MEMBER: &str = "zzFutureProperty";

/// A machine size that is newer than every table of sizes, and how many data disks it takes. The resource SKUs list it.
pub(crate) const SIZE: (&str, u8) = ("Standard_D8s_v99", 24);

/// Adds the member to a document that is about to be answered.
pub(crate) fn dress(doc: &mut Value) {
    if let Some(list) = doc.get_mut("value").and_then(Value::as_array_mut) {
        list.iter_mut().for_each(dress);
        return;
    }
    if let Some(output) = doc.get_mut("properties").and_then(|p| p.get_mut("output")) {
        dress(output);
        return;
    }
    let is_resource = doc.get("id").is_some() && doc.get("type").is_some();
    if !is_resource {
        return;
    }
    mark(doc.get_mut("properties"), "properties");
    for part in doc["properties"].as_object_mut().into_iter().flat_map(|members| members.values_mut()) {
        for part in part.as_array_mut().into_iter().flatten().filter(|part| part.get("etag").is_some()) {
            mark(part.get_mut("properties"), "part");
        }
    }
    for pointer in CONFIGURATIONS {
        let list = doc.pointer_mut(pointer).and_then(Value::as_array_mut);
        for interface in list.into_iter().flatten() {
            let own = interface.pointer_mut("/properties/ipConfigurations").and_then(Value::as_array_mut);
            own.into_iter().flatten().for_each(|part| mark(part.get_mut("properties"), "configuration"));
            mark(interface.get_mut("properties"), "interface");
        }
    }
    if let Some(profile) = doc.get_mut("properties").and_then(|p| p.get_mut("storageProfile")) {
        if let Some(elements) = profile.get_mut("dataDisks").and_then(Value::as_array_mut) {
            for element in elements {
                let lun = element["lun"].to_string();
                mark(Some(element), &lun);
            }
        }
        mark(profile.get_mut("osDisk"), "osDisk");
    }
}

/// Where a scale set's model, and an instance, have their network interfaces.
const CONFIGURATIONS: [&str; 2] = [
    "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations",
    "/properties/networkProfileConfiguration/networkInterfaceConfigurations",
];

fn mark(object: Option<&mut Value>, seed: &str) {
    if let Some(Value::Object(object)) = object {
        object.entry(MEMBER.to_owned()).or_insert_with(|| json!({ "mode": "Automatic", "seed": seed }));
    }
}

/// Members that only an answer has: a body with one of them is a document written back.
const ONLY_IN_ANSWERS: [&str; 4] = ["provisioningState", "vmId", "uniqueId", "timeCreated"];

/// The name of an interface, or of an IP configuration, that both have and that lacks the member.
fn dropped_of(old: &Value, given: &Value) -> Option<String> {
    let twin = |list: &'_ Value, one: &Value| list.as_array()?.iter().find(|had| had["name"] == one["name"]).cloned();
    given.as_array()?.iter().find_map(|interface| {
        let had = twin(old, interface)?;
        if interface["properties"].get(MEMBER).is_none() {
            return Some(interface["name"].to_string());
        }
        let own = interface["properties"]["ipConfigurations"].as_array()?;
        let known = |part: &&Value| twin(&had["properties"]["ipConfigurations"], part).is_some();
        let part = own.iter().filter(known).find(|part| part["properties"].get(MEMBER).is_none())?;
        Some(part["name"].to_string())
    })
}

/// What a body drops of what the resource's last answer had, in words.
///
/// Five objects count: an element of `dataDisks` at a LUN that the machine has, an OS disk sent with its id,
/// `properties` sent with members that only an answer has, a part, such as a rule, sent with its etag, and a network
/// interface, or IP configuration, of a scale set's model or of an instance that has one of that name.
pub(crate) fn dropped(old: &Value, body: &Value) -> Option<String> {
    let lacks = |object: &Value| object.get(MEMBER).is_none();
    let properties = &body["properties"];
    if ONLY_IN_ANSWERS.iter().any(|member| properties.get(member).is_some()) && lacks(properties) {
        return Some(format!("The properties were sent back without their member '{MEMBER}'."));
    }
    let parts = properties.as_object().into_iter().flat_map(|members| members.values());
    let mut parts = parts.filter_map(Value::as_array).flatten().filter(|part| part["etag"].is_string());
    if let Some(part) = parts.find(|part| part["id"].is_string() && lacks(&part["properties"])) {
        return Some(format!("{} was sent back without its member '{MEMBER}'.", part["name"]));
    }
    if let Some(name) =
        CONFIGURATIONS.iter().find_map(|pointer| dropped_of(old.pointer(pointer)?, body.pointer(pointer)?))
    {
        return Some(format!("{name} was sent back without its member '{MEMBER}'."));
    }
    let os_disk = &properties["storageProfile"]["osDisk"];
    if os_disk["managedDisk"]["id"].is_string() && lacks(os_disk) {
        return Some(format!("The OS disk was sent back without its member '{MEMBER}'."));
    }
    let given = properties["storageProfile"]["dataDisks"].as_array()?;
    let have = old["properties"]["storageProfile"]["dataDisks"].as_array()?;
    given
        .iter()
        .find(|element| have.iter().any(|h| h["lun"] == element["lun"]) && lacks(element))
        .map(|element| format!("The data disk at LUN {} was sent back without its member '{MEMBER}'.", element["lun"]))
}
