//! The resources that exist, as the documents that Azure would show, and what lies behind them.
//!
//! The store keeps; it decides nothing. Reading through `Store::shown` honours the read-after-write
//! lag; the resource providers themselves look at the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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
}

/// One resource.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    /// The document as a GET shows it.
    pub(crate) doc: Value,
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
    /// The store's revision when this last changed.
    #[serde(skip)]
    pub(crate) revision: u64,
    /// Writes counted, for the seed of drawn latencies.
    #[serde(default)]
    pub(crate) writes: u64,
}

impl Resource {
    pub(crate) fn new(doc: Value) -> Self {
        Self {
            doc,
            etag: 1,
            busy: None,
            machine: None,
            next: None,
            signature_ends: None,
            alarm: None,
            revision: 0,
            writes: 0,
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

    pub(crate) fn set_provisioning(&mut self, state: &str) {
        self.doc["properties"]["provisioningState"] = json!(state);
    }

    pub(crate) fn provisioning(&self) -> &str {
        self.doc["properties"]["provisioningState"].as_str().unwrap_or("")
    }
}

/// An older version of a document, for the read-after-write lag.
#[derive(Clone, Debug)]
struct Version {
    until: Duration,
    doc: Option<Value>,
}

/// All resources.
#[derive(Clone, Debug, Default)]
pub struct Store {
    subscriptions: BTreeSet<String>,
    resources: BTreeMap<String, Resource>,
    /// Keys by type in lower case: a list of one type looks at nothing else.
    kinds: BTreeMap<String, BTreeSet<String>>,
    history: BTreeMap<String, Vec<Version>>,
    lag: Duration,
    /// Grows with every change; tells when to write the state file.
    revision: u64,
}

impl Store {
    pub(crate) fn new(lag: Duration) -> Self {
        Self { lag, ..Self::default() }
    }

    /// Every virtual machine's document, in the order of the ids.
    #[must_use]
    pub fn vms(&self) -> Vec<Value> {
        self.of_type("microsoft.compute/virtualmachines")
    }

    /// Every managed disk's document, in the order of the ids.
    #[must_use]
    pub fn disks(&self) -> Vec<Value> {
        self.of_type("microsoft.compute/disks")
    }

    /// One machine's document; letter case of the id does not matter.
    #[must_use]
    pub fn vm(&self, id: &str) -> Option<Value> {
        self.document(id)
    }

    /// One disk's document.
    #[must_use]
    pub fn disk(&self, id: &str) -> Option<Value> {
        self.document(id)
    }

    /// Any resource's document.
    #[must_use]
    pub fn document(&self, id: &str) -> Option<Value> {
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
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    fn of_type(&self, kind: &str) -> Vec<Value> {
        self.of_kind(kind).cloned().collect()
    }

    /// Documents of one type, in the order of the ids.
    pub(crate) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let keys = self.kinds.get(&kind.to_ascii_lowercase()).into_iter().flatten();
        keys.filter_map(|key| self.resources.get(key)).map(|resource| &resource.doc)
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
        let before = self.keeps_history().then(|| self.resources.get(&key).map(|r| r.doc.clone()));
        let resource = self.resources.get_mut(&key)?;
        let result = change(resource);
        self.revision += 1;
        resource.revision = self.revision;
        if let Some(before) = before {
            self.remember(key, before, now);
        }
        Some(result)
    }

    pub(crate) fn insert(&mut self, id: &str, mut resource: Resource, now: Duration) {
        let key = path::key(id);
        self.kinds.entry(kind_of(&resource.doc)).or_default().insert(key.clone());
        self.revision += 1;
        resource.revision = self.revision;
        let before = self.resources.insert(key.clone(), resource);
        if self.keeps_history() {
            self.remember(key, before.map(|r| r.doc), now);
        }
    }

    pub(crate) fn remove(&mut self, id: &str, now: Duration) -> Option<Resource> {
        let key = path::key(id);
        let before = self.resources.remove(&key)?;
        if let Some(keys) = self.kinds.get_mut(&kind_of(&before.doc)) {
            keys.remove(&key);
        }
        self.revision += 1;
        if self.keeps_history() {
            self.remember(key, Some(before.doc.clone()), now);
        }
        Some(before)
    }

    /// Ids of everything at and below an id, in order.
    pub(crate) fn below(&self, id: &str) -> Vec<String> {
        let key = path::key(id);
        let prefix = format!("{key}/");
        self.resources
            .iter()
            .filter(|(k, _)| **k == key || k.starts_with(&prefix))
            .map(|(_, resource)| resource.id().to_owned())
            .collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Resource)> {
        self.resources.iter()
    }

    /// A document as a reader sees it now.
    pub(crate) fn shown(&self, id: &str, now: Duration) -> Option<Value> {
        self.shown_ref(&path::key(id), now).cloned()
    }

    /// The same by key.
    pub(crate) fn shown_ref(&self, key: &str, now: Duration) -> Option<&Value> {
        match self.past(key, now) {
            Some(version) => version.doc.as_ref(),
            None => self.resources.get(key).map(|resource| &resource.doc),
        }
    }

    /// Keys of one type below a subscription or a group that a reader may see now, in order.
    pub(crate) fn keys_of(&self, scope: &str, kind: &str, now: Duration) -> Vec<&String> {
        let prefix = format!("{}/", path::key(scope));
        let known = self.kinds.get(&kind.to_ascii_lowercase());
        let mut keys: Vec<&String> = known.map(|keys| from(keys, &prefix)).unwrap_or_default();
        if self.history.is_empty() {
            return keys;
        }
        // With lag, what is there may not be seen yet, and what is gone may still be.
        keys.extend(self.history.keys().filter(|key| key.starts_with(&prefix)));
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| self.shown_ref(key, now).is_some_and(|doc| kind_of(doc).eq_ignore_ascii_case(kind)));
        keys
    }

    /// Documents of one type as a reader sees them now, in the order of the ids. `scope` is a
    /// subscription's or a group's id.
    pub(crate) fn listed(&self, scope: &str, kind: &str, now: Duration) -> Vec<Value> {
        self.keys_of(scope, kind, now).into_iter().filter_map(|key| self.shown_ref(key, now).cloned()).collect()
    }

    /// Documents of everything below a subscription or group as a reader sees them now, in the order of the ids.
    pub(crate) fn all_below(&self, scope: &str, now: Duration) -> Vec<&Value> {
        let prefix = format!("{}/", path::key(scope));
        let below = |key: &&String| key.starts_with(&prefix);
        let mut keys: BTreeSet<&String> = self.resources.keys().filter(below).collect();
        keys.extend(self.history.keys().filter(below));
        keys.into_iter().filter_map(|key| self.shown_ref(key, now)).collect()
    }

    fn keeps_history(&self) -> bool {
        !self.lag.is_zero()
    }

    fn remember(&mut self, key: String, doc: Option<Value>, now: Duration) {
        let until = now + self.lag;
        // What is gone leaves no version behind for ever.
        if self.history.len() > 1024 + 2 * self.resources.len() {
            self.history.retain(|_, versions| versions.iter().any(|version| version.until > now));
        }
        let versions = self.history.entry(key).or_default();
        versions.retain(|version| version.until > now);
        versions.push(Version { until, doc });
    }

    fn past(&self, key: &str, now: Duration) -> Option<&Version> {
        self.history.get(key)?.iter().find(|version| version.until > now)
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

/// The keys that begin with a prefix.
fn from<'a>(keys: &'a BTreeSet<String>, prefix: &str) -> Vec<&'a String> {
    let range = (Bound::Included(prefix), Bound::Unbounded);
    keys.range::<str, _>(range).take_while(|key| key.starts_with(prefix)).collect()
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
