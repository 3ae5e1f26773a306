//! The search for the one disk of a batch that makes its write fail.

use std::collections::BTreeSet;

use lazuli_model::ArmId;

/// Disks of which at least one made a write fail. It is found by at most `log2(n)` further writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bisection(BTreeSet<ArmId>);

/// What the next write may contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BisectionStep {
    /// No bisection is under way: the next write may contain every disk.
    Unrestricted,
    /// The next write may contain these disks only.
    Try(BTreeSet<ArmId>),
    /// This disk makes writes fail.
    Found(ArmId),
}

impl Bisection {
    /// What the next write may contain.
    pub fn next(&self) -> BisectionStep {
        match self.0.len() {
            0 => BisectionStep::Unrestricted,
            1 => BisectionStep::Found(self.0.first().expect("the set has one disk").clone()),
            n => BisectionStep::Try(self.0.iter().take(n / 2).cloned().collect()),
        }
    }

    /// Whether a disk may be the one that makes writes fail.
    pub fn contains(&self, disk: &ArmId) -> bool {
        self.0.contains(disk)
    }

    /// Records that a write of these disks failed because of one of them.
    pub fn failed(&mut self, members: BTreeSet<ArmId>) {
        self.0 = members;
    }

    /// Records that these disks do not make writes fail, or that nothing is requested of them any more.
    pub fn cleared(&mut self, members: &BTreeSet<ArmId>) {
        self.0.retain(|disk| !members.contains(disk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn disk(n: usize) -> ArmId {
        ArmId::disk("s", "g", &format!("d{n:02}")).unwrap()
    }

    proptest! {
        #[test]
        fn one_failing_disk_is_found_in_log2_n_writes(n in 1usize..64, seed in any::<prop::sample::Index>()) {
            let all: BTreeSet<ArmId> = (0..n).map(disk).collect();
            let failing = all.iter().nth(seed.index(n)).unwrap().clone();
            let mut bisection = Bisection::default();
            bisection.failed(all.clone());
            let mut writes = 0;
            loop {
                match bisection.next() {
                    BisectionStep::Found(found) => {
                        prop_assert_eq!(found, failing);
                        break;
                    }
                    BisectionStep::Try(members) if members.contains(&failing) => bisection.failed(members),
                    BisectionStep::Try(members) => bisection.cleared(&members),
                    BisectionStep::Unrestricted => prop_assert!(false, "the failing disk was cleared"),
                }
                writes += 1;
            }
            prop_assert!(writes <= n.ilog2() + 1);
        }
    }
}
