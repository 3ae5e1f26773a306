//! Every decision of a request to attach a disk to a node, to detach it from one, or to delete it: a small state machine for
//! each request.
//!
//! ```text
//!   publish    node's VM ─▶ may it be attached? ─▶ attach ─┬──────────────────────────────────▶ source ─▶ answer
//!                                                   ▲      ├ another VM holds it: is it used there? ─┐
//!                                                   ├──────┼──────────────────────── detached there ─┘
//!                                                   └──────┴ no VM of that name: search
//!
//!   unpublish  node's VM ─▶ detach ─┬─ the VM is certain ─────────────────────────────────────────────▶ answer
//!                            ▲      ├─ it is a guess: which machines hold the disk? ─▶ detach from them ─▲
//!                            │      └─ it is missing: is it gone? ── yes ──────────────▲
//!                            └─ found by its computer name ─┘
//!
//!   delete     delete ─▶ a VM holds it: is it used there? ─▶ detached there ─▶ delete ─▶ answer
//! ```
//!
//! [`State::step`] takes what has happened ([`Event`]) and says what comes next ([`Next`]): one call, whose answer is the
//! next event, or the answer to the caller. It has no clock, task, lock or await. What it needs to know of the cluster is in
//! [`Env`], a snapshot that is taken when the event comes. `lazuli-disk` carries the calls out and chooses nothing.
//!
//! A request has no task: it is dropped with its caller. What must outlive the caller is the write of a VM or of a whole
//! disk, and those have steps of their own.
//!
//! The rules are in the modules of this crate and are put together here: [`crate::unpublish`], [`crate::gone`],
//! [`crate::shared_machine`], [`crate::dangling`], [`crate::inline_volume`].
//!
//! | module | holds |
//! |---|---|
//! | [`attach`] | the course of a publish |
//! | [`detach`] | the courses of an unpublish, from one node and from all |
//! | [`delete`] | the course of a deletion |
//! | [`locate`] | the VM that a node is taken for |
//! | [`search`] | the machine of a node's name; the machines beside one that is missing |
//! | [`missing`] | whether a machine that was not found is gone |
//! | [`holders`] | the machines that hold a disk beside the one that it has left |
//! | [`free`] | the detach of a disk where Kubernetes does not use it |
//! | [`failure`] | why a request failed, and the words for it |

mod attach;
mod delete;
mod detach;
mod failure;
mod free;
mod holders;
mod locate;
mod missing;
mod search;
#[cfg(test)]
mod simulation;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, CachingMode, Disk, DiskId, DiskState, Lun, Vm, fault::Fault, node::ClusterNodes};
use lazuli_quota::{
    permit::Priority,
    read::{Accept, Seen},
};

use crate::{
    attach::Goal,
    dangling::{Blocked, Dangling, DetachUnused, NodeFacts, NotDangling, SeenAttachments},
    inline_volume::{AttachmentSource, InlineVolumes, Objection},
    list::{ResourceGroup, VolumeHandles},
    lun::LunReservations,
    source::Sources,
};
use lazuli_volume::AllowedResourceGroups;

use attach::Publish;
use delete::Delete;
use detach::{Unpublish, UnpublishAll};
pub use failure::{Cause, Failure, Why};
pub use locate::NODES_WAIT;

/// The type of a uniform scale set's instance.
const INSTANCE: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines";

/// The scale set that a machine is an instance of; `None` for a VM of its own, also one of a flexible scale set.
pub fn scale_set_of(machine: &ArmId) -> Option<ArmId> {
    machine.is_type(INSTANCE).then(|| machine.parent()).flatten()
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Attach a disk to a node.
    Publish {
        /// The disk.
        disk: DiskId,
        /// The node's id: its name, or the ARM id of its VM.
        node: String,
        /// With this caching. `None`: with the caching that the disk allows.
        caching: Option<CachingMode>,
    },
    /// Detach a disk from a node.
    Unpublish {
        /// The disk.
        disk: DiskId,
        /// The node's id. `None`: from every node.
        node: Option<String>,
    },
    /// Delete a disk.
    Delete {
        /// The disk.
        disk: DiskId,
    },
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// The disk is attached.
    Published {
        /// At this LUN.
        lun: Lun,
        /// The snapshot, disk or image that it was made from; `None` for one that was made empty.
        source: Option<String>,
    },
    /// The disk is not attached to the node.
    Unpublished,
    /// The disk does not exist.
    Deleted,
}

/// What the operator has set, and where the cluster is.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The resource group of the cluster's VMs.
    pub home: ResourceGroup,
    /// The name of the CSI driver. `None` where there is no cluster to ask what a node uses: no dangling attachment is
    /// detached there.
    pub driver: Option<String>,
    /// Whether disks are detached from nodes on which Kubernetes does not use them.
    pub detach_unused: DetachUnused,
    /// In which resource groups disks may be.
    pub resource_groups: AllowedResourceGroups,
    /// Which disks Pods may name.
    pub inline: InlineVolumes,
    /// Whether Kubernetes can be asked what a VolumeAttachment is about.
    pub source: SourceReader,
}

/// Whether Kubernetes can be asked what a VolumeAttachment is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceReader {
    /// It can.
    Present,
    /// There is no cluster to ask.
    Absent,
}

/// Nodes and their VMs as requests have found them. It saves reads, and may be lost at any moment.
#[derive(Debug, Clone, Default)]
pub struct NodeMemory {
    vm_of: BTreeMap<String, ArmId>,
    /// The node's name exactly as Kubernetes spells it: external-attacher compares it byte by byte.
    name_of: BTreeMap<ArmId, String>,
}

impl NodeMemory {
    /// Records the VM of a node.
    pub fn learn(&mut self, node: &str, vm: &ArmId) {
        self.vm_of.insert(node.to_owned(), vm.clone());
        self.name_of.insert(vm.clone(), node.to_owned());
    }

    /// Forgets a node whose VM is not where it was.
    pub fn forget(&mut self, node: &str) {
        if let Some(vm) = self.vm_of.remove(node) {
            self.name_of.remove(&vm);
        }
    }

    /// The name of the node that a VM is: as Kubernetes spells it where that is known, else the VM's own.
    pub fn name_of(&self, cluster: &ClusterNodes, vm: &ArmId) -> String {
        let seen = || self.name_of.get(vm).map(String::as_str);
        cluster.name_of(vm).or_else(seen).map_or_else(|| vm.name().to_lowercase(), str::to_owned)
    }
}

/// What a step needs to know, as it is when its event comes.
pub struct Env<'a> {
    /// What is fixed.
    pub policy: &'a Policy,
    /// The cluster's Nodes.
    pub cluster: &'a ClusterNodes,
    /// The LUNs that VolumeAttachments name.
    pub attachments: &'a LunReservations,
    /// The handles of PersistentVolumes.
    pub handles: &'a VolumeHandles,
    /// Whether an attach or a detach of the disk is requested or in flight, on whatever VM.
    pub is_occupied: bool,
    /// Whether an attach or a detach of the disk on this VM is requested or in flight.
    pub is_requested_on: &'a dyn Fn(&ArmId) -> bool,
    /// The VMs of nodes.
    pub nodes: &'a mut NodeMemory,
    /// What disks were made from.
    pub sources: &'a mut Sources<Duration>,
    /// The attachments that this process has made.
    pub seen_attachments: &'a mut SeenAttachments,
}

impl fmt::Debug for Env<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("is_occupied", &self.is_occupied).finish_non_exhaustive()
    }
}

/// A list of machines that Azure offers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachineList {
    /// The VMs of a resource group: of those of scale sets, only of flexible ones.
    Group {
        /// In lower case.
        subscription: String,
        /// In lower case.
        group: String,
    },
    /// The instances of a uniform scale set.
    ScaleSet(ArmId),
}

impl MachineList {
    /// The VMs of a resource group.
    pub fn group(subscription: &str, group: &str) -> Self {
        Self::Group { subscription: subscription.to_ascii_lowercase(), group: group.to_ascii_lowercase() }
    }
}

impl fmt::Display for MachineList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group { group, .. } => write!(f, "the VMs of the resource group {group}"),
            Self::ScaleSet(set) => write!(f, "the instances of the scale set {}", set.name()),
        }
    }
}

/// What is to be done next. Its answer is the next [`Event`].
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Wait until the cluster's Nodes are known, at most so long: [`Event::NodesAwaited`].
    AwaitNodes(Duration),
    /// Read a machine singly, by a read that is sent from now on: [`Event::Vm`].
    ReadVm {
        /// The machine.
        vm: ArmId,
        /// The read's place in the queue.
        priority: Priority,
        /// It is sent no earlier.
        not_before: Option<Duration>,
    },
    /// Read the disk of the request, by a read that is sent from now on: [`Event::Disk`].
    ReadDisk {
        /// Whether a list is an answer.
        accept: Accept,
        /// The read's place in the queue.
        priority: Priority,
        /// It is sent no earlier.
        not_before: Option<Duration>,
    },
    /// List machines: [`Event::Listed`].
    List {
        /// Which.
        of: MachineList,
        /// The list is sent no earlier. `None`: a list that was sent a moment ago is an answer too.
        not_before: Option<Duration>,
    },
    /// Find the instance of a scale set of the cluster's resource group that has the node's name as its computer name:
    /// [`Event::Instance`].
    FindInstance(String),
    /// Read a scale set singly: [`Event::ScaleSet`].
    ReadScaleSet {
        /// The scale set.
        set: ArmId,
        /// The read is sent no earlier.
        not_before: Option<Duration>,
    },
    /// Ask from when on reads show what the leader before has written: [`Event::FreshFrom`]. A request has arrived.
    AskFreshFrom,
    /// Ask until when an attach of the disk to the VM of a node may be under way of which Azure shows nothing:
    /// [`Event::LateAttach`].
    AskLateAttach {
        /// The VM.
        vm: ArmId,
        /// The node.
        node: String,
    },
    /// Ask Kubernetes what the node of this name uses: [`Event::NodeFacts`].
    AskNode(String),
    /// Ask Kubernetes what the VolumeAttachment of the disk on the node of this name is about: [`Event::Source`].
    AskSource(String),
    /// Request the attach or the detach of the disk from the worker of a VM: [`Event::Worked`].
    Work {
        /// The VM.
        vm: ArmId,
        /// The node, for the reader.
        node: String,
        /// What is requested.
        goal: Goal,
        /// A detach for this attachment alone.
        only_if: Option<Dangling>,
    },
    /// Have the footer of a page blob written anew where its end is none: [`Event::Prepared`].
    Prepare,
    /// Have the disk deleted: [`Event::Deleted`].
    Delete,
}

/// A disk, and by which read.
pub type ReadDisk = (Disk<DiskId>, Seen<Duration>);

/// What has happened. `E` is a failed call of Azure's, `W` a failed request to the worker of a VM or of a whole disk.
#[derive(Debug, Clone)]
pub enum Event<E, W> {
    /// The request has come.
    Begun,
    /// The cluster's Nodes are known, or have not become known in time.
    NodesAwaited,
    /// A machine.
    Vm {
        /// The read was sent no earlier.
        sent_at: Duration,
        /// What it gave.
        read: Result<Box<Vm>, E>,
    },
    /// The disk.
    Disk(Result<Box<ReadDisk>, E>),
    /// Machines, by a list that was sent no earlier than then.
    Listed(Result<(Duration, Arc<Vec<Vm>>), E>),
    /// The instance.
    Instance(Result<Option<Box<Vm>>, E>),
    /// Whether a scale set exists.
    ScaleSet {
        /// The read was sent no earlier.
        sent_at: Duration,
        /// What it gave.
        exists: Result<bool, E>,
    },
    /// From when on reads show what the leader before has written.
    FreshFrom(Option<Duration>),
    /// Until when an attach may be under way.
    LateAttach(Option<Duration>),
    /// What a node uses, or why that is not known.
    NodeFacts(Result<NodeFacts, String>),
    /// What a VolumeAttachment is about, or why that is not known.
    Source(Result<AttachmentSource, String>),
    /// What the worker of the VM answers: the LUN of an attached disk, nothing for a detached one.
    Worked(Result<Option<Lun>, W>),
    /// Whether the page blob ends with a footer.
    Prepared(Result<(), W>),
    /// Whether the disk is deleted.
    Deleted(Result<(), W>),
}

/// What people are told beside the answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// The machine of a node is gone, so the disk is not attached to it.
    MachineGone,
    /// The disk is attached to a node on which Kubernetes does not use it, and it is being detached there.
    Freeing(String),
    /// It was detached there.
    Freed {
        /// The node.
        node: String,
        /// What waits for it.
        blocked: Blocked,
    },
    /// It may be unused there, and it is not detached.
    KeptDangling {
        /// The node.
        node: String,
        /// What waits for it.
        blocked: Blocked,
        /// Why.
        why: String,
        /// The command that detaches it.
        command: Option<String>,
    },
    /// It could not be detached there, or what is known of it could not be read.
    NotFreed(String),
    /// The attach would be refused now, and the VM of the node holds the disk already, so the disk stays.
    KeptAttachment(Objection),
}

/// What comes next.
#[derive(Debug, Clone)]
pub enum Next<T> {
    /// This call.
    Call(Call),
    /// Nothing.
    Done(T),
}

/// What follows from an event.
#[derive(Debug, Clone)]
pub struct Step<E, W> {
    /// What people are told.
    pub reports: Vec<Report>,
    /// The next call, or the answer to the caller.
    pub next: Next<Result<Done, Failure<E, W>>>,
}

/// A failed request to the worker of a VM or of a whole disk, as a step sees it.
pub trait WorkFailure: fmt::Debug + fmt::Display + Clone {
    /// What a caller may do about it.
    fn fault(&self) -> &Fault;
    /// Why the detach of an unused disk was not sent, where that is the failure.
    fn not_dangling(&self) -> Option<&NotDangling>;
}

/// What comes next of a part of a request, or why the request fails.
type Turn<T, E, W> = Result<Next<T>, Failure<E, W>>;

/// What a request is about.
#[derive(Debug, Clone)]
struct Subject {
    disk: DiskId,
    /// The node's id; empty where the request names none.
    node: String,
    requested_at: Duration,
}

/// What the parts of a step share.
struct Context<'c, 'e> {
    of: &'c Subject,
    env: &'c mut Env<'e>,
    now: Duration,
    reports: &'c mut Vec<Report>,
}

impl Context<'_, '_> {
    fn node(&self) -> String {
        self.of.node.clone()
    }

    fn disk(&self) -> DiskId {
        self.of.disk.clone()
    }

    fn work(&self, vm: &ArmId, goal: Goal) -> Call {
        Call::Work { vm: vm.clone(), node: self.node(), goal, only_if: None }
    }

    /// Fails while the disk is being attached or detached: it does not name the VM of an attach before its end, and that VM
    /// may be the node.
    fn check_occupied<E, W>(&self) -> Result<(), Failure<E, W>> {
        match self.env.is_occupied {
            true => Err(Failure::refused(Fault::Busy, Why::Occupied(self.disk()))),
            false => Ok(()),
        }
    }

    /// Fails while a page blob may have a lease and no machine is known that has it: the host of a machine that is gone may
    /// still write.
    ///
    /// `state` is that of the disk, and `left` says whether machines that hold it are left to judge.
    fn check_lease<E, W>(&self, state: Option<DiskState>, left: bool) -> Result<(), Failure<E, W>> {
        if self.of.disk.blob().is_some() && !left && state != Some(DiskState::Unattached) {
            return Err(Failure::refused(Fault::BeingDetached, Why::Leased(self.disk())));
        }
        Ok(())
    }
}

/// One request.
#[derive(Debug)]
pub struct State<W> {
    of: Subject,
    course: Course<W>,
}

#[derive(Debug)]
enum Course<W> {
    Publish(Box<Publish<W>>),
    Unpublish(Box<Unpublish<W>>),
    UnpublishAll(UnpublishAll),
    Delete(Box<Delete<W>>),
}

impl<W: WorkFailure> State<W> {
    /// A request that comes now. Its first event is [`Event::Begun`].
    pub fn new(request: Request, now: Duration) -> Self {
        let of = |disk, node| Subject { disk, node, requested_at: now };
        match request {
            Request::Publish { disk, node, caching } => {
                Self { of: of(disk, node), course: Course::Publish(Box::new(Publish::new(caching))) }
            }
            Request::Unpublish { disk, node: Some(node) } => {
                Self { of: of(disk, node), course: Course::Unpublish(Box::default()) }
            }
            Request::Unpublish { disk, node: None } => {
                Self { of: of(disk, String::new()), course: Course::UnpublishAll(UnpublishAll::default()) }
            }
            Request::Delete { disk } => Self { of: of(disk, String::new()), course: Course::Delete(Box::default()) },
        }
    }

    /// The disk of the request.
    pub fn disk(&self) -> &DiskId {
        &self.of.disk
    }

    /// The node of the request; empty where it names none.
    pub fn node(&self) -> &str {
        &self.of.node
    }

    /// What follows from an event, which is the answer to the call before.
    pub fn step<E: AzureFailure>(&mut self, env: &mut Env<'_>, now: Duration, event: Event<E, W>) -> Step<E, W> {
        let mut reports = Vec::new();
        let mut cx = Context { of: &self.of, env, now, reports: &mut reports };
        let turn = match &mut self.course {
            Course::Publish(course) => course.next(&mut cx, event),
            Course::Unpublish(course) => course.next(&mut cx, event),
            Course::UnpublishAll(course) => course.next(&mut cx, event),
            Course::Delete(course) => course.next(&mut cx, event),
        };
        let next = match turn {
            Ok(Next::Call(call)) => Next::Call(call),
            Ok(Next::Done(done)) => Next::Done(Ok(done)),
            Err(failure) => Next::Done(Err(failure)),
        };
        Step { reports, next }
    }
}
