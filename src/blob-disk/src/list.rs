//! The disks of a cluster, by lists.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use lazuli_azure::{
    Until,
    blob::{ListedBlob, Show},
};
use lazuli_model::{BlobUri, StorageAccount};
use lazuli_vhd::{accounts::containers_to_list, life::Blob, work::Home};

use crate::{BlobDisks, calls::account, error::BlobDiskError, found};

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
        let places = containers_to_list(&accounts, handles);
        let containers = places.into_iter().flat_map(|(account, containers)| {
            containers.into_iter().map(move |container| (account.clone(), container))
        });
        let until = Until::within(WITHIN);
        // Those that answer pass those that do not.
        let lists: Vec<_> = stream::iter(containers)
            .map(|(account, container)| self.list_of(account, container, until.clone()))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let mut listing = Listing::default();
        for (name, listed) in lists {
            match listed {
                Ok(disks) => listing.disks.extend(disks),
                Err(error) => listing.unreadable.push((name, error)),
            }
        }
        listing.disks.sort_by(|one, other| one.uri.cmp(&other.uri));
        Ok(listing)
    }

    async fn list_of(
        &self,
        of: StorageAccount,
        container: String,
        until: Until,
    ) -> (String, Result<Vec<ListedBlobDisk>, BlobDiskError>) {
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
        (name, disks)
    }
}
