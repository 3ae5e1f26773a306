//! Which disk can be made from which disk or snapshot.
//!
//! | rule | evidence |
//! |---|---|
//! | a source of the same region / of the same edge zone | D / D (azuredisk PR#2450) |
//! | no source in another zone; snapshots are in none | D, a real body (azuredisk#571, azuredisk#685) |
//! | … in a zone where the copy is in none, or the other way round | U: [`Switches::zonal_disk_stays_in_zone`](crate::Switches::zonal_disk_stays_in_zone) |
//! | sectors of 4096 bytes only into Ultra and Premium v2, and those of the source otherwise | D (disks-incremental-snapshots, disks-convert-types), that a disk has those of its source unasked U |
//! | a full snapshot makes no Ultra or Premium v2 disk | D (disks-convert-types), code and text U |
//! | instant access | see [`instant_access`] |
//! | 5 disks at a time from a snapshot of an Ultra or Premium v2 disk | D (disks-incremental-snapshots), code and text U |
//! | 50 Ultra and Premium v2 disks of a subscription being filled or converted | D (the same), code and text U |
//! | whether a disk counts until it is made, or until it is filled | U: [`Switches::filling_disk_counts`](crate::Switches::filling_disk_counts) |

use serde_json::{Value, json};

use super::copy_source::{self, Size};
use super::{background_copy, instant_access};
use crate::arm::kinds;
use crate::disk_skus::Sku;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

/// Documented: disks at a time from one snapshot of an Ultra or Premium v2 disk.
const FROM_SNAPSHOT_MOST: usize = 5;
/// Documented: disks at a time by instant access, of all snapshots of a disk.
const INSTANT_MOST: usize = 15;
/// Documented: Ultra and Premium v2 disks of a subscription that are being filled, or converted.
const FILLING_MOST: usize = 50;

/// A disk that is to be made.
pub(super) struct Asked<'a> {
    pub(super) id: &'a str,
    pub(super) location: &'a str,
    pub(super) body: &'a Value,
    pub(super) sku: &'static Sku,
    /// GiB, where the body says.
    pub(super) gib: Option<u64>,
}

/// Checks the source of a disk, gives the disk what it has of it, and says how large it becomes.
pub(super) fn plan(state: &State, asked: &Asked<'_>, properties: &mut Value) -> Result<Size, Fault> {
    let source = copy_source::find(state, "disk", asked.body, asked.location)?;
    let size = copy_source::size("disk", asked.gib, &source)?;
    let is_open = source["type"] == kinds::SNAPSHOT && instant_access::is_open(&source);
    if is_open {
        copy_source::check_stands(state, &source)?;
        instant_access::check_disk(&source, asked.sku, size.bytes)?;
    } else {
        copy_source::check_ready(state, &source)?;
    }
    check_zone(state, asked, &source)?;
    let full = source["type"] == kinds::SNAPSHOT && source["properties"]["incremental"] != true;
    if full && asked.sku.adjustable() {
        return Err(fault::full_snapshot_as_source(path::of(&source), asked.sku.name));
    }
    take_sectors(&source, asked.sku, &mut properties["creationData"])?;
    check_limits(state, asked, &source, is_open)?;
    copy_source::hand_down(properties, &source);
    if asked.sku.adjustable() {
        properties["completionPercent"] = json!(0);
    }
    Ok(size)
}

fn check_zone(state: &State, asked: &Asked<'_>, source: &Value) -> Result<(), Fault> {
    if source["type"] != kinds::DISK {
        return Ok(());
    }
    let zone = |doc: &Value| doc["zones"][0].as_str().map(str::to_owned);
    let (own, sources) = (zone(asked.body), zone(source));
    let differ = own != sources;
    if differ && (own.is_some() && sources.is_some() || state.switches.zonal_disk_stays_in_zone) {
        return Err(fault::source_in_another_zone(path::name_of(asked.id), path::of(source)));
    }
    Ok(())
}

/// A copy has the sectors of its source; those of what has no choice are of 512 bytes.
fn take_sectors(source: &Value, sku: &Sku, data: &mut Value) -> Result<(), Fault> {
    let bytes = source["properties"]["creationData"]["logicalSectorSize"].as_u64().unwrap_or(512);
    if bytes == 4096 && !sku.adjustable() {
        return Err(fault::sectors_of_source(path::of(source), sku.name));
    }
    if !sku.adjustable() {
        return Ok(());
    }
    match data.get("logicalSectorSize").filter(|asked| !asked.is_null()) {
        Some(asked) if *asked != bytes => Err(fault::other_sectors_than_source(asked, bytes)),
        _ => {
            data["logicalSectorSize"] = json!(bytes);
            Ok(())
        }
    }
}

fn check_limits(state: &State, asked: &Asked<'_>, source: &Value, is_open: bool) -> Result<(), Fault> {
    let id = path::of(source);
    if is_open {
        let family = &source["properties"]["incrementalSnapshotFamilyId"];
        let all = state.store.of_kind(kinds::SNAPSHOT);
        let open = all.filter(|doc| doc["properties"]["incrementalSnapshotFamilyId"] == *family);
        let made: usize = open.filter(|doc| instant_access::is_open(doc)).map(|doc| made_from(state, doc)).sum();
        if made >= INSTANT_MOST {
            return Err(fault::too_many_disks_by_instant_access(id, INSTANT_MOST));
        }
    } else if source["type"] == kinds::SNAPSHOT
        && source["properties"]["creationData"]["logicalSectorSize"].is_u64()
        && made_from(state, source) >= FROM_SNAPSHOT_MOST
    {
        return Err(fault::too_many_disks_of_snapshot(id, FROM_SNAPSHOT_MOST));
    }
    if asked.sku.adjustable() { check_filling(state, asked.id) } else { Ok(()) }
}

/// How many disks are being made from a snapshot.
fn made_from(state: &State, source: &Value) -> usize {
    let unique = &source["properties"]["uniqueId"];
    let is_made = |doc: &&Value| {
        doc["properties"]["creationData"]["sourceUniqueId"] == *unique
            && (copy_source::is_being_created(state, doc)
                || state.switches.filling_disk_counts && background_copy::runs(doc))
    };
    state.store.of_kind(kinds::DISK).filter(is_made).count()
}

/// Refuses one more disk to be filled or converted in the subscription of this one.
pub(super) fn check_filling(state: &State, id: &str) -> Result<(), Fault> {
    let subscription = path::subscription_of(id);
    let is_filled =
        |doc: &&Value| background_copy::runs(doc) && path::same(path::subscription_of(path::of(doc)), subscription);
    if state.store.of_kind(kinds::DISK).filter(is_filled).count() >= FILLING_MOST {
        return Err(fault::too_many_background_copies(FILLING_MOST));
    }
    Ok(())
}

/// How many times faster than usual a new disk is filled.
pub(super) fn speed(state: &State, disk: &Value) -> u32 {
    let source = disk["properties"]["creationData"]["sourceResourceId"].as_str();
    match source.and_then(|source| state.store.document(source)) {
        Some(source) if instant_access::is_open(&source) => background_copy::INSTANT,
        _ => 1,
    }
}
