//! The search for the one member of a batch that makes its write fail.
//!
//! ```text
//!   failed(n members) ──▶ try the first half ──failed──▶ that half is the batch
//!                                            ──cleared─▶ the rest is the batch      until one member is left
//! ```
//!
//! It takes at most `log2(n)` writes, rounded up, and one more for the members that are left.

use std::collections::BTreeSet;

/// Members of which at least one made a write fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bisection<K>(BTreeSet<K>);

/// What the next write may contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BisectionStep<K> {
    /// No bisection is under way: the next write may contain every member.
    Unrestricted,
    /// The next write may contain these members only.
    Try(BTreeSet<K>),
    /// This member makes writes fail.
    Found(K),
}

impl<K> Default for Bisection<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Ord + Clone> Bisection<K> {
    /// What the next write may contain.
    pub fn next_step(&self) -> BisectionStep<K> {
        match self.0.len() {
            0 => BisectionStep::Unrestricted,
            1 => self.0.first().map_or(BisectionStep::Unrestricted, |found| BisectionStep::Found(found.clone())),
            n => BisectionStep::Try(self.0.iter().take(n / 2).cloned().collect()),
        }
    }

    /// Records that a write of these members failed because of one of them.
    pub fn failed(&mut self, members: BTreeSet<K>) {
        self.0 = members;
    }

    /// Whether a member may be the one.
    pub fn contains(&self, member: &K) -> bool {
        self.0.contains(member)
    }

    /// Ends the search: the member was found, or one that may have been it asks for something else now, so that nothing
    /// is proved of the others.
    pub fn end(&mut self) {
        self.0.clear();
    }

    /// Records that these members do not make writes fail.
    pub fn cleared<'a>(&mut self, members: impl IntoIterator<Item = &'a K>)
    where
        K: 'a,
    {
        for member in members {
            self.0.remove(member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn one_failing_member_is_found_in_log2_n_writes(n in 1usize..64, seed in any::<prop::sample::Index>()) {
            let failing = seed.index(n);
            let mut bisection = Bisection::default();
            bisection.failed((0..n).collect());
            let mut writes = 0;
            loop {
                match bisection.next_step() {
                    BisectionStep::Found(found) => {
                        prop_assert_eq!(found, failing);
                        break;
                    }
                    BisectionStep::Try(members) if members.contains(&failing) => bisection.failed(members),
                    BisectionStep::Try(members) => bisection.cleared(&members),
                    BisectionStep::Unrestricted => prop_assert!(false, "the failing member was cleared"),
                }
                writes += 1;
            }
            prop_assert!(writes <= n.next_power_of_two().ilog2());
        }
    }
}
