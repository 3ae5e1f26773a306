//! Managed disks as volumes: create, delete, publish, unpublish, expand, modify, get, list.
//!
//! This crate turns decisions of `lazuli-storage` and `lazuli-vm-disks` into calls of `lazuli-azure`. Writes go through tasks
//! that outlive their callers: one worker per VM ([`worker`]) and one per disk that is made, changed or deleted
//! ([`whole_disk`]). What a request to attach, detach or delete asks of these, and in which order, is a step of its own
//! ([`publish`]), which ends with its caller. A disk that unfinished snapshots need is neither deleted nor grown
//! ([`lazuli_storage::whole_disk::guard`], which also says what another replica can still do). It knows nothing of gRPC. Of
//! Kubernetes it knows only the snapshots that it is given: the LUNs that VolumeAttachments name, and the handles of
//! PersistentVolumes. Its memory of nodes and of handle casing saves reads, and may be lost at any moment.

mod admission;
mod blobs;
mod client;
mod cluster_snapshot;
mod conversions;
mod copies;
mod error;
mod imports;
mod known;
mod list;
mod node_facts;
mod nodes;
mod occupied;
#[cfg(test)]
mod on_nowhere;
mod publish;
mod snapshot;
mod snapshot_lists;
mod sweeps;
mod whole_disk;
mod whole_snapshot;
mod worker;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lazuli_azure::compute::Compute;
use lazuli_blob_disk::{BlobDiskError, BlobDisks};
use lazuli_journal::Recorder;
use lazuli_model::{
    ArmId, BlobUri, CachingMode, Disk, DiskId, Gib, Lun, VolumeId, disk_spec::Mismatch, event::Event, fault::Effect,
    node::ClusterNodes, op::VmWriteMethod, size::SizeLimits,
};
use lazuli_reconcile::{Clock, metrics::Metrics};
use lazuli_storage::{
    dangling::DetachUnused,
    force_detach::ForceDetach,
    list::{HandleCasing, ResourceGroup, VolumeHandles},
    lun::LunReservations,
    publish::{MachineList, NODES_WAIT, Policy, Request, SourceReader},
    whole_disk::{Done, Needed, Wanted, existence},
};
use lazuli_telemetry::lossy;
use lazuli_vhd::class::{BlobClass, Machines};
use lazuli_vm_disks::Memory;
use lazuli_volume::{
    Adopted, Cloud, CreatePlan, Expand, ParameterError,
    modify::{ModifyPlan, hindrance, may_be_hindered},
    plan_expand,
    snapshot::{GrowthBlocked, SnapshotsDepend},
};
use tokio::{sync::watch, time::Instant};

pub use admission::{Admission, AttachmentSourceReader};
use blobs::Blobs;
use client::Client;
use cluster_snapshot::ClusterSnapshot;
use conversions::Conversions;
use copies::Copies;
pub use copies::CopyError;
use error::Answer;
pub use error::VolumeError;
pub use imports::{ImportError, PageBlobs};
use known::KnownDisks;
use list::Lists;
pub use list::{ListedVolume, VolumeList};
pub use node_facts::NodeFactsReader;
use nodes::Nodes;
use occupied::Occupied;
use snapshot::Unfinished;
pub use snapshot::{SnapshotError, SnapshotFailure, SnapshotList};
use snapshot_lists::SnapshotLists;
use sweeps::Sweeps;
use whole_disk::{DiskCalls, WholeDisks, grows_only_detached};
use whole_snapshot::WholeSnapshots;
use worker::VmWorkers;

/// What [`Volumes`] is made from.
#[derive(Debug)]
pub struct Settings {
    /// The client.
    pub compute: Compute,
    /// The VHD blob disks. `None`: page blobs are neither made nor attached.
    pub blobs: Option<BlobDisks>,
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
    /// How data disks are written at first. A VM changes the method when Azure does not allow this one.
    pub method: VmWriteMethod,
    /// The metrics of the VMs' work.
    pub metrics: Metrics,
    /// Where it is noted what happens to disks and VMs.
    pub journal: Recorder,
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
    blobs: Blobs,
    /// The cluster's own resource group.
    group: ResourceGroup,
    nodes: Nodes,
    workers: VmWorkers,
    whole_disks: WholeDisks,
    conversions: Conversions,
    whole_snapshots: WholeSnapshots,
    unfinished: Unfinished,
    snapshot_lists: SnapshotLists,
    known: KnownDisks,
    occupied: Occupied,
    reservations: ClusterSnapshot<LunReservations>,
    /// The handles of the requests so far, and of the disks that this process made.
    handle_casing: Arc<Mutex<HandleCasing>>,
    /// The handles of PersistentVolumes.
    handles: watch::Receiver<VolumeHandles>,
    policy: Arc<Policy>,
    node_facts: Option<NodeFactsReader>,
    attachment_source: Option<AttachmentSourceReader>,
    events: lossy::Sender<Event>,
    lists: Lists,
    copies: Arc<Mutex<Copies>>,
    sweeps: Sweeps,
    /// The page blobs that disks are imported from.
    page_blobs: Option<PageBlobs>,
}

impl Volumes {
    /// The volumes of a cluster.
    pub fn new(settings: Settings) -> Self {
        let Settings {
            compute,
            blobs,
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
            metrics,
            journal,
        } = settings;
        let clock = Clock::start();
        let known = KnownDisks::new(clock);
        let blobs = Blobs::new(blobs, &subscription);
        let client = Client::new(compute, known.clone(), blobs.clone());
        let nodes = Nodes::new(&subscription, &resource_group, nodes);
        let reservations = ClusterSnapshot::new(reservations, |luns| *luns != LunReservations::Cold);
        let occupied = Occupied::default();
        let sweep_metrics = metrics.clone();
        let policy = worker::Policy { force_detach, events: events.clone() };
        let memory = Memory::new(method);
        let workers = VmWorkers::new(
            client.clone(),
            nodes.clone(),
            reservations.clone(),
            sizes,
            memory,
            policy,
            worker::Notes { metrics: metrics.clone(), journal: journal.clone() },
        );
        let snapshot_lists = SnapshotLists::new(client.clone(), clock);
        let calls = DiskCalls { client: client.clone(), clock, lists: snapshot_lists.clone(), known: known.clone() };
        let whole_disks = WholeDisks::new(calls, nodes.clone(), occupied.clone(), metrics.clone(), journal.clone());
        let conversions = Conversions::new(client.clone(), events.clone(), metrics.clone());
        let whole_snapshots = WholeSnapshots::new(client.clone(), occupied.clone(), known.clone(), metrics, journal);
        let group = ResourceGroup { subscription, name: resource_group };
        let sweeps = Sweeps::new(client.clone(), &group, sweep_metrics);
        let Admission { resource_groups, inline, source } = admission;
        let requests = Policy {
            home: group.clone(),
            driver: node_facts.as_ref().map(|facts| facts.driver().to_owned()),
            detach_unused,
            resource_groups,
            inline,
            source: source.as_ref().map_or(SourceReader::Absent, |_| SourceReader::Present),
        };
        Self {
            client,
            blobs,
            group,
            nodes,
            workers,
            whole_disks,
            conversions,
            whole_snapshots,
            unfinished: Unfinished::default(),
            snapshot_lists,
            known,
            occupied,
            reservations,
            handle_casing: Arc::default(),
            handles,
            policy: Arc::new(requests),
            node_facts,
            attachment_source: source,
            events,
            lists: Lists::default(),
            copies: Arc::default(),
            sweeps,
            page_blobs: None,
        }
    }

    /// The same volumes, some of which may be made from page blobs.
    #[must_use]
    pub fn with_page_blobs(self, page_blobs: PageBlobs) -> Self {
        Self { page_blobs: Some(page_blobs), ..self }
    }

    /// Makes the disk of a plan, or finds a disk of that name that fits.
    ///
    /// # Errors
    /// [`CreateError::Exists`] when the disk of that name does not fit; otherwise Azure's own failures, with
    /// [`Effect::Possible`](lazuli_model::fault::Effect::Possible) unless it is certain that no disk is left behind.
    pub async fn create(&self, plan: &CreatePlan) -> Result<Created, CreateError> {
        let requested_at = Instant::now();
        let made = self.whole_disks.request(&plan.disk, Wanted::Made(Arc::new(plan.spec.clone()))).await?;
        let disk = resulting_disk(made);
        let adopted = plan.adopt(&disk).map_err(CreateError::Exists)?;
        Ok(self.made(&disk, adopted, requested_at))
    }

    fn made(&self, disk: &Disk, adopted: Adopted, requested_at: Instant) -> Created {
        // The disk's creation was read singly. So the attach of a new volume costs no further read.
        self.workers.created(disk, requested_at);
        self.copies().learn(disk);
        self.known.made(disk);
        // A volume has one handle. Azure may change the letter case of the id from answer to answer.
        let volume_id = self.handle_casing().of_or_add(&(&disk.id).into()).to_string();
        Created { volume_id, adopted }
    }

    /// Deletes a disk. Succeeds when there is none. A disk that is attached to a node on which Kubernetes does not use it
    /// is detached first.
    ///
    /// # Errors
    /// [`DeleteError::Snapshots`] while the content of snapshots is only in it; `Fault::InUse` naming the nodes while it is
    /// attached; otherwise Azure's own failures.
    pub async fn delete(&self, disk: &ArmId) -> Result<(), DeleteError> {
        let carrier = self.carrier_of(disk).await;
        self.remove(disk, carrier).await?;
        self.handle_casing().remove(&disk.into());
        self.workers.forget(&disk.into());
        self.copies().forget(disk);
        self.known.forget(disk);
        Ok(())
    }

    /// Deletes a page blob. Succeeds when there is none. One that is attached is refused.
    ///
    /// # Errors
    /// `Fault::InUse` while its lease is held, naming the machine, or while it has snapshots; otherwise Azure's own failures.
    pub async fn delete_blob(&self, uri: &BlobUri) -> Result<(), VolumeError> {
        let disk = DiskId::Blob(uri.clone());
        self.carry(Request::Delete { disk: disk.clone() }).await?;
        self.handle_casing().remove(&disk);
        self.workers.forget(&disk);
        Ok(())
    }

    /// Makes a page blob, or finds the one that an earlier call of this request has made. Lists show it from then on.
    ///
    /// # Errors
    /// What the disk's own step says.
    pub async fn create_blob(
        &self,
        blobs: &BlobDisks,
        class: &BlobClass,
        request: &str,
    ) -> Result<lazuli_blob_disk::Made, BlobDiskError> {
        let made = blobs.create(class, request).await?;
        self.handle_casing().add(made.uri.as_str());
        Ok(made)
    }

    /// Grows a page blob, while nothing attaches it. Returns its size then, in bytes.
    ///
    /// # Errors
    /// [`BlobExpandError::Busy`] while it is being attached or detached; what the disk's own step says.
    pub async fn expand_blob(
        &self,
        blobs: &BlobDisks,
        uri: &BlobUri,
        (required_bytes, limit_bytes): (i64, i64),
    ) -> Result<u64, BlobExpandError> {
        let _hold = self.occupied.whole_blob(uri, "its growth").map_err(BlobExpandError::Busy)?;
        blobs.expand(uri, required_bytes, limit_bytes).await.map_err(BlobExpandError::Failed)
    }

    /// The VHD blob disks, where there are any.
    pub fn blob_disks(&self) -> Option<&BlobDisks> {
        self.blobs.disks()
    }

    /// Attaches a disk to a node.
    ///
    /// # Errors
    /// `Fault::AttachedElsewhere` naming the node, `Fault::DiskLimit`, `Fault::NotFound` for a missing disk or
    /// node, `Fault::Busy` while it is being detached; otherwise Azure's own failures.
    pub async fn publish(
        &self,
        disk: impl Into<DiskId>,
        node: &str,
        caching: Option<CachingMode>,
    ) -> Result<Published, VolumeError> {
        let request = Request::Publish { disk: disk.into(), node: node.to_owned(), caching };
        match self.carry(request).await? {
            publish::Done::Published { lun, source } => Ok(Published { lun, source }),
            publish::Done::Unpublished | publish::Done::Deleted => unreachable!("only a publish attaches a disk"),
        }
    }

    /// Detaches a disk from a node, or from every node when none is named.
    ///
    /// # Errors
    /// Azure's own failures. It is an error when it cannot be proved that the VM of the node is gone.
    pub async fn unpublish(&self, disk: impl Into<DiskId>, node: Option<&str>) -> Result<(), VolumeError> {
        let request = Request::Unpublish { disk: disk.into(), node: node.map(str::to_owned) };
        self.carry(request).await.map(drop)
    }

    /// Grows a disk to `required_bytes`, unless it is that large. Returns its size then.
    ///
    /// # Errors
    /// [`ExpandError::Range`] when no size fits the limits; [`ExpandError::Snapshots`] while its growth would make snapshots
    /// of it fail; `Fault::InUse` when Azure grows it only while detached.
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
                    return Err(grows_only_detached(disk, to, why).into());
                }
                to
            }
        };
        let read_at = self.whole_disks.since_start(read.seen.sent_at);
        let grown = self.whole_disks.request(disk, Wanted::Grown { before: Arc::new(read.model), read_at, to }).await?;
        Ok(resulting_disk(grown).size)
    }

    /// Gives a disk the attributes of a VolumeAttributesClass, unless it has them. Returns what was sent, and what a person
    /// is to know of it. A conversion that the change begins goes on in Azure, and is watched.
    ///
    /// # Errors
    /// `Fault::Invalid` with the parameter that this disk cannot have, before anything is sent; `Fault::Unclear` or
    /// `Fault::InUse` where Azure makes the change at another time; otherwise Azure's own failures.
    pub async fn modify(
        &self,
        disk: &ArmId,
        class: BTreeMap<String, String>,
        cloud: Cloud,
    ) -> Result<ModifyPlan, VolumeError> {
        let class = Arc::new(class);
        let wanted = Wanted::Changed { class: class.clone(), cloud };
        let plan = match self.whole_disks.request(disk, wanted).await {
            Ok(done) => changed(done),
            Err(error) => return Err(self.hindered(disk, (&class, cloud), error).await),
        };
        plan.conversion.iter().for_each(|conversion| self.conversions.began(disk, *conversion));
        Ok(plan)
    }

    /// The failure of a change, with what the disk shows to be in its way.
    async fn hindered(
        &self,
        disk: &ArmId,
        (class, cloud): (&BTreeMap<String, String>, Cloud),
        error: VolumeError,
    ) -> VolumeError {
        if !may_be_hindered(&error.fault, error.azure_code()) {
            return error;
        }
        let found = self.get(disk).await.ok();
        let hindrance = found.and_then(|found| hindrance(class, cloud, &found.disk, &found.nodes));
        error.hindered(disk, hindrance.as_deref())
    }

    /// A disk and its nodes.
    ///
    /// # Errors
    /// `Fault::NotFound`; otherwise Azure's own failures.
    pub async fn get(&self, disk: &ArmId) -> Result<Found, VolumeError> {
        let read = self
            .client
            .get_disk(disk)
            .await
            .map_err(|error| VolumeError::azure(format!("{disk} cannot be read"), error))?;
        let handle = self.handle_casing().of(&(&read.model.id).into()).cloned();
        Ok(self.found(read.model, handle.as_deref()))
    }

    /// A page blob as a disk, and its nodes.
    ///
    /// # Errors
    /// `Fault::NotFound`; otherwise Azure's own failures.
    pub async fn get_blob(&self, uri: &BlobUri) -> Result<(Gib, Vec<String>), VolumeError> {
        let disk = self.blobs.read(uri).await?;
        Ok((disk.size, disk.holders().into_iter().map(|vm| self.nodes.name_of(vm)).collect()))
    }

    /// What the machines of the cluster's Nodes take: blobs, or managed disks.
    ///
    /// # Errors
    /// Azure's own failures. An earlier try of whoever asks may have left a disk, of either sort.
    pub async fn machines(&self) -> Result<Machines, VolumeError> {
        self.nodes.known_within(NODES_WAIT).await;
        let groups = Machines::groups(&self.nodes.cluster(), (&self.group.subscription, &self.group.name));
        let mut machines = Vec::new();
        for (subscription, group) in groups {
            let of = MachineList::group(&subscription, &group);
            let failed =
                |error| VolumeError::azure(format!("{of} cannot be listed"), error).with_effect(Effect::Possible);
            let (_, listed) = self.nodes.list(&self.client, of.clone(), None).await.map_err(failed)?;
            machines.extend(listed.iter().cloned());
        }
        Ok(Machines::of_cluster(&self.nodes.cluster(), &machines))
    }

    /// Whether there is the managed disk that a plan makes.
    ///
    /// # Errors
    /// Azure's own failures, where they do not say that there is none: it may be there.
    pub async fn is_there(&self, plan: &CreatePlan) -> Result<bool, VolumeError> {
        let read = self.client.get_disk(&plan.disk).await.map_err(Answer);
        existence(read).map_err(|Answer(error)| {
            VolumeError::azure(format!("{} cannot be read", plan.disk), error).with_effect(Effect::Possible)
        })
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

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle_casing(&self) -> MutexGuard<'_, HandleCasing> {
        self.handle_casing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a page blob was not grown.
#[derive(Debug, thiserror::Error)]
pub enum BlobExpandError {
    /// It is being attached or detached.
    #[error(transparent)]
    Busy(VolumeError),
    /// Its step says it.
    #[error(transparent)]
    Failed(BlobDiskError),
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

/// Why a disk was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// The content of snapshots is only in it.
    #[error(transparent)]
    Snapshots(SnapshotsDepend),
    /// It could not be deleted.
    #[error(transparent)]
    Failed(VolumeError),
}

impl From<VolumeError> for DeleteError {
    fn from(error: VolumeError) -> Self {
        match error.needed_by_snapshots() {
            Some(Needed::Deletion(depend)) => Self::Snapshots(depend.clone()),
            Some(Needed::Expansion(_)) | None => Self::Failed(error),
        }
    }
}

/// Why a disk was not grown.
#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    /// No size of a disk of this kind fits the limits.
    #[error(transparent)]
    Range(ParameterError),
    /// Its growth would make snapshots of it fail.
    #[error(transparent)]
    Snapshots(GrowthBlocked),
    /// It could not be grown.
    #[error(transparent)]
    Failed(VolumeError),
}

impl From<VolumeError> for ExpandError {
    fn from(error: VolumeError) -> Self {
        match error.needed_by_snapshots() {
            Some(Needed::Expansion(blocked)) => Self::Snapshots(blocked.clone()),
            Some(Needed::Deletion(_)) | None => Self::Failed(error),
        }
    }
}

fn resulting_disk(done: Done) -> Arc<Disk> {
    match done {
        Done::Disk(disk) => disk,
        Done::Gone | Done::Replaced => unreachable!("only a deletion leaves no disk"),
        Done::Changed(_) => unreachable!("only a class changes attributes"),
    }
}

fn changed(done: Done) -> ModifyPlan {
    match done {
        Done::Changed(plan) => *plan,
        Done::Disk(_) | Done::Gone | Done::Replaced => unreachable!("a class changes attributes"),
    }
}

#[cfg(test)]
mod tests;
