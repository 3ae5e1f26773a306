//! What the incidents of a schedule do to the world.

use std::time::Duration;

use super::{
    azure::{Body, Owner, Request, Work, vm_id},
    driver::{Happens, Run},
    schedule::{DiskNo, Fate, Incident, Power, Tail, VmNo},
};
use crate::Caller;
use lazuli_storage::{
    attach::Goal,
    dangling::{Blocked, Dangling},
};

impl Run {
    pub(super) fn incident(&mut self, incident: Incident) {
        self.note(|| format!("* {incident:?}"));
        self.count(incident.name());
        let now = self.now;
        match incident {
            Incident::Attach(vm, disk) => self.need((vm, disk)),
            Incident::Detach(vm, disk) => self.let_go((vm, disk)),
            Incident::Resync(vm, disk) => self.resync((vm, disk)),
            Incident::ExtraAttach(vm, disk) => self.extra(vm, disk, Goal::Attached(None)),
            Incident::ExtraDetach(vm, disk) => self.extra(vm, disk, Goal::Detached),
            Incident::Unused(disk) => self.unused(disk),
            Incident::GiveUp(vm, disk) => {
                let of = self.callers.iter().filter(|(_, asked)| (asked.vm, asked.disk) == (vm, disk));
                let of: Vec<Caller> = of.map(|(caller, _)| *caller).collect();
                of.into_iter().for_each(|caller| self.give_up(caller));
            }
            Incident::Write(fate) => self.fates.push_back(fate),
            Incident::Read(fault) => self.read_faults.push_back(fault),
            Incident::NoPermit(count) => self.no_permits += count,
            Incident::PermitFails => {
                self.no_permits += 1;
                self.permit_fails += 1;
            }
            Incident::ForeignAttach(vm, disk) => self.foreign_attach(vm, disk, None),
            Incident::ForeignFailedAttach(vm, disk) => self.foreign_attach(vm, disk, Some(Fate::Fails)),
            Incident::ForeignDetach(vm, disk) => {
                let body = Body::Action { attach: Vec::new(), detach: vec![(disk, false)] };
                self.foreign(vm, body, None);
            }
            Incident::ForeignTouch(vm) => self.azure.touch(vm, now),
            Incident::ForeignOperation(vm, seconds) => {
                self.operate(vm, Work::Nothing, Duration::from_secs(seconds));
            }
            Incident::DeleteDisk(disk) => {
                if self.azure.delete_disk(disk, now) {
                    self.count("a disk was deleted");
                }
            }
            Incident::BadDisk(disk, bad, seconds) => {
                self.azure.bad[disk] = Some((bad, now + Duration::from_secs(seconds)));
            }
            Incident::StuckHost(vm, seconds) => self.azure.stuck[vm] = now + Duration::from_secs(seconds),
            Incident::Power(vm, power) => self.power(vm, power),
            Incident::DeleteVm(vm) => {
                let takes = Duration::from_secs(3) + self.numbers.ms(10_000);
                if self.operate(vm, Work::Delete, takes) {
                    self.count("a VM was deleted");
                    self.later(20_000, Happens::NodeGoes(vm));
                }
            }
            Incident::DeleteNode(vm) => self.later(10, Happens::NodeGoes(vm)),
            Incident::LeaderMoves(tail) => self.leader_moves(tail),
            Incident::Restart(replica) => self.restart(replica),
        }
    }

    fn extra(&mut self, vm: VmNo, disk: DiskNo, goal: Goal) {
        if let Some(leader) = self.cluster.leader {
            self.call(leader, (vm, disk), goal, None, false);
        }
    }

    /// The detach of a disk from the VM that holds it, which no VolumeAttachment names.
    fn unused(&mut self, disk: DiskNo) {
        let holders = &self.azure.disk(disk).holders;
        let (Some((vm, _)), 1, 1) = (holders.first_key_value(), holders.len(), self.azure.shares(disk)) else { return };
        let vm = *vm;
        let is_named = self.cluster.attachments.contains_key(&(vm, disk));
        if let (false, Some(leader), true) = (is_named, self.cluster.leader, self.habits.disks_name_vms) {
            let Some(read) = self.disk_now(vm, disk) else { return };
            self.count("the detach of an unused disk was asked for");
            let only_if = Dangling::new(Blocked::Attach, &read, &vm_id(vm));
            self.call(leader, (vm, disk), Goal::Detached, Some(only_if), false);
        }
    }

    fn foreign_attach(&mut self, vm: VmNo, disk: DiskNo, fate: Option<Fate>) {
        let elements = &self.azure.machine(vm).elements;
        let free = (0..64).find(|lun| !elements.iter().any(|element| element.lun == *lun));
        if let Some(lun) = free {
            let body = Body::Action { attach: vec![(lun, disk)], detach: Vec::new() };
            self.foreign(vm, body, fate);
        }
    }

    fn foreign(&mut self, vm: VmNo, body: Body, fate: Option<Fate>) {
        let request = Request { owner: Owner::Foreign, vm, body, if_match: None, fate };
        match self.azure.request(self.now, request) {
            Ok(operation) => {
                self.count("foreign: accepted");
                let takes = Duration::from_millis(500) + self.numbers.ms(12_000);
                self.operation_begins(operation, takes, None);
            }
            Err(error) => self.note(|| format!("Azure refuses it: {error:?}")),
        }
    }

    fn operate(&mut self, vm: VmNo, work: Work, takes: Duration) -> bool {
        match self.azure.operate(self.now, vm, work) {
            Some(operation) => {
                self.operation_begins(operation, takes, None);
                true
            }
            None => false,
        }
    }

    fn power(&mut self, vm: VmNo, power: Power) {
        let takes = Duration::from_secs(1) + self.numbers.ms(8_000);
        if self.azure.machine(vm).power != power && self.operate(vm, Work::Power(power), takes) {
            self.count("a VM was switched");
        }
    }

    /// The sidecar of the leader cannot renew its lease. It exits 10 s later at the latest, and another one leads once the
    /// lease of 15 s is over.
    fn leader_moves(&mut self, tail: Tail) {
        let Some(leader) = self.cluster.leader.filter(|_| self.habits.cluster) else { return };
        if self.moves_at > self.now {
            return;
        }
        if let Tail::Late(seconds) = tail {
            self.replicas[leader].late = Some(seconds);
        }
        if !self.replicas[leader].sides.iter().all(|side| side.under.is_empty()) {
            self.count("leader moves while something is under way");
        }
        let exits = self.now + self.numbers.ms(10_000);
        let begins = self.now + Duration::from_secs(15) + self.numbers.ms(2_000);
        self.moves_at = begins;
        self.at(exits, Happens::Exits(leader));
        self.at(begins, Happens::Leads(1 - leader));
    }

    /// No fault happens any more.
    pub(super) fn becomes_quiet(&mut self) {
        self.note(|| "no fault happens any more".to_owned());
        self.quiet = true;
        self.fates.clear();
        self.read_faults.clear();
        (self.no_permits, self.permit_fails) = (0, 0);
        self.azure.bad.iter_mut().for_each(|bad| *bad = None);
        self.azure.stuck.iter_mut().for_each(|until| *until = Duration::ZERO);
        self.laws.quiet_since = Some(self.now);
        // The callers from before wait without an end too.
        let waiting: Vec<Caller> = self.callers.keys().copied().collect();
        for caller in waiting {
            if let Some(asked) = self.callers.get_mut(&caller) {
                asked.waits_since = self.now;
            }
        }
    }
}
