//! VolumeSnapshots, volumes from them and from other volumes, and VolumeAttributesClasses, as the sidecars ask for them.
//!
//! As external-snapshotter: a snapshot is asked for until it is ready. One that is not wanted any more is asked for until
//! an answer says whether there is one, and deleted then; after a code that is final it is forgotten.

use std::sync::Arc;

use csi_proto::csi::{ListSnapshotsRequest, controller_server::Controller};
use tokio::time::sleep;
use tonic::{Code, Request, Status};

use super::{
    super::{
        dice::Dice,
        judge::Rpc,
        script::{Attributes, Class, Place, Role},
    },
    Cluster, State, VolumeState,
    requests::{drop_snapshot, take_snapshot},
};

/// What a volume is filled from, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Snapshot(String),
    Volume(String),
}

impl Source {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Snapshot(name) | Self::Volume(name) => name,
        }
    }
}

/// What is wanted of a snapshot, and what is known of it.
#[derive(Debug, Clone)]
pub(super) struct SnapshotState {
    pub(super) of: String,
    pub(super) class: Class,
    /// How large its volume may have been.
    pub(super) gib: i64,
    pub(super) place: Place,
    pub(super) wanted: bool,
    /// It was asked for, and no answer since has said that there is none.
    pub(super) may_be: bool,
    pub(super) handle: String,
    pub(super) ready: bool,
    pub(super) deleted: bool,
}

impl SnapshotState {
    pub(super) fn is_as_wanted(&self) -> bool {
        if self.wanted { self.ready } else { self.deleted }
    }
}

/// What comes next of a claim with a source.
pub(super) enum Fill {
    /// This is its source, as a request names it.
    From(Source, String),
    /// The source may come to be ready.
    Wait,
    /// It never will.
    Never,
}

/// Whether a code is an answer for good.
pub(super) fn is_final(status: &Status) -> bool {
    !matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted)
}

impl Cluster {
    pub(in super::super) fn take_snapshot(self: &Arc<Self>, at: usize, of: usize, place: Place) {
        let Some(disk) = self.in_slot(of) else { return };
        let name = {
            let mut state = self.state.lock().unwrap();
            let there = state.snapshot_slots[at].as_ref();
            if there.is_some_and(|name| state.snapshots[name].wanted) {
                return;
            }
            state.generations += 1;
            let name = format!("snapshot-{at}-{}", state.generations);
            let volume = &state.volumes[&disk];
            // There are none.
            if volume.class().is_vhd() {
                return;
            }
            let place = if place == Place::Instant && !volume.class().is_adjustable() { Place::Here } else { place };
            let (class, gib) = (volume.class(), volume.gib);
            let snapshot = SnapshotState {
                of: disk,
                class,
                gib,
                place,
                wanted: true,
                may_be: false,
                handle: String::new(),
                ready: false,
                deleted: false,
            };
            state.snapshots.insert(name.clone(), snapshot);
            state.snapshot_slots[at] = Some(name.clone());
            name
        };
        self.spawn(self.clone().snapshot_worker(name));
    }

    pub(in super::super) fn drop_snapshot(&self, at: usize) {
        let mut state = self.state.lock().unwrap();
        if let Some(name) = state.snapshot_slots[at].take() {
            state.snapshots.get_mut(&name).unwrap().wanted = false;
        }
        drop(state);
        self.wake();
    }

    pub(in super::super) fn restore(
        self: &Arc<Self>,
        slot: usize,
        at: usize,
        (class, more_gib): (Class, i64),
        hasty: bool,
    ) {
        let source = {
            let state = self.state.lock().unwrap();
            state.snapshot_slots[at].clone().map(|name| (state.snapshots[&name].clone(), Source::Snapshot(name)))
        };
        let Some((snapshot, source)) = source else { return };
        // A volume is where its source is.
        if snapshot.place != Place::Elsewhere {
            self.copy(slot, source, (snapshot.class, snapshot.gib), (class, more_gib), hasty);
        }
    }

    pub(in super::super) fn clone_volume(self: &Arc<Self>, slot: usize, of: usize, (class, more_gib): (Class, i64)) {
        let Some(disk) = self.in_slot(of) else { return };
        let volume = self.state.lock().unwrap().volumes[&disk].clone();
        self.copy(slot, Source::Volume(disk), (volume.class(), volume.gib), (class, more_gib), true);
    }

    fn copy(
        self: &Arc<Self>,
        slot: usize,
        source: Source,
        (from, gib): (Class, i64),
        (class, more_gib): (Class, i64),
        impatient: bool,
    ) {
        if self.in_slot(slot).is_some() {
            return;
        }
        // Sectors of 4096 bytes fit no other type. A volume from one in a zone is in that zone where no zone is asked for, and
        // no machine of this world attaches it.
        let class = match (from.is_adjustable(), class.is_adjustable(), &source, from.zone(), class) {
            (_, true, ..) if from.is_vhd() => Class::Plain,
            (true, false, ..) => from,
            (.., Source::Volume(_), Some(zone), Class::Plain) => Class::Premium(zone),
            _ => class,
        };
        let gib = (gib + more_gib).max(class.least_gib());
        let disk = {
            let mut state = self.state.lock().unwrap();
            let (source, class) = (Some(source), Some(class));
            let volume =
                VolumeState { gib, asked_gib: gib, class, source, impatient, wanted: true, ..Default::default() };
            self.claim(&mut state, slot, volume)
        };
        self.spawn(self.clone().volume_worker(disk));
    }

    pub(in super::super) fn modify(&self, slot: usize, to: Attributes) {
        let Some(disk) = self.in_slot(slot) else { return };
        let mut state = self.state.lock().unwrap();
        let volume = state.volumes.get_mut(&disk).unwrap();
        if volume.made && !volume.class().is_vhd() {
            (volume.attributes, volume.modified) = (Some(to), true);
        }
        drop(state);
        self.wake();
    }

    pub(in super::super) fn list_snapshots(self: &Arc<Self>, of: Option<usize>, page: i32) {
        let of = of.and_then(|slot| self.in_slot(slot)).map(|disk| self.handle(&disk)).unwrap_or_default();
        let this = self.clone();
        self.spawn(async move {
            let whom = "snapshots";
            let _ = this
                .ask(Role::Provisioner, Rpc::ListSnapshots, whom, |replica| async move {
                    let mut token = String::new();
                    loop {
                        let request = ListSnapshotsRequest {
                            max_entries: page,
                            starting_token: token,
                            source_volume_id: of.clone(),
                            ..Default::default()
                        };
                        let answer = replica.service.list_snapshots(Request::new(request)).await?.into_inner();
                        token = answer.next_token;
                        if token.is_empty() {
                            return Ok((None, ()));
                        }
                    }
                })
                .await;
        });
    }

    async fn snapshot_worker(self: Arc<Self>, name: String) {
        enum Todo {
            Take { volume: String },
            Drop { handle: String },
            Rest,
        }
        let mut dice = Dice::of(self.world.seed, &name);
        loop {
            let changed = self.changed.notified();
            let todo = {
                let mut state = self.state.lock().unwrap();
                let snapshot = state.snapshots[&name].clone();
                let volume = state.volumes[&snapshot.of].clone();
                if snapshot.deleted {
                    return;
                }
                let asks = snapshot.wanted && !snapshot.ready || snapshot.may_be && snapshot.handle.is_empty();
                match () {
                    () if asks && !volume.handle.is_empty() => Todo::Take { volume: volume.handle },
                    () if asks && volume.wanted => Todo::Rest,
                    () if snapshot.wanted && !asks => Todo::Rest,
                    () if !snapshot.handle.is_empty() && !snapshot.wanted => Todo::Drop { handle: snapshot.handle },
                    () => {
                        // Nothing was made, or nothing can be.
                        let snapshot = state.snapshots.get_mut(&name).unwrap();
                        (snapshot.wanted, snapshot.deleted) = (false, true);
                        drop(state);
                        return self.wake();
                    }
                }
            };
            let pause = match todo {
                Todo::Rest => {
                    changed.await;
                    continue;
                }
                Todo::Take { volume } => self.take(&name, volume, &mut dice).await,
                Todo::Drop { handle } => {
                    let rpc = Rpc::DropSnapshot { snapshot: name.clone() };
                    let answer =
                        self.ask(Role::Provisioner, rpc, &name, |replica| drop_snapshot(replica, handle)).await;
                    if answer.is_ok() {
                        self.state.lock().unwrap().snapshots.get_mut(&name).unwrap().deleted = true;
                    }
                    Some(dice.millis(100, 4_000)).filter(|_| answer.is_err())
                }
            };
            self.wake();
            if let Some(pause) = pause {
                sleep(pause).await;
            }
        }
    }

    /// One request for a snapshot. Gives how long to wait before the next one.
    async fn take(&self, name: &str, volume: String, dice: &mut Dice) -> Option<std::time::Duration> {
        let (disk, place) = {
            let mut state = self.state.lock().unwrap();
            let snapshot = state.snapshots.get_mut(name).unwrap();
            snapshot.may_be = true;
            (snapshot.of.clone(), snapshot.place)
        };
        let (number, id) = (name.to_owned(), self.judge.lock().unwrap().asked_for());
        let rpc = Rpc::TakeSnapshot { snapshot: name.to_owned(), disk, place };
        let answer =
            self.ask(Role::Provisioner, rpc, name, |replica| take_snapshot(replica, number, volume, place)).await;
        if let Ok(taken) = &answer {
            self.judge.lock().unwrap().taken(id, taken);
        }
        let mut state = self.state.lock().unwrap();
        let snapshot = state.snapshots.get_mut(name).unwrap();
        match answer {
            Ok(taken) => {
                (snapshot.handle, snapshot.ready) = (taken.handle, taken.ready);
                (!taken.ready).then(|| dice.millis(5_000, 40_000))
            }
            Err(Some(status)) if is_final(&status) => {
                snapshot.may_be = false;
                let of = snapshot.of.clone();
                if state.volumes[&of].deleted {
                    state.snapshots.get_mut(name).unwrap().wanted = false;
                }
                Some(dice.millis(1_000, 10_000))
            }
            Err(_) => Some(dice.millis(1_000, 15_000)),
        }
    }

    /// Everything is to go: the wishes and the snapshots.
    pub(in super::super) fn farewell(&self) {
        let mut state = self.state.lock().unwrap();
        state.volumes.values_mut().for_each(|volume| volume.wanted = false);
        state.attachments.values_mut().for_each(|attachment| attachment.wanted = false);
        state.snapshots.values_mut().for_each(|snapshot| snapshot.wanted = false);
        drop(state);
        self.wake();
    }
}

impl State {
    /// What a claim is filled from.
    pub(super) fn fill(&self, source: &Source, impatient: bool) -> Fill {
        let (handle, is_ready, is_wanted, is_deleted) = match source {
            Source::Volume(name) => {
                let volume = &self.volumes[name];
                (&volume.handle, !volume.handle.is_empty(), volume.wanted, volume.deleted)
            }
            Source::Snapshot(name) => {
                let snapshot = &self.snapshots[name];
                (&snapshot.handle, snapshot.ready, snapshot.wanted, snapshot.deleted)
            }
        };
        match (handle.is_empty(), is_ready) {
            (false, true) => Fill::From(source.clone(), handle.clone()),
            (false, false) if impatient => Fill::From(source.clone(), handle.clone()),
            _ if is_deleted || !is_wanted => Fill::Never,
            (true, _) | (false, false) => Fill::Wait,
        }
    }
}
