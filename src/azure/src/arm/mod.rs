//! Azure Resource Manager: reads, lists and writes of resources as JSON.
//!
//! Owns the pipeline of a call: budget, token, client request id, sending, retry, and the reading of errors. It
//! decides nothing about resources, and knows none of them.
//!
//! | answer | what happens |
//! |---|---|
//! | 429, or 503 with `Retry-After` | waits as told and repeats, any verb: Azure did not act. A wait beyond [`Retry::longest_wait`] or the caller's deadline is [`Fault::Throttled`] at once |
//! | 408, 500, 502, 503, 504, answer lost | backs off and repeats what may be repeated ([`Repeat`]); else [`Fault::OutcomeUnknown`] for a write |
//! | no connection | backs off and repeats, any verb: nothing was sent |
//! | 401 | once: a new token, and again; see below for writes that may not wait |
//! | anything else | the caller's |
//!
//! After every wait, be it for Azure, for others or for a token, the law of the [`budget`](crate::budget) is asked
//! again: another call may have been told to stop meanwhile.
//!
//! # Writes that may not wait
//!
//! What a write under [`Patience::None`] says was decided on what was just read, and no condition guards it: a minute
//! later it could undo what another replica has done meanwhile. So it goes out at once or not at all. A pause that
//! Azure asks for, the courtesy of letting others go first, a token that is not at hand, a token that Azure refuses:
//! each gives the write back as [`Fault::Throttled`] with nothing done, and whoever decided waits for as long as it
//! says, reads and decides anew. That read waits for a token, so the next write finds one at hand. A courtesy and a
//! refused token give a write of one resource back once: what comes again soon goes out, or gets the refusal as it is.
//! Only the time that a connection takes remains between decision and write.

mod operation;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use lazuli_plan::{
    fault::{Effect, Fault},
    poll::{Durations, Kind},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc2822};
use tokio::time::Instant;
use url::Url;

pub use operation::Operation;

use crate::{
    auth::Tokens,
    budget::{Budget, Priority, Scope},
    error::{ArmError, AzureError, Failure, Verb},
    metrics::{Metrics, ResourceType},
    random::Random,
    transport::{Transport, origin},
    until::{Interrupted, Until},
};

/// A client of one resource manager; clones share everything.
#[derive(Debug, Clone)]
pub struct Arm(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    endpoint: Url,
    transport: Transport,
    tokens: Tokens,
    metrics: Metrics,
    budget: Budget,
    random: Random,
    retry: Retry,
    durations: Mutex<BTreeMap<Kind, Durations>>,
    given_back: Mutex<BTreeMap<(String, GivenBack), Instant>>,
}

/// Why a write that may not wait was given back, where that is done once only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GivenBack {
    Courtesy,
    RefusedToken,
}

/// How long a write that was given back is known to have been. Whoever decided waits a courtesy and reads.
const GIVEN_BACK_FOR: Duration = Duration::from_secs(120);
/// The longest `Retry-After` that is taken at its word: a clock cannot tell of any time, and the longest that Azure is
/// known to ask for is some hours.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// How often and how long a call is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// How often a request is sent in all when it is not answered or the service fails.
    pub tries: u32,
    /// The pause after the first failure; it doubles.
    pub first_pause: Duration,
    /// The longest pause between two tries.
    pub longest_pause: Duration,
    /// How long a call waits in all because Azure said so. Beyond it the caller is told and may do better things.
    pub longest_wait: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            tries: 4,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(8),
            longest_wait: Duration::from_secs(60),
        }
    }
}

/// Whether a write may be sent again when it is not known what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Twice is as good as once.
    Safe,
    /// Twice may do something else.
    Never,
}

/// Whether a request may wait before it goes out, or goes out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// For as long as Azure asks, within [`Retry::longest_wait`].
    AsAzureSays,
    /// Not at all: see [the module's words on it](self#writes-that-may-not-wait).
    None,
}

/// One write.
#[derive(Debug, Clone)]
pub struct Write {
    verb: Verb,
    path: String,
    api_version: String,
    body: Option<Value>,
    if_match: Option<String>,
    kind: Kind,
    priority: Priority,
    repeat: Repeat,
    patience: Patience,
}

impl Write {
    fn new(verb: Verb, path: &str, api_version: &str, body: Option<Value>, kind: Kind, repeat: Repeat) -> Self {
        Self {
            verb,
            path: path.to_owned(),
            api_version: api_version.to_owned(),
            body,
            if_match: None,
            kind,
            priority: Priority::Create,
            repeat,
            patience: Patience::AsAzureSays,
        }
    }

    /// Makes or replaces a resource. May be repeated.
    pub fn put(path: &str, api_version: &str, body: Value, kind: Kind) -> Self {
        Self::new(Verb::Put, path, api_version, Some(body), kind, Repeat::Safe)
    }

    /// Changes a resource in part. Repeated only under `If-Match`, or when declared safe.
    pub fn patch(path: &str, api_version: &str, body: Value, kind: Kind) -> Self {
        Self::new(Verb::Patch, path, api_version, Some(body), kind, Repeat::Never)
    }

    /// Acts on a resource: the path ends in the action. Never repeated blindly.
    pub fn post(path: &str, api_version: &str, body: Option<Value>, kind: Kind) -> Self {
        Self::new(Verb::Post, path, api_version, body, kind, Repeat::Never)
    }

    /// Deletes a resource. May be repeated.
    pub fn delete(path: &str, api_version: &str, kind: Kind) -> Self {
        Self::new(Verb::Delete, path, api_version, None, kind, Repeat::Safe)
    }

    /// Only if the resource has still this etag.
    #[must_use]
    pub fn if_match(mut self, etag: Option<&str>) -> Self {
        self.if_match = etag.map(str::to_owned);
        if self.verb == Verb::Patch && self.if_match.is_some() {
            self.repeat = Repeat::Safe;
        }
        self
    }

    /// How it ranks when requests run short; [`Priority::Create`] unless said.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Whether it may wait; [`Patience::AsAzureSays`] unless said.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Whether it may be sent again when its answer was lost.
    #[must_use]
    pub fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }
}

/// A resource as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// The whole body.
    pub value: Value,
    /// Its version, from the `ETag` header or the body.
    pub etag: Option<String>,
}

/// What goes out, once or several times.
struct Call<'a> {
    verb: Verb,
    url: &'a Url,
    body: Option<Bytes>,
    if_match: Option<HeaderValue>,
    repeat: Repeat,
    patience: Patience,
    priority: Priority,
    tries: u32,
}

/// A success.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
    client_request_id: String,
}

/// The text without a byte order mark, which RFC 8259 lets a reader ignore.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// One page of a list.
#[derive(Deserialize)]
struct Page<T> {
    value: Option<Vec<T>>,
    #[serde(rename = "nextLink")]
    next_link: Option<String>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self { value: None, next_link: None }
    }
}

impl Answer {
    /// The body; `None` when there is none.
    fn json(&self) -> Result<Option<Value>, serde_json::Error> {
        self.decode()
    }

    /// The body, as far as `T` wants to know it.
    fn decode<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        let body = without_mark(&self.body);
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        serde_json::from_slice(body).map(Some)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Arm {
    /// A client of the resource manager at this logical https origin. The seed rules jitter and request ids.
    pub fn new(endpoint: Url, transport: Transport, tokens: Tokens, metrics: Metrics, retry: Retry, seed: u64) -> Self {
        Self(Arc::new(Inner {
            endpoint,
            transport,
            tokens,
            metrics,
            budget: Budget::default(),
            random: Random::seeded(seed),
            retry,
            durations: Mutex::default(),
            given_back: Mutex::default(),
        }))
    }

    /// Reads one resource.
    ///
    /// # Errors
    /// Any [`Fault`]; [`Fault::NotFound`] only for exactly this resource.
    pub async fn get(
        &self,
        path: &str,
        api_version: &str,
        query: &[(&str, &str)],
        priority: Priority,
        until: &Until,
    ) -> Result<Read, ArmError> {
        let url = self.url(Verb::Get, path, api_version, query)?;
        self.read(&url, priority, until).await
    }

    async fn read(&self, url: &Url, priority: Priority, until: &Until) -> Result<Read, ArmError> {
        let call = Call::read(url, priority, self.0.retry.tries);
        let answer = self.call(&call, until).await?;
        let value = answer
            .json()
            .map_err(|error| malformed(&call, &answer, "the answer is no JSON").caused_by(error))?
            .ok_or_else(|| malformed(&call, &answer, "the answer is empty"))?;
        let etag = answer.header("etag").or_else(|| value.get("etag").and_then(Value::as_str));
        let etag = etag.map(str::to_owned);
        Ok(Read { value, etag })
    }

    /// Reads all pages of a list. A page that fails fails the list: a shorter list would be a wrong one.
    ///
    /// # Errors
    /// Any [`Fault`]; [`Fault::Malformed`] for a page without `value` or a link that leads elsewhere or in a circle.
    pub async fn list(
        &self,
        path: &str,
        api_version: &str,
        query: &[(&str, &str)],
        until: &Until,
    ) -> Result<Vec<Value>, ArmError> {
        self.list_of(path, api_version, query, until).await
    }

    /// As [`Arm::list`], of items that are read into less than all they say: for lists of megabytes.
    ///
    /// # Errors
    /// As [`Arm::list`]; [`Fault::Malformed`] also for an item that cannot be read.
    pub async fn list_of<T: DeserializeOwned>(
        &self,
        path: &str,
        api_version: &str,
        query: &[(&str, &str)],
        until: &Until,
    ) -> Result<Vec<T>, ArmError> {
        const MOST_PAGES: usize = 10_000;
        let mut url = self.url(Verb::Get, path, api_version, query)?;
        let mut all = Vec::new();
        for _ in 0..MOST_PAGES {
            let call = Call::read(&url, Priority::List, self.0.retry.tries);
            let answer = self.call(&call, until).await?;
            let wrong = |message: &str| malformed(&call, &answer, message);
            let page: Page<T> = answer
                .decode()
                .map_err(|error| wrong("a page of the list cannot be read").caused_by(error))?
                .unwrap_or_default();
            match page.value {
                Some(items) => all.extend(items),
                None => return Err(wrong("a page of the list has no value").into()),
            }
            let next = match page.next_link.as_deref() {
                None | Some("") => return Ok(all),
                Some(link) => self
                    .follow(&url, link)
                    .map_err(|foreign| wrong("a list goes on in a place that is not followed").caused_by(foreign))?,
            };
            if next == url {
                return Err(wrong("a page of the list names itself as the next").into());
            }
            url = next;
        }
        Err(Failure::ours(Fault::Malformed, Effect::None, Verb::Get, path, "the list does not end").into())
    }

    /// Sends one write. The operation it starts, if any, is watched by [`Operation::wait`].
    ///
    /// # Errors
    /// Any [`Fault`]. [`Failure::effect`](crate::error::Failure::effect) says whether Azure may have acted all the
    /// same.
    pub async fn write(&self, write: &Write, until: &Until) -> Result<Operation, ArmError> {
        let url = self.url(write.verb, &write.path, &write.api_version, &[])?;
        // Without its condition the write would be another one.
        let if_match = write.if_match.as_deref().map(HeaderValue::from_str).transpose().map_err(|error| {
            Failure::ours(Fault::Malformed, Effect::None, write.verb, &write.path, "the etag cannot be sent")
                .caused_by(error)
        })?;
        let call = Call {
            verb: write.verb,
            url: &url,
            body: write.body.as_ref().map(|body| Bytes::from(body.to_string())),
            if_match,
            repeat: write.repeat,
            patience: write.patience,
            priority: write.priority,
            // Tries are apart by pauses.
            tries: if write.patience == Patience::None { 1 } else { self.0.retry.tries },
        };
        let answer = self.call(&call, until).await?;
        Operation::begin(self.clone(), write, &url, &answer)
    }

    /// The median of what operations of a kind have taken lately in this process.
    pub fn median(&self, kind: Kind) -> Option<Duration> {
        self.durations().get(&kind).and_then(Durations::median)
    }

    fn durations(&self) -> MutexGuard<'_, BTreeMap<Kind, Durations>> {
        self.0.durations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(&self, base: &Url, link: &str) -> Result<Url, crate::transport::ForeignLink> {
        self.0.transport.routes().follow(base, link)
    }

    fn url(&self, verb: Verb, path: &str, api_version: &str, query: &[(&str, &str)]) -> Result<Url, ArmError> {
        // A URL folds dot segments away, and would so name another resource.
        let dots = |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
        if !path.starts_with('/') || path.split('/').any(dots) {
            let failure = Failure::ours(Fault::Invalid, Effect::None, verb, path, "this is no path of a resource");
            return Err(failure.into());
        }
        let mut url = self.0.endpoint.clone();
        url.set_path(&format!("{}{path}", self.0.endpoint.path().trim_end_matches('/')));
        {
            let mut pairs = url.query_pairs_mut();
            pairs.append_pair("api-version", api_version);
            for (name, value) in query {
                pairs.append_pair(name, value);
            }
        }
        // The form encoding of a space means a plus sign to some of Azure's filters.
        let query = url.query().map(|query| query.replace('+', "%20"));
        url.set_query(query.as_deref());
        Ok(url)
    }

    /// Sends a request until there is an answer that the caller can use, or none is to be had.
    async fn call(&self, call: &Call<'_>, until: &Until) -> Result<Answer, ArmError> {
        let inner = &*self.0;
        let mut history = History::default();
        // Every path into here has checked it already. A token is worth a second look.
        if call.url.origin() != inner.endpoint.origin() {
            let message = format!("{} is not the resource manager", origin(call.url));
            return Err(call.failed(Fault::Malformed, &history, message).into());
        }
        let scope = Scope::of(call.verb, call.url.path());
        let mut fresh = None;
        loop {
            until.check().map_err(|why| call.interrupted(why, &history))?;
            if let Some(scope) = &scope {
                let law = inner.budget.law(scope, Instant::now());
                if !history.may_wait(law, call.patience, &inner.retry, until) {
                    return Err(call.put_off(law, &history, "Azure asked for a pause that is not over").into());
                }
                if !law.is_zero() {
                    // Meanwhile another call may be told to wait longer.
                    history.waited += law;
                    until.sleep(law).await.map_err(|why| call.interrupted(why, &history))?;
                    continue;
                }
                if !history.counted {
                    history.counted = true;
                    let courtesy = inner.budget.take(scope, call.priority, Instant::now());
                    if !courtesy.is_zero() && call.patience == Patience::AsAzureSays {
                        tracing::debug!(resource = call.url.path(), delay = ?courtesy, "lets others go first");
                        until.sleep(courtesy).await.map_err(|why| call.interrupted(why, &history))?;
                        continue;
                    }
                    if !courtesy.is_zero() && self.give_back(call, GivenBack::Courtesy) {
                        return Err(call
                            .put_off(courtesy, &history, "few requests are left, and others go first")
                            .into());
                    }
                }
            }
            let bearer = match (fresh.take().or_else(|| inner.tokens.at_hand()), call.patience) {
                (Some(bearer), _) => bearer,
                (None, Patience::None) => {
                    let message = "there is no token at hand, and this write may not wait for one";
                    return Err(call.put_off(Duration::ZERO, &history, message).into());
                }
                (None, Patience::AsAzureSays) => {
                    let bearer = until.run(inner.tokens.bearer()).await;
                    let bearer = bearer
                        .map_err(|why| call.interrupted(why, &history))?
                        .map_err(|error| call.failed(error.fault(), &history, "there is no token").caused_by(error))?;
                    // That may have taken long.
                    fresh = Some(bearer);
                    continue;
                }
            };
            history.counted = false;
            let client_request_id = inner.random.uuid().to_string();
            let headers = call.headers(&bearer.header, &client_request_id);
            history.tries += 1;
            let sent =
                inner.transport.send(call.verb.method(), call.url, headers, call.body.clone().unwrap_or_default());
            let sent = until.run(sent).await.map_err(|why| {
                history.lost |= call.verb.writes();
                call.interrupted(why, &history).with_client_request_id(&client_request_id)
            })?;
            let resource = ResourceType::of(call.url.path());
            let response = match sent {
                Ok(response) => response,
                Err(error) => {
                    inner.metrics.request(call.verb, resource, None);
                    history.lost |= error.was_sent() && call.verb.writes();
                    let may_repeat = !error.was_sent() || call.repeat == Repeat::Safe;
                    let fault = if history.lost { Fault::OutcomeUnknown } else { Fault::Unavailable };
                    let message = if error.was_sent() { "no answer came" } else { "Azure was not reached" };
                    let failure = call
                        .failed(fault, &history, message)
                        .caused_by(error)
                        .with_client_request_id(&client_request_id);
                    self.back_off(call, may_repeat, &history, until, failure).await?;
                    continue;
                }
            };
            let (head, body) = response.into_parts();
            let status = head.status.as_u16();
            inner.metrics.request(call.verb, resource, Some(status));
            if let Some(scope) = &scope {
                inner.budget.answered(scope, &head.headers, Instant::now());
            }
            if call.patience == Patience::None && status != 401 {
                self.sent(call);
            }
            if head.status.is_success() {
                return Ok(Answer { status, headers: head.headers, body, client_request_id });
            }
            if status == 401 && !history.renewed {
                // Refused at the door: nothing was done, and a token can lapse or be revoked early.
                inner.tokens.refused(&bearer);
                if call.patience == Patience::AsAzureSays {
                    history.renewed = true;
                    history.tries -= 1;
                    continue;
                }
                if self.give_back(call, GivenBack::RefusedToken) {
                    let message = "Azure refuses the token, and this write may not wait for another";
                    let failure = call.put_off(Duration::ZERO, &history, message).with_ids(&head.headers);
                    return Err(failure.with_client_request_id(&client_request_id).into());
                }
            }
            let retry_after = retry_after(&head.headers);
            let mut failure = call
                .refused(status, &body, retry_after, &history)
                .with_ids(&head.headers)
                .with_client_request_id(&client_request_id);
            let throttled = matches!(failure.fault, Fault::Throttled { .. });
            if let (true, Some(pause)) = (throttled || status == 503, retry_after) {
                if let (true, Some(scope)) = (throttled, &scope) {
                    let gateway = head.headers.get("x-ms-failure-cause");
                    let gateway = gateway.is_some_and(|cause| cause.as_bytes() == b"gateway");
                    inner.budget.throttled(scope, gateway, &failure.details, pause, Instant::now());
                }
                if call.tries == 1 || !history.may_wait(pause, call.patience, &inner.retry, until) {
                    failure.fault = Fault::Throttled { retry_after: Some(pause) };
                    return Err(failure.into());
                }
                history.waited += pause.max(Duration::from_secs(1));
                until.sleep(pause).await.map_err(|why| call.interrupted(why, &history))?;
                continue;
            }
            let may_repeat = match status {
                429 => true,
                408 | 500 | 502..=504 => {
                    history.lost |= call.verb.writes();
                    if call.verb.writes() {
                        failure.fault = Fault::OutcomeUnknown;
                        failure.effect = Effect::Possible;
                    }
                    call.repeat == Repeat::Safe
                }
                _ => return Err(failure.into()),
            };
            self.back_off(call, may_repeat, &history, until, failure).await?;
        }
    }

    /// Whether a write that may not wait is to be given back for this reason: not twice within a while.
    fn give_back(&self, call: &Call<'_>, why: GivenBack) -> bool {
        let now = Instant::now();
        let mut given_back = self.0.given_back.lock().unwrap_or_else(PoisonError::into_inner);
        given_back.retain(|_, when| now.duration_since(*when) < GIVEN_BACK_FOR);
        match given_back.entry((call.url.path().to_owned(), why)) {
            Entry::Vacant(entry) => {
                entry.insert(now);
                true
            }
            Entry::Occupied(entry) => {
                entry.remove();
                false
            }
        }
    }

    /// A write that may not wait was answered: the next one is another.
    fn sent(&self, call: &Call<'_>) {
        let mut given_back = self.0.given_back.lock().unwrap_or_else(PoisonError::into_inner);
        given_back.retain(|(path, _), _| path != call.url.path());
    }

    /// Sleeps before the next try, or gives the failure back when there is to be none.
    async fn back_off(
        &self,
        call: &Call<'_>,
        may_repeat: bool,
        history: &History,
        until: &Until,
        failure: Failure,
    ) -> Result<(), ArmError> {
        let retry = &self.0.retry;
        let pause = retry
            .first_pause
            .saturating_mul(1 << (history.tries - 1).min(16))
            .min(retry.longest_pause)
            .mul_f64(self.0.random.jitter());
        if !may_repeat || history.tries >= call.tries || until.left().is_some_and(|left| left <= pause) {
            return Err(failure.into());
        }
        tracing::debug!(
            error = &ArmError::from(failure) as &dyn std::error::Error,
            attempt = history.tries,
            ?pause,
            "tries again"
        );
        until.sleep(pause).await.map_err(|why| call.interrupted(why, history).into())
    }
}

/// What has happened to a call so far.
#[derive(Debug, Default)]
struct History {
    tries: u32,
    waited: Duration,
    /// A write may have reached Azure without our knowing what came of it.
    lost: bool,
    renewed: bool,
    /// The next request is in the budget's estimate.
    counted: bool,
}

impl History {
    fn may_wait(&self, pause: Duration, patience: Patience, retry: &Retry, until: &Until) -> bool {
        pause.is_zero()
            || patience == Patience::AsAzureSays
                && self.waited + pause <= retry.longest_wait
                && until.left().is_none_or(|left| pause < left)
    }

    fn effect(&self) -> Effect {
        if self.lost { Effect::Possible } else { Effect::None }
    }
}

impl<'a> Call<'a> {
    fn read(url: &'a Url, priority: Priority, tries: u32) -> Self {
        let (repeat, patience) = (Repeat::Safe, Patience::AsAzureSays);
        Self { verb: Verb::Get, url, body: None, if_match: None, repeat, patience, priority, tries }
    }

    fn headers(&self, bearer: &HeaderValue, client_request_id: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, bearer.clone());
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        if self.body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(etag) = &self.if_match {
            headers.insert(header::IF_MATCH, etag.clone());
        }
        if let Ok(id) = HeaderValue::from_str(client_request_id) {
            headers.insert("x-ms-client-request-id", id);
        }
        headers.insert("x-ms-return-client-request-id", HeaderValue::from_static("true"));
        headers
    }

    fn failed(&self, fault: Fault, history: &History, message: impl Into<String>) -> Failure {
        Failure::ours(fault, history.effect(), self.verb, self.url.path(), message)
    }

    fn put_off(&self, pause: Duration, history: &History, message: &str) -> Failure {
        self.failed(Fault::Throttled { retry_after: Some(pause) }, history, message)
    }

    fn interrupted(&self, why: Interrupted, history: &History) -> Failure {
        self.failed(Fault::Deadline, history, why.as_str())
    }

    fn refused(&self, status: u16, body: &[u8], retry_after: Option<Duration>, history: &History) -> Failure {
        let error = match serde_json::from_slice::<Value>(without_mark(body)) {
            Ok(value) => AzureError::read(&value),
            Err(_) => AzureError::text(&String::from_utf8_lossy(body)),
        };
        Failure::answered(self.verb, self.url.path(), status, error, retry_after, history.effect())
    }
}

fn malformed(call: &Call<'_>, answer: &Answer, message: &str) -> Failure {
    Failure::ours(Fault::Malformed, Effect::None, call.verb, call.url.path(), message)
        .with_ids(&answer.headers)
        .with_client_request_id(&answer.client_request_id)
}

/// `Retry-After`, as a time from now: seconds, or a date, which is held against the answer's own `Date`, for our
/// clock may be wrong. No longer than [`LONGEST_RETRY_AFTER`].
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    asked_pause(headers).map(|pause| pause.min(LONGEST_RETRY_AFTER))
}

fn asked_pause(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: header::HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let value = text(header::RETRY_AFTER)?;
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = |text: &str| OffsetDateTime::parse(text, &Rfc2822).ok();
    let (then, now) = (date(value)?, date(text(header::DATE)?)?);
    Some(Duration::try_from(then - now).unwrap_or_default())
}
