//! An operation that Azure carries out after its first answer.
//!
//! ```text
//!  first answer ──┬─ Azure-AsyncOperation ──> Status ──┬─ Succeeded ──> result: in the answer, at Location, or read
//!                 ├─ Location ──────────────> Location ┤  Failed, Canceled ──> error (HTTP 200 all the same)
//!                 ├─ not yet Succeeded, ────> Resource ┘  refused ──> Resource
//!                 │  or an empty 202
//!                 └─ 200, 201, 204 ─────────> done
//! ```
//!
//! The read broker says when to look at an operation whose end a list may show; any other is polled by its own
//! expectation ([`lazuli_quota::poll`]).
//!
//! A question that fails does not fail the operation: Azure goes on with it. Only at `Location` an error is the operation's
//! own end, unless it says that there is no such operation or that we may not read it. A status that is not known any more, or
//! that we may not read (source: the right to change a resource does not bring the right to track its operations,
//! which are resources of the subscription), leaves the resource itself to tell. Only Azure's word ends the operation;
//! what makes no sense, or is refused there too, ends it with [`Fault::OutcomeUnknown`], never with the fault of the
//! question. The caller's patience ends the waiting, which may be taken up again.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use lazuli_model::{
    ArmId, ProvisioningState,
    fault::{Effect, Fault},
};
use lazuli_quota::{
    permit::Priority,
    poll::{self, Expectation},
    read::Target,
};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::{Answer, Arm, Call, Write, date, retry_after};
use crate::{
    broker::{Begun, Broker, Look, ResourceType, Watch},
    error::{ArmError, AzureError, Failure, Verb},
    permits::Rank,
    until::Until,
};

/// A write that was accepted, and what has become of it so far.
#[derive(Debug)]
pub struct Operation {
    arm: Arm,
    verb: Verb,
    kind: poll::Kind,
    priority: Priority,
    /// What was written to, as a URL.
    subject: Url,
    state: State,
    /// Where the result is when the status does not hold it.
    location: Option<Url>,
    since: Instant,
    /// The `Date` of the first answer, in seconds since 1970.
    accepted: Option<i64>,
    /// When it was last looked at, since it was accepted.
    last: Option<Duration>,
    expectation: Expectation,
    sample: bool,
    watching: Option<Watching>,
    failures: u32,
    /// Whether Azure answered 201: the write has made what it names.
    made: bool,
    /// When the read was sent that has shown the result.
    shown_at: Option<Instant>,
}

/// Where lists may show the end of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Watching {
    pub(crate) broker: Broker,
    pub(crate) resource_type: &'static ResourceType,
    pub(crate) api_version: &'static str,
    pub(crate) resource: ArmId,
    pub(crate) target: Target,
}

/// Who says when to look at it.
enum Looks {
    /// The broker, for all operations on resources of its type.
    Shared(Watch),
    /// The operation's own expectation.
    Own { not_before: Option<Instant> },
}

#[derive(Debug, Clone)]
enum State {
    /// The status of the operation is asked for.
    Status(Url),
    /// The result is asked for until it is there.
    Location(Url),
    /// The resource is read until it is at rest, or gone when it is to be deleted.
    Resource(Url),
    /// It succeeded; the result is still to be read.
    Unread(Url),
    Done(Result<Option<Value>, ArmError>),
}

/// How long what is to be deleted may be at rest before its deletion counts as over.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// The longest pause after questions that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Operation {
    /// Reads the first answer.
    pub(super) fn begin(arm: Arm, write: &Write, url: &Url, answer: &Answer) -> Result<Self, ArmError> {
        let (expectation, sample) = arm.expectation(write.kind, retry_after(&answer.headers));
        let mut operation = Self {
            arm,
            verb: write.verb,
            kind: write.kind,
            priority: write.priority,
            subject: url.clone(),
            state: State::Done(Ok(None)),
            location: None,
            since: Instant::now(),
            accepted: date(&answer.headers),
            last: None,
            expectation,
            sample,
            watching: None,
            failures: 0,
            made: answer.status == 201,
            shown_at: None,
        };
        let body = answer.json().map_err(|error| operation.ended("the answer is no JSON", answer).caused_by(error))?;
        let follow = |name: &str| -> Result<Option<Url>, ArmError> {
            let link = answer.header(name).map(|link| operation.arm.follow(url, link)).transpose();
            link.map_err(|foreign| {
                let message = format!("{name} leads to a place that is not followed");
                operation.ended(message, answer).caused_by(foreign).into()
            })
        };
        let (status, location) = (follow("azure-asyncoperation")?, follow("location")?);
        let resource = operation.resource();
        operation.state = match (status, &location) {
            _ if answer.status == 204 => State::Done(Ok(None)),
            (Some(status), _) => State::Status(status),
            (None, Some(location)) if answer.status == 202 => State::Location(location.clone()),
            _ => match provisioning_state(body.as_ref()) {
                Some(ProvisioningState::InProgress) => State::Resource(resource),
                Some(ProvisioningState::Failed | ProvisioningState::Canceled) => {
                    State::Done(Err(operation.failed(body.as_ref(), answer).into()))
                }
                None if answer.status == 202 => State::Resource(resource),
                Some(ProvisioningState::Succeeded) | None => State::Done(Ok(body)),
            },
        };
        operation.location = location;
        Ok(operation)
    }

    /// Whether Azure has answered 201: what was written did not exist before.
    pub fn has_made(&self) -> bool {
        self.made
    }

    /// An operation that has nothing to do, with its result.
    pub(crate) fn finished(arm: Arm, verb: Verb, path: &str, kind: poll::Kind) -> Self {
        let mut subject = arm.0.endpoint.clone();
        subject.set_path(path);
        let (expectation, sample) = arm.expectation(kind, None);
        Self {
            arm,
            verb,
            kind,
            priority: Priority::Create,
            subject,
            state: State::Done(Ok(None)),
            location: None,
            since: Instant::now(),
            accepted: None,
            last: None,
            expectation,
            sample,
            watching: None,
            failures: 0,
            made: false,
            shown_at: None,
        }
    }

    /// When its end is expected.
    pub fn expectation(&self) -> Expectation {
        self.expectation
    }

    /// When Azure accepted the write, by its own clock, in seconds since 1970.
    pub(crate) fn accepted_by_azures_clock(&self) -> Option<i64> {
        self.accepted
    }

    /// Lists may show its end.
    pub(crate) fn watched(mut self, watching: Watching) -> Self {
        self.watching = Some(watching);
        self
    }

    /// Waits for the end and for the result: the resource after PUT and PATCH, what the action gives after POST,
    /// nothing after DELETE. When the caller's time is over the operation goes on, and it may be waited for again.
    ///
    /// # Errors
    /// The operation's own failure, which comes with HTTP 200; [`Fault::Deadline`] when the time is over.
    pub async fn wait(&mut self, until: &Until) -> Result<Option<Value>, ArmError> {
        self.settle(until).await?;
        if let State::Unread(url) = &self.state {
            let priority = self.priority.min(Priority::Poll);
            let answer = self.arm.read(url, priority, &until.after_sending()).await;
            let answer = answer.map_err(|error| self.unread(&error))?;
            let body = answer.json().map_err(|error| self.ended("the result is no JSON", &answer).caused_by(error))?;
            self.state = State::Done(Ok(body));
        }
        match &self.state {
            State::Done(result) => result.clone(),
            _ => Ok(None),
        }
    }

    /// Waits for the end only: as [`Operation::wait`] without the request that reads the result.
    ///
    /// # Errors
    /// As [`Operation::wait`].
    pub async fn settle(&mut self, until: &Until) -> Result<(), ArmError> {
        let until = &until.after_sending();
        let mut looks = None;
        loop {
            let url = match &self.state {
                State::Done(Ok(_)) | State::Unread(_) => return Ok(()),
                State::Done(Err(error)) => return Err(error.clone()),
                State::Status(url) | State::Location(url) | State::Resource(url) => url.clone(),
            };
            let looks = looks.get_or_insert_with(|| self.looks());
            let call = async {
                if let Look::Ended(value, sent_at) = looks.next(self.since, self.expectation, self.last).await {
                    return Seen::Listed(value, sent_at);
                }
                self.arm.0.metrics.poll(self.kind);
                let rank = Rank::new(self.priority.min(Priority::Poll));
                Seen::Polled(self.arm.call(&Call::read(&url, rank, 1), None, until).await)
            };
            let seen = match until.run(call).await {
                Ok(seen) => seen,
                Err(why) => {
                    let message = format!("{}; the operation goes on", why.as_str());
                    return Err(self.ours(Fault::Deadline, message).into());
                }
            };
            let mut pause = None;
            match seen {
                Seen::Listed(value, sent_at) => {
                    self.arm.0.metrics.operation(self.kind, true, self.since.elapsed());
                    self.shown_at = Some(sent_at);
                    self.state = State::Done(Ok(Some(Value::clone(&value))));
                }
                Seen::Polled(Ok(answer)) => {
                    self.failures = 0;
                    self.read(&url, &answer);
                }
                Seen::Polled(Err(error)) => pause = self.not_answered(error)?,
            }
            self.last = Some(self.since.elapsed());
            looks.polled(pause.map(|pause| Instant::now() + pause));
        }
    }

    /// The resource, when a read of it, single or in a list, has shown the end, and when that was sent. `None` when the
    /// operation itself has told its end: then the resource is to be read.
    pub fn shown(&self) -> Option<(&Value, Instant)> {
        let State::Done(Ok(Some(body))) = &self.state else { return None };
        Some((body, self.shown_at?))
    }

    fn looks(&self) -> Looks {
        match self.watching.clone() {
            Some(Watching { broker, resource_type, api_version, resource, target }) => {
                let begun = Begun {
                    accepted_at: self.since,
                    expectation: self.expectation,
                    sample: self.sample,
                    last: self.last,
                };
                Looks::Shared(broker.watch(resource_type, api_version, &resource, target, begun))
            }
            None => Looks::Own { not_before: None },
        }
    }

    /// Reads an answer to the question how it is going.
    fn read(&mut self, url: &Url, answer: &Answer) {
        let body = match answer.json() {
            Ok(body) => body,
            Err(error) => {
                let failure = self.ended("the status is no JSON", answer);
                self.state = State::Done(Err(failure.caused_by(error).into()));
                return;
            }
        };
        let body = body.as_ref();
        let next = match &self.state {
            State::Status(_) => {
                let word = body.and_then(|body| body.get("status")).and_then(Value::as_str);
                match word.map(ProvisioningState::from_azure) {
                    None if answer.status == 202 => None,
                    None => {
                        let message = "the status of the operation has no status";
                        Some(State::Done(Err(self.ended(message, answer).into())))
                    }
                    Some(ProvisioningState::InProgress) => None,
                    Some(ProvisioningState::Succeeded) => {
                        self.succeeded(body);
                        Some(self.result(body))
                    }
                    Some(ProvisioningState::Failed | ProvisioningState::Canceled) => {
                        Some(State::Done(Err(self.failed(body, answer).into())))
                    }
                }
            }
            // It may name another place to ask next (source: the resource provider contract of the resource manager);
            // one that is not followed leaves the one we have.
            State::Location(_) if answer.status == 202 => {
                let moved = answer.header("location").and_then(|link| self.arm.follow(url, link).ok());
                moved.map(State::Location)
            }
            State::Location(_) => {
                // Some providers answer here as at the status.
                let word = body.filter(|body| body.get("id").is_none()).and_then(|body| body.get("status"));
                match word.and_then(Value::as_str).map(ProvisioningState::from_azure) {
                    Some(ProvisioningState::InProgress) => None,
                    Some(ProvisioningState::Failed | ProvisioningState::Canceled) => {
                        Some(State::Done(Err(self.failed(body, answer).into())))
                    }
                    Some(ProvisioningState::Succeeded) => {
                        self.succeeded(body);
                        Some(State::Done(Ok(body.and_then(output).cloned())))
                    }
                    None => {
                        self.succeeded(None);
                        Some(match self.verb {
                            Verb::Delete => State::Done(Ok(None)),
                            Verb::Put | Verb::Patch if body.is_none() => State::Unread(self.subject.clone()),
                            _ => State::Done(Ok(body.cloned())),
                        })
                    }
                }
            }
            State::Resource(_) => match provisioning_state(body) {
                Some(ProvisioningState::InProgress) => None,
                Some(ProvisioningState::Failed | ProvisioningState::Canceled) => {
                    Some(State::Done(Err(self.failed(body, answer).into())))
                }
                // What is to be deleted is there until it is not; one that rests for long will stay.
                Some(ProvisioningState::Succeeded) | None if self.verb == Verb::Delete => {
                    let at_rest_for_long = self.since.elapsed() > (self.kind.prior() * 4).max(LONGEST_REST);
                    at_rest_for_long.then(|| {
                        let message = "the deletion was accepted, and what was to be deleted is there and at rest";
                        State::Done(Err(self.ended(message, answer).into()))
                    })
                }
                Some(ProvisioningState::Succeeded) | None => {
                    self.succeeded(None);
                    let body = body.filter(|_| *url == self.subject);
                    self.shown_at = Some(answer.sent_at);
                    Some(State::Done(Ok(body.cloned())))
                }
            },
            State::Unread(_) | State::Done(_) => None,
        };
        if let Some(next) = next {
            self.state = next;
        }
    }

    /// What to do when the poll was not answered: for how long to pause, if the next look is not to come in its time.
    fn not_answered(&mut self, error: ArmError) -> Result<Option<Duration>, ArmError> {
        let pause = match (&error.fault, &self.state) {
            (Fault::NotFound, State::Resource(_)) if self.verb == Verb::Delete => {
                self.succeeded(None);
                self.state = State::Done(Ok(None));
                return Ok(None);
            }
            (Fault::Deadline, _) => {
                return Err(self
                    .ours(Fault::Deadline, "the time is over; the operation goes on")
                    .caused_by(error)
                    .into());
            }
            (Fault::Throttled { retry_after }, _) => *retry_after,
            (Fault::Unavailable, _) => None,
            // There the operation's own failure comes with its status. One of those that say nothing of it leaves the
            // resource to tell.
            (_, State::Location(_))
                if error.status.is_some_and(|status| matches!(status, 400 | 402 | 405..=409 | 411..=428)) =>
            {
                self.arm.0.metrics.operation(self.kind, false, self.since.elapsed());
                self.state = State::Done(Err(error.of_write(self.verb, self.subject.path())));
                return Ok(None);
            }
            (_, State::Status(_) | State::Location(_))
                if error.status.is_some_and(|status| (400..500).contains(&status)) =>
            {
                // Azure has forgotten the operation, or does not show it to us; the resource knows how it ended.
                self.state = State::Resource(self.resource());
                return Ok(None);
            }
            _ => return Err(self.unread(&error)),
        };
        self.failures += 1;
        let pause = pause.unwrap_or_else(|| Duration::from_secs(1 << self.failures.min(6)).min(LONGEST_PAUSE) / 2);
        Ok(Some(pause))
    }

    /// Takes note of how long it took, by Azure's clock if it tells. That is never longer than we have waited: what
    /// says so is no time (source: year 1 is what services send for a time that was never set).
    fn succeeded(&self, status: Option<&Value>) {
        let moment = |key: &str| {
            let text = status?.get(key)?.as_str()?;
            text.parse::<Timestamp>().ok()
        };
        let took = moment("startTime")
            .zip(moment("endTime"))
            .and_then(|(start, end)| Duration::try_from(end.duration_since(start)).ok())
            .map_or_else(|| poll::took(self.since.elapsed(), self.last), |took| took.min(self.since.elapsed()));
        self.arm.durations().entry(self.kind).or_default().record(took);
        self.arm.0.metrics.operation(self.kind, true, took);
    }

    /// Where the result is.
    fn result(&self, status: Option<&Value>) -> State {
        match (self.verb, status.and_then(output), &self.location) {
            (Verb::Delete, _, _) => State::Done(Ok(None)),
            // Only a whole resource will do: an output without an id is something else.
            (Verb::Put | Verb::Patch, Some(output), _) if output.get("id").is_some() => {
                State::Done(Ok(Some(output.clone())))
            }
            (Verb::Put | Verb::Patch, _, _) => State::Unread(self.subject.clone()),
            (_, Some(output), _) => State::Done(Ok(Some(output.clone()))),
            (_, None, Some(location)) => State::Unread(location.clone()),
            (_, None, None) => State::Done(Ok(None)),
        }
    }

    /// What was written to: without the action, for a POST.
    fn resource(&self) -> Url {
        let mut url = self.subject.clone();
        if self.verb == Verb::Post
            && let Ok(mut segments) = url.path_segments_mut()
        {
            segments.pop();
        }
        url
    }

    fn failed(&self, body: Option<&Value>, answer: &Answer) -> Failure {
        let word = |body: &Value| {
            let state = body.pointer("/properties/provisioningState").or_else(|| body.get("status"));
            state.and_then(Value::as_str).unwrap_or("Failed").to_owned()
        };
        let error = match body {
            Some(body) if body.get("error").is_some_and(Value::is_object) => AzureError::read(body),
            Some(body) => AzureError::code(word(body)),
            None => AzureError::code("Failed".to_owned()),
        };
        self.arm.0.metrics.operation(self.kind, false, self.since.elapsed());
        // Azure may have done a part of it.
        let mut failure = Failure::answered(self.verb, self.subject.path(), 200, error, None, Effect::Possible)
            .with_ids(&answer.headers)
            .with_client_request_id(&answer.client_request_id);
        let of_disks = matches!(self.kind, poll::Kind::VmAttach | poll::Kind::VmDetach);
        if of_disks && matches!(self.state, State::Resource(_)) {
            // A VM tells that its write failed and not why: it may be one of the disks.
            failure.fault = Fault::Unclear;
        }
        failure
    }

    /// The write was accepted, and what Azure says of it makes no sense.
    fn ended(&self, message: impl Into<String>, answer: &Answer) -> Failure {
        self.ours(Fault::OutcomeUnknown, message)
            .with_ids(&answer.headers)
            .with_client_request_id(&answer.client_request_id)
    }

    fn ours(&self, fault: Fault, message: impl Into<String>) -> Failure {
        Failure::ours(fault, Effect::Possible, self.verb, self.subject.path(), message)
    }

    /// The write was accepted, and how it ended could not be read.
    fn unread(&self, error: &ArmError) -> ArmError {
        let message = "the write was accepted, but how it ended could not be read";
        self.ours(Fault::OutcomeUnknown, message).caused_by(error.clone()).into()
    }
}

/// What a look showed.
enum Seen {
    Listed(Arc<Value>, Instant),
    Polled(Result<Answer, ArmError>),
}

impl Looks {
    async fn next(&mut self, since: Instant, expectation: Expectation, last: Option<Duration>) -> Look {
        match self {
            Self::Shared(watch) => watch.next().await,
            Self::Own { not_before } => {
                let due = since + expectation.next_alone(last);
                tokio::time::sleep_until(not_before.map_or(due, |not_before| due.max(not_before))).await;
                Look::Poll
            }
        }
    }

    fn polled(&mut self, pause_until: Option<Instant>) {
        match self {
            Self::Shared(watch) => watch.polled(pause_until),
            Self::Own { not_before } => *not_before = pause_until,
        }
    }
}

fn output(status: &Value) -> Option<&Value> {
    status.pointer("/properties/output").filter(|output| output.is_object())
}

fn provisioning_state(body: Option<&Value>) -> Option<ProvisioningState> {
    let word = body?.pointer("/properties/provisioningState")?.as_str()?;
    Some(ProvisioningState::from_azure(word))
}
