//! Routes: the pod ranges of the cluster's Nodes in a route table of Azure, and the subnet that the table serves.
//!
//! | module | holds |
//! |---|---|
//! | `names` | how a route is called, and whose a name is |
//! | `model` | a route table and a subnet as Azure describes them |
//! | `ranges` | which pod ranges of Nodes get a route |
//! | `plan` | the planner of the table |
//! | `edit` | what its edits do to the model and to the raw body |
//! | `objects` | both as objects of the engine |
//!
//! A route leads a pod range to the address of its Node. Names are those of the Go manager, `<node>____<range>`, so that
//! it finds its routes after a switch in either direction. A route of any name that leads the same range to the same
//! address counts as present: the Go manager of 2017 named routes by their Node alone.
//!
//! # What is removed
//!
//! - The routes of a Node whose deletion was observed ([`Want::Gone`]).
//! - The routes that bear the name of a Node and lead a range that the Node does not have. A Node never changes its ranges,
//!   so they belong to an earlier Node of that name.
//!
//! Both only inside the cluster's ranges, and by exact names. The Go manager compares names by prefix, so that it deletes
//! the routes of `agent-10` with those of `agent-1`. All else stays, of other tools too: routes of a Node that is not known
//! to this process too.

mod edit;
mod model;
pub mod names;
mod objects;
mod plan;
mod ranges;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

pub use edit::{Edit, apply, apply_raw, replaces};
pub use model::{AssociatedSubnet, Route, RouteTable};
pub use objects::{Report, RouteTables, SubnetAssociations, associate};
pub use plan::{Plan, plan};

use lazuli_model::{ArmId, address::Cidr, tags::TagPolicy};

/// Routes of a table at most. Source: azure-subscription-service-limits, user-defined routes per route table.
pub const MOST_ROUTES: usize = 400;

/// A pod range of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRange {
    /// As the Node spells it: the name of its route is made of this text.
    pub text: String,
    /// The range.
    pub range: Cidr,
    /// The Node's address of the same family; `None` while it is not known.
    pub next_hop: Option<IpAddr>,
    /// When the Node was made, as the API server spells it; of two times the earlier is the lesser text.
    pub created: String,
}

/// What one Node wants of the route table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// The Node exists and has these ranges. With none it is not known yet which it gets.
    Present(Vec<PodRange>),
    /// The Node was deleted. It had these ranges.
    Gone(BTreeSet<Cidr>),
}

/// The wants of all Nodes, by name.
pub type Wants = BTreeMap<String, Want>;

/// What all Nodes of a route table share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Env {
    /// The route table.
    pub id: ArmId,
    /// The region of a new one.
    pub location: String,
    /// The tags that it gets.
    pub tags: TagPolicy,
    /// The ranges from which Nodes get theirs. A route outside of them is never removed, and none is added there.
    pub cluster_ranges: Vec<Cidr>,
    /// Ranges that no Node's may overlap: those of Services.
    pub reserved: Vec<Cidr>,
}

impl Env {
    /// Whether a range lies in those of the cluster.
    pub fn is_of_cluster(&self, range: &Cidr) -> bool {
        self.cluster_ranges.iter().any(|cluster| cluster.covers(range))
    }
}
