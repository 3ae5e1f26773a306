//! What the step wants done, and what Azure answers.

use std::time::Duration;

use lazuli_engine::Id;
use lazuli_model::{
    ArmId, AzureTime, CachingMode, DataDisk, DataDiskSource, Disk, DiskId, DiskState, InstanceView, Lun, PowerState,
    ProvisioningState, Vm,
    fault::{Effect, Fault},
    op::{VmWrite, VmWriteMethod},
};
use lazuli_quota::read::{Accept, By, Seen};

use super::{
    azure::{ArmAnswer, Body, Element, Machine, Owner, Request, disk_no, vm_id},
    cluster::Told,
    driver::{Happens, Observed, ObservedDisk, Run, SIZE, Sent, Side, Under, VmAsk},
    mutant::Mutant,
    schedule::{Bad, DiskNo, Fate, Habits, Power, ReadFault, VmNo, World},
};
use crate::{Action, Caller, DiskSeen, Event, Outcome, VmRead};

/// How old a list may be.
const LIST_LAG_MS: u64 = 10_000;
/// How old a single read may be in a world where reads lag.
const READ_LAG_MS: u64 = 3_500;
/// The earliest time of Azure's clock.
const EPOCH: i64 = 1_700_000_000;

fn azure_time(at: Duration) -> AzureTime {
    AzureTime::from_unix_seconds(EPOCH + i64::try_from(at.as_secs()).expect("a run is short"))
}

fn lun(lun: u8) -> Lun {
    Lun::try_from(i64::from(lun)).expect("Azure has it")
}

impl Run {
    pub(super) fn carry_out(&mut self, replica: usize, vm: VmNo, action: Action<ArmAnswer>) {
        match action {
            Action::Answer { caller, disk, outcome } => self.answer(replica, vm, caller, disk_no(&disk), &outcome),
            Action::ReadVm { id, accept, keep, .. } => {
                self.under(replica, vm, id, Under::VmRead);
                let sent_at = self.sent_at();
                let list = accept != Accept::Single && self.numbers.one_in(2);
                let ask = VmAsk { sent_at, list, keep };
                if let (Mutant::CachesReads, Some((_, read))) = (self.mutant, self.side(replica, vm).kept.clone()) {
                    let read = Ok(Observed { by: By::Single, ..read });
                    return self.later_at(replica, 50, Happens::VmReadEnds(vm, id, keep, read));
                }
                let arrives = sent_at + self.travels();
                self.at_process(arrives, replica, Happens::VmReadArrives(vm, id, ask));
            }
            Action::ReadDisks { id, singly, listed, .. } => self.read_disks(replica, vm, id, &singly, &listed),
            Action::ReadView(id, _) => {
                self.under(replica, vm, id, Under::View);
                let arrives = self.sent_at() + self.travels();
                self.at_process(arrives, replica, Happens::ViewArrives(vm, id));
            }
            Action::TryPermit(id, _) => {
                self.under(replica, vm, id, Under::Permit);
                if self.no_permits > 0 {
                    self.no_permits -= 1;
                    self.count("permit: not at once");
                    self.later_at(replica, 0, Happens::ViewEnds(vm, id, Event::NotPermitted(id)));
                } else {
                    self.later_at(replica, 0, Happens::PermitEnds(vm, id, Ok(())));
                }
            }
            Action::TakePermit(id, _) => {
                self.under(replica, vm, id, Under::Permit);
                let granted = match self.permit_fails > 0 {
                    true => Err(ArmAnswer { status: None, ..ArmAnswer::refused(Fault::Unavailable, 503) }),
                    false => Ok(()),
                };
                self.permit_fails = self.permit_fails.saturating_sub(1);
                let most = if self.numbers.one_in(3) { 20_000 } else { 2_000 };
                self.later_at(replica, most, Happens::PermitEnds(vm, id, granted));
            }
            Action::ReleasePermit(id) => {
                self.count("permit: given back");
                if self.mutant != Mutant::LeaksPermits && !self.side(replica, vm).permits.remove(&id) {
                    self.judge(Err(format!("law 9 (permits): permit {id} is given back, which node-{vm} has not")));
                }
            }
            Action::Write { id, observation, write, method, permit, .. } => {
                self.write(replica, vm, id, observation, &write, method, permit);
            }
            Action::AwaitAttachments(id) => self.under(replica, vm, id, Under::Attachments),
            Action::Drop(id) => self.dropped(replica, vm, id),
            Action::Report(_) => self.count("report"),
        }
    }

    fn side(&mut self, replica: usize, vm: VmNo) -> &mut Side {
        &mut self.replicas[replica].sides[vm]
    }

    fn under(&mut self, replica: usize, vm: VmNo, id: Id, under: Under) {
        if self.side(replica, vm).under.insert(id, under).is_some() {
            self.judge(Err(format!("law 9 (ids): node-{vm} uses {id} twice")));
        }
    }

    /// When a request leaves the queue.
    fn sent_at(&mut self) -> Duration {
        let most = if self.numbers.one_in(12) { 2_500 } else { 20 };
        self.now + self.numbers.ms(most)
    }

    fn travels(&mut self) -> Duration {
        let most = if self.numbers.one_in(15) { 2_000 } else { 120 };
        self.numbers.ms(most)
    }

    fn dropped(&mut self, replica: usize, vm: VmNo, id: Id) {
        if self.mutant == Mutant::ForgetsDrops {
            return;
        }
        let Some(under) = self.side(replica, vm).under.remove(&id) else {
            return self.judge(Err(format!("law 9 (ids): node-{vm} drops {id}, which is not under way")));
        };
        self.count("dropped");
        let was_granted = under == Under::Permit && self.numbers.one_in(2);
        self.side(replica, vm).dropping += 1;
        self.later_at(replica, 1, Happens::DropEnds(vm, was_granted.then_some(id)));
    }

    /// A call has ended that the step had dropped. A permit may have come at that moment.
    pub(super) fn drop_ends(&mut self, replica: usize, vm: VmNo, granted: Option<Id>) {
        self.side(replica, vm).dropping -= 1;
        match granted {
            Some(id) => {
                self.count("permit: granted when it was dropped");
                self.side(replica, vm).permits.insert(id);
                self.step(replica, vm, Event::Permitted(id));
            }
            None => self.step(replica, vm, Event::Woke),
        }
    }

    pub(super) fn permit_ends(&mut self, replica: usize, vm: VmNo, id: Id, granted: Result<(), ArmAnswer>) {
        if !self.ends(replica, vm, id) {
            return;
        }
        let event = match granted {
            Ok(()) => {
                self.count("permit: granted");
                self.side(replica, vm).permits.insert(id);
                Event::Permitted(id)
            }
            Err(error) => {
                self.count("permit: failed");
                Event::PermitFailed(id, error)
            }
        };
        self.step(replica, vm, event);
    }

    fn read_fault(&mut self) -> Option<ArmAnswer> {
        let (fault, status, what) = match self.read_faults.pop_front()? {
            ReadFault::Throttled => {
                let retry_after = Some(Duration::from_secs(2));
                (Fault::Throttled { retry_after }, 429, "read: 429")
            }
            ReadFault::Unavailable => (Fault::Unavailable, 503, "read: 503"),
            ReadFault::Forbidden => (Fault::Forbidden, 403, "read: 403"),
            ReadFault::Malformed => (Fault::Malformed, 404, "read: 404 of something else"),
        };
        self.count(what);
        Some(ArmAnswer::refused(fault, status))
    }

    /// The time of which a single read that arrives now is.
    fn time_of_read(&mut self, replica: usize) -> Duration {
        if self.habits.world == World::ReadsLag {
            let lag = self.numbers.ms(READ_LAG_MS);
            let seen = self.now.saturating_sub(lag).max(self.replicas[replica].seen);
            if seen < self.now {
                self.count("read: lags");
            }
            self.replicas[replica].seen = seen;
            return seen;
        }
        self.now
    }

    pub(super) fn vm_read_arrives(&mut self, replica: usize, vm: VmNo, id: Id, ask: VmAsk) {
        let VmAsk { sent_at, list, keep } = ask;
        let listed = list.then(|| self.now.saturating_sub(self.numbers.ms(LIST_LAG_MS)));
        // What a list lacks is read alone.
        let listed = listed.filter(|of| self.azure.machines[vm].at(*of).exists);
        let (by, of) = match listed {
            Some(of) => (By::List, of),
            None => (By::Single, self.time_of_read(replica)),
        };
        let machine = self.azure.machines[vm].at(of).clone();
        let read = match self.read_fault() {
            Some(fault) => Err(fault),
            None if !machine.exists => Err(ArmAnswer::refused(Fault::NotFound, 404)),
            None => Ok(Observed { by, sent_at, answered: self.now, machine }),
        };
        let most = self.travels();
        self.at_process(self.now + most, replica, Happens::VmReadEnds(vm, id, keep, read));
    }

    pub(super) fn vm_read_ends(
        &mut self,
        replica: usize,
        vm: VmNo,
        id: Id,
        keep: bool,
        read: Result<Observed, ArmAnswer>,
    ) {
        if !self.ends(replica, vm, id) {
            return;
        }
        if let Ok(read) = &read {
            self.count(match (read.by, read.machine.provisioning) {
                (By::List, _) => "read: list of VMs",
                (_, ProvisioningState::InProgress) => "read: VM in progress",
                (_, ProvisioningState::Failed) => "read: VM failed",
                _ => "read: VM",
            });
            let shown = self.describe(&read.machine);
            self.note(|| format!("    {id} by {:?}, sent at {:.3}: {shown}", read.by, read.sent_at.as_secs_f64()));
            let now = self.now;
            let side = self.side(replica, vm);
            if keep {
                side.kept = Some((id, read.clone()));
                let is_at_work = read.machine.provisioning == ProvisioningState::InProgress;
                side.at_work_since = side.at_work_since.filter(|_| is_at_work).or(is_at_work.then_some(now));
            }
            if read.by == By::Single {
                side.shown.push_back(read.clone());
                if side.shown.len() > 12 {
                    side.shown.pop_front();
                }
            }
        }
        let read = read.map(|read| Box::new(self.vm_value(vm, &read)));
        self.step(replica, vm, Event::VmRead(id, read));
    }

    fn vm_value(&mut self, vm: VmNo, read: &Observed) -> VmRead {
        let machine = &read.machine;
        let mut elements: Vec<DataDisk> =
            machine.elements.iter().map(|element| data_disk(&self.habits, element)).collect();
        if self.mutant == Mutant::HidesElements {
            elements.pop();
        }
        let is_list = read.by == By::List;
        let etag = (self.habits.etag && !is_list).then(|| machine.version.to_string());
        let by = if self.mutant == Mutant::TrustsLists { By::Single } else { read.by };
        let is_younger = matches!(self.mutant, Mutant::OldReads | Mutant::CachesReads);
        let sent_at = if is_younger { self.now } else { read.sent_at };
        VmRead {
            vm: Vm {
                id: vm_id(vm),
                location: "local".to_owned(),
                size: SIZE.to_owned(),
                zone: None,
                computer_name: None,
                provisioning_state: match machine.provisioning {
                    ProvisioningState::InProgress if self.mutant == Mutant::HidesOperations => {
                        ProvisioningState::Succeeded
                    }
                    shown => shown,
                },
                etag: etag.clone(),
                system_disk: match self.habits.blobs {
                    true => lazuli_model::SystemDisk::Blob,
                    false => lazuli_model::SystemDisk::Managed,
                },
                data_disks: elements,
            },
            version: lazuli_storage::source::VmVersion { machine: (!is_list).then(|| format!("machine-{vm}")), etag },
            seen: Seen { by, sent_at: self.mutant.clock(sent_at) },
            answered: Some(azure_time(read.answered)),
        }
    }

    fn read_disks(&mut self, replica: usize, vm: VmNo, id: Id, singly: &[DiskId], listed: &[DiskId]) {
        self.under(replica, vm, id, Under::DisksRead);
        if singly.is_empty() && listed.is_empty() {
            return self.judge(Err(format!("law 9 (ids): node-{vm} reads no disk")));
        }
        let asked = singly.iter().map(|disk| (disk, false)).chain(listed.iter().map(|disk| (disk, true)));
        let asked: Vec<(DiskNo, bool)> = asked.map(|(disk, listed)| (disk_no(disk), listed)).collect();
        self.side(replica, vm).gathered.insert(id, (asked.len(), Vec::new()));
        for (disk, listed) in asked {
            let by = if listed && self.numbers.one_in(2) { By::List } else { By::Single };
            let sent_at = self.sent_at();
            let arrives = sent_at + self.travels();
            self.at_process(arrives, replica, Happens::DiskReadArrives(vm, id, disk, by, sent_at));
        }
    }

    pub(super) fn disk_read_arrives(
        &mut self,
        replica: usize,
        vm: VmNo,
        id: Id,
        disk: DiskNo,
        by: By,
        sent_at: Duration,
    ) {
        let of = self.now.saturating_sub(self.numbers.ms(LIST_LAG_MS));
        let (by, of) = match by {
            By::List if self.azure.disks[disk].at(of).exists => (By::List, of),
            _ => (By::Single, self.time_of_read(replica)),
        };
        let state = self.azure.disks[disk].at(of);
        let observed = ObservedDisk { sent_at, disk: state.exists.then(|| state.clone()) };
        let read = self.read_fault().map_or(Ok((observed, by)), Err);
        let Some((left, reads)) = self.side(replica, vm).gathered.get_mut(&id) else { return };
        *left -= 1;
        reads.push((disk, read));
        if *left == 0 {
            let most = self.travels();
            self.at_process(self.now + most, replica, Happens::DisksReadEnd(vm, id));
        }
    }

    pub(super) fn disks_read_end(&mut self, replica: usize, vm: VmNo, id: Id) {
        let gathered = self.side(replica, vm).gathered.remove(&id);
        if !self.ends(replica, vm, id) {
            return;
        }
        let (_, reads) = gathered.expect("it was asked for");
        let mut seen = Vec::new();
        for (disk, read) in reads {
            let read = match read {
                Ok((observed, by)) => {
                    self.count("read: disk");
                    self.note(|| format!("    d{disk:02} by {by:?}: {:?}", observed.disk));
                    let value = self.disk_value(vm, disk, &observed, by);
                    self.side(replica, vm).disks.insert(disk, observed);
                    value
                }
                Err(error) => Err(error),
            };
            seen.push((self.habits.disk_id(disk), read));
        }
        self.step(replica, vm, Event::DisksRead(id, seen));
    }

    fn disk_value(&mut self, vm: VmNo, disk: DiskNo, observed: &ObservedDisk, by: By) -> Result<DiskSeen, ArmAnswer> {
        let Some(state) = &observed.disk else { return Err(ArmAnswer::refused(Fault::NotFound, 404)) };
        let mut holders: Vec<ArmId> = state.holders.keys().map(|holder| vm_id(*holder)).collect();
        if self.mutant == Mutant::DeniesHolders {
            holders.retain(|holder| *holder != vm_id(vm));
        }
        let is_off = |holder: &VmNo| self.azure.machine(*holder).power == Power::Deallocated;
        let disk_state = match holders.is_empty() {
            true => DiskState::Unattached,
            false if state.holders.keys().all(is_off) => DiskState::Reserved,
            false => DiskState::Attached,
        };
        if !self.habits.disks_name_vms {
            holders.clear();
        }
        let zones = match self.azure.bad(disk, self.now) {
            Some(Bad::OtherZone) => vec!["2".to_owned()],
            _ => Vec::new(),
        };
        let is_shared = self.azure.shares(disk) > 1;
        let mut value = Disk::plain(self.habits.disk_id(disk), "local".into());
        value.state = Some(disk_state);
        value.managed_by = holders.first().filter(|_| !is_shared).cloned();
        value.managed_by_extended = if is_shared { holders } else { Vec::new() };
        value.ownership_changed = state.changed.filter(|_| by == By::Single).map(azure_time);
        value.max_shares = u32::try_from(self.azure.shares(disk)).expect("it is small");
        value.zones = zones;
        Ok(DiskSeen { disk: value, seen: Seen { by, sent_at: self.mutant.clock(observed.sent_at) } })
    }

    /// A disk as a single read shows it now.
    pub(super) fn disk_now(&mut self, vm: VmNo, disk: DiskNo) -> Option<Disk<DiskId>> {
        let observed = ObservedDisk { sent_at: self.now, disk: Some(self.azure.disk(disk).clone()) };
        self.disk_value(vm, disk, &observed, By::Single).ok().map(|seen| seen.disk)
    }

    pub(super) fn view_arrives(&mut self, replica: usize, vm: VmNo, id: Id) {
        let machine = self.azure.machine(vm);
        let (power, provisioning_state, exists) = (machine.power, machine.provisioning, machine.exists);
        let view = match self.read_fault() {
            Some(fault) => Err(fault),
            None if !exists => Err(ArmAnswer::refused(Fault::NotFound, 404)),
            None => {
                let power = Some(match power {
                    Power::Running => PowerState::Other,
                    Power::Stopped => PowerState::Stopped,
                    Power::Deallocated => PowerState::Deallocated,
                });
                Ok(InstanceView { provisioning_state, power })
            }
        };
        if power != Power::Running && provisioning_state != ProvisioningState::InProgress {
            self.side(replica, vm).stopped_at = Some(self.now);
        }
        self.count("read: instance view");
        self.later_at(replica, 120, Happens::ViewEnds(vm, id, Event::ViewRead(id, view)));
    }

    #[expect(clippy::too_many_arguments, reason = "they are the fields of one action")]
    fn write(
        &mut self,
        replica: usize,
        vm: VmNo,
        id: Id,
        observation: Id,
        write: &VmWrite,
        method: VmWriteMethod,
        permit: Option<Id>,
    ) {
        let judged = self.judge_write(replica, vm, observation, write, method);
        self.judge(judged);
        self.under(replica, vm, id, Under::Write);
        let side = self.side(replica, vm);
        if permit.is_some_and(|permit| !side.permits.remove(&permit)) {
            return self.judge(Err(format!("law 9 (permits): node-{vm} writes by a permit that it has not")));
        }
        let Some((_, read)) = side.kept.clone() else { return };
        let is_list = method != VmWriteMethod::Action || write.says_nothing();
        let body = if is_list { list_body(&read.machine, write, method) } else { action_body(write) };
        let if_match = (is_list && self.habits.etag).then_some(read.machine.version);
        self.count(match (&body, write.says_nothing(), write.force.is_empty()) {
            (_, true, _) => "write: model applied again",
            (_, _, false) => "write: forced detach",
            (Body::Action { .. }, ..) => "write: action",
            (Body::List(_), ..) if method == VmWriteMethod::WholeListByOmission => "write: list by omission",
            (Body::List(_), ..) => "write: list",
        });
        let late = self.replicas[replica].late.map(Fate::Late);
        let fate = late.or_else(|| self.fates.pop_front());
        self.note(|| format!("    sent to Azure: {body:?}, if-match {if_match:?}, fate {fate:?}"));
        let attaches: Vec<DiskNo> = write.attach.iter().map(|attachment| disk_no(&attachment.disk)).collect();
        let names_lun = |disk: &DiskNo| self.cluster.attachments.get(&(vm, *disk)).is_some_and(|it| it.lun.is_some());
        let recorded = attaches.iter().copied().filter(names_lun).collect();
        let removes = self.removes(replica, vm, write);
        let process = self.replicas[replica].process;
        let sent_at = self.now;
        let is_leaving = |disk: &DiskNo| read.machine.elements.iter().any(|it| it.disk == *disk && it.leaving);
        let repeats_detach = removes.iter().copied().filter(is_leaving).collect();
        let is_conditional = if_match.is_some();
        let mut sent = Sent {
            replica,
            process,
            vm,
            id,
            sent_at,
            attaches,
            recorded,
            removes,
            repeats_detach,
            is_conditional,
            fate,
            is_awaited: true,
        };
        let mut arrives = self.now + self.travels();
        if let Some(Fate::LostRequest | Fate::Late(_)) = fate {
            sent.is_awaited = false;
            let gives_up = self.now + Duration::from_secs(1) + self.numbers.ms(12_000);
            self.at_process(gives_up, replica, Happens::WriteEnds(vm, id, Err(ArmAnswer::lost())));
        }
        if let Some(Fate::Late(seconds)) = fate {
            arrives = self.now + Duration::from_secs(seconds);
            if is_list && if_match.is_none() {
                self.laws.sent_late((replica, process, vm), write, self.now, arrives);
            }
        }
        if self.mutant == Mutant::EndsEarly {
            self.later_at(replica, 50, Happens::Event(vm, Box::new(Event::Written(id, Err(ArmAnswer::lost())))));
        }
        if fate == Some(Fate::LostRequest) {
            return self.count("write: request lost");
        }
        let request = Request { owner: Owner::Replica(replica), vm, body, if_match, fate };
        self.at(arrives, Happens::WriteArrives(sent, request));
    }

    pub(super) fn write_arrives(&mut self, mut sent: Sent, request: Request) {
        let refusal = sent.fate.and_then(refusal);
        let operation = match refusal {
            Some(refusal) => Err(refusal),
            None => self.azure.request(self.now, request),
        };
        self.replicas[sent.replica].seen = self.now;
        self.count(outcome_name(&sent, operation.as_ref().err()));
        let (replica, vm, id) = (sent.replica, sent.vm, sent.id);
        self.note(|| format!("Azure: write {id} of replica {replica} for node-{vm}: {operation:?}"));
        match operation {
            Err(error) => {
                let lost = sent.fate == Some(Fate::LostAnswer);
                let written = Err(if lost { ArmAnswer::lost() } else { error });
                self.answers(&sent, written, 100);
            }
            Ok(operation) => {
                let judged = self.judge_accepted(&sent);
                self.judge(judged);
                if sent.fate == Some(Fate::LostAnswer) {
                    self.answers(&sent, Err(ArmAnswer::lost()), 9_000);
                    sent.is_awaited = false;
                }
                let takes = match sent.fate {
                    Some(Fate::Slow(seconds)) => Duration::from_secs(seconds),
                    _ if !self.quiet && self.numbers.one_in(12) => Duration::from_secs(1) + self.numbers.ms(70_000),
                    _ => Duration::from_millis(800) + self.numbers.ms(11_000),
                };
                self.operation_begins(operation, takes, Some(sent));
            }
        }
    }

    pub(super) fn operation_begins(&mut self, operation: u64, takes: Duration, sent: Option<Sent>) {
        let ends = self.now + takes;
        let is_early = sent.as_ref().is_some_and(|sent| sent.fate == Some(Fate::AnswersEarly));
        let most = if is_early { 4_000 } else { 1_500 };
        // Never at the same time.
        let before = (Duration::from_millis(1) + self.numbers.ms(most)).min(takes / 2);
        self.at(ends.saturating_sub(before), Happens::Takes(operation));
        self.at(ends, Happens::Ends(operation));
        if let Some(sent) = sent {
            self.operations.insert(operation, Sent { sent_at: self.now, ..sent });
        }
    }

    /// The disks of an operation have come and gone. Azure may report its end from now on.
    pub(super) fn operation_takes(&mut self, operation: u64) {
        self.azure.take(self.now, operation);
        let succeeds = self.azure.operations[&operation].failure.is_none();
        if let Some(sent) = self.operations.get_mut(&operation)
            && succeeds
            && sent.is_awaited
            && sent.fate == Some(Fate::AnswersEarly)
        {
            let sent = std::mem::replace(sent, Sent { is_awaited: false, ..sent.clone() });
            self.count("operation: end reported early");
            self.answers(&sent, Ok(sent.sent_at), 100);
        }
    }

    pub(super) fn operation_ends(&mut self, operation: u64) {
        let result = self.azure.end(self.now, operation);
        let vm = self.azure.operations[&operation].vm;
        let shown = self.describe(self.azure.machine(vm));
        self.note(|| format!("Azure: operation {operation} on node-{vm} ends: {result:?}; {shown}"));
        if let Some(sent) = self.operations.remove(&operation) {
            self.count(if result.is_ok() { "operation: succeeded" } else { "operation: failed" });
            if sent.is_awaited {
                let written = result.map(|()| sent.sent_at);
                self.answers(&sent, written, 2_500);
            }
        }
    }

    fn answers(&mut self, sent: &Sent, written: Result<Duration, ArmAnswer>, most_ms: u64) {
        let at = self.now + self.numbers.ms(most_ms);
        self.answers_at(sent, written, at);
    }

    /// The client's answer to a write, if its process lives and it waits for one.
    fn answers_at(&mut self, sent: &Sent, written: Result<Duration, ArmAnswer>, at: Duration) {
        if sent.is_awaited && self.is_alive(sent.replica, sent.process) {
            self.at_process(at, sent.replica, Happens::WriteEnds(sent.vm, sent.id, written));
        }
    }

    pub(super) fn write_ends(&mut self, replica: usize, vm: VmNo, id: Id, written: Result<Duration, ArmAnswer>) {
        if !self.ends(replica, vm, id) {
            return;
        }
        self.side(replica, vm).last_write_ended = Some(self.now);
        self.laws.write_ended(vm, written.is_ok());
        let written = self.mutant.written(written).map(|accepted| self.mutant.clock(accepted));
        self.step(replica, vm, Event::Written(id, written));
    }

    /// A caller gets its answer.
    fn answer(&mut self, replica: usize, vm: VmNo, caller: Caller, disk: DiskNo, outcome: &Outcome<ArmAnswer>) {
        let judged = self.judge_answer(replica, vm, caller, disk, outcome);
        self.judge(judged);
        let Some(asked) = self.callers.remove(&caller) else { return };
        self.count(super::words::answer(asked.attaches, outcome));
        let told = match outcome {
            Ok(Some(lun)) => Told::Attached(lun.get()),
            Ok(None) => Told::Detached,
            Err(failure) if super::words::vm_is_missing(failure) => Told::VmMissing,
            Err(_) => Told::Failed,
        };
        self.told(caller, &asked, told);
    }

    pub(super) fn describe(&self, machine: &Machine) -> String {
        let elements = machine.elements.iter().map(|element| {
            let leaving = if element.leaving { " leaving" } else { "" };
            format!("{}: d{:02}{leaving}", element.lun, element.disk)
        });
        let elements: Vec<String> = elements.collect();
        format!("{:?} v{} [{}]", machine.provisioning, machine.version, elements.join(", "))
    }
}

fn data_disk(habits: &Habits, element: &Element) -> DataDisk {
    DataDisk {
        lun: lun(element.lun),
        source: DataDiskSource::Disk(habits.disk_id(element.disk)),
        caching: CachingMode::None,
        to_be_detached: element.leaving,
    }
}

fn action_body(write: &VmWrite) -> Body {
    let attach = write.attach.iter().map(|attachment| (attachment.lun.get(), disk_no(&attachment.disk)));
    let detach = write.detach.iter().map(|disk| (disk_no(disk), write.force.contains(disk)));
    Body::Action { attach: attach.collect(), detach: detach.collect() }
}

/// The list as it was read, with what the write changes.
fn list_body(read: &Machine, write: &VmWrite, method: VmWriteMethod) -> Body {
    let leaves = |disk: DiskNo| write.detach.iter().any(|leaving| disk_no(leaving) == disk);
    let forced = |disk: DiskNo| write.force.iter().any(|leaving| disk_no(leaving) == disk);
    let mut elements = Vec::new();
    for element in &read.elements {
        match leaves(element.disk) {
            true if method == VmWriteMethod::WholeListByOmission => {}
            true => elements.push((Element { leaving: true, ..*element }, forced(element.disk))),
            false => elements.push((*element, false)),
        }
    }
    elements.extend(write.attach.iter().map(|attachment| {
        (Element { lun: attachment.lun.get(), disk: disk_no(&attachment.disk), leaving: false }, false)
    }));
    Body::List(elements)
}

/// What Azure answers to a write of this fate at once.
fn refusal(fate: Fate) -> Option<ArmAnswer> {
    let (fault, status) = match fate {
        Fate::Conflict => (Fault::Conflict, 409),
        Fate::Precondition => (Fault::PreconditionFailed, 412),
        Fate::Throttled(seconds) => (Fault::Throttled { retry_after: seconds.map(Duration::from_secs) }, 429),
        Fate::Forbidden => (Fault::Forbidden, 403),
        Fate::LinkedForbidden => (Fault::LinkedForbidden, 403),
        Fate::Malformed => (Fault::Malformed, 404),
        Fate::Unsupported => (Fault::Unsupported, 405),
        Fate::Locked => (Fault::Locked, 409),
        Fate::Unavailable => (Fault::Unavailable, 503),
        Fate::Unclear => (Fault::Unclear, 409),
        _ => return None,
    };
    Some(ArmAnswer { effect: Effect::None, ..ArmAnswer::refused(fault, status) })
}

/// What became of a write that reached Azure, to be counted.
fn outcome_name(sent: &Sent, refusal: Option<&ArmAnswer>) -> &'static str {
    match (sent.fate, refusal) {
        (Some(Fate::Late(_)), None) => "azure: late write accepted",
        (Some(Fate::LostAnswer), None) => "azure: accepted, answer lost",
        (_, None) => "azure: accepted",
        (_, Some(error)) => match &error.fault {
            Fault::NotFound => "azure: 404",
            Fault::Malformed => "azure: 404 of something else",
            Fault::Conflict => "azure: 409",
            Fault::PreconditionFailed => "azure: 412",
            Fault::Throttled { retry_after: Some(_) } => "azure: 429 with Retry-After",
            Fault::Throttled { retry_after: None } => "azure: 429",
            Fault::Forbidden => "azure: 403",
            Fault::LinkedForbidden => "azure: 403 of something linked",
            Fault::Denied => "azure: 403 of a disk",
            Fault::Unsupported => "azure: 405",
            Fault::Locked => "azure: locked",
            Fault::Unavailable => "azure: 503",
            Fault::Unclear => "azure: unclear",
            Fault::Invalid => "azure: invalid",
            Fault::AttachedElsewhere { .. } => "azure: attached elsewhere",
            Fault::BeingDetached => "azure: being detached",
            Fault::DiskLimit => "azure: too many disks",
            _ => "azure: other refusal",
        },
    }
}
