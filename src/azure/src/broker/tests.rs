//! What becomes of a group whose task is broken off. What the broker sends is tested in [`crate::emulated`].

use serde_json::json;

use super::*;
use crate::{
    compute::{ApiVersions, Compute},
    testing::{Fake, Reply, an_hour},
};

#[tokio::test(start_paused = true)]
async fn a_group_whose_task_is_broken_off_fails_its_callers_and_serves_the_next() {
    let fake = Fake::new([Reply::Silence]);
    let compute = Compute::new(fake.arm(fake.in_process()), ApiVersions::public());
    let disk = ArmId::disk("s", "g", "d").unwrap();
    let first = tokio::spawn({
        let (compute, disk) = (compute.clone(), disk.clone());
        async move { compute.get_disk(&disk, &an_hour()).await }
    });
    while fake.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let shared = compute.broker().0.clone();
    let key = shared.groups().keys().next().unwrap().clone();
    // As a panic of the group's task drops it.
    drop(Driver { shared, key, ended: false });
    assert_eq!(first.await.unwrap().unwrap_err().fault, Fault::Unavailable);

    let properties =
        json!({"provisioningState": "Succeeded", "diskSizeGB": 1, "creationData": {"createOption": "Empty"}});
    fake.push(Reply::json(200, json!({"id": disk.as_str(), "location": "eu", "properties": properties})));
    compute.get_disk(&disk, &an_hour()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_caller_of_a_group_that_was_dropped_takes_nothing_from_a_caller_of_the_next() {
    let fake = Fake::new([Reply::Silence]);
    let compute = Compute::new(fake.arm(fake.in_process()), ApiVersions::public());
    let disk = ArmId::disk("s", "g", "d").unwrap();
    let until = an_hour();
    let mut first = Box::pin(compute.get_disk(&disk, &until));
    let mut second = Box::pin(compute.get_disk(&disk, &until));
    tokio::select! {
        biased;
        read = &mut first => panic!("{read:?}"),
        () = std::future::ready(()) => {}
    }
    while fake.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let shared = compute.broker().0.clone();
    let key = shared.groups().keys().next().unwrap().clone();
    drop(Driver { shared, key, ended: false });
    let properties =
        json!({"provisioningState": "Succeeded", "diskSizeGB": 1, "creationData": {"createOption": "Empty"}});
    fake.push(Reply::json(200, json!({"id": disk.as_str(), "location": "eu", "properties": properties})));
    tokio::select! {
        biased;
        read = &mut second => panic!("{read:?}"),
        () = std::future::ready(()) => {}
    }
    // It has not been told yet that its group is gone.
    drop(first);
    second.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn groups_that_nobody_reads_go_and_one_with_a_caller_stays() {
    let fake = Fake::new([Reply::Silence]);
    let compute = Compute::new(fake.arm(fake.in_process()), ApiVersions::public());
    let groups = || compute.broker().0.groups().len();
    let waiting = ArmId::disk("s", "waiting", "d").unwrap();
    let until = an_hour();
    let mut waits = Box::pin(compute.get_disk(&waiting, &until));
    tokio::select! {
        biased;
        read = &mut waits => panic!("{read:?}"),
        () = std::future::ready(()) => {}
    }
    while fake.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let properties =
        json!({"provisioningState": "Succeeded", "diskSizeGB": 1, "creationData": {"createOption": "Empty"}});
    for n in 0..3 * KEPT_GROUPS {
        let disk = ArmId::disk("s", &format!("g{n}"), "d").unwrap();
        fake.push(Reply::json(200, json!({"id": disk.as_str(), "location": "eu", "properties": properties})));
        compute.get_disk(&disk, &until).await.unwrap();
        assert!(groups() <= KEPT_GROUPS, "{} groups after {n}", groups());
    }
    let stays = compute.broker().0.groups().keys().any(|key| key.list_path.contains("/resourceGroups/waiting/"));
    assert!(stays, "the group of a caller who waits");
}
