//! How a node names the key that a file server has refused, without sending it: HMAC-SHA-256 of the key under a salt that
//! the node makes up for each request.

use lazuli_model::{Secret, digest::digits};
use ring::{
    hmac::{HMAC_SHA256, Key, sign, verify},
    rand::{SecureRandom as _, SystemRandom},
};
use serde::{Deserialize, Serialize};

/// How many bytes a salt has, at most those that are taken.
const SALT: usize = 32;

/// A key, by its fingerprint. Both parts are written in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    salt: String,
    digest: String,
}

fn of_hex(text: &str) -> Option<Vec<u8>> {
    let is_short = text.len() <= 2 * SALT && text.len().is_multiple_of(2);
    let pairs = text.as_bytes().chunks(2).filter(|_| is_short && text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let bytes: Option<Vec<u8>> =
        pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    bytes.filter(|bytes| !bytes.is_empty())
}

impl Fingerprint {
    /// That of a key, under a salt of its own; `None` where the system has no random numbers.
    pub(crate) fn of(key: &Secret) -> Option<Self> {
        let mut salt = [0; SALT];
        SystemRandom::new().fill(&mut salt).ok()?;
        let digest = sign(&Key::new(HMAC_SHA256, &salt), key.expose().as_bytes());
        Some(Self { salt: digits(&salt), digest: digits(digest.as_ref()) })
    }

    /// Whether it is that of a key. One that cannot be read is that of none.
    pub(crate) fn is_of(&self, key: &Secret) -> bool {
        let (Some(salt), Some(digest)) = (of_hex(&self.salt), of_hex(&self.digest)) else { return false };
        verify(&Key::new(HMAC_SHA256, &salt), key.expose().as_bytes(), &digest).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_that_of_one_key_and_differs_from_request_to_request() {
        let (key, other) = (Secret::new("c2VjcmV0"), Secret::new("b3RoZXI="));
        let (one, two) = (Fingerprint::of(&key).unwrap(), Fingerprint::of(&key).unwrap());
        assert!(one.is_of(&key) && two.is_of(&key) && !one.is_of(&other));
        assert_ne!(one, two);
        let written = serde_json::to_string(&one).unwrap();
        assert!(!written.contains(key.expose()), "{written}");
        assert!(serde_json::from_str::<Fingerprint>(&written).unwrap().is_of(&key));
    }

    #[test]
    fn what_is_no_fingerprint_is_that_of_no_key() {
        let good = Fingerprint::of(&Secret::new("")).unwrap();
        let long = "00".repeat(SALT + 1);
        for wrong in ["", "0", "zz", "+1", "ä0", &long, &good.salt] {
            for wrong in [
                Fingerprint { digest: wrong.to_owned(), ..good.clone() },
                Fingerprint { salt: wrong.to_owned(), digest: String::new() },
            ] {
                assert!(!wrong.is_of(&Secret::new("")), "{wrong:?}");
            }
        }
    }
}
