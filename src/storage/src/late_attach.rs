//! Whether an attach may be under way of which Azure shows nothing yet.
//!
//! A process is killed, or its sidecar loses the lease, right after it sent an attach. The request may still wait in Azure,
//! and until it begins neither the VM nor the disk shows it. A detach that the next leader answers OK because nothing shows
//! the disk attached is untrue a moment later: the attach begins, and nobody detaches the disk any more.
//!
//! external-attacher records the LUN in the VolumeAttachment when an attach has succeeded. So where
//! it has recorded one, none is suspected; an attach of the leader before that stays hidden until this process has attached and
//! detached the disk too is not known by this. Where it has recorded none, the detach is answered OK only [`LONGEST`] after this
//! process may have become the leader: the leader before has sent nothing since.
//!
//! The same holds of an attach of this process whose answer was lost, for [`LONGEST`] after it was sent.
//!
//! The time counts from the first request of the detach on ([`Suspicions`]). external-attacher repeats the detach of one
//! VolumeAttachment until it succeeds and attaches nothing for it meanwhile, so a pause between two tries begins nothing
//! anew.
//!
//! # Writes that a read may lack
//!
//! A list of disks that Azure takes unconditionally undoes every write that the read before it lacks. So a write of this
//! process whose answer was lost is remembered until a read shows it, or for [`LONGEST`]; and one that has failed, for as long
//! as a read may be old.

use std::{collections::BTreeMap, time::Duration};

use lazuli_model::{ArmId, DiskId, ProvisioningState, Vm, op::VmWrite};
use lazuli_quota::read::{By, Seen};

use crate::{attach::Moment, lun::Record};

/// How long an attach may be under way before Azure shows it (unverified: Azure begins an accepted write within seconds, and
/// gives no time).
pub const LONGEST: Duration = Duration::from_secs(60);

/// How many detaches are remembered that may be carried out later.
const MOST_LEAVING: usize = 1_024;

/// How long after a try external-attacher repeats it at the latest, with time for the try itself (source: its
/// `--retry-interval-max` is 5 minutes).
const REPEATED_WITHIN: Duration = Duration::from_secs(6 * 60);

/// Until when an attach by the leader before may be under way of which Azure shows nothing. `leading_since` is when this
/// process may have become the leader. `None` where no such attach is to be suspected.
///
/// Without a cluster there is no other leader.
pub fn may_be_under_way_until<T: Moment>(record: Record, leading_since: T) -> Option<T> {
    match record {
        Record::NoCluster | Record::Attached => None,
        Record::Unknown | Record::NotAttached => Some(leading_since + LONGEST),
    }
}

/// The detaches of which an attach is suspected, by VM and disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspicions<T> {
    of: BTreeMap<(ArmId, DiskId), Suspicion<T>>,
    /// Until when an attach of this process may be under way whose answer was lost.
    lost: BTreeMap<(ArmId, DiskId), T>,
    /// The last write of each VM that its reads may lack.
    unshown: BTreeMap<ArmId, Unshown<T>>,
    /// The detaches of this process that failed after Azure had accepted them, by VM and disk. Azure may carry them out with a
    /// later write, and an old API does not show which they are. A read in the state Succeeded that is sent from this time on
    /// shows that it will not.
    leaving: BTreeMap<(ArmId, DiskId), T>,
}

/// A write of a VM's data disks that a read may lack.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unshown<T> {
    /// A read that was sent earlier may lack it.
    until: T,
    /// What was sent, and when, where the answer was lost: a read may show it before that time.
    sent: Option<(VmWrite, T)>,
}

impl<T: Moment> Unshown<T> {
    fn is_shown_by(&self, vm: &Vm, seen: Seen<T>) -> bool {
        let Some((write, sent_at)) = &self.sent else { return false };
        let stays = |disk: &DiskId| vm.data_disk(disk).is_some_and(|element| !element.to_be_detached);
        let is_done = !write.says_nothing()
            && write.attach.iter().all(|attachment| stays(&attachment.disk))
            && !write.detach.iter().any(stays);
        seen.by == By::Single && seen.sent_at >= *sent_at && is_done
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Suspicion<T> {
    until: T,
    last_requested: T,
    /// When the detach was answered OK. It is repeated only where that answer was lost.
    answered: Option<T>,
}

impl<T> Default for Suspicions<T> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), lost: BTreeMap::new(), unshown: BTreeMap::new(), leaving: BTreeMap::new() }
    }
}

impl<T: Moment> Suspicions<T> {
    /// Until when an attach of the disk to the VM may be under way of which Azure shows nothing. A detach of it is requested
    /// now.
    pub fn of_detach(&mut self, vm: &ArmId, disk: &DiskId, record: Record, leading_since: T, now: T) -> Option<T> {
        self.forget_old(now);
        let key = (vm.clone(), disk.clone());
        let lost = self.lost.get(&key).copied();
        let of_leader_before = may_be_under_way_until(record, leading_since).map(|until| {
            let anew = Suspicion { until, last_requested: now, answered: None };
            let suspicion = self.of.entry(key).or_insert(anew);
            // Another replica may have led since, and have sent an attach that is another VolumeAttachment's.
            if suspicion.answered.is_some_and(|answered| leading_since > answered) {
                *suspicion = anew;
            }
            suspicion.last_requested = now;
            suspicion.until
        });
        of_leader_before.max(lost)
    }

    /// This process sent a write then, and its answer was lost.
    pub fn answer_lost(&mut self, write: &VmWrite, sent_at: T, now: T) {
        self.forget_old(now);
        let until = sent_at + LONGEST;
        for attachment in &write.attach {
            self.lost.insert((write.vm.clone(), attachment.disk.clone()), until);
        }
        self.unshown.insert(write.vm.clone(), Unshown { until, sent: Some((write.clone(), sent_at)) });
    }

    /// A write of this process has failed, and may have changed something. A read that was sent before that time may lack it.
    pub fn write_failed(&mut self, vm: &ArmId, until: T, now: T) {
        self.forget_old(now);
        let unshown = self.unshown.entry(vm.clone()).or_insert(Unshown { until, sent: None });
        if unshown.until < until {
            *unshown = Unshown { until, sent: None };
        }
    }

    /// The VM was read.
    pub fn vm_read(&mut self, vm: &Vm, seen: Seen<T>) {
        if self.unshown.get(&vm.id).is_some_and(|unshown| unshown.is_shown_by(vm, seen)) {
            self.unshown.remove(&vm.id);
        }
        if seen.by == By::Single {
            let is_over = |disk: &DiskId, until: &T| {
                vm.data_disk(disk).is_none()
                    || seen.sent_at >= *until && vm.provisioning_state == ProvisioningState::Succeeded
            };
            self.leaving.retain(|(of, disk), until| *of != vm.id || !is_over(disk, until));
        }
    }

    /// The VM with the marks of its disks whose detach by this process may still be carried out.
    pub fn with_marks(&self, vm: &Vm) -> Vm {
        let mut vm = vm.clone();
        for element in &mut vm.data_disks {
            let is_it = |(of, disk): &(ArmId, DiskId)| *of == vm.id && element.is(disk);
            element.to_be_detached |= self.leaving.keys().any(is_it);
        }
        vm
    }

    /// A write of this process has failed that Azure had accepted. A read that was sent before that time may not show it.
    pub fn operation_failed(&mut self, write: &VmWrite, until: T) {
        for disk in &write.detach {
            self.leaving.insert((write.vm.clone(), disk.clone()), until);
            // The oldest is the first to be of a machine that is gone.
            let oldest = || self.leaving.iter().min_by_key(|(_, until)| **until).map(|(key, _)| key.clone());
            if let Some(oldest) = (self.leaving.len() > MOST_LEAVING).then(oldest).flatten() {
                self.leaving.remove(&oldest);
            }
        }
    }

    /// Until when a read of the VM may lack a write of this process.
    pub fn unshown_until(&self, vm: &ArmId) -> Option<T> {
        self.unshown.get(vm).map(|unshown| unshown.until)
    }

    fn forget_old(&mut self, now: T) {
        self.of.retain(|_, suspicion| now < suspicion.last_requested + REPEATED_WITHIN);
        self.lost.retain(|_, until| now < *until);
        self.unshown.retain(|_, unshown| now < unshown.until);
    }

    /// A single read of the VM shows the disk of a detach: its attach is not under way any more.
    pub fn shown(&mut self, vm: &ArmId, disk: &DiskId, now: T) {
        self.forget_old(now);
        self.lost.remove(&(vm.clone(), disk.clone()));
        let shown = Suspicion { until: now, last_requested: now, answered: None };
        self.of.insert((vm.clone(), disk.clone()), shown);
    }

    /// An attach of the disk to the VM is shown to have ended.
    pub fn ended(&mut self, vm: &ArmId, disk: &DiskId) {
        self.lost.remove(&(vm.clone(), disk.clone()));
    }

    /// The detach of the disk from the VM is answered OK. It is repeated only where that answer is lost. After another
    /// replica may have led, the next detach is another VolumeAttachment's.
    pub fn answered(&mut self, vm: &ArmId, disk: &DiskId, now: T) {
        if let Some(suspicion) = self.of.get_mut(&(vm.clone(), disk.clone())) {
            suspicion.answered = Some(now);
        }
    }

    /// An attach of the disk to the VM is requested: the next detach is another VolumeAttachment's.
    pub fn forget(&mut self, vm: &ArmId, disk: &DiskId) {
        self.of.remove(&(vm.clone(), disk.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lazuli_model::{CachingMode, DataDisk, DataDiskSource, Lun, op::Attachment};

    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn vm() -> ArmId {
        ArmId::virtual_machine("s", "g", "node-0").unwrap()
    }

    fn disk() -> DiskId {
        DiskId::from(ArmId::disk("s", "g", "d0").unwrap())
    }

    fn attach() -> VmWrite {
        let attachment = Attachment {
            disk: disk(),
            lun: Lun::try_from(0).unwrap(),
            caching: CachingMode::None,
            disk_encryption_set: None,
            write_accelerator: false,
        };
        VmWrite { attach: vec![attachment], detach: Vec::new(), ..detach() }
    }

    fn detach() -> VmWrite {
        let detach = vec![disk()];
        VmWrite { vm: vm(), attach: Vec::new(), detach, force: BTreeSet::new(), reapply: Vec::new() }
    }

    /// The VM, with the disk or without it.
    fn machine(has_disk: bool) -> Vm {
        let element = DataDisk {
            lun: Lun::try_from(0).unwrap(),
            source: DataDiskSource::Disk(disk()),
            caching: CachingMode::None,
            to_be_detached: false,
        };
        Vm {
            id: vm(),
            location: "local".into(),
            size: "Standard_D2s_v3".into(),
            zone: None,
            computer_name: None,
            provisioning_state: ProvisioningState::InProgress,
            etag: None,
            system_disk: lazuli_model::SystemDisk::Managed,
            data_disks: has_disk.then_some(element).into_iter().collect(),
        }
    }

    #[test]
    fn a_write_whose_answer_was_lost_may_be_lacking_until_a_single_read_after_it_shows_it() {
        for (write, has_disk, by, sent_at, is_shown) in [
            (attach(), false, By::Single, 101, false),
            (attach(), true, By::Single, 101, true),
            (attach(), true, By::List, 101, false),
            (attach(), true, By::Single, 99, false),
            (detach(), true, By::Single, 101, false),
            (detach(), false, By::Single, 101, true),
            (VmWrite { detach: Vec::new(), reapply: vec![disk()], ..detach() }, true, By::Single, 101, false),
        ] {
            let mut suspicions = Suspicions::default();
            suspicions.answer_lost(&write, at(100), at(100));
            suspicions.vm_read(&machine(has_disk), Seen { by, sent_at: at(sent_at) });
            let expected = if is_shown { None } else { Some(at(160)) };
            assert_eq!(suspicions.unshown_until(&vm()), expected, "{write:?} {has_disk} {by:?} {sent_at}");
        }
    }

    #[test]
    fn a_disk_whose_detach_failed_may_leave_later_until_the_vm_is_at_rest_without_a_failure() {
        use ProvisioningState::{Failed, Succeeded};
        let mut suspicions = Suspicions::default();
        let seen = |sent_at: u64| Seen { by: By::Single, sent_at: at(sent_at) };
        let in_state = |provisioning_state| Vm { provisioning_state, ..machine(true) };
        let is_marked =
            |suspicions: &Suspicions<Duration>| suspicions.with_marks(&machine(true)).data_disks[0].to_be_detached;
        assert!(!is_marked(&suspicions));
        suspicions.operation_failed(&detach(), at(104));
        for (state, sent_at, expected) in [(Succeeded, 103, true), (Failed, 200, true), (Succeeded, 201, false)] {
            suspicions.vm_read(&in_state(state), seen(sent_at));
            assert_eq!(is_marked(&suspicions), expected, "{state:?} {sent_at}");
        }
        suspicions.operation_failed(&detach(), at(304));
        assert!(is_marked(&suspicions));
        suspicions.vm_read(&machine(false), seen(310));
        assert!(!is_marked(&suspicions), "it has left");
    }

    #[test]
    fn where_too_many_disks_may_leave_later_the_oldest_is_forgotten() {
        let mut suspicions = Suspicions::default();
        let id = |n: usize| DiskId::from(ArmId::disk("s", "g", &format!("d{n}")).unwrap());
        for n in (0..=MOST_LEAVING).rev() {
            let detach = VmWrite { detach: vec![id(n)], ..detach() };
            suspicions.operation_failed(&detach, at(u64::try_from(10_000 - n).unwrap()));
        }
        let remembered = [0, MOST_LEAVING - 1, MOST_LEAVING].map(|n| suspicions.leaving.contains_key(&(vm(), id(n))));
        assert_eq!((remembered, suspicions.leaving.len()), ([true, true, false], MOST_LEAVING));
    }

    #[test]
    fn a_write_that_failed_may_be_lacking_for_a_while_and_does_not_shorten_that_of_a_lost_one() {
        let mut suspicions = Suspicions::default();
        suspicions.write_failed(&vm(), at(104), at(100));
        assert_eq!(suspicions.unshown_until(&vm()), Some(at(104)));
        suspicions.answer_lost(&detach(), at(102), at(103));
        suspicions.write_failed(&vm(), at(110), at(106));
        assert_eq!(suspicions.unshown_until(&vm()), Some(at(162)));
        suspicions.write_failed(&vm(), at(174), at(170));
        assert_eq!(suspicions.unshown_until(&vm()), Some(at(174)));
    }

    #[test]
    fn an_attach_is_suspected_where_no_attachment_records_that_it_has_ended() {
        for (record, expected) in [
            (Record::NotAttached, Some(at(70))),
            (Record::Unknown, Some(at(70))),
            (Record::Attached, None),
            (Record::NoCluster, None),
        ] {
            assert_eq!(may_be_under_way_until(record, at(10)), expected, "{record:?}");
        }
    }

    #[test]
    fn an_attach_that_the_vm_has_shown_is_suspected_no_more() {
        let mut suspicions = Suspicions::default();
        suspicions.shown(&vm(), &disk(), at(15));
        for now in [16, 300] {
            let until = suspicions.of_detach(&vm(), &disk(), Record::NotAttached, at(10), at(now));
            assert_eq!(until, Some(at(15)), "{now}");
        }
    }

    #[test]
    fn an_attach_whose_answer_was_lost_is_suspected_until_the_vm_shows_it() {
        let mut suspicions = Suspicions::default();
        let of_detach = |suspicions: &mut Suspicions<Duration>, now: u64| {
            suspicions.of_detach(&vm(), &disk(), Record::NoCluster, at(0), at(now))
        };
        suspicions.answer_lost(&attach(), at(100), at(110));
        // The attach is requested again.
        suspicions.forget(&vm(), &disk());
        assert_eq!(of_detach(&mut suspicions, 120), Some(at(160)));
        assert_eq!(of_detach(&mut suspicions, 160), None);
        suspicions.answer_lost(&attach(), at(200), at(210));
        suspicions.shown(&vm(), &disk(), at(215));
        assert_eq!(of_detach(&mut suspicions, 220), None);
    }

    #[test]
    fn a_detach_that_was_answered_is_suspected_anew_only_after_another_leadership() {
        let mut suspicions = Suspicions::default();
        let of_detach = |suspicions: &mut Suspicions<Duration>, leading_since: u64, now: u64| {
            suspicions.of_detach(&vm(), &disk(), Record::NotAttached, at(leading_since), at(now))
        };
        assert_eq!(of_detach(&mut suspicions, 10, 10), Some(at(70)));
        suspicions.answered(&vm(), &disk(), at(71));
        assert_eq!(of_detach(&mut suspicions, 10, 72), Some(at(70)), "the answer was lost");
        assert_eq!(of_detach(&mut suspicions, 90, 90), Some(at(150)), "another replica may have attached it");
    }

    #[test]
    fn a_detach_that_is_repeated_is_suspected_no_longer_and_another_ones_anew() {
        let mut suspicions = Suspicions::default();
        let mut until = |leading_since: u64, now: u64| {
            suspicions.of_detach(&vm(), &disk(), Record::NotAttached, at(leading_since), at(now))
        };
        assert_eq!(until(10, 10), Some(at(70)));
        // Each pause of more than a few seconds may have been another one's leadership.
        assert_eq!(until(30, 30), Some(at(70)));
        assert_eq!(until(330, 330), Some(at(70)));
        assert_eq!(until(700, 700), Some(at(760)), "so late no try is repeated");
        suspicions.forget(&vm(), &disk());
        let anew = suspicions.of_detach(&vm(), &disk(), Record::NotAttached, at(720), at(720));
        assert_eq!(anew, Some(at(780)));
        assert_eq!(suspicions.of_detach(&vm(), &disk(), Record::Attached, at(720), at(721)), None);
    }
}
