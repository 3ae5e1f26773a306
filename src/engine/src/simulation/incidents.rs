//! What the incidents of a schedule do to the world.

use std::time::Duration;

use lazuli_model::fault::Fault;

use super::{
    driver::{Happens, LEASE, Run},
    schedule::{Incident, Tail},
    world::{Name, Owner, Provisioning},
};
use crate::{Acceptance, object};

impl Run {
    pub(super) fn incident(&mut self, incident: Incident) {
        self.note(|| format!("* {incident:?}"));
        let leader = self.replicas.iter().position(|replica| replica.leads);
        match incident {
            Incident::Apply(owner, ask) => {
                self.count("service changed");
                if self.api.services.get(&owner).is_some_and(|service| service.deleting) {
                    return;
                }
                self.api.put(owner, |service| {
                    service.ask = Some(ask);
                    service.claimed = true;
                });
                self.user_changed(owner);
            }
            Incident::Mistake(owner) if self.api.services.get(&owner).is_some_and(|service| !service.deleting) => {
                self.count("service with a mistake");
                self.api.put(owner, |service| service.ask = None);
                self.user_changed(owner);
            }
            Incident::Delete(owner) if self.api.services.contains_key(&owner) => {
                self.count("service deleted");
                self.api.put(owner, |service| service.deleting = true);
                self.user_changed(owner);
            }
            Incident::Unclaim(owner) if self.api.services.contains_key(&owner) => {
                self.count("service type changed");
                self.api.put(owner, |service| service.claimed = false);
                self.user_changed(owner);
            }
            Incident::Mistake(_) | Incident::Delete(_) | Incident::Unclaim(_) => {}
            Incident::Write(fate) => self.fates.push_back(fate),
            Incident::ThrottledRead => {
                let retry_after = Some(Duration::from_secs(2));
                self.read_faults.push_back(Fault::Throttled { retry_after });
            }
            Incident::FailedRead => self.read_faults.push_back(Fault::Unavailable),
            Incident::Lag(seconds) => self.lag_until = self.now + Duration::from_secs(seconds),
            Incident::Foreign(name) => {
                self.count("foreign write");
                if !self.azure.is_busy(name) {
                    let now = self.now;
                    let provisioning = self.azure.current(name).map(|version| version.provisioning);
                    self.azure.write_by_other(now, name, provisioning.unwrap_or(Provisioning::Succeeded));
                }
            }
            Incident::ForeignOperation(name, seconds) => {
                if !self.azure.is_busy(name) && self.azure.current(name).is_some() {
                    self.count("foreign operation");
                    let now = self.now;
                    self.azure.write_by_other(now, name, Provisioning::Updating);
                    self.at(now + Duration::from_secs(seconds), 0, Happens::OtherEnds(name));
                }
            }
            Incident::Race(race) => self.races.push_back(race),
            Incident::Unaccepted(seconds) => {
                self.unaccepted_until = self.unaccepted_until.max(self.now + Duration::from_secs(seconds));
                self.at(self.unaccepted_until, 0, Happens::Accepts);
            }
            Incident::Policy(owner, seconds) => {
                self.policies.insert(owner, self.now + Duration::from_secs(seconds));
            }
            Incident::Breaks(name) => {
                if !self.azure.is_busy(name) && self.azure.current(name).is_some() {
                    self.count("public IP failed");
                    let now = self.now;
                    self.azure.write_by_other(now, name, Provisioning::Failed);
                }
            }
            Incident::Partition(tail) => {
                if let Some(leader) = leader.filter(|leader| self.replicas[*leader].lease_end.is_none()) {
                    self.count("partition");
                    let end = self.now + LEASE;
                    self.replicas[leader].lease_end = Some(end);
                    self.replicas[leader].tail_is_late = tail == Tail::Late;
                    if !self.replicas[leader].writing.is_empty() {
                        self.count("lease moves mid-write");
                    }
                    self.at(end, leader, Happens::LeaseEnds);
                }
            }
            Incident::Kill => {
                if let Some(leader) = leader.filter(|leader| self.replicas[*leader].lease_end.is_none()) {
                    self.count("killed");
                    if !self.replicas[leader].writing.is_empty() {
                        self.count("killed mid-write");
                    }
                    self.end_process(leader);
                    let at = self.now + LEASE - self.numbers.ms(2_000);
                    self.at(at, 1 - leader, Happens::Acquires);
                }
            }
            Incident::AddNode(node) => {
                self.count("node added");
                self.nodes.insert(node);
                self.later(100, 0, Happens::NodesInformed);
                self.later(100, 1, Happens::NodesInformed);
            }
            Incident::RemoveNode(node) => {
                // An empty list of nodes plans nothing, so the informer never shows one.
                if self.nodes.len() > 1 && self.nodes.remove(&node) {
                    self.count("node removed");
                    self.later(100, 0, Happens::NodesInformed);
                    self.later(100, 1, Happens::NodesInformed);
                }
            }
        }
    }

    /// The objects of the leader may go on, unless acceptance was put off meanwhile.
    pub(super) fn accepts(&mut self) {
        if self.acceptance() == Acceptance::Awaited {
            return;
        }
        self.count("plan accepted");
        for replica in 0..self.replicas.len() {
            let names: Vec<Name> = self.replicas[replica].objects.keys().copied().collect();
            for name in names {
                self.step_object(replica, name, object::Event::Woke);
            }
        }
    }

    fn user_changed(&mut self, owner: Owner) {
        self.refused.clear();
        self.denied.clear();
        self.taken_over.remove(&owner);
        self.oracle.changed(owner, self.api.services.get(&owner), self.now);
        self.inform_all(owner);
    }

    pub(super) fn inform_all(&mut self, owner: Owner) {
        self.later(200, 0, Happens::Informed(owner));
        self.later(200, 1, Happens::Informed(owner));
    }
}
