//! The steps of a blob disk: what is sent next, and what is answered.
//!
//! ```text
//!   Create   read the container ─▶ [make it, private] ─▶ make the blob, If-None-Match: * ─▶ footer ─▶ done
//!                                                          │ there is one: read it
//!                                                          ▼
//!                                             ours ─▶ read its footer ─▶ [write it] ─▶ done
//!
//!   Expand   read blob and footer ─▶ note the old size ─▶ resize ─▶ new footer ─▶ [clear the old one] ─▶ drop the note ─▶ done
//!
//!   Delete   read the blob ─▶ list its snapshots ─▶ delete it ─▶ [read the account and what is in it ─▶ delete it] ─▶ done
//! ```
//!
//! Each step has one call in flight, and a process may be killed between any two: the next one reads what is there and goes
//! on. Each write names the ETag of what was read before it (If-Match), so that a write that was overtaken, or whose answer
//! was lost and that arrives late, does nothing. No step changes a blob whose lease is held ([`lease`](crate::lease)).
//!
//! A disk that grows has a footer at every moment: the old one stays until the new one is written. Its place is noted in
//! the blob's metadata, because it is inside the disk then, and the next process must know where. It is cleared only while
//! it still is that footer: a machine may have had the disk meanwhile, and have written there.

mod create;
mod delete;
mod expand;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt};

use lazuli_model::{
    StorageAccount, digest,
    fault::{self, Code, Effect, Fault, Rpc},
};

pub use self::{
    create::{Create, CreateSpec},
    delete::{Delete, DeleteSpec, Deleted, KeptBecause},
    expand::{Expand, ExpandSpec},
};
use crate::{
    footer::{Defect, Page},
    lease::Lease,
};

/// The metadata that says that a driver made a blob (source: the in-tree plugin).
pub const CREATED_BY: (&str, &str) = ("createdby", "k8sAzureDataDisk");

/// The metadata that names the volume of a blob; its value is a [`mark`].
pub const VOLUME_KEY: &str = "lazulivolume";

/// The metadata that notes the size, in bytes, that a disk has grown from. Its old footer is there.
pub const GROWN_FROM_KEY: &str = "lazuligrownfrom";

/// The metadata in which Azure names the machine of an attached blob (source: Azure's own error
/// `DiskBlobAlreadyInUseByAnotherDisk`, which points to it).
pub(crate) const MACHINE_KEY: &str = "microsoftazurecompute_vmname";

/// The metadata in which Azure names the resource group of that machine.
pub(crate) const GROUP_KEY: &str = "microsoftazurecompute_resourcegroupname";

/// How often a step reads anew, because what it read has changed or an answer was lost.
const MOST_ROUNDS: u32 = 8;

/// The value of [`VOLUME_KEY`] for the volume of a request in a cluster.
pub fn mark(cluster: &str, request: &str) -> String {
    digest::uuid_like(format!("{}:{};{request}", cluster.len(), cluster.to_lowercase()).as_bytes())
}

/// The version of a blob, as Azure spells it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ETag(pub String);

/// The metadata of a blob, by keys in lower case: Azure ignores their letter case.
pub type Metadata = BTreeMap<String, String>;

/// A blob, as a read of its properties shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Its version.
    pub etag: ETag,
    /// Its length in bytes, with the footer.
    pub length: u64,
    /// Whether `x-ms-blob-type` is `PageBlob`.
    pub is_page_blob: bool,
    /// Its lease.
    pub lease: Lease,
    /// Its metadata.
    pub metadata: Metadata,
}

impl Blob {
    /// The machine that has it attached, where its metadata names it.
    pub fn machine(&self) -> Option<String> {
        self.metadata.get(MACHINE_KEY).cloned()
    }

    /// The resource group and the name of that machine, where the metadata gives both.
    pub(crate) fn machine_in_group(&self) -> Option<(&str, &str)> {
        let given = |key| self.metadata.get(key).map(String::as_str).filter(|value| !value.is_empty());
        Some((given(GROUP_KEY)?, given(MACHINE_KEY)?))
    }
}

/// What is in a storage account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// The names of its containers, deleted ones that can be restored included.
    pub containers: Vec<String>,
    /// How many blobs there are in all of them: snapshots, versions and deleted ones that can be restored included.
    pub blobs: u64,
    /// How many file shares, deleted ones that can be restored included.
    pub shares: u64,
    /// How many tables.
    pub tables: u64,
    /// How many queues.
    pub queues: u64,
}

impl Contents {
    /// Adds a container of the list, with the number of its blobs; none where the list of its blobs finds no container.
    ///
    /// A container that can be restored is in the list too, and what was in it comes back with it: it counts as a blob. One
    /// whose name a later container has is shown by the name alone, which is there twice.
    pub fn add(&mut self, container: String, blobs: Option<u64>) {
        let is_restorable = blobs.is_none() || self.containers.contains(&container);
        self.blobs = self.blobs.saturating_add(blobs.unwrap_or_default()).saturating_add(u64::from(is_restorable));
        self.containers.push(container);
    }
}

/// A request to Azure. All but those of accounts go to the blob service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Read the properties of the container.
    ReadContainer,
    /// Make the container, without public access.
    MakeContainer,
    /// Make a page blob of this length with `If-None-Match: *`.
    MakeBlob {
        /// Its length in bytes.
        length: u64,
        /// Its metadata.
        metadata: Metadata,
    },
    /// Read the properties of the blob.
    ReadBlob,
    /// Read 512 bytes.
    ReadPage {
        /// Where, in bytes.
        offset: u64,
        /// The version that must be there.
        if_match: ETag,
    },
    /// Write 512 bytes.
    WritePage {
        /// Where, in bytes.
        offset: u64,
        /// What.
        page: Box<Page>,
        /// The version that must be there.
        if_match: ETag,
    },
    /// Clear 512 bytes.
    ClearPage {
        /// Where, in bytes.
        offset: u64,
        /// The version that must be there.
        if_match: ETag,
    },
    /// Set the length of the blob.
    Resize {
        /// In bytes.
        length: u64,
        /// The version that must be there.
        if_match: ETag,
    },
    /// Replace the metadata of the blob.
    SetMetadata {
        /// All of it.
        metadata: Metadata,
        /// The version that must be there.
        if_match: ETag,
    },
    /// List the snapshots of the blob.
    ListSnapshots,
    /// Delete the blob, without `x-ms-delete-snapshots`.
    DeleteBlob {
        /// The version that must be there.
        if_match: ETag,
    },
    /// Read the storage account.
    ReadAccount,
    /// List what is in the storage account.
    ReadContents,
    /// Delete the storage account.
    DeleteAccount,
}

impl Call {
    /// Whether Azure may be different afterwards.
    pub fn writes(&self) -> bool {
        match self {
            Self::ReadContainer
            | Self::ReadBlob
            | Self::ReadPage { .. }
            | Self::ListSnapshots
            | Self::ReadAccount
            | Self::ReadContents => false,
            Self::MakeContainer
            | Self::MakeBlob { .. }
            | Self::WritePage { .. }
            | Self::ClearPage { .. }
            | Self::Resize { .. }
            | Self::SetMetadata { .. }
            | Self::DeleteBlob { .. }
            | Self::DeleteAccount => true,
        }
    }

    /// What an answer of it that is not understood, or a failure, is called.
    pub fn what(&self) -> &'static str {
        match self {
            Self::ReadContainer => "reading the container",
            Self::MakeContainer => "making the container",
            Self::MakeBlob { .. } => "making the blob",
            Self::ReadBlob => "reading the blob",
            Self::ReadPage { .. } => "reading the blob's footer",
            Self::WritePage { .. } => "writing the blob's footer",
            Self::ClearPage { .. } => "clearing the blob's old footer",
            Self::Resize { .. } => "growing the blob",
            Self::SetMetadata { .. } => "writing the blob's metadata",
            Self::ListSnapshots => "listing the blob's snapshots",
            Self::DeleteBlob { .. } => "deleting the blob",
            Self::ReadAccount => "reading the storage account",
            Self::ReadContents => "listing what is in the storage account",
            Self::DeleteAccount => "deleting the storage account",
        }
    }
}

/// Azure's answer to a call. `E` is its error as the call gave it.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer<E> {
    /// The container.
    Container {
        /// Whether everybody may read its blobs: `x-ms-blob-public-access` is there.
        is_public: bool,
    },
    /// The write is done. A write of the blob gives its new version.
    Done(Option<ETag>),
    /// The properties of the blob.
    Blob(Box<Blob>),
    /// 512 bytes.
    Page(Box<Page>),
    /// The times of the snapshots.
    Snapshots(Vec<String>),
    /// The storage account.
    Account(Box<StorageAccount>),
    /// What is in it.
    Contents(Contents),
    /// None of these.
    Refused(Problem, E),
}

impl<E> Answer<E> {
    /// The same with another error.
    pub fn map_error<F>(self, map: impl FnOnce(E) -> F) -> Answer<F> {
        match self {
            Self::Container { is_public } => Answer::Container { is_public },
            Self::Done(etag) => Answer::Done(etag),
            Self::Blob(blob) => Answer::Blob(blob),
            Self::Page(page) => Answer::Page(page),
            Self::Snapshots(times) => Answer::Snapshots(times),
            Self::Account(account) => Answer::Account(account),
            Self::Contents(contents) => Answer::Contents(contents),
            Self::Refused(problem, error) => Answer::Refused(problem, map(error)),
        }
    }
}

/// Why a call was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// There is no such account.
    NoAccount,
    /// There is no such container.
    NoContainer,
    /// There is no such blob.
    NoBlob,
    /// There is one already.
    Exists,
    /// Another version is there.
    OtherVersion,
    /// A lease is held.
    Leased,
    /// There are snapshots.
    HasSnapshots,
    /// The answer was lost: it is done, or it is not, or it is done later.
    Lost,
    /// Anything else.
    Other(Fault),
}

impl Problem {
    /// What a caller may do about it.
    pub fn fault(&self) -> Fault {
        match self {
            Self::NoAccount | Self::NoContainer => Fault::ScopeNotFound,
            Self::NoBlob => Fault::NotFound,
            Self::Exists | Self::OtherVersion => Fault::Conflict,
            Self::Leased | Self::HasSnapshots => Fault::InUse,
            Self::Lost => Fault::OutcomeUnknown,
            Self::Other(fault) => fault.clone(),
        }
    }

    /// Sorts the answer of the blob service by status and `x-ms-error-code` (source: Microsoft's lists of the error codes of
    /// the blob service and of the storage services).
    pub fn of(status: u16, code: &str) -> Self {
        let is = |codes: &[&str]| codes.iter().any(|one| one.eq_ignore_ascii_case(code));
        match status {
            404 if is(&["ContainerNotFound"]) => Self::NoContainer,
            404 if is(&["BlobNotFound"]) => Self::NoBlob,
            409 if is(&["BlobAlreadyExists", "ContainerAlreadyExists"]) => Self::Exists,
            409 if is(&["SnapshotsPresent"]) => Self::HasSnapshots,
            412 | 409
                if is(&[
                    "LeaseIdMissing",
                    "LeaseLost",
                    "LeaseAlreadyPresent",
                    "LeaseIdMismatchWithBlobOperation",
                    "LeaseNotPresentWithBlobOperation",
                ]) =>
            {
                Self::Leased
            }
            412 => Self::OtherVersion,
            _ => match fault::classify(&fault::Answer { status, code, ..fault::Answer::default() }) {
                // `ResourceNotFound` and its like do not say what is missing, and "gone" would end a volume that exists.
                fault if fault.says_that_it_is_missing() => Self::Other(Fault::Malformed),
                fault => Self::Other(fault),
            },
        }
    }
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure<E> {
    /// What failed.
    pub why: Why,
    /// Whether a write may be in progress, or has left something.
    pub effect: Effect,
    /// Azure's answer, where one stands behind it.
    pub azure: Option<E>,
}

/// What failed.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// Everybody may read the blobs of the container.
    PublicContainer,
    /// Somebody else has a blob of the name.
    Stranger,
    /// The volume exists with another size, in bytes.
    OtherSize(u64),
    /// The end of the blob is no footer that may be repaired.
    Footer(Defect),
    /// It is a block blob or an append blob.
    NotAPageBlob,
    /// A lease is held.
    Attached {
        /// The machine, where the blob's metadata names it.
        machine: Option<String>,
    },
    /// These snapshots live.
    Snapshots(Vec<String>),
    /// There is no such blob.
    NoBlob,
    /// There is no such account.
    NoAccount,
    /// What is read of the blob changes with every look.
    Unsettled,
    /// Azure has refused a call: what it was to do, and what a caller may do about it.
    Azure(&'static str, Fault),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PublicContainer => f.write_str(
                "everybody may read the blobs of the container; make the container private, or name another account",
            ),
            Self::Stranger => f.write_str("the blob exists, and was not made for this volume; delete or rename it"),
            Self::OtherSize(bytes) => write!(f, "the volume exists with {bytes} bytes, which is not what is asked for"),
            Self::Footer(defect) => write!(f, "the blob is no fixed VHD: {defect}"),
            Self::NotAPageBlob => f.write_str("the blob is no page blob, so it is no disk"),
            Self::Attached { machine: Some(machine) } => {
                write!(
                    f,
                    "the blob's lease is held: the disk is attached to the machine {machine}; stop the Pods that use it there, \
                     or detach it from the machine"
                )
            }
            Self::Attached { machine: None } => {
                f.write_str(
                    "the blob's lease is held: the disk is attached to a machine; stop the Pods that use it, or detach it from \
                     the machine",
                )
            }
            Self::Snapshots(times) if times.is_empty() => {
                f.write_str("the blob has snapshots, which would be deleted with it; delete them first")
            }
            Self::Snapshots(times) => write!(
                f,
                "the blob has snapshots, which would be deleted with it: {}; delete them first",
                times.join(", ")
            ),
            Self::NoBlob => f.write_str("there is no such blob"),
            Self::NoAccount => f.write_str(
                "no list shows its storage account, which may be gone or may be one that this identity may not read",
            ),
            Self::Unsettled => f.write_str("the blob changes with every look; retry when its other writer has ended"),
            Self::Azure(what, _) => write!(f, "{what} failed"),
        }
    }
}

impl<E> Failure<E> {
    /// What a caller may do about it, for people: the code follows from more ([`Failure::code`]).
    pub fn fault(&self) -> Fault {
        match &self.why {
            Why::Attached { .. } | Why::Snapshots(_) => Fault::InUse,
            Why::PublicContainer | Why::Stranger | Why::OtherSize(_) | Why::Footer(_) | Why::NotAPageBlob => {
                Fault::Invalid
            }
            Why::NoBlob => Fault::NotFound,
            Why::NoAccount => Fault::ScopeNotFound,
            Why::Unsettled => Fault::Conflict,
            Why::Azure(_, fault) => fault.clone(),
        }
    }

    /// The gRPC code.
    pub fn code(&self, rpc: Rpc) -> Code {
        let code = match &self.why {
            // The answer about a name is final in any case.
            Why::Stranger | Why::OtherSize(_) => return Code::AlreadyExists,
            Why::PublicContainer | Why::Footer(_) | Why::NotAPageBlob | Why::Attached { .. } | Why::Snapshots(_) => {
                Code::FailedPrecondition
            }
            Why::NoBlob => fault::code(rpc, &Fault::NotFound, self.effect),
            // Another account is chosen for the next try.
            Why::NoAccount if rpc == Rpc::CreateVolume => Code::Unavailable,
            Why::NoAccount => fault::code(rpc, &Fault::ScopeNotFound, self.effect),
            Why::Unsettled => Code::Aborted,
            Why::Azure(_, fault) => fault::code(rpc, fault, self.effect),
        };
        // After a final code external-provisioner would forget a blob that is there.
        if rpc == Rpc::CreateVolume && self.effect == Effect::Possible && !code.keeps_the_claim() {
            Code::Unavailable
        } else {
            code
        }
    }
}

/// The blob of a disk, by the answer to [`Call::ReadBlob`].
///
/// # Errors
/// [`Why::NoBlob`]; [`Why::NotAPageBlob`]; what Azure has refused.
pub fn read<E>(answer: Answer<E>) -> Result<Box<Blob>, Failure<E>> {
    let failed = |why, azure| Err(Failure { why, effect: Effect::None, azure });
    let what = Call::ReadBlob.what();
    match answer {
        Answer::Blob(blob) if blob.is_page_blob => Ok(blob),
        Answer::Blob(_) => failed(Why::NotAPageBlob, None),
        Answer::Refused(Problem::NoBlob | Problem::NoContainer, error) => failed(Why::NoBlob, Some(error)),
        Answer::Refused(Problem::NoAccount, error) => failed(Why::NoAccount, Some(error)),
        Answer::Refused(problem, error) => failed(Why::Azure(what, problem.fault()), Some(error)),
        _ => failed(Why::Azure(what, Fault::Malformed), None),
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next<D, E> {
    /// Send this.
    Call(Call),
    /// The request is served.
    End(Result<D, Failure<E>>),
}

/// What each step has: the call in flight, how often it has read anew, and whether it may have left something.
#[derive(Debug, Clone)]
struct Progress {
    call: Option<Call>,
    rounds: u32,
    effect: Effect,
}

impl Progress {
    fn new() -> Self {
        Self { call: None, rounds: 0, effect: Effect::None }
    }

    fn send<D, E>(&mut self, call: Call) -> Next<D, E> {
        self.call = Some(call.clone());
        Next::Call(call)
    }

    /// Sends a call that begins another round.
    fn again<D, E>(&mut self, call: Call) -> Next<D, E> {
        self.rounds += 1;
        if self.rounds > MOST_ROUNDS { self.fail(Why::Unsettled, None) } else { self.send(call) }
    }

    fn fail<D, E>(&self, why: Why, azure: Option<E>) -> Next<D, E> {
        Next::End(Err(Failure { why, effect: self.effect, azure }))
    }

    /// A refusal that the step has no answer to.
    fn refused<D, E>(&self, call: &Call, problem: Problem, error: E) -> Next<D, E> {
        let why = match problem {
            Problem::NoAccount => Why::NoAccount,
            problem => Why::Azure(call.what(), problem.fault()),
        };
        self.fail(why, Some(error))
    }

    /// An answer that does not belong to the call.
    fn not_understood<D, E>(&self, call: &Call) -> Next<D, E> {
        self.fail(Why::Azure(call.what(), Fault::Malformed), None)
    }
}
