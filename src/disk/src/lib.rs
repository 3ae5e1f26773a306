//! Managed disks as volumes: create, delete, publish, unpublish, expand, get, list.
//!
//! This crate turns decisions of `lazuli-storage` into calls of `lazuli-azure`, each in a task that outlives its
//! caller: one worker per VM ([`worker`]) and one operation per disk ([`in_flight`]). It knows nothing of gRPC. Of
//! Kubernetes it knows only the snapshots that it is given: the LUNs that VolumeAttachments name, and the handles of
//! PersistentVolumes. Its memory of nodes and of handle casing saves reads, and may be lost at any moment.

mod admission;
mod client;
mod cluster_snapshot;
mod dangling;
mod error;
mod in_flight;
mod list;
mod nodes;
mod whole_disk;
mod worker;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lazuli_azure::compute::{Compute, Freshness};
use lazuli_model::{
    ArmId, CachingMode, Disk, Gib, Lun, Vm, VolumeId,
    disk_spec::{DiskSpec, Mismatch},
    event::Event,
    fault::Fault,
    node::ClusterNodes,
    op::VmWriteMethod,
    size::SizeLimits,
};
use lazuli_quota::permit::Priority;
use lazuli_storage::{
    dangling::{Blocked, DetachUnused, detach_command},
    disk::{Adopted, CreatePlan, Expand, ParameterError, plan_expand},
    force_detach::ForceDetach,
    list::{HandleCasing, ResourceGroup, VolumeHandles},
    lun::LunReservations,
    unpublish::{self, NodeVm, Verdict, is_machine},
};
use lazuli_telemetry::lossy;
use tokio::{
    sync::watch,
    time::{sleep, sleep_until},
};
use tracing::info;

pub use admission::{Admission, AttachmentSourceReader};
use client::Client;
use cluster_snapshot::ClusterSnapshot;
pub use dangling::NodeFactsReader;
use dangling::is_held_elsewhere;
pub use error::VolumeError;
use in_flight::{Hold, InFlight};
use list::Lists;
pub use list::{ListedVolume, VolumeList};
use nodes::{Candidate, Nodes, Search, scale_set_exists, scale_set_of};
use whole_disk::{create, delete, expand};
use worker::{Goal, VmWorkers};

/// How long a VM must be missing before it counts as gone.
const GONE_FOR: Duration = Duration::from_secs(2);

/// A request that changes a disk as a whole. A repeated request joins the operation in flight of the same request.
#[derive(Debug, Clone, PartialEq)]
enum Request {
    Create(Box<DiskSpec>),
    Delete,
    Expand(Gib),
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(_) => f.write_str("its creation"),
            Self::Delete => f.write_str("its deletion"),
            Self::Expand(size) => write!(f, "its expansion to {size}"),
        }
    }
}

/// The disk after an operation on it; `None` after its deletion.
type ResultingDisk = Option<Arc<Disk>>;
type DiskHold = Hold<Request, ResultingDisk>;

/// What [`Volumes`] is made from.
#[derive(Debug)]
pub struct Settings {
    /// The client.
    pub compute: Compute,
    /// The subscription of the cluster.
    pub subscription: String,
    /// The resource group of the cluster's VMs.
    pub resource_group: String,
    /// The LUNs that VolumeAttachments name.
    pub reservations: watch::Receiver<LunReservations>,
    /// The handles of the cluster's PersistentVolumes. They are known when the LUNs are.
    pub handles: watch::Receiver<VolumeHandles>,
    /// The cluster's Nodes.
    pub nodes: watch::Receiver<ClusterNodes>,
    /// The VM sizes beyond those of the shipped table.
    pub sizes: watch::Receiver<SizeLimits>,
    /// How to ask Kubernetes what a node uses; without it no dangling attachment is detached.
    pub node_facts: Option<NodeFactsReader>,
    /// Where events for people go.
    pub events: lossy::Sender<Event>,
    /// Whether disks may be detached by force.
    pub force_detach: ForceDetach,
    /// Whether disks are detached from nodes on which Kubernetes does not use them.
    pub detach_unused: DetachUnused,
    /// Which attachments are allowed.
    pub admission: Admission,
    /// How data disks are written at first. A worker changes the method when Azure does not allow this one.
    pub method: VmWriteMethod,
}

/// A disk and the nodes it is attached to.
#[derive(Debug, Clone)]
pub struct Found {
    /// The disk.
    pub disk: Arc<Disk>,
    /// Its volume id as Kubernetes spells it.
    pub volume_id: String,
    /// The names of the nodes, as Kubernetes spells them.
    pub nodes: Vec<String>,
}

/// A disk that is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Its LUN.
    pub lun: Lun,
    /// The snapshot, disk or image that it was made from.
    pub source: Option<String>,
}

/// A disk that was made, or that existed and fits the request.
#[derive(Debug, Clone)]
pub struct Created {
    /// The volume's id: the disk's, as Azure spells it.
    pub volume_id: String,
    /// What the answer says of it.
    pub adopted: Adopted,
}

/// The volumes of one cluster.
#[derive(Debug, Clone)]
pub struct Volumes {
    client: Client,
    /// The cluster's own resource group.
    group: ResourceGroup,
    nodes: Nodes,
    workers: VmWorkers,
    in_flight: InFlight<Request, ResultingDisk>,
    reservations: ClusterSnapshot<LunReservations>,
    /// The handles of the requests so far, and of the disks that this process made.
    handle_casing: Arc<Mutex<HandleCasing>>,
    /// The handles of PersistentVolumes.
    handles: watch::Receiver<VolumeHandles>,
    node_facts: Option<NodeFactsReader>,
    detach_unused: DetachUnused,
    admission: Admission,
    events: lossy::Sender<Event>,
    lists: Lists,
}

impl Volumes {
    /// The volumes of a cluster.
    pub fn new(settings: Settings) -> Self {
        let Settings {
            compute,
            subscription,
            resource_group,
            reservations,
            handles,
            nodes,
            sizes,
            node_facts,
            events,
            force_detach,
            detach_unused,
            admission,
            method,
        } = settings;
        let client = Client::new(compute);
        let nodes = Nodes::new(&subscription, &resource_group, nodes);
        let reservations = ClusterSnapshot::new(reservations, |luns| *luns != LunReservations::Cold);
        let policy = worker::Policy { force_detach, events: events.clone() };
        let workers = VmWorkers::new(client.clone(), nodes.clone(), reservations.clone(), sizes, method, policy);
        Self {
            client,
            group: ResourceGroup { subscription, name: resource_group },
            nodes,
            workers,
            in_flight: InFlight::default(),
            reservations,
            handle_casing: Arc::default(),
            handles,
            node_facts,
            detach_unused,
            admission,
            events,
            lists: Lists::default(),
        }
    }

    /// Makes the disk of a plan, or finds a disk of that name that fits.
    ///
    /// # Errors
    /// [`CreateError::Exists`] when the disk of that name does not fit; otherwise Azure's own failures, with
    /// [`Effect::Possible`](lazuli_model::fault::Effect::Possible) unless it is certain that no disk is left behind.
    pub async fn create(&self, plan: &CreatePlan) -> Result<Created, CreateError> {
        let request = Request::Create(Box::new(plan.spec.clone()));
        let operation = |wanted| create(self.client.clone(), plan.disk.clone(), plan.spec.clone(), wanted);
        let disk = resulting_disk(self.in_flight.run(&plan.disk, request, operation).await?);
        let adopted = plan.adopt(&disk).map_err(CreateError::Exists)?;
        // The disk's creation was read singly. So the attach of a new volume costs no further read.
        self.workers.learn_source(&disk);
        // A volume has one handle. Azure may change the letter case of the id from answer to answer.
        let volume_id = self.handle_casing().of_or_add(&disk.id).to_string();
        Ok(Created { volume_id, adopted })
    }

    /// Deletes a disk. Succeeds when there is none. A disk that is attached to a node on which Kubernetes does not use it
    /// is detached first.
    ///
    /// # Errors
    /// [`Fault::InUse`] naming the nodes while it is attached; otherwise Azure's own failures.
    pub async fn delete(&self, disk: &ArmId) -> Result<(), VolumeError> {
        let delete = || {
            let operation = |wanted| delete(self.client.clone(), self.nodes.clone(), disk.clone(), wanted);
            self.in_flight.run(disk, Request::Delete, operation)
        };
        match delete().await {
            Err(error) if error.fault == Fault::InUse => {
                self.free_from_dangling(disk, Blocked::Delete, error).await?;
                delete().await?;
            }
            deleted => {
                deleted?;
            }
        }
        self.handle_casing().remove(disk);
        self.workers.forget(disk);
        Ok(())
    }

    /// Attaches a disk to a node.
    ///
    /// # Errors
    /// [`Fault::AttachedElsewhere`] naming the node, [`Fault::DiskLimit`], [`Fault::NotFound`] for a missing disk or
    /// node, [`Fault::Busy`] while it is being detached; otherwise Azure's own failures.
    pub async fn publish(
        &self,
        disk: &ArmId,
        node: &str,
        caching: Option<CachingMode>,
    ) -> Result<Published, VolumeError> {
        let Candidate { vm, named } = self.nodes.candidate(node).await?;
        self.nodes.check_is_of_cluster(node, &vm)?;
        self.admit(disk, node, &vm).await?;
        if named {
            // Where the Node is deleted while the disk is being attached, this is the VM that the disk must leave.
            self.nodes.learn(node, &vm);
        }
        let mut requested = self.request(&vm, node, disk, Goal::Attached(caching)).await;
        if let Err(error) = &requested
            && is_held_elsewhere(error)
        {
            self.free_from_dangling(disk, Blocked::Attach, error.clone()).await?;
            requested = self.request(&vm, node, disk, Goal::Attached(caching)).await;
        }
        let lun = match requested {
            // The VM may have another name than the node. "Not found" may also be about the disk, so the VM is read.
            Err(error) if error.fault == Fault::NotFound && !named && self.is_missing(&vm).await? => {
                self.nodes.forget(node);
                let vm = self.nodes.search(&self.client, node).await?.found(node)?;
                self.request(&vm, node, disk, Goal::Attached(caching)).await?
            }
            outcome => {
                let lun = outcome?;
                self.nodes.learn(node, &vm);
                lun
            }
        };
        let lun = lun.ok_or_else(|| {
            VolumeError::new(
                Fault::Conflict,
                format!("{disk} was detached from node {node} while its attach was requested; retry"),
            )
        })?;
        // The worker may have read the disk by a list before it attached it, and a list may show the disk that had this name
        // before. Nothing but a single read says what a disk was made from, so that a node never formats it.
        let source = match self.workers.source_of(disk) {
            Some(known) => known,
            None => {
                let read = self.client.read_disk(disk, Freshness::single().priority(Priority::Attach)).await;
                let read = read.map_err(|error| VolumeError::azure(format!("{disk} cannot be read"), error))?.model;
                self.workers.learn_source(&read);
                read.source
            }
        };
        Ok(Published { lun, source })
    }

    /// Detaches a disk from a node, or from every node when none is named.
    ///
    /// # Errors
    /// Azure's own failures. It is an error when it cannot be proved that the VM of the node is gone.
    pub async fn unpublish(&self, disk: &ArmId, node: Option<&str>) -> Result<(), VolumeError> {
        if let Some(node) = node {
            return self.unpublish_from(disk, node).await;
        }
        // While the disk is being attached to a node it does not name that VM yet, and it must leave that node too.
        if self.in_flight.is_attaching_or_detaching(disk) {
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
        let candidate = match self.nodes.candidate(node).await {
            Ok(candidate) => candidate,
            // No VM can have this name, so nothing is attached to it.
            Err(error) if error.fault == Fault::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let known = candidate.known();
        let Candidate { vm, named } = candidate;
        // Judged when the VM was guessed: the Node may register again, with another machine, while the detach is under way.
        let needs_holders = self.nodes.needs_holders(node, known);
        let before = if needs_holders { self.fresh_disk(disk).await? } else { None };
        let left = match self.request(&vm, node, disk, Goal::Detached).await {
            Ok(_) => vm,
            Err(error) if self.tells_that_it_is_missing(&error, &vm).await? => {
                self.nodes.forget(node);
                if named {
                    let others = self.nodes.vms_beside(&self.client, &vm).await?;
                    return self.confirm_gone(&vm, node, known, disk, &others).await;
                }
                match self.nodes.search(&self.client, node).await? {
                    Search::Found(found) => {
                        self.request(&found, node, disk, Goal::Detached).await?;
                        found
                    }
                    Search::Absent(others) => return self.confirm_gone(&vm, node, known, disk, &others).await,
                }
            }
            Err(error) => return Err(error),
        };
        if needs_holders {
            // Nothing is learned of it: the Node is gone, and the VM was a guess.
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
        if self.in_flight.is_attaching_or_detaching(disk) {
            return Err(VolumeError::new(Fault::Busy, format!("{disk} is being attached or detached; retry")));
        }
        for holder in unpublish::other_holders(&read, vm) {
            let machine = match self.client.get_vm(holder).await {
                Ok(read) => Some(read.model),
                Err(error) if error.fault == Fault::NotFound => None,
                Err(error) => return Err(VolumeError::azure(format!("{holder} cannot be read"), error)),
            };
            match self.nodes.judge_holder(node, known, machine.as_ref()) {
                Verdict::Leave => {}
                Verdict::Detach => {
                    self.request(holder, node, disk, Goal::Detached).await?;
                    self.nodes.learn(node, holder);
                }
                Verdict::Unknown => {
                    return Err(VolumeError::new(
                        Fault::Conflict,
                        format!(
                            "{disk} may still be attached to node {node}: the cluster has no such Node any more, and the \
                             disk is attached to {holder}, which no Node names and which may be that node's machine; if it \
                             is, and nothing uses the disk there, detach it in Azure, and this request ends: {}; if it is \
                             not, let the disk stay there and remove the finalizers of the VolumeAttachment of {} and this \
                             node",
                            detach_command(holder, disk),
                            disk.name()
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    async fn request(&self, vm: &ArmId, node: &str, disk: &ArmId, goal: Goal) -> worker::Outcome {
        let hold = self.in_flight.hold(disk)?;
        self.workers.request(vm, node, disk, goal, hold).await
    }

    async fn is_missing(&self, vm: &ArmId) -> Result<bool, VolumeError> {
        let freshness = Freshness::single().priority(Priority::DetachDeadNode);
        match self.client.read_vm(vm, freshness).await {
            Ok(_) => Ok(false),
            Err(error) => {
                let error = VolumeError::azure(format!("{vm} cannot be read"), error);
                if self.tells_that_it_is_missing(&error, vm).await? { Ok(true) } else { Err(error) }
            }
        }
    }

    /// Whether a request that failed so shows that a machine does not exist. Of an instance Azure may also say that its
    /// scale set does not exist, or that the request is invalid; then the scale set and the list of its instances tell.
    async fn tells_that_it_is_missing(&self, error: &VolumeError, vm: &ArmId) -> Result<bool, VolumeError> {
        match (&error.fault, scale_set_of(vm)) {
            (Fault::NotFound, _) => Ok(true),
            (Fault::ScopeNotFound | Fault::Invalid, Some(set)) => {
                if !scale_set_exists(&self.client, &set).await? {
                    return Ok(true);
                }
                let instances = self.nodes.vms_beside(&self.client, vm).await?;
                Ok(!instances.iter().any(|instance| instance.id == *vm))
            }
            _ => Ok(false),
        }
    }

    /// Succeeds when a VM that was not found is gone for good: it is not found again [`GONE_FOR`] later, another VM of its
    /// resource group is found then, and the disk does not name a VM that is the node or may be it. A resource group or subscription
    /// that cannot be read proves nothing.
    async fn confirm_gone(
        &self,
        vm: &ArmId,
        node: &str,
        known: NodeVm,
        disk: &ArmId,
        others: &[Vm],
    ) -> Result<(), VolumeError> {
        sleep(GONE_FOR).await;
        if !self.is_missing(vm).await? {
            return Err(VolumeError::new(
                Fault::Conflict,
                format!("node {node}: its VM was missing and is there again"),
            ));
        }
        self.positive_control(vm, node, others).await?;
        // While the disk is being attached it does not name that VM yet, and that VM may be the node.
        if self.in_flight.is_attaching_or_detaching(disk) {
            return Err(VolumeError::new(Fault::Busy, format!("{disk} is being attached or detached; retry")));
        }
        // The VM that was not found may be a guess by the node's name, and a VM of another resource group was not in the
        // list of VMs. Only a single read shows the VM that has the disk.
        self.leave_other_holders(vm, node, known, disk).await?;
        info!(node, %disk, "the node's VM is gone, so the disk is not attached to it");
        Ok(())
    }

    /// Proves that this identity can see VMs, so that a VM that is not found does not exist: another VM of the resource
    /// group can be read. In a group without another VM the list of its VMs must succeed.
    async fn positive_control(&self, vm: &ArmId, node: &str, others: &[Vm]) -> Result<(), VolumeError> {
        const MOST: usize = 3;
        for other in others.iter().filter(|other| other.id != *vm).take(MOST) {
            if !self.is_missing(&other.id).await? {
                return Ok(());
            }
        }
        let beside = self.nodes.vms_beside(&self.client, vm).await?;
        if beside.iter().any(|beside| beside.id == *vm || is_machine(beside, node)) {
            return Err(VolumeError::new(
                Fault::Conflict,
                format!("node {node}: its VM has appeared since it was missing"),
            ));
        }
        Ok(())
    }

    /// Grows a disk to `required_bytes`, unless it is that large. Returns its size then.
    ///
    /// # Errors
    /// [`ExpandError::Range`] when no size fits the limits; [`Fault::InUse`] when Azure grows it only while detached.
    pub async fn expand(&self, disk: &ArmId, required_bytes: i64, limit_bytes: i64) -> Result<Gib, ExpandError> {
        let read = self
            .client
            .get_disk(disk)
            .await
            .map_err(|error| VolumeError::azure(format!("{disk} cannot be read"), error))?;
        let to = match plan_expand(&read.model, required_bytes, limit_bytes).map_err(ExpandError::Range)? {
            Expand::Enough(size) => return Ok(size),
            Expand::Grow { to, needs_detach } => {
                if let (Some(why), false) = (needs_detach, read.model.holders().is_empty()) {
                    let message = format!("{disk} cannot be expanded to {to} while it is attached: {why}");
                    return Err(VolumeError::new(Fault::InUse, message).into());
                }
                to
            }
        };
        let operation = |wanted| expand(self.client.clone(), disk.clone(), to, wanted);
        Ok(resulting_disk(self.in_flight.run(disk, Request::Expand(to), operation).await?).size)
    }

    /// A disk and its nodes.
    ///
    /// # Errors
    /// [`Fault::NotFound`]; otherwise Azure's own failures.
    pub async fn get(&self, disk: &ArmId) -> Result<Found, VolumeError> {
        let read = self
            .client
            .get_disk(disk)
            .await
            .map_err(|error| VolumeError::azure(format!("{disk} cannot be read"), error))?;
        let handle = self.handle_casing().of(&read.model.id).cloned();
        Ok(self.found(read.model, handle.as_deref()))
    }

    /// Records the letter case of a volume's handle, as Kubernetes sent it.
    pub fn learn_handle_casing(&self, volume: &VolumeId) {
        self.handle_casing().add(volume.as_str());
    }

    fn found(&self, disk: Disk, handle: Option<&str>) -> Found {
        Found {
            nodes: disk.holders().into_iter().map(|vm| self.nodes.name_of(vm)).collect(),
            volume_id: handle.unwrap_or(disk.id.as_str()).to_owned(),
            disk: Arc::new(disk),
        }
    }

    fn handle_casing(&self) -> MutexGuard<'_, HandleCasing> {
        self.handle_casing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a disk was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// A disk of this name exists and does not fit the request.
    #[error(transparent)]
    Exists(Mismatch),
    /// It could not be made.
    #[error(transparent)]
    Failed(#[from] VolumeError),
}

/// Why a disk was not grown.
#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    /// No size of a disk of this kind fits the limits.
    #[error(transparent)]
    Range(ParameterError),
    /// It could not be grown.
    #[error(transparent)]
    Failed(#[from] VolumeError),
}

fn resulting_disk(disk: ResultingDisk) -> Arc<Disk> {
    disk.expect("only a deletion leaves no disk, and a request joins only an operation of the same request")
}

#[cfg(test)]
mod tests;
