//! What each step changes, told to followers at once.
//!
//! A step is a request that Azure accepts, the end of an operation, an alarm, or a change by hand. A follower is told after
//! each step that changes a document, before anything else happens, so that it sees every state that has existed.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::state::State;
use crate::store::Document;

/// The documents that one step has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Emulated time since the start.
    pub at: Duration,
    /// In the order of the ids.
    pub documents: Vec<Changed>,
}

/// A document after a step that has changed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// The id in lower case.
    pub key: String,
    /// What stands now; `None`: the resource is gone.
    pub document: Option<Document>,
    /// Whether an operation on the resource runs: what is asked may be in force already or not yet.
    pub in_flight: bool,
}

/// Called after each step. It must not call the emulator, which is locked meanwhile.
pub(crate) type Follower = Box<dyn FnMut(&Step) + Send>;

/// Who follows, and what has changed since they were told.
#[derive(Default)]
pub(crate) struct Followers(Vec<Follower>);

impl State {
    pub(crate) fn follow(&mut self, follower: Follower) {
        self.store.note_changes();
        self.followers.0.push(follower);
    }

    /// Tells the followers what has changed since they were told last.
    pub(crate) fn tell_followers(&mut self, at: Duration) {
        let keys: BTreeSet<String> = self.store.take_changes();
        if keys.is_empty() {
            return;
        }
        let documents = keys.into_iter().map(|key| {
            let resource = self.store.get(&key);
            let of_machine = |resource: &crate::store::Resource| resource.machine.as_ref()?.busy.clone();
            let busy = resource.and_then(|resource| resource.busy.clone().or_else(|| of_machine(resource)));
            let in_flight = busy.is_some_and(|operation| self.operations.is_running(&operation));
            Changed { document: resource.map(|resource| resource.doc.clone()), in_flight, key }
        });
        let step = Step { at, documents: documents.collect() };
        for follower in &mut self.followers.0 {
            follower(&step);
        }
    }
}
