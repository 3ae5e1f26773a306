//! Which disks are attached for what asks for them: the disks of claims only for their PersistentVolumes, and disks of the
//! allowed resource groups only. What is attached already stays.

use std::sync::{Arc, Mutex};

use lazuli_model::{
    event::{Event, Reason, Regarding},
    node::{ClusterNodes, KnownNodes, Machine, Node},
};
use lazuli_rig::{AttachmentSourceReader, Options};
use lazuli_storage::{
    inline_volume::{AttachmentSource, InlineVolumes},
    list::VolumeHandles,
};
use lazuli_telemetry::lossy;
use lazuli_volume::AllowedResourceGroups;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;
use tonic::Code;

use super::disk_rig::{
    Client, Rig, create, create_with, disk_id, pass, publish, publish_as, refused, seconds, typical, unpublish, vm_id,
};

/// What the VolumeAttachments on node-0 are about.
#[derive(Clone)]
struct Attachments(Arc<Mutex<Result<AttachmentSource, String>>>);

impl Attachments {
    fn are(&self, source: Result<AttachmentSource, String>) {
        *self.0.lock().unwrap() = source;
    }
}

struct World {
    rig: Rig,
    client: Client,
    attachments: Attachments,
    events: lossy::Receiver<Event>,
}

impl World {
    /// A cluster with the PersistentVolume `pv-static` about the disk `static`.
    async fn new(change: impl FnOnce(&mut Options)) -> Self {
        let attachments = Attachments(Arc::new(Mutex::new(Ok(AttachmentSource::PersistentVolume))));
        let (sender, events) = lossy::channel(100, Counter::default());
        let said = attachments.clone();
        let volumes = VolumeHandles::Synced([("pv-static".to_owned(), disk_id("Static").into())].into());
        let mut rig = Rig::with(typical(), |options| {
            options.handles = Some(watch::channel(volumes).1);
            options.attachment_source = Some(AttachmentSourceReader::new(move |handle, node| {
                assert!(handle.starts_with("/subscriptions/") && node == "node-0", "{handle} {node}");
                let source = said.0.lock().unwrap().clone();
                Box::pin(async { source })
            }));
            options.events = sender;
            change(options);
        })
        .await;
        let client = rig.controller().await;
        Self { rig, client, attachments, events }
    }

    async fn publish(&self, name: &str) -> Result<u8, tonic::Status> {
        publish_as(&self.client, &disk_id(name), &[("requestedsizegib".to_owned(), "1".to_owned())].into(), "node-0")
            .await
    }

    fn reported(&mut self) -> Vec<(Regarding, Reason)> {
        std::iter::from_fn(|| self.events.try_receive()).map(|event| (event.regarding, event.reason)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_disk_of_a_claim_is_not_attached_for_a_pod_that_names_it() {
    let mut world = World::new(|_| {}).await;
    let metadata = [("csi.storage.k8s.io/pvc/name", "data"), ("csi.storage.k8s.io/pvc/namespace", "db")];
    create_with(&world.client, "claimed", &metadata).await.unwrap();
    for name in ["static", "plain"] {
        world.rig.other_tool().make_disk(name).await;
    }
    pass(seconds(20)).await;
    world.rig.control.reset_log();
    world.attachments.are(Ok(AttachmentSource::Inline));
    for (name, why) in [("claimed", "made for claim db/data"), ("static", "PersistentVolume pv-static is about it")] {
        let message = refused(world.publish(name).await, Code::InvalidArgument);
        assert!(message.contains(why) && message.contains("--allow-inline-claimed-disks"), "{message}");
    }
    world.attachments.are(Err("the API server does not answer".into()));
    let message = refused(world.publish("claimed").await, Code::Unavailable);
    assert!(message.contains("the API server does not answer"), "{message}");
    assert_eq!(world.rig.writes(), []);
    // A disk of no claim, and the claim's own volume.
    world.attachments.are(Ok(AttachmentSource::Inline));
    world.publish("plain").await.unwrap();
    world.attachments.are(Ok(AttachmentSource::PersistentVolume));
    world.publish("claimed").await.unwrap();
    assert_eq!(world.reported(), []);
    // What is attached stays, and an event reports it.
    world.attachments.are(Ok(AttachmentSource::Inline));
    world.publish("claimed").await.unwrap();
    assert_eq!(world.reported(), [(Regarding::Node("node-0".into()), Reason::AttachmentNotAllowed)]);
    unpublish(&world.client, &disk_id("claimed"), "node-0").await.unwrap();
    refused(world.publish("claimed").await, Code::InvalidArgument);
    world.rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_with_the_option_a_pod_may_name_the_disk_of_a_claim() {
    let world = World::new(|options| options.inline = InlineVolumes::Any).await;
    world.attachments.are(Ok(AttachmentSource::Inline));
    let volume = create(&world.client, "claimed").await.unwrap();
    publish(&world.client, &volume, "node-0").await.unwrap();
    world.rig.check();
    world.rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_disk_of_a_resource_group_that_is_not_allowed_is_not_attached() {
    let mut world = World::new(|options| {
        options.azure.scenario.resource_groups.push(lazuli_emulator::scenario::ResourceGroup {
            name: "vault".into(),
            location: None,
            subscription: None,
        });
        options.allowed_resource_groups = AllowedResourceGroups::of(vec!["team".parse().unwrap()]);
    })
    .await;
    let foreign = disk_id("secret").replace("/lazuli/", "/vault/");
    let body = serde_json::json!({
        "location": lazuli_emulator::scenario::LOCATION, "sku": {"name": "StandardSSD_LRS"},
        "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4},
    });
    let other = world.rig.other_tool();
    assert_eq!(other.call("PUT", &foreign, Some(body)).await.0, 202);
    pass(seconds(20)).await;
    world.rig.control.reset_log();
    let context = [("requestedsizegib".to_owned(), "4".to_owned())].into();
    let message = refused(publish_as(&world.client, &foreign, &context, "node-0").await, Code::InvalidArgument);
    for part in ["vault", "allowed are", "team (--allowed-resource-groups)"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(world.rig.writes(), []);
    // One that is attached already stays.
    let path = format!("{}/attachDetachDataDisks", vm_id("node-0"));
    let attach = serde_json::json!({"dataDisksToAttach": [{"diskId": foreign, "lun": 3}]});
    assert_eq!(other.call("POST", &path, Some(attach)).await.0, 202);
    world.rig.at_rest().await;
    assert_eq!(publish_as(&world.client, &foreign, &context, "node-0").await.unwrap(), 3);
    assert_eq!(world.reported(), [(Regarding::Node("node-0".into()), Reason::AttachmentNotAllowed)]);
    // The cluster's own group is always allowed.
    let volume = create(&world.client, "own").await.unwrap();
    publish(&world.client, &volume, "node-0").await.unwrap();
    world.rig.stop().await;
}

/// Who may write VolumeAttachments, or a CSINode, may name any VM of the cluster's group.
#[tokio::test(start_paused = true)]
async fn disk_a_vm_that_is_no_node_of_the_cluster_gets_no_disk_by_its_name() {
    let node = |name: &str| Node {
        machine: Machine::of_provider_id(&format!("azure://{}", vm_id(name))),
        healthy: true,
        ..Node::default()
    };
    let mut known = KnownNodes::default();
    known.replace([("node-1".to_owned(), node("node-1"))]);
    let (_tell, nodes) = watch::channel(ClusterNodes::Known(known));
    let mut rig = Rig::with(typical(), |options| options.nodes = Some(nodes)).await;
    let client = rig.controller().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    let message = refused(publish(&client, &volume, "node-0").await, Code::NotFound);
    assert!(message.contains("no Node has this name"), "{message}");
    assert_eq!(rig.vm_writes("node-0"), []);
    publish(&client, &volume, "node-1").await.unwrap();
    rig.check();
    rig.stop().await;
}
