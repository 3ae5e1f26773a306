//! What kubectl asks for, as it asks.

use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode, header};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{ApiServer, Options};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
                     application/json";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf, application/json";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Sends a request with these headers. Gives code, headers and the answer's lines as JSON.
async fn ask(
    server: &ApiServer,
    (method, path): (Method, &str),
    headers: &[(header::HeaderName, &str)],
    body: &str,
) -> (StatusCode, HeaderMap, Vec<Value>) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let answer = server.router().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    (head.status, head.headers, lines.map(|line| serde_json::from_slice(line).unwrap()).collect())
}

async fn get(server: &ApiServer, path: &str, accept: &str) -> (StatusCode, Value) {
    let (code, _, lines) = ask(server, (Method::GET, path), &[(header::ACCEPT, accept)], "").await;
    (code, lines[0].clone())
}

async fn post(server: &ApiServer, path: &str, media: &str, body: &Value) -> (StatusCode, HeaderMap, Value) {
    let headers = [(header::CONTENT_TYPE, media)];
    let (code, headers, lines) = ask(server, (Method::POST, path), &headers, &body.to_string()).await;
    (code, headers, lines[0].clone())
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})
}

fn rows(table: &Value) -> Vec<&Value> {
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")), "{table}");
    table["rows"].as_array().unwrap().iter().map(|row| &row["cells"]).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_and_an_object_are_tables_where_a_client_wants_tables() {
    let server = ApiServer::start(Options::default());
    server.put("services", service("web")).unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(90)).await;
    let cells = json!(["web", "LoadBalancer", "10.96.0.10", "<pending>", "80:30000/TCP", "90s", "<none>"]);
    for path in [SERVICES.to_owned(), format!("{SERVICES}/web"), "/api/v1/services".to_owned()] {
        let (_, table) = get(&server, &path, TABLE).await;
        assert_eq!(rows(&table), [&cells], "{path}");
        assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 7);
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "web");
    }
    let (_, whole) = get(&server, &format!("{SERVICES}?includeObject=Object"), TABLE).await;
    assert_eq!(whole["rows"][0]["object"]["kind"], "Service");
    let (code, _) = get(&server, &format!("{SERVICES}?includeObject=All"), TABLE).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    // Metadata alone, as garbage collectors ask.
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let (_, list) = get(&server, SERVICES, accept).await;
    assert_eq!((&list["kind"], list["items"][0].get("spec")), (&json!("PartialObjectMetadataList"), None));
    // JSON, where protobuf is liked better.
    assert_eq!(get(&server, SERVICES, PROTOBUF_OR_JSON).await.1["kind"], "ServiceList");
    let (code, refused) = get(&server, SERVICES, "application/vnd.kubernetes.protobuf").await;
    assert_eq!((code, &refused["reason"]), (StatusCode::NOT_ACCEPTABLE, &json!("NotAcceptable")));
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_tables_names_its_columns_once() {
    for from in ["", "&resourceVersion=2"] {
        let server = ApiServer::start(Options::default());
        server.put("services", service("a")).unwrap();
        let path = format!("{SERVICES}?watch=1&timeoutSeconds=1{from}");
        let ask = ask(&server, (Method::GET, &path), &[(header::ACCEPT, TABLE)], "");
        let change = async {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            server.put("services", service("b")).unwrap();
            server.delete("services", "default", "b").unwrap();
        };
        let ((_, _, events), ()) = tokio::join!(ask, change);
        let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["ADDED", "ADDED", "DELETED"], "{from}");
        let columns = |event: &Value| event["object"]["columnDefinitions"].as_array().unwrap().len();
        assert_eq!(events.iter().map(columns).collect::<Vec<_>>(), [7, 0, 0], "{from}");
        assert!(events.iter().all(|event| rows(&event["object"]).len() == 1));
    }
}

#[tokio::test]
async fn kinds_are_discovered_with_their_short_names_in_one_answer_or_by_group() {
    let server = ApiServer::start(Options::default());
    let headers = [(header::ACCEPT, DISCOVERY)];
    let (_, head, lines) = ask(&server, (Method::GET, "/api"), &headers, "").await;
    assert!(head[header::CONTENT_TYPE].to_str().unwrap().contains("as=APIGroupDiscoveryList"));
    let core = lines[0]["items"][0]["versions"][0]["resources"].as_array().unwrap().clone();
    let found = core.iter().find(|one| one["resource"] == "services").unwrap();
    assert_eq!((&found["shortNames"], &found["scope"]), (&json!(["svc"]), &json!("Namespaced")));
    assert_eq!(found["subresources"][0]["subresource"], "status");
    let (_, groups) = get(&server, "/apis", DISCOVERY).await;
    let names: Vec<&str> =
        groups["items"].as_array().unwrap().iter().map(|group| group["metadata"]["name"].as_str().unwrap()).collect();
    let snapshots = "snapshot.storage.k8s.io";
    assert_eq!(names, ["coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", snapshots, "storage.k8s.io"]);
    let (_, list) = get(&server, "/api/v1", "application/json").await;
    let nodes = list["resources"].as_array().unwrap().iter().find(|one| one["name"] == "nodes").unwrap();
    assert_eq!((&nodes["shortNames"], &nodes["singularName"]), (&json!(["no"]), &json!("node")));
    assert_eq!(get(&server, "/apis/storage.k8s.io", "*/*").await.1["kind"], "APIGroup");
    assert_eq!(get(&server, "/api", "*/*").await.1["versions"], json!(["v1"]));
    let (_, index) = get(&server, "/openapi/v3", "application/json").await;
    let path = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
    assert_eq!(get(&server, path, "application/json").await.1["openapi"], "3.0.0");
}

#[tokio::test]
async fn protobuf_and_server_side_apply_are_refused_with_what_to_do() {
    let server = ApiServer::start(Options::default());
    let (code, _, refused) = post(&server, SERVICES, "application/vnd.kubernetes.protobuf", &json!({})).await;
    let told = refused["message"].as_str().unwrap();
    assert_eq!((code, &refused["reason"]), (StatusCode::UNSUPPORTED_MEDIA_TYPE, &json!("UnsupportedMediaType")));
    assert!(
        told.contains("application/vnd.kubernetes.protobuf") && told.contains("--dry-run=client -o yaml"),
        "{told}"
    );
    let headers = [(header::CONTENT_TYPE, "application/apply-patch+yaml")];
    let path = format!("{SERVICES}/web?fieldManager=kubectl");
    let (code, _, lines) = ask(&server, (Method::PATCH, &path), &headers, "spec: {}").await;
    let told = lines[0]["message"].as_str().unwrap();
    assert_eq!(code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(told.contains("kubectl apply without --server-side"), "{told}");
}

#[tokio::test]
async fn whoever_creates_a_pod_or_a_claim_is_warned_that_nothing_carries_it_out() {
    let server = ApiServer::start(Options::default());
    for (plural, kind) in [("pods", "Pod"), ("persistentvolumeclaims", "PersistentVolumeClaim")] {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "spec": {}});
        let path = format!("/api/v1/namespaces/default/{plural}");
        let (code, headers, made) = post(&server, &path, "application/json", &object).await;
        assert_eq!((code, &made["status"]["phase"]), (StatusCode::CREATED, &json!("Pending")));
        let warning = headers[header::WARNING].to_str().unwrap();
        assert!(warning.starts_with("299 - \"") && warning.contains("scripts/cluster up"), "{warning}");
    }
    let (_, headers, _) = post(&server, SERVICES, "application/json", &service("web")).await;
    assert!(headers.get(header::WARNING).is_none());
}

#[tokio::test]
async fn fields_are_validated_as_a_client_asks() {
    let server = ApiServer::start(Options::default());
    let mut wrong = service("web");
    wrong["spec"]["prots"] = json!([]);
    let ask = async |validation: &str, object: &Value| {
        post(&server, &format!("{SERVICES}?fieldValidation={validation}&dryRun=All"), "application/json", object).await
    };
    let (code, _, refused) = ask("Strict", &wrong).await;
    let told = refused["message"].as_str().unwrap();
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(told.contains("Service in version \"v1\"") && told.contains("unknown field \"spec.prots\""), "{told}");
    let (code, headers, _) = ask("Warn", &wrong).await;
    assert_eq!(code, StatusCode::CREATED);
    assert_eq!(headers[header::WARNING], "299 - \"unknown field \\\"spec.prots\\\"\"");
    assert_eq!(ask("Ignore", &wrong).await.0, StatusCode::CREATED);
    assert_eq!(ask("Strict", &service("web")).await.0, StatusCode::CREATED);
    let mut mistyped = service("web");
    mistyped["spec"]["ports"][0]["port"] = json!("80");
    let (code, _, refused) = ask("Warn", &mistyped).await;
    let told = refused["message"].as_str().unwrap();
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(told.contains("spec.ports[0].port: found \"80\", expected a whole number of 32 bits"), "{told}");
    assert_eq!(ask("Sometimes", &wrong).await.0, StatusCode::BAD_REQUEST);
    assert!(server.list("services").is_empty(), "a dry run keeps nothing");
}

#[tokio::test]
async fn a_dry_run_answers_as_a_write_and_changes_nothing() {
    let server = ApiServer::start(Options::default());
    server.put("services", service("web")).unwrap();
    let version = server.version();
    let (_, _, made) = post(&server, &format!("{SERVICES}?dryRun=All"), "application/json", &service("new")).await;
    assert_eq!(made["spec"]["ports"][0]["nodePort"], 30_001);
    let headers = [(header::CONTENT_TYPE, "application/merge-patch+json")];
    let path = format!("{SERVICES}/web?dryRun=All");
    let patch = json!({"spec": {"type": "ClusterIP"}}).to_string();
    let (_, _, lines) = ask(&server, (Method::PATCH, &path), &headers, &patch).await;
    assert_eq!(lines[0]["spec"]["type"], "ClusterIP");
    for (path, body) in [(path.as_str(), ""), (&format!("{SERVICES}/web"), r#"{"dryRun": ["All"]}"#)] {
        let (code, _, lines) = ask(&server, (Method::DELETE, path), &[], body).await;
        assert_eq!((code, &lines[0]["status"]), (StatusCode::OK, &json!("Success")));
    }
    assert_eq!(server.version(), version);
    // What the dry runs would have taken is free.
    assert_eq!(server.put("services", service("next")).unwrap()["spec"]["ports"][0]["nodePort"], 30_001);
    assert_eq!(ask(&server, (Method::DELETE, &format!("{SERVICES}/web?dryRun=Some")), &[], "").await.0, 400);
}

#[tokio::test]
async fn describe_finds_the_events_of_an_object_in_the_core_group() {
    let server = ApiServer::start(Options::default());
    for (name, of, uid) in [("one", "web", "u-1"), ("two", "api", "u-2")] {
        let event = json!({"metadata": {"name": name}, "note": "text", "reason": "Synced", "type": "Normal",
            "reportingController": "lazuli",
            "regarding": {"kind": "Service", "namespace": "default", "name": of, "uid": uid}});
        server.put("events", event).unwrap();
    }
    let fields = "involvedObject.kind%3DService%2CinvolvedObject.namespace%3Ddefault%2CinvolvedObject.name%3Dweb\
                  %2CinvolvedObject.uid%3Du-1";
    let path = format!("/api/v1/namespaces/default/events?fieldSelector={fields}&limit=500");
    let (_, list) = get(&server, &path, PROTOBUF_OR_JSON).await;
    let items = list["items"].as_array().unwrap();
    assert_eq!((items.len(), &list["kind"], &list["apiVersion"]), (1, &json!("EventList"), &json!("v1")));
    assert_eq!((&items[0]["message"], &items[0]["apiVersion"]), (&json!("text"), &json!("v1")));
    assert_eq!(items[0]["involvedObject"]["name"], "web");
    let (_, table) = get(&server, "/api/v1/events", TABLE).await;
    assert_eq!(rows(&table)[0][3], "service/web");
    // Written in one group, read in the other.
    let event =
        json!({"metadata": {"name": "three"}, "message": "text", "involvedObject": {"kind": "Node", "name": "n"}});
    let (_, _, made) = post(&server, "/api/v1/namespaces/default/events", "application/json", &event).await;
    assert_eq!(made["message"], "text");
    assert_eq!(server.get("events", "default", "three").unwrap()["note"], "text");
    let (_, kept) = get(&server, "/apis/events.k8s.io/v1/namespaces/default/events/three", "*/*").await;
    assert_eq!((&kept["regarding"]["name"], &kept["apiVersion"]), (&json!("n"), &json!("events.k8s.io/v1")));
}
