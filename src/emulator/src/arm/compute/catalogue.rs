//! What can be bought: resource SKUs and VM sizes. Shapes are documented (resource SKUs 2021-07-01).

use serde_json::{Value, json};

use super::vm_work;
use crate::answer::{Answer, Context, Reply};
use crate::arm::regions;
use crate::{disk_skus, sizes};
use crate::{fault, path};

/// `resourceSkus.list`, with `$filter=location eq '...'`.
pub(crate) fn skus(context: &mut Context<'_>) -> Reply {
    let filter = context.request.query.get("$filter").cloned().unwrap_or_default();
    let wanted = match filter.split_once(" eq ").map(|(name, value)| (name.trim(), value.trim())) {
        Some((name, value)) if name.eq_ignore_ascii_case("location") => Some(path::location(value.trim_matches('\''))),
        None if filter.trim().is_empty() => None,
        // Documented: only the location filter is supported. Unverified text.
        _ => return Err(fault::bad_request(format!("The filter '{filter}' is not supported for resource SKUs."))),
    };
    let location = wanted.unwrap_or_else(|| context.shared.options.scenario.location.clone());
    let zones: Vec<&str> = if regions::has_zones(&location) { vec!["1", "2", "3"] } else { Vec::new() };
    let mut value = Vec::new();
    if regions::all().contains(&location.as_str()) {
        value.push(entry(
            "availabilitySets",
            "Aligned",
            None,
            &location,
            &[],
            vec![("MaximumPlatformFaultDomainCount", "3".to_owned())],
        ));
        value.push(entry(
            "availabilitySets",
            "Classic",
            None,
            &location,
            &[],
            vec![("MaximumPlatformFaultDomainCount", "3".to_owned())],
        ));
        for sku in &disk_skus::SKUS {
            let disk_zones: &[&str] = if sku.zone_redundant() { &[] } else { &zones };
            let (least, most) = sku.size_range();
            value.push(entry(
                "disks",
                sku.name,
                Some(sku.tier),
                &location,
                disk_zones,
                vec![
                    ("MinSizeGiB", least.to_string()),
                    ("MaxSizeGiB", most.to_string()),
                    ("MaxValueOfMaxShares", sku.max_shares(most).to_string()),
                ],
            ));
        }
        for size in sizes::all() {
            let mut capabilities = vec![
                ("vCPUs", size.vcpus.to_string()),
                ("MaxDataDiskCount", size.max_data_disks.to_string()),
                ("PremiumIO", word(size.premium)),
                ("UltraSSDAvailable", word(size.ultra && !zones.is_empty())),
            ];
            if let Some(iops) = size.uncached_iops {
                capabilities.push(("UncachedDiskIOPS", iops.to_string()));
            }
            if let Some(mbps) = size.uncached_mbps {
                capabilities.push(("UncachedDiskBytesPerSecond", (u64::from(mbps) * 1_000_000).to_string()));
            }
            value.push(entry("virtualMachines", size.name, Some("Standard"), &location, &zones, capabilities));
        }
        if context.shared.options.future_fields {
            let (name, disks) = crate::unknown_fields::SIZE;
            let capabilities = vec![("MaxDataDiskCount", disks.to_string())];
            value.push(entry("virtualMachines", name, Some("Standard"), &location, &zones, capabilities));
        }
    }
    lists_all(value)
}

/// Documented: this list comes whole, without pages, however long.
fn lists_all(value: Vec<Value>) -> Reply {
    Ok(Answer::json(200, json!({ "value": value })))
}

fn word(yes: bool) -> String {
    if yes { "True" } else { "False" }.to_owned()
}

fn entry(
    kind: &str,
    name: &str,
    tier: Option<&str>,
    location: &str,
    zones: &[&str],
    capabilities: Vec<(&str, String)>,
) -> Value {
    let mut entry = json!({
        "resourceType": kind,
        "name": name,
        "locations": [location],
        "locationInfo": [{"location": location, "zones": zones, "zoneDetails": []}],
        "capabilities": capabilities
            .into_iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect::<Vec<_>>(),
        "restrictions": [],
    });
    if let Some(tier) = tier {
        entry["tier"] = json!(tier);
    }
    entry
}

/// `virtualMachineSizes.list` and a machine's `vmSizes`.
pub(crate) fn vm_sizes(context: &mut Context<'_>) -> Reply {
    if context.request.path.group.is_some() {
        context.require_group()?;
        if !context.state.store.contains(&vm_work::id_of(context)) {
            return Err(vm_work::not_found(context));
        }
    } else {
        regions::check(&path::location(context.request.segment(1)), "locations/vmSizes")?;
    }
    let value: Vec<Value> = sizes::all()
        .map(|size| {
            json!({
                "name": size.name,
                "numberOfCores": size.vcpus,
                "osDiskSizeInMB": 1_047_552,
                "resourceDiskSizeInMB": 0,
                "memoryInMB": u32::from(size.vcpus) * 4096,
                "maxDataDiskCount": size.max_data_disks,
            })
        })
        .collect();
    lists_all(value)
}
