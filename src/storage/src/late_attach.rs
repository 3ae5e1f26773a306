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

use std::{collections::BTreeMap, time::Duration};

use lazuli_model::ArmId;

use crate::{attach::Moment, lun::Record};

/// How long an attach may be under way before Azure shows it (unverified: Azure begins an accepted write within seconds, and
/// gives no time).
pub const LONGEST: Duration = Duration::from_secs(60);

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
    of: BTreeMap<(ArmId, ArmId), Suspicion<T>>,
    /// Until when an attach of this process may be under way whose answer was lost.
    lost: BTreeMap<(ArmId, ArmId), T>,
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
        Self { of: BTreeMap::new(), lost: BTreeMap::new() }
    }
}

impl<T: Moment> Suspicions<T> {
    /// Until when an attach of the disk to the VM may be under way of which Azure shows nothing. A detach of it is requested
    /// now.
    pub fn of_detach(&mut self, vm: &ArmId, disk: &ArmId, record: Record, leading_since: T, now: T) -> Option<T> {
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

    /// This process sent an attach then, and its answer was lost.
    pub fn answer_lost(&mut self, vm: &ArmId, disk: &ArmId, sent_at: T, now: T) {
        self.forget_old(now);
        self.lost.insert((vm.clone(), disk.clone()), sent_at + LONGEST);
    }

    fn forget_old(&mut self, now: T) {
        self.of.retain(|_, suspicion| now < suspicion.last_requested + REPEATED_WITHIN);
        self.lost.retain(|_, until| now < *until);
    }

    /// A single read of the VM shows the disk of a detach: its attach is not under way any more.
    pub fn shown(&mut self, vm: &ArmId, disk: &ArmId, now: T) {
        self.forget_old(now);
        self.lost.remove(&(vm.clone(), disk.clone()));
        let shown = Suspicion { until: now, last_requested: now, answered: None };
        self.of.insert((vm.clone(), disk.clone()), shown);
    }

    /// An attach of the disk to the VM is shown to have ended.
    pub fn ended(&mut self, vm: &ArmId, disk: &ArmId) {
        self.lost.remove(&(vm.clone(), disk.clone()));
    }

    /// The detach of the disk from the VM is answered OK. It is repeated only where that answer is lost. After another
    /// replica may have led, the next detach is another VolumeAttachment's.
    pub fn answered(&mut self, vm: &ArmId, disk: &ArmId, now: T) {
        if let Some(suspicion) = self.of.get_mut(&(vm.clone(), disk.clone())) {
            suspicion.answered = Some(now);
        }
    }

    /// An attach of the disk to the VM is requested: the next detach is another VolumeAttachment's.
    pub fn forget(&mut self, vm: &ArmId, disk: &ArmId) {
        self.of.remove(&(vm.clone(), disk.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn vm() -> ArmId {
        ArmId::virtual_machine("s", "g", "node-0").unwrap()
    }

    fn disk() -> ArmId {
        ArmId::disk("s", "g", "d0").unwrap()
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
        suspicions.answer_lost(&vm(), &disk(), at(100), at(110));
        // The attach is requested again.
        suspicions.forget(&vm(), &disk());
        assert_eq!(of_detach(&mut suspicions, 120), Some(at(160)));
        assert_eq!(of_detach(&mut suspicions, 160), None);
        suspicions.answer_lost(&vm(), &disk(), at(200), at(210));
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
