//! ControllerModifyVolume: what external-resizer and people are told, and what later attaches make of a changed disk.

use std::collections::HashMap;

use csi_proto::csi::{ControllerModifyVolumeRequest, ControllerPublishVolumeRequest, Topology, TopologyRequirement};
use lazuli_emulator::scenario::{Scenario, VirtualMachine};
use lazuli_model::event::{Event, Reason, Regarding};
use lazuli_telemetry::lossy;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tonic::{Code, Status};

use super::disk_rig::{
    Client, Rig, capability, create_request, create_with, disk_id, publish, publish_as, refused, typical, unpublish,
    vm_id,
};

async fn modify(client: &Client, name: &str, class: &[(&str, &str)]) -> Result<(), Status> {
    let pairs = class.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let request = ControllerModifyVolumeRequest {
        volume_id: disk_id(name),
        mutable_parameters: pairs.collect(),
        ..Default::default()
    };
    client.clone().controller_modify_volume(request).await.map(drop)
}

async fn rig(zone: Option<&str>) -> (Rig, Client, lossy::Receiver<Event>) {
    let (sender, events) = lossy::channel(100, Counter::default());
    let machine = VirtualMachine { zone: zone.map(str::to_owned), ..VirtualMachine::pattern("node-{}", 1) };
    let scenario = Scenario { virtual_machines: vec![machine], ..Scenario::default() };
    let azure = lazuli_emulator::Options { scenario, ..typical() };
    let mut rig = Rig::with(azure, |options| options.events = sender).await;
    let client = rig.controller().await;
    (rig, client, events)
}

/// The reasons and notes of the events since, which are all about the claim of `pvc-a`.
fn told(events: &mut lossy::Receiver<Event>) -> Vec<(Reason, String)> {
    std::iter::from_fn(|| events.try_receive())
        .map(|event| {
            assert_eq!(event.regarding, Regarding::ClaimOf(disk_id("pvc-a").parse().unwrap()));
            (event.reason, event.note)
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn disk_a_class_that_names_what_counts_only_at_creation_tells_it_once() {
    let (rig, client, mut events) = rig(None).await;
    create_with(&client, "pvc-a", &[]).await.unwrap();
    let class = [("skuName", "Premium_LRS"), ("cachingMode", "None"), ("fsType", "xfs"), ("diskName", "pvc-a")];
    // What is tried again tells nothing.
    let then = json!({"status": 503, "code": "ServiceUnavailable"});
    rig.incident(json!({"match": {"method": "PATCH", "path": "*/disks/pvc-a"}, "then": then, "times": 0}));
    refused(modify(&client, "pvc-a", &class).await, Code::Unavailable);
    assert_eq!(told(&mut events), []);
    rig.control.clear_incidents();
    modify(&client, "pvc-a", &class).await.unwrap();
    let reported = told(&mut events);
    let [(Reason::AttributeIgnored, note)] = &reported[..] else { panic!("{reported:?}") };
    let said = "Of the VolumeAttributesClass of disk pvc-a, parameter cachingMode is \"None\" and is ignored: it counts only \
                when a volume is made; parameter fsType is \"xfs\" and is ignored";
    assert!(note.starts_with(said), "{note}");
    assert_eq!(rig.disk("pvc-a").unwrap()["sku"]["name"], "Premium_LRS");
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_change_that_azure_refuses_now_is_a_failed_precondition_that_the_claim_shows() {
    let (rig, client, mut events) = rig(None).await;
    let volume = create_with(&client, "pvc-a", &[]).await.unwrap();
    publish(&client, &volume, "node-0").await.unwrap();
    let class = [("skuName", "Premium_LRS")];
    let message = refused(modify(&client, "pvc-a", &class).await, Code::FailedPrecondition);
    assert!(message.contains("cannot be changed"), "{message}");
    let reported = told(&mut events);
    let [(Reason::ModificationRefused, note)] = &reported[..] else { panic!("{reported:?}") };
    assert!(message.contains("the disk is attached to node-0"), "{message}");
    let said = "Disk pvc-a cannot be changed as its VolumeAttributesClass asks, for the disk is attached to node-0, and Azure \
                changes the type of a detached disk alone: stop the Pods that use the volume: Azure answered OperationNotAllowed. ";
    assert!(note.starts_with(said), "{note}");
    // A mistake is told by external-resizer, which calls it infeasible.
    for mistake in [("maxShares", "2"), ("tier", "P40"), ("color", "red")] {
        refused(modify(&client, "pvc-a", &[mistake]).await, Code::InvalidArgument);
    }
    refused(modify(&client, "pvc-missing", &class).await, Code::NotFound);
    assert_eq!(told(&mut events), []);
    unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
    modify(&client, "pvc-a", &class).await.unwrap();
    rig.check();
    rig.stop().await;
}

/// The context of the volume says Premium_LRS with host caching for as long as it lives.
#[tokio::test(start_paused = true)]
async fn disk_a_changed_disk_is_attached_and_tuned_as_it_is_now() {
    let (rig, client, _events) = rig(Some("1")).await;
    let mut request =
        create_request("pvc-a", &[("skuName", "Premium_LRS"), ("cachingMode", "ReadOnly"), ("perfProfile", "basic")]);
    let zone = HashMap::from([("topology.disk.csi.azure.com/zone".to_owned(), "westeurope-1".to_owned())]);
    let topology = Topology { segments: zone };
    request.accessibility_requirements =
        Some(TopologyRequirement { requisite: vec![topology.clone()], preferred: vec![topology] });
    let volume = client.clone().create_volume(request).await.unwrap().into_inner().volume.unwrap();
    let attached = async || {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id: "node-0".into(),
            volume_capability: Some(capability()),
            volume_context: volume.volume_context.clone(),
            ..Default::default()
        };
        let told = client.clone().controller_publish_volume(request).await.unwrap().into_inner().publish_context;
        let vm = rig.control.dump().resources[&vm_id("node-0").to_lowercase()].clone();
        unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
        let caching = vm["properties"]["storageProfile"]["dataDisks"][0]["caching"].as_str().unwrap().to_owned();
        (caching, told["skuname"].clone())
    };
    let is = |caching: &str, sku: &str| (caching.to_owned(), sku.to_owned());
    assert_eq!(attached().await, is("ReadOnly", "Premium_LRS"));
    modify(&client, "pvc-a", &[("skuName", "PremiumV2_LRS")]).await.unwrap();
    assert_eq!(attached().await, is("None", "PremiumV2_LRS"));
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_the_attributes_of_a_class_count_when_a_volume_is_made_too() {
    let (rig, client, _events) = rig(None).await;
    let mut request = create_request("pvc-a", &[("skuName", "StandardSSD_LRS"), ("tags", "team=red")]);
    request.capacity_range.as_mut().unwrap().required_bytes = 1 << 40;
    let class = [
        ("skuname", "Premium_LRS"),
        ("tier", "P40"),
        ("enableBursting", "true"),
        ("networkAccessPolicy", "AllowAll"),
        ("publicNetworkAccess", "Enabled"),
        ("tags", "team=blue"),
    ];
    request.mutable_parameters = class.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let volume = client.clone().create_volume(request).await.unwrap().into_inner().volume.unwrap();
    let disk = rig.disk("pvc-a").unwrap();
    let shown = ["tier", "burstingEnabled", "networkAccessPolicy", "publicNetworkAccess"];
    assert_eq!(
        shown.map(|key| disk["properties"][key].clone()),
        [json!("P40"), json!(true), json!("AllowAll"), json!("Enabled")]
    );
    assert_eq!((&disk["sku"]["name"], &disk["tags"]["team"]), (&json!("Premium_LRS"), &json!("blue")));
    // The class has nothing to change then, and its keys spoil no attach.
    rig.control.reset_log();
    modify(&client, "pvc-a", &class).await.unwrap();
    assert_eq!(rig.writes().len(), 0);
    publish_as(&client, &volume.volume_id, &volume.volume_context, "node-0").await.unwrap();
    rig.check();
    rig.stop().await;
}
