//! When to look how a long-running operation is doing.
//!
//! Azure does not say when an operation will end, and every look costs a read. So a process expects what it has seen:
//! the look that matters is at the expected end, which is the median of that kind of operation, and before anything was
//! seen a published prior. Two kinds of looks surround it:
//!
//! - Before it come *early* looks, from a little before the shortest duration seen lately. Where all operations of a kind
//!   take the same time there are none. Many operations share lists for it; one alone is worth five polls before its
//!   expected end, while reads are plentiful.
//! - After it the looks are a twentieth of the elapsed time apart, and each may be put off a little, so that looks at
//!   many operations can share one list.
//!
//! Where operations share lists, an end is so noticed within about a second or a tenth of the operation's time, whichever
//! is longer. Which looks share a list is decided in [`read`](crate::read).

use std::{collections::VecDeque, time::Duration};

/// A kind of operation whose durations resemble each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A managed disk is made.
    DiskCreate,
    /// A managed disk is changed.
    DiskUpdate,
    /// A managed disk is deleted.
    DiskDelete,
    /// A snapshot of a disk is made. Its content may be copied in the background after that.
    SnapshotCreate,
    /// A snapshot of a disk is deleted.
    SnapshotDelete,
    /// A VM gets data disks, and perhaps loses some.
    VmAttach,
    /// A VM only loses data disks.
    VmDetach,
    /// A load balancer, or one of its backend pools, is made, changed or deleted.
    LoadBalancer,
    /// A network security group is made or changed.
    SecurityGroup,
    /// A public IP address is made, changed or deleted.
    PublicIp,
    /// A network interface is changed.
    Interface,
    /// A private link service is made, changed or deleted.
    PrivateLink,
    /// A route table is made or changed.
    RouteTable,
    /// An extension of a machine is made or changed: the machine runs it.
    Extension,
    /// A storage account is made. All other writes of the storage provider end with their answer.
    StorageAccount,
    /// Anything else.
    Other,
}

impl Kind {
    /// What to expect before anything was seen (source: the published medians, azuredisk pull request 473: create
    /// 2.5 s, delete 5 s, attach 10 s, detach 16 s; an update is taken as a creation, and of snapshots, of which none are
    /// published, both are taken as of disks. Of the network no medians are
    /// published: a load balancer takes 4 s and the others 3 s, as in the emulator. Of extensions none are published
    /// either: half a minute is what their steps add up to. Of storage accounts the only figure is the recorded
    /// `Retry-After` of 17 s: they are taken to need a little longer. The process learns from there).
    pub fn prior(self) -> Duration {
        Duration::from_millis(match self {
            Self::DiskCreate | Self::DiskUpdate | Self::SnapshotCreate => 2_500,
            Self::DiskDelete | Self::SnapshotDelete => 5_000,
            Self::VmAttach => 10_000,
            Self::VmDetach => 16_000,
            Self::LoadBalancer => 4_000,
            Self::SecurityGroup | Self::PublicIp | Self::Interface | Self::PrivateLink | Self::RouteTable => 3_000,
            Self::Extension => 30_000,
            Self::StorageAccount => 20_000,
            Self::Other => 5_000,
        })
    }
}

/// How long past the expected end its look comes: Azure's clock and ours do not start together.
const SLACK: Duration = Duration::from_millis(30);
/// Where early looks by lists begin before enough was seen, as a part of the prior.
const EARLIEST_PART: f64 = 0.3;
/// Where the early polls of one operation alone stand, as parts of what is expected.
const ALONE: [f64; 5] = [0.35, 0.55, 0.72, 0.85, 0.94];
/// Where early looks begin afterwards, as a part of the shortest duration seen: where all take the same time, and where
/// durations spread, for the shortest of a few is not the shortest of all.
const BEFORE_SHORTEST: (f64, f64) = (0.99, 0.75);
/// Durations are taken for equal when the shortest is no less than this part of the expected end.
const SHARP: f64 = 0.9;
/// How many operations must have been seen before the shortest of them bounds the early looks.
const ENOUGH: usize = 5;
/// The least time between two looks at one operation.
const SHORTEST_GAP: Duration = Duration::from_millis(25);
/// The most time between two looks at one operation.
const LONGEST_GAP: Duration = Duration::from_secs(10);
/// The usual least time between two looks, and for how long a look may usually be put off to share a list: for operations
/// of seconds, and for those of which a tenth is about a second.
const GAP: (Duration, Duration) = (Duration::from_millis(400), Duration::from_millis(550));
const PUT_OFF: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(450));
/// From which expected end on operations are of the second kind.
const LONG: Duration = Duration::from_secs(8);
/// For how long the look at the expected end may be put off.
const PUT_OFF_END: Duration = Duration::from_millis(900);

/// How long operations of one kind have taken lately.
#[derive(Debug, Clone, Default)]
pub struct Durations {
    seen: VecDeque<Duration>,
    /// Operations that have begun.
    begun: u64,
}

impl Durations {
    const KEPT: usize = 15;
    /// So many operations, the first, are all asked for their duration.
    const FIRST: u64 = 8;
    /// Of the others, one in so many.
    const SAMPLED: u64 = 16;

    /// Takes note of one operation, by Azure's own start and end where it gives them.
    pub fn record(&mut self, took: Duration) {
        if self.seen.len() == Self::KEPT {
            self.seen.pop_front();
        }
        self.seen.push_back(took);
    }

    /// The median of what was seen lately; `None` before anything was.
    pub fn median(&self) -> Option<Duration> {
        let mut sorted: Vec<Duration> = self.seen.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }

    /// Whether the operation that begins now is to be asked for its duration. An end that a list shows teaches nothing:
    /// it may be as old as the time between two looks.
    pub fn sample(&mut self) -> bool {
        self.begun += 1;
        self.begun <= Self::FIRST || self.begun.is_multiple_of(Self::SAMPLED)
    }

    fn shortest(&self) -> Option<Duration> {
        self.seen.iter().min().copied().filter(|_| self.seen.len() >= ENOUGH)
    }
}

/// What is expected of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectation {
    /// The time of the look at the expected end, since Azure accepted the operation.
    end: Duration,
    /// The time of the first early look.
    earliest: Duration,
    /// Whether that comes from durations that were seen, or from Azure.
    known: Known,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Durations,
    Asked,
}

/// One look at an operation. Times are since Azure accepted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Whether the operation is not expected to have ended.
    pub early: bool,
    /// When it is due.
    pub due: Duration,
    /// Until when it may be put off to share a list with others.
    pub latest: Duration,
}

impl Expectation {
    /// What is expected of an operation that begins now.
    ///
    /// `retry_after` is what Azure asks for on the 2xx that accepts the operation. It is a constant that knows nothing of
    /// this operation, so it delays no look. While nothing was seen it may bring the first one forward.
    pub fn of(kind: Kind, seen: &Durations, retry_after: Option<Duration>) -> Self {
        let end = seen.median().unwrap_or_else(|| kind.prior()) + SLACK;
        let first = end.mul_f64(EARLIEST_PART);
        let (known, earliest) = match (seen.shortest(), seen.median(), retry_after) {
            (Some(shortest), _, _) => {
                let sharp = shortest >= end.mul_f64(SHARP);
                let part = if sharp { BEFORE_SHORTEST.0 } else { BEFORE_SHORTEST.1 };
                (Known::Durations, shortest.mul_f64(part))
            }
            (None, None, Some(asked)) if asked < first => (Known::Asked, asked),
            (None, _, _) => (Known::Nothing, first),
        };
        Self { end, earliest: earliest.max(SHORTEST_GAP), known }
    }

    /// When an operation that shares no looks is polled after the look at `last`, or at first.
    pub fn next_alone(&self, last: Option<Duration>) -> Duration {
        let from = match self.known {
            Known::Nothing => Duration::ZERO,
            Known::Durations | Known::Asked => self.earliest,
        };
        let asked = (self.known == Known::Asked).then_some(self.earliest);
        let early = ALONE.iter().map(|part| self.end.mul_f64(*part)).filter(|at| *at >= from);
        let after = last.map_or(Duration::ZERO, |last| last + SHORTEST_GAP);
        let mut looks = asked.into_iter().chain(early).chain([self.end]);
        looks.find(|at| *at >= after).unwrap_or_else(|| self.next(last).latest)
    }

    /// The look after the one at `last`, or the first.
    pub fn next(&self, last: Option<Duration>) -> Look {
        let usual =
            |usual: Duration, part: Duration| usual.min(self.end / 4).max(part).clamp(SHORTEST_GAP, LONGEST_GAP);
        let elapsed = last.unwrap_or_default();
        let (gap, put_off) = if self.end < LONG { (GAP.0, PUT_OFF.0) } else { (GAP.1, PUT_OFF.1) };
        let due = last.map_or(self.earliest, |last| last + usual(gap, last / 20));
        let latest = due + usual(put_off, elapsed / 33);
        match elapsed < self.end {
            true if latest < self.end => Look { early: true, due, latest },
            true => self.at_end(),
            false => Look { early: false, due, latest },
        }
    }

    /// Whether operations of this kind all take about the same time, so that the look at the expected end shows most
    /// ends.
    pub fn is_sharp(&self) -> bool {
        self.known == Known::Durations && self.earliest >= self.end.mul_f64(SHARP * BEFORE_SHORTEST.0)
    }

    /// The look at the expected end.
    fn at_end(&self) -> Look {
        let put_off = PUT_OFF_END.min(self.end / 2).max(SHORTEST_GAP);
        Look { early: false, due: self.end, latest: self.end + put_off }
    }

    /// The look after the one at `last` that is not early.
    pub fn next_not_early(&self, last: Option<Duration>) -> Look {
        if last.unwrap_or_default() < self.end { self.at_end() } else { self.next(last) }
    }
}

/// How long an operation took that Azure gives no times of, when the look at `elapsed` was the first to show its end and
/// the one at `last` did not. An end that the first look shows counts as the expected one, so that what is expected does
/// not grow by the looks' own delay.
pub fn took(elapsed: Duration, last: Option<Duration>) -> Duration {
    last.map_or_else(|| elapsed.saturating_sub(SLACK), |last| last + elapsed.saturating_sub(last) / 2)
}

/// How long to wait before something that another writer works on is read again, by how long it has been watched: as one
/// operation alone of which nothing is known.
pub fn again(kind: Kind, watched: Duration) -> Duration {
    let next = Expectation::of(kind, &Durations::default(), None).next_alone(Some(watched));
    next.saturating_sub(watched).max(SHORTEST_GAP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(took: impl IntoIterator<Item = u64>) -> Durations {
        let mut durations = Durations::default();
        took.into_iter().for_each(|ms| durations.record(Duration::from_millis(ms)));
        durations
    }

    /// How many looks an operation costs, and how late its end is noticed, when each look comes as late as it may.
    fn looks(expectation: Expectation, takes: Duration) -> (usize, Duration) {
        let (mut last, mut looks) = (None, 0);
        loop {
            let at = expectation.next(last).latest;
            looks += 1;
            if at >= takes {
                return (looks, at - takes);
            }
            last = Some(at);
        }
    }

    #[test]
    fn where_operations_take_the_same_time_one_look_is_enough() {
        for kind in [Kind::DiskCreate, Kind::DiskDelete, Kind::VmAttach, Kind::VmDetach, Kind::Other] {
            let took = u64::try_from(kind.prior().as_millis()).unwrap();
            let expectation = Expectation::of(kind, &seen([took; 5]), None);
            let look = expectation.next(None);
            assert_eq!((look.early, look.due), (false, kind.prior() + SLACK), "{kind:?}");
            assert_eq!(looks(expectation, kind.prior()).0, 1, "{kind:?}");
        }
    }

    #[test]
    fn a_retry_after_on_success_brings_the_first_look_forward_and_delays_none() {
        let first = |seen: &Durations, asked: Option<u64>| {
            Expectation::of(Kind::VmAttach, seen, asked.map(Duration::from_secs)).next(None)
        };
        let none = seen([]);
        assert_eq!(first(&none, Some(17)), first(&none, None));
        assert_eq!(first(&none, Some(0)).due, SHORTEST_GAP);
        let learned = seen([10_000; 5]);
        assert_eq!(first(&learned, Some(0)), first(&learned, None));
        let alone =
            |asked: u64| Expectation::of(Kind::VmAttach, &none, Some(Duration::from_secs(asked))).next_alone(None);
        assert_eq!(alone(0), SHORTEST_GAP);
        assert!(alone(17) > Duration::from_secs(3));
    }

    #[test]
    fn one_operation_alone_costs_six_polls_before_anything_is_known_and_one_afterwards() {
        for kind in [Kind::DiskCreate, Kind::DiskDelete, Kind::VmAttach, Kind::VmDetach, Kind::Other] {
            let took = u64::try_from(kind.prior().as_millis()).unwrap();
            for (seen, most) in [(seen([]), 6), (seen([took; 5]), 1)] {
                let expectation = Expectation::of(kind, &seen, None);
                let (mut at, mut polls) = (expectation.next_alone(None), 1);
                while at < kind.prior() {
                    at = expectation.next_alone(Some(at));
                    polls += 1;
                }
                assert!(polls <= most && at <= kind.prior() + SLACK, "{kind:?}: {polls} polls, {at:?}");
            }
        }
    }

    #[test]
    fn the_look_at_the_expected_end_is_never_early() {
        let expectation = Expectation::of(Kind::VmAttach, &seen([]), None);
        let look = expectation.next_not_early(Some(Duration::from_secs(4)));
        assert_eq!((look.early, look.due), (false, Duration::from_secs(10) + SLACK));
        assert_eq!(expectation.next_not_early(Some(look.due)), expectation.next(Some(look.due)));
    }

    #[test]
    fn the_median_follows_what_was_seen_and_one_straggler_does_not_move_it() {
        let mut durations = seen([4_000, 4_000, 4_000, 120_000, 4_000]);
        assert_eq!(durations.median(), Some(Duration::from_secs(4)));
        for _ in 0..Durations::KEPT {
            durations.record(Duration::from_secs(9));
        }
        assert_eq!(durations.median(), Some(Duration::from_secs(9)));
        assert_eq!(Durations::default().median(), None);
    }

    #[test]
    fn the_first_operations_are_asked_for_their_duration_and_then_a_few() {
        let mut durations = Durations::default();
        assert!((0..8).all(|_| durations.sample()));
        let sampled = (0..160).filter(|_| durations.sample()).count();
        assert_eq!(sampled, 10);
    }

    proptest! {
        #[test]
        fn an_end_is_noticed_within_a_second_or_a_tenth(
            median_ms in 10u64..60_000, takes_ms in 1u64..600_000, enough in any::<bool>(),
        ) {
            let takes = Duration::from_millis(takes_ms);
            let seen = if enough { seen([median_ms, median_ms, takes_ms, median_ms, median_ms]) } else { seen([median_ms]) };
            let expectation = Expectation::of(Kind::VmAttach, &seen, None);
            let (looks, late) = looks(expectation, takes);
            prop_assert!(looks < 200, "{looks} looks");
            let known = takes >= expectation.earliest;
            prop_assert!(!known || late <= Duration::from_secs(1).max(takes / 10), "{late:?} late");
        }

        #[test]
        fn looks_move_forward(median_ms in 1u64..60_000, last_ms in 0u64..600_000, asked_ms in 0u64..20_000) {
            let expectation = Expectation::of(Kind::DiskCreate, &seen([median_ms]), None);
            let last = Duration::from_millis(last_ms);
            for look in [expectation.next(Some(last)), expectation.next_not_early(Some(last))] {
                prop_assert!(look.due > last && look.latest > look.due, "{look:?}");
            }
            let asked = Expectation::of(Kind::DiskCreate, &seen([]), Some(Duration::from_millis(asked_ms)));
            prop_assert!(expectation.next_alone(Some(last)) > last && asked.next_alone(Some(last)) > last);
        }
    }
}
