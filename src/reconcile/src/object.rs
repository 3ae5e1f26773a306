//! What the adapters of all objects of Azure share: the raw body of the last observation, permits, and the operations of
//! writes.

mod notes;

use std::{cell::OnceCell, collections::BTreeMap, fmt, ops::Deref, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use lazuli_engine::{
    Awaited, Id, Outcome, Shared,
    object::{self, Action, After, Env, Event, Failure, Object, Taint},
};
use lazuli_journal::{Key as JournalKey, Note};
use lazuli_model::fault::Fault;
use lazuli_quota::{
    permit::Priority,
    poll::Expectation,
    read::{Accept, By},
};

use crate::{Clock, Kind};

/// What an object of one kind is to Azure: which calls its actions are.
pub trait Adapter<O: Object>: Send + Sync + 'static {
    /// Names one object: its ARM id.
    type Key: Clone + Ord + fmt::Display + Send + Sync + 'static;
    /// The body and ETag that a write edits.
    type Raw: Clone + Send + Sync + 'static;
    /// A permit to send one write.
    type Permit: Send + 'static;
    /// A running operation, which polls ask for.
    type Operation: Clone + Send + Sync + 'static;

    /// The kind in metrics and logs.
    const NAME: &'static str;

    /// What all keys share, now.
    fn shared(&self) -> Shared;

    /// What the planner needs to know of an object beside the wants.
    fn inputs(&self, key: &Self::Key) -> Arc<O::Inputs>;

    /// Reads the object by a request that is sent no earlier than `not_before`. [`Accept::Any`] allows less than a single
    /// read; an object that this process wrote lately is read alone all the same.
    fn observe(
        &self,
        key: &Self::Key,
        not_before: Duration,
        accept: Accept,
    ) -> BoxFuture<'static, Observed<O, Self::Raw>>;

    /// Waits for a permit to write. A permit that is dropped unused goes back.
    fn permit(&self, key: &Self::Key, priority: Priority) -> BoxFuture<'static, Self::Permit>;

    /// Writes on the raw body of an observation; `None` when the object did not exist.
    fn write(
        &self,
        key: &Self::Key,
        raw: Option<Self::Raw>,
        op: O::Op,
        permit: Self::Permit,
    ) -> BoxFuture<'static, Written<O, Self::Operation>>;

    /// Asks how an operation is doing.
    fn poll(&self, key: &Self::Key, operation: Self::Operation) -> BoxFuture<'static, Polled<O, Self::Raw>>;

    /// Passes an outcome to its requester.
    fn tell(&self, key: &Self::Key, to: O::Requester, generation: u64, outcome: Outcome<O::Report>);

    /// Tells requesters, whose wants stay done, that the object has followed the inputs of its planner, or why it cannot.
    fn followed(&self, _: &Self::Key, _: Vec<O::Requester>, _: Result<(), Fault>) {}

    /// Tells other objects that what was read of them is stale.
    fn taint(&self, keys: Vec<O::Related>, taint: Taint);

    /// The state of this object was lost: its requesters ask again.
    fn broken_off(&self, key: &Self::Key);

    /// The object in the journal; `None` where nothing is noted of this kind.
    fn journal_key(_: &Self::Key) -> Option<JournalKey<'_>> {
        None
    }

    /// A requester in the journal.
    fn requester_key(_: &O::Requester) -> Option<JournalKey<'_>> {
        None
    }
}

/// What a read has given.
#[derive(Debug)]
pub struct Observed<O: Object, R> {
    /// When the request was sent.
    pub sent_at: Duration,
    /// Which read it was.
    pub by: By,
    /// The object, with what a write edits.
    pub result: Result<(O::Model, R), Fault>,
}

/// What the answer to a write says.
#[derive(Debug)]
pub enum Written<O: Object, P> {
    /// An operation runs, and takes about so long.
    Accepted(P, Expectation),
    /// The write has succeeded.
    Done,
    /// It has failed.
    Failed(Failure<O::Requester>),
}

/// What the answer to a poll says.
#[derive(Debug)]
pub enum Polled<O: Object, R> {
    /// The operation runs, or the poll was refused and may be repeated after this pause.
    Running(Duration),
    /// The operation has succeeded.
    Done,
    /// The operation has succeeded, and what shows it was a read of the object, sent after Azure had accepted the write.
    Shown(Observed<O, R>),
    /// The operation has failed.
    Failed(Failure<O::Requester>),
}

/// The objects of one kind, for [`Workers`](crate::Workers).
#[derive(Debug)]
pub struct Objects<O, A> {
    adapter: Arc<A>,
    clock: Clock,
    object: std::marker::PhantomData<fn() -> O>,
}

impl<O: Object, A: Adapter<O>> Objects<O, A> {
    /// The objects that an adapter serves.
    pub fn new(adapter: Arc<A>, clock: Clock) -> Self {
        Self { adapter, clock, object: std::marker::PhantomData }
    }
}

/// What happens to an object, with what the adapter keeps of it.
#[derive(Debug)]
pub enum ObjectEvent<O: Object, R, T, P> {
    /// For the step alone.
    Step(Event<O>),
    /// A read, with the raw body.
    Observed(Id, Observed<O, R>),
    /// A permit.
    Permitted(Id, T),
    /// The answer to a write.
    Written(Id, Written<O, P>),
    /// The answer to a poll.
    Polled(Id, Polled<O, R>),
}

impl<O: Object, R, T, P> From<Event<O>> for ObjectEvent<O, R, T, P> {
    fn from(event: Event<O>) -> Self {
        Self::Step(event)
    }
}

/// The facts of one object, and what belongs to the ids that the step uses.
pub struct ObjectState<O: Object, A: Adapter<O>> {
    step: object::State<O>,
    /// The raw body of the last observation.
    raw: Option<(Id, Option<A::Raw>)>,
    permits: BTreeMap<Id, A::Permit>,
    operation: Option<(Id, A::Operation)>,
}

impl<O: Object, A: Adapter<O>> Default for ObjectState<O, A> {
    fn default() -> Self {
        Self { step: object::State::default(), raw: None, permits: BTreeMap::new(), operation: None }
    }
}

/// The inputs of an object's planner, made when a step first looks at them.
struct Inputs<'a, O: Object, A: Adapter<O>> {
    adapter: &'a A,
    key: &'a A::Key,
    made: OnceCell<Arc<O::Inputs>>,
}

impl<O: Object, A: Adapter<O>> Deref for Inputs<'_, O, A> {
    type Target = O::Inputs;

    fn deref(&self) -> &O::Inputs {
        self.made.get_or_init(|| self.adapter.inputs(self.key))
    }
}

impl<O, A> Kind for Objects<O, A>
where
    O: Object + Send + Sync + 'static,
    O::Requester: Send,
    O::Want: Send,
    O::Model: Send,
    O::Op: Send,
    O::Report: Send,
    O::Related: Send,
    A: Adapter<O>,
{
    type Key = A::Key;
    type State = ObjectState<O, A>;
    type Event = ObjectEvent<O, A::Raw, A::Permit, A::Operation>;
    type Action = Action<O>;

    const NAME: &'static str = A::NAME;

    fn woke() -> Self::Event {
        Event::Woke.into()
    }

    fn drain() -> Self::Event {
        Event::Drain.into()
    }

    fn is_drained(action: &Action<O>) -> bool {
        *action == Action::Drained
    }

    fn action_name(action: &Action<O>) -> &'static str {
        match action {
            Action::Observe { .. } => "observe",
            Action::TakePermit { .. } => "take_permit",
            Action::ReleasePermit(_) => "release_permit",
            Action::Write { .. } => "write",
            Action::Poll(_) => "poll",
            Action::Tell { .. } => "tell",
            Action::Followed { .. } => "followed",
            Action::Taint(..) => "taint",
            Action::Drained => "drained",
        }
    }

    fn step(&self, key: &A::Key, state: &mut Self::State, now: Duration, event: Self::Event) -> Vec<Action<O>> {
        let event = state.keep(event);
        let inputs = Inputs { adapter: &*self.adapter, key, made: OnceCell::new() };
        let env = Env { shared: self.adapter.shared(), inputs: &inputs };
        object::step(&mut state.step, &env, now, event)
    }

    fn wake_at(&self, state: &Self::State) -> Option<Duration> {
        state.step.wake_at()
    }

    fn is_idle(&self, state: &Self::State) -> bool {
        state.step.is_idle()
    }

    fn carry_out(
        &self,
        key: &A::Key,
        state: &mut Self::State,
        action: Action<O>,
    ) -> Option<BoxFuture<'static, Self::Event>> {
        match action {
            Action::Observe { id, not_before, accept } => {
                let observed = self.adapter.observe(key, not_before.max(self.clock.now()), accept);
                Some(Box::pin(async move { ObjectEvent::Observed(id, observed.await) }))
            }
            Action::TakePermit { id, priority } => {
                let permit = self.adapter.permit(key, priority);
                Some(Box::pin(async move { ObjectEvent::Permitted(id, permit.await) }))
            }
            Action::ReleasePermit(id) => {
                state.permits.remove(&id);
                None
            }
            Action::Write { id, permit, observation, op } => {
                let raw = state.raw.as_ref().filter(|(read, _)| *read == observation);
                let (_, raw) = raw.expect("a step names the last observation that it was given").clone();
                let permit = state.permits.remove(&permit).expect("a step names a permit that it was given");
                let written = self.adapter.write(key, raw, op, permit);
                Some(Box::pin(async move { ObjectEvent::Written(id, written.await) }))
            }
            Action::Poll(id) => {
                let (_, operation) = state.operation.as_ref().filter(|(write, _)| *write == id)?;
                let polled = self.adapter.poll(key, operation.clone());
                Some(Box::pin(async move { ObjectEvent::Polled(id, polled.await) }))
            }
            Action::Tell { to, generation, outcome } => {
                self.adapter.tell(key, to, generation, outcome);
                None
            }
            Action::Followed { requesters, result } => {
                self.adapter.followed(key, requesters, result);
                None
            }
            Action::Taint(keys, taint) => {
                self.adapter.taint(keys, taint);
                None
            }
            Action::Drained => None,
        }
    }

    fn broken_off(&self, key: &A::Key) {
        self.adapter.broken_off(key);
    }

    fn journal_key(key: &A::Key) -> Option<JournalKey<'_>> {
        A::journal_key(key)
    }

    fn note_of_event(event: &Self::Event) -> Option<Note<'_>> {
        notes::of_event::<O, A>(event)
    }

    fn note_of_action(action: &Action<O>) -> Option<Note<'_>> {
        notes::of_action::<O, A>(action)
    }

    fn awaited(&self, state: &Self::State, now: Duration) -> Option<Awaited> {
        Some(state.step.awaited(&self.adapter.shared(), now))
    }
}

impl<O: Object, A: Adapter<O>> ObjectState<O, A> {
    /// Drops an operation that has ended, with the bodies that it holds.
    fn end_operation(&mut self, id: Id, polled: Polled<O, A::Raw>) -> Polled<O, A::Raw> {
        if !matches!(polled, Polled::Running(_)) {
            self.operation.take_if(|(write, _)| *write == id);
        }
        polled
    }

    /// Keeps what the step does not see, and returns what it sees.
    fn keep(&mut self, event: ObjectEvent<O, A::Raw, A::Permit, A::Operation>) -> Event<O> {
        match event {
            ObjectEvent::Step(event) => event,
            ObjectEvent::Observed(id, Observed { sent_at, by, result }) => {
                let result = result.map(|(model, raw)| {
                    self.raw = Some((id, Some(raw)));
                    model
                });
                if result == Err(Fault::NotFound) {
                    self.raw = Some((id, None));
                }
                Event::Observed { id, sent_at, by, result }
            }
            ObjectEvent::Permitted(id, permit) => {
                // One that was released meanwhile is dropped with the next.
                self.permits.clear();
                self.permits.insert(id, permit);
                Event::Permitted(id)
            }
            ObjectEvent::Written(id, written) => match written {
                Written::Accepted(operation, expected) => {
                    self.operation = Some((id, operation));
                    Event::Accepted { id, expected }
                }
                Written::Done => Event::Ended { id, result: Ok(After::Unread) },
                Written::Failed(failure) => Event::Ended { id, result: Err(failure) },
            },
            ObjectEvent::Polled(id, polled) => match self.end_operation(id, polled) {
                Polled::Running(pause) => Event::Polled { id, pause },
                // A read that cannot be used is repeated.
                Polled::Done | Polled::Shown(Observed { result: Err(_), .. }) => {
                    Event::Ended { id, result: Ok(After::Unread) }
                }
                Polled::Shown(Observed { sent_at, result: Ok((model, raw)), .. }) => {
                    self.raw = Some((id, Some(raw)));
                    Event::Ended { id, result: Ok(After::Read { sent_at, model: Some(model) }) }
                }
                Polled::Failed(failure) => Event::Ended { id, result: Err(failure) },
            },
        }
    }
}
