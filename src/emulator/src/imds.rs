//! The instance metadata service, as every virtual machine sees it at 169.254.169.254.
//!
//! It answers from the documents of the store and owns nothing but its rate limits. It never changes a
//! resource.
//!
//! **Which machine asks?** The real service knows by the network card. Here, in this order: the path
//! prefix `/_imds/{vm}` (a client that routes the address `http://169.254.169.254` to
//! `http://127.0.0.1:PORT/_imds/node-0` needs no change), the header `X-Lazuli-Vm`, or the only machine
//! there is. `{vm}` is a resource name or a computer name.
//!
//! | path | what | evidence |
//! |---|---|---|
//! | `/metadata/instance[/…]` | the instance, or a part of it by path | documented |
//! | `/metadata/versions` | the api-versions | documented |
//! | `/metadata/identity/oauth2/token` | a token of a managed identity, [`identity`] | documented |
//! | `/metadata/loadbalancer` | public addresses of Standard SKU, no rules | documented; rules are not modelled |
//!
//! The header `Metadata: true` is required, `X-Forwarded-For` is refused, and a machine gets 5 answers
//! a second, 20 from the identity endpoint (documented). The words of refusals are documented where
//! public pages quote them, else unverified.

mod identity;
mod instance;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

use crate::document::Document;
use crate::login::{Now, Tokens};

/// The header that names the machine that asks.
pub(crate) const VM_HEADER: &str = "x-lazuli-vm";

/// Answers per second to one machine.
const INSTANCE_LIMIT: usize = 5;
/// Tokens per second to one machine.
const IDENTITY_LIMIT: usize = 20;
const LIMIT_WINDOW: Duration = Duration::from_secs(1);

/// Documented versions of the instance API, oldest first.
const VERSIONS: [&str; 31] = [
    "2017-03-01",
    "2017-04-02",
    "2017-08-01",
    "2017-10-01",
    "2017-12-01",
    "2018-02-01",
    "2018-04-02",
    "2018-10-01",
    "2019-02-01",
    "2019-03-11",
    "2019-04-30",
    "2019-06-01",
    "2019-06-04",
    "2019-08-01",
    "2019-08-15",
    "2019-11-01",
    "2020-06-01",
    "2020-07-15",
    "2020-09-01",
    "2020-10-01",
    "2020-12-01",
    "2021-01-01",
    "2021-02-01",
    "2021-03-01",
    "2021-05-01",
    "2021-10-01",
    "2021-11-01",
    "2021-12-13",
    "2023-07-01",
    "2023-11-15",
    "2025-04-07",
];

/// A question about something named by its ARM id.
type AskById<A> = Box<dyn Fn(&str) -> A + Send + Sync>;
/// Fault and update domain of a machine.
type AskDomains = Box<dyn Fn(&Value) -> Option<(usize, usize)> + Send + Sync>;
/// LUN to disk id of a machine so long ago.
type AskAttached = Box<dyn Fn(&str, Duration) -> BTreeMap<u8, String> + Send + Sync>;

/// What the service reads of the cloud. The functions must not block.
pub(crate) struct Cloud {
    /// The documents of all virtual machines, in a fixed order.
    pub(crate) machines: Box<dyn Fn() -> Vec<Document> + Send + Sync>,
    /// Any document by ARM id, in any letter case, and the size of a VHD by its address.
    pub(crate) document: AskById<Option<Document>>,
    /// Fault and update domain of a machine, by its document.
    pub(crate) domains: AskDomains,
    /// LUN to disk id of a machine as it was so long ago: what its host held then.
    pub(crate) attached: AskAttached,
    /// Emulated time since the start, for the rate limits.
    pub(crate) elapsed: Box<dyn Fn() -> Duration + Send + Sync>,
}

/// The instance metadata service of all machines.
pub(crate) struct Imds {
    /// Tenant id of managed identities.
    pub(crate) tenant_id: String,
    /// The cloud.
    pub(crate) cloud: Cloud,
    /// Shared with all that checks tokens.
    pub(crate) tokens: Tokens,
    /// The wall clock.
    pub(crate) now: Now,
    /// How old the list of data disks is that the service shows.
    pub(crate) lag: Duration,
    /// Whether the rate limits hold.
    pub(crate) throttling: bool,
    /// Ids come in other letter case than the resource manager's.
    pub(crate) nasty_casing: bool,
    /// When the last answers were given, by machine and kind.
    pub(crate) answered: Mutex<BTreeMap<(String, bool), VecDeque<Duration>>>,
}

/// The routes of the service.
pub(crate) fn router(imds: Arc<Imds>) -> Router {
    Router::new()
        .route("/metadata/{*path}", get(by_header))
        .route("/_imds/{vm}/metadata/{*path}", get(by_prefix))
        .with_state(imds)
}

async fn by_header(
    State(imds): State<Arc<Imds>>,
    Path(path): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let vm = headers.get(VM_HEADER).map(|vm| String::from_utf8_lossy(vm.as_bytes()).into_owned());
    imds.answer(vm.as_deref(), &path, query.as_deref(), &headers)
}

async fn by_prefix(
    State(imds): State<Arc<Imds>>,
    Path((vm, path)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    imds.answer(Some(&vm), &path, query.as_deref(), &headers)
}

fn refuse(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

impl Imds {
    fn answer(&self, vm: Option<&str>, path: &str, query: Option<&str>, headers: &HeaderMap) -> Response {
        let path = path.trim_end_matches('/');
        let lower = path.to_ascii_lowercase();
        let of_identity = lower.starts_with("identity/");
        if let Some(refusal) = header_refusal(of_identity, headers) {
            return refusal;
        }
        let machine = match self.machine(vm) {
            Ok(machine) => machine,
            Err(refusal) => return *refusal,
        };
        if !self.within_limit(&machine, of_identity) {
            return refuse(StatusCode::TOO_MANY_REQUESTS, "Too many requests");
        }
        let query: BTreeMap<String, String> = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.into_owned()))
            .collect();
        if lower == "identity/oauth2/token" {
            return self.token(&machine, &query);
        }
        if lower == "versions" {
            return Json(json!({ "apiVersions": VERSIONS })).into_response();
        }
        let (root, rest) = path.split_once('/').unwrap_or((path, ""));
        let mut document = match root.to_ascii_lowercase().as_str() {
            "instance" => self.instance(&machine),
            "loadbalancer" => self.load_balancer(&machine),
            _ => return refuse(StatusCode::NOT_FOUND, "Not found"),
        };
        if !query.get("api-version").is_some_and(|version| VERSIONS.contains(&version.as_str())) {
            return bad_version();
        }
        if self.nasty_casing {
            crate::casing::spoil_metadata(&mut document);
        }
        let as_text = query.get("format").is_some_and(|format| format.eq_ignore_ascii_case("text"));
        part(&document, rest, as_text)
    }

    /// The document of the machine that asks.
    fn machine(&self, asked: Option<&str>) -> Result<Document, Box<Response>> {
        let mut machines = (self.cloud.machines)();
        let names: Vec<String> =
            machines.iter().filter_map(|machine| machine["name"].as_str().map(str::to_owned)).collect();
        let found = match asked {
            Some(asked) => machines.iter().position(|machine| {
                let named = |value: &Value| value.as_str().is_some_and(|n| n.eq_ignore_ascii_case(asked));
                named(&machine["name"]) || named(&machine["properties"]["osProfile"]["computerName"])
            }),
            None if machines.len() == 1 => Some(0),
            None => None,
        };
        if let Some(found) = found {
            return Ok(machines.swap_remove(found));
        }
        let why = match asked {
            Some(asked) => format!("There is no virtual machine {asked:?}."),
            None => "The emulator cannot tell which virtual machine asks.".to_owned(),
        };
        Err(Box::new(refuse(
            StatusCode::NOT_FOUND,
            &format!(
                "{why} Say so by the path, /_imds/VM/metadata/..., or by the header X-Lazuli-Vm: VM. Virtual machines: {}.",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            ),
        )))
    }

    /// Counts this answer and says whether the machine may have it.
    fn within_limit(&self, machine: &Value, of_identity: bool) -> bool {
        if !self.throttling {
            return true;
        }
        let limit = if of_identity { IDENTITY_LIMIT } else { INSTANCE_LIMIT };
        let now = (self.cloud.elapsed)();
        let id = machine["id"].as_str().unwrap_or_default().to_lowercase();
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let times = answered.entry((id, of_identity)).or_default();
        while times.front().is_some_and(|time| *time + LIMIT_WINDOW <= now) {
            times.pop_front();
        }
        if times.len() >= limit {
            return false;
        }
        times.push_back(now);
        true
    }
}

/// Documented: the header against forgery of requests, and the refusal of what a proxy passed on.
fn header_refusal(of_identity: bool, headers: &HeaderMap) -> Option<Response> {
    let metadata = headers.get("metadata").is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"));
    let refusal = if !metadata {
        "Required metadata header not specified"
    } else if headers.contains_key("x-forwarded-for") {
        "The X-Forwarded-For header is not allowed"
    } else {
        return None;
    };
    Some(if of_identity {
        identity::invalid_request(refusal)
    } else {
        refuse(StatusCode::BAD_REQUEST, &format!("Bad request. {refusal}"))
    })
}

/// Documented.
fn bad_version() -> Response {
    let newest: Vec<&str> = VERSIONS.iter().rev().take(3).copied().collect();
    let body = json!({
        "error": "Bad request. api-version is invalid or was not specified in the request. For more information refer to aka.ms/azureimds",
        "newest-versions": newest,
    });
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

/// A part of a document by path: members by name in any letter case, elements by number. A leaf needs
/// `format=text`; a branch in text form is a list of its members (documented).
fn part(document: &Value, path: &str, as_text: bool) -> Response {
    let mut at = document;
    for step in path.split('/').filter(|step| !step.is_empty()) {
        let next = match at {
            Value::Object(members) => {
                members.iter().find(|(name, _)| name.eq_ignore_ascii_case(step)).map(|(_, value)| value)
            }
            Value::Array(elements) => step.parse::<usize>().ok().and_then(|n| elements.get(n)),
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => return refuse(StatusCode::NOT_FOUND, "Not found"),
        }
    }
    let text = |text: String| ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text);
    match at {
        Value::String(leaf) if as_text => text(leaf.clone()).into_response(),
        Value::Object(members) if as_text => {
            let names = members.iter().map(|(name, value)| match value {
                Value::String(_) => name.clone(),
                _ => format!("{name}/"),
            });
            text(names.collect::<Vec<_>>().join("\n")).into_response()
        }
        Value::Array(elements) if as_text => {
            let numbers = (0..elements.len()).map(|number| format!("{number}/"));
            text(numbers.collect::<Vec<_>>().join("\n")).into_response()
        }
        Value::Object(_) | Value::Array(_) => Json(at).into_response(),
        _ => refuse(StatusCode::BAD_REQUEST, "Bad request. A leaf can be had as text only: add format=text"),
    }
}
