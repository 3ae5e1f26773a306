//! How often and how long a write is tried that Azure has not accepted.

use std::time::Duration;

use lazuli_model::fault::{Effect, Fault};

/// How often and how long a write is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How often it is sent in all when it is not answered or Azure fails.
    pub tries: u32,
    /// How long it waits in all because Azure asked for a pause.
    pub longest_wait: Duration,
}

/// The tries of one write so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attempts {
    failures: u32,
    waited: Duration,
    lost: bool,
}

/// What follows after a write that was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Wait for this long, because Azure or the queue for permits says so; then look again.
    Pause(Duration),
    /// Wait as after so many failures; then look again.
    BackOff {
        /// The failures so far.
        failures: u32,
    },
    /// The failure is the answer.
    Stop,
}

impl Attempts {
    /// Takes in how a write failed that Azure has not accepted.
    pub fn failed(&mut self, fault: &Fault, effect: Effect, limits: Limits) -> Next {
        self.lost |= effect == Effect::Possible;
        match fault {
            Fault::Throttled { retry_after: Some(pause) } => {
                if self.waited.saturating_add(*pause) > limits.longest_wait {
                    return Next::Stop;
                }
                // Each pause counts as a second at least, so that their number has an end.
                self.waited += (*pause).max(Duration::from_secs(1));
                Next::Pause(*pause)
            }
            Fault::Throttled { retry_after: None } | Fault::Unavailable | Fault::OutcomeUnknown => {
                self.failures += 1;
                if self.failures >= limits.tries { Next::Stop } else { Next::BackOff { failures: self.failures } }
            }
            _ => Next::Stop,
        }
    }

    /// Whether Azure may have acted on a try.
    pub fn effect(&self) -> Effect {
        if self.lost { Effect::Possible } else { Effect::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { tries: 4, longest_wait: Duration::from_secs(60) };

    fn throttled(seconds: u64) -> Fault {
        Fault::Throttled { retry_after: Some(Duration::from_secs(seconds)) }
    }

    #[test]
    fn pauses_have_a_sum_and_failures_a_number() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.failed(&throttled(40), Effect::None, LIMITS), Next::Pause(Duration::from_secs(40)));
        assert_eq!(attempts.failed(&throttled(21), Effect::None, LIMITS), Next::Stop);
        assert_eq!(attempts.failed(&throttled(20), Effect::None, LIMITS), Next::Pause(Duration::from_secs(20)));
        assert_eq!(attempts.failed(&throttled(0), Effect::None, LIMITS), Next::Pause(Duration::ZERO));
        for failures in 1..4 {
            assert_eq!(
                attempts.failed(&Fault::Unavailable, Effect::None, LIMITS),
                Next::BackOff { failures },
                "{failures}"
            );
        }
        assert_eq!(attempts.failed(&Fault::Throttled { retry_after: None }, Effect::None, LIMITS), Next::Stop);
        assert_eq!(attempts.failed(&Fault::Invalid, Effect::None, LIMITS), Next::Stop);
    }

    #[test]
    fn pauses_of_no_length_have_an_end_too() {
        let mut attempts = Attempts::default();
        let pauses = (0..).take_while(|_| attempts.failed(&throttled(0), Effect::None, LIMITS) != Next::Stop);
        assert_eq!(pauses.count(), 60 + 1);
    }

    #[test]
    fn a_lost_answer_is_never_forgotten() {
        let mut attempts = Attempts::default();
        attempts.failed(&Fault::OutcomeUnknown, Effect::Possible, LIMITS);
        attempts.failed(&throttled(1), Effect::None, LIMITS);
        assert_eq!(attempts.effect(), Effect::Possible);
        assert_eq!(Attempts::default().effect(), Effect::None);
    }
}
