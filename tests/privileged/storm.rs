//! Many volumes at once on one node.

use std::time::Instant;

use futures::future::join_all;

use super::{
    cloud::{Cloud, NODES, Step, Volume, kind, node_call},
    content,
    process::{PATIENCE, able, mounted_at},
};

const NODE: &str = NODES[1];
/// What the machine's size takes (source: Microsoft docs, Dsv3 series: Standard_D8s_v3 has 16 data disks).
const COUNT: usize = 16;

/// The same call for all volumes at once.
async fn all(cloud: &mut Cloud, step: Step, volumes: &[Volume]) {
    let client = cloud.node(NODE).await;
    for outcome in join_all(volumes.iter().map(|volume| node_call(client.clone(), step, volume))).await {
        outcome.unwrap();
    }
}

#[tokio::test]
async fn sixteen_volumes_come_and_go_at_once_and_two_are_formatted_at_a_time() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let mut volumes = Vec::new();
    for n in 0..COUNT {
        let name = ["ext4", "xfs", "btrfs", "block"][n % 4];
        volumes.push(cloud.create(&format!("pvc-{n:02}"), kind(name)).await);
    }
    let controller = cloud.controller().await;
    let attached = join_all(volumes.iter().map(|volume| {
        let (mut controller, request) = (controller.clone(), Cloud::attach_request(volume, NODE));
        async move { controller.controller_publish_volume(request).await.unwrap().into_inner().publish_context }
    }));
    for (volume, context) in volumes.iter_mut().zip(attached.await) {
        volume.publish_context = context;
    }

    let client = cloud.node(NODE).await;
    let calls: Vec<_> =
        volumes.iter().map(|volume| tokio::spawn(node_call(client.clone(), Step::Stage, volume))).collect();
    let mut most = 0;
    let began = Instant::now();
    while calls.iter().any(|call| !call.is_finished()) {
        assert!(began.elapsed() < PATIENCE, "the stages do not end");
        most = most.max(cloud.nodes[NODE].children_named("mkfs").len());
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert!((1..=2).contains(&most), "{most} were formatted at once");
    all(&mut cloud, Step::Publish, &volumes).await;
    for (seed, volume) in (0..).zip(&volumes) {
        content::write(volume, seed);
    }
    all(&mut cloud, Step::Unpublish, &volumes).await;
    all(&mut cloud, Step::Unstage, &volumes).await;
    all(&mut cloud, Step::Stage, &volumes).await;
    all(&mut cloud, Step::Publish, &volumes).await;
    for (seed, volume) in (0..).zip(&volumes) {
        let source = mounted_at(&volume.staging).map(|line| line.source);
        let device = cloud.device(NODE, volume.lun());
        assert_eq!(source, device.filter(|_| !volume.is_block()));
        content::check(volume, seed);
    }
    all(&mut cloud, Step::Unpublish, &volumes).await;
    all(&mut cloud, Step::Unstage, &volumes).await;
    let gone = join_all(volumes.iter().map(|volume| {
        let mut controller = controller.clone();
        async move {
            controller.controller_unpublish_volume(Cloud::detach_request(volume, NODE)).await.unwrap();
            controller.delete_volume(Cloud::delete_request(volume)).await.unwrap();
        }
    }));
    gone.await;
    cloud.finish().await;
}
