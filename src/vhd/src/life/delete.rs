//! The deletion of a blob disk, and of the account that was made for it alone.
//!
//! Azure compares no version of an account. What somebody puts into it between the list and the deletion goes with it; only
//! the name and the tag `skip-matching` keep others away.

use lazuli_model::{
    BlobUri, StorageAccount,
    fault::{Effect, Fault},
};

use super::{Answer, Blob, Call, Contents, Next, Problem, Progress, Why};
use crate::accounts::{CONTAINER, is_dedicated_name, is_dedicated_to};

/// The disk to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteSpec {
    /// Its address.
    pub uri: BlobUri,
    /// The cluster, as in [`Evidence::cluster`](crate::accounts::Evidence::cluster).
    pub cluster: String,
}

impl DeleteSpec {
    /// Whether its account has a name that only the account of this disk alone has.
    pub fn has_own_name(&self) -> bool {
        is_dedicated_name(&self.cluster, self.uri.name(), self.uri.account())
    }
}

/// What came of a deletion. There is no such blob any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deleted {
    /// The account is not the disk's own.
    Disk,
    /// The disk's own account is gone too.
    DiskAndAccount,
    /// The account has a name that only the disk's own has, and stays.
    AccountKept(KeptBecause),
}

/// Why the account of a disk that is gone stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptBecause {
    /// Its tags do not say that it was made for the disk alone.
    Tags,
    /// This is in it.
    Contents(Contents),
    /// It, or what is in it, may not be read, or it may not be deleted: a right is missing, or a lock forbids it.
    Forbidden,
    /// This cloud has no list of something that may be in it.
    Unlisted,
}

/// A deletion.
#[derive(Debug, Clone)]
pub struct Delete {
    spec: DeleteSpec,
    progress: Progress,
    /// The blob, by the last read of it.
    blob: Option<Blob>,
}

impl Delete {
    /// A deletion that has not begun.
    pub fn new(spec: DeleteSpec) -> Self {
        Self { spec, progress: Progress::new(), blob: None }
    }

    /// The first call.
    pub fn begin<E>(&mut self) -> Next<Deleted, E> {
        self.progress.send(Call::ReadBlob)
    }

    /// What comes next, after the answer of the last call.
    pub fn next<E>(&mut self, answer: Answer<E>) -> Next<Deleted, E> {
        let Some(call) = self.progress.call.take() else { return self.begin() };
        match (&call, answer) {
            (Call::ReadBlob, Answer::Blob(blob)) => self.seen(*blob),
            (Call::ListSnapshots, Answer::Snapshots(times)) => match self.blob.take() {
                Some(blob) if times.is_empty() => {
                    self.progress.effect = Effect::Possible;
                    let if_match = blob.etag.clone();
                    self.blob = Some(blob);
                    self.progress.send(Call::DeleteBlob { if_match })
                }
                _ => self.progress.fail(Why::Snapshots(times), None),
            },
            (Call::DeleteBlob { .. }, Answer::Done(_))
            | (
                Call::ReadBlob | Call::ListSnapshots | Call::DeleteBlob { .. },
                Answer::Refused(Problem::NoBlob | Problem::NoContainer, _),
            ) => self.blob_is_gone(),
            (
                Call::ReadBlob | Call::ListSnapshots | Call::DeleteBlob { .. },
                Answer::Refused(Problem::NoAccount, _),
            ) => self.account_is_gone(),
            (Call::DeleteBlob { .. }, Answer::Refused(Problem::Leased, error)) => {
                let machine = self.blob.take().and_then(|blob| blob.machine());
                self.progress.fail(Why::Attached { machine }, Some(error))
            }
            // One was made since the list, or it is one that no list shows.
            (Call::DeleteBlob { .. }, Answer::Refused(Problem::HasSnapshots, error)) => {
                self.progress.fail(Why::Snapshots(Vec::new()), Some(error))
            }
            (Call::DeleteBlob { .. }, Answer::Refused(Problem::OtherVersion | Problem::Lost, _)) => {
                self.progress.again(Call::ReadBlob)
            }
            (Call::ReadAccount, Answer::Account(account)) => self.account(&account),
            (Call::ReadContents, Answer::Contents(contents)) => self.contents(contents),
            (Call::DeleteAccount, Answer::Done(_))
            | (Call::ReadAccount | Call::ReadContents | Call::DeleteAccount, Answer::Refused(Problem::NoAccount, _)) => {
                Next::End(Ok(Deleted::DiskAndAccount))
            }
            (Call::DeleteAccount, Answer::Refused(Problem::Lost, _)) => self.progress.again(Call::ReadAccount),
            (Call::ReadContents, Answer::Refused(Problem::Other(Fault::Unsupported), _)) => {
                Next::End(Ok(Deleted::AccountKept(KeptBecause::Unlisted)))
            }
            // The disk is gone, and nothing but a right is missing: a retry would end here too.
            (
                Call::ReadAccount | Call::ReadContents | Call::DeleteAccount,
                Answer::Refused(Problem::Other(fault), _),
            ) if fault.is_refusal() => Next::End(Ok(Deleted::AccountKept(KeptBecause::Forbidden))),
            (call, Answer::Refused(problem, error)) => self.progress.refused(call, problem, error),
            (call, _) => self.progress.not_understood(call),
        }
    }

    fn seen<E>(&mut self, blob: Blob) -> Next<Deleted, E> {
        if !blob.is_page_blob {
            return self.progress.fail(Why::NotAPageBlob, None);
        }
        if !blob.lease.is_free() {
            return self.progress.fail(Why::Attached { machine: blob.machine() }, None);
        }
        self.blob = Some(blob);
        self.progress.send(Call::ListSnapshots)
    }

    fn has_own_name(&self) -> bool {
        self.spec.has_own_name()
    }

    fn blob_is_gone<E>(&mut self) -> Next<Deleted, E> {
        if self.has_own_name() { self.progress.send(Call::ReadAccount) } else { Next::End(Ok(Deleted::Disk)) }
    }

    fn account_is_gone<E>(&self) -> Next<Deleted, E> {
        Next::End(Ok(self.without_account()))
    }

    /// What comes of it where there is no account of the name.
    pub fn without_account(&self) -> Deleted {
        if self.has_own_name() { Deleted::DiskAndAccount } else { Deleted::Disk }
    }

    fn account<E>(&mut self, account: &StorageAccount) -> Next<Deleted, E> {
        if is_dedicated_to(account, &self.spec.cluster, self.spec.uri.name()) {
            self.progress.send(Call::ReadContents)
        } else {
            Next::End(Ok(Deleted::AccountKept(KeptBecause::Tags)))
        }
    }

    fn contents<E>(&mut self, contents: Contents) -> Next<Deleted, E> {
        let Contents { containers, blobs, shares, tables, queues } = &contents;
        let is_empty = containers.iter().all(|container| container == CONTAINER)
            && [blobs, shares, tables, queues].into_iter().all(|count| *count == 0);
        if is_empty {
            self.progress.send(Call::DeleteAccount)
        } else {
            Next::End(Ok(Deleted::AccountKept(KeptBecause::Contents(contents))))
        }
    }
}
