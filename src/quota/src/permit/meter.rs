//! What keeps count of one limit of a policy: a token bucket or a window.

use std::time::Duration;

use super::{
    bucket::{Bucket, Mark},
    policy::{Limit, Rule},
    window::{Slot, Window},
};

/// The count of one limit.
#[derive(Debug, Clone)]
pub(super) enum Meter {
    Bucket(Bucket),
    Window(Window),
}

/// One request in that count.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    Bucket(Mark),
    Window(Slot),
}

impl Taken {
    /// The same request after it was sent.
    pub(super) fn sent_at(self, now: Duration) -> Self {
        match self {
            Self::Bucket(_) => self,
            Self::Window(slot) => Self::Window(slot.sent_at(now)),
        }
    }
}

impl Meter {
    /// The count of a limit of which nothing has been used.
    pub(super) fn unused(limit: &Limit, now: Duration) -> Self {
        match limit.rule {
            Rule::Bucket { size, per_minute } => Self::Bucket(Bucket::full(size, per_minute / 60.0, now)),
            Rule::Window { requests, length } => Self::Window(Window::empty(requests, length, now)),
        }
    }

    /// How long until so many more requests may go out; zero when they may now.
    pub(super) fn wait(&self, requests: usize, now: Duration) -> Duration {
        match self {
            // Exact in an f64: no list has 2^53 pages.
            Self::Bucket(bucket) => bucket.wait(requests as f64, now),
            Self::Window(window) => window.wait(requests, now),
        }
    }

    /// Whether it is as one of which nothing has been used.
    pub(super) fn is_at_rest(&self, now: Duration) -> bool {
        match self {
            Self::Bucket(bucket) => bucket.is_at_rest(now),
            Self::Window(window) => window.is_at_rest(now),
        }
    }

    pub(super) fn take(&mut self, now: Duration) -> Taken {
        match self {
            Self::Bucket(bucket) => Taken::Bucket(bucket.take(now)),
            Self::Window(window) => Taken::Window(window.take(now)),
        }
    }

    /// Records that a request is sent now.
    pub(super) fn sent(&mut self, taken: Taken, now: Duration) {
        if let (Self::Window(window), Taken::Window(slot)) = (self, taken) {
            window.sent(slot, now);
        }
    }

    /// Returns what was taken for a request that was not sent.
    pub(super) fn give_back(&mut self, taken: Taken, now: Duration) {
        match (self, taken) {
            (Self::Bucket(bucket), Taken::Bucket(_)) => bucket.give_back(now),
            (Self::Window(window), Taken::Window(slot)) => window.give_back(slot),
            (Self::Bucket(_), Taken::Window(_)) | (Self::Window(_), Taken::Bucket(_)) => {}
        }
    }

    /// Records that a request was answered or lost.
    pub(super) fn settle(&mut self, taken: Taken, now: Duration) {
        match (self, taken) {
            (Self::Bucket(bucket), Taken::Bucket(_)) => bucket.settle(now),
            (Self::Window(window), Taken::Window(slot)) => window.settle(slot, now),
            (Self::Bucket(_), Taken::Window(_)) | (Self::Window(_), Taken::Bucket(_)) => {}
        }
    }

    /// Records what remained of a bucket when Azure counted the request. No answer tells it of a window.
    pub(super) fn reported(&mut self, taken: Taken, remaining: u32, now: Duration) {
        if let (Self::Bucket(bucket), Taken::Bucket(mark)) = (self, taken) {
            bucket.reported(mark, remaining, now);
        }
    }

    /// Records that Azure refused a request by this limit.
    pub(super) fn refused(&mut self, taken: Taken, retry_after: Option<Duration>, now: Duration) {
        match (self, taken) {
            (Self::Bucket(bucket), Taken::Bucket(_)) => bucket.refused(retry_after, now),
            (Self::Window(window), Taken::Window(slot)) => window.halve_share(slot, now),
            (Self::Bucket(_), Taken::Window(_)) | (Self::Window(_), Taken::Bucket(_)) => {}
        }
    }

    /// The length of a window, as published.
    pub(super) fn window(&self) -> Option<Duration> {
        match self {
            Self::Bucket(_) => None,
            Self::Window(window) => Some(window.published_length()),
        }
    }
}
