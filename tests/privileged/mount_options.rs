//! How a volume is mounted, and by whom it may be written.

use std::{fs, io};

use tonic::Code;

use super::{
    cloud::{Cloud, NODES, Step, filesystem, kind, refused},
    process::{able, mounted_at},
};

const NODE: &str = NODES[0];

fn cannot_write(path: &std::path::Path) -> bool {
    fs::write(path.join("forbidden"), "x").is_err_and(|error| error.kind() == io::ErrorKind::ReadOnlyFilesystem)
}

#[tokio::test]
async fn mount_flags_reach_the_mount_and_its_publications() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let volume = cloud.published(&format!("pvc-{fs_type}"), filesystem(fs_type, &["noatime", "nodev"])).await;
        for place in [&volume.staging, &volume.target] {
            let options = mounted_at(place).unwrap().options;
            assert!(options.contains(&"noatime".to_owned()) && options.contains(&"nodev".to_owned()), "{options:?}");
        }
        // The device by its real name, as other tools look for it.
        assert_eq!(Some(mounted_at(&volume.staging).unwrap().source), cloud.device(NODE, volume.lun()));
        cloud.tear_down(&volume, NODE).await;
    }
    for option in ["errors=panic", "journal_path=/dev/sda", "remount"] {
        let request = Cloud::create_request("pvc-bad", &filesystem("ext4", &[option]), 1);
        refused(cloud.controller().await.create_volume(request).await, Code::InvalidArgument);
    }
    let bad = filesystem("ext4", &["remount"]);
    assert!(cloud.azure.disks().await.is_empty());
    // A PersistentVolume that an operator wrote may have them all the same.
    let mut volume = cloud.create("pvc-bad", kind("ext4")).await;
    cloud.attach(&mut volume, NODE).await;
    refused(cloud.call(Step::Stage, &volume.wanted_as(bad), NODE).await, Code::InvalidArgument);
    assert!(super::content::is_blank(&cloud.disk_file(&volume.disk)));
    cloud.detach(&volume, NODE).await;
    cloud.delete(&volume).await;
    cloud.finish().await;
}

#[tokio::test]
async fn a_read_only_publication_cannot_be_written_and_a_writable_one_of_the_same_volume_can() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let mut volume = cloud.published(&format!("pvc-{fs_type}"), kind(fs_type)).await;
        fs::write(volume.target.join("file"), "x").unwrap();
        cloud.unpublish(&volume, NODE).await;
        volume.read_only = true;
        for _ in 0..2 {
            cloud.publish(&volume, NODE).await;
        }
        assert_eq!(fs::read_to_string(volume.target.join("file")).unwrap(), "x");
        assert!(cannot_write(&volume.target) && !cannot_write(&volume.staging));
        volume.read_only = false;
        refused(cloud.call(Step::Publish, &volume, NODE).await, Code::AlreadyExists);
        cloud.unpublish(&volume, NODE).await;
        cloud.publish(&volume, NODE).await;
        assert!(!cannot_write(&volume.target));
        cloud.tear_down(&volume, NODE).await;
    }
    cloud.finish().await;
}

#[tokio::test]
async fn a_volume_that_is_mounted_read_only_altogether_is_never_formatted() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let mut volume = cloud.create("pvc-ro", kind("ext4")).await;
    cloud.attach(&mut volume, NODE).await;
    let read_only = volume.wanted_as(filesystem("ext4", &["ro"]));
    refused(cloud.call(Step::Stage, &read_only, NODE).await, Code::FailedPrecondition);
    assert!(super::content::is_blank(&cloud.disk_file(&volume.disk)));
    cloud.stage(&volume, NODE).await;
    cloud.unstage(&volume, NODE).await;
    cloud.stage(&read_only, NODE).await;
    assert!(cannot_write(&volume.staging));
    cloud.publish(&read_only, NODE).await;
    assert!(cannot_write(&volume.target));
    cloud.tear_down(&read_only, NODE).await;
    cloud.finish().await;
}
