//! What a disk comes from, by reads of what it was made from.

use std::collections::BTreeMap;

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, fault::Fault};
use lazuli_quota::{permit::Priority, read::Accept};
use lazuli_volume::copy::{self, Descent, Link, Walk};

use super::{Event, Links, Next, read};
use crate::calls::unexpected;

/// A walk from a disk's source to the first of its line.
#[derive(Debug, Clone)]
pub struct Descend {
    source: ArmId,
    priority: Priority,
    known: BTreeMap<ArmId, Link>,
    awaited: Option<ArmId>,
}

impl Descend {
    /// A walk that begins at this source, by reads that rank so.
    pub fn new(source: ArmId, priority: Priority) -> Self {
        Self { source, priority, known: BTreeMap::new(), awaited: None }
    }

    /// The source was read, or is known to be gone.
    pub(super) fn learn_source(&mut self, links: &mut Links, link: Link) {
        if link != Link::Unknown {
            links.learn(&self.source, link.clone());
        }
        self.known.insert(self.source.clone(), link);
    }

    /// What comes next. Its first event is [`Event::Begun`].
    ///
    /// # Errors
    /// What could not be read just now, and why. [`Self::give_up`] goes on without it.
    pub fn next<E: AzureFailure, W>(
        &mut self,
        links: &mut Links,
        event: Event<E, W>,
    ) -> Result<Next<Descent>, (ArmId, E)> {
        if let Some(id) = self.awaited.take() {
            let link = match event {
                Event::Disk(read) => read.map(|disk| Link::of_disk(&disk)),
                Event::Snapshot(read) => read.map(|snapshot| Link::of_snapshot(&snapshot)),
                _ => unexpected(&self, &"another event"),
            };
            match link {
                Ok(link) => {
                    links.learn(&id, link.clone());
                    self.known.insert(id, link);
                }
                Err(error) if is_lasting(error.fault()) => {
                    links.learn(&id, Link::Unknown);
                    self.known.insert(id, Link::Unknown);
                }
                Err(error) => {
                    self.awaited = Some(id.clone());
                    return Err((id, error));
                }
            }
        }
        Ok(self.walk(links))
    }

    /// The rest of the walk, where what it waits for is taken for unknown.
    pub fn give_up(&mut self, links: &mut Links) -> Next<Descent> {
        if let Some(id) = self.awaited.take() {
            self.known.insert(id, Link::Unknown);
        }
        self.walk(links)
    }

    fn walk(&mut self, links: &Links) -> Next<Descent> {
        loop {
            let id = match copy::walk(&self.source, &self.known) {
                Walk::Done(descent) => return Next::Done(descent),
                Walk::Read(id) => id,
            };
            if let Some(link) = links.get(&id) {
                self.known.insert(id, link);
                continue;
            }
            match read(&id, Accept::List, self.priority) {
                Some(call) => {
                    self.awaited = Some(id);
                    return Next::Call(call);
                }
                None => drop(self.known.insert(id, Link::Unknown)),
            }
        }
    }
}

/// Whether a read fails in the same way when it is repeated at once: what it is about is gone, or is another's.
fn is_lasting(fault: &Fault) -> bool {
    fault.says_that_it_is_missing()
        || matches!(
            fault,
            Fault::Forbidden | Fault::LinkedForbidden | Fault::Denied | Fault::Invalid | Fault::Unsupported
        )
}
