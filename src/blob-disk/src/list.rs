//! The disks of a cluster, by lists.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt as _, stream};
use lazuli_azure::{
    Until,
    blob::{ListedBlob, Show},
};
use lazuli_model::{BlobUri, StorageAccount};
use lazuli_vhd::{
    accounts::containers_to_list,
    life::{self, Blob, Call},
    shown::{self, SeenDisk},
    work::{Home, pool::Unplaced},
};

use crate::{
    BlobDisks,
    calls::{PATIENCE, account},
    error::{BlobDiskError, CallError},
    found,
};

/// How many accounts are listed at once.
const AT_ONCE: usize = 8;
/// How long the lists of all accounts may take together: those of an account that does not answer by then are missing, and
/// no other account's.
const WITHIN: Duration = Duration::from_secs(8);

/// A disk of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBlobDisk {
    /// Its address.
    pub uri: BlobUri,
    /// The blob.
    pub blob: Blob,
}

/// What people are shown.
#[derive(Debug, Clone, Default)]
pub struct Inspection {
    /// The disks that can be read.
    pub disks: Vec<SeenDisk>,
    /// Accounts and disks that cannot be read, or not whole: the disks of the accounts are missing above.
    pub unreadable: Vec<(String, BlobDiskError)>,
}

/// What lists show.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The disks, in the order of their addresses.
    pub disks: Vec<ListedBlobDisk>,
    /// The accounts whose blobs cannot be listed: their disks are missing here.
    pub unreadable: Vec<(String, BlobDiskError)>,
}

impl BlobDisks {
    /// Lists the disks in the containers that these addresses name, and in the container of disks of every account that
    /// a driver made for disks.
    ///
    /// # Errors
    /// The accounts cannot be listed.
    pub async fn list(&self, handles: impl IntoIterator<Item = BlobUri>) -> Result<Listing, BlobDiskError> {
        let accounts = found(self.pool.all().await)?.map_err(BlobDiskError::unplaced)?;
        let mut listing = Listing::default();
        for (account, listed) in self.lists(&accounts, handles, &Until::within(WITHIN)).await {
            match listed {
                Ok(disks) => listing.disks.extend(disks),
                Err(error) => listing.unreadable.push((account.name().to_owned(), error)),
            }
        }
        listing.disks.sort_by(|one, other| one.uri.cmp(&other.uri));
        Ok(listing)
    }

    /// Looks at the same disks, and at the footer of each.
    ///
    /// # Errors
    /// The accounts cannot be listed.
    pub async fn inspect(&self, handles: impl IntoIterator<Item = BlobUri>) -> Result<Inspection, BlobDiskError> {
        let accounts = found(self.pool.all().await)?.map_err(BlobDiskError::unplaced)?;
        let handles: Vec<BlobUri> = handles.into_iter().collect();
        let mut seen = Inspection { disks: Vec::new(), unreadable: without_account(&accounts, &handles) };
        let mut disks = Vec::new();
        for (account, listed) in self.lists(&accounts, handles, &Until::working(PATIENCE)).await {
            match listed {
                Ok(listed) => disks.extend(listed.into_iter().map(|disk| (account.clone(), disk.uri, disk.blob))),
                Err(error) => seen.unreadable.push((account.name().to_owned(), error)),
            }
        }
        disks.sort_by(|(_, one, _), (_, other, _)| one.cmp(other));
        self.with_footers(disks, &mut seen).await;
        Ok(seen)
    }

    /// Looks at these disks alone.
    ///
    /// # Errors
    /// The accounts cannot be listed.
    pub async fn inspect_alone(&self, disks: impl IntoIterator<Item = BlobUri>) -> Result<Inspection, BlobDiskError> {
        let accounts = found(self.pool.all().await)?.map_err(BlobDiskError::unplaced)?;
        let disks: Vec<BlobUri> = disks.into_iter().collect();
        let mut seen = Inspection { disks: Vec::new(), unreadable: without_account(&accounts, &disks) };
        let in_account = |uri: BlobUri| {
            let account = accounts.iter().find(|account| account.name().eq_ignore_ascii_case(uri.account()))?;
            Some((account.clone(), uri))
        };
        let read: Vec<_> = stream::iter(disks.into_iter().filter_map(in_account))
            .map(|(account, uri)| async move {
                let read = life::read(self.ask(&account, &uri, &Call::ReadBlob).await);
                (account, uri, read)
            })
            .buffered(AT_ONCE)
            .collect()
            .await;
        let mut disks = Vec::new();
        for (account, uri, read) in read {
            match read {
                Ok(blob) => disks.push((account, uri, *blob)),
                Err(failure) => seen.unreadable.push((uri.to_string(), BlobDiskError::life(&uri, failure))),
            }
        }
        self.with_footers(disks, &mut seen).await;
        Ok(seen)
    }

    /// Sends a call that only reads.
    async fn ask(&self, of: &StorageAccount, uri: &BlobUri, call: &Call) -> life::Answer<CallError> {
        let home = account(&Home::of(of));
        self.calls.blobs.call(&home, uri, call, &Until::working(PATIENCE)).await.map_error(CallError::Blob)
    }

    async fn with_footers(&self, disks: Vec<(StorageAccount, BlobUri, Blob)>, seen: &mut Inspection) {
        let read: Vec<_> = stream::iter(disks)
            .map(|(account, uri, blob)| async move {
                let footer = match shown::footer_call(&blob) {
                    Ok(call) => shown::footer_state(&blob, self.ask(&account, &uri, &call).await),
                    Err(state) => Ok(state),
                };
                (SeenDisk { uri, blob, account, footer: footer.as_ref().ok().copied() }, footer.err().flatten())
            })
            .buffered(AT_ONCE)
            .collect()
            .await;
        for (disk, error) in read {
            let error = error.map(|error| BlobDiskError::footer(&disk.uri, error));
            seen.unreadable.extend(error.map(|error| (disk.uri.to_string(), error)));
            seen.disks.push(disk);
        }
    }

    /// Lists containers of accounts. Those that answer pass those that do not.
    async fn lists(
        &self,
        accounts: &[StorageAccount],
        handles: impl IntoIterator<Item = BlobUri>,
        until: &Until,
    ) -> Vec<(StorageAccount, Result<Vec<ListedBlobDisk>, BlobDiskError>)> {
        let places = containers_to_list(accounts, handles);
        let containers = places.into_iter().flat_map(|(account, containers)| {
            containers.into_iter().map(move |container| (account.clone(), container))
        });
        let lists =
            stream::iter(containers).map(|(account, container)| self.list_of(account, container, until.clone()));
        lists.buffer_unordered(AT_ONCE).collect().await
    }

    async fn list_of(
        &self,
        of: StorageAccount,
        container: String,
        until: Until,
    ) -> (StorageAccount, Result<Vec<ListedBlobDisk>, BlobDiskError>) {
        let name = of.name().to_owned();
        let listed = self.calls.blobs.list(&account(&Home::of(&of)), &container, Show::Disks, &until).await;
        let disk = |listed: ListedBlob| {
            let is_disk = listed.snapshot.is_none() && !listed.is_deleted && listed.blob.is_page_blob;
            // What has a name that is no address is no disk of anybody.
            let uri = BlobUri::of(&name, &self.suffix, &container, &listed.name).ok().filter(|_| is_disk)?;
            Some(ListedBlobDisk { uri, blob: listed.blob })
        };
        let disks = listed.map(|blobs| blobs.into_iter().flatten().filter_map(disk).collect());
        let disks = disks.map_err(|error| BlobDiskError::list(&name, &container, error));
        (of, disks)
    }
}

/// The accounts that these addresses name and that there are not.
fn without_account(accounts: &[StorageAccount], addresses: &[BlobUri]) -> Vec<(String, BlobDiskError)> {
    let is_known = |name: &str| accounts.iter().any(|account| account.name().eq_ignore_ascii_case(name));
    let named: BTreeSet<&str> = addresses.iter().map(BlobUri::account).filter(|name| !is_known(name)).collect();
    let missing = |name: &str| BlobDiskError::unplaced(Unplaced::NoAccount(name.to_owned()));
    named.into_iter().map(|name| (name.to_owned(), missing(name))).collect()
}
