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
//! | [`parse()`] | from a Service to an [`Ask`](crate::ask::Ask) or to its [`Mistake`](crate::ask::Mistake)s |
//! | [`shown`] | what load balancers show of one Service |
//! | [`names`](crate::ask::names) | the names of Azure resources, byte for byte those of the Go cloud-controller-manager |
//! | [`wants`] | which load balancer, security group, public IPs and private link service an [`Ask`](crate::ask::Ask) needs |
//!
//! A value that cannot be used is a [`Mistake`](crate::ask::Mistake) of a new Service, which gets nothing. Of a Service that Azure serves, what
//! Azure shows is read in its place, with a warning ([`Existing`]): the rest of it goes on, and nothing depends on which process
//! reads it. An address range that is none is no mistake: it closes the Service, new or not, as the Go manager does.

pub mod annotation;
pub mod object;
mod parse;
mod peers;
mod share;
pub mod shown;
pub mod wants;

#[cfg(any(test, feature = "testing"))]
pub mod fixtures;
#[cfg(test)]
mod tests;

pub use object::ServiceObject;
pub use parse::{ClusterAddresses, Existing, never_allowed, parse};
pub use peers::{Peer, Peers};
pub use share::shares_with;
pub use shown::Shown;
