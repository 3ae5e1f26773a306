//! Access tokens: made, and known again.
//!
//! A token is a JWT with the claims that Azure's have. Its signature is a digest of the rest, so every
//! emulator knows the tokens of every other: a client may keep its token over a restart, as with the
//! real service.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

/// Name space of the digests that stand for signatures.
const SIGNATURE: Uuid = Uuid::from_u128(0x6c61_7a75_6c69_4000_8000_746f_6b65_6e73);

/// Whom a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// Tenant id.
    pub(crate) tenant: String,
    /// Application (client) id.
    pub(crate) client_id: String,
    /// Object id of the service principal.
    pub(crate) object_id: String,
    /// ARM id of the managed identity or of the machine, when that is what signs in.
    pub(crate) identity: Option<String>,
}

/// The tokens of one emulator. Clones share one memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens {
    issued: Arc<Mutex<Issued>>,
}

#[derive(Debug, Default)]
struct Issued {
    count: u64,
    /// Tokens up to this number are refused.
    revoked: u64,
}

impl Tokens {
    /// Makes a token that lives from `now` for `lifetime`.
    pub(crate) fn issue(&self, audience: &str, subject: &Subject, now: OffsetDateTime, lifetime: Duration) -> String {
        let number = {
            let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
            issued.count += 1;
            issued.count
        };
        let header = json!({"typ": "JWT", "alg": "HS256", "kid": "lazuli-emulator"});
        let begins = now.unix_timestamp();
        let mut claims = json!({
            "aud": audience,
            "iss": format!("https://sts.windows.net/{}/", subject.tenant),
            "iat": begins,
            "nbf": begins,
            "exp": (now + lifetime).unix_timestamp(),
            "appid": subject.client_id,
            "appidacr": "1",
            "idp": format!("https://sts.windows.net/{}/", subject.tenant),
            "idtyp": "app",
            "oid": subject.object_id,
            "sub": subject.object_id,
            "tid": subject.tenant,
            "uti": number.to_string(),
            "ver": "1.0",
        });
        if let Some(identity) = &subject.identity {
            claims["appidacr"] = json!("2");
            claims["xms_mirid"] = json!(identity);
        }
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        format!("{signed}.{}", signature(&signed))
    }

    /// Whether a token was made by an emulator, is within its time and has not been revoked.
    pub(crate) fn valid(&self, token: &str, now: OffsetDateTime) -> bool {
        let Some((signed, given)) = token.rsplit_once('.') else {
            return false;
        };
        let Some(claims) = claims(token).filter(|_| given == signature(signed)) else {
            return false;
        };
        let now = now.unix_timestamp();
        let within = claims["nbf"].as_i64().is_some_and(|begins| begins <= now)
            && claims["exp"].as_i64().is_some_and(|ends| now < ends);
        let number = claims["uti"].as_str().and_then(|uti| uti.parse().ok());
        let revoked = self.issued.lock().unwrap_or_else(PoisonError::into_inner).revoked;
        within && number.is_some_and(|number: u64| number > revoked)
    }

    /// Refuses from now on every token made so far, as when credentials have been rotated.
    pub(crate) fn revoke_all(&self) {
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        issued.revoked = issued.count;
    }
}

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn signature(signed: &str) -> String {
    URL_SAFE_NO_PAD.encode(Uuid::new_v5(&SIGNATURE, signed.as_bytes()).as_bytes())
}

/// The claims of a well-formed JWT of any origin; the signature is not looked at.
pub(crate) fn claims(jwt: &str) -> Option<Value> {
    let mut parts = jwt.trim().split('.');
    let (header, claims) = (parts.next()?, parts.next()?);
    parts.next()?;
    if parts.next().is_some() {
        return None;
    }
    let decode = |part: &str| -> Option<Value> { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok() };
    decode(header)?.get("alg")?;
    decode(claims).filter(Value::is_object)
}

/// The object id of the principal that a token is for; the signature is not looked at.
pub(crate) fn object_id(jwt: &str) -> Option<String> {
    claims(jwt)?["oid"].as_str().map(str::to_owned)
}
