//! What may change of a managed disk, and how often.
//!
//! | rule | evidence |
//! |---|---|
//! | a disk only grows; what may not change while a machine holds it | D (expand-disks, disks-shared), codes in the catalogue |
//! | which SKU becomes which | D (disks-convert-types), texts U |
//! | a disk becomes Premium v2 in the background, 50 of a subscription at a time | D (the same) |
//! | … not with double encryption, and not one of a gallery image | D (the same) |
//! | the SKU twice a day | D (the same), and reported as not enforced (azure-docs#107903): [`Switches::sku_twice_a_day`](crate::Switches::sku_twice_a_day); that a day is 24 hours, code and text U |
//! | IOPS and MB/s of Ultra and Premium v2 four times in 24 hours, of Premium v2 with its creation | D (disks-deploy-premium-v2, disks-enable-ultra-ssd), code and text U |
//! | a tier lowered once in 12 hours | D (disks-change-performance), code and text U |
//! | bursting enabled while no machine runs with the disk, disabled 12 hours later at the earliest, gone with another SKU | D (disks-enable-bursting), code and text U |
//! | no other encryption while a disk is being filled or converted, or has snapshots that are | D (disks-incremental-snapshots, disks-convert-types), code and text U |
//! | a disk access goes when its policy does | U |

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::attachments::owners;
use super::copy_source::Size;
use super::disk_rules::{FOUR_TIB_GIB, perform, protect, refused, shares, sku_of};
use super::{background_copy, disk_access, disk_copy, instant_access, snapshot_copy};
use crate::arm::descriptor::{Draft, Verb};
use crate::arm::{kinds, regions};
use crate::counted_changes::Counted;
use crate::disk_skus::Sku;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;
use crate::store::Power;

/// Documented: changes of SKU in a day.
const SKU_MOST: usize = 2;
/// Documented: changes of IOPS and MB/s in a day.
const PERFORMANCE_MOST: usize = 4;
const DAY: Duration = Duration::from_hours(24);
/// Documented: between two lowered tiers, and between enabled and disabled bursting.
const HALF_DAY: Duration = Duration::from_hours(12);

/// What Azure counts of a change of a disk.
pub(super) fn counted(old: &Value, new: &Value) -> Vec<Counted> {
    let mut counted = Vec::new();
    let differs = |member: &str| old["properties"][member] != new["properties"][member];
    if old["sku"]["name"] != new["sku"]["name"] {
        counted.push(Counted::Sku);
    } else if sku_of(new).is_ok_and(Sku::adjustable) && (differs("diskIOPSReadWrite") || differs("diskMBpsReadWrite")) {
        counted.push(Counted::Performance);
    } else if tier_of(new) < tier_of(old) {
        counted.push(Counted::LowerTier);
    }
    counted
}

fn tier_of(doc: &Value) -> Option<u32> {
    doc["properties"]["tier"].as_str()?.get(1..)?.parse().ok()
}

/// Whether a moment is less than so long before another.
fn is_within(earlier: Timestamp, time: Duration, now: Timestamp) -> bool {
    now.duration_since(earlier).unsigned_abs() < time
}

/// Refuses a change that Azure has counted often enough.
fn check_often(draft: &Draft<'_>, old: &Value, new: &Value) -> Result<(), Fault> {
    let Ok(now) = draft.stamp.parse::<Timestamp>() else {
        return Ok(());
    };
    let within = |kind: Counted, time: Duration| {
        let resource = draft.state.store.get(draft.id);
        resource.map_or(0, |resource| resource.counted.within(kind, time, now.as_second()))
    };
    let name = draft.name;
    for kind in counted(old, new) {
        let is_made_today = || {
            let made = old["properties"]["timeCreated"].as_str().and_then(|made| made.parse::<Timestamp>().ok());
            sku_of(old).is_ok_and(Sku::premium_v2) && made.is_some_and(|made| is_within(made, DAY, now))
        };
        match kind {
            Counted::Sku if draft.state.switches.sku_twice_a_day && within(kind, DAY) >= SKU_MOST => {
                return Err(fault::sku_changed_too_often(name, SKU_MOST));
            }
            Counted::Performance if within(kind, DAY) + usize::from(is_made_today()) >= PERFORMANCE_MOST => {
                return Err(fault::performance_changed_too_often(name, PERFORMANCE_MOST));
            }
            Counted::LowerTier if within(kind, HALF_DAY) > 0 => return Err(fault::tier_lowered_too_often(name)),
            Counted::Sku | Counted::Performance | Counted::LowerTier => {}
        }
    }
    Ok(())
}

/// The document after a PUT or PATCH on an existing disk.
pub(crate) fn changed(draft: &Draft<'_>, old: &Value) -> Result<Value, Fault> {
    let (state, body) = (draft.state, draft.body);
    let asked = body.get("properties").cloned().unwrap_or(json!({}));
    let empty = Map::new();
    let given = asked.as_object().unwrap_or(&empty);
    fixed(old, body, &asked)?;
    let mut new = merged(old, body, given, draft.verb);
    let sku = sku_of(&new)?;
    new["sku"] = json!({"name": sku.name, "tier": sku.tier});
    let size = grown(old, given, sku)?;
    let sku_changed = new["sku"]["name"] != old["sku"]["name"];
    if sku_changed {
        conversion(state, old, &new, sku)?;
        if !sku.name.starts_with("Premium_") && new["properties"]["burstingEnabled"] == json!(true) {
            new["properties"]["burstingEnabled"] = json!(false);
        }
    }
    let change = Change {
        sku_changed,
        shares_changed: new["properties"]["maxShares"] != old["properties"]["maxShares"],
        before: Size::of(old).gib,
        gib: size.gib,
    };
    attached_rules(state, old, sku, &change)?;
    new["properties"]["diskSizeGB"] = json!(size.gib);
    new["properties"]["diskSizeBytes"] = json!(size.bytes);
    let wanted = performance_wanted(old, &asked, sku, &change);
    if sku_changed
        && wanted.get("tier").is_none()
        && let Some(object) = new["properties"].as_object_mut()
    {
        object.shift_remove("tier");
    }
    perform(&mut new["properties"], sku, size.gib, &wanted)?;
    shares(&mut new["properties"], sku, size.gib)?;
    protect("disk", &mut new["properties"])?;
    bursting(draft, old, &mut new)?;
    encryption(state, old, &new)?;
    check_often(draft, old, &new)?;
    if sku_changed && sku.premium_v2() {
        // Documented: what becomes Premium v2 has sectors of 512 bytes, and is converted in the background.
        new["properties"]["creationData"]["logicalSectorSize"] = json!(512);
        new["properties"]["completionPercent"] = json!(0);
    }
    new["properties"]["provisioningState"] = json!("Succeeded");
    Ok(new)
}

/// What a request changes, as far as it matters to a machine that holds the disk.
struct Change {
    sku_changed: bool,
    shares_changed: bool,
    /// GiB before and after.
    before: u64,
    gib: u64,
}

/// What was there with what is asked for.
fn merged(old: &Value, body: &Value, given: &Map<String, Value>, verb: Verb) -> Value {
    let mut new = old.clone();
    match (body.get("tags"), verb) {
        (Some(tags), _) => new["tags"] = tags.clone(),
        (None, Verb::Put) => {
            if let Some(object) = new.as_object_mut() {
                object.shift_remove("tags");
            }
        }
        (None, _) => {}
    }
    if let Some(sku) = body.get("sku").filter(|sku| sku.get("name").is_some()) {
        new["sku"] = sku.clone();
    }
    for (member, value) in given {
        if member != "creationData" {
            new["properties"][member] = value.clone();
        }
    }
    let is_private = new["properties"]["networkAccessPolicy"] == "AllowPrivate";
    if !is_private
        && !given.contains_key("diskAccessId")
        && let Some(object) = new["properties"].as_object_mut()
    {
        object.shift_remove("diskAccessId");
    }
    new
}

/// The size after a request. The bytes of a disk that does not grow stay, which may be no whole GiB.
fn grown(old: &Value, given: &Map<String, Value>, sku: &Sku) -> Result<Size, Fault> {
    let before = Size::of(old);
    let gib = match given.get("diskSizeGB") {
        Some(value) => {
            value.as_u64().ok_or_else(|| fault::out_of_range("disk.diskSizeGB", value.to_string(), "1", "65536"))?
        }
        None => before.gib,
    };
    if gib < before.gib {
        return Err(fault::cannot_shrink(path::of(old)));
    }
    sku.check_size(gib).map_err(|e| refused(&e))?;
    if gib == before.gib {
        return Ok(before);
    }
    disk_access::refuse_growth(old)?;
    Ok(Size::whole(gib))
}

/// The performance that a request asks for. What was not asked for follows the size, unless the SKU lets the caller choose
/// and it did.
fn performance_wanted(old: &Value, asked: &Value, sku: &Sku, change: &Change) -> Value {
    let mut wanted = asked.clone();
    if sku.adjustable() && !change.sku_changed {
        for member in ["diskIOPSReadWrite", "diskMBpsReadWrite"] {
            if wanted.get(member).is_none() {
                wanted[member] = old["properties"][member].clone();
            }
        }
    }
    if !sku.adjustable() {
        // A caller that sends back what a GET showed while it grows the disk means no performance.
        for member in ["diskIOPSReadWrite", "diskMBpsReadWrite"] {
            if wanted.get(member) == old["properties"].get(member)
                && let Some(object) = wanted.as_object_mut()
            {
                object.shift_remove(member);
            }
        }
        if wanted.get("tier") == old["properties"].get("tier")
            && change.gib != change.before
            && let Some(object) = wanted.as_object_mut()
        {
            object.shift_remove("tier");
        }
    }
    wanted
}

/// Bursting on demand, and when it was enabled last.
fn bursting(draft: &Draft<'_>, old: &Value, new: &mut Value) -> Result<(), Fault> {
    let enabled = |doc: &Value| doc["properties"]["burstingEnabled"] == json!(true);
    let name = draft.name;
    match (enabled(old), enabled(new)) {
        (false, true) => {
            let is_running = |vm: &&String| draft.state.store.power(vm) == Some(Power::Running);
            if let Some(vm) = owners(old).iter().find(is_running) {
                return Err(fault::bursting_while_running(name, vm));
            }
            new["properties"]["burstingEnabledTime"] = json!(draft.stamp);
        }
        (true, false) if old["sku"]["name"] == new["sku"]["name"] => {
            let since = old["properties"]["burstingEnabledTime"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
            let now = draft.stamp.parse::<Timestamp>().ok();
            if matches!((since, now), (Some(since), Some(now)) if is_within(since, HALF_DAY, now)) {
                return Err(fault::bursting_disabled_too_soon(name));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Refuses another encryption while content is being copied into the disk or from it.
fn encryption(state: &State, old: &Value, new: &Value) -> Result<(), Fault> {
    if old["properties"]["encryption"] == new["properties"]["encryption"] {
        return Ok(());
    }
    let unique = &old["properties"]["uniqueId"];
    let of_disk = |doc: &&Value| doc["properties"]["creationData"]["sourceUniqueId"] == *unique;
    let is_open = state.store.of_kind(kinds::SNAPSHOT).filter(of_disk).any(instant_access::is_open);
    if background_copy::runs(old) || is_open || snapshot_copy::pending_of(state, old).next().is_some() {
        return Err(fault::encryption_while_copied(path::of(old)));
    }
    Ok(())
}

/// What never changes on a disk that exists.
fn fixed(old: &Value, body: &Value, asked: &Value) -> Result<(), Fault> {
    if let Some(data) = asked.get("creationData").and_then(Value::as_object) {
        for (member, value) in data {
            let have = &old["properties"]["creationData"][member];
            let equal = have == value
                || matches!((have.as_str(), value.as_str()), (Some(a), Some(b)) if a.eq_ignore_ascii_case(b));
            if !equal {
                return Err(fault::property_change(format!("creationData.{member}")));
            }
        }
    }
    let zones = body.get("zones").filter(|zones| **zones != json!([]));
    if zones.is_some_and(|zones| old.get("zones") != Some(zones)) {
        return Err(fault::property_change("zones"));
    }
    let generation = "hyperVGeneration";
    if let (Some(value), Some(have)) = (asked.get(generation), old["properties"].get(generation))
        && value != have
    {
        return Err(fault::property_change(generation));
    }
    Ok(())
}

/// Which SKU may become which. Documented (disks-convert-types): hard disks and SSDs of any redundancy into
/// each other, and into Premium v2 where that may be; nothing from or to Ultra or from Premium v2. The
/// texts are unverified.
fn conversion(state: &State, old: &Value, new: &Value, sku: &Sku) -> Result<(), Fault> {
    let name = old["name"].as_str().unwrap_or("");
    let before = sku_of(old)?;
    let refuse = |why: &str| {
        Err(fault::not_allowed(format!("Disk {name} of SKU {} cannot be changed to {}: {why}", before.name, sku.name)))
    };
    if before.adjustable() || sku.ultra() {
        return refuse("create a disk of that SKU from a snapshot.");
    }
    let zones = old["zones"].as_array().cloned().unwrap_or_default();
    if !zones.is_empty() || regions::has_zones(old["location"].as_str().unwrap_or("")) {
        sku.check_zones(&zones).map_err(|e| refused(&e))?;
    }
    if !sku.premium_v2() {
        return Ok(());
    }
    disk_copy::check_filling(state, path::of(old))?;
    let properties = &new["properties"];
    if properties["encryption"]["type"] == "EncryptionAtRestWithPlatformAndCustomerKeys" {
        return refuse("double encryption must be changed to a single one first.");
    }
    if properties["creationData"].get("galleryImageReference").is_some() {
        return refuse("it was created from a gallery image.");
    }
    if properties["burstingEnabled"] == json!(true) {
        return refuse("bursting must be disabled first.");
    }
    let holders = owners(old);
    if properties["maxShares"].as_u64().unwrap_or(1) > 1 && !holders.is_empty() {
        return refuse("a shared disk must be detached first.");
    }
    for vm in holders.iter().filter_map(|vm| state.store.vm(vm)) {
        let profile = &vm["properties"]["storageProfile"];
        let id = old["id"].as_str().unwrap_or("");
        let is = |element: &Value| element["managedDisk"]["id"].as_str().is_some_and(|own| path::same(own, id));
        if is(&profile["osDisk"]) {
            return refuse("it is an OS disk.");
        }
        let cached = |element: &Value| is(element) && element["caching"].as_str().unwrap_or("None") != "None";
        if profile["dataDisks"].as_array().into_iter().flatten().any(cached) {
            return refuse("host caching must be set to None first.");
        }
    }
    Ok(())
}

/// What may not change while a machine holds the disk. Documented (expand-disks, disks-shared); the
/// texts and inner codes are in the catalogue.
fn attached_rules(state: &State, old: &Value, sku: &Sku, change: &Change) -> Result<(), Fault> {
    let Change { sku_changed, shares_changed, before, gib } = *change;
    let name = old["name"].as_str().unwrap_or("");
    let holders = owners(old);
    let Some(holder) = holders.first() else {
        return Ok(());
    };
    if shares_changed {
        return Err(fault::not_allowed(format!(
            "The maxShares property of disk {name} cannot be changed while it is attached to VM {holder}."
        )));
    }
    let id = old["id"].as_str().unwrap_or("");
    let of_system = holders.iter().filter_map(|vm| state.store.vm(vm)).any(|vm| {
        let own = vm["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"].as_str();
        own.is_some_and(|own| path::same(own, id))
    });
    // Documented: beyond 4 TiB detached only, from a deallocated machine too; Ultra and Premium v2 are free of
    // it, and an OS disk, which cannot be detached.
    if before < FOUR_TIB_GIB && gib >= FOUR_TIB_GIB && !sku.adjustable() && !of_system {
        return Err(fault::resize_beyond_4_tib(name, holder));
    }
    let running = holders.iter().find(|vm| state.store.power(vm) != Some(Power::Deallocated));
    let Some(vm) = running else {
        return Ok(());
    };
    if sku_changed {
        return Err(fault::not_allowed(format!(
            "Cannot change the SKU of disk {name} while it is attached to running VM {vm}."
        )));
    }
    if gib > before {
        if of_system {
            return Err(fault::resize_while_attached(name, vm));
        }
        if old["properties"]["maxShares"].as_u64().unwrap_or(1) > 1 {
            return Err(fault::resize_shared_disk(name));
        }
        let size = state.store.vm(vm).map(|vm| crate::sizes::of_machine(&vm).to_owned()).unwrap_or_default();
        // Documented: live growth needs a size with premium storage (the classic sizes have none).
        if crate::sizes::find(&size).is_some_and(|size| !size.premium) {
            return Err(fault::live_change_unsupported_size(&size));
        }
    }
    Ok(())
}
