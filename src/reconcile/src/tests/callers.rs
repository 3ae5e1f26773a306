//! Callers that wait for the outcome of a requester: they join a request, and abandon it.
//!
//! A caller of an RPC only waits. A request whose callers have all given up before its write is sent leaves the batch.
//! After that the write goes on, and a repeated request joins it. A request for something else is refused while callers
//! wait.

use std::collections::{BTreeMap, BTreeSet};

/// The callers that wait, by requester.
#[derive(Debug, Clone)]
pub(super) struct Callers<K, W>(BTreeMap<K, Waiting<W>>);

#[derive(Debug, Clone)]
struct Waiting<W> {
    want: W,
    callers: BTreeSet<u64>,
    sent: bool,
}

/// What became of a caller's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the first: the want is new.
    First,
    /// Others wait for the same, or a write of it is in flight.
    Joined,
    /// Something else is requested, and callers wait for it or a write of it is in flight: the caller is refused.
    Opposed,
}

impl<K, W> Default for Callers<K, W> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone, W: PartialEq> Callers<K, W> {
    /// Adds a caller.
    pub(super) fn join(&mut self, requester: &K, want: W, caller: u64) -> Place {
        match self.0.get_mut(requester) {
            Some(waiting) if waiting.want == want => {
                waiting.callers.insert(caller);
                Place::Joined
            }
            Some(_) => Place::Opposed,
            None => {
                let waiting = Waiting { want, callers: BTreeSet::from([caller]), sent: false };
                self.0.insert(requester.clone(), waiting);
                Place::First
            }
        }
    }

    /// Removes a caller that gave up. Returns the requester to withdraw: no other caller waits for it, and no write of it is
    /// in flight.
    pub(super) fn abandon(&mut self, requester: &K, caller: u64) -> Option<K> {
        let waiting = self.0.get_mut(requester)?;
        waiting.callers.remove(&caller);
        let leaves = waiting.callers.is_empty() && !waiting.sent;
        leaves.then(|| self.0.remove(requester)).map(|_| requester.clone())
    }

    /// Records which requesters a write that is sent now serves.
    pub(super) fn sent<'a>(&mut self, members: impl IntoIterator<Item = &'a K>)
    where
        K: 'a,
    {
        for member in members {
            if let Some(waiting) = self.0.get_mut(member) {
                waiting.sent = true;
            }
        }
    }

    /// Records that a write has ended without deciding these requesters. Returns those without a caller: they are to be
    /// withdrawn.
    pub(super) fn undecided<'a>(&mut self, members: impl IntoIterator<Item = &'a K>) -> Vec<K>
    where
        K: 'a,
    {
        let mut abandoned = Vec::new();
        for member in members {
            if let Some(waiting) = self.0.get_mut(member) {
                waiting.sent = false;
                if waiting.callers.is_empty() {
                    self.0.remove(member);
                    abandoned.push(member.clone());
                }
            }
        }
        abandoned
    }

    /// Removes a requester whose outcome is decided. Returns the callers to answer, in order of their ids.
    pub(super) fn decided(&mut self, requester: &K) -> Vec<u64> {
        self.0.remove(requester).map(|waiting| waiting.callers.into_iter().collect()).unwrap_or_default()
    }
}
