//! A stage that stands still inside mkfs.

use std::{fs, time::Instant};

use nix::{sys::signal::Signal, unistd::Pid};
use tokio::task::JoinHandle;
use tonic::Status;

use super::{
    cloud::{Cloud, Step, Volume, kind, node_call},
    process::{Orphan, PATIENCE, Process},
};

/// How many volumes are tried until a mkfs is caught: on a busy machine one may be over before it is seen.
const TRIES: u32 = 20;

/// How many bytes a process has written, by its own account (source: proc_pid_io(5)).
fn written(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// Stops the mkfs of a stage call in its tracks once it has written so much. `None` when the call or the mkfs ends
/// before.
pub(super) async fn freeze(process: &Process, call: &JoinHandle<Result<(), Status>>, after: u64) -> Option<Orphan> {
    let began = Instant::now();
    while !call.is_finished() {
        if let Some(pid) = process.child_named("mkfs").filter(|pid| written(*pid) >= after) {
            let frozen = Orphan(pid);
            frozen.signal(Signal::SIGSTOP);
            return frozen.has_stopped().await.then_some(frozen);
        }
        assert!(began.elapsed() < PATIENCE);
        tokio::task::yield_now().await;
    }
    None
}

/// A new volume, and the call that is staging it, with its mkfs standing still.
pub(super) async fn stage_frozen(
    cloud: &mut Cloud,
    node: &'static str,
) -> (Volume, JoinHandle<Result<(), Status>>, Orphan) {
    for n in 0..TRIES {
        // On a large disk xfs writes a large log.
        let mut volume = cloud.create_sized(&format!("pvc-frozen-{n}"), kind("xfs"), 32).await;
        cloud.attach(&mut volume, node).await;
        let call = tokio::spawn(node_call(cloud.node(node).await, Step::Stage, &volume));
        if let Some(mkfs) = freeze(&cloud.nodes[node], &call, 0).await {
            return (volume, call, mkfs);
        }
        call.await.unwrap().unwrap();
        cloud.unstage(&volume, node).await;
        cloud.detach(&volume, node).await;
        cloud.delete(&volume).await;
    }
    panic!("no mkfs was caught in {TRIES} tries");
}
