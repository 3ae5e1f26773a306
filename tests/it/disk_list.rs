//! ListVolumes: whole, or an error; of one moment, however many pages it has; with the nodes that hold the volumes.

use std::{collections::BTreeMap, sync::Arc};

use csi_proto::csi::{
    ControllerGetCapabilitiesRequest,
    controller_service_capability::{Type, rpc::Type as Rpc},
};
use lazuli_emulator::scenario::{self, Disk, ResourceGroup, Scenario};
use lazuli_model::Lun;
use lazuli_rig::ListVolumes;
use lazuli_storage::{
    list::VolumeHandles,
    lun::{LunReservations, Reservation},
};
use serde_json::json;
use tokio::sync::watch;
use tonic::Code;

use super::disk_rig::{
    Rig, create, create_all, create_with, delete, disk_id, list, list_page, name_of, named, numbered, publish,
    publish_as, refused, typical, vm_id,
};

/// The id of a disk of another group of the cluster's subscription.
fn disk_in(group: &str, name: &str) -> String {
    disk_id(name).replace(&format!("/{}/", scenario::RESOURCE_GROUP), &format!("/{group}/"))
}

fn group(name: &str) -> ResourceGroup {
    ResourceGroup { name: name.into(), location: None, subscription: None }
}

/// A disk that a driver made.
fn made(name: &str, group: Option<&str>) -> Disk {
    Disk {
        name: name.into(),
        size_gib: 4,
        sku: "StandardSSD_LRS".into(),
        zone: None,
        resource_group: group.map(str::to_owned),
        attach_to: None,
        tags: [("k8s-azure-created-by".to_owned(), "kubernetes-azure-dd".to_owned())].into(),
    }
}

/// PersistentVolumes with these handles.
fn volumes_of(handles: &[&str]) -> VolumeHandles {
    let pair = |(at, handle): (usize, &&str)| (format!("pv-{at}"), Arc::from(*handle));
    VolumeHandles::Synced(handles.iter().enumerate().map(pair).collect())
}

/// The groups whose disks were listed since the log was reset, a page each, in the order of the requests.
fn groups_listed(rig: &Rig) -> Vec<String> {
    let lists = rig.calls().into_iter().filter(|call| call.path.to_lowercase().ends_with("/disks"));
    lists.map(|call| call.path.split('/').nth(4).unwrap_or_default().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn disk_the_pages_of_a_list_tell_what_was_so_at_the_first_and_read_nothing_more() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(10)).await;
    rig.control.reset_log();
    let mut seen = Vec::new();
    let mut token = String::new();
    for page in 0.. {
        let (entries, next) = list_page(&client, 3, &token).await.unwrap();
        assert!(entries.len() <= 3);
        seen.extend(entries.into_iter().map(|entry| name_of(&named(entry).0).to_owned()));
        match page {
            // The last of the page, and one of the next.
            0 => {
                delete(&client, &volumes[2].volume_id).await.unwrap();
                delete(&client, &volumes[4].volume_id).await.unwrap();
            }
            1 => drop(create(&client, "pvc-03-a").await.unwrap()),
            _ => {}
        }
        if next.is_empty() {
            break;
        }
        token = next;
    }
    assert_eq!(seen, numbered(10));
    assert_eq!(groups_listed(&rig), [scenario::RESOURCE_GROUP]);
    let anew: Vec<String> = list(&client).await.unwrap().into_keys().map(|id| name_of(&id).to_owned()).collect();
    let expected = ["pvc-00", "pvc-01", "pvc-03", "pvc-03-a", "pvc-05", "pvc-06", "pvc-07", "pvc-08", "pvc-09"];
    assert_eq!(anew, expected);
    rig.stop().await;
}

/// The caller starts anew: a page of another list could hide a volume.
#[tokio::test(start_paused = true)]
async fn disk_a_token_of_a_list_that_was_read_to_its_end_or_by_another_replica_is_aborted() {
    let (mut rig, client) = Rig::typical().await;
    create_all(&client, &numbered(5)).await;
    let (_, token) = list_page(&client, 2, "").await.unwrap();
    let other = rig.lab.controller("other").await.unwrap();
    let message = refused(list_page(&other, 2, &token).await, Code::Aborted);
    assert!(message.contains("start the list anew"), "{message}");
    let (_, last) = list_page(&client, 2, &token).await.unwrap();
    // An answer that was lost is given again.
    assert_eq!(list_page(&client, 2, &token).await.unwrap().1, last);
    assert_eq!(list_page(&client, 2, &last).await.unwrap().1, "");
    refused(list_page(&client, 2, &last).await, Code::Aborted);
    refused(list_page(&client, 2, &token).await, Code::Aborted);
    rig.stop().await;
}

/// A call of a client that was not told otherwise fails at 4 MiB, and external-attacher sets no `max_entries`.
#[tokio::test(start_paused = true)]
async fn disk_a_page_stays_below_the_limit_of_grpc_however_long_names_and_tags_are() {
    const DISKS: usize = 5_200;
    let name = |at: usize| format!("{at:04}-{}", "n".repeat(75));
    let tags: BTreeMap<String, String> = (0..10).map(|at| (format!("tag-{at}"), "t".repeat(256))).collect();
    let disk = |at| {
        let mut disk = made(&name(at), None);
        disk.tags.extend(tags.clone());
        disk
    };
    let mut azure = typical();
    azure.scenario = Scenario { disks: (0..DISKS).map(disk).collect(), ..Scenario::default() };
    let mut rig = Rig::on(azure).await;
    // As many holders as a shared disk may have.
    let holders: Vec<String> = (0..10).map(|at| format!("node-{at}-{}", "v".repeat(57))).collect();
    let ids: Vec<String> = holders.iter().map(|holder| vm_id(holder)).collect();
    for at in 0..DISKS {
        rig.control.tamper(&disk_id(&name(at)), |disk| disk["managedByExtended"] = json!(ids)).unwrap();
    }
    let client = rig.controller().await;
    rig.control.reset_log();
    let (mut seen, mut pages, mut token) = (BTreeMap::new(), 0, String::new());
    loop {
        let (entries, next) = list_page(&client, 0, &token).await.unwrap();
        pages += 1;
        seen.extend(entries.into_iter().map(named));
        if next.is_empty() {
            break;
        }
        token = next;
    }
    assert_eq!(pages, 2);
    assert_eq!(seen.len(), DISKS);
    assert!(seen.values().all(|nodes| *nodes == holders));
    assert_eq!(groups_listed(&rig).len(), DISKS.div_ceil(1000));
    rig.stop().await;
}

/// A list is no answer to a question that came after it began: a volume may have been attached in between.
#[tokio::test(start_paused = true)]
async fn disk_lists_that_are_asked_for_at_the_same_time_share_their_reads() {
    let (rig, client) = Rig::typical().await;
    create_all(&client, &numbered(3)).await;
    rig.control.reset_log();
    let answers = futures::future::join_all((0..20).map(|_| list(&client))).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap().len() == 3));
    assert!(groups_listed(&rig).len() <= 2, "{:?}", groups_listed(&rig));
    rig.stop().await;
}

/// A subscription may hold tens of thousands of disks of others.
#[tokio::test(start_paused = true)]
async fn disk_only_the_groups_that_a_volume_is_in_are_listed() {
    let mut azure = typical();
    let groups = ["attached", "bound", "made", "others"];
    azure.scenario.resource_groups.extend(groups.map(group));
    for name in groups {
        azure.scenario.disks.push(made("pvc-1", Some(name)));
    }
    let attachment = Reservation {
        lun: Lun::try_from(0).unwrap(),
        volume_handle: Some(disk_in("attached", "pvc-1")),
        attachment: "csi-1".into(),
    };
    let recorded = LunReservations::Synced([("node-0".to_owned(), vec![attachment])].into());
    let (_attachments, reservations) = watch::channel(recorded);
    // The first is of a group that was deleted, and the second names no disk.
    let bound = disk_in("BOUND", "pvc-1");
    let known = volumes_of(&[&disk_in("gone", "pvc-1"), "https://a.blob.core.windows.net/vhds/a.vhd", &bound]);
    let (tell, handles) = watch::channel(known);
    let mut rig = Rig::with(azure, |options| {
        options.reservations = Some(reservations);
        options.handles = Some(handles);
    })
    .await;
    let client = rig.controller().await;
    rig.control.reset_log();
    let names = async || list(&client).await.unwrap().into_keys().collect::<Vec<_>>();
    assert_eq!(names().await, [bound, disk_in("attached", "pvc-1")]);
    assert_eq!(groups_listed(&rig), ["lazuli", "attached", "BOUND", "gone"]);
    // A disk that this process made counts before its PersistentVolume exists.
    let own = create(&client, "pvc-2").await.unwrap().volume_id;
    let new = create_with(&client, "pvc-2", &[("resourceGroup", "made")]).await.unwrap().volume_id;
    tell.send_replace(volumes_of(&[]));
    rig.control.reset_log();
    assert_eq!(names().await, [disk_in("attached", "pvc-1"), own.clone(), disk_in("made", "pvc-1"), new.clone()]);
    assert_eq!(groups_listed(&rig), ["lazuli", "attached", "made"]);
    delete(&client, &new).await.unwrap();
    rig.control.reset_log();
    assert_eq!(names().await, [disk_in("attached", "pvc-1"), own]);
    assert_eq!(groups_listed(&rig), ["lazuli", "attached"]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_without_its_own_group_there_is_no_list() {
    for (status, code, expected) in
        [(404, "ResourceGroupNotFound", Code::FailedPrecondition), (403, "AuthorizationFailed", Code::PermissionDenied)]
    {
        let mut azure = typical();
        azure.scenario.resource_groups.push(group("bound"));
        let (_tell, handles) = watch::channel(volumes_of(&[&disk_in("bound", "pvc-1")]));
        let mut rig = Rig::with(azure, |options| options.handles = Some(handles)).await;
        let client = rig.controller().await;
        let path = format!("*/resourceGroups/{}/providers/Microsoft.Compute/disks", scenario::RESOURCE_GROUP);
        rig.incident(json!({"match": {"method": "GET", "path": path}, "then": {"status": status, "code": code}}));
        refused(list(&client).await, expected);
        assert_eq!(list(&client).await.unwrap().len(), 0);
        rig.stop().await;
    }
}

/// external-attacher compares the handles of VolumeAttachments, which are those of PersistentVolumes.
#[tokio::test(start_paused = true)]
async fn disk_a_volume_is_spelt_as_its_persistent_volume_spells_it_whatever_requests_said() {
    let spelled = disk_id("PVC-00").replace("resourceGroups", "resourcegroups");
    let (tell, handles) = watch::channel(volumes_of(&[&spelled]));
    let mut rig = Rig::with(typical(), |options| options.handles = Some(handles)).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(1)).await;
    assert_ne!(volumes[0].volume_id, spelled);
    assert_eq!(list(&client).await.unwrap().into_keys().collect::<Vec<_>>(), [spelled]);
    // What was known and is not any more is no reason to guess.
    tell.send_replace(VolumeHandles::Cold);
    refused(list(&client).await, Code::Unavailable);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_controller_that_is_told_to_offer_no_list_claims_none() {
    for (list_volumes, offered) in [(ListVolumes::On, true), (ListVolumes::Off, false)] {
        let mut rig = Rig::with(typical(), |options| options.list_volumes = list_volumes).await;
        let client = rig.controller().await;
        let answer = client.clone().controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await.unwrap();
        let claimed: Vec<Rpc> = answer
            .into_inner()
            .capabilities
            .into_iter()
            .map(|capability| match capability.r#type.unwrap() {
                Type::Rpc(rpc) => rpc.r#type(),
            })
            .collect();
        for rpc in [Rpc::ListVolumes, Rpc::ListVolumesPublishedNodes] {
            assert_eq!(claimed.contains(&rpc), offered, "{claimed:?}");
        }
        assert!(claimed.contains(&Rpc::PublishUnpublishVolume), "{claimed:?}");
        match list(&client).await {
            Ok(volumes) => assert!(offered && volumes.is_empty()),
            Err(refusal) => assert_eq!((offered, refusal.code()), (false, Code::Unimplemented)),
        }
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_list_names_the_nodes_of_each_volume_and_leaves_out_disks_that_are_no_volumes() {
    let (rig, client) = Rig::typical().await;
    let other = rig.other_tool();
    other.make_disk("theirs").await;
    other.make_disk("static").await;
    let volumes = create_all(&client, &numbered(3)).await;
    publish(&client, &volumes[0], "node-0").await.unwrap();
    publish(&client, &volumes[2], "node-1").await.unwrap();
    let fixed = disk_id("static");
    publish_as(&client, &fixed, &Default::default(), "node-1").await.unwrap();
    let node = |name: &str| vec![name.to_owned()];
    let expected: BTreeMap<String, Vec<String>> = [
        (volumes[0].volume_id.clone(), node("node-0")),
        (volumes[1].volume_id.clone(), vec![]),
        (volumes[2].volume_id.clone(), node("node-1")),
        (fixed, node("node-1")),
    ]
    .into();
    assert_eq!(list(&client).await.unwrap(), expected);
    rig.stop().await;
}

/// external-attacher takes what a list leaves out as detached.
#[tokio::test(start_paused = true)]
async fn disk_a_list_of_which_a_page_fails_is_an_error() {
    for (status, code) in [(500, Code::Unavailable), (403, Code::PermissionDenied)] {
        let azure = lazuli_emulator::Options { page_size: 2, ..typical() };
        let mut rig = Rig::on(azure).await;
        let client = rig.controller().await;
        create_all(&client, &numbered(7)).await;
        assert_eq!(list(&client).await.unwrap().len(), 7);
        rig.incident(json!({
            "match": {"method": "GET", "path": "*/providers/Microsoft.Compute/disks", "nth": 2},
            "then": {"status": status}, "times": 0,
        }));
        refused(list(&client).await, code);
        rig.control.clear_incidents();
        assert_eq!(list(&client).await.unwrap().len(), 7);
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_token_that_is_none_is_aborted_and_a_negative_count_is_refused() {
    let (rig, client) = Rig::typical().await;
    refused(list_page(&client, 0, "no token").await, Code::Aborted);
    refused(list_page(&client, -1, "").await, Code::InvalidArgument);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_volumes_of_another_subscription_are_listed_and_while_it_is_closed_to_us_there_is_no_list() {
    const OTHER: &str = "00000000-0000-0000-0000-0000000000ff";
    let mut azure = typical();
    azure.scenario.subscriptions.push(OTHER.into());
    let far = ResourceGroup { name: "far".into(), location: None, subscription: Some(OTHER.into()) };
    azure.scenario.resource_groups.push(far);
    let mut rig = Rig::on(azure).await;
    let client = rig.controller().await;
    let near = create(&client, "pvc-near").await.unwrap();
    let place = [("subscriptionID", OTHER), ("resourceGroup", "far")];
    let there = create_with(&client, "pvc-far", &place).await.unwrap();
    let handles: Vec<String> = list(&client).await.unwrap().into_keys().collect();
    assert_eq!(handles, [near.volume_id.clone(), there.volume_id.clone()]);

    let refuse = |status: u16, code: &str| {
        json!({"match": {"method": "GET", "path": format!("/subscriptions/{OTHER}/*")},
            "then": {"status": status, "code": code}})
    };
    // A refusal may pass, as that of a role that is being assigned. A list without its volumes would show them as detached.
    for (status, code) in [
        (401, "InvalidAuthenticationTokenTenant"),
        (403, "AuthorizationFailed"),
        (404, "SubscriptionNotFound"),
        (400, "Strange"),
    ] {
        let mut refused = refuse(status, code);
        // A refused token is replaced once.
        refused["times"] = json!(if status == 401 { 2 } else { 1 });
        rig.incident(refused);
        let error = list(&client).await.unwrap_err();
        assert!(error.message().contains("resource group far"), "{error}");
        let says = error.message().contains("give the identity the rights on this resource group");
        assert_eq!(says, matches!(status, 403 | 404), "{error}");
        rig.control.clear_incidents();
        assert_eq!(list(&client).await.unwrap().len(), 2);
    }
    rig.stop().await;
}

/// The system disk of a machine that was made from an image names the image by an id without a resource group.
#[tokio::test(start_paused = true)]
async fn disk_volumes_are_listed_in_a_subscription_with_a_machine_made_from_an_image() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-1").await.unwrap();
    let network = vm_id("").replace("Microsoft.Compute/virtualMachines/", "Microsoft.Network");
    let card = format!("{network}/networkInterfaces/card");
    let subnet = format!("{network}/virtualNetworks/lazuli-vnet/subnets/nodes");
    let place = json!({"subnet": {"id": subnet}});
    let body =
        json!({"location": "westeurope", "properties": {"ipConfigurations": [{"name": "one", "properties": place}]}});
    let other = rig.other_tool();
    let (status, answer) = other.call("PUT", &card, Some(body)).await;
    assert_eq!(status, 201, "{answer}");
    let body = json!({"location": "westeurope", "properties": {
        "hardwareProfile": {"vmSize": "Standard_D2s_v3"},
        "storageProfile": {
            "imageReference": {"publisher": "p", "offer": "o", "sku": "s", "version": "latest"},
            "osDisk": {"createOption": "FromImage", "name": "system"},
        },
        "osProfile": {"computerName": "new", "adminUsername": "u", "adminPassword": "secret"},
        "networkProfile": {"networkInterfaces": [{"id": card}]},
    }});
    let (status, answer) = other.call("PUT", &vm_id("new"), Some(body)).await;
    assert_eq!(status, 201, "{answer}");
    rig.at_rest().await;
    let image = &rig.disk("system").unwrap()["properties"]["creationData"]["imageReference"]["id"];
    assert!(!image.as_str().unwrap().to_lowercase().contains("resourcegroups"), "{image}");
    assert_eq!(list(&client).await.unwrap().into_keys().collect::<Vec<_>>(), [volume.volume_id]);

    // Such a disk can be a volume as well, once its machine has let go of it.
    let made = json!({"createOption": "FromImage", "imageReference": {"id": image}});
    let fixed = disk_id("fixed");
    other.make_disk("fixed").await;
    rig.control.tamper(&fixed, |disk| disk["properties"]["creationData"] = made).unwrap();
    publish_as(&client, &fixed, &Default::default(), "node-0").await.unwrap();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_an_unreadable_disk_fails_the_list_only_when_it_may_be_a_volume() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-1").await.unwrap();
    let other = rig.other_tool();
    for name in ["theirs", "static"] {
        other.make_disk(name).await;
    }
    let spoil = |id: &str| rig.control.tamper(id, |disk| disk["managedBy"] = json!("who knows")).unwrap();
    spoil(&disk_id("theirs"));
    assert_eq!(list(&client).await.unwrap().into_keys().collect::<Vec<_>>(), std::slice::from_ref(&volume.volume_id));
    // Kubernetes has named this one.
    publish_as(&client, &disk_id("static"), &Default::default(), "node-0").await.unwrap();
    assert_eq!(list(&client).await.unwrap().len(), 2);
    spoil(&disk_id("static"));
    refused(list(&client).await, Code::Unavailable);
    rig.control.tamper(&disk_id("static"), |disk| disk["managedBy"] = json!(vm_id("node-0"))).unwrap();
    assert_eq!(list(&client).await.unwrap().len(), 2);
    // A driver made this one.
    spoil(&volume.volume_id);
    refused(list(&client).await, Code::Unavailable);
    rig.stop().await;
}
