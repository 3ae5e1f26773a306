//! A volume follows its pod.

use super::{
    cloud::{Cloud, NODES, kind},
    content,
    process::{able, mounted_at},
};

#[tokio::test]
async fn a_volume_of_every_kind_moves_to_another_node_with_its_bytes_and_leaves_nothing_behind() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    for (seed, name) in ["ext4", "xfs", "btrfs", "ext3", "block"].into_iter().enumerate() {
        let seed = u64::try_from(seed).unwrap();
        let mut volume = cloud.create(&format!("pvc-{name}"), kind(name)).await;
        for node in NODES {
            cloud.attach(&mut volume, node).await;
            assert_eq!(cloud.azure.attached().await[&volume.disk], [(node.to_owned(), volume.lun())]);
            // kubelet repeats whatever it did not hear the end of.
            for _ in 0..2 {
                cloud.stage(&volume, node).await;
            }
            for _ in 0..2 {
                cloud.publish(&volume, node).await;
            }
            match node {
                "node-0" => content::write(&volume, seed),
                _ => content::check(&volume, seed),
            }
            let expected = if volume.is_block() { None } else { Some(name) };
            assert_eq!(mounted_at(&volume.staging).map(|line| line.fs_type).as_deref(), expected);
            for _ in 0..2 {
                cloud.unpublish(&volume, node).await;
            }
            assert!(!volume.target.exists());
            for _ in 0..2 {
                cloud.unstage(&volume, node).await;
            }
            for _ in 0..2 {
                cloud.detach(&volume, node).await;
            }
            assert!(cloud.folder.loops().is_empty(), "{name} left a device on {node}");
        }
        cloud.delete(&volume).await;
    }
    cloud.finish().await;
}
