//! Which calls the step of an import ([`lazuli_vhd::import`]) is. It chooses nothing.

use std::time::Duration;

use lazuli_azure::{
    Until,
    blob::{Account, BlobError, Blobs},
    compute::Freshness,
    error::ArmError,
    storage::Storage,
};
use lazuli_model::{BlobUri, StorageAccount, fault::Code, parameter::ParameterError};
use lazuli_quota::permit::Priority;
use lazuli_storage::{publish, whole_disk};
use lazuli_vhd::import::{self, Call, Import, Made, Next, Refusal, Why};
use tokio::time::Instant;

use super::{Created, VolumeError, Volumes, changed, error::Answer, resulting_disk};

/// How long a read of the blob service, or a list of accounts, may take, with its repetitions.
const PATIENCE: Duration = Duration::from_secs(90);

type Event = import::Event<Answer, BlobError, VolumeError>;
type Failure = import::Failure<Answer, BlobError, VolumeError>;

/// The page blobs of a cloud, and the accounts that they are in.
#[derive(Debug, Clone)]
pub struct PageBlobs {
    storage: Storage,
    blobs: Blobs,
}

impl PageBlobs {
    /// By these clients.
    pub fn new(storage: Storage, blobs: Blobs) -> Self {
        Self { storage, blobs }
    }

    /// The storage account of this name in a subscription, or in a resource group. No list of Azure's goes by name.
    async fn find(
        &self,
        subscription: &str,
        group: Option<&str>,
        name: &str,
    ) -> Result<Option<Box<StorageAccount>>, ArmError> {
        let until = Until::working(PATIENCE);
        let accounts = self.storage.list_accounts(subscription, group, Priority::Create, &until)?.all().await?;
        named(accounts, name)
    }
}

/// The account of this name in a list, whatever cannot be read of others.
fn named(
    accounts: Vec<Result<StorageAccount, lazuli_azure::storage::Unreadable>>,
    name: &str,
) -> Result<Option<Box<StorageAccount>>, ArmError> {
    let is_it = |id: &str| id.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case(name));
    let mut found = accounts.into_iter().filter_map(|account| match account {
        Ok(account) => is_it(account.id.as_str()).then(|| Ok(Box::new(account))),
        Err(unreadable) => unreadable.id.as_deref().is_none_or(is_it).then_some(Err(unreadable.error)),
    });
    found.next().transpose()
}

/// Why a disk was not made from a page blob.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The request cannot be carried out as it is written.
    #[error(transparent)]
    Parameter(ParameterError),
    /// What is there forbids it.
    #[error("{blob} is not imported: {refusal}")]
    Refused {
        /// The blob.
        blob: BlobUri,
        /// Why.
        refusal: Refusal,
        /// The gRPC code.
        code: Code,
    },
    /// Nothing reads page blobs here.
    #[error(
        "{0} is a page blob, and this controller has no client of the blob service; a disk is imported by a controller \
         that has one"
    )]
    NoClient(BlobUri),
    /// It could not be made.
    #[error(transparent)]
    Failed(VolumeError),
}

impl ImportError {
    /// The gRPC code of CreateVolume.
    ///
    /// # Errors
    /// The failed call that decides it.
    pub fn decided(&self) -> Result<Code, &VolumeError> {
        match self {
            Self::Parameter(error) => Ok(error.code()),
            Self::Refused { code, .. } => Ok(*code),
            Self::NoClient(_) => Ok(Code::FailedPrecondition),
            Self::Failed(error) => Err(error),
        }
    }

    fn of(blob: &BlobUri, failure: Failure) -> Self {
        let (code, leaves) = (failure.code(), failure.leaves);
        let failed = |error: VolumeError| Self::Failed(error.with_effect_of(leaves));
        match failure.why {
            Why::Parameter(error) => Self::Parameter(error),
            Why::Refused(refusal) => Self::Refused { blob: blob.clone(), refusal, code },
            Why::Unreadable(what, Answer(error)) => failed(VolumeError::azure(format!("{what} cannot be read"), error)),
            Why::Blob(fault, error) => {
                let why = error.map_or_else(|| "its answer is not understood".to_owned(), |error| error.to_string());
                failed(VolumeError::new(fault, format!("{blob} cannot be read: {why}")))
            }
            Why::Work(about, error) => failed(match about {
                Some(about) => error.suffixed(&about),
                None => error,
            }),
        }
    }
}

impl Volumes {
    /// Makes a disk from a page blob, or finds the one that an earlier call of this request has made.
    ///
    /// # Errors
    /// See [`ImportError`].
    pub async fn import(&self, mut import: Import) -> Result<Created, ImportError> {
        let requested_at = Instant::now();
        let blob = import.blob().clone();
        let Some(page_blobs) = &self.page_blobs else { return Err(ImportError::NoClient(blob)) };
        let mut event = Event::Begun;
        let Made { disk, adopted } = loop {
            match import.step(event) {
                Next::Call(call) => event = Box::pin(self.import_call(page_blobs, &blob, call)).await,
                Next::Done(made) => break made.map_err(|failure| ImportError::of(&blob, failure))?,
            }
        };
        Ok(self.made(&disk, adopted, requested_at))
    }

    async fn import_call(&self, page_blobs: &PageBlobs, blob: &BlobUri, call: Call) -> Event {
        match call {
            Call::ReadDisk(disk) => {
                let read = self.client.read_disk(&disk, Freshness::single().priority(Priority::Create)).await;
                Event::Disk(read.map(|read| Box::new(read.model)).map_err(Answer))
            }
            Call::FindAccount { subscription, group, name } => {
                Event::Account(page_blobs.find(&subscription, group.as_deref(), &name).await.map_err(Answer))
            }
            Call::Blob { account, call } => {
                let account = Account { id: account.id, location: Some(account.location) };
                Event::Blob(page_blobs.blobs.call(&account, blob, &call, &Until::working(PATIENCE)).await)
            }
            Call::ReadMachine(machine) => {
                let seen = self.client.machine_and_view(&machine, Priority::Create).await;
                Event::Machine(seen.map(Box::new).map_err(Answer))
            }
            Call::MakeDisk { disk, spec } => {
                let made = self.whole_disks.request(&disk, whole_disk::Wanted::Made(spec)).await;
                Event::DiskMade(made.map(resulting_disk))
            }
            Call::MarkDisk { disk, version } => {
                let marked = self.whole_disks.request(&disk, whole_disk::Wanted::Marked(version)).await;
                Event::Done(marked.map(|done| drop(changed(done))))
            }
            Call::DeleteDisk(disk) => {
                let request = publish::Request::Delete { disk: disk.into() };
                Event::Done(self.carry(request).await.map(drop))
            }
        }
    }
}
