//! Staging and unstaging; the state machine is in the [module above](super).

use std::path::Path;

use lazuli_host::{
    Deadline,
    device::{self, Device, FindError},
    device_number::DeviceNumber,
    format::{self, Outcome, WhenBlank},
    fs_type::FsType,
    fsck,
    mount::{self, TargetKind, TargetState},
    options::Options,
    probe::Filesystem,
    release::{self, ReleaseError, Released},
    resize::{self, ResizeError},
    volume_records::{Record, RecordedDevice},
};
use lazuli_model::{Lun, VolumeId};
use lazuli_storage::device_identity::Metadata;

use crate::calls::CallError as _;

use super::{
    Node,
    attachment::{Identity, identify, locate},
    device::{at, is_part_of, node_number, number_of, part, with_number},
    error::NodeError,
    identity_check::{self, Checked},
    request::{Access, Stage},
    tuning, volume_mode,
};

/// Makes the volume ready to be published; repeating it is success.
pub(super) async fn stage(node: &Node, request: &Stage) -> Result<(), NodeError> {
    let times = &node.config.timeouts;
    let lun = request.parameters.lun;
    let (found, identity) = tokio::try_join!(
        async {
            let deadline = Deadline::after(times.find);
            device::wait_for_lun(&node.host, lun.get().into(), deadline).await.map_err(NodeError::Find)
        },
        async {
            let known = identify(node, &request.volume, lun, Deadline::after(times.identity)).await;
            if known.is_err() {
                // The metadata has caught up: what stood there was another disk.
                node.identity_checks.forget(request.volume.as_str());
            }
            known
        },
    )?;
    // What was found before the disk was identified may have been its predecessor.
    let disk = at(&node.host, lun, None).await?;
    if disk.number != found.number {
        return Err(NodeError::Changed { lun, before: found.name, after: disk.name });
    }
    let disk = of_full_size(node, disk, &identity, request).await?;
    let device = part(&node.host, disk.clone(), request.parameters.partition)?;
    match &request.access {
        // The device itself is bound when it is published; the record is what unstaging goes by.
        Access::Block => {
            volume_mode::not_mounted(node, request.volume.as_str(), &request.staging, [&device, &disk]).await?;
            let volume = (&request.volume, lun);
            let accepted = identity_check::check_raw(node, volume, &device, &identity).await?;
            tuning::apply(node, &disk, &request.parameters).await?;
            node.remember(record(request, &device, None)).await?;
            use_up(node, volume, accepted).await;
            Ok(())
        }
        Access::Filesystem { fs, options } => {
            let read_only = options.is_read_only() || device.read_only;
            filesystem(node, request, &device, &DesiredMount { fs: *fs, options, read_only, disk: &disk }, &identity)
                .await
        }
    }
}

/// How a filesystem is to be mounted.
struct DesiredMount<'a> {
    fs: FsType,
    options: &'a Options,
    /// Asked for, or all that the device allows.
    read_only: bool,
    /// The whole disk, where the volume is on a partition of it.
    disk: &'a Device,
}

/// The disk, once it is as large as the volume and the metadata say. A larger one is fine: it was grown.
async fn of_full_size(node: &Node, disk: Device, identity: &Identity, request: &Stage) -> Result<Device, NodeError> {
    let Some(least) = identity.size().max(request.parameters.requested_size) else { return Ok(disk) };
    let deadline = Deadline::after(node.config.timeouts.size);
    match resize::rescan(&node.host, &disk, least.bytes(), deadline).await {
        Ok(disk) => Ok(disk),
        Err(ResizeError::TooSmall { now, wanted, .. }) => {
            Err(NodeError::Size { device: disk.name, lun: request.parameters.lun, found: now, wanted })
        }
        Err(other) => Err(NodeError::Grow(other)),
    }
}

fn record(request: &Stage, device: &Device, filesystem: Option<&Filesystem>) -> Record {
    Record {
        volume_id: request.volume.as_str().to_owned(),
        lun: Some(request.parameters.lun.get().into()),
        fs_uuid: filesystem.and_then(|found| found.uuid.clone()),
        fs_type: filesystem.map(|found| found.kind.clone()),
        staging_path: Some(request.staging.clone()),
        device_name: Some(device.name.clone()),
        device: Some(device.number),
        sequence: device.sequence.clone(),
    }
}

async fn filesystem(
    node: &Node,
    request: &Stage,
    device: &Device,
    desired: &DesiredMount<'_>,
    identity: &Identity,
) -> Result<(), NodeError> {
    let fs = match staged(node, request, device, desired).await? {
        Some(fs) => {
            identity.not_contradicted_in_silence(&request.volume, request.parameters.lun)?;
            fs
        }
        None => {
            volume_mode::not_raw(node, [device, desired.disk]).await?;
            // Two copies of one btrfs must not be looked at and mounted side by side.
            let _turn = match desired.fs {
                FsType::Btrfs => node.btrfs.acquire().await.ok(),
                _ => None,
            };
            prepare_and_mount(node, request, device, desired, identity).await?
        }
    };
    if desired.read_only {
        return Ok(());
    }
    let deadline = Deadline::after(node.config.timeouts.grow);
    let grown = async {
        if resize::needs_resize(&node.host, device, fs, &request.staging, deadline).await? {
            resize::grow(&node.host, device, fs, &request.staging, deadline).await?;
        }
        Ok(())
    };
    grown.await.map_err(|error| NodeError::AfterMount(Box::new(NodeError::Grow(error))))
}

/// The file system that is mounted at the staging path already, where it is the volume's. A dead mount there is taken
/// away.
async fn staged(
    node: &Node,
    request: &Stage,
    device: &Device,
    desired: &DesiredMount<'_>,
) -> Result<Option<FsType>, NodeError> {
    let (fs, read_only) = (desired.fs, desired.read_only);
    let deadline = Deadline::after(node.config.timeouts.mount);
    let state = mount::state(&node.host, &request.staging, deadline).await.map_err(NodeError::Mount)?;
    let top = match state {
        TargetState::Absent | TargetState::Bare(_) => return Ok(None),
        TargetState::Corrupted { error, .. } => {
            tracing::warn!(staging = %request.staging.display(), error, "a dead mount is taken away");
            mount::unmount(&node.host, &request.staging, deadline).await.map_err(NodeError::Mount)?;
            return Ok(None);
        }
        TargetState::Mounted(mounts) => mounts.into_iter().next_back(),
    };
    let Some(top) = top else { return Ok(None) };
    let written = |read_only| if read_only { "read-only" } else { "writable" };
    if mount::is_of(&top, device)
        && top.read_only() == read_only
        && let Some(mounted) = fs.existing(&top.fs_type)
    {
        return Ok(Some(mounted));
    }
    Err(NodeError::Incompatible {
        path: request.staging.clone(),
        found: format!("{} of {} ({}), {}", top.fs_type, top.source.display(), top.device, written(top.read_only())),
        wanted: format!("{fs} of {} ({}), {}", device.path.display(), device.number, written(read_only)),
    })
}

async fn prepare_and_mount(
    node: &Node,
    request: &Stage,
    device: &Device,
    desired: &DesiredMount<'_>,
    identity: &Identity,
) -> Result<FsType, NodeError> {
    let times = &node.config.timeouts;
    let host = &node.host;
    let DesiredMount { fs, options, read_only, disk } = *desired;
    let volume = (&request.volume, request.parameters.lun);
    let Checked { verdict, accepted } = identity_check::check(node, volume, device, identity).await?;
    let checked = verdict.filesystem().cloned();
    let when_blank = if read_only || request.has_content { WhenBlank::Refuse } else { WhenBlank::Format };
    let wanted = format::Request { volume: request.volume.as_str(), fs, when_blank };
    let outcome = format::ensure_filesystem(host, device, wanted, Some(verdict), Deadline::after(times.format))
        .await
        .map_err(|error| NodeError::Format(Box::new(error)))?;
    let found = outcome.filesystem();
    // An existing ext2 or ext3 may stand where ext4 is asked for.
    let fs = fs.existing(&found.kind).unwrap_or(fs);
    if !matches!(outcome, Outcome::Created(_)) {
        // It is looked at again before it is formatted, and another process may have formatted it meanwhile.
        if checked.as_ref().is_none_or(|checked| checked.uuid != found.uuid) {
            let before = checked.map_or_else(|| "no file system".to_owned(), |checked| described(&checked));
            let (lun, after) = (request.parameters.lun, described(found));
            return Err(NodeError::Changed { lun, before, after });
        }
        if let (FsType::Btrfs, Some(uuid)) = (fs, &found.uuid) {
            let others = node.others_with_uuid(request.volume.as_str(), uuid).await?;
            refuse_a_twin(node, device, uuid, &others).await?;
        }
        let in_use = mount::table(host).await.map_err(NodeError::Mount)?;
        let in_use = in_use.iter().any(|mount| mount::is_of(mount, device));
        // A repair writes, and one beside a mount destroys.
        if !read_only && !in_use {
            fsck::repair(host, device, Deadline::after(times.check)).await.map_err(NodeError::Check)?;
        }
    }
    tuning::apply(node, disk, &request.parameters).await?;
    // Before the mount: an unstage after a crash must know which device to release.
    node.remember(record(request, device, Some(found))).await?;
    use_up(node, volume, accepted).await;
    let deadline = Deadline::after(times.mount);
    let mounted = async {
        mount::ensure_target(host, &request.staging, TargetKind::Directory, deadline).await?;
        mount::mount_block(host, device, &request.staging, fs.as_str(), options, deadline).await
    };
    match mounted.await {
        Ok(_) => Ok(fs),
        Err(error) => {
            let error = NodeError::Mount(error);
            // kubelet will not unstage after a final code, so nothing must be left to unstage.
            if !error.code().keeps_the_claim() {
                node.forget(request.volume.as_str()).await?;
            }
            Err(error)
        }
    }
}

/// What an operator has accepted is the volume's own from now on, whatever the metadata said before.
async fn use_up(node: &Node, (volume, lun): (&VolumeId, Lun), accepted: Option<String>) {
    if let Some(accepted) = accepted {
        node.acceptances.use_up(volume, &accepted).await;
        node.contradictions.note(volume, lun, None).await;
    }
}

/// A file system in words.
fn described(filesystem: &Filesystem) -> String {
    format!("{} {}", filesystem.kind, filesystem.uuid.as_deref().unwrap_or("without a UUID"))
}

/// The kernel tells btrfs devices apart by nothing but this id.
async fn refuse_a_twin(node: &Node, device: &Device, fsid: &str, others: &[Record]) -> Result<(), NodeError> {
    let twin = |other: String| Err(NodeError::TwinBtrfs { fsid: fsid.to_owned(), other });
    let table = mount::table(&node.host).await.map_err(NodeError::Mount)?;
    for other in others.iter().filter(|other| other.device != Some(device.number)) {
        let mounted = table.iter().any(|mount| Some(number_of(mount)) == other.device);
        if mounted {
            return twin(other.volume_id.clone());
        }
    }
    // The members of every mounted btrfs, whichever process mounted it (source: the kernel's btrfs sysfs interface).
    let members = node.host.root().join("sys/fs/btrfs").join(fsid).join("devices");
    let Ok(members) = std::fs::read_dir(members) else { return Ok(()) };
    let names: Vec<_> = members.flatten().map(|entry| entry.file_name()).collect();
    let node_name = std::fs::canonicalize(&device.path).ok();
    let own = node_name.as_deref().and_then(Path::file_name);
    match names.iter().find(|name| Some(name.as_os_str()) != own) {
        Some(other) if !names.iter().any(|name| Some(name.as_os_str()) == own) => {
            twin(other.to_string_lossy().into_owned())
        }
        _ => Ok(()),
    }
}

/// Undoes staging and proves that the disk may be detached; repeating it is success.
pub(super) async fn unstage(node: &Node, volume: &str, staging: &Path) -> Result<(), NodeError> {
    let host = &node.host;
    let deadline = Deadline::after(node.config.timeouts.release);
    let state = mount::state(host, staging, deadline).await.map_err(NodeError::Mount)?;
    let device = match &state {
        TargetState::Mounted(mounts) | TargetState::Corrupted { mounts, .. } => match mounts.last() {
            // Before the unmount, after which the mount table does not know any more.
            Some(top) => {
                refuse_the_path_of_another(node, volume, staging, number_of(top)).await?;
                with_number(host, number_of(top)).await?
            }
            None => remembered(node, volume, deadline).await?,
        },
        TargetState::Absent | TargetState::Bare(_) => remembered(node, volume, deadline).await?,
    };
    match (mount::unmount(host, staging, deadline).await, &device) {
        (Ok(_), _) => {}
        (Err(mount::MountError::Busy { .. }), Some(device)) => {
            let holders = release::holders(host, device).await;
            return Err(NodeError::Release(ReleaseError::InUse { path: device.path.clone(), holders }));
        }
        (Err(error), _) => return Err(NodeError::Mount(error)),
    }
    if let Some(device) = device {
        let released = release::ensure_released(host, &device, deadline).await.map_err(NodeError::Release)?;
        match released {
            Released::Free => {}
            Released::Gone => tracing::warn!(volume, device = device.name, "the disk was gone before it was unstaged"),
        }
    }
    node.retire(volume).await
}

/// A call that pairs a volume with the staging path of another would unmount the other, and answer for a volume that is
/// still in use that its disk may go.
async fn refuse_the_path_of_another(
    node: &Node,
    volume: &str,
    staging: &Path,
    mounted: DeviceNumber,
) -> Result<(), NodeError> {
    let records = node.all_records().await;
    let of_it = |record: &&Record| record.device == Some(mounted) && record.staging_path.as_deref() == Some(staging);
    let is_own = |record: &Record| record.volume_id.eq_ignore_ascii_case(volume);
    let owners: Vec<&Record> = records.values().filter(of_it).collect();
    match owners.first() {
        Some(other) if !owners.iter().any(|record| is_own(record)) => {
            Err(NodeError::StagingOfAnother { path: staging.to_owned(), other: other.volume_id.clone() })
        }
        _ => Ok(()),
    }
}

/// The device of a volume that is not mounted: by this node's record, else by the instance metadata (a raw block
/// volume that another driver staged). A device that has the number of one that left is none of the volume's: another
/// volume uses it, and says nothing of whether this one is free.
async fn remembered(node: &Node, volume: &str, deadline: Deadline) -> Result<Option<Device>, NodeError> {
    let host = &node.host;
    if let Some(record) = node.recall(volume).await {
        let Some(number) = record.device else { return Ok(None) };
        if let Some(lun) = record.lun {
            let is_part = |disk: &str| record.device_name.as_ref().is_some_and(|name| is_part_of(name, disk));
            match device::find_by_lun(host, lun).await {
                Ok(disk) if record.names(&disk) != RecordedDevice::Other => return Ok(Some(disk)),
                // Another disk is there now, or none; the record may still name a partition.
                Ok(disk) if !is_part(&disk.name) => return Ok(None),
                Err(FindError::NotFound { .. }) => return Ok(None),
                Ok(_) | Err(_) => {}
            }
        }
        let found = with_number(host, number).await?;
        return Ok(found.filter(|found| record.names(found) != RecordedDevice::Other));
    }
    let Ok(id) = volume.parse::<VolumeId>() else { return Ok(None) };
    let quick = deadline.capped(node.config.timeouts.instance);
    let Some(lun) = locate(node.imds.as_ref(), &id, quick).await else { return Ok(None) };
    match at(host, lun, None).await {
        Ok(disk) => Ok(Some(disk)),
        Err(NodeError::Find(FindError::NotFound { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The device that a block volume was staged with, if it is the one at the LUN.
pub(super) async fn staged_block(
    node: &Node,
    volume: &str,
    staging: &Path,
    parameters: &lazuli_storage::disk::StageParameters,
) -> Result<Device, NodeError> {
    let device = at(&node.host, parameters.lun, parameters.partition).await?;
    let id: VolumeId = volume.parse().map_err(NodeError::VolumeId)?;
    let deadline = Deadline::after(node.config.timeouts.instance);
    let identity = identify(node, &id, parameters.lun, deadline).await?;
    identity.not_contradicted_in_silence(&id, parameters.lun)?;
    let is_node = node_number(&device.path) == Some(device.number);
    volume_mode::not_mounted(node, volume, staging, [&device, &device]).await?;
    let is_it = matches!(identity.metadata, Metadata::Confirms(_)) || node.is_recorded(volume, &device).await;
    match is_node && is_it {
        true => Ok(device),
        false => Err(NodeError::NotStaged(staging.to_owned())),
    }
}
