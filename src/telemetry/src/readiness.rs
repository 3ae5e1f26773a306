//! Whether the process can do its work, as a set of named conditions.
//!
//! A condition is not ready until its owner says so for the first time. One that tolerates failures stays ready after
//! that until it has failed for so long without a break: a restart or a removal from service cures no outage of a
//! neighbour, and a short one is daily life.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The state of one condition, with a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Fulfilled.
    Ready(String),
    /// Not yet or no longer fulfilled.
    NotReady(String),
}

/// All conditions of the process. Cheap to clone; the clones share their state.
///
/// The process is ready when every declared condition is; a condition is not ready until its owner says so.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    conditions: Arc<Mutex<BTreeMap<&'static str, State>>>,
}

/// The owner's end of one condition.
#[derive(Debug, Clone)]
pub struct Condition {
    name: &'static str,
    all: Readiness,
}

/// What is known of one condition.
#[derive(Debug, Clone)]
struct State {
    verdict: Verdict,
    tolerance: Duration,
    was_ready: bool,
    failing_since: Option<Instant>,
}

impl State {
    fn new(tolerance: Duration) -> Self {
        let verdict = Verdict::NotReady("starting".to_owned());
        Self { verdict, tolerance, was_ready: false, failing_since: None }
    }

    fn set(&mut self, verdict: Verdict, now: Instant) {
        match verdict {
            Verdict::Ready(_) => {
                self.was_ready = true;
                self.failing_since = None;
            }
            Verdict::NotReady(_) => {
                self.failing_since.get_or_insert(now);
            }
        }
        self.verdict = verdict;
    }

    /// Whether the condition counts as fulfilled, and why in words.
    fn at(&self, now: Instant) -> (bool, String) {
        match (&self.verdict, self.failing_since.filter(|_| self.was_ready)) {
            (Verdict::Ready(why), _) => (true, why.clone()),
            (Verdict::NotReady(why), None) => (false, why.clone()),
            (Verdict::NotReady(why), Some(since)) => {
                let (failing, tolerance) = (now - since, self.tolerance);
                let tolerated = failing < tolerance;
                let seconds = failing.as_secs();
                match tolerated {
                    true => (true, format!("failing for {seconds} s, tolerated for {} s: {why}", tolerance.as_secs())),
                    false => (false, format!("failing for {seconds} s: {why}")),
                }
            }
        }
    }
}

impl Readiness {
    /// No conditions: ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a condition, not ready for now, and not ready again as soon as its owner says so.
    pub fn condition(&self, name: &'static str) -> Condition {
        self.tolerant_condition(name, Duration::ZERO)
    }

    /// Declares a condition, not ready for now. Once it was ready it may fail for this long without a break.
    pub fn tolerant_condition(&self, name: &'static str, tolerance: Duration) -> Condition {
        self.lock().entry(name).or_insert_with(|| State::new(tolerance));
        Condition { name, all: self.clone() }
    }

    /// Whether all conditions are ready.
    pub fn is_ready(&self) -> bool {
        let now = Instant::now();
        self.lock().values().all(|state| state.at(now).0)
    }

    /// One line a condition, and a last line with the result.
    pub fn describe(&self) -> (bool, String) {
        let now = Instant::now();
        let mut missing = Vec::new();
        let mut text = String::new();
        for (name, state) in self.lock().iter() {
            let (ready, why) = state.at(now);
            let mark = if ready { "+" } else { "-" };
            if !ready {
                missing.push(*name);
            }
            text.push_str(&format!("[{mark}] {name}: {why}\n"));
        }
        match missing.is_empty() {
            true => text.push_str("ready\n"),
            false => text.push_str(&format!("not ready: {}\n", missing.join(", "))),
        }
        (missing.is_empty(), text)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, State>> {
        // A panic elsewhere leaves the map whole: each change is one insertion.
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Condition {
    /// Sets the state.
    pub fn set(&self, verdict: Verdict) {
        if let Some(state) = self.all.lock().get_mut(self.name) {
            state.set(verdict, Instant::now());
        }
    }

    /// Says that the condition is fulfilled.
    pub fn ready(&self, why: impl Into<String>) {
        self.set(Verdict::Ready(why.into()));
    }

    /// Says that the condition is not fulfilled.
    pub fn not_ready(&self, why: impl Into<String>) {
        self.set(Verdict::NotReady(why.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_all_its_conditions_are() {
        let readiness = Readiness::new();
        assert!(readiness.is_ready());
        let (azure, cluster) = (readiness.condition("azure"), readiness.condition("cluster"));
        assert!(!readiness.is_ready());
        azure.ready("token valid");
        cluster.not_ready("no answer from the API server");
        assert_eq!(
            readiness.describe(),
            (
                false,
                "[+] azure: token valid\n[-] cluster: no answer from the API server\nnot ready: cluster\n".to_owned()
            )
        );
        cluster.clone().ready("synced");
        assert!(readiness.clone().is_ready());
        // Declared again, it keeps its state.
        readiness.condition("cluster");
        assert!(readiness.is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_was_ready_may_fail_for_a_while_and_any_success_ends_that() {
        let readiness = Readiness::new();
        let azure = readiness.tolerant_condition("azure", Duration::from_secs(300));
        azure.not_ready("no token");
        tokio::time::advance(Duration::from_secs(1)).await;
        // A process that never was ready is not, however short its failure.
        assert_eq!(readiness.describe(), (false, "[-] azure: no token\nnot ready: azure\n".to_owned()));
        azure.ready("answers");
        for _ in 0..2 {
            for second in 0..300 {
                azure.not_ready("no route to host");
                let words =
                    format!("[+] azure: failing for {second} s, tolerated for 300 s: no route to host\nready\n");
                assert_eq!(readiness.describe(), (true, words));
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            assert!(!readiness.is_ready());
            let words = "[-] azure: failing for 300 s: no route to host\nnot ready: azure\n".to_owned();
            assert_eq!(readiness.describe(), (false, words));
            azure.ready("answers");
            assert_eq!(readiness.describe(), (true, "[+] azure: answers\nready\n".to_owned()));
        }
        // A condition without tolerance is not ready at once.
        let socket = readiness.condition("socket");
        socket.ready("made");
        socket.not_ready("gone");
        assert!(!readiness.is_ready());
    }
}
