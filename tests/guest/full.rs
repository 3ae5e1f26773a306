//! What takes minutes: outages as a node meets them, a share that several nodes have, and a node plugin that is replaced.

mod disks;

use std::fs;

use csi_proto::csi::{NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, node_client::NodeClient};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tonic::{Code, Status};

use super::{
    driver::{Driver, NODE, SOCKET, STAGING, VOLUME, refused, target, to_stage},
    machine::{Equipment, Guest, Storage, able},
    shares::Cloud,
};

#[tokio::test]
async fn two_nodes_that_have_a_share_read_what_the_other_has_written() {
    if !able() {
        return;
    }
    let cloud = Cloud::start(&["first"]).await;
    let (one, other) = (&cloud.guest, Guest::boot().await);
    cloud.reach(&other, "first").await;
    let key = cloud.key("first").await;
    for guest in [one, &other] {
        let mounted = Cloud::mount_in(guest, "first", "data", "first", &key, "/mnt/data").await;
        assert!(mounted.code == 0, "{mounted:?}");
        let options = guest.sh("grep ' /mnt/data cifs ' /proc/mounts").await;
        assert!(options.contains("cache=strict"), "{options}");
    }
    // A writer that keeps its file open and has flushed nothing: the other's opening makes the kernel write it.
    for (turn, writer, reader) in [("1", one, &other), ("2", &other, one)] {
        let line = format!(
            "mkfifo /tmp/go-{turn}; (exec 3>/mnt/data/file-{turn}; echo written >&3; echo >/tmp/go-{turn}; exec sleep 1000) \
             >/dev/null 2>&1 </dev/null & read begun </tmp/go-{turn}"
        );
        writer.sh(&line).await;
        assert_eq!(reader.sh(&format!("cat /mnt/data/file-{turn}")).await, "written");
        // What a node has in its own cache it may see for `actimeo` seconds more: of that nothing is said here.
    }
    // Both write at the same time, and each sees all of the other's lines.
    let append = |name: &str| format!("for n in $(seq 20); do echo {name} $n >>/mnt/data/log-{name}; done; sync");
    let (from_one, from_other) = (append("one"), append("other"));
    tokio::join!(one.sh(&from_one), other.sh(&from_other));
    for (guest, log) in [(one, "other"), (&other, "one")] {
        assert_eq!(guest.sh(&format!("wc -l </mnt/data/log-{log}")).await, "20");
    }
    other.stop().await;
    cloud.stop().await;
}

/// The processes of a file server.
fn processes_of(server: u32) -> Vec<Pid> {
    let parent_of = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of_it = pids.filter(|pid| *pid == server || parent_of(*pid) == Some(server));
    of_it.map(|pid| Pid::from_raw(i32::try_from(pid).unwrap())).collect()
}

/// That it was done, or that it was not and may be asked for again: kubelet's own deadline is no answer.
#[track_caller]
fn is_answer<T>(answer: Result<T, Status>) {
    if let Err(status) = answer {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
}

/// A share staged, and published for the Pods `1` and `2`.
async fn published(equipment: Equipment<'_>) -> Driver {
    let driver = Driver::start_with(equipment).await;
    let key = driver.cloud.key("first").await;
    driver.stage(to_stage(&[], &[], Some(&key))).await.unwrap();
    for pod in ["1", "2"] {
        driver.publish(pod, false, None).await.unwrap();
    }
    assert!(driver.can_write("1").await);
    driver
}

/// While no packet comes from the server: every call is answered, and the Pods' mounts stay.
async fn every_call_is_answered(driver: &Driver) {
    let mut node = driver.node.clone();
    let unpublish = NodeUnpublishVolumeRequest { volume_id: VOLUME.to_owned(), target_path: target("2") };
    let (measured, again, published, unpublished) = tokio::join!(
        driver.total("1"),
        driver.publish("1", false, None),
        driver.publish("3", false, None),
        node.node_unpublish_volume(unpublish),
    );
    refused(measured.map(drop), Code::Unavailable, "cannot be measured");
    again.unwrap();
    refused(published, Code::Unavailable, "did not return before the deadline");
    is_answer(unpublished);
    let unstage = NodeUnstageVolumeRequest { volume_id: VOLUME.to_owned(), staging_target_path: STAGING.to_owned() };
    is_answer(node.node_unstage_volume(unstage).await);
    is_answer(driver.stage(to_stage(&[], &[], Some(&driver.cloud.key("first").await))).await);
    let mounts = driver.mounts().await;
    assert!(mounts.iter().any(|line| line.contains(&target("1"))), "{mounts:?}");
}

/// Afterwards everything goes on, and comes to its end.
async fn everything_goes_on(driver: Driver) {
    // The Pod's write waits for the server.
    assert!(driver.can_write("1").await);
    assert_eq!(driver.total("1").await.unwrap(), 5 << 30);
    let key = driver.cloud.key("first").await;
    driver.stage(to_stage(&[], &[], Some(&key))).await.unwrap();
    driver.publish("3", false, None).await.unwrap();
    assert!(driver.can_write("3").await);
    for pod in ["1", "2", "3"] {
        driver.unpublish(pod).await;
    }
    driver.unstage().await;
    assert_eq!(driver.mounts().await, Vec::<String>::new());
    driver.cloud.stop().await;
}

#[tokio::test]
async fn a_server_that_hangs_holds_up_no_call_and_heals() {
    if !able() {
        return;
    }
    let driver = published(Equipment::default()).await;
    let server = processes_of(driver.cloud.server("first").pid.unwrap());
    let all = |signal: Signal| server.iter().for_each(|pid| kill(*pid, signal).unwrap_or_default());
    all(Signal::SIGSTOP);
    every_call_is_answered(&driver).await;
    all(Signal::SIGCONT);
    everything_goes_on(driver).await;
}

#[tokio::test]
async fn a_network_that_is_cut_holds_up_no_call_and_heals() {
    if !able() {
        return;
    }
    let driver = published(Equipment { storage: Storage::Own, ..Equipment::default() }).await;
    driver.cloud.guest.cut(true).await;
    every_call_is_answered(&driver).await;
    driver.cloud.guest.cut(false).await;
    everything_goes_on(driver).await;
}

#[tokio::test]
async fn a_share_that_is_deleted_under_its_mount_is_told_in_words_and_unmounted() {
    if !able() {
        return;
    }
    let driver = published(Equipment::default()).await;
    driver.cloud.ask("DELETE", "first", "/fileServices/default/shares/data", json!({}), 200).await;
    assert!(!driver.can_write("1").await);
    refused(driver.total("1").await.map(drop), Code::Unavailable, "cannot be measured");
    // What is published is published; a new Pod is told what is missing.
    driver.publish("1", false, None).await.unwrap();
    let key = driver.cloud.key("first").await;
    refused(driver.publish("3", false, Some(&key)).await, Code::NotFound, "first.file.core.windows.net/data");
    for pod in ["1", "2", "3"] {
        driver.unpublish(pod).await;
    }
    driver.unstage().await;
    assert_eq!(driver.mounts().await, Vec::<String>::new());
    driver.cloud.stop().await;
}

/// The system calls by which something is mounted or unmounted, as the kernel's events name them.
const MOUNT_CALLS: &str = "mount umount open_tree move_mount fsopen fsmount mount_setattr";

#[tokio::test]
async fn a_new_node_plugin_goes_on_with_what_the_old_one_has_mounted() {
    if !able() {
        return;
    }
    let driver = published(Equipment::default()).await;
    let guest = &driver.cloud.guest;
    let table = guest.sh("cat /proc/self/mountinfo").await;
    // The Pod has a file open, and writes on meanwhile.
    guest
        .sh(&format!(
            "(exec 3>>{}/log; until [ -e /tmp/enough ]; do echo line >&3; sleep 0.05; done; echo end >&3) >/dev/null 2>&1 \
             </dev/null &",
            target("1")
        ))
        .await;
    guest.stop_node().await;
    assert_eq!(guest.sh("cat /proc/self/mountinfo").await, table, "what is mounted stays");
    guest.sh("mkdir -p /sys/kernel/tracing; /bin/mount -t tracefs tracefs /sys/kernel/tracing").await;
    let trace = format!(
        "cd /sys/kernel/tracing && for call in {MOUNT_CALLS}; do echo 1 >events/syscalls/sys_enter_$call/enable || exit 1; \
         done"
    );
    guest.sh(&trace).await;
    let calls = "grep -v '^#' /sys/kernel/tracing/trace; true";
    // An update brings the program in another file.
    guest.sh("cp /bin/lazuli /bin/lazuli-new").await;
    let node = NodeClient::new(guest.start_node("/bin/lazuli-new", NODE, SOCKET).await);
    let driver = Driver { node, ..driver };
    let guest = &driver.cloud.guest;
    driver.stage(to_stage(&[], &[], None)).await.unwrap();
    for pod in ["1", "2"] {
        driver.publish(pod, false, None).await.unwrap();
    }
    assert_eq!(guest.sh(calls).await, "", "what is there is not mounted again");
    assert_eq!(driver.total("1").await.unwrap(), 5 << 30);
    driver.publish("3", false, None).await.unwrap();
    assert_ne!(guest.sh(calls).await, "", "a new mount is seen");

    guest.sh("touch /tmp/enough").await;
    let log = driver.cloud.server("first").shares["data"].join("log");
    let has_ended = || fs::read_to_string(&log).is_ok_and(|written| written.ends_with("end\n"));
    guest.until("the Pod has written its last line", has_ended).await;
    for pod in ["1", "2", "3"] {
        driver.unpublish(pod).await;
    }
    driver.unstage().await;
    assert_eq!(driver.mounts().await, Vec::<String>::new());
    driver.cloud.stop().await;
}
