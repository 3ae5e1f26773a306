//! The machines of a cluster, for commands that people run: those of its Nodes where a cluster is named, else those in the
//! configured resource group.

use std::collections::BTreeMap;

use lazuli_azure::{Until, compute::Compute};
use lazuli_cluster::list_nodes;
use lazuli_config::Config;
use lazuli_model::{ArmId, Vm, node::Machine};
use lazuli_storage::inventory::Inventory;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Which machine each name stands for.
#[derive(Debug, Default)]
pub(super) struct Machines {
    /// The machines by their names.
    pub(super) by_name: BTreeMap<String, ArmId>,
    /// The names of Nodes whose provider ids name no machine of Azure.
    pub(super) without_machine: Vec<String>,
}

/// Why a machine is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum MachineError {
    #[error("there is no Node {name}; the cluster has {known}")]
    NoNode { name: String, known: String },
    #[error(
        "there is no machine {name} in resource group {group}; it has {known}. With --kubeconfig the machines of the \
         cluster's Nodes are looked at"
    )]
    NoMachine { name: String, group: String, known: String },
    #[error("Node {0} has no provider id that names a machine of Azure; kubectl get node {0} -o yaml shows it")]
    NotInitialised(String),
}

/// How many names a message lists.
const SHOWN: usize = 10;

impl Machines {
    /// The machine of a name, in any letter case.
    pub(super) fn of(&self, name: &str, config: &Config, has_cluster: bool) -> Result<(&str, &ArmId), MachineError> {
        let found = self.by_name.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        if let Some((name, machine)) = found {
            return Ok((name, machine));
        }
        if self.without_machine.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return Err(MachineError::NotInitialised(name.to_owned()));
        }
        let mut known: Vec<&str> = self.by_name.keys().take(SHOWN).map(String::as_str).collect();
        if self.by_name.len() > SHOWN {
            known.push("...");
        }
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let name = name.to_owned();
        Err(match has_cluster {
            true => MachineError::NoNode { name, known },
            false => MachineError::NoMachine { name, group: config.cluster.resource_group.as_str().to_owned(), known },
        })
    }
}

/// The machines of the cluster.
pub(super) async fn of_cluster(
    config: &Config,
    client: Option<&kube::Client>,
    compute: &Compute,
    until: &Until,
) -> Result<Machines, AnyError> {
    let Some(client) = client else {
        let (subscription, group) = (&config.cluster.subscription_id, config.cluster.resource_group.as_str());
        let vms = in_group(compute, subscription, group, until).await?;
        let ids: Vec<ArmId> = vms.iter().map(|vm| vm.id.clone()).collect();
        let names = Inventory::new([], [], vms);
        let by_name = ids.into_iter().map(|id| (names.node(&id), id)).collect();
        return Ok(Machines { by_name, without_machine: Vec::new() });
    };
    let mut machines = Machines::default();
    for node in list_nodes(client).await? {
        match node.provider_id.as_deref().and_then(Machine::of_provider_id) {
            Some(machine) => drop(machines.by_name.insert(node.name, machine.id().clone())),
            None => machines.without_machine.push(node.name),
        }
    }
    Ok(machines)
}

/// The VMs of a resource group, and the instances of its uniform scale sets.
pub(super) async fn in_group(
    compute: &Compute,
    subscription: &str,
    group: &str,
    until: &Until,
) -> Result<Vec<Vm>, AnyError> {
    let mut vms = compute.list_vms(subscription, group, until).await?;
    for set in compute.list_uniform_sets(subscription, group, until).await? {
        vms.extend(compute.list_instances(&set.id, until).await?);
    }
    Ok(vms)
}
