//! `csi.v1.Controller` of `file.csi.azure.com`.
