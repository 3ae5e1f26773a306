//! The detach of a disk from a node: from the node's VM, and where that is a guess or is gone, from every machine that holds
//! the disk and is the node.
//!
//! Which machines a disk must leave decides [`lazuli_storage::unpublish`], and whether a machine that is not found is gone
//! decides [`lazuli_storage::gone`]. This module reads what they ask for.

use lazuli_azure::compute::Freshness;
use lazuli_model::{ArmId, Disk, Vm, fault::Fault};
use lazuli_quota::permit::Priority;
use lazuli_storage::{
    dangling::detach_command,
    gone::{Evidence, Machine, Next, Sent},
    unpublish::{self, NodeVm, Verdict, is_machine},
};
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::{
    VolumeError, Volumes,
    nodes::{Candidate, Search, scale_set_exists, scale_set_of},
    shared_machine::Purpose,
    worker::Goal,
};

/// How many other machines are read at most to show that this identity can see machines.
const MOST_CONTROLS: usize = 3;

/// A machine that was not found when a disk was to be detached from it.
struct Missing<'a> {
    vm: &'a ArmId,
    node: &'a str,
    known: NodeVm,
    disk: &'a ArmId,
    /// Machines that may exist beside it.
    others: &'a [Vm],
    /// How the detach failed.
    error: VolumeError,
    requested_at: Instant,
}

impl Volumes {
    /// Detaches a disk from a node, or from every node when none is named.
    ///
    /// # Errors
    /// Azure's own failures. It is an error when it cannot be proved that the VM of the node is gone.
    pub async fn unpublish(&self, disk: &ArmId, node: Option<&str>) -> Result<(), VolumeError> {
        if let Some(node) = node {
            return self.unpublish_from(disk, node).await;
        }
        // While the disk is being attached to a node it does not name that VM yet, and it must leave that node too.
        if self.occupied.is_attaching_or_detaching(disk) {
            return Err(VolumeError::new(Fault::Busy, format!("{disk} is being attached or detached; retry")));
        }
        let holders: Vec<ArmId> = match self.client.get_disk(disk).await {
            Ok(read) => read.model.holders().into_iter().cloned().collect(),
            Err(error) if error.fault == Fault::NotFound => return Ok(()),
            Err(error) => return Err(VolumeError::azure(format!("{disk} cannot be read"), error)),
        };
        for vm in holders {
            self.request(&vm, &self.nodes.name_of(&vm), disk, Goal::Detached).await?;
        }
        Ok(())
    }

    async fn unpublish_from(&self, disk: &ArmId, node: &str) -> Result<(), VolumeError> {
        let requested_at = Instant::now();
        let candidate = match self.candidate(node, Purpose::Detach(disk)).await {
            Ok(candidate) => candidate,
            // No VM can have this name, so nothing is attached to it.
            Err(error) if error.fault == Fault::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let known = candidate.known();
        let Candidate { vm, named, .. } = candidate;
        // Judged when the VM was guessed: the Node may register again, with another machine, while the detach is under way.
        let needs_holders = self.nodes.needs_holders(node, known, &vm);
        let before = if needs_holders { self.fresh_disk(disk).await? } else { None };
        let left = match self.request(&vm, node, disk, Goal::Detached).await {
            Ok(_) => vm,
            Err(error) if read_of(&error, &vm).is_some() => {
                self.nodes.forget(node);
                let missing = |others| Missing { vm: &vm, node, known, disk, others, error, requested_at };
                if named {
                    let (_, others) = self.nodes.vms_beside(&self.client, &vm, None).await?;
                    return self.confirm_gone(missing(&others)).await;
                }
                match self.nodes.search(&self.client, node).await? {
                    Search::Found(found) => {
                        self.check_others(node, &found, disk)?;
                        self.request(&found, node, disk, Goal::Detached).await?;
                        found
                    }
                    Search::Absent(others) => return self.confirm_gone(missing(&others)).await,
                }
            }
            Err(error) => return Err(error),
        };
        if needs_holders {
            // Nothing is learned of it: the VM is a guess, or it is one of several that Nodes of this name were.
            if let Some(before) = before
                && self.leaves_no_doubt(&before, &left, node).await?
            {
                return Ok(());
            }
            return self.leave_other_holders(&left, node, known, disk).await;
        }
        self.nodes.learn(node, &left);
        Ok(())
    }

    /// A disk by a single read that shows what the leader before has written; `None` when it does not exist.
    async fn fresh_disk(&self, disk: &ArmId) -> Result<Option<Disk>, VolumeError> {
        if let Some(fresh_from) = self.workers.fresh_from() {
            sleep_until(fresh_from).await;
        }
        match self.client.read_disk(disk, Freshness::single().priority(Priority::DetachDeadNode)).await {
            Ok(read) => Ok(Some(read.model)),
            Err(error) if error.fault == Fault::NotFound => Ok(None),
            Err(error) => Err(VolumeError::azure(format!("{disk} cannot be read"), error)),
        }
    }

    /// Whether the detach from the VM, which was a guess, leaves no doubt about the machines that hold the disk now.
    async fn leaves_no_doubt(&self, before: &Disk, left: &ArmId, node: &str) -> Result<bool, VolumeError> {
        match self.client.read_vm(left, Freshness::single().priority(Priority::DetachDeadNode)).await {
            Ok(vm) => Ok(unpublish::leaves_no_doubt(before, &vm.model, node)),
            Err(error) if error.fault == Fault::NotFound => Ok(false),
            Err(error) => Err(VolumeError::azure(format!("{left} cannot be read"), error)),
        }
    }

    /// Detaches the disk from every machine that is the node beside the VM that the disk has left, or that is gone.
    ///
    /// # Errors
    /// [`Fault::Conflict`] while a machine holds the disk that may be the node's.
    async fn leave_other_holders(
        &self,
        vm: &ArmId,
        node: &str,
        known: NodeVm,
        disk: &ArmId,
    ) -> Result<(), VolumeError> {
        let freshness = Freshness::single().priority(Priority::DetachDeadNode);
        let read = match self.client.read_disk(disk, freshness).await {
            Ok(read) => read.model,
            Err(error) if error.fault == Fault::NotFound => return Ok(()),
            Err(error) => return Err(VolumeError::azure(format!("{disk} cannot be read"), error)),
        };
        // While the disk is being attached it does not name that VM yet, and that VM may be the node.
        if self.occupied.is_attaching_or_detaching(disk) {
            return Err(VolumeError::new(Fault::Busy, format!("{disk} is being attached or detached; retry")));
        }
        for holder in unpublish::other_holders(&read, vm) {
            let machine = match self.client.get_vm(holder).await {
                Ok(read) => Some(read.model),
                Err(error) if error.fault == Fault::NotFound => None,
                Err(error) => return Err(VolumeError::azure(format!("{holder} cannot be read"), error)),
            };
            match self.judge_holder(disk, node, known, machine.as_ref()) {
                Verdict::Leave => {}
                Verdict::Detach => {
                    self.request(holder, node, disk, Goal::Detached).await?;
                    self.nodes.learn(node, holder);
                }
                Verdict::Unknown => return Err(self.may_be_attached(disk, node, holder)),
            }
        }
        Ok(())
    }

    /// What becomes of a machine that holds a disk which is to leave a node.
    fn judge_holder(&self, disk: &ArmId, node: &str, known: NodeVm, machine: Option<&Vm>) -> Verdict {
        let (cluster, attachments) = (self.nodes.cluster(), self.reservations.now());
        let detach = unpublish::Detach { disk, node, known, cluster: &cluster, attachments: &attachments };
        unpublish::holder(detach, machine)
    }

    /// The answer to a detach while a machine holds the disk that may be the node's.
    fn may_be_attached(&self, disk: &ArmId, node: &str, holder: &ArmId) -> VolumeError {
        let names = self.nodes.names_of(holder);
        let named_by = match names.as_slice() {
            [] => "which no Node names".to_owned(),
            names => format!("which is the providerID of Node {}", names.join(" and of Node ")),
        };
        VolumeError::new(
            Fault::Conflict,
            format!(
                "{disk} may still be attached to node {node}: it is not certain which machine this node is or was, and the \
                 disk is attached to {holder}, {named_by} and which may be that node's machine; if it is, and nothing uses \
                 the disk there, detach it in Azure, and this request ends: {}; if it is not, let the disk stay there and \
                 remove the finalizers of the VolumeAttachment of {} and this node",
                detach_command(holder, disk),
                disk.name()
            ),
        )
    }

    /// Whether a machine is not found by a single read.
    pub(super) async fn is_missing(&self, vm: &ArmId) -> Result<bool, VolumeError> {
        Ok(self.read_existence(vm).await? != Machine::Found)
    }

    /// Whether a machine exists, by a single read.
    async fn read_existence(&self, vm: &ArmId) -> Result<Machine, VolumeError> {
        let freshness = Freshness::single().priority(Priority::DetachDeadNode);
        match self.client.read_vm(vm, freshness).await {
            Ok(_) => Ok(Machine::Found),
            Err(error) => {
                let error = VolumeError::azure(format!("{vm} cannot be read"), error);
                read_of(&error, vm).ok_or(error)
            }
        }
    }

    /// Succeeds when a machine that was not found is gone ([`lazuli_storage::gone`]), and the disk does not name a machine
    /// that is the node or may be it.
    async fn confirm_gone(&self, missing: Missing<'_>) -> Result<(), VolumeError> {
        let Missing { vm, node, known, disk, others, error, requested_at } = missing;
        let mut evidence = Evidence::new(requested_at);
        // The worker answers so only by a read of the VM that was sent after the request came.
        if error.fault == Fault::NotFound {
            evidence.machine.push(Sent {
                sent_at: requested_at,
                answered_at: Instant::now(),
                answer: Machine::Missing,
            });
        }
        loop {
            match evidence.next() {
                Next::Gone => break,
                Next::Present if error.fault == Fault::NotFound => {
                    let message = format!("node {node}: its VM was missing and is there again");
                    return Err(VolumeError::new(Fault::Conflict, message));
                }
                Next::Present => return Err(error),
                next => self.gather(next, vm, node, known, others, &mut evidence).await?,
            }
        }
        // While the disk is being attached it does not name that VM yet, and that VM may be the node.
        if self.occupied.is_attaching_or_detaching(disk) {
            return Err(VolumeError::new(Fault::Busy, format!("{disk} is being attached or detached; retry")));
        }
        // The VM that was not found may be a guess by the node's name, and a VM of another resource group was not in the
        // list of VMs. Only a single read shows the VM that has the disk.
        let asked_at = Instant::now();
        self.leave_other_holders(vm, node, known, disk).await?;
        if known == NodeVm::Guessed {
            self.workers.check_late_attach(vm, node, disk, asked_at)?;
        }
        info!(node, %disk, "the node's VM is gone, so the disk is not attached to it");
        Ok(())
    }

    /// Reads what is to be read next.
    async fn gather(
        &self,
        next: Next<Instant>,
        vm: &ArmId,
        node: &str,
        known: NodeVm,
        others: &[Vm],
        evidence: &mut Evidence<Instant>,
    ) -> Result<(), VolumeError> {
        match next {
            Next::ReadMachine(not_before) => {
                sleep_until(not_before).await;
                let sent_at = Instant::now();
                let answer = self.read_existence(vm).await?;
                evidence.machine.push(Sent { sent_at, answered_at: Instant::now(), answer });
            }
            Next::ReadScaleSet(not_before) => {
                sleep_until(not_before).await;
                let sent_at = Instant::now();
                let exists = match scale_set_of(vm) {
                    Some(set) => scale_set_exists(&self.client, &set).await?,
                    None => false,
                };
                evidence.scale_set.push(Sent { sent_at, answered_at: Instant::now(), answer: exists });
            }
            Next::List(not_before) => {
                sleep_until(not_before).await;
                let (sent_at, beside) = self.nodes.vms_beside(&self.client, vm, Some(not_before)).await?;
                // A machine that is named is no other one, whatever the name of that is.
                let is_it = |beside: &Vm| beside.id == *vm || known == NodeVm::Guessed && is_machine(beside, node);
                let answer = beside.iter().any(is_it);
                evidence.lists.push(Sent { sent_at, answered_at: Instant::now(), answer });
            }
            Next::ReadOthers => {
                let sent_at = Instant::now();
                let mut found = false;
                for other in others.iter().filter(|other| other.id != *vm).take(MOST_CONTROLS) {
                    found = found || !self.is_missing(&other.id).await?;
                }
                evidence.controls.push(Sent { sent_at, answered_at: Instant::now(), answer: found });
            }
            Next::Gone | Next::Present => {}
        }
        Ok(())
    }
}

/// What a failed request says of a machine's existence.
fn read_of(error: &VolumeError, vm: &ArmId) -> Option<Machine> {
    Machine::of_failure(&error.fault, scale_set_of(vm).is_some())
}
