//! The bound against simulated clients: none beats it, and the ideal one meets it.

use proptest::prelude::*;

use super::*;
use crate::throttle::UPDATE_VM;

/// A bucket as a client meets it, written apart from the one under test: it counts what it gave.
#[derive(Clone, Debug)]
struct Tap {
    tokens: f64,
    capacity: f64,
    per_second: f64,
    at: f64,
}

impl Tap {
    fn new(level: &Level) -> Self {
        Self { tokens: level.tokens, capacity: level.capacity, per_second: level.per_second, at: 0.0 }
    }

    fn fill(&mut self, now: f64) {
        self.tokens = (self.tokens + (now - self.at) * self.per_second).min(self.capacity);
        self.at = now;
    }

    /// The first moment from `now` on at which it gives a token.
    fn opens(&mut self, now: f64) -> f64 {
        self.fill(now.max(self.at));
        self.at + ((1.0 - TOLERANCE - self.tokens) / self.per_second).max(0.0)
    }

    fn take(&mut self, now: f64) {
        self.fill(now);
        self.tokens -= 1.0;
    }
}

/// A client that sends its writes in the order given, each as soon as its buckets allow, and its reads as the
/// operations end. Returns when the last read was answered.
fn run(needs: &[Need], levels: &Levels) -> f64 {
    let mut writes = Tap::new(&levels.writes);
    let mut deletes = Tap::new(&levels.deletes);
    let mut provider = Tap::new(&levels.update_vm);
    let mut reads = Tap::new(&levels.reads);
    let mut ends = Vec::new();
    let (mut last_write, mut last_delete) = (0.0_f64, 0.0_f64);
    for need in needs {
        let (tap, last) = match need.door {
            Door::Deletes => (&mut deletes, &mut last_delete),
            _ => (&mut writes, &mut last_write),
        };
        let mut at = last.max(need.after.as_secs_f64());
        loop {
            let mut open = tap.opens(at);
            if need.policy.is_some() {
                open = open.max(provider.opens(at));
            }
            if open <= at {
                break;
            }
            at = open;
        }
        tap.take(at);
        if need.policy.is_some() {
            provider.take(at);
        }
        *last = at;
        ends.push(at + need.latency.as_secs_f64());
    }
    ends.sort_by(f64::total_cmp);
    let mut now = 0.0_f64;
    for end in ends {
        now = reads.opens(now.max(end));
        reads.take(now);
    }
    now
}

fn share(needs: Vec<Need>, levels: &Levels) -> Share {
    Share { principal: String::new(), needs, levels: levels.clone() }
}

fn level(tokens: f64, capacity: f64, per_second: f64) -> Level {
    Level { tokens, capacity, per_second }
}

prop_compose! {
    fn any_level(capacity: f64, per_second: f64)(share in 0.0..=1.0_f64) -> Level {
        level(share * capacity, capacity, per_second)
    }
}

prop_compose! {
    // Small buckets: what limits is met with few needs.
    fn any_levels()(
        reads in any_level(12.0, 2.5),
        writes in any_level(8.0, 1.0),
        deletes in any_level(8.0, 1.0),
        update_vm in any_level(10.0, 0.8),
        delete_vm in any_level(10.0, 0.8),
    ) -> Levels {
        Levels { reads, writes, deletes, update_vm, delete_vm, ..Levels::full() }
    }
}

fn any_need() -> impl Strategy<Value = Need> {
    (0..3_u8, 0..60_000_u64, prop_oneof![4 => Just(0_u64), 1 => 0..20_000_u64]).prop_map(|(what, latency, after)| {
        Need {
            door: if what == 0 { Door::Deletes } else { Door::Writes },
            policy: (what == 1).then_some(UPDATE_VM.name),
            latency: Duration::from_millis(latency),
            after: Duration::from_millis(after),
        }
    })
}

/// Rounding of durations to nanoseconds, and of sums of floating-point numbers.
const ROUNDING: f64 = 1e-4;

proptest! {
    #[test]
    fn no_client_beats_the_bound(
        needs in proptest::collection::vec(any_need(), 1..80).prop_shuffle(),
        levels in any_levels(),
    ) {
        let share = share(needs.clone(), &levels);
        let bound = of_phase(&[share]).total.as_secs_f64();
        let took = run(&needs, &levels);
        prop_assert!(bound <= took + ROUNDING, "the bound is {bound}, a client took {took}");
        // The longest first, as the ideal client would.
        let mut ordered = needs;
        ordered.sort_by_key(|need| std::cmp::Reverse(need.latency));
        let took = run(&ordered, &levels);
        prop_assert!(bound <= took + ROUNDING, "the bound is {bound}, a client took {took}");
    }

    #[test]
    fn the_bound_is_what_the_ideal_client_takes_when_latencies_are_alike(
        count in 1..120_usize,
        latency in 0..30_000_u64,
        vms in any::<bool>(),
        levels in any_levels(),
    ) {
        let need = Need {
            door: Door::Writes,
            policy: vms.then_some(UPDATE_VM.name),
            latency: Duration::from_millis(latency),
            after: Duration::ZERO,
        };
        let needs = vec![need; count];
        let took = run(&needs, &levels);
        let bound = of_phase(&[share(needs, &levels)]).total.as_secs_f64();
        prop_assert!((bound - took).abs() < ROUNDING, "the bound is {bound}, the ideal client took {took}");
    }

    #[test]
    fn the_bound_is_what_the_ideal_client_takes_when_no_write_waits(
        latencies in proptest::collection::vec(0..60_000_u64, 1..80),
        reads in any_level(12.0, 2.5),
    ) {
        let enough = level(100.0, 100.0, 1.0);
        let levels = Levels { reads, writes: enough, deletes: enough, update_vm: enough, delete_vm: enough, ..Levels::full() };
        let needs: Vec<Need> = latencies
            .into_iter()
            .enumerate()
            .map(|(at, latency)| Need {
                door: if at % 3 == 0 { Door::Deletes } else { Door::Writes },
                policy: None,
                latency: Duration::from_millis(latency),
                after: Duration::ZERO,
            })
            .collect();
        let took = run(&needs, &levels);
        let bound = of_phase(&[share(needs, &levels)]).total.as_secs_f64();
        prop_assert!((bound - took).abs() < ROUNDING, "the bound is {bound}, the ideal client took {took}");
    }

    #[test]
    fn no_client_beats_the_bound_of_a_run_of_phases(
        phases in proptest::collection::vec(proptest::collection::vec(any_need(), 1..30), 1..4),
        levels in any_levels(),
    ) {
        // One client through all phases, its buckets carried on, each phase begun when the one before has ended.
        let mut at = levels.clone();
        let (mut took, mut shares) = (0.0, Vec::new());
        for needs in phases {
            shares.push(vec![share(needs.clone(), &at)]);
            let mut ordered = needs.clone();
            ordered.sort_by_key(|need| std::cmp::Reverse(need.latency));
            let phase = run(&ordered, &at);
            took += phase;
            // At the least what was there, what came, and what was taken.
            let left = |level: &Level, taken: usize| Level {
                tokens: (level.tokens + phase * level.per_second - taken as f64).clamp(0.0, level.capacity),
                ..*level
            };
            let deletes = needs.iter().filter(|need| need.door == Door::Deletes).count();
            at.reads = left(&at.reads, needs.len());
            at.writes = left(&at.writes, needs.len() - deletes);
            at.deletes = left(&at.deletes, deletes);
            at.update_vm = left(&at.update_vm, needs.iter().filter(|need| need.policy.is_some()).count());
        }
        let bound = of_run(&shares).total.as_secs_f64();
        prop_assert!(bound <= took + ROUNDING, "the bound is {bound}, a client took {took}");
    }
}

#[test]
fn empty_buckets_at_the_start_make_the_bound_larger_by_their_refill() {
    let full = Levels::full();
    let needs =
        vec![
            Need { door: Door::Writes, policy: None, latency: Duration::from_millis(2_500), after: Duration::ZERO };
            1_600
        ];
    let bound = |levels: &Levels| of_phase(&[share(needs.clone(), levels)]);
    // 200 at once and 1,400 at 10 a second, 2.5 s each; their reads keep up with 25 a second.
    let of_full = bound(&full);
    assert!((of_full.total.as_secs_f64() - 142.5).abs() < 0.001, "{of_full:?}");
    assert_eq!(of_full.latency, Duration::from_millis(2_500));
    assert_eq!((of_full.necessary_writes, of_full.necessary_deletes, of_full.necessary_reads), (1_600, 0, 1_600));
    let drained = Levels { writes: Level { tokens: 0.0, ..full.writes }, ..full.clone() };
    let of_drained = bound(&drained);
    assert!((of_drained.total.as_secs_f64() - 162.5).abs() < 0.001, "{of_drained:?}");
    assert_eq!(of_drained.with_full_buckets, of_full.total);
}

#[test]
fn without_throttling_only_latency_counts() {
    let needs = vec![
        Need {
            door: Door::Writes,
            policy: Some(UPDATE_VM.name),
            latency: Duration::from_secs(10),
            after: Duration::from_secs(2)
        };
        9_000
    ];
    let bound = of_phase(&[share(needs, &Levels::unlimited())]);
    assert_eq!((bound.total, bound.bucket_wait), (Duration::from_secs(12), Duration::ZERO));
}

#[test]
fn a_bucket_that_is_full_while_another_is_waited_for_gains_nothing() {
    let full = Levels::full();
    let levels = Levels {
        writes: level(0.0, 8.0, 1.0),
        update_vm: level(10.0, 10.0, 0.5),
        reads: Level { tokens: 250.0, ..full.reads },
        ..full
    };
    let need =
        Need { door: Door::Writes, policy: Some(UPDATE_VM.name), latency: Duration::ZERO, after: Duration::ZERO };
    let bound = of_phase(&[share(vec![need; 21], &levels)]).total.as_secs_f64();
    // The first waits a second for the front door. The provider's bucket is full meanwhile: it gives its ten and one
    // every two seconds from then on. With its refill counted from the start it would be 22 s.
    assert!((bound - 23.0).abs() < 0.001, "{bound}");
}
