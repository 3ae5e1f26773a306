//! Which existing disk CreateVolume takes for the one it is asked for.

use serde_json::json;
use tonic::Code;

use super::disk_rig::{GIB, OtherTool, Rig, create, create_request, create_with, disk_id, publish, refused};

/// Replaces the tags of a disk.
async fn tag(rig: &Rig, name: &str, tags: serde_json::Value) {
    rig.control.tamper(&disk_id(name), |disk| disk["tags"] = tags).unwrap();
}

async fn made_elsewhere(rig: &Rig, other: &OtherTool, name: &str, tags: serde_json::Value) {
    other.make_disk(name).await;
    rig.at_rest().await;
    tag(rig, name, tags).await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_disk_that_was_not_made_for_the_request_is_never_handed_out() {
    let (rig, client) = Rig::typical().await;
    let other = rig.other_tool();
    let go = "k8s-azure-created-by";
    for (name, tags) in [
        ("pvc-1", json!({})),
        ("pvc-2", json!({go: "kubernetes-azure-dd"})),
        ("pvc-3", json!({go: "kubernetes-azure-dd", "kubernetes.io-created-for-pv-name": "pvc-1"})),
        ("pvc-4", json!({"lazuli-request": "pvc-1", "kubernetes.io-created-for-pv-name": "pvc-4"})),
    ] {
        made_elsewhere(&rig, &other, name, tags).await;
        let message = refused(create(&client, name).await, Code::AlreadyExists);
        assert!(message.contains(&disk_id(name)) && message.contains("was not made for this request"), "{message}");
    }
    // A class that names the database's disk, and says in its tags that it was made for the claim.
    made_elsewhere(&rig, &other, "database", json!({"kubernetes.io-created-for-pv-name": "pvc-5"})).await;
    let class = [("diskName", "database"), ("tags", "lazuli-request=pvc-5,kubernetes.io-created-for-pv-name=pvc-5")];
    refused(create_with(&client, "pvc-5", &class).await, Code::AlreadyExists);
    assert_eq!(rig.disk("database").unwrap()["tags"], json!({"kubernetes.io-created-for-pv-name": "pvc-5"}));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_repeated_request_finds_its_own_disk_whatever_became_of_its_other_tags() {
    let (rig, client) = Rig::typical().await;
    let class = [("diskName", "shared-name"), ("tags", "lazuli-request=pvc-2")];
    let volume = create_with(&client, "pvc-1", &class).await.unwrap();
    assert_eq!(rig.disk("shared-name").unwrap()["tags"]["lazuli-request"], "pvc-1");
    publish(&client, &volume, "node-0").await.unwrap();
    assert_eq!(create_with(&client, "pvc-1", &class).await.unwrap().volume_id, volume.volume_id);
    refused(create_with(&client, "pvc-2", &class).await, Code::AlreadyExists);
    // Another tool set tags of its own, and spells ours as it likes.
    tag(&rig, "shared-name", json!({"LAZULI-request": "pvc-1", "cost": "42"})).await;
    assert_eq!(create_with(&client, "pvc-1", &class).await.unwrap().volume_id, volume.volume_id);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_disk_that_the_go_driver_made_for_the_request_is_taken_over() {
    let (rig, client) = Rig::typical().await;
    let other = rig.other_tool();
    let by_go = || json!({"k8s-azure-created-by": "kubernetes-azure-dd", "kubernetes.io-created-for-pv-name": "pvc-1"});
    made_elsewhere(&rig, &other, "pvc-1", by_go()).await;
    let volume = create(&client, "pvc-1").await.unwrap();
    assert_eq!(volume.capacity_bytes, 4 * GIB);
    publish(&client, &volume, "node-0").await.unwrap();
    // A claim whose volume is in use is bound already: this one is another cluster's.
    let message = refused(create(&client, "pvc-1").await, Code::AlreadyExists);
    assert!(message.contains("holds it"), "{message}");
    let mut other_class = create_request("pvc-1", &[]);
    other_class.parameters.insert("csi.storage.k8s.io/pv/name".into(), "pv-of-another-name".into());
    refused(client.clone().create_volume(other_class).await, Code::AlreadyExists);
    rig.stop().await;
}
