//! Which calls the courses of shares ([`lazuli_shares::work::share`]) are.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use lazuli_azure::{
    Until,
    error::{self, ArmError},
    permits::Permit,
    storage::{Put, ShareList, Usage},
};
use lazuli_engine::single::{Refusal, Written};
use lazuli_journal::Recorder;
use lazuli_model::{ArmId, FileShare, fault::Fault};
use lazuli_quota::permit::Priority;
use lazuli_reconcile::{
    metrics::Metrics,
    single::{Adapter, Failed, Singles},
};
use lazuli_shares::{
    deletion::ShareVolumes,
    work::{
        Verb,
        share::{Done, Env, Failure, Op, Query, Request, Seen, Share, Wanted, Why},
    },
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    ShareError,
    adoption::Memory,
    error::{Answer, broken_off, of_step},
    regions::{PATIENCE, Regions},
};

type Course = Share<Answer>;

/// The shares that are being made, deleted or grown. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct ShareTasks(Singles<ShareCalls>);

impl ShareTasks {
    pub(crate) fn new(calls: ShareCalls, metrics: Metrics, journal: Recorder) -> Self {
        Self(Singles::new(calls, metrics, journal))
    }

    /// Asks for a share to be made, deleted or grown, or joins the same request, and waits for the outcome.
    pub(crate) async fn request(&self, share: &ArmId, wanted: Wanted) -> Result<Done, ShareError> {
        let request = Request { wanted, limits: self.0.adapter().regions.limits() };
        self.0.request(share, request, ()).await.map_err(|failed| share_error(failed, share))
    }

    /// Whether a share exists, by a read of it alone.
    pub(crate) async fn exists(&self, share: &ArmId) -> Result<bool, ShareError> {
        match self.0.adapter().read(share, Query::Share).await {
            Ok(_) => Ok(true),
            Err(Answer(error)) if error.fault.says_that_it_is_missing() => Ok(false),
            Err(Answer(error)) => Err(ShareError::azure(format!("{share} cannot be read"), error)),
        }
    }
}

fn share_error(failed: Failed<Course>, share: &ArmId) -> ShareError {
    let Failure { fault, effect, why, azure } = match failed {
        Failed::BrokenOff => return broken_off(share),
        Failed::Refused(Refusal::Busy(running)) => {
            let message = format!("the share {share} is busy: {} is in progress", running.wanted.words());
            return ShareError::new(Fault::Busy, message);
        }
        Failed::Refused(Refusal::Why(failure)) => failure,
    };
    let (message, code) = match why {
        Why::Creation => (format!("{share} cannot be created"), None),
        Why::Deletion => (format!("{share} cannot be deleted"), None),
        Why::Expansion => (format!("{share} cannot be expanded"), None),
        Why::Modification => (format!("the performance of {share} cannot be changed"), None),
        Why::Unreadable => (format!("{share} cannot be read"), None),
        Why::Unwanted => (format!("no caller waits for the work on {share} any more"), None),
        Why::Mismatch(mismatch) => (mismatch.to_string(), Some(mismatch.code())),
        Why::NotNow(not_now) => (not_now.to_string(), Some(not_now.code())),
        Why::Parameter(error) => (error.to_string(), Some(error.code())),
    };
    let error = of_step(fault, effect, azure, message);
    match code {
        Some(code) => error.with_code(code),
        None => error,
    }
}

/// What the calls of all shares go through.
pub(crate) struct ShareCalls {
    pub regions: Regions,
    /// The PersistentVolumes of the cluster.
    pub volumes: watch::Receiver<ShareVolumes>,
    /// The requests that were given shares.
    pub adopted: Memory,
    pub driver_name: String,
}

/// The account of a share. The id of a share has one.
fn account_of(share: &ArmId) -> ArmId {
    share.account_of_share().unwrap_or_else(|| share.clone())
}

impl ShareCalls {
    async fn write(
        regions: Regions,
        share: ArmId,
        op: Op,
        permit: Permit,
        wanted: CancellationToken,
    ) -> Result<Option<Seen>, ArmError> {
        let (client, until) = (regions.of(&account_of(&share)), Until::working(PATIENCE).while_wanted(wanted));
        let shown = |share: FileShare, is_new: bool| Some(Seen::Share { share, is_new });
        let permit = Some(permit);
        match &op {
            Op::Put(spec) => {
                let Put { shown: share, is_new } = client.create_share(&share, spec, permit, &until).await?;
                Ok(shown(share, is_new))
            }
            Op::Change(change) => Ok(shown(client.change_share(&share, change, permit, &until).await?, false)),
            Op::Delete => client.delete_share(&share, permit, &until).await.map(|()| None),
        }
    }

    async fn snapshots(regions: Regions, share: ArmId) -> Result<Seen, ArmError> {
        let account = account_of(&share);
        let list = ShareList { prefix: share.name().to_owned(), deleted: false, snapshots: true };
        let until = Until::working(PATIENCE);
        let mut pages = regions.of(&account).list_shares(&account, &list, Priority::Create, &until)?;
        let mut times = Vec::new();
        while let Some(page) = pages.next_page().await? {
            for listed in page.into_iter().flatten() {
                times.extend(listed.snapshot.filter(|_| listed.id == share));
            }
        }
        Ok(Seen::Snapshots(times))
    }
}

fn log(share: &ArmId, op: &Op, written: &Result<Option<Seen>, ArmError>) {
    match (op, written) {
        // The call that asked for it logs a warning with the same words.
        (_, Err(error)) => info!(%share, %error, "a write of the share has failed"),
        (Op::Put(spec), Ok(_)) => info!(%share, size = %spec.quota, "share created"),
        (Op::Change(change), Ok(_)) => {
            let size = change.quota.map(|size| size.to_string());
            let (iops, bandwidth) = (change.provisioned_iops, change.provisioned_bandwidth);
            info!(%share, size, iops, bandwidth, "share changed");
        }
        (Op::Delete, Ok(_)) => info!(%share, "share deleted"),
    }
}

pub(crate) fn verb(verb: Verb) -> error::Verb {
    match verb {
        Verb::Put => error::Verb::Put,
        Verb::Patch => error::Verb::Patch,
        Verb::Delete => error::Verb::Delete,
    }
}

impl Adapter for ShareCalls {
    type Key = ArmId;
    type Course = Course;
    type Permit = Permit;
    type Hold = ();

    const NAME: &'static str = "share";

    fn env(&self) -> Env {
        Env {
            volumes: self.volumes.borrow().clone(),
            adoptions: self.adopted.shown(),
            driver_name: self.driver_name.clone(),
        }
    }

    fn permit(&self, share: &ArmId, of: Verb) -> BoxFuture<'static, Result<Permit, Answer>> {
        let (client, share) = (self.regions.of(&account_of(share)), share.clone());
        let until = Until::cancelled(CancellationToken::new());
        async move { client.permit(verb(of), &share, Priority::Create, &until).await.map_err(Answer) }.boxed()
    }

    fn read(&self, share: &ArmId, query: Query) -> BoxFuture<'static, Result<Seen, Answer>> {
        let (regions, share) = (self.regions.clone(), share.clone());
        async move {
            match query {
                Query::Snapshots => Self::snapshots(regions, share).await,
                Query::Share => {
                    let client = regions.of(&account_of(&share));
                    let until = Until::working(PATIENCE);
                    let read = client.get_share(&share, Usage::Omitted, Priority::Create, &until).await;
                    read.map(|read| Seen::Share { share: read.model, is_new: false })
                }
            }
            .map_err(Answer)
        }
        .boxed()
    }

    fn write(
        &self,
        share: &ArmId,
        op: Op,
        permit: Permit,
        wanted: CancellationToken,
    ) -> BoxFuture<'static, Written<Course>> {
        let (regions, share) = (self.regions.clone(), share.clone());
        async move {
            let written = Self::write(regions, share.clone(), op.clone(), permit, wanted).await;
            log(&share, &op, &written);
            // Writes of shares end with their answer.
            written.map_or_else(|error| Written::Refused(Answer(error)), Written::Done)
        }
        .boxed()
    }

    fn pause_after(&self, failures: u32) -> Duration {
        self.regions.pause_after(failures)
    }
}
