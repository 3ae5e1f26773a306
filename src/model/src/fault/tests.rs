//! Each row of the tables.

use super::*;

const RPCS: [Rpc; 9] = [
    Rpc::CreateVolume,
    Rpc::DeleteVolume,
    Rpc::Publish,
    Rpc::Unpublish,
    Rpc::Expand,
    Rpc::Modify,
    Rpc::CreateSnapshot,
    Rpc::DeleteSnapshot,
    Rpc::Read,
];

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
fn only_what_is_missing_makes_deletion_succeed() {
    for fault in every_fault() {
        for rpc in [Rpc::DeleteVolume, Rpc::DeleteSnapshot] {
            let ok = code(rpc, &fault, Effect::None) == Code::Ok;
            assert_eq!(ok, fault == Fault::NotFound, "{rpc:?} {fault:?}");
        }
    }
    let deletes = |rpc: &Rpc| matches!(rpc, Rpc::DeleteVolume | Rpc::DeleteSnapshot);
    for rpc in RPCS.into_iter().filter(|rpc| !deletes(rpc)) {
        for fault in every_fault() {
            assert_ne!(code(rpc, &fault, Effect::None), Code::Ok, "{rpc:?} {fault:?}");
        }
    }
}

#[test]
fn a_person_gets_an_event_about_what_does_not_heal_and_none_about_what_is_repeated() {
    for rpc in RPCS.into_iter().filter(|rpc| *rpc != Rpc::Read) {
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
    for fault in [Fault::InUse, Fault::Unclear] {
        assert_eq!(reason(Rpc::Modify, &fault), Some(Reason::ModificationRefused));
        assert_eq!(reason(Rpc::CreateSnapshot, &fault), None);
    }
    assert_eq!(reason(Rpc::CreateSnapshot, &Fault::ScopeNotFound), Some(Reason::ScopeNotFound));
    assert_eq!(reason(Rpc::DeleteSnapshot, &Fault::ScopeNotFound), None);
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

/// The codes after which external-snapshotter goes on asking for a snapshot, and external-resizer takes a change for
/// possible: as they write them.
const MAY_BE_IN_PROGRESS: [Code; 5] =
    [Code::Cancelled, Code::DeadlineExceeded, Code::Unavailable, Code::ResourceExhausted, Code::Aborted];

#[test]
fn no_fault_makes_a_sidecar_forget_what_may_have_been_written() {
    for rpc in [Rpc::CreateSnapshot, Rpc::Modify] {
        for fault in every_fault() {
            let code = code(rpc, &fault, Effect::Possible);
            assert!(MAY_BE_IN_PROGRESS.contains(&code), "{rpc:?} {fault:?} -> {code:?}");
        }
    }
    for number in 0..=16 {
        let code = [
            Code::Ok,
            Code::Cancelled,
            Code::Unknown,
            Code::InvalidArgument,
            Code::DeadlineExceeded,
            Code::NotFound,
            Code::AlreadyExists,
            Code::PermissionDenied,
            Code::ResourceExhausted,
            Code::FailedPrecondition,
            Code::Aborted,
            Code::OutOfRange,
            Code::Unimplemented,
            Code::Internal,
            Code::Unavailable,
            Code::DataLoss,
            Code::Unauthenticated,
        ][number];
        assert_eq!(code as usize, number);
        assert_eq!(code.may_be_in_progress(), MAY_BE_IN_PROGRESS.contains(&code), "{code:?}");
    }
}

/// The rows of snapshots and modifications, where nothing was written.
#[test]
fn snapshots_and_modifications_have_a_row_for_every_fault() {
    use Code::{
        Aborted, DeadlineExceeded, FailedPrecondition, InvalidArgument, NotFound, Ok, PermissionDenied,
        ResourceExhausted, Unauthenticated, Unavailable,
    };
    let rows = every_fault().into_iter().map(|fault| {
        let expected = match fault {
            Fault::NotFound => [NotFound, Ok, NotFound],
            Fault::ScopeNotFound => [InvalidArgument, FailedPrecondition, FailedPrecondition],
            Fault::Conflict | Fault::PreconditionFailed | Fault::BeingDetached | Fault::Busy => [Aborted; 3],
            Fault::Throttled { .. }
            | Fault::OperationFailed
            | Fault::Unavailable
            | Fault::OutcomeUnknown
            | Fault::Malformed => [Unavailable; 3],
            Fault::Exhausted | Fault::DiskLimit | Fault::AccountFull => [ResourceExhausted; 3],
            Fault::Unclear => [Aborted, FailedPrecondition, FailedPrecondition],
            Fault::AttachedElsewhere { .. } | Fault::InUse | Fault::Locked => [FailedPrecondition; 3],
            Fault::Invalid | Fault::ZoneMismatch | Fault::Unsupported => [InvalidArgument; 3],
            Fault::Forbidden | Fault::LinkedForbidden | Fault::Denied => [PermissionDenied; 3],
            Fault::Unauthenticated => [Unauthenticated; 3],
            Fault::Deadline => [DeadlineExceeded; 3],
        };
        (fault, expected)
    });
    for (fault, expected) in rows {
        let codes = [Rpc::CreateSnapshot, Rpc::DeleteSnapshot, Rpc::Modify].map(|rpc| code(rpc, &fault, Effect::None));
        assert_eq!(codes, expected, "{fault:?}");
    }
}

#[test]
fn what_azure_refuses_now_is_never_told_to_be_impossible() {
    for fault in [Fault::InUse, Fault::Unclear, Fault::Conflict, Fault::Locked, Fault::Exhausted, Fault::Forbidden] {
        for effect in [Effect::None, Effect::Possible] {
            assert_ne!(code(Rpc::Modify, &fault, effect), Code::InvalidArgument, "{fault:?}");
        }
    }
    assert_eq!(code(Rpc::Modify, &Fault::Invalid, Effect::None), Code::InvalidArgument);
}
