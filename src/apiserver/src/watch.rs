//! The stream of a watch.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Refused,
    resource::Resource,
    select::Selector,
    store::{Change, Store},
};

/// How often an idle watch gets a bookmark. Source: `bookmarkFrequency` of kube-apiserver's watch cache.
const BOOKMARK: Duration = Duration::from_secs(60);

/// What a client asked for.
pub(crate) struct Watch {
    pub(crate) resource: &'static Resource,
    pub(crate) selector: Selector,
    /// Changes after this version; `None`: first the objects as they are.
    pub(crate) from: Option<u64>,
    pub(crate) bookmarks: bool,
    /// Whether a bookmark marks the end of the first objects.
    pub(crate) mark_initial: bool,
    pub(crate) lasts: Option<Duration>,
}

struct Reader {
    store: Arc<Store>,
    watch: Watch,
    version: u64,
    ends: Option<Instant>,
    next_bookmark: Instant,
    heads: tokio::sync::watch::Receiver<u64>,
    drops: tokio::sync::watch::Receiver<u64>,
    first: Option<Bytes>,
    over: bool,
}

fn line(kind: &str, object: &Value) -> Vec<u8> {
    let mut line = json!({"type": kind, "object": object}).to_string().into_bytes();
    line.push(b'\n');
    line
}

/// The body of the answer.
pub(crate) fn body(store: &Arc<Store>, watch: Watch) -> Body {
    // Before the state is read: no change falls between the two.
    let (heads, drops) = (store.heads(), store.drops());
    let (version, first) = match watch.from {
        Some(version) => (version, None),
        None => {
            let (version, objects) = store.state(watch.resource, &watch.selector);
            let mut first: Vec<u8> = objects.iter().flat_map(|object| line("ADDED", object)).collect();
            if watch.mark_initial {
                first.extend(bookmark(watch.resource, version, true));
            }
            (version, Some(Bytes::from(first)).filter(|first| !first.is_empty()))
        }
    };
    let now = Instant::now();
    let ends = watch.lasts.map(|lasts| now + lasts);
    let store = Arc::clone(store);
    let reader =
        Reader { store, watch, version, ends, next_bookmark: now + BOOKMARK, heads, drops, first, over: false };
    Body::from_stream(stream::unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((Ok::<_, Infallible>(chunk), reader))
    }))
}

fn bookmark(resource: &Resource, version: u64, ends_initial: bool) -> Vec<u8> {
    let mut metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
    if ends_initial {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    line("BOOKMARK", &json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata}))
}

impl Reader {
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            self.heads.mark_unchanged();
            match self.store.changes_after(self.watch.resource, self.version) {
                Err(refused) => {
                    self.over = true;
                    return Some(Bytes::from(line("ERROR", &refused.object())));
                }
                Ok((version, changes)) => {
                    self.version = version;
                    let lines: Vec<u8> = changes.iter().flat_map(|change| self.event(change)).collect();
                    if !lines.is_empty() {
                        return Some(Bytes::from(lines));
                    }
                }
            }
            let end = async {
                match self.ends {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = self.drops.changed() => return None,
                changed = self.heads.changed() => changed.ok()?,
                () = end => return None,
                () = tokio::time::sleep_until(self.next_bookmark), if self.watch.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK;
                    return Some(Bytes::from(bookmark(self.watch.resource, self.version, false)));
                }
            }
        }
    }

    /// The event of a change for this selector; empty where it selects neither side.
    fn event(&self, change: &Change) -> Vec<u8> {
        let selects = |object: &Option<Arc<Value>>| {
            object.as_ref().is_some_and(|object| self.watch.selector.selects(self.watch.resource, object))
        };
        match (&change.before, &change.after) {
            (before, Some(after)) => match (selects(before), selects(&change.after)) {
                (false, true) => line("ADDED", after),
                (true, true) => line("MODIFIED", after),
                (true, false) => {
                    let mut gone = before.as_deref().expect("is selected").clone();
                    gone["metadata"]["resourceVersion"] = json!(change.version.to_string());
                    line("DELETED", &gone)
                }
                (false, false) => Vec::new(),
            },
            (Some(gone), None) if selects(&change.before) => line("DELETED", gone),
            _ => Vec::new(),
        }
    }
}

/// A version as a query names it.
pub(crate) fn version(text: &str) -> Result<u64, Refused> {
    text.parse().map_err(|_| crate::status::bad_request(format!("resourceVersion: Invalid value: {text:?}")))
}
