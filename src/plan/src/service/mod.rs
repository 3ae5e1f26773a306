//! Services of type LoadBalancer: what a Service asks of Azure, as a value.
//!
//! ```text
//! ServiceObject --parse--> Ask --wants--> Want per Azure object --network::*::plan--> edits of its body
//!        \---------------> Vec<Mistake>   (nothing of a Service with a mistake is written)
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | [`object`] | the fields of a Service that this provider reads |
//! | [`annotation`] | every annotation, as one table: kind of value, what is allowed, what it does |
//! | [`parse()`] | from a Service to an [`Ask`] or to its [`Mistake`]s |
//! | [`shown`] | what load balancers show of one Service |
//! | [`names`] | the names of Azure resources, byte for byte those of the Go cloud-controller-manager |
//! | [`wants`] | which load balancer, security group, public IPs and private link service an [`Ask`] needs |
//!
//! A value that cannot be used is a [`Mistake`] of a new Service, which gets nothing. Of a Service that Azure serves, what
//! Azure shows is read in its place, with a warning ([`Existing`]): the rest of it goes on, and nothing depends on which process
//! reads it. An address range that is none is no mistake: it closes the Service, new or not, as the Go manager does.

pub mod annotation;
mod ask;
pub mod key;
mod mistake;
pub mod names;
pub mod object;
mod parse;
pub mod selector;
mod share;
pub mod shown;
pub mod wants;

#[cfg(test)]
pub(crate) mod tests;

pub use ask::{
    Access, AddressAsk, Affinity, Ask, Denial, DnsLabel, FamilyAsk, IpTag, KeptRules, Mode, PlacementAsk,
    PrivateLinkAsk, ProbeAsk, ProbeProtocol, PublicIpAsk, PublicIpSettings, RuleAsk, SecurityProtocol, Side,
    TransportProtocol,
};
pub use key::ServiceKey;
pub use mistake::{Mistake, Subject, Warning, WarningReason};
pub use object::ServiceObject;
pub use parse::{ClusterAddresses, Existing, parse};
pub use share::shares_with;
pub use shown::Shown;
