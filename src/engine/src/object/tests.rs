mod creation;
mod refusals;

use std::collections::BTreeSet;

use lazuli_quota::poll::{Durations, Kind};

use super::*;
use crate::{
    Acceptance, Explanation, Lease,
    freshness::{LAG, LATE},
    quiet_window::GAP,
};

/// An object that is a set of letters.
#[derive(Debug, Clone, PartialEq)]
struct Letters;

#[derive(Debug, Clone, PartialEq, Default)]
struct LettersWant {
    present: BTreeSet<char>,
    gone: BTreeSet<char>,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct LettersModel {
    letters: BTreeSet<char>,
    updating: bool,
}

impl Object for Letters {
    type Requester = &'static str;
    type Want = LettersWant;
    type Model = LettersModel;
    type Inputs = ();
    type Op = BTreeSet<char>;
    type Report = usize;
    type Related = &'static str;

    const CONDITIONAL: bool = true;

    fn plan(wants: &BTreeMap<&'static str, LettersWant>, actual: Option<&LettersModel>, (): &()) -> Plan<Self> {
        let before = actual.map(|model| model.letters.clone()).unwrap_or_default();
        let mut after = before.clone();
        for want in wants.values() {
            after.retain(|letter| !want.gone.contains(letter));
        }
        wants.values().for_each(|want| after.extend(&want.present));
        let served = |want: &LettersWant| match want.present.is_subset(&before) && want.gone.is_disjoint(&before) {
            _ if want.present.contains(&'?') => Served::Refused(Explanation {
                reason: "QuestionMark",
                message: "a question mark is not allowed".to_owned(),
            }),
            true => Served::Met(want.present.len()),
            // The letter y comes by itself, some time after the others.
            false if want.present.difference(&before).all(|letter| *letter == 'y') => Served::Waiting("y".to_owned()),
            false => Served::Pending,
        };
        let served = wants.iter().map(|(requester, want)| (*requester, served(want))).collect();
        after.remove(&'?');
        if !before.contains(&'y') {
            after.remove(&'y');
        }
        // Of the letter p, more than one write is needed to get rid.
        let is_partial = before.contains(&'p') && !after.contains(&'p') && before.contains(&'q');
        if is_partial {
            after.insert('p');
            after.remove(&'q');
        }
        let replaces = !before.is_subset(&after);
        let write = (after != before).then(|| Write {
            op: after,
            priority: Priority::Create,
            replaces,
            is_partial,
            taints: vec!["related"],
        });
        Plan { write, served }
    }

    fn is_updating(model: &LettersModel) -> bool {
        model.updating
    }

    fn removes(want: &LettersWant) -> bool {
        !want.gone.is_empty()
    }

    fn spent(want: &LettersWant) -> LettersWant {
        LettersWant { gone: BTreeSet::new(), ..want.clone() }
    }

    /// What others rest on is the letter t.
    fn is_threatened(want: &LettersWant, _: Option<&LettersModel>) -> bool {
        want.present.contains(&'t')
    }

    /// The letter r refers to another object.
    fn references(want: &LettersWant) -> Vec<&'static str> {
        want.present.contains(&'r').then_some("referred").into_iter().collect()
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn letters(letters: &str) -> BTreeSet<char> {
    letters.chars().collect()
}

fn model(shown: &str) -> LettersModel {
    LettersModel { letters: letters(shown), updating: false }
}

/// A state and its world: what the object shows, and the time.
struct Bench {
    state: State<Letters>,
    shared: Shared,
    now: Duration,
    /// Whether wants that are told wait for the operator.
    of_wants: Acceptance,
}

impl Bench {
    fn new() -> Self {
        let lease = Lease { until: Some(Duration::from_secs(10_000)), least: Duration::from_secs(5) };
        let shared =
            Shared { synced: true, lease, trusted_from: Duration::ZERO, acceptance: Acceptance::Given, resync: None };
        Self { state: State::default(), shared, now: Duration::ZERO, of_wants: Acceptance::Given }
    }

    fn step(&mut self, event: Event<Letters>) -> Vec<Action<Letters>> {
        step(&mut self.state, &Env { shared: self.shared, inputs: &&() }, self.now, event)
    }

    fn request(&mut self, from: &'static str, generation: u64, present: &str, gone: &str) -> Vec<Action<Letters>> {
        let want = LettersWant { present: letters(present), gone: letters(gone) };
        self.step(Event::Requested { from, generation, want, acceptance: self.of_wants })
    }

    fn observed(&mut self, actions: &[Action<Letters>], result: Result<LettersModel, Fault>) -> Vec<Action<Letters>> {
        let [Action::Observe { id, .. }] = actions else { panic!("{actions:?} is no read") };
        self.step(Event::Observed { id: *id, sent_at: self.now, by: By::Single, result })
    }

    fn woken(&mut self) -> Vec<Action<Letters>> {
        self.now = self.state.wake_at().expect("a time is awaited").max(self.now);
        self.step(Event::Woke)
    }

    /// Grants the permit that the actions ask for, and returns the write.
    fn permitted(&mut self, actions: &[Action<Letters>]) -> (Id, BTreeSet<char>) {
        let Some(Action::TakePermit { id, .. }) = actions.last() else { panic!("{actions:?} asks for no permit") };
        let actions = self.step(Event::Permitted(*id));
        let [Action::Write { id, op, .. }] = &actions[..] else { panic!("{actions:?} is no write") };
        (*id, op.clone())
    }

    fn failed(&mut self, id: Id, fault: Fault) -> Vec<Action<Letters>> {
        self.step(Event::Ended { id, result: Err(Failure { fault, cause: Cause::Unnamed }) })
    }

    fn succeeded(&mut self, id: Id) -> Vec<Action<Letters>> {
        self.step(Event::Ended { id, result: Ok(After::Unread) })
    }

    /// Requests, and goes on to the write, where the object shows this.
    fn write_of(&mut self, requests: &[(&'static str, &str, &str)], shown: &str) -> (Id, BTreeSet<char>) {
        let mut first = Vec::new();
        for (from, present, gone) in requests {
            first.extend(self.request(from, 1, present, gone));
        }
        self.observed(&first, Ok(model(shown)));
        let actions = self.woken();
        self.permitted(&actions)
    }
}

fn told(actions: &[Action<Letters>]) -> Vec<(&'static str, u64, Outcome<usize>)> {
    let tell = |action: &Action<Letters>| match action {
        Action::Tell { to, generation, outcome } => Some((*to, *generation, outcome.clone())),
        _ => None,
    };
    actions.iter().filter_map(tell).collect()
}

fn waiting(fault: Fault) -> Outcome<usize> {
    Outcome::Waiting(Waiting::Retry(fault))
}

#[test]
fn a_burst_of_requests_makes_one_write_and_each_is_told_what_azure_then_shows() {
    let mut bench = Bench::new();
    let read = bench.request("s1", 1, "a", "");
    assert!(bench.request("s2", 7, "b", "").is_empty(), "one read at a time");
    let actions = bench.observed(&read, Ok(model("xy")));
    assert_eq!(told(&actions).len(), 2, "both are told that they wait: {actions:?}");
    assert_eq!(bench.state.wake_at(), Some(GAP));
    let actions = bench.woken();
    let (id, op) = bench.permitted(&actions);
    assert_eq!(op, letters("abxy"), "what no want names stays");
    let expected = Expectation::of(Kind::Other, &Durations::default(), None);
    assert!(bench.step(Event::Accepted { id, expected }).is_empty());
    assert_eq!(bench.woken(), [Action::Poll(id)]);
    bench.step(Event::Polled { id, pause: Duration::ZERO });
    assert_eq!(bench.woken(), [Action::Poll(id)]);
    let actions = bench.succeeded(id);
    assert_eq!(actions[0], Action::Taint(vec!["related"], Taint::Changed));
    let actions = bench.observed(&actions[1..], Ok(model("abxy")));
    assert_eq!(told(&actions), [("s1", 1, Outcome::Done(1)), ("s2", 7, Outcome::Done(1))]);
    assert_eq!(bench.state.wake_at(), None);
}

/// Inputs that count how often a planner looks at them.
#[derive(Default)]
struct Looks(std::cell::Cell<usize>);

impl Deref for Looks {
    type Target = ();

    fn deref(&self) -> &() {
        self.0.set(self.0.get() + 1);
        &()
    }
}

#[test]
fn a_burst_is_planned_once_for_its_observation_and_once_at_its_end() {
    let (mut bench, looks) = (Bench::new(), Looks::default());
    let names: Vec<&'static str> = vec!["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"];
    let step = |bench: &mut Bench, event| {
        let env = Env { shared: bench.shared, inputs: &looks };
        let actions = step(&mut bench.state, &env, bench.now, event);
        (actions, looks.0.take())
    };
    let requested = |from, letter| {
        let want = LettersWant { present: letters(letter), gone: letters("") };
        Event::Requested { from, generation: 1, want, acceptance: Acceptance::Given }
    };
    let (read, _) = step(&mut bench, requested("s0", "a"));
    let [Action::Observe { id, .. }] = read[..] else { panic!("{read:?} is no read") };
    let observed = Event::Observed { id, sent_at: bench.now, by: By::Single, result: Ok(model("")) };
    assert_eq!(step(&mut bench, observed).1, 1, "what is known already is told at once");
    for name in names {
        bench.now += ms(1);
        assert_eq!(step(&mut bench, requested(name, "b")), (vec![], 0));
    }
    bench.now = bench.state.wake_at().expect("the burst ends");
    let (actions, plans) = step(&mut bench, Event::Woke);
    assert_eq!(plans, 1);
    let Some(Action::TakePermit { id, .. }) = actions.last() else { panic!("{actions:?} asks for no permit") };
    // While the permit is awaited, what comes is a burst of its own, which ends before the write.
    assert_eq!(step(&mut bench, requested("s9", "c")), (vec![], 0));
    assert_eq!(step(&mut bench, Event::Permitted(*id)), (vec![], 0));
    bench.now = bench.state.wake_at().expect("the burst ends");
    let (actions, plans) = step(&mut bench, Event::Woke);
    assert!(matches!(&actions[..], [.., Action::Write { op, .. }] if *op == letters("abc")), "{actions:?}");
    assert_eq!(plans, 1);
}

#[test]
fn what_is_there_already_costs_one_read_and_no_write() {
    let mut bench = Bench::new();
    let read = bench.request("s1", 1, "a", "");
    let actions = bench.observed(&read, Ok(model("ab")));
    assert_eq!(told(&actions), [("s1", 1, Outcome::Done(1))]);
    assert!(bench.request("s2", 1, "b", "").is_empty(), "the burst may go on");
    let actions = bench.woken();
    assert_eq!(told(&actions), [("s2", 1, Outcome::Done(1))], "the observation is fresh enough");
    bench.now = Duration::from_secs(61);
    assert!(matches!(bench.request("s3", 1, "b", "")[..], [Action::Observe { .. }]));
}

#[test]
fn the_newest_want_wins_and_makes_the_next_write() {
    let mut bench = Bench::new();
    let (id, op) = bench.write_of(&[("s1", "a", "")], "");
    assert_eq!(op, letters("a"));
    assert!(bench.request("s1", 2, "b", "a").is_empty(), "one write at a time");
    let read = bench.succeeded(id);
    let actions = bench.observed(&read[1..], Ok(model("a")));
    let actions =
        if actions.iter().any(|action| matches!(action, Action::TakePermit { .. })) { actions } else { bench.woken() };
    let (_, op) = bench.permitted(&actions);
    assert_eq!(op, letters("b"));
}

#[test]
fn an_answer_of_an_unknown_id_changes_nothing() {
    let mut bench = Bench::new();
    bench.request("s1", 1, "a", "");
    let (now, unknown) = (bench.now, Id(99));
    assert!(
        bench.step(Event::Observed { id: unknown, sent_at: now, by: By::Single, result: Ok(model("a")) }).is_empty()
    );
    assert!(bench.step(Event::Permitted(unknown)).is_empty());
    assert!(bench.succeeded(unknown).is_empty());
    assert!(
        bench
            .step(Event::Accepted { id: unknown, expected: Expectation::of(Kind::Other, &Durations::default(), None) })
            .is_empty()
    );
}

#[test]
fn a_precondition_that_failed_reads_and_plans_again() {
    let mut bench = Bench::new();
    let (id, _) = bench.write_of(&[("s1", "a", "")], "");
    assert_eq!(bench.failed(id, Fault::PreconditionFailed), [Action::Taint(vec!["related"], Taint::Changed)]);
    let read = bench.woken();
    let actions = bench.observed(&read, Ok(model("z")));
    let (_, op) = bench.permitted(&actions);
    assert_eq!(op, letters("az"));
}

#[test]
fn a_throttled_write_waits_as_long_as_azure_asks() {
    let mut bench = Bench::new();
    let (id, _) = bench.write_of(&[("s1", "a", "")], "");
    let fault = Fault::Throttled { retry_after: Some(ms(7_000)) };
    let actions = bench.failed(id, fault.clone());
    assert_eq!(told(&actions), [("s1", 1, waiting(fault))]);
    assert_eq!(bench.state.wake_at(), Some(bench.now + ms(7_000)));
    let actions = bench.woken();
    bench.permitted(&actions);
}

#[test]
fn after_a_lost_answer_absence_is_believed_late() {
    let mut bench = Bench::new();
    let (id, _) = bench.write_of(&[("s1", "a", "")], "");
    bench.failed(id, Fault::OutcomeUnknown);
    let lost_at = bench.now;
    bench.request("s1", 2, "", "a");
    let read = bench.woken();
    let actions = bench.observed(&read, Ok(model("")));
    assert_eq!(told(&actions), [("s1", 2, Outcome::Waiting(Waiting::FreshReads))]);
    let read = bench.woken();
    assert_eq!(bench.now, lost_at + LATE);
    let actions = bench.observed(&read, Ok(model("a")));
    let (id, op) = bench.permitted(&actions);
    assert_eq!(op, letters(""), "the lost write had arrived after all");
    let read = bench.succeeded(id);
    let actions = bench.observed(&read[1..], Ok(model("")));
    assert_eq!(told(&actions), [("s1", 2, Outcome::Done(0))]);
}

#[test]
fn a_new_leader_believes_absence_late_unless_it_has_written_itself() {
    let mut bench = Bench::new();
    bench.shared.trusted_from = ms(4_000);
    let read = bench.request("s1", 1, "", "a");
    let actions = bench.observed(&read, Ok(model("")));
    assert_eq!(told(&actions), [("s1", 1, Outcome::Waiting(Waiting::FreshReads))]);
    let read = bench.woken();
    assert_eq!(bench.now, ms(4_000));
    let actions = bench.observed(&read, Ok(model("")));
    assert_eq!(told(&actions), [("s1", 1, Outcome::Done(0))]);

    let mut bench = Bench::new();
    bench.shared.trusted_from = ms(4_000);
    let (id, _) = bench.write_of(&[("s1", "", "a")], "ab");
    let read = bench.succeeded(id);
    let actions = bench.observed(&read[1..], Ok(model("b")));
    assert_eq!(told(&actions), [("s1", 1, Outcome::Done(0))]);
}

#[test]
fn a_read_that_lags_behind_the_write_is_repeated_and_not_planned_from() {
    let mut bench = Bench::new();
    let (id, _) = bench.write_of(&[("s1", "a", "")], "");
    bench.request("s1", 2, "", "a");
    let read = bench.succeeded(id);
    assert!(bench.observed(&read[1..], Ok(model(""))).is_empty(), "it lacks what was just written");
    let read = bench.woken();
    let actions = bench.observed(&read, Ok(model("a")));
    let (_, op) = bench.permitted(&actions);
    assert_eq!(op, letters(""));
}

#[test]
fn a_read_that_shows_a_partial_write_does_not_lag() {
    let mut bench = Bench::new();
    let (id, op) = bench.write_of(&[("s1", "", "p")], "pq");
    assert_eq!(op, letters("p"));
    let read = bench.succeeded(id);
    assert!(bench.observed(&read[1..], Ok(model("pq"))).is_empty(), "this one does");
    let read = bench.woken();
    let actions = bench.observed(&read, Ok(model("p")));
    assert_eq!(bench.permitted(&actions).1, letters(""));
}

#[test]
fn what_comes_without_a_word_of_it_is_looked_for_with_growing_pauses() {
    let mut bench = Bench::new();
    let (id, op) = bench.write_of(&[("s1", "ay", "")], "");
    assert_eq!(op, letters("a"));
    let read = bench.succeeded(id);
    let mut actions = bench.observed(&read[1..], Ok(model("a")));
    assert_eq!(told(&actions), [("s1", 1, Outcome::Waiting(Waiting::Plan("y".to_owned())))]);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let before = bench.now;
        let read = bench.woken();
        pauses.push((bench.now - before).as_secs());
        actions = bench.observed(&read, Ok(model("a")));
        assert!(actions.is_empty(), "it is told once: {actions:?}");
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
    let read = bench.woken();
    actions = bench.observed(&read, Ok(model("ay")));
    assert_eq!(told(&actions), [("s1", 1, Outcome::Done(2))]);
}

#[test]
fn what_a_planner_refuses_is_looked_at_again_with_growing_pauses() {
    let mut bench = Bench::new();
    let read = bench.request("s1", 1, "?", "");
    let actions = bench.observed(&read, Ok(model("")));
    let refusal = Explanation { reason: "QuestionMark", message: "a question mark is not allowed".to_owned() };
    assert_eq!(told(&actions), [("s1", 1, Outcome::Refused(Refusal::Plan(refusal)))]);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let before = bench.now;
        let read = bench.woken();
        pauses.push((bench.now - before).as_secs());
        let actions = bench.observed(&read, Ok(model("")));
        assert!(actions.is_empty(), "it is told once: {actions:?}");
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
}

#[test]
fn another_operation_is_waited_for_and_not_for_ever() {
    let mut bench = Bench::new();
    let mut read = bench.request("s1", 1, "a", "");
    let updating = LettersModel { updating: true, ..model("") };
    let actions = bench.observed(&read, Ok(updating.clone()));
    assert_eq!(told(&actions), [("s1", 1, Outcome::Waiting(Waiting::OtherOperation))]);
    let mut reads = 0;
    let actions = loop {
        read = bench.woken();
        reads += 1;
        let actions = bench.observed(&read, Ok(updating.clone()));
        if !actions.is_empty() {
            break actions;
        }
    };
    assert!(bench.now >= LONGEST_UPDATING && bench.now < LONGEST_UPDATING + ms(15_000), "{:?}", bench.now);
    assert!(reads < 60, "{reads} reads");
    bench.permitted(&actions);
}

#[test]
fn no_write_starts_without_lease_before_the_informers_or_during_a_drain() {
    let mut bench = Bench::new();
    bench.shared.synced = false;
    assert!(bench.request("s1", 1, "a", "").is_empty());
    bench.shared.synced = true;
    let read = bench.step(Event::Woke);
    bench.shared.lease.until = Some(ms(4_999));
    bench.observed(&read, Ok(model("")));
    assert!(bench.woken().is_empty());
    bench.shared.lease.until = Some(ms(20_000));
    let actions = bench.step(Event::Woke);
    let (id, _) = bench.permitted(&actions);
    bench.request("s2", 1, "b", "");
    assert!(bench.step(Event::Drain).is_empty(), "the write in flight is awaited");
    assert_eq!(bench.succeeded(id)[1..], [Action::Drained]);
}

#[test]
fn a_want_that_replaces_waits_for_acceptance_and_others_are_served() {
    let mut bench = Bench::new();
    bench.shared.acceptance = Acceptance::Awaited;
    // One that has changed since the take-over, and one that has not.
    let (id, op) = bench.write_of(&[("s2", "b", "c")], "acd");
    assert_eq!(op, letters("abd"));
    bench.of_wants = Acceptance::Awaited;
    bench.request("s1", 1, "", "a");
    bench.request("s3", 1, "e", "");
    let actions = bench.succeeded(id);
    let actions = bench.observed(&actions[1..], Ok(model("abd")));
    let held = ("s1", 1, Outcome::Waiting(Waiting::Acceptance));
    assert!(told(&actions).contains(&held), "{actions:?}");
    let actions = bench.woken();
    let (id, op) = bench.permitted(&actions);
    assert_eq!(op, letters("abde"), "what replaces nothing is made meanwhile");
    let actions = bench.succeeded(id);
    let actions = bench.observed(&actions[1..], Ok(model("abde")));
    assert_eq!(told(&actions), [("s3", 1, Outcome::Done(1))]);
    // A change of the one that waits is a decision of its owner.
    bench.of_wants = Acceptance::Given;
    bench.request("s1", 2, "", "a");
    let actions = bench.woken();
    assert_eq!(bench.permitted(&actions).1, letters("bde"));
}

#[test]
fn a_plan_that_replaces_goes_ahead_once_it_is_accepted() {
    let mut bench = Bench::new();
    bench.shared.acceptance = Acceptance::Awaited;
    bench.of_wants = Acceptance::Awaited;
    let read = bench.request("s1", 1, "", "a");
    let actions = bench.observed(&read, Ok(model("a")));
    assert_eq!(told(&actions), [("s1", 1, Outcome::Waiting(Waiting::Acceptance))]);
    assert_eq!(bench.state.wake_at(), None);
    bench.shared.acceptance = Acceptance::Given;
    let actions = bench.step(Event::Woke);
    bench.permitted(&actions);
}

#[test]
fn one_refused_member_is_found_in_log2_n_plus_1_writes_once_and_the_others_are_served() {
    let mut bench = Bench::new();
    let names = ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"];
    let parts = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let requests: Vec<(&str, &str, &str)> = names.iter().zip(parts).map(|(name, part)| (*name, part, "")).collect();
    let (mut id, mut op) = bench.write_of(&requests, "");
    let (mut shown, mut writes, mut outcomes) = (letters(""), 0, Vec::new());
    loop {
        let mut actions = if op.contains(&'f') {
            bench.failed(id, Fault::Invalid)
        } else {
            shown = op.clone();
            bench.succeeded(id)
        };
        actions.remove(0);
        let actions = bench.observed(&actions, Ok(LettersModel { letters: shown.clone(), updating: false }));
        outcomes.extend(told(&actions));
        if shown.len() == 7 {
            break;
        }
        (id, op) = bench.permitted(&actions);
        writes += 1;
    }
    assert!(writes <= 4, "{writes} writes after the first failure");
    let refused = Outcome::Refused(Refusal::Azure(Fault::Invalid));
    assert!(outcomes.contains(&("s6", 1, refused.clone())));
    assert_eq!(outcomes.iter().filter(|(.., outcome)| matches!(outcome, Outcome::Done(_))).count(), 7);
    // Every other member was cleared; this one has not failed alone yet.
    let actions = bench.woken();
    let (id, op) = bench.permitted(&actions);
    assert!(op.contains(&'f'));
    let mut actions = bench.failed(id, Fault::Invalid);
    assert_eq!(told(&actions), [("s6", 1, refused.clone())]);
    actions.retain(|action| matches!(action, Action::Observe { .. }));
    bench.observed(&actions, Ok(LettersModel { letters: shown.clone(), updating: false }));
    assert_eq!(bench.state.wake_at(), None, "it failed alone");
    let actions = bench.request("s6", 3, "i", "");
    let actions =
        if actions.iter().any(|action| matches!(action, Action::TakePermit { .. })) { actions } else { bench.woken() };
    assert_eq!(bench.permitted(&actions).1, letters("abcdeghi"));
}

#[test]
fn a_write_that_is_refused_while_a_members_want_changes_proves_nothing_of_the_others() {
    let mut bench = Bench::new();
    let (id, _) = bench.write_of(&[("s1", "a", ""), ("s2", "b", "")], "");
    bench.request("s2", 2, "c", "");
    let actions = bench.failed(id, Fault::Invalid);
    assert_eq!(told(&actions), [], "s2's earlier want may be the cause");
    let read = bench.woken();
    let actions = bench.observed(&read, Ok(model("")));
    assert_eq!(bench.permitted(&actions).1, letters("ac"));
}

#[test]
fn a_refusal_is_tried_again_when_the_inputs_can_cure_it() {
    let mut bench = Bench::new();
    let (id, _) = bench.write_of(&[("s1", "a", "")], "");
    let actions = bench.failed(id, Fault::Invalid);
    assert_eq!(told(&actions), [("s1", 1, Outcome::Refused(Refusal::Azure(Fault::Invalid)))]);
    bench.observed(&actions[2..], Ok(model("")));
    assert_eq!(bench.state.wake_at(), None, "it waits for a change");
    assert!(bench.step(Event::EnvChanged(EnvChange::Replan)).is_empty());
    bench.step(Event::EnvChanged(EnvChange::Cures));
    let actions = bench.woken();
    bench.permitted(&actions);
}

#[test]
fn what_the_identity_lacks_is_told_to_all_and_retried_with_growing_pauses() {
    let mut bench = Bench::new();
    let (mut id, _) = bench.write_of(&[("s1", "a", ""), ("s2", "b", "")], "");
    let mut pauses = Vec::new();
    for round in 0..3 {
        let actions = bench.failed(id, Fault::Forbidden);
        if round == 0 {
            assert_eq!(told(&actions), [("s1", 1, waiting(Fault::Forbidden)), ("s2", 1, waiting(Fault::Forbidden))]);
        }
        let before = bench.now;
        let read = bench.woken();
        pauses.push((bench.now - before).as_secs());
        let actions = bench.observed(&read, Ok(model("")));
        (id, _) = bench.permitted(&actions);
    }
    assert_eq!(pauses, [5, 10, 20]);
}

#[test]
fn a_removal_acts_once_until_it_is_told_again() {
    let mut bench = Bench::new();
    let (id, op) = bench.write_of(&[("s1", "a", "x")], "x");
    assert_eq!(op, letters("a"));
    let read = bench.succeeded(id);
    let actions = bench.observed(&read[1..], Ok(model("a")));
    assert_eq!(told(&actions), [("s1", 1, Outcome::Done(1))]);

    bench.request("s2", 1, "x", "");
    let actions = bench.woken();
    let (id, op) = bench.permitted(&actions);
    assert_eq!(op, letters("ax"));
    let read = bench.succeeded(id);
    bench.observed(&read[1..], Ok(model("ax")));
    bench.request("s2", 2, "", "");
    let actions = bench.woken();
    assert_eq!(actions.len(), 1, "the letter is not s1's to remove any more: {actions:?}");
    assert_eq!(told(&actions), [("s2", 2, Outcome::Done(0))]);

    bench.now += Duration::from_secs(61);
    let read = bench.step(Event::EnvChanged(EnvChange::Replan));
    bench.observed(&read, Ok(model("x")));
    let actions = bench.woken();
    let (id, op) = bench.permitted(&actions);
    assert_eq!(op, letters("ax"), "what s1 wants present is repaired");
    let read = bench.succeeded(id);
    bench.observed(&read[1..], Ok(model("ax")));

    bench.request("s1", 2, "a", "x");
    let actions = bench.woken();
    assert_eq!(bench.permitted(&actions).1, letters("a"));
}

#[test]
fn a_removal_that_was_done_is_no_reason_to_spare_a_want_that_azure_refuses() {
    let mut bench = Bench::new();
    let (id, _) = bench.write_of(&[("s1", "a", "x")], "x");
    let read = bench.succeeded(id);
    bench.observed(&read[1..], Ok(model("a")));
    bench.now += Duration::from_secs(61);
    let read = bench.step(Event::EnvChanged(EnvChange::Replan));
    bench.observed(&read, Ok(model("")));
    let actions = bench.woken();
    let (id, op) = bench.permitted(&actions);
    assert_eq!(op, letters("a"));
    let actions = bench.failed(id, Fault::Invalid);
    assert_eq!(told(&actions), [("s1", 1, Outcome::Refused(Refusal::Azure(Fault::Invalid)))]);
}

#[test]
fn a_planner_s_refusal_does_not_stop_the_others() {
    let mut bench = Bench::new();
    let (id, op) = bench.write_of(&[("s1", "?", ""), ("s2", "b", "")], "");
    assert_eq!(op, letters("b"));
    let read = bench.succeeded(id);
    let actions = bench.observed(&read[1..], Ok(model("b")));
    assert_eq!(told(&actions), [("s2", 1, Outcome::Done(1))]);
}

#[test]
fn a_resync_reads_an_unchanged_object_once_and_writes_nothing() {
    let mut bench = Bench::new();
    bench.shared.resync = Some(Duration::from_secs(600));
    let read = bench.request("s1", 1, "a", "");
    bench.observed(&read, Ok(model("a")));
    let read = bench.woken();
    assert_eq!(bench.now, Duration::from_secs(600));
    assert!(bench.observed(&read, Ok(model("a"))).is_empty());
    assert_eq!(bench.state.wake_at(), Some(Duration::from_secs(1200)));
}

#[test]
fn what_azure_refused_is_tried_again_at_a_resync() {
    let mut bench = Bench::new();
    bench.shared.resync = Some(Duration::from_secs(600));
    let (id, _) = bench.write_of(&[("s1", "a", "")], "");
    let actions = bench.failed(id, Fault::Invalid);
    let refused = Outcome::Refused(Refusal::Azure(Fault::Invalid));
    assert!(told(&actions).contains(&("s1", 1, refused)));
    // Refused by something else, such as a part of another object that was missing.
    let actions = bench.observed(&actions[actions.len() - 1..], Ok(model("")));
    assert!(actions.is_empty(), "{actions:?}");
    let read = bench.woken();
    assert!(bench.now >= Duration::from_secs(600));
    let actions = bench.observed(&read, Ok(model("")));
    assert_eq!(bench.permitted(&actions).1, letters("a"));
}

#[test]
fn a_suspected_object_is_read_even_if_nothing_is_wanted_of_it() {
    let mut bench = Bench::new();
    assert!(bench.step(Event::Tainted(Taint::Changed)).is_empty(), "nothing needs it now");
    let read = bench.step(Event::Tainted(Taint::Suspect));
    assert!(!bench.state.is_idle());
    assert!(bench.observed(&read, Ok(model("b"))).is_empty());
    let read = bench.woken();
    assert_eq!(bench.now, LAG, "the first read may lag behind what is wrong");
    assert!(bench.observed(&read, Ok(model("b"))).is_empty());
    assert!(bench.state.is_idle());
}

#[test]
fn what_azure_refuses_makes_its_references_suspect_and_is_tried_again_when_it_is_told_again() {
    let mut bench = Bench::new();
    let (id, _) = bench.write_of(&[("s1", "r", "")], "");
    let actions = bench.failed(id, Fault::Invalid);
    let suspects = actions.iter().filter(|one| matches!(one, Action::Taint(_, Taint::Suspect))).collect::<Vec<_>>();
    assert_eq!(suspects, [&Action::Taint(vec!["referred"], Taint::Suspect)]);
    let read = &actions[actions.len() - 1..];
    assert!(bench.observed(read, Ok(model(""))).is_empty(), "it is not tried again by itself");
    assert_eq!(bench.state.wake_at(), None);
    bench.request("s1", 2, "r", "");
    let actions = bench.woken();
    assert_eq!(bench.permitted(&actions).1, letters("r"));
}

#[test]
fn what_was_repaired_is_told_as_done_again() {
    let mut bench = Bench::new();
    let read = bench.request("s1", 1, "a", "");
    assert_eq!(told(&bench.observed(&read, Ok(model("a")))), [("s1", 1, Outcome::Done(1))]);
    let read = bench.step(Event::Tainted(Taint::Suspect));
    let actions = bench.observed(&read, Ok(model("")));
    assert_eq!(told(&actions), [], "a difference is being repaired");
    let (id, _) = bench.permitted(&actions);
    let actions = bench.succeeded(id);
    let actions = bench.observed(&actions[1..], Ok(model("a")));
    assert_eq!(told(&actions), [("s1", 1, Outcome::Done(1))], "what rests on it may have been refused");
}

#[test]
fn presence_that_a_late_write_may_take_away_is_done_when_a_read_proves_it() {
    let mut bench = Bench::new();
    bench.shared.trusted_from = LATE;
    let read = bench.request("s1", 1, "t", "");
    bench.request("s2", 1, "a", "");
    let actions = bench.observed(&read, Ok(model("at")));
    let waits = ("s1", 1, Outcome::Waiting(Waiting::FreshReads));
    assert_eq!(told(&actions), [waits, ("s2", 1, Outcome::Done(1))], "nothing rests on a");
    let read = bench.woken();
    assert_eq!(bench.now, LATE);
    let actions = bench.observed(&read, Ok(model("t")));
    assert!(told(&actions).contains(&("s1", 1, Outcome::Done(1))));
    assert_eq!(bench.permitted(&actions).1, letters("at"), "what a late write has taken away is repaired");
}

#[test]
fn presence_that_this_replica_has_written_is_done_at_once() {
    let mut bench = Bench::new();
    bench.shared.trusted_from = LATE;
    let (id, _) = bench.write_of(&[("s1", "t", "")], "");
    let actions = bench.succeeded(id);
    let actions = bench.observed(&actions[1..], Ok(model("t")));
    assert_eq!(told(&actions), [("s1", 1, Outcome::Done(1))]);
    assert!(bench.now < LATE);
}

#[test]
fn a_withdrawn_requester_is_forgotten_and_its_parts_stay() {
    let mut bench = Bench::new();
    let read = bench.request("s1", 1, "a", "");
    bench.step(Event::Withdrawn("s1"));
    assert!(bench.observed(&read, Ok(model("b"))).is_empty());
    assert!(bench.state.is_idle());
    assert_eq!(bench.state.wake_at(), None);
}
