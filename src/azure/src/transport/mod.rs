//! The one seam to the world: requests go to logical origins, bytes come back.
//!
//! One concrete HTTP client with a connection pool, HTTP/2 where the server offers it, time-outs, no redirects, and a
//! table of [`Routes`]. A second constructor hands requests to an in-process service, for simulations. Each request
//! carries an id of its own, which Azure's support asks for, and the product's name. The transport repeats nothing and knows no tokens; what it does know is whether a request that failed can have reached the
//! server ([`TransportError::was_sent`]), and everything above rests on that.
//!
//! Proxy variables (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`) are honoured for real origins and never for
//! loopback, routed or metadata targets. `SSL_CERT_FILE` and `SSL_CERT_DIR` replace the system's root certificates.

mod routes;
#[cfg(test)]
mod tests;

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{AsyncReadExt, FutureExt, future::BoxFuture};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use tower::{Service, ServiceExt, util::BoxCloneSyncService};
use url::Url;

pub use routes::{ForeignLink, IMDS_ORIGIN, RouteError, Routes};
pub(crate) use routes::{is_loopback, origin};

type AnyError = Box<dyn StdError + Send + Sync>;
type InProcess = BoxCloneSyncService<Request<Full<Bytes>>, Response<Bytes>, AnyError>;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a connection that carries requests is asked whether it still lives.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long an answer may take, body and all.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest answer that is read: a subscription's whole list of sizes is a quarter of this.
const LARGEST_ANSWER: usize = 64 << 20;
/// How the product names itself to Azure.
const USER_AGENT: &str = concat!("lazuli/", env!("CARGO_PKG_VERSION"));

/// Options of encryption on the wire.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Root certificates besides the system's, PEM: the private CA of an Azure Stack, or of a test.
    pub extra_roots_pem: Vec<u8>,
}

/// The header with a request's own id (source: the resource manager's common headers; the other services ignore it).
const REQUEST_ID: &str = "x-ms-client-request-id";

/// A client of HTTP; clones share the pool.
#[derive(Clone)]
pub struct Transport(Arc<Inner>);

struct Inner {
    routes: Routes,
    wire: Wire,
    user_agent: HeaderValue,
}

#[derive(Clone)]
enum Wire {
    Http {
        /// For loopback, routed and metadata targets.
        direct: reqwest::Client,
        /// For everything else; honours the proxy variables.
        outward: reqwest::Client,
    },
    InProcess(InProcess),
}

/// The HTTP client could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client could not be made; are the root certificates readable (SSL_CERT_FILE)?")]
pub struct SetupError(#[source] reqwest::Error);

/// A request that got no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransportError {
    /// It never left: the name did not resolve, the connection or its encryption did not come about.
    #[error("no connection to {origin}")]
    NotSent {
        /// Where it was to go.
        origin: String,
        /// Why it did not.
        #[source]
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// It left, or may have, and no whole answer came: the server may have acted on it.
    #[error("the answer of {origin} was lost")]
    Lost {
        /// Where it went.
        origin: String,
        /// What happened to the answer.
        #[source]
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// As [`TransportError::Lost`]: no answer in the time it is given.
    #[error("no answer from {origin} within {} s", after.as_secs())]
    TimedOut {
        /// Where it went.
        origin: String,
        /// How long it was waited for.
        after: Duration,
    },
}

impl TransportError {
    /// Whether the server may have seen the request.
    pub fn was_sent(&self) -> bool {
        !matches!(self, Self::NotSent { .. })
    }
}

impl Transport {
    /// A client of real HTTP.
    ///
    /// # Errors
    /// When no root certificates can be read.
    pub fn new(routes: Routes, tls: &Tls) -> Result<Self, SetupError> {
        // The one process-wide setting rustls has. `main` makes it too; the first one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            let mut builder = reqwest::Client::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                // One HTTP/2 connection carries every call: one that has died silently must not take them all along.
                .http2_keep_alive_interval(KEEP_ALIVE)
                .http2_keep_alive_timeout(CONNECT_TIMEOUT)
                .tcp_keepalive(KEEP_ALIVE)
                .redirect(reqwest::redirect::Policy::none());
            for roots in [tls.extra_roots_pem.as_slice(), routes.extra_roots_pem()] {
                if !roots.is_empty() {
                    builder = builder.tls_certs_merge(reqwest::Certificate::from_pem_bundle(roots)?);
                }
            }
            Ok(builder)
        };
        let make = |proxied: bool| {
            let builder: reqwest::ClientBuilder = builder()?;
            if proxied { builder.build() } else { builder.no_proxy().build() }
        };
        let direct = make(false).map_err(SetupError)?;
        // Reading the root certificates is slow; a second pool is only needed when there is a proxy to use.
        let outward = if proxy_is_configured() { make(true).map_err(SetupError)? } else { direct.clone() };
        Ok(Self::named(routes, Wire::Http { direct, outward }))
    }

    /// A client of a service in this process, which sees requests as an HTTP/1 server does: the path and query of
    /// the routed URL, and a `Host` header. A request once sent is carried out, whether or not its caller waits.
    pub fn in_process<S, B>(routes: Routes, service: S) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<AnyError>,
        B: BodyExt + Send + 'static,
        B::Data: Send,
        B::Error: Into<AnyError>,
    {
        let service = tower::service_fn(move |request| {
            let service = service.clone();
            async move {
                let response = service.oneshot(request).await.map_err(Into::into)?;
                let (head, body) = response.into_parts();
                let body = Limited::new(body, LARGEST_ANSWER).collect().await?.to_bytes();
                Ok(Response::from_parts(head, body))
            }
        });
        Self::named(routes, Wire::InProcess(BoxCloneSyncService::new(service)))
    }

    fn named(routes: Routes, wire: Wire) -> Self {
        Self(Arc::new(Inner { routes, wire, user_agent: HeaderValue::from_static(USER_AGENT) }))
    }

    /// The same client, whose requests name another program too: this text behind the product's own name. What cannot
    /// stand in a header is left out.
    #[must_use]
    pub fn with_user_agent_suffix(&self, suffix: &str) -> Self {
        let suffix: String = suffix.chars().filter(|c| matches!(c, ' '..='~')).collect();
        let user_agent = HeaderValue::try_from(format!("{USER_AGENT} {}", suffix.trim()).trim_end())
            .unwrap_or(HeaderValue::from_static(USER_AGENT));
        Self(Arc::new(Inner { routes: self.0.routes.clone(), wire: self.0.wire.clone(), user_agent }))
    }

    /// The routes.
    pub fn routes(&self) -> &Routes {
        &self.0.routes
    }

    /// Where a request for a logical URL really goes, for messages: scheme, host, port and path. Without the query, which may
    /// hold a signature.
    pub fn place(&self, url: &Url) -> String {
        let physical = self.0.routes.physical(url);
        let target = physical.as_ref().unwrap_or(url);
        format!("{}{}", origin(target), target.path())
    }

    /// Sends one request to a logical URL and reads the whole answer, whatever its status. Never repeats it.
    ///
    /// # Errors
    /// When there is no whole answer within a minute.
    pub async fn send(
        &self,
        method: Method,
        url: &Url,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Bytes>, TransportError> {
        headers.entry(header::USER_AGENT).or_insert_with(|| self.0.user_agent.clone());
        if !headers.contains_key(REQUEST_ID)
            && let Ok(id) = HeaderValue::try_from(uuid::Uuid::new_v4().to_string())
        {
            headers.insert(REQUEST_ID, id);
        }
        let routed = self.0.routes.physical(url);
        let target = routed.as_ref().unwrap_or(url);
        let answer: BoxFuture<'_, _> = match &self.0.wire {
            Wire::Http { direct, outward } => {
                let client = if goes_direct(url, routed.is_some()) { direct } else { outward };
                over_http(client, method, target, headers, body).boxed()
            }
            Wire::InProcess(service) => in_process(service.clone(), method, target, headers, body).boxed(),
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(TransportError::TimedOut { origin: origin(target), after: REQUEST_TIMEOUT }),
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire = match self.0.wire {
            Wire::Http { .. } => "http",
            Wire::InProcess(_) => "in process",
        };
        f.debug_struct("Transport").field("wire", &wire).field("routes", &self.0.routes).finish()
    }
}

/// Whether no proxy may stand between: it would see this machine's own traffic, or ask its own machine's metadata.
fn goes_direct(url: &Url, routed: bool) -> bool {
    routed || is_loopback(url) || origin(url) == IMDS_ORIGIN
}

fn proxy_is_configured() -> bool {
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

async fn over_http(
    client: &reqwest::Client,
    method: Method,
    target: &Url,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response<Bytes>, TransportError> {
    // The URL may hold a signature; errors name the origin instead.
    let lost =
        |error: reqwest::Error| TransportError::Lost { origin: origin(target), source: Arc::new(error.without_url()) };
    let request = client.request(method, target.clone()).headers(headers).body(body);
    let mut answer = match request.send().await {
        Ok(answer) => answer,
        Err(error) if error.is_connect() || error.is_builder() => {
            return Err(TransportError::NotSent { origin: origin(target), source: Arc::new(error.without_url()) });
        }
        Err(error) => return Err(lost(error)),
    };
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = answer.status();
    *response.headers_mut() = std::mem::take(answer.headers_mut());
    let mut collected = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(lost)? {
        if collected.len() + chunk.len() > LARGEST_ANSWER {
            return Err(TransportError::Lost {
                origin: origin(target),
                source: Arc::from(AnyError::from("the answer is larger than 64 MiB")),
            });
        }
        collected.extend_from_slice(&chunk);
    }
    *response.body_mut() = collected.freeze();
    Ok(response)
}

async fn in_process(
    service: InProcess,
    method: Method,
    target: &Url,
    mut headers: HeaderMap,
    body: Bytes,
) -> Result<Response<Bytes>, TransportError> {
    let origin = origin(target);
    let not_sent = |error: http::Error| TransportError::NotSent { origin: origin.clone(), source: Arc::new(error) };
    let path_and_query = match target.query() {
        Some(query) => format!("{}?{query}", target.path()),
        None => target.path().to_owned(),
    };
    let host = target.as_str().split('/').nth(2).unwrap_or_default();
    headers.insert(header::HOST, HeaderValue::from_str(host).map_err(|e| not_sent(e.into()))?);
    if !body.is_empty() || matches!(method, Method::POST | Method::PUT | Method::PATCH) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let mut request = Request::builder().method(method).uri(path_and_query).body(Full::new(body)).map_err(not_sent)?;
    *request.headers_mut() = headers;
    // A task of its own, for a server does not stop because its client went away.
    match tokio::spawn(service.oneshot(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(TransportError::Lost { origin, source: Arc::from(source) }),
        Err(panic) => Err(TransportError::Lost { origin, source: Arc::new(panic) }),
    }
}

/// The SDK's credential and storage clients travel the same way.
#[async_trait::async_trait]
impl azure_core::http::HttpClient for Transport {
    async fn execute_request(
        &self,
        request: &azure_core::http::Request,
    ) -> azure_core::Result<azure_core::http::AsyncRawResponse> {
        use azure_core::{
            Error,
            error::ErrorKind,
            http::{AsyncRawResponse, Body, StatusCode, headers::Headers},
        };
        let mut headers = HeaderMap::new();
        for (name, value) in request.headers().iter() {
            let invalid = || {
                Error::with_message(ErrorKind::DataConversion, format!("the header {} cannot be sent", name.as_str()))
            };
            let (name, mut value) = (
                http::HeaderName::from_bytes(name.as_str().as_bytes()).map_err(|_| invalid())?,
                HeaderValue::from_str(value.as_str()).map_err(|_| invalid())?,
            );
            // So that nothing prints it.
            value.set_sensitive(name == header::AUTHORIZATION);
            headers.insert(name, value);
        }
        let method = Method::from_bytes(request.method().as_str().as_bytes())
            .map_err(|error| Error::new(ErrorKind::DataConversion, error))?;
        let body = match request.body().clone() {
            Body::Bytes(bytes) => bytes,
            Body::SeekableStream(mut stream) => {
                let mut whole = Vec::new();
                stream.read_to_end(&mut whole).await?;
                whole.into()
            }
        };
        let answer = self.send(method, request.url(), headers, body).await.map_err(|error| {
            let kind = if error.was_sent() { ErrorKind::Io } else { ErrorKind::Connection };
            Error::new(kind, error)
        })?;
        let (head, body) = answer.into_parts();
        let mut headers = Headers::new();
        for (name, value) in &head.headers {
            if let Ok(value) = value.to_str() {
                headers.insert(name.as_str().to_owned(), value.to_owned());
            }
        }
        Ok(AsyncRawResponse::from_bytes(StatusCode::from(head.status.as_u16()), headers, body))
    }
}
