//! Answers without a write, while something is waited for.
//!
//! A wait does not delay a request that needs no write. When a request arrives during a wait, the VM is read, and the
//! requests that it meets already are answered. While a write takes no longer than usual, requests only collect.

use std::{collections::BTreeSet, time::Duration};

use lazuli_engine::Id;
use lazuli_model::DiskId;
use lazuli_quota::{permit::Priority, read::Accept};

use super::{
    Action, AzureError, Batch, Cx, DiskReads, DiskSeen, State, VmRead,
    round::{Stage, Waiting},
    waits::Burst,
};
use lazuli_storage::attach::{Plan, Writes};

/// How long a write of a VM takes at most, as a rule (source: a median of 10 s and a tail beyond 60 s). After this time
/// requests that need no write are answered while the write goes on.
const SLOW_WRITE: Duration = Duration::from_secs(30);

/// What is done beside a wait.
#[derive(Debug)]
pub(super) enum Aside {
    /// No request has arrived since the last look.
    Idle,
    /// The end of a burst of requests is waited for.
    Burst(Burst),
    /// The VM is read.
    Vm(Id),
    /// Disks are read.
    Disks(Id, Batch, Box<VmRead>, Duration),
    /// A detach needs one more read, once reads are fresh.
    Fresh(Duration),
}

/// Requests that are answered without a write, once their disks have been read.
#[derive(Debug)]
pub(super) struct Answering<E> {
    read: VmRead,
    goals: Batch,
    plan: Plan<Duration>,
    asked_at: Duration,
    reads: DiskReads<E>,
}

impl<E> Answering<E> {
    /// The disks that have to be read by single reads.
    pub(super) fn to_read(&self) -> Vec<DiskId> {
        self.plan.disks_to_read(Accept::Single)
    }
}

impl<E: AzureError> State<E> {
    /// Answers those requests that need no write, at a time when none may be written. Returns the plan with what it has
    /// resolved, or what has to be read first.
    pub(super) fn answer_without_write(
        &mut self,
        cx: &mut Cx<'_, E>,
        read: VmRead,
        goals: Batch,
    ) -> Result<Plan<Duration>, Box<Answering<E>>> {
        let reads = DiskReads::default();
        let plan = self.plan(cx, &read, &reads, &goals, Writes::None, &BTreeSet::new());
        let answering = Answering { read, goals, plan, asked_at: cx.now, reads };
        match answering.to_read().is_empty() {
            true => Ok(self.answer_planned(cx, answering)),
            false => Err(Box::new(answering)),
        }
    }

    /// The same, by the disks that have been read now.
    pub(super) fn answer_by_disks(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut answering: Answering<E>,
        reads: Vec<(DiskId, Result<DiskSeen, E>)>,
    ) -> Plan<Duration> {
        answering.reads.add(answering.asked_at, reads);
        let Answering { read, goals, reads, .. } = &answering;
        answering.plan = self.plan(cx, read, reads, goals, Writes::None, &BTreeSet::new());
        self.answer_planned(cx, answering)
    }

    fn answer_planned(&mut self, cx: &mut Cx<'_, E>, answering: Answering<E>) -> Plan<Duration> {
        let Answering { read, goals, plan, reads, .. } = answering;
        self.resolve_all(cx, read.answered, &goals, plan.resolved.clone(), &reads.errors);
        plan
    }

    /// Whether requests may be answered beside what is done, at this time or from it on.
    fn answers_aside_from(&self) -> Option<Duration> {
        let always = Some(Duration::ZERO);
        match &self.stage {
            Stage::Writing(sent) => sent.answers_meanwhile().then(|| sent.sent_at + SLOW_WRITE),
            Stage::Judging(judge) => judge.waits().then_some(Duration::ZERO),
            Stage::Waiting(Waiting::Attachments(_)) => None,
            Stage::Waiting(Waiting::Until(..) | Waiting::Permit(..) | Waiting::AtRest(..)) => always,
            _ => None,
        }
    }

    /// The wait is over. What was not answered beside it is answered by what follows.
    pub(super) fn aside_ends(&mut self, cx: &mut Cx<'_, E>) {
        match std::mem::replace(&mut self.aside, Aside::Idle) {
            Aside::Vm(id) | Aside::Disks(id, ..) => cx.actions.push(Action::Drop(id)),
            Aside::Idle | Aside::Burst(_) | Aside::Fresh(_) => {}
        }
    }

    pub(super) fn aside_timers(&mut self, cx: &mut Cx<'_, E>) -> bool {
        let may_answer = self.answers_aside_from().is_some_and(|from| cx.now >= from);
        if !may_answer {
            self.aside_ends(cx);
            return false;
        }
        if let Aside::Burst(burst) = &self.aside
            && cx.now >= burst.ends_at(self.queue.last_arrival())
        {
            self.look_aside(cx);
            return true;
        }
        match &mut self.aside {
            Aside::Idle if self.queue.arrivals() != self.looked_at => {
                self.aside = Aside::Burst(Burst::new(cx.now));
            }
            Aside::Fresh(at) if cx.now >= *at => {
                self.look_aside(cx);
                return true;
            }
            _ => {}
        }
        false
    }

    pub(super) fn aside_wakes_at(&self) -> Option<Duration> {
        let from = self.answers_aside_from()?;
        match &self.aside {
            Aside::Idle => (self.queue.arrivals() != self.looked_at).then_some(from),
            Aside::Burst(burst) => Some(burst.ends_at(self.queue.last_arrival())),
            Aside::Fresh(at) => Some(*at),
            Aside::Vm(_) | Aside::Disks(..) => None,
        }
    }

    /// Reads the VM for the requests of which no write is in flight.
    fn look_aside(&mut self, cx: &mut Cx<'_, E>) {
        self.looked_at = self.queue.arrivals();
        self.aside = Aside::Idle;
        if self.queue.unsent().is_empty() {
            return;
        }
        let id = self.ids.next_id();
        cx.actions.push(Action::ReadVm { id, accept: Accept::Single, priority: None, keep: false });
        self.aside = Aside::Vm(id);
    }

    pub(super) fn aside_vm_read(&mut self, cx: &mut Cx<'_, E>, id: Id, read: Result<VmRead, E>) {
        if !matches!(self.aside, Aside::Vm(awaited) if awaited == id) {
            return;
        }
        self.aside = Aside::Idle;
        self.note_vm_read(cx, &read);
        // A request that a failed read leaves open is answered after the wait.
        let Ok(read) = read else { return };
        let unsent = self.queue.unsent();
        match self.answer_without_write(cx, read, unsent) {
            Ok(plan) => self.aside_answered(cx, &plan),
            Err(answering) => {
                let id = self.ids.next_id();
                let (singly, priority) = (answering.to_read(), Some(Priority::Attach));
                cx.actions.push(Action::ReadDisks { id, singly, listed: Vec::new(), priority });
                let Answering { read, goals, asked_at, .. } = *answering;
                self.aside = Aside::Disks(id, goals, Box::new(read), asked_at);
            }
        }
    }

    pub(super) fn aside_disks_read(&mut self, cx: &mut Cx<'_, E>, id: Id, disks: Vec<(DiskId, Result<DiskSeen, E>)>) {
        match std::mem::replace(&mut self.aside, Aside::Idle) {
            Aside::Disks(awaited, goals, read, asked_at) if awaited == id => {
                let (plan, reads) = (Plan::nothing(&self.vm), DiskReads::default());
                let answering = Answering { read: *read, goals, plan, asked_at, reads };
                let plan = self.answer_by_disks(cx, answering, disks);
                self.aside_answered(cx, &plan);
            }
            aside => self.aside = aside,
        }
    }

    fn aside_answered(&mut self, cx: &Cx<'_, E>, plan: &Plan<Duration>) {
        if let (true, Some(fresh_from)) = (plan.needs_fresh_read(), cx.memory.fresh_from()) {
            self.aside = Aside::Fresh(fresh_from);
        }
    }
}
