//! What is due takes effect.
//!
//! An operation's effect takes place at its due time, polled or not: every request first
//! settles what is due, and a spawned task settles at the due time for those who only watch the
//! hypervisor. Effects of one moment take place in the order in which they were accepted, alarms before
//! them, so a run is the same each time.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::changes::{Changed, Follower, Step};
use crate::fault::Fault;
use crate::state::{Alarm, State};

impl State {
    /// Lets everything that is due at `now` take effect.
    pub(crate) fn settle(&mut self, now: Duration) {
        self.settled = now;
        loop {
            let operation = self.operations.first_due(now);
            let alarm = self.alarms.first_key_value().map(|((due, _), _)| *due).filter(|due| *due <= now);
            match (alarm, operation) {
                (Some(alarm), operation) if operation.is_none_or(|operation| alarm <= operation) => {
                    if let Some(((due, _), ring)) = self.alarms.pop_first() {
                        ring(self, due);
                        self.tell_followers(due);
                    }
                }
                (_, Some(_)) => {
                    if let Some(id) = self.operations.take_due(now) {
                        self.finish(&id);
                    }
                }
                _ => return,
            }
        }
    }

    /// Lets everything that runs take effect, whatever its due time (for a state file).
    pub(crate) fn settle_all(&mut self) {
        for id in self.operations.all_running() {
            self.operations.stop(&id);
            self.finish(&id);
        }
    }

    fn finish(&mut self, id: &str) {
        let Some((work, at, late_failure)) = self.operations.take_work(id) else {
            return;
        };
        let result = match late_failure {
            Some(fault) => Err(fault),
            None => (work.effect)(self, at),
        };
        if let (Err(fault), Some(undo)) = (&result, work.undo) {
            undo(self, at, fault);
        }
        self.operations.end(id, at, result);
        self.tell_followers(at);
    }

    /// Ends a running operation because a newer one replaces it. Its effect never takes place.
    pub(crate) fn preempt(&mut self, id: &str, now: Duration, fault: Fault) {
        self.operations.preempt(id, now, fault);
    }

    /// Does something at `due`, besides all operations. Returns the name of the alarm.
    pub(crate) fn set_alarm(&mut self, due: Duration, ring: Alarm) -> (Duration, u64) {
        self.alarms_set += 1;
        self.alarms.insert((due, self.alarms_set), ring);
        (due, self.alarms_set)
    }
}

impl State {
    pub(crate) fn follow(&mut self, follower: Follower) {
        self.store.note_changes();
        self.followers.add(follower);
    }

    /// Tells the followers what has changed since they were told last.
    pub(crate) fn tell_followers(&mut self, at: Duration) {
        let keys: BTreeSet<String> = self.store.take_changes();
        if keys.is_empty() {
            return;
        }
        let documents = keys.into_iter().map(|key| {
            let resource = self.store.get(&key);
            let of_machine = |resource: &crate::store::Resource| resource.machine.as_ref()?.busy.clone();
            let busy = resource.and_then(|resource| resource.busy.clone().or_else(|| of_machine(resource)));
            let in_flight = busy.is_some_and(|operation| self.operations.is_running(&operation));
            Changed { document: resource.map(|resource| resource.doc.clone()), in_flight, key }
        });
        let step = Step { at, documents: documents.collect() };
        self.followers.tell(&step);
    }
}
