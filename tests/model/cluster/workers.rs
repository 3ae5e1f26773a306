//! One worker per volume and per attachment: it asks, again and again, until it is told OK.

use std::sync::Arc;

use tokio::time::sleep;

use super::super::{
    dice::Dice,
    judge::Rpc,
    script::{Attributes, Class, Role},
    wire::disk_id,
};
use super::{
    Cluster, Place, VolumeState,
    copies::{Fill, Source, is_final},
    requests::{create, delete, expand, modify, publish, unpublish},
    unwant,
};

impl Cluster {
    pub(super) async fn volume_worker(self: Arc<Self>, disk: String) {
        enum Todo {
            Create(i64, Class),
            Copy(i64, Class, Source, String),
            Modify(String, Attributes),
            Expand(String, i64),
            Delete,
            Rest,
        }
        let mut dice = Dice::of(self.world.seed, &disk);
        // What waits for snapshots waits for minutes.
        let slow = self.state.lock().unwrap().volumes[&disk].class().is_adjustable();
        loop {
            let changed = self.changed.notified();
            let todo = {
                let mut state = self.state.lock().unwrap();
                let volume = &state.volumes[&disk];
                let attached = state.attachments.keys().any(|(_, of)| *of == disk);
                match volume {
                    VolumeState { deleted: true, .. } => return,
                    VolumeState { wanted: true, made: false, source: Some(source), .. } => {
                        match state.fill(source, volume.impatient) {
                            Fill::From(source, id) => Todo::Copy(volume.asked_gib, volume.class(), source, id),
                            Fill::Wait => Todo::Rest,
                            // A person gives the claim up.
                            Fill::Never => {
                                state.volumes.get_mut(&disk).unwrap().wanted = false;
                                drop(state);
                                self.wake();
                                continue;
                            }
                        }
                    }
                    VolumeState { wanted: true, made: false, .. } => {
                        // What was asked for first is asked for again, though the volume may have grown.
                        let gib = if volume.handle.is_empty() { volume.gib } else { volume.size };
                        Todo::Create(gib, volume.class())
                    }
                    VolumeState { wanted: true, .. } if volume.size < volume.gib => {
                        Todo::Expand(volume.handle.clone(), volume.gib)
                    }
                    VolumeState { wanted: true, attributes: Some(to), .. } => Todo::Modify(volume.handle.clone(), *to),
                    // As external-provisioner: what may be there is made before it is deleted, for nothing but an answer names it.
                    VolumeState { wanted: false, .. } if volume.class().is_vhd() && volume.handle.is_empty() => {
                        if volume.may_be {
                            Todo::Create(volume.gib, volume.class())
                        } else {
                            state.volumes.get_mut(&disk).unwrap().deleted = true;
                            drop(state);
                            self.wake();
                            continue;
                        }
                    }
                    VolumeState { wanted: false, hasty, .. } if *hasty || !attached => Todo::Delete,
                    _ => Todo::Rest,
                }
            };
            let done = match todo {
                Todo::Rest => {
                    changed.await;
                    // Nothing has happened: to say so would keep everybody awake for ever.
                    continue;
                }
                Todo::Copy(gib, class, source, id) => {
                    if !self.fill(&disk, (gib, class), source, id).await {
                        sleep(dice.millis(2_000, 20_000)).await;
                    }
                    true
                }
                Todo::Modify(handle, to) => {
                    let rpc = Rpc::Modify { disk: disk.clone(), to };
                    let answer = self.ask(Role::Provisioner, rpc, &disk, |replica| modify(replica, handle, to)).await;
                    // What is infeasible or forbidden now a person takes back.
                    let is_over = answer.as_ref().err().is_none_or(|error| error.as_ref().is_some_and(is_final));
                    let mut state = self.state.lock().unwrap();
                    let volume = state.volumes.get_mut(&disk).unwrap();
                    if is_over && volume.attributes == Some(to) {
                        volume.attributes = None;
                    }
                    is_over
                }
                Todo::Create(gib, class) => {
                    let rpc = Rpc::Create { disk: disk.clone(), gib, class };
                    let name = disk.clone();
                    self.state.lock().unwrap().volumes.get_mut(&disk).unwrap().may_be = true;
                    let answer = self
                        .ask(Role::Provisioner, rpc, &disk, |replica| create(replica, name, (gib, class), None))
                        .await;
                    let mut state = self.state.lock().unwrap();
                    let volume = state.volumes.get_mut(&disk).unwrap();
                    volume.may_be = answer.as_ref().err().is_none_or(|error| !error.as_ref().is_some_and(is_final));
                    if let Ok((handle, context, size)) = &answer {
                        volume.made = true;
                        // A persistent volume is written once.
                        if volume.handle.is_empty() {
                            (volume.handle, volume.context, volume.size) = (handle.clone(), context.clone(), *size);
                        }
                        drop(state);
                        if self.world.vhds.is_some() {
                            self.inform();
                        }
                    }
                    answer.is_ok()
                }
                Todo::Expand(handle, gib) => {
                    let rpc = Rpc::Expand { disk: disk.clone(), gib };
                    let answer = self.ask(Role::Provisioner, rpc, &disk, |replica| expand(replica, handle, gib)).await;
                    if let Ok(size) = &answer {
                        self.state.lock().unwrap().volumes.get_mut(&disk).unwrap().size = *size;
                    }
                    answer.is_ok()
                }
                Todo::Delete => {
                    let rpc = Rpc::Delete { disk: disk.clone() };
                    let handle = self.handle(&disk);
                    let answer = self.ask(Role::Provisioner, rpc, &disk, |replica| delete(replica, handle)).await;
                    if answer.is_ok() {
                        let mut state = self.state.lock().unwrap();
                        state.volumes.get_mut(&disk).unwrap().deleted = true;
                    }
                    answer.is_ok()
                }
            };
            self.wake();
            if !done {
                sleep(if slow { dice.millis(3_000, 30_000) } else { dice.millis(100, 4_000) }).await;
            }
        }
    }

    /// One request for a volume with a source. Gives whether that is over.
    async fn fill(&self, disk: &str, (gib, class): (i64, Class), source: Source, handle: String) -> bool {
        let rpc = Rpc::Copy { disk: disk.to_owned(), gib, class, source: source.name().to_owned() };
        let (name, source) = (disk.to_owned(), Some((source, handle)));
        let answer =
            self.ask(Role::Provisioner, rpc, disk, |replica| create(replica, name, (gib, class), source)).await;
        let mut state = self.state.lock().unwrap();
        let volume = state.volumes.get_mut(disk).unwrap();
        match answer {
            Ok((handle, context, size)) => {
                volume.made = true;
                if volume.handle.is_empty() {
                    (volume.handle, volume.context, volume.size) = (handle, context, size);
                }
                true
            }
            // A person gives the claim up.
            Err(Some(status)) if is_final(&status) => {
                volume.wanted = false;
                unwant(&mut state, disk, None);
                true
            }
            Err(_) => false,
        }
    }

    /// What was answered, or what it would be.
    pub(super) fn handle(&self, disk: &str) -> String {
        let handle = self.state.lock().unwrap().volumes[disk].handle.clone();
        if handle.is_empty() { disk_id(disk) } else { handle }
    }

    pub(super) async fn attachment_worker(self: Arc<Self>, place: Place) {
        let (node, disk) = place.clone();
        let mut dice = Dice::of(self.world.seed, &format!("{node} {disk}"));
        loop {
            let changed = self.changed.notified();
            let (attachment, volume) = {
                let state = self.state.lock().unwrap();
                (state.attachments[&place].clone(), state.volumes[&disk].clone())
            };
            let done = if attachment.wanted && (attachment.answered.is_some() || volume.handle.is_empty()) {
                changed.await;
                true
            } else if attachment.wanted {
                let rpc = Rpc::Publish { disk: disk.clone(), node: node.clone() };
                let (on, whom) = (node.clone(), format!("{node} {disk}"));
                let answer = self.ask(Role::Attacher, rpc, &whom, |replica| publish(replica, volume, on)).await;
                if let Ok(lun) = &answer {
                    {
                        let mut state = self.state.lock().unwrap();
                        let attachment = state.attachments.get_mut(&place).unwrap();
                        attachment.answered = Some(*lun);
                        attachment.recorded.get_or_insert(*lun);
                        let recorded = attachment.recorded;
                        self.judge.lock().unwrap().attachments.insert(place.clone(), recorded);
                    }
                    self.inform();
                }
                answer.is_ok()
            } else {
                let rpc = Rpc::Unpublish { disk: disk.clone(), node: Some(node.clone()) };
                let (on, handle, whom) = (Some(node.clone()), self.handle(&disk), format!("{node} {disk}"));
                let answer = self.ask(Role::Attacher, rpc, &whom, |replica| unpublish(replica, handle, on)).await;
                if answer.is_ok() {
                    {
                        let mut state = self.state.lock().unwrap();
                        state.attachments.remove(&place);
                        self.judge.lock().unwrap().attachments.remove(&place);
                    }
                    self.inform();
                    return self.wake();
                }
                false
            };
            if !done {
                sleep(dice.millis(100, 4_000)).await;
            }
        }
    }
}
