//! What an earlier spec named and that holds no part of the Service.

use super::*;

/// A spec that named the public IP elsewhere, which reported this, names it no more. Returns what follows.
fn corrected_after(before: &Outcome<u8>) -> (Bench, Vec<Action<Web>>) {
    let mut bench = Bench::new(Order::Parallel);
    let there = bench.naming(&["elsewhere"], Desired::Present(ELSEWHERE));
    let actions = bench.step(Event::Changed(there));
    bench.answer_elsewhere(actions, before);
    let corrected = bench.naming(&[], Desired::Present(1));
    let actions = bench.step(Event::Changed(corrected));
    (bench, actions)
}

#[test]
fn an_object_that_an_earlier_spec_named_is_forgotten_once_it_holds_no_part() {
    // What the public IP elsewhere reports before and after the correction, and whether it is known afterwards.
    for (before, after, is_known) in [
        (fails(Fault::NotFound), Outcome::Done(NOTHING), false),
        (Outcome::Done(7), Outcome::Done(NOTHING), false),
        (Outcome::Done(7), Outcome::Done(7), true),
        (Outcome::Waiting(Waiting::Write), fails(Fault::ScopeNotFound), true),
        (fails(Fault::Unavailable), fails(Fault::Unavailable), true),
    ] {
        let (mut bench, actions) = corrected_after(&before);
        let other = bench.answer_elsewhere(actions, &after);
        assert_eq!(bench.state.level_of(&IP_ELSEWHERE).is_some(), is_known, "{before:?} {after:?}");
        assert_eq!(other.contains(&Action::Withdraw(IP_ELSEWHERE)), !is_known, "{before:?} {after:?}");
        // It is asked again when a spec names it again.
        let again = bench.naming(&["elsewhere"], Desired::Present(ELSEWHERE));
        let actions = bench.step(Event::Changed(again));
        assert!(actions.iter().any(|action| matches!(action, Action::Tell { key: IP_ELSEWHERE, .. })), "{actions:?}");
    }
}

/// The answer of a write may be lost, and what it makes may come later than an absence is seen.
#[test]
fn what_was_written_for_is_forgotten_only_once_its_removal_is_done() {
    for (before, is_known) in [(Outcome::Waiting(Waiting::Write), true), (fails(Fault::NotFound), false)] {
        let (mut bench, actions) = corrected_after(&before);
        let look = actions.iter().find_map(|action| match action {
            Action::Tell { key: IP_ELSEWHERE, generation, .. } => Some(*generation),
            _ => None,
        });
        let look = look.expect("the public IP elsewhere is looked at");
        let outcome = Outcome::Done(NOTHING);
        bench.step(Event::Told { key: IP_ELSEWHERE, generation: look, outcome });
        assert_eq!(bench.state.level_of(&IP_ELSEWHERE).is_some(), is_known, "{before:?}");
        // Then it is told to give it up, and knows that it has.
        let other = bench.answer_elsewhere(actions, &Outcome::Done(NOTHING));
        assert_eq!(bench.state.level_of(&IP_ELSEWHERE), None, "{other:?}");
    }
}

/// The object has sent the write, and the Service has told it something else before it knew that.
#[test]
fn a_write_for_an_earlier_want_counts_also_when_the_service_learns_of_it_after_the_next_want() {
    let mut bench = Bench::new(Order::Parallel);
    let of_elsewhere = |actions: &[Action<Web>]| {
        let told = actions.iter().find_map(|action| match action {
            Action::Tell { key: IP_ELSEWHERE, generation, .. } => Some(*generation),
            _ => None,
        });
        told.expect("the public IP elsewhere is told")
    };
    let there = bench.naming(&["elsewhere"], Desired::Present(ELSEWHERE));
    let make = of_elsewhere(&bench.step(Event::Changed(there)));
    let corrected = bench.naming(&[], Desired::Present(1));
    let actions = bench.step(Event::Changed(corrected));
    let look = of_elsewhere(&actions);
    let told = |generation, outcome| Event::Told { key: IP_ELSEWHERE, generation, outcome };
    bench.step(told(make, Outcome::Waiting(Waiting::Write)));
    bench.step(told(look, Outcome::Done(NOTHING)));
    assert!(bench.state.level_of(&IP_ELSEWHERE).is_some(), "the write may still make it");
    bench.answer_elsewhere(actions, &Outcome::Done(NOTHING));
    assert_eq!(bench.state.level_of(&IP_ELSEWHERE), None, "its removal is done");
}
