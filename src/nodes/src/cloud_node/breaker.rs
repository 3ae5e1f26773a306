//! Slows down when many machines disappear, or stop, at once.
//!
//! A Node that is deleted takes its pods with it, and the taint out-of-service detaches their volumes. When a mistake makes
//! many machines look gone (a role that lost its scope, a region that answers nonsense), a cluster must not vanish in
//! seconds. So each Node asks here first. Those that ask and those that were answered within [`WINDOW`] count: up to a
//! limit all are answered at once. Above it one is answered every [`PACE`], and reads its machine once more before it
//! acts. It never stops: a cluster that did lose its machines is cleaned up, a little later.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use lazuli_engine::earlier;

/// The time between two answers while more machines than the limit are gone.
pub const PACE: Duration = Duration::from_secs(10);
/// A Node that was answered counts for so long.
pub const WINDOW: Duration = Duration::from_secs(600);
/// So many may disappear at once, or a tenth of all Nodes.
pub const LEAST_LIMIT: usize = 10;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A Node asks whether it may act.
    Asked(String),
    /// It does not ask any more.
    Withdrawn(String),
    /// [`State::wake_at`] has come.
    Woke,
    /// The process is about to end.
    Drain,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The Node may act; `reads_again` when it must read its machine once more before.
    Grant {
        /// The Node.
        node: String,
        /// Whether many are gone.
        reads_again: bool,
    },
    /// From now on many machines are gone, or not any more.
    Slow(bool),
    /// After [`Event::Drain`].
    Drained,
}

/// The Nodes that ask, and those that were answered lately.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Since when each asks. A Node that waits longer than the window counts on.
    asking: BTreeMap<String, Duration>,
    /// The answers of the last [`WINDOW`], the oldest first.
    granted: VecDeque<(Duration, String)>,
    /// When a Node was answered last while many were gone.
    paced_at: Option<Duration>,
    slow: bool,
    wake: Option<Duration>,
}

/// How many machines may disappear at once of a cluster of so many Nodes.
pub fn limit(nodes: usize) -> usize {
    LEAST_LIMIT.max(nodes / 10)
}

/// Folds an event and decides. `nodes` is how many Nodes the cluster has.
pub fn step(state: &mut State, nodes: usize, now: Duration, event: Event) -> Vec<Action> {
    match event {
        Event::Asked(node) => {
            state.granted.retain(|(_, other)| *other != node);
            state.asking.entry(node).or_insert(now);
        }
        // One that was answered counts on: it has acted, or was about to.
        Event::Withdrawn(node) => _ = state.asking.remove(&node),
        Event::Woke => {}
        Event::Drain => return vec![Action::Drained],
    }
    state.decide(nodes, now)
}

impl State {
    /// When [`Event::Woke`] is due.
    pub fn wake_at(&self) -> Option<Duration> {
        self.wake
    }

    /// Whether no Node asks, and none was answered lately.
    pub fn is_idle(&self) -> bool {
        self.asking.is_empty() && self.granted.is_empty()
    }

    fn decide(&mut self, nodes: usize, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        while self.granted.front().is_some_and(|(at, _)| *at + WINDOW <= now) {
            self.granted.pop_front();
        }
        let slow = self.asking.len() + self.granted.len() > limit(nodes);
        if slow != self.slow {
            self.slow = slow;
            actions.push(Action::Slow(slow));
        }
        let answered: Vec<String> = if !slow {
            std::mem::take(&mut self.asking).into_keys().collect()
        } else if self.paced_at.is_none_or(|at| at + PACE <= now) {
            let longest = self.asking.iter().min_by_key(|(_, since)| **since).map(|(node, _)| node.clone());
            self.asking.retain(|node, _| Some(node) != longest.as_ref());
            self.paced_at = if longest.is_some() { Some(now) } else { self.paced_at };
            longest.into_iter().collect()
        } else {
            Vec::new()
        };
        for node in answered {
            self.granted.push_back((now, node.clone()));
            actions.push(Action::Grant { node, reads_again: slow });
        }
        self.wake = self.granted.front().map(|(at, _)| *at + WINDOW);
        if !self.asking.is_empty() {
            self.wake = earlier(self.wake, self.paced_at.map_or(now, |at| at + PACE));
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn ask(state: &mut State, nodes: usize, at: u64, node: usize) -> Vec<Action> {
        step(state, nodes, s(at), Event::Asked(format!("n{node:03}")))
    }

    #[test]
    fn up_to_the_limit_all_go_at_once_and_above_it_one_in_ten_seconds_reads_again() {
        assert_eq!((limit(5), limit(99), limit(5_000)), (10, 10, 500));
        let mut state = State::default();
        for node in 0..10 {
            let granted = ask(&mut state, 20, 0, node);
            assert_eq!(granted, [Action::Grant { node: format!("n{node:03}"), reads_again: false }]);
        }
        let first = ask(&mut state, 20, 1, 10);
        assert_eq!(first, [Action::Slow(true), Action::Grant { node: "n010".to_owned(), reads_again: true }]);
        for node in 11..20 {
            assert_eq!(ask(&mut state, 20, 2, node), []);
        }
        let mut granted = Vec::new();
        for _ in 11..20 {
            let at = state.wake_at().unwrap();
            assert_eq!(step(&mut state, 20, at - Duration::from_millis(1), Event::Woke), []);
            granted.extend(step(&mut state, 20, at, Event::Woke));
        }
        // It does not stick: all have gone, and after the window all go at once again.
        assert_eq!(granted.len(), 9);
        let after = state.wake_at().unwrap();
        let mut now = after;
        while !state.is_idle() {
            now = state.wake_at().unwrap();
            step(&mut state, 20, now, Event::Woke);
        }
        assert!(now <= s(1) + PACE * 10 + WINDOW);
        let again = step(&mut state, 20, now, Event::Asked("n".to_owned()));
        assert_eq!(again, [Action::Grant { node: "n".to_owned(), reads_again: false }]);
    }

    /// A region that answers nonsense for an hour: the Nodes that still ask when the first answers are older than the
    /// window do not go at once then.
    #[test]
    fn machines_that_are_still_gone_after_the_window_go_no_faster() {
        const NODES: usize = 200;
        let mut state = State::default();
        let mut granted: Vec<(Duration, bool)> = Vec::new();
        let mut record = |actions: Vec<Action>, at: Duration| {
            granted.extend(actions.into_iter().filter_map(|action| match action {
                Action::Grant { reads_again, .. } => Some((at, reads_again)),
                _ => None,
            }));
        };
        for node in 0..NODES {
            record(ask(&mut state, NODES, 0, node), Duration::ZERO);
        }
        while !state.is_idle() {
            let at = state.wake_at().unwrap();
            record(step(&mut state, NODES, at, Event::Woke), at);
        }
        assert_eq!(granted.len(), NODES);
        let (at_once, paced) = granted.split_at(limit(NODES));
        assert!(at_once.iter().all(|grant| *grant == (Duration::ZERO, false)));
        assert!(paced.iter().all(|(_, reads_again)| *reads_again));
        assert!(paced.windows(2).all(|pair| pair[1].0 - pair[0].0 >= PACE), "{paced:?}");
    }

    #[test]
    fn one_that_withdraws_before_its_answer_does_not_count() {
        let mut state = State::default();
        for node in 0..11 {
            ask(&mut state, 20, 0, node);
        }
        ask(&mut state, 20, 0, 11);
        assert!(state.slow);
        step(&mut state, 20, s(1), Event::Withdrawn("n011".to_owned()));
        assert_eq!(step(&mut state, 20, s(100), Event::Woke), []);
    }
}
