//! Disks on a real kernel: SCSI LUNs that QEMU plugs as the emulator attaches, and a namespace of an NVMe controller.
//!
//! [`super::disk_driver`] has the table of what is unlike Azure.

use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt as _};

use tonic::Code;

use super::{
    disk_driver::{
        self, Disks, GIB, NODE, NVME_NODE, Volume, bytes, check, grow, has, is_blank, kind, publish, refused,
        unpublish, unstage, write,
    },
    machine::{Guest, able},
};
use crate::reader;

#[tokio::test]
async fn disks_come_and_go_at_their_luns_and_none_is_taken_for_another() {
    if !able() {
        return;
    }
    let mut disks = Disks::start().await;
    reader::each_disk_is_found_at_its_lun(&Scsi(&disks), "scsi").await;
    eight_volumes_live_beside_each_other(&disks).await;
    another_disk_at_the_lun_is_refused(&disks).await;
    what_is_not_blank_is_not_formatted(&disks).await;
    a_namespace_is_staged_and_grows(&mut disks).await;
    disks.finish().await;
}

/// The guest as a machine with SCSI disks.
struct Scsi<'a>(&'a Disks);

impl reader::Machine for Scsi<'_> {
    async fn plug(&self, name: &str, lun: u8) {
        self.0.tool.make_disk(name, 1).await;
        reader::name_disk(&self.0.file(name), name);
        self.0.tool.attach(NODE, name, lun).await;
    }

    async fn pull(&self, name: &str, _lun: u8) {
        self.0.tool.yank(NODE, name).await;
        self.0.tool.delete_disk(name).await;
    }

    async fn find(&self, there: &[u32], not_there: &[u32]) -> BTreeMap<u32, reader::Found> {
        disk_driver::find(&self.0.guest, there, not_there).await
    }
}

/// The same with namespaces.
pub(super) struct Nvme<'a>(pub(super) &'a Guest);

impl reader::Machine for Nvme<'_> {
    async fn plug(&self, name: &str, lun: u8) {
        let line = format!(
            "printf '%s' '{}' | dd of={NAMESPACES}/{} bs=1 seek={} conv=notrunc 2>/dev/null",
            reader::name_of_disk(name),
            lun + 2,
            reader::NAME_AT
        );
        self.0.sh(&format!("truncate -s 1G {NAMESPACES}/{} && {line}", lun + 2)).await;
        add_namespace(self.0, lun + 2, "1G").await;
    }

    async fn pull(&self, _name: &str, lun: u8) {
        remove_namespace(self.0, lun + 2).await;
    }

    async fn find(&self, there: &[u32], not_there: &[u32]) -> BTreeMap<u32, reader::Found> {
        disk_driver::find(self.0, there, not_there).await
    }
}

/// LUNs at which disks are attached by another tool, Azure's last among them.
const HAND_LUNS: [u8; 4] = [63, 17, 9, 40];

/// Another order each time; what a test prints of it repeats a failure.
fn shuffle<T>(all: &mut [T]) {
    all.sort_by_cached_key(|_| uuid::Uuid::new_v4());
}

async fn eight_volumes_live_beside_each_other(disks: &Disks) {
    let mut volumes = Vec::new();
    for (n, name) in ["ext4", "xfs", "btrfs", "block", "ext4", "xfs", "ext4", "ext4"].into_iter().enumerate() {
        volumes.push(disks.create(&format!("pvc-{n}"), kind(name)).await);
    }
    shuffle(&mut volumes);
    // Half of them are there already when they are published, so that the order of LUNs is another one than that in which
    // they come.
    for (n, volume) in volumes.iter_mut().enumerate() {
        if n % 2 == 0 {
            disks.tool.attach(NODE, &volume.disk, HAND_LUNS[n / 2]).await;
        }
        disks.attach(volume, NODE).await;
        assert!(n % 2 == 1 || volume.lun() == HAND_LUNS[n / 2], "{volume:?}");
    }
    // Some leave and come again.
    shuffle(&mut volumes[1..]);
    for volume in &volumes[1..5] {
        disks.detach(volume, NODE).await;
    }
    shuffle(&mut volumes[1..5]);
    for volume in &mut volumes[1..5] {
        disks.attach(volume, NODE).await;
    }
    let names: Vec<(u8, &str)> = volumes.iter().map(|volume| (volume.lun(), &*volume.disk)).collect();
    println!("LUNs: {names:?}");

    let (guest, node) = (&disks.guest, &disks.node);
    for volume in &volumes {
        disks.stage(volume).await.unwrap();
        publish(node, volume).await;
        write(guest, volume).await;
    }
    println!("the kernel's names: {:?}", disks.kernel_sees().await);
    for volume in &volumes {
        check(guest, volume).await;
    }
    let growing = volumes.iter().find(|volume| volume.disk.ends_with("pvc-0")).unwrap();
    disks.expand(growing, 2).await;
    assert_eq!(grow(node, growing, 2).await, 2 * GIB);
    let blocks = guest.sh(&format!("df -k {} | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2", growing.target)).await;
    assert!(blocks.parse::<i64>().unwrap() > 3 * GIB / 2 / 1024, "{blocks} KiB");

    shuffle(&mut volumes);
    for volume in &volumes {
        check(guest, volume).await;
        unpublish(node, volume).await;
        unstage(node, volume).await;
        disks.detach(volume, NODE).await;
    }
    // On each disk is its own content, and no other's.
    for volume in &volumes {
        let file = disks.file(&volume.disk);
        for other in &volumes {
            assert_eq!(has(&file, &other.content()), other.disk == volume.disk, "{} in {}", other.disk, volume.disk);
        }
        disks.delete(volume).await;
    }
}

async fn another_disk_at_the_lun_is_refused(disks: &Disks) {
    let mut volume = disks.create("pvc-own", kind("ext4")).await;
    disks.attach(&mut volume, NODE).await;
    disks.tool.make_disk("stranger", 1).await;
    disks.tool.yank(NODE, &volume.disk).await;
    disks.tool.attach(NODE, "stranger", volume.lun()).await;
    let message = refused(disks.stage(&volume).await, Code::Unavailable);
    assert!(message.contains("stranger") && message.contains(&volume.disk), "{message}");
    disks.tool.yank(NODE, "stranger").await;
    for disk in ["stranger", &volume.disk] {
        assert!(is_blank(&disks.file(disk)), "{disk}");
    }
    disks.tool.delete_disk("stranger").await;
    disks.detach(&volume, NODE).await;
    disks.delete(&volume).await;
}

async fn what_is_not_blank_is_not_formatted(disks: &Disks) {
    let mut volume = disks.create("pvc-used", kind("ext4")).await;
    let file = disks.file(&volume.disk);
    File::options().write(true).open(&file).unwrap().write_all_at(b"bytes of another program", 300_000).unwrap();
    let before = bytes(&file);
    disks.attach(&mut volume, NODE).await;
    refused(disks.stage(&volume).await, Code::FailedPrecondition);
    assert!(bytes(&file) == before);
    disks.detach(&volume, NODE).await;
    disks.delete(&volume).await;
}

/// Where the guest's NVMe target is configured.
const TARGET: &str = "/sys/kernel/config/nvmet";
const SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress:disks";
/// The files behind its namespaces.
const NAMESPACES: &str = "/tmp/namespaces";

/// An NVMe controller of Azure's model, with the disk of the "operating system" as namespace 1. It has namespaces 1 and up,
/// as Azure's: namespace 2 is LUN 0.
pub(super) async fn start_nvme(guest: &Guest) {
    let lines = format!(
        "set -e; modprobe nvmet; modprobe nvmet-tcp; modprobe nvme-tcp; mount -t configfs configfs /sys/kernel/config; \
         mkdir -p {NAMESPACES}; cd {TARGET}; mkdir subsystems/{SUBSYSTEM}; \
         echo 1 >subsystems/{SUBSYSTEM}/attr_allow_any_host; \
         printf 'MSFT NVMe Accelerator v1.0' >subsystems/{SUBSYSTEM}/attr_model; \
         mkdir ports/1; cd ports/1; echo tcp >addr_trtype; echo ipv4 >addr_adrfam; echo 127.0.0.1 >addr_traddr; \
         echo 4420 >addr_trsvcid; ln -s {TARGET}/subsystems/{SUBSYSTEM} subsystems/{SUBSYSTEM}"
    );
    guest.sh(&lines).await;
    // One partition from the first MiB on, as an installed system has at least.
    let table = format!(
        "truncate -s 64M {NAMESPACES}/1; printf '\\0\\0\\2\\0\\203\\376\\377\\377\\0\\10\\0\\0\\0\\370\\1\\0' | \
         dd of={NAMESPACES}/1 bs=1 seek=446 conv=notrunc 2>/dev/null; \
         printf '\\125\\252' | dd of={NAMESPACES}/1 bs=1 seek=510 conv=notrunc 2>/dev/null"
    );
    guest.sh(&table).await;
    add_namespace(guest, 1, "64M").await;
    let connect = format!(
        "printf 'transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn={SUBSYSTEM}' >/dev/nvme-fabrics && \
         until [ -e /dev/nvme0n1p1 ]; do sleep 0.05; done; mkfs.ext4 -q /dev/nvme0n1p1 && mkdir -p /mnt/system && \
         /bin/mount /dev/nvme0n1p1 /mnt/system"
    );
    guest.sh(&connect).await;
    let model = guest.sh("cat /sys/class/nvme/nvme0/model").await;
    assert_eq!(model.trim(), "MSFT NVMe Accelerator v1.0");
}

pub(super) async fn add_namespace(guest: &Guest, nsid: u8, size: &str) {
    let line = format!(
        "set -e; truncate -s {size} {NAMESPACES}/{nsid}; mkdir {TARGET}/subsystems/{SUBSYSTEM}/namespaces/{nsid}; \
         cd {TARGET}/subsystems/{SUBSYSTEM}/namespaces/{nsid}; printf {NAMESPACES}/{nsid} >device_path; \
         echo 1 >buffered_io; echo 1 >enable"
    );
    guest.sh(&line).await;
}

async fn grow_namespace(guest: &Guest, nsid: u8, size: &str) {
    let line = format!(
        "truncate -s {size} {NAMESPACES}/{nsid} && \
         echo 1 >{TARGET}/subsystems/{SUBSYSTEM}/namespaces/{nsid}/revalidate_size"
    );
    guest.sh(&line).await;
}

pub(super) async fn remove_namespace(guest: &Guest, nsid: u8) {
    let folder = format!("{TARGET}/subsystems/{SUBSYSTEM}/namespaces/{nsid}");
    guest.sh(&format!("echo 0 >{folder}/enable; rmdir {folder}; rm {NAMESPACES}/{nsid}")).await;
}

async fn a_namespace_is_staged_and_grows(disks: &mut Disks) {
    start_nvme(&disks.guest).await;
    // kubelet's folder is on namespace 1, which proves which namespace has which LUN.
    disks.restart_plugin(NVME_NODE, "--state-dir /mnt/system/state").await;
    let mut volume: Volume = disks.create("pvc-nvme", kind("xfs")).await;
    disks.attach(&mut volume, NVME_NODE).await;
    assert_eq!(volume.lun(), 0);
    let (guest, node) = (&disks.guest, &disks.node);
    reader::each_disk_is_found_at_its_lun(&Nvme(guest), "nvme").await;
    // A smaller one at the next LUN comes first, and gets the first name.
    add_namespace(guest, 3, "16M").await;
    guest.sh("until [ -e /dev/nvme0n2 ]; do sleep 0.05; done").await;
    add_namespace(guest, 2, "1G").await;
    disks.stage(&volume).await.unwrap();
    publish(node, &volume).await;
    write(guest, &volume).await;
    let mounts = guest.sh(&format!("grep {} /proc/mounts", volume.target)).await;
    let names = guest.sh("grep -H . /sys/class/nvme/nvme0/nvme0n*/nsid").await;
    println!("namespaces: {names}");
    let device = mounts.split(' ').next().unwrap().trim_start_matches("/dev/").to_owned();
    assert!(names.contains(&format!("/{device}/nsid:2")), "{mounts}\n{names}");

    disks.expand(&volume, 2).await;
    grow_namespace(guest, 2, "2G").await;
    assert_eq!(grow(node, &volume, 2).await, 2 * GIB);
    check(guest, &volume).await;
    unpublish(node, &volume).await;
    unstage(node, &volume).await;
    assert_eq!(guest.sh("ls /mnt/system/state/volumes").await, "", "records are left");
    for nsid in [2, 3] {
        remove_namespace(guest, nsid).await;
    }
    disks.detach(&volume, NVME_NODE).await;
    disks.delete(&volume).await;
    guest.sh("umount /mnt/system 2>/dev/null || umount -l /mnt/system").await;
}
