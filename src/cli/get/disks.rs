//! `lazuli get disks`: which volume each managed disk is and which machine holds it at which LUN; with `--node`, what one
//! machine holds and which LUN is free next.

use std::collections::BTreeSet;

use clap::Args;
use lazuli_assembly::clients::Azure;
use lazuli_azure::Until;
use lazuli_cluster::{list_nodes, list_reservations, list_volumes, published_sizes};
use lazuli_config::Config;
use lazuli_csi::identity::DISK_DRIVER;
use lazuli_model::{ArmId, Disk, DiskState, Vm, node::Machine, size::SizeLimits};
use lazuli_storage::{
    disk::inventory::{Holder, Inventory, Row, Slot, Slots, Volume, VolumeNames, slots},
    list::{HandleCasing, ResourceGroup, groups},
    lun::{LunReservations, NodeReservations},
};
use serde_json::{Value, json};

use super::{
    super::{connect::connected, machines, output::Format},
    Common, NONE, PATIENCE, Table, or_none,
};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Args)]
pub(super) struct Disks {
    /// Show what the machine of this Node holds at each LUN, and the LUN that the next disk would get. Without a cluster:
    /// the VM or the computer of this name in the configured resource group.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn printed(options: &Disks) -> Result<String, AnyError> {
    let (client, config, azure) = connected(&options.common.cloud).await?;
    let until = Until::within(PATIENCE);
    let volumes = match &client {
        Some(client) => list_volumes(client, DISK_DRIVER).await?,
        None => Vec::new(),
    };
    match &options.node {
        None => {
            let rows = rows(&config, client.as_ref(), &azure, volumes, &until).await?;
            Ok(of_disks(&rows, options.common.output))
        }
        Some(name) => {
            let machines = machines::of_cluster(&config, client.as_ref(), &azure.compute, &until).await?;
            let (node, id) = machines.of(name, &config, client.is_some())?;
            let vm = azure.compute.get_vm(id, &until).await?.model;
            let (reserved, sizes) = match &client {
                Some(client) => {
                    let sizes = published_sizes(client).await.unwrap_or_else(|error| {
                        tracing::warn!(%error, "the sizes of newer VMs are not known");
                        SizeLimits::default()
                    });
                    (list_reservations(client, DISK_DRIVER, &volumes).await?, sizes)
                }
                None => (LunReservations::NoCluster, SizeLimits::default()),
            };
            let reserved: NodeReservations = reserved.of_node(&[node]);
            let most = sizes.max_data_disks(&vm.size);
            let held = slots(&Inventory::new(volumes, [], []), &vm, most, &reserved);
            Ok(of_node(node, &vm, &held, options.common.output))
        }
    }
}

/// The disks of the configured group and of each group that a PersistentVolume names.
async fn rows(
    config: &Config,
    client: Option<&kube::Client>,
    azure: &Azure,
    volumes: Vec<Volume>,
    until: &Until,
) -> Result<Vec<Row>, AnyError> {
    let own = ResourceGroup {
        subscription: config.cluster.subscription_id.clone(),
        name: config.cluster.resource_group.as_str().to_owned(),
    };
    let mut handles = HandleCasing::default();
    handles.extend(volumes.iter().map(|volume| volume.handle.as_str()));
    let mut disks: Vec<Disk> = Vec::new();
    for group in groups(&own, &handles) {
        match azure.compute.list_disks(&group.subscription, &group.name, until).await {
            Ok(listed) => disks.extend(listed),
            // Another group than the cluster's may be closed to this identity; its disks are left out, and it is said.
            Err(error) if group != own => {
                tracing::warn!(group = group.name, %error, "the disks of a resource group cannot be listed");
            }
            Err(error) => return Err(error.into()),
        }
    }
    let nodes: Vec<(ArmId, String)> = match client {
        Some(client) => {
            let machine = |id: Option<String>| Some(Machine::of_provider_id(&id?)?.id().clone());
            let nodes = list_nodes(client).await?.into_iter();
            nodes.filter_map(|node| Some((machine(node.provider_id)?, node.name))).collect()
        }
        None => Vec::new(),
    };
    let mut machines = machines::in_group(&azure.compute, &own.subscription, &own.name, until).await?;
    machines.extend(elsewhere(&disks, &machines, azure, until).await);
    Ok(Inventory::new(volumes, nodes, machines).rows(&disks))
}

/// The machines that hold disks and are in no list so far: those of other groups.
async fn elsewhere(disks: &[Disk], known: &[Vm], azure: &Azure, until: &Until) -> Vec<Vm> {
    let known: BTreeSet<&ArmId> = known.iter().map(|vm| &vm.id).collect();
    let holders = disks.iter().flat_map(Disk::holders).filter(|holder| !known.contains(holder));
    let mut found = Vec::new();
    for holder in holders.collect::<BTreeSet<_>>() {
        match azure.compute.get_vm(holder, until).await {
            Ok(vm) => found.push(vm.model),
            Err(error) => tracing::warn!(machine = %holder, %error, "a machine that holds a disk cannot be read"),
        }
    }
    found
}

fn name_or_none(text: Option<&String>) -> String {
    or_none(text.cloned())
}

fn held_at(holder: &Holder) -> String {
    let lun = holder.lun.map_or_else(|| NONE.to_owned(), |lun| lun.to_string());
    if holder.is_leaving { format!("{lun} (detaching)") } else { lun }
}

fn volume_json(names: &VolumeNames) -> (Value, Value) {
    (json!(names.volume), json!(names.claim))
}

fn of_disks(rows: &[Row], format: Format) -> String {
    match format {
        Format::Json => {
            let disk = |row: &Row| {
                let (volume, claim) = volume_json(&row.names);
                let holder = |one: &Holder| json!({"node": one.node, "lun": one.lun, "detaching": one.is_leaving});
                json!({"name": row.id.name(), "id": row.id.as_str(), "resourceGroup": row.id.resource_group(),
                    "volume": volume, "claim": claim, "sizeGib": row.size.get(),
                    "sku": row.sku.map(|sku| sku.as_str()), "zones": row.zones,
                    "state": row.state.map(DiskState::as_str),
                    "attached": row.holders.iter().map(holder).collect::<Vec<_>>()})
            };
            format!("{}\n", json!({"disks": rows.iter().map(disk).collect::<Vec<_>>()}))
        }
        Format::Text => {
            let cells = |row: &Row| {
                vec![
                    row.id.name().to_owned(),
                    row.id.resource_group().to_owned(),
                    name_or_none(row.names.volume.as_ref()),
                    name_or_none(row.names.claim.as_ref()),
                    format!("{} GiB", row.size.get()),
                    or_none(row.sku.map(|sku| sku.to_string())),
                    or_none(row.zones.iter().cloned()),
                    or_none(row.state.map(|state| state.to_string())),
                    or_none(row.holders.iter().map(|holder| holder.node.clone())),
                    or_none(row.holders.iter().map(held_at)),
                ]
            };
            let columns = &["name", "resource group", "volume", "claim", "size", "sku", "zone", "state", "node", "lun"];
            Table { columns, rows: rows.iter().map(cells).collect() }.print(Format::Text)
        }
    }
}

fn of_node(node: &str, vm: &Vm, slots: &Slots, format: Format) -> String {
    match format {
        Format::Json => {
            let held = slots.held.iter().map(|slot| {
                let (volume, claim) = volume_json(&slot.names);
                json!({"lun": slot.lun, "disk": slot.disk, "volume": volume, "claim": claim,
                    "caching": slot.caching.as_str(), "detaching": slot.is_leaving})
            });
            let printed = json!({"node": node, "machine": vm.id.as_str(), "size": vm.size, "mostDisks": slots.most,
                "nextFreeLun": slots.next_free, "disks": held.collect::<Vec<_>>()});
            format!("{printed}\n")
        }
        Format::Text => {
            let cells = |slot: &Slot| {
                vec![
                    if slot.is_leaving { format!("{} (detaching)", slot.lun) } else { slot.lun.to_string() },
                    slot.disk.parse::<ArmId>().map_or_else(|_| slot.disk.clone(), |id| id.name().to_owned()),
                    name_or_none(slot.names.volume.as_ref()),
                    name_or_none(slot.names.claim.as_ref()),
                    slot.caching.to_string(),
                ]
            };
            let columns = &["lun", "disk", "volume", "claim", "caching"];
            let table = Table { columns, rows: slots.held.iter().map(cells).collect() }.print(Format::Text);
            let most = slots.most.map_or_else(String::new, |most| format!(" of {most}"));
            let next = match slots.next_free {
                Some(lun) => format!("the next free LUN is {lun}"),
                None => "no LUN is free".to_owned(),
            };
            format!("{table}\n{node} ({}) holds {}{most} data disks; {next}\n", vm.size, slots.held.len())
        }
    }
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests {
    use clap::Parser;
    use lazuli_emulator::scenario::{self, AttachTo, Disk as PlacedDisk, Scenario};
    use lazuli_rig::cluster::Cluster;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Disks,
    }

    fn disk(name: &str, at: Option<(&str, u8)>, tags: &[(&str, &str)]) -> PlacedDisk {
        PlacedDisk {
            name: name.to_owned(),
            size_gib: 8,
            sku: "Premium_LRS".to_owned(),
            zone: None,
            resource_group: None,
            attach_to: at.map(|(vm, lun)| AttachTo { vm: vm.to_owned(), lun }),
            tags: tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        }
    }

    async fn start() -> Cluster {
        let tags = [("kubernetes.io-created-for-pvc-name", "old"), ("kubernetes.io-created-for-pvc-namespace", "shop")];
        let disks =
            vec![disk("a", Some(("node-0", 0)), &[]), disk("b", None, &tags), disk("c", Some(("node-0", 2)), &[])];
        let scenario = Scenario { disks, ..Scenario::default() };
        let options = lazuli_emulator::Options { scenario, ..Default::default() };
        Cluster::start(options, &[]).await.unwrap()
    }

    async fn got(arguments: &[String], more: &[&str]) -> Result<String, String> {
        let words = ["disks".to_owned()].into_iter().chain(arguments.iter().cloned());
        let options = Command::parse_from(words.chain(more.iter().map(|word| (*word).to_owned()))).options;
        Box::pin(printed(&options)).await.map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn disks_are_printed_with_volume_machine_and_lun() {
        let cluster = start().await;
        let id = |name: &str| ArmId::disk(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, name).unwrap().to_string();
        let csi = json!({"driver": DISK_DRIVER, "volumeHandle": id("a")});
        let claim = json!({"namespace": "shop", "name": "data"});
        let volume = json!({"metadata": {"name": "pv-a"}, "spec": {"csi": csi, "claimRef": claim}});
        cluster.server.put("persistentvolumes", volume).unwrap();
        let all = cluster.arguments();
        let text = got(&all, &[]).await.unwrap();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        let group = scenario::RESOURCE_GROUP;
        assert_eq!(
            rows,
            [
                vec!["NAME", "RESOURCE GROUP", "VOLUME", "CLAIM", "SIZE", "SKU", "ZONE", "STATE", "NODE", "LUN"],
                vec!["a", group, "pv-a", "shop/data", "8 GiB", "Premium_LRS", "-", "Attached", "node-0", "0"],
                vec!["b", group, "-", "shop/old", "8 GiB", "Premium_LRS", "-", "Unattached", "-", "-"],
                vec!["c", group, "-", "-", "8 GiB", "Premium_LRS", "-", "Attached", "node-0", "2"],
            ],
            "{text}"
        );
        let printed: Value = serde_json::from_str(&got(&all, &["--output=json"]).await.unwrap()).unwrap();
        assert_eq!(printed["disks"][0]["attached"], json!([{"node": "node-0", "lun": 0, "detaching": false}]));
        assert_eq!((&printed["disks"][0]["claim"], &printed["disks"][1]["sizeGib"]), (&json!("shop/data"), &json!(8)));
        cluster.azure.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_node_its_luns_are_printed_and_the_next_free_one() {
        let cluster = start().await;
        let all = cluster.arguments();
        // Without a cluster, the machine of that name.
        let alone: Vec<String> = all.iter().filter(|word| !word.starts_with("--kubeconfig")).cloned().collect();
        let printed: Value =
            serde_json::from_str(&got(&alone, &["--node=NODE-0", "--output=json"]).await.unwrap()).unwrap();
        assert_eq!(
            (&printed["node"], &printed["nextFreeLun"], &printed["mostDisks"]),
            (&json!("node-0"), &json!(1), &json!(16))
        );
        let luns: Vec<&Value> = printed["disks"].as_array().unwrap().iter().map(|disk| &disk["lun"]).collect();
        assert_eq!(luns, [0, 2]);
        // A LUN that a VolumeAttachment names is not free.
        let attachment = json!({"metadata": {"name": "csi-1"},
            "spec": {"attacher": DISK_DRIVER, "nodeName": "node-0", "source": {"persistentVolumeName": "gone"}},
            "status": {"attached": false, "attachmentMetadata": {"LUN": "1"}}});
        cluster.server.put("volumeattachments", attachment).unwrap();
        let text = got(&all, &["--node=node-0"]).await.unwrap();
        assert!(text.starts_with("LUN  DISK"), "{text}");
        let last = text.lines().last();
        assert_eq!(last, Some("node-0 (Standard_D8s_v3) holds 2 of 16 data disks; the next free LUN is 3"));
        let unknown = got(&all, &["--node=nobody"]).await.unwrap_err();
        assert_eq!(unknown, "there is no Node nobody; the cluster has node-0, node-1");
        cluster.azure.shutdown().await;
    }
}
