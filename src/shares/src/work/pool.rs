//! The step of the accounts of one resource group: in which of them the shares of claims are made.
//!
//! ```text
//!   Requested ──▶ [`choose`](crate::account::choose) over what is known ──▶ Answer
//!                        │ what must be known or made first
//!                        ▼
//!                 List, ListShares, ReadFileService, Make, Finish, Look ──▶ choose again
//! ```
//!
//! All claims share what is read: one list of accounts, one list of the shares of an account that can be full, one PUT of a
//! new account. Shares that were given a place are counted from then on, so that many claims at once fill an account and no
//! more. What is known may be old: an account that a share does not find is forgotten ([`Event::Gone`]), one that Azure
//! calls full gets no further share ([`Event::Full`]). A list that is older than [`LIST_LASTS`] answers no new claim.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use lazuli_engine::{Awaited, Id, Ids};
use lazuli_model::{
    ArmId, FileService, FileShare, ProvisioningState, StorageAccount, fault::Fault, op::FileServiceSpec,
};

use crate::{
    account::{self, AccountSeen, Candidate, Choice, ShareUse, choose, random_number},
    parameters::AccountSource,
    share::SharePlan,
};

/// How old the list of accounts may be for a claim that comes. Accounts seldom change, and what a list lacks is found by
/// the read before a PUT.
pub const LIST_LASTS: Duration = Duration::from_secs(60);
/// How long the shares of an account are taken for those that a list showed, but for what was placed since.
const SHARES_LAST: Duration = Duration::from_secs(10 * 60);
/// After so long an account that is being made is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How often the choice for one claim may change what is known. More would be a loop.
const MOST_CHOICES: u32 = 200;

/// Names one caller.
pub type Caller = u64;

/// What happens to the accounts of a resource group. `E` is Azure's error, as the call gave it.
#[derive(Debug, Clone)]
pub enum Event<E> {
    /// A claim needs an account.
    Requested(Caller, Arc<SharePlan>),
    /// A caller has given up.
    Abandoned(Caller),
    /// The accounts of the resource group, in Azure's order.
    Listed(Id, Result<Vec<StorageAccount>, E>),
    /// The shares of an account, deleted ones included.
    SharesListed(Id, Result<Vec<FileShare>, E>),
    /// The file service of an account.
    FileServiceRead(Id, Result<FileService, E>),
    /// An account was to be made.
    Made(Id, Result<Made, E>),
    /// The file service of an account was to be changed.
    Finished(Id, Result<(), E>),
    /// An account, as a read shows it.
    Looked(Id, Result<StorageAccount, E>),
    /// Azure has refused a share in an account for the account's limits.
    Full(ArmId),
    /// A share of this account was deleted.
    Freed(ArmId),
    /// There is no such account.
    Gone(ArmId),
    /// Nothing has happened.
    Woke,
}

/// What came of making an account.
#[derive(Debug, Clone)]
pub enum Made {
    /// It is there: this program made it, or it existed.
    There(StorageAccount),
    /// Somebody else has an account of the name.
    Taken,
}

/// What is to be done.
#[derive(Debug, Clone)]
pub enum Action<E> {
    /// List the accounts of the resource group.
    List(Id),
    /// List the shares of an account, deleted ones included.
    ListShares(Id, ArmId),
    /// Read the file service of an account.
    ReadFileService(Id, ArmId),
    /// Make an account, if there is none of its name.
    Make(Id, Box<Candidate>),
    /// Change the file service of an account.
    Finish(Id, ArmId, FileServiceSpec),
    /// Read an account, after this time.
    Look(Id, ArmId, Duration),
    /// Tell a caller.
    Answer(Caller, Result<Box<StorageAccount>, Refused<E>>),
}

/// Why a claim gets no account.
#[derive(Debug, Clone)]
pub enum Refused<E> {
    /// None can be used or made.
    Choice(account::Refusal),
    /// Azure does not say what must be known, or does not make the account: what was asked of it.
    Azure(What, E),
    /// What is read of the accounts changes with every look.
    Unsettled,
}

/// What was asked of Azure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The list of accounts.
    List,
    /// The shares of an account.
    Shares(ArmId),
    /// Its file service.
    FileService(ArmId),
    /// Its creation.
    Creation(ArmId),
    /// The change of its file service.
    Finish(ArmId),
    /// The account.
    Account(ArmId),
}

#[derive(Debug)]
struct Ask {
    plan: Arc<SharePlan>,
    at: Duration,
    choices: u32,
}

/// What is known of an account beside what a list of accounts shows.
#[derive(Debug, Default)]
struct Known {
    file_service: Option<FileService>,
    shares: Option<Shares>,
    is_full: bool,
}

#[derive(Debug)]
struct Shares {
    at: Duration,
    used: ShareUse,
    names: BTreeSet<String>,
}

/// What to do about a share that could not be made in the account that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// The account has no room: choose another.
    Full,
    /// There is no such account any more: choose again.
    Gone,
    /// Nothing: the failure is the answer.
    No,
}

/// How often an account is chosen anew for one claim.
const MOST_ACCOUNTS: u32 = 10;

/// What follows from the failure of a share's creation, in the account that was chosen after so many others. An account
/// that the class names is the only one.
pub fn elsewhere(fault: &Fault, plan: &SharePlan, tries: u32) -> Elsewhere {
    match fault {
        _ if tries >= MOST_ACCOUNTS || matches!(plan.class.account, AccountSource::Named { .. }) => Elsewhere::No,
        Fault::AccountFull => Elsewhere::Full,
        Fault::ScopeNotFound => Elsewhere::Gone,
        _ => Elsewhere::No,
    }
}

/// The facts of the accounts of one resource group.
#[derive(Debug)]
pub struct State<E> {
    callers: BTreeMap<Caller, Ask>,
    /// When the list was asked for.
    listed_at: Option<Duration>,
    accounts: Vec<StorageAccount>,
    known: BTreeMap<ArmId, Known>,
    taken: BTreeSet<String>,
    running: BTreeMap<Id, (What, Duration)>,
    /// What has failed since the last decision. Its callers are told, and what comes later asks again.
    failed: BTreeMap<What, E>,
    ids: Ids,
}

impl<E> Default for State<E> {
    fn default() -> Self {
        Self {
            callers: BTreeMap::new(),
            listed_at: None,
            accounts: Vec::new(),
            known: BTreeMap::new(),
            taken: BTreeSet::new(),
            running: BTreeMap::new(),
            failed: BTreeMap::new(),
            ids: Ids::default(),
        }
    }
}

impl<E: Clone> State<E> {
    /// Folds an event into the facts, and decides.
    pub fn step(&mut self, now: Duration, event: Event<E>) -> Vec<Action<E>> {
        self.fold(now, event);
        let mut actions = Vec::new();
        let callers: Vec<Caller> = self.callers.keys().copied().collect();
        for caller in callers {
            self.decide(now, caller, &mut actions);
        }
        self.failed.clear();
        actions
    }

    fn fold(&mut self, now: Duration, event: Event<E>) {
        match event {
            Event::Requested(caller, plan) => drop(self.callers.insert(caller, Ask { plan, at: now, choices: 0 })),
            Event::Abandoned(caller) => drop(self.callers.remove(&caller)),
            Event::Listed(id, listed) => {
                if let Some((_, asked_at)) = self.ended(id, listed.as_ref().err())
                    && let Ok(accounts) = listed
                {
                    self.listed_at = Some(asked_at);
                    self.known.retain(|id, _| accounts.iter().any(|account| account.id == *id));
                    self.accounts = accounts;
                }
            }
            Event::SharesListed(id, listed) => {
                if let Some((What::Shares(account), at)) = self.ended(id, listed.as_ref().err())
                    && let Ok(shares) = listed
                {
                    let live = shares.iter().filter(|share| share.is_live());
                    let names = live.map(|share| share.name().to_lowercase()).collect();
                    self.known(&account).shares = Some(Shares { at, used: ShareUse::of(&shares), names });
                }
            }
            Event::FileServiceRead(id, read) => {
                if let Some((What::FileService(account), _)) = self.ended(id, read.as_ref().err())
                    && let Ok(service) = read
                {
                    self.known(&account).file_service = Some(service);
                }
            }
            Event::Made(id, made) => {
                if let Some((What::Creation(account), _)) = self.ended(id, made.as_ref().err()) {
                    match made {
                        Ok(Made::There(account)) => self.there(account),
                        Ok(Made::Taken) => drop(self.taken.insert(account.name().to_owned())),
                        Err(_) => self.listed_at = None,
                    }
                }
            }
            Event::Finished(id, finished) => {
                if let Some((What::Finish(account), _)) = self.ended(id, finished.as_ref().err()) {
                    self.known(&account).file_service = None;
                }
            }
            Event::Looked(id, looked) => {
                if self.ended(id, looked.as_ref().err()).is_some()
                    && let Ok(account) = looked
                {
                    self.there(account);
                }
            }
            Event::Full(account) => self.known(&account).is_full = true,
            Event::Freed(account) => {
                let known = self.known(&account);
                known.is_full = false;
                known.shares = None;
            }
            Event::Gone(account) => {
                self.accounts.retain(|other| other.id != account);
                self.known.remove(&account);
                self.listed_at = None;
            }
            Event::Woke => {}
        }
    }

    fn known(&mut self, account: &ArmId) -> &mut Known {
        self.known.entry(account.clone()).or_default()
    }

    /// An account is as this shows it. A new one is the last of the list, as in the Go driver's cache.
    fn there(&mut self, account: StorageAccount) {
        match self.accounts.iter_mut().find(|other| other.id == account.id) {
            Some(other) => *other = account,
            None => self.accounts.push(account),
        }
    }

    /// What has ended, and when it was asked for.
    fn ended(&mut self, id: Id, error: Option<&E>) -> Option<(What, Duration)> {
        let (what, at) = self.running.remove(&id)?;
        if let Some(error) = error {
            self.failed.insert(what.clone(), error.clone());
        }
        Some((what, at))
    }

    fn decide(&mut self, now: Duration, caller: Caller, actions: &mut Vec<Action<E>>) {
        let Some(ask) = self.callers.get(&caller) else { return };
        let (plan, at) = (ask.plan.clone(), ask.at);
        // The class names an account that must exist: nothing is chosen, and no list is needed.
        let needs_list = !matches!(plan.class.account, AccountSource::Named { create: false, .. });
        if needs_list && self.listed_at.is_none_or(|listed| at > listed + LIST_LASTS) {
            return self.need(now, caller, What::List, Action::List, actions);
        }
        let request = plan.account_request();
        let share = plan.share.to_lowercase();
        let seen: Vec<AccountSeen<'_>> = self.accounts.iter().map(|account| self.seen(now, account, &share)).collect();
        match choose(&request, &seen, &self.taken, random_number(&plan.request)) {
            Choice::Use(account) => self.take(now, caller, &account, &plan, actions),
            Choice::Wait(account) => {
                let look = |id| Action::Look(id, account.clone(), LOOK_AGAIN);
                self.need(now, caller, What::Account(account.clone()), look, actions);
            }
            Choice::ReadFileService(account) => {
                let read = |id| Action::ReadFileService(id, account.clone());
                self.need(now, caller, What::FileService(account.clone()), read, actions);
            }
            Choice::ReadShares(account) => {
                let list = |id| Action::ListShares(id, account.clone());
                self.need(now, caller, What::Shares(account.clone()), list, actions);
            }
            Choice::Create(candidate) => {
                let what = What::Creation(candidate.account.clone());
                self.need(now, caller, what, |id| Action::Make(id, candidate), actions);
            }
            Choice::FinishFileService { account, spec } => {
                let finish = |id| Action::Finish(id, account.clone(), spec);
                self.need(now, caller, What::Finish(account.clone()), finish, actions);
            }
            Choice::Refused(refusal) => self.answer(caller, Err(Refused::Choice(refusal)), actions),
        }
    }

    fn seen<'a>(&'a self, now: Duration, account: &'a StorageAccount, share: &str) -> AccountSeen<'a> {
        let known = self.known.get(&account.id);
        let shares = known.and_then(|known| known.shares.as_ref()).filter(|shares| now <= shares.at + SHARES_LAST);
        AccountSeen {
            account,
            file_service: known.and_then(|known| known.file_service),
            shares: shares.map(|shares| shares.used),
            holds_share: shares.is_some_and(|shares| shares.names.contains(share)),
            is_refused: known.is_some_and(|known| known.is_full),
        }
    }

    /// The account of a claim is chosen. Its share counts from now on.
    fn take(&mut self, now: Duration, caller: Caller, id: &ArmId, plan: &SharePlan, actions: &mut Vec<Action<E>>) {
        let Some(account) = self.accounts.iter().find(|account| account.id == *id).cloned() else {
            // A named account that no list was asked for.
            let look = |read| Action::Look(read, id.clone(), Duration::ZERO);
            return self.need(now, caller, What::Account(id.clone()), look, actions);
        };
        if account.provisioning_state == ProvisioningState::InProgress {
            let look = |read| Action::Look(read, id.clone(), LOOK_AGAIN);
            return self.need(now, caller, What::Account(id.clone()), look, actions);
        }
        if let Some(shares) = &mut self.known(id).shares
            && shares.names.insert(plan.share.to_lowercase())
        {
            shares.used.shares = shares.used.shares.saturating_add(1);
            shares.used.quota = shares.used.quota.saturating_add(u64::from(plan.size.get()));
        }
        self.answer(caller, Ok(Box::new(account)), actions);
    }

    /// A caller waits for something to be known or made. What has just failed is its answer.
    fn need(
        &mut self,
        now: Duration,
        caller: Caller,
        what: What,
        action: impl FnOnce(Id) -> Action<E>,
        actions: &mut Vec<Action<E>>,
    ) {
        if let Some(error) = self.failed.get(&what).cloned() {
            return self.answer(caller, Err(Refused::Azure(what, error)), actions);
        }
        if self.running.values().any(|(running, _)| *running == what) {
            return;
        }
        let choices = self.callers.get_mut(&caller).map_or(0, |ask| {
            ask.choices += 1;
            ask.choices
        });
        if choices > MOST_CHOICES {
            return self.answer(caller, Err(Refused::Unsettled), actions);
        }
        let id = self.ids.next_id();
        self.running.insert(id, (what, now));
        actions.push(action(id));
    }

    fn answer(
        &mut self,
        caller: Caller,
        answer: Result<Box<StorageAccount>, Refused<E>>,
        actions: &mut Vec<Action<E>>,
    ) {
        self.callers.remove(&caller);
        actions.push(Action::Answer(caller, answer));
    }

    /// Whether an account has the tag that keeps it from being matched, as far as is known.
    pub fn is_left_out(&self, account: &ArmId) -> bool {
        let known = self.accounts.iter().find(|other| other.id == *account);
        known.is_some_and(|account| account::clear_skip_matching(account).is_some())
    }

    /// Whether nobody waits and nothing is in flight. What is known is kept all the same.
    pub fn is_idle(&self) -> bool {
        self.callers.is_empty() && self.running.is_empty()
    }

    /// What it waits for.
    pub fn awaited(&self) -> Awaited {
        match self.running.values().next() {
            None => Awaited::Nothing,
            Some((What::Creation(_) | What::Finish(_), _)) => Awaited::Operation,
            Some(_) => Awaited::Read,
        }
    }
}

#[cfg(test)]
mod tests;
