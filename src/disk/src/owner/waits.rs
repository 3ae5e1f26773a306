//! How an owner waits: for a burst to end, for the attachments, for somebody else's write, for a pause to be over.
//!
//! A wait keeps nobody whose wish needs no write: whenever a wish arrives in one, the VM is read, and what is so
//! already is answered. Only while a write of the owner's own takes as long as writes do are wishes merely collected.

use std::{
    future::{Future, pending},
    pin::pin,
    sync::atomic::Ordering,
    time::Duration,
};

use lazuli_azure::{compute::Snapshot, error::ArmError};
use lazuli_plan::{
    model::{ProvisioningState, Vm},
    poll,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    Driver,
    queue::{Goal, Queue},
};

/// How long no request may arrive before a burst counts as over.
const QUIET: Duration = Duration::from_millis(25);
/// The longest an owner waits for a burst to end.
const LONGEST_BURST: Duration = Duration::from_millis(150);
/// How long somebody else's write to the VM is waited for.
const OTHERS_MAY_TAKE: Duration = Duration::from_secs(180);

impl Driver {
    fn arrivals(&self) -> u64 {
        self.shared.queues().get(&self.vm).map_or(0, Queue::arrivals)
    }

    /// Waits until there is a wish that was not looked at.
    async fn arrival(&self) {
        let arrived = self.shared.queues().get(&self.vm).map(Queue::arrived);
        while self.arrivals() == self.looked_at.load(Ordering::Relaxed) {
            match &arrived {
                Some(arrived) => arrived.notified().await,
                None => pending().await,
            }
        }
    }

    /// Waits until no request has arrived for a moment.
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

    /// Waits until the attachments are known, or until something arrives: what leaves need not wait for them.
    pub(super) async fn reservations_or_arrival(&self, deadline: Instant) {
        tokio::select! {
            biased;
            () = self.shared.reservations.known() => {}
            () = self.arrival() => {}
            () = sleep_until(deadline) => {}
        }
    }

    /// Waits for something. Wishes that were not looked at before and need no write are answered meanwhile.
    pub(super) async fn meanwhile<T>(&self, wait: impl Future<Output = T>) -> T {
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
                    // Who does not learn it now learns it when the wait is over.
                    if let Ok(vm) = self.shared.client.get_vm(&self.vm).await {
                        self.settle(&vm.model, &unsent).await;
                    }
                    // What is gone may have to be looked at once more to be believed.
                    match self.shared.reads_tell_since() {
                        Some(since) if self.unsent().values().any(|goal| *goal == Goal::Detached) => {
                            sleep_until(since).await;
                        }
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

    /// Reads the VM until nobody writes to it any more, or for as long as that is worth waiting for.
    pub(super) async fn at_rest(&self) -> Result<Snapshot<Vm>, ArmError> {
        let rest = async {
            let started = Instant::now();
            loop {
                let vm = self.shared.client.get_vm(&self.vm).await?;
                let elapsed = started.elapsed();
                if vm.model.provisioning_state != ProvisioningState::InProgress || elapsed >= OTHERS_MAY_TAKE {
                    return Ok(vm);
                }
                let due = poll::next(poll::Kind::VmAttach, None, None, elapsed);
                sleep(due.saturating_sub(elapsed)).await;
            }
        };
        self.meanwhile(rest).await
    }

    pub(super) async fn pause(&self, pause: Duration) {
        self.meanwhile(sleep(pause)).await;
    }
}
