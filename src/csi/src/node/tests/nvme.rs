//! Volumes whose disks come by NVMe.

use lazuli_model::event::{Event, Reason};
use lazuli_telemetry::lossy;
use prometheus_client::metrics::counter::Counter;

use super::*;
use crate::node::OnSilence;

/// How the kernel shows namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Plain,
    Multipath,
}

/// A machine with a controller of remote disks, and the events that it sends. `boots` is what its kernel was started with.
async fn machine(config: NodeConfig, boots: &str, offset: Option<u32>) -> (Machine, lossy::Receiver<Event>) {
    let (events, sent) = lossy::channel(10, Counter::default());
    let config = NodeConfig { timeouts: machine::impatient(), events, ..config };
    let machine = Machine::of_host(config, |host| host.with_nvme_lun_offset(offset)).await;
    machine.metadata.lock().unwrap().gib = Some(1);
    let controller = machine.scratch.join("root/sys/class/nvme/nvme0");
    fs::create_dir_all(&controller).unwrap();
    fs::write(controller.join("model"), format!("{:<40}\n", "MSFT NVMe Accelerator v1.0")).unwrap();
    fs::write(controller.join("state"), "live\n").unwrap();
    let proc = machine.scratch.join("root/proc");
    fs::create_dir_all(&proc).unwrap();
    fs::write(proc.join("cmdline"), format!("root={boots}\n")).unwrap();
    (machine, sent)
}

fn config() -> NodeConfig {
    NodeConfig::new("node-1")
}

/// A namespace without a block device behind it that has a partition: the operating system's disk.
fn add_system(machine: &Machine, layout: Layout) {
    let block = machine.scratch.join("root/sys/class/block/nvme0n1");
    fs::create_dir_all(block.join("nvme0n1p1")).unwrap();
    for (folder, number) in [(block.clone(), "259:1048574"), (block.join("nvme0n1p1"), "259:1048575")] {
        fs::write(folder.join("dev"), number).unwrap();
        fs::write(folder.join("size"), "4096").unwrap();
    }
    show(machine, layout, "nvme0n1", 1);
}

/// Shows a block device as a namespace.
fn show(machine: &Machine, layout: Layout, name: &str, nsid: u32) {
    let class = machine.scratch.join("root/sys/class");
    let folder = match layout {
        Layout::Plain => class.join("nvme/nvme0").join(name),
        Layout::Multipath => {
            let subsystem = class.join("nvme-subsystem/nvme-subsys0");
            fs::create_dir_all(subsystem.join("nvme0")).unwrap();
            let path = class.join("nvme/nvme0").join(name.replace("nvme0n", "nvme0c0n"));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("nsid"), format!("{nsid}\n")).unwrap();
            subsystem.join(name)
        }
    };
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("nsid"), format!("{nsid}\n")).unwrap();
    std::os::unix::fs::symlink(class.join("block").join(name).join("size"), folder.join("size")).unwrap();
}

/// Attaches a new disk of a gibibyte as this namespace, known to the metadata as the disk at the LUN.
fn attach(machine: &mut Machine, layout: Layout, name: &str, (device, nsid): (&str, u32), lun: u8) -> usize {
    let file = machine.scratch.join(format!("{name}.img"));
    fs::File::create(&file).unwrap().set_len(GIB).unwrap();
    let place = machine.add_block(file, Some(device));
    show(machine, layout, device, nsid);
    machine.tell(lun, name);
    place
}

#[tokio::test]
async fn a_volume_that_comes_by_nvme_lives_through_its_life_in_both_layouts() {
    if !able() {
        return;
    }
    for layout in [Layout::Plain, Layout::Multipath] {
        let (mut machine, _sent) = machine(config(), "/dev/nvme0n1", None).await;
        add_system(&machine, layout);
        // Named in the order in which they came, which is not that of their ids.
        let place = attach(&mut machine, layout, "a", ("nvme0n2", 5), 3);
        let others = [
            attach(&mut machine, layout, "b", ("nvme0n3", 2), 0),
            attach(&mut machine, layout, "c", ("nvme0n5", 3), 1),
        ];
        let (staging, target) = (machine.staging("a"), machine.target("1"));
        for round in 0..2 {
            for _ in 0..2 {
                machine.stage_as(3, "a", mounted_as("xfs")).await.unwrap();
            }
            let mounted = machine.mounted(&staging).unwrap();
            assert_eq!(Some(mounted.device), device::node_number(&machine.disk(place).node), "{layout:?}");
            machine.publish(3, "a", "1", mounted_as("xfs")).await.unwrap();
            let file = target.join("file");
            match round {
                0 => fs::write(&file, "kept").unwrap(),
                _ => assert_eq!(fs::read_to_string(&file).unwrap(), "kept"),
            }
            let gib = 1 + round;
            assert!(machine.totals("a", &target).await.unwrap()[0] > (gib * 900) << 20, "{layout:?}");
            machine.disk(place).grow((gib as u64 + 1) * GIB);
            assert_eq!(machine.expand("a", &target, (gib as u64 + 1) * GIB).await.unwrap(), (gib + 1) * GIB as i64);
            assert!(machine.totals("a", &target).await.unwrap()[0] > ((gib + 1) * 900) << 20, "{layout:?}");
            machine.unpublish("a", "1").await.unwrap();
            for _ in 0..2 {
                machine.unstage("a").await.unwrap();
            }
            assert_eq!((machine.mounted(&staging), machine.record("a").await), (None, None));
        }
        // The same as a raw device.
        machine.stage_as(0, "b", block()).await.unwrap();
        machine.publish(0, "b", "2", block()).await.unwrap();
        assert_eq!(device::node_number(&machine.target("2")), device::node_number(&machine.disk(others[0]).node));
        machine.unpublish("b", "2").await.unwrap();
        machine.unstage("b").await.unwrap();
        assert!(others.iter().all(|place| machine.disk(*place).is_untouched()), "{layout:?}");
    }
}

#[tokio::test]
async fn where_nothing_proves_which_namespace_has_which_lun_no_disk_is_used_and_a_person_is_told() {
    if !able() {
        return;
    }
    for layout in [Layout::Plain, Layout::Multipath] {
        let (mut machine, mut sent) = machine(config(), "UUID=of-a-local-disk", None).await;
        let places: Vec<usize> = (0..3_u8)
            .map(|lun| {
                let device = format!("nvme0n{}", lun + 1);
                attach(&mut machine, layout, &format!("d{lun}"), (&device, u32::from(lun) + 1), lun)
            })
            .collect();
        for _ in 0..2 {
            let (code, message) = code(machine.stage_as(1, "d1", mounted_as("ext4")).await);
            assert_eq!(code, Grpc::Unavailable);
            assert!(
                message.contains("it is not known which disk") && message.contains("--nvme-lun-offset"),
                "{message}"
            );
            let event = sent.try_receive().unwrap();
            assert_eq!(event.reason, Reason::IdentityUnconfirmed);
            assert!(event.note.contains("nothing proves which namespace of nvme0"), "{}", event.note);
        }
        // Nor is it, where the system is on namespace 1, an operator says something else, and the metadata speaks against both.
        let root = machine.scratch.join("root");
        fs::write(root.join("proc/cmdline"), "root=/dev/nvme0n1\n").unwrap();
        machine.restart_seeing(|host| host.with_nvme_lun_offset(Some(1))).await;
        let (_, message) = code(machine.stage_as(1, "d1", mounted_as("ext4")).await);
        assert!(message.contains("there is no namespace 4"), "{message}");
        assert!(places.iter().all(|place| machine.disk(*place).is_untouched()));
        assert_eq!(machine.record("d1").await, None);
    }
}

#[tokio::test]
async fn an_offset_that_an_operator_gives_counts_while_the_metadata_bears_it_out() {
    if !able() {
        return;
    }
    let config = NodeConfig { on_silence: OnSilence::Tolerate, ..config() };
    // Blank disks of one size, whose offset is 1.
    let (mut machine, mut sent) = machine(config, "UUID=of-a-local-disk", Some(2)).await;
    let layout = Layout::Plain;
    for lun in 0..3_u8 {
        let device = format!("nvme0n{}", lun + 1);
        attach(&mut machine, layout, &format!("d{lun}"), (&device, u32::from(lun) + 1), lun);
    }
    let untouched = |machine: &Machine, places: std::ops::Range<usize>| {
        places.into_iter().all(|place| machine.disk(place).is_untouched())
    };
    // A word that is wrong finds a disk for each LUN but the last.
    let (refusal, message) = code(machine.stage_as(1, "d1", mounted_as("ext4")).await);
    assert_eq!(refusal, Grpc::Unavailable);
    assert!(message.contains("lists a disk at LUN 2, and there is no namespace 4"), "{message}");
    assert_eq!(sent.try_receive().unwrap().reason, Reason::IdentityUnconfirmed);
    // Nor does it while the metadata does not list a disk yet, or says nothing.
    machine.metadata.lock().unwrap().disks.pop();
    assert!(code(machine.stage_as(1, "d1", mounted_as("ext4")).await).1.contains("is no disk that"));
    machine.metadata.lock().unwrap().down = true;
    let (_, message) = code(machine.stage_as(1, "d1", mounted_as("ext4")).await);
    assert!(message.contains("this node has never had the volume"), "{message}");
    assert!(untouched(&machine, 0..3));

    // The right word.
    machine.restart_seeing(|host| host.with_nvme_lun_offset(Some(1))).await;
    let (_, message) = code(machine.stage_as(1, "d1", mounted_as("ext4")).await);
    assert!(message.contains("this node has never had the volume"), "in silence nothing is formatted: {message}");
    machine.metadata.lock().unwrap().down = false;
    let (_, message) = code(machine.stage_as(1, "d1", mounted_as("ext4")).await);
    assert!(message.contains("nvme0n3, namespace 3, is no disk that"), "{message}");
    // The list may lack other disks still, and a wrong offset would agree with it too. Where they stop to agree, the time
    // that counts begins anew.
    let lag = Timeouts::default().identity_check;
    for _ in 0..2 {
        machine.tell(2, "d2");
        let (refusal, message) = code(machine.stage_as(1, "d1", mounted_as("ext4")).await);
        assert_eq!(refusal, Grpc::Unavailable);
        assert!(message.contains("agreed for 120 s more"), "{message}");
        machine.service.0.identity_checks.age(lag);
        machine.metadata.lock().unwrap().disks.pop();
        assert!(code(machine.stage_as(1, "d1", mounted_as("ext4")).await).1.contains("is no disk that"));
    }
    machine.tell(2, "d2");
    assert!(code(machine.stage_as(1, "d1", mounted_as("ext4")).await).1.contains("agreed for"));
    assert!(untouched(&machine, 0..3));
    machine.service.0.identity_checks.age(lag);
    machine.stage_as(1, "d1", mounted_as("ext4")).await.unwrap();
    let mounted = machine.mounted(&machine.staging("d1")).unwrap();
    assert_eq!(Some(mounted.device), device::node_number(&machine.disk(1).node));
    // What was here is known by its content, in silence too.
    machine.unstage("d1").await.unwrap();
    machine.metadata.lock().unwrap().down = true;
    machine.stage_as(1, "d1", mounted_as("ext4")).await.unwrap();
    // With a word that has become another, the disk that was staged is the one that is released.
    machine.restart_seeing(|host| host.with_nvme_lun_offset(Some(2))).await;
    let open = fs::File::open(machine.disk(1).node.clone()).unwrap();
    machine.unstage("d1").await.unwrap();
    drop(open);
    assert!(machine.disk(0).is_untouched() && machine.disk(2).is_untouched());
}

/// Its stage was refused, so the node has no record of it. Kubelet unstages it all the same.
#[tokio::test]
async fn a_volume_whose_namespace_was_never_known_is_let_go_once_all_that_it_may_be_are_released() {
    if !able() {
        return;
    }
    for layout in [Layout::Plain, Layout::Multipath] {
        let (mut machine, _sent) = machine(config(), "/dev/nvme0n1", None).await;
        add_system(&machine, layout);
        attach(&mut machine, layout, "a", ("nvme0n2", 5), 3);
        let place = attach(&mut machine, layout, "b", ("nvme0n3", 6), 4);
        machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
        // From now on nothing proves the offset: what is written on a disk says that the system is on it, and that alone.
        let links = machine.scratch.join("root/dev/disk/by-uuid");
        fs::create_dir_all(&links).unwrap();
        std::os::unix::fs::symlink("../../nvme0n1", links.join("a-b")).unwrap();
        fs::write(machine.scratch.join("root/proc/cmdline"), "root=UUID=a-b\n").unwrap();
        let (_, message) = code(machine.stage_as(4, "b", mounted_as("ext4")).await);
        assert!(message.contains("it is not known which disk"), "{message}");
        for offset in [None, Some(2)] {
            machine.restart_seeing(|host| host.with_nvme_lun_offset(offset)).await;
            let held = machine.disk(place).hold();
            let (refusal, message) = code(machine.unstage("b").await);
            assert_eq!(refusal, Grpc::Unavailable, "{message}");
            assert!(message.contains("nvme0n3 may be it, which is not released"), "{message}");
            drop(held);
            // What the kernel does not show is not released.
            let state = machine.scratch.join("root/sys/class/nvme/nvme0/state");
            fs::write(&state, "resetting\n").unwrap();
            let (refusal, message) = code(machine.unstage("b").await);
            assert_eq!(refusal, Grpc::Unavailable, "{message}");
            fs::write(&state, "live\n").unwrap();
            // The other volume's disk is in use all the while.
            machine.unstage("b").await.unwrap();
        }
        assert!(machine.mounted(&machine.staging("a")).is_some() && machine.disk(place).is_untouched());
        machine.unstage("a").await.unwrap();
    }
}

/// The link that some published rules make for the first namespace of any controller.
#[tokio::test]
async fn a_link_that_calls_a_proved_data_disk_the_system_s_counts_for_nothing() {
    if !able() {
        return;
    }
    let (mut machine, _sent) = machine(config(), "/dev/nvme0n1", None).await;
    add_system(&machine, Layout::Plain);
    attach(&mut machine, Layout::Plain, "a", ("nvme0n2", 5), 3);
    let links = machine.scratch.join("root/dev/disk/azure");
    fs::create_dir_all(&links).unwrap();
    std::os::unix::fs::symlink("../../nvme0n2", links.join("root")).unwrap();
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    machine.unstage("a").await.unwrap();
}

#[tokio::test]
async fn a_namespace_of_another_size_than_the_metadata_says_is_not_the_disk() {
    if !able() {
        return;
    }
    for layout in [Layout::Plain, Layout::Multipath] {
        let (mut machine, mut sent) = machine(config(), "/dev/nvme0n1", None).await;
        add_system(&machine, layout);
        let place = attach(&mut machine, layout, "a", ("nvme0n2", 5), 3);
        for gib in [2, 4] {
            machine.metadata.lock().unwrap().gib = Some(gib);
            if gib == 4 {
                machine.disk(place).grow(8 * GIB);
            }
            let (code, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
            assert_eq!(code, Grpc::Unavailable);
            assert!(message.contains(&format!("{} were expected", u64::from(gib) * GIB)), "{message}");
            assert_eq!(sent.try_receive().unwrap().reason, Reason::IdentityUnconfirmed);
            assert!(machine.disk(place).is_untouched());
        }
        machine.metadata.lock().unwrap().gib = Some(8);
        machine.stage_as(3, "a", mounted_as("xfs")).await.unwrap();
        // Grown in use, and staged again while the metadata lags.
        machine.unstage("a").await.unwrap();
        machine.disk(place).grow(9 * GIB);
        machine.stage_as(3, "a", mounted_as("xfs")).await.unwrap();
    }
}

#[tokio::test]
async fn metadata_that_names_another_disk_outweighs_a_proved_namespace() {
    if !able() {
        return;
    }
    let (mut machine, _sent) = machine(config(), "/dev/nvme0n1", None).await;
    add_system(&machine, Layout::Plain);
    let place = attach(&mut machine, Layout::Plain, "b", ("nvme0n2", 5), 3);
    let (code, message) = code(machine.stage_as(3, "a", mounted_as("ext4")).await);
    assert_eq!(code, Grpc::Unavailable);
    assert!(message.contains("LUN 3 holds") && message.contains(&volume("b")), "{message}");
    assert!(machine.disk(place).is_untouched());
}
