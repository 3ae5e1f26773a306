//! The blob service of storage accounts: containers, and page blobs, of which VHDs are made.
//!
//! ```text
//! request ─▶ address: is it for a blob service? ─▶ incidents ─▶ version, account, signature ─▶ operation
//!                                                                                              │
//!                       files: the bytes, sparse ◀── documents: in the store, in the state file ◀┘
//! ```
//!
//! How an account is reached is told in [`address`], what is signed in [`authorization`], where the bytes are in [`files`].
//!
//! # Contract
//!
//! Evidence as in the crate's own table.
//!
//! | request | answer | evidence |
//! |---|---|---|
//! | any, without `x-ms-version` / with one that has not been published | 400 `MissingRequiredHeader` / `InvalidHeaderValue` | U / D |
//! | … with one after 2017-11-09, with [`crate::Switches::blob_service_of_2017`] | 400 `InvalidHeaderValue` | that Azure Stack Hub has no later one D, the answer U |
//! | any, to an account that does not exist, is being created or has no blob service | 404 `ResourceNotFound` | U: Azure has no such host |
//! | any over http to an account with `supportsHttpsTrafficOnly` | 400 `AccountRequiresHttps` | D |
//! | signed with no key of the account, or with one that has been drawn anew since | 403 `AuthenticationFailed`, with the text that was signed | D |
//! | … by key where `allowSharedKeyAccess` is false | 403 `KeyBasedAuthenticationNotPermitted` | D |
//! | … with a date that is more than 15 minutes away | accepted | deviation |
//! | access signatures, tokens of Microsoft Entra ID | 403 `AuthenticationFailed`, which says so | deviation |
//! | without a signature | 409 `PublicAccessNotPermitted`, or 404 where the account allows public access | D, the latter a deviation |
//! | the rules of an account's network | not regarded | deviation |
//! | container PUT / DELETE | 201, 409 `ContainerAlreadyExists` / 202, then 409 `ContainerBeingDeleted` for 30 s to a PUT and 404 to all else | D |
//! | page blob PUT | 201; 409 `BlobAlreadyExists` under `If-None-Match: *`; lengths of whole pages, 8 TiB at most | D |
//! | … that replaces a blob | the lease and the snapshots stay | D |
//! | Put Page | 201; whole pages within the blob, else 416 `InvalidPageRange`; 4 MiB at most, else 413 | D |
//! | … with a body of another length than the range | 400 `InvalidHeaderValue` | U |
//! | … with a checksum of the body | not looked at | deviation |
//! | Set Blob Properties with a length | 200; what is cut off is gone, what is added is zero | D |
//! | a write of a leased blob without the lease's id / with another / without any lease | 412 `LeaseIdMissing` / `LeaseIdMismatchWithBlobOperation` / `LeaseNotPresentWithBlobOperation` | D |
//! | conditions and leases both fail | the condition's code | U |
//! | Lease Blob, Lease Container | the states and codes of [`crate::leases`]; the etag stays | D |
//! | Snapshot Blob, DELETE of a blob with snapshots | 201 / 409 `SnapshotsPresent` unless the request says what becomes of them | D |
//! | Copy Blob within the account / from elsewhere | 202, `success` at once / 404 `CannotVerifyCopySource` | D, the former's speed U |
//! | Get Page Ranges with `prevsnapshot` | 400 | deviation |
//! | names of metadata | in lower case | deviation: HTTP libraries keep no other |
//! | soft delete, versions, tiers, tags, block lists, append blobs, access policies | 501 `NotImplemented` | deviation |
//! | requests over the limits of an account | not counted | deviation |

mod address;
mod authorization;
mod blobs;
mod conditions;
mod containers;
mod context;
mod copies;
pub(crate) mod documents;
mod error;
mod files;
mod lists;
mod operation;
mod page_writes;
mod pages;
mod request;
mod versions;
pub(crate) mod vhd;
mod xml;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as HttpBody;
use axum::extract::{ConnectInfo, Request, State as FromState};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};

use self::context::{Answer, Body, Context, Reply};
use self::documents::Documents;
use self::error::BlobError;
use self::operation::{Operation, UNKNOWN};
use self::request::Asked;
use crate::arm::kinds;
use crate::arm::storage::{keys, skus};
use crate::call_log::Call;
use crate::document::Document;
use crate::incident::{Effect, LoseAnswer};
use crate::listener::Line;
use crate::path;
use crate::router;
use crate::state::{Shared, State};
use crate::tls::OverTls;

/// How many bytes of a file are sent at once.
const CHUNK: u64 = 256 * 1024;

/// Answers what is for a blob service, and lets all else go on.
pub(crate) async fn divert(FromState(shared): FromState<Arc<Shared>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Some(address) = address::of(&parts, &shared.names, &shared.url) else {
        return next.run(Request::from_parts(parts, body)).await;
    };
    let line = parts.extensions.remove::<ConnectInfo<Line>>().map(|info| info.0);
    let at = shared.clock.elapsed();
    let (bytes, unread) = match router::read_body(body).await {
        Ok(bytes) => (bytes, None),
        Err(router::NoBody::TooLarge) => (Bytes::new(), Some(error::BODY_TOO_LARGE.into())),
        Err(router::NoBody::Broken) => {
            let message = "The request body could not be read.";
            (Bytes::new(), Some(BlobError::new(400, "InvalidInput", message)))
        }
    };
    let asked = Asked {
        method: parts.method.as_str().to_owned(),
        raw_path: parts.uri.path().to_owned(),
        address,
        query: query(parts.uri.query().unwrap_or("")),
        is_over_tls: parts.extensions.get::<OverTls>().is_some(),
        headers: parts.headers,
        body: bytes,
    };
    let operation = Operation::of(&asked);
    let name = operation.as_ref().map_or(UNKNOWN, |operation| operation.name);
    let effect = router::strike(&shared, &asked.method, &asked.raw_path, name, &asked.body);
    if let Some(effect) = &effect {
        router::wait(&shared, effect).await;
    }
    let lose = effect.as_ref().and_then(|effect| effect.lose_answer);
    let ordered = effect.as_ref().and_then(ordered);
    let reply = match (unread, ordered) {
        _ if lose == Some(LoseAnswer::Before) => Err(BlobError::new(0, "", "")),
        (Some(refused), _) | (None, Some(refused)) => Err(refused),
        (None, None) => operation.and_then(|operation| answer(&shared, &asked, operation)),
    };
    if asked.method != "GET" && asked.method != "HEAD" {
        shared.saver.changed();
    }
    note(&shared, &asked, name, at, &reply, effect.is_some());
    if lose.is_some() {
        return router::lost(line);
    }
    let mut response = finish(&shared, &asked, reply);
    if let Some(effect) = &effect {
        router::add_effect_headers(response.headers_mut(), effect);
    }
    response
}

/// The refusal that an incident orders.
fn ordered(effect: &Effect) -> Option<BlobError> {
    let status = effect.status?;
    let body = effect.error_body();
    let text = |member: &str| body["error"][member].as_str().unwrap_or("").to_owned();
    Some(BlobError::new(status, &text("code"), text("message")))
}

/// Decoded values by name in lower case.
fn query(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut query: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
        query.entry(name.to_ascii_lowercase()).or_default().push(value.into_owned());
    }
    query
}

fn answer(shared: &Shared, asked: &Asked, operation: Operation) -> Reply {
    let mut locked = shared.state();
    let state: &mut State = &mut locked;
    let version = versions::of(asked.header("x-ms-version"), state.switches.blob_service_of_2017)?;
    let account = account(state, &asked.address.account).ok_or(error::ACCOUNT_NOT_FOUND)?;
    let properties = &account["properties"];
    if properties["supportsHttpsTrafficOnly"] != false && !asked.is_over_tls {
        return Err(error::ACCOUNT_REQUIRES_HTTPS.into());
    }
    let is_signed = asked.headers.contains_key(http::header::AUTHORIZATION) || asked.query.contains_key("sig");
    if !is_signed && properties["allowBlobPublicAccess"] != true {
        return Err(error::PUBLIC_ACCESS_NOT_PERMITTED.into());
    }
    if is_signed && properties["allowSharedKeyAccess"] == false {
        return Err(error::KEYS_NOT_PERMITTED.into());
    }
    let signed = authorization::Signed {
        method: &asked.method,
        account: &asked.address.account,
        path: &asked.raw_path,
        query: &asked.query,
        headers: &asked.headers,
        version,
    };
    authorization::check(&signed, &keys::values(state, &account))?;
    let new_id = if asked.method == "PUT" { state.guid() } else { String::new() };
    let at = shared.clock.elapsed();
    let mut documents = Documents { store: &mut state.store, blobs: &mut state.blobs, account: path::of(&account), at };
    let now = shared.clock.at(at).as_nanosecond();
    documents.look_at_devices(now);
    (operation.handler)(&mut Context { asked, documents, account: &account, names: &shared.names, new_id, now })
}

/// The account of a name, if it has a blob service by now.
fn account(state: &State, name: &str) -> Option<Document> {
    let mut all = state.store.of_kind(kinds::STORAGE_ACCOUNT);
    let id = all.find(|doc| path::name_of(path::of(doc)).eq_ignore_ascii_case(name)).map(path::of)?.to_owned();
    let account = state.store.document(&id)?;
    let is_there = account["properties"]["provisioningState"] == "Succeeded" && skus::has_blobs(&account);
    is_there.then_some(account)
}

fn note(shared: &Shared, asked: &Asked, operation: &str, at: Duration, reply: &Reply, is_incident: bool) {
    let (status, code) = match reply {
        Ok(answer) => (answer.status, None),
        Err(refused) => (refused.status, Some(refused.code.clone()).filter(|code| !code.is_empty())),
    };
    shared.state().note(Call {
        number: 0,
        at_ms: router::millis(at),
        plane: "blob".to_owned(),
        method: asked.method.clone(),
        path: asked.raw_path.clone(),
        api_version: asked.header("x-ms-version").map(str::to_owned),
        operation: operation.to_owned(),
        user_agent: asked.header("user-agent").map(str::to_owned),
        if_match: asked.header("if-match").map(str::to_owned),
        body: None,
        status,
        code,
        started: None,
        latency_ms: None,
        incident: is_incident,
    });
}

/// The answer as HTTP, with the headers that every answer has.
fn finish(shared: &Shared, asked: &Asked, reply: Reply) -> Response {
    let request_id = shared.state().guid();
    let answer = reply.unwrap_or_else(|refused| {
        let body = match asked.method == "HEAD" || refused.status == 304 {
            true => Body::Nothing,
            false => Body::Xml(refused.body(&request_id, &context::snapshot_time(shared.clock.now().as_nanosecond()))),
        };
        Answer { status: refused.status, headers: Vec::new(), body }.with("x-ms-error-code", refused.code)
    });
    let mut answer = answer
        .with("server", "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0")
        .with("x-ms-request-id", request_id)
        .with("date", shared.clock.http_date());
    for name in ["x-ms-version", "x-ms-client-request-id"] {
        if let Some(given) = asked.header(name) {
            answer = answer.with(name, given);
        }
    }
    let body = match answer.body {
        Body::Nothing => {
            if asked.method != "HEAD" && answer.status != 304 {
                answer.headers.push(("content-length".to_owned(), "0".to_owned()));
            }
            HttpBody::empty()
        }
        Body::Xml(text) => {
            answer.headers.push(("content-type".to_owned(), "application/xml".to_owned()));
            answer.headers.push(("content-length".to_owned(), text.len().to_string()));
            HttpBody::from(text)
        }
        Body::File { file, start, length } => {
            answer.headers.push(("content-length".to_owned(), length.to_string()));
            sent(file, start, length)
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in answer.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(&value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Bytes of a file, read as they are sent.
fn sent(file: std::fs::File, start: u64, length: u64) -> HttpBody {
    let state = (file, start, length);
    HttpBody::from_stream(futures::stream::try_unfold(state, |(file, at, left)| async move {
        if left == 0 {
            return Ok::<_, std::io::Error>(None);
        }
        let size = left.min(CHUNK);
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        file.read_exact_at(&mut bytes, at)?;
        Ok(Some((Bytes::from(bytes), (file, at + size, left - size))))
    }))
}
