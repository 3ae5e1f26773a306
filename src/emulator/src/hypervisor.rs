//! Where data disks become devices.
//!
//! ARM says that a disk is attached; the hypervisor makes it so. In mode *none* nothing happens: no
//! file, no process, no thread, so that tests on paused time can use it. In mode *loop* every disk is a
//! sparse file and every attachment is a Linux loop device, shown to the node in a folder of its
//! machine. In mode *qemu* every attachment is a SCSI disk of a machine in QEMU. The hypervisor never decides whether a
//! disk may be attached, and never reads the store.
//!
//! # The written contract
//!
//! The node reads devices below a root folder. On a real machine that is `/`; with `--hypervisor loop`
//! it is `ROOT/vms/VM`. `L` is the LUN, `NAME` the kernel's name of the block device (`sdc` there,
//! `loop4` here).
//!
//! | path below the node's root | content | made on a real machine by | made here by |
//! |---|---|---|---|
//! | `sys/class/scsi_device/H:C:T:L/` | one entry per device; LUN data disks are on a host of their own | kernel, SCSI disk driver | hypervisor, always `1:0:0:L`, last of all |
//! | `…/device/vendor` | `Msft    ` and a line feed | kernel, from the INQUIRY answer | hypervisor, the same text |
//! | `…/device/model` | `Virtual Disk    ` and a line feed | the same | the same |
//! | `…/device/rescan` | writing `1` makes the kernel read the size again | kernel | a plain file: writing has no effect and needs none |
//! | `…/device/block/NAME` | the block device of the entry | kernel | link to the real `/sys/class/block/NAME` |
//! | `sys/class/block/NAME` | `size` in 512-byte sectors, `dev` as `major:minor` | kernel | link to the real one, so both stay live |
//! | `dev/NAME` | the device node | kernel (devtmpfs) | link to the real `/dev/NAME` |
//! | `dev/disk/azure/scsi1/lunL` | relative link `../../../NAME` | udev rules of the Azure agent | hypervisor |
//!
//! A machine whose disks come by NVMe has none of the SCSI rows and no links in `dev/disk/azure`. `I` is the number that its
//! kernel gives to a namespace: the lowest that is free. It is not the namespace's id, which is the LUN and 2, or the LUN
//! and 1 where the operating system is on a local disk. (Unverified: azure-vm-utils has 2 for all machines, and azuredisk
//! #3632 tells of 1.)
//!
//! | path below the node's root | content | made on a real machine by | made here by |
//! |---|---|---|---|
//! | `sys/class/nvme/nvme0/model` | `MSFT NVMe Accelerator v1.0`, padded to 40 characters, and a line feed | kernel, from Identify Controller | hypervisor, the same text |
//! | `sys/class/nvme/nvme1/model` | `Microsoft NVMe Direct Disk v2`, padded the same: a local disk, with one namespace | the same | hypervisor; always, as on sizes with a `d` |
//! | `…/state` | `live` and a line feed | kernel | hypervisor |
//! | `…/rescan_controller` | writing `1` makes the kernel look for namespaces and read sizes again | kernel | a plain file: writing has no effect and needs none |
//! | `sys/class/nvme/nvme0/nvme0nI/` | without multipath: a namespace, and the folder of its block device | kernel | hypervisor, last of all |
//! | `sys/class/nvme/nvme0/nvme0c0nI/` | with multipath: a path to a namespace, without a node | kernel | hypervisor, last of all |
//! | `sys/class/nvme-subsystem/nvme-subsys0/{nvme0,nvme0nI/}` | with multipath: the controller, and the namespaces with their block devices | kernel | hypervisor |
//! | `…/nsid` in each of them | the namespace's id | kernel | hypervisor |
//! | `…/size` in those with a block device | 512-byte sectors | kernel | link to that of the loop device |
//! | `sys/class/block/nvme0nI` | as with SCSI | kernel | link to `/sys/class/block/loop4` |
//! | `dev/nvme0nI` | the device node | kernel (devtmpfs) | link to `/dev/loop4` |
//! | namespace 1, `nvme0n1`, with the partition `nvme0n1p1` | the operating system's disk, where it is a remote one | kernel | hypervisor: folders, without a node |
//! | `proc/cmdline` | `root=/dev/nvme0n1p1`, or `root=/dev/nvme1n1p1` where that is a local disk | boot loader | hypervisor |
//!
//! Rules that a reader may rely on:
//!
//! * **Appearance is atomic.** An entry is built outside of `sys/class/scsi_device` and renamed into
//!   it, after `dev` and `sys/class/block` are complete. A reader that sees the entry sees all of it.
//!   inotify on `sys/class/scsi_device`, or on `sys/class/nvme/nvme0`, reports `IN_MOVED_TO`; on a real machine a uevent takes its
//!   place (sysfs has no inotify events of its own).
//! * **Disappearance is atomic.** The entry is renamed away first (`IN_MOVED_FROM`), then the rest goes
//!   in reverse order.
//! * **A resize is an event.** The loop device gets its new size, then the times of the entry are set:
//!   `IN_ATTRIB` with the entry's name, on the same watch.
//! * **A detached disk is gone**, also when it is mounted or open: its entry disappears at once, as
//!   when a disk is pulled. The kernel keeps the loop device until its last user closes it; the
//!   file behind it is exchanged for a copy, so that what the last user still writes is lost and
//!   reaches no later user of the disk. (Not so while another machine shares the disk.)
//!
//! # Machines in QEMU
//!
//! In mode *qemu* the kernel of the machine makes the rows of the contract about SCSI itself: its root is `/`, and every
//! rule but the first two on inotify holds as on a real machine. The hypervisor gives QEMU a disk as `scsi-hd` with the vendor
//! `Msft` and the model `Virtual Disk` at the LUN, on the controller that QEMU was started with for data disks alone:
//! `-device virtio-scsi-pci,id=lazuli`, after those of the machine's own disks. It reaches QEMU by the socket that
//! belongs to the name of the machine: `-qmp unix:PATH,server=on,wait=off`. A machine without a socket has its disks on
//! paper, as in mode *none*. One with a socket that shows its disks by NVMe gets none: its creation fails, and so does each
//! attach; at the start a warning says so, and what is plugged there goes. Where the guest is unlike Azure:
//!
//! | | Azure | guest |
//! |---|---|---|
//! | driver of the controller | `hv_storvsc` | `virtio_scsi` |
//! | `device_id` of the controller on the VMBus, by which udev rules tell data disks | `f8b3781b-…` | none: there is no VMBus |
//! | links in `dev/disk/azure` | made by udev rules of the image | none, unless the guest has the rules |
//! | resize | reported to the kernel | the same, unless the controller has `param_change=off`: then seen after a rescan |
//! | appearance | reported to the kernel | the same, unless the controller has `hotplug=off`: then seen after a scan |
//! | NVMe | by PCI | QEMU plugs no namespaces: a test makes them in the guest, over TCP on its loopback interface |
//! | highest LUN | 63 | 255; the hypervisor refuses those above 63 |
//!
//! # VHDs
//!
//! A disk may have its bytes in a file of others: a page blob with a VHD in it **is** the disk. The device ends where
//! the disk does, before the footer. What the node writes is what the blob service reads, as soon as the node has
//! flushed it; what the node discards is a hole in the file. Such files are named in `ROOT/lent` from before they are
//! on a device until they are on none, by a link to each, so that a killed emulator leaves no device that the next one
//! does not know.
//!
//! # Start, stop, kill
//!
//! One emulator at a time uses a root: it holds a lock on `ROOT/lock`, which dies with the process. At
//! the start the loop devices backed by files of this root, or lent to it, are compared with what should be attached:
//! right ones are adopted without a blink, others are detached, missing ones are attached. So a killed
//! emulator can start again, with or without its state. So it is with what is plugged in QEMU, by the names of devices and
//! block nodes there. A machine in QEMU belongs to one emulator, whatever its root: the emulator holds a lock on
//! `PATH.lock` beside the socket, by its real path, from before its first command until it ends. A second one is refused
//! with the name of the socket and the number of the process that has it. (QEMU itself would serve it: it lets the next
//! client in as soon as one has gone.) A QEMU that is started again has no data disks: they come with the next start of the emulator.
//! [`Hypervisor::shutdown`] detaches everything.
//! Disk files stay until their disk is deleted.

mod backend;
mod contract;
mod disk_files;
mod loop_backend;
mod loop_device;
mod nvme;
mod qemu;
#[cfg(test)]
mod tests;
mod types;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(test)]
pub(crate) use qemu::tests as qemu_tests;
pub use types::{Attachment, DiskFacts, HypervisorError, Machine, QemuMachines, QmpError, Shown};

use backend::Backend;
use loop_backend::LoopBackend;
use qemu::{Closing, QemuBackend};

/// The hypervisor: none, loop devices, or machines in QEMU.
///
/// Cheap to clone; all clones are one hypervisor. Calls are carried out one after the other.
#[derive(Clone, Debug, Default)]
pub struct Hypervisor {
    devices: Option<Devices>,
}

#[derive(Clone, Debug)]
struct Devices {
    /// What people call it.
    name: &'static str,
    /// The root folder of the machines' folders, where they have such. Kept apart from the backend, so that asking for a
    /// path never waits for a device.
    folders: Option<PathBuf>,
    /// Those that are in QEMU.
    qemu: QemuMachines,
    /// What ends the waits for them.
    closing: Closing,
    backend: Arc<Mutex<Box<dyn Backend>>>,
}

/// A start that nobody waits for any more, when it is dropped.
struct GivenUp(Option<Closing>);

impl GivenUp {
    /// It has ended.
    fn not(mut self) {
        self.0 = None;
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        if let Some(closing) = self.0.take() {
            closing.begin();
        }
    }
}

impl Devices {
    fn new(name: &'static str, folders: Option<PathBuf>, backend: impl Backend + 'static) -> Self {
        let (qemu, closing) = (QemuMachines::default(), Closing::default());
        Self { name, folders, qemu, closing, backend: Arc::new(Mutex::new(Box::new(backend))) }
    }
}

impl Hypervisor {
    /// Mode none: every call succeeds and does nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self { devices: None }
    }

    /// Mode loop, with its files below `root`.
    ///
    /// `machines` show their disks as they say when this returns, and others by SCSI. What `attached` names is attached, and
    /// nothing else is.
    ///
    /// # Errors
    /// When the process is not root, `losetup` or loop devices are missing, the root is in use, or
    /// what is there cannot be brought in line.
    pub async fn start_loop(
        root: &Path,
        machines: Vec<Machine>,
        attached: Vec<Attachment>,
    ) -> Result<Self, HypervisorError> {
        let root = root.to_owned();
        let backend = tokio::task::spawn_blocking(move || LoopBackend::open(&root, &machines, &attached))
            .await
            .map_err(|_| HypervisorError::Worker)??;
        let folders = backend.root().to_owned();
        Ok(Self { devices: Some(Devices::new("loop devices", Some(folders), backend)) })
    }

    /// Mode QEMU, with the files of its disks below `root`.
    ///
    /// What `attached` names is plugged when this returns, and nothing else is, in machines that run and pass
    /// [`check`](Self::check). The others have no disks. Dropped before, it waits for no QEMU any more.
    ///
    /// # Errors
    /// When the root or a socket is in use, or a QEMU that runs refuses.
    pub async fn start_qemu(
        root: &Path,
        qemu: QemuMachines,
        machines: Vec<Machine>,
        attached: Vec<Attachment>,
    ) -> Result<Self, HypervisorError> {
        let (root, known, closing) = (root.to_owned(), qemu.clone(), Closing::default());
        let given_up = GivenUp(Some(closing.clone()));
        let told = closing.clone();
        let backend = tokio::task::spawn_blocking(move || QemuBackend::open(&root, known, &machines, &attached, told))
            .await
            .map_err(|_| HypervisorError::Worker)??;
        given_up.not();
        Ok(Self { devices: Some(Devices { qemu, closing, ..Devices::new("QEMU", None, backend) }) })
    }

    /// Whether disks become devices.
    #[must_use]
    pub const fn has_devices(&self) -> bool {
        self.devices.is_some()
    }

    /// What people call it: `none`, `loop devices` or `QEMU`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.devices.as_ref().map_or("none", |devices| devices.name)
    }

    /// Runs `work` on a thread that may block; does nothing in mode none.
    async fn run<F>(&self, work: F) -> Result<(), HypervisorError>
    where
        F: FnOnce(&dyn Backend) -> Result<(), HypervisorError> + Send + 'static,
    {
        let Some(Devices { backend, .. }) = self.devices.clone() else {
            return Ok(());
        };
        tokio::task::spawn_blocking(move || {
            // A panic in another call leaves no half-made state that the next call would not repair:
            // the backend looks at the files, not at its memory.
            work(&**backend.lock().unwrap_or_else(PoisonError::into_inner))
        })
        .await
        .map_err(|_| HypervisorError::Worker)?
    }

    /// Whether a machine can have disks, by how it shows them. To be asked before each attach, since a machine can get
    /// another controller.
    ///
    /// # Errors
    /// When it is in QEMU and shows them by NVMe.
    pub fn check(&self, machine: &Machine) -> Result<(), HypervisorError> {
        self.devices.as_ref().map_or(Ok(()), |devices| devices.qemu.check(machine))
    }

    /// Makes the empty folders of a machine, so that its node has something to watch.
    ///
    /// # Errors
    /// When the name cannot be a folder's, a folder cannot be made, or the machine does not pass [`check`](Self::check).
    pub async fn create_machine(&self, vm: &str, shown: Shown) -> Result<(), HypervisorError> {
        let vm = vm.to_owned();
        self.run(move |backend| backend.create_machine(&vm, shown)).await
    }

    /// Detaches all disks of a machine and removes its folders.
    ///
    /// # Errors
    /// When a loop device cannot be detached or a folder not removed.
    pub async fn delete_machine(&self, vm: &str) -> Result<(), HypervisorError> {
        let vm = vm.to_owned();
        self.run(move |backend| backend.delete_machine(&vm)).await
    }

    /// Makes the file of a new, blank disk; an older file of the same id is replaced.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub async fn create_disk(&self, disk: &DiskFacts) -> Result<(), HypervisorError> {
        let disk = disk.clone();
        self.run(move |backend| backend.files().create(&disk)).await
    }

    /// Makes the file of a disk or snapshot `to` from the content of `from`, another disk or snapshot.
    ///
    /// The copy is crash-consistent: what a node has not yet flushed is not in it, as on Azure.
    ///
    /// # Errors
    /// When `from` has no file or the copy fails.
    pub async fn copy_disk(&self, from: &str, to: &DiskFacts) -> Result<(), HypervisorError> {
        let (from, to) = (from.to_owned(), to.clone());
        self.run(move |backend| backend.files().copy(&from, &to)).await
    }

    /// Makes the file of a new disk from the first `bytes` of another file. What the disk has beyond them is zero.
    ///
    /// # Errors
    /// When the other file cannot be read or the copy fails.
    pub async fn import_disk(&self, file: &Path, bytes: u64, to: &DiskFacts) -> Result<(), HypervisorError> {
        let (file, to) = (file.to_owned(), to.clone());
        self.run(move |backend| backend.files().import(&file, bytes, &to)).await
    }

    /// Removes the file of a disk or snapshot. Succeeds when there is none.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub async fn delete_disk(&self, id: &str) -> Result<(), HypervisorError> {
        let id = id.to_owned();
        self.run(move |backend| backend.files().delete(&id)).await
    }

    /// Grows a disk to its `size_bytes`, attached or not.
    ///
    /// # Errors
    /// When the file or a loop device cannot be resized.
    pub async fn resize(&self, disk: &DiskFacts) -> Result<(), HypervisorError> {
        let disk = disk.clone();
        self.run(move |backend| backend.resize(&disk)).await
    }

    /// Shows a disk to a machine. Succeeds when it is there already; another disk at that LUN is
    /// detached first.
    ///
    /// # Errors
    /// When no loop device can be had or the contract not be written.
    pub async fn attach(&self, vm: &str, lun: u8, disk: &DiskFacts) -> Result<(), HypervisorError> {
        let (vm, disk) = (vm.to_owned(), disk.clone());
        self.run(move |backend| backend.attach(&vm, lun, &disk)).await
    }

    /// Takes a disk away from a machine, also when it is in use there. Succeeds when there is none.
    ///
    /// # Errors
    /// When the contract cannot be written or the loop device not be released.
    pub async fn detach(&self, vm: &str, lun: u8) -> Result<(), HypervisorError> {
        let vm = vm.to_owned();
        self.run(move |backend| backend.detach(&vm, lun)).await
    }

    /// Takes a disk away from a machine, if that is what the machine has at the LUN.
    ///
    /// # Errors
    /// When the contract cannot be written or the loop device not be released.
    pub async fn withdraw(&self, vm: &str, lun: u8, disk: &DiskFacts) -> Result<(), HypervisorError> {
        let (vm, disk) = (vm.to_owned(), disk.clone());
        self.run(move |backend| backend.withdraw(&vm, lun, &disk)).await
    }

    /// Detaches everything. The hypervisor can be used again afterwards, but waits no more for a QEMU that is silent.
    ///
    /// # Errors
    /// The first that happened; the rest is detached all the same.
    pub async fn shutdown(&self) -> Result<(), HypervisorError> {
        if let Some(devices) = &self.devices {
            devices.closing.begin();
        }
        self.run(|backend| backend.detach_all()).await
    }

    /// The folder that plays `/` for the node on a machine; none where no folder does.
    #[must_use]
    pub fn node_root(&self, vm: &str) -> Option<PathBuf> {
        let folders = self.devices.as_ref()?.folders.as_ref()?;
        let machine = loop_backend::machine(folders, vm).ok()?;
        Some(machine.root().to_owned())
    }
}
