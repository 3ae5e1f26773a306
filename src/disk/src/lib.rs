//! Managed disks as volumes: made, found, attached, detached, grown, deleted.
//!
//! This crate turns decisions of `lazuli-plan` into calls of `lazuli-azure`, each in a task that outlives its
//! caller: one worker per VM ([`worker`]) and one operation per disk ([`claims`]). It knows nothing of gRPC, and of
//! Kubernetes only what it is given: which LUNs VolumeAttachments name. It keeps no state that Azure does not have;
//! what it remembers ([`Nodes`], the spelling of handles) only saves questions and spells answers.

mod claims;
mod client;
mod dangling;
mod error;
mod list;
mod nodes;
mod told;
mod worker;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lazuli_azure::compute::{Compute, Freshness};
use lazuli_plan::{
    disk::{Adopted, CreatePlan, DiskSpec, Expand, Mismatch, ParameterError, plan_expand},
    fault::{Effect, Fault},
    list::{HandleCasing, ResourceGroup, VolumeHandles},
    lun::LunReservations,
    model::{ArmId, CachingMode, Disk, Gib, Lun, ProvisioningState, Vm, VolumeId},
    node::ClusterNodes,
    op::VmWriteMethod,
    permit::Priority,
    poll,
    size::SizeLimits,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use claims::{Claims, Hold};
use client::Client;
pub use dangling::NodeFactsReader;
use dangling::is_held_elsewhere;
pub use error::VolumeError;
use list::Lists;
pub use list::{ListedVolume, VolumeList};
use nodes::{Candidate, Nodes, Search, is_machine};
use told::Told;
use worker::{Goal, VmWorkers};

/// How long to wait for a disk that somebody else is making.
const CREATION_WAIT: Duration = Duration::from_secs(600);
/// How long to wait with the next try to delete a disk that Azure is busy with and that cannot be seen.
const DELETION_PAUSES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(4)];
/// How long a VM must be missing before it counts as gone.
const GONE_FOR: Duration = Duration::from_secs(2);

/// What is done to a disk as a whole; the key by which a repeated request joins the running one.
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

/// What an operation on a whole disk leaves: the disk, unless it was deleted.
type Left = Option<Arc<Disk>>;
type DiskHold = Hold<Request, Left>;

/// What [`Volumes`] is made from.
#[derive(Debug)]
pub struct Settings {
    /// The client.
    pub compute: Compute,
    /// The subscription of the cluster.
    pub subscription: String,
    /// The resource group of the cluster's VMs.
    pub resource_group: String,
    /// Which LUNs Kubernetes names.
    pub reservations: watch::Receiver<LunReservations>,
    /// The handles of the cluster's PersistentVolumes. They are known when the LUNs are.
    pub handles: watch::Receiver<VolumeHandles>,
    /// The cluster's Nodes.
    pub nodes: watch::Receiver<ClusterNodes>,
    /// What is known of VM sizes beyond the shipped table.
    pub sizes: watch::Receiver<SizeLimits>,
    /// How to ask Kubernetes what a node uses; without it no dangling attachment is detached.
    pub node_facts: Option<NodeFactsReader>,
    /// How data disks are written at first; a missing permission makes it fall back.
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
    /// Its slot.
    pub lun: Lun,
    /// What it was made from, where that is known without a further read.
    pub source: Option<String>,
}

/// A disk that was made, or found made.
#[derive(Debug, Clone)]
pub struct Created {
    /// The volume's id: the disk's, as Azure spells it.
    pub volume_id: String,
    /// What may be said of it.
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
    claims: Claims<Request, Left>,
    reservations: Told<LunReservations>,
    /// The handles of the requests so far, and of the disks that this process made.
    spellings: Arc<Mutex<HandleCasing>>,
    /// The handles of PersistentVolumes.
    handles: watch::Receiver<VolumeHandles>,
    node_facts: Option<NodeFactsReader>,
    lists: Lists,
}

impl Volumes {
    /// The volumes of a cluster.
    pub fn new(settings: Settings) -> Self {
        let Settings { compute, subscription, resource_group, reservations, handles, nodes, sizes, node_facts, method } =
            settings;
        let client = Client::new(compute);
        let nodes = Nodes::new(&subscription, &resource_group, nodes);
        let reservations = Told::new(reservations, |luns| *luns != LunReservations::Cold);
        let workers = VmWorkers::new(client.clone(), nodes.clone(), reservations.clone(), sizes, method);
        Self {
            client,
            group: ResourceGroup { subscription, name: resource_group },
            nodes,
            workers,
            claims: Claims::default(),
            reservations,
            spellings: Arc::default(),
            handles,
            node_facts,
            lists: Lists::default(),
        }
    }

    /// Makes the disk of a plan, or finds it made.
    ///
    /// # Errors
    /// [`CreateError::Exists`] when a disk of that name is another disk; otherwise as Azure says, with
    /// [`Effect::Possible`] unless it is certain that no disk is left behind.
    pub async fn create(&self, plan: &CreatePlan) -> Result<Created, CreateError> {
        let request = Request::Create(Box::new(plan.spec.clone()));
        let operation = |wanted| create(self.client.clone(), plan.disk.clone(), plan.spec.clone(), wanted);
        let disk = left(self.claims.run(&plan.disk, request, operation).await?);
        let adopted = plan.adopt(&disk).map_err(CreateError::Exists)?;
        // One volume has one handle, however Azure spells it from answer to answer.
        let volume_id = self.spellings().of_or_add(&disk.id).to_string();
        Ok(Created { volume_id, adopted })
    }

    /// Deletes a disk; one that does not exist is deleted.
    ///
    /// # Errors
    /// [`Fault::InUse`] naming the nodes while it is attached; otherwise as Azure says.
    pub async fn delete(&self, disk: &ArmId) -> Result<(), VolumeError> {
        let operation = |wanted| delete(self.client.clone(), self.nodes.clone(), disk.clone(), wanted);
        self.claims.run(disk, Request::Delete, operation).await?;
        self.spellings().remove(disk);
        self.workers.forget(disk);
        Ok(())
    }

    /// Attaches a disk to a node.
    ///
    /// # Errors
    /// [`Fault::AttachedElsewhere`] naming the node, [`Fault::DiskLimit`], [`Fault::NotFound`] for a missing disk or
    /// node, [`Fault::Busy`] while it is being detached; otherwise as Azure says.
    pub async fn publish(
        &self,
        disk: &ArmId,
        node: &str,
        caching: Option<CachingMode>,
    ) -> Result<Published, VolumeError> {
        let Candidate { vm, named } = self.nodes.candidate(node).await?;
        self.nodes.check_is_of_cluster(node, &vm)?;
        let mut requested = self.request(&vm, node, disk, Goal::Attached(caching)).await;
        if let Err(error) = &requested
            && is_held_elsewhere(error)
        {
            self.free_from_dangling(disk, error.clone()).await?;
            requested = self.request(&vm, node, disk, Goal::Attached(caching)).await;
        }
        let lun = match requested {
            // The VM may have another name than the node; the disk's own absence is told apart by asking for it.
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
        let lun =
            lun.ok_or_else(|| VolumeError::new(Fault::Conflict, format!("{disk} was detached from {node} meanwhile")))?;
        Ok(Published { lun, source: self.workers.source_of(disk) })
    }

    /// Detaches a disk from a node, or from every node when none is named.
    ///
    /// # Errors
    /// As Azure says; a node whose VM cannot be proved gone is an error, never a success.
    pub async fn unpublish(&self, disk: &ArmId, node: Option<&str>) -> Result<(), VolumeError> {
        if let Some(node) = node {
            return self.unpublish_from(disk, node).await;
        }
        // While it is on its way to a node the disk names nobody, and "from all nodes" is a promise about that one too.
        if self.claims.is_held(disk) {
            return Err(VolumeError::new(Fault::Busy, format!("{disk} is being attached or detached")));
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
            Err(error) if error.fault == Fault::NotFound => {
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
        let hold = self.claims.hold(disk)?;
        self.workers.request(vm, node, disk, goal, hold).await
    }

    async fn is_missing(&self, vm: &ArmId) -> Result<bool, VolumeError> {
        let freshness = Freshness::single().priority(Priority::DetachDeadNode);
        match self.client.read_vm(vm, freshness).await {
            Ok(_) => Ok(false),
            Err(error) if error.fault == Fault::NotFound => Ok(true),
            Err(error) => Err(VolumeError::azure(format!("{vm} cannot be read"), error)),
        }
    }

    /// Whether a VM that was missing once is gone for good: missing again some seconds later, while in the same round
    /// another VM of its resource group is there, and the disk does not say that this VM holds it. A group or
    /// subscription that cannot be read proves nothing.
    async fn confirm_gone(&self, vm: &ArmId, node: &str, disk: &ArmId, others: &[Vm]) -> Result<(), VolumeError> {
        sleep(GONE_FOR).await;
        if !self.is_missing(vm).await? {
            return Err(VolumeError::new(
                Fault::Conflict,
                format!("node {node}: its VM was missing and is there again"),
            ));
        }
        self.positive_control(vm, node, others).await?;
        // Azure has no VM that a list of holders could confirm wrongly, so a list may say who holds the disk.
        let freshness = Freshness::listed().priority(Priority::DetachDeadNode);
        let holders: Vec<ArmId> = match self.client.read_disk(disk, freshness).await {
            Ok(read) => read.model.holders().into_iter().filter(|holder| *holder != vm).cloned().collect(),
            Err(error) if error.fault == Fault::NotFound => Vec::new(),
            Err(error) => return Err(VolumeError::azure(format!("{disk} cannot be read"), error)),
        };
        // A VM outside of the cluster's resource group is on no list of ours, and may be the node all the same.
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
        info!(node, %disk, "the node's VM is gone, and the disk with it or free of it");
        Ok(())
    }

    /// Shows that an absent VM is absent and not hidden: another VM of the group can be read. In a group without
    /// another VM the list of its VMs has to do.
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

    /// Grows a disk until it has `required_bytes`; one that has is left as it is. Gives its size then.
    ///
    /// # Errors
    /// [`ExpandError::Range`] when the range cannot be met; [`Fault::InUse`] when Azure grows it only while detached.
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
        Ok(left(self.claims.run(disk, Request::Expand(to), operation).await?).size)
    }

    /// A disk and its nodes.
    ///
    /// # Errors
    /// [`Fault::NotFound`]; otherwise as Azure says.
    pub async fn get(&self, disk: &ArmId) -> Result<Found, VolumeError> {
        let read = self
            .client
            .get_disk(disk)
            .await
            .map_err(|error| VolumeError::azure(format!("{disk} cannot be read"), error))?;
        let spelling = self.spellings().of(&read.model.id).cloned();
        Ok(self.found(read.model, spelling.as_deref()))
    }

    /// Takes note of how Kubernetes spells a volume's handle.
    pub fn learn_spelling(&self, volume: &VolumeId) {
        self.spellings().add(volume.as_str());
    }

    fn found(&self, disk: Disk, spelling: Option<&str>) -> Found {
        Found {
            nodes: disk.holders().into_iter().map(|vm| self.nodes.name_of(vm)).collect(),
            volume_id: spelling.unwrap_or(disk.id.as_str()).to_owned(),
            disk: Arc::new(disk),
        }
    }

    fn spellings(&self) -> MutexGuard<'_, HandleCasing> {
        self.spellings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a disk was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// A disk of this name exists and is another disk.
    #[error(transparent)]
    Exists(Mismatch),
    /// It could not be made.
    #[error(transparent)]
    Failed(#[from] VolumeError),
}

/// Why a disk was not grown.
#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    /// The range cannot be met by any disk of this kind.
    #[error(transparent)]
    Range(ParameterError),
    /// It could not be grown.
    #[error(transparent)]
    Failed(#[from] VolumeError),
}

fn left(left: Left) -> Arc<Disk> {
    left.expect("only a deletion leaves no disk, and a request joins only its like")
}

async fn create(client: Client, id: ArmId, spec: DiskSpec, wanted: CancellationToken) -> Result<Left, VolumeError> {
    let message = || format!("{id} cannot be created");
    // The permit first: the PUT knows no condition, and what is read before it must not be old when it is sent.
    let permit = client.permit_creation(&id, &wanted).await.map_err(|error| VolumeError::azure(message(), error))?;
    let was_there = match client.read_disk(&id, Freshness::single().priority(Priority::Create)).await {
        Ok(read) => {
            let disk = settled(&client, read.model).await?;
            // Azure says Failed also of a disk that holds data and could not be changed. Only one that is what is asked
            // for, in all and to the byte, may be a creation that failed, which a repeated PUT makes good and which
            // changes nothing where it was another write that failed.
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
        // Without the group there is no disk; any other failure leaves open whether an earlier attempt made one.
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
    // Whatever went wrong, the state tells whether a disk is left, and a half-made one must not stay: a retry in
    // another zone would meet it.
    let disk = match client.get_disk(&id).await {
        Ok(read) => settled(&client, read.model).await?,
        // "Not allowed" says little, but where no disk is left it was the quota: that alone forbids a disk whose
        // request is in order.
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
        // What was there before this call may hold data, whatever it is like.
        ProvisioningState::Failed | ProvisioningState::Canceled if !was_there && is_it && disk.holders().is_empty() => {
            match client.delete_disk(&id, &CancellationToken::new()).await {
                Ok(()) => Err(error.with_effect(Effect::None)),
                Err(cleanup) => {
                    warn!(disk = %id, error = %cleanup, "a half-made disk could not be deleted; the next attempt meets it");
                    Err(error.with_effect(Effect::Possible))
                }
            }
        }
        _ => Err(error.with_effect(Effect::Possible)),
    }
}

/// Waits for whoever works on a disk: somebody else, or an earlier try of ours whose answer was lost. `None` when the
/// disk is gone then.
async fn rested(client: &Client, id: &ArmId) -> Result<Option<Disk>, VolumeError> {
    let ended = match client.get_disk(id).await {
        Ok(read) => settled(client, read.model).await.map(Some),
        Err(error) => Err(VolumeError::azure(format!("{id} cannot be read"), error)),
    };
    match ended {
        Err(error) if error.fault == Fault::NotFound => Ok(None),
        ended => ended,
    }
}

/// Waits until nobody works on a disk any more.
async fn settled(client: &Client, mut disk: Disk) -> Result<Disk, VolumeError> {
    let started = Instant::now();
    while disk.provisioning_state == ProvisioningState::InProgress {
        let elapsed = started.elapsed();
        if elapsed > CREATION_WAIT {
            let message = format!("{} has been in the making for {} s", disk.id, elapsed.as_secs());
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

async fn delete(client: Client, nodes: Nodes, id: ArmId, wanted: CancellationToken) -> Result<Left, VolumeError> {
    let mut result = client.delete_disk(&id, &wanted).await;
    for pause in DELETION_PAUSES {
        if !result.as_ref().is_err_and(|error| error.fault == Fault::Conflict) {
            break;
        }
        match rested(&client, &id).await? {
            Some(disk) if !disk.holders().is_empty() => break,
            Some(_) => {}
            // That Azure is busy with it and that it is not there are no two things: reads may lag. Its own answer to
            // another deletion tells.
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
    // Azure's code for "it is attached" means many things; the disk's state means one.
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

async fn expand(client: Client, id: ArmId, to: Gib, wanted: CancellationToken) -> Result<Left, VolumeError> {
    let mut result = client.resize_disk(&id, to, &wanted).await;
    if result.as_ref().is_err_and(|error| error.fault == Fault::Conflict) {
        match rested(&client, &id).await? {
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
