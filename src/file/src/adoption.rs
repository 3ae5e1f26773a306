//! What this process remembers of the requests that it has given shares to ([`lazuli_shares::adoption`]).
//!
//! A call is noted before its share is asked for, so no deletion is judged between an answer and its note.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lazuli_model::ArmId;
use lazuli_reconcile::Clock;
use lazuli_shares::{adoption::Adoptions, deletion::ShareVolumes};
use tokio::sync::watch;

/// The memory. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    adoptions: Arc<Mutex<Arc<Adoptions>>>,
    /// It starts with that of the shares' steps.
    clock: Clock,
    /// The PersistentVolumes of the cluster.
    volumes: watch::Receiver<ShareVolumes>,
}

impl Memory {
    /// That of a process that begins now.
    pub(crate) fn begin(volumes: watch::Receiver<ShareVolumes>) -> Self {
        let clock = Clock::start();
        let adoptions = Adoptions::beginning(clock.now());
        Self { adoptions: Arc::new(Mutex::new(Arc::new(adoptions))), clock, volumes }
    }

    fn adoptions(&self) -> MutexGuard<'_, Arc<Adoptions>> {
        self.adoptions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered now.
    pub(crate) fn shown(&self) -> Arc<Adoptions> {
        self.adoptions().clone()
    }

    /// A call of a request for this share, until it is dropped.
    pub(crate) fn call(&self, share: &ArmId, request: &str) -> Call {
        let volumes = self.volumes.borrow().clone();
        let mut shown = self.adoptions();
        let adoptions = Arc::make_mut(&mut shown);
        if let Some(volumes) = &volumes {
            adoptions.seen(volumes);
        }
        adoptions.begin(share, request);
        drop(shown);
        Call { memory: self.clone(), share: share.clone(), request: request.to_owned(), has_share: false }
    }

    /// The volume of a request is deleted.
    pub(crate) fn forget(&self, share: &ArmId, request: &str) {
        Arc::make_mut(&mut self.adoptions()).forget(share, request);
    }
}

/// A call that is being served. Its caller may leave at any moment.
#[derive(Debug)]
pub(crate) struct Call {
    memory: Memory,
    share: ArmId,
    request: String,
    has_share: bool,
}

impl Call {
    /// It is answered with the share.
    pub(crate) fn has_share(&mut self) {
        self.has_share = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let now = self.memory.clock.now();
        Arc::make_mut(&mut self.memory.adoptions()).end(&self.share, &self.request, self.has_share, now);
    }
}
