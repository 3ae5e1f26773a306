//! The engine, driven by types that exist for these tests only.

use super::*;
use crate::arm::compute::base::{DISK_FAMILY, RESOURCE, VM_FAMILY};
use crate::arm::descriptor::{
    BackReference, By, Children, Descriptor, Family, Form, Hooks, InUse, Provider, Reference, Writers,
};
use crate::arm::network::base::{self as network, CHILDREN};
use crate::arm::protocol::{Access, Answered, Commit, Etags, Patch, Put, Schema, Scope, Shape, Stamps};
use crate::fault;

pub(crate) static PROVIDER: Provider = Provider {
    namespace: "Microsoft.Probe",
    types: &[&ACCOUNT, &SHARE, &SOURCE, &BALANCER, &SET],
    other_types: &[],
    routes: &[],
};

const BODY: Schema = Schema { name: "Probe", root: "probe" };
const LATER: Answered = Answered::new(202, Shape::Location);
const DONE: Answered = Answered::new(200, Shape::Synchronous);

/// As a storage account: made with 202 and `Location`, changed at once.
static ACCOUNT: Descriptor = Descriptor {
    kind: "Microsoft.Probe/accounts",
    path: "accounts",
    schema: BODY,
    lists: &[Scope::Either, Scope::Location],
    put: Put { created: LATER, updated: |_| DONE, running: |_| "Creating", commit: Commit::AtOnce },
    patch: Patch::Merge { operation: "update", schema: BODY, answered: DONE },
    delete: DONE,
    in_use: &[InUse { by: By::References, fault: |account, by| fault::prefix_in_use(&account["name"], by) }],
    ..RESOURCE
};

/// As its shares: documents of their own below a path of several segments, done at once.
static SHARE: Descriptor = Descriptor {
    kind: "Microsoft.Probe/accounts/services/shares",
    path: "accounts/*/services/default/shares",
    parent: Some(&ACCOUNT),
    schema: BODY,
    layout: &["id", "name", "type", "properties"],
    put: Put { created: Answered::new(201, Shape::Synchronous), updated: |_| DONE, ..ACCOUNT_PUT },
    delete: DONE,
    ..RESOURCE
};

const ACCOUNT_PUT: Put = Put { created: LATER, updated: |_| DONE, running: |_| "", commit: Commit::AtOnce };

/// As a snapshot: written with 202 and both headers, visible at the end, one writer at a time.
static SOURCE: Descriptor = Descriptor {
    kind: "Microsoft.Probe/sources",
    path: "sources",
    family: &DISK_FAMILY,
    schema: BODY,
    patch: Patch::Merge { operation: "update", schema: BODY, answered: Answered::new(202, Shape::Both) },
    references: &[Reference::new("properties/account", "Microsoft.Probe/accounts")],
    shows: &[BackReference { member: "shares", from: "Microsoft.Probe/accounts/services/shares", form: Form::Many }],
    stamps: Stamps::State,
    writers: Writers::Refuse,
    hooks: Hooks {
        complete: |draft| {
            let made = draft.old.map_or(draft.stamp, |old| old["properties"]["made"].as_str().unwrap_or(""));
            Ok(
                json!({"properties": {"size": draft.number("size", 0), "account": draft.asked()["account"], "bad": draft.flag("bad"), "made": made}}),
            )
        },
        check: |_, doc, _| match doc["properties"]["bad"] == true {
            true => Err(fault::bad_request("bad")),
            false => Ok(()),
        },
        ..Hooks::NONE
    },
    ..RESOURCE
};

/// As a load balancer and a security group: parts that name each other, parts of the service's own.
static BALANCER: Descriptor = Descriptor {
    kind: "Microsoft.Probe/balancers",
    path: "balancers",
    schema: BODY,
    children: &[
        Children {
            kind: "Microsoft.Probe/balancers/probes",
            member: "probes",
            schema: BODY,
            in_use: &[InUse { by: By::References, fault: |probe, by| fault::prefix_in_use(&probe["name"], by) }],
            ..CHILDREN
        },
        Children {
            kind: "Microsoft.Probe/balancers/rules",
            member: "rules",
            schema: BODY,
            references: &[Reference::new("properties/probe", "Microsoft.Probe/balancers/probes")],
            ..CHILDREN
        },
        Children { kind: "Microsoft.Probe/balancers/defaults", member: "defaults", access: Access::Read, ..CHILDREN },
    ],
    hooks: Hooks {
        complete: |_| Ok(json!({"properties": {"defaults": [{"name": "deny", "properties": {"priority": 65500}}]}})),
        ..Hooks::NONE
    },
    ..network::RESOURCE
};

/// As a scale set: etags that count.
static SET: Descriptor = Descriptor {
    kind: "Microsoft.Probe/sets",
    path: "sets",
    family: &Family { etags: Etags::Counted, ..VM_FAMILY },
    schema: BODY,
    layout: &["name", "id", "etag", "location", "properties"],
    put: Put {
        created: Answered::new(201, Shape::AsyncOperation),
        updated: |_| Answered::new(200, Shape::AsyncOperation),
        running: |_| "Creating",
        commit: Commit::AtOnce,
    },
    ..RESOURCE
};

fn uri(path: &str) -> String {
    format!("{}/providers/Microsoft.Probe/{path}?api-version=2025-04-01", group())
}

fn state_and_size(doc: &Value) -> Value {
    json!([doc["properties"]["provisioningState"], doc["properties"]["size"]])
}

impl Rig {
    async fn located(&self, got: &Got) -> Got {
        for _ in 0..100 {
            let polled = self.get(path_of(got.header("location"))).await;
            if polled.status != 202 {
                return polled;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("the operation did not end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_type_that_is_made_later_and_changed_at_once_has_one_header() {
    let rig = Rig::new(slow()).await;
    let body = json!({"location": "westeurope", "properties": {"a": 1}});
    let got = rig.call("PUT", &uri("accounts/x"), Some(body)).await.expect(202);
    assert!(got.header("azure-asyncoperation").is_empty() && !got.header("location").is_empty());
    assert_eq!((got.body, got.headers.contains_key("azure-asyncnotification")), (Value::Null, false));
    let shown = rig.get(&uri("accounts/x")).await.expect(200).body;
    assert_eq!(shown["properties"], json!({"provisioningState": "Creating", "a": 1}));
    rig.call("PATCH", &uri("accounts/x"), Some(json!({"properties": {"b": 2}}))).await.refused(409, "Conflict");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let patched =
        rig.call("PATCH", &uri("accounts/x"), Some(json!({"tags": {"t": "1"}, "properties": {"b": 2}}))).await;
    assert_eq!(patched.expect(200).body["properties"], json!({"provisioningState": "Succeeded", "a": 1, "b": 2}));
    let here = format!("{SUB}/providers/Microsoft.Probe/locations/westeurope/accounts?api-version=2025-04-01");
    assert_eq!(rig.get(&here).await.expect(200).body["value"][0]["tags"], json!({"t": "1"}));
    let there = here.replace("westeurope", "eastus");
    assert_eq!(rig.get(&there).await.expect(200).body["value"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn resources_below_a_resource_need_it_and_go_with_it() {
    let rig = Rig::new(options()).await;
    let (share, body) = (uri("accounts/x/services/default/shares/s"), json!({"properties": {"quota": 5}}));
    let got = rig.call("PUT", &share, Some(body.clone())).await.refused(404, "ParentResourceNotFound");
    assert!(got.message().contains("'Microsoft.Probe/accounts/services/shares'"), "{}", got.message());
    rig.get(&uri("accounts/x/services/default/shares")).await.refused(404, "ResourceNotFound");
    let account = json!({"location": "westeurope", "properties": {}});
    let got = rig.call("PUT", &uri("accounts/x"), Some(account)).await.expect(202);
    rig.located(&got).await.expect(200);
    rig.call("PUT", &share, Some(body.clone())).await.expect(201);
    // Letter case does not matter for finding, and stays for showing.
    rig.call("PUT", &share.replace("/s?", "/S?").replace("accounts/x", "ACCOUNTS/X"), Some(body)).await.expect(200);
    let listed = rig.get(&uri("accounts/x/services/default/shares")).await.expect(200).body["value"].clone();
    assert_eq!(listed[0]["id"], format!("{}/providers/Microsoft.Probe/accounts/x/services/default/shares/s", group()));
    assert_eq!((&listed[0]["name"], listed.as_array().unwrap().len()), (&json!("s"), 1));
    rig.call("POST", &share, Some(json!({}))).await.refused(405, "MethodNotAllowed");
    rig.call("DELETE", &uri("accounts/x"), None).await.expect(200);
    rig.get(&share).await.refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn what_is_visible_at_the_end_shows_the_old_document_until_then() {
    let rig = Rig::new(slow()).await;
    let body = |size: u64| json!({"location": "westeurope", "properties": {"size": size}});
    let got = rig.call("PUT", &uri("sources/x"), Some(body(1))).await.expect(202);
    assert_eq!(state_and_size(&got.body), json!(["Updating", 1]));
    rig.call("PUT", &uri("sources/x"), Some(body(1))).await.refused(409, "Conflict");
    assert_eq!(rig.finish(&got).await["properties"]["output"]["properties"]["provisioningState"], "Succeeded");
    let got = rig.call("PATCH", &uri("sources/x"), Some(json!({"properties": {"size": 2}}))).await.expect(202);
    let during = rig.get(&uri("sources/x")).await.expect(200).body;
    assert_eq!((state_and_size(&during), &during["properties"]["shares"]), (json!(["Updating", 1]), &json!([])));
    rig.finish(&got).await;
    let after = rig.get(&uri("sources/x")).await.expect(200).body;
    assert_eq!(state_and_size(&after), json!(["Succeeded", 2]));
    assert_eq!(after["properties"]["made"], during["properties"]["made"]);
    rig.call("PATCH", &uri("sources/x"), Some(json!({"properties": {"bad": true}}))).await.refused(400, "BadRequest");
    rig.call("PATCH", &uri("sources/none"), Some(json!({}))).await.refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_late_leaves_what_its_type_says() {
    let rig = Rig::new(slow()).await;
    let fail = |operation: &str| {
        let incident =
            json!({"match": {"operation": operation}, "then": {"lateFailure": {"code": "InternalServerError"}}});
        rig.control().add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    };
    let body = |size: u64| json!({"location": "westeurope", "properties": {"size": size}});
    fail("sources.createOrUpdate");
    let got = rig.call("PUT", &uri("sources/x"), Some(body(1))).await.expect(202);
    assert_eq!(rig.finish(&got).await["status"], "Failed");
    rig.get(&uri("sources/x")).await.refused(404, "ResourceNotFound");
    let got = rig.call("PUT", &uri("sources/x"), Some(body(1))).await.expect(202);
    rig.finish(&got).await;
    fail("sources.update");
    let got = rig.call("PATCH", &uri("sources/x"), Some(body(2))).await.expect(202);
    assert_eq!(rig.finish(&got).await["status"], "Failed");
    assert_eq!(state_and_size(&rig.get(&uri("sources/x")).await.expect(200).body), json!(["Succeeded", 1]));
    fail("accounts.createOrUpdate");
    let got = rig.call("PUT", &uri("accounts/x"), Some(body(1))).await.expect(202);
    rig.located(&got).await.refused(409, "InternalServerError");
    assert_eq!(rig.get(&uri("accounts/x")).await.expect(200).body["properties"]["provisioningState"], "Failed");
}

#[tokio::test(start_paused = true)]
async fn what_is_named_by_a_type_that_came_later_stays() {
    let rig = Rig::new(options()).await;
    let account = format!("{}/providers/Microsoft.Probe/accounts/x", group());
    let source = json!({"location": "westeurope", "properties": {"account": {"id": account}}});
    rig.call("PUT", &uri("sources/s"), Some(source.clone())).await.refused(400, "InvalidResourceReference");
    let body = json!({"location": "westeurope", "properties": {}});
    let got = rig.call("PUT", &uri("accounts/x"), Some(body)).await.expect(202);
    rig.located(&got).await.expect(200);
    let got = rig.call("PUT", &uri("sources/s"), Some(source)).await.expect(202);
    rig.finish(&got).await;
    rig.call("DELETE", &uri("accounts/x"), None).await.refused(400, "InUsePublicIpPrefixCannotBeDeleted");
    let got = rig.call("DELETE", &uri("sources/s"), None).await.expect(202);
    rig.finish(&got).await;
    rig.call("DELETE", &uri("accounts/x"), None).await.expect(200);
    rig.call("DELETE", &uri("accounts/x"), None).await.expect(204);
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_document_name_each_other_and_hold_each_other() {
    let rig = Rig::new(options()).await;
    let balancer = format!("{}/providers/Microsoft.Probe/balancers/b", group());
    let rule =
        |probe: &str| json!({"name": "r", "properties": {"probe": {"id": format!("{balancer}/probes/{probe}")}}});
    let body = |probes: Value, rules: Value| json!({"location": "westeurope", "properties": {"probes": probes, "rules": rules}});
    let got = rig.call("PUT", &uri("balancers/b"), Some(body(json!([]), json!([rule("p")])))).await;
    let got = got.refused(400, "InvalidResourceReference");
    assert!(got.message().contains(&format!("referenced by resource {balancer}/rules/r ")), "{}", got.message());
    let got =
        rig.call("PUT", &uri("balancers/b"), Some(body(json!([{"name": "p"}]), json!([rule("P")])))).await.expect(201);
    rig.finish(&got).await;
    let shown = rig.get(&uri("balancers/b")).await.expect(200).body;
    let deny = &shown["properties"]["defaults"][0];
    assert_eq!(deny["properties"], json!({"provisioningState": "Succeeded", "priority": 65500}));
    assert_eq!((&deny["id"], &deny["etag"]), (&json!(format!("{balancer}/defaults/deny")), &shown["etag"]));
    rig.get(&uri("balancers/b/defaults/deny")).await.expect(200);
    rig.call("DELETE", &uri("balancers/b/defaults/deny"), None).await.refused(405, "MethodNotAllowed");
    rig.call("DELETE", &uri("balancers/b/probes/p"), None).await.refused(400, "InUsePublicIpPrefixCannotBeDeleted");
    // Both may be left out together, and the whole may go.
    let got = rig.call("PUT", &uri("balancers/b/probes/q"), Some(json!({"properties": {"port": 1}}))).await.expect(201);
    rig.finish(&got).await;
    let got =
        rig.call("PUT", &uri("balancers/b"), Some(body(json!([{"name": "p"}]), json!([rule("p")])))).await.expect(200);
    rig.finish(&got).await;
    assert_eq!(rig.get(&uri("balancers/b/probes")).await.expect(200).body["value"].as_array().unwrap().len(), 1);
    rig.call("DELETE", &uri("balancers/b"), None).await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn an_etag_that_counts_stands_on_every_answer() {
    let rig = Rig::new(slow()).await;
    let body = |size: u64| json!({"location": "westeurope", "properties": {"size": size}});
    let got = rig.call("PUT", &uri("sets/s"), Some(body(1))).await.expect(201);
    assert_eq!((got.header("etag"), got.body["etag"].as_str()), ("\"1\"", Some("\"1\"")));
    rig.finish(&got).await;
    assert_eq!(rig.get(&uri("sets/s")).await.expect(200).header("etag"), "\"1\"");
    let got = rig.call("PUT", &uri("sets/s"), Some(body(1))).await.expect(200);
    assert_eq!(got.header("etag"), "\"1\"");
    rig.finish(&got).await;
    rig.with("PUT", &uri("sets/s"), Some(body(2)), &[("if-match", "2")]).await.refused(412, "PreconditionFailed");
    let got = rig.with("PUT", &uri("sets/s"), Some(body(2)), &[("if-match", "\"1\"")]).await.expect(200);
    assert_eq!(got.header("etag"), "\"2\"");
    rig.with("DELETE", &uri("sets/s"), None, &[("if-match", "\"1\"")]).await.refused(412, "PreconditionFailed");
}
