//! What is wrong with a cluster, for people: each finding is a sentence that says what, where, and what to do.
//!
//! Nothing here changes anything. A check that lacks a fact says so ([`Grade::Unseen`]) and accuses no component.
//!
//! | file | checks |
//! |---|---|
//! | `nodes` | pod ranges of Nodes, their region, the location of machines |
//! | [`managers`] | which managers run, whether exactly one gives pod ranges, whether two do the same work |
//! | [`addresses`] | addresses that Services name beside their own and would not get today |
//! | [`controller_list`] | which of the cloud controllers run |
//! | [`migration`] | what becomes of a cluster of the Go projects that moves |
//! | [`nvme`] | Nodes whose disks come by NVMe |
//! | [`named`] | network resources that the configuration names and that do not exist |
//! | [`kept`] | what Services have and a new one would not get, and disks that would not be attached now |
//! | [`objects`] | objects in Azure that were made for Services which the cluster does not have |
//! | [`plausible`] | values of the configuration that cannot be right |
//! | [`roles`] | actions of the roles in `deploy/azure` that the identity lacks |
//! | [`routes`] | routes that stay although none would be added for them, and routes of no Node |
//! | [`snapshots`] | what snapshots of disks need, their classes, VolumeAttributesClasses, and snapshots that nothing names |
//! | [`shares`] | file shares, their accounts and volumes; also which volume each share is |

pub mod addresses;
pub mod controller_list;
pub mod kept;
pub mod managers;
pub mod migration;
pub mod named;
mod nodes;
pub mod nvme;
pub mod objects;
pub mod plausible;
mod refusals;
pub mod roles;
pub mod routes;
pub mod shares;
pub mod snapshots;
#[cfg(test)]
mod tests;

pub use nodes::{Node, locations, pod_ranges, regions};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grade {
    /// All is well.
    Fine,
    /// Worth knowing; a person decides whether it is wrong.
    Note,
    /// It cannot be told.
    Unseen,
    /// Something must be done.
    Wrong,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was checked.
    pub check: &'static str,
    /// How bad it is.
    pub grade: Grade,
    /// A sentence: what, where, and what to do.
    pub text: String,
}

impl Finding {
    /// A finding.
    pub fn new(check: &'static str, grade: Grade, text: impl Into<String>) -> Self {
        Self { check, grade, text: text.into() }
    }
}

/// How many names a sentence lists.
const SHOWN: usize = 5;

/// The first of these names, and how many more there are.
fn some<S: AsRef<str>>(names: &[S]) -> String {
    let shown = names.iter().take(SHOWN).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
