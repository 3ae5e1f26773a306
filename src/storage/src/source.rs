//! What a disk was made from, and which reads say so.
//!
//! A node never formats a disk that was made from another. So what is said of a disk must be of this disk, and not of one
//! that had its name before. A single read says it. A list may be older ([`LISTS_LAG`]): it says it of a disk that is
//! attached, where it was sent so long after Azure accepted the attach. Since then the name has been this disk's, for
//! nobody deletes a disk that is attached.

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
    /// What a disk was made from, and `Some(None)` for one that was made empty, if that is known.
    pub fn of(&self, disk: &ArmId) -> Option<Option<String>> {
        self.known.get(disk).cloned()
    }

    /// Azure has accepted the attach of a disk, no later than then, and it has ended.
    pub fn attached(&mut self, disk: &ArmId, since: T) {
        self.attached_since.insert(disk.clone(), since);
    }

    /// A disk was told to leave a machine.
    pub fn detaching(&mut self, disk: &ArmId) {
        self.attached_since.remove(disk);
    }

    /// A disk has been deleted.
    pub fn forget(&mut self, disk: &ArmId) {
        self.known.remove(disk);
        self.attached_since.remove(disk);
    }

    /// Which reads that are sent from now on say what an attached disk was made from.
    pub fn accept(&self, disk: &ArmId, now: T) -> Accept {
        if self.shows_this_disk(disk, now) { Accept::List } else { Accept::Single }
    }

    /// Takes a read of a disk that is attached, and has been since it was [`attached`](Self::attached).
    pub fn learn(&mut self, disk: &Disk, seen: Seen<T>) {
        match seen.by {
            By::Single => drop(self.known.insert(disk.id.clone(), disk.source.clone())),
            By::List if self.shows_this_disk(&disk.id, seen.sent_at) => {
                self.known.insert(disk.id.clone(), disk.source.clone());
            }
            By::List => self.doubt(disk),
        }
    }

    /// Takes a read of a disk that is to be attached.
    pub fn learn_before_attach(&mut self, disk: &Disk, by: By) {
        match by {
            By::Single => drop(self.known.insert(disk.id.clone(), disk.source.clone())),
            By::List => self.doubt(disk),
        }
    }

    /// Where a list differs from what is known, the disk must be read again.
    fn doubt(&mut self, listed: &Disk) {
        if self.known.get(&listed.id).is_some_and(|known| *known != listed.source) {
            self.known.remove(&listed.id);
        }
    }

    /// Whether a list that was sent then shows the disk that has the name now, if that is still attached.
    fn shows_this_disk(&self, disk: &ArmId, sent_at: T) -> bool {
        self.attached_since.get(disk).is_some_and(|since| sent_at >= *since + LISTS_LAG)
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
            ("a list of a disk that another has attached", None, by(By::List, 1_000), false),
            ("a list sent when Azure accepted the attach", Some(50), by(By::List, 50), false),
            ("a list that may show the time before", Some(50), by(By::List, 59), false),
            ("a list that cannot", Some(50), by(By::List, 60), true),
        ] {
            let mut sources = Sources::default();
            if let Some(seconds) = attached_at {
                sources.attached(id, at(seconds));
            }
            let accepted = sources.accept(id, seen.sent_at);
            assert_eq!(accepted == Accept::List, known && seen.by == By::List, "{case}");
            sources.learn(&restored, seen);
            assert_eq!(sources.of(id), known.then(|| Some("snapshot".to_owned())), "{case}");
        }
    }

    #[test]
    fn a_disk_that_was_told_to_leave_or_is_deleted_may_be_another_one_by_its_next_attach() {
        let (empty, restored) = (made_from(None), made_from(Some("snapshot")));
        let mut sources = Sources::default();
        sources.attached(&empty.id, at(0));
        sources.detaching(&empty.id);
        assert_eq!(sources.accept(&empty.id, at(100)), Accept::Single);
        sources.attached(&empty.id, at(100));
        assert_eq!(sources.accept(&empty.id, at(105)), Accept::Single, "a list may show the disk before");
        sources.learn(&empty, by(By::Single, 105));
        assert_eq!(sources.of(&empty.id), Some(None));
        sources.forget(&empty.id);
        assert_eq!((sources.of(&empty.id), sources.accept(&empty.id, at(200))), (None, Accept::Single));
        // A list that shows another one, made from something, is no knowledge, and ends what was known.
        sources.learn(&empty, by(By::Single, 200));
        sources.learn_before_attach(&empty, By::List);
        assert_eq!(sources.of(&empty.id), Some(None));
        sources.learn_before_attach(&restored, By::List);
        assert_eq!(sources.of(&empty.id), None);
    }
}
