//! Reading Azure's JSON, editing it, and the requests that come of it.

use std::{collections::BTreeSet, time::Duration};

use lazuli_model::{
    CachingMode, Completion, DataDiskSource, DiskState, Lun, PowerState, ProvisioningState, SkuName, apply,
    disk_details::DiskDetails,
    disk_spec::{EncryptionType, NetworkAccessPolicy, PerformanceTier, PublicNetworkAccess},
    op::Attachment,
};
use proptest::prelude::*;

use super::*;
use crate::testing::{Fake, Reply, a_minute};

const VM: &str = "/subscriptions/s/resourceGroups/G/providers/Microsoft.Compute/virtualMachines/v";
const DOOR: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskAccesses/door";
const INSTANCE: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/a/virtualMachines/3";

fn disk_id(n: u8) -> ArmId {
    ArmId::disk("s", "g", &format!("d{n}")).unwrap()
}

fn raw_disk() -> Value {
    json!({
        "name": "d1", "id": "/subscriptions/s/resourceGroups/G/providers/Microsoft.Compute/disks/d1",
        "type": "Microsoft.Compute/disks", "location": "eastus2", "zones": ["1"], "tags": {"a": "b"},
        "sku": {"name": "premium_lrs", "tier": "Premium"}, "managedBy": VM, "futureField": {"x": 1},
        "properties": {
            "creationData": {"createOption": "Empty", "logicalSectorSize": 512}, "diskSizeGB": 200,
            "diskIOPSReadWrite": 500, "diskMBpsReadWrite": 60.0, "maxShares": 2,
            "encryption": {"type": "EncryptionAtRestWithPlatformKey"}, "networkAccessPolicy": "AllowAll",
            "provisioningState": "Succeeded", "diskState": "attached", "diskSizeBytes": 214_748_364_800_u64
        }
    })
}

fn raw_vm(elements: Value) -> Value {
    json!({
        "name": "v", "id": VM, "location": "eastus2", "zones": ["2"], "etag": "\"7\"", "futureField": true,
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_D4s_v3"}, "provisioningState": "Succeeded",
            "osProfile": {"computerName": "node-1"}, "storageProfile": {"osDisk": {"name": "os"}, "dataDisks": elements}
        }
    })
}

fn element(n: u8, lun: u8) -> Value {
    json!({
        "name": format!("d{n}"), "lun": lun, "caching": "ReadOnly", "createOption": "Attach",
        "managedDisk": {"id": disk_id(n).as_str().to_uppercase(), "storageAccountType": "Premium_LRS"},
        "deleteOption": "Detach", "diskIOPSReadWrite": 5000, "futureField": {"keep": [n]}
    })
}

fn attachment(n: u8, lun: u8) -> Attachment {
    Attachment {
        disk: disk_id(n).into(),
        lun: Lun::try_from(i64::from(lun)).unwrap(),
        caching: CachingMode::ReadWrite,
        disk_encryption_set: None,
        write_accelerator: false,
    }
}

#[test]
fn a_disk_is_read_whatever_the_case_of_azures_words() {
    let disk = decode_disk(&raw_disk()).unwrap();
    assert_eq!(disk.sku, Some(SkuName::PremiumLrs));
    assert_eq!(disk.state, Some(DiskState::Attached));
    assert_eq!((disk.size, disk.iops, disk.mbps), (Gib::new(200), Some(500), Some(60)));
    assert_eq!((disk.max_shares, disk.logical_sector_size), (2, Some(512)));
    assert_eq!(disk.managed_by, Some(VM.to_lowercase().parse().unwrap()));
    assert_eq!(disk.provisioning_state, ProvisioningState::Succeeded);
    assert_eq!(disk.tags["a"], "b");
    assert_eq!(
        (disk.bytes, disk.unique_id, disk.source_unique_id, disk.completion),
        (Some(200 << 30), None, None, None)
    );
}

#[test]
fn what_a_change_compares_with_is_read_and_absent_where_azure_does_not_say_it() {
    let details = decode_disk_details(&raw_disk()).unwrap();
    let encryption_type = Some(EncryptionType::PlatformKey);
    assert_eq!(details, DiskDetails { encryption_type, ..DiskDetails::default() });
    let mut raw = raw_disk();
    raw["properties"]["tier"] = json!("p40");
    raw["properties"]["burstingEnabled"] = json!(true);
    raw["properties"]["creationData"]["performancePlus"] = json!(true);
    raw["properties"]["publicNetworkAccess"] = json!("Disabled");
    raw["properties"]["diskAccessId"] = json!(DOOR);
    let expected = DiskDetails {
        tier: Some(PerformanceTier::P40),
        bursting_enabled: true,
        performance_plus: true,
        public_network_access: Some(PublicNetworkAccess::Disabled),
        disk_access: Some(DOOR.parse().unwrap()),
        encryption_type,
    };
    assert_eq!(decode_disk_details(&raw).unwrap(), expected);
    raw["properties"]["tier"] = json!("P900");
    assert_eq!(decode_disk_details(&raw).unwrap().tier, None, "it is newer than this program");
    raw["properties"]["burstingEnabled"] = json!("yes");
    assert_eq!(decode_disk_details(&raw).unwrap_err().field, "properties.burstingEnabled");
}

#[test]
fn a_change_says_nothing_of_what_stays_as_it_is() {
    assert_eq!(encode_disk_change(&DiskChange::default()), json!({}));
    let sku = DiskChange { sku: Some(SkuName::PremiumV2Lrs), iops: Some(4_000), ..DiskChange::default() };
    let body = json!({"sku": {"name": "PremiumV2_LRS"}, "properties": {"diskIOPSReadWrite": 4000}});
    assert_eq!(encode_disk_change(&sku), body);
    let policy = DiskChange { network_access_policy: Some(NetworkAccessPolicy::DenyAll), ..DiskChange::default() };
    let body = json!({"properties": {"networkAccessPolicy": "DenyAll", "diskAccessId": null}});
    assert_eq!(encode_disk_change(&policy), body, "the disk access of the policy before goes with it");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_disk_is_one_patch_that_is_never_sent_twice() {
    let fake = Fake::new([Reply::Lost]);
    let compute = Compute::new(fake.arm(fake.in_process()), ApiVersions::public());
    let change = DiskChange { mbps: Some(200), ..DiskChange::default() };
    let error = compute.change_disk(&disk_id(1), &change, None, &a_minute()).await.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::OutcomeUnknown, Effect::Possible));
    let calls = fake.calls();
    assert_eq!((calls.len(), calls[0].body.as_str()), (1, r#"{"properties":{"diskMBpsReadWrite":200}}"#));
    assert!(calls[0].line.starts_with("PATCH "), "{}", calls[0].line);
}

#[test]
fn which_disk_a_copy_is_and_how_far_its_content_is_there_are_told() {
    let mut raw = raw_disk();
    raw["properties"]["uniqueId"] = json!("u-2");
    raw["properties"]["completionPercent"] = json!(99.99);
    raw["properties"]["creationData"] =
        json!({"createOption": "Copy", "sourceResourceId": VM, "sourceUniqueId": "u-1"});
    let disk = decode_disk(&raw).unwrap();
    assert_eq!((disk.unique_id.as_deref(), disk.source_unique_id.as_deref()), (Some("u-2"), Some("u-1")));
    assert!(disk.is_hydrating() && disk.completion.is_some_and(|completion| completion.percent() == 99));
    raw["properties"]["completionPercent"] = json!(100);
    assert!(!decode_disk(&raw).unwrap().is_hydrating());
}

#[test]
fn what_a_disk_was_made_from_is_told_in_azures_words_and_never_makes_it_unreadable() {
    let source = |data: Value| {
        let mut raw = raw_disk();
        raw["properties"]["creationData"] = data;
        decode_disk(&raw).unwrap().source
    };
    // What nearly every system disk of a VM says.
    let image = "/Subscriptions/s/Providers/Microsoft.Compute/Locations/eastus2/Publishers/Canonical/ArtifactTypes/\
                 VMImage/Offers/ubuntu-24_04-lts/Skus/server/Versions/24.04.202601010";
    let from_image = json!({"createOption": "FromImage", "imageReference": {"id": image}});
    assert_eq!(source(from_image).as_deref(), Some(image));
    // Azure keeps what the request said, and takes it without the first slash.
    let snapshot = "subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/snapshots/one";
    let copy = json!({"createOption": "Copy", "sourceResourceId": snapshot});
    assert_eq!(source(copy).as_deref(), Some(snapshot));
    let gallery = json!({"createOption": "FromImage", "galleryImageReference": {"communityGalleryImageId": "/c/g"}});
    assert_eq!(source(gallery).as_deref(), Some("/c/g"));
    let blob = json!({"createOption": "Import", "sourceUri": "https://a.blob.core.windows.net/v/d.vhd?sig=secret"});
    assert_eq!(source(blob).as_deref(), Some("https://a.blob.core.windows.net/v/d.vhd"));
    assert_eq!(source(json!({"createOption": "Upload", "sourceResourceId": 7})).as_deref(), Some("Upload"));
    for empty in
        [json!({"createOption": "empty"}), json!({"createOption": "Attach", "sourceResourceId": ""}), json!(null)]
    {
        assert_eq!(source(empty), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_a_list_that_cannot_be_read_is_told_apart_and_spoils_no_other() {
    let mut strange = raw_disk();
    strange["id"] = json!("not an id");
    let mut nameless = raw_disk();
    nameless.as_object_mut().unwrap().remove("id");
    let fake = Fake::new([Reply::json(200, json!({"value": [strange, raw_disk(), nameless]}))]);
    let compute = Compute::new(fake.arm(fake.in_process()), ApiVersions::public());
    let mut list = Vec::new();
    compute.list_disks_with("s", "g", &a_minute(), |disk| list.push(disk)).await.unwrap();
    let (disks, unreadable): (Vec<_>, Vec<_>) = list.into_iter().partition(Result::is_ok);
    assert_eq!(disks[0].as_ref().unwrap().id.name(), "d1");
    let unreadable: Vec<UnreadableDisk> = unreadable.into_iter().map(Result::unwrap_err).collect();
    let told: Vec<_> = unreadable.iter().map(|disk| (disk.id.as_deref(), disk.tags["a"].as_str())).collect();
    assert_eq!(told, [(Some("not an id"), "b"), (None, "b")]);
    let error = &unreadable[0].error;
    assert_eq!((&error.fault, error.resource.as_str()), (&Fault::Malformed, "not an id"));
}

#[tokio::test(start_paused = true)]
async fn the_disks_of_a_group_are_given_one_by_one_with_every_holder_once_and_who_made_them() {
    const OTHER: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/w";
    let mut shared = raw_disk();
    shared["managedByExtended"] = json!([OTHER, VM.to_uppercase().replace("/SUBSCRIPTIONS/", "/subscriptions/")]);
    shared["tags"] = json!({"K8S-azure-created-by": "kubernetes-azure-dd"});
    let mut strange = raw_disk();
    strange["managedBy"] = json!("not an id");
    let mut untold = raw_disk();
    untold["tags"] = json!("not an object");
    let mut copied = raw_disk();
    copied["sku"]["name"] = json!("PremiumV2_LRS");
    copied["tags"] = json!({"Lazuli-Made-As": "standard_lrs"});
    copied["properties"]["completionPercent"] = json!(12.5);
    copied["properties"]["creationData"] = json!({"createOption": "Copy", "sourceResourceId": "a snapshot"});
    let next = "https://management.azure.com/subscriptions/s/resourceGroups/G/providers/Microsoft.Compute/disks?p=2";
    let fake = Fake::new([
        Reply::json(200, json!({"value": [shared, strange], "nextLink": next})),
        Reply::json(200, json!({"value": [raw_disk(), untold, copied]})),
    ]);
    let compute = Compute::new(fake.arm(fake.in_process()), ApiVersions::public());
    let (mut disks, mut unreadable) = (Vec::new(), Vec::new());
    let take = |disk: Result<ListedDisk, UnreadableDisk>| match disk {
        Ok(disk) => disks.push(disk),
        Err(disk) => unreadable.push(disk),
    };
    compute.list_disks_with("s", "G", &a_minute(), take).await.unwrap();
    let (vm, other): (ArmId, ArmId) = (VM.parse().unwrap(), OTHER.parse().unwrap());
    let expected = |holders: &[&ArmId], made_by_driver| ListedDisk {
        id: disk_id(1),
        size: Gib::new(200),
        holders: holders.iter().copied().cloned().collect(),
        made_by_driver,
        sku: Some(SkuName::PremiumLrs),
        completion: None,
        source: None,
        made_as: None,
    };
    let copied = ListedDisk {
        sku: Some(SkuName::PremiumV2Lrs),
        completion: Some(Completion::from_percent(12.5)),
        source: Some("a snapshot".into()),
        made_as: Some(SkuName::StandardLrs),
        ..expected(&[&vm], false)
    };
    assert_eq!(disks, [expected(&[&vm, &other], true), expected(&[&vm], false), copied]);
    let told: Vec<_> = unreadable.iter().map(|disk| (disk.tags.len(), disk.error.to_string())).collect();
    assert_eq!(told.len(), 2);
    assert!(told[0].0 == 1 && told[1].0 == 0, "{told:?}");
    assert_eq!(unreadable[0].error.resource, raw_disk()["id"].as_str().unwrap());
    let path = "GET management.azure.com/subscriptions/s/resourceGroups/G/providers/Microsoft.Compute/disks";
    assert!(fake.calls()[0].line.starts_with(path), "{}", fake.calls()[0].line);
}

#[test]
fn a_disk_without_what_decisions_rest_on_names_the_field() {
    for (pointer, field) in
        [("/id", "id"), ("/location", "location"), ("/properties/provisioningState", "properties.provisioningState")]
    {
        let mut raw = raw_disk();
        *raw.pointer_mut(pointer).unwrap() = Value::Null;
        assert_eq!(decode_disk(&raw).unwrap_err().field, field);
    }
    let mut raw = raw_disk();
    raw["properties"].as_object_mut().unwrap().remove("diskSizeGB");
    assert_eq!(decode_disk(&raw).unwrap().size, Gib::new(200));
    raw["properties"].as_object_mut().unwrap().remove("diskSizeBytes");
    assert_eq!(decode_disk(&raw).unwrap_err().field, "properties.diskSizeGB");
    // A holder that cannot be read is not "no holder".
    let mut raw = raw_disk();
    raw["managedBy"] = json!("a VM");
    assert_eq!(decode_disk(&raw).unwrap_err().field, "managedBy");
    raw["managedBy"] = json!("");
    assert_eq!(decode_disk(&raw).unwrap().managed_by, None);
}

#[test]
fn a_vm_is_read_with_every_element_of_its_data_disks() {
    let raw = raw_vm(json!([
        element(1, 0),
        {"lun": 5, "name": "b", "vhd": {"uri": "https://acct.blob.core.windows.net/vhds/b.vhd"}, "toBeDetached": true},
        {"lun": 6, "name": "strange"},
        {"lun": 7, "name": "c", "vhd": {"uri": "http://acct.blob.core.windows.net/vhds/c.vhd"}}
    ]));
    let vm = decode_vm(&raw).unwrap();
    assert_eq!(
        (vm.size.as_str(), vm.zone.as_deref(), vm.etag.as_deref()),
        ("Standard_D4s_v3", Some("2"), Some("\"7\""))
    );
    assert_eq!(vm.computer_name.as_deref(), Some("node-1"));
    assert_eq!(vm.data_disks[0].source, DataDiskSource::Disk(disk_id(1).into()));
    assert_eq!(
        vm.data_disks[1].source,
        DataDiskSource::Disk("https://acct.blob.core.windows.net/vhds/b.vhd".parse().unwrap())
    );
    assert!(vm.data_disks[1].to_be_detached);
    assert_eq!(vm.data_disks[2].source, DataDiskSource::Other("strange".into()));
    let (lun, blob) = (vm.data_disks[3].lun, "https://acct.blob.core.windows.net/vhds/c.vhd".parse().unwrap());
    assert_eq!((lun.get(), vm.data_disk(&blob), vm.may_have(&blob)), (7, None, Some(lun)), "it may be that blob");

    let mut raw = raw_vm(json!([{"lun": 64}]));
    assert_eq!(decode_vm(&raw).unwrap_err().field, "properties.storageProfile.dataDisks[].lun");
    raw["properties"]["storageProfile"] = json!({});
    assert!(decode_vm(&raw).unwrap().data_disks.is_empty());
    raw["properties"]["hardwareProfile"] = Value::Null;
    assert_eq!(decode_vm(&raw).unwrap_err().field, "properties.hardwareProfile.vmSize");
    raw["sku"] = json!({"name": "Standard_D2s_v3"});
    assert_eq!(decode_vm(&raw).unwrap().size, "Standard_D2s_v3");
}

#[tokio::test(start_paused = true)]
async fn the_action_says_only_what_changes() {
    let fake = Fake::new([Reply::json(200, raw_vm(json!([]))), Reply::empty(200)]);
    let mut coming = attachment(1, 4);
    coming.disk_encryption_set = Some(disk_id(9));
    coming.write_accelerator = true;
    let write = VmWrite {
        vm: VM.parse().unwrap(),
        attach: vec![coming],
        detach: vec![disk_id(2).into()],
        force: BTreeSet::new(),
        reapply: vec![],
    };
    let compute = Compute::new(fake.arm(fake.in_process()), ApiVersions::public());
    compute.get_vm(&write.vm, &a_minute()).await.unwrap();
    compute.attach_detach(&write, Priority::Attach, None, &a_minute()).await.unwrap();
    let seen = &fake.calls()[1];
    assert_eq!(seen.line, format!("POST management.azure.com{VM}/attachDetachDataDisks?api-version=2025-04-01"));
    assert_eq!(
        serde_json::from_str::<Value>(&seen.body).unwrap(),
        json!({
            "dataDisksToAttach": [{"diskId": disk_id(1).as_str(), "lun": 4, "caching": "ReadWrite",
                "diskEncryptionSet": {"id": disk_id(9).as_str()}, "writeAcceleratorEnabled": true}],
            "dataDisksToDetach": [{"diskId": disk_id(2).as_str()}]
        })
    );
}

#[test]
fn a_forced_detach_is_said_of_its_disk_alone_by_both_methods() {
    let write = VmWrite {
        vm: VM.parse().unwrap(),
        attach: vec![],
        detach: vec![disk_id(1).into(), disk_id(2).into()],
        force: [disk_id(2).into()].into(),
        reapply: vec![],
    };
    let leaving = json!([{"diskId": disk_id(1).as_str()},
        {"diskId": disk_id(2).as_str(), "detachOption": "ForceDetach"}]);
    assert_eq!(encode_action(&write), json!({ "dataDisksToDetach": leaving }));
    let raw = raw_vm(json!([element(1, 0), element(2, 1), element(3, 2)]));
    let edited = edit_data_disks(&raw, &write, VmWriteMethod::WholeList).unwrap();
    let said: Vec<_> = edited.iter().map(|element| (&element["toBeDetached"], &element["detachOption"])).collect();
    let (yes, none, force) = (json!(true), Value::Null, json!("ForceDetach"));
    assert_eq!(said, [(&yes, &none), (&yes, &force), (&none, &none)]);
}

#[test]
fn an_instance_view_that_contradicts_itself_proves_no_stop() {
    let view = |codes: &[&str]| {
        let mut raw = raw_vm(json!([]));
        let statuses: Vec<Value> = codes.iter().map(|code| json!({"code": code, "level": "Info"})).collect();
        raw["properties"]["instanceView"] = json!({ "statuses": statuses });
        decode_instance_view(&raw).unwrap().power
    };
    assert_eq!(view(&["ProvisioningState/succeeded", "PowerState/deallocated"]), Some(PowerState::Deallocated));
    assert_eq!(view(&["ProvisioningState/succeeded", "PowerState/running"]), Some(PowerState::Other));
    assert_eq!(view(&["PowerState/stopped", "PowerState/running"]), Some(PowerState::Other));
    assert_eq!(view(&["ProvisioningState/succeeded"]), None);
    assert_eq!(decode_instance_view(&raw_vm(json!([]))).unwrap().power, None);
}

#[tokio::test(start_paused = true)]
async fn the_whole_list_goes_with_location_and_nothing_else_under_if_match() {
    let elements = json!([element(1, 0), element(2, 1)]);
    let mut instance = raw_vm(elements.clone());
    instance["id"] = json!(INSTANCE);
    let fake = Fake::new([
        Reply::json(200, raw_vm(elements.clone())),
        Reply::empty(200),
        Reply::json(200, instance),
        Reply::empty(200),
    ]);
    let compute = Compute::new(fake.arm(fake.in_process()), ApiVersions::public());
    for id in [VM, INSTANCE] {
        let id: ArmId = id.parse().unwrap();
        let vm = compute.get_vm(&id, &a_minute()).await.unwrap();
        let write = VmWrite {
            vm: id,
            attach: vec![attachment(3, 2)],
            detach: vec![disk_id(1).into()],
            force: BTreeSet::new(),
            reapply: vec![],
        };
        let method = VmWriteMethod::WholeList;
        compute.write_vm(&vm, &write, method, Priority::Attach, None, &a_minute()).await.unwrap();
    }
    let mut leaving = element(1, 0);
    leaving["toBeDetached"] = json!(true);
    let coming = json!({"name": "d3", "lun": 2, "caching": "ReadWrite", "createOption": "Attach",
        "managedDisk": {"id": disk_id(3).as_str()}});
    let profile = json!({"storageProfile": {"dataDisks": [leaving, element(2, 1), coming]}});
    let calls = fake.calls();
    let body = |index: usize| serde_json::from_str::<Value>(&calls[index].body).unwrap();
    assert_eq!(body(1), json!({"location": "eastus2", "properties": profile}));
    // An instance may have a size of its own.
    let mut of_instance = profile;
    of_instance["hardwareProfile"] = json!({"vmSize": "Standard_D4s_v3"});
    assert_eq!(body(3), json!({"properties": of_instance}));
    assert!(calls[1].line.starts_with("PUT ") && calls[3].line.starts_with("PUT "));
    assert_eq!(calls[1].if_match.as_deref(), Some("\"7\""));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_names_no_disk_sends_the_list_as_it_was_read_under_if_match_by_whatever_method() {
    for method in [VmWriteMethod::Action, VmWriteMethod::WholeList, VmWriteMethod::WholeListByOmission] {
        let elements = json!([element(1, 0), element(2, 1)]);
        let fake = Fake::new([Reply::json(200, raw_vm(elements.clone())), Reply::empty(200)]);
        let compute = Compute::new(fake.arm(fake.in_process()), ApiVersions::public());
        let id: ArmId = VM.parse().unwrap();
        let vm = compute.get_vm(&id, &a_minute()).await.unwrap();
        let write = VmWrite {
            vm: id,
            attach: vec![],
            detach: vec![],
            force: BTreeSet::new(),
            reapply: vec![disk_id(2).into()],
        };
        compute.write_vm(&vm, &write, method, Priority::Attach, None, &a_minute()).await.unwrap();
        let sent = &fake.calls()[1];
        let body = json!({"location": "eastus2", "properties": {"storageProfile": {"dataDisks": elements}}});
        assert_eq!(serde_json::from_str::<Value>(&sent.body).unwrap(), body);
        assert!(sent.line.starts_with("PUT "), "{}", sent.line);
        assert_eq!(sent.if_match.as_deref(), Some("\"7\""));
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_list_without_an_etag_is_never_sent_twice() {
    let mut raw = raw_vm(json!([element(1, 0)]));
    raw.as_object_mut().unwrap().remove("etag");
    let fake = Fake::new([Reply::json(200, raw), Reply::Lost]);
    let compute = Compute::new(fake.arm(fake.in_process()), ApiVersions::azure_stack());
    let id: ArmId = VM.parse().unwrap();
    let vm = compute.get_vm(&id, &a_minute()).await.unwrap();
    let write =
        VmWrite { vm: id, attach: vec![], detach: vec![disk_id(1).into()], force: BTreeSet::new(), reapply: vec![] };
    let method = VmWriteMethod::WholeListByOmission;
    let error = compute.write_vm(&vm, &write, method, Priority::Detach, None, &a_minute()).await.unwrap_err();
    assert_eq!(error.fault, Fault::OutcomeUnknown);
    let calls = fake.calls();
    assert_eq!((calls.len(), calls[1].if_match.as_deref()), (2, None));
    assert!(calls[1].body.contains(r#""dataDisks":[]"#), "{}", calls[1].body);
    assert!(calls[1].line.ends_with("api-version=2017-12-01"));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_gone_is_deleted_but_a_group_that_is_gone_is_not_known() {
    let named = |code: &str| Reply::json(404, json!({"error": {"code": code}}));
    let fake = Fake::new([named("ResourceNotFound"), Reply::empty(204), named("ResourceGroupNotFound")]);
    let compute = Compute::new(fake.arm(fake.in_process()), ApiVersions::public());
    for _ in 0..2 {
        let mut operation = compute.delete_disk(&disk_id(1), None, &a_minute()).await.unwrap();
        assert_eq!(operation.wait(&a_minute()).await.unwrap(), None);
    }
    let error = compute.delete_disk(&disk_id(1), None, &a_minute()).await.unwrap_err();
    assert_eq!(error.fault, Fault::ScopeNotFound);
}

#[tokio::test(start_paused = true)]
async fn the_reads_ask_where_azure_keeps_things() {
    let page = |items: Value| Reply::json(200, json!({"value": items}));
    let fake = Fake::new([
        page(json!([raw_disk()])),
        page(json!([raw_vm(json!([]))])),
        page(json!([
            {"resourceType": "virtualMachines", "name": "Standard_D2s_v3", "capabilities": [
                {"name": "vCPUs", "value": "2"}, {"name": "MaxDataDiskCount", "value": "4"}]},
            {"resourceType": "virtualMachines", "name": "Standard_Silent", "capabilities": null},
            {"resourceType": "disks", "name": "Premium_LRS", "capabilities": [{"name": "MaxDataDiskCount"}]},
        ])),
    ]);
    let compute = Compute::new(fake.arm(fake.in_process()), ApiVersions::public());
    let until = Until::within(Duration::from_secs(60));
    let mut disks = 0;
    compute.list_disks_with("s", "g", &until, |_| disks += 1).await.unwrap();
    assert_eq!(disks, 1);
    let vms = compute.list_vms("s", "g", &until).await.unwrap();
    assert_eq!(vms[0].etag.as_deref(), Some("\"7\""));
    let sizes = compute.vm_sizes("s", "eastus2", &until).await.unwrap();
    assert_eq!(sizes, [("Standard_D2s_v3".to_owned(), 4)]);
    let lines: Vec<String> =
        fake.calls().iter().map(|seen| seen.line.replace("GET management.azure.com/subscriptions/s", "")).collect();
    let compute = "/providers/Microsoft.Compute";
    assert_eq!(
        lines,
        [
            format!("/resourceGroups/g{compute}/disks?api-version=2025-01-02"),
            format!("/resourceGroups/g{compute}/virtualMachines?api-version=2025-04-01"),
            format!("{compute}/skus?api-version=2021-07-01&%24filter=location%20eq%20%27eastus2%27"),
        ]
    );
}

proptest! {
    /// Editing Azure's JSON and applying the write to the model are one thing; nothing of an element is lost.
    #[test]
    fn the_edit_of_the_json_and_the_edit_of_the_model_agree(
        present in proptest::collection::btree_map(0u8..12, (0u8..32, any::<bool>()), 0..8),
        detach in proptest::collection::btree_set(0u8..12, 0..6),
        attach in proptest::collection::btree_map(12u8..20, 32u8..64, 0..5),
        by_omission in any::<bool>(),
    ) {
        let elements: Vec<Value> = present
            .iter()
            .map(|(n, (lun, leaving))| {
                let mut element = element(*n, *lun);
                if *leaving {
                    element["toBeDetached"] = json!(true);
                }
                element
            })
            .collect();
        let method = if by_omission { VmWriteMethod::WholeListByOmission } else { VmWriteMethod::WholeList };
        let write = VmWrite {
            vm: VM.parse().unwrap(),
            attach: attach.iter().map(|(n, lun)| attachment(*n, *lun)).collect(),
            detach: detach.iter().map(|n| disk_id(*n).into()).collect(),
            force: BTreeSet::new(), reapply: vec![],
        };
        let mut raw = raw_vm(Value::Array(elements.clone()));
        let before = decode_vm(&raw).unwrap();
        let edited = edit_data_disks(&raw, &write, method).unwrap();
        for element in &elements {
            let mut without = edited.clone();
            for edited in &mut without {
                if element.get("toBeDetached").is_none() {
                    edited.as_object_mut().unwrap().remove("toBeDetached");
                }
            }
            let leaves = write.detach.iter().any(|id| element["managedDisk"]["id"].as_str() == Some(&id.as_str().to_uppercase()));
            prop_assert!(without.contains(element) || (by_omission && leaves));
        }
        raw["properties"]["storageProfile"]["dataDisks"] = Value::Array(edited);
        let requested = decode_vm(&raw).unwrap();
        prop_assert_eq!(&requested, &apply::requested(&before, &write, method));
        // What Azure makes of the request, if nothing else was leaving already.
        let mut after = requested;
        after.data_disks.retain(|disk| !write.detach.iter().any(|id| disk.is(id)));
        prop_assert_eq!(after, apply::vm_write(&before, &write, method));
    }

    /// The PATCH on Azure's JSON and the change of the model are one thing; nothing of the disk is lost.
    #[test]
    fn the_patch_of_a_disk_and_the_change_of_the_model_agree(change in changes()) {
        let mut raw = raw_disk();
        raw["properties"]["diskAccessId"] = json!(DOOR);
        raw["properties"]["tier"] = json!("P15");
        let (disk, details) = (decode_disk(&raw).unwrap(), decode_disk_details(&raw).unwrap());
        if let Some(sku) = change.sku {
            gets_performance_of(&mut raw, sku);
        }
        let mut body = encode_disk_change(&change);
        if let Some(tags) = body.get("tags") {
            // Azure replaces the tags as a whole.
            raw["tags"] = tags.clone();
            body.as_object_mut().unwrap().remove("tags");
        }
        merge(&mut raw, &body);
        let after = (decode_disk(&raw).unwrap(), decode_disk_details(&raw).unwrap());
        prop_assert_eq!(after, apply::disk_change(&disk, &details, &change));
        prop_assert_eq!(&raw["futureField"]["x"], &json!(1));
    }
}

fn changes() -> impl Strategy<Value = DiskChange> {
    use proptest::{collection::btree_map, option::of, sample::select};
    let policies = of(select(NetworkAccessPolicy::ALL));
    let texts = of(btree_map("[a-z]{1,3}", "[a-z]{0,3}", 0..3));
    let numbers = (of(1..9_000_u64), of(1..900_u64));
    let words = (of(select(SkuName::ALL)), of(select(PerformanceTier::ALL)), of(select(PublicNetworkAccess::ALL)));
    (words, texts, numbers, of(any::<bool>()), policies).prop_map(
        |((sku, tier, public_network_access), tags, (iops, mbps), bursting_enabled, network_access_policy)| {
            let is_private = network_access_policy == Some(NetworkAccessPolicy::AllowPrivate);
            let disk_access = is_private.then(|| DOOR.parse().unwrap());
            DiskChange {
                sku,
                tags,
                iops,
                mbps,
                tier,
                bursting_enabled,
                network_access_policy,
                disk_access,
                public_network_access,
            }
        },
    )
}

/// What Azure does beside a PATCH that names another type.
fn gets_performance_of(raw: &mut Value, sku: SkuName) {
    let own = matches!(sku, SkuName::PremiumV2Lrs | SkuName::UltraSsdLrs);
    let tier = matches!(sku, SkuName::PremiumLrs | SkuName::PremiumZrs).then_some("P15");
    let properties = &mut raw["properties"];
    properties["diskIOPSReadWrite"] = json!(if own { 3_000 } else { 500 });
    properties["diskMBpsReadWrite"] = json!(if own { 125 } else { 100 });
    properties["tier"] = json!(tier);
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else { return target.clone_from(patch) };
    for (name, value) in patch {
        merge(&mut target[name], value);
    }
}
