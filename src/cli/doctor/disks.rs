//! Which disks are attached and would not be attached now. Decided in [`lazuli_storage::inline_volume`]; here are the reads.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use lazuli_azure::{
    Until,
    compute::{Compute, Freshness},
};
use lazuli_cluster::{AttachedVolume, ListError, list_attachments, list_volumes};
use lazuli_config::Config;
use lazuli_diagnosis::{
    Finding,
    kept::{self, KeptDisk},
    managers::DiskFlags,
};
use lazuli_model::{ArmId, VolumeId};
use lazuli_storage::inline_volume::{Attachment, AttachmentSource, InlineVolumes, Verdict};
use lazuli_volume::AllowedResourceGroups;

use super::cluster::READS;

/// So many disks are read: each costs a request.
const MOST_READ: usize = 100;
/// So many of them at a time.
const AT_ONCE: usize = 8;

/// The managed disk that a handle names.
fn managed_disk(handle: &str) -> Option<ArmId> {
    handle.parse::<VolumeId>().ok()?.disk().managed().cloned()
}

/// Examines the attached disks of one driver. `machines` are those of the Nodes, by name.
///
/// # Errors
/// When the cluster cannot be listed.
pub(super) async fn attached(
    config: &Config,
    client: &kube::Client,
    compute: &Compute,
    flags: &DiskFlags,
    machines: &BTreeMap<String, ArmId>,
) -> Result<Vec<Finding>, ListError> {
    let volumes = list_volumes(client, &flags.driver).await?;
    let handles: BTreeMap<&str, &str> =
        volumes.iter().map(|volume| (volume.name.as_str(), volume.handle.as_str())).collect();
    let mut volumes_of: BTreeMap<ArmId, &str> = BTreeMap::new();
    for (name, handle) in &handles {
        if let Some(disk) = managed_disk(handle) {
            volumes_of.entry(disk).or_insert(name);
        }
    }
    let allowed = flags.allowed_groups.iter().filter_map(|group| group.parse().ok()).collect();
    let allowed = AllowedResourceGroups::of(allowed);
    let cluster = (config.cluster.subscription_id.as_str(), config.cluster.resource_group.as_str());
    let inline = if flags.allows_inline { InlineVolumes::Any } else { InlineVolumes::Unclaimed };
    let mut due = Vec::new();
    for attachment in list_attachments(client, &flags.driver).await? {
        let (handle, source) = match &attachment.volume {
            AttachedVolume::Persistent(name) => {
                (handles.get(name.as_str()).copied(), AttachmentSource::PersistentVolume)
            }
            AttachedVolume::Inline(handle) => (Some(handle.as_str()), AttachmentSource::Inline),
        };
        let disk = handle.and_then(managed_disk);
        let (Some(disk), Some(vm)) = (disk, machines.get(&attachment.node)) else { continue };
        let resource_group = allowed.check((disk.subscription(), disk.resource_group()), cluster);
        let asked = Attachment { inline, source, resource_group, vm };
        if asked.needs_the_disk() {
            due.push((disk, asked, attachment.node));
        }
    }
    let until = Until::within(READS);
    let until = &until;
    let ids: Vec<ArmId> = due.iter().take(MOST_READ).map(|(disk, ..)| disk.clone()).collect();
    let reads = ids.into_iter().map(|disk| async move { compute.read_disk(&disk, Freshness::any(), until).await.ok() });
    let reads: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
    let shown = reads.into_iter().chain(std::iter::repeat_with(|| None));
    let (mut kept, mut unread) = (Vec::new(), Vec::new());
    for ((disk, asked, node), read) in due.into_iter().zip(shown) {
        match read.map(|read| asked.judge(volumes_of.get(&disk).copied(), &read.model)) {
            Some(Verdict::Kept(objection)) => {
                kept.push(KeptDisk { disk: disk.name().to_owned(), node, why: objection.to_string() });
            }
            Some(Verdict::Admit | Verdict::Refuse(_)) => {}
            None => unread.push(disk.name().to_owned()),
        }
    }
    Ok(kept::disks(&kept, &unread, MOST_READ, READS))
}
