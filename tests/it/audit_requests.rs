//! What the Go driver is known to get wrong between a request and Azure, as sentences: user errors told as internal
//! ones, handles of blob disks, sizes left out, one volume's settings becoming everybody's.

use std::{collections::HashMap, time::Duration};

use csi_proto::csi::{
    CapacityRange, CreateVolumeRequest, VolumeCapability,
    volume_capability::{AccessMode, AccessType, BlockVolume, access_mode::Mode},
};
use lazuli_emulator::scenario::{Disk, VirtualMachine};
use serde_json::json;
use tokio::time::Instant;
use tonic::Code;

use super::disk_rig::{
    GIB, Rig, create, create_request, create_with, delete, disk_id, expand, list, millis, numbered, pass, publish,
    publish_all, publish_as, refused, seconds, typical, unpublish, unpublish_all, vm_id,
};

/// The Go driver tells most of these as `INTERNAL`, which external-provisioner repeats forever.
#[tokio::test(start_paused = true)]
async fn audit_a_users_mistake_is_invalid_and_costs_azure_nothing() {
    let (rig, client) = Rig::typical().await;
    rig.control.reset_log();
    let other = "00000000-0000-0000-0000-00000000beef";
    for (parameters, named) in [
        (&[("skuName", "premium_lrs")][..], "skuName"),
        (&[("skuName", "Premium_LRS"), ("storageAccountType", "Standard_LRS")], "storageAccountType"),
        (&[("diskName", "a/b")], "diskName"),
        (&[("diskEncryptionSetID", "keys")], "diskEncryptionSetID"),
        (&[("diskEncryptionType", "EncryptionAtRestWithCustomerKey")], "diskEncryptionType"),
        (&[("DiskIOPSReadWrite", "500")], "DiskIOPSReadWrite"),
        (&[("DiskMBpsReadWrite", "many"), ("skuName", "PremiumV2_LRS")], "DiskMBpsReadWrite"),
        (&[("LogicalSectorSize", "4096")], "LogicalSectorSize"),
        (&[("LogicalSectorSize", "1000"), ("skuName", "UltraSSD_LRS")], "LogicalSectorSize"),
        (&[("subscriptionID", other)], "resourceGroup"),
        (&[("networkAccessPolicy", "AllowPrivate")], "diskAccessID"),
        (
            &[("diskAccessID", "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskAccesses/d")],
            "diskAccessID",
        ),
        (&[("cachingMode", "ReadWrite"), ("skuName", "PremiumV2_LRS")], "cachingMode"),
        (&[("maxShares", "0")], "maxShares"),
        (&[("perfProfile", "advanced")], "perfProfile"),
        (&[("device-setting/../../x", "1"), ("perfProfile", "advanced")], "device-setting"),
        (&[("device-setting/device/delete", "1"), ("perfProfile", "advanced")], "device-setting"),
        (&[("fsType", "ntfs")], "fsType"),
        (&[("attachDiskInitialDelay", "soon")], "attachDiskInitialDelay"),
        (&[("tags", "a")], "tags"),
        (&[("skuname", "Premium_LRS"), ("SKUNAME", "Standard_LRS")], "sku"),
        (&[("sku-name", "Premium_LRS")], "sku-name"),
    ] {
        let message = refused(create_with(&client, "pvc-a", parameters).await, Code::InvalidArgument);
        assert!(message.to_lowercase().contains(&named.to_lowercase()), "{parameters:?}: {message}");
    }
    assert_eq!(rig.calls().len(), 0, "Azure was asked");
    rig.stop().await;
}

/// The Go driver makes a new random name on every try.
#[tokio::test(start_paused = true)]
async fn audit_a_request_name_that_azure_refuses_is_one_disk_however_often_it_is_tried() {
    let (rig, client) = Rig::typical().await;
    let name = "pvc 1/ä";
    let first = create(&client, name).await.unwrap();
    let again = create(&client, name).await.unwrap();
    assert_eq!(first.volume_id, again.volume_id);
    assert_eq!(rig.disks().len(), 1);
    rig.stop().await;
}

/// Deleting one "successfully" is how the Go driver leaks it.
#[tokio::test(start_paused = true)]
async fn audit_a_blob_disk_is_never_deleted_or_attached_with_success() {
    let (rig, client) = Rig::typical().await;
    for (uri, code) in [
        // That no list shows the account proves nothing.
        ("https://account.blob.core.windows.net/vhds/pvc-a.vhd", Code::FailedPrecondition),
        ("http://account.blob.local/vhds/pvc-a.vhd", Code::InvalidArgument),
    ] {
        let message = refused(delete(&client, uri).await, code);
        assert!(message.contains("account"), "{message}");
        publish_as(&client, uri, &HashMap::new(), "node-0").await.unwrap_err();
    }
    assert!(rig.writes().is_empty());
    rig.stop().await;
}

/// A response without a size makes a PersistentVolume without one.
#[tokio::test(start_paused = true)]
async fn audit_the_size_in_an_answer_is_that_of_the_disk_whether_made_found_or_grown() {
    let (rig, client) = Rig::typical().await;
    let request = |required_bytes, limit_bytes| CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes }),
        ..create_request("pvc-a", &[])
    };
    let size = async |request| client.clone().create_volume(request).await.map(|a| a.into_inner().volume.unwrap());
    for _ in 0..2 {
        assert_eq!(size(request(GIB + 1, 0)).await.unwrap().capacity_bytes, 2 * GIB);
    }
    assert_eq!(size(request(GIB, 2 * GIB)).await.unwrap().capacity_bytes, 2 * GIB);
    assert_eq!(size(request(3 * GIB, 0)).await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(size(request(GIB, GIB)).await.unwrap_err().code(), Code::AlreadyExists);
    let id = disk_id("pvc-a");
    assert_eq!(expand(&client, &id, 2 * GIB + 1, 0).await.unwrap(), 3 * GIB);
    assert_eq!(expand(&client, &id, GIB, 0).await.unwrap(), 3 * GIB);
    // Nothing asked for at all is the default, and told.
    let bare = CreateVolumeRequest { capacity_range: None, ..create_request("pvc-b", &[]) };
    let made = size(bare).await.unwrap();
    let on_azure = rig.disk("pvc-b").unwrap()["properties"]["diskSizeGB"].as_i64().unwrap();
    assert_eq!(made.capacity_bytes, on_azure * GIB);
    rig.stop().await;
}

/// In the Go driver one volume's delay becomes that of the whole process.
#[tokio::test(start_paused = true)]
async fn audit_the_attach_delay_of_one_volume_delays_neither_it_nor_another() {
    let (rig, client) = Rig::typical().await;
    let slow = create_with(&client, "pvc-a", &[("attachDiskInitialDelay", "600000")]).await.unwrap();
    assert_eq!(slow.volume_context["attachDiskInitialDelay"], "600000");
    let plain = create(&client, "pvc-b").await.unwrap();
    for (volume, node) in [(&slow, "node-0"), (&plain, "node-1")] {
        let began = Instant::now();
        publish(&client, volume, node).await.unwrap();
        assert!(began.elapsed() <= seconds(10) + millis(100), "{node}: {:?}", began.elapsed());
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn audit_caching_and_write_accelerator_of_a_class_reach_the_vm_also_by_a_static_handle() {
    // Only these sizes take the accelerator.
    let mut azure = typical();
    azure.scenario.virtual_machines =
        vec![VirtualMachine { size: "Standard_M64s".into(), ..VirtualMachine::pattern("node-{}", 1) }];
    let mut rig = Rig::on(azure).await;
    let client = rig.controller().await;
    let premium = ("skuName", "Premium_LRS");
    for (name, parameters) in [
        ("pvc-00", &[premium, ("cachingMode", "ReadOnly"), ("writeAcceleratorEnabled", "true")][..]),
        ("pvc-01", &[premium, ("cachingMode", "None")]),
        ("pvc-02", &[premium]),
    ] {
        let volume = create_with(&client, name, parameters).await.unwrap();
        publish(&client, &volume, "node-0").await.unwrap();
    }
    let element = |name: &str| {
        let dump = rig.control.dump();
        let disks =
            dump.resources[&vm_id("node-0").to_lowercase()]["properties"]["storageProfile"]["dataDisks"].clone();
        let disks = disks.as_array().cloned().unwrap();
        let found = disks.iter().find(|e| e["managedDisk"]["id"].as_str().unwrap().ends_with(name)).unwrap();
        (found["caching"].as_str().unwrap().to_owned(), found["writeAcceleratorEnabled"] == json!(true))
    };
    assert_eq!(element("pvc-00"), ("ReadOnly".into(), true));
    assert_eq!(element("pvc-01"), ("None".into(), false));
    assert_eq!(element("pvc-02"), ("ReadOnly".into(), false));
    // A volume that names nothing but the handle: the disk itself remembers the accelerator.
    unpublish(&client, &disk_id("pvc-00"), "node-0").await.unwrap();
    publish_as(&client, &disk_id("pvc-00"), &HashMap::new(), "node-0").await.unwrap();
    assert!(element("pvc-00").1);
    rig.check();
    rig.stop().await;
}

/// The Go driver forces a detach after any error, a throttled one included: what was dirty is lost.
#[tokio::test(start_paused = true)]
async fn audit_a_detach_is_never_forced_whatever_went_wrong() {
    for then in [
        json!({"status": 429, "retryAfter": 1}),
        json!({"status": 500}),
        json!({"status": 409, "code": "Conflict"}),
        json!({"status": 409, "code": "AttachDiskWhileBeingDetached"}),
        json!({"lateFailure": {"code": "InternalExecutionError", "message": "x"}}),
        json!({"loseAnswer": "after"}),
    ] {
        let (rig, client) = Rig::typical().await;
        let volume = create(&client, "pvc-a").await.unwrap();
        publish(&client, &volume, "node-0").await.unwrap();
        rig.control.reset_log();
        rig.incident(json!({"match": {"method": "POST", "path": "*/attachDetachDataDisks"}, "then": then, "times": 2}));
        for _ in 0..6 {
            let answer = unpublish(&client, &volume.volume_id, "node-0").await;
            rig.at_rest().await;
            assert!(answer.is_err() || rig.luns("node-0").is_empty(), "{then}: OK was said");
            pass(seconds(60)).await;
        }
        assert!(rig.luns("node-0").is_empty(), "{then}");
        let said: String = rig.writes().iter().filter_map(|call| call.body.as_ref()).map(ToString::to_string).collect();
        assert!(!said.is_empty() && !said.to_lowercase().contains("force"), "{then}: {said}");
        rig.check();
        rig.stop().await;
    }
}

/// The Go driver looks for "not found" in the text of an error and calls that success.
#[tokio::test(start_paused = true)]
async fn audit_words_in_an_error_decide_nothing() {
    let words = "ResourceNotFound: the VM was not found, statuscode=404, not an active Virtual Machine Scale Set VM";
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "node-0").await.unwrap();
    for (method, path) in [("POST", "*/attachDetachDataDisks"), ("GET", "*/virtualMachines/node-0")] {
        rig.incident(json!({
            "match": {"method": method, "path": path},
            "then": {"status": 400, "code": "BadRequest", "message": words}, "times": 0,
        }));
        unpublish(&client, &volume.volume_id, "node-0").await.unwrap_err();
        assert_eq!(rig.luns("node-0").len(), 1);
        rig.control.clear_incidents();
    }
    unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
    rig.incident(json!({
        "match": {"method": "DELETE"}, "then": {"status": 400, "code": "BadRequest", "message": words}, "times": 0,
    }));
    delete(&client, &volume.volume_id).await.unwrap_err();
    assert!(rig.disk("pvc-a").is_some());
    rig.stop().await;
}

/// The Go driver's cache of ten minutes answers for it.
#[tokio::test(start_paused = true)]
async fn audit_what_was_detached_behind_our_back_is_attached_again_and_not_remembered() {
    let (rig, client) = Rig::typical().await;
    let volumes = super::disk_rig::create_all(&client, &numbered(2)).await;
    for answer in publish_all(&client, &volumes, "node-0").await {
        answer.unwrap();
    }
    assert_eq!(rig.other_tool().detach("node-0", &["pvc-00"]).await, 202);
    pass(seconds(20)).await;
    assert_eq!(publish(&client, &volumes[0], "node-0").await.unwrap(), 0);
    assert_eq!(rig.luns("node-0").len(), 2);
    rig.check();
    rig.stop().await;
}

/// The Go driver asks again with the disk as it was read before, and is refused a second time.
#[tokio::test(start_paused = true)]
async fn audit_a_disk_that_was_freed_meanwhile_is_attached_by_the_next_try() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    rig.other_tool().attach("node-1", &[("pvc-a", 5)]).await;
    pass(seconds(11)).await;
    let message = refused(publish(&client, &volume, "node-0").await, Code::FailedPrecondition);
    assert!(message.contains("node-1"), "{message}");
    assert_eq!(rig.luns("node-1").len(), 1, "it was taken away from its machine");
    rig.other_tool().detach("node-1", &["pvc-a"]).await;
    pass(seconds(20)).await;
    assert_eq!(publish(&client, &volume, "node-0").await.unwrap(), 0);
    rig.check();
    rig.stop().await;
}

/// A disk on its way off the machine is no internal error: come again.
#[tokio::test(start_paused = true)]
async fn audit_a_disk_that_is_leaving_is_aborted_and_attached_when_it_has_left() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "node-0").await.unwrap();
    rig.other_tool().detach("node-0", &["pvc-a"]).await;
    pass(seconds(1)).await;
    let mut tries = 0;
    let lun = loop {
        match publish(&client, &volume, "node-0").await {
            Ok(lun) => break lun,
            Err(status) => assert!(matches!(status.code(), Code::Aborted | Code::Unavailable), "{status:?}"),
        }
        tries += 1;
        assert!(tries < 30);
        pass(seconds(2)).await;
    };
    rig.at_rest().await;
    assert_eq!(rig.luns("node-0").into_iter().collect::<Vec<_>>(), [(lun, "pvc-a".to_owned())]);
    rig.check();
    rig.stop().await;
}

/// kubernetes#94764: a VM whose last operation failed takes and gives disks like any other.
#[tokio::test(start_paused = true)]
async fn audit_a_failed_vm_still_takes_and_gives_disks() {
    let (rig, client) = Rig::typical().await;
    let volumes = super::disk_rig::create_all(&client, &numbered(2)).await;
    publish(&client, &volumes[0], "node-0").await.unwrap();
    let fail = || {
        let failed = |doc: &mut serde_json::Value| doc["properties"]["provisioningState"] = "Failed".into();
        rig.control.tamper(&vm_id("node-0"), failed).unwrap();
    };
    fail();
    assert_eq!(publish(&client, &volumes[0], "node-0").await.unwrap(), 0);
    assert_eq!(publish(&client, &volumes[1], "node-0").await.unwrap(), 1);
    fail();
    for answer in unpublish_all(&client, &volumes, "node-0").await {
        answer.unwrap();
    }
    assert!(rig.luns("node-0").is_empty());
    rig.check();
    rig.stop().await;
}

fn raw(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Block(BlockVolume {})),
    }
}

/// The Go driver's list knows `managedBy` only, and fails as a whole when one machine is unknown to it.
#[tokio::test(start_paused = true)]
async fn audit_a_list_names_every_node_of_a_shared_disk_and_survives_a_machine_that_nobody_knows() {
    let (rig, client) = Rig::typical().await;
    let mut request = create_request("pvc-shared", &[("skuName", "Premium_LRS"), ("maxShares", "2")]);
    request.capacity_range = Some(CapacityRange { required_bytes: 256 * GIB, limit_bytes: 0 });
    request.volume_capabilities = vec![raw(Mode::MultiNodeMultiWriter)];
    let shared = client.clone().create_volume(request).await.unwrap().into_inner().volume.unwrap();
    for node in ["node-0", "node-1"] {
        let request = csi_proto::csi::ControllerPublishVolumeRequest {
            volume_id: shared.volume_id.clone(),
            node_id: node.into(),
            volume_capability: Some(raw(Mode::MultiNodeMultiWriter)),
            volume_context: shared.volume_context.clone(),
            ..Default::default()
        };
        client.clone().controller_publish_volume(request).await.unwrap();
    }
    let lone = create(&client, "pvc-lone").await.unwrap();
    publish(&client, &lone, "node-1").await.unwrap();
    // A disk says that a machine holds it which exists nowhere any more.
    let gone = vm_id("scaled-away");
    rig.control.tamper(&disk_id("pvc-lone"), |doc| doc["managedBy"] = gone.clone().into()).unwrap();
    let listed = list(&client).await.unwrap();
    assert_eq!(listed[&shared.volume_id], ["node-0", "node-1"]);
    assert_eq!(listed[&lone.volume_id], ["scaled-away"]);
    rig.stop().await;
}

/// external-attacher repeats every attachment that a list spells otherwise: thousands of writes for nothing.
#[tokio::test(start_paused = true)]
async fn audit_a_list_of_many_volumes_in_nasty_casing_is_spelt_as_kubernetes_spells_them() {
    use lazuli_model::Lun;
    use lazuli_storage::lun::{LunReservations, Reservation};
    const MANY: usize = 300;
    let names: Vec<String> = (0..MANY).map(|n| format!("pvc-{n:03}")).collect();
    let mut azure = lazuli_emulator::Options { nasty_casing: true, ..typical() };
    let disk = |name: &String| Disk {
        name: name.clone(),
        size_gib: 4,
        sku: "StandardSSD_LRS".into(),
        zone: None,
        resource_group: None,
        attach_to: None,
        tags: Default::default(),
    };
    azure.scenario.disks = names.iter().map(disk).collect();
    let handles: Vec<String> =
        names.iter().map(|name| disk_id(name).replace("resourceGroups", "resourcegroups")).collect();
    let reserved = handles.iter().enumerate().map(|(n, handle)| Reservation {
        lun: Lun::try_from(i64::try_from(n % 64).unwrap()).unwrap(),
        volume_handle: Some(handle.clone()),
        attachment: format!("csi-{n}"),
    });
    let state = LunReservations::Synced([("node-0".to_owned(), reserved.collect())].into());
    let (_sender, receiver) = tokio::sync::watch::channel(state);
    let mut rig = Rig::with(azure, |options| options.reservations = Some(receiver)).await;
    let client = rig.controller().await;
    let listed = list(&client).await.unwrap();
    assert_eq!(listed.into_keys().collect::<Vec<_>>(), handles);
    rig.stop().await;
}

/// A disk that some machine holds, in use or not: the claim stays, and the reader learns who holds it.
#[tokio::test(start_paused = true)]
async fn audit_an_attached_disk_is_not_deleted_and_its_node_is_named() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "node-1").await.unwrap();
    let message = refused(delete(&client, &volume.volume_id).await, Code::FailedPrecondition);
    assert!(message.contains("node-1"), "{message}");
    rig.at_rest().await;
    assert_eq!(rig.luns("node-1").len(), 1);
    rig.check();
    rig.stop().await;
}

/// Azure cannot say how much room there is, and claiming GET_CAPACITY blocks scheduling.
#[tokio::test(start_paused = true)]
async fn audit_what_azure_cannot_answer_is_not_claimed() {
    use csi_proto::csi::{
        ControllerGetCapabilitiesRequest, GetCapacityRequest,
        controller_service_capability::{Type, rpc::Type as Rpc},
    };
    let (rig, client) = Rig::typical().await;
    let answer = client.clone().controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await.unwrap();
    let claimed: Vec<Rpc> = answer
        .into_inner()
        .capabilities
        .into_iter()
        .map(|capability| match capability.r#type.unwrap() {
            Type::Rpc(rpc) => rpc.r#type(),
        })
        .collect();
    assert!(!claimed.contains(&Rpc::GetCapacity), "{claimed:?}");
    assert!(claimed.contains(&Rpc::ListVolumesPublishedNodes), "{claimed:?}");
    let refusal = client.clone().get_capacity(GetCapacityRequest::default()).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Unimplemented);
    rig.stop().await;
}

/// A write of a VM under no condition is decided on what was just read; a token that takes long to renew makes that old.
#[tokio::test(start_paused = true)]
async fn audit_a_write_whose_token_had_to_be_renewed_is_decided_anew() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    let other = rig.other_tool();
    other.make_disk("theirs").await;
    rig.at_rest().await;
    rig.incident(json!({"match": {"path": "*/attachDetachDataDisks"}, "then": {"status": 401}}));
    rig.incident(json!({"match": {"path": "*/oauth2/*"}, "then": {"delayMs": 30_000}}));
    let overtaken = async {
        while rig.vm_writes("node-0").is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(other.attach("node-0", &[("theirs", 0)]).await, 202);
    };
    let (lun, ()) = tokio::join!(publish(&client, &volume, "node-0"), overtaken);
    assert_eq!(lun.unwrap(), 1);
    let statuses: Vec<u16> = rig.vm_writes("node-0").iter().map(|call| call.status).collect();
    assert_eq!(statuses, [401, 202, 202]);
    rig.check();
    rig.stop().await;
}
