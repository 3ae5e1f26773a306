//! Detaches the disk from every machine that is the node beside the VM that the disk has left, or that is gone.

use std::{collections::VecDeque, time::Duration};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, fault::Fault};
use lazuli_quota::{permit::Priority, read::Accept};

use super::{Call, Context, Event, Failure, Next, Turn, Why, WorkFailure, found, unexpected};
use crate::{
    attach::Goal,
    gone::APART,
    unpublish::{self, Detach, NodeVm, Verdict},
};

/// The machines that hold the disk.
#[derive(Debug)]
pub(super) struct Holders {
    /// The VM that the disk has left, or that is gone.
    vm: ArmId,
    known: NodeVm,
    left: VecDeque<ArmId>,
    at: At,
}

#[derive(Debug)]
enum At {
    Disk,
    /// A machine is read, and was not found before where that is so.
    Machine {
        holder: ArmId,
        was_missing: bool,
    },
    Working(ArmId),
}

impl Holders {
    pub(super) fn begin(vm: ArmId, known: NodeVm) -> (Self, Call) {
        // The VM may be a guess by the node's name, and a VM of another resource group is in no list. Only a single read
        // shows the VM that has the disk.
        let read = Call::ReadDisk { accept: Accept::Single, priority: Priority::DetachDeadNode, not_before: None };
        (Self { vm, known, left: VecDeque::new(), at: At::Disk }, read)
    }

    /// # Errors
    /// [`Fault::Conflict`] while a machine holds the disk that may be the node's; [`Fault::Busy`] while the disk is being
    /// attached or detached; the failure of a detach; Azure's own failures.
    pub(super) fn next<E: AzureFailure, W: WorkFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        event: Event<E, W>,
    ) -> Turn<(), E, W> {
        match (&self.at, event) {
            (At::Disk, Event::Disk(read)) => {
                let read = found(read).map_err(|error| Failure::azure(Why::Unreadable(cx.disk()), error))?;
                let Some(read) = read else { return Ok(Next::Done(())) };
                cx.check_occupied()?;
                self.left = unpublish::other_holders(&read.0, &self.vm).into_iter().cloned().collect();
                Ok(self.read_next())
            }
            (At::Machine { holder, was_missing }, Event::Vm { read, .. }) => {
                let machine = found(read).map_err(|error| Failure::azure(Why::Unreadable(holder.clone()), error))?;
                // The disk names it, so one read that does not find it is no proof that it is gone.
                if machine.is_none() && !was_missing {
                    let holder = holder.clone();
                    return Ok(self.read(holder, Some(cx.now + APART)));
                }
                let (cluster, attachments) = (cx.env.cluster, cx.env.attachments);
                let detach = Detach { disk: &cx.of.disk, node: &cx.of.node, known: self.known, cluster, attachments };
                match unpublish::holder(detach, machine.as_deref()) {
                    Verdict::Leave => Ok(self.read_next()),
                    Verdict::Detach => {
                        let work = cx.work(holder, Goal::Detached);
                        self.at = At::Working(holder.clone());
                        Ok(Next::Call(work))
                    }
                    Verdict::Unknown => {
                        let names = cluster.names_of(holder).into_iter().map(str::to_owned).collect();
                        let why =
                            Why::MayBeAttached { disk: cx.disk(), node: cx.node(), holder: holder.clone(), names };
                        Err(Failure::refused(Fault::Conflict, why))
                    }
                }
            }
            (At::Working(holder), Event::Worked(outcome)) => {
                outcome.map_err(Failure::work)?;
                cx.env.nodes.learn(&cx.of.node, holder);
                Ok(self.read_next())
            }
            (at, event) => unexpected(&at, &event),
        }
    }

    fn read_next(&mut self) -> Next<()> {
        let Some(holder) = self.left.pop_front() else { return Next::Done(()) };
        self.read(holder, None)
    }

    /// Reads a machine; `again` where it was not found.
    fn read(&mut self, holder: ArmId, again: Option<Duration>) -> Next<()> {
        let read = Call::ReadVm { vm: holder.clone(), priority: Priority::Read, not_before: again };
        self.at = At::Machine { holder, was_missing: again.is_some() };
        Next::Call(read)
    }
}
