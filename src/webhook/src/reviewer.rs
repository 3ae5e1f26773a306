//! Carries out a review: reads what `lazuli_storage::admission` asks for, until the deadline.

use std::sync::{Mutex, PoisonError};

use lazuli_azure::{
    Until,
    compute::{Compute, Freshness},
    error::ArmError,
};
use lazuli_cluster::read_volume;
use lazuli_model::{ArmId, Disk, fault::Fault};
use lazuli_quota::permit::Priority;
use lazuli_storage::admission::{budget::ReadBudget, claim, volume};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    Options,
    metrics::Outcome,
    review::{Answer, Request},
};

pub(crate) struct Reviewer {
    options: Options,
    began: Instant,
    budget: Mutex<ReadBudget>,
}

/// A disk that could not be read, for the person who asks.
enum NoDisk {
    Missing,
    Unknown,
    /// Reviews have read as many as they may.
    TooMany,
}

impl NoDisk {
    /// Why, after the disk's name.
    fn why(&self) -> &'static str {
        match self {
            Self::Missing => "Azure has no such disk",
            Self::Unknown => "Azure did not tell its region and zone",
            Self::TooMany => "too many disks are reviewed now; create the volume again in a minute",
        }
    }
}

impl Reviewer {
    pub(crate) fn new(options: Options) -> Self {
        Self { options, began: Instant::now(), budget: Mutex::default() }
    }

    /// Labels a new PersistentVolume.
    pub(crate) async fn volume(&self, request: &Request, deadline: Instant) -> (Outcome, Answer) {
        if request.operation != "CREATE" {
            return (Outcome::Unchanged, Answer::default());
        }
        let changes = match volume::review(&request.object, &self.options.region, &self.options.readable) {
            volume::Review::Changed(changes) => changes,
            volume::Review::NotAllowed { disk, why } => {
                return (Outcome::Unknown, Answer::admitted_with(no_labels(&disk, &why)));
            }
            // Neither region nor zone of a disk ever changes, so a list will do.
            volume::Review::ReadDisk(id) => match self.disk(&id, Freshness::listed(), deadline).await {
                Ok(disk) => volume::changes_by_disk(&request.object, &disk),
                Err(why) => {
                    return (Outcome::Unknown, Answer::admitted_with(no_labels(&id, why.why())));
                }
            },
        };
        let outcome = if changes.is_empty() { Outcome::Unchanged } else { Outcome::Changed };
        (outcome, Answer::changed(changes))
    }

    /// Judges whether a PersistentVolumeClaim can grow.
    pub(crate) async fn claim(&self, request: &Request, deadline: Instant) -> (Outcome, Answer) {
        let admitted = (Outcome::Unchanged, Answer::default());
        if request.operation != "UPDATE" {
            return admitted;
        }
        let Some(growth) = claim::growth(&request.old_object, &request.object) else { return admitted };
        let volume = match timeout_at(deadline, read_volume(&self.options.api, growth.volume)).await {
            Ok(Ok(Some(volume))) => volume,
            // Kubernetes deals with a claim whose volume is lost.
            Ok(Ok(None)) => return admitted,
            Ok(Err(error)) => {
                warn!(error = &error as &(dyn std::error::Error + 'static), "a resize is not reviewed");
                return (Outcome::Unknown, Answer::default());
            }
            Err(_) => return (Outcome::Unknown, Answer::default()),
        };
        match claim::review(&growth, &volume) {
            claim::Review::Admitted => admitted,
            claim::Review::Refused(why) => (Outcome::Refused, Answer::refused(why)),
            // Whether it is attached, and how large it is now.
            claim::Review::ReadDisk(id) => match self.disk(&id, Freshness::single(), deadline).await {
                Ok(disk) => match claim::refusal(&growth, &disk) {
                    Some(why) => (Outcome::Refused, Answer::refused(why)),
                    None => admitted,
                },
                Err(NoDisk::TooMany) => {
                    let warning = format!(
                        "too many disks are reviewed now to tell whether the disk {} can have this size",
                        id.name()
                    );
                    (Outcome::Unknown, Answer::admitted_with(warning))
                }
                Err(NoDisk::Missing | NoDisk::Unknown) => {
                    let warning =
                        format!("Azure did not tell in time whether the disk {} can have this size", id.name());
                    (Outcome::Unknown, Answer::admitted_with(warning))
                }
            },
        }
    }

    /// Reads a disk after all else that asks Azure, and within what reviews may read.
    async fn disk(&self, id: &ArmId, freshness: Freshness, deadline: Instant) -> Result<Disk, NoDisk> {
        let is_left = self.budget.lock().unwrap_or_else(PoisonError::into_inner).take(self.began.elapsed());
        if !is_left {
            return Err(NoDisk::TooMany);
        }
        let freshness = freshness.priority(Priority::List);
        let until = Until::new(deadline, CancellationToken::new());
        let compute: &Compute = &self.options.compute;
        match compute.read_disk(id, freshness, &until).await {
            Ok(read) => Ok(read.model),
            Err(error) => Err(no_disk(id, &error)),
        }
    }
}

/// What is said of a volume whose disk is not read.
fn no_labels(disk: &ArmId, why: &str) -> String {
    format!("the volume gets no labels of region and zone: disk {}: {why}", disk.name())
}

fn no_disk(id: &ArmId, error: &ArmError) -> NoDisk {
    if error.fault == Fault::NotFound {
        return NoDisk::Missing;
    }
    warn!(disk = %id, %error, "a review goes on without its disk");
    NoDisk::Unknown
}
