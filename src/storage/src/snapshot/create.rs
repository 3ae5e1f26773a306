//! The course of a creation.

use std::{mem, sync::Arc};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    ArmId, AzureTime, Disk, Snapshot,
    fault::{Effect, Fault},
    snapshot_spec::SnapshotSpec,
};
use lazuli_quota::read::{Accept, By};
use lazuli_volume::{
    Defaults, ParameterError,
    snapshot::{
        NextSnapshot, Route, SnapshotPlan, SnapshotRequest, SnapshotView, SnapshotsSeen, SourceSeen, is_region_refusal,
        next, plan_snapshot,
    },
};

use super::{
    Call, Cause, Context, Done, Event, Failure, ListOf, Listed, Next, Report, Turn, Wanted, Why, Worked, found,
    memory::{Look, Pending, Shown},
};
use crate::calls::unexpected;

/// The creation of a snapshot.
#[derive(Debug)]
pub(super) struct Create<W> {
    request: SnapshotRequest,
    defaults: Arc<Defaults>,
    /// Whether something of the request is there, or may be.
    effect: Effect,
    /// Whether the last write that was asked for is the only one whose outcome was not certain.
    is_only_write: bool,
    has_warned: bool,
    at: At<W>,
}

#[derive(Debug)]
enum At<W> {
    Begin,
    /// The unfinished snapshot is being looked at.
    Look(Arc<Pending>),
    /// The source is being read, and a list may show it.
    Source,
    /// The source is being read singly. This snapshot was there before.
    SourceAlone(Option<Box<Snapshot>>),
    /// The snapshots are being read, in this order: the one that is asked for, then the local one.
    Target(Planned),
    Local(Planned, Option<Box<Snapshot>>),
    /// The snapshot is being made in its region.
    Make(Planned, By),
    /// A snapshot is being made or deleted on the way to one in another region.
    Work(Planned, Box<SnapshotsSeen>, Part),
    /// A copy is to be made, if Azure's limits allow it now.
    Turn(Planned, Box<SnapshotsSeen>, Box<SnapshotSpec>),
    /// Azure has refused the snapshot. Has it reached a limit?
    Limits(Planned, W),
    /// Azure has refused the region of the copy, and the local snapshot is being deleted.
    Withdraw(Planned, W),
    Over,
}

/// A plan, and the source by which it was made.
#[derive(Debug, Clone)]
struct Planned {
    plan: Arc<SnapshotPlan>,
    source: Option<Arc<Disk>>,
}

/// Which snapshot is being worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Target,
    Local,
}

impl<W: AzureFailure> Create<W> {
    pub(super) fn new(request: SnapshotRequest, defaults: Arc<Defaults>) -> Self {
        Self { request, defaults, effect: Effect::None, is_only_write: false, has_warned: false, at: At::Begin }
    }

    pub(super) fn next<E: AzureFailure>(&mut self, cx: &mut Context<'_, '_>, event: Event<E, W>) -> Turn<Done, E, W> {
        match (mem::replace(&mut self.at, At::Over), event) {
            (At::Begin, Event::Begun) => self.begin(cx),
            (At::Look(pending), Event::Listed(listed)) => {
                let listed = listed.map_err(|error| self.unlisted(&pending.watched, error))?;
                let shown = pending.listed(&listed.snapshots, listed.sent_at);
                self.looked(cx, &pending, shown, None)
            }
            (At::Look(pending), Event::Snapshot(snapshot)) => {
                let snapshot = found(snapshot).map_err(|error| self.unreadable(&pending.watched, error))?;
                let shown = snapshot.as_deref().map_or(Shown::Other, |(snapshot, _)| pending.shown(snapshot));
                let alone = snapshot.filter(|read| read.1 == By::Single).map(|read| read.0);
                self.looked(cx, &pending, shown, alone)
            }
            (At::Source, Event::Source(source)) => self.source(cx, source),
            (At::SourceAlone(there), Event::Source(source)) => self.source_alone(cx, there, source),
            (At::Target(planned), Event::Snapshot(target)) => self.target(cx, planned, target),
            (At::Local(planned, target), Event::Snapshot(local)) => {
                let Route::AcrossRegions { local: id, .. } = &planned.plan.route else { unexpected(&planned, &local) };
                let local = found(local).map_err(|error| self.unreadable(id, error))?;
                let seen = SnapshotsSeen { target: target.map(|target| *target), local: local.map(|read| read.0) };
                self.decide(cx, planned, seen)
            }
            (At::Make(planned, by), Event::Worked(worked)) => self.made(cx, planned, by, worked),
            (At::Work(planned, seen, part), Event::Worked(worked)) => self.worked(cx, planned, *seen, part, worked),
            (At::Turn(planned, seen, copy), Event::Listed(listed)) => self.turn(cx, planned, *seen, copy, listed),
            (At::Limits(planned, error), Event::Listed(listed)) => Err(self.limited(cx, &planned, error, listed)),
            (At::Withdraw(planned, error), Event::Worked(worked)) => Err(self.withdrawn(&planned, error, worked)),
            (at, event) => unexpected(&at, &event),
        }
    }

    fn go<E>(&mut self, at: At<W>, call: Call) -> Turn<Done, E, W> {
        self.at = at;
        Ok(Next::Call(call))
    }

    fn begin<E>(&mut self, cx: &Context<'_, '_>) -> Turn<Done, E, W> {
        let memory = &cx.env.memory;
        let pending = memory.of(&self.request);
        if pending.is_some() || memory.may_come(&self.request, cx.now) {
            // An earlier call may have made it.
            self.effect = Effect::Possible;
        }
        let Some(pending) = pending else { return self.read_source() };
        let call = match memory.look(&pending, cx.now) {
            Look::List { of, not_before } => Call::List { of, not_before },
            Look::Read => read(&pending.watched, Accept::List),
        };
        self.go(At::Look(pending), call)
    }

    fn read_source<E>(&mut self) -> Turn<Done, E, W> {
        let disk = self.request.volume.clone();
        self.go(At::Source, Call::ReadSource { disk, accept: Accept::List })
    }

    fn read_source_alone<E>(&mut self, there: Option<Box<Snapshot>>) -> Turn<Done, E, W> {
        let disk = self.request.volume.clone();
        self.go(At::SourceAlone(there), Call::ReadSource { disk, accept: Accept::Single })
    }

    /// A process before this one may have made something of the request, so a failed read of it or of its source is never
    /// final.
    fn unreadable<E>(&self, snapshot: &ArmId, error: E) -> Failure<E, W> {
        Failure::new(Cause::Azure(Why::Snapshot(snapshot.clone()), error), Effect::Possible)
    }

    fn unlisted<E>(&self, of: &ArmId, error: E) -> Failure<E, W> {
        Failure::new(Cause::Azure(Why::List(of.subscription().to_owned()), error), Effect::Possible)
    }

    fn refused<E>(&self, cause: Cause<E, W>) -> Failure<E, W> {
        Failure::new(cause, self.effect)
    }

    /// What a look at an unfinished snapshot means. `alone` is the snapshot where a single read has shown it.
    fn looked<E: AzureFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        pending: &Arc<Pending>,
        shown: Shown,
        alone: Option<Snapshot>,
    ) -> Turn<Done, E, W> {
        match (shown, alone, &pending.plan.route) {
            (Shown::Pending, _, _) => Ok(Next::Done(Done::Made(pending.view.clone()))),
            (Shown::Over, None, Route::InRegion(_)) => {
                self.go(At::Look(pending.clone()), read(&pending.watched, Accept::Single))
            }
            (Shown::Over, target @ Some(_), Route::InRegion(_)) => {
                let planned = Planned { plan: pending.plan.clone(), source: None };
                self.decide(cx, planned, SnapshotsSeen { target, local: None })
            }
            _ => {
                cx.env.memory.forget(&pending.plan.snapshot);
                self.read_source()
            }
        }
    }

    /// The plan for the source that was read; `None` where there is none.
    fn plan<E>(&mut self, cx: &mut Context<'_, '_>, source: Option<Disk>) -> Result<Planned, Failure<E, W>> {
        let seen = source.as_ref().map_or(SourceSeen::Gone, SourceSeen::Disk);
        let plan = plan_snapshot(&self.request, &self.defaults, seen);
        let plan = Arc::new(plan.map_err(|error| self.refused(Cause::Parameter(error)))?);
        if !mem::replace(&mut self.has_warned, true) {
            cx.reports.extend(plan.warnings.iter().cloned().map(Report::Warning));
        }
        Ok(Planned { plan, source: source.map(Arc::new) })
    }

    fn source<E: AzureFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        source: Result<Box<(Disk, By)>, E>,
    ) -> Turn<Done, E, W> {
        let source = self.found_source(source)?;
        let by = source.as_ref().map_or(By::Single, |(_, by)| *by);
        let is_gone = source.is_none();
        let planned = self.plan(cx, source.map(|(disk, _)| disk))?;
        match &planned.plan.route {
            Route::InRegion(spec) if !is_gone => {
                let call = self.make(cx, planned.plan.snapshot.clone(), (**spec).clone());
                self.go(At::Make(planned, by), call)
            }
            Route::AcrossRegions { .. } if by == By::List => self.read_source_alone(None),
            Route::InRegion(_) | Route::AcrossRegions { .. } => self.read_target(planned),
        }
    }

    fn found_source<E: AzureFailure>(
        &self,
        source: Result<Box<(Disk, By)>, E>,
    ) -> Result<Option<(Disk, By)>, Failure<E, W>> {
        let why = || Why::Source(self.request.volume.clone());
        let source = found(source).map_err(|error| Failure::new(Cause::Azure(why(), error), Effect::Possible))?;
        Ok(source.map(|source| *source))
    }

    fn source_alone<E: AzureFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        there: Option<Box<Snapshot>>,
        source: Result<Box<(Disk, By)>, E>,
    ) -> Turn<Done, E, W> {
        let source = self.found_source(source)?;
        let planned = self.plan(cx, source.map(|(disk, _)| disk))?;
        match (there, &planned.plan.route) {
            (Some(there), Route::InRegion(_)) => {
                self.decide(cx, planned, SnapshotsSeen { target: Some(*there), local: None })
            }
            _ => self.read_target(planned),
        }
    }

    /// Has a snapshot made. The request may not live to see what comes of it.
    fn make(&mut self, cx: &mut Context<'_, '_>, snapshot: ArmId, spec: SnapshotSpec) -> Call {
        self.is_only_write = cx.env.memory.begins(&self.request, cx.now);
        Call::Work { snapshot, wanted: Wanted::Made(Arc::new(spec)) }
    }

    /// The work on a snapshot has ended.
    fn ended(&mut self, cx: &mut Context<'_, '_>, worked: &Result<Worked, W>) {
        let is_certain = worked.as_ref().map_or_else(|error| error.effect() == Effect::None, |_| true);
        if is_certain && mem::take(&mut self.is_only_write) {
            cx.env.memory.is_certain(&self.request);
        }
    }

    fn read_target<E>(&mut self, planned: Planned) -> Turn<Done, E, W> {
        let call = read(&planned.plan.snapshot, Accept::Single);
        self.go(At::Target(planned), call)
    }

    fn target<E: AzureFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        planned: Planned,
        target: Result<Box<(Snapshot, By)>, E>,
    ) -> Turn<Done, E, W> {
        let target = found(target).map_err(|error| self.unreadable(&planned.plan.snapshot, error))?;
        let target = target.map(|read| read.0);
        match &planned.plan.route {
            Route::InRegion(_) => self.decide(cx, planned, SnapshotsSeen { target, local: None }),
            Route::AcrossRegions { local, .. } => {
                let call = read(local, Accept::Single);
                self.go(At::Local(planned, target.map(Box::new)), call)
            }
        }
    }

    fn made<E: AzureFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        planned: Planned,
        by: By,
        worked: Result<Worked, W>,
    ) -> Turn<Done, E, W> {
        self.ended(cx, &worked);
        match worked {
            Ok(Worked::Made(made)) => {
                self.effect = Effect::Possible;
                let target = Some(Arc::unwrap_or_clone(made));
                self.decide(cx, planned, SnapshotsSeen { target, local: None })
            }
            Ok(Worked::Found(there)) if by == By::List => {
                self.read_source_alone(Some(Box::new(Arc::unwrap_or_clone(there))))
            }
            Ok(Worked::Found(there)) => {
                let target = Some(Arc::unwrap_or_clone(there));
                self.decide(cx, planned, SnapshotsSeen { target, local: None })
            }
            Ok(done @ (Worked::Gone | Worked::Replaced)) => unexpected(&planned, &done),
            Err(error) if may_be_a_limit(&error) => {
                let of = ListOf::subscription_of(&self.request.volume);
                self.go(At::Limits(planned, error), Call::List { of, not_before: cx.now })
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed<E>(&mut self, error: W) -> Failure<E, W> {
        if error.effect() == Effect::Possible {
            self.effect = Effect::Possible;
        }
        self.refused(Cause::Work(error))
    }

    /// The failure of a snapshot that Azure has refused: the limit that it has reached, or Azure's own.
    fn limited<E>(
        &mut self,
        cx: &Context<'_, '_>,
        planned: &Planned,
        error: W,
        listed: Result<Listed, E>,
    ) -> Failure<E, W> {
        let spec = match &planned.plan.route {
            Route::InRegion(spec) => spec,
            Route::AcrossRegions { of_disk, .. } => of_disk,
        };
        let limit = listed
            .ok()
            .zip(planned.source.as_ref())
            .and_then(|(listed, disk)| cx.env.limits.of_disk(spec, disk, &listed.snapshots, azure_now(&listed)));
        match limit {
            Some(limit) => self.refused(Cause::Limit(limit)),
            None => self.failed(error),
        }
    }

    /// What comes next by the snapshots that are there.
    fn decide<E: AzureFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        planned: Planned,
        seen: SnapshotsSeen,
    ) -> Turn<Done, E, W> {
        if planned.plan.has_any(&seen) {
            self.effect = Effect::Possible;
        }
        match next(&planned.plan, &seen) {
            Err(refusal) => Err(self.refused(Cause::Refused(refusal))),
            Ok(NextSnapshot::Answer(view)) => {
                self.remember(cx, &planned.plan, &seen, &view);
                Ok(Next::Done(Done::Made(view)))
            }
            Ok(NextSnapshot::DeleteLocal(local)) => {
                let call = Call::Work { snapshot: local, wanted: Wanted::Deleted };
                self.go(At::Work(planned, Box::new(seen), Part::Local), call)
            }
            Ok(NextSnapshot::Create { snapshot, spec }) if snapshot == planned.plan.snapshot => {
                // Azure copies the snapshots of a disk in order, and says too little where it does not.
                let of = ListOf::subscription_of(&snapshot);
                self.go(At::Turn(planned, Box::new(seen), spec), Call::List { of, not_before: cx.now })
            }
            Ok(NextSnapshot::Create { snapshot, spec }) => {
                if let Some(refused) = refused_before(cx, &planned.plan) {
                    return Err(self.refused(Cause::Parameter(refused)));
                }
                let call = self.make(cx, snapshot, *spec);
                self.go(At::Work(planned, Box::new(seen), Part::Local), call)
            }
        }
    }

    fn remember(&self, cx: &mut Context<'_, '_>, plan: &Arc<SnapshotPlan>, seen: &SnapshotsSeen, view: &SnapshotView) {
        match (view.is_ready, seen.target.as_ref().or(seen.local.as_ref())) {
            (false, Some(shown)) if view.failure.is_none() => {
                cx.env.memory.learn(&self.request, plan, view, shown, cx.now)
            }
            _ => cx.env.memory.forget(&plan.snapshot),
        }
    }

    /// Whether the copy can be made now.
    fn turn<E: AzureFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        planned: Planned,
        seen: SnapshotsSeen,
        copy: Box<SnapshotSpec>,
        listed: Result<Listed, E>,
    ) -> Turn<Done, E, W> {
        let listed = listed.map_err(|error| self.unlisted(&planned.plan.snapshot, error))?;
        let there = &listed.snapshots;
        let limit =
            seen.local.as_ref().and_then(|local| cx.env.limits.of_copy(&copy, local, there, azure_now(&listed)));
        if let Some(limit) = limit {
            return Err(self.refused(Cause::Limit(limit)));
        }
        let call = self.make(cx, planned.plan.snapshot.clone(), *copy);
        self.go(At::Work(planned, Box::new(seen), Part::Target), call)
    }

    /// Azure makes no copy in this region, now or later. The local snapshot is for nothing then, and would keep other copies
    /// of the disk waiting.
    fn withdraw<E>(&mut self, cx: &mut Context<'_, '_>, planned: Planned, error: W) -> Turn<Done, E, W> {
        let Route::AcrossRegions { local, copy, .. } = &planned.plan.route else { return Err(self.failed(error)) };
        cx.env.memory.region_is_refused(&planned.plan.snapshot, &copy.location, error.code(), cx.now);
        cx.env.memory.forget(&planned.plan.snapshot);
        // The write that made the local snapshot may have been sent twice, and may come again after the deletion. So no answer
        // of that time is one after which external-snapshotter forgets the snapshot.
        cx.env.memory.begins(&self.request, cx.now);
        let call = Call::Work { snapshot: local.clone(), wanted: Wanted::Deleted };
        self.go(At::Withdraw(planned, error), call)
    }

    /// The local snapshot of a copy that Azure has refused is gone, or could not be deleted: then the next call tries again.
    fn withdrawn<E>(&mut self, planned: &Planned, error: W, worked: Result<Worked, W>) -> Failure<E, W> {
        if let Err(error) = worked {
            return self.failed(error);
        }
        self.effect = Effect::Possible;
        match planned.plan.region_refused(error.code()) {
            Some(refused) => self.refused(Cause::Region(refused, error)),
            None => self.failed(error),
        }
    }

    /// A snapshot on the way to one in another region is made or deleted.
    fn worked<E: AzureFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        planned: Planned,
        mut seen: SnapshotsSeen,
        part: Part,
        worked: Result<Worked, W>,
    ) -> Turn<Done, E, W> {
        self.ended(cx, &worked);
        let shown = match worked {
            Ok(Worked::Made(there) | Worked::Found(there)) => Some(Arc::unwrap_or_clone(there)),
            Ok(Worked::Gone | Worked::Replaced) => None,
            Err(error)
                if part == Part::Local && seen.target.is_none() && seen.local.is_none() && may_be_a_limit(&error) =>
            {
                let of = ListOf::subscription_of(&self.request.volume);
                return self.go(At::Limits(planned, error), Call::List { of, not_before: cx.now });
            }
            Err(error) if part == Part::Target && error.effect() == Effect::None && is_region_refusal(error.code()) => {
                return self.withdraw(cx, planned, error);
            }
            Err(error) => return Err(self.failed(error)),
        };
        match part {
            Part::Target => seen.target = shown,
            Part::Local => seen.local = shown,
        }
        self.decide(cx, planned, seen)
    }
}

/// The refusal of the region that a plan names, where Azure has refused it of late.
fn refused_before(cx: &Context<'_, '_>, plan: &SnapshotPlan) -> Option<ParameterError> {
    let Route::AcrossRegions { copy, .. } = &plan.route else { return None };
    plan.region_refused(cx.env.memory.refusal(&plan.snapshot, &copy.location, cx.now)?)
}

fn read(snapshot: &ArmId, accept: Accept) -> Call {
    Call::ReadSnapshot { snapshot: snapshot.clone(), accept, not_before: None }
}

/// Whether Azure may have refused a snapshot because of one of its limits. Their codes are not documented, so each refusal
/// that has left nothing, and does not say another reason by itself, is compared with them.
fn may_be_a_limit(error: &impl AzureFailure) -> bool {
    error.effect() == Effect::None
        && matches!(
            error.fault(),
            Fault::Unclear
                | Fault::Exhausted
                | Fault::Conflict
                | Fault::Invalid
                | Fault::Denied
                | Fault::OperationFailed
        )
}

/// Azure's clock; where it does not tell, no limit of time is taken for reached.
fn azure_now(listed: &Listed) -> AzureTime {
    listed.azure_now.unwrap_or_else(|| AzureTime::from_unix_seconds(i64::MAX))
}
