//! Disks that are not the volume's, and disks that hold what must not be overwritten.

use std::{
    fs::File,
    io::Write as _,
    time::{Duration, Instant},
};

use tonic::Code;

use super::{
    cloud::{Cloud, NODES, Step, kind, refused},
    content,
    process::{PATIENCE, able, mounted_at, until},
};

const NODE: &str = NODES[0];

#[tokio::test]
async fn another_disk_at_the_lun_is_neither_mounted_nor_formatted() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let tool = cloud.azure.other_tool().await;
    tool.make_disk("stranger", 1).await;
    let mut volumes = Vec::new();
    for name in ["ext4", "block"] {
        let mut volume = cloud.create(&format!("pvc-{name}"), kind(name)).await;
        cloud.attach(&mut volume, NODE).await;
        tool.yank(NODE, &volume.disk).await;
        tool.attach(NODE, "stranger", volume.lun()).await;
        let message = refused(cloud.call(Step::Stage, &volume, NODE).await, Code::Unavailable);
        assert!(message.contains("stranger") && message.contains(&volume.disk), "{message}");
        // Nor is it shown to a pod when kubelet thinks that it was staged before.
        let shown = cloud.call(Step::Publish, &volume, NODE).await;
        assert!(shown.is_err());
        assert!(cloud.folder.mounts().is_empty());
        tool.yank(NODE, "stranger").await;
        assert!(content::is_blank(&cloud.disk_file("stranger")));
        assert!(content::is_blank(&cloud.disk_file(&volume.disk)));
        volumes.push(volume);
    }
    // Set right again, the same volume is staged.
    for mut volume in volumes {
        cloud.attach(&mut volume, NODE).await;
        cloud.stage(&volume, NODE).await;
        cloud.unstage(&volume, NODE).await;
        cloud.detach(&volume, NODE).await;
        cloud.delete(&volume).await;
    }
    tool.delete_disk("stranger").await;
    cloud.finish().await;
}

#[tokio::test]
async fn metadata_that_still_shows_the_disk_before_is_waited_out() {
    if !able() {
        return;
    }
    // Longer than a detach and an attach take on a busy machine, shorter than the node waits.
    let mut cloud = Cloud::with(&["--imds-lag-ms", "10000"]).await;
    let mut before = cloud.create("pvc-before", kind("ext4")).await;
    let mut after = cloud.create("pvc-after", kind("ext4")).await;
    cloud.attach(&mut before, NODE).await;
    let shows = async |cloud: &Cloud, disk: &str| cloud.azure.metadata(NODE).await.values().any(|shown| shown == disk);
    let began = Instant::now();
    while !shows(&cloud, &before.disk).await {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cloud.detach(&before, NODE).await;
    cloud.attach(&mut after, NODE).await;
    assert_eq!(after.lun(), before.lun());
    assert!(shows(&cloud, &before.disk).await, "it does not lag");
    cloud.stage(&after, NODE).await;
    assert!(shows(&cloud, &after.disk).await, "staged before the metadata said so");
    cloud.publish(&after, NODE).await;
    content::write(&after, 1);
    content::check(&after, 1);
    cloud.tear_down(&after, NODE).await;
    assert!(content::is_blank(&cloud.disk_file(&before.disk)));
    cloud.delete(&before).await;
    cloud.finish().await;
}

#[tokio::test]
async fn a_disk_that_was_pulled_while_mounted_is_unstaged_once_it_is_gone() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let tool = cloud.azure.other_tool().await;
    for name in ["ext4", "xfs", "btrfs", "block"] {
        let mut volume = cloud.published(&format!("pvc-{name}"), kind(name)).await;
        content::write(&volume, 1);
        tool.yank(NODE, &volume.disk).await;
        assert!(cloud.device(NODE, volume.lun()).is_none());
        cloud.unpublish(&volume, NODE).await;
        cloud.unstage(&volume, NODE).await;
        assert!(mounted_at(&volume.staging).is_none());
        // The kernel lets the device go with its last user.
        until("the end of the device", || cloud.folder.loops().is_empty().then_some(())).await;
        // Attached again it is the same volume, as far as it had been written.
        cloud.attach(&mut volume, NODE).await;
        cloud.stage(&volume, NODE).await;
        cloud.publish(&volume, NODE).await;
        content::write(&volume, 2);
        content::check(&volume, 2);
        cloud.tear_down(&volume, NODE).await;
    }
    cloud.finish().await;
}

/// What may be found on a disk that must not be overwritten.
fn foreign(what: &str) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    match what {
        "garbage" => bytes[300_000..300_016].copy_from_slice(b"somebody's bytes"),
        // One Linux partition from sector 2048 on, in the first entry of the table (source: the MBR layout).
        "a partition table" => {
            bytes[446 + 4] = 0x83;
            bytes[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
            bytes[446 + 12..446 + 16].copy_from_slice(&100_000_u32.to_le_bytes());
            bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
        }
        other => panic!("{other}"),
    }
    bytes
}

#[tokio::test]
async fn a_disk_that_is_not_blank_and_holds_no_filesystem_is_left_as_it_is() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    for (n, what) in ["garbage", "a partition table"].into_iter().enumerate() {
        for fs_type in ["ext4", "xfs", "btrfs"] {
            let mut volume = cloud.create(&format!("pvc-{n}-{fs_type}"), kind(fs_type)).await;
            cloud.attach(&mut volume, NODE).await;
            let device = cloud.device(NODE, volume.lun()).unwrap();
            let mut open = File::options().write(true).open(&device).unwrap();
            open.write_all(&foreign(what)).unwrap();
            open.sync_all().unwrap();
            drop(open);
            let before = content::blocks(&cloud.disk_file(&volume.disk));
            assert_eq!(before.len(), 1);
            for _ in 0..2 {
                let message = refused(cloud.call(Step::Stage, &volume, NODE).await, Code::FailedPrecondition);
                assert!(message.contains("untouched"), "{message}");
                cloud.restart_node_killed(NODE);
            }
            assert!(mounted_at(&volume.staging).is_none());
            assert!(content::blocks(&cloud.disk_file(&volume.disk)) == before, "{what} was touched");
            cloud.unstage(&volume, NODE).await;
            cloud.detach(&volume, NODE).await;
            cloud.delete(&volume).await;
        }
    }
    cloud.finish().await;
}

#[tokio::test]
async fn another_filesystem_than_the_one_asked_for_is_refused_and_keeps_its_data() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let kinds = ["ext4", "xfs", "btrfs", "ext3"];
    for is in kinds {
        let volume = cloud.published(&format!("pvc-{is}"), kind(is)).await;
        content::write(&volume, 3);
        cloud.unpublish(&volume, NODE).await;
        cloud.unstage(&volume, NODE).await;
        // ext4 takes an ext3.
        for wanted in kinds.into_iter().filter(|wanted| *wanted != is && (is, *wanted) != ("ext3", "ext4")) {
            let other = volume.wanted_as(kind(wanted));
            let message = refused(cloud.call(Step::Stage, &other, NODE).await, Code::FailedPrecondition);
            assert!(message.contains(is) && message.contains(wanted), "{message}");
        }
        cloud.stage(&volume, NODE).await;
        cloud.publish(&volume, NODE).await;
        content::check(&volume, 3);
        cloud.tear_down(&volume, NODE).await;
    }
    cloud.finish().await;
}
