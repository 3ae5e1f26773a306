//! The HTTP server for probes and scrapes.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 while the process can answer at all: kubelet restarts it otherwise |
//! | `/readyz` | 200 or 503, and the conditions in words |
//! | `/metrics` | OpenMetrics text |
//!
//! Any client that reaches the port can connect. A connection therefore serves one request, the request's head and the
//! whole connection have a time-out, and the number of connections is limited.

use std::fmt;
use std::io;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::readiness::Readiness;

/// How long requests under way may take after the server was told to stop. kubelet's probes and scrapes
/// are far shorter.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// How long a client may take to send the head of its request. kubelet and Prometheus send it at once.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// How long one connection may take altogether: more than a scrape's usual time-out of 10 s.
const CONNECTION_WITHIN: Duration = Duration::from_secs(30);

/// How many connections are served at a time; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 128;

/// How long to wait after the system could not hand out a connection, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Source: OpenMetrics 1.0, section on the text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where to listen: `127.0.0.1:9600`, `[::1]:9600`, or `:9600` for every address of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// One address.
    At(SocketAddr),
    /// Every address, IPv6 and IPv4.
    Everywhere(u16),
}

/// Why a text does not say where to listen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an address to listen at, expected HOST-ADDRESS:PORT or :PORT")]
pub struct ListenError {
    text: String,
    #[source]
    source: Option<AddrParseError>,
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        let error = |source| ListenError { text: text.to_owned(), source };
        if let Some(port) = text.strip_prefix(':') {
            return port.parse().map(Self::Everywhere).map_err(|_| error(None));
        }
        text.parse().map(Self::At).map_err(|source| error(Some(source)))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Everywhere(port) => write!(f, ":{port}"),
        }
    }
}

/// What the server shows.
#[derive(Debug, Clone)]
pub struct Shown {
    /// For `/metrics`. Filled before the server starts; the metrics in it go on changing.
    pub registry: Arc<Registry>,
    /// For `/readyz`.
    pub readiness: Readiness,
}

/// Why the server failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken, not ours, or forbidden.
    #[error("cannot listen at {listen} for health checks and metrics")]
    Bind {
        /// As configured.
        listen: Listen,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A server that has its port and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shown: Shown,
}

impl Server {
    /// Takes the port, so that a conflict stops the start and not a later moment.
    ///
    /// # Errors
    /// [`ServeError::Bind`].
    pub async fn bind(listen: Listen, shown: Shown) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Bind { listen, source };
        let listener = match listen {
            Listen::At(address) => TcpListener::bind(address).await,
            Listen::Everywhere(port) => {
                let any = |ip: IpAddr| SocketAddr::new(ip, port);
                match TcpListener::bind(any(Ipv6Addr::UNSPECIFIED.into())).await {
                    // The kernel was started without IPv6.
                    Err(error) if no_ipv6(&error) => TcpListener::bind(any(Ipv4Addr::UNSPECIFIED.into())).await,
                    other => other,
                }
            }
        }
        .map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, shown })
    }

    /// The address in use; with port 0 the one the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`, then finishes the requests under way, for at most five seconds.
    pub async fn run(self, stop: CancellationToken) {
        let service = TowerToHyperService::new(router(self.shown));
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let connections = TaskTracker::new();
        let accepting = async {
            loop {
                let Ok(place) = places.clone().acquire_owned().await else { return };
                match self.listener.accept().await {
                    Ok((stream, _)) => {
                        let connection = connection(stream, service.clone(), stop.clone());
                        connections.spawn(async move {
                            let _place = place;
                            // A client that is too slow is cut off.
                            let _ = tokio::time::timeout(CONNECTION_WITHIN, connection).await;
                        });
                    }
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection for health checks and metrics");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        stop.run_until_cancelled(accepting).await;
        drop(self.listener);
        connections.close();
        let _ = tokio::time::timeout(STOP_WITHIN, connections.wait()).await;
    }
}

/// Serves one request. A connection without one ends when the server is told to stop.
async fn connection(stream: TcpStream, service: TowerToHyperService<Router>, stop: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
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

fn no_ipv6(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || error.raw_os_error() == Some(nix::errno::Errno::EAFNOSUPPORT as i32)
}

fn router(shown: Shown) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(shown)
}

async fn readyz(State(shown): State<Shown>) -> Response {
    let (ready, text) = shown.readiness.describe();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, text).into_response()
}

async fn metrics(State(shown): State<Shown>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &shown.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        // Only a metric whose own encoding fails gets here; half an answer would look like a whole one.
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "a metric cannot be encoded\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    async fn request(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("is sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("is answered");
        text
    }

    #[tokio::test]
    async fn probes_and_metrics_are_served_until_the_stop() {
        let mut registry = Registry::default();
        let attached: Counter = Counter::default();
        registry.register("lazuli_attached", "Disks attached", attached.clone());
        let readiness = Readiness::new();
        let azure = readiness.condition("azure");
        let shown = Shown { registry: Arc::new(registry), readiness };
        let listen = "127.0.0.1:0".parse().expect("is an address");
        let server = Server::bind(listen, shown).await.expect("binds");
        let (address, stop) = (server.address(), CancellationToken::new());
        let running = tokio::spawn(server.run(stop.clone()));

        assert!(request(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let answer = request(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.ends_with("[-] azure: starting\nnot ready: azure\n"), "{answer}");
        azure.ready("token valid");
        assert!(request(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        // Not ready any more concerns /readyz alone: a restart would cure nothing.
        azure.not_ready("no token");
        assert!(request(address, "/readyz").await.starts_with("HTTP/1.1 503"));
        assert!(request(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        attached.inc();
        let answer = request(address, "/metrics").await;
        assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"), "{answer}");
        assert!(answer.contains("lazuli_attached_total 1\n"), "{answer}");
        assert!(request(address, "/other").await.starts_with("HTTP/1.1 404"));

        stop.cancel();
        running.await.expect("no panic");
        assert!(TcpStream::connect(address).await.is_err());
    }

    /// A server on loopback that shows this registry.
    async fn serving(registry: Registry) -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let shown = Shown { registry: Arc::new(registry), readiness: Readiness::new() };
        let server = Server::bind("127.0.0.1:0".parse().expect("is an address"), shown).await.expect("binds");
        let (address, stop) = (server.address(), CancellationToken::new());
        let running = tokio::spawn(server.run(stop.clone()));
        (address, stop, running)
    }

    /// Reads what comes until the server closes; `None` when it does not within the time.
    async fn read_to_end(stream: &mut TcpStream, within: Duration) -> Option<usize> {
        let mut bytes = Vec::new();
        // A connection that is reset is closed too.
        tokio::time::timeout(within, stream.read_to_end(&mut bytes)).await.ok().map(|_| bytes.len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_no_request_is_cut_off_and_keeps_no_probe_waiting() {
        let (address, ..) = serving(Registry::default()).await;
        let mut silent = Vec::new();
        for half in 0..2 * CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.expect("connects");
            if half % 2 == 1 {
                stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n").await.expect("is sent");
            }
            silent.push(stream);
        }
        let answer = tokio::time::timeout(HEAD_WITHIN * 3, request(address, "/healthz")).await;
        assert!(answer.expect("is answered in time").starts_with("HTTP/1.1 200"));
        for stream in &mut silent {
            assert!(read_to_end(stream, HEAD_WITHIN * 3).await.is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_its_answer_is_cut_off() {
        // More than the kernel takes into its buffers.
        let mut registry = Registry::default();
        for large in 0..64 {
            registry.register(format!("large_{large}"), "x".repeat(1 << 20), Counter::<u64>::default());
        }
        let (address, stop, running) = serving(registry).await;
        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("is sent");
        stream.readable().await.expect("the answer begins");
        tokio::time::sleep(CONNECTION_WITHIN * 2).await;
        let read = read_to_end(&mut stream, Duration::from_secs(1)).await.expect("the server has closed it");
        assert!(read < 64 << 20, "{read}");
        stop.cancel();
        running.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_one_request_and_a_silent_one_does_not_delay_the_stop() {
        let (address, stop, running) = serving(Registry::default()).await;
        let mut stream = TcpStream::connect(address).await.expect("connects");
        let twice = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2);
        stream.write_all(twice.as_bytes()).await.expect("is sent");
        let mut answers = String::new();
        let _ = stream.read_to_string(&mut answers).await;
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 1, "{answers}");
        let _silent = TcpStream::connect(address).await.expect("connects");
        stop.cancel();
        tokio::time::timeout(STOP_WITHIN * 2, running).await.expect("ends").expect("no panic");
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_that_names_the_address() {
        let shown = Shown { registry: Arc::new(Registry::default()), readiness: Readiness::new() };
        let free = "127.0.0.1:0".parse().expect("is an address");
        let first = Server::bind(free, shown.clone()).await.expect("binds");
        let taken = Listen::At(first.address());
        let error = Server::bind(taken, shown).await.expect_err("is taken");
        assert_eq!(error.to_string(), format!("cannot listen at {taken} for health checks and metrics"));
    }

    #[test]
    fn an_address_may_leave_out_the_host() {
        assert_eq!(":9600".parse(), Ok(Listen::Everywhere(9600)));
        assert_eq!("[::1]:9600".parse::<Listen>().expect("parses").to_string(), "[::1]:9600");
        for text in ["9600", "host:9600", ":", ":99999", ""] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }
}
