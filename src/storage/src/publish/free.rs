//! Detaches a disk from a node that Kubernetes uses it on no more, so that it can be attached where it is wanted, or deleted
//! with its volume. The rules are [`crate::dangling`]'s.

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, Disk, DiskId};
use lazuli_quota::{permit::Priority, read::Accept};

use super::{Call, Context, Event, Failure, Next, Report, Turn, Why, WorkFailure};
use crate::calls::unexpected;
use crate::{
    attach::Goal,
    dangling::{self, Blocked, Dangling, NotDangling},
};

/// What the reader of the answer can do where Kubernetes does not say that the disk is in use.
fn next_step(blocked: Blocked, command: Option<&str>) -> String {
    let what = match blocked {
        Blocked::Attach => "if nothing uses it there, detach it in Azure, and the attach goes on",
        Blocked::Delete => "if nothing uses it there, detach it in Azure, and the deletion goes on",
    };
    command.map_or_else(|| what.to_owned(), |command| format!("{what}: {command}"))
}

/// After a request that failed because another VM holds the disk: detaches it there if that attachment is dangling.
#[derive(Debug)]
pub(super) struct Free<W> {
    blocked: Blocked,
    /// The failure of that request.
    refused: W,
    at: At,
}

#[derive(Debug)]
enum At {
    Disk,
    Asking(Attachment),
    Detaching(Attachment),
}

/// An attachment that may be dangling.
#[derive(Debug)]
struct Attachment {
    disk: Box<Disk<DiskId>>,
    holder: ArmId,
    node: String,
}

impl Attachment {
    /// The command that ends it.
    fn command(&self) -> String {
        dangling::detach_command(&self.holder, &self.disk.id)
    }
}

impl<W: WorkFailure> Free<W> {
    /// # Errors
    /// `refused`, where Kubernetes cannot be asked.
    pub(super) fn begin<E>(cx: &Context<'_, '_>, blocked: Blocked, refused: W) -> Result<(Self, Call), Failure<E, W>> {
        if cx.env.policy.driver.is_none() {
            return Err(Failure::work(refused));
        }
        let read = Call::ReadDisk { accept: Accept::Single, priority: Priority::Read, not_before: None };
        Ok((Self { blocked, refused, at: At::Disk }, read))
    }

    /// # Errors
    /// The failure of the request before, with the reason why the attachment is not taken for dangling where there is one to
    /// tell.
    pub(super) fn next<E: AzureFailure>(&mut self, cx: &mut Context<'_, '_>, event: Event<E, W>) -> Turn<(), E, W> {
        match (std::mem::replace(&mut self.at, At::Disk), event) {
            (At::Disk, Event::Disk(read)) => match read {
                Ok(read) => self.read(cx, Box::new(read.0)),
                Err(_) => Err(self.failed(cx, Why::Unreadable(cx.disk().to_string()).to_string())),
            },
            (At::Asking(of), Event::NodeFacts(facts)) => {
                let facts = match facts {
                    Ok(facts) => facts,
                    Err(why) => {
                        let command = of.command();
                        return Err(self.kept(cx, why, Use::Unknown, Some(of.node), Some(command)));
                    }
                };
                let driver = cx.env.policy.driver.as_deref().unwrap_or_default();
                let attached_by = cx.env.seen_attachments.attached_by(&of.disk, &of.holder);
                let checked = dangling::check(&cx.of.disk, driver, &facts)
                    .and_then(|()| dangling::may_detach(self.blocked, cx.env.policy.detach_unused, attached_by));
                if let Err(reason) = checked {
                    return Err(self.not_dangling(cx, &reason, Some(&of.node), Some(of.command())));
                }
                // Kubernetes may have begun to use it there since it was asked.
                if is_used_on(cx, &of.holder) {
                    return Err(self.in_use());
                }
                if let Some(reason) = other_node(cx, &of.holder) {
                    return Err(self.not_dangling(cx, &reason, Some(&of.node), Some(of.command())));
                }
                cx.reports.push(Report::Freeing(of.node.clone()));
                // A person may attach the disk there again while the cluster is asked and the detach waits. So the VM worker
                // reads the disk again before it sends the detach.
                let only_if = Some(Dangling::new(self.blocked, &of.disk, &of.holder));
                let (vm, node) = (of.holder.clone(), of.node.clone());
                self.at = At::Detaching(of);
                Ok(Next::Call(Call::Work { vm, node, goal: Goal::Detached, only_if }))
            }
            (At::Detaching(of), Event::Worked(outcome)) => match outcome {
                Ok(_) => {
                    cx.reports.push(Report::Freed { node: of.node, blocked: self.blocked });
                    Ok(Next::Done(()))
                }
                Err(error) => Err(match error.not_dangling() {
                    Some(reason) => self.not_dangling(cx, reason, Some(&of.node), Some(of.command())),
                    None => self.failed(cx, error.to_string()),
                }),
            },
            (at, event) => unexpected(&at, &event),
        }
    }

    /// The disk was read.
    fn read<E>(&mut self, cx: &mut Context<'_, '_>, disk: Box<Disk<DiskId>>) -> Turn<(), E, W> {
        // The usual case, and told without a question: the disk is used where it is.
        if disk.holders().into_iter().any(|holder| is_used_on(cx, holder)) {
            return Err(self.in_use());
        }
        cx.env.seen_attachments.held_by(&cx.of.disk, &disk.holders());
        let holder = match dangling::holder(&disk) {
            Ok(Some(holder)) => holder.clone(),
            Ok(None) => return Err(self.in_use()),
            Err(reason) => return Err(self.not_dangling(cx, &reason, None, None)),
        };
        let Some(node) = cx.env.cluster.name_of(&holder).map(str::to_owned) else {
            let command = dangling::detach_command(&holder, &cx.of.disk);
            return Err(match cx.env.cluster.has_machine(&holder) {
                Some(false) => self.not_dangling(cx, &NotDangling::NotANode, None, Some(command)),
                Some(true) | None => self.in_use(),
            });
        };
        let of = Attachment { disk, holder, node: node.clone() };
        if let Some(reason) = other_node(cx, &of.holder) {
            return Err(self.not_dangling(cx, &reason, Some(&of.node), Some(of.command())));
        }
        self.at = At::Asking(of);
        Ok(Next::Call(Call::AskNode(node)))
    }

    /// It is in use there, or no case for this.
    fn in_use<E>(&self) -> Failure<E, W> {
        Failure::work(self.refused.clone())
    }

    fn failed<E>(&self, cx: &mut Context<'_, '_>, why: String) -> Failure<E, W> {
        cx.reports.push(Report::NotFreed(why));
        Failure::work(self.refused.clone())
    }

    /// `node` is the holder's, where it is a node.
    fn not_dangling<E>(
        &self,
        cx: &mut Context<'_, '_>,
        reason: &NotDangling,
        node: Option<&str>,
        command: Option<String>,
    ) -> Failure<E, W> {
        let node = node.filter(|_| reason.needs_a_person()).map(str::to_owned);
        let in_use = if reason.is_use() { Use::Certain } else { Use::Unknown };
        self.kept(cx, reason.to_string(), in_use, node, command)
    }

    /// It may be in use there. `node` is the one to show an event on, where a person must look.
    fn kept<E>(
        &self,
        cx: &mut Context<'_, '_>,
        why: String,
        in_use: Use,
        node: Option<String>,
        command: Option<String>,
    ) -> Failure<E, W> {
        let refused = Failure::work(self.refused.clone()).with(format!("it is not detached from there, because {why}"));
        let refused = match in_use {
            Use::Certain => refused,
            Use::Unknown => refused.with(next_step(self.blocked, command.as_deref())),
        };
        if let Some(node) = node {
            cx.reports.push(Report::KeptDangling { node, blocked: self.blocked, why, command });
        }
        refused
    }
}

/// Whether Kubernetes itself says that the disk is used there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Certain,
    Unknown,
}

/// Whether a VolumeAttachment on the VM's node names the disk, or a request for both is under way.
fn is_used_on(cx: &Context<'_, '_>, holder: &ArmId) -> bool {
    let is_named = || cx.env.cluster.name_of(holder).is_some_and(|node| cx.env.attachments.may_name(node, &cx.of.disk));
    (cx.env.is_requested_on)(holder) || is_named()
}

/// Whether the holder, which one Node names, may be another Node, which names no machine and may use the disk there: it has
/// the name of the VM, or its VolumeAttachment names the disk. kubelet may choose the provider id of its own Node, so the one
/// that names the VM may claim what is another one's, and says nothing of what that uses.
fn other_node(cx: &Context<'_, '_>, holder: &ArmId) -> Option<NotDangling> {
    let mut names = [holder.name()].into_iter().chain(cx.env.attachments.nodes_naming(&cx.of.disk));
    let node = names.find(|name| cx.env.cluster.has_node_without_machine(name))?;
    Some(NotDangling::NodeWithoutMachine(node.to_owned()))
}
