//! What Azure says at one moment, parsed from the emulator's documents by code of this tier's own.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_emulator::{Control, store::Store};
use serde_json::{Value, json};

/// A data disk in a machine's model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Element {
    pub(super) disk: String,
    pub(super) leaving: bool,
    /// Everything else that is said of it.
    pub(super) terms: Value,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Machine {
    /// The model: LUN to element.
    pub(super) listed: BTreeMap<u8, Element>,
    /// How many elements the model has; more than `listed` when two share a LUN.
    pub(super) elements: usize,
    /// The hypervisor: LUN to disk.
    pub(super) held: BTreeMap<u8, String>,
    pub(super) provisioning: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct DiskFacts {
    pub(super) managed_by: Option<String>,
    pub(super) gib: i64,
    pub(super) provisioning: String,
    /// Made by the driver, as the tag says.
    pub(super) ours: bool,
    pub(super) sku: String,
    pub(super) zone: Option<String>,
    pub(super) iops: Option<u64>,
    pub(super) mbps: Option<u64>,
    pub(super) tier: Option<String>,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) content: Content,
    /// How much of the content is there, where it comes after the disk.
    pub(super) percent: Option<u64>,
    /// What there is besides of one that is a VHD in a page blob.
    pub(super) blob: Option<BlobFacts>,
    /// The volume of whose VHD it is made.
    pub(super) imported: Option<String>,
}

/// A page blob.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BlobFacts {
    pub(super) uri: String,
    pub(super) account: String,
    pub(super) etag: u64,
    pub(super) length: u64,
    pub(super) is_leased: bool,
    /// The size that it has grown from, whose footer has not been cleared yet.
    pub(super) grown_from: Option<u64>,
}

/// A storage account that a driver has made for disks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AccountFacts {
    /// The volume that it was made for alone.
    pub(super) of: Option<String>,
    /// Whether there is anything in it besides the container of disks.
    pub(super) has_others: bool,
}

/// Whose content a disk or a snapshot has.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Content {
    pub(super) unique_id: String,
    /// The unique id of what it was copied from.
    pub(super) from: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct SnapshotFacts {
    pub(super) ours: bool,
    pub(super) location: String,
    pub(super) gib: i64,
    pub(super) content: Content,
    /// How much of the content is there, where it comes after the snapshot.
    pub(super) percent: Option<u64>,
    /// What can be done with it, as Azure says.
    pub(super) access: String,
    /// Its content will never come.
    pub(super) failed: bool,
    pub(super) provisioning: String,
}

impl DiskFacts {
    /// Whether it has all of its content.
    pub(super) fn is_filled(&self) -> bool {
        self.percent.is_none_or(|percent| percent == 100)
    }
}

impl SnapshotFacts {
    fn of(doc: &Value) -> Self {
        let properties = &doc["properties"];
        Self {
            ours: is_ours(doc),
            location: text(&doc["location"]),
            gib: properties["diskSizeGB"].as_i64().unwrap_or_default(),
            content: Content::of(doc),
            percent: properties["completionPercent"].as_u64(),
            access: text(&properties["snapshotAccessState"]),
            provisioning: text(&properties["provisioningState"]),
            failed: properties.get("copyCompletionError").is_some() || properties["provisioningState"] == "Failed",
        }
    }

    /// Whether it has all of its content.
    pub(super) fn is_complete(&self) -> bool {
        !self.failed && self.percent.is_none_or(|percent| percent == 100)
    }
}

impl Content {
    fn of(doc: &Value) -> Self {
        let data = &doc["properties"]["creationData"];
        let from = data["sourceUniqueId"].as_str().or(data["sourceUri"].as_str());
        Self { unique_id: text(&doc["properties"]["uniqueId"]), from: from.map(str::to_lowercase) }
    }
}

fn is_ours(doc: &Value) -> bool {
    doc["tags"]["k8s-azure-created-by"] == "kubernetes-azure-dd"
}

fn tags(doc: &Value) -> BTreeMap<String, String> {
    let tags = doc["tags"].as_object().into_iter().flatten();
    tags.map(|(name, value)| (name.to_lowercase(), value.as_str().unwrap_or_default().to_owned())).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_lowercase()
}

/// Machines, disks and snapshots by name in lower case. A VHD has the name of its blob, without the ending.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Facts {
    pub(super) machines: BTreeMap<String, Machine>,
    pub(super) disks: BTreeMap<String, DiskFacts>,
    pub(super) snapshots: BTreeMap<String, SnapshotFacts>,
    pub(super) accounts: BTreeMap<String, AccountFacts>,
    /// The addresses of VHDs of whose names there is another disk.
    pub(super) doubles: Vec<String>,
}

/// The name of a resource or of a VHD.
pub(super) fn name_of(id: &str) -> String {
    let name = id.rsplit('/').next().unwrap_or(id).to_lowercase();
    name.strip_suffix(".vhd").unwrap_or(&name).to_owned()
}

/// The name of the account below which a document is.
fn account_of(doc: &Value) -> String {
    let id = text(&doc["id"]);
    let below = id.split("/storageaccounts/").nth(1).unwrap_or_default();
    below.split('/').next().unwrap_or_default().to_owned()
}

fn uri_of(account: &str, name: &str) -> String {
    format!("https://{account}.blob.core.windows.net/vhds/{name}")
}

impl BlobFacts {
    fn of(doc: &Value) -> Self {
        let (account, properties) = (account_of(doc), &doc["properties"]);
        Self {
            uri: uri_of(&account, properties["name"].as_str().unwrap_or_default()),
            account,
            etag: properties["etag"].as_u64().unwrap_or_default(),
            length: properties["length"].as_u64().unwrap_or_default(),
            is_leased: properties["lease"].is_object(),
            grown_from: properties["metadata"]["lazuligrownfrom"].as_str().and_then(|bytes| bytes.parse().ok()),
        }
    }

    /// What a disk of it has besides.
    fn disk(self, doc: &Value) -> DiskFacts {
        let metadata = &doc["properties"]["metadata"];
        let machine = metadata["microsoftazurecompute_vmname"].as_str().map(str::to_lowercase);
        DiskFacts {
            managed_by: machine.filter(|_| self.is_leased),
            gib: i64::try_from(self.length.saturating_sub(512) >> 30).unwrap_or_default(),
            provisioning: "Succeeded".to_owned(),
            ours: metadata["createdby"] == "k8sAzureDataDisk",
            sku: String::new(),
            zone: None,
            iops: None,
            mbps: None,
            tier: None,
            tags: BTreeMap::new(),
            content: Content { unique_id: self.uri.to_lowercase(), from: None },
            percent: None,
            blob: Some(self),
            imported: None,
        }
    }
}

impl Facts {
    pub(super) fn read(control: &Control) -> Self {
        control.store(|store| {
            let machines = store.vms().into_iter().map(|doc| {
                let id = doc["id"].as_str().unwrap_or_default();
                let held = store.lun_map(id).into_iter().map(|(lun, disk)| (lun, name_of(&disk))).collect();
                (name_of(id), machine(&doc, held))
            });
            let disks = store.disks().into_iter().filter(|doc| !doc["properties"]["osType"].is_string()).map(|doc| {
                let facts = DiskFacts {
                    managed_by: doc["managedBy"].as_str().map(name_of),
                    gib: doc["properties"]["diskSizeGB"].as_i64().unwrap_or_default(),
                    provisioning: doc["properties"]["provisioningState"].as_str().unwrap_or_default().to_owned(),
                    ours: is_ours(&doc),
                    sku: doc["sku"]["name"].as_str().unwrap_or_default().to_owned(),
                    zone: doc["zones"][0].as_str().map(str::to_owned),
                    iops: doc["properties"]["diskIOPSReadWrite"].as_u64(),
                    mbps: doc["properties"]["diskMBpsReadWrite"].as_u64(),
                    tier: doc["properties"]["tier"].as_str().map(str::to_owned),
                    tags: tags(&doc),
                    content: Content::of(&doc),
                    percent: doc["properties"]["completionPercent"].as_u64(),
                    blob: None,
                    imported: doc["properties"]["creationData"]["sourceUri"].as_str().map(name_of),
                };
                (name_of(doc["id"].as_str().unwrap_or_default()), facts)
            });
            let snapshots = store.snapshots().into_iter();
            let snapshots =
                snapshots.map(|doc| (name_of(doc["id"].as_str().unwrap_or_default()), SnapshotFacts::of(&doc)));
            let (machines, snapshots) = (machines.collect(), snapshots.collect());
            let mut facts = Self { machines, disks: disks.collect(), snapshots, ..Self::default() };
            facts.add_blobs(store);
            facts
        })
    }

    fn add_blobs(&mut self, store: &Store) {
        let mut others: BTreeSet<String> = store
            .of_type("Microsoft.Storage/storageAccounts/fileServices/shares")
            .iter()
            .map(|doc| account_of(doc))
            .collect();
        for doc in store.of_type("lazuli/blobs") {
            let blob = BlobFacts::of(&doc);
            let disk = blob.clone().disk(&doc);
            if !disk.ours {
                others.insert(blob.account);
                continue;
            }
            if let Some(other) = self.disks.insert(name_of(&blob.uri), disk) {
                self.doubles.push(format!("{} and {other:?}", blob.uri));
            }
        }
        for doc in store.of_type("Microsoft.Storage/storageAccounts") {
            if doc["tags"]["created-by"] == "azure-dd" {
                let name = text(&doc["name"]);
                let of = doc["tags"]["lazuli-blob-disk"].as_str().map(name_of);
                self.accounts.insert(name.clone(), AccountFacts { of, has_others: others.contains(&name) });
            }
        }
    }

    /// Whether Azure is to change something by itself: content is being copied in the background, or a snapshot gives
    /// instant access for a while, and makes no larger disks until that is over.
    pub(super) fn goes_on(&self) -> bool {
        let limited = |snapshot: &SnapshotFacts| snapshot.access == "availablewithinstantaccess";
        let mut snapshots = self.snapshots.values().filter(|snapshot| !snapshot.failed);
        snapshots.any(|snapshot| !snapshot.is_complete() || limited(snapshot))
            || self.disks.values().any(|disk| !disk.is_filled())
    }

    /// Where the hypervisors hold a disk.
    pub(super) fn holders(&self, disk: &str) -> Vec<(&str, u8)> {
        let machines = self.machines.iter();
        machines
            .flat_map(|(vm, machine)| {
                let luns = machine.held.iter().filter(|(_, held)| *held == disk);
                luns.map(|(lun, _)| (vm.as_str(), *lun))
            })
            .collect()
    }

    /// The slot where a machine's model lists a disk, and whether the disk leaves it.
    pub(super) fn listed(&self, vm: &str, disk: &str) -> Option<(u8, bool)> {
        let machine = self.machines.get(vm)?;
        let element = machine.listed.iter().find(|(_, element)| element.disk == disk)?;
        Some((*element.0, element.1.leaving))
    }

    /// The machines whose models list a disk.
    pub(super) fn listing(&self, disk: &str) -> Vec<&str> {
        let machines = self.machines.keys().map(String::as_str);
        machines.filter(|vm| self.listed(vm, disk).is_some()).collect()
    }
}

fn machine(doc: &Value, held: BTreeMap<u8, String>) -> Machine {
    let list = doc["properties"]["storageProfile"]["dataDisks"].as_array().cloned().unwrap_or_default();
    let elements = list.len();
    let listed = list.into_iter().filter_map(|mut element| {
        let lun = u8::try_from(element["lun"].as_u64()?).ok()?;
        let disk = name_of(element["managedDisk"]["id"].as_str().or(element["vhd"]["uri"].as_str())?);
        let leaving = element["toBeDetached"] == json!(true);
        if let Some(object) = element.as_object_mut() {
            object.remove("toBeDetached");
        }
        Some((lun, Element { disk, leaving, terms: element }))
    });
    Machine {
        listed: listed.collect(),
        elements,
        held,
        provisioning: doc["properties"]["provisioningState"].as_str().unwrap_or_default().to_owned(),
    }
}
