//! What requesters learn of writes that none of them waits for: those that follow the inputs.

use lazuli_model::fault::Fault;

use super::{Action, Object, State};
use crate::wants::Entry;

impl<O: Object> State<O> {
    /// Notes whose wants are done and rest on what a write is about to bring in. `members` wait for the write.
    pub(super) fn note_followers(&mut self, members: &[O::Requester], op: &O::Op) {
        let follows = self.wants.iter().filter(|(requester, entry)| {
            entry.is_done() && !members.contains(requester) && O::follows(&entry.in_force, op)
        });
        self.followers.extend(follows.map(|(requester, _)| requester.clone()));
    }

    /// Tells them that the object shows what the inputs say, or cannot. One whose want is another by now learns more by the
    /// outcome of that.
    pub(super) fn followed(&mut self, result: Result<(), Fault>, actions: &mut Vec<Action<O>>) {
        let mut requesters: Vec<O::Requester> = std::mem::take(&mut self.followers).into_iter().collect();
        requesters.retain(|requester| self.wants.get(requester).is_some_and(Entry::is_done));
        if !requesters.is_empty() {
            actions.push(Action::Followed { requesters, result });
        }
    }

    /// Tells them that the object cannot follow. What fails in a write that serves wants too may be the fault of one of
    /// those, and the next write shows whether it is.
    pub(super) fn not_followed(&mut self, members: &[O::Requester], fault: &Fault, actions: &mut Vec<Action<O>>) {
        if members.is_empty() {
            self.followed(Err(fault.clone()), actions);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, VecDeque},
        time::Duration,
    };

    use lazuli_quota::{permit::Priority, read::By};

    use super::*;
    use crate::{
        Acceptance, Lease, Shared,
        object::{After, Cause, Env, EnvChange, Event, Failure, Plan, Served, Write, step},
    };

    /// A pool that has so many members as the inputs say, one more with each write. Its requesters rest on them or do not,
    /// and wait for none.
    #[derive(Debug, Clone, PartialEq)]
    struct Pool;

    impl Object for Pool {
        type Requester = &'static str;
        type Want = bool;
        type Model = u32;
        type Inputs = u32;
        type Op = u32;
        type Report = ();
        type Related = ();

        const CONDITIONAL: bool = true;

        fn plan(wants: &BTreeMap<&'static str, bool>, actual: Option<&u32>, inputs: &u32) -> Plan<Self> {
            let next = actual.map_or(0, |there| there + 1);
            let write = (actual != Some(inputs)).then(|| Write {
                op: next,
                priority: Priority::Create,
                replaces: false,
                is_partial: next < *inputs,
                taints: vec![],
            });
            Plan { write, served: wants.keys().map(|one| (*one, Served::Met(()))).collect() }
        }

        fn is_updating(_: &u32) -> bool {
            false
        }

        fn removes(_: &bool) -> bool {
            false
        }

        fn follows(rests: &bool, _: &u32) -> bool {
            *rests
        }
    }

    struct Bench {
        state: State<Pool>,
        now: Duration,
        members: u32,
        asked: u32,
        fault: Option<Fault>,
    }

    impl Bench {
        /// A pool of one member, with two requesters that are served.
        fn new() -> Self {
            let mut bench =
                Self { state: State::default(), now: Duration::from_secs(100), members: 1, asked: 1, fault: None };
            for (from, want) in [("rests", true), ("else", false)] {
                bench.run(Event::Requested { from, generation: 1, want, acceptance: Acceptance::Given });
            }
            bench
        }

        fn step(&mut self, event: Event<Pool>) -> Vec<Action<Pool>> {
            let lease = Lease { until: Some(Duration::from_secs(100_000)), least: Duration::from_secs(5) };
            let shared = Shared {
                synced: true,
                lease,
                trusted_from: Duration::ZERO,
                acceptance: Acceptance::Given,
                resync: None,
            };
            step(&mut self.state, &Env { shared, inputs: &Box::new(self.asked) }, self.now, event)
        }

        /// Answers everything for a while. Returns what followers were told.
        fn run(&mut self, event: Event<Pool>) -> Vec<(Vec<&'static str>, Result<(), Fault>)> {
            let mut told = Vec::new();
            let mut due = VecDeque::from([event]);
            for _ in 0..60 {
                while let Some(event) = due.pop_front() {
                    for action in self.step(event) {
                        match action {
                            Action::Observe { id, not_before, .. } => due.push_back(Event::Observed {
                                id,
                                sent_at: self.now.max(not_before),
                                by: By::Single,
                                result: Ok(self.members),
                            }),
                            Action::TakePermit { id, .. } => due.push_back(Event::Permitted(id)),
                            Action::Write { id, op, .. } => {
                                let result = match &self.fault {
                                    Some(fault) => Err(Failure { fault: fault.clone(), cause: Cause::Unnamed }),
                                    None => {
                                        self.members = op;
                                        Ok(After::Unread)
                                    }
                                };
                                due.push_back(Event::Ended { id, result });
                            }
                            Action::Followed { requesters, result } => told.push((requesters, result)),
                            _ => {}
                        }
                    }
                }
                let Some(at) = self.state.wake_at() else { break };
                self.now = self.now.max(at);
                due.push_back(Event::Woke);
            }
            told
        }

        fn follow(&mut self, members: u32) -> Vec<(Vec<&'static str>, Result<(), Fault>)> {
            self.asked = members;
            self.run(Event::EnvChanged(EnvChange::Replan))
        }
    }

    #[test]
    fn those_that_rest_on_it_are_told_once_when_the_last_write_is_shown() {
        let mut bench = Bench::new();
        assert_eq!(bench.follow(1), [], "nothing is written");
        assert_eq!(bench.follow(2), [(vec!["rests"], Ok(()))]);
        assert_eq!(bench.follow(5), [(vec!["rests"], Ok(()))], "three writes");
        assert_eq!(bench.members, 5);
        bench.run(Event::Withdrawn("rests"));
        assert_eq!(bench.follow(6), [], "the other does not rest on it");
    }

    #[test]
    fn they_are_told_of_each_refusal_and_not_of_a_conflict() {
        for (fault, is_told) in [
            (Fault::Invalid, true),
            (Fault::Forbidden, true),
            (Fault::PreconditionFailed, false),
            (Fault::OutcomeUnknown, false),
            (Fault::Throttled { retry_after: None }, false),
        ] {
            let mut bench = Bench::new();
            bench.fault = Some(fault.clone());
            let told = bench.follow(2);
            assert!(told.iter().all(|one| *one == (vec!["rests"], Err(fault.clone()))), "{told:?}");
            assert_eq!(!told.is_empty(), is_told, "{fault:?}: {told:?}");
            bench.fault = None;
            assert_eq!(bench.run(Event::Woke), [(vec!["rests"], Ok(()))], "{fault:?}");
        }
    }
}
