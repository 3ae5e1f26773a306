//! Random schedules: numbers that a seed decides, many seeds on all processors, and a count of what they have met.
//!
//! A simulated world is a [`Simulation`]; its tests are [`check_laws`], [`check_mutants`] and [`check_replay`].

use std::{collections::BTreeMap, env, fmt, io::Write as _, ops::Range, thread, time::Duration};

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
fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

/// Runs seeds on all processors. Returns the first that breaks a law, and the counts of what happened.
fn run_many(
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
fn shortest<T: Clone>(incidents: &[T], fails: impl Fn(&[T]) -> bool) -> Vec<T> {
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

/// Incidents and when they come, a line each, in seconds.
pub fn table<T: fmt::Debug>(incidents: &[(Duration, T)]) -> String {
    let rows = incidents.iter().map(|(at, incident)| format!("{:>10.3} {incident:?}", at.as_secs_f64()));
    rows.collect::<Vec<_>>().join("\n")
}

/// How many schedules a test runs, of which these are a quick and a full run.
fn how_many(variable: &str, quick: u64, full: u64) -> u64 {
    number(variable).unwrap_or_else(|| env::var_os("LAZULI_TEST_FULL").map_or(quick, |_| full))
}

/// Prints the counts, so that those of a full run are shown when it passes too.
fn print(counts: &Counts, is_full: bool) {
    let rows: String = counts.iter().map(|(what, count)| format!("{count:>10}  {what}\n")).collect();
    if is_full {
        // Not by `println!`: what a test prints is shown only when it fails.
        std::io::stdout().write_all(rows.as_bytes()).expect("standard output is open");
    } else {
        print!("{rows}");
    }
}

/// Requires that each of these has happened so often.
fn must_have_reached(reached: &[&str], least: u64, counts: &Counts) {
    let count = |what: &str| counts.get(what).copied().unwrap_or_default();
    let rare: Vec<_> = reached.iter().map(|what| (what, count(what))).filter(|(_, count)| *count < least).collect();
    assert!(rare.is_empty(), "reached less than {least} times: {rare:?}");
}

/// What a seed decides: a world, and the incidents in it, of which any can be left out.
pub trait Schedule: Sized {
    /// An incident, with its time.
    type Incident: Clone;

    /// What this seed decides.
    fn new(seed: u64) -> Self;

    /// What happens.
    fn incidents(&self) -> &[Self::Incident];

    /// The same world with these incidents.
    fn with(&self, incidents: &[Self::Incident]) -> Self;

    /// World and incidents, for a reader.
    fn described(&self) -> String;

    /// A shorter schedule that still fails: none of its incidents can be left out ([`shortest`]).
    fn shortened(&self, fails: impl Fn(&Self) -> bool) -> Self {
        self.with(&shortest(self.incidents(), |incidents| fails(&self.with(incidents))))
    }
}

/// An incident of a world that is the same for each seed.
pub trait Incident: Clone + fmt::Debug {
    /// What happens for this seed, and after how many milliseconds.
    fn of(seed: u64) -> Vec<(u64, Self)>;
}

/// The schedule of a world that is the same for each seed.
#[derive(Debug, Clone)]
pub struct Incidents<I> {
    /// The seed of all other numbers.
    pub seed: u64,
    /// What happens, after so many milliseconds.
    pub all: Vec<(u64, I)>,
}

impl<I: Incident> Schedule for Incidents<I> {
    type Incident = (u64, I);

    fn new(seed: u64) -> Self {
        Self { seed, all: I::of(seed) }
    }

    fn incidents(&self) -> &[(u64, I)] {
        &self.all
    }

    fn with(&self, incidents: &[(u64, I)]) -> Self {
        Self { seed: self.seed, all: incidents.to_vec() }
    }

    fn described(&self) -> String {
        format!("{:#?}", self.all)
    }
}

/// A simulated world of which seeds decide the schedules, and laws judge what the code under test does there.
pub trait Simulation {
    /// What a seed decides.
    type Schedule: Schedule;
    /// A distortion of the code under test, or of what it sees. The default distorts nothing.
    type Mutant: Copy + Default + fmt::Debug + Sync;

    /// Names the variables: `LAZULI_{NAME}_SEEDS=N` runs so many schedules, `LAZULI_{NAME}_FROM=S` those from `S` on, and
    /// `LAZULI_{NAME}_SEED=S` one, with its story.
    const NAME: &'static str;
    /// The schedules of a quick run.
    const QUICK: u64;
    /// The schedules of a full run.
    const FULL: u64;
    /// What a full run must have met [`Self::LEAST`] times, and a shorter one as often as [`Self::least`] says.
    const REACHED: &'static [&'static str];
    /// See [`Self::REACHED`].
    const LEAST: u64;

    /// Runs a schedule. The story is kept only where it is asked for.
    fn run(schedule: &Self::Schedule, mutant: Self::Mutant, with_story: bool) -> Outcome;

    /// How often a run of so many schedules must have met each of [`Self::REACHED`].
    fn least(schedules: u64) -> u64 {
        if schedules >= Self::FULL { Self::LEAST } else { schedules * Self::LEAST / Self::FULL }
    }
}

/// What has become of one schedule.
#[derive(Debug)]
pub struct Outcome {
    /// The law that is broken: its name, a colon, and what broke it.
    pub result: Result<(), String>,
    /// What has happened how often.
    pub counts: Counts,
    /// What has happened, in order.
    pub story: Vec<String>,
}

fn broken_law(outcome: &Outcome) -> Option<&str> {
    outcome.result.as_ref().err().map(|why| why.split(':').next().unwrap_or(why))
}

/// The shortest schedule that breaks the law which this seed breaks, with its story.
pub fn explain<S: Simulation>(seed: u64, mutant: S::Mutant) -> String {
    let schedule = S::Schedule::new(seed);
    let first = S::run(&schedule, mutant, false);
    let shortest = match broken_law(&first) {
        Some(law) => schedule.shortened(|schedule| broken_law(&S::run(schedule, mutant, false)) == Some(law)),
        None => schedule,
    };
    let outcome = S::run(&shortest, mutant, true);
    let (schedule, story) = (shortest.described(), outcome.story.join("\n"));
    format!("seed {seed}: {:?}\nschedule, shortened:\n{schedule}\nstory:\n{story}", outcome.result)
}

/// The first of these seeds with which a mutant is noticed, by one of these laws where laws are named, and the counts of
/// what happened until then.
pub fn noticed<S: Simulation>(seeds: Range<u64>, mutant: S::Mutant, laws: &[&str]) -> (Option<(u64, String)>, Counts) {
    run_many(seeds, |seed| {
        let outcome = S::run(&S::Schedule::new(seed), mutant, false);
        let counts =
            laws.is_empty() || laws.iter().any(|law| outcome.result.as_ref().is_err_and(|why| why.starts_with(law)));
        (if counts { outcome.result } else { Ok(()) }, outcome.counts)
    })
}

/// Fails where a schedule breaks a law, or where what must happen does not.
///
/// # Panics
/// Then, with the shortest schedule that does so.
pub fn check_laws<S: Simulation>() {
    let variable = |end: &str| format!("LAZULI_{}_{end}", S::NAME);
    if let Some(seed) = number(&variable("SEED")) {
        println!("{}", explain::<S>(seed, S::Mutant::default()));
        let outcome = S::run(&S::Schedule::new(seed), S::Mutant::default(), false);
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        return;
    }
    let (first, last) = (number(&variable("FROM")).unwrap_or(0), how_many(&variable("SEEDS"), S::QUICK, S::FULL));
    let schedules = last.saturating_sub(first);
    let (failure, counts) = noticed::<S>(first..last, S::Mutant::default(), &[]);
    print(&counts, last >= S::FULL);
    if let Some((seed, _)) = failure {
        panic!("{}", explain::<S>(seed, S::Mutant::default()));
    }
    must_have_reached(S::REACHED, S::least(schedules), &counts);
    println!("{schedules} schedules");
}

/// Fails where a mutant passes so many schedules: then no law notices what it distorts. Only the laws that are named
/// beside a mutant count for it; where none are, all do.
///
/// # Panics
/// Then.
pub fn check_mutants<S: Simulation>(mutants: &[(S::Mutant, &[&str])], schedules: u64) {
    let mut unnoticed = Vec::new();
    for (mutant, laws) in mutants {
        match noticed::<S>(0..schedules, *mutant, laws).0 {
            Some((seed, why)) => println!("{mutant:?}: seed {seed}: {why}"),
            None => unnoticed.push(mutant),
        }
    }
    assert!(unnoticed.is_empty(), "unnoticed in {schedules} schedules: {unnoticed:?}");
}

/// Fails where one seed has two stories, or two seeds one.
///
/// # Panics
/// Then.
pub fn check_replay<S: Simulation>() {
    let of = |seed| S::run(&S::Schedule::new(seed), S::Mutant::default(), true).story;
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
}
