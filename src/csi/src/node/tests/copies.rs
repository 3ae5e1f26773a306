//! Volumes that were made from another one, beside it on one machine.

use lazuli_volume::{SOURCE_KEY, copy::LINE_KEY};

use super::*;

/// The disk of `to` has what is on the one of `from` now, as a snapshot would. Its size is that of `from`.
fn copied(machine: &Machine, place: usize, to: &str) {
    run("sync", &[]);
    let file = machine.scratch.join(format!("{to}.img"));
    run("cp", &["--sparse=always", machine.disk(place).file.to_str().unwrap(), file.to_str().unwrap()]);
}

fn request(machine: &Machine, lun: u8, name: &str, fs_type: &str, line: &[&str]) -> NodeStageVolumeRequest {
    let mut request = machine.stage_request(lun, name, mounted_as(fs_type));
    let ids: Vec<String> = line.iter().map(|name| volume(name)).collect();
    request.volume_context.insert(LINE_KEY.to_owned(), ids.join(","));
    request
}

#[tokio::test]
async fn restored_bytes_are_read_beside_the_source_on_one_node_whatever_the_file_system() {
    if !able() {
        return;
    }
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let mut machine = Machine::new().await;
        machine.attach(3, "source");
        machine.stage_as(3, "source", mounted_as(fs_type)).await.unwrap();
        fs::write(machine.staging("source").join("letter"), fs_type).unwrap();
        copied(&machine, 0, "one");
        copied(&machine, 0, "two");
        fs::write(machine.staging("source").join("letter"), "later").unwrap();
        for (lun, name) in [(4, "one"), (5, "two")] {
            machine.attach(lun, name);
            for _ in 0..2 {
                let request = request(&machine, lun, name, fs_type, &["source"]);
                machine.stage(request).await.unwrap();
            }
            let letter = fs::read_to_string(machine.staging(name).join("letter")).unwrap();
            assert_eq!(letter, fs_type);
        }
        assert_eq!(fs::read_to_string(machine.staging("source").join("letter")).unwrap(), "later");
        let uuid = |record: Option<Record>| record.unwrap().fs_uuid.unwrap();
        let (source, one) = (uuid(machine.record("source").await), uuid(machine.record("one").await));
        assert_eq!(source == one, fs_type != "btrfs", "a btrfs gets an id of its own");
        // And once more, when all have left and only the memory of them is here.
        for name in ["source", "one", "two"] {
            machine.unstage(name).await.unwrap();
        }
        for (lun, name, line) in [(3, "source", &[][..]), (4, "one", &["source"]), (5, "two", &["source"])] {
            machine.stage(request(&machine, lun, name, fs_type, line)).await.unwrap();
        }
        assert_eq!(uuid(machine.record("one").await), one);
    }
}

#[tokio::test]
async fn a_copy_waits_for_the_metadata_where_a_volume_of_its_line_was_here() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    machine.attach(3, "source");
    machine.stage_as(3, "source", mounted_as("ext4")).await.unwrap();
    machine.unstage("source").await.unwrap();
    copied(&machine, 0, "copy");
    machine.attach(4, "copy");
    machine.metadata.lock().unwrap().down = true;
    let of_line = request(&machine, 4, "copy", "ext4", &["snapshot", "source"]);
    let (code, message) = code(machine.stage(of_line.clone()).await);
    assert_eq!(code, Grpc::Unavailable);
    assert!(message.contains(&volume("source")), "{message}");
    machine.metadata.lock().unwrap().down = false;
    machine.tell(4, "copy");
    machine.stage(of_line).await.unwrap();
}

#[tokio::test]
async fn a_copy_that_looks_blank_is_refused_when_only_the_line_says_that_it_is_one() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    let place = machine.attach(3, "a");
    let of_line = request(&machine, 3, "a", "ext4", &["source"]);
    assert_eq!(code(machine.stage(of_line).await).0, Grpc::FailedPrecondition);
    // What Azure's single read says at the publish.
    for key in [LINE_KEY, SOURCE_KEY] {
        let mut request = machine.stage_request(3, "a", mounted_as("ext4"));
        request.publish_context.insert(key.to_owned(), volume("source"));
        assert_eq!(code(machine.stage(request).await).0, Grpc::FailedPrecondition, "{key}");
    }
    assert!(machine.disk(place).is_untouched());
}

#[tokio::test]
async fn a_larger_copy_is_grown_when_it_is_staged_and_one_of_no_whole_gib_is_staged() {
    if !able() {
        return;
    }
    for fs_type in ["xfs", "btrfs"] {
        let mut machine = Machine::new().await;
        machine.attach(3, "source");
        machine.stage_as(3, "source", mounted_as(fs_type)).await.unwrap();
        machine.unstage("source").await.unwrap();
        copied(&machine, 0, "copy");
        let file = fs::OpenOptions::new().write(true).open(machine.scratch.join("copy.img")).unwrap();
        file.set_len(2 * GIB + 512 * 1024).unwrap();
        machine.attach(4, "copy");
        let mut larger = request(&machine, 4, "copy", fs_type, &["source"]);
        larger.volume_context.insert("resizeRequired".into(), "true".into());
        // Azure's size in whole GiB.
        larger.volume_context.insert("requestedsizegib".into(), "3".into());
        machine.stage(larger).await.unwrap();
        machine.publish(4, "copy", "1", mounted_as(fs_type)).await.unwrap();
        let total = machine.totals("copy", &machine.target("1")).await.unwrap()[0];
        assert!(total > 1_900 << 20, "{fs_type}: {total}");
    }
}
