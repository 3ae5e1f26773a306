//! What a disk is in use for in this process: work on it as a whole, any number of attachments, or snapshots that are taken.
//!
//! While a disk is being attached or detached, its deletion fails with [`Fault::Busy`]. Azure would accept the deletion
//! (kubernetes#82714), because the disk counts as unattached until its attach has ended. While it is being made, changed or
//! deleted, its attach fails so too. So does its deletion, and its growth, while a snapshot of it is being taken, and the other
//! way round: Azure would let the snapshot's content go. A disk is attached while snapshots of it are taken.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lazuli_model::{ArmId, BlobUri, DiskId, fault::Fault};
use lazuli_storage::{snapshot::dependents, whole_disk::Wanted, whole_snapshot};

use super::VolumeError;

/// The disks that are in use. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Occupied(Arc<Mutex<BTreeMap<DiskId, Uses>>>);

/// What a disk is in use for.
#[derive(Debug, Default)]
struct Uses {
    /// What the first request for work on it as a whole asks for.
    goal: String,
    /// The requests of each use.
    counts: [usize; 4],
}

/// A use of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Work on it as a whole that leaves its snapshots alone.
    Whole,
    /// Its deletion or its growth.
    WholeAgainstSnapshots,
    /// An attach or a detach.
    Attachment,
    /// A snapshot of it is taken.
    Snapshot,
}

impl Use {
    /// Which other uses there may not be meanwhile.
    fn excludes(self) -> &'static [Use] {
        match self {
            Self::Whole => &[Self::Attachment],
            Self::WholeAgainstSnapshots => &[Self::Attachment, Self::Snapshot],
            Self::Attachment => &[Self::Whole, Self::WholeAgainstSnapshots],
            Self::Snapshot => &[Self::WholeAgainstSnapshots],
        }
    }
}

impl Uses {
    fn has(&self, one: Use) -> bool {
        self.counts[one as usize] > 0
    }

    /// Why it is busy with this.
    fn says(&self, one: Use) -> String {
        match one {
            Use::Whole | Use::WholeAgainstSnapshots => format!("{} is in progress", self.goal),
            Use::Attachment => "it is being attached or detached".to_owned(),
            Use::Snapshot => "a snapshot of it is being taken".to_owned(),
        }
    }
}

/// Keeps a disk from other uses until dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    occupied: Occupied,
    disk: DiskId,
    one: Use,
}

impl Occupied {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<DiskId, Uses>> {
        // Every change is a single insertion or removal, so a panic elsewhere leaves the table consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses a disk. Several requests may have the same use at the same time.
    fn hold(&self, disk: impl Into<DiskId>, one: Use, goal: impl FnOnce() -> String) -> Result<Hold, VolumeError> {
        let disk = disk.into();
        let mut table = self.lock();
        if let Some(uses) = table.get(&disk)
            && let Some(other) = one.excludes().iter().find(|other| uses.has(**other))
        {
            return Err(busy_disk(&disk, &uses.says(*other)));
        }
        let uses = table.entry(disk.clone()).or_default();
        if !uses.has(Use::Whole) && !uses.has(Use::WholeAgainstSnapshots) {
            uses.goal = goal();
        }
        uses.counts[one as usize] += 1;
        Ok(Hold { occupied: self.clone(), disk, one })
    }

    /// Keeps a disk from being attached and detached, and from snapshots where the work may cost those their content. Several
    /// requests may do so at the same time.
    ///
    /// # Errors
    /// [`Fault::Busy`] while it is being attached or detached, or such a snapshot is being taken.
    pub(crate) fn whole(&self, disk: &ArmId, wanted: &Wanted) -> Result<Hold, VolumeError> {
        let one = if wanted.is_against_snapshots() { Use::WholeAgainstSnapshots } else { Use::Whole };
        self.hold(disk, one, || wanted.to_string())
    }

    /// The same of a page blob.
    ///
    /// # Errors
    /// [`Fault::Busy`] while it is being attached or detached.
    pub(crate) fn whole_blob(&self, uri: &BlobUri, work: &str) -> Result<Hold, VolumeError> {
        self.hold(DiskId::Blob(uri.clone()), Use::Whole, || work.to_owned())
    }

    /// Keeps a disk from being changed as a whole, for an attach or a detach of it. Several may do so at the same time.
    ///
    /// # Errors
    /// [`Fault::Busy`] while the disk is being made, changed or deleted.
    pub(crate) fn attachment(&self, disk: impl Into<DiskId>) -> Result<Hold, VolumeError> {
        self.hold(disk, Use::Attachment, String::new)
    }

    /// Keeps the disk of which a snapshot is to be taken from being deleted and from growing. `None` for what takes none.
    ///
    /// # Errors
    /// [`Fault::Busy`] while the disk is being deleted or grown.
    pub(crate) fn snapshot(&self, wanted: &whole_snapshot::Wanted) -> Result<Option<Hold>, VolumeError> {
        dependents::needed_by(wanted).map(|disk| self.hold(disk, Use::Snapshot, String::new)).transpose()
    }

    /// Whether an attach or a detach of the disk is requested or in flight.
    pub(crate) fn is_attaching_or_detaching(&self, disk: impl Into<DiskId>) -> bool {
        self.lock().get(&disk.into()).is_some_and(|uses| uses.has(Use::Attachment))
    }
}

fn busy_disk(disk: &DiskId, why: &str) -> VolumeError {
    busy(format_args!("the disk {disk}"), why)
}

/// The failure of a request while something else is being done with what it is about.
pub(crate) fn busy(what: impl fmt::Display, why: &str) -> VolumeError {
    VolumeError::new(Fault::Busy, format!("{what} is busy: {why}"))
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut table = self.occupied.lock();
        if let Some(uses) = table.get_mut(&self.disk) {
            uses.counts[self.one as usize] -= 1;
            if uses.counts == [0; 4] {
                table.remove(&self.disk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_worked_on_as_a_whole_or_attached_and_detached() {
        let (occupied, disk) = (Occupied::default(), ArmId::disk("s", "g", "d").unwrap());
        let is_busy = |held: Result<Hold, VolumeError>| held.unwrap_err().fault == Fault::Busy;
        let (one, two) = (occupied.attachment(&disk).unwrap(), occupied.attachment(&disk).unwrap());
        assert!(is_busy(occupied.whole(&disk, &Wanted::Deleted)) && occupied.is_attaching_or_detaching(&disk));
        drop(one);
        assert!(is_busy(occupied.whole(&disk, &Wanted::Deleted)));
        drop(two);
        assert!(!occupied.is_attaching_or_detaching(&disk));
        let (one, two) =
            (occupied.whole(&disk, &Wanted::Deleted).unwrap(), occupied.whole(&disk, &Wanted::Deleted).unwrap());
        drop(one);
        let message = occupied.attachment(&disk).unwrap_err().to_string();
        assert!(message.ends_with("is busy: its deletion is in progress"), "{message}");
        drop(two);
        occupied.attachment(&disk).unwrap();
    }

    #[test]
    fn a_snapshot_is_taken_of_an_attached_disk_and_not_of_one_that_goes_or_grows() {
        let (occupied, disk) = (Occupied::default(), ArmId::disk("s", "g", "d").unwrap());
        let taken = || occupied.hold(&disk, Use::Snapshot, String::new);
        let grown = Wanted::Grown {
            before: lazuli_model::Disk::plain(disk.clone(), "local".into()).into(),
            read_at: std::time::Duration::ZERO,
            to: lazuli_model::Gib::new(8),
        };
        let changed = Wanted::Changed { class: Arc::default(), cloud: lazuli_volume::Cloud::Public };
        let (one, attached) = (taken().unwrap(), occupied.attachment(&disk).unwrap());
        drop(attached);
        for wanted in [&Wanted::Deleted, &grown] {
            let message = occupied.whole(&disk, wanted).unwrap_err().to_string();
            assert!(message.ends_with("is busy: a snapshot of it is being taken"), "{message}");
        }
        drop((occupied.whole(&disk, &changed).unwrap(), taken().unwrap(), one));
        for wanted in [&Wanted::Deleted, &grown] {
            let _held = occupied.whole(&disk, wanted).unwrap();
            let message = taken().unwrap_err().to_string();
            assert!(message.ends_with(&format!("is busy: {wanted} is in progress")), "{message}");
        }
        taken().unwrap();
        assert!(occupied.lock().is_empty());
    }
}
