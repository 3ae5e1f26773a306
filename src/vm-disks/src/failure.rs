//! Why a request failed, as a value. The caller's words for it are made where its answer is.

use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    DiskId,
    fault::{Effect, Fault},
};

use super::queue::Opposed;
use lazuli_storage::{
    attach::{Goal, Resolved},
    dangling::NotDangling,
};

/// Azure's own error, as the call gave it.
pub trait AzureError: AzureFailure {
    /// The HTTP status, where Azure has answered.
    fn status(&self) -> Option<u16>;
    /// The disk that Azure's answer names as its target, if any.
    fn named_disk(&self) -> Option<DiskId>;
    /// Whether Azure had accepted the write, which has failed since.
    fn is_of_accepted_write(&self) -> bool {
        self.status().is_some_and(|status| (200..300).contains(&status))
    }
}

/// A failed request.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure<E> {
    /// What a caller may do about it.
    pub fault: Fault,
    /// Whether a write may be in progress.
    pub effect: Effect,
    /// What failed.
    pub why: Why,
    /// Azure's answer, where one stands behind it.
    pub azure: Option<E>,
}

/// What failed.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// Another goal is requested of the disk on this VM, or in flight.
    Opposed {
        /// What is asked.
        asked: Goal,
        /// What was asked before.
        earlier: Opposed,
    },
    /// The reads say so.
    Resolved(Resolved),
    /// The VM cannot be read.
    VmUnreadable,
    /// The VM cannot be read after a write.
    UnreadableAfterWrite,
    /// The VolumeAttachments have not become known.
    AttachmentsUnknown,
    /// There is no permit to write the VM.
    NoPermit,
    /// Another writer's write of the VM has not ended.
    OtherWrite,
    /// The write has failed.
    Write,
    /// The write has failed, because this program's identity lacks a right on the disk or on what it refers to.
    LacksRight,
    /// Azure did nothing, and asked for a pause that would be too long.
    Deferred,
    /// The write succeeded, and the VM does not show it.
    NotShown,
    /// The VM still lists a disk that it was told to detach.
    StillListed,
    /// The VM still lists a disk that is not attached to it.
    ListedNotAttached,
    /// A stale data disk cannot be removed from the VM's model.
    StaleNotRemoved,
    /// The VM still lists a stale data disk that was removed from it.
    StaleStillListed,
    /// The VM changed while a stale data disk was being removed from it.
    ChangedMeanwhile,
    /// The disk and the VM are in different zones.
    OtherZone {
        /// The disk's zones; empty for a regional one.
        disk: Vec<String>,
        /// The VM's; `None` for a regional one.
        vm: Option<String>,
    },
    /// Azure has refused to attach a page blob, and does not say why in its code.
    BlobRefused,
    /// The attachment is not, or not any more, the one to detach.
    NotDangling(NotDangling),
    /// Reads of the disk take too long to tell who has attached it.
    SlowReads,
    /// The disk cannot be read.
    DiskUnreadable,
}

impl<E> Failure<E> {
    /// A failure that no answer of Azure's stands behind.
    pub fn new(fault: Fault, why: Why) -> Self {
        Self { fault, effect: Effect::None, why, azure: None }
    }

    pub(super) fn with_effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// The same failure, sorted by the state that was found rather than by Azure's code.
    pub(super) fn resorted(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }
}

impl<E: AzureError> Failure<E> {
    /// A failure that Azure's answer explains.
    pub(super) fn azure(why: Why, error: E) -> Self {
        Self { fault: error.fault().clone(), effect: error.effect(), why, azure: Some(error) }
    }

    pub(super) fn named_disk(&self) -> Option<DiskId> {
        self.azure.as_ref()?.named_disk()
    }

    /// The failure of a batch's write, as the caller of one of its requests gets it.
    ///
    /// A failure that is about another disk is a conflict to this caller, and so is "not found" or "attached elsewhere"
    /// where Azure does not name the disk. "Not found" and "attached elsewhere" are always conflicts to the caller of a
    /// detach.
    pub(super) fn of_batch(&self, disk: &DiskId, goal: Goal) -> Self {
        let named = self.named_disk();
        let is_about_this_disk = match self.fault {
            Fault::NotFound | Fault::AttachedElsewhere { .. } => goal != Goal::Detached && named.as_ref() == Some(disk),
            Fault::BeingDetached
            | Fault::InUse
            | Fault::Invalid
            | Fault::Unclear
            | Fault::Exhausted
            | Fault::LinkedForbidden
            | Fault::Denied
            | Fault::OperationFailed => named.is_none_or(|named| named == *disk),
            _ => true,
        };
        match self.fault {
            _ if !is_about_this_disk => self.clone().resorted(Fault::Conflict),
            // A cloud that attaches page blobs no more says so in its message alone, with a code that says nothing.
            Fault::Invalid | Fault::Unsupported if goal != Goal::Detached && disk.blob().is_some() => {
                Self { why: Why::BlobRefused, ..self.clone() }.resorted(Fault::Unclear)
            }
            // Azure's message names the scope that the identity may not use, and not the disk that refers to it.
            Fault::LinkedForbidden => Self { why: Why::LacksRight, ..self.clone() },
            _ => self.clone(),
        }
    }

    /// The failure that the caller of a failing disk gets where nothing explains it.
    pub(super) fn unexplained(self, disk: &DiskId, goal: Goal) -> Self {
        match self.fault {
            Fault::NotFound if goal != Goal::Detached && self.named_disk().is_none() => self,
            _ => self.of_batch(disk, goal),
        }
    }
}
