//! The course of a change of attributes.
//!
//! What is sent is planned by a read behind the permit, so a repeated request, and one whose answer was lost, finds what is
//! done and sends what is missing. Whether Azure makes the change now is Azure's to say.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lazuli_engine::attempts::{Attempts, Limits};
use lazuli_engine::single::{Input, Next};
use lazuli_model::{
    Disk,
    disk_spec::ImportVersion,
    fault::{Effect, Fault},
};
use lazuli_quota::permit::Priority;
use lazuli_volume::{
    Cloud,
    import::mark,
    made_for_another,
    modify::{ModifyPlan, plan_modify},
};

use super::{AzureFailure, Done, Failure, Op, SeenDisk, Step, Verb, WholeDisk, Why, Write};
use crate::{
    calls::found,
    whole::{OtherOperation, Watched, failed, in_progress, rest_after},
};

/// How often a change is planned and sent again while Azure calls the disk busy.
const MOST_CONFLICTS: u32 = 1;

/// What a change is to bring.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    /// The attributes of a VolumeAttributesClass.
    Class(Arc<BTreeMap<String, String>>, Cloud),
    /// The mark of a disk that was imported from this version of its blob for certain.
    Mark(ImportVersion),
}

impl Asked {
    /// What a disk needs for it.
    fn plan<E: AzureFailure>(&self, seen: &SeenDisk) -> Result<ModifyPlan, Failure<E>> {
        let refused = |fault, why| Failure::new(fault, Effect::None, why);
        match self {
            Self::Class(class, cloud) => {
                let details = seen.details.as_ref().ok_or_else(|| refused(Fault::Malformed, Why::Unreadable))?;
                plan_modify(class, &seen.disk, details, *cloud)
                    .map_err(|error| refused(Fault::Invalid, Why::NotPossible(error)))
            }
            Self::Mark(version) => match mark(&seen.disk, version) {
                Some(change) => Ok(ModifyPlan { change, ..ModifyPlan::default() }),
                None => Err(refused(Fault::Conflict, Why::Replaced(Write::Change))),
            },
        }
    }
}

/// A change of attributes.
#[derive(Debug, Clone)]
pub(super) struct Change {
    asked: Asked,
    limits: Limits,
    attempts: Attempts,
    conflicts: u32,
    /// The disk, by the first read of it.
    before: Option<Disk>,
    /// The plan of the last send.
    sent: Option<ModifyPlan>,
    at: At,
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// Towards a send.
    Look,
    /// An operation on the disk has not ended.
    Watch(OtherOperation),
    /// The write is in flight.
    Write,
}

const WHY: Why = Why::Write(Write::Change);

impl Change {
    pub(super) fn new(asked: Asked, limits: Limits) -> Self {
        let attempts = Attempts::default();
        Self { asked, limits, attempts, conflicts: 0, before: None, sent: None, at: At::Look }
    }

    pub(super) fn watches(&self) -> bool {
        matches!(self.at, At::Watch(_))
    }

    pub(super) fn next<E: AzureFailure>(&mut self, now: Duration, input: Input<WholeDisk<E>>) -> Step<E> {
        match (std::mem::replace(&mut self.at, At::Look), input) {
            (_, Input::NoPermit(error)) => failed(Failure::azure(WHY, error, &self.attempts)),
            (_, Input::Unwanted) => failed(Failure::new(Fault::Deadline, self.attempts.effect(), Why::Unwanted)),
            (At::Look, Input::Permitted) => Next::Read(Some(Priority::Create)),
            (At::Look, Input::Read(read)) => self.look(now, read),
            (At::Watch(operation), Input::Read(read)) => self.watch(now, operation, read),
            (At::Watch(operation), _) => self.go(At::Watch(operation), Next::Read(None)),
            (At::Write, Input::Written(_)) => self.written(),
            (At::Write, Input::Refused(error)) => self.not_done(error, Accepted::No),
            (At::Write, Input::Failed(error)) => self.not_done(error, Accepted::Yes),
            (At::Look | At::Write, _) => Next::Permit(Verb::Patch),
        }
    }

    /// Decides on a send by a read behind its permit.
    fn look<E: AzureFailure>(&mut self, now: Duration, read: Result<SeenDisk, E>) -> Step<E> {
        let effect = self.attempts.effect();
        let ended = |fault: Fault, why: Why| failed(Failure::new(fault, effect, why));
        let seen = match found(read) {
            Ok(Some(seen)) => seen,
            Ok(None) => return ended(Fault::NotFound, Why::Gone(Write::Change)),
            Err(error) => return failed(Failure::azure(Why::Unreadable, error, &self.attempts)),
        };
        if self.before.as_ref().is_some_and(|before| made_for_another(before, &seen.disk)) {
            return ended(Fault::Conflict, Why::Replaced(Write::Change));
        }
        let operation = OtherOperation { since: now };
        if let Watched::Rest(_) = operation.seen(now, &seen) {
            return self.watch(now, operation, Ok(seen));
        }
        let plan = match self.asked.plan::<E>(&seen) {
            Ok(plan) => plan,
            Err(refused) => return failed(Failure { effect, ..refused }),
        };
        if plan.change.is_empty() {
            return self.as_asked(&seen.disk, plan);
        }
        self.before.get_or_insert(seen.disk);
        let op = Op::Change(Box::new(plan.change.clone()));
        self.sent = Some(plan);
        self.go(At::Write, Next::Write(op))
    }

    /// The disk is as asked. An earlier send of this request, whose answer was lost, may have made it so.
    fn as_asked<E: AzureFailure>(&mut self, disk: &Disk, plan: ModifyPlan) -> Step<E> {
        let Some(sent) = self.sent.take() else { return done(plan) };
        let conversion = sent.conversion.filter(|conversion| disk.sku == Some(conversion.to));
        done(ModifyPlan { change: sent.change, conversion, ..plan })
    }

    fn written<E: AzureFailure>(&mut self) -> Step<E> {
        match self.sent.take() {
            Some(sent) => done(sent),
            None => Next::Permit(Verb::Patch),
        }
    }

    fn watch<E: AzureFailure>(
        &mut self,
        now: Duration,
        operation: OtherOperation,
        read: Result<SeenDisk, E>,
    ) -> Step<E> {
        match found(read) {
            Err(error) => failed(Failure::azure(Why::Unreadable, error, &self.attempts)),
            Ok(None) => Next::Permit(Verb::Patch),
            Ok(Some(seen)) => {
                let watched = operation.seen(now, &seen);
                self.before.get_or_insert(seen.disk);
                match watched {
                    Watched::Rest(rest) => self.go(At::Watch(operation), Next::Rest(rest)),
                    Watched::Ended => Next::Permit(Verb::Patch),
                    Watched::TooLong(elapsed) => failed(in_progress(elapsed)),
                }
            }
        }
    }

    fn not_done<E: AzureFailure>(&mut self, error: E, accepted: Accepted) -> Step<E> {
        if *error.fault() == Fault::Conflict && self.conflicts < MOST_CONFLICTS {
            self.conflicts += 1;
            return Next::Permit(Verb::Patch);
        }
        // Where only the end was lost, the operation goes on or is over: the next read shows it.
        let is_over = accepted == Accepted::Yes && *error.fault() != Fault::OutcomeUnknown;
        let rest = if is_over { None } else { rest_after(&error, &mut self.attempts, self.limits) };
        rest.map_or_else(|| failed(Failure::azure(WHY, error, &self.attempts)), Next::Rest)
    }

    fn go<E: AzureFailure>(&mut self, at: At, next: Step<E>) -> Step<E> {
        self.at = at;
        next
    }
}

/// Whether Azure had accepted a write that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accepted {
    Yes,
    No,
}

fn done<E: AzureFailure>(plan: ModifyPlan) -> Step<E> {
    Next::End(Ok(Done::Changed(Box::new(plan))))
}
