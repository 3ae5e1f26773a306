use lazuli_model::{
    fault::{Effect, Fault},
    node::ClusterNodes,
};
use tokio::sync::watch;

use super::*;
use crate::on_nowhere::client;

/// Disks without an Azure: no test here gets an answer of it.
fn disks() -> (WholeDisks, Occupied, ArmId) {
    let occupied = Occupied::default();
    let nodes = Nodes::new("s", "g", watch::channel(ClusterNodes::NoCluster).1);
    let clock = Clock::start();
    let (lists, known) = (SnapshotLists::new(client(), clock), KnownDisks::new(clock));
    let calls = DiskCalls { client: client(), clock, lists, known };
    let disks = WholeDisks::new(calls, nodes, occupied.clone(), Metrics::unregistered(), Recorder::nowhere());
    (disks, occupied, ArmId::disk("s", "g", "d").unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_work_on_a_disk_answers_all_who_wait_and_frees_the_disk() {
    let (disks, occupied, disk) = disks();
    let waiting = |wanted: Wanted| {
        let (disks, disk) = (disks.clone(), disk.clone());
        tokio::spawn(async move { disks.request(&disk, wanted).await })
    };
    let (one, joined) = (waiting(Wanted::Deleted), waiting(Wanted::Deleted));
    while disks.disks.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(occupied.attachment(&disk).unwrap_err().fault, Fault::Busy);
    disks.disks.break_off(&disk);
    for request in [one, joined] {
        let error = request.await.unwrap().unwrap_err();
        assert_eq!((&error.fault, error.effect), (&Fault::OutcomeUnknown, Effect::Possible));
        assert!(error.to_string().contains("was broken off"), "{error}");
    }
    occupied.attachment(&disk).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_last_caller_that_leaves_frees_the_disk_of_what_is_not_sent() {
    let (disks, occupied, disk) = disks();
    let mut request = Box::pin(disks.request(&disk, Wanted::Deleted));
    assert!(futures::poll!(&mut request).is_pending());
    assert_eq!(occupied.attachment(&disk).unwrap_err().fault, Fault::Busy);
    drop(request);
    while !disks.disks.is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    occupied.attachment(&disk).unwrap();
}
