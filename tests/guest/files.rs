//! The node plugin's file driver on a real kernel, called as kubelet calls it.

use std::{collections::HashMap, fs, time::Duration, time::Instant};

use csi_proto::csi::{
    NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, VolumeCapability,
    node_client::NodeClient,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use serde_json::json;
use tonic::{Code, Status, transport::Channel};

use super::{machine::able, shares::Cloud};

/// What only a hang reaches: kubelet waits so long for a call.
const KUBELET: Duration = Duration::from_secs(120);
const STAGING: &str = "/mnt/kubelet/globalmount";
const VOLUME: &str = "g#first#data###default";

/// The file driver in the guest, and the account `first` with its share `data`.
pub(super) struct Driver {
    pub(super) cloud: Cloud,
    node: NodeClient<Channel>,
}

fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn capability(flags: &[&str], group: &str) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::MultiNodeMultiWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume {
            // What external-provisioner fills in where a class names none.
            fs_type: "ext4".to_owned(),
            mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            volume_mount_group: group.to_owned(),
        })),
    }
}

pub(super) fn to_stage(context: &[(&str, &str)], flags: &[&str], key: Option<&str>) -> NodeStageVolumeRequest {
    let secrets = key.map(|key| map(&[("azurestorageaccountname", "first"), ("azurestorageaccountkey", key)]));
    NodeStageVolumeRequest {
        volume_id: VOLUME.to_owned(),
        staging_target_path: STAGING.to_owned(),
        volume_capability: Some(capability(flags, "2000")),
        volume_context: map(context),
        secrets: secrets.unwrap_or_default(),
        ..Default::default()
    }
}

fn target(pod: &str) -> String {
    format!("/mnt/kubelet/pods/{pod}/volumes/kubernetes.io~csi/pvc-1/mount")
}

impl Driver {
    async fn start() -> Self {
        Self::start_in(Cloud::start(&["first"]).await, "").await
    }

    /// The same in a cloud that is there, with more arguments.
    pub(super) async fn start_in(cloud: Cloud, arguments: &str) -> Self {
        let guest = &cloud.guest;
        let start = format!(
            "lazuli csi-node --endpoint unix:///csi/csi.sock --file-endpoint unix:///csi/file.sock --node-id node-0 \
             --imds off {arguments} >/tmp/node.log 2>&1 &"
        );
        guest.sh(&start).await;
        let wait =
            "for look in $(seq 600); do [ -S /csi/file.sock ] && exit; sleep 0.05; done; cat /tmp/node.log >&2; exit 1";
        guest.sh(wait).await;
        let node = NodeClient::new(guest.channel("/csi/file.sock").await);
        Self { cloud, node }
    }

    pub(super) async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), Status> {
        self.node.clone().node_stage_volume(request).await.map(drop)
    }

    pub(super) async fn unstage(&self) {
        let request =
            NodeUnstageVolumeRequest { volume_id: VOLUME.to_owned(), staging_target_path: STAGING.to_owned() };
        self.node.clone().node_unstage_volume(request).await.unwrap();
    }

    pub(super) async fn publish(&self, pod: &str, readonly: bool, key: Option<&str>) -> Result<(), Status> {
        let stage = to_stage(&[], &[], key);
        let request = NodePublishVolumeRequest {
            volume_id: stage.volume_id,
            staging_target_path: stage.staging_target_path,
            target_path: target(pod),
            volume_capability: stage.volume_capability,
            secrets: stage.secrets,
            readonly,
            ..Default::default()
        };
        self.node.clone().node_publish_volume(request).await.map(drop)
    }

    pub(super) async fn unpublish(&self, pod: &str) {
        let request = NodeUnpublishVolumeRequest { volume_id: VOLUME.to_owned(), target_path: target(pod) };
        self.node.clone().node_unpublish_volume(request).await.unwrap();
    }

    /// The bytes of the volume.
    async fn total(&self, pod: &str) -> Result<i64, Status> {
        let request =
            NodeGetVolumeStatsRequest { volume_id: VOLUME.to_owned(), volume_path: target(pod), ..Default::default() };
        let answer = self.node.clone().node_get_volume_stats(request).await?;
        Ok(answer.into_inner().usage[0].total)
    }

    /// The lines of the guest's mount table that are shares.
    pub(super) async fn mounts(&self) -> Vec<String> {
        let table = self.cloud.guest.sh("cat /proc/mounts").await;
        table.lines().filter(|line| line.contains(" cifs ")).map(str::to_owned).collect()
    }

    pub(super) async fn can_write(&self, pod: &str) -> bool {
        self.cloud.guest.exec(&["touch", &format!("{}/file-of-{pod}", target(pod))]).await.code == 0
    }

    /// No trace of the key in the guest.
    pub(super) async fn key_is_nowhere(&self, key: &str) {
        let line = format!(
            "for place in /proc/[0-9]*/cmdline /proc/[0-9]*/environ /proc/mounts /tmp/node.log; do \
             [ $place = /proc/$$/cmdline ] || ! grep -qF '{key}' $place 2>/dev/null || echo $place; done; \
             grep -rlF '{key}' /csi /var /run /tmp 2>/dev/null; dmesg | grep -F '{key}'; true"
        );
        assert_eq!(self.cloud.guest.sh(&line).await, "");
    }
}

#[track_caller]
fn refused(answer: Result<(), Status>, code: Code, says: &str) {
    let status = answer.expect_err("it is refused");
    assert!(status.code() == code && status.message().contains(says), "expected {code:?}, {says}: {status:?}");
}

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
    let began = Instant::now();
    refused(driver.publish("2", false, Some(&old)).await, Code::Unavailable, "does not answer on TCP port 445");
    refused(driver.total("1").await.map(drop), Code::Unavailable, "cannot be measured");
    driver.publish("1", false, None).await.unwrap();
    assert!(began.elapsed() < KUBELET);
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

/// The processes of a file server.
fn processes_of(server: u32) -> Vec<nix::unistd::Pid> {
    let parent_of = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of_it = pids.filter(|pid| *pid == server || parent_of(*pid) == Some(server));
    of_it.map(|pid| nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap())).collect()
}

#[tokio::test]
async fn a_server_that_hangs_holds_up_no_call_and_heals() {
    if !able() {
        return;
    }
    let driver = Driver::start().await;
    let key = driver.cloud.key("first").await;
    driver.stage(to_stage(&[], &[], Some(&key))).await.unwrap();
    driver.publish("1", false, None).await.unwrap();
    assert!(driver.can_write("1").await);
    let signal = |signal| {
        for pid in processes_of(driver.cloud.server("first").pid.unwrap()) {
            let _ = nix::sys::signal::kill(pid, signal);
        }
    };
    signal(nix::sys::signal::Signal::SIGSTOP);
    let began = Instant::now();
    let (measured, again, published) =
        tokio::join!(driver.total("1"), driver.publish("1", false, None), driver.publish("2", false, None));
    refused(measured.map(drop), Code::Unavailable, "cannot be measured");
    again.unwrap();
    refused(published, Code::Unavailable, "did not return before the deadline");
    assert!(began.elapsed() < KUBELET);
    signal(nix::sys::signal::Signal::SIGCONT);
    assert!(driver.can_write("1").await);
    assert_eq!(driver.total("1").await.unwrap(), 5 << 30);
    driver.publish("2", false, None).await.unwrap();
    for pod in ["1", "2"] {
        driver.unpublish(pod).await;
    }
    driver.unstage().await;
    driver.cloud.stop().await;
}
