//! The course of one request for a share.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lazuli_engine::{
    Awaited,
    attempts::{Attempts, Limits},
    single::{AzureFailure, Course, Input, Next},
};
use lazuli_model::{
    ArmId, FileShare, Gib, StorageSku,
    fault::Fault,
    op::{ShareChange, ShareSpec},
    parameter::ParameterError,
};

use super::{Failure as WorkFailure, Verb, rest_after};
use crate::{
    adoption::Adoptions,
    deletion::{self, Evidence, Kept, NotNow, ShareSeen, ShareVolumes, Verdict, Volumes},
    share::{AfterPut, Expand, PutAnswer, ShareMismatch, SharePlan, plan_expand, plan_modify},
    volume_id::ShareVolumeId,
};

/// What is asked of a share.
#[derive(Debug, Clone)]
pub struct Request {
    /// What it is to become.
    pub wanted: Wanted,
    /// How often and how long each of its writes is tried.
    pub limits: Limits,
}

/// What a share is to become.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// It exists, as a claim asks for it.
    Made {
        /// The plan of the claim.
        plan: Arc<SharePlan>,
        /// What its PUT says.
        spec: ShareSpec,
        /// The size of its PersistentVolume, where there is one already: a retry may come after it has grown.
        persistent_volume: Option<Gib>,
    },
    /// It does not exist, if nothing else needs it.
    Deleted {
        /// The volume.
        volume: Arc<ShareVolumeId>,
        /// The share.
        share: ArmId,
        /// `shareNamePrefix` of its class, as the PersistentVolume keeps it.
        prefix: Option<String>,
    },
    /// It is so large.
    Grown {
        /// `capacity_range.required_bytes`
        required_bytes: i64,
        /// `capacity_range.limit_bytes`; 0 when there is none.
        limit_bytes: i64,
        /// The SKU of its account, where it is known.
        sku: Option<StorageSku>,
    },
    /// It is as a VolumeAttributesClass says.
    Modified {
        /// The parameters of the class.
        parameters: Arc<BTreeMap<String, String>>,
        /// The SKU of its account, where it is known.
        sku: Option<StorageSku>,
    },
}

impl Wanted {
    /// Whether both ask for the same.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Made { plan: one, spec, .. }, Self::Made { plan: other, spec: of_other, .. }) => {
                one == other && spec == of_other
            }
            (Self::Deleted { volume: one, .. }, Self::Deleted { volume: other, .. }) => one == other,
            (
                Self::Grown { required_bytes: one, limit_bytes, .. },
                Self::Grown { required_bytes: other, limit_bytes: of_other, .. },
            ) => one == other && limit_bytes == of_other,
            (Self::Modified { parameters: one, .. }, Self::Modified { parameters: other, .. }) => one == other,
            _ => false,
        }
    }

    /// In words: what is in progress.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Made { .. } => "its creation",
            Self::Deleted { .. } => "its deletion",
            Self::Grown { .. } => "its expansion",
            Self::Modified { .. } => "the change of its performance",
        }
    }
}

/// What else a share's course rests on, as of the moment of a decision.
#[derive(Debug, Clone, Default)]
pub struct Env {
    /// The PersistentVolumes of the cluster; `None` while the watch has not listed them.
    pub volumes: ShareVolumes,
    /// The requests that were given shares. Their clock is the step's.
    pub adoptions: Arc<Adoptions>,
    /// The name of this driver.
    pub driver_name: String,
}

/// What a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Query {
    /// The share.
    Share,
    /// The times of its snapshots.
    Snapshots,
}

/// What Azure shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// The share. Of a PUT's answer: whether it was made by it.
    Share {
        /// The share.
        share: FileShare,
        /// 201: it did not exist before this PUT.
        is_new: bool,
    },
    /// The times of its snapshots.
    Snapshots(Vec<String>),
}

/// What a write sends.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Makes the share.
    Put(ShareSpec),
    /// Changes it.
    Change(ShareChange),
    /// Deletes it, and never its snapshots.
    Delete,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// The share has this size.
    Size(Gib),
    /// There is no such share any more.
    Gone,
    /// It stays, and the volume goes.
    Kept(Kept),
}

/// What failed.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// The creation.
    Creation,
    /// The deletion.
    Deletion,
    /// The expansion.
    Expansion,
    /// The change of its performance.
    Modification,
    /// The share, or its snapshots, cannot be read.
    Unreadable,
    /// The share that exists cannot be the volume.
    Mismatch(ShareMismatch),
    /// It cannot be deleted now.
    NotNow(NotNow),
    /// It cannot have the size or the performance that is asked for.
    Parameter(ParameterError),
    /// No caller waits for it any more, so it was not sent.
    Unwanted,
}

/// Why a request for a share failed.
pub type Failure<E> = WorkFailure<Why, E>;

/// The course of a request.
#[derive(Debug, Clone)]
pub struct Share<E> {
    request: Request,
    attempts: Attempts,
    at: At,
    error: std::marker::PhantomData<E>,
}

#[derive(Debug, Clone, PartialEq)]
enum At {
    /// Towards the first send.
    Look,
    /// The write is in flight.
    Write,
    /// The PUT met a share: what does it show?
    Met,
    /// Towards the PATCH that gives a share the size of its volume.
    Enlarge(ShareChange, Gib),
    /// That PATCH, or the one of an expansion or of another performance, is in flight.
    Grows(ShareChange, Gib),
    /// Azure has refused the deletion, because of snapshots.
    Snapshots,
}

impl<E: AzureFailure> Course for Share<E> {
    type Request = Request;
    type Seen = Seen;
    type Env = Env;
    type Query = Query;
    type Verb = Verb;
    type Op = Op;
    type Done = Done;
    type Why = Failure<E>;
    type Error = E;

    fn of(request: &Request) -> Self {
        Self { request: request.clone(), attempts: Attempts::default(), at: At::Look, error: std::marker::PhantomData }
    }

    fn is_same(running: &Request, asked: &Request) -> bool {
        running.wanted.is_same(&asked.wanted)
    }

    fn next(&mut self, env: &Env, now: Duration, input: Input<Self>) -> Next<Self> {
        match input {
            Input::NoPermit(error) => return self.failed(self.why(), error),
            Input::Unwanted => return self.refused(Fault::Deadline, Why::Unwanted),
            _ => {}
        }
        match self.request.wanted.clone() {
            Wanted::Made { plan, spec, persistent_volume } => self.make(&plan, &spec, persistent_volume, input),
            Wanted::Deleted { volume, share, prefix } => {
                let evidence = Evidence {
                    volume: &volume,
                    share_id: &share,
                    prefix: prefix.as_deref(),
                    share: ShareSeen::NotRead,
                    snapshots: &[],
                    volumes: env.volumes.as_ref().map_or(Volumes::Unknown, |volumes| Volumes::Known(volumes)),
                    adoptions: &env.adoptions,
                    now,
                    driver_name: &env.driver_name,
                };
                self.delete(&evidence, input)
            }
            Wanted::Grown { required_bytes, limit_bytes, sku } => {
                self.change(input, |share| plan_expand(share, sku, required_bytes, limit_bytes))
            }
            Wanted::Modified { parameters, sku } => self.change(input, |share| {
                let change = plan_modify(share, sku, &parameters)?;
                Ok(if change.is_empty() { Expand::Enough(share.quota) } else { Expand::Grow(change, share.quota) })
            }),
        }
    }

    /// A share that is made in part does not exist.
    fn goes_on_alone(&self) -> bool {
        false
    }

    fn rests_for(&self) -> Awaited {
        Awaited::Pause
    }
}

impl<E: AzureFailure> Share<E> {
    fn why(&self) -> Why {
        match self.request.wanted {
            Wanted::Made { .. } => Why::Creation,
            Wanted::Deleted { .. } => Why::Deletion,
            Wanted::Grown { .. } => Why::Expansion,
            Wanted::Modified { .. } => Why::Modification,
        }
    }

    fn go(&mut self, at: At, next: Next<Self>) -> Next<Self> {
        self.at = at;
        next
    }

    fn failed(&self, why: Why, error: E) -> Next<Self> {
        Next::End(Err(Failure::azure(why, error, &self.attempts)))
    }

    fn refused(&self, fault: Fault, why: Why) -> Next<Self> {
        Next::End(Err(Failure::new(fault, &self.attempts, why)))
    }

    /// What follows after a write that was not done: another try from `again`, or the failure.
    fn not_done(&mut self, again: At, error: E) -> Next<Self> {
        match rest_after(&error, &mut self.attempts, self.request.limits) {
            Some(rest) => self.go(again, Next::Rest(rest)),
            None => self.failed(self.why(), error),
        }
    }

    fn make(&mut self, plan: &SharePlan, spec: &ShareSpec, volume: Option<Gib>, input: Input<Self>) -> Next<Self> {
        // A PUT takes the size back that an expansion gave, so a share of a PersistentVolume is not PUT unread.
        let spec = &ShareSpec { quota: volume.map_or(spec.quota, |size| size.max(spec.quota)), ..spec.clone() };
        let put = |this: &mut Self| this.go(At::Write, Next::Write(Op::Put(spec.clone())));
        match (self.at.clone(), input) {
            (At::Look, Input::Permitted) if plan.is_read_first() || volume.is_some() => Next::Read(Query::Share),
            (At::Look, Input::Permitted) => put(self),
            (At::Look, Input::Read(Ok(Seen::Share { share, .. }))) if !plan.is_read_first() => {
                self.made(plan, spec, PutAnswer::Existed(&share), volume)
            }
            (At::Look, Input::Read(Ok(Seen::Share { share, .. }))) => match plan.adopt(&share) {
                Ok(size) => Next::End(Ok(Done::Size(size))),
                Err(mismatch) => self.refused(Fault::Invalid, Why::Mismatch(mismatch)),
            },
            (At::Look, Input::Read(Err(error))) if *error.fault() == Fault::NotFound => put(self),
            (At::Look | At::Met, Input::Read(Err(error))) => self.failed(Why::Unreadable, error),
            (At::Write, Input::Written(Some(Seen::Share { is_new: true, .. }))) => {
                self.made(plan, spec, PutAnswer::Created, volume)
            }
            (At::Write, Input::Written(_)) => self.go(At::Met, Next::Read(Query::Share)),
            (At::Met, Input::Read(Ok(Seen::Share { share, .. }))) => {
                self.made(plan, spec, PutAnswer::Existed(&share), volume)
            }
            (At::Write, Input::Refused(error) | Input::Failed(error)) => self.not_done(At::Look, error),
            (At::Enlarge(change, size), Input::Permitted) => {
                self.go(At::Grows(change, size), Next::Write(Op::Change(change)))
            }
            (At::Enlarge(..), _) => Next::Permit(Verb::Patch),
            (At::Grows(_, size), Input::Written(_)) => Next::End(Ok(Done::Size(size))),
            (At::Grows(change, size), Input::Refused(error) | Input::Failed(error)) => {
                self.not_done(At::Enlarge(change, size), error)
            }
            _ => self.go(At::Look, Next::Permit(Verb::Put)),
        }
    }

    fn made(&mut self, plan: &SharePlan, spec: &ShareSpec, answer: PutAnswer<'_>, volume: Option<Gib>) -> Next<Self> {
        match plan.after_put(spec, answer, volume) {
            Ok(AfterPut::Done(size)) => Next::End(Ok(Done::Size(size))),
            Ok(AfterPut::Enlarge(change, size)) => self.go(At::Enlarge(change, size), Next::Permit(Verb::Patch)),
            Err(mismatch) => self.refused(Fault::Invalid, Why::Mismatch(mismatch)),
        }
    }

    /// The PersistentVolumes are looked at once more when the permit has come.
    fn delete(&mut self, evidence: &Evidence<'_>, input: Input<Self>) -> Next<Self> {
        let (seen, snapshots) = match (&self.at, input) {
            (At::Look, Input::Permitted) => {
                return match deletion::may_delete(evidence) {
                    Verdict::Delete(_) => self.go(At::Write, Next::Write(Op::Delete)),
                    Verdict::Read => Next::Read(Query::Share),
                    ended => self.judged(ended),
                };
            }
            (At::Look, Input::Read(Ok(Seen::Share { share, .. }))) => (Some(share), Vec::new()),
            (At::Look, Input::Read(Err(error))) if is_gone(&error) => return Next::End(Ok(Done::Gone)),
            (At::Look | At::Snapshots, Input::Read(Err(error))) => return self.failed(Why::Unreadable, error),
            (At::Write, Input::Written(_)) => return Next::End(Ok(Done::Gone)),
            (At::Write, Input::Refused(error) | Input::Failed(error)) if is_gone(&error) => {
                return Next::End(Ok(Done::Gone));
            }
            (At::Write, Input::Refused(error) | Input::Failed(error)) if *error.fault() == Fault::InUse => {
                return self.go(At::Snapshots, Next::Read(Query::Snapshots));
            }
            (At::Write, Input::Refused(error) | Input::Failed(error)) => return self.not_done(At::Look, error),
            (At::Snapshots, Input::Read(Ok(Seen::Snapshots(times)))) => (None, times),
            // The first look is before the permit: nothing is asked of Azure for a share that stays.
            (At::Look, Input::Begin) => {
                return match deletion::may_delete(evidence) {
                    Verdict::Delete(_) | Verdict::Read => Next::Permit(Verb::Delete),
                    ended => self.judged(ended),
                };
            }
            _ => return self.go(At::Look, Next::Permit(Verb::Delete)),
        };
        let share = seen.as_ref().map_or(evidence.share, ShareSeen::There);
        let verdict = deletion::may_delete(&Evidence { share, snapshots: &snapshots, ..*evidence });
        match (verdict, &self.at) {
            // Azure says that it is in use, and no list says by what.
            (Verdict::Delete(_) | Verdict::Read, At::Snapshots) => self.refused(Fault::InUse, Why::Deletion),
            (Verdict::Delete(_), _) => self.go(At::Write, Next::Write(Op::Delete)),
            (verdict, _) => self.judged(verdict),
        }
    }

    fn judged(&self, verdict: Verdict) -> Next<Self> {
        match verdict {
            Verdict::Gone => Next::End(Ok(Done::Gone)),
            Verdict::Keep(kept) => Next::End(Ok(Done::Kept(kept))),
            Verdict::Refuse(why @ NotNow::HasSnapshots { .. }) => self.refused(Fault::InUse, Why::NotNow(why)),
            Verdict::Refuse(why) => self.refused(Fault::Unavailable, Why::NotNow(why)),
            Verdict::Delete(_) | Verdict::Read => self.refused(Fault::InUse, Why::Deletion),
        }
    }

    /// Reads the share behind a permit, and writes what follows from it.
    fn change(
        &mut self,
        input: Input<Self>,
        plan: impl FnOnce(&FileShare) -> Result<Expand, ParameterError>,
    ) -> Next<Self> {
        match (self.at.clone(), input) {
            (At::Look, Input::Permitted) => Next::Read(Query::Share),
            (At::Look, Input::Read(Ok(Seen::Share { share, .. }))) => match plan(&share) {
                Ok(Expand::Enough(size)) => Next::End(Ok(Done::Size(size))),
                Ok(Expand::Grow(change, size)) => self.go(At::Grows(change, size), Next::Write(Op::Change(change))),
                Err(error) => self.refused(Fault::Invalid, Why::Parameter(error)),
            },
            (At::Look, Input::Read(Err(error))) => self.failed(Why::Unreadable, error),
            (At::Grows(_, size), Input::Written(_)) => Next::End(Ok(Done::Size(size))),
            (At::Grows(..), Input::Refused(error) | Input::Failed(error)) => self.not_done(At::Look, error),
            _ => self.go(At::Look, Next::Permit(Verb::Patch)),
        }
    }
}

/// Azure's codes that say that the account, or the resource group, does not exist. Without these there is no share. What
/// says so of the subscription may be a mistake of this program's configuration.
const NOT_THERE: [&str; 4] =
    ["ResourceGroupNotFound", "ResourceNotFound", "StorageAccountNotFound", "ParentResourceNotFound"];

fn is_gone<E: AzureFailure>(error: &E) -> bool {
    match error.fault() {
        Fault::NotFound => true,
        Fault::ScopeNotFound => NOT_THERE.iter().any(|code| error.code().eq_ignore_ascii_case(code)),
        _ => false,
    }
}
