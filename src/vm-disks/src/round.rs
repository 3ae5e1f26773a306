//! From the requests to one write: which reads a plan needs, and what it waits for.
//!
//! ```text
//!   burst ─▶ permit ─▶ first read ─▶ planning ⇄ reads ─▶ forced ─▶ conditions ─▶ write, or wait
//! ```
//!
//! The permit comes before the read: a write without a condition must follow its read at once. A permit that is not used is
//! given back.

use std::{collections::BTreeSet, time::Duration};

use lazuli_engine::{Awaited, Id, bisection::BisectionStep};
use lazuli_model::{DiskId, fault::Fault, op::VmWriteMethod};
use lazuli_quota::{
    permit::Priority,
    read::{Accept, By},
};

use super::{
    Action, AzureError, Batch, Cx, DiskReads, DiskSeen, Failure, Judge, Retry, State, VmRead, Why,
    aside::Answering,
    conditions::Conditions,
    judge::{Kind, Sent},
    memory::MAX_READ_LAG,
    plan::is_too_old_for_a_list,
    stale::Removal,
    waits::{AtRest, Burst},
};
use lazuli_storage::{
    attach::{self, Goal, Plan, Wait, Writes},
    lun::LunReservations,
};

/// How long attach requests wait until the cluster's VolumeAttachments are known.
const RESERVATIONS_WAIT: Duration = Duration::from_secs(30);
/// How often a round reads what its plan asks for. Requests that arrive meanwhile may ask for more, and wait for the next
/// round then.
const MOST_READS: usize = 8;

/// What is being done for a VM's requests. One thing at a time.
#[derive(Debug)]
pub(super) enum Stage<E> {
    /// Nothing is requested.
    Idle,
    /// The end of a burst of requests is waited for. What a wait for a permit has given is for the round that follows.
    Burst(Burst, Option<(Id, DiskReads<E>)>),
    /// A permit is asked for, if there is one now.
    Permit(Round<E>),
    /// The VM is read.
    FirstRead(Round<E>),
    /// The requests that are not under bisection are answered where they need no write.
    Others(Box<Planning<E>>, Box<Answering<E>>),
    /// What the plan asks for is read.
    Planning(Box<Planning<E>>),
    /// The disks are read whose ordinary detach has failed.
    FailedDetaches(Box<Planning<E>>),
    /// Whether the VM runs is read. These disks' ordinary detach has failed.
    InstanceView(Box<Planning<E>>, BTreeSet<DiskId>),
    /// The disks are read whose detach is for one attachment alone.
    Conditions(Box<Planning<E>>, Conditions),
    /// A write that removes stale disks is prepared.
    Removing(Box<Removal<E>>),
    /// A write is in flight.
    Writing(Box<Sent>),
    /// What follows from a write that has ended.
    Judging(Judge<E>),
    /// Nothing can be done now.
    Waiting(Waiting<E>),
}

/// What a round has gathered before its plan.
#[derive(Debug)]
pub(super) struct Round<E> {
    pub(super) goals: Batch,
    pub(super) permit: Option<Id>,
    kept: DiskReads<E>,
    /// When the VM was asked for.
    asked_at: Duration,
}

/// A read of the VM that a write may follow from.
#[derive(Debug, Clone)]
pub(super) struct Observation {
    pub(super) id: Id,
    pub(super) read: VmRead,
}

/// A plan, and what it rests on.
#[derive(Debug)]
pub(super) struct Planning<E> {
    /// The requests of the round when the VM was first read.
    goals: Batch,
    permit: Option<Id>,
    pub(super) vm: Observation,
    reads: DiskReads<E>,
    /// The requests that are planned.
    members: Batch,
    /// The only disks that this round may plan.
    only: Option<BTreeSet<DiskId>>,
    /// What the last plan says.
    plan: Plan<Duration>,
    /// How many reads the plan has asked for.
    reads_made: usize,
    /// When the last of them was asked for.
    asked_at: Duration,
    /// The disks whose detach is forced.
    force: BTreeSet<DiskId>,
}

impl<E> Planning<E> {
    /// The requests that are planned.
    pub(super) fn members(&self) -> &Batch {
        &self.members
    }
}

/// What is waited for.
#[derive(Debug)]
pub(super) enum Waiting<E> {
    /// The VolumeAttachments, until then.
    Attachments(Duration),
    /// The time from which on reads are fresh, or the end of a pause.
    Until(Duration, Awaited),
    /// A permit, with the requests of the round, and the reads that the round after the wait may use.
    Permit(Batch, DiskReads<E>),
    /// The end of another writer's write of the VM, on which these depend.
    AtRest(Batch, AtRest),
}

impl<E: AzureError> State<E> {
    /// Begins the next round, if anything is requested.
    pub(super) fn next_round(&mut self, cx: &mut Cx<'_, E>) {
        self.next_round_with(cx, None);
    }

    fn next_round_with(&mut self, cx: &mut Cx<'_, E>, waited_for: Option<(Id, DiskReads<E>)>) {
        self.aside_ends(cx);
        // First of all, so that a queue that the last round emptied costs no read.
        if !self.goals().is_empty() {
            self.stage = Stage::Burst(Burst::new(cx.now), waited_for);
            return;
        }
        self.stage = Stage::Idle;
        cx.release(waited_for.map(|(permit, _)| permit));
    }

    /// The requested goals, without abandoned requests. All have been looked at then.
    fn goals(&mut self) -> Batch {
        self.looked_at = self.queue.arrivals();
        self.queue.goals()
    }

    /// Gives up a read or a permit that no caller waits for any more: all have given up, or were answered meanwhile.
    pub(super) fn end_what_nobody_wants(&mut self, cx: &mut Cx<'_, E>) {
        if self.queue.has_requests() {
            return;
        }
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::FirstRead(round) => {
                self.await_nothing(cx);
                cx.release(round.permit);
                self.next_round(cx);
            }
            Stage::Waiting(Waiting::Permit(..)) => {
                self.await_nothing(cx);
                self.next_round(cx);
            }
            stage => self.stage = stage,
        }
    }

    pub(super) fn burst_is_over(&mut self, cx: &mut Cx<'_, E>, waited_for: Option<(Id, DiskReads<E>)>) {
        let goals = self.goals();
        let (permit, kept) = waited_for.map_or_else(Default::default, |(permit, kept)| (Some(permit), kept));
        if goals.is_empty() {
            self.stage = Stage::Idle;
            return cx.release(permit);
        }
        let round = Round { goals, permit, kept, asked_at: cx.now };
        if permit.is_some() {
            return self.first_read(cx, round);
        }
        let priority = self.priority(cx, &round.goals);
        let id = self.await_next();
        cx.actions.push(Action::TryPermit(id, priority));
        self.stage = Stage::Permit(round);
    }

    /// There is a permit of this id, or none now.
    pub(super) fn permitted(&mut self, cx: &mut Cx<'_, E>, permit: Option<Id>) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Permit(round) => self.first_read(cx, Round { permit, ..round }),
            Stage::Waiting(Waiting::Permit(_, kept)) => self.next_round_with(cx, permit.map(|permit| (permit, kept))),
            stage => self.stage = stage,
        }
    }

    pub(super) fn permit_failed(&mut self, cx: &mut Cx<'_, E>, error: E) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Waiting(Waiting::Permit(goals, _)) => {
                self.answer_all(cx, &goals, &Err(Failure::azure(Why::NoPermit, error)));
                self.next_round(cx);
            }
            stage => self.stage = stage,
        }
    }

    /// Reads the VM for a round: by a list where one may suffice, because one list serves many VMs.
    fn first_read(&mut self, cx: &mut Cx<'_, E>, round: Round<E>) {
        let shown = cx.memory.shown_on(&self.vm);
        let requests = self.queue.arrived_of(&round.goals);
        let lists_from = cx.memory.lists_from(cx.env.attachments, cx.now);
        let accept = attach::first_read(&requests, &shown, lists_from, self.writes(cx, &round.goals), cx.now);
        let priority = self.priority(cx, &round.goals);
        self.read_vm(cx, accept, Some(priority));
        self.stage = Stage::FirstRead(Round { asked_at: cx.now, ..round });
    }

    /// A read of the VM has ended that the stage waits for.
    pub(super) fn vm_read(&mut self, cx: &mut Cx<'_, E>, id: Id, read: Result<VmRead, E>) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::FirstRead(round) => {
                self.note_vm_read(cx, &read);
                let goals = self.goals();
                match read {
                    _ if goals.is_empty() => cx.release(round.permit),
                    Ok(read) => self.round(cx, Round { goals, ..round }, Observation { id, read }),
                    Err(error) => {
                        cx.release(round.permit);
                        self.vm_unreadable(cx, &goals, round.asked_at, error);
                    }
                }
            }
            Stage::Planning(planning) => {
                self.note_vm_read(cx, &read);
                match read {
                    Ok(read) => {
                        let vm = Observation { id, read };
                        let members = self.current(planning.only.as_ref());
                        self.plan_again(cx, Box::new(Planning { vm, members, ..*planning }));
                    }
                    Err(error) => {
                        cx.release(planning.permit);
                        self.vm_unreadable(cx, &planning.goals, planning.asked_at, error);
                    }
                }
            }
            Stage::Waiting(Waiting::AtRest(batch, mut rest)) => {
                self.note_vm_read(cx, &read);
                read.iter().for_each(|read| cx.memory.vm_seen(&read.vm, cx.now));
                match read {
                    Ok(read) if !rest.ends_with(&read.vm, cx.now) => {
                        self.stage = Stage::Waiting(Waiting::AtRest(batch, rest));
                    }
                    Ok(_) => {
                        let failure = Failure::new(Fault::Conflict, Why::OtherWrite);
                        self.try_again(cx, &batch, &failure, Retry::Counted);
                        self.next_round(cx);
                    }
                    Err(error) => {
                        self.answer_all(cx, &batch, &Err(Failure::azure(Why::OtherWrite, error)));
                        self.next_round(cx);
                    }
                }
            }
            Stage::Judging(judge) => self.judge_vm_read(cx, judge, read),
            stage => self.stage = stage,
        }
    }

    /// Reads of disks have ended that the stage waits for.
    pub(super) fn disks_read(&mut self, cx: &mut Cx<'_, E>, reads: Vec<(DiskId, Result<DiskSeen, E>)>) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Others(planning, answering) => {
                let plan = self.answer_by_disks(cx, *answering, reads);
                self.attempts.answered_by_disk_state(&plan.answered_by_disk_state());
                self.begin_planning(cx, planning);
            }
            Stage::Planning(mut planning) => {
                for (disk, read) in &reads {
                    if let Ok(read) = read {
                        cx.memory.sources.learn_before_attach(&read.disk, read.seen);
                        cx.memory.seen_attachments.held_by(disk, &read.disk.holders());
                    }
                }
                planning.reads.add(planning.asked_at, reads);
                self.plan_again(cx, planning);
            }
            Stage::FailedDetaches(planning) => self.failed_detaches_read(cx, planning, reads),
            Stage::Conditions(planning, conditions) => {
                let planning = match self.conditions_read(cx, conditions, reads) {
                    Ok(refused) => self.without(cx, planning, &refused),
                    Err(conditions) => {
                        self.stage = Stage::Conditions(planning, conditions);
                        return;
                    }
                };
                self.planned(cx, planning);
            }
            Stage::Removing(removal) => self.removal_disks_read(cx, removal, reads),
            Stage::Judging(judge) => self.judge_disks_read(cx, judge, reads),
            stage => self.stage = stage,
        }
    }

    /// Answers requests with the failure of a read of the VM. "Not found" is an answer of that read, and only to
    /// requests that came before it was asked for.
    fn vm_unreadable(&mut self, cx: &mut Cx<'_, E>, goals: &Batch, asked_at: Duration, error: E) {
        let says_that_it_is_missing = error.fault().says_that_it_is_missing();
        let outcome = Err(Failure::azure(Why::VmUnreadable, error));
        for (disk, goal) in goals {
            match says_that_it_is_missing {
                true => self.resolve(cx, disk, *goal, &outcome, asked_at, None),
                false => self.answer(cx, disk, *goal, &outcome),
            }
        }
        self.round_ends(cx);
    }

    /// A round has ended, and the next one may begin at once.
    pub(super) fn round_ends(&mut self, cx: &mut Cx<'_, E>) {
        self.note_attachments(cx);
        self.next_round(cx);
    }

    fn note_attachments(&mut self, cx: &Cx<'_, E>) {
        if *cx.env.attachments != LunReservations::Cold {
            self.cold_since = None;
        }
    }

    fn round(&mut self, cx: &mut Cx<'_, E>, round: Round<E>, vm: Observation) {
        if !self.attempts.stale_disks.is_empty() {
            return self.remove_stale_disks(cx, round.goals, round.permit, vm);
        }
        let only = match self.attempts.bisection.next_step() {
            BisectionStep::Unrestricted => None,
            BisectionStep::Try(members) => Some(members),
            // It was written alone, or every other disk is cleared: the next failure is its own.
            BisectionStep::Found(failing) => Some(BTreeSet::from([failing])),
        };
        let in_batch = |disk: &DiskId| only.as_ref().is_none_or(|members| members.contains(disk));
        if !round.goals.keys().any(in_batch) {
            // Nothing is requested of the bisected disks any more.
            self.attempts.bisection.end();
            cx.release(round.permit);
            return self.round_ends(cx);
        }
        let others: Batch = match only.is_some() {
            true => round
                .goals
                .iter()
                .filter(|(disk, _)| !in_batch(disk))
                .map(|(disk, goal)| (disk.clone(), *goal))
                .collect(),
            false => Batch::new(),
        };
        let planning = Box::new(Planning {
            plan: Plan::nothing(&self.vm),
            members: Batch::new(),
            goals: round.goals,
            permit: round.permit,
            reads: round.kept,
            reads_made: 0,
            asked_at: round.asked_at,
            force: BTreeSet::new(),
            vm,
            only,
        });
        if planning.only.is_none() {
            return self.begin_planning(cx, planning);
        }
        // The bisection delays no other request that needs no write.
        match self.answer_without_write(cx, planning.vm.read.clone(), others) {
            Ok(plan) => {
                self.attempts.answered_by_disk_state(&plan.answered_by_disk_state());
                self.begin_planning(cx, planning);
            }
            Err(answering) => {
                self.read_disks(cx, answering.to_read());
                self.stage = Stage::Others(planning, answering);
            }
        }
    }

    /// Plans the requests of the round, and reads what the plan asks for until it asks for nothing that a read now can
    /// give. Requests that arrive during these reads of the VM join.
    fn begin_planning(&mut self, cx: &mut Cx<'_, E>, mut planning: Box<Planning<E>>) {
        planning.members = self.current(planning.only.as_ref());
        self.plan_again(cx, planning);
    }

    fn current(&self, only: Option<&BTreeSet<DiskId>>) -> Batch {
        let mut current = self.queue.current();
        current.retain(|disk, _| only.is_none_or(|only| only.contains(disk)));
        current
    }

    fn plan_again(&mut self, cx: &mut Cx<'_, E>, mut planning: Box<Planning<E>>) {
        self.replan(cx, &mut planning);
        if planning.reads_made < MOST_READS {
            planning.asked_at = cx.now;
            if planning.plan.needs_single_read() {
                planning.reads_made += 1;
                let priority = self.priority(cx, &planning.members);
                self.read_vm(cx, Accept::Single, Some(priority));
                self.stage = Stage::Planning(planning);
                return;
            }
            let [singly, listed] = [Accept::Single, Accept::List].map(|accept| planning.plan.disks_to_read(accept));
            if !singly.is_empty() || !listed.is_empty() {
                planning.reads_made += 1;
                let id = self.await_next();
                cx.actions.push(Action::ReadDisks { id, singly, listed, priority: Some(Priority::Attach) });
                self.stage = Stage::Planning(planning);
                return;
            }
        }
        self.look_for_failed_detaches(cx, planning);
    }

    /// Goes on once it is known which detaches are forced. Last of all the conditions, because these reads must be the
    /// newest.
    pub(super) fn with_force(&mut self, cx: &mut Cx<'_, E>, mut planning: Box<Planning<E>>, force: BTreeSet<DiskId>) {
        if !force.is_empty() {
            planning.force = force;
            self.replan(cx, &mut planning);
        }
        let detach = planning.plan.write.detach.iter().map(|disk| (disk.clone(), Goal::Detached)).collect();
        match self.look_at_conditions(cx, &detach) {
            Some(conditions) => self.stage = Stage::Conditions(planning, conditions),
            None => self.planned(cx, planning),
        }
    }

    /// The plan without these.
    fn without(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut planning: Box<Planning<E>>,
        refused: &BTreeSet<DiskId>,
    ) -> Box<Planning<E>> {
        if !refused.is_empty() {
            planning.members.retain(|disk, _| !refused.contains(disk));
            planning.force.retain(|disk| !refused.contains(disk));
            self.replan(cx, &mut planning);
        }
        planning
    }

    fn replan(&mut self, cx: &mut Cx<'_, E>, planning: &mut Planning<E>) {
        let read = &planning.vm.read;
        if read.seen.by == By::Single {
            cx.memory.vm_seen(&read.vm, cx.now);
        }
        let writes = self.writes(cx, &planning.members);
        planning.plan = self.plan(cx, &planning.vm.read, &planning.reads, &planning.members, writes, &planning.force);
    }

    /// Answers what the plan has resolved, and writes, or waits.
    fn planned(&mut self, cx: &mut Cx<'_, E>, planning: Box<Planning<E>>) {
        let write = &planning.plan.write;
        let method = self.method(cx, planning.members.keys());
        let is_list = method != VmWriteMethod::Action || write.says_nothing();
        if !write.is_empty() && is_list && is_too_old_for_a_list(&planning.vm.read, cx.now) {
            return self.read_again(cx, planning);
        }
        let Planning { vm, reads, members, mut plan, permit, .. } = *planning;
        let answered = plan.answered_by_disk_state();
        self.attempts.answered_by_disk_state(&answered);
        self.attempts.bisection.cleared(plan.resolved.keys().filter(|disk| !answered.contains(*disk)));
        let resolved = std::mem::take(&mut plan.resolved);
        self.resolve_all(cx, vm.read.answered, &members, resolved, &reads.errors);
        if plan.needs_another_read() {
            // A wait or a slow write that follows delays no request that needs only a read.
            self.looked_at = self.looked_at.min(self.queue.arrivals().saturating_sub(1));
        }
        if plan.write.is_empty() {
            cx.release(permit);
            return self.wait_for(cx, plan.wait(), members);
        }
        if permit.is_none() && Self::needs_permit(method, &vm.read) {
            let priority = self.priority(cx, &members);
            return self.wait_for_permit(cx, priority, reads.that_give_terms(&self.vm));
        }
        if vm.read.seen.by == By::List && self.writes(cx, &members) != Writes::AfterAnyRead {
            // Another VM's write has changed the method since the VM was read.
            cx.release(permit);
            return self.round_ends(cx);
        }
        let written = plan.write.attach.iter().map(|attachment| &attachment.disk);
        let written = written.chain(&plan.write.detach).chain(&plan.write.reapply);
        let members: Batch = written.map(|disk| (disk.clone(), members[disk])).collect();
        if !self.queue.send(&members) {
            // A caller has given up since the VM was read. The next round plans the remaining requests.
            cx.release(permit);
            return self.round_ends(cx);
        }
        self.send(cx, Sent { vm, write: plan.write, members, method, permit, sent_at: cx.now, kind: Kind::Planned });
    }

    /// Reads the VM again for the plan. What was read of the disks stays, so that slow reads of these do not begin anew.
    fn read_again(&mut self, cx: &mut Cx<'_, E>, mut planning: Box<Planning<E>>) {
        planning.force.clear();
        planning.asked_at = cx.now;
        let priority = self.priority(cx, &planning.members);
        self.read_vm(cx, Accept::Single, Some(priority));
        self.stage = Stage::Planning(planning);
    }

    /// Waits for what a plan without a write waits for.
    fn wait_for(&mut self, cx: &mut Cx<'_, E>, wait: Option<Wait>, members: Batch) {
        self.note_attachments(cx);
        match wait {
            None => self.next_round(cx),
            Some(Wait::Reservations) => {
                let deadline = *self.cold_since.get_or_insert(cx.now) + RESERVATIONS_WAIT;
                if cx.now < deadline {
                    let id = self.await_next();
                    cx.actions.push(Action::AwaitAttachments(id));
                    self.stage = Stage::Waiting(Waiting::Attachments(deadline));
                    return;
                }
                self.cold_since = None;
                let attaches = members.into_iter().filter(|(_, goal)| *goal != Goal::Detached).collect();
                let failure = Failure::new(Fault::Unavailable, Why::AttachmentsUnknown);
                self.answer_all(cx, &attaches, &Err(failure));
                self.next_round(cx);
            }
            Some(Wait::FreshReads) => match cx.memory.fresh_from() {
                Some(fresh_from) => self.wait_until(fresh_from, Awaited::FreshReads),
                None => self.next_round(cx),
            },
            Some(Wait::WritesShown) => {
                // A read before that time may show the write.
                let shown_from = cx.memory.writes_shown_from(&self.vm, cx.now);
                self.wait_until(shown_from.min(cx.now + MAX_READ_LAG), Awaited::FreshReads);
            }
            Some(Wait::VmAtRest(disks)) => {
                let undecided = members.into_iter().filter(|(disk, _)| disks.contains(disk)).collect();
                self.wait_for_rest(cx, undecided);
            }
        }
    }

    pub(super) fn wait_until(&mut self, until: Duration, awaited: Awaited) {
        self.stage = Stage::Waiting(Waiting::Until(until, awaited));
    }

    pub(super) fn wait_for_rest(&mut self, cx: &mut Cx<'_, E>, batch: Batch) {
        self.read_vm(cx, Accept::Single, None);
        self.stage = Stage::Waiting(Waiting::AtRest(batch, AtRest::reading(cx.now)));
    }

    pub(super) fn wait_for_permit(&mut self, cx: &mut Cx<'_, E>, priority: Priority, kept: DiskReads<E>) {
        let id = self.await_next();
        cx.actions.push(Action::TakePermit(id, priority));
        let goals = self.queue.current();
        self.stage = Stage::Waiting(Waiting::Permit(goals, kept));
    }

    pub(super) fn attachments_known(&mut self, cx: &mut Cx<'_, E>) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Waiting(Waiting::Attachments(_)) => self.next_round(cx),
            stage => self.stage = stage,
        }
    }

    /// Does what is due by now. Returns whether anything was, so that something else may be.
    pub(super) fn timers(&mut self, cx: &mut Cx<'_, E>) -> bool {
        if let Stage::Burst(burst, waited_for) = &mut self.stage
            && cx.now >= burst.ends_at(self.queue.last_arrival())
        {
            let waited_for = waited_for.take();
            self.burst_is_over(cx, waited_for);
            return true;
        }
        match &mut self.stage {
            // A request may have come: a detach does not need the attachments.
            Stage::Waiting(Waiting::Attachments(deadline))
                if cx.now >= *deadline || self.queue.arrivals() != self.looked_at =>
            {
                self.await_nothing(cx);
                self.next_round(cx);
                return true;
            }
            Stage::Waiting(Waiting::Until(until, _)) if cx.now >= *until => {
                self.next_round(cx);
                return true;
            }
            Stage::Waiting(Waiting::AtRest(_, rest)) if rest.next.is_some_and(|at| cx.now >= at) => {
                rest.next = None;
                self.read_vm(cx, Accept::Single, None);
                return true;
            }
            Stage::Judging(judge) if judge.wake_at().is_some_and(|at| cx.now >= at) => {
                if let Stage::Judging(judge) = std::mem::replace(&mut self.stage, Stage::Idle) {
                    self.judge_woke(cx, judge);
                }
                return true;
            }
            _ => {}
        }
        self.aside_timers(cx)
    }

    /// When the state decides next without an event.
    pub fn wake_at(&self) -> Option<Duration> {
        let stage = match &self.stage {
            Stage::Burst(burst, _) => Some(burst.ends_at(self.queue.last_arrival())),
            Stage::Waiting(Waiting::Attachments(at) | Waiting::Until(at, _)) => Some(*at),
            Stage::Waiting(Waiting::AtRest(_, rest)) => rest.next,
            Stage::Judging(judge) => judge.wake_at(),
            _ => None,
        };
        [stage, self.aside_wakes_at()].into_iter().flatten().min()
    }

    /// What is waited for, for people who ask.
    pub fn awaited(&self) -> Awaited {
        match &self.stage {
            Stage::Idle => Awaited::Nothing,
            Stage::Burst(..) => Awaited::Moment,
            Stage::Permit(_) | Stage::Waiting(Waiting::Permit(..)) => Awaited::Permit,
            Stage::FirstRead(_)
            | Stage::Others(..)
            | Stage::Planning(_)
            | Stage::FailedDetaches(_)
            | Stage::InstanceView(..)
            | Stage::Conditions(..)
            | Stage::Removing(_) => Awaited::Read,
            Stage::Writing(_) => Awaited::Answer,
            Stage::Judging(judge) => judge.awaited(),
            Stage::Waiting(Waiting::Attachments(_)) => Awaited::Attachments,
            Stage::Waiting(Waiting::Until(_, awaited)) => *awaited,
            Stage::Waiting(Waiting::AtRest(..)) => Awaited::OtherOperation,
        }
    }

    /// Sends a write.
    pub(super) fn send(&mut self, cx: &mut Cx<'_, E>, sent: Sent) {
        cx.memory.sources.detaching(&self.vm, &sent.write.detach);
        cx.memory.write_sent(&self.vm);
        let id = self.await_next();
        cx.actions.push(Action::Write {
            id,
            observation: sent.vm.id,
            write: sent.write.clone(),
            method: sent.method,
            priority: self.priority(cx, &sent.members),
            permit: sent.permit,
        });
        self.stage = Stage::Writing(Box::new(sent));
    }
}

impl<E> Cx<'_, E> {
    /// Gives back a permit that is not used.
    pub(super) fn release(&mut self, permit: Option<Id>) {
        self.actions.extend(permit.map(Action::ReleasePermit));
    }
}
