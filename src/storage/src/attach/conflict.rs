//! What a disk's own state says of an attach that Azure has refused.
//!
//! Azure has one code for "attached to another VM" and "attached to this VM already", and several for a disk of another
//! zone, each of which has other meanings too. The disk's own state tells them apart, by single reads that were sent after
//! the refusal. Its answer is for the callers that came before that read; a caller that came since may meet another state.

use lazuli_model::{ArmId, Vm, fault::Fault};
use lazuli_quota::read::{By, Seen};

use super::{DiskRead, Goal, Moment, Unattachable, attachable, zone_mismatch};

/// What a refused attach may be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// A VM has the disk: another one, or this one already.
    WhichVm,
    /// The disk and the VM may be in different zones.
    Zones,
}

impl Doubt {
    /// What the disk's own state can explain of a failure. `None` where it can explain nothing.
    pub fn of(fault: &Fault, goal: Goal) -> Option<Self> {
        match fault {
            _ if goal == Goal::Detached => None,
            Fault::AttachedElsewhere { .. } => Some(Self::WhichVm),
            Fault::Invalid | Fault::Unclear | Fault::OperationFailed => Some(Self::Zones),
            _ => None,
        }
    }
}

/// What has been read since Azure refused the attach.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a, T> {
    /// When the refusal was known. Reads that were sent earlier explain nothing.
    pub refused_at: T,
    /// The VM.
    pub vm: &'a ArmId,
    /// The disk, read last.
    pub disk: Option<&'a DiskRead<T>>,
    /// The VM, read last, and by which read; `None` also where it could not be read.
    pub machine: Option<(&'a Vm, Seen<T>)>,
    /// Whether the disk may be read again after a pause: reads may lag.
    pub reads_are_left: bool,
}

/// What follows from the reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Explained<T> {
    /// Read the disk singly, if it has been read after a pause.
    ReadDisk,
    /// Read the disk and the VM singly.
    ReadBoth,
    /// Other VMs have the disk, by a read that was sent then.
    AttachedTo(Vec<ArmId>, T),
    /// The zones of the disk and of the VM explain the refusal, by reads of which the earlier was sent then.
    OtherZone(T),
    /// The VM has the disk, or no VM has, or the disk cannot be read: the state has changed since, or reads lag. Plan again.
    Changed,
    /// Nothing explains it: the failure is the answer.
    Unexplained,
}

impl<T: Moment> Refused<'_, T> {
    /// Explains the refusal, or says what to read for that.
    pub fn explain(&self, doubt: Doubt) -> Explained<T> {
        let is_evidence = |seen: Seen<T>| seen.by == By::Single && seen.sent_at >= self.refused_at;
        let disk = self.disk.filter(|read| is_evidence(read.seen));
        match doubt {
            Doubt::WhichVm => {
                let Some(read) = disk else { return Explained::ReadDisk };
                let Some(state) = &read.disk else {
                    // Without a read nothing shows that it is another VM.
                    return if self.reads_are_left { Explained::ReadDisk } else { Explained::Changed };
                };
                match attachable(state, self.vm) {
                    Err(Unattachable::AttachedTo(holders)) => Explained::AttachedTo(holders, read.seen.sent_at),
                    _ if state.holders().contains(&self.vm) => Explained::Changed,
                    _ if self.reads_are_left => Explained::ReadDisk,
                    _ => Explained::Changed,
                }
            }
            Doubt::Zones => {
                let machine = self.machine.filter(|(_, seen)| is_evidence(*seen));
                match (disk, machine) {
                    (Some(DiskRead { disk: Some(state), seen }), Some((vm, of_vm))) if zone_mismatch(state, vm) => {
                        Explained::OtherZone(seen.sent_at.min(of_vm.sent_at))
                    }
                    (None, _) => Explained::ReadBoth,
                    _ => Explained::Unexplained,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lazuli_model::{Disk, DiskId, DiskState};

    use super::*;
    use crate::attach::tests::{disk_in, vm};

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn there() -> ArmId {
        ArmId::virtual_machine("s", "g", "node-1").unwrap()
    }

    fn read(disk: Option<Disk<DiskId>>, by: By, sent_at: u64) -> DiskRead<Duration> {
        DiskRead { disk, seen: Seen { by, sent_at: at(sent_at) } }
    }

    /// A refusal at 10 s.
    fn explained(doubt: Doubt, disk: Option<&DiskRead<Duration>>, reads_are_left: bool) -> Explained<Duration> {
        let machine = vm(vec![]);
        let seen = Seen { by: By::Single, sent_at: at(11) };
        Refused { refused_at: at(10), vm: &machine.id, disk, machine: Some((&machine, seen)), reads_are_left }
            .explain(doubt)
    }

    #[test]
    fn which_vm_has_a_disk_is_told_by_a_single_read_since_the_refusal_alone() {
        let here = vm(vec![]).id;
        let of = |holders: &[&ArmId], by, sent_at| {
            let state = if holders.is_empty() { DiskState::Unattached } else { DiskState::Attached };
            read(Some(disk_in(Some(state), 1, holders)), by, sent_at)
        };
        let told = |read: &DiskRead<Duration>, left| explained(Doubt::WhichVm, Some(read), left);
        assert_eq!(explained(Doubt::WhichVm, None, false), Explained::ReadDisk);
        assert_eq!(told(&of(&[&there()], By::Single, 9), false), Explained::ReadDisk, "it is older than the refusal");
        assert_eq!(told(&of(&[&there()], By::List, 11), false), Explained::ReadDisk, "a list");
        assert_eq!(told(&of(&[&there()], By::Single, 11), true), Explained::AttachedTo(vec![there()], at(11)));
        assert_eq!(told(&of(&[&here], By::Single, 11), true), Explained::Changed);
        assert_eq!(told(&of(&[], By::Single, 11), true), Explained::ReadDisk, "reads may lag");
        assert_eq!(told(&of(&[], By::Single, 11), false), Explained::Changed);
        assert_eq!(told(&read(None, By::Single, 11), true), Explained::ReadDisk);
        assert_eq!(told(&read(None, By::Single, 11), false), Explained::Changed, "it may be this VM");
    }

    #[test]
    fn zones_explain_a_refusal_only_by_reads_since_it() {
        let zonal = |zone: Option<&str>| Disk {
            zones: zone.map(str::to_owned).into_iter().collect(),
            ..disk_in(Some(DiskState::Unattached), 1, &[])
        };
        let told = |disk, sent_at| explained(Doubt::Zones, Some(&read(disk, By::Single, sent_at)), false);
        assert_eq!(explained(Doubt::Zones, None, false), Explained::ReadBoth);
        assert_eq!(told(Some(zonal(Some("2"))), 9), Explained::ReadBoth);
        assert_eq!(told(Some(zonal(Some("2"))), 12), Explained::OtherZone(at(11)));
        assert_eq!(told(Some(zonal(None)), 12), Explained::Unexplained);
        assert_eq!(told(None, 12), Explained::Unexplained);
    }

    #[test]
    fn only_an_attach_may_be_explained_by_the_disks_own_state() {
        for (fault, expected) in [
            (Fault::AttachedElsewhere { holder: None }, Some(Doubt::WhichVm)),
            (Fault::Invalid, Some(Doubt::Zones)),
            (Fault::Unclear, Some(Doubt::Zones)),
            (Fault::OperationFailed, Some(Doubt::Zones)),
            (Fault::NotFound, None),
            (Fault::Forbidden, None),
        ] {
            assert_eq!(Doubt::of(&fault, Goal::Attached(None)), expected, "{fault:?}");
            assert_eq!(Doubt::of(&fault, Goal::Detached), None, "{fault:?}");
        }
    }
}
