use std::collections::BTreeSet;

use proptest::{collection::btree_set, prelude::*, sample::subsequence};

use super::*;
use crate::device_identity::ListedDisk;

const GIB: u64 = 1 << 30;

fn namespace(nsid: u32, name: &str) -> Namespace {
    Namespace { name: name.to_owned(), nsid, size_bytes: 4 * GIB, is_partitioned: nsid == 1 }
}

/// A controller of remote disks with these namespaces. The kernel names them in another order than their ids.
fn remote(nsids: impl IntoIterator<Item = u32>) -> Controller {
    let mut nsids: Vec<u32> = nsids.into_iter().collect();
    nsids.sort_unstable_by_key(|nsid| std::cmp::Reverse(*nsid));
    let named = |(place, nsid): (usize, &u32)| namespace(*nsid, &format!("nvme0n{}", place + 1));
    Controller {
        name: "nvme0".to_owned(),
        model: REMOTE_DISKS.to_owned(),
        state: LIVE.to_owned(),
        namespaces: nsids.iter().enumerate().map(named).collect(),
    }
}

fn name_of(controller: &Controller, nsid: u32) -> String {
    controller.namespace(nsid).expect("it is there").name.clone()
}

/// A machine whose system is known to lie on namespace 1.
fn proved(controller: Controller) -> Machine {
    let root = vec![name_of(&controller, 1)];
    Machine { controllers: vec![controller], system: SystemDisks { root, ..SystemDisks::default() } }
}

fn unproved(controller: Controller) -> Machine {
    Machine { controllers: vec![controller], system: SystemDisks::default() }
}

fn listed(lun: u32, gib: Option<u32>) -> Listed {
    let lun = Lun::try_from(i64::from(lun)).expect("a LUN");
    Listed { lun, disk: ListedDisk::Unnamed, size: gib.map(Gib::new) }
}

fn given(controller: &Controller, lun: u32, offset: u32) -> NvmeDisk {
    NvmeDisk { controller: controller.name.clone(), nsid: lun + offset, offset: Offset::Given }
}

proptest! {
    /// The offset rule, whatever the kernel calls the namespaces.
    #[test]
    fn where_the_system_is_namespace_1_the_disk_at_a_lun_is_the_namespace_two_above(
        luns in btree_set(0u32..64, 1..12), asked in 0u32..64
    ) {
        let controller = remote(luns.iter().map(|lun| lun + 2).chain([1]));
        match proved(controller.clone()).place(asked, None) {
            Place::At(name, disk) => {
                prop_assert!(luns.contains(&asked));
                prop_assert_eq!(name, name_of(&controller, asked + 2));
                prop_assert_eq!((disk.nsid, disk.offset), (asked + 2, Offset::Proved));
            }
            Place::Nothing(seen) => {
                prop_assert!(!luns.contains(&asked));
                prop_assert_eq!(seen.into_iter().map(|(lun, _)| lun).collect::<BTreeSet<_>>(), luns);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn where_nothing_proves_the_offset_no_disk_is_at_any_lun(nsids in btree_set(1u32..70, 1..12), asked in 0u32..64) {
        let place = unproved(remote(nsids)).place(asked, None);
        prop_assert!(matches!(place, Place::Unplaced(Unplaced::NotProved { .. })), "{:?}", place);
    }

    /// Blank disks of one size: nothing but the ids and the list tells them apart. The list may lack disks that are new.
    #[test]
    fn metadata_bears_out_no_offset_but_the_right_one(
        (luns, known) in btree_set(0u32..10, 1..6).prop_flat_map(|luns| {
            let all: Vec<u32> = luns.iter().copied().collect();
            let count = all.len();
            (Just(luns), subsequence(all, 1..=count))
        }),
        right in 0u32..6,
        word in 0u32..6,
        asked in 0u32..10,
    ) {
        let system = (right >= 2).then_some(1);
        let mut controller = remote(luns.iter().map(|lun| lun + right).chain(system));
        controller.namespaces.iter_mut().for_each(|one| one.is_partitioned &= system.is_some());
        let machine = unproved(controller.clone());
        let list: Vec<Listed> = known.iter().map(|lun| listed(*lun, Some(4))).collect();
        let outcome = machine.bears_out(&given(&controller, asked, word), asked, &list);
        let is_whole = known.len() == luns.len();
        prop_assert_eq!(outcome.is_ok(), word == right && is_whole, "{:?}", outcome);
    }
}

#[test]
fn each_thing_that_speaks_against_an_offset_is_told() {
    let mut controller = remote([1, 2, 3]);
    let bears_out = |controller: &Controller, list: &[Listed]| {
        unproved(controller.clone()).bears_out(&given(controller, 0, 2), 0, list).map_err(|why| why.to_string())
    };
    let two = [listed(0, Some(4)), listed(1, Some(4))];
    assert_eq!(bears_out(&controller, &two), Ok(()));
    let says = |controller: &Controller, list: &[Listed], part: &str| {
        let why = bears_out(controller, list).expect_err(part);
        assert!(why.contains(part), "{part}: {why}");
    };
    says(&controller, &[], "lists no disk");
    says(&controller, &[listed(0, Some(4)), listed(5, Some(4))], "at LUN 5, and there is no namespace 7");
    says(&controller, &[listed(0, Some(4)), listed(1, None)], "how large the disk at LUN 1 is");
    says(&controller, &[listed(0, Some(4)), listed(1, Some(8))], "lists 8 GiB at LUN 1");
    says(&controller, &two[..1], "namespace 3, is no disk");
    // A namespace 1 that nothing was installed on is a data disk.
    controller.namespaces.iter_mut().for_each(|namespace| namespace.is_partitioned = false);
    says(&controller, &two, "namespace 1, is no disk");
}

#[test]
fn a_disk_that_was_made_from_less_than_whole_gib_has_the_size_above() {
    for (bytes, gib, is) in
        [(4 * GIB, 4, true), (4 * GIB - 512, 4, true), (4 * GIB + 512, 4, false), (3 * GIB, 4, false)]
    {
        assert_eq!(is_size(bytes, Gib::new(gib)), is, "{bytes}");
    }
}

#[test]
fn a_controller_of_another_model_has_no_data_disks() {
    for model in ["Microsoft NVMe Direct Disk", "Microsoft NVMe Direct Disk v2", "QEMU NVMe Ctrl", "", "MSFT NVMe"] {
        let local = Controller { model: model.to_owned(), name: "nvme1".to_owned(), ..remote([1, 2, 3]) };
        assert_eq!(proved(local.clone()).place(0, None), Place::NoDisks, "{model}");
        assert_eq!(unproved(local.clone()).place(0, Some(2)), Place::NoDisks, "{model}");
        // Beside the controller of remote disks it changes nothing.
        let controller = remote([1, 5]);
        let root = vec![name_of(&controller, 1)];
        let system = SystemDisks { root, ..SystemDisks::default() };
        let machine = Machine { controllers: vec![local, controller], system };
        assert!(matches!(machine.place(0, None), Place::Nothing(_)), "{model}");
        assert!(matches!(machine.place(3, None), Place::At(_, disk) if disk.controller == "nvme0"), "{model}");
    }
}

#[test]
fn where_root_lies_outweighs_where_kubelet_s_folder_lies() {
    let controller = remote([1, 2, 3]);
    let (first, second) = (name_of(&controller, 1), name_of(&controller, 2));
    let place = |root: &[&String], root_named: RootNamed, kubelet: &[&String]| {
        let named = |names: &[&String]| names.iter().map(|name| (*name).clone()).collect();
        let system = SystemDisks { root: named(root), root_named, kubelet: named(kubelet), ..SystemDisks::default() };
        Machine { controllers: vec![controller.clone()], system }.place(0, None)
    };
    let other = "sda".to_owned();
    // Whether it is proved where `root=` names a node, and where it names what is written on a disk.
    for (root, kubelet, by_node, by_content) in [
        (vec![&first], vec![], true, false),
        (vec![&first], vec![&second], true, false),
        (vec![&first], vec![&first], true, true),
        // A volume group over two disks.
        (vec![&second, &first], vec![], true, false),
        (vec![&second, &first], vec![&first], true, true),
        (vec![], vec![&first], true, true),
        (vec![], vec![&second], false, false),
        (vec![&other], vec![&first], false, false),
        (vec![&second], vec![&first], false, false),
        (vec![&second], vec![&second], false, false),
    ] {
        for (root_named, is_proved) in [(RootNamed::Node, by_node), (RootNamed::Content, by_content)] {
            let place = place(&root, root_named, &kubelet);
            assert_eq!(
                matches!(place, Place::At(_, NvmeDisk { nsid: 2, .. })),
                is_proved,
                "{root:?} {root_named:?} {kubelet:?}: {place:?}"
            );
        }
    }
    // A data disk on which nothing was installed, mounted at kubelet's folder.
    let mut bare = controller.clone();
    bare.namespaces.iter_mut().for_each(|namespace| namespace.is_partitioned = false);
    let is_proved = |system: SystemDisks| {
        let place = Machine { controllers: vec![bare.clone()], system }.place(0, None);
        assert!(matches!(place, Place::At(..) | Place::Unplaced(Unplaced::NotProved { .. })), "{place:?}");
        matches!(place, Place::At(..))
    };
    let kubelet = SystemDisks { kubelet: vec![first], ..SystemDisks::default() };
    assert!(!is_proved(kubelet.clone()));
    // The file system of that folder is the root file system. A copy of its UUID elsewhere has no veto, a node has.
    let in_root = SystemDisks { is_kubelet_in_root: true, ..kubelet };
    assert!(is_proved(in_root.clone()));
    let copied = SystemDisks { root: vec![second], root_named: RootNamed::Content, ..in_root };
    assert!(is_proved(copied.clone()));
    assert!(!is_proved(SystemDisks { is_kubelet_in_root: false, ..copied.clone() }));
    assert!(!is_proved(SystemDisks { root_named: RootNamed::Node, ..copied }));
}

/// The system is on another disk than namespace 1, which has partitions.
#[test]
fn a_namespace_1_that_is_known_to_be_no_system_disk_is_left_over_whatever_is_on_it() {
    let controller = remote([1, 2, 3]);
    let list = [listed(0, Some(4)), listed(1, Some(4))];
    let outcome = |root: &str, root_named: RootNamed| {
        let system = SystemDisks { root: vec![root.to_owned()], root_named, ..SystemDisks::default() };
        Machine { controllers: vec![controller.clone()], system }.bears_out(&given(&controller, 0, 2), 0, &list)
    };
    assert!(matches!(outcome("sda", RootNamed::Node), Err(Disagreement::LeftOver { nsid: 1, .. })));
    assert_eq!(outcome(&name_of(&controller, 1), RootNamed::Node), Ok(()));
    // Content may be a tenant's: it proves nothing in either direction.
    assert_eq!(outcome("sda", RootNamed::Content), Ok(()));
}

#[test]
fn all_namespaces_but_the_system_s_are_data_disks_while_all_controllers_show_theirs() {
    let controller = remote([1, 2, 3]);
    let data = |machine: &Machine| machine.data_disks().map(BTreeSet::from_iter);
    let names = |nsids: &[u32]| Some(nsids.iter().map(|nsid| name_of(&controller, *nsid)).collect::<BTreeSet<_>>());
    assert_eq!(data(&unproved(controller.clone())), names(&[1, 2, 3]));
    assert_eq!(data(&proved(controller.clone())), names(&[2, 3]));
    // Who writes the system's UUID to a disk does not make it the system's.
    for (nsid, left) in [(1, [2, 3].as_slice()), (3, &[1, 2, 3])] {
        let root = vec![name_of(&controller, nsid)];
        let system = SystemDisks { root, root_named: RootNamed::Content, ..SystemDisks::default() };
        assert_eq!(data(&Machine { controllers: vec![controller.clone()], system: system.clone() }), names(left));
        assert_eq!(system.has(&name_of(&controller, nsid), nsid), nsid == 1);
    }
    let resetting = Controller { name: "nvme1".to_owned(), state: "resetting".to_owned(), ..remote([]) };
    let machine = Machine { controllers: vec![controller.clone(), resetting], system: SystemDisks::default() };
    assert_eq!(data(&machine), None);
}

#[test]
fn an_offset_that_is_given_counts_where_none_is_proved_and_never_against_one_that_is() {
    let controller = remote([1, 2, 3]);
    let machine = unproved(controller.clone());
    let place = machine.place(1, Some(1));
    assert!(matches!(place, Place::At(_, NvmeDisk { nsid: 2, offset: Offset::Given, .. })), "{place:?}");
    let Place::Unplaced(why) = machine.place(7, Some(1)) else { panic!("a word proves no absence") };
    assert!(why.to_string().contains("would be namespace 8 of nvme0, which has 1, 2, 3:"), "{why}");
    let machine = proved(controller.clone());
    // One option may be for machines of several kinds. Against the proof it makes the metadata decide.
    for (word, offset, luns) in
        [(1, Offset::Given, Luns::Given), (2, Offset::Proved, Luns::Proved), (7, Offset::Given, Luns::Given)]
    {
        let place = machine.place(1, Some(word));
        assert!(
            matches!(&place, Place::At(_, NvmeDisk { nsid: 3, offset: found, .. }) if *found == offset),
            "{word}: {place:?}"
        );
        assert_eq!(machine.luns(Some(word)), Some(luns));
    }
    let another = Controller { name: "nvme1".to_owned(), ..controller.clone() };
    let machine = Machine { controllers: vec![controller, another], system: SystemDisks::default() };
    let Place::Unplaced(why) = machine.place(1, Some(2)) else { panic!("it is refused") };
    assert!(why.to_string().contains("nvme0 and nvme1"), "{why}");
}

/// The system on one controller, and the data disks on another of the same model.
#[test]
fn beside_the_controller_of_the_system_nothing_is_proved_and_nothing_counts_as_gone() {
    let of_system = remote([1]);
    let renamed = |one: &Namespace| Namespace { name: one.name.replace("nvme0", "nvme1"), ..one.clone() };
    let another = |nsids: &[u32]| {
        let controller = remote(nsids.iter().copied());
        let namespaces = controller.namespaces.iter().map(renamed).collect();
        Controller { name: "nvme1".to_owned(), namespaces, ..controller }
    };
    let machine = |of_system: Controller, data: Controller| {
        let mut machine = proved(of_system);
        machine.controllers.push(data);
        machine
    };
    let two = machine(of_system.clone(), another(&[2, 3]));
    for lun in [0, 1, 7] {
        let Place::Unplaced(why) = two.place(lun, None) else { panic!("{lun}") };
        assert!(matches!(why, Unplaced::Beside { .. }) && why.may_pass(), "{why:?}");
        assert!(why.to_string().contains("namespace of nvme1 has which LUN"), "{why}");
    }
    assert_eq!((two.luns(None), two.luns(Some(2))), (Some(Luns::Unknown), Some(Luns::Given)));
    let Place::Unplaced(why) = two.place(1, Some(1)) else { panic!("it is refused") };
    assert!(why.to_string().contains("one offset must hold for all"), "{why}");
    // The word counts, and the metadata must bear it out.
    let Place::At(name, disk) = two.place(1, Some(2)) else { panic!("{two:?}") };
    assert_eq!(
        (disk.nsid, disk.offset, &*disk.controller, name.starts_with("nvme1")),
        (3, Offset::Given, "nvme1", true)
    );
    assert_eq!(two.bears_out(&disk, 1, &[listed(0, Some(4)), listed(1, Some(4))]), Ok(()));
    assert!(two.bears_out(&disk, 1, &[listed(1, Some(4))]).is_err());
    assert!(matches!(two.place(5, Some(2)), Place::Unplaced(Unplaced::NoNamespace { nsid: 7, .. })));
    // An id that both have is nobody's; what the system's controller has alone is the disk.
    let both = machine(remote([1, 2, 4]), another(&[2, 3]));
    assert!(matches!(both.place(0, None), Place::Ambiguous(names) if names.len() == 2));
    assert!(matches!(both.place(2, None), Place::At(_, NvmeDisk { nsid: 4, offset: Offset::Proved, .. })));
    // An empty one changes nothing.
    let empty = machine(remote([1, 2]), another(&[]));
    assert!(matches!(empty.place(0, None), Place::At(..)) && matches!(empty.place(1, None), Place::Nothing(_)));
}

#[test]
fn a_controller_that_is_not_live_hides_what_is_there() {
    for state in ["resetting", "connecting", "dead", ""] {
        let machine = proved(Controller { state: state.to_owned(), ..remote([1, 2]) });
        for lun in [0, 1] {
            assert!(matches!(machine.place(lun, None), Place::NotReady(_)), "{state}");
        }
    }
    assert_eq!(unproved(remote([])).place(0, None), Place::NoDisks);
    assert_eq!(Machine::default().place(0, None), Place::NoDisks);
}
