//! The resources that exist, as the documents that Azure would show, and what lies behind them.
//!
//! The store keeps; it decides nothing. Reading through `Store::shown` and `Store::list` honours the lags;
//! the resource providers themselves look at the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use crate::document::Document;

use crate::counted_changes::CountedChanges;
use crate::derived;
use crate::history::History;
use crate::path;

/// Whether a machine's hardware is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Power {
    /// `PowerState/running`.
    #[default]
    Running,
    /// `PowerState/stopped`: switched off, still on its host; disks stay attached.
    Stopped,
    /// `PowerState/deallocated`: no host; its disks are `Reserved`.
    Deallocated,
}

impl Power {
    /// The word after `PowerState/`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Deallocated => "deallocated",
        }
    }
}

/// What a machine's document does not show.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Machine {
    /// LUN to disk id: what the hypervisor really holds. Changes only when an operation ends.
    #[serde(default)]
    pub(crate) attached: BTreeMap<u8, String>,
    #[serde(default)]
    pub(crate) power: Power,
    /// The operation in flight.
    #[serde(skip)]
    pub(crate) busy: Option<String>,
    /// The word after `PowerState/` while a power action is in flight.
    #[serde(skip)]
    pub(crate) turning: Option<&'static str>,
    /// Id and document of the OS disk that comes with the end of the creation in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) os_disk: Option<(String, Value)>,
    /// Whether its kernel has NVMe multipath, which Azure does not know.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) nvme_multipath: bool,
}

/// One resource.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    /// The document as a GET shows it.
    pub(crate) doc: Document,
    /// The compute provider's etag; grows by one.
    #[serde(default)]
    pub(crate) etag: u64,
    /// Operation in flight on a resource that is no machine.
    #[serde(skip)]
    pub(crate) busy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<Machine>,
    /// The document at the end of the operation in flight, for those who find the state file only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<Value>,
    /// When the access signature that is out ends, in seconds of Unix time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signature_ends: Option<i64>,
    /// The alarm that is set for it.
    #[serde(skip)]
    pub(crate) alarm: Option<(Duration, u64)>,
    /// When the background copy that fills a snapshot or disk ends, in seconds of Unix time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copy_ends: Option<i64>,
    /// Changes of a disk that are counted.
    #[serde(default, skip_serializing_if = "CountedChanges::is_empty")]
    pub(crate) counted: CountedChanges,
    /// The store's revision when this last changed.
    #[serde(skip)]
    pub(crate) revision: u64,
    /// Writes counted, for the seed of drawn latencies.
    #[serde(default)]
    pub(crate) writes: u64,
    /// The number that a scale set gives to its next instance.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) next_instance: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Resource {
    pub(crate) fn new(doc: impl Into<Document>) -> Self {
        Self {
            doc: doc.into(),
            etag: 1,
            busy: None,
            machine: None,
            next: None,
            signature_ends: None,
            alarm: None,
            copy_ends: None,
            counted: CountedChanges::default(),
            revision: 0,
            writes: 0,
            next_instance: 0,
        }
    }

    /// The id as first spelt.
    pub(crate) fn id(&self) -> &str {
        self.doc.get("id").and_then(Value::as_str).unwrap_or("")
    }

    /// The name as first spelt.
    pub(crate) fn name(&self) -> &str {
        self.doc.get("name").and_then(Value::as_str).unwrap_or("")
    }

    /// Gives it an etag that is a number: also in the document, in the form that the header has. Recorded for machines.
    pub(crate) fn renumber(&mut self, etag: u64) {
        self.etag = etag;
        self.doc["etag"] = json!(format!("\"{etag}\""));
    }

    /// An operation begins that has the resource to itself.
    pub(crate) fn occupy(&mut self, operation: &str) {
        match &mut self.machine {
            Some(machine) => machine.busy = Some(operation.to_owned()),
            None => self.busy = Some(operation.to_owned()),
        }
    }

    pub(crate) fn set_provisioning(&mut self, state: &str) {
        self.doc["properties"]["provisioningState"] = json!(state);
    }

    pub(crate) fn provisioning(&self) -> &str {
        self.doc["properties"]["provisioningState"].as_str().unwrap_or("")
    }
}

/// How late what readers see is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lags {
    /// Of GETs, and of lists.
    pub(crate) read: Duration,
    /// Of each item of a list at most, on top of it.
    pub(crate) list: Duration,
    /// How late each item is follows from this, the item and the moment.
    pub(crate) seed: u64,
}

/// All resources.
#[derive(Clone, Debug, Default)]
pub struct Store {
    subscriptions: BTreeSet<String>,
    resources: BTreeMap<String, Resource>,
    /// Keys by type in lower case: a list of one type looks at nothing else.
    kinds: BTreeMap<String, BTreeSet<String>>,
    history: History,
    lags: Lags,
    /// Grows with every change; tells when to write the state file.
    revision: u64,
    /// Keys that have changed since [`Store::take_changes`], where there are followers.
    changed: Option<BTreeSet<String>>,
}

impl Store {
    pub(crate) fn new(lags: Lags) -> Self {
        Self { history: History::new(lags.read + lags.list), lags, ..Self::default() }
    }

    /// Every virtual machine's document, in the order of the ids.
    #[must_use]
    pub fn vms(&self) -> Vec<Document> {
        self.of_type("microsoft.compute/virtualmachines")
    }

    /// The documents of all virtual machines and of all instances of scale sets, in the order of the ids of each.
    #[must_use]
    pub fn machines(&self) -> Vec<Document> {
        let mut machines = self.vms();
        machines.extend(self.of_type("microsoft.compute/virtualmachinescalesets/virtualmachines"));
        machines
    }

    /// Every managed disk's document, in the order of the ids.
    #[must_use]
    pub fn disks(&self) -> Vec<Document> {
        self.of_type("microsoft.compute/disks")
    }

    /// Every snapshot's document, in the order of the ids.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Document> {
        self.of_type("microsoft.compute/snapshots")
    }

    /// One machine's document; letter case of the id does not matter.
    #[must_use]
    pub fn vm(&self, id: &str) -> Option<Document> {
        self.document(id)
    }

    /// One disk's document.
    #[must_use]
    pub fn disk(&self, id: &str) -> Option<Document> {
        self.document(id)
    }

    /// Any resource's document.
    #[must_use]
    pub fn document(&self, id: &str) -> Option<Document> {
        self.get(id).map(|resource| resource.doc.clone())
    }

    /// The disks that a machine's hypervisor holds now, by LUN.
    #[must_use]
    pub fn lun_map(&self, vm: &str) -> BTreeMap<u8, String> {
        self.get(vm)
            .and_then(|resource| resource.machine.as_ref())
            .map(|machine| machine.attached.clone())
            .unwrap_or_default()
    }

    /// The power state of a machine.
    #[must_use]
    pub fn power(&self, vm: &str) -> Option<Power> {
        self.get(vm)?.machine.as_ref().map(|machine| machine.power)
    }

    /// Grows with every change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The documents of one type, in the order of the ids; letter case of the type does not matter. `lazuli/blobContainers` and
    /// `lazuli/blobs` are the emulator's own types.
    #[must_use]
    pub fn of_type(&self, kind: &str) -> Vec<Document> {
        self.resources_of(kind).map(|resource| resource.doc.clone()).collect()
    }

    /// Documents of one type, in the order of the ids.
    pub(crate) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.resources_of(kind).map(|resource| &*resource.doc)
    }

    fn resources_of(&self, kind: &str) -> impl Iterator<Item = &Resource> {
        let keys = self.kinds.get(&kind.to_ascii_lowercase()).into_iter().flatten();
        keys.filter_map(|key| self.resources.get(key))
    }

    /// Resources of one type below an id, in the order of the ids.
    pub(crate) fn below_of_kind(&self, id: &str, kind: &str) -> impl Iterator<Item = &Resource> {
        let prefix = format!("{}/", path::key(id));
        let keys = self.kinds.get(&kind.to_ascii_lowercase());
        let keys = keys.map(|keys| keys.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded)));
        let keys: Vec<&String> = keys.into_iter().flatten().take_while(|key| key.starts_with(&prefix)).collect();
        keys.into_iter().filter_map(|key| self.resources.get(key))
    }

    /// How many there are of one type.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.kinds.get(&kind.to_ascii_lowercase()).map_or(0, BTreeSet::len)
    }

    pub(crate) fn add_subscription(&mut self, id: &str) {
        self.subscriptions.insert(id.to_ascii_lowercase());
    }

    /// Whether a subscription exists; where none was named, every one does.
    pub(crate) fn knows_subscription(&self, id: &str) -> bool {
        self.subscriptions.is_empty() || self.subscriptions.contains(&id.to_ascii_lowercase())
    }

    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = &String> {
        self.subscriptions.iter()
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Resource> {
        self.resources.get(&path::key(id))
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.resources.contains_key(&path::key(id))
    }

    /// Changes a resource; `now` is when readers with lag begin to see it.
    pub(crate) fn change<T>(&mut self, id: &str, now: Duration, change: impl FnOnce(&mut Resource) -> T) -> Option<T> {
        let key = path::key(id);
        let resource = self.resources.get_mut(&key)?;
        if let Some(changed) = &mut self.changed {
            changed.insert(key.clone());
        }
        let before = self.history.is_kept().then(|| resource.doc.clone());
        let result = change(resource);
        self.revision += 1;
        resource.revision = self.revision;
        if let Some(before) = before.filter(|before| !before.shares_with(&resource.doc)) {
            self.history.record(&key, Some(before), now);
        }
        Some(result)
    }

    pub(crate) fn insert(&mut self, id: &str, mut resource: Resource, now: Duration) {
        let key = path::key(id);
        self.note_change(&key);
        self.kinds.entry(kind_of(&resource.doc)).or_default().insert(key.clone());
        self.revision += 1;
        resource.revision = self.revision;
        if self.history.is_kept() {
            let before = self.resources.get(&key).map(|resource| resource.doc.clone());
            self.history.record(&key, before, now);
        }
        self.resources.insert(key, resource);
    }

    pub(crate) fn remove(&mut self, id: &str, now: Duration) -> Option<Resource> {
        let key = path::key(id);
        let before = self.resources.remove(&key)?;
        self.note_change(&key);
        if let Some(keys) = self.kinds.get_mut(&kind_of(&before.doc)) {
            keys.remove(&key);
        }
        self.revision += 1;
        if self.history.is_kept() {
            self.history.record(&key, Some(before.doc.clone()), now);
        }
        Some(before)
    }

    fn note_change(&mut self, key: &str) {
        if let Some(changed) = &mut self.changed {
            changed.insert(key.to_owned());
        }
    }

    /// Notes from now on what changes.
    pub(crate) fn note_changes(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// The keys of what has changed since the last time.
    pub(crate) fn take_changes(&mut self) -> BTreeSet<String> {
        self.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What exists now has always existed: no reader sees it come.
    pub(crate) fn forget_the_past(&mut self) {
        self.history.clear();
    }

    /// Ids of everything at and below an id, in order.
    pub(crate) fn below(&self, id: &str) -> Vec<String> {
        let prefix = format!("{}/", path::key(id));
        let below = self.resources.range::<str, _>((Bound::Excluded(prefix.as_str()), Bound::Unbounded));
        let below = below.take_while(|(key, _)| key.starts_with(&prefix)).map(|(_, resource)| resource);
        self.get(id).into_iter().chain(below).map(|resource| resource.id().to_owned()).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Resource)> {
        self.resources.iter()
    }

    /// A document as a GET shows it now.
    pub(crate) fn shown(&self, id: &str, now: Duration) -> Option<Document> {
        self.seen(&path::key(id), self.lags.read, now).cloned()
    }

    /// The documents below a subscription or a group, of one type or of all, as a list shows them now: keys and
    /// documents in the order of the keys, from after the key `after` on.
    pub(crate) fn list<'a>(
        &'a self,
        scope: &str,
        kind: Option<&'a str>,
        after: Option<&'a str>,
        now: Duration,
    ) -> impl Iterator<Item = (&'a str, &'a Document)> + use<'a> {
        let prefix = format!("{}/", path::key(scope));
        let from = match after {
            Some(after) if after >= prefix.as_str() => Bound::Excluded(after),
            _ => Bound::Included(prefix.as_str()),
        };
        let existing: Box<dyn Iterator<Item = &'a String>> = match kind {
            Some(kind) => {
                let keys = self.kinds.get(&kind.to_ascii_lowercase());
                Box::new(keys.map(|keys| keys.range::<str, _>((from, Bound::Unbounded))).into_iter().flatten())
            }
            None => Box::new(self.resources.range::<str, _>((from, Bound::Unbounded)).map(|(key, _)| key)),
        };
        // What is there may not be seen yet, and what is gone may still be.
        merged(existing, self.history.keys(from)).take_while(move |key| key.starts_with(&prefix)).filter_map(
            move |key| {
                let doc = self.seen(key, self.list_lag(key, now), now)?;
                let fits = kind.is_none_or(|kind| doc["type"].as_str().unwrap_or("").eq_ignore_ascii_case(kind));
                fits.then_some((key.as_str(), doc))
            },
        )
    }

    /// A document as it was so long ago.
    fn seen(&self, key: &str, ago: Duration, now: Duration) -> Option<&Document> {
        match self.history.before(key, ago, now) {
            Some(before) => before,
            None => self.resources.get(key).map(|resource| &resource.doc),
        }
    }

    /// How late a list shows an item at a moment.
    fn list_lag(&self, key: &str, now: Duration) -> Duration {
        if self.lags.list.is_zero() {
            return self.lags.read;
        }
        let millis = derived::hash(&format!("{}/list/{}/{key}", self.lags.seed, now.as_micros()));
        let most = u64::try_from(self.lags.list.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        self.lags.read + Duration::from_millis(millis % most)
    }

    pub(crate) fn import(&mut self, exported: Exported) {
        self.subscriptions.extend(exported.subscriptions);
        self.resources = exported.resources;
        self.kinds.clear();
        for (key, resource) in &mut self.resources {
            self.revision += 1;
            resource.revision = self.revision;
            self.kinds.entry(kind_of(&resource.doc)).or_default().insert(key.clone());
        }
        self.history.clear();
    }
}

fn kind_of(doc: &Value) -> String {
    doc["type"].as_str().unwrap_or("").to_ascii_lowercase()
}

/// Two ascending sequences as one, each key once.
fn merged<'a>(
    one: impl Iterator<Item = &'a String>,
    other: impl Iterator<Item = &'a String>,
) -> impl Iterator<Item = &'a String> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(a), Some(b)) if a == b => {
            other.next();
            one.next()
        }
        (Some(a), Some(b)) if a > b => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}

/// The store's contents as a file holds them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Exported {
    #[serde(default)]
    pub(crate) subscriptions: BTreeSet<String>,
    #[serde(default)]
    pub(crate) resources: BTreeMap<String, Resource>,
}
