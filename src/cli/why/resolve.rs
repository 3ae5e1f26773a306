//! Under which other names a process knows what a person names.

use std::time::Duration;

use lazuli_azure::{
    Until,
    compute::{Compute, Freshness},
};
use lazuli_cluster::{TakenSnapshot, claimed_volume, taken_snapshot};
use lazuli_csi::server::chain;
use lazuli_diagnosis::snapshots::inventory::standing;
use lazuli_journal::{Question, Resolved, Topic};
use lazuli_model::{BlobUri, SnapshotId, node::ClusterNodes};
use lazuli_storage::list::VolumeHandles;
use lazuli_vhd::class::blob_name;
use tokio::sync::watch;

/// How long Azure may take to show a snapshot.
const IN_AZURE: Duration = Duration::from_secs(10);

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
        /// Azure, which is read where a person asks about a snapshot.
        azure: Option<Box<OfAzure>>,
    },
}

/// Where a snapshot is read.
pub(crate) struct OfAzure {
    /// Azure.
    pub(crate) compute: Compute,
    /// The subscription and the resource group of the cluster, where a handle that is a bare name belongs.
    pub(crate) cluster: (String, String),
}

impl Names {
    /// The other names of what a question is about, and what is to be said where they could not be found.
    pub(crate) async fn of(&self, question: &Question) -> (Vec<Resolved>, Vec<String>) {
        let Self::OfDisks { handles, nodes, client, azure } = self else { return (vec![], vec![]) };
        let name = &question.name;
        match question.topic {
            Topic::Disk if name.starts_with('/') => (vec![], vec![]),
            Topic::Disk if name.contains("://") => (of_address(name), vec![]),
            Topic::Disk => match name.split_once('/') {
                Some((namespace, claim)) => of_claim(handles, client.as_ref(), namespace, claim).await,
                None => (of_volume(handles, name, ""), vec![]),
            },
            Topic::Snapshot => of_snapshot(client.as_ref(), azure.as_deref(), name).await,
            Topic::Vm | Topic::Node => (of_node(&nodes.borrow(), name), vec![]),
            Topic::Service => (vec![], vec![]),
        }
    }
}

/// The name of a page blob, under which it is known until it has a storage account.
fn of_address(address: &str) -> Vec<Resolved> {
    let Ok(uri) = address.parse::<BlobUri>() else { return vec![] };
    let how = format!("The blob has the name {}", uri.name());
    vec![Resolved { topic: Topic::Disk, name: uri.name().to_owned(), how }]
}

/// The disk of a PersistentVolume. `of` is what has led to it.
fn of_volume(handles: &watch::Receiver<VolumeHandles>, volume: &str, of: &str) -> Vec<Resolved> {
    let known = handles.borrow();
    let VolumeHandles::Synced(handles) = &*known else { return vec![] };
    let Some(handle) = handles.get(volume) else { return vec![] };
    let how = format!("{of}PersistentVolume {volume} is the disk {handle}");
    let mut found = vec![Resolved { topic: Topic::Disk, name: handle.to_string(), how }];
    found.extend(of_address(&found[0].name));
    found
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
                let as_blob = blob_name(&claimed.disk_name);
                let how_as_blob = format!("As a VHD blob disk it will have the name {as_blob}");
                let one = |name, how| Resolved { topic: Topic::Disk, name, how };
                (vec![one(claimed.disk_name, how), one(as_blob, how_as_blob)], vec![])
            }
        },
        Ok(None) => (vec![], vec![format!("There is no PersistentVolumeClaim {namespace}/{claim}.")]),
        Err(error) => (vec![], vec![format!("The claim is not looked up: {}.", chain(&error))]),
    }
}

/// The snapshot in Azure of a VolumeSnapshot, of an id or of a name, and where it stands.
async fn of_snapshot(
    client: Option<&kube::Client>,
    azure: Option<&OfAzure>,
    name: &str,
) -> (Vec<Resolved>, Vec<String>) {
    let (mut resolved, mut notes) = (Vec::new(), Vec::new());
    let mut handle = name.to_owned();
    if let (false, Some((namespace, snapshot))) = (name.starts_with('/'), name.split_once('/')) {
        let Some(client) = client else {
            return (vec![], vec!["This process has no cluster in which to look for a VolumeSnapshot.".to_owned()]);
        };
        match taken_snapshot(client, namespace, snapshot).await {
            Ok(Some(taken)) => {
                handle = taken.handle.clone().unwrap_or_else(|| taken.request.clone());
                resolved.push(Resolved { topic: Topic::Snapshot, name: handle.clone(), how: how(name, &taken) });
                notes.extend(
                    taken.error.map(|error| format!("Its last failure, as external-snapshotter tells it: {error}")),
                );
                notes.push(format!("kubectl -n {namespace} describe volumesnapshot {snapshot} shows its events."));
            }
            Ok(None) => return (vec![], vec![format!("There is no VolumeSnapshot {name}.")]),
            Err(error) => return (vec![], vec![format!("The VolumeSnapshot is not looked up: {}.", chain(&error))]),
        }
    }
    notes.extend(in_azure(azure, &handle).await);
    (resolved, notes)
}

/// How a VolumeSnapshot has led to its snapshot in Azure.
fn how(name: &str, taken: &TakenSnapshot) -> String {
    let ready = if taken.is_ready { "ready" } else { "not ready" };
    match (&taken.content, &taken.handle) {
        (Some(content), Some(handle)) => {
            format!(
                "VolumeSnapshot {name} ({ready}) has VolumeSnapshotContent {content}, which is the snapshot {handle}"
            )
        }
        (Some(content), None) => format!(
            "VolumeSnapshot {name} ({ready}) has VolumeSnapshotContent {content}, which names no snapshot yet; external-snapshotter \
             asks for {}",
            taken.request
        ),
        (None, _) => format!(
            "VolumeSnapshot {name} ({ready}) has no VolumeSnapshotContent: it waits for the snapshot-controller; its snapshot will \
             have the name {}",
            taken.request
        ),
    }
}

/// Where a snapshot stands in Azure.
async fn in_azure(azure: Option<&OfAzure>, handle: &str) -> Option<String> {
    let azure = azure?;
    let id = SnapshotId::parse(handle, (&azure.cluster.0, &azure.cluster.1)).ok()?;
    let until = Until::within(IN_AZURE);
    match azure.compute.read_snapshot(id.snapshot(), Freshness::single(), &until).await {
        Ok(read) => Some(standing(&read.model)),
        Err(error) if error.fault.says_that_it_is_missing() => {
            Some(format!("Azure has no snapshot {}.", id.snapshot()))
        }
        Err(error) => Some(format!("The snapshot cannot be read in Azure: {}.", chain(&error))),
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
    const BLOB: &str = "https://ds1.blob.core.windows.net/vhds/pvc-1.vhd";
    const VM: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";

    #[tokio::test]
    async fn volumes_and_nodes_are_found_among_what_is_followed() {
        let handles = [("pv-1", DISK), ("pv-b", BLOB)].map(|(name, handle)| (name.to_owned(), Arc::from(handle)));
        let known = VolumeHandles::Synced(BTreeMap::from(handles));
        let mut nodes = KnownNodes::default();
        let machine = Machine::of_id(VM.parse().expect("an id"));
        nodes.replace([("n".to_owned(), Node { machine, ..Node::default() })]);
        let nodes = watch::channel(ClusterNodes::Known(nodes)).1;
        let names = Names::OfDisks { handles: watch::channel(known).1, nodes, client: None, azure: None };
        let of = async |topic, name: &str| {
            let (resolved, notes) = names.of(&Question { topic, name: name.into() }).await;
            (resolved.into_iter().map(|one| (one.topic, one.name)).collect::<Vec<_>>(), notes.len())
        };
        assert_eq!(of(Topic::Disk, "pv-1").await, (vec![(Topic::Disk, DISK.to_owned())], 0));
        assert_eq!(of(Topic::Disk, "pv-2").await, (vec![], 0));
        assert_eq!(of(Topic::Disk, DISK).await, (vec![], 0));
        // Until a blob has an account, its name alone is known.
        let named = (Topic::Disk, "pvc-1.vhd".to_owned());
        assert_eq!(of(Topic::Disk, "pv-b").await, (vec![(Topic::Disk, BLOB.to_owned()), named.clone()], 0));
        assert_eq!(of(Topic::Disk, BLOB).await, (vec![named], 0));
        assert_eq!(of(Topic::Disk, "https://nowhere").await, (vec![], 0));
        assert_eq!(of(Topic::Disk, "db/data").await, (vec![], 1), "there is no cluster to ask");
        assert_eq!(of(Topic::Vm, "n").await, (vec![(Topic::Vm, VM.to_owned())], 0));
        assert_eq!(of(Topic::Node, "N").await, (vec![(Topic::Vm, VM.to_owned())], 0));
        assert_eq!(of(Topic::Snapshot, "shop/nightly").await, (vec![], 1), "there is no cluster to ask");
        assert_eq!(of(Topic::Snapshot, "snapshot-1").await, (vec![], 0));
        assert_eq!(of(Topic::Service, "n").await, (vec![], 0));
        assert_eq!(Names::None.of(&Question { topic: Topic::Disk, name: "pv-1".into() }).await, (vec![], vec![]));
    }

    #[cfg(feature = "emulator")]
    #[tokio::test]
    async fn a_volume_snapshot_leads_to_its_snapshot_and_says_what_failed_last() {
        let server = lazuli_apiserver::ApiServer::start(lazuli_apiserver::Options::default());
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/snapshots/snapshot-1";
        let of = |name: &str, status: serde_json::Value| {
            let metadata = serde_json::json!({"name": name, "namespace": "shop"});
            let object = serde_json::json!({"metadata": metadata, "spec": {}, "status": status});
            server.put("volumesnapshots", object).expect("is taken")
        };
        let bound = serde_json::json!({"boundVolumeSnapshotContentName": "c", "error": {"message": "too many"}});
        of("nightly", bound);
        let fresh = of("fresh", serde_json::Value::Null);
        let source = serde_json::json!({"volumeHandle": DISK});
        let spec = serde_json::json!({"driver": "disk.csi.azure.com", "source": source, "deletionPolicy": "Delete"});
        let status = serde_json::json!({"snapshotHandle": id});
        let content = serde_json::json!({"metadata": {"name": "c"}, "spec": spec, "status": status});
        server.put("volumesnapshotcontents", content).expect("is taken");
        let client = kube::Client::new(server.router(), "default");
        let (resolved, notes) = of_snapshot(Some(&client), None, "shop/nightly").await;
        assert_eq!((resolved[0].name.as_str(), resolved[0].topic), (id, Topic::Snapshot));
        assert!(resolved[0].how.contains("VolumeSnapshotContent c") && notes[0].contains("too many"), "{notes:?}");
        let (resolved, _) = of_snapshot(Some(&client), None, "shop/fresh").await;
        let uid = fresh["metadata"]["uid"].as_str().expect("has a uid");
        assert_eq!(resolved[0].name, format!("snapshot-{uid}"));
        assert!(resolved[0].how.contains("waits for the snapshot-controller"), "{}", resolved[0].how);
        let (resolved, notes) = of_snapshot(Some(&client), None, "shop/gone").await;
        assert!(resolved.is_empty() && notes[0].contains("There is no VolumeSnapshot"), "{notes:?}");
    }
}
