//! Managed disks as volumes: create, delete, publish, unpublish, expand, get, list.
//!
//! This crate turns decisions of `lazuli-plan` into calls of `lazuli-azure`, each in a task that outlives its
//! caller: one worker per VM ([`worker`]) and one operation per disk ([`in_flight`]). It knows nothing of gRPC. Of
//! Kubernetes it knows only the snapshots that it is given: the LUNs that VolumeAttachments name, and the handles of
//! PersistentVolumes. Its memory of nodes and of handle casing saves reads, and may be lost at any moment.

mod client;
mod cluster_snapshot;
mod dangling;
mod error;
mod in_flight;
mod list;
mod nodes;

mod worker;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lazuli_azure::compute::{Compute, Freshness};
use lazuli_plan::{
    disk::{Adopted, CreatePlan, DiskSpec, Expand, Mismatch, ParameterError, plan_expand},
    event::Event,
    fault::{Effect, Fault},
    force_detach::ForceDetach,
    list::{HandleCasing, ResourceGroup, VolumeHandles},
    lun::LunReservations,
    model::{ArmId, CachingMode, Disk, Gib, Lun, ProvisioningState, Vm, VolumeId},
    node::ClusterNodes,
    op::VmWriteMethod,
    permit::Priority,
    poll,
    size::SizeLimits,
};
use lazuli_telemetry::lossy;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use client::Client;
use cluster_snapshot::ClusterSnapshot;
pub use dangling::NodeFactsReader;
use dangling::{Blocked, is_held_elsewhere};
pub use error::VolumeError;
use in_flight::{Hold, InFlight};
use list::Lists;
pub use list::{ListedVolume, VolumeList};
use nodes::{Candidate, Nodes, Search, is_machine, scale_set_exists, scale_set_of};
use worker::{Goal, VmWorkers};

/// How long to wait for another writer's operation on a disk.
const PROVISIONING_WAIT: Duration = Duration::from_secs(600);
/// The pauses before the next tries to delete a disk that Azure calls busy in one answer and not found in the next.
const DELETION_PAUSES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(4)];
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
    /// The snapshot, disk or image that it was made from, where that is known without a further read.
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
            events,
            lists: Lists::default(),
        }
    }

    /// Makes the disk of a plan, or finds a disk of that name that fits.
    ///
    /// # Errors
    /// [`CreateError::Exists`] when the disk of that name does not fit; otherwise Azure's own failures, with
    /// [`Effect::Possible`] unless it is certain that no disk is left behind.
    pub async fn create(&self, plan: &CreatePlan) -> Result<Created, CreateError> {
        let request = Request::Create(Box::new(plan.spec.clone()));
        let operation = |wanted| create(self.client.clone(), plan.disk.clone(), plan.spec.clone(), wanted);
        let disk = resulting_disk(self.in_flight.run(&plan.disk, request, operation).await?);
        let adopted = plan.adopt(&disk).map_err(CreateError::Exists)?;
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
        Ok(Published { lun, source: self.workers.source_of(disk) })
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
        let Candidate { vm, named } = match self.nodes.candidate(node).await {
            Ok(candidate) => candidate,
            // No VM can have this name, so nothing is attached to it.
            Err(error) if error.fault == Fault::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        match self.request(&vm, node, disk, Goal::Detached).await {
            Ok(_) => {
                self.nodes.learn(node, &vm);
                Ok(())
            }
            Err(error) if self.tells_that_it_is_missing(&error, &vm).await? => {
                self.nodes.forget(node);
                if named {
                    let others = self.nodes.vms_beside(&self.client, &vm).await?;
                    return self.confirm_gone(&vm, node, disk, &others).await;
                }
                match self.nodes.search(&self.client, node).await? {
                    Search::Found(found) => self.request(&found, node, disk, Goal::Detached).await.map(drop),
                    Search::Absent(others) => self.confirm_gone(&vm, node, disk, &others).await,
                }
            }
            Err(error) => Err(error),
        }
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
    /// resource group is found then, and the disk does not name a VM that is the node. A resource group or subscription
    /// that cannot be read proves nothing.
    async fn confirm_gone(&self, vm: &ArmId, node: &str, disk: &ArmId, others: &[Vm]) -> Result<(), VolumeError> {
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
        // The VM that was not found may be a guess by the node's name. Only a single read shows the VM that has the disk.
        let freshness = Freshness::single().priority(Priority::DetachDeadNode);
        let holders: Vec<ArmId> = match self.client.read_disk(disk, freshness).await {
            Ok(read) => read.model.holders().into_iter().filter(|holder| *holder != vm).cloned().collect(),
            Err(error) if error.fault == Fault::NotFound => Vec::new(),
            Err(error) => return Err(VolumeError::azure(format!("{disk} cannot be read"), error)),
        };
        // A VM of another resource group was not in the list of VMs, and may be the node all the same.
        for holder in holders {
            match self.client.get_vm(&holder).await {
                Ok(read) if is_machine(&read.model, node) => {
                    self.request(&holder, node, disk, Goal::Detached).await?;
                    self.nodes.learn(node, &holder);
                }
                Ok(_) => {}
                Err(error) if error.fault == Fault::NotFound => {}
                Err(error) => return Err(VolumeError::azure(format!("{holder} cannot be read"), error)),
            }
        }
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

async fn create(
    client: Client,
    id: ArmId,
    spec: DiskSpec,
    wanted: CancellationToken,
) -> Result<ResultingDisk, VolumeError> {
    let message = || format!("{id} cannot be created");
    // The permit comes first: the PUT has no condition, so the read before it must not be old when the PUT is sent.
    let permit = client.permit_creation(&id, &wanted).await.map_err(|error| VolumeError::azure(message(), error))?;
    let was_there = match client.read_disk(&id, Freshness::single().priority(Priority::Create)).await {
        Ok(read) => {
            let disk = until_provisioned(&client, read.model).await?;
            // A disk that holds data is in the state Failed too, after a change of it that failed. So the PUT is repeated
            // only for a disk that is exactly what is requested: it completes a failed creation, and changes nothing
            // where another write has failed.
            let unfinished = matches!(disk.provisioning_state, ProvisioningState::Failed | ProvisioningState::Canceled)
                && spec.matches(&disk).is_ok()
                && disk.size == spec.size
                && disk.holders().is_empty();
            if !unfinished {
                return Ok(Some(Arc::new(disk)));
            }
            warn!(disk = %disk.id, "an earlier creation failed; it is repeated");
            true
        }
        Err(error) if matches!(error.fault, Fault::NotFound) => false,
        // Without the resource group there is no disk. After any other failure an earlier attempt may have made one.
        Err(error) if matches!(error.fault, Fault::ScopeNotFound) => return Err(VolumeError::azure(message(), error)),
        Err(error) => return Err(VolumeError::azure(message(), error).with_effect(Effect::Possible)),
    };
    let error = match client.create_disk(&id, &spec, permit).await {
        Ok(made) => {
            info!(disk = %id, size = %made.size, "disk created");
            return Ok(Some(Arc::new(made)));
        }
        Err(error) => VolumeError::azure(message(), error),
    };
    // The disk's state shows whether the failed creation has left a disk. An incomplete disk must not stay, because the
    // retry may be for another zone.
    let disk = match client.get_disk(&id).await {
        Ok(read) => until_provisioned(&client, read.model).await?,
        // Azure's code is ambiguous (`OperationNotAllowed`). Where it has left no disk, only the quota can have forbidden
        // a valid request.
        Err(read) if read.fault == Fault::NotFound && error.fault == Fault::Unclear => {
            return Err(error.resorted(Fault::Exhausted).with_effect(Effect::None));
        }
        Err(read) if read.fault == Fault::NotFound && error.fault != Fault::OutcomeUnknown => {
            return Err(error.with_effect(Effect::None));
        }
        Err(_) => return Err(error.with_effect(Effect::Possible)),
    };
    let is_it = spec.matches(&disk).is_ok();
    match disk.provisioning_state {
        ProvisioningState::Succeeded if is_it => Ok(Some(Arc::new(disk))),
        // A disk that existed before this call may hold data, and is never deleted here.
        ProvisioningState::Failed | ProvisioningState::Canceled if !was_there && is_it && disk.holders().is_empty() => {
            match client.delete_disk(&id, &CancellationToken::new()).await {
                Ok(()) => Err(error.with_effect(Effect::None)),
                Err(cleanup) => {
                    warn!(disk = %id, error = %cleanup, "an incomplete disk could not be deleted; the next attempt finds it");
                    Err(error.with_effect(Effect::Possible))
                }
            }
        }
        _ => Err(error.with_effect(Effect::Possible)),
    }
}

/// Reads a disk, and waits for the end of another writer's operation on it, or of an earlier try whose answer was lost.
/// `None` when the disk does not exist then.
async fn read_until_provisioned(client: &Client, id: &ArmId) -> Result<Option<Disk>, VolumeError> {
    let ended = match client.get_disk(id).await {
        Ok(read) => until_provisioned(client, read.model).await.map(Some),
        Err(error) => Err(VolumeError::azure(format!("{id} cannot be read"), error)),
    };
    match ended {
        Err(error) if error.fault == Fault::NotFound => Ok(None),
        ended => ended,
    }
}

/// Waits until no operation on the disk is in progress.
async fn until_provisioned(client: &Client, mut disk: Disk) -> Result<Disk, VolumeError> {
    let started = Instant::now();
    while disk.provisioning_state == ProvisioningState::InProgress {
        let elapsed = started.elapsed();
        if elapsed > PROVISIONING_WAIT {
            let message =
                format!("an operation on {} has been in progress for {} s; retry", disk.id, elapsed.as_secs());
            return Err(VolumeError::new(Fault::Conflict, message).with_effect(Effect::Possible));
        }
        sleep(poll::again(poll::Kind::DiskCreate, elapsed)).await;
        disk = client
            .get_disk(&disk.id)
            .await
            .map_err(|error| {
                VolumeError::azure(format!("{} cannot be read", disk.id), error).with_effect(Effect::Possible)
            })?
            .model;
    }
    Ok(disk)
}

async fn delete(
    client: Client,
    nodes: Nodes,
    id: ArmId,
    wanted: CancellationToken,
) -> Result<ResultingDisk, VolumeError> {
    let mut result = client.delete_disk(&id, &wanted).await;
    for pause in DELETION_PAUSES {
        if !result.as_ref().is_err_and(|error| error.fault == Fault::Conflict) {
            break;
        }
        match read_until_provisioned(&client, &id).await? {
            Some(disk) if !disk.holders().is_empty() => break,
            Some(_) => {}
            // Azure calls the disk busy, and a read does not find it. Reads may lag, so only the answer to another
            // deletion shows whether it exists.
            None => sleep(pause).await,
        }
        result = client.delete_disk(&id, &wanted).await;
    }
    let error = match result {
        Ok(()) => {
            info!(disk = %id, "disk deleted");
            return Ok(None);
        }
        Err(error) if error.fault == Fault::NotFound => return Ok(None),
        // A group is deleted with everything in it.
        Err(error) if error.fault == Fault::ScopeNotFound && error.code == "ResourceGroupNotFound" => {
            return Ok(None);
        }
        Err(error) => error,
    };
    // Azure's code for "the disk is attached" has other meanings too. The disk's own state is unambiguous.
    if matches!(error.fault, Fault::Unclear | Fault::Conflict | Fault::InUse)
        && let Ok(read) = client.get_disk(&id).await
        && !read.model.holders().is_empty()
    {
        let holders: Vec<String> = read.model.holders().into_iter().map(|vm| nodes.name_of(vm)).collect();
        let message = format!("{id} cannot be deleted: it is attached to node {}", holders.join(", "));
        return Err(VolumeError::azure(message, error).resorted(Fault::InUse));
    }
    Err(VolumeError::azure(format!("{id} cannot be deleted"), error))
}

async fn expand(client: Client, id: ArmId, to: Gib, wanted: CancellationToken) -> Result<ResultingDisk, VolumeError> {
    let mut result = client.resize_disk(&id, to, &wanted).await;
    if result.as_ref().is_err_and(|error| error.fault == Fault::Conflict) {
        match read_until_provisioned(&client, &id).await? {
            Some(disk) if disk.size >= to => return Ok(Some(Arc::new(disk))),
            Some(_) => result = client.resize_disk(&id, to, &wanted).await,
            None => {}
        }
    }
    match result {
        Ok(grown) => {
            info!(disk = %id, size = %grown.size, "disk expanded");
            Ok(Some(Arc::new(grown)))
        }
        Err(error) => Err(VolumeError::azure(format!("{id} cannot be expanded to {to}"), error)),
    }
}

#[cfg(test)]
mod tests;
