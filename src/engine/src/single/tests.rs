use super::*;

/// Azure's error in these tests.
#[derive(Debug, Clone, PartialEq)]
struct Error(Fault);

impl AzureFailure for Error {
    fn fault(&self) -> &Fault {
        &self.0
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn code(&self) -> &str {
        ""
    }
}

/// A number that is written as often as it is refused: permit, read, write; a rest after each refusal.
#[derive(Debug, Clone)]
struct Number {
    number: u32,
    puts_right: bool,
}

impl Course for Number {
    type Request = u32;
    type Seen = u32;
    type Env = ();
    type Query = ();
    type Verb = ();
    type Op = u32;
    type Done = u32;
    type Why = &'static str;
    type Error = Error;

    fn of(request: &u32) -> Self {
        Self { number: *request, puts_right: false }
    }

    fn is_same(running: &u32, asked: &u32) -> bool {
        running == asked
    }

    fn next(&mut self, _: &(), _: Duration, input: Input<Self>) -> Next<Self> {
        match input {
            Input::Begin | Input::Rested => Next::Permit(()),
            Input::Permitted => Next::Read(()),
            Input::Read(Ok(seen)) if seen == self.number => Next::End(Ok(seen)),
            Input::Read(_) => Next::Write(self.number),
            Input::Written(seen) => Next::End(Ok(seen.unwrap_or(self.number))),
            Input::Refused(_) => Next::Rest(Rest::BackOff { failures: 1 }),
            Input::Failed(_) => {
                self.puts_right = true;
                Next::Rest(Rest::For(Duration::from_secs(1)))
            }
            Input::NoPermit(_) => Next::End(Err("no permit")),
            // An even number must be put right first.
            Input::Unwanted if self.number.is_multiple_of(2) && !self.puts_right => {
                self.puts_right = true;
                Next::Rest(Rest::For(Duration::from_secs(1)))
            }
            Input::Unwanted => Next::End(Err("unwanted")),
        }
    }

    fn goes_on_alone(&self) -> bool {
        self.puts_right
    }

    fn rests_for(&self) -> Awaited {
        Awaited::Pause
    }
}

#[derive(Default)]
struct Rig(State<Number>);

impl Rig {
    fn step(&mut self, event: Event<Number>) -> Vec<String> {
        let words = |action: Action<Number>| match action {
            Action::TakePermit(id, ()) => format!("permit {id}"),
            Action::ReleasePermit(id) => format!("release {id}"),
            Action::Read(id, _) => format!("read {id}"),
            Action::Write { id, op, permit } => format!("write {id} of {op} by {permit}"),
            Action::Rest(id, _) => format!("rest {id}"),
            Action::Drop(id) => format!("drop {id}"),
            Action::LeaveUnsent(id) => format!("leave {id} unsent"),
            Action::Answer(caller, Ok(done)) => format!("{caller}: {done}"),
            Action::Answer(caller, Err(Refusal::Busy(request))) => format!("{caller}: busy with {request}"),
            Action::Answer(caller, Err(Refusal::Why(why))) => format!("{caller}: {why}"),
        };
        self.0.step(&(), Duration::ZERO, event).into_iter().map(words).collect()
    }
}

/// The id of this number.
fn id(number: u64) -> Id {
    let mut ids = Ids::default();
    (0..number).map(|_| ids.next_id()).last().unwrap()
}

#[test]
fn the_same_request_joins_and_another_one_is_told_so_at_once() {
    let mut rig = Rig::default();
    assert_eq!(rig.step(Event::Requested(1, 7)), ["permit 1"]);
    assert_eq!(rig.step(Event::Requested(2, 7)), [""; 0]);
    assert_eq!(rig.step(Event::Requested(3, 8)), ["3: busy with 7"]);
    assert_eq!(rig.step(Event::Permitted(id(1))), ["read 2"]);
    assert_eq!(rig.step(Event::Read(id(2), Ok(6))), ["write 3 of 7 by 1"]);
    assert_eq!(rig.0.awaited(), Awaited::Answer);
    assert_eq!(rig.step(Event::Abandoned(1)), [""; 0]);
    assert_eq!(rig.step(Event::Ended(id(3), Written::Done(Some(7)))), ["2: 7"]);
    assert!(rig.0.is_idle());
}

#[test]
fn a_rest_gives_the_permit_back_and_is_followed_by_another_read() {
    let mut rig = Rig::default();
    rig.step(Event::Requested(1, 7));
    rig.step(Event::Permitted(id(1)));
    rig.step(Event::Read(id(2), Ok(6)));
    // The permit went with the write.
    assert_eq!(rig.step(Event::Ended(id(3), Written::Refused(Error(Fault::Unavailable)))), ["rest 4"]);
    assert_eq!(rig.step(Event::Rested(id(3))), [""; 0]);
    assert_eq!(rig.step(Event::Rested(id(4))), ["permit 5"]);
    assert_eq!(rig.step(Event::Permitted(id(5))), ["read 6"]);
    assert_eq!(rig.step(Event::Read(id(6), Ok(7))), ["release 5", "1: 7"]);
}

#[test]
fn what_no_caller_waits_for_is_not_written() {
    // Before the permit.
    let mut rig = Rig::default();
    rig.step(Event::Requested(1, 7));
    assert_eq!(rig.step(Event::Abandoned(1)), ["drop 1"]);
    assert!(rig.0.is_idle());
    assert_eq!(rig.step(Event::Permitted(id(1))), ["release 1"]);
    // During the read behind it, which ends first.
    rig.step(Event::Requested(2, 7));
    rig.step(Event::Permitted(id(2)));
    assert_eq!(rig.step(Event::Abandoned(2)), [""; 0]);
    assert_eq!(rig.step(Event::Read(id(3), Ok(6))), ["release 2"]);
    assert!(rig.0.is_idle());
    // A caller that comes during that read takes it over.
    rig.step(Event::Requested(3, 7));
    rig.step(Event::Permitted(id(4)));
    rig.step(Event::Abandoned(3));
    rig.step(Event::Requested(4, 7));
    assert_eq!(rig.step(Event::Read(id(5), Ok(6))), ["write 6 of 7 by 4"]);
    // In a rest.
    assert_eq!(rig.step(Event::Ended(id(6), Written::Refused(Error(Fault::Unavailable)))), ["rest 7"]);
    assert_eq!(rig.step(Event::Abandoned(4)), ["drop 7"]);
    assert!(rig.0.is_idle());
}

#[test]
fn what_must_be_put_right_goes_on_without_callers() {
    let mut rig = Rig::default();
    rig.step(Event::Requested(1, 7));
    rig.step(Event::Permitted(id(1)));
    rig.step(Event::Read(id(2), Err(Error(Fault::Unavailable))));
    assert_eq!(rig.step(Event::Abandoned(1)), ["leave 3 unsent"]);
    assert_eq!(rig.step(Event::Ended(id(3), Written::Failed(Error(Fault::Unavailable)))), ["rest 4"]);
    assert_eq!(rig.step(Event::Rested(id(4))), ["permit 5"]);
    assert_eq!(rig.step(Event::NoPermit(id(5), Error(Fault::Unavailable))), [""; 0]);
    assert!(rig.0.is_idle());
}

#[test]
fn a_caller_that_comes_while_something_is_put_right_is_served_when_that_is_done() {
    let mut rig = Rig::default();
    rig.step(Event::Requested(1, 8));
    assert_eq!(rig.step(Event::Abandoned(1)), ["drop 1", "rest 2"]);
    assert_eq!(rig.step(Event::Requested(2, 8)), [""; 0]);
    assert_eq!(rig.step(Event::Rested(id(2))), ["permit 3"]);
    // What went on alone has failed. That is no answer: its caller's request begins.
    assert_eq!(rig.step(Event::NoPermit(id(3), Error(Fault::Unavailable))), ["permit 4"]);
    // From here on a failure is the caller's own.
    assert_eq!(rig.step(Event::NoPermit(id(4), Error(Fault::Unavailable))), ["2: no permit"]);
    assert!(rig.0.is_idle());
    // Without a caller it ends; and what it finds done is an answer.
    rig.step(Event::Requested(3, 8));
    rig.step(Event::Abandoned(3));
    rig.step(Event::Rested(id(6)));
    assert_eq!(rig.step(Event::NoPermit(id(7), Error(Fault::Unavailable))), [""; 0]);
    rig.step(Event::Requested(4, 8));
    rig.step(Event::Abandoned(4));
    rig.step(Event::Requested(5, 8));
    rig.step(Event::Rested(id(9)));
    rig.step(Event::Permitted(id(10)));
    assert_eq!(rig.step(Event::Read(id(11), Ok(8))), ["release 10", "5: 8"]);
}

#[test]
fn a_write_that_stayed_unsent_begins_anew_for_a_caller_that_came_since() {
    let unsent = || Written::Refused(Error(Fault::Deadline));
    let mut rig = Rig::default();
    let write = |rig: &mut Rig, first: u64, caller: Caller| {
        rig.step(Event::Requested(caller, 7));
        rig.step(Event::Permitted(id(first)));
        assert_eq!(rig.step(Event::Read(id(first + 1), Ok(6))).len(), 1);
        assert_eq!(rig.step(Event::Abandoned(caller)), [format!("leave {} unsent", first + 2)]);
    };
    write(&mut rig, 1, 1);
    assert_eq!(rig.step(Event::Ended(id(3), unsent())), [""; 0]);
    assert!(rig.0.is_idle());
    write(&mut rig, 4, 2);
    assert_eq!(rig.step(Event::Requested(3, 7)), [""; 0]);
    assert_eq!(rig.step(Event::Ended(id(6), unsent())), ["permit 7"]);
    // A deadline of a write that somebody waits for is a failure as any other.
    rig.step(Event::Permitted(id(7)));
    rig.step(Event::Read(id(8), Ok(6)));
    assert_eq!(rig.step(Event::Ended(id(9), unsent())), ["rest 10"]);
}
