//! How long a call waits for a QEMU, and what it says meanwhile.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::super::types::QmpError;

/// How often a wait looks up.
const SLICE: Duration = Duration::from_millis(50);
/// After so long a wait says what it waits for.
const NOTICE: Duration = Duration::from_secs(3);
/// So long all QEMUs together may take once the hypervisor closes. One that is there answers in milliseconds.
const FAREWELL: Duration = Duration::from_secs(2);
/// So long each step may take all the same, for the machines that come after a silent one.
const LEAST: Duration = Duration::from_millis(200);

/// Whether the hypervisor closes, for all that wait: from then on they wait for no more than a farewell.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Closing(Arc<OnceLock<Instant>>);

impl Closing {
    /// The hypervisor closes now. Once begun it goes on.
    pub(in super::super) fn begin(&self) {
        self.0.get_or_init(Instant::now);
    }
}

/// How long a step may take.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    within: Duration,
    closing: Closing,
}

impl From<Duration> for Patience {
    fn from(within: Duration) -> Self {
        Self { within, closing: Closing::default() }
    }
}

impl Patience {
    pub(super) fn new(within: Duration, closing: Closing) -> Self {
        Self { within, closing }
    }

    /// The longest that a step may take.
    pub(super) fn within(&self) -> Duration {
        self.within
    }

    /// Begins to wait for something, named as in an error.
    pub(super) fn wait(&self, what: &str, socket: &Path) -> Wait {
        let (what, socket) = (what.to_owned(), socket.to_owned());
        Wait { patience: self.clone(), what, socket, begun: Instant::now(), is_told: false }
    }
}

/// When a step that has begun is late.
fn deadline(begun: Instant, within: Duration, closes: Option<Instant>) -> Instant {
    let usual = begun + within;
    closes.map_or(usual, |closes| usual.min((closes + FAREWELL).max(begun + LEAST)))
}

/// A wait, in slices.
#[derive(Debug)]
pub(super) struct Wait {
    patience: Patience,
    what: String,
    socket: PathBuf,
    begun: Instant,
    is_told: bool,
}

impl Wait {
    /// What is waited for.
    pub(super) fn what(&self) -> String {
        self.what.clone()
    }

    /// How long to wait before the next look.
    ///
    /// # Errors
    /// [`QmpError::Late`] when it is over.
    pub(super) fn slice(&mut self) -> Result<Duration, QmpError> {
        let now = Instant::now();
        let deadline = deadline(self.begun, self.patience.within, self.patience.closing.0.get().copied());
        let left = deadline.saturating_duration_since(now);
        if left.is_zero() {
            return Err(QmpError::Late { command: self.what(), within: deadline - self.begun });
        }
        if let Some(notice) = self.notice(now - self.begun, left) {
            tracing::warn!(socket = %self.socket.display(), "{notice}");
        }
        Ok(left.min(SLICE))
    }

    /// What people should know who wait as well, once.
    fn notice(&mut self, waited: Duration, left: Duration) -> Option<String> {
        if self.is_told || waited < NOTICE {
            return None;
        }
        self.is_told = true;
        Some(format!(
            "waiting for QEMU ({}), for {} s more: it serves one client at a time, is another connected?",
            self.what,
            left.as_secs()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_farewell_cuts_all_waits_short_and_leaves_each_machine_its_moment() {
        let begun = Instant::now();
        let within = Duration::from_secs(30);
        let closes = |at: Duration| deadline(begun, within, Some(begun + at)) - begun;
        assert_eq!(deadline(begun, within, None) - begun, within);
        assert_eq!(closes(Duration::ZERO), FAREWELL);
        assert_eq!(closes(Duration::from_secs(5)), Duration::from_secs(5) + FAREWELL);
        assert_eq!(closes(Duration::from_secs(29)), within);
        // The third silent machine, long after the end of the farewell.
        assert_eq!(deadline(begun + within, within, Some(begun)) - begun, within + LEAST);
    }

    #[test]
    fn a_long_wait_says_once_what_it_waits_for() {
        let mut wait = Patience::from(Duration::from_secs(30)).wait("the greeting", Path::new("/run/node-0.qmp"));
        let seconds = Duration::from_secs;
        assert_eq!(wait.notice(seconds(2), seconds(28)), None);
        let notice = wait.notice(seconds(3), seconds(27)).unwrap();
        assert!(notice.starts_with("waiting for QEMU (the greeting), for 27 s more"), "{notice}");
        assert_eq!(wait.notice(seconds(4), seconds(26)), None);
    }
}
