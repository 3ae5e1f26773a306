//! Whether a machine is gone: the reads of one round, and what their answers prove.
//!
//! ```text
//!   the machine ──200────────────────▶ here
//!               ──404 of exactly it──▶ controls, one after another ──the first 200──▶ gone
//!               ──anything else──────▶ nothing is proved
//! ```
//!
//! A control is another machine, of any resource group that the identity reads, or the scale set of an instance. It is read
//! by a request of its own, after the machine and in the same round: it shows that Azure answers this identity at that time.
//! The controls are machines of Nodes. Where none of these answers, a list of a resource group names machines that are no
//! Nodes; the list itself proves nothing.
//!
//! Of an instance of a uniform scale set Azure may also say that the request is invalid, or that the parent is not found.
//! Then the scale set is read: without it the instance is gone too; with it the list of its instances decides.
//!
//! `ResourceGroupNotFound` and `SubscriptionNotFound` prove nothing: an identity of another tenant gets the same answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lazuli_model::scale_set::scale_set;
use lazuli_model::{ArmId, InstanceView, fault::Fault};

use super::{CloudNode, facts::Scope, step::Checked};

/// How many machines of Nodes are read as controls at most.
const CONTROLS: usize = 4;
/// How many machines that a list names are read as controls at most, of each resource group.
const LISTED: usize = 2;

/// A read of a round. No cache answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The machine, by a request of its own.
    Machine(ArmId),
    /// Another machine, or a scale set, by a request of its own.
    Control(ArmId),
    /// The list of the instances of this uniform scale set.
    Instances(ArmId),
    /// The list of the virtual machines of a resource group, which names controls.
    Machines {
        /// The subscription.
        subscription: String,
        /// The resource group.
        resource_group: String,
    },
}

/// The answer to a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To [`Read::Machine`]: it is there.
    Here(InstanceView),
    /// To [`Read::Control`]: it is there.
    There,
    /// To a list: what it names.
    Listed(Vec<ArmId>),
    /// None of these.
    Failed(Fault),
}

/// What a round does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Send this read, and say what was answered.
    Read(Read),
    /// It has ended.
    Ended(Checked),
}

/// The reads of one round, one after another.
#[derive(Debug, Clone)]
pub struct Round {
    machine: ArmId,
    next: Next,
    /// The controls that were not read yet.
    controls: VecDeque<ArmId>,
    tried: BTreeSet<ArmId>,
    /// The resource groups, with their subscriptions, that may name further controls.
    groups: VecDeque<(String, String)>,
    /// Why the instance or the last control proves nothing.
    fault: Fault,
}

impl Round {
    /// A round about this machine. `scope` is where the machines of the cluster are.
    pub fn new<'n>(machine: &ArmId, nodes: impl IntoIterator<Item = &'n CloudNode>, scope: Scope<'_>) -> Self {
        let of_machine = (machine.subscription().to_owned(), machine.resource_group().to_owned());
        let of_cluster = (scope.subscription.to_owned(), scope.resource_group.to_owned());
        let is_same =
            of_machine.0.eq_ignore_ascii_case(&of_cluster.0) && of_machine.1.eq_ignore_ascii_case(&of_cluster.1);
        let of_cluster = Some(of_cluster).filter(|_| !is_same);
        Self {
            next: Next::Read(Read::Machine(machine.clone())),
            controls: scale_set(machine).into_iter().chain(of_nodes(machine, nodes)).collect(),
            tried: BTreeSet::from([machine.clone()]),
            groups: [of_machine].into_iter().chain(of_cluster).collect(),
            fault: Fault::NotFound,
            machine: machine.clone(),
        }
    }

    /// What is next.
    pub fn next(&self) -> &Next {
        &self.next
    }

    /// Takes the answer to the read that is next.
    pub fn answered(&mut self, answer: Answer) {
        let Next::Read(read) = &self.next else { return };
        let set = scale_set(&self.machine);
        self.next = match (read, answer) {
            (Read::Machine(_), Answer::Here(view)) => Next::Ended(Checked::Here(view)),
            (Read::Machine(_), Answer::Failed(Fault::NotFound)) => self.next_control(),
            (Read::Machine(_), Answer::Failed(fault @ (Fault::ScopeNotFound | Fault::Invalid))) => match set {
                Some(set) => {
                    self.fault = fault;
                    Next::Read(Read::Control(set))
                }
                None => Next::Ended(Checked::Unproved(fault)),
            },
            // The instance was not answered for, so its set alone proves nothing yet.
            (Read::Control(control), Answer::There) => match set.filter(|set| set == control && self.is_unclear()) {
                Some(set) => Next::Read(Read::Instances(set)),
                None => Next::Ended(Checked::Gone),
            },
            (Read::Control(control), Answer::Failed(fault)) => {
                let is_of_set = set.as_ref() == Some(control);
                self.tried.insert(control.clone());
                match fault {
                    Fault::NotFound => {
                        if is_of_set {
                            // Without its set the instance is gone too.
                            self.fault = Fault::NotFound;
                        }
                        self.next_control()
                    }
                    fault if is_of_set && self.is_unclear() => Next::Ended(Checked::Unproved(fault)),
                    // They say something of that control alone, or of the rights on it.
                    Fault::ScopeNotFound | Fault::Invalid | Fault::Unsupported | Fault::Malformed => {
                        self.next_control()
                    }
                    fault @ (Fault::Forbidden | Fault::LinkedForbidden) => {
                        self.fault = fault;
                        self.next_control()
                    }
                    // Azure is busy, or does not answer: the next round comes soon enough.
                    fault => Next::Ended(Checked::Unproved(fault)),
                }
            }
            (Read::Instances(_), Answer::Listed(listed)) => Next::Ended(if listed.contains(&self.machine) {
                Checked::Unproved(self.fault.clone())
            } else {
                // The set has answered, by a read of its own.
                Checked::Gone
            }),
            (Read::Machines { .. }, Answer::Listed(listed)) => {
                let fresh = listed.into_iter().filter(|one| !self.tried.contains(one));
                self.controls.extend(fresh.take(LISTED));
                self.next_control()
            }
            (Read::Machines { .. }, Answer::Failed(Fault::ScopeNotFound | Fault::NotFound)) => self.next_control(),
            (Read::Machines { .. }, Answer::Failed(Fault::Forbidden)) => {
                self.fault = Fault::Forbidden;
                self.next_control()
            }
            (_, Answer::Failed(fault)) => Next::Ended(Checked::Unproved(fault)),
            // What does not answer the read.
            (_, Answer::Here(_) | Answer::There | Answer::Listed(_)) => {
                Next::Ended(Checked::Unproved(Fault::Malformed))
            }
        };
    }

    /// Whether Azure has refused to say whether the instance is there.
    fn is_unclear(&self) -> bool {
        matches!(self.fault, Fault::ScopeNotFound | Fault::Invalid)
    }

    fn next_control(&mut self) -> Next {
        while let Some(control) = self.controls.pop_front() {
            if !self.tried.contains(&control) {
                return Next::Read(Read::Control(control));
            }
        }
        match self.groups.pop_front() {
            Some((subscription, resource_group)) => Next::Read(Read::Machines { subscription, resource_group }),
            None => Next::Ended(Checked::Unproved(self.fault.clone())),
        }
    }
}

/// The machines of other Nodes: those of Nodes that are Ready first, the machine's own resource group first, and one of
/// each resource group before a second one of any. Groups are deleted whole.
fn of_nodes<'n>(machine: &ArmId, nodes: impl IntoIterator<Item = &'n CloudNode>) -> Vec<ArmId> {
    let group = |id: &ArmId| (id.subscription().to_lowercase(), id.resource_group().to_lowercase());
    let own = group(machine);
    let mut others: Vec<(bool, ArmId)> = nodes
        .into_iter()
        .filter_map(|node| Some((!node.is_ready, node.machine()?.id().clone())))
        .filter(|(_, other)| other != machine)
        .collect();
    others.sort();
    let mut of_group: BTreeMap<(bool, (String, String)), usize> = BTreeMap::new();
    let mut ranked: Vec<_> = others
        .into_iter()
        .map(|(is_silent, other)| {
            let theirs = group(&other);
            let earlier = of_group.entry((is_silent, theirs.clone())).or_default();
            let rank = (is_silent, *earlier, theirs != own);
            *earlier += 1;
            (rank, other)
        })
        .collect();
    ranked.sort();
    ranked.into_iter().map(|(_, other)| other).take(CONTROLS).collect()
}
