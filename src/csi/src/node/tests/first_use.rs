//! A volume that the node has never had, while the instance metadata does not say which disk is at its LUN.

use super::*;
use crate::node::OnSilence;

/// A disk at LUN 3 whose metadata is silent, blank or with a file system that the node does not know.
async fn silent(config: NodeConfig, formatted: bool) -> Machine {
    let mut machine = Machine::configured(config).await;
    machine.attach(3, "a");
    if formatted {
        run("mkfs.ext4", &["-q", machine.disk(0).node.to_str().unwrap()]);
    }
    machine.metadata.lock().unwrap().down = true;
    machine
}

fn config() -> NodeConfig {
    NodeConfig { timeouts: machine::impatient(), ..NodeConfig::new("node-1") }
}

#[tokio::test]
async fn silent_metadata_makes_a_volume_wait_that_this_node_has_never_had() {
    if !able() {
        return;
    }
    for (formatted, capability) in [(false, mounted_as("ext4")), (true, mounted_as("ext4")), (false, block())] {
        let mut machine = silent(config(), formatted).await;
        for long in [false, true] {
            let (refusal, message) = code(machine.stage_as(3, "a", capability.clone()).await);
            assert_eq!(refusal, Grpc::Unavailable, "{message}");
            assert!(message.contains("this node has never had the volume") && message.contains("503"), "{message}");
            // kubelet shows the message as an event of the pod.
            assert_eq!(message.contains("--on-silent-imds=tolerate"), long, "{message}");
            machine.service.0.identity_checks.age(Duration::from_secs(60));
        }
        assert_eq!(machine.mounted(&machine.staging("a")), None);
        assert_eq!(machine.record("a").await, None);
        assert!(formatted || machine.disk(0).is_untouched());
        machine.metadata.lock().unwrap().down = false;
        machine.stage_as(3, "a", capability.clone()).await.unwrap();
        // It is staged; and it was here.
        machine.metadata.lock().unwrap().down = true;
        machine.stage_as(3, "a", capability.clone()).await.unwrap();
        let is_raw = capability == block();
        machine.unstage("a").await.unwrap();
        // A raw volume leaves nothing by which it could be known again.
        assert_eq!(machine.stage_as(3, "a", capability).await.is_ok(), !is_raw);
    }
}

/// Metadata that answers, and says nothing of the LUN.
async fn unlisted(config: NodeConfig, formatted: bool) -> Machine {
    let machine = silent(config, formatted).await;
    {
        let mut metadata = machine.metadata.lock().unwrap();
        metadata.down = false;
        metadata.disks.clear();
    }
    machine
}

#[tokio::test]
async fn metadata_that_answers_without_the_lun_confirms_nothing_and_a_first_use_waits() {
    if !able() {
        return;
    }
    for (formatted, capability) in [(false, mounted_as("ext4")), (true, mounted_as("ext4")), (false, block())] {
        let mut machine = unlisted(config(), formatted).await;
        for long in [false, true] {
            let (refusal, message) = code(machine.stage_as(3, "a", capability.clone()).await);
            assert_eq!(refusal, Grpc::Unavailable, "{message}");
            assert!(message.contains("it lists no disk at LUN 3"), "{message}");
            assert_eq!(message.contains("--on-silent-imds=tolerate"), long, "{message}");
            machine.service.0.identity_checks.age(Duration::from_secs(60));
        }
        assert_eq!(machine.mounted(&machine.staging("a")), None);
        assert!(formatted || machine.disk(0).is_untouched());
        machine.tell(3, "a");
        machine.stage_as(3, "a", capability).await.unwrap();
    }
}

#[tokio::test]
async fn an_operator_can_let_the_lun_decide_while_the_metadata_does_not_say_which_disk_is_there() {
    if !able() {
        return;
    }
    for capability in [mounted_as("ext4"), block()] {
        let config = || NodeConfig { on_silence: OnSilence::Tolerate, ..config() };
        silent(config(), false).await.stage_as(3, "a", capability.clone()).await.unwrap();
        unlisted(config(), false).await.stage_as(3, "a", capability).await.unwrap();
    }
}

/// The operator lets the LUN decide on silence, and the metadata has said that the LUN is another disk's.
#[tokio::test]
async fn another_disk_at_the_lun_is_not_forgotten_when_the_metadata_falls_silent() {
    if !able() {
        return;
    }
    for capability in [mounted_as("ext4"), block()] {
        let config = NodeConfig { on_silence: OnSilence::Tolerate, ..config() };
        let mut machine = Machine::configured(config).await;
        machine.attach(3, "b");
        for silent in [false, true, true, true] {
            machine.metadata.lock().unwrap().down = silent;
            let (refusal, message) = code(machine.stage_as(3, "a", capability.clone()).await);
            assert_eq!(refusal, Grpc::Unavailable, "{message}");
            assert!(message.contains("LUN 3") && message.contains(&volume("b")), "{message}");
            assert_eq!(message.contains("create the empty file"), silent, "{message}");
            // kubelet gives up, and the pod comes again.
            assert_eq!(machine.unstage("a").await.is_ok(), !silent);
        }
        assert!(machine.disk(0).is_untouched());
        // Nor by a restart of the node plugin.
        machine.restart().await;
        let (refusal, message) = code(machine.stage_as(3, "a", capability.clone()).await);
        assert_eq!(refusal, Grpc::Unavailable, "{message}");
        assert!(message.contains(&volume("b")), "{message}");
        // Nor by an answer that lists no disk there; one that names the volume ends it.
        machine.metadata.lock().unwrap().down = false;
        machine.metadata.lock().unwrap().disks.clear();
        let (_, message) = code(machine.stage_as(3, "a", capability.clone()).await);
        assert!(message.contains(&volume("b")) && message.contains("it lists no disk at LUN 3"), "{message}");
        assert!(machine.disk(0).is_untouched());
        machine.tell(3, "a");
        machine.stage_as(3, "a", capability).await.unwrap();
    }
}

/// The metadata named another disk while the volume's own was on its way, and answers no more.
#[tokio::test]
async fn what_an_operator_accepts_against_the_metadata_names_what_it_said_and_never_holds_against_an_answer() {
    if !able() {
        return;
    }
    for capability in [mounted_as("ext4"), block()] {
        let mut machine = Machine::configured(config()).await;
        machine.attach(3, "b");
        code(machine.stage_as(3, "a", capability.clone()).await);
        machine.metadata.lock().unwrap().down = true;
        let (_, message) = code(machine.stage_as(3, "a", capability.clone()).await);
        let (_, rest) = message.split_once("create the empty file ").unwrap();
        let (file, _) = rest.split_once(" in the node plugin's container").unwrap();
        assert!(file.ends_with(".although-b"), "{file}");
        // A word about the content alone was given before the metadata spoke.
        fs::write(file.replace(".although-b", ""), "").unwrap();
        assert_eq!(code(machine.stage_as(3, "a", capability.clone()).await).0, Grpc::Unavailable);
        fs::write(file, "").unwrap();
        machine.metadata.lock().unwrap().down = false;
        let (_, message) = code(machine.stage_as(3, "a", capability.clone()).await);
        assert!(message.contains("LUN 3 holds"), "{message}");
        assert!(machine.disk(0).is_untouched());
        machine.metadata.lock().unwrap().down = true;
        machine.stage_as(3, "a", capability.clone()).await.unwrap();
        // It is the volume's own from now on.
        assert!(!Path::new(file).exists());
        machine.stage_as(3, "a", capability).await.unwrap();
    }
}

/// Another disk was at the LUN, and a list without the LUN does not say that it has left: a copy of the volume looks the same.
#[tokio::test]
async fn a_volume_s_own_file_system_is_not_used_after_another_disk_was_named_until_the_metadata_names_its_own() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    machine.unstage("a").await.unwrap();
    machine.tell(3, "b");
    for (down, disks) in [(false, true), (true, true), (false, false)] {
        {
            let mut metadata = machine.metadata.lock().unwrap();
            metadata.down = down;
            if !disks {
                metadata.disks.clear();
            }
        }
        let staged = machine.stage_as(3, "a", mounted_as("ext4")).await;
        assert!(staged.is_err(), "{staged:?}");
    }
    // Nor does silence after that.
    machine.metadata.lock().unwrap().down = true;
    let (refusal, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
    assert_eq!(refusal, Grpc::Unavailable, "{message}");
    machine.metadata.lock().unwrap().down = false;
    machine.tell(3, "a");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
}

/// The kernel gives the number of a device that has left to the next one.
#[tokio::test]
async fn a_raw_volume_is_not_known_by_a_device_number_that_another_disk_has_now() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    machine.stage_as(3, "a", block()).await.unwrap();
    machine.metadata.lock().unwrap().down = true;
    machine.publish(3, "a", "1", block()).await.unwrap();
    machine.unpublish("a", "1").await.unwrap();
    machine.stage_as(3, "a", block()).await.unwrap();

    let other = machine.scratch.join("other.img");
    fs::File::create(&other).unwrap().set_len(GIB).unwrap();
    machine.disk(0).exchange(&other);
    assert_eq!(code(machine.publish(3, "a", "1", block()).await).0, Grpc::FailedPrecondition);
    assert!(!machine.target("1").exists());
    assert_eq!(code(machine.stage_as(3, "a", block()).await).0, Grpc::Unavailable);
    // The record of another disk outweighs the metadata, until it is confirmed for longer than it lags.
    machine.metadata.lock().unwrap().down = false;
    assert_eq!(code(machine.publish(3, "a", "1", block()).await).0, Grpc::FailedPrecondition);
    let (refusal, message) = code(machine.stage_as(3, "a", block()).await);
    assert!(refusal == Grpc::Unavailable && message.contains("another disk since the machine started"), "{message}");
    machine.service.0.identity_checks.age(Timeouts::default().identity_check);
    machine.stage_as(3, "a", block()).await.unwrap();
    machine.publish(3, "a", "1", block()).await.unwrap();
}

/// The metadata alone could name the device that must be proved released.
#[tokio::test]
async fn a_volume_without_a_mount_and_a_record_is_not_unstaged_while_the_metadata_is_silent() {
    let mut machine = Machine::new().await;
    machine.metadata.lock().unwrap().down = true;
    let (refusal, message) = code(machine.unstage("a").await);
    assert!(refusal == Grpc::Unavailable && message.contains("no record of the volume"), "{refusal} {message}");
    machine.metadata.lock().unwrap().down = false;
    machine.unstage("a").await.unwrap();
}

/// Another driver staged the volume, and this one has no record of it.
#[tokio::test]
async fn an_unstage_that_fails_leaves_a_record_of_the_device_that_it_found() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    machine.service.0.forget(&volume("a")).await.unwrap();
    let open = fs::File::create(machine.staging("a").join("open")).unwrap();
    assert_eq!(code(machine.unstage("a").await).0, Grpc::FailedPrecondition);
    let record = machine.record("a").await.unwrap();
    assert_eq!(record.device, device::node_number(&machine.disk(0).node));
    drop(open);
    machine.metadata.lock().unwrap().down = true;
    machine.unstage("a").await.unwrap();
    assert_eq!(machine.record("a").await, None);
}

/// The disk of a raw volume was taken off the machine, and another one with its number is in use at its LUN.
#[tokio::test]
async fn a_raw_volume_whose_disk_has_left_is_unstaged_while_another_disk_with_its_number_is_in_use() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "a");
    machine.stage_as(3, "a", block()).await.unwrap();
    let node = machine.disk(0).node.to_str().unwrap().to_owned();
    let in_use = || {
        use std::os::unix::fs::OpenOptionsExt as _;
        let exclusive = rustix::fs::OFlags::EXCL.bits().cast_signed();
        fs::OpenOptions::new().read(true).write(true).custom_flags(exclusive).open(&node).unwrap()
    };
    // Its own disk is not let go while it is in use.
    let open = in_use();
    assert_eq!(code(machine.unstage("a").await).0, Grpc::FailedPrecondition);
    drop(open);

    let other = machine.scratch.join("other.img");
    fs::File::create(&other).unwrap().set_len(GIB).unwrap();
    machine.disk(0).exchange(&other);
    machine.tell(3, "b");
    machine.stage_as(3, "b", block()).await.unwrap();
    let open = in_use();
    machine.unstage("a").await.unwrap();
    assert_eq!(machine.record("a").await, None);
    assert_eq!(code(machine.unstage("b").await).0, Grpc::FailedPrecondition);
    drop(open);
    machine.unstage("b").await.unwrap();
}
