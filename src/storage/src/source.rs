//! What a disk was made from, and which reads say so.
//!
//! A node never formats a disk that was made from another. So what is known of a disk must be of this disk, and not of one
//! that had its name before. Azure deletes no disk that is attached, so no other disk has the name while it stays attached.
//! Two things show that it has stayed so: this process attached it, or read it singly after the VM listed it; and the VM has
//! had the same version (etag) since, but for this process's own writes. Where VMs have no version, as on Azure Stack Hub,
//! a disk that was attached before is read at each publish.
//!
//! A single read shows the disk that has the name now. A list may be older ([`LISTS_LAG`]): it shows this disk where it was
//! sent so long after Azure accepted the attach. One case is not covered: a disk that this process has created or read, that
//! nothing has attached since, and that another hand has replaced less than [`LISTS_LAG`] before this process attaches it by
//! a list.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{ArmId, Disk};
use lazuli_quota::read::{Accept, By, Seen};

use crate::attach::{LISTS_LAG, Moment};

/// What is known of the disks that were read.
#[derive(Debug, Clone)]
pub struct Sources<T> {
    disks: BTreeMap<ArmId, Known<T>>,
    vms: BTreeMap<ArmId, Machine<T>>,
}

/// What is known of a disk.
#[derive(Debug, Clone)]
struct Known<T> {
    /// What it was made from, if that is known; `Some(None)` for one that was made empty.
    source: Option<Option<String>>,
    attached: Option<Attached<T>>,
}

/// Where a disk has stayed attached since it is known. Of a shared disk, the VM of the last attach.
#[derive(Debug, Clone)]
struct Attached<T> {
    vm: ArmId,
    /// Since when, where this process has attached it.
    since: Option<T>,
}

/// A VM whose version shows that its disks stay attached.
#[derive(Debug, Clone)]
struct Machine<T> {
    version: Version<T>,
    /// The disks that were attached to it. One of them may be known to be elsewhere since.
    disks: BTreeSet<ArmId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Version<T> {
    /// A read has shown this one.
    Read { etag: Option<String>, sent_at: T },
    /// This process writes the VM, which gives it versions of its own.
    Writing,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { source: None, attached: None }
    }
}

impl<T> Default for Sources<T> {
    fn default() -> Self {
        Self { disks: BTreeMap::new(), vms: BTreeMap::new() }
    }
}

impl<T: Moment> Sources<T> {
    /// What a disk was made from that a VM lists, and `Some(None)` for one that was made empty, if that is known of the disk
    /// that is attached now.
    pub fn of(&self, disk: &ArmId, vm: &ArmId) -> Option<Option<String>> {
        self.attached_to(disk, vm)?;
        self.disks.get(disk)?.source.clone()
    }

    /// A write of a VM has failed, or its outcome was never read. Another hand may have written the VM meanwhile.
    pub fn write_failed(&mut self, vm: &ArmId) {
        if self.vms.get(vm).is_some_and(|machine| machine.version == Version::Writing) {
            self.release(vm);
        }
    }

    /// A read has shown a version of a VM. Where another hand has written the VM since the last one, its disks may be others
    /// now.
    pub fn vm_read(&mut self, vm: &ArmId, etag: Option<&str>, seen: Seen<T>) {
        match self.vms.get(vm).map(|machine| &machine.version) {
            Some(Version::Writing) => return,
            // It may be older than the last read, and nobody replaces an attached disk in this time.
            Some(Version::Read { sent_at, .. }) if seen.by == By::List && seen.sent_at < *sent_at + LISTS_LAG => return,
            Some(Version::Read { etag: known, .. }) if etag.is_some() && known.as_deref() == etag => {}
            Some(Version::Read { .. }) => self.release(vm),
            None => {}
        }
        self.version_of(vm, Version::Read { etag: etag.map(str::to_owned), sent_at: seen.sent_at });
    }

    /// A write of a VM is sent. The next disk that has the name of one that leaves may be another one.
    pub fn write_begins<'a>(&mut self, vm: &ArmId, leaving: impl IntoIterator<Item = &'a ArmId>) {
        for disk in leaving {
            let elsewhere =
                self.disks.get(disk).and_then(|known| known.attached.as_ref()).is_some_and(|at| at.vm != *vm);
            if !elsewhere {
                self.forget(disk);
            }
        }
        self.version_of(vm, Version::Writing);
    }

    /// Azure has attached a disk by a write that it had accepted at `since`.
    pub fn attached(&mut self, vm: &ArmId, disk: &ArmId, since: T) {
        let known = self.disks.entry(disk.clone()).or_default();
        if known.attached.is_some() {
            // Another hand has detached it since it was read.
            known.source = None;
        }
        self.stays_attached(vm, disk, Some(since));
    }

    /// A read has shown the version that a VM has after a write of this process.
    pub fn write_read(&mut self, vm: &ArmId, etag: Option<&str>, seen: Seen<T>) {
        match self.vms.get_mut(vm) {
            Some(machine) if machine.version == Version::Writing => {
                machine.version = Version::Read { etag: etag.map(str::to_owned), sent_at: seen.sent_at };
            }
            _ => self.vm_read(vm, etag, seen),
        }
    }

    /// The disk has been deleted.
    pub fn forget(&mut self, disk: &ArmId) {
        self.disks.remove(disk);
    }

    /// Which reads that are sent from now on show the disk that a VM lists.
    pub fn accept(&self, disk: &ArmId, vm: &ArmId, now: T) -> Accept {
        if self.list_shows(disk, vm, now) { Accept::List } else { Accept::Single }
    }

    /// Takes a read of a disk that a VM lists, as a read before it has shown. Returns what the disk was made from; `None`
    /// where the read does not say it, because the disk is being detached again.
    pub fn learn(&mut self, disk: &Disk, vm: &ArmId, seen: Seen<T>) -> Option<Option<String>> {
        let since = self.attached_to(&disk.id, vm).and_then(|attached| attached.since);
        if seen.by == By::List && !self.list_shows(&disk.id, vm, seen.sent_at) {
            self.learn_before_attach(disk, By::List);
            return None;
        }
        self.learn_before_attach(disk, By::Single);
        if self.vms.contains_key(vm) {
            self.stays_attached(vm, &disk.id, since);
        }
        Some(disk.source.clone())
    }

    /// Takes a read of a disk that has been created or is to be attached. Where a list differs from what is known, the disk
    /// must be read again.
    pub fn learn_before_attach(&mut self, disk: &Disk, by: By) {
        match by {
            // Another hand may have detached it since it was known to be attached. Only another disk of the same source could
            // have its place, until the VM's version says so.
            By::Single if self.disks.get(&disk.id).is_some_and(|known| known.source.as_ref() == Some(&disk.source)) => {
            }
            By::Single => {
                let known = Known { source: Some(disk.source.clone()), attached: None };
                self.disks.insert(disk.id.clone(), known);
            }
            By::List => {
                if let Some(known) = self.disks.get_mut(&disk.id)
                    && known.source.as_ref().is_some_and(|source| *source != disk.source)
                {
                    known.source = None;
                }
            }
        }
    }

    fn attached_to(&self, disk: &ArmId, vm: &ArmId) -> Option<&Attached<T>> {
        self.disks.get(disk)?.attached.as_ref().filter(|attached| attached.vm == *vm)
    }

    /// Whether a list that is sent at `sent_at` shows the disk that a VM lists.
    fn list_shows(&self, disk: &ArmId, vm: &ArmId, sent_at: T) -> bool {
        let since = self.attached_to(disk, vm).and_then(|attached| attached.since);
        since.is_some_and(|since| sent_at >= since + LISTS_LAG)
    }

    fn stays_attached(&mut self, vm: &ArmId, disk: &ArmId, since: Option<T>) {
        let known = self.disks.entry(disk.clone()).or_default();
        known.attached = Some(Attached { vm: vm.clone(), since });
        let machine = self.vms.entry(vm.clone());
        let machine = machine.or_insert_with(|| Machine { version: Version::Writing, disks: BTreeSet::new() });
        machine.disks.insert(disk.clone());
    }

    fn version_of(&mut self, vm: &ArmId, version: Version<T>) {
        match self.vms.get_mut(vm) {
            Some(machine) => machine.version = version,
            None => {
                self.vms.insert(vm.clone(), Machine { version, disks: BTreeSet::new() });
            }
        }
    }

    /// Forgets what was known of the disks that were attached to a VM.
    fn release(&mut self, vm: &ArmId) {
        for disk in self.vms.remove(vm).into_iter().flat_map(|machine| machine.disks) {
            if self.attached_to(&disk, vm).is_some() {
                self.disks.remove(&disk);
            }
        }
    }
}

#[cfg(test)]
mod tests;
