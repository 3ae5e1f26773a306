//! What a person is reported by Kubernetes events when a call fails: about which object, why, and with which values.

use std::collections::BTreeMap;

use lazuli_emulator::scenario::{Disk, Scenario, VirtualMachine};
use lazuli_model::event::{Claim, Event, Reason, Regarding};
use lazuli_telemetry::lossy;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tonic::Code;

use super::disk_rig::{
    Client, GIB, Method, Rig, create, create_all, create_with, disk_id, expand, numbered, pass, publish, publish_all,
    publish_as, publishing, refused, seconds, typical, unpublish, vm_id,
};

const UID: &str = "0b7c6a52-3c1e-4d3a-9a53-0a6b9a0c2f11";
const METADATA: [(&str, &str); 2] =
    [("csi.storage.k8s.io/pvc/name", "data-0"), ("csi.storage.k8s.io/pvc/namespace", "db")];

/// The events so far, in the order in which they were sent.
fn sent(events: &mut lossy::Receiver<Event>) -> Vec<Event> {
    std::iter::from_fn(|| events.try_receive()).collect()
}

async fn rig(azure: lazuli_emulator::Options) -> (Rig, Client, lossy::Receiver<Event>) {
    let (sender, events) = lossy::channel(100, Counter::default());
    let mut rig = Rig::with(azure, |options| options.events = sender).await;
    let client = rig.controller().await;
    (rig, client, events)
}

fn node(name: &str) -> Regarding {
    Regarding::Node(name.to_owned())
}

fn claim_of(disk: &str) -> Regarding {
    Regarding::ClaimOf(disk_id(disk).parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn disk_a_claim_shows_why_its_disk_cannot_be_made() {
    let name = format!("pvc-{UID}");
    let claim = Claim { namespace: "db".into(), name: "data-0".into(), uid: Some(UID.into()) };
    for (status, code, reason, said) in [
        (409, "QuotaExceeded", Reason::QuotaExceeded, "Azure answered QuotaExceeded"),
        (403, "AuthorizationFailed", Reason::AuthorizationFailed, "lacks the action Microsoft.Compute/disks/write"),
        (403, "LinkedAuthorizationFailed", Reason::LinkedAuthorizationFailed, "the disk encryption set"),
        (409, "ScopeLocked", Reason::ResourceLocked, "Remove the management lock"),
        (401, "InvalidAuthenticationToken", Reason::CredentialRefused, "Renew the credential"),
        (404, "ResourceGroupNotFound", Reason::ScopeNotFound, "resourceGroup"),
    ] {
        let (rig, client, mut events) = rig(typical()).await;
        let then = json!({"status": status, "code": code});
        rig.incident(json!({"match": {"method": "PUT", "path": "*/disks/*"}, "then": then, "times": 0}));
        create_with(&client, &name, &METADATA).await.unwrap_err();
        let reported = sent(&mut events);
        let [event] = &reported[..] else { panic!("{code}: {reported:?}") };
        assert_eq!((&event.regarding, event.reason), (&Regarding::Claim(claim.clone()), reason));
        assert!(event.note.starts_with(&format!("Disk {name} (1 GiB, ")), "{}", event.note);
        assert!(event.note.contains(said), "{}", event.note);
        // A claim that no pod names has no events.
        create(&client, "pvc-b").await.unwrap_err();
        assert_eq!(sent(&mut events), []);
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_node_shows_that_its_vm_takes_no_more_disks_and_each_refused_disk_says_the_same() {
    let mut azure = typical();
    let machine = VirtualMachine { size: "Standard_D2s_v3".into(), ..VirtualMachine::pattern("node-{}", 1) };
    azure.scenario = Scenario { virtual_machines: vec![machine], ..Scenario::default() };
    let (rig, client, mut events) = rig(azure).await;
    let volumes = create_all(&client, &numbered(6)).await;
    let answers = publish_all(&client, &volumes, "node-0").await;
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 2);
    let reported = sent(&mut events);
    let [one, other] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!((&one.regarding, one.reason), (&node("node-0"), Reason::VMSizeFull));
    assert!(one.note.contains("node node-0: its VM size takes 4 data disks and it has 4. Move pods"), "{}", one.note);
    assert_eq!(one, other);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_refusal_that_the_zones_explain_names_both() {
    let mut azure = typical();
    let machine = |name: &str, zone: Option<&str>| VirtualMachine {
        zone: zone.map(str::to_owned),
        count: None,
        ..VirtualMachine::pattern(name, 1)
    };
    let disk = |name: &str, sku: &str, zone: Option<&str>| Disk {
        name: name.into(),
        size_gib: 4,
        sku: sku.into(),
        zone: zone.map(str::to_owned),
        resource_group: None,
        attach_to: None,
        tags: BTreeMap::new(),
    };
    azure.scenario = Scenario {
        virtual_machines: vec![machine("node-0", Some("1")), machine("node-1", None)],
        disks: vec![
            disk("in-2", "Premium_LRS", Some("2")),
            disk("regional", "Premium_LRS", None),
            disk("everywhere", "Premium_ZRS", None),
        ],
        ..Scenario::default()
    };
    let (rig, client, mut events) = rig(azure).await;
    let attach = async |disk: &str, node: &str| publish_as(&client, &disk_id(disk), &[].into(), node).await;
    for (disk, at, said) in [
        ("in-2", "node-0", "disk in-2 is in zone 2 and cannot be attached to node node-0, whose VM is in zone 1"),
        ("in-2", "node-1", "disk in-2 is in zone 2 and cannot be attached to node node-1, whose VM is in no zone"),
        (
            "regional",
            "node-0",
            "disk regional is in no zone and cannot be attached to node node-0, whose VM is in zone 1",
        ),
    ] {
        let message = refused(attach(disk, at).await, Code::InvalidArgument);
        assert!(message.contains(said), "{message}");
        let reported = sent(&mut events);
        let [event] = &reported[..] else { panic!("{reported:?}") };
        assert_eq!((&event.regarding, event.reason), (&claim_of(disk), Reason::ZoneMismatch));
        assert!(event.note.contains(said) && event.note.contains("WaitForFirstConsumer"), "{}", event.note);
    }
    attach("everywhere", "node-0").await.unwrap();
    assert_eq!(sent(&mut events), []);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_trouble_with_a_vm_is_shown_on_its_node_and_what_heals_by_itself_is_not_shown() {
    for (then, expected) in [
        (
            json!({"status": 403, "code": "AuthorizationFailed"}),
            Some((Reason::AuthorizationFailed, "lacks the action")),
        ),
        (json!({"status": 429, "retryAfter": 300}), Some((Reason::Throttled, "refused requests as too many"))),
        (json!({"status": 409, "code": "ScopeLocked"}), Some((Reason::ResourceLocked, "Azure answered ScopeLocked"))),
        (json!({"status": 409, "code": "Conflict"}), None),
        (json!({"status": 503}), None),
    ] {
        let (rig, client, mut events) = rig(typical()).await;
        let volume = create(&client, "pvc-a").await.unwrap();
        let attached = create(&client, "pvc-b").await.unwrap();
        publish(&client, &attached, "node-1").await.unwrap();
        for method in ["POST", "PUT"] {
            let of = json!({"method": method, "path": "*/virtualMachines/*"});
            rig.incident(json!({"match": of, "then": then, "times": 0}));
        }
        publish(&client, &volume, "node-0").await.unwrap_err();
        unpublish(&client, &attached.volume_id, "node-1").await.unwrap_err();
        let reported = sent(&mut events);
        match expected {
            None => assert_eq!(reported, [], "{then}"),
            Some((reason, said)) => {
                let [to, from] = &reported[..] else { panic!("{then}: {reported:?}") };
                assert_eq!((&to.regarding, to.reason), (&node("node-0"), reason));
                assert!(to.note.starts_with("Disks cannot be attached to node node-0: "), "{}", to.note);
                assert_eq!((&from.regarding, from.reason), (&node("node-1"), reason));
                assert!(from.note.starts_with("Disks cannot be detached from node node-1: "), "{}", from.note);
                assert!(to.note.contains(said), "{}", to.note);
            }
        }
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_claim_shows_that_its_disk_grows_only_while_it_is_detached() {
    let (rig, client, mut events) = rig(typical()).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    let then = json!({"status": 409, "code": "ChangeDiskSizeWhileAttachedNotAllowed"});
    rig.incident(json!({"match": {"method": "PATCH", "path": "*/disks/pvc-a"}, "then": then, "times": 0}));
    refused(expand(&client, &volume.volume_id, 2 * GIB, 0).await, Code::FailedPrecondition);
    let reported = sent(&mut events);
    let [event] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!((&event.regarding, event.reason), (&claim_of("pvc-a"), Reason::ExpansionNeedsDetach));
    assert!(event.note.starts_with("Disk pvc-a cannot be expanded: "), "{}", event.note);
    rig.stop().await;
}

/// Without etags nothing but a look at the VM afterwards shows that another writer has overtaken a write of the whole list,
/// such as one that sent a list which it had read before.
#[tokio::test(start_paused = true)]
async fn disk_a_node_shows_that_a_data_disk_is_gone_that_no_write_named() {
    let (sender, mut events) = lossy::channel(100, Counter::default());
    let mut rig = Rig::with(typical(), |options| {
        Method::AzureStack.set(options);
        options.events = sender;
    })
    .await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(3)).await;
    publish(&client, &volumes[0], "node-0").await.unwrap();
    rig.other_tool().make_disk("foreign").await;
    rig.at_rest().await;
    assert_eq!(rig.other_tool().attach("node-0", &[("foreign", 5)]).await, 202);
    rig.at_rest().await;
    // A write that nobody overtakes.
    publish(&client, &volumes[1], "node-0").await.unwrap();
    assert_eq!(sent(&mut events), []);
    let publishing = publishing(&client, &volumes[2], "node-0");
    pass(seconds(5)).await;
    assert_eq!(rig.control.running_operations(), 1, "the write is under way");
    rig.control
        .tamper(&vm_id("node-0"), |vm| {
            let disks = vm["properties"]["storageProfile"]["dataDisks"].as_array_mut().unwrap();
            disks.retain(|element| element["lun"] != 5);
        })
        .unwrap();
    publishing.await.unwrap().unwrap();
    let reported = sent(&mut events);
    let [event] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!((&event.regarding, event.reason), (&node("node-0"), Reason::DataDiskVanished));
    assert!(event.note.contains("The data disk at LUN 5 is gone from this node"), "{}", event.note);
    rig.stop().await;
}
