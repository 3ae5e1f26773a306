//! Whether the process can do its work, as a set of named conditions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    conditions: Arc<Mutex<BTreeMap<&'static str, Verdict>>>,
}

/// The owner's end of one condition.
#[derive(Debug, Clone)]
pub struct Condition {
    name: &'static str,
    all: Readiness,
}

impl Readiness {
    /// No conditions: ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a condition, not ready for now.
    pub fn condition(&self, name: &'static str) -> Condition {
        self.lock().entry(name).or_insert_with(|| Verdict::NotReady("starting".to_owned()));
        Condition { name, all: self.clone() }
    }

    /// Whether all conditions are ready.
    pub fn is_ready(&self) -> bool {
        self.lock().values().all(|verdict| matches!(verdict, Verdict::Ready(_)))
    }

    /// One line a condition, and a last line with the result.
    pub fn describe(&self) -> (bool, String) {
        let conditions = self.lock();
        let mut ready = true;
        let mut text = String::new();
        for (name, verdict) in conditions.iter() {
            let (mark, why) = match verdict {
                Verdict::Ready(why) => ("+", why),
                Verdict::NotReady(why) => {
                    ready = false;
                    ("-", why)
                }
            };
            text.push_str(&format!("[{mark}] {name}: {why}\n"));
        }
        text.push_str(if ready { "ready\n" } else { "not ready\n" });
        (ready, text)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Verdict>> {
        // A panic elsewhere leaves the map whole: each change is one insertion.
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Condition {
    /// Sets the state.
    pub fn set(&self, verdict: Verdict) {
        self.all.lock().insert(self.name, verdict);
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
            (false, "[+] azure: token valid\n[-] cluster: no answer from the API server\nnot ready\n".to_owned())
        );
        cluster.clone().ready("synced");
        assert!(readiness.clone().is_ready());
        // Declared again, it keeps its state.
        readiness.condition("cluster");
        assert!(readiness.is_ready());
    }
}
