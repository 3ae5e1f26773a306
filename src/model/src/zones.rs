//! The availability zones of a region.

use serde_json::Value;

/// The zones of a region, in Azure's order, from the body of the resource provider `Microsoft.Compute`: those of virtual
/// machines, as the Go manager reads them. Azure spells a region `West Europe` there and `westeurope` elsewhere. A region
/// without zones has none.
pub fn of_region(provider: &Value, location: &str) -> Vec<String> {
    let plain = |text: &str| text.replace(' ', "").to_lowercase();
    let is = |value: &Value, text: &str| value.as_str().is_some_and(|value| plain(value) == plain(text));
    let items = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let machines =
        items(&provider["resourceTypes"]).into_iter().find(|one| is(&one["resourceType"], "virtualMachines"));
    let regions = machines.map(|machines| items(&machines["zoneMappings"])).unwrap_or_default();
    let region = regions.into_iter().find(|one| is(&one["location"], location));
    let zones = region.map(|region| items(&region["zones"])).unwrap_or_default();
    zones.iter().filter_map(|zone| zone.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_zones_of_virtual_machines_in_the_region_count() {
        let provider = json!({"namespace": "Microsoft.Compute", "resourceTypes": [
            {"resourceType": "disks", "zoneMappings": [{"location": "West Europe", "zones": ["9"]}]},
            {"resourceType": "virtualmachines", "zoneMappings": [
                {"location": "East US", "zones": ["1"]},
                {"location": "West Europe", "zones": ["3", "1", "2"]},
                {"location": "North Central US", "zones": null},
            ]},
        ]});
        assert_eq!(of_region(&provider, "westeurope"), ["3", "1", "2"]);
        assert_eq!(of_region(&provider, "West Europe"), ["3", "1", "2"]);
        for none in ["northcentralus", "westus", ""] {
            assert_eq!(of_region(&provider, none), [""; 0], "{none}");
        }
        for body in [json!({}), json!(null), json!({"resourceTypes": [{"resourceType": "virtualMachines"}]})] {
            assert_eq!(of_region(&body, "westeurope"), [""; 0]);
        }
    }
}
