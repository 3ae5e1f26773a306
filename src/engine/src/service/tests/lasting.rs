//! How long the work took that a report ends.

use super::*;

#[test]
fn work_lasts_from_the_change_of_the_spec_or_from_the_report_before() {
    let mut bench = Bench::new(Order::Parallel);
    bench.now = Duration::from_secs(100);
    let snapshot = bench.snapshot(Desired::Present(1), true, Some(7));
    let actions = bench.step(snapshot);
    bench.now = Duration::from_secs(103);
    let (_, other) = bench.answer_all(actions);
    assert!(other.contains(&Action::Report(Reason::Unchanged)), "{other:?}");
    assert_eq!(bench.state.lasted(), Duration::from_secs(3));
    // A mistake is reported at once, and what corrects it is other work.
    bench.now = Duration::from_secs(200);
    let wrong = bench.snapshot(Desired::Invalid(vec!["x".to_owned()]), true, Some(7));
    assert!(matches!(bench.step(wrong)[..], [Action::Report(Reason::Invalid(_))]));
    assert_eq!(bench.state.lasted(), Duration::ZERO);
    // The same spec fails after 5 s.
    let snapshot = bench.snapshot(Desired::Gone, true, Some(7));
    bench.now = Duration::from_secs(300);
    let actions = bench.step(snapshot);
    let told = actions.iter().find_map(|action| match action {
        Action::Tell { key, generation, .. } => Some((*key, *generation)),
        _ => None,
    });
    let (key, generation) = told.expect("an object is to go");
    bench.now = Duration::from_secs(305);
    let refused = Outcome::Waiting(Waiting::Retry(Fault::Forbidden));
    let reported = bench.step(Event::Told { key, generation, outcome: refused });
    assert!(matches!(reported[..], [Action::Report(Reason::Retry(..))]), "{reported:?}");
    assert_eq!(bench.state.lasted(), Duration::from_secs(5));
}

#[test]
fn a_service_that_is_gone_before_its_last_patch_is_answered_is_reported_as_deleted() {
    for answer in [Event::Removed, Event::Patched { id: Ids::default().next_id(), result: Err(PatchFault::Gone) }] {
        let mut bench = Bench::new(Order::Parallel);
        let snapshot = bench.snapshot(Desired::Gone, true, None);
        let mut due = std::collections::VecDeque::from(bench.step(snapshot));
        let patch = loop {
            match due.pop_front().expect("the finalizer is removed") {
                Action::Tell { key, generation, .. } => {
                    due.extend(bench.step(Event::Told { key, generation, outcome: Outcome::Done(7) }));
                }
                Action::Patch { id, patch: Patch::RemoveFinalizer, .. } => break id,
                _ => {}
            }
        };
        let event = match answer {
            Event::Patched { result, .. } => Event::Patched { id: patch, result },
            event => event,
        };
        let actions = bench.step(event);
        assert!(actions.contains(&Action::Report(Reason::Deleted)), "{actions:?}");
        // What comes later is no news.
        let late = bench.step(Event::Patched { id: patch, result: Ok(9) });
        assert!(late.is_empty(), "{late:?}");
    }
}
