//! The requests of a run: how they travel, what Azure and the API server answer, and what becomes of the answers.

use lazuli_quota::read::By;

use super::*;

/// What Azure tells an object about a write.
pub(super) enum Told {
    Accepted(Id, Expectation),
    Polled(Id),
    Permitted(Id),
    Ended(Id, Result<(), Fault>),
}

fn event<O: Object>(told: Told) -> object::Event<O> {
    match told {
        Told::Accepted(id, expected) => object::Event::Accepted { id, expected },
        Told::Polled(id) => object::Event::Polled { id, pause: Duration::ZERO },
        Told::Permitted(id) => object::Event::Permitted(id),
        Told::Ended(id, result) => {
            let failure = |fault| Failure { fault, cause: Cause::Unnamed };
            object::Event::Ended { id, result: result.map(|()| After::Unread).map_err(failure) }
        }
    }
}

/// An object of this simulation.
pub(super) trait Simulated: Object<Related = ArmId> {
    fn read(body: &Value) -> Self::Model;
    fn body(body: Option<Value>, op: &Self::Op, run: &Run) -> Option<Value>;
    fn message(event: object::Event<Self>) -> Message;
}

impl Simulated for RouteTables {
    fn read(body: &Value) -> RouteTable {
        RouteTable::read(&TABLE_ID.parse().expect("it is an id"), body).expect("the world shows tables")
    }

    fn body(body: Option<Value>, op: &Self::Op, run: &Run) -> Option<Value> {
        let body = if run.mutant == Mutant::OverwritesForeign { body.map(|_| empty()) } else { body };
        let mut body = routing::apply_raw(body, op, &run.inputs);
        if run.mutant == Mutant::RemovesTooMuch {
            let routes = body.as_mut().and_then(|body| body["properties"]["routes"].as_array_mut());
            let exists = |route: &Value| {
                let name = route["name"].as_str().unwrap_or_default();
                name.split_once("____").is_some_and(|(node, _)| run.nodes.contains_key(node))
            };
            if let Some(routes) = routes
                && routes.len() > 4
                && let Some(at) = routes.iter().position(exists)
            {
                routes.remove(at);
            }
        }
        body
    }

    fn message(event: object::Event<Self>) -> Message {
        Message::Table(event)
    }
}

impl Simulated for SubnetAssociations {
    fn read(body: &Value) -> AssociatedSubnet {
        AssociatedSubnet::read(&SUBNET_ID.parse().expect("it is an id"), body).expect("the world shows subnets")
    }

    fn body(body: Option<Value>, op: &ArmId, _: &Run) -> Option<Value> {
        body.map(|body| routing::associate(body, op))
    }

    fn message(event: object::Event<Self>) -> Message {
        Message::Subnet(event)
    }
}

fn empty() -> Value {
    serde_json::json!({"location": "l", "properties": {}})
}

impl Run {
    pub(super) fn tell_thing(&mut self, replica: usize, thing: Thing, told: Told) {
        let message = match thing {
            Thing::Table => Message::Table(event(told)),
            Thing::Subnet => Message::Subnet(event(told)),
        };
        self.inbox.push_back((replica, message));
    }

    /// Carries out an action of an object. Returns what it tells a requester.
    pub(super) fn carry_out<O: Simulated>(
        &mut self,
        replica: usize,
        thing: Thing,
        action: object::Action<O>,
    ) -> Option<(O::Requester, u64, Outcome<O::Report>)> {
        match action {
            // A single read is an answer to every look.
            object::Action::Observe { id, not_before, .. } => {
                let sent_at = self.now.max(not_before);
                let at = sent_at + self.numbers.ms(60);
                self.at(at, replica, Happens::ReadArrives { thing, id, sent_at });
            }
            object::Action::TakePermit { id, .. } => self.later(200, replica, Happens::Permitted { thing, id }),
            object::Action::ReleasePermit(_) | object::Action::Followed { .. } | object::Action::Drained => {}
            object::Action::Write { id, observation, op, .. } => self.write::<O>(replica, thing, id, observation, &op),
            object::Action::Poll(id) => self.later(60, replica, Happens::PollArrives { thing, id }),
            object::Action::Tell { to, generation, outcome } => return Some((to, generation, outcome)),
            object::Action::Taint(_, taint) => {
                self.count("table tainted by its subnet");
                self.inbox.push_back((replica, Message::Table(object::Event::Tainted(taint))));
                let replan = object::Event::EnvChanged(EnvChange::Replan);
                self.inbox.push_back((replica, Message::Table(replan)));
            }
        }
        None
    }

    fn write<O: Simulated>(&mut self, replica: usize, thing: Thing, id: Id, observation: Id, op: &O::Op) {
        self.note(|| format!("{replica}: write {thing:?} {op:?}"));
        self.fenced(replica, "a write");
        let this = &mut self.replicas[replica];
        let raw = this.raw.get(&thing).filter(|(read, _)| *read == observation).map(|(_, version)| version.clone());
        let judged = if !this.writing.insert(thing) {
            Err(format!("two writes of {thing:?} are in flight"))
        } else if this.not_before.get(&thing).is_some_and(|not_before| self.now < *not_before) {
            Err(format!("a write of {thing:?} starts before Retry-After is over"))
        } else if raw.is_none() {
            Err(format!("a write of {thing:?} names an observation that is not the last"))
        } else {
            Ok(())
        };
        self.judge(judged);
        let Some(version) = raw else { return };
        let (body, etag) = version.map_or((None, None), |(body, etag)| (Some(body), Some(etag)));
        let Some(body) = O::body(body, op, self) else { return };
        // What is sent by a leader that has lost the API server may come after the next one leads.
        let is_tail = self.replicas[replica].lease_end.is_some_and(|end| end < self.now + TIME_OUT + LEAST);
        let fate = if is_tail { Some(Fate::Late) } else { self.fates.pop_front() };
        if matches!(fate, Some(Fate::LostRequest | Fate::LostAnswer | Fate::Late)) {
            let ended = Happens::Ended { thing, id, result: Err(Fault::OutcomeUnknown) };
            self.at(self.now + TIME_OUT, replica, ended);
        }
        let at = match fate {
            Some(Fate::Late) => self.now + TIME_OUT + self.numbers.ms(3_000),
            _ => self.now + self.numbers.ms(60),
        };
        self.at(at, replica, Happens::WriteArrives { thing, id, etag, body, fate });
    }

    pub(super) fn write_arrives(
        &mut self,
        (replica, process): (usize, u32),
        thing: Thing,
        id: Id,
        etag: Option<u64>,
        body: Value,
        fate: Option<Fate>,
    ) {
        let refusal = match fate {
            Some(Fate::LostRequest) => return self.count("write: request lost"),
            Some(Fate::Conflict) => Some(("write: 409", Fault::Conflict)),
            Some(Fate::Precondition) => Some(("write: 412", Fault::PreconditionFailed)),
            Some(Fate::Throttled(seconds)) => {
                Some(("write: 429", Fault::Throttled { retry_after: Some(Duration::from_secs(seconds)) }))
            }
            Some(Fate::Forbidden) => Some(("write: 403", Fault::Forbidden)),
            Some(Fate::Unavailable) => Some(("write: 503", Fault::Unavailable)),
            _ => None,
        };
        if let Some((what, fault)) = refusal {
            self.count(what);
            self.answer(replica, process, Happens::Ended { thing, id, result: Err(fault) });
            return;
        }
        let answered = !matches!(fate, Some(Fate::LostAnswer | Fate::Late));
        let etag = match self.mutant {
            Mutant::NoEtag => self.azure.read(thing, Duration::MAX).map(|(_, etag)| etag),
            _ => etag,
        };
        self.operation += 1;
        let (operation, before, succeeds) = (self.operation, self.azure.routes(), fate != Some(Fate::Fails));
        match self.azure.write(self.now, thing, etag, body, succeeds, operation) {
            Ok(()) => {
                self.note(|| format!("operation {operation} on {thing:?} begins"));
                self.count(match (fate, thing) {
                    (Some(Fate::Late), _) => "write: late",
                    (Some(Fate::LostAnswer), _) => "write: answer lost",
                    (Some(Fate::Fails), _) => "write: fails late",
                    (_, Thing::Table) => "write: table",
                    (_, Thing::Subnet) => "write: subnet",
                });
                let judged = self.oracle.written(&before, &self.azure, &self.nodes);
                self.judge(judged);
                let at = self.now + Duration::from_millis(500) + self.numbers.ms(5_000);
                self.at(at, replica, Happens::OperationEnds(operation));
                if answered {
                    self.answer(replica, process, Happens::Accepted { thing, id, operation });
                }
            }
            Err(refused) => {
                let (what, fault) = match refused {
                    Refused::Precondition => ("azure: 412", Fault::PreconditionFailed),
                    Refused::Busy => ("azure: 409", Fault::Conflict),
                    Refused::Invalid => ("azure: invalid", Fault::Invalid),
                };
                self.note(|| format!("write of {thing:?}: {what}"));
                self.count(what);
                if answered {
                    self.answer(replica, process, Happens::Ended { thing, id, result: Err(fault) });
                }
            }
        }
    }

    fn answer(&mut self, replica: usize, process: u32, happens: Happens) {
        if self.replicas[replica].process == process {
            self.later(60, replica, happens);
        }
    }

    pub(super) fn ended(&mut self, replica: usize, thing: Thing, id: Id, result: Result<(), Fault>) {
        self.note(|| format!("{replica}: write of {thing:?} ended {result:?}"));
        let this = &mut self.replicas[replica];
        this.writing.remove(&thing);
        this.operations.remove(&(thing, id));
        let result = result.map_err(|fault| match fault {
            Fault::Throttled { retry_after } => {
                this.not_before.insert(thing, self.now + retry_after.unwrap_or_default());
                let forgets = self.mutant == Mutant::ForgetsRetryAfter;
                Fault::Throttled { retry_after: retry_after.filter(|_| !forgets) }
            }
            fault => fault,
        });
        self.tell_thing(replica, thing, Told::Ended(id, result));
    }

    pub(super) fn read_arrives(&mut self, replica: usize, thing: Thing, id: Id, sent_at: Duration) {
        let result = match self.read_faults.pop_front() {
            Some(fault) => {
                self.count(if fault == Fault::Unavailable { "read failed" } else { "read throttled" });
                Err(fault)
            }
            None => {
                let lag = if self.now < self.lag_until { self.numbers.ms(3_000) } else { Duration::ZERO };
                let shown = self.azure.read(thing, self.now.saturating_sub(lag));
                let etag = |read: &Option<(Value, u64)>| read.as_ref().map(|(_, etag)| *etag);
                if etag(&shown) != etag(&self.azure.read(thing, self.now)) {
                    self.count("read lagged");
                }
                shown.ok_or(Fault::NotFound)
            }
        };
        self.later(60, replica, Happens::Observed { thing, id, sent_at, result });
    }

    pub(super) fn observed(
        &mut self,
        replica: usize,
        thing: Thing,
        id: Id,
        sent_at: Duration,
        result: Result<(Value, u64), Fault>,
    ) {
        let shown = match &result {
            Ok(version) => Some(Some(version.clone())),
            Err(Fault::NotFound) => Some(None),
            Err(_) => None,
        };
        if let Some(version) = shown {
            self.replicas[replica].raw.insert(thing, (id, version));
        }
        fn event<O: Simulated>(id: Id, sent_at: Duration, result: Result<(Value, u64), Fault>) -> Message {
            O::message(object::Event::Observed {
                id,
                sent_at,
                by: By::Single,
                result: result.map(|(body, _)| O::read(&body)),
            })
        }
        let message = match thing {
            Thing::Table => event::<RouteTables>(id, sent_at, result),
            Thing::Subnet => event::<SubnetAssociations>(id, sent_at, result),
        };
        self.inbox.push_back((replica, message));
    }

    pub(super) fn instance(&mut self, name: &str) -> Result<Instance, Fault> {
        if let Some(fault) = self.read_faults.pop_front() {
            self.count("machine read failed");
            return Err(fault);
        }
        let number = number_of(name);
        if self.azure.power(number) == Power::Gone {
            self.count("machine missing");
            return Err(Fault::NotFound);
        }
        self.count("machine read");
        Ok(Instance {
            id: machine(number),
            size: "Standard_D8s_v3".to_owned(),
            location: "l".to_owned(),
            zone: Some("1".to_owned()),
            fault_domain: None,
            addresses: self.instance_addresses(number, self.now),
        })
    }

    fn instance_addresses(&self, number: u8, as_of: Duration) -> Vec<InstanceAddress> {
        let address =
            |text: &String| InstanceAddress { private: text.parse().expect("it is an address"), public: None };
        self.addresses(number, as_of).iter().map(address).collect()
    }

    /// What Azure says of the addresses of a Node's machine, as they were then.
    pub(super) fn addresses_of(&mut self, name: &str, as_of: Duration) -> Result<Vec<InstanceAddress>, Fault> {
        let number = number_of(name);
        if self.now < self.blind_until {
            return Err(Fault::Unavailable);
        }
        if self.azure.power(number) == Power::Gone {
            return Err(Fault::NotFound);
        }
        let first = if self.mutant == Mutant::KeepsAddresses { Duration::ZERO } else { as_of };
        Ok(self.instance_addresses(number, first))
    }

    /// A round of reads about the machine of a Node.
    pub(super) fn checked(&mut self, name: &str) -> Checked {
        let machine = machine(number_of(name));
        let mut round = existence::Round::new(&machine, self.nodes.values(), SCOPE);
        let checked = loop {
            match round.next().clone() {
                existence::Next::Ended(checked) => break checked,
                existence::Next::Read(read) => {
                    let answer = self.answer_of(&read);
                    round.answered(answer);
                }
            }
        };
        match &checked {
            Checked::Here(InstanceView { power: Some(PowerState::Deallocated), .. }) => self.count("check: stopped"),
            Checked::Here(_) => {}
            Checked::Gone => self.count("check: gone"),
            Checked::Unproved(Fault::ScopeNotFound) => self.count("check: no group"),
            Checked::Unproved(_) => self.count("check: unproved"),
        }
        checked
    }

    fn answer_of(&mut self, read: &existence::Read) -> existence::Answer {
        use existence::{Answer, Read};
        if self.now < self.blind_until {
            let is_machine = matches!(read, Read::Machine(_));
            let trusts = self.mutant == Mutant::TrustsRefusals && is_machine;
            return match self.mutant {
                Mutant::TrustsRefusals if !trusts => Answer::There,
                _ => Answer::Failed(if trusts { Fault::NotFound } else { Fault::Forbidden }),
            };
        }
        match read {
            Read::Machine(id) | Read::Control(id) => match self.state_of(id) {
                Err(Fault::ScopeNotFound) if self.mutant == Mutant::TrustsMissingGroups => {
                    Answer::Failed(Fault::NotFound)
                }
                Err(fault) => Answer::Failed(fault),
                Ok(_) if matches!(read, Read::Control(_)) => Answer::There,
                Ok(power) => {
                    let power = Some(if power == Power::Stopped { PowerState::Deallocated } else { PowerState::Other });
                    Answer::Here(InstanceView { provisioning_state: ProvisioningState::Succeeded, power })
                }
            },
            Read::Instances(_) => {
                Answer::Listed(self.azure.machines().filter(|one| *one >= INSTANCES).map(machine).collect())
            }
            Read::Machines { resource_group, .. } => {
                let all = self.azure.machines().filter(|one| *one < INSTANCES).map(machine);
                Answer::Listed(all.filter(|id| id.resource_group() == resource_group).collect())
            }
        }
    }

    /// What Azure says of a machine or of the scale set.
    fn state_of(&mut self, id: &ArmId) -> Result<Power, Fault> {
        let is_of_fleet = id.resource_group() == FLEET_GROUP;
        let is_set = id.as_str() == SET;
        let is_instance = !is_set && id.as_str().starts_with(SET);
        match self.azure.fleet() {
            Fleet::NoGroup if is_of_fleet => Err(Fault::ScopeNotFound),
            Fleet::NoSet if is_set => Err(Fault::NotFound),
            Fleet::NoSet if is_instance => Err(Fault::ScopeNotFound),
            _ if is_set => Ok(Power::Runs),
            _ => match self.azure.power(number_of(id.name())) {
                Power::Gone if is_instance && self.numbers.one_in(2) => Err(Fault::Invalid),
                Power::Gone => Err(Fault::NotFound),
                power => Ok(power),
            },
        }
    }

    /// Whether a process has lost the API server.
    fn is_cut_off(&self, replica: usize, process: u32) -> bool {
        self.replicas[replica].process == process && self.replicas[replica].lease_end.is_some()
    }

    pub(super) fn patch_arrives(
        &mut self,
        (replica, process): (usize, u32),
        name: String,
        id: Id,
        uid: &str,
        version: u64,
        patch: &Patch,
    ) {
        let is_guarded = matches!(patch, Patch::Taints(_) | Patch::Initialise { .. });
        let fate = self.patch_fates.pop_front();
        let before = self.nodes.get(&name).cloned();
        let refused = match &before {
            _ if self.is_cut_off(replica, process) => Some(PatchFault::Failed),
            None => Some(PatchFault::Gone),
            Some(node) if node.uid != uid || (is_guarded && node.version != version) => Some(PatchFault::Changed),
            Some(_) if fate == Some(false) => Some(PatchFault::Failed),
            Some(_) => None,
        };
        let result = match (refused, before) {
            (None, Some(before)) => {
                self.change_node(&name, |node| apply(node, patch));
                let after = self.nodes[&name].clone();
                self.count(match patch {
                    Patch::Status { network: Some(network), .. } if network.reason == "RouteCreated" => "patch: routed",
                    Patch::Status { network: Some(network), .. } if network.reason == "NoRouteCreated" => {
                        "patch: not routed"
                    }
                    Patch::Status { .. } if !before.has_taint(Taint::UNINITIALIZED) => "patch: other addresses",
                    Patch::Status { .. } => "patch: status",
                    Patch::Initialise { .. } => "patch: initialised",
                    Patch::Taints(_) => "patch: taints",
                    Patch::Labels(_) => "patch: labels",
                });
                let judged = self.oracle.patched(&before, &after, patch, &self.azure, self.now);
                self.judge(judged);
                if after.has_taint(Taint::OUT_OF_SERVICE) && !before.has_taint(Taint::OUT_OF_SERVICE) {
                    self.acted((replica, process), &name);
                }
                if fate == Some(true) {
                    self.count("patch: answer lost");
                    Err(PatchFault::Failed)
                } else {
                    Ok(Box::new(after))
                }
            }
            (refused, _) => {
                self.count("patch refused");
                Err(refused.unwrap_or(PatchFault::Gone))
            }
        };
        self.answer(replica, process, Happens::Patched { node: name, id, result });
    }

    pub(super) fn delete_arrives(&mut self, (replica, process): (usize, u32), name: String, id: Id, uid: &str) {
        let result = match self.nodes.get(&name).cloned() {
            _ if self.is_cut_off(replica, process) => Err(PatchFault::Failed),
            Some(node) if node.uid == uid => {
                self.count("node deleted by proof");
                let judged = self.oracle.removed(&node, &self.azure, self.now);
                self.judge(judged);
                if self.mutant != Mutant::DeletesAtOnce {
                    self.acted((replica, process), &name);
                }
                self.unregister(&name);
                Ok(())
            }
            Some(_) => Err(PatchFault::Changed),
            None => Ok(()),
        };
        self.answer(replica, process, Happens::Deleted { node: name, id, result });
    }
}

/// What a patch makes of a Node, as the API server does it.
fn apply(node: &mut CloudNode, patch: &Patch) {
    match patch {
        Patch::Status { addresses, network } => {
            if let Some(addresses) = addresses {
                node.addresses.clone_from(addresses);
            }
            node.is_network_unavailable = network.map(|one| one.is_unavailable).or(node.is_network_unavailable);
        }
        Patch::Initialise { provider_id, taints, .. } => {
            node.provider_id = provider_id.clone().or(node.provider_id.take());
            node.taints.clone_from(taints);
        }
        Patch::Taints(taints) => node.taints.clone_from(taints),
        Patch::Labels(labels) => node.metadata_labels.extend(labels.iter().map(|(key, _)| *key)),
    }
}
