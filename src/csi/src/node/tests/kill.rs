//! A node service that is killed while it stages a volume.

use super::*;

/// The part of the child process in the test below. Does nothing when it is run as a test of its own.
#[tokio::test]
async fn a_child_that_stages_until_it_is_killed() {
    let (Some(home), Some(fs_type)) = (std::env::var_os("LAZULI_TEST_HOME"), std::env::var("LAZULI_TEST_FS").ok())
    else {
        return;
    };
    let home = PathBuf::from(home);
    let host = Host::new().with_root(home.join("root"));
    let timeouts = Timeouts { size: Duration::ZERO, identity_check: Duration::ZERO, ..Timeouts::default() };
    let config = NodeConfig { timeouts, ..NodeConfig::new("node-1") };
    let service = NodeService::open(host, None, home.join("state"), config).unwrap();
    let request = NodeStageVolumeRequest {
        volume_id: volume("a"),
        staging_target_path: home.join("kubelet/a/globalmount").display().to_string(),
        volume_capability: Some(mounted_as(&fs_type)),
        publish_context: [("LUN".to_owned(), "3".to_owned())].into(),
        ..Default::default()
    };
    let stage = Stage::parse(request).unwrap();
    println!("staging");
    stage::stage(&service.0, &stage).await.unwrap();
    println!("staged");
}

#[tokio::test]
async fn a_kill_at_any_moment_of_staging_costs_neither_the_volume_nor_its_data() {
    use std::{
        io::{BufRead as _, BufReader},
        process::{Command, Stdio},
        time::Instant,
    };
    if !able() {
        return;
    }
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let none = Duration::ZERO;
        // Every part has a new disk under the volume's name, and the metadata is right about each.
        let times = Timeouts { identity: none, size: none, find: none, identity_check: none, ..Timeouts::default() };
        let mut machine = Machine::with(times).await;
        let mut whole = None;
        // The first child is left alone, to learn how long it takes; the others die at an eighth of that time, at two eighths, and so on.
        for part in 0..8u32 {
            let name = format!("{part}");
            let file = machine.scratch.join(format!("{name}.img"));
            fs::File::create(&file).unwrap().set_len(GIB).unwrap();
            machine.plug(3, file);
            machine.tell(3, "a");
            // The child has no metadata to confirm that the volume is new.
            for record in fs::read_dir(machine.scratch.join("state/past")).unwrap() {
                fs::remove_file(record.unwrap().path()).unwrap();
            }
            let began = Instant::now();
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture", "--test-threads=1"])
                .arg(format!("{}::a_child_that_stages_until_it_is_killed", module_path!().split_once("::").unwrap().1))
                .env("LAZULI_TEST_HOME", machine.scratch.path())
                .env("LAZULI_TEST_FS", fs_type)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            assert!(lines.any(|line| line.contains("staging")));
            match whole {
                None => {
                    assert!(lines.any(|line| line.contains("staged")));
                    whole = Some(began.elapsed());
                }
                Some(whole) => {
                    // Time is what this test is about: the moment of the kill.
                    let moment = whole * part / 8;
                    while began.elapsed() < moment {
                        std::hint::spin_loop();
                    }
                    child.kill().unwrap();
                }
            }
            child.wait().unwrap();
            // A mkfs that outlived its parent holds the device until it has ended.
            let mut tries = 0;
            while let Err(status) = machine.stage_as(3, "a", mounted_as(fs_type)).await {
                tries += 1;
                assert!(tries < 200, "{fs_type}, killed at {part}/8: {status}");
                tokio::task::yield_now().await;
            }
            let written = machine.staging("a").join("file");
            fs::write(&written, "data").unwrap();
            machine.unstage("a").await.unwrap();
            machine.stage_as(3, "a", mounted_as(fs_type)).await.unwrap();
            assert_eq!(fs::read_to_string(&written).unwrap(), "data");
            machine.unstage("a").await.unwrap();
            machine.unplug(3);
        }
    }
}
