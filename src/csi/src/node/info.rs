//! What this node is: its zone, and how many volumes it takes.
//!
//! kubelet asks once, at registration, and a failure is only tried again when the registration socket appears anew
//! (which [`crate::registration`] sees to). So the answer is quick, and it is right or none: a wrong zone would
//! be refused as a collision with the node's label, or worse, be believed. What the instance metadata said last is
//! remembered on disk for the time when it does not answer; where it never has, the Node's labels tell.

use std::{collections::BTreeSet, io, path::PathBuf, sync::Arc};

use csi_proto::csi::{NodeGetInfoResponse, Topology};
use lazuli_azure::imds::{Instance, InstanceDisk, InstanceDiskSource};
use lazuli_host::{Deadline, device, mount};
use lazuli_model::{VolumeId, node::MachineLabels, size};
use lazuli_volume::{DISK_TOPOLOGY_KEY, WELL_KNOWN_TOPOLOGY_KEY, zone_label};
use serde::{Deserialize, Serialize};

use super::{Node, ZoneSupport, error::NodeError};

/// What is remembered of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Machine {
    location: String,
    zone: Option<String>,
    vm_size: String,
    foreign_disks: u32,
}

/// Answers `NodeGetInfo`.
pub(super) async fn info(node: &Node) -> Result<NodeGetInfoResponse, NodeError> {
    let machine = machine(node).await?;
    let config = &node.config;
    let (vm_size, foreign) =
        machine.as_ref().map_or(("", 0), |machine| (machine.vm_size.as_str(), machine.foreign_disks));
    let most = config.sizes.borrow().max_data_disks(vm_size);
    let limit = size::attach_limit(most, config.max_volumes, config.reserved_slots, foreign);
    Ok(NodeGetInfoResponse {
        node_id: config.node_id.clone(),
        max_volumes_per_node: limit.into(),
        accessible_topology: Some(Topology { segments: segments(config.zones, machine.as_ref()) }),
    })
}

/// The topology. A zonal node has the driver's key and Kubernetes' own. Any other has the driver's key only, empty:
/// its Kubernetes label may hold a fault domain, and kubelet refuses a second value.
fn segments(zones: ZoneSupport, machine: Option<&Machine>) -> std::collections::HashMap<String, String> {
    let zone = machine.filter(|_| zones == ZoneSupport::On).and_then(|machine| {
        let number = machine.zone.as_deref()?;
        Some(zone_label(&machine.location, number))
    });
    match zone {
        Some(zone) => [DISK_TOPOLOGY_KEY, WELL_KNOWN_TOPOLOGY_KEY].map(|key| (key.to_owned(), zone.clone())).into(),
        None => [(DISK_TOPOLOGY_KEY.to_owned(), String::new())].into(),
    }
}

/// The machine by the metadata, else by memory; `None` when no metadata service is used.
async fn machine(node: &Node) -> Result<Option<Machine>, NodeError> {
    let Some(imds) = &node.imds else { return Ok(None) };
    let wait = node.config.timeouts.instance;
    // Side by side: kubelet waits for the answer.
    let (answer, attached) = tokio::join!(tokio::time::timeout(wait, imds.refresh()), attached(node));
    let answer = match answer {
        Ok(answer) => answer.map_err(NodeError::Instance),
        Err(_) => Err(NodeError::Silent(wait)),
    };
    match answer {
        Ok(instance) => {
            let machine = Machine {
                location: instance.location.clone(),
                zone: instance.zone.clone(),
                vm_size: instance.vm_size.clone(),
                foreign_disks: foreign_disks(node, &instance, attached).await,
            };
            if let Err(error) = write(node.memory(), &machine).await {
                tracing::warn!(%error, "cannot remember what this machine is");
            }
            Ok(Some(machine))
        }
        Err(error) => match read(node.memory()).await {
            Some(machine) => {
                let error = crate::server::chain(&error);
                tracing::warn!(error, "answering from memory what this machine is");
                Ok(Some(machine))
            }
            None => match labelled(node).await {
                Some(machine) => {
                    let error = crate::server::chain(&error);
                    tracing::warn!(error, "answering from the Node's labels what this machine is");
                    Ok(Some(machine))
                }
                None => Err(error),
            },
        },
    }
}

/// The machine by the labels of its Node. They do not tell of disks that are not Kubernetes'.
async fn labelled(node: &Node) -> Option<Machine> {
    let labels = node.config.labels.as_ref()?;
    let read = tokio::time::timeout(node.config.timeouts.instance, labels.read()).await.ok()??;
    let MachineLabels { region, zone, vm_size } = read;
    let number = zone.as_deref().and_then(|zone| zone.strip_prefix(&region)?.strip_prefix('-'));
    Some(Machine { zone: number.map(str::to_owned), location: region, vm_size, foreign_disks: 0 })
}

/// The size of this VM, as remembered since the node was registered.
pub(super) async fn vm_size(node: &Node) -> Option<String> {
    Some(read(node.memory()).await?.vm_size)
}

async fn write(path: PathBuf, machine: &Machine) -> io::Result<()> {
    let text = serde_json::to_vec(machine)?;
    // Whole or not at all.
    let part = path.with_extension("part");
    tokio::fs::write(&part, text).await?;
    tokio::fs::rename(&part, &path).await
}

async fn read(path: PathBuf) -> Option<Machine> {
    serde_json::from_slice(&tokio::fs::read(path).await.ok()?).ok()
}

/// The disks that Kubernetes has attached to this node, folded; none where that cannot be read.
async fn attached(node: &Node) -> BTreeSet<String> {
    let Some(reader) = &node.config.attached else { return BTreeSet::new() };
    let read = tokio::time::timeout(node.config.timeouts.instance, reader.read()).await.ok().flatten();
    read.unwrap_or_default().iter().filter_map(|handle| folded(handle)).collect()
}

/// The disk of a volume handle, in one letter case.
fn folded(handle: &str) -> Option<String> {
    Some(handle.parse::<VolumeId>().ok()?.disk().folded().to_owned())
}

/// How many data disks of the machine take a slot that Kubernetes does not know of.
///
/// Ours are those that Kubernetes has attached (it counts each of them against the limit itself, so one that is not
/// staged yet must not be taken from the limit as well), those this node has staged, those that are mounted for kubelet
/// (another driver version may have staged them), and those whose names external-provisioner gave: they may be on their
/// way to be attached.
async fn foreign_disks(node: &Node, instance: &Arc<Instance>, attached: BTreeSet<String>) -> u32 {
    let mut known = attached;
    known.extend(node.all_records().await.into_keys().filter_map(|volume| folded(&volume)));
    let mounted: BTreeSet<_> = mount::table(&node.host)
        .await
        .unwrap_or_default()
        .iter()
        .filter(|mount| mount.target.to_string_lossy().contains("/kubernetes.io/csi/"))
        .map(mount::number_of)
        .collect();
    let deadline = Deadline::after(node.config.timeouts.instance);
    let mut foreign = 0;
    for disk in &instance.data_disks {
        if is_known(disk, &known) {
            continue;
        }
        let found = device::find_by_lun(&node.host, disk.lun.get().into());
        let number = tokio::time::timeout_at(deadline.instant(), found).await;
        match number {
            Ok(Ok(device)) if mounted.contains(&device.number) => {}
            _ => foreign += 1,
        }
    }
    foreign
}

/// Whether the disk is one of those that are attached or staged, or has a name that external-provisioner gives.
fn is_known(disk: &InstanceDisk, known: &BTreeSet<String>) -> bool {
    let is_claim = disk.name.strip_prefix("pvc-").is_some_and(|rest| uuid::Uuid::try_parse(rest).is_ok());
    let is_known = match &disk.source {
        InstanceDiskSource::Managed(id) => known.contains(id.folded()),
        InstanceDiskSource::Vhd(_) | InstanceDiskSource::Unknown => false,
    };
    is_claim || is_known
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn machine(zone: Option<&str>) -> Machine {
        Machine {
            location: "West Europe".into(),
            zone: zone.map(str::to_owned),
            vm_size: "Standard_D2s_v3".into(),
            foreign_disks: 0,
        }
    }

    fn topology(zones: ZoneSupport, machine: Option<&Machine>) -> BTreeMap<String, String> {
        segments(zones, machine).into_iter().collect()
    }

    #[test]
    fn a_zonal_node_has_both_keys_in_lower_case() {
        let both = topology(ZoneSupport::On, Some(&machine(Some("2"))));
        let expected = [DISK_TOPOLOGY_KEY, WELL_KNOWN_TOPOLOGY_KEY].map(|key| (key.into(), "westeurope-2".into()));
        assert_eq!(both, expected.into());
    }

    #[test]
    fn a_node_without_a_zone_leaves_kubernetes_key_alone() {
        let empty = BTreeMap::from([(DISK_TOPOLOGY_KEY.to_owned(), String::new())]);
        assert_eq!(topology(ZoneSupport::On, Some(&machine(None))), empty);
        assert_eq!(topology(ZoneSupport::On, None), empty);
        assert_eq!(topology(ZoneSupport::Off, Some(&machine(Some("2")))), empty);
    }

    #[test]
    fn a_disk_that_neither_this_node_nor_a_provisioner_knows_is_foreign() {
        let id = "/subscriptions/S/resourceGroups/g/providers/Microsoft.Compute/disks/d";
        let disk = |name: &str| InstanceDisk {
            lun: 0i64.try_into().unwrap(),
            source: InstanceDiskSource::Managed(id.parse().unwrap()),
            name: name.into(),
            size: None,
            bytes: None,
        };
        assert!(is_known(&disk("d"), &[folded(id).unwrap()].into()));
        assert!(is_known(&disk("pvc-0e8f3a0e-5bb8-4f0c-9a53-2f9f1b8a5d11"), &[].into()));
        assert!(!is_known(&disk("pvc-by-hand"), &[].into()));
        assert!(!is_known(&disk("backup"), &[].into()));
    }
}
