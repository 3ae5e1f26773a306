//! Containers and blobs as the store keeps them: documents of the emulator's own below their account, which no answer of the
//! resource manager shows, and which go with it.
//!
//! Ids are in lower case for the store, and names of blobs are not: an id has the bytes of a name as hexadecimal digits, whose
//! order is that of the names. A snapshot stands before its blob, as the service lists them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::conditions::Stand;
use super::files::Files;
use super::pages::{PAGE, PageMap};
use crate::leases::{self, Lease};
use crate::store::{Resource, Store};

/// The type of containers.
pub(super) const CONTAINER: &str = "lazuli/blobContainers";
/// The type of blobs and their snapshots.
pub(super) const BLOB: &str = "lazuli/blobs";

/// The first etag is the number of 100 ns since the year 1, as the service prints them.
const TICKS_AT_EPOCH: i128 = 621_355_968_000_000_000;

/// Metadata by name in lower case: HTTP keeps no other.
pub(super) type Metadata = BTreeMap<String, String>;

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) etag: u64,
    /// Nanoseconds of Unix time, as all moments here.
    pub(super) modified: i128,
    pub(super) metadata: Metadata,
    /// `container` or `blob`.
    pub(super) public_access: Option<String>,
    pub(super) lease: Option<Lease>,
    /// Until when a deleted one keeps its name.
    pub(super) deleted_until: Option<i128>,
}

/// What a blob is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum BlobType {
    Page,
    Block,
}

impl BlobType {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Page => "PageBlob",
            Self::Block => "BlockBlob",
        }
    }
}

/// A copy that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Copied {
    pub(super) id: String,
    pub(super) source: String,
    pub(super) at: i128,
}

/// A blob or a snapshot of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Blob {
    pub(super) name: String,
    /// The moment that names a snapshot.
    pub(super) snapshot: Option<String>,
    pub(super) blob_type: BlobType,
    pub(super) length: u64,
    /// The name of the file with its bytes.
    pub(super) file: String,
    pub(super) pages: PageMap,
    pub(super) sequence_number: u64,
    pub(super) etag: u64,
    pub(super) created: i128,
    pub(super) modified: i128,
    pub(super) metadata: Metadata,
    /// `content-type` and its like, by header.
    pub(super) content: BTreeMap<String, String>,
    pub(super) lease: Option<Lease>,
    pub(super) copied: Option<Copied>,
    /// Of one that is the device of a machine: when its file was written last, as far as has been seen. In nanoseconds
    /// of Unix time as the file system counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<i128>,
}

/// Brings what is told of a blob in line with what the machine that has it has written. Whether that is anything new.
pub(super) fn look_at_device(blobs: &Blobs, blob: &mut Blob) -> bool {
    let written = blobs.files.written(&blob.file);
    if blob.device.is_none() || written.is_none() || written == blob.device {
        return false;
    }
    blob.device = written;
    match blobs.files.data(&blob.file) {
        Ok(spans) => {
            blob.pages = PageMap::default();
            for (start, end) in spans {
                blob.pages.write((start / PAGE * PAGE, end.next_multiple_of(PAGE).min(blob.length)));
            }
        }
        Err(error) => tracing::warn!(file = blob.file, error = %error, "the pages of a blob cannot be told"),
    }
    true
}

fn stand(etag: u64, modified: i128) -> Stand {
    Stand { etag, modified: i64::try_from(modified / leases::SECOND).unwrap_or(i64::MAX) }
}

impl Container {
    pub(super) fn stand(&self) -> Stand {
        stand(self.etag, self.modified)
    }
}

impl Blob {
    pub(super) fn stand(&self) -> Stand {
        stand(self.etag, self.modified)
    }
}

/// Where the containers of an account are.
fn container_id(account: &str, name: &str) -> String {
    format!("{account}/blobContainers/{}", hex(name))
}

fn blob_id(container: &str, name: &str, snapshot: Option<&str>) -> String {
    let snapshot = snapshot.map_or_else(|| "~".to_owned(), hex);
    format!("{container}/blobs/{}/{snapshot}", hex(name))
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn read<T: DeserializeOwned>(resource: &Resource) -> Option<T> {
    // What this module has written it can read.
    serde_json::from_value(resource.doc["properties"].clone()).ok()
}

fn is_device(resource: &Resource) -> bool {
    resource.doc["properties"].get("device").is_some()
}

fn document(id: &str, name: &str, kind: &str, properties: &impl Serialize) -> Value {
    let properties = serde_json::to_value(properties).unwrap_or_default();
    json!({"id": id, "name": name, "type": kind, "properties": properties})
}

/// A blob of an account, in a container that is there.
pub(super) fn find(store: &Store, account: &str, container: &str, name: &str) -> Option<Blob> {
    store.get(&blob_id(&container_id(account, container), name, None)).and_then(read)
}

/// The containers and blobs of one account.
pub(super) struct Documents<'a> {
    pub(super) store: &'a mut Store,
    pub(super) blobs: &'a mut Blobs,
    /// The account's id.
    pub(super) account: &'a str,
    /// Since the start.
    pub(super) at: Duration,
}

impl Documents<'_> {
    pub(super) fn container(&self, name: &str) -> Option<Container> {
        self.store.get(&container_id(self.account, name)).and_then(read)
    }

    pub(super) fn put_container(&mut self, container: &Container) {
        let id = container_id(self.account, &container.name);
        self.put(&id, &container.name, CONTAINER, container);
    }

    /// In the order of their names.
    pub(super) fn containers(&self) -> Vec<Container> {
        self.store.below_of_kind(&format!("{}/blobContainers", self.account), CONTAINER).filter_map(read).collect()
    }

    /// Removes a container with all its blobs.
    pub(super) fn remove_container(&mut self, name: &str) {
        let id = container_id(self.account, name);
        for below in self.store.below(&id) {
            self.remove(&below);
        }
    }

    pub(super) fn blob(&self, container: &str, name: &str, snapshot: Option<&str>) -> Option<Blob> {
        self.store.get(&blob_id(&container_id(self.account, container), name, snapshot)).and_then(read)
    }

    pub(super) fn put_blob(&mut self, container: &str, blob: &Blob) {
        let id = blob_id(&container_id(self.account, container), &blob.name, blob.snapshot.as_deref());
        self.put(&id, &blob.name, BLOB, blob);
    }

    pub(super) fn remove_blob(&mut self, container: &str, blob: &Blob) {
        self.remove(&blob_id(&container_id(self.account, container), &blob.name, blob.snapshot.as_deref()));
    }

    /// All blobs and snapshots, in the order of their names; snapshots before their blob, the oldest first.
    pub(super) fn blobs(&self, container: &str) -> Vec<Blob> {
        self.store.below_of_kind(&container_id(self.account, container), BLOB).filter_map(read).collect()
    }

    /// The snapshots of a blob, the oldest first.
    pub(super) fn snapshots(&self, container: &str, name: &str) -> Vec<Blob> {
        let id = format!("{}/blobs/{}", container_id(self.account, container), hex(name));
        let all = self.store.below_of_kind(&id, BLOB).filter_map(read::<Blob>);
        all.filter(|blob| blob.snapshot.is_some()).collect()
    }

    /// Notes what machines have written to the blobs that are their devices. Unverified: a blob that its machine has
    /// written has another etag and date. Here they are those of the moment at which it is seen.
    pub(super) fn look_at_devices(&mut self, now: i128) {
        let devices = self.store.below_of_kind(self.account, BLOB).filter(|resource| is_device(resource));
        let found: Vec<(String, Blob)> =
            devices.filter_map(|resource| Some((resource.id().to_owned(), read(resource)?))).collect();
        for (id, mut blob) in found {
            if look_at_device(self.blobs, &mut blob) {
                blob.etag = self.blobs.next_etag(now);
                blob.modified = now;
                self.put(&id, &blob.name, BLOB, &blob);
            }
        }
    }

    fn put(&mut self, id: &str, name: &str, kind: &str, properties: &impl Serialize) {
        let doc = document(id, name, kind, properties);
        match self.store.contains(id) {
            true => {
                self.store.change(id, self.at, |resource| resource.doc = doc.into());
            }
            false => self.store.insert(id, Resource::new(doc), self.at),
        }
    }

    fn remove(&mut self, id: &str) {
        if let Some(removed) = self.store.remove(id, self.at) {
            self.blobs.forget(&removed.doc);
        }
    }
}

/// What lies behind the documents.
#[derive(Debug)]
pub(crate) struct Blobs {
    pub(super) files: Files,
    /// Etags grow over all blobs, so that none comes back.
    last_etag: u64,
}

impl Blobs {
    /// Nothing yet, beside a state file or in a temporary folder.
    pub(crate) fn new(state_file: Option<&Path>) -> Self {
        Self { files: Files::new(state_file), last_etag: 0 }
    }

    /// The next etag, at a moment.
    pub(super) fn next_etag(&mut self, now: i128) -> u64 {
        let ticks = u64::try_from(TICKS_AT_EPOCH + now / 100).unwrap_or(0);
        self.last_etag = ticks.max(self.last_etag + 1);
        self.last_etag
    }

    /// A document has gone: its file goes too, if it has one.
    pub(crate) fn forget(&self, doc: &Value) {
        if doc["type"] == BLOB
            && let Some(file) = doc["properties"]["file"].as_str()
        {
            self.files.remove(file);
        }
    }
}

/// Brings the files in line with the documents of a state file. A kill may have come between the two: a blob whose file is
/// missing was being deleted, and a file without a blob was being made or is that of a deletion.
pub(crate) fn adopt(store: &mut Store, blobs: &mut Blobs) -> io::Result<()> {
    let mut kept = Vec::new();
    let mut gone = Vec::new();
    for (key, resource) in store.iter() {
        match resource.doc["type"].as_str() {
            Some(CONTAINER) => {
                blobs.last_etag = blobs.last_etag.max(resource.doc["properties"]["etag"].as_u64().unwrap_or(0));
            }
            Some(BLOB) => match read::<Blob>(resource) {
                Some(blob) if blobs.files.adopt(&blob.file, blob.length)? => {
                    blobs.last_etag = blobs.last_etag.max(blob.etag);
                    kept.push(blob.file);
                }
                _ => gone.push(key.clone()),
            },
            _ => {}
        }
    }
    for key in gone {
        store.remove(&key, Duration::ZERO);
    }
    blobs.files.keep_only(|name| kept.iter().any(|kept| kept == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path;

    #[test]
    fn the_order_of_ids_is_that_of_names_with_snapshots_before_their_blob() {
        let ids = ["A", "a", "a/b", "a1", "b"].map(|name| {
            [Some("2026-01-01T00:00:00.0000000Z"), Some("2026-01-01T00:00:00.0000001Z"), None]
                .map(|snapshot| path::key(&blob_id("/c", name, snapshot)))
        });
        assert!(ids.concat().is_sorted(), "{ids:?}");
    }

    #[test]
    fn etags_grow_even_where_time_stands() {
        let mut blobs = Blobs::new(None);
        let first = blobs.next_etag(1_767_225_600 * leases::SECOND);
        assert_eq!(format!("{first:X}"), "8DE48C8B4F80000");
        assert_eq!(blobs.next_etag(1_767_225_600 * leases::SECOND), first + 1);
        assert_eq!(blobs.next_etag(0), first + 2);
    }
}
