//! The node plugin's file driver on a real kernel, called as kubelet calls it.

use serde_json::json;
use tonic::Code;

use super::{
    driver::{Driver, STAGING, refused, target, to_stage},
    machine::able,
};

#[tokio::test]
async fn a_share_is_staged_published_measured_and_undone_and_its_key_stays_with_the_kernel() {
    if !able() {
        return;
    }
    let driver = Driver::start().await;
    let guest = &driver.cloud.guest;
    let key = driver.cloud.key("first").await;
    driver.stage(to_stage(&[], &["uid=1000,nosuid", "_netdev"], Some(&key))).await.unwrap();
    let mounts = driver.mounts().await;
    // The Go driver's source, so that either can go on with what the other has mounted.
    assert!(mounts[0].starts_with("//first.file.core.windows.net/data /mnt/kubelet/globalmount cifs "), "{mounts:?}");
    for option in ["rw,", "nosuid", "vers=3.1.1", "uid=1000", "gid=2000", "file_mode=0777", "actimeo=30", "mfsymlinks"]
    {
        assert!(mounts[0].contains(option), "{option}: {mounts:?}");
    }
    // Again, without a key.
    driver.stage(to_stage(&[], &[], None)).await.unwrap();
    driver.publish("1", false, None).await.unwrap();
    driver.publish("2", true, None).await.unwrap();
    driver.publish("1", false, None).await.unwrap();
    driver.publish("2", true, None).await.unwrap();
    assert_eq!(driver.mounts().await.len(), 3);
    assert!(driver.can_write("1").await && !driver.can_write("2").await);
    assert!(driver.cloud.server("first").shares["data"].join("file-of-1").exists());
    guest.sh(&format!("[ -e {}/file-of-1 ]", target("2"))).await;
    assert_eq!(driver.total("1").await.unwrap(), 5 << 30);
    driver.key_is_nowhere(&key).await;
    for pod in ["1", "2", "1"] {
        driver.unpublish(pod).await;
    }
    guest.sh(&format!("[ ! -e {} ]", target("1"))).await;
    driver.unstage().await;
    driver.unstage().await;
    assert_eq!(driver.mounts().await, Vec::<String>::new());

    // Mounted by another driver.
    let mounted = driver.cloud.mount("first", "data", "first", &key, STAGING).await;
    assert!(mounted.code == 0, "{mounted:?}");
    driver.stage(to_stage(&[], &[], None)).await.unwrap();
    driver.publish("1", false, None).await.unwrap();
    assert_eq!(driver.mounts().await.len(), 2);
    driver.unpublish("1").await;
    driver.unstage().await;

    // A folder, which is made.
    let folder = [("folderName", "a/b"), ("createFolderIfNotExist", "true")];
    refused(driver.stage(to_stage(&folder[..1], &[], Some(&key))).await, Code::NotFound, "data/a/b");
    driver.stage(to_stage(&folder, &[], Some(&key))).await.unwrap();
    guest.sh(&format!("touch {STAGING}/inside")).await;
    assert!(driver.cloud.server("first").shares["data"].join("a/b/inside").exists());
    driver.unstage().await;
    driver.cloud.stop().await;
}

#[tokio::test]
async fn each_reason_why_a_share_is_not_mounted_has_its_code_and_words() {
    if !able() {
        return;
    }
    let driver = Driver::start().await;
    let key = driver.cloud.key("first").await;
    let stage = |context: &[(&str, &str)], flags: &[&str], key: &str| driver.stage(to_stage(context, flags, Some(key)));
    refused(stage(&[], &[], "d3Jvbmc=").await, Code::PermissionDenied, "does not let account first mount");
    refused(stage(&[("shareName", "none")], &[], &key).await, Code::NotFound, "first.file.core.windows.net/none");
    let unknown = [("server", "other.file.core.windows.net")];
    refused(
        stage(&unknown, &[], &key).await,
        Code::Unavailable,
        "the name other.file.core.windows.net is not resolved",
    );
    refused(stage(&[], &["no_such_option=1"], &key).await, Code::InvalidArgument, "no_such_option=1");
    refused(stage(&[], &["rsize=much"], &key).await, Code::InvalidArgument, "rsize=much");
    refused(driver.stage(to_stage(&[], &[], None)).await, Code::FailedPrecondition, "nodeStageSecretRef");
    driver.cloud.emulator.control().serve_files("first", false).await.unwrap();
    refused(stage(&[], &[], &key).await, Code::Unavailable, "does not answer on TCP port 445");
    assert_eq!(driver.mounts().await, Vec::<String>::new());
    driver.key_is_nowhere(&key).await;
    driver.cloud.guest.sh("modprobe -r cifs; mv /lib/modules /lib/modules-away").await;
    refused(stage(&[], &[], &key).await, Code::FailedPrecondition, "no module cifs");
    driver.cloud.stop().await;
}

#[tokio::test]
async fn after_a_new_key_new_pods_mount_at_once_and_an_outage_heals() {
    if !able() {
        return;
    }
    let driver = Driver::start().await;
    let old = driver.cloud.key("first").await;
    driver.stage(to_stage(&[], &[], Some(&old))).await.unwrap();
    driver.publish("1", false, None).await.unwrap();
    assert!(driver.can_write("1").await);

    // An outage: every call answers, what is mounted stays, and goes on.
    driver.cloud.emulator.control().serve_files("first", false).await.unwrap();
    refused(driver.publish("2", false, Some(&old)).await, Code::Unavailable, "does not answer on TCP port 445");
    refused(driver.total("1").await.map(drop), Code::Unavailable, "cannot be measured");
    driver.publish("1", false, None).await.unwrap();
    assert_eq!(driver.mounts().await.len(), 2);
    driver.cloud.emulator.control().serve_files("first", true).await.unwrap();
    assert!(driver.can_write("1").await);
    driver.publish("2", false, None).await.unwrap();
    driver.unpublish("2").await;

    // A new key ends the sessions of the old one.
    driver.cloud.ask("POST", "first", "/regenerateKey", json!({"keyName": "key1"}), 200).await;
    let new = driver.cloud.key("first").await;
    refused(driver.publish("2", false, Some(&old)).await, Code::PermissionDenied, "rotated");
    assert_eq!(driver.mounts().await.len(), 2, "what is dead may heal");
    driver.publish("2", false, Some(&new)).await.unwrap();
    assert!(driver.can_write("2").await);
    assert!(!driver.can_write("1").await);
    driver.publish("1", false, None).await.unwrap();
    // As kubelet restarts a pod.
    driver.unpublish("1").await;
    driver.publish("1", false, None).await.unwrap();
    assert!(driver.can_write("1").await);
    for pod in ["1", "2"] {
        driver.unpublish(pod).await;
    }
    driver.unstage().await;
    assert_eq!(driver.mounts().await, Vec::<String>::new());
    for key in [&old, &new] {
        driver.key_is_nowhere(key).await;
    }
    driver.cloud.stop().await;
}
