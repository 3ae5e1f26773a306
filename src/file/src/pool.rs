//! Runs the step of the accounts of a resource group ([`lazuli_shares::work::pool`]).

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
use lazuli_azure::{Until, storage::ShareList};
use lazuli_engine::Awaited;
use lazuli_journal::Recorder;
use lazuli_model::{ArmId, StorageAccount, fault::Fault};
use lazuli_quota::permit::Priority;
use lazuli_reconcile::{Clock, Droppable, Kind, Workers, metrics::Metrics};
use lazuli_shares::{
    share::SharePlan,
    work::pool::{Action, Caller, Event, Refused, State},
};
use tokio::{sync::oneshot, time::sleep};

use crate::{
    ShareError,
    account::Accounts,
    error::broken_off,
    regions::{PATIENCE, Regions},
};

type Outcome = Result<StorageAccount, ShareError>;

/// Names the accounts of one resource group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    subscription: String,
    resource_group: String,
}

impl Group {
    fn new(subscription: &str, resource_group: &str) -> Self {
        Self { subscription: subscription.to_lowercase(), resource_group: resource_group.to_lowercase() }
    }

    fn of(account: &ArmId) -> Self {
        Self::new(account.subscription(), account.resource_group())
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the storage accounts of resource group {}", self.resource_group)
    }
}

/// The accounts of all resource groups. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Pools {
    kind: Arc<PoolKind>,
    workers: Workers<PoolKind>,
}

pub(crate) struct PoolKind {
    regions: Regions,
    accounts: Accounts,
    callers: AtomicU64,
    /// What is known outlives a task.
    states: Mutex<BTreeMap<Group, State<ShareError>>>,
}

impl fmt::Debug for PoolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolKind").finish_non_exhaustive()
    }
}

/// What happens to the accounts of a group.
pub(crate) enum PoolEvent {
    Step(Box<Event<ShareError>>),
    Requested(Caller, Arc<SharePlan>, oneshot::Sender<Outcome>),
}

fn step(event: Event<ShareError>) -> PoolEvent {
    PoolEvent::Step(Box::new(event))
}

/// The callers that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    answers: BTreeMap<Caller, oneshot::Sender<Outcome>>,
    /// The writes that are waited for.
    writes: Droppable,
    /// A task begins with its first event.
    is_idle: bool,
}

impl Pools {
    pub(crate) fn new(regions: Regions, accounts: Accounts, metrics: Metrics, journal: Recorder) -> Self {
        let clock = Clock::start();
        let kind = Arc::new(PoolKind { regions, accounts, callers: AtomicU64::new(0), states: Mutex::default() });
        Self { workers: Workers::with_journal(kind.clone(), clock, metrics, journal), kind }
    }

    /// The account for a claim.
    pub(crate) async fn account_for(&self, plan: &Arc<SharePlan>) -> Outcome {
        let group = Group::new(&plan.class.subscription, &plan.class.resource_group);
        let caller = self.kind.callers.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let left = step(Event::Abandoned(caller));
        let asked = PoolEvent::Requested(caller, plan.clone(), answer);
        self.workers.ask(&group, asked, left, answered).await.unwrap_or_else(|| Err(broken_off(&group)))
    }

    fn tell(&self, account: &ArmId, event: Event<ShareError>) {
        let group = Group::of(account);
        if self.kind.states().contains_key(&group) {
            self.workers.send(&group, step(event));
        }
    }

    /// Azure has refused the share of this name in the account for the account's limits.
    pub(crate) fn is_full(&self, account: &ArmId, share: &str) {
        self.tell(account, Event::Full(account.clone(), share.to_owned()));
    }

    /// There is no such account.
    pub(crate) fn is_gone(&self, account: &ArmId) {
        self.tell(account, Event::Gone(account.clone()));
    }

    /// A share of the account was deleted.
    pub(crate) fn is_freed(&self, account: &ArmId) {
        self.tell(account, Event::Freed(account.clone()));
    }

    /// Whether the account has the tag that keeps it from being matched, as far as is known.
    pub(crate) fn is_left_out(&self, account: &ArmId) -> bool {
        self.kind.states().get(&Group::of(account)).is_some_and(|state| state.is_left_out(account))
    }
}

impl PoolKind {
    fn states(&self) -> MutexGuard<'_, BTreeMap<Group, State<ShareError>>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What cannot be read is left out: no share is put where nothing is known.
async fn list_accounts(regions: Regions, group: Group) -> Result<Vec<StorageAccount>, ShareError> {
    let listed = async {
        let until = Until::working(PATIENCE);
        let Group { subscription, resource_group } = &group;
        let storage = regions.storage();
        storage.list_accounts(subscription, Some(resource_group), Priority::Create, &until)?.readable().await
    };
    let accounts = listed.await.map_err(|error| ShareError::azure(format!("{group} cannot be listed"), error))?;
    accounts.iter().for_each(|account| regions.learn(account));
    Ok(accounts)
}

fn refused(refused: Refused<ShareError>) -> ShareError {
    match refused {
        Refused::Azure(_, error) => error,
        Refused::Choice(refusal) => ShareError::new(Fault::Invalid, refusal.to_string()).with_code(refusal.code()),
        Refused::Unsettled => {
            let message = "what Azure shows of the storage accounts changes with every look; retry";
            ShareError::new(Fault::Conflict, message)
        }
    }
}

impl Kind for PoolKind {
    type Key = Group;
    type State = Waiting;
    type Event = PoolEvent;
    type Action = Action<ShareError>;

    const NAME: &'static str = "accounts";

    fn woke() -> PoolEvent {
        step(Event::Woke)
    }

    fn drain() -> PoolEvent {
        step(Event::Woke)
    }

    /// The work ends when every caller is answered.
    fn is_drained(_: &Action<ShareError>) -> bool {
        false
    }

    fn action_name(action: &Action<ShareError>) -> &'static str {
        match action {
            Action::List(_) => "list_accounts",
            Action::ListShares(..) => "list_shares",
            Action::ReadFileService(..) => "read_file_service",
            Action::Make(..) => "make_account",
            Action::Finish(..) => "change_file_service",
            Action::Look(..) => "read_account",
            Action::Leave(_) => "drop",
            Action::Answer(..) => "answer",
        }
    }

    fn step(&self, group: &Group, waiting: &mut Waiting, now: Duration, event: PoolEvent) -> Vec<Action<ShareError>> {
        let event = match event {
            PoolEvent::Step(event) => {
                match &*event {
                    Event::Abandoned(caller) => drop(waiting.answers.remove(caller)),
                    Event::Made(id, _) | Event::Finished(id, _) => waiting.writes.ended(*id),
                    _ => {}
                }
                *event
            }
            PoolEvent::Requested(caller, plan, answer) => {
                waiting.answers.insert(caller, answer);
                Event::Requested(caller, plan)
            }
        };
        let mut states = self.states();
        let state = states.entry(group.clone()).or_default();
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
        group: &Group,
        waiting: &mut Waiting,
        action: Action<ShareError>,
    ) -> Option<BoxFuture<'static, PoolEvent>> {
        let (regions, accounts, group) = (self.regions.clone(), self.accounts.clone(), group.clone());
        let future = match action {
            Action::Answer(caller, answer) => {
                if let Some(sender) = waiting.answers.remove(&caller) {
                    _ = sender.send(answer.map(|account| *account).map_err(refused));
                }
                return None;
            }
            Action::List(id) => async move { Event::Listed(id, list_accounts(regions, group).await) }.boxed(),
            Action::ListShares(id, account) => async move {
                let list = ShareList { deleted: true, ..ShareList::default() };
                let until = Until::working(PATIENCE);
                let listed = async {
                    regions.of(&account).list_shares(&account, &list, Priority::Create, &until)?.readable().await
                };
                let failed = |error| ShareError::azure(format!("the shares of {account} cannot be listed"), error);
                Event::SharesListed(id, listed.await.map_err(failed))
            }
            .boxed(),
            Action::ReadFileService(id, account) => async move {
                let until = Until::working(PATIENCE);
                let read = regions.of(&account).get_file_service(&account, Priority::Create, &until).await;
                let failed = |error| ShareError::azure(format!("the file service of {account} cannot be read"), error);
                Event::FileServiceRead(id, read.map(|read| read.model).map_err(failed))
            }
            .boxed(),
            Action::Make(id, candidate) => {
                let made = async move { step(Event::Made(id, accounts.make(*candidate).await)) };
                return waiting.writes.run(id, made, Self::woke);
            }
            Action::Finish(id, account, spec) => {
                let finished = async move { step(Event::Finished(id, accounts.finish(&account, spec).await)) };
                return waiting.writes.run(id, finished, Self::woke);
            }
            // The task of the account learns it, and sends what is not sent yet no more.
            Action::Leave(id) => {
                waiting.writes.drop(id);
                return None;
            }
            Action::Look(id, account, after) => async move {
                sleep(after).await;
                let read = regions.read_account(&account, Priority::Create).await;
                let failed = |error| ShareError::azure(format!("{account} cannot be read"), error);
                Event::Looked(id, read.map_err(failed))
            }
            .boxed(),
        };
        Some(future.map(step).boxed())
    }

    fn awaited(&self, _: &Waiting, _: Duration) -> Option<Awaited> {
        None
    }

    /// What was known may be wrong; the next claim begins with a list.
    fn broken_off(&self, group: &Group) {
        self.states().remove(group);
    }
}
