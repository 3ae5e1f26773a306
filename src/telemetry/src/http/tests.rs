//! The servers over real sockets, and over real TLS where they have it.

use std::path::PathBuf;

use prometheus_client::metrics::counter::Counter;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::places::CONNECTIONS;
use super::*;

type Running = (SocketAddr, CancellationToken, JoinHandle<()>);

fn loopback() -> Listen {
    "127.0.0.1:0".parse().expect("is an address")
}

fn start(server: Server) -> Running {
    let (address, stop) = (server.address(), CancellationToken::new());
    let running = tokio::spawn(server.run(stop.clone()));
    (address, stop, running)
}

/// The health of a process without conditions.
async fn healthy() -> Running {
    start(Server::health(loopback(), Readiness::new()).await.expect("binds"))
}

async fn showing(registry: Registry, protection: Protection) -> Running {
    start(Server::metrics(loopback(), registry, protection).await.expect("binds"))
}

async fn request(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("is sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("is answered");
    text
}

#[tokio::test]
async fn probes_and_metrics_are_served_until_the_stop_and_each_by_its_own_port() {
    let mut registry = Registry::default();
    let attached: Counter = Counter::default();
    registry.register("lazuli_attached", "Disks attached", attached.clone());
    let readiness = Readiness::new();
    let azure = readiness.condition("azure");
    let (health, stop, running) = start(Server::health(loopback(), readiness).await.expect("binds"));
    let (metrics, stop_metrics, running_metrics) = showing(registry, Protection::None).await;

    assert!(request(health, "/healthz").await.starts_with("HTTP/1.1 200"));
    let answer = request(health, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.ends_with("[-] azure: starting\nnot ready: azure\n"), "{answer}");
    azure.ready("token valid");
    assert!(request(health, "/readyz").await.starts_with("HTTP/1.1 200"));
    // Not ready any more concerns /readyz alone: a restart would cure nothing.
    azure.not_ready("no token");
    assert!(request(health, "/readyz").await.starts_with("HTTP/1.1 503"));
    assert!(request(health, "/healthz").await.starts_with("HTTP/1.1 200"));
    attached.inc();
    let answer = request(metrics, "/metrics").await;
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"), "{answer}");
    assert!(answer.contains("lazuli_attached_total 1\n"), "{answer}");
    for (address, path) in [(health, "/metrics"), (metrics, "/healthz"), (metrics, "/readyz"), (metrics, "/")] {
        assert!(request(address, path).await.starts_with("HTTP/1.1 404"), "{path}");
    }

    stop.cancel();
    stop_metrics.cancel();
    running.await.expect("no panic");
    running_metrics.await.expect("no panic");
    for address in [health, metrics] {
        assert!(TcpStream::connect(address).await.is_err());
    }
}

/// Reads what comes until the server closes; `None` when it does not within the time.
async fn read_to_end(stream: &mut TcpStream, within: Duration) -> Option<usize> {
    let mut bytes = Vec::new();
    // A connection that is reset is closed too.
    tokio::time::timeout(within, stream.read_to_end(&mut bytes)).await.ok().map(|_| bytes.len())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_no_request_is_cut_off_and_keeps_no_probe_waiting() {
    let (address, ..) = healthy().await;
    let mut silent = Vec::new();
    for half in 0..2 * CONNECTIONS {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        if half % 2 == 1 {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n").await.expect("is sent");
        }
        silent.push(stream);
    }
    let answer = tokio::time::timeout(HEAD_WITHIN * 3, request(address, "/healthz")).await;
    assert!(answer.expect("is answered in time").starts_with("HTTP/1.1 200"));
    for stream in &mut silent {
        assert!(read_to_end(stream, HEAD_WITHIN * 3).await.is_some());
    }
}

/// Connects from an address of the loopback network.
async fn connect_from(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().expect("is made");
    socket.bind((from, 0).into()).expect("is an address of this machine");
    socket.connect(to).await.expect("connects")
}

/// Answers a POST with the length of its body and the address that it comes from.
async fn echo() -> (SocketAddr, CancellationToken) {
    let answer = async |axum::Extension(Peer(peer)): axum::Extension<Peer>, body: axum::body::Bytes| {
        format!("{} bytes from {peer}", body.len())
    };
    let router = Router::new().route("/", axum::routing::post(answer));
    let (address, stop, _) =
        start(Server::bind(loopback(), "echoes", router).await.expect("binds").with_most_of_one_source(8));
    (address, stop)
}

#[tokio::test]
async fn connections_that_send_nothing_keep_no_request_waiting_also_one_from_the_same_address() {
    let (address, _stop) = echo().await;
    let mut silent = Vec::new();
    for number in 0..32 {
        let mut stream = connect_from([127, 0, 0, 2], address).await;
        // A third says nothing, a third stops in its head and a third in its body.
        let part: &[u8] = match number % 3 {
            0 => b"",
            1 => b"POST / HTTP/1.1\r\nhost: x\r\n",
            _ => b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf",
        };
        // One that has given way already cannot be written to.
        let _ = stream.write_all(part).await;
        silent.push(stream);
        for from in [[127, 0, 0, 1], [127, 0, 0, 2]] {
            let mut stream = connect_from(from, address).await;
            let request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody";
            stream.write_all(request).await.expect("is sent");
            let mut text = String::new();
            let read = tokio::time::timeout(Duration::from_secs(4), stream.read_to_string(&mut text)).await;
            read.expect("is answered before any time-out").expect("is answered");
            let [a, b, c, d] = from;
            assert!(text.ends_with(&format!("4 bytes from {a}.{b}.{c}.{d}")), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_cut_off() {
    let (address, _stop) = echo().await;
    let mut stream = TcpStream::connect(address).await.expect("connects");
    let head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf";
    stream.write_all(head).await.expect("is sent");
    let began = tokio::time::Instant::now();
    assert!(read_to_end(&mut stream, CONNECTION_WITHIN).await.is_some());
    assert!(began.elapsed() < HEAD_WITHIN * 2, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_its_answer_is_cut_off() {
    // More than the kernel takes into its buffers.
    let mut registry = Registry::default();
    for large in 0..64 {
        registry.register(format!("large_{large}"), "x".repeat(1 << 20), Counter::<u64>::default());
    }
    let (address, stop, running) = showing(registry, Protection::None).await;
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
    let (address, stop, running) = healthy().await;
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
async fn a_port_in_use_is_an_error_that_names_the_address_and_what_it_is_for() {
    let first = Server::health(loopback(), Readiness::new()).await.expect("binds");
    let taken = Listen::At(first.address());
    let error = Server::health(taken, Readiness::new()).await.expect_err("is taken");
    assert_eq!(error.to_string(), format!("cannot listen at {taken} for health checks"));
    let error = Server::metrics(taken, Registry::default(), Protection::None).await.expect_err("is taken");
    assert_eq!(error.to_string(), format!("cannot listen at {taken} for metrics"));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_too_long_is_refused() {
    let (address, ..) = healthy().await;
    let mut stream = TcpStream::connect(address).await.expect("connects");
    let token = "x".repeat(2 * HEAD_LIMIT);
    let request = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    // The server may close before it has read all, which can cost the client the answer.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
}

/// A folder with a certificate and its key, which ends with the value.
struct Files {
    folder: PathBuf,
    files: CertificateFiles,
}

impl Files {
    fn make(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lazuli-certificate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("is made");
        let files = CertificateFiles { certificate: folder.join("tls.crt"), key: folder.join("tls.key") };
        let made = Self { folder, files };
        made.renew(&[&made.files.certificate, &made.files.key]);
        made
    }

    /// Makes a new pair, writes these of the two files, and gives the certificate.
    fn renew(&self, write: &[&PathBuf]) -> CertificateDer<'static> {
        let params = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("is a name");
        let key = rcgen::KeyPair::generate().expect("is made");
        let certificate = params.self_signed(&key).expect("is made");
        if write.contains(&&self.files.certificate) {
            std::fs::write(&self.files.certificate, certificate.pem()).expect("is written");
        }
        if write.contains(&&self.files.key) {
            std::fs::write(&self.files.key, key.serialize_pem()).expect("is written");
        }
        certificate.der().clone()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What a client gets that trusts this certificate alone; the error of its handshake otherwise.
async fn tls_request(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    authorization: Option<&str>,
) -> Result<String, io::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("is a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.expect("has versions").with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("is a name");
    let stream = TcpStream::connect(address).await?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let authorization = authorization.map(|value| format!("authorization: {value}\r\n")).unwrap_or_default();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

#[tokio::test]
async fn metrics_are_for_tokens_that_the_cluster_allows_and_for_no_plain_request() {
    let certificate = ServingCertificate::self_signed().expect("is made");
    let trusted = certificate.certificate();
    let reviewer = Reviewer::new(|token| {
        Box::pin(async move {
            match token.expose() {
                "good" => Ok(Review::Allowed),
                "weak" => Ok(Review::Forbidden { user: "system:serviceaccount:team:app".to_owned() }),
                "out" => Err("10.0.0.1:443 does not answer".to_owned()),
                _ => Ok(Review::Unauthenticated),
            }
        })
    });
    let mut registry = Registry::default();
    registry.register("lazuli_attached", "Disks attached", Counter::<u64>::default());
    let (address, stop, running) = showing(registry, Protection::TlsAndReview(certificate, reviewer)).await;
    for (authorization, status, words) in [
        (Some("Bearer good"), "200 OK", "lazuli_attached_total 0"),
        (None, "401 Unauthorized", "send a token"),
        (Some("Basic Z29vZA=="), "401 Unauthorized", "www-authenticate: Bearer\r\n"),
        (Some("Bearer bad"), "401 Unauthorized", "www-authenticate: Bearer error=\"invalid_token\"\r\n"),
        (Some("Bearer weak"), "403 Forbidden", "system:serviceaccount:team:app may not get the path /metrics"),
        (Some("Bearer out"), "503 Service Unavailable", "try again"),
    ] {
        let answer = tls_request(address, &trusted, authorization).await.expect("is answered");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{authorization:?}: {answer}");
        assert!(answer.contains(words), "{authorization:?}: {answer}");
        let shown = answer.contains("lazuli_attached");
        assert_eq!(shown, authorization == Some("Bearer good"), "{answer}");
        assert!(!answer.contains("10.0.0.1"), "{answer}");
    }
    let mut plain = TcpStream::connect(address).await.expect("connects");
    plain.write_all(b"GET /metrics HTTP/1.1\r\nauthorization: Bearer good\r\n\r\n").await.expect("is sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1"));
    stop.cancel();
    running.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_finish_the_handshake_is_cut_off_and_does_not_delay_the_stop() {
    let certificate = ServingCertificate::self_signed().expect("is made");
    let (address, stop, running) = showing(Registry::default(), Protection::Tls(certificate)).await;
    let mut silent = TcpStream::connect(address).await.expect("connects");
    assert!(read_to_end(&mut silent, HEAD_WITHIN * 2).await.is_some());
    let _another = TcpStream::connect(address).await.expect("connects");
    stop.cancel();
    tokio::time::timeout(STOP_WITHIN * 2, running).await.expect("ends").expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_renewed_certificate_counts_within_a_minute_and_half_a_renewal_does_not() {
    let made = Files::make("renewed");
    let CertificateFiles { certificate, key } = &made.files;
    let pem = std::fs::read(certificate).expect("is there");
    let first = CertificateDer::from_pem_slice(&pem).expect("is one");
    let serving = ServingCertificate::from_files(made.files.clone()).await.expect("is read");
    let (address, stop, running) = showing(Registry::default(), Protection::Tls(serving)).await;
    let answers = async |trusted: &CertificateDer<'static>| tls_request(address, trusted, None).await.is_ok();
    assert!(answers(&first).await);

    // kubelet, or a person, has renewed one file and not yet the other.
    let half = made.renew(&[certificate]);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(answers(&first).await && !answers(&half).await);
    let second = made.renew(&[certificate, key]);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(answers(&second).await && !answers(&first).await);
    // Files that are gone change nothing.
    std::fs::remove_file(key).expect("is removed");
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(answers(&second).await);
    stop.cancel();
    running.await.expect("no panic");
}

#[tokio::test]
async fn files_that_are_no_certificate_and_its_key_stop_the_start_without_showing_the_key() {
    let made = Files::make("wrong");
    let CertificateFiles { certificate, key } = &made.files;
    made.renew(&[certificate]);
    let error = ServingCertificate::from_files(made.files.clone()).await.expect_err("is another key");
    assert!(error.to_string().ends_with("tls.key are not a certificate and its key"), "{error}");
    std::fs::write(key, "-----BEGIN PRIVATE KEY-----\nhunter2").expect("is written");
    let error = ServingCertificate::from_files(made.files.clone()).await.expect_err("is no key");
    assert!(error.to_string().ends_with("tls.key holds no private key in PEM"), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    std::fs::write(certificate, "").expect("is written");
    let error = ServingCertificate::from_files(made.files.clone()).await.expect_err("is empty");
    assert!(error.to_string().ends_with("tls.crt holds no certificate in PEM"), "{error}");
    std::fs::remove_file(certificate).expect("is removed");
    let error = ServingCertificate::from_files(made.files.clone()).await.expect_err("is gone");
    assert!(error.to_string().starts_with("cannot read "), "{error}");
}
