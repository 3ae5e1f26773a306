//! What a caller may do about a failure.
//!
//! Azure's answer becomes a [`Fault`] from its status, codes and target, never from its message. A fault becomes a
//! gRPC code per RPC, chosen by what the CSI sidecar does with that code:
//!
//! - external-provisioner takes only `CANCELLED`, `DEADLINE_EXCEEDED`, `UNAVAILABLE` and `ABORTED` as "may be in
//!   progress"; every other code is final, and a disk that is still being made would leak. With
//!   WaitForFirstConsumer it reads `RESOURCE_EXHAUSTED` as "choose another node".
//! - external-snapshotter takes these four and `RESOURCE_EXHAUSTED` as "may be in progress". After every other code it
//!   forgets the snapshot, and one that is being made would leak.
//! - external-resizer reads `FAILED_PRECONDITION` on expansion as "cannot expand while in use". It takes the same five codes
//!   of a modification as "may be in progress", and of the others only `INVALID_ARGUMENT` as "this can never be done".
//! - external-attacher retries everything; the code is for the reader of the event.

use std::time::Duration;

use crate::{ArmId, reason::Reason};

/// What went wrong, sorted by what the caller may do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Exactly this resource does not exist.
    NotFound,
    /// Something around it does not exist (resource group, subscription, parent): whether the resource exists is
    /// unknown.
    ScopeNotFound,
    /// Azure is busy with the resource, or another write overtook ours: gather and plan again.
    Conflict,
    /// A conditional write met another version: gather and plan again.
    PreconditionFailed,
    /// Too many requests; not before this time has passed, if Azure gave one.
    Throttled {
        /// Azure's `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// A quota is used up or the region, zone or size has no capacity.
    Exhausted,
    /// The VM's size takes no more data disks.
    DiskLimit,
    /// The storage account takes no more shares, or none of this size: another account may.
    AccountFull,
    /// The disk is in a zone, and the VM is not in it.
    ZoneMismatch,
    /// Another VM holds the disk.
    AttachedElsewhere {
        /// The VM, where Azure names it in a field.
        holder: Option<ArmId>,
    },
    /// The disk is on its way off a VM.
    BeingDetached,
    /// The resource is in use and the write needs it free.
    InUse,
    /// A management lock forbids it.
    Locked,
    /// The request is wrong and will be wrong again.
    Invalid,
    /// The identity may not do this.
    Forbidden,
    /// The identity may do this to the resource, and lacks a right on another one that the request links to it: a disk,
    /// its encryption set, the source of a copy. It is about the member of a batch that has the link.
    LinkedForbidden,
    /// Azure refuses this very request with a 403, such as a policy of the operator
    /// (`RequestDisallowedByPolicy`). The identity has the right, so it is about what a member of a batch asks for.
    Denied,
    /// No token, or none that Azure takes.
    Unauthenticated,
    /// This Azure does not know the action or the API version.
    Unsupported,
    /// Azure's code says too little (`OperationNotAllowed`): look at the state and decide.
    Unclear,
    /// Azure accepted the write and its operation ended as failed, with a code that says too little: any member of a
    /// batch may be the reason.
    OperationFailed,
    /// Azure could not be reached or had an internal failure; nothing was written.
    Unavailable,
    /// A write was sent and its answer was lost: it may have happened, or be happening.
    OutcomeUnknown,
    /// The time the caller gave is over; a write goes on without it.
    Deadline,
    /// Another request for the same thing, with other content, is on its way.
    Busy,
    /// Something answered in a way this client does not understand.
    Malformed,
}

impl Fault {
    /// Whether Azure says of a resource, or of something around it, that it does not exist. That is what a read found, so
    /// it answers only who asked before that read was sent. Other failures of a read say nothing of the resource.
    pub fn says_that_it_is_missing(&self) -> bool {
        matches!(self, Self::NotFound | Self::ScopeNotFound)
    }

    /// Whether Azure does not let this identity do it: a right is missing, or a lock, a rule of the network or a policy of the
    /// operator forbids it. A retry ends so too until somebody changes that.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Forbidden | Self::LinkedForbidden | Self::Locked | Self::Denied)
    }
}

/// A remote procedure call, as far as the choice of a code is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rpc {
    /// `CreateVolume`
    CreateVolume,
    /// `DeleteVolume`
    DeleteVolume,
    /// `ControllerPublishVolume`
    Publish,
    /// `ControllerUnpublishVolume`
    Unpublish,
    /// `ControllerExpandVolume`
    Expand,
    /// `ControllerModifyVolume`
    Modify,
    /// `CreateSnapshot`
    CreateSnapshot,
    /// `DeleteSnapshot`
    DeleteSnapshot,
    /// Everything that only reads: `ListVolumes`, `ControllerGetVolume`, `ValidateVolumeCapabilities`, `ListSnapshots`,
    /// `GetSnapshot`.
    Read,
}

/// Whether a write may be in progress in Azure when the failure is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing was written, or what was written has been undone.
    None,
    /// Something may have been written, or is being written.
    Possible,
}

/// A gRPC status code (source: the gRPC specification's numbers).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
#[expect(missing_docs, reason = "the names are gRPC's own")]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// Whether external-provisioner takes the code as "the operation may still be in progress".
    pub fn keeps_the_claim(self) -> bool {
        matches!(self, Self::Cancelled | Self::DeadlineExceeded | Self::Unavailable | Self::Aborted)
    }

    /// Whether external-snapshotter takes the code as "the snapshot may still be in the making", and external-resizer as
    /// "the modification may still be in progress" (source: `isCSIFinalError` of the one, `IsFinalError` of the other).
    pub fn may_be_in_progress(self) -> bool {
        self.keeps_the_claim() || self == Self::ResourceExhausted
    }
}

/// The one table: which code a fault becomes in an RPC.
pub fn code(rpc: Rpc, fault: &Fault, effect: Effect) -> Code {
    let code = match (fault, rpc) {
        // What is gone needs no deleting and no detaching.
        (Fault::NotFound, Rpc::DeleteVolume | Rpc::DeleteSnapshot) => Code::Ok,
        (Fault::NotFound, _) => Code::NotFound,
        // On creation the group, subscription or region was a parameter.
        (Fault::ScopeNotFound, Rpc::CreateVolume | Rpc::CreateSnapshot) => Code::InvalidArgument,
        (Fault::ScopeNotFound, _) => Code::FailedPrecondition,
        (Fault::Conflict | Fault::PreconditionFailed | Fault::BeingDetached | Fault::Busy, _) => Code::Aborted,
        // Never RESOURCE_EXHAUSTED: the provisioner would choose another node because Azure is busy.
        (
            Fault::Throttled { .. }
            | Fault::OperationFailed
            | Fault::Unavailable
            | Fault::OutcomeUnknown
            | Fault::Malformed,
            _,
        ) => Code::Unavailable,
        (Fault::Exhausted | Fault::DiskLimit | Fault::AccountFull, _) => Code::ResourceExhausted,
        // What it is made from is not ready for that, as far as can be told, and the same request is right later.
        (Fault::Unclear, Rpc::CreateVolume) => Code::Unavailable,
        (Fault::Unclear, Rpc::CreateSnapshot) => Code::Aborted,
        (Fault::AttachedElsewhere { .. } | Fault::InUse | Fault::Locked | Fault::Unclear, _) => {
            Code::FailedPrecondition
        }
        (Fault::Invalid | Fault::ZoneMismatch | Fault::Unsupported, _) => Code::InvalidArgument,
        (Fault::Forbidden | Fault::LinkedForbidden | Fault::Denied, _) => Code::PermissionDenied,
        (Fault::Unauthenticated, _) => Code::Unauthenticated,
        (Fault::Deadline, _) => Code::DeadlineExceeded,
    };
    match (rpc, effect) {
        // A final code would make the provisioner forget a disk that Azure is making.
        (Rpc::CreateVolume, Effect::Possible) if !code.keeps_the_claim() => Code::Unavailable,
        // So would external-snapshotter forget a snapshot, and external-resizer take a change for not made.
        (Rpc::CreateSnapshot | Rpc::Modify, Effect::Possible) if !code.may_be_in_progress() => Code::Unavailable,
        _ => code,
    }
}

/// The same table's other column: why a person gets an event about a fault in an RPC. `None` for what heals by itself,
/// and for a user's mistake, which the sidecar's own event tells with the message.
pub fn reason(rpc: Rpc, fault: &Fault) -> Option<Reason> {
    Some(match (fault, rpc) {
        // The caller of a read is a sidecar that repeats it; no object of a person is behind it.
        (_, Rpc::Read) => return None,
        (Fault::Forbidden, _) => Reason::AuthorizationFailed,
        (Fault::LinkedForbidden, _) => Reason::LinkedAuthorizationFailed,
        (Fault::Unauthenticated, _) => Reason::CredentialRefused,
        // Of what is deleted or detached, the group may be gone with everything in it.
        (Fault::ScopeNotFound, Rpc::CreateVolume | Rpc::CreateSnapshot | Rpc::Publish | Rpc::Expand | Rpc::Modify) => {
            Reason::ScopeNotFound
        }
        (Fault::Locked, _) => Reason::ResourceLocked,
        (Fault::Exhausted | Fault::AccountFull, _) => Reason::QuotaExceeded,
        (Fault::Throttled { .. }, _) => Reason::Throttled,
        (Fault::DiskLimit, _) => Reason::VMSizeFull,
        (Fault::ZoneMismatch, _) => Reason::ZoneMismatch,
        (Fault::InUse, Rpc::Expand) => Reason::ExpansionNeedsDetach,
        // Azure changes it at another time: detached, or once fewer changes were made today.
        (Fault::InUse | Fault::Unclear, Rpc::Modify) => Reason::ModificationRefused,
        (
            Fault::NotFound
            | Fault::ScopeNotFound
            | Fault::Conflict
            | Fault::PreconditionFailed
            | Fault::AttachedElsewhere { .. }
            | Fault::BeingDetached
            | Fault::InUse
            | Fault::Invalid
            | Fault::Denied
            | Fault::Unsupported
            | Fault::Unclear
            | Fault::OperationFailed
            | Fault::Unavailable
            | Fault::OutcomeUnknown
            | Fault::Deadline
            | Fault::Busy
            | Fault::Malformed,
            _,
        ) => return None,
    })
}

/// What Azure said, in the fields that a decision may rest on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The HTTP status; 200 when an operation failed late.
    pub status: u16,
    /// `error.code`.
    pub code: &'a str,
    /// The codes of `error.details[]`.
    pub details: Vec<&'a str>,
    /// `error.innererror.internalErrorCode`.
    pub inner: Option<&'a str>,
    /// `error.target`.
    pub target: Option<&'a str>,
    /// `Retry-After`, as a time from now.
    pub retry_after: Option<Duration>,
}

/// The codes of a resize that Azure makes once the disk is detached, or while no VM reads it (source: Microsoft's page on
/// errors of disk resizes).
const GROWS_ONLY_DETACHED: [&str; 6] = [
    "ChangeDiskSizeWhileAttachedNotAllowed",
    "ChangeDiskSizeWhileAttachedForSkuNotAllowed",
    "ChangeDiskSizeWhileActiveSasNotAllowed",
    "InvalidResizeForLargeDisks",
    "LiveDiskPropertyChangeOfVMOfSizeNotSupported",
    "LiveResizeSharedDiskNotAllowed",
];

/// The codes that say that exactly the resource of the request is gone: the front door's, which is recorded; the compute
/// provider's own, which are documented: for a disk, and for an instance of a scale set or a disk that a write of a VM
/// names; and those of the storage provider for an account, for a share (recorded) and for a snapshot of one. Any other
/// code of a 404 says that something else is missing.
const GONE: [&str; 6] = [
    "ResourceNotFound",
    "NotFound",
    "DiskNotFound",
    "StorageAccountNotFound",
    "ShareNotFound",
    "ShareSnapshotNotFound",
];

/// The codes by which the file service says that an account has no room for a share (source: file-service-error-codes,
/// and azurefile-csi-driver#3132 for the capacity).
const ACCOUNT_FULL: [&str; 2] =
    ["TotalSharesCountExceedsAccountLimit", "TotalSharesProvisionedCapacityExceedsAccountLimit"];

/// The codes of the storage provider that come with a 409 and say all the same that the request is wrong: the name of the
/// account belongs to another one, or the account's SKU or kind does not have what is asked for.
const WRONG_OF_STORAGE: [&str; 3] =
    ["StorageAccountAlreadyTaken", "StorageAccountAlreadyExists", "FeatureNotSupportedForAccount"];

/// Whether a code of the network provider says that something else refers to what is to be deleted, such as
/// `PublicIPAddressCannotBeDeleted`, `InUseSubnetCannotBeDeleted` and `LoadBalancerInUseByVirtualMachineScaleSet` (source:
/// the catalogue that the emulator quotes, by kind of resource). What refers to it may go by itself.
fn keeps_in_use(code: &str) -> bool {
    let code = code.to_ascii_lowercase();
    code.ends_with("cannotbedeleted") || code.contains("inusebyvirtualmachinescaleset")
}

/// Sorts Azure's answer (source of the codes: the error catalogue of the compute and network providers, as quoted in
/// public threads; each row has its test).
pub fn classify(answer: &Answer<'_>) -> Fault {
    let is = |name: &str| answer.code.eq_ignore_ascii_case(name);
    let mentions = |name: &str| {
        is(name)
            || answer.inner.is_some_and(|inner| inner.eq_ignore_ascii_case(name))
            || answer.details.iter().any(|detail| detail.eq_ignore_ascii_case(name))
    };
    let any = |names: &[&str]| names.iter().any(|name| is(name));
    let throttled = Fault::Throttled { retry_after: answer.retry_after };

    if answer.status == 429 || mentions("TooManyRequests") || mentions("TooManyRequestsReceived") {
        return throttled;
    }
    match answer.status {
        401 => return Fault::Unauthenticated,
        412 => return Fault::PreconditionFailed,
        _ => {}
    }
    if GROWS_ONLY_DETACHED.iter().any(|code| mentions(code)) {
        return Fault::InUse;
    }
    if matches!(answer.status, 400 | 409) && keeps_in_use(answer.code) {
        return Fault::InUse;
    }
    if any(&["ResourceGroupNotFound", "SubscriptionNotFound", "ParentResourceNotFound", "InvalidSubscriptionId"]) {
        return Fault::ScopeNotFound;
    }
    if any(&GONE) && matches!(answer.status, 404 | 200) {
        return Fault::NotFound;
    }
    if any(&["AttachDiskWhileBeingDetached"]) {
        return Fault::BeingDetached;
    }
    if any(&["ConflictingUserInput", "DiskBlobAlreadyInUseByAnotherDisk"]) {
        return Fault::AttachedElsewhere { holder: None };
    }
    if any(&["ScopeLocked"]) {
        return Fault::Locked;
    }
    if any(&["LinkedAuthorizationFailed"]) {
        return Fault::LinkedForbidden;
    }
    if any(&["AuthorizationFailed"]) {
        return Fault::Forbidden;
    }
    if any(&["InvalidAuthenticationToken", "ExpiredAuthenticationToken", "AuthenticationFailed"]) {
        return Fault::Unauthenticated;
    }
    if any(&[
        "NoRegisteredProviderFound",
        "InvalidApiVersionParameter",
        "InvalidResourceType",
        "MissingApiVersionParameter",
    ]) {
        return Fault::Unsupported;
    }
    if any(&[
        "SkuNotAvailable",
        "QuotaExceeded",
        "ZonalAllocationFailed",
        "AllocationFailed",
        "OverconstrainedAllocationRequest",
        "MaxStorageAccountsCountPerSubscriptionExceeded",
        "ShareSnapshotCountExceeded",
    ]) {
        return Fault::Exhausted;
    }
    if any(&ACCOUNT_FULL) {
        return Fault::AccountFull;
    }
    if any(&WRONG_OF_STORAGE) {
        return Fault::Invalid;
    }
    // A deletion that spares snapshots: they must go first.
    if is("ShareHasSnapshots") {
        return Fault::InUse;
    }
    if any(&[
        "OperationPreempted",
        "Conflict",
        "DataDisksForceDetached",
        "DetachUnattachedDisk",
        "AnotherOperationInProgress",
        "RetryableError",
        "Canceled",
    ]) {
        return Fault::Conflict;
    }
    if is("OperationNotAllowed") {
        return match answer.target {
            Some(target) if target.eq_ignore_ascii_case("dataDisks") => Fault::DiskLimit,
            _ => Fault::Unclear,
        };
    }
    match answer.status {
        405 | 501 => Fault::Unsupported,
        400 | 411 | 413 | 415 | 422 => Fault::Invalid,
        // The storage service has codes of its own for a missing right, all of which begin so.
        403 if answer.code.is_empty() || answer.code.starts_with("Authorization") => Fault::Forbidden,
        403 => Fault::Denied,
        // Something on the way was not found (`EndpointNotFound`, a proxy's page). It says nothing of the resource, and
        // "gone" would end a volume that exists.
        404 => Fault::Malformed,
        409 => Fault::Conflict,
        408 | 500..=599 => Fault::Unavailable,
        200..=299 if any(&["InvalidParameter", "BadRequest", "InvalidRequest"]) => Fault::Invalid,
        // A late failure with a code this list does not know: Azure undid it or not, we cannot tell.
        200..=299 => Fault::OperationFailed,
        _ => Fault::Malformed,
    }
}

#[cfg(test)]
mod tests;
