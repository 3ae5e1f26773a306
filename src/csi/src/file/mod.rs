//! `file.csi.azure.com`: file shares by SMB.

pub mod controller;
pub mod node;
