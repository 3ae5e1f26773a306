//! `lazuli get shares` against an Azure and an API server.

use clap::Parser;
use lazuli_emulator::scenario;
use lazuli_rig::cluster::Cluster;

use serde_json::Value;

use super::*;
use crate::cli::{
    output::testing::assert_regular,
    storage_accounts::fixtures::{delete_share, make_account, make_share, snapshot},
    terminal::Screen,
};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: Shares,
}

async fn got(arguments: &[String], more: &[&str]) -> Result<String, String> {
    let words = ["shares".to_owned()].into_iter().chain(arguments.iter().cloned());
    let options = Command::parse_from(words.chain(more.iter().map(|word| (*word).to_owned()))).options;
    let list = Box::pin(list(&options)).await.map_err(|error| error.to_string())?;
    assert_regular(&list, FIELDS);
    Ok(list.printed(&options.common.output, Screen::default()).result)
}

fn volume(name: &str, handle: &str) -> Value {
    let csi = json!({"driver": FILE_DRIVER, "volumeHandle": handle});
    json!({"metadata": {"name": name},
        "spec": {"csi": csi, "claimRef": {"namespace": "shop", "name": format!("data-{name}")}}})
}

#[tokio::test(start_paused = true)]
async fn shares_are_printed_with_account_volume_and_what_is_deleted() {
    let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
    make_account(&cluster, "files1", "Standard_LRS", json!({})).await;
    for (name, gib) in [("pvc-1", 5), ("pvc-2", 7), ("mine", 9)] {
        make_share(&cluster, "files1", name, gib).await;
    }
    snapshot(&cluster, "files1", "mine").await;
    delete_share(&cluster, "files1", "pvc-2").await;
    cluster.server.put("persistentvolumes", volume("pv-1", "lazuli#files1#pvc-1###default")).unwrap();
    let arguments = cluster.arguments();

    let text = got(&arguments, &["--used"]).await.unwrap();
    let rows: Vec<Vec<&str>> =
        text.lines().map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
    let group = scenario::RESOURCE_GROUP;
    let (sku, tier) = ("Standard_LRS", "TransactionOptimized");
    assert_eq!(
        rows,
        [
            vec![
                "ACCOUNT",
                "RESOURCE GROUP",
                "SHARE",
                "VOLUME",
                "CLAIM",
                "QUOTA",
                "USED",
                "SKU",
                "TIER",
                "SNAPSHOTS",
                "STATE"
            ],
            vec!["files1", group, "mine", "-", "-", "9 GiB", "0.0 GiB", sku, tier, "1", "live"],
            vec!["files1", group, "pvc-1", "pv-1", "shop/data-pv-1", "5 GiB", "0.0 GiB", sku, tier, "0", "live"],
            vec!["files1", group, "pvc-2", "-", "-", "7 GiB", "-", sku, tier, "0", "deleted, 7 days left"],
        ],
        "{text}"
    );
    let printed: Value = serde_json::from_str(&got(&arguments, &["--output=json"]).await.unwrap()).unwrap();
    let shares = printed["items"].as_array().unwrap();
    assert_eq!(shares[1]["volumes"], json!([{"volume": "pv-1", "claim": "shop/data-pv-1"}]));
    assert_eq!(
        (&shares[1]["quotaGib"], &shares[1]["usedBytes"], &shares[1]["deleted"]),
        (&json!(5), &json!(null), &json!(null))
    );
    assert_eq!((&shares[2]["deleted"]["remainingDays"], &shares[2]["protocol"]), (&json!(7), &json!("SMB")));
    cluster.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn of_one_account_its_shares_alone_are_printed_and_an_unknown_one_is_named() {
    let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
    for account in ["files1", "files2"] {
        make_account(&cluster, account, "Standard_LRS", json!({})).await;
        make_share(&cluster, account, "data", 5).await;
    }
    let arguments = cluster.arguments();
    let text = got(&arguments, &["--account=FILES2"]).await.unwrap();
    assert!(text.lines().count() == 2 && text.contains("files2"), "{text}");
    let unknown = got(&arguments, &["--account=files3"]).await.unwrap_err();
    assert_eq!(
        unknown,
        "there is no storage account files3 with file shares in resource group lazuli; there are files1, files2"
    );
    // A PersistentVolume of another group that this identity may not see.
    cluster.server.put("persistentvolumes", volume("pv-1", "elsewhere#f9#pvc-1###default")).unwrap();
    assert_eq!(got(&arguments, &[]).await.unwrap().lines().count(), 3);
    cluster.azure.shutdown().await;
}
