//! A call that pairs one volume with another's path changes nothing and shows nothing.

use super::*;

async fn two_volumes() -> Machine {
    let mut machine = Machine::new().await;
    for (lun, name) in [(3, "a"), (4, "b")] {
        machine.attach(lun, name);
        machine.stage_as(lun, name, mounted_as("ext4")).await.unwrap();
    }
    machine
}

#[tokio::test]
async fn a_path_of_one_volume_is_not_grown_or_measured_under_the_name_of_another() {
    if !able() {
        return;
    }
    let mut machine = two_volumes().await;
    machine.publish(3, "a", "1", mounted_as("ext4")).await.unwrap();
    machine.disk(0).grow(2 * GIB);
    for path in [machine.staging("a"), machine.target("1")] {
        let before = machine.totals("a", &path).await.unwrap();
        assert_eq!(machine.totals("b", &path).await.unwrap_err().code(), Grpc::NotFound);
        assert_eq!(machine.expand("b", &path, 2 * GIB).await.unwrap_err().code(), Grpc::NotFound);
        assert_eq!(machine.totals("a", &path).await.unwrap(), before, "the other's file system was grown");
        // Nor by the name of one that was never here.
        assert_eq!(machine.expand("c", &path, 2 * GIB).await.unwrap_err().code(), Grpc::NotFound);
    }
}

#[tokio::test]
async fn a_raw_device_of_one_volume_is_not_measured_under_the_name_of_another() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    for (lun, name) in [(3, "a"), (4, "b")] {
        machine.attach(lun, name);
        machine.stage_as(lun, name, block()).await.unwrap();
    }
    machine.publish(3, "a", "1", block()).await.unwrap();
    let target = machine.target("1");
    assert_eq!(machine.totals("a", &target).await.unwrap(), [GIB as i64]);
    assert_eq!(machine.totals("b", &target).await.unwrap_err().code(), Grpc::NotFound);
    assert_eq!(machine.expand("b", &target, GIB).await.unwrap_err().code(), Grpc::NotFound);
}

#[tokio::test]
async fn a_pod_is_never_shown_another_volume_that_is_mounted_at_the_staging_path() {
    if !able() {
        return;
    }
    let mut machine = two_volumes().await;
    let mut request = machine.publish_request(4, "b", "1", mounted_as("ext4"));
    request.staging_target_path = machine.staging("a").display().to_string();
    let refusal = machine.client.node_publish_volume(request).await.unwrap_err();
    assert_eq!(refusal.code(), Grpc::FailedPrecondition);
    assert!(!machine.target("1").exists());
}

#[tokio::test]
async fn the_metadata_outweighs_a_stale_record_and_silence_outweighs_nothing() {
    if !able() {
        return;
    }
    let mut machine = two_volumes().await;
    let staging = machine.staging("a");
    // Another driver staged the volume again, on another device than this node remembers.
    let record = machine.record("a").await.unwrap();
    let elsewhere = lazuli_host::device_number::DeviceNumber { major: 8, minor: 208 };
    machine.service.0.remember(Record { device: Some(elsewhere), ..record }).await.unwrap();
    machine.totals("a", &staging).await.unwrap();
    machine.metadata.lock().unwrap().down = true;
    assert_eq!(machine.totals("a", &staging).await.unwrap_err().code(), Grpc::NotFound);
    // Without any record there is nothing to doubt.
    machine.service.0.forget(&volume("a")).await.unwrap();
    machine.totals("a", &staging).await.unwrap();
    // But a record of another volume speaks against it.
    assert_eq!(machine.totals("a", &machine.staging("b")).await.unwrap_err().code(), Grpc::NotFound);
}

#[tokio::test]
async fn a_metadata_service_that_hangs_keeps_neither_the_registration_nor_a_call_waiting() {
    let timeouts = Timeouts { instance: Duration::from_millis(50), ..Timeouts::default() };
    let mut machine = Machine::with(timeouts).await;
    let known = machine.client.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    machine.metadata.lock().unwrap().hangs = true;
    let began = std::time::Instant::now();
    let info = machine.client.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info, known);
    assert_eq!(code(machine.unstage("a").await).0, Grpc::Unavailable);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_file_system_unlike_the_one_that_the_volume_had_is_never_mounted_by_waiting() {
    if !able() {
        return;
    }
    // The metadata is silent, answers without the LUN, or is not used at all.
    for (down, used) in [(true, true), (false, true), (false, false)] {
        let (mut machine, file) = that_had_a().await;
        machine.metadata.lock().unwrap().disks.clear();
        machine.metadata.lock().unwrap().down = down;
        if !used {
            machine.restart_without_metadata().await;
        }
        let other = image(&machine, "stranger");
        run("mkfs.ext4", &["-q", "-F", other.to_str().unwrap()]);
        let before = fs::read(&other).unwrap();
        machine.plug(3, other.clone());
        for _ in 0..3 {
            let (refusal, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
            assert_eq!(refusal, Grpc::Unavailable, "{message}");
            assert!(message.contains("this volume had the file system"), "{message}");
            assert!(message.contains("create the empty file"), "{message}");
            machine.service.0.identity_checks.age(10 * Timeouts::default().identity_check);
        }
        assert_eq!(machine.mounted(&machine.staging("a")), None);
        machine.unplug(3);
        assert!(fs::read(&other).unwrap() == before, "the stranger was written to");
        // Its own disk needs no word of the metadata.
        machine.plug(3, file);
        machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    }
}

#[tokio::test]
async fn an_operator_accepts_a_disk_by_the_file_that_the_refusal_names_and_for_this_once() {
    if !able() {
        return;
    }
    for blank in [false, true] {
        let (mut machine, _) = that_had_a().await;
        machine.metadata.lock().unwrap().down = true;
        let other = image(&machine, "new");
        if !blank {
            run("mkfs.ext4", &["-q", "-F", other.to_str().unwrap()]);
        }
        machine.plug(3, other);
        let (_, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
        assert_eq!(message.contains("and it is formatted"), blank, "{message}");
        let (_, rest) = message.split_once("create the empty file ").unwrap();
        let (file, _) = rest.split_once(" in the node plugin's container").unwrap();
        assert!(file.starts_with(machine.scratch.join("state/accept").to_str().unwrap()), "{file}");
        fs::write(file, "").unwrap();
        machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
        assert!(!Path::new(file).exists());
        // What is there now is what the volume had last.
        machine.unstage("a").await.unwrap();
        machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
        machine.unstage("a").await.unwrap();
        // The next surprise is one again.
        machine.unplug(3);
        let third = image(&machine, "third");
        machine.plug(3, third);
        assert_eq!(code(machine.stage_as(3, "a", mounted_as("ext4")).await).0, Grpc::Unavailable);
    }
}

/// A machine that was reset has no mount, but the record; and another disk came to stand at the LUN.
#[tokio::test]
async fn metadata_that_names_the_disk_outweighs_what_was_remembered_once_it_has_stood_for_a_while() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    let file = image(&machine, "a");
    machine.plug(3, file);
    machine.tell(3, "a");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    rustix::mount::unmount(machine.staging("a"), rustix::mount::UnmountFlags::empty()).unwrap();
    machine.unplug(3);
    let file = image(&machine, "stranger");
    run("mkfs.ext4", &["-q", "-F", file.to_str().unwrap()]);
    machine.plug(3, file);
    let (refusal, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
    assert_eq!(refusal, Grpc::Unavailable);
    assert!(message.contains("when it was here before"), "{message}");
    assert_eq!(machine.mounted(&machine.staging("a")), None);
    machine.service.0.identity_checks.age(Timeouts::default().identity_check);
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
}

/// A copy is told from its original by the metadata alone.
#[tokio::test]
async fn a_copy_of_a_file_system_that_was_here_as_another_volume_s_is_not_mounted_on_silence() {
    if !able() {
        return;
    }
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let mut machine = Machine::new().await;
        machine.attach(3, "a");
        machine.stage_as(3, "a", mounted_as(fs_type)).await.unwrap();
        machine.unstage("a").await.unwrap();
        let (original, copy) = (machine.disk(0).file.clone(), machine.scratch.join("copy.img"));
        run("cp", &["--sparse=always", original.to_str().unwrap(), copy.to_str().unwrap()]);
        machine.unplug(3);
        machine.plug(4, copy);
        machine.metadata.lock().unwrap().down = true;
        for _ in 0..2 {
            let (refusal, message) = code(machine.stage_as(4, "b", mounted_as(fs_type)).await);
            assert_eq!(refusal, Grpc::Unavailable, "{fs_type}: {message}");
            assert!(message.contains(&volume("a")), "{fs_type}: {message}");
            machine.service.0.identity_checks.age(10 * Timeouts::default().identity_check);
        }
        assert_eq!(machine.mounted(&machine.staging("b")), None);
    }
}

/// A sparse disk of one GiB.
fn image(machine: &Machine, name: &str) -> PathBuf {
    let file = machine.scratch.join(format!("{name}.img"));
    fs::File::create(&file).unwrap().set_len(GIB).unwrap();
    file
}

/// A machine that had the volume `a` and has it no more, the metadata that still names it at LUN 3, and its disk.
async fn that_had_a() -> (Machine, PathBuf) {
    let mut machine = Machine::new().await;
    let file = image(&machine, "a");
    machine.plug(3, file.clone());
    machine.tell(3, "a");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    machine.unstage("a").await.unwrap();
    machine.unplug(3);
    (machine, file)
}

/// The metadata lags, and for as long as it does it confirms whatever stands at the LUN.
#[tokio::test]
async fn a_stranger_that_lagging_metadata_confirms_is_neither_mounted_nor_formatted() {
    if !able() {
        return;
    }
    for blank in [true, false] {
        let (mut machine, file) = that_had_a().await;
        let other = image(&machine, "stranger");
        if !blank {
            run("mkfs.ext4", &["-q", "-F", other.to_str().unwrap()]);
        }
        let before = fs::read(&other).unwrap();
        machine.plug(3, other.clone());
        for _ in 0..2 {
            let (refusal, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
            assert_eq!(refusal, Grpc::Unavailable, "{message}");
            assert!(message.contains("when it was here before"), "{message}");
            assert_eq!(machine.mounted(&machine.staging("a")), None);
        }
        machine.unplug(3);
        assert!(fs::read(&other).unwrap() == before, "the stranger was written to");
        // Its own disk is not doubted for a moment.
        machine.plug(3, file);
        machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    }
}

/// The volume is new here, and the disk at its LUN is one that this node has had as another's.
#[tokio::test]
async fn the_disk_of_another_volume_that_was_here_is_not_mounted_on_the_word_of_lagging_metadata() {
    if !able() {
        return;
    }
    let (mut machine, file) = that_had_a().await;
    machine.plug(4, file);
    machine.tell(4, "b");
    for silent in [false, true, false] {
        machine.metadata.lock().unwrap().down = silent;
        let (refusal, message) = code(machine.stage_as(4, "b", mounted_as("ext4")).await);
        assert_eq!(refusal, Grpc::Unavailable, "{message}");
        assert!(message.contains(&volume("a")), "{message}");
        assert_eq!(machine.mounted(&machine.staging("b")), None);
    }
    // Silence never becomes a word, and a word that has stood for a while is believed: it is a copy.
    machine.service.0.identity_checks.age(Timeouts::default().identity_check);
    machine.metadata.lock().unwrap().down = true;
    code(machine.stage_as(4, "b", mounted_as("ext4")).await);
    assert_eq!(machine.mounted(&machine.staging("b")), None);
    machine.metadata.lock().unwrap().down = false;
    machine.stage_as(4, "b", mounted_as("ext4")).await.unwrap();
}

/// Less is known then than when it lags: a blank disk is not formatted on silence, however long that lasts.
#[tokio::test]
async fn while_the_metadata_is_silent_a_blank_stranger_is_never_formatted_for_a_volume_that_was_here() {
    if !able() {
        return;
    }
    let (mut machine, file) = that_had_a().await;
    machine.metadata.lock().unwrap().down = true;
    let other = image(&machine, "stranger");
    machine.plug(3, other.clone());
    for _ in 0..3 {
        let (refusal, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
        assert_eq!(refusal, Grpc::Unavailable, "{message}");
        machine.service.0.identity_checks.age(Timeouts::default().identity_check);
    }
    machine.unplug(3);
    assert!(fs::read(&other).unwrap().iter().all(|byte| *byte == 0), "the stranger was written to");
    machine.plug(3, file);
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
}

/// Another stranger, or the same after a long while, is doubted from the beginning.
#[tokio::test]
async fn a_doubt_counts_for_one_device_with_one_content_only() {
    if !able() {
        return;
    }
    let (mut machine, _) = that_had_a().await;
    for name in ["first", "second"] {
        let other = image(&machine, name);
        run("mkfs.ext4", &["-q", "-F", other.to_str().unwrap()]);
        machine.plug(3, other);
        let (refusal, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
        assert_eq!(refusal, Grpc::Unavailable, "{name}: {message}");
        machine.unplug(3);
        machine.service.0.identity_checks.age(Timeouts::default().identity_check);
    }
}

/// A pod keeps a volume until its kubelet says otherwise, whatever another volume of the node does.
#[tokio::test]
async fn unstaging_one_volume_asks_nothing_of_another() {
    if !able() {
        return;
    }
    let mut machine = two_volumes().await;
    let open = fs::File::create(machine.staging("b").join("open")).unwrap();
    machine.unstage("a").await.unwrap();
    assert!(machine.mounted(&machine.staging("b")).is_some());
    assert_eq!(code(machine.unstage("b").await).0, Grpc::FailedPrecondition);
    drop(open);
    machine.unstage("b").await.unwrap();
}

/// An answer of OK would let Azure take the disk from under the pod.
#[tokio::test]
async fn a_volume_is_not_unstaged_by_the_staging_path_of_another() {
    if !able() {
        return;
    }
    let mut machine = two_volumes().await;
    machine.publish(3, "a", "1", mounted_as("ext4")).await.unwrap();
    let request = NodeUnstageVolumeRequest {
        volume_id: volume("a"),
        staging_target_path: machine.staging("b").display().to_string(),
    };
    let refusal = machine.client.node_unstage_volume(request).await.unwrap_err();
    assert_eq!(refusal.code(), Grpc::FailedPrecondition);
    assert!(refusal.message().contains(&volume("b")), "{refusal}");
    for name in ["a", "b"] {
        assert!(machine.mounted(&machine.staging(name)).is_some());
        assert!(machine.record(name).await.is_some());
    }
    machine.unpublish("a", "1").await.unwrap();
    for name in ["a", "b"] {
        machine.unstage(name).await.unwrap();
    }
}
