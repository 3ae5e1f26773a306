//! The reads that a plan rests on, and the disks' own state.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use lazuli_azure::{
    compute::{Freshness, Snapshot},
    error::ArmError,
};
use lazuli_model::{ArmId, Disk, Lun, Vm, fault::Fault};
use lazuli_quota::{
    permit::Priority,
    read::{Accept, By, Seen},
};
use lazuli_storage::{
    attach::{self, Bounds, DiskRead, Doubt, Evidence, Explained, Plan, Refused, Writes},
    lun::LunReservations,
};
use tokio::time::Instant;

use super::{
    READ_LAG_PAUSES, VmWorker,
    answers::failure_for,
    queue::{Batch, Goal, Queue},
};
use crate::VolumeError;

/// How often a round reads what its plan asks for. Requests that arrive meanwhile may ask for more, and wait for the next
/// round then.
const MOST_READS: usize = 8;

/// Disks as they were read for the requests of a round.
///
/// Reads that lead to a write ([`DiskRead::gives_terms`]) are kept while the worker waits for the permit to write the
/// VM: many workers wait for permits at the same time, and each would read its disks again when its permit has come. A
/// kept read serves only the round right after the wait, and no request is answered from one.
#[derive(Debug, Default)]
pub(super) struct DiskReads {
    reads: BTreeMap<ArmId, DiskRead<Instant>>,
    /// Why a disk could not be read.
    errors: BTreeMap<ArmId, ArmError>,
}

impl DiskReads {
    /// Those that may be kept.
    pub(super) fn that_give_terms(mut self, vm: &ArmId) -> Self {
        self.reads.retain(|_, read| read.gives_terms(vm));
        Self { reads: self.reads, errors: BTreeMap::new() }
    }

    fn add(&mut self, disk: ArmId, asked_at: Instant, read: Result<Snapshot<Disk>, ArmError>) {
        let read = match read {
            Ok(read) => DiskRead { disk: Some(read.model), seen: read.seen },
            Err(error) => {
                self.errors.insert(disk.clone(), error);
                DiskRead { disk: None, seen: Seen { by: By::Single, sent_at: asked_at } }
            }
        };
        self.reads.insert(disk, read);
    }
}

/// The plan of a round, and what it rests on.
pub(super) struct Planned {
    /// The VM as it was read last.
    pub(super) vm: Snapshot<Vm>,
    pub(super) reads: DiskReads,
    /// The requests that were planned.
    pub(super) members: Batch,
    pub(super) plan: Plan<Instant>,
}

impl VmWorker {
    /// Plans the requests that `selected` admits, and reads what the plan asks for until it asks for nothing that a read
    /// now can give. Requests that arrive during these reads of the VM join.
    ///
    /// # Errors
    /// The failure of a read of the VM, with the time at which it was asked for.
    pub(super) async fn planned(
        &self,
        vm: Snapshot<Vm>,
        reads: DiskReads,
        writes: Writes,
        selected: impl Fn(&ArmId) -> bool,
    ) -> Result<Planned, (Instant, ArmError)> {
        let current = || -> Batch {
            let requested = self.shared.queues().get(&self.vm).map(Queue::current).unwrap_or_default();
            requested.into_iter().filter(|(disk, _)| selected(disk)).collect()
        };
        let unforced = BTreeSet::new();
        let mut planned = self.plan(vm, reads, current(), writes, &unforced);
        for _ in 0..MOST_READS {
            let Planned { vm, mut reads, members, plan } = planned;
            if plan.needs_single_read() {
                let asked_at = Instant::now();
                let freshness = Freshness::single().priority(self.priority(&members));
                let vm = self.read_vm(freshness).await.map_err(|error| (asked_at, error))?;
                planned = self.plan(vm, reads, current(), writes, &unforced);
                continue;
            }
            let [singly, listed] = [Accept::Single, Accept::List].map(|accept| plan.disks_to_read(accept));
            if singly.is_empty() && listed.is_empty() {
                planned = Planned { vm, reads, members, plan };
                break;
            }
            let asked_at = Instant::now();
            let (singly, listed) = tokio::join!(self.read(singly), self.read_by(listed, Freshness::listed()));
            for (disk, read) in singly.into_iter().chain(listed) {
                if let Ok(read) = &read {
                    self.shared.sources().learn_before_attach(&read.model, read.seen);
                    self.shared.seen_attachments().held_by(&disk, &read.model.holders());
                }
                reads.add(disk, asked_at, read);
            }
            planned = self.plan(vm, reads, members, writes, &unforced);
        }
        let detach = planned.members.iter().filter(|(_, goal)| **goal == Goal::Detached);
        let detach = detach.map(|(disk, _)| disk.clone()).collect();
        let force = self.forced(&planned.vm.model, &detach).await;
        if !force.is_empty() {
            let Planned { vm, reads, members, .. } = planned;
            planned = self.plan(vm, reads, members, writes, &force);
        }
        // Last of all, because these reads must be the newest.
        let detach = planned.plan.write.detach.iter().map(|disk| (disk.clone(), Goal::Detached)).collect();
        let refused = self.refuse_conditional(&detach).await;
        if !refused.is_empty() {
            let Planned { vm, reads, mut members, .. } = planned;
            members.retain(|disk, _| !refused.contains(disk));
            let force = force.difference(&refused).cloned().collect();
            planned = self.plan(vm, reads, members, writes, &force);
        }
        Ok(planned)
    }

    /// Plans once, by what has been read.
    fn plan(
        &self,
        vm: Snapshot<Vm>,
        reads: DiskReads,
        members: Batch,
        writes: Writes,
        force: &BTreeSet<ArmId>,
    ) -> Planned {
        let shown = self.shared.shown_on(&self.vm);
        let names = [Some(self.node.as_str()), Some(vm.model.id.name()), vm.model.computer_name.as_deref()];
        let names: Vec<&str> = names.into_iter().flatten().collect();
        // All that a plan takes from the VolumeAttachments is from one snapshot of them.
        let (late_attaches, lists_from, reservations) = {
            let attachments = self.shared.reservations.now();
            let late_attaches = self.late_attaches(&attachments, &vm, &names, &members);
            (late_attaches, self.shared.lists_from(&attachments), attachments.of_node(&names))
        };
        let evidence = Evidence {
            vm: &vm.model,
            seen: vm.seen,
            disks: &reads.reads,
            shown: &shown,
            fresh_from: self.shared.fresh_from(),
            late_attaches: &late_attaches,
            lists_from,
        };
        let limit = self.shared.sizes.borrow().max_data_disks(&vm.model.size);
        let max_data_disks = limit.map_or(usize::from(Lun::COUNT), usize::from);
        let bounds = Bounds { reservations: &reservations, max_data_disks, force, writes };
        let plan = attach::plan(&evidence, &self.requests(&members), &bounds);
        Planned { vm, reads, members, plan }
    }

    /// Until when attaches of the leader before may be under way, of those disks that are to be detached and that a read of
    /// the VM does not show.
    fn late_attaches(
        &self,
        attachments: &LunReservations,
        vm: &Snapshot<Vm>,
        names: &[&str],
        members: &Batch,
    ) -> BTreeMap<ArmId, Instant> {
        let detach = members.iter().filter(|(_, goal)| **goal == Goal::Detached).map(|(disk, _)| disk);
        let (listed, missing): (Vec<_>, Vec<_>) = detach.partition(|disk| vm.model.data_disk(disk).is_some());
        if vm.seen.by == By::Single {
            let mut suspicions = self.shared.suspicions();
            listed.into_iter().for_each(|disk| suspicions.shown(&self.vm, disk, Instant::now()));
        }
        let late_attach = |disk| self.shared.late_attach(attachments, &self.vm, names, disk);
        let late = missing.into_iter().map(|disk| Some((disk.clone(), late_attach(disk)?)));
        late.flatten().collect()
    }

    /// Answers the requests of a plan that need no write.
    pub(super) fn resolve_planned(&self, planned: &mut Planned) {
        let resolved = std::mem::take(&mut planned.plan.resolved);
        self.resolve_all(planned.vm.answered, &planned.members, resolved, &planned.reads.errors);
    }

    /// Answers those requests that need no write, at a time when the worker may not write for them. Returns the plan
    /// with what it has resolved.
    pub(super) async fn answer_without_write(&self, vm: &Snapshot<Vm>, goals: &Batch) -> Plan<Instant> {
        let unforced = BTreeSet::new();
        let mut planned = self.plan(vm.clone(), DiskReads::default(), goals.clone(), Writes::None, &unforced);
        let to_read = planned.plan.disks_to_read(Accept::Single);
        if !to_read.is_empty() {
            let asked_at = Instant::now();
            for (disk, read) in self.read(to_read).await {
                planned.reads.add(disk, asked_at, read);
            }
            planned = self.plan(planned.vm, planned.reads, planned.members, Writes::None, &unforced);
        }
        let resolved = planned.plan.resolved.clone();
        self.resolve_all(planned.vm.answered, &planned.members, resolved, &planned.reads.errors);
        planned.plan
    }

    /// Answers the request of a disk that has made a write fail, when no stale disk of the VM's model caused that. Where the
    /// disk's own state may explain the failure, [`Refused::explain`] decides by reads made now.
    pub(super) async fn answer_refused(&self, disk: &ArmId, goal: Goal, error: VolumeError) {
        let refused_at = Instant::now();
        let Some(doubt) = Doubt::of(&error.fault, goal) else {
            return self.answer(disk, goal, &Err(unexplained(error, disk, goal)));
        };
        let mut lag = READ_LAG_PAUSES.iter();
        let mut of_disk: Option<DiskRead<Instant>> = None;
        let mut of_vm: Option<Snapshot<Vm>> = None;
        loop {
            let refused = Refused {
                refused_at,
                vm: &self.vm,
                disk: of_disk.as_ref(),
                machine: of_vm.as_ref().map(|vm| (&vm.model, vm.seen)),
                reads_are_left: lag.len() > 0,
            };
            match refused.explain(doubt) {
                Explained::ReadDisk => {
                    if let (Some(_), Some(pause)) = (&of_disk, lag.next()) {
                        self.pause(*pause).await;
                    }
                    of_disk = Some(self.read_one(disk).await);
                }
                Explained::ReadBoth => {
                    let (disk_read, vm) = tokio::join!(self.read_one(disk), self.shared.client.get_vm(&self.vm));
                    (of_disk, of_vm) = (Some(disk_read), vm.ok());
                }
                Explained::AttachedTo(holders, sent_at) => {
                    return self.resolve(disk, goal, &Err(self.attached_elsewhere(disk, &holders)), sent_at, None);
                }
                Explained::OtherZone(sent_at) => {
                    let error = match (&of_disk, &of_vm) {
                        (Some(DiskRead { disk: Some(state), .. }), Some(vm)) => {
                            self.zone_mismatch(error, state, &vm.model)
                        }
                        _ => error,
                    };
                    return self.resolve(disk, goal, &Err(error), sent_at, None);
                }
                Explained::Changed => return self.answer(disk, goal, &Err(error.resorted(Fault::Conflict))),
                Explained::Unexplained => return self.answer(disk, goal, &Err(unexplained(error, disk, goal))),
            }
        }
    }

    /// The failure of an attach that the zones of the disk and of the VM explain.
    fn zone_mismatch(&self, error: VolumeError, disk: &Disk, vm: &Vm) -> VolumeError {
        let vm_zone = vm.zone.as_ref().map_or_else(|| "no zone".to_owned(), |zone| format!("zone {zone}"));
        let zones = match &*disk.zones {
            [] => "no zone".to_owned(),
            zones => format!("zone {}", zones.join(", ")),
        };
        let what = format!(
            "disk {} is in {zones} and cannot be attached to node {}, whose VM is in {vm_zone}",
            disk.id.name(),
            self.node
        );
        error.resorted(Fault::ZoneMismatch).prefixed(&what).noted(what)
    }

    /// Reads a disk by a single read.
    async fn read_one(&self, disk: &ArmId) -> DiskRead<Instant> {
        let asked_at = Instant::now();
        match self.shared.client.get_disk(disk).await {
            Ok(read) => DiskRead { disk: Some(read.model), seen: read.seen },
            Err(_) => DiskRead { disk: None, seen: Seen { by: By::Single, sent_at: asked_at } },
        }
    }

    /// Reads disks, each by a single read.
    pub(super) async fn read(&self, disks: Vec<ArmId>) -> Vec<(ArmId, Result<Snapshot<Disk>, ArmError>)> {
        self.read_by(disks, Freshness::single()).await
    }

    /// These requests, as far as they are still the same, with their arrivals.
    pub(super) fn requests(&self, goals: &Batch) -> BTreeMap<ArmId, attach::Request<Instant>> {
        self.shared.queues().get(&self.vm).map(|queue| queue.arrived_of(goals)).unwrap_or_default()
    }

    async fn read_by(&self, disks: Vec<ArmId>, freshness: Freshness) -> Vec<(ArmId, Result<Snapshot<Disk>, ArmError>)> {
        let freshness = freshness.priority(Priority::Attach);
        join_all(disks.into_iter().map(|disk| async move {
            let read = self.shared.client.read_disk(&disk, freshness).await;
            (disk, read)
        }))
        .await
    }

    pub(super) fn attached_elsewhere(&self, disk: &ArmId, holders: &[ArmId]) -> VolumeError {
        let nodes: Vec<String> = holders.iter().map(|holder| self.shared.nodes.name_of(holder)).collect();
        VolumeError::new(
            Fault::AttachedElsewhere { holder: holders.first().cloned() },
            format!("{disk} cannot be attached to node {}: it is attached to node {}", self.node, nodes.join(", ")),
        )
    }
}

/// The failure that the caller of a failing disk gets where nothing explains it.
fn unexplained(error: VolumeError, disk: &ArmId, goal: Goal) -> VolumeError {
    match error.fault {
        Fault::NotFound if goal != Goal::Detached && error.named_disk().is_none() => error,
        _ => failure_for(&error, disk, goal),
    }
}
