//! Many volumes at once cost one write per VM; one volume alone costs no waiting.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::disk_rig::{
    Rig, create, create_all, delete, millis, numbered, publish, publish_all, seconds, typical, unpublish, unpublish_all,
};

fn polls(rig: &Rig) -> u64 {
    rig.control.counters().polls
}

#[tokio::test(start_paused = true)]
async fn disk_a_storm_of_publishes_costs_one_write_per_vm_and_luns_follow_the_ids() {
    let (mut rig, client) = Rig::typical().await;
    let names = numbered(32);
    let volumes = create_all(&client, &names).await;
    let replica = rig.lab.controller("replica").await.unwrap();
    rig.control.reset_log();
    let began = Instant::now();
    let (left, right) =
        futures::join!(publish_all(&client, &volumes[..16], "node-0"), publish_all(&client, &volumes[16..], "node-1"));
    assert!(began.elapsed() <= seconds(10) + millis(200), "{:?}", began.elapsed());
    for (machine, answers, names) in [("node-0", left, &names[..16]), ("node-1", right, &names[16..])] {
        let given: Vec<u8> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(given, (0..16).collect::<Vec<u8>>(), "{machine}");
        let expected: BTreeMap<u8, String> = (0..).zip(names.iter().cloned()).collect();
        assert_eq!(rig.luns(machine), expected);
        assert_eq!(rig.vm_writes(machine).len(), 1, "{machine}");
    }
    assert!(polls(&rig) <= 12, "{}", polls(&rig));
    rig.check();

    rig.control.reset_log();
    let began = Instant::now();
    let (left, right) = futures::join!(
        unpublish_all(&client, &volumes[..16], "node-0"),
        unpublish_all(&client, &volumes[16..], "node-1")
    );
    left.into_iter().chain(right).for_each(Result::unwrap);
    assert!(began.elapsed() <= seconds(16) + millis(200), "{:?}", began.elapsed());
    assert_eq!((rig.vm_writes("node-0").len(), rig.vm_writes("node-1").len()), (1, 1));
    assert!(rig.luns("node-0").is_empty() && rig.luns("node-1").is_empty());

    let deleted = volumes.iter().map(|volume| delete(&replica, &volume.volume_id));
    futures::future::join_all(deleted).await.into_iter().for_each(Result::unwrap);
    rig.check_empty();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_what_arrives_while_a_write_is_in_flight_is_one_further_write() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(9)).await;
    rig.control.reset_log();
    let began = Instant::now();
    let first = publish(&client, &volumes[0], "node-0");
    let others = async {
        let late = volumes[1..].iter().enumerate().map(|(at, volume)| {
            let client = client.clone();
            async move {
                tokio::time::sleep(millis(500 + 1000 * at as u64)).await;
                publish(&client, volume, "node-0").await.unwrap()
            }
        });
        futures::future::join_all(late).await
    };
    let (first, others) = futures::join!(first, others);
    assert_eq!(first.unwrap(), 0);
    assert_eq!(others, (1..9).collect::<Vec<u8>>());
    assert_eq!(rig.vm_writes("node-0").len(), 2);
    assert!(began.elapsed() <= seconds(20) + millis(300), "{:?}", began.elapsed());
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_one_disk_alone_waits_for_azure_and_for_nothing_else() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    for round in 0..3 {
        rig.control.reset_log();
        let began = Instant::now();
        publish(&client, &volume, "node-0").await.unwrap();
        assert!(began.elapsed() <= seconds(10) + millis(100), "attach {round}: {:?}", began.elapsed());
        assert!(polls(&rig) <= 6, "attach {round}: {} polls", polls(&rig));
        let reads = rig.control.counters().reads - polls(&rig);
        assert!(reads <= 3, "attach {round}: {reads} reads");
        rig.control.reset_log();
        let began = Instant::now();
        unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
        assert!(began.elapsed() <= seconds(16) + millis(100), "detach {round}: {:?}", began.elapsed());
        assert!(polls(&rig) <= 6, "detach {round}: {} polls", polls(&rig));
    }
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_storm_over_ten_nodes_meets_no_request_limit() {
    let mut azure = typical();
    azure.scenario.virtual_machines = vec![lazuli_emulator::scenario::VirtualMachine::pattern("node-{}", 10)];
    let mut rig = Rig::on(azure).await;
    let client = rig.controller().await;
    let names: Vec<String> = (0..160).map(|n| format!("pvc-{n:03}")).collect();
    let volumes = create_all(&client, &names).await;
    // The creations have emptied the buckets; the storm comes after a rest.
    rig.control.fill_buckets();
    rig.control.reset_log();
    let began = Instant::now();
    let nodes = volumes.chunks(16).enumerate().map(|(node, volumes)| {
        let client = client.clone();
        async move { publish_all(&client, volumes, &format!("node-{node}")).await }
    });
    for answer in futures::future::join_all(nodes).await.into_iter().flatten() {
        answer.unwrap();
    }
    assert!(began.elapsed() <= seconds(11), "{:?}", began.elapsed());
    for node in 0..10 {
        assert!(rig.vm_writes(&format!("node-{node}")).len() <= 2);
    }
    assert_eq!(rig.control.counters().throttled, 0);
    rig.check();
    rig.stop().await;
}
