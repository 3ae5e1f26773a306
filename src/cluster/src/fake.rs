//! A small API server inside the test: a few collections with list (pages), watch (replay, bookmarks, 410) and
//! get, and secrets with get. It answers as a tower service, so nothing needs a socket and time can stand still.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Body;
use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

use crate::node_facts::LEASES;
pub(super) use crate::nodes::NODES;
use crate::own_node::CSI_NODES;
pub(super) use crate::reservations::{ATTACHMENTS, VOLUMES};
use crate::snapshots::CONTENTS;

/// The server's clock.
pub(super) const DATE: &str = "Sun, 01 Mar 2026 12:00:00 GMT";

/// How the server treats a collection.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mood {
    #[default]
    Answers,
    Forbids,
    Hangs,
}

type Watcher = UnboundedSender<io::Result<Bytes>>;

#[derive(Default)]
struct World {
    version: u64,
    /// Watches from before are answered 410.
    compacted: u64,
    gone_as_event: bool,
    collections: BTreeMap<String, BTreeMap<String, Value>>,
    log: Vec<(u64, String, Value)>,
    watches: Vec<(String, Watcher)>,
    moods: BTreeMap<String, Mood>,
    secrets: BTreeMap<String, Value>,
    config_maps: BTreeMap<String, Value>,
    /// The status with which a review is answered, and the last review that was made, by collection.
    reviews: BTreeMap<String, (Value, Value)>,
    /// What is put just before the next JSON patch of a collection.
    before_patch: Option<(String, Value)>,
    requests: Vec<String>,
}

#[derive(Clone, Default)]
pub(super) struct FakeApiServer(Arc<Mutex<World>>);

impl FakeApiServer {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("no test panics inside")
    }

    pub(super) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request| server.clone().answer(request));
        kube::Client::new(service, "default")
    }

    /// Creates or replaces an object and tells the watches.
    pub(super) fn put(&self, collection: &str, mut object: Value) {
        let mut world = self.world();
        world.version += 1;
        object["metadata"]["resourceVersion"] = json!(world.version.to_string());
        // Something to throw away, as every real object has.
        object["metadata"]["managedFields"] = json!([{"manager": "kubelet", "fieldsV1": {"f:spec": {}}}]);
        let name = object["metadata"]["name"].as_str().expect("has a name").to_owned();
        let objects = world.collections.entry(collection.to_owned()).or_default();
        let kind = if objects.insert(name, object.clone()).is_some() { "MODIFIED" } else { "ADDED" };
        world.tell(collection, kind, object);
    }

    pub(super) fn delete(&self, collection: &str, name: &str) {
        let mut world = self.world();
        world.version += 1;
        let objects = world.collections.entry(collection.to_owned()).or_default();
        let mut object = objects.remove(name).expect("existed");
        object["metadata"]["resourceVersion"] = json!(world.version.to_string());
        world.tell(collection, "DELETED", object);
    }

    pub(super) fn put_secret(&self, namespace: &str, name: &str, body: Value) {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        self.world().secrets.insert(path, body);
    }

    /// From now on reviews of this collection have this status.
    pub(super) fn answer_review(&self, collection: &str, status: Value) {
        self.world().reviews.insert(collection.to_owned(), (status, Value::Null));
    }

    /// The last review that was made in this collection.
    pub(super) fn reviewed(&self, collection: &str) -> Value {
        self.world().reviews[collection].1.clone()
    }

    /// Replaces an object just before the next JSON patch.
    pub(super) fn before_patch(&self, collection: &str, object: Value) {
        self.world().before_patch = Some((collection.to_owned(), object));
    }

    pub(super) fn object(&self, collection: &str, name: &str) -> Value {
        self.world().collections[collection][name].clone()
    }

    /// The objects of a collection, in the order of their names.
    pub(super) fn objects(&self, collection: &str) -> Vec<Value> {
        self.world().collections.get(collection).into_iter().flatten().map(|(_, object)| object.clone()).collect()
    }

    /// Forgets the objects of a collection.
    pub(super) fn clear(&self, collection: &str) {
        self.world().collections.remove(collection);
    }

    /// Sends every watch a bookmark.
    pub(super) fn bookmark(&self) {
        let mut world = self.world();
        let object = json!({"kind": "X", "apiVersion": "v1",
            "metadata": {"resourceVersion": world.version.to_string()}});
        let line = line("BOOKMARK", &object);
        world.watches.retain(|(_, watch)| watch.unbounded_send(Ok(line.clone())).is_ok());
    }

    /// Closes every watch, in order or in the middle of a line.
    pub(super) fn drop_watches(&self, broken: bool) {
        for (_, watch) in self.world().watches.drain(..) {
            if broken {
                let _ = watch.unbounded_send(Ok(Bytes::from_static(b"{\"type\":\"ADD")));
                let _ = watch.unbounded_send(Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }

    /// Forgets all versions up to now.
    pub(super) fn compact(&self, gone_as_event: bool) {
        let mut world = self.world();
        world.version += 1;
        world.compacted = world.version;
        world.gone_as_event = gone_as_event;
        world.log.clear();
    }

    pub(super) fn mood(&self, path: &str, mood: Mood) {
        self.world().moods.insert(path.to_owned(), mood);
    }

    /// The paths of the requests so far, in their order.
    pub(super) fn asked(&self) -> Vec<String> {
        let path = |uri: &String| uri.split('?').next().unwrap_or_default().to_owned();
        self.world().requests.iter().map(path).collect()
    }

    /// How many requests so far contain all of `parts`.
    pub(super) fn count(&self, parts: &[&str]) -> usize {
        let matches = |request: &&String| parts.iter().all(|part| request.contains(part));
        self.world().requests.iter().filter(matches).count()
    }

    fn answer(self, request: Request<kube::client::Body>) -> impl Future<Output = Result<Response<Body>, Infallible>> {
        let response = self.world().answer(&request);
        async move {
            match response {
                Some(response) => Ok(response),
                None => std::future::pending().await,
            }
        }
    }
}

impl World {
    fn tell(&mut self, collection: &str, kind: &str, object: Value) {
        let line = line(kind, &object);
        self.watches.retain(|(watched, watch)| watched != collection || watch.unbounded_send(Ok(line.clone())).is_ok());
        let event = json!({"type": kind, "object": object});
        self.log.push((self.version, collection.to_owned(), event));
    }

    /// `None`: never.
    fn answer(&mut self, request: &Request<kube::client::Body>) -> Option<Response<Body>> {
        self.requests.push(request.uri().to_string());
        let path = request.uri().path().to_owned();
        match self.moods.get(&path).copied().unwrap_or_default() {
            Mood::Answers => {}
            Mood::Forbids => return Some(failure(403, "Forbidden", "not allowed")),
            Mood::Hangs => return None,
        }
        if request.headers().get("content-type").is_some_and(|kind| kind == "application/json-patch+json") {
            return Some(self.patch(&path, request));
        }
        if path.contains("/events") {
            return Some(self.event(&path, request));
        }
        if request.method() == http::Method::PATCH {
            return Some(self.apply(&path, request));
        }
        if let Some((status, made)) = self.reviews.get_mut(&path) {
            assert_eq!(request.method(), http::Method::POST);
            *made = body_of(request);
            // As the API server does: with all that was sent.
            let mut answer = made.clone();
            answer["status"] = status.clone();
            return Some(success(&answer));
        }
        assert_eq!(request.method(), http::Method::GET, "nothing here writes otherwise");
        if path.contains("/configmaps/") {
            return Some(match self.config_maps.get(&path) {
                Some(body) => success(body),
                None => failure(404, "NotFound", "no such config map"),
            });
        }
        if path.contains("/secrets") {
            return Some(match self.secrets.get(&path) {
                Some(body) => success(body),
                None => failure(404, "NotFound", "no such secret"),
            });
        }
        let query: BTreeMap<String, String> =
            url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).into_owned().collect();
        if let Some((collection, name)) = path.rsplit_once('/')
            && [VOLUMES, NODES, LEASES, CSI_NODES].contains(&collection)
        {
            return Some(match self.collections.get(collection).and_then(|objects| objects.get(name)) {
                Some(object) => success(object),
                None => failure(404, "NotFound", "no such object"),
            });
        }
        assert!([ATTACHMENTS, VOLUMES, NODES, CONTENTS].contains(&path.as_str()), "unexpected {path}");
        if query.get("watch").is_some_and(|watch| watch == "true" || watch == "1") {
            return Some(self.watch(&path, &query));
        }
        Some(self.list(&path, &query))
    }

    /// RFC 6902, as far as it is used here: tests and replacements of whole members.
    fn patch(&mut self, path: &str, request: &Request<kube::client::Body>) -> Response<Body> {
        if let Some((collection, object)) = self.before_patch.take() {
            let name = object["metadata"]["name"].as_str().expect("has a name").to_owned();
            self.collections.get_mut(&collection).expect("is there").insert(name, object);
        }
        let (collection, name) = path.rsplit_once('/').expect("names an object");
        let Some(object) = self.collections.get_mut(collection).and_then(|objects| objects.get_mut(name)) else {
            return failure(404, "NotFound", "no such object");
        };
        let mut changed = object.clone();
        for step in body_of(request).as_array().expect("is a list") {
            let at = changed.pointer_mut(step["path"].as_str().expect("has a path")).expect("is there");
            match step["op"].as_str() {
                Some("test") if *at == step["value"] => {}
                Some("test") => return failure(422, "Invalid", "the test failed"),
                Some("replace") => *at = step["value"].clone(),
                other => panic!("{other:?}"),
            }
        }
        object.clone_from(&changed);
        success(&changed)
    }

    /// Creates an event, or patches one, as far as the API server's rules for events go (source: its validation).
    fn event(&mut self, path: &str, request: &Request<kube::client::Body>) -> Response<Body> {
        let body = body_of(request);
        if request.method() == http::Method::PATCH {
            assert_eq!(request.headers()["content-type"], "application/merge-patch+json");
            let (collection, name) = path.rsplit_once('/').expect("names an event");
            let Some(event) = self.collections.get_mut(collection).and_then(|events| events.get_mut(name)) else {
                return failure(404, "NotFound", "no such event");
            };
            if let Some(series) = body.get("series") {
                assert!(series["count"].as_u64().is_some_and(|count| count >= 2), "{series}");
                assert_eq!(
                    series["lastObservedTime"].as_str().map(str::len),
                    Some("2026-03-01T12:00:00.000000Z".len())
                );
                event["series"] = series.clone();
            }
            return success(event);
        }
        assert_eq!(request.method(), http::Method::POST, "the role has create and patch");
        let text = |name: &str| body[name].as_str().unwrap_or_else(|| panic!("{name} is missing"));
        for name in ["reason", "action", "reportingController", "reportingInstance"] {
            assert!((1..=128).contains(&text(name).len()), "{name}");
        }
        assert!(["Normal", "Warning"].contains(&text("type")) && text("note").len() <= 1024);
        assert_eq!(text("eventTime").len(), "2026-03-01T12:00:00.000000Z".len(), "microseconds");
        let namespace = body["regarding"]["namespace"].as_str().unwrap_or("default");
        assert_eq!(path, format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"));
        assert_eq!(body["metadata"]["namespace"], namespace);
        let name = body["metadata"]["name"].as_str().expect("has a name").to_owned();
        let events = self.collections.entry(path.to_owned()).or_default();
        if events.contains_key(&name) {
            return failure(409, "AlreadyExists", "there is one of this name");
        }
        events.insert(name, body.clone());
        success(&body)
    }

    /// Server-side apply of a whole config map by its only owner.
    fn apply(&mut self, path: &str, request: &Request<kube::client::Body>) -> Response<Body> {
        assert!(path.contains("/configmaps/"), "only config maps are written");
        assert_eq!(request.headers()["content-type"], "application/apply-patch+yaml");
        assert!(request.uri().query().is_some_and(|query| query.contains("fieldManager=lazuli")));
        let object = body_of(request);
        self.config_maps.insert(path.to_owned(), object.clone());
        success(&object)
    }

    fn list(&self, path: &str, query: &BTreeMap<String, String>) -> Response<Body> {
        assert!(!query.contains_key("resourceVersion"), "a consistent read");
        let limit: usize = query["limit"].parse().expect("is a number");
        let after = query.get("continue");
        let mut objects = self
            .collections
            .get(path)
            .into_iter()
            .flatten()
            .filter(|(name, _)| after.is_none_or(|after| *name > after));
        let items: Vec<&Value> = objects.by_ref().take(limit).map(|(_, object)| object).collect();
        let next = objects.next().and(items.last());
        success(&json!({
            "kind": "List", "apiVersion": "v1",
            "metadata": {"resourceVersion": self.version.to_string(),
                "continue": next.map(|last| last["metadata"]["name"].clone()).unwrap_or(json!(""))},
            "items": items
        }))
    }

    fn watch(&mut self, path: &str, query: &BTreeMap<String, String>) -> Response<Body> {
        assert_eq!(query["allowWatchBookmarks"], "true");
        let from: u64 = query["resourceVersion"].parse().expect("is a number");
        let (sender, receiver) = unbounded();
        if from < self.compacted {
            if !self.gone_as_event {
                return failure(410, "Expired", "too old resource version");
            }
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": 410, "reason": "Expired", "message": "too old resource version"});
            sender.unbounded_send(Ok(line("ERROR", &status))).expect("the receiver is here");
        } else {
            for (version, collection, event) in &self.log {
                if *version > from && collection == path {
                    let line = Bytes::from(format!("{event}\n"));
                    sender.unbounded_send(Ok(line)).expect("the receiver is here");
                }
            }
            self.watches.push((path.to_owned(), sender));
        }
        Response::new(Body::from_stream(receiver))
    }
}

fn body_of(request: &Request<kube::client::Body>) -> Value {
    let body = Body::new(request.body().try_clone().expect("is in memory"));
    let bytes = futures::executor::block_on(axum::body::to_bytes(body, usize::MAX));
    serde_json::from_slice(&bytes.expect("is whole")).expect("is JSON")
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

fn success(body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    response.headers_mut().insert("date", http::HeaderValue::from_static(DATE));
    response
}

fn failure(code: u16, reason: &str, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message});
    let mut response = success(&status);
    *response.status_mut() = StatusCode::from_u16(code).expect("is a status");
    response
}
