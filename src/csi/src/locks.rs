//! One operation at a time on a volume.
//!
//! Staging, unstaging and growing exclude everything else on the volume. Publishing to different targets goes on side
//! by side, because kubelet starts several pods of one volume at once. Who finds the volume taken is told so at once
//! (`ABORTED`) and comes back; no call queues.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// An operation on this volume is in progress.
#[derive(Debug, thiserror::Error)]
#[error("an operation on {0} is in progress")]
pub(crate) struct InProgress(pub(crate) String);

/// What is being worked on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Locks(Arc<Mutex<BTreeMap<Key, Users>>>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Volume(String),
    Target(PathBuf),
}

#[derive(Debug, Clone, Copy)]
enum Users {
    One,
    Sharing(usize),
}

/// The right to work on a volume, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    locks: Locks,
    keys: Vec<Key>,
}

impl Locks {
    /// The volume for one operation alone. Ids that differ only in letter case are the same volume.
    pub(crate) fn volume(&self, volume: &str) -> Result<Held, InProgress> {
        let mut held = Held { locks: self.clone(), keys: Vec::new() };
        held.take(Key::Volume(volume.to_ascii_lowercase()), false, volume)?;
        Ok(held)
    }

    /// The target for one operation alone, and the volume with other targets.
    pub(crate) fn target(&self, volume: &str, target: &Path) -> Result<Held, InProgress> {
        let mut held = Held { locks: self.clone(), keys: Vec::new() };
        held.take(Key::Volume(volume.to_ascii_lowercase()), true, volume)?;
        held.take(Key::Target(target.to_owned()), false, volume)?;
        Ok(held)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Users>> {
        // Each change is one insertion or removal: a panic elsewhere leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// The volume, in lower case.
    pub(crate) fn volume(&self) -> &str {
        let volume = self.keys.iter().find_map(|key| match key {
            Key::Volume(volume) => Some(volume.as_str()),
            Key::Target(_) => None,
        });
        volume.unwrap_or_default()
    }

    fn take(&mut self, key: Key, shared: bool, volume: &str) -> Result<(), InProgress> {
        let mut users = self.locks.lock();
        let taken = match users.get(&key) {
            None if shared => Users::Sharing(1),
            None => Users::One,
            Some(Users::Sharing(count)) if shared => Users::Sharing(count + 1),
            Some(_) => return Err(InProgress(volume.to_owned())),
        };
        users.insert(key.clone(), taken);
        drop(users);
        self.keys.push(key);
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut users = self.locks.lock();
        for key in &self.keys {
            match users.get_mut(key) {
                Some(Users::Sharing(count)) if *count > 1 => *count -= 1,
                _ => {
                    users.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_worked_on_once_at_a_time_in_any_spelling() {
        let locks = Locks::default();
        let held = locks.volume("/Disk/A").unwrap();
        assert!(matches!(locks.volume("/disk/a"), Err(InProgress(id)) if id == "/disk/a"));
        assert!(locks.target("/disk/a", Path::new("/t")).is_err());
        locks.volume("/disk/b").unwrap();
        drop(held);
        locks.volume("/disk/a").unwrap();
        assert!(locks.lock().is_empty());
    }

    #[test]
    fn targets_of_a_volume_go_side_by_side_and_each_once() {
        let locks = Locks::default();
        let first = locks.target("a", Path::new("/1")).unwrap();
        let second = locks.target("a", Path::new("/2")).unwrap();
        assert!(locks.target("a", Path::new("/1")).is_err());
        assert!(locks.volume("a").is_err());
        drop(first);
        assert!(locks.volume("a").is_err());
        drop(second);
        locks.volume("a").unwrap();
        assert!(locks.lock().is_empty());
    }
}
