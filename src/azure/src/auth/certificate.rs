//! Client certificates: a file with an RSA key and its certificate becomes a signed assertion of who the client is.
//!
//! Reads PEM (a key of PKCS#8 or PKCS#1, not encrypted) and PKCS#12. The file is read for each assertion, so that a
//! certificate that is replaced on disk counts from the next token on. Neither key nor password leaves this module.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use p12_keystore::Pkcs12Archive;
use ring::{
    digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest},
    error::{KeyRejected, Unspecified},
    rand::SystemRandom,
    signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _};
use serde_json::json;

use super::Secret;

/// Why a client certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file cannot be read.
    #[error("the file cannot be read")]
    Read(#[source] std::io::Error),
    /// It looks like PEM and is none.
    #[error("the file is not valid PEM")]
    Pem(#[source] pem::Error),
    /// It is no PEM, and no PKCS#12 that the password opens.
    #[error(
        "the file is neither PEM nor PKCS#12 that aadClientCertPassword opens; allowed is PEM with the certificate and \
         its unencrypted key, or PKCS#12 with its password"
    )]
    Pkcs12(#[source] p12_keystore::error::Error),
    /// The key in it is encrypted PEM.
    #[error("the private key is encrypted PEM; allowed is an unencrypted key, or PKCS#12 with aadClientCertPassword")]
    EncryptedPem,
    /// There is no key.
    #[error("the file holds no private key; it needs the certificate and its RSA key")]
    NoKey,
    /// The key cannot be used.
    #[error("the private key cannot be used ({0}); allowed is an RSA key of 2048 to 4096 bits")]
    Key(KeyRejected),
    /// No certificate is of the key.
    #[error("none of the {count} certificates in the file belongs to its private key")]
    NoCertificate {
        /// How many there are.
        count: usize,
    },
    /// The signature cannot be made.
    #[error("the assertion cannot be signed")]
    Sign(Unspecified),
    /// The clock of this machine cannot be right.
    #[error("the clock of this machine is before 1970")]
    Clock,
}

/// By which digest the authority finds the certificate. Source: Microsoft docs, certificate credentials; the MSAL libraries
/// name it by SHA-1 to Active Directory Federation Services, which know no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thumbprint {
    /// `x5t`
    Sha1,
    /// `x5t#S256`
    Sha256,
}

/// How long an assertion is good for. It is sent at once. Source: the MSAL libraries.
const LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Whom an assertion is about and for.
pub(super) struct Claims<'c> {
    /// The application that signs in.
    pub(super) client_id: &'c str,
    /// The URL at which the token is asked for.
    pub(super) audience: &'c str,
    /// How the certificate is named.
    pub(super) thumbprint: Thumbprint,
    /// The time of this machine.
    pub(super) now: SystemTime,
    /// Unlike that of any other assertion.
    pub(super) id: uuid::Uuid,
}

/// Reads the file and signs an assertion. Blocking: the key of PKCS#12 is derived from the password.
pub(super) fn assertion(
    path: &Path,
    password: Option<&Secret>,
    claims: &Claims<'_>,
) -> Result<Secret, CertificateError> {
    let bytes = std::fs::read(path).map_err(CertificateError::Read)?;
    Certificate::read(&bytes, password.map_or("", Secret::expose))?.sign(claims)
}

/// A certificate with its key.
struct Certificate {
    key: RsaKeyPair,
    der: Vec<u8>,
}

impl Certificate {
    fn read(bytes: &[u8], password: &str) -> Result<Self, CertificateError> {
        let is_pem = bytes.windows(11).any(|window| window == b"-----BEGIN ");
        if is_pem { Self::from_pem(bytes) } else { Self::from_pkcs12(bytes, password) }
    }

    fn from_pem(bytes: &[u8]) -> Result<Self, CertificateError> {
        let key = match PrivateKeyDer::from_pem_slice(bytes) {
            Ok(PrivateKeyDer::Pkcs8(key)) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            Ok(PrivateKeyDer::Pkcs1(key)) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            Ok(other) => RsaKeyPair::from_pkcs8(other.secret_der()),
            Err(_) if bytes.windows(22).any(|window| window == b"BEGIN ENCRYPTED PRIVAT") => {
                return Err(CertificateError::EncryptedPem);
            }
            Err(pem::Error::NoItemsFound) => return Err(CertificateError::NoKey),
            Err(error) => return Err(CertificateError::Pem(error)),
        };
        let certificates = CertificateDer::pem_slice_iter(bytes)
            .map(|certificate| certificate.map(|certificate| certificate.to_vec()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(CertificateError::Pem)?;
        Self::of(key.map_err(CertificateError::Key)?, certificates)
    }

    fn from_pkcs12(bytes: &[u8], password: &str) -> Result<Self, CertificateError> {
        let archive = Pkcs12Archive::from_pkcs12(bytes, password).map_err(CertificateError::Pkcs12)?;
        let certificates: Vec<Vec<u8>> = archive.certs.iter().map(|bag| bag.cert.as_der().to_vec()).collect();
        let mut refused = CertificateError::NoKey;
        for bag in &archive.keys {
            let key = RsaKeyPair::from_pkcs8(bag.key.as_der()).map_err(CertificateError::Key);
            match key.and_then(|key| Self::of(key, certificates.clone())) {
                Ok(certificate) => return Ok(certificate),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// The key with the certificate that is made for it: the others are those of its issuers.
    fn of(key: RsaKeyPair, certificates: Vec<Vec<u8>>) -> Result<Self, CertificateError> {
        let count = certificates.len();
        let public = key.public_key().as_ref();
        // A certificate holds the public key as it is.
        let is_of_the_key = |der: &Vec<u8>| der.windows(public.len()).any(|window| window == public);
        match certificates.into_iter().find(is_of_the_key) {
            Some(der) => Ok(Self { key, der }),
            None => Err(CertificateError::NoCertificate { count }),
        }
    }

    fn sign(&self, claims: &Claims<'_>) -> Result<Secret, CertificateError> {
        let now = claims.now.duration_since(UNIX_EPOCH).map_err(|_| CertificateError::Clock)?.as_secs();
        let (name, algorithm) = match claims.thumbprint {
            Thumbprint::Sha1 => ("x5t", &SHA1_FOR_LEGACY_USE_ONLY),
            Thumbprint::Sha256 => ("x5t#S256", &SHA256),
        };
        let thumbprint = URL_SAFE_NO_PAD.encode(digest(algorithm, &self.der));
        let header = json!({ "alg": "RS256", "typ": "JWT", name: thumbprint });
        let body = json!({
            "aud": claims.audience,
            "iss": claims.client_id,
            "sub": claims.client_id,
            "jti": claims.id.to_string(),
            "iat": now,
            "nbf": now,
            "exp": now + LIFETIME.as_secs(),
        });
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(body));
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(CertificateError::Sign)?;
        Ok(Secret::new(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use serde_json::Value;

    use super::*;

    const PEM: &[u8] = include_bytes!("../../../../tests/client_certificates/test-only-client.pem");
    const OTHER: &[u8] = include_bytes!("../../../../tests/client_certificates/test-only-other.pem");
    const PKCS12: &[u8] = include_bytes!("../../../../tests/client_certificates/test-only-client.p12");
    const LEGACY: &[u8] =
        include_bytes!("../../../../tests/client_certificates/test-only-client-legacy-without-password.p12");

    fn claims(thumbprint: Thumbprint) -> Claims<'static> {
        Claims {
            client_id: "app",
            audience: "https://login.example/t/oauth2/v2.0/token",
            thumbprint,
            now: UNIX_EPOCH + Duration::from_secs(1_000),
            id: uuid::Uuid::from_u128(7),
        }
    }

    fn parts(assertion: &Secret) -> (Value, Value, Vec<u8>) {
        let parts: Vec<Vec<u8>> =
            assertion.expose().split('.').map(|part| URL_SAFE_NO_PAD.decode(part).unwrap()).collect();
        let json = |at: usize| serde_json::from_slice(&parts[at]).unwrap();
        (json(0), json(1), parts[2].clone())
    }

    #[test]
    fn pem_and_both_generations_of_pkcs12_give_the_same_assertion() {
        let signed = |bytes, password| Certificate::read(bytes, password).unwrap().sign(&claims(Thumbprint::Sha256));
        let of_pem = signed(PEM, "").unwrap();
        for (bytes, password) in [(PEM, "is not needed"), (PKCS12, "test-only"), (LEGACY, "")] {
            assert_eq!(signed(bytes, password).unwrap().expose(), of_pem.expose());
        }
        let of_other = signed(OTHER, "").unwrap();
        assert_ne!(parts(&of_other).0["x5t#S256"], parts(&of_pem).0["x5t#S256"]);
    }

    #[test]
    fn an_assertion_names_client_authority_time_and_certificate_and_is_signed_by_its_key() {
        let certificate = Certificate::read(PEM, "").unwrap();
        let assertion = certificate.sign(&claims(Thumbprint::Sha256)).unwrap();
        let (header, body, signature) = parts(&assertion);
        // openssl x509 -outform der | openssl dgst -sha256 -binary
        assert_eq!(
            header,
            json!({"alg": "RS256", "typ": "JWT", "x5t#S256": "h2Pcvj8siE7hHaTCLwy19xHiHNtW5MfuVXpMbkm_udc"})
        );
        assert_eq!(
            body,
            json!({"aud": "https://login.example/t/oauth2/v2.0/token", "iss": "app", "sub": "app",
                "jti": "00000000-0000-0000-0000-000000000007", "iat": 1_000, "nbf": 1_000, "exp": 1_600})
        );
        let (signed, _) = assertion.expose().rsplit_once('.').unwrap();
        let public = ring::signature::UnparsedPublicKey::new(
            &ring::signature::RSA_PKCS1_2048_8192_SHA256,
            certificate.key.public_key().as_ref(),
        );
        public.verify(signed.as_bytes(), &signature).unwrap();
        let of_old = parts(&certificate.sign(&claims(Thumbprint::Sha1)).unwrap()).0;
        assert_eq!(of_old, json!({"alg": "RS256", "typ": "JWT", "x5t": "jmQZGUZXiWiGU1qKNaZ8_9Z35lw"}));
    }

    #[test]
    fn what_cannot_be_used_says_what_is_wrong_and_what_is_allowed() {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let section = |bytes: &[u8], name: &str| {
            let text = text(bytes);
            let (begin, end) = (format!("-----BEGIN {name}-----"), format!("-----END {name}-----"));
            let (_, rest) = text.split_once(&begin).unwrap();
            format!("{begin}{}{end}\n", rest.split_once(&end).unwrap().0)
        };
        let encrypted = format!("{}-----BEGIN ENCRYPTED PRIVATE KEY-----\n", section(PEM, "CERTIFICATE"));
        let mismatched = section(PEM, "PRIVATE KEY") + &section(OTHER, "CERTIFICATE");
        for (bytes, password, said) in [
            (PKCS12, "wrong", "neither PEM nor PKCS#12 that aadClientCertPassword opens"),
            (PKCS12, "", "neither PEM nor PKCS#12 that aadClientCertPassword opens"),
            (b"nonsense", "", "neither PEM nor PKCS#12"),
            (b"", "", "neither PEM nor PKCS#12"),
            (section(PEM, "CERTIFICATE").as_bytes(), "", "holds no private key"),
            (section(PEM, "PRIVATE KEY").as_bytes(), "", "none of the 0 certificates"),
            (mismatched.as_bytes(), "", "none of the 1 certificates in the file belongs to its private key"),
            (encrypted.as_bytes(), "", "encrypted PEM; allowed is an unencrypted key"),
        ] {
            let Err(error) = Certificate::read(bytes, password) else { panic!("{said}") };
            assert!(error.to_string().contains(said), "{error}");
            let source = error.source().map(ToString::to_string).unwrap_or_default();
            assert!(password.is_empty() || !source.contains(password), "{source}");
        }
    }
}
