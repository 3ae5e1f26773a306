//! The client of the storage provider by the region of each account, which is what Azure counts its requests by.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lazuli_azure::{
    Until,
    error::ArmError,
    storage::{RegionStorage, Storage},
};
use lazuli_engine::attempts::Limits;
use lazuli_model::{ArmId, StorageAccount, StorageSku};
use lazuli_quota::permit::Priority;

/// How long a request may take, with its repetitions and without its waits for permits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long the creation of an account may take: it takes about 20 s.
pub(crate) const CREATION: Duration = Duration::from_secs(10 * 60);
/// The accounts whose region is remembered.
const MOST: usize = 10_000;

/// The region and the SKU of accounts that were seen.
type Known = BTreeMap<ArmId, (String, Option<StorageSku>)>;

/// The client, and where accounts are. What is remembered saves reads and waits, and may be lost at any moment.
#[derive(Clone)]
pub(crate) struct Regions {
    storage: Storage,
    known: Arc<Mutex<Known>>,
}

impl fmt::Debug for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Regions").finish_non_exhaustive()
    }
}

impl Regions {
    pub(crate) fn new(storage: Storage) -> Self {
        Self { storage, known: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The client for an account.
    pub(crate) fn of(&self, account: &ArmId) -> RegionStorage {
        let known = self.known().get(account).map(|(location, _)| location.clone());
        self.storage.in_region(known.as_deref())
    }

    /// The SKU of an account that was seen. It never changes between the kinds that decide on sizes.
    pub(crate) fn sku(&self, account: &ArmId) -> Option<Option<StorageSku>> {
        self.known().get(account).map(|(_, sku)| *sku)
    }

    /// Takes in where an account is.
    pub(crate) fn learn(&self, account: &StorageAccount) {
        self.learn_location(&account.id, &account.location, account.sku);
    }

    pub(crate) fn learn_location(&self, account: &ArmId, location: &str, sku: Option<StorageSku>) {
        let mut known = self.known();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(account.clone(), (location.to_owned(), sku));
    }

    /// Reads an account alone.
    pub(crate) async fn read_account(&self, account: &ArmId, priority: Priority) -> Result<StorageAccount, ArmError> {
        let read = self.of(account).get_account(account, priority, &Until::working(PATIENCE)).await?.model;
        self.learn(&read);
        Ok(read)
    }

    /// How often a write is sent and how long it waits in all.
    pub(crate) fn limits(&self) -> Limits {
        let retry = self.storage.arm().retry();
        Limits { tries: retry.tries, longest_wait: retry.longest_wait }
    }

    /// The pause before the next try of a write that has failed so many times.
    pub(crate) fn pause_after(&self, failures: u32) -> Duration {
        self.storage.arm().pause_after(failures)
    }
}
