//! Which commands bring a machine's disks from what QEMU has to what it should have. Nothing here talks to QEMU.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Value, json};
use uuid::Uuid;

use super::super::types::{QEMU_CONTROLLER, QmpError};

/// The highest LUN of a data disk (source: Azure's limits of virtual machines, 64 data disks). QEMU takes higher ones, of
/// which its guests do not see those above 255.
pub(super) const LAST_LUN: u8 = 63;
/// How the ids of devices begin. What QEMU has by another id is not this hypervisor's.
const DEVICE: &str = "lazuli-lun-";
/// How the names of block nodes begin.
const NODE: &str = "lazuli";

/// Which bytes of a file are the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of them: the disk grows with its file.
    File,
    /// The first: what comes after them is no part of the disk.
    First,
}

/// A disk as it should be plugged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plug {
    pub(super) file: PathBuf,
    pub(super) bytes: u64,
    pub(super) extent: Extent,
}

impl Plug {
    /// The name of its block node at a LUN, of at most 31 characters. It tells the file, so that a later process knows which
    /// disk is plugged.
    pub(super) fn node(&self, lun: u8) -> String {
        let mut text = self.file.as_os_str().as_encoded_bytes().to_vec();
        if self.extent == Extent::First {
            text.extend_from_slice(format!("\0{}", self.bytes).as_bytes());
        }
        let hash = Uuid::new_v5(&Uuid::NAMESPACE_URL, &text).simple().to_string();
        format!("{NODE}{lun}-{}", &hash[..20])
    }
}

/// What QEMU has of this hypervisor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plugged {
    /// The block node of each device, by LUN; none where QEMU does not tell one.
    pub(super) devices: BTreeMap<u8, Option<String>>,
    /// The size of each block node by its name, also of those without a device.
    pub(super) nodes: BTreeMap<String, u64>,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Opens a file as a block node.
    AddNode { node: String, plug: Plug },
    /// Makes a block node a device that the guest sees.
    AddDevice { lun: u8, node: String },
    /// Takes a device away, and waits until it has gone.
    RemoveDevice { lun: u8 },
    /// Closes a block node.
    RemoveNode { node: String },
    /// Grows a block node and tells the guest.
    Resize { node: String, bytes: u64 },
}

impl Order {
    /// The command and its arguments (source: the QEMU Machine Protocol's reference, QEMU 7.2).
    pub(super) fn command(&self) -> (&'static str, Value) {
        match self {
            Self::AddNode { node, plug } => {
                // A file that two machines share is open twice. What a guest has flushed is in the file for all processes of
                // this machine; that it survives this machine's power is promised to nobody.
                let file = json!({"driver": "file", "filename": plug.file, "aio": "threads", "locking": "off",
                    "discard": "unmap"});
                let mut arguments = json!({"node-name": node, "driver": "raw", "discard": "unmap", "file": file,
                    "cache": {"direct": false, "no-flush": true}});
                if plug.extent == Extent::First {
                    arguments["offset"] = 0.into();
                    arguments["size"] = plug.bytes.into();
                }
                ("blockdev-add", arguments)
            }
            Self::AddDevice { lun, node } => (
                "device_add",
                json!({"driver": "scsi-hd", "id": device(*lun), "drive": node, "bus": format!("{QEMU_CONTROLLER}.0"),
                    "channel": 0, "scsi-id": 0, "lun": lun, "vendor": "Msft", "product": "Virtual Disk", "ver": "1.0"}),
            ),
            Self::RemoveDevice { lun } => ("device_del", json!({"id": device(*lun)})),
            Self::RemoveNode { node } => ("blockdev-del", json!({"node-name": node})),
            Self::Resize { node, bytes } => ("block_resize", json!({"node-name": node, "size": bytes})),
        }
    }
}

/// The id of the device at a LUN.
pub(super) fn device(lun: u8) -> String {
    format!("{DEVICE}{lun}")
}

/// The LUN of a device of this hypervisor.
fn lun_of_device(id: &str) -> Option<u8> {
    id.strip_prefix(DEVICE)?.parse().ok()
}

/// The LUN of a block node of this hypervisor.
fn lun_of_node(name: &str) -> Option<u8> {
    name.strip_prefix(NODE)?.split_once('-')?.0.parse().ok()
}

/// Understands the answers to `query-block` and `query-named-block-nodes`.
pub(super) fn plugged(blocks: &Value, nodes: &Value) -> Plugged {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut plugged = Plugged::default();
    for block in list(blocks) {
        // An id, or the path of the device in QEMU.
        let id = block["qdev"].as_str().and_then(|id| id.rsplit('/').find(|part| part.starts_with(DEVICE)));
        if let Some(lun) = id.and_then(lun_of_device) {
            plugged.devices.insert(lun, text(&block["inserted"]["node-name"]));
        }
    }
    for node in list(nodes) {
        if let Some(name) = text(&node["node-name"]).filter(|name| lun_of_node(name).is_some()) {
            plugged.nodes.insert(name, node["image"]["virtual-size"].as_u64().unwrap_or(0));
        }
    }
    plugged
}

/// Whether there is a controller for data disks, by the answer to `qom-list` of `/machine/peripheral`: what has been given
/// an id, with its type as `child<virtio-scsi-pci>`.
///
/// # Errors
/// [`QmpError::NoController`]
pub(super) fn controller(peripherals: &Value) -> Result<(), QmpError> {
    let mut all = peripherals.as_array().into_iter().flatten();
    let got = match all.find(|device| device["name"] == QEMU_CONTROLLER) {
        None => format!("no device has the id {QEMU_CONTROLLER}"),
        Some(device) => {
            let kind = device["type"].as_str().unwrap_or_default();
            let kind = kind.strip_prefix("child<").and_then(|kind| kind.strip_suffix('>')).unwrap_or(kind);
            if kind.starts_with("virtio-scsi-") {
                return Ok(());
            }
            format!("the device with the id {QEMU_CONTROLLER} is of the kind {kind}")
        }
    };
    Err(QmpError::NoController { got })
}

/// All LUNs at which something is, or should be.
pub(super) fn luns(wanted: &BTreeMap<u8, Plug>, plugged: &Plugged) -> BTreeSet<u8> {
    let nodes = plugged.nodes.keys().filter_map(|name| lun_of_node(name));
    wanted.keys().chain(plugged.devices.keys()).copied().chain(nodes).collect()
}

/// The commands for one LUN, in their order. What is right stays as it is.
pub(super) fn plan(lun: u8, wanted: Option<&Plug>, plugged: &Plugged) -> Vec<Order> {
    let node = wanted.map(|plug| plug.node(lun));
    let device = plugged.devices.get(&lun);
    let is_right = device.is_some_and(|has| has.is_some() && *has == node);
    let mut orders = Vec::new();
    if device.is_some() && !is_right {
        orders.push(Order::RemoveDevice { lun });
    }
    // What a process that was killed has left.
    let others = plugged.nodes.keys().filter(|name| lun_of_node(name) == Some(lun) && Some(*name) != node.as_ref());
    orders.extend(others.map(|name| Order::RemoveNode { node: name.clone() }));
    let (Some(plug), Some(node)) = (wanted, node) else { return orders };
    match plugged.nodes.get(&node) {
        None => orders.push(Order::AddNode { node: node.clone(), plug: plug.clone() }),
        Some(bytes) if *bytes < plug.bytes && plug.extent == Extent::File => {
            orders.push(Order::Resize { node: node.clone(), bytes: plug.bytes });
        }
        Some(_) => {}
    }
    if !is_right {
        orders.push(Order::AddDevice { lun, node });
    }
    orders
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// QEMU, as far as these commands reach: what it refuses, and what it has afterwards.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    struct Qemu {
        devices: BTreeMap<u8, String>,
        nodes: BTreeMap<String, (PathBuf, u64)>,
    }

    impl Qemu {
        fn plugged(&self) -> Plugged {
            Plugged {
                devices: self.devices.iter().map(|(lun, node)| (*lun, Some(node.clone()))).collect(),
                nodes: self.nodes.iter().map(|(name, (_, bytes))| (name.clone(), *bytes)).collect(),
            }
        }

        fn is_used(&self, node: &str) -> bool {
            self.devices.values().any(|used| used == node)
        }

        fn carry_out(&mut self, order: &Order) {
            match order {
                Order::AddNode { node, plug } => {
                    assert!(node.len() <= 31, "QEMU takes no longer name than 31 characters: {node}");
                    let old = self.nodes.insert(node.clone(), (plug.file.clone(), plug.bytes));
                    assert_eq!(old, None, "the node {node} is there");
                }
                Order::AddDevice { lun, node } => {
                    assert!(self.nodes.contains_key(node) && !self.is_used(node), "{node} cannot be a device");
                    assert_eq!(self.devices.insert(*lun, node.clone()), None, "the LUN {lun} is used");
                }
                Order::RemoveDevice { lun } => assert!(self.devices.remove(lun).is_some(), "no device at {lun}"),
                Order::RemoveNode { node } => {
                    assert!(!self.is_used(node), "the node {node} is in use");
                    assert!(self.nodes.remove(node).is_some(), "there is no node {node}");
                }
                Order::Resize { node, bytes } => {
                    let (_, size) = self.nodes.get_mut(node).expect("the node is there");
                    assert!(*size < *bytes, "{node} shrinks");
                    *size = *bytes;
                }
            }
        }

        /// The file and the size at each LUN.
        fn shown(&self) -> BTreeMap<u8, (PathBuf, u64)> {
            self.devices.iter().map(|(lun, node)| (*lun, self.nodes[node].clone())).collect()
        }
    }

    fn plug() -> impl Strategy<Value = Plug> {
        (0..4_u8, 1..4_u64, any::<bool>()).prop_map(|(disk, gib, is_vhd)| Plug {
            file: format!("/disks/{disk}-{is_vhd}.raw").into(),
            bytes: gib << 30,
            extent: if is_vhd { Extent::First } else { Extent::File },
        })
    }

    fn all_plugs() -> impl Strategy<Value = BTreeMap<u8, Plug>> {
        proptest::collection::btree_map(0..=LAST_LUN, plug(), 0..8)
    }

    /// Brings everything in line, or as far as a process gets that is killed after so many commands.
    fn bring_in_line(qemu: &mut Qemu, wanted: &BTreeMap<u8, Plug>, most: usize) -> usize {
        let before = qemu.plugged();
        let orders: Vec<Order> =
            luns(wanted, &before).into_iter().flat_map(|lun| plan(lun, wanted.get(&lun), &before)).collect();
        orders.iter().take(most).for_each(|order| qemu.carry_out(order));
        orders.len()
    }

    proptest! {
        #[test]
        fn whatever_a_killed_process_has_left_the_next_one_plugs_what_should_be_and_then_rests(
            lives in proptest::collection::vec((all_plugs(), 0..20_usize), 1..6),
            wanted in all_plugs(),
        ) {
            let mut qemu = Qemu::default();
            for (wanted, most) in &lives {
                bring_in_line(&mut qemu, wanted, *most);
            }
            let before = qemu.clone();
            bring_in_line(&mut qemu, &wanted, usize::MAX);
            let shown = qemu.shown();
            prop_assert_eq!(shown.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
            for (lun, plug) in &wanted {
                // A disk never shrinks: what a killed process has grown stays.
                let least = before.nodes.get(&plug.node(*lun)).map_or(plug.bytes, |(_, bytes)| plug.bytes.max(*bytes));
                prop_assert_eq!(&shown[lun], &(plug.file.clone(), least));
            }
            prop_assert_eq!(qemu.nodes.len(), wanted.len(), "no file stays open without a device");
            prop_assert_eq!(bring_in_line(&mut qemu, &wanted, 0), 0);
        }

        #[test]
        fn one_lun_is_changed_without_a_touch_to_another(
            had in all_plugs(), lun in 0..=LAST_LUN, wanted in proptest::option::of(plug()),
        ) {
            let mut qemu = Qemu::default();
            bring_in_line(&mut qemu, &had, usize::MAX);
            let mut expected = qemu.shown();
            let orders = plan(lun, wanted.as_ref(), &qemu.plugged());
            let is_same = wanted.as_ref().map(|plug| plug.node(lun)) == had.get(&lun).map(|plug| plug.node(lun));
            prop_assert!(!is_same || orders.iter().all(|order| matches!(order, Order::Resize { .. })),
                "a disk that is there is not taken away: {:?}", orders);
            orders.iter().for_each(|order| qemu.carry_out(order));
            let old = expected.remove(&lun).filter(|_| is_same).map_or(0, |(_, bytes)| bytes);
            expected.extend(wanted.map(|plug| (lun, (plug.file, plug.bytes.max(old)))));
            prop_assert_eq!(qemu.shown(), expected);
        }
    }

    #[test]
    fn answers_of_qemu_tell_what_is_this_hypervisor_s() {
        let blocks = json!([
            {"qdev": "lazuli-lun-7", "inserted": {"node-name": "lazuli7-a", "image": {"virtual-size": 9}}},
            {"qdev": "/machine/peripheral/lazuli-lun-8/virtio-backend", "inserted": {"node-name": "lazuli8-b"}},
            {"qdev": "lazuli-lun-9"},
            {"qdev": "system", "inserted": {"node-name": "root"}},
            {"device": "ide0"},
        ]);
        let nodes = json!([
            {"node-name": "lazuli7-a", "image": {"virtual-size": 9}},
            {"node-name": "lazuli8-b", "image": {"virtual-size": 10}},
            {"node-name": "#block12", "image": {"virtual-size": 9}},
            {"node-name": "root", "image": {"virtual-size": 11}},
        ]);
        let (a, b) = ("lazuli7-a".to_owned(), "lazuli8-b".to_owned());
        let expected = Plugged {
            devices: [(7, Some(a.clone())), (8, Some(b.clone())), (9, None)].into(),
            nodes: [(a, 9), (b, 10)].into(),
        };
        assert_eq!(plugged(&blocks, &nodes), expected);
        assert_eq!(plugged(&json!(null), &json!({})), Plugged::default());
    }

    #[test]
    fn the_controller_is_one_of_virtio_scsi_by_its_id() {
        let list = |name: &str, kind: &str| json!([{"name": "type", "type": "string"}, {"name": name, "type": kind}]);
        for kind in ["virtio-scsi-pci", "virtio-scsi-pci-non-transitional", "virtio-scsi-device"] {
            controller(&list("lazuli", &format!("child<{kind}>"))).unwrap();
        }
        for (list, told) in [
            (list("scsi", "child<virtio-scsi-pci>"), "no device has the id lazuli"),
            (list("lazuli", "child<nvme>"), "is of the kind nvme"),
            (list("lazuli", "child<vhost-scsi-pci>"), "is of the kind vhost-scsi-pci"),
            (json!(null), "no device has the id lazuli"),
        ] {
            let error = controller(&list).unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("-device virtio-scsi-pci,id=lazuli, after"), "{error}");
        }
    }
}
