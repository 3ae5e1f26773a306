//! The Container Storage Interface: what kubelet and the CSI sidecars call.
//!
//! This room owns the gRPC edge of the storage drivers: sockets, requests parsed once, answers and codes chosen for
//! the sidecar that reads them, one log line per call, and kubelet's registration. It never talks to Azure's
//! management API itself (that is `disk`) and never makes a system call on a volume itself (that is `host`).
//!
//! | module | serves |
//! |---|---|
//! | [`server`] | nothing by itself: endpoints, listeners, draining, logging, statuses |
//! | [`identity`] | `csi.v1.Identity`, in every process |
//! | [`controller`] | `csi.v1.Controller` of `disk.csi.azure.com` |
//! | [`node`] | `csi.v1.Node` of `disk.csi.azure.com`, on every node |
//! | [`registration`] | `pluginregistration.Registration`, so that kubelet finds the node service |

mod capability;
pub mod controller;
pub mod identity;
pub mod node;
pub mod registration;
pub mod server;
mod usable;
mod volume_pages;

#[cfg(test)]
mod scratch;
