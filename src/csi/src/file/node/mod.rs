//! `csi.v1.Node` of `file.csi.azure.com`.
