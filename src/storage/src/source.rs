//! What a disk was made from, and which reads say so.
//!
//! A node never formats a disk that was made from another. So what is known of a disk must be of this disk, and not of one
//! that had its name before. A single read shows this disk. A list may be older ([`LISTS_LAG`]): it shows this disk where it
//! was sent so long after Azure accepted the attach that a request came for. Azure deletes no disk that is attached, so no
//! other disk has had the name since.

use std::collections::BTreeMap;

use lazuli_model::{ArmId, Disk};
use lazuli_quota::read::{Accept, By, Seen};

use crate::attach::{LISTS_LAG, Moment};

/// What is known of the disks that were read.
#[derive(Debug, Clone)]
pub struct Sources<T> {
    /// What each was made from; `None` for one that was made empty.
    known: BTreeMap<ArmId, Option<String>>,
    /// Since when those are attached that this process has attached.
    attached_since: BTreeMap<ArmId, T>,
}

impl<T> Default for Sources<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), attached_since: BTreeMap::new() }
    }
}

impl<T: Moment> Sources<T> {
    /// What a disk was made from, and `Some(None)` for one that was made empty, if that is known of the disk that was attached
    /// for a request that came at `requested_at`.
    pub fn of(&self, disk: &ArmId, requested_at: T) -> Option<Option<String>> {
        let is_for_it = self.attached_since.get(disk).is_some_and(|since| *since >= requested_at);
        self.known.get(disk).filter(|_| is_for_it).cloned()
    }

    /// Azure has attached a disk by a write that it had accepted at `since`.
    pub fn attached(&mut self, disk: &ArmId, since: T) {
        self.attached_since.insert(disk.clone(), since);
    }

    /// A write that detaches a disk is sent, or the disk has been deleted: the next disk of the name may be another one.
    pub fn forget(&mut self, disk: &ArmId) {
        self.known.remove(disk);
        self.attached_since.remove(disk);
    }

    /// Which reads that are sent from now on show the disk that was attached for a request that came at `requested_at`.
    pub fn accept(&self, disk: &ArmId, requested_at: T, now: T) -> Accept {
        if self.shows_this_disk(disk, requested_at, now) { Accept::List } else { Accept::Single }
    }

    /// Takes a read of a disk that was attached for a request that came at `requested_at`. Returns what the disk was made
    /// from; `None` where the read does not say it, because the disk is being detached again.
    pub fn learn(&mut self, disk: &Disk, seen: Seen<T>, requested_at: T) -> Option<Option<String>> {
        let is_shown = seen.by == By::Single || self.shows_this_disk(&disk.id, requested_at, seen.sent_at);
        self.learn_before_attach(disk, if is_shown { By::Single } else { By::List });
        is_shown.then(|| disk.source.clone())
    }

    /// Takes a read of a disk that has been created or is to be attached. Where a list differs from what is known, the disk
    /// must be read again.
    pub fn learn_before_attach(&mut self, disk: &Disk, by: By) {
        match by {
            By::Single => drop(self.known.insert(disk.id.clone(), disk.source.clone())),
            By::List if self.known.get(&disk.id).is_some_and(|known| *known != disk.source) => {
                self.known.remove(&disk.id);
            }
            By::List => {}
        }
    }

    /// Whether a list that is sent at `sent_at` shows the disk that was attached for a request of `requested_at`. An attach
    /// before the request proves nothing: another writer may have replaced the disk since.
    fn shows_this_disk(&self, disk: &ArmId, requested_at: T, sent_at: T) -> bool {
        let since = self.attached_since.get(disk);
        since.is_some_and(|since| *since >= requested_at && sent_at >= *since + LISTS_LAG)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn made_from(source: Option<&str>) -> Disk {
        Disk { source: source.map(str::to_owned), ..Disk::unattached("d0") }
    }

    fn by(by: By, seconds: u64) -> Seen<Duration> {
        Seen { by, sent_at: at(seconds) }
    }

    #[test]
    fn a_list_says_what_a_disk_was_made_from_only_where_it_is_younger_than_the_attach() {
        let (restored, empty) = (made_from(Some("snapshot")), made_from(None));
        let id = &empty.id;
        for (case, attached_at, seen, known) in [
            ("a single read", None, by(By::Single, 0), true),
            ("a list of a disk that another replica has attached", None, by(By::List, 1_000), false),
            ("a list of a disk that was attached before the request", Some(39), by(By::List, 1_000), false),
            ("a single read of such a disk", Some(39), by(By::Single, 1_000), true),
            ("a list sent when Azure accepted the attach", Some(50), by(By::List, 50), false),
            ("a list that may show the time before", Some(50), by(By::List, 59), false),
            ("a list that cannot", Some(50), by(By::List, 60), true),
        ] {
            let mut sources = Sources::default();
            if let Some(seconds) = attached_at {
                sources.attached(id, at(seconds));
            }
            let (requested_at, source) = (at(40), Some("snapshot".to_owned()));
            let accepted = sources.accept(id, requested_at, seen.sent_at);
            assert_eq!(accepted == Accept::List, known && seen.by == By::List, "{case}");
            assert_eq!(sources.learn(&restored, seen, requested_at), known.then_some(source), "{case}");
            let is_for_it = known && attached_at.is_some_and(|since| since >= 40);
            assert_eq!(sources.of(id, requested_at), is_for_it.then(|| Some("snapshot".to_owned())), "{case}");
        }
    }

    #[test]
    fn a_disk_that_is_being_detached_or_deleted_may_be_another_one_by_its_next_attach() {
        let (empty, restored) = (made_from(None), made_from(Some("snapshot")));
        let mut sources = Sources::default();
        sources.attached(&empty.id, at(0));
        sources.learn_before_attach(&empty, By::Single);
        assert_eq!((sources.of(&empty.id, at(0)), sources.of(&empty.id, at(1))), (Some(None), None), "an older attach");
        sources.forget(&empty.id);
        assert_eq!(sources.accept(&empty.id, at(0), at(100)), Accept::Single);
        sources.attached(&empty.id, at(100));
        assert_eq!(sources.of(&empty.id, at(0)), None, "what was known before the detach is forgotten");
        assert_eq!(sources.accept(&empty.id, at(0), at(105)), Accept::Single, "a list may show the disk before");
        assert_eq!(sources.learn(&empty, by(By::Single, 105), at(0)), Some(None));
        assert_eq!(sources.of(&empty.id, at(0)), Some(None));
        sources.forget(&empty.id);
        assert_eq!((sources.of(&empty.id, at(0)), sources.accept(&empty.id, at(0), at(200))), (None, Accept::Single));
        // A list that shows another one, made from something, is no knowledge, and ends what was known.
        sources.learn_before_attach(&empty, By::Single);
        sources.attached(&empty.id, at(300));
        sources.learn_before_attach(&empty, By::List);
        assert_eq!(sources.of(&empty.id, at(250)), Some(None));
        sources.learn_before_attach(&restored, By::List);
        assert_eq!(sources.of(&empty.id, at(250)), None);
    }
}
