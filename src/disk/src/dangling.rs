//! Detaches a disk from a node that Kubernetes uses it on no more, so that it can be attached where it is wanted, or
//! deleted with its volume.
//!
//! Decided in [`lazuli_storage::dangling`]; done by the worker of the VM that holds the disk, which alone writes its data
//! disks. What Kubernetes says comes through a function, because this crate knows nothing of its client.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use lazuli_model::{
    ArmId,
    event::{Event, Reason, Regarding},
    fault::Fault,
};
use lazuli_storage::dangling::{self, Blocked, Dangling, NodeFacts, NotDangling};
use tracing::{info, warn};

use super::{VolumeError, Volumes};

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

/// Why the disk should leave its node, in an event.
fn reason(blocked: Blocked) -> &'static str {
    match blocked {
        Blocked::Attach => "a pod on another node waits for it",
        Blocked::Delete => "its volume is being deleted",
    }
}

/// What the reader of the answer can do where Kubernetes does not say that the disk is in use.
fn next_step(blocked: Blocked, command: Option<&str>) -> String {
    let what = match blocked {
        Blocked::Attach => "if nothing uses it there, detach it in Azure, and the attach goes on",
        Blocked::Delete => "if nothing uses it there, detach it in Azure, and the deletion goes on",
    };
    command.map_or_else(|| what.to_owned(), |command| format!("{what}: {command}"))
}

/// Why a disk was not detached from its holder.
enum Kept {
    /// It is in use there, or no case for this.
    InUse,
    /// It may be in use there.
    NotDangling {
        why: String,
        /// Whether Kubernetes itself says that the disk is used there.
        is_use: bool,
        /// The node to show an event on, where a person must look.
        node: Option<String>,
        /// The command that detaches it.
        command: Option<String>,
    },
    /// The detach failed.
    Failed(VolumeError),
}

impl Kept {
    /// `node` is the holder's, where it is a node.
    fn because(reason: &NotDangling, node: Option<&str>, command: Option<&str>) -> Self {
        let node = node.filter(|_| reason.needs_a_person()).map(str::to_owned);
        Self::NotDangling {
            why: reason.to_string(),
            is_use: reason.is_use(),
            node,
            command: command.map(str::to_owned),
        }
    }
}

impl Volumes {
    /// After a request that failed because another VM holds the disk: detaches it there if that attachment is dangling.
    ///
    /// # Errors
    /// `refused`, with the reason why the attachment is not taken for dangling where there is one to tell.
    pub(super) async fn free_from_dangling(
        &self,
        disk: &ArmId,
        blocked: Blocked,
        refused: VolumeError,
    ) -> Result<(), VolumeError> {
        match self.detach_dangling(disk, blocked).await {
            Ok(()) => Ok(()),
            Err(Kept::InUse) => Err(refused),
            Err(Kept::NotDangling { why, is_use, node, command }) => {
                if let Some(node) = node {
                    let mut what = format!(
                        "Disk {} is attached to this node, {}, and it is not detached here: {why}",
                        disk.name(),
                        reason(blocked)
                    );
                    if let Some(command) = &command {
                        what += &format!(". The command is: {command}");
                    }
                    self.events.send(Event::new(Regarding::Node(node), Reason::StaleAttachmentKept, what));
                }
                let refused = refused.suffixed(&format!("it is not detached from there, because {why}"));
                Err(if is_use { refused } else { refused.suffixed(&next_step(blocked, command.as_deref())) })
            }
            Err(Kept::Failed(error)) => {
                warn!(%disk, %error, "a dangling attachment could not be detached");
                Err(refused)
            }
        }
    }

    async fn detach_dangling(&self, disk: &ArmId, blocked: Blocked) -> Result<(), Kept> {
        let Some(facts) = &self.node_facts else { return Err(Kept::InUse) };
        let disk_read = self
            .client
            .get_disk(disk)
            .await
            .map_err(|error| Kept::Failed(VolumeError::azure(format!("{disk} cannot be read"), error)))?;
        // The usual case, and told without a question: the disk is used where it is.
        if disk_read.model.holders().into_iter().any(|holder| self.is_used_on(holder, disk)) {
            return Err(Kept::InUse);
        }
        self.workers.memory().seen_attachments.held_by(disk, &disk_read.model.holders());
        let holder = dangling::holder(&disk_read.model).map_err(|reason| Kept::because(&reason, None, None))?;
        let Some(holder) = holder else { return Err(Kept::InUse) };
        let command = dangling::detach_command(holder, disk);
        let Some(node) = self.nodes.node_of(holder) else {
            let is_no_node = self.nodes.is_no_node(holder);
            let reason = NotDangling::NotANode;
            return Err(if is_no_node { Kept::because(&reason, None, Some(&command)) } else { Kept::InUse });
        };
        let kept = |reason: NotDangling| Kept::because(&reason, Some(&node), Some(&command));
        let read = (facts.read)(node.clone()).await;
        let read = read.map_err(|why| Kept::NotDangling {
            why,
            is_use: false,
            node: Some(node.clone()),
            command: Some(command.clone()),
        })?;
        dangling::check(disk, &facts.driver, &read).map_err(kept)?;
        let attached_by = self.workers.memory().seen_attachments.attached_by(&disk_read.model, holder);
        dangling::may_detach(blocked, self.detach_unused, attached_by).map_err(kept)?;
        // Kubernetes may have begun to use it there since it was asked.
        if self.is_used_on(holder, disk) {
            return Err(Kept::InUse);
        }
        warn!(%disk, node, "the disk is attached to a node on which Kubernetes does not use it; detaching it there");
        // A person may attach the disk there again while the cluster is asked and the detach waits. So the VM worker reads
        // the disk again before it sends the detach.
        let only_if = Dangling::new(blocked, &disk_read.model, holder);
        let hold = self.occupied.attachment(disk).map_err(Kept::Failed)?;
        let detached = self.workers.detach_dangling(holder, &node, disk, only_if, hold).await;
        detached.map_err(|error| match error.why_not_dangling().cloned() {
            Some(reason) => kept(reason),
            None => Kept::Failed(error),
        })?;
        info!(%disk, node, "the dangling attachment is gone");
        let what = format!(
            "Disk {} was attached to this node although Kubernetes did not use it here; it was detached, because {}",
            disk.name(),
            reason(blocked)
        );
        self.events.send(Event::new(Regarding::Node(node), Reason::StaleAttachmentDetached, what));
        Ok(())
    }

    /// Whether a VolumeAttachment on the VM's node names the disk, or a request for both is under way.
    fn is_used_on(&self, holder: &ArmId, disk: &ArmId) -> bool {
        let is_named = || self.nodes.node_of(holder).is_some_and(|node| self.reservations.now().may_name(&node, disk));
        self.workers.is_requested(holder, disk) || is_named()
    }
}

/// Whether a failure says that another VM holds the disk.
pub(super) fn is_held_elsewhere(error: &VolumeError) -> bool {
    matches!(error.fault, Fault::AttachedElsewhere { .. })
}
