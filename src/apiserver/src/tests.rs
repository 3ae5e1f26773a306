mod bodies;
mod kubectl;

use std::{collections::BTreeSet, time::Duration};

use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{ApiServer, Options};

async fn get(server: &ApiServer, path: &str) -> (StatusCode, Value) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = server.router().oneshot(request).await.unwrap();
    let code = answer.status();
    let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// The lines of a watch that ends by itself after a second.
async fn watched(server: &ApiServer, path: &str) -> Vec<Value> {
    let request = Request::get(format!("{path}&watch=1&timeoutSeconds=1")).body(Body::empty()).unwrap();
    let answer = server.router().oneshot(request).await.unwrap();
    let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_forgotten_version_is_told_so() {
    let server = ApiServer::start(Options { history: 3, ..Options::default() });
    let first = server.version();
    for name in ["a", "b", "c", "d"] {
        server.put("nodes", node(name)).unwrap();
    }
    let lines = watched(&server, &format!("/api/v1/nodes?resourceVersion={first}")).await;
    assert_eq!((&lines[0]["type"], &lines[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(lines.len(), 1);
    let lines = watched(&server, &format!("/api/v1/nodes?resourceVersion={}", first + 1)).await;
    assert_eq!(lines.len(), 3);
    server.compact();
    let lines = watched(&server, &format!("/api/v1/nodes?resourceVersion={}", server.version())).await;
    assert!(lines.is_empty(), "the newest version is never forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_forgotten_list_is_told_so() {
    let server = ApiServer::start(Options::default());
    for name in ["a", "b", "c"] {
        server.put("nodes", node(name)).unwrap();
    }
    let (_, page) = get(&server, "/api/v1/nodes?limit=2").await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    server.compact();
    let (code, body) = get(&server, &format!("/api/v1/nodes?limit=2&continue={token}")).await;
    assert_eq!((code, &body["reason"]), (StatusCode::GONE, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_gets_a_bookmark_each_minute() {
    let server = ApiServer::start(Options::default());
    let path = format!(
        "/api/v1/nodes?watch=1&allowWatchBookmarks=true&timeoutSeconds=130&resourceVersion={}",
        server.version()
    );
    server.put("namespaces", node("elsewhere")).unwrap();
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = server.router().oneshot(request).await.unwrap();
    let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let versions: BTreeSet<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| {
            assert_eq!(line["type"], "BOOKMARK");
            line["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(text.lines().count(), 2);
    assert_eq!(versions, [server.version().to_string()].into());
}

#[tokio::test(start_paused = true)]
async fn stamps_follow_the_runtimes_clock_and_uids_the_seed() {
    let made = |seed| async move {
        let server = ApiServer::start(Options { seed, ..Options::default() });
        tokio::time::sleep(Duration::from_secs(90)).await;
        server.put("nodes", node("a")).unwrap()["metadata"].clone()
    };
    let (one, same, other) = (made(1).await, made(1).await, made(2).await);
    assert_eq!(one["creationTimestamp"], "2026-01-01T00:01:30Z");
    assert_eq!(one["uid"], same["uid"]);
    assert_ne!(one["uid"], other["uid"]);
}

#[tokio::test(start_paused = true)]
async fn node_ports_are_given_back_and_run_out() {
    let server = ApiServer::start(Options::default());
    let service = |name: &str, ports: u32| {
        let ports: Vec<Value> = (0..ports).map(|at| json!({"name": format!("p{at}"), "port": at + 1})).collect();
        json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": ports}})
    };
    server.put("services", service("all", 2_767)).unwrap();
    server.put("services", service("last", 1)).unwrap();
    let refused = server.put("services", service("more", 1)).unwrap_err();
    assert_eq!((refused.code, refused.reason), (422, "Invalid"));
    server.delete("services", "default", "last").unwrap();
    server.put("services", service("more", 1)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropped_watches_end() {
    let server = ApiServer::start(Options::default());
    let request = Request::get("/api/v1/nodes?watch=1&resourceVersion=1").body(Body::empty()).unwrap();
    let answer = server.router().oneshot(request).await.unwrap();
    server.drop_watches();
    assert!(axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_not_known_is_refused() {
    let server = ApiServer::start(Options::default());
    assert_eq!(get(&server, "/apis/apps/v1/deployments").await.0, StatusCode::NOT_FOUND);
    assert_eq!(get(&server, "/api/v1/nodes?labelSelector=a%20like%20b").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(get(&server, "/api/v1/nodes?limit=many").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(server.put("deployments", node("a")).unwrap_err().code, 404);
    let (_, kinds) = get(&server, "/apis/coordination.k8s.io/v1").await;
    assert_eq!(kinds["resources"][0]["name"], "leases");
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_from_a_version_on_until_they_are_forgotten() {
    let server = ApiServer::start(Options::default());
    server.put("nodes", node("a")).unwrap();
    let version = server.version();
    server.put("namespaces", node("team")).unwrap();
    server.put("nodes", node("b")).unwrap();
    server.delete("nodes", "", "a").unwrap();
    let changes = server.changes("nodes", version).unwrap();
    let told: Vec<_> = changes.iter().map(|one| (one.object["metadata"]["name"].as_str(), one.exists)).collect();
    assert_eq!(told, [(Some("b"), true), (Some("a"), false)]);
    assert_eq!(changes[1].version, server.version());
    server.compact();
    assert_eq!(server.changes("nodes", version).unwrap_err().code, 410);
    assert_eq!(server.changes("deployments", version).unwrap_err().code, 404);
}

#[tokio::test]
async fn a_token_is_valid_for_its_audiences_while_its_pod_exists_and_tells_the_node() {
    let server = ApiServer::start(Options::default());
    let pod = json!({"metadata": {"name": "csi-node-1", "namespace": "kube-system"},
        "spec": {"serviceAccountName": "csi-node", "nodeName": "n1"}});
    server.put("pods", pod).unwrap();
    let token = server.issue_token("kube-system", "csi-node-1", &["broker"]).unwrap();
    let general = server.issue_token("kube-system", "csi-node-1", &[]).unwrap();
    assert_ne!(token, general);
    assert_eq!(server.issue_token("kube-system", "other", &[]).unwrap_err().code, 404);
    let review = async |token: &str, audiences: Value| {
        let body = json!({"spec": {"token": token, "audiences": audiences}}).to_string();
        let request = Request::post("/apis/authentication.k8s.io/v1/tokenreviews").body(Body::from(body)).unwrap();
        let answer = server.router().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::CREATED);
        let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        serde_json::from_slice::<Value>(&bytes).unwrap()["status"].clone()
    };
    let status = review(&token, json!(["broker", "other"])).await;
    assert_eq!(status["audiences"], json!(["broker"]));
    assert_eq!(status["user"]["username"], "system:serviceaccount:kube-system:csi-node");
    assert_eq!(status["user"]["extra"]["authentication.kubernetes.io/node-name"], json!(["n1"]));
    assert_eq!(review(&general, Value::Null).await["authenticated"], true);
    for (token, audiences) in
        [(&*token, json!([])), (&token, json!(["x"])), (&general, json!(["broker"])), ("", json!([]))]
    {
        let status = review(token, audiences.clone()).await;
        assert_eq!((&status["authenticated"], status["error"].is_string()), (&json!(false), true), "{audiences}");
    }
    server.delete("pods", "kube-system", "csi-node-1").unwrap();
    assert_eq!(review(&token, json!(["broker"])).await["authenticated"], false);
}
