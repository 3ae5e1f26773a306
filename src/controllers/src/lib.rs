//! The cloud controllers. The service controller leads Services of type LoadBalancer to their load balancers, security
//! group and public IPs. The node, node-lifecycle and route controllers lead Nodes to their machines and routes.
//!
//! ```text
//!   Services, Nodes ──▶ informed ──Changed──▶ services ──Requested──▶ objects ──▶ Azure
//!                                                 ▲  └─ finalizer, status ──▶ API server
//!                                                 └────────── Told ─────────────┘
//! ```
//!
//! Every decision lies in `lazuli-plan` ([`balancing`](lazuli_plan::balancing), [`engine`](lazuli_plan::engine)), and
//! `lazuli-reconcile` runs it. This crate says which calls an action is.
//!
//! | module | holds |
//! |---|---|
//! | [`settings`] | from the cloud configuration to what planners know |
//! | `informed` | what the informers, the lease and the lists of the start have told |
//! | `objects` | public IPs, load balancers, security groups and private link services as objects of the engine |
//! | `services` | a Service as a key of the engine |
//! | `nodes` | the node, node-lifecycle and route controllers |
//! | [`controller`] | starts all of it and feeds it |
//!
//! Pools that list NICs keep their members as they are: this version fills pools of node addresses.

pub mod controller;
mod informed;
mod nodes;
mod objects;
mod services;
pub mod settings;

#[cfg(test)]
mod tests;

pub use controller::{Controller, Options};
pub use nodes::{NodeOptions, RouteOptions};
