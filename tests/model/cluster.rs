//! Kubernetes, as far as a controller notices: volumes and attachments that are wanted, and the sidecars that ask for
//! them, again and again, until they are told OK.
//!
//! As in external-attacher, the LUN of an attachment is recorded at the first OK and never changed, and an attachment
//! is gone when its unpublish was answered OK. As in external-provisioner, a volume is asked for until it is made.
//! One worker per volume and per attachment; when a lease moves, calls in flight are let go and asked anew elsewhere.

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use csi_proto::csi::{ControllerGetVolumeRequest, ListVolumesRequest, controller_server::Controller};
use lazuli_emulator::Emulator;
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

use super::{
    dice::Dice,
    facts::name_of,
    judge::{Ending, Judge, Rpc},
    script::{Attributes, Class, Role, SNAPSHOTS, World, node_name, node_number},
    wire::Replica,
};

mod copies;
mod requests;
mod workers;

use copies::{SnapshotState, Source};
use requests::{create, publish, unpublish};

/// What is wanted of a volume, and what is known of it.
#[derive(Debug, Clone, Default)]
struct VolumeState {
    /// What is asked for first.
    asked_gib: i64,
    class: Option<Class>,
    source: Option<Source>,
    /// Made from a source whether that is ready or not.
    impatient: bool,
    /// The VolumeAttributesClass that it is to get.
    attributes: Option<Attributes>,
    /// It has had one: who asked for the volume at first does not ask any more.
    modified: bool,
    gib: i64,
    wanted: bool,
    /// Deleted at once, whatever is attached.
    hasty: bool,
    /// It was asked for, and no answer since has said that there is none.
    may_be: bool,
    made: bool,
    size: i64,
    deleted: bool,
    handle: String,
    context: HashMap<String, String>,
}

impl VolumeState {
    fn class(&self) -> Class {
        self.class.unwrap_or(Class::Plain)
    }
}

#[derive(Debug, Clone, Default)]
struct Attachment {
    wanted: bool,
    /// What was recorded at the first OK.
    recorded: Option<u8>,
    /// What was answered last, unless it is to be asked again.
    answered: Option<u8>,
}

/// `(node, disk)`.
type Place = (String, String);

struct State {
    volumes: BTreeMap<String, VolumeState>,
    attachments: BTreeMap<Place, Attachment>,
    slots: Vec<Option<String>>,
    snapshots: BTreeMap<String, SnapshotState>,
    snapshot_slots: Vec<Option<String>>,
    generations: u32,
    replicas: Vec<Arc<Replica>>,
    roles: [usize; 2],
    /// Ends with the lease of each role.
    leases: [CancellationToken; 2],
    /// Callers wait for as long as it takes.
    patient: bool,
}

pub(super) struct Cluster {
    world: World,
    judge: Arc<Mutex<Judge>>,
    state: Mutex<State>,
    /// Wakes in the order of waiting, which a watch channel does not.
    changed: Notify,
    workers: Mutex<tokio::task::JoinSet<()>>,
}

impl Cluster {
    pub(super) fn new(world: &World, emulator: &Emulator, judge: &Arc<Mutex<Judge>>) -> Arc<Self> {
        let first = Arc::new(Replica::start(0, world, emulator, judge));
        first.inform(&[], &[]);
        Arc::new(Self {
            world: world.clone(),
            judge: judge.clone(),
            state: Mutex::new(State {
                volumes: BTreeMap::new(),
                attachments: BTreeMap::new(),
                slots: vec![None; world.slots()],
                snapshots: BTreeMap::new(),
                snapshot_slots: vec![None; SNAPSHOTS],
                generations: 0,
                replicas: vec![first],
                roles: [0, 0],
                leases: [CancellationToken::new(), CancellationToken::new()],
                patient: false,
            }),
            changed: Notify::new(),
            workers: Mutex::new(tokio::task::JoinSet::new()),
        })
    }

    fn wake(&self) {
        self.changed.notify_waiters();
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.workers.lock().unwrap().spawn(work);
    }

    // ---- what is wanted ----

    /// The volume in a slot, if one is wanted there.
    pub(super) fn in_slot(&self, slot: usize) -> Option<String> {
        let state = self.state.lock().unwrap();
        state.slots[slot].clone().filter(|disk| state.volumes[disk].wanted)
    }

    pub(super) fn create(self: &Arc<Self>, slot: usize, gib: i64) {
        let disk = {
            let mut state = self.state.lock().unwrap();
            if state.slots[slot].as_ref().is_some_and(|disk| state.volumes[disk].wanted) {
                // The claim is there; the sidecar asks again, as it may.
                let disk = state.slots[slot].clone().unwrap();
                let volume = state.volumes.get_mut(&disk).unwrap();
                volume.made = volume.modified;
                drop(state);
                return self.wake();
            }
            let class = self.world.class(slot);
            let gib = gib.max(class.least_gib());
            let class = Some(class);
            self.claim(&mut state, slot, VolumeState { gib, asked_gib: gib, class, wanted: true, ..Default::default() })
        };
        self.spawn(self.clone().volume_worker(disk));
    }

    fn claim(&self, state: &mut State, slot: usize, volume: VolumeState) -> String {
        state.generations += 1;
        let disk = format!("pvc-{slot}-{}", state.generations);
        state.slots[slot] = Some(disk.clone());
        state.volumes.insert(disk.clone(), volume);
        disk
    }

    pub(super) fn create_other(self: &Arc<Self>, slot: usize, gib: i64) {
        let Some(disk) = self.in_slot(slot) else { return };
        let known = self.state.lock().unwrap().volumes[&disk].clone();
        if !known.made || known.gib == gib || known.class() != Class::Plain || known.source.is_some() || known.modified
        {
            return;
        }
        let this = self.clone();
        self.spawn(async move {
            let rpc = Rpc::Create { disk: disk.clone(), gib, class: Class::Plain };
            let _ = this
                .ask(Role::Provisioner, rpc, "other", |replica| create(replica, disk, (gib, Class::Plain), None))
                .await;
        });
    }

    pub(super) fn delete(&self, slot: usize, hasty: bool) {
        let Some(disk) = self.in_slot(slot) else { return };
        let mut state = self.state.lock().unwrap();
        let volume = state.volumes.get_mut(&disk).unwrap();
        (volume.wanted, volume.hasty) = (false, hasty);
        if !hasty {
            unwant(&mut state, &disk, None);
        }
        drop(state);
        self.wake();
    }

    pub(super) fn publish(self: &Arc<Self>, slot: usize, node: usize, both: bool) {
        let Some(disk) = self.in_slot(slot) else { return };
        let class = self.state.lock().unwrap().volumes[&disk].class();
        let node = self.fitting(node, &disk, class);
        let place = (node_name(node), disk.clone());
        {
            let mut state = self.state.lock().unwrap();
            if class != Class::Plain && !class.is_vhd() {
                return;
            }
            if !both {
                unwant(&mut state, &disk, Some(&place.0));
            }
            match state.attachments.get_mut(&place) {
                // One that is being deleted must be gone before it can come again.
                Some(_) => return self.wake(),
                None => state.attachments.insert(place.clone(), Attachment { wanted: true, ..Default::default() }),
            };
            self.judge.lock().unwrap().attachments.insert(place.clone(), None);
        }
        self.wake();
        self.spawn(self.clone().attachment_worker(place));
    }

    /// The node that a Pod comes to: mostly one that takes the disk, as a person sees to.
    fn fitting(&self, node: usize, disk: &str, class: Class) -> usize {
        let mut dice = Dice::of(self.world.seed, &format!("{node} for {disk}"));
        if self.world.takes(node, class) || dice.percent(15) {
            return node;
        }
        (0..self.world.nodes.len()).find(|other| self.world.takes(*other, class)).unwrap_or(node)
    }

    pub(super) fn unpublish(&self, slot: usize) {
        let Some(disk) = self.in_slot(slot) else { return };
        unwant(&mut self.state.lock().unwrap(), &disk, None);
        self.wake();
    }

    /// The attachments of a volume are asked for again.
    pub(super) fn resync(&self, slot: usize) {
        let Some(disk) = self.state.lock().unwrap().slots[slot].clone() else { return };
        self.resync_disk(&disk);
    }

    /// The same, after a while.
    pub(super) fn resync_later(self: &Arc<Self>, slot: usize) {
        let mut dice = Dice::of(self.world.seed, &format!("resync {slot} {}", self.judge.lock().unwrap().now()));
        let this = self.clone();
        self.spawn(async move {
            sleep(dice.millis(0, 8_000)).await;
            this.resync(slot);
        });
    }

    fn resync_disk(&self, disk: &str) {
        let mut state = self.state.lock().unwrap();
        for (_, attachment) in state.attachments.iter_mut().filter(|((_, of), _)| of == disk) {
            attachment.answered = None;
        }
        drop(state);
        self.wake();
    }

    pub(super) fn unpublish_from(self: &Arc<Self>, slot: usize, node: Option<usize>) {
        let Some(disk) = self.in_slot(slot) else { return };
        let node = node.map(node_name);
        let (handle, planned) = {
            let state = self.state.lock().unwrap();
            let planned =
                node.as_ref().is_some_and(|node| state.attachments.contains_key(&(node.clone(), disk.clone())));
            (state.volumes[&disk].handle.clone(), planned)
        };
        // Where there is an attachment its own worker asks.
        if handle.is_empty() || planned {
            return;
        }
        let this = self.clone();
        self.spawn(async move {
            let rpc = Rpc::Unpublish { disk: disk.clone(), node: node.clone() };
            let everywhere = node.is_none();
            let _ = this.ask(Role::Attacher, rpc, "stray", |replica| unpublish(replica, handle, node)).await;
            if everywhere {
                this.resync_disk(&disk);
            }
        });
    }

    pub(super) fn expand(&self, slot: usize, gib: i64) {
        let Some(disk) = self.in_slot(slot) else { return };
        let mut state = self.state.lock().unwrap();
        let volume = state.volumes.get_mut(&disk).unwrap();
        if volume.made && volume.gib < gib {
            volume.gib = gib;
        }
        drop(state);
        self.wake();
    }

    pub(super) fn list(self: &Arc<Self>, page: i32) {
        let this = self.clone();
        self.spawn(async move { this.list_once(page).await });
    }

    async fn list_once(&self, page: i32) {
        let Some(replica) = self.replica(Role::Attacher) else { return };
        // The handles that VolumeAttachments name.
        let handles = self.recorded().into_iter().map(|(_, _, handle)| (name_of(&handle), handle)).collect();
        let id = self.judge.lock().unwrap().call_begins(replica.number, Rpc::List);
        let patience = Duration::from_secs(120);
        let (mut entries, mut token) = (Vec::new(), String::new());
        let ending = loop {
            let request = ListVolumesRequest { max_entries: page, starting_token: token };
            let call = replica.service.list_volumes(Request::new(request));
            match tokio::time::timeout(patience, call).await {
                Ok(Ok(answer)) => {
                    let answer = answer.into_inner();
                    entries.extend(answer.entries.into_iter().map(|entry| {
                        let nodes = entry.status.map(|status| status.published_node_ids).unwrap_or_default();
                        (entry.volume.unwrap().volume_id, nodes)
                    }));
                    token = answer.next_token;
                    if token.is_empty() {
                        break Ending::Done(None);
                    }
                }
                Ok(Err(status)) => break Ending::Failed(status.code(), status.message().to_owned()),
                Err(_) => break Ending::GivenUp,
            }
        };
        let mut judge = self.judge.lock().unwrap();
        let complete = ending == Ending::Done(None);
        judge.call_ends(id, ending);
        if complete {
            judge.listed(id, &entries, &handles);
        }
    }

    pub(super) fn get(self: &Arc<Self>, slot: usize) {
        let Some(disk) = self.in_slot(slot) else { return };
        let handle = self.state.lock().unwrap().volumes[&disk].handle.clone();
        if handle.is_empty() {
            return;
        }
        let this = self.clone();
        self.spawn(async move {
            let rpc = Rpc::Get { disk };
            let _ = this
                .ask(Role::Attacher, rpc, "get", |replica| async move {
                    let request = ControllerGetVolumeRequest { volume_id: handle.clone() };
                    let answer = replica.service.controller_get_volume(Request::new(request)).await?.into_inner();
                    assert_eq!(answer.volume.unwrap().volume_id, handle);
                    Ok((None, ()))
                })
                .await;
        });
    }

    // ---- who answers ----

    fn replica(&self, role: Role) -> Option<Arc<Replica>> {
        let state = self.state.lock().unwrap();
        Some(state.replicas[state.roles[role as usize]].clone())
    }

    /// The role goes to the other replica; a second one is started where there is none. After a kill the survivor has
    /// both roles.
    pub(super) fn lead(self: &Arc<Self>, role: Role, emulator: &Emulator, killed: bool) {
        let mut state = self.state.lock().unwrap();
        let old = state.roles[role as usize];
        let other = state.roles.iter().copied().find(|replica| *replica != old);
        let next = other.unwrap_or_else(|| {
            let number = u32::try_from(state.replicas.len()).unwrap();
            state.replicas.push(Arc::new(Replica::start(number, &self.world, emulator, &self.judge)));
            state.replicas.len() - 1
        });
        let lost: Vec<usize> =
            (0..2).filter(|at| if killed { state.roles[*at] == old } else { *at == role as usize }).collect();
        for at in lost {
            state.roles[at] = next;
            std::mem::replace(&mut state.leases[at], CancellationToken::new()).cancel();
        }
        if killed {
            state.replicas[old].kill();
        }
        let [provisioner, attacher] = state.roles.map(|at| state.replicas[at].number);
        {
            let mut judge = self.judge.lock().unwrap();
            (judge.provisioner, judge.attacher) = (provisioner, attacher);
            judge.tell(&format!(
                "{} {old}; disks: {provisioner}, attachments: {attacher}",
                if killed { "killed" } else { "lease moves from" }
            ));
        }
        let started = other.is_none();
        drop(state);
        if started {
            // A cold informer: the attachments are known after a while.
            let this = self.clone();
            let mut dice = Dice::of(self.world.seed, &format!("informer {next}"));
            self.spawn(async move {
                sleep(dice.millis(0, 8_000)).await;
                let replica = this.state.lock().unwrap().replicas[next].clone();
                replica.inform(&this.recorded(), &this.handles());
            });
        }
        self.wake();
    }

    /// What is recorded at VolumeAttachments: node, LUN, handle.
    fn recorded(&self) -> Vec<(String, u8, String)> {
        let state = self.state.lock().unwrap();
        let recorded = state.attachments.iter().filter_map(|((node, disk), attachment)| {
            Some((node.clone(), attachment.recorded?, state.volumes[disk].handle.clone()))
        });
        recorded.collect()
    }

    /// The handles of all PersistentVolumes.
    fn handles(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let there = state.volumes.values().filter(|volume| !volume.handle.is_empty() && !volume.deleted);
        there.map(|volume| volume.handle.clone()).collect()
    }

    /// Every replica that has heard of attachments and volumes hears of the change.
    fn inform(&self) {
        let (recorded, handles) = (self.recorded(), self.handles());
        let replicas = self.state.lock().unwrap().replicas.clone();
        for replica in replicas {
            if *replica.informer.borrow() != lazuli_storage::lun::LunReservations::Cold {
                replica.inform(&recorded, &handles);
            }
        }
    }

    /// Asks the leader, until the answer, the end of the caller's patience, or of the lease. Gives what an
    /// OK brought.
    async fn ask<T, F>(
        &self,
        role: Role,
        rpc: Rpc,
        whom: &str,
        call: impl FnOnce(Arc<Replica>) -> F,
    ) -> Result<T, Option<Status>>
    where
        F: Future<Output = Result<(Option<u8>, T), Status>>,
    {
        let (replica, lease, patient) = {
            let state = self.state.lock().unwrap();
            let at = role as usize;
            (state.replicas[state.roles[at]].clone(), state.leases[at].clone(), state.patient)
        };
        let id = self.judge.lock().unwrap().call_begins(replica.number, rpc);
        let mut dice = Dice::of(self.world.seed.wrapping_add(id as u64), whom);
        let patience = match dice.below(6) {
            _ if patient => Duration::from_secs(120),
            0 => dice.millis(0, 400),
            1 => dice.millis(400, 5_000),
            2 | 3 => dice.millis(5_000, 20_000),
            _ => Duration::from_secs(60),
        };
        let (ending, result) = tokio::select! {
            biased;
            () = lease.cancelled() => (Ending::GivenUp, Err(None)),
            answer = call(replica) => match answer {
                Ok((lun, value)) => (Ending::Done(lun), Ok(value)),
                Err(status) => (Ending::Failed(status.code(), status.message().to_owned()), Err(Some(status))),
            },
            () = sleep(patience) => (Ending::GivenUp, Err(None)),
        };
        self.judge.lock().unwrap().call_ends(id, ending);
        result
    }

    // ---- the end ----

    /// From here on callers have patience, replicas without a role are gone, every attachment is asked for once more,
    /// and nothing is wanted that cannot be: no volume on two nodes, no more of them on a node than fit, none of a
    /// volume that goes.
    pub(super) fn calm(&self, foreign: &BTreeMap<String, usize>) {
        let mut state = self.state.lock().unwrap();
        state.patient = true;
        let roles = state.roles;
        for (at, replica) in state.replicas.iter().enumerate() {
            if !roles.contains(&at) {
                replica.kill();
            }
        }
        let State { volumes, attachments, .. } = &mut *state;
        let mut room: BTreeMap<String, usize> = (0..self.world.nodes.len())
            .map(|node| {
                let name = node_name(node);
                let taken = foreign.get(&name).copied().unwrap_or_default();
                (name, self.world.limit(node).saturating_sub(taken))
            })
            .collect();
        let mut placed: Vec<String> = Vec::new();
        for ((node, disk), attachment) in attachments.iter_mut() {
            attachment.answered = None;
            let room = room.get_mut(node).unwrap();
            let volume = &volumes[disk];
            // A VHD grows while no machine has it, and a machine takes one kind of disks.
            let grows = volume.class().is_vhd() && volume.size < volume.gib;
            let fits = self.world.takes(node_number(node), volume.class());
            if !volume.wanted || placed.contains(disk) || *room == 0 || grows || !fits {
                attachment.wanted = false;
            }
            if attachment.wanted {
                *room -= 1;
                placed.push(disk.clone());
            }
        }
        drop(state);
        self.wake();
    }

    /// Waits until every wish has come true.
    pub(super) async fn settled(&self) {
        loop {
            let changed = self.changed.notified();
            if self.unsettled().is_empty() {
                return;
            }
            // Every answer wakes all callers; an attachment that was answered does so here.
            let _ = tokio::time::timeout(Duration::from_secs(1), changed).await;
        }
    }

    /// The wishes that have not come true.
    pub(super) fn unsettled(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let volumes = state.volumes.iter().filter(|(_, volume)| match volume.wanted {
            true => !volume.made || volume.size < volume.gib || volume.attributes.is_some(),
            false => !volume.deleted,
        });
        let attachments =
            state.attachments.iter().filter(|(_, attachment)| !(attachment.wanted && attachment.answered.is_some()));
        let volumes = volumes.map(|(disk, volume)| format!("{disk}: {volume:?}"));
        let snapshots = state.snapshots.iter().filter(|(_, snapshot)| !snapshot.is_as_wanted());
        let volumes = volumes.chain(snapshots.map(|(name, snapshot)| format!("{name}: {snapshot:?}")));
        volumes.chain(attachments.map(|(place, attachment)| format!("{place:?}: {attachment:?}"))).collect()
    }

    /// The volumes that are wanted, with their sizes, and where they are published.
    pub(super) fn wishes(&self) -> (BTreeMap<String, i64>, BTreeMap<Place, u8>) {
        let state = self.state.lock().unwrap();
        let volumes = state.volumes.iter().filter(|(_, volume)| volume.wanted);
        let published = state.attachments.iter().filter_map(|(place, attachment)| {
            Some((place.clone(), attachment.answered.filter(|_| attachment.wanted)?))
        });
        (volumes.map(|(disk, volume)| (disk.clone(), volume.size)).collect(), published.collect())
    }

    /// The volumes whose deletion has not been answered yet.
    pub(super) fn to_be_deleted(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let volumes = state.volumes.iter().filter(|(_, volume)| !volume.wanted && !volume.deleted);
        volumes.map(|(disk, _)| disk.clone()).collect()
    }

    /// Every attachment once more, one after the other, when all is quiet: that must cost next to nothing.
    pub(super) async fn republish_at_rest(&self) {
        for ((node, disk), _) in self.wishes().1 {
            let volume = self.state.lock().unwrap().volumes[&disk].clone();
            let rpc = Rpc::Publish { disk, node: node.clone() };
            let _ = self.ask(Role::Attacher, rpc, "again", |replica| publish(replica, volume, node)).await;
        }
    }

    /// One list, judged, when all is quiet.
    pub(super) async fn list_at_rest(&self) {
        self.list_once(2).await;
    }
}

/// The attachments of a volume are not wanted any more, but on this node.
fn unwant(state: &mut State, disk: &str, but: Option<&str>) {
    for ((node, of), attachment) in &mut state.attachments {
        if of == disk && Some(node.as_str()) != but {
            attachment.wanted = false;
        }
    }
}
