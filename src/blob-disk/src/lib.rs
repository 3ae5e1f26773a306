//! Blob disks as volumes: the accounts that they are in, and the page blobs that they are.
//!
//! This crate turns decisions of `lazuli-vhd` into calls of `lazuli-azure`, each in a task that outlives its caller:
//! one for the accounts of the cluster (`pool`), one for each account that is being made (`account`), and one for each
//! disk that is being made, grown or deleted (`disk`). It knows nothing of gRPC and of Kubernetes.

mod account;
mod calls;
mod disk;
mod error;
mod list;
mod notes;
mod pool;

use std::time::{SystemTime, UNIX_EPOCH};

use calls::{Calls, PATIENCE};
use disk::Disks;
use lazuli_azure::{Until, blob::Blobs, storage::Storage};
use lazuli_journal::{Key, Recorder, Word};
use lazuli_model::{AllowedResourceGroups, ArmId, BlobUri, parameter::ParameterError};
use lazuli_reconcile::metrics::Metrics;
use lazuli_vhd::{
    accounts::{self, CONTAINER},
    class::{BlobClass, expansion},
    footer::{time_stamp, unique_id},
    life::{self, Blob, Call, CreateSpec, DeleteSpec, Deleted, ExpandSpec},
    work::{
        Home,
        disk::{Done, Ending, Request, Sent, Wanted, are_missing},
        pool::{Cluster, Unplaced},
    },
};
use pool::Pool;

pub use error::{BlobDiskError, CallError};
pub use list::{Inspection, ListedBlobDisk, Listing};

/// What [`BlobDisks`] is made from.
#[derive(Debug)]
pub struct Settings {
    /// The client of the storage provider.
    pub storage: Storage,
    /// The client of page blobs.
    pub blobs: Blobs,
    /// The domain of the storage services of the cloud: `core.windows.net`.
    pub suffix: String,
    /// Whether the cloud is Azure Stack Hub.
    pub is_stack_hub: bool,
    /// The subscription of the cluster.
    pub subscription: String,
    /// The resource group of the cluster, in which accounts are made.
    pub resource_group: String,
    /// The resource groups, besides the cluster's own, in which disks may be.
    pub allowed_resource_groups: AllowedResourceGroups,
    /// The name of the cluster, where its configuration has one.
    pub cluster_name: String,
    /// The metrics of the tasks.
    pub metrics: Metrics,
    /// Where it is noted what happens.
    pub journal: Recorder,
}

/// A disk that was made, or that existed and is the one that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its address.
    pub uri: BlobUri,
    /// Its size.
    pub size_bytes: u64,
}

/// A disk, as a read shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobSeen {
    /// The ARM id of its account.
    pub account: ArmId,
    /// The region of its account.
    pub location: String,
    /// The blob: its version, length, lease and metadata.
    pub blob: Blob,
}

/// The blob disks of one cluster. Clones share everything.
#[derive(Debug, Clone)]
pub struct BlobDisks {
    calls: Calls,
    pool: Pool,
    disks: Disks,
    suffix: String,
    cluster: Cluster,
    allowed_resource_groups: AllowedResourceGroups,
    journal: Recorder,
}

/// Seconds since 1970, for the footers of new disks.
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl BlobDisks {
    /// The disks of a cluster.
    pub fn new(settings: Settings) -> Self {
        let Settings { storage, blobs, suffix, is_stack_hub, subscription, resource_group, cluster_name, .. } =
            settings;
        let Settings { allowed_resource_groups, metrics, journal, .. } = settings;
        let name = accounts::cluster_key(&subscription, &resource_group, &cluster_name);
        let cluster = Cluster { name, is_stack_hub };
        let calls = Calls { storage, blobs, subscription, resource_group };
        Self {
            pool: Pool::new(calls.clone(), cluster.clone(), metrics.clone(), journal.clone()),
            disks: Disks::new(calls.clone(), metrics, journal.clone()),
            calls,
            suffix,
            cluster,
            allowed_resource_groups,
            journal,
        }
    }

    /// Makes the disk of a class, in an account that fits or in one that is made. `request` is the name of the request:
    /// a repeated one finds its disk.
    ///
    /// # Errors
    /// What the class asks for and no account has; a disk of the name that is not this one; Azure's own failures.
    pub async fn create(&self, class: &BlobClass, request: &str) -> Result<Made, BlobDiskError> {
        // Until it has an account, it is known by its name alone.
        let key = Key::blob_name(&class.blob);
        self.journal.note(&key, Word::AwaitsAccount);
        let placed = self.pool.place(accounts::Request::of(class)).await;
        let home = found(placed)?.map_err(|unplaced| BlobDiskError::unplaced_creation(unplaced, &class.place))?;
        self.journal.note(&key, Word::PlacedIn.about(Key::storage_account(&home.id)));
        let uri = BlobUri::of(home.id.name(), &self.suffix, CONTAINER, &class.blob)
            .map_err(|error| BlobDiskError::address(&error))?;
        let wanted = Wanted::Made(CreateSpec {
            mark: life::mark(&self.cluster.name, request),
            size: class.size.bytes(),
            accepted: class.accepted.clone(),
            unique_id: unique_id(uri.as_str()),
            time_stamp: time_stamp(unix_seconds()),
        });
        self.journal.note(&key, Word::AwaitsBlob.about(Key::blob(&uri)));
        let made = self.request(&uri, wanted, home).await.map_err(|error| error.in_account_of(&class.place));
        // Nothing was asked of it under its address.
        self.journal.note(&Key::blob(&uri), Word::AwaitsNothing);
        Ok(Made { size_bytes: made.map(|done| size(&done))?, uri })
    }

    /// Whether an earlier try of the request of a class has begun its disk: in this process, or so that Azure shows it.
    ///
    /// # Errors
    /// Azure's own failures, but for those of accounts whose blobs this identity may not list.
    pub async fn is_begun(&self, class: &BlobClass) -> Result<bool, BlobDiskError> {
        let account = found(self.pool.earlier(accounts::Request::of(class)).await)?;
        account
            .map(|account| account.is_some())
            .map_err(|unplaced| BlobDiskError::unplaced_creation(unplaced, &class.place))
    }

    /// Deletes a disk, and the account that was made for it alone.
    ///
    /// # Errors
    /// A lease that is held, naming the machine; its snapshots; Azure's own failures.
    pub async fn delete(&self, uri: &BlobUri) -> Result<Deleted, BlobDiskError> {
        let wanted = Wanted::Deleted(DeleteSpec { uri: uri.clone(), cluster: self.cluster.name.clone() });
        let deleted = self.existing(uri, wanted).await.map(|done| match done {
            Done::Deleted(deleted) => deleted,
            Done::Size(_) => unreachable!("a deletion leaves no disk"),
        });
        if let Ok(Deleted::AccountKept(why)) = &deleted {
            tracing::warn!(disk = %uri, account = uri.account(), ?why, "the disk is deleted, and its storage account is kept");
        }
        deleted
    }

    /// Grows a disk to `required_bytes`, unless it is that large. Returns its size then.
    ///
    /// # Errors
    /// A size that no blob disk has; a lease that is held; Azure's own failures.
    pub async fn expand(&self, uri: &BlobUri, required_bytes: i64, limit_bytes: i64) -> Result<u64, BlobDiskError> {
        let size = expansion(required_bytes, limit_bytes, self.cluster.is_stack_hub)
            .map_err(|error| BlobDiskError::parameter(&error))?;
        self.grow(uri, size.bytes()).await
    }

    /// Sees to it that a disk has its footer, which a machine needs. Returns its size.
    ///
    /// # Errors
    /// An end that is no footer and may not be repaired; Azure's own failures.
    pub async fn repair(&self, uri: &BlobUri) -> Result<u64, BlobDiskError> {
        self.grow(uri, 0).await
    }

    /// Reads a disk.
    ///
    /// # Errors
    /// [`life::Why::NoBlob`] and [`life::Why::NoAccount`] where there is none; Azure's own failures.
    pub async fn read(&self, uri: &BlobUri) -> Result<BlobSeen, BlobDiskError> {
        let home = self.home(uri).await?.map_err(|unplaced| self.without_account(uri, unplaced))?;
        let sent = Sent { call: Call::ReadBlob, home: home.clone() };
        let answer = self.calls.send(uri, &sent, None, &Until::working(PATIENCE)).await;
        let read = life::read(answer);
        self.pool.ended(&home.id, uri, Ending::of_read(&read));
        let blob = *read.map_err(|failure| BlobDiskError::life(uri, failure))?;
        Ok(BlobSeen { account: home.id, location: home.location, blob })
    }

    async fn grow(&self, uri: &BlobUri, size: u64) -> Result<u64, BlobDiskError> {
        let spec = ExpandSpec { size, unique_id: unique_id(uri.as_str()), time_stamp: time_stamp(unix_seconds()) };
        self.existing(uri, Wanted::Grown(spec)).await.map(|done| self::size(&done))
    }

    /// The account of an address.
    async fn home(&self, uri: &BlobUri) -> Result<Result<Home, Unplaced<CallError>>, BlobDiskError> {
        uri.check_cloud(&self.suffix).map_err(|error| BlobDiskError::address(&error))?;
        found(self.pool.account(uri.account()).await)
    }

    /// Why a disk cannot be read whose account is not known.
    fn without_account(&self, uri: &BlobUri, unplaced: Unplaced<CallError>) -> BlobDiskError {
        unplaced.failure().map_or_else(BlobDiskError::unplaced, |failure| BlobDiskError::life(uri, failure))
    }

    /// Serves a request for a disk that exists, or should.
    async fn existing(&self, uri: &BlobUri, wanted: Wanted) -> Result<Done, BlobDiskError> {
        match self.home(uri).await? {
            Ok(home) => {
                self.check_group(uri, &wanted, &home)?;
                self.request(uri, wanted, home).await
            }
            Err(unplaced) => {
                let is_gone = unplaced.is_unlisted() && self.is_gone(uri, &wanted).await;
                match unplaced.serve(&wanted, is_gone) {
                    Ok(outcome) => outcome.map_err(|failure| BlobDiskError::life(uri, failure)),
                    Err(unplaced) => Err(BlobDiskError::unplaced(unplaced)),
                }
            }
        }
    }

    /// Whether there is no account of the name wherever it may be, by single reads.
    async fn is_gone(&self, uri: &BlobUri, wanted: &Wanted) -> bool {
        let own = (&*self.calls.subscription, &*self.calls.resource_group);
        let mut reads = Vec::new();
        for (subscription, group) in wanted.may_be_in(own, &self.allowed_resource_groups) {
            reads.push(self.calls.read_account(&subscription, &group, uri.account()).await);
        }
        are_missing(&reads)
    }

    /// Refuses to attach or change what is in a resource group that the operator does not allow. What is there already may go.
    fn check_group(&self, uri: &BlobUri, wanted: &Wanted, home: &Home) -> Result<(), BlobDiskError> {
        if matches!(wanted, Wanted::Deleted(_)) {
            return Ok(());
        }
        let group = (home.id.subscription(), home.id.resource_group());
        let own = (&*self.calls.subscription, &*self.calls.resource_group);
        let checked = self.allowed_resource_groups.check(group, own);
        checked.map_err(|allowed| BlobDiskError::parameter(&ParameterError::invalid("volume_id", uri, allowed)))
    }

    async fn request(&self, uri: &BlobUri, wanted: Wanted, home: Home) -> Result<Done, BlobDiskError> {
        let account = home.id.clone();
        let (ending, outcome) = self.disks.request(uri, Request { wanted, home }).await;
        self.pool.ended(&account, uri, ending);
        outcome
    }
}

fn found<T>(found: pool::Found<T>) -> Result<Result<T, Unplaced<CallError>>, BlobDiskError> {
    found.ok_or_else(|| BlobDiskError::broken_off(&pool::TheAccounts))
}

fn size(done: &Done) -> u64 {
    match done {
        Done::Size(size) => *size,
        Done::Deleted(_) => unreachable!("only a deletion leaves no disk"),
    }
}

#[cfg(test)]
mod tests;
