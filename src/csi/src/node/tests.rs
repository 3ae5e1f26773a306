mod copies;
mod device_ownership;
mod event;
mod first_use;
mod info;
mod kill;
mod machine;
mod nvme;
mod tuning;
mod volume_mode;

use std::{fs, os::unix::fs::OpenOptionsExt as _};

use csi_proto::csi::volume_capability::{AccessType, access_mode::Mode};
use lazuli_host::device;
use lazuli_volume::SOURCE_KEY;
use machine::{GIB, Machine, able, block, filesystem, may_grow_ext4, mounted_as, run, volume};
use tonic::Code as Grpc;

use super::*;
use crate::scratch::Scratch;

fn code(outcome: Result<(), Status>) -> (Grpc, String) {
    let status = outcome.expect_err("it should have been refused");
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn a_call_whose_work_panics_is_answered_frees_its_volume_and_may_have_happened() {
    let state = Scratch::new();
    let node = NodeService::open(Host::new(), None, state.path(), NodeConfig::new("node-0")).unwrap();
    for _ in 0..2 {
        let held = node.0.locks.volume("Volume-A").unwrap();
        assert_eq!(held.volume(), "volume-a");
        let refused = node.own::<(), _>(held, |_| async { panic!("a size was negative") }).await.unwrap_err();
        // kubelet takes INTERNAL for "nothing was mounted".
        assert_eq!(refused.code(), Grpc::Unavailable);
        assert!(refused.message().contains("a size was negative"), "{}", refused.message());
    }
    node.finish().await;
}

#[tokio::test]
async fn every_filesystem_lives_through_its_life_twice() {
    if !able() {
        return;
    }
    for fs_type in ["ext4", "ext3", "ext2", "xfs", "btrfs"] {
        let mut machine = Machine::new().await;
        machine.attach(3, "a");
        let (staging, target) = (machine.staging("a"), machine.target("1"));
        for round in 0..2 {
            for _ in 0..2 {
                machine.stage_as(3, "a", mounted_as(fs_type)).await.unwrap();
            }
            assert_eq!(machine.mounted(&staging).unwrap().fs_type, fs_type);
            for _ in 0..2 {
                machine.publish(3, "a", "1", mounted_as(fs_type)).await.unwrap();
            }
            let file = target.join("file");
            match round {
                0 => fs::write(&file, "kept").unwrap(),
                _ => assert_eq!(fs::read_to_string(&file).unwrap(), "kept", "{fs_type}"),
            }
            let totals = machine.totals("a", &target).await.unwrap();
            assert!(totals[0] > 900 << 20 && totals.len() == 2, "{fs_type}: {totals:?}");
            for _ in 0..2 {
                machine.unpublish("a", "1").await.unwrap();
            }
            assert!(!target.exists());
            for _ in 0..2 {
                machine.unstage("a").await.unwrap();
            }
            assert_eq!(machine.mounted(&staging), None);
            assert_eq!(machine.record("a").await, None);
        }
    }
}

#[tokio::test]
async fn a_raw_block_volume_is_its_device_and_is_never_formatted() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    let place = machine.attach(0, "raw");
    for _ in 0..2 {
        machine.stage_as(0, "raw", block()).await.unwrap();
    }
    assert_eq!(machine.mounted(&machine.staging("raw")), None);
    for _ in 0..2 {
        machine.publish(0, "raw", "1", block()).await.unwrap();
    }
    let target = machine.target("1");
    assert_eq!(device::node_number(&target), device::node_number(&machine.disk(place).node));
    assert_eq!(machine.totals("raw", &target).await.unwrap(), [GIB as i64]);
    assert!(machine.disk(place).is_untouched());

    machine.disk(place).grow(2 * GIB);
    assert_eq!(machine.expand("raw", &target, 2 * GIB).await.unwrap(), 2 * GIB as i64);
    for _ in 0..2 {
        machine.unpublish("raw", "1").await.unwrap();
        assert!(!target.exists());
    }
    for _ in 0..2 {
        machine.unstage("raw").await.unwrap();
    }
    assert_eq!(machine.record("raw").await, None);
}

#[tokio::test]
async fn another_disk_at_the_lun_is_never_touched() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    let place = machine.attach(3, "b");
    let (code, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
    assert_eq!(code, Grpc::Unavailable);
    assert!(message.contains("LUN 3 holds") && message.contains(&volume("b")), "{message}");
    assert!(machine.disk(place).is_untouched());
    assert_eq!(machine.mounted(&machine.staging("a")), None);
    assert_eq!(machine.record("a").await, None);
}

#[tokio::test]
async fn a_disk_at_another_lun_is_refused_naming_both() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    let place = machine.plug(3, {
        let file = machine.scratch.join("x.img");
        fs::File::create(&file).unwrap().set_len(GIB).unwrap();
        file
    });
    machine.tell(4, "a");
    let (code, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
    assert_eq!(code, Grpc::Unavailable);
    assert!(message.contains("at LUN 4, not at LUN 3"), "{message}");
    assert!(machine.disk(place).is_untouched());
}

/// A machine that waits for a disk, and a stage call that waits on it.
async fn waiting_for_a_disk() -> (Machine, tokio::task::JoinHandle<Result<(), Status>>) {
    let wait = Duration::from_secs(60);
    let machine = Machine::with(Timeouts { identity: wait, find: wait, ..Timeouts::default() }).await;
    let request = machine.stage_request(3, "a", mounted_as("ext4"));
    let mut client = machine.client.clone();
    let call = tokio::spawn(async move { client.node_stage_volume(request).await.map(|_| ()) });
    while machine.service.0.locks.volume(&volume("a")).is_ok() {
        tokio::task::yield_now().await;
    }
    (machine, call)
}

#[tokio::test]
async fn a_disk_that_comes_late_is_staged_in_the_same_call_which_has_the_volume_meanwhile() {
    if !able() {
        return;
    }
    let (mut machine, call) = waiting_for_a_disk().await;
    let (refusal, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
    assert_eq!(refusal, Grpc::Aborted);
    assert!(message.contains(&volume("a")), "{message}");
    assert_eq!(code(machine.unstage("a").await).0, Grpc::Aborted);
    assert_eq!(code(machine.publish(3, "a", "1", mounted_as("ext4")).await).0, Grpc::Aborted);
    machine.attach(3, "a");
    call.await.unwrap().unwrap();
    assert!(machine.mounted(&machine.staging("a")).is_some());
}

#[tokio::test]
async fn a_call_whose_caller_left_is_finished_before_the_process_ends() {
    if !able() {
        return;
    }
    let (mut machine, call) = waiting_for_a_disk().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    machine.attach(3, "a");
    machine.service.finish().await;
    assert!(machine.mounted(&machine.staging("a")).is_some());
}

#[tokio::test]
async fn without_an_answer_of_the_metadata_a_known_uuid_of_another_volume_is_refused() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    let twin = machine.scratch.join("twin.img");
    run("sync", &[]);
    run("cp", &["--sparse=always", machine.disk(0).file.to_str().unwrap(), twin.to_str().unwrap()]);
    machine.plug(4, twin);
    machine.metadata.lock().unwrap().down = true;
    let (code, message) = code(machine.stage_as(4, "b", mounted_as("ext4")).await);
    assert_eq!(code, Grpc::Unavailable);
    assert!(message.contains(&volume("a")), "{message}");
    // Once the metadata confirms the disk, a copy is a copy.
    machine.metadata.lock().unwrap().down = false;
    machine.tell(4, "b");
    machine.stage_as(4, "b", mounted_as("ext4")).await.unwrap();
}

#[tokio::test]
async fn a_copy_of_a_btrfs_in_use_is_refused_even_when_it_is_the_right_disk() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    machine.stage_as(3, "a", mounted_as("btrfs")).await.unwrap();
    run("sync", &["--file-system", machine.staging("a").to_str().unwrap()]);
    run(
        "cp",
        &["--sparse=always", machine.disk(0).file.to_str().unwrap(), machine.scratch.join("b.img").to_str().unwrap()],
    );
    machine.attach(4, "b");
    let (code, message) = code(machine.stage_as(4, "b", mounted_as("btrfs")).await);
    assert_eq!(code, Grpc::FailedPrecondition);
    assert!(message.contains("btrfstune -m"), "{message}");
    assert_eq!(machine.mounted(&machine.staging("b")), None);
}

#[tokio::test]
async fn another_filesystem_than_the_one_asked_for_is_left_alone() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    let (mounted, _) = code(machine.stage_as(3, "a", mounted_as("xfs")).await);
    assert_eq!(mounted, Grpc::AlreadyExists);
    machine.unstage("a").await.unwrap();
    let (unmounted, message) = code(machine.stage_as(3, "a", mounted_as("xfs")).await);
    assert_eq!(unmounted, Grpc::FailedPrecondition);
    assert!(message.contains("ext4") && message.contains("xfs"), "{message}");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
}

#[tokio::test]
async fn what_should_have_content_is_never_formatted() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    let place = machine.attach(3, "a");
    let read_only = filesystem("ext4", Mode::SingleNodeReaderOnly);
    assert_eq!(code(machine.stage_as(3, "a", read_only.clone()).await).0, Grpc::FailedPrecondition);
    for (key, value) in [("resizeRequired", "true"), ("sourceresourceid", "/subscriptions/s")] {
        let mut request = machine.stage_request(3, "a", mounted_as("ext4"));
        request.volume_context.insert(key.to_owned(), value.to_owned());
        assert_eq!(code(machine.stage(request).await).0, Grpc::FailedPrecondition, "{key}");
    }
    let mut request = machine.stage_request(3, "a", mounted_as("ext4"));
    request.publish_context.insert(SOURCE_KEY.to_owned(), "/subscriptions/s".to_owned());
    assert_eq!(code(machine.stage(request).await).0, Grpc::FailedPrecondition);
    assert!(machine.disk(place).is_untouched());
    assert_eq!(machine.record("a").await, None);

    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    assert_eq!(code(machine.stage_as(3, "a", read_only.clone()).await).0, Grpc::AlreadyExists);
    machine.unstage("a").await.unwrap();
    machine.stage_as(3, "a", read_only).await.unwrap();
    assert!(machine.mounted(&machine.staging("a")).unwrap().read_only());
}

#[tokio::test]
async fn a_read_only_publication_of_a_writable_volume_cannot_be_written() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    let capability = mounted_as("ext4");
    machine.stage_as(3, "a", capability.clone()).await.unwrap();
    let mut request = machine.publish_request(3, "a", "reader", capability.clone());
    request.readonly = true;
    for _ in 0..2 {
        machine.client.node_publish_volume(request.clone()).await.unwrap();
    }
    machine.publish(3, "a", "writer", capability.clone()).await.unwrap();
    fs::write(machine.target("writer").join("f"), "x").unwrap();
    assert_eq!(fs::read_to_string(machine.target("reader").join("f")).unwrap(), "x");
    assert_eq!(fs::write(machine.target("reader").join("g"), "x").unwrap_err().raw_os_error(), Some(nix::libc::EROFS));
    let incompatible = code(machine.publish(3, "a", "reader", capability).await);
    assert_eq!(incompatible.0, Grpc::AlreadyExists);
}

#[tokio::test]
async fn an_open_file_keeps_the_disk_attached() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    let open = fs::File::create(machine.staging("a").join("open")).unwrap();
    let (refusal, message) = code(machine.unstage("a").await);
    assert_eq!(refusal, Grpc::FailedPrecondition);
    assert!(message.contains("in use"), "{message}");
    assert!(machine.record("a").await.is_some());
    drop(open);
    machine.unstage("a").await.unwrap();
}

#[tokio::test]
async fn a_volume_that_is_still_published_is_not_released() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    machine.publish(3, "a", "1", mounted_as("ext4")).await.unwrap();
    let (refusal, message) = code(machine.unstage("a").await);
    assert_eq!(refusal, Grpc::FailedPrecondition);
    assert!(message.contains(&format!("it is mounted on {}", machine.target("1").display())), "{message}");
    // The mount is gone, but the record remembers what is to be released, also over a restart.
    machine.restart().await;
    assert_eq!(code(machine.unstage("a").await).0, Grpc::FailedPrecondition);
    machine.unpublish("a", "1").await.unwrap();
    machine.unstage("a").await.unwrap();
}

#[tokio::test]
async fn a_volume_staged_by_another_driver_is_taken_over() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    let place = machine.attach(3, "a");
    let capability = mounted_as("xfs");
    machine.stage_as(3, "a", capability.clone()).await.unwrap();
    machine.service.0.forget(&volume("a")).await.unwrap();
    machine.stage_as(3, "a", capability.clone()).await.unwrap();
    machine.publish(3, "a", "1", capability).await.unwrap();
    machine.disk(place).grow(2 * GIB);
    machine.expand("a", &machine.target("1"), 2 * GIB).await.unwrap();
    machine.unpublish("a", "1").await.unwrap();
    machine.unstage("a").await.unwrap();

    let raw = machine.attach(5, "raw");
    let mut exclusive = fs::OpenOptions::new();
    exclusive.read(true).custom_flags(nix::libc::O_EXCL);
    let holder = exclusive.open(&machine.disk(raw).node).unwrap();
    machine.publish(5, "raw", "2", block()).await.unwrap();
    machine.unpublish("raw", "2").await.unwrap();
    // No mount and no record: the metadata says which device must be free.
    assert_eq!(code(machine.unstage("raw").await).0, Grpc::FailedPrecondition);
    drop(holder);
    machine.unstage("raw").await.unwrap();
}

#[tokio::test]
async fn unstaging_goes_on_after_the_process_was_killed_and_when_the_disk_is_gone() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    // Killed after the unmount, before the release.
    rustix::mount::unmount(machine.staging("a"), rustix::mount::UnmountFlags::empty()).unwrap();
    machine.restart().await;
    assert!(machine.record("a").await.is_some());
    machine.unstage("a").await.unwrap();
    assert_eq!(machine.record("a").await, None);

    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    rustix::mount::unmount(machine.staging("a"), rustix::mount::UnmountFlags::empty()).unwrap();
    machine.unplug(3);
    machine.unstage("a").await.unwrap();
    assert_eq!(machine.record("a").await, None);
}

/// The in-tree plugin and early versions of the Go driver made ext3 too, and a PersistentVolume may not say so.
#[tokio::test]
async fn an_existing_ext2_or_ext3_is_mounted_where_ext4_or_nothing_is_asked_for() {
    if !able() {
        return;
    }
    for found in ["ext2", "ext3"] {
        for asked in ["ext4", ""] {
            let mut machine = Machine::new().await;
            let place = machine.attach(3, "a");
            run(&format!("mkfs.{found}"), &["-q", machine.disk(place).node.to_str().unwrap()]);
            for _ in 0..2 {
                machine.stage_as(3, "a", mounted_as(asked)).await.unwrap();
            }
            let mounted = machine.mounted(&machine.staging("a")).unwrap();
            assert_eq!(mounted.fs_type, found, "{asked:?}");
            machine.publish(3, "a", "1", mounted_as(asked)).await.unwrap();
            if may_grow_ext4() {
                machine.disk(place).grow(2 * GIB);
                machine.expand("a", &machine.target("1"), 2 * GIB).await.unwrap();
            }
            machine.unpublish("a", "1").await.unwrap();
            machine.unstage("a").await.unwrap();
            // The other way round nothing is taken for what was asked for.
            let other = if found == "ext2" { "ext3" } else { "ext2" };
            let (refusal, message) = code(machine.stage_as(3, "a", mounted_as(other)).await);
            assert_eq!(refusal, Grpc::FailedPrecondition);
            assert!(message.contains(&format!("holds {found}, {other} was asked for")), "{message}");
        }
    }
}

#[tokio::test]
async fn an_ext_file_system_turns_read_only_on_an_error_and_no_option_reaches_beyond_the_volume() {
    if !able() {
        return;
    }
    let with = |fs_type: &str, flag: &str| {
        let mut capability = mounted_as(fs_type);
        if let Some(AccessType::Mount(mount)) = &mut capability.access_type {
            mount.mount_flags = vec![flag.to_owned()];
        }
        capability
    };
    let mut machine = Machine::new().await;
    let place = machine.attach(3, "a");
    for (fs_type, flag) in [
        ("ext4", "errors=panic"),
        ("ext4", "journal_path=/dev/sda"),
        ("xfs", "noatime,logdev=/dev/sda"),
        ("btrfs", "device=/dev/sda"),
        ("ext4", "context=\"a,journal_path=/dev/sda\""),
    ] {
        let (refusal, message) = code(machine.stage_as(3, "a", with(fs_type, flag)).await);
        assert_eq!(refusal, Grpc::InvalidArgument);
        assert!(message.contains("is not allowed for a volume, because"), "{message}");
    }
    assert!(machine.disk(place).is_untouched());
    // A file system that stops the node on an error, by its own superblock.
    run("mkfs.ext4", &["-q", machine.disk(place).node.to_str().unwrap()]);
    run("tune2fs", &["-e", "panic", machine.disk(place).node.to_str().unwrap()]);
    for (flag, expected) in [("noatime", "errors=remount-ro"), ("errors=continue", "errors=continue")] {
        machine.stage_as(3, "a", with("ext4", flag)).await.unwrap();
        let mounted = machine.mounted(&machine.staging("a")).unwrap();
        assert!(mounted.super_options.iter().any(|option| option == expected), "{:?}", mounted.super_options);
        machine.unstage("a").await.unwrap();
    }
}

#[tokio::test]
async fn a_filesystem_grows_with_its_disk_and_not_before() {
    if !able() {
        return;
    }
    for fs_type in ["ext4", "xfs", "btrfs"] {
        if fs_type == "ext4" && !may_grow_ext4() {
            continue;
        }
        let mut machine = Machine::new().await;
        let place = machine.attach(3, "a");
        machine.stage_as(3, "a", mounted_as(fs_type)).await.unwrap();
        machine.publish(3, "a", "1", mounted_as(fs_type)).await.unwrap();
        let target = machine.target("1");
        let early = machine.expand("a", &target, 2 * GIB).await.unwrap_err();
        assert_eq!(early.code(), Grpc::Unavailable, "{fs_type}: {early}");
        machine.disk(place).grow(2 * GIB);
        for path in [target.clone(), machine.staging("a")] {
            assert_eq!(machine.expand("a", &path, 2 * GIB).await.unwrap(), 2 * GIB as i64);
        }
        let totals = machine.totals("a", &target).await.unwrap();
        assert!(totals[0] > 1900 << 20, "{fs_type}: {totals:?}");
        // A restore to a larger disk grows when it is staged.
        machine.unpublish("a", "1").await.unwrap();
        machine.unstage("a").await.unwrap();
        machine.disk(place).grow(3 * GIB);
        machine.stage_as(3, "a", mounted_as(fs_type)).await.unwrap();
        let totals = machine.totals("a", &machine.staging("a")).await.unwrap();
        assert!(totals[0] > 2800 << 20, "{fs_type}: {totals:?}");
    }
}

#[tokio::test]
async fn a_disk_smaller_than_its_volume_is_not_the_disk() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    let place = machine.attach(3, "a");
    let mut request = machine.stage_request(3, "a", mounted_as("ext4"));
    request.volume_context.insert("requestedsizegib".to_owned(), "2".to_owned());
    let (refusal, message) = code(machine.stage(request).await);
    assert_eq!(refusal, Grpc::Unavailable);
    assert!(message.contains("2147483648 were expected"), "{message}");
    assert!(machine.disk(place).is_untouched());
}

#[tokio::test]
async fn a_volume_for_one_pod_is_published_once() {
    if !able() {
        return;
    }
    for capability in [filesystem("ext4", Mode::SingleNodeSingleWriter), {
        let mode = csi_proto::csi::volume_capability::AccessMode { mode: Mode::SingleNodeSingleWriter.into() };
        csi_proto::csi::VolumeCapability { access_mode: Some(mode), ..block() }
    }] {
        let mut machine = Machine::new().await;
        machine.attach(3, "a");
        machine.stage_as(3, "a", capability.clone()).await.unwrap();
        machine.publish(3, "a", "1", capability.clone()).await.unwrap();
        machine.publish(3, "a", "1", capability.clone()).await.unwrap();
        let (refusal, message) = code(machine.publish(3, "a", "2", capability.clone()).await);
        assert_eq!(refusal, Grpc::FailedPrecondition);
        assert!(message.contains("pods/1"), "{message}");
        machine.unpublish("a", "1").await.unwrap();
        machine.publish(3, "a", "2", capability).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_is_published_that_is_not_staged() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    assert_eq!(code(machine.publish(3, "a", "1", mounted_as("ext4")).await).0, Grpc::FailedPrecondition);
    machine.metadata.lock().unwrap().down = true;
    assert_eq!(code(machine.publish(3, "a", "1", block()).await).0, Grpc::FailedPrecondition);
    assert!(!machine.target("1").exists());
}

#[tokio::test]
async fn mount_flags_reach_the_filesystem_and_wrong_ones_are_refused() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    let with = |flag: &str| {
        let mut capability = mounted_as("ext4");
        if let Some(AccessType::Mount(mount)) = &mut capability.access_type {
            mount.mount_flags = vec![flag.to_owned()];
        }
        capability
    };
    assert_eq!(code(machine.stage_as(3, "a", with("bind")).await).0, Grpc::InvalidArgument);
    // One that only the kernel can judge is named with what it was for.
    let (_, message) = code(machine.stage_as(3, "a", with("frobnicate")).await);
    assert!(message.contains("ext4") && message.contains("\"frobnicate,errors=remount-ro\""), "{message}");
    machine.stage_as(3, "a", with("noatime,data=ordered")).await.unwrap();
    let mount = machine.mounted(&machine.staging("a")).unwrap();
    assert!(mount.options.iter().any(|option| option == "noatime"), "{mount:?}");
}

#[tokio::test]
async fn what_is_missing_or_wrong_in_a_request_is_named() {
    let mut machine = Machine::new().await;
    let good = machine.stage_request(3, "a", mounted_as("ext4"));
    let bad = |change: fn(&mut NodeStageVolumeRequest)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    for (request, named) in [
        (bad(|request| request.volume_id.clear()), "volume_id"),
        (bad(|request| request.staging_target_path.clear()), "staging_target_path"),
        (bad(|request| request.staging_target_path = "relative".into()), "absolute"),
        (bad(|request| request.volume_capability = None), "volume_capability"),
        (bad(|request| request.volume_id = "disk".into()), "volume id"),
        (bad(|request| request.publish_context.clear()), "LUN"),
        (bad(|request| request.volume_capability = Some(mounted_as("ntfs"))), "ntfs"),
        (bad(|request| request.volume_context.extend([("fsType".into(), "zfs".into())])), "zfs"),
    ] {
        let (refusal, message) = code(machine.stage(request).await);
        assert!(message.contains(named), "{message}");
        if named != "ntfs" {
            assert_eq!(refusal, Grpc::InvalidArgument, "{message}");
        }
    }
    let shared = filesystem("ext4", Mode::MultiNodeMultiWriter);
    assert_eq!(code(machine.stage_as(3, "a", shared).await).0, Grpc::FailedPrecondition);

    let mut publish = machine.publish_request(3, "a", "1", mounted_as("ext4"));
    publish.staging_target_path.clear();
    let refusal = machine.client.node_publish_volume(publish).await.unwrap_err();
    assert_eq!(refusal.code(), Grpc::FailedPrecondition);
    for publish in [
        NodePublishVolumeRequest::default(),
        NodePublishVolumeRequest { volume_id: "a".into(), ..Default::default() },
        NodePublishVolumeRequest { volume_id: "a".into(), target_path: "/t".into(), ..Default::default() },
    ] {
        assert_eq!(machine.client.node_publish_volume(publish).await.unwrap_err().code(), Grpc::InvalidArgument);
    }
    for unstage in [
        NodeUnstageVolumeRequest { staging_target_path: "/s".into(), ..Default::default() },
        NodeUnstageVolumeRequest { volume_id: "a".into(), ..Default::default() },
    ] {
        assert_eq!(machine.client.node_unstage_volume(unstage).await.unwrap_err().code(), Grpc::InvalidArgument);
    }
    for unpublish in [
        NodeUnpublishVolumeRequest::default(),
        NodeUnpublishVolumeRequest { volume_id: "a".into(), ..Default::default() },
    ] {
        assert_eq!(machine.client.node_unpublish_volume(unpublish).await.unwrap_err().code(), Grpc::InvalidArgument);
    }
    let somewhere = PathBuf::from("some/path");
    assert_eq!(machine.totals("a", &somewhere).await.unwrap_err().code(), Grpc::NotFound);
    assert_eq!(machine.totals("a", Path::new("/no/such")).await.unwrap_err().code(), Grpc::NotFound);
    assert_eq!(
        machine.totals("a", machine.scratch.path().to_owned().as_path()).await.unwrap_err().code(),
        Grpc::NotFound
    );
    assert_eq!(machine.totals("a", Path::new("")).await.unwrap_err().code(), Grpc::InvalidArgument);
    assert_eq!(machine.expand("a", &somewhere, 1).await.unwrap_err().code(), Grpc::NotFound);
    assert_eq!(machine.expand("a", Path::new(""), 1).await.unwrap_err().code(), Grpc::InvalidArgument);
}

#[tokio::test]
async fn unstaging_and_unpublishing_what_is_not_there_succeeds() {
    let mut machine = Machine::new().await;
    machine.unpublish("a", "1").await.unwrap();
    machine.unstage("a").await.unwrap();
}
