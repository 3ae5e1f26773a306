//! The course of a CreateVolume with a source.

use std::{mem, sync::Arc};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    ArmId, Disk, Snapshot,
    disk_spec::DiskSpec,
    fault::{self, Effect, Fault, Rpc},
    parameter::ParameterError,
};
use lazuli_quota::{permit::Priority, read::Accept};
use lazuli_volume::{
    Adopted, CreatePlan, Defaults, Request,
    copy::{
        AZURE_COPY_LIMITS, CopyPlan, CopyRefusal, CopyRoute, CopySeen, CopySource, Descent, Link, NextCopy, Readiness,
        carrier_id, is_carrier_to, next, plan_copy, refused_by_instant_access,
    },
};

use super::{Call, Descend, Event, Failure, Links, Next, Report, Scope, Step, may_have_written, read};
use crate::calls::{found, unexpected};

/// How often a call writes. A disk over a carrier takes three writes, and two more where the carrier is useless; what needs
/// more is being changed by another hand, and external-provisioner asks again.
const MOST_WRITES: u32 = 6;

/// What was made.
#[derive(Debug, Clone)]
pub struct Made {
    /// The disk.
    pub disk: Arc<Disk>,
    /// What CreateVolume answers.
    pub adopted: Adopted,
}

/// The source, by a single read.
#[derive(Debug)]
enum Source {
    Disk(Box<Disk>),
    Snapshot(Box<Snapshot>),
    Gone,
}

/// A disk that is made from a snapshot or from another disk.
#[derive(Debug)]
pub struct Create<W> {
    /// The disk, as far as the source does not matter.
    planned: CreatePlan,
    request: Arc<Request>,
    defaults: Arc<Defaults>,
    source: ArmId,
    read: Source,
    /// By the last look, with what this call has written since.
    seen: CopySeen,
    /// What the last creation was to make, and the disk that it has left.
    sent: Option<Arc<DiskSpec>>,
    disk: Option<Arc<Disk>>,
    /// Whether an earlier call has left a disk or a carrier, where the source could not be read; `None` where that was not
    /// looked for.
    leaves: Option<Effect>,
    writes: u32,
    at: At<W>,
}

#[derive(Debug)]
enum At<W> {
    Begin,
    Source,
    /// The source cannot be read, and a final code would follow. The disk is read that an earlier call may have made.
    LookingForLeftDisk,
    /// The carrier is read that an earlier call may have made.
    LookingForLeftCarrier,
    Descending(Descend),
    /// The disk is read that may be there.
    LookingForDisk(Box<CopyPlan>),
    LookingForCarrier(Box<CopyPlan>),
    MakingCarrier(Box<CopyPlan>),
    MakingDisk(Box<CopyPlan>),
    DeletingCarrier(Box<CopyPlan>, ArmId),
    /// The disk cannot be made, and no further call may come: the carrier goes.
    Abandoning(ArmId, W),
    /// It is counted how many disks are being filled.
    CountingDisks(Box<CopyPlan>, W, Scope),
    CountingSnapshots(Box<CopyPlan>, W, Vec<Disk>),
    Over,
}

type Turn<E, W> = Result<Next<Made>, Failure<E, W>>;

impl<W: AzureFailure> Create<W> {
    /// A request that comes now. Its first event is [`Event::Begun`].
    ///
    /// # Errors
    /// The first value of the request that cannot be used, whatever its source is.
    pub fn new(request: Request, source: ArmId, defaults: Defaults) -> Result<Self, ParameterError> {
        let planned = plan_copy(&request, CopySource::Gone(&source), &Descent::default(), &defaults)?;
        Ok(Self {
            planned: planned.create,
            request: Arc::new(request),
            defaults: Arc::new(defaults),
            source,
            read: Source::Gone,
            seen: CopySeen::default(),
            sent: None,
            disk: None,
            leaves: None,
            writes: 0,
            at: At::Begin,
        })
    }

    /// The disk that is asked for. Its zone and its size may be other ones by its source.
    pub fn planned(&self) -> &CreatePlan {
        &self.planned
    }

    /// What follows from an event, which is the answer to the call before.
    pub fn step<E: AzureFailure>(
        &mut self,
        links: &mut Links,
        event: Event<E, W>,
    ) -> Step<Result<Made, Failure<E, W>>, W> {
        let mut reports = Vec::new();
        let next = match self.turn(links, event, &mut reports) {
            Ok(Next::Call(call)) => Next::Call(call),
            Ok(Next::Done(made)) => Next::Done(Ok(made)),
            Err(failure) => Next::Done(Err(failure)),
        };
        Step { reports, next }
    }

    fn turn<E: AzureFailure>(
        &mut self,
        links: &mut Links,
        event: Event<E, W>,
        reports: &mut Vec<Report<W>>,
    ) -> Turn<E, W> {
        match (mem::replace(&mut self.at, At::Over), event) {
            (At::Begin, Event::Begun) => match read(&self.source, Accept::Single, Priority::Read) {
                Some(call) => self.go(At::Source, call),
                None => self.descend(links, Link::Unknown),
            },
            (At::Source, Event::Disk(Err(error))) if self.is_final(&error) => self.look_for_leftovers(),
            (At::Source, Event::Snapshot(Err(error))) if self.is_final(&error) => self.look_for_leftovers(),
            (At::LookingForLeftDisk, Event::Disk(read)) => match (read, self.carrier()) {
                (Err(error), Some(snapshot)) if error.fault().says_that_it_is_missing() => {
                    let call = Call::ReadSnapshot { snapshot, priority: Priority::Create };
                    self.go(At::LookingForLeftCarrier, call)
                }
                (Err(error), None) if error.fault().says_that_it_is_missing() => self.read_source_again(Effect::None),
                _ => self.read_source_again(Effect::Possible),
            },
            (At::LookingForLeftCarrier, Event::Snapshot(read)) => {
                let is_none = match &read {
                    Ok(there) => !is_carrier_to(there, &self.planned.disk),
                    Err(error) => error.fault().says_that_it_is_missing(),
                };
                self.read_source_again(if is_none { Effect::None } else { Effect::Possible })
            }
            (At::Source, Event::Disk(read)) => {
                let disk = self.source_read(read)?;
                let link = disk.as_deref().map_or(Link::Unknown, Link::of_disk);
                self.read = disk.map_or(Source::Gone, Source::Disk);
                self.descend(links, link)
            }
            (At::Source, Event::Snapshot(read)) => {
                let snapshot = self.source_read(read)?;
                let link = snapshot.as_deref().map_or(Link::Unknown, Link::of_snapshot);
                self.read = snapshot.map_or(Source::Gone, Source::Snapshot);
                self.descend(links, link)
            }
            (At::Descending(mut walk), event) => {
                let next = walk.next(links, event).map_err(|(id, error)| unreadable(id, error))?;
                self.descended(walk, next)
            }
            (At::LookingForDisk(plan), Event::Disk(read)) => {
                let disk = found(read).map_err(|error| unreadable(plan.create.disk.clone(), error))?;
                self.seen.disk = disk.map(|disk| *disk);
                match &plan.route {
                    CopyRoute::Direct(_) => self.decide(plan),
                    CopyRoute::Carried { carrier, .. } => {
                        let call = Call::ReadSnapshot { snapshot: carrier.clone(), priority: Priority::Create };
                        self.go(At::LookingForCarrier(plan), call)
                    }
                }
            }
            (At::LookingForCarrier(plan), Event::Snapshot(read)) => {
                let carrier = match &plan.route {
                    CopyRoute::Carried { carrier, .. } => carrier,
                    CopyRoute::Direct(_) => &self.source,
                };
                let carrier = found(read).map_err(|error| unreadable(carrier.clone(), error))?;
                self.seen.carrier = carrier.map(|carrier| *carrier);
                self.decide(plan)
            }
            (At::MakingCarrier(plan), Event::SnapshotMade(made)) => {
                self.seen.carrier = Some(*made.map_err(Failure::Work)?);
                self.decide(plan)
            }
            (At::MakingDisk(plan), Event::DiskMade(made)) => self.disk_made(plan, made),
            (At::CountingDisks(plan, error, scope), Event::Disks(listed)) => {
                match (listed, scope.narrower(plan.create.disk.resource_group())) {
                    (Ok(disks), _) => self.go(At::CountingSnapshots(plan, error, disks), Call::ListSnapshots(scope)),
                    (Err(_), Some(scope)) => {
                        let call = Call::ListDisks(scope.clone());
                        self.go(At::CountingDisks(plan, error, scope), call)
                    }
                    (Err(_), None) => self.abandon(&plan, error),
                }
            }
            (At::CountingSnapshots(plan, error, disks), Event::Snapshots(listed)) => {
                let snapshots = listed.map(|(snapshots, _)| snapshots).unwrap_or_default();
                self.counted(&plan, error, &disks, &snapshots)
            }
            (At::DeletingCarrier(plan, carrier), Event::Deleted(deleted)) => {
                self.carrier_deleted(plan, carrier, deleted, reports)
            }
            (At::Abandoning(carrier, error), Event::Deleted(deleted)) => {
                reports.extend(deleted.err().map(|why| Report::CarrierLeft(carrier, why)));
                Err(Failure::Work(error))
            }
            (at, event) => unexpected(&at, &event),
        }
    }

    /// A read of the source. With its resource group it is gone too, for nothing can be made from it.
    fn source_read<T, E: AzureFailure>(&self, read: Result<T, E>) -> Result<Option<T>, Failure<E, W>> {
        match read {
            Ok(model) => Ok(Some(model)),
            Err(error) if error.fault().says_that_it_is_missing() => Ok(None),
            Err(error) => {
                let (id, leaves) = (self.source.clone(), self.leaves.unwrap_or(Effect::None));
                Err(Failure::Unreadable { id, error, leaves })
            }
        }
    }

    /// Whether a failed read of the source would end the request for external-provisioner, and nothing is known of what
    /// earlier calls have left. What is left then would belong to nobody.
    fn is_final<E: AzureFailure>(&self, error: &E) -> bool {
        let code = fault::code(Rpc::CreateVolume, error.fault(), error.effect());
        self.leaves.is_none() && !error.fault().says_that_it_is_missing() && !code.keeps_the_claim()
    }

    fn look_for_leftovers<E>(&mut self) -> Turn<E, W> {
        let disk = self.planned.disk.clone();
        let call = Call::ReadDisk { disk, accept: Accept::Single, priority: Priority::Create };
        self.go(At::LookingForLeftDisk, call)
    }

    /// The source's own failure is the answer, unless it has become readable.
    fn read_source_again<E: AzureFailure>(&mut self, leaves: Effect) -> Turn<E, W> {
        self.leaves = Some(leaves);
        match read(&self.source, Accept::Single, Priority::Read) {
            Some(call) => self.go(At::Source, call),
            None => unexpected(&"a source that is neither a disk nor a snapshot", &"a read of it"),
        }
    }

    /// The carrier to the disk, if it were made over one.
    fn carrier(&self) -> Option<ArmId> {
        carrier_id(&self.planned.disk, &self.source)
    }

    fn go<E>(&mut self, at: At<W>, call: Call) -> Turn<E, W> {
        self.at = at;
        Ok(Next::Call(call))
    }

    fn descend<E: AzureFailure>(&mut self, links: &mut Links, link: Link) -> Turn<E, W> {
        let mut walk = Descend::new(self.source.clone(), Priority::Create);
        walk.learn_source(links, link);
        let next = walk.next::<E, W>(links, Event::Begun).map_err(|(id, error)| unreadable(id, error))?;
        self.descended(walk, next)
    }

    fn descended<E>(&mut self, walk: Descend, next: Next<Descent>) -> Turn<E, W> {
        let descent = match next {
            Next::Call(call) => return self.go(At::Descending(walk), call),
            Next::Done(descent) => descent,
        };
        let source = match &self.read {
            Source::Disk(disk) => CopySource::Disk(disk),
            Source::Snapshot(snapshot) => CopySource::Snapshot(snapshot),
            Source::Gone => CopySource::Gone(&self.source),
        };
        let plan = plan_copy(&self.request, source, &descent, &self.defaults).map_err(Failure::Parameter)?;
        match plan.route {
            // The creation of the disk reads it behind its permit.
            CopyRoute::Direct(Readiness::Ready) => self.decide(Box::new(plan)),
            CopyRoute::Direct(_) | CopyRoute::Carried { .. } => {
                let disk = plan.create.disk.clone();
                let call = Call::ReadDisk { disk, accept: Accept::Single, priority: Priority::Create };
                self.go(At::LookingForDisk(Box::new(plan)), call)
            }
        }
    }

    fn decide<E>(&mut self, plan: Box<CopyPlan>) -> Turn<E, W> {
        let next = next(&plan, &self.seen).map_err(Failure::Refused)?;
        self.writes += 1;
        if self.writes > MOST_WRITES {
            return self.answer(&plan);
        }
        match next {
            NextCopy::CreateCarrier { carrier, spec } => {
                let call = Call::MakeSnapshot { snapshot: carrier, spec: Arc::new(*spec) };
                self.go(At::MakingCarrier(plan), call)
            }
            // The creation has ended, and has left the disk as it is: what is wrong with it is no creation.
            NextCopy::CreateDisk(spec) if self.sent.as_deref() == Some(&*spec) => self.answer(&plan),
            NextCopy::CreateDisk(spec) => {
                let spec = Arc::new(*spec);
                self.sent = Some(spec.clone());
                let call = Call::MakeDisk { disk: plan.create.disk.clone(), spec };
                self.go(At::MakingDisk(plan), call)
            }
            NextCopy::DeleteCarrier(carrier) => {
                let call = Call::DeleteSnapshot(carrier.clone());
                self.go(At::DeletingCarrier(plan, carrier), call)
            }
            NextCopy::Answer(adopted) => self.done(*adopted),
        }
    }

    /// The disk as it is.
    fn answer<E>(&self, plan: &CopyPlan) -> Turn<E, W> {
        let Some(disk) = &self.seen.disk else {
            let why = format!("the temporary snapshot of the disk {} does not come to rest", plan.create.disk);
            return Err(Failure::Refused(CopyRefusal::NotYet(why)));
        };
        let adopted = plan.adopt(disk).map_err(|mismatch| Failure::Refused(mismatch.into()))?;
        self.done(adopted)
    }

    fn done<E>(&self, adopted: Adopted) -> Turn<E, W> {
        let read = || self.seen.disk.clone().map(Arc::new);
        let disk = self.disk.clone().or_else(read).expect("what is answered was read or made");
        Ok(Next::Done(Made { disk, adopted }))
    }

    fn disk_made<E>(&mut self, plan: Box<CopyPlan>, made: Result<Arc<Disk>, W>) -> Turn<E, W> {
        match made {
            Ok(disk) => {
                self.seen.disk = Some((*disk).clone());
                self.disk = Some(disk);
                self.decide(plan)
            }
            Err(error) if may_be_limited(&error) && self.filled_from(&plan).is_some() => {
                let scope = Scope::subscription(plan.create.disk.subscription());
                let call = Call::ListDisks(scope.clone());
                self.go(At::CountingDisks(plan, error, scope), call)
            }
            Err(error) => self.abandon(&plan, error),
        }
    }

    /// The snapshot that the disk is filled from.
    fn filled_from<'a>(&'a self, plan: &CopyPlan) -> Option<&'a Snapshot> {
        match (&plan.route, &self.read) {
            (CopyRoute::Carried { .. }, _) => self.seen.carrier.as_ref(),
            (CopyRoute::Direct(_), Source::Snapshot(snapshot)) => Some(snapshot),
            (CopyRoute::Direct(_), Source::Disk(_) | Source::Gone) => None,
        }
    }

    fn counted<E>(&mut self, plan: &CopyPlan, error: W, disks: &[Disk], snapshots: &[Snapshot]) -> Turn<E, W> {
        let source = self.filled_from(plan);
        match source.and_then(|source| AZURE_COPY_LIMITS.of(&plan.create.spec, source, disks, snapshots)) {
            Some(limit) => Err(Failure::Limited(limit, error)),
            None => match source.and_then(|source| refused_by_instant_access(source, &plan.create)) {
                Some(refusal) => Err(Failure::Refused(refusal)),
                None => self.abandon(plan, error),
            },
        }
    }

    /// The disk cannot be made. After a final code no further call may come, and with RESOURCE_EXHAUSTED the next one may be
    /// for another zone.
    fn abandon<E>(&mut self, plan: &CopyPlan, error: W) -> Turn<E, W> {
        let is_final = !fault::code(Rpc::CreateVolume, error.fault(), error.effect()).keeps_the_claim();
        let carrier = self.seen.carrier.as_ref();
        let own = carrier.filter(|there| is_carrier_to(there, &plan.create.disk));
        match own.map(|there| there.id.clone()) {
            Some(carrier) if is_final && !may_have_written(&error) => {
                self.go(At::Abandoning(carrier.clone(), error), Call::DeleteSnapshot(carrier))
            }
            _ => Err(Failure::Work(error)),
        }
    }

    fn carrier_deleted<E>(
        &mut self,
        plan: Box<CopyPlan>,
        carrier: ArmId,
        deleted: Result<(), W>,
        reports: &mut Vec<Report<W>>,
    ) -> Turn<E, W> {
        match (deleted, &self.seen.disk) {
            (Ok(()), _) => {
                self.seen.carrier = None;
                self.decide(plan)
            }
            // The volume is there, and is answered.
            (Err(why), Some(_)) => {
                reports.push(Report::CarrierLeft(carrier, why));
                self.answer(&plan)
            }
            (Err(why), None) => Err(Failure::Work(why)),
        }
    }
}

/// What a plan rests on cannot be read, or what earlier calls may have made: a final code would leave that behind.
fn unreadable<E, W>(id: ArmId, error: E) -> Failure<E, W> {
    Failure::Unreadable { id, error, leaves: Effect::Possible }
}

/// Whether a refusal may be about how many disks are being filled. Azure has no code of its own for that.
fn may_be_limited<W: AzureFailure>(error: &W) -> bool {
    matches!(error.fault(), Fault::Exhausted | Fault::Unclear)
}
