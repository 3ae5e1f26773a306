//! The operations in flight by disk: one exclusive operation, or any number of attachments.
//!
//! An exclusive operation runs in a task of its own and goes on when its callers give up. A repeated request joins it. A
//! different request fails with [`Fault::Busy`]. While a disk is being attached or detached, its deletion fails with
//! [`Fault::Busy`] too. Azure would accept the deletion (kubernetes#82714), because the disk counts as unattached until
//! its attach has ended.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::{Debug, Display},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lazuli_model::{
    ArmId,
    fault::{Effect, Fault},
};
use lazuli_telemetry::panics::catch;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error};

use super::VolumeError;

/// Where the result of an operation appears.
type Answer<T> = watch::Receiver<Option<Result<T, VolumeError>>>;

/// The table of operations in flight. Clones share it.
#[derive(Debug)]
pub(crate) struct InFlight<R, T> {
    table: Arc<Mutex<BTreeMap<ArmId, Activity<R, T>>>>,
}

#[derive(Debug)]
enum Activity<R, T> {
    Operation { request: R, answer: watch::Sender<Option<Result<T, VolumeError>>>, wanted: CancellationToken },
    Attachments(usize),
}

impl<R, T> Clone for InFlight<R, T> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone() }
    }
}

impl<R, T> Default for InFlight<R, T> {
    fn default() -> Self {
        Self { table: Arc::default() }
    }
}

/// Keeps a disk from being changed as a whole, for an attach or a detach of it, until dropped.
#[derive(Debug)]
pub(crate) struct Hold<R, T> {
    in_flight: InFlight<R, T>,
    disk: ArmId,
}

impl<R, T> InFlight<R, T> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ArmId, Activity<R, T>>> {
        // Every change is a single insertion or removal, so a panic elsewhere leaves the table consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R, T> InFlight<R, T>
where
    R: PartialEq + Display + Send + 'static,
    T: Clone + Debug + Send + Sync + 'static,
{
    /// Runs an operation on a disk, or joins the running operation of the same request. When all callers have left, the
    /// operation's token is cancelled: the operation then sends no further request that it can leave unsent. A caller that
    /// comes after that and gets no success begins anew.
    ///
    /// # Errors
    /// The operation's own; [`Fault::Busy`] while another operation on the disk is in flight.
    pub(crate) async fn run<F>(
        &self,
        disk: &ArmId,
        request: R,
        operation: impl FnOnce(CancellationToken) -> F,
    ) -> Result<T, VolumeError>
    where
        F: Future<Output = Result<T, VolumeError>> + Send + 'static,
    {
        while let Some(answer) = self.unwanted(disk, &request) {
            if let Ok(done) = answered(disk, answer).await {
                return Ok(done);
            }
        }
        let answer = {
            let mut table = self.lock();
            match table.entry(disk.clone()) {
                Entry::Occupied(entry) => match entry.get() {
                    Activity::Operation { request: running, answer, .. } if *running == request => answer.subscribe(),
                    Activity::Operation { request: running, .. } => {
                        return Err(busy(disk, &format!("{running} is in progress")));
                    }
                    Activity::Attachments(_) => return Err(busy(disk, "it is being attached or detached")),
                },
                Entry::Vacant(entry) => {
                    let (send, answer) = watch::channel(None);
                    let wanted = CancellationToken::new();
                    let operation = operation(wanted.clone());
                    entry.insert(Activity::Operation { request, answer: send.clone(), wanted: wanted.clone() });
                    let removal = Removal { in_flight: self.clone(), disk: disk.clone() };
                    let disk = disk.clone();
                    tokio::spawn(
                        async move {
                            let mut operation = pin!(catch(operation));
                            let result = tokio::select! {
                                biased;
                                result = &mut operation => result,
                                () = send.closed() => {
                                    wanted.cancel();
                                    operation.await
                                }
                            };
                            let result = result.unwrap_or_else(|panicked| {
                                error!(volume = %disk, error = %panicked, "the work on a disk panicked");
                                let message = format!("the work on the disk {disk} was broken off: {panicked}");
                                Err(VolumeError::new(Fault::OutcomeUnknown, message).with_effect(Effect::Possible))
                            });
                            // The entry goes first, because a caller may repeat its request as soon as it has the answer.
                            drop(removal);
                            send.send_replace(Some(result));
                        }
                        .in_current_span(),
                    );
                    answer
                }
            }
        };
        answered(disk, answer).await
    }

    /// The answer of the running operation of this request, if all its callers have left. It may end without having sent
    /// its write.
    fn unwanted(&self, disk: &ArmId, request: &R) -> Option<Answer<T>> {
        match self.lock().get(disk)? {
            Activity::Operation { request: running, answer, wanted } => {
                (running == request && wanted.is_cancelled()).then(|| answer.subscribe())
            }
            Activity::Attachments(_) => None,
        }
    }

    /// Keeps a disk from being changed as a whole until the result is dropped. Several attaches and detaches may hold it
    /// at the same time.
    ///
    /// # Errors
    /// [`Fault::Busy`] while the disk is being made, changed or deleted.
    pub(crate) fn hold(&self, disk: &ArmId) -> Result<Hold<R, T>, VolumeError> {
        match self.lock().entry(disk.clone()).or_insert(Activity::Attachments(0)) {
            Activity::Attachments(count) => *count += 1,
            Activity::Operation { request, .. } => return Err(busy(disk, &format!("{request} is in progress"))),
        }
        Ok(Hold { in_flight: self.clone(), disk: disk.clone() })
    }
}

impl<R, T> InFlight<R, T> {
    /// Whether an attach or a detach of the disk is requested or in flight.
    pub(crate) fn is_attaching_or_detaching(&self, disk: &ArmId) -> bool {
        matches!(self.lock().get(disk), Some(Activity::Attachments(_)))
    }
}

/// The result of an operation, when there is one.
async fn answered<T: Clone>(disk: &ArmId, mut answer: Answer<T>) -> Result<T, VolumeError> {
    let result = match answer.wait_for(Option::is_some).await {
        Ok(result) => result.clone(),
        Err(_) => None,
    };
    result.unwrap_or_else(|| {
        let message = format!("the work on the disk {disk} was broken off");
        Err(VolumeError::new(Fault::OutcomeUnknown, message).with_effect(Effect::Possible))
    })
}

fn busy(disk: &ArmId, why: &str) -> VolumeError {
    VolumeError::new(Fault::Busy, format!("the disk {disk} is busy: {why}"))
}

/// Removes an operation from the table, also when its task panics.
struct Removal<R, T> {
    in_flight: InFlight<R, T>,
    disk: ArmId,
}

impl<R, T> Drop for Removal<R, T> {
    fn drop(&mut self) {
        self.in_flight.lock().remove(&self.disk);
    }
}

impl<R, T> Drop for Hold<R, T> {
    fn drop(&mut self) {
        let mut table = self.in_flight.lock();
        if let Some(Activity::Attachments(count)) = table.get_mut(&self.disk) {
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

    type Table = InFlight<&'static str, u32>;

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
        let first = table.run(&disk_id, "create", |_| async move {
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
                    .run(&disk(), "create", |_| async move {
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
    async fn an_operation_is_cancelled_when_its_last_caller_has_left() {
        let (table, disk_id) = (Table::default(), disk());
        let (learned, learns) = oneshot::channel();
        let mut first = Box::pin(table.run(&disk_id, "create", |wanted| async move {
            wanted.cancelled().await;
            learned.send(()).ok();
            Ok(1)
        }));
        assert!(futures::poll!(&mut first).is_pending());
        tokio::task::yield_now().await;
        drop(first);
        learns.await.unwrap();
    }

    #[tokio::test]
    async fn a_caller_that_comes_after_the_others_have_left_begins_anew() {
        let (table, disk_id) = (Table::default(), disk());
        let (end, ended) = oneshot::channel::<()>();
        let mut first = Box::pin(table.run(&disk_id, "delete", |wanted| async move {
            wanted.cancelled().await;
            ended.await.ok();
            Err(VolumeError::new(Fault::Deadline, "it was not sent"))
        }));
        assert!(futures::poll!(&mut first).is_pending());
        drop(first);
        tokio::task::yield_now().await;
        let mut second = Box::pin(table.run(&disk_id, "delete", |_| async { Ok(2) }));
        assert!(futures::poll!(&mut second).is_pending());
        end.send(()).unwrap();
        assert_eq!(second.await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_different_request_and_an_attach_fail_while_an_operation_is_in_flight() {
        let (table, disk_id) = (Table::default(), disk());
        let mut first = Box::pin(table.run(&disk_id, "create", |_| futures::future::pending()));
        assert!(futures::poll!(&mut first).is_pending());
        let error = table.run(&disk(), "delete", |_| async { Ok(1) }).await.unwrap_err();
        assert_eq!(error.fault, Fault::Busy);
        assert_eq!(table.hold(&disk()).unwrap_err().fault, Fault::Busy);
    }

    #[tokio::test]
    async fn a_disk_is_not_deleted_while_it_is_being_attached() {
        let table = Table::default();
        let (one, two) = (table.hold(&disk()).unwrap(), table.hold(&disk()).unwrap());
        drop(one);
        assert_eq!(table.run(&disk(), "delete", |_| async { Ok(1) }).await.unwrap_err().fault, Fault::Busy);
        drop(two);
        assert_eq!(table.run(&disk(), "delete", |_| async { Ok(1) }).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn an_operation_that_panics_frees_the_disk() {
        let table = Table::default();
        let broken = table.run(&disk(), "create", |_| async { panic!("an operation broke") }).await.unwrap_err();
        assert_eq!((&broken.fault, broken.effect), (&Fault::OutcomeUnknown, Effect::Possible));
        assert!(broken.to_string().contains("an operation broke"), "{broken}");
        assert_eq!(table.run(&disk(), "create", |_| async { Ok(1) }).await.unwrap(), 1);
    }
}
