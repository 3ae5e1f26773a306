//! What the VMs of a process share, and what is remembered of a VM while nothing is requested of its disks.

use std::{collections::BTreeMap, time::Duration};

use lazuli_model::{
    ArmId, DiskId, ProvisioningState, Vm,
    fault::{Effect, Fault},
    op::{VmWrite, VmWriteMethod},
};

use super::{AzureError, plan::detach_marks};
use lazuli_storage::{
    attach::{DetachMarks, LISTS_LAG, Shown},
    dangling::SeenAttachments,
    force_detach::FailedDetaches,
    late_attach::Suspicions,
    lun::LunReservations,
    source::Sources,
};

/// How old a read of a VM may be (unverified). A replica that has just become the leader does not take a disk's absence
/// from the VM's list as proof of its detach for this long: the leader before it may have written a moment ago.
pub(super) const MAX_READ_LAG: Duration = Duration::from_secs(4);

/// How long a pause between two requests is at least in which another replica may have been the leader: its sidecars lead for
/// as long as their Lease lasts, whatever becomes of them (source: the lease duration of csi-lib-utils, of which the chart
/// changes nothing, and which releases no Lease early).
pub(super) const SHORTEST_LEADERSHIP: Duration = Duration::from_secs(15);

/// What the VMs of a process share. A process may lose it at any moment: then reads and pauses take its place.
#[derive(Debug)]
pub struct Memory {
    /// How data disks are written. A VM changes the method when Azure does not allow this one.
    pub method: VmWriteMethod,
    /// What disks were made from.
    pub sources: Sources<Duration>,
    /// The attachments that this process has made.
    pub seen_attachments: SeenAttachments,
    /// The detaches that have failed.
    pub failed_detaches: FailedDetaches,
    /// By VM and disk, what single reads have shown to callers within [`LISTS_LAG`].
    shown: BTreeMap<(ArmId, DiskId), Shown<Duration>>,
    leadership: Leadership,
    at_work: AtWork,
    /// What may be under way, or done, and is not shown.
    pub(super) suspicions: Suspicions<Duration>,
}

impl Memory {
    /// Nothing is known. Data disks are written by this method at first.
    pub fn new(method: VmWriteMethod) -> Self {
        Self {
            method,
            sources: Sources::default(),
            seen_attachments: SeenAttachments::default(),
            failed_detaches: FailedDetaches::default(),
            shown: BTreeMap::new(),
            leadership: Leadership::default(),
            at_work: AtWork::default(),
            suspicions: Suspicions::default(),
        }
    }

    /// A request of any VM's disks has arrived.
    pub fn request_arrived(&mut self, now: Duration) {
        self.leadership.request_arrived(now);
    }

    /// Forgets a disk that has been deleted.
    pub fn forget(&mut self, disk: &DiskId) {
        self.sources.forget(disk);
        self.seen_attachments.forget(disk);
    }

    /// From when on reads show everything that the leader before has written.
    pub fn fresh_from(&self) -> Option<Duration> {
        self.leadership.reads_fresh_since
    }

    /// Until when an attach of the disk to the VM of a node with these names may be under way of which Azure shows nothing.
    /// A detach of it is requested.
    pub fn late_attach(
        &mut self,
        attachments: &LunReservations,
        vm: &ArmId,
        names: &[&str],
        disk: &DiskId,
        now: Duration,
    ) -> Option<Duration> {
        let leading_since = self.leadership.leading_since(now);
        self.suspicions.of_detach(vm, disk, attachments.record(names, disk), leading_since, now)
    }

    /// From when on lists show everything that the leader before has written; `None` where there is no other leader, and
    /// while the VolumeAttachments are not known: no disk is given a LUN then, whatever a list shows.
    pub(super) fn lists_from(&self, attachments: &LunReservations, now: Duration) -> Option<Duration> {
        match attachments {
            LunReservations::NoCluster | LunReservations::Cold => None,
            LunReservations::Synced(_) => Some(self.leadership.leading_since(now) + LISTS_LAG),
        }
    }

    /// From when on a read of the VM shows all that was written before: by the leader before, and by this process.
    pub(super) fn writes_shown_from(&self, vm: &ArmId, now: Duration) -> Duration {
        let of_leader_before = self.leadership.leading_since(now) + MAX_READ_LAG;
        self.suspicions.unshown_until(vm).map_or(of_leader_before, |until| until.max(of_leader_before))
    }

    /// A write of this process that was sent then has failed.
    pub(super) fn write_failed<E: AzureError>(&mut self, write: &VmWrite, error: &E, sent_at: Duration, now: Duration) {
        let until = now + MAX_READ_LAG;
        if *error.fault() == Fault::OutcomeUnknown {
            return self.suspicions.answer_lost(write, sent_at, now);
        }
        // Where the VM shows which disks leave, nothing need be remembered.
        if error.is_of_accepted_write() && detach_marks(self.method) == DetachMarks::Hidden {
            self.suspicions.operation_failed(write, until);
        }
        if error.is_of_accepted_write() || error.effect() == Effect::Possible {
            self.suspicions.write_failed(&write.vm, until, now);
        }
    }

    /// A single read of the VM has come, for a plan or while its rest is awaited.
    pub(super) fn vm_seen(&mut self, vm: &Vm, now: Duration) {
        self.at_work.seen(vm, now);
    }

    /// For how long all such reads have shown that a write of the VM runs.
    pub(super) fn at_work_for(&self, vm: &ArmId, now: Duration) -> Duration {
        self.at_work.of(vm, now)
    }

    /// A write of the VM is sent. What runs from now on is waited for anew.
    pub(super) fn write_sent(&mut self, vm: &ArmId) {
        self.at_work.of_vms.remove(vm);
    }

    /// Notes what a single read of a VM has shown of a disk.
    pub(super) fn note_shown(&mut self, vm: &ArmId, disk: &DiskId, attached: bool, sent_at: Duration, now: Duration) {
        self.shown.retain(|_, shown| shown.outdates_list_of(now));
        self.shown.insert((vm.clone(), disk.clone()), Shown { attached, sent_at });
    }

    /// What single reads of a VM have shown lately.
    pub(super) fn shown_on(&self, vm: &ArmId) -> BTreeMap<DiskId, Shown<Duration>> {
        let of_vm = self.shown.iter().filter(|((of, _), _)| of == vm);
        of_vm.map(|((_, disk), shown)| (disk.clone(), *shown)).collect()
    }
}

/// Since when reads have shown that a write of a VM runs.
///
/// external-attacher gives its calls up after two minutes and begins them anew, so that no call alone sees a state that does
/// not end for as long as that is waited for.
#[derive(Debug, Default)]
struct AtWork {
    /// When the first of these reads came, and the last.
    of_vms: BTreeMap<ArmId, (Duration, Duration)>,
}

impl AtWork {
    /// After so long without a read another write may run than the one that was seen.
    const LONGEST_GAP: Duration = Duration::from_secs(60);

    fn seen(&mut self, vm: &Vm, now: Duration) {
        self.of_vms.retain(|_, (_, last)| now <= *last + Self::LONGEST_GAP);
        if vm.provisioning_state == ProvisioningState::InProgress {
            self.of_vms.entry(vm.id.clone()).or_insert((now, now)).1 = now;
        } else {
            self.of_vms.remove(&vm.id);
        }
    }

    fn of(&self, vm: &ArmId, now: Duration) -> Duration {
        let seen = self.of_vms.get(vm).filter(|(_, last)| now <= *last + Self::LONGEST_GAP);
        seen.map(|(first, _)| now.saturating_sub(*first)).unwrap_or_default()
    }
}

/// Since when this replica has had requests without a break.
///
/// Leadership is a lease of the sidecars, which no replica of this program sees. In [`SHORTEST_LEADERSHIP`] without a request
/// another replica may have been the leader. Reads taken in the first [`MAX_READ_LAG`] after a pause of that length may lack
/// the last write of the leader before, and prove no detach.
#[derive(Debug, Default)]
struct Leadership {
    last_request: Option<Duration>,
    /// When the first of these requests came.
    since: Option<Duration>,
    /// From then on no read is older than the last write of the leader before.
    reads_fresh_since: Option<Duration>,
}

impl Leadership {
    fn request_arrived(&mut self, now: Duration) {
        let is_after = |pause| self.last_request.is_none_or(|last| now >= last + pause);
        if is_after(SHORTEST_LEADERSHIP) {
            self.since = Some(now);
        }
        if is_after(MAX_READ_LAG) {
            self.reads_fresh_since = Some(now + MAX_READ_LAG);
        }
        self.last_request = Some(now);
    }

    /// Since when this replica may have been the leader: before that another one may have been.
    fn leading_since(&self, now: Duration) -> Duration {
        self.since.unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pause_as_long_as_a_lease_may_hide_another_leader_and_a_shorter_one_its_last_writes() {
        let mut leadership = Leadership::default();
        let mut after = |seconds: u64| {
            let now = Duration::from_secs(seconds);
            leadership.request_arrived(now);
            (leadership.leading_since(now).as_secs(), leadership.reads_fresh_since.map(|since| since.as_secs()))
        };
        assert_eq!(after(100).0, 100);
        assert_eq!(after(105), (100, Some(109)));
        assert_eq!(after(119).0, 100);
        assert_eq!(after(134).0, 134);
    }
}
