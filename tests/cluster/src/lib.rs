//! A real Kubernetes on this machine, for tests and for people: its API server, controllers, scheduler and kubelets, the
//! chart as it is installed, and Azure as the emulator with block devices. Containers are processes: `tests/tools/node`
//! says what of them is applied and what is not.
//!
//! The tier `cluster` of the tests starts one for each test. `scripts/cluster` starts one that a person uses, by the
//! program of this package, its supervisor.
//!
//! Whatever cannot be, such as a program that ends or a wait without end, panics with what was waited for and the last
//! lines that the process wrote: a test fails by it, and the supervisor ends with all that it has started.

#![expect(clippy::unwrap_used, reason = "what cannot be done fails the test, or ends the supervisor, where it happens")]

pub mod azure;
pub mod certificates;
pub mod chart;
mod cluster;
pub mod command;
pub mod emulator;
pub mod kubernetes;
pub mod node;
pub mod node_command;
mod nodes;
pub mod place;
pub mod process;
mod relay;
pub mod supervisor;

pub use cluster::{Cluster, Drivers, PODS_OF_THE_CHART, Report, Settings, is_ready, schedulable};
