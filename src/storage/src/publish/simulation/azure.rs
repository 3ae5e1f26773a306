//! Azure, the workers of its VMs, and what Kubernetes answers to questions.

use std::{sync::Arc, time::Duration};

use lazuli_model::{ArmId, AzureTime, Disk, DiskId, Lun, ProvisioningState, Vm, fault::Fault, seeded::Numbers};
use lazuli_quota::read::{By, Seen};

use super::{
    FOREIGN, Mutant,
    world::{Asked, AzureError, DISK, DRIVER, MACHINES, NODES, Then, Told, WorkError, World, Write},
};
use crate::{
    attach::Goal,
    dangling::{AttachedBy, NodeAttachment, NodeFacts},
    publish::{Call, Event, MachineList, Request},
};

/// How late an attach may take place whose answer was lost, and how long one is suspected.
const LATEST: u64 = 50_000;
const SUSPECTED: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) exists: bool,
    /// Azure did not find it until then. It is hidden once.
    pub(super) hidden_until: Option<Duration>,
    /// It is hidden from single reads alone: lists show it, and writes reach it.
    pub(super) is_listed: bool,
    /// The node as which it registered last.
    pub(super) runs: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct DiskOf {
    pub(super) holds: [bool; 5],
    /// The time of the last attach or detach: each has another one.
    pub(super) stamp: i64,
    /// Whether this driver attached it last.
    pub(super) is_ours: bool,
}

/// The disk and the machines.
#[derive(Debug)]
pub(super) struct Azure {
    pub(super) machines: [Machine; 5],
    pub(super) disk: Option<DiskOf>,
    pub(super) max_shares: u32,
    stamps: i64,
    /// A list that was sent a moment ago, of the cluster's resource group.
    listed: Option<(Duration, Arc<Vec<Vm>>)>,
}

impl Azure {
    pub(super) fn new(numbers: &mut Numbers) -> Self {
        let machine = Machine { exists: true, hidden_until: None, is_listed: false, runs: None };
        let mut azure = Self {
            machines: [machine; 5],
            disk: None,
            max_shares: if numbers.one_in(5) { 2 } else { 1 },
            stamps: 1,
            listed: None,
        };
        azure.machines[FOREIGN].exists = numbers.one_in(2);
        azure.make();
        azure
    }

    pub(super) fn make(&mut self) {
        self.stamps += 1;
        self.disk.get_or_insert(DiskOf { holds: [false; 5], stamp: self.stamps, is_ours: false });
    }

    pub(super) fn holders(&self) -> [bool; 5] {
        self.disk.map_or([false; 5], |disk| disk.holds)
    }

    /// Whether a machine may get the disk: a shared one never goes to the machine that only looks like a node's.
    pub(super) fn may_hold(&self, vm: usize) -> bool {
        let held = self.holders().iter().filter(|holds| **holds).count();
        let most = if vm == FOREIGN { 1 } else { self.max_shares };
        self.disk.is_some() && (vm != FOREIGN || self.max_shares == 1) && held < usize::try_from(most).unwrap_or(1)
    }

    pub(super) fn hold(&mut self, vm: usize, is_ours: bool) {
        self.stamps += 1;
        if let Some(disk) = &mut self.disk
            && !disk.holds[vm]
        {
            (disk.holds[vm], disk.stamp, disk.is_ours) = (true, self.stamps, is_ours);
        }
    }

    pub(super) fn release(&mut self, vm: usize) {
        self.stamps += 1;
        if let Some(disk) = &mut self.disk
            && disk.holds[vm]
        {
            (disk.holds[vm], disk.stamp) = (false, self.stamps);
        }
    }

    pub(super) fn delete_machine(&mut self, vm: usize) {
        self.release(vm);
        self.machines[vm] = Machine { exists: false, runs: None, ..self.machines[vm] };
    }

    fn is_found(&self, vm: usize, now: Duration) -> bool {
        self.machines[vm].exists && self.machines[vm].hidden_until.is_none_or(|until| until <= now)
    }

    /// Whether lists show it and writes reach it.
    fn is_there(&self, vm: usize, now: Duration) -> bool {
        self.is_found(vm, now) || self.machines[vm].exists && self.machines[vm].is_listed
    }

    fn disk_model(&self, holds: [bool; 5]) -> Option<Disk<DiskId>> {
        let disk = self.disk?;
        let mut holders = (0..5).filter(|vm| holds[*vm]).map(|vm| MACHINES[vm].clone());
        let managed_by = holders.next();
        let managed_by_extended =
            if self.max_shares > 1 { managed_by.iter().cloned().chain(holders).collect() } else { Vec::new() };
        Some(Disk {
            id: DISK.clone(),
            managed_by,
            managed_by_extended,
            max_shares: self.max_shares,
            ownership_changed: Some(AzureTime::from_unix_seconds(disk.stamp)),
            tags: [("k8s-azure-created-by".to_owned(), "kubernetes-azure-dd".to_owned())].into(),
            ..Disk::unattached("d")
        })
    }
}

fn vm_model(vm: usize) -> Vm {
    let computer_name = [None, Some("host-1"), Some("n2"), Some("set000003"), None][vm];
    Vm {
        id: MACHINES[vm].clone(),
        location: "local".into(),
        size: "Standard_D2s_v3".into(),
        zone: None,
        computer_name: computer_name.map(str::to_owned),
        provisioning_state: ProvisioningState::Succeeded,
        etag: None,
        system_disk: lazuli_model::SystemDisk::Managed,
        data_disks: Vec::new(),
    }
}

pub(super) fn number_of(vm: &ArmId) -> Option<usize> {
    MACHINES.iter().position(|machine| machine == vm)
}

fn failed(fault: Fault) -> AzureError {
    AzureError(fault)
}

impl World {
    /// The writes of a process that are under way.
    pub(super) fn writes_of(&self, process: u64) -> impl Iterator<Item = &Write> {
        self.writes.values().filter(move |write| write.by == process && !write.is_lost)
    }

    /// A call is sent.
    pub(super) fn send(&mut self, id: u64, call: Call) {
        let not_before = match &call {
            Call::ReadVm { not_before, .. }
            | Call::ReadDisk { not_before, .. }
            | Call::List { not_before, .. }
            | Call::ReadScaleSet { not_before, .. } => *not_before,
            _ => None,
        };
        let sent_at = self.now.max(not_before.unwrap_or_default());
        let looked_at = if self.mutant == Some(Mutant::GoneAtOnce) { self.now } else { sent_at };
        let most = if self.numbers.one_in(20) { 5_000 } else { 300 };
        let at = looked_at + self.numbers.ms(most);
        self.at(at, Then::Arrives(id, Box::new(call), sent_at));
    }

    fn answer(&mut self, id: u64, event: Told) {
        if self.mutant == Some(Mutant::NoAnswer) && self.numbers.one_in(5) {
            return;
        }
        let sent_at = match &event {
            Event::Vm { sent_at, .. } | Event::ScaleSet { sent_at, .. } | Event::Listed(Ok((sent_at, _))) => *sent_at,
            _ => Duration::ZERO,
        };
        let at = self.now.max(sent_at) + self.numbers.ms(150);
        self.at(at, Then::Answered(id, Box::new(event)));
    }

    /// A call is looked at.
    pub(super) fn arrives(&mut self, id: u64, call: Call, sent_at: Duration) {
        if !self.requests.contains_key(&id) {
            return;
        }
        let fails = self.numbers.one_in(60);
        let event = match call {
            _ if fails => match self.failure(&call) {
                Some(event) => event,
                None => return self.arrives_well(id, call, sent_at),
            },
            call => return self.arrives_well(id, call, sent_at),
        };
        self.answer(id, event);
    }

    fn failure(&mut self, call: &Call) -> Option<Told> {
        let fault = [Fault::Unavailable, Fault::Forbidden, Fault::Throttled { retry_after: None }];
        let fault = fault[usize::try_from(self.numbers.below(3)).expect("it is small")].clone();
        let error = || failed(fault.clone());
        Some(match call {
            Call::ReadVm { .. } => Event::Vm { sent_at: self.now, read: Err(error()) },
            Call::ReadDisk { .. } => Event::Disk(Err(error())),
            Call::List { .. } => Event::Listed(Err(error())),
            Call::FindInstance(_) => Event::Instance(Err(error())),
            Call::ReadScaleSet { .. } => Event::ScaleSet { sent_at: self.now, exists: Err(error()) },
            Call::AskNode(_) => Event::NodeFacts(Err("the API server is silent".to_owned())),
            _ => return None,
        })
    }

    fn arrives_well(&mut self, id: u64, call: Call, sent_at: Duration) {
        let event = match call {
            Call::AwaitNodes(_) | Call::AskSource(_) => return self.breaks("a call that this world does not know"),
            Call::ReadVm { vm, .. } => Event::Vm { sent_at, read: self.read_vm(&vm).map(Box::new) },
            Call::ReadDisk { .. } => {
                let old = self.requests.get(&id).map(|asked| asked.holders);
                let holds = match (self.mutant, old) {
                    (Some(Mutant::NoHolders), _) => [false; 5],
                    (Some(Mutant::OldDisk), Some(old)) => old,
                    _ => self.azure.holders(),
                };
                let read = self.azure.disk_model(holds).ok_or(failed(Fault::NotFound));
                Event::Disk(read.map(|disk| Box::new((disk, Seen { by: By::Single, sent_at }))))
            }
            Call::List { of, not_before } => Event::Listed(Ok(self.list(&of, not_before, sent_at))),
            Call::FindInstance(computer) => {
                let is_it = computer == NODES[3] && self.azure.is_there(3, self.now);
                Event::Instance(Ok(is_it.then(|| Box::new(vm_model(3)))))
            }
            Call::ReadScaleSet { .. } => {
                // It is hidden with its instance, or is not.
                let exists = self.azure.is_there(3, self.now) || !self.numbers.one_in(3);
                Event::ScaleSet { sent_at, exists: Ok(exists) }
            }
            Call::AskFreshFrom => {
                let fresh_from = self.process.since + Duration::from_secs(4);
                Event::FreshFrom((fresh_from > self.now).then_some(fresh_from))
            }
            Call::AskLateAttach { vm, node } => Event::LateAttach(self.late_attach(&vm, &node)),
            Call::AskNode(node) => Event::NodeFacts(Ok(self.facts(&node))),
            Call::Work { vm, goal, only_if, .. } => return self.work(id, &vm, goal, only_if),
            Call::Prepare => return self.breaks("a call that this world does not know"),
            Call::Delete => Event::Deleted(self.delete()),
        };
        self.answer(id, event);
    }

    fn read_vm(&mut self, vm: &ArmId) -> Result<Vm, AzureError> {
        match number_of(vm) {
            Some(vm) if self.azure.is_found(vm, self.now) && !self.stays_hidden(vm) => Ok(vm_model(vm)),
            vm => Err(failed(self.missing(vm))),
        }
    }

    fn stays_hidden(&self, vm: usize) -> bool {
        self.mutant == Some(Mutant::StaysHidden) && self.azure.machines[vm].hidden_until.is_some()
    }

    /// What Azure says of a machine that it does not find.
    fn missing(&mut self, vm: Option<usize>) -> Fault {
        match (vm, self.numbers.below(3)) {
            (Some(3), 0) => Fault::ScopeNotFound,
            (Some(3), 1) => Fault::Invalid,
            _ => Fault::NotFound,
        }
    }

    fn list(&mut self, of: &MachineList, not_before: Option<Duration>, sent_at: Duration) -> (Duration, Arc<Vec<Vm>>) {
        let members: &[usize] = match of {
            MachineList::Group { group, .. } if group == "g" => &[0, 2, 4],
            MachineList::Group { .. } => &[1],
            MachineList::ScaleSet(_) => &[3],
        };
        let is_home = members.len() == 3;
        if let Some((sent_at, list)) = &self.azure.listed
            && is_home
            && *sent_at + Duration::from_secs(2) >= self.now
            && not_before.is_none_or(|not_before| *sent_at >= not_before)
        {
            let list = (*sent_at, list.clone());
            self.count("list from a moment ago");
            return list;
        }
        let is_listed = |vm: usize| match self.mutant {
            Some(Mutant::HiddenFromLists) => self.azure.is_found(vm, self.now),
            _ => self.azure.is_there(vm, self.now),
        };
        let found = members.iter().filter(|vm| is_listed(**vm)).map(|vm| vm_model(*vm));
        let list = Arc::new(found.collect::<Vec<_>>());
        if is_home {
            self.azure.listed = Some((sent_at, list.clone()));
        }
        (sent_at, list)
    }

    /// Until when an attach may be under way of which Azure shows nothing.
    fn late_attach(&self, vm: &ArmId, node: &str) -> Option<Duration> {
        if self.mutant == Some(Mutant::NoLateAttach) {
            return None;
        }
        let is_recorded = NODES.iter().position(|name| *name == node).is_some_and(|node| {
            self.attachments[node] == Some(true) && !matches!(self.view, lazuli_model::node::ClusterNodes::Cold)
        });
        let of_leader_before = (!is_recorded).then_some(self.process.since + SUSPECTED);
        let lost = number_of(vm).and_then(|vm| self.process.lost.get(&vm).copied());
        of_leader_before.max(lost)
    }

    fn facts(&self, node: &str) -> NodeFacts {
        let alive = NodeFacts { ready: true, lease_age: Some(Duration::from_secs(5)), ..NodeFacts::default() };
        let Some(node) = NODES.iter().position(|name| *name == node) else { return NodeFacts::default() };
        if self.mutant == Some(Mutant::NothingUsed) {
            return alive;
        }
        let attachment = |_| NodeAttachment { name: format!("csi-{node}"), handle: Some(DISK.to_string()) };
        NodeFacts {
            ready: self.api[node].is_some(),
            attachments: self.attachments[node].map(attachment).into_iter().collect(),
            volumes: self.uses[node].then(|| format!("kubernetes.io/csi/{DRIVER}^{}", *DISK)).into_iter().collect(),
            ..alive
        }
    }

    fn delete(&mut self) -> Result<(), WorkError> {
        let refused = |fault| Err(WorkError { fault, not_dangling: None });
        if self.writes_of(self.process.number).next().is_some() {
            return refused(Fault::Busy);
        }
        if self.azure.holders().contains(&true) {
            return refused(Fault::InUse);
        }
        self.azure.disk = None;
        self.changed();
        Ok(())
    }

    /// The worker of a VM gets a request.
    fn work(&mut self, id: u64, vm: &ArmId, goal: Goal, only_if: Option<crate::dangling::Dangling>) {
        let attaches = goal != Goal::Detached;
        let refused = |fault| Event::Worked(Err(WorkError { fault, not_dangling: None }));
        let Some(vm) = number_of(vm) else { return self.answer(id, refused(Fault::NotFound)) };
        let is_opposed = self.writes_of(self.process.number).any(|write| write.vm == vm && write.attaches != attaches);
        if is_opposed {
            return self.answer(id, refused(Fault::Busy));
        }
        let may_come = self.process.lost.get(&vm).is_some_and(|until| *until > self.now);
        let may_come_from_before = {
            let node = self.azure.machines[vm].runs;
            let is_recorded = node.is_some_and(|node| self.attachments[node] == Some(true));
            !is_recorded && self.now < self.process.since + SUSPECTED
        };
        if !attaches && only_if.is_none() && !self.azure.holders()[vm] && (may_come || may_come_from_before) {
            return self.answer(id, refused(Fault::Busy));
        }
        if !self.azure.is_there(vm, self.now) {
            let fault = self.missing(Some(vm));
            return self.answer(id, refused(fault));
        }
        let write = self.next_write;
        self.next_write += 1;
        let is_lost = attaches && self.numbers.one_in(12);
        let by = self.process.number;
        let of_deletion = |asked: &Asked| matches!(asked.request, Request::Delete { .. });
        let node = self.requests.get(&id).and_then(|asked| asked.node);
        let for_deletion = self.requests.get(&id).is_some_and(of_deletion);
        self.writes.insert(write, Write { vm, node, attaches, sent_at: self.now, only_if, for_deletion, by, is_lost });
        if is_lost {
            self.count("attach lost, and done late");
            self.process.lost.insert(vm, self.now + SUSPECTED);
            self.after_ms(LATEST, Then::Done { write, to: None });
            return self.answer(id, refused(Fault::OutcomeUnknown));
        }
        let most = if self.numbers.one_in(10) { 15_000 } else { 1_500 };
        self.after_ms(most, Then::Done { write, to: Some(id) });
    }

    /// A write takes place.
    pub(super) fn done(&mut self, write: u64, to: Option<u64>) {
        let Some(write) = self.writes.remove(&write) else { return };
        let vm = write.vm;
        let refused = |fault| Err(WorkError { fault, not_dangling: None });
        let outcome = match (write.attaches, self.azure.disk) {
            _ if self.numbers.one_in(40) => refused(Fault::Conflict),
            _ if !self.azure.is_there(vm, self.now) => refused(self.missing(Some(vm))),
            (true, None) => refused(Fault::NotFound),
            (true, Some(disk)) if disk.holds[vm] || self.azure.may_hold(vm) => {
                self.attach(&write, disk);
                Ok(Some(Lun::try_from(0).expect("a LUN")))
            }
            (true, Some(_)) => refused(Fault::AttachedElsewhere { holder: None }),
            (false, None) => Ok(None),
            (false, Some(_)) => match self.may_detach(&write) {
                Ok(()) => {
                    self.judge_detach(&write);
                    self.azure.release(vm);
                    if write.by == self.process.number {
                        self.process.seen.detached(&DISK, &MACHINES[vm]);
                    }
                    Ok(None)
                }
                Err(error) => Err(error),
            },
        };
        if outcome.is_ok() {
            // Azure does the writes of a VM in the order in which they came.
            let process = self.process.number;
            self.writes.retain(|_, before| before.vm != vm || !before.is_lost && before.by == process);
            self.process.lost.remove(&vm);
        }
        self.changed();
        if let Some(id) = to {
            self.answer(id, Event::Worked(outcome));
        }
    }

    fn attach(&mut self, write: &Write, disk: DiskOf) {
        let vm = write.vm;
        if !disk.holds[vm] {
            self.judge_late(write);
        }
        self.azure.hold(vm, true);
        if write.by == self.process.number && !write.is_lost {
            let stamp = self.azure.disk.map(|disk| AzureTime::from_unix_seconds(disk.stamp));
            self.process.seen.attached(&DISK, &MACHINES[vm], stamp.filter(|_| !disk.holds[vm] || disk.is_ours));
        }
    }

    /// The worker looks again before it sends the detach of an attachment alone.
    fn may_detach(&self, write: &Write) -> Result<(), WorkError> {
        let Some(only_if) = &write.only_if else { return Ok(()) };
        let disk = self.azure.disk_model(self.azure.holders()).expect("there is a disk");
        let node = self.view.name_of(&MACHINES[write.vm]);
        let is_named = node.is_some_and(|name| {
            let node = NODES.iter().position(|node| *node == name);
            node.is_some_and(|node| self.attachments[node] == Some(true))
        });
        let attached_by = match self.mutant {
            Some(Mutant::OwnAttachments) => AttachedBy::ThisProcess,
            _ => self.process.seen.attached_by(&disk, &MACHINES[write.vm]),
        };
        only_if
            .check_again(&disk, attached_by, is_named && self.mutant != Some(Mutant::NoAttachments))
            .map_err(|reason| WorkError { fault: Fault::Conflict, not_dangling: Some(reason) })
    }
}
