//! Which calls the courses of disks ([`lazuli_vhd::work::disk`]) are.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use lazuli_azure::{Until, permits::Permit};
use lazuli_engine::single::{Action, Event, Refusal, Written};
use lazuli_journal::{Key, Note, Recorder};
use lazuli_model::BlobUri;
use lazuli_reconcile::{
    metrics::Metrics,
    single::{Adapter, Failed, Singles},
};
use lazuli_vhd::{
    life::Answer,
    work::{
        Refused,
        disk::{Disk, Done, Ending, Request, Sent, Verb},
        result,
    },
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    calls::{Calls, PATIENCE},
    error::{BlobDiskError, CallError},
    notes,
};

type Course = Disk<CallError>;

/// The disks that are being made, deleted or grown. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Disks(Singles<DiskCalls>);

impl Disks {
    pub(crate) fn new(calls: Calls, metrics: Metrics, journal: Recorder) -> Self {
        Self(Singles::new(DiskCalls(calls), metrics, journal))
    }

    /// Asks for a disk to be made, deleted or grown, or joins the same request, and waits for the outcome.
    pub(crate) async fn request(&self, uri: &BlobUri, request: Request) -> (Ending, Result<Done, BlobDiskError>) {
        let outcome = self.0.request(uri, request, ()).await;
        match outcome {
            Ok(done) => (Ending::of::<()>(Ok(&done)), Ok(done)),
            Err(Failed::Refused(Refusal::Why(failure))) => {
                (Ending::of(Err(&failure)), Err(BlobDiskError::life(uri, failure)))
            }
            Err(Failed::Refused(Refusal::Busy(running))) => {
                (Ending::Unknown, Err(BlobDiskError::busy(uri, running.wanted.words())))
            }
            Err(Failed::BrokenOff) => (Ending::Unknown, Err(BlobDiskError::broken_off(uri))),
        }
    }
}

/// What the calls of all disks go through.
struct DiskCalls(Calls);

impl Adapter for DiskCalls {
    type Key = BlobUri;
    type Course = Course;
    /// The blob service needs none.
    type Permit = Option<Permit>;
    type Hold = ();

    const NAME: &'static str = "blob_disk";

    fn env(&self) {}

    fn permit(&self, uri: &BlobUri, verb: Verb) -> BoxFuture<'static, Result<Option<Permit>, Refused<CallError>>> {
        let (calls, uri) = (self.0.clone(), uri.clone());
        async move {
            match verb {
                Verb::Blob => Ok(None),
                Verb::Account => calls.permit_to_delete(uri.account()).await.map(Some),
            }
        }
        .boxed()
    }

    fn read(&self, uri: &BlobUri, sent: Sent) -> BoxFuture<'static, Result<Answer<CallError>, Refused<CallError>>> {
        let (calls, uri) = (self.0.clone(), uri.clone());
        async move { result(calls.send(&uri, &sent, None, &Until::working(PATIENCE)).await) }.boxed()
    }

    fn write(
        &self,
        uri: &BlobUri,
        sent: Sent,
        permit: Option<Permit>,
        wanted: CancellationToken,
    ) -> BoxFuture<'static, Written<Course>> {
        let (calls, uri) = (self.0.clone(), uri.clone());
        async move {
            let until = Until::working(PATIENCE).while_wanted(wanted);
            let written = result(calls.send(&uri, &sent, permit, &until).await);
            info!(disk = %uri, is_done = written.is_ok(), "{}", sent.call.what());
            written.map_or_else(Written::Refused, |answer| Written::Done(Some(answer)))
        }
        .boxed()
    }

    fn pause_after(&self, failures: u32) -> Duration {
        self.0.pause_after(failures)
    }

    fn journal_key(uri: &BlobUri) -> Option<Key<'_>> {
        Some(Key::blob(uri))
    }

    fn note_of_event(event: &Event<Course>) -> Option<Note<'_>> {
        notes::of_disk_event(event)
    }

    fn note_of_action(action: &Action<Course>) -> Option<Note<'_>> {
        notes::of_disk_action(action)
    }
}
