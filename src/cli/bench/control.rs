//! The emulator's control interface: phases, their counters and lower bounds, and when operations ended.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use lazuli_azure::transport::{Routes, Tls, Transport};
use serde_json::{Value, json};
use url::Url;

use super::processes::AnyError;

/// A client of the control interface of one emulator.
#[derive(Debug, Clone)]
pub(super) struct Control {
    transport: Transport,
    base: Url,
}

/// A phase that has begun, and how this process's clock compares with the emulator's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    /// The emulator's number of it.
    pub(super) number: u64,
    at: Instant,
    started: Duration,
}

impl Begun {
    /// A moment on the emulator's clock, as the time since its start. Right to half the round trip of the request that
    /// began the phase: about a millisecond.
    pub(super) fn on_emulator(&self, moment: Instant) -> Duration {
        self.started + moment.saturating_duration_since(self.at)
    }
}

impl Control {
    pub(super) fn new(base: Url) -> Result<Self, AnyError> {
        Ok(Self { transport: Transport::new(Routes::none(), &Tls::default())?, base })
    }

    /// Begins a phase. No bucket is filled: the phase has what the one before it has left.
    pub(super) async fn begin(&self, name: &str) -> Result<Begun, AnyError> {
        let sent = Instant::now();
        let begun = self.call(Method::POST, "/_emulator/phases", json!({ "name": name }).to_string()).await?;
        let at = sent + sent.elapsed() / 2;
        let field = |name: &str| begun[name].as_u64().ok_or_else(|| format!("the emulator tells no {name} of a phase"));
        Ok(Begun { number: field("number")?, at, started: Duration::from_millis(field("startedMs")?) })
    }

    /// All phases.
    pub(super) async fn phases(&self) -> Result<Vec<Value>, AnyError> {
        list(self.read("/_emulator/phases").await?)
    }

    /// The operations that were accepted in a phase.
    pub(super) async fn operations(&self, phase: u64) -> Result<Vec<Value>, AnyError> {
        list(self.read(&format!("/_emulator/phases/{phase}/operations")).await?)
    }

    /// The newest calls.
    pub(super) async fn calls(&self) -> Result<Vec<Value>, AnyError> {
        list(self.read("/_emulator/calls").await?)
    }

    /// How fast all phases could have been, one after the other, in seconds.
    pub(super) async fn lower_bound(&self) -> Result<f64, AnyError> {
        Ok(seconds(&self.read("/_emulator/lower-bound").await?["total"]))
    }

    async fn read(&self, path: &str) -> Result<Value, AnyError> {
        self.call(Method::GET, path, String::new()).await
    }

    async fn call(&self, method: Method, path: &str, body: String) -> Result<Value, AnyError> {
        let json = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let answer = self.send(method, path, json, body).await?;
        if !answer.status().is_success() {
            return Err(format!("the emulator answers {} to {path}", answer.status()).into());
        }
        Ok(serde_json::from_slice(answer.body()).unwrap_or(Value::Null))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: String,
    ) -> Result<Response<Bytes>, AnyError> {
        Ok(self.transport.send(method, &self.base.join(path)?, headers, Bytes::from(body)).await?)
    }

    /// A principal of Azure other than the one under test: it has buckets of its own.
    pub(super) async fn sign_in(&self, tenant: &str, client: &str, secret: &str) -> Result<Principal, AnyError> {
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "client_credentials")
            .append_pair("client_id", client)
            .append_pair("client_secret", secret)
            .append_pair("scope", "https://management.azure.com/.default")
            .finish();
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let answer = self.send(Method::POST, &format!("/{tenant}/oauth2/v2.0/token"), headers, form).await?;
        let body: Value = serde_json::from_slice(answer.body())?;
        let token = body["access_token"].as_str().ok_or_else(|| format!("no token for {client}: {body}"))?;
        Ok(Principal { control: self.clone(), authorization: HeaderValue::try_from(format!("Bearer {token}"))? })
    }
}

/// A client that is signed in to Azure.
#[derive(Debug)]
pub(super) struct Principal {
    control: Control,
    authorization: HeaderValue,
}

/// How often what is made or deleted is looked for.
const LOOK: Duration = Duration::from_secs(1);

impl Principal {
    /// Deletes a resource and waits until it is gone.
    pub(super) async fn delete(&self, id: &str, api_version: &str) -> Result<(), AnyError> {
        let path = format!("{id}?api-version={api_version}");
        let status = self.send(Method::DELETE, &path, String::new()).await?.status().as_u16();
        if status != 202 {
            return Err(format!("Azure answers {status} to the deletion of {id}").into());
        }
        loop {
            tokio::time::sleep(LOOK).await;
            match self.send(Method::GET, &path, String::new()).await?.status().as_u16() {
                404 => return Ok(()),
                200 | 429 => {}
                status => return Err(format!("Azure answers {status} to a read of {id}").into()),
            }
        }
    }

    /// Makes a resource and waits until it is there.
    pub(super) async fn make(&self, id: &str, api_version: &str, body: &Value) -> Result<(), AnyError> {
        let path = format!("{id}?api-version={api_version}");
        let made = self.send(Method::PUT, &path, body.to_string()).await?;
        if !made.status().is_success() {
            return Err(format!("Azure answers {} to the creation of {id}", made.status()).into());
        }
        loop {
            let read = self.send(Method::GET, &path, String::new()).await?;
            let body: Value = serde_json::from_slice(read.body()).unwrap_or(Value::Null);
            if body["properties"]["provisioningState"] == "Succeeded" {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn send(&self, method: Method, path: &str, body: String) -> Result<Response<Bytes>, AnyError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, self.authorization.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.control.send(method, path, headers, body).await
    }
}

fn list(value: Value) -> Result<Vec<Value>, AnyError> {
    match value {
        Value::Array(list) => Ok(list),
        _ => Err("the emulator answers no list".into()),
    }
}

/// Reads a duration as the emulator writes it: whole seconds and nanoseconds.
pub(super) fn seconds(value: &Value) -> f64 {
    value["secs"].as_f64().unwrap_or_default() + value["nanos"].as_f64().unwrap_or_default() / 1e9
}
