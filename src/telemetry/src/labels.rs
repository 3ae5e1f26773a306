//! Values of labels that come from outside, in bounded number.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The value for all that come after the bound is reached.
pub const OTHER: &str = "other";

/// The values that a label has had, at most so many. Later ones are [`OTHER`], so that what a cluster or Azure names cannot
/// fill the memory of this process or of Prometheus. Clones share their values.
#[derive(Debug, Clone)]
pub struct Bounded {
    most: usize,
    known: Arc<Mutex<BTreeSet<Arc<str>>>>,
}

impl Bounded {
    /// No value yet, and at most so many.
    pub fn new(most: usize) -> Self {
        Self { most, known: Arc::default() }
    }

    /// The value as the label shows it.
    pub fn of(&self, value: &str) -> Arc<str> {
        // Every change is complete.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = known.get(value) {
            return value.clone();
        }
        if known.len() >= self.most {
            return OTHER.into();
        }
        let value: Arc<str> = value.into();
        known.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_after_the_bound_are_other_and_the_first_ones_stay() {
        let bounded = Bounded::new(2);
        let shown: Vec<_> = ["a", "b", "c", "a", "d"].map(|value| bounded.clone().of(value).to_string()).to_vec();
        assert_eq!(shown, ["a", "b", "other", "a", "other"]);
    }
}
