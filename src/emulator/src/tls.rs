//! TLS: a certificate authority of the emulator's own, and a listener that speaks TLS.
//!
//! Programs that insist on https (the Azure SDKs do for their authority) trust the authority's
//! certificate and reach the emulator as `localhost`, `127.0.0.1`, `::1` or by a name that was asked
//! for. With a folder the authority is kept there, so that a client is configured once; without one it
//! lives and dies with the process. The server's own certificate is made at every start. Nothing here
//! knows what is served.
//!
//! | file in the folder | what |
//! |---|---|
//! | `ca.pem` | the authority's certificate, for clients |
//! | `ca-key.pem` | its key, readable by the owner only |

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use axum::{Extension, Router};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::listener::{CuttableListener, Line};

/// The authority's name; fixed, because a kept certificate must stay the issuer of new ones.
const AUTHORITY_NAME: &str = "Lazuli emulator";

/// An extension of every request that came over TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverTls;

/// TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file of the folder could not be read or written.
    #[error("{action} {}", path.display())]
    File {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A certificate could not be made, or a kept key is none.
    #[error("cannot make a certificate")]
    Certificate(#[source] rcgen::Error),
    /// The TLS library refused the certificate.
    #[error("the TLS library refuses the certificate")]
    Configuration(#[source] rustls::Error),
}

/// The authority and the server's configuration.
pub(crate) struct Authority {
    ca_pem: String,
    config: Arc<ServerConfig>,
}

impl Authority {
    /// Makes an authority, or takes the one that `folder` holds, and a certificate for `names` besides
    /// the local ones.
    pub(crate) fn new(folder: Option<&Path>, names: &[String]) -> Result<Self, TlsError> {
        let (key, ca_pem) = match folder {
            Some(folder) => kept(folder)?,
            None => fresh()?,
        };
        let config = server_config(key, &ca_pem, names)?;
        Ok(Self { ca_pem, config: Arc::new(config) })
    }

    /// The authority's certificate, for clients.
    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Wide, since the emulated clock may be anywhere; inside of what two-digit years can say.
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2049, 12, 31);
    params
}

fn fresh() -> Result<(KeyPair, String), TlsError> {
    let key = KeyPair::generate().map_err(TlsError::Certificate)?;
    let certificate = authority_params().self_signed(&key).map_err(TlsError::Certificate)?;
    Ok((key, certificate.pem()))
}

fn kept(folder: &Path) -> Result<(KeyPair, String), TlsError> {
    let (ca_path, key_path) = (folder.join("ca.pem"), folder.join("ca-key.pem"));
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::File { action, path, source }
    };
    if ca_path.exists() && key_path.exists() {
        let read = |path: &Path| fs::read_to_string(path).map_err(failed("cannot read", path));
        let key = KeyPair::from_pem(&read(&key_path)?).map_err(TlsError::Certificate)?;
        return Ok((key, read(&ca_path)?));
    }
    let (key, ca_pem) = fresh()?;
    fs::create_dir_all(folder).map_err(failed("cannot make the folder", folder))?;
    // The key first: a certificate without its key would be taken for nothing and replaced, but a
    // client may already trust it.
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&key_path)
        .and_then(|mut file| file.write_all(key.serialize_pem().as_bytes()))
        .map_err(failed("cannot write", &key_path))?;
    fs::write(&ca_path, &ca_pem).map_err(failed("cannot write", &ca_path))?;
    Ok((key, ca_pem))
}

fn server_config(authority_key: KeyPair, ca_pem: &str, names: &[String]) -> Result<ServerConfig, TlsError> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    let issuer = Issuer::new(authority_params(), authority_key);
    let mut all: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    all.extend(names.iter().cloned());
    let mut params = CertificateParams::new(all).map_err(TlsError::Certificate)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Lazuli emulator server");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2049, 12, 31);
    let key = KeyPair::generate().map_err(TlsError::Certificate)?;
    let certificate = params.signed_by(&key, &issuer).map_err(TlsError::Certificate)?;
    let mut chain = vec![certificate.der().clone()];
    // Clients that pin the authority want to see it; a damaged file shows itself here.
    chain.extend(CertificateDer::pem_slice_iter(ca_pem.as_bytes()).flatten());
    // The provider is named, not looked up: the process may have none installed.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Configuration)?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .map_err(TlsError::Configuration)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// A connection after its handshake, and its peer.
type Connection<L> = (TlsStream<<L as Listener>::Io>, <L as Listener>::Addr);

/// Any listener, with TLS over its connections.
pub(crate) struct TlsListener<L: Listener> {
    inner: L,
    acceptor: TlsAcceptor,
    /// Handshakes run beside each other, so that a silent client keeps nobody waiting.
    handshakes: JoinSet<Option<Connection<L>>>,
}

impl<L: Listener> TlsListener<L> {
    /// Connections of `inner` are shown after their handshake; a failed one never is.
    pub(crate) fn new(inner: L, authority: &Authority) -> Self {
        Self { inner, acceptor: TlsAcceptor::from(Arc::clone(&authority.config)), handshakes: JoinSet::new() }
    }
}

impl<L> Listener for TlsListener<L>
where
    L: Listener,
    L::Addr: Send + 'static,
{
    type Io = TlsStream<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                (stream, peer) = self.inner.accept() => {
                    let handshake = self.acceptor.accept(stream);
                    self.handshakes.spawn(async move {
                        match handshake.await {
                            Ok(stream) => Some((stream, peer)),
                            Err(error) => {
                                tracing::debug!(%error, "TLS handshake failed");
                                None
                            }
                        }
                    });
                }
                Some(done) = self.handshakes.join_next(), if !self.handshakes.is_empty() => {
                    if let Ok(Some(connection)) = done {
                        return connection;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.inner.local_addr()
    }
}

impl Connected<IncomingStream<'_, TlsListener<CuttableListener>>> for Line {
    fn connect_info(stream: IncomingStream<'_, TlsListener<CuttableListener>>) -> Self {
        stream.io().get_ref().0.line()
    }
}

/// Serves `router` over TLS until `stop`; every request carries [`OverTls`] and its [`Line`].
///
/// # Errors
/// Never before `stop`; the type is that of the server it builds on.
pub(crate) async fn serve(
    tcp: TcpListener,
    authority: &Authority,
    router: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = TlsListener::new(CuttableListener::new(tcp), authority);
    let service = router.layer(Extension(OverTls)).into_make_service_with_connect_info::<Line>();
    axum::serve(listener, service).with_graceful_shutdown(stop.cancelled_owned()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use http::request::Parts;
    use std::os::unix::fs::PermissionsExt;
    use tokio::net::TcpStream;

    async fn where_am_i(parts: Parts) -> String {
        format!("{:?} {}", parts.version, crate::endpoints::base(&parts, "unknown"))
    }

    /// A server, its port, and how to stop it.
    async fn start(authority: Authority) -> (u16, CancellationToken, tokio::task::JoinHandle<()>) {
        serving(authority, Router::new().route("/", get(where_am_i))).await
    }

    async fn serving(authority: Authority, router: Router) -> (u16, CancellationToken, tokio::task::JoinHandle<()>) {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = tcp.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let server = tokio::spawn(async move {
            serve(tcp, &authority, router, stopped).await.unwrap();
        });
        (port, stop, server)
    }

    fn client(ca_pem: &str, http1: bool) -> reqwest::Client {
        // reqwest is built without a provider of its own.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let ca = reqwest::Certificate::from_pem(ca_pem.as_bytes()).unwrap();
        let builder = reqwest::Client::builder().tls_certs_only([ca]).no_proxy();
        let builder = if http1 { builder.http1_only() } else { builder };
        builder.build().unwrap()
    }

    #[tokio::test]
    async fn both_versions_of_http_are_served_and_know_that_it_is_tls() {
        let authority = Authority::new(None, &[]).unwrap();
        let ca = authority.ca_pem().to_owned();
        let (port, stop, server) = start(authority).await;
        for (http1, version) in [(true, "HTTP/1.1"), (false, "HTTP/2.0")] {
            for host in ["localhost", "127.0.0.1"] {
                let url = format!("https://{host}:{port}/");
                let text = client(&ca, http1).get(&url).send().await.unwrap();
                let text = text.text().await.unwrap();
                assert_eq!(text, format!("{version} https://{host}:{port}"));
            }
        }
        stop.cancel();
        server.await.unwrap();
    }

    async fn never_answered(line: axum::extract::ConnectInfo<Line>) -> &'static str {
        line.0.cut();
        "not to be seen"
    }

    #[tokio::test]
    async fn a_line_that_is_cut_gives_no_answer_over_tls_in_either_version_of_http() {
        let authority = Authority::new(None, &[]).unwrap();
        let ca = authority.ca_pem().to_owned();
        let router = Router::new().route("/lost", get(never_answered)).route("/", get(where_am_i));
        let (port, stop, server) = serving(authority, router).await;
        for http1 in [true, false] {
            let client = client(&ca, http1);
            let error = client.get(format!("https://localhost:{port}/lost")).send().await.unwrap_err();
            assert!(error.status().is_none() && !error.is_connect(), "{error:?}");
            assert!(client.get(format!("https://localhost:{port}/")).send().await.unwrap().status().is_success());
        }
        stop.cancel();
        server.await.unwrap();
    }

    #[tokio::test]
    async fn a_silent_client_keeps_nobody_waiting() {
        let authority = Authority::new(None, &[]).unwrap();
        let ca = authority.ca_pem().to_owned();
        let (port, stop, server) = start(authority).await;
        let silent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let url = format!("https://localhost:{port}/");
        let answer = client(&ca, true).get(url).send().await.unwrap();
        assert!(answer.status().is_success());
        drop(answer);
        stop.cancel();
        server.await.unwrap();
        drop(silent);
    }

    #[tokio::test]
    async fn a_client_without_the_authority_refuses() {
        let authority = Authority::new(None, &[]).unwrap();
        let other = Authority::new(None, &[]).unwrap();
        let (port, stop, server) = start(authority).await;
        let url = format!("https://localhost:{port}/");
        assert!(client(other.ca_pem(), true).get(url).send().await.is_err());
        stop.cancel();
        server.await.unwrap();
    }

    #[tokio::test]
    async fn an_authority_in_a_folder_is_the_same_at_the_next_start() {
        let folder = std::env::temp_dir().join(format!("lazuli-tls-{}", std::process::id()));
        let first = Authority::new(Some(&folder), &[]).unwrap();
        let names = ["emulator.test".to_owned()];
        let second = Authority::new(Some(&folder), &names).unwrap();
        assert_eq!(first.ca_pem(), second.ca_pem());
        let mode = fs::metadata(folder.join("ca-key.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // A client that trusts the first start's certificate reaches the second start's server.
        let (port, stop, server) = start(second).await;
        let url = format!("https://localhost:{port}/");
        client(first.ca_pem(), false).get(url).send().await.unwrap();
        stop.cancel();
        server.await.unwrap();
        fs::remove_dir_all(folder).unwrap();
    }
}
