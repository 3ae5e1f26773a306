//! Why a request failed, as a value, and the words for it.

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, DiskId, fault::Fault};

use super::{MachineList, WorkFailure};
use crate::{dangling::detach_command, inline_volume::Objection, late_attach};

/// A failed request.
#[derive(Debug, Clone)]
pub struct Failure<E, W> {
    /// What failed.
    pub cause: Box<Cause<E, W>>,
    /// What a caller may want to know too, in order.
    pub added: Vec<String>,
}

/// What failed.
#[derive(Debug, Clone)]
pub enum Cause<E, W> {
    /// The step refuses the request.
    Refused(Fault, Why),
    /// A call of Azure's has failed.
    Azure(Why, E),
    /// A request to the worker of a VM or of a whole disk has failed.
    Work(W),
}

impl<E, W> Failure<E, W> {
    pub(super) fn refused(fault: Fault, why: Why) -> Self {
        Self { cause: Box::new(Cause::Refused(fault, why)), added: Vec::new() }
    }

    pub(super) fn azure(why: Why, error: E) -> Self {
        Self { cause: Box::new(Cause::Azure(why, error)), added: Vec::new() }
    }

    pub(super) fn work(error: W) -> Self {
        Self { cause: Box::new(Cause::Work(error)), added: Vec::new() }
    }

    pub(super) fn with(mut self, added: String) -> Self {
        self.added.push(added);
        self
    }
}

impl<E: AzureFailure, W: WorkFailure> Failure<E, W> {
    /// What a caller may do about it.
    pub fn fault(&self) -> &Fault {
        match &*self.cause {
            Cause::Refused(fault, _) => fault,
            Cause::Azure(_, error) => error.fault(),
            Cause::Work(error) => error.fault(),
        }
    }
}

/// Why a step refuses a request, or what the call of Azure's was for that has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The cluster's Nodes are not known.
    #[error(
        "node {0}: the cluster's Nodes are not known yet, so its VM is not either; the controller's role needs list and \
         watch on nodes"
    )]
    NodesUnknown(String),
    /// No VM can have this node id.
    #[error("node {node:?} cannot be a VM: {why}")]
    NoVm {
        /// The node id.
        node: String,
        /// What is wrong with it.
        why: String,
    },
    /// Several Nodes name one machine. kubelet may choose the provider id of its own Node, so one of them claims what is
    /// another one's.
    #[error(
        "node {node}: the providerID of Node {} is azure://{machine}, and a machine is one node, so it is not known which \
         machine this node is{known}; delete the Node that is not this machine",
        .names.join(" and of Node ")
    )]
    SharedMachine {
        /// The node.
        node: String,
        /// The machine.
        machine: ArmId,
        /// The Nodes that name it.
        names: Vec<String>,
        /// What is known beside them ([`of_shared`]).
        known: String,
    },
    /// Only other Nodes name the VM, and the disk may be attached there for one of these.
    #[error(
        "{disk} stays attached to {vm}: the providerID of Node {} names this VM and that of no Node {node} does, and the \
         disk may be attached to it for that Node; it is detached once no VolumeAttachment of that Node names it",
        .users.join(" and of Node ")
    )]
    UsedByOthers {
        /// The disk.
        disk: DiskId,
        /// The VM.
        vm: ArmId,
        /// The node.
        node: String,
        /// The Nodes for which it may be attached.
        users: Vec<String>,
    },
    /// The node id is no Node of this cluster.
    #[error("node {node} is no node of this cluster: {lacks}")]
    NotOfCluster {
        /// The node id.
        node: String,
        /// What no Node has.
        lacks: String,
    },
    /// Whether the cluster has this Node is not known.
    #[error("node {0}: the API server is silent, so it is not known whether the cluster has this Node")]
    ClusterSilent(String),
    /// The VM of a node cannot be read.
    #[error("node {0}: its VM cannot be read")]
    VmUnreadable(String),
    /// A disk or a machine cannot be read.
    #[error("{0} cannot be read")]
    Unreadable(String),
    /// A scale set cannot be read.
    #[error("the scale set {0} cannot be read")]
    ScaleSetUnreadable(ArmId),
    /// The scale sets of the cluster's resource group cannot be read.
    #[error("node {0}: the scale sets of its resource group cannot be read")]
    ScaleSetsUnreadable(String),
    /// Machines cannot be listed.
    #[error("{0} cannot be listed")]
    Unlisted(MachineList),
    /// Several VMs have the node's name as their computer name.
    #[error("node {node}: several VMs have this computer name: {}", list(.vms))]
    SeveralVms {
        /// The node.
        node: String,
        /// The VMs.
        vms: Vec<ArmId>,
    },
    /// No VM has the node's name.
    #[error("node {node}: none of the {count} VMs of the cluster's resource group has this name")]
    NoVmOfName {
        /// The node.
        node: String,
        /// How many VMs there are.
        count: usize,
    },
    /// The disk is being attached or detached.
    #[error("{0} is being attached or detached; retry")]
    Occupied(DiskId),
    /// The lease of the page blob is still held.
    #[error("{0} is not proved to be detached: the lease of its blob is still held; retry")]
    Leased(DiskId),
    /// The node's machine takes no page blobs.
    #[error("{disk} cannot be attached to node {node}: {refusal}")]
    NoBlobs {
        /// The disk.
        disk: DiskId,
        /// The node.
        node: String,
        /// Why not, and the way out.
        refusal: lazuli_vhd::attach::Refusal,
    },
    /// The node's VM was missing and is there again.
    #[error("node {0}: its VM was missing and is there again")]
    ThereAgain(String),
    /// A machine holds the disk that may be the node's.
    #[error(
        "{disk} may still be attached to node {node}: it is not certain which machine this node is or was, and the disk is \
         attached to {holder}, {} and which may be that node's machine; if it is, and nothing uses the disk there, detach \
         it in Azure, and this request ends: {}; if it is not, let the disk stay there and remove the finalizers of the \
         VolumeAttachment of {} and this node",
        named_by(.names), detach_command(.holder, .disk), .disk.name()
    )]
    MayBeAttached {
        /// The disk.
        disk: DiskId,
        /// The node.
        node: String,
        /// The machine.
        holder: ArmId,
        /// The Nodes that name it.
        names: Vec<String>,
    },
    /// An attach may be under way of which Azure shows nothing.
    #[error(
        "{disk} may still become attached to node {node}: an attach may be under way that Azure does not show yet, sent by \
         this controller, which has lost the answer, or by one before it, where the VolumeAttachment names no LUN; retry, \
         the detach succeeds within {} s",
        late_attach::LONGEST.as_secs()
    )]
    MayBeAttaching {
        /// The disk.
        disk: DiskId,
        /// The node.
        node: String,
    },
    /// The disk was detached while its attach was requested.
    #[error("{disk} was detached from node {node} while its attach was requested; retry")]
    DetachedMeanwhile {
        /// The disk.
        disk: DiskId,
        /// The node.
        node: String,
    },
    /// It is not known what asks for the attach.
    #[error("{disk} cannot be attached to node {node}: it is not known what asks for it: {why}")]
    SourceUnknown {
        /// The disk.
        disk: DiskId,
        /// The node.
        node: String,
        /// Why.
        why: String,
    },
    /// The disk may not be attached for what asks for it.
    #[error("{disk} cannot be attached to node {node}: {objection}")]
    NotAdmitted {
        /// The disk.
        disk: DiskId,
        /// The node.
        node: String,
        /// Why.
        objection: Objection,
    },
}

fn list(vms: &[ArmId]) -> String {
    vms.iter().map(ArmId::to_string).collect::<Vec<_>>().join(", ")
}

fn named_by(names: &[String]) -> String {
    match names {
        [] => "which no Node names".to_owned(),
        names => format!("which is the providerID of Node {}", names.join(" and of Node ")),
    }
}

/// What is known beside the names of the Nodes that name one machine: the one that has a name of the VM, and those for which
/// the disk may be attached.
pub(super) fn of_shared(owner: Option<&str>, users: &[String]) -> String {
    let owner = match owner {
        Some(owner) => format!(" (the VM has the name of Node {owner})"),
        None => " (the VM has the name of none of them, or of several)".to_owned(),
    };
    match users {
        [] => owner,
        users => format!("{owner}, and the disk may be attached to it for Node {}", users.join(" and for Node ")),
    }
}
