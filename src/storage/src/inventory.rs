//! The disks of a cluster, for people: which volume each is, and which machine holds it at which LUN.
//!
//! Two sources say that a machine holds a disk: the disk names the machine, and the machine lists the disk at a LUN. They
//! disagree while Azure attaches or detaches, and after an incomplete operation. A row shows both: a machine without a LUN
//! is one that the disk names and that does not list it.
//!
//! The rows of one machine are the same rows: those of the disks that it lists.
//!
//! A VHD blob disk says by its lease whether a machine holds it, and by its metadata which one.

use std::collections::BTreeMap;

use lazuli_model::{
    ArmId, CachingMode, Completion, DataDisk, DataDiskSource, Disk, DiskId, DiskState, Gib, Lun, SkuName, StorageSku,
    Vm,
    disk_tags::{FOR_CLAIM, FOR_NAMESPACE, FOR_PV, is_made_by_driver},
};
use lazuli_vhd::{
    disk,
    lease::Lease,
    shown::{FooterState, Kind, SeenDisk},
};

use crate::lun::{self, NodeReservations};

/// A PersistentVolume whose handle may be a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Its handle, as it is spelled.
    pub handle: String,
    /// The claim that it is bound to, as `namespace/name`.
    pub claim: Option<String>,
}

/// Which volume a disk is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeNames {
    /// The PersistentVolume.
    pub volume: Option<String>,
    /// The claim, as `namespace/name`.
    pub claim: Option<String>,
}

/// A machine that holds a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The name of its Node, else of its computer.
    pub node: String,
    /// The LUN at which it lists the disk.
    pub lun: Option<Lun>,
    /// Whether the machine lists the disk as being detached.
    pub is_leaving: bool,
    /// How the machine's host caches it; `None` without a LUN.
    pub caching: Option<CachingMode>,
}

/// What is said of a VHD blob disk alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobFacts {
    /// Of which kind it is.
    pub kind: Kind,
    /// Its storage account.
    pub account: String,
    /// The SKU of the account; `None` where Azure names one that is newer than this program.
    pub sku: Option<StorageSku>,
    /// Its lease.
    pub lease: Lease,
    /// The Node, else the machine, that has the lease, where one is held and the blob names it.
    pub leased_to: Option<String>,
    /// Its footer; `None` where it cannot be read.
    pub footer: Option<FooterState>,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The id of the managed disk, else what stands in its place, such as the URL of a page blob.
    pub id: String,
    /// Its name: the last part of the id.
    pub name: String,
    /// Its resource group, of a blob that of its account; `None` where it is not known.
    pub resource_group: Option<String>,
    /// Which volume it is.
    pub names: VolumeNames,
    /// Its size; `None` where a machine lists the disk and the disk itself was not read.
    pub size: Option<Gib>,
    /// Its SKU; `None` where Azure names one that is newer than this program.
    pub sku: Option<SkuName>,
    /// Its zones; empty for a regional disk.
    pub zones: Vec<String>,
    /// What it is doing; `None` where Azure names a newer state.
    pub state: Option<DiskState>,
    /// How much of it is filled, while Azure fills it in the background: a copy, or a disk that gets another type.
    pub filling: Option<Completion>,
    /// The machines that hold it, in the order of their names.
    pub holders: Vec<Holder>,
    /// What is said of it as a VHD blob; `None` for a managed disk, and for a blob that was not read.
    pub blob: Option<BlobFacts>,
}

/// What of a cluster the rows are made of.
#[derive(Debug, Default)]
pub struct Inventory {
    volumes: BTreeMap<DiskId, VolumeNames>,
    nodes: BTreeMap<ArmId, String>,
    machines: BTreeMap<ArmId, Vm>,
}

impl Inventory {
    /// An inventory of PersistentVolumes, of the names of Nodes by machine, and of machines.
    pub fn new(
        volumes: impl IntoIterator<Item = Volume>,
        nodes: impl IntoIterator<Item = (ArmId, String)>,
        machines: impl IntoIterator<Item = Vm>,
    ) -> Self {
        let named = |Volume { name, handle, claim }: Volume| {
            Some((disk_of(&handle)?, VolumeNames { volume: Some(name), claim }))
        };
        Self {
            volumes: volumes.into_iter().filter_map(named).collect(),
            nodes: nodes.into_iter().collect(),
            machines: machines.into_iter().map(|machine| (machine.id.clone(), machine)).collect(),
        }
    }

    /// The rows of these disks, in the order of their ids. Disks with operating systems are left out.
    pub fn rows(&self, disks: &[Disk]) -> Vec<Row> {
        let listed = self.listed(DiskId::managed);
        let mut disks: Vec<&Disk> = disks.iter().collect();
        disks.sort_by(|one, other| one.id.cmp(&other.id));
        let row = |disk: &Disk| Some(self.row(disk, listed.get(&disk.id))).filter(|row| !is_system_disk(disk, row));
        disks.into_iter().filter_map(row).collect()
    }

    /// The rows of these VHD blob disks, in the order of their addresses. `subscription` is that of the cluster.
    pub fn blob_rows(&self, blobs: &[SeenDisk], subscription: &str) -> Vec<Row> {
        let listed = self.listed(DiskId::blob);
        let mut blobs: Vec<&SeenDisk> = blobs.iter().collect();
        blobs.sort_by(|one, other| one.uri.cmp(&other.uri));
        blobs.into_iter().map(|blob| self.blob_row(blob, listed.get(&blob.uri), subscription)).collect()
    }

    /// The rows of what a machine lists, in the order of its LUNs. `disks` and `blobs` are those that were read: of another,
    /// only what the machine says is known.
    pub fn rows_of(&self, machine: &ArmId, disks: &[Disk], blobs: &[SeenDisk]) -> Vec<Row> {
        let (listed, listed_blobs) = (self.listed(DiskId::managed), self.listed(DiskId::blob));
        let subscription = machine.subscription();
        let of_element = |element: &DataDisk| match &element.source {
            DataDiskSource::Disk(DiskId::Managed(id)) => match disks.iter().find(|disk| disk.id == *id) {
                Some(disk) => self.row(disk, listed.get(id)),
                None => Row {
                    name: id.name().to_owned(),
                    resource_group: Some(id.resource_group().to_owned()),
                    names: self.names(id, &BTreeMap::new()),
                    ..self.bare(machine, element, id.as_str())
                },
            },
            DataDiskSource::Disk(id @ DiskId::Blob(uri)) => match blobs.iter().find(|blob| blob.uri == *uri) {
                Some(blob) => self.blob_row(blob, listed_blobs.get(uri), subscription),
                None => {
                    let names = self.volumes.get(id).cloned().unwrap_or_default();
                    Row { names, ..self.bare(machine, element, uri.as_str()) }
                }
            },
            DataDiskSource::Other(other) => self.bare(machine, element, other),
        };
        let mut elements: Vec<&DataDisk> = self.machines.get(machine).iter().flat_map(|vm| &vm.data_disks).collect();
        elements.sort_by_key(|element| element.lun);
        elements.into_iter().map(of_element).collect()
    }

    /// Which machines list each disk of a kind.
    fn listed<I: Ord>(&self, of_kind: impl Fn(&DiskId) -> Option<&I>) -> BTreeMap<&I, Vec<(&ArmId, &DataDisk)>> {
        let mut listed: BTreeMap<&I, Vec<(&ArmId, &DataDisk)>> = BTreeMap::new();
        for machine in self.machines.values() {
            for element in &machine.data_disks {
                if let DataDiskSource::Disk(disk) = &element.source
                    && let Some(disk) = of_kind(disk)
                {
                    listed.entry(disk).or_default().push((&machine.id, element));
                }
            }
        }
        listed
    }

    fn holder(&self, machine: &ArmId, element: &DataDisk) -> Holder {
        Holder {
            node: self.node(machine),
            lun: Some(element.lun),
            is_leaving: element.to_be_detached,
            caching: Some(element.caching),
        }
    }

    /// What a machine alone says of a disk.
    fn bare(&self, machine: &ArmId, element: &DataDisk, id: &str) -> Row {
        Row {
            id: id.to_owned(),
            name: id.rsplit('/').next().unwrap_or(id).to_owned(),
            resource_group: None,
            names: VolumeNames::default(),
            size: None,
            sku: None,
            zones: Vec::new(),
            state: None,
            filling: None,
            holders: vec![self.holder(machine, element)],
            blob: None,
        }
    }

    /// The machines that hold a disk: those that list it, and those that it names besides.
    fn holders<I>(&self, disk: &Disk<I>, listed: Option<&Vec<(&ArmId, &DataDisk)>>) -> Vec<Holder> {
        let listed = listed.map(Vec::as_slice).unwrap_or_default();
        let mut holders: Vec<Holder> = listed.iter().map(|(machine, element)| self.holder(machine, element)).collect();
        let unlisted = disk.holders().into_iter().filter(|holder| listed.iter().all(|(machine, ..)| machine != holder));
        let without_lun = |machine| Holder { node: self.node(machine), lun: None, is_leaving: false, caching: None };
        holders.extend(unlisted.map(without_lun));
        holders.sort_by(|one, other| (&one.node, one.lun).cmp(&(&other.node, other.lun)));
        holders
    }

    fn blob_row(&self, seen: &SeenDisk, listed: Option<&Vec<(&ArmId, &DataDisk)>>, subscription: &str) -> Row {
        let disk = disk::of_blob(&seen.uri, &seen.blob, subscription);
        let leased_to = disk.managed_by.as_ref().map(|machine| self.node(machine)).or_else(|| seen.leased_to());
        Row {
            id: seen.uri.to_string(),
            name: seen.uri.name().rsplit('/').next().unwrap_or_default().to_owned(),
            resource_group: Some(seen.account.id.resource_group().to_owned()),
            names: self.volumes.get(&disk.id).cloned().unwrap_or_default(),
            size: Some(disk.size),
            sku: None,
            zones: Vec::new(),
            state: disk.state,
            filling: None,
            holders: self.holders(&disk, listed),
            blob: Some(BlobFacts {
                kind: seen.kind(),
                account: seen.account.name().to_owned(),
                sku: seen.account.sku,
                lease: seen.blob.lease,
                leased_to,
                footer: seen.footer,
            }),
        }
    }

    fn row(&self, disk: &Disk, listed: Option<&Vec<(&ArmId, &DataDisk)>>) -> Row {
        Row {
            id: disk.id.to_string(),
            name: disk.id.name().to_owned(),
            resource_group: Some(disk.id.resource_group().to_owned()),
            names: self.names(&disk.id, &disk.tags),
            size: Some(disk.size),
            sku: disk.sku,
            zones: disk.zones.clone(),
            state: disk.state,
            filling: disk.completion.filter(|_| disk.is_hydrating()),
            holders: self.holders(disk, listed),
            blob: None,
        }
    }

    /// Which volume a disk is: what the PersistentVolumes say comes before what its tags say, for tags stay when a
    /// volume is bound anew.
    pub fn names(&self, disk: &ArmId, tags: &BTreeMap<String, String>) -> VolumeNames {
        if let Some(names) = self.volumes.get(&disk.into()) {
            return names.clone();
        }
        let tag = |key: &str| {
            let found = tags.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
            found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
        };
        let claim = tag(FOR_NAMESPACE).zip(tag(FOR_CLAIM)).map(|(namespace, name)| format!("{namespace}/{name}"));
        VolumeNames { volume: tag(FOR_PV), claim }
    }

    /// The name of a machine: of its Node, else of its computer, else its own. An instance of a scale set that nothing
    /// else names is called `set_3`, as Azure calls it.
    pub fn node(&self, machine: &ArmId) -> String {
        let computer = || self.machines.get(machine)?.computer_name.as_ref().map(|name| name.to_lowercase());
        let own = || match lazuli_model::scale_set::scale_set(machine) {
            Some(set) => format!("{}_{}", set.name(), machine.name()),
            None => machine.name().to_owned(),
        };
        self.nodes.get(machine).cloned().or_else(computer).unwrap_or_else(own)
    }
}

/// The disk of a handle. One of a managed disk may be the id of anything, as volumes of other drivers have it.
fn disk_of(handle: &str) -> Option<DiskId> {
    handle.parse::<DiskId>().ok().or_else(|| Some(DiskId::Managed(handle.parse::<ArmId>().ok()?)))
}

/// Whether a disk has the operating system of its machine: it was made from an image, its machine lists it at no LUN, and
/// it is no volume. Azure's own mark for such disks is on volumes made from their snapshots too.
fn is_system_disk(disk: &Disk, row: &Row) -> bool {
    let is_volume = row.names != VolumeNames::default() || is_made_by_driver(&disk.tags);
    let is_held_without_lun = !row.holders.is_empty() && row.holders.iter().all(|holder| holder.lun.is_none());
    disk.source.is_some() && is_held_without_lun && !is_volume
}

/// The LUNs of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// How many data disks its size takes; `None` for a size that is not known.
    pub most: Option<u8>,
    /// The LUN that the next disk would get; `None` where no further disk can be attached, or where the LUNs that
    /// VolumeAttachments name are not known.
    pub next_free: Option<Lun>,
}

/// The slots of a machine, with the LUN that the driver would give a disk that no VolumeAttachment names.
pub fn slots(machine: &Vm, most: Option<u8>, reserved: &NodeReservations) -> Slots {
    let occupied = machine.data_disks.iter().map(|element| element.lun).collect();
    let next_free = match reserved {
        NodeReservations::Known(reserved) => lun::next_free(&occupied, reserved, most),
        NodeReservations::Unknown => None,
    };
    Slots { most, next_free }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lazuli_model::{ProvisioningState, StorageAccount};
    use lazuli_vhd::life::{Blob, ETag};

    use crate::lun::Reserved;

    fn disk(name: &str, holder: Option<&ArmId>) -> Disk {
        Disk {
            id: ArmId::disk("s", "g", name).unwrap(),
            location: "eu".into(),
            zones: vec!["1".into()],
            sku: Some(SkuName::PremiumLrs),
            size: Gib::new(4),
            state: Some(DiskState::Attached),
            provisioning_state: ProvisioningState::Succeeded,
            managed_by: holder.cloned(),
            managed_by_extended: Vec::new(),
            ownership_changed: None,
            max_shares: 1,
            disk_encryption_set: None,
            tags: BTreeMap::new(),
            iops: None,
            mbps: None,
            logical_sector_size: None,
            network_access_policy: None,
            source: None,
            source_unique_id: None,
            unique_id: None,
            bytes: None,
            completion: None,
        }
    }

    #[test]
    fn a_disk_shows_how_much_of_it_is_filled_while_that_goes_on() {
        let filled = |name: &str, percent: Option<f64>| Disk {
            completion: percent.map(Completion::from_percent),
            ..disk(name, None)
        };
        let disks = [filled("a", None), filled("b", Some(45.6)), filled("c", Some(100.0))];
        let rows = Inventory::default().rows(&disks);
        let shown: Vec<Option<u16>> = rows.iter().map(|row| row.filling.map(Completion::percent)).collect();
        assert_eq!(shown, [None, Some(45), None]);
    }

    fn lun(number: i64) -> Lun {
        Lun::try_from(number).unwrap()
    }

    fn machine(id: &ArmId, disks: &[(&str, i64)]) -> Vm {
        let element = |(name, at): &(&str, i64)| DataDisk {
            lun: lun(*at),
            source: DataDiskSource::Disk(ArmId::disk("s", "G", name).unwrap().into()),
            caching: CachingMode::ReadOnly,
            to_be_detached: *name == "leaving",
        };
        Vm {
            id: id.clone(),
            location: "eu".into(),
            size: "Standard_D2s_v3".into(),
            zone: None,
            computer_name: Some("Computer".into()),
            provisioning_state: ProvisioningState::Succeeded,
            etag: None,
            system_disk: lazuli_model::SystemDisk::Managed,
            data_disks: disks.iter().map(element).collect(),
        }
    }

    #[test]
    fn a_row_shows_what_the_disk_says_and_what_the_machine_says() {
        let (one, other) =
            (ArmId::virtual_machine("s", "g", "vm-1").unwrap(), ArmId::virtual_machine("s", "g", "vm-2").unwrap());
        let machines = [machine(&one, &[("a", 3), ("leaving", 0)])];
        let nodes = [(one.clone(), "node-1".to_owned())];
        let inventory = Inventory::new([], nodes, machines);
        let rows =
            inventory.rows(&[disk("leaving", None), disk("b", Some(&other)), disk("a", Some(&one)), disk("c", None)]);
        let shown = |row: &Row| {
            let holder = |one: &Holder| {
                let lun = one.lun.map_or_else(|| "-".to_owned(), |lun| lun.to_string());
                format!("{} {lun}{}", one.node, if one.is_leaving { " leaving" } else { "" })
            };
            format!("{}: {}", row.name, row.holders.iter().map(holder).collect::<Vec<_>>().join(", "))
        };
        let shown: Vec<String> = rows.iter().map(shown).collect();
        assert_eq!(shown, ["a: node-1 3", "b: vm-2 -", "c: ", "leaving: node-1 0 leaving"]);
    }

    fn blob(name: &str, lease: Lease, machine: Option<&str>) -> SeenDisk {
        let keys = ["microsoftazurecompute_resourcegroupname", "microsoftazurecompute_vmname"];
        let named = machine.map(|machine| keys.into_iter().zip(["G", machine])).into_iter().flatten();
        let mut account = StorageAccount::general_purpose("ds1");
        account.tags = [("created-by".to_owned(), "azure-dd".to_owned())].into();
        SeenDisk {
            uri: format!("https://ds1.blob.core.windows.net/vhds/{name}").parse().unwrap(),
            blob: Blob {
                etag: ETag("1".into()),
                length: (4 << 30) + 512,
                is_page_blob: true,
                lease,
                metadata: named.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            },
            account,
            footer: Some(FooterState::Good),
        }
    }

    #[test]
    fn a_blob_shows_its_lease_its_account_and_the_machine_that_has_it() {
        let vm = ArmId::virtual_machine("s", "g", "vm-1").unwrap();
        let mut holder = machine(&vm, &[]);
        let (listed, free) = (blob("a.vhd", Lease::Held, Some("vm-1")), blob("d.vhd", Lease::Free, Some("vm-1")));
        let source = DataDiskSource::Disk(listed.uri.clone().into());
        holder.data_disks.push(DataDisk { lun: lun(3), source, caching: CachingMode::None, to_be_detached: false });
        let handle = "HTTPS://DS1.blob.core.windows.net/vhds/d.vhd".to_owned();
        let volume = Volume { name: "pv".into(), handle, claim: Some("shop/data".into()) };
        let inventory = Inventory::new([volume], [(vm.clone(), "node-1".to_owned())], [holder]);
        let blobs = [free, blob("c.vhd", Lease::Held, None), blob("b.vhd", Lease::Held, Some("vm-9")), listed];
        let rows = inventory.blob_rows(&blobs, "s");
        let shown = |row: &Row| {
            let facts = row.blob.as_ref().unwrap();
            let holder = |one: &Holder| (one.node.clone(), one.lun.map(Lun::get));
            let holders: Vec<_> = row.holders.iter().map(holder).collect();
            (row.name.clone(), facts.lease, facts.leased_to.clone(), holders, row.names.volume.clone())
        };
        let text = |text: &str| text.to_owned();
        let node = Some(text("node-1"));
        assert_eq!(
            rows.iter().map(shown).collect::<Vec<_>>(),
            [
                (text("a.vhd"), Lease::Held, node, vec![(text("node-1"), Some(3))], None),
                (text("b.vhd"), Lease::Held, Some(text("vm-9")), vec![(text("vm-9"), None)], None),
                (text("c.vhd"), Lease::Held, None, vec![], None),
                (text("d.vhd"), Lease::Free, None, vec![], Some(text("pv"))),
            ]
        );
        let facts = rows[0].blob.as_ref().unwrap();
        assert_eq!((facts.kind, facts.account.as_str(), facts.footer), (Kind::Shared, "ds1", Some(FooterState::Good)));
        assert_eq!((rows[0].size, rows[0].state), (Some(Gib::new(4)), Some(DiskState::Attached)));
        // Among the disks of its machine it is the same row.
        assert_eq!(inventory.rows_of(&vm, &[], &blobs), rows[..1]);
    }

    #[test]
    fn a_disk_with_an_operating_system_is_no_row_and_a_stuck_volume_is_one() {
        let vm = ArmId::virtual_machine("s", "g", "vm-1").unwrap();
        let image = |name: &str| Disk { source: Some("FromImage".into()), ..disk(name, Some(&vm)) };
        let stuck = Disk { tags: [(FOR_PV.to_owned(), "pv".to_owned())].into(), ..image("stuck") };
        let inventory = Inventory::new([], [], [machine(&vm, &[("listed", 0)])]);
        let rows = inventory.rows(&[image("os"), stuck, image("listed"), disk("plain", Some(&vm))]);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["listed", "plain", "stuck"]);
    }

    #[test]
    fn a_machine_is_named_by_its_node_then_by_its_computer_then_by_itself() {
        let vm = ArmId::virtual_machine("s", "g", "vm-1").unwrap();
        let instance: ArmId =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/3"
                .parse()
                .unwrap();
        let named = Inventory::new([], [(vm.clone(), "node-1".to_owned())], [machine(&vm, &[])]);
        assert_eq!(named.node(&vm), "node-1");
        assert_eq!(Inventory::new([], [], [machine(&vm, &[])]).node(&vm), "computer");
        assert_eq!([&vm, &instance].map(|id| Inventory::default().node(id)), ["vm-1", "pool_3"]);
    }

    #[test]
    fn a_volume_names_its_disk_whatever_the_tags_say() {
        let a = disk("a", None);
        let tags: BTreeMap<String, String> = [(FOR_PV, "pv-old"), (FOR_CLAIM, "data"), (FOR_NAMESPACE, "shop")]
            .map(|(key, value)| (key.to_uppercase(), value.to_owned()))
            .into();
        let tagged = VolumeNames { volume: Some("pv-old".into()), claim: Some("shop/data".into()) };
        assert_eq!(Inventory::default().names(&a.id, &tags), tagged);
        let handle = a.id.to_string().replace("/disks/", "/DISKS/");
        let volume = Volume { name: "pv".into(), handle, claim: None };
        let named = Inventory::new([volume], [], []);
        assert_eq!(named.names(&a.id, &tags), VolumeNames { volume: Some("pv".into()), claim: None });
    }

    #[test]
    fn the_next_free_lun_is_the_one_that_the_driver_would_give() {
        let vm = machine(&ArmId::virtual_machine("s", "g", "vm-1").unwrap(), &[("b", 2), ("a", 0)]);
        let next = |most, reserved: &NodeReservations| slots(&vm, most, reserved).next_free.map(Lun::get);
        let none = NodeReservations::Known(Reserved::new());
        let other = NodeReservations::Known(Reserved::from([(lun(1), [None].into())]));
        assert_eq!((next(Some(4), &none), next(None, &none), next(Some(4), &other)), (Some(1), Some(1), Some(3)));
        // The machine is full, or the attachments are not known.
        assert_eq!((next(Some(2), &none), next(Some(4), &NodeReservations::Unknown)), (None, None));
    }

    #[test]
    fn the_rows_of_a_machine_are_those_of_its_disks_in_the_order_of_luns() {
        let vm = ArmId::virtual_machine("s", "g", "vm-1").unwrap();
        let mut holder = machine(&vm, &[("b", 2), ("a", 0), ("unread", 1)]);
        let source = DataDiskSource::Disk("https://account.blob.core.windows.net/vhds/old.vhd".parse().unwrap());
        holder.data_disks.push(DataDisk { lun: lun(3), source, ..holder.data_disks[0].clone() });
        let tags = [(FOR_PV, "pv"), (FOR_CLAIM, "data"), (FOR_NAMESPACE, "shop")];
        let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let disks = [disk("a", Some(&vm)), Disk { tags, ..disk("b", Some(&vm)) }, disk("c", None)];
        let inventory = Inventory::new([], [], [holder]);
        let rows = inventory.rows_of(&vm, &disks, &[]);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["a", "unread", "b", "old.vhd"]);
        // What is said of a disk does not depend on the way to it.
        let all = inventory.rows(&disks);
        assert_eq!([&rows[0], &rows[2]], [&all[0], &all[1]]);
        assert_eq!(rows[2].names.claim.as_deref(), Some("shop/data"));
        // As the machine spells it.
        assert_eq!((rows[1].size, rows[1].resource_group.as_deref()), (None, Some("G")));
        assert_eq!((rows[3].resource_group.as_deref(), rows[3].holders[0].lun), (None, Some(lun(3))));
        assert_eq!(inventory.rows_of(&ArmId::virtual_machine("s", "g", "other").unwrap(), &disks, &[]), []);
    }
}
