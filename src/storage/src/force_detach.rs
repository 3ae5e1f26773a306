//! Whether a data disk may be detached by force.
//!
//! An ordinary detach waits until the machine's host lets the disk go, and a broken host may never do so. A forced detach
//! does not wait: what the machine has not written by then is lost, and a machine that still writes may damage the file
//! system. So it is opt-in, it follows an ordinary detach that failed, and Azure must show, in a read made right before,
//! that the machine runs no more and that no operation on it is in flight which might start it.

use lazuli_model::{
    ArmId, AzureTime, Disk, DiskId, ProvisioningState,
    fault::{Effect, Fault},
};
use lazuli_model::{InstanceView, PowerState};

/// Whether disks may be detached by force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForceDetach {
    /// Never.
    #[default]
    Off,
    /// From VMs that are proved stopped.
    StoppedVms,
}

/// Why a disk is not detached by force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotForced {
    /// The VM runs, is on its way to, or Azure does not say.
    #[error("Azure does not show that the VM is stopped or deallocated")]
    NotStopped,
    /// An operation on the VM is in flight.
    #[error("an operation on the VM is in flight")]
    InFlight,
}

/// How the last write of a detach ended that was not a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detach {
    /// No write of the detach was sent, Azure was not reached, or Azure refused it: what failed is a read, a permit, a
    /// connection or the request.
    #[default]
    NotTried,
    /// Azure took the write and did not carry it out, or cannot say what became of it.
    Failed {
        /// The time of the answer that showed the disk attached before the write was sent, where it has one.
        attached: Option<AzureTime>,
    },
}

impl Detach {
    /// By the failure of its write. `answered` is whether Azure answered it; `attached` is the time of the read that the
    /// write followed from.
    pub fn of_write(fault: &Fault, effect: Effect, answered: bool, attached: Option<AzureTime>) -> Self {
        if (answered || effect == Effect::Possible) && was_not_carried_out(fault) {
            Self::Failed { attached }
        } else {
            Self::NotTried
        }
    }
}

/// Whether a failure makes a forced detach worth a try: Azure took the write and did not carry it out, or cannot say what
/// became of it. A refusal (throttled, forbidden, locked, conflict) is about the request, and force does not change it.
fn was_not_carried_out(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::OperationFailed | Fault::Unclear | Fault::Unavailable | Fault::OutcomeUnknown | Fault::Deadline
    )
}

/// Whether a VM is proved stopped. A detach that failed leaves the state Failed behind, so Failed counts like Succeeded:
/// in both no operation is in flight.
///
/// # Errors
/// [`NotForced`].
pub fn check(view: InstanceView) -> Result<(), NotForced> {
    match view.provisioning_state {
        ProvisioningState::InProgress => return Err(NotForced::InFlight),
        ProvisioningState::Succeeded | ProvisioningState::Failed | ProvisioningState::Canceled => {}
    }
    match view.power {
        Some(PowerState::Stopped | PowerState::Deallocated) => Ok(()),
        Some(PowerState::Other) | None => Err(NotForced::NotStopped),
    }
}

/// The ordinary detaches that failed, by VM and disk, each with the time of the answer by which the disk was attached when
/// its detach was sent. It holds what this process has seen, and may be lost: then one more ordinary detach comes first.
#[derive(Debug, Default)]
pub struct FailedDetaches(std::collections::BTreeMap<(ArmId, DiskId), AzureTime>);

/// How many failed detaches are remembered.
const MOST: usize = 1_024;

impl FailedDetaches {
    /// Records how an ordinary or forced detach ended: with which failure, and how its last write ended.
    pub fn ended(&mut self, vm: &ArmId, disk: &DiskId, failure: Option<(Detach, &Fault)>) {
        let key = (vm.clone(), disk.clone());
        match failure {
            None => drop(self.0.remove(&key)),
            Some((Detach::Failed { attached: Some(attached) }, fault)) if was_not_carried_out(fault) => {
                if self.0.len() >= MOST && !self.0.contains_key(&key) {
                    self.0.pop_first();
                }
                self.0.insert(key, attached);
            }
            // It says nothing of the earlier failure.
            Some(_) => {}
        }
    }

    /// The disk is to be attached to the VM again: its next detach begins as an ordinary one.
    pub fn attached(&mut self, vm: &ArmId, disk: &DiskId) {
        self.0.remove(&(vm.clone(), disk.clone()));
    }

    /// Whether an ordinary detach of the disk from the VM has failed. It may be of an earlier attachment.
    pub fn contains(&self, vm: &ArmId, disk: &DiskId) -> bool {
        self.0.contains_key(&(vm.clone(), disk.clone()))
    }

    /// Whether an ordinary detach of this very attachment has failed, by a single read of the disk: it has been neither
    /// detached nor attached again since, and its VM was neither deallocated nor started.
    pub fn is_of_this_attachment(&self, vm: &ArmId, disk: &Disk<DiskId>) -> bool {
        self.0.get(&(vm.clone(), disk.id.clone())).is_some_and(|attached| disk.is_held_since(vm, *attached))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ATTACHED: Option<AzureTime> = Some(AzureTime::from_unix_seconds(100));
    const FAILED: Detach = Detach::Failed { attached: ATTACHED };

    const CODES: [&str; 9] = [
        "PowerState/running",
        "PowerState/starting",
        "PowerState/stopping",
        "PowerState/stopped",
        "powerstate/Deallocated",
        "PowerState/deallocating",
        "PowerState/unknown",
        "ProvisioningState/succeeded",
        "stopped",
    ];

    fn provisioning() -> impl Strategy<Value = ProvisioningState> {
        prop_oneof![
            Just(ProvisioningState::Succeeded),
            Just(ProvisioningState::Failed),
            Just(ProvisioningState::Canceled),
            Just(ProvisioningState::InProgress),
        ]
    }

    proptest! {
        /// Whatever Azure says: no force on a VM that runs or may be about to run.
        #[test]
        fn a_vm_that_may_run_is_never_forced(
            provisioning_state in provisioning(),
            code in prop_oneof![prop::sample::select(&CODES[..]).prop_map(str::to_owned), ".{0,30}"],
        ) {
            let view = InstanceView { provisioning_state, power: PowerState::of_code(&code) };
            let lower = code.to_ascii_lowercase();
            let stopped = lower == "powerstate/stopped" || lower == "powerstate/deallocated";
            let at_rest = provisioning_state != ProvisioningState::InProgress;
            prop_assert_eq!(check(view).is_ok(), stopped && at_rest);
        }

        /// Force only ever follows a failure of the same disk on the same VM, and a success or an attach ends it.
        #[test]
        fn a_forced_detach_follows_a_failed_one(
            steps in prop::collection::vec((0u8..2, 0u8..3, 0u8..5), 0..40),
        ) {
            let mut failed = FailedDetaches::default();
            let mut expected = std::collections::BTreeSet::new();
            for (vm, disk, step) in steps {
                let at = (vm, disk);
                let vm = ArmId::virtual_machine("s", "g", &format!("n{vm}")).unwrap();
                let disk = DiskId::from(ArmId::disk("s", "g", &format!("d{disk}")).unwrap());
                match step {
                    0 => { failed.ended(&vm, &disk, None); expected.remove(&at); }
                    1 => {
                        failed.ended(&vm, &disk, Some((FAILED, &Fault::OperationFailed)));
                        expected.insert(at);
                    }
                    2 => failed.ended(&vm, &disk, Some((FAILED, &Fault::Throttled { retry_after: None }))),
                    3 => failed.ended(&vm, &disk, Some((Detach::NotTried, &Fault::Unavailable))),
                    _ => { failed.attached(&vm, &disk); expected.remove(&at); }
                }
                prop_assert_eq!(failed.contains(&vm, &disk), expected.contains(&at));
            }
            prop_assert_eq!(failed.0.len(), expected.len());
        }
    }

    fn attached_disk(stamp: Option<AzureTime>) -> (ArmId, Disk<DiskId>) {
        let vm = ArmId::virtual_machine("s", "g", "n0").unwrap();
        let disk = Disk { managed_by: Some(vm.clone()), ownership_changed: stamp, ..Disk::unattached("d0") };
        (vm, disk)
    }

    fn is_remembered(detach: Detach, fault: &Fault) -> bool {
        let (vm, disk) = attached_disk(ATTACHED);
        let mut failed = FailedDetaches::default();
        failed.ended(&vm, &disk.id, Some((detach, fault)));
        failed.is_of_this_attachment(&vm, &disk)
    }

    #[test]
    fn the_failed_detach_of_an_earlier_attachment_is_no_reason_for_force() {
        let at = |second| Some(AzureTime::from_unix_seconds(second));
        for (stamp, expected) in [(at(99), true), (at(100), true), (at(101), false), (None, false)] {
            let (vm, disk) = attached_disk(stamp);
            let mut failed = FailedDetaches::default();
            failed.ended(&vm, &disk.id, Some((FAILED, &Fault::OperationFailed)));
            assert_eq!(failed.is_of_this_attachment(&vm, &disk), expected, "{stamp:?}");
            assert!(!failed.is_of_this_attachment(&vm, &Disk { managed_by: None, ..disk.clone() }));
            failed.ended(&vm, &disk.id, None);
            assert!(!failed.is_of_this_attachment(&vm, &disk));
        }
        let undated = Detach::Failed { attached: None };
        assert!(!is_remembered(undated, &Fault::OperationFailed), "an answer without a time");
    }

    #[test]
    fn what_was_not_sent_has_not_failed() {
        for fault in [Fault::Unavailable, Fault::OutcomeUnknown, Fault::Deadline] {
            assert!(is_remembered(FAILED, &fault) && !is_remembered(Detach::NotTried, &fault), "{fault:?}");
        }
        // What failed, whether Azure may have acted, whether it answered.
        for (fault, effect, answered, expected) in [
            (Fault::Unavailable, Effect::None, false, Detach::NotTried),
            (Fault::OutcomeUnknown, Effect::Possible, false, FAILED),
            (Fault::OperationFailed, Effect::None, true, FAILED),
            (Fault::Throttled { retry_after: None }, Effect::None, true, Detach::NotTried),
            (Fault::Conflict, Effect::None, true, Detach::NotTried),
        ] {
            assert_eq!(Detach::of_write(&fault, effect, answered, ATTACHED), expected, "{fault:?}");
        }
    }

    #[test]
    fn a_refusal_is_no_reason_for_force() {
        for fault in [
            Fault::Throttled { retry_after: None },
            Fault::Forbidden,
            Fault::Unauthenticated,
            Fault::Locked,
            Fault::Conflict,
            Fault::NotFound,
            Fault::Invalid,
        ] {
            assert!(!is_remembered(FAILED, &fault), "{fault:?}");
        }
    }
}
