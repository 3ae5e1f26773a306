//! The tasks of resources that callers ask to be made, changed or deleted as a whole ([`lazuli_engine::single`]): the half
//! of their adapters that all kinds share.
//!
//! It chooses nothing. A caller's request goes into the mailbox of its resource, the step decides, and an [`Adapter`] says
//! which calls its actions are. Requests to Azure run inside the task, so a write outlives its callers.

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
use lazuli_engine::{
    Awaited, Id,
    single::{Action, Caller, Course, Event, Refusal, Rest, State, Written},
};
use lazuli_journal::{Key as JournalKey, Note, Recorder};
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{Clock, Droppable, Kind, Workers, metrics::Metrics};

/// What the calls of a kind of resource are.
pub trait Adapter: Send + Sync + Sized + 'static {
    /// Names one resource.
    type Key: Clone + Ord + fmt::Display + Send + Sync + 'static;
    /// How its requests are served.
    type Course: Course<Request: Send, Seen: Send, Query: Send, Verb: Send, Op: Send, Done: Send, Why: Send, Error: Send>
        + Send
        + 'static;
    /// A permit to send one write.
    type Permit: Send + 'static;
    /// What a request holds while its resource is being worked on.
    type Hold: Send + 'static;

    /// The kind in metrics and logs.
    const NAME: &'static str;

    /// What else decisions rest on now.
    fn env(&self) -> <Self::Course as Course>::Env;

    /// Waits for a permit.
    fn permit(&self, key: &Self::Key, verb: Verb<Self>) -> BoxFuture<'static, Result<Self::Permit, Error<Self>>>;

    /// Reads a resource alone, now.
    fn read(&self, key: &Self::Key, query: Query<Self>) -> BoxFuture<'static, Result<Seen<Self>, Error<Self>>>;

    /// Sends a write once and waits for the end of its operation. When `wanted` is cancelled before it is sent, it is
    /// refused by [`Fault::Deadline`](lazuli_model::fault::Fault::Deadline) without an effect.
    fn write(
        &self,
        key: &Self::Key,
        op: Op<Self>,
        permit: Self::Permit,
        wanted: CancellationToken,
    ) -> BoxFuture<'static, Written<Self::Course>>;

    /// The pause after so many failures, with its random part.
    fn pause_after(&self, failures: u32) -> Duration;

    /// The resource in the journal; `None` where nothing is noted of this kind.
    fn journal_key(_: &Self::Key) -> Option<JournalKey<'_>> {
        None
    }

    /// What the journal notes of an event.
    fn note_of_event(_: &Event<Self::Course>) -> Option<Note<'_>> {
        None
    }

    /// What the journal notes of an action.
    fn note_of_action(_: &Action<Self::Course>) -> Option<Note<'_>> {
        None
    }
}

/// The kind of a write of an adapter's resource.
pub type Verb<A> = <<A as Adapter>::Course as Course>::Verb;
/// What a read of it asks for.
pub type Query<A> = <<A as Adapter>::Course as Course>::Query;
/// What a read of it shows.
pub type Seen<A> = <<A as Adapter>::Course as Course>::Seen;
/// A write of it.
pub type Op<A> = <<A as Adapter>::Course as Course>::Op;
/// Azure's errors about it.
pub type Error<A> = <<A as Adapter>::Course as Course>::Error;
/// What is asked of it.
pub type Request<A> = <<A as Adapter>::Course as Course>::Request;

/// What came of a request.
pub type Outcome<A> = Result<<<A as Adapter>::Course as Course>::Done, Failed<<A as Adapter>::Course>>;

/// Why a request was not served.
#[derive(Debug, Clone)]
pub enum Failed<C: Course> {
    /// The step says so.
    Refused(Refusal<C>),
    /// A bug of this program has broken the work on the resource off: a write may be in progress.
    BrokenOff,
}

/// The resources of one kind. Clones share them.
pub struct Singles<A: Adapter> {
    kind: Arc<SingleKind<A>>,
    workers: Workers<SingleKind<A>>,
}

impl<A: Adapter> Clone for Singles<A> {
    fn clone(&self) -> Self {
        Self { kind: self.kind.clone(), workers: self.workers.clone() }
    }
}

impl<A: Adapter> fmt::Debug for Singles<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Singles").field("workers", &self.workers).finish()
    }
}

struct SingleKind<A: Adapter> {
    adapter: A,
    clock: Clock,
    callers: AtomicU64,
}

/// A caller's request.
struct Asked<A: Adapter> {
    caller: Caller,
    request: Request<A>,
    hold: A::Hold,
    answer: oneshot::Sender<Outcome<A>>,
}

/// What happens to a resource, with what its task keeps of it.
enum SingleEvent<A: Adapter> {
    /// For the step alone.
    Step(Box<Event<A::Course>>),
    /// A request, with its caller.
    Requested(Box<Asked<A>>),
    /// A permit.
    Permitted(Id, A::Permit),
    /// A bug of this program.
    Panic,
}

/// The facts of one resource, and what belongs to the ids that the step uses.
struct SingleState<A: Adapter> {
    step: State<A::Course>,
    answers: BTreeMap<Caller, oneshot::Sender<Outcome<A>>>,
    holds: Vec<A::Hold>,
    permits: BTreeMap<Id, A::Permit>,
    /// What can be dropped, or left unsent.
    running: Droppable,
}

impl<A: Adapter> Default for SingleState<A> {
    fn default() -> Self {
        Self {
            step: State::default(),
            answers: BTreeMap::new(),
            holds: Vec::new(),
            permits: BTreeMap::new(),
            running: Droppable::default(),
        }
    }
}

impl<A: Adapter> Singles<A> {
    /// Resources that nothing is asked of yet.
    pub fn new(adapter: A, metrics: Metrics, journal: Recorder) -> Self {
        let clock = Clock::start();
        let kind = Arc::new(SingleKind { adapter, clock, callers: AtomicU64::new(0) });
        Self { workers: Workers::with_journal(kind.clone(), clock, metrics, journal), kind }
    }

    /// What the calls are.
    pub fn adapter(&self) -> &A {
        &self.kind.adapter
    }

    /// A moment on the clock of the steps.
    pub fn since_start(&self, moment: Instant) -> Duration {
        self.kind.clock.since(moment)
    }

    /// How many resources are being worked on.
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// Asks for a resource to be made, changed or deleted, or joins the same request, and waits for the outcome. `hold` is
    /// dropped when nothing is asked of the resource any more.
    ///
    /// # Errors
    /// Why the request was not served.
    pub async fn request(&self, key: &A::Key, request: Request<A>, hold: A::Hold) -> Outcome<A> {
        let caller = self.kind.callers.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let asked = SingleEvent::Requested(Box::new(Asked { caller, request, hold, answer }));
        let outcome = self.workers.ask(key, asked, step(Event::Abandoned(caller)), answered).await;
        outcome.unwrap_or(Err(Failed::BrokenOff))
    }

    /// Breaks the work on a resource off as a bug would, for tests.
    #[doc(hidden)]
    pub fn break_off(&self, key: &A::Key) {
        self.workers.tell(key, SingleEvent::Panic);
    }
}

fn step<A: Adapter>(event: Event<A::Course>) -> SingleEvent<A> {
    SingleEvent::Step(Box::new(event))
}

impl<A: Adapter> SingleState<A> {
    /// Keeps what the step does not see, and returns what it sees.
    fn keep(&mut self, event: SingleEvent<A>) -> Event<A::Course> {
        match event {
            SingleEvent::Step(event) => {
                match &*event {
                    Event::NoPermit(id, _) | Event::Ended(id, _) | Event::Rested(id) => self.running.ended(*id),
                    // No outcome goes to it.
                    Event::Abandoned(caller) => drop(self.answers.remove(caller)),
                    Event::Requested(..) | Event::Permitted(_) | Event::Read(..) | Event::Woke => {}
                }
                *event
            }
            SingleEvent::Requested(asked) => {
                let Asked { caller, request, hold, answer } = *asked;
                self.answers.insert(caller, answer);
                self.holds.push(hold);
                Event::Requested(caller, request)
            }
            SingleEvent::Permitted(id, permit) => {
                self.running.ended(id);
                self.permits.insert(id, permit);
                Event::Permitted(id)
            }
            SingleEvent::Panic => panic!("the work was broken off on request"),
        }
    }
}

impl<A: Adapter> Kind for SingleKind<A> {
    type Key = A::Key;
    type State = SingleState<A>;
    type Event = SingleEvent<A>;
    type Action = Action<A::Course>;

    const NAME: &'static str = A::NAME;

    fn woke() -> SingleEvent<A> {
        step(Event::Woke)
    }

    fn drain() -> SingleEvent<A> {
        step(Event::Woke)
    }

    /// The work ends when every caller is answered.
    fn is_drained(_: &Action<A::Course>) -> bool {
        false
    }

    fn action_name(action: &Action<A::Course>) -> &'static str {
        match action {
            Action::TakePermit(..) => "take_permit",
            Action::ReleasePermit(_) => "release_permit",
            Action::Read(..) => "read",
            Action::Write { .. } => "write",
            Action::Rest(..) => "rest",
            Action::Drop(_) | Action::LeaveUnsent(_) => "drop",
            Action::Answer(..) => "answer",
        }
    }

    fn step(
        &self,
        _: &A::Key,
        state: &mut SingleState<A>,
        now: Duration,
        event: SingleEvent<A>,
    ) -> Vec<Action<A::Course>> {
        let event = state.keep(event);
        let actions = state.step.step(&self.adapter.env(), now, event);
        // Before the answers, because their callers may ask for something else of the resource.
        if state.step.is_idle() {
            state.holds.clear();
        }
        actions
    }

    fn wake_at(&self, _: &SingleState<A>) -> Option<Duration> {
        None
    }

    fn is_idle(&self, state: &SingleState<A>) -> bool {
        state.step.is_idle()
    }

    fn carry_out(
        &self,
        key: &A::Key,
        state: &mut SingleState<A>,
        action: Action<A::Course>,
    ) -> Option<BoxFuture<'static, SingleEvent<A>>> {
        match action {
            Action::TakePermit(id, verb) => {
                let permit = self.adapter.permit(key, verb);
                let permitted = async move {
                    match permit.await {
                        Ok(permit) => SingleEvent::Permitted(id, permit),
                        Err(error) => step(Event::NoPermit(id, error)),
                    }
                };
                state.running.run(id, permitted, Self::woke)
            }
            Action::ReleasePermit(id) => {
                state.permits.remove(&id);
                None
            }
            Action::Read(id, query) => {
                let read = self.adapter.read(key, query);
                Some(Box::pin(async move { step(Event::Read(id, read.await)) }))
            }
            Action::Write { id, op, permit } => {
                let permit = state.permits.remove(&permit).expect("a step names a permit that it was given");
                let written = self.adapter.write(key, op, permit, state.running.token(id));
                Some(Box::pin(async move { step(Event::Ended(id, written.await)) }))
            }
            Action::Rest(id, rest) => {
                let pause = match rest {
                    Rest::For(pause) => pause,
                    Rest::BackOff { failures } => self.adapter.pause_after(failures),
                };
                let rested = async move {
                    tokio::time::sleep(pause).await;
                    step(Event::Rested(id))
                };
                state.running.run(id, rested, Self::woke)
            }
            Action::Drop(id) | Action::LeaveUnsent(id) => {
                state.running.drop(id);
                None
            }
            Action::Answer(caller, outcome) => {
                if let Some(answer) = state.answers.remove(&caller) {
                    // A caller that has given up gets no outcome. The write happened all the same.
                    _ = answer.send(outcome.map_err(Failed::Refused));
                }
                None
            }
        }
    }

    fn journal_key(key: &A::Key) -> Option<JournalKey<'_>> {
        A::journal_key(key)
    }

    fn note_of_event(event: &SingleEvent<A>) -> Option<Note<'_>> {
        match event {
            SingleEvent::Step(event) => A::note_of_event(event),
            SingleEvent::Permitted(..) => Some(lazuli_journal::Word::PermitGranted.into()),
            SingleEvent::Requested(_) | SingleEvent::Panic => None,
        }
    }

    fn note_of_action(action: &Action<A::Course>) -> Option<Note<'_>> {
        A::note_of_action(action)
    }

    /// The answer settles the resource, and says more than that nothing is awaited.
    fn awaited(&self, state: &SingleState<A>, _: Duration) -> Option<Awaited> {
        Some(state.step.awaited()).filter(|awaited| *awaited != Awaited::Nothing)
    }

    /// The callers learn it by their answers, which are dropped with the state.
    fn broken_off(&self, _: &A::Key) {}
}
