//! No answer rests on a read that may be older than the request.

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use lazuli_emulator::{
    Options,
    latency::Profile,
    scenario::{ResourceGroup, Scenario, VirtualMachine},
};
use lazuli_model::{Lun, fault::Fault};
use lazuli_storage::lun::{LunReservations, Reservation};
use tokio::time::{sleep, timeout};

use super::rig::{ELSEWHERE, Rig, disk, disks, lagging};
use crate::Volumes;

/// How many machines there are: so many reads at once become a list.
const MACHINES: usize = 12;
/// With how many seeds. The seed decides how old each item of a list is.
const SEEDS: u64 = 10;

fn a_cluster() -> Scenario {
    let names = (0..MACHINES).map(|n| format!("s{n}")).chain(["v".to_owned(), "w".to_owned()]);
    Scenario {
        virtual_machines: vec![VirtualMachine::pattern("node-{}", 12)],
        disks: disks(names),
        ..Scenario::default()
    }
}

/// Attaches a disk to each machine. The machines are read by one list, which takes 500 ms. `late` runs 200 ms after its
/// begin.
async fn storm<T>(rig: &Rig, volumes: &Volumes, late: impl Future<Output = T>) -> T {
    rig.delay("GET", "*/virtualMachines", Duration::from_millis(500));
    let publish = async |n: usize| volumes.publish(&disk(&format!("s{n}")), &format!("node-{n}"), None).await;
    let late = async {
        sleep(Duration::from_millis(200)).await;
        late.await
    };
    let (stormed, late) = futures::join!(join_all((0..MACHINES).map(publish)), late);
    for published in stormed {
        published.unwrap();
    }
    rig.emulator.control().clear_incidents();
    late
}

#[tokio::test(start_paused = true)]
async fn a_publish_that_arrives_during_a_list_is_not_answered_by_it() {
    let mut late = 0;
    for seed in 1..=SEEDS {
        let rig = Rig::start(lagging(seed, a_cluster())).await;
        let volumes = rig.replica(seed);
        volumes.publish(&disk("v"), "node-0", None).await.unwrap();
        sleep(Duration::from_secs(20)).await;
        volumes.unpublish(&disk("v"), Some("node-0")).await.unwrap();
        let told = storm(&rig, &volumes, volumes.publish(&disk("v"), "node-0", None)).await;
        late += usize::from(told.is_ok());
        if let Ok(published) = told {
            assert_eq!(rig.lun_of("node-0", &disk("v")), Some(published.lun.get()), "seed {seed}");
        }
        rig.emulator.shutdown().await;
    }
    assert_eq!(late, usize::try_from(SEEDS).unwrap(), "no publish failed");
}

#[tokio::test(start_paused = true)]
async fn an_unpublish_that_arrives_during_a_list_is_not_answered_by_it() {
    for seed in 1..=SEEDS {
        let rig = Rig::start(lagging(seed, a_cluster())).await;
        let volumes = rig.replica(seed);
        sleep(Duration::from_secs(20)).await;
        // Requests without a break, so that this replica counts as the leader.
        for _ in 0..6 {
            volumes.publish(&disk("w"), "node-1", None).await.unwrap();
            sleep(Duration::from_secs(1)).await;
        }
        volumes.publish(&disk("v"), "node-0", None).await.unwrap();
        storm(&rig, &volumes, volumes.unpublish(&disk("v"), Some("node-0"))).await.unwrap();
        assert_eq!(rig.lun_of("node-0", &disk("v")), None, "seed {seed}");
        rig.emulator.shutdown().await;
    }
}

/// Each disk's name belonged to an empty disk a moment ago, which lists may still show. A node formats a blank disk only
/// if it was made empty.
#[tokio::test(start_paused = true)]
async fn what_a_disk_was_made_from_is_not_taken_from_a_list() {
    let golden = disk("golden").to_string();
    for seed in 1..=SEEDS {
        let rig = Rig::start(lagging(seed, a_cluster())).await;
        let volumes = rig.replica(seed);
        sleep(Duration::from_secs(20)).await;
        // Of half of the names this replica knows an empty disk, which it has attached and detached.
        let empty = async |n: usize| {
            let (disk, node) = (disk(&format!("s{n}")), format!("node-{n}"));
            assert_eq!(volumes.publish(&disk, &node, None).await.unwrap().source, None);
            volumes.unpublish(&disk, Some(&node)).await.unwrap();
        };
        join_all((0..MACHINES / 2).map(empty)).await;
        for n in 0..MACHINES {
            let made_from = serde_json::json!({ "createOption": "Copy", "sourceResourceId": golden });
            let change = |disk: &mut serde_json::Value| disk["properties"]["creationData"] = made_from;
            rig.emulator.control().tamper(disk(&format!("s{n}")).as_str(), change).unwrap();
        }
        let publish = async |n: usize| volumes.publish(&disk(&format!("s{n}")), &format!("node-{n}"), None).await;
        for published in join_all((0..MACHINES).map(publish)).await {
            assert_eq!(published.unwrap().source.as_deref(), Some(golden.as_str()), "seed {seed}");
        }
        rig.emulator.shutdown().await;
    }
}

/// Their Nodes are deleted and their machines run on, in a group that is not the cluster's. The replica has no memory.
#[tokio::test(start_paused = true)]
async fn an_unpublish_from_a_node_that_is_deleted_succeeds_only_when_its_machine_has_not_the_disk() {
    let group = |name: &str| ResourceGroup { name: name.into(), location: None, subscription: None };
    let far = VirtualMachine { resource_group: Some(ELSEWHERE.into()), ..VirtualMachine::pattern("far-{}", 12) };
    let scenario = Scenario {
        resource_groups: vec![group("lazuli"), group(ELSEWHERE)],
        virtual_machines: vec![VirtualMachine::pattern("node-{}", 2), far],
        ..a_cluster()
    };
    let rig = Rig::start(lagging(1, scenario)).await;
    let names: Vec<String> = (0..MACHINES).map(|n| format!("far-{n}")).collect();
    rig.set_nodes(&names);
    let one = rig.replica(1);
    sleep(Duration::from_secs(20)).await;
    let publish = async |n: usize| one.publish(&disk(&format!("s{n}")), &names[n], None).await.unwrap();
    join_all((0..MACHINES).map(publish)).await;
    rig.set_nodes([]);
    let two = rig.replica(2);
    let unpublish = async |n: usize| {
        let told = two.unpublish(&disk(&format!("s{n}")), Some(&names[n])).await;
        (told, rig.lun_of(&names[n], &disk(&format!("s{n}"))))
    };
    for (told, held) in join_all((0..MACHINES).map(unpublish)).await {
        told.unwrap();
        assert_eq!(held, None, "OK was said while the disk is attached");
    }
    rig.emulator.shutdown().await;
}

/// The attach goes on after its caller has left, and the disk does not name the machine before its end.
#[tokio::test(start_paused = true)]
async fn an_unpublish_from_a_node_that_is_deleted_during_an_attach_leaves_no_disk_there() {
    let group = |name: &str| ResourceGroup { name: name.into(), location: None, subscription: None };
    let far = VirtualMachine { resource_group: Some(ELSEWHERE.into()), ..VirtualMachine::pattern("far-{}", 1) };
    let scenario = Scenario {
        resource_groups: vec![group("lazuli"), group(ELSEWHERE)],
        virtual_machines: vec![VirtualMachine::pattern("node-{}", 2), far],
        ..a_cluster()
    };
    let rig = Rig::start(Options { latency: Profile::typical(), ..lagging(1, scenario) }).await;
    rig.set_nodes(&["far-0".to_owned()]);
    let (volumes, id) = (rig.replica(1), disk("v"));
    sleep(Duration::from_secs(5)).await;
    let given_up = timeout(Duration::from_secs(1), volumes.publish(&id, "far-0", None)).await;
    assert!(given_up.is_err() && rig.writes() == 1, "the attach is under way");
    rig.set_nodes([]);
    while let Err(error) = volumes.unpublish(&id, Some("far-0")).await {
        assert_eq!(error.fault, Fault::Busy, "{error}");
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.lun_of("far-0", &id), None, "the disk is attached after its unpublish");
    rig.emulator.shutdown().await;
}

/// Lists do not show the attaches of the leader before yet. The VolumeAttachments name their LUNs.
#[tokio::test(start_paused = true)]
async fn a_new_leader_sends_no_attach_of_what_is_attached() {
    for seed in 1..=3 {
        let rig = Rig::start(lagging(seed, a_cluster())).await;
        let (one, two) = (rig.replica(1), rig.replica(2));
        sleep(Duration::from_secs(20)).await;
        let publish = async |volumes: &Volumes, n: usize| {
            volumes.publish(&disk(&format!("s{n}")), &format!("node-{n}"), None).await.unwrap().lun
        };
        let luns: Vec<Lun> = join_all((0..MACHINES).map(|n| publish(&one, n))).await;
        let reservation = |n: usize| Reservation {
            lun: luns[n],
            volume_handle: Some(disk(&format!("s{n}")).to_string()),
            attachment: format!("csi-{n}"),
        };
        let attachments = (0..MACHINES).map(|n| (format!("node-{n}"), vec![reservation(n)])).collect();
        rig.reservations.send_replace(LunReservations::Synced(attachments));
        rig.emulator.control().reset_log();
        assert_eq!(join_all((0..MACHINES).map(|n| publish(&two, n))).await, luns);
        assert_eq!(rig.writes(), 0, "seed {seed}");
        rig.emulator.shutdown().await;
    }
}

/// The leader before has lost the lease before the LUNs were recorded, and no list shows its attaches yet.
#[tokio::test(start_paused = true)]
async fn a_new_leader_sends_no_attach_of_what_is_attached_and_not_recorded() {
    for seed in 1..=3 {
        let rig = Rig::start(lagging(seed, a_cluster())).await;
        rig.reservations.send_replace(LunReservations::Synced(BTreeMap::new()));
        let (one, two) = (rig.replica(seed), rig.replica(seed));
        sleep(Duration::from_secs(20)).await;
        let publish = async |volumes: &Volumes, n: usize| {
            volumes.publish(&disk(&format!("s{n}")), &format!("node-{n}"), None).await.unwrap().lun
        };
        let luns: Vec<Lun> = join_all((0..MACHINES).map(|n| publish(&one, n))).await;
        rig.emulator.control().reset_log();
        assert_eq!(join_all((0..MACHINES).map(|n| publish(&two, n))).await, luns);
        assert_eq!(rig.writes(), 0, "seed {seed}");
        rig.emulator.shutdown().await;
    }
}

/// No list shows them yet, no VolumeAttachment names their LUNs, and each disk's own state comes from a list too. What single
/// reads showed a moment ago is all that is known.
#[tokio::test(start_paused = true)]
async fn what_a_single_read_showed_a_moment_ago_is_not_attached_again_by_a_list_that_lacks_it() {
    for seed in 1..=SEEDS {
        let rig = Rig::start(lagging(seed, a_cluster())).await;
        let volumes = rig.replica(seed);
        sleep(Duration::from_secs(20)).await;
        let publish =
            async |n: usize| volumes.publish(&disk(&format!("s{n}")), &format!("node-{n}"), None).await.unwrap().lun;
        let luns: Vec<Lun> = join_all((0..MACHINES).map(publish)).await;
        rig.emulator.control().reset_log();
        assert_eq!(join_all((0..MACHINES).map(publish)).await, luns);
        assert_eq!(rig.writes(), 0, "seed {seed}");
        rig.emulator.shutdown().await;
    }
}
