//! The course of a publish.

use std::mem;

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, CachingMode, Disk, DiskId, Lun, Vm, VolumeId, fault::Fault};
use lazuli_quota::{permit::Priority, read::Accept};
use lazuli_vhd::attach as blob;

use super::{
    Call, Context, Done, Event, Failure, MachineList, Next, Report, SourceReader, Turn, Why, WorkFailure,
    free::Free,
    locate::{Candidate, Locate, Purpose, check_is_of_cluster},
    missing::{existence, read_existence, read_vm},
    scale_set_of,
    search::{Found, Search},
};
use crate::calls::unexpected;
use crate::{
    attach::Goal,
    dangling::Blocked,
    gone::Machine,
    inline_volume::{Attachment, AttachmentSource, InlineVolumes, Verdict},
    list::VolumeHandles,
    unpublish::NodeVm,
};

/// The attach of a disk to a node.
#[derive(Debug)]
pub(super) struct Publish<W> {
    goal: Goal,
    at: At<W>,
}

#[derive(Debug)]
enum At<W> {
    Begin,
    Locating(Locate),
    /// Kubernetes is asked what asks for the attach.
    Asking(Candidate),
    /// The disk is read, which may not be attached for that.
    Admitting(Candidate, AttachmentSource),
    /// The machine that is to have a page blob is looked for in a list.
    Judging(ArmId, Whose),
    /// The machine that is to have a page blob is read: no list has it.
    JudgingAlone(ArmId, Whose),
    /// The footer of a page blob is looked at.
    Preparing(ArmId, Whose),
    Attaching(ArmId, NodeVm, Try),
    /// Another VM holds the disk.
    Freeing(Free<W>, ArmId, NodeVm),
    /// The disk or the VM is missing, and the VM is read.
    Missing(ArmId, W),
    Searching(Search),
    AttachingFound(ArmId),
    /// The disk is read to tell what it was made from.
    Source(ArmId, Lun, Try),
    Over,
}

/// How the VM is known to be the node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// As it was located. The last try is that after the disk has left the VM that held it, and its lease.
    Located(NodeVm, Try),
    /// By a search.
    Found,
}

/// What is done at most twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Try {
    First,
    Last,
}

impl<W: WorkFailure> Publish<W> {
    pub(super) fn new(caching: Option<CachingMode>) -> Self {
        Self { goal: Goal::Attached(caching), at: At::Begin }
    }

    pub(super) fn next<E: AzureFailure>(&mut self, cx: &mut Context<'_, '_>, event: Event<E, W>) -> Turn<Done, E, W> {
        match (mem::replace(&mut self.at, At::Over), event) {
            (At::Begin, Event::Begun) => {
                let (locate, call) = Locate::begin(Purpose::Attach);
                self.go(At::Locating(locate), call)
            }
            (At::Locating(mut locate), event) => match locate.next(cx, event)? {
                Next::Call(call) => self.go(At::Locating(locate), call),
                Next::Done(candidate) => {
                    check_is_of_cluster(&cx.of.node, cx.env.cluster, &candidate)?;
                    self.ask(cx, candidate)
                }
            },
            (At::Asking(candidate), Event::Source(source)) => {
                let source = source.map_err(|why| unknown(cx, why))?;
                self.admit(cx, candidate, source)
            }
            (At::Admitting(candidate, source), Event::Disk(read)) => {
                let read = read.map_err(|error| Failure::azure(Why::Unreadable(cx.disk().to_string()), error))?;
                judge(cx, &candidate, source, &read.0)?;
                self.admitted(cx, candidate)
            }
            (At::Judging(vm, whose), Event::Listed(listed)) => {
                let (_, vms) = listed.map_err(|error| Failure::azure(Why::Unlisted(beside(&vm)), error))?;
                match vms.iter().find(|listed| listed.id == vm) {
                    Some(listed) => self.judged(cx, vm, whose, listed),
                    None => {
                        let read = Call::ReadVm { vm: vm.clone(), priority: Priority::Attach, not_before: None };
                        self.go(At::JudgingAlone(vm, whose), read)
                    }
                }
            }
            (At::JudgingAlone(vm, whose), Event::Vm { read, .. }) => match read {
                Ok(read) => self.judged(cx, vm, whose, &read),
                // What is missing takes no disk, and says so where the attach is tried. Nothing is written to the blob.
                Err(error) if existence(error.fault(), &vm).is_some() => self.attach_to(cx, vm, whose),
                Err(error) => Err(Failure::azure(Why::Unreadable(vm.to_string()), error)),
            },
            (At::Preparing(vm, whose), Event::Prepared(prepared)) => match prepared {
                // Its lease is held: the VM may have it already.
                Err(error) if *error.fault() == Fault::InUse => self.attach_to(cx, vm, whose),
                Err(error) => Err(Failure::work(error)),
                Ok(()) => self.attach_to(cx, vm, whose),
            },
            (At::Attaching(vm, known, tried), Event::Worked(outcome)) => self.worked(cx, vm, known, tried, outcome),
            (At::Freeing(mut free, vm, known), event) => match free.next(cx, event)? {
                Next::Call(call) => self.go(At::Freeing(free, vm, known), call),
                Next::Done(()) if cx.of.disk.blob().is_none() => self.attach(cx, vm, known, Try::Last),
                Next::Done(()) => self.go(At::Preparing(vm, Whose::Located(known, Try::Last)), Call::Prepare),
            },
            (At::Missing(vm, error), Event::Vm { read, .. }) => match read_existence(&vm, read)? {
                Machine::Found => Err(Failure::work(error)),
                Machine::Missing | Machine::MissingOrInvalid => {
                    cx.env.nodes.forget(&cx.of.node);
                    let (search, call) = Search::begin(cx);
                    self.go(At::Searching(search), call)
                }
            },
            (At::Searching(mut search), event) => match search.next(cx, event)? {
                Next::Call(call) => self.go(At::Searching(search), call),
                Next::Done(Found::Vm(vm)) => self.begin(cx, vm, Whose::Found),
                Next::Done(Found::Absent(others)) => {
                    let why = Why::NoVmOfName { node: cx.node(), count: others.len() };
                    Err(Failure::refused(Fault::NotFound, why))
                }
            },
            (At::AttachingFound(vm), Event::Worked(outcome)) => self.attached(cx, vm, outcome.map_err(Failure::work)?),
            (At::Source(vm, lun, tried), Event::Disk(read)) => {
                let read = read.map_err(|error| Failure::azure(Why::Unreadable(cx.disk().to_string()), error))?;
                match (cx.env.sources.learn(&read.0, &vm, read.1), tried) {
                    (Some(source), _) => Ok(Next::Done(Done::Published { lun, source })),
                    // A list that was enough when it was asked for may not be when it comes.
                    (None, Try::First) => self.go(At::Source(vm, lun, Try::Last), read_source(Accept::Single)),
                    (None, Try::Last) => Err(detached(cx)),
                }
            }
            (at, event) => unexpected(&at, &event),
        }
    }

    /// The worker of the VM answers.
    fn worked<E>(
        &mut self,
        cx: &mut Context<'_, '_>,
        vm: ArmId,
        known: NodeVm,
        tried: Try,
        outcome: Result<Option<Lun>, W>,
    ) -> Turn<Done, E, W> {
        match outcome {
            Err(error) if is_held_elsewhere(&error) && tried == Try::First => {
                let (free, call) = Free::begin(cx, Blocked::Attach, error)?;
                self.go(At::Freeing(free, vm, known), call)
            }
            // The VM may have another name than the node. "Not found" may also be about the disk, so the VM is read.
            Err(error) if *error.fault() == Fault::NotFound && known == NodeVm::Guessed => {
                let read = read_vm(&vm, None);
                self.go(At::Missing(vm, error), read)
            }
            outcome => {
                let lun = outcome.map_err(Failure::work)?;
                cx.env.nodes.learn(&cx.of.node, &vm);
                self.attached(cx, vm, lun)
            }
        }
    }

    fn go<E>(&mut self, at: At<W>, call: Call) -> Turn<Done, E, W> {
        self.at = at;
        Ok(Next::Call(call))
    }

    fn ask<E>(&mut self, cx: &mut Context<'_, '_>, candidate: Candidate) -> Turn<Done, E, W> {
        let policy = cx.env.policy;
        match (policy.source, policy.inline) {
            (SourceReader::Present, InlineVolumes::Unclaimed) => {
                let name = cx.env.cluster.name_of(&candidate.vm).unwrap_or(&cx.of.node).to_owned();
                self.go(At::Asking(candidate), Call::AskSource(name))
            }
            (SourceReader::Absent, _) | (SourceReader::Present, InlineVolumes::Any) => {
                self.admit(cx, candidate, AttachmentSource::Unknown)
            }
        }
    }

    /// Refuses to attach a disk that may not be attached for what asks for it. One that the VM holds already stays, with a
    /// report.
    fn admit<E>(
        &mut self,
        cx: &mut Context<'_, '_>,
        candidate: Candidate,
        source: AttachmentSource,
    ) -> Turn<Done, E, W> {
        match attachment(cx, &candidate, source).needs_the_disk() {
            true => self.go(At::Admitting(candidate, source), read_source(Accept::Single)),
            false => self.admitted(cx, candidate),
        }
    }

    fn admitted<E>(&mut self, cx: &mut Context<'_, '_>, candidate: Candidate) -> Turn<Done, E, W> {
        let Candidate { vm, known, .. } = candidate;
        if known == NodeVm::Named {
            // Where the Node is deleted while the disk is being attached, this is the VM that the disk must leave.
            cx.env.nodes.learn(&cx.of.node, &vm);
        }
        self.begin(cx, vm, Whose::Located(known, Try::First))
    }

    /// A page blob is looked at before its attach, and before that the machine: nothing is written to a blob for a machine that
    /// does not take it. Of the machine a list will do, because its system disk stays what it is.
    fn begin<E>(&mut self, cx: &Context<'_, '_>, vm: ArmId, whose: Whose) -> Turn<Done, E, W> {
        match cx.of.disk.blob() {
            None => self.attach_to(cx, vm, whose),
            Some(_) if scale_set_of(&vm).is_some() => Err(no_blobs(cx, blob::Refusal::ScaleSet)),
            Some(_) => {
                let list = Call::List { of: beside(&vm), not_before: None };
                self.go(At::Judging(vm, whose), list)
            }
        }
    }

    fn judged<E>(&mut self, cx: &Context<'_, '_>, vm: ArmId, whose: Whose, read: &Vm) -> Turn<Done, E, W> {
        match blob::check(blob::Machine::of(read), blob::Service::Offered) {
            // A machine that finds no footer at the end of a page blob does not take it for a disk.
            Ok(()) => self.go(At::Preparing(vm, whose), Call::Prepare),
            Err(refusal) => Err(no_blobs(cx, refusal)),
        }
    }

    fn attach_to<E>(&mut self, cx: &Context<'_, '_>, vm: ArmId, whose: Whose) -> Turn<Done, E, W> {
        match whose {
            Whose::Located(known, tried) => self.attach(cx, vm, known, tried),
            Whose::Found => {
                let work = cx.work(&vm, self.goal);
                self.go(At::AttachingFound(vm), work)
            }
        }
    }

    fn attach<E>(&mut self, cx: &Context<'_, '_>, vm: ArmId, known: NodeVm, tried: Try) -> Turn<Done, E, W> {
        let work = cx.work(&vm, self.goal);
        self.go(At::Attaching(vm, known, tried), work)
    }

    /// The worker of the VM says that the disk is attached, or that it was detached again.
    fn attached<E>(&mut self, cx: &Context<'_, '_>, vm: ArmId, lun: Option<Lun>) -> Turn<Done, E, W> {
        let lun = lun.ok_or_else(|| detached(cx))?;
        // The worker may have read the disk by a list before it attached it, and a list may show the disk that had this name
        // before.
        match cx.env.sources.of(&cx.of.disk, &vm) {
            Some(source) => Ok(Next::Done(Done::Published { lun, source })),
            None => {
                let accept = cx.env.sources.accept(&cx.of.disk, &vm, cx.now);
                self.go(At::Source(vm, lun, Try::First), read_source(accept))
            }
        }
    }
}

/// The list that has a machine of its own.
fn beside(vm: &ArmId) -> MachineList {
    MachineList::group(vm.subscription(), vm.resource_group())
}

/// The machine takes no page blob.
fn no_blobs<E, W>(cx: &Context<'_, '_>, refusal: blob::Refusal) -> Failure<E, W> {
    Failure::refused(Fault::InUse, Why::NoBlobs { disk: cx.disk(), node: cx.node(), refusal })
}

fn read_source(accept: Accept) -> Call {
    Call::ReadDisk { accept, priority: Priority::Attach, not_before: None }
}

/// Whether a failure says that another VM holds the disk.
fn is_held_elsewhere(error: &impl WorkFailure) -> bool {
    matches!(error.fault(), Fault::AttachedElsewhere { .. })
}

fn attachment<'a>(cx: &Context<'_, '_>, candidate: &'a Candidate, source: AttachmentSource) -> Attachment<'a> {
    let (policy, disk) = (cx.env.policy, &cx.of.disk);
    let home = (policy.home.subscription.as_str(), policy.home.name.as_str());
    // The address of a blob names no resource group: that of its account counts where the account is looked up.
    let resource_group = disk
        .managed()
        .map_or(Ok(()), |disk| policy.resource_groups.check((disk.subscription(), disk.resource_group()), home));
    Attachment { inline: policy.inline, source, resource_group, vm: &candidate.vm }
}

/// Whether the disk, as it was read, may be attached for what asks for it.
///
/// # Errors
/// [`Fault::Invalid`] with the reason; [`Fault::Unavailable`] while the PersistentVolumes are not known.
fn judge<E, W>(
    cx: &mut Context<'_, '_>,
    candidate: &Candidate,
    source: AttachmentSource,
    disk: &Disk<DiskId>,
) -> Result<(), Failure<E, W>> {
    let persistent_volume = match cx.env.handles {
        VolumeHandles::NoCluster => None,
        VolumeHandles::Cold => {
            return Err(unknown(cx, "the cluster's PersistentVolumes are not known yet".to_owned()));
        }
        VolumeHandles::Synced(volumes) => {
            let is_it = |handle: &str| handle.parse::<VolumeId>().is_ok_and(|volume| *volume.disk() == cx.of.disk);
            volumes.iter().find(|(_, handle)| is_it(handle)).map(|(name, _)| name.as_str())
        }
    };
    match attachment(cx, candidate, source).judge(persistent_volume, disk) {
        Verdict::Admit => {}
        Verdict::Kept(objection) => cx.reports.push(Report::KeptAttachment(objection)),
        Verdict::Refuse(objection) => {
            let why = Why::NotAdmitted { disk: cx.disk(), node: cx.node(), objection };
            return Err(Failure::refused(Fault::Invalid, why));
        }
    }
    Ok(())
}

fn unknown<E, W>(cx: &Context<'_, '_>, why: String) -> Failure<E, W> {
    Failure::refused(Fault::Unavailable, Why::SourceUnknown { disk: cx.disk(), node: cx.node(), why })
}

fn detached<E, W>(cx: &Context<'_, '_>) -> Failure<E, W> {
    Failure::refused(Fault::Conflict, Why::DetachedMeanwhile { disk: cx.disk(), node: cx.node() })
}
