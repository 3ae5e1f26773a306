//! What is under way for one key, and can be dropped.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use lazuli_engine::Id;
use tokio_util::sync::CancellationToken;

/// What is under way for one key that its step may drop, by the ids of the step.
#[derive(Debug, Default)]
pub struct Droppable(BTreeMap<Id, CancellationToken>);

impl Droppable {
    /// What an action is, until it is dropped: then its event is `dropped`.
    pub fn run<E: Send + 'static>(
        &mut self,
        id: Id,
        future: impl Future<Output = E> + Send + 'static,
        dropped: fn() -> E,
    ) -> Option<BoxFuture<'static, E>> {
        let token = self.token(id);
        Some(Box::pin(async move { token.run_until_cancelled(future).await.unwrap_or_else(dropped) }))
    }

    /// What is cancelled when an action is dropped, for one that decides itself what follows.
    pub fn token(&mut self, id: Id) -> CancellationToken {
        self.0.entry(id).or_default().clone()
    }

    /// It has ended.
    pub fn ended(&mut self, id: Id) {
        self.0.remove(&id);
    }

    /// Drops it. What has ended, or never was, stays as it is.
    pub fn drop(&mut self, id: Id) {
        if let Some(token) = self.0.remove(&id) {
            token.cancel();
        }
    }
}
