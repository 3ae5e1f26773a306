//! Services of type LoadBalancer on the reconcile engine: the planners of [`network`](lazuli_services::network) as objects of the
//! [`engine`](lazuli_engine), and what a Service wants of each at each stage.
//!
//! | module | holds |
//! |---|---|
//! | [`admitted`] | which nodes the security group admits, where floating IP is off |
//! | [`balancers`] | the load balancers that Services and Nodes are spread over, and the members of their pools |
//! | [`describe`] | edits in words, for people |
//! | [`discovery`] | which objects a Service may own, and which resource groups are listed to find them |
//! | [`events`] | what the owner of a Service is told by Kubernetes events |
//! | [`interfaces`] | the pools that the NICs of Nodes belong to |
//! | [`local_pools`] | the Nodes that pools of Services with local traffic list |
//! | [`listing`] | what the load balancers serve, for people |
//! | [`objects`] | the kinds of objects: load balancer, security group, public IP, private link service, subnet |
//! | [`preview`](mod@preview) | what would be written, without a write |
//! | [`report`] | what an object shows of one Service |
//! | [`service`] | the Service: its keys, the order of its writes, its wants, its status |
//! | [`sharing`] | which Service an address belongs to, and whether it agrees with what others do there |
//!
//! What a Service gives up is found in what the objects show of it, never in its own status: an address in a status may
//! have been given to another Service since.

pub mod admitted;
pub mod balancers;
pub mod describe;
pub mod discovery;
pub mod events;
pub mod interfaces;
pub mod listing;
pub mod local_pools;
pub mod objects;
pub mod preview;
pub mod report;
pub mod service;
pub mod sharing;

#[cfg(test)]
mod tests;

use std::fmt;

pub use balancers::Balancers;
pub use local_pools::LocalPools;
pub use objects::{LoadBalancers, PrivateLinks, PublicIps, SecurityGroups, Subnets};
pub use report::Report;
pub use service::{Admission, Balanced, Inputs, Spec, Want};

use lazuli_model::ArmId;

/// An object of Azure that Services want something of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A public IP.
    PublicIp(ArmId),
    /// A load balancer with its pools.
    LoadBalancer(ArmId),
    /// The security group.
    SecurityGroup(ArmId),
    /// A private link service.
    PrivateLink(ArmId),
    /// A subnet that holds addresses of private link services.
    Subnet(ArmId),
}

impl Key {
    /// The id of the object.
    pub fn id(&self) -> &ArmId {
        match self {
            Self::PublicIp(id)
            | Self::LoadBalancer(id)
            | Self::SecurityGroup(id)
            | Self::PrivateLink(id)
            | Self::Subnet(id) => id,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::PublicIp(_) => "public IP",
            Self::LoadBalancer(_) => "load balancer",
            Self::SecurityGroup(_) => "security group",
            Self::PrivateLink(_) => "private link service",
            Self::Subnet(_) => "subnet",
        };
        write!(f, "{kind} {}", self.id().name())
    }
}
