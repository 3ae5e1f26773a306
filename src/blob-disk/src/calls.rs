//! The calls to Azure that all tasks share.

use std::{collections::BTreeSet, time::Duration};

use lazuli_azure::{
    Until,
    blob::{Account, Blobs, Show},
    error::{ArmError, Verb},
    permits::Permit,
    storage::{RegionStorage, Storage},
};
use lazuli_engine::{attempts::Limits, single::AzureFailure as _};
use lazuli_model::{ArmId, BlobUri, StorageAccount};
use lazuli_quota::permit::Priority;
use lazuli_vhd::{
    accounts::CONTAINER,
    life::{Answer, Call, Contents, Problem},
    work::{Home, Refused, disk::Sent, pool::Scope},
};
use tokio_util::sync::CancellationToken;

use crate::error::CallError;

/// How long a request may take, with its repetitions and without its waits for permits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The clients, and where the accounts of the cluster are. Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    pub(crate) storage: Storage,
    pub(crate) blobs: Blobs,
    pub(crate) subscription: String,
    pub(crate) resource_group: String,
}

pub(crate) fn account(home: &Home) -> Account {
    Account { id: home.id.clone(), location: Some(home.location.clone()) }
}

fn by_manager(error: ArmError) -> Refused<CallError> {
    Refused::by_manager(CallError::Arm(error))
}

impl Calls {
    pub(crate) fn region(&self, location: &str) -> RegionStorage {
        self.storage.in_region(Some(location))
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

    /// Waits for the permit to delete an account of the cluster's resource group. In which region it counts is not
    /// known here, so it counts in all.
    pub(crate) async fn permit_to_delete(&self, account: &str) -> Result<Permit, Refused<CallError>> {
        let id = ArmId::storage_account(&self.subscription, &self.resource_group, account).map_err(|_| {
            let error = CallError::no_id();
            Refused::new(Problem::Other(error.fault().clone()), error)
        })?;
        let until = Until::cancelled(CancellationToken::new());
        self.storage.in_region(None).permit(Verb::Delete, &id, Priority::Create, &until).await.map_err(by_manager)
    }

    /// Reads an account of this name.
    pub(crate) async fn read_account(
        &self,
        subscription: &str,
        group: &str,
        name: &str,
    ) -> Result<StorageAccount, CallError> {
        let id = ArmId::storage_account(subscription, group, name).map_err(|_| CallError::no_id())?;
        let client = self.storage.in_region(None);
        let read = client.get_account(&id, Priority::Create, &Until::working(PATIENCE)).await;
        read.map(|read| read.model).map_err(CallError::Arm)
    }

    /// Sends a call of the step of a disk.
    pub(crate) async fn send(
        &self,
        uri: &BlobUri,
        sent: &Sent,
        permit: Option<Permit>,
        until: &Until,
    ) -> Answer<CallError> {
        let Sent { call, home } = sent;
        let region = self.region(&home.location);
        match call {
            Call::ReadAccount => {
                let read = region.get_account(&home.id, Priority::Create, until).await;
                let shown = read.map(|read| Answer::Account(Box::new(read.model)));
                shown.unwrap_or_else(|error| by_manager(error).answer())
            }
            Call::ReadContents => {
                let contents = Box::pin(self.contents(home, until)).await;
                contents.map_or_else(Refused::answer, Answer::Contents)
            }
            Call::DeleteAccount => {
                let deleted = self.storage.in_region(None).delete_account(&home.id, permit, until).await;
                deleted.map_or_else(|error| by_manager(error).answer(), |()| Answer::Done(None))
            }
            call => self.blobs.call(&account(home), uri, call, until).await.map_error(CallError::Blob),
        }
    }

    /// What is in an account.
    async fn contents(&self, home: &Home, until: &Until) -> Result<Contents, Refused<CallError>> {
        let by_service = |error: lazuli_azure::blob::BlobError| {
            Refused::new(Problem::Other(error.fault().clone()), CallError::Blob(error))
        };
        let account = account(home);
        let containers = self.blobs.containers(&account, true, until).await.map_err(by_service)?;
        let mut contents = Contents::default();
        for container in containers {
            let listed = self.blobs.list(&account, &container, Show::Everything, until).await.map_err(by_service)?;
            contents.add(container, listed.map(|blobs| u64::try_from(blobs.len()).unwrap_or(u64::MAX)));
        }
        if !home.has_blobs_alone() {
            let region = self.region(&home.location);
            let rank = Priority::Create;
            contents.shares = region.count_shares(&home.id, rank, until).await.map_err(by_manager)?;
            contents.tables = region.count_tables(&home.id, rank, until).await.map_err(by_manager)?;
            contents.queues = region.count_queues(&home.id, rank, until).await.map_err(by_manager)?;
        }
        Ok(contents)
    }

    /// Lists accounts. What cannot be read is left out: no disk is put where nothing is known.
    pub(crate) async fn list_accounts(&self, scope: Scope) -> Result<Vec<StorageAccount>, CallError> {
        let group = match scope {
            Scope::Group => Some(&*self.resource_group),
            Scope::Subscription => None,
        };
        let until = Until::working(PATIENCE);
        let listed =
            async { self.storage.list_accounts(&self.subscription, group, Priority::Create, &until)?.readable().await };
        listed.await.map_err(CallError::Arm)
    }

    /// The names of the blobs in the container of disks of an account; `None` where it has no such container.
    pub(crate) async fn list_disks(&self, home: &Home) -> Result<Option<BTreeSet<String>>, CallError> {
        let until = Until::working(PATIENCE);
        let listed = self.blobs.list(&account(home), CONTAINER, Show::Disks, &until).await;
        let names = |blobs: Vec<lazuli_azure::blob::ListedBlob>| blobs.into_iter().map(|blob| blob.name).collect();
        listed.map(|blobs| blobs.map(names)).map_err(CallError::Blob)
    }
}
