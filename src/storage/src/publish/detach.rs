//! The courses of an unpublish.
//!
//! A disk leaves the node's VM, and where that is a guess or is gone, every machine that holds the disk and is the node.

use std::{collections::VecDeque, mem, time::Duration};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, Disk, DiskId, fault::Fault};
use lazuli_quota::{permit::Priority, read::Accept};

use super::{
    Call, Context, Done, Event, Failure, Next, Report, Turn, Why, WorkFailure,
    holders::Holders,
    locate::{Candidate, Locate, Purpose, check_others},
    missing::{Gone, Missing, existence, read_vm},
    search::{Beside, Found, Search},
};
use crate::calls::{found, unexpected};
use crate::{
    attach::Goal,
    unpublish::{self, NodeVm},
};

/// A detach from a VM that is a guess, or is one of several that Nodes of this name were: the disk's own state is read before
/// it is answered.
#[derive(Debug)]
struct Doubt {
    /// The disk before the detach, by a read since the request; `None` where it did not exist.
    before: Option<Box<Disk<DiskId>>>,
}

/// The detach of a disk from one node.
#[derive(Debug)]
pub(super) struct Unpublish<W> {
    at: At<W>,
}

impl<W> Default for Unpublish<W> {
    fn default() -> Self {
        Self { at: At::Begin }
    }
}

#[derive(Debug)]
enum At<W> {
    Begin,
    Locating(Locate),
    /// Whether reads show what the leader before has written.
    FreshFrom(Candidate),
    /// The disk is read before its detach.
    Before(Candidate),
    Detaching(ArmId, NodeVm, Option<Doubt>),
    /// The VM that was named is missing, and the machines beside it are listed.
    Beside(Beside, Missing<W>),
    /// The VM that was guessed is missing, and the machine of the node's name is searched.
    Searching(Search, Missing<W>, Option<Doubt>),
    DetachingFound(ArmId, NodeVm, Option<Doubt>),
    /// The VM that the disk has left is read.
    Left(ArmId, NodeVm, Box<Disk<DiskId>>),
    Holders(Holders),
    Missing(Gone<W>),
    /// The VM is gone, and other machines may hold the disk. They are read since then.
    GoneHolders(Holders, Missing<W>, Duration),
    LateAttach(Duration),
    Over,
}

impl<W: WorkFailure> Unpublish<W> {
    pub(super) fn next<E: AzureFailure>(&mut self, cx: &mut Context<'_, '_>, event: Event<E, W>) -> Turn<Done, E, W> {
        match (mem::replace(&mut self.at, At::Over), event) {
            (At::Begin, Event::Begun) => {
                let (locate, call) = Locate::begin(Purpose::Detach);
                self.go(At::Locating(locate), call)
            }
            (At::Locating(mut locate), event) => match locate.next(cx, event) {
                Ok(Next::Call(call)) => self.go(At::Locating(locate), call),
                Ok(Next::Done(candidate)) => self.located(cx, candidate),
                // No VM can have this name, so nothing is attached to it.
                Err(failure) if *failure.fault() == Fault::NotFound => Ok(Next::Done(Done::Unpublished)),
                Err(failure) => Err(failure),
            },
            (At::FreshFrom(candidate), Event::FreshFrom(not_before)) => {
                let read = Call::ReadDisk { accept: Accept::Single, priority: Priority::DetachDeadNode, not_before };
                self.go(At::Before(candidate), read)
            }
            (At::Before(candidate), Event::Disk(read)) => {
                let read =
                    found(read).map_err(|error| Failure::azure(Why::Unreadable(cx.disk().to_string()), error))?;
                let before = read.map(|read| Box::new(read.0));
                // Another Node may have come to name the VM since it was guessed.
                check_others(cx, &candidate.vm)?;
                self.detach(cx, candidate, Some(Doubt { before }))
            }
            (At::Detaching(vm, known, doubt), Event::Worked(outcome)) => match outcome {
                Ok(_) => self.left(cx, vm, known, doubt),
                Err(error) if existence(error.fault(), &vm).is_some() => {
                    self.missing(cx, Missing { vm, known, error }, doubt)
                }
                Err(error) => Err(Failure::work(error)),
            },
            (At::Beside(mut beside, missing), event) => match beside.next(event)? {
                Next::Call(call) => self.go(At::Beside(beside, missing), call),
                Next::Done((_, others)) => {
                    let (gone, turn) = Gone::begin(cx, missing, others);
                    self.gone(cx, gone, turn)
                }
            },
            (At::Searching(mut search, missing, doubt), event) => match search.next(cx, event)? {
                Next::Call(call) => self.go(At::Searching(search, missing, doubt), call),
                Next::Done(found) => self.searched(cx, found, missing, doubt),
            },
            (At::DetachingFound(found, known, doubt), Event::Worked(outcome)) => {
                outcome.map_err(Failure::work)?;
                self.left(cx, found, known, doubt)
            }
            (At::Left(left, known, before), Event::Vm { read, .. }) => {
                let vm = found(read).map_err(|error| Failure::azure(Why::Unreadable(left.to_string()), error))?;
                if vm.is_some_and(|vm| unpublish::leaves_no_doubt(&before, &vm, &cx.of.node, cx.env.cluster)) {
                    return Ok(Next::Done(Done::Unpublished));
                }
                self.read_holders(left, known)
            }
            (At::Holders(mut holders), event) => match holders.next(cx, event)? {
                Next::Call(call) => self.go(At::Holders(holders), call),
                Next::Done(()) => Ok(Next::Done(Done::Unpublished)),
            },
            (At::Missing(mut gone), event) => {
                let turn = gone.next(cx, event);
                self.gone(cx, gone, turn)
            }
            (At::GoneHolders(mut holders, missing, since), event) => match (holders.next(cx, event)?, missing.known) {
                (Next::Call(call), _) => self.go(At::GoneHolders(holders, missing, since), call),
                (Next::Done(()), NodeVm::Guessed) => {
                    self.go(At::LateAttach(since), Call::AskLateAttach { vm: missing.vm, node: cx.node() })
                }
                (Next::Done(()), NodeVm::Named) => Ok(is_gone(cx)),
            },
            (At::LateAttach(since), Event::LateAttach(until)) => match until {
                Some(until) if since < until => {
                    let why = Why::MayBeAttaching { disk: cx.disk(), node: cx.node() };
                    Err(Failure::refused(Fault::Busy, why))
                }
                _ => Ok(is_gone(cx)),
            },
            (at, event) => unexpected(&at, &event),
        }
    }

    fn go<E>(&mut self, at: At<W>, call: Call) -> Turn<Done, E, W> {
        self.at = at;
        Ok(Next::Call(call))
    }

    fn located<E>(&mut self, cx: &Context<'_, '_>, candidate: Candidate) -> Turn<Done, E, W> {
        // Judged when the VM is guessed: the Node may register again, with another machine, while the detach is under way.
        match unpublish::needs_holders(candidate.known, cx.env.cluster, &cx.of.node, &candidate.vm) {
            true => self.go(At::FreshFrom(candidate), Call::AskFreshFrom),
            false => self.detach(cx, candidate, None),
        }
    }

    fn detach<E>(&mut self, cx: &Context<'_, '_>, candidate: Candidate, doubt: Option<Doubt>) -> Turn<Done, E, W> {
        let work = cx.work(&candidate.vm, Goal::Detached);
        self.go(At::Detaching(candidate.vm, candidate.known, doubt), work)
    }

    fn missing<E>(&mut self, cx: &mut Context<'_, '_>, missing: Missing<W>, doubt: Option<Doubt>) -> Turn<Done, E, W> {
        cx.env.nodes.forget(&cx.of.node);
        match missing.known {
            NodeVm::Named => {
                let (beside, call) = Beside::begin(&missing.vm, None);
                self.go(At::Beside(beside, missing), call)
            }
            NodeVm::Guessed => {
                let (search, call) = Search::begin(cx);
                self.go(At::Searching(search, missing, doubt), call)
            }
        }
    }

    fn searched<E: AzureFailure>(
        &mut self,
        cx: &Context<'_, '_>,
        found: Found,
        missing: Missing<W>,
        doubt: Option<Doubt>,
    ) -> Turn<Done, E, W> {
        match found {
            Found::Vm(found) => {
                check_others(cx, &found)?;
                let work = cx.work(&found, Goal::Detached);
                self.go(At::DetachingFound(found, missing.known, doubt), work)
            }
            Found::Absent(others) => {
                let (gone, turn) = Gone::begin(cx, missing, others);
                self.gone(cx, gone, turn)
            }
        }
    }

    /// The disk has left a VM.
    fn left<E>(
        &mut self,
        cx: &mut Context<'_, '_>,
        vm: ArmId,
        known: NodeVm,
        doubt: Option<Doubt>,
    ) -> Turn<Done, E, W> {
        match doubt {
            // Nothing is learned of it: the VM is a guess, or it is one of several that Nodes of this name were.
            Some(Doubt { before: Some(before) }) => {
                let read = read_vm(&vm, None);
                self.go(At::Left(vm, known, before), read)
            }
            Some(Doubt { before: None }) => self.read_holders(vm, known),
            // The Node may have registered again with another machine meanwhile.
            None if unpublish::needs_holders(known, cx.env.cluster, &cx.of.node, &vm) => self.read_holders(vm, known),
            None => {
                cx.env.nodes.learn(&cx.of.node, &vm);
                Ok(Next::Done(Done::Unpublished))
            }
        }
    }

    fn read_holders<E>(&mut self, vm: ArmId, known: NodeVm) -> Turn<Done, E, W> {
        let (holders, call) = Holders::begin(vm, known);
        self.go(At::Holders(holders), call)
    }

    /// What the evidence says of a machine that is missing.
    fn gone<E: AzureFailure>(&mut self, cx: &Context<'_, '_>, gone: Gone<W>, turn: Turn<(), E, W>) -> Turn<Done, E, W> {
        match turn? {
            Next::Call(call) => self.go(At::Missing(gone), call),
            Next::Done(()) => {
                cx.check_occupied()?;
                let missing = gone.into_missing();
                let (holders, call) = Holders::begin(missing.vm.clone(), missing.known);
                self.go(At::GoneHolders(holders, missing, cx.now), call)
            }
        }
    }
}

fn is_gone(cx: &mut Context<'_, '_>) -> Next<Done> {
    cx.reports.push(Report::MachineGone);
    Next::Done(Done::Unpublished)
}

/// The detach of a disk from every VM that holds it.
#[derive(Debug, Default)]
pub(super) struct UnpublishAll {
    at: OfAll,
}

#[derive(Debug, Default)]
enum OfAll {
    #[default]
    Begin,
    Disk,
    /// The VMs that are left beside the one from which the disk is being detached.
    Detaching(VecDeque<ArmId>),
}

impl UnpublishAll {
    pub(super) fn next<E: AzureFailure, W: WorkFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        event: Event<E, W>,
    ) -> Turn<Done, E, W> {
        let holders = match (mem::take(&mut self.at), event) {
            (OfAll::Begin, Event::Begun) => {
                cx.check_occupied()?;
                self.at = OfAll::Disk;
                let read = Call::ReadDisk { accept: Accept::Single, priority: Priority::Read, not_before: None };
                return Ok(Next::Call(read));
            }
            (OfAll::Disk, Event::Disk(read)) => {
                let read =
                    found(read).map_err(|error| Failure::azure(Why::Unreadable(cx.disk().to_string()), error))?;
                let holders: VecDeque<ArmId> = read.iter().flat_map(|read| read.0.holders()).cloned().collect();
                if let Some(read) = read {
                    cx.check_lease(read.0.state, !holders.is_empty())?;
                }
                holders
            }
            (OfAll::Detaching(holders), Event::Worked(outcome)) => {
                outcome.map_err(Failure::work)?;
                holders
            }
            (at, event) => unexpected(&at, &event),
        };
        Ok(self.detach(cx, holders))
    }

    fn detach(&mut self, cx: &Context<'_, '_>, mut holders: VecDeque<ArmId>) -> Next<Done> {
        let Some(vm) = holders.pop_front() else { return Next::Done(Done::Unpublished) };
        self.at = OfAll::Detaching(holders);
        let node = cx.env.nodes.name_of(cx.env.cluster, &vm);
        Next::Call(Call::Work { vm, node, goal: Goal::Detached, only_if: None })
    }
}
