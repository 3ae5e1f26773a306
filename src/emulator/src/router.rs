//! The way of a request: who asks, may it, what strikes it, who answers, what is written down.
//!
//! Order: body read, incidents (a delay first), sign-in, subscription, api-version, route, roles, buckets,
//! handler, casing, headers, log. Refusals by the gateway carry `x-ms-failure-cause: gateway`
//! (recorded) and take no token from a provider's bucket. Nothing here knows a resource type.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State as FromState;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::access;
use crate::answer::{Answer, Context, Reply, Request};
use crate::api_versions;
use crate::arm::{self, Headers, tenant};
use crate::blob;
use crate::call_log::Call;
use crate::casing;
use crate::control;
use crate::deploy;
use crate::endpoints::{self, Endpoints};
use crate::fault::{self, Fault};
use crate::imds;
use crate::incident::{Effect, LoseAnswer, RequestFacts};
use crate::listener::Line;
use crate::login::{self, Directory};
use crate::metadata;
use crate::page;
use crate::path::{self, ArmPath};
use crate::redact::redact;
use crate::schema;
use crate::spawn;
use crate::state::Shared;
use crate::throttle::{Door, Throttle, Visit};
use crate::unknown_fields;

/// Bodies larger than this are refused; the front door's limit is 4 MiB (documented).
const BODY_LIMIT: usize = 4 * 1024 * 1024;

/// Every plane on one router, which is served over TLS at `tls_port` too.
pub(crate) fn router(shared: &Arc<Shared>, tls_port: Option<u16>) -> Router {
    let clock = Arc::clone(shared);
    let directory = Directory::new(
        &shared.options.scenario,
        &shared.url,
        shared.tokens.clone(),
        Arc::new(move || clock.clock.token_now()),
    );
    let endpoints = Endpoints {
        url: shared.url.clone(),
        tls_port,
        tenant_id: shared.options.scenario.tenant_id.clone(),
        adfs: false,
    };
    let other_planes = Router::new()
        .merge(imds::router(Arc::new(metadata::service(shared))))
        .merge(login::router(Arc::new(directory)))
        .merge(endpoints::router(Arc::new(endpoints)))
        .layer(middleware::from_fn_with_state(Arc::clone(shared), note_other_plane));
    // Outside of all else: what is refused is no call.
    let names = || middleware::from_fn_with_state(Arc::clone(&shared.names), access::guard_planes);
    let other_planes = other_planes.layer(names());
    let resource_manager =
        Router::new().route("/", any(root)).fallback(resource_manager).with_state(Arc::clone(shared)).layer(names());
    let all = Router::new().merge(other_planes).merge(control::router(Arc::clone(shared)));
    // The blob services are known by their host or by how a request is signed: any path may be one of theirs.
    all.fallback_service(resource_manager).layer(middleware::from_fn_with_state(Arc::clone(shared), blob::divert))
}

/// The page for a browser, the resource manager for everybody else.
async fn root(FromState(shared): FromState<Arc<Shared>>, request: axum::extract::Request) -> Response {
    let (parts, body) = request.into_parts();
    match page::answer(&shared.names, &parts) {
        Some(page) => page,
        None => resource_manager(FromState(shared), axum::extract::Request::from_parts(parts, body)).await,
    }
}

/// Logs calls to the planes that are no resource manager, and lets incidents strike them.
async fn note_other_plane(
    FromState(shared): FromState<Arc<Shared>>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let at = shared.clock.elapsed();
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let plane = if path.contains("/metadata/") { "metadata" } else { "login" };
    let operation = if plane == "login" { "login.token" } else { "metadata.get" };
    let bytes = match read_body(body).await {
        Ok(bytes) => bytes,
        Err(NoBody::TooLarge) => return StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Err(NoBody::Broken) => return StatusCode::BAD_REQUEST.into_response(),
    };
    let method = parts.method.as_str().to_owned();
    let effect = strike(&shared, &method, &path, operation, &bytes);
    let line = parts.extensions.get::<axum::extract::ConnectInfo<Line>>().map(|info| info.0.clone());
    let agent = text(&parts.headers, "user-agent");
    let struck = effect.is_some();
    let response = match effect {
        Some(effect) => {
            wait(&shared, &effect).await;
            let lose = effect.lose_answer;
            let response = if lose == Some(LoseAnswer::Before) {
                StatusCode::OK.into_response()
            } else if effect.status.is_some() {
                struck_answer(&effect)
            } else {
                let mut response = next.run(axum::extract::Request::from_parts(parts, Body::from(bytes))).await;
                add_effect_headers(response.headers_mut(), &effect);
                response
            };
            if lose.is_some() { lost(line) } else { response }
        }
        None => next.run(axum::extract::Request::from_parts(parts, Body::from(bytes))).await,
    };
    let mut state = shared.state();
    state.note(Call {
        number: 0,
        at_ms: millis(at),
        plane: plane.to_owned(),
        method,
        path,
        api_version: None,
        operation: operation.to_owned(),
        user_agent: agent,
        if_match: None,
        body: None,
        status: response.status().as_u16(),
        code: None,
        started: None,
        latency_ms: None,
        incident: struck,
    });
    response
}

async fn resource_manager(FromState(shared): FromState<Arc<Shared>>, request: axum::extract::Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let (bytes, unread) = match read_body(body).await {
        Ok(bytes) => (bytes, None),
        Err(NoBody::TooLarge) => (Bytes::new(), Some(fault::content_too_large())),
        Err(NoBody::Broken) => (Bytes::new(), Some(fault::invalid_content("The request body could not be read"))),
    };
    let line = parts.extensions.remove::<axum::extract::ConnectInfo<Line>>().map(|info| info.0);
    let at = shared.clock.elapsed();
    let method = parts.method.as_str().to_owned();
    let raw_path = parts.uri.path().to_owned();
    let query = query_of(parts.uri.query().unwrap_or(""));
    let version = query.get("api-version").cloned().unwrap_or_default();
    let path = ArmPath::parse(&raw_path);
    let route = path.as_ref().map(|path| arm::find(&method, path, &raw_path, &version));
    let (operation, headers): (_, Headers) = match &route {
        Some(Ok(route)) => (route.name, route.headers),
        Some(Err(_)) => ("unknown", &[]),
        None => (tenant::operation(&raw_path).unwrap_or("unknown"), &[]),
    };
    let effect = strike(&shared, &method, &raw_path, operation, &bytes);
    if let Some(effect) = &effect {
        wait(&shared, effect).await;
    }
    // A byte order mark is none of the text.
    let raw = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes)).into_owned();
    let json: Option<Value> = serde_json::from_str(&raw).ok();
    let base = endpoints::base(&parts, &shared.url);
    let request = Request {
        method,
        raw_path,
        path: path.unwrap_or_default(),
        query,
        api_version: version,
        headers: parts.headers,
        raw,
        json,
        base,
        late_failure: effect
            .as_ref()
            .and_then(|effect| effect.late_failure.as_ref())
            .map(|late| Fault::new(409, &late.code, late.message.clone())),
    };
    let mut asked = Asked { request, operation, headers, at };
    if let Some(fault) = unread {
        return finish(&shared, &mut asked, Err(fault), Vec::new(), None);
    }
    let lose = effect.as_ref().and_then(|effect| effect.lose_answer);
    let direct = effect.as_ref().filter(|effect| effect.status.is_some());
    let response = if lose == Some(LoseAnswer::Before) {
        shared.state().note(call(&mut asked, 0, None, None, true));
        Response::default()
    } else if let Some(effect) = direct {
        let status = effect.status.unwrap_or(500);
        let code = effect.error_body()["error"]["code"].as_str().map(str::to_owned);
        shared.state().note(call(&mut asked, status, code, None, true));
        struck_answer(effect)
    } else {
        let mut response = answer(&shared, &mut asked, route, effect.as_ref());
        // What is said to be there can be mounted.
        shared.smb.settled().await;
        if let Some(effect) = &effect {
            add_effect_headers(response.headers_mut(), effect);
        }
        response
    };
    if lose.is_some() { lost(line) } else { response }
}

/// A request with what the log wants of it.
struct Asked {
    request: Request,
    operation: &'static str,
    /// What the route's answers carry.
    headers: Headers,
    at: Duration,
}

fn answer(
    shared: &Arc<Shared>,
    asked: &mut Asked,
    route: Option<Result<arm::Route, Fault>>,
    effect: Option<&Effect>,
) -> Response {
    let request = &asked.request;
    let principal = match sign_in(shared, request) {
        Ok(principal) => principal,
        Err(fault) => return finish(shared, asked, Err(fault), Vec::new(), effect),
    };
    let mut remaining = Vec::new();
    let mut state = shared.state();
    let now = shared.clock.elapsed();
    let reply = (|| -> Reply {
        check_version(request)?;
        if let Some(list) = tenant::list(shared, &state, &principal, &request.raw_path) {
            check_own_version(shared, request)?;
            return Ok(list);
        }
        let Some(route) = route else {
            return Err(fault::path_not_found(&request.raw_path));
        };
        let subscription = &request.path.subscription;
        if uuid::Uuid::try_parse(subscription).is_err() {
            return Err(fault::invalid_subscription(subscription));
        }
        if !state.store.knows_subscription(subscription) {
            return Err(fault::subscription_not_found(subscription));
        }
        let route = route?;
        gate(shared, &state, request, &route)?;
        if !arm::authorization::asks_permissions(&request.path) || state.switches.permissions_need_a_role {
            state.roles.check(&principal, &request.method, &request.path)?;
            let asked = (request.method.as_str(), &request.path, request.json.as_ref());
            state.roles.check_linked(&principal, asked, state.switches.linked_access_in_group)?;
        }
        let resource = route.limited_resource(request);
        let visit = Visit {
            door: Door::of(&request.method),
            subscription,
            principal: &principal,
            policy: route.policy.map(|policy| (policy, resource.as_str())),
        };
        remaining = if shared.options.throttling {
            state.throttle.visit(&visit, &shared.clock, now)?
        } else {
            // Full buckets for each request: the headers stay, the refusals go.
            Throttle::default().visit(&visit, &shared.clock, now)?
        };
        let mut context = Context { shared, state: &mut state, request, now, principal: &principal };
        route.answer(&mut context)
    })();
    // An operation that lasts no time is over before its first poll, not before its own answer: the
    // 202 still shows the state in between.
    let (pending, deployments) = (std::mem::take(&mut state.pending), std::mem::take(&mut state.deployments));
    drop(state);
    for work in pending {
        spawn::carry_out(shared, work);
    }
    for deployment in deployments {
        deploy::carry_out(shared, deployment);
    }
    if asked.request.method != "GET" {
        shared.saver.changed();
    }
    finish(shared, asked, reply, remaining, effect)
}

/// The path after the provider without the names, as the caller spelt it.
fn type_of(path: &ArmPath) -> String {
    path.rest.iter().step_by(2).map(String::as_str).collect::<Vec<_>>().join("/")
}

/// Whether the type has the api-version. Documented answers; where there is no resource type the gateway itself
/// speaks.
fn gate(shared: &Shared, state: &crate::state::State, request: &Request, route: &arm::Route) -> Result<(), Fault> {
    let (version, kind) = (request.api_version.as_str(), type_of(&request.path));
    let provider = request.path.provider.as_deref().filter(|_| !kind.is_empty());
    let mut known = api_versions::of(provider, &kind.to_ascii_lowercase());
    known.retain(|known| route.since.is_none_or(|since| *known >= since));
    if api_versions::known(&known, version, shared.options.api_versions, shared.clock.now())
        && route.since.is_none_or(|since| version >= since)
    {
        return Ok(());
    }
    let Some(namespace) = provider else {
        return Err(fault::invalid_api_version(version, &known));
    };
    if request.path.group.is_none() || request.path.rest.len() < 2 {
        return Err(fault::version_of_no_type(&kind, namespace, version, &known));
    }
    let resource =
        format!("{}/providers/{namespace}/{}/{}", request.group_id(), request.segment(0), request.segment(1));
    let there = state.store.get(&resource).or_else(|| state.store.get(&request.group_id()));
    let asked = request.json.as_ref().and_then(|body| body["location"].as_str());
    let location = asked.or_else(|| there?.doc["location"].as_str()).unwrap_or("");
    Err(fault::no_registered_provider(&kind, &path::location(location), version, &known, &arm::regions::all()))
}

fn check_version(request: &Request) -> Result<(), Fault> {
    let version = &request.api_version;
    if version.is_empty() {
        return Err(fault::missing_api_version());
    }
    let date = version.split_once("-preview").map_or(version.as_str(), |(date, _)| date);
    let well_formed = date.len() == 10
        && date.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if well_formed || version == "2014-04" {
        return Ok(());
    }
    let kind = type_of(&request.path).to_ascii_lowercase();
    let provider = request.path.provider.as_deref().filter(|_| !kind.is_empty());
    Err(fault::invalid_api_version(version, &api_versions::of(provider, &kind)))
}

/// The same where there is no route: lists of subscriptions and tenants.
fn check_own_version(shared: &Shared, request: &Request) -> Result<(), Fault> {
    let known = api_versions::of(None, "");
    match api_versions::known(&known, &request.api_version, shared.options.api_versions, shared.clock.now()) {
        true => Ok(()),
        false => Err(fault::invalid_api_version(&request.api_version, &known)),
    }
}

/// Whose token it is. Documented answers.
fn sign_in(shared: &Shared, request: &Request) -> Result<String, Fault> {
    let Some(header) = request.header("authorization") else {
        return Err(fault::missing_authorization());
    };
    let token = header
        .split_once(' ')
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .filter(|token| !token.is_empty())
        .ok_or_else(fault::missing_authorization)?;
    let said = shared.tokens.read(token);
    if !shared.options.accept_any_token {
        let now = shared.clock.token_now();
        shared.tokens.check(&said, now).map_err(|unusable| match unusable {
            login::Unusable::Unknown => fault::invalid_token(),
            login::Unusable::Expired(at) => fault::expired_token(at, now),
        })?;
        if !is_ours(&said.audience, &request.base, &shared.url) {
            return Err(fault::wrong_audience(&said.audience));
        }
        // A token of another emulator, whose directory is another.
        let tenant = &shared.options.scenario.tenant_id;
        if !said.issuer.to_ascii_lowercase().contains(&format!("/{}/", tenant.to_ascii_lowercase())) {
            return Err(fault::wrong_tenant(&said.issuer, tenant));
        }
    }
    // Buckets are per principal; a token that is no JWT of ours stands for itself.
    Ok(said.object_id.clone().unwrap_or_else(|| crate::derived::guid_of(token)))
}

/// Whether a token is for the resource manager: by its public names (documented), or by an address of
/// this emulator, which is what `/metadata/endpoints` tells.
fn is_ours(audience: &str, base: &str, url: &str) -> bool {
    let host = |text: &str| {
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        rest.trim_end_matches('/').to_ascii_lowercase()
    };
    let audience = host(audience);
    let local = ["127.0.0.1", "localhost", "[::1]"];
    ["management.azure.com", "management.core.windows.net"].contains(&audience.as_str())
        || [host(base), host(url)].contains(&audience)
        || local
            .iter()
            .any(|name| audience.strip_prefix(name).is_some_and(|port| port.is_empty() || port.starts_with(':')))
}

fn finish(
    shared: &Arc<Shared>,
    asked: &mut Asked,
    reply: Reply,
    remaining: Vec<(&'static str, String)>,
    effect: Option<&Effect>,
) -> Response {
    let request = &asked.request;
    let (answer, fault) = match reply {
        Ok(answer) => (answer, None),
        Err(fault) => {
            let mut answer = Answer::json(fault.status, fault.body());
            if fault.gateway && fault.status != 429 {
                answer = answer.with("x-ms-failure-cause", "gateway");
            }
            if let Some(seconds) = fault.retry_after {
                let seconds = shared.options.scaled(u64::from(seconds));
                answer = answer.with("retry-after", seconds.to_string());
            }
            if fault.status == 429 {
                answer = answer.with("x-ms-request-charge", "1");
            }
            if fault.status == 401 {
                // Documented wording: clients find a subscription's tenant by asking without a token.
                let why = match fault.code.as_str() {
                    "AuthenticationFailed" => "The authentication failed because of missing 'Authorization' header.",
                    _ => fault.message.as_str(),
                };
                answer = answer.with(
                    "www-authenticate",
                    format!(
                        "Bearer authorization_uri=\"{}/{}\", error=\"invalid_token\", error_description=\"{}\"",
                        request.base, shared.options.scenario.tenant_id, why
                    ),
                );
            }
            (answer, Some(fault))
        }
    };
    let code = fault.as_ref().map(|fault| fault.code.clone());
    let (id, correlation) = {
        let given = asked.request.header("x-ms-correlation-request-id").map(str::to_owned);
        let call = call(asked, answer.status, code, answer.started.as_ref(), effect.is_some());
        let mut state = shared.state();
        state.note(call);
        (state.guid(), given.unwrap_or_else(|| state.guid()))
    };
    let (request, mut body) = (&asked.request, answer.body);
    let unknown = schema::hidden_from(request.path.provider.as_deref(), &request.api_version);
    if fault.is_none() && !unknown.is_empty() {
        body.change(|doc| schema::hide(doc, unknown));
    }
    if shared.options.future_fields && fault.is_none() {
        body.change(unknown_fields::dress);
    }
    // Errors too: their targets are ids.
    if shared.options.nasty_casing {
        body.change(casing::spoil);
    }
    // Recorded: an empty list comes without the headers of the provider.
    let empty_list = body.is_empty_list();
    let mut headers = HeaderMap::with_capacity(32);
    for (name, value) in CONSTANT_HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    for (name, value) in common_headers(shared, asked, id, correlation) {
        put(&mut headers, name, &value);
    }
    let provider_answer = fault.as_ref().is_none_or(|fault| !fault.gateway);
    // Recorded: what the gateway refuses shows no remaining quota.
    let shown_quota = if provider_answer { remaining.as_slice() } else { &[] };
    for (name, value) in shown_quota.iter().chain(&answer.headers) {
        put(&mut headers, name, value);
    }
    if provider_answer && request.path.provider.is_some() && !remaining.is_empty() && writes_or_polls(asked) {
        let (tenant, object) = (&shared.options.scenario.tenant_id, crate::derived::guid_of("operation-identifier"));
        put(
            &mut headers,
            "x-ms-operation-identifier",
            &format!(
                "tenantId={tenant},objectId={object}/{}/{}",
                shared.options.scenario.location,
                crate::derived::guid_of(&asked.request.raw_path)
            ),
        );
    }
    if provider_answer && !empty_list {
        for (name, value) in asked.headers {
            put(&mut headers, name, value);
        }
    }
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let bytes = match body.into_text() {
        Some(text) if request.method != "HEAD" => {
            put(&mut headers, "content-type", "application/json; charset=utf-8");
            Bytes::from(text)
        }
        _ => Bytes::new(),
    };
    if status != StatusCode::NO_CONTENT && request.method != "HEAD" {
        put(&mut headers, "content-length", &bytes.len().to_string());
    }
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Recorded: on writes and on polls, not on plain reads.
fn writes_or_polls(asked: &Asked) -> bool {
    asked.request.method != "GET" || asked.operation == "operations.get"
}

/// Recorded: on every answer.
const CONSTANT_HEADERS: [(&str, &str); 6] = [
    ("cache-control", "no-cache"),
    ("pragma", "no-cache"),
    ("expires", "-1"),
    ("strict-transport-security", "max-age=31536000; includeSubDomains"),
    ("x-content-type-options", "nosniff"),
    ("x-cache", "CONFIG_NOCACHE"),
];

fn common_headers(shared: &Shared, asked: &Asked, id: String, correlation: String) -> Vec<(&'static str, String)> {
    let stamp: String =
        shared.clock.stamp(shared.clock.elapsed()).chars().take(19).filter(|c| *c != '-' && *c != ':').collect();
    let mut headers = vec![
        ("date", shared.clock.http_date()),
        (
            "x-ms-routing-request-id",
            format!("{}:{stamp}Z:{correlation}", shared.options.scenario.location.to_ascii_uppercase()),
        ),
        ("x-ms-request-id", id),
        ("x-ms-correlation-request-id", correlation),
    ];
    if let Some(own) = asked.request.header("x-ms-client-request-id") {
        headers.push(("x-ms-client-request-id", own.to_owned()));
    }
    headers
}

fn put(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// A call for the log, which takes the body with it.
fn call(
    asked: &mut Asked,
    status: u16,
    code: Option<String>,
    started: Option<&(String, Duration)>,
    incident: bool,
) -> Call {
    let mut body = asked.request.json.take();
    if let Some(body) = &mut body {
        redact(body);
    }
    let request = &asked.request;
    Call {
        number: 0,
        at_ms: millis(asked.at),
        plane: "arm".to_owned(),
        method: request.method.clone(),
        path: request.raw_path.clone(),
        api_version: (!request.api_version.is_empty()).then(|| request.api_version.clone()),
        operation: asked.operation.to_owned(),
        user_agent: request.header("user-agent").map(str::to_owned),
        if_match: request.header("if-match").map(str::to_owned),
        body,
        status,
        code,
        started: started.map(|(id, _)| id.clone()),
        latency_ms: started.map(|(_, latency)| millis(*latency)),
        incident,
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn strike(shared: &Shared, method: &str, path: &str, operation: &str, body: &[u8]) -> Option<Effect> {
    shared.state().incidents.next(&RequestFacts { method, path, operation, body })
}

pub(crate) async fn wait(shared: &Shared, effect: &Effect) {
    if let Some(delay) = effect.delay_ms {
        let due = shared.clock.elapsed() + Duration::from_millis(delay);
        shared.clock.sleep_until(due).await;
    }
}

fn struck_answer(effect: &Effect) -> Response {
    let status =
        effect.status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = Response::new(Body::from(effect.error_body().to_string()));
    *response.status_mut() = status;
    put(response.headers_mut(), "content-type", "application/json; charset=utf-8");
    add_effect_headers(response.headers_mut(), effect);
    response
}

pub(crate) fn add_effect_headers(headers: &mut HeaderMap, effect: &Effect) {
    if let Some(seconds) = effect.retry_after {
        put(headers, "retry-after", &seconds.to_string());
    }
    for (name, value) in &effect.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name.as_str()), HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
}

/// No answer: the connection breaks. Without a connection (in process) the body breaks instead.
pub(crate) fn lost(line: Option<Line>) -> Response {
    if let Some(line) = line {
        line.cut();
        return Response::default();
    }
    let broken =
        futures::stream::once(async { Err::<Bytes, _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset)) });
    Response::new(Body::from_stream(broken))
}

/// A body that did not come whole.
pub(crate) enum NoBody {
    TooLarge,
    Broken,
}

pub(crate) async fn read_body(body: Body) -> Result<Bytes, NoBody> {
    let limited = http_body_util::Limited::new(body, BODY_LIMIT);
    match limited.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(NoBody::TooLarge),
        Err(_) => Err(NoBody::Broken),
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// Parameters with lower-case names.
fn query_of(query: &str) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(query.as_bytes())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.into_owned()))
        .collect()
}
