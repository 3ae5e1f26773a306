//! Under which other names a process knows what a person names.

use lazuli_cluster::claimed_volume;
use lazuli_csi::server::chain;
use lazuli_journal::{Question, Resolved, Topic};
use lazuli_model::node::ClusterNodes;
use lazuli_storage::list::VolumeHandles;
use tokio::sync::watch;

/// Where a process finds other names.
pub(crate) enum Names {
    /// Nowhere.
    None,
    /// A controller of disks: PersistentVolumes and Nodes that it follows, and claims, which it reads.
    OfDisks {
        /// The handles of the PersistentVolumes.
        handles: watch::Receiver<VolumeHandles>,
        /// The Nodes.
        nodes: watch::Receiver<ClusterNodes>,
        /// The cluster.
        client: Option<kube::Client>,
    },
}

impl Names {
    /// The other names of what a question is about, and what is to be said where they could not be found.
    pub(crate) async fn of(&self, question: &Question) -> (Vec<Resolved>, Vec<String>) {
        let Self::OfDisks { handles, nodes, client } = self else { return (vec![], vec![]) };
        let name = &question.name;
        match question.topic {
            Topic::Disk if name.starts_with('/') => (vec![], vec![]),
            Topic::Disk => match name.split_once('/') {
                Some((namespace, claim)) => of_claim(handles, client.as_ref(), namespace, claim).await,
                None => (of_volume(handles, name, ""), vec![]),
            },
            Topic::Vm | Topic::Node => (of_node(&nodes.borrow(), name), vec![]),
            Topic::Service => (vec![], vec![]),
        }
    }
}

/// The disk of a PersistentVolume. `of` is what has led to it.
fn of_volume(handles: &watch::Receiver<VolumeHandles>, volume: &str, of: &str) -> Vec<Resolved> {
    let known = handles.borrow();
    let VolumeHandles::Synced(handles) = &*known else { return vec![] };
    let Some(handle) = handles.get(volume) else { return vec![] };
    let how = format!("{of}PersistentVolume {volume} is the disk {handle}");
    vec![Resolved { topic: Topic::Disk, name: handle.to_string(), how }]
}

async fn of_claim(
    handles: &watch::Receiver<VolumeHandles>,
    client: Option<&kube::Client>,
    namespace: &str,
    claim: &str,
) -> (Vec<Resolved>, Vec<String>) {
    let Some(client) = client else {
        return (vec![], vec!["This process has no cluster in which to look for a claim.".to_owned()]);
    };
    match claimed_volume(client, namespace, claim).await {
        Ok(Some(claimed)) => match claimed.volume {
            Some(volume) => {
                let found =
                    of_volume(handles, &volume, &format!("Claim {namespace}/{claim} has PersistentVolume {volume}; "));
                if !found.is_empty() {
                    return (found, vec![]);
                }
                let how = format!(
                    "Claim {namespace}/{claim} has PersistentVolume {volume}, which is no disk that this process knows"
                );
                (vec![Resolved { topic: Topic::Disk, name: volume, how }], vec![])
            }
            None => {
                let how = format!(
                    "Claim {namespace}/{claim} has no PersistentVolume yet; its disk will have the name {}",
                    claimed.disk_name
                );
                (vec![Resolved { topic: Topic::Disk, name: claimed.disk_name, how }], vec![])
            }
        },
        Ok(None) => (vec![], vec![format!("There is no PersistentVolumeClaim {namespace}/{claim}.")]),
        Err(error) => (vec![], vec![format!("The claim is not looked up: {}.", chain(&error))]),
    }
}

/// The machine of a Node.
fn of_node(nodes: &ClusterNodes, name: &str) -> Vec<Resolved> {
    let ClusterNodes::Known(nodes) = nodes else { return vec![] };
    let Some(machine) = nodes.get(name).and_then(|node| node.machine.as_ref()) else { return vec![] };
    let id = machine.id().as_str();
    vec![Resolved { topic: Topic::Vm, name: id.to_owned(), how: format!("Node {name} is the VM {id}") }]
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use lazuli_model::node::{KnownNodes, Machine, Node};

    use super::*;

    const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
    const VM: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";

    #[tokio::test]
    async fn volumes_and_nodes_are_found_among_what_is_followed() {
        let known = VolumeHandles::Synced(BTreeMap::from([("pv-1".to_owned(), Arc::from(DISK))]));
        let mut nodes = KnownNodes::default();
        let machine = Machine::of_id(VM.parse().expect("an id"));
        nodes.replace([("n".to_owned(), Node { machine, ..Node::default() })]);
        let nodes = watch::channel(ClusterNodes::Known(nodes)).1;
        let names = Names::OfDisks { handles: watch::channel(known).1, nodes, client: None };
        let of = async |topic, name: &str| {
            let (resolved, notes) = names.of(&Question { topic, name: name.into() }).await;
            (resolved.into_iter().map(|one| (one.topic, one.name)).collect::<Vec<_>>(), notes.len())
        };
        assert_eq!(of(Topic::Disk, "pv-1").await, (vec![(Topic::Disk, DISK.to_owned())], 0));
        assert_eq!(of(Topic::Disk, "pv-2").await, (vec![], 0));
        assert_eq!(of(Topic::Disk, DISK).await, (vec![], 0));
        assert_eq!(of(Topic::Disk, "db/data").await, (vec![], 1), "there is no cluster to ask");
        assert_eq!(of(Topic::Vm, "n").await, (vec![(Topic::Vm, VM.to_owned())], 0));
        assert_eq!(of(Topic::Node, "N").await, (vec![(Topic::Vm, VM.to_owned())], 0));
        assert_eq!(of(Topic::Service, "n").await, (vec![], 0));
        assert_eq!(Names::None.of(&Question { topic: Topic::Disk, name: "pv-1".into() }).await, (vec![], vec![]));
    }
}
