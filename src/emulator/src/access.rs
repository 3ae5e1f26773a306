//! Who may use the page and the control interface: programs of this machine, and the page itself. And by which names the
//! planes of Azure are asked.
//!
//! Neither asks for a token, so a web page of another site must be unable to use them through the browser of someone
//! who visits it. A browser tells who speaks; a program (curl, a test) says nothing of the kind and is let in.
//!
//! | check | refused with | keeps out |
//! |---|---|---|
//! | `Host` is one of the [`ServedNames`] | 421 | names that another site points at this address (DNS rebinding) |
//! | `Sec-Fetch-Site` is absent, `none` or `same-origin` | 403 | requests, frames and scripts of other sites, and of other ports of this machine |
//! | `Origin` is absent or the emulator's own | 403 | the same in browsers that do not send `Sec-Fetch-Site` |
//! | a POST has `Content-Type: application/json` | 415 | forms, and scripts that avoid a preflight |
//!
//! A link from another site may open the page and read-only answers as documents of their own. There is no CORS
//! header in any answer, so a preflight always fails.
//!
//! The planes of Azure (login, resource manager, metadata) need a token, a password or a header of their own, which no page of
//! another site can send without a preflight. A page whose own name was pointed at this address can: it is its own site
//! then. So they check `Host` too ([`guard_planes`]). Any address is let in, because a name alone can be pointed elsewhere, and
//! so are names below `localhost`, which no resolver asks the network for (RFC 6761).
//!
//! The blob services take names of Azure's own too, which no other site can point elsewhere (`blob::address`).
//!
//! Another server of a process for people that asks for no token has the same checks by a [`Gate`].

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::json;

use crate::endpoints;
use crate::listener::Line;
use crate::served_names::ServedNames;

/// Why a request is not let in.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    /// It names another host.
    Host(String),
    /// Another site asks.
    OtherSite { header: &'static str, value: String },
    /// It changes something, and is no JSON.
    ContentType(String),
}

/// Lets a request through to the control interface, or says why not.
pub(crate) async fn guard(State(names): State<Arc<ServedNames>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match admit(&names, &parts) {
        Ok(()) => protected(next.run(Request::from_parts(parts, body)).await),
        Err(refusal) => protected(refusal),
    }
}

/// Lets a request that came over a connection through to the planes of Azure, or says why not. One in this process is of
/// this process; a program that sends no `Host` is no browser.
pub(crate) async fn guard_planes(State(names): State<Arc<ServedNames>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let is_connected = parts.extensions.get::<ConnectInfo<Line>>().is_some();
    match endpoints::authority(&parts).filter(|host| is_connected && !names.serve_planes(host)) {
        None => next.run(Request::from_parts(parts, body)).await,
        Some(host) => misdirected(&names, &host),
    }
}

/// The answer to a request that names another host, in the form that clients of Azure read.
fn misdirected(names: &ServedNames, host: &str) -> Response {
    let message = format!(
        "The emulator answers to the host names {names}, to addresses and to names below localhost, and the request names \
         \"{host}\". Use one of them, or start the emulator with --name to add this one."
    );
    let error = json!({ "error": { "code": "MisdirectedRequest", "message": message } });
    (StatusCode::MISDIRECTED_REQUEST, Json(error)).into_response()
}

/// Whether a request may use the page and the control interface; else the answer that it gets.
#[expect(clippy::result_large_err, reason = "an answer, which goes straight to the caller")]
pub(crate) fn admit(names: &ServedNames, parts: &Parts) -> Result<(), Response> {
    let host = endpoints::authority(parts);
    check(names, &parts.method, host.as_deref(), &parts.headers).map_err(|refusal| refusal.answer(names))
}

/// An answer with the headers by which a browser keeps it from other sites.
pub(crate) fn protected(mut response: Response) -> Response {
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Who may use another server that asks for no token: the checks of the table, but that a POST may have every content type
/// for which a browser sends a preflight.
#[derive(Clone, Debug)]
pub struct Gate {
    names: Arc<ServedNames>,
}

/// Why a [`Gate`] does not let a request in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refused {
    /// The answer's HTTP code.
    pub code: StatusCode,
    /// What is wrong and what is allowed.
    pub why: String,
}

impl Gate {
    /// The gate of a server that listens there. It is reached as `localhost` and by its addresses.
    #[must_use]
    pub fn new(listening: SocketAddr) -> Self {
        Self { names: Arc::new(ServedNames::new([listening], &[])) }
    }

    /// Whether a request may come in.
    ///
    /// # Errors
    /// [`Refused`]: a page of another site may have sent it.
    pub fn admit(&self, parts: &Parts) -> Result<(), Refused> {
        let host = endpoints::authority(parts);
        let refusal = check_sender(&self.names, &parts.method, host.as_deref(), &parts.headers)
            .and_then(|()| check_preflight(&parts.method, &parts.headers));
        refusal.map_err(|refusal| {
            let names = &self.names;
            let why = match &refusal {
                Refusal::Host(host) => {
                    format!("this server answers to the host names {names}, and the request names \"{host}\"")
                }
                Refusal::OtherSite { header, value } => {
                    format!("a page of another site asks ({header}: {value}); send the request from a program")
                }
                Refusal::ContentType(kind) => format!(
                    "a POST needs a Content-Type that no page of another site can send, such as application/json, and this \
                     one has \"{kind}\""
                ),
            };
            Refused { code: refusal.code(), why }
        })
    }

    /// An answer with the headers by which a browser keeps it from other sites.
    #[must_use]
    pub fn protected(response: Response) -> Response {
        protected(response)
    }
}

fn check(names: &ServedNames, method: &Method, host: Option<&str>, headers: &HeaderMap) -> Result<(), Refusal> {
    check_sender(names, method, host, headers)?;
    // Before any other method a browser sends a preflight on behalf of another site's page; none succeeds here.
    match essence(headers) {
        (kind, essence) if *method == Method::POST && !essence.eq_ignore_ascii_case("application/json") => {
            Err(Refusal::ContentType(kind.to_owned()))
        }
        _ => Ok(()),
    }
}

/// The content type, as it is and without parameters. Empty: there is none.
fn essence(headers: &HeaderMap) -> (&str, &str) {
    let kind = headers.get(header::CONTENT_TYPE).map_or("", |value| value.to_str().unwrap_or("?"));
    (kind, kind.split(';').next().unwrap_or("").trim())
}

/// A POST has none of the content types for which a browser sends no preflight. Source: the Fetch standard, "CORS-safelisted
/// request-header". A script can also send a body without any.
fn check_preflight(method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
    let (kind, essence) = essence(headers);
    let simple = ["", "?", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];
    match *method == Method::POST && simple.iter().any(|one| essence.eq_ignore_ascii_case(one)) {
        true => Err(Refusal::ContentType(kind.to_owned())),
        false => Ok(()),
    }
}

/// No page of another site, and no page under another name, has sent the request.
fn check_sender(names: &ServedNames, method: &Method, host: Option<&str>, headers: &HeaderMap) -> Result<(), Refusal> {
    let host = host.unwrap_or("");
    if !names.serve(host) {
        return Err(Refusal::Host(host.to_owned()));
    }
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let opened = reads && text("sec-fetch-mode") == Some("navigate") && text("sec-fetch-dest") == Some("document");
    if let Some(site) = text("sec-fetch-site")
        && !matches!(site, "none" | "same-origin")
        && !opened
    {
        return Err(Refusal::OtherSite { header: "Sec-Fetch-Site", value: site.to_owned() });
    }
    if let Some(origin) = text("origin")
        && !origin.split_once("://").is_some_and(|(_, from)| from.eq_ignore_ascii_case(host))
    {
        return Err(Refusal::OtherSite { header: "Origin", value: origin.to_owned() });
    }
    Ok(())
}

impl Refusal {
    fn code(&self) -> StatusCode {
        match self {
            Self::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::OtherSite { .. } => StatusCode::FORBIDDEN,
            Self::ContentType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }

    fn answer(&self, names: &ServedNames) -> Response {
        let why = match self {
            Self::Host(host) => format!(
                "the page and the control interface answer to the host names {names}, and the request names \"{host}\"; \
                 use one of them, or start the emulator with --name to add this one"
            ),
            Self::OtherSite { header, value } => format!(
                "a page of another site asks ({header}: {value}); open the emulator's own page, or send the request from \
                 a program"
            ),
            Self::ContentType(kind) => {
                format!("a POST needs the header Content-Type: application/json, and this one has \"{kind}\"")
            }
        };
        (self.code(), Json(json!({ "error": why }))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> ServedNames {
        ServedNames::new(["127.0.0.1:8181".parse().unwrap()], &[])
    }

    fn checked(method: &Method, host: Option<&str>, given: &[(&'static str, &'static str)]) -> Option<u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        let refusal = check(&names(), method, host, &headers).err()?;
        Some(refusal.answer(&names()).status().as_u16())
    }

    const HOST: Option<&str> = Some("localhost:8181");
    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

    #[test]
    fn programs_and_the_page_itself_are_let_in() {
        for (method, given) in [
            (Method::GET, &[][..]),
            (Method::DELETE, &[]),
            (Method::POST, &[JSON]),
            (Method::POST, &[JSON, ("origin", "http://localhost:8181"), ("sec-fetch-site", "same-origin")]),
            (Method::GET, &[("sec-fetch-site", "none")]),
        ] {
            assert_eq!(checked(&method, HOST, given), None, "{method} {given:?}");
        }
    }

    #[test]
    fn a_host_name_that_is_not_served_is_refused() {
        for host in [None, Some(""), Some("rebound.example:8181"), Some("localhost.example")] {
            assert_eq!(checked(&Method::GET, host, &[]), Some(421), "{host:?}");
        }
    }

    #[test]
    fn another_site_is_refused_whatever_it_sends() {
        for (method, given) in [
            (Method::GET, &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")][..]),
            (Method::GET, &[("sec-fetch-site", "same-site"), ("sec-fetch-dest", "script")]),
            (
                Method::GET,
                &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")],
            ),
            (
                Method::POST,
                &[
                    JSON,
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "navigate"),
                    ("sec-fetch-dest", "document"),
                ],
            ),
            (Method::POST, &[JSON, ("origin", "https://elsewhere.example")]),
            (Method::POST, &[JSON, ("origin", "http://localhost:3000")]),
            (Method::DELETE, &[("origin", "null")]),
        ] {
            assert_eq!(checked(&method, HOST, given), Some(403), "{method} {given:?}");
        }
    }

    #[test]
    fn a_link_of_another_site_may_open_the_page() {
        let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        assert_eq!(checked(&Method::GET, HOST, &link), None);
    }

    #[test]
    fn a_post_is_json() {
        for given in [&[][..], &[("content-type", "text/plain")], &[("content-type", "application/json-patch+json")]] {
            assert_eq!(checked(&Method::POST, HOST, given), Some(415), "{given:?}");
        }
    }

    #[test]
    fn a_gate_lets_in_programs_and_refuses_what_another_site_can_send() {
        let gate = Gate::new("127.0.0.1:8182".parse().unwrap());
        let admitted = |method: Method, given: &[(&str, &str)]| {
            let request = given
                .iter()
                .fold(http::Request::builder().method(method), |request, (name, value)| request.header(*name, *value));
            gate.admit(&request.body(()).unwrap().into_parts().0).map_err(|refused| refused.code.as_u16())
        };
        const HERE: (&str, &str) = ("host", "127.0.0.1:8182");
        for (method, given) in [
            (Method::GET, &[HERE][..]),
            (Method::GET, &[("host", "localhost:8182")]),
            (Method::POST, &[HERE, JSON]),
            (Method::POST, &[HERE, ("content-type", "application/vnd.kubernetes.protobuf")]),
            (Method::PATCH, &[HERE, ("content-type", "application/merge-patch+json")]),
            (Method::DELETE, &[HERE]),
        ] {
            assert_eq!(admitted(method.clone(), given), Ok(()), "{method} {given:?}");
        }
        for (method, given, code) in [
            (Method::GET, &[("host", "evil.example")][..], 421),
            (Method::GET, &[], 421),
            (Method::GET, &[HERE, ("sec-fetch-site", "cross-site")], 403),
            (Method::DELETE, &[HERE, ("origin", "http://127.0.0.1:8181")], 403),
            (Method::POST, &[HERE], 415),
            (Method::POST, &[HERE, ("content-type", "Text/Plain; charset=utf-8")], 415),
            (Method::POST, &[HERE, ("content-type", "multipart/form-data; boundary=x")], 415),
        ] {
            assert_eq!(admitted(method.clone(), given), Err(code), "{method} {given:?}");
        }
    }
}
