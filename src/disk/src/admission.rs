//! Whether a disk may be attached for what asks for it. Decided in [`lazuli_storage::inline_volume`]; what Kubernetes says
//! comes through a function, because this crate knows nothing of its client.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use lazuli_azure::compute::Freshness;
use lazuli_model::{
    ArmId, VolumeId,
    event::{Event, Reason, Regarding},
    fault::Fault,
};
use lazuli_quota::permit::Priority;
use lazuli_storage::{
    disk::AllowedResourceGroups,
    inline_volume::{Attachment, AttachmentSource, InlineVolumes, Verdict},
    list::VolumeHandles,
};

use super::{VolumeError, Volumes};

type Read = dyn Fn(String, String) -> BoxFuture<'static, Result<AttachmentSource, String>> + Send + Sync;

/// How to ask Kubernetes, live, what the VolumeAttachment of a volume on a node is about.
#[derive(Clone)]
pub struct AttachmentSourceReader(Arc<Read>);

impl fmt::Debug for AttachmentSourceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachmentSourceReader").finish_non_exhaustive()
    }
}

impl AttachmentSourceReader {
    /// `read` gives the source by the volume's handle and the node's name, or why it is not known.
    pub fn new(
        read: impl Fn(String, String) -> BoxFuture<'static, Result<AttachmentSource, String>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(read))
    }
}

/// Which attachments the operator allows.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// In which resource groups disks may be.
    pub resource_groups: AllowedResourceGroups,
    /// Which disks Pods may name.
    pub inline: InlineVolumes,
    /// How to ask Kubernetes; without it there is no cluster to ask.
    pub source: Option<AttachmentSourceReader>,
}

impl Volumes {
    /// Refuses to attach a disk that may not be attached for what asks for it. One that the VM holds already stays, with an
    /// event.
    ///
    /// # Errors
    /// [`Fault::Invalid`] with the reason; [`Fault::Unavailable`] while it is not known what asks.
    pub(super) async fn admit(&self, disk: &ArmId, node: &str, vm: &ArmId) -> Result<(), VolumeError> {
        let Admission { resource_groups, inline, source } = &self.admission;
        let cluster = (self.group.subscription.as_str(), self.group.name.as_str());
        let resource_group = resource_groups.check((disk.subscription(), disk.resource_group()), cluster);
        let unknown = |why: String| {
            VolumeError::new(
                Fault::Unavailable,
                format!("{disk} cannot be attached to node {node}: it is not known what asks for it: {why}"),
            )
        };
        let source = match source {
            Some(reader) if *inline == InlineVolumes::Unclaimed => {
                let name = self.nodes.node_of(vm).unwrap_or_else(|| node.to_owned());
                (reader.0)(disk.to_string(), name).await.map_err(unknown)?
            }
            _ => AttachmentSource::Unknown,
        };
        let attachment = Attachment { inline: *inline, source, resource_group, vm };
        if !attachment.needs_the_disk() {
            return Ok(());
        }
        let read = self.client.read_disk(disk, Freshness::single().priority(Priority::Attach)).await;
        let read = read.map_err(|error| VolumeError::azure(format!("{disk} cannot be read"), error))?;
        let volume = match &*self.handles.borrow() {
            VolumeHandles::NoCluster => None,
            VolumeHandles::Cold => return Err(unknown("the cluster's PersistentVolumes are not known yet".to_owned())),
            VolumeHandles::Synced(volumes) => {
                let is_it = |handle: &str| handle.parse::<VolumeId>().is_ok_and(|volume| volume.disk() == disk);
                volumes.iter().find(|(_, handle)| is_it(handle)).map(|(name, _)| name.clone())
            }
        };
        match attachment.judge(volume.as_deref(), &read.model) {
            Verdict::Admit => Ok(()),
            Verdict::Kept(objection) => {
                if let Some(node) = Regarding::of_node(node) {
                    let what = format!(
                        "Disk {} is attached to this node already and stays, though its attach would be refused now: \
                         {objection}",
                        disk.name()
                    );
                    self.events.send(Event::new(node, Reason::AttachmentNotAllowed, what));
                }
                Ok(())
            }
            Verdict::Refuse(objection) => {
                Err(VolumeError::new(Fault::Invalid, format!("{disk} cannot be attached to node {node}: {objection}")))
            }
        }
    }
}
