//! Whether a blob disk may be attached to a machine.
//!
//! A machine takes either managed disks or blobs, by its system disk. Instances of scale sets take managed disks alone. Azure
//! itself has retired blob disks (2026-03-31), and Azure Stack Hub has not: there no machine takes one, and the way out is a
//! managed disk that is made from the blob, which needs no attach.

use lazuli_model::{SystemDisk, Vm};

/// A machine that is to have a blob disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Machine {
    /// One of its own, or of an availability set.
    Alone(SystemDisk),
    /// An instance of a scale set.
    OfScaleSet,
}

impl Machine {
    /// The machine that a read has shown.
    pub fn of(vm: &Vm) -> Self {
        match vm.id.is_type("Microsoft.Compute/virtualMachines") {
            true => Self::Alone(vm.system_disk),
            false => Self::OfScaleSet,
        }
    }
}

/// Whether the cloud attaches blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// It does, or it is not known that it does not.
    Offered,
    /// It has answered that it does not any more.
    Retired,
}

/// Why a blob disk is not attached: `FAILED_PRECONDITION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// The cloud attaches no blobs.
    #[error(
        "this cloud attaches no blob disks any more; make a managed disk of it: a claim of a managed class whose dataSource is \
         this claim"
    )]
    Retired,
    /// The machine has managed disks.
    #[error(
        "the machine has managed disks, and takes no blob disk beside them; use nodes with blob disks, or make a managed disk of \
         it: a claim of a managed class whose dataSource is this claim"
    )]
    ManagedMachine,
    /// The machine is an instance of a scale set.
    #[error(
        "the machine is an instance of a scale set, which takes no blob disk; use nodes of an availability set with blob disks, \
         or make a managed disk of it: a claim of a managed class whose dataSource is this claim"
    )]
    ScaleSet,
}

/// Whether a blob disk may be attached.
///
/// # Errors
/// Why not, and the way out.
pub fn check(machine: Machine, service: Service) -> Result<(), Refusal> {
    match (service, machine) {
        (Service::Retired, _) => Err(Refusal::Retired),
        (Service::Offered, Machine::OfScaleSet) => Err(Refusal::ScaleSet),
        (Service::Offered, Machine::Alone(SystemDisk::Managed)) => Err(Refusal::ManagedMachine),
        (Service::Offered, Machine::Alone(SystemDisk::Blob)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_with_a_blob_for_its_system_takes_a_blob_disk() {
        let (blob, managed) = (Machine::Alone(SystemDisk::Blob), Machine::Alone(SystemDisk::Managed));
        assert_eq!(check(blob, Service::Offered), Ok(()));
        assert_eq!(check(managed, Service::Offered), Err(Refusal::ManagedMachine));
        assert_eq!(check(Machine::OfScaleSet, Service::Offered), Err(Refusal::ScaleSet));
        for machine in [blob, managed, Machine::OfScaleSet] {
            assert_eq!(check(machine, Service::Retired), Err(Refusal::Retired));
        }
    }

    #[test]
    fn every_refusal_names_the_way_out() {
        for refusal in [Refusal::Retired, Refusal::ManagedMachine, Refusal::ScaleSet] {
            assert!(refusal.to_string().contains("a claim of a managed class whose dataSource is this claim"));
        }
    }
}
