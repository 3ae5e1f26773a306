//! The queue of requests for one VM's data disks, with their callers. It does no I/O and chooses no write.

use std::{collections::BTreeMap, sync::Arc};

use lazuli_model::{ArmId, Lun};
pub(crate) use lazuli_storage::attach::Goal;
use lazuli_storage::{attach, dangling::Dangling, force_detach::Detach};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tracing::debug;

use crate::{DiskHold, VolumeError};

/// How often a write that conflicted with another writer is planned again before its callers get the failure.
const TRIES: u32 = 5;

/// The disks of one round with their requested goals. What arrives for one of them later is another request.
pub(super) type Batch = BTreeMap<ArmId, Goal>;

/// What a caller gets: the LUN of an attached disk, nothing for a detached one.
pub(crate) type Outcome = Result<Option<Lun>, VolumeError>;

/// Whether another round counts against a request's tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    Counted,
    Free,
}

/// Why a request was refused: another goal is requested of the same disk, or in flight.
#[derive(Debug)]
pub(super) struct Opposed {
    pub(super) goal: Goal,
    pub(super) sent: bool,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<ArmId, Request>,
    arrivals: u64,
    /// Notified of each arrival.
    arrived: Arc<Notify>,
}

/// One request and all callers that wait for it.
#[derive(Debug)]
pub(super) struct Request {
    goal: Goal,
    callers: Vec<Caller>,
    sent: bool,
    /// How the last write of the detach ended, where the request is one.
    detach: Detach,
    tries: u32,
    /// Keeps the disk from being deleted until the request is answered.
    _hold: DiskHold,
}

#[derive(Debug)]
struct Caller {
    /// When it came. A read that was sent earlier is no evidence for it.
    arrived_at: Instant,
    answer: oneshot::Sender<Outcome>,
    /// Of the detach of an unused disk: the attachment that alone it is for.
    only_if: Option<Dangling>,
}

impl Caller {
    fn answer(self, outcome: &Outcome) {
        // A caller that has given up gets no outcome. The write happened all the same.
        let _ = self.answer.send(outcome.clone());
    }
}

impl Request {
    fn abandoned(&self) -> bool {
        !self.sent && self.callers.iter().all(|caller| caller.answer.is_closed())
    }

    /// When the first caller came that still waits; of a request that was sent and has none left, when the last came.
    fn requested_at(&self) -> Option<Instant> {
        let waiting = self.callers.iter().find(|caller| !caller.answer.is_closed());
        waiting.or(self.callers.last()).map(|caller| caller.arrived_at)
    }

    /// The attachments that alone the detach is for; none where a caller waits whose request has no condition.
    fn conditions(&self) -> Vec<Dangling> {
        let all_left = self.callers.iter().all(|caller| caller.answer.is_closed());
        let waiting = self.callers.iter().filter(|caller| all_left || !caller.answer.is_closed());
        let conditions: Option<Vec<Dangling>> = waiting.map(|caller| caller.only_if.clone()).collect();
        conditions.unwrap_or_default()
    }

    /// How the last write of the detach ended.
    pub(super) fn detach(&self) -> Detach {
        self.detach
    }

    pub(super) fn answer(self, outcome: &Outcome) {
        for caller in self.callers {
            caller.answer(outcome);
        }
    }
}

impl Queue {
    /// How many requests have ever arrived.
    pub(super) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// The notification of arrivals. It also wakes a wait that begins after the arrival.
    pub(super) fn arrived(&self) -> Arc<Notify> {
        self.arrived.clone()
    }

    /// Adds a request that arrives now, or lets its caller join the same one.
    pub(super) fn request(
        &mut self,
        disk: &ArmId,
        goal: Goal,
        only_if: Option<Dangling>,
        hold: DiskHold,
        now: Instant,
    ) -> Result<oneshot::Receiver<Outcome>, Opposed> {
        let (caller, answer) = oneshot::channel();
        let caller = Caller { arrived_at: now, answer: caller, only_if };
        self.arrivals += 1;
        self.arrived.notify_one();
        match self.waiting.get_mut(disk) {
            Some(request) if request.goal == goal => request.callers.push(caller),
            Some(request) if !request.abandoned() => {
                return Err(Opposed { goal: request.goal, sent: request.sent });
            }
            _ => {
                let callers = vec![caller];
                let (sent, detach) = (false, Detach::NotTried);
                let request = Request { goal, callers, sent, detach, tries: 0, _hold: hold };
                self.waiting.insert(disk.clone(), request);
            }
        }
        Ok(answer)
    }

    /// The requested goals. Abandoned requests are dropped.
    pub(super) fn goals(&mut self) -> Batch {
        self.waiting.retain(|disk, request| {
            let keep = !request.abandoned();
            if !keep {
                debug!(%disk, "every caller has given up; the request was dropped before its write was sent");
            }
            keep
        });
        self.waiting.iter().map(|(disk, request)| (disk.clone(), request.goal)).collect()
    }

    /// The requested goals, sent or not, without those of abandoned requests.
    pub(super) fn current(&self) -> Batch {
        let current = self.waiting.iter().filter(|(_, request)| !request.abandoned());
        current.map(|(disk, request)| (disk.clone(), request.goal)).collect()
    }

    /// Whether there is a request of this disk, sent or not.
    pub(super) fn contains(&self, disk: &ArmId) -> bool {
        self.waiting.contains_key(disk)
    }

    /// Whether any request has a caller that waits, or has been sent.
    pub(super) fn has_requests(&self) -> bool {
        self.waiting.values().any(|request| !request.abandoned())
    }

    /// These requests with their arrivals, as far as they are still the same.
    pub(super) fn arrived_of(&self, batch: &Batch) -> BTreeMap<ArmId, attach::Request<Instant>> {
        let same = self.waiting.iter().filter(|(disk, request)| batch.get(*disk) == Some(&request.goal));
        same.filter_map(|(disk, request)| {
            Some((disk.clone(), attach::Request { goal: request.goal, requested_at: request.requested_at()? }))
        })
        .collect()
    }

    /// The requests that no write in flight is about.
    pub(super) fn unsent(&self) -> Batch {
        let unsent = self.waiting.iter().filter(|(_, request)| !request.sent && !request.abandoned());
        unsent.map(|(disk, request)| (disk.clone(), request.goal)).collect()
    }

    /// Marks these as sent: from now on they go on without their callers. Returns `false`, and marks none, when one has
    /// been abandoned or replaced.
    pub(super) fn send(&mut self, batch: &Batch) -> bool {
        let current = batch.iter().all(|(disk, goal)| {
            self.waiting.get(disk).is_some_and(|request| request.goal == *goal && !request.abandoned())
        });
        if current {
            for (_, request) in self.of(batch) {
                request.sent = true;
            }
        }
        current
    }

    /// Records how the detaches of a write ended that failed.
    pub(super) fn note_detach(&mut self, disks: &[ArmId], detach: Detach) {
        for disk in disks {
            if let Some(request) = self.waiting.get_mut(disk).filter(|request| request.goal == Goal::Detached) {
                request.detach = detach;
            }
        }
    }

    /// Puts these back for the next round, and returns those that have used up their tries.
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

    /// How the last write of the detach ended, if this goal is requested of the disk.
    pub(super) fn detach_of(&self, disk: &ArmId, goal: Goal) -> Option<Detach> {
        self.waiting.get(disk).filter(|request| request.goal == goal).map(Request::detach)
    }

    /// The detaches of this batch that wait only for callers with a condition, with the conditions.
    pub(super) fn conditional(&self, batch: &Batch) -> BTreeMap<ArmId, Vec<Dangling>> {
        let of_batch = self.waiting.iter().filter(|(disk, request)| batch.get(*disk) == Some(&request.goal));
        let conditions = of_batch.map(|(disk, request)| (disk.clone(), request.conditions()));
        conditions.filter(|(_, conditions)| !conditions.is_empty()).collect()
    }

    /// Answers the callers of a detach whose condition this is. The other callers stay.
    pub(super) fn refuse(&mut self, disk: &ArmId, condition: &Dangling, outcome: &Outcome) {
        let Some(request) = self.waiting.get_mut(disk) else { return };
        let (refused, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut request.callers)
            .into_iter()
            .partition(|caller| caller.only_if.as_ref() == Some(condition));
        refused.into_iter().for_each(|caller| caller.answer(outcome));
        request.callers = kept;
        if request.callers.is_empty() {
            self.waiting.remove(disk);
        }
    }

    /// Takes out a request to answer it. A request of the same disk with another goal, which replaced an abandoned one,
    /// stays.
    pub(super) fn take(&mut self, disk: &ArmId, goal: Goal) -> Option<Request> {
        match self.waiting.get(disk) {
            Some(request) if request.goal == goal => self.waiting.remove(disk),
            _ => None,
        }
    }

    /// Answers those callers of a request that came no later than the read was sent that the outcome rests on. A caller
    /// that came since stays for the next round.
    pub(super) fn resolve(&mut self, disk: &ArmId, goal: Goal, outcome: &Outcome, read_sent_at: Instant) {
        let Some(request) = self.waiting.get_mut(disk).filter(|request| request.goal == goal) else { return };
        let (answered, later): (Vec<_>, Vec<_>) = std::mem::take(&mut request.callers)
            .into_iter()
            .partition(|caller| caller.arrived_at <= read_sent_at || caller.answer.is_closed());
        answered.into_iter().for_each(|caller| caller.answer(outcome));
        if later.is_empty() {
            self.waiting.remove(disk);
        } else {
            (request.callers, request.sent, request.tries) = (later, false, 0);
        }
    }

    /// All requests with their callers.
    pub(super) fn into_requests(self) -> impl Iterator<Item = (ArmId, Request)> {
        self.waiting.into_iter()
    }

    /// The requests of a batch that are still the same.
    fn of<'a>(&'a mut self, batch: &'a Batch) -> impl Iterator<Item = (&'a ArmId, &'a mut Request)> {
        self.waiting.iter_mut().filter(|(disk, request)| batch.get(*disk) == Some(&request.goal))
    }
}
