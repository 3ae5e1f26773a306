//! What a Node has told the route table, and what the table has told it.

use std::{collections::BTreeSet, time::Duration};

use lazuli_engine::{Outcome, Refusal, Waiting};
use lazuli_model::fault::Fault;

use super::{CloudNode, step::Reason};
use crate::routing::{Report, Want};

/// What the table says of the Node's routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Routes {
    /// Nothing yet, or the table cannot be read.
    #[default]
    Unknown,
    /// A fresh read shows all of them, and the first one did then.
    Exist { since: Duration },
    /// A fresh read lacks one of them.
    Missing,
}

/// The Node as a requester of the route table.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    generation: u64,
    asked: Option<Want>,
    pub(super) routes: Routes,
    done: bool,
}

impl Requests {
    /// The want to tell the table now, and its generation.
    pub(super) fn tell(&mut self, want: Want) -> Option<(u64, Want)> {
        if self.asked.as_ref() == Some(&want) {
            return None;
        }
        self.generation += 1;
        self.asked = Some(want.clone());
        (self.routes, self.done) = (Routes::Unknown, false);
        Some((self.generation, want))
    }

    /// Forgets what was told. Returns whether the table knows anything.
    pub(super) fn withdraw(&mut self) -> bool {
        self.routes = Routes::Unknown;
        self.asked.take().is_some()
    }

    /// Forgets what the table has said: it was of a Node that was deleted. What was told is told again.
    pub(super) fn renew(&mut self) {
        (self.asked, self.routes, self.done) = (None, Routes::Unknown, false);
    }

    /// Forgets what was told: the table has lost it.
    pub(super) fn lost(&mut self) {
        self.asked = None;
    }

    /// Whether the table was told something of this Node.
    pub(super) fn is_known(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether the table has done what it was told last.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// What was told last of a Node that exists, once it was deleted.
    pub(super) fn gone(&self) -> Option<Want> {
        match self.asked.as_ref()? {
            Want::Present(ranges) => Some(Want::Gone(ranges.iter().map(|pod| pod.range).collect())),
            Want::Gone(ranges) => Some(Want::Gone(ranges.clone())),
        }
    }

    /// Takes the outcome of the newest want. Returns what a person must know of it.
    pub(super) fn told(&mut self, generation: u64, outcome: &Outcome<Report>, now: Duration) -> Option<Reason> {
        if generation != self.generation {
            return None;
        }
        self.done = matches!(outcome, Outcome::Done(Report { is_provisioned: true, .. }));
        match outcome {
            // They are there, and nothing says that they work, or that they do not.
            Outcome::Done(Report { is_provisioned: false, .. }) => {}
            Outcome::Done(_) if matches!(self.routes, Routes::Exist { .. }) => {}
            Outcome::Done(_) => self.routes = Routes::Exist { since: now },
            // The planner says so of an observation.
            Outcome::Waiting(Waiting::Write | Waiting::Plan(_) | Waiting::Acceptance) => self.routes = Routes::Missing,
            Outcome::Refused(refusal) => {
                self.routes = Routes::Missing;
                return Some(Reason::RouteRefused(match refusal {
                    Refusal::Plan(why) => why.message.clone(),
                    Refusal::Azure(fault) => format!("Azure refuses the change of the route table{}", because(fault)),
                }));
            }
            Outcome::Waiting(Waiting::OtherOperation | Waiting::FreshReads | Waiting::Retry(_)) => {}
        }
        match outcome {
            Outcome::Done(Report { objection: Some(why), .. }) => Some(Reason::RouteKept(why)),
            _ => None,
        }
    }
}

/// What a Node that exists wants of the table.
pub(super) fn want(node: &CloudNode) -> Option<Want> {
    let ranges = node.pod_ranges();
    ranges.iter().any(|pod| pod.next_hop.is_some()).then_some(Want::Present(ranges))
}

/// What a deleted Node that this process never told the table of wants.
pub(super) fn gone(node: &CloudNode) -> Option<Want> {
    let ranges: BTreeSet<_> = node.pod_ranges().into_iter().map(|pod| pod.range).collect();
    (!ranges.is_empty()).then_some(Want::Gone(ranges))
}

fn because(fault: &Fault) -> &'static str {
    match fault {
        Fault::Forbidden => ": the controllers' identity lacks the action Microsoft.Network/routeTables/write",
        Fault::LinkedForbidden => {
            ": the controllers' identity lacks a right on what the table refers to, such as its subnet"
        }
        Fault::Denied => ": a policy of Azure denies what is written",
        Fault::Locked => ": a management lock forbids it",
        Fault::Exhausted => ": it takes no more routes",
        _ => "",
    }
}
