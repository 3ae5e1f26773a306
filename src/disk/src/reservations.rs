//! The LUNs that VolumeAttachments name, as the crate that watches the cluster publishes them.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, pending},
};
use lazuli_plan::lun::LunReservations;
use tokio::sync::watch;

/// The latest snapshot of the cluster's VolumeAttachments. Clones share the wait for the first one.
#[derive(Clone)]
pub(crate) struct Reservations {
    snapshot: watch::Receiver<LunReservations>,
    /// All waiters share this future, which wakes them in the order in which they came. `watch` wakes its waiters in an
    /// unspecified order, which breaks replay by seed.
    known: Arc<Mutex<Option<Shared<BoxFuture<'static, ()>>>>>,
}

impl fmt::Debug for Reservations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reservations").field(&self.snapshot).finish()
    }
}

impl Reservations {
    pub(crate) fn new(snapshot: watch::Receiver<LunReservations>) -> Self {
        Self { snapshot, known: Arc::default() }
    }

    /// What is known now.
    pub(crate) fn now(&self) -> watch::Ref<'_, LunReservations> {
        self.snapshot.borrow()
    }

    /// Waits until the VolumeAttachments are known. Never returns when their publisher has ended before that.
    pub(crate) async fn known(&self) {
        if *self.snapshot.borrow() != LunReservations::Cold {
            return;
        }
        let known = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            match &*known {
                Some(waited_for) if waited_for.peek().is_none() => waited_for.clone(),
                _ => known.insert(wait(self.snapshot.clone()).boxed().shared()).clone(),
            }
        };
        known.await;
    }
}

async fn wait(mut snapshot: watch::Receiver<LunReservations>) {
    if snapshot.wait_for(|state| *state != LunReservations::Cold).await.is_err() {
        pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[tokio::test]
    async fn waiters_are_woken_in_the_order_in_which_they_came() {
        for _ in 0..10 {
            let (publish, snapshot) = watch::channel(LunReservations::Cold);
            let reservations = Reservations::new(snapshot);
            let woken = Arc::new(Mutex::new(Vec::new()));
            let waiters: Vec<_> = (0..20)
                .map(|at| {
                    let (reservations, woken) = (reservations.clone(), woken.clone());
                    tokio::spawn(async move {
                        reservations.known().await;
                        woken.lock().unwrap().push(at);
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            publish.send_replace(LunReservations::Synced(BTreeMap::new()));
            for waiter in waiters {
                waiter.await.unwrap();
            }
            assert_eq!(*woken.lock().unwrap(), (0..20).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn a_wait_begins_again_when_the_attachments_are_not_known_any_more() {
        let (publish, snapshot) = watch::channel(LunReservations::Cold);
        let reservations = Reservations::new(snapshot);
        for _ in 0..2 {
            publish.send_replace(LunReservations::Cold);
            let mut known = Box::pin(reservations.known());
            assert!(futures::poll!(&mut known).is_pending());
            publish.send_replace(LunReservations::Synced(BTreeMap::new()));
            known.await;
        }
        drop(publish);
        reservations.known().await;
    }
}
