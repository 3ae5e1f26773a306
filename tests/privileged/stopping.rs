//! How a node plugin stops and starts: in order, once, and on the socket of a predecessor that died.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::MetadataExt as _,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tonic::Code;

use super::{
    azure::http,
    cloud::{Cloud, NODES, Step, node_call},
    frozen::stage_frozen,
    process::{self, Folder, able, mount_lines, mounted_at, until},
};

const NODE: &str = NODES[0];

#[tokio::test]
async fn a_node_that_is_asked_to_stop_finishes_the_stage_in_flight_and_takes_its_socket_away() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let client = cloud.node(NODE).await;
    let (volume, call, mkfs) = stage_frozen(&mut cloud, NODE).await;
    cloud.nodes[NODE].signal(Signal::SIGTERM);
    let socket = cloud.socket(NODE);
    until("the end of the socket", || (!socket.exists()).then_some(())).await;
    cloud.nodes.get_mut(NODE).unwrap().must_run();
    assert!(!call.is_finished());
    mkfs.signal(Signal::SIGCONT);
    call.await.unwrap().unwrap();
    assert_eq!(mounted_at(&volume.staging).unwrap().fs_type, "xfs");
    let status = cloud.nodes.get_mut(NODE).unwrap().end().await;
    assert!(status.success(), "{status}");
    let late = node_call(client, Step::Publish, &volume).await;
    assert_eq!(late.unwrap_err().code(), Code::Unavailable);

    cloud.start_node(NODE);
    cloud.publish(&volume, NODE).await;
    cloud.tear_down(&volume, NODE).await;
    cloud.finish().await;
}

#[tokio::test]
async fn a_call_whose_caller_has_left_is_finished_before_the_process_ends() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let (volume, call, mkfs) = stage_frozen(&mut cloud, NODE).await;
    call.abort();
    cloud.nodes[NODE].signal(Signal::SIGTERM);
    let socket = cloud.socket(NODE);
    until("the end of the socket", || (!socket.exists()).then_some(())).await;
    cloud.nodes.get_mut(NODE).unwrap().must_run();
    mkfs.signal(Signal::SIGCONT);
    let status = cloud.nodes.get_mut(NODE).unwrap().end().await;
    assert!(status.success(), "{status}");
    assert_eq!(mounted_at(&volume.staging).unwrap().fs_type, "xfs");

    cloud.start_node(NODE);
    cloud.unstage(&volume, NODE).await;
    cloud.detach(&volume, NODE).await;
    cloud.delete(&volume).await;
    cloud.finish().await;
}

#[tokio::test]
async fn the_socket_of_a_dead_process_is_replaced_and_that_of_a_live_one_is_not() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    cloud.node(NODE).await;
    let socket = cloud.socket(NODE);
    let inode = |path: &std::path::Path| fs::symlink_metadata(path).unwrap().ino();
    let first = inode(&socket);

    let mut second = cloud.another_node(NODE, &[]);
    let status = second.end().await;
    assert_eq!(status.code(), Some(1));
    assert!(second.log().contains("another process is listening on"), "{}", second.log());
    assert_eq!(inode(&socket), first);
    cloud.node(NODE).await;

    cloud.nodes.get_mut(NODE).unwrap().kill();
    assert!(socket.exists(), "a killed process leaves its socket");
    cloud.start_node(NODE);
    cloud.node(NODE).await;
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);

    // A file that is no socket belongs to another program.
    cloud.nodes.remove(NODE).unwrap().stop().await;
    fs::write(&socket, "a note").unwrap();
    let mut refused = cloud.another_node(NODE, &[]);
    assert_eq!(refused.end().await.code(), Some(1));
    assert_eq!(fs::read_to_string(&socket).unwrap(), "a note");
    fs::remove_file(&socket).unwrap();
    cloud.finish().await;
}

#[tokio::test]
async fn a_node_answers_its_probes_until_it_has_drained() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    cloud.node(NODE).await;
    cloud.nodes.remove(NODE).unwrap().stop().await;
    // Free a moment ago, and so now as good as certainly.
    let [health, metrics] =
        [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap()).map(|free| free.local_addr().unwrap().to_string());
    let process = cloud.another_node(NODE, &["--health-endpoint", &health, "--metrics-endpoint", &metrics]);
    cloud.nodes.insert(NODE, process);
    let (volume, call, mkfs) = stage_frozen(&mut cloud, NODE).await;
    cloud.nodes[NODE].signal(Signal::SIGTERM);
    let socket = cloud.socket(NODE);
    until("the end of the socket", || (!socket.exists()).then_some(())).await;
    assert_eq!(http(&health, "GET", "/healthz", &[], "").await.0, 200);
    assert!(http(&metrics, "GET", "/metrics", &[], "").await.1.contains("lazuli_build"));
    mkfs.signal(Signal::SIGCONT);
    call.await.unwrap().unwrap();
    assert!(cloud.nodes.get_mut(NODE).unwrap().end().await.success());

    cloud.start_node(NODE);
    cloud.unstage(&volume, NODE).await;
    cloud.detach(&volume, NODE).await;
    cloud.delete(&volume).await;
    cloud.finish().await;
}

/// kubelet kills 30 seconds after its signal: the drain time is one allowance, however many things use it.
#[tokio::test]
async fn what_does_not_end_is_waited_for_once_and_not_twice() {
    const DRAIN: Duration = Duration::from_secs(4);
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    cloud.node(NODE).await;
    cloud.nodes.remove(NODE).unwrap().stop().await;
    let process = cloud.another_node(NODE, &["--drain-seconds", "4"]);
    cloud.nodes.insert(NODE, process);
    let (volume, call, mkfs) = stage_frozen(&mut cloud, NODE).await;
    cloud.nodes[NODE].signal(Signal::SIGTERM);
    let began = Instant::now();
    assert!(cloud.nodes.get_mut(NODE).unwrap().end().await.success());
    assert!((DRAIN..2 * DRAIN).contains(&began.elapsed()), "{:?}", began.elapsed());
    let _ = call.await;
    mkfs.signal(Signal::SIGKILL);
    mkfs.gone().await;

    cloud.start_node(NODE);
    cloud.stage(&volume, NODE).await;
    cloud.unstage(&volume, NODE).await;
    cloud.detach(&volume, NODE).await;
    cloud.delete(&volume).await;
    cloud.finish().await;
}

#[tokio::test]
async fn a_port_for_probes_that_is_taken_ends_the_start() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    cloud.node(NODE).await;
    cloud.nodes.remove(NODE).unwrap().stop().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut process = cloud.another_node(NODE, &["--health-endpoint", &address]);
    assert_eq!(process.end().await.code(), Some(1));
    assert!(process.log().contains(&format!("cannot listen at {address}")), "{}", process.log());
    assert!(!cloud.socket(NODE).exists());
    cloud.start_node(NODE);
    cloud.finish().await;
}

#[tokio::test]
async fn a_demonstration_that_is_stopped_half_way_leaves_nothing_mounted() {
    if !able() {
        return;
    }
    let folder = Folder::make();
    let mut demo = process::start("demo", &folder.path().join("log"), &["demo".to_owned()]);
    let shown = |log: &str| {
        let place = log.split("mounted at ").nth(1)?.split(": ").next()?;
        Some(place.split("/kubelet/").next()?.to_owned())
    };
    let place = until("a mounted volume", || shown(&demo.log())).await;
    demo.signal(Signal::SIGTERM);
    assert_eq!(demo.end().await.code(), Some(1));
    assert!(demo.log().contains("stopped before its end"), "{}", demo.log());
    assert!(mount_lines().iter().all(|line| !line.target.starts_with(&place)));
    assert!(!fs::exists(&place).unwrap());
}
