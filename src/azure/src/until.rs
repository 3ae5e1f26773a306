//! How long a caller waits.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

/// A deadline, and ways to give up before it. The deadline is of tokio's clock.
///
/// | made by | what counts |
/// |---|---|
/// | [`Until::within`], [`Until::new`] | all time: the caller's own deadline |
/// | [`Until::working`] | time outside of the queue for permits, so that a long queue takes no time from Azure |
///
/// Clones share one deadline; the time of [`Until::working`] stops while any request of theirs waits for a permit.
#[derive(Debug, Clone)]
pub struct Until {
    deadline: Deadline,
    cancel: CancellationToken,
    wanted: Option<CancellationToken>,
    leads: Option<Leads>,
}

/// Whether this replica leads, asked anew each time.
#[derive(Clone)]
struct Leads(Arc<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for Leads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leads").field(&(self.0)()).finish()
    }
}

#[derive(Debug, Clone)]
enum Deadline {
    None,
    At(Instant),
    Working(Arc<WorkClock>),
}

/// A deadline that moves while a request waits for a permit.
#[derive(Debug)]
struct WorkClock {
    state: Mutex<WorkState>,
    goes_on: Notify,
}

#[derive(Debug, Clone, Copy)]
struct WorkState {
    deadline: Instant,
    /// The number of requests that wait for a permit, and since when any does.
    waiting: u32,
    since: Instant,
}

/// The caller has stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    Deadline,
    Cancelled,
    Unwanted,
    LeadsNoMore,
}

impl Interrupted {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "the time for this call is over",
            Self::Cancelled => "the call was cancelled",
            Self::Unwanted => "no caller waits for this request any more; it was not sent",
            Self::LeadsNoMore => "this replica leads no more",
        }
    }
}

impl Until {
    fn of(deadline: Deadline, cancel: CancellationToken) -> Self {
        Self { deadline, cancel, wanted: None, leads: None }
    }

    /// Until a moment, or until it is cancelled.
    pub fn new(deadline: Instant, cancel: CancellationToken) -> Self {
        Self::of(Deadline::At(deadline), cancel)
    }

    /// For this long from now. Waits of any kind count.
    pub fn within(time: Duration) -> Self {
        Self::new(Instant::now() + time, CancellationToken::new())
    }

    /// For this long from now, without the time in which a request waits for a permit.
    pub fn working(time: Duration) -> Self {
        let now = Instant::now();
        let state = Mutex::new(WorkState { deadline: now + time, waiting: 0, since: now });
        let work = WorkClock { state, goes_on: Notify::new() };
        Self::of(Deadline::Working(Arc::new(work)), CancellationToken::new())
    }

    /// Until it is cancelled, however long that takes.
    pub fn cancelled(cancel: CancellationToken) -> Self {
        Self::of(Deadline::None, cancel)
    }

    /// Until this is cancelled too, but only while Azure has certainly done nothing: the request was not sent, or Azure
    /// refused it. It then leaves the queue or ends its pause with
    /// [`Fault::Deadline`](lazuli_model::fault::Fault::Deadline) and without effect, and is never sent. A request that
    /// Azure may have acted on goes on, and so does the polling of the operation that it started.
    #[must_use]
    pub fn while_wanted(mut self, wanted: CancellationToken) -> Self {
        self.wanted = Some(wanted);
        self
    }

    /// Only while this says that this replica leads. It is asked before each step of a write, up to the one that hands it to
    /// its connection: a process that stood still goes on where it stopped, and another replica may lead by then.
    #[must_use]
    pub fn while_leading(mut self, leads: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.leads = Some(Leads(Arc::new(leads)));
        self
    }

    /// The same for the requests that follow a write that was sent: they are needed also when no caller waits.
    pub(crate) fn after_sending(&self) -> Self {
        Self { wanted: None, ..self.clone() }
    }

    /// What is left; `None` without a deadline.
    pub(crate) fn left(&self) -> Option<Duration> {
        match &self.deadline {
            Deadline::None => None,
            Deadline::At(deadline) => Some(deadline.saturating_duration_since(Instant::now())),
            Deadline::Working(work) => Some(work.left()),
        }
    }

    /// Runs a future to its end, unless the caller stops waiting first.
    pub(crate) async fn run<F: Future>(&self, future: F) -> Result<F::Output, Interrupted> {
        let deadline = async {
            match &self.deadline {
                Deadline::None => std::future::pending().await,
                Deadline::At(deadline) => tokio::time::sleep_until(*deadline).await,
                // On the heap: this future is part of every future of a call, several times over.
                Deadline::Working(work) => Box::pin(work.over()).await,
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

    /// Runs a future that sends a write, unless the caller stops waiting first, and only while this replica leads.
    pub(crate) async fn run_write<F: Future>(&self, write: F) -> Result<F::Output, Interrupted> {
        let mut write = pin!(write);
        let leading = poll_fn(|context| match self.check_leads() {
            Ok(()) => write.as_mut().poll(context).map(Ok),
            Err(why) => Poll::Ready(Err(why)),
        });
        self.run(leading).await?
    }

    fn check_leads(&self) -> Result<(), Interrupted> {
        match &self.leads {
            Some(Leads(leads)) if !leads() => Err(Interrupted::LeadsNoMore),
            _ => Ok(()),
        }
    }

    /// Runs a wait for a permit to its end, unless the caller stops waiting first. While Azure has done nothing, the
    /// request is also given up when no caller wants it any more.
    pub(crate) async fn run_queued<F: Future>(&self, nothing_done: bool, future: F) -> Result<F::Output, Interrupted> {
        let _pause = match &self.deadline {
            Deadline::Working(work) => Some(ClockPause::new(work)),
            Deadline::None | Deadline::At(_) => None,
        };
        self.run_wanted(nothing_done, future).await
    }

    async fn run_wanted<F: Future>(&self, nothing_done: bool, future: F) -> Result<F::Output, Interrupted> {
        let unwanted = async {
            match &self.wanted {
                Some(wanted) if nothing_done => wanted.cancelled().await,
                _ => std::future::pending().await,
            }
        };
        self.run(async {
            tokio::select! {
                biased;
                () = unwanted => Err(Interrupted::Unwanted),
                output = future => Ok(output),
            }
        })
        .await?
    }

    /// Sleeps before a request is sent again, unless the caller stops waiting first. While Azure has done nothing, the
    /// request is also given up when no caller wants it any more.
    pub(crate) async fn sleep(&self, nothing_done: bool, time: Duration) -> Result<(), Interrupted> {
        self.run_wanted(nothing_done, tokio::time::sleep(time)).await
    }

    /// Whether a request may be sent now: there is time, and while Azure has done nothing, a caller wants it.
    pub(crate) fn check_before_sending(&self, nothing_done: bool) -> Result<(), Interrupted> {
        if nothing_done && self.wanted.as_ref().is_some_and(CancellationToken::is_cancelled) {
            return Err(Interrupted::Unwanted);
        }
        self.check_leads()?;
        self.check()
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

impl WorkClock {
    fn lock(&self) -> MutexGuard<'_, WorkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self) -> Duration {
        let state = *self.lock();
        let now = if state.waiting > 0 { state.since } else { Instant::now() };
        state.deadline.saturating_duration_since(now)
    }

    /// Waits until the time is over.
    async fn over(&self) {
        loop {
            let mut goes_on = pin!(self.goes_on.notified());
            goes_on.as_mut().enable();
            let state = *self.lock();
            if state.waiting > 0 {
                goes_on.await;
                continue;
            }
            tokio::time::sleep_until(state.deadline).await;
            if self.left().is_zero() {
                return;
            }
        }
    }
}

/// The clock stands still until this is dropped.
struct ClockPause<'a>(&'a WorkClock);

impl<'a> ClockPause<'a> {
    fn new(work: &'a WorkClock) -> Self {
        let mut state = work.lock();
        if state.waiting == 0 {
            state.since = Instant::now();
        }
        state.waiting += 1;
        drop(state);
        Self(work)
    }
}

impl Drop for ClockPause<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.waiting -= 1;
        if state.waiting == 0 {
            let stood_still = state.since.elapsed();
            state.deadline += stood_still;
            drop(state);
            self.0.goes_on.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn seconds(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_to_work_stands_still_while_any_request_waits_for_a_permit() {
        let until = Until::working(Duration::from_secs(10));
        let began = Instant::now();
        let works = until.run(std::future::pending::<()>());
        let first = async {
            seconds(5).await;
            until.run_queued(true, seconds(20)).await
        };
        let second = async {
            seconds(15).await;
            until.clone().run_queued(true, seconds(20)).await
        };
        let (works, first, second) = tokio::join!(works, first, second);
        assert_eq!((works, first, second), (Err(Interrupted::Deadline), Ok(()), Ok(())));
        // From 5 s to 35 s it stood still.
        assert_eq!(began.elapsed().as_secs(), 40);
        assert_eq!(until.left(), Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_callers_own_deadline_counts_in_the_queue_too_and_cancelling_ends_any_wait() {
        let until = Until::within(Duration::from_secs(10));
        assert_eq!(until.run_queued(true, seconds(20)).await, Err(Interrupted::Deadline));
        let cancel = CancellationToken::new();
        let until = Until::cancelled(cancel.clone());
        let cancelled = async {
            seconds(1).await;
            cancel.cancel();
        };
        let (waited, ()) = tokio::join!(until.run_queued(false, seconds(20)), cancelled);
        assert_eq!(waited, Err(Interrupted::Cancelled));
    }

    /// The first poll connects, the second sends. The process stands still between the two.
    #[tokio::test(start_paused = true)]
    async fn a_write_is_not_sent_by_a_replica_whose_lease_ran_out_while_it_stood_still() {
        for (stood_still, expected) in [(14, Poll::Ready(Ok(()))), (16, Poll::Ready(Err(Interrupted::LeadsNoMore)))] {
            let lease = Instant::now() + Duration::from_secs(15);
            let until = Until::within(Duration::from_secs(60)).while_leading(move || Instant::now() < lease);
            let mut polls = 0;
            let mut write = pin!(until.run_write(poll_fn(|context| {
                polls += 1;
                if polls > 1 {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })));
            let first = poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await;
            assert_eq!(first, Poll::Pending);
            tokio::time::advance(Duration::from_secs(stood_still)).await;
            let second = poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await;
            assert_eq!(second, expected, "{stood_still} s");
            let is_checked = until.check_before_sending(true);
            assert_eq!(is_checked.is_ok(), stood_still < 15, "{is_checked:?}");
        }
    }
}
