//! The keys of storage accounts, shared by all who ask about an account.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lazuli_model::{Secret, fault::Fault};
use lazuli_quota::permit::Priority;
use lazuli_vhd::life::Problem;
use tokio::time::Instant;

use super::{Account, error::BlobError};
use crate::{error::ArmError, storage::Storage, until::Until};

/// How long a key is used without asking whether it is one still.
const GOOD_FOR: Duration = Duration::from_secs(600);
/// For how long keys that were read because of a refusal are not read again because of another: what is refused then is
/// not the key.
const NOT_AGAIN_FOR: Duration = Duration::from_secs(30);
/// Above so many accounts, those that nobody asks about are dropped.
const MANY: usize = 256;

/// The keys in memory; clones share them.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    storage: Storage,
    slots: Arc<Mutex<BTreeMap<String, Slot>>>,
    /// How often keys were read.
    readings: Arc<AtomicU64>,
}

/// The lock is held while the keys are read, so that callers of one account share one request.
type Slot = Arc<tokio::sync::Mutex<Option<Held>>>;

#[derive(Debug, Clone)]
struct Held {
    key: Key,
    read: Instant,
    after_refusal: bool,
}

/// A key of an account.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) secret: Secret,
    /// Which of the readings it is of.
    reading: u64,
}

/// No key: what the resource manager says of the account.
pub(super) type NoKey = (Problem, BlobError);

impl Keys {
    pub(super) fn new(storage: Storage) -> Self {
        Self { storage, slots: Arc::default(), readings: Arc::default() }
    }

    pub(super) fn storage(&self) -> &Storage {
        &self.storage
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, account: &Account) -> Slot {
        let mut slots = self.slots();
        if slots.len() > MANY {
            slots.retain(|_, slot| {
                let is_old =
                    slot.try_lock().is_ok_and(|held| held.as_ref().is_none_or(|held| held.read.elapsed() > GOOD_FOR));
                !is_old
            });
        }
        slots.entry(account.id.folded().to_owned()).or_default().clone()
    }

    /// A key that was read lately.
    pub(super) async fn get(&self, account: &Account, until: &Until) -> Result<Key, NoKey> {
        let slot = self.slot(account);
        let mut slot = until.run(slot.lock()).await.map_err(|why| late(account, why.as_str()))?;
        match &*slot {
            Some(held) if held.read.elapsed() < GOOD_FOR => Ok(held.key.clone()),
            _ => self.read(account, &mut slot, false, until).await,
        }
    }

    /// A key other than one that the service has refused; `None` if it was read a moment ago because of a refusal.
    pub(super) async fn other(&self, account: &Account, refused: &Key, until: &Until) -> Result<Option<Key>, NoKey> {
        let slot = self.slot(account);
        let mut slot = until.run(slot.lock()).await.map_err(|why| late(account, why.as_str()))?;
        match &*slot {
            Some(held) if held.key.reading != refused.reading => Ok(Some(held.key.clone())),
            Some(held) if held.after_refusal && held.read.elapsed() < NOT_AGAIN_FOR => Ok(None),
            _ => self.read(account, &mut slot, true, until).await.map(Some),
        }
    }

    /// Has the next caller ask the resource manager, which knows whether there is an account.
    pub(super) fn forget(&self, account: &Account) {
        self.slots().remove(account.id.folded());
    }

    async fn read(
        &self,
        account: &Account,
        slot: &mut Option<Held>,
        after_refusal: bool,
        until: &Until,
    ) -> Result<Key, NoKey> {
        *slot = None;
        let read = Instant::now();
        let region = self.storage.in_region(account.location.as_deref());
        let keys = Box::pin(region.list_keys(&account.id, Priority::Read, until)).await;
        let keys = keys.map_err(|error| refused(account, error))?;
        let Some(key) = keys.into_iter().next() else {
            let fault = Fault::Malformed;
            return Err((Problem::Other(fault.clone()), BlobError::ours(fault, what(account), "there are none")));
        };
        let key = Key { secret: key.value, reading: self.readings.fetch_add(1, Ordering::Relaxed) };
        *slot = Some(Held { key: key.clone(), read, after_refusal });
        Ok(key)
    }
}

fn what(account: &Account) -> String {
    format!("reading the keys of {}", account.id)
}

fn late(account: &Account, why: &'static str) -> NoKey {
    (Problem::Other(Fault::Deadline), BlobError::ours(Fault::Deadline, what(account), why))
}

/// What the resource manager's refusal means. It alone can say that an account is gone.
fn refused(account: &Account, error: ArmError) -> NoKey {
    let problem = match &error.fault {
        Fault::NotFound => Problem::NoAccount,
        fault => Problem::Other(fault.clone()),
    };
    let message = "the resource manager gives none";
    (problem.clone(), BlobError::ours(Fault::Malformed, what(account), message).caused_by(error).sorted(&problem))
}
