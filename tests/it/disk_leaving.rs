//! A disk that Azure was told to detach and failed to: Azure does not try again by itself. Wanted on the same node it is
//! detached first, unless a VolumeAttachment says that the node may be using it.

use std::collections::BTreeMap;

use lazuli_model::Lun;
use lazuli_storage::lun::{LunReservations, Reservation};
use serde_json::json;
use tokio::sync::watch;
use tonic::Code;

use super::disk_rig::{Client, Method, Rig, create, pass, publish, refused, seconds, typical, unpublish, vm_id};

const NODE: &str = "node-0";
const NAME: &str = "pvc-a";

/// A provider on an Azure where another tool's detach of the published disk has failed, and the volume's id.
async fn after_a_failed_detach(method: Method, attached: bool) -> (Rig, Client, String) {
    let (sender, reservations) = watch::channel(LunReservations::Synced(BTreeMap::new()));
    let mut rig = Rig::with(typical(), |options| {
        method.set(options);
        options.reservations = Some(reservations);
    })
    .await;
    let client = rig.controller().await;
    let volume = create(&client, NAME).await.unwrap();
    assert_eq!(publish(&client, &volume, NODE).await.unwrap(), 0);
    if attached {
        let reservation = Reservation {
            lun: Lun::try_from(0).unwrap(),
            volume_handle: Some(volume.volume_id.clone()),
            attachment: "csi-a".into(),
        };
        sender.send_replace(LunReservations::Synced([(NODE.into(), vec![reservation])].into()));
    }
    rig.incident(json!({
        "match": {"method": "POST", "path": "*/virtualMachines/*"},
        "then": {"lateFailure": {"code": "InternalExecutionError"}},
    }));
    assert_eq!(rig.other_tool().detach(NODE, &[NAME]).await, 202);
    pass(seconds(20)).await;
    let (_, vm) = rig.other_tool().call("GET", &vm_id(NODE), None).await;
    assert_eq!(vm["properties"]["provisioningState"], "Failed");
    assert_eq!(vm["properties"]["storageProfile"]["dataDisks"][0]["toBeDetached"], true);
    rig.control.reset_log();
    (rig, client, volume.volume_id)
}

#[tokio::test(start_paused = true)]
async fn disk_one_whose_detach_failed_is_detached_and_attached_anew_by_the_next_publish() {
    for method in [Method::Action, Method::WholeList] {
        let (rig, client, volume) = after_a_failed_detach(method, false).await;
        let volume = csi_proto::csi::Volume { volume_id: volume, ..Default::default() };
        assert_eq!(publish(&client, &volume, NODE).await.unwrap(), 0);
        assert_eq!(rig.luns(NODE), [(0, NAME.to_owned())].into());
        assert_eq!(rig.vm_writes(NODE).len(), 2, "one to detach, one to attach");
        unpublish(&client, &volume.volume_id, NODE).await.unwrap();
        assert!(rig.luns(NODE).is_empty());
        rig.check();
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_one_whose_detach_failed_is_not_touched_while_an_attachment_says_that_its_node_may_use_it() {
    let (rig, client, volume) = after_a_failed_detach(Method::Action, true).await;
    let volume = csi_proto::csi::Volume { volume_id: volume, ..Default::default() };
    let message = refused(publish(&client, &volume, NODE).await, Code::Aborted);
    for part in [NAME, NODE, "failed", "VolumeAttachment"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(rig.luns(NODE), [(0, NAME.to_owned())].into());
    assert!(rig.writes().is_empty());
    unpublish(&client, &volume.volume_id, NODE).await.unwrap();
    assert!(rig.luns(NODE).is_empty());
    rig.check();
    rig.stop().await;
}

/// What was written is tried as often as any write, then Azure's own words are told.
#[tokio::test(start_paused = true)]
async fn disk_a_detach_that_fails_again_and_again_is_told_in_azures_words() {
    let (rig, client, volume) = after_a_failed_detach(Method::Action, false).await;
    let volume = csi_proto::csi::Volume { volume_id: volume, ..Default::default() };
    rig.incident(json!({
        "match": {"method": "POST", "path": "*/virtualMachines/*"},
        "then": {"lateFailure": {"code": "InternalExecutionError", "message": "the host does not answer"}},
        "times": 50,
    }));
    let error = publish(&client, &volume, NODE).await.unwrap_err();
    assert!(error.message().contains("the host does not answer"), "{error:?}");
    assert!(rig.vm_writes(NODE).len() <= 5, "{} writes", rig.vm_writes(NODE).len());
    assert_eq!(rig.luns(NODE), [(0, NAME.to_owned())].into());
    rig.stop().await;
}
