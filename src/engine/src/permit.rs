//! Whether a key has a permit to send a write ([`lazuli_quota::permit`] decides when it gets one).

use super::Id;

/// The permit of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PermitState {
    /// None is asked for.
    #[default]
    None,
    /// The permit of this id is asked for.
    Asked(Id),
    /// The permit of this id is granted and not used.
    Granted(Id),
}

impl PermitState {
    /// Records that a permit was granted. Returns whether it is the one that was asked for.
    pub fn granted(&mut self, id: Id) -> bool {
        let asked = *self == Self::Asked(id);
        if asked {
            *self = Self::Granted(id);
        }
        asked
    }

    /// Takes a granted permit for use.
    pub fn take(&mut self) -> Option<Id> {
        let Self::Granted(id) = *self else { return None };
        *self = Self::None;
        Some(id)
    }

    /// Gives up the permit, asked for or granted. Returns its id, if there is one.
    pub fn release(&mut self) -> Option<Id> {
        match std::mem::take(self) {
            Self::None => None,
            Self::Asked(id) | Self::Granted(id) => Some(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_permit_that_was_asked_for_is_used_and_only_once() {
        let mut permit = PermitState::default();
        assert!(!permit.granted(Id(1)));
        permit = PermitState::Asked(Id(2));
        assert!(!permit.granted(Id(1)));
        assert_eq!(permit.take(), None);
        assert!(permit.granted(Id(2)));
        assert_eq!(permit.take(), Some(Id(2)));
        assert_eq!(permit.release(), None);
        permit = PermitState::Asked(Id(3));
        assert_eq!(permit.release(), Some(Id(3)));
        assert!(!permit.granted(Id(3)));
    }
}
