//! What the operator allows to be attached, and how Kubernetes is asked what asks for it. Decided in
//! [`lazuli_storage::inline_volume`]; what Kubernetes says comes through a function, because this crate knows nothing of its
//! client.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use lazuli_storage::inline_volume::{AttachmentSource, InlineVolumes};
use lazuli_volume::AllowedResourceGroups;

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

    /// What the VolumeAttachment of a volume on a node is about, or why that is not known.
    pub(crate) async fn read(&self, handle: String, node: String) -> Result<AttachmentSource, String> {
        (self.0)(handle, node).await
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
