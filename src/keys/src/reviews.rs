//! Whose turn it is to have a token reviewed. Any client can send one, and a review costs the API server a request.
//!
//! Few reviews run at a time, and few of one source: what a source sends beyond that waits behind its own requests, and
//! delays no other source by more than those few. What it sends beyond what may wait is refused, so that it does not hold
//! the connections of others.

use std::{net::IpAddr, sync::Arc};

use lazuli_model::by_key::ByKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// How many reviews run at a time.
const ALL: usize = 8;
/// How many of one source run or wait for one of those places.
const OF_ONE_SOURCE: usize = 2;

/// How many of one source run or wait: twice what a node asks at a time.
const WAITING: usize = 16;

/// The places in which tokens are reviewed.
#[derive(Debug)]
pub(crate) struct Reviews {
    all: Semaphore,
    sources: ByKey<IpAddr, Source>,
}

#[derive(Debug)]
struct Source {
    waiting: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

impl Default for Source {
    fn default() -> Self {
        Self { waiting: Arc::new(Semaphore::new(WAITING)), running: Arc::new(Semaphore::new(OF_ONE_SOURCE)) }
    }
}

/// The source has more requests than may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'r> {
    _of_all: SemaphorePermit<'r>,
    _of_source: [OwnedSemaphorePermit; 2],
    _source: Arc<Source>,
}

impl Default for Reviews {
    fn default() -> Self {
        Self { all: Semaphore::new(ALL), sources: ByKey::default() }
    }
}

impl Reviews {
    /// Waits for a place.
    ///
    /// # Errors
    /// [`TooMany`] of this source wait already.
    pub(crate) async fn place(&self, source: IpAddr) -> Result<Place<'_>, TooMany> {
        let source = self.sources.of(source);
        let waits = source.waiting.clone().try_acquire_owned().map_err(|_| TooMany)?;
        // None of them is ever closed.
        let runs = source.running.clone().acquire_owned().await.map_err(|_| TooMany)?;
        let all = self.all.acquire().await.map_err(|_| TooMany)?;
        Ok(Place { _of_all: all, _of_source: [waits, runs], _source: source })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    const EACH: Duration = Duration::from_secs(1);

    fn source(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    /// Sends so many reviews of a source, each of a second.
    fn flood(reviews: &Arc<Reviews>, from: u8, many: usize) {
        for _ in 0..many {
            let reviews = reviews.clone();
            tokio::spawn(async move {
                let place = reviews.place(source(from)).await;
                sleep(EACH).await;
                drop(place);
            });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sources_that_send_without_end_delay_another_by_one_round_of_theirs() {
        let reviews = Arc::new(Reviews::default());
        for from in 0..20 {
            flood(&reviews, from, 50);
        }
        sleep(Duration::from_millis(1)).await;
        let began = Instant::now();
        let place = reviews.place(source(200)).await;
        // Twenty sources, two of each, eight at a time.
        assert!(place.is_ok() && began.elapsed() <= EACH * 5, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn one_source_leaves_places_to_all_others_and_is_forgotten_when_it_is_done() {
        let reviews = Arc::new(Reviews::default());
        flood(&reviews, 1, 100);
        sleep(Duration::from_millis(1)).await;
        let began = Instant::now();
        let place = reviews.place(source(2)).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        drop(place);
        // What is too much for it is refused at once.
        assert_eq!(reviews.place(source(1)).await.err(), Some(TooMany));
        sleep(EACH * 51).await;
        drop(reviews.place(source(3)).await);
        assert_eq!(reviews.sources.len(), 1);
    }
}
