//! What a disk is in use for in this process: work on it as a whole, or any number of attachments.
//!
//! While a disk is being attached or detached, its deletion fails with [`Fault::Busy`]. Azure would accept the deletion
//! (kubernetes#82714), because the disk counts as unattached until its attach has ended. While it is being made, changed or
//! deleted, its attach fails so too.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lazuli_model::{ArmId, fault::Fault};
use lazuli_storage::whole_disk::Wanted;

use super::VolumeError;

/// The disks that are in use. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Occupied(Arc<Mutex<BTreeMap<ArmId, Use>>>);

/// What a disk is in use for, and by how many requests.
#[derive(Debug)]
enum Use {
    /// Work on it as a whole, of which the first request is named.
    Whole(String, usize),
    /// Attaches and detaches.
    Attachments(usize),
}

impl Use {
    fn count(&mut self) -> &mut usize {
        match self {
            Self::Whole(_, count) | Self::Attachments(count) => count,
        }
    }
}

/// Keeps a disk from the other use until dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    occupied: Occupied,
    disk: ArmId,
}

impl Occupied {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ArmId, Use>> {
        // Every change is a single insertion or removal, so a panic elsewhere leaves the table consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a disk from being attached and detached. Several requests may do so at the same time.
    ///
    /// # Errors
    /// [`Fault::Busy`] while it is being attached or detached.
    pub(crate) fn whole(&self, disk: &ArmId, wanted: &Wanted) -> Result<Hold, VolumeError> {
        match self.lock().entry(disk.clone()).or_insert_with(|| Use::Whole(wanted.to_string(), 0)) {
            Use::Whole(_, count) => *count += 1,
            Use::Attachments(_) => return Err(busy_disk(disk, "it is being attached or detached")),
        }
        Ok(Hold { occupied: self.clone(), disk: disk.clone() })
    }

    /// Keeps a disk from being changed as a whole, for an attach or a detach of it. Several may do so at the same time.
    ///
    /// # Errors
    /// [`Fault::Busy`] while the disk is being made, changed or deleted.
    pub(crate) fn attachment(&self, disk: &ArmId) -> Result<Hold, VolumeError> {
        match self.lock().entry(disk.clone()).or_insert(Use::Attachments(0)) {
            Use::Attachments(count) => *count += 1,
            Use::Whole(goal, _) => return Err(busy_disk(disk, &format!("{goal} is in progress"))),
        }
        Ok(Hold { occupied: self.clone(), disk: disk.clone() })
    }

    /// Whether an attach or a detach of the disk is requested or in flight.
    pub(crate) fn is_attaching_or_detaching(&self, disk: &ArmId) -> bool {
        matches!(self.lock().get(disk), Some(Use::Attachments(_)))
    }
}

fn busy_disk(disk: &ArmId, why: &str) -> VolumeError {
    busy(format_args!("the disk {disk}"), why)
}

/// The failure of a request while something else is being done with what it is about.
pub(crate) fn busy(what: impl fmt::Display, why: &str) -> VolumeError {
    VolumeError::new(Fault::Busy, format!("{what} is busy: {why}"))
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut table = self.occupied.lock();
        if let Some(in_use) = table.get_mut(&self.disk) {
            let count = in_use.count();
            *count -= 1;
            if *count == 0 {
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
}
