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
//! Each sending takes a permit first, which it waits for in a queue: see [`permits`](crate::permits). After every wait,
//! be it for a permit or for a token, the call asks again whether Azure has asked for a pause: another call may have
//! been told to stop meanwhile.
//!
//! # Writes that may not wait
//!
//! What a write under [`Patience::None`] says was decided on what was just read, and no condition guards it: a minute
//! later it could undo what another replica has done meanwhile. So it goes out at once or not at all. It brings its
//! permit along ([`Write::with_permit`]), for which the caller waited before it read, or takes one that there is now.
//! A pause that Azure asks for, a permit that is not there, a token that is not at hand, a token that Azure refuses:
//! each gives the write back as [`Fault::Throttled`] with nothing done. The caller waits for as long as that says,
//! reads and decides anew. That read waits for a token, so the next write finds one at hand. A refused token gives a
//! write of one resource back once: what comes again soon gets the refusal as it is. Only the time that a connection
//! takes remains between decision and write.
//!
//! Before each sending the call also asks whether a caller wants it ([`Until::while_wanted`]), unless Azure may have acted
//! on it already.

mod call;
mod operation;
mod pages;
#[cfg(test)]
mod tests;
mod write;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use jiff::{Timestamp, fmt::rfc2822};
use lazuli_model::{
    AzureTime,
    fault::{Effect, Fault},
};
use lazuli_quota::{
    permit::{Ceilings, Priority, Scope},
    poll::{Durations, Expectation, Kind},
};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use call::{Call, History};
pub use operation::Operation;
pub(crate) use operation::Watching;
pub use pages::{Listed, Pages};
pub use write::{Patience, Repeat, Write};

use crate::{
    arm_requests::Sent,
    auth::Tokens,
    error::{ArmError, Failure, Verb},
    metrics::Metrics,
    permits::{PauseTooLong, Permit, Permits, Rank, direction},
    random::Random,
    transport::{Transport, origin},
    until::{Interrupted, Until},
};

/// A client of one resource manager; clones share everything but the region of their requests.
#[derive(Debug, Clone)]
pub struct Arm(Arc<Inner>, Option<Arc<str>>);

#[derive(Debug)]
struct Inner {
    endpoint: Url,
    transport: Transport,
    tokens: Tokens,
    metrics: Metrics,
    permits: Permits,
    random: Random,
    retry: Retry,
    durations: Mutex<BTreeMap<Kind, Durations>>,
    /// When a write that may not wait was given back for a refused token, by path.
    refused_tokens: Mutex<BTreeMap<String, Instant>>,
}

/// How long a write that was given back for a refused token is known to have been.
const GIVEN_BACK_FOR: Duration = Duration::from_secs(120);
/// The longest `Retry-After` that is taken at its word: a clock cannot tell of any time, and the longest that Azure is
/// known to ask for is some hours.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

const PAUSE_IS_NOT_OVER: &str = "Azure asked for a pause that is not over";

/// How often and how long a call is repeated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// How often a request is sent in all when it is not answered or the service fails.
    pub tries: u32,
    /// The pause after the first failure.
    pub first_pause: Duration,
    /// The factor of each further pause; at least 1.
    pub factor: f64,
    /// The least and the most that chance makes of a pause, as factors: calls must not stay in step.
    pub jitter: (f64, f64),
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
            factor: 2.0,
            jitter: (0.75, 1.25),
            longest_pause: Duration::from_secs(8),
            longest_wait: Duration::from_secs(60),
        }
    }
}

impl Retry {
    /// The pause after so many tries that failed. `chance` is from 0 to 1.
    fn pause(&self, tries: u32, chance: f64) -> Duration {
        let grown = self.first_pause.as_secs_f64() * self.factor.powf(f64::from(tries.saturating_sub(1)));
        let pause = grown.min(self.longest_pause.as_secs_f64());
        let (least, most) = self.jitter;
        Duration::try_from_secs_f64(pause * (least + (most - least) * chance)).unwrap_or(self.longest_pause)
    }
}

/// A resource as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// The whole body.
    pub value: Value,
    /// Its version, from the `ETag` header or the body.
    pub etag: Option<String>,
    /// When the request that was answered was sent. The answer shows all that Azure had done by then, unless its reads
    /// lag.
    pub sent_at: Instant,
    /// The `Date` of the answer.
    pub answered: Option<AzureTime>,
}

/// A success.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
    client_request_id: String,
    sent_at: Instant,
}

/// The text without a byte order mark, which RFC 8259 lets a reader ignore.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

impl Answer {
    /// The body; `None` when there is none.
    fn json(&self) -> Result<Option<Value>, serde_json::Error> {
        self.text().map(serde_json::from_slice).transpose()
    }

    /// The body's text; `None` when there is none.
    fn text(&self) -> Option<&[u8]> {
        Some(without_mark(&self.body)).filter(|body| !body.iter().all(u8::is_ascii_whitespace))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Arm {
    /// A client of the resource manager at this logical https origin. The seed rules jitter and request ids.
    pub fn new(endpoint: Url, transport: Transport, tokens: Tokens, metrics: Metrics, retry: Retry, seed: u64) -> Self {
        let inner = Inner {
            endpoint,
            transport,
            tokens,
            permits: Permits::new(metrics.clone()),
            metrics,
            random: Random::seeded(seed),
            retry,
            durations: Mutex::default(),
            refused_tokens: Mutex::default(),
        };
        Self(Arc::new(inner), None)
    }

    /// The same client for resources of this region, whose provider counts requests by region
    /// ([`Scope::in_region`]).
    #[must_use]
    pub fn in_region(&self, region: &str) -> Self {
        Self(self.0.clone(), Some(region.into()))
    }

    /// Sets the operator's ceilings on the requests of this client and its clones, in place of those before.
    pub fn set_ceilings(&self, ceilings: Ceilings) {
        self.0.permits.set_ceilings(ceilings);
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
        rank: impl Into<Rank>,
        until: &Until,
    ) -> Result<Read, ArmError> {
        let url = self.url(Verb::Get, path, api_version, query)?;
        let answer = self.read(&url, rank, until).await?;
        let value = answer
            .json()
            .map_err(|error| malformed(&url, &answer, "the answer is no JSON").caused_by(error))?
            .ok_or_else(|| malformed(&url, &answer, "the answer is empty"))?;
        let etag = answer.header("etag").or_else(|| value.get("etag").and_then(Value::as_str));
        let etag = etag.map(str::to_owned);
        let answered = date(&answer.headers).map(AzureTime::from_unix_seconds);
        Ok(Read { value, etag, sent_at: answer.sent_at, answered })
    }

    /// Sends a POST that only reads, such as `listKeys`: the path ends in the action. It is repeated as a GET is. The bytes
    /// of the answer are given as they are, because they may be a secret.
    ///
    /// # Errors
    /// Any [`Fault`].
    pub(crate) async fn ask(
        &self,
        path: &str,
        api_version: &str,
        rank: impl Into<Rank>,
        until: &Until,
    ) -> Result<Bytes, ArmError> {
        let url = self.url(Verb::Post, path, api_version, &[])?;
        let call = Call { verb: Verb::Post, asks: true, ..Call::read(&url, rank, self.0.retry.tries) };
        Ok(self.call(&call, None, until).await?.body)
    }

    /// Reads what is at a URL of the resource manager.
    async fn read(&self, url: &Url, rank: impl Into<Rank>, until: &Until) -> Result<Answer, ArmError> {
        self.call(&Call::read(url, rank, self.0.retry.tries), None, until).await
    }

    /// Waits for the permit to send one request of this verb to this path, for [`Write::with_permit`]. The caller of a
    /// write that may not wait takes the permit before it reads what it decides on.
    ///
    /// # Errors
    /// [`Fault::Throttled`] when Azure asks for a pause longer than [`Retry::longest_wait`] or what is left of the
    /// time; [`Fault::Deadline`]; [`Fault::Invalid`] for what is no path.
    pub async fn permit(
        &self,
        verb: Verb,
        path: &str,
        rank: impl Into<Rank>,
        until: &Until,
    ) -> Result<Permit, ArmError> {
        let (scope, rank) = (self.scope(verb, path)?, rank.into());
        let failed = |fault, message| Failure::ours(fault, Effect::None, verb, path, message);
        let interrupted = |why: Interrupted| failed(Fault::Deadline, why.as_str());
        until.check().map_err(interrupted)?;
        let longest = until.left().unwrap_or(Duration::MAX).min(self.0.retry.longest_wait);
        let permit = until.run_queued(true, self.0.permits.acquire(scope.as_ref(), &rank, longest));
        permit.await.map_err(interrupted)?.map_err(|PauseTooLong(pause)| {
            failed(Fault::Throttled { retry_after: Some(pause) }, PAUSE_IS_NOT_OVER).into()
        })
    }

    /// The permit to send one request of this verb to this path, if there is one now and no waiting request goes
    /// before.
    pub fn try_permit(&self, verb: Verb, path: &str, priority: Priority) -> Option<Permit> {
        let scope = self.scope(verb, path).ok()?;
        self.0.permits.try_acquire(scope.as_ref(), priority)
    }

    /// How often and how long a call is repeated.
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// The pause before the next try of a request that has failed so many times, with its jitter.
    pub fn pause_after(&self, failures: u32) -> Duration {
        self.0.retry.pause(failures, self.0.random.chance())
    }

    /// The part of the front door's bucket for this verb and path that is left, from 0 to 1; 1 where Azure reports
    /// nothing.
    pub fn permit_level(&self, verb: Verb, path: &str) -> f64 {
        self.scope(verb, path).ok().flatten().map_or(1.0, |scope| self.0.permits.level(&scope))
    }

    /// How long the limits of the resource provider hold up the last page of a list of so many pages.
    pub(crate) fn list_limited_for(&self, path: &str, pages: usize) -> Duration {
        let scope = self.scope(Verb::Get, path).ok().flatten();
        scope.map_or(Duration::ZERO, |scope| self.0.permits.limited_for(&scope, pages))
    }

    /// An estimate of how long a request would wait for its permit if it came now and no other request came later.
    #[cfg(test)]
    pub(crate) fn permit_would_wait(&self, verb: Verb, path: &str, priority: Priority) -> Duration {
        let scope = self.scope(verb, path).ok().flatten();
        scope.map_or(Duration::ZERO, |scope| self.0.permits.would_wait(&scope, priority))
    }

    pub(crate) fn scope(&self, verb: Verb, path: &str) -> Result<Option<Scope>, ArmError> {
        // The path as it is sent.
        let url = self.url(verb, path, "", &[])?;
        Ok(self.scope_of(verb, &url))
    }

    fn scope_of(&self, verb: Verb, url: &Url) -> Option<Scope> {
        let scope = Scope::of(direction(verb), url.path())?;
        Some(match &self.1 {
            Some(region) => scope.in_region(region),
            None => scope,
        })
    }

    /// Sends one write. The operation it starts, if any, is watched by [`Operation::wait`].
    ///
    /// # Errors
    /// Any [`Fault`]. [`Failure::effect`](crate::error::Failure::effect) says whether Azure may have acted all the
    /// same.
    pub async fn write(&self, mut write: Write, until: &Until) -> Result<Operation, ArmError> {
        let query: Vec<(&str, &str)> = write.query.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let url = self.url(write.verb, &write.path, &write.api_version, &query)?;
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
            if_absent: write.if_absent,
            repeat: write.repeat,
            patience: write.patience,
            rank: write.priority.into(),
            // Tries are apart by pauses.
            tries: if write.patience == Patience::None { 1 } else { self.0.retry.tries },
            asks: false,
        };
        let answer = self.call(&call, write.permit.take(), until).await?;
        Operation::begin(self.clone(), &write, &url, &answer)
    }

    /// What requests travel by.
    pub(crate) fn transport(&self) -> &Transport {
        &self.0.transport
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The queues of this identity, which hold requests to the data services of storage accounts too.
    pub(crate) fn permits(&self) -> &Permits {
        &self.0.permits
    }

    /// What is expected of an operation of this kind that is accepted now, and whether its end is to be polled for its
    /// duration.
    fn expectation(&self, kind: Kind, retry_after: Option<Duration>) -> (Expectation, bool) {
        let mut durations = self.durations();
        let seen = durations.entry(kind).or_default();
        (Expectation::of(kind, seen, retry_after), seen.sample())
    }

    /// The median of what operations of a kind have taken lately in this process.
    #[cfg(test)]
    pub(crate) fn median(&self, kind: Kind) -> Option<Duration> {
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

    /// Sends a request until there is an answer that the caller can use, or none is to be had. The first sending uses
    /// the permit that the call brings, if it is for this request.
    async fn call(&self, call: &Call<'_>, permit: Option<Permit>, until: &Until) -> Result<Answer, ArmError> {
        let inner = &*self.0;
        let mut history = History::default();
        // Every path into here has checked it already. A token is worth a second look.
        if call.url.origin() != inner.endpoint.origin() {
            let message = format!("{} is not the resource manager", origin(call.url));
            return Err(call.failed(Fault::Malformed, &history, message).into());
        }
        let scope = self.scope_of(call.verb, call.url);
        let mut permit = permit.filter(|permit| permit.is_for(scope.as_ref()));
        let mut fresh = None;
        loop {
            until.check_before_sending(!history.lost).map_err(|why| call.interrupted(why, &history))?;
            let pause = scope.as_ref().map_or(Duration::ZERO, |scope| inner.permits.paused(scope));
            if !history.may_wait(pause, call.patience, &inner.retry, until) {
                return Err(call.put_off(pause, &history, PAUSE_IS_NOT_OVER).into());
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
            // A permit from before a pause is given back: after the pause the queue decides again.
            let Some(permit) = permit.take().filter(|_| pause.is_zero()) else {
                // On the heap, because few calls wait here and every caller's future would carry the state of the wait.
                let next = Box::pin(self.permit_of(call, scope.as_ref(), pause, &mut history, until));
                permit = Some(next.await?);
                // That may have taken long, so token and pauses are checked again.
                continue;
            };
            let client_request_id = inner.random.uuid().to_string();
            let headers = call.headers(&bearer.header, &client_request_id);
            history.tries += 1;
            let (in_flight, sent_at) = (permit.sent(), Instant::now());
            let sent =
                inner.transport.send(call.verb.method(), call.url, headers, call.body.clone().unwrap_or_default());
            let sent = match call.acts() {
                true => until.run_write(sent).await,
                false => until.run(sent).await,
            };
            let sent = sent.map_err(|why| {
                history.lost |= call.acts();
                call.interrupted(why, &history).with_client_request_id(&client_request_id)
            })?;
            let took = sent_at.elapsed();
            let measured = |status, code| Sent { verb: call.verb, path: call.url.path(), status, code, took };
            let response = match sent {
                Ok(response) => response,
                Err(error) => {
                    inner.metrics.request(&measured(None, ""));
                    if !error.was_sent() {
                        in_flight.not_sent();
                    }
                    history.lost |= error.was_sent() && call.acts();
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
            if call.patience == Patience::None && status != 401 {
                self.token_was_good(call);
            }
            // A gateway in front of it may answer without looking at the token.
            if head.status.is_success() || (head.status.is_client_error() && !matches!(status, 401 | 429)) {
                inner.tokens.accepted(&bearer);
            }
            if head.status.is_success() {
                inner.metrics.request(&measured(Some(status), ""));
                in_flight.answered(&head.headers, true);
                return Ok(Answer { status, headers: head.headers, body, client_request_id, sent_at });
            }
            let retry_after = retry_after(&head.headers);
            let mut failure = call
                .refused(status, &body, retry_after, &history)
                .with_ids(&head.headers)
                .with_client_request_id(&client_request_id);
            inner.metrics.request(&measured(Some(status), &failure.code));
            let throttled = matches!(failure.fault, Fault::Throttled { .. });
            if throttled {
                in_flight.throttled(&head.headers, &failure, retry_after);
            } else {
                in_flight.answered(&head.headers, false);
            }
            if status == 401 && !history.renewed {
                // Refused at the door: nothing was done, and a token can lapse or be revoked early.
                inner.tokens.refused(&bearer);
                if call.patience == Patience::AsAzureSays {
                    history.renewed = true;
                    history.tries -= 1;
                    continue;
                }
                if self.give_back(call) {
                    let message = "Azure refuses the token, and this write may not wait for another";
                    let failure = call.put_off(Duration::ZERO, &history, message).with_ids(&head.headers);
                    return Err(failure.with_client_request_id(&client_request_id).into());
                }
            }
            if let (true, Some(pause)) = (throttled || status == 503, retry_after) {
                if call.tries == 1 || !history.may_wait(pause, call.patience, &inner.retry, until) {
                    failure.fault = Fault::Throttled { retry_after: Some(pause) };
                    return Err(failure.into());
                }
                history.waited += pause.max(Duration::from_secs(1));
                until.sleep(!history.lost, pause).await.map_err(|why| call.interrupted(why, &history))?;
                continue;
            }
            let may_repeat = match status {
                429 => true,
                408 | 500 | 502..=504 => {
                    history.lost |= call.acts();
                    if call.acts() {
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

    /// The permit for the next sending, after a pause that the call may wait for.
    async fn permit_of(
        &self,
        call: &Call<'_>,
        scope: Option<&Scope>,
        pause: Duration,
        history: &mut History,
        until: &Until,
    ) -> Result<Permit, ArmError> {
        let (permits, priority) = (&self.0.permits, call.rank.priority());
        if call.patience == Patience::None {
            return permits.try_acquire(scope, priority).ok_or_else(|| {
                let wait = scope.map_or(Duration::ZERO, |scope| permits.would_wait(scope, priority));
                call.put_off(wait, history, "Azure has no token for this request now, and this write may not wait")
                    .into()
            });
        }
        // Azure may ask for a longer pause meanwhile, in its answer to another call.
        let longest = self.0.retry.longest_wait.saturating_sub(history.waited);
        let longest = until.left().map_or(longest, |left| left.min(longest));
        history.waited += pause;
        let permit = until.run_queued(!history.lost, permits.acquire(scope, &call.rank, longest)).await;
        permit
            .map_err(|why| call.interrupted(why, history))?
            .map_err(|PauseTooLong(pause)| call.put_off(pause, history, PAUSE_IS_NOT_OVER).into())
    }

    /// Whether a write that may not wait is to be given back because its token was refused: not twice within a while.
    fn give_back(&self, call: &Call<'_>) -> bool {
        let now = Instant::now();
        let mut refused = self.0.refused_tokens.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|_, when| now.duration_since(*when) < GIVEN_BACK_FOR);
        if refused.remove(call.url.path()).is_some() {
            return false;
        }
        refused.insert(call.url.path().to_owned(), now);
        true
    }

    /// A write that may not wait was answered: the next refusal of a token is another.
    fn token_was_good(&self, call: &Call<'_>) {
        let mut refused = self.0.refused_tokens.lock().unwrap_or_else(PoisonError::into_inner);
        refused.remove(call.url.path());
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
        let pause = retry.pause(history.tries, self.0.random.chance());
        if !may_repeat || history.tries >= call.tries || until.left().is_some_and(|left| left <= pause) {
            return Err(failure.into());
        }
        tracing::debug!(
            error = &ArmError::from(failure) as &dyn std::error::Error,
            attempt = history.tries,
            ?pause,
            "tries again"
        );
        until.sleep(!history.lost, pause).await.map_err(|why| call.interrupted(why, history).into())
    }
}

/// The failure of a read whose answer cannot be used.
fn malformed(url: &Url, answer: &Answer, message: &str) -> Failure {
    Failure::ours(Fault::Malformed, Effect::None, Verb::Get, url.path(), message)
        .with_ids(&answer.headers)
        .with_client_request_id(&answer.client_request_id)
}

/// `Retry-After`, as a time from now: seconds, or a date, which is held against the answer's own `Date`, for our
/// clock may be wrong. No longer than [`LONGEST_RETRY_AFTER`].
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    asked_pause(headers).map(|pause| pause.min(LONGEST_RETRY_AFTER))
}

/// The answer's `Date`, in seconds since 1970.
fn date(headers: &HeaderMap) -> Option<i64> {
    let date = headers.get(header::DATE)?.to_str().ok()?;
    http_date(date.trim()).map(Timestamp::as_second)
}

/// The date of a header. Its day of the week says nothing that the rest does not, so a wrong one does no harm. A date
/// before 1970 is none: services send the year 1 for a time that was never set.
fn http_date(text: &str) -> Option<Timestamp> {
    let date = rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text).ok()?;
    (date >= Timestamp::UNIX_EPOCH).then_some(date)
}

fn asked_pause(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: header::HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let value = text(header::RETRY_AFTER)?;
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let (then, now) = (http_date(value)?, http_date(text(header::DATE)?)?);
    Some(Duration::try_from(then.duration_since(now)).unwrap_or_default())
}
