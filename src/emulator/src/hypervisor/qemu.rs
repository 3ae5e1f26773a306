//! Mode QEMU: disk files that machines in QEMU have as SCSI disks, plugged and unplugged by its Machine Protocol.
//!
//! Nothing is remembered that the files and QEMU do not say, so a killed process loses nothing: the next one finds by the
//! names of devices and block nodes what is plugged. One connection serves one call, so that people and tests can connect as
//! well; what keeps a second emulator out is a lock beside the socket.

mod patience;
mod plan;
mod qmp;
mod socket;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

pub(super) use self::patience::Closing;

use self::patience::Patience;
use self::plan::{Extent, LAST_LUN, Order, Plug, Plugged};
use self::qmp::Qmp;
use self::socket::Socket;
use super::backend::Backend;
use super::disk_files::DiskFiles;
use super::types::{Attachment, DiskFacts, HypervisorError, Machine, QemuMachines, QmpError, Shown};

/// How long QEMU may take for an answer: seconds only where it competes with others for the processor.
const PATIENCE: Duration = Duration::from_secs(30);

/// The disk files below one root folder, and machines by their names in lower case.
#[derive(Debug)]
pub(super) struct QemuBackend {
    files: DiskFiles,
    sockets: BTreeMap<String, Socket>,
    qemu: QemuMachines,
    patience: Patience,
}

impl QemuBackend {
    /// Takes the root and brings the machines that run in line with `attached`.
    pub(super) fn open(
        root: &Path,
        qemu: QemuMachines,
        machines: &[Machine],
        attached: &[Attachment],
        closing: Closing,
    ) -> Result<Self, HypervisorError> {
        let sockets = qemu.sockets.iter().map(|(vm, path)| (vm.to_lowercase(), Socket::new(vm, path))).collect();
        let backend =
            Self { files: DiskFiles::open(root, &[])?, sockets, qemu, patience: Patience::new(PATIENCE, closing) };
        let refused = |vm: &str| {
            let machine = machines.iter().find(|machine| machine.name.eq_ignore_ascii_case(vm));
            machine.and_then(|machine| backend.qemu.check(machine).err())
        };
        for vm in backend.sockets.keys() {
            if !machines.iter().any(|machine| machine.name.eq_ignore_ascii_case(vm)) {
                tracing::warn!(machine = vm, "--qemu-qmp names a virtual machine that is not there, or not yet");
            }
        }
        // All of them, before anything is changed in one.
        for socket in backend.sockets.values() {
            socket.claim()?;
        }
        for (vm, socket) in &backend.sockets {
            let mut wanted = BTreeMap::new();
            // People mend it with the emulator that does not start otherwise.
            let error = refused(vm);
            if let Some(error) = &error {
                tracing::warn!("its QEMU gets no disks, for {error}");
            }
            let attached = attached.iter().filter(|_| error.is_none());
            for Attachment { lun, disk, .. } in attached.filter(|attachment| attachment.vm.to_lowercase() == *vm) {
                wanted.insert(within_limit(*lun)?, backend.plug(disk)?);
            }
            let outcome = backend.ask(vm, |qmp| {
                if error.is_none() {
                    find_controller(qmp)?;
                }
                bring_in_line(qmp, |plugged| plan::luns(&wanted, plugged), &wanted)
            });
            match outcome {
                // Its disks are plugged when an emulator starts while it runs.
                Err(HypervisorError::Qemu { source, .. }) if source.is_off() => {
                    tracing::warn!(machine = vm, socket = %socket.path().display(), "no QEMU listens, so it gets no disks now");
                }
                outcome => outcome?,
            }
        }
        Ok(backend)
    }

    /// What to plug for a disk. The file is there afterwards.
    fn plug(&self, disk: &DiskFacts) -> Result<Plug, HypervisorError> {
        let file = self.files.backing(disk)?;
        if disk.file.is_none() && !file.exists() {
            self.files.create(disk)?;
        }
        Ok(plug_of(disk, file))
    }

    /// Does some work with the QEMU of a machine. Nothing happens where the machine is not in QEMU.
    fn ask(&self, vm: &str, work: impl FnOnce(&mut Qmp) -> Result<(), QmpError>) -> Result<(), HypervisorError> {
        let vm = vm.to_lowercase();
        let Some(socket) = self.sockets.get(&vm) else { return Ok(()) };
        socket.claim()?;
        let done = Qmp::connect(socket.path(), &self.patience).and_then(|mut qmp| work(&mut qmp));
        done.map_err(|source| HypervisorError::Qemu { vm, socket: socket.path().to_owned(), source })
    }

    /// Takes away what is at these LUNs.
    fn clear(&self, vm: &str, luns: impl FnOnce(&Plugged) -> BTreeSet<u8>) -> Result<(), HypervisorError> {
        unless_off(self.ask(vm, |qmp| bring_in_line(qmp, luns, &BTreeMap::new())))
    }
}

/// What to plug for a disk whose bytes are in this file.
fn plug_of(disk: &DiskFacts, file: PathBuf) -> Plug {
    let extent = if disk.file.is_some() { Extent::First } else { Extent::File };
    Plug { file, bytes: disk.size_bytes, extent }
}

/// Gives QEMU the commands for these LUNs.
fn bring_in_line(
    qmp: &mut Qmp,
    luns: impl FnOnce(&Plugged) -> BTreeSet<u8>,
    wanted: &BTreeMap<u8, Plug>,
) -> Result<(), QmpError> {
    let plugged = look(qmp)?;
    for lun in luns(&plugged) {
        for order in plan::plan(lun, wanted.get(&lun), &plugged) {
            carry_out(qmp, &order)?;
        }
    }
    Ok(())
}

/// Finds the controller for data disks, by which an error tells what to do before the first disk does not come.
fn find_controller(qmp: &mut Qmp) -> Result<(), QmpError> {
    plan::controller(&qmp.execute("qom-list", json!({"path": "/machine/peripheral"}))?)
}

/// The LUN, where Azure has it.
fn within_limit(lun: u8) -> Result<u8, HypervisorError> {
    if lun > LAST_LUN { Err(HypervisorError::Lun { lun, last: LAST_LUN }) } else { Ok(lun) }
}

/// A machine that is off has no devices.
fn unless_off(outcome: Result<(), HypervisorError>) -> Result<(), HypervisorError> {
    match outcome {
        Err(HypervisorError::Qemu { source, .. }) if source.is_off() => Ok(()),
        outcome => outcome,
    }
}

fn look(qmp: &mut Qmp) -> Result<Plugged, QmpError> {
    let blocks = qmp.execute("query-block", json!({}))?;
    let nodes = qmp.execute("query-named-block-nodes", json!({"flat": true}))?;
    Ok(plan::plugged(&blocks, &nodes))
}

fn carry_out(qmp: &mut Qmp, order: &Order) -> Result<(), QmpError> {
    let (command, arguments) = order.command();
    let done = qmp.execute(command, arguments).map(drop);
    match order {
        Order::RemoveDevice { lun } => done.and_then(|()| qmp.wait_until_gone(&plan::device(*lun))),
        // A block node that no device came of would keep the file open.
        Order::AddDevice { node, .. } => done.map_err(QmpError::of_device).inspect_err(|_| {
            let (command, arguments) = Order::RemoveNode { node: node.clone() }.command();
            // The first error tells more than a second one would.
            let _ = qmp.execute(command, arguments);
        }),
        _ => done,
    }
}

impl Backend for QemuBackend {
    fn create_machine(&self, vm: &str, shown: Shown) -> Result<(), HypervisorError> {
        self.qemu.check(&Machine { name: vm.to_owned(), shown })
    }

    fn delete_machine(&self, vm: &str) -> Result<(), HypervisorError> {
        self.clear(vm, |plugged| plan::luns(&BTreeMap::new(), plugged))
    }

    fn files(&self) -> &DiskFiles {
        &self.files
    }

    fn resize(&self, disk: &DiskFacts) -> Result<(), HypervisorError> {
        self.files.grow(disk)?;
        let plug = plug_of(disk, self.files.file(&disk.id));
        // One that does not answer keeps the disk from growing in no other.
        let grow = |vm: &String| {
            let wanted: BTreeMap<u8, Plug> = (0..=LAST_LUN).map(|lun| (lun, plug.clone())).collect();
            let has_it = |plugged: &Plugged| {
                let is_it = |(lun, node): (&u8, &Option<String>)| (*node == Some(plug.node(*lun))).then_some(*lun);
                plugged.devices.iter().filter_map(is_it).collect()
            };
            unless_off(self.ask(vm, |qmp| bring_in_line(qmp, has_it, &wanted)))
        };
        let outcomes: Vec<_> = self.sockets.keys().map(grow).collect();
        outcomes.into_iter().collect()
    }

    fn attach(&self, vm: &str, lun: u8, disk: &DiskFacts) -> Result<(), HypervisorError> {
        let wanted = BTreeMap::from([(within_limit(lun)?, self.plug(disk)?)]);
        self.ask(vm, |qmp| {
            find_controller(qmp)?;
            bring_in_line(qmp, |_| BTreeSet::from([lun]), &wanted)
        })
    }

    fn detach(&self, vm: &str, lun: u8) -> Result<(), HypervisorError> {
        self.clear(vm, |_| BTreeSet::from([lun]))
    }

    fn withdraw(&self, vm: &str, lun: u8, disk: &DiskFacts) -> Result<(), HypervisorError> {
        // The disk may be deleted: its file is not made anew.
        let node = plug_of(disk, self.files.backing(disk)?).node(lun);
        self.clear(vm, |plugged| plugged.nodes.contains_key(&node).then_some(lun).into_iter().collect())
    }

    fn detach_all(&self) -> Result<(), HypervisorError> {
        let outcomes: Vec<_> = self.sockets.keys().map(|vm| self.delete_machine(vm)).collect();
        outcomes.into_iter().collect()
    }
}
