//! The lease of a blob: while a machine has the disk attached, Azure holds one on its blob, without an end (source:
//! Microsoft's page on the errors of deleting attached VHDs).
//!
//! A lease says "attached", and is never broken here: behind it a machine may be writing. Azure refuses changes of a leased
//! blob from whoever does not name the lease (`LeaseIdMissing`), and acquiring a lease changes no ETag. So an If-Match does
//! not see an attach, and the lease does not see a writer without one: both guard each write.

/// What a blob's `x-ms-lease-state` and `x-ms-lease-status` say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lease {
    /// Nobody holds one: `unlocked`, and `available`, `expired` or `broken`.
    Free,
    /// Somebody holds one.
    Held,
    /// Azure says nothing, or a word that is not known. It counts as held.
    Unknown,
}

impl Lease {
    /// Reads the two headers.
    pub fn read(state: Option<&str>, status: Option<&str>) -> Self {
        let is = |header: Option<&str>, words: &[&str]| {
            header.is_some_and(|header| words.iter().any(|word| word.eq_ignore_ascii_case(header)))
        };
        if is(status, &["locked"]) || is(state, &["leased", "breaking"]) {
            Self::Held
        } else if is(status, &["unlocked"]) && is(state, &["available", "expired", "broken"]) {
            Self::Free
        } else {
            Self::Unknown
        }
    }

    /// Whether it is certain that nobody holds one.
    pub fn is_free(self) -> bool {
        self == Self::Free
    }
}

/// What reads of a machine say about a disk of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Machine {
    /// The machine's list of data disks has it.
    ListsIt,
    /// The list does not have it.
    DoesNotListIt,
    /// The machine is gone for certain.
    Gone,
    /// The machine could not be read.
    Unknown,
}

/// Whether a disk is proved to be detached. A machine that is gone, or that does not list the disk, is no proof while a
/// lease is held: the host may still write.
pub fn is_detached(machine: Machine, lease: Lease) -> bool {
    matches!(machine, Machine::Gone | Machine::DoesNotListIt) && lease.is_free()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unlocked_lease_in_a_known_state_is_free() {
        for state in ["available", "expired", "broken", "Available"] {
            assert_eq!(Lease::read(Some(state), Some("unlocked")), Lease::Free, "{state}");
            assert_eq!(Lease::read(Some(state), Some("locked")), Lease::Held, "{state}");
            assert_eq!(Lease::read(Some(state), None), Lease::Unknown, "{state}");
        }
        for state in ["leased", "breaking"] {
            for status in [Some("locked"), Some("unlocked"), None] {
                assert_eq!(Lease::read(Some(state), status), Lease::Held, "{state}");
            }
        }
        for (state, status) in [(None, None), (None, Some("unlocked")), (Some("new"), Some("unlocked"))] {
            assert_eq!(Lease::read(state, status), Lease::Unknown);
        }
    }

    #[test]
    fn a_machine_that_is_gone_proves_nothing_while_a_lease_is_held() {
        for machine in [Machine::ListsIt, Machine::DoesNotListIt, Machine::Gone, Machine::Unknown] {
            for lease in [Lease::Free, Lease::Held, Lease::Unknown] {
                let expected = lease == Lease::Free && matches!(machine, Machine::Gone | Machine::DoesNotListIt);
                assert_eq!(is_detached(machine, lease), expected, "{machine:?} {lease:?}");
            }
        }
    }
}
