//! The resource manager: what the resource providers answer.
//!
//! Each resource type is a [`descriptor`], read by one [`engine`]; [`routes`] finds who answers a request. The
//! providers are [`authorization`], [`compute`], [`network`], [`resources`] and [`storage`], all of them in the [`registry`]. How to add a type
//! is told in [`descriptor`].

pub(crate) mod authorization;
pub(crate) mod compute;
pub(crate) mod descriptor;
pub(crate) mod engine;
pub(crate) mod kinds;
pub(crate) mod lists;
pub(crate) mod network;
pub(crate) mod polling;
pub(crate) mod protocol;
pub(crate) mod regions;
pub(crate) mod registry;
pub(crate) mod resources;
pub(crate) mod routes;
pub(crate) mod storage;
pub(crate) mod tenant;
pub(crate) mod writes;

pub(crate) use descriptor::Headers;
pub(crate) use registry::TYPES;
pub(crate) use routes::{Route, find};

/// Names of all quotas.
pub fn quota_names() -> impl Iterator<Item = &'static str> {
    let of_types = TYPES.all().flat_map(|descriptor| descriptor.quotas.iter().map(|quota| quota.name));
    compute::quotas::names().chain(of_types)
}
