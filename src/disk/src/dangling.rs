//! Detaches a disk from a node that Kubernetes uses it on no more, so that it can be attached where it is wanted.
//!
//! Decided in [`lazuli_plan::dangling`]; done by the worker of the VM that holds the disk, which alone writes its data
//! disks. What Kubernetes says comes through a function, because this crate knows nothing of its client.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use lazuli_plan::{
    dangling::{self, NodeFacts},
    event::{Event, Reason, Regarding},
    fault::Fault,
    lun::{LunReservations, NodeReservations},
    model::ArmId,
};
use tracing::{info, warn};

use super::{Goal, VolumeError, Volumes};

type Read = dyn Fn(String) -> BoxFuture<'static, Result<NodeFacts, String>> + Send + Sync;

/// How to ask Kubernetes, live, what a node uses.
#[derive(Clone)]
pub struct NodeFactsReader {
    driver: String,
    read: Arc<Read>,
}

impl fmt::Debug for NodeFactsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeFactsReader").field("driver", &self.driver).finish_non_exhaustive()
    }
}

impl NodeFactsReader {
    /// `read` gives the facts about the node of a name, or why they are not known; `driver` is the CSI driver's name.
    pub fn new(
        driver: &str,
        read: impl Fn(String) -> BoxFuture<'static, Result<NodeFacts, String>> + Send + Sync + 'static,
    ) -> Self {
        Self { driver: driver.to_owned(), read: Arc::new(read) }
    }
}

/// Why a disk was not detached from its holder.
enum Kept {
    /// It is in use there, or no case for this.
    InUse,
    /// It may be in use there.
    Doubt {
        why: String,
        /// The node to show an event on, where a person must look.
        node: Option<String>,
    },
    /// The detach failed.
    Failed(VolumeError),
}

impl Volumes {
    /// After a publish that failed because another VM holds the disk: detaches it there if that attachment is dangling.
    ///
    /// # Errors
    /// `refused`, with the reason why the attachment is not taken for dangling where there is one to tell.
    pub(super) async fn free_from_dangling(&self, disk: &ArmId, refused: VolumeError) -> Result<(), VolumeError> {
        match self.detach_dangling(disk).await {
            Ok(()) => Ok(()),
            Err(Kept::InUse) => Err(refused),
            Err(Kept::Doubt { why, node }) => {
                if let Some(node) = node {
                    let what = format!(
                        "Disk {} is attached to this node, a pod on another node waits for it, and it is not detached \
                         here: {why}",
                        disk.name()
                    );
                    self.events.send(Event::new(Regarding::Node(node), Reason::StaleAttachmentKept, what));
                }
                Err(refused.suffixed(&format!("it is not detached from there, because {why}")))
            }
            Err(Kept::Failed(error)) => {
                warn!(%disk, %error, "a dangling attachment could not be detached");
                Err(refused)
            }
        }
    }

    async fn detach_dangling(&self, disk: &ArmId) -> Result<(), Kept> {
        let Some(facts) = &self.node_facts else { return Err(Kept::InUse) };
        let disk_read = self
            .client
            .get_disk(disk)
            .await
            .map_err(|error| Kept::Failed(VolumeError::azure(format!("{disk} cannot be read"), error)))?;
        let Some(holder) = dangling::holder(&disk_read.model) else { return Err(Kept::InUse) };
        let Some(node) = self.nodes.node_of(holder) else { return Err(Kept::InUse) };
        // The usual case, and told without a question: the disk is used there.
        if self.names_a_lun(&node, disk) || self.workers.is_requested(holder, disk) {
            return Err(Kept::InUse);
        }
        let read = (facts.read)(node.clone()).await;
        let read = read.map_err(|why| Kept::Doubt { why, node: Some(node.clone()) })?;
        dangling::check(disk, &facts.driver, &read).map_err(|doubt| Kept::Doubt {
            why: doubt.to_string(),
            node: doubt.needs_a_person().then(|| node.clone()),
        })?;
        if self.workers.is_requested(holder, disk) {
            return Err(Kept::InUse);
        }
        warn!(%disk, node, "the disk is attached to a node on which Kubernetes does not use it; detaching it there");
        self.request(holder, &node, disk, Goal::Detached).await.map_err(Kept::Failed)?;
        info!(%disk, node, "the dangling attachment is gone");
        let what = format!(
            "Disk {} was attached to this node although Kubernetes did not use it here, and was detached because a pod \
             on another node waited for it",
            disk.name()
        );
        self.events.send(Event::new(Regarding::Node(node), Reason::StaleAttachmentDetached, what));
        Ok(())
    }

    /// Whether a VolumeAttachment on the node names a LUN of the disk.
    fn names_a_lun(&self, node: &str, disk: &ArmId) -> bool {
        match &*self.reservations.now() {
            LunReservations::NoCluster => false,
            LunReservations::Cold => true,
            synced => match synced.of_node(&[node]) {
                NodeReservations::Unknown => true,
                NodeReservations::Known(luns) => luns.values().flatten().any(|owner| owner.as_ref() == Some(disk)),
            },
        }
    }
}

/// Whether a failure says that another VM holds the disk.
pub(super) fn is_held_elsewhere(error: &VolumeError) -> bool {
    matches!(error.fault, Fault::AttachedElsewhere { .. })
}
