//! What machines show of their extensions.

use serde_json::{Value, json};

use crate::arm::kinds;
use crate::document::Document;
use crate::path;
use crate::state::State;

/// The extensions of a machine.
pub(crate) fn of_machine(state: &State, machine: &str) -> Vec<Document> {
    let kinds = [kinds::EXTENSION, kinds::INSTANCE_EXTENSION].into_iter();
    kinds.flat_map(|kind| state.store.below_of_kind(machine, kind)).map(|resource| resource.doc.clone()).collect()
}

/// Shows in a machine's document its extensions, where it has any. Documented.
pub(crate) fn show(state: &State, machine: &mut Document) {
    let extensions = of_machine(state, path::of(machine));
    if !extensions.is_empty() {
        machine["resources"] = extensions.into_iter().map(Document::into_value).collect();
    }
}

/// What a machine's instance view shows of its extensions. Documented shape.
pub(crate) fn views(state: &State, machine: &str) -> Vec<Value> {
    let view = |doc: Document| {
        let properties = &doc["properties"];
        let word = |member: &str| properties[member].as_str().unwrap_or("").to_owned();
        let provisioning = word("provisioningState").to_ascii_lowercase();
        json!({
            "name": doc["name"],
            "type": format!("{}.{}", word("publisher"), word("type")),
            "typeHandlerVersion": word("typeHandlerVersion"),
            "statuses": [{
                "code": format!("ProvisioningState/{provisioning}"),
                "level": if provisioning == "failed" { "Error" } else { "Info" },
                "displayStatus": if provisioning == "succeeded" { "Ready" } else { "Not ready" },
            }],
        })
    };
    of_machine(state, machine).into_iter().map(view).collect()
}
