//! The HTTP servers: one for probes, one for scrapes, and any other by TLS.
//!
//! | server | path | answer |
//! |---|---|---|
//! | health | `/healthz` | 200 while the process can answer at all: kubelet restarts it otherwise |
//! | health | `/readyz` | 200 or 503, and the conditions in words |
//! | metrics | `/metrics` | OpenMetrics text, or with names of the Go projects the text format 0.0.4, to clients with the right to it ([`Protection`]) |
//! | [`Server::tls`] | those of its router | what the router answers |
//!
//! Any client that reaches a port can connect. A connection therefore serves one request, the TLS handshake, the
//! request's head, its body and the whole connection have a time-out, and the number of connections is limited: one that
//! sends no request gives way to one that does (`places`). Each server has its own limit: clients that fill the port for
//! metrics delay no probe.

mod access;
mod certificate;
mod listen;
mod places;
mod received;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::map_request;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::go_names::{self, GoNames};
use super::readiness::Readiness;

pub use access::{BearerToken, Review, Reviewer, Reviewing};
pub use certificate::{CertificateError, CertificateFiles, ServingCertificate};
pub use listen::{Listen, ListenError};

use access::{Decision, Gate};
use places::{CONNECTIONS, Place, Places};
use received::Received;

/// How long requests under way may take after the server began to stop. kubelet's probes and scrapes
/// are far shorter.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// How long a client may take for the TLS handshake, again to send the head of its request, and again for its body.
/// kubelet and Prometheus do all at once.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// How long one connection may take altogether: more than a scrape's usual time-out of 10 s.
const CONNECTION_WITHIN: Duration = Duration::from_secs(30);

/// How many bytes the head of a request may have. A token of a service account has some 1,200.
const HEAD_LIMIT: usize = 32 * 1024;

/// How long to wait after the system could not hand out a connection, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Source: OpenMetrics 1.0, section on the text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Who may read metrics, and by which transport.
#[derive(Debug)]
pub enum Protection {
    /// Every client, by plain HTTP. For a loopback address.
    None,
    /// Every client, by TLS.
    Tls(ServingCertificate),
    /// By TLS, clients with a bearer token that the reviewer allows.
    TlsAndReview(ServingCertificate, Reviewer),
}

/// What `/metrics` shows.
#[derive(Debug)]
pub struct Page {
    registry: Registry,
    go: GoNames,
}

impl From<Registry> for Page {
    fn from(registry: Registry) -> Self {
        Self { registry, go: GoNames::default() }
    }
}

impl Page {
    /// These metrics, and where `go` is on, those of the Go projects' names after them. One page has one format, so the whole
    /// page is then of the text format 0.0.4.
    pub fn new(registry: Registry, go: GoNames) -> Self {
        Self { registry, go }
    }

    /// The type of the page and the page.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub fn make(&self) -> Result<(&'static str, String), std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        if !self.go.is_on() {
            return Ok((OPEN_METRICS, text));
        }
        let mut text = go_names::from_open_metrics(&text);
        self.go.write(&mut text);
        Ok((go_names::CONTENT_TYPE, text))
    }
}

/// The address that a request comes from. Each request that a [`Server`] hands to its router has it as an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(pub IpAddr);

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken, is not of this machine, or is forbidden.
    #[error("cannot listen at {listen} for {what}")]
    Bind {
        /// As configured.
        listen: Listen,
        /// What would be served there.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The TLS library refuses the configuration.
    #[error("cannot serve {what} by TLS")]
    Tls {
        /// What would be served.
        what: &'static str,
        /// What the TLS library said.
        #[source]
        source: rustls::Error,
    },
}

/// A server that has its port and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    what: &'static str,
    router: Router,
    tls: Option<(Arc<ServerConfig>, ServingCertificate)>,
    of_one_source: usize,
}

impl Server {
    /// Takes the port for `/healthz` and `/readyz`, so that a conflict stops the start and not a later moment.
    ///
    /// # Errors
    /// [`ServeError::Bind`].
    pub async fn health(listen: Listen, readiness: Readiness) -> Result<Self, ServeError> {
        let router =
            Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(readyz)).with_state(readiness);
        Self::bind(listen, "health checks", router).await
    }

    /// Takes the port for `/metrics`. The registry was filled before; the metrics in it go on changing.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn metrics(listen: Listen, page: impl Into<Page>, protection: Protection) -> Result<Self, ServeError> {
        let (certificate, gate) = match protection {
            Protection::None => (None, None),
            Protection::Tls(certificate) => (Some(certificate), None),
            Protection::TlsAndReview(certificate, reviewer) => (Some(certificate), Some(Arc::new(Gate::new(reviewer)))),
        };
        let router = Router::new().route("/metrics", get(metrics)).with_state((Arc::new(page.into()), gate));
        match certificate {
            Some(certificate) => Self::tls(listen, "metrics", router, certificate).await,
            None => Self::bind(listen, "metrics", router).await,
        }
    }

    /// Takes the port for what a router answers, by TLS. `what` names it in logs and errors.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn tls(
        listen: Listen,
        what: &'static str,
        router: Router,
        certificate: ServingCertificate,
    ) -> Result<Self, ServeError> {
        let config = certificate.server_config().map_err(|source| ServeError::Tls { what, source })?;
        Ok(Self { tls: Some((Arc::new(config), certificate)), ..Self::bind(listen, what, router).await? })
    }

    async fn bind(listen: Listen, what: &'static str, router: Router) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Bind { listen, what, source };
        let listener = listen.bind().await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, what, router, tls: None, of_one_source: CONNECTIONS })
    }

    /// The same server with a limit on the connections of one address: for a port that many machines use, none of them much.
    #[must_use]
    pub fn with_most_of_one_source(self, connections: usize) -> Self {
        Self { of_one_source: connections.max(1), ..self }
    }

    /// The address in use; with port 0 the one the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`, then finishes the requests under way, for at most five seconds.
    pub async fn run(self, stop: CancellationToken) {
        let Self { listener, what, router, tls, of_one_source, .. } = self;
        let places = Places::new(of_one_source);
        let (config, certificate) = tls.unzip();
        let connections = TaskTracker::new();
        let accepting = accept(&listener, what, router, config.map(TlsAcceptor::from), &places, &connections, &stop);
        let renewing = async {
            match certificate {
                Some(certificate) => certificate.keep(what).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = accepting => {}
            () = renewing => {}
        }
        drop(listener);
        connections.close();
        let _ = tokio::time::timeout(STOP_WITHIN, connections.wait()).await;
    }
}

/// Accepts connections and serves each in a task of its own, until dropped.
async fn accept(
    listener: &TcpListener,
    what: &'static str,
    router: Router,
    acceptor: Option<TlsAcceptor>,
    places: &Places,
    connections: &TaskTracker,
    stop: &CancellationToken,
) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let Some(place) = places.take(from.ip()).await else { continue };
                let place = Arc::new(place);
                let service = of_connection(router.clone(), Peer(from.ip().to_canonical()), place.clone());
                let connection = connection(stream, what, acceptor.clone(), service, stop.clone());
                connections.spawn(async move {
                    // A client that is too slow is cut off.
                    tokio::select! {
                        _ = tokio::time::timeout(CONNECTION_WITHIN, connection) => {}
                        () = place.cut() => tracing::debug!(%from, "a connection for {what} gives way to another one"),
                    }
                });
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for {what}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The router of one connection: its requests say where they come from, and their bodies have to arrive in time.
fn of_connection(router: Router, peer: Peer, place: Arc<Place>) -> TowerToHyperService<Router> {
    TowerToHyperService::new(router.layer(map_request(move |mut request: Request| {
        request.extensions_mut().insert(peer);
        let request = request.map(|body| Body::new(Received::new(body, HEAD_WITHIN, place.clone())));
        std::future::ready(request)
    })))
}

/// Serves one request, after the TLS handshake where there is TLS.
async fn connection(
    stream: TcpStream,
    what: &'static str,
    acceptor: Option<TlsAcceptor>,
    service: TowerToHyperService<Router>,
    stop: CancellationToken,
) {
    let Some(acceptor) = acceptor else { return serve(stream, service, stop).await };
    let handshake = tokio::time::timeout(HEAD_WITHIN, acceptor.accept(stream));
    match stop.run_until_cancelled(handshake).await {
        Some(Ok(Ok(stream))) => serve(stream, service, stop).await,
        // As with what fails below, the client is at fault: one that does not trust the certificate, too.
        Some(Ok(Err(error))) => tracing::debug!(%error, "a TLS handshake for {what} failed"),
        Some(Err(_)) | None => {}
    }
}

/// Serves one request. A connection without one ends when the server stops.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    service: TowerToHyperService<Router>,
    stop: CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_LIMIT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // What fails here is the client's affair: it went away, or sent something that is no HTTP.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Whether only the connection that was about to be accepted is lost.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn readyz(State(readiness): State<Readiness>) -> Response {
    let (ready, text) = readiness.describe();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, text).into_response()
}

async fn metrics(State((page, gate)): State<(Arc<Page>, Option<Arc<Gate>>)>, headers: HeaderMap) -> Response {
    if let Some(gate) = gate
        && let Some(refusal) = refusal(gate.decide(&headers).await)
    {
        return refusal;
    }
    match page.make() {
        Ok((kind, text)) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        // Only a metric whose own encoding fails gets here; half an answer would look like a whole one.
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "a metric cannot be encoded\n").into_response(),
    }
}

/// What a client hears that may not read metrics; `None` for one that may. Source of the challenge: RFC 6750,
/// section 3.
fn refusal(decision: Decision) -> Option<Response> {
    let challenge = |challenge: &'static str| [(header::WWW_AUTHENTICATE, challenge)];
    Some(match decision {
        Decision::Reviewed(Review::Allowed) => return None,
        Decision::NoToken => {
            let text = "send a token of this cluster as Authorization: Bearer TOKEN\n";
            (StatusCode::UNAUTHORIZED, challenge("Bearer"), text).into_response()
        }
        Decision::Reviewed(Review::Unauthenticated) => {
            let text = "the token is not valid in this cluster, or has expired\n";
            (StatusCode::UNAUTHORIZED, challenge("Bearer error=\"invalid_token\""), text).into_response()
        }
        Decision::Reviewed(Review::Forbidden { user }) => {
            let text = format!("{user} may not get the path /metrics: it needs a ClusterRole with that right\n");
            (StatusCode::FORBIDDEN, text).into_response()
        }
        // The cause is in the log of this process: it may name addresses.
        Decision::Unknown(_) => {
            let text = "the cluster does not answer whether this token may read metrics; try again\n";
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    })
}
