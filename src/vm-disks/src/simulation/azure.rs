//! Azure: VMs, their models, the disks that they hold, and the operations that change them. It was written without a look
//! at any planner.
//!
//! ```text
//!   request ──refused──▶ answer
//!      │ accepted: the model shows what is asked for, the state is InProgress
//!      ▼
//!   takes: disks come and go, one after the other; the operation may fail here
//!      │
//!      ▼
//!   ends: the state is Succeeded or Failed, and the model shows what is left
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, DiskId, ProvisioningState, fault::Effect, fault::Fault};

use super::schedule::{Allowed, Bad, DiskNo, Fate, Habits, Power, VmNo};
use crate::AzureError;

/// Azure's own error, as the client gives it to the step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ArmAnswer {
    pub(super) fault: Fault,
    pub(super) effect: Effect,
    pub(super) status: Option<u16>,
    pub(super) named: Option<DiskId>,
}

impl ArmAnswer {
    /// A refusal: nothing was done.
    pub(super) fn refused(fault: Fault, status: u16) -> Self {
        Self { fault, effect: Effect::None, status: Some(status), named: None }
    }

    /// An accepted operation that failed.
    pub(super) fn failed(fault: Fault) -> Self {
        Self { fault, effect: Effect::Possible, status: Some(200), named: None }
    }

    /// No answer.
    pub(super) fn lost() -> Self {
        Self { fault: Fault::OutcomeUnknown, effect: Effect::Possible, status: None, named: None }
    }
}

impl AzureFailure for ArmAnswer {
    fn fault(&self) -> &Fault {
        &self.fault
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn code(&self) -> &str {
        ""
    }
}

impl AzureError for ArmAnswer {
    fn status(&self) -> Option<u16> {
        self.status
    }

    fn named_disk(&self) -> Option<DiskId> {
        self.named.clone()
    }
}

/// An element of a VM's model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Element {
    pub(super) lun: u8,
    pub(super) disk: DiskNo,
    pub(super) leaving: bool,
}

/// A VM at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) exists: bool,
    pub(super) power: Power,
    pub(super) provisioning: ProvisioningState,
    pub(super) version: u64,
    pub(super) elements: Vec<Element>,
}

/// A disk at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiskNow {
    pub(super) exists: bool,
    /// The VMs that hold it, each with the LUN.
    pub(super) holders: BTreeMap<VmNo, u8>,
    /// When it was last attached or detached, or its VM started or deallocated.
    pub(super) changed: Option<Duration>,
}

/// What something was at each time.
#[derive(Debug, Clone)]
pub(super) struct History<T>(Vec<(Duration, T)>);

impl<T: Clone> History<T> {
    fn new(first: T) -> Self {
        Self(vec![(Duration::ZERO, first)])
    }

    pub(super) fn now(&self) -> &T {
        &self.0.last().expect("it has a first version").1
    }

    pub(super) fn at(&self, at: Duration) -> &T {
        let later = self.0.partition_point(|(since, _)| *since <= at);
        &self.0[later.max(1) - 1].1
    }

    /// What it was at any time of a span, both ends included.
    pub(super) fn within(&self, from: Duration, to: Duration) -> impl Iterator<Item = &T> {
        let first = self.0.partition_point(|(since, _)| *since <= from).max(1) - 1;
        self.0[first..].iter().take_while(move |(since, _)| *since <= to).map(|(_, version)| version)
    }

    fn change(&mut self, now: Duration, change: impl FnOnce(&mut T)) {
        let mut next = self.now().clone();
        change(&mut next);
        self.0.push((now, next));
    }
}

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Replica(usize),
    Foreign,
}

/// What a request of a VM's data disks says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// `attachDetachDataDisks`: what comes, and what leaves, which may be by force.
    Action { attach: Vec<(u8, DiskNo)>, detach: Vec<(DiskNo, bool)> },
    /// The whole list; each element may leave, also by force.
    List(Vec<(Element, bool)>),
}

/// A request of a VM's data disks.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) owner: Owner,
    pub(super) vm: VmNo,
    pub(super) body: Body,
    pub(super) if_match: Option<u64>,
    pub(super) fate: Option<Fate>,
}

/// What an operation does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    Disks {
        attach: Vec<(u8, DiskNo)>,
        detach: Vec<(DiskNo, bool)>,
    },
    /// It changes nothing.
    Nothing,
    Power(Power),
    Delete,
}

/// An operation that was accepted.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) vm: VmNo,
    work: Work,
    fate: Option<Fate>,
    /// How it has ended, once that is known.
    pub(super) failure: Option<ArmAnswer>,
    ended: bool,
}

#[derive(Debug)]
pub(super) struct Azure {
    pub(super) habits: Habits,
    pub(super) machines: Vec<History<Machine>>,
    pub(super) disks: Vec<History<DiskNow>>,
    shares: Vec<u32>,
    limit: usize,
    pub(super) operations: BTreeMap<u64, Operation>,
    running: Vec<Option<u64>>,
    next: u64,
    /// How a disk is bad, until then.
    pub(super) bad: Vec<Option<(Bad, Duration)>>,
    /// Until when the host of a VM lets no disk go.
    pub(super) stuck: Vec<Duration>,
}

pub(super) fn vm_id(vm: VmNo) -> ArmId {
    ArmId::virtual_machine("s", "g", &format!("node-{vm}")).expect("this is a name")
}

pub(super) fn disk_no(id: &DiskId) -> DiskNo {
    id.name()[1..].parse().expect("the world has named it")
}

/// What a request would do.
struct Wanted {
    model: Vec<Element>,
    attach: Vec<(u8, DiskNo)>,
    detach: Vec<(DiskNo, bool)>,
}

impl Azure {
    pub(super) fn new(habits: Habits, vms: usize, shares: &[u32], limit: u8) -> Self {
        let machine = Machine {
            exists: true,
            power: Power::Running,
            provisioning: ProvisioningState::Succeeded,
            version: 1,
            elements: Vec::new(),
        };
        let disk = DiskNow { exists: true, holders: BTreeMap::new(), changed: None };
        Self {
            habits,
            machines: vec![History::new(machine); vms],
            disks: vec![History::new(disk); shares.len()],
            shares: shares.to_vec(),
            limit: usize::from(limit),
            operations: BTreeMap::new(),
            running: vec![None; vms],
            next: 0,
            bad: vec![None; shares.len()],
            stuck: vec![Duration::ZERO; vms],
        }
    }

    pub(super) fn machine(&self, vm: VmNo) -> &Machine {
        self.machines[vm].now()
    }

    pub(super) fn disk(&self, disk: DiskNo) -> &DiskNow {
        self.disks[disk].now()
    }

    pub(super) fn shares(&self, disk: DiskNo) -> usize {
        self.shares[disk] as usize
    }

    pub(super) fn bad(&self, disk: DiskNo, now: Duration) -> Option<Bad> {
        self.bad[disk].filter(|(_, until)| now < *until).map(|(bad, _)| bad)
    }

    fn change(&mut self, vm: VmNo, now: Duration, change: impl FnOnce(&mut Machine)) {
        self.machines[vm].change(now, |machine| {
            change(machine);
            machine.version += 1;
        });
    }

    /// Another hand changes something that is no disk.
    pub(super) fn touch(&mut self, vm: VmNo, now: Duration) {
        self.change(vm, now, |_| {});
    }

    /// A disk is deleted that is attached nowhere.
    pub(super) fn delete_disk(&mut self, disk: DiskNo, now: Duration) -> bool {
        let free = self.disk(disk).exists && self.disk(disk).holders.is_empty();
        if free {
            self.disks[disk].change(now, |disk| disk.exists = false);
        }
        free
    }

    /// Takes a request, or refuses it. An accepted one is an operation.
    pub(super) fn request(&mut self, now: Duration, request: Request) -> Result<u64, ArmAnswer> {
        let vm = request.vm;
        if !self.machine(vm).exists {
            return Err(ArmAnswer::refused(Fault::NotFound, 404));
        }
        let allowed = match (&request.body, request.owner) {
            (_, Owner::Foreign) => Allowed::Yes,
            (Body::Action { .. }, _) => self.habits.action,
            (Body::List(_), _) => self.habits.list,
        };
        match allowed {
            Allowed::Yes => {}
            Allowed::Forbidden => return Err(ArmAnswer::refused(Fault::Forbidden, 403)),
            Allowed::Unknown => return Err(ArmAnswer::refused(Fault::Unsupported, 405)),
        }
        if request.if_match.is_some_and(|version| version != self.machine(vm).version) {
            return Err(ArmAnswer::refused(Fault::PreconditionFailed, 412));
        }
        if self.running[vm].is_some() && !self.may_preempt(vm) {
            return Err(ArmAnswer::refused(Fault::Conflict, 409));
        }
        let mut wanted = self.wanted(vm, &request)?;
        self.check(now, vm, &wanted)?;
        let new = wanted.attach.len();
        self.take_over(vm, &mut wanted);
        if self.habits.names_disk {
            // Such an Azure looks at all of the model before it accepts.
            self.check_left_over(vm, &wanted.attach[new..])?;
        }
        if let Some(running) = self.running[vm].take() {
            let before = self.operations.get_mut(&running).expect("it runs");
            before.failure = Some(ArmAnswer::failed(Fault::Conflict));
            before.ended = true;
        }
        let Wanted { model, attach, detach } = wanted;
        self.change(vm, now, |machine| {
            machine.elements = model;
            machine.provisioning = ProvisioningState::InProgress;
        });
        Ok(self.begin(vm, Work::Disks { attach, detach }, request.fate))
    }

    fn may_preempt(&self, vm: VmNo) -> bool {
        let running = self.running[vm].and_then(|running| self.operations.get(&running));
        self.habits.preempts && running.is_some_and(|running| matches!(running.work, Work::Disks { .. }))
    }

    fn begin(&mut self, vm: VmNo, work: Work, fate: Option<Fate>) -> u64 {
        self.next += 1;
        self.operations.insert(self.next, Operation { vm, work, fate, failure: None, ended: false });
        self.running[vm] = Some(self.next);
        self.next
    }

    /// Another hand's operation. `None` while another one runs.
    pub(super) fn operate(&mut self, now: Duration, vm: VmNo, work: Work) -> Option<u64> {
        if self.running[vm].is_some() || !self.machine(vm).exists {
            return None;
        }
        self.change(vm, now, |machine| machine.provisioning = ProvisioningState::InProgress);
        Some(self.begin(vm, work, None))
    }

    fn wanted(&self, vm: VmNo, request: &Request) -> Result<Wanted, ArmAnswer> {
        match &request.body {
            Body::Action { attach, detach } => self.wanted_by_action(vm, attach, detach),
            Body::List(elements) => self.wanted_by_list(vm, elements),
        }
    }

    fn wanted_by_action(
        &self,
        vm: VmNo,
        attach: &[(u8, DiskNo)],
        detach: &[(DiskNo, bool)],
    ) -> Result<Wanted, ArmAnswer> {
        let mut model = self.machine(vm).elements.clone();
        let mut wanted = Wanted { model: Vec::new(), attach: Vec::new(), detach: Vec::new() };
        for (disk, force) in detach {
            match model.iter_mut().find(|element| element.disk == *disk) {
                Some(element) => {
                    element.leaving = true;
                    wanted.detach.push((*disk, *force));
                }
                None if self.habits.refuses_repetitions => return Err(ArmAnswer::refused(Fault::Conflict, 409)),
                None => {}
            }
        }
        for (lun, disk) in attach {
            match model.iter().find(|element| element.disk == *disk) {
                Some(element) if element.leaving => return Err(self.refused(Fault::BeingDetached, 409, *disk)),
                Some(_) if self.habits.refuses_repetitions => {
                    return Err(self.refused(Fault::AttachedElsewhere { holder: None }, 409, *disk));
                }
                Some(_) => {}
                None if model.iter().any(|element| element.lun == *lun) => {
                    return Err(self.refused(Fault::Invalid, 400, *disk));
                }
                None => {
                    model.push(Element { lun: *lun, disk: *disk, leaving: false });
                    wanted.attach.push((*lun, *disk));
                }
            }
        }
        wanted.model = model;
        Ok(wanted)
    }

    fn wanted_by_list(&self, vm: VmNo, elements: &[(Element, bool)]) -> Result<Wanted, ArmAnswer> {
        let current = &self.machine(vm).elements;
        let mut wanted = Wanted { model: Vec::new(), attach: Vec::new(), detach: Vec::new() };
        let (mut luns, mut disks) = (BTreeSet::new(), BTreeSet::new());
        for (element, force) in elements {
            if !luns.insert(element.lun) || !disks.insert(element.disk) {
                return Err(ArmAnswer::refused(Fault::Invalid, 400));
            }
            if self.habits.refuses_deleted && !self.disk(element.disk).exists {
                return Err(self.refused(Fault::NotFound, 404, element.disk));
            }
            match current.iter().find(|have| have.lun == element.lun) {
                Some(have) if have.disk != element.disk => {
                    return Err(self.refused(Fault::Invalid, 400, element.disk));
                }
                Some(have) if element.leaving => {
                    wanted.model.push(Element { leaving: true, ..*have });
                    wanted.detach.push((have.disk, *force));
                }
                Some(have) if have.leaving => return Err(self.refused(Fault::BeingDetached, 409, have.disk)),
                Some(have) => wanted.model.push(*have),
                None if element.leaving && self.habits.refuses_repetitions => {
                    return Err(ArmAnswer::refused(Fault::Conflict, 409));
                }
                None if element.leaving => {}
                None if current.iter().any(|have| have.disk == element.disk) => {
                    return Err(self.refused(Fault::Invalid, 400, element.disk));
                }
                None => {
                    wanted.model.push(*element);
                    wanted.attach.push((element.lun, element.disk));
                }
            }
        }
        for have in current.iter().filter(|have| !luns.contains(&have.lun)) {
            if self.habits.left_out_stays {
                wanted.model.push(*have);
            } else {
                wanted.model.push(Element { leaving: true, ..*have });
                wanted.detach.push((have.disk, false));
            }
        }
        Ok(wanted)
    }

    /// A refusal because of one disk, which this Azure names or not.
    fn refused(&self, fault: Fault, status: u16, disk: DiskNo) -> ArmAnswer {
        let named = self.habits.names_disk.then(|| self.habits.disk_id(disk));
        ArmAnswer { named, ..ArmAnswer::refused(fault, status) }
    }

    /// Whether Azure accepts what comes.
    fn check(&self, now: Duration, vm: VmNo, wanted: &Wanted) -> Result<(), ArmAnswer> {
        for (_, disk) in &wanted.attach {
            let state = self.disk(*disk);
            if !state.exists {
                return Err(self.refused(Fault::NotFound, 404, *disk));
            }
            match self.bad(*disk, now) {
                Some(Bad::Refused) => return Err(self.refused(Fault::Denied, 403, *disk)),
                Some(Bad::OtherZone) => return Err(self.refused(Fault::Invalid, 400, *disk)),
                Some(Bad::FailsLate) | None => {}
            }
            if state.holders.contains_key(&vm) || state.holders.len() >= self.shares(*disk) {
                let is_leaving = state.holders.keys().any(|holder| {
                    self.machine(*holder).elements.iter().any(|element| element.disk == *disk && element.leaving)
                });
                let elsewhere = Fault::AttachedElsewhere { holder: None };
                let fault = if is_leaving { Fault::BeingDetached } else { elsewhere };
                return Err(self.refused(fault, 409, *disk));
            }
        }
        let staying = wanted.model.iter().filter(|element| !element.leaving).count();
        if staying > self.limit && !wanted.attach.is_empty() {
            return Err(ArmAnswer::refused(Fault::DiskLimit, 409));
        }
        Ok(())
    }

    fn check_left_over(&self, vm: VmNo, attach: &[(u8, DiskNo)]) -> Result<(), ArmAnswer> {
        for (_, disk) in attach {
            let state = self.disk(*disk);
            if !state.exists {
                return Err(self.refused(Fault::NotFound, 404, *disk));
            }
            if !state.holders.contains_key(&vm) && state.holders.len() >= self.shares(*disk) {
                return Err(self.refused(Fault::AttachedElsewhere { holder: None }, 409, *disk));
            }
        }
        Ok(())
    }

    /// A write, whatever it says, brings a VM to what its model says: what an earlier write has left to do is done too.
    fn take_over(&self, vm: VmNo, wanted: &mut Wanted) {
        for element in &wanted.model {
            let is_held = self.disk(element.disk).holders.contains_key(&vm);
            let is_new = wanted.attach.iter().any(|(_, disk)| *disk == element.disk);
            if !element.leaving && !is_held && !is_new {
                wanted.attach.push((element.lun, element.disk));
            }
        }
    }

    /// The disks of an operation come and go. It may fail here.
    pub(super) fn take(&mut self, now: Duration, number: u64) {
        let operation = &self.operations[&number];
        if operation.ended {
            return;
        }
        let (vm, fate) = (operation.vm, operation.fate);
        let Work::Disks { attach, detach } = operation.work.clone() else { return };
        let mut failure = None;
        let fails = match fate {
            Some(Fate::Fails) => Some(0),
            Some(Fate::FailsPartly) => Some((attach.len() + detach.len()) / 2),
            _ => None,
        };
        let mut done = 0;
        for (disk, force) in detach {
            if fails == Some(done) {
                failure = Some(ArmAnswer::failed(Fault::OperationFailed));
                break;
            }
            done += 1;
            let is_stuck = now < self.stuck[vm] && !force && self.disk(disk).holders.contains_key(&vm);
            if is_stuck {
                failure = Some(self.failed_for(Fault::OperationFailed, disk));
            } else {
                self.release(now, vm, disk);
            }
        }
        for (lun, disk) in attach {
            if failure.is_some() || fails == Some(done) {
                failure = failure.or_else(|| Some(ArmAnswer::failed(Fault::OperationFailed)));
                break;
            }
            done += 1;
            let state = self.disk(disk);
            if !state.exists {
                failure = Some(self.failed_for(Fault::NotFound, disk));
            } else if self.bad(disk, now).is_some() {
                failure = Some(self.failed_for(Fault::OperationFailed, disk));
            } else if state.holders.len() >= self.shares(disk) && !state.holders.contains_key(&vm) {
                failure = Some(self.failed_for(Fault::AttachedElsewhere { holder: None }, disk));
            } else {
                self.disks[disk].change(now, |disk| {
                    disk.holders.insert(vm, lun);
                    disk.changed = Some(now);
                });
            }
        }
        if fails.is_some() {
            failure = failure.or_else(|| Some(ArmAnswer::failed(Fault::OperationFailed)));
        }
        self.operations.get_mut(&number).expect("it runs").failure = failure;
    }

    fn failed_for(&self, fault: Fault, disk: DiskNo) -> ArmAnswer {
        let named = self.habits.names_disk.then(|| self.habits.disk_id(disk));
        ArmAnswer { named, ..ArmAnswer::failed(fault) }
    }

    fn release(&mut self, now: Duration, vm: VmNo, disk: DiskNo) {
        if self.disk(disk).holders.contains_key(&vm) {
            self.disks[disk].change(now, |disk| {
                disk.holders.remove(&vm);
                disk.changed = Some(now);
            });
        }
    }

    /// An operation ends. Returns how.
    pub(super) fn end(&mut self, now: Duration, number: u64) -> Result<(), ArmAnswer> {
        let operation = self.operations.get_mut(&number).expect("it was accepted");
        let (vm, work) = (operation.vm, operation.work.clone());
        let failure = operation.failure.clone();
        if !std::mem::replace(&mut operation.ended, true) {
            self.running[vm] = None;
            match work {
                Work::Disks { detach, .. } => self.disks_end(now, vm, &detach, failure.is_some()),
                Work::Nothing => self.at_rest(now, vm),
                Work::Power(power) => {
                    self.change(vm, now, |machine| machine.power = power);
                    for disk in 0..self.disks.len() {
                        if self.disk(disk).holders.contains_key(&vm) {
                            self.disks[disk].change(now, |disk| disk.changed = Some(now));
                        }
                    }
                    self.at_rest(now, vm);
                }
                Work::Delete => {
                    (0..self.disks.len()).for_each(|disk| self.release(now, vm, disk));
                    self.change(vm, now, |machine| {
                        machine.exists = false;
                        machine.elements.clear();
                    });
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn disks_end(&mut self, now: Duration, vm: VmNo, detach: &[(DiskNo, bool)], failed: bool) {
        let stays = self.habits.failed_attach_stays;
        let held: BTreeSet<DiskNo> =
            (0..self.disks.len()).filter(|disk| self.disk(*disk).holders.contains_key(&vm)).collect();
        let leaves = |disk: DiskNo| detach.iter().any(|(leaving, _)| *leaving == disk);
        self.change(vm, now, |machine| {
            machine.elements.retain(|element| match held.contains(&element.disk) {
                true => true,
                false if element.leaving && leaves(element.disk) => false,
                false => !failed || stays || element.leaving,
            });
            machine.provisioning = if failed { ProvisioningState::Failed } else { ProvisioningState::Succeeded };
        });
    }

    /// The end of an operation that changes no disk: what an earlier write has left stays as it is.
    fn at_rest(&mut self, now: Duration, vm: VmNo) {
        let is_stale = |element: &Element| !self.disk(element.disk).holders.contains_key(&vm);
        let is_whole = !self.machine(vm).elements.iter().any(is_stale);
        self.change(vm, now, |machine| {
            machine.provisioning = if is_whole { ProvisioningState::Succeeded } else { ProvisioningState::Failed };
        });
    }
}
