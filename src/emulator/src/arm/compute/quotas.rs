//! Quotas per subscription and region. Documented: names, and the text of the refusal.

use serde_json::{Value, json};

use crate::answer::{Answer, Context, Reply};
use crate::arm::{engine, kinds, regions};
use crate::fault::{self, Fault};
use crate::path;
use crate::sizes;

/// Names, local names and defaults. The names are documented (usage API); the limits are large
/// defaults of real subscriptions, 100 TiB each for Ultra and Premium v2 (documented).
const QUOTAS: [(&str, &str, u64); 9] = [
    ("availabilitySets", "Availability Sets", 2500),
    ("cores", "Total Regional vCPUs", 100_000),
    ("virtualMachines", "Virtual Machines", 25_000),
    ("StandardDiskCount", "Standard HDD LRS Managed Disks", 50_000),
    ("StandardSSDDiskCount", "Standard SSD Managed Disks", 50_000),
    ("PremiumDiskCount", "Premium SSD Managed Disks", 50_000),
    ("UltraSSDDiskSizeInGB", "Ultra Disk LRS Total Size", 102_400),
    ("PremiumV2DiskSizeInGB", "Premium SSD v2 Total Size", 102_400),
    ("PremiumV2DiskCount", "Premium SSD v2 Managed Disks", 1000),
];

/// Names of all quotas.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    QUOTAS.iter().map(|(name, _, _)| *name)
}

fn limit(context: &Context<'_>, name: &str) -> u64 {
    let default = QUOTAS.iter().find(|(own, _, _)| *own == name).map_or(u64::MAX, |(_, _, limit)| *limit);
    engine::quotas::limit(context, name, default)
}

/// What one disk counts as: quota name and amount.
fn weights(doc: &Value) -> Vec<(&'static str, u64)> {
    let gib = doc["properties"]["diskSizeGB"].as_u64().unwrap_or(0);
    match doc["sku"]["name"].as_str().unwrap_or("") {
        "Standard_LRS" => vec![("StandardDiskCount", 1)],
        "StandardSSD_LRS" | "StandardSSD_ZRS" => vec![("StandardSSDDiskCount", 1)],
        "Premium_LRS" | "Premium_ZRS" => vec![("PremiumDiskCount", 1)],
        "UltraSSD_LRS" => vec![("UltraSSDDiskSizeInGB", gib)],
        "PremiumV2_LRS" => vec![("PremiumV2DiskSizeInGB", gib), ("PremiumV2DiskCount", 1)],
        _ => Vec::new(),
    }
}

fn cores(doc: &Value) -> u64 {
    cores_of_size(sizes::of_machine(doc))
}

fn cores_of_size(size: &str) -> u64 {
    sizes::find(size).map_or(0, |size| u64::from(size.vcpus))
}

fn used(context: &Context<'_>, name: &str, location: &str) -> u64 {
    let own = path::key(&context.request.subscription_id());
    let here = |doc: &&Value| {
        let mine = |id: &str| id.get(..own.len()).is_some_and(|start| start.eq_ignore_ascii_case(&own));
        doc["location"] == location && doc["id"].as_str().is_some_and(mine)
    };
    let store = &context.state.store;
    let machines = || store.of_kind(kinds::MACHINE).chain(store.of_kind(kinds::INSTANCE)).filter(here);
    match name {
        "cores" => machines().map(cores).sum(),
        "virtualMachines" => machines().count() as u64,
        "availabilitySets" => store.of_kind(kinds::SET).filter(here).count() as u64,
        _ => store
            .of_kind(kinds::DISK)
            .filter(here)
            .flat_map(weights)
            .filter(|(own, _)| *own == name)
            .map(|(_, amount)| amount)
            .sum(),
    }
}

/// Refuses a disk beyond the quota. `old` is the disk before a change.
pub(crate) fn check_disk(context: &Context<'_>, doc: &Value, old: Option<&Value>) -> Result<(), Fault> {
    let location = doc["location"].as_str().unwrap_or("");
    let before = old.map(weights).unwrap_or_default();
    for (name, amount) in weights(doc) {
        let had = before.iter().find(|(own, _)| *own == name).map_or(0, |(_, amount)| *amount);
        let more = amount.saturating_sub(had);
        if more > 0 {
            check(context, name, location, more)?;
        }
    }
    Ok(())
}

/// Refuses a machine beyond the quota.
pub(crate) fn check_machine(context: &Context<'_>, doc: &Value) -> Result<(), Fault> {
    let location = doc["location"].as_str().unwrap_or("");
    check(context, "cores", location, cores(doc))?;
    check(context, "virtualMachines", location, 1)
}

/// Refuses so many machines of a size beyond the quota.
pub(crate) fn check_machines(context: &Context<'_>, location: &str, size: &str, count: u64) -> Result<(), Fault> {
    check(context, "cores", location, cores_of_size(size).saturating_mul(count))?;
    check(context, "virtualMachines", location, count)
}

fn check(context: &Context<'_>, name: &str, location: &str, more: u64) -> Result<(), Fault> {
    let limit = limit(context, name);
    // There are no more disks of one kind than disks: nothing to count while all of them would fit.
    let all = context.state.store.count(kinds::DISK) as u64;
    if name.ends_with("DiskCount") && all.saturating_add(more) <= limit {
        return Ok(());
    }
    let usage = used(context, name, location);
    if usage.saturating_add(more) > limit {
        let shown = if name == "cores" { "Total Regional Cores" } else { name };
        return Err(fault::quota(shown, location, limit, usage, more));
    }
    Ok(())
}

/// `usage.list`. Documented shape.
pub(crate) fn usages(context: &mut Context<'_>) -> Reply {
    let location = path::location(context.request.segment(1));
    regions::check(&location, "locations/usages")?;
    let own = QUOTAS.iter().map(|(name, local, _)| {
        json!({
            "limit": limit(context, name),
            "unit": "Count",
            "currentValue": used(context, name, &location),
            "name": {"value": name, "localizedValue": local},
        })
    });
    let value: Vec<Value> = own.chain(engine::quotas::usages_of_types(context, &location)).collect();
    Ok(Answer::json(200, json!({ "value": value })))
}
