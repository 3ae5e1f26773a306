//! `lazuli doctor` on file shares, against an Azure and an API server.

use clap::Parser;
use lazuli_rig::cluster::Cluster;
use serde_json::{Value, json};

use super::super::{Options, examined};
use crate::cli::{
    storage_accounts::fixtures::{delete_share, make_account, make_share, snapshot},
    terminal::Screen,
};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
}

async fn doctor(cluster: &Cluster) -> (String, bool) {
    let words = ["doctor".to_owned()].into_iter().chain(cluster.arguments());
    Box::pin(examined(&Command::parse_from(words).options, Screen::default())).await
}

fn volume(cluster: &Cluster, name: &str, handle: &str, attributes: Value) {
    let csi = json!({"driver": "file.csi.azure.com", "volumeHandle": handle, "volumeAttributes": attributes});
    let spec = json!({"csi": csi, "claimRef": {"namespace": "shop", "name": name}});
    cluster.server.put("persistentvolumes", json!({"metadata": {"name": name}, "spec": spec})).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_shares_is_asked_for_no_storage_account() {
    let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
    let (text, _) = doctor(&cluster).await;
    assert!(text.contains("ok   shares of PersistentVolumes: no PersistentVolume is of file.csi.azure.com"), "{text}");
    let calls = cluster.azure.control().call_log();
    assert!(!calls.iter().any(|call| call.path.contains("Microsoft.Storage")), "{text}");
    cluster.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_shares_and_their_accounts_is_a_sentence_each() {
    let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
    make_account(&cluster, "files1", "Standard_LRS", json!({})).await;
    for share in ["pvc-1", "pvc-2"] {
        make_share(&cluster, "files1", share, 5).await;
    }
    volume(&cluster, "pv-1", "lazuli#files1#pvc-1###default", json!({}));
    let (text, is_well) = doctor(&cluster).await;
    for line in [
        "ok   mounts of file shares: 1 PersistentVolumes of the driver ask for nothing that nodes do not mount\n",
        "ok   shares of PersistentVolumes: Azure has the share of each of 1 PersistentVolumes\n",
        "ok   keys of storage accounts: each of 1 that PersistentVolumes name takes its keys\n",
        "ok   network of storage accounts: each of 1 that PersistentVolumes name lets the nodes in",
        "ok   limits of storage accounts: each account with shares of a driver takes more of them: files1\n",
        "ok   share snapshots: no share of a volume has one\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let files = |line: &&str| line.contains("share") || line.contains("storage account");
    assert!(!text.lines().filter(files).any(|line| line.starts_with("FAIL")), "{text} {is_well}");

    let closed = json!({"allowSharedKeyAccess": false, "networkAcls": {"defaultAction": "Deny"}});
    make_account(&cluster, "files2", "Standard_LRS", closed).await;
    make_share(&cluster, "files2", "data", 5).await;
    make_account(&cluster, "files3", "PremiumV2_LRS", json!({})).await;
    for at in 0..50 {
        make_share(&cluster, "files3", &format!("pvc-{at}"), 32).await;
    }
    snapshot(&cluster, "files1", "pvc-1").await;
    delete_share(&cluster, "files1", "pvc-2").await;
    volume(&cluster, "pv-2", "lazuli#files1#pvc-2###default", json!({}));
    volume(&cluster, "pv-3", "lazuli#files2#data###default", json!({}));
    volume(&cluster, "pv-4", "lazuli#files1#pvc-1###default", json!({"protocol": "nfs"}));
    let (text, is_well) = doctor(&cluster).await;
    assert!(!is_well);
    for line in [
        "FAIL mounts of file shares: PersistentVolume pv-4 cannot be mounted by this version: ",
        "FAIL shares of PersistentVolumes: PersistentVolume pv-2 names share pvc-2 of storage account files1, which does not \
         exist; it is deleted and can be restored for 7 more days",
        "FAIL keys of storage accounts: storage account files2 takes no key",
        "note network of storage accounts: storage account files2 keeps subnet nodes of the configuration out",
        "note limits of storage accounts: storage account files3 is full: it holds 50 shares, and Azure allows 50",
        "note share snapshots: share pvc-1 of storage account files1 has a snapshot that no VolumeSnapshotContent names",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    cluster.azure.shutdown().await;
}
