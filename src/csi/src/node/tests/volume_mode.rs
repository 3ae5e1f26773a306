//! One disk is one kind of volume at a time, and none at all when it is gone.

use super::*;

/// Two PersistentVolumes of one disk may differ in their kind; mkfs would destroy what the first pod has written.
#[tokio::test]
async fn a_disk_that_a_pod_has_raw_is_neither_formatted_nor_mounted() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    let place = machine.attach(3, "a");
    machine.stage_as(3, "a", block()).await.unwrap();
    machine.publish(3, "a", "1", block()).await.unwrap();
    let target = machine.target("1");
    let (refusal, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
    assert_eq!(refusal, Grpc::AlreadyExists);
    assert!(message.contains("raw device") && message.contains(target.to_str().unwrap()), "{message}");
    assert!(machine.disk(place).is_untouched());
    assert_eq!(machine.mounted(&machine.staging("a")), None);
    // The pod that has it keeps it.
    machine.stage_as(3, "a", block()).await.unwrap();
    machine.publish(3, "a", "1", block()).await.unwrap();
    machine.unpublish("a", "1").await.unwrap();
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
}

#[tokio::test]
async fn a_disk_whose_filesystem_is_staged_is_not_handed_out_raw() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    for _ in 0..2 {
        let (refusal, message) = code(machine.stage_as(3, "a", block()).await);
        assert_eq!(refusal, Grpc::AlreadyExists);
        assert!(message.contains(machine.staging("a").to_str().unwrap()), "{message}");
        assert_eq!(code(machine.publish(3, "a", "1", block()).await).0, Grpc::AlreadyExists);
        assert!(!machine.target("1").exists());
        // Nor under another staging path, as kubelet gives raw volumes.
        let mut elsewhere = machine.stage_request(3, "a", block());
        elsewhere.staging_target_path = machine.scratch.join("volumeDevices").display().to_string();
        assert_eq!(machine.stage(elsewhere).await.unwrap_err().code(), Grpc::AlreadyExists);
    }
    machine.publish(3, "a", "1", mounted_as("ext4")).await.unwrap();
    machine.unpublish("a", "1").await.unwrap();
    machine.unstage("a").await.unwrap();
    machine.stage_as(3, "a", block()).await.unwrap();
}

#[tokio::test]
async fn a_disk_that_is_gone_is_not_shown_to_another_pod_nor_measured_from_memory() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    machine.publish(3, "a", "1", mounted_as("ext4")).await.unwrap();
    machine.unplug(3);
    let (refusal, message) = code(machine.publish(3, "a", "2", mounted_as("ext4")).await);
    assert_eq!(refusal, Grpc::Internal);
    assert!(message.contains("gone from this machine"), "{message}");
    assert!(!machine.target("2").exists());
    let target = machine.target("1");
    assert_eq!(machine.totals("a", &target).await.unwrap_err().code(), Grpc::Internal);
    assert_eq!(machine.expand("a", &target, GIB).await.unwrap_err().code(), Grpc::Internal);
    machine.unpublish("a", "1").await.unwrap();
    machine.unstage("a").await.unwrap();
}
