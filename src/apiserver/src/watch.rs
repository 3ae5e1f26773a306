//! The stream of a watch.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Refused,
    accept::Form,
    select::Selector,
    store::{Change, Store},
    table,
    view::View,
};

/// How often an idle watch gets a bookmark. Source: `bookmarkFrequency` of kube-apiserver's watch cache.
const BOOKMARK: Duration = Duration::from_secs(60);

/// What a client asked for.
pub(crate) struct Watch {
    pub(crate) view: View,
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
    /// Whether an object was sent: the first one of a table names the columns.
    has_sent: bool,
    over: bool,
}

/// A line of the stream, of an object as JSON text.
fn line(kind: &str, object: &str) -> Vec<u8> {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into_bytes()
}

/// The body of the answer.
pub(crate) fn body(store: &Arc<Store>, watch: Watch) -> Body {
    // Before the state is read: no change falls between the two.
    let (heads, drops) = (store.heads(), store.drops());
    let mut has_sent = false;
    let (version, first) = match watch.from {
        Some(version) => (version, None),
        None => {
            let (version, objects) = store.state(watch.view.resource.kept(), &watch.selector);
            let now = store.clock.now();
            let added = |(at, object): (usize, &Arc<Value>)| line("ADDED", &watch.view.watched(object, now, at == 0));
            let mut first: Vec<u8> = objects.iter().enumerate().flat_map(added).collect();
            has_sent = !objects.is_empty();
            if watch.mark_initial {
                first.extend(bookmark(watch.view, version, true));
            }
            (version, Some(Bytes::from(first)).filter(|first| !first.is_empty()))
        }
    };
    let now = Instant::now();
    let ends = watch.lasts.map(|lasts| now + lasts);
    let store = Arc::clone(store);
    let reader = Reader {
        store,
        watch,
        version,
        ends,
        next_bookmark: now + BOOKMARK,
        heads,
        drops,
        first,
        has_sent,
        over: false,
    };
    Body::from_stream(stream::unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((Ok::<_, Infallible>(chunk), reader))
    }))
}

fn bookmark(view: View, version: u64, ends_initial: bool) -> Vec<u8> {
    let resource = view.resource;
    let mut metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
    if ends_initial {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let object = json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata.clone()});
    let object = match view.form {
        Form::Table => table::table(resource, metadata, Vec::new(), false),
        _ => object,
    };
    line("BOOKMARK", &object.to_string())
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
            match self.store.changes_after(self.watch.view.resource.kept(), self.version) {
                Err(refused) => {
                    self.over = true;
                    return Some(Bytes::from(line("ERROR", &refused.object().to_string())));
                }
                Ok((version, changes)) => {
                    self.version = version;
                    let lines: Vec<u8> = changes.iter().flat_map(|change| self.lines(change)).collect();
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
                    return Some(Bytes::from(bookmark(self.watch.view, self.version, false)));
                }
            }
        }
    }

    /// The line of a change for this selector; empty where it selects neither side.
    fn lines(&mut self, change: &Change) -> Vec<u8> {
        let Some((kind, object)) = self.event(change) else { return Vec::new() };
        let is_first = !std::mem::replace(&mut self.has_sent, true);
        line(kind, &self.watch.view.watched(&object, self.store.clock.now(), is_first))
    }

    fn event(&self, change: &Change) -> Option<(&'static str, Arc<Value>)> {
        let selected =
            |object: &Option<Arc<Value>>| object.clone().filter(|object| self.watch.selector.selects(object));
        match (selected(&change.before), selected(&change.after)) {
            (None, Some(after)) => Some(("ADDED", after)),
            (Some(_), Some(after)) => Some(("MODIFIED", after)),
            (Some(before), None) if change.after.is_some() => {
                let mut gone = (*before).clone();
                gone["metadata"]["resourceVersion"] = json!(change.version.to_string());
                Some(("DELETED", Arc::new(gone)))
            }
            (Some(gone), None) => Some(("DELETED", gone)),
            (None, None) => None,
        }
    }
}

/// A version as a query names it.
pub(crate) fn version(text: &str) -> Result<u64, Refused> {
    text.parse().map_err(|_| crate::status::bad_request(format!("resourceVersion: Invalid value: {text:?}")))
}
