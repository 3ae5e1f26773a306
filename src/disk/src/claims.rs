//! Who is at work on a disk: one exclusive operation, or any number of attachments.
//!
//! An operation belongs to nobody who asked for it. It runs in a task of its own and goes on when its callers give
//! up; the same request, repeated, joins it; a different one is told that the disk is busy. While a disk is being
//! attached or detached nobody deletes it: Azure would allow that (kubernetes#82714), for a disk counts as unattached
//! until its attachment has ended.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::{Debug, Display},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lazuli_plan::{fault::Fault, model::ArmId};
use tokio::sync::watch;
use tracing::Instrument;

use super::VolumeError;

/// The table; clones share it.
#[derive(Debug)]
pub(crate) struct Claims<R, T> {
    table: Arc<Mutex<BTreeMap<ArmId, Claim<R, T>>>>,
}

#[derive(Debug)]
enum Claim<R, T> {
    Flight { request: R, answer: watch::Receiver<Option<Result<T, VolumeError>>> },
    Attachments(usize),
}

impl<R, T> Clone for Claims<R, T> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone() }
    }
}

impl<R, T> Default for Claims<R, T> {
    fn default() -> Self {
        Self { table: Arc::default() }
    }
}

/// Holds a disk for an attachment or a detachment until dropped.
#[derive(Debug)]
pub(crate) struct Hold<R, T> {
    claims: Claims<R, T>,
    disk: ArmId,
}

impl<R, T> Claims<R, T> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ArmId, Claim<R, T>>> {
        // A panic elsewhere leaves the table whole: every change is a single insertion or removal.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R, T> Claims<R, T>
where
    R: PartialEq + Display + Send + 'static,
    T: Clone + Debug + Send + Sync + 'static,
{
    /// Runs an operation on a disk, or joins the same one that is running.
    ///
    /// # Errors
    /// The operation's own; [`Fault::Busy`] while something else is at work on the disk.
    pub(crate) async fn run<F>(&self, disk: &ArmId, request: R, operation: F) -> Result<T, VolumeError>
    where
        F: Future<Output = Result<T, VolumeError>> + Send + 'static,
    {
        let mut answer = {
            let mut table = self.lock();
            match table.entry(disk.clone()) {
                Entry::Occupied(entry) => match entry.get() {
                    Claim::Flight { request: running, answer } if *running == request => answer.clone(),
                    Claim::Flight { request: running, .. } => {
                        return Err(busy(disk, &format!("{running} is in progress")));
                    }
                    Claim::Attachments(_) => return Err(busy(disk, "it is being attached or detached")),
                },
                Entry::Vacant(entry) => {
                    let (send, answer) = watch::channel(None);
                    entry.insert(Claim::Flight { request, answer: answer.clone() });
                    let landing = Landing { claims: self.clone(), disk: disk.clone() };
                    tokio::spawn(
                        async move {
                            let result = operation.await;
                            // The table first: who sees the answer may ask again at once.
                            drop(landing);
                            send.send_replace(Some(result));
                        }
                        .in_current_span(),
                    );
                    answer
                }
            }
        };
        let result = match answer.wait_for(Option::is_some).await {
            Ok(result) => result.clone(),
            Err(_) => None,
        };
        result.unwrap_or_else(|| {
            Err(VolumeError::new(Fault::OutcomeUnknown, format!("the work on {disk} was broken off")))
        })
    }

    /// Holds a disk for an attachment or a detachment; several may hold it together.
    ///
    /// # Errors
    /// [`Fault::Busy`] while the disk is being made, changed or deleted.
    pub(crate) fn hold(&self, disk: &ArmId) -> Result<Hold<R, T>, VolumeError> {
        match self.lock().entry(disk.clone()).or_insert(Claim::Attachments(0)) {
            Claim::Attachments(count) => *count += 1,
            Claim::Flight { request, .. } => return Err(busy(disk, &format!("{request} is in progress"))),
        }
        Ok(Hold { claims: self.clone(), disk: disk.clone() })
    }
}

impl<R, T> Claims<R, T> {
    /// Whether an attachment or a detachment of the disk is waiting or under way.
    pub(crate) fn is_held(&self, disk: &ArmId) -> bool {
        matches!(self.lock().get(disk), Some(Claim::Attachments(_)))
    }
}

fn busy(disk: &ArmId, why: &str) -> VolumeError {
    VolumeError::new(Fault::Busy, format!("the disk {disk} is busy: {why}"))
}

/// Takes a flight out of the table, also when its task panics.
struct Landing<R, T> {
    claims: Claims<R, T>,
    disk: ArmId,
}

impl<R, T> Drop for Landing<R, T> {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.disk);
    }
}

impl<R, T> Drop for Hold<R, T> {
    fn drop(&mut self) {
        let mut table = self.claims.lock();
        if let Some(Claim::Attachments(count)) = table.get_mut(&self.disk) {
            *count -= 1;
            if *count == 0 {
                table.remove(&self.disk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::oneshot;

    type Table = Claims<&'static str, u32>;

    fn disk() -> ArmId {
        ArmId::disk("s", "g", "d").unwrap()
    }

    #[tokio::test]
    async fn the_same_request_joins_and_a_caller_that_gives_up_stops_nothing() {
        let table = Table::default();
        let runs = Arc::new(AtomicUsize::new(0));
        let (go, gate) = oneshot::channel::<()>();
        let counted = runs.clone();
        let disk_id = disk();
        let first = table.run(&disk_id, "create", async move {
            counted.fetch_add(1, Ordering::SeqCst);
            gate.await.ok();
            Ok(7)
        });
        let mut first = Box::pin(first);
        assert!(futures::poll!(&mut first).is_pending());
        drop(first);
        let counted = runs.clone();
        let second = tokio::spawn({
            let table = table.clone();
            async move {
                table
                    .run(&disk(), "create", async move {
                        counted.fetch_add(1, Ordering::SeqCst);
                        Ok(8)
                    })
                    .await
            }
        });
        tokio::task::yield_now().await;
        go.send(()).unwrap();
        assert_eq!(second.await.unwrap().unwrap(), 7);
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_different_request_finds_the_disk_busy_and_so_does_an_attachment() {
        let (table, disk_id) = (Table::default(), disk());
        let mut first = Box::pin(table.run(&disk_id, "create", futures::future::pending()));
        assert!(futures::poll!(&mut first).is_pending());
        let error = table.run(&disk(), "delete", async { Ok(1) }).await.unwrap_err();
        assert_eq!(error.fault, Fault::Busy);
        assert_eq!(table.hold(&disk()).unwrap_err().fault, Fault::Busy);
    }

    #[tokio::test]
    async fn a_disk_is_not_deleted_while_it_is_being_attached() {
        let table = Table::default();
        let (one, two) = (table.hold(&disk()).unwrap(), table.hold(&disk()).unwrap());
        drop(one);
        assert_eq!(table.run(&disk(), "delete", async { Ok(1) }).await.unwrap_err().fault, Fault::Busy);
        drop(two);
        assert_eq!(table.run(&disk(), "delete", async { Ok(1) }).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn an_operation_that_panics_frees_the_disk() {
        let table = Table::default();
        let broken = table.run(&disk(), "create", async { panic!("an operation broke") }).await;
        assert_eq!(broken.unwrap_err().fault, Fault::OutcomeUnknown);
        assert_eq!(table.run(&disk(), "create", async { Ok(1) }).await.unwrap(), 1);
    }
}
