//! What a caller may do about a failure.
//!
//! Azure's answer becomes a [`Fault`] from its status, codes and target, never from its message. A fault becomes a
//! gRPC code per RPC, chosen by what the CSI sidecar does with that code:
//!
//! - external-provisioner takes only `CANCELLED`, `DEADLINE_EXCEEDED`, `UNAVAILABLE` and `ABORTED` as "may be in
//!   progress"; every other code is final, and a disk that is still being made would leak. With
//!   WaitForFirstConsumer it reads `RESOURCE_EXHAUSTED` as "choose another node".
//! - external-resizer reads `FAILED_PRECONDITION` on expansion as "cannot expand while in use".
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
    /// Everything that only reads: `ListVolumes`, `ControllerGetVolume`, `ValidateVolumeCapabilities`.
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
}

/// The one table: which code a fault becomes in an RPC.
pub fn code(rpc: Rpc, fault: &Fault, effect: Effect) -> Code {
    let code = match (fault, rpc) {
        // What is gone needs no deleting and no detaching.
        (Fault::NotFound, Rpc::DeleteVolume) => Code::Ok,
        (Fault::NotFound, _) => Code::NotFound,
        // On creation the group, subscription or region was a parameter.
        (Fault::ScopeNotFound, Rpc::CreateVolume) => Code::InvalidArgument,
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
        (Fault::ScopeNotFound, Rpc::CreateVolume | Rpc::Publish | Rpc::Expand | Rpc::Modify) => Reason::ScopeNotFound,
        (Fault::Locked, _) => Reason::ResourceLocked,
        (Fault::Exhausted | Fault::AccountFull, _) => Reason::QuotaExceeded,
        (Fault::Throttled { .. }, _) => Reason::Throttled,
        (Fault::DiskLimit, _) => Reason::VMSizeFull,
        (Fault::ZoneMismatch, _) => Reason::ZoneMismatch,
        (Fault::InUse, Rpc::Expand) => Reason::ExpansionNeedsDetach,
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
mod tests {
    use super::*;

    const RPCS: [Rpc; 6] = [Rpc::CreateVolume, Rpc::DeleteVolume, Rpc::Publish, Rpc::Unpublish, Rpc::Expand, Rpc::Read];

    fn every_fault() -> Vec<Fault> {
        vec![
            Fault::NotFound,
            Fault::ScopeNotFound,
            Fault::Conflict,
            Fault::PreconditionFailed,
            Fault::Throttled { retry_after: None },
            Fault::Exhausted,
            Fault::DiskLimit,
            Fault::AccountFull,
            Fault::ZoneMismatch,
            Fault::AttachedElsewhere { holder: None },
            Fault::BeingDetached,
            Fault::InUse,
            Fault::Locked,
            Fault::Invalid,
            Fault::Forbidden,
            Fault::LinkedForbidden,
            Fault::Denied,
            Fault::Unauthenticated,
            Fault::Unsupported,
            Fault::Unclear,
            Fault::OperationFailed,
            Fault::Unavailable,
            Fault::OutcomeUnknown,
            Fault::Deadline,
            Fault::Busy,
            Fault::Malformed,
        ]
    }

    fn answer(status: u16, code: &str) -> Fault {
        classify(&Answer { status, code, ..Answer::default() })
    }

    #[test]
    fn throttling_never_makes_the_provisioner_choose_another_node() {
        for rpc in RPCS {
            for effect in [Effect::None, Effect::Possible] {
                let code = code(rpc, &Fault::Throttled { retry_after: None }, effect);
                assert_eq!(code, Code::Unavailable, "{rpc:?}");
            }
        }
    }

    #[test]
    fn no_fault_is_final_while_a_disk_may_be_in_the_making() {
        for fault in every_fault() {
            let code = code(Rpc::CreateVolume, &fault, Effect::Possible);
            assert!(code.keeps_the_claim(), "{fault:?} -> {code:?}");
        }
    }

    #[test]
    fn a_users_mistake_is_never_a_retried_code() {
        for fault in [Fault::Invalid, Fault::ScopeNotFound] {
            assert_eq!(code(Rpc::CreateVolume, &fault, Effect::None), Code::InvalidArgument);
        }
        for fault in [Fault::Forbidden, Fault::LinkedForbidden] {
            assert!(!code(Rpc::CreateVolume, &fault, Effect::None).keeps_the_claim());
        }
    }

    #[test]
    fn only_a_missing_disk_makes_deletion_succeed() {
        for fault in every_fault() {
            let ok = code(Rpc::DeleteVolume, &fault, Effect::None) == Code::Ok;
            assert_eq!(ok, fault == Fault::NotFound, "{fault:?}");
        }
        for rpc in [Rpc::CreateVolume, Rpc::Publish, Rpc::Unpublish, Rpc::Expand, Rpc::Read] {
            for fault in every_fault() {
                assert_ne!(code(rpc, &fault, Effect::None), Code::Ok, "{rpc:?} {fault:?}");
            }
        }
    }

    #[test]
    fn a_person_gets_an_event_about_what_does_not_heal_and_none_about_what_is_repeated() {
        for rpc in [Rpc::CreateVolume, Rpc::DeleteVolume, Rpc::Publish, Rpc::Unpublish, Rpc::Expand] {
            for (fault, expected) in [
                (Fault::Forbidden, Some(Reason::AuthorizationFailed)),
                (Fault::Unauthenticated, Some(Reason::CredentialRefused)),
                (Fault::Locked, Some(Reason::ResourceLocked)),
                (Fault::Throttled { retry_after: None }, Some(Reason::Throttled)),
                (Fault::Conflict, None),
                (Fault::OutcomeUnknown, None),
                (Fault::Invalid, None),
            ] {
                assert_eq!(reason(rpc, &fault), expected, "{rpc:?} {fault:?}");
            }
        }
        assert_eq!(reason(Rpc::Expand, &Fault::InUse), Some(Reason::ExpansionNeedsDetach));
        assert_eq!(reason(Rpc::DeleteVolume, &Fault::InUse), None);
        assert_eq!(reason(Rpc::Publish, &Fault::DiskLimit), Some(Reason::VMSizeFull));
        assert_eq!(reason(Rpc::Unpublish, &Fault::ScopeNotFound), None);
        assert!(every_fault().iter().all(|fault| reason(Rpc::Read, fault).is_none()));
    }

    #[test]
    fn a_disk_on_another_node_is_a_failed_precondition() {
        let fault = Fault::AttachedElsewhere { holder: None };
        assert_eq!(code(Rpc::Publish, &fault, Effect::None), Code::FailedPrecondition);
    }

    #[test]
    fn azures_codes_are_sorted_by_code_and_never_by_text() {
        for (status, code, fault) in [
            (404, "ResourceNotFound", Fault::NotFound),
            (404, "ResourceGroupNotFound", Fault::ScopeNotFound),
            (404, "NotFound", Fault::NotFound),
            (404, "DiskNotFound", Fault::NotFound),
            (404, "EndpointNotFound", Fault::Malformed),
            (404, "InvalidResourceNamespace", Fault::Malformed),
            (404, "", Fault::Malformed),
            (404, "SubscriptionNotFound", Fault::ScopeNotFound),
            (404, "ParentResourceNotFound", Fault::ScopeNotFound),
            (409, "AttachDiskWhileBeingDetached", Fault::BeingDetached),
            (200, "AttachDiskWhileBeingDetached", Fault::BeingDetached),
            (409, "ConflictingUserInput", Fault::AttachedElsewhere { holder: None }),
            (409, "Conflict", Fault::Conflict),
            (200, "OperationPreempted", Fault::Conflict),
            (409, "DetachUnattachedDisk", Fault::Conflict),
            (409, "ScopeLocked", Fault::Locked),
            (409, "SkuNotAvailable", Fault::Exhausted),
            (409, "OperationNotAllowed", Fault::Unclear),
            (403, "AuthorizationFailed", Fault::Forbidden),
            (403, "LinkedAuthorizationFailed", Fault::LinkedForbidden),
            (403, "RequestDisallowedByPolicy", Fault::Denied),
            (403, "AuthorizationPermissionMismatch", Fault::Forbidden),
            (403, "", Fault::Forbidden),
            (200, "LinkedAuthorizationFailed", Fault::LinkedForbidden),
            (401, "InvalidAuthenticationToken", Fault::Unauthenticated),
            (400, "NoRegisteredProviderFound", Fault::Unsupported),
            (400, "InvalidParameter", Fault::Invalid),
            (200, "InvalidParameter", Fault::Invalid),
            (412, "PreconditionFailed", Fault::PreconditionFailed),
            (429, "TooManyRequests", Fault::Throttled { retry_after: None }),
            (429, "OperationNotAllowed", Fault::Throttled { retry_after: None }),
            (405, "", Fault::Unsupported),
            (501, "NotImplemented", Fault::Unsupported),
            (504, "GatewayTimeout", Fault::Unavailable),
            (500, "", Fault::Unavailable),
            (500, "InternalExecutionError", Fault::Unavailable),
            (200, "InternalExecutionError", Fault::OperationFailed),
            (200, "Failed", Fault::OperationFailed),
            (400, "PublicIPAddressCannotBeDeleted", Fault::InUse),
            (400, "InUseSubnetCannotBeDeleted", Fault::InUse),
            (400, "LoadBalancerInUseByVirtualMachineScaleSet", Fault::InUse),
            (400, "InUse", Fault::Invalid),
        ] {
            assert_eq!(answer(status, code), fault, "{status} {code}");
        }
    }

    #[test]
    fn the_codes_of_accounts_and_shares_are_sorted() {
        for (status, code, fault) in [
            (404, "ShareNotFound", Fault::NotFound),
            (404, "ShareSnapshotNotFound", Fault::NotFound),
            (404, "StorageAccountNotFound", Fault::NotFound),
            (404, "ParentResourceNotFound", Fault::ScopeNotFound),
            // Another has made it, or it is being deleted: what is there is to be read again.
            (409, "ShareAlreadyExists", Fault::Conflict),
            (409, "ShareBeingDeleted", Fault::Conflict),
            (409, "ShareSnapshotInProgress", Fault::Conflict),
            (409, "StorageAccountOperationInProgress", Fault::Conflict),
            (409, "StorageAccountIsNotProvisioned", Fault::Conflict),
            (409, "AccountProvisioningStateInvalid", Fault::Conflict),
            (409, "ShareHasSnapshots", Fault::InUse),
            (409, "StorageAccountAlreadyTaken", Fault::Invalid),
            (409, "StorageAccountAlreadyExists", Fault::Invalid),
            (409, "FeatureNotSupportedForAccount", Fault::Invalid),
            (400, "AccountNameInvalid", Fault::Invalid),
            (400, "AccountPropertyCannotBeUpdated", Fault::Invalid),
            (400, "InvalidHeaderValue", Fault::Invalid),
            (400, "MaxStorageAccountsCountPerSubscriptionExceeded", Fault::Exhausted),
            (409, "ShareSnapshotCountExceeded", Fault::Exhausted),
            (409, "TotalSharesCountExceedsAccountLimit", Fault::AccountFull),
            (409, "TotalSharesProvisionedCapacityExceedsAccountLimit", Fault::AccountFull),
            // The status was noted as 400, too.
            (400, "TotalSharesProvisionedCapacityExceedsAccountLimit", Fault::AccountFull),
            (403, "AccountIsDisabled", Fault::Denied),
            (403, "AuthorizationFailure", Fault::Forbidden),
            (503, "ServerBusy", Fault::Unavailable),
        ] {
            assert_eq!(answer(status, code), fault, "{status} {code}");
        }
    }

    #[test]
    fn a_full_vm_is_known_by_its_target_and_a_throttled_one_by_its_details() {
        let full = Answer { status: 409, code: "OperationNotAllowed", target: Some("dataDisks"), ..Answer::default() };
        assert_eq!(classify(&full), Fault::DiskLimit);
        let throttled = Answer {
            status: 409,
            code: "OperationNotAllowed",
            details: vec!["TooManyRequests"],
            retry_after: Some(Duration::from_secs(7)),
            ..Answer::default()
        };
        assert_eq!(classify(&throttled), Fault::Throttled { retry_after: Some(Duration::from_secs(7)) });
        for code in GROWS_ONLY_DETACHED {
            let inner = Some(code);
            let attached = Answer { status: 409, code: "OperationNotAllowed", inner, ..Answer::default() };
            assert_eq!(classify(&attached), Fault::InUse, "{code}");
        }
    }
}
