//! The keys of accounts. They live in memory alone: one read serves a burst of claims. What is old answers nobody, and is
//! dropped when the keys of another account are asked for.

use std::{fmt, sync::Arc, time::Duration};

use lazuli_azure::Until;
use lazuli_model::{AccountKey, ArmId, by_key::ByKey};
use lazuli_quota::permit::Priority;
use tokio::{sync::Mutex, time::Instant};

use crate::{
    ShareError,
    regions::{PATIENCE, Regions},
};

/// How old a read of keys may be. A key that was rotated since is refused by the server, and read again.
const LASTS: Duration = Duration::from_secs(10);

/// How long a failure answers. A lock, a missing right or a missing account would cost a request for each question.
const FAILURE_LASTS: Duration = Duration::from_secs(5);

type Read = Result<Arc<Vec<AccountKey>>, ShareError>;

/// A read, and since when it counts.
type Slot = Mutex<Option<(Instant, Read)>>;

/// The keys of accounts. Clones share them.
#[derive(Clone)]
pub(crate) struct Keys {
    regions: Regions,
    slots: Arc<ByKey<ArmId, Slot>>,
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

    /// The keys of an account, by a read that is [`LASTS`] old at most, or a failure that is [`FAILURE_LASTS`] old at most.
    pub(crate) async fn of(&self, account: &ArmId) -> Read {
        let slot = self.slots.of(account.clone());
        let mut kept = slot.lock().await;
        if let Some((since, read)) = &*kept
            && since.elapsed() <= if read.is_ok() { LASTS } else { FAILURE_LASTS }
        {
            return read.clone();
        }
        let read_at = Instant::now();
        let until = Until::working(PATIENCE);
        let keys = self.regions.of(account).list_keys(account, Priority::Create, &until).await;
        // A failure is as old as its answer, which may have taken long.
        let since = if keys.is_ok() { read_at } else { Instant::now() };
        let read = keys
            .map(Arc::new)
            .map_err(|error| ShareError::azure(format!("the keys of {account} cannot be read"), error));
        *kept = Some((since, read.clone()));
        read
    }
}
