//! The tasks of the keys of one kind.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{
    StreamExt as _,
    future::{BoxFuture, OptionFuture},
    stream::FuturesUnordered,
};
use lazuli_journal::Recorder;
use lazuli_telemetry::panics::catch;
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::AbortHandle,
    time::{Instant, sleep_until},
};
use tracing::{Instrument as _, error};

use crate::{Clock, Kind, journal::Notes, metrics::Metrics};

/// The workers of all keys of a kind. Clones share them.
pub struct Workers<K: Kind> {
    shared: Arc<Shared<K>>,
}

struct Shared<K: Kind> {
    kind: Arc<K>,
    clock: Clock,
    metrics: Metrics,
    journal: Recorder,
    keys: Mutex<Keys<K>>,
    /// How many tasks run.
    running: watch::Sender<usize>,
}

struct Keys<K: Kind> {
    mailboxes: BTreeMap<K::Key, Mailbox<K>>,
    draining: bool,
    aborted: bool,
    tasks: u64,
}

struct Mailbox<K: Kind> {
    events: Sender<K>,
    /// Wakes the task. Wakes that come before the task has seen one are one.
    wake: Arc<Notify>,
    task: AbortHandle,
    /// Which task it is; a later one of the same key has a greater number.
    number: u64,
}

/// A channel has room for 32 events from the start, so that it holds them by pointers: there may be a mailbox for each of
/// 5,000 nodes.
type Sender<K> = mpsc::UnboundedSender<Box<<K as Kind>::Event>>;
type Receiver<K> = mpsc::UnboundedReceiver<Box<<K as Kind>::Event>>;

impl<K: Kind> Clone for Workers<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Kind> fmt::Debug for Workers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.shared.keys().mailboxes.len();
        f.debug_struct("Workers").field("kind", &K::NAME).field("keys", &keys).finish()
    }
}

impl<K: Kind> Shared<K> {
    fn keys(&self) -> MutexGuard<'_, Keys<K>> {
        // Every change under this lock is complete, so a panic elsewhere leaves the map whole.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Kind> Workers<K> {
    /// Workers without a key, and without a journal.
    pub fn new(kind: Arc<K>, clock: Clock, metrics: Metrics) -> Self {
        Self::with_journal(kind, clock, metrics, Recorder::nowhere())
    }

    /// Workers without a key, which note in this journal what happens to their keys.
    pub fn with_journal(kind: Arc<K>, clock: Clock, metrics: Metrics, journal: Recorder) -> Self {
        let keys = Keys { mailboxes: BTreeMap::new(), draining: false, aborted: false, tasks: 0 };
        let shared = Shared { kind, clock, metrics, journal, keys: Mutex::new(keys), running: watch::Sender::new(0) };
        Self { shared: Arc::new(shared) }
    }

    /// Puts an event into the mailbox of a key, and starts its task if it has none. Events of one sender keep their order.
    /// After [`Self::abort`], and for a key without a task during a drain, it is dropped.
    pub fn send(&self, key: &K::Key, event: K::Event) {
        let event = Box::new(event);
        let mut keys = self.shared.keys();
        let event = match keys.mailboxes.get(key) {
            _ if keys.aborted => return,
            Some(mailbox) => match mailbox.events.send(event) {
                Ok(()) => return,
                // The task was dropped with its runtime.
                Err(unsent) => unsent.0,
            },
            None => event,
        };
        if keys.draining {
            return;
        }
        let (events, received) = mpsc::unbounded_channel();
        keys.tasks += 1;
        let number = keys.tasks;
        let task = Task { shared: self.shared.clone(), key: key.clone(), number };
        self.shared.running.send_modify(|running| *running += 1);
        self.shared.metrics.started(K::NAME);
        // The first event is in the mailbox before the task can end.
        _ = events.send(event);
        let span = tracing::info_span!("reconcile", kind = K::NAME, key = %key);
        let wake = Arc::new(Notify::new());
        let task = tokio::spawn(task.run(received, wake.clone()).instrument(span)).abort_handle();
        keys.mailboxes.insert(key.clone(), Mailbox { events, wake, task, number });
    }

    /// Puts an event into the mailbox of a key that has a task. A key without one needs no such event.
    pub fn tell(&self, key: &K::Key, event: K::Event) {
        if let Some(mailbox) = self.shared.keys().mailboxes.get(key) {
            // The task was dropped with its runtime.
            _ = mailbox.events.send(Box::new(event));
        }
    }

    /// Sends a request to a key, and waits for its answer. When the caller gives up before, the key is told `left`. `None`
    /// when the work on the key was broken off: nobody answers then.
    pub async fn ask<T>(
        &self,
        key: &K::Key,
        request: K::Event,
        left: K::Event,
        answered: oneshot::Receiver<T>,
    ) -> Option<T> {
        let mut caller = AskingCaller { workers: self, key, left: Some(left) };
        self.send(key, request);
        let answer = answered.await;
        caller.left = None;
        answer.ok()
    }

    /// Wakes every key: the lease, the informers or other shared facts have changed.
    pub fn wake_all(&self) {
        for mailbox in self.shared.keys().mailboxes.values() {
            mailbox.wake.notify_one();
        }
    }

    /// The number of keys with a running task.
    pub fn len(&self) -> usize {
        self.shared.keys().mailboxes.len()
    }

    /// Whether no key has a running task.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts nothing new, and waits until nothing is in flight.
    pub async fn drain(&self) {
        {
            let mut keys = self.shared.keys();
            keys.draining = true;
            for mailbox in keys.mailboxes.values() {
                _ = mailbox.events.send(Box::new(K::drain()));
            }
        }
        self.ended().await;
    }

    /// Cancels everything at once, as after the loss of the lease: what is unsent is never sent.
    pub async fn abort(&self) {
        {
            let mut keys = self.shared.keys();
            keys.aborted = true;
            keys.mailboxes.values().for_each(|mailbox| mailbox.task.abort());
        }
        self.ended().await;
    }

    async fn ended(&self) {
        let mut running = self.shared.running.subscribe();
        // The sender lives in `self`.
        _ = running.wait_for(|running| *running == 0).await;
    }
}

/// A caller that waits. When it gives up, its key is told.
struct AskingCaller<'a, K: Kind> {
    workers: &'a Workers<K>,
    key: &'a K::Key,
    /// What the key is told; nothing once the caller is answered.
    left: Option<K::Event>,
}

impl<K: Kind> Drop for AskingCaller<'_, K> {
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            self.workers.tell(self.key, left);
        }
    }
}

/// The task of one key.
struct Task<K: Kind> {
    shared: Arc<Shared<K>>,
    key: K::Key,
    number: u64,
}

impl<K: Kind> Drop for Task<K> {
    fn drop(&mut self) {
        let mut keys = self.shared.keys();
        if keys.mailboxes.get(&self.key).is_some_and(|mailbox| mailbox.number == self.number) {
            keys.mailboxes.remove(&self.key);
        }
        drop(keys);
        self.shared.metrics.ended(K::NAME);
        self.shared.running.send_modify(|running| *running -= 1);
    }
}

/// What a task waits for.
enum Next<E> {
    Event(E),
    Woken,
    /// An action has ended with this event.
    Ended(E),
}

impl<K: Kind> Task<K> {
    async fn run(self, mut events: Receiver<K>, wake: Arc<Notify>) {
        loop {
            // The compiler's future of a step with its reads and writes is large.
            match catch(Box::pin(self.serve(&mut events, &wake))).await {
                Ok(()) => return,
                Err(panicked) => {
                    self.shared.metrics.panicked(K::NAME);
                    Notes::of::<K>(&self.shared.journal, &self.key).panicked();
                    error!(error = %panicked, "the work on this key was broken off; it starts with an empty state");
                    self.shared.kind.broken_off(&self.key);
                }
            }
        }
    }

    /// Serves the mailbox until the state is idle or the drain is over.
    async fn serve(&self, events: &mut Receiver<K>, woken: &Notify) {
        let kind = &self.shared.kind;
        let mut state = K::State::default();
        let mut notes = Notes::of::<K>(&self.shared.journal, &self.key);
        let mut in_flight: FuturesUnordered<BoxFuture<'static, K::Event>> = FuturesUnordered::new();
        loop {
            if in_flight.is_empty() && kind.is_idle(&state) && self.may_end(events) {
                return;
            }
            let wake = kind.wake_at(&state).map(|at| sleep_until(self.shared.clock.at(at)));
            let next = tokio::select! {
                // What has ended goes first: a mailbox that never empties must not delay it.
                biased;
                Some(event) = in_flight.next() => Next::Ended(event),
                Some(event) = events.recv() => Next::Event(*event),
                () = woken.notified() => Next::Woken,
                Some(()) = OptionFuture::from(wake) => Next::Woken,
            };
            let event = match next {
                Next::Event(event) | Next::Ended(event) => event,
                Next::Woken => K::woke(),
            };
            self.shared.metrics.stepped(K::NAME);
            notes.event::<K>(&event);
            let now = self.shared.clock.now();
            let actions = kind.step(&self.key, &mut state, now, event);
            notes.step(&**kind, &state, now, &actions);
            for action in actions {
                let name = K::action_name(&action);
                self.shared.metrics.action(K::NAME, name);
                if K::is_drained(&action) {
                    return;
                }
                if let Some(future) = kind.carry_out(&self.key, &mut state, action) {
                    let metrics = self.shared.metrics.clone();
                    let began = Instant::now();
                    in_flight.push(Box::pin(async move {
                        let event = future.await;
                        metrics.took(K::NAME, name, began.elapsed().as_secs_f64());
                        event
                    }));
                }
            }
        }
    }

    /// Removes the mailbox if it is empty, so that the next event starts another task.
    fn may_end(&self, events: &Receiver<K>) -> bool {
        let mut keys = self.shared.keys();
        let ends = events.is_empty();
        if ends {
            keys.mailboxes.remove(&self.key);
        }
        ends
    }
}
