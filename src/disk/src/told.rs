//! What Kubernetes tells while the process runs, and the moment from which it is known. `lazuli-cluster` tells it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, pending},
};
use tokio::sync::watch;

/// A part of the cluster's state as last told. Clones share the wait for the first of it.
#[derive(Clone)]
pub(crate) struct Told<T> {
    told: watch::Receiver<T>,
    is_known: fn(&T) -> bool,
    /// All wait for this one future, which wakes them in the order in which they came. The channel itself would
    /// wake them in an order of tokio's own chance, and the same seed would give another call log.
    known: Arc<Mutex<Option<Shared<BoxFuture<'static, ()>>>>>,
}

impl<T: fmt::Debug> fmt::Debug for Told<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Told").field(&self.told).finish()
    }
}

impl<T: Send + Sync + 'static> Told<T> {
    /// What `told` receives. `is_known` says whether a value says anything.
    pub(crate) fn new(told: watch::Receiver<T>, is_known: fn(&T) -> bool) -> Self {
        Self { told, is_known, known: Arc::default() }
    }

    /// What is told now.
    pub(crate) fn now(&self) -> watch::Ref<'_, T> {
        self.told.borrow()
    }

    /// Waits until it is known; for ever, once its sender is gone.
    pub(crate) async fn known(&self) {
        if (self.is_known)(&self.told.borrow()) {
            return;
        }
        let known = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            match &*known {
                Some(waited_for) if waited_for.peek().is_none() => waited_for.clone(),
                _ => known.insert(wait(self.told.clone(), self.is_known).boxed().shared()).clone(),
            }
        };
        known.await;
    }
}

async fn wait<T: Send + Sync>(mut told: watch::Receiver<T>, is_known: fn(&T) -> bool) {
    if told.wait_for(is_known).await.is_err() {
        pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lazuli_plan::lun::LunReservations;

    use super::*;

    fn known(luns: &LunReservations) -> bool {
        *luns != LunReservations::Cold
    }

    #[tokio::test]
    async fn those_who_wait_are_woken_in_the_order_in_which_they_came() {
        for _ in 0..10 {
            let (tell, told) = watch::channel(LunReservations::Cold);
            let reservations = Told::new(told, known);
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
        let reservations = Told::new(told, known);
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
