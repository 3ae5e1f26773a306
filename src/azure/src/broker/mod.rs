//! The read broker: every read of a resource and every look at an operation goes through it, so that many share one
//! request.
//!
//! [`lazuli_quota::read::Group`] decides what to send; there is one for each list of Azure: the resources of one type in one
//! resource group, or the children of one resource, such as the instances of a scale set. The broker sends it, one task a
//! request, and hands the answer to all callers that wait for it. Each group has a task of its own, which steps it when
//! something has changed or when time has passed. That task ends when no read is asked and no operation is watched.
//!
//! A list that is not there, as that of a scale set that was deleted, says nothing of its resources: each is then read
//! alone, and Azure's answer to that read is what its callers get.
//!
//! A caller that drops its future leaves the group. A single read without callers leaves the queue for a permit; one that
//! was sent runs to its end. When a read fails, or its task panics, all callers that wait for it get the failure.

mod fields;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lazuli_model::{
    ArmId, AzureTime,
    fault::{Effect, Fault},
};
use lazuli_quota::{
    poll::Expectation,
    read::{Action, Ask, By, Group, Listed, News, Operation, Seen, Supply, Target},
};
use serde_json::Value;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub(crate) use fields::Fields;

use crate::{
    arm::Arm,
    compute::Freshness,
    error::{ArmError, Failure, Verb},
    metrics,
    permits::Rank,
    until::Until,
};

/// How long a shared read may take, with its repetitions and without its waits for permits.
const READ: Duration = Duration::from_secs(90);
/// The number of groups below which none is dropped. There is one for each list of Azure; a cluster has a handful, and
/// others come from ids in volumes and Services.
const KEPT_GROUPS: usize = 64;
/// The pause between the polls of an operation that no group watches any more.
const UNWATCHED: Duration = Duration::from_secs(5);
/// A list that has this many times the pages that it is worth is given up.
const GIVE_UP: usize = 2;

/// A type of resource whose reads are shared.
#[derive(Debug)]
pub(crate) struct ResourceType {
    /// With its provider, such as `Microsoft.Compute/disks`; of a child with the types of its parents.
    pub(crate) name: &'static str,
    /// As what its reads are counted.
    pub(crate) counted_as: metrics::ResourceType,
    /// What a list is read for.
    pub(crate) fields: Fields,
    /// Whether an item of a list says all that its readers need.
    pub(crate) is_complete: fn(&Value) -> bool,
    /// What an item of a list shows of the resource's state.
    pub(crate) shown: fn(&Value) -> Option<Listed>,
}

/// A resource as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    /// All that Azure said of it; of a list, the members in use.
    pub(crate) value: Arc<Value>,
    /// Its version.
    pub(crate) etag: Option<String>,
    /// By which read, and when.
    pub(crate) seen: Seen<Instant>,
    /// The `Date` of the answer; of a list, its first page's.
    pub(crate) answered: Option<AzureTime>,
}

/// What a look at an operation shows.
#[derive(Debug)]
pub(crate) enum Look {
    /// Poll it.
    Poll,
    /// It has ended, and this is the resource, by a list that was sent then.
    Ended(Arc<Value>, Instant),
}

type Answer = Result<Observation, ArmError>;

/// The broker; clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct Broker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    arm: Arm,
    /// The start of the monotonic clock.
    epoch: Instant,
    groups: Mutex<BTreeMap<Key, Entry>>,
    /// The last number of a caller or a watch. A number never comes again, also after its group was dropped.
    numbers: AtomicU64,
}

/// Which group: the resources of one list, by one API version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// The path of the list. Names are in lower case and types are spelled as in [`ResourceType::name`], so that all
    /// spellings of the resources' ids give one path.
    list_path: String,
    api_version: &'static str,
}

#[derive(Debug)]
struct Entry {
    resource_type: &'static ResourceType,
    group: Group,
    callers: BTreeMap<u64, oneshot::Sender<Answer>>,
    watches: BTreeMap<u64, mpsc::UnboundedSender<Look>>,
    singles: BTreeMap<ArmId, (Rank, CancellationToken)>,
    /// The rank of the list under way.
    list: Option<Rank>,
    wake: Arc<Notify>,
    /// A task waits for its time.
    driven: bool,
}

impl Broker {
    pub(crate) fn new(arm: Arm) -> Self {
        Self(Arc::new(Shared { arm, epoch: Instant::now(), groups: Mutex::default(), numbers: AtomicU64::default() }))
    }

    /// Reads a resource, together with all callers that ask for it.
    ///
    /// # Errors
    /// Any [`Fault`] of the shared read.
    pub(crate) async fn read(
        &self,
        resource_type: &'static ResourceType,
        api_version: &'static str,
        resource: &ArmId,
        Freshness { accept, not_before, priority, patience }: Freshness,
    ) -> Answer {
        let key = Key::of(resource_type, api_version, resource);
        let asked_at = self.0.now();
        let not_before = not_before.saturating_duration_since(self.0.epoch).min(asked_at);
        let id = self.0.number();
        let answer = self.0.with(&key, resource_type, |entry| {
            let (caller, answer) = oneshot::channel();
            entry.callers.insert(id, caller);
            entry.group.ask(resource, Ask { id, not_before, asked_at, accept, priority, patience });
            answer
        });
        let _caller = Caller { shared: self.0.clone(), key: key.clone(), resource: resource.clone(), id };
        self.0.act(&key);
        answer.await.unwrap_or_else(|_| Err(broken_off(resource)))
    }

    /// Watches an operation on a resource until the watch is dropped.
    pub(crate) fn watch(
        &self,
        resource_type: &'static ResourceType,
        api_version: &'static str,
        resource: &ArmId,
        target: Target,
        begun: Begun,
    ) -> Watch {
        let key = Key::of(resource_type, api_version, resource);
        let (send, looks) = mpsc::unbounded_channel();
        let accepted_at = begun.accepted_at.saturating_duration_since(self.0.epoch);
        let Begun { expectation, sample, last, .. } = begun;
        let operation = Operation { resource: resource.clone(), accepted_at, expectation, target, sample, last };
        let number = self.0.number();
        self.0.with(&key, resource_type, |entry| {
            entry.watches.insert(number, send);
            entry.group.begin(number, operation);
        });
        self.0.act(&key);
        Watch { shared: self.0.clone(), key, number, looks }
    }
}

/// An operation that Azure has accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) accepted_at: Instant,
    pub(crate) expectation: Expectation,
    /// Whether its end must be polled.
    pub(crate) sample: bool,
    /// When it was looked at last, since it was accepted.
    pub(crate) last: Option<Duration>,
}

/// The looks at one operation.
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
    key: Key,
    number: u64,
    looks: mpsc::UnboundedReceiver<Look>,
}

impl Watch {
    /// Waits for the next look. After [`Look::Poll`] the caller polls and says [`Watch::polled`].
    pub(crate) async fn next(&mut self) -> Look {
        match self.looks.recv().await {
            Some(look) => look,
            // The group was broken off, and nothing else says when to look.
            None => {
                tokio::time::sleep(UNWATCHED).await;
                Look::Poll
            }
        }
    }

    /// The poll showed no end, or was not answered and is to pause until `not_before`.
    pub(crate) fn polled(&self, not_before: Option<Instant>) {
        let at = self.shared.now();
        let not_before = not_before.map(|at| at.saturating_duration_since(self.shared.epoch));
        if let Some(entry) = self.shared.groups().get_mut(&self.key) {
            entry.group.polled(self.number, at, not_before);
        }
        self.shared.act(&self.key);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(entry) = self.shared.groups().get_mut(&self.key) {
            entry.watches.remove(&self.number);
            entry.group.end(self.number);
            entry.wake.notify_one();
        }
    }
}

/// One caller's wait.
struct Caller {
    shared: Arc<Shared>,
    key: Key,
    resource: ArmId,
    id: u64,
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut groups = self.shared.groups();
        let Some(entry) = groups.get_mut(&self.key) else { return };
        // An answered caller is not known any more.
        if entry.callers.remove(&self.id).is_some()
            && entry.group.leave(&self.resource, self.id)
            && let Some((_, wanted)) = entry.singles.get(&self.resource)
        {
            wanted.cancel();
        }
    }
}

impl Key {
    fn of(resource_type: &'static ResourceType, api_version: &'static str, resource: &ArmId) -> Self {
        let (subscription, resource_group) = (resource.subscription(), resource.resource_group());
        let (subscription, resource_group) = (subscription.to_ascii_lowercase(), resource_group.to_ascii_lowercase());
        let mut types = resource_type.name.split('/');
        let (namespace, outermost) = (types.next().unwrap_or_default(), types.next().unwrap_or_default());
        let mut list_path =
            format!("/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/{namespace}/{outermost}");
        // After the namespace, types and names alternate.
        for (parent, child) in resource.folded().split('/').skip(8).step_by(2).zip(types) {
            list_path.extend(["/", parent, "/", child]);
        }
        Self { list_path, api_version }
    }
}

impl Entry {
    /// Whether no task works on it, and no caller waits.
    fn is_idle(&self) -> bool {
        !self.driven && self.group.is_idle() && self.callers.is_empty() && self.watches.is_empty()
    }

    fn answer(&mut self, ids: Vec<u64>, answer: &Answer) {
        for id in ids {
            if let Some(caller) = self.callers.remove(&id) {
                // The caller may have left since.
                let _ = caller.send(answer.clone());
            }
        }
    }
}

impl Shared {
    fn groups(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        // Every change under this lock is whole; a panic elsewhere does not spoil it.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// A number that no caller and no watch has had.
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn with<R>(&self, key: &Key, resource_type: &'static ResourceType, change: impl FnOnce(&mut Entry) -> R) -> R {
        let mut groups = self.groups();
        if groups.len() >= KEPT_GROUPS && !groups.contains_key(key) {
            // What an idle one knows, such as how many pages its list has, is learned again when it is needed.
            groups.retain(|_, entry| !entry.is_idle());
        }
        let entry = groups.entry(key.clone()).or_insert_with(|| Entry {
            resource_type,
            group: Group::default(),
            callers: BTreeMap::new(),
            watches: BTreeMap::new(),
            singles: BTreeMap::new(),
            list: None,
            wake: Arc::default(),
            driven: false,
        });
        change(entry)
    }

    /// Something has changed: the group's task decides and sends.
    fn act(self: &Arc<Self>, key: &Key) {
        let mut groups = self.groups();
        let Some(entry) = groups.get_mut(key) else { return };
        if !entry.driven && !entry.group.is_idle() {
            entry.driven = true;
            let driver = Driver { shared: self.clone(), key: key.clone(), ended: false };
            tokio::spawn(driver.run());
        }
        entry.wake.notify_one();
    }

    fn shared_reads(&self, resource_type: &ResourceType, by: By, reads: usize) {
        if reads > 0 {
            self.arm.metrics().shared_reads(resource_type.counted_as, by, reads);
        }
    }

    fn supply(&self, key: &Key) -> Supply {
        let level = self.arm.permit_level(Verb::Get, &key.list_path);
        if level > 0.5 { Supply::Plentiful } else { Supply::Short }
    }

    fn step(self: &Arc<Self>, key: &Key, entry: &mut Entry, supply: Supply) {
        for action in entry.group.step(self.now(), supply) {
            match action {
                Action::Read(resource, priority) => {
                    let (rank, wanted) = (Rank::new(priority), CancellationToken::new());
                    entry.singles.insert(resource.clone(), (rank.clone(), wanted.clone()));
                    let read = Single { shared: self.clone(), key: key.clone(), resource, ended: false };
                    tokio::spawn(read.run(rank, wanted).in_current_span());
                }
                Action::Raise(resource, priority) => {
                    if let Some((rank, _)) = entry.singles.get(&resource) {
                        rank.raise(priority);
                    }
                }
                Action::List(priority) => {
                    let rank = Rank::new(priority);
                    entry.list = Some(rank.clone());
                    let list = List {
                        shared: self.clone(),
                        key: key.clone(),
                        fields: entry.resource_type.fields,
                        ended: false,
                    };
                    tokio::spawn(list.run(rank).in_current_span());
                }
                Action::RaiseList(priority) => {
                    if let Some(rank) = &entry.list {
                        rank.raise(priority);
                    }
                }
                Action::Poll(number) => {
                    if let Some(watch) = entry.watches.get(&number) {
                        // The receiver lives as long as the entry.
                        let _ = watch.send(Look::Poll);
                    }
                }
            }
        }
    }

    /// Decides, sends, and waits for time or change, while anything is asked of a group.
    async fn drive(self: &Arc<Self>, key: &Key) {
        loop {
            let (wake_at, wake) = {
                let mut groups = self.groups();
                let Some(entry) = groups.get_mut(key) else { return };
                let supply = self.supply(key);
                let limited = self.arm.list_limited_for(&key.list_path, entry.group.pages());
                entry.group.limit_lists(self.now().saturating_add(limited));
                self.step(key, entry, supply);
                if entry.group.is_idle() {
                    entry.driven = false;
                    return;
                }
                let wake_at = entry.group.wake_at(self.now(), supply);
                (wake_at.map(|at| self.epoch + at), entry.wake.clone())
            };
            let time = async {
                match wake_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = wake.notified() => {}
                () = time => {}
            }
        }
    }
}

/// The task of a group.
struct Driver {
    shared: Arc<Shared>,
    key: Key,
    ended: bool,
}

impl Driver {
    async fn run(mut self) {
        self.shared.drive(&self.key).await;
        self.ended = true;
    }
}

impl Drop for Driver {
    /// After a panic the group begins anew: its callers get a failure, and its operations are polled ([`Watch::next`]).
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut groups = self.shared.groups();
        let Some(entry) = groups.get_mut(&self.key) else { return };
        tracing::error!(
            list = self.key.list_path,
            "the task that shares reads was broken off; its callers get a failure"
        );
        entry.group = Group::default();
        entry.callers.clear();
        entry.watches.clear();
        entry.singles.clear();
        entry.list = None;
        entry.driven = false;
    }
}

/// The task of one single read.
struct Single {
    shared: Arc<Shared>,
    key: Key,
    resource: ArmId,
    ended: bool,
}

impl Single {
    async fn run(mut self, rank: Rank, wanted: CancellationToken) {
        let began = self.shared.now();
        let until = Until::working(READ).while_wanted(wanted.clone());
        let read = self.shared.arm.get(self.resource.as_str(), self.key.api_version, &[], rank, &until).await;
        let unwanted = wanted.is_cancelled() && read.as_ref().is_err_and(|error| error.fault == Fault::Deadline);
        let answer = read.map(|read| Observation {
            value: Arc::new(read.value),
            etag: read.etag,
            seen: Seen { by: By::Single, sent_at: read.sent_at },
            answered: read.answered,
        });
        self.end(began, (!unwanted).then_some(answer));
    }

    /// Answers the callers. A read that left the queue answers none: a caller that came since gets another read, and so
    /// does one that came after `began` to a read that found that the resource is missing.
    fn end(&mut self, began: Duration, answer: Option<Answer>) {
        self.ended = true;
        if let Some(entry) = self.shared.groups().get_mut(&self.key) {
            entry.singles.remove(&self.resource);
            match answer {
                None => entry.group.single_unsent(&self.resource),
                Some(answer) => {
                    let sent_at = match &answer {
                        Ok(read) => read.seen.sent_at.saturating_duration_since(self.shared.epoch),
                        Err(error) if error.fault.says_that_it_is_missing() => began,
                        Err(_) => self.shared.now(),
                    };
                    let ids = entry.group.single_ended(&self.resource, sent_at);
                    self.shared.shared_reads(entry.resource_type, By::Single, ids.len().saturating_sub(1));
                    entry.answer(ids, &answer);
                }
            }
        }
        self.shared.act(&self.key);
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        if !self.ended {
            let answer = Err(broken_off(&self.resource));
            self.end(self.shared.now(), Some(answer));
        }
    }
}

/// The task of one list.
struct List {
    shared: Arc<Shared>,
    key: Key,
    fields: Fields,
    ended: bool,
}

impl List {
    async fn run(mut self, rank: Rank) {
        let result = self.read(rank).await;
        self.ended = true;
        if let Err(error) = result {
            self.failed(error);
        }
        self.shared.act(&self.key);
    }

    async fn read(&self, rank: Rank) -> Result<(), ArmError> {
        let until = Until::working(READ);
        let mut list = self.shared.arm.pages(&self.key.list_path, self.key.api_version, &[], rank, &until)?;
        let (mut pages, mut whole) = (0, false);
        let mut looked_at = BTreeSet::new();
        let mut shown: BTreeMap<ArmId, (Listed, Arc<Value>)> = BTreeMap::new();
        let mut sent_at = Instant::now();
        loop {
            let Some(items) = list.next_of(self.fields).await? else {
                whole = true;
                break;
            };
            pages += 1;
            let mut groups = self.shared.groups();
            let Some(entry) = groups.get_mut(&self.key) else { return Ok(()) };
            if pages == 1 {
                sent_at = list.sent_at().unwrap_or(sent_at);
                entry.group.list_sent(sent_at.saturating_duration_since(self.shared.epoch));
                looked_at = entry.group.looked_at().cloned().collect();
            }
            let mut answered = 0;
            for item in items {
                answered += self.item(entry, item, (sent_at, list.answered()), &looked_at, &mut shown);
            }
            self.shared.shared_reads(entry.resource_type, By::List, answered);
            let wanted = entry.group.wanted_of_list();
            let unseen = looked_at.len() - shown.len();
            if !list.has_more() {
                whole = true;
                break;
            }
            if wanted == 0 && unseen == 0 {
                break;
            }
            if pages > GIVE_UP * (wanted + unseen) {
                // It is longer than was thought, and the rest is cheaper alone.
                pages *= GIVE_UP;
                break;
            }
        }
        self.finish(sent_at, pages, whole, &shown);
        Ok(())
    }

    /// Hands an item of the list to those who wait for it. Returns how many callers it answered.
    fn item(
        &self,
        entry: &mut Entry,
        item: Value,
        (sent_at, list_answered): (Instant, Option<AzureTime>),
        looked_at: &BTreeSet<ArmId>,
        shown: &mut BTreeMap<ArmId, (Listed, Arc<Value>)>,
    ) -> usize {
        // No caller can ask for an item whose id cannot be read.
        let Some(id) = item.get("id").and_then(Value::as_str).and_then(|id| id.parse::<ArmId>().ok()) else { return 0 };
        let usable = (entry.resource_type.is_complete)(&item);
        let state = (entry.resource_type.shown)(&item);
        let etag = item.get("etag").and_then(Value::as_str).map(str::to_owned);
        let at = sent_at.saturating_duration_since(self.shared.epoch);
        let ids = entry.group.listed(&id, usable, at);
        if ids.is_empty() && !looked_at.contains(&id) {
            return 0;
        }
        let answered = ids.len();
        let value = Arc::new(item);
        let seen = Seen { by: By::List, sent_at };
        let observation = Observation { value: value.clone(), etag, seen, answered: list_answered };
        entry.answer(ids, &Ok(observation));
        if let (true, Some(state)) = (looked_at.contains(&id), state) {
            shown.insert(id, (state, value));
        }
        answered
    }

    fn finish(&self, sent_at: Instant, pages: usize, whole: bool, shown: &BTreeMap<ArmId, (Listed, Arc<Value>)>) {
        let mut groups = self.shared.groups();
        let Some(entry) = groups.get_mut(&self.key) else { return };
        let at = sent_at.saturating_duration_since(self.shared.epoch);
        let ended = entry.group.list_ended(at, pages, whole, |id| shown.get(id).map(|(listed, _)| *listed));
        self.shared.shared_reads(entry.resource_type, By::List, ended.lacking.len());
        entry.answer(ended.lacking, &Err(Failure::unlisted(&self.key.list_path).into()));
        for (number, resource, news) in ended.news {
            let look = match (news, shown.get(&resource)) {
                (News::Ended, Some((_, value))) => Look::Ended(value.clone(), sent_at),
                _ => Look::Poll,
            };
            if let Some(watch) = entry.watches.get(&number) {
                // The receiver lives as long as the entry.
                let _ = watch.send(look);
            }
        }
    }

    fn failed(&self, error: ArmError) {
        let refused = matches!(
            error.fault,
            Fault::Forbidden
                | Fault::Denied
                | Fault::NotFound
                | Fault::ScopeNotFound
                | Fault::Unsupported
                | Fault::Malformed
                | Fault::Invalid
        );
        let mut groups = self.shared.groups();
        let Some(entry) = groups.get_mut(&self.key) else { return };
        match error.fault {
            // Its scale set or resource group may just have been deleted.
            Fault::NotFound | Fault::ScopeNotFound => {
                tracing::info!(list = self.key.list_path, error = %error, "the list is not there; resources are read one by one");
            }
            _ if refused => {
                tracing::warn!(list = self.key.list_path, error = %error, "the list is refused; resources are read one by one");
            }
            _ => {}
        }
        let ids = entry.group.list_failed(refused, self.shared.now());
        entry.answer(ids, &Err(error));
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.ended {
            let path = &self.key.list_path;
            self.failed(Failure::ours(Fault::Unavailable, Effect::None, Verb::Get, path, BROKEN_OFF).into());
            self.shared.act(&self.key);
        }
    }
}

const BROKEN_OFF: &str = "the read was broken off";

fn broken_off(resource: &ArmId) -> ArmError {
    Failure::ours(Fault::Unavailable, Effect::None, Verb::Get, resource.as_str(), BROKEN_OFF).into()
}
