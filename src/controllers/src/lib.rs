//! The cloud controllers. The service controller leads Services of type LoadBalancer to their load balancers, security
//! group and public IPs. The node, node-lifecycle and route controllers lead Nodes to their machines and routes.
//!
//! ```text
//!   Services, Nodes ──▶ informed ──Changed──▶ services ──Requested──▶ objects ──▶ Azure
//!                                                 ▲  └─ finalizer, status ──▶ API server
//!                                                 └────────── Told ─────────────┘
//! ```
//!
//! Every decision lies in a crate of pure functions ([`balancing`](lazuli_balancing), [`engine`](lazuli_engine)), and
//! `lazuli-reconcile` runs it. This crate says which calls an action is.
//!
//! | module | holds |
//! |---|---|
//! | `api` | the way to the API server, with a bound on the writes in flight |
//! | [`settings`] | from the cloud configuration to what planners know |
//! | `evidence` | what a Service is read beside: what load balancers show of it, and addresses that it may not name |
//! | `informed` | what the informers, the lease and the lists of the start have told |
//! | `notes` | what the journal notes of Services and Nodes |
//! | `objects` | public IPs, load balancers, security groups and private link services as objects of the engine |
//! | [`operations`] | what is counted of work on Services, routes and new Nodes |
//! | `pools` | several load balancers: what they hold, and the members of their pools |
//! | `preview` | what would be written, for `--dry-run` and at a take-over |
//! | `refusals` | what Azure answered when it refused a write |
//! | `services` | a Service as a key of the engine |
//! | `nodes` | the node, node-lifecycle and route controllers |
//! | [`controller`] | starts all of it and feeds it; looks for machines and public IPs; decides at a take-over |

mod api;
pub mod controller;
mod evidence;
mod informed;
mod nodes;
mod notes;
mod objects;
pub mod operations;
mod pools;
mod preview;
mod refusals;
mod services;
pub mod settings;

#[cfg(test)]
mod tests;

pub use controller::{Controller, Options};
pub use nodes::{NodeOptions, RouteOptions};
pub use operations::Operations;
