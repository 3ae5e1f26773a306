//! TLS: a certificate authority of the emulator's own, and a listener that speaks TLS.
//!
//! Programs that insist on https (the Azure SDKs do for their authority) trust the authority's
//! certificate and reach the emulator by one of its [`ServedNames`]. With a folder the authority's key is kept
//! there; without one it lives and dies with the process. Both certificates are made at every start. Nothing here
//! knows what is served.
//!
//! A client that trusts the authority must not thereby trust more than this emulator, should the key leak:
//!
//! | extension of the authority's certificate | value |
//! |---|---|
//! | name constraints (critical) | permitted: the served names and addresses, nothing else |
//! | basic constraints (critical) | an authority with path length 0: it signs no other authority |
//! | key usage (critical) | `keyCertSign` |
//! | validity | [`VALID_FOR`] |
//!
//! | file in the folder | what |
//! |---|---|
//! | `ca.pem` | the authority's certificate, for clients; renewed at every start |
//! | `authority-key.pem` | its key, readable by the owner only; stays |
//!
//! A copy of an earlier start's `ca.pem` goes on working until it expires or a served name is added.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use axum::{Extension, Router};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType, SerialNumber,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::listener::{CuttableListener, Line};
use crate::served_names::ServedNames;

/// The authority's name; fixed, because an earlier copy of its certificate must stay the issuer of new ones.
const AUTHORITY_NAME: &str = "Lazuli emulator";

/// Seconds.
const DAY: u64 = 24 * 3_600;
/// How long a certificate is valid, from [`VALID_BEFORE`] its making on: a year.
pub(crate) const VALID_FOR: Duration = Duration::from_secs(365 * DAY);
/// How long before its making a certificate begins to be valid, for clients whose clock is behind.
const VALID_BEFORE: Duration = Duration::from_secs(DAY);

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
    /// Makes an authority for these names, with the key that `folder` holds if it holds one. `now` is the machine's
    /// own time, since that is what clients compare with.
    pub(crate) fn new(folder: Option<&Path>, names: &ServedNames, now: Timestamp) -> Result<Self, TlsError> {
        let key = match folder {
            Some(folder) => kept_key(folder)?,
            None => KeyPair::generate().map_err(TlsError::Certificate)?,
        };
        let params = authority_params(names, now);
        let certificate = params.self_signed(&key).map_err(TlsError::Certificate)?;
        let ca_pem = certificate.pem();
        if let Some(folder) = folder {
            let (path, new) = (folder.join("ca.pem"), folder.join("ca.pem.new"));
            // Complete at every moment: a client may read it at any.
            fs::write(&new, &ca_pem).and_then(|()| fs::rename(&new, &path)).map_err(|source| TlsError::File {
                action: "cannot write",
                path,
                source,
            })?;
        }
        let config = server_config(&Issuer::new(params, key), certificate.der().clone(), names, now)?;
        Ok(Self { ca_pem, config: Arc::new(config) })
    }

    /// The authority's certificate, for clients.
    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }
}

fn named(common_name: &str, now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    // To the second, as certificates have it.
    let begins = u64::try_from(now.as_second()).map(Duration::from_secs).unwrap_or_default();
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + begins - VALID_BEFORE;
    params.not_after = params.not_before + VALID_FOR;
    // Browsers refuse two certificates of one issuer and number. A positive number, as X.509 has it.
    let mut serial = *uuid::Uuid::new_v4().as_bytes();
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params
}

fn authority_params(names: &ServedNames, now: Timestamp) -> CertificateParams {
    let dns = names.names().iter().cloned().map(GeneralSubtree::DnsName);
    let addresses = names.addresses().iter().map(|address| {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*address, bits))
    });
    let mut params = named(AUTHORITY_NAME, now);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.name_constraints =
        Some(NameConstraints { permitted_subtrees: dns.chain(addresses).collect(), excluded_subtrees: Vec::new() });
    params
}

/// The key in the folder; a new one where there is none.
fn kept_key(folder: &Path) -> Result<KeyPair, TlsError> {
    let path = folder.join("authority-key.pem");
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::File { action, path, source }
    };
    if path.exists() {
        let pem = fs::read_to_string(&path).map_err(failed("cannot read", &path))?;
        return KeyPair::from_pem(&pem).map_err(TlsError::Certificate);
    }
    let key = KeyPair::generate().map_err(TlsError::Certificate)?;
    fs::create_dir_all(folder).map_err(failed("cannot make the folder", folder))?;
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(key.serialize_pem().as_bytes()))
        .map_err(failed("cannot write", &path))?;
    Ok(key)
}

/// A certificate for the served names, signed by the authority, and the server's configuration with it.
fn server_config(
    issuer: &Issuer<'_, KeyPair>,
    authority: CertificateDer<'static>,
    names: &ServedNames,
    now: Timestamp,
) -> Result<ServerConfig, TlsError> {
    let mut params = named("Lazuli emulator server", now);
    for name in names.names() {
        // The blob service of each account has a name below.
        for name in [name.clone(), format!("*.blob.{name}")] {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into().map_err(TlsError::Certificate)?));
        }
    }
    params.subject_alt_names.extend(names.addresses().iter().copied().map(SanType::IpAddress));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(TlsError::Certificate)?;
    let certificate = params.signed_by(&key, issuer).map_err(TlsError::Certificate)?;
    // Clients that pin the authority want to see it.
    let chain = vec![certificate.der().clone(), authority];
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
    /// Handshakes run beside each other, so that a silent client keeps no other client waiting.
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

    fn now() -> Timestamp {
        Timestamp::now()
    }

    fn names(given: &[&str]) -> ServedNames {
        let given: Vec<_> = given.iter().map(|name| name.parse().unwrap()).collect();
        ServedNames::new([], &given)
    }

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
        let authority = Authority::new(None, &names(&[]), now()).unwrap();
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
        let authority = Authority::new(None, &names(&[]), now()).unwrap();
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
        let authority = Authority::new(None, &names(&[]), now()).unwrap();
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
        let authority = Authority::new(None, &names(&[]), now()).unwrap();
        let other = Authority::new(None, &names(&[]), now()).unwrap();
        let (port, stop, server) = start(authority).await;
        let url = format!("https://localhost:{port}/");
        assert!(client(other.ca_pem(), true).get(url).send().await.is_err());
        stop.cancel();
        server.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_of_an_earlier_start_trusts_the_authority_of_the_same_folder() {
        let folder = std::env::temp_dir().join(format!("lazuli-tls-{}", std::process::id()));
        let first = Authority::new(Some(&folder), &names(&[]), now()).unwrap();
        let second = Authority::new(Some(&folder), &names(&["emulator.test"]), now()).unwrap();
        assert_ne!(first.ca_pem(), second.ca_pem());
        assert_eq!(fs::read_to_string(folder.join("ca.pem")).unwrap(), second.ca_pem());
        let mode = fs::metadata(folder.join("authority-key.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let newest = second.ca_pem().to_owned();
        let (port, stop, server) = start(second).await;
        // The earlier certificate knows nothing of the new name, and the server's certificate holds that name.
        let url = format!("https://localhost:{port}/");
        assert!(client(first.ca_pem(), false).get(&url).send().await.is_err());
        client(&newest, false).get(&url).send().await.unwrap();
        stop.cancel();
        server.await.unwrap();
        let third = Authority::new(Some(&folder), &names(&[]), now()).unwrap();
        let (port, stop, server) = start(third).await;
        let url = format!("https://localhost:{port}/");
        for earlier in [first.ca_pem(), &newest] {
            client(earlier, false).get(&url).send().await.unwrap();
        }
        stop.cancel();
        server.await.unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    /// A server whose certificate is for `leaf`, under an authority for `permitted`.
    async fn with_leaf(
        permitted: &[&str],
        leaf: &[&str],
    ) -> (String, u16, CancellationToken, tokio::task::JoinHandle<()>) {
        let key = KeyPair::generate().unwrap();
        let params = authority_params(&names(permitted), now());
        let ca = params.self_signed(&key).unwrap();
        let config = server_config(&Issuer::new(params, key), ca.der().clone(), &names(leaf), now()).unwrap();
        let (port, stop, server) = start(Authority { ca_pem: ca.pem(), config: Arc::new(config) }).await;
        (ca.pem(), port, stop, server)
    }

    #[tokio::test]
    async fn a_certificate_of_the_authority_for_another_name_is_refused() {
        for (permitted, accepted) in [(&["bank.example"][..], true), (&["other.example"], false)] {
            let (ca, port, stop, server) = with_leaf(permitted, &["bank.example"]).await;
            let address = ([127, 0, 0, 1], port).into();
            let ca = reqwest::Certificate::from_pem(ca.as_bytes()).unwrap();
            let builder = reqwest::Client::builder().tls_certs_only([ca]).no_proxy();
            let client = builder.resolve("bank.example", address).build().unwrap();
            let answer = client.get(format!("https://bank.example:{port}/")).send().await;
            assert_eq!(answer.is_ok(), accepted, "{permitted:?}: {answer:?}");
            if let Err(error) = answer {
                let mut chain = String::new();
                let mut source: Option<&dyn std::error::Error> = Some(&error);
                while let Some(error) = source {
                    chain.push_str(&error.to_string());
                    source = error.source();
                }
                assert!(chain.contains("NameConstraintViolation"), "{chain}");
            }
            stop.cancel();
            server.await.unwrap();
        }
    }

    #[test]
    fn an_authority_is_valid_for_a_year_at_most_and_signs_no_other() {
        let params = authority_params(&names(&[]), now());
        assert!(params.not_after - params.not_before <= Duration::from_secs(366 * DAY));
        let valid = params.not_before.unix_timestamp()..params.not_after.unix_timestamp();
        assert!(valid.contains(&now().as_second()));
        assert_eq!(params.is_ca, IsCa::Ca(BasicConstraints::Constrained(0)));
    }
}
