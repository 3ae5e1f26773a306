//! A value for each key, shared by those who use the key at the same time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Values by key. One that is in use is the same for all who ask for its key; one that is not is dropped when another key
/// is asked for.
#[derive(Debug)]
pub struct ByKey<K, V>(Mutex<BTreeMap<K, Arc<V>>>);

impl<K, V> Default for ByKey<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, V: Default> ByKey<K, V> {
    /// The value of a key. It is in use for as long as this is held.
    pub fn of(&self, key: K) -> Arc<V> {
        // A panic elsewhere leaves the map whole: each change is one insertion or removal.
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Values that are not in use are the map's alone.
        values.retain(|other, value| *other == key || Arc::strong_count(value) > 1);
        values.entry(key).or_default().clone()
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_value_in_use_is_one_for_all_and_another_key_drops_those_that_are_not() {
        let values: ByKey<&str, Cell<u32>> = ByKey::default();
        let held = values.of("a");
        held.set(1);
        assert_eq!(values.of("a").get(), 1);
        values.of("b").set(2);
        assert_eq!((values.of("b").get(), values.len()), (2, 2), "the last one is kept for its own key");
        assert_eq!((values.of("a").get(), values.len()), (1, 1));
        drop(held);
        assert_eq!((values.of("c").get(), values.len()), (0, 1));
        assert_eq!(values.of("a").get(), 0);
        assert!(!values.is_empty());
    }
}
