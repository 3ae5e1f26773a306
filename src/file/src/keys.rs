//! The keys of accounts. They live in memory alone, and for a moment: one read serves a burst of claims.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex as SyncMutex, PoisonError},
    time::Duration,
};

use lazuli_azure::Until;
use lazuli_model::{AccountKey, ArmId};
use lazuli_quota::permit::Priority;
use tokio::{sync::Mutex, time::Instant};

use crate::{
    ShareError,
    regions::{PATIENCE, Regions},
};

/// How old a read of keys may be. A key that was rotated since is refused by the server, and read again.
const LASTS: Duration = Duration::from_secs(10);

type Slot = Arc<Mutex<Option<(Instant, Arc<Vec<AccountKey>>)>>>;

/// The keys of accounts. Clones share them.
#[derive(Clone)]
pub(crate) struct Keys {
    regions: Regions,
    slots: Arc<SyncMutex<BTreeMap<ArmId, Slot>>>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

impl Keys {
    pub(crate) fn new(regions: Regions) -> Self {
        Self { regions, slots: Arc::default() }
    }

    /// The keys of an account, by a read that is [`LASTS`] old at most.
    pub(crate) async fn of(&self, account: &ArmId) -> Result<Arc<Vec<AccountKey>>, ShareError> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody holds these, and what they keep is old soon.
            slots.retain(|other, slot| other == account || Arc::strong_count(slot) > 1);
            slots.entry(account.clone()).or_default().clone()
        };
        let mut kept = slot.lock().await;
        if let Some((read_at, keys)) = &*kept
            && read_at.elapsed() <= LASTS
        {
            return Ok(keys.clone());
        }
        let read_at = Instant::now();
        let until = Until::working(PATIENCE);
        let keys = self.regions.of(account).list_keys(account, Priority::Create, &until).await;
        let keys =
            Arc::new(keys.map_err(|error| ShareError::azure(format!("the keys of {account} cannot be read"), error))?);
        *kept = Some((read_at, keys.clone()));
        Ok(keys)
    }
}
