//! The queue of requests for one VM's data disks, with their callers. It chooses no write.

use std::{collections::BTreeMap, time::Duration};

use lazuli_model::DiskId;

use lazuli_storage::{
    attach::{self, Goal},
    dangling::Dangling,
    force_detach::Detach,
};

/// How often a write that conflicted with another writer is planned again before its callers get the failure.
const TRIES: u32 = 5;

/// The disks of one round with their requested goals. What arrives for one of them later is another request.
pub(super) type Batch = BTreeMap<DiskId, Goal>;

/// Names one caller. The process gives each one a number of its own.
pub type Caller = u64;

/// Whether another round counts against a request's tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    Counted,
    Free,
}

/// Why a request was refused: another goal is requested of the same disk, or in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opposed {
    /// The other goal.
    pub goal: Goal,
    /// Whether a write of it is in flight.
    pub sent: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<DiskId, Request>,
    arrivals: u64,
    last_arrival: Duration,
}

/// One request and all callers that wait for it.
#[derive(Debug, Clone)]
struct Request {
    goal: Goal,
    callers: Vec<Waiting>,
    sent: bool,
    /// How the last write of the detach ended, where the request is one.
    detach: Detach,
    tries: u32,
}

#[derive(Debug, Clone)]
struct Waiting {
    caller: Caller,
    /// When it came. A read that was sent earlier is no evidence for it.
    arrived_at: Duration,
    /// Whether it has given up.
    gone: bool,
    /// Of the detach of an unused disk: the attachment that alone it is for.
    only_if: Option<Dangling>,
}

impl Request {
    fn is_abandoned(&self) -> bool {
        !self.sent && self.callers.iter().all(|waiting| waiting.gone)
    }

    /// When the first caller came that still waits; of a request that was sent and has none left, when the last came.
    fn requested_at(&self) -> Option<Duration> {
        let waiting = self.callers.iter().find(|waiting| !waiting.gone);
        waiting.or(self.callers.last()).map(|waiting| waiting.arrived_at)
    }

    /// The attachments that alone the detach is for; none where a caller waits whose request has no condition.
    fn conditions(&self) -> Vec<Dangling> {
        let all_left = self.callers.iter().all(|waiting| waiting.gone);
        let waiting = self.callers.iter().filter(|waiting| all_left || !waiting.gone);
        let conditions: Option<Vec<Dangling>> = waiting.map(|waiting| waiting.only_if.clone()).collect();
        conditions.unwrap_or_default()
    }

    fn into_callers(self) -> Vec<Caller> {
        waiting(self.callers)
    }
}

/// Those who still wait. One that has given up gets no outcome. The write happened all the same.
fn waiting(callers: Vec<Waiting>) -> Vec<Caller> {
    callers.into_iter().filter(|waiting| !waiting.gone).map(|waiting| waiting.caller).collect()
}

impl Queue {
    /// How many requests have ever arrived.
    pub(super) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// When the last one arrived.
    pub(super) fn last_arrival(&self) -> Duration {
        self.last_arrival
    }

    /// Adds a request that arrives now, or lets its caller join the same one.
    pub(super) fn request(
        &mut self,
        caller: Caller,
        disk: &DiskId,
        goal: Goal,
        only_if: Option<Dangling>,
        now: Duration,
    ) -> Result<(), Opposed> {
        let caller = Waiting { caller, arrived_at: now, gone: false, only_if };
        self.arrivals += 1;
        self.last_arrival = now;
        match self.waiting.get_mut(disk) {
            Some(request) if request.goal == goal => request.callers.push(caller),
            Some(request) if !request.is_abandoned() => {
                return Err(Opposed { goal: request.goal, sent: request.sent });
            }
            _ => {
                let request = Request { goal, callers: vec![caller], sent: false, detach: Detach::NotTried, tries: 0 };
                self.waiting.insert(disk.clone(), request);
            }
        }
        Ok(())
    }

    /// A caller has given up.
    pub(super) fn abandon(&mut self, caller: Caller) {
        let callers = self.waiting.values_mut().flat_map(|request| &mut request.callers);
        callers.filter(|waiting| waiting.caller == caller).for_each(|waiting| waiting.gone = true);
    }

    /// The requested goals. Abandoned requests are dropped.
    pub(super) fn goals(&mut self) -> Batch {
        self.waiting.retain(|_, request| !request.is_abandoned());
        self.waiting.iter().map(|(disk, request)| (disk.clone(), request.goal)).collect()
    }

    /// The requested goals, sent or not, without those of abandoned requests.
    pub(super) fn current(&self) -> Batch {
        let current = self.waiting.iter().filter(|(_, request)| !request.is_abandoned());
        current.map(|(disk, request)| (disk.clone(), request.goal)).collect()
    }

    /// Whether there is a request of this disk, sent or not.
    pub(super) fn contains(&self, disk: &DiskId) -> bool {
        self.waiting.contains_key(disk)
    }

    /// Whether any request has a caller that waits, or has been sent.
    pub(super) fn has_requests(&self) -> bool {
        self.waiting.values().any(|request| !request.is_abandoned())
    }

    /// These requests with their arrivals, as far as they are still the same.
    pub(super) fn arrived_of(&self, batch: &Batch) -> BTreeMap<DiskId, attach::Request<Duration>> {
        let same = self.waiting.iter().filter(|(disk, request)| batch.get(*disk) == Some(&request.goal));
        same.filter_map(|(disk, request)| {
            Some((disk.clone(), attach::Request { goal: request.goal, requested_at: request.requested_at()? }))
        })
        .collect()
    }

    /// The requests that no write in flight is about.
    pub(super) fn unsent(&self) -> Batch {
        let unsent = self.waiting.iter().filter(|(_, request)| !request.sent && !request.is_abandoned());
        unsent.map(|(disk, request)| (disk.clone(), request.goal)).collect()
    }

    /// Marks these as sent: from now on they go on without their callers. Returns `false`, and marks none, when one has
    /// been abandoned or replaced.
    pub(super) fn send(&mut self, batch: &Batch) -> bool {
        let current = batch.iter().all(|(disk, goal)| {
            self.waiting.get(disk).is_some_and(|request| request.goal == *goal && !request.is_abandoned())
        });
        if current {
            self.of(batch).for_each(|(_, request)| request.sent = true);
        }
        current
    }

    /// Records how the detaches of a write ended that failed.
    pub(super) fn note_detach(&mut self, disks: &[DiskId], detach: Detach) {
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
    pub(super) fn detach_of(&self, disk: &DiskId, goal: Goal) -> Option<Detach> {
        self.waiting.get(disk).filter(|request| request.goal == goal).map(|request| request.detach)
    }

    /// The detaches of this batch that wait only for callers with a condition, with the conditions.
    pub(super) fn conditional(&self, batch: &Batch) -> BTreeMap<DiskId, Vec<Dangling>> {
        let of_batch = self.waiting.iter().filter(|(disk, request)| batch.get(*disk) == Some(&request.goal));
        let conditions = of_batch.map(|(disk, request)| (disk.clone(), request.conditions()));
        conditions.filter(|(_, conditions)| !conditions.is_empty()).collect()
    }

    /// Takes out the callers of a detach whose condition this is. The other callers stay.
    #[must_use]
    pub(super) fn refuse(&mut self, disk: &DiskId, condition: &Dangling) -> Vec<Caller> {
        let Some(request) = self.waiting.get_mut(disk) else { return Vec::new() };
        let (refused, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut request.callers)
            .into_iter()
            .partition(|waiting| waiting.only_if.as_ref() == Some(condition));
        request.callers = kept;
        if request.callers.is_empty() {
            self.waiting.remove(disk);
        }
        waiting(refused)
    }

    /// Takes out a request to answer it: its callers. A request of the same disk with another goal, which replaced an
    /// abandoned one, stays.
    #[must_use]
    pub(super) fn take(&mut self, disk: &DiskId, goal: Goal) -> Option<Vec<Caller>> {
        match self.waiting.get(disk) {
            Some(request) if request.goal == goal => self.waiting.remove(disk).map(Request::into_callers),
            _ => None,
        }
    }

    /// Takes out those callers of a request that came no later than the read was sent that its outcome rests on. A caller
    /// that came since stays for the next round.
    #[must_use]
    pub(super) fn resolve(&mut self, disk: &DiskId, goal: Goal, read_sent_at: Duration) -> Vec<Caller> {
        let Some(request) = self.waiting.get_mut(disk).filter(|request| request.goal == goal) else {
            return Vec::new();
        };
        let (answered, later): (Vec<_>, Vec<_>) = std::mem::take(&mut request.callers)
            .into_iter()
            .partition(|waiting| waiting.arrived_at <= read_sent_at || waiting.gone);
        if later.is_empty() {
            self.waiting.remove(disk);
        } else {
            (request.callers, request.sent, request.tries) = (later, false, 0);
        }
        waiting(answered)
    }

    /// The requests of a batch that are still the same.
    fn of<'a>(&'a mut self, batch: &'a Batch) -> impl Iterator<Item = (&'a DiskId, &'a mut Request)> {
        self.waiting.iter_mut().filter(|(disk, request)| batch.get(*disk) == Some(&request.goal))
    }
}

#[cfg(test)]
mod tests {
    use lazuli_model::ArmId;

    use super::*;

    fn disk() -> DiskId {
        DiskId::from(ArmId::disk("s", "g", "d0").unwrap())
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_read_answers_only_the_callers_that_came_before_it_was_sent() {
        let (mut queue, goal) = (Queue::default(), Goal::Detached);
        queue.request(1, &disk(), goal, None, at(1)).unwrap();
        queue.request(2, &disk(), goal, None, at(3)).unwrap();
        assert_eq!(queue.resolve(&disk(), goal, at(2)), [1]);
        // The other caller's request stays as one that came then.
        let batch = queue.goals();
        assert_eq!(queue.arrived_of(&batch)[&disk()].requested_at, at(3));
        assert_eq!(queue.resolve(&disk(), goal, at(3)), [2]);
        assert!(queue.goals().is_empty());
    }

    #[test]
    fn a_request_whose_callers_have_given_up_leaves_unless_its_write_was_sent() {
        let (mut queue, goal) = (Queue::default(), Goal::Attached(None));
        let batch = Batch::from([(disk(), goal)]);
        queue.request(1, &disk(), goal, None, at(1)).unwrap();
        queue.abandon(1);
        assert!(!queue.has_requests() && !queue.send(&batch));
        // Another goal replaces an abandoned request, and is refused while one waits.
        queue.request(2, &disk(), Goal::Detached, None, at(1)).unwrap();
        assert_eq!(queue.request(3, &disk(), goal, None, at(2)), Err(Opposed { goal: Goal::Detached, sent: false }));
        let batch = Batch::from([(disk(), Goal::Detached)]);
        assert!(queue.send(&batch));
        queue.abandon(2);
        assert!(queue.has_requests() && queue.unsent().is_empty());
        assert_eq!(queue.take(&disk(), goal), None);
        assert_eq!(queue.take(&disk(), Goal::Detached), Some(vec![]), "nobody waits for the outcome any more");
    }

    #[test]
    fn tries_are_counted_and_a_caller_that_comes_later_begins_with_all_of_them() {
        let (mut queue, goal) = (Queue::default(), Goal::Attached(None));
        let batch = Batch::from([(disk(), goal)]);
        queue.request(1, &disk(), goal, None, at(1)).unwrap();
        for _ in 0..TRIES - 1 {
            assert!(
                queue.put_back(&batch, Retry::Counted).is_empty() && queue.put_back(&batch, Retry::Free).is_empty()
            );
        }
        queue.request(2, &disk(), goal, None, at(5)).unwrap();
        assert_eq!(queue.put_back(&batch, Retry::Counted), batch);
        assert_eq!(queue.resolve(&disk(), goal, at(4)), [1]);
        assert!(queue.put_back(&batch, Retry::Counted).is_empty());
    }
}
