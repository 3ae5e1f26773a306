//! One public IP: made for a Service, shared by Services, or brought by the user.
//!
//! A tag lists the Services that use a public IP. One without that tag is the user's: it is neither tagged nor deleted. One
//! that another cluster made is not written. A public IP goes with the last Service in its tag, when no frontend refers
//! to it any more. Where a frontend that refers to it stays, because it is the last of its load balancer, a tag says that it
//! is released: then it goes at the want of any Service. Nothing else deletes one: neither a changed name, nor a changed prefix, nor changed IP tags.

mod edit;
mod model;
mod plan;
pub mod tags;

#[cfg(test)]
mod tests;

pub use edit::{Edit, NewPublicIp, apply, apply_raw, replaces};
pub use model::PublicIp;
pub use plan::plan;

use std::{collections::BTreeSet, net::IpAddr};

use lazuli_model::{ArmId, address::Family, tags::TagPolicy};

use super::settings::LoadBalancerSku;
use crate::ask::PublicIpSettings;

/// What a Service asks of a public IP.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// How the Service uses it; `None` not at all.
    pub usage: Option<Use>,
}

/// How a Service uses a public IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The family of its address.
    pub family: Family,
    /// Whether it is made when it is missing, and from which prefix.
    pub creation: Creation,
    /// Label and tags.
    pub settings: PublicIpSettings,
    /// Where Services may not name anything of its resource group or prefix: the addresses in the Service's status. What the
    /// Service has already it keeps.
    pub outside: Option<BTreeSet<IpAddr>>,
}

/// What to do when a public IP is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Creation {
    /// Make it.
    Make {
        /// The prefix to take the address from.
        prefix: Option<ArmId>,
    },
    /// The Service names it, so it must exist.
    MustExist,
}

/// Whether a Service has given up a public IP by a positive record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gone {
    /// It has not.
    #[default]
    Nothing,
    /// It has: its name leaves the tag, and the public IP goes with the last name.
    Released,
    /// It has, and others still use it: its name leaves the tag unless it is the last. The last Service first closes the
    /// security group for the whole address, which one that is not the last does not.
    LeftToOthers,
    /// It has, and the frontend of it stays as the last of its load balancer. A tag notes that it is given up, so that it
    /// goes when the frontend has gone, though the Service does not exist any more.
    KeptByFrontend,
    /// It has, and its load balancer keeps the frontend, for outbound or NAT rules of others: the public IP stays while
    /// something uses it, and the owner is told. Otherwise as [`Released`](Self::Released).
    ReleasedUnlessUsed,
}

/// What one Service wants of a public IP.
pub type Want = super::Want<Part, Gone>;

/// The wants of all Services for a public IP.
pub type Wants = super::Wants<Part, Gone>;

/// What all Services of a public IP share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Env {
    /// The public IP.
    pub id: ArmId,
    /// The name of the cluster, for its tag.
    pub cluster_name: String,
    /// Its region.
    pub location: String,
    /// The SKU of the load balancers.
    pub sku: LoadBalancerSku,
    /// `extendedLocationName`.
    pub edge_zone: Option<String>,
    /// The zones of the region, for a new one.
    pub zones: Vec<String>,
    /// The tags that it gets.
    pub tags: TagPolicy,
    /// `enableIPTagMutationForExistingPublicIP`.
    pub may_change_ip_tags: bool,
}
