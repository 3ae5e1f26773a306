//! The sweep of temporary snapshots that nothing waits for any more.
//!
//! A carrier is deleted by the request that made it, or with its disk. One stays where its disk was filled after its answer,
//! or where a request was given up between two writes. Each replica sweeps: what another one deletes meanwhile is gone.

use std::{mem, time::Duration};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, AzureTime, Snapshot};
use lazuli_quota::read::Accept;
use lazuli_volume::copy::{TargetSeen, carrier_target, is_left_over};

use super::{Call, Event, Next, Report, Scope, Step};
use crate::calls::{found, unexpected};

/// When a process begins to sweep: it then serves already what was asked for before it started.
const FIRST: Duration = Duration::from_secs(3_600);
/// Between two sweeps of a process.
const INTERVAL: Duration = Duration::from_secs(24 * 3_600);

/// When the sweeps of a process are due.
#[derive(Debug, Clone, Copy)]
pub struct Sweeps {
    next: Duration,
}

impl Default for Sweeps {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Sweeps {
    /// Whether one is due now, by a clock that began with the process. It is taken for done then.
    pub fn begin(&mut self, now: Duration) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next = now + INTERVAL;
        }
        is_due
    }
}

/// A sweep.
#[derive(Debug)]
pub struct Sweep {
    /// The resource group of the cluster.
    resource_group: String,
    /// Azure's clock, by the list.
    now: Option<AzureTime>,
    left: Vec<(ArmId, Box<Snapshot>)>,
    at: At,
}

#[derive(Debug)]
enum At {
    Begin(Scope),
    Listing(Scope),
    Disk(ArmId, Box<Snapshot>),
    Deleting(ArmId),
    Over,
}

impl Sweep {
    /// A sweep of the snapshots of the cluster's subscription or, where that may not be read, of its resource group. Its first
    /// event is [`Event::Begun`].
    pub fn new(subscription: &str, resource_group: &str) -> Self {
        let at = At::Begin(Scope::subscription(subscription));
        Self { resource_group: resource_group.to_owned(), now: None, left: Vec::new(), at }
    }

    /// What follows from an event. What fails stays for the next sweep.
    pub fn step<E: AzureFailure, W: AzureFailure>(&mut self, event: Event<E, W>) -> Step<(), W> {
        let mut reports = Vec::new();
        let next = match (mem::replace(&mut self.at, At::Over), event) {
            (At::Begin(scope), Event::Begun) => self.list(scope),
            (At::Listing(_), Event::Snapshots(Ok((snapshots, now)))) => {
                let carrier = |snapshot: Snapshot| Some((carrier_target(&snapshot)?, Box::new(snapshot)));
                self.left = snapshots.into_iter().filter_map(carrier).collect();
                self.now = now;
                self.next()
            }
            (At::Listing(scope), Event::Snapshots(Err(_))) => match scope.narrower(&self.resource_group) {
                Some(scope) => self.list(scope),
                None => Next::Done(()),
            },
            (At::Disk(target, snapshot), Event::Disk(read)) => {
                // Without Azure's clock the carrier counts as new.
                let now = self.now.unwrap_or(snapshot.created);
                let is_left = match found(read) {
                    Ok(Some(disk)) => is_left_over(&snapshot, &target, TargetSeen::Disk(&disk), now),
                    Ok(None) => is_left_over(&snapshot, &target, TargetSeen::Absent, now),
                    Err(_) => false,
                };
                match is_left {
                    true => {
                        self.at = At::Deleting(snapshot.id.clone());
                        Next::Call(Call::DeleteSnapshot(snapshot.id))
                    }
                    false => self.next(),
                }
            }
            (At::Deleting(carrier), Event::Deleted(deleted)) => {
                reports.push(match deleted {
                    Ok(()) => Report::CarrierSwept(carrier),
                    Err(why) => Report::CarrierLeft(carrier, why),
                });
                self.next()
            }
            (at, event) => unexpected(&at, &event),
        };
        Step { reports, next }
    }

    fn list(&mut self, scope: Scope) -> Next<()> {
        self.at = At::Listing(scope.clone());
        Next::Call(Call::ListSnapshots(scope))
    }

    fn next(&mut self) -> Next<()> {
        let Some((target, snapshot)) = self.left.pop() else { return Next::Done(()) };
        let call = Call::ReadDisk { disk: target.clone(), accept: Accept::Single };
        self.at = At::Disk(target, snapshot);
        Next::Call(call)
    }
}
