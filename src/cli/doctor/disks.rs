//! Which disks are attached and would not be attached now. Decided in [`lazuli_storage::inline_volume`]; here are the reads.

use std::collections::BTreeMap;

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
use lazuli_storage::{
    disk::AllowedResourceGroups,
    inline_volume::{Attachment, AttachmentSource, InlineVolumes, Verdict},
};

use super::cluster::READS;

/// So many disks are read: each costs a request.
const MOST_READ: usize = 100;

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
    let volume_of = |disk: &ArmId| {
        let is_it = |handle: &str| handle.parse::<VolumeId>().is_ok_and(|volume| volume.disk() == disk);
        handles.iter().find(|(_, handle)| is_it(handle)).map(|(name, _)| *name)
    };
    let allowed = flags.allowed_groups.iter().filter_map(|group| group.parse().ok()).collect();
    let allowed = AllowedResourceGroups::of(allowed);
    let cluster = (config.cluster.subscription_id.as_str(), config.cluster.resource_group.as_str());
    let inline = if flags.allows_inline { InlineVolumes::Any } else { InlineVolumes::Unclaimed };
    let (mut kept, mut unread, mut reads) = (Vec::new(), Vec::new(), 0);
    for attachment in list_attachments(client, &flags.driver).await? {
        let (handle, source) = match &attachment.volume {
            AttachedVolume::Persistent(name) => {
                (handles.get(name.as_str()).copied(), AttachmentSource::PersistentVolume)
            }
            AttachedVolume::Inline(handle) => (Some(handle.as_str()), AttachmentSource::Inline),
        };
        let volume = handle.and_then(|handle| handle.parse::<VolumeId>().ok());
        let (Some(volume), Some(vm)) = (volume, machines.get(&attachment.node)) else { continue };
        let disk = volume.disk();
        let resource_group = allowed.check((disk.subscription(), disk.resource_group()), cluster);
        let asked = Attachment { inline, source, resource_group, vm };
        if !asked.needs_the_disk() {
            continue;
        }
        reads += 1;
        let until = Until::within(READS);
        let read = match reads <= MOST_READ {
            true => compute.read_disk(disk, Freshness::any(), &until).await.ok(),
            false => None,
        };
        match read.map(|read| asked.judge(volume_of(disk), &read.model)) {
            Some(Verdict::Kept(objection)) => {
                let (disk, node) = (disk.name().to_owned(), attachment.node);
                kept.push(KeptDisk { disk, node, why: objection.to_string() });
            }
            Some(Verdict::Admit | Verdict::Refuse(_)) => {}
            None => unread.push(disk.name().to_owned()),
        }
    }
    Ok(kept::disks(&kept, &unread))
}
