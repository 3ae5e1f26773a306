//! Whether a PersistentVolumeClaim may grow.
//!
//! external-resizer tells what Azure refuses minutes later and on an event. The webhook tells it at once, to who asks.
//! What it refuses is exactly what ControllerExpandVolume would refuse by the same state: both ask
//! [`plan_expand`](lazuli_volume::plan_expand). That a claim never shrinks is Kubernetes' own rule. Of a page blob no state is
//! read: whatever has it, it is refused beyond the largest size alone, and the driver says what else keeps it from growing.

use lazuli_model::{ArmId, Disk, DiskId, Gib};
use lazuli_vhd::class::expansion;
use serde_json::Value;

use super::{bytes_of_quantity, source};
use lazuli_volume::{Expand, plan_expand};

/// A claim that asks for more than it did before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth<'c> {
    /// The PersistentVolume that the claim is bound to.
    pub volume: &'c str,
    /// How many bytes it asks for now.
    pub bytes: i64,
}

/// The growth that an update of a claim asks for; `None` when it asks for none, or is bound to no volume.
#[must_use]
pub fn growth<'c>(old: &Value, new: &'c Value) -> Option<Growth<'c>> {
    let asked = |claim: &Value| claim.pointer("/spec/resources/requests/storage")?.as_str().and_then(bytes_of_quantity);
    let (before, bytes) = (asked(old)?, asked(new)?);
    let volume = new.pointer("/spec/volumeName")?.as_str().filter(|name| !name.is_empty())?;
    (bytes > before).then_some(Growth { volume, bytes })
}

/// What is known of a growth before Azure is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Review {
    /// The volume is not of Azure disks, or nothing speaks against it.
    Admitted,
    /// It cannot be. The sentence is for the person who asks.
    Refused(String),
    /// It depends on this disk: see [`refusal`].
    ReadDisk(ArmId),
}

/// Reviews a growth by the PersistentVolume of the claim.
#[must_use]
pub fn review(growth: &Growth<'_>, volume: &Value) -> Review {
    match source(volume) {
        None => Review::Admitted,
        // Azure Stack Hub has smaller ones, of which the driver knows.
        Some(DiskId::Blob(blob)) => match expansion(growth.bytes, 0, false) {
            Ok(_) => Review::Admitted,
            Err(error) => Review::Refused(format!(
                "PersistentVolume {} is the page blob {}, which cannot grow to {}: {}; ask for less",
                growth.volume,
                blob.name(),
                size_asked(growth),
                error.allowed
            )),
        },
        Some(DiskId::Managed(disk)) => Review::ReadDisk(disk),
    }
}

fn size_asked(growth: &Growth<'_>) -> String {
    Gib::holding(growth.bytes.unsigned_abs()).map_or_else(|| "so much".to_owned(), |gib| gib.to_string())
}

/// Why the disk of a claim cannot grow as asked, as a sentence for the person who asks; `None` when it can.
#[must_use]
pub fn refusal(growth: &Growth<'_>, disk: &Disk) -> Option<String> {
    let asked = size_asked(growth);
    let subject = format!("PersistentVolume {} is the disk {}", growth.volume, disk.id.name());
    match plan_expand(disk, growth.bytes, 0) {
        Ok(Expand::Enough(_) | Expand::Grow { needs_detach: None, .. }) => None,
        Ok(Expand::Grow { to, needs_detach: Some(reason) }) => {
            let holders: Vec<&str> = disk.holders().iter().map(|vm| vm.name()).collect();
            let holders = if holders.is_empty() { "a VM".to_owned() } else { holders.join(", ") };
            Some(format!(
                "{subject}, which is attached to {holders} and cannot grow from {} to {to} there: {reason}. Stop the \
                 pods that use the claim, and ask again when the disk is detached",
                disk.size
            ))
        }
        Err(error) => {
            Some(format!("{subject}, which cannot grow from {} to {asked}: {}; ask for less", disk.size, error.allowed))
        }
    }
}
