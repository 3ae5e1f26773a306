//! Which write a VM needs, given its data disks and their desired state, and which requests need none.
//!
//! The planner takes one VM and its disks as Azure described them, each with the read that says so ([`Evidence`]), and
//! the requests, each with its arrival. It returns at most one write, the outcome of each request that needs none, and
//! what must be read before it can decide the others ([`Open`]). It never changes a disk of which nothing is requested:
//! another program manages that disk.
//!
//! [`plan`] first decides what the evidence says of each request, and then which write follows from that.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{
    ArmId, CachingMode, DataDisk, Disk, DiskId, DiskState, Lun, ProvisioningState, SystemDisk, Vm,
    fault::Fault,
    op::{Attachment, VmWrite, VmWriteMethod},
};
use lazuli_quota::read::By;

use crate::lun::{self, NodeReservations};
use lazuli_vhd::attach as blob;
use lazuli_volume::is_zone_redundant;

pub use conflict::{Doubt, Explained, Refused};
pub use evidence::{
    Bounds, DetachMarks, DiskRead, Evidence, Goal, LISTS_LAG, Moment, Open, Plan, Request, Resolution, Shown, Wait,
    Writes, confirm, first_read, plan,
};

mod conflict;
mod evidence;

/// How a disk is to be attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// How the host caches the disk.
    pub caching: CachingMode,
    /// The disk encryption set to attach it with.
    pub disk_encryption_set: Option<ArmId>,
    /// Whether the write accelerator is on for the disk.
    pub write_accelerator: bool,
}

/// The desired state of one VM's data disks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct DesiredDisks {
    /// Disks that must be attached.
    attach: BTreeMap<DiskId, Terms>,
    /// Disks that must not be attached; none of them is in `attach`.
    detach: BTreeSet<DiskId>,
    /// Those of `detach` that may be detached by force.
    force: BTreeSet<DiskId>,
    /// Disks that must be attached, and that the VM lists although the disk's own state does not confirm the attach
    /// ([`confirmed_attached`] is false): an attach failed, and Azure left its element in the VM's model. None of them
    /// is in `attach` or `detach`.
    listed_not_attached: BTreeSet<DiskId>,
}

/// The outcome of a disk that needs no write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// The disk is attached.
    Attached {
        /// Its LUN.
        lun: Lun,
    },
    /// The disk is not attached.
    Detached,
    /// Nothing shows the disk attached, and an attach of it by the leader before may be under way
    /// ([`late_attach`](crate::late_attach)).
    MayBeAttaching,
    /// The VM has an element at this LUN that is not understood, and it may be the disk: whether the disk is attached is not
    /// known.
    MayBeListed {
        /// The LUN.
        lun: Lun,
    },
    /// Azure is still detaching the disk. It cannot be attached before the detach has finished.
    StillLeaving,
    /// Azure failed to detach the disk, and a VolumeAttachment says that the node may be using it. The planner neither
    /// detaches nor attaches it.
    DetachFailed,
    /// The VM's size takes no more data disks.
    TooManyDisks {
        /// How many the size takes.
        limit: usize,
        /// How many the VM has after this write, those of other programs included.
        attached: usize,
    },
    /// Every LUN is occupied, or named by a VolumeAttachment.
    NoFreeLun,
    /// The disk's own state does not allow its attach.
    Unattachable(Unattachable),
    /// The disk that is to be attached could not be read.
    UnreadableDisk,
}

impl Resolved {
    /// Whether the disk itself is the reason, and not the VM: in a bisection it is the failing disk then.
    pub fn is_the_disks_own(&self) -> bool {
        matches!(self, Self::Unattachable(_) | Self::UnreadableDisk)
    }
}

/// What [`write_for`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WritePlan {
    /// The outcome of each disk that needs no write.
    resolved: BTreeMap<DiskId, Resolved>,
    /// The one write. It is empty when there is nothing to do.
    write: VmWrite,
    /// Disks that cannot be attached now, and may be after this write, because it detaches other disks or these disks
    /// themselves. Plan again after the write.
    postponed: BTreeSet<DiskId>,
    /// Disks that get no LUN before the VolumeAttachments are known.
    unplaced: BTreeSet<DiskId>,
}

/// The write of one VM.
///
/// `limit` is the number of data disks that the VM's size takes, those of other programs included.
fn write_for(vm: &Vm, desired: &DesiredDisks, reservations: &NodeReservations, limit: usize) -> WritePlan {
    if cfg!(any(test, debug_assertions)) {
        let mut attached = desired.attach.keys().chain(&desired.listed_not_attached);
        assert!(attached.all(|disk| !desired.detach.contains(disk)), "a disk cannot be attached and detached");
    }
    let mut plan = WritePlan {
        resolved: BTreeMap::new(),
        write: VmWrite {
            vm: vm.id.clone(),
            attach: Vec::new(),
            detach: Vec::new(),
            force: BTreeSet::new(),
            reapply: Vec::new(),
        },
        postponed: BTreeSet::new(),
        unplaced: BTreeSet::new(),
    };

    for disk in &desired.detach {
        match vm.data_disk(disk) {
            // The write names an element that Azure detaches already: the last attempt may have failed.
            Some(_) => {
                plan.write.detach.push(disk.clone());
                if desired.force.contains(disk) {
                    plan.write.force.insert(disk.clone());
                }
            }
            None => {
                plan.resolved.insert(disk.clone(), Resolved::Detached);
            }
        }
    }

    let mut to_attach = BTreeSet::new();
    for disk in desired.attach.keys().chain(&desired.listed_not_attached) {
        match vm.data_disk(disk) {
            Some(element) if element.to_be_detached => match leaving(vm, element, disk, reservations) {
                Leaving::Resolved(resolved) => {
                    plan.resolved.insert(disk.clone(), resolved);
                }
                Leaving::Unknown => {
                    plan.unplaced.insert(disk.clone());
                }
                Leaving::DetachFirst => {
                    plan.write.detach.push(disk.clone());
                    plan.postponed.insert(disk.clone());
                }
            },
            _ if desired.listed_not_attached.contains(disk) => plan.write.reapply.push(disk.clone()),
            Some(element) => {
                plan.resolved.insert(disk.clone(), Resolved::Attached { lun: element.lun });
            }
            None => {
                to_attach.insert(disk.clone());
            }
        }
    }
    if to_attach.is_empty() {
        return plan;
    }

    let reserved = match reservations {
        NodeReservations::Known(reserved) => reserved,
        NodeReservations::Unknown => {
            plan.unplaced.extend(to_attach);
            return plan;
        }
    };
    // A LUN that this write frees is not used in it: Azure may refuse the whole write.
    let occupied: BTreeSet<Lun> = vm.data_disks.iter().map(|element| element.lun).collect();
    let free = limit.saturating_sub(vm.data_disks.len());
    let given = lun::allocate(&to_attach, &occupied, reserved);

    for disk in to_attach {
        let refusal = if plan.write.attach.len() == free {
            Resolved::TooManyDisks { limit, attached: vm.data_disks.len() + plan.write.attach.len() }
        } else if let Some(lun) = given.get(&disk) {
            let terms = &desired.attach[&disk];
            plan.write.attach.push(Attachment {
                disk,
                lun: *lun,
                caching: terms.caching,
                disk_encryption_set: terms.disk_encryption_set.clone(),
                write_accelerator: terms.write_accelerator,
            });
            continue;
        } else {
            Resolved::NoFreeLun
        };
        if plan.write.detach.is_empty() {
            plan.resolved.insert(disk, refusal);
        } else {
            plan.postponed.insert(disk);
        }
    }
    plan.write.attach.sort_by_key(|attachment| attachment.lun);
    plan
}

/// What becomes of a disk that must be attached and that Azure was told to detach.
enum Leaving {
    Resolved(Resolved),
    /// The detach failed and no VolumeAttachment says that the disk is attached to this VM: Azure does not try again by
    /// itself, so the disk is detached first.
    DetachFirst,
    /// The VolumeAttachments are not known yet.
    Unknown,
}

/// What becomes of a disk that must be attached and that Azure was told to detach. A VolumeAttachment whose volume is
/// unknown may be the disk's.
fn leaving(vm: &Vm, element: &DataDisk, disk: &DiskId, reservations: &NodeReservations) -> Leaving {
    if vm.provisioning_state == ProvisioningState::InProgress {
        return Leaving::Resolved(Resolved::StillLeaving);
    }
    let NodeReservations::Known(reserved) = reservations else { return Leaving::Unknown };
    let in_use = reserved
        .iter()
        .any(|(lun, owners)| owners.contains(&Some(disk.clone())) || owners.contains(&None) && *lun == element.lun);
    if in_use { Leaving::Resolved(Resolved::DetachFailed) } else { Leaving::DetachFirst }
}

/// Why the disk's own state does not allow its attach to a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unattachable {
    /// The disk is attached to as many VMs as it may be.
    AttachedTo(Vec<ArmId>),
    /// The disk is being read, written or uploaded through a shared access signature.
    InUse(DiskState),
    /// The lease of the page blob is held, and nothing says by which VM.
    Leased,
    /// The VM takes no page blobs.
    NoBlobs(blob::Refusal),
    /// The VM takes page blobs, and no managed disks.
    BlobsAlone,
}

/// Whether the disk's own state allows its attach to this VM. A state that is unknown here or contradicts itself allows
/// it: Azure decides.
pub fn attachable<I>(disk: &Disk<I>, vm: &ArmId) -> Result<(), Unattachable> {
    let holders = disk.holders();
    let shares = usize::try_from(disk.max_shares.max(1)).unwrap_or(usize::MAX);
    if !holders.contains(&vm) && holders.len() >= shares {
        return Err(Unattachable::AttachedTo(holders.into_iter().cloned().collect()));
    }
    match disk.state {
        Some(
            state @ (DiskState::ActiveSas
            | DiskState::ActiveSasFrozen
            | DiskState::ReadyToUpload
            | DiskState::ActiveUpload),
        ) => Err(Unattachable::InUse(state)),
        _ => Ok(()),
    }
}

/// Whether a VM takes managed disks. Where it does not, Azure would refuse the whole write, with all other disks in it.
fn managed_attachable(vm: &Vm) -> Result<(), Unattachable> {
    match blob::Machine::of(vm) {
        blob::Machine::Alone(SystemDisk::Blob) => Err(Unattachable::BlobsAlone),
        blob::Machine::Alone(SystemDisk::Managed) | blob::Machine::OfScaleSet => Ok(()),
    }
}

/// Whether a page blob may be attached to this VM, which does not list it. A lease says that a VM has it: Azure would refuse
/// the whole write. Whether the cloud attaches blobs at all is said by Azure's answer alone.
fn blob_attachable(disk: &Disk<DiskId>, vm: &Vm) -> Result<(), Unattachable> {
    blob::check(blob::Machine::of(vm), blob::Service::Offered).map_err(Unattachable::NoBlobs)?;
    match disk.state {
        Some(DiskState::Attached) if disk.holders().is_empty() => Err(Unattachable::Leased),
        _ => Ok(()),
    }
}

/// Whether a read of a disk gives the terms of its attach to this VM, even if that read is a list's or was sent a while
/// ago. It then leads to a write, and Azure refuses a write that does not fit the disk's present state. A read that does
/// not give the terms may be out of date: read the disk by a single read, and decide by that.
pub fn gives_terms<I>(disk: &Disk<I>, vm: &ArmId) -> bool {
    disk.provisioning_state == ProvisioningState::Succeeded && attachable(disk, vm).is_ok()
}

/// Whether the zones of a disk and a VM explain why Azure refused the attach (source: Azure attaches a zonal disk only to
/// a VM in its zone, a regional disk only to a regional VM, and a zone-redundant disk to both). Not for a decision before
/// the write: Azure decides.
pub fn zone_mismatch<I>(disk: &Disk<I>, vm: &Vm) -> bool {
    match &vm.zone {
        _ if disk.sku.is_some_and(is_zone_redundant) => false,
        Some(zone) => !disk.zones.contains(zone),
        None => !disk.zones.is_empty(),
    }
}

/// Whether the disk's own state confirms that it is attached to a VM that lists it. A disk that is attached and names
/// no VM counts as confirmed: some Azure clouds do not say to which VM a disk is attached.
pub fn confirmed_attached<I>(disk: &Disk<I>, vm: &ArmId) -> bool {
    let holders = disk.holders();
    holders.contains(&vm) || holders.is_empty() && matches!(disk.state, Some(DiskState::Attached | DiskState::Reserved))
}

/// Whether the disk's own state proves that it is not attached to a VM: the disk is unattached, or names other VMs
/// only. A state that is absent or unknown here proves nothing. So a disk can be neither confirmed nor proved not
/// attached.
pub fn proved_not_attached<I>(disk: &Disk<I>, vm: &ArmId) -> bool {
    let holders = disk.holders();
    match holders.is_empty() {
        true => disk.state == Some(DiskState::Unattached),
        false => !holders.contains(&vm),
    }
}

/// What a VM worker does about a write that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Read the VM again and plan again: another writer was first, or the answer was lost.
    ReadAgain,
    /// This Azure cloud, or this identity, seems not to have the action. Write the whole list now, and from now on if
    /// that succeeds.
    WriteWholeList,
    /// One disk makes the write of its batch fail. Find it by bisection, and let its request fail alone.
    Bisect,
    /// The failure is about no single disk: every caller gets it.
    FailAll,
}

/// Chooses what a VM worker does about a failed write that follows from a read of the VM.
pub fn reaction(fault: &Fault, method: VmWriteMethod, read: By) -> Reaction {
    match fault {
        Fault::Conflict | Fault::PreconditionFailed | Fault::OutcomeUnknown => Reaction::ReadAgain,
        // A list may lag. So the VM may be gone, or the write may detach what it has no more, and nothing is said about
        // the action.
        Fault::NotFound | Fault::Malformed if method == VmWriteMethod::Action && read == By::List => {
            Reaction::ReadAgain
        }
        // The action has an RBAC entry of its own, which roles made for the Go drivers lack. An Azure cloud that does
        // not know the action may answer with any of these. The VM and the disks were read a moment ago, so "not found"
        // is about the action, unless the whole list gets the same answer.
        Fault::Unsupported | Fault::Forbidden | Fault::NotFound | Fault::Malformed
            if method == VmWriteMethod::Action =>
        {
            Reaction::WriteWholeList
        }
        Fault::NotFound
        | Fault::AttachedElsewhere { .. }
        | Fault::BeingDetached
        | Fault::InUse
        | Fault::Invalid
        | Fault::Unclear
        | Fault::DiskLimit
        | Fault::AccountFull
        | Fault::Exhausted
        | Fault::ZoneMismatch
        // The identity may write the VM. Another method would name the same disk, and be refused the same way.
        | Fault::LinkedForbidden
        | Fault::Denied
        | Fault::OperationFailed => Reaction::Bisect,
        Fault::ScopeNotFound
        | Fault::Throttled { .. }
        | Fault::Locked
        | Fault::Forbidden
        | Fault::Unauthenticated
        | Fault::Unsupported
        | Fault::Unavailable
        | Fault::Deadline
        | Fault::Busy
        | Fault::Malformed => Reaction::FailAll,
    }
}

#[cfg(test)]
mod tests;
