//! Extensions of machines.

use lazuli_model::{ArmId, ArmIdError};
use lazuli_quota::poll::Kind;
use serde_json::Value;

use super::Compute;
use crate::{
    arm::{Operation, Write},
    error::ArmError,
    until::Until,
};

impl Compute {
    /// Makes or changes an extension of a machine, which is a VM or an instance of a uniform scale set. The body says what
    /// the extension shall be, so it may be sent again.
    ///
    /// # Errors
    /// Any [`Fault`](lazuli_model::fault::Fault).
    pub async fn put_extension(
        &self,
        machine: &ArmId,
        extension: &ArmId,
        body: Value,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        let write = Write::put(extension.as_str(), self.vm_version(machine), body, Kind::Extension);
        self.arm.write(write, until).await
    }
}

/// The id of an extension of a machine.
///
/// # Errors
/// When the name cannot be one.
pub fn extension_id(machine: &ArmId, name: &str) -> Result<ArmId, ArmIdError> {
    format!("{machine}/extensions/{name}").parse()
}
