//! A request on its way: by the official crate's pipeline to our transport, signed, and repeated as [`Tries`] says. Each
//! sending takes a permit of its account, and is counted.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use azure_core::{
    error::{Error, ErrorKind},
    http::{
        AsyncRawResponse, ClientOptions, HttpClient, RetryOptions,
        headers::{HeaderName, Headers},
    },
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use lazuli_model::fault::Fault;
use lazuli_quota::permit::{Priority, Scope};
use lazuli_vhd::life::Problem;
use tokio::time::Instant;
use url::Url;

use super::{
    Account,
    error::{BlobError, element},
    keys::Keys,
    signature::SharedKey,
    tries::{Next, Sent, Tries},
};
use crate::{
    arm::{Arm, retry_after},
    metrics::{ResourceType, SentToAccount},
    permits::{InFlight, PauseTooLong, Permit, Rank},
    transport::{Transport, TransportError, origin},
    until::{Interrupted, Until},
};

/// What is sent, for messages and for the rules of repetition.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) method: &'static str,
    /// The address, without its query.
    pub(super) url: &'a Url,
    /// Whether Azure may be different after it.
    pub(super) writes: bool,
}

impl About<'_> {
    pub(super) fn failed(&self, fault: Fault, message: impl Into<String>) -> BlobError {
        BlobError::ours(fault, format!("{} {}", self.method, self.url), message)
    }

    /// What it is about, as far as counting goes. The list of a container's blobs is about the container.
    fn resource(&self) -> ResourceType {
        let has_blob = self.url.path_segments().is_some_and(|segments| segments.count() > 1);
        if has_blob { ResourceType::Blobs } else { ResourceType::BlobContainers }
    }

    fn interrupted(&self, why: Interrupted, problem: Problem) -> (Problem, BlobError) {
        (problem.clone(), self.failed(Fault::Deadline, why.as_str()).sorted(&problem))
    }
}

/// Sends a request until it is served, or is not to be sent again. `send` has the crate send it once. What the crate
/// makes of the answer comes with the answer's headers.
pub(super) async fn serve<T, F>(
    keys: &Keys,
    account: &Account,
    about: About<'_>,
    until: &Until,
    send: impl Fn(ClientOptions) -> F,
) -> Result<(T, Headers), (Problem, BlobError)>
where
    F: Future<Output = azure_core::Result<T>>,
{
    let arm = keys.storage().arm();
    let retry = arm.retry();
    let mut tries = Tries::new(about.writes, retry.tries, retry.longest_wait);
    let mut other = None;
    let scope = Scope::of_data(about.url.host_str().unwrap_or_default());
    loop {
        let late = |why| about.interrupted(why, Problem::Other(Fault::Deadline));
        until.check_before_sending(true).map_err(late)?;
        let key = match other.take() {
            Some(key) => key,
            None => keys.get(account, until).await?,
        };
        let permit = permit(arm, &about, &scope, &tries, until).await?;
        // That may have taken long.
        until.check_before_sending(true).map_err(late)?;
        let watch =
            Arc::new(Watch { transport: arm.transport().clone(), origin: origin(about.url), seen: Mutex::default() });
        let signs = SharedKey {
            account: account.id.name().to_ascii_lowercase(),
            key: key.secret.clone(),
            transport: arm.transport().clone(),
        };
        let options = ClientOptions {
            per_try_policies: vec![Arc::new(signs)],
            retry: RetryOptions::none(),
            transport: Some(azure_core::http::Transport::new(watch.clone())),
            ..ClientOptions::default()
        };
        let on_its_way = OnItsWay { in_flight: permit.sent(), since: Instant::now(), about, account, arm };
        let served = until.run(send(options)).await.map_err(|why| {
            let problem = if about.writes { Problem::Lost } else { Problem::Other(Fault::Deadline) };
            about.interrupted(why, problem)
        })?;
        let (failed, seen) = match (served, watch.take()) {
            (Ok(served), Some(Seen::Answered { headers, status, .. })) => {
                on_its_way.served(status);
                return Ok((served, headers));
            }
            (Ok(_), _) => return Err(unsent(&about, Fault::Malformed, None)),
            (Err(error), None) => {
                on_its_way.in_flight.not_sent();
                let is_of_the_key = matches!(error.kind(), ErrorKind::Credential);
                let fault = if is_of_the_key { Fault::Malformed } else { Fault::Invalid };
                return Err(unsent(&about, fault, Some(error)));
            }
            (Err(error), Some(seen)) => (error, seen),
        };
        let error = seen.error(&about, failed);
        let pause = arm.pause_after(tries.sent() + 1);
        on_its_way.ended(seen.sent(), pause);
        let next = tries.next(seen.sent(), pause, until.left());
        let (after, problem) = match next {
            Next::Again { after } => (after, None),
            Next::AgainWithKeysOfNow { after } => {
                keys.forget(account);
                (after, None)
            }
            Next::WithOtherKeys(problem) => {
                other = keys.other(account, &key, until).await?;
                (std::time::Duration::ZERO, other.is_none().then_some(problem))
            }
            Next::End(problem) => {
                if leaves_the_account_in_doubt(&problem) {
                    keys.forget(account);
                }
                (std::time::Duration::ZERO, Some(problem))
            }
        };
        if let Some(problem) = problem {
            let error = error.sorted(&problem);
            return Err((problem, error));
        }
        tracing::debug!(error = &error as &dyn std::error::Error, attempt = tries.sent(), ?after, "tries again");
        until.sleep(true, after).await.map_err(late)?;
    }
}

/// Waits for the permit to send a request to an account.
async fn permit(
    arm: &Arm,
    about: &About<'_>,
    scope: &Scope,
    tries: &Tries,
    until: &Until,
) -> Result<Permit, (Problem, BlobError)> {
    let rank = Rank::new(if about.writes { Priority::Create } else { Priority::Read });
    let acquired = arm.permits().acquire(Some(scope), &rank, tries.may_wait(until.left()));
    // On the heap, because few requests wait here and every caller's future would carry the state of the wait.
    let acquired = Box::pin(until.run_queued(true, acquired)).await;
    acquired.map_err(|why| about.interrupted(why, Problem::Other(Fault::Deadline)))?.map_err(|PauseTooLong(pause)| {
        let fault = Fault::Throttled { retry_after: Some(pause) };
        let error = about.failed(fault.clone(), "the account has asked for a pause that is not over");
        (Problem::Other(fault), error)
    })
}

/// A request between its sending and its answer.
struct OnItsWay<'a> {
    in_flight: InFlight,
    since: Instant,
    about: About<'a>,
    account: &'a Account,
    arm: &'a Arm,
}

impl OnItsWay<'_> {
    fn count(&self, status: Option<u16>, is_throttled: bool) {
        self.arm.metrics().data_request(&SentToAccount {
            method: self.about.method,
            resource: self.about.resource(),
            subscription: self.account.id.subscription(),
            status,
            is_throttled,
            took: self.since.elapsed(),
        });
    }

    /// The answer serves.
    fn served(self, status: u16) {
        self.count(Some(status), false);
        self.in_flight.answered(&HeaderMap::new(), true);
    }

    /// The answer does not serve, or none came. `pause` is the pause of a try that failed.
    fn ended(self, sent: Sent<'_>, pause: std::time::Duration) {
        let pause = sent.pause_of_all(pause);
        match sent {
            Sent::NoConnection => {
                self.count(None, false);
                self.in_flight.not_sent();
            }
            // The permit is dropped as that of a request whose answer was lost.
            Sent::Lost => self.count(None, false),
            Sent::Answered { status, .. } => {
                self.count(Some(status), pause.is_some());
                match pause {
                    Some(pause) => self.in_flight.account_is_busy(pause),
                    None => self.in_flight.answered(&HeaderMap::new(), false),
                }
            }
        }
    }
}

/// A request that was not sent.
fn unsent(about: &About<'_>, fault: Fault, error: Option<Error>) -> (Problem, BlobError) {
    let failed = about.failed(fault.clone(), "the request cannot be sent");
    let failed = match error {
        Some(error) => failed.caused_by(error),
        None => failed,
    };
    (Problem::Other(fault), failed)
}

/// Whether it may be that there is no such account any more: the resource manager is asked at the next call.
fn leaves_the_account_in_doubt(problem: &Problem) -> bool {
    matches!(problem, Problem::Other(Fault::Malformed | Fault::Unavailable))
}

/// What passed between the crate and the service.
#[derive(Debug)]
enum Seen {
    Answered { status: u16, code: String, headers: Headers, body: Bytes, client_request_id: Option<String> },
    Failed { error: TransportError, client_request_id: Option<String> },
}

impl Seen {
    fn sent(&self) -> Sent<'_> {
        match self {
            Self::Failed { error, .. } if !error.was_sent() => Sent::NoConnection,
            Self::Failed { .. } => Sent::Lost,
            Self::Answered { status, code, headers, .. } => {
                let mut http = HeaderMap::new();
                for name in [header::RETRY_AFTER, header::DATE] {
                    let value = text(headers, name.as_str()).and_then(|value| HeaderValue::from_str(value).ok());
                    if let Some(value) = value {
                        http.insert(name, value);
                    }
                }
                Sent::Answered { status: *status, code, retry_after: retry_after(&http) }
            }
        }
    }

    fn error(&self, about: &About<'_>, failed: Error) -> BlobError {
        match self {
            Self::Failed { error, client_request_id } => about
                .failed(Fault::Unavailable, if error.was_sent() { "no answer came" } else { "it was not reached" })
                .caused_by(error.clone())
                .with_ids(None, client_request_id.clone()),
            Self::Answered { status, code, headers, body, client_request_id } => {
                let request_id = text(headers, "x-ms-request-id").map(str::to_owned);
                let error = about.failed(Fault::Malformed, "").answered(*status, code, body);
                let error = error.with_ids(request_id, client_request_id.clone());
                // The crate's own words about a refusal may quote the signature.
                if (200..=299).contains(status) { error.caused_by(failed) } else { error }
            }
        }
    }
}

/// The code of a refusal. Old versions of the service have it in the body alone.
fn code(status: u16, headers: &Headers, body: &[u8]) -> String {
    let header = text(headers, "x-ms-error-code").map(str::to_owned);
    let code = header.or_else(|| element(body, "Code").filter(|_| status >= 400));
    code.unwrap_or_default()
}

/// The value of a header.
pub(super) fn text<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.get_optional_str(&HeaderName::from(name.to_owned()))
}

/// The crate's way to the network, for one sending.
#[derive(Debug)]
struct Watch {
    transport: Transport,
    /// The account's own host. Nothing is sent anywhere else.
    origin: String,
    seen: Mutex<Option<Seen>>,
}

impl Watch {
    fn note(&self, seen: Seen) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }

    fn take(&self) -> Option<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[async_trait::async_trait]
impl HttpClient for Watch {
    async fn execute_request(&self, request: &azure_core::http::Request) -> azure_core::Result<AsyncRawResponse> {
        if origin(request.url()) != self.origin {
            return Err(Error::with_message(ErrorKind::Other, "the request would leave the host of the account"));
        }
        let client_request_id = text(request.headers(), "x-ms-client-request-id").map(str::to_owned);
        let answer = match self.transport.execute_request(request).await {
            Ok(answer) => answer,
            Err(error) => {
                if let Some(error) = error.downcast_ref::<TransportError>() {
                    self.note(Seen::Failed { error: error.clone(), client_request_id });
                }
                return Err(error);
            }
        };
        let (status, headers, body) = answer.deconstruct();
        let body: Bytes = body.collect().await?;
        self.note(Seen::Answered {
            status: u16::from(status),
            code: code(u16::from(status), &headers, &body),
            headers: headers.clone(),
            body: body.clone(),
            client_request_id,
        });
        Ok(AsyncRawResponse::from_bytes(status, headers, body))
    }
}
