//! Which reads are sent: one single read for many callers, one list for many single reads.
//!
//! Azure gives one identity 250 reads and 25 more a second for a whole subscription, so no read is private. A [`Group`]
//! knows everything that is asked of the resources of one type in one resource group: reads, and looks at operations that
//! are under way ([`poll`](crate::poll)). It says what to send; it never sends.
//!
//! ```text
//!   reads asked ─┐            worth a list      ┌─ found ───────▶ answered, or the operation has ended
//!                ├─▶ step() ──────────────────▶ list ─ absent ──▶ a single read, or a poll
//!   looks due ───┘      └────────────────────▶ single reads and polls
//! ```
//!
//! # What a read may prove
//!
//! Each snapshot says whether a single read or a list made it and when that was sent ([`Seen`]).
//!
//! - A read answers a caller only if it was sent at or after the caller's `not_before`. A list was sent when its first
//!   page was.
//! - A list may be older than a single read. So absence in a list proves nothing, and neither does a state that is not the
//!   one waited for: now and then the look at an operation is a poll, whatever lists show. Who rests nothing on it takes
//!   absence in a whole list for an answer ([`Accept::Any`]), such as a writer that reads the resource alone once its turn
//!   to make it has come.
//! - A list ends the looks at a creation or an expansion, by the value that was asked for. For everything else it prompts
//!   the poll or the single read that proves it.
//! - A decision without a write needs a single read ([`Accept::Single`]).
//!
//! # What a read costs
//!
//! A list costs its pages. While reads are plentiful a list must replace [`PLENTIFUL`] reads a page, for single reads run
//! beside each other and pages one after the other. While they are short it must replace more reads than it has pages, and
//! lists that only look at operations take a third of the reads at most ([`SHORT_PAGE`]).
//!
//! Azure may allow few lists of a type, as of the instances of a scale set. While its limit would hold up a page of the
//! list, single reads and polls take the list's place ([`Group::limit_lists`]).
//!
//! A read that was sent to the queue for a permit joins no list any more. Where reads come one by one and faster than the
//! bucket is refilled, each would end there; so an ask may be patient ([`Ask::patience`]) while reads are short.
//!
//! Times are on one monotonic clock of the caller's, as time since its start.

use std::{collections::BTreeMap, time::Duration};

use lazuli_model::{ArmId, Gib, ProvisioningState};

use crate::{
    permit::Priority,
    poll::{Expectation, Look},
};

#[cfg(test)]
mod tests;

/// How long a read that may be a list waits for company.
pub const GATHER: Duration = Duration::from_millis(5);
/// How many reads a page of a list must replace while reads are plentiful.
pub const PLENTIFUL: usize = 4;
/// How many pages a list is taken to have before one was read.
const UNKNOWN_PAGES: usize = 2;
/// The least time between two lists that only look at operations, as long as these looks may be put off.
const LIST_GAP: Duration = Duration::from_millis(100);
/// The least time between two such lists for each of their pages while reads are short: three times what the bucket of a
/// subscription's reads takes to refill by one (25 a second).
const SHORT_PAGE: Duration = Duration::from_millis(120);
/// For how long a list that Azure refuses is not asked for again.
const REFUSED_FOR: Duration = Duration::from_secs(600);

/// How a snapshot was read, and when that request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen<T> {
    /// By which read.
    pub by: By,
    /// When it was sent; of a list, its first page.
    pub sent_at: T,
}

/// The two ways of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A request for this resource alone.
    Single,
    /// A list that has it. It may be older than a single read sent at the same time.
    List,
}

/// Which reads a caller takes for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// Only a single read.
    Single,
    /// A list too.
    List,
    /// A list too, and also one that lacks the resource. Only for callers that read the resource alone before they rest
    /// anything on its absence.
    Any,
}

/// One caller's wait for one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The caller's number in this group.
    pub id: u64,
    /// Nothing that was sent earlier is an answer.
    pub not_before: Duration,
    /// When it was asked.
    pub asked_at: Duration,
    /// Which reads are an answer.
    pub accept: Accept,
    /// How it ranks.
    pub priority: Priority,
    /// While reads are short, how long it waits for company at least, so that one list answers many.
    pub patience: Duration,
}

/// What ends an operation, as far as a list can show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The resource is at rest and has at least this size.
    Size(Gib),
    /// The same, and it was made no earlier: a list that lags may show one of the same name that was deleted before.
    Made {
        /// The least size.
        size: Gib,
        /// The earliest time at which it can have been made, by Azure's clock, in seconds since 1970.
        since: i64,
    },
    /// The resource, which did not exist before, is there and at rest. Only for callers that see it when a list that lags
    /// shows an older one of the same name.
    Present,
    /// The resource is absent. That prompts a poll.
    Absent,
    /// The resource is at rest. That prompts a poll.
    AtRest,
    /// No list shows it.
    Polled,
}

/// What a list shows of a resource, as far as operations are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Where its last operation is.
    pub state: ProvisioningState,
    /// Its size, if it has one.
    pub size: Option<Gib>,
    /// When it was made, by Azure's clock, in seconds since 1970.
    pub made: Option<i64>,
}

/// An operation that is under way.
#[derive(Debug, Clone)]
pub struct Operation {
    /// What it works on.
    pub resource: ArmId,
    /// When Azure accepted it.
    pub accepted_at: Duration,
    /// When it is expected to end.
    pub expectation: Expectation,
    /// What ends it.
    pub target: Target,
    /// Whether its end must be polled, for the duration that only the poll tells.
    pub sample: bool,
    /// When it was last looked at, since it was accepted.
    pub last: Option<Duration>,
}

/// What reads there are to spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    /// The bucket is above half.
    Plentiful,
    /// It is not.
    Short,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read this resource for all who ask for it.
    Read(ArmId, Priority),
    /// The single read of this resource, if it still waits, goes at least with this priority.
    Raise(ArmId, Priority),
    /// Read the list.
    List(Priority),
    /// The list, if it still waits, goes at least with this priority.
    RaiseList(Priority),
    /// Poll the operation of this number.
    Poll(u64),
}

/// What a finished list says to one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// It has ended, and the list shows the result.
    Ended,
    /// It may have ended: poll it.
    Poll,
}

/// What the end of a list means.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ended {
    /// What it says to operations, by their number.
    pub news: Vec<(u64, ArmId, News)>,
    /// The callers that take it for an answer that it lacks their resource.
    pub lacking: Vec<u64>,
}

/// Everything asked of the resources of one type in one resource group.
#[derive(Debug, Default)]
pub struct Group {
    resources: BTreeMap<ArmId, Resource>,
    operations: BTreeMap<u64, Watched>,
    list: Option<List>,
    /// When the last list was begun.
    listed_at: Option<Duration>,
    /// How many pages the last list had.
    pages: Option<usize>,
    refused_until: Option<Duration>,
    /// No list is begun earlier.
    limited_until: Duration,
}

#[derive(Debug, Default)]
struct Resource {
    asks: Vec<Ask>,
    /// The priority of the single read that is under way.
    single: Option<Priority>,
    /// Whether a list did not have it.
    unlisted: bool,
}

#[derive(Debug)]
struct Watched {
    operation: Operation,
    last: Option<Duration>,
    /// A poll is under way.
    polling: bool,
    /// The next look is a poll.
    by_poll: bool,
    /// How long after its acceptance it was last polled.
    polled: Duration,
    /// A throttled poll's pause.
    not_before: Duration,
}

#[derive(Debug)]
struct List {
    /// When its first page was sent.
    sent_at: Option<Duration>,
    priority: Priority,
    /// The operations that it is to tell of.
    looking: Vec<u64>,
}

impl Resource {
    fn priority(&self) -> Priority {
        self.asks.iter().map(|ask| ask.priority).min().unwrap_or(Priority::List)
    }

    /// Whether a list may answer all who ask.
    fn may_be_listed(&self) -> bool {
        self.single.is_none() && !self.unlisted && self.asks.iter().all(|ask| ask.accept != Accept::Single)
    }

    /// Whether the list under way can still answer.
    fn joins(&self, list: &List) -> bool {
        list.sent_at.is_none_or(|sent_at| self.asks.iter().all(|ask| ask.not_before <= sent_at))
    }

    /// When it has waited long enough for company.
    fn gathered_at(&self, supply: Supply) -> Duration {
        let waits = |ask: &Ask| match supply {
            Supply::Plentiful => GATHER,
            Supply::Short => GATHER.max(ask.patience),
        };
        self.asks.iter().map(|ask| ask.asked_at + waits(ask)).min().unwrap_or_default()
    }
}

impl Watched {
    fn look(&self) -> Look {
        self.operation.expectation.next(self.last)
    }

    fn due(&self) -> Duration {
        (self.operation.accepted_at + self.look().due).max(self.not_before)
    }

    fn latest(&self) -> Duration {
        (self.operation.accepted_at + self.look().latest).max(self.not_before)
    }

    /// When it is polled though others are under way, because no list is worth reading. While reads are short, no
    /// operation is polled early.
    fn latest_by_poll(&self, supply: Supply) -> Duration {
        let look = match supply {
            Supply::Plentiful => self.look(),
            Supply::Short => self.operation.expectation.next_not_early(self.last),
        };
        (self.operation.accepted_at + look.latest).max(self.not_before)
    }

    /// Whether a list may serve for the next look. Where all take the same time, most operations have ended at the
    /// expected end, and a list that only prompts the poll would come on top of it.
    fn may_be_listed(&self) -> bool {
        let expectation = &self.operation.expectation;
        let at_end = || self.look() == expectation.next_not_early(None);
        match self.operation.target {
            Target::Polled => false,
            Target::Size(_) | Target::Made { .. } | Target::Present => !self.by_poll,
            Target::Absent | Target::AtRest => !(self.by_poll || expectation.is_sharp() && at_end()),
        }
    }

    /// When it is polled where no other look shares the cost.
    fn alone_at(&self, supply: Supply) -> Duration {
        let at = match supply {
            Supply::Plentiful => self.operation.expectation.next_alone(self.last),
            Supply::Short => self.operation.expectation.next_not_early(self.last).due,
        };
        (self.operation.accepted_at + at).max(self.not_before)
    }

    fn looked(&mut self, at: Duration) {
        let elapsed = at.saturating_sub(self.operation.accepted_at);
        self.last = Some(self.last.unwrap_or_default().max(elapsed));
    }
}

impl Group {
    /// A caller asks for a resource.
    pub fn ask(&mut self, resource: &ArmId, ask: Ask) {
        self.resources.entry(resource.clone()).or_default().asks.push(ask);
    }

    /// A caller has left. `true` when the single read of the resource has no caller left.
    pub fn leave(&mut self, resource: &ArmId, id: u64) -> bool {
        let Some(entry) = self.resources.get_mut(resource) else { return false };
        entry.asks.retain(|ask| ask.id != id);
        let unwanted = entry.asks.is_empty();
        if unwanted && entry.single.is_none() {
            self.resources.remove(resource);
        }
        unwanted
    }

    /// An operation was accepted; it is known by this number.
    pub fn begin(&mut self, number: u64, operation: Operation) {
        let last = operation.last;
        let watched = Watched {
            operation,
            last,
            polling: false,
            by_poll: false,
            polled: Duration::ZERO,
            not_before: Duration::ZERO,
        };
        self.operations.insert(number, watched);
    }

    /// An operation has ended, or its caller has stopped waiting.
    pub fn end(&mut self, number: u64) {
        self.operations.remove(&number);
    }

    /// A poll of an operation was answered and showed no end, or was not answered and is to pause until `not_before`.
    pub fn polled(&mut self, number: u64, at: Duration, not_before: Option<Duration>) {
        if let Some(watched) = self.operations.get_mut(&number) {
            watched.polling = false;
            watched.by_poll = false;
            watched.looked(at);
            watched.polled = at.saturating_sub(watched.operation.accepted_at);
            watched.not_before = not_before.unwrap_or_default();
        }
    }

    /// The single read of a resource that was sent then has ended. Gives the callers it answers.
    pub fn single_ended(&mut self, resource: &ArmId, sent_at: Duration) -> Vec<u64> {
        let Some(entry) = self.resources.get_mut(resource) else { return Vec::new() };
        entry.single = None;
        entry.unlisted = false;
        let (answered, waiting) = entry.asks.drain(..).partition(|ask| ask.not_before <= sent_at);
        entry.asks = waiting;
        if entry.asks.is_empty() {
            self.resources.remove(resource);
        }
        ids(answered)
    }

    /// The single read of a resource left the queue unsent, because its last caller had left.
    pub fn single_unsent(&mut self, resource: &ArmId) {
        if let Some(entry) = self.resources.get_mut(resource) {
            entry.single = None;
            if entry.asks.is_empty() {
                self.resources.remove(resource);
            }
        }
    }

    /// The first page of the list was sent.
    pub fn list_sent(&mut self, at: Duration) {
        if let Some(list) = &mut self.list {
            list.sent_at = Some(at);
        }
    }

    /// How many reads of resources the list under way still replaces.
    pub fn wanted_of_list(&self) -> usize {
        let Some(list) = &self.list else { return 0 };
        self.resources.values().filter(|entry| entry.may_be_listed() && entry.joins(list)).count()
    }

    /// The operations that the list under way is to tell of.
    pub fn looked_at(&self) -> impl Iterator<Item = &ArmId> {
        let looking = self.list.iter().flat_map(|list| &list.looking);
        looking.filter_map(|number| self.operations.get(number)).map(|watched| &watched.operation.resource)
    }

    /// An item of the list that was sent then. Gives the callers it answers; `usable` is whether it says all that a
    /// reader needs.
    pub fn listed(&mut self, resource: &ArmId, usable: bool, sent_at: Duration) -> Vec<u64> {
        let Some(entry) = self.resources.get_mut(resource) else { return Vec::new() };
        if !usable {
            entry.unlisted = true;
            return Vec::new();
        }
        let answers = |ask: &Ask| ask.accept != Accept::Single && ask.not_before <= sent_at;
        let (answered, waiting) = entry.asks.drain(..).partition(answers);
        entry.asks = waiting;
        if entry.asks.is_empty() && entry.single.is_none() {
            self.resources.remove(resource);
        }
        ids(answered)
    }

    /// The list has been read to its end, or as far as it was of use (`pages` of them, `whole` or not). `shown` says what
    /// it has of a resource. Gives what it means for the operations.
    pub fn list_ended(
        &mut self,
        sent_at: Duration,
        pages: usize,
        whole: bool,
        shown: impl Fn(&ArmId) -> Option<Listed>,
    ) -> Ended {
        self.pages = Some(if whole { pages } else { self.pages.unwrap_or_default().max(pages) });
        let mut lacking = Vec::new();
        self.resources.retain(|_, entry| {
            if entry.may_be_listed() {
                let answers = |ask: &Ask| whole && ask.accept == Accept::Any && ask.not_before <= sent_at;
                let (mut answered, waiting): (Vec<Ask>, Vec<Ask>) = entry.asks.drain(..).partition(answers);
                lacking.append(&mut answered);
                // It was asked for in time and is not there.
                entry.unlisted = waiting.iter().any(|ask| ask.not_before <= sent_at);
                entry.asks = waiting;
            }
            !entry.asks.is_empty() || entry.single.is_some()
        });
        let looking = self.list.take().map(|list| list.looking).unwrap_or_default();
        let mut news = Vec::new();
        for number in looking {
            let Some(watched) = self.operations.get_mut(&number) else { continue };
            if watched.polling || watched.operation.accepted_at > sent_at {
                continue;
            }
            let listed = shown(&watched.operation.resource);
            let elapsed = sent_at.saturating_sub(watched.operation.accepted_at);
            // The first time at the expected end, then each time the time since its acceptance has doubled.
            let end = watched.operation.expectation.next_not_early(None).due;
            let overdue = elapsed >= end.max(watched.polled) * 2;
            watched.looked(sent_at);
            match judge(watched.operation.target, listed, whole) {
                Some(News::Ended) if !watched.operation.sample => {
                    news.push((number, watched.operation.resource.clone(), News::Ended));
                }
                Some(_) => {
                    watched.polling = true;
                    news.push((number, watched.operation.resource.clone(), News::Poll));
                }
                // The list may be old.
                None => watched.by_poll = overdue,
            }
        }
        Ended { news, lacking: ids(lacking) }
    }

    /// The list could not be read. When Azure refuses it, single reads take its place for ten minutes. Otherwise the
    /// callers that waited for it get its failure; gives them.
    pub fn list_failed(&mut self, refused: bool, now: Duration) -> Vec<u64> {
        let Some(list) = self.list.take() else { return Vec::new() };
        for number in list.looking {
            if let Some(watched) = self.operations.get_mut(&number) {
                watched.by_poll = true;
            }
        }
        if refused {
            self.refused_until = Some(now + REFUSED_FOR);
            return Vec::new();
        }
        let mut answered = Vec::new();
        self.resources.retain(|_, entry| {
            if entry.may_be_listed() && entry.gathered_at(Supply::Short) <= now {
                answered.append(&mut entry.asks);
            }
            !entry.asks.is_empty() || entry.single.is_some()
        });
        ids(answered)
    }

    /// Whether nothing is asked and nothing under way.
    pub fn is_idle(&self) -> bool {
        self.resources.is_empty() && self.operations.is_empty() && self.list.is_none()
    }

    /// Decides what to send now.
    pub fn step(&mut self, now: Duration, supply: Supply) -> Vec<Action> {
        let mut actions = Vec::new();
        let list_is_due = self.list_if_worth(now, supply, &mut actions);
        let pages = self.pages();
        let list = self.list.as_ref();
        let late = |entry: &&Resource| entry.may_be_listed() && list.is_some_and(|list| !entry.joins(list));
        let worth_another = self.resources.values().filter(late).count() >= PLENTIFUL * pages;
        let waits_for_list = |entry: &Resource| list.is_some_and(|list| worth_another || entry.joins(list));
        for (id, entry) in &mut self.resources {
            let priority = entry.priority();
            match entry.single {
                Some(known) if priority < known => {
                    entry.single = Some(priority);
                    actions.push(Action::Raise(id.clone(), priority));
                }
                Some(_) => {}
                None if entry.asks.is_empty() => {}
                None if entry.may_be_listed() && (waits_for_list(entry) || entry.gathered_at(supply) > now) => {}
                None => {
                    entry.single = Some(priority);
                    actions.push(Action::Read(id.clone(), priority));
                }
            }
        }
        let few = self.operations.len() < PLENTIFUL * pages || self.no_lists(now);
        let looking: Vec<u64> = self.list.iter().flat_map(|list| list.looking.iter().copied()).collect();
        for (number, watched) in &mut self.operations {
            if watched.polling || looking.contains(number) {
                continue;
            }
            let at = match watched.may_be_listed() && !few {
                true if list_is_due => continue,
                true => watched.latest_by_poll(supply),
                false => watched.alone_at(supply),
            };
            if at <= now {
                watched.polling = true;
                actions.push(Action::Poll(*number));
            }
        }
        actions
    }

    /// When to decide again though nothing has happened.
    pub fn wake_at(&self, now: Duration, supply: Supply) -> Option<Duration> {
        let reads = self.resources.values().filter(|entry| entry.may_be_listed());
        let reads = reads.map(|entry| entry.gathered_at(supply));
        let looking = |number: &u64| self.list.as_ref().is_some_and(|list| list.looking.contains(number));
        let looks = self.operations.iter().filter(|(number, watched)| !watched.polling && !looking(number));
        let looks = looks.flat_map(|(_, watched)| {
            [watched.due(), watched.latest(), watched.latest_by_poll(supply), watched.alone_at(supply)]
        });
        let rested = self.listed_at.map(|at| at + self.list_gap(supply));
        reads.chain(looks).chain(rested).filter(|at| *at > now).min()
    }

    /// How many pages the next list is taken to have.
    pub fn pages(&self) -> usize {
        self.pages.unwrap_or(UNKNOWN_PAGES)
    }

    /// A limit of Azure's on this list would hold up a page of one that begins before `until`.
    pub fn limit_lists(&mut self, until: Duration) {
        self.limited_until = until;
    }

    fn no_lists(&self, now: Duration) -> bool {
        now < self.limited_until || self.refused_until.is_some_and(|until| now < until)
    }

    /// The least time between two lists that only look at operations.
    fn list_gap(&self, supply: Supply) -> Duration {
        let pages = u32::try_from(self.pages()).unwrap_or(u32::MAX);
        match supply {
            Supply::Plentiful => LIST_GAP,
            Supply::Short => SHORT_PAGE.saturating_mul(pages).max(LIST_GAP),
        }
    }

    /// Begins a list if one is worth its pages now. `true` when it would be and has to wait, because the last one that
    /// only looked at operations was begun a moment ago.
    fn list_if_worth(&mut self, now: Duration, supply: Supply, actions: &mut Vec<Action>) -> bool {
        self.join_unsent_list(now, actions);
        if self.list.is_some() || self.no_lists(now) {
            return false;
        }
        let reads: Vec<&Resource> = self.resources.values().filter(|entry| entry.may_be_listed()).collect();
        let looks: Vec<(u64, &Watched)> = self
            .operations
            .iter()
            .filter(|(_, watched)| !watched.polling && watched.may_be_listed() && watched.due() <= now)
            .map(|(number, watched)| (*number, watched))
            .collect();
        let gathered = reads.iter().any(|entry| entry.gathered_at(supply) <= now);
        let put_off = looks.iter().any(|(_, watched)| watched.latest() <= now);
        let replaces = reads.len() + looks.len();
        let pages = self.pages();
        let many = replaces >= PLENTIFUL * pages;
        let rested = self.listed_at.is_none_or(|at| now >= at + self.list_gap(supply));
        // Most operations have ended at their expected end, so a look there waits for no company. An early look does.
        let at_end = looks.iter().filter(|(_, watched)| !watched.look().early).count();
        let many_at_end = at_end > 0 && reads.len() + at_end >= PLENTIFUL * pages;
        // A look that cannot be put off further, or reads that are short, make it worth replacing a few.
        let (for_reads, for_looks) = match supply {
            Supply::Plentiful => (many && gathered, many_at_end || put_off && replaces > pages),
            Supply::Short => (gathered && replaces > pages, put_off && replaces > pages),
        };
        if !(for_reads || for_looks && rested) {
            return for_looks;
        }
        let polls = looks.iter().map(|_| Priority::Poll);
        let priority = reads.iter().map(|entry| entry.priority()).chain(polls).min().unwrap_or(Priority::List);
        self.listed_at = Some(now);
        let looking = looks.into_iter().map(|(number, _)| number).collect();
        self.list = Some(List { sent_at: None, priority, looking });
        actions.push(Action::List(priority));
        false
    }

    /// A list that waits for its permit serves the looks that become due meanwhile, and ranks as the first of all that wait
    /// for it.
    fn join_unsent_list(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let Some(list) = self.list.as_mut().filter(|list| list.sent_at.is_none()) else { return };
        for (number, watched) in &self.operations {
            let is_due = !watched.polling && watched.may_be_listed() && watched.due() <= now;
            if is_due && !list.looking.contains(number) {
                list.looking.push(*number);
            }
        }
        let reads = self.resources.values().filter(|entry| entry.may_be_listed()).map(Resource::priority);
        let polls = list.looking.iter().map(|_| Priority::Poll);
        if let Some(priority) = reads.chain(polls).min().filter(|priority| *priority < list.priority) {
            list.priority = priority;
            actions.push(Action::RaiseList(priority));
        }
    }
}

fn large_enough(size: Gib) -> impl Fn(&Listed) -> bool {
    move |listed| listed.size.is_some_and(|listed| listed >= size)
}

fn ended(_: Listed) -> News {
    News::Ended
}

/// What an item of a list, or its absence in a whole list, means for an operation; `None` when it shows no end.
fn judge(target: Target, listed: Option<Listed>, whole: bool) -> Option<News> {
    let state = listed.map(|listed| listed.state);
    match (target, state) {
        (_, Some(ProvisioningState::Failed | ProvisioningState::Canceled)) => Some(News::Poll),
        (Target::Size(target), Some(ProvisioningState::Succeeded)) => listed.filter(large_enough(target)).map(ended),
        (Target::Made { size, since }, Some(ProvisioningState::Succeeded)) => {
            let made = listed.filter(large_enough(size)).filter(|listed| listed.made.is_some_and(|made| made >= since));
            made.map(ended)
        }
        (Target::Present, Some(ProvisioningState::Succeeded)) => Some(News::Ended),
        (Target::Absent, None) if whole => Some(News::Poll),
        (Target::AtRest, Some(ProvisioningState::Succeeded)) => Some(News::Poll),
        _ => None,
    }
}

fn ids(asks: Vec<Ask>) -> Vec<u64> {
    asks.into_iter().map(|ask| ask.id).collect()
}
