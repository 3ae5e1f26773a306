//! A disk that Azure says is attached to a node on which Kubernetes does not use it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lazuli_model::{
    Lun,
    event::{Event, Reason, Regarding},
    node::{ClusterNodes, KnownNodes, Machine, Node},
};
use lazuli_rig::{NodeFactsReader, Options};
use lazuli_storage::{
    dangling::{DetachUnused, NodeAttachment, NodeFacts},
    lun::{LunReservations, Reservation},
};
use lazuli_telemetry::lossy;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::sync::watch;
use tonic::Code;

use super::disk_rig::{Client, Rig, create, delete, disk_id, pass, publish, seconds, typical, unpublish, vm_id};

/// What Kubernetes says of a node, and how often it was asked.
#[derive(Clone)]
struct Kubernetes(
    Arc<Mutex<(Result<NodeFacts, String>, usize)>>,
    Arc<Mutex<lossy::Receiver<Event>>>,
    lossy::Sender<Event>,
);

impl Kubernetes {
    /// A node that is alive and uses nothing.
    fn idle() -> Self {
        let facts = NodeFacts { ready: true, lease_age: Some(Duration::from_secs(5)), ..NodeFacts::default() };
        let (sender, events) = lossy::channel(100, Counter::default());
        Self(Arc::new(Mutex::new((Ok(facts), 0))), Arc::new(Mutex::new(events)), sender)
    }

    /// The events about node-1 since the last call, by reason and note.
    fn reported(&self) -> Vec<(Reason, String)> {
        let mut events = self.1.lock().unwrap();
        let events = std::iter::from_fn(|| events.try_receive());
        let of_node = |event: Event| {
            assert_eq!(event.regarding, Regarding::Node("node-1".into()));
            (event.reason, event.note)
        };
        events.map(of_node).collect()
    }

    fn says(&self, facts: Result<NodeFacts, String>) {
        self.0.lock().unwrap().0 = facts;
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().1
    }

    fn reader(&self) -> NodeFactsReader {
        let world = self.0.clone();
        NodeFactsReader::new("disk.csi.azure.com", move |node| {
            assert_eq!(node, "node-1", "the node's own name is asked for");
            let mut world = world.lock().unwrap();
            world.1 += 1;
            let answer = world.0.clone();
            Box::pin(async { answer })
        })
    }
}

/// Two nodes, and a volume that another tool has attached to the second.
async fn rig(kubernetes: &Kubernetes, nodes: &[&str]) -> (Rig, Client, csi_proto::csi::Volume) {
    let (rig, client, volume) = rig_with(kubernetes, nodes, |_| {}).await;
    assert_eq!(rig.other_tool().attach("node-1", &[("pvc-a", 5)]).await, 202);
    pass(seconds(20)).await;
    rig.control.reset_log();
    (rig, client, volume)
}

/// Two nodes, and a volume that the controller has attached to the second for a VolumeAttachment that is gone.
async fn attached_rig(
    kubernetes: &Kubernetes,
    change: impl FnOnce(&mut Options),
) -> (Rig, Client, csi_proto::csi::Volume) {
    let (rig, client, volume) = rig_with(kubernetes, &["node-0", "node-1"], change).await;
    publish(&client, &volume, "node-1").await.unwrap();
    pass(seconds(20)).await;
    rig.control.reset_log();
    (rig, client, volume)
}

async fn rig_with(
    kubernetes: &Kubernetes,
    nodes: &[&str],
    change: impl FnOnce(&mut Options),
) -> (Rig, Client, csi_proto::csi::Volume) {
    let mut known = KnownNodes::default();
    known.replace(nodes.iter().map(|name| {
        let machine = Machine::of_provider_id(&format!("azure://{}", vm_id(name)));
        ((*name).to_owned(), Node { machine, healthy: true, ..Node::default() })
    }));
    let told = watch::channel(ClusterNodes::Known(known)).1;
    let mut rig = Rig::with(typical(), |options: &mut Options| {
        options.nodes = Some(told);
        options.node_facts = Some(kubernetes.reader());
        options.events = kubernetes.2.clone();
        change(options);
    })
    .await;
    let client = rig.controller().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    (rig, client, volume)
}

#[tokio::test(start_paused = true)]
async fn disk_a_dangling_attachment_is_detached_and_the_disk_attached_where_it_is_wanted() {
    let kubernetes = Kubernetes::idle();
    let (rig, client, volume) = rig(&kubernetes, &["node-0", "node-1"]).await;
    publish(&client, &volume, "node-0").await.unwrap();
    assert_eq!((rig.luns("node-0").len(), rig.luns("node-1").len()), (1, 0));
    assert_eq!(kubernetes.asked(), 1);
    assert_eq!((rig.vm_writes("node-0").len(), rig.vm_writes("node-1").len()), (1, 1));
    let reported = kubernetes.reported();
    assert_eq!((reported.len(), reported[0].0), (1, Reason::StaleAttachmentDetached));
    assert!(reported[0].1.starts_with("Disk pvc-a was attached to this node although"), "{}", reported[0].1);
    rig.check();
    rig.stop().await;
}

/// Each sign of use, and each thing that cannot be told, keeps the disk where it is.
#[tokio::test(start_paused = true)]
async fn disk_an_attachment_that_may_be_in_use_is_left_alone_and_the_answer_says_why() {
    let kubernetes = Kubernetes::idle();
    let (rig, client, volume) = rig(&kubernetes, &["node-0", "node-1"]).await;
    let idle = kubernetes.0.lock().unwrap().0.clone().unwrap();
    let attachment = |handle: Option<String>| NodeAttachment { name: "csi-x".into(), handle };
    let with = |change: &dyn Fn(&mut NodeFacts)| {
        let mut facts = idle.clone();
        change(&mut facts);
        Ok(facts)
    };
    for (facts, why, needs_a_person) in [
        (
            with(&|facts| facts.attachments.push(attachment(Some(disk_id("PVC-A"))))),
            "VolumeAttachment csi-x is about it",
            false,
        ),
        (with(&|facts| facts.attachments.push(attachment(None))), "which volume VolumeAttachment csi-x is about", true),
        (with(&|facts| facts.ready = false), "the node is not ready", true),
        (with(&|facts| facts.lease_age = Some(Duration::from_secs(61))), "has not renewed its Lease", true),
        (
            with(&|facts| facts.volumes.push(format!("kubernetes.io/csi/disk.csi.azure.com^{}", disk_id("pvc-a")))),
            "in use or attached",
            false,
        ),
        (Err("cannot read the VolumeAttachments".into()), "cannot read the VolumeAttachments", true),
    ] {
        kubernetes.says(facts);
        let error = publish(&client, &volume, "node-0").await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        assert!(error.message().contains("attached to node node-1") && error.message().contains(why), "{error}");
        let is_use = why.contains("is about it") || why == "in use or attached";
        assert_eq!(error.message().contains("detach it in Azure, and the attach goes on"), !is_use, "{error}");
        let reported = kubernetes.reported();
        assert_eq!(reported.len(), usize::from(needs_a_person), "{why}: {reported:?}");
        let names_it = |(reason, note): &(Reason, String)| *reason == Reason::StaleAttachmentKept && note.contains(why);
        assert!(reported.iter().all(names_it), "{reported:?}");
    }
    assert_eq!(rig.writes(), []);
    rig.check();
    rig.stop().await;
}

/// A VM that is no node of the cluster may belong to another cluster or to another team.
#[tokio::test(start_paused = true)]
async fn disk_an_attachment_to_a_vm_that_is_no_node_of_the_cluster_is_left_alone() {
    let kubernetes = Kubernetes::idle();
    let (rig, client, volume) = rig(&kubernetes, &["node-0"]).await;
    let why = "no Node of this cluster has the providerID of that machine";
    for error in [publish(&client, &volume, "node-0").await.err(), delete(&client, &volume.volume_id).await.err()] {
        let error = error.unwrap();
        assert_eq!(error.code(), Code::FailedPrecondition);
        assert!(error.message().contains(why) && error.message().contains("detach it in Azure"), "{error}");
    }
    assert_eq!((kubernetes.asked(), rig.vm_writes("node-1").len()), (0, 0));
    assert_eq!(rig.luns("node-1").len(), 1);
    rig.stop().await;
}

/// As a VolumeAttachment leaves it that a person deletes with its finalizer.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_whose_volume_is_deleted_is_detached_where_this_process_attached_it_and_no_node_uses_it() {
    let kubernetes = Kubernetes::idle();
    let (rig, client, volume) = attached_rig(&kubernetes, |_| {}).await;
    delete(&client, &volume.volume_id).await.unwrap();
    assert_eq!((rig.luns("node-1").len(), rig.vm_writes("node-1").len(), kubernetes.asked()), (0, 1, 1));
    assert!(rig.disk("pvc-a").is_none(), "the disk is left");
    let reported = kubernetes.reported();
    assert_eq!((reported.len(), reported[0].0), (1, Reason::StaleAttachmentDetached));
    assert!(reported[0].1.contains("was detached, because its volume is being deleted"), "{}", reported[0].1);
    rig.check();
    rig.stop().await;
}

/// A person attaches the disk to a node by hand and saves its data, while the volume is being deleted. After a restart the
/// controller cannot tell that from its own attachment.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_whose_volume_is_deleted_stays_where_this_process_has_not_attached_it() {
    let kubernetes = Kubernetes::idle();
    let (mut rig, client, volume) = attached_rig(&kubernetes, |_| {}).await;
    let restarted = rig.lab.controller("restarted").await.unwrap();
    let command = "az vm disk detach --subscription 00000000-0000-0000-0000-000000000001 --resource-group lazuli \
                   --vm-name node-1 --name pvc-a";
    let stays = async |client: &Client| {
        let error = delete(client, &volume.volume_id).await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition);
        for part in ["attached to node node-1", "nothing shows that this process attached it there last", command] {
            assert!(error.message().contains(part), "{error}");
        }
        let reported = kubernetes.reported();
        assert_eq!((reported.len(), reported[0].0), (1, Reason::StaleAttachmentKept));
        assert!(reported[0].1.contains(command), "{}", reported[0].1);
    };
    stays(&restarted).await;
    assert_eq!(rig.vm_writes("node-1").len(), 0);
    // The first controller attached it, and then a person replaced the attachment by another.
    let other = rig.other_tool();
    assert_eq!(other.detach("node-1", &["pvc-a"]).await, 202);
    rig.at_rest().await;
    pass(seconds(20)).await;
    publish(&client, &volume, "node-0").await.unwrap();
    unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
    assert_eq!(other.attach("node-1", &[("pvc-a", 5)]).await, 202);
    rig.at_rest().await;
    pass(seconds(20)).await;
    stays(&client).await;
    assert_eq!(rig.luns("node-1").len(), 1);
    rig.stop().await;
}

/// Another hand detaches the disk from the node, and a person attaches it to the same node again to save its data. This
/// process has seen neither.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_whose_volume_is_deleted_stays_where_another_hand_has_attached_it_again() {
    let kubernetes = Kubernetes::idle();
    let (rig, client, volume) = attached_rig(&kubernetes, |_| {}).await;
    let other = rig.other_tool();
    assert_eq!(other.detach("node-1", &["pvc-a"]).await, 202);
    rig.at_rest().await;
    pass(seconds(20)).await;
    assert_eq!(other.attach("node-1", &[("pvc-a", 5)]).await, 202);
    rig.at_rest().await;
    pass(seconds(20)).await;
    rig.control.reset_log();
    let error = delete(&client, &volume.volume_id).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    for part in ["attached to node node-1", "the disk was attached again", "az vm disk detach"] {
        assert!(error.message().contains(part), "{error}");
    }
    let reported = kubernetes.reported();
    assert_eq!((reported.len(), reported[0].0), (1, Reason::StaleAttachmentKept));
    assert_eq!((rig.luns("node-1").len(), rig.vm_writes("node-1").len()), (1, 0));
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_with_detach_unused_disks_off_a_person_detaches_what_blocks_an_attach_or_a_deletion() {
    let kubernetes = Kubernetes::idle();
    let (rig, client, volume) = attached_rig(&kubernetes, |options| options.detach_unused = DetachUnused::Off).await;
    for blocked in ["attach", "deletion"] {
        let error = match blocked {
            "attach" => publish(&client, &volume, "node-0").await.unwrap_err(),
            _ => delete(&client, &volume.volume_id).await.unwrap_err(),
        };
        assert_eq!(error.code(), Code::FailedPrecondition);
        for part in ["attached to node node-1", "--detach-unused-disks is false", "az vm disk detach"] {
            assert!(error.message().contains(part), "{error}");
        }
        assert_eq!(kubernetes.reported().len(), 1, "{blocked}");
    }
    assert_eq!((rig.vm_writes("node-0").len(), rig.vm_writes("node-1").len()), (0, 0));
    rig.check();
    rig.stop().await;
}

/// The VolumeAttachment is made after Kubernetes was asked, and its attach is answered before the detach is requested.
#[tokio::test(start_paused = true)]
async fn disk_an_attachment_that_begins_while_kubernetes_is_asked_is_left_alone() {
    let kubernetes = Kubernetes::idle();
    let (say, reservations) = watch::channel(LunReservations::Synced(Default::default()));
    let idle = kubernetes.0.lock().unwrap().0.clone().unwrap();
    let reader = NodeFactsReader::new("disk.csi.azure.com", move |_| {
        let reservation = Reservation {
            lun: Lun::try_from(0).unwrap(),
            volume_handle: Some(disk_id("pvc-a")),
            attachment: "csi-late".into(),
        };
        say.send_replace(LunReservations::Synced([("node-1".to_owned(), vec![reservation])].into()));
        let answer = Ok(idle.clone());
        Box::pin(async { answer })
    });
    let (rig, client, volume) = attached_rig(&kubernetes, |options| {
        options.reservations = Some(reservations);
        options.node_facts = Some(reader);
    })
    .await;
    assert_eq!(publish(&client, &volume, "node-0").await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!((rig.writes(), rig.luns("node-1").len()), (vec![], 1));
    rig.check();
    rig.stop().await;
}

/// The volume of a pod that was deleted by force: kubelet still uses it.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_whose_volume_is_deleted_stays_where_a_node_uses_it_or_may_use_it() {
    let kubernetes = Kubernetes::idle();
    let (rig, client, volume) = attached_rig(&kubernetes, |_| {}).await;
    let idle = kubernetes.0.lock().unwrap().0.clone().unwrap();
    let used = format!("kubernetes.io/csi/disk.csi.azure.com^{}", disk_id("pvc-a"));
    for (facts, why, needs_a_person) in [
        (NodeFacts { volumes: vec![used], ..idle.clone() }, "the Node's status lists it as in use or attached", false),
        (NodeFacts { ready: false, ..idle.clone() }, "the node is not ready", true),
    ] {
        kubernetes.says(Ok(facts));
        let error = delete(&client, &volume.volume_id).await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        assert!(error.message().contains("attached to node node-1") && error.message().contains(why), "{error}");
        let next_step = "if nothing uses it there, detach it in Azure, and the deletion goes on";
        assert_eq!(error.message().contains(next_step), needs_a_person, "{error}");
        assert_eq!(kubernetes.reported().len(), usize::from(needs_a_person), "{why}");
    }
    assert_eq!((rig.luns("node-1").len(), rig.vm_writes("node-1").len()), (1, 0));
    kubernetes.says(Ok(idle));
    delete(&client, &volume.volume_id).await.unwrap();
    rig.check();
    rig.stop().await;
}

/// While the holder's own detach is under way nothing dangles.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_whose_detach_is_under_way_is_not_detached_a_second_time() {
    let kubernetes = Kubernetes::idle();
    let (rig, client, volume) = rig(&kubernetes, &["node-0", "node-1"]).await;
    let detaching = tokio::spawn({
        let (client, id) = (client.clone(), volume.volume_id.clone());
        async move { unpublish(&client, &id, "node-1").await }
    });
    pass(seconds(5)).await;
    assert_eq!(publish(&client, &volume, "node-0").await.unwrap_err().code(), Code::FailedPrecondition);
    detaching.await.unwrap().unwrap();
    assert_eq!((kubernetes.asked(), rig.vm_writes("node-1").len()), (0, 1));
    publish(&client, &volume, "node-0").await.unwrap();
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_disk_that_another_hand_attaches_again_while_the_cluster_is_asked_stays() {
    let kubernetes = Kubernetes::idle();
    let idle = kubernetes.0.lock().unwrap().0.clone().unwrap();
    let reader = NodeFactsReader::new("disk.csi.azure.com", move |_| {
        let answer = Ok(idle.clone());
        Box::pin(async move {
            tokio::time::sleep(seconds(60)).await;
            answer
        })
    });
    let (rig, client, volume) = attached_rig(&kubernetes, |options| options.node_facts = Some(reader)).await;
    let deleting = tokio::spawn({
        let (client, id) = (client.clone(), volume.volume_id.clone());
        async move { delete(&client, &id).await }
    });
    pass(seconds(3)).await;
    let other = rig.other_tool();
    assert_eq!(other.detach("node-1", &["pvc-a"]).await, 202);
    pass(seconds(20)).await;
    assert_eq!(other.attach("node-1", &[("pvc-a", 5)]).await, 202);
    assert_eq!(deleting.await.unwrap().unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(rig.luns("node-1").len(), 1);
    rig.stop().await;
}

/// The detach waits for its VM's read, which Azure refuses for a minute as one too many.
fn vm_reads_wait(rig: &Rig) {
    let matching = json!({"method": "GET", "path": "*/virtualMachines/node-1"});
    rig.incident(json!({"match": matching, "then": {"status": 429, "retryAfter": 60}}));
}

/// Azure makes the detach wait, and meanwhile a person detaches the disk and attaches it there again.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_that_another_hand_attaches_again_while_its_detach_waits_stays() {
    for blocked in ["attach", "deletion"] {
        let kubernetes = Kubernetes::idle();
        let (rig, client, volume) = attached_rig(&kubernetes, |_| {}).await;
        vm_reads_wait(&rig);
        let requested = tokio::spawn({
            let (client, volume) = (client.clone(), volume.clone());
            async move {
                match blocked {
                    "attach" => publish(&client, &volume, "node-0").await.map(drop),
                    _ => delete(&client, &volume.volume_id).await,
                }
            }
        });
        pass(seconds(5)).await;
        assert_eq!(kubernetes.asked(), 1, "the detach is not requested yet");
        let other = rig.other_tool();
        assert_eq!(other.detach("node-1", &["pvc-a"]).await, 202);
        pass(seconds(20)).await;
        assert_eq!(other.attach("node-1", &[("pvc-a", 5)]).await, 202);
        let error = requested.await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{blocked}: {error}");
        let why = if blocked == "attach" { "attached or detached since" } else { "the disk was attached again" };
        assert!(error.message().contains("attached to node node-1") && error.message().contains(why), "{error}");
        assert_eq!((rig.luns("node-1").len(), rig.vm_writes("node-1").len()), (1, 2), "{blocked}");
        // A person decides about the deletion. The attach is judged anew when it is requested again.
        let reported = kubernetes.reported();
        assert_eq!(reported.len(), usize::from(blocked == "deletion"), "{reported:?}");
        rig.check();
        rig.stop().await;
    }
}

/// Azure makes the detach wait, and meanwhile another replica answers an attach there.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_that_a_volume_attachment_names_while_its_detach_waits_stays() {
    for blocked in ["attach", "deletion"] {
        let kubernetes = Kubernetes::idle();
        let (say, reservations) = watch::channel(LunReservations::Synced(Default::default()));
        let (rig, client, volume) =
            attached_rig(&kubernetes, |options| options.reservations = Some(reservations)).await;
        vm_reads_wait(&rig);
        let requested = tokio::spawn({
            let (client, volume) = (client.clone(), volume.clone());
            async move {
                match blocked {
                    "attach" => publish(&client, &volume, "node-0").await.map(drop),
                    _ => delete(&client, &volume.volume_id).await,
                }
            }
        });
        pass(seconds(5)).await;
        assert_eq!(kubernetes.asked(), 1, "the detach is not requested yet");
        let reservation = Reservation {
            lun: Lun::try_from(0).unwrap(),
            volume_handle: Some(disk_id("pvc-a")),
            attachment: "csi-late".into(),
        };
        say.send_replace(LunReservations::Synced([("node-1".to_owned(), vec![reservation])].into()));
        let error = requested.await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{blocked}: {error}");
        assert!(error.message().contains("a VolumeAttachment of the node names"), "{error}");
        assert_eq!((rig.luns("node-1").len(), rig.writes().len()), (1, usize::from(blocked == "deletion")));
        rig.check();
        rig.stop().await;
    }
}

/// external-attacher asks for the same detach while the one for the deletion waits. Its request has no condition.
#[tokio::test(start_paused = true)]
async fn disk_an_unpublish_that_joins_the_detach_for_a_deletion_is_carried_out_whatever_another_hand_does() {
    let kubernetes = Kubernetes::idle();
    let (rig, client, volume) = attached_rig(&kubernetes, |_| {}).await;
    vm_reads_wait(&rig);
    let deleting = tokio::spawn({
        let (client, id) = (client.clone(), volume.volume_id.clone());
        async move { delete(&client, &id).await }
    });
    pass(seconds(5)).await;
    let other = rig.other_tool();
    assert_eq!(other.detach("node-1", &["pvc-a"]).await, 202);
    pass(seconds(20)).await;
    assert_eq!(other.attach("node-1", &[("pvc-a", 5)]).await, 202);
    pass(seconds(20)).await;
    unpublish(&client, &volume.volume_id, "node-1").await.unwrap();
    deleting.await.unwrap().unwrap();
    assert_eq!(rig.luns("node-1").len(), 0);
    rig.check_empty();
    rig.stop().await;
}
