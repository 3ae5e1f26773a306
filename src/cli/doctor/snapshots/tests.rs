//! `lazuli doctor` on snapshots, against an Azure and an API server.

use clap::Parser;
use lazuli_rig::cluster::Cluster;
use serde_json::{Value, json};

use super::super::{Options, examined};
use crate::cli::{get::snapshots::fixtures::make_snapshot, terminal::Screen};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
}

async fn doctor(cluster: &Cluster) -> String {
    let words = ["doctor".to_owned()].into_iter().chain(cluster.arguments());
    Box::pin(examined(&Command::parse_from(words).options, Screen::default())).await.0
}

#[tokio::test(start_paused = true)]
async fn what_snapshots_lack_and_whose_they_are_is_a_sentence_each() {
    let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
    let text = doctor(&cluster).await;
    for line in [
        "note VolumeSnapshots: the API server has their types, and no snapshot-controller is seen",
        "ok   VolumeSnapshotClasses: there is none of disk.csi.azure.com\n",
        "ok   VolumeAttributesClasses: there is none of disk.csi.azure.com\n",
        "ok   snapshots in Azure: none was made by a driver\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }

    let put = |collection: &str, object: Value| drop(cluster.server.put(collection, object).unwrap());
    let lease = json!({"metadata": {"name": "snapshot-controller-leader", "namespace": "kube-system"},
        "spec": {"holderIdentity": "snapshots-7"}});
    put("leases", lease);
    let class = |name: &str, parameters: Value| json!({"metadata": {"name": name}, "driver": "disk.csi.azure.com", "deletionPolicy": "Delete", "parameters": parameters});
    put("volumesnapshotclasses", class("good", json!({"incremental": "true"})));
    put("volumesnapshotclasses", class("bad", json!({"resourcegroups": "x"})));
    put("volumesnapshotclasses", class("lost", json!({"resourceGroup": "nowhere"})));
    put("volumesnapshotclasses", class("away", json!({"location": "North Eurpoe"})));
    put("volumesnapshotclasses", class("north", json!({"location": "northeurope"})));
    let attributes = |name: &str, parameters: Value| json!({"metadata": {"name": name}, "driverName": "disk.csi.azure.com", "parameters": parameters});
    put("volumeattributesclasses", attributes("fast", json!({"DiskIOPSReadWrite": "5000"})));
    put("volumeattributesclasses", attributes("odd", json!({"tier": "P5000"})));
    let named = make_snapshot(&cluster, "snapshot-1", "a", &[]).await;
    make_snapshot(&cluster, "snapshot-2", "a", &[]).await;
    let spec = json!({"driver": "disk.csi.azure.com", "deletionPolicy": "Delete", "source": {"volumeHandle": "v"},
        "volumeSnapshotRef": {"namespace": "shop", "name": "nightly"}});
    let content = json!({"metadata": {"name": "content"}, "spec": spec, "status": {"snapshotHandle": named}});
    put("volumesnapshotcontents", content);
    let text = doctor(&cluster).await;
    for line in [
        "ok   VolumeSnapshots: the API server has their types, and snapshots-7 holds the Lease snapshot-controller-leader",
        "ok   VolumeSnapshotClasses: 2 of disk.csi.azure.com can be used: good, north\n",
        "FAIL VolumeSnapshotClasses: VolumeSnapshotClass away: no snapshot is taken with it: parameter location names northeurpoe, ",
        "FAIL VolumeSnapshotClasses: VolumeSnapshotClass lost: no snapshot is taken with it: parameter resourceGroup names nowhere, ",
        "FAIL VolumeSnapshotClasses: VolumeSnapshotClass bad: no snapshot is taken with it: parameter resourcegroups",
        "ok   VolumeAttributesClasses: 1 of disk.csi.azure.com can be used: fast\n",
        "FAIL VolumeAttributesClasses: VolumeAttributesClass odd: it changes no disk: parameter tier",
        "note snapshots in Azure: 1 was made by a driver, and no VolumeSnapshotContent of this cluster names it: snapshot-2;",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    cluster.azure.shutdown().await;
}
