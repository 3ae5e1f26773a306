//! Until when this replica leads.

use std::time::Duration;

use lazuli_engine as engine;
use tokio::sync::watch;

use crate::Clock;

/// Records renewals of the lease, as the task that renews it in the API server reports them.
#[derive(Debug)]
pub struct LeaseHolder {
    until: watch::Sender<Option<Duration>>,
}

/// The lease as the steps see it.
#[derive(Debug, Clone)]
pub struct Lease {
    until: watch::Receiver<Option<Duration>>,
    least: Duration,
    clock: Clock,
}

impl LeaseHolder {
    /// A lease that is not held yet. `least` is the remaining lease below which no write starts: the time-out of a request
    /// and a margin.
    pub fn new(clock: Clock, least: Duration) -> (Self, Lease) {
        let (sender, until) = watch::channel(None);
        (Self { until: sender }, Lease { until, least, clock })
    }

    /// The lease is held until then, by this process's monotonic clock: the time at which the renewal was sent, and the
    /// duration of the lease.
    pub fn renewed(&self, until: Duration) {
        self.until.send_replace(Some(until));
    }

    /// The lease is given up.
    pub fn released(&self) {
        self.until.send_replace(None);
    }
}

impl Lease {
    /// The lease for a step.
    pub fn now(&self) -> engine::Lease {
        engine::Lease { until: *self.until.borrow(), least: self.least }
    }

    /// Whether this replica leads now.
    pub fn is_held(&self) -> bool {
        self.now().is_held(self.clock.now())
    }

    /// Waits until the lease has run out, or was given up, after it was held.
    pub async fn lost(&mut self) {
        loop {
            let until = *self.until.borrow_and_update();
            let Some(until) = until else {
                // Not held yet, or given up.
                if self.until.changed().await.is_err() || self.until.borrow().is_none() {
                    return;
                }
                continue;
            };
            let renewed = tokio::time::timeout_at(self.clock.at(until), self.until.changed()).await;
            match renewed {
                Ok(Ok(())) if self.until.borrow().is_some() => {}
                Ok(Err(_)) => {
                    tokio::time::sleep_until(self.clock.at(until)).await;
                    return;
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_lost_when_it_is_not_renewed_or_given_up() {
        let clock = Clock::start();
        let (holder, lease) = LeaseHolder::new(clock, Duration::from_secs(5));
        assert_eq!(lease.now().until, None);
        holder.renewed(Duration::from_secs(10));
        assert!(lease.now().covers_write(Duration::from_secs(5)));
        let mut watched = lease.clone();
        let lost = tokio::spawn(async move {
            watched.lost().await;
            clock.now()
        });
        tokio::time::sleep(Duration::from_secs(8)).await;
        holder.renewed(Duration::from_secs(18));
        assert_eq!(lost.await.unwrap(), Duration::from_secs(18));

        let mut watched = lease.clone();
        holder.renewed(Duration::from_secs(60));
        let lost = tokio::spawn(async move {
            watched.lost().await;
            clock.now()
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        holder.released();
        assert_eq!(lost.await.unwrap(), Duration::from_secs(20));
    }
}
