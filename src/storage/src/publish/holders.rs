//! Detaches the disk from every machine that is the node beside the VM that the disk has left, or that is gone.

use std::{collections::VecDeque, mem, sync::Arc};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, Vm, fault::Fault};
use lazuli_quota::{permit::Priority, read::Accept};

use super::{
    Call, Context, Event, Failure, Next, Turn, Why, WorkFailure,
    missing::{Existence, Gathering, existence},
};
use crate::calls::{found, unexpected};
use crate::{
    attach::Goal,
    gone::{Evidence, Sent},
    unpublish::{self, Detach, NodeVm, Verdict},
};

/// The machines that hold the disk.
#[derive(Debug)]
pub(super) struct Holders {
    /// The VM that the disk has left, or that is gone.
    vm: ArmId,
    known: NodeVm,
    left: VecDeque<ArmId>,
    /// Those that were looked at.
    judged: Vec<ArmId>,
    /// A machine was proved to be gone since the disk was read, which takes a while.
    is_old: bool,
    at: At,
}

#[derive(Debug)]
enum At {
    Disk,
    /// A machine is read.
    Machine(ArmId),
    /// It was not found. The disk names it, so that is no proof that it is gone.
    Missing(ArmId, Box<Gathering>),
    Working(ArmId),
}

impl Holders {
    pub(super) fn begin(vm: ArmId, known: NodeVm) -> (Self, Call) {
        let holders = Self { vm, known, left: VecDeque::new(), judged: Vec::new(), is_old: false, at: At::Disk };
        (holders, read_disk())
    }

    /// # Errors
    /// [`Fault::Conflict`] while a machine holds the disk that may be the node's; [`Fault::Busy`] while the disk is being
    /// attached or detached; the failure of a detach; Azure's own failures.
    pub(super) fn next<E: AzureFailure, W: WorkFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        event: Event<E, W>,
    ) -> Turn<(), E, W> {
        match (mem::replace(&mut self.at, At::Disk), event) {
            (At::Disk, Event::Disk(read)) => {
                let read =
                    found(read).map_err(|error| Failure::azure(Why::Unreadable(cx.disk().to_string()), error))?;
                let Some(read) = read else { return Ok(Next::Done(())) };
                cx.check_occupied()?;
                let holders = unpublish::other_holders(&read.0, &self.vm).into_iter();
                self.left = holders.filter(|holder| !self.judged.contains(holder)).cloned().collect();
                cx.check_lease(read.0.state, !self.left.is_empty())?;
                Ok(self.read_next())
            }
            (At::Machine(holder), Event::Vm { sent_at, read }) => match read {
                Ok(machine) => self.judge(cx, holder, Some(&machine)),
                Err(error) => {
                    let Some(answer) = existence(error.fault(), &holder) else {
                        return Err(Failure::azure(Why::Unreadable(holder.to_string()), error));
                    };
                    let mut evidence = Evidence::new(cx.of.requested_at);
                    evidence.machine.push(Sent { sent_at, answered_at: cx.now, answer });
                    // No other machine is read to show that this identity sees machines: the disk names this one, so the list
                    // of the machines beside it must lack it.
                    let mut gathering = Gathering::new(holder.clone(), Arc::default(), evidence);
                    let next = gathering.follow(cx);
                    self.gathered(cx, holder, Box::new(gathering), next)
                }
            },
            (At::Missing(holder, mut gathering), event) => {
                let next = gathering.next(cx, event, |beside| beside.id == holder)?;
                self.gathered(cx, holder, gathering, next)
            }
            (At::Working(holder), Event::Worked(outcome)) => {
                outcome.map_err(Failure::work)?;
                cx.env.nodes.learn(&cx.of.node, &holder);
                Ok(self.read_next())
            }
            (at, event) => unexpected(&at, &event),
        }
    }

    /// What the evidence says of a machine that was not found.
    fn gathered<E: AzureFailure, W: WorkFailure>(
        &mut self,
        cx: &Context<'_, '_>,
        holder: ArmId,
        gathering: Box<Gathering>,
        next: Next<Existence>,
    ) -> Turn<(), E, W> {
        match next {
            Next::Call(call) => {
                self.at = At::Missing(holder, gathering);
                Ok(Next::Call(call))
            }
            Next::Done(Existence::Gone) => {
                self.is_old = true;
                self.judge(cx, holder, None)
            }
            Next::Done(Existence::Present(Some(machine))) => self.judge(cx, holder, Some(&machine)),
            Next::Done(Existence::Present(None)) => Err(may_be_attached(cx, holder)),
        }
    }

    fn judge<E: AzureFailure, W: WorkFailure>(
        &mut self,
        cx: &Context<'_, '_>,
        holder: ArmId,
        machine: Option<&Vm>,
    ) -> Turn<(), E, W> {
        let (cluster, attachments) = (cx.env.cluster, cx.env.attachments);
        let detach = Detach { disk: &cx.of.disk, node: &cx.of.node, known: self.known, cluster, attachments };
        match unpublish::holder(detach, machine) {
            Verdict::Leave => Ok(self.read_next()),
            Verdict::Detach => {
                let work = cx.work(&holder, Goal::Detached);
                self.at = At::Working(holder);
                Ok(Next::Call(work))
            }
            Verdict::Unknown => Err(may_be_attached(cx, holder)),
        }
    }

    fn read_next(&mut self) -> Next<()> {
        let Some(holder) = self.left.pop_front() else {
            self.at = At::Disk;
            return match mem::take(&mut self.is_old) {
                true => Next::Call(read_disk()),
                false => Next::Done(()),
            };
        };
        let read = Call::ReadVm { vm: holder.clone(), priority: Priority::Read, not_before: None };
        self.judged.push(holder.clone());
        self.at = At::Machine(holder);
        Next::Call(read)
    }
}

/// The VM may be a guess by the node's name, and a VM of another resource group is in no list. Only a single read shows the VM
/// that has the disk.
fn read_disk() -> Call {
    Call::ReadDisk { accept: Accept::Single, priority: Priority::DetachDeadNode, not_before: None }
}

fn may_be_attached<E, W>(cx: &Context<'_, '_>, holder: ArmId) -> Failure<E, W> {
    let names = cx.env.cluster.names_of(&holder).into_iter().map(str::to_owned).collect();
    Failure::refused(Fault::Conflict, Why::MayBeAttached { disk: cx.disk(), node: cx.node(), holder, names })
}
