//! The addresses of a Node that is initialised, and when its machine is read for them.
//!
//! The machine is read when a list says something else than the Node, and at once when kubelet reports another boot: then
//! another VM may bear the name. Only such a read changes the Node. The controller `cloud-node` of the leader is the one
//! writer of these addresses.

use std::time::Duration;

use lazuli_engine::{Id, backoff::Backoff};
use lazuli_model::{ArmId, fault::Fault};
use lazuli_quota::read::Accept;

use super::{Action, FRESH, Reason, State};
use crate::cloud_node::{CloudNode, InstanceAddress, NodeAddress, node_addresses};

/// For how long a read that fails is repeated. After that the next list decides whether it is needed.
const REPEATED_FOR: Duration = Duration::from_secs(60);

/// What is known of the addresses.
#[derive(Debug, Clone)]
pub(super) struct Refresh {
    /// Since when a read is needed, and which reads are an answer.
    needed: Option<(Duration, Accept)>,
    /// The read in flight, and when it was sent.
    pub(super) reading: Option<(Id, Duration)>,
    read_at: Duration,
    reads: Backoff,
    /// What a read has shown, and when it was sent, until the Node shows it.
    shown: Option<(Duration, Vec<InstanceAddress>)>,
}

impl Refresh {
    pub(super) fn new(reads: Backoff) -> Self {
        Self { needed: None, reading: None, read_at: Duration::ZERO, reads, shown: None }
    }

    /// A read that is sent from now on is needed. One that was sent before is no answer.
    pub(super) fn need(&mut self, now: Duration) {
        self.needed = Some((now, Accept::Single));
        (self.read_at, self.shown) = (now, None);
        self.reads.succeeded();
    }

    /// A list says this of the machine; `None` where it does not say all of it.
    pub(super) fn listed(&mut self, node: &CloudNode, listed: Option<&[InstanceAddress]>, now: Duration) {
        let Some(machine) = node.initialised_machine() else { return };
        let is_same = listed.is_some_and(|all| matches!(other_addresses(node, &machine, all), Ok(None)));
        if !is_same && self.needed.is_none() && self.shown.is_none() {
            let accept = if listed.is_some() { Accept::Single } else { Accept::List };
            (self.needed, self.read_at) = (Some((now, accept)), now);
        }
    }

    /// A read has ended. Returns why the addresses stay as they are, where they do.
    pub(super) fn read(
        &mut self,
        id: Id,
        result: Result<Vec<InstanceAddress>, Fault>,
        now: Duration,
    ) -> Option<Reason> {
        let (_, sent_at) = self.reading.take_if(|(reading, _)| *reading == id)?;
        // What was needed since is read again.
        let (since, _) = self.needed.filter(|(since, _)| sent_at >= *since)?;
        match result {
            Ok(addresses) => {
                self.reads.succeeded();
                (self.needed, self.shown) = (None, Some((sent_at, addresses)));
                None
            }
            Err(fault) => {
                let is_passing = matches!(
                    fault,
                    Fault::Throttled { .. }
                        | Fault::Unavailable
                        | Fault::OutcomeUnknown
                        | Fault::Deadline
                        | Fault::Busy
                );
                if is_passing && now < since + REPEATED_FOR {
                    self.read_at = now + self.reads.failed();
                    return None;
                }
                self.needed = None;
                // Whether a machine that is not found is gone is not decided here.
                (fault != Fault::NotFound).then_some(Reason::AddressesUnread(fault))
            }
        }
    }
}

/// All addresses of the Node with these of its machine, where it has others.
fn other_addresses(
    node: &CloudNode,
    machine: &ArmId,
    of_machine: &[InstanceAddress],
) -> Result<Option<Vec<NodeAddress>>, String> {
    Ok(node.readdressed(&node_addresses(machine, of_machine, node)?))
}

impl State {
    /// Reads the machine where that is needed.
    pub(super) fn read_addresses(&mut self, node: &CloudNode, now: Duration, actions: &mut Vec<Action>) {
        let Some(machine) = node.initialised_machine() else { return };
        let Some((_, accept)) = self.refresh.needed.filter(|_| self.refresh.reading.is_none()) else { return };
        if !self.waits(self.refresh.read_at, now) {
            let id = self.ids.next_id();
            self.refresh.reading = Some((id, now));
            actions.push(Action::ReadAddresses { id, machine, accept });
        }
    }

    /// All addresses that the Node is to have, where it has others.
    pub(super) fn addresses(
        &mut self,
        node: &CloudNode,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Option<Vec<NodeAddress>> {
        let (sent_at, shown) = self.refresh.shown.as_ref()?;
        let (sent_at, machine) = (*sent_at, node.initialised_machine()?);
        match other_addresses(node, &machine, shown) {
            Ok(Some(addresses)) if now.saturating_sub(sent_at) <= FRESH => {
                let texts: Vec<&str> = addresses.iter().map(|one| &*one.address).collect();
                self.report(Reason::Readdressed(texts.join(", ")), actions);
                Some(addresses)
            }
            // The Node could not be written for so long that the machine may have others by now.
            Ok(Some(_)) => {
                self.refresh.need(now);
                self.read_addresses(node, now, actions);
                None
            }
            Ok(None) => {
                self.refresh.shown = None;
                None
            }
            Err(why) => {
                self.refresh.shown = None;
                self.report(Reason::AddressesKept(why), actions);
                None
            }
        }
    }
}
