//! What the steps of Nodes and the route table have to do with each other and with the breaker.

use super::*;

impl Run {
    pub(super) fn carry_out_node(&mut self, replica: usize, name: &str, action: step::Action) {
        let node = name.to_owned();
        match action {
            step::Action::Read { id, .. } => self.later(2_000, replica, Happens::MachineRead { node, id }),
            step::Action::ReadAddresses { id, .. } => self.later(1_500, replica, Happens::AddressesRead { node, id }),
            step::Action::Check { id, .. } => {
                let now = self.now;
                self.pace(replica).reads(name, now);
                // What is read is what is there when the request comes, and the answer may be late.
                let result = self.numbers.one_in(2).then(|| self.checked(&node));
                self.later(1_500, replica, Happens::MachineChecked { node, id, result });
            }
            step::Action::Patch { id, uid, version, patch } => {
                self.note(|| format!("{replica}: {name} patch {patch:?}"));
                self.fenced(replica, "a patch");
                let drops = self.mutant == Mutant::ForgetsTaints && matches!(patch, Patch::Taints(_));
                if drops {
                    let result = self.nodes.get(name).cloned().map(Box::new).ok_or(PatchFault::Gone);
                    self.later(90_000, replica, Happens::Patched { node, id, result });
                } else {
                    self.later(50, replica, Happens::PatchArrives { node, id, uid, version, patch });
                }
            }
            step::Action::Delete { id, uid } => {
                self.fenced(replica, "a deletion");
                if self.mutant != Mutant::KeepsNodes {
                    self.later(50, replica, Happens::DeleteArrives { node, id, uid });
                }
            }
            step::Action::Ask => {
                let now = self.now;
                self.pace(replica).asked(name, now);
                let message = if self.mutant == Mutant::IgnoresBreaker {
                    Message::Node(node, step::Event::Granted { reads_again: false })
                } else {
                    Message::Breaker(breaker::Event::Asked(node))
                };
                self.inbox.push_back((replica, message));
            }
            step::Action::Withdraw => {
                self.inbox.push_back((replica, Message::Breaker(breaker::Event::Withdrawn(node))));
            }
            step::Action::Route { generation, want } => {
                self.note(|| format!("{replica}: {name} wants {want:?}"));
                self.count(if matches!(want, Want::Gone(_)) { "want: gone" } else { "want: present" });
                self.request(replica, node, generation, want);
            }
            step::Action::WithdrawRoutes => {
                self.inbox.push_back((replica, Message::Table(object::Event::Withdrawn(node))));
            }
            step::Action::Report(reason) => {
                self.note(|| format!("{replica}: {name} reports {reason:?}"));
                self.count(match reason {
                    step::Reason::Initialised => "report: initialised",
                    step::Reason::NoMachine => "report: no machine",
                    step::Reason::Unreadable(_) => "report: unreadable",
                    step::Reason::NoAddress(_) => "report: no address",
                    step::Reason::Readdressed(_) => "report: other addresses",
                    step::Reason::AddressesUnread(_) | step::Reason::AddressesKept(_) => "report: addresses kept",
                    step::Reason::Stopped => "report: stopped",
                    step::Reason::Gone => "report: gone",
                    step::Reason::Unproved(_) => "report: unproved",
                    step::Reason::RouteRefused(_) => "report: route refused",
                    step::Reason::RouteKept(_) => "report: route kept",
                    step::Reason::NoPodRange => "report: no pod range",
                });
            }
            step::Action::Drained => {}
        }
    }

    /// What the process that leads has asked, read and done of Nodes.
    pub(super) fn pace(&mut self, replica: usize) -> &mut Pace {
        self.paces.entry((replica, self.replicas[replica].process)).or_default()
    }

    /// Judges that a Node was deleted, or tainted as out of service, by a process.
    pub(super) fn acted(&mut self, process: (usize, u32), name: &str) {
        let judged = self.paces.entry(process).or_default().acted(name, self.nodes.len(), self.now);
        self.judge(judged);
    }

    pub(super) fn fenced(&mut self, replica: usize, what: &str) {
        self.last_write = self.now;
        if self.replicas[replica].lease_end.is_some_and(|end| end < self.now + TIME_OUT) {
            self.judge(Err(format!("{what} starts with too little lease")));
        }
    }

    pub(super) fn tell_node(&mut self, replica: usize, (to, generation, outcome): (String, u64, Outcome<Report>)) {
        self.count(match &outcome {
            Outcome::Done(_) => "outcome: done",
            Outcome::Waiting(Waiting::FreshReads) => "outcome: waits for fresh reads",
            Outcome::Waiting(Waiting::OtherOperation) => "outcome: waits for another operation",
            Outcome::Waiting(_) => "outcome: waiting",
            Outcome::Refused(_) => "outcome: refused",
        });
        let this = &mut self.replicas[replica];
        if let Outcome::Done(Report { is_associated: false, .. }) = outcome
            && !std::mem::replace(&mut this.is_association_asked, true)
        {
            let from = TABLE_ID.parse().expect("it is an id");
            let event = object::Event::Requested { from, generation: 1, want: (), acceptance: Acceptance::Given };
            self.inbox.push_back((replica, Message::Subnet(event)));
        }
        let outcome = match (self.mutant, outcome) {
            (Mutant::AvailableEarly, Outcome::Waiting(Waiting::Write)) => {
                Outcome::Done(Report { is_associated: true, is_provisioned: true, objection: None })
            }
            (_, outcome) => outcome,
        };
        let this = &mut self.replicas[replica];
        let routed = |outcome| step::Event::Routed { generation, outcome };
        if !this.without_node.contains(&to) {
            self.inbox.push_back((replica, Message::Node(to, routed(outcome))));
        } else if matches!(outcome, Outcome::Done(Report { is_provisioned: true, .. })) {
            this.without_node.remove(&to);
            let message = match generation {
                0 => Message::Table(object::Event::Withdrawn(to)),
                _ => Message::Node(to, routed(outcome)),
            };
            self.inbox.push_back((replica, message));
        }
    }
}
