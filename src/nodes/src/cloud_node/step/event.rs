//! What the step of a Node is told.

use lazuli_engine::{Id, Outcome};
use lazuli_model::{InstanceView, fault::Fault};

use crate::{
    cloud_node::{CloudNode, Instance, InstanceAddress},
    routing::Report,
};

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The API server has this state of the Node.
    Changed(CloudNode),
    /// The API server has the Node no more.
    Removed,
    /// The machine was read.
    Read {
        /// The read.
        id: Id,
        /// What Azure says; [`Fault::NotFound`] when there is no such machine.
        result: Result<Instance, Fault>,
    },
    /// A list of network interfaces has the machine with these addresses; `None` where it does not say all of them.
    Listed(Option<Vec<InstanceAddress>>),
    /// The addresses of the machine were read.
    AddressesRead {
        /// The read.
        id: Id,
        /// What Azure says.
        result: Result<Vec<InstanceAddress>, Fault>,
    },
    /// It was read whether the machine runs.
    Checked {
        /// The read.
        id: Id,
        /// What it proves.
        result: Checked,
    },
    /// A patch ended.
    Patched {
        /// The patch.
        id: Id,
        /// The Node after it.
        result: Result<CloudNode, PatchFault>,
    },
    /// The deletion of the Node ended.
    Deleted {
        /// The deletion.
        id: Id,
        /// How.
        result: Result<(), PatchFault>,
    },
    /// The route table tells what became of a want.
    Routed {
        /// The generation of the want.
        generation: u64,
        /// What became of it.
        outcome: Outcome<Report>,
    },
    /// The route table has lost what it was told.
    RoutesLost,
    /// The breaker lets the Node be deleted, or tainted as out of service.
    Granted {
        /// Whether the machine must be read once more before.
        reads_again: bool,
    },
    /// [`State::wake_at`](super::State::wake_at) has come, or the lease or the informers have changed.
    Woke,
    /// The process is about to end: nothing new is started.
    Drain,
}

/// What a read of a machine, which no cache answers, proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// It exists.
    Here(InstanceView),
    /// It does not exist, and a control does.
    Gone,
    /// Nothing.
    Unproved(Fault),
}

/// Why a patch or a deletion failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchFault {
    /// The Node does not exist any more.
    Gone,
    /// The Node has changed since.
    Changed,
    /// The API server refused, or did not answer.
    Failed,
}
