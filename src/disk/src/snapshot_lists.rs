//! Lists of snapshots that callers share: those who take a list of a few seconds ago for an answer, and those who come
//! while one is being read that was sent after they asked for it. A list goes as soon as no caller can take it any
//! more.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt as _, Shared, WeakShared};
use lazuli_reconcile::Clock;
use lazuli_storage::snapshot::{ListOf, Listed, dependents::LIST_IS_FRESH};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::{client::Client, error::Answer};

/// How many lists are known at a time. A cluster has snapshots in a resource group or two.
const MOST: usize = 8;

type Read = BoxFuture<'static, Result<Listed, Answer>>;

/// The lists. Clones share them.
#[derive(Clone)]
pub(crate) struct SnapshotLists {
    client: Client,
    clock: Clock,
    last: Arc<Mutex<BTreeMap<ListOf, List>>>,
}

/// The last list of some snapshots.
struct List {
    sent_at: Duration,
    /// It is being read. It is dropped with its last caller.
    running: WeakShared<Read>,
    done: Option<Done>,
}

struct Done {
    listed: Listed,
    /// Forgets the list when it is too old for every caller.
    _expiry: AbortOnDropHandle<()>,
}

impl fmt::Debug for SnapshotLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotLists").finish_non_exhaustive()
    }
}

impl SnapshotLists {
    pub(crate) fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock, last: Arc::default() }
    }

    fn last(&self) -> MutexGuard<'_, BTreeMap<ListOf, List>> {
        // Every change is a single insertion or removal, so a panic elsewhere leaves the table consistent.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A list that was sent no earlier than then.
    pub(crate) async fn read(&self, of: &ListOf, not_before: Duration) -> Result<Listed, Answer> {
        let (sent_at, read) = match self.join(of, not_before) {
            Ok(listed) => return Ok(listed),
            Err(running) => running,
        };
        let result = read.await;
        let mut last = self.last();
        if let Some(list) = last.get_mut(of).filter(|list| list.sent_at == sent_at) {
            match &result {
                Ok(_) if list.done.is_some() => {}
                Ok(listed) => list.done = Some(Done { listed: listed.clone(), _expiry: self.expiry(of, sent_at) }),
                Err(_) => drop(last.remove(of)),
            }
        }
        result
    }

    fn expiry(&self, of: &ListOf, sent_at: Duration) -> AbortOnDropHandle<()> {
        let (last, of) = (Arc::downgrade(&self.last), of.clone());
        let rest = (sent_at + LIST_IS_FRESH).saturating_sub(self.clock.now());
        AbortOnDropHandle::new(tokio::spawn(async move {
            sleep(rest).await;
            let Some(last) = last.upgrade() else { return };
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.get(&of).is_some_and(|list| list.sent_at == sent_at) {
                last.remove(&of);
            }
        }))
    }

    /// A list that has been read, or one that is being read, begun now if need be.
    fn join(&self, of: &ListOf, not_before: Duration) -> Result<Listed, (Duration, Shared<Read>)> {
        let mut last = self.last();
        if let Some(list) = last.get(of).filter(|list| list.sent_at >= not_before) {
            if let Some(done) = &list.done {
                return Ok(done.listed.clone());
            }
            if let Some(running) = list.running.upgrade() {
                return Err((list.sent_at, running));
            }
        }
        let sent_at = self.clock.now();
        let read = read(self.client.clone(), of.clone(), sent_at).boxed().shared();
        if last.len() >= MOST && !last.contains_key(of) {
            let oldest = last.iter().min_by_key(|(_, list)| list.sent_at).map(|(of, _)| of.clone());
            oldest.map(|of| last.remove(&of));
        }
        if let Some(running) = read.downgrade() {
            last.insert(of.clone(), List { sent_at, running, done: None });
        }
        Err((sent_at, read))
    }
}

async fn read(client: Client, of: ListOf, sent_at: Duration) -> Result<Listed, Answer> {
    let list = client.list_snapshots(&of.subscription, of.group.as_deref()).await.map_err(Answer)?;
    Ok(Listed { snapshots: Arc::new(list.snapshots), sent_at, azure_now: list.answered })
}
