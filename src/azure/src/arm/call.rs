//! A request that goes out once or several times, and what has happened to it so far.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use lazuli_model::fault::{Effect, Fault};
use serde_json::Value;
use url::Url;

use super::{Patience, Repeat, Retry, without_mark};
use crate::{
    error::{AzureError, Failure, Verb},
    permits::Rank,
    until::{Interrupted, Until},
};

/// What goes out, once or several times.
pub(super) struct Call<'a> {
    pub(super) verb: Verb,
    pub(super) url: &'a Url,
    pub(super) body: Option<Bytes>,
    pub(super) if_match: Option<HeaderValue>,
    pub(super) if_absent: bool,
    pub(super) repeat: Repeat,
    pub(super) patience: Patience,
    pub(super) rank: Rank,
    pub(super) tries: u32,
    /// Whether a POST only reads.
    pub(super) asks: bool,
}

/// What has happened to a call so far.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) tries: u32,
    pub(super) waited: Duration,
    /// A write may have reached Azure without our knowing what came of it.
    pub(super) lost: bool,
    pub(super) renewed: bool,
}

impl History {
    pub(super) fn may_wait(&self, pause: Duration, patience: Patience, retry: &Retry, until: &Until) -> bool {
        pause.is_zero()
            || patience == Patience::AsAzureSays
                && self.waited + pause <= retry.longest_wait
                && until.left().is_none_or(|left| pause < left)
    }

    pub(super) fn effect(&self) -> Effect {
        if self.lost { Effect::Possible } else { Effect::None }
    }
}

impl<'a> Call<'a> {
    pub(super) fn read(url: &'a Url, rank: impl Into<Rank>, tries: u32) -> Self {
        let (repeat, patience) = (Repeat::Safe, Patience::AsAzureSays);
        let rank = rank.into();
        let (body, if_match, if_absent) = (None, None, false);
        Self { verb: Verb::Get, url, body, if_match, if_absent, repeat, patience, rank, tries, asks: false }
    }

    /// Whether Azure may be different after it.
    pub(super) fn acts(&self) -> bool {
        self.verb.writes() && !self.asks
    }

    pub(super) fn headers(&self, bearer: &HeaderValue, client_request_id: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, bearer.clone());
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        if self.body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(etag) = &self.if_match {
            headers.insert(header::IF_MATCH, etag.clone());
        }
        if self.if_absent {
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        if let Ok(id) = HeaderValue::from_str(client_request_id) {
            headers.insert("x-ms-client-request-id", id);
        }
        headers.insert("x-ms-return-client-request-id", HeaderValue::from_static("true"));
        headers
    }

    pub(super) fn failed(&self, fault: Fault, history: &History, message: impl Into<String>) -> Failure {
        Failure::ours(fault, history.effect(), self.verb, self.url.path(), message)
    }

    pub(super) fn put_off(&self, pause: Duration, history: &History, message: &str) -> Failure {
        self.failed(Fault::Throttled { retry_after: Some(pause) }, history, message)
    }

    pub(super) fn interrupted(&self, why: Interrupted, history: &History) -> Failure {
        self.failed(Fault::Deadline, history, why.as_str())
    }

    pub(super) fn refused(
        &self,
        status: u16,
        body: &[u8],
        retry_after: Option<Duration>,
        history: &History,
    ) -> Failure {
        let error = match serde_json::from_slice::<Value>(without_mark(body)) {
            Ok(value) => AzureError::read(&value),
            Err(_) => AzureError::text(&String::from_utf8_lossy(body)),
        };
        Failure::answered(self.verb, self.url.path(), status, error, retry_after, history.effect())
    }
}
