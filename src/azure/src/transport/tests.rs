use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr},
    process::Command,
};

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, rustls, server::TlsStream};

use super::*;
use crate::testing::{Fake, Reply, url};

async fn get(transport: &Transport, target: &str) -> Result<Response<Bytes>, TransportError> {
    transport.send(Method::GET, &url(target), HeaderMap::new(), Bytes::new()).await
}

/// Says hello by the version of HTTP it was asked in.
async fn serve(listener: impl axum::serve::Listener<Addr = SocketAddr>) {
    let app = axum::Router::new().fallback(|request: axum::extract::Request| async move {
        format!("{:?} {}", request.version(), request.uri().path())
    });
    axum::serve(listener, app).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn silence_ends_after_a_minute_and_counts_as_sent() {
    let fake = Fake::new([Reply::Silence]);
    let start = tokio::time::Instant::now();
    let error = get(&fake.in_process(), "https://management.azure.com/").await.unwrap_err();
    assert!(matches!(error, TransportError::TimedOut { .. }) && error.was_sent());
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_lost_and_a_refused_connection_was_never_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/x?sig=s3cret", listener.local_addr().unwrap());
    let transport = Transport::new(Routes::none(), &Tls::default()).unwrap();
    for begun in ["", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhal"] {
        let (answer, ()) = tokio::join!(get(&transport, &target), async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 2_000];
            tokio::io::AsyncReadExt::read(&mut stream, &mut request).await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, begun.as_bytes()).await.unwrap();
        });
        let error = answer.unwrap_err();
        assert!(matches!(error, TransportError::Lost { .. }) && error.was_sent(), "{error:?}");
        assert!(!format!("{error:?} {error}").contains("s3cret"), "{error:?}");
    }
    drop(listener);
    let error = get(&transport, &target).await.unwrap_err();
    assert!(matches!(error, TransportError::NotSent { .. }) && !error.was_sent(), "{error:?}");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_not_followed() {
    let fake = Fake::new([Reply::empty(307).header("location", "https://evil.example/")]);
    let answer = get(&fake.over_tcp().await, "https://management.azure.com/x").await.unwrap();
    assert_eq!(answer.status(), 307);
    assert_eq!(fake.log().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_once_sent_is_carried_out_though_its_caller_has_gone() {
    let fake = Fake::new([Reply::empty(200).after(Duration::from_secs(5))]);
    let transport = fake.in_process();
    let soon = tokio::time::timeout(Duration::from_secs(1), get(&transport, "https://management.azure.com/x"));
    assert!(soon.await.is_err());
    assert!(fake.script_is_used_up());
}

#[tokio::test(start_paused = true)]
async fn the_sdk_travels_by_the_same_way() {
    use azure_core::http::{HttpClient, Method as SdkMethod, Request as SdkRequest};
    let fake = Fake::new([Reply::json(201, serde_json::json!({"a": 1})).header("x-ms-request-id", "r")]);
    let mut request = SdkRequest::new(url("https://a.blob.core.windows.net/c?restype=container"), SdkMethod::Put);
    request.insert_header("if-match", "\"1\"");
    request.set_body("body");
    let answer = fake.in_process().execute_request(&request).await.unwrap();
    assert_eq!(u16::from(answer.status()), 201);
    assert_eq!(answer.into_body().collect().await.unwrap(), Bytes::from(r#"{"a":1}"#));
    let seen = &fake.log()[0];
    assert_eq!(seen.line, "PUT a.blob.core.windows.net/c?restype=container");
    assert_eq!((seen.body.as_str(), seen.if_match.as_deref()), ("body", Some("\"1\"")));
}

#[tokio::test(start_paused = true)]
async fn what_the_sdk_signs_with_is_printed_nowhere() {
    use azure_core::http::{HttpClient, Method as SdkMethod, Request as SdkRequest};
    let service = tower::service_fn(|request: Request<Full<Bytes>>| async move {
        let printed = format!("{:?}", request.headers());
        assert!(!printed.contains("c2VjcmV0") && printed.contains("vhds"), "{printed}");
        Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let mut request = SdkRequest::new(url("https://a.blob.core.windows.net/c"), SdkMethod::Get);
    request.insert_header("authorization", "SharedKey a:c2VjcmV0");
    request.insert_header("x-ms-meta-a", "vhds");
    let answer = Transport::in_process(Routes::none(), service).execute_request(&request).await;
    assert!(answer.is_ok(), "{:?}", answer.err());
}

/// Marks the process that a test starts of itself, with another environment.
const INNER: &str = "LAZULI_TEST_INNER";

fn run_again(test: &str, environment: &[(&str, String)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(INNER, "1");
    command.envs(environment.iter().map(|(name, value)| (*name, value.as_str())));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn is_inner() -> bool {
    std::env::var_os(INNER).is_some()
}

fn block_on(future: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future);
}

#[test]
fn a_proxy_is_used_for_the_world_and_never_for_this_machine() {
    if !is_inner() {
        let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", proxy.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in proxy.incoming() {
                let mut stream = stream.unwrap();
                let read = stream.read(&mut [0; 2_000]);
                assert!(read.is_ok());
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nvia proxy").unwrap();
            }
        });
        let test = "transport::tests::a_proxy_is_used_for_the_world_and_never_for_this_machine";
        let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
        let environment: Vec<_> = names.iter().map(|name| (*name, address.clone())).collect();
        return run_again(test, &environment);
    }
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = url(&format!("http://{}", listener.local_addr().unwrap()));
        tokio::spawn(serve(listener));
        let routes = Routes::none()
            .with_imds(&here)
            .unwrap()
            .with(&url("https://management.azure.com"), &here.join("arm").unwrap())
            .unwrap();
        let transport = Transport::new(routes, &Tls::default()).unwrap();
        for (target, expected) in [
            ("http://azure.example/x", "via proxy"),
            (here.as_str(), "HTTP/1.1 /"),
            ("http://169.254.169.254/metadata", "HTTP/1.1 /metadata"),
            ("https://management.azure.com/x", "HTTP/1.1 /arm/x"),
        ] {
            let answer = get(&transport, target).await.unwrap();
            assert_eq!(answer.body(), expected, "{target}");
        }
    });
    assert!(goes_direct(&url("http://169.254.169.254/metadata/instance"), false));
    assert!(!goes_direct(&url("https://management.azure.com/"), false));
}

/// A listener of TLS on loopback with a CA of its own.
struct Encrypted(TcpListener, TlsAcceptor);

impl axum::serve::Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.0.accept().await.unwrap();
            // A client that does not trust us hangs up.
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// The listener, and the PEM of the CA that signed it.
async fn encrypted() -> (Encrypted, String) {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new([Ipv4Addr::LOCALHOST.to_string()]).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let certificate = leaf.signed_by(&key, &issuer).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (Encrypted(listener, TlsAcceptor::from(Arc::new(config))), ca_pem)
}

#[tokio::test]
async fn a_private_ca_is_trusted_when_given_and_http_2_is_spoken_where_offered() {
    let (listener, ca) = encrypted().await;
    let target = format!("https://{}/x", listener.0.local_addr().unwrap());
    tokio::spawn(serve(listener));
    let stranger = Transport::new(Routes::none(), &Tls::default()).unwrap();
    let error = get(&stranger, &target).await.unwrap_err();
    assert!(matches!(error, TransportError::NotSent { .. }), "{error:?}");
    let tls = Tls { extra_roots_pem: ca.into_bytes() };
    let friend = Transport::new(Routes::none(), &tls).unwrap();
    assert_eq!(get(&friend, &target).await.unwrap().body(), "HTTP/2.0 /x");
    let nonsense = Tls { extra_roots_pem: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec() };
    assert!(Transport::new(Routes::none(), &nonsense).is_err());
}

#[test]
fn the_ca_in_ssl_cert_file_is_trusted() {
    let file = |name: &str| std::env::temp_dir().join(format!("lazuli-{name}-{}", std::process::id()));
    if is_inner() {
        return block_on(async {
            let target = std::env::var("LAZULI_TEST_TARGET").unwrap();
            let transport = Transport::new(Routes::none(), &Tls::default()).unwrap();
            assert_eq!(get(&transport, &target).await.unwrap().body(), "HTTP/2.0 /x");
        });
    }
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        block_on(async {
            let (listener, ca) = encrypted().await;
            tell.send((listener.0.local_addr().unwrap(), ca)).unwrap();
            serve(listener).await;
        });
    });
    let (address, ca) = told.recv().unwrap();
    let path = file("ca");
    std::fs::write(&path, ca).unwrap();
    let environment =
        [("SSL_CERT_FILE", path.to_str().unwrap().to_owned()), ("LAZULI_TEST_TARGET", format!("https://{address}/x"))];
    run_again("transport::tests::the_ca_in_ssl_cert_file_is_trusted", &environment);
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn every_request_has_an_id_of_its_own_and_the_products_name() {
    let fake = Fake::new([Reply::empty(200), Reply::empty(200), Reply::empty(200)]);
    for transport in [fake.in_process(), fake.over_tcp().await] {
        get(&transport, "https://management.azure.com/x").await.unwrap();
    }
    let named = fake.in_process().with_user_agent_suffix(" team/1 \u{7}\u{e4} ");
    get(&named, "https://management.azure.com/x").await.unwrap();
    let log = fake.log();
    let names: Vec<&str> = log.iter().map(|seen| seen.user_agent.as_deref().unwrap()).collect();
    assert_eq!(names, [USER_AGENT, USER_AGENT, &format!("{USER_AGENT} team/1")]);
    let mut ids: Vec<&str> = log.iter().map(|seen| seen.client_request_id.as_deref().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}
