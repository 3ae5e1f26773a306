//! What this process knows of disks and of the snapshots that it has asked for ([`Known`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lazuli_model::{ArmId, Disk, Snapshot};
use lazuli_reconcile::Clock;
use lazuli_storage::{
    snapshot::dependents::{Known, Taken},
    whole_snapshot::Wanted,
};

/// What is known. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct KnownDisks {
    clock: Clock,
    known: Arc<Mutex<Known>>,
}

impl KnownDisks {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, known: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // It may be lost at any moment, so half a change of it does no harm.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Known::learn`].
    pub(crate) fn learn(&self, disk: &Disk) {
        self.lock().learn(disk);
    }

    /// See [`Known::forget`].
    pub(crate) fn forget(&self, disk: &ArmId) {
        self.lock().forget(disk);
    }

    /// See [`Known::listed`].
    pub(crate) fn listed(&self, disk: &ArmId, there: &[Snapshot]) {
        self.lock().listed(disk, there);
    }

    /// See [`Known::fills_late`].
    pub(crate) fn fills_late(&self, disk: &ArmId) -> Option<bool> {
        self.lock().fills_late(disk)
    }

    /// See [`Known::asks`].
    pub(crate) fn asks(&self, snapshot: &ArmId, wanted: &Wanted) {
        self.lock().asks(snapshot, wanted, self.clock.now());
    }

    /// See [`Known::taken_of`].
    pub(crate) fn taken_of(&self, disk: &ArmId) -> Vec<Taken> {
        self.lock().taken_of(disk)
    }
}
