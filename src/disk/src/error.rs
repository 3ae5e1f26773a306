//! Why a volume operation failed.

use std::{fmt, sync::Arc};

use lazuli_azure::error::{ArmError, Failure};
use lazuli_blob_disk::BlobDiskError;
use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    ArmId, BlobUri, DiskId, chain,
    fault::{Effect, Fault},
};
use lazuli_storage::{dangling::NotDangling, publish::WorkFailure, whole_disk::Needed};
use lazuli_vm_disks::AzureError;

/// A failed volume operation: what a caller may do about it, and a sentence for the reader.
///
/// Cheap to clone, because all callers that wait for one write get the same failure.
#[derive(Debug, Clone)]
pub struct VolumeError {
    /// What a caller may do about it.
    pub fault: Fault,
    /// Whether a write may be in progress.
    pub effect: Effect,
    message: String,
    /// What an event says instead of the message, which names a single request.
    note: Option<Arc<str>>,
    source: Option<Cause>,
    /// Why the detach of an unused disk was not sent.
    not_dangling: Option<Arc<NotDangling>>,
    /// What snapshots forbid.
    needed: Option<Arc<Needed>>,
}

/// What stands behind a failure.
#[derive(Debug, Clone)]
enum Cause {
    /// The resource manager's answer.
    Manager(Arc<ArmError>),
    /// The failure of a page blob, whose words are the failure's own.
    Blob(BlobDiskError),
}

impl VolumeError {
    /// A failure that no answer of Azure's stands behind.
    pub(crate) fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self {
            fault,
            effect: Effect::None,
            message: message.into(),
            note: None,
            source: None,
            not_dangling: None,
            needed: None,
        }
    }

    /// A failure that Azure's answer explains.
    pub(crate) fn azure(message: impl Into<String>, source: ArmError) -> Self {
        Self {
            fault: source.fault.clone(),
            effect: source.effect,
            message: message.into(),
            note: None,
            source: Some(Cause::Manager(Arc::new(source))),
            not_dangling: None,
            needed: None,
        }
    }

    /// A page blob is meant, and this program has no client of page blobs.
    pub(crate) fn no_blob_disks(disk: &BlobUri) -> Self {
        Self::new(
            Fault::Unsupported,
            format!("{disk} is a VHD in a page blob, and this program has no client of page blobs"),
        )
    }

    /// The failure of a request for a page blob.
    pub(crate) fn blob(error: BlobDiskError) -> Self {
        let of_error = Self::new(error.fault(), error.to_string());
        Self { source: Some(Cause::Blob(error)), ..of_error }
    }

    /// The detach of an unused disk was not sent, because its attachment is not, or not any more, the one to detach.
    pub(crate) fn not_dangling(disk: &DiskId, reason: NotDangling) -> Self {
        let message = format!("{disk} is not detached, because {reason}");
        Self { not_dangling: Some(Arc::new(reason)), ..Self::new(Fault::Conflict, message) }
    }

    /// Azure's `error.code`; empty when Azure gave none.
    pub fn azure_code(&self) -> &str {
        match &self.source {
            None => "",
            Some(Cause::Manager(error)) => &error.code,
            Some(Cause::Blob(error)) => error.azure_code(),
        }
    }

    /// The action of Azure's role-based access control that the failed call needs.
    pub fn action(&self) -> Option<String> {
        match self.source.as_ref()? {
            Cause::Manager(error) => lazuli_model::rbac::action(error.verb.as_str(), &error.resource),
            Cause::Blob(error) => error.action(),
        }
    }

    /// What an event says of the failure: the same for every request that fails for this reason.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The same failure, with what an event says of it.
    pub(crate) fn noted(mut self, note: impl Into<Arc<str>>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// The same failed change, with what is in its way.
    pub(crate) fn hindered(self, disk: &ArmId, hindrance: Option<&str>) -> Self {
        match hindrance {
            Some(why) => self
                .suffixed(why)
                .noted(format!("Disk {} cannot be changed as its VolumeAttributesClass asks, for {why}", disk.name())),
            None => self,
        }
    }

    /// The same failure, which snapshots forbid.
    pub(crate) fn needed(mut self, needed: Needed) -> Self {
        self.needed = Some(Arc::new(needed));
        self
    }

    /// What snapshots forbid, where that is why.
    pub(crate) fn needed_by_snapshots(&self) -> Option<&Needed> {
        self.needed.as_deref()
    }

    /// The same failure, while a write may be in progress.
    pub(crate) fn with_effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// The same failure of a request that may have left something before.
    pub(crate) fn with_effect_of(self, before: Effect) -> Self {
        match before {
            Effect::Possible => self.with_effect(before),
            Effect::None => self,
        }
    }

    /// The same failure, with what a caller may want to know too.
    pub(crate) fn suffixed(mut self, words: &str) -> Self {
        self.message = format!("{}; {words}", self.message);
        self
    }

    /// The same failure, sorted by the state that was found rather than by Azure's code.
    pub(crate) fn resorted(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }
}

impl WorkFailure for VolumeError {
    fn fault(&self) -> &Fault {
        &self.fault
    }

    fn not_dangling(&self) -> Option<&NotDangling> {
        self.not_dangling.as_deref()
    }
}

impl AzureFailure for VolumeError {
    fn fault(&self) -> &Fault {
        &self.fault
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn code(&self) -> &str {
        self.azure_code()
    }
}

/// Azure's own error, as a step sees it.
#[derive(Debug, Clone)]
pub(crate) struct Answer(pub(crate) ArmError);

impl AzureFailure for Answer {
    fn fault(&self) -> &Fault {
        &self.0.fault
    }

    fn effect(&self) -> Effect {
        self.0.effect
    }

    fn code(&self) -> &str {
        &self.0.code
    }
}

impl AzureError for Answer {
    fn status(&self) -> Option<u16> {
        self.0.status
    }

    fn named_disk(&self) -> Option<DiskId> {
        named_disk(&self.0)
    }
}

/// The failed read of a page blob, as a step sees it: the resource manager's own answer where that says the same, as where
/// it gives no keys.
pub(crate) fn unread_blob(disk: &BlobUri, error: &VolumeError) -> Answer {
    let by_manager = match &error.source {
        Some(Cause::Blob(error)) => error.by_manager(),
        Some(Cause::Manager(_)) | None => None,
    };
    match by_manager.filter(|answer| answer.fault == error.fault) {
        Some(answer) => Answer(answer.clone()),
        None => Answer(Failure::elsewhere(error.fault.clone(), disk.as_str(), chain(error)).into()),
    }
}

/// The disk that Azure's answer names as its target, if any.
fn named_disk(error: &ArmError) -> Option<DiskId> {
    error.target.as_deref()?.parse().ok()
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for VolumeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.source.as_ref()? {
            Cause::Manager(error) => Some(&**error),
            Cause::Blob(error) => error.source(),
        }
    }
}
