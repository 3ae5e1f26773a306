//! File shares as volumes: the accounts that they are in, the shares, and the keys of the accounts.
//!
//! This crate turns decisions of `lazuli-shares` into calls of `lazuli-azure`, each in a task that outlives its caller: one
//! for the accounts of a resource group ([`pool`]), one for each account and each share that is being made or changed
//! ([`account`], [`share`]), and one for what accounts need in the network ([`network`]). It knows nothing of gRPC, and of Kubernetes only the PersistentVolumes that it is given.

mod account;
mod adoption;
mod error;
mod keys;
mod network;
mod pool;
mod regions;
mod share;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use account::Accounts;
use adoption::{Call, Memory};
pub use error::ShareError;
use keys::Keys;
use lazuli_azure::{network::Network, storage::Storage};
use lazuli_journal::Recorder;
use lazuli_model::{
    AccountKey, AllowedResourceGroups, ArmId, Gib, StorageAccount, StorageSku,
    fault::{Code, Fault},
    parameter::ParameterError,
};
use lazuli_quota::permit::Priority;
use lazuli_reconcile::metrics::Metrics;
use lazuli_shares::{
    deletion::{Kept, ShareVolumes, VolumeRef, volume_of},
    limits::DEFAULT_SKU,
    share::{SharePlan, check_modification},
    volume_id::ShareVolumeId,
    work::pool::{Elsewhere, elsewhere},
    work::share::{Done, Wanted},
};
use network::Networks;
use pool::Pools;
use regions::Regions;
use share::{ShareCalls, ShareTasks};
use tokio::sync::watch;

/// What [`Shares`] is made from.
#[derive(Debug)]
pub struct Settings {
    /// The client of the storage provider.
    pub storage: Storage,
    /// The client of the network provider, which is asked for classes with a `networkEndpointType` alone.
    pub network: Network,
    /// The PersistentVolumes of the cluster.
    pub volumes: watch::Receiver<ShareVolumes>,
    /// The name of the driver, which marks the shares that it makes.
    pub driver_name: String,
    /// The subscription of volumes whose id names none.
    pub subscription: String,
    /// The resource group of volumes whose id names none.
    pub resource_group: String,
    /// The resource groups in which shares may be.
    pub allowed_resource_groups: AllowedResourceGroups,
    /// The metrics of the tasks.
    pub metrics: Metrics,
    /// Where it is noted what happens.
    pub journal: Recorder,
}

/// A share that was made, or that existed and fits the claim.
#[derive(Debug, Clone)]
pub struct Created {
    /// Its account.
    pub account: StorageAccount,
    /// Its size.
    pub size: Gib,
}

/// What became of a share whose volume goes.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// There is none any more.
    Gone,
    /// It stays.
    Kept {
        /// Why.
        kept: Kept,
        /// The PersistentVolume of the volume, where it is known.
        volume: Option<String>,
    },
}

/// The file shares of one cluster. Clones share everything.
#[derive(Debug, Clone)]
pub struct Shares {
    shares: ShareTasks,
    pools: Pools,
    accounts: Accounts,
    networks: Networks,
    keys: Keys,
    regions: Regions,
    volumes: watch::Receiver<ShareVolumes>,
    /// The sizes of the shares that this process has made, by their requests.
    made: Arc<Mutex<BTreeMap<String, Gib>>>,
    adopted: Memory,
    subscription: String,
    resource_group: String,
    allowed_resource_groups: AllowedResourceGroups,
}

/// How many requests are remembered. More than a sidecar repeats.
const MOST_REMEMBERED: usize = 10_000;

impl Shares {
    /// The shares of a cluster.
    pub fn new(settings: Settings) -> Self {
        let Settings { storage, network, volumes, driver_name, subscription, resource_group, .. } = settings;
        let Settings { allowed_resource_groups, metrics, journal, .. } = settings;
        let regions = Regions::new(storage);
        let adopted = Memory::begin(volumes.clone());
        let calls =
            ShareCalls { regions: regions.clone(), volumes: volumes.clone(), adopted: adopted.clone(), driver_name };
        let networks = Networks::new(regions.clone(), network, metrics.clone(), journal.clone());
        let accounts = Accounts::new(regions.clone(), networks.clone(), metrics.clone(), journal.clone());
        Self {
            shares: ShareTasks::new(calls, metrics.clone(), journal.clone()),
            pools: Pools::new(regions.clone(), accounts.clone(), metrics, journal),
            keys: Keys::new(regions.clone()),
            accounts,
            networks,
            regions,
            volumes,
            made: Arc::default(),
            adopted,
            subscription,
            resource_group,
            allowed_resource_groups,
        }
    }

    /// Makes the share of a plan, in an account that fits or in one that is made.
    ///
    /// # Errors
    /// What the class asks for and no account has; otherwise Azure's own failures.
    pub async fn create(&self, plan: &Arc<SharePlan>) -> Result<Created, ShareError> {
        if let Some(before) = self.made().get(&plan.request) {
            plan.fits_earlier_try(*before).map_err(|mismatch| {
                let code = mismatch.code();
                ShareError::new(Fault::Invalid, mismatch.to_string()).with_code(code)
            })?;
        }
        let mut tries = 0;
        loop {
            let account = self.pools.account_for(plan).await?;
            let error = match self.create_in(plan, account.clone()).await {
                Ok(created) => return Ok(created),
                Err(error) => error,
            };
            match elsewhere(&error.fault, error.effect, plan, tries) {
                Elsewhere::Full => self.pools.is_full(&account.id, &plan.share),
                Elsewhere::Gone => {
                    self.networks.forget(&account.id);
                    self.pools.is_gone(&account.id);
                }
                Elsewhere::No => return Err(error),
            }
            tries += 1;
        }
    }

    /// Makes the share of a plan in this account, which is reached as the class asks before that.
    async fn create_in(&self, plan: &Arc<SharePlan>, account: StorageAccount) -> Result<Created, ShareError> {
        self.networks.reach(&plan.class.endpoint, &account).await?;
        let spec = plan.spec(account.sku.unwrap_or(DEFAULT_SKU)).map_err(ShareError::parameter)?;
        let share = ArmId::file_share(&account.id, &plan.share).map_err(ShareError::no_id)?;
        // After the account is chosen, which may take half a minute.
        let volumes = self.volumes.borrow().clone().ok_or_else(|| {
            ShareError::new(Fault::Unavailable, "the PersistentVolumes of the cluster are not known yet; retry")
                .with_code(Code::Unavailable)
        })?;
        let persistent_volume = VolumeRef::size_of(&volumes, &plan.request);
        let wanted = Wanted::Made { plan: plan.clone(), spec, persistent_volume };
        let mut adoption = plan.is_read_first().then(|| self.adopted.call(&share, &plan.request));
        match self.shares.request(&share, wanted).await? {
            Done::Size(size) => {
                adoption.iter_mut().for_each(Call::has_share);
                self.remember(&plan.request, size);
                Ok(Created { account, size })
            }
            Done::Gone | Done::Kept(_) => unreachable!("only a deletion leaves no share"),
        }
    }

    /// Deletes the share of a volume, unless something else needs it or nothing proves that a driver made it.
    ///
    /// # Errors
    /// [`Fault::InUse`](lazuli_model::fault::Fault::InUse) naming its snapshots; otherwise Azure's own failures.
    pub async fn delete(&self, volume: ShareVolumeId, prefix: Option<String>) -> Result<Deleted, ShareError> {
        let (account, share) = self.account_and_share_of(&volume)?;
        let volume = Arc::new(volume);
        let wanted = Wanted::Deleted { volume: volume.clone(), share: share.clone(), prefix };
        let done = self.shares.request(&share, wanted).await?;
        self.adopted.forget(&share, &volume.uuid);
        match done {
            Done::Kept(kept) => {
                let volumes = self.volumes.borrow();
                let volume = volumes.as_ref().and_then(|volumes| volume_of(volumes, &volume)).map(str::to_owned);
                Ok(Deleted::Kept { kept, volume })
            }
            Done::Gone | Done::Size(_) => {
                self.made().retain(|request, _| !share.name().eq_ignore_ascii_case(request));
                self.pools.is_freed(&account);
                if self.pools.is_left_out(&account) {
                    // The share is deleted, whatever becomes of the account's tags.
                    self.accounts.match_again(&account).await;
                }
                Ok(Deleted::Gone)
            }
        }
    }

    /// Grows the share of a volume to `required_bytes`, unless it is that large. Returns its size then.
    ///
    /// # Errors
    /// A size that no share has; otherwise Azure's own failures.
    pub async fn expand(
        &self,
        volume: &ShareVolumeId,
        required_bytes: i64,
        limit_bytes: i64,
    ) -> Result<Gib, ShareError> {
        let (account, share) = self.account_and_share_of(volume)?;
        let sku = self.sku(&account).await?;
        match self.shares.request(&share, Wanted::Grown { required_bytes, limit_bytes, sku }).await? {
            Done::Size(size) => Ok(size),
            Done::Gone | Done::Kept(_) => unreachable!("only a deletion leaves no share"),
        }
    }

    /// Gives the share of a volume the performance that a VolumeAttributesClass says.
    ///
    /// # Errors
    /// What such a class cannot change, and what the share cannot have; otherwise Azure's own failures.
    pub async fn modify(&self, volume: &ShareVolumeId, parameters: BTreeMap<String, String>) -> Result<(), ShareError> {
        let (account, share) = self.account_and_share_of(volume)?;
        check_modification(&parameters).map_err(ShareError::parameter)?;
        let sku = self.sku(&account).await?;
        self.shares.request(&share, Wanted::Modified { parameters: Arc::new(parameters), sku }).await.map(drop)
    }

    /// Whether the share of a volume exists.
    ///
    /// # Errors
    /// Azure's own failures but [`Fault::NotFound`](lazuli_model::fault::Fault::NotFound).
    pub async fn exists(&self, volume: &ShareVolumeId) -> Result<bool, ShareError> {
        let (_, share) = self.account_and_share_of(volume)?;
        self.shares.exists(&share).await
    }

    /// The keys of an account, as a read shows them that is a moment old at most.
    ///
    /// # Errors
    /// Azure's own failures.
    pub async fn keys(&self, account: &ArmId) -> Result<Arc<Vec<AccountKey>>, ShareError> {
        self.keys.of(account).await
    }

    fn made(&self) -> MutexGuard<'_, BTreeMap<String, Gib>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, request: &str, size: Gib) {
        let mut made = self.made();
        if made.len() >= MOST_REMEMBERED {
            made.clear();
        }
        made.insert(request.to_owned(), size);
    }

    /// The account of a volume.
    ///
    /// # Errors
    /// A volume id whose parts make no id, and an account in a resource group that is not allowed.
    pub fn account_of(&self, volume: &ShareVolumeId) -> Result<ArmId, ShareError> {
        let account = volume.account_id(&self.subscription, &self.resource_group).map_err(ShareError::no_id)?;
        let cluster = (&*self.subscription, &*self.resource_group);
        let allowed = self.allowed_resource_groups.check((account.subscription(), account.resource_group()), cluster);
        allowed.map_err(|why| ShareError::parameter(ParameterError::invalid("volume_id", volume, why)))?;
        Ok(account)
    }

    fn account_and_share_of(&self, volume: &ShareVolumeId) -> Result<(ArmId, ArmId), ShareError> {
        let share = volume.share_id(&self.subscription, &self.resource_group).map_err(ShareError::no_id);
        Ok((self.account_of(volume)?, share?))
    }

    /// The SKU of an account, which says how large its shares may be.
    async fn sku(&self, account: &ArmId) -> Result<Option<StorageSku>, ShareError> {
        if let Some(known) = self.regions.sku(account) {
            return Ok(known);
        }
        let read = self.regions.read_account(account, Priority::Create).await;
        Ok(read.map_err(|error| ShareError::azure(format!("{account} cannot be read"), error))?.sku)
    }
}

#[cfg(test)]
mod tests;
