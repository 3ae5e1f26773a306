//! `lazuli get disks`: which volume each disk is and which machine holds it at which LUN; with `--node`, what one machine
//! holds and which LUN is free next.
//!
//! VHD blob disks are looked for in every cluster: in the accounts that a driver made for disks, and where PersistentVolumes
//! name some. What of them cannot be read is said, and fails nothing.

use std::collections::BTreeSet;

use clap::Args;
use lazuli_assembly::{clients::Azure, services};
use lazuli_azure::Until;
use lazuli_cluster::{list_nodes, list_reservations, list_volumes, published_sizes};
use lazuli_config::Config;
use lazuli_csi::identity::DISK_DRIVER;
use lazuli_journal::Recorder;
use lazuli_model::{
    ArmId, BlobUri, Completion, DataDisk, DataDiskSource, Disk, DiskState, SystemDisk, Vm, node::Machine,
    size::SizeLimits,
};
use lazuli_reconcile::metrics::Metrics;
use lazuli_storage::{
    inventory::{BlobFacts, Holder, Inventory, Row, Slots, Volume, VolumeNames, slots},
    list::{HandleCasing, ResourceGroup, groups},
    lun::{LunReservations, NodeReservations},
};
use lazuli_vhd::{
    lease::Lease,
    shown::{FooterState, SeenDisk},
};
use serde_json::{Map, Value, json};

use super::{
    super::{
        connect::connected,
        machines,
        output::{Field, Item, List, joined},
        table::{
            Column, NONE,
            Shown::{Always, Wide, WithRoom},
        },
    },
    Common, PATIENCE,
};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Args)]
pub(super) struct Disks {
    /// Show the disks of the machine of this Node in the order of LUNs, and the LUN that the next disk would get. Without a
    /// cluster: the VM or the computer of this name in the configured resource group.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn list(options: &Disks) -> Result<List, AnyError> {
    let (client, config, azure) = connected(&options.common.cloud).await?;
    Box::pin(listed(options, client, &config, &azure)).await
}

async fn listed(
    options: &Disks,
    client: Option<kube::Client>,
    config: &Config,
    azure: &Azure,
) -> Result<List, AnyError> {
    let until = Until::within(PATIENCE);
    let volumes = match &client {
        Some(client) => list_volumes(client, DISK_DRIVER).await?,
        None => Vec::new(),
    };
    match &options.node {
        None => Ok(of_rows(&rows(config, client.as_ref(), azure, volumes, &until).await?)),
        Some(name) => {
            let machines = machines::of_cluster(config, client.as_ref(), &azure.compute, &until).await?;
            let (node, id) = machines.of(name, config, client.is_some())?;
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
            let held = slots(&vm, sizes.max_data_disks(&vm.size), &reserved);
            let nodes = machines.by_name.iter().map(|(name, id)| (id.clone(), name.clone())).collect();
            let rows = rows_of(config, (volumes, nodes), &vm, azure, &until).await?;
            Ok(of_node(node, &vm, &rows, &held))
        }
    }
}

/// The disks in these groups. Another group than the cluster's may be closed to this identity; its disks are left out, and it
/// is said.
async fn in_groups(
    groups: impl IntoIterator<Item = ResourceGroup>,
    own: &ResourceGroup,
    azure: &Azure,
    until: &Until,
) -> Result<Vec<Disk>, AnyError> {
    let mut disks: Vec<Disk> = Vec::new();
    for group in groups {
        match azure.compute.list_disks(&group.subscription, &group.name, until).await {
            Ok(listed) => disks.extend(listed),
            Err(error) if group != *own => {
                tracing::warn!(group = group.name, %error, "the disks of a resource group cannot be listed");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(disks)
}

fn own_group(config: &Config) -> ResourceGroup {
    ResourceGroup {
        subscription: config.cluster.subscription_id.clone(),
        name: config.cluster.resource_group.as_str().to_owned(),
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
    let own = own_group(config);
    let mut handles = HandleCasing::default();
    handles.extend(volumes.iter().map(|volume| volume.handle.as_str()));
    let disks = in_groups(groups(&own, &handles), &own, azure, until).await?;
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
    let blobs = Box::pin(blobs(azure, &volumes, &machines)).await;
    let inventory = Inventory::new(volumes, nodes, machines);
    let mut rows = inventory.rows(&disks);
    rows.extend(inventory.blob_rows(&blobs, &own.subscription));
    Ok(rows)
}

/// The VHD blob disks. A cluster without any may have no right to read accounts: then nothing is said of it.
async fn blobs(azure: &Azure, volumes: &[Volume], machines: &[Vm]) -> Vec<SeenDisk> {
    let handles: Vec<BlobUri> = volumes.iter().filter_map(|volume| volume.handle.parse().ok()).collect();
    let takes_blobs = |vm: &Vm| vm.system_disk == SystemDisk::Blob || !blobs_of(vm).is_empty();
    let is_expected = !handles.is_empty() || machines.iter().any(takes_blobs);
    let disks = services::blob_disks(azure, Metrics::unregistered(), Recorder::nowhere());
    match disks.inspect(handles).await {
        Ok(seen) => readable(seen.disks, seen.unreadable),
        Err(error) if is_expected => {
            tracing::warn!(%error, "the VHD blob disks cannot be looked for");
            Vec::new()
        }
        Err(error) => {
            tracing::debug!(%error, "no VHD blob disks are looked for");
            Vec::new()
        }
    }
}

/// What can be read; the rest is said.
fn readable<E: std::error::Error + 'static>(seen: Vec<SeenDisk>, unreadable: Vec<(String, E)>) -> Vec<SeenDisk> {
    for (what, error) in unreadable {
        let error = lazuli_model::chain(&error);
        tracing::warn!(of = what, error, "what is known of VHD blob disks is not whole");
    }
    seen
}

/// The page blobs that a machine lists.
fn blobs_of(vm: &Vm) -> Vec<BlobUri> {
    let blob = |element: &DataDisk| match &element.source {
        DataDiskSource::Disk(id) => id.blob().cloned(),
        DataDiskSource::Other(_) => None,
    };
    vm.data_disks.iter().filter_map(blob).collect()
}

/// The disks that one machine lists, with what the groups of these disks say of them.
async fn rows_of(
    config: &Config,
    (volumes, nodes): (Vec<Volume>, Vec<(ArmId, String)>),
    vm: &Vm,
    azure: &Azure,
    until: &Until,
) -> Result<Vec<Row>, AnyError> {
    let own = own_group(config);
    let mut handles = HandleCasing::default();
    let managed = |element: &DataDisk| match &element.source {
        DataDiskSource::Disk(id) => id.managed().cloned(),
        DataDiskSource::Other(_) => None,
    };
    let managed: Vec<ArmId> = vm.data_disks.iter().filter_map(managed).collect();
    handles.extend(managed.iter().map(ArmId::as_str));
    let mut disks = in_groups(groups(&own, &handles), &own, azure, until).await?;
    disks.retain(|disk| managed.contains(&disk.id));
    let mut machines = vec![vm.clone()];
    machines.extend(elsewhere(&disks, &machines, azure, until).await);
    let blobs = match blobs_of(vm) {
        none if none.is_empty() => Vec::new(),
        listed => {
            let disks = services::blob_disks(azure, Metrics::unregistered(), Recorder::nowhere());
            match Box::pin(disks.inspect_alone(listed)).await {
                Ok(seen) => readable(seen.disks, seen.unreadable),
                Err(error) => readable(Vec::new(), vec![(vm.id.name().to_owned(), error)]),
            }
        }
    };
    Ok(Inventory::new(volumes, nodes, machines).rows_of(&vm.id, &disks, &blobs))
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

// The volume of a claim has the name of its disk, so that it goes early.
const COLUMNS: [Column; 15] = [
    Column::new("NAME", Always),
    Column::new("RESOURCE GROUP", WithRoom(1)),
    Column::new("VOLUME", WithRoom(2)),
    Column::new("CLAIM", Always),
    Column::new("SIZE", WithRoom(10)),
    Column::new("SKU", WithRoom(4)),
    Column::new("ZONE", WithRoom(3)),
    Column::new("KIND", WithRoom(6)),
    Column::new("ACCOUNT", WithRoom(9)),
    Column::new("STATE", WithRoom(5)),
    Column::new("LEASE", WithRoom(8)),
    Column::new("FOOTER", WithRoom(7)),
    Column::new("NODE", Always),
    Column::new("LUN", Always),
    Column::new("CACHING", Wide),
];

/// The columns that are there only where there is a VHD blob disk.
const OF_BLOBS: [&str; 4] = ["KIND", "ACCOUNT", "LEASE", "FOOTER"];

/// The fields of a disk.
pub(super) const FIELDS: &[Field] = &[
    ("name", "of the disk"),
    ("id", "its ARM id; of a VHD blob its address; of anything else what stands in its place"),
    (
        "kind",
        "Managed; of a VHD blob Shared, Dedicated, or Blob where its account is one of somebody's own; null where it was not read",
    ),
    ("resourceGroup", "of a VHD blob that of its account; null where it was not read"),
    ("volume", "the PersistentVolume, or null"),
    ("claim", "NAMESPACE/NAME, or null"),
    ("sizeGib", "GiB; null where the disk could not be read"),
    ("sku", "such as Premium_LRS; of a VHD blob that of its account"),
    ("zones", "a list"),
    ("state", "as Azure names it, such as Attached; of a VHD blob by its lease"),
    (
        "filledPercent",
        "how much is filled of a disk that Azure still fills: a copy, or one that gets another type; else null",
    ),
    ("attached", "a list: node; lun (null where the machine does not list the disk); caching; detaching"),
    (
        "blob",
        "null for what is no VHD blob that was read, or: account; lease (free, held or unknown); leasedTo (a node, where the blob \
         names it); footer (good, repairable, none, or null where it cannot be read)",
    ),
];

fn held_at(holder: &Holder) -> String {
    let lun = holder.lun.map_or_else(|| NONE.to_owned(), |lun| lun.to_string());
    if holder.is_leaving { format!("{lun} (detaching)") } else { lun }
}

fn state(row: &Row) -> String {
    let state = joined(row.state.map(|state| state.to_string()));
    match row.filling {
        Some(filling) => format!("{state} ({} % filled)", filling.percent()),
        None => state,
    }
}

fn lease(lease: Lease) -> &'static str {
    match lease {
        Lease::Free => "free",
        Lease::Held => "held",
        Lease::Unknown => "unknown",
    }
}

/// Who has a blob.
fn held_by(facts: &BlobFacts) -> String {
    match &facts.leased_to {
        Some(node) => format!("{} by {node}", lease(facts.lease)),
        None => lease(facts.lease).to_owned(),
    }
}

fn kind(row: &Row) -> Option<&'static str> {
    let managed = row.resource_group.as_ref().map(|_| "Managed");
    row.blob.as_ref().map(|facts| facts.kind.as_str()).or(managed)
}

fn sku(row: &Row) -> Option<&'static str> {
    let of_account = || row.blob.as_ref()?.sku.map(|sku| sku.as_str());
    row.sku.map(|sku| sku.as_str()).or_else(of_account)
}

/// What is printed of a blob in JSON.
fn blob_object(facts: &BlobFacts) -> Value {
    json!({"account": facts.account, "lease": lease(facts.lease), "leasedTo": facts.leased_to,
        "footer": facts.footer.map(FooterState::as_str)})
}

/// A disk, whichever way it was found, with a cell for each column.
fn item(row: &Row) -> Item {
    let holder = |one: &Holder| {
        let caching = one.caching.map(|caching| caching.as_str());
        json!({"node": one.node, "lun": one.lun, "caching": caching, "detaching": one.is_leaving})
    };
    let VolumeNames { volume, claim } = &row.names;
    let facts = row.blob.as_ref();
    let cells = vec![
        row.name.clone(),
        joined(row.resource_group.clone()),
        joined(volume.clone()),
        joined(claim.clone()),
        joined(row.size.map(|size| format!("{} GiB", size.get()))),
        joined(sku(row).map(str::to_owned)),
        joined(row.zones.iter().cloned()),
        joined(kind(row).map(str::to_owned)),
        joined(facts.map(|facts| facts.account.clone())),
        state(row),
        joined(facts.map(held_by)),
        joined(facts.and_then(|facts| facts.footer).map(|footer| footer.to_string())),
        joined(row.holders.iter().map(|holder| holder.node.clone())),
        joined(row.holders.iter().map(held_at)),
        joined(row.holders.iter().filter_map(|holder| Some(holder.caching?.to_string()))),
    ];
    Item {
        name: row.name.clone(),
        object: json!({"name": row.name, "id": row.id, "kind": kind(row), "resourceGroup": row.resource_group,
            "volume": volume, "claim": claim, "sizeGib": row.size.map(|size| size.get()), "sku": sku(row),
            "zones": row.zones, "state": row.state.map(DiskState::as_str), "filledPercent": row.filling.map(Completion::percent),
            "attached": row.holders.iter().map(holder).collect::<Vec<_>>(), "blob": facts.map(blob_object)}),
        cells,
    }
}

fn of_rows(rows: &[Row]) -> List {
    let list = List::new("disk", &COLUMNS, rows.iter().map(item).collect());
    if rows.iter().any(|row| row.blob.is_some()) { list } else { list.without(&OF_BLOBS) }
}

/// The disks of a machine, and what is said of the machine.
fn of_node(node: &str, vm: &Vm, rows: &[Row], slots: &Slots) -> List {
    let most = slots.most.map_or_else(String::new, |most| format!(" of {most}"));
    let next = match slots.next_free {
        Some(lun) => format!("the next free LUN is {lun}"),
        None => "no LUN is free".to_owned(),
    };
    let about: [(&str, Value); 5] = [
        ("node", json!(node)),
        ("machine", json!(vm.id.as_str())),
        ("size", json!(vm.size)),
        ("mostDisks", json!(slots.most)),
        ("nextFreeLun", json!(slots.next_free)),
    ];
    List {
        about: about.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>(),
        footer: Some(format!("{node} ({}) holds {}{most} data disks; {next}", vm.size, rows.len())),
        nothing: format!("{node} holds no data disk"),
        ..of_rows(rows)
    }
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests {
    use clap::Parser;
    use lazuli_azure::arm::Write;
    use lazuli_emulator::scenario::{self, AttachTo, Disk as PlacedDisk, Scenario, VirtualMachine};
    use lazuli_quota::{permit::Priority, poll::Kind};
    use lazuli_rig::cluster::Cluster;
    use lazuli_vhd::class;

    use super::{
        super::super::{output::testing::assert_regular, terminal::Screen},
        *,
    };

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
            vec![disk("a", Some(("node-0", 0)), &[]), disk("b", None, &tags), disk("c", Some(("node-0", 2)), &tags)];
        let scenario = Scenario { disks, ..Scenario::default() };
        let options = lazuli_emulator::Options { scenario, ..Default::default() };
        Cluster::start(options, &[]).await.unwrap()
    }

    async fn got(arguments: &[String], more: &[&str]) -> Result<String, String> {
        let words = ["disks".to_owned()].into_iter().chain(arguments.iter().cloned());
        let options = Command::parse_from(words.chain(more.iter().map(|word| (*word).to_owned()))).options;
        let list = Box::pin(list(&options)).await.map_err(|error| error.to_string())?;
        assert_regular(&list, FIELDS);
        Ok(list.printed(&options.common.output, Screen::default()).result)
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
                vec!["c", group, "-", "shop/old", "8 GiB", "Premium_LRS", "-", "Attached", "node-0", "2"],
            ],
            "{text}"
        );
        let printed: Value = serde_json::from_str(&got(&all, &["--output=json"]).await.unwrap()).unwrap();
        assert_eq!(
            printed["items"][0]["attached"],
            json!([{"node": "node-0", "lun": 0, "caching": "None", "detaching": false}])
        );
        assert_eq!((&printed["items"][0]["claim"], &printed["items"][1]["sizeGib"]), (&json!("shop/data"), &json!(8)));
        cluster.azure.shutdown().await;
    }

    /// Makes a VHD blob disk, as a class of this kind asks for it.
    async fn make_blob(azure: &Azure, name: &str, kind: &str) -> BlobUri {
        let request = class::Request {
            name: name.to_owned(),
            parameters: [("kind".to_owned(), kind.to_owned())].into(),
            required_bytes: 1 << 30,
            limit_bytes: 0,
        };
        let defaults = class::Defaults {
            blob_disks: class::BlobDisks::Always,
            is_stack_hub: false,
            subscription: scenario::SUBSCRIPTION.to_owned(),
            resource_group: scenario::RESOURCE_GROUP.to_owned(),
            location: scenario::LOCATION.to_owned(),
        };
        let found = class::Found { managed: Some(false), ..Default::default() };
        let class::Choice::Blob(class) = class::choose(&request, &defaults, &found).unwrap() else { panic!("{kind}") };
        let disks = services::blob_disks(azure, Metrics::unregistered(), Recorder::nowhere());
        disks.create(&class, name).await.unwrap().uri
    }

    #[tokio::test(start_paused = true)]
    async fn blob_disks_are_printed_with_kind_account_lease_and_footer() {
        let mut old = VirtualMachine::pattern("node-{}", 2);
        old.os_disk.storage_account = Some("system".to_owned());
        let scenario = Scenario { virtual_machines: vec![old], ..Scenario::default() };
        let options = lazuli_emulator::Options { scenario, ..Default::default() };
        let cluster = Cluster::start(options, &[]).await.unwrap();
        let all = cluster.arguments();
        let words = ["disks".to_owned()].into_iter().chain(all.iter().cloned());
        let (_, _, azure) = connected(&Command::parse_from(words).options.common.cloud).await.unwrap();
        let (held, free) = (make_blob(&azure, "pvc-1", "Shared").await, make_blob(&azure, "pvc-2", "Dedicated").await);
        let until = Until::within(PATIENCE);
        let vm = ArmId::virtual_machine(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, "node-0").unwrap();
        let mut body = azure.compute.read_alone(&vm, Priority::Read, &until).await.unwrap();
        body["properties"].as_object_mut().unwrap().remove("instanceView");
        body["properties"]["storageProfile"]["dataDisks"] = json!([{"lun": 2, "name": "d", "createOption": "Attach",
            "caching": "None", "vhd": {"uri": held.as_str()}}]);
        let write = Write::put(vm.as_str(), "2025-04-01", body, Kind::VmAttach);
        azure.storage.arm().write(write, &until).await.unwrap().settle(&until).await.unwrap();
        for (name, handle) in [("pv-1", held.as_str()), ("pv-9", "https://nowhere.blob.core.windows.net/vhds/d.vhd")] {
            let csi = json!({"driver": DISK_DRIVER, "volumeHandle": handle});
            let claim = json!({"namespace": "shop", "name": name});
            let volume = json!({"metadata": {"name": name}, "spec": {"csi": csi, "claimRef": claim}});
            cluster.server.put("persistentvolumes", volume).unwrap();
        }

        let text = got(&all, &[]).await.unwrap();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        let group = scenario::RESOURCE_GROUP;
        let row = |uri: &BlobUri, volume, claim, kind, rest: &[&'static str]| {
            let start = [uri.name(), group, volume, claim, "1 GiB", "Standard_LRS", "-", kind, uri.account()];
            start.into_iter().chain(rest.iter().copied()).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(rows[0][7..], ["KIND", "ACCOUNT", "STATE", "LEASE", "FOOTER", "NODE", "LUN"]);
        let of_free = row(&free, "-", "-", "Dedicated", &["Unattached", "free", "good", "-", "-"]);
        let of_held = row(&held, "pv-1", "shop/pv-1", "Shared", &["Attached", "held by node-0", "good", "node-0", "2"]);
        assert_eq!(rows[1..], [of_free, of_held], "{text}");

        let printed: Value = serde_json::from_str(&got(&all, &["--node=node-0", "-o", "json"]).await.unwrap()).unwrap();
        let item = &printed["items"][0];
        let blob = json!({"account": held.account(), "lease": "held", "leasedTo": "node-0", "footer": "good"});
        assert_eq!((&item["id"], &item["kind"], &item["blob"]), (&json!(held.as_str()), &json!("Shared"), &blob));
        assert_eq!(item["attached"], json!([{"node": "node-0", "lun": 2, "caching": "None", "detaching": false}]));
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
        let items = printed["items"].as_array().unwrap();
        let luns: Vec<&Value> = items.iter().map(|disk| &disk["attached"][0]["lun"]).collect();
        assert_eq!(luns, [0, 2]);
        // Each is the same as among all disks, tags that name its claim included.
        let whole: Value = serde_json::from_str(&got(&alone, &["-o", "json"]).await.unwrap()).unwrap();
        assert!(items.iter().all(|disk| whole["items"].as_array().unwrap().contains(disk)), "{printed:#} {whole:#}");
        // A LUN that a VolumeAttachment names is not free.
        let attachment = json!({"metadata": {"name": "csi-1"},
            "spec": {"attacher": DISK_DRIVER, "nodeName": "node-0", "source": {"persistentVolumeName": "gone"}},
            "status": {"attached": false, "attachmentMetadata": {"LUN": "1"}}});
        cluster.server.put("volumeattachments", attachment).unwrap();
        let text = got(&all, &["--node=node-0"]).await.unwrap();
        assert!(text.starts_with("NAME  RESOURCE GROUP  VOLUME"), "{text}");
        let last = text.lines().last();
        assert_eq!(last, Some("node-0 (Standard_D8s_v3) holds 2 of 16 data disks; the next free LUN is 3"));
        let unknown = got(&all, &["--node=nobody"]).await.unwrap_err();
        assert_eq!(unknown, "there is no Node nobody; the cluster has node-0, node-1");
        cluster.azure.shutdown().await;
    }
}
