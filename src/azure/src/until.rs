//! How long a caller waits.

use std::{future::Future, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A deadline, and a way to give up before it. The deadline is of tokio's clock.
#[derive(Debug, Clone)]
pub struct Until {
    deadline: Option<Instant>,
    cancel: CancellationToken,
}

/// The caller has stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    Deadline,
    Cancelled,
}

impl Interrupted {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "the time for this call is over",
            Self::Cancelled => "the call was cancelled",
        }
    }
}

impl Until {
    /// Until a moment, or until it is cancelled.
    pub fn new(deadline: Instant, cancel: CancellationToken) -> Self {
        Self { deadline: Some(deadline), cancel }
    }

    /// For this long from now.
    pub fn within(time: Duration) -> Self {
        Self::new(Instant::now() + time, CancellationToken::new())
    }

    /// Until it is cancelled, however long that takes.
    pub fn cancelled(cancel: CancellationToken) -> Self {
        Self { deadline: None, cancel }
    }

    /// What is left; `None` without a deadline.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Runs a future to its end, unless the caller stops waiting first.
    pub(crate) async fn run<F: Future>(&self, future: F) -> Result<F::Output, Interrupted> {
        let deadline = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        // Biased, so that the same run gives the same outcome; a result that is there beats the deadline.
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Interrupted::Cancelled),
            output = future => Ok(output),
            () = deadline => Err(Interrupted::Deadline),
        }
    }

    /// Sleeps, unless the caller stops waiting first.
    pub(crate) async fn sleep(&self, time: Duration) -> Result<(), Interrupted> {
        self.run(tokio::time::sleep(time)).await
    }

    /// Whether there is anything to wait for.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        if self.cancel.is_cancelled() {
            return Err(Interrupted::Cancelled);
        }
        match self.left() {
            Some(Duration::ZERO) => Err(Interrupted::Deadline),
            _ => Ok(()),
        }
    }
}
