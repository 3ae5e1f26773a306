//! The stages of a Service, as the table in [`super`] shows them.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_model::fault::Fault;

use super::{Action, Asked, Desired, Env, Level, Order, OwnWait, Patch, Reason, Role, Seen, Service, Snapshot, State};

/// The levels that the objects are to be told, up to the first stage that is not done.
struct Ladder<'a, S: Service> {
    state: &'a State<S>,
    spec: Option<&'a S::Spec>,
    seen: Seen<'a, S>,
    id: &'a S::Identity,
    inputs: &'a S::Inputs,
    /// The objects that hold up nothing. They were told that nothing of them is wanted.
    out_of_reach: BTreeSet<S::Key>,
    levels: BTreeMap<S::Key, Level>,
    /// Of which objects the last want is known to be what the spec wants at its level, or not to be: several stages ask.
    current: RefCell<BTreeMap<&'a S::Key, bool>>,
}

/// Where a ladder ends.
enum End<T, K> {
    /// A stage is not done.
    Stage,
    /// The first backend is to join an object.
    Members(K, String),
    /// A patch is due.
    Patch(Patch<T>),
    /// Everything is done.
    Top,
}

impl<S: Service> Ladder<'_, S> {
    /// Asks for a level of the objects of one role, and of no others. Returns whether all within reach have reported it as done.
    fn stage<'k>(&mut self, keys: impl IntoIterator<Item = &'k S::Key>, role: Role, level: Level) -> bool
    where
        S::Key: 'k,
    {
        let mut done = true;
        for key in keys.into_iter().filter(|key| S::role(key) == role) {
            if self.out_of_reach.contains(key) {
                continue;
            }
            self.levels.insert(key.clone(), level);
            done &= self.is_done(key, level);
        }
        done
    }

    /// Whether the object has reported the level as done. What is below the level that it has reached at this spec is.
    fn is_done(&self, key: &S::Key, level: Level) -> bool {
        let Some(asked) = self.state.asked.get(key) else { return false };
        if asked.spec != self.state.spec {
            return asked.is_done() && asked.level >= level && self.is_current(key);
        }
        asked.level > level || (asked.level == level && asked.is_done() && self.is_current(key))
    }

    /// Whether the object was told what the spec wants of it at that level. So an object of which two specs want the same
    /// is not told again.
    fn is_current(&self, key: &S::Key) -> bool {
        let Some((key, asked)) = self.state.asked.get_key_value(key) else { return false };
        if let Some(known) = self.current.borrow().get(key) {
            return *known;
        }
        let is_current = asked.want == self.want(key, asked.level);
        self.current.borrow_mut().insert(key, is_current);
        is_current
    }

    /// Whether the object's report is not older than the last want of an earlier spec.
    fn is_known(&self, key: &S::Key) -> bool {
        self.state
            .asked
            .get(key)
            .is_some_and(|asked| asked.is_done() || (asked.spec == self.state.spec && asked.level > Level::Look))
    }

    fn want(&self, key: &S::Key, level: Level) -> S::Want {
        S::want(self.id, self.spec, key, level, &self.seen, self.inputs)
    }
}

impl<S: Service> State<S> {
    /// Decides what to do now, and when to decide again.
    pub(super) fn decide(&mut self, env: &Env<'_, S>, now: Duration, actions: &mut Vec<Action<S>>) {
        self.wake = None;
        if self.draining {
            if self.patch.is_none() {
                actions.push(Action::Drained);
            }
            return;
        }
        if !env.shared.synced {
            return;
        }
        let Some(snapshot) = self.snapshot.clone() else { return };
        let out_of_reach = self.out_of_reach(env, &snapshot);
        self.report_failure(now, &out_of_reach, actions);
        if self.waits {
            return;
        }
        match &snapshot.desired {
            Desired::Present(_) | Desired::Invalid(_) => self.report_beginning(env, now, Reason::Ensuring, actions),
            Desired::Gone if snapshot.finalizer => self.report_beginning(env, now, Reason::Deleting, actions),
            Desired::Gone => {}
        }
        match &snapshot.desired {
            Desired::Present(_) if !snapshot.finalizer => self.patch(env, now, Patch::AddFinalizer, actions),
            Desired::Present(spec) => {
                self.note_address(env, spec);
                if !self.done.is_empty() {
                    self.tell_refused_again(&S::keys(env.id, spec, env.inputs));
                }
                let end = self.climb(env, actions, |ladder| ladder.present(spec, &snapshot), Some(spec));
                if !matches!(end, End::Members(..)) {
                    self.awaited = None;
                }
                self.forget(env, (spec, &snapshot), matches!(end, End::Top), actions);
                match end {
                    End::Stage => self.waits = true,
                    End::Members(key, what) => self.awaits(OwnWait::Members(key, what), now),
                    End::Patch(patch) => self.patch(env, now, patch, actions),
                    End::Top => {
                        self.left.clear();
                        self.report_served(env, now, actions);
                    }
                }
            }
            Desired::Invalid(mistakes) => self.report(Reason::Invalid(mistakes.clone()), actions),
            Desired::Gone if snapshot.finalizer => {
                self.tell_refused_again(&BTreeSet::new());
                let end = self.climb(env, actions, |ladder| ladder.gone(&snapshot), None);
                if matches!(end, End::Top) && !snapshot.unread.is_empty() {
                    self.awaits(OwnWait::Unread(snapshot.unread.clone()), now);
                    return;
                }
                self.awaited = None;
                match end {
                    End::Stage | End::Members(..) => self.waits = true,
                    End::Patch(patch) => self.patch(env, now, patch, actions),
                    End::Top => self.patch(env, now, Patch::RemoveFinalizer, actions),
                }
            }
            // Without our finalizer there is no record that its parts may go.
            Desired::Gone => {
                if !self.asked.is_empty() {
                    actions.extend(std::mem::take(&mut self.asked).into_keys().map(Action::Withdraw));
                    self.reports.clear();
                    self.parts.clear();
                    self.left.clear();
                    // What another replica has removed, that one reports.
                    if self.begun == Some(self.spec) || env.shared.lease.covers_write(now) {
                        self.report(Reason::Deleted, actions);
                    }
                }
            }
        }
    }

    fn seen<'a>(&'a self, status: Option<&'a S::Status>, is_complete: bool) -> Seen<'a, S> {
        let has_changed = self.spec > 1;
        Seen { reports: &self.reports, left: &self.left, told: &self.told, status, has_changed, is_complete }
    }

    /// The objects that cannot be read and that the Service need not wait for: it does not ask for them, nothing has shown a
    /// part of it there, and their place does not exist or is not one that it names now.
    fn out_of_reach(&self, env: &Env<'_, S>, snapshot: &Snapshot<S>) -> BTreeSet<S::Key> {
        let mut closed = self.asked.iter().filter_map(|(key, asked)| Some((key, asked.closed()?))).peekable();
        if closed.peek().is_none() {
            return BTreeSet::new();
        }
        let needed = match &snapshot.desired {
            Desired::Present(spec) => S::keys(env.id, spec, env.inputs),
            Desired::Gone => BTreeSet::new(),
            // What it had stays.
            Desired::Invalid(_) => return BTreeSet::new(),
        };
        let is_own = |key: &S::Key| {
            needed.contains(key)
                || (!snapshot.ownerless.contains(key) && (snapshot.found.contains(key) || self.parts.contains(key)))
        };
        let is_named = |key: &S::Key| S::place(key).is_none_or(|place| snapshot.named.contains(&place));
        let holds = |key: &S::Key, why: &Fault| is_own(key) || (*why != Fault::ScopeNotFound && is_named(key));
        closed.filter(|(key, why)| !holds(key, why)).map(|(key, _)| key.clone()).collect()
    }

    /// Withdraws what holds no part of the Service and is not asked for now: an object that an earlier spec named, and that
    /// does not exist, is out of reach or, once all stages are done, shows nothing more. With each change of its spec a
    /// Service may name another one.
    fn forget(
        &mut self,
        env: &Env<'_, S>,
        (spec, snapshot): (&S::Spec, &Snapshot<S>),
        is_at_top: bool,
        actions: &mut Vec<Action<S>>,
    ) {
        let needed = S::keys(env.id, spec, env.inputs);
        let is_held = |key: &S::Key| {
            needed.contains(key)
                || snapshot.found.contains(key)
                || snapshot.ownerless.contains(key)
                || self.parts.contains(key)
        };
        let mut others = self.asked.iter().filter(|(key, asked)| asked.spec == self.spec && !is_held(key)).peekable();
        if others.peek().is_none() {
            return;
        }
        let out_of_reach = self.out_of_reach(env, snapshot);
        let has_none = |key: &S::Key, asked: &Asked<S>| {
            let Some(report) = self.reports.get(key).filter(|_| asked.is_done()) else { return false };
            let is_given_up = is_at_top && asked.level == Level::Clean;
            S::is_absent(report) || (is_given_up && S::has_part(&asked.want, report) == Some(false))
        };
        let free = others.filter(|(key, asked)| out_of_reach.contains(*key) || has_none(key, asked));
        let free: Vec<S::Key> = free.map(|(key, _)| key.clone()).collect();
        for key in free {
            self.asked.remove(&key);
            self.reports.remove(&key);
            self.done.remove(&key);
            actions.push(Action::Withdraw(key));
        }
    }

    /// Leaves of what the security group was told only its last want, when it has given up everything else.
    fn forget_trimmed(&mut self, env: &Env<'_, S>) {
        if !std::mem::take(&mut self.is_trimmed) {
            return;
        }
        self.told = S::Admission::default();
        for (_, asked) in self.asked.iter().filter(|(key, _)| S::role(key) == Role::SecurityGroup) {
            S::note_admission(&asked.want, env.inputs, &mut self.told);
        }
    }

    /// Starts the stages anew when an address that was known has become another: another writer has replaced it.
    fn note_address(&mut self, env: &Env<'_, S>, spec: &S::Spec) {
        let status = self.snapshot.as_ref().and_then(|snapshot| snapshot.status.as_ref());
        let seen = self.seen(status, false);
        let Some(address) = S::status(env.id, spec, &seen, env.inputs) else { return };
        let before = self.address.replace((self.spec, address.clone()));
        if before.is_some_and(|(spec, before)| spec == self.spec && before != address) {
            self.spec += 1;
            self.address = Some((self.spec, address));
        }
    }

    /// Tells the objects what a ladder asks for. Returns where the ladder ends.
    fn climb(
        &mut self,
        env: &Env<'_, S>,
        actions: &mut Vec<Action<S>>,
        stages: impl Fn(&mut Ladder<'_, S>) -> End<S::Status, S::Key>,
        spec: Option<&S::Spec>,
    ) -> End<S::Status, S::Key> {
        self.forget_trimmed(env);
        loop {
            let status = self.snapshot.as_ref().and_then(|snapshot| snapshot.status.as_ref());
            let has_report = |key: &S::Key| self.reports.contains_key(key);
            let is_complete = self.snapshot.as_ref().is_some_and(|snapshot| snapshot.found.iter().all(has_report));
            let seen = self.seen(status, is_complete);
            let (levels, current) = (BTreeMap::new(), RefCell::default());
            // What an earlier spec wants of an object is withdrawn first.
            let is_of_spec = |key: &S::Key| self.asked.get(key).is_some_and(|asked| asked.spec == self.spec);
            let mut out_of_reach = BTreeSet::new();
            if let Some(snapshot) = &self.snapshot {
                out_of_reach = self.out_of_reach(env, snapshot);
                out_of_reach.retain(is_of_spec);
            }
            let (id, inputs) = (env.id, env.inputs);
            let mut ladder = Ladder { state: self, spec, seen, id, inputs, out_of_reach, levels, current };
            let end = stages(&mut ladder);
            let mut wants = Vec::new();
            for (key, level) in &ladder.levels {
                let is_told = self.asked.get(key).is_some_and(|asked| {
                    let is_of_spec = asked.spec == self.spec;
                    // Within a spec the level never falls. A want that has changed is told when the ladder is at its stage.
                    // What an earlier spec was refused is withdrawn: what is in its way may be asked for only after a look.
                    let is_kept = || !asked.is_refused && ladder.is_current(key);
                    let is_beyond = asked.level > *level && (is_of_spec || is_kept());
                    let is_same = || is_of_spec && asked.level == *level && asked.is_done() && ladder.is_current(key);
                    !asked.again && (is_beyond || is_same())
                });
                if !is_told {
                    wants.push((key.clone(), *level, ladder.want(key, *level)));
                }
            }
            let mut goes_on = false;
            for (key, level, want) in wants {
                goes_on |= self.tell(env, key, level, want, actions);
            }
            if !goes_on {
                return end;
            }
        }
    }

    /// Tells an object what is wanted at a level, unless it was told so. Returns whether it has that done already, or may be
    /// out of reach, so that the next stage may begin.
    fn tell(
        &mut self,
        env: &Env<'_, S>,
        key: S::Key,
        level: Level,
        want: S::Want,
        actions: &mut Vec<Action<S>>,
    ) -> bool {
        let (spec, acceptance) = (self.spec, self.acceptance());
        let is_same = |asked: &&mut Box<Asked<S>>| {
            asked.want == want && !asked.again && (asked.acceptance == acceptance || asked.is_done())
        };
        if let Some(asked) = self.asked.get_mut(&key).filter(is_same) {
            let rises = (asked.spec, asked.level) != (spec, level);
            (asked.spec, asked.level) = (spec, level);
            return rises && (asked.is_done() || asked.closed().is_some());
        }
        if S::role(&key) == Role::SecurityGroup {
            S::note_admission(&want, env.inputs, &mut self.told);
        }
        self.generation += 1;
        let (generation, want_of) = (self.generation, want.clone());
        let (outcome, waits_since, is_refused, again) = (None, None, false, false);
        let asked =
            Asked { generation, want: want_of, acceptance, spec, level, outcome, waits_since, is_refused, again };
        self.asked.insert(key.clone(), Box::new(asked));
        actions.push(Action::Tell { key, generation, want, acceptance });
        false
    }
}

impl<S: Service> Ladder<'_, S> {
    /// All objects that may have parts of the Service, or that it helps to remove.
    fn known<'k>(&'k self, snapshot: &'k Snapshot<S>) -> impl Iterator<Item = &'k S::Key> {
        snapshot.found.iter().chain(&snapshot.ownerless).chain(self.state.asked.keys())
    }

    /// The stages of a Service that is to be present.
    fn present(&mut self, spec: &S::Spec, snapshot: &Snapshot<S>) -> End<S::Status, S::Key> {
        use {Level::*, Role::*};
        let keys = S::keys(self.id, spec, self.inputs);
        let others: Vec<S::Key> = self.known(snapshot).filter(|key| !keys.contains(*key)).cloned().collect();
        let all: Vec<S::Key> = keys.iter().chain(&others).cloned().collect();

        let mut looked = true;
        for role in [PublicIp, LoadBalancer, SecurityGroup, Members, PrivateLink] {
            looked &= self.stage(&others, role, Look);
        }
        // The order depends on what the load balancers serve now. A new process does not know it, and neither does one
        // that has told them something else and has not heard of it since. One that was served may have its address on
        // another load balancer.
        let unknown: Vec<S::Key> = keys.iter().filter(|key| !self.is_known(key)).cloned().collect();
        let mut known = self.stage(&unknown, LoadBalancer, Look);
        if snapshot.status.is_some() {
            known &= self.stage(&others, LoadBalancer, Look);
        }
        if !self.stage(&keys, PublicIp, Make) || !known {
            return End::Stage;
        }
        let gives_way = |key: &&S::Key| S::gives_way(self.id, spec, key, &self.seen, self.inputs);
        let leaving: Vec<S::Key> =
            others.iter().filter(|key| S::role(key) == LoadBalancer).filter(gives_way).cloned().collect();
        let order = match S::order(self.id, spec, &self.seen, self.inputs) {
            // The gap is as short as the writes of the load balancers.
            Order::Parallel if !leaving.is_empty() => Order::SecurityFirst,
            order => order,
        };
        let status = S::status(self.id, spec, &self.seen, self.inputs);
        // Where neither a rule nor an address changes, the security group is written once.
        let is_shown =
            snapshot.status.as_ref().zip(status.as_ref()).is_some_and(|(one, other)| S::is_same_status(one, other));
        let unchanged = is_shown
            && looked
            && keys.iter().all(|key| S::role(key) != LoadBalancer || self.is_done(key, Make))
            && all.iter().all(|key| S::role(key) != LoadBalancer || self.is_done(key, Quiet));
        let security = if unchanged { Clean } else { Make };
        let made = match order {
            Order::Parallel => {
                let load_balancer = self.stage(&keys, LoadBalancer, Make);
                self.stage(&keys, SecurityGroup, security) && load_balancer
            }
            Order::SecurityFirst => {
                self.stage(&keys, SecurityGroup, security)
                    && self.leave(&leaving, &others)
                    && self.stage(&keys, LoadBalancer, Make)
            }
            Order::SecurityAround => {
                self.stage(&keys, SecurityGroup, Frontend)
                    && self.leave(&leaving, &others)
                    && self.stage(&keys, LoadBalancer, Make)
                    && self.stage(&keys, SecurityGroup, security)
            }
            Order::LoadBalancerFirst => {
                self.leave(&leaving, &others)
                    && self.stage(&keys, LoadBalancer, Make)
                    && self.stage(&keys, SecurityGroup, security)
            }
            Order::FrontendFirst => {
                self.leave(&leaving, &others)
                    && self.stage(&keys, LoadBalancer, Frontend)
                    && self.stage(&keys, SecurityGroup, security)
                    && self.stage(&keys, LoadBalancer, Make)
            }
        };
        if !made || !self.stage(&keys, Members, Make) || !self.stage(&keys, PrivateLink, Make) {
            return End::Stage;
        }
        match status {
            Some(_) if is_shown => {}
            Some(status) => {
                return match S::awaits_members(spec, self.inputs) {
                    Some((key, what)) => End::Members(key, what),
                    None => End::Patch(Patch::SetStatus(status)),
                };
            }
            None => return End::Stage,
        }
        if !looked {
            return End::Stage;
        }
        self.remove(&all)
    }

    /// Removes the Service from load balancers whose address it takes to another one. A private link service on the frontend
    /// would keep it.
    fn leave(&mut self, leaving: &[S::Key], others: &[S::Key]) -> bool {
        leaving.is_empty()
            || (self.stage(others, Role::PrivateLink, Level::Clean)
                && self.stage(leaving, Role::LoadBalancer, Level::Clean))
    }

    /// The stages of a Service that is to be gone.
    fn gone(&mut self, snapshot: &Snapshot<S>) -> End<S::Status, S::Key> {
        use {Level::*, Role::*};
        let all: Vec<S::Key> = self.known(snapshot).cloned().collect();
        let mut looked = true;
        for role in [PublicIp, LoadBalancer, SecurityGroup, Members, PrivateLink] {
            looked &= self.stage(&all, role, Look);
        }
        if !looked {
            return End::Stage;
        }
        match self.remove(&all) {
            End::Top if snapshot.status.is_some() => End::Patch(Patch::ClearStatus),
            end => end,
        }
    }

    /// The stages that remove, from the admission to the address.
    fn remove(&mut self, all: &[S::Key]) -> End<S::Status, S::Key> {
        use {
            Level::{Clean, Quiet},
            Role::*,
        };
        if !self.stage(all, LoadBalancer, Quiet) {
            return End::Stage;
        }
        for role in [SecurityGroup, PrivateLink, Members, LoadBalancer, PublicIp] {
            if !self.stage(all, role, Clean) {
                return End::Stage;
            }
        }
        End::Top
    }
}
