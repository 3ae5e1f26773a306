//! The answer to the request of a disk that has made a write fail, when no stale disk of the VM's model caused that. Where
//! the disk's own state may explain the failure, [`Refused::explain`] decides by reads made after it.

use std::time::Duration;

use lazuli_model::{Disk, DiskId, Vm, fault::Fault};
use lazuli_quota::read::{Accept, By, Seen};

use super::{
    Action, AzureError, Cx, DiskSeen, Failure, READ_LAG_PAUSES, State, VmRead, Why,
    judge::{AfterRefusal, Judge},
};
use lazuli_storage::attach::{DiskRead, Doubt, Explained, Goal, Refused, Resolved, Unattachable};

/// A disk that has made a write fail, and what has been read since.
#[derive(Debug)]
pub(super) struct Refusal<E> {
    disk: DiskId,
    goal: Goal,
    error: Failure<E>,
    doubt: Doubt,
    refused_at: Duration,
    of_disk: Option<DiskRead<Duration>>,
    of_vm: Option<VmRead>,
    /// When the disk was asked for.
    asked_at: Duration,
    /// Whether the VM is read too, once the disk has been.
    needs_vm: bool,
    /// How many of [`READ_LAG_PAUSES`] have been taken.
    lag: usize,
    /// Until when nothing is read.
    pub(super) paused: Option<Duration>,
}

impl<E: AzureError> State<E> {
    pub(super) fn answer_refused(
        &mut self,
        cx: &mut Cx<'_, E>,
        disk: DiskId,
        goal: Goal,
        error: Failure<E>,
        then: AfterRefusal,
    ) {
        let Some(doubt) = Doubt::of(&error.fault, goal) else {
            self.answer(cx, &disk, goal, &Err(error.unexplained(&disk, goal)));
            return self.refusal_answered(cx, then);
        };
        let refusal = Refusal {
            disk,
            goal,
            error,
            doubt,
            refused_at: cx.now,
            of_disk: None,
            of_vm: None,
            asked_at: cx.now,
            needs_vm: false,
            lag: 0,
            paused: None,
        };
        self.explain(cx, Box::new(refusal), then);
    }

    fn explain(&mut self, cx: &mut Cx<'_, E>, mut refusal: Box<Refusal<E>>, then: AfterRefusal) {
        let explained = Refused {
            refused_at: refusal.refused_at,
            vm: &self.vm,
            disk: refusal.of_disk.as_ref(),
            machine: refusal.of_vm.as_ref().map(|read| (&read.vm, read.seen)),
            reads_are_left: refusal.lag < READ_LAG_PAUSES.len(),
        }
        .explain(refusal.doubt);
        match explained {
            Explained::ReadDisk => {
                if let (Some(_), Some(pause)) = (&refusal.of_disk, READ_LAG_PAUSES.get(refusal.lag)) {
                    refusal.lag += 1;
                    refusal.paused = Some(cx.now + *pause);
                } else {
                    self.read_refused_disk(cx, &mut refusal);
                }
                return self.judge(Judge::Refused(refusal, then));
            }
            Explained::ReadBoth => {
                refusal.needs_vm = true;
                self.read_refused_disk(cx, &mut refusal);
                return self.judge(Judge::Refused(refusal, then));
            }
            Explained::AttachedTo(holders, sent_at) => {
                let fault = Fault::AttachedElsewhere { holder: holders.first().cloned() };
                let resolved = Resolved::Unattachable(Unattachable::AttachedTo(holders));
                let failure = Failure::new(fault, Why::Resolved(resolved));
                self.resolve(cx, &refusal.disk, refusal.goal, &Err(failure), sent_at, None);
            }
            Explained::OtherZone(sent_at) => {
                let failure = match (&refusal.of_disk, &refusal.of_vm) {
                    (Some(DiskRead { disk: Some(disk), .. }), Some(read)) => {
                        in_another_zone(refusal.error, disk, &read.vm)
                    }
                    _ => refusal.error,
                };
                self.resolve(cx, &refusal.disk, refusal.goal, &Err(failure), sent_at, None);
            }
            Explained::Changed => {
                let failure = refusal.error.resorted(Fault::Conflict);
                self.answer(cx, &refusal.disk, refusal.goal, &Err(failure));
            }
            Explained::Unexplained => {
                let failure = refusal.error.unexplained(&refusal.disk, refusal.goal);
                self.answer(cx, &refusal.disk, refusal.goal, &Err(failure));
            }
        }
        self.refusal_answered(cx, then);
    }

    fn read_refused_disk(&mut self, cx: &mut Cx<'_, E>, refusal: &mut Refusal<E>) {
        (refusal.asked_at, refusal.paused) = (cx.now, None);
        let id = self.await_next();
        let (singly, listed) = (vec![refusal.disk.clone()], Vec::new());
        cx.actions.push(Action::ReadDisks { id, singly, listed, priority: None });
    }

    pub(super) fn refusal_disk_read(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut refusal: Box<Refusal<E>>,
        then: AfterRefusal,
        reads: Vec<(DiskId, Result<DiskSeen, E>)>,
    ) {
        let read = reads.into_iter().next().and_then(|(_, read)| read.ok());
        refusal.of_disk = Some(match read {
            Some(read) => DiskRead { disk: Some(read.disk), seen: read.seen },
            None => DiskRead { disk: None, seen: Seen { by: By::Single, sent_at: refusal.asked_at } },
        });
        if refusal.needs_vm {
            self.read_vm(cx, Accept::Single, None);
            return self.judge(Judge::Refused(refusal, then));
        }
        self.explain(cx, refusal, then);
    }

    pub(super) fn refusal_vm_read(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut refusal: Box<Refusal<E>>,
        then: AfterRefusal,
        read: Result<VmRead, E>,
    ) {
        refusal.of_vm = read.ok();
        self.explain(cx, refusal, then);
    }

    pub(super) fn refusal_woke(&mut self, cx: &mut Cx<'_, E>, mut refusal: Box<Refusal<E>>, then: AfterRefusal) {
        self.read_refused_disk(cx, &mut refusal);
        self.judge(Judge::Refused(refusal, then));
    }
}

/// The failure of an attach that the zones of the disk and of the VM explain.
fn in_another_zone<E>(error: Failure<E>, disk: &Disk<DiskId>, vm: &Vm) -> Failure<E> {
    let why = Why::OtherZone { disk: disk.zones.clone(), vm: vm.zone.clone() };
    Failure { why, ..error.resorted(Fault::ZoneMismatch) }
}
