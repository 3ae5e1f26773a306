//! What a new PersistentVolume gets: labels, node affinity, and the source that it should have had.
//!
//! # Labels
//!
//! The admission plugin PersistentVolumeLabel of Kubernetes, and after it an initializer of the cloud controllers, put
//! the region and the zone of the disk on its PersistentVolume: as labels, which the scheduler compares with those of
//! Nodes, and as node affinity. This does the same, and differs where they did harm:
//!
//! - A label or a node affinity that names a region or a zone stays as it is.
//! - No value is empty. A volume whose region is not known gets no label of a region (kubernetes#124525).
//! - A number alone is a fault domain, and never a zone. A disk without a zone gets no label of a zone.
//! - A volume that nodes without a zone can use too gets no label of a zone: the scheduler would keep it off them. Zone
//!   redundant disks are such, for Azure names no zone of theirs. Where a node affinity names several zones and no other
//!   place, they are joined by `__`, as the scheduler reads them.
//!
//! The zone comes from the volume's node affinity, where external-provisioner wrote it, and else from the disk.
//!
//! # Page blobs
//!
//! For a StorageClass with the in-tree provisioner, external-provisioner translates the volume that the driver made into
//! an `azureDisk` source, of the kind `Managed` whatever the disk is (source: csi-translation-lib 0.36, azure_disk.go).
//! The API server takes an `https` address with every kind but that one, so no volume of a page blob could be made.
//! Another kind does not help: the same library refuses to translate it back, so that the volume could be neither attached
//! nor deleted. What the API server takes and Kubernetes can use is the CSI source itself. A volume of a page blob with
//! the kind `Managed` therefore gets back the source that it was translated from, with the right kind.

use std::collections::BTreeSet;

use lazuli_model::{ArmId, BlobUri, Disk, DiskId, kube_name::is_label_value};
use serde_json::{Map, Value, json};

use super::{DRIVER, Patch, source};
use lazuli_volume::{
    AllowedResourceGroups, DISK_TOPOLOGY_KEY, WELL_KNOWN_TOPOLOGY_KEY, is_zone_label, region_label, zone_label,
};

/// The label and topology key of a region.
pub const REGION_KEY: &str = "topology.kubernetes.io/region";
/// The label and topology key of a zone.
pub const ZONE_KEY: &str = WELL_KNOWN_TOPOLOGY_KEY;

/// The keys of regions: the scheduler takes the older one too.
const REGION_KEYS: [&str; 2] = [REGION_KEY, "failure-domain.beta.kubernetes.io/region"];
/// The keys of zones.
const ZONE_KEYS: [&str; 3] = [ZONE_KEY, "failure-domain.beta.kubernetes.io/zone", DISK_TOPOLOGY_KEY];
/// What joins the zones of one label (source: kubernetes, volume helpers `LabelMultiZoneDelimiter`).
const ZONE_DELIMITER: &str = "__";

/// What becomes of a new PersistentVolume.
#[derive(Debug, Clone, PartialEq)]
pub enum Review {
    /// It gets these changes, of which there may be none.
    Changed(Vec<Patch>),
    /// That depends on this disk: see [`changes_by_disk`].
    ReadDisk(ArmId),
    /// That depends on this disk, which is not read, because the operator allows no disk in its resource group.
    NotAllowed {
        /// Which.
        disk: ArmId,
        /// A sentence that says what is allowed.
        why: String,
    },
}

/// Which disks reviews read: any client that reaches the webhook can name one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readable {
    /// Where the operator allows disks.
    pub allowed: AllowedResourceGroups,
    /// The subscription of the cluster.
    pub subscription: String,
    /// The resource group of the cluster.
    pub resource_group: String,
}

impl Readable {
    fn check(&self, disk: &ArmId) -> Result<(), String> {
        let cluster = (self.subscription.as_str(), self.resource_group.as_str());
        self.allowed.check((disk.subscription(), disk.resource_group()), cluster)
    }
}

/// Where a volume can be used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Place {
    /// The labels of the regions: none where the region is not known, and one region has one.
    regions: BTreeSet<String>,
    /// The labels of the zones, where it can be used in these alone.
    zones: BTreeSet<String>,
}

/// Reviews a new PersistentVolume. `region` is that of the cluster, for volumes that name no zone and no location.
#[must_use]
pub fn review(volume: &Value, region: &str, readable: &Readable) -> Review {
    match source(volume) {
        None => Review::Changed(Vec::new()),
        Some(DiskId::Blob(blob)) => Review::Changed(source_of_page_blob(volume, &blob)),
        Some(DiskId::Managed(disk)) => match place_of_affinity(volume) {
            Some(place) if place.regions.is_empty() => {
                let region = location(volume).unwrap_or(region);
                Review::Changed(changes(volume, &Place { regions: [region_label(region)].into(), ..place }))
            }
            Some(place) => Review::Changed(changes(volume, &place)),
            None => match readable.check(&disk) {
                Ok(()) => Review::ReadDisk(disk),
                Err(why) => Review::NotAllowed { disk, why },
            },
        },
    }
}

/// The changes of a new PersistentVolume, by its disk.
#[must_use]
pub fn changes_by_disk(volume: &Value, disk: &Disk) -> Vec<Patch> {
    let zones = disk.zones.iter().map(|number| zone_label(&disk.location, number));
    let zones = zones.filter(|label| is_zone_label(label)).collect();
    changes(volume, &Place { regions: [region_label(&disk.location)].into(), zones })
}

/// The region that the StorageClass named.
fn location(volume: &Value) -> Option<&str> {
    let attributes = volume.pointer("/spec/csi/volumeAttributes")?.as_object()?;
    let found = attributes.iter().find(|(key, _)| key.eq_ignore_ascii_case("location"))?;
    found.1.as_str().filter(|text| !text.is_empty())
}

/// The alternatives of the volume's node affinity.
fn terms(volume: &Value) -> &[Value] {
    let terms = volume.pointer("/spec/nodeAffinity/required/nodeSelectorTerms");
    terms.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn expressions(term: &Value) -> &[Value] {
    term["matchExpressions"].as_array().map_or(&[], Vec::as_slice)
}

fn is_one_of(key: &Value, keys: &[&str]) -> bool {
    key.as_str().is_some_and(|key| keys.contains(&key))
}

/// Where the volume can be used by its node affinity; `None` when that names no zone and no region.
fn place_of_affinity(volume: &Value) -> Option<Place> {
    let named = |keys: &[&str]| terms(volume).iter().flat_map(expressions).any(|one| is_one_of(&one["key"], keys));
    if !named(&REGION_KEYS) && !named(&ZONE_KEYS) {
        return None;
    }
    let values = |term: &Value, keys: &[&str]| -> Option<BTreeSet<String>> {
        let one = expressions(term).iter().find(|one| is_one_of(&one["key"], keys) && one["operator"] == "In")?;
        one["values"].as_array()?.iter().map(|value| value.as_str().map(str::to_ascii_lowercase)).collect()
    };
    // Of several terms one is enough: a volume is bound to zones when all of them are.
    let of_all = |keys: &[&str]| -> BTreeSet<String> {
        let all: Option<Vec<_>> = terms(volume).iter().map(|term| values(term, keys)).collect();
        all.unwrap_or_default().into_iter().flatten().collect()
    };
    let mut zones = of_all(&ZONE_KEYS);
    let mut regions = of_all(&REGION_KEYS);
    // Without a region of its own, that of the zones, of which some may stand for "no zone".
    if regions.is_empty() {
        let of_zone = |label: &String| is_zone_label(label).then(|| label.split('-').next().unwrap_or_default().into());
        regions = zones.iter().filter_map(of_zone).collect();
    }
    if !zones.iter().all(|label| is_zone_label(label)) {
        zones.clear();
    }
    Some(Place { regions, zones })
}

fn changes(volume: &Value, place: &Place) -> Vec<Patch> {
    let region = place.regions.first().filter(|region| place.regions.len() == 1 && is_label_value(region));
    let zones: Vec<&str> = place.zones.iter().map(String::as_str).collect();
    let joined = zones.join(ZONE_DELIMITER);
    let labels = volume.pointer("/metadata/labels").and_then(Value::as_object);
    let is_labelled = |keys: &[&str]| labels.is_some_and(|labels| keys.iter().any(|key| labels.contains_key(*key)));
    let mut wanted = Map::new();
    if let Some(region) = region.filter(|_| !is_labelled(&REGION_KEYS)) {
        wanted.insert(REGION_KEY.to_owned(), region.as_str().into());
    }
    // More zones than a label holds are in the node affinity alone.
    if is_label_value(&joined) && !is_labelled(&ZONE_KEYS) {
        wanted.insert(ZONE_KEY.to_owned(), joined.into());
    }
    let mut patches = match labels {
        _ if wanted.is_empty() => Vec::new(),
        None => vec![Patch::add("/metadata/labels", wanted.into())],
        Some(_) => {
            let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
            wanted
                .into_iter()
                .map(|(key, value)| Patch::add(format!("/metadata/labels/{}", escaped(&key)), value))
                .collect()
        }
    };
    if place_of_affinity(volume).is_none() {
        let requirement = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
        let of_region = region.map(|region| requirement(REGION_KEY, &[region]));
        let of_zones = (!zones.is_empty()).then(|| requirement(ZONE_KEY, &zones));
        patches.extend(affinity(volume, of_region.into_iter().chain(of_zones).collect()));
    }
    patches
}

/// Adds requirements to every term of the node affinity.
fn affinity(volume: &Value, requirements: Vec<Value>) -> Vec<Patch> {
    if requirements.is_empty() {
        return Vec::new();
    }
    let is_there = |pointer: &str| volume.pointer(pointer).is_some_and(|value| !value.is_null());
    let term = || json!({"matchExpressions": requirements});
    if !is_there("/spec/nodeAffinity") {
        return vec![Patch::add("/spec/nodeAffinity", json!({"required": {"nodeSelectorTerms": [term()]}}))];
    }
    if !is_there("/spec/nodeAffinity/required") {
        return vec![Patch::add("/spec/nodeAffinity/required", json!({"nodeSelectorTerms": [term()]}))];
    }
    let path = "/spec/nodeAffinity/required/nodeSelectorTerms";
    if terms(volume).is_empty() {
        return vec![Patch::add(path, json!([term()]))];
    }
    let mut patches = Vec::new();
    for (at, term) in terms(volume).iter().enumerate() {
        match term["matchExpressions"].as_array() {
            None => patches.push(Patch::add(format!("{path}/{at}/matchExpressions"), requirements.clone().into())),
            Some(_) => patches.extend(
                requirements.iter().map(|one| Patch::add(format!("{path}/{at}/matchExpressions/-"), one.clone())),
            ),
        }
    }
    patches
}

/// How the names of the accounts begin that the in-tree provisioner made for disks of the kind `Shared` (source:
/// Kubernetes 1.10, azure_blobDiskController.go).
const SHARED_ACCOUNT_PREFIX: &str = "ds";

/// Kubernetes' word for how the account of a blob is used. The address does not tell for certain, and no reader of a volume
/// depends on it: only the provisioner chose accounts by it.
fn kind(blob: &BlobUri) -> &'static str {
    if blob.account().starts_with(SHARED_ACCOUNT_PREFIX) { "Shared" } else { "Dedicated" }
}

/// The source from which a volume of a page blob was translated, where its kind is wrong.
fn source_of_page_blob(volume: &Value, blob: &BlobUri) -> Vec<Patch> {
    let Some(disk) = volume.pointer("/spec/azureDisk").filter(|disk| disk["kind"] == "Managed") else {
        return Vec::new();
    };
    let mut attributes = Map::new();
    attributes.insert("kind".to_owned(), kind(blob).into());
    for key in ["cachingMode", "fsType"] {
        if let Some(value) = disk[key].as_str().filter(|value| !value.is_empty()) {
            attributes.insert(key.to_owned(), value.into());
        }
    }
    let mut source = json!({"driver": DRIVER, "volumeHandle": blob.as_str(), "volumeAttributes": attributes});
    for key in ["fsType", "readOnly"] {
        if !disk[key].is_null() && disk[key] != "" {
            source[key] = disk[key].clone();
        }
    }
    vec![Patch::Remove { path: "/spec/azureDisk".to_owned() }, Patch::add("/spec/csi", source)]
}
