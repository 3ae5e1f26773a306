//! The buckets of the front door, and the data services of storage accounts, with the requests that wait for them.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Direction, MOST_IN_FLIGHT_AT_START, MOST_IN_FLIGHT_OF_ACCOUNT, Priority, Ticket,
    bucket::{Bucket, Mark},
};

/// The ratio of the bucket that all clients of a subscription share to the bucket of one client (recorded in the
/// `-global-` headers: 3749 = 15 x 250 - 1).
const GLOBAL: f64 = 15.0;

/// Size and refill per second of one client's bucket (source: Microsoft's document
/// request-limits-and-throttling). An account takes 20,000 requests a second (source: Microsoft's document
/// scalability-targets-standard-account), of which nothing is counted here.
pub(super) fn front_door(direction: Direction) -> (f64, f64) {
    match direction {
        Direction::Data => (20_000.0, 20_000.0),
        Direction::Reads => (250.0, 25.0),
        Direction::Writes | Direction::Deletes => (200.0, 10.0),
    }
}

/// Whether Azure reports what remains in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Reporting {
    /// No answer has reported it yet.
    #[default]
    Unknown,
    /// Answers report it.
    Reported,
    /// A successful answer did not report it: this Azure does not.
    Absent,
}

/// A bucket of the front door, or the data service of a storage account.
#[derive(Debug)]
pub(super) struct FrontDoor {
    pub(super) own: (Bucket, Reporting),
    pub(super) global: (Bucket, Reporting),
    pub(super) in_flight: u32,
    /// How many requests may be in flight, whatever the buckets hold.
    most_in_flight: Option<u32>,
    pub(super) queue: BTreeSet<(Priority, Ticket)>,
}

/// Why the front door's bucket grants no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocked {
    /// It has a token at this time.
    Until(Duration),
    /// An answer must come first: it reports what remains, or is one request less in flight.
    Answer,
}

impl FrontDoor {
    pub(super) fn new(direction: Direction, now: Duration) -> Self {
        let (size, refill) = front_door(direction);
        let (reporting, most_in_flight) = match direction {
            Direction::Reads | Direction::Writes | Direction::Deletes => (Reporting::Unknown, None),
            Direction::Data => (Reporting::Absent, Some(MOST_IN_FLIGHT_OF_ACCOUNT)),
        };
        Self {
            own: (Bucket::full(size, refill, now), reporting),
            global: (Bucket::full(size * GLOBAL, refill * GLOBAL, now), reporting),
            in_flight: 0,
            most_in_flight,
            queue: BTreeSet::new(),
        }
    }

    /// Whether no request waits or is under way, and both buckets are full again.
    pub(super) fn is_at_rest(&self, now: Duration) -> bool {
        let buckets = [&self.own.0, &self.global.0];
        self.queue.is_empty() && self.in_flight == 0 && buckets.iter().all(|bucket| bucket.is_at_rest(now))
    }

    /// How long until the buckets hold so many tokens.
    pub(super) fn wait(&self, tokens: f64, now: Duration) -> Result<Duration, Blocked> {
        let own = match self.own.1 {
            // The published bucket is assumed until Azure reports another content, or turns out to report none.
            Reporting::Reported | Reporting::Unknown => self.own.0.wait(tokens, now),
            Reporting::Absent => Duration::ZERO,
        };
        let global = match self.global.1 {
            Reporting::Reported => self.global.0.wait(tokens, now),
            Reporting::Unknown | Reporting::Absent => Duration::ZERO,
        };
        let at_start = (self.own.1 == Reporting::Unknown).then_some(MOST_IN_FLIGHT_AT_START);
        let most = at_start.into_iter().chain(self.most_in_flight).min();
        if most.is_some_and(|most| f64::from(self.in_flight) + tokens > f64::from(most)) {
            return Err(Blocked::Answer);
        }
        Ok(own.max(global))
    }

    pub(super) fn blocked(&self, now: Duration) -> Option<Blocked> {
        match self.wait(1.0, now) {
            Ok(Duration::ZERO) => None,
            Ok(wait) => Some(Blocked::Until(now.saturating_add(wait))),
            Err(blocked) => Some(blocked),
        }
    }
}

/// Records what an answer reports of a bucket of the front door.
pub(super) fn learn(
    bucket: &mut (Bucket, Reporting),
    mark: Mark,
    remaining: Option<u32>,
    succeeded: bool,
    now: Duration,
) {
    let (bucket, reporting) = bucket;
    match (remaining, *reporting) {
        (Some(remaining), Reporting::Reported) => bucket.reported(mark, remaining, now),
        (Some(remaining), Reporting::Unknown | Reporting::Absent) => {
            *reporting = Reporting::Reported;
            bucket.first_report(mark, remaining, now);
        }
        (None, Reporting::Unknown) if succeeded => *reporting = Reporting::Absent,
        (None, _) => {}
    }
}
