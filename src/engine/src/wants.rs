//! The newest desired state of each requester of an object, and what the requester was told of it.

use std::collections::BTreeMap;

use super::{Acceptance, Outcome};

/// The wants of an object, by requester.
///
/// Most objects have one requester, and a node of the map has room for eleven: what is kept of each is in a box.
#[derive(Debug, Clone)]
pub struct Wants<K, W, R>(BTreeMap<K, Box<Entry<W, R>>>);

/// The newest want of one requester.
#[derive(Debug, Clone)]
pub struct Entry<W, R> {
    /// What of it is in force: all of it, or once it was done what [`Wants::spend`] leaves of it.
    pub in_force: W,
    /// The number that the requester gave to the want. An outcome carries it back.
    pub generation: u64,
    /// Whether what removes or replaces something for it waits for the operator.
    pub acceptance: Acceptance,
    /// What it wants, as it was told, where less of it is in force.
    unspent: Option<W>,
    told: Option<Outcome<R>>,
    /// Whether a write was sent for it since the requester was last told that it is done.
    written: bool,
}

impl<W, R> Entry<W, R> {
    /// What the requester was told last of this want.
    pub fn told(&self) -> Option<&Outcome<R>> {
        self.told.as_ref()
    }

    /// Whether the last report to the requester was that it is done.
    pub fn is_done(&self) -> bool {
        matches!(self.told, Some(Outcome::Done(_)))
    }
}

impl<K, W, R> Default for Wants<K, W, R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone, W: PartialEq + Clone, R: PartialEq + Clone> Wants<K, W, R> {
    /// Records a want. Returns whether it differs from what was in force. A repeated want is told its outcome again, and
    /// all of it is in force again.
    pub fn request(&mut self, from: K, generation: u64, want: W, acceptance: Acceptance) -> bool {
        let changed = self.0.get(&from).is_none_or(|entry| entry.in_force != want);
        let entry = Entry { in_force: want, generation, acceptance, unspent: None, told: None, written: false };
        self.0.insert(from, Box::new(entry));
        changed
    }

    /// Leaves of a want what `spent` makes of it, until the requester tells one again.
    pub fn spend(&mut self, of: &K, spent: impl FnOnce(&W) -> W) {
        if let Some(entry) = self.0.get_mut(of) {
            let rest = spent(entry.unspent.as_ref().unwrap_or(&entry.in_force));
            if rest != entry.in_force {
                let before = std::mem::replace(&mut entry.in_force, rest);
                entry.unspent.get_or_insert(before);
            }
        }
    }

    /// Forgets a requester.
    pub fn withdraw(&mut self, from: &K) -> bool {
        self.0.remove(from).is_some()
    }

    /// The wants, in order of the requesters.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Entry<W, R>)> {
        self.0.iter().map(|(requester, entry)| (requester, &**entry))
    }

    /// The want of one requester.
    pub fn get(&self, from: &K) -> Option<&Entry<W, R>> {
        self.0.get(from).map(|entry| &**entry)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records that a write was sent that serves a want.
    pub fn written(&mut self, of: &K) {
        if let Some(entry) = self.0.get_mut(of) {
            entry.written = true;
        }
    }

    /// Records an outcome. Returns the generation of the want when the requester is to be told: when the outcome
    /// differs from the one it was told. A want that was done is not told that it waits while a difference is repaired,
    /// but it is told again that it is done: what rests on it may have been refused meanwhile.
    pub fn tell(&mut self, to: &K, outcome: &Outcome<R>) -> Option<u64> {
        let entry = self.0.get_mut(to)?;
        let is_repaired = matches!(outcome, Outcome::Done(_)) && std::mem::take(&mut entry.written);
        match (&entry.told, outcome) {
            _ if is_repaired => {}
            (Some(told), outcome) if told == outcome => return None,
            (Some(Outcome::Done(_)), Outcome::Waiting(_)) => return None,
            _ => {}
        }
        entry.told = Some(outcome.clone());
        Some(entry.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Waiting, *};

    #[test]
    fn a_requester_is_told_each_outcome_once_and_again_when_it_asks_again() {
        let mut wants = Wants::default();
        assert!(wants.request("a", 1, 'x', Acceptance::Given));
        let (done, waiting) = (Outcome::Done('r'), Outcome::Waiting(Waiting::Write));
        assert_eq!(wants.tell(&"a", &waiting), Some(1));
        assert_eq!(wants.tell(&"a", &waiting), None);
        assert_eq!(wants.tell(&"a", &done), Some(1));
        assert_eq!(wants.tell(&"a", &done), None);
        assert_eq!(wants.tell(&"a", &waiting), None, "a difference is being repaired");
        wants.written(&"a");
        assert_eq!(wants.tell(&"a", &waiting), None, "a difference is being repaired");
        assert_eq!(wants.tell(&"a", &done), Some(1), "it is repaired");
        assert_eq!(wants.tell(&"a", &done), None);
        assert_eq!(wants.tell(&"a", &Outcome::Done('s')), Some(1), "another report");
        assert!(!wants.request("a", 2, 'x', Acceptance::Given));
        assert_eq!(wants.tell(&"a", &done), Some(2));
        assert!(wants.request("a", 3, 'y', Acceptance::Given));
        assert_eq!(wants.tell(&"b", &done), None);
        assert!(wants.withdraw(&"a"));
        assert!(wants.is_empty());
    }

    #[test]
    fn a_spent_want_is_in_force_again_when_it_is_told_again() {
        let mut wants: Wants<&str, char, ()> = Wants::default();
        wants.request("a", 1, 'x', Acceptance::Given);
        wants.spend(&"a", |_| 'y');
        assert_eq!(wants.get(&"a").map(|entry| entry.in_force), Some('y'));
        assert!(wants.request("a", 2, 'x', Acceptance::Given), "it asks for more than was in force");
        assert_eq!(wants.get(&"a").map(|entry| entry.in_force), Some('x'));
    }
}
