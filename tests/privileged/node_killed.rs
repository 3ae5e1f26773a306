//! kill -9 of the node plugin: whatever it was doing, its successor goes on, and no data is lost.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tonic::Code;

use super::{
    cloud::{Cloud, NODES, Step, Volume, kind, node_call, refused},
    content,
    frozen::{freeze, stage_frozen},
    process::{PATIENCE, able, mounted_at, run},
};

const NODE: &str = NODES[0];

/// What becomes of a running mkfs when its node plugin is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It goes on, with no reader of its output.
    Orphaned,
    /// It dies too, as with the whole container.
    Killed,
}

/// Repeats a call as kubelet does, until it succeeds; every refusal on the way must be one that kubelet repeats.
async fn repeat(cloud: &mut Cloud, step: Step, volume: &Volume) {
    let began = Instant::now();
    loop {
        match cloud.call(step, volume, NODE).await {
            Ok(()) => return,
            Err(status) => {
                let may = [Code::Unavailable, Code::Aborted, Code::DeadlineExceeded];
                assert!(may.contains(&status.code()), "{step:?}: {status}");
                assert!(began.elapsed() < PATIENCE, "{step:?}: {status}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn uuid_of(device: &Path) -> String {
    run("blkid", &["-p", "-o", "value", "-s", "UUID", device.to_str().unwrap()])
}

async fn killed_inside_mkfs(cloud: &mut Cloud, fs_type: &str, fate: Fate, after: u64) -> bool {
    let mut volume = cloud.create(&format!("pvc-{fs_type}-{fate:?}-{after}").to_lowercase(), kind(fs_type)).await;
    cloud.attach(&mut volume, NODE).await;
    let call = tokio::spawn(node_call(cloud.node(NODE).await, Step::Stage, &volume));
    let frozen = freeze(&cloud.nodes[NODE], &call, after).await;
    cloud.restart_node_killed(NODE);
    let _ = call.await;
    let struck = frozen.is_some();
    if let Some(mkfs) = frozen {
        if fate == Fate::Killed {
            mkfs.signal(Signal::SIGKILL);
            mkfs.gone().await;
        } else {
            // While the orphan has the device, no call formats, mounts or releases it.
            refused(cloud.call(Step::Stage, &volume, NODE).await, Code::Unavailable);
            assert!(mounted_at(&volume.staging).is_none());
            mkfs.signal(Signal::SIGCONT);
            mkfs.gone().await;
        }
    }
    repeat(cloud, Step::Stage, &volume).await;
    assert_eq!(mounted_at(&volume.staging).unwrap().fs_type, fs_type);
    let before = uuid_of(&cloud.device(NODE, volume.lun()).unwrap());
    repeat(cloud, Step::Publish, &volume).await;
    content::write(&volume, after + 1);
    // From here on it holds data: a stage is a mount and nothing else.
    for step in [Step::Unpublish, Step::Unstage, Step::Stage, Step::Publish] {
        cloud.restart_node_killed(NODE);
        repeat(cloud, step, &volume).await;
    }
    content::check(&volume, after + 1);
    assert_eq!(uuid_of(&cloud.device(NODE, volume.lun()).unwrap()), before);
    cloud.tear_down(&volume, NODE).await;
    struck
}

#[tokio::test]
async fn a_node_killed_inside_mkfs_is_followed_by_one_that_formats_again_and_only_then() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let (mut rounds, mut struck) = (0, 0);
    for fs_type in ["ext4", "xfs", "btrfs", "ext3"] {
        for fate in [Fate::Orphaned, Fate::Killed] {
            for after in [0, 1, 64 << 10, 2 << 20] {
                rounds += 1;
                struck += u32::from(killed_inside_mkfs(&mut cloud, fs_type, fate, after).await);
            }
        }
    }
    println!("{struck} of {rounds} kills struck a running mkfs");
    assert!(struck * 2 >= rounds, "only {struck} of {rounds} kills struck a running mkfs");
    cloud.finish().await;
}

#[tokio::test]
async fn an_orphaned_mkfs_keeps_the_disk_from_being_released() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let (volume, _call, mkfs) = stage_frozen(&mut cloud, NODE).await;
    cloud.restart_node_killed(NODE);
    let message = refused(cloud.call(Step::Unstage, &volume, NODE).await, Code::FailedPrecondition);
    assert!(message.contains("in use") && message.contains("has it open"), "{message}");
    mkfs.signal(Signal::SIGKILL);
    mkfs.gone().await;
    cloud.unstage(&volume, NODE).await;
    cloud.detach(&volume, NODE).await;
    cloud.delete(&volume).await;
    cloud.finish().await;
}

const CYCLE: [Step; 4] = [Step::Stage, Step::Publish, Step::Unpublish, Step::Unstage];

fn reverse(step: Step) -> Step {
    match step {
        Step::Stage => Step::Unstage,
        Step::Publish => Step::Unpublish,
        Step::Unpublish => Step::Publish,
        Step::Unstage => Step::Stage,
    }
}

/// Kills the node at `rounds` moments of each call in turn, spread over the time that the call takes. Returns how many
/// kills struck a call in flight.
async fn killed_all_along(cloud: &mut Cloud, name: &str, rounds: u32) -> u32 {
    let mut volume = cloud.create(&format!("pvc-{name}"), kind(name)).await;
    cloud.attach(&mut volume, NODE).await;
    for step in [Step::Stage, Step::Publish] {
        cloud.call(step, &volume, NODE).await.unwrap();
    }
    content::write(&volume, 0);
    for step in [Step::Unpublish, Step::Unstage] {
        cloud.call(step, &volume, NODE).await.unwrap();
    }
    let mut struck = 0;
    let mut took = [Duration::ZERO; 4];
    for (place, step) in CYCLE.into_iter().enumerate() {
        let client = cloud.node(NODE).await;
        let began = Instant::now();
        node_call(client, step, &volume).await.unwrap();
        took[place] = began.elapsed();
    }
    for round in 0..rounds {
        for (place, step) in CYCLE.into_iter().enumerate() {
            let moment = took[place] * (2 * round + 1) / (2 * rounds);
            let call = node_call(cloud.node(NODE).await, step, &volume);
            let cut = tokio::time::timeout(moment, call).await.is_err();
            cloud.restart_node_killed(NODE);
            struck += u32::from(cut);
            // kubelet may also have changed its mind meanwhile.
            if round % 2 == 1 && step != Step::Unpublish {
                repeat(cloud, reverse(step), &volume).await;
            }
            repeat(cloud, step, &volume).await;
            if step == Step::Publish {
                content::check(&volume, round.into());
                content::write(&volume, u64::from(round) + 1);
            }
        }
        assert!(mounted_at(&volume.staging).is_none() && !volume.target.exists());
    }
    cloud.detach(&volume, NODE).await;
    cloud.delete(&volume).await;
    struck
}

#[tokio::test]
async fn a_node_killed_at_any_moment_of_a_volume_s_life_loses_nothing() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let mut kills = 0;
    let mut struck = 0;
    for (name, rounds) in [("ext4", 20), ("xfs", 8), ("btrfs", 8), ("block", 6)] {
        kills += 4 * rounds;
        struck += killed_all_along(&mut cloud, name, rounds).await;
    }
    println!("{struck} of {kills} kills struck a call in flight");
    assert!(struck * 2 >= kills, "only {struck} of {kills} kills struck a call in flight");
    cloud.finish().await;
}
