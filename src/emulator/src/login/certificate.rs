//! Assertions that a client signs with its own certificate.
//!
//! As the service does, the emulator looks the certificate up by the thumbprint in the header, checks the signature with it,
//! and compares the audience with the URL at which the assertion was sent. An assertion may be sent again within its
//! time: client libraries keep theirs.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use rustls::pki_types::CertificateDer;
use serde_json::Value;

/// The hosts at which clients know the authority. Source: the clouds of the Azure SDKs.
const AUTHORITIES: [&str; 3] = ["login.microsoftonline.com", "login.chinacloudapi.cn", "login.microsoftonline.us"];

/// Why an assertion proves nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// It is no JWT with the header and claims that such an assertion has.
    Malformed,
    /// No certificate of the client has its thumbprint.
    UnknownKey,
    /// The certificate did not sign this.
    Signature,
    /// It is for another authority or tenant.
    Audience(String),
}

/// A certificate in PEM as DER. `None` when it is none.
pub(crate) fn der(pem: &str) -> Option<Vec<u8>> {
    let (_, rest) = pem.split_once("-----BEGIN CERTIFICATE-----")?;
    let (body, _) = rest.split_once("-----END CERTIFICATE-----")?;
    let der = STANDARD.decode(body.split_whitespace().collect::<String>()).ok()?;
    webpki::EndEntityCert::try_from(&CertificateDer::from(der.as_slice())).ok()?;
    Some(der)
}

/// Whether one of these certificates (PEM) signed this assertion for the authority at `base` and the path that was asked.
pub(super) fn check(certificates: &[String], jwt: &str, base: &str, path: &str) -> Result<(), Flaw> {
    let parts: Vec<&str> = jwt.trim().split('.').collect();
    let [header, claims, signature] = parts[..] else { return Err(Flaw::Malformed) };
    let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| Flaw::Malformed);
    let json = |part: &str| serde_json::from_slice::<Value>(&bytes(part)?).map_err(|_| Flaw::Malformed);
    let (head, claims) = (json(header)?, json(claims)?);
    let algorithm = match head["alg"].as_str() {
        Some("RS256") => webpki::ring::RSA_PKCS1_2048_8192_SHA256,
        Some("PS256") => webpki::ring::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        _ => return Err(Flaw::Malformed),
    };
    if claims["jti"].as_str().is_none_or(str::is_empty) {
        return Err(Flaw::Malformed);
    }
    let (name, kind) = match head.get("x5t#S256") {
        Some(_) => ("x5t#S256", &SHA256),
        None => ("x5t", &SHA1_FOR_LEGACY_USE_ONLY),
    };
    let thumbprint = head[name].as_str().ok_or(Flaw::Malformed)?;
    let registered = certificates.iter().filter_map(|pem| der(pem));
    let certificate = registered
        .into_iter()
        .find(|der| URL_SAFE_NO_PAD.encode(digest(kind, der)) == thumbprint.trim_end_matches('='))
        .ok_or(Flaw::UnknownKey)?;
    let certificate = CertificateDer::from(certificate);
    let certificate = webpki::EndEntityCert::try_from(&certificate).map_err(|_| Flaw::UnknownKey)?;
    let (signed, _) = jwt.trim().rsplit_once('.').ok_or(Flaw::Malformed)?;
    certificate.verify_signature(algorithm, signed.as_bytes(), &bytes(signature)?).map_err(|_| Flaw::Signature)?;
    let audience = claims["aud"].as_str().unwrap_or_default();
    if is_here(audience, base, path) { Ok(()) } else { Err(Flaw::Audience(audience.to_owned())) }
}

/// Whether an audience is the token endpoint that was asked: the path in any letter case, at the authority's own host or at
/// an address of this emulator.
fn is_here(audience: &str, base: &str, path: &str) -> bool {
    let (Ok(audience), Ok(base)) = (url::Url::parse(audience), url::Url::parse(base)) else { return false };
    let host = audience.host_str().unwrap_or_default();
    let is_local = matches!(host, "localhost" | "127.0.0.1" | "[::1]") || audience.host_str() == base.host_str();
    (is_local || AUTHORITIES.contains(&host) || path.to_ascii_lowercase().starts_with("/adfs/"))
        && audience.path().eq_ignore_ascii_case(path)
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
    use serde_json::json;

    use super::*;

    const CLIENT: &str = include_str!("../../../../tests/client_certificates/test-only-client.pem");
    const OTHER: &str = include_str!("../../../../tests/client_certificates/test-only-other.pem");
    const PATH: &str = "/tenant/oauth2/v2.0/token";

    fn key() -> RsaKeyPair {
        let (_, rest) = CLIENT.split_once("-----BEGIN PRIVATE KEY-----").unwrap();
        let (body, _) = rest.split_once("-----END").unwrap();
        RsaKeyPair::from_pkcs8(&STANDARD.decode(body.split_whitespace().collect::<String>()).unwrap()).unwrap()
    }

    fn signed(header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let key = key();
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    #[test]
    fn an_assertion_counts_only_if_a_registered_certificate_signed_it_for_this_authority() {
        let thumbprint = |kind, pem| URL_SAFE_NO_PAD.encode(digest(kind, &der(pem).unwrap()));
        let header = json!({"alg": "RS256", "x5t#S256": thumbprint(&SHA256, CLIENT)});
        let old = json!({"alg": "RS256", "x5t": thumbprint(&SHA1_FOR_LEGACY_USE_ONLY, CLIENT)});
        let of_other = json!({"alg": "RS256", "x5t#S256": thumbprint(&SHA256, OTHER)});
        let claims = |audience: &str| json!({"aud": audience, "jti": "1"});
        let here = format!("https://login.microsoftonline.com{PATH}");
        let both = [OTHER.to_owned(), CLIENT.to_owned()];
        let checked = |certificates: &[String], jwt: &str| check(certificates, jwt, "http://lab.example:81", PATH);
        for audience in [&here, &format!("http://127.0.0.1:7{PATH}"), &format!("http://lab.example:81{PATH}")] {
            assert_eq!(checked(&both, &signed(&header, &claims(audience))), Ok(()), "{audience}");
        }
        assert_eq!(checked(&both, &signed(&old, &claims(&here))), Ok(()));
        let audience = |text: &str| Err(Flaw::Audience(text.to_owned()));
        for elsewhere in
            [&format!("https://evil.example{PATH}"), "https://login.microsoftonline.com/other/oauth2/token", ""]
        {
            assert_eq!(checked(&both, &signed(&header, &claims(elsewhere))), audience(elsewhere));
        }
        let good = signed(&header, &claims(&here));
        assert_eq!(checked(&both[..1], &good), Err(Flaw::UnknownKey));
        assert_eq!(checked(&[], &good), Err(Flaw::UnknownKey));
        assert_eq!(checked(&both, &signed(&of_other, &claims(&here))), Err(Flaw::Signature));
        let (_, signature) = good.rsplit_once('.').unwrap();
        let (changed, _) = signed(&header, &json!({"aud": here, "jti": "2"}))
            .rsplit_once('.')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        assert_eq!(checked(&both, &format!("{changed}.{signature}")), Err(Flaw::Signature));
        for malformed in [
            signed(&json!({"alg": "none", "x5t#S256": "x"}), &claims(&here)),
            signed(&json!({"alg": "RS256"}), &claims(&here)),
            signed(&header, &json!({"aud": here})),
            "a.b".to_owned(),
        ] {
            assert_eq!(checked(&both, &malformed), Err(Flaw::Malformed));
        }
    }
}
