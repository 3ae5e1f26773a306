//! The instance view of a machine. Documented: it names provisioning and power state, and the disks; the codes
//! of its `statuses` follow the recorded instance views of other types.

use serde_json::{Value, json};

use super::attachments::disk_of;
use super::scale_sets::members;
use super::{availability_sets, extension_views};
use crate::answer::Context;
use crate::arm::kinds;
use crate::path;
use crate::store::Store;

/// The instance view of a machine.
pub(crate) fn instance_view(context: &Context<'_>, doc: &Value) -> Value {
    let id = doc["id"].as_str().unwrap_or("");
    let machine = context.state.store.get(id).and_then(|resource| resource.machine.as_ref());
    let power = machine.map_or("running", |machine| machine.turning.unwrap_or(machine.power.word()));
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
            status(format!("PowerState/{power}"), &format!("VM {power}"), "Info"),
        ],
    });
    if let Some((faults, updates)) = domains(&context.state.store, doc) {
        view["platformFaultDomain"] = json!(faults);
        view["platformUpdateDomain"] = json!(updates);
    }
    let extensions = extension_views::views(context.state, id);
    if !extensions.is_empty() {
        view["extensions"] = extensions.into();
    }
    view
}

/// Fault and update domain of a machine in an availability set, or of an instance of a scale set.
pub(crate) fn domains(store: &Store, doc: &Value) -> Option<(usize, usize)> {
    let id = path::of(doc);
    if doc["type"] == kinds::INSTANCE {
        return Some(members::domains(store, doc));
    }
    if let Some(fault) = doc["properties"]["platformFaultDomain"].as_u64() {
        return Some((usize::try_from(fault).unwrap_or(0), 0));
    }
    let set = doc["properties"]["availabilitySet"]["id"].as_str()?;
    let in_set = |vm: &&Value| vm["properties"]["availabilitySet"]["id"].as_str().is_some_and(|id| path::same(id, set));
    let at = store.of_kind(kinds::MACHINE).filter(in_set).position(|vm| path::same(path::of(vm), id)).unwrap_or(0);
    let (faults, updates) = availability_sets::domains(store, set);
    Some((at % faults.max(1), at % updates.max(1)))
}
