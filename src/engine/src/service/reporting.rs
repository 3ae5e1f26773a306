//! What the owner of a Service is told: failures of objects, and what the Service has waited for too long.

use std::{collections::BTreeSet, time::Duration};

use lazuli_model::fault::Fault;

use super::{Action, Asked, Desired, Env, LONG_WAIT, Outcome, OwnWait, Reason, Service, State, Waiting, earlier};

/// How long Azure must have refused requests as too many before the owner of the Service is told.
pub(super) const THROTTLED: Duration = Duration::from_secs(120);
/// The same where a write is under way or waits for its turn: the queue of a thousand writes is longer than a minute.
const LONG_WRITE: Duration = Duration::from_secs(300);

impl<S: Service> State<S> {
    pub(super) fn report(&mut self, reason: Reason<S::Key>, actions: &mut Vec<Action<S>>) {
        let reported = Some((self.spec, reason.clone()));
        if self.reported != reported {
            self.reported = reported;
            self.is_quiet &= reason == Reason::Unchanged;
            actions.push(Action::Report(reason));
        }
    }

    /// Reports that this process begins to work on what the Service asks for now, once for each spec. Of a Service that was
    /// served before this process saw it the first spec is no news.
    pub(super) fn report_beginning(
        &mut self,
        env: &Env<'_, S>,
        now: Duration,
        reason: Reason<S::Key>,
        actions: &mut Vec<Action<S>>,
    ) {
        if self.begun == Some(self.spec) || !env.shared.lease.covers_write(now) {
            return;
        }
        self.begun = Some(self.spec);
        if !self.is_quiet {
            actions.push(Action::Report(reason));
        }
    }

    /// Reports that the Service has what it asks for. What another replica has done, that one reports.
    pub(super) fn report_served(&mut self, env: &Env<'_, S>, now: Duration, actions: &mut Vec<Action<S>>) {
        self.is_quiet |= !env.shared.lease.covers_write(now) && self.begun != Some(self.spec);
        let reason = if self.is_quiet { Reason::Unchanged } else { Reason::Ensured };
        self.report(reason, actions);
    }

    /// Reports the first failure of an object, in order of the keys. A pause that Azure asks for is one when it has lasted.
    /// Those out of reach concern others.
    pub(super) fn report_failure(
        &mut self,
        now: Duration,
        out_of_reach: &BTreeSet<S::Key>,
        actions: &mut Vec<Action<S>>,
    ) {
        let throttled =
            |asked: &Asked<S>| matches!(asked.outcome, Some(Outcome::Waiting(Waiting::Retry(Fault::Throttled { .. }))));
        if self.asked.values().any(|asked| throttled(asked)) {
            self.throttled_since.get_or_insert(now);
        } else if self.asked.values().all(|asked| asked.is_done()) {
            self.throttled_since = None;
        }
        let reportable_at = self.throttled_since.map(|since| since + THROTTLED);
        let mut wake = None;
        // What an object was refused for an earlier spec says nothing of this one. Of one that is wrong it is all there is.
        let is_invalid = self.snapshot.as_ref().is_some_and(|snapshot| matches!(snapshot.desired, Desired::Invalid(_)));
        let is_current = |asked: &Asked<S>| asked.spec == self.spec || is_invalid;
        let mut current = self.asked.iter().filter(|(key, asked)| !out_of_reach.contains(*key) && is_current(asked));
        let reason = current.find_map(|(key, asked)| match asked.outcome.as_ref()? {
            Outcome::Refused(refusal) => Some(Reason::Refused(key.clone(), refusal.clone())),
            Outcome::Waiting(Waiting::Retry(Fault::Throttled { .. })) if reportable_at.is_some_and(|at| now < at) => {
                wake = reportable_at;
                None
            }
            // The pause differs from try to try.
            Outcome::Waiting(Waiting::Retry(Fault::Throttled { .. })) => {
                Some(Reason::Retry(key.clone(), Fault::Throttled { retry_after: None }))
            }
            Outcome::Waiting(Waiting::Retry(fault)) => Some(Reason::Retry(key.clone(), fault.clone())),
            Outcome::Waiting(Waiting::Acceptance) => Some(Reason::Held(key.clone())),
            Outcome::Waiting(_) | Outcome::Done(_) => None,
        });
        if let Some(at) = wake {
            self.wake = earlier(self.wake, at);
        }
        if let Some(reason) = reason.or_else(|| self.long_wait(now)) {
            self.report(reason, actions);
        }
    }

    /// What the Service has waited for too long; else notes when it will have.
    fn long_wait(&mut self, now: Duration) -> Option<Reason<S::Key>> {
        let of_objects = self.asked.iter().filter_map(|(key, asked)| {
            let Some(Outcome::Waiting(waiting)) = &asked.outcome else { return None };
            let longest = match waiting {
                Waiting::Plan(_) | Waiting::OtherOperation | Waiting::FreshReads => LONG_WAIT,
                Waiting::Write => LONG_WRITE,
                // These are failures.
                Waiting::Acceptance | Waiting::Retry(_) => return None,
            };
            Some((asked.waits_since? + longest, Reason::Waits(key.clone(), waiting.clone())))
        });
        let own = self.awaited.iter().map(|(awaited, since)| {
            let reason = match awaited {
                OwnWait::Members(key, what) => Reason::Waits(key.clone(), Waiting::Plan(what.clone())),
                OwnWait::Unread(places) => Reason::Unread(places.clone()),
            };
            (*since + LONG_WAIT, reason)
        });
        let (at, reason) = of_objects.chain(own).min_by_key(|(at, _)| *at)?;
        if now < at {
            self.wake = earlier(self.wake, at);
            return None;
        }
        Some(reason)
    }

    /// Notes what the Service itself waits for from now on, if it did not wait for that already.
    pub(super) fn awaits(&mut self, awaited: OwnWait<S::Key>, now: Duration) {
        let since = match &self.awaited {
            Some((before, since)) if std::mem::discriminant(before) == std::mem::discriminant(&awaited) => *since,
            _ => now,
        };
        self.awaited = Some((awaited, since));
        self.waits = true;
        if now < since + LONG_WAIT {
            self.wake = earlier(self.wake, since + LONG_WAIT);
        }
    }
}
