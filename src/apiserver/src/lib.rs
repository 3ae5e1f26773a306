//! A small Kubernetes API server: the objects of a cluster in the memory of one process.
//!
//! It stands in for kube-apiserver and etcd where those cannot run: in simulations on paused time, in benches with 5,000
//! nodes, on a laptop. It imports nothing of ours, so that it shares no error with the clients that it serves. The same
//! conformance tests run against it and against the real API server.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use lazuli_apiserver::{ApiServer, Options};
//! use serde_json::json;
//!
//! let server = ApiServer::start(Options::default());
//! let node = server.put("nodes", json!({"metadata": {"name": "node-1"}})).unwrap();
//! assert_eq!(node["metadata"]["name"], "node-1");
//! // `server.router()` answers HTTP: give it to a client in this process, or to `axum::serve`.
//! # let _ = server.router();
//! # }
//! ```
//!
//! # What it does as kube-apiserver does
//!
//! - get, list (limit, continue, label and field selectors), watch (from a version, with bookmarks and initial events, 410
//!   for what is compacted), create, update, patch (merge, JSON, strategic merge), delete with preconditions;
//! - one growing version over all objects; a write with an older `resourceVersion` is 409; a write that changes nothing
//!   makes no version and no event;
//! - `status` as a subresource of its own; finalizers and `deletionTimestamp`;
//! - TokenReviews of the tokens that it has issued for Pods ([`ApiServer::issue_token`]): their audiences, and whether the
//!   Pod still exists;
//! - for `kubectl`: discovery (also aggregated), short names, tables, OpenAPI v3, `fieldValidation`, `dryRun`, and the events
//!   of the core group as another form of those of `events.k8s.io`;
//! - of Services: defaults, cluster IPs, node ports, health-check node ports, the validation that controllers meet;
//! - values of another type than their field's are refused, in the result of a patch too, and so are labels that are none;
//!   Leases, VolumeAttachments, CSINodes and CSIDrivers are updated by their version alone; a VolumeAttachment keeps its
//!   specification, and its status changes only through the subresource.
//!
//! # What it does not do
//!
//! It knows the kinds of [`resource`] and no others, authorizes every request (who serves it over a socket checks that no web
//! page of another site asks), runs no admission webhooks and no
//! controllers (Pods do not run, claims are not bound and snapshots are not taken: whoever creates one gets a warning),
//! reads and writes JSON alone, tracks no field managers (server-side apply is refused), and keeps everything in memory.
//!
//! It takes what a real server refuses: an object in a namespace that does not exist, an `apiVersion` and a `kind` of another
//! collection, a change of what is immutable in PersistentVolumes, claims, StorageClasses, CSIDrivers and Secrets, and
//! values of the right type that a kind forbids, except those of Services. It keeps unknown fields, which a real server drops.
//! A namespace that is deleted is gone at once, and leaves its objects. A strategic merge patch appends new items, and does not
//! sort them by `$setElementOrder`. [`ApiServer::put`] is for tests: it checks Services alone, and no types.

mod accept;
mod clock;
mod core_events;
mod discovery;
mod openapi;
mod patch;
mod request;
pub mod resource;
mod schema;
mod select;
mod service;
mod status;
mod store;
mod strategy;
mod table;
mod tokens;
mod view;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    request::Request,
    store::{Keeping, Store},
};

/// 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The version of Kubernetes whose answers it gives, as `kubectl version` prints it.
pub const VERSION: &str = "v1.36.0-lazuli";

/// How a server begins.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The wall-clock moment of the start. From there the stamps follow the runtime's clock.
    pub start: Timestamp,
    /// UIDs are made of this and a counter.
    pub seed: u64,
    /// How many changes a watch can begin behind. Older versions are answered 410.
    pub history: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { start: START, seed: 1, history: 20_000 }
    }
}

/// The server. Clones share one state.
#[derive(Debug, Clone)]
pub struct ApiServer {
    store: Arc<Store>,
}

/// A change of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// The version that the change made.
    pub version: u64,
    /// The object after the change, or as it was last.
    pub object: Value,
    /// Whether the object is still there.
    pub exists: bool,
}

/// A request that the server refused, as the `Status` object that a client sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The HTTP code.
    pub code: u16,
    /// The machine's word, such as `Conflict`.
    pub reason: &'static str,
    /// The sentence for a person.
    pub message: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for Refused {}

impl axum::response::IntoResponse for Refused {
    fn into_response(self) -> axum::response::Response {
        let code = http::StatusCode::from_u16(self.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        (code, axum::Json(self.object())).into_response()
    }
}

impl ApiServer {
    /// An empty cluster with the namespaces `default` and `kube-system`. Its clock is that of the current runtime.
    #[must_use]
    pub fn start(options: Options) -> Self {
        let server = Self { store: Arc::new(Store::new(options)) };
        for name in ["default", "kube-system"] {
            let namespace = serde_json::json!({"metadata": {"name": name}});
            server.put("namespaces", namespace).expect("an empty server takes a namespace");
        }
        server
    }

    /// The server as an HTTP service.
    pub fn router(&self) -> Router {
        let store = Arc::clone(&self.store);
        Router::new().fallback(move |request: axum::extract::Request| {
            let store = Arc::clone(&store);
            async move { Request::answer(&store, request).await }
        })
    }

    /// Creates an object, or replaces it whatever its version, status included. `plural` is the collection's name, such
    /// as `services`; the namespace is `metadata.namespace`, else `default`.
    ///
    /// # Errors
    /// [`Refused`]: the object is not valid.
    pub fn put(&self, plural: &str, object: Value) -> Result<Value, Refused> {
        let resource = resource::by_plural(plural).ok_or_else(|| status::unknown_kind(plural))?;
        self.store.put(resource, object).map(|object| (*object).clone())
    }

    /// A token of a Pod's ServiceAccount, bound to the Pod and to the node on which it is, for these audiences. A token
    /// without audiences is for the API server itself.
    ///
    /// # Errors
    /// [`Refused`]: there is no such Pod.
    pub fn issue_token(&self, namespace: &str, pod: &str, audiences: &[&str]) -> Result<String, Refused> {
        let pods = resource::by_plural("pods").ok_or_else(|| status::unknown_kind("pods"))?;
        let pod = self.store.get(pods, namespace, pod)?;
        Ok(self.store.tokens.issue(&pod, audiences))
    }

    /// Deletes an object as a client would; finalizers hold it.
    ///
    /// # Errors
    /// [`Refused`]: there is none of that name.
    pub fn delete(&self, plural: &str, namespace: &str, name: &str) -> Result<(), Refused> {
        let resource = resource::by_plural(plural).ok_or_else(|| status::unknown_kind(plural))?;
        self.store.delete(resource, namespace, name, &Value::Null, Keeping::Kept).map(drop)
    }

    /// An object as it is now. `namespace` is ignored for kinds without namespaces.
    #[must_use]
    pub fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = resource::by_plural(plural)?;
        self.store.get(resource, namespace, name).ok().map(|object| (*object).clone())
    }

    /// All objects of a kind, by namespace and name.
    #[must_use]
    pub fn list(&self, plural: &str) -> Vec<Value> {
        let Some(resource) = resource::by_plural(plural) else { return Vec::new() };
        self.store.all(resource).iter().map(|object| (**object).clone()).collect()
    }

    /// The changes of a kind after a version, oldest first.
    ///
    /// # Errors
    /// [`Refused`]: some of them are forgotten ([`Options::history`]), or there is no such kind.
    pub fn changes(&self, plural: &str, after: u64) -> Result<Vec<Changed>, Refused> {
        let resource = resource::by_plural(plural).ok_or_else(|| status::unknown_kind(plural))?;
        let (_, changes) = self.store.changes_after(resource, after)?;
        let changed = |change: store::Change| {
            let exists = change.after.is_some();
            let object = change.after.or(change.before)?;
            Some(Changed { version: change.version, object: (*object).clone(), exists })
        };
        Ok(changes.into_iter().filter_map(changed).collect())
    }

    /// How many changes were made so far: the version of the newest one.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.store.head()
    }

    /// Tells the version of each change as it is made.
    #[must_use]
    pub fn versions(&self) -> tokio::sync::watch::Receiver<u64> {
        self.store.heads()
    }

    /// Forgets all changes so far, as etcd's compaction does: watches and pages from before are answered 410.
    pub fn compact(&self) {
        self.store.compact();
    }

    /// Ends all watches; their clients begin new ones.
    pub fn drop_watches(&self) {
        self.store.drop_watches();
    }
}
