//! What the page shows: all resources by type, the operations that run, the newest calls, and a few sums.
//!
//! The page asks once a second. It says which state it has seen, and gets the resources only when these have changed
//! since, and only the calls that it does not have.

mod caller;
mod network;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use self::network::{Index, NetworkPart};
use crate::arm::kinds;
use crate::call_log::{Call, Counters, LogSize};
use crate::incident::Listed;
use crate::latency::OperationKind;
use crate::path;
use crate::redact::redact;
use crate::state::{Shared, State};
use crate::store::Resource;

/// Rows of one type in an overview at most; the sum is always told. More than an engineer reads, and what a browser
/// can filter without a pause.
pub(crate) const ROWS_MOST: usize = 5_000;
/// Calls in an overview at most, the newest.
pub(crate) const CALLS_MOST: usize = 200;
/// Operations in an overview at most, those that end first.
pub(crate) const OPERATIONS_MOST: usize = 500;
/// Incidents in an overview at most, the newest first.
pub(crate) const INCIDENTS_MOST: usize = 50;
/// Properties that are shown of a resource whose type has no columns of its own.
const FACTS_MOST: usize = 6;
/// Shares that are listed with an account at most; the sum is always told.
const SHARES_MOST: usize = 50;

/// Properties that say nothing on one line: they have a column, are the same for all, or name parts of the resource.
const UNTOLD: [&str; 8] = ["etag", "id", "name", "primary", "provisioningState", "resourceGuid", "type", "uniqueId"];

const GROUPS: &str = "microsoft.resources/resourcegroups";
const VIRTUAL_MACHINES: &str = "microsoft.compute/virtualmachines";
const SCALE_SETS: &str = "microsoft.compute/virtualmachinescalesets";
const INSTANCES: &str = "microsoft.compute/virtualmachinescalesets/virtualmachines";
const DISKS: &str = "microsoft.compute/disks";
const ACCOUNTS: &str = "microsoft.storage/storageaccounts";
const SHARES: &str = "microsoft.storage/storageaccounts/fileservices/shares";
const DELETED_SHARES: &str = "microsoft.storage/storageaccounts/fileservices/deletedshares";
/// The state of a share that can come back.
const DELETED: &str = "deleted";
/// What stands between the id of an account and the names of its shares.
const FILE_SERVICE: &str = "/fileservices/";

/// What a page has seen already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The revision of the resources.
    pub(crate) revision: Option<u64>,
    /// The number of the newest call.
    pub(crate) call: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Overview {
    /// The same as long as the emulator runs.
    run: String,
    version: &'static str,
    /// Milliseconds of emulated time since the start.
    at_ms: u64,
    /// The emulated moment, in milliseconds of Unix time.
    now_unix_ms: i128,
    /// How much faster than real time emulated time passes.
    time_scale: f64,
    throttling: bool,
    hypervisor: &'static str,
    /// Grows with every change of a resource.
    revision: u64,
    /// None: nothing has changed since the revision that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<Vec<Type>>,
    running_operations: usize,
    operations: Vec<Running>,
    counters: Counters,
    log: LogSize,
    /// Oldest first.
    calls: Vec<LoggedCall>,
    incidents: Vec<Listed>,
    violations: usize,
}

/// The resources of one type.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Type {
    /// As Azure prints it.
    name: String,
    /// How many there are; no more than [`ROWS_MOST`] are listed.
    total: usize,
    rows: Vec<Row>,
}

/// A resource.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: String,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    location: String,
    /// Its provisioning state.
    state: String,
    /// Whether an operation works on it.
    busy: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    zone: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    sku: String,
    /// Name and value of each tag.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<MachineRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<AccountRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<ShareRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkPart>,
    /// Properties of other types, name and value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    facts: Vec<(String, String)>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MachineRow {
    power: &'static str,
    size: String,
    /// How many data disks its size can have; none of a size that no table has.
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
    luns: Vec<LunRow>,
}

/// A LUN of a machine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LunRow {
    lun: u64,
    /// The disk's name.
    disk: String,
    /// `attached`: hypervisor and model have it. `attaching`, `detaching`: one of them has it. `detach failed`: the
    /// model marks it as to be detached.
    state: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DiskRow {
    gib: u64,
    /// Azure's `diskState`.
    disk_state: String,
    /// The machines that hold it, by name, with the LUN of a data disk.
    machines: Vec<(String, Option<u8>)>,
    /// The claim for which a driver made it, as `namespace/name`, by its tags.
    claim: String,
    /// The PersistentVolume, by its tags.
    volume: String,
}

/// A storage account.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AccountRow {
    kind: String,
    /// How many shares it has, deleted ones included; no more than [`SHARES_MOST`] are listed.
    total: usize,
    shares: Vec<ShareRow>,
}

/// A file share.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShareRow {
    name: String,
    account: String,
    gib: u64,
    tier: String,
    /// `createdBy` of its metadata.
    made_by: String,
    /// `live`, or `deleted` while it can come back.
    state: &'static str,
}

/// An operation that runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Running {
    id: String,
    kind: OperationKind,
    resource: String,
    started_ms: u64,
    due_ms: u64,
    /// It waits for the hypervisor.
    held: bool,
}

/// A call without what no column shows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LoggedCall {
    number: u64,
    at_ms: u64,
    plane: String,
    method: String,
    path: String,
    operation: String,
    /// Who called, by its `User-Agent`.
    caller: String,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    incident: bool,
}

impl From<&Call> for LoggedCall {
    fn from(call: &Call) -> Self {
        Self {
            number: call.number,
            at_ms: call.at_ms,
            plane: call.plane.clone(),
            method: call.method.clone(),
            path: call.path.clone(),
            operation: call.operation.clone(),
            caller: caller::name(call.user_agent.as_deref().unwrap_or("")),
            status: call.status,
            code: call.code.clone(),
            latency_ms: call.latency_ms,
            incident: call.incident,
        }
    }
}

/// The overview for a page that has seen this.
pub(crate) fn overview(shared: &Shared, seen: Seen) -> Overview {
    let (at, now) = (shared.clock.elapsed(), shared.clock.now());
    let state = shared.state();
    let revision = state.store.revision();
    let mut calls: Vec<LoggedCall> =
        state.log.calls().rev().take_while(|call| call.number > seen.call).take(CALLS_MOST).map(Into::into).collect();
    calls.reverse();
    Overview {
        run: shared.clock.stamp(std::time::Duration::ZERO),
        version: env!("CARGO_PKG_VERSION"),
        at_ms: millis(at),
        now_unix_ms: now.as_nanosecond() / 1_000_000,
        time_scale: shared.options.time_scale,
        throttling: shared.options.throttling,
        hypervisor: shared.hypervisor.name(),
        revision,
        types: (seen.revision != Some(revision)).then(|| types(&state)),
        running_operations: state.operations.running(),
        operations: running(&state),
        counters: state.log.counters().clone(),
        log: state.log.size(),
        calls,
        incidents: state.incidents.list().iter().rev().take(INCIDENTS_MOST).cloned().collect(),
        violations: state.violations.len(),
    }
}

fn running(state: &State) -> Vec<Running> {
    let running = state.operations.iter_running().take(OPERATIONS_MOST).map(|operation| Running {
        id: operation.id.clone(),
        kind: operation.kind,
        resource: operation.resource.clone(),
        started_ms: millis(operation.started),
        due_ms: millis(operation.due),
        held: operation.is_held(),
    });
    running.collect()
}

fn types(state: &State) -> Vec<Type> {
    // Disk (lower-case id) to the machines that hold it as a data disk.
    let mut holders: BTreeMap<String, Vec<(String, Option<u8>)>> = BTreeMap::new();
    for (_, resource) in state.store.iter() {
        for (lun, disk) in resource.machine.iter().flat_map(|machine| &machine.attached) {
            holders.entry(path::key(disk)).or_default().push((resource.name().to_owned(), Some(*lun)));
        }
    }
    let shares = shares(state);
    let network = Index::of(state);
    let mut types: BTreeMap<String, Type> = BTreeMap::new();
    // What is outside of all subscriptions is the emulator's own.
    for (key, resource) in state.store.iter().filter(|(key, _)| key.starts_with("/subscriptions/")) {
        let name = text(&resource.doc["type"]);
        // Blobs and their containers are not ARM's.
        if name.starts_with(kinds::OWN) {
            continue;
        }
        let of_type =
            types.entry(name.to_ascii_lowercase()).or_insert_with(|| Type { name, total: 0, rows: Vec::new() });
        of_type.total += 1;
        if of_type.rows.len() < ROWS_MOST {
            of_type.rows.push(row(key, resource, &holders, &shares, &network));
        }
    }
    types.into_values().collect()
}

/// The shares of each account (lower-case id) by name, deleted ones behind the others.
fn shares(state: &State) -> BTreeMap<&str, Vec<ShareRow>> {
    let mut shares: BTreeMap<&str, Vec<ShareRow>> = BTreeMap::new();
    for (key, resource) in state.store.iter() {
        if let (Some(share), Some((account, _))) = (share(resource), key.split_once(FILE_SERVICE)) {
            shares.entry(account).or_default().push(share);
        }
    }
    for of_account in shares.values_mut() {
        of_account.sort_by(|one, other| (one.state == DELETED, &one.name).cmp(&(other.state == DELETED, &other.name)));
    }
    shares
}

/// A share as the page shows it; none of what is no share.
fn share(resource: &Resource) -> Option<ShareRow> {
    let doc = &*resource.doc;
    let state = match text(&doc["type"]).to_ascii_lowercase().as_str() {
        SHARES => "live",
        DELETED_SHARES => DELETED,
        _ => return None,
    };
    let account = resource.id().split('/').rev().nth(4).unwrap_or_default();
    let mut metadata = doc["properties"]["metadata"].clone();
    redact(&mut metadata);
    let made_by = metadata.as_object().into_iter().flatten().find(|(name, _)| name.eq_ignore_ascii_case("createdBy"));
    Some(ShareRow {
        name: text(&doc["name"]),
        account: account.to_owned(),
        gib: doc["properties"]["shareQuota"].as_u64().unwrap_or(0),
        tier: text(&doc["properties"]["accessTier"]),
        made_by: made_by.map(|(_, by)| text(by)).unwrap_or_default(),
        state,
    })
}

fn row(
    key: &str,
    resource: &Resource,
    holders: &BTreeMap<String, Vec<(String, Option<u8>)>>,
    shares: &BTreeMap<&str, Vec<ShareRow>>,
    network: &Index,
) -> Row {
    let doc = &*resource.doc;
    let properties = &doc["properties"];
    let kind = text(&doc["type"]).to_ascii_lowercase();
    let mut tags = doc["tags"].clone();
    redact(&mut tags);
    let mut row = Row {
        id: resource.id().to_owned(),
        name: resource.name().to_owned(),
        // A group is in no group.
        group: if kind == GROUPS { String::new() } else { path::group_of(resource.id()).to_owned() },
        location: text(&doc["location"]),
        state: resource.provisioning().to_owned(),
        busy: resource.busy.is_some() || resource.machine.as_ref().is_some_and(|machine| machine.busy.is_some()),
        zone: text(&doc["zones"][0]),
        sku: text(&doc["sku"]["name"]),
        tags: tags.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect(),
        ..Row::default()
    };
    row.network = network.part(&kind, doc);
    match kind.as_str() {
        _ if row.network.is_some() => {}
        VIRTUAL_MACHINES | INSTANCES => row.machine = machine(resource),
        DISKS => {
            let mut machines = holders.get(key).cloned().unwrap_or_default();
            if machines.is_empty()
                && let Some(owner) = doc["managedBy"].as_str()
            {
                // An OS disk, or a data disk of a machine that is deallocated.
                machines.push((path::name_of(owner).to_owned(), None));
            }
            row.disk = Some(DiskRow {
                gib: properties["diskSizeGB"].as_u64().unwrap_or(0),
                disk_state: text(&properties["diskState"]),
                machines,
                claim: claim(&row.tags),
                volume: tag(&row.tags, "kubernetes.io-created-for-pv-name"),
            });
        }
        ACCOUNTS => {
            let of_account = shares.get(key).map(Vec::as_slice).unwrap_or_default();
            row.account = Some(AccountRow {
                kind: text(&doc["kind"]),
                total: of_account.len(),
                shares: of_account.iter().take(SHARES_MOST).cloned().collect(),
            });
        }
        SHARES | DELETED_SHARES => row.share = share(resource),
        _ => {
            let mut properties = properties.clone();
            redact(&mut properties);
            if kind == SCALE_SETS {
                row.facts.push(("capacity".to_owned(), text(&doc["sku"]["capacity"])));
                // The rest tells what an instance is made of.
                let own = ["orchestrationMode", "upgradePolicy", "platformFaultDomainCount"];
                properties = own.iter().map(|member| ((*member).to_owned(), properties[*member].take())).collect();
            }
            collect_facts("", &properties, &mut row.facts);
        }
    }
    row
}

/// The value of a tag, in any letter case; nothing without it.
fn tag(tags: &BTreeMap<String, String>, name: &str) -> String {
    tags.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone()).unwrap_or_default()
}

/// The claim that the drivers of Kubernetes name in the tags of a disk.
fn claim(tags: &BTreeMap<String, String>) -> String {
    let of = |what: &str| tag(tags, &format!("kubernetes.io-created-for-pvc-{what}"));
    [of("namespace"), of("name")].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("/")
}

fn machine(resource: &Resource) -> Option<MachineRow> {
    let machine = resource.machine.as_ref()?;
    let properties = &resource.doc["properties"];
    let mut luns: BTreeMap<u64, LunRow> = BTreeMap::new();
    for (lun, disk) in &machine.attached {
        let lun = u64::from(*lun);
        // In the model it is looked for below.
        luns.insert(lun, LunRow { lun, disk: path::name_of(disk).to_owned(), state: "detaching" });
    }
    for element in properties["storageProfile"]["dataDisks"].as_array().into_iter().flatten() {
        let (Some(lun), Some(disk)) = (element["lun"].as_u64(), element["managedDisk"]["id"].as_str()) else {
            continue;
        };
        let disk = path::name_of(disk);
        let held = luns.get(&lun).is_some_and(|row| row.disk.eq_ignore_ascii_case(disk));
        let state = match (held, element["toBeDetached"] == true) {
            (true, true) => "detach failed",
            (true, false) => "attached",
            (false, _) => "attaching",
        };
        luns.insert(lun, LunRow { lun, disk: disk.to_owned(), state });
    }
    Some(MachineRow {
        power: machine.turning.unwrap_or(machine.power.word()),
        size: crate::sizes::of_machine(&resource.doc).to_owned(),
        slots: crate::sizes::find(crate::sizes::of_machine(&resource.doc)).map(|size| size.max_data_disks.into()),
        luns: luns.into_values().collect(),
    })
}

/// The first properties that say something on one line: scalars, wherever they stand, by their own name; of ids the
/// last part; of several parts, such as rules, their number.
fn collect_facts(name: &str, value: &Value, facts: &mut Vec<(String, String)>) {
    if facts.len() == FACTS_MOST || UNTOLD.contains(&name) {
        return;
    }
    match value {
        Value::Null | Value::Bool(false) => {}
        Value::String(word) if word.is_empty() || word == "Disabled" => {}
        Value::Array(items) if items.len() > 1 && items.iter().all(Value::is_object) => {
            facts.push((name.to_owned(), items.len().to_string()));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_facts(name, item, facts)),
        Value::Object(members) => members.iter().for_each(|(name, member)| collect_facts(name, member, facts)),
        Value::String(id) if id.starts_with("/subscriptions/") => {
            let kind = id.rsplit('/').nth(1).unwrap_or(name);
            facts.push((kind.to_owned(), path::name_of(id).to_owned()));
        }
        scalar => facts.push((name.to_owned(), text(scalar))),
    }
}

/// A scalar as people read it.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
