//! Snapshots, what is made from them, clones and changed classes, by the controllers that a cluster has for them; and the
//! volumes of the driver that was in Kubernetes' own tree.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};

use super::{
    super::{azure::disk_id, cloud::NODES},
    CLAIMS, Cluster, DRIVER, PODS, VOLUMES, size_of,
};
use lazuli_test_cluster::{Drivers, node::IDLE};

const CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
pub(super) const ATTRIBUTES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const GIB: u64 = 1 << 30;

/// What a claim's bytes come from.
fn snapshot(name: &str) -> Value {
    json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name})
}

pub(super) fn volume(claim: &str) -> Value {
    json!({"kind": "PersistentVolumeClaim", "name": claim})
}

/// Writes a file so that the device has it.
pub(super) fn write(folder: &Path, text: &str) {
    fs::write(folder.join("letter"), text).unwrap();
    let folder = fs::File::open(folder).unwrap();
    rustix::fs::syncfs(&folder).unwrap();
}

pub(super) fn letter(folder: &Path) -> String {
    fs::read_to_string(folder.join("letter")).unwrap()
}

impl Cluster {
    pub(super) async fn claim_from(&self, name: &str, class: &str, gib: u32, source: Value) {
        let spec = json!({
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "dataSource": source,
            "resources": {"requests": {"storage": format!("{gib}Gi")}},
        });
        self.kubernetes.create(CLAIMS, json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// Makes a VolumeSnapshot of a claim, and waits until volumes can be made from it. Gives its handle.
    async fn snapshot(&mut self, name: &str, claim: &str) -> String {
        let spec = json!({"volumeSnapshotClassName": "snapshots", "source": {"persistentVolumeClaimName": claim}});
        let snapshot = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": name}, "spec": spec,
        });
        self.kubernetes.create(SNAPSHOTS, snapshot).await;
        let path = format!("{SNAPSHOTS}/{name}");
        let ready = |found: Option<&Value>| found.is_some_and(|found| found["status"]["readyToUse"] == true);
        let made = self.kubernetes.until("a snapshot that is ready", &path, ready).await;
        assert_eq!(made["status"]["restoreSize"], "1Gi", "{made:#}");
        let content = made["status"]["boundVolumeSnapshotContentName"].as_str().unwrap();
        let content = self.kubernetes.get(&format!("{CONTENTS}/{content}")).await.unwrap();
        content["status"]["snapshotHandle"].as_str().unwrap().to_owned()
    }

    async fn delete_snapshot(&mut self, name: &str) {
        self.kubernetes.delete(&format!("{SNAPSHOTS}/{name}")).await;
        self.kubernetes.until("the snapshot's end", &format!("{SNAPSHOTS}/{name}"), |found| found.is_none()).await;
    }

    /// The snapshots that Azure has.
    async fn snapshots(&self) -> BTreeSet<String> {
        let dump = self.azure.dump().await;
        let ids = dump["resources"].as_object().unwrap().keys();
        ids.filter(|id| id.contains("/microsoft.compute/snapshots/")).cloned().collect()
    }

    /// The disk of a claim, as Azure has it.
    async fn disk_of(&self, claim: &str) -> Value {
        let claim = self.kubernetes.get(&format!("{CLAIMS}/{claim}")).await.unwrap();
        let volume = claim["spec"]["volumeName"].as_str().unwrap();
        let volume = self.kubernetes.get(&format!("{VOLUMES}/{volume}")).await.unwrap();
        self.azure.resource(volume["spec"]["csi"]["volumeHandle"].as_str().unwrap()).await.unwrap()
    }

    async fn change_class(&self, claim: &str, class: &str) {
        let change = json!({"spec": {"volumeAttributesClassName": class}});
        self.kubernetes.patch(&format!("{CLAIMS}/{claim}"), change).await;
    }
}

/// The file systems of a disk, of what is made from its snapshot, and of its clone have one UUID, and are mounted on one
/// node at a time.
#[tokio::test]
async fn restored_and_cloned_bytes_are_there_beside_their_source() {
    let Some(mut cluster) = Cluster::start_empty(&[], "").await else { return };
    cluster.drivers = Drivers::DisksWithSnapshots;
    cluster.install_chart().await;
    let class = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "snapshots"},
        "driver": DRIVER, "deletionPolicy": "Delete",
    });
    cluster.kubernetes.create(CLASSES, class).await;
    // A mounted ext4 grows only by a right that tests need not have; the driver grows it as it grows any other claim.
    for (fs_type, gib) in [("ext4", 1), ("xfs", 2)] {
        let [source, restored, cloned] = ["source", "restored", "cloned"].map(|name| format!("{name}-{fs_type}"));
        cluster.claim(&source, fs_type, 1).await;
        cluster.pod(&source, NODES[0], &[&source]).await;
        let folder = cluster.running(&source, NODES[0]).await.remove(&source).unwrap();
        write(&folder, "before");
        let handle = cluster.snapshot(&source, &source).await;
        assert!(cluster.azure.resource(&handle).await.is_some(), "{handle} is no snapshot of Azure");
        write(&folder, "after");

        cluster.claim_from(&restored, fs_type, gib, snapshot(&source)).await;
        cluster.claim_from(&cloned, fs_type, 1, volume(&source)).await;
        cluster.pod(&restored, NODES[0], &[&restored, &cloned]).await;
        let folders = cluster.running(&restored, NODES[0]).await;
        assert_eq!(letter(&folders[&restored]), "before");
        assert_eq!(letter(&folders[&cloned]), "after");
        assert_eq!(letter(&folder), "after");
        // The file system of the larger disk has grown to it.
        let size = size_of(&folders[&restored]);
        assert!(size > u64::from(gib) * GIB * 3 / 4, "{size}");
        write(&folders[&restored], "its own");
        assert_eq!((letter(&folders[&cloned]), letter(&folder)), ("after".into(), "after".into()));

        // A disk outlives the snapshot that it was made from, and mounts elsewhere.
        cluster.delete_snapshot(&source).await;
        cluster.delete_pod(&restored).await;
        cluster.pod(&restored, NODES[1], &[&restored, &cloned]).await;
        let folders = cluster.running(&restored, NODES[1]).await;
        assert_eq!((letter(&folders[&restored]), letter(&folders[&cloned])), ("its own".into(), "after".into()));
        for pod in [&source, &restored] {
            cluster.delete_pod(pod).await;
        }
        for claim in [&source, &restored, &cloned] {
            cluster.delete_claim(claim).await;
        }
    }
    cluster.count("the end of all contents", CONTENTS, 0).await;
    assert_eq!(cluster.snapshots().await, BTreeSet::new(), "snapshots are left in Azure");
    cluster.finish().await;
}

#[tokio::test]
async fn a_class_of_attributes_changes_the_disk_of_a_claim() {
    let Some(mut cluster) = Cluster::start(&[]).await else { return };
    for (name, parameters) in [
        ("standard", json!({"skuName": "StandardSSD_LRS", "tags": "team=blue"})),
        ("impossible", json!({"DiskIOPSReadWrite": "5000"})),
    ] {
        let class = json!({"metadata": {"name": name}, "driverName": DRIVER, "parameters": parameters});
        cluster.kubernetes.create(ATTRIBUTES, class).await;
    }
    cluster.claim("data", "ext4", 1).await;
    cluster.pod("data", NODES[0], &["data"]).await;
    cluster.running("data", NODES[0]).await;
    // Azure changes the type of a disk only while it is detached.
    cluster.delete_pod("data").await;
    cluster.no_attachments().await;
    assert_eq!(cluster.disk_of("data").await["sku"]["name"], "Premium_LRS");

    cluster.change_class("data", "standard").await;
    let path = format!("{CLAIMS}/data");
    let changed = |claim: Option<&Value>| {
        claim.is_some_and(|claim| claim["status"]["currentVolumeAttributesClassName"] == "standard")
    };
    cluster.kubernetes.until("the claim's class", &path, changed).await;
    let disk = cluster.disk_of("data").await;
    assert_eq!((&disk["sku"]["name"], &disk["tags"]["team"]), (&json!("StandardSSD_LRS"), &json!("blue")));

    cluster.change_class("data", "impossible").await;
    let infeasible = |claim: Option<&Value>| {
        claim.is_some_and(|claim| claim["status"]["modifyVolumeStatus"]["status"] == "Infeasible")
    };
    cluster.kubernetes.until("the claim's refusal", &path, infeasible).await;
    // The way out is the class before.
    cluster.change_class("data", "standard").await;
    cluster.pod("data", NODES[1], &["data"]).await;
    cluster.running("data", NODES[1]).await;
    cluster.delete_pod("data").await;
    cluster.delete_claim("data").await;
    cluster.finish().await;
}

/// Kubernetes translates what names the driver of its own tree: a volume, and a disk that a pod names itself.
#[tokio::test]
async fn volumes_of_the_in_tree_driver_are_served() {
    let Some(mut cluster) = Cluster::start(&[]).await else { return };
    for disk in ["in-tree", "inline"] {
        cluster.azure.other_tool().await.make_disk(disk, 1).await;
    }
    let disk = |name: &str| json!({"kind": "Managed", "diskName": name, "diskURI": disk_id(name), "fsType": "ext4"});
    let spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
        "persistentVolumeReclaimPolicy": "Retain", "azureDisk": disk("in-tree"),
    });
    cluster.kubernetes.create(VOLUMES, json!({"metadata": {"name": "in-tree"}, "spec": spec})).await;
    let spec = json!({
        "storageClassName": "none", "volumeName": "in-tree", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    });
    cluster.kubernetes.create(CLAIMS, json!({"metadata": {"name": "in-tree"}, "spec": spec})).await;
    for node in NODES {
        cluster.pod("in-tree", node, &["in-tree"]).await;
        let spec = json!({
            "nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "inline", "azureDisk": disk("inline")}],
            "containers": [{
                "name": "c", "image": IDLE, "imagePullPolicy": "IfNotPresent",
                "volumeMounts": [{"name": "inline", "mountPath": "/inline"}],
            }],
        });
        cluster.kubernetes.create(PODS, json!({"metadata": {"name": "inline"}, "spec": spec})).await;
        let folder = cluster.running("in-tree", node).await.remove("in-tree").unwrap();
        if node == NODES[0] {
            write(&folder, "bytes");
        }
        assert_eq!(letter(&folder), "bytes");
        cluster.running("inline", node).await;
        assert_eq!(cluster.azure.attached().await.len(), 2);
        for pod in ["in-tree", "inline"] {
            cluster.delete_pod(pod).await;
        }
        cluster.no_attachments().await;
    }
    cluster.delete_claim("in-tree").await;
    cluster.kubernetes.until("the claim's end", &format!("{CLAIMS}/in-tree"), |claim| claim.is_none()).await;
    cluster.kubernetes.delete(&format!("{VOLUMES}/in-tree")).await;
    for disk in ["in-tree", "inline"] {
        cluster.azure.other_tool().await.delete_disk(disk).await;
    }
    cluster.finish().await;
}
