//! Disks that come by NVMe, in both layouts of the kernel, with the operating system's disk among them and without it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use lazuli_test_cluster::azure::OtherTool;
use tonic::Code;

use super::{
    cloud::{Cloud, GIB, NODES, Step, kind, node_call, refused},
    content,
    process::able,
};
use crate::reader;

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
        fs::write(&path, text).unwrap();
        Self(path)
    }

    async fn start(&self) -> Cloud {
        Cloud::with(&["--scenario", self.0.to_str().unwrap()]).await
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A machine of a cloud.
struct Machine<'a> {
    cloud: &'a Cloud,
    tool: &'a OtherTool,
    node: &'a str,
}

impl reader::Machine for Machine<'_> {
    async fn plug(&self, name: &str, lun: u8) {
        self.tool.make_disk(name, 1).await;
        reader::name_disk(&self.cloud.disk_file(name), name);
        self.tool.attach(self.node, name, lun).await;
    }

    async fn pull(&self, name: &str, _lun: u8) {
        self.tool.yank(self.node, name).await;
        self.tool.delete_disk(name).await;
    }

    async fn find(&self, there: &[u32], not_there: &[u32]) -> BTreeMap<u32, reader::Found> {
        reader::find(&self.cloud.path(&format!("azure/vms/{}", self.node)), there, not_there).await
    }
}

async fn each_disk_is_found_at_its_lun(cloud: Cloud) {
    let tool = cloud.azure.other_tool().await;
    for node in NODES {
        reader::each_disk_is_found_at_its_lun(&Machine { cloud: &cloud, tool: &tool, node }, node).await;
    }
    cloud.finish().await;
}

#[tokio::test]
async fn a_reader_finds_each_disk_by_its_namespace_whatever_came_before_it() {
    if !able() {
        return;
    }
    let scenario = Scenario::of_nvme("");
    each_disk_is_found_at_its_lun(scenario.start().await).await;
}

#[tokio::test]
async fn a_reader_finds_each_disk_by_its_scsi_lun_whatever_came_before_it() {
    if !able() {
        return;
    }
    each_disk_is_found_at_its_lun(Cloud::start().await).await;
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

/// Gives the device of an attached disk another size than Azure knows of.
fn resize(cloud: &Cloud, disk: &str, bytes: i64) {
    let file = cloud.disk_file(disk);
    File::options().write(true).open(&file).unwrap().set_len(bytes.try_into().unwrap()).unwrap();
    let backing =
        |name: &String| fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
    let is_it = |name: &String| Path::new(backing(name).trim_end()) == file;
    let name = cloud.folder.loops().into_iter().find(is_it).unwrap_or_else(|| panic!("{disk} has no device"));
    let device = format!("/dev/{name}");
    let status = Command::new("losetup").args(["--set-capacity", &device]).status().unwrap();
    assert!(status.success(), "{device}: {status}");
}

#[tokio::test]
async fn a_namespace_of_another_size_than_the_disk_is_neither_mounted_nor_formatted_nor_handed_out() {
    if !able() {
        return;
    }
    let scenario = Scenario::of_nvme("");
    let mut cloud = scenario.start().await;
    let mut volumes = Vec::new();
    for node in NODES {
        for name in ["ext4", "block"] {
            let mut volume = cloud.create(&format!("pvc-{node}-{name}"), kind(name)).await;
            cloud.attach(&mut volume, node).await;
            volumes.push((node, volume));
        }
    }
    for bytes in [2 * GIB, GIB / 2] {
        // All at once: for a smaller one the node waits until the kernel may have seen its size.
        let mut calls = Vec::new();
        for (node, volume) in &volumes {
            resize(&cloud, &volume.disk, bytes);
            calls.push(tokio::spawn(node_call(cloud.node(node).await, Step::Stage, volume)));
        }
        for ((node, volume), call) in volumes.iter().zip(calls) {
            let message = refused(call.await.unwrap(), Code::Unavailable);
            assert!(message.contains(&format!("has {bytes} bytes, {GIB} were expected")), "{node}: {message}");
            assert!(content::is_blank(&cloud.disk_file(&volume.disk)), "{node} {bytes}");
        }
        assert!(cloud.folder.mounts().is_empty());
    }
    for (node, volume) in &volumes {
        resize(&cloud, &volume.disk, GIB);
        cloud.stage(volume, node).await;
        cloud.publish(volume, node).await;
        content::write(volume, 1);
        content::check(volume, 1);
        cloud.tear_down(volume, node).await;
    }
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
            // Without an offset the node plugin has said so at its start, before a pod needed a disk.
            let log = cloud.nodes[node].log();
            assert!(log.contains("it is not known which namespace has which LUN: there are nvme0 (live, "), "{log}");
        }
        cloud.nodes.get_mut(node).unwrap().kill();
        let process = cloud.another_node(node, &["--nvme-lun-offset=1", "--imds-lag-seconds=2"]);
        cloud.nodes.insert(node, process);
        // The metadata has to agree for longer than it lags.
        let message = refused(cloud.call(Step::Stage, &volumes[0], node).await, Code::Unavailable);
        assert!(message.contains("agreed for"), "{message}");
        for (n, volume) in (0..).zip(&volumes) {
            while let Err(refused) = cloud.call(Step::Stage, volume, node).await {
                assert!(refused.message().contains("agreed for"), "{refused}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
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
