//! The step of the accounts of a cluster: in which of them blob disks are made ([`plan`]), and which one an address
//! names.
//!
//! ```text
//!   Requested ──▶ plan over what is known, for all that wait ──▶ Answer
//!                        │ what must be known or made first
//!                        ▼
//!                 List, ListBlobs, Make, Look ──▶ plan again
//! ```
//!
//! - All requests share what is read: one list of the accounts of the resource group, one list of the blobs of an
//!   account of the pool, one PUT of a new account. Disks that were given a place are counted from then on.
//! - A list of accounts that is older than [`LIST_LASTS`] answers no new request. A disk is given a place in the pool, and
//!   nothing of it is said to be begun, only by a list that was sent after the request came: another process may have led
//!   meanwhile, and have made an account with the disk in it. Requests that come within [`LIST_PACE`] share one.
//! - That there is no account of a name is said by a list that was sent then or less than [`NONE_LASTS`] before: what asks
//!   for a lost account asks again and again, and Azure takes few lists.
//! - The account of an address is looked for in the resource group of the cluster, then in the subscription.
//! - What is known may be old: an account that a call did not find is forgotten. Lists that still show it are not believed
//!   for a while, as those that lack one which a read has shown. What an account holds is listed anew for each request, by
//!   a list that all who wait share: the claim may come back to a process that did not lead meanwhile.
//! - A creation is waited for while a request needs it: what is not sent by then is not sent ([`Action::Leave`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_engine::{Awaited, Id, Ids, single::AzureFailure};
use lazuli_model::{
    ArmId, ProvisioningState, StorageAccount,
    fault::{Effect, Fault},
};

use super::disk::{Done, Ending, Wanted};
use crate::{
    accounts::{Blobs, Earlier, Evidence, NewAccount, Plan, Refusal, Request, Seen, earlier, plan},
    class::Place,
    life::{Failure, Why},
};

/// How old a list of accounts may be for a request that comes.
pub const LIST_LASTS: Duration = Duration::from_secs(60);
/// How long it is believed that there is no account of a name. No disk is made or taken for gone by it: an attach and an
/// expansion fail, and are tried again.
pub const NONE_LASTS: Duration = Duration::from_secs(10);
/// The shortest time between two lists of the same accounts (source: Azure's 100 lists of accounts in five minutes, which
/// file shares need too).
pub const LIST_PACE: Duration = Duration::from_secs(1);
/// How long a disk that was given a place counts without a list that shows it: longer than a creation takes.
pub const BLOBS_LAST: Duration = Duration::from_secs(10 * 60);
/// How long a name is known to belong to somebody else.
const TAKEN_LASTS: Duration = Duration::from_secs(10 * 60);
/// For so long a list may still show an account that a call did not find, and may lack one that a read has shown.
const LIST_LAGS: Duration = Duration::from_secs(60);
/// After so long an account that is being made is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How often a request waits for a list of accounts, or for another look at an account that is being made.
const MOST_LOOKS: u32 = 200;
/// How often a request waits for any other one thing. More would be a loop.
const MOST_REPEATS: u32 = 20;

fn requests_of(waiting: &[(Caller, Duration, Request)]) -> Vec<Request> {
    waiting.iter().map(|(_, _, request)| request.clone()).collect()
}

/// Names one caller.
pub type Caller = u64;

/// The cluster whose accounts they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// What names accounts apart from those of other clusters, as in [`Evidence::cluster`].
    pub name: String,
    /// Whether the cloud is Azure Stack Hub.
    pub is_stack_hub: bool,
}

/// Which accounts a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Those of the resource group of the cluster.
    Group,
    /// Those of its subscription.
    Subscription,
}

/// What a caller asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// An account for a disk.
    Place(Request),
    /// The account in which an earlier try of this request has begun the disk; none where nothing is begun.
    ///
    /// An account whose blobs this identity may not list has none: no try could make one there.
    Earlier(Request),
    /// The account of this name, where there is one.
    Account(String),
    /// All accounts of the subscription.
    All,
}

/// What happens to the accounts. `E` is Azure's error, as the call gave it.
#[derive(Debug, Clone)]
pub enum Event<E> {
    /// A caller asks.
    Asked(Caller, Asked),
    /// A caller has given up.
    Abandoned(Caller),
    /// A list of accounts.
    Listed(Id, Result<Vec<StorageAccount>, E>),
    /// The names of the blobs in the container of disks of an account; none where it has no such container.
    BlobsListed(Id, Result<Option<BTreeSet<String>>, E>),
    /// An account was to be made.
    Made(Id, Result<Made, E>),
    /// An account, as a read shows it.
    Looked(Id, Result<Box<StorageAccount>, E>),
    /// The work on a disk has ended.
    Ended {
        /// The account.
        account: ArmId,
        /// The name of the blob, where it is in the container of disks.
        blob: Option<String>,
        /// How.
        ending: Ending,
    },
    /// Nothing has happened.
    Woke,
}

/// What came of making an account.
#[derive(Debug, Clone)]
pub enum Made {
    /// It is there, and is new: nothing is in it.
    New(Box<StorageAccount>),
    /// It existed.
    Exists(Box<StorageAccount>),
    /// Somebody else has an account of the name.
    Taken,
}

/// What is to be done.
#[derive(Debug, Clone)]
pub enum Action<E> {
    /// List accounts, after this time.
    List(Id, Scope, Duration),
    /// List the blobs in the container of disks of an account.
    ListBlobs(Id, Box<StorageAccount>),
    /// Make an account, if there is none of its name.
    Make(Id, Box<NewAccount>),
    /// Read an account, after this time.
    Look(Id, ArmId, Duration),
    /// No request needs this creation any more: wait for it no longer. It has no event.
    Leave(Id),
    /// Tell a caller: the account, or all of them. None only where a caller asked for [`Asked::Earlier`].
    Answer(Caller, Result<Vec<StorageAccount>, Unplaced<E>>),
}

/// Why a request gets no account.
#[derive(Debug, Clone, PartialEq)]
pub enum Unplaced<E> {
    /// None can be used or made. Azure's answer, where one stands behind it.
    Refused(Refusal, Option<E>),
    /// There is no account of the name in the subscription.
    NoAccount(String),
    /// Azure does not say what must be known, or does not make the account: what was asked of it.
    Azure(What, E),
    /// What is read of the accounts changes with every look.
    Unsettled,
}

/// What was asked of Azure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A list of accounts.
    List(Scope),
    /// The blobs of the account of this name.
    Blobs(String),
    /// The creation of the account of this name.
    Creation(String),
    /// The account.
    Account(ArmId),
}

#[derive(Debug)]
struct Ask {
    asked: Asked,
    at: Duration,
    /// What it has waited for: the last request, and how many there were.
    waits: BTreeMap<What, (Id, u32)>,
}

/// A list of accounts, and when it was asked for.
#[derive(Debug, Default)]
struct List {
    at: Option<Duration>,
    accounts: Vec<StorageAccount>,
    /// When one was last asked for, whatever came of it.
    sent: Option<Duration>,
}

impl List {
    fn is_fresh_for(&self, asked_at: Duration) -> bool {
        self.at.is_some_and(|at| asked_at <= at + LIST_LASTS)
    }

    /// Whether what it lacks is not there for a request that came then.
    fn is_whole_for(&self, asked_at: Duration) -> bool {
        self.at.is_some_and(|at| asked_at <= at + NONE_LASTS)
    }

    fn named(&self, name: &str) -> Option<&StorageAccount> {
        self.accounts.iter().find(|account| account.name() == name)
    }

    fn put(&mut self, account: &StorageAccount) {
        match self.accounts.iter_mut().find(|other| other.id == account.id) {
            Some(other) => *other = account.clone(),
            None => self.accounts.push(account.clone()),
        }
    }
}

/// The facts of the accounts of a cluster.
#[derive(Debug)]
pub struct State<E> {
    cluster: Cluster,
    callers: BTreeMap<Caller, Ask>,
    group: List,
    subscription: List,
    /// The blobs of accounts, by the names of the accounts, and when they were asked for.
    blobs: BTreeMap<String, (Duration, BTreeSet<String>)>,
    /// The disks that were given an account and that no list has shown yet: the account, and since when.
    placed: BTreeMap<String, (String, Duration)>,
    /// The accounts whose blobs this identity may not list, and since when that is known.
    closed: BTreeMap<String, Duration>,
    /// The creations that are under way.
    making: BTreeMap<String, NewAccount>,
    /// The names that belong to somebody else, and since when that is known.
    taken: BTreeMap<String, Duration>,
    /// The accounts that were not found, and when.
    gone: BTreeMap<ArmId, Duration>,
    /// The accounts of the resource group as a read or their creation has shown them, and when.
    shown: BTreeMap<ArmId, (StorageAccount, Duration)>,
    running: BTreeMap<Id, (What, Duration)>,
    /// What has failed since the last decision. Its callers are told, and what comes later asks again.
    failed: BTreeMap<What, E>,
    ids: Ids,
}

impl<E: AzureFailure> State<E> {
    /// Nothing is known.
    pub fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            callers: BTreeMap::new(),
            group: List::default(),
            subscription: List::default(),
            blobs: BTreeMap::new(),
            placed: BTreeMap::new(),
            closed: BTreeMap::new(),
            making: BTreeMap::new(),
            taken: BTreeMap::new(),
            gone: BTreeMap::new(),
            shown: BTreeMap::new(),
            running: BTreeMap::new(),
            failed: BTreeMap::new(),
            ids: Ids::default(),
        }
    }

    /// Folds an event into the facts, and decides.
    pub fn step(&mut self, now: Duration, event: Event<E>) -> Vec<Action<E>> {
        self.fold(now, event);
        let mut actions = Vec::new();
        self.find(now, &mut actions);
        self.find_earlier(now, &mut actions);
        self.place(now, &mut actions);
        // Whoever waited for a creation that has failed is told. Who comes later looks first: another may have made it.
        if self.failed.keys().any(|what| matches!(what, What::Creation(_))) {
            self.group.at = None;
        }
        self.failed.clear();
        self.leave(&mut actions);
        actions
    }

    fn fold(&mut self, now: Duration, event: Event<E>) {
        match event {
            Event::Asked(caller, asked) => {
                self.callers.insert(caller, Ask { asked, at: now, waits: BTreeMap::new() });
            }
            Event::Abandoned(caller) => {
                if let Some(Ask { asked: Asked::Place(request), .. }) = self.callers.remove(&caller) {
                    self.unplace(&request.blob);
                }
            }
            Event::Listed(id, listed) => {
                if let Some((What::List(scope), at)) = self.ended(now, id, listed.as_ref().err())
                    && let Ok(mut accounts) = listed
                {
                    self.gone.retain(|_, gone_at| at <= *gone_at + LIST_LAGS);
                    self.shown.retain(|_, (_, shown_at)| at <= *shown_at + LIST_LAGS);
                    accounts.retain(|account| !self.gone.contains_key(&account.id));
                    let lacks = |shown: &&StorageAccount| accounts.iter().all(|listed| listed.id != shown.id);
                    let late: Vec<StorageAccount> =
                        self.shown.values().map(|(account, _)| account).filter(lacks).cloned().collect();
                    accounts.extend(late);
                    let list = self.list(scope);
                    (list.at, list.accounts) = (Some(at), accounts);
                }
            }
            Event::BlobsListed(id, listed) => {
                if let Some((What::Blobs(account), at)) = self.ended(now, id, listed.as_ref().err())
                    && let Ok(listed) = listed
                {
                    self.closed.remove(&account);
                    let names = listed.unwrap_or_default();
                    self.placed.retain(|blob, (of, placed_at)| {
                        *of != account || !names.contains(blob) && at <= *placed_at + BLOBS_LAST
                    });
                    self.blobs.insert(account, (at, names));
                }
            }
            Event::Made(id, made) => {
                if let Some((What::Creation(name), at)) = self.ended(now, id, made.as_ref().err()) {
                    self.making.remove(&name);
                    match made {
                        Ok(Made::New(account)) => {
                            // It was empty when it was asked for. Another process may have found it since.
                            self.blobs.insert(name, (at, BTreeSet::new()));
                            self.there(now, &account);
                        }
                        Ok(Made::Exists(account)) => self.there(now, &account),
                        Ok(Made::Taken) => drop(self.taken.insert(name, now)),
                        Err(_) => {}
                    }
                }
            }
            Event::Looked(id, looked) => {
                if self.ended(now, id, looked.as_ref().err()).is_some()
                    && let Ok(account) = looked
                {
                    self.there(now, &account);
                }
            }
            Event::Ended { account, blob, ending } => self.is_ended(now, &account, blob, ending),
            Event::Woke => {}
        }
    }

    fn list(&mut self, scope: Scope) -> &mut List {
        match scope {
            Scope::Group => &mut self.group,
            Scope::Subscription => &mut self.subscription,
        }
    }

    /// Nobody waits for the place of a disk that was not told its place.
    fn unplace(&mut self, blob: &str) {
        let waits = |ask: &Ask| matches!(&ask.asked, Asked::Place(request) if request.blob == blob);
        let is_in_the_making = self.placed.get(blob).is_some_and(|(account, _)| self.making.contains_key(account));
        if is_in_the_making && !self.callers.values().any(waits) {
            self.placed.remove(blob);
        }
    }

    fn is_ended(&mut self, now: Duration, account: &ArmId, blob: Option<String>, ending: Ending) {
        let name = account.name().to_lowercase();
        match (ending, blob) {
            (Ending::NoAccount, _) => self.gone(now, account),
            (Ending::There, Some(blob)) => {
                self.placed.remove(&blob);
                // Where nothing is known of the account, a list says it.
                if let Some((_, blobs)) = self.blobs.get_mut(&name) {
                    blobs.insert(blob);
                }
            }
            (Ending::NotThere, Some(blob)) => {
                self.placed.remove(&blob);
                if let Some((_, blobs)) = self.blobs.get_mut(&name) {
                    blobs.remove(&blob);
                }
            }
            (Ending::There | Ending::NotThere, None) | (Ending::Unknown, _) => {}
        }
    }

    fn gone(&mut self, now: Duration, account: &ArmId) {
        let name = account.name().to_lowercase();
        for list in [&mut self.group, &mut self.subscription] {
            list.accounts.retain(|other| other.id != *account);
        }
        self.blobs.remove(&name);
        self.placed.retain(|_, (of, _)| *of != name);
        self.shown.remove(account);
        self.gone.insert(account.clone(), now);
    }

    /// An account of the resource group is as this shows it.
    fn there(&mut self, now: Duration, account: &StorageAccount) {
        self.gone.remove(&account.id);
        self.shown.insert(account.id.clone(), (account.clone(), now));
        self.group.put(account);
        self.subscription.put(account);
    }

    /// What has ended, and when it was asked for.
    fn ended(&mut self, now: Duration, id: Id, error: Option<&E>) -> Option<(What, Duration)> {
        let (what, at) = self.running.remove(&id)?;
        if let What::List(scope) = what {
            self.list(scope).sent = Some(at);
        }
        if let Some(error) = error {
            let account = match &what {
                What::Account(account) => Some(account.clone()),
                What::Blobs(name) => self.group.named(name).map(|account| account.id.clone()),
                What::List(_) | What::Creation(_) => None,
            };
            if let (What::Blobs(name), true) = (&what, error.fault().is_refusal()) {
                self.closed.insert(name.clone(), now);
            }
            // That something around it is missing says nothing of the account, which may hold a disk.
            match account.filter(|_| *error.fault() == Fault::NotFound) {
                // It is planned again without the account.
                Some(account) => self.gone(now, &account),
                None => drop(self.failed.insert(what.clone(), error.clone())),
            }
        }
        Some((what, at))
    }

    /// Whether Azure has refused the list of the subscription to a caller, which is shown that of the resource group then.
    fn is_group_alone(&self, caller: Caller) -> bool {
        let refused = self.failed.get(&What::List(Scope::Subscription));
        let waits_for_group = |ask: &Ask| ask.asked == Asked::All && ask.waits.contains_key(&What::List(Scope::Group));
        refused.is_some_and(|error| error.fault().is_refusal())
            || self.callers.get(&caller).is_some_and(waits_for_group)
    }

    /// Answers those who ask for accounts that exist.
    fn find(&mut self, now: Duration, actions: &mut Vec<Action<E>>) {
        let of = |(caller, ask): (&Caller, &Ask)| match &ask.asked {
            Asked::Place(_) | Asked::Earlier(_) => None,
            Asked::Account(name) => Some((*caller, ask.at, Some(name.clone()))),
            Asked::All => Some((*caller, ask.at, None)),
        };
        let callers: Vec<(Caller, Duration, Option<String>)> = self.callers.iter().filter_map(of).collect();
        for (caller, at, name) in callers {
            let answer = match name {
                None if self.subscription.is_fresh_for(at) => Ok(self.subscription.accounts.clone()),
                // Who has rights on the resource group alone has those accounts, which are all that disks are made in.
                None if self.is_group_alone(caller) && self.group.is_fresh_for(at) => Ok(self.group.accounts.clone()),
                None => {
                    let scope = if self.is_group_alone(caller) { Scope::Group } else { Scope::Subscription };
                    self.need_list(now, caller, scope, actions);
                    continue;
                }
                Some(name) => {
                    let lists = [&self.group, &self.subscription];
                    let found = lists.iter().find_map(|list| list.named(&name).filter(|_| list.is_fresh_for(at)));
                    match found {
                        Some(account) => Ok(vec![account.clone()]),
                        None if self.subscription.is_whole_for(at) => Err(Unplaced::NoAccount(name)),
                        None => {
                            let is_asked = self.group.is_fresh_for(at);
                            let scope = if is_asked { Scope::Subscription } else { Scope::Group };
                            self.need_list(now, caller, scope, actions);
                            continue;
                        }
                    }
                }
            };
            self.answer(caller, answer, actions);
        }
    }

    /// Answers those who ask for what an earlier try has begun.
    fn find_earlier(&mut self, now: Duration, actions: &mut Vec<Action<E>>) {
        let of = |(caller, ask): (&Caller, &Ask)| match &ask.asked {
            Asked::Earlier(request) => Some((*caller, ask.at, request.clone())),
            Asked::Place(_) | Asked::Account(_) | Asked::All => None,
        };
        let callers: Vec<(Caller, Duration, Request)> = self.callers.iter().filter_map(of).collect();
        let list = What::List(Scope::Group);
        for (caller, at, request) in callers {
            if self.group.at < Some(at) {
                match self.failed.get(&list).filter(|error| error.fault().is_refusal()) {
                    Some(_) => self.answer(caller, Ok(Vec::new()), actions),
                    None => self.need_list(now, caller, Scope::Group, actions),
                }
                continue;
            }
            let mut evidence = self.evidence(now, at);
            evidence
                .accounts
                .retain(|seen| self.closed.get(seen.account.name()).is_none_or(|at| now > *at + BLOBS_LAST));
            match earlier(&evidence, &request) {
                Earlier::In(name) => match (self.group.named(&name).cloned(), self.making.get(&name).cloned()) {
                    (Some(account), _) => self.answer(caller, Ok(vec![account]), actions),
                    (None, Some(new)) => {
                        let what = What::Creation(name);
                        self.need(now, caller, what, |id| Action::Make(id, Box::new(new)), actions);
                    }
                    (None, None) => self.answer(caller, Ok(Vec::new()), actions),
                },
                Earlier::Nothing => self.answer(caller, Ok(Vec::new()), actions),
                Earlier::Unread(names) => names.iter().for_each(|name| self.read(now, caller, name, actions)),
                Earlier::Unreadable(name) => {
                    let refusal = Refusal::Unreadable(name);
                    self.answer(caller, Err(self.refused(&refusal)), actions);
                }
            }
        }
    }

    /// Gives a place to those who ask for one.
    fn place(&mut self, now: Duration, actions: &mut Vec<Action<E>>) {
        let of = |(caller, ask): (&Caller, &Ask)| match &ask.asked {
            Asked::Place(request) => Some((*caller, ask.at, request.clone())),
            Asked::Earlier(_) | Asked::Account(_) | Asked::All => None,
        };
        let mut waiting: Vec<(Caller, Duration, Request)> = self.callers.iter().filter_map(of).collect();
        waiting.retain(|(caller, at, request)| {
            let is_known = match request.place {
                // Another process may have made one meanwhile, with the disk in it.
                Place::Shared => self.group.at >= Some(*at),
                // Its account is read by its name before it is made, or is never made.
                Place::Dedicated | Place::Account(_) => self.group.is_fresh_for(*at),
            };
            if !is_known {
                self.need_list(now, *caller, Scope::Group, actions);
            }
            is_known
        });
        if waiting.is_empty() {
            return;
        }
        // The newest of them needs the newest lists. Who came before may have what it needs.
        let newest = waiting.iter().map(|(_, at, _)| *at).max().unwrap_or_default();
        let needed = plan(&self.evidence(now, newest), &requests_of(&waiting));
        let listed: Option<Vec<Duration>> =
            needed.reads.iter().map(|name| self.blobs.get(name).map(|(at, _)| *at)).collect();
        let listed = listed.and_then(|listed| listed.into_iter().min());
        let (early, late): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(_, at, _)| !needed.reads.is_empty() && Some(*at) <= listed);
        let is_for_all = early.is_empty();
        if !is_for_all {
            let newest = early.iter().map(|(_, at, _)| *at).max().unwrap_or_default();
            let planned = plan(&self.evidence(now, newest), &requests_of(&early));
            self.serve(now, early, planned, actions);
        }
        if !late.is_empty() {
            let planned = if is_for_all { needed } else { plan(&self.evidence(now, newest), &requests_of(&late)) };
            self.serve(now, late, planned, actions);
        }
    }

    /// Does for each request what the plan for all of them says.
    fn serve(
        &mut self,
        now: Duration,
        waiting: Vec<(Caller, Duration, Request)>,
        planned: Plan,
        actions: &mut Vec<Action<E>>,
    ) {
        let Plan { joins, makes, reads, refused } = planned;
        let group_at = self.group.at;
        let mut new: BTreeMap<String, NewAccount> = makes.into_iter().map(|new| (new.name.clone(), new)).collect();
        for (caller, at, request) in waiting {
            match (joins.get(&request.blob), refused.get(&request.blob)) {
                (Some(account), _) => self.join(now, caller, &request, account, &mut new, actions),
                (None, Some(refusal)) => {
                    if group_at < Some(at) {
                        self.need_list(now, caller, Scope::Group, actions);
                    } else {
                        self.answer(caller, Err(self.refused(refusal)), actions);
                    }
                }
                (None, None) => {
                    for name in &reads {
                        self.read(now, caller, name, actions);
                    }
                }
            }
        }
    }

    /// A refusal, with what Azure said.
    fn refused(&self, refusal: &Refusal) -> Unplaced<E> {
        let error = match refusal {
            Refusal::Unreadable(name) => self.failed.get(&What::Blobs(name.clone())).cloned(),
            _ => None,
        };
        Unplaced::Refused(refusal.clone(), error)
    }

    /// A caller waits for the blobs of an account. One that is being made has no keys yet.
    fn read(&mut self, now: Duration, caller: Caller, name: &str, actions: &mut Vec<Action<E>>) {
        match self.group.named(name).cloned() {
            Some(account) if account.provisioning_state == ProvisioningState::InProgress => {
                self.look(now, caller, account.id, actions);
            }
            Some(account) => {
                let what = What::Blobs(name.to_owned());
                self.need(now, caller, what, |id| Action::ListBlobs(id, Box::new(account)), actions);
            }
            None => {}
        }
    }

    /// A caller waits for an account that is being made.
    fn look(&mut self, now: Duration, caller: Caller, account: ArmId, actions: &mut Vec<Action<E>>) {
        let what = What::Account(account.clone());
        self.need(now, caller, what, |read| Action::Look(read, account, LOOK_AGAIN), actions);
    }

    fn join(
        &mut self,
        now: Duration,
        caller: Caller,
        request: &Request,
        name: &str,
        new: &mut BTreeMap<String, NewAccount>,
        actions: &mut Vec<Action<E>>,
    ) {
        let is_listed = self.blobs.get(name).is_some_and(|(_, blobs)| blobs.contains(&request.blob));
        if !is_listed {
            self.placed.entry(request.blob.clone()).or_insert_with(|| (name.to_owned(), now)).0 = name.to_owned();
        }
        match self.group.named(name) {
            Some(account) if account.provisioning_state == ProvisioningState::InProgress => {
                let id = account.id.clone();
                self.look(now, caller, id, actions);
            }
            Some(account) => {
                let account = account.clone();
                self.answer(caller, Ok(vec![account]), actions);
            }
            None => {
                let what = What::Creation(name.to_owned());
                let making = new.remove(name).or_else(|| self.making.get(name).cloned());
                // Of all accounts a plan joins only those of the list, and those that are made.
                let Some(making) = making else { return self.answer(caller, Err(Unplaced::Unsettled), actions) };
                if !self.failed.contains_key(&what) {
                    self.making.insert(name.to_owned(), making.clone());
                }
                new.insert(name.to_owned(), making.clone());
                self.need(now, caller, what, |id| Action::Make(id, Box::new(making)), actions);
            }
        }
    }

    /// What is known for a request that came then. What an account holds counts only by a list that was sent after that: the
    /// claim may come back to this process after another one has led and has made the disk.
    fn evidence(&self, now: Duration, asked_at: Duration) -> Evidence {
        let blobs = |account: &StorageAccount| {
            let name = account.name();
            // After so long a disk that was given a place is there, or is not: a list says which.
            let is_old = |at: Duration| now > at + BLOBS_LAST;
            let doubtful = self.placed.values().any(|(of, at)| of == name && is_old(*at));
            match self.blobs.get(name) {
                Some((at, blobs)) if *at >= asked_at && !doubtful => Blobs::Known(blobs.clone()),
                _ if self.failed.contains_key(&What::Blobs(name.to_owned())) => Blobs::Unreadable,
                Some(_) | None => Blobs::Unread,
            }
        };
        Evidence {
            cluster: self.cluster.name.clone(),
            is_stack_hub: self.cluster.is_stack_hub,
            accounts: self
                .group
                .accounts
                .iter()
                .map(|account| Seen { account: account.clone(), blobs: blobs(account) })
                .collect(),
            placed: self.placed.iter().map(|(blob, (account, _))| (blob.clone(), account.clone())).collect(),
            making: self.making.values().cloned().collect(),
            taken: self
                .taken
                .iter()
                .filter(|(_, at)| now <= **at + TAKEN_LASTS)
                .map(|(name, _)| name.clone())
                .collect(),
        }
    }

    /// A caller waits for a list of accounts, as do all who come before it is sent.
    fn need_list(&mut self, now: Duration, caller: Caller, scope: Scope, actions: &mut Vec<Action<E>>) {
        let sent = self.list(scope).sent.map_or(now, |sent| now.max(sent + LIST_PACE));
        let action = |id| Action::List(id, scope, sent - now);
        self.need(sent, caller, What::List(scope), action, actions);
    }

    /// A caller waits for something to be known or made, which is asked for then. What has just failed is its answer.
    fn need(
        &mut self,
        at: Duration,
        caller: Caller,
        what: What,
        action: impl FnOnce(Id) -> Action<E>,
        actions: &mut Vec<Action<E>>,
    ) {
        if let Some(error) = self.failed.get(&what).cloned() {
            return self.answer(caller, Err(Unplaced::Azure(what, error)), actions);
        }
        let running = self.running.iter().find(|(_, (running, _))| *running == what).map(|(id, _)| *id);
        let id = running.unwrap_or_else(|| self.ids.next_id());
        let most = if matches!(what, What::List(_) | What::Account(_)) { MOST_LOOKS } else { MOST_REPEATS };
        if let Some(ask) = self.callers.get_mut(&caller) {
            let (last, count) = ask.waits.entry(what.clone()).or_insert((id, 1));
            if *last != id {
                (*last, *count) = (id, *count + 1);
            }
            if *count > most {
                return self.answer(caller, Err(Unplaced::Unsettled), actions);
            }
        }
        if running.is_none() {
            self.running.insert(id, (what, at));
            actions.push(action(id));
        }
    }

    fn answer(
        &mut self,
        caller: Caller,
        answer: Result<Vec<StorageAccount>, Unplaced<E>>,
        actions: &mut Vec<Action<E>>,
    ) {
        if self.callers.remove(&caller).is_some() {
            actions.push(Action::Answer(caller, answer));
        }
    }

    /// A creation that no caller waits for is left.
    fn leave(&mut self, actions: &mut Vec<Action<E>>) {
        let callers = &self.callers;
        let is_needed = |id: &Id| callers.values().any(|ask| ask.waits.values().any(|(waits_for, _)| waits_for == id));
        let left: Vec<(Id, String)> = self
            .running
            .iter()
            .filter_map(|(id, (what, _))| match what {
                What::Creation(name) if !is_needed(id) => Some((*id, name.clone())),
                _ => None,
            })
            .collect();
        for (id, name) in left {
            self.running.remove(&id);
            self.making.remove(&name);
            actions.push(Action::Leave(id));
        }
    }

    /// Whether nobody waits and nothing is in flight. What is known is kept all the same.
    pub fn is_idle(&self) -> bool {
        self.callers.is_empty() && self.running.is_empty()
    }

    /// What it waits for.
    pub fn awaited(&self) -> Awaited {
        match self.running.values().next() {
            None => Awaited::Nothing,
            Some((What::Creation(_), _)) => Awaited::Operation,
            Some(_) => Awaited::Read,
        }
    }
}

impl<E: AzureFailure> Unplaced<E> {
    /// That there is no account, as the failure of a read of a disk.
    ///
    /// # Errors
    /// Anything else: it says nothing of the disk.
    pub fn failure(self) -> Result<Failure<E>, Self> {
        match self {
            Self::NoAccount(_) => Ok(Failure { why: Why::NoAccount, effect: Effect::None, azure: None }),
            other => Err(other),
        }
    }

    /// How a request for a disk ends whose account no list shows. `is_gone`: as of [`Wanted::without_account`].
    ///
    /// # Errors
    /// Anything else: it says nothing of the disk.
    pub fn serve(self, wanted: &Wanted, is_gone: bool) -> Result<Result<Done, Failure<E>>, Self> {
        self.failure().map(|_| wanted.without_account(is_gone))
    }

    /// Whether no list shows an account of the name.
    pub fn is_unlisted(&self) -> bool {
        matches!(self, Self::NoAccount(_))
    }

    /// What a caller may do about it.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Refused(refusal, _) => refusal.fault(),
            Self::NoAccount(_) => Fault::ScopeNotFound,
            Self::Azure(_, error) => error.fault().clone(),
            Self::Unsettled => Fault::Conflict,
        }
    }
}

#[cfg(test)]
mod tests;
