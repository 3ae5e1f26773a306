//! Whether a machine that was not found is gone: gathers what [`crate::gone`] asks for.

use std::{sync::Arc, time::Duration};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, Vm, fault::Fault};
use lazuli_quota::permit::Priority;

use super::{Call, Context, Event, Failure, Next, Turn, Why, WorkFailure, scale_set_of, search::Beside};
use crate::calls::unexpected;
use crate::{
    gone::{self, Evidence, Machine, Sent},
    unpublish::{NodeVm, is_machine},
};

/// How many other machines are read at most to show that this identity can see machines.
const MOST_CONTROLS: usize = 3;

/// What a failed request says of a machine's existence.
pub(super) fn existence(fault: &Fault, vm: &ArmId) -> Option<Machine> {
    Machine::of_failure(fault, scale_set_of(vm).is_some())
}

/// What a single read says of it.
///
/// # Errors
/// Azure's own failure, where that says nothing.
pub(super) fn read_existence<E: AzureFailure, W>(
    vm: &ArmId,
    read: Result<Box<Vm>, E>,
) -> Result<Machine, Failure<E, W>> {
    match read {
        Ok(_) => Ok(Machine::Found),
        Err(error) => match existence(error.fault(), vm) {
            Some(machine) => Ok(machine),
            None => Err(Failure::azure(Why::Unreadable(vm.to_string()), error)),
        },
    }
}

/// A single read of a machine that frees a disk of a node that may be gone.
pub(super) fn read_vm(vm: &ArmId, not_before: Option<Duration>) -> Call {
    Call::ReadVm { vm: vm.clone(), priority: Priority::DetachDeadNode, not_before }
}

/// A machine that was not found when a disk was to be detached from it.
#[derive(Debug)]
pub(super) struct Missing<W> {
    pub(super) vm: ArmId,
    pub(super) known: NodeVm,
    /// How the detach failed.
    pub(super) error: W,
}

/// Whether a machine that was not found exists, by all that was asked.
#[derive(Debug)]
pub(super) enum Existence {
    Gone,
    /// It was found again, or a list has it.
    Present(Option<Box<Vm>>),
}

/// Gathers the evidence that a machine is gone.
#[derive(Debug)]
pub(super) struct Gathering {
    vm: ArmId,
    /// Machines that may exist beside it.
    others: Arc<Vec<Vm>>,
    evidence: Evidence<Duration>,
    /// The machine, where it was found again.
    found: Option<Box<Vm>>,
    at: At,
}

#[derive(Debug)]
enum At {
    Machine,
    ScaleSet(ArmId),
    List(Beside),
    Others { sent_at: Duration, reading: ArmId, left: Vec<ArmId> },
}

impl Gathering {
    /// The machine, of which this was read so far. Without `others` the list of the machines beside it is asked for.
    pub(super) fn new(vm: ArmId, others: Arc<Vec<Vm>>, evidence: Evidence<Duration>) -> Self {
        Self { vm, others, evidence, found: None, at: At::Machine }
    }

    /// `is_it` tells whether a machine of a list is this one.
    ///
    /// # Errors
    /// Azure's own failures.
    pub(super) fn next<E: AzureFailure, W: WorkFailure>(
        &mut self,
        cx: &Context<'_, '_>,
        event: Event<E, W>,
        is_it: impl Fn(&Vm) -> bool,
    ) -> Turn<Existence, E, W> {
        let Self { vm, evidence, found, at, .. } = &mut *self;
        match (at, event) {
            (At::Machine, Event::Vm { sent_at, read }) => {
                *found = read.as_ref().ok().cloned();
                let answer = read_existence(vm, read)?;
                evidence.machine.push(Sent { sent_at, answered_at: cx.now, answer });
            }
            (At::ScaleSet(set), Event::ScaleSet { sent_at, exists }) => {
                let answer = exists.map_err(|error| Failure::azure(Why::ScaleSetUnreadable(set.clone()), error))?;
                evidence.scale_set.push(Sent { sent_at, answered_at: cx.now, answer });
            }
            (At::List(beside), event) => match beside.next(event)? {
                Next::Call(call) => return Ok(Next::Call(call)),
                Next::Done((sent_at, machines)) => {
                    *found = machines.iter().find(|beside| is_it(beside)).cloned().map(Box::new);
                    evidence.lists.push(Sent { sent_at, answered_at: cx.now, answer: found.is_some() });
                }
            },
            (At::Others { sent_at, reading, left }, Event::Vm { read, .. }) => {
                let is_found = read_existence(reading, read)? == Machine::Found;
                if let (false, Some(other)) = (is_found, left.pop()) {
                    *reading = other;
                    return Ok(Next::Call(read_vm(reading, None)));
                }
                evidence.controls.push(Sent { sent_at: *sent_at, answered_at: cx.now, answer: is_found });
            }
            (at, event) => unexpected(&at, &event),
        }
        Ok(self.follow(cx))
    }

    /// What the evidence asks for.
    pub(super) fn follow(&mut self, cx: &Context<'_, '_>) -> Next<Existence> {
        let vm = &self.vm;
        loop {
            let (at, call) = match self.evidence.next() {
                gone::Next::Gone => return Next::Done(Existence::Gone),
                gone::Next::Present => return Next::Done(Existence::Present(self.found.take())),
                gone::Next::ReadMachine(from) => (At::Machine, read_vm(vm, Some(from))),
                gone::Next::ReadScaleSet(from) => match scale_set_of(vm) {
                    Some(set) => (At::ScaleSet(set.clone()), Call::ReadScaleSet { set, not_before: Some(from) }),
                    None => {
                        // A machine of its own has none.
                        let at = cx.now.max(from);
                        self.evidence.scale_set.push(Sent { sent_at: at, answered_at: at, answer: false });
                        continue;
                    }
                },
                gone::Next::List(from) => {
                    let (beside, call) = Beside::begin(vm, Some(from));
                    (At::List(beside), call)
                }
                gone::Next::ReadOthers => {
                    let others = self.others.iter().filter(|other| other.id != *vm).take(MOST_CONTROLS);
                    let mut left: Vec<ArmId> = others.map(|other| other.id.clone()).collect();
                    left.reverse();
                    let sent_at = cx.now;
                    let Some(reading) = left.pop() else {
                        self.evidence.controls.push(Sent { sent_at, answered_at: sent_at, answer: false });
                        continue;
                    };
                    let call = read_vm(&reading, None);
                    (At::Others { sent_at, reading, left }, call)
                }
            };
            self.at = at;
            return Next::Call(call);
        }
    }
}

/// Whether the machine is gone from which a disk was to be detached.
#[derive(Debug)]
pub(super) struct Gone<W> {
    missing: Missing<W>,
    gathering: Gathering,
}

impl<W: WorkFailure> Gone<W> {
    pub(super) fn begin<E: AzureFailure>(
        cx: &Context<'_, '_>,
        missing: Missing<W>,
        others: Arc<Vec<Vm>>,
    ) -> (Self, Turn<(), E, W>) {
        let requested_at = cx.of.requested_at;
        let mut evidence = Evidence::new(requested_at);
        // The worker answers so only by a read of the VM that was sent after the request came.
        if *missing.error.fault() == Fault::NotFound {
            evidence.machine.push(Sent { sent_at: requested_at, answered_at: cx.now, answer: Machine::Missing });
        }
        let gathering = Gathering::new(missing.vm.clone(), others, evidence);
        let mut gone = Self { missing, gathering };
        let next = gone.gathering.follow(cx);
        let turn = gone.turn(cx, next);
        (gone, turn)
    }

    /// The machine that is missing.
    pub(super) fn into_missing(self) -> Missing<W> {
        self.missing
    }

    /// # Errors
    /// The failure of the detach, or [`Fault::Conflict`], when the machine is there; Azure's own failures.
    pub(super) fn next<E: AzureFailure>(&mut self, cx: &Context<'_, '_>, event: Event<E, W>) -> Turn<(), E, W> {
        let Missing { vm, known, .. } = &self.missing;
        // A machine that is named is no other one, whatever the name of that is.
        let is_it = |beside: &Vm| beside.id == *vm || *known == NodeVm::Guessed && is_machine(beside, &cx.of.node);
        let next = self.gathering.next(cx, event, is_it)?;
        self.turn(cx, next)
    }

    fn turn<E: AzureFailure>(&self, cx: &Context<'_, '_>, next: Next<Existence>) -> Turn<(), E, W> {
        let error = &self.missing.error;
        match next {
            Next::Call(call) => Ok(Next::Call(call)),
            Next::Done(Existence::Gone) => Ok(Next::Done(())),
            Next::Done(Existence::Present(_)) if *error.fault() == Fault::NotFound => {
                Err(Failure::refused(Fault::Conflict, Why::ThereAgain(cx.node())))
            }
            Next::Done(Existence::Present(_)) => Err(Failure::work(error.clone())),
        }
    }
}
