//! What Kubernetes says about LUNs, and the moment from which that is known. Nothing is said here: who watches the
//! cluster tells.

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

/// The cluster's VolumeAttachments as last told; clones share the wait for the first of them.
#[derive(Clone)]
pub(crate) struct Reservations {
    told: watch::Receiver<LunReservations>,
    /// Everybody waits for this one future, which wakes them in the order in which they came. The channel itself would
    /// wake them in an order of tokio's own chance, and the same seed would make another story.
    known: Arc<Mutex<Option<Shared<BoxFuture<'static, ()>>>>>,
}

impl fmt::Debug for Reservations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reservations").field(&self.told).finish()
    }
}

impl Reservations {
    pub(crate) fn new(told: watch::Receiver<LunReservations>) -> Self {
        Self { told, known: Arc::default() }
    }

    /// What is known now.
    pub(crate) fn now(&self) -> watch::Ref<'_, LunReservations> {
        self.told.borrow()
    }

    /// Waits until the attachments are known; for ever, should nobody be left who could tell.
    pub(crate) async fn known(&self) {
        if *self.told.borrow() != LunReservations::Cold {
            return;
        }
        let known = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            match &*known {
                Some(waited_for) if waited_for.peek().is_none() => waited_for.clone(),
                _ => known.insert(wait(self.told.clone()).boxed().shared()).clone(),
            }
        };
        known.await;
    }
}

async fn wait(mut told: watch::Receiver<LunReservations>) {
    if told.wait_for(|state| *state != LunReservations::Cold).await.is_err() {
        pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[tokio::test]
    async fn those_who_wait_are_woken_in_the_order_in_which_they_came() {
        for _ in 0..10 {
            let (tell, told) = watch::channel(LunReservations::Cold);
            let reservations = Reservations::new(told);
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
            tell.send_replace(LunReservations::Synced(BTreeMap::new()));
            for waiter in waiters {
                waiter.await.unwrap();
            }
            assert_eq!(*woken.lock().unwrap(), (0..20).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn what_was_known_and_is_known_no_more_is_waited_for_anew() {
        let (tell, told) = watch::channel(LunReservations::Cold);
        let reservations = Reservations::new(told);
        for _ in 0..2 {
            tell.send_replace(LunReservations::Cold);
            let mut known = Box::pin(reservations.known());
            assert!(futures::poll!(&mut known).is_pending());
            tell.send_replace(LunReservations::Synced(BTreeMap::new()));
            known.await;
        }
        drop(tell);
        reservations.known().await;
    }
}
