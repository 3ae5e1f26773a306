//! Whether a machine that Azure does not find is gone, so that no disk is attached to it.
//!
//! An answer OK to a detach from a machine that is only hidden lets its disk be attached elsewhere and be written twice.
//! So every piece of evidence is a read that was sent after the request came, and together they must show
//!
//! - the machine missing twice, [`APART`] from each other, by single reads;
//! - of an instance of a uniform scale set that Azure does not call missing in so many words (it may call the request
//!   invalid, or the scale set missing): twice, too, that the scale set does not exist, or that the list of its instances
//!   lacks it. A list alone proves no absence, and here it does not stand alone;
//! - that this identity can see machines: after that, another machine is found by a single read, or where there is no other
//!   one, the list of the machines beside it can be read and lacks it.
//!
//! What cannot be read proves nothing: the caller ends with that failure.

use std::time::Duration;

use lazuli_model::fault::Fault;

use crate::attach::Moment;

/// How far apart the two reads are at least.
pub const APART: Duration = Duration::from_secs(2);

/// What a single read of a machine says of its existence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// It exists.
    Found,
    /// Exactly this machine does not exist.
    Missing,
    /// Of an instance: its scale set does not exist, or the request is invalid. Azure says so of an instance that is gone,
    /// and may mean something else.
    MissingOrInvalid,
}

impl Machine {
    /// What a failed request says. `None` where it says nothing of the machine's existence.
    pub fn of_failure(fault: &Fault, is_instance: bool) -> Option<Self> {
        match fault {
            Fault::NotFound => Some(Self::Missing),
            Fault::ScopeNotFound | Fault::Invalid if is_instance => Some(Self::MissingOrInvalid),
            _ => None,
        }
    }
}

/// What was read, and between which times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent<T, A> {
    /// The read was sent no earlier.
    pub sent_at: T,
    /// It was answered no later.
    pub answered_at: T,
    /// What it gave.
    pub answer: A,
}

/// What has been read of a machine that was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence<T> {
    /// When the request came. Reads that were sent earlier are no evidence.
    pub requested_at: T,
    /// Single reads of the machine.
    pub machine: Vec<Sent<T, Machine>>,
    /// Single reads of its scale set: whether it exists.
    pub scale_set: Vec<Sent<T, bool>>,
    /// Lists of the machines beside it: whether they have it.
    pub lists: Vec<Sent<T, bool>>,
    /// Single reads of other machines: whether one of them was found.
    pub controls: Vec<Sent<T, bool>>,
}

/// What follows from the evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next<T> {
    /// Read the machine singly, no earlier than then.
    ReadMachine(T),
    /// Read its scale set singly, no earlier than then.
    ReadScaleSet(T),
    /// List the machines beside it, no earlier than then.
    List(T),
    /// Read other machines singly.
    ReadOthers,
    /// It does not exist.
    Gone,
    /// It exists, or a list has it.
    Present,
}

impl<T: Moment> Evidence<T> {
    /// Nothing has been read yet for a request that came then.
    pub fn new(requested_at: T) -> Self {
        Self { requested_at, machine: Vec::new(), scale_set: Vec::new(), lists: Vec::new(), controls: Vec::new() }
    }

    /// What to read next, or what the evidence proves.
    pub fn next(&self) -> Next<T> {
        let machine = self.since(&self.machine, self.requested_at);
        let lists = self.since(&self.lists, self.requested_at);
        if machine.iter().any(|read| read.answer == Machine::Found) || lists.iter().any(|list| list.answer) {
            return Next::Present;
        }
        let mut needs = vec![self.another(&machine).map(|from| (from, Next::ReadMachine(from)))];
        if machine.iter().any(|read| read.answer == Machine::MissingOrInvalid) {
            let sets = self.since(&self.scale_set, self.requested_at);
            needs.push(match sets.iter().any(|set| set.answer) {
                true => self.another(&lists).map(|from| (from, Next::List(from))),
                false => self.another(&sets).map(|from| (from, Next::ReadScaleSet(from))),
            });
        }
        if let Some((_, next)) = needs.into_iter().flatten().min_by_key(|(from, _)| *from) {
            return next;
        }
        let last = machine.last().map_or(self.requested_at, |read| read.sent_at);
        match self.since(&self.controls, last).as_slice() {
            [] => Next::ReadOthers,
            controls if controls.iter().any(|control| control.answer) => Next::Gone,
            // There is no other machine to be seen.
            _ if self.since(&self.lists, last).is_empty() => Next::List(last),
            _ => Next::Gone,
        }
    }

    /// The reads that were sent from then on, in order.
    fn since<A: Copy>(&self, reads: &[Sent<T, A>], from: T) -> Vec<Sent<T, A>> {
        let mut reads: Vec<Sent<T, A>> =
            reads.iter().copied().filter(|read| read.sent_at >= from && read.sent_at >= self.requested_at).collect();
        reads.sort_by_key(|read| read.sent_at);
        reads
    }

    /// From when on there must be another one of these reads. `None` where two of them are far enough apart.
    fn another<A>(&self, reads: &[Sent<T, A>]) -> Option<T> {
        match reads {
            [] => Some(self.requested_at),
            [first, .., last] if last.sent_at >= first.answered_at + APART => None,
            [first, ..] => Some(first.answered_at + APART),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Evidence = super::Evidence<Duration>;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn sent<A>(seconds: u64, answer: A) -> Sent<Duration, A> {
        Sent { sent_at: at(seconds), answered_at: at(seconds), answer }
    }

    /// A request that came at 10 s.
    fn evidence(machine: &[(u64, Machine)]) -> Evidence {
        let machine = machine.iter().map(|(seconds, answer)| sent(*seconds, *answer)).collect();
        Evidence { machine, ..Evidence::new(at(10)) }
    }

    #[test]
    fn a_machine_is_gone_after_two_reads_apart_and_a_control_since() {
        use Machine::{Found, Missing};
        assert_eq!(evidence(&[]).next(), Next::ReadMachine(at(10)));
        // A read from before the request is none.
        assert_eq!(evidence(&[(9, Missing)]).next(), Next::ReadMachine(at(10)));
        assert_eq!(evidence(&[(9, Missing), (10, Missing)]).next(), Next::ReadMachine(at(12)));
        assert_eq!(evidence(&[(10, Missing), (11, Missing)]).next(), Next::ReadMachine(at(12)));
        assert_eq!(evidence(&[(10, Missing), (12, Found)]).next(), Next::Present);
        assert_eq!(evidence(&[(9, Found), (10, Missing)]).next(), Next::ReadMachine(at(12)));
        let mut twice = evidence(&[(10, Missing), (12, Missing)]);
        assert_eq!(twice.next(), Next::ReadOthers);
        twice.controls = vec![sent(11, true)];
        assert_eq!(twice.next(), Next::ReadOthers, "a control from before the last read of the machine");
        twice.controls.push(sent(12, true));
        assert_eq!(twice.next(), Next::Gone);
    }

    #[test]
    fn the_second_read_is_sent_long_enough_after_the_first_was_answered() {
        let mut slow = evidence(&[]);
        slow.machine.push(Sent { sent_at: at(10), answered_at: at(15), answer: Machine::Missing });
        assert_eq!(slow.next(), Next::ReadMachine(at(17)));
        slow.machine.push(sent(16, Machine::Missing));
        assert_eq!(slow.next(), Next::ReadMachine(at(17)));
        slow.machine.push(sent(17, Machine::Missing));
        assert_eq!(slow.next(), Next::ReadOthers);
    }

    #[test]
    fn without_another_machine_the_list_is_the_control_and_a_list_that_has_the_machine_contradicts() {
        let mut lonely = evidence(&[(10, Machine::Missing), (12, Machine::Missing)]);
        lonely.controls = vec![sent(12, false)];
        assert_eq!(lonely.next(), Next::List(at(12)));
        lonely.lists = vec![sent(11, false)];
        assert_eq!(lonely.next(), Next::List(at(12)));
        lonely.lists.push(sent(12, false));
        assert_eq!(lonely.next(), Next::Gone);
        lonely.lists.push(sent(13, true));
        assert_eq!(lonely.next(), Next::Present);
    }

    #[test]
    fn an_instance_that_is_not_called_missing_is_gone_only_by_two_lists_or_reads_of_its_set_since_the_request() {
        use Machine::{Missing, MissingOrInvalid};
        for reads in [[(10, MissingOrInvalid), (12, MissingOrInvalid)], [(10, Missing), (12, MissingOrInvalid)]] {
            let mut instance = evidence(&reads);
            instance.controls = vec![sent(15, true)];
            // A list that another request began before this one came.
            instance.lists = vec![sent(9, false)];
            assert_eq!(instance.next(), Next::ReadScaleSet(at(10)), "{reads:?}");
            let mut without_set = instance.clone();
            without_set.scale_set = vec![sent(12, false)];
            assert_eq!(without_set.next(), Next::ReadScaleSet(at(14)), "one read of the set proves nothing");
            without_set.scale_set.push(sent(14, false));
            assert_eq!(without_set.next(), Next::Gone);
            instance.scale_set = vec![sent(12, true)];
            assert_eq!(instance.next(), Next::List(at(10)), "{reads:?}");
            instance.lists.push(sent(12, false));
            assert_eq!(instance.next(), Next::List(at(14)), "one list proves nothing");
            instance.lists.push(sent(14, false));
            assert_eq!(instance.next(), Next::Gone, "{reads:?}");
            instance.lists.push(sent(14, true));
            assert_eq!(instance.next(), Next::Present);
        }
    }

    #[test]
    fn both_first_reads_are_made_before_the_second_ones() {
        let mut instance = evidence(&[(10, Machine::MissingOrInvalid)]);
        assert_eq!(instance.next(), Next::ReadScaleSet(at(10)));
        instance.scale_set = vec![sent(10, true)];
        assert_eq!(instance.next(), Next::List(at(10)));
        instance.lists = vec![sent(10, false)];
        assert_eq!(instance.next(), Next::ReadMachine(at(12)));
    }

    #[test]
    fn only_of_an_instance_an_invalid_request_may_mean_that_it_is_missing() {
        for (fault, machine, instance) in [
            (Fault::NotFound, Some(Machine::Missing), Some(Machine::Missing)),
            (Fault::ScopeNotFound, None, Some(Machine::MissingOrInvalid)),
            (Fault::Invalid, None, Some(Machine::MissingOrInvalid)),
            (Fault::Forbidden, None, None),
            (Fault::Unavailable, None, None),
        ] {
            let of = [false, true].map(|is_instance| Machine::of_failure(&fault, is_instance));
            assert_eq!(of, [machine, instance], "{fault:?}");
        }
    }
}
