//! Disks that come by NVMe, in both layouts of the kernel, with the operating system's disk among them and without it.
//!
//! What the reader finds is compared with what is written on the disks, so that it is no matter how they are plugged.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use lazuli_host::{
    Host,
    device::{FindError, find_by_lun},
};
use tonic::Code;

use super::{
    cloud::{Cloud, GIB, NODES, Step, kind, refused},
    content,
    process::able,
};

/// Where a disk says its name.
const NAME_AT: u64 = 64 << 10;

/// A file with a scenario, which is gone afterwards.
struct Scenario(PathBuf);

impl Scenario {
    /// Two machines, of which the second has a kernel with multipath, with this disk of the operating system.
    fn of_nvme(os_disk: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lazuli-nvme-{}.yaml", uuid::Uuid::new_v4().simple()));
        let machine = |name: &str, multipath: bool| {
            format!("- {{name: {name}, size: Standard_D8ds_v6, nvmeMultipath: {multipath}, osDisk: {{{os_disk}}}}}\n")
        };
        let text = format!("virtualMachines:\n{}{}", machine(NODES[0], false), machine(NODES[1], true));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    async fn start(&self) -> Cloud {
        Cloud::with(&["--scenario", self.0.to_str().unwrap()]).await
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn name_disk(file: &Path, name: &str) {
    let file = File::options().write(true).open(file).unwrap();
    file.write_all_at(format!("{name:<32}").as_bytes(), NAME_AT).unwrap();
    file.sync_all().unwrap();
}

fn name_of(device: &Path) -> String {
    let mut name = [0; 32];
    File::open(device).unwrap().read_exact_at(&mut name, NAME_AT).unwrap();
    String::from_utf8(name.to_vec()).unwrap().trim_end().to_owned()
}

/// Fails unless exactly these disks are found below the root, each with its own content and its size in GiB.
async fn finds(root: &Path, disks: &[(u32, &str, u64)]) {
    let host = Host::new().with_root(root);
    for lun in 0..8 {
        let found = find_by_lun(&host, lun).await;
        match disks.iter().find(|(at, ..)| *at == lun) {
            Some((_, name, gib)) => {
                let device = found.unwrap();
                assert_eq!(name_of(&device.path), *name, "LUN {lun}: {device:?}");
                assert_eq!(device.size_bytes, gib << 30, "{name}");
                assert!(device.nvme.is_some() && device.is_lun_certain());
            }
            None => assert!(matches!(found, Err(FindError::NotFound { .. })), "LUN {lun}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn a_reader_finds_each_disk_by_its_namespace_whatever_came_before_it() {
    if !able() {
        return;
    }
    let scenario = Scenario::of_nvme("");
    let cloud = scenario.start().await;
    let tool = cloud.azure.other_tool().await;
    for node in NODES {
        let root = cloud.path(&format!("azure/vms/{node}"));
        let disks = [(5, "e"), (0, "a"), (2, "c"), (1, "b")].map(|(lun, name)| (lun, format!("{node}-{name}")));
        let mut there: Vec<(u32, &str, u64)> = Vec::new();
        for (lun, name) in &disks {
            tool.make_disk(name, 1).await;
            name_disk(&cloud.disk_file(name), name);
            tool.attach(node, name, *lun).await;
            there.push((u32::from(*lun), name, 1));
            finds(&root, &there).await;
        }
        // One leaves, and the next gets its name of the kernel at another LUN.
        tool.yank(node, &disks[0].1).await;
        there.remove(0);
        finds(&root, &there).await;
        tool.attach(node, &disks[0].1, 7).await;
        there.push((7, &disks[0].1, 1));
        finds(&root, &there).await;
        for (_, name) in &disks {
            tool.yank(node, name).await;
            tool.delete_disk(name).await;
        }
        finds(&root, &[]).await;
    }
    cloud.finish().await;
}

#[tokio::test]
async fn volumes_by_nvme_live_through_their_lives_beside_blank_disks_of_their_size() {
    if !able() {
        return;
    }
    let scenario = Scenario::of_nvme("");
    let mut cloud = scenario.start().await;
    for node in NODES {
        let mut blank = Vec::new();
        for n in 0..2 {
            let mut volume = cloud.create(&format!("pvc-{node}-blank-{n}"), kind("ext4")).await;
            cloud.attach(&mut volume, node).await;
            blank.push(volume);
        }
        for name in ["xfs", "ext4", "btrfs", "block"] {
            let mut volume = cloud.create(&format!("pvc-{node}-{name}"), kind(name)).await;
            cloud.attach(&mut volume, node).await;
            cloud.stage(&volume, node).await;
            cloud.publish(&volume, node).await;
            content::write(&volume, 1);
            if name == "xfs" || name == "block" {
                cloud.expand(&volume, 2).await;
                assert_eq!(cloud.expand_on_node(&volume, node, 2).await.unwrap(), 2 * GIB);
            }
            cloud.unpublish(&volume, node).await;
            cloud.unstage(&volume, node).await;
            cloud.stage(&volume, node).await;
            cloud.publish(&volume, node).await;
            content::check(&volume, 1);
            cloud.tear_down(&volume, node).await;
        }
        for volume in blank {
            assert!(content::is_blank(&cloud.disk_file(&volume.disk)));
            cloud.detach(&volume, node).await;
            cloud.delete(&volume).await;
        }
    }
    cloud.finish().await;
}

#[tokio::test]
async fn another_disk_at_the_lun_of_a_namespace_is_refused_until_the_right_one_is_there() {
    if !able() {
        return;
    }
    let scenario = Scenario::of_nvme("");
    let mut cloud = scenario.start().await;
    let tool = cloud.azure.other_tool().await;
    tool.make_disk("stranger", 1).await;
    for node in NODES {
        let mut volume = cloud.create(&format!("pvc-{node}"), kind("ext4")).await;
        cloud.attach(&mut volume, node).await;
        tool.yank(node, &volume.disk).await;
        tool.attach(node, "stranger", volume.lun()).await;
        let message = refused(cloud.call(Step::Stage, &volume, node).await, Code::Unavailable);
        assert!(message.contains("stranger") && message.contains(&volume.disk), "{message}");
        tool.yank(node, "stranger").await;
        for disk in ["stranger", &volume.disk] {
            assert!(content::is_blank(&cloud.disk_file(disk)), "{disk}");
        }
        cloud.attach(&mut volume, node).await;
        cloud.stage(&volume, node).await;
        cloud.unstage(&volume, node).await;
        cloud.detach(&volume, node).await;
        cloud.delete(&volume).await;
    }
    tool.delete_disk("stranger").await;
    cloud.finish().await;
}

#[tokio::test]
async fn blank_disks_of_one_size_that_are_shifted_by_one_are_never_formatted() {
    if !able() {
        return;
    }
    // The operating system is on a local disk, and the offset is another one.
    let scenario = Scenario::of_nvme("placement: NvmeDisk");
    let mut cloud = scenario.start().await;
    for node in NODES {
        let mut volumes = Vec::new();
        for n in 0..3 {
            let mut volume = cloud.create(&format!("pvc-{node}-{n}"), kind("ext4")).await;
            cloud.attach(&mut volume, node).await;
            volumes.push(volume);
        }
        for (options, word) in
            [(vec![], "nothing proves which namespace"), (vec!["--nvme-lun-offset=2"], "there is no namespace")]
        {
            cloud.nodes.get_mut(node).unwrap().kill();
            let process = cloud.another_node(node, &options);
            cloud.nodes.insert(node, process);
            // By the second there is a namespace for each but the last.
            let message = refused(cloud.call(Step::Stage, &volumes[0], node).await, Code::Unavailable);
            assert!(message.contains(word), "{options:?}: {message}");
            for volume in &volumes {
                assert!(content::is_blank(&cloud.disk_file(&volume.disk)), "{options:?}");
            }
        }
        cloud.nodes.get_mut(node).unwrap().kill();
        let process = cloud.another_node(node, &["--nvme-lun-offset=1"]);
        cloud.nodes.insert(node, process);
        for (n, volume) in (0..).zip(&volumes) {
            cloud.stage(volume, node).await;
            cloud.publish(volume, node).await;
            content::write(volume, n);
        }
        for (n, volume) in (0..).zip(&volumes) {
            content::check(volume, n);
            cloud.tear_down(volume, node).await;
        }
    }
    cloud.finish().await;
}
