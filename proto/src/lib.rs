//! The gRPC services Lazuli speaks: the Container Storage Interface (version 1.13.0) and kubelet's plugin
//! registration (v1). Both files are the published ones, unchanged.
#![allow(clippy::all, reason = "generated code")]

/// The Container Storage Interface, `csi.v1`.
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// kubelet's plugin registration, `pluginregistration`.
pub mod registration {
    tonic::include_proto!("pluginregistration");
}
