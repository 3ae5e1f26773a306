//! Snapshots of disks: full and incremental ones, and copies of them in other regions.
//!
//! Recorded: the operations and the members of a finished document. Documented: where the rules below come from, at
//! each; that an attached disk can have snapshots. Unverified: that one in an edge zone is `Standard_LRS` unless asked for.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::base::{DISK_VERSIONS, RESOURCE, post};
use super::copy_source::{self, Size};
use super::disk_work::{creation_step, facts};
use super::snapshot_family::{created, family, family_of};
use super::{background_copy, disk_access, disk_rules, instant_access, snapshot_copy};
use crate::answer::{Context, Reply};
use crate::arm::descriptor::{Begun, Descriptor, Draft, Exceeded, Hooks, Own, Quota};
use crate::arm::protocol::{Answered, Latency, Patch, Schema, Shape};
use crate::arm::{engine, kinds, regions, writes};
use crate::disk_skus;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::path;
use crate::state::{HypervisorStep, State};

/// Documented (disks-incremental-snapshots): of one disk, at any time.
const INCREMENTAL_MOST: usize = 500;
/// Documented (disks-incremental-snapshots): of one disk in [`WINDOW`].
const INCREMENTAL_IN_WINDOW: usize = 7;
const WINDOW: SignedDuration = SignedDuration::from_mins(5);
/// Documented (disks-incremental-snapshots, disks-instant-access-snapshots): of one Ultra or Premium v2 disk, while their
/// content is being copied.
const PENDING_MOST: usize = 3;
/// Documented (disks-incremental-snapshots): snapshots of one family with a signature.
const SIGNATURES_MOST: usize = 5;

const SCHEMA: Schema = Schema { name: "Snapshot", root: "snapshot" };

pub(crate) static SNAPSHOT: Descriptor = Descriptor {
    kind: kinds::SNAPSHOT,
    path: "snapshots",
    api_versions: DISK_VERSIONS,
    latency: Latency { write: OperationKind::Snapshot, delete: OperationKind::SnapshotDelete },
    schema: SCHEMA,
    layout: &["name", "id", "type", "location", "extendedLocation", "tags", "sku", "properties"],
    patch: Patch::Merge { operation: "update", schema: SCHEMA, answered: Answered::new(202, Shape::Both) },
    quotas: &[
        quota("StandardSnapshotCount", "StandardStorageSnapshots", |doc| doc["sku"]["name"] == "Standard_LRS"),
        quota("PremiumSnapshotCount", "PremiumStorageSnapshots", |doc| doc["sku"]["name"] == "Premium_LRS"),
        quota("ZRSSnapshotCount", "ZrsStorageSnapshots", |doc| doc["sku"]["name"] == "Standard_ZRS"),
    ],
    hooks: Hooks {
        name: |_, name| disk_rules::check_name("snapshot.name", name),
        complete,
        accepted,
        deletable,
        begun: |context, old, new| Ok(Begun::with(steps(context.state, old, new))),
        settle: keep_progress,
        changed,
        ..Hooks::NONE
    },
    own: Own { put: Some(put), ..Own::NONE },
    routes: &[
        post("begingetaccess", "snapshots.grantAccess", |context| disk_access::begin_if(context, refuse_access)),
        post("endgetaccess", "snapshots.revokeAccess", disk_access::end),
    ],
    ..RESOURCE
};

/// Names and default as in usage lists that subscriptions printed: 75,000 of each SKU in a region.
const fn quota(name: &'static str, local_name: &'static str, counts: fn(&Value) -> bool) -> Quota {
    let fault = |over: &Exceeded<'_>| fault::quota(over.name, over.location, over.limit, over.used, 1);
    Quota { name, local_name, limit: 75_000, counts, fault }
}

/// PUT: the engine's, and the copy that goes on after a creation. Recorded: the answer to a change shows the SKU and
/// the size in bytes as well.
fn put(context: &mut Context<'_>) -> Reply {
    let id = SNAPSHOT.id(context);
    let old = context.state.store.document(&id);
    let mut answer = engine::put::put(&SNAPSHOT, context)?;
    match (old, &answer.started) {
        (Some(old), _) => answer.body.change(|shown| {
            let sku = shown.get("sku").unwrap_or(&old["sku"]).clone();
            shown["sku"] = sku;
            shown["properties"]["diskSizeBytes"] = old["properties"]["diskSizeBytes"].clone();
        }),
        (None, Some((_, latency))) => {
            background_copy::begin(context, &id, context.now + *latency, 1);
            let start = context.shared.clock.at(Duration::ZERO);
            instant_access::end_later(context.state, &id, start);
        }
        (None, None) => {}
    }
    Ok(answer)
}

/// Refuses the deletion of a snapshot that is in use.
fn deletable(context: &Context<'_>, doc: &Value) -> Result<(), Fault> {
    disk_access::refuse_delete(doc)?;
    refuse_while_source(context, doc)
}

/// Refuses the deletion of a snapshot from which something is being created. Unverified; what becomes of background
/// copies is documented, but not that nothing refuses the deletion.
fn refuse_while_source(context: &Context<'_>, doc: &Value) -> Result<(), Fault> {
    let (state, id) = (&*context.state, path::of(doc));
    let keeps_filled = !context.shared.options.unverified.filled_source_deletable;
    let made = |made: &&Value| {
        let from = made["properties"]["creationData"]["sourceResourceId"].as_str();
        let is_filled = keeps_filled && made["type"] == kinds::DISK && background_copy::runs(made);
        from.is_some_and(|from| path::same(from, id)) && (is_filled || copy_source::is_being_created(state, made))
    };
    let others = state.store.of_kind(kinds::DISK).chain(state.store.of_kind(kinds::SNAPSHOT)).find(made);
    let copies = || snapshot_copy::copies_of(state, id).next();
    let user = match context.shared.options.unverified.copy_source_deletable {
        true => others,
        false => others.or_else(copies),
    };
    match user {
        Some(user) => Err(fault::snapshot_being_copied(path::name_of(id), path::of(user))),
        None => Ok(()),
    }
}

/// Refuses a signature for a snapshot: one that cannot be read yet, one more of a family, and one to write.
fn refuse_access(state: &State, doc: &Value, body: &Value) -> Result<(), Fault> {
    if body["access"] != "Read" {
        return Err(fault::snapshot_is_read_only(path::name_of(path::of(doc))));
    }
    copy_source::check_ready(state, doc)?;
    let family = &doc["properties"]["incrementalSnapshotFamilyId"];
    let open = |other: &&Value| {
        let properties = &other["properties"];
        properties["diskState"] == "ActiveSAS"
            && properties["incrementalSnapshotFamilyId"] == *family
            && !path::same(path::of(other), path::of(doc))
    };
    if family.is_string() && state.store.of_kind(kinds::SNAPSHOT).filter(open).count() >= SIGNATURES_MOST {
        return Err(fault::too_many_signatures(SIGNATURES_MOST));
    }
    Ok(())
}

fn complete(draft: &Draft<'_>) -> Result<Value, Fault> {
    match draft.old {
        Some(old) => change(draft, old),
        None => create(draft),
    }
}

/// The properties that a caller sets, besides `creationData`, `incremental` and the size.
const SETTABLE: [&str; 12] = [
    "osType",
    "hyperVGeneration",
    "purchasePlan",
    "supportedCapabilities",
    "encryptionSettingsCollection",
    "encryption",
    "networkAccessPolicy",
    "diskAccessId",
    "securityProfile",
    "supportsHibernation",
    "publicNetworkAccess",
    "dataAccessAuthMode",
];

fn size_of(asked: &Value) -> Result<Option<u64>, Fault> {
    let Some(size) = asked.get("diskSizeGB") else {
        return Ok(None);
    };
    let gib = size.as_u64().filter(|gib| (1..=65_536).contains(gib));
    gib.map(Some).ok_or_else(|| fault::out_of_range("snapshot.diskSizeGB", size.to_string(), "1", "65536"))
}

/// A new snapshot. Documented members; the size is the source's.
fn create(draft: &Draft<'_>) -> Result<Value, Fault> {
    let asked = draft.asked();
    let data = &asked["creationData"];
    if data.is_null() {
        return Err(fault::missing_parameter("snapshot.creationData"));
    }
    let given = size_of(asked)?;
    let option = data["createOption"].as_str().unwrap_or("");
    let mut properties = writes::with(json!({"creationData": data}), &SETTABLE, asked);
    let mut incremental = draft.flag("incremental");
    let mut source: Option<Document> = None;
    let size = match option {
        "Copy" | "CopyStart" => {
            let found = if option == "Copy" {
                let found = copy_source::find(draft.state, "snapshot", draft.body, draft.location)?;
                copy_source::check_ready(draft.state, &found)?;
                found
            } else {
                // Unverified: a copy of an incremental snapshot is one, also where the body does not say so.
                incremental = asked["incremental"] != false;
                snapshot_copy::source(draft, incremental)?
            };
            copy_source::hand_down(&mut properties, &found);
            let from = &found["properties"]["creationData"];
            properties["creationData"] = writes::with(properties["creationData"].take(), &["logicalSectorSize"], from);
            let size = copy_source::size("snapshot", given, &found)?;
            source = Some(found);
            size
        }
        // Recorded in a public tracker (azure-powershell#13053).
        "Empty" => Size::whole(given.ok_or_else(|| fault::missing_parameter("snapshot.diskSizeGB"))?),
        "Import" => {
            if data["sourceUri"].as_str().is_none() {
                return Err(fault::missing_parameter("snapshot.creationData.sourceUri"));
            }
            // Unverified: an imported blob's size is not known here; 30 GiB stands for it.
            Size::whole(given.unwrap_or(30))
        }
        _ => {
            return Err(fault::invalid_parameter(
                "snapshot.creationData.createOption",
                format!(
                    "The value '{option}' of parameter 'snapshot.creationData.createOption' is not allowed in a request."
                ),
            ));
        }
    };
    let family = match &source {
        Some(source) if incremental => Some(family_of(source)),
        _ => None,
    };
    let sku = sku(draft, incremental, family.as_deref())?;
    if let Some(source) = &source {
        check_kind(draft, source, option, incremental)?;
        inherit_protection(&mut properties, source);
    }
    disk_rules::protect("snapshot", &mut properties)?;
    let is_of_adjustable = incremental && source.as_deref().is_some_and(is_adjustable);
    let copied = option == "CopyStart" || is_of_adjustable;
    let minutes = instant_access::minutes(data, is_of_adjustable)?;
    if let Some(disk) = source.as_deref().filter(|disk| minutes.is_some() && background_copy::runs(disk)) {
        return Err(fault::instant_access_of_filling_disk(path::of(disk)));
    }
    properties["diskSizeGB"] = json!(size.gib);
    properties["incremental"] = json!(incremental);
    if let Some(family) = family {
        properties["incrementalSnapshotFamilyId"] = json!(family);
    }
    if copied || incremental {
        // Documented (disks-incremental-snapshots): those of other disks always show 100.
        properties["completionPercent"] = json!(if copied { 0 } else { 100 });
    }
    let service = json!({
        "timeCreated": draft.stamp,
        "diskState": "Unattached",
        "diskSizeBytes": size.bytes,
        "uniqueId": draft.guid,
        "snapshotAccessState": instant_access::first_state(copied, minutes),
    });
    Ok(json!({"sku": sku, "properties": writes::with_others(properties, &service)}))
}

/// Documented: snapshots of a disk that is encrypted with a customer's key are encrypted with it.
fn inherit_protection(properties: &mut Value, source: &Value) {
    const MEMBERS: [&str; 2] = ["encryption", "encryptionSettingsCollection"];
    let inherited = writes::with(json!({}), &MEMBERS, &source["properties"]);
    *properties = writes::with_others(properties.take(), &inherited);
}

/// Whether a source is an Ultra or Premium v2 disk.
fn is_adjustable(source: &Value) -> bool {
    source["sku"]["name"].as_str().and_then(disk_skus::find).is_some_and(disk_skus::Sku::adjustable)
}

/// The SKU. Documented: what a full snapshot is not asked to be is `Standard_LRS`; an incremental one has the SKU of
/// the one before it, or else is zone-redundant where the region has zones, and is never Premium.
fn sku(draft: &Draft<'_>, incremental: bool, of: Option<&str>) -> Result<Value, Fault> {
    let zonal = regions::has_zones(draft.location) && copy_source::edge_zone(draft.body).is_empty();
    let last = of.and_then(|of| family(draft.state, of, draft.location).max_by_key(|doc| created(doc)));
    let usual = match last.and_then(|doc| doc["sku"]["name"].as_str()) {
        Some(last) => last,
        None if incremental && zonal => "Standard_ZRS",
        None => "Standard_LRS",
    };
    let name = draft.body["sku"]["name"].as_str().unwrap_or(usual);
    check_sku(name, zonal, incremental)
}

fn check_sku(name: &str, zonal: bool, incremental: bool) -> Result<Value, Fault> {
    let known: &[&str] =
        if zonal { &["Premium_LRS", "Standard_LRS", "Standard_ZRS"] } else { &["Premium_LRS", "Standard_LRS"] };
    let Some(name) = known.iter().find(|known| known.eq_ignore_ascii_case(name)) else {
        return Err(fault::snapshot_sku_unavailable(name, known.join(",")));
    };
    if incremental && *name == "Premium_LRS" {
        return Err(fault::incremental_is_standard(name));
    }
    Ok(json!({"name": name, "tier": if *name == "Premium_LRS" { "Premium" } else { "Standard" }}))
}

/// Whether a source may have a snapshot of this kind. Documented (disks-incremental-snapshots).
fn check_kind(draft: &Draft<'_>, source: &Value, option: &str, incremental: bool) -> Result<(), Fault> {
    let id = path::of(source);
    if source["type"] != kinds::DISK {
        return Ok(());
    }
    if !incremental {
        let sku = source["sku"]["name"].as_str().unwrap_or("");
        return if is_adjustable(source) { Err(fault::only_incremental(id, sku)) } else { Ok(()) };
    }
    if option == "Copy" && !path::same(path::subscription_of(id), path::subscription_of(draft.id)) {
        return Err(fault::snapshot_in_another_subscription(id));
    }
    let unique = &source["properties"]["uniqueId"];
    let of_disk = |doc: &&Value| {
        doc["properties"]["incremental"] == true && doc["properties"]["creationData"]["sourceUniqueId"] == *unique
    };
    let all: Vec<&Value> = draft.state.store.of_kind(kinds::SNAPSHOT).filter(of_disk).collect();
    if all.len() >= INCREMENTAL_MOST {
        return Err(fault::too_many_snapshots(id, INCREMENTAL_MOST));
    }
    let now = draft.stamp.parse::<Timestamp>().ok();
    let recent =
        |doc: &&&Value| matches!((now, created(doc)), (Some(now), Some(made)) if now.duration_since(made) < WINDOW);
    if all.iter().filter(recent).count() >= INCREMENTAL_IN_WINDOW {
        return Err(fault::snapshots_too_fast(id, INCREMENTAL_IN_WINDOW));
    }
    if is_adjustable(source) && snapshot_copy::pending_of(draft.state, source).count() >= PENDING_MOST {
        return Err(fault::too_many_pending_snapshots(id, PENDING_MOST));
    }
    Ok(())
}

/// A snapshot that exists. What was not asked for stays.
fn change(draft: &Draft<'_>, old: &Value) -> Result<Value, Fault> {
    let (asked, had) = (draft.asked(), &old["properties"]);
    for (member, value) in writes::object(&asked["creationData"]) {
        let have = &had["creationData"][&member];
        let same = have == &value || matches!((have.as_str(), value.as_str()), (Some(a), Some(b)) if path::same(a, b));
        if !same {
            return Err(fault::source_changed(member, draft.name));
        }
    }
    for fixed in ["incremental", "hyperVGeneration"] {
        if asked.get(fixed).is_some_and(|value| had.get(fixed).is_some_and(|have| have != value)) {
            return Err(fault::property_change(fixed));
        }
    }
    let least = had["diskSizeGB"].as_u64().unwrap_or(0);
    let gib = size_of(asked)?.unwrap_or(least);
    if gib < least {
        return Err(fault::cannot_shrink(draft.id));
    }
    let mut size = Size::of(old);
    if gib > least {
        disk_access::refuse_growth(old)?;
        size = Size::whole(gib);
    }
    let mut properties = writes::with(had.clone(), &SETTABLE, asked);
    disk_rules::protect("snapshot", &mut properties)?;
    properties["diskSizeGB"] = json!(size.gib);
    properties["diskSizeBytes"] = json!(size.bytes);
    if let Some(object) = properties.as_object_mut() {
        object.shift_remove("provisioningState");
    }
    let name = draft.body["sku"]["name"].as_str().or(old["sku"]["name"].as_str()).unwrap_or("Standard_LRS");
    let sku = check_sku(name, regions::has_zones(draft.location), had["incremental"] == true)?;
    if properties["encryption"] != had["encryption"] && background_copy::runs(old) {
        return Err(fault::encryption_while_copied(draft.id));
    }
    Ok(json!({"sku": sku, "properties": properties}))
}

/// The body of the 202: what was asked. Recorded.
fn accepted(doc: &Value, body: &Value, _: Option<&Value>) -> Value {
    let shown = writes::with(json!({}), &["name", "id", "type", "location"], doc);
    let mut shown = writes::with(shown, &["extendedLocation", "tags", "sku", "properties"], body);
    shown["properties"]["provisioningState"] = json!("Updating");
    shown
}

/// What the hypervisor does during a write.
pub(crate) fn steps(state: &State, old: Option<&Value>, new: Option<&Value>) -> Vec<HypervisorStep> {
    match (old, new) {
        (None, Some(new)) => vec![creation_step(state, new)],
        (Some(old), None) => vec![HypervisorStep::Delete { disk: facts(old) }],
        (Some(old), Some(new)) if old["properties"]["diskSizeBytes"] != new["properties"]["diskSizeBytes"] => {
            vec![HypervisorStep::Resize { disk: facts(new) }]
        }
        _ => Vec::new(),
    }
}

/// A write ends: what went on beside it, such as the background copy, is as it is by now.
fn keep_progress(state: &mut State, doc: &mut Value, _: Duration) -> Result<(), Fault> {
    const BESIDE: [&str; 4] = ["completionPercent", "copyCompletionError", "diskState", "snapshotAccessState"];
    if let Some(current) = state.store.document(path::of(doc)) {
        doc["properties"] = writes::with(doc["properties"].take(), &BESIDE, &current["properties"]);
    }
    Ok(())
}

fn changed(state: &mut State, old: Option<&Value>, new: Option<&Value>, at: Duration) {
    if let (Some(old), None) = (old, new) {
        snapshot_copy::fail_copies_of(state, path::of(old), at);
    }
}
