//! Access tokens: made, and known again.
//!
//! A token is a JWT with the claims that Azure's have. Its signature is a digest of the rest, so every
//! emulator knows the tokens of every other: a client may keep its token over a restart, as with the
//! real service.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

/// Name space of the digests that stand for signatures.
const SIGNATURE: Uuid = Uuid::from_u128(0x6c61_7a75_6c69_4000_8000_746f_6b65_6e73);

/// Whom a token is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// How many tokens are kept as they were read: clients use one for an hour, and few at a time.
const KEPT_MOST: usize = 256;

/// What a token says, as far as a sign-in needs it. The moments are checked with each use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Token {
    /// Whether an emulator made it.
    genuine: bool,
    number: Option<u64>,
    begins: Option<Timestamp>,
    ends: Option<Timestamp>,
    /// Whom it is shown to.
    pub(crate) audience: String,
    /// Who issued it.
    pub(crate) issuer: String,
    /// The principal that it is for, in a JWT of any origin.
    pub(crate) object_id: Option<String>,
}

impl Token {
    fn read(jwt: &str) -> Self {
        let Some(claims) = claims(jwt) else {
            return Self::default();
        };
        let time = |name: &str| claims[name].as_i64().and_then(|at| Timestamp::from_second(at).ok());
        let text = |name: &str| claims[name].as_str().map(str::to_owned);
        Self {
            genuine: jwt.rsplit_once('.').is_some_and(|(signed, given)| given == signature(signed)),
            number: claims["uti"].as_str().and_then(|uti| uti.parse().ok()),
            begins: time("nbf"),
            ends: time("exp"),
            audience: text("aud").unwrap_or_default(),
            issuer: text("iss").unwrap_or_default(),
            object_id: text("oid"),
        }
    }
}

/// The tokens of one emulator. Clones share one memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens {
    issued: Arc<Mutex<Issued>>,
    /// Tokens that were used, as they were read: reading one costs more than most requests.
    used: Arc<Mutex<HashMap<String, Arc<Token>>>>,
}

/// Why a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// Not made by an emulator, not yet begun, or revoked.
    Unknown,
    /// It was good until then.
    Expired(Timestamp),
}

#[derive(Debug, Default)]
struct Issued {
    count: u64,
    /// Tokens up to this number are refused.
    revoked: u64,
}

impl Tokens {
    /// Makes a token that lives from `now` for `lifetime`.
    pub(crate) fn issue(&self, audience: &str, subject: &Subject, now: Timestamp, lifetime: Duration) -> String {
        let number = {
            let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
            issued.count += 1;
            issued.count
        };
        let header = json!({"typ": "JWT", "alg": "HS256", "kid": "lazuli-emulator"});
        let begins = now.as_second();
        let mut claims = json!({
            "aud": audience,
            "iss": format!("https://sts.windows.net/{}/", subject.tenant),
            "iat": begins,
            "nbf": begins,
            "exp": (now + lifetime).as_second(),
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

    /// What a token says, whichever issuer made it.
    pub(crate) fn read(&self, jwt: &str) -> Arc<Token> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = used.get(jwt) {
            return Arc::clone(token);
        }
        if used.len() >= KEPT_MOST {
            used.clear();
        }
        let token = Arc::new(Token::read(jwt));
        used.insert(jwt.to_owned(), Arc::clone(&token));
        token
    }

    /// Whether a token was made by an emulator, is within its time and has not been revoked.
    pub(crate) fn check(&self, token: &Token, now: Timestamp) -> Result<(), Unusable> {
        let (true, Some(begins), Some(ends)) = (token.genuine, token.begins, token.ends) else {
            return Err(Unusable::Unknown);
        };
        let revoked = self.issued.lock().unwrap_or_else(PoisonError::into_inner).revoked;
        if begins.as_second() > now.as_second() || token.number.is_none_or(|number| number <= revoked) {
            return Err(Unusable::Unknown);
        }
        if ends <= now {
            return Err(Unusable::Expired(ends));
        }
        Ok(())
    }

    /// Whether a token can be used for anything at all.
    #[cfg(test)]
    pub(crate) fn valid(&self, token: &str, now: Timestamp) -> bool {
        self.check(&self.read(token), now).is_ok()
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
