//! A limit of so many requests in so long a time, whose windows begin at moments that Azure does not tell.
//!
//! The storage provider counts like that, by subscription and region (source: azure-subscription-service-limits; its
//! refusals name `Read_ObservationWindow_00:05:00`, see microsoft/onefuzz#2100). No answer reports what is left. So a
//! window is a log of the requests that Azure may have counted lately. At most as many as the limit are in the log at any
//! moment; then no window of that length holds more, wherever it begins, and whether Azure's windows slide or start anew.
//!
//! - **Arrival.** Azure counts a request when it arrives: after it was sent, before its answer, and at most [`ARRIVAL`]
//!   after it was sent. It stays in the log for one length after the last of these moments. A permit that is not used yet
//!   stays, however long its holder waits with it. A retry is a request of its own, and a request that was refused or
//!   lost counts.
//! - **Clocks.** The length is longer than published by [`SLOWER`], because two clocks differ.
//! - **Other clients.** Other clusters and another replica of this process share the window, and this log does not see
//!   them. The limit is not divided between replicas: one of them leads and sends nearly all requests. A refusal
//!   tells of the others: its `Retry-After` pauses the requests of the limit until Azure's window is over. It also
//!   halves our share of the limit, as in a token bucket, and the share grows back by [`RECOVERY`]. So two busy clients
//!   of the window of one second converge, and a longer window costs each of them about one refusal.
//!
//! The log holds no more entries than the limit.

use std::{collections::BTreeMap, time::Duration};

use super::bucket::{ARRIVAL, RECOVERY, ROUNDING, SLOWER, SMALLEST_SHARE};

/// The log of one window.
#[derive(Debug, Clone)]
pub(super) struct Window {
    limit: usize,
    /// As published.
    published: Duration,
    /// The same by a clock that is slower than ours.
    length: Duration,
    /// The part of the limit that this client uses, at most 1, and since when it has grown from this.
    share: f64,
    shared_at: Duration,
    halved: Option<Duration>,
    /// Permits whose requests are not sent yet.
    unsent: usize,
    /// The latest moments at which sent requests can have arrived, with the number of such requests.
    arrivals: BTreeMap<Duration, usize>,
    /// The sum of those.
    counted: usize,
}

/// A request in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    granted: Duration,
    sent: Option<Duration>,
}

impl Window {
    /// An empty log of at most so many requests, at least one, in so long a time.
    pub(super) fn empty(limit: usize, length: Duration, now: Duration) -> Self {
        Self {
            limit,
            published: length,
            length: length.div_f64(SLOWER),
            share: 1.0,
            shared_at: now,
            halved: None,
            unsent: 0,
            arrivals: BTreeMap::new(),
            counted: 0,
        }
    }

    pub(super) fn published_length(&self) -> Duration {
        self.published
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.arrivals.len()
    }

    /// Whether no window holds both a request that arrived then and one that arrives now.
    fn is_over(&self, arrival: Duration, now: Duration) -> bool {
        arrival.saturating_add(self.length) <= now
    }

    /// Forgets the requests that are over.
    fn refresh(&mut self, now: Duration) {
        while let Some(first) = self.arrivals.first_entry()
            && first.key().saturating_add(self.length) <= now
        {
            self.counted -= first.remove();
        }
    }

    fn share(&self, now: Duration) -> f64 {
        (self.share + now.saturating_sub(self.shared_at).as_secs_f64() * RECOVERY).min(1.0)
    }

    /// How long until so many requests fit into our share of the limit, as it grows; [`Duration::MAX`] when they never do.
    fn growth(&self, requests: usize, now: Duration) -> Duration {
        if requests > self.limit {
            return Duration::MAX;
        }
        // Exact in an f64: no limit is 2^53.
        let missing = requests as f64 / self.limit as f64 - self.share(now);
        // One request is always allowed: nothing else finds out that there is room again.
        if requests <= 1 || missing <= ROUNDING {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(missing / RECOVERY).unwrap_or(Duration::MAX)
    }

    /// How long until so many more requests may go out; zero when they may now.
    pub(super) fn wait(&self, requests: usize, now: Duration) -> Duration {
        // More than the limit needs further windows, each after the one before it.
        let last = requests.saturating_sub(1);
        let (windows, requests) = (last / self.limit, last % self.limit + 1);
        let further = self.length.saturating_mul(u32::try_from(windows).unwrap_or(u32::MAX));
        let over = self.arrivals.iter().take_while(|(arrival, _)| self.is_over(**arrival, now));
        let mut counted = self.unsent + self.counted - over.map(|(_, count)| count).sum::<usize>();
        // With each request that is over fewer are counted, and meanwhile the share grows. What is not sent yet is taken to
        // be sent now, which is the best that can happen.
        let mut soonest = self.growth(counted + requests, now);
        let sent = self.arrivals.iter().skip_while(|(arrival, _)| self.is_over(**arrival, now));
        let sent = sent.map(|(arrival, count)| (*arrival, *count));
        for (arrival, count) in sent.chain([(now.saturating_add(ARRIVAL), self.unsent)]) {
            let over_in = arrival.saturating_add(self.length).saturating_sub(now);
            if soonest <= over_in {
                break;
            }
            counted -= count;
            soonest = soonest.min(over_in.max(self.growth(counted + requests, now)));
        }
        soonest.saturating_add(further)
    }

    pub(super) fn is_at_rest(&self, now: Duration) -> bool {
        self.unsent == 0 && self.arrivals.keys().all(|arrival| self.is_over(*arrival, now)) && self.share(now) >= 1.0
    }

    pub(super) fn take(&mut self, now: Duration) -> Slot {
        self.refresh(now);
        self.unsent += 1;
        Slot { granted: now, sent: None }
    }

    /// Records that a request is sent now.
    pub(super) fn sent(&mut self, slot: Slot, now: Duration) {
        self.move_to(slot, now.saturating_add(ARRIVAL));
        self.refresh(now);
    }

    /// Removes a request that was not sent.
    pub(super) fn give_back(&mut self, slot: Slot) {
        self.remove(slot);
    }

    /// Records that a request was answered or lost: it has arrived by now, if at all.
    pub(super) fn settle(&mut self, slot: Slot, now: Duration) {
        if slot.latest_arrival().is_none_or(|latest| now < latest) {
            self.move_to(slot, now);
        }
        self.refresh(now);
    }

    fn move_to(&mut self, slot: Slot, latest_arrival: Duration) {
        if self.remove(slot) {
            *self.arrivals.entry(latest_arrival).or_default() += 1;
            self.counted += 1;
        }
    }

    /// Whether the request was in the log. Requests with the same latest arrival are alike.
    fn remove(&mut self, slot: Slot) -> bool {
        let Some(latest) = slot.latest_arrival() else {
            self.unsent -= 1;
            return true;
        };
        let Some(count) = self.arrivals.get_mut(&latest) else { return false };
        *count -= 1;
        if *count == 0 {
            self.arrivals.remove(&latest);
        }
        self.counted -= 1;
        true
    }

    /// Halves the share because Azure refused this request, unless it was granted before the last halving or at the same
    /// time.
    pub(super) fn halve_share(&mut self, slot: Slot, now: Duration) {
        if self.halved.is_none_or(|halved| slot.granted > halved) {
            self.share = (self.share(now) / 2.0).max(SMALLEST_SHARE);
            self.shared_at = now;
            self.halved = Some(now);
        }
    }
}

impl Slot {
    /// The same request after it was sent.
    pub(super) fn sent_at(self, now: Duration) -> Self {
        Self { sent: Some(now), ..self }
    }

    /// `None` while it is not sent.
    fn latest_arrival(self) -> Option<Duration> {
        Some(self.sent?.saturating_add(ARRIVAL))
    }
}
