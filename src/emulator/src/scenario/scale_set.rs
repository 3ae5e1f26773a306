//! The scale sets of a scenario.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{OsDisk, default_size};

/// A virtual machine scale set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScaleSet {
    /// Name.
    pub name: String,
    /// How many instances, up to 1000.
    pub count: u32,
    /// Whether instances are below the set, or machines of their own.
    #[serde(default)]
    pub orchestration: Orchestration,
    /// What happens to instances when the model changes.
    #[serde(default)]
    pub upgrade_policy: UpgradePolicy,
    /// What computer names of instances begin with; the name of the set when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computer_name_prefix: Option<String>,
    /// Size of an instance.
    #[serde(default = "default_size")]
    pub size: String,
    /// Resource group; the first one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_group: Option<String>,
    /// Zones over which instances are spread; none when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Fault domains; 5 in a uniform set without zones, else 1, when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_domains: Option<u8>,
    /// Subnet as `network/subnet`; the first subnet when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// OS disk of an instance.
    #[serde(default)]
    pub os_disk: OsDisk,
    /// Tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// What the instances of a scale set are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Orchestration {
    /// Documents below the set, with numbers.
    #[default]
    Uniform,
    /// Virtual machines that name the set.
    Flexible,
}

/// When instances of a uniform scale set get a changed model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UpgradePolicy {
    /// When they are told to.
    #[default]
    Manual,
    /// All at once.
    Automatic,
    /// Batch by batch.
    Rolling,
}

impl ScaleSet {
    /// A uniform set of so many instances of the default size.
    #[must_use]
    pub fn uniform(name: &str, count: u32) -> Self {
        Self {
            name: name.to_owned(),
            count,
            orchestration: Orchestration::Uniform,
            upgrade_policy: UpgradePolicy::Manual,
            computer_name_prefix: None,
            size: default_size(),
            resource_group: None,
            zones: Vec::new(),
            fault_domains: None,
            subnet: None,
            os_disk: OsDisk::default(),
            tags: BTreeMap::new(),
        }
    }

    /// A flexible set of so many instances of the default size.
    #[must_use]
    pub fn flexible(name: &str, count: u32) -> Self {
        Self { orchestration: Orchestration::Flexible, ..Self::uniform(name, count) }
    }
}
