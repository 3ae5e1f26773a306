//! A VolumeAttributesClass changes a disk: what is sent, what is not, and what people are told of a conversion.

use std::{collections::BTreeMap, time::Duration};

use lazuli_emulator::scenario::{Disk, Scenario, VirtualMachine};
use lazuli_model::{
    SkuName,
    event::{Event, Reason, Regarding},
    fault::{Effect, Fault},
};
use lazuli_telemetry::lossy;
use lazuli_volume::{
    Cloud,
    modify::{Conversion, ModifyPlan},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::rig::{Rig, disk, disks, lagging};
use crate::{DeleteError, VolumeError, Volumes};

fn class(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

async fn modify(volumes: &Volumes, name: &str, pairs: &[(&str, &str)]) -> Result<ModifyPlan, VolumeError> {
    volumes.modify(&disk(name), class(pairs), Cloud::Public).await
}

/// Disks `a` and `b`, and a Premium SSD `zonal` in a zone.
async fn rig() -> Rig {
    let zonal = Disk { sku: "Premium_LRS".into(), zone: Some("1".into()), ..disks(["zonal".to_owned()]).remove(0) };
    let others = disks(["a".to_owned(), "b".to_owned()]);
    let scenario = Scenario {
        virtual_machines: vec![VirtualMachine::pattern("node-{}", 1)],
        disks: others.into_iter().chain([zonal]).collect(),
        ..Scenario::default()
    };
    Rig::start(lagging(1, scenario)).await
}

fn document(rig: &Rig, name: &str) -> Value {
    let mut found = Value::Null;
    rig.emulator.control().tamper(disk(name).as_str(), |disk| found = disk.clone()).unwrap();
    found
}

/// Azure has copied so many percent of a disk.
fn copies(rig: &Rig, name: &str, percent: f64) {
    let change = |disk: &mut Value| disk["properties"]["completionPercent"] = json!(percent);
    rig.emulator.control().tamper(disk(name).as_str(), change).unwrap();
}

/// The reasons of the events so far, which are all about the claim of `zonal`.
fn told(events: &mut lossy::Receiver<Event>) -> Vec<(Reason, String)> {
    std::iter::from_fn(|| events.try_receive())
        .map(|event| {
            assert_eq!(event.regarding, Regarding::ClaimOf(disk("zonal").into()));
            (event.reason, event.note)
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_class_is_one_write_and_none_where_the_disk_is_so() {
    let rig = rig().await;
    let volumes = rig.replica(1);
    rig.emulator.control().reset_log();
    let pairs = [("skuName", "Premium_LRS"), ("tags", "team=blue"), ("networkAccessPolicy", "DenyAll")];
    let plan = modify(&volumes, "a", &pairs).await.unwrap();
    assert_eq!((plan.change.sku, plan.conversion), (Some(SkuName::PremiumLrs), None));
    let log = rig.emulator.control().call_log();
    let calls: Vec<_> = log.iter().filter(|call| call.plane == "arm").map(|call| call.method.as_str()).collect();
    assert_eq!(calls, ["GET", "PATCH", "GET"], "one read, one write, one poll");
    let made = document(&rig, "a");
    assert_eq!((&made["sku"]["name"], &made["tags"]["team"]), (&json!("Premium_LRS"), &json!("blue")));
    assert_eq!(made["properties"]["networkAccessPolicy"], "DenyAll");
    for replica in [&volumes, &rig.replica(2)] {
        assert_eq!(modify(replica, "a", &pairs).await.unwrap(), ModifyPlan::default());
    }
    assert_eq!(rig.writes(), 1);
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_disk_cannot_have_is_refused_before_anything_is_sent() {
    let rig = rig().await;
    let volumes = rig.replica(1);
    rig.emulator.control().reset_log();
    for (pairs, said) in [
        (("DiskIOPSReadWrite", "4000"), "UltraSSD_LRS and PremiumV2_LRS"),
        (("skuName", "Premium"), "Premium_LRS"),
        (("maxShares", "3"), "the disk has 1"),
        (("colour", "red"), "there is no attribute of this name"),
    ] {
        let error = modify(&volumes, "a", &[pairs]).await.unwrap_err();
        assert_eq!((&error.fault, error.effect), (&Fault::Invalid, Effect::None));
        let message = error.to_string();
        let parameter = format!("cannot be changed: parameter {} is {:?}: ", pairs.0, pairs.1);
        assert!(message.contains(&parameter) && message.contains(said), "{message}");
    }
    assert_eq!(modify(&volumes, "missing", &[("tags", "a=b")]).await.unwrap_err().fault, Fault::NotFound);
    assert_eq!(rig.writes(), 0);
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_azure_does_not_change_now_is_its_refusal_and_no_guess() {
    let rig = rig().await;
    let volumes = rig.replica(1);
    volumes.publish(&disk("a"), "node-0", None).await.unwrap();
    rig.emulator.control().reset_log();
    let error = modify(&volumes, "a", &[("skuName", "Premium_LRS")]).await.unwrap_err();
    assert_eq!(
        (&error.fault, error.effect, error.azure_code()),
        (&Fault::Unclear, Effect::None, "OperationNotAllowed")
    );
    assert_eq!((rig.writes(), &document(&rig, "a")["sku"]["name"]), (1, &json!("StandardSSD_LRS")));
    // What Azure changes of an attached disk is changed.
    modify(&volumes, "a", &[("tags", "team=blue")]).await.unwrap();
    volumes.unpublish(&disk("a"), Some("node-0")).await.unwrap();
    modify(&volumes, "a", &[("skuName", "Premium_LRS")]).await.unwrap();
    let made = document(&rig, "a");
    assert_eq!((&made["sku"]["name"], &made["tags"]["team"]), (&json!("Premium_LRS"), &json!("blue")));
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_answer_is_lost_is_looked_at_and_not_sent_again() {
    for (lost, writes) in [("after", 1), ("before", 2)] {
        let rig = rig().await;
        let volumes = rig.replica(1);
        rig.incident(json!({
            "match": {"method": "PATCH", "path": "*/disks/*"}, "then": {"loseAnswer": lost}, "times": 1,
        }));
        rig.emulator.control().reset_log();
        let plan = modify(&volumes, "zonal", &[("skuName", "PremiumV2_LRS")]).await.unwrap();
        let conversion = Conversion { from: Some(SkuName::PremiumLrs), to: SkuName::PremiumV2Lrs };
        assert_eq!((plan.conversion, rig.writes()), (Some(conversion), writes), "{lost}");
        assert_eq!(document(&rig, "zonal")["sku"]["name"], "PremiumV2_LRS");
        rig.emulator.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_is_changed_or_attached_and_one_of_two_classes_waits() {
    let rig = rig().await;
    let volumes = rig.replica(1);
    rig.delay("PATCH", "*/disks/*", Duration::from_secs(2));
    let tags: &[(&str, &str)] = &[("tags", "team=blue")];
    let beside = async {
        sleep(Duration::from_secs(1)).await;
        let attached = volumes.publish(&disk("a"), "node-0", None).await.unwrap_err();
        assert_eq!(attached.fault, Fault::Busy);
        assert!(attached.to_string().ends_with("a change of its attributes is in progress"), "{attached}");
        assert_eq!(modify(&volumes, "a", &[("tags", "team=red")]).await.unwrap_err().fault, Fault::Busy);
        let deleted = volumes.delete(&disk("a")).await.unwrap_err();
        assert!(matches!(&deleted, DeleteError::Failed(error) if error.fault == Fault::Busy), "{deleted}");
        modify(&volumes, "a", tags).await.unwrap();
    };
    rig.emulator.control().reset_log();
    let (changed, ()) = futures::join!(modify(&volumes, "a", tags), beside);
    changed.unwrap();
    assert_eq!(rig.writes(), 1, "the same class is one change");
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_conversion_is_told_from_its_beginning_to_its_end_at_one_read_a_minute() {
    let rig = rig().await;
    let (sender, mut events) = lossy::channel(100, Default::default());
    let volumes = rig.replica_telling(1, sender);
    modify(&volumes, "zonal", &[("skuName", "PremiumV2_LRS")]).await.unwrap();
    copies(&rig, "zonal", 0.0);
    let told = &mut || told(&mut events);
    sleep(Duration::from_secs(1)).await;
    let [(Reason::SKUMigrationStarted, note)] = &told()[..] else { panic!("it has begun") };
    assert!(note.starts_with("Azure has begun to convert disk zonal from Premium_LRS to PremiumV2_LRS. "), "{note}");
    rig.emulator.control().reset_log();
    sleep(Duration::from_secs(601)).await;
    assert_eq!(told(), []);
    assert_eq!(rig.emulator.control().call_log().len(), 10);
    copies(&rig, "zonal", 47.0);
    sleep(Duration::from_secs(121)).await;
    let [(Reason::SKUMigrationProgress, note)] = &told()[..] else { panic!("it goes on") };
    assert!(note.starts_with("Disk zonal is converted to PremiumV2_LRS by 40 percent or more. "), "{note}");
    copies(&rig, "zonal", 100.0);
    sleep(Duration::from_secs(61)).await;
    assert_eq!(told().iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), [Reason::SKUMigrationCompleted]);
    rig.emulator.control().reset_log();
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!((told(), rig.emulator.control().call_log().len()), (vec![], 0));
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_later_process_goes_on_with_the_conversions_that_a_list_shows() {
    let rig = rig().await;
    modify(&rig.replica(1), "zonal", &[("skuName", "PremiumV2_LRS"), ("tags", "k8s-azure-created-by=x")])
        .await
        .unwrap();
    copies(&rig, "zonal", 63.0);
    // It is the copy of a snapshot. What is filled as PremiumV2 shows the same, and is no conversion.
    let created = |disk: &mut Value| {
        disk["tags"] = json!({"k8s-azure-created-by": "kubernetes-azure-dd", "lazuli-made-as": "Premium_LRS"});
        disk["properties"]["creationData"]["sourceResourceId"] = json!("a snapshot");
    };
    let filled = |disk: &mut Value| {
        disk["sku"]["name"] = json!("PremiumV2_LRS");
        disk["tags"] = json!({"k8s-azure-created-by": "kubernetes-azure-dd"});
        disk["properties"]["completionPercent"] = json!(63);
        disk["properties"]["creationData"]["sourceResourceId"] = json!("a snapshot");
    };
    rig.emulator.control().tamper(disk("zonal").as_str(), created).unwrap();
    rig.emulator.control().tamper(disk("b").as_str(), filled).unwrap();
    let (sender, mut events) = lossy::channel(100, Default::default());
    let volumes = rig.replica_telling(2, sender);
    sleep(Duration::from_secs(20)).await;
    for _ in 0..3 {
        volumes.list().await.unwrap();
        sleep(Duration::from_secs(61)).await;
    }
    copies(&rig, "zonal", 100.0);
    sleep(Duration::from_secs(61)).await;
    let reasons: Vec<_> = told(&mut events).into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(reasons, [Reason::SKUMigrationProgress, Reason::SKUMigrationCompleted]);
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_type_that_a_disk_can_never_have_is_refused_before_anything_is_written() {
    let rig = rig().await;
    let volumes = rig.replica(1);
    modify(&volumes, "zonal", &[("skuName", "PremiumV2_LRS")]).await.unwrap();
    rig.emulator.control().reset_log();
    for (name, sku, says) in [
        ("zonal", "Premium_LRS", "the disk is PremiumV2_LRS"),
        ("zonal", "UltraSSD_LRS", "changes to no other type"),
        ("a", "UltraSSD_LRS", "allowed are Standard_LRS"),
    ] {
        let error = modify(&volumes, name, &[("skuName", sku)]).await.unwrap_err();
        assert_eq!((&error.fault, error.effect), (&Fault::Invalid, Effect::None), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(rig.writes(), 0);
}
