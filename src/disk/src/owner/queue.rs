//! What is wanted of one VM's data disks, and who waits for it. Nothing here does I/O or chooses a write.

use std::{collections::BTreeMap, sync::Arc};

use lazuli_plan::model::{ArmId, CachingMode, Lun};
use tokio::sync::{Notify, oneshot};
use tracing::debug;

use crate::{DiskHold, VolumeError};

/// How often a write that met another writer is planned again before its callers are told.
const TRIES: u32 = 5;

/// What a caller wants of a disk on a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// On the VM, cached like this; by default as the disk allows.
    Attached(Option<CachingMode>),
    /// Off the VM.
    Detached,
}

/// Disks that one round is about, with what is wanted of them. What arrives for one of them later is another wish.
pub(super) type Batch = BTreeMap<ArmId, Goal>;

/// What a caller gets: the LUN of an attached disk, nothing for a detached one.
pub(crate) type Outcome = Result<Option<Lun>, VolumeError>;

/// Whether another round counts against a request's tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    Counted,
    Free,
}

/// Why a wish was not taken: the opposite is wanted of the same disk, or under way.
#[derive(Debug)]
pub(super) struct Opposed {
    pub(super) goal: Goal,
    pub(super) sent: bool,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<ArmId, Request>,
    arrivals: u64,
    /// Told of each arrival.
    arrived: Arc<Notify>,
}

/// One wish and everybody who waits for it.
#[derive(Debug)]
pub(super) struct Request {
    goal: Goal,
    callers: Vec<oneshot::Sender<Outcome>>,
    sent: bool,
    tries: u32,
    /// Keeps the disk from being deleted until the request is answered.
    _hold: DiskHold,
}

impl Request {
    fn abandoned(&self) -> bool {
        !self.sent && self.callers.iter().all(oneshot::Sender::is_closed)
    }

    pub(super) fn answer(self, outcome: &Outcome) {
        for caller in self.callers {
            // A caller that has given up hears nothing; the write happened all the same.
            let _ = caller.send(outcome.clone());
        }
    }
}

impl Queue {
    /// How many wishes have ever arrived.
    pub(super) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Who is told of each arrival. One told before the wait began is told too.
    pub(super) fn arrived(&self) -> Arc<Notify> {
        self.arrived.clone()
    }

    /// Takes a wish, or lets it join the same one.
    pub(super) fn want(
        &mut self,
        disk: &ArmId,
        goal: Goal,
        hold: DiskHold,
    ) -> Result<oneshot::Receiver<Outcome>, Opposed> {
        let (caller, answer) = oneshot::channel();
        self.arrivals += 1;
        self.arrived.notify_one();
        match self.waiting.get_mut(disk) {
            Some(request) if request.goal == goal => request.callers.push(caller),
            Some(request) if !request.abandoned() => {
                return Err(Opposed { goal: request.goal, sent: request.sent });
            }
            _ => {
                let request = Request { goal, callers: vec![caller], sent: false, tries: 0, _hold: hold };
                self.waiting.insert(disk.clone(), request);
            }
        }
        Ok(answer)
    }

    /// What is wanted now; what nobody waits for any more is dropped.
    pub(super) fn goals(&mut self) -> Batch {
        self.waiting.retain(|disk, request| {
            let keep = !request.abandoned();
            if !keep {
                debug!(%disk, "nobody waits for this any more; it was not sent");
            }
            keep
        });
        self.waiting.iter().map(|(disk, request)| (disk.clone(), request.goal)).collect()
    }

    /// What is wanted now and no write is about.
    pub(super) fn unsent(&self) -> Batch {
        let unsent = self.waiting.iter().filter(|(_, request)| !request.sent && !request.abandoned());
        unsent.map(|(disk, request)| (disk.clone(), request.goal)).collect()
    }

    /// From now on these go on without their callers. `false`, and none does, when one has been given up, or is wanted
    /// otherwise by now.
    pub(super) fn send(&mut self, batch: &Batch) -> bool {
        let wanted = batch.iter().all(|(disk, goal)| {
            self.waiting.get(disk).is_some_and(|request| request.goal == *goal && !request.abandoned())
        });
        if wanted {
            for (_, request) in self.of(batch) {
                request.sent = true;
            }
        }
        wanted
    }

    /// Puts these back for the next round, and gives those that have had their tries.
    pub(super) fn put_back(&mut self, batch: &Batch, retry: Retry) -> Batch {
        let mut spent = Batch::new();
        for (disk, request) in self.of(batch) {
            request.sent = false;
            request.tries += u32::from(retry == Retry::Counted);
            if request.tries >= TRIES {
                spent.insert(disk.clone(), request.goal);
            }
        }
        spent
    }

    /// Takes out a wish that is to be answered. One that its callers gave up may have made room for another of the
    /// same disk meanwhile, which is not meant.
    pub(super) fn take(&mut self, disk: &ArmId, goal: Goal) -> Option<Request> {
        match self.waiting.get(disk) {
            Some(request) if request.goal == goal => self.waiting.remove(disk),
            _ => None,
        }
    }

    /// The wishes that a round is about.
    fn of<'a>(&'a mut self, batch: &'a Batch) -> impl Iterator<Item = (&'a ArmId, &'a mut Request)> {
        self.waiting.iter_mut().filter(|(disk, request)| batch.get(*disk) == Some(&request.goal))
    }
}
