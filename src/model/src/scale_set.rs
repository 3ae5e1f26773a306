//! Instances of uniform scale sets, by their ids.

use crate::ArmId;

/// Whether a machine is an instance of a uniform scale set.
pub fn is_instance(machine: &ArmId) -> bool {
    machine.is_type("Microsoft.Compute/virtualMachineScaleSets/virtualMachines")
}

/// The scale set of an instance of a uniform one.
pub fn scale_set(machine: &ArmId) -> Option<ArmId> {
    let (set, _) = is_instance(machine).then(|| machine.as_str().rsplit_once('/')).flatten()?;
    set.rsplit_once('/')?.0.parse().ok()
}
