//! The stages of a Service, as the table in [`super`] shows them.

use std::{collections::BTreeMap, time::Duration};

use super::{Action, Asked, Desired, Env, Level, Order, Outcome, Patch, Reason, Role, Seen, Service, Snapshot, State};

/// The levels that the objects are to be told, up to the first stage that is not done.
struct Ladder<'a, S: Service> {
    state: &'a State<S>,
    spec: Option<&'a S::Spec>,
    seen: Seen<'a, S>,
    inputs: &'a S::Inputs,
    levels: BTreeMap<S::Key, Level>,
}

/// Where a ladder ends.
enum End<T> {
    /// A stage is not done.
    Stage,
    /// A patch is due.
    Patch(Patch<T>),
    /// Everything is done.
    Top,
}

impl<S: Service> Ladder<'_, S> {
    /// Asks for a level of the objects of one role, and of no others. Returns whether all have reported it as done.
    fn stage<'k>(&mut self, keys: impl IntoIterator<Item = &'k S::Key>, role: Role, level: Level) -> bool
    where
        S::Key: 'k,
    {
        let mut done = true;
        for key in keys.into_iter().filter(|key| S::role(key) == role) {
            self.levels.insert(key.clone(), level);
            done &= self.is_done(key, level);
        }
        done
    }

    /// Whether the object has reported the level, or a higher one, as done.
    fn is_done(&self, key: &S::Key, level: Level) -> bool {
        let Some(asked) = self.state.asked.get(key) else { return false };
        let beyond = || {
            let done = matches!(asked.outcome, Some(Outcome::Done(_)));
            done && asked.level > level && asked.want == self.want(key, asked.level)
        };
        asked.passed.contains(&self.want(key, level)) || beyond()
    }

    fn want(&self, key: &S::Key, level: Level) -> S::Want {
        S::want(self.spec, key, level, &self.seen, self.inputs)
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
        self.report_failure(actions);
        match &snapshot.desired {
            Desired::Present(_) if !snapshot.finalizer => self.patch(env, now, Patch::AddFinalizer, actions),
            Desired::Present(spec) => {
                let end = self.climb(env, actions, |ladder| ladder.present(spec, &snapshot), Some(spec));
                match end {
                    End::Stage => {}
                    End::Patch(patch) => self.patch(env, now, patch, actions),
                    End::Top => {
                        // Nothing is given up any more.
                        self.before.clone_from(&self.now);
                        self.report(Reason::Ensured, actions);
                    }
                }
            }
            Desired::Invalid(mistakes) => self.report(Reason::Invalid(mistakes.clone()), actions),
            Desired::Gone if snapshot.finalizer => {
                match self.climb(env, actions, |ladder| ladder.gone(&snapshot), None) {
                    End::Stage => {}
                    End::Patch(patch) => self.patch(env, now, patch, actions),
                    End::Top => self.patch(env, now, Patch::RemoveFinalizer, actions),
                }
            }
            // Without our finalizer there is no record that its parts may go.
            Desired::Gone => {
                if !self.asked.is_empty() {
                    actions.extend(std::mem::take(&mut self.asked).into_keys().map(Action::Withdraw));
                    self.now.clear();
                    self.before.clear();
                    self.report(Reason::Deleted, actions);
                }
            }
        }
    }

    /// Tells the objects what a ladder asks for. Returns where the ladder ends.
    fn climb(
        &mut self,
        env: &Env<'_, S>,
        actions: &mut Vec<Action<S>>,
        stages: impl FnOnce(&mut Ladder<'_, S>) -> End<S::Status>,
        spec: Option<&S::Spec>,
    ) -> End<S::Status> {
        let status = self.snapshot.as_ref().and_then(|snapshot| snapshot.status.as_ref());
        let seen = Seen { now: &self.now, before: &self.before, status };
        let mut ladder = Ladder { state: self, spec, seen, inputs: env.inputs, levels: BTreeMap::new() };
        let end = stages(&mut ladder);
        let mut tell = Vec::new();
        for (key, level) in &ladder.levels {
            let want = ladder.want(key, *level);
            let is_told = self.asked.get(key).is_some_and(|asked| {
                // A level is not taken back while the wants of the higher one are the same.
                asked.want == want || (asked.level > *level && asked.want == ladder.want(key, asked.level))
            });
            if !is_told {
                tell.push((key.clone(), *level, want));
            }
        }
        for (key, level, want) in tell {
            self.generation += 1;
            let passed = self.asked.remove(&key).filter(|asked| asked.spec == self.spec).map(|asked| asked.passed);
            let asked = Asked {
                generation: self.generation,
                want: want.clone(),
                spec: self.spec,
                level,
                outcome: None,
                passed: passed.unwrap_or_default(),
            };
            self.asked.insert(key.clone(), asked);
            actions.push(Action::Tell { key, generation: self.generation, want });
        }
        end
    }
}

impl<S: Service> Ladder<'_, S> {
    /// The stages of a Service that is to be present.
    fn present(&mut self, spec: &S::Spec, snapshot: &Snapshot<S>) -> End<S::Status> {
        use {Level::*, Role::*};
        let keys = S::keys(spec, self.inputs);
        let others: Vec<S::Key> =
            snapshot.found.iter().chain(self.state.asked.keys()).filter(|key| !keys.contains(key)).cloned().collect();
        let all: Vec<S::Key> = keys.iter().chain(&others).cloned().collect();

        let mut looked = true;
        for role in [PublicIp, LoadBalancer, SecurityGroup, Members, PrivateLink] {
            looked &= self.stage(&others, role, Look);
        }
        if !self.stage(&keys, PublicIp, Make) {
            return End::Stage;
        }
        let order = S::order(spec, &self.seen, self.inputs);
        // Where the load balancers have nothing to give up, the security group is written once.
        let quiet = {
            let levels = self.levels.clone();
            let quiet = self.stage(&keys, LoadBalancer, Make) && self.stage(&all, LoadBalancer, Quiet);
            self.levels = levels;
            quiet && looked
        };
        let security = if quiet { Clean } else { Make };
        let made = match order {
            Order::Parallel => {
                let load_balancer = self.stage(&keys, LoadBalancer, Make);
                self.stage(&keys, SecurityGroup, security) && load_balancer
            }
            Order::SecurityFirst => self.stage(&keys, SecurityGroup, security) && self.stage(&keys, LoadBalancer, Make),
            Order::LoadBalancerFirst => {
                self.stage(&keys, LoadBalancer, Make) && self.stage(&keys, SecurityGroup, security)
            }
            Order::FrontendFirst => {
                self.stage(&keys, LoadBalancer, Frontend)
                    && self.stage(&keys, SecurityGroup, security)
                    && self.stage(&keys, LoadBalancer, Make)
            }
        };
        if !made || !self.stage(&keys, Members, Make) || !self.stage(&keys, PrivateLink, Make) {
            return End::Stage;
        }
        match S::status(spec, &self.seen, self.inputs) {
            Some(status) if snapshot.status.as_ref() == Some(&status) => {}
            Some(status) => return End::Patch(Patch::SetStatus(status)),
            None => return End::Stage,
        }
        if !looked || !self.stage(&all, LoadBalancer, Quiet) {
            return End::Stage;
        }
        self.remove(&all)
    }

    /// The stages of a Service that is to be gone.
    fn gone(&mut self, snapshot: &Snapshot<S>) -> End<S::Status> {
        use {Level::*, Role::*};
        let all: Vec<S::Key> = snapshot.found.iter().chain(self.state.asked.keys()).cloned().collect();
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
    fn remove(&mut self, all: &[S::Key]) -> End<S::Status> {
        use {Level::Clean, Role::*};
        for role in [SecurityGroup, PrivateLink, Members, LoadBalancer, PublicIp] {
            if !self.stage(all, role, Clean) {
                return End::Stage;
            }
        }
        End::Top
    }
}
