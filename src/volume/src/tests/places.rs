//! Where a disk is made and can be used.

use super::*;

const ZONE: &str = DISK_TOPOLOGY_KEY;
const WELL_KNOWN: &str = WELL_KNOWN_TOPOLOGY_KEY;

fn placed(parameters: Pairs<'_>, preferred: Pairs<'_>, requisite: Pairs<'_>) -> CreatePlan {
    plan_of(&Request { preferred: segments(preferred), requisite: segments(requisite), ..request(parameters) })
}

fn topologies(plan: &CreatePlan) -> Vec<&str> {
    plan.accessible_topology.iter().map(|segments| segments[ZONE].as_str()).collect()
}

#[test]
fn the_first_preferred_zone_is_picked_and_then_the_first_requisite_one() {
    let requisite = [(ZONE, "eastus-1"), (ZONE, "eastus-2")];
    let preferred = placed(&[], &[(ZONE, "eastus-3"), (ZONE, "eastus-1")], &requisite);
    assert_eq!((preferred.spec.zones.as_slice(), topologies(&preferred)), (&["3".to_owned()][..], vec!["eastus-3"]));
    let required = placed(&[], &[(ZONE, "")], &requisite);
    assert_eq!(required.spec.zones, ["1"]);
    assert_eq!(placed(&[], &[(WELL_KNOWN, "eastus-2")], &[]).spec.zones, ["2"]);
}

#[test]
fn nodes_without_zones_get_a_regional_disk() {
    for label in ["", "0", "3", "eastus"] {
        let plan = placed(&[], &[(ZONE, label)], &[(ZONE, label)]);
        assert_eq!((plan.spec.zones.len(), topologies(&plan)), (0, vec![""]), "{label:?}");
    }
}

#[test]
fn a_zone_of_another_region_moves_the_disk_there() {
    let plan = placed(&[], &[(ZONE, "westeurope-2")], &[]);
    assert_eq!((plan.spec.location.as_str(), plan.spec.zones[0].as_str()), ("westeurope", "2"));
}

#[test]
fn a_location_takes_only_its_own_zones() {
    let plan = placed(&[("location", "WestEurope")], &[(ZONE, "eastus-1")], &[(ZONE, "westeurope-3")]);
    assert_eq!((plan.spec.location.as_str(), plan.spec.zones[0].as_str()), ("WestEurope", "3"));
    assert_eq!(topologies(&plan), ["westeurope-3"]);
}

#[test]
fn a_zone_redundant_disk_can_be_used_everywhere() {
    for sku in ["StandardSSD_ZRS", "Premium_ZRS"] {
        let plan = placed(&[("skuName", sku)], &[(ZONE, "eastus-2")], &[]);
        assert!(plan.spec.zones.is_empty());
        assert_eq!(topologies(&plan), ["eastus-1", "eastus-2", "eastus-3", "eastus-4", ""]);
    }
}

#[test]
fn a_region_is_written_in_lower_case_whatever_its_configuration_says() {
    let defaults = Defaults { location: "EastUS".to_owned(), ..defaults() };
    let request = Request { preferred: segments(&[(ZONE, "EastUS-1")]), ..request(&[]) };
    let plan = plan_create(&request, &defaults).unwrap();
    assert_eq!((plan.spec.location.as_str(), topologies(&plan)), ("EastUS", vec!["eastus-1"]));
    let redundant = plan_create(&super::request(&[("skuName", "Premium_ZRS")]), &defaults).unwrap();
    assert_eq!(topologies(&redundant)[0], "eastus-1");
}

#[test]
fn no_region_at_all_is_said() {
    let defaults = Defaults { location: String::new(), ..defaults() };
    assert_eq!(plan_create(&request(&[]), &defaults).unwrap_err().parameter, "location");
}
