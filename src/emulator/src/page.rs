//! The page at `/`: what exists, what runs and what was asked, for an engineer's second screen.
//!
//! It is a few files without a framework and without anything from elsewhere, and works without a network. Its script
//! asks [`crate::overview`] once a second and writes text nodes only, so that nothing a client sent becomes markup. What a
//! person orders there (incidents, a machine that stops) it asks of the control interface, as any program would.
//!
//! `GET /` is Azure's too. The page answers a browser: no `Authorization`, and `text/html` among what it accepts. Any
//! other request of `/` goes to the resource manager.

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::get};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderName, Method};
use serde::Deserialize;

use crate::access;
use crate::control::Control;
use crate::overview::{self, Overview, Seen};
use crate::served_names::ServedNames;

/// The page may load its own files and ask its own server, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The answer to a request of `/` that is for the page; none to one that is Azure's.
pub(crate) fn answer(names: &ServedNames, parts: &Parts) -> Option<Response> {
    is_wanted(parts).then(|| match access::admit(names, parts) {
        Ok(()) => access::protected(file("text/html; charset=utf-8", include_str!("page/page.html"))),
        Err(refusal) => access::protected(refusal),
    })
}

fn is_wanted(parts: &Parts) -> bool {
    let accepts = parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    matches!(parts.method, Method::GET | Method::HEAD)
        && parts.uri.path() == "/"
        && !parts.headers.contains_key(AUTHORIZATION)
        && accepts.split(',').any(|kind| kind.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case("text/html"))
}

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// What the page loads, by its path below `/_emulator`.
pub(crate) const FILES: [(&str, &str, &str); 5] = [
    ("/page.css", CSS, include_str!("page/page.css")),
    ("/page.js", SCRIPT, include_str!("page/page.js")),
    ("/page-words.js", SCRIPT, include_str!("page/words.js")),
    ("/page-network.js", SCRIPT, include_str!("page/network.js")),
    ("/page-incidents.js", SCRIPT, include_str!("page/incidents.js")),
];

/// What the page is made of, and what it asks; below `/_emulator`.
pub(crate) fn router() -> Router<Control> {
    FILES
        .into_iter()
        .fold(Router::new(), |router, (path, kind, text)| {
            router.route(path, get(move || async move { file(kind, text) }))
        })
        .route("/overview", get(show))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers: [(HeaderName, &str); 2] = [(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, POLICY)];
    (headers, text).into_response()
}

/// What `GET /_emulator/overview` takes.
#[derive(Deserialize)]
struct Asked {
    revision: Option<u64>,
    #[serde(default)]
    after: u64,
}

async fn show(State(control): State<Control>, Query(asked): Query<Asked>) -> Json<Overview> {
    Json(overview::overview(&control.shared, Seen { revision: asked.revision, call: asked.after }))
}
