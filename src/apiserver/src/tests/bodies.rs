//! What becomes of bodies that are not of their kind, and of those that leave something out.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode, header};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{
    ApiServer, Options,
    resource::{self, Resource},
    schema::{self, TYPES, Type},
};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn ask(
    server: &ApiServer,
    (method, path): (Method, &str),
    media: &str,
    body: &Value,
) -> (StatusCode, HeaderMap, Value) {
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, media);
    let answer = server.router().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    (head.status, head.headers, serde_json::from_slice(&bytes).unwrap())
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})
}

#[tokio::test]
async fn a_service_whose_ports_are_no_objects_is_refused_and_the_server_goes_on() {
    let server = ApiServer::start(Options::default());
    for spec in [json!({"ports": ["x"]}), json!({"ports": "x"}), json!("x"), json!({"ports": [null]})] {
        let body = json!({"metadata": {"name": "web"}, "spec": spec});
        let (code, _, refused) = ask(&server, (Method::POST, SERVICES), JSON, &body).await;
        assert_eq!((code, &refused["reason"]), (StatusCode::BAD_REQUEST, &json!("BadRequest")), "{body}");
    }
    // In process, where nothing checks types.
    for spec in [json!({"ports": ["x"]}), json!({"ports": [null]}), json!([])] {
        server.put("services", json!({"metadata": {"name": "web"}, "spec": spec, "status": 1})).unwrap_err();
    }
    assert_eq!(ask(&server, (Method::POST, SERVICES), JSON, &service("web")).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn a_body_that_calls_itself_no_json_is_refused() {
    let server = ApiServer::start(Options::default());
    server.put("services", service("web")).unwrap();
    for media in ["text/plain", "application/x-www-form-urlencoded", "application/yaml"] {
        for (method, path) in [(Method::POST, SERVICES.to_owned()), (Method::PUT, format!("{SERVICES}/web"))] {
            let (code, _, refused) = ask(&server, (method.clone(), &path), media, &service("web")).await;
            let told = refused["message"].as_str().unwrap();
            assert!(code == StatusCode::UNSUPPORTED_MEDIA_TYPE && told.contains(media), "{method}: {told}");
        }
    }
    for media in ["", "Application/JSON; charset=utf-8"] {
        let path = format!("{SERVICES}?dryRun=All");
        let (code, ..) = ask(&server, (Method::POST, &path), media, &service("new")).await;
        assert_eq!(code, StatusCode::CREATED, "{media}");
    }
}

#[tokio::test]
async fn a_request_that_panics_takes_no_other_with_it() {
    let server = ApiServer::start(Options::default());
    let store = Arc::clone(&server.store);
    assert!(std::thread::spawn(move || store.panic_inside()).join().is_err());
    assert_eq!(ask(&server, (Method::POST, SERVICES), JSON, &service("web")).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn a_value_of_another_type_is_refused_by_every_verb_whatever_the_client_asks_to_be_validated() {
    let server = ApiServer::start(Options::default());
    server.put("services", service("web")).unwrap();
    let (before, path) = (server.get("services", "default", "web"), format!("{SERVICES}/web"));
    let mut wrong = service("web");
    wrong["spec"]["loadBalancerSourceRanges"] = json!("10.0.0.0/8");
    let merge = json!({"spec": {"loadBalancerSourceRanges": "10.0.0.0/8"}});
    let steps = json!([{"op": "add", "path": "/spec/loadBalancerSourceRanges", "value": "10.0.0.0/8"}]);
    let strategic = "application/strategic-merge-patch+json";
    for query in ["", "?fieldValidation=Ignore", "?fieldValidation=Warn", "?fieldValidation=Strict"] {
        for (method, path, media, body, code) in [
            (Method::POST, SERVICES, JSON, &wrong, 400),
            (Method::PUT, &path, JSON, &wrong, 400),
            (Method::PATCH, &path, MERGE, &merge, 422),
            (Method::PATCH, &path, strategic, &merge, 422),
            (Method::PATCH, &path, JSON_PATCH, &steps, 422),
        ] {
            let (found, _, refused) = ask(&server, (method.clone(), &format!("{path}{query}")), media, body).await;
            let told = refused["message"].as_str().unwrap();
            assert_eq!(found, code, "{method} {media} {query}: {told}");
            assert!(
                told.contains("spec.loadBalancerSourceRanges: found \"10.0.0.0/8\", expected a list"),
                "{method} {media}: {told}"
            );
        }
    }
    assert_eq!(server.get("services", "default", "web"), before);
}

#[tokio::test]
async fn a_patch_is_told_of_the_unknown_fields_that_it_brings_and_of_no_older_ones() {
    let server = ApiServer::start(Options::default());
    let mut object = service("web");
    object["spec"]["older"] = json!(1);
    object["spec"]["externalIPs"] = json!("older");
    server.put("services", object).unwrap();
    let patch = json!({"spec": {"newer": 1, "type": "NodePort"}});
    let ask = async |validation: &str| {
        let path = format!("{SERVICES}/web?dryRun=All&fieldValidation={validation}");
        ask(&server, (Method::PATCH, &path), MERGE, &patch).await
    };
    let (code, headers, patched) = ask("Warn").await;
    assert_eq!((code, &patched["spec"]["type"]), (StatusCode::OK, &json!("NodePort")));
    let warnings: Vec<_> = headers.get_all(header::WARNING).iter().collect();
    assert_eq!(warnings, ["299 - \"unknown field \\\"spec.newer\\\"\""]);
    assert_eq!(ask("Strict").await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let (code, headers, _) = ask("Ignore").await;
    assert_eq!((code, headers.get(header::WARNING)), (StatusCode::OK, None));
}

#[tokio::test]
async fn an_update_without_its_namespace_stays_in_it() {
    let server = ApiServer::start(Options::default());
    server.put("services", service("web")).unwrap();
    let path = format!("{SERVICES}/web");
    let mut whole = service("web");
    whole["spec"]["type"] = json!("NodePort");
    let removal = json!([{"op": "remove", "path": "/metadata/namespace"}]);
    let version = server.version();
    for (method, media, body) in [
        (Method::PUT, JSON, &whole),
        (Method::PATCH, MERGE, &json!({"metadata": {"namespace": null, "labels": {"a": "b"}}})),
        (Method::PATCH, JSON_PATCH, &removal),
    ] {
        let (code, _, written) = ask(&server, (method.clone(), &path), media, body).await;
        assert_eq!((code, &written["metadata"]["namespace"]), (StatusCode::OK, &json!("default")), "{method}");
    }
    let watch = format!("{SERVICES}?watch=1&timeoutSeconds=1&resourceVersion={version}");
    let request = Request::get(watch).body(Body::empty()).unwrap();
    let answer = server.router().oneshot(request).await.unwrap();
    let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    let kinds: Vec<Value> = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice::<Value>(line).unwrap()["type"].clone())
        .collect();
    assert_eq!(kinds, ["MODIFIED", "MODIFIED"]);
    // What has no namespace gets none.
    server.put("nodes", json!({"metadata": {"name": "n"}})).unwrap();
    let node = json!({"metadata": {"name": "n", "labels": {"a": "b"}}});
    let (_, _, written) = ask(&server, (Method::PUT, "/api/v1/nodes/n"), JSON, &node).await;
    assert!(written["metadata"].get("namespace").is_none(), "{written}");
}

#[tokio::test]
async fn an_event_of_the_core_group_is_patched_under_its_own_names() {
    let server = ApiServer::start(Options::default());
    let event = json!({"metadata": {"name": "e"}, "note": "once", "reason": "Synced", "type": "Normal",
        "regarding": {"kind": "Service", "name": "web"}});
    server.put("events", event).unwrap();
    let path = "/api/v1/namespaces/default/events/e";
    let patch = json!({"message": "twice", "count": 2});
    let (code, _, written) = ask(&server, (Method::PATCH, path), MERGE, &patch).await;
    assert_eq!((code, &written["message"], &written["count"]), (StatusCode::OK, &json!("twice"), &json!(2)));
    let kept = server.get("events", "default", "e").unwrap();
    assert_eq!((&kept["note"], &kept["deprecatedCount"], kept.get("message")), (&json!("twice"), &json!(2), None));
    assert!(kept.get("deprecatedSource").is_none(), "{kept}");
}

/// An object with every field of its type, and the pointers of all its values.
fn whole(kind: &Type, at: &str, depth: usize, pointers: &mut Vec<String>) -> Value {
    pointers.push(at.to_owned());
    let mut below = |kind: &Type, part: &str| whole(kind, &format!("{at}/{part}"), depth + 1, pointers);
    match kind {
        Type::Any => json!({}),
        Type::Text => json!("a"),
        Type::Boolean => json!(true),
        Type::Integer | Type::Long | Type::Number | Type::PortName => json!(80),
        Type::Bytes => json!("YQ=="),
        Type::Time => json!("2026-01-01T00:00:00Z"),
        Type::Quantity => json!("1Gi"),
        Type::List(item) => json!([below(item, "0")]),
        Type::Map(value) => json!({"a": below(value, "a")}),
        // Deeper ones are parts of a Pod, and there are thousands.
        Type::Object(_) if depth > 3 => json!({}),
        Type::Object(name) => TYPES[name].iter().map(|(key, field)| (key.clone(), below(&field.kind, key))).collect(),
    }
}

/// Where a kind's objects of the namespace `default` are.
fn collection(of: &Resource) -> String {
    let root = if of.group.is_empty() { "api" } else { "apis" };
    let namespace = if of.namespaced { "/namespaces/default" } else { "" };
    format!("/{root}/{}{namespace}/{}", of.api_version(), of.plural)
}

#[tokio::test]
async fn whatever_a_field_is_set_to_the_server_goes_on_and_keeps_only_what_clients_can_decode() {
    let server = ApiServer::start(Options::default());
    let values = [json!("x"), json!(1e99), json!([null]), json!({"a": 1})];
    let mut asked = 0;
    for of in resource::ALL {
        let mut pointers = Vec::new();
        let mut full = whole(&schema::type_of(of), "", 0, &mut pointers);
        full["metadata"] = json!({"name": "x"});
        if of.kind == "Service" {
            full["spec"] = json!({"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30_000}]});
        }
        server.put(of.kept().plural, json!({"metadata": {"name": "x"}, "spec": full["spec"]})).unwrap();
        let path = collection(of);
        for pointer in pointers {
            for value in &values {
                let mut body = full.clone();
                if let Some(place) = body.pointer_mut(&pointer) {
                    *place = value.clone();
                }
                let steps = json!([{"op": "add", "path": pointer, "value": value}]);
                let part = if of.has_status && pointer.starts_with("/status") { "/status" } else { "" };
                let patched = format!("{path}/x{part}?dryRun=All");
                for (method, path, media, body) in [
                    (Method::POST, &format!("{path}?dryRun=All"), JSON, &body),
                    (Method::PATCH, &patched, JSON_PATCH, &steps),
                ] {
                    let (code, _, answer) = ask(&server, (method, path), media, body).await;
                    asked += 1;
                    assert!(code.as_u16() < 500, "{path} {body}: {answer}");
                    if code.is_success() {
                        assert_eq!(schema::check(of, &answer).mistyped, [""; 0], "{path} {body}");
                    }
                }
            }
        }
    }
    assert!(asked > 2_000, "{asked}");
}
