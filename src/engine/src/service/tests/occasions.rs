//! At which occasions the owner of a Service is told what, beside those of Kubernetes' service controller.

use super::*;

/// What is answered to everything that is told.
enum Answer {
    Done,
    Forbidden,
    Nothing,
}

impl Bench {
    /// Answers all that is told, and all patches. Returns the reports in order.
    fn reports(&mut self, event: Event<Web>, answer: &Answer) -> Vec<Reason<&'static str>> {
        let mut reports = Vec::new();
        let mut due = std::collections::VecDeque::from(self.whole_step(event));
        while let Some(action) = due.pop_front() {
            let event = match (action, answer) {
                (Action::Report(reason), _) => {
                    reports.push(reason);
                    continue;
                }
                (Action::Tell { key, generation, .. }, Answer::Done) => {
                    Event::Told { key, generation, outcome: Outcome::Done(7) }
                }
                (Action::Tell { key, generation, .. }, Answer::Forbidden) => {
                    let outcome = Outcome::Waiting(Waiting::Retry(Fault::Forbidden));
                    Event::Told { key, generation, outcome }
                }
                (Action::Patch { id, .. }, _) => {
                    self.version += 1;
                    Event::Patched { id, result: Ok(self.version) }
                }
                (Action::Tell { .. }, Answer::Nothing) | (Action::Withdraw(_) | Action::Drained, _) => continue,
            };
            due.extend(self.whole_step(event));
        }
        reports
    }
}

#[test]
fn each_change_of_a_service_begins_and_ends_with_a_report() {
    use Reason::*;
    let mistakes = vec!["a mistake".to_owned()];
    let present = |spec| Desired::Present(spec);
    // What is shown (desired state, finalizer, status), what is answered, and the reports.
    let occasions = [
        ("new", (present(1), false, None), Answer::Done, vec![Ensuring, Ensured]),
        ("the same again", (present(1), true, Some(7)), Answer::Done, vec![]),
        ("changed", (present(2), true, Some(7)), Answer::Done, vec![Ensuring, Ensured]),
        (
            "changed to what is wrong",
            (Desired::Invalid(mistakes.clone()), true, Some(7)),
            Answer::Done,
            vec![Ensuring, Invalid(mistakes)],
        ),
        ("corrected to what it was", (present(2), true, Some(7)), Answer::Done, vec![Ensuring, Ensured]),
        (
            "changed to what Azure refuses",
            (present(3), true, Some(7)),
            Answer::Forbidden,
            vec![Ensuring, Retry(IP, Fault::Forbidden)],
        ),
        ("changed to what Azure serves", (present(2), true, Some(7)), Answer::Done, vec![Ensuring, Ensured]),
        ("deleted", (Desired::Gone, true, Some(7)), Answer::Done, vec![Deleting, Deleted]),
        ("made a load balancer again", (present(1), false, None), Answer::Done, vec![Ensuring, Ensured]),
    ];
    let mut bench = Bench::new(Order::Parallel);
    for (occasion, (desired, finalizer, status), answer, expected) in occasions {
        let event = bench.snapshot(desired, finalizer, status);
        assert_eq!(bench.reports(event, &answer), expected, "{occasion}");
    }
}

#[test]
fn a_service_that_is_there_already_costs_no_patch_and_one_report() {
    let mut bench = Bench::new(Order::Parallel);
    let snapshot = bench.snapshot(Desired::Present(1), true, Some(7));
    let actions = bench.step(snapshot);
    let (_, other) = bench.answer_all(actions);
    assert_eq!(other, [Action::Report(Reason::Unchanged)]);
    let again = bench.snapshot(Desired::Present(1), true, Some(7));
    assert!(bench.step(again).is_empty());
}

#[test]
fn what_a_new_process_finds_served_is_no_news_until_it_changes() {
    use Reason::*;
    let mut bench = Bench::new(Order::Parallel);
    let there = bench.snapshot(Desired::Present(1), true, Some(7));
    assert_eq!(bench.reports(there, &Answer::Done), [Unchanged]);
    let changed = bench.snapshot(Desired::Present(2), true, Some(7));
    assert_eq!(bench.reports(changed, &Answer::Done), [Ensuring, Ensured]);
    // One that the process before had not brought to its end is news.
    let mut killed = Bench::new(Order::Parallel);
    let begun = killed.snapshot(Desired::Present(1), true, None);
    assert_eq!(killed.reports(begun, &Answer::Done), [Ensuring, Ensured]);
    // So is one that is refused at first.
    let mut refused = Bench::new(Order::Parallel);
    let there = refused.snapshot(Desired::Present(1), true, Some(7));
    assert_eq!(refused.reports(there, &Answer::Forbidden), [Retry(IP, Fault::Forbidden)]);
    let mistakes = vec!["a mistake".to_owned()];
    let mut wrong = Bench::new(Order::Parallel);
    let there = wrong.snapshot(Desired::Invalid(mistakes.clone()), true, Some(7));
    assert_eq!(wrong.reports(there, &Answer::Done), [Invalid(mistakes)]);
    assert_eq!(wrong.reports(Event::Woke, &Answer::Done), []);
    // A deletion that goes on under a new process is told again, once.
    let mut deleted = Bench::new(Order::Parallel);
    let gone = deleted.snapshot(Desired::Gone, true, Some(7));
    assert_eq!(deleted.reports(gone, &Answer::Nothing), [Deleting]);
    assert_eq!(deleted.reports(Event::Woke, &Answer::Nothing), []);
    // Without our finalizer there is nothing to remove.
    let mut others = Bench::new(Order::Parallel);
    let gone = others.snapshot(Desired::Gone, false, None);
    assert_eq!(others.reports(gone, &Answer::Done), []);
}

#[test]
fn a_replica_that_does_not_lead_reports_no_beginning_and_no_end() {
    let mut standby = Bench::new(Order::Parallel);
    standby.shared.lease = Lease { until: None, least: Duration::from_secs(5) };
    let created = standby.snapshot(Desired::Present(1), true, Some(7));
    assert_eq!(standby.reports(created, &Answer::Done), [Reason::Unchanged]);
    let changed = standby.snapshot(Desired::Present(2), true, Some(7));
    assert_eq!(standby.reports(changed, &Answer::Done), [Reason::Unchanged]);
    // What the other replica has done is no news of this one when it leads.
    standby.shared.lease = Lease { until: Some(Duration::from_secs(10_000)), least: Duration::from_secs(5) };
    assert_eq!(standby.reports(Event::Woke, &Answer::Done), []);
}

#[test]
fn the_end_of_a_service_is_reported_once_whichever_word_of_it_comes_first() {
    // Before the patch that lets it go is answered, the API server may show that it is gone.
    for answer in [Ok(9), Err(PatchFault::Gone)] {
        for shown_first in [true, false] {
            let mut bench = Bench::new(Order::Parallel);
            let gone = bench.snapshot(Desired::Gone, true, None);
            let actions = bench.step(gone);
            let mut due = std::collections::VecDeque::from(actions);
            let mut patch = None;
            while let Some(action) = due.pop_front() {
                match action {
                    Action::Tell { key, generation, .. } => {
                        due.extend(bench.step(Event::Told { key, generation, outcome: Outcome::Done(7) }));
                    }
                    Action::Patch { id, patch: Patch::RemoveFinalizer, .. } => patch = Some(id),
                    action => panic!("{action:?}"),
                }
            }
            let patched = Event::Patched { id: patch.unwrap(), result: answer };
            let (first, second) = if shown_first { (Event::Removed, patched) } else { (patched, Event::Removed) };
            let mut actions = bench.step(first);
            actions.extend(bench.step(second));
            let reports = actions.iter().filter(|action| **action == Action::Report(Reason::Deleted)).count();
            assert_eq!(reports, 1, "{answer:?}, shown first: {shown_first}");
        }
    }
}
