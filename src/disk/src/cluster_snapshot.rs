//! Parts of the cluster's state, as `lazuli-cluster` publishes them while the process runs.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, pending},
};
use tokio::sync::watch;

/// The latest snapshot of a part of the cluster's state. Clones share the wait for the first one.
#[derive(Clone)]
pub(crate) struct ClusterSnapshot<T> {
    snapshot: watch::Receiver<T>,
    is_known: fn(&T) -> bool,
    /// All waiters share this future, which wakes them in the order in which they came. `watch` wakes its waiters in an
    /// unspecified order, which breaks replay by seed.
    known: Arc<Mutex<Option<Shared<BoxFuture<'static, ()>>>>>,
}

impl<T: fmt::Debug> fmt::Debug for ClusterSnapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClusterSnapshot").field(&self.snapshot).finish()
    }
}

impl<T: Send + Sync + 'static> ClusterSnapshot<T> {
    /// The snapshots that a channel receives. `is_known` is whether a value is one.
    pub(crate) fn new(snapshot: watch::Receiver<T>, is_known: fn(&T) -> bool) -> Self {
        Self { snapshot, is_known, known: Arc::default() }
    }

    /// The latest.
    pub(crate) fn now(&self) -> watch::Ref<'_, T> {
        self.snapshot.borrow()
    }

    /// Waits until there is one. Never returns when the publisher has ended before that.
    pub(crate) async fn known(&self) {
        if (self.is_known)(&self.snapshot.borrow()) {
            return;
        }
        let known = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            match &*known {
                Some(waited_for) if waited_for.peek().is_none() => waited_for.clone(),
                _ => known.insert(wait(self.snapshot.clone(), self.is_known).boxed().shared()).clone(),
            }
        };
        known.await;
    }
}

async fn wait<T: Send + Sync>(mut snapshot: watch::Receiver<T>, is_known: fn(&T) -> bool) {
    if snapshot.wait_for(is_known).await.is_err() {
        pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lazuli_storage::lun::LunReservations;

    use super::*;

    fn known(luns: &LunReservations) -> bool {
        *luns != LunReservations::Cold
    }

    #[tokio::test]
    async fn waiters_are_woken_in_the_order_in_which_they_came() {
        for _ in 0..10 {
            let (publish, snapshot) = watch::channel(LunReservations::Cold);
            let reservations = ClusterSnapshot::new(snapshot, known);
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
        let reservations = ClusterSnapshot::new(snapshot, known);
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
