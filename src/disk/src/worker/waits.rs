//! How a VM worker waits: for a burst of requests to end, for the VolumeAttachments, for another writer's write, for
//! the end of a pause.
//!
//! A wait does not delay a request that needs no write. When a request arrives during a wait, the worker reads the VM
//! and answers the requests that the VM meets already. While the worker's own write takes no longer than usual,
//! requests are only collected.

use std::{
    future::{Future, pending},
    pin::pin,
    sync::atomic::Ordering,
    time::Duration,
};

use lazuli_azure::{
    compute::{Freshness, Snapshot},
    error::ArmError,
};
use lazuli_model::{ProvisioningState, Vm};
use lazuli_quota::poll;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{VmWorker, queue::Queue};

/// How long no request may arrive before a burst counts as over.
const QUIET: Duration = Duration::from_millis(25);
/// The longest that a worker waits for a burst to end.
const LONGEST_BURST: Duration = Duration::from_millis(150);
/// The longest that a worker waits for another writer's write of the VM.
const MAX_FOREIGN_WRITE: Duration = Duration::from_secs(180);

/// How soon a worker notices, while it waits for a permit or a read, that its last caller has given up.
const ABANDONED_AFTER: Duration = Duration::from_secs(1);

impl VmWorker {
    pub(super) fn arrivals(&self) -> u64 {
        self.shared.queues().get(&self.vm).map_or(0, Queue::arrivals)
    }

    /// Waits until a request arrives that this worker has not processed yet.
    async fn arrival(&self) {
        let arrived = self.shared.queues().get(&self.vm).map(Queue::arrived);
        while self.arrivals() == self.looked_at.load(Ordering::Relaxed) {
            match &arrived {
                Some(arrived) => arrived.notified().await,
                None => pending().await,
            }
        }
    }

    /// Waits until no request has arrived for [`QUIET`], or for [`LONGEST_BURST`].
    pub(super) async fn burst_over(&self) {
        let latest = Instant::now() + LONGEST_BURST;
        let mut seen = self.arrivals();
        loop {
            sleep(QUIET).await;
            let now = self.arrivals();
            if now == seen || Instant::now() >= latest {
                return;
            }
            seen = now;
        }
    }

    /// Waits until the VolumeAttachments are known, or until a request arrives: a detach does not need them.
    pub(super) async fn reservations_or_arrival(&self, deadline: Instant) {
        tokio::select! {
            biased;
            () = self.shared.reservations.known() => {}
            () = self.arrival() => {}
            () = sleep_until(deadline) => {}
        }
    }

    /// Waits for something while the queue has requests. `None` when every caller has given up.
    pub(super) async fn while_requested<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        let mut wait = pin!(wait);
        loop {
            if let Ok(done) = timeout(ABANDONED_AFTER, &mut wait).await {
                return Some(done);
            }
            let requested = self.shared.queues().get(&self.vm).is_some_and(Queue::has_requests);
            if !requested {
                return None;
            }
        }
    }

    /// Waits for something, and answers requests that arrive during the wait and need no write.
    pub(super) async fn while_answering<T>(&self, wait: impl Future<Output = T>) -> T {
        let mut wait = pin!(wait);
        loop {
            let serve = async {
                self.arrival().await;
                self.burst_over().await;
                loop {
                    self.looked_at.store(self.arrivals(), Ordering::Relaxed);
                    let unsent = self.unsent();
                    if unsent.is_empty() {
                        return;
                    }
                    // A request that a failed read leaves open is answered after the wait.
                    let Ok(vm) = self.read_vm(Freshness::single()).await else { return };
                    let plan = self.answer_without_write(&vm, &unsent).await;
                    // A detach may need one more read, once reads are fresh.
                    match self.shared.fresh_from() {
                        Some(fresh_from) if plan.needs_fresh_read() => sleep_until(fresh_from).await,
                        _ => return,
                    }
                }
            };
            tokio::select! {
                biased;
                done = &mut wait => return done,
                () = serve => {}
            }
        }
    }

    /// Reads the VM until no write of it runs, or for at most [`MAX_FOREIGN_WRITE`].
    pub(super) async fn at_rest(&self) -> Result<Snapshot<Vm>, ArmError> {
        let ended = async {
            let started = Instant::now();
            loop {
                let vm = self.read_vm(Freshness::single()).await?;
                let elapsed = started.elapsed();
                if vm.model.provisioning_state != ProvisioningState::InProgress || elapsed >= MAX_FOREIGN_WRITE {
                    return Ok(vm);
                }
                sleep(poll::again(poll::Kind::VmAttach, elapsed)).await;
            }
        };
        self.while_answering(ended).await
    }

    pub(super) async fn pause(&self, pause: Duration) {
        self.while_answering(sleep(pause)).await;
    }
}
