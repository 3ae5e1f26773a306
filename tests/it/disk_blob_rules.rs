//! What is refused of VHD blob disks, and what is not: blobs of claims and of other resource groups, classes that no node
//! would mount, accounts that do not answer.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use csi_proto::csi::{
    CreateSnapshotRequest, CreateVolumeRequest, Volume, VolumeCapability, VolumeContentSource,
    volume_capability::access_mode::Mode,
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};
use lazuli_assembly::clients::Azure;
use lazuli_azure::{
    Until,
    blob::{Account, BlobError},
};
use lazuli_emulator::scenario::{self, ResourceGroup, VirtualMachine};
use lazuli_model::{
    ArmId, BlobUri,
    event::{Event, Reason, Regarding},
    node::{ClusterNodes, KnownNodes, Machine, Node},
};
use lazuli_rig::{AttachmentSourceReader, NodeFactsReader, Options};
use lazuli_storage::{dangling::NodeFacts, inline_volume::AttachmentSource, list::VolumeHandles};
use lazuli_telemetry::lossy;
use lazuli_vhd::{
    footer::Footer,
    life::{Answer, CREATED_BY, Call, Metadata},
};
use lazuli_volume::AllowedResourceGroups;
use prometheus_client::{metrics::counter::Counter, registry::Registry};
use serde_json::json;
use tokio::{sync::watch, time::Instant};
use tonic::Code;

use super::disk_rig::{
    Client, GIB, Rig, capability, create, create_request, create_with, delete, expand, list, publish, publish_as,
    refused, typical, unpublish, vm_id,
};

const STORAGE_VERSION: &str = "2025-01-01";
const FOREIGN_GROUP: &str = "vault";

/// What the VolumeAttachments are about.
#[derive(Clone)]
struct Attachments(Arc<Mutex<AttachmentSource>>);

impl Attachments {
    fn are(&self, source: AttachmentSource) {
        *self.0.lock().unwrap() = source;
    }
}

/// An Azure whose machines have VHDs as their system disks, in the account `system1`.
struct World {
    rig: Rig,
    client: Client,
    azure: Azure,
    attachments: Attachments,
    events: lossy::Receiver<Event>,
}

impl World {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let attachments = Attachments(Arc::new(Mutex::new(AttachmentSource::PersistentVolume)));
        let (sender, events) = lossy::channel(100, Counter::default());
        let mut azure = typical();
        azure.listen_tls = Some("127.0.0.1:0".parse().unwrap());
        let mut old = VirtualMachine::pattern("old-{}", 2);
        old.os_disk.storage_account = Some("system1".to_owned());
        azure.scenario.virtual_machines = vec![old];
        let foreign = ResourceGroup { name: FOREIGN_GROUP.into(), location: None, subscription: None };
        azure.scenario.resource_groups.push(foreign);
        let said = attachments.clone();
        let mut rig = Rig::with(azure, |options| {
            options.handles = Some(watch::channel(VolumeHandles::Synced(Default::default())).1);
            options.attachment_source = Some(AttachmentSourceReader::new(move |_, _| {
                let source = *said.0.lock().unwrap();
                Box::pin(async move { Ok(source) })
            }));
            options.events = sender;
            change(options);
        })
        .await;
        let client = rig.controller().await;
        let azure = rig.lab.azure(&mut Registry::default()).await.unwrap();
        Self { rig, client, azure, attachments, events }
    }

    /// A person makes an account with the container of disks.
    async fn account(&self, group: &str, name: &str) {
        let body = json!({"location": scenario::LOCATION, "sku": {"name": "Standard_LRS"}, "kind": "StorageV2"});
        let path = account_id(group, name);
        let (status, answer) = self.rig.other_tool().call_in(STORAGE_VERSION, "PUT", path.as_str(), Some(body)).await;
        assert_eq!(status, 202, "{answer}");
        self.rig.at_rest().await;
        let answer = self.blob_call(group, &uri(name, "x"), Call::MakeContainer).await;
        assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    }

    async fn blob_call(&self, group: &str, blob: &BlobUri, call: Call) -> Answer<BlobError> {
        let account = Account { id: account_id(group, blob.account()), location: None };
        self.azure.blobs.call(&account, blob, &call, &Until::within(Duration::from_secs(60))).await
    }

    /// Another program makes a VHD of 1 GiB.
    async fn vhd(&self, group: &str, account: &str, name: &str, metadata: &[(&str, &str)]) -> BlobUri {
        let (blob, bytes) = (uri(account, name), 1 << 30);
        let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let make = Call::MakeBlob { length: bytes + 512, metadata: metadata.collect::<Metadata>() };
        let made = self.blob_call(group, &blob, make).await;
        let Answer::Done(Some(if_match)) = made else { panic!("{made:?}") };
        let page = Box::new(Footer::new(bytes, [7; 16], 0).to_page());
        let written = self.blob_call(group, &blob, Call::WritePage { offset: bytes, page, if_match }).await;
        assert!(matches!(written, Answer::Done(_)), "{written:?}");
        blob
    }

    async fn publish(&self, blob: &str) -> Result<u8, tonic::Status> {
        publish_as(&self.client, blob, &Default::default(), "old-0").await
    }

    /// The requests that may change something: of the resource manager and of the accounts.
    fn writes(&self) -> Vec<String> {
        let calls = self.rig.control.call_log().into_iter();
        let reads = |method: &str| ["GET", "HEAD"].contains(&method);
        calls
            .filter(|call| !reads(&call.method) && !call.path.ends_with("/listKeys") && call.plane != "login")
            .map(|call| format!("{} {}", call.method, call.path))
            .collect()
    }

    fn reported(&mut self) -> Vec<(Regarding, Reason)> {
        std::iter::from_fn(|| self.events.try_receive()).map(|event| (event.regarding, event.reason)).collect()
    }
}

fn account_id(group: &str, name: &str) -> ArmId {
    ArmId::storage_account(scenario::SUBSCRIPTION, group, name).unwrap()
}

fn uri(account: &str, name: &str) -> BlobUri {
    BlobUri::of(account, "core.windows.net", "vhds", name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn disk_a_blob_of_a_claim_is_not_attached_for_a_pod_that_names_it() {
    let mut world = World::start().await;
    let ours = create_with(&world.client, "pvc-1", &[("kind", "Shared")]).await.unwrap();
    let account = ours.volume_id.parse::<BlobUri>().unwrap().account().to_owned();
    // As the in-tree plugin has marked what it made, and a VHD of a person.
    let old = world.vhd(scenario::RESOURCE_GROUP, &account, "old.vhd", &[CREATED_BY]).await;
    let plain = world.vhd(scenario::RESOURCE_GROUP, &account, "plain.vhd", &[]).await;
    world.rig.control.reset_log();
    world.attachments.are(AttachmentSource::Inline);
    for blob in [&*ours.volume_id, old.as_str()] {
        let message = refused(world.publish(blob).await, Code::InvalidArgument);
        assert!(message.contains("a Pod names it") && message.contains("--allow-inline-claimed-disks"), "{message}");
    }
    assert_eq!(world.writes(), Vec::<String>::new());
    world.publish(plain.as_str()).await.unwrap();
    world.attachments.are(AttachmentSource::PersistentVolume);
    publish(&world.client, &ours, "old-0").await.unwrap();
    assert_eq!(world.reported(), []);
    // What is attached stays, and an event reports it.
    world.attachments.are(AttachmentSource::Inline);
    world.publish(&ours.volume_id).await.unwrap();
    assert_eq!(world.reported(), [(Regarding::Node("old-0".into()), Reason::AttachmentNotAllowed)]);
    unpublish(&world.client, &ours.volume_id, "old-0").await.unwrap();
    refused(world.publish(&ours.volume_id).await, Code::InvalidArgument);
    world.rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_blob_of_a_resource_group_that_is_not_allowed_is_neither_attached_nor_grown() {
    let team = AllowedResourceGroups::of(vec!["team".parse().unwrap()]);
    let world = World::with(|options| options.allowed_resource_groups = team).await;
    world.account(FOREIGN_GROUP, "secrets").await;
    let blob = world.vhd(FOREIGN_GROUP, "secrets", "d.vhd", &[]).await;
    world.rig.control.reset_log();
    for source in [AttachmentSource::Inline, AttachmentSource::PersistentVolume] {
        world.attachments.are(source);
        let message = refused(world.publish(blob.as_str()).await, Code::InvalidArgument);
        assert!(message.contains("allowed are") && message.contains(FOREIGN_GROUP), "{message}");
    }
    let message = refused(expand(&world.client, blob.as_str(), 2 * GIB, 0).await, Code::InvalidArgument);
    assert!(message.contains("allowed are"), "{message}");
    assert_eq!(world.writes(), Vec::<String>::new());
    world.rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_an_account_that_does_not_answer_hides_its_own_blobs_alone_from_lists() {
    let world = World::start().await;
    for name in ["silent", "speaking"] {
        world.account(scenario::RESOURCE_GROUP, name).await;
    }
    let managed = create(&world.client, "pvc-managed").await.unwrap();
    let mut blobs = Vec::new();
    for account in ["silent", "speaking"] {
        let class = [("storageAccount", account)];
        blobs.push(create_with(&world.client, &format!("pvc-{account}"), &class).await.unwrap().volume_id);
    }
    let all = |list: std::collections::BTreeMap<String, Vec<String>>| list.into_keys().collect::<Vec<_>>();
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    let everything = sorted(vec![managed.volume_id.clone(), blobs[0].clone(), blobs[1].clone()]);
    assert_eq!(all(list(&world.client).await.unwrap()), everything);
    world.rig.incident(json!({"match": {"path": "/silent/vhds"}, "then": {"delayMs": 3_600_000}, "times": 0}));
    let began = Instant::now();
    let listed = list(&world.client).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(all(listed), sorted(vec![managed.volume_id.clone(), blobs[1].clone()]));
    world.rig.control.clear_incidents();
    assert_eq!(all(list(&world.client).await.unwrap()), everything);
    world.rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_blob_class_that_no_node_would_mount_is_refused_before_anything_is_made() {
    let world = World::start().await;
    world.rig.control.reset_log();
    let of = |change: fn(&mut CreateVolumeRequest)| {
        let mut request = create_request("pvc-1", &[("kind", "Shared")]);
        change(&mut request);
        request
    };
    fn mode(mode: Mode) -> VolumeCapability {
        let access_mode = Some(csi_proto::csi::volume_capability::AccessMode { mode: mode.into() });
        VolumeCapability { access_mode, ..capability() }
    }
    for (request, word) in [
        (of(|request| drop(request.parameters.insert("fsType".into(), "ntfs".into()))), "ntfs"),
        (of(|request| request.volume_capabilities = vec![mode(Mode::MultiNodeMultiWriter)]), "MULTI_NODE_MULTI_WRITER"),
        (of(|request| drop(request.parameters.insert("perfProfile".into(), "fast".into()))), "perfProfile"),
        (of(|request| drop(request.parameters.insert("perfProfile".into(), "advanced".into()))), "device-setting/"),
        (of(|request| drop(request.parameters.insert("device-setting/uevent".into(), "x".into()))), "uevent"),
        (of(|request| drop(request.mutable_parameters.insert("cachingMode".into(), "None".into()))), "cachingMode"),
    ] {
        let message = refused(world.client.clone().create_volume(request).await, Code::InvalidArgument);
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(world.writes(), Vec::<String>::new());
    let made = create_with(&world.client, "pvc-1", &[("kind", "Shared"), ("fsType", "xfs")]).await.unwrap();
    delete(&world.client, &made.volume_id).await.unwrap();
    world.rig.stop().await;
}

/// The Nodes of these machines.
fn nodes(machines: &[&str]) -> ClusterNodes {
    let node = |name: &&str| {
        let machine = Machine::of_provider_id(&format!("azure://{}", vm_id(name)));
        ((*name).to_owned(), Node { machine, healthy: true, ..Node::default() })
    };
    let mut known = KnownNodes::default();
    known.replace(machines.iter().map(node));
    ClusterNodes::Known(known)
}

/// A world in which there is a machine `jumpbox-0` with a managed disk beside those with VHDs.
async fn beside_a_jumpbox(machines: &[&str]) -> (World, watch::Sender<ClusterNodes>) {
    let (tell, cluster) = watch::channel(nodes(machines));
    let world = World::with(|options| {
        options.nodes = Some(cluster);
        options.azure.scenario.virtual_machines.push(VirtualMachine::pattern("jumpbox-{}", 1));
    })
    .await;
    (world, tell)
}

#[tokio::test(start_paused = true)]
async fn disk_the_machines_of_the_nodes_decide_and_a_retry_goes_on_with_what_the_first_try_began() {
    let is_blob = |volume: &Volume| volume.volume_id.starts_with("https://");
    for class in [[("kind", "Shared")], [("kind", "Dedicated")], [("storageAccount", "mine")]] {
        let (mut world, tell) = beside_a_jumpbox(&["old-0", "old-1"]).await;
        world.account(scenario::RESOURCE_GROUP, "mine").await;
        let made = create_with(&world.client, "pvc-1", &class).await.unwrap();
        assert!(is_blob(&made), "{}", made.volume_id);
        // A machine that takes managed disks becomes a node between two tries. The second one may be another process's.
        tell.send_replace(nodes(&["old-0", "jumpbox-0"]));
        let other = world.rig.lab.controller("other").await.unwrap();
        for client in [&world.client, &other] {
            assert_eq!(create_with(client, "pvc-1", &class).await.unwrap().volume_id, made.volume_id, "{class:?}");
            match create_with(client, "pvc-2", &class).await {
                Ok(managed) => assert!(!is_blob(&managed), "{}", managed.volume_id),
                Err(refused) => assert_eq!((refused.code(), class[0].0), (Code::InvalidArgument, "storageAccount")),
            }
        }
        // And the other way round.
        tell.send_replace(nodes(&["old-0"]));
        let again = create_with(&other, "pvc-2", &class).await.unwrap();
        assert_eq!(is_blob(&again), class[0].0 == "storageAccount", "{}", again.volume_id);
        assert!(is_blob(&create_with(&other, "pvc-3", &class).await.unwrap()));
        world.rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_refused_read_keeps_the_claim_of_a_blob_class_that_an_earlier_try_may_have_served() {
    let (mut world, _tell) = beside_a_jumpbox(&["old-0"]).await;
    let class = [("kind", "Dedicated")];
    let made = create_with(&world.client, "pvc-1", &class).await.unwrap();
    for (path, other, words) in
        [("*/virtualMachines", "second", "cannot be listed"), ("*/disks/pvc-1", "third", "cannot be read")]
    {
        world.rig.incident(json!({"match": {"method": "GET", "path": path}, "times": 0,
            "then": {"status": 403, "code": "AuthorizationFailed", "message": "no"}}));
        let other = world.rig.lab.controller(other).await.unwrap();
        let message = refused(create_with(&other, "pvc-1", &class).await, Code::Unavailable);
        assert!(message.contains(words) && message.contains("AuthorizationFailed"), "{message}");
        world.rig.control.clear_incidents();
        assert_eq!(create_with(&other, "pvc-1", &class).await.unwrap().volume_id, made.volume_id);
    }
    world.rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_blob_class_makes_no_disk_of_a_source_and_a_managed_one_does() {
    let blob_classes = [[("kind", "Shared")], [("kind", "Dedicated")], [("storageAccount", "mine")]];
    let (world, tell) = beside_a_jumpbox(&["old-0"]).await;
    world.account(scenario::RESOURCE_GROUP, "mine").await;
    let vhd = world.vhd(scenario::RESOURCE_GROUP, "mine", "d.vhd", &[]).await;
    let disk = create(&world.client, "pvc-disk").await.unwrap();
    let snapshot = CreateSnapshotRequest {
        source_volume_id: disk.volume_id.clone(),
        name: "snap".into(),
        ..CreateSnapshotRequest::default()
    };
    let snapshot = world.client.clone().create_snapshot(snapshot).await.unwrap().into_inner().snapshot.unwrap();
    let volume = |id: &str| Type::Volume(VolumeSource { volume_id: id.into() });
    let sources = [
        volume(vhd.as_str()),
        volume(&disk.volume_id),
        Type::Snapshot(SnapshotSource { snapshot_id: snapshot.snapshot_id }),
    ];
    let of = |name: &str, class: &[(&str, &str)], source: &Type| CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { r#type: Some(source.clone()) }),
        ..create_request(name, class)
    };
    world.rig.control.reset_log();
    for class in &blob_classes {
        for source in &sources {
            let answer = world.client.clone().create_volume(of("pvc-1", class, source)).await;
            let message = refused(answer, Code::InvalidArgument);
            assert!(message.contains("dataSource"), "{message}");
        }
    }
    assert_eq!(world.writes(), Vec::<String>::new());
    // Where the machines take managed disks, these classes get them.
    tell.send_replace(nodes(&["jumpbox-0"]));
    let made =
        world.client.clone().create_volume(of("pvc-1", &blob_classes[0], &sources[1])).await.unwrap().into_inner();
    assert!(made.volume.unwrap().volume_id.contains("/disks/"));
    // What was begun so is gone on with.
    tell.send_replace(nodes(&["old-0"]));
    world.client.clone().create_volume(of("pvc-1", &blob_classes[0], &sources[1])).await.unwrap();
    world.rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_without_a_right_on_accounts_a_class_gets_its_managed_disk() {
    let (world, _tell) = beside_a_jumpbox(&["jumpbox-0"]).await;
    world.rig.incident(json!({"match": {"path": "*/Microsoft.Storage/*"}, "times": 0,
        "then": {"status": 403, "code": "AuthorizationFailed", "message": "no"}}));
    let made = create_with(&world.client, "pvc-1", &[("kind", "Dedicated")]).await.unwrap();
    assert!(made.volume_id.contains("/disks/"), "{}", made.volume_id);
    world.rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_nothing_is_written_to_a_blob_for_a_machine_that_does_not_take_it() {
    let (world, _tell) = beside_a_jumpbox(&["old-0", "jumpbox-0"]).await;
    world.account(scenario::RESOURCE_GROUP, "mine").await;
    // It has no footer yet.
    let blob = uri("mine", "d.vhd");
    let make = Call::MakeBlob { length: (1 << 30) + 512, metadata: Metadata::new() };
    assert!(matches!(world.blob_call(scenario::RESOURCE_GROUP, &blob, make).await, Answer::Done(Some(_))));
    world.rig.control.reset_log();
    let to_jumpbox = publish_as(&world.client, blob.as_str(), &Default::default(), "jumpbox-0").await;
    let message = refused(to_jumpbox, Code::FailedPrecondition);
    assert!(message.contains("has managed disks") && message.contains("dataSource"), "{message}");
    assert_eq!(world.writes(), Vec::<String>::new());
    world.publish(blob.as_str()).await.unwrap();
    let footers = || world.writes().into_iter().filter(|write| write.ends_with("/d.vhd")).count();
    assert_eq!(footers(), 1);
    unpublish(&world.client, blob.as_str(), "old-0").await.unwrap();
    world.rig.stop().await;
}

/// While its lease is held the end of a blob is not looked at.
#[tokio::test(start_paused = true)]
async fn disk_a_blob_that_leaves_a_node_which_does_not_use_it_is_looked_at_before_its_attach() {
    let idle = NodeFacts { ready: true, lease_age: Some(Duration::from_secs(5)), ..NodeFacts::default() };
    let cluster = watch::channel(nodes(&["old-0", "old-1"])).1;
    let world = World::with(|options| {
        options.nodes = Some(cluster);
        options.node_facts = Some(NodeFactsReader::new("disk.csi.azure.com", move |_| {
            let idle = idle.clone();
            Box::pin(async move { Ok(idle) })
        }));
    })
    .await;
    let blob = create_with(&world.client, "pvc-1", &[("kind", "Shared")]).await.unwrap().volume_id;
    publish_as(&world.client, &blob, &Default::default(), "old-1").await.unwrap();
    world.rig.at_rest().await;
    world.rig.control.reset_log();
    world.publish(&blob).await.unwrap();
    let calls = world.rig.control.call_log();
    let last = |is_it: &dyn Fn(&str, &str) -> bool| {
        calls.iter().rposition(|call| is_it(&call.method, &call.path.to_lowercase())).unwrap()
    };
    let written = |machine: &str| last(&|method, path| method != "GET" && path.contains(machine));
    let looked_at = last(&|method, path| method == "GET" && path.ends_with("/pvc-1.vhd"));
    let (detached, attached) = (written("/virtualmachines/old-1"), written("/virtualmachines/old-0"));
    assert!(detached < looked_at && looked_at < attached, "{detached} {looked_at} {attached}");
    world.rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_blob_whose_account_somebody_deleted_is_deleted_where_reads_prove_that() {
    let delete_account = async |world: &World, name: &str| {
        let path = account_id(scenario::RESOURCE_GROUP, name);
        let (status, answer) = world.rig.other_tool().call_in(STORAGE_VERSION, "DELETE", path.as_str(), None).await;
        assert_eq!(status, 200, "{answer}");
        // Lists of accounts are believed for a minute.
        tokio::time::sleep(Duration::from_secs(70)).await;
    };
    let own = || AllowedResourceGroups::of(vec![scenario::RESOURCE_GROUP.parse().unwrap()]);
    for (class, allowed, is_proved) in [
        (("kind", "Shared"), own(), true),
        // Another cluster's pool has such names too, and its account may be in any resource group of the subscription.
        (("kind", "Shared"), AllowedResourceGroups::Any, false),
        (("kind", "Dedicated"), AllowedResourceGroups::Any, true),
        (("storageAccount", "mine"), own(), true),
        // It may have been in any resource group of the subscription.
        (("storageAccount", "mine"), AllowedResourceGroups::Any, false),
    ] {
        let world = World::with(|options| options.allowed_resource_groups = allowed).await;
        world.account(scenario::RESOURCE_GROUP, "mine").await;
        let made = create_with(&world.client, "pvc-1", &[class]).await.unwrap().volume_id;
        delete_account(&world, made.parse::<BlobUri>().unwrap().account()).await;
        // The first call finds what was known to be old.
        let _ = delete(&world.client, &made).await;
        world.rig.incident(json!({"match": {"method": "GET", "path": "*/storageAccounts/*"}, "times": 0,
            "then": {"status": 403, "code": "AuthorizationFailed", "message": "no"}}));
        if class.0 != "kind" || class.1 == "Shared" {
            let message = refused(delete(&world.client, &made).await, Code::FailedPrecondition);
            assert!(message.contains("may be one that this identity may not read"), "{message}");
        }
        world.rig.control.clear_incidents();
        match delete(&world.client, &made).await {
            Ok(()) => assert!(is_proved, "{class:?}"),
            Err(status) => assert_eq!((status.code(), is_proved), (Code::FailedPrecondition, false), "{class:?}"),
        }
        world.rig.stop().await;
    }
}
