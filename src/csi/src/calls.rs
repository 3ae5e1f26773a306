//! Calls of a node that outlive their callers: each runs in a task of its own, which goes on when kubelet gives up, and
//! holds the volume meanwhile.

use std::{error::Error, future::Future};

use lazuli_model::fault::Code;
use lazuli_telemetry::panics::{Panicked, catch};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use tonic::{Response, Status};
use tracing::Instrument as _;

use super::{
    locks::Held,
    server::{chain, failure},
};

/// Why a call failed, as far as all services of nodes say it.
pub(crate) trait CallError: Error + Send + Sized + 'static {
    /// The gRPC code.
    fn code(&self) -> Code;
    /// The task was lost.
    fn lost() -> Self;
    /// The work panicked.
    fn panicked(panicked: Panicked) -> Self;

    /// The status of the answer.
    fn status(self) -> Status {
        failure(self.code(), &self)
    }
}

/// The calls that are being carried out, also for callers that have left.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(TaskTracker);

impl Calls {
    /// Waits until every call has ended. None may begin afterwards.
    pub(crate) async fn finish(&self) {
        self.0.close();
        self.0.wait().await;
    }

    /// Runs the call in a task that holds the volume and outlives its caller.
    pub(crate) async fn run<T, E>(
        &self,
        node: &str,
        held: Held,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<Response<T>, Status>
    where
        T: Send + 'static,
        E: CallError,
    {
        let (sender, answer) = oneshot::channel();
        let work = Box::pin(work);
        let node = node.to_owned();
        let task = async move {
            let outcome = catch(work).await.unwrap_or_else(|panicked| {
                let volume = held.volume();
                tracing::error!(volume, node, error = %panicked, "the work of a call panicked");
                Err(E::panicked(panicked))
            });
            drop(held);
            match sender.send(outcome) {
                Ok(()) => {}
                Err(Ok(_)) => tracing::info!("the call was finished after its caller had left"),
                Err(Err(error)) => {
                    let error = chain(&error);
                    tracing::warn!(error, "the call failed after its caller had left");
                }
            }
        };
        self.0.spawn(task.instrument(tracing::Span::current()));
        answer.await.unwrap_or_else(|_| Err(E::lost())).map(Response::new).map_err(CallError::status)
    }
}
