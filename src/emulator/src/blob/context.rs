//! What the answer to a request is made from, and what most answers have in common.

use std::fs::File;
use std::io;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

use super::conditions::{self, Conditions, Stand};
use super::documents::{Blob, BlobType, Container, Documents, Metadata};
use super::error::{self, BlobError, Known};
use super::request::Asked;
use crate::document::Document;
use crate::leases::{self, Lease};
use crate::served_names::ServedNames;

/// The answer or the refusal.
pub(super) type Reply = Result<Answer, BlobError>;

/// A request with what it is about.
pub(super) struct Context<'a> {
    pub(super) asked: &'a Asked,
    pub(super) documents: Documents<'a>,
    pub(super) account: &'a Document,
    pub(super) names: &'a ServedNames,
    /// A GUID for what the request makes.
    pub(super) new_id: String,
    /// Nanoseconds of Unix time.
    pub(super) now: i128,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Body,
}

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Body {
    Nothing,
    Xml(String),
    /// So many bytes of a file, from one on.
    File {
        file: File,
        start: u64,
        length: u64,
    },
}

impl Answer {
    pub(super) fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Body::Nothing }
    }

    pub(super) fn xml(text: String) -> Self {
        Self { body: Body::Xml(text), ..Self::new(200) }
    }

    pub(super) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// `ETag` and `Last-Modified`.
    pub(super) fn stand(self, stand: Stand) -> Self {
        self.with("etag", conditions::quoted(stand.etag)).with("last-modified", seconds_date(stand.modified))
    }

    pub(super) fn metadata(mut self, metadata: &Metadata) -> Self {
        self.headers.extend(metadata.iter().map(|(name, value)| (format!("x-ms-meta-{name}"), value.clone())));
        self
    }

    /// The state of a lease.
    pub(super) fn lease(self, lease: Option<&Lease>, now: i128) -> Self {
        let (status, state, duration) = lease_words(lease, now);
        let answer = self.with("x-ms-lease-status", status).with("x-ms-lease-state", state);
        match duration {
            Some(duration) => answer.with("x-ms-lease-duration", duration),
            None => answer,
        }
    }
}

/// The words for a lease: status, state, and duration of one that is held.
pub(super) fn lease_words(lease: Option<&Lease>, now: i128) -> (&'static str, &'static str, Option<&'static str>) {
    let state = leases::state(lease, now);
    let (status, word) = leases::words(state);
    let held = lease.filter(|_| state == leases::State::Leased);
    (status, word, held.map(|lease| if lease.length.is_some() { "fixed" } else { "infinite" }))
}

fn timestamp(nanos: i128) -> Timestamp {
    Timestamp::from_nanosecond(nanos).unwrap_or_default()
}

/// A moment as HTTP writes it.
pub(super) fn date(nanos: i128) -> String {
    DateTimePrinter::new().timestamp_to_rfc9110_string(&timestamp(nanos)).unwrap_or_default()
}

pub(super) fn seconds_date(seconds: i64) -> String {
    date(i128::from(seconds) * leases::SECOND)
}

/// A moment as it names a snapshot.
pub(super) fn snapshot_time(nanos: i128) -> String {
    format!("{:.7}", timestamp(nanos))
}

/// The refusals of a container's lease, or of a blob's.
pub(super) struct LeaseRefusals {
    missing: Known,
    mismatch: Known,
    not_present: Known,
    lost: Known,
}

pub(super) const OF_BLOB: LeaseRefusals = LeaseRefusals {
    missing: error::LEASE_ID_MISSING,
    mismatch: error::LEASE_MISMATCH,
    not_present: error::LEASE_NOT_PRESENT,
    lost: error::LEASE_LOST,
};
pub(super) const OF_CONTAINER: LeaseRefusals = LeaseRefusals {
    missing: error::LEASE_ID_MISSING_ON_CONTAINER,
    mismatch: error::LEASE_MISMATCH_ON_CONTAINER,
    not_present: error::LEASE_NOT_PRESENT_ON_CONTAINER,
    lost: error::LEASE_LOST_ON_CONTAINER,
};

/// Whether a request may use what is leased, or is not. Documented (lease-blob, outcomes of use attempts).
pub(super) fn check_lease(
    lease: Option<&Lease>,
    given: Option<&str>,
    now: i128,
    is_locked: bool,
    refusals: &LeaseRefusals,
) -> Result<(), BlobError> {
    let is_held = matches!(leases::state(lease, now), leases::State::Leased | leases::State::Breaking);
    let refused = match (lease, given) {
        (_, None) => (is_held && is_locked).then_some(refusals.missing),
        (None, Some(_)) => Some(refusals.not_present),
        (Some(lease), Some(given)) if !lease.id.eq_ignore_ascii_case(given) => Some(refusals.mismatch),
        (Some(_), Some(_)) => (!is_held).then_some(refusals.lost),
    };
    refused.map_or(Ok(()), |refused| Err(refused.into()))
}

/// A failure of the machine on which the emulator runs.
pub(super) fn failed(error: &io::Error) -> BlobError {
    BlobError::new(500, "InternalError", format!("The emulator cannot use the file of the blob: {error}."))
}

impl Context<'_> {
    pub(super) fn container_name(&self) -> &str {
        self.asked.address.container.as_deref().unwrap_or("")
    }

    pub(super) fn blob_name(&self) -> &str {
        self.asked.address.blob.as_deref().unwrap_or("")
    }

    /// The container of the request. Documented: one that is being deleted is not found.
    pub(super) fn container(&self) -> Result<Container, BlobError> {
        let found = self.documents.container(self.container_name());
        found.filter(|container| container.deleted_until.is_none()).ok_or_else(|| error::CONTAINER_NOT_FOUND.into())
    }

    /// The blob or snapshot of the request.
    pub(super) fn blob(&self) -> Result<Blob, BlobError> {
        self.container()?;
        let found = self.documents.blob(self.container_name(), self.blob_name(), self.asked.snapshot());
        found.ok_or_else(|| error::BLOB_NOT_FOUND.into())
    }

    /// The blob or snapshot of a request that reads, under its conditions.
    pub(super) fn read_blob(&self) -> Result<Blob, BlobError> {
        let blob = self.blob()?;
        Conditions::read(&self.asked.headers, "")?.check_read(blob.stand())?;
        check_lease(blob.lease.as_ref(), self.asked.lease_id()?.as_deref(), self.now, false, &OF_BLOB)?;
        Ok(blob)
    }

    /// The blob of a request that writes, under its conditions and with its lease. What order the service checks these in is
    /// unverified.
    pub(super) fn written_blob(&self) -> Result<Blob, BlobError> {
        self.refuse_snapshot()?;
        let blob = self.blob()?;
        self.check_write(Some(&blob))?;
        Ok(blob)
    }

    /// The same for one that must be a page blob.
    pub(super) fn written_page_blob(&self) -> Result<Blob, BlobError> {
        let blob = self.written_blob()?;
        if blob.blob_type == BlobType::Page { Ok(blob) } else { Err(error::INVALID_BLOB_TYPE.into()) }
    }

    /// Conditions and lease of a write to a blob that is there, or is not.
    pub(super) fn check_write(&self, blob: Option<&Blob>) -> Result<(), BlobError> {
        if !Conditions::read(&self.asked.headers, "")?.allow_write(blob.map(Blob::stand)) {
            return Err(error::CONDITION_NOT_MET.into());
        }
        let lease = blob.and_then(|blob| blob.lease.as_ref());
        check_lease(lease, self.asked.lease_id()?.as_deref(), self.now, true, &OF_BLOB)
    }

    /// The same where the blob is made or replaced. Documented: one that may not exist has a code of its own.
    pub(super) fn check_replacement(&self, blob: Option<&Blob>) -> Result<(), BlobError> {
        match blob.is_some() && Conditions::read(&self.asked.headers, "")?.wants_nothing() {
            true => Err(error::BLOB_ALREADY_EXISTS.into()),
            false => self.check_write(blob),
        }
    }

    /// Documented: snapshots are read and deleted only.
    pub(super) fn refuse_snapshot(&self) -> Result<(), BlobError> {
        match self.asked.snapshot() {
            None => Ok(()),
            Some(snapshot) => Err(BlobError::query("snapshot", snapshot, "A snapshot cannot be changed.")),
        }
    }

    /// Keeps a blob that has been written. Documented: a lease that has expired or is broken is over with the next write.
    pub(super) fn keep(&mut self, blob: &mut Blob) {
        blob.etag = self.documents.blobs.next_etag(self.now);
        blob.modified = self.now;
        let state = leases::state(blob.lease.as_ref(), self.now);
        if matches!(state, leases::State::Expired | leases::State::Broken) {
            blob.lease = None;
        }
        if blob.device.is_some() {
            blob.device = self.documents.blobs.files.written(&blob.file);
        }
        let container = self.container_name().to_owned();
        self.documents.put_blob(&container, blob);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::SECOND;

    /// The published table of what a lease `A` lets through: who names it, another, none; reads and writes.
    #[test]
    fn a_lease_lets_through_who_names_it() {
        let lease = |is_breaking, ends: Option<i128>| Lease {
            id: "a".to_owned(),
            length: ends.map(|_| 15),
            ends: ends.map(|seconds| seconds * SECOND),
            is_breaking,
        };
        let states = [
            ("available", None),
            ("leased", Some(lease(false, None))),
            ("breaking", Some(lease(true, Some(60)))),
            ("broken", Some(lease(true, Some(5)))),
            ("expired", Some(lease(false, Some(5)))),
        ];
        let mut told = Vec::new();
        for (state, lease) in &states {
            let outcome = |given: Option<&str>, is_locked: bool| {
                check_lease(lease.as_ref(), given, 10 * SECOND, is_locked, &OF_BLOB)
                    .map_or_else(|error| error.code, |()| "ok".to_owned())
            };
            let row = [(Some("A"), true), (Some("b"), true), (None, true), (Some("A"), false), (None, false)];
            told.push(format!("{state}: {}", row.map(|(given, is_locked)| outcome(given, is_locked)).join(" ")));
        }
        let (absent, mismatch) = ("LeaseNotPresentWithBlobOperation", "LeaseIdMismatchWithBlobOperation");
        assert_eq!(
            told,
            [
                format!("available: {absent} {absent} ok {absent} ok"),
                format!("leased: ok {mismatch} LeaseIdMissing ok ok"),
                format!("breaking: ok {mismatch} LeaseIdMissing ok ok"),
                format!("broken: LeaseLost {mismatch} ok LeaseLost ok"),
                format!("expired: LeaseLost {mismatch} ok LeaseLost ok"),
            ]
        );
    }
}
