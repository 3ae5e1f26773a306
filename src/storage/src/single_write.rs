//! When the write of a single resource is sent again, and what is looked at before.
//!
//! No condition guards the creation, the expansion and the deletion of a disk or a snapshot: neither has an ETag. So such a write rests on a
//! read that was made right before it, and on a caller who waits for it. It goes
//!
//! ```text
//!   permit ──▶ read ──▶ decide ──▶ one send ──▶ ended
//!     ▲                               │
//!     └── pause ◀── refused, or the answer was lost
//! ```
//!
//! and each pause begins anew: another process may have made, changed or deleted the resource meanwhile. A write that no
//! caller waits for any more is not sent.

use std::time::Duration;

use lazuli_model::{Disk, Gib, ProvisioningState, fault::Fault};

use crate::{attach::Moment, whole::Resource};
use lazuli_volume::{DetachReason, made_for_another, needs_detach};

/// How old the read may be on which a write rests. Longer waits for a permit call for another read.
const READ_IS_FRESH: Duration = Duration::from_secs(2);
/// How often an expansion is sent again while Azure calls the disk busy.
const MOST_CONFLICTS: u32 = 1;

/// Why a deletion is looked at again before it is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Azure refused or delayed it, or its answer was lost.
    Delayed,
    /// Azure says that it is busy with the resource.
    Busy,
    /// The same, and a read after that did not find it. A pause has passed since.
    BusyAndNotFound,
}

/// What becomes of a deletion that was refused, by a single read of the resource made since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// Send it.
    Send,
    /// Look again after a pause: Azure calls the disk busy, and a read does not find it. Reads may lag, so only the answer
    /// to another deletion shows whether it exists.
    Pause,
    /// Wait for the end of the operation on the disk, and look again.
    Wait,
    /// A VM holds the disk: it cannot be deleted.
    Held,
    /// The disk does not exist.
    Gone,
    /// The disk that was to be deleted does not exist. Another one of its name was made meanwhile, and stays.
    Replaced,
}

/// What becomes of a deletion that was refused. `before` is the disk as an earlier read of the same deletion showed it,
/// `now` as a single read shows it that was sent after the refusal.
pub(crate) fn deletion<R: Resource>(refusal: Refusal, before: Option<&R>, now: Option<&R>) -> Deletion {
    let Some(now) = now else {
        return match refusal {
            Refusal::Delayed => Deletion::Gone,
            Refusal::Busy => Deletion::Pause,
            Refusal::BusyAndNotFound => Deletion::Send,
        };
    };
    if before.is_some_and(|before| now.is_other_than(before)) {
        Deletion::Replaced
    } else if now.provisioning_state() == ProvisioningState::InProgress {
        Deletion::Wait
    } else if now.is_held() {
        Deletion::Held
    } else {
        Deletion::Send
    }
}

/// What becomes of an expansion, by a single read of the disk made since it was chosen or sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expansion {
    /// Send it.
    Send,
    /// Wait for the end of the operation on the disk, and look again.
    Wait,
    /// The disk is that large.
    Done,
    /// The disk has been attached since, and must be detached before it can grow.
    NeedsDetach(DetachReason),
    /// The disk does not exist.
    Gone,
    /// The disk that was to grow does not exist. Another one of its name was made meanwhile, and stays as it is.
    Replaced,
}

/// What becomes of an expansion. `before` is the disk by the read by which the size was chosen, `now` as a single read shows
/// it that was sent since.
pub fn expansion(before: &Disk, now: Option<&Disk>, to: Gib) -> Expansion {
    let Some(now) = now else { return Expansion::Gone };
    // No disk shrinks.
    if made_for_another(before, now) || now.size < before.size {
        Expansion::Replaced
    } else if now.provisioning_state == ProvisioningState::InProgress {
        Expansion::Wait
    } else if now.size >= to {
        Expansion::Done
    } else {
        let is_attached = !now.holders().is_empty();
        needs_detach(now, to).filter(|_| is_attached).map_or(Expansion::Send, Expansion::NeedsDetach)
    }
}

/// The sends of one expansion, and the read on which the next one rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpansionSends<T> {
    read_at: Option<T>,
    conflicts: u32,
}

/// What follows after an expansion that failed. The disk is read before it is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterExpansion {
    /// Read the disk again at once: Azure called it busy.
    ReadAgain,
    /// The tries decide ([`lazuli_engine::attempts`]).
    Attempts,
    /// The failure is the answer.
    Stop,
}

impl<T: Moment> ExpansionSends<T> {
    /// An expansion whose size was chosen by a read that was sent at `read_at`.
    pub fn new(read_at: T) -> Self {
        Self { read_at: Some(read_at), conflicts: 0 }
    }

    /// Whether the disk must be read before the expansion is sent now.
    pub fn needs_read(&self, now: T) -> bool {
        self.read_at.is_none_or(|read_at| now > read_at + READ_IS_FRESH)
    }

    /// An operation on the disk has been waited for, and may have changed it.
    pub fn waited(&mut self) {
        self.read_at = None;
    }

    /// Takes in how the expansion failed: `accepted` where Azure had accepted it.
    pub fn failed(&mut self, fault: &Fault, accepted: bool) -> AfterExpansion {
        self.read_at = None;
        if *fault == Fault::Conflict && self.conflicts < MOST_CONFLICTS {
            self.conflicts += 1;
            return AfterExpansion::ReadAgain;
        }
        if accepted { AfterExpansion::Stop } else { AfterExpansion::Attempts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whole_disk::SeenDisk;
    use lazuli_model::ArmId;

    #[test]
    fn an_expansion_is_sent_again_only_for_the_disk_that_it_was_for_and_while_that_is_smaller() {
        let made = |request: &str, gib: u32| Disk {
            tags: [("lazuli-request".to_owned(), request.to_owned())].into(),
            size: Gib::new(gib),
            ..Disk::unattached("d0")
        };
        let before = made("pvc-1", 4);
        let vm = ArmId::virtual_machine("s", "g", "n0").unwrap();
        let busy = Disk { provisioning_state: ProvisioningState::InProgress, ..before.clone() };
        let shared = Disk { managed_by: Some(vm), max_shares: 2, ..before.clone() };
        for (case, now, expected) in [
            ("as it was", Some(&before), Expansion::Send),
            ("gone", None, Expansion::Gone),
            ("another claim's", Some(&made("pvc-2", 4)), Expansion::Replaced),
            ("smaller than it was", Some(&made("pvc-1", 3)), Expansion::Replaced),
            ("grown less", Some(&made("pvc-1", 7)), Expansion::Send),
            ("grown as asked", Some(&made("pvc-1", 8)), Expansion::Done),
            ("grown more", Some(&made("pvc-1", 9)), Expansion::Done),
            ("busy", Some(&busy), Expansion::Wait),
            ("attached since", Some(&shared), Expansion::NeedsDetach(DetachReason::Shared)),
        ] {
            assert_eq!(expansion(&before, now, Gib::new(8)), expected, "{case}");
        }
    }

    #[test]
    fn an_expansion_rests_on_a_read_of_a_moment_ago_and_on_another_one_after_each_send() {
        let at = Duration::from_secs;
        let first = ExpansionSends::new(at(10));
        assert_eq!([10, 12, 13].map(|now| first.needs_read(at(now))), [false, false, true]);
        let mut waited = first;
        waited.waited();
        assert!(waited.needs_read(at(10)));
        for (fault, accepted, expected) in [
            (Fault::Conflict, false, [AfterExpansion::ReadAgain, AfterExpansion::Attempts]),
            (Fault::Conflict, true, [AfterExpansion::ReadAgain, AfterExpansion::Stop]),
            (Fault::Unavailable, false, [AfterExpansion::Attempts; 2]),
            (Fault::Unavailable, true, [AfterExpansion::Stop; 2]),
        ] {
            let mut sends = first;
            assert_eq!([(); 2].map(|()| sends.failed(&fault, accepted)), expected, "{fault:?} {accepted}");
            assert!(sends.needs_read(at(10)));
        }
    }

    #[test]
    fn a_deletion_is_sent_again_only_for_the_disk_that_it_was_for_and_that_no_vm_holds() {
        let request = |name: &str| {
            let tags = [("lazuli-request".to_owned(), name.to_owned())].into();
            SeenDisk { disk: Disk { tags, ..Disk::unattached("d0") }, details: None }
        };
        let (one, other) = (request("pvc-1"), request("pvc-2"));
        let of = |change: fn(&mut Disk)| {
            let mut seen = one.clone();
            change(&mut seen.disk);
            seen
        };
        let held = of(|disk| disk.managed_by = Some(ArmId::virtual_machine("s", "g", "n0").unwrap()));
        let busy = of(|disk| disk.provisioning_state = ProvisioningState::InProgress);
        for refusal in [Refusal::Delayed, Refusal::Busy, Refusal::BusyAndNotFound] {
            let decided = |before: Option<&SeenDisk>, now: &SeenDisk| deletion(refusal, before, Some(now));
            assert_eq!(decided(None, &one), Deletion::Send);
            assert_eq!(decided(Some(&one), &one), Deletion::Send);
            assert_eq!(decided(Some(&one), &other), Deletion::Replaced);
            assert_eq!(decided(Some(&one), &held), Deletion::Held);
            assert_eq!(decided(None, &busy), Deletion::Wait);
        }
        assert_eq!(deletion(Refusal::Delayed, Some(&one), None::<&SeenDisk>), Deletion::Gone);
        assert_eq!(deletion(Refusal::Busy, Some(&one), None), Deletion::Pause);
        assert_eq!(deletion(Refusal::BusyAndNotFound, Some(&one), None), Deletion::Send);
        let unnamed = of(|disk| disk.tags.clear());
        assert_eq!(deletion(Refusal::Delayed, Some(&one), Some(&unnamed)), Deletion::Send, "a person removed the tags");
    }
}
