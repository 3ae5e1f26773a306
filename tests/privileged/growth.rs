//! Volumes that grow, in use and out of it.

use std::path::Path;

use lazuli_rig::may_grow_mounted_ext4;
use tonic::Code;

use super::{
    cloud::{Cloud, GIB, NODES, Step, kind},
    content,
    process::able,
};

const NODE: &str = NODES[0];
/// A gibibyte less what a filesystem keeps for itself.
const MOST_OF_A_GIB: u64 = 800 << 20;

fn total_bytes(path: &Path) -> u64 {
    let found = rustix::fs::statvfs(path).unwrap();
    found.f_blocks * found.f_frsize
}

fn may_grow_mounted(fs_type: &str) -> bool {
    !fs_type.starts_with("ext") || may_grow_mounted_ext4()
}

#[tokio::test]
async fn a_volume_in_use_grows_and_keeps_its_bytes() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    for fs_type in ["xfs", "btrfs", "ext4", "ext3"] {
        let volume = cloud.published(&format!("pvc-{fs_type}"), kind(fs_type)).await;
        content::write(&volume, 1);
        let before = total_bytes(&volume.target);
        cloud.expand(&volume, 4).await;
        for _ in 0..2 {
            let answer = cloud.expand_on_node(&volume, NODE, 4).await;
            if may_grow_mounted(fs_type) {
                assert_eq!(answer.unwrap(), 4 * GIB);
                assert!(total_bytes(&volume.target) > before + 2 * MOST_OF_A_GIB, "{fs_type}");
            } else {
                let status = answer.unwrap_err();
                assert!(status.message().contains("CAP_SYS_RESOURCE"), "{status}");
            }
        }
        content::check(&volume, 1);
        cloud.tear_down(&volume, NODE).await;
    }
    let raw = cloud.published("pvc-raw", kind("block")).await;
    content::write(&raw, 2);
    cloud.expand(&raw, 4).await;
    assert_eq!(cloud.expand_on_node(&raw, NODE, 4).await.unwrap(), 4 * GIB);
    content::check(&raw, 2);
    cloud.tear_down(&raw, NODE).await;
    cloud.finish().await;
}

#[tokio::test]
async fn a_volume_that_was_grown_out_of_use_has_its_size_after_the_next_stage() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    for fs_type in ["xfs", "btrfs", "ext4"] {
        let mut volume = cloud.published(&format!("pvc-{fs_type}"), kind(fs_type)).await;
        content::write(&volume, 1);
        let before = total_bytes(&volume.target);
        cloud.unpublish(&volume, NODE).await;
        cloud.unstage(&volume, NODE).await;
        cloud.detach(&volume, NODE).await;
        cloud.expand(&volume, 4).await;
        cloud.attach(&mut volume, NODE).await;
        let staged = cloud.call(Step::Stage, &volume, NODE).await;
        if may_grow_mounted(fs_type) {
            staged.unwrap();
            assert!(total_bytes(&volume.staging) > before + 2 * MOST_OF_A_GIB, "{fs_type}");
        } else {
            let status = staged.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable);
            assert!(status.message().contains("CAP_SYS_RESOURCE"), "{status}");
        }
        cloud.publish(&volume, NODE).await;
        content::check(&volume, 1);
        cloud.tear_down(&volume, NODE).await;
    }
    cloud.finish().await;
}

#[tokio::test]
async fn a_node_killed_while_a_filesystem_grows_is_followed_by_one_that_ends_it() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    for fs_type in ["xfs", "btrfs"] {
        let volume = cloud.published(&format!("pvc-{fs_type}"), kind(fs_type)).await;
        content::write(&volume, 1);
        let before = total_bytes(&volume.target);
        for round in 0..6 {
            let gib = i64::from(round) + 2;
            cloud.expand(&volume, gib).await;
            let moment = std::time::Duration::from_millis(10) * round;
            let _ = tokio::time::timeout(moment, cloud.expand_on_node(&volume, NODE, gib)).await;
            cloud.restart_node_killed(NODE);
            assert_eq!(cloud.expand_on_node(&volume, NODE, gib).await.unwrap(), gib * GIB);
            content::check(&volume, 1);
        }
        assert!(total_bytes(&volume.target) > before + 5 * MOST_OF_A_GIB, "{fs_type}");
        cloud.tear_down(&volume, NODE).await;
    }
    cloud.finish().await;
}
