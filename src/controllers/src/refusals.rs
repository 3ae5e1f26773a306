//! What Azure answered when it refused a write, for the events of the Services that asked for it.

use std::collections::BTreeMap;

use lazuli_model::ArmId;

/// Of so many objects the last refusal is kept. A Service may name a new object with each change of its annotations.
const MOST: usize = 512;
/// What is kept of an answer, in bytes: no event is longer.
const LONGEST: usize = 1024;

/// The code and the message of Azure's last refusal of a write, by object.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    by_object: BTreeMap<ArmId, (u64, String)>,
    /// The number of the next refusal.
    next: u64,
}

impl Refusals {
    /// Notes what Azure answered. Of too many the oldest is forgotten: its Service is told what it knows without.
    pub(crate) fn note(&mut self, object: &ArmId, mut answer: String) {
        answer.truncate(answer.floor_char_boundary(LONGEST));
        answer.shrink_to_fit();
        self.by_object.insert(object.clone(), (self.next, answer));
        self.next += 1;
        if self.by_object.len() > MOST {
            let oldest = self.by_object.iter().min_by_key(|(_, (number, _))| *number).map(|(id, _)| id.clone());
            oldest.iter().for_each(|id| _ = self.by_object.remove(id));
        }
    }

    /// What Azure answered last for an object.
    pub(crate) fn of(&self, object: &ArmId) -> String {
        self.by_object.get(object).map(|(_, answer)| answer.clone()).unwrap_or_default()
    }

    /// Of how many objects a refusal is kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_object.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_thousands_of_refusals_the_last_ones_are_kept_and_of_each_no_more_than_an_event_holds() {
        let id = |number: usize| crate::tests::settings().public_ip_id("group", &format!("ip-{number}")).unwrap();
        let mut refusals = Refusals::default();
        refusals.note(&id(0), "first".to_owned());
        for number in 1..5_000 {
            refusals.note(&id(number), format!("{number}: {}", "é".repeat(1_000)));
            // One that is refused again is no old one.
            refusals.note(&id(0), "again".to_owned());
        }
        assert_eq!(refusals.len(), MOST);
        assert_eq!(refusals.of(&id(0)), "again");
        assert!(refusals.of(&id(4_999)).starts_with("4999: é") && refusals.of(&id(4_999)).len() <= LONGEST);
        assert_eq!(refusals.of(&id(1)), "");
    }
}
