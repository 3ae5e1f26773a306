//! Runs the courses of whole disks ([`lazuli_storage::whole_disk`]): a task for each disk that is being made, deleted or
//! grown.
//!
//! It chooses nothing. A caller's request goes into the mailbox of its disk, the step decides, and what it wants done is a
//! call of Azure's client here. Requests to Azure run inside the task, so a write outlives its callers.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use lazuli_azure::{arm::Operation, compute::Freshness, error, error::ArmError, permits::Permit};
use lazuli_engine::{
    Awaited, Id,
    single::{Action, Caller, Event, Rest, State, Written},
};
use lazuli_journal::{Key, Note, Recorder};
use lazuli_model::{
    ArmId, Disk,
    fault::{Effect, Fault},
};
use lazuli_reconcile::{Clock, Kind, Workers, metrics::Metrics};
use lazuli_storage::whole_disk::{Done, Op, Request, Verb, Wanted, WholeDisk};
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use words::volume_error;

use super::{
    Nodes, VolumeError,
    client::Client,
    error::Answer,
    occupied::{Hold, Occupied},
};

mod notes;
mod words;

pub(crate) use words::grows_only_detached;

type Course = WholeDisk<Answer>;
type Outcome = Result<Done, VolumeError>;

/// The disks as wholes. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct WholeDisks {
    kind: Arc<Disks>,
    workers: Workers<Disks>,
}

/// What the adapter of all disks needs.
pub(crate) struct Disks {
    client: Client,
    nodes: Nodes,
    occupied: Occupied,
    clock: Clock,
    callers: AtomicU64,
}

/// A caller's request.
pub(crate) struct Asked {
    caller: Caller,
    wanted: Wanted,
    hold: Hold,
    answer: oneshot::Sender<Outcome>,
}

/// What happens to a disk, with what its adapter keeps of it.
pub(crate) enum DiskEvent {
    /// For the step alone.
    Step(Box<Event<Course>>),
    /// A request, with its caller.
    Requested(Box<Asked>),
    /// A permit.
    Permitted(Id, Permit),
    /// A bug of this program.
    #[cfg(test)]
    Panic,
}

/// The facts of one disk, and what belongs to the ids that the step uses.
#[derive(Default)]
pub(crate) struct DiskState {
    step: State<Course>,
    answers: BTreeMap<Caller, oneshot::Sender<Outcome>>,
    /// While it is asked for anything, no VM may be given it.
    holds: Vec<Hold>,
    permits: BTreeMap<Id, Permit>,
    /// What can be dropped, or left unsent.
    running: BTreeMap<Id, CancellationToken>,
}

impl fmt::Debug for Disks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disks").field("occupied", &self.occupied).finish_non_exhaustive()
    }
}

impl WholeDisks {
    pub(crate) fn new(client: Client, nodes: Nodes, occupied: Occupied, metrics: Metrics, journal: Recorder) -> Self {
        let clock = Clock::start();
        let kind = Arc::new(Disks { client, nodes, occupied, clock, callers: AtomicU64::new(0) });
        Self { workers: Workers::with_journal(kind.clone(), clock, metrics, journal), kind }
    }

    /// A moment on the clock of the steps.
    pub(crate) fn since_start(&self, moment: Instant) -> Duration {
        self.kind.clock.since(moment)
    }

    /// Asks for a disk to be made, deleted or grown, or joins the same request, and waits for the outcome.
    ///
    /// # Errors
    /// [`Fault::Busy`] while something else is being done with the disk. Otherwise the failure of the request.
    pub(crate) async fn request(&self, disk: &ArmId, wanted: Wanted) -> Outcome {
        let hold = self.kind.occupied.whole(disk, &wanted)?;
        let caller = self.kind.callers.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let mut interest = Interest { workers: &self.workers, disk, caller, is_answered: false };
        self.workers.send(disk, DiskEvent::Requested(Box::new(Asked { caller, wanted, hold, answer })));
        let outcome = answered.await;
        interest.is_answered = true;
        outcome.unwrap_or_else(|_| {
            let message = format!("the work on the disk {disk} was broken off");
            Err(VolumeError::new(Fault::OutcomeUnknown, message).with_effect(Effect::Possible))
        })
    }
}

/// A caller that waits. When it gives up, its disk is told.
struct Interest<'a> {
    workers: &'a Workers<Disks>,
    disk: &'a ArmId,
    caller: Caller,
    is_answered: bool,
}

impl Drop for Interest<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.workers.tell(self.disk, step(Event::Abandoned(self.caller)));
        }
    }
}

fn step(event: Event<Course>) -> DiskEvent {
    DiskEvent::Step(Box::new(event))
}

impl Disks {
    /// Keeps what the step does not see, and returns what it sees.
    fn keep(&self, state: &mut DiskState, event: DiskEvent) -> Event<Course> {
        match event {
            DiskEvent::Step(event) => {
                match &*event {
                    Event::NoPermit(id, _) | Event::Ended(id, _) | Event::Rested(id) => drop(state.running.remove(id)),
                    // No outcome goes to it.
                    Event::Abandoned(caller) => drop(state.answers.remove(caller)),
                    Event::Requested(..) | Event::Permitted(_) | Event::Read(..) | Event::Woke => {}
                }
                *event
            }
            DiskEvent::Requested(asked) => {
                let Asked { caller, wanted, hold, answer } = *asked;
                state.answers.insert(caller, answer);
                state.holds.push(hold);
                Event::Requested(caller, Request { wanted, limits: self.client.write_limits() })
            }
            DiskEvent::Permitted(id, permit) => {
                state.running.remove(&id);
                state.permits.insert(id, permit);
                Event::Permitted(id)
            }
            #[cfg(test)]
            DiskEvent::Panic => panic!("an operation broke"),
        }
    }

    async fn write(client: Client, disk: ArmId, op: Op, permit: Permit, wanted: CancellationToken) -> Written<Course> {
        let sent = match &op {
            Op::Put(spec) => client.create_disk(&disk, spec, permit, &wanted).await,
            Op::Resize(to) => client.resize_disk(&disk, *to, permit, &wanted).await,
            Op::Delete => client.delete_disk(&disk, permit, &wanted).await,
        };
        let operation = match sent {
            Ok(operation) => operation,
            Err(error) => {
                debug!(%disk, error = &error as &dyn std::error::Error, "a write of the disk was not accepted");
                return Written::Refused(Answer(error));
            }
        };
        let written = Self::ended(&client, &disk, &op, operation).await;
        log(&disk, &op, &written);
        written.map_or_else(|error| Written::Failed(Answer(error)), Written::Done)
    }

    async fn ended(client: &Client, disk: &ArmId, op: &Op, operation: Operation) -> Result<Option<Disk>, ArmError> {
        match op {
            Op::Put(_) | Op::Resize(_) => client.written_disk(disk, operation).await.map(Some),
            Op::Delete => client.deleted_disk(operation).await.map(|()| None),
        }
    }
}

fn log(disk: &ArmId, op: &Op, written: &Result<Option<Disk>, ArmError>) {
    let size = written.as_ref().ok().and_then(|seen| Some(seen.as_ref()?.size.to_string()));
    match (op, written) {
        (_, Err(error)) => warn!(%disk, %error, "a write of the disk has failed"),
        (Op::Put(_), Ok(_)) => info!(%disk, size, "disk created"),
        (Op::Resize(_), Ok(_)) => info!(%disk, size, "disk expanded"),
        (Op::Delete, Ok(_)) => info!(%disk, "disk deleted"),
    }
}

impl DiskState {
    /// A future that the step may drop.
    fn droppable(
        &mut self,
        id: Id,
        future: impl Future<Output = DiskEvent> + Send + 'static,
    ) -> Option<BoxFuture<'static, DiskEvent>> {
        let dropped = CancellationToken::new();
        self.running.insert(id, dropped.clone());
        Some(Box::pin(async move { dropped.run_until_cancelled(future).await.unwrap_or_else(|| step(Event::Woke)) }))
    }
}

fn verb(verb: Verb) -> error::Verb {
    match verb {
        Verb::Put => error::Verb::Put,
        Verb::Patch => error::Verb::Patch,
        Verb::Delete => error::Verb::Delete,
    }
}

impl Kind for Disks {
    type Key = ArmId;
    type State = DiskState;
    type Event = DiskEvent;
    type Action = Action<Course>;

    const NAME: &'static str = "disk";

    fn woke() -> DiskEvent {
        step(Event::Woke)
    }

    fn drain() -> DiskEvent {
        step(Event::Woke)
    }

    /// The work ends when every caller is answered.
    fn is_drained(_: &Action<Course>) -> bool {
        false
    }

    fn action_name(action: &Action<Course>) -> &'static str {
        match action {
            Action::TakePermit(..) => "take_permit",
            Action::ReleasePermit(_) => "release_permit",
            Action::Read(..) => "read_disk",
            Action::Write { .. } => "write",
            Action::Rest(..) => "rest",
            Action::Drop(_) | Action::LeaveUnsent(_) => "drop",
            Action::Answer(..) => "answer",
        }
    }

    fn step(&self, _: &ArmId, state: &mut DiskState, now: Duration, event: DiskEvent) -> Vec<Action<Course>> {
        let event = self.keep(state, event);
        let actions = state.step.step(now, event);
        // Before the answers, because their callers may ask for something else of the disk.
        if state.step.is_idle() {
            state.holds.clear();
        }
        actions
    }

    fn wake_at(&self, _: &DiskState) -> Option<Duration> {
        None
    }

    fn is_idle(&self, state: &DiskState) -> bool {
        state.step.is_idle()
    }

    fn carry_out(
        &self,
        disk: &ArmId,
        state: &mut DiskState,
        action: Action<Course>,
    ) -> Option<BoxFuture<'static, DiskEvent>> {
        let (client, disk) = (self.client.clone(), disk.clone());
        match action {
            Action::TakePermit(id, of) => state.droppable(id, async move {
                match client.permit_disk(verb(of), &disk).await {
                    Ok(permit) => DiskEvent::Permitted(id, permit),
                    Err(error) => step(Event::NoPermit(id, Answer(error))),
                }
            }),
            Action::ReleasePermit(id) => {
                state.permits.remove(&id);
                None
            }
            Action::Read(id, priority) => Some(Box::pin(async move {
                let single = Freshness::single();
                let freshness = priority.map_or(single, |priority| single.priority(priority));
                let read = client.read_disk(&disk, freshness).await;
                step(Event::Read(id, read.map(|read| read.model).map_err(Answer)))
            })),
            Action::Write { id, op, permit } => {
                let permit = state.permits.remove(&permit).expect("a step names a permit that it was given");
                let wanted = CancellationToken::new();
                state.running.insert(id, wanted.clone());
                Some(Box::pin(
                    async move { step(Event::Ended(id, Self::write(client, disk, op, permit, wanted).await)) },
                ))
            }
            Action::Rest(id, rest) => {
                let pause = match rest {
                    Rest::For(pause) => pause,
                    Rest::BackOff { failures } => client.pause_after(failures),
                };
                state.droppable(id, async move {
                    tokio::time::sleep(pause).await;
                    step(Event::Rested(id))
                })
            }
            Action::Drop(id) | Action::LeaveUnsent(id) => {
                if let Some(running) = state.running.remove(&id) {
                    running.cancel();
                }
                None
            }
            Action::Answer(caller, outcome) => {
                let outcome = outcome.map_err(|refusal| volume_error(refusal, &disk, |vm| self.nodes.name_of(vm)));
                if let Some(answer) = state.answers.remove(&caller) {
                    // A caller that has given up gets no outcome. The write happened all the same.
                    _ = answer.send(outcome);
                }
                None
            }
        }
    }

    fn journal_key(disk: &ArmId) -> Option<Key<'_>> {
        Some(Key::disk(disk))
    }

    fn note_of_event(event: &DiskEvent) -> Option<Note<'_>> {
        notes::of_event(event)
    }

    fn note_of_action(action: &Action<Course>) -> Option<Note<'_>> {
        notes::of_action(action)
    }

    /// The answer settles the disk, and says more than that nothing is awaited.
    fn awaited(&self, state: &DiskState, _: Duration) -> Option<Awaited> {
        Some(state.step.awaited()).filter(|awaited| *awaited != Awaited::Nothing)
    }

    /// The callers learn it by their answers, which are dropped with the state.
    fn broken_off(&self, _: &ArmId) {}
}

#[cfg(test)]
mod tests;
