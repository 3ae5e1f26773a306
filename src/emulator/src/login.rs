//! The login plane: Microsoft Entra ID (and ADFS, for Azure Stack Hub) as far as programs need it.
//!
//! It owns the tokens of one emulator ([`Tokens`]) and the client-credentials grant with a secret or an
//! assertion. It never serves people: no consent, no codes, no refresh tokens.
//!
//! | path | what |
//! |---|---|
//! | `POST /{tenant}/oauth2/v2.0/token` | token by `scope=` (documented) |
//! | `POST /{tenant}/oauth2/token` | token by `resource=`, numbers as strings (documented) |
//! | `POST /adfs/oauth2/token` | the same for ADFS |
//! | `GET /common/discovery/instance` | what MSAL asks first (documented) |
//! | `GET /{tenant}/v2.0/.well-known/openid-configuration` | what it asks next (documented) |
//! | `GET /adfs/.well-known/openid-configuration` | the same for ADFS |
//! | `GET /{tenant}/discovery/v2.0/keys` | no keys: nothing here is signed with one |
//!
//! A tenant is named by its id, its domain, `common`, `organizations` or `adfs`. URLs in answers begin
//! with the address at which the caller reached the emulator: MSAL refuses an issuer on another host.
//!
//! A client assertion must be a well-formed JWT that has not expired. One of the client itself (issuer and subject are the
//! client) must be signed by a certificate that the scenario registers for it, and be for this authority. **Federated
//! assertions are believed:** their signature is not checked. Their issuer and subject are compared when the scenario lists
//! federated credentials for the client. Tokens are JWTs whose signature is a digest that anyone could make:
//! an emulator is no place for secrets.

mod certificate;
#[cfg(test)]
mod tests;
mod token;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, http::StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::request::Parts;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::endpoints;
use crate::scenario::{Client, Scenario, derived_id};

pub(crate) use certificate::der as certificate_der;
pub(crate) use token::{Subject, Tokens, Unusable};

/// How long a token lives. The service draws 60 to 90 minutes; the published examples show this.
pub(crate) const TOKEN_LIFETIME: Duration = Duration::from_secs(3_599);

/// The emulated wall clock.
pub(crate) type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What the login plane knows.
pub(crate) struct Directory {
    /// Tenant id.
    pub(crate) tenant_id: String,
    /// The tenant's domain.
    pub(crate) tenant_domain: String,
    /// Applications.
    pub(crate) clients: Vec<Client>,
    /// Where the emulator is reached by a caller that sends no `Host`; no slash at the end.
    pub(crate) url: String,
    /// Shared with all that checks tokens.
    pub(crate) tokens: Tokens,
    /// The clock.
    pub(crate) now: Now,
}

impl Directory {
    /// The directory of a scenario.
    pub(crate) fn new(scenario: &Scenario, url: &str, tokens: Tokens, now: Now) -> Self {
        Self {
            tenant_id: scenario.tenant_id.clone(),
            tenant_domain: scenario.tenant_domain.clone(),
            clients: scenario.clients.clone(),
            url: url.to_owned(),
            tokens,
            now,
        }
    }

    fn knows_tenant(&self, tenant: &str) -> bool {
        [self.tenant_id.as_str(), &self.tenant_domain, "common", "organizations"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(tenant))
    }
}

/// The routes of the login plane.
pub(crate) fn router(directory: Arc<Directory>) -> Router {
    Router::new()
        .route("/{tenant}/oauth2/v2.0/token", post(token_v2))
        .route("/{tenant}/oauth2/token", post(token_v1))
        .route("/common/discovery/instance", get(discover_instance))
        .route("/{tenant}/v2.0/.well-known/openid-configuration", get(configuration_v2))
        .route("/{tenant}/.well-known/openid-configuration", get(configuration_v1))
        .route("/{tenant}/discovery/v2.0/keys", get(keys))
        .route("/{tenant}/discovery/keys", get(keys))
        .with_state(directory)
}

/// Which of the two generations of the protocol a request speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Generation {
    /// `resource=`; numbers are strings.
    V1,
    /// `scope=`.
    V2,
    /// ADFS: takes either; numbers are numbers.
    Adfs,
}

async fn token_v2(
    State(directory): State<Arc<Directory>>,
    Path(tenant): Path<String>,
    parts: Parts,
    body: Bytes,
) -> Response {
    grant(&directory, Generation::V2, &tenant, &parts, &body)
        .map_or_else(|refusal| refusal.answer(&directory), IntoResponse::into_response)
}

async fn token_v1(
    State(directory): State<Arc<Directory>>,
    Path(tenant): Path<String>,
    parts: Parts,
    body: Bytes,
) -> Response {
    let generation = if tenant.eq_ignore_ascii_case("adfs") { Generation::Adfs } else { Generation::V1 };
    grant(&directory, generation, &tenant, &parts, &body)
        .map_or_else(|refusal| refusal.answer(&directory), IntoResponse::into_response)
}

/// A request that gets no token.
struct Refusal {
    status: StatusCode,
    error: &'static str,
    /// The number after `AADSTS`.
    number: u32,
    text: String,
}

impl Refusal {
    fn new(status: StatusCode, error: &'static str, number: u32, text: impl Into<String>) -> Self {
        Self { status, error, number, text: text.into() }
    }

    fn invalid_request(number: u32, text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", number, text)
    }

    fn invalid_client(number: u32, text: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid_client", number, text)
    }

    /// Documented: AADSTS900144.
    fn missing(parameter: &str) -> Self {
        Self::invalid_request(900_144, format!("The request body must contain the following parameter: '{parameter}'."))
    }

    fn answer(&self, directory: &Directory) -> Response {
        let now = (directory.now)();
        let timestamp = now.strftime("%F %TZ").to_string();
        let trace = derived_id("trace", &format!("{timestamp}/{}", self.text));
        let correlation = derived_id("correlation", &trace);
        let body = json!({
            "error": self.error,
            "error_description": format!(
                "AADSTS{}: {} Trace ID: {trace} Correlation ID: {correlation} Timestamp: {timestamp}",
                self.number, self.text
            ),
            "error_codes": [self.number],
            "timestamp": timestamp,
            "trace_id": trace,
            "correlation_id": correlation,
            "error_uri": format!("{}/error?code={}", directory.url, self.number),
        });
        (self.status, Json(body)).into_response()
    }
}

/// The client-credentials grant.
fn grant(
    directory: &Directory,
    generation: Generation,
    tenant: &str,
    parts: &Parts,
    body: &[u8],
) -> Result<Json<Value>, Refusal> {
    if generation != Generation::Adfs && !directory.knows_tenant(tenant) {
        // Documented: AADSTS90002.
        return Err(Refusal::invalid_request(
            90_002,
            format!(
                "Tenant '{tenant}' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud. Check with your subscription administrator, this may happen if there are no active subscriptions for the tenant."
            ),
        ));
    }
    let form: BTreeMap<String, String> = url::form_urlencoded::parse(body).into_owned().collect();
    let field = |name: &str| form.get(name).map(String::as_str).filter(|v| !v.is_empty());
    match field("grant_type") {
        Some("client_credentials") => {}
        None => return Err(Refusal::missing("grant_type")),
        Some(other) => {
            // Documented: AADSTS70003.
            return Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "unsupported_grant_type",
                70_003,
                format!("The app requested an unsupported grant type '{other}'."),
            ));
        }
    }
    let basic = basic_credentials(parts);
    let id = field("client_id")
        .or(basic.as_ref().map(|(id, _)| id.as_str()))
        .ok_or_else(|| Refusal::missing("client_id"))?;
    let secret = field("client_secret").or(basic.as_ref().map(|(_, secret)| secret.as_str()));
    let audience = audience(generation, field("scope"), field("resource"))?;
    let client = directory
        .clients
        .iter()
        .find(|client| client.id.eq_ignore_ascii_case(id))
        .ok_or_else(|| {
            // Documented: AADSTS700016.
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "unauthorized_client",
                700_016,
                format!(
                    "Application with identifier '{id}' was not found in the directory '{}'. This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. You may have sent your authentication request to the wrong tenant.",
                    directory.tenant_domain
                ),
            )
        })?;
    let here = (endpoints::base(parts, &directory.url), parts.uri.path());
    authenticate(directory, client, secret, field("client_assertion_type"), field("client_assertion"), &here)?;
    let subject = Subject {
        tenant: directory.tenant_id.clone(),
        client_id: client.id.clone(),
        object_id: client.object_id(),
        identity: None,
    };
    let now = (directory.now)();
    let token = directory.tokens.issue(&audience, &subject, now, TOKEN_LIFETIME);
    Ok(Json(answer(generation, &audience, &token, now)))
}

/// The audience that is asked for.
fn audience(generation: Generation, scope: Option<&str>, resource: Option<&str>) -> Result<String, Refusal> {
    match (generation, scope, resource) {
        (Generation::V1 | Generation::Adfs, _, Some(resource)) => Ok(resource.to_owned()),
        (Generation::V1, _, None) => Err(Refusal::missing("resource")),
        (_, None, _) => Err(Refusal::missing("scope")),
        (_, Some(scope), _) => {
            // MSAL adds scopes of OpenID Connect to what it was asked for.
            let asked = scope
                .split(' ')
                .rfind(|scope| !matches!(*scope, "openid" | "profile" | "offline_access" | ""))
                .unwrap_or_default();
            match asked.strip_suffix("/.default") {
                Some(audience) if !audience.is_empty() => Ok(audience.to_owned()),
                _ if generation == Generation::Adfs => Ok(asked.to_owned()),
                // Documented: AADSTS1002012.
                _ => Err(Refusal::new(
                    StatusCode::BAD_REQUEST,
                    "invalid_scope",
                    1_002_012,
                    format!(
                        "The provided value for scope {scope} is not valid. Client credential flows must have a scope value with /.default suffixed to the resource identifier (application ID URI)."
                    ),
                )),
            }
        }
    }
}

/// Client id and secret from the `Authorization` header, each form-encoded (RFC 6749, 2.3.1).
fn basic_credentials(parts: &Parts) -> Option<(String, String)> {
    let header = parts.headers.get(http::header::AUTHORIZATION)?;
    let encoded = header.to_str().ok()?.strip_prefix("Basic ")?;
    let decoded = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    let (id, secret) = decoded.split_once(':')?;
    let decode = |text: &str| {
        let (value, _) = url::form_urlencoded::parse(text.as_bytes()).next()?;
        Some(value.into_owned())
    };
    Some((decode(id)?, decode(secret).unwrap_or_default()))
}

/// Checks secret or assertion.
fn authenticate(
    directory: &Directory,
    client: &Client,
    secret: Option<&str>,
    assertion_type: Option<&str>,
    assertion: Option<&str>,
    here: &(String, &str),
) -> Result<(), Refusal> {
    const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    if let Some(assertion) = assertion {
        if assertion_type != Some(JWT_BEARER) {
            return Err(Refusal::missing("client_assertion_type"));
        }
        return check_assertion(directory, client, assertion, here);
    }
    match secret {
        Some(secret) if client.secret.as_deref() == Some(secret) => Ok(()),
        // Documented: AADSTS7000215.
        Some(_) => Err(Refusal::invalid_client(
            7_000_215,
            format!(
                "Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '{}'.",
                client.id
            ),
        )),
        // Documented: AADSTS7000218.
        None => Err(Refusal::invalid_client(
            7_000_218,
            "The request body must contain the following parameter: 'client_assertion' or 'client_secret'.",
        )),
    }
}

fn check_assertion(
    directory: &Directory,
    client: &Client,
    jwt: &str,
    (base, path): &(String, &str),
) -> Result<(), Refusal> {
    // Documented: AADSTS50027.
    let claims =
        token::claims(jwt).ok_or_else(|| Refusal::invalid_request(50_027, "JWT token is invalid or malformed."))?;
    let text = |name: &str| claims[name].as_str().unwrap_or_default();
    // The emulated clock begins at a fixed date; clients sign by that of this machine. Five minutes of difference are
    // forgiven.
    let skew = 300;
    let is_in_time = |now: i64| {
        let begins = claims["nbf"].as_i64().unwrap_or(now);
        claims["exp"].as_i64().is_some_and(|expires| expires + skew >= now) && begins - skew <= now
    };
    let clocks = [(directory.now)(), Timestamp::now()];
    if !clocks.iter().any(|now| is_in_time(now.as_second())) {
        // Documented: AADSTS700024.
        return Err(Refusal::invalid_client(700_024, "Client assertion is not within its valid time range."));
    }
    // Signed by the client itself, with a certificate: issuer and subject are the client.
    if text("iss").eq_ignore_ascii_case(&client.id) && text("sub").eq_ignore_ascii_case(&client.id) {
        let checked = certificate::check(&client.certificates, jwt, base, path);
        return checked.map_err(|flaw| of_flaw(&flaw, client));
    }
    let federated = client.federated.is_empty()
        || client.federated.iter().any(|known| known.issuer == text("iss") && known.subject == text("sub"));
    if federated {
        return Ok(());
    }
    // Documented: AADSTS70021.
    Err(Refusal::invalid_request(
        70_021,
        format!(
            "No matching federated identity record found for presented assertion. Assertion Issuer: '{}'. Assertion Subject: '{}'. Assertion Audience: '{}'.",
            text("iss"),
            text("sub"),
            text("aud")
        ),
    ))
}

/// Documented numbers; the texts are those of the numbers' descriptions.
fn of_flaw(flaw: &certificate::Flaw, client: &Client) -> Refusal {
    match flaw {
        certificate::Flaw::Malformed => Refusal::invalid_request(50_027, "JWT token is invalid or malformed."),
        certificate::Flaw::UnknownKey => Refusal::invalid_client(
            700_027,
            format!(
                "Client assertion contains an invalid signature. [Reason - The key was not found.] Please ensure that the \
                 certificate is registered for the application '{}'.",
                client.id
            ),
        ),
        certificate::Flaw::Signature => Refusal::invalid_client(
            700_027,
            "Client assertion contains an invalid signature. [Reason - The key was found, but the signature is not its.]",
        ),
        certificate::Flaw::Audience(audience) => Refusal::invalid_client(
            700_023,
            format!("Client assertion audience claim does not match Realm issuer. Assertion Audience: '{audience}'."),
        ),
    }
}

fn answer(generation: Generation, resource: &str, token: &str, now: Timestamp) -> Value {
    let lifetime = TOKEN_LIFETIME.as_secs();
    match generation {
        Generation::V2 => json!({
            "token_type": "Bearer",
            "expires_in": lifetime,
            "ext_expires_in": lifetime,
            "access_token": token,
        }),
        Generation::V1 => json!({
            "token_type": "Bearer",
            "expires_in": lifetime.to_string(),
            "ext_expires_in": lifetime.to_string(),
            "expires_on": (now + TOKEN_LIFETIME).as_second().to_string(),
            "not_before": now.as_second().to_string(),
            "resource": resource,
            "access_token": token,
        }),
        Generation::Adfs => json!({
            "token_type": "bearer",
            "expires_in": lifetime,
            "access_token": token,
        }),
    }
}

/// Documented by the MSAL libraries, which read it.
async fn discover_instance(
    State(directory): State<Arc<Directory>>,
    RawQuery(query): RawQuery,
    parts: Parts,
) -> Response {
    let query: BTreeMap<String, String> =
        url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect();
    let base = endpoints::base(&parts, &directory.url);
    let own = url::Url::parse(&base).ok();
    let asked = query.get("authorization_endpoint").and_then(|endpoint| url::Url::parse(endpoint).ok());
    let Some(asked) = asked else {
        return Refusal::missing("authorization_endpoint").answer(&directory);
    };
    let tenant = asked
        .path_segments()
        .and_then(|mut segments| segments.next())
        .filter(|tenant| !tenant.is_empty())
        .unwrap_or("common");
    let mut aliases: Vec<String> = [Some(&asked), own.as_ref()].into_iter().flatten().filter_map(authority).collect();
    aliases.dedup();
    let Some(first) = aliases.first() else {
        return Refusal::missing("authorization_endpoint").answer(&directory);
    };
    // The configuration is where the caller believes the authority to be.
    let authority = format!("{}://{first}", asked.scheme());
    Json(json!({
        "tenant_discovery_endpoint":
            format!("{authority}/{tenant}/v2.0/.well-known/openid-configuration"),
        "api-version": query.get("api-version").map_or("1.1", String::as_str),
        "metadata": [{
            "preferred_network": first,
            "preferred_cache": first,
            "aliases": aliases,
        }],
    }))
    .into_response()
}

/// Host, and port where it is not the scheme's own.
fn authority(url: &url::Url) -> Option<String> {
    let host = url.host_str()?;
    Some(match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

async fn configuration_v2(
    State(directory): State<Arc<Directory>>,
    Path(tenant): Path<String>,
    parts: Parts,
) -> Response {
    configuration(&directory, Generation::V2, &tenant, &parts)
}

async fn configuration_v1(
    State(directory): State<Arc<Directory>>,
    Path(tenant): Path<String>,
    parts: Parts,
) -> Response {
    let generation = if tenant.eq_ignore_ascii_case("adfs") { Generation::Adfs } else { Generation::V1 };
    configuration(&directory, generation, &tenant, &parts)
}

fn configuration(directory: &Directory, generation: Generation, tenant: &str, parts: &Parts) -> Response {
    let base = endpoints::base(parts, &directory.url);
    if generation == Generation::Adfs {
        return Json(json!({
            "issuer": format!("{base}/adfs"),
            "authorization_endpoint": format!("{base}/adfs/oauth2/authorize"),
            "token_endpoint": format!("{base}/adfs/oauth2/token"),
            "device_authorization_endpoint": format!("{base}/adfs/oauth2/devicecode"),
            "jwks_uri": format!("{base}/adfs/discovery/keys"),
            "token_endpoint_auth_methods_supported":
                ["client_secret_post", "client_secret_basic", "private_key_jwt"],
            "grant_types_supported": ["client_credentials"],
        }))
        .into_response();
    }
    if !directory.knows_tenant(tenant) {
        return Refusal::invalid_request(
            90_002,
            format!("Tenant '{tenant}' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud."),
        )
        .answer(directory);
    }
    let id = &directory.tenant_id;
    let (version, issuer) = match generation {
        Generation::V2 => ("/v2.0", format!("{base}/{id}/v2.0")),
        _ => ("", format!("{base}/{id}/")),
    };
    Json(json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{base}/{tenant}/oauth2{version}/authorize"),
        "token_endpoint": format!("{base}/{tenant}/oauth2{version}/token"),
        "device_authorization_endpoint": format!("{base}/{tenant}/oauth2{version}/devicecode"),
        "jwks_uri": format!("{base}/{tenant}/discovery{version}/keys"),
        "userinfo_endpoint": format!("{base}/oidc/userinfo"),
        "token_endpoint_auth_methods_supported":
            ["client_secret_post", "private_key_jwt", "client_secret_basic"],
        "response_types_supported": ["code", "id_token", "code id_token", "id_token token"],
        "subject_types_supported": ["pairwise"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "scopes_supported": ["openid", "profile", "email", "offline_access"],
        "tenant_region_scope": "EU",
        "cloud_instance_name": "microsoftonline.com",
    }))
    .into_response()
}

async fn keys() -> Json<Value> {
    Json(json!({ "keys": [] }))
}
