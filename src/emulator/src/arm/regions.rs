//! The regions of the public cloud, as far as requests are checked against them.

use serde_json::Value;

use crate::arm::kinds;
use crate::fault::{self, Fault};

/// The location of what is in no region.
pub(crate) const ANYWHERE: &str = "global";

/// Types that are in no region (documented).
const GLOBAL: [&str; 1] = [kinds::PRIVATE_ZONE];

/// Public regions with availability zones (documented).
const WITH_ZONES: [&str; 36] = [
    "australiaeast",
    "austriaeast",
    "belgiumcentral",
    "brazilsouth",
    "canadacentral",
    "centralindia",
    "centralus",
    "chilecentral",
    "eastasia",
    "eastus",
    "eastus2",
    "francecentral",
    "germanywestcentral",
    "indonesiacentral",
    "israelcentral",
    "italynorth",
    "japaneast",
    "japanwest",
    "koreacentral",
    "malaysiawest",
    "mexicocentral",
    "newzealandnorth",
    "northeurope",
    "norwayeast",
    "polandcentral",
    "qatarcentral",
    "southafricanorth",
    "southcentralus",
    "southeastasia",
    "spaincentral",
    "swedencentral",
    "switzerlandnorth",
    "uaenorth",
    "uksouth",
    "westeurope",
    "westus3",
];

/// Other regions, public and sovereign.
const WITHOUT_ZONES: [&str; 34] = [
    "australiacentral",
    "australiacentral2",
    "australiasoutheast",
    "brazilsoutheast",
    "canadaeast",
    "centraluseuap",
    "chinaeast",
    "chinaeast2",
    "chinanorth",
    "chinanorth2",
    "eastus2euap",
    "francesouth",
    "germanynorth",
    "jioindiacentral",
    "jioindiawest",
    "koreasouth",
    "northcentralus",
    "norwaywest",
    "southafricawest",
    "southindia",
    "swedensouth",
    "switzerlandwest",
    "uaecentral",
    "ukwest",
    "usdodcentral",
    "usdodeast",
    "usgovarizona",
    "usgovtexas",
    "usgovvirginia",
    "usseceast",
    "westcentralus",
    "westindia",
    "westus",
    "local",
];

/// Two more with zones.
const LATER_WITH_ZONES: [&str; 2] = ["westus2", "chinanorth3"];

pub(crate) fn has_zones(location: &str) -> bool {
    WITH_ZONES.contains(&location) || LATER_WITH_ZONES.contains(&location)
}

/// All regions in order.
pub(crate) fn all() -> Vec<&'static str> {
    let mut all: Vec<_> = WITH_ZONES.into_iter().chain(LATER_WITH_ZONES).chain(WITHOUT_ZONES).collect();
    all.sort_unstable();
    all
}

/// Refuses a region that does not exist. Documented.
pub(crate) fn check(location: &str, kind: &str) -> Result<(), Fault> {
    if location.is_empty() {
        return Err(fault::location_required());
    }
    if GLOBAL.contains(&kind) {
        return if location == ANYWHERE { Ok(()) } else { Err(fault::location_unavailable(location, kind, ANYWHERE)) };
    }
    if has_zones(location) || WITHOUT_ZONES.contains(&location) {
        return Ok(());
    }
    Err(fault::location_unavailable(location, kind, all().join(",")))
}

/// Refuses a zone that does not exist. Documented.
pub(crate) fn check_zones(location: &str, zones: &[Value], kind: &str, name: &str) -> Result<(), Fault> {
    for zone in zones {
        let zone = zone.as_str().unwrap_or("");
        if !has_zones(location) || !matches!(zone, "1" | "2" | "3") {
            return Err(fault::unsupported_zone(zone, kind, name, location));
        }
    }
    Ok(())
}
