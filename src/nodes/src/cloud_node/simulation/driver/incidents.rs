//! What happens in the world: Nodes and machines come and go, others write, processes end.

use super::*;

impl Run {
    pub(super) fn addresses(&self, number: u8, as_of: Duration) -> Vec<String> {
        let others = self.azure.addressed(number, as_of);
        let v6 = self.is_dual.then(|| match others {
            0 => format!("fd01::{}", number + 4),
            _ => format!("fd01::{others}:{}", number + 4),
        });
        [format!("10.0.{others}.{}", number + 4)].into_iter().chain(v6).collect()
    }

    /// A machine gets other addresses. Another VM of its name reports another boot.
    pub(super) fn readdress(&mut self, number: u8, boots: bool) {
        self.azure.readdress(self.now, number);
        let name = name_of(number);
        if let Some(node) = self.nodes.get(&name).cloned() {
            self.oracle.readdressed(&node, &self.addresses(number, self.now));
        }
        if boots {
            let boot = Some(format!("boot {}", self.numbers.draw()));
            self.change_node(&name, |node| node.boot_id = boot);
        }
    }

    fn register(&mut self, number: u8, has_other_range: bool, publishes: bool) {
        let name = name_of(number);
        let third = number + if has_other_range { 100 } else { 1 };
        let v6 = self.is_dual.then(|| format!("fd00:10:244:{third}::/64"));
        self.version += 1;
        let addresses = self.addresses(number, self.now);
        let published = addresses.iter().filter_map(|address| address.parse().ok());
        let facts = InstanceFacts {
            resource_id: machine(number).to_string(),
            vm_size: "Standard_D8s_v3".to_owned(),
            location: Some("l".to_owned()),
            zone: Some("1".to_owned()),
            addresses: published.map(|private| PublishedAddress { private, public: None }).collect(),
            boot_id: Some(BOOT.to_owned()),
            ..InstanceFacts::default()
        };
        let taint = |key: &str, effect: &str| Taint {
            key: key.to_owned(),
            value: String::new(),
            effect: effect.to_owned(),
            time_added: None,
        };
        let node = CloudNode {
            uid: format!("u{}", self.version),
            version: self.version,
            taints: vec![taint("dedicated", "NoSchedule"), taint(Taint::UNINITIALIZED, "NoSchedule")],
            pod_ranges: [format!("10.244.{third}.0/24")].into_iter().chain(v6).collect(),
            is_ready: true,
            boot_id: Some(BOOT.to_owned()),
            facts: publishes.then_some(facts),
            resource_group: FLEET.contains(&number).then(|| FLEET_GROUP.to_owned()),
            name: name.clone(),
            ..CloudNode::default()
        };
        self.oracle.registered(&node, &addresses, self.now);
        self.nodes.insert(name.clone(), node);
        self.inform_all(&name);
    }

    pub(super) fn unregister(&mut self, name: &str) -> bool {
        let Some(node) = self.nodes.remove(name) else { return false };
        self.oracle.deleted(&node);
        self.inform_all(name);
        true
    }

    pub(super) fn change_node(&mut self, name: &str, change: impl FnOnce(&mut CloudNode)) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let before = node.clone();
        change(node);
        if *node != before {
            self.version += 1;
            node.version = self.version;
            self.inform_all(name);
        }
    }

    fn inform_all(&mut self, name: &str) {
        for replica in 0..2 {
            self.later(200, replica, Happens::Informed(name.to_owned()));
        }
    }

    pub(super) fn incident(&mut self, incident: Incident) {
        self.note(|| format!("* {incident:?}"));
        let (now, leader) = (self.now, self.replicas.iter().position(|replica| replica.leads));
        let leader = leader.filter(|leader| self.replicas[*leader].lease_end.is_none());
        match incident {
            Incident::Joins(number, publishes) => {
                if self.azure.power(number) == Power::Gone && !self.nodes.contains_key(&name_of(number)) {
                    self.count(if publishes { "node joins, published" } else { "node joins" });
                    self.azure.turn(now, number, Power::Runs);
                    self.register(number, false, publishes);
                }
            }
            Incident::Leaves(number) => {
                if self.unregister(&name_of(number)) {
                    self.count(if self.is_table_written() { "node leaves mid-write" } else { "node leaves" });
                    self.azure.turn(now, number, Power::Gone);
                }
            }
            Incident::Returns(number, has_other_range) => {
                if self.azure.power(number) == Power::Runs && self.unregister(&name_of(number)) {
                    self.count(if has_other_range { "node returns, other range" } else { "node returns" });
                    self.register(number, has_other_range, false);
                }
            }
            Incident::MachineGone(number) => self.turn(number, Power::Gone, "machine gone"),
            Incident::MachineBack(number) => {
                if self.azure.power(number) == Power::Runs {
                    self.count("machine made again");
                    self.azure.turn(now, number, Power::Gone);
                    self.at(now + Duration::from_secs(3), 0, Happens::MachineBack(number));
                    self.change_node(&name_of(number), |node| node.is_ready = false);
                    self.later(60_000, 0, Happens::Ready(name_of(number), true));
                }
            }
            Incident::Readdressed(number, boots) => {
                if self.azure.power(number) == Power::Runs {
                    self.count(if boots { "other addresses, booted" } else { "other addresses" });
                    self.readdress(number, boots);
                }
            }
            Incident::Stops(number) => self.turn(number, Power::Stopped, "machine stops"),
            Incident::Starts => {
                let stopped = (0..u8::MAX).find(|number| self.azure.power(*number) == Power::Stopped);
                if let Some(number) = stopped {
                    self.count("machine starts");
                    self.azure.turn(now, number, Power::Runs);
                    self.later(20_000, 0, Happens::Ready(name_of(number), true));
                }
            }
            Incident::Silent(number) => {
                self.count("kubelet silent");
                self.change_node(&name_of(number), |node| node.is_ready = false);
            }
            Incident::Heard(number) => {
                if self.azure.power(number) == Power::Runs {
                    self.count("kubelet heard");
                    self.change_node(&name_of(number), |node| node.is_ready = true);
                }
            }
            Incident::Heartbeat(number) => {
                self.count("heartbeat");
                self.change_node(&name_of(number), |node| node.taints.rotate_left(1));
            }
            Incident::Blind(seconds) => {
                self.count("blind");
                self.blind_until = now + Duration::from_secs(seconds);
            }
            Incident::Write(fate) => self.fates.push_back(fate),
            Incident::Patch(is_applied) => self.patch_fates.push_back(is_applied),
            Incident::FailedRead => self.read_faults.push_back(Fault::Unavailable),
            Incident::ThrottledRead => {
                self.read_faults.push_back(Fault::Throttled { retry_after: Some(Duration::from_secs(2)) });
            }
            Incident::Lag(seconds) => self.lag_until = now + Duration::from_secs(seconds),
            Incident::Foreign(foreign) => {
                let could = match foreign {
                    Foreign::Adds => self.azure.edit(now, Azure::adds),
                    Foreign::Notes => self.azure.edit(now, Azure::notes),
                    Foreign::Removes => self.azure.edit(now, Azure::removes),
                    Foreign::Leads => self.azure.edit(now, Azure::leads),
                    Foreign::Operates(_) => self.azure.edit(now, |_, _| "Updating"),
                };
                if let Foreign::Operates(seconds) = foreign {
                    self.at(now + Duration::from_secs(seconds), 0, Happens::OtherEnds);
                }
                self.count(match foreign {
                    _ if !could => "foreign edit refused",
                    Foreign::Adds => "foreign route",
                    Foreign::Notes => "foreign property",
                    Foreign::Removes => "foreign removal",
                    Foreign::Leads => "foreign hop",
                    Foreign::Operates(_) => "foreign operation",
                });
            }
            Incident::FleetJoins => {
                self.count("fleet joins");
                for number in FLEET {
                    self.azure.turn(now, number, Power::Runs);
                    self.register(number, false, true);
                }
            }
            Incident::FleetGone | Incident::FleetSetGone | Incident::FleetGroupGone | Incident::FleetStops => {
                let (power, left, what) = match incident {
                    Incident::FleetStops => (Power::Stopped, Fleet::There, "fleet stops"),
                    Incident::FleetSetGone => (Power::Gone, Fleet::NoSet, "fleet gone with its set"),
                    Incident::FleetGroupGone => (Power::Gone, Fleet::NoGroup, "fleet gone with its group"),
                    _ => (Power::Gone, Fleet::There, "fleet gone"),
                };
                self.count(what);
                self.azure.surround(left);
                for number in FLEET.filter(|number| self.azure.power(*number) == Power::Runs).collect::<Vec<_>>() {
                    self.azure.turn(now, number, power);
                    self.later(1_000, 0, Happens::Ready(name_of(number), false));
                }
            }
            Incident::FleetBack => {
                self.count("fleet returns");
                self.azure.surround(Fleet::There);
                for number in FLEET {
                    if self.azure.power(number) != Power::Runs && self.nodes.contains_key(&name_of(number)) {
                        self.azure.turn(now, number, Power::Runs);
                        self.later(20_000, 0, Happens::Ready(name_of(number), true));
                    }
                }
            }
            Incident::Partition => {
                let Some(leader) = leader else { return };
                self.count(if self.is_table_written() { "lease moves mid-write" } else { "lease moves" });
                self.replicas[leader].lease_end = Some(now + LEASE);
                self.at(now + LEASE, leader, Happens::LeaseEnds);
            }
            Incident::Kill => {
                let Some(leader) = leader else { return };
                self.count(if self.is_table_written() { "killed mid-write" } else { "killed" });
                self.end_process(leader);
                let at = now + LEASE - self.numbers.ms(2_000);
                self.at(at, 1 - leader, Happens::Acquires);
            }
        }
    }

    fn turn(&mut self, number: u8, power: Power, what: &'static str) {
        if self.azure.power(number) == Power::Runs {
            self.count(what);
            self.azure.turn(self.now, number, power);
            self.later(1_000, 0, Happens::Ready(name_of(number), false));
        }
    }

    fn is_table_written(&self) -> bool {
        self.replicas.iter().any(|replica| replica.writing.contains(&Thing::Table))
    }
}
