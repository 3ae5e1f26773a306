//! Two controllers on one Azure: leadership moves while a write is in flight, and nothing is lost or doubled.

use std::collections::BTreeSet;

use csi_proto::csi::Volume;
use lazuli_emulator::options::Concurrent;
use tokio::time::timeout;
use tonic::Code;

use super::disk_rig::{
    Client, Method, Rig, create, create_all, delete, disk_id, insist, list, millis, name_of, numbered, pass, publish,
    seconds, start, typical, unpublish,
};

const NODE: &str = "node-0";
const METHODS: [Method; 2] = [Method::Action, Method::WholeList];
/// What a second write does to a first one is not known of Azure: both are right.
const CONCURRENT: [Concurrent; 2] = [Concurrent::Conflict, Concurrent::Preempt];

async fn two(method: Method, concurrent: Concurrent) -> (Rig, Client, Client) {
    let mut azure = typical();
    azure.unverified.concurrent_vm_write = concurrent;
    let mut rig = Rig::with(azure, |options| method.set(options)).await;
    let (one, two) = (rig.lab.controller("one").await.unwrap(), rig.lab.controller("two").await.unwrap());
    (rig, one, two)
}

fn publishing(client: &Client, volume: &Volume) -> tokio::task::JoinHandle<u8> {
    let (client, volume) = (client.clone(), volume.clone());
    start(async move { insist(|| publish(&client, &volume, NODE)).await })
}

fn unpublishing(client: &Client, volume: &Volume) -> tokio::task::JoinHandle<()> {
    let (client, volume) = (client.clone(), volume.clone());
    start(async move { insist(|| unpublish(&client, &volume.volume_id, NODE)).await })
}

fn names(volumes: &[Volume]) -> BTreeSet<String> {
    volumes.iter().map(|volume| name_of(&volume.volume_id).to_owned()).collect()
}

fn held(rig: &Rig) -> BTreeSet<String> {
    rig.luns(NODE).into_values().collect()
}

#[tokio::test(start_paused = true)]
async fn disk_leadership_that_moves_while_a_write_is_in_flight_loses_and_doubles_nothing() {
    for method in METHODS {
        for concurrent in CONCURRENT {
            let (rig, one, two) = two(method, concurrent).await;
            let volumes = create_all(&one, &numbered(8)).await;
            rig.control.reset_log();
            let left = volumes[..4].iter().map(|volume| timeout(seconds(1), publish(&one, volume, NODE)));
            assert!(futures::future::join_all(left).await.iter().all(Result::is_err));
            // The old leader is gone, its write is not. The new one is asked for everything.
            let asked: Vec<_> = volumes.iter().map(|volume| publishing(&two, volume)).collect();
            let mut given = BTreeSet::new();
            for answer in asked {
                given.insert(answer.await.unwrap());
            }
            rig.at_rest().await;
            assert_eq!(given, (0..8).collect(), "{method:?} {concurrent:?}");
            assert_eq!(held(&rig), names(&volumes));
            assert!(rig.vm_writes(NODE).len() <= 6, "{} writes", rig.vm_writes(NODE).len());
            rig.check();
            rig.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn disk_two_leaders_at_once_publish_and_unpublish_on_one_node_without_a_lost_update() {
    for method in METHODS {
        for concurrent in CONCURRENT {
            let (rig, one, two) = two(method, concurrent).await;
            let volumes = create_all(&one, &numbered(12)).await;
            // First half on, in turns by both.
            let turns = |at: usize| if at.is_multiple_of(2) { &one } else { &two };
            let on: Vec<_> =
                volumes[..6].iter().enumerate().map(|(at, volume)| publishing(turns(at), volume)).collect();
            let mut luns = BTreeSet::new();
            for answer in on {
                luns.insert(answer.await.unwrap());
            }
            rig.at_rest().await;
            assert_eq!(luns.len(), 6, "{method:?} {concurrent:?}");
            assert_eq!(held(&rig), names(&volumes[..6]), "{method:?} {concurrent:?}");
            rig.check();
            // Then the first half off and the second on, all at once, by the other one each.
            let off: Vec<_> =
                volumes[..6].iter().enumerate().map(|(at, volume)| unpublishing(turns(at + 1), volume)).collect();
            let on: Vec<_> =
                volumes[6..].iter().enumerate().map(|(at, volume)| publishing(turns(at), volume)).collect();
            for answer in off {
                answer.await.unwrap();
            }
            for answer in on {
                answer.await.unwrap();
            }
            rig.at_rest().await;
            assert_eq!(held(&rig), names(&volumes[6..]), "{method:?} {concurrent:?}");
            rig.check();
            rig.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn disk_two_leaders_that_send_one_disk_to_two_nodes_end_with_it_on_one() {
    for method in METHODS {
        let (rig, one, two) = two(method, Concurrent::Conflict).await;
        let volumes = create_all(&one, &numbered(1)).await;
        let (here, there) = futures::join!(publish(&one, &volumes[0], "node-0"), publish(&two, &volumes[0], "node-1"));
        rig.at_rest().await;
        assert_eq!(u8::from(here.is_ok()) + u8::from(there.is_ok()), 1, "{here:?} {there:?}");
        let status = here.err().or(there.err()).unwrap();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert_eq!(rig.luns("node-0").len() + rig.luns("node-1").len(), 1);
        rig.check();
        rig.stop().await;
    }
}

/// What a replica reads in the middle of another's write is not taken for done: the model lists a disk before the
/// machine holds it.
#[tokio::test(start_paused = true)]
async fn disk_a_publish_that_finds_anothers_attach_in_flight_answers_when_that_has_ended() {
    let (rig, one, two) = two(Method::Action, Concurrent::Conflict).await;
    let volumes = create_all(&one, &numbered(1)).await;
    rig.control.reset_log();
    assert!(timeout(seconds(1), publish(&one, &volumes[0], NODE)).await.is_err());
    assert_eq!(publish(&two, &volumes[0], NODE).await.unwrap(), 0);
    assert_eq!(rig.luns(NODE).len(), 1, "OK was said before the machine held the disk");
    assert_eq!(rig.vm_writes(NODE).len(), 1);
    rig.check();
    rig.stop().await;
}

/// The reads of the new process are older than the last write of the one before.
#[tokio::test(start_paused = true)]
async fn disk_a_process_that_has_just_begun_does_not_take_a_disk_for_detached_from_a_read_that_lags() {
    for method in METHODS {
        let mut azure = typical();
        azure.read_lag = seconds(3);
        let mut rig = Rig::with(azure, |options| method.set(options)).await;
        let one = rig.lab.controller("one").await.unwrap();
        let volumes = create_all(&one, &numbered(1)).await;
        pass(seconds(10)).await;
        assert!(timeout(seconds(1), publish(&one, &volumes[0], NODE)).await.is_err());
        let two = rig.lab.controller("two").await.unwrap();
        let unpublished = unpublish(&two, &volumes[0].volume_id, NODE).await;
        rig.at_rest().await;
        match unpublished {
            Ok(()) => assert!(rig.luns(NODE).is_empty(), "{method:?}: detached, it said, and the attach went on"),
            Err(status) => assert_eq!(status.code(), Code::Aborted, "{status:?}"),
        }
        rig.stop().await;
    }
}

/// The same of a replica that has been up all the time and has had the role before.
#[tokio::test(start_paused = true)]
async fn disk_a_replica_that_gets_the_role_back_does_not_take_a_disk_for_detached_from_a_read_that_lags() {
    for method in METHODS {
        let mut azure = typical();
        azure.read_lag = seconds(3);
        let mut rig = Rig::with(azure, |options| method.set(options)).await;
        let (one, two) = (rig.lab.controller("one").await.unwrap(), rig.lab.controller("two").await.unwrap());
        let volumes = create_all(&one, &numbered(2)).await;
        pass(seconds(10)).await;
        publish(&two, &volumes[1], NODE).await.unwrap();
        pass(seconds(10)).await;
        assert!(timeout(seconds(1), publish(&one, &volumes[0], NODE)).await.is_err());
        let unpublished = unpublish(&two, &volumes[0].volume_id, NODE).await;
        rig.at_rest().await;
        match unpublished {
            Ok(()) => assert_eq!(rig.luns(NODE).len(), 1, "{method:?}: detached, it said, and the attach went on"),
            Err(status) => assert_eq!(status.code(), Code::Aborted, "{status:?}"),
        }
        rig.stop().await;
    }
}

/// The predecessor has begun to make it, and no read shows it yet.
#[tokio::test(start_paused = true)]
async fn disk_a_deletion_of_what_is_being_made_and_cannot_be_seen_yet_leaves_no_disk() {
    let mut azure = typical();
    azure.read_lag = seconds(2);
    let mut rig = Rig::on(azure).await;
    let (one, two) = (rig.lab.controller("one").await.unwrap(), rig.lab.controller("two").await.unwrap());
    // Signed in.
    assert!(list(&two).await.unwrap().is_empty());
    assert!(timeout(millis(100), create(&one, "pvc-a")).await.is_err());
    delete(&two, &disk_id("pvc-a")).await.unwrap();
    assert!(rig.disk("pvc-a").is_none(), "OK was said of a disk that is there");
    rig.at_rest().await;
    rig.check_empty();
    rig.stop().await;
}

/// What was decided a minute ago is not sent now: the disk may have come and gone and come again meanwhile.
#[tokio::test(start_paused = true)]
async fn disk_a_detachment_that_azure_put_off_takes_no_disk_that_another_leader_has_published_since() {
    for method in [Method::Action, Method::WholeList, Method::AzureStack] {
        let mut rig = Rig::with(typical(), |options| method.set(options)).await;
        let (one, two) = (rig.lab.controller("one").await.unwrap(), rig.lab.controller("two").await.unwrap());
        let volumes = create_all(&one, &numbered(1)).await;
        publish(&one, &volumes[0], NODE).await.unwrap();
        let writes = if method == Method::Action { "POST" } else { "PUT" };
        rig.incident(serde_json::json!({
            "match": {"method": writes, "path": format!("{}*", super::disk_rig::vm_id(NODE))},
            "then": {"status": 429, "retryAfter": 55}, "times": 1,
        }));
        assert!(timeout(seconds(15), unpublish(&one, &volumes[0].volume_id, NODE)).await.is_err());
        unpublish(&two, &volumes[0].volume_id, NODE).await.unwrap();
        publish(&two, &volumes[0], NODE).await.unwrap();
        pass(seconds(120)).await;
        rig.at_rest().await;
        assert_eq!(rig.luns(NODE).len(), 1, "{method:?}: a published disk was taken off");
        rig.check();
        rig.stop().await;
    }
}
