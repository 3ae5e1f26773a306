//! VHD blob disks in the life of a cluster in which one machine has a VHD as its system disk and the other a managed disk: the
//! three kinds of classes, a volume that a person wrote, and the way to a managed disk.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use super::{
    super::{
        cloud::{NODES, text},
        process::Folder,
    },
    CLAIMS, Cluster, DRIVER, VOLUMES, size_of,
    snapshots::{letter, volume, write},
};
use lazuli_test_cluster::Drivers;

const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
/// The node whose machine takes VHDs and no managed disks, and the one that takes these and no VHDs.
const OLD: &str = NODES[0];
const NEW: &str = NODES[1];
/// The account that a class names.
const NAMED: &str = "azuretest01";

fn scenario() -> Value {
    json!({"virtualMachines": [{"name": OLD, "osDisk": {"storageAccount": "system1"}}, {"name": NEW}]})
}

impl Cluster {
    /// The VHD of a claim.
    async fn vhd_of(&self, claim: &str) -> String {
        let claim = self.kubernetes.get(&format!("{CLAIMS}/{claim}")).await.unwrap();
        let volume = claim["spec"]["volumeName"].as_str().unwrap();
        let volume = self.kubernetes.get(&format!("{VOLUMES}/{volume}")).await.unwrap();
        volume["spec"]["csi"]["volumeHandle"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn claims_of_each_kind_get_their_bytes_grow_and_become_managed_disks() {
    let folder = Folder::make();
    let file = folder.path().join("scenario.json");
    fs::write(&file, scenario().to_string()).unwrap();
    let Some(mut cluster) = Cluster::start_empty(&["--scenario", &text(&file)], "").await else { return };
    cluster.drivers = Drivers::DisksWithBlobs;
    cluster.install_chart().await;
    cluster.azure.other_tool().await.make_account(NAMED).await;
    for (name, parameter) in [
        // A mounted ext4 grows only by a right that tests need not have.
        ("shared", json!({"kind": "Shared", "skuName": "Standard_LRS", "csi.storage.k8s.io/fstype": "xfs"})),
        ("dedicated", json!({"kind": "Dedicated", "storageaccounttype": "Standard_LRS", "cachingMode": "None"})),
        ("named", json!({"storageAccount": NAMED})),
    ] {
        let class = json!({
            "metadata": {"name": name}, "provisioner": DRIVER, "allowVolumeExpansion": true, "parameters": parameter,
        });
        cluster.kubernetes.create(CLASSES, class).await;
        cluster.claim(name, name, 1).await;
    }
    let claims = ["shared", "dedicated", "named"];
    cluster.pod("writer", OLD, &claims).await;
    let folders = cluster.running("writer", OLD).await;
    for claim in claims {
        write(&folders[claim], claim);
    }
    let mut accounts = Vec::new();
    for (claim, prefix) in [("shared", "ds"), ("dedicated", "dd"), ("named", NAMED)] {
        let vhd = cluster.vhd_of(claim).await;
        let account = vhd.strip_prefix("https://").and_then(|rest| rest.split('.').next()).unwrap().to_owned();
        assert!(account.starts_with(prefix), "{vhd}");
        accounts.push(account);
    }
    assert_eq!(cluster.recorded().await, cluster.azure.attached().await);
    cluster.delete_pod("writer").await;
    cluster.no_attachments().await;

    // Azure resizes a VHD while no machine has it; the file system follows when it is mounted.
    let path = format!("{CLAIMS}/shared");
    cluster.kubernetes.patch(&path, json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})).await;
    let resized = |claim: Option<&Value>| {
        claim.is_some_and(|claim| claim["status"]["allocatedResourceStatuses"]["storage"] == "NodeResizePending")
    };
    cluster.kubernetes.until("the growth of the VHD", &path, resized).await;
    cluster.pod("reader", OLD, &claims).await;
    let folders = cluster.running("reader", OLD).await;
    for claim in claims {
        assert_eq!(letter(&folders[claim]), claim);
    }
    let size = size_of(&folders["shared"]);
    assert!(size > 3 << 29, "{size}");
    cluster.delete_pod("reader").await;
    cluster.no_attachments().await;

    // A managed disk has the bytes, on the machine that takes no VHD.
    cluster.claim_from("imported", "xfs", 2, volume("shared")).await;
    cluster.pod("imported", NEW, &["imported"]).await;
    let folders = cluster.running("imported", NEW).await;
    assert_eq!(letter(&folders["imported"]), "shared");
    cluster.delete_pod("imported").await;
    cluster.delete_claim("imported").await;

    // The VHD outlives its claim's volume, and is used by one that a person wrote. Kubernetes itself translates no volume
    // of its old driver, and no volume that a pod names, of the kinds Dedicated and Shared.
    let uri = cluster.vhd_of("dedicated").await;
    let claimed = cluster.kubernetes.get(&format!("{CLAIMS}/dedicated")).await.unwrap();
    let own = format!("{VOLUMES}/{}", claimed["spec"]["volumeName"].as_str().unwrap());
    cluster.kubernetes.patch(&own, json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})).await;
    cluster.delete_claim("dedicated").await;
    cluster.kubernetes.until("the claim's end", &format!("{CLAIMS}/dedicated"), |claim| claim.is_none()).await;
    cluster.kubernetes.delete(&own).await;
    cluster.kubernetes.until("the volume's end", &own, |volume| volume.is_none()).await;
    let source = json!({"driver": DRIVER, "volumeHandle": uri, "fsType": "ext4"});
    let spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
        "persistentVolumeReclaimPolicy": "Delete", "csi": source,
    });
    let metadata = json!({"name": "static", "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}});
    cluster.kubernetes.create(VOLUMES, json!({"metadata": metadata, "spec": spec})).await;
    let spec = json!({
        "storageClassName": "none", "volumeName": "static", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    });
    cluster.kubernetes.create(CLAIMS, json!({"metadata": {"name": "static"}, "spec": spec})).await;
    cluster.pod("static", OLD, &["static"]).await;
    let folders = cluster.running("static", OLD).await;
    assert_eq!(letter(&folders["static"]), "dedicated");
    cluster.delete_pod("static").await;

    for claim in ["static", "shared", "named"] {
        cluster.delete_claim(claim).await;
    }
    cluster.count("the end of all volumes", VOLUMES, 0).await;
    // The account of one disk is gone with it; the pool's and the named one stay.
    let left = BTreeSet::from([accounts[0].clone(), accounts[2].clone()]);
    assert_eq!(cluster.azure.blobs_and_accounts().await, (BTreeSet::new(), left));
    cluster.finish().await;
}
