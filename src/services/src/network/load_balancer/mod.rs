//! One load balancer: the frontends, rules and probes of all Services placed on it, and the members of its pools.
//!
//! [`plan`] computes the whole load balancer from all wants and diffs it once, so that a burst of Services is one write.
//! A frontend is found by the base name of its Service or, for a shared address, by its public IP or private address.
//! What is not named after a Service is never touched: outbound rules, NAT rules and pools, other people's pools and
//! frontends.
//!
//! [`placement`] says which load balancer a Service belongs on.

mod edit;
mod index;
mod judge;
mod model;
mod placed;
pub mod placement;
mod plan;
mod pool;
mod released;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

pub use edit::{Edit, WriteTarget, apply, apply_raw, pool_body, replaces, write_target};
pub use model::{BackendAddress, Foreign, Frontend, LoadBalancer, NatRange, Pool, Probe, Rule};
pub use plan::plan;
pub use pool::most_that_leave;
pub use released::TAG as RELEASED_FRONTEND_TAG;

use lazuli_model::{
    ArmId,
    address::{Cidr, Family},
    tags::TagPolicy,
};

use super::settings::{AddressSharing, LoadBalancerSku, PoolKind};
use crate::{
    ask::{ProbeAsk, RuleAsk, names::BaseName},
    service::Peers,
};

/// What a Service asks of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// A frontend per family.
    pub frontends: Vec<FrontendPart>,
    /// Its rules.
    pub rules: Vec<RulePart>,
    /// The probes of its rules; the shared one may be among them.
    pub probes: Vec<ProbeAsk>,
    /// The pools of its families, also of one that has no rule.
    pub pools: Vec<String>,
}

/// A frontend that a Service asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontendPart {
    /// The family that it serves.
    pub family: Family,
    /// Its name if the Service gets one of its own.
    pub name: String,
    /// Its address.
    pub address: FrontendAddress,
}

/// The address of a frontend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrontendAddress {
    /// This public IP.
    Public(ArmId),
    /// An address of a subnet.
    Private {
        /// The subnet.
        subnet: ArmId,
        /// Whether the Service names the subnet. Otherwise a frontend that exists stays in its subnet.
        is_subnet_named: bool,
        /// The address that the Service names.
        address: Option<IpAddr>,
        /// The address that a new frontend takes if the Service names none and the subnet holds it: the one it had before.
        previous: Option<IpAddr>,
    },
}

/// A load-balancing rule that a Service asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulePart {
    /// The family of its frontend.
    pub family: Family,
    /// The name of its pool.
    pub pool: String,
    /// All else.
    pub ask: RuleAsk,
}

/// What of a Service is gone by a positive record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Gone {
    /// Nothing.
    #[default]
    Nothing,
    /// Rules and probes that bear this base name and that its [`Part`] does not ask for. Frontends stay, for an address is
    /// given up only when no security rule admits it any more.
    Rules(BaseName),
    /// Frontends, rules and probes that bear this base name and that its [`Part`] does not ask for.
    Everything {
        /// The base name.
        base: BaseName,
        /// Pools of its own that its [`Part`] does not name.
        pools: Vec<String>,
        /// Public IPs that it has given up. A frontend on one of them that is named after a Service that is no longer there
        /// goes when nothing uses it.
        public_ips: BTreeSet<ArmId>,
        /// Private addresses that it has given up, likewise.
        addresses: BTreeSet<IpAddr>,
    },
}

impl Gone {
    fn rules(&self) -> Option<&BaseName> {
        match self {
            Self::Nothing => None,
            Self::Rules(base) | Self::Everything { base, .. } => Some(base),
        }
    }

    fn frontends(&self) -> Option<&BaseName> {
        match self {
            Self::Nothing | Self::Rules(_) => None,
            Self::Everything { base, .. } => Some(base),
        }
    }

    /// Whether the Service has given up the address of a frontend.
    pub fn gives_up(&self, frontend: &Frontend) -> bool {
        match self {
            Self::Nothing | Self::Rules(_) => false,
            Self::Everything { public_ips, addresses, .. } => {
                frontend.public_ip.as_ref().is_some_and(|id| public_ips.contains(id))
                    || frontend.private_address.is_some_and(|address| addresses.contains(&address))
            }
        }
    }

    /// Whether the Service has given up public IPs.
    fn gives_up_public_ips(&self) -> bool {
        matches!(self, Self::Everything { public_ips, .. } if !public_ips.is_empty())
    }

    fn pools(&self) -> &[String] {
        match self {
            Self::Nothing | Self::Rules(_) => &[],
            Self::Everything { pools, .. } => pools,
        }
    }
}

/// The wants of all Services for a load balancer.
pub type Wants = super::Wants<Part, Gone>;

/// What all Services of a load balancer share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Env {
    /// The load balancer.
    pub id: ArmId,
    /// Its region.
    pub location: String,
    /// Its SKU when it is made; one that exists keeps its own.
    pub sku: LoadBalancerSku,
    /// `extendedLocationName`.
    pub edge_zone: Option<String>,
    /// The zones of the region, for new internal frontends of a Standard load balancer.
    pub zones: Vec<String>,
    /// The prefixes of the subnets of internal frontends, as observed: a frontend keeps its address only within them.
    pub subnets: BTreeMap<ArmId, Vec<Cidr>>,
    /// The tags that it gets.
    pub tags: TagPolicy,
    /// The members of pools, by the name of the pool. A pool that is not named keeps its members.
    pub pools: BTreeMap<String, PoolMembers>,
    /// The pools that the model of a scale set names: Azure refuses to delete the load balancer of such a one, also while
    /// the set has no instances.
    pub in_models: BTreeSet<ArmId>,
    /// Whether Azure is asked to make pools of addresses of pools of NICs that are to be such.
    pub migrates_pools: bool,
    /// The most rules it may hold: `maximumLoadBalancerRuleCount` of a Basic one.
    pub maximum_rules: u32,
    /// Whether the operator fills its pools: `preConfiguredBackendPoolLoadBalancerTypes`. It stays with them and their
    /// members when its last Service goes.
    pub is_preconfigured: bool,
    /// Which Services may share a frontend.
    pub sharing: AddressSharing,
    /// The Services of the cluster, also those that want nothing of the load balancer yet.
    pub peers: Arc<Peers>,
}

/// The members that a pool should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMembers {
    /// The kind of the pool when it is made; one that exists keeps its own.
    pub kind: PoolKind,
    /// The virtual network of the addresses.
    pub vnet: ArmId,
    /// Addresses and the names of their nodes. Empty changes nothing.
    pub addresses: BTreeMap<IpAddr, String>,
    /// Whether the pool may lose its last member: nodes spread over several load balancers.
    pub may_be_empty: bool,
    /// Whether members stay that are no nodes: the operator has not accepted a take-over yet.
    pub keeps: bool,
}

/// Limits of Azure (source: azure-subscription-service-limits, load balancer).
pub mod limits {
    /// Rules of a Standard load balancer.
    pub const STANDARD_RULES: usize = 1_500;
    /// Frontends of a Standard load balancer.
    pub const STANDARD_FRONTENDS: usize = 600;
    /// Rules of a Basic load balancer.
    pub const BASIC_RULES: usize = 250;
    /// Frontends of a Basic load balancer.
    pub const BASIC_FRONTENDS: usize = 200;
    /// Rules that reach one NIC, which is in the pool of all of them.
    pub const RULES_PER_NIC: usize = 300;
    /// Members of a pool.
    pub const POOL_MEMBERS: usize = 5_000;
}
