//! What the process shows of itself: logs on stderr, `/healthz`, `/readyz` and `/metrics`.
//!
//! Owns the format of log lines, the HTTP servers for probes and scrapes, and the metrics of the process
//! itself. Never decides whether the process is ready: other crates say so through a [`Readiness`], and
//! their metrics arrive in a registry that they filled. Never decides who may read metrics either: a
//! [`http::Reviewer`] asks the cluster.

pub mod go_names;
pub mod http;
pub mod labels;
pub mod logs;
pub mod lossy;
pub mod panics;
mod process;
mod readiness;

pub use process::{BuildInfo, register_process};
pub use readiness::{Condition, Readiness, Verdict};
