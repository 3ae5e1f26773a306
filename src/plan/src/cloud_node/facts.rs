//! What the plugin on a node publishes of its machine, as the instance metadata tells it.
//!
//! Azure's resource manager does not tell the sub-fault-domain and the interconnect group, and tells the fault domain only
//! by a read of one machine. The plugin writes them into an annotation of its own Node. They count where they name the
//! machine that Azure's resource manager, or the provider id, names: a node may say what it likes, but only of its own
//! machine, and kubelet may set the same labels on its Node anyway.

use serde::{Deserialize, Serialize};

use super::{CloudNode, labels};
use crate::model::ArmId;

/// The annotation of a Node.
pub const ANNOTATION: &str = "lazuli.azure/instance-metadata";

/// The longest value of a label. Source: Kubernetes, labels and selectors.
const LONGEST_LABEL: usize = 63;

/// A machine, as it is told about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceFacts {
    /// Its id.
    pub resource_id: String,
    /// The VM size.
    pub vm_size: String,
    /// Its fault domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_domain: Option<u32>,
    /// The part of its fault domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_fault_domain: Option<String>,
    /// The machines that share a fast network with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interconnect_group: Option<String>,
}

impl InstanceFacts {
    /// The value of the annotation; `None` for one that cannot be read.
    pub fn parse(annotation: &str) -> Option<Self> {
        serde_json::from_str(annotation).ok()
    }

    /// The value of the annotation.
    pub fn annotation(&self) -> String {
        serde_json::to_value(self).unwrap_or_default().to_string()
    }

    /// Whether they are about this machine.
    pub fn is_of(&self, machine: &ArmId) -> bool {
        self.resource_id.parse::<ArmId>().is_ok_and(|id| id == *machine)
    }

    /// The fault domain of this machine, if they are about it and it has had no other size since.
    pub fn fault_domain_of(&self, machine: &ArmId, size: &str) -> Option<u32> {
        self.fault_domain.filter(|_| self.is_of(machine) && self.vm_size.eq_ignore_ascii_case(size))
    }

    fn labels(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let all = [
            (labels::SUB_FAULT_DOMAIN, &self.sub_fault_domain),
            (labels::INTERCONNECT_GROUP, &self.interconnect_group),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value.as_ref().filter(|value| is_label_value(value))?)))
    }
}

impl CloudNode {
    /// The labels that its Node lacks, by what the plugin says of this machine. One that is there is never written over.
    pub(super) fn labels_of_metadata(&self, machine: &ArmId) -> Vec<(&'static str, String)> {
        let facts = self.facts.iter().filter(|facts| facts.is_of(machine));
        let lacks = |key: &&'static str| !self.metadata_labels.contains(key);
        let labels = facts.flat_map(InstanceFacts::labels).filter(|(key, _)| lacks(key));
        labels.map(|(key, value)| (key, value.clone())).collect()
    }
}

/// Whether the API server takes it: another one would make it refuse the whole Node.
fn is_label_value(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST_LABEL && bytes.iter().copied().all(inside) && ends(bytes.first()) && ends(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> InstanceFacts {
        InstanceFacts {
            resource_id: "/subscriptions/s/resourceGroups/G/providers/Microsoft.Compute/virtualMachines/v".to_owned(),
            vm_size: "Standard_B2s".to_owned(),
            fault_domain: Some(1),
            sub_fault_domain: Some("3".to_owned()),
            interconnect_group: None,
        }
    }

    fn machine(name: &str) -> ArmId {
        ArmId::virtual_machine("s", "g", name).unwrap()
    }

    #[test]
    fn facts_are_read_as_they_were_written_and_count_for_their_machine_alone() {
        let facts = facts();
        assert_eq!(InstanceFacts::parse(&facts.annotation()), Some(facts.clone()));
        assert_eq!(InstanceFacts::parse("{}"), None);
        assert_eq!(facts.fault_domain_of(&machine("V"), "standard_b2s"), Some(1));
        assert_eq!(facts.fault_domain_of(&machine("w"), "Standard_B2s"), None);
        assert_eq!(facts.fault_domain_of(&machine("v"), "Standard_B4s"), None);
    }

    #[test]
    fn labels_that_are_there_or_that_the_api_server_refuses_are_not_written() {
        let mut node = CloudNode { facts: Some(facts()), ..CloudNode::default() };
        assert_eq!(node.labels_of_metadata(&machine("v")), [(labels::SUB_FAULT_DOMAIN, "3".to_owned())]);
        assert_eq!(node.labels_of_metadata(&machine("w")), []);
        node.metadata_labels = vec![labels::SUB_FAULT_DOMAIN];
        assert_eq!(node.labels_of_metadata(&machine("v")), []);
        for bad in ["", "a b", "-a", "a.", &"a".repeat(64)] {
            let group = Some(bad.to_owned());
            node.facts = Some(InstanceFacts { interconnect_group: group, ..facts() });
            assert_eq!(node.labels_of_metadata(&machine("v")), [], "{bad}");
        }
    }
}
