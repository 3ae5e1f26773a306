//! What a disk was made from, and which reads say so.
//!
//! A node never formats a disk that was made from another. So what is known of a disk must be of this disk, and not of one
//! that had its name before. Azure deletes no disk that is attached, so no other disk has the name while it stays attached.
//! Two things show that it has stayed so: this process attached it, or read it singly after the VM listed it; and the VM has
//! been the same machine in the same version since, but for this process's own writes. Where VMs have no version, as on
//! Azure Stack Hub, a disk that was attached before is read at each publish.
//!
//! A single read shows the disk that has the name when it is sent. A list may be older ([`LISTS_LAG`]): it shows this disk
//! where it was sent so long after Azure accepted the attach.
//!
//! Two cases are not covered. Another hand replaces a disk that is attached nowhere, after this process has read it and
//! within [`LISTS_LAG`] before Azure accepts its attach; where it was read by a list, within twice that time. And another
//! hand detaches a disk, deletes it, makes another one and attaches that to the same VM, all within [`REPLACEMENT`] around a
//! write of this process to this VM: Azure needs longer for that.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_model::{ArmId, Disk, DiskId, Vm};
use lazuli_quota::read::{Accept, By, Seen};

use crate::attach::{LISTS_LAG, Moment};

/// How long it takes another hand at least to put another disk in the place of one that is attached: four operations, of
/// which an attach takes 10 s in the median (source: the drivers' metrics).
const REPLACEMENT: Duration = Duration::from_secs(30);

/// What is known of the disks that were read.
#[derive(Debug, Clone)]
pub struct Sources<T> {
    disks: BTreeMap<DiskId, Known<T>>,
    vms: BTreeMap<ArmId, Machine<T>>,
    /// How many VMs are kept before those without disks are forgotten.
    most_vms: usize,
}

/// What is known of a disk.
#[derive(Debug, Clone)]
struct Known<T> {
    /// What it was made from, if that is known; `Some(None)` for one that was made empty.
    source: Option<Option<String>>,
    /// When the last read was sent that has shown it.
    read_at: T,
    attached: Option<Attached<T>>,
}

/// Where a disk has stayed attached since it is known. Of a shared disk, the VM of the last attach.
#[derive(Debug, Clone)]
struct Attached<T> {
    vm: ArmId,
    /// Since when, where this process has attached it.
    since: Option<T>,
}

/// Which machine a VM is, and which version of it a read has shown. A VM that is made again under its name counts its
/// versions anew.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VmVersion {
    /// The machine's `vmId`. A list does not show it.
    pub machine: Option<String>,
    /// The etag; `None` where VMs have none, or where a list leaves it out.
    pub etag: Option<String>,
}

impl VmVersion {
    /// Whether nobody has written the VM between the read that showed this one and the one that shows `later`.
    fn is(&self, later: &Self) -> bool {
        self.is_of_machine(later) && later.etag.is_some() && self.etag == later.etag
    }

    fn is_of_machine(&self, later: &Self) -> bool {
        self.machine.is_none() || later.machine.is_none() || self.machine == later.machine
    }
}

/// A VM whose version shows that its disks stay attached.
#[derive(Debug, Clone)]
struct Machine<T> {
    version: VmVersion,
    /// When the first read was sent that has shown it, but for this process's own writes since.
    since: T,
    /// When the last single read was sent that has shown it.
    read_at: T,
    /// The same of the last list.
    listed_at: Option<T>,
    /// The disks that are attached to it. One of them may be known to be elsewhere since.
    disks: BTreeSet<DiskId>,
}

/// How many VMs are kept at least, with disks or without.
const FEWEST_VMS: usize = 64;

impl<T> Default for Sources<T> {
    fn default() -> Self {
        Self { disks: BTreeMap::new(), vms: BTreeMap::new(), most_vms: FEWEST_VMS }
    }
}

impl<T: Moment> Sources<T> {
    /// What a disk was made from that a VM lists, and `Some(None)` for one that was made empty, if that is known of the disk
    /// that is attached now. Ask after a read of the VM was told by [`Self::vm_read`].
    pub fn of(&self, disk: &DiskId, vm: &ArmId) -> Option<Option<String>> {
        self.attached_to(disk, vm)?;
        self.disks.get(disk)?.source.clone()
    }

    /// What the last read of a disk has shown that it was made from, attached or not. It is no proof for a node.
    pub fn made_from(&self, disk: &DiskId) -> Option<&str> {
        self.disks.get(disk)?.source.as_ref()?.as_deref()
    }

    /// A read has shown a VM in a version. Where another hand has written the VM since the last one, or a write of this
    /// process has failed half way, its disks may be others now.
    pub fn vm_read(&mut self, vm: &Vm, version: VmVersion, seen: Seen<T>) {
        let Some(machine) = self.vms.get_mut(&vm.id) else { return self.begin(&vm.id, version, seen.sent_at) };
        let is_older = match seen.by {
            By::Single => seen.sent_at < machine.read_at,
            // Nobody replaces an attached disk in this time.
            By::List => version.etag.is_none() || seen.sent_at < machine.read_at + LISTS_LAG,
        };
        if is_older {
            return;
        }
        if !machine.version.is(&version) {
            self.release(&vm.id);
            return self.begin(&vm.id, version, seen.sent_at);
        }
        match seen.by {
            By::Single => (machine.version, machine.read_at) = (version, seen.sent_at),
            By::List => machine.listed_at = Some(seen.sent_at),
        }
        self.leave_unlisted(vm);
    }

    /// A VM does not exist.
    pub fn vm_gone(&mut self, vm: &ArmId) {
        self.release(vm);
    }

    /// A write of a VM is sent that detaches these disks. The next disk that has the name of one of them may be another one.
    pub fn detaching<'a>(&mut self, vm: &ArmId, disks: impl IntoIterator<Item = &'a DiskId>) {
        for disk in disks {
            if let Some(machine) = self.vms.get_mut(vm) {
                machine.disks.remove(disk);
            }
            let elsewhere =
                self.disks.get(disk).and_then(|known| known.attached.as_ref()).is_some_and(|at| at.vm != *vm);
            if !elsewhere {
                self.forget(disk);
            }
        }
    }

    /// Azure has attached a disk by a write that it had accepted at `since`.
    pub fn attached(&mut self, vm: &ArmId, disk: &DiskId, since: T) {
        if let Some(known) = self.disks.get_mut(disk)
            && (known.attached.is_some() || since > known.read_at + LISTS_LAG)
        {
            // Another hand has detached it since it was read, or has had the time to replace it.
            known.source = None;
        }
        self.stays_attached(vm, disk, since, Some(since));
    }

    /// A single read has shown the VM after a write of this process that succeeded. Call it before [`Self::attached`].
    pub fn write_read(&mut self, vm: &Vm, version: VmVersion, sent_at: T) {
        let Some(machine) = self.vms.get_mut(&vm.id) else { return self.begin(&vm.id, version, sent_at) };
        let is_in_time = sent_at <= machine.read_at + REPLACEMENT
            || machine.listed_at.is_some_and(|listed_at| sent_at + LISTS_LAG <= listed_at + REPLACEMENT);
        if !machine.version.is_of_machine(&version) || !is_in_time {
            // It is not known what happened before the write and after it.
            self.release(&vm.id);
            return self.begin(&vm.id, version, sent_at);
        }
        (machine.version, machine.read_at) = (version, sent_at);
        self.leave_unlisted(vm);
    }

    /// Forgets the disks of a VM that it does not list any more: another hand has detached them.
    fn leave_unlisted(&mut self, vm: &Vm) {
        let Some(machine) = self.vms.get_mut(&vm.id) else { return };
        let left = machine.disks.extract_if(.., |disk| vm.data_disk(disk).is_none()).collect();
        self.release_all(&vm.id, left);
    }

    /// The disk has been deleted.
    pub fn forget(&mut self, disk: &DiskId) {
        self.disks.remove(disk);
    }

    /// Which reads that are sent from now on show the disk that a VM lists.
    pub fn accept(&self, disk: &DiskId, vm: &ArmId, now: T) -> Accept {
        if self.list_shows(disk, vm, now) { Accept::List } else { Accept::Single }
    }

    /// Takes a read of a disk that a VM lists, as a read before it has shown. Returns what the disk was made from; `None`
    /// where the read does not say it, because the disk is being detached again.
    pub fn learn(&mut self, disk: &Disk<DiskId>, vm: &ArmId, seen: Seen<T>) -> Option<Option<String>> {
        if let Some(newer) = self.disks.get(&disk.id).filter(|known| known.read_at > seen.sent_at) {
            // The answer took long, so it may be of the disk that had this name before.
            return newer.source.clone().filter(|source| *source == disk.source);
        }
        let since = self.attached_to(&disk.id, vm).and_then(|attached| attached.since);
        if seen.by == By::List && !self.list_shows(&disk.id, vm, seen.sent_at) {
            self.learn_before_attach(disk, seen);
            return None;
        }
        self.learn_before_attach(disk, Seen { by: By::Single, ..seen });
        if disk.holders().contains(&vm) && self.vms.get(vm).is_some_and(|machine| machine.since <= seen.sent_at) {
            self.stays_attached(vm, &disk.id, seen.sent_at, since);
        }
        Some(disk.source.clone())
    }

    /// Takes a read of a disk that has been created or is to be attached. Where a list differs from what is known, the disk
    /// must be read again.
    pub fn learn_before_attach(&mut self, disk: &Disk<DiskId>, seen: Seen<T>) {
        let read = || Known { source: Some(disk.source.clone()), read_at: seen.sent_at, attached: None };
        match (self.disks.get_mut(&disk.id), seen.by) {
            (Some(known), _) if known.read_at > seen.sent_at => {}
            // Another hand may have detached it since it was known to be attached. Only another disk of the same source
            // could have its place, until the VM's version says so.
            (Some(known), _) if known.source.as_ref() == Some(&disk.source) => known.read_at = seen.sent_at,
            (Some(known), By::Single) => *known = read(),
            (Some(known), By::List) => known.source = None,
            (None, By::Single) => drop(self.disks.insert(disk.id.clone(), read())),
            (None, By::List) => {}
        }
    }

    fn attached_to(&self, disk: &DiskId, vm: &ArmId) -> Option<&Attached<T>> {
        self.disks.get(disk)?.attached.as_ref().filter(|attached| attached.vm == *vm)
    }

    /// Whether a list that is sent at `sent_at` shows the disk that a VM lists.
    fn list_shows(&self, disk: &DiskId, vm: &ArmId, sent_at: T) -> bool {
        let since = self.attached_to(disk, vm).and_then(|attached| attached.since);
        since.is_some_and(|since| sent_at >= since + LISTS_LAG)
    }

    fn stays_attached(&mut self, vm: &ArmId, disk: &DiskId, now: T, since: Option<T>) {
        let Some(machine) = self.vms.get_mut(vm) else { return };
        machine.disks.insert(disk.clone());
        let known = self.disks.entry(disk.clone()).or_insert(Known { source: None, read_at: now, attached: None });
        known.attached = Some(Attached { vm: vm.clone(), since });
    }

    fn begin(&mut self, vm: &ArmId, version: VmVersion, read_at: T) {
        if self.vms.len() >= self.most_vms {
            self.vms.retain(|_, machine| !machine.disks.is_empty());
            self.most_vms = FEWEST_VMS.max(2 * self.vms.len());
        }
        let machine = Machine { version, since: read_at, read_at, listed_at: None, disks: BTreeSet::new() };
        self.vms.insert(vm.clone(), machine);
    }

    /// Forgets what was known of a VM and of the disks that were attached to it.
    fn release(&mut self, vm: &ArmId) {
        if let Some(machine) = self.vms.remove(vm) {
            self.release_all(vm, machine.disks);
        }
    }

    fn release_all(&mut self, vm: &ArmId, disks: BTreeSet<DiskId>) {
        for disk in disks {
            if self.attached_to(&disk, vm).is_some() {
                self.disks.remove(&disk);
            }
        }
    }
}

#[cfg(test)]
mod tests;
