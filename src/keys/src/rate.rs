//! How often each node may ask: a burst, then a few times a second.

use std::{collections::HashMap, time::Duration};

/// How many requests a node may make at once: more than the Pods that kubelet starts at a time, each with a few shares.
const BURST: u32 = 64;
/// How long one request takes from the burst.
const EACH: Duration = Duration::from_millis(250);

/// What each node has used. Nodes that have not asked for a while are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Rates(HashMap<String, Duration>);

impl Rates {
    /// Takes one request of a node; `false` where it has asked too often. `now` is any clock that does not go back.
    pub(crate) fn take(&mut self, node: &str, now: Duration) -> bool {
        self.0.retain(|_, paid_until| *paid_until > now);
        let paid_until = self.0.get(node).copied().unwrap_or(now) + EACH;
        if paid_until.saturating_sub(now) > EACH * BURST {
            return false;
        }
        self.0.insert(node.to_owned(), paid_until);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_asks_too_often_waits_and_keeps_no_other_from_asking() {
        let mut rates = Rates::default();
        let taken = (0..1_000).filter(|_| rates.take("n1", Duration::ZERO)).count();
        assert_eq!(taken, 64);
        assert!(rates.take("n2", Duration::ZERO));
        assert!(!rates.take("n1", Duration::from_millis(249)));
        assert!(rates.take("n1", Duration::from_millis(250)) && !rates.take("n1", Duration::from_millis(250)));
        // Over time it gets four in a second, whatever it asks.
        let steps = (0..100_000_u64).map(|step| Duration::from_millis(250 + step));
        assert_eq!(steps.filter(|now| rates.take("n1", *now)).count(), 399);
        // A whole burst is there again, and the other node is forgotten.
        assert_eq!((0..1_000).filter(|_| rates.take("n1", Duration::from_secs(1_000))).count(), 64);
        assert_eq!(rates.0.len(), 1);
    }
}
