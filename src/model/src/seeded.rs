//! Random schedules: numbers that a seed decides, many seeds on all processors, and a count of what they have met.

use std::{collections::BTreeMap, env, io::Write as _, ops::Range, thread, time::Duration};

/// How often each thing has happened.
pub type Counts = BTreeMap<&'static str, u64>;

/// A source of numbers that the seed alone decides (splitmix64).
#[derive(Debug, Clone)]
pub struct Numbers(u64);

impl Numbers {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x9E37_79B9_7F4A_7C15)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A duration of up to so many milliseconds.
    pub fn ms(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.below(most * 1_000 + 1))
    }
}

/// The number that an environment variable names.
pub fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

/// Runs seeds on all processors. Returns the first that breaks a law, and the counts of what happened.
pub fn run_many(
    seeds: Range<u64>,
    run: impl Fn(u64) -> (Result<(), String>, Counts) + Sync,
) -> (Option<(u64, String)>, Counts) {
    let workers = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let of_worker = |worker: u64| {
        let mut counts = Counts::new();
        for seed in seeds.clone().filter(|seed| seed % workers == worker) {
            let (result, of_seed) = run(seed);
            for (what, count) in of_seed {
                *counts.entry(what).or_default() += count;
            }
            if let Err(why) = result {
                return (Some((seed, why)), counts);
            }
        }
        (None, counts)
    };
    thread::scope(|scope| {
        let of_worker = &of_worker;
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(move || of_worker(worker))).collect();
        let mut first = None;
        let mut all = Counts::new();
        for thread in threads {
            let (failure, counts) = thread.join().expect("a run does not panic");
            first = first.into_iter().chain(failure).min();
            for (what, count) in counts {
                *all.entry(what).or_default() += count;
            }
        }
        (first, all)
    })
}

/// The incidents of a schedule that fails, without those that it fails without: first in halves, at last one by one.
pub fn shortest<T: Clone>(incidents: &[T], fails: impl Fn(&[T]) -> bool) -> Vec<T> {
    let mut shortest = incidents.to_vec();
    let mut part = shortest.len().div_ceil(2);
    while part > 0 {
        let mut from = 0;
        let mut found = false;
        while from < shortest.len() {
            let mut shorter = shortest.clone();
            shorter.drain(from..(from + part).min(shortest.len()));
            if fails(&shorter) {
                shortest = shorter;
                found = true;
            } else {
                from += part;
            }
        }
        if !found || part > 1 {
            part /= 2;
        }
    }
    shortest
}

/// How many schedules a test runs, of which these are a quick and a full run.
pub fn how_many(variable: &str, quick: u64, full: u64) -> u64 {
    number(variable).unwrap_or_else(|| env::var_os("LAZULI_TEST_FULL").map_or(quick, |_| full))
}

/// Prints the counts, so that those of a full run are shown when it passes too.
pub fn print(counts: &Counts, is_full: bool) {
    let rows: String = counts.iter().map(|(what, count)| format!("{count:>10}  {what}\n")).collect();
    if is_full {
        // Not by `println!`: what a test prints is shown only when it fails.
        std::io::stdout().write_all(rows.as_bytes()).expect("standard output is open");
    } else {
        print!("{rows}");
    }
}

/// Requires that each of these has happened so often.
pub fn must_have_reached(reached: &[&str], least: u64, counts: &Counts) {
    let count = |what: &str| counts.get(what).copied().unwrap_or_default();
    let rare: Vec<_> = reached.iter().map(|what| (what, count(what))).filter(|(_, count)| *count < least).collect();
    assert!(rare.is_empty(), "reached less than {least} times: {rare:?}");
}
