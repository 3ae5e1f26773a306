//! What the plugin on a node publishes of its machine, as the instance metadata tells it.
//!
//! The plugin writes it into an annotation of its own Node. A new Node whose annotation says everything is initialised
//! without a read of Azure. Azure's resource manager does not tell the sub-fault-domain and the interconnect group at all.
//!
//! # What proves whose annotation it is
//!
//! - **The writer.** The admission policy `lazuli-own-node` of the chart compares the node name in the plugin's token with
//!   the Node, so that a token of one node writes no other Node. kubelet may write its own Node alone (NodeRestriction).
//! - **The machine.** The annotation counts for one machine. That is the one of the Node's provider id. A Node without
//!   provider id is the machine of its name in its resource group, where Azure would be asked for it too
//!   ([`CloudNode::is_named`]). Of any other machine Azure's resource manager must say that its computer has the Node's name.
//!   So an annotation that was copied from another Node counts for nothing.
//! - **The time.** The annotation names the boot of the kernel that it was read in, and kubelet reports the boot that it
//!   runs in. An annotation of an earlier boot, or one without a boot, initialises no Node.
//!
//! What is left to a node that lies about itself is what its kubelet may write to the Node without us: addresses, and the
//! labels of instance type, region and zone.

use std::net::IpAddr;

use lazuli_model::{
    ArmId,
    kube_name::is_label_value,
    node::{Machine, instance_of_computer},
    scale_set::scale_set,
};
use serde::{Deserialize, Serialize};

use super::{CloudNode, Instance, InstanceAddress, labels};

/// The annotation of a Node.
pub const ANNOTATION: &str = "lazuli.azure/instance-metadata";

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
    /// The region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The number of its availability zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The first address of each family of its first NIC. Empty where it is not known whether they have public addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<PublishedAddress>,
    /// The boot of the kernel in which this was read. Source: Linux, `random/boot_id`; kubelet reports the same text as
    /// `status.nodeInfo.bootID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// What the machine shows of disks that come by NVMe; left out where none do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvme: Option<NvmeFacts>,
}

/// What a machine shows of disks that come by NVMe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NvmeFacts {
    /// By what the LUNs of its disks are known.
    pub luns: NvmeLuns,
    /// After how many seconds its kernel takes a request for lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_timeout_seconds: Option<u64>,
}

/// By what the LUNs of NVMe disks are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NvmeLuns {
    /// The operating system's disk is namespace 1.
    Proved,
    /// An operator gave the offset.
    Given,
    /// By nothing: no disk is mounted.
    Unknown,
}

/// An address of a machine, as it is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedAddress {
    /// The private address.
    pub private: IpAddr,
    /// The public address of the same configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<IpAddr>,
}

/// Where the machines of Nodes are that do not say it themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The subscription.
    pub subscription: &'a str,
    /// The resource group.
    pub resource_group: &'a str,
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

    /// The machine that they are about.
    pub fn machine(&self) -> Option<ArmId> {
        self.resource_id.parse().ok()
    }

    /// The machine as they describe it; `None` where they leave something out that a Node needs.
    fn instance(&self, machine: &ArmId) -> Option<Instance> {
        let is_placed = self.zone.is_some() || self.fault_domain.is_some();
        if !is_placed || self.addresses.is_empty() || self.vm_size.is_empty() {
            return None;
        }
        let address = |one: &PublishedAddress| InstanceAddress { private: one.private, public: one.public };
        Some(Instance {
            id: machine.clone(),
            size: self.vm_size.clone(),
            location: self.location.clone()?,
            zone: self.zone.clone(),
            fault_domain: self.fault_domain,
            addresses: self.addresses.iter().map(address).collect(),
        })
    }

    fn labels(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let all = [
            (labels::SUB_FAULT_DOMAIN, &self.sub_fault_domain),
            (labels::INTERCONNECT_GROUP, &self.interconnect_group),
        ];
        // Another value would make the API server refuse the whole Node.
        all.into_iter().filter_map(|(key, value)| Some((key, value.as_ref().filter(|value| is_label_value(value))?)))
    }
}

impl CloudNode {
    /// The machine of a new Node, where its annotation alone proves which one that is and says all of it.
    pub fn instance_of_metadata(&self, scope: Scope<'_>) -> Option<Instance> {
        let claimed = self.facts.as_ref()?.machine()?;
        match self.machine() {
            // The provider id says it as Azure spells it.
            Some(machine) => self.instance_of(machine.id()),
            None if self.is_named(&claimed, scope) => self.instance_of(&claimed),
            None => None,
        }
    }

    /// What its annotation says of this machine, which something else proves to be the Node's; `None` where the annotation
    /// is of another machine or of an earlier boot, where it leaves something out, or where kubelet was given an address
    /// that it does not tell.
    pub fn instance_of(&self, machine: &ArmId) -> Option<Instance> {
        let facts = self.facts.as_ref().filter(|facts| facts.is_of(machine))?;
        let is_fresh = facts.boot_id.is_some() && facts.boot_id.as_deref() == self.boot_id.as_deref();
        let instance = facts.instance(machine).filter(|_| is_fresh)?;
        instance.node_addresses(self).is_ok().then_some(instance)
    }

    /// Whether a machine is where a Node without provider id has its machine, and has the Node's name: a VM of this name, or
    /// the instance of a uniform scale set whose number and set make up the name of the computer.
    pub fn is_named(&self, machine: &ArmId, scope: Scope<'_>) -> bool {
        let group = self.resource_group.as_deref().unwrap_or(scope.resource_group);
        let is_there = machine.subscription().eq_ignore_ascii_case(scope.subscription)
            && machine.resource_group().eq_ignore_ascii_case(group);
        let is_called = || match Machine::of_id(machine.clone()) {
            Some(Machine::Vm(id)) => id.name().eq_ignore_ascii_case(&self.name),
            Some(Machine::Instance(id)) => {
                let (set, of_name) = (scale_set(&id), instance_of_computer(&self.name));
                let numbered = |(prefix, number): (&str, u64)| {
                    set.is_some_and(|set| set.name().eq_ignore_ascii_case(prefix))
                        && id.name().parse::<u64>() == Ok(number)
                };
                of_name.is_some_and(numbered)
            }
            None => false,
        };
        is_there && is_called()
    }

    /// The labels that its Node lacks, by what the plugin says of this machine. One that is there is never written over.
    pub(super) fn labels_of_metadata(&self, machine: &ArmId) -> Vec<(&'static str, String)> {
        let facts = self.facts.iter().filter(|facts| facts.is_of(machine));
        let lacks = |key: &&'static str| !self.metadata_labels.contains(key);
        let labels = facts.flat_map(InstanceFacts::labels).filter(|(key, _)| lacks(key));
        labels.map(|(key, value)| (key, value.clone())).collect()
    }
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
            location: Some("WestEurope".to_owned()),
            zone: None,
            addresses: ["10.0.0.4", "fd01::4"].map(|one| published(one, None)).into(),
            boot_id: Some("b1".to_owned()),
            nvme: None,
        }
    }

    fn published(private: &str, public: Option<&str>) -> PublishedAddress {
        let parse = |text: &str| text.parse().unwrap();
        PublishedAddress { private: parse(private), public: public.map(parse) }
    }

    const SCOPE: Scope<'_> = Scope { subscription: "s", resource_group: "g" };

    /// A new Node whose plugin has published this.
    fn node(facts: InstanceFacts) -> CloudNode {
        let boot_id = Some("b1".to_owned());
        CloudNode { name: "v".to_owned(), facts: Some(facts), boot_id, ..CloudNode::default() }
    }

    const SET: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/agents";

    #[test]
    fn metadata_of_the_machine_of_the_nodes_name_initialise_it() {
        let public = InstanceFacts { addresses: vec![published("10.0.0.4", Some("20.0.0.1"))], ..facts() };
        let instance = node(public).instance_of_metadata(SCOPE).unwrap();
        assert_eq!(instance.id.resource_group(), "G", "as the metadata spells it");
        assert_eq!((instance.zone_label().as_str(), instance.size.as_str()), ("1", "Standard_B2s"));
        let addresses = instance.node_addresses(&node(facts())).unwrap();
        let texts: Vec<String> = addresses.iter().map(|one| format!("{} {}", one.kind, one.address)).collect();
        assert_eq!(texts, ["Hostname v", "InternalIP 10.0.0.4", "ExternalIP 20.0.0.1"]);
        // An instance of a uniform set, by the number in the name of its computer.
        let of_set = InstanceFacts { resource_id: format!("{SET}/virtualMachines/36"), ..facts() };
        let called = |name: &str| CloudNode { name: name.to_owned(), ..node(of_set.clone()) };
        assert!(called("agents000010").instance_of_metadata(SCOPE).is_some());
        for other in ["agents000011", "others000010", "agents", "36"] {
            assert_eq!(called(other).instance_of_metadata(SCOPE), None, "{other}");
        }
        // A provider id proves it whatever the Node is called.
        let id = format!("azure://{SET}/virtualMachines/36");
        let elsewhere = Scope { subscription: "t", resource_group: "h" };
        assert!(CloudNode { provider_id: Some(id), ..called("x") }.instance_of_metadata(elsewhere).is_some());
    }

    #[test]
    fn metadata_of_another_machine_of_an_earlier_boot_or_with_gaps_initialise_nothing() {
        let whole = node(facts());
        assert!(whole.instance_of_metadata(SCOPE).is_some());
        let other = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/w";
        for node in [
            CloudNode { name: "w".to_owned(), ..whole.clone() },
            CloudNode { resource_group: Some("other".to_owned()), ..whole.clone() },
            CloudNode { provider_id: Some(other.to_owned()), ..whole.clone() },
            CloudNode { boot_id: Some("b2".to_owned()), ..whole.clone() },
            CloudNode { boot_id: None, ..whole.clone() },
            CloudNode { boot_id: None, ..node(InstanceFacts { boot_id: None, ..facts() }) },
            CloudNode { provided_addresses: vec!["10.0.0.9".parse().unwrap()], ..whole.clone() },
            node(InstanceFacts { addresses: vec![], ..facts() }),
            node(InstanceFacts { location: None, ..facts() }),
            node(InstanceFacts { fault_domain: None, ..facts() }),
            node(InstanceFacts { vm_size: String::new(), ..facts() }),
        ] {
            assert_eq!(node.instance_of_metadata(SCOPE), None, "{node:?}");
        }
        for scope in [Scope { subscription: "t", ..SCOPE }, Scope { resource_group: "h", ..SCOPE }] {
            assert_eq!(whole.instance_of_metadata(scope), None);
        }
        // Where Azure proves the machine, its name does not matter.
        let renamed = CloudNode { name: "w".to_owned(), ..whole };
        assert!(renamed.instance_of(&machine("v")).is_some());
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
