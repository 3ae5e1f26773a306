//! How fast the Nodes of one process may go, or be tainted as out of service, when many machines disappear. It counts what
//! is done of Nodes, and knows nothing of how the breaker decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::cloud_node::breaker::{PACE, WINDOW, limit};

/// What one process has asked, read and done of Nodes.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the first Node asked, of those since which no window has passed without one.
    began: Option<Duration>,
    last: Duration,
    /// The Nodes of which something was done since then.
    done: BTreeSet<String>,
    /// The Nodes that must read their machines again, and since when.
    reads_again: BTreeMap<String, Duration>,
    read_at: BTreeMap<String, Duration>,
}

impl Pace {
    /// A Node asks whether it may act.
    pub(super) fn asked(&mut self, node: &str, now: Duration) {
        if now > self.last + WINDOW {
            self.began = None;
            self.done.clear();
        }
        self.began.get_or_insert(now);
        self.last = now;
        self.reads_again.remove(node);
    }

    /// A Node may act, once it has read its machine again.
    pub(super) fn granted_slowly(&mut self, node: &str, now: Duration) {
        self.reads_again.insert(node.to_owned(), now);
    }

    /// A Node reads its machine.
    pub(super) fn reads(&mut self, node: &str, now: Duration) {
        self.read_at.insert(node.to_owned(), now);
    }

    /// Judges that a Node of so many was deleted or tainted.
    pub(super) fn acted(&mut self, node: &str, nodes: usize, now: Duration) -> Result<(), String> {
        let Some(began) = self.began else { return Err(format!("{node} goes, and did not ask before")) };
        self.last = now;
        self.done.insert(node.to_owned());
        let paced = (now - began).as_secs() / PACE.as_secs() + 1;
        let most = limit(nodes) + usize::try_from(paced).unwrap_or(usize::MAX);
        if self.done.len() > most {
            return Err(format!("{} Nodes went within {:?}", self.done.len(), now - began));
        }
        match self.reads_again.get(node) {
            Some(since) if self.read_at.get(node).is_none_or(|read_at| read_at < since) => {
                Err(format!("{node} does not read its machine again before it goes with many others"))
            }
            _ => Ok(()),
        }
    }
}
