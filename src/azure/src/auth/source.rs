//! One token from the authority, by whatever credential there is.
//!
//! The exchange itself is azure_identity's; [`Observer`] stands between it and the network. It answers three needs:
//! the SDK's own retries are off (a refused request ends there and then), the authority's own words are kept, and a
//! token lives as long as the authority said from now on, which holds on a machine whose clock is wrong and under a
//! simulated clock. It lives [`LONGEST_LIFETIME`] at most: the SDK adds the authority's number to a date unchecked.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use azure_core::{
    cloud::{CloudConfiguration, CustomConfiguration},
    credentials::TokenCredential,
    error::ErrorKind,
    http::{AsyncRawResponse, ClientMethodOptions, ClientOptions, HttpClient, RetryOptions},
};
use azure_identity::{
    ClientAssertion, ClientAssertionCredential, ClientAssertionCredentialOptions, ClientSecretCredential,
    ClientSecretCredentialOptions, ManagedIdentityCredential, ManagedIdentityCredentialOptions, UserAssignedId,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::{
    AuthError, Credential, LONGEST_LIFETIME, ManagedIdentity, Secret,
    certificate::{self, Claims, Thumbprint},
};
use crate::transport::{Transport, TransportError};

/// The tenant that is none: Active Directory Federation Services on Azure Stack Hub.
pub(super) const ADFS: &str = "adfs";

/// A token and how long it is good for from now on.
pub(super) struct Issued {
    pub(super) token: Secret,
    pub(super) lifetime: Duration,
}

/// What a token without a stated lifetime is good for.
const UNSTATED_LIFETIME: Duration = Duration::from_secs(60);

/// Asks the authority once.
pub(super) async fn issue(transport: &Transport, credential: &Credential, audience: &str) -> Result<Issued, AuthError> {
    let observer = Arc::new(Observer { transport: transport.clone(), seen: Mutex::new(None) });
    if let Credential::ClientSecret { tenant_id, client_id, secret, authority } = credential
        && is_adfs(tenant_id)
    {
        let proof = [("client_secret", secret.expose())];
        return adfs(transport, client_id, &proof, authority, audience).await;
    }
    // The SDK's own workload identity reads the file in a thread and keeps it for ten minutes; this reads it for each
    // exchange, for kubelet replaces it.
    let assertion = match credential {
        Credential::FederatedToken { token_file, .. } => {
            let text = tokio::fs::read_to_string(token_file).await;
            Secret::new(text.map_err(|error| AuthError::TokenFile(Arc::new(error)))?.trim())
        }
        Credential::ClientCertificate { tenant_id, client_id, path, password, authority } => {
            let assertion = signed(tenant_id, client_id, path.clone(), password.clone(), authority).await?;
            if is_adfs(tenant_id) {
                let proof = [("client_assertion_type", JWT_BEARER), ("client_assertion", assertion.expose())];
                return adfs(transport, client_id, &proof, authority, audience).await;
            }
            assertion
        }
        Credential::ManagedIdentity(_) | Credential::ClientSecret { .. } => Secret::new(""),
    };
    let source = sdk_credential(&observer, credential, assertion)
        .map_err(|error| observer.explain(error, AuthError::unusable))?;
    // An audience that ends in a slash gets a second one: the authority takes what stands before the last as the
    // audience, and the resource manager compares it to the letter (source: the documentation of MSAL).
    let scope = format!("{audience}/.default");
    let token =
        source.get_token(&[&scope], None).await.map_err(|error| observer.explain(error, AuthError::malformed))?;
    let lifetime = match observer.take() {
        Some(Seen::Token { expires_in }) => expires_in,
        _ => None,
    };
    Ok(Issued { token: Secret::new(token.token.secret()), lifetime: lifetime.unwrap_or(UNSTATED_LIFETIME) })
}

fn is_adfs(tenant_id: &str) -> bool {
    tenant_id.eq_ignore_ascii_case(ADFS)
}

/// Where a tenant's tokens are asked for.
fn token_url(authority: &Url, tenant_id: &str) -> Url {
    let base = authority.path().trim_end_matches('/');
    let mut url = authority.clone();
    match is_adfs(tenant_id) {
        true => url.set_path(&format!("{}/{ADFS}/oauth2/token", base.trim_end_matches("/adfs"))),
        // As azure_identity makes it.
        false => url.set_path(&format!("{base}/{tenant_id}/oauth2/v2.0/token")),
    }
    url
}

/// An assertion that the certificate in a file signs. Reading the file and its key blocks.
async fn signed(
    tenant_id: &str,
    client_id: &str,
    path: PathBuf,
    password: Option<Secret>,
    authority: &Url,
) -> Result<Secret, AuthError> {
    let (audience, client_id) = (token_url(authority, tenant_id), client_id.to_owned());
    let thumbprint = if is_adfs(tenant_id) { Thumbprint::Sha1 } else { Thumbprint::Sha256 };
    let signing = tokio::task::spawn_blocking(move || {
        let (now, id) = (SystemTime::now(), uuid::Uuid::new_v4());
        let claims = Claims { client_id: &client_id, audience: audience.as_str(), thumbprint, now, id };
        certificate::assertion(&path, password.as_ref(), &claims)
            .map_err(|source| AuthError::Certificate { path, source: Arc::new(source) })
    });
    signing.await.map_err(|panic| AuthError::unusable(Arc::new(panic)))?
}

fn sdk_credential(
    observer: &Arc<Observer>,
    credential: &Credential,
    assertion: Secret,
) -> azure_core::Result<Arc<dyn TokenCredential>> {
    let options = |authority: Option<&Url>| ClientOptions {
        retry: RetryOptions::none(),
        transport: Some(azure_core::http::Transport::new(observer.clone())),
        cloud: authority.map(|authority| {
            let mut cloud = CustomConfiguration::default();
            cloud.authority_host = authority.to_string();
            Arc::new(CloudConfiguration::Custom(cloud))
        }),
        ..ClientOptions::default()
    };
    Ok(match credential {
        Credential::FederatedToken { tenant_id, client_id, token_file: _, authority }
        | Credential::ClientCertificate { tenant_id, client_id, path: _, password: _, authority } => {
            ClientAssertionCredential::new(
                tenant_id.clone(),
                client_id.clone(),
                Assertion(assertion),
                Some(ClientAssertionCredentialOptions { client_options: options(Some(authority)) }),
            )?
        }
        Credential::ManagedIdentity(identity) => {
            ManagedIdentityCredential::new(Some(ManagedIdentityCredentialOptions {
                user_assigned_id: match identity {
                    ManagedIdentity::SystemAssigned => None,
                    ManagedIdentity::ClientId(id) => Some(UserAssignedId::ClientId(id.clone())),
                    ManagedIdentity::ResourceId(id) => Some(UserAssignedId::ResourceId(id.clone())),
                },
                client_options: options(None),
            }))?
        }
        Credential::ClientSecret { tenant_id, client_id, secret, authority } => ClientSecretCredential::new(
            tenant_id,
            client_id.clone(),
            secret.expose().to_owned().into(),
            Some(ClientSecretCredentialOptions { client_options: options(Some(authority)) }),
        )?,
    })
}

/// The contents of a federated token file, or what a client certificate has signed.
#[derive(Debug)]
struct Assertion(Secret);

#[async_trait::async_trait]
impl ClientAssertion for Assertion {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core::Result<String> {
        Ok(self.0.expose().to_owned())
    }
}

/// The kind of assertion that a JWT is. Source: RFC 7523, 2.2.
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// ADFS speaks the first version of the protocol: a resource, not a scope (source: the go-autorest libraries). `proof` are
/// the fields with the secret or the assertion.
async fn adfs(
    transport: &Transport,
    client_id: &str,
    proof: &[(&str, &str)],
    authority: &Url,
    audience: &str,
) -> Result<Issued, AuthError> {
    let url = token_url(authority, ADFS);
    let body = form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "client_credentials")
        .append_pair("client_id", client_id)
        .extend_pairs(proof)
        .append_pair("resource", audience)
        .finish();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    let answer = transport.send(Method::POST, &url, headers, body.into()).await?;
    if !answer.status().is_success() {
        return Err(refusal(
            transport.place(&url),
            answer.status().as_u16(),
            answer.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()),
            answer.body(),
        ));
    }
    let value: Value = serde_json::from_slice(answer.body()).map_err(|error| AuthError::malformed(Arc::new(error)))?;
    let token = value
        .get("access_token")
        .and_then(Value::as_str)
        .ok_or_else(|| AuthError::malformed(Arc::from(Box::from("the answer holds no access_token"))))?;
    Ok(Issued { token: Secret::new(token), lifetime: lifetime(&value).unwrap_or(UNSTATED_LIFETIME) })
}

/// The lifetime that an answer states, at most [`LONGEST_LIFETIME`]. Older endpoints write it as a text.
fn lifetime(answer: &Value) -> Option<Duration> {
    let stated = answer.get("expires_in")?;
    let seconds = stated.as_u64().or_else(|| stated.as_str()?.parse().ok())?;
    Some(Duration::from_secs(seconds).min(LONGEST_LIFETIME))
}

/// The answer with a lifetime that the SDK's date arithmetic can take.
fn with_bounded_lifetime(mut answer: Value) -> Value {
    for key in ["expires_in", "ext_expires_in"] {
        if let Some(stated) = answer.get_mut(key)
            && stated.as_f64().is_some_and(|seconds| seconds > LONGEST_LIFETIME.as_secs_f64())
        {
            *stated = LONGEST_LIFETIME.as_secs().into();
        }
    }
    answer
}

/// The authority's no.
fn refusal(at: String, status: u16, retry_after: Option<&str>, body: &[u8]) -> AuthError {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let words: Vec<String> = [text("error"), text("error_description")]
        .into_iter()
        .flatten()
        .map(|words| words.chars().take(600).collect())
        .collect();
    AuthError::Refused {
        at,
        status,
        text: if words.is_empty() { "no reason given".to_owned() } else { words.join(": ") },
        retry_after: retry_after.and_then(|text| text.parse().ok()).map(Duration::from_secs),
    }
}

/// What passed between the SDK and the authority.
#[derive(Debug)]
enum Seen {
    Token { expires_in: Option<Duration> },
    Refused(AuthError),
    Transport(TransportError),
}

/// The SDK's way to the network: looks at what passes, and ends a failed exchange at once.
#[derive(Debug)]
struct Observer {
    transport: Transport,
    seen: Mutex<Option<Seen>>,
}

impl Observer {
    fn note(&self, seen: Seen) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }

    fn take(&self) -> Option<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Prefers what was seen to what the SDK made of it.
    fn explain(
        &self,
        error: azure_core::Error,
        otherwise: fn(Arc<dyn std::error::Error + Send + Sync>) -> AuthError,
    ) -> AuthError {
        match self.take() {
            Some(Seen::Refused(error)) => error,
            Some(Seen::Transport(error)) => error.into(),
            Some(Seen::Token { .. }) | None => otherwise(Arc::new(error)),
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for Observer {
    async fn execute_request(&self, request: &azure_core::http::Request) -> azure_core::Result<AsyncRawResponse> {
        // This kind of error is one that the SDK's retry policies, fixed for managed identities, do not repeat.
        let stop = || azure_core::Error::with_message(ErrorKind::Credential, "no token");
        let answer = match self.transport.execute_request(request).await {
            Ok(answer) => answer,
            Err(error) => {
                match error.downcast_ref::<TransportError>() {
                    Some(transport) => self.note(Seen::Transport(transport.clone())),
                    None => self.note(Seen::Refused(AuthError::malformed(Arc::new(error)))),
                }
                return Err(stop());
            }
        };
        let (status, headers, body) = answer.deconstruct();
        let body: Bytes = body.collect().await?;
        if !status.is_success() {
            let retry_after = headers
                .iter()
                .find_map(|(name, value)| (name.as_str() == "retry-after").then(|| value.as_str().to_owned()));
            let at = self.transport.place(request.url());
            self.note(Seen::Refused(refusal(at, u16::from(status), retry_after.as_deref(), &body)));
            return Err(stop());
        }
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        let expires_in = lifetime(&value);
        self.note(Seen::Token { expires_in });
        let body = match expires_in {
            Some(LONGEST_LIFETIME) => Bytes::from(with_bounded_lifetime(value).to_string()),
            _ => body,
        };
        Ok(AsyncRawResponse::from_bytes(status, headers, body))
    }
}
