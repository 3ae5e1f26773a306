use clap::Parser;
use lazuli_model::disk_tags::{FOR_SNAPSHOT, FOR_SNAPSHOT_NAMESPACE};
use lazuli_rig::cluster::Cluster;
use serde_json::Value;

use super::{
    super::super::{output::testing::assert_regular, terminal::Screen},
    fixtures::make_snapshot,
    *,
};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: Snapshots,
}

async fn got(cluster: &Cluster, more: &[&str]) -> String {
    let words = ["snapshots".to_owned()].into_iter().chain(cluster.arguments());
    let options = Command::parse_from(words.chain(more.iter().map(|word| (*word).to_owned()))).options;
    let list = Box::pin(list(&options)).await.unwrap();
    assert_regular(&list, FIELDS);
    list.printed(&options.common.output, Screen::default()).result
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_printed_with_what_they_belong_to_and_how_much_is_there() {
    let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
    let tags = [(FOR_SNAPSHOT, "weekly"), (FOR_SNAPSHOT_NAMESPACE, "shop")];
    let named = make_snapshot(&cluster, "snapshot-1", "a", &[]).await;
    make_snapshot(&cluster, "snapshot-2", "a", &tags).await;
    let disk = named.replace("/snapshots/snapshot-1", "/disks/a");
    let csi = json!({"driver": DISK_DRIVER, "volumeHandle": disk});
    let claim = json!({"namespace": "shop", "name": "data"});
    let volume = json!({"metadata": {"name": "pv-a"}, "spec": {"csi": csi, "claimRef": claim}});
    cluster.server.put("persistentvolumes", volume).unwrap();
    let spec = json!({"driver": DISK_DRIVER, "deletionPolicy": "Delete", "source": {"volumeHandle": disk},
        "volumeSnapshotRef": {"namespace": "shop", "name": "nightly"}});
    // As external-snapshotter keeps it.
    let content = json!({"metadata": {"name": "content-1"}, "spec": spec, "status": {"snapshotHandle": named}});
    cluster.server.put("volumesnapshotcontents", content).unwrap();
    let printed: Value = serde_json::from_str(&got(&cluster, &["--output=json"]).await).unwrap();
    let items = printed["items"].as_array().unwrap();
    let shown: Vec<[&Value; 5]> = items
        .iter()
        .map(|one| ["name", "volumeSnapshot", "content", "claim", "ready"].map(|field| &one[field]))
        .collect();
    let values =
        |texts: [&str; 2], content: Value| [json!(texts[0]), json!(texts[1]), content, json!("shop/data"), json!(true)];
    let expected = [
        values(["snapshot-1", "shop/nightly"], json!("content-1")),
        values(["snapshot-2", "shop/weekly"], Value::Null),
    ];
    assert_eq!(shown, expected.iter().map(|row| row.each_ref()).collect::<Vec<_>>(), "{printed:#}");
    assert!(items.iter().all(|one| one["created"].as_str().is_some_and(|at| at.ends_with('Z'))), "{printed:#}");
    assert_eq!((&items[0]["sizeGib"], &items[0]["source"]), (&json!(8), &json!(disk)));
    let text = got(&cluster, &[]).await;
    let first = text.lines().nth(1).unwrap_or_default();
    for cell in ["snapshot-1", "shop/nightly", "pv-a", "shop/data", "8 GiB", "Available"] {
        assert!(first.contains(cell), "{cell}: {text}");
    }
    cluster.azure.shutdown().await;
}

#[test]
fn an_age_has_one_unit() {
    let ages = [(0, "0s"), (119, "119s"), (120, "2m"), (7_199, "119m"), (7_200, "2h"), (172_800, "2d")];
    assert!(ages.into_iter().all(|(seconds, shown)| age(seconds) == shown));
}
