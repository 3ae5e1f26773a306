//! The certificate with which a server speaks TLS.
//!
//! It comes from two files, which are read again every minute: files that kubelet renews in the volume of a Secret
//! count without a restart. Without files the process makes a certificate at its start. That one encrypts and does not
//! prove which process serves.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// How often the files are read. kubelet renews the volume of a Secret about once a minute.
const READ_EVERY: Duration = Duration::from_secs(60);

/// The name in a certificate that the process made.
const OWN_NAME: &str = "lazuli-metrics";

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file does not have what it should, in PEM. Without the parser's words: they may quote the key.
    #[error("{} holds no {expected} in PEM", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
    },
    /// The key is of no kind that the TLS library knows, or is the key of another certificate.
    #[error("{} and {} are not a certificate and its key", certificate.display(), key.display())]
    NotAPair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What the TLS library said.
        #[source]
        source: rustls::Error,
    },
    /// None could be made.
    #[error("cannot make a certificate")]
    Make(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Two files in PEM: the certificate with its chain, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, then those that signed it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl CertificateFiles {
    async fn read(&self) -> Result<Read, CertificateError> {
        let file = async |path: &Path| {
            tokio::fs::read(path).await.map_err(|source| CertificateError::Read { path: path.to_owned(), source })
        };
        Ok(Read { certificate: file(&self.certificate).await?, key: file(&self.key).await? })
    }

    fn pair(&self, read: &Read, provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
        let not_pem = |path: &Path, expected| CertificateError::NotPem { path: path.to_owned(), expected };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read.certificate).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| not_pem(&self.certificate, "certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(&read.key).map_err(|_| not_pem(&self.key, "private key"))?;
        CertifiedKey::from_der(chain, key, provider).map_err(|source| CertificateError::NotAPair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        })
    }
}

/// What the files held at one time. No `Debug`: one is a private key.
#[derive(PartialEq, Eq)]
struct Read {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The certificate that connections get now.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // A panic elsewhere leaves it whole: it is one pointer.
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// A certificate and where it comes from.
pub struct ServingCertificate {
    provider: Arc<CryptoProvider>,
    current: Arc<Current>,
    /// The files, and what they held when they were last read.
    source: Option<(CertificateFiles, Read)>,
}

impl std::fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let files = self.source.as_ref().map(|(files, _)| files);
        f.debug_struct("ServingCertificate").field("files", &files).finish_non_exhaustive()
    }
}

impl ServingCertificate {
    /// One that this process makes, with a key that exists in its memory alone. It does not expire: it ends with the
    /// process.
    ///
    /// # Errors
    /// [`CertificateError::Make`].
    pub fn self_signed() -> Result<Self, CertificateError> {
        fn failed(error: impl std::error::Error + Send + Sync + 'static) -> CertificateError {
            CertificateError::Make(Box::new(error))
        }
        let names = [OWN_NAME, "localhost"].map(str::to_owned);
        let mut params = rcgen::CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name.push(rcgen::DnType::CommonName, OWN_NAME);
        let key = rcgen::KeyPair::generate().map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?;
        let provider = provider();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let pair = CertifiedKey::from_der(vec![certificate.der().clone()], key, &provider).map_err(failed)?;
        Ok(Self::new(provider, pair, None))
    }

    /// The one in these files.
    ///
    /// # Errors
    /// [`CertificateError`], but for [`CertificateError::Make`].
    pub async fn from_files(files: CertificateFiles) -> Result<Self, CertificateError> {
        let provider = provider();
        let read = files.read().await?;
        let pair = files.pair(&read, &provider)?;
        Ok(Self::new(provider, pair, Some((files, read))))
    }

    fn new(provider: Arc<CryptoProvider>, pair: CertifiedKey, source: Option<(CertificateFiles, Read)>) -> Self {
        Self { provider, current: Arc::new(Current(RwLock::new(Arc::new(pair)))), source }
    }

    /// The one that connections get now.
    #[cfg(test)]
    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        self.current.0.read().expect("no panic").cert[0].clone()
    }

    /// What the TLS library needs to serve with it.
    pub(super) fn server_config(&self) -> Result<ServerConfig, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth();
        let mut config = builder.with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Reads the files again every minute, until dropped. `what` names what is served. New connections get the certificate that they hold. Files that
    /// cannot be used are logged once and change nothing.
    pub(super) async fn keep(mut self, what: &'static str) {
        let Some((files, known)) = &mut self.source else { return std::future::pending().await };
        let mut logged = String::new();
        loop {
            tokio::time::sleep(READ_EVERY).await;
            let renewed = match files.read().await {
                Ok(read) if read == *known => continue,
                Ok(read) => files.pair(&read, &self.provider).map(|pair| (read, pair)),
                Err(error) => Err(error),
            };
            match renewed {
                Ok((read, pair)) => {
                    *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
                    *known = read;
                    logged.clear();
                    tracing::info!(file = %files.certificate.display(), "the certificate for {what} is renewed");
                }
                // Between the renewal of the one file and of the other, too.
                Err(error) => {
                    let text = error.to_string();
                    if text != logged {
                        tracing::warn!(error = text, "{what}: served with the certificate from before");
                        logged = text;
                    }
                }
            }
        }
    }
}

/// Named, not looked up: the process may have none installed.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
