//! From a cloud configuration to clients, and from clients to the gRPC services of a process.
//!
//! Both the command line and `lazuli-rig` assemble a provider here, so that what a test runs is what a cluster runs.

pub mod clients;
pub mod keys;
pub mod reload;
pub mod services;
