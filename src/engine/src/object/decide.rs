//! What an object needs next, derived from its facts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_model::fault::Fault;
use lazuli_quota::{poll, read::Accept};

use super::{Action, Env, Object, Observation, Plan, Reading, Refused, Served, State, Taint, Write};
use crate::{
    Acceptance, Id, Outcome, Refusal, Waiting,
    backoff::Backoff,
    bisection::BisectionStep,
    earlier,
    freshness::{LAG, OLDEST},
    in_flight::InFlight,
    permit::PermitState,
    reaction,
    wants::Entry,
};

/// How long an operation of another writer (`Updating`) is waited for. After that the object is planned and written all
/// the same: Azure's answer to the write decides.
pub const LONGEST_UPDATING: Duration = Duration::from_secs(300);
/// How long a requester whose part was refused lets those go first whose parts were not.
const LONGEST_TURN: Duration = Duration::from_secs(30);
/// The pauses before an object is read again that does not show what the last write wrote. Together they are shorter than
/// [`LAG`].
const LAG_PAUSES: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

/// The wants that a plan serves, by requester.
type Active<O> = BTreeMap<<O as Object>::Requester, <O as Object>::Want>;

impl<O: Object> State<O> {
    /// Decides what to do now, and when to decide again.
    pub(super) fn decide(&mut self, env: &Env<'_, O>, now: Duration, actions: &mut Vec<Action<O>>) {
        self.wake = None;
        if self.write.is_some() {
            self.poll(now, actions);
            return;
        }
        if self.draining {
            self.release_permit(actions);
            if self.reading.is_none() {
                actions.push(Action::Drained);
            }
            return;
        }
        if (self.wants.is_empty() && self.suspected.is_none()) || !env.shared.synced {
            self.release_permit(actions);
            return;
        }
        self.retry_refused(now);
        if self.settled && !self.resync_due(env, now) {
            return;
        }
        if self.wait_until(self.pause_until, now) || self.reading.is_some() {
            return;
        }
        if let Some(at) = self.prove_at
            && !self.wait_until(at, now)
        {
            self.changed(at);
            self.prove_at = None;
        }
        loop {
            let Some(observation) = self.usable(now) else {
                self.observe_again(actions);
                return;
            };
            if self.waits_for_other_operation(now, actions) || self.lags(env, observation, now) {
                return;
            }
            // A plan looks at all wants, so that a burst of requests is planned once for each observation, and at its end.
            let burst = self.quiet.wait_until(now);
            if self.planned == Some(observation) && burst.is_some_and(|end| self.wait_until(end, now)) {
                return;
            }
            self.planned = Some(observation);
            let Some(mut active) = self.active(env, now, actions) else { continue };
            let mut plan = self.plan(&active, env);
            let held = self.held(env, &active, &plan);
            if !held.is_empty() {
                active.retain(|requester, _| !held.contains(requester));
                plan = self.plan(&active, env);
                held.iter().for_each(|one| self.tell(one, &Outcome::Waiting(Waiting::Acceptance), actions));
            }
            if plan.write.is_some() {
                self.write_when_allowed(env, now, observation, active, plan, actions);
                return;
            }
            if self.is_only_unlisted() {
                self.observe_again(actions);
                return;
            }
            if let BisectionStep::Try(members) = self.bisection.next_step() {
                // Azure shows them as wanted already.
                self.bisection.cleared(&members);
                continue;
            }
            self.settle(env, now, &active, plan, actions);
            self.settled &= held.is_empty();
            return;
        }
    }

    fn plan(&self, active: &Active<O>, env: &Env<'_, O>) -> Plan<O> {
        O::plan(active, self.observed.as_ref().and_then(|observed| observed.model.as_ref()), env.inputs)
    }

    /// The requesters that wait for the operator: what their own wants ask for removes or replaces something, alone or
    /// beside the wants of others, as a tag that is not the last one because another has come. The others are served
    /// meanwhile.
    fn held(&self, env: &Env<'_, O>, active: &Active<O>, plan: &Plan<O>) -> BTreeSet<O::Requester> {
        let replaces = |plan: &Plan<O>| plan.write.as_ref().is_some_and(|write| write.replaces);
        if env.shared.acceptance == Acceptance::Given || !replaces(plan) {
            return BTreeSet::new();
        }
        let op = |plan: &Plan<O>| plan.write.as_ref().map(|write| write.op.clone());
        let is_held = |(requester, want): &(&O::Requester, &O::Want)| {
            if !self.awaits_acceptance(requester) {
                return false;
            }
            let alone = Active::<O>::from([((*requester).clone(), (*want).clone())]);
            if replaces(&self.plan(&alone, env)) {
                return true;
            }
            let others = active.iter().filter(|(other, _)| other != requester);
            let others = others.map(|(other, want)| (other.clone(), want.clone())).collect();
            O::removes(want) && op(&self.plan(&others, env)) != op(plan)
        };
        active.iter().filter(is_held).map(|(requester, _)| requester.clone()).collect()
    }

    fn awaits_acceptance(&self, requester: &O::Requester) -> bool {
        self.wants.get(requester).is_some_and(|entry| entry.acceptance == Acceptance::Awaited)
    }

    /// Whether a write is held as a whole: it removes or replaces something also where nothing is wanted, such as members of
    /// a pool. Requesters that have not told anything yet may rest on that.
    fn is_held_whole(&self, env: &Env<'_, O>, write: &Write<O>) -> bool {
        env.shared.acceptance == Acceptance::Awaited
            && write.replaces
            && self.plan(&Active::<O>::new(), env).write.is_some_and(|write| write.replaces)
    }

    fn poll(&mut self, now: Duration, actions: &mut Vec<Action<O>>) {
        let Some(write) = self.write.as_mut() else { return };
        match write.poll_at() {
            Some(at) if at <= now => {
                write.polling();
                actions.push(Action::Poll(write.id));
            }
            Some(at) => self.wake = earlier(self.wake, at),
            None => {}
        }
    }

    /// Whether a time has not come. If so, the next decision is due then.
    fn wait_until(&mut self, at: Duration, now: Duration) -> bool {
        let waits = now < at;
        if waits {
            self.wake = earlier(self.wake, at);
        }
        waits
    }

    fn resync_due(&mut self, env: &Env<'_, O>, now: Duration) -> bool {
        let Some(resync) = env.shared.resync else { return false };
        // Of what is settled and not there only a refused want asks something.
        if self.refused.is_empty() && self.observed.as_ref().is_some_and(|observed| observed.model.is_none()) {
            return false;
        }
        // What was read may be stale by now.
        let sent_at = self.observed.as_ref().map_or(self.freshness.not_before(), |observed| observed.sent_at);
        if self.wait_until(sent_at + resync, now) {
            return false;
        }
        self.changed(now);
        self.settled = false;
        // Azure may have refused them for something else that has been mended, such as a missing address.
        self.refused.clear();
        true
    }

    /// The observation that may be planned from.
    fn usable(&self, now: Duration) -> Option<Id> {
        let observed = self.observed.as_ref()?;
        let usable = self.freshness.accepts(observed.sent_at) && now.saturating_sub(observed.sent_at) <= OLDEST;
        usable.then_some(observed.id)
    }

    fn observe_again(&mut self, actions: &mut Vec<Action<O>>) {
        let id = self.ids.next_id();
        self.reading = Some(Reading { id, stale: false });
        // A write follows this read, or a list has lacked the object.
        let is_proof = matches!(self.permit, PermitState::Granted(_)) || self.is_only_unlisted();
        let accept = if is_proof { Accept::Single } else { Accept::Any };
        actions.push(Action::Observe { id, not_before: self.freshness.not_before(), accept });
    }

    /// Whether all that is known of the object is that a list lacks it.
    fn is_only_unlisted(&self) -> bool {
        self.observed.as_ref().is_some_and(Observation::is_only_unlisted)
    }

    /// Whether another writer's operation runs, and is to be waited for. A write would be refused, or would cancel it.
    fn waits_for_other_operation(&mut self, now: Duration, actions: &mut Vec<Action<O>>) -> bool {
        let model = self.observed.as_ref().and_then(|observed| observed.model.as_ref());
        if !model.is_some_and(O::is_updating) {
            self.updating_since = None;
            return false;
        }
        let watched = now.saturating_sub(*self.updating_since.get_or_insert(now));
        if watched >= LONGEST_UPDATING {
            return false;
        }
        self.tell_all(&Outcome::Waiting(Waiting::OtherOperation), actions);
        self.read_later(poll::again(poll::Kind::Other, watched), now);
        true
    }

    /// Whether the observation does not show what the last write wrote, and may only lag behind it.
    fn lags(&mut self, env: &Env<'_, O>, observation: Id, now: Duration) -> bool {
        let Some(last) = self.last_write.as_mut().filter(|last| now < last.ended_at + LAG) else {
            self.last_write = None;
            return false;
        };
        if last.shown_by == Some(observation) {
            return false;
        }
        let actual = self.observed.as_ref().and_then(|observed| observed.model.as_ref());
        let wants: Active<O> = std::mem::take(&mut last.wants).into_iter().collect();
        let further = O::plan(&wants, actual, env.inputs).write.map(|write| write.op);
        last.wants = wants.into_iter().collect();
        let shown = match &last.partial {
            Some(written) => further.as_ref() != Some(written),
            None => further.is_none(),
        };
        if shown {
            last.shown_by = Some(observation);
            if actual.is_some() && O::CONDITIONAL {
                self.freshness.wrote_on_etag();
            }
            return false;
        }
        let Some(pause) = LAG_PAUSES.get(last.lagging) else {
            self.last_write = None;
            return false;
        };
        last.lagging += 1;
        self.read_later(*pause, now);
        true
    }

    fn read_later(&mut self, pause: Duration, now: Duration) {
        self.observed = None;
        self.pause_until = now + pause;
        self.wake = earlier(self.wake, self.pause_until);
    }

    /// The wants that the next plan serves. `None` when a bisection has found its member, which is refused now.
    fn active(&mut self, env: &Env<'_, O>, now: Duration, actions: &mut Vec<Action<O>>) -> Option<Active<O>> {
        let restricted = match self.bisection.next_step() {
            BisectionStep::Unrestricted => None,
            BisectionStep::Try(members) => Some(members),
            BisectionStep::Found(member) => {
                let fault = self.refusal.clone().unwrap_or(Fault::Invalid);
                let is_first = !self.refusals.contains_key(&member);
                self.refuse(&member, fault, now, actions);
                if is_first {
                    self.confirm(&member, now);
                }
                return None;
            }
        };
        let is_active = |requester: &O::Requester| {
            !self.refused.contains_key(requester)
                && !self.paused.contains_key(requester)
                && restricted.as_ref().is_none_or(|members| members.contains(requester))
        };
        let active = self.wants.iter().filter(|(requester, _)| is_active(requester));
        let active = active.map(|(requester, entry)| (requester.clone(), entry.in_force.clone()));
        if restricted.is_some() || self.suspects.is_empty() {
            return Some(active.collect());
        }
        Some(self.with_one_suspect(active.collect(), env, now))
    }

    /// Of those that Azure has refused before at most one is written, and alone, so that none of the others waits for another
    /// search: when the others need no write, or before them if it has waited too long.
    fn with_one_suspect(&self, all: Active<O>, env: &Env<'_, O>, now: Duration) -> Active<O> {
        let (suspects, mut active): (Active<O>, Active<O>) =
            all.into_iter().partition(|(requester, _)| self.suspects.contains_key(requester));
        let since = |suspect: &O::Requester| self.suspects.get(suspect).copied().unwrap_or(now);
        let has_waited = |(suspect, _): &(&O::Requester, &O::Want)| now >= since(suspect) + LONGEST_TURN;
        if let Some((suspect, want)) = suspects.iter().find(has_waited) {
            let mut alone = active.clone();
            alone.retain(|requester, _| self.wants.get(requester).is_some_and(Entry::is_done));
            alone.insert(suspect.clone(), want.clone());
            if self.writes(&alone, env) {
                return alone;
            }
        }
        let mut suspects = suspects.into_iter();
        while !self.writes(&active, env)
            && let Some((suspect, want)) = suspects.next()
        {
            active.insert(suspect, want);
        }
        active
    }

    /// Whether a plan of these wants has a write that need not wait for the operator.
    fn writes(&self, active: &Active<O>, env: &Env<'_, O>) -> bool {
        let mut plan = self.plan(active, env);
        let held = self.held(env, active, &plan);
        if !held.is_empty() {
            let rest = active.iter().filter(|(requester, _)| !held.contains(requester));
            plan = self.plan(&rest.map(|(one, want)| (one.clone(), want.clone())).collect(), env);
        }
        plan.write.is_some_and(|write| !self.is_held_whole(env, &write))
    }

    /// Takes up the wants that are to be tried again: those that were refused, and those that wait since another was.
    fn retry_refused(&mut self, now: Duration) {
        let before = self.paused.len();
        self.paused.retain(|_, until| *until > now);
        self.settled &= self.paused.len() == before;
        if let Some(next) = self.paused.values().min() {
            self.wake = earlier(self.wake, *next);
        }
        let due = |refused: &Refused| refused.retry_at.is_some_and(|at| at <= now);
        if self.refused.values().any(due) {
            self.refused.retain(|_, refused| !due(refused));
            self.settled = false;
        }
        if let Some(next) = self.refused.values().filter_map(|refused| refused.retry_at).min() {
            self.wake = earlier(self.wake, next);
        }
    }

    /// Refuses one requester's want until the want or the inputs change, or what refused it may have passed.
    pub(super) fn refuse(&mut self, member: &O::Requester, fault: Fault, now: Duration, actions: &mut Vec<Action<O>>) {
        self.bisection.end();
        let references = self.wants.get(member).map(|entry| O::references(&entry.in_force)).unwrap_or_default();
        if !references.is_empty() {
            actions.push(Action::Taint(references, Taint::Suspect));
        }
        let retry_at = reaction::may_pass(&fault).then(|| {
            let backoff = self.refusals.entry(member.clone()).or_insert(Backoff::FAILURE);
            now + backoff.failed()
        });
        let refusal = Refusal::Azure(fault.clone());
        self.refused.insert(member.clone(), Refused { refusal: refusal.clone(), retry_at });
        self.tell(member, &Outcome::Refused(refusal), actions);
        // What is refused again says nothing of the others.
        if self.suspects.insert(member.clone(), retry_at.unwrap_or(now)).is_some() {
            return;
        }
        if std::mem::replace(&mut self.fruitless, true) {
            // Nothing has succeeded since the refusal of another. The object itself may be the cause. Who asks for something
            // else from now on does not wait.
            let until = now + self.failures.failed();
            let is_tried = |one: &O::Requester| !self.refused.contains_key(one) && !self.suspects.contains_key(one);
            // What is done stays in the plans: what others have removed may be its own.
            let others = self.wants.iter().filter(|(one, entry)| is_tried(one) && !entry.is_done());
            let others: Vec<O::Requester> = others.map(|(one, _)| one.clone()).collect();
            for other in others {
                self.tell(&other, &Outcome::Waiting(Waiting::Retry(fault.clone())), actions);
                self.paused.insert(other, until);
            }
        }
    }

    /// Tries a member once more that was found because no other was left. What made the writes fail may have passed during
    /// the search, and then another member was the cause.
    fn confirm(&mut self, member: &O::Requester, now: Duration) {
        let backoff = self.refusals.entry(member.clone()).or_insert(Backoff::FAILURE);
        if let Some(refused) = self.refused.get_mut(member) {
            refused.retry_at.get_or_insert_with(|| now + backoff.failed());
        }
    }

    fn write_when_allowed(
        &mut self,
        env: &Env<'_, O>,
        now: Duration,
        observation: Id,
        active: Active<O>,
        plan: Plan<O>,
        actions: &mut Vec<Action<O>>,
    ) {
        let Some(write) = plan.write else { return };
        let held = self.is_held_whole(env, &write);
        let mut members = Vec::new();
        for (requester, served) in plan.served {
            let waiting = if held { Waiting::Acceptance } else { Waiting::Write };
            if served == Served::Pending {
                self.tell(&requester, &Outcome::Waiting(waiting), actions);
                members.push(requester);
            } else if !self.is_only_unlisted()
                && let Some(outcome) = self.outcome(env, now, &active, &requester, served)
            {
                self.tell(&requester, &outcome, actions);
            }
        }
        if self.quiet.wait_until(now).is_some_and(|end| self.wait_until(end, now)) {
            return;
        }
        self.quiet.taken_up();
        // The pause may have begun in this step.
        if self.wait_until(self.pause_until, now) {
            return;
        }
        if held || !env.shared.lease.covers_write(now) {
            self.release_permit(actions);
            return;
        }
        if matches!(self.permit, PermitState::Granted(_)) && self.is_only_unlisted() {
            self.observe_again(actions);
            return;
        }
        let Some(permit) = self.permit.take() else {
            if self.permit == PermitState::None {
                let id = self.ids.next_id();
                self.permit = PermitState::Asked(id);
                actions.push(Action::TakePermit { id, priority: write.priority });
            }
            return;
        };
        let id = self.ids.next_id();
        self.taints = write.taints;
        self.replaces = write.replaces;
        self.note_followers(&members, &write.op);
        members.iter().for_each(|member| self.wants.written(member));
        self.partial = write.is_partial.then(|| write.op.clone());
        self.write = Some(InFlight::new(id, now, active, members));
        actions.push(Action::Write { id, permit, observation, op: write.op });
    }

    /// Tells every requester, after a plan without a write.
    fn settle(
        &mut self,
        env: &Env<'_, O>,
        now: Duration,
        active: &Active<O>,
        plan: Plan<O>,
        actions: &mut Vec<Action<O>>,
    ) {
        self.release_permit(actions);
        self.quiet.taken_up();
        self.settled = true;
        self.followed(Ok(()), actions);
        let sent_at = self.observed.as_ref().map_or(Duration::ZERO, |observed| observed.sent_at);
        match self.suspected {
            Some(shown_from) if sent_at < shown_from => self.look_again(shown_from, now),
            _ => self.suspected = None,
        }
        // What a planner refuses, such as a public IP that does not exist, another party may mend without any word of it.
        let waits = plan.served.values().any(|served| matches!(served, Served::Waiting(_) | Served::Refused(_)));
        for (requester, served) in plan.served {
            if let Some(outcome) = self.outcome(env, now, active, &requester, served) {
                self.tell(&requester, &outcome, actions);
            }
        }
        if !waits {
            self.waits.succeeded();
        } else if self.prove_at.is_none() {
            // What it waits for may come without any word of it, as an address that Azure assigns late.
            let pause = self.waits.failed();
            self.look_again(now + pause, now);
        }
        let refused = |(member, refused): (&O::Requester, &Refused)| (member.clone(), refused.refusal.clone());
        let refused: Vec<_> = self.refused.iter().map(refused).collect();
        for (member, refusal) in refused {
            self.tell(&member, &Outcome::Refused(refusal), actions);
        }
        self.retry_refused(now);
        if self.settled {
            // Notes when the next resync is due.
            self.resync_due(env, now);
        }
    }

    /// What a requester is told, unless its want is in the write of the plan.
    fn outcome(
        &mut self,
        env: &Env<'_, O>,
        now: Duration,
        active: &Active<O>,
        requester: &O::Requester,
        served: Served<O::Report>,
    ) -> Option<Outcome<O::Report>> {
        Some(match served {
            Served::Pending => return None,
            Served::Waiting(what) => Outcome::Waiting(Waiting::Plan(what)),
            Served::Refused(why) => Outcome::Refused(Refusal::Plan(why)),
            Served::Met(report) => {
                let (want, trusted_from) = (active.get(requester), env.shared.trusted_from);
                let (sent_at, actual) = match &self.observed {
                    Some(observed) => (observed.sent_at, observed.model.as_ref()),
                    None => (Duration::ZERO, None),
                };
                let lasts_from = self.freshness.proves_presence_from(trusted_from);
                let proves_from = if want.is_some_and(O::removes) {
                    self.freshness.proves_absence_from(trusted_from)
                } else if want.is_some_and(|want| O::is_threatened(want, actual)) {
                    lasts_from
                } else {
                    self.freshness.proves_presence_from(Duration::ZERO)
                };
                if sent_at < proves_from {
                    self.look_again(proves_from, now);
                    Outcome::Waiting(Waiting::FreshReads)
                } else {
                    if sent_at < lasts_from {
                        self.look_again(lasts_from, now);
                    }
                    Outcome::Done(report)
                }
            }
        })
    }

    /// Reads the object again at that time, for what was read does not prove enough.
    fn look_again(&mut self, at: Duration, now: Duration) {
        self.settled = false;
        self.prove_at = earlier(self.prove_at, at);
        self.wake = earlier(self.wake, at.max(now));
    }

    pub(super) fn tell(&mut self, to: &O::Requester, outcome: &Outcome<O::Report>, actions: &mut Vec<Action<O>>) {
        if let Some(generation) = self.wants.tell(to, outcome) {
            actions.push(Action::Tell { to: to.clone(), generation, outcome: outcome.clone() });
        }
        if let Outcome::Done(_) = outcome {
            self.wants.spend(to, O::spent);
        }
    }

    pub(super) fn tell_all(&mut self, outcome: &Outcome<O::Report>, actions: &mut Vec<Action<O>>) {
        let all: Vec<O::Requester> = self.wants.iter().map(|(requester, _)| requester.clone()).collect();
        for requester in all {
            self.tell(&requester, outcome, actions);
        }
    }

    fn release_permit(&mut self, actions: &mut Vec<Action<O>>) {
        if let Some(id) = self.permit.release() {
            actions.push(Action::ReleasePermit(id));
        }
    }
}
