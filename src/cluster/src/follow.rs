//! Follows one resource of the API server: list, then watch, over and over.
//!
//! Why not the watcher of kube's runtime: its events do not tell when a lost watch is back, nor that a
//! silent one is alive, because bookmarks stay inside it. The age of a snapshot follows from exactly these two.
//!
//! ```text
//!        ┌────────── failed: Lost, wait, again ─────────────┐
//!        v                                                   │
//!     LIST (in pages)    ── Replaced ──> WATCH ── event ──> Applied, Deleted
//!        ^                                  │  └─ bookmark ─> Confirmed
//!        └── 410 Gone, or silence ──────────┘  broken: Lost, wait, watch again from the last version
//! ```
//!
//! An object that cannot be decoded ends the watch, and the list that follows says in which field. It is listed again until
//! somebody has corrected the object: nothing else tells of that.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Client;
use kube::api::{WatchEvent, WatchParams};
use kube::core::Request;
use lazuli_model::chain;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info, warn};

use super::client::Pages;

/// Without a word on the watch for so long, list again: the connection may be half open. The API server sends
/// a bookmark about once a minute (documented as usual, not promised).
pub(super) const SILENCE: Duration = Duration::from_secs(90);
/// Changes that wait for their receiver. A list is one change.
pub(super) const WAITING: usize = 64;
/// First and longest wait after a failure.
const WAIT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// An object of which only the needed fields are decoded; managed fields never reach memory.
pub(super) trait Slim: DeserializeOwned + Clone + Send + 'static {
    /// What is kept of it.
    type Kept: Send + 'static;
    fn metadata(&self) -> &SlimMetadata;
    /// `None`: nothing in it matters, as if it did not exist.
    fn keep(self, interest: &Interest) -> Option<Self::Kept>;
}

/// What of the objects of a collection is kept, where that depends on who follows it.
#[derive(Debug, Default)]
pub(super) struct Interest {
    /// Whose volumes are kept.
    pub(super) driver: String,
    /// Which labels of Services are kept.
    pub(super) labels: BTreeSet<String>,
}

impl Interest {
    /// What is of a driver.
    pub(super) fn of_driver(driver: &str) -> Self {
        Self { driver: driver.to_owned(), labels: BTreeSet::new() }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimMetadata {
    pub(super) name: String,
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) resource_version: String,
}

impl SlimMetadata {
    /// The name; of what lives in namespaces, `namespace/name`.
    pub(super) fn key(&self) -> String {
        if self.namespace.is_empty() { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }
}

/// What happened to the resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<V> {
    /// These are all there are.
    Replaced(Vec<(String, V)>),
    /// One is new or different; `None` when nothing in it matters.
    Applied(String, Option<V>),
    /// One is gone.
    Deleted(String),
    /// Everything up to now has been told.
    Confirmed,
    /// The API server cannot be followed for now, and why. Any other change says that it can again.
    Lost(String),
}

impl<V> Change<V> {
    /// The same change with other values.
    pub fn map<W>(self, mut of: impl FnMut(V) -> W) -> Change<W> {
        match self {
            Self::Replaced(all) => Change::Replaced(all.into_iter().map(|(name, value)| (name, of(value))).collect()),
            Self::Applied(name, value) => Change::Applied(name, value.map(of)),
            Self::Deleted(name) => Change::Deleted(name),
            Self::Confirmed => Change::Confirmed,
            Self::Lost(why) => Change::Lost(why),
        }
    }
}

/// Why the watch ended.
enum End {
    /// The version is too old, or nothing was heard: list again.
    ListAgain,
    /// The receiver has gone.
    NobodyListens,
}

/// Follows the collection at `path` until the receiver is dropped.
pub(super) async fn follow<K: Slim>(
    client: Client,
    path: &'static str,
    interest: Interest,
    changes: mpsc::Sender<Change<K::Kept>>,
) {
    let follower = Follower { client, request: Request::new(path), path, interest, changes };
    let mut backoff = Backoff::default();
    loop {
        let version = match follower.list::<K>().await {
            Ok((items, version)) => {
                debug!(resource = path, objects = items.len(), "listed");
                if follower.tell(Change::Replaced(items)).await.is_err() {
                    return;
                }
                backoff.reset(path);
                version
            }
            Err(error) => {
                if follower.tell(Change::Lost(error.to_string())).await.is_err() {
                    return;
                }
                backoff.wait(path, "list", &error).await;
                continue;
            }
        };
        match follower.watch::<K>(version, &mut backoff).await {
            // A server that lists and then calls its own version too old must not be asked in a tight loop.
            End::ListAgain => tokio::time::sleep(WAIT.0).await,
            End::NobodyListens => return,
        }
    }
}

struct Follower<V> {
    client: Client,
    request: Request,
    path: &'static str,
    interest: Interest,
    changes: mpsc::Sender<Change<V>>,
}

impl<V: Send + 'static> Follower<V> {
    async fn tell(&self, change: Change<V>) -> Result<(), End> {
        self.changes.send(change).await.map_err(|_| End::NobodyListens)
    }

    /// All objects, reduced page by page, and the version they are of.
    async fn list<K: Slim<Kept = V>>(&self) -> Result<(Vec<(String, V)>, String), FollowError> {
        let mut kept = Vec::new();
        let mut version = String::new();
        let mut pages = Pages::new(&self.client, self.path);
        while let Some(page) = pages.next::<K>().await? {
            page.resource_version().clone_into(&mut version);
            for item in page.into_items() {
                let name = item.metadata().key();
                if let Some(value) = item.keep(&self.interest) {
                    kept.push((name, value));
                }
            }
        }
        Ok((kept, version))
    }

    async fn watch<K: Slim<Kept = V>>(&self, mut version: String, backoff: &mut Backoff) -> End {
        let mut heard = Instant::now();
        while heard.elapsed() < SILENCE {
            match self.watch_once::<K>(&mut version, &mut heard, backoff).await {
                Ok(()) => debug!(resource = self.path, "the watch ended, continuing"),
                Err(WatchEnd::Gone | WatchEnd::Undecoded) => return End::ListAgain,
                Err(WatchEnd::NobodyListens) => return End::NobodyListens,
                Err(WatchEnd::Broken(error)) => {
                    if self.tell(Change::Lost(error.to_string())).await.is_err() {
                        return End::NobodyListens;
                    }
                    backoff.wait(self.path, "watch", &error).await;
                }
            }
        }
        debug!(resource = self.path, "nothing heard, listing again");
        End::ListAgain
    }

    /// One watch request. `Ok` when the server ended it in order.
    async fn watch_once<K: Slim<Kept = V>>(
        &self,
        version: &mut String,
        heard: &mut Instant,
        backoff: &mut Backoff,
    ) -> Result<(), WatchEnd> {
        let params = WatchParams::default();
        let request =
            self.request.watch(&params, version).map_err(|error| WatchEnd::Broken(FollowError::Request(error)))?;
        let silent = || WatchEnd::Broken(FollowError::TimeOut);
        let opening = self.client.request_events::<K>(request);
        let events =
            timeout_at(*heard + SILENCE, opening).await.map_err(|_| silent())?.map_err(WatchEnd::from_client)?;
        let mut events = std::pin::pin!(events);
        let mut any = false;
        loop {
            let Ok(next) = timeout_at(*heard + SILENCE, events.next()).await else {
                return Err(silent());
            };
            let Some(event) = next else {
                // A server that accepts and closes at once, over and over, is a failure.
                return if any { Ok(()) } else { Err(WatchEnd::Broken(FollowError::Closed)) };
            };
            let change = match event.map_err(WatchEnd::from_client)? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    version.clone_from(&object.metadata().resource_version);
                    Change::Applied(object.metadata().key(), object.keep(&self.interest))
                }
                WatchEvent::Deleted(object) => {
                    version.clone_from(&object.metadata().resource_version);
                    Change::Deleted(object.metadata().key())
                }
                WatchEvent::Bookmark(bookmark) => {
                    *version = bookmark.metadata.resource_version;
                    Change::Confirmed
                }
                WatchEvent::Error(status) => {
                    return Err(WatchEnd::from_client(kube::Error::Api(status)));
                }
            };
            any = true;
            *heard = Instant::now();
            backoff.reset(self.path);
            self.tell(change).await.map_err(|_| WatchEnd::NobodyListens)?;
        }
    }
}

enum WatchEnd {
    Gone,
    /// An object is not of its kind. The watch does not say why: the client library then takes it for an empty status.
    Undecoded,
    NobodyListens,
    Broken(FollowError),
}

impl WatchEnd {
    fn from_client(error: kube::Error) -> Self {
        match &error {
            // The status of the HTTP answer, or of an event in the stream.
            kube::Error::Api(status) if status.code == 410 => Self::Gone,
            kube::Error::Api(status) if status.code == 0 && status.message.is_empty() => Self::Undecoded,
            kube::Error::SerdeError(_) => Self::Undecoded,
            _ => Self::Broken(error.into()),
        }
    }
}

/// Why a list or watch failed. Never leaves this file but for the log.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error("{0}")]
    Request(kube::core::request::Error),
    #[error("nothing was heard in time")]
    TimeOut,
    #[error("the watch was closed before it said anything")]
    Closed,
    #[error("{} ({})", .0.message, .0.code)]
    Refused(Box<kube::core::Status>),
    #[error("an object of the API server is not of its kind: {0}")]
    Undecoded(serde_json::Error),
    #[error("{0}")]
    Unreached(String),
    #[error("{0}")]
    Client(kube::Error),
}

impl From<kube::Error> for FollowError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused(status),
            kube::Error::SerdeError(error) => Self::Undecoded(error),
            kube::Error::Service(error) => Self::Unreached(chain(&*error)),
            error => Self::Client(error),
        }
    }
}

/// Waits that double, from [`WAIT`].
#[derive(Default)]
struct Backoff {
    failures: u32,
}

impl Backoff {
    async fn wait(&mut self, path: &str, verb: &str, error: &FollowError) {
        let wait = WAIT.0.saturating_mul(2u32.saturating_pow(self.failures)).min(WAIT.1);
        self.failures = self.failures.saturating_add(1);
        // A single broken watch is daily life.
        if self.failures > 1 {
            warn!(resource = path, verb, attempt = self.failures, %error, "cannot follow");
        } else {
            debug!(resource = path, verb, %error, "lost, trying again");
        }
        tokio::time::sleep(wait).await;
    }

    fn reset(&mut self, path: &str) {
        if self.failures > 1 {
            info!(resource = path, "following again");
        }
        self.failures = 0;
    }
}
