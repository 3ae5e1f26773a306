use super::{reporting::THROTTLED, *};
use crate::{Acceptance, Lease};

mod forgotten;
mod in_the_way;
mod lasting;
mod occasions;

/// A Service of a public IP, a load balancer and a security group, whose wants are their level and the spec.
#[derive(Debug, Clone, PartialEq)]
struct Web;

const IP: &str = "ip";
const LB: &str = "lb";
const OLD_LB: &str = "old-lb";
const GROUP: &str = "group";
const LINK: &str = "link";
/// A spec that takes an address of the old load balancer, and what that reports while it has the address.
const MOVED: u8 = 9;
const HOLDS: u8 = 5;
/// A spec whose backends are still to join.
const UNSERVED: u8 = 8;
/// A spec that names another place for its public IP, and that public IP.
const ELSEWHERE: u8 = 6;
const IP_ELSEWHERE: &str = "ip-elsewhere";
/// Two specs that differ in whom they admit.
const ADMITS: u8 = 3;
const DENIES: u8 = 4;
/// What an object reports that has nothing of the Service.
const NOTHING: u8 = 0;

impl Service for Web {
    type Identity = ();
    type Spec = u8;
    type Key = &'static str;
    type Want = (Level, Option<u8>);
    type Report = u8;
    type Status = u8;
    type Inputs = Order;
    /// The specs that the security group was told.
    type Admission = BTreeSet<u8>;
    type Place = &'static str;

    fn place(key: &&'static str) -> Option<&'static str> {
        (*key == IP_ELSEWHERE).then_some("elsewhere")
    }

    fn has_part((level, _): &Self::Want, report: &u8) -> Option<bool> {
        match *report {
            NOTHING => (*level == Level::Clean).then_some(false),
            _ => Some(true),
        }
    }

    fn is_absent(report: &u8) -> bool {
        *report == NOTHING
    }

    fn role(key: &&'static str) -> Role {
        match *key {
            IP | IP_ELSEWHERE => Role::PublicIp,
            GROUP => Role::SecurityGroup,
            LINK => Role::PrivateLink,
            _ => Role::LoadBalancer,
        }
    }

    fn keys((): &(), spec: &u8, _: &Order) -> BTreeSet<&'static str> {
        BTreeSet::from([if *spec == ELSEWHERE { IP_ELSEWHERE } else { IP }, LB, GROUP])
    }

    fn order((): &(), _: &u8, _: &Seen<'_, Self>, order: &Order) -> Order {
        *order
    }

    fn want((): &(), spec: Option<&u8>, key: &&'static str, level: Level, _: &Seen<'_, Self>, _: &Order) -> Self::Want {
        let spec = spec.copied().filter(|_| ![OLD_LB, LINK].contains(key) && level != Level::Look);
        // Who is admitted is the security group's alone.
        let spec = spec.map(|spec| if spec == DENIES && *key != GROUP { ADMITS } else { spec });
        // A public IP is not given up, and a new load balancer has nothing to give up.
        let level = if matches!(*key, IP | LB) && spec.is_some() { level.min(Level::Make) } else { level };
        (level, spec)
    }

    fn note_admission(want: &Self::Want, _: &Order, noted: &mut BTreeSet<u8>) {
        noted.extend(want.1);
    }

    fn gives_way((): &(), spec: &u8, key: &&'static str, seen: &Seen<'_, Self>, _: &Order) -> bool {
        *key == OLD_LB && *spec == MOVED && seen.reports.get(OLD_LB).is_some_and(|report| **report == HOLDS)
    }

    fn awaits_members(spec: &u8, _: &Order) -> Option<(&'static str, String)> {
        (*spec == UNSERVED).then(|| (LB, "waits for a member".to_owned()))
    }

    fn status((): &(), _: &u8, seen: &Seen<'_, Self>, _: &Order) -> Option<u8> {
        seen.reports.get(IP).map(|report| **report)
    }
}

struct Bench {
    state: State<Web>,
    shared: Shared,
    order: Order,
    now: Duration,
    version: u64,
}

impl Bench {
    fn new(order: Order) -> Self {
        let lease = Lease { until: Some(Duration::from_secs(10_000)), least: Duration::from_secs(5) };
        let shared =
            Shared { synced: true, lease, trusted_from: Duration::ZERO, acceptance: Acceptance::Given, resync: None };
        Self { state: State::default(), shared, order, now: Duration::ZERO, version: 0 }
    }

    /// What a step does but for the reports that work begins.
    fn step(&mut self, event: Event<Web>) -> Vec<Action<Web>> {
        let is_beginning = |action: &Action<Web>| matches!(action, Action::Report(Reason::Ensuring | Reason::Deleting));
        self.whole_step(event).into_iter().filter(|action| !is_beginning(action)).collect()
    }

    fn whole_step(&mut self, event: Event<Web>) -> Vec<Action<Web>> {
        let env = Env { shared: self.shared, id: &(), inputs: &self.order };
        step(&mut self.state, &env, self.now, event)
    }

    fn snapshot(&mut self, desired: Desired<u8>, finalizer: bool, status: Option<u8>) -> Event<Web> {
        self.version += 1;
        let found = BTreeSet::from([OLD_LB, GROUP]);
        let (version, ownerless, named) = (self.version, BTreeSet::new(), BTreeSet::new());
        Event::Changed(Snapshot { version, desired, finalizer, status, found, ownerless, named, unread: vec![] })
    }

    /// The same with other places that the Service names.
    fn naming(&mut self, named: &[&'static str], desired: Desired<u8>) -> Snapshot<Web> {
        let Event::Changed(snapshot) = self.snapshot(desired, true, None) else { unreachable!() };
        Snapshot { named: named.iter().copied().collect(), ..snapshot }
    }

    /// Answers every tell as done, but those of the public IP elsewhere by this. Returns what else was done.
    fn answer_elsewhere(&mut self, actions: Vec<Action<Web>>, elsewhere: &Outcome<u8>) -> Vec<Action<Web>> {
        let mut other = Vec::new();
        let mut due = std::collections::VecDeque::from(actions);
        while let Some(action) = due.pop_front() {
            match action {
                Action::Tell { key, generation, .. } => {
                    let outcome = if key == IP_ELSEWHERE { elsewhere.clone() } else { Outcome::Done(7) };
                    due.extend(self.step(Event::Told { key, generation, outcome }));
                }
                Action::Patch { id, .. } => {
                    other.push(action);
                    self.version += 1;
                    let result = Ok(self.version);
                    due.extend(self.step(Event::Patched { id, result }));
                }
                action => other.push(action),
            }
        }
        other
    }

    /// Answers every tell of the actions, and of what follows, as done, until nothing is told any more. Returns what was
    /// told, in order, and what else was done.
    fn answer_all(&mut self, actions: Vec<Action<Web>>) -> (Vec<(&'static str, Level)>, Vec<Action<Web>>) {
        let (mut told, mut other) = (Vec::new(), Vec::new());
        let mut due = std::collections::VecDeque::from(actions);
        while let Some(action) = due.pop_front() {
            match action {
                Action::Tell { key, generation, want, .. } => {
                    told.push((key, want.0));
                    due.extend(self.step(Event::Told { key, generation, outcome: Outcome::Done(7) }));
                }
                Action::Patch { id, .. } => {
                    other.push(action);
                    self.version += 1;
                    let result = Ok(self.version);
                    due.extend(self.step(Event::Patched { id, result }));
                }
                action => other.push(action),
            }
        }
        (told, other)
    }
}

fn patches(actions: &[Action<Web>]) -> Vec<Patch<u8>> {
    let patch = |action: &Action<Web>| match action {
        Action::Patch { patch, .. } => Some(patch.clone()),
        _ => None,
    };
    actions.iter().filter_map(patch).collect()
}

#[test]
fn a_service_is_made_in_order_and_its_status_comes_last() {
    use Level::*;
    let mut bench = Bench::new(Order::SecurityFirst);
    let created = bench.snapshot(Desired::Present(1), false, None);
    let actions = bench.step(created);
    assert!(matches!(&actions[..], [Action::Patch { patch: Patch::AddFinalizer, .. }]));
    let (told, other) = bench.answer_all(actions);
    assert_eq!(
        told,
        [
            (IP, Make),
            (LB, Look),
            (OLD_LB, Look),
            (GROUP, Make),
            (LB, Make),
            (OLD_LB, Quiet),
            (GROUP, Clean),
            (OLD_LB, Clean)
        ]
    );
    assert_eq!(patches(&other), [Patch::AddFinalizer, Patch::SetStatus(7)]);
    assert_eq!(other.last(), Some(&Action::Report(Reason::Ensured)));
}

#[test]
fn load_balancer_and_security_group_are_made_in_the_order_that_the_spec_needs() {
    let of = |order| {
        let mut bench = Bench::new(order);
        let snapshot = bench.snapshot(Desired::Present(1), true, Some(7));
        let actions = bench.step(snapshot);
        let (told, _) = bench.answer_all(actions);
        told.into_iter().filter(|(key, level)| *level > Look && matches!(*key, LB | GROUP)).collect::<Vec<_>>()
    };
    use Level::*;
    assert_eq!(of(Order::LoadBalancerFirst), [(LB, Make), (GROUP, Make), (GROUP, Clean)]);
    assert_eq!(of(Order::SecurityFirst), [(GROUP, Make), (LB, Make), (GROUP, Clean)]);
    assert_eq!(of(Order::FrontendFirst), [(LB, Frontend), (GROUP, Make), (LB, Make), (GROUP, Clean)]);
    assert_eq!(of(Order::SecurityAround), [(GROUP, Frontend), (LB, Make), (GROUP, Make), (GROUP, Clean)]);
}

#[test]
fn a_service_that_moves_with_its_address_leaves_one_load_balancer_before_it_joins_another() {
    use Level::*;
    for order in [Order::Parallel, Order::SecurityFirst, Order::SecurityAround, Order::FrontendFirst] {
        let mut bench = Bench::new(order);
        let snapshot = bench.snapshot(Desired::Present(MOVED), true, Some(7));
        let mut due = std::collections::VecDeque::from(bench.step(snapshot));
        let mut told = Vec::new();
        while let Some(action) = due.pop_front() {
            let Action::Tell { key, generation, want, .. } = action else { continue };
            told.push((key, want.0));
            let report = if key == OLD_LB && want.0 < Clean { HOLDS } else { 7 };
            due.extend(bench.step(Event::Told { key, generation, outcome: Outcome::Done(report) }));
        }
        let at = |key, level| told.iter().position(|one| *one == (key, level));
        let (left, joined) = (at(OLD_LB, Clean).unwrap(), at(LB, Frontend).or(at(LB, Make)).unwrap());
        assert!(left < joined, "{order:?}: {told:?}");
        let ready = if order == Order::SecurityAround { at(GROUP, Frontend) } else { at(GROUP, Make) };
        assert!(order == Order::FrontendFirst || ready < Some(left), "{order:?}: {told:?}");
        assert_eq!(told.iter().filter(|(key, _)| *key == OLD_LB).count(), 2, "{order:?}: {told:?}");
    }
}

#[test]
fn what_azure_refused_is_told_once_more_when_what_it_rests_on_is_done_again() {
    let mut bench = Bench::new(Order::SecurityFirst);
    let snapshot = bench.snapshot(Desired::Present(1), true, None);
    let mut due = std::collections::VecDeque::from(bench.step(snapshot));
    let mut generations = BTreeMap::new();
    let refused = || Outcome::Refused(Refusal::Azure(Fault::Invalid));
    let mut refusals = 0;
    while let Some(action) = due.pop_front() {
        let Action::Tell { key, generation, want, .. } = action else { continue };
        generations.insert(key, generation);
        let is_refused = key == LB && want.0 == Level::Make;
        refusals += usize::from(is_refused);
        let outcome = if is_refused { refused() } else { Outcome::Done(7) };
        due.extend(bench.step(Event::Told { key, generation, outcome }));
    }
    assert_eq!(refusals, 1);
    let done = |key: &'static str| Event::Told { key, generation: generations[key], outcome: Outcome::Done(7) };
    assert!(bench.step(done(GROUP)).is_empty(), "a frontend does not rest on the security group");
    let again = bench.step(done(IP));
    let [Action::Tell { key: LB, generation, want: (Level::Make, Some(1)), .. }] = again[..] else {
        panic!("{again:?}")
    };
    assert!(bench.step(Event::Told { key: LB, generation, outcome: refused() }).is_empty(), "not in a loop");
    let outcome = Outcome::Waiting(Waiting::OtherOperation);
    assert!(bench.step(Event::Told { key: LB, generation, outcome }).is_empty());
    assert_eq!(bench.step(done(IP)).len(), 1, "once for each time");
}

#[test]
fn a_status_that_is_not_set_yet_waits_for_the_first_backend() {
    let mut bench = Bench::new(Order::Parallel);
    let snapshot = bench.snapshot(Desired::Present(UNSERVED), true, None);
    let actions = bench.step(snapshot);
    let (_, other) = bench.answer_all(actions);
    assert_eq!(patches(&other), []);
    let mut served = Bench::new(Order::Parallel);
    let snapshot = served.snapshot(Desired::Present(UNSERVED), true, Some(7));
    let actions = served.step(snapshot);
    let (_, other) = served.answer_all(actions);
    assert_eq!(other, [Action::Report(Reason::Unchanged)], "a status that is set stays");
}

#[test]
fn a_service_waits_for_acceptance_until_its_owner_asks_for_something_else() {
    let acceptances = |actions: &[Action<Web>]| -> BTreeSet<bool> {
        let awaits = |action: &Action<Web>| match action {
            Action::Tell { acceptance, .. } => Some(*acceptance == Acceptance::Awaited),
            _ => None,
        };
        actions.iter().filter_map(awaits).collect()
    };
    let mut bench = Bench::new(Order::Parallel);
    let there = bench.snapshot(Desired::Present(1), true, Some(7));
    assert_eq!(acceptances(&bench.step(there)), [true].into());
    let again = bench.snapshot(Desired::Present(1), true, Some(7));
    assert!(bench.step(again).is_empty());
    let changed = bench.snapshot(Desired::Present(2), true, Some(7));
    assert_eq!(acceptances(&bench.step(changed)), [false].into());
    let back = bench.snapshot(Desired::Present(1), true, Some(7));
    assert_eq!(acceptances(&bench.step(back)), [false].into(), "its owner decided that");

    let mut new = Bench::new(Order::Parallel);
    let created = new.snapshot(Desired::Present(1), false, None);
    let actions = new.step(created);
    let Action::Patch { id, .. } = actions[0] else { panic!("{actions:?}") };
    assert_eq!(acceptances(&new.step(Event::Patched { id, result: Ok(9) })), [false].into());
    let mut deleted = Bench::new(Order::Parallel);
    let gone = deleted.snapshot(Desired::Gone, true, Some(7));
    assert_eq!(acceptances(&deleted.step(gone)), [false].into());
}

#[test]
fn an_object_that_has_lost_its_state_is_told_again_what_it_was_told() {
    use Level::*;
    let mut bench = Bench::new(Order::Parallel);
    let created = bench.snapshot(Desired::Present(1), true, None);
    let made = bench.step(created);
    bench.answer_all(made);
    let lost = bench.step(Event::Lost(GROUP));
    assert_eq!(bench.answer_all(lost), (vec![(GROUP, Clean)], Vec::new()));
    assert!(bench.step(Event::Lost("another")).is_empty());

    // It is told at the stage at which it is needed, also if it never answered.
    let changed = bench.snapshot(Desired::Present(2), true, Some(7));
    let told = bench.step(changed);
    let [Action::Tell { key: IP, generation, .. }] = told[..] else { panic!("{told:?}") };
    let again = bench.step(Event::Lost(IP));
    let [Action::Tell { key: IP, generation: later, .. }] = again[..] else { panic!("{again:?}") };
    assert!(later > generation);
    let (told, _) = bench.answer_all(again);
    assert!(told.contains(&(GROUP, Clean)), "{told:?}");
}

#[test]
fn what_is_not_done_yet_costs_no_second_look_at_the_stages() {
    let mut bench = Bench::new(Order::Parallel);
    let created = bench.snapshot(Desired::Present(1), true, None);
    let told = bench.step(created);
    assert!(bench.state.waits);
    let [Action::Tell { key, generation, .. }, ..] = told[..] else { panic!("{told:?}") };
    let waiting = Outcome::Waiting(Waiting::Write);
    assert!(bench.step(Event::Told { key, generation, outcome: waiting }).is_empty());
    assert!(bench.state.waits);
    // What is done may begin the next stage.
    let (_, other) = bench.answer_all(told);
    assert_eq!(patches(&other), [Patch::SetStatus(7)]);
    assert!(!bench.state.waits);
}

#[test]
fn a_service_is_deleted_from_the_admission_to_the_address_and_then_its_finalizer() {
    use Level::*;
    let mut bench = Bench::new(Order::Parallel);
    let snapshot = bench.snapshot(Desired::Gone, true, Some(7));
    let actions = bench.step(snapshot);
    let (told, other) = bench.answer_all(actions);
    assert_eq!(told, [(GROUP, Look), (OLD_LB, Look), (OLD_LB, Quiet), (GROUP, Clean), (OLD_LB, Clean)]);
    assert_eq!(patches(&other), [Patch::ClearStatus, Patch::RemoveFinalizer]);
    assert!(other.contains(&Action::Withdraw(GROUP)) && other.contains(&Action::Report(Reason::Deleted)));
}

#[test]
fn without_a_finalizer_nothing_is_removed() {
    let mut bench = Bench::new(Order::Parallel);
    let snapshot = bench.snapshot(Desired::Gone, false, Some(7));
    assert!(bench.step(snapshot).is_empty());
}

#[test]
fn while_an_object_refuses_the_finalizer_stays_and_one_event_says_why() {
    let mut bench = Bench::new(Order::Parallel);
    let snapshot = bench.snapshot(Desired::Gone, true, None);
    let actions = bench.step(snapshot);
    let Action::Tell { key, generation, .. } = actions[0] else { panic!("{actions:?}") };
    let refused = Outcome::Waiting(Waiting::Retry(Fault::Forbidden));
    let told = || Event::Told { key, generation, outcome: refused.clone() };
    assert_eq!(bench.step(told()), [Action::Report(Reason::Retry(key, Fault::Forbidden))]);
    assert!(bench.step(told()).is_empty(), "the same reason at the same spec");
}

#[test]
fn throttling_is_reported_when_it_has_lasted() {
    let mut bench = Bench::new(Order::Parallel);
    let snapshot = bench.snapshot(Desired::Gone, true, None);
    let actions = bench.step(snapshot);
    let Action::Tell { key, generation, .. } = actions[0] else { panic!("{actions:?}") };
    let told = |seconds| {
        let fault = Fault::Throttled { retry_after: Some(Duration::from_secs(seconds)) };
        Event::Told { key, generation, outcome: Outcome::Waiting(Waiting::Retry(fault)) }
    };
    let began = bench.now;
    assert!(bench.step(told(3)).is_empty());
    assert!(bench.step(told(7)).is_empty(), "a pause that Azure asks for is no failure");
    let due = bench.state.wake_at().unwrap();
    assert_eq!(due, began + THROTTLED);
    bench.now = due;
    let throttled = Reason::Retry(key, Fault::Throttled { retry_after: None });
    assert_eq!(bench.step(Event::Woke), [Action::Report(throttled)]);
    assert!(bench.step(told(9)).is_empty(), "the same reason with another pause");
}

#[test]
fn a_mistake_is_reported_and_what_was_asked_before_stays() {
    let mut bench = Bench::new(Order::Parallel);
    let snapshot = bench.snapshot(Desired::Present(1), true, Some(7));
    let actions = bench.step(snapshot);
    bench.answer_all(actions);
    let mistakes = vec!["service.beta.kubernetes.io/azure-x: 7 is no boolean".to_owned()];
    let wrong = bench.snapshot(Desired::Invalid(mistakes.clone()), true, Some(7));
    assert_eq!(bench.step(wrong), [Action::Report(Reason::Invalid(mistakes))]);
    let right = bench.snapshot(Desired::Present(1), true, Some(7));
    assert_eq!(bench.step(right), [Action::Report(Reason::Ensured)]);
}

#[test]
fn an_outcome_of_an_older_want_is_ignored() {
    let mut bench = Bench::new(Order::Parallel);
    let snapshot = bench.snapshot(Desired::Present(1), true, None);
    let first = bench.step(snapshot);
    let changed = bench.snapshot(Desired::Present(2), true, None);
    bench.step(changed);
    let Some(Action::Tell { generation, .. }) =
        first.iter().find(|action| matches!(action, Action::Tell { key: IP, .. }))
    else {
        panic!("{first:?}")
    };
    let stale = Event::Told { key: IP, generation: *generation, outcome: Outcome::Done(7) };
    assert!(bench.step(stale).is_empty());
    assert_eq!(bench.state.level_of(&IP), Some((Level::Make, false)));
}

#[test]
fn an_informer_that_is_behind_an_own_patch_changes_nothing() {
    let mut bench = Bench::new(Order::Parallel);
    let created = bench.snapshot(Desired::Present(1), false, None);
    let Event::Changed(before) = created.clone() else { unreachable!("it is a change") };
    let actions = bench.step(created);
    let Action::Patch { id, .. } = actions[0] else { panic!("{actions:?}") };
    bench.step(Event::Patched { id, result: Ok(9) });
    let actions = bench.step(Event::Changed(before));
    assert_eq!(patches(&actions), []);
}

#[test]
fn a_patch_that_conflicts_is_repeated_after_a_pause_and_none_is_sent_without_lease() {
    let mut bench = Bench::new(Order::Parallel);
    let created = bench.snapshot(Desired::Present(1), false, None);
    let actions = bench.step(created);
    let Action::Patch { id, .. } = actions[0] else { panic!("{actions:?}") };
    assert!(bench.step(Event::Patched { id, result: Err(PatchFault::Again) }).is_empty());
    bench.now = bench.state.wake_at().expect("a pause");
    bench.shared.lease.until = None;
    assert!(bench.step(Event::Woke).is_empty());
    bench.shared.lease.until = Some(Duration::from_secs(100));
    assert_eq!(patches(&bench.step(Event::Woke)), [Patch::AddFinalizer]);
}

#[test]
fn nothing_is_told_before_the_informers_are_synced_and_a_drain_waits_for_the_patch() {
    let mut bench = Bench::new(Order::Parallel);
    bench.shared.synced = false;
    let created = bench.snapshot(Desired::Present(1), false, None);
    assert!(bench.step(created).is_empty());
    bench.shared.synced = true;
    let actions = bench.step(Event::Woke);
    let Action::Patch { id, .. } = actions[0] else { panic!("{actions:?}") };
    assert!(bench.step(Event::Drain).is_empty());
    assert_eq!(bench.step(Event::Patched { id, result: Ok(2) }), [Action::Drained]);
}

#[test]
fn a_service_that_is_gone_from_the_api_server_is_forgotten() {
    let mut bench = Bench::new(Order::Parallel);
    let snapshot = bench.snapshot(Desired::Present(1), true, None);
    let told = bench.step(snapshot).len();
    let actions = bench.step(Event::Removed);
    assert_eq!(actions.len(), told);
    assert!(actions.iter().all(|action| matches!(action, Action::Withdraw(_))));
    assert!(bench.state.is_idle());
}

#[test]
fn what_the_security_group_was_told_is_known_until_it_has_given_up_the_rest() {
    let mut bench = Bench::new(Order::SecurityFirst);
    // The security group has not answered the first spec when the second comes.
    let mut open = Vec::new();
    for (spec, known) in [(1, [1].into()), (2, [1, 2].into())] {
        let snapshot = bench.snapshot(Desired::Present(spec), true, None);
        let mut due = std::collections::VecDeque::from(bench.step(snapshot));
        while let Some(action) = due.pop_front() {
            match action {
                Action::Tell { key: GROUP, .. } => open.push(action),
                Action::Tell { key, generation, .. } => {
                    due.extend(bench.step(Event::Told { key, generation, outcome: Outcome::Done(7) }));
                }
                _ => {}
            }
        }
        assert_eq!(bench.state.told, known);
    }
    let (told, other) = bench.answer_all(open);
    assert!(told.contains(&(GROUP, Level::Clean)), "{told:?}");
    assert_eq!(other.last(), Some(&Action::Report(Reason::Ensured)));
    assert_eq!(bench.state.told, BTreeSet::from([2]));
}

#[test]
fn a_service_is_gone_only_when_every_place_that_it_names_has_been_read() {
    let mut bench = Bench::new(Order::Parallel);
    let Event::Changed(gone) = bench.snapshot(Desired::Gone, true, None) else { unreachable!() };
    let places = vec!["the public IPs of resource group closed cannot be read".to_owned()];
    let unread = Snapshot { unread: places.clone(), ..gone.clone() };
    let actions = bench.step(Event::Changed(unread));
    let (told, other) = bench.answer_all(actions);
    assert!(told.contains(&(OLD_LB, Level::Clean)), "what is known goes: {told:?}");
    assert_eq!(other, []);
    assert_eq!(bench.state.wake_at(), Some(LONG_WAIT));
    bench.now = LONG_WAIT;
    assert_eq!(bench.step(Event::Woke), [Action::Report(Reason::Unread(places))]);
    let actions = bench.step(Event::Changed(gone));
    assert_eq!(patches(&actions), [Patch::RemoveFinalizer]);
}

/// A Service that named another place for its public IP, corrects that and is deleted. Returns what follows the deletion,
/// where the public IP answers the first want by `before`, and from then on by `after`.
fn deleted_after_elsewhere(
    bench: &mut Bench,
    before: &Outcome<u8>,
    after: &Outcome<u8>,
    named: &[&'static str],
) -> Vec<Action<Web>> {
    let there = bench.naming(&["elsewhere"], Desired::Present(ELSEWHERE));
    let actions = bench.step(Event::Changed(there));
    bench.answer_elsewhere(actions, before);
    let corrected = bench.naming(named, Desired::Present(1));
    let actions = bench.step(Event::Changed(corrected));
    let mut served = bench.answer_elsewhere(actions, after);
    assert!(patches(&served).contains(&Patch::SetStatus(7)), "{served:?}");
    served.retain(|action| matches!(action, Action::Withdraw(_)));
    let mut gone = bench.naming(named, Desired::Gone);
    gone.status = Some(7);
    let actions = bench.step(Event::Changed(gone));
    served.extend(bench.answer_elsewhere(actions, after));
    served
}

fn fails(fault: Fault) -> Outcome<u8> {
    Outcome::Waiting(Waiting::Retry(fault))
}

#[test]
fn an_object_that_never_was_and_whose_place_does_not_exist_holds_up_no_deletion() {
    let mut bench = Bench::new(Order::Parallel);
    let missing = fails(Fault::ScopeNotFound);
    let deleted = deleted_after_elsewhere(&mut bench, &missing, &missing, &[]);
    assert_eq!(patches(&deleted), [Patch::ClearStatus, Patch::RemoveFinalizer]);
    assert!(deleted.contains(&Action::Withdraw(IP_ELSEWHERE)));
    assert!(deleted.contains(&Action::Report(Reason::Deleted)), "{deleted:?}");
}

#[test]
fn what_an_earlier_spec_wants_in_a_place_that_does_not_exist_is_withdrawn() {
    let mut bench = Bench::new(Order::Parallel);
    let there = bench.naming(&["elsewhere"], Desired::Present(ELSEWHERE));
    let actions = bench.step(Event::Changed(there));
    bench.answer_elsewhere(actions, &fails(Fault::ScopeNotFound));
    let corrected = bench.naming(&[], Desired::Present(1));
    let actions = bench.step(Event::Changed(corrected));
    let looks =
        |action: &Action<Web>| matches!(action, Action::Tell { key: IP_ELSEWHERE, want: (Level::Look, None), .. });
    assert!(actions.iter().any(looks), "{actions:?}");
    let other = bench.answer_elsewhere(actions, &fails(Fault::ScopeNotFound));
    assert_eq!(other.last(), Some(&Action::Report(Reason::Ensured)), "what is left elsewhere is trimmed");
    assert!(other.contains(&Action::Withdraw(IP_ELSEWHERE)), "nothing is read there any more");
    assert_eq!(bench.state.level_of(&IP_ELSEWHERE), None);
    assert_eq!(bench.step(Event::Woke), [], "its owner is not told of it again");
}

#[test]
fn a_place_that_cannot_be_read_holds_up_only_services_that_name_it_now() {
    for fault in [Fault::Forbidden, Fault::Denied] {
        let closed = fails(fault);
        let mut bench = Bench::new(Order::Parallel);
        let deleted = deleted_after_elsewhere(&mut bench, &closed, &closed, &[]);
        assert_eq!(patches(&deleted), [Patch::ClearStatus, Patch::RemoveFinalizer]);

        let mut bench = Bench::new(Order::Parallel);
        let deleted = deleted_after_elsewhere(&mut bench, &closed, &closed, &["elsewhere"]);
        assert_eq!(patches(&deleted), []);
        let mut corrected = bench.naming(&[], Desired::Gone);
        corrected.status = Some(7);
        let actions = bench.step(Event::Changed(corrected));
        let deleted = bench.answer_elsewhere(actions, &closed);
        assert_eq!(patches(&deleted), [Patch::ClearStatus, Patch::RemoveFinalizer]);
    }
}

#[test]
fn an_object_that_has_shown_a_part_of_the_service_is_waited_for_whatever_it_answers() {
    for before in [Outcome::Done(7), Outcome::Waiting(Waiting::Write)] {
        for fault in [Fault::ScopeNotFound, Fault::Forbidden] {
            let mut bench = Bench::new(Order::Parallel);
            let deleted = deleted_after_elsewhere(&mut bench, &before, &fails(fault), &[]);
            assert_eq!(patches(&deleted), [], "{before:?}");
        }
    }
    // What has shown it, and later that it has none, is no part any more.
    let mut bench = Bench::new(Order::Parallel);
    let there = bench.naming(&[], Desired::Present(ELSEWHERE));
    let actions = bench.step(Event::Changed(there));
    bench.answer_elsewhere(actions, &Outcome::Done(7));
    let mut gone = bench.naming(&[], Desired::Present(1));
    gone.status = Some(7);
    let actions = bench.step(Event::Changed(gone));
    bench.answer_elsewhere(actions, &Outcome::Done(NOTHING));
    let mut gone = bench.naming(&[], Desired::Gone);
    gone.status = Some(7);
    let actions = bench.step(Event::Changed(gone));
    let deleted = bench.answer_elsewhere(actions, &fails(Fault::Forbidden));
    assert_eq!(patches(&deleted), [Patch::ClearStatus, Patch::RemoveFinalizer]);
}

#[test]
fn what_no_service_has_any_more_is_waited_for_only_while_it_can_be_read() {
    let deleted = |named: &[&'static str], outcome: Outcome<u8>| {
        let mut bench = Bench::new(Order::Parallel);
        let gone = bench.naming(named, Desired::Gone);
        let gone = Snapshot { ownerless: [IP_ELSEWHERE].into(), ..gone };
        let actions = bench.step(Event::Changed(gone));
        patches(&bench.answer_elsewhere(actions, &outcome))
    };
    assert_eq!(deleted(&[], fails(Fault::Forbidden)), [Patch::RemoveFinalizer]);
    assert_eq!(deleted(&["elsewhere"], fails(Fault::ScopeNotFound)), [Patch::RemoveFinalizer]);
    assert_eq!(deleted(&["elsewhere"], fails(Fault::Forbidden)), []);
    assert_eq!(deleted(&[], fails(Fault::Unavailable)), []);
    assert_eq!(deleted(&[], Outcome::Waiting(Waiting::Write)), []);
}

#[test]
fn what_is_waited_for_longer_than_a_minute_is_reported_with_its_object() {
    for (waiting, longest) in [
        (Waiting::Plan("waits until the NICs have left".to_owned()), LONG_WAIT),
        (Waiting::OtherOperation, LONG_WAIT),
        (Waiting::FreshReads, LONG_WAIT),
        (Waiting::Write, Duration::from_secs(300)),
    ] {
        let mut bench = Bench::new(Order::Parallel);
        let gone = bench.snapshot(Desired::Gone, true, None);
        bench.now = Duration::from_secs(5);
        let actions = bench.step(gone);
        for action in actions {
            let Action::Tell { key, generation, .. } = action else { continue };
            let outcome = if key == OLD_LB { Outcome::Waiting(waiting.clone()) } else { Outcome::Done(7) };
            assert_eq!(bench.step(Event::Told { key, generation, outcome }), []);
        }
        let due = Duration::from_secs(5) + longest;
        assert_eq!(bench.state.wake_at(), Some(due), "{waiting:?}");
        bench.now = due;
        let reason = Reason::Waits(OLD_LB, waiting);
        assert_eq!(bench.step(Event::Woke), [Action::Report(reason)]);
        assert_eq!(bench.step(Event::Woke), [], "once");
    }
}

#[test]
fn a_first_backend_that_does_not_come_is_reported() {
    let mut bench = Bench::new(Order::Parallel);
    let snapshot = bench.snapshot(Desired::Present(UNSERVED), true, None);
    let actions = bench.step(snapshot);
    assert_eq!(bench.answer_all(actions).1, []);
    bench.now = LONG_WAIT;
    let waiting = Waiting::Plan("waits for a member".to_owned());
    assert_eq!(bench.step(Event::Woke), [Action::Report(Reason::Waits(LB, waiting))]);
}
