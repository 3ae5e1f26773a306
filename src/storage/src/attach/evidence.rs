//! What the reads say of each request, and which reads may say it.
//!
//! Each observation says whether a single read or a list made it and when that was sent ([`Seen`]). Each request says
//! when it arrived.
//!
//! - A request is resolved only by reads that were sent at or after its arrival. What an earlier read shows may have
//!   changed since, so the request stays open until the next read.
//! - A list may be older than a single read. It proves no detach, no absence, no attach and no full VM. A request that
//!   only a list would resolve stays open until the VM has been read singly.
//! - A write may follow from a list, and from a read that is older than the request: Azure refuses a write that does not
//!   fit the VM's present state. The attach of an attached disk is not left to Azure: where the disk's own state, a
//!   VolumeAttachment or an earlier single read says that the disk is attached, the VM is read singly before any write.
//!   So it is for any attach while a list may be older than the time at which this process became the leader: the leader
//!   before may have attached the disk and not have recorded it.
//!
//! Times are on one monotonic clock of the caller's.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Add,
    time::Duration,
};

use lazuli_model::{ArmId, CachingMode, Disk, DiskId, ProvisioningState, Vm, op::VmWrite};
use lazuli_quota::read::{Accept, By, Seen};

use super::{
    DesiredDisks, Resolved, Terms, attachable, blob_attachable, confirmed_attached, gives_terms, managed_attachable,
    write_for,
};
use crate::lun::NodeReservations;
use lazuli_volume::effective_caching;

#[cfg(test)]
mod tests;

/// How much older than a single read a list may be that was sent after it (unverified; Azure gives no time).
pub const LISTS_LAG: Duration = Duration::from_secs(10);

/// A time on a monotonic clock.
pub trait Moment: Copy + Ord + Add<Duration, Output = Self> {}

impl<T: Copy + Ord + Add<Duration, Output = T>> Moment for T {}

/// The state of a disk on a VM that a caller requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Attached to the VM with this caching. `None`: with the caching that the disk allows.
    Attached(Option<CachingMode>),
    /// Not attached to the VM.
    Detached,
}

/// A request of a disk's state on a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<T> {
    /// What is requested.
    pub goal: Goal,
    /// When it arrived. No read that was sent earlier resolves it.
    pub requested_at: T,
}

/// What a read of a disk gave.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskRead<T> {
    /// The disk; `None` when the read failed.
    pub disk: Option<Disk<DiskId>>,
    /// By which read, and when that was sent; of a read that failed, a time before it was sent.
    pub seen: Seen<T>,
}

impl<T> DiskRead<T> {
    /// Whether this read may be kept for a later plan: it leads to a write ([`gives_terms`]) and resolves nothing.
    pub fn gives_terms(&self, vm: &ArmId) -> bool {
        self.disk.as_ref().is_some_and(|disk| gives_terms(disk, vm))
    }
}

/// What a single read of a VM showed of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown<T> {
    /// Whether the disk was attached.
    pub attached: bool,
    /// When that read was sent.
    pub sent_at: T,
}

impl<T: Moment> Shown<T> {
    /// Whether a list that was sent then may be older than this.
    pub fn outdates_list_of(&self, sent_at: T) -> bool {
        sent_at < self.sent_at + LISTS_LAG
    }
}

/// What is known of a VM and its disks, and from which reads.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a, T> {
    /// The VM.
    pub vm: &'a Vm,
    /// By which read, and when that was sent.
    pub seen: Seen<T>,
    /// The disks that have been read for these requests.
    pub disks: &'a BTreeMap<DiskId, DiskRead<T>>,
    /// What single reads of the VM showed of disks lately.
    pub shown: &'a BTreeMap<DiskId, Shown<T>>,
    /// A read of the VM that was sent earlier may lack the last write of another replica, and proves no detach.
    pub fresh_from: Option<T>,
    /// By disk, until when an attach to this VM may be under way of which Azure shows nothing. A read that was sent earlier
    /// proves no detach of that disk.
    pub late_attaches: &'a BTreeMap<DiskId, T>,
    /// A list of VMs that was sent earlier may lack an attach of the leader before, so no attach follows from it. `None`
    /// where there is no other leader, and where the VolumeAttachments are not known, so that no attach follows from any
    /// read.
    pub lists_from: Option<T>,
    /// A read of the VM that was sent earlier may lack a write that was sent before it: one of the leader before, or one of
    /// this process whose answer was lost or that failed.
    pub writes_shown_from: Option<T>,
    /// Whether the end of what the VM is at was waited for, and did not come. Azure decides then whether it takes a write.
    pub waited_out: bool,
    /// Whether the VM's model shows which of its disks Azure was told to detach.
    pub marks: DetachMarks,
}

/// Whether a VM's model shows which of its disks Azure was told to detach (`toBeDetached`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachMarks {
    /// It does.
    Shown,
    /// It does not: API versions before 2019-03-01 do not know the mark (source: Azure/cloud-provider-azure#8919). While a
    /// write runs, a disk that is listed and attached may be leaving. The marks of this process's own detaches that failed
    /// are in the VM all the same.
    Hidden,
}

/// What bounds a plan.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<'a> {
    /// The LUNs that VolumeAttachments of the node name.
    pub reservations: &'a NodeReservations,
    /// How many data disks the VM's size takes, those of other programs included.
    pub max_data_disks: usize,
    /// The disks whose detach may be forced.
    pub force: &'a BTreeSet<DiskId>,
    /// Which write may follow.
    pub writes: Writes,
}

/// Which write may follow from a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// None: only requests that need no write are resolved.
    None,
    /// One that follows from a single read: it repeats a write that failed.
    AfterSingleRead,
    /// The whole list of disks, which follows from a single read too. Where the VM has no etag, Azure does not check that the
    /// list is still as it was read. So the read must show all that was written before, and no write that runs: the list
    /// would bring back a disk that leaves, and detach one that comes. Only a write whose end does not come is not waited for
    /// any longer.
    WholeList,
    /// One that may follow from a list: it names only the disks that change.
    AfterAnyRead,
}

/// The outcome of a request that needs no write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution<T> {
    /// The outcome.
    pub resolved: Resolved,
    /// When the earliest read was sent that it rests on. It answers only callers that came no later.
    pub sent_at: T,
}

/// What a request needs before it can be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// A single read of the VM, before any write.
    ReadVmSingly,
    /// Another single read of the VM: the last one was sent before the request arrived. Other requests need not wait.
    ReadVmAgain,
    /// A read of the disk.
    ReadDisk(Accept),
    /// A write, and none is allowed now.
    Write,
    /// The VolumeAttachments, which are not known yet.
    Reservations,
    /// The end of another writer's write of the VM.
    VmAtRest,
    /// The same, before any list without an etag is written.
    VmAtRestForList,
    /// A read of the VM that shows the last write of another replica.
    FreshRead,
    /// A read of the VM that shows all that was written before. No other leads to a list without an etag.
    WritesShown,
}

/// What the next plan has to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// The VolumeAttachments.
    Reservations,
    /// The end of another writer's write of the VM, on which these depend.
    VmAtRest(BTreeSet<DiskId>),
    /// The time from which on reads are fresh.
    FreshReads,
    /// The time from which on a read shows all that was written before.
    WritesShown,
}

/// What [`plan`] returns. Each request is in `resolved`, in the write, in `postponed` or in `open`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan<T> {
    /// The outcome of each request that needs no write.
    pub resolved: BTreeMap<DiskId, Resolution<T>>,
    /// The one write. It is empty when there is nothing to do.
    pub write: VmWrite,
    /// Disks that cannot be attached now, and may be after this write, because it detaches other disks or these disks
    /// themselves. Plan again after the write.
    pub postponed: BTreeSet<DiskId>,
    /// The requests that this evidence does not decide, and what they need.
    pub open: BTreeMap<DiskId, Open>,
}

impl<T> Plan<T> {
    /// A plan of no requests.
    pub fn nothing(vm: &ArmId) -> Self {
        let write = VmWrite {
            vm: vm.clone(),
            attach: Vec::new(),
            detach: Vec::new(),
            force: BTreeSet::new(),
            reapply: Vec::new(),
        };
        Self { resolved: BTreeMap::new(), write, postponed: BTreeSet::new(), open: BTreeMap::new() }
    }

    /// Whether the VM must be read singly before anything is written.
    pub fn needs_single_read(&self) -> bool {
        self.open.values().any(|open| *open == Open::ReadVmSingly)
    }

    /// The disks that must be read by such a read.
    pub fn disks_to_read(&self, accept: Accept) -> Vec<DiskId> {
        self.open_for(Open::ReadDisk(accept)).cloned().collect()
    }

    /// Whether a request waits only for another read of the VM.
    pub fn needs_another_read(&self) -> bool {
        self.open_for(Open::ReadVmAgain).next().is_some()
    }

    /// What the next plan has to wait for. `None` when it may follow at once, because a read may decide a request.
    pub fn wait(&self) -> Option<Wait> {
        let by_a_read = |open: &Open| matches!(open, Open::ReadVmSingly | Open::ReadVmAgain | Open::ReadDisk(_));
        if self.open.values().any(by_a_read) {
            return None;
        }
        // First of all what withholds a write: no request alone may hold up the others of the VM.
        if self.open_for(Open::WritesShown).next().is_some() {
            return Some(Wait::WritesShown);
        }
        let withheld = self.open_for(Open::VmAtRestForList).next().is_some();
        if !withheld && self.open_for(Open::Reservations).next().is_some() {
            return Some(Wait::Reservations);
        }
        let undecided = self.open_for(Open::VmAtRest).chain(self.open_for(Open::VmAtRestForList));
        let undecided: BTreeSet<DiskId> = undecided.cloned().collect();
        if !undecided.is_empty() {
            return Some(Wait::VmAtRest(undecided));
        }
        self.needs_fresh_read().then_some(Wait::FreshReads)
    }

    /// Whether a request waits for the time from which on reads are fresh.
    pub fn needs_fresh_read(&self) -> bool {
        self.open_for(Open::FreshRead).next().is_some()
    }

    /// The disks whose own state was the answer.
    pub fn answered_by_disk_state(&self) -> BTreeSet<DiskId> {
        let of_disks = self.resolved.iter().filter(|(_, resolution)| resolution.resolved.is_the_disks_own());
        of_disks.map(|(disk, _)| disk.clone()).collect()
    }

    fn open_for(&self, need: Open) -> impl Iterator<Item = &DiskId> {
        self.open.iter().filter(move |(_, open)| **open == need).map(|(disk, _)| disk)
    }
}

/// What the evidence says of one request.
enum Step<T> {
    Detach,
    Attach(Terms),
    /// The VM lists the disk. The read of the disk that confirms the attach was sent then, where one was needed.
    Listed(Option<T>),
    /// The VM lists the disk and the disk's own state does not confirm the attach.
    ListedNotAttached,
    Resolved(Resolved, T),
    Open(Open),
}

impl<T: Moment> Evidence<'_, T> {
    /// Whether the read of the VM may resolve a request.
    fn of_vm(&self, request: &Request<T>) -> Result<(), Open> {
        match self.seen.by {
            By::List => Err(Open::ReadVmSingly),
            By::Single if self.seen.sent_at < request.requested_at => Err(Open::ReadVmAgain),
            By::Single => Ok(()),
        }
    }

    /// The read of a disk, if it may serve a request.
    fn of_disk(&self, disk: &DiskId, request: &Request<T>) -> Option<&DiskRead<T>> {
        self.disks.get(disk).filter(|read| read.seen.sent_at >= request.requested_at)
    }

    /// Whether a write of a disk may follow from the read of the VM.
    fn leads_to_a_write(&self, disk: &DiskId, bounds: &Bounds<'_>) -> bool {
        let listed = self.vm.data_disk(disk);
        let is_outdated =
            |shown: &Shown<T>| shown.attached != listed.is_some() && shown.outdates_list_of(self.seen.sent_at);
        self.seen.by == By::Single
            || bounds.writes == Writes::AfterAnyRead
                && self.vm.provisioning_state == ProvisioningState::Succeeded
                && !listed.is_some_and(|element| element.to_be_detached)
                && !self.shown.get(disk).is_some_and(is_outdated)
    }

    /// What a list of disks that Azure takes unconditionally needs before it may be written.
    fn before_unconditional_list(&self) -> Option<Open> {
        if self.vm.provisioning_state == ProvisioningState::InProgress && !self.waited_out {
            return Some(Open::VmAtRestForList);
        }
        self.writes_shown_from.filter(|from| self.seen.sent_at < *from).map(|_| Open::WritesShown)
    }

    /// Why the write of a plan must not be sent now.
    fn withheld(&self, write: &VmWrite, writes: Writes) -> Option<Open> {
        match writes {
            Writes::None => Some(Open::Write),
            _ if self.vm.etag.is_some() => None,
            Writes::WholeList => self.before_unconditional_list(),
            // A write that names no disk is sent as a list.
            _ if write.says_nothing() && !write.reapply.is_empty() => self.before_unconditional_list(),
            Writes::AfterSingleRead | Writes::AfterAnyRead => None,
        }
    }

    fn detach(&self, disk: &DiskId, request: &Request<T>, bounds: &Bounds<'_>) -> Step<T> {
        if self.vm.data_disk(disk).is_some() {
            return match bounds.writes {
                Writes::None => Step::Open(Open::Write),
                _ if self.leads_to_a_write(disk, bounds) => Step::Detach,
                _ => Step::Open(Open::ReadVmSingly),
            };
        }
        if let Err(open) = self.of_vm(request) {
            return Step::Open(open);
        }
        if let Some(lun) = self.vm.may_have(disk) {
            return Step::Resolved(Resolved::MayBeListed { lun }, self.seen.sent_at);
        }
        // While another writer's write of the VM runs, its model may not show yet what that write attaches.
        if self.vm.provisioning_state == ProvisioningState::InProgress {
            return Step::Open(Open::VmAtRest);
        }
        if self.late_attaches.get(disk).is_some_and(|until| self.seen.sent_at < *until) {
            return Step::Resolved(Resolved::MayBeAttaching, self.seen.sent_at);
        }
        if self.fresh_from.is_some_and(|fresh_from| self.seen.sent_at < fresh_from) {
            return Step::Open(Open::FreshRead);
        }
        Step::Resolved(Resolved::Detached, self.seen.sent_at)
    }

    fn attach(
        &self,
        disk: &DiskId,
        caching: Option<CachingMode>,
        request: &Request<T>,
        bounds: &Bounds<'_>,
    ) -> Step<T> {
        match self.vm.data_disk(disk) {
            Some(_) => self.attach_listed(disk, request),
            None if bounds.writes == Writes::None => Step::Open(Open::Write),
            None => self.attach_unlisted(disk, caching, request, bounds),
        }
    }

    /// Whether disks that the VM lists may be leaving, although their elements do not say so.
    fn may_hide_a_detach(&self) -> bool {
        self.marks == DetachMarks::Hidden && self.vm.provisioning_state == ProvisioningState::InProgress
    }

    fn attach_listed(&self, disk: &DiskId, request: &Request<T>) -> Step<T> {
        if let Err(open) = self.of_vm(request) {
            return Step::Open(open);
        }
        // In the state Succeeded, every disk that the VM's model lists is attached, so the disk is not read. While a
        // write runs, and after one that failed, the model may list a disk that was never attached.
        if self.vm.provisioning_state == ProvisioningState::Succeeded {
            return Step::Listed(None);
        }
        let Some(read) = self.of_disk(disk, request).filter(|read| read.seen.by == By::Single) else {
            return Step::Open(Open::ReadDisk(Accept::Single));
        };
        let Some(state) = &read.disk else { return Step::Resolved(Resolved::UnreadableDisk, read.seen.sent_at) };
        if confirmed_attached(state, &self.vm.id) && !self.may_hide_a_detach() {
            return Step::Listed(Some(read.seen.sent_at));
        }
        if self.vm.provisioning_state == ProvisioningState::InProgress {
            return Step::Open(Open::VmAtRest);
        }
        match attachable(state, &self.vm.id) {
            Ok(()) => Step::ListedNotAttached,
            Err(why) => Step::Resolved(Resolved::Unattachable(why), read.seen.sent_at),
        }
    }

    fn attach_unlisted(
        &self,
        disk: &DiskId,
        caching: Option<CachingMode>,
        request: &Request<T>,
        bounds: &Bounds<'_>,
    ) -> Step<T> {
        // A VolumeAttachment names the LUN of a disk once it has been attached.
        let was_attached = || match bounds.reservations {
            NodeReservations::Unknown => false,
            NodeReservations::Known(luns) => luns.values().flatten().any(|owner| owner.as_ref() == Some(disk)),
        };
        let may_lack_it = || was_attached() || self.lists_from.is_some_and(|lists_from| self.seen.sent_at < lists_from);
        if !self.leads_to_a_write(disk, bounds) || self.seen.by == By::List && may_lack_it() {
            return Step::Open(Open::ReadVmSingly);
        }
        if let Some(lun) = self.vm.may_have(disk) {
            return match self.of_vm(request) {
                Ok(()) => Step::Resolved(Resolved::MayBeListed { lun }, self.seen.sent_at),
                Err(open) => Step::Open(open),
            };
        }
        let Some(read) = self.of_disk(disk, request) else { return Step::Open(Open::ReadDisk(Accept::List)) };
        let Some(state) = &read.disk else { return Step::Resolved(Resolved::UnreadableDisk, read.seen.sent_at) };
        // The disk says that it is attached to this VM. The read of the VM may be older than that attach.
        if state.holders().contains(&&self.vm.id) && (self.seen.by == By::List || self.seen.sent_at < read.seen.sent_at)
        {
            return Step::Open(Open::ReadVmSingly);
        }
        let is_taken = match disk.blob() {
            Some(_) => blob_attachable(state, self.vm),
            None => managed_attachable(self.vm),
        };
        if let Err(why) = is_taken {
            return Step::Resolved(Resolved::Unattachable(why), read.seen.sent_at);
        }
        match attachable(state, &self.vm.id) {
            _ if read.seen.by == By::List && !gives_terms(state, &self.vm.id) => {
                Step::Open(Open::ReadDisk(Accept::Single))
            }
            Ok(()) => Step::Attach(Terms {
                caching: effective_caching(caching, state),
                write_accelerator: state.write_accelerator(),
                disk_encryption_set: state.disk_encryption_set.clone(),
            }),
            Err(why) => Step::Resolved(Resolved::Unattachable(why), read.seen.sent_at),
        }
    }
}

/// Plans one VM: resolves the requests that the evidence may resolve, and gives the one write that serves the others, as
/// far as the evidence leads to one.
pub fn plan<T: Moment>(
    evidence: &Evidence<'_, T>,
    requests: &BTreeMap<DiskId, Request<T>>,
    bounds: &Bounds<'_>,
) -> Plan<T> {
    let mut desired = DesiredDisks { force: bounds.force.clone(), ..DesiredDisks::default() };
    let mut resolved = BTreeMap::new();
    let mut open = BTreeMap::new();
    let mut disks_sent_at = BTreeMap::new();
    for (disk, request) in requests {
        let step = match request.goal {
            Goal::Detached => evidence.detach(disk, request, bounds),
            Goal::Attached(caching) => evidence.attach(disk, caching, request, bounds),
        };
        match step {
            Step::Detach => drop(desired.detach.insert(disk.clone())),
            Step::Attach(terms) => drop(desired.attach.insert(disk.clone(), terms)),
            Step::Listed(sent_at) => {
                // The planner of the write takes no terms from a disk that is attached.
                let terms = Terms { caching: CachingMode::None, disk_encryption_set: None, write_accelerator: false };
                desired.attach.insert(disk.clone(), terms);
                disks_sent_at.extend(sent_at.map(|sent_at| (disk.clone(), sent_at)));
            }
            Step::ListedNotAttached => drop(desired.listed_not_attached.insert(disk.clone())),
            Step::Resolved(outcome, sent_at) => {
                resolved.insert(disk.clone(), Resolution { resolved: outcome, sent_at });
            }
            Step::Open(need) => drop(open.insert(disk.clone(), need)),
        }
    }
    let mut written = write_for(evidence.vm, &desired, bounds.reservations, bounds.max_data_disks);
    for (disk, outcome) in written.resolved {
        // A full VM is no answer either where the read of the VM may not give one.
        match evidence.of_vm(&requests[&disk]) {
            Ok(()) => {
                let sent_at =
                    evidence.seen.sent_at.min(disks_sent_at.get(&disk).copied().unwrap_or(evidence.seen.sent_at));
                resolved.insert(disk, Resolution { resolved: outcome, sent_at });
            }
            Err(need) => drop(open.insert(disk, need)),
        }
    }
    open.extend(written.unplaced.into_iter().map(|disk| (disk, Open::Reservations)));
    if let Some(need) = evidence.withheld(&written.write, bounds.writes) {
        let VmWrite { attach, detach, reapply, force, .. } = &mut written.write;
        let disks = attach.drain(..).map(|attachment| attachment.disk).chain(detach.drain(..)).chain(reapply.drain(..));
        open.extend(disks.map(|disk| (disk, need)));
        open.extend(std::mem::take(&mut written.postponed).into_iter().map(|disk| (disk, need)));
        force.clear();
    }
    Plan { resolved, write: written.write, postponed: written.postponed, open }
}

/// Which read of the VM to begin with: a list, which serves many VMs, unless the plan would ask for a single read anyway.
pub fn first_read<T: Moment>(
    requests: &BTreeMap<DiskId, Request<T>>,
    shown: &BTreeMap<DiskId, Shown<T>>,
    lists_from: Option<T>,
    writes: Writes,
    now: T,
) -> Accept {
    let attaches = requests.values().any(|request| request.goal != Goal::Detached);
    if attaches && lists_from.is_some_and(|lists_from| now < lists_from) {
        return Accept::Single;
    }
    let is_met = |(disk, request): (&DiskId, &Request<T>)| {
        shown
            .get(disk)
            .is_some_and(|shown| shown.attached == (request.goal != Goal::Detached) && shown.outdates_list_of(now))
    };
    if writes == Writes::AfterAnyRead && !requests.iter().any(is_met) { Accept::List } else { Accept::Single }
}

/// What a single read of the VM, sent after a write, shows of the requests of that write. A request that it does not
/// show to be met is absent.
///
/// `failed` says that the write failed: a disk that a failed write left in the model may not be attached.
pub fn confirm<T: Moment>(
    vm: &Vm,
    seen: Seen<T>,
    goals: &BTreeMap<DiskId, Goal>,
    failed: bool,
) -> BTreeMap<DiskId, Resolution<T>> {
    if seen.by != By::Single {
        return BTreeMap::new();
    }
    let (shows_attached, at_rest) = match vm.provisioning_state {
        ProvisioningState::Succeeded => (true, true),
        ProvisioningState::InProgress => (false, false),
        ProvisioningState::Failed | ProvisioningState::Canceled => (!failed, true),
    };
    let outcome = |disk: &DiskId, goal: &Goal| match (goal, vm.data_disk(disk)) {
        (Goal::Attached(_), Some(element)) if shows_attached && !element.to_be_detached => {
            Some(Resolved::Attached { lun: element.lun })
        }
        (Goal::Detached, None) if at_rest && vm.may_have(disk).is_none() => Some(Resolved::Detached),
        _ => None,
    };
    let met = goals.iter().filter_map(|(disk, goal)| Some((disk.clone(), outcome(disk, goal)?)));
    met.map(|(disk, resolved)| (disk, Resolution { resolved, sent_at: seen.sent_at })).collect()
}
