//! What this process knows of disks and of the snapshots that it has asked for ([`Known`]).

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lazuli_model::{ArmId, Disk, SkuName, Snapshot};
use lazuli_quota::read::{By, Seen};
use lazuli_reconcile::Clock;
use lazuli_storage::{
    snapshot::{
        ListOf,
        dependents::{Known, Taken},
    },
    whole_snapshot::{Done, Wanted},
};
use tokio::time::Instant;

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

    /// The clock by which it is known.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // It may be lost at any moment, so half a change of it does no harm.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Known::learn`].
    pub(crate) fn learn(&self, disk: &Disk, seen: Seen<Instant>) {
        self.lock().learn(disk, seen.by, self.clock.since(seen.sent_at));
    }

    /// See [`Known::learn`]. The end of a write of the disk has shown it now.
    pub(crate) fn written(&self, disk: &Disk) {
        self.lock().learn(disk, By::Single, self.clock.now());
    }

    /// See [`Known::learn_listed`].
    pub(crate) fn learn_listed(&self, disk: &ArmId, sku: Option<SkuName>, sent_at: Duration) {
        self.lock().learn_listed(disk, sku, sent_at);
    }

    /// See [`Known::made`].
    pub(crate) fn made(&self, disk: &Disk) {
        self.lock().made(disk, self.clock.now());
    }

    /// See [`Known::changes`].
    pub(crate) fn changes(&self, disk: &ArmId, to: Option<SkuName>) {
        self.lock().changes(disk, to, self.clock.now());
    }

    /// See [`Known::forget`].
    pub(crate) fn forget(&self, disk: &ArmId) {
        self.lock().forget(disk);
    }

    /// See [`Known::listed`].
    pub(crate) fn listed(&self, disk: &ArmId, of: &ListOf, there: Option<&[Snapshot]>) {
        self.lock().listed(disk, of, there);
    }

    /// See [`Known::subscriptions`].
    pub(crate) fn subscriptions(&self) -> BTreeSet<String> {
        self.lock().subscriptions().clone()
    }

    /// See [`Known::before_deletion`].
    pub(crate) fn before_deletion(&self, disk: &ArmId) -> Option<bool> {
        self.lock().before_deletion(disk, self.clock.now())
    }

    /// See [`Known::asks`].
    pub(crate) fn asks(&self, snapshot: &ArmId, wanted: &Wanted) {
        self.lock().asks(snapshot, wanted, self.clock.now());
    }

    /// See [`Known::ended`].
    pub(crate) fn ended(&self, snapshot: &ArmId, wanted: &Wanted, done: Option<&Done>) {
        self.lock().ended(snapshot, wanted, done, self.clock.now());
    }

    /// See [`Known::taken_of`].
    pub(crate) fn taken_of(&self, disk: &ArmId) -> Vec<Taken> {
        self.lock().taken_of(disk)
    }
}
