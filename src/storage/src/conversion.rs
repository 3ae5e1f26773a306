//! What follows of a disk that Azure converts to PremiumV2: looks at it, at a low rate, and what a person is told.
//!
//! ```text
//!   Began ──▶ Started is told ──▶ rest ──▶ read ──▶ Progress, Long are told ──▶ rest …
//!   Found ─────────────────────────────────▲ └────▶ Completed is told; or the disk is gone, or not of that type any more
//! ```
//!
//! Nothing here writes. A replica that is no longer asked for anything goes on looking: what both tell is one event, for equal
//! notes about one object are one.

use std::time::Duration;

use lazuli_model::{Disk, fault::Fault};
use lazuli_volume::modify::{Conversion, ConversionReport, Reported, conversion_reports};

/// How long a look comes after the one before (source: the Go driver). Each costs one single read.
pub const BETWEEN_LOOKS: Duration = Duration::from_secs(60);

/// What happens to the conversion of a disk.
#[derive(Debug, Clone)]
pub enum Event {
    /// A PATCH of this process has begun it.
    Began(Conversion),
    /// A list shows that it goes on.
    Found,
    /// A single read of the disk has ended.
    Read(Result<Box<Disk>, Fault>),
    /// The time of the next look may have come.
    Woke,
    /// The process ends.
    Drain,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Tell a person.
    Report(ConversionReport),
    /// Read the disk alone.
    Read,
}

/// What is known of the conversion of a disk.
#[derive(Debug, Default)]
pub struct State {
    reported: Option<Reported>,
    next_look: Option<Duration>,
}

impl State {
    /// Folds an event into the facts, and decides.
    pub fn step(&mut self, now: Duration, event: Event) -> Vec<Action> {
        match event {
            Event::Began(conversion) => {
                if self.reported.is_none() {
                    (self.reported, self.next_look) = (Some(Reported::beginning(now)), Some(now + BETWEEN_LOOKS));
                }
                vec![Action::Report(ConversionReport::Started(conversion.from))]
            }
            Event::Found if self.reported.is_none() => {
                self.reported = Some(Reported::beginning(now));
                vec![Action::Read]
            }
            Event::Woke if self.next_look.is_some_and(|at| at <= now) => {
                self.next_look = None;
                vec![Action::Read]
            }
            Event::Found | Event::Woke => Vec::new(),
            Event::Read(read) => self.seen(now, read),
            Event::Drain => {
                *self = Self::default();
                Vec::new()
            }
        }
    }

    fn seen(&mut self, now: Duration, read: Result<Box<Disk>, Fault>) -> Vec<Action> {
        let Some(known) = self.reported.take() else { return Vec::new() };
        let (reports, next) = match read {
            Ok(disk) => conversion_reports(known, &disk, now),
            Err(fault) if fault.says_that_it_is_missing() => (Vec::new(), None),
            Err(_) => (Vec::new(), Some(known)),
        };
        (self.reported, self.next_look) = (next, next.map(|_| now + BETWEEN_LOOKS));
        reports.into_iter().map(Action::Report).collect()
    }

    /// When it is to be woken.
    pub fn wake_at(&self) -> Option<Duration> {
        self.next_look
    }

    /// Whether there is no conversion.
    pub fn is_idle(&self) -> bool {
        self.reported.is_none()
    }
}

#[cfg(test)]
mod tests {
    use lazuli_model::{Completion, SkuName};

    use super::*;

    const BEGAN: Conversion = Conversion { from: Some(SkuName::PremiumLrs), to: SkuName::PremiumV2Lrs };

    fn shown(percent: f64) -> Event {
        let completion = Some(Completion::from_percent(percent));
        let disk = Disk { sku: Some(SkuName::PremiumV2Lrs), completion, ..Disk::unattached("d") };
        Event::Read(Ok(Box::new(disk)))
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_conversion_that_this_process_began_is_told_from_its_beginning_to_its_end() {
        let mut state = State::default();
        let started = Action::Report(ConversionReport::Started(Some(SkuName::PremiumLrs)));
        assert_eq!(state.step(at(0), Event::Began(BEGAN)), [started]);
        assert_eq!(state.step(at(1), Event::Found), [], "a list shows what is known");
        assert_eq!(state.wake_at(), Some(at(60)));
        assert_eq!(state.step(at(59), Event::Woke), []);
        assert_eq!(state.step(at(60), Event::Woke), [Action::Read]);
        assert_eq!(state.step(at(60), Event::Woke), [], "one look at a time");
        assert_eq!(state.step(at(61), shown(45.0)), [Action::Report(ConversionReport::Progress(40))]);
        assert_eq!((state.wake_at(), state.is_idle()), (Some(at(121)), false));
        assert_eq!(state.step(at(122), shown(100.0)), [Action::Report(ConversionReport::Completed)]);
        assert_eq!((state.wake_at(), state.is_idle()), (None, true));
    }

    #[test]
    fn one_that_a_list_shows_is_looked_at_once_and_its_beginning_is_not_told() {
        let mut state = State::default();
        assert_eq!(state.step(at(5), Event::Found), [Action::Read]);
        assert_eq!(state.step(at(6), Event::Found), []);
        assert_eq!(state.step(at(7), shown(25.0)), [Action::Report(ConversionReport::Progress(20))]);
        assert_eq!(state.wake_at(), Some(at(67)));
    }

    #[test]
    fn a_read_that_fails_is_made_again_and_a_disk_that_is_gone_is_forgotten() {
        let mut state = State::default();
        state.step(at(0), Event::Began(BEGAN));
        assert_eq!(state.step(at(60), Event::Read(Err(Fault::Unavailable))), []);
        assert_eq!((state.wake_at(), state.is_idle()), (Some(at(120)), false));
        assert_eq!(state.step(at(120), Event::Read(Err(Fault::NotFound))), []);
        assert!(state.is_idle() && state.wake_at().is_none());
        state.step(at(0), Event::Began(BEGAN));
        state.step(at(1), Event::Drain);
        assert!(state.is_idle());
    }
}
