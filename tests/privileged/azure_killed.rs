//! kill -9 of the emulator: what it had attached stays attached, and is there again with its state file.

use std::fs;

use serde_json::Value;

use super::{
    cloud::{Cloud, NODES, Step, kind},
    content,
    process::{able, mounted_at, until},
};

/// Waits until the state file says what the emulator says.
async fn saved(cloud: &Cloud) {
    let dump = cloud.azure.at_rest().await;
    let path = cloud.path("state");
    until("the state file", || {
        let file: Value = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        let kept = file["resources"].as_object()?;
        let shown = dump["resources"].as_object()?;
        let all = shown.iter().all(|(id, doc)| kept.get(id).is_some_and(|kept| kept["doc"] == *doc));
        (all && kept.len() == shown.len()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn after_a_kill_of_the_emulator_every_disk_is_where_it_was_and_stays_mounted() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let used = cloud.published("pvc-used", kind("ext4")).await;
    content::write(&used, 1);
    let mut idle = cloud.create("pvc-idle", kind("xfs")).await;
    cloud.attach(&mut idle, NODES[1]).await;
    saved(&cloud).await;
    let (attached, device) = (cloud.azure.attached().await, cloud.device(NODES[0], used.lun()));
    for round in 0..3 {
        cloud.restart_emulator_killed().await;
        assert_eq!(cloud.azure.attached().await, attached);
        // The same device, not a second one on the same file.
        assert_eq!(cloud.device(NODES[0], used.lun()), device);
        assert_eq!(cloud.folder.loops().len(), 2);
        content::check(&used, round + 1);
        content::write(&used, round + 2);
        // The controller signs in again: a token dies with the Azure that gave it.
        cloud.attach(&mut idle, NODES[1]).await;
        for step in [Step::Stage, Step::Publish, Step::Unpublish, Step::Unstage] {
            cloud.call(step, &idle, NODES[1]).await.unwrap();
        }
    }
    cloud.unpublish(&used, NODES[0]).await;
    cloud.unstage(&used, NODES[0]).await;
    cloud.stage(&used, NODES[0]).await;
    cloud.publish(&used, NODES[0]).await;
    content::check(&used, 4);
    cloud.tear_down(&used, NODES[0]).await;
    cloud.detach(&idle, NODES[1]).await;
    cloud.delete(&idle).await;
    cloud.finish().await;
}

#[tokio::test]
async fn a_node_lets_go_of_the_disks_of_an_azure_that_has_forgotten_everything() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let volume = cloud.published("pvc-forgotten", kind("ext4")).await;
    let raw = cloud.published("pvc-raw", kind("block")).await;
    fs::rename(cloud.path("state"), cloud.path("state.away")).unwrap();
    cloud.restart_emulator_killed().await;
    assert!(cloud.azure.attached().await.is_empty());
    assert!(mounted_at(&volume.staging).is_some());
    for gone in [&volume, &raw] {
        cloud.unpublish(gone, NODES[0]).await;
        cloud.unstage(gone, NODES[0]).await;
        cloud.detach(gone, NODES[0]).await;
        cloud.delete(gone).await;
    }
    cloud.finish().await;
}
