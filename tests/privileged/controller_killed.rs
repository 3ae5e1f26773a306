//! kill -9 of the controller between any two requests that it sends to Azure: its successor goes on.

use std::{future::Future, time::Instant};

use csi_proto::csi::controller_client::ControllerClient;
use tonic::{Code, Status, transport::Channel};

use super::{
    cloud::{Cloud, NODES, kind},
    content,
    process::{PATIENCE, able},
};

/// Operations of the published lengths, twenty times as fast: long enough to be killed in.
const AZURE: [&str; 4] = ["--latency", "typical", "--time-scale", "20"];

/// Makes a call, kills the controller when Azure has had so many requests of it, starts another and repeats the call
/// until it succeeds. Also returns whether the kill struck the call in flight.
async fn killed_after<T, F>(
    cloud: &mut Cloud,
    requests: usize,
    call: impl Fn(ControllerClient<Channel>) -> F,
) -> (T, bool)
where
    T: Send + 'static,
    F: Future<Output = Result<T, Status>> + Send + 'static,
{
    let client = cloud.controller().await;
    cloud.azure.forget_calls().await;
    let cut = tokio::spawn(call(client));
    let began = Instant::now();
    while !cut.is_finished() && cloud.azure.arm_calls().await < requests {
        assert!(began.elapsed() < PATIENCE);
        tokio::task::yield_now().await;
    }
    let struck = !cut.is_finished();
    cloud.restart_controller_killed();
    let _ = cut.await;
    let began = Instant::now();
    loop {
        match call(cloud.controller().await).await {
            Ok(answer) => return (answer, struck),
            Err(status) => {
                assert!(
                    matches!(status.code(), Code::Aborted | Code::Unavailable | Code::DeadlineExceeded),
                    "{status}"
                );
                assert!(began.elapsed() < PATIENCE, "{status}");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

#[tokio::test]
async fn a_controller_killed_after_any_request_of_any_call_leaves_one_disk_at_the_right_lun() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::with(&AZURE).await;
    // A neighbour, so that LUN 0 is taken and another disk could be hurt.
    let neighbour = cloud.published("pvc-neighbour", kind("ext4")).await;
    content::write(&neighbour, 7);
    let mut requests = 0;
    let mut struck = [0_u32; 5];
    loop {
        let name = format!("pvc-{requests}");
        let mut any = false;
        let mut note = |place: usize, hit: bool| {
            struck[place] += u32::from(hit);
            any |= hit;
        };
        let wanted = Cloud::create_request(&name, &kind("ext4"), 1);
        let (answer, hit) = killed_after(&mut cloud, requests, |mut client| {
            let wanted = wanted.clone();
            async move { client.create_volume(wanted).await }
        })
        .await;
        note(0, hit);
        let volume = cloud.volume(answer.into_inner().volume.unwrap(), kind("ext4"));
        let both = [neighbour.disk.clone(), volume.disk.clone()];
        assert_eq!(cloud.azure.disks().await, both.into(), "one disk each");

        let wanted = Cloud::attach_request(&volume, NODES[0]);
        let (answer, hit) = killed_after(&mut cloud, requests, |mut client| {
            let wanted = wanted.clone();
            async move { client.controller_publish_volume(wanted).await }
        })
        .await;
        note(1, hit);
        let lun: u8 = answer.into_inner().publish_context["LUN"].parse().unwrap();
        let attached = cloud.azure.attached().await;
        assert_eq!(attached[&volume.disk], [(NODES[0].to_owned(), lun)]);
        assert_eq!(attached[&neighbour.disk], [(NODES[0].to_owned(), neighbour.lun())]);
        assert!(cloud.device(NODES[0], lun).is_some());

        let wanted = Cloud::detach_request(&volume, NODES[0]);
        let (_, hit) = killed_after(&mut cloud, requests, |mut client| {
            let wanted = wanted.clone();
            async move { client.controller_unpublish_volume(wanted).await }
        })
        .await;
        note(2, hit);
        assert!(cloud.azure.attached().await.into_keys().eq([neighbour.disk.clone()]));
        assert!(cloud.device(NODES[0], lun).is_none());

        let wanted = Cloud::expand_request(&volume, 8);
        let (answer, hit) = killed_after(&mut cloud, requests, |mut client| {
            let wanted = wanted.clone();
            async move { client.controller_expand_volume(wanted).await }
        })
        .await;
        note(3, hit);
        assert_eq!(answer.into_inner().capacity_bytes, 8 << 30);
        assert_eq!(cloud.disk_file(&volume.disk).metadata().unwrap().len(), 8 << 30);

        let wanted = Cloud::delete_request(&volume);
        let (_, hit) = killed_after(&mut cloud, requests, |mut client| {
            let wanted = wanted.clone();
            async move { client.delete_volume(wanted).await }
        })
        .await;
        note(4, hit);
        assert_eq!(cloud.azure.disks().await, [neighbour.disk.clone()].into());
        requests += 1;
        assert!(requests < 100, "every call makes ever more requests: {struck:?}");
        if !any {
            break;
        }
    }
    println!("kills that struck create, attach, detach, expand and delete in flight: {struck:?}");
    assert!(struck.iter().all(|count| *count >= 2), "{struck:?}");
    content::check(&neighbour, 7);
    cloud.tear_down(&neighbour, NODES[0]).await;
    cloud.finish().await;
}

#[tokio::test]
async fn a_controller_killed_inside_a_batch_gives_every_volume_a_lun_of_its_own() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::with(&AZURE).await;
    let mut volumes = Vec::new();
    for n in 0..4 {
        volumes.push(cloud.create(&format!("pvc-{n}"), kind("block")).await);
    }
    for requests in [0, 1, 2, 3, 5] {
        let client = cloud.controller().await;
        cloud.azure.forget_calls().await;
        let cut: Vec<_> = volumes
            .iter()
            .map(|volume| {
                let (mut client, request) = (client.clone(), Cloud::attach_request(volume, NODES[1]));
                tokio::spawn(async move { client.controller_publish_volume(request).await })
            })
            .collect();
        let began = Instant::now();
        while cut.iter().any(|call| !call.is_finished()) && cloud.azure.arm_calls().await < requests {
            assert!(began.elapsed() < PATIENCE);
            tokio::task::yield_now().await;
        }
        cloud.restart_controller_killed();
        for call in cut {
            let _ = call.await;
        }
        for volume in &mut volumes {
            cloud.attach(volume, NODES[1]).await;
        }
        let attached = cloud.azure.attached().await;
        for volume in &volumes {
            assert_eq!(attached[&volume.disk], [(NODES[1].to_owned(), volume.lun())], "after {requests} requests");
        }
        for volume in &volumes {
            cloud.detach(volume, NODES[1]).await;
        }
        assert!(cloud.azure.attached().await.is_empty());
    }
    for volume in &volumes {
        cloud.delete(volume).await;
    }
    cloud.finish().await;
}
