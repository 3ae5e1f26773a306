//! What each step changes, told to followers at once.
//!
//! A step is a request that Azure accepts, the end of an operation, an alarm, or a change by hand. A follower is told after
//! each step that changes a document, before anything else happens, so that it sees every state that has existed.

use std::time::Duration;

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

impl Followers {
    pub(crate) fn add(&mut self, follower: Follower) {
        self.0.push(follower);
    }

    pub(crate) fn tell(&mut self, step: &Step) {
        for follower in &mut self.0 {
            follower(step);
        }
    }
}
