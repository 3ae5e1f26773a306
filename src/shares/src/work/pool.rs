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
//! more. What is known may be old: an account that a share or a read does not find is forgotten, and lists that still show
//! it are not believed for a while; one that Azure calls full gets no further share for a while ([`Event::Full`]). A list
//! that is older than [`LIST_LASTS`] answers no new claim. A creation, or a change of a file service, is waited for while a
//! claim needs it: what is not sent by then is not sent ([`Action::Leave`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use lazuli_engine::{Awaited, Id, Ids, single::AzureFailure};
use lazuli_model::{
    ArmId, FileService, FileShare, ProvisioningState, StorageAccount, StorageSku,
    fault::{Effect, Fault},
    op::FileServiceSpec,
};

use crate::{
    account::{self, AccountSeen, Candidate, Choice, ShareUse, choose, fits_file_service, random_number},
    limits::{DEFAULT_SKU, share_size},
    parameters::AccountSource,
    share::SharePlan,
};

/// How old the list of accounts may be for a claim that comes. Accounts seldom change, and what a list lacks is found by
/// the read before a PUT.
pub const LIST_LASTS: Duration = Duration::from_secs(60);
/// How long other facts are believed: the shares and the file service of an account, but for what was placed since; that
/// Azure has called it full; that a name belongs to somebody else.
const FACTS_LAST: Duration = Duration::from_secs(10 * 60);
/// After so long a share that was given a place is made, or is not: a list says which.
const PLACED_LASTS: Duration = Duration::from_secs(2 * 60);
/// For so long a list may still show an account that a read or a write did not find.
const GONE_LASTS: Duration = Duration::from_secs(60);
/// After so long an account that is being made is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How often a claim waits for the list, or for another look at an account that is being made.
const MOST_LOOKS: u32 = 200;
/// How often a claim waits for any other one thing. More would be a loop.
const MOST_REPEATS: u32 = 20;

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
    /// Azure has refused the share of this name in an account for the account's limits.
    Full(ArmId, String),
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
    There(Box<StorageAccount>),
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
    /// No claim needs this creation, or this change of a file service, any more: wait for it no longer. It has no event.
    Leave(Id),
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
    /// What it has waited for: the last request, and how many there were.
    waits: BTreeMap<What, (Id, u32)>,
}

/// What is known of an account beside what a list of accounts shows.
#[derive(Debug, Default)]
struct Known {
    /// When it was read alone.
    looked_at: Option<Duration>,
    file_service: Option<(Duration, FileService)>,
    shares: Option<Shares>,
    /// The shares that were given a place here and that no list has shown yet: when, and their sizes, GiB.
    placed: BTreeMap<String, (Duration, u64)>,
    full_at: Option<Duration>,
}

impl Known {
    /// What its shares add up to with those that were given a place; `None` where a list must say it.
    fn used(&self, now: Duration) -> Option<ShareUse> {
        let shares = self.shares.as_ref().filter(|shares| now <= shares.at + FACTS_LAST)?;
        let placed = || self.placed.iter().filter(|(name, _)| !shares.names.contains(*name)).map(|(_, placed)| placed);
        if placed().any(|(at, _)| now > *at + PLACED_LASTS) {
            return None;
        }
        Some(placed().fold(shares.used, |used, (_, gib)| ShareUse {
            shares: used.shares.saturating_add(1),
            quota: used.quota.saturating_add(*gib),
        }))
    }

    fn holds(&self, now: Duration, share: &str) -> bool {
        let is_listed = self.shares.as_ref().is_some_and(|shares| shares.names.contains(share));
        is_listed || self.placed.get(share).is_some_and(|(at, _)| now <= *at + FACTS_LAST)
    }
}

/// The live and deleted shares of an account, as a list showed them that was asked for at this time.
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
/// that the class names is the only one. A share that may still come is made nowhere else: the claim is tried again, and
/// finds it.
pub fn elsewhere(fault: &Fault, effect: Effect, plan: &SharePlan, tries: u32) -> Elsewhere {
    match fault {
        _ if effect == Effect::Possible => Elsewhere::No,
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
    /// The names that belong to somebody else, and since when that is known.
    taken: BTreeMap<String, Duration>,
    /// The accounts that were not found, and when.
    gone: BTreeMap<ArmId, Duration>,
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
            taken: BTreeMap::new(),
            gone: BTreeMap::new(),
            running: BTreeMap::new(),
            failed: BTreeMap::new(),
            ids: Ids::default(),
        }
    }
}

impl<E: AzureFailure> State<E> {
    /// Folds an event into the facts, and decides.
    pub fn step(&mut self, now: Duration, event: Event<E>) -> Vec<Action<E>> {
        self.fold(now, event);
        let mut actions = Vec::new();
        let callers: Vec<Caller> = self.callers.keys().copied().collect();
        for caller in callers {
            self.decide(now, caller, &mut actions);
        }
        // Whoever waited for a creation that has failed is told. Who comes later looks first: another may have made it.
        if self.failed.keys().any(|what| matches!(what, What::Creation(_))) {
            self.listed_at = None;
        }
        self.failed.clear();
        self.leave(&mut actions);
        actions
    }

    /// What is written for claims alone, and no claim waits for, is left.
    fn leave(&mut self, actions: &mut Vec<Action<E>>) {
        let callers = &self.callers;
        let is_needed = |id: &Id| callers.values().any(|ask| ask.waits.values().any(|(waits_for, _)| waits_for == id));
        let is_write = |what: &What| matches!(what, What::Creation(_) | What::Finish(_));
        let left: Vec<Id> =
            self.running.iter().filter(|(id, (what, _))| is_write(what) && !is_needed(id)).map(|(id, _)| *id).collect();
        for id in left {
            self.running.remove(&id);
            actions.push(Action::Leave(id));
        }
    }

    fn fold(&mut self, now: Duration, event: Event<E>) {
        match event {
            Event::Requested(caller, plan) => {
                self.callers.insert(caller, Ask { plan, at: now, waits: BTreeMap::new() });
            }
            Event::Abandoned(caller) => drop(self.callers.remove(&caller)),
            Event::Listed(id, listed) => {
                if let Some((_, asked_at)) = self.ended(now, id, listed.as_ref().err())
                    && let Ok(mut accounts) = listed
                {
                    self.listed_at = Some(asked_at);
                    self.gone.retain(|_, at| asked_at <= *at + GONE_LASTS);
                    accounts.retain(|account| !self.gone.contains_key(&account.id));
                    self.known.retain(|id, _| accounts.iter().any(|account| account.id == *id));
                    self.accounts = accounts;
                }
            }
            Event::SharesListed(id, listed) => {
                if let Some((What::Shares(account), at)) = self.ended(now, id, listed.as_ref().err())
                    && let Ok(shares) = listed
                {
                    let live = shares.iter().filter(|share| share.is_live());
                    let names: BTreeSet<String> = live.map(|share| share.name().to_lowercase()).collect();
                    let known = self.known(&account);
                    known.placed.retain(|name, (placed, _)| !names.contains(name) && at <= *placed + PLACED_LASTS);
                    known.shares = Some(Shares { at, used: ShareUse::of(&shares), names });
                }
            }
            Event::FileServiceRead(id, read) => {
                if let Some((What::FileService(account), at)) = self.ended(now, id, read.as_ref().err())
                    && let Ok(service) = read
                {
                    self.known(&account).file_service = Some((at, service));
                }
            }
            Event::Made(id, made) => {
                if let Some((What::Creation(account), _)) = self.ended(now, id, made.as_ref().err()) {
                    match made {
                        Ok(Made::There(account)) => self.there(*account),
                        Ok(Made::Taken) => drop(self.taken.insert(account.name().to_owned(), now)),
                        Err(_) => {}
                    }
                }
            }
            Event::Finished(id, finished) => {
                if let Some((What::Finish(account), _)) = self.ended(now, id, finished.as_ref().err())
                    && finished.is_ok()
                {
                    self.known(&account).file_service = None;
                }
            }
            Event::Looked(id, looked) => {
                if let Some((_, at)) = self.ended(now, id, looked.as_ref().err())
                    && let Ok(account) = looked
                {
                    self.known(&account.id).looked_at = Some(at);
                    self.there(account);
                }
            }
            // A list must say what it holds: an earlier try of a claim may have made its share there.
            Event::Full(account, share) => {
                let known = self.known(&account);
                known.full_at = Some(now);
                known.placed.remove(&share.to_lowercase());
                known.shares = None;
            }
            Event::Freed(account) => {
                let known = self.known(&account);
                known.full_at = None;
                known.shares = None;
            }
            Event::Gone(account) => self.gone(now, account),
            Event::Woke => {}
        }
    }

    fn gone(&mut self, now: Duration, account: ArmId) {
        self.accounts.retain(|other| other.id != account);
        self.known.remove(&account);
        self.listed_at = None;
        self.gone.insert(account, now);
    }

    fn known(&mut self, account: &ArmId) -> &mut Known {
        self.known.entry(account.clone()).or_default()
    }

    /// An account is as this shows it. A new one is the last of the list, as in the Go driver's cache.
    fn there(&mut self, account: StorageAccount) {
        self.gone.remove(&account.id);
        match self.accounts.iter_mut().find(|other| other.id == account.id) {
            Some(other) => *other = account,
            None => self.accounts.push(account),
        }
    }

    /// What has ended, and when it was asked for.
    fn ended(&mut self, now: Duration, id: Id, error: Option<&E>) -> Option<(What, Duration)> {
        let (what, at) = self.running.remove(&id)?;
        if let Some(error) = error {
            match &what {
                What::Shares(account) | What::FileService(account) | What::Finish(account) | What::Account(account)
                    if error.fault().says_that_it_is_missing() =>
                {
                    self.gone(now, account.clone());
                }
                _ => {}
            }
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
        let seen = self.accounts.iter().map(|account| {
            let seen = self.seen(now, account, &share);
            // One that does not fit may be that of an account that another replica has just made: what the claim rests on
            // was read since it came, and since its first share was listed.
            let known = self.known.get(&account.id);
            let listed = known.and_then(|known| known.shares.as_ref()).filter(|shares| shares.used.shares > 0);
            let read_at = known.and_then(|known| known.file_service).map(|(at, _)| at);
            let is_new = read_at >= Some(at) && read_at >= listed.map(|shares| shares.at);
            let file_service = seen.file_service.filter(|service| is_new || fits_file_service(&request, service));
            AccountSeen { file_service, ..seen }
        });
        let seen: Vec<AccountSeen<'_>> = seen.collect();
        let taken =
            self.taken.iter().filter(|(_, at)| now <= **at + FACTS_LAST).map(|(name, _)| name.clone()).collect();
        match choose(&request, &seen, &taken, random_number(&plan.request)) {
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
        let is_young = |at: &Duration| now <= *at + FACTS_LAST;
        let file_service = known.and_then(|known| known.file_service).filter(|(at, _)| is_young(at));
        AccountSeen {
            account,
            file_service: file_service.map(|(_, service)| service),
            shares: known.and_then(|known| known.used(now)),
            holds_share: known.is_some_and(|known| known.holds(now, share)),
            is_refused: known.and_then(|known| known.full_at.as_ref()).is_some_and(is_young),
        }
    }

    /// The account of a claim is chosen. Its share counts from now on.
    fn take(&mut self, now: Duration, caller: Caller, id: &ArmId, plan: &SharePlan, actions: &mut Vec<Action<E>>) {
        let asked_at = self.callers.get(&caller).map_or(now, |ask| ask.at);
        let looked_at = self.known.get(id).and_then(|known| known.looked_at).max(self.listed_at);
        let is_known = looked_at.is_some_and(|looked| asked_at <= looked + LIST_LASTS);
        let account = self.accounts.iter().find(|account| account.id == *id).filter(|_| is_known).cloned();
        let Some(account) = account else {
            // A named account that no list was asked for.
            let look = |read| Action::Look(read, id.clone(), Duration::ZERO);
            return self.need(now, caller, What::Account(id.clone()), look, actions);
        };
        if account.provisioning_state == ProvisioningState::InProgress {
            let look = |read| Action::Look(read, id.clone(), LOOK_AGAIN);
            return self.need(now, caller, What::Account(id.clone()), look, actions);
        }
        let least = *share_size(account.sku.map_or(DEFAULT_SKU.billing(), StorageSku::billing)).start();
        let known = self.known(id);
        known.placed.retain(|_, (at, _)| now <= *at + FACTS_LAST);
        let share = plan.share.to_lowercase();
        if !known.shares.as_ref().is_some_and(|shares| shares.names.contains(&share)) {
            known.placed.insert(share, (now, u64::from(plan.size.max(least).get())));
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
        // Its creation ends with all of it, and tells.
        let creation = match &what {
            What::Finish(account) | What::Account(account) => Some(What::Creation(account.clone())),
            _ => None,
        };
        let is_it = |running: &What| *running == what || creation.as_ref() == Some(running);
        let running = self.running.iter().find(|(_, (running, _))| is_it(running)).map(|(id, _)| *id);
        let id = running.unwrap_or_else(|| self.ids.next_id());
        let most = if matches!(what, What::List | What::Account(_)) { MOST_LOOKS } else { MOST_REPEATS };
        if let Some(ask) = self.callers.get_mut(&caller) {
            let (last, count) = ask.waits.entry(what.clone()).or_insert((id, 1));
            if *last != id {
                (*last, *count) = (id, *count + 1);
            }
            if *count > most {
                return self.answer(caller, Err(Refused::Unsettled), actions);
            }
        }
        if running.is_none() {
            self.running.insert(id, (what, now));
            actions.push(action(id));
        }
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
