//! Which calls the steps of a request to attach, to detach or to delete a disk ([`lazuli_storage::publish`]) are. It chooses
//! nothing.

use std::time::Duration;

use lazuli_azure::compute::Freshness;
use lazuli_model::DiskId;
use lazuli_storage::{
    dangling::NodeFacts,
    inline_volume::AttachmentSource,
    publish::{Call, Env, Next, Request, State, Step},
    whole_disk::Wanted,
};
use lazuli_vm_disks::Memory;
use tokio::time::sleep_until;
use words::volume_error;

use super::{VolumeError, Volumes, error::Answer};
pub(crate) use lazuli_storage::publish::Done;

mod words;

type Event = lazuli_storage::publish::Event<Answer, VolumeError>;

impl Volumes {
    /// Carries out a request.
    ///
    /// # Errors
    /// Why it failed.
    pub(crate) async fn carry(&self, request: Request) -> Result<Done, VolumeError> {
        let mut state = State::new(request, self.workers.clock().now());
        let mut event = Event::Begun;
        loop {
            let Step { reports, next } = self.step(&mut state, event);
            for report in reports {
                words::report(&self.events, state.disk(), state.node(), report);
            }
            match next {
                Next::Call(call) => event = Box::pin(self.carry_out(state.disk(), call)).await,
                Next::Done(outcome) => return outcome.map_err(volume_error),
            }
        }
    }

    fn step(&self, state: &mut State<VolumeError>, event: Event) -> Step<Answer, VolumeError> {
        let disk = state.disk().clone();
        let (cluster, attachments, handles) = (self.nodes.cluster(), self.reservations.now(), self.handles.borrow());
        let (mut nodes, mut memory) = (self.nodes.memory(), self.workers.memory());
        let Memory { sources, seen_attachments, .. } = &mut *memory;
        let mut env = Env {
            policy: &self.policy,
            cluster: &cluster,
            attachments: &attachments,
            handles: &handles,
            is_occupied: self.occupied.is_attaching_or_detaching(&disk),
            is_requested_on: &|vm| self.workers.is_requested(vm, &disk),
            nodes: &mut nodes,
            sources,
            seen_attachments,
        };
        state.step(&mut env, self.workers.clock().now(), event)
    }

    async fn carry_out(&self, disk: &DiskId, call: Call) -> Event {
        let clock = self.workers.clock();
        match call {
            Call::AwaitNodes(longest) => {
                self.nodes.known_within(longest).await;
                Event::NodesAwaited
            }
            Call::ReadVm { vm, priority, not_before } => {
                self.wait_until(not_before).await;
                let sent_at = clock.now();
                let read = self.client.read_vm(&vm, Freshness::single().priority(priority)).await;
                Event::Vm { sent_at, read: read.map(|read| Box::new(read.model)).map_err(Answer) }
            }
            Call::ReadDisk { accept, priority, not_before } => {
                self.wait_until(not_before).await;
                let freshness = Freshness { accept, ..Freshness::single().priority(priority) };
                let read = self.client.read_any_disk(disk, freshness).await;
                Event::Disk(read.map(|(disk, seen)| Box::new((disk, self.workers.seen(seen)))))
            }
            Call::List { of, not_before } => {
                self.wait_until(not_before).await;
                let list = self.nodes.list(&self.client, of, not_before.map(|moment| clock.at(moment))).await;
                Event::Listed(list.map(|(sent_at, machines)| (clock.since(sent_at), machines)).map_err(Answer))
            }
            Call::FindInstance(computer) => {
                let instance = self.nodes.instance_named(&self.client, &computer).await;
                Event::Instance(instance.map(|vm| vm.map(Box::new)).map_err(Answer))
            }
            Call::ReadScaleSet { set, not_before } => {
                self.wait_until(not_before).await;
                let sent_at = clock.now();
                let exists = self.client.scale_set_exists(&set).await;
                Event::ScaleSet { sent_at, exists: exists.map_err(Answer) }
            }
            Call::AskFreshFrom => Event::FreshFrom(self.workers.fresh_from()),
            Call::AskLateAttach { vm, node } => Event::LateAttach(self.workers.late_attach(&vm, &node, disk)),
            Call::AskNode(node) => Event::NodeFacts(self.node_facts(node).await),
            Call::AskSource(node) => Event::Source(self.source(disk, node).await),
            Call::Work { vm, node, goal, only_if } => Event::Worked(
                async {
                    let hold = self.occupied.attachment(disk)?;
                    self.workers.work(&vm, &node, disk, goal, only_if, hold).await
                }
                .await,
            ),
            Call::Prepare => Event::Prepared(self.prepare(disk).await),
            Call::Delete => Event::Deleted(self.delete_whole(disk).await),
        }
    }

    /// Makes a disk ready for its attach: a page blob needs a footer.
    async fn prepare(&self, disk: &DiskId) -> Result<(), VolumeError> {
        match disk {
            DiskId::Managed(_) => Ok(()),
            DiskId::Blob(uri) => self.blobs.prepare(uri).await,
        }
    }

    async fn delete_whole(&self, disk: &DiskId) -> Result<(), VolumeError> {
        match disk {
            DiskId::Managed(disk) => self.whole_disks.request(disk, Wanted::Deleted).await.map(drop),
            DiskId::Blob(uri) => {
                let _hold = self.occupied.whole_blob(uri, "its deletion")?;
                self.blobs.delete(uri).await
            }
        }
    }

    pub(crate) async fn wait_until(&self, moment: Option<Duration>) {
        if let Some(moment) = moment {
            sleep_until(self.workers.clock().at(moment)).await;
        }
    }

    async fn node_facts(&self, node: String) -> Result<NodeFacts, String> {
        let reader = self.node_facts.as_ref().expect("a step asks only where the policy names the driver");
        reader.read(node).await
    }

    async fn source(&self, disk: &DiskId, node: String) -> Result<AttachmentSource, String> {
        let reader = self.attachment_source.as_ref().expect("a step asks only where the policy says that it can");
        reader.read(disk.to_string(), node).await
    }
}
