//! The sweep of temporary snapshots that nothing waits for any more.
//!
//! A carrier is deleted by the request that made it, or with its disk. One stays where its disk was filled after its answer,
//! or where a request was given up between two writes. Each replica sweeps: what another one deletes meanwhile is gone.
//!
//! ```text
//!   list ─▶ a carrier of this cluster ─▶ its disk ─┬─ in use, or resting ─▶ the next one
//!                                                  └─ over ─▶ permit ─▶ its disk and itself again ─▶ deleted ─▶ the next one
//! ```
//!
//! A list may lag and a permit may take minutes, and in that time a request may begin to fill a disk from the carrier.
//! So both are read again behind the permit.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::Duration,
};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, AzureTime, Disk, Snapshot};
use lazuli_volume::copy::{Leftover, TargetSeen, carrier_target, leftover};

use super::Scope;
use crate::calls::{found, unexpected};

/// When a process begins to sweep: it then serves already what was asked for before it started.
const FIRST: Duration = Duration::from_secs(3_600);
/// Between two sweeps of a process.
const INTERVAL: Duration = Duration::from_secs(24 * 3_600);
/// The same where a carrier rests that the next sweep may delete.
const SOON: Duration = Duration::from_secs(3_600);

/// The carriers that were at rest without a disk at the last sweep, each with the time when it was made, and since
/// when it is known to rest.
pub type Resting = BTreeMap<ArmId, (AzureTime, Duration)>;

/// What happens to the sweeps of a process.
#[derive(Debug, Clone, PartialEq)]
pub enum Occurrence {
    /// A request was served.
    Served,
    /// A sweep has ended, and has left these.
    Swept(Resting),
    /// What all keys share has changed, or time has passed: no sweep begins for that.
    Woke,
    /// The process ends.
    Drain,
}

/// The sweeps of a process, by a clock that began with it. One runs at a time, and where nothing is asked of a process
/// it does not sweep.
#[derive(Debug, Clone)]
pub struct Sweeps {
    next: Duration,
    resting: Resting,
    is_running: bool,
    is_over: bool,
}

impl Default for Sweeps {
    fn default() -> Self {
        Self { next: FIRST, resting: Resting::new(), is_running: false, is_over: false }
    }
}

impl Sweeps {
    /// Whether a sweep begins now, which knows what is returned of those before.
    pub fn step(&mut self, now: Duration, occurrence: Occurrence) -> Option<Resting> {
        match occurrence {
            Occurrence::Served if !self.is_running && !self.is_over && now >= self.next => {
                self.is_running = true;
                Some(mem::take(&mut self.resting))
            }
            Occurrence::Served | Occurrence::Woke => None,
            Occurrence::Swept(resting) => {
                self.is_running = false;
                self.next = now + if resting.is_empty() { INTERVAL } else { SOON };
                self.resting = resting;
                None
            }
            Occurrence::Drain => {
                self.is_over = true;
                None
            }
        }
    }

    /// Whether nothing is to be remembered any more.
    pub fn is_over(&self) -> bool {
        self.is_over && !self.is_running
    }
}

/// What is to be done next. Its answer is the next [`Event`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// List snapshots: [`Event::Snapshots`].
    List(Scope),
    /// Read a disk singly: [`Event::Disk`]. A permit that is held is given back.
    Look(ArmId),
    /// Wait for a permit to delete a snapshot: [`Event::Permitted`].
    Permit(ArmId),
    /// Read a disk singly behind the permit: [`Event::Disk`].
    ReadDisk(ArmId),
    /// Read a snapshot singly behind the permit: [`Event::Snapshot`].
    ReadSnapshot(ArmId),
    /// Delete a snapshot by the permit: [`Event::Deleted`].
    Delete(ArmId),
}

/// What has happened.
#[derive(Debug, Clone)]
pub enum Event<E> {
    /// The sweep begins.
    Begun,
    /// Snapshots, and when Azure answered, by its own clock, where it says so.
    Snapshots(Result<(Vec<Snapshot>, Option<AzureTime>), E>),
    /// A disk.
    Disk(Result<Box<Disk>, E>),
    /// There is a permit.
    Permitted(Result<(), E>),
    /// A snapshot.
    Snapshot(Result<Box<Snapshot>, E>),
    /// What was to be deleted is gone, or why not.
    Deleted(Result<(), E>),
}

/// What people are told.
#[derive(Debug, Clone, PartialEq)]
pub enum Report<E> {
    /// A temporary snapshot could not be deleted. A later sweep does it.
    Left(ArmId, E),
    /// A temporary snapshot that nothing waits for was deleted.
    Swept(ArmId),
}

/// What follows from an event.
#[derive(Debug, Clone)]
pub struct Step<E> {
    /// What people are told.
    pub report: Option<Report<E>>,
    /// The next call, or the end.
    pub next: super::Next<Resting, Call>,
}

/// A sweep.
#[derive(Debug)]
pub struct Sweep {
    /// The resource group of the cluster.
    cluster: (String, String),
    /// The other subscriptions that are listed.
    others: BTreeSet<String>,
    /// Azure's clock, by the list.
    azure_now: Option<AzureTime>,
    /// What earlier sweeps knew, and what this one leaves.
    before: Resting,
    resting: Resting,
    left: Vec<Carrier>,
    at: At,
}

/// A carrier and its disk.
#[derive(Debug)]
struct Carrier {
    snapshot: Box<Snapshot>,
    disk: ArmId,
}

#[derive(Debug)]
enum At {
    Begin,
    Listing(Scope),
    Looking(Carrier),
    Permit(Carrier),
    /// Behind the permit.
    Disk(Carrier),
    /// Behind the permit. The disk is this one, or there is none.
    Snapshot(Carrier, Option<Box<Disk>>),
    Deleting(ArmId),
    Over,
}

impl Sweep {
    /// A sweep of the snapshots of the cluster's subscription or, where that may not be read, of its resource group; then of
    /// `others`, the subscriptions of its disks. `before` is what the last one has left. Its first event is [`Event::Begun`].
    pub fn new(subscription: &str, resource_group: &str, others: BTreeSet<String>, before: Resting) -> Self {
        let is_other = |other: &String| !other.eq_ignore_ascii_case(subscription);
        Self {
            cluster: (subscription.to_owned(), resource_group.to_owned()),
            others: others.into_iter().filter(is_other).collect(),
            azure_now: None,
            before,
            resting: Resting::new(),
            left: Vec::new(),
            at: At::Begin,
        }
    }

    /// What follows from an event. What fails stays for the next sweep.
    pub fn step<E: AzureFailure>(&mut self, now: Duration, event: Event<E>) -> Step<E> {
        let mut report = None;
        let next = match (mem::replace(&mut self.at, At::Over), event) {
            (At::Begin, Event::Begun) => self.list(Scope::subscription(&self.cluster.0)),
            (At::Listing(_), Event::Snapshots(Ok((snapshots, azure_now)))) => {
                let cluster = (self.cluster.0.as_str(), self.cluster.1.as_str());
                let carrier = |snapshot: Snapshot| {
                    let disk = carrier_target(&snapshot, cluster)?;
                    Some(Carrier { snapshot: Box::new(snapshot), disk })
                };
                self.left = snapshots.into_iter().filter_map(carrier).collect();
                self.azure_now = azure_now;
                self.look()
            }
            (At::Listing(scope), Event::Snapshots(Err(_))) => match self.narrower(&scope) {
                Some(scope) => self.list(scope),
                None => {
                    self.keep_all(&scope.subscription);
                    self.look()
                }
            },
            (At::Looking(carrier), Event::Disk(read)) => match found(read) {
                Ok(disk) if self.decide(now, &carrier, disk.as_deref()) == Leftover::Over => {
                    let call = Call::Permit(carrier.snapshot.id.clone());
                    self.go(At::Permit(carrier), call)
                }
                Ok(_) => self.look(),
                Err(_) => self.keep(&carrier.snapshot.id),
            },
            (At::Permit(carrier), Event::Permitted(Ok(()))) => {
                let call = Call::ReadDisk(carrier.disk.clone());
                self.go(At::Disk(carrier), call)
            }
            (At::Permit(carrier), Event::Permitted(Err(_))) => self.keep(&carrier.snapshot.id),
            (At::Disk(carrier), Event::Disk(read)) => match found(read) {
                Ok(disk) => {
                    let call = Call::ReadSnapshot(carrier.snapshot.id.clone());
                    self.go(At::Snapshot(carrier, disk), call)
                }
                Err(_) => self.keep(&carrier.snapshot.id),
            },
            (At::Snapshot(carrier, disk), Event::Snapshot(Ok(snapshot))) => {
                // Another one of its name has rested for no time, and is looked at by the next sweep.
                let is_other =
                    snapshot.created != carrier.snapshot.created || snapshot.unique_id != carrier.snapshot.unique_id;
                let again = Carrier { snapshot, disk: carrier.disk };
                match !is_other && self.decide(now, &again, disk.as_deref()) == Leftover::Over {
                    true => {
                        let id = again.snapshot.id;
                        self.go(At::Deleting(id.clone()), Call::Delete(id))
                    }
                    false => self.look(),
                }
            }
            (At::Snapshot(carrier, _), Event::Snapshot(read)) => match found(read) {
                Ok(_) => self.look(),
                Err(_) => self.keep(&carrier.snapshot.id),
            },
            (At::Deleting(carrier), Event::Deleted(Ok(()))) => {
                report = Some(Report::Swept(carrier));
                self.look()
            }
            (At::Deleting(carrier), Event::Deleted(Err(why))) => {
                let next = self.keep(&carrier);
                report = Some(Report::Left(carrier, why));
                next
            }
            (at, event) => unexpected(&at, &event),
        };
        Step { report, next }
    }

    /// What becomes of a carrier, by reads of it and of its disk. One that rests is noted.
    fn decide(&mut self, now: Duration, carrier: &Carrier, disk: Option<&Disk>) -> Leftover {
        let Carrier { snapshot, disk: target } = carrier;
        let before = self.before.get(&snapshot.id).filter(|(created, _)| *created == snapshot.created);
        let since = before.map_or(now, |(_, since)| *since);
        let seen = disk.map_or_else(|| TargetSeen::Absent(now.saturating_sub(since)), TargetSeen::Disk);
        // Without Azure's clock the carrier counts as new.
        let what = leftover(snapshot, target, seen, self.azure_now.unwrap_or(snapshot.created));
        if what == Leftover::Resting {
            self.resting.insert(snapshot.id.clone(), (snapshot.created, since));
        }
        what
    }

    /// The next carrier. Of this one what was known before is still known.
    fn keep(&mut self, carrier: &ArmId) -> super::Next<Resting, Call> {
        self.resting.extend(self.before.remove_entry(carrier));
        self.look()
    }

    /// What is listed where a whole subscription may not be read: the cluster's resource group, and nothing of another one.
    fn narrower(&self, scope: &Scope) -> Option<Scope> {
        let is_own = scope.subscription == self.cluster.0;
        is_own.then(|| scope.narrower(&self.cluster.1)).flatten()
    }

    /// The carriers of a subscription cannot be listed. What was known of them is still known.
    fn keep_all(&mut self, subscription: &str) {
        let is_there = |(carrier, _): &(&ArmId, _)| carrier.subscription().eq_ignore_ascii_case(subscription);
        let known = self.before.iter().filter(is_there).map(|(carrier, known)| (carrier.clone(), *known));
        self.resting.extend(known);
    }

    fn list(&mut self, scope: Scope) -> super::Next<Resting, Call> {
        self.go(At::Listing(scope.clone()), Call::List(scope))
    }

    /// The next carrier, or the next list.
    fn look(&mut self) -> super::Next<Resting, Call> {
        let Some(carrier) = self.left.pop() else {
            return match self.others.pop_first() {
                Some(other) => self.list(Scope::subscription(&other)),
                None => super::Next::Done(mem::take(&mut self.resting)),
            };
        };
        let call = Call::Look(carrier.disk.clone());
        self.go(At::Looking(carrier), call)
    }

    fn go(&mut self, at: At, call: Call) -> super::Next<Resting, Call> {
        self.at = at;
        super::Next::Call(call)
    }
}

#[cfg(test)]
mod tests;
