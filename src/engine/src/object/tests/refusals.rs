//! What Azure refuses of one requester is no matter of the others.

use super::*;

/// Fails the write and reads again. Returns what follows.
fn refused(bench: &mut Bench, id: Id, fault: Fault, shown: &str) -> Vec<Action<Letters>> {
    let mut actions = bench.failed(id, fault);
    actions.retain(|action| matches!(action, Action::Observe { .. }));
    bench.observed(&actions, Ok(model(shown)))
}

/// Ends the write and reads what it wrote. Returns what follows.
fn done(bench: &mut Bench, id: Id, op: &BTreeSet<char>) -> Vec<Action<Letters>> {
    let mut actions = bench.succeeded(id);
    actions.retain(|action| matches!(action, Action::Observe { .. }));
    let shown: String = op.iter().collect();
    bench.observed(&actions, Ok(model(&shown)))
}

/// The next write, which waits for a time or not, where reads show this.
fn next(bench: &mut Bench, actions: Vec<Action<Letters>>, shown: &str) -> (Id, BTreeSet<char>) {
    let mut actions = actions;
    while !matches!(actions.last(), Some(Action::TakePermit { .. })) {
        actions = bench.woken();
        if matches!(actions[..], [Action::Observe { .. }]) {
            actions = bench.observed(&actions, Ok(model(shown)));
        }
    }
    bench.permitted(&actions)
}

#[test]
fn who_was_denied_once_is_written_alone_when_the_others_are_served() {
    let mut bench = Bench::new();
    let (id, _) = bench.write_of(&[("bad", "x", "")], "");
    let actions = bench.failed(id, Fault::Denied);
    assert_eq!(told(&actions), [("bad", 1, Outcome::Refused(Refusal::Azure(Fault::Denied)))]);
    let read: Vec<_> = actions.into_iter().filter(|action| matches!(action, Action::Observe { .. })).collect();
    bench.observed(&read, Ok(model("")));
    let retried_at = bench.state.wake_at().expect("a policy may pass");
    // When its time comes, others have changed too.
    bench.now = retried_at;
    let first = bench.request("good", 1, "a", "");
    let read: Vec<_> = first.into_iter().filter(|action| matches!(action, Action::Observe { .. })).collect();
    let actions = if read.is_empty() { vec![] } else { bench.observed(&read, Ok(model(""))) };
    let (id, op) = next(&mut bench, actions, "");
    assert_eq!(op, letters("a"));
    let actions = done(&mut bench, id, &op);
    let (id, op) = next(&mut bench, actions, "a");
    assert_eq!(op, letters("ax"), "alone");
    refused(&mut bench, id, Fault::Denied, "a");
    // It stays so when it asks for something else.
    bench.request("good", 2, "ab", "");
    let actions = bench.request("bad", 2, "z", "");
    let (id, op) = next(&mut bench, actions, "a");
    assert_eq!(op, letters("ab"));
    let actions = done(&mut bench, id, &op);
    let (id, op) = next(&mut bench, actions, "ab");
    assert_eq!(op, letters("abz"));
    let actions = done(&mut bench, id, &op);
    assert!(told(&actions).contains(&("bad", 2, Outcome::Done(1))));
    // What Azure has taken is no suspect any more.
    bench.request("good", 3, "abc", "");
    let actions = bench.request("bad", 3, "zy", "");
    assert_eq!(next(&mut bench, actions, "abz").1, letters("abcz"));
}

#[test]
fn a_requester_that_is_refused_again_and_again_holds_up_nobody() {
    let mut bench = Bench::new();
    let (mut id, _) = bench.write_of(&[("bad", "x", "")], "");
    let mut shown = String::new();
    for letter in "abcdefghij".chars() {
        refused(&mut bench, id, Fault::Denied, &shown);
        let retried_at = bench.state.wake_at().expect("a policy may pass");
        // Just before it is tried again, another one changes, and is written as if nothing had happened.
        bench.now = retried_at - ms(1);
        shown.push(letter);
        let asked_at = bench.now;
        let actions = bench.request("good", u64::from(letter), &shown, "");
        let actions = match &actions[..] {
            [Action::Observe { .. }] => bench.observed(&actions, Ok(model(&shown[..shown.len() - 1]))),
            _ => actions,
        };
        let (of_good, op) = next(&mut bench, actions, &shown[..shown.len() - 1]);
        assert_eq!(op, letters(&shown));
        assert!(bench.now - asked_at < ms(1_000), "{:?}", bench.now - asked_at);
        let actions = done(&mut bench, of_good, &op);
        id = next(&mut bench, actions, &shown).0;
    }
}

#[test]
fn when_one_after_the_other_is_refused_those_that_ask_anew_do_not_wait() {
    let mut bench = Bench::new();
    let (id, _) = bench.write_of(&[("s1", "a", ""), ("s2", "b", ""), ("s3", "c", ""), ("s4", "d", "")], "");
    let mut actions = refused(&mut bench, id, Fault::Invalid, "");
    let mut writes = 1;
    let waits = loop {
        let told = told(&actions);
        if let Some(one) = told.iter().find(|(.., outcome)| *outcome == waiting(Fault::Invalid)) {
            break one.0;
        }
        let (id, _) = next(&mut bench, actions, "");
        writes += 1;
        let mut failed = bench.failed(id, Fault::Invalid);
        let read: Vec<_> = failed.extract_if(.., |action| matches!(action, Action::Observe { .. })).collect();
        failed.extend(if read.is_empty() { vec![] } else { bench.observed(&read, Ok(model(""))) });
        actions = failed;
    };
    assert!(writes <= 6, "{writes} writes until the object itself is suspected");
    let asked_at = bench.now;
    let actions = bench.request(waits, 2, "z", "");
    let (_, op) = next(&mut bench, actions, "");
    assert_eq!((op, bench.now - asked_at < ms(1_000)), (letters("z"), true));
}

#[test]
fn who_was_denied_has_its_turn_after_half_a_minute_though_another_always_asks_for_more() {
    let mut bench = Bench::new();
    let (id, _) = bench.write_of(&[("bad", "x", "")], "");
    refused(&mut bench, id, Fault::Denied, "");
    let due = bench.state.wake_at().expect("a policy may pass");
    bench.now = due;
    let (mut shown, mut asked) = (String::new(), "A".to_owned());
    let mut actions = bench.request("good", 1, &asked, "");
    if matches!(actions[..], [Action::Observe { .. }]) {
        actions = bench.observed(&actions, Ok(model("")));
    }
    for (turn, letter) in ('B'..='Z').chain('a'..='o').enumerate() {
        let (id, op) = next(&mut bench, actions, &shown);
        if op.contains(&'x') {
            assert_eq!(op, letters(&format!("{shown}x")), "alone");
            let waited = bench.now - due;
            assert!((ms(30_000)..ms(33_000)).contains(&waited), "{waited:?} in {turn} turns");
            return;
        }
        // It asks for more while the write is under way, so that there is always a write without the other one.
        bench.now += ms(1_000);
        asked.push(letter);
        bench.request("good", turn as u64 + 2, &asked, "");
        actions = done(&mut bench, id, &op);
        shown = op.iter().collect();
    }
    panic!("it is not written in {:?}", bench.now - due);
}
