//! What a principal may not do is refused by the gateway, and what it may do it is told.

use super::snapshots::{incremental, of, snapshot_id};
use super::*;
use crate::scenario::{CLIENT_ID, Client, Role};

const AUTHORIZATION_VERSION: &str = "2022-04-01";

fn limited(roles: Vec<Role>) -> Options {
    let mut options = options();
    options.scenario.clients[0].roles = Some(roles);
    options
}

fn permissions(scope: &str) -> String {
    format!("{scope}/providers/Microsoft.Authorization/permissions?api-version={AUTHORIZATION_VERSION}")
}

fn object_id() -> String {
    Client::object_id(&Scenario::default().clients[0])
}

#[tokio::test(start_paused = true)]
async fn without_roles_a_principal_may_do_everything_and_is_told_so() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    let everything = json!({"value": [{"actions": ["*"], "notActions": [], "dataActions": [], "notDataActions": []}]});
    for scope in [SUB.to_owned(), group(), disk_id("d")] {
        assert_eq!(rig.get(&permissions(&scope)).await.expect(200).body, everything, "{scope}");
    }
    rig.get(&permissions(&format!("{SUB}/resourceGroups/none"))).await.refused(404, "ResourceGroupNotFound");
    rig.get(&permissions(&disk_id("none"))).await.refused(404, "ResourceNotFound");
    rig.call("PUT", &permissions(&group()), Some(json!({}))).await.refused(405, "MethodNotAllowed");
    rig.get(&permissions(&group()).replace(AUTHORIZATION_VERSION, "2013-01-01")).await.expect(400);
}

#[tokio::test(start_paused = true)]
async fn what_no_role_allows_is_refused_with_action_and_scope_and_takes_no_token() {
    let reader = Role { not_actions: vec!["*/skus/read".to_owned()], ..Role::of(&["*/read"]) };
    let writer = Role { scope: Some(group()), ..Role::of(&["Microsoft.Compute/disks/write"]) };
    let rig = Rig::new(limited(vec![reader, writer])).await;
    rig.disk("d").await;
    let refused = rig.call("DELETE", &disk_uri("d"), None).await.refused(403, "AuthorizationFailed");
    let object = object_id();
    assert_eq!(
        refused.message(),
        format!(
            "The client '{object}' with object id '{object}' does not have authorization to perform action 'Microsoft.Compute/disks/delete' over scope '{}' or the scope is invalid. If access was recently granted, please refresh your credentials.",
            disk_id("d")
        )
    );
    assert_eq!(refused.header("x-ms-failure-cause"), "gateway");
    // What is refused is refused for what does not exist, too.
    rig.call("DELETE", &disk_uri("none"), None).await.refused(403, "AuthorizationFailed");
    let left = async || {
        let got = rig.get(&disk_uri("d")).await.expect(200);
        got.header("x-ms-ratelimit-remaining-subscription-global-reads").parse::<u32>().unwrap()
    };
    let before = left().await;
    let skus = format!("{SUB}/providers/Microsoft.Compute/skus?api-version=2021-07-01");
    let refused = rig.get(&skus).await.refused(403, "AuthorizationFailed");
    assert!(refused.message().contains(&format!("'Microsoft.Compute/skus/read' over scope '{SUB}'")));
    assert_eq!(before - left().await, 1);
    // The role at the group is told there and below, not above.
    let told =
        async |scope: &str| rig.get(&permissions(scope)).await.expect(200).body["value"].as_array().unwrap().len();
    assert_eq!((told(SUB).await, told(&group()).await, told(&disk_id("d")).await), (1, 2, 2));
}

#[tokio::test(start_paused = true)]
async fn roles_change_while_the_emulator_runs() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.control().set_roles(CLIENT_ID, Some(Vec::new())).unwrap();
    rig.get(&disk_uri("d")).await.refused(403, "AuthorizationFailed");
    assert_eq!(rig.get(&permissions(SUB)).await.expect(200).body, json!({"value": []}));
    let listed = rig.get("/subscriptions?api-version=2021-01-01").await.expect(200).body;
    assert_eq!(listed["value"], json!([]));
    let ask = async |method: &str, body: Option<Value>| rig.call(method, "/_emulator/roles", body).await;
    assert_eq!(ask("GET", None).await.expect(200).body, json!({object_id(): []}));
    let refused = ask("POST", Some(json!({"principal": "nobody"}))).await.expect(400);
    assert!(refused.body["error"].as_str().unwrap().contains("\"nobody\" is no principal"), "{}", refused.body);
    let bad = json!({"principal": CLIENT_ID, "roles": [{"actions": ["Microsoft.Compute/disks"]}]});
    let refused = ask("POST", Some(bad)).await.expect(400);
    assert!(refused.body["error"].as_str().unwrap().starts_with("roles[0].actions:"), "{}", refused.body);
    ask("POST", Some(json!({"principal": CLIENT_ID}))).await.expect(204);
    rig.get(&disk_uri("d")).await.expect(200);
    let identity = Role { scope: Some(SUB.to_owned()), ..Role::of(&["*/read"]) };
    rig.control().set_roles("lazuli-identity", Some(vec![identity.clone()])).unwrap();
    assert_eq!(rig.control().roles().into_values().collect::<Vec<_>>(), [vec![identity]]);
}

#[tokio::test(start_paused = true)]
async fn permissions_can_need_a_role_themselves() {
    let mut options = limited(vec![Role::of(&["Microsoft.Compute/*"])]);
    options.unverified.permissions_need_a_role = true;
    let rig = Rig::new(options).await;
    let refused = rig.get(&permissions(&group())).await.refused(403, "AuthorizationFailed");
    assert!(refused.message().contains("'Microsoft.Authorization/permissions/read'"), "{}", refused.message());
}

#[test]
fn a_role_that_cannot_be_is_refused_with_its_key() {
    for (role, error) in [
        ("{actions: [read]}", "clients[0].roles[0].actions: \"read\" is no action"),
        ("{actions: ['*'], scope: /providers/x}", "clients[0].roles[0].scope: \"/providers/x\" does not begin"),
    ] {
        let yaml = format!("clients: [{{id: {CLIENT_ID}, roles: [{role}]}}]");
        let refused = Scenario::parse(&yaml).unwrap_err().to_string();
        assert!(refused.starts_with(error), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_needs_access_to_its_source_too() {
    const DISKS: &str = "Microsoft.Compute/disks/beginGetAccess/action";
    const SNAPSHOTS: &str = "Microsoft.Compute/snapshots/beginGetAccess/action";
    let other = format!("{SUB}/resourceGroups/other");
    let (disk, snapshot) = (disk_id("d"), snapshot_id("s"));
    let at = |kind: &str| format!("{other}/providers/Microsoft.Compute/{kind}/copy?api-version={DISKS_VERSION}");
    let writer = Role::of(&["Microsoft.Compute/*/write", "Microsoft.Compute/*/read"]);
    for (kind, source, action) in [
        ("snapshots", &disk, DISKS),
        ("disks", &disk, DISKS),
        ("disks", &snapshot, DISKS),
        ("snapshots", &snapshot, SNAPSHOTS),
    ] {
        let rig = Rig::new(options()).await;
        rig.disk("d").await;
        rig.snapshot("s", incremental(&disk)).await;
        let group = format!("{other}?api-version=2021-04-01");
        rig.call("PUT", &group, Some(json!({"location": "westeurope"}))).await.expect(201);
        let mut body = of(source);
        if kind == "snapshots" {
            body["properties"]["incremental"] = json!(true);
        }
        rig.control().set_roles(CLIENT_ID, Some(vec![writer.clone()])).unwrap();
        let refused = rig.call("PUT", &at(kind), Some(body.clone())).await.refused(403, "LinkedAuthorizationFailed");
        let object = object_id();
        assert_eq!(
            refused.message(),
            format!(
                "The client '{object}' with object id '{object}' has permission to perform action 'Microsoft.Compute/{kind}/write' on scope '{other}/providers/Microsoft.Compute/{kind}/copy'; however, it does not have permission to perform action '{action}' on the linked scope(s) '{source}' or the linked scope(s) are invalid."
            )
        );
        assert_eq!(refused.header("x-ms-failure-cause"), "gateway");
        // At the wrong scope it is worth nothing, at the source's group it is.
        let wrong = Role { scope: Some(other.clone()), ..Role::of(&[action]) };
        rig.control().set_roles(CLIENT_ID, Some(vec![writer.clone(), wrong])).unwrap();
        rig.call("PUT", &at(kind), Some(body.clone())).await.refused(403, "LinkedAuthorizationFailed");
        let right = Role { scope: Some(super::group()), ..Role::of(&[action]) };
        rig.control().set_roles(CLIENT_ID, Some(vec![writer.clone(), right])).unwrap();
        rig.call("PUT", &at(kind), Some(body)).await.expect(202);
    }
}

#[tokio::test(start_paused = true)]
async fn whether_a_copy_within_a_group_needs_access_to_its_source_is_a_switch() {
    for needed in [true, false] {
        let mut options = limited(vec![Role::of(&["*/write", "*/read"])]);
        options.unverified.linked_access_in_group = needed;
        let rig = Rig::new(options).await;
        rig.disk("d").await;
        let got = rig.put_snapshot("s", of(&disk_id("d"))).await;
        if needed {
            got.refused(403, "LinkedAuthorizationFailed");
        } else {
            got.expect(202);
        }
        // An empty disk has no source.
        rig.disk("e").await;
    }
}
