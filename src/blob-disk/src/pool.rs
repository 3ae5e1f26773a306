//! Runs the step of the accounts of the cluster ([`lazuli_vhd::work::pool`]).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt as _};
use lazuli_azure::Until;
use lazuli_engine::Awaited;
use lazuli_journal::Recorder;
use lazuli_model::{ArmId, BlobUri, StorageAccount};
use lazuli_quota::permit::Priority;
use lazuli_reconcile::{Clock, Droppable, Kind, Workers, metrics::Metrics};
use lazuli_vhd::{
    accounts::{CONTAINER, Request},
    work::{
        Home,
        disk::Ending,
        pool::{Action, Asked, Caller, Cluster, Event, State, Unplaced},
    },
};
use tokio::{sync::oneshot, time::sleep};

use crate::{
    account::Accounts,
    calls::{Calls, PATIENCE},
    error::CallError,
};

/// What a caller is told; nothing when a bug of this program has broken the work off.
pub(crate) type Found<T> = Option<Result<T, Unplaced<CallError>>>;

type Answer = Result<Vec<StorageAccount>, Unplaced<CallError>>;

/// Names the accounts of the cluster: there is one key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TheAccounts;

impl fmt::Display for TheAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the storage accounts of blob disks")
    }
}

/// The accounts of the cluster. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    kind: Arc<PoolKind>,
    workers: Workers<PoolKind>,
}

pub(crate) struct PoolKind {
    calls: Calls,
    accounts: Accounts,
    cluster: Cluster,
    callers: AtomicU64,
    /// What is known outlives a task.
    state: Mutex<State<CallError>>,
}

impl fmt::Debug for PoolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolKind").finish_non_exhaustive()
    }
}

/// What happens to the accounts.
pub(crate) enum PoolEvent {
    Step(Box<Event<CallError>>),
    Asked(Caller, Asked, oneshot::Sender<Answer>),
}

fn step(event: Event<CallError>) -> PoolEvent {
    PoolEvent::Step(Box::new(event))
}

/// The callers that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    answers: BTreeMap<Caller, oneshot::Sender<Answer>>,
    /// The creations that are waited for.
    creations: Droppable,
    /// A task begins with its first event.
    is_idle: bool,
}

impl Pool {
    pub(crate) fn new(calls: Calls, cluster: Cluster, metrics: Metrics, journal: Recorder) -> Self {
        let accounts = Accounts::new(calls.clone(), metrics.clone(), journal.clone());
        let state = Mutex::new(State::new(cluster.clone()));
        let kind = Arc::new(PoolKind { calls, accounts, cluster, callers: AtomicU64::new(0), state });
        Self { workers: Workers::with_journal(kind.clone(), Clock::start(), metrics, journal), kind }
    }

    async fn ask(&self, asked: Asked) -> Found<Vec<StorageAccount>> {
        let caller = self.kind.callers.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let left = step(Event::Abandoned(caller));
        self.workers.ask(&TheAccounts, PoolEvent::Asked(caller, asked, answer), left, answered).await
    }

    async fn ask_for_one(&self, asked: Asked) -> Found<Home> {
        let found = self.ask(asked).await?;
        Some(found.and_then(|accounts| accounts.first().map(Home::of).ok_or(Unplaced::Unsettled)))
    }

    /// The account for a disk.
    pub(crate) async fn place(&self, request: Request) -> Found<Home> {
        self.ask_for_one(Asked::Place(request)).await
    }

    /// The account in which an earlier try has begun a disk.
    pub(crate) async fn earlier(&self, request: Request) -> Found<Option<Home>> {
        let found = self.ask(Asked::Earlier(request)).await?;
        Some(found.map(|accounts| accounts.first().map(Home::of)))
    }

    /// The account of this name.
    pub(crate) async fn account(&self, name: &str) -> Found<Home> {
        self.ask_for_one(Asked::Account(name.to_owned())).await
    }

    /// All accounts of the subscription.
    pub(crate) async fn all(&self) -> Found<Vec<StorageAccount>> {
        self.ask(Asked::All).await
    }

    /// The work on a disk has ended.
    pub(crate) fn ended(&self, account: &ArmId, uri: &BlobUri, ending: Ending) {
        let blob = (uri.container() == CONTAINER).then(|| uri.name().to_owned());
        let event = Event::Ended { account: account.clone(), blob, ending };
        self.workers.send(&TheAccounts, step(event));
    }
}

impl PoolKind {
    fn state(&self) -> MutexGuard<'_, State<CallError>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kind for PoolKind {
    type Key = TheAccounts;
    type State = Waiting;
    type Event = PoolEvent;
    type Action = Action<CallError>;

    const NAME: &'static str = "blob_accounts";

    fn woke() -> PoolEvent {
        step(Event::Woke)
    }

    fn drain() -> PoolEvent {
        step(Event::Woke)
    }

    /// The work ends when every caller is answered.
    fn is_drained(_: &Action<CallError>) -> bool {
        false
    }

    fn action_name(action: &Action<CallError>) -> &'static str {
        match action {
            Action::List(..) => "list_accounts",
            Action::ListBlobs(..) => "list_blobs",
            Action::Make(..) => "make_account",
            Action::Look(..) => "read_account",
            Action::Leave(_) => "drop",
            Action::Answer(..) => "answer",
        }
    }

    fn step(&self, _: &TheAccounts, waiting: &mut Waiting, now: Duration, event: PoolEvent) -> Vec<Action<CallError>> {
        let event = match event {
            PoolEvent::Step(event) => {
                match &*event {
                    Event::Abandoned(caller) => drop(waiting.answers.remove(caller)),
                    Event::Made(id, _) => waiting.creations.ended(*id),
                    _ => {}
                }
                *event
            }
            PoolEvent::Asked(caller, asked, answer) => {
                waiting.answers.insert(caller, answer);
                Event::Asked(caller, asked)
            }
        };
        let mut state = self.state();
        let actions = state.step(now, event);
        waiting.is_idle = state.is_idle();
        actions
    }

    fn wake_at(&self, _: &Waiting) -> Option<Duration> {
        None
    }

    fn is_idle(&self, waiting: &Waiting) -> bool {
        waiting.is_idle
    }

    fn carry_out(
        &self,
        _: &TheAccounts,
        waiting: &mut Waiting,
        action: Action<CallError>,
    ) -> Option<BoxFuture<'static, PoolEvent>> {
        let (calls, accounts) = (self.calls.clone(), self.accounts.clone());
        let future = match action {
            Action::Answer(caller, answer) => {
                if let Some(sender) = waiting.answers.remove(&caller) {
                    _ = sender.send(answer);
                }
                return None;
            }
            Action::List(id, scope, after) => async move {
                sleep(after).await;
                Event::Listed(id, calls.list_accounts(scope).await)
            }
            .boxed(),
            Action::ListBlobs(id, account) => {
                async move { Event::BlobsListed(id, calls.list_disks(&Home::of(&account)).await) }.boxed()
            }
            Action::Make(id, new) => {
                let made = async move { step(Event::Made(id, accounts.make(*new).await)) };
                return waiting.creations.run(id, made, Self::woke);
            }
            // The task of the account learns it, and sends what is not sent yet no more.
            Action::Leave(id) => {
                waiting.creations.drop(id);
                return None;
            }
            Action::Look(id, account, after) => async move {
                sleep(after).await;
                let client = calls.storage.in_region(None);
                let read = client.get_account(&account, Priority::Create, &Until::working(PATIENCE)).await;
                Event::Looked(id, read.map(|read| Box::new(read.model)).map_err(CallError::Arm))
            }
            .boxed(),
        };
        Some(future.map(step).boxed())
    }

    fn awaited(&self, _: &Waiting, _: Duration) -> Option<Awaited> {
        None
    }

    /// What was known may be wrong; the next request begins with a list.
    fn broken_off(&self, _: &TheAccounts) {
        *self.state() = State::new(self.cluster.clone());
    }
}
