//! Which LUN a disk gets.
//!
//! A VolumeAttachment's recorded LUN is written once and kubelet stages by it. If disk A vanished from LUN 3 out of
//! band and B were given LUN 3, kubelet would stage A with B's device (azuredisk#2000). So a LUN that any
//! VolumeAttachment of the node still names goes to no other disk, and while the attachments are not known (a cold
//! start) no LUN is given at all.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{DiskId, Lun};

/// A LUN that a VolumeAttachment names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The LUN in its `status.attachmentMetadata`.
    pub lun: Lun,
    /// The handle of its volume, where the PersistentVolume still tells.
    pub volume_handle: Option<String>,
    /// The name of the VolumeAttachment, for the reader.
    pub attachment: String,
}

/// What Kubernetes says about LUNs, by node name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LunReservations {
    /// There is no cluster to ask: the VM's own model is all there is.
    NoCluster,
    /// There is a cluster and its attachments are not known yet: wait, do not guess.
    #[default]
    Cold,
    /// The attachments, complete as of the last answer.
    Synced(BTreeMap<String, Vec<Reservation>>),
}

/// The reservations of one node, as the planner takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeReservations {
    /// Not known: nothing may be placed.
    Unknown,
    /// The LUNs that attachments name.
    Known(Reserved),
}

/// What a VolumeAttachment says of the attach of its disk. external-attacher writes the LUN into it once, when the attach has
/// succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// There is no cluster to ask.
    NoCluster,
    /// The attachments are not known.
    Unknown,
    /// It names no LUN, or there is no attachment of the disk on this node.
    NotAttached,
    /// It names a LUN.
    Attached,
}

/// Each reserved LUN, with the disks whose attachments name it; `None` stands for one that cannot be told.
pub type Reserved = BTreeMap<Lun, BTreeSet<Option<DiskId>>>;

impl LunReservations {
    /// The reservations of one node, by whatever names it is known: a CSI driver may call it otherwise than Kubernetes
    /// does, and Azure ignores case. A reservation whose volume cannot be told belongs to no volume: its LUN stays empty.
    pub fn of_node(&self, names: &[&str]) -> NodeReservations {
        match self {
            Self::NoCluster => NodeReservations::Known(BTreeMap::new()),
            Self::Cold => NodeReservations::Unknown,
            Self::Synced(nodes) => {
                let mut luns = Reserved::new();
                let is_it = |node: &String| names.iter().any(|name| name.eq_ignore_ascii_case(node));
                for reservation in nodes.iter().filter(|(node, _)| is_it(node)).flat_map(|(_, list)| list) {
                    let volume = reservation.volume_handle.as_deref().and_then(|handle| handle.parse().ok());
                    luns.entry(reservation.lun).or_default().insert(volume);
                }
                NodeReservations::Known(luns)
            }
        }
    }

    /// What the attachment of a disk on a node says of its attach. The node may have several names.
    pub fn record(&self, names: &[&str], disk: &DiskId) -> Record {
        match self.of_node(names) {
            _ if *self == Self::NoCluster => Record::NoCluster,
            NodeReservations::Unknown => Record::Unknown,
            NodeReservations::Known(luns) => match luns.values().flatten().any(|owner| owner.as_ref() == Some(disk)) {
                true => Record::Attached,
                false => Record::NotAttached,
            },
        }
    }

    /// The nodes whose attachments name a LUN of the disk; none while they are not known.
    pub fn nodes_naming(&self, disk: &DiskId) -> impl Iterator<Item = &str> {
        let nodes = match self {
            Self::NoCluster | Self::Cold => None,
            Self::Synced(nodes) => Some(nodes),
        };
        let names_it = |reservation: &Reservation| {
            let handle = reservation.volume_handle.as_deref();
            handle.and_then(|handle| handle.parse::<DiskId>().ok()).is_some_and(|named| named == *disk)
        };
        nodes.into_iter().flatten().filter(move |(_, of_node)| of_node.iter().any(names_it)).map(|(node, _)| &**node)
    }

    /// Whether an attachment on the node names a LUN of the disk, or may do so.
    pub fn may_name(&self, node: &str, disk: &DiskId) -> bool {
        match self {
            Self::NoCluster => false,
            Self::Cold => true,
            Self::Synced(_) => match self.of_node(&[node]) {
                NodeReservations::Unknown => true,
                NodeReservations::Known(luns) => luns.values().flatten().any(|owner| owner.as_ref() == Some(disk)),
            },
        }
    }
}

/// Gives each disk a LUN: the one its own attachment names if that is free, else the lowest that is neither occupied
/// nor reserved. Disks are served in the order of their ids, so the order of requests does not matter. A disk that
/// finds no LUN is absent from the answer.
pub fn allocate(disks: &BTreeSet<DiskId>, occupied: &BTreeSet<Lun>, reserved: &Reserved) -> BTreeMap<DiskId, Lun> {
    let mut given: BTreeMap<DiskId, Lun> = BTreeMap::new();
    let mut taken = occupied.clone();
    // A LUN that two disks' attachments name is given to neither: either could stage the other.
    for (lun, owners) in reserved {
        if let (1, Some(Some(owner))) = (owners.len(), owners.first())
            && disks.contains(owner)
            && !given.contains_key(owner)
            && taken.insert(*lun)
        {
            given.insert(owner.clone(), *lun);
        }
    }
    let mut free = Lun::all().filter(|lun| !taken.contains(lun) && !reserved.contains_key(lun));
    for disk in disks {
        if !given.contains_key(disk)
            && let Some(lun) = free.next()
        {
            given.insert(disk.clone(), lun);
        }
    }
    given
}

/// The LUN that a disk without an attachment of its own would get: the lowest that is neither occupied nor reserved.
/// `None` where the machine holds as many disks as its size takes, or where no LUN is left.
pub fn next_free(occupied: &BTreeSet<Lun>, reserved: &Reserved, most: Option<u8>) -> Option<Lun> {
    if most.is_some_and(|most| occupied.len() >= usize::from(most)) {
        return None;
    }
    Lun::all().find(|lun| !occupied.contains(lun) && !reserved.contains_key(lun))
}

#[cfg(test)]
mod tests {
    use lazuli_model::ArmId;
    use proptest::prelude::*;

    use super::*;

    fn disk(n: u8) -> DiskId {
        DiskId::from(ArmId::disk("s", "g", &format!("d{n:02}")).unwrap())
    }

    fn lun(n: u8) -> Lun {
        Lun::try_from(i64::from(n)).unwrap()
    }

    fn luns() -> impl Strategy<Value = BTreeSet<Lun>> {
        proptest::collection::btree_set((0u8..64).prop_map(lun), 0..40)
    }

    #[test]
    fn the_lowest_free_lun_is_given() {
        let given = allocate(&[disk(1)].into(), &[lun(0), lun(2)].into(), &BTreeMap::new());
        assert_eq!(given[&disk(1)], lun(1));
    }

    #[test]
    fn a_lun_that_an_attachment_names_goes_to_no_other_disk() {
        let reserved = Reserved::from([(lun(0), [Some(disk(9))].into()), (lun(1), [None].into())]);
        let given = allocate(&[disk(1)].into(), &BTreeSet::new(), &reserved);
        assert_eq!(given[&disk(1)], lun(2));
    }

    #[test]
    fn a_lun_that_attachments_of_two_volumes_name_is_given_to_neither_also_when_one_cannot_be_told() {
        for other in [None, Some(disk(9))] {
            let reserved = Reserved::from([(lun(0), [Some(disk(1)), other].into())]);
            assert_eq!(allocate(&[disk(1)].into(), &BTreeSet::new(), &reserved)[&disk(1)], lun(1));
        }
    }

    #[test]
    fn a_node_is_known_by_each_of_its_names_in_whatever_case() {
        let reservation = |n: u8, handle: Option<&DiskId>| Reservation {
            lun: lun(n),
            volume_handle: handle.map(ToString::to_string),
            attachment: format!("csi-{n}"),
        };
        let nodes = [("node-0", vec![reservation(3, Some(&disk(1)))]), ("vm7", vec![reservation(4, None)])];
        let all = LunReservations::Synced(nodes.map(|(node, list)| (node.to_owned(), list)).into());
        let both = Reserved::from([(lun(3), [Some(disk(1))].into()), (lun(4), [None].into())]);
        assert_eq!(all.of_node(&["/a/b", "Node-0", "VM7"]), NodeReservations::Known(both));
        assert_eq!(all.of_node(&["node"]), NodeReservations::Known(Reserved::new()));
    }

    #[test]
    fn an_attachment_that_names_a_lun_records_that_its_attach_has_ended() {
        let reservation =
            Reservation { lun: lun(3), volume_handle: Some(disk(1).to_string()), attachment: "csi-1".into() };
        let synced = LunReservations::Synced([("node-0".to_owned(), vec![reservation])].into());
        for (all, node, n, expected) in [
            (&synced, "NODE-0", 1, Record::Attached),
            (&synced, "node-0", 2, Record::NotAttached),
            (&synced, "node-1", 1, Record::NotAttached),
            (&LunReservations::Cold, "node-0", 1, Record::Unknown),
            (&LunReservations::NoCluster, "node-0", 1, Record::NoCluster),
        ] {
            assert_eq!(all.record(&[node], &disk(n)), expected, "{node} {n}");
        }
    }

    #[test]
    fn a_disk_returns_to_the_lun_its_own_attachment_names() {
        let reserved = Reserved::from([(lun(5), [Some(disk(1))].into())]);
        assert_eq!(allocate(&[disk(1)].into(), &BTreeSet::new(), &reserved)[&disk(1)], lun(5));
        let occupied = BTreeSet::from([lun(5)]);
        assert_eq!(allocate(&[disk(1)].into(), &occupied, &reserved)[&disk(1)], lun(0));
    }

    #[test]
    fn a_full_vm_gives_no_lun() {
        assert!(allocate(&[disk(1)].into(), &Lun::all().collect(), &BTreeMap::new()).is_empty());
    }

    #[test]
    fn while_attachments_are_unknown_nothing_is_known_of_any_node() {
        assert_eq!(LunReservations::Cold.of_node(&["n"]), NodeReservations::Unknown);
        assert_eq!(LunReservations::NoCluster.of_node(&["n"]), NodeReservations::Known(BTreeMap::new()));
        assert_eq!(LunReservations::Synced(BTreeMap::new()).of_node(&["n"]), NodeReservations::Known(BTreeMap::new()));
    }

    proptest! {
        #[test]
        fn no_lun_is_given_twice_nor_when_occupied_nor_when_anothers(
            wanted in proptest::collection::btree_set((0u8..80).prop_map(disk), 0..70),
            occupied in luns(),
            reserved in proptest::collection::btree_map(
                (0u8..64).prop_map(lun),
                proptest::collection::btree_set(proptest::option::of((0u8..80).prop_map(disk)), 1..3),
                0..30,
            ),
        ) {
            let given = allocate(&wanted, &occupied, &reserved);
            let distinct: BTreeSet<Lun> = given.values().copied().collect();
            prop_assert_eq!(distinct.len(), given.len());
            for (disk, lun) in &given {
                prop_assert!(wanted.contains(disk));
                prop_assert!(!occupied.contains(lun));
                if let Some(owners) = reserved.get(lun) {
                    prop_assert!(owners.len() == 1 && owners.contains(&Some(disk.clone())));
                }
            }
            // What people are told is what a further disk gets.
            let next = allocate(&[disk(99)].into(), &occupied, &reserved).get(&disk(99)).copied();
            prop_assert_eq!(next_free(&occupied, &reserved, None), next);
            // No volume goes without a LUN while an open one is left.
            let open = Lun::all().filter(|l| !occupied.contains(l) && !reserved.contains_key(l)).count();
            let from_open = given.values().filter(|l| !reserved.contains_key(*l)).count();
            prop_assert!(given.len() == wanted.len() || from_open == open);
        }
    }
}
