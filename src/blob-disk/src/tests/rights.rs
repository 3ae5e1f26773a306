//! The role in `deploy/azure` allows what is asked of Azure for blob disks, and nothing else.

use lazuli_model::rbac::action;

use super::*;

const ROLE: &str = include_str!("../../../../deploy/azure/role-blob-disks.json");

/// Asking about the creation of a storage account. That Azure knows an action of this name is not known here, and Azure
/// refuses a role with an action that it does not know.
const ACCOUNT_OPERATION: &str = "microsoft.storage/locations/asyncoperations/read";

#[tokio::test(start_paused = true)]
async fn the_role_of_blob_disks_allows_what_is_asked_of_azure_and_nothing_else() {
    let rig = Rig::start().await;
    let disks = rig.replica(1);
    put_account(&disks, &id("mine")).await;
    let by_a_person = rig.calls().len();
    for (number, parameters) in KINDS.into_iter().enumerate() {
        let made = create(&disks, &format!("pvc-{number}"), parameters).await.unwrap();
        disks.expand(&made.uri, 2 << 30, 0).await.unwrap();
        // Another process knows no account.
        let other = rig.replica(2);
        other.read(&made.uri).await.unwrap();
        other.list([]).await.unwrap();
        other.delete(&made.uri).await.unwrap();
    }
    assert_eq!((rig.blobs(), rig.accounts().len()), (vec![], 2), "the pool and the account of a person are left");

    let calls = rig.calls().split_off(by_a_person);
    let of_manager = calls.iter().filter(|call| call.path.contains("/providers/"));
    let mut needed: BTreeSet<String> =
        of_manager.map(|call| action(&call.method, &call.path).unwrap().to_lowercase()).collect();
    assert!(needed.remove(ACCOUNT_OPERATION), "the creation of an account is asked about");
    let role: Value = serde_json::from_str(ROLE).unwrap();
    let of_role = role["Actions"].as_array().unwrap().iter();
    let allowed: BTreeSet<String> = of_role.map(|action| action.as_str().unwrap().to_lowercase()).collect();
    assert_eq!(needed, allowed, "left the requests, right the role");
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_also_where_it_is_that_to_read_keys() {
    let rig = Rig::start().await;
    let made = create(&rig.replica(1), "pvc-1", SHARED).await.unwrap();
    for (method, path, needed) in [
        ("POST", "listKeys", "Microsoft.Storage/storageAccounts/listKeys/action"),
        ("GET", "storageAccounts", "Microsoft.Storage/storageAccounts/read"),
    ] {
        let denied = json!({"match": {"method": method, "path": format!("*/{path}")},
            "then": {"status": 403, "code": "AuthorizationFailed"}, "times": 0});
        rig.0.control().add_incident(serde_json::from_value(denied).unwrap()).unwrap();
        let error = rig.replica(2).delete(&made.uri).await.unwrap_err();
        assert_eq!(
            (error.azure_code(), error.code(Rpc::DeleteVolume)),
            ("AuthorizationFailed", Code::PermissionDenied)
        );
        assert_eq!(error.action().as_deref(), Some(needed), "{error:?}");
        rig.0.control().clear_incidents();
    }
}
