//! The one write in flight of a key, and when its operation is polled.

use std::time::Duration;

use lazuli_quota::poll::Expectation;

use super::Id;

/// A write that was sent and has not ended.
#[derive(Debug, Clone)]
pub struct InFlight<K, W> {
    /// The id of the write.
    pub id: Id,
    /// When it was sent.
    pub sent_at: Duration,
    /// The wants it was planned from, in order of the requesters. They are kept for as long as the operation takes, so they
    /// take no more room than they need.
    pub wants: Box<[(K, W)]>,
    /// The requesters of whose wants it changes something.
    pub members: Vec<K>,
    accepted: Option<Accepted>,
}

#[derive(Debug, Clone, Copy)]
struct Accepted {
    at: Duration,
    expected: Expectation,
    last_poll: Option<Duration>,
    polling: bool,
    not_before: Duration,
}

impl<K, W> InFlight<K, W> {
    /// A write that is sent now.
    pub fn new(id: Id, sent_at: Duration, wants: impl IntoIterator<Item = (K, W)>, members: Vec<K>) -> Self {
        Self { id, sent_at, wants: wants.into_iter().collect(), members, accepted: None }
    }

    /// Records that Azure accepted the write as a long-running operation. A repeated answer changes nothing.
    pub fn accepted(&mut self, expected: Expectation, now: Duration) {
        self.accepted.get_or_insert(Accepted {
            at: now,
            expected,
            last_poll: None,
            polling: false,
            not_before: Duration::ZERO,
        });
    }

    /// Whether Azure has accepted the write, so that a failed operation may have changed something.
    pub fn is_accepted(&self) -> bool {
        self.accepted.is_some()
    }

    /// Records that a poll was sent.
    pub fn polling(&mut self) {
        if let Some(accepted) = &mut self.accepted {
            accepted.polling = true;
        }
    }

    /// Records that a poll found the operation running, or was refused and may be repeated after the pause.
    pub fn polled(&mut self, pause: Duration, now: Duration) {
        if let Some(accepted) = &mut self.accepted {
            accepted.polling = false;
            accepted.not_before = now + pause;
            accepted.last_poll = Some(now.saturating_sub(accepted.at));
        }
    }

    /// When the next poll is due. `None` before the write is accepted, and while a poll is in flight.
    pub fn poll_at(&self) -> Option<Duration> {
        let accepted = self.accepted.filter(|accepted| !accepted.polling)?;
        Some(accepted.not_before.max(accepted.at + accepted.expected.next_alone(accepted.last_poll)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lazuli_quota::poll::{Durations, Kind};

    #[test]
    fn an_operation_is_polled_from_its_acceptance_on_and_never_twice_at_once() {
        let s = Duration::from_secs;
        let mut write = InFlight::<u8, u8>::new(Id(1), s(0), [], Vec::new());
        assert_eq!(write.poll_at(), None);
        let expected = Expectation::of(Kind::Other, &Durations::default(), None);
        write.accepted(expected, s(1));
        let first = write.poll_at().expect("it is accepted");
        assert!(first > s(1));
        write.accepted(expected, s(9));
        assert_eq!(write.poll_at(), Some(first));
        write.polling();
        assert_eq!(write.poll_at(), None);
        write.polled(Duration::ZERO, first);
        assert!(write.poll_at() > Some(first));
        write.polled(s(60), first);
        assert_eq!(write.poll_at(), Some(first + s(60)));
    }
}
