//! One private link service: it is in front of a frontend of a load balancer.
//!
//! The Service that makes it owns it, which a tag says; only the owner configures it, and other Services on the same
//! frontend share it. One without the tag of this cluster is not ours and is not written. It goes when its owner has given
//! it up by a positive record and no other Service asks for it; its connections are deleted first.

mod edit;
mod model;
mod plan;

#[cfg(test)]
mod tests;

pub use edit::{Edit, apply, apply_raw, replaces};
pub use model::{LinkAddress, PrivateLink};
pub use plan::plan;

use lazuli_model::{ArmId, tags::TagPolicy};

use crate::ask::{PrivateLinkAsk, names};

/// The tag that names the cluster.
pub const CLUSTER_TAG: &str = "k8s-azure-cluster-name";
/// The tag that names the owner, as `namespace/name`.
pub const OWNER_TAG: &str = "k8s-azure-owner-service";

/// What a Service asks of a private link service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// What it asks; `None` for nothing.
    pub link: Option<Link>,
}

/// A private link service that a Service asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The frontend that it is in front of.
    pub frontend: ArmId,
    /// The subnet of its addresses.
    pub subnet: ArmId,
    /// Whether the frontend is the Service's own. Before the frontend of another one it gets none, and changes none.
    pub is_own: bool,
    /// Whether Services may name private link services of its resource group. In another one none is made.
    pub is_allowed: bool,
    /// All else.
    pub ask: PrivateLinkAsk,
}

/// Whether a Service has given up a private link service by a positive record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gone {
    /// It has not. Taking `azure-pls-create` away from a Service that this provider has just met is no record.
    #[default]
    Nothing,
    /// It has.
    Released,
}

/// The wants of all Services for a private link service.
pub type Wants = super::Wants<Part, Gone>;

/// What all Services of a private link service share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Env {
    /// The private link service.
    pub id: ArmId,
    /// The name of the cluster, for its tag.
    pub cluster_name: String,
    /// Its region.
    pub location: String,
    /// `extendedLocationName`.
    pub edge_zone: Option<String>,
    /// The tags that it gets.
    pub tags: TagPolicy,
}

/// The name of the private link service for a Service: the one that its frontend has already, else the one it names, else
/// `pls-<frontend>`.
pub fn name(ask: &PrivateLinkAsk, frontend: &ArmId, all: &[PrivateLink]) -> String {
    let there = all.iter().find(|link| link.frontends.contains(frontend)).map(|link| link.id.name().to_owned());
    there.or_else(|| ask.name.clone()).unwrap_or_else(|| names::private_link(frontend.name()))
}
