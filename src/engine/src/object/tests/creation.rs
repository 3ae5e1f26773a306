//! What a write that creates rests on, and what a list that lacks the object is good for.

use lazuli_quota::read::Accept;

use super::*;

/// The read that the actions end with.
fn read(actions: &[Action<Letters>]) -> (Id, Accept) {
    let Some(Action::Observe { id, accept, .. }) = actions.last() else { panic!("{actions:?} ends with no read") };
    (*id, *accept)
}

fn permit(actions: &[Action<Letters>]) -> Id {
    let Some(Action::TakePermit { id, .. }) = actions.last() else { panic!("{actions:?} asks for no permit") };
    *id
}

impl Bench {
    /// A read, sent now, does not find the object.
    fn absent(&mut self, id: Id, by: By) -> Vec<Action<Letters>> {
        self.step(Event::Observed { id, sent_at: self.now, by, result: Err(Fault::NotFound) })
    }

    /// A want of the letter a, and the permit to create that is asked for because a read has not found the object.
    fn asks_to_create(&mut self, by: By) -> Id {
        let first = self.request("s1", 1, "a", "");
        let (id, accept) = read(&first);
        assert_eq!(accept, Accept::Any);
        let actions = self.absent(id, by);
        assert_eq!(told(&actions), [("s1", 1, Outcome::Waiting(Waiting::Write))]);
        let actions = self.woken();
        permit(&actions)
    }
}

#[test]
fn what_a_list_lacks_is_read_alone_under_the_permit_before_it_is_created() {
    let mut bench = Bench::new();
    let permit = bench.asks_to_create(By::List);
    bench.now += Duration::from_secs(30);
    let actions = bench.step(Event::Permitted(permit));
    let (id, accept) = read(&actions);
    assert_eq!(accept, Accept::Single);
    let actions = bench.absent(id, By::Single);
    assert!(
        matches!(&actions[..], [Action::Write { op, observation, .. }] if *op == letters("a") && *observation == id)
    );
}

#[test]
fn what_another_writer_makes_while_the_permit_is_awaited_is_not_replaced() {
    let mut bench = Bench::new();
    let permit = bench.asks_to_create(By::List);
    bench.now += Duration::from_secs(30);
    let actions = bench.step(Event::Permitted(permit));
    let (id, _) = read(&actions);
    let actions = bench.step(Event::Observed { id, sent_at: bench.now, by: By::Single, result: Ok(model("ax")) });
    assert_eq!(told(&actions), [("s1", 1, Outcome::Done(1))]);
    assert!(actions.contains(&Action::ReleasePermit(permit)), "{actions:?}");
}

#[test]
fn a_single_read_of_a_moment_ago_needs_no_other_and_an_older_one_does() {
    for (waited, is_read_again) in [(ms(900), false), (ms(1_100), true)] {
        let mut bench = Bench::new();
        let permit = bench.asks_to_create(By::Single);
        bench.now = waited;
        let actions = bench.step(Event::Permitted(permit));
        let again = matches!(&actions[..], [Action::Observe { accept: Accept::Single, .. }]);
        assert_eq!(again, is_read_again, "{actions:?}");
        assert_eq!(matches!(&actions[..], [Action::Write { .. }]), !is_read_again, "{actions:?}");
    }
}

#[test]
fn a_list_that_comes_after_the_permit_is_not_enough_either() {
    let mut bench = Bench::new();
    let permit = bench.asks_to_create(By::Single);
    let (id, accept) = read(&bench.step(Event::Tainted(Taint::Changed)));
    assert_eq!(accept, Accept::Any);
    assert!(bench.step(Event::Permitted(permit)).is_empty(), "a read is in flight");
    let (_, accept) = read(&bench.absent(id, By::List));
    assert_eq!(accept, Accept::Single);
}

#[test]
fn what_a_list_lacks_is_not_told_as_gone() {
    let mut bench = Bench::new();
    let first = bench.request("s1", 1, "", "a");
    let (id, _) = read(&first);
    let actions = bench.absent(id, By::List);
    assert!(told(&actions).is_empty(), "{actions:?}");
    let (id, accept) = read(&actions);
    assert_eq!(accept, Accept::Single);
    assert_eq!(told(&bench.absent(id, By::Single)), [("s1", 1, Outcome::Done(0))]);
}
