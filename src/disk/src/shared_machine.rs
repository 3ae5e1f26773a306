//! The VM of a node, also where several Nodes name one machine.
//!
//! Decided in [`lazuli_storage::shared_machine`]; this module reads the machine.

use lazuli_azure::compute::Freshness;
use lazuli_model::{ArmId, fault::Fault};
use lazuli_quota::permit::Priority;
use lazuli_storage::shared_machine::{Decision, Request, decide, other_users};

use super::{
    VolumeError, Volumes,
    nodes::{Candidate, Located, shared},
};

/// For which request the VM of a node is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// To attach a disk.
    Attach,
    /// To detach this disk.
    Detach(&'a ArmId),
}

impl Volumes {
    /// The VM that a node is taken for.
    ///
    /// # Errors
    /// Those of [`Nodes::locate`](super::Nodes::locate) and [`Self::check_others`]; [`Fault::Unavailable`] where several Nodes name one machine and the
    /// request is refused; Azure's own failures.
    pub(crate) async fn candidate(&self, node: &str, purpose: Purpose<'_>) -> Result<Candidate, VolumeError> {
        let (machine, nodes) = match self.nodes.locate(node).await? {
            Located::At(candidate) => {
                if let Purpose::Detach(disk) = purpose {
                    self.check_others(node, &candidate.vm, disk)?;
                }
                return Ok(candidate);
            }
            Located::Shared { machine, nodes } => (machine, nodes),
        };
        let nodes: Vec<&str> = nodes.iter().map(|name| &**name).collect();
        let priority = match purpose {
            Purpose::Attach => Priority::Attach,
            Purpose::Detach(_) => Priority::Detach,
        };
        let vm = match self.client.read_vm(&machine, Freshness::single().priority(priority)).await {
            Ok(read) => Some(read.model),
            Err(error) if error.fault == Fault::NotFound => None,
            Err(error) => return Err(VolumeError::azure(format!("node {node}: its VM cannot be read"), error)),
        };
        let attachments = self.reservations.now();
        let request = match purpose {
            Purpose::Attach => Request::Attach,
            Purpose::Detach(disk) => Request::Detach(disk, &attachments),
        };
        match decide(node, &machine, vm.as_ref(), &nodes, request) {
            Decision::IsNode => Ok(Candidate { vm: machine, named: true, has_its_name: true }),
            Decision::Leave => Ok(Candidate { vm: machine, named: false, has_its_name: false }),
            Decision::Refused { owner, users } => Err(shared(node, &machine, &nodes, &why(owner.as_deref(), &users))),
        }
    }

    /// Refuses to detach a disk for a node from a VM that only other Nodes name, as long as it may be attached there for one
    /// of these: the machine of a deleted Node may have registered again under another name.
    ///
    /// # Errors
    /// [`Fault::Conflict`].
    pub(crate) fn check_others(&self, node: &str, vm: &ArmId, disk: &ArmId) -> Result<(), VolumeError> {
        let cluster = self.nodes.cluster();
        let names = cluster.names_of(vm);
        // An ARM id as a node id names no Node.
        if node.starts_with('/') || names.iter().any(|name| name.eq_ignore_ascii_case(node)) {
            return Ok(());
        }
        let users = other_users(node, names, disk, &self.reservations.now());
        if users.is_empty() {
            return Ok(());
        }
        Err(VolumeError::new(
            Fault::Conflict,
            format!(
                "{disk} stays attached to {vm}: the providerID of Node {} names this VM and that of no Node {node} does, and \
                 the disk may be attached to it for that Node; it is detached once no VolumeAttachment of that Node names it",
                users.join(" and of Node ")
            ),
        ))
    }
}

/// What is known beside the names of the Nodes that name one machine.
fn why(owner: Option<&str>, users: &[String]) -> String {
    let owner = match owner {
        Some(owner) => format!(" (the VM has the name of Node {owner})"),
        None => " (the VM has the name of none of them, or of several)".to_owned(),
    };
    match users {
        [] => owner,
        users => format!("{owner}, and the disk may be attached to it for Node {}", users.join(" and for Node ")),
    }
}
