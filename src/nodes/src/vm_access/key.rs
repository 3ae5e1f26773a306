//! The public key and the user's name, checked before anything is sent: what is wrong with them would only show in each
//! machine, minutes later.

use std::{fmt, str::FromStr};

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD},
};

/// The key types that Azure takes (source: Azure's documentation of SSH keys for Linux machines: RSA of 2,048 bits or
/// more, and Ed25519).
const TYPES: [&str; 2] = [RSA, ED25519];
const RSA: &str = "ssh-rsa";
const ED25519: &str = "ssh-ed25519";
/// Source: as [`TYPES`].
const LEAST_RSA_BITS: usize = 2_048;
/// Bytes of an Ed25519 public key (source: RFC 8709).
const ED25519_BYTES: usize = 32;

/// A public SSH key: one line of `authorized_keys` without options.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    kind: &'static str,
    blob: Vec<u8>,
    comment: String,
}

/// Why a text is not a public key that can be added. No message quotes the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// It is a private key.
    #[error("it holds a private key; give the public key, which ssh-keygen writes beside it with the ending .pub")]
    Private,
    /// It is empty.
    #[error("it is empty; expected one line such as ssh-ed25519 AAAA...")]
    Empty,
    /// It has several lines.
    #[error("it has more than one line; expected one public key")]
    SeveralLines,
    /// It does not begin with a type that Azure takes.
    #[error(
        "it does not begin with ssh-ed25519 or ssh-rsa, the types that Azure takes; options before the type, \
         certificates and other types are not taken"
    )]
    Type,
    /// The key's data cannot be read.
    #[error("the part after the type is not the base64 of a key of this type")]
    Data,
    /// An RSA key is too short.
    #[error("the RSA key has {bits} bits; Azure takes {LEAST_RSA_BITS} or more")]
    Short {
        /// Its bits.
        bits: usize,
    },
    /// The comment holds control characters.
    #[error("the comment after the key holds control characters")]
    Comment,
}

impl PublicKey {
    /// The line, as it goes into `authorized_keys`.
    pub fn line(&self) -> String {
        let data = BASE64_STANDARD.encode(&self.blob);
        format!("{} {data} {}", self.kind, self.comment).trim_end().to_owned()
    }

    /// The type.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The data of the key, of which fingerprints are made.
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// The fingerprint as ssh-keygen prints it, of the SHA-256 digest of the data.
    pub fn fingerprint(&self, sha256: &[u8]) -> String {
        format!("SHA256:{}", BASE64_STANDARD_NO_PAD.encode(sha256))
    }

    /// The comment; empty for none.
    pub fn comment(&self) -> &str {
        &self.comment
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey").field("kind", &self.kind).field("comment", &self.comment).finish_non_exhaustive()
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        // Of OpenSSH, PEM and PuTTY.
        if text.contains("PRIVATE KEY") || text.contains("PuTTY-User-Key-File") || text.contains("Private-Lines") {
            return Err(PublicKeyError::Private);
        }
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = lines.next().ok_or(PublicKeyError::Empty)?;
        if lines.next().is_some() {
            return Err(PublicKeyError::SeveralLines);
        }
        let (kind, rest) = line.split_once([' ', '\t']).ok_or(PublicKeyError::Type)?;
        let kind = TYPES.into_iter().find(|known| *known == kind).ok_or(PublicKeyError::Type)?;
        let (data, comment) = rest.trim_start().split_once([' ', '\t']).unwrap_or((rest.trim(), ""));
        let comment = comment.trim();
        if comment.chars().any(char::is_control) {
            return Err(PublicKeyError::Comment);
        }
        let blob = BASE64_STANDARD.decode(data).map_err(|_| PublicKeyError::Data)?;
        check(kind, &blob)?;
        Ok(Self { kind, blob, comment: comment.to_owned() })
    }
}

/// Checks the data of a key (source: RFC 4253, section 6.6, and RFC 8709).
fn check(kind: &str, blob: &[u8]) -> Result<(), PublicKeyError> {
    let (name, rest) = string(blob).ok_or(PublicKeyError::Data)?;
    let (first, rest) = string(rest).ok_or(PublicKeyError::Data)?;
    if name != kind.as_bytes() {
        return Err(PublicKeyError::Data);
    }
    if kind == ED25519 {
        return if first.len() == ED25519_BYTES && rest.is_empty() { Ok(()) } else { Err(PublicKeyError::Data) };
    }
    let (modulus, rest) = string(rest).ok_or(PublicKeyError::Data)?;
    if !rest.is_empty() {
        return Err(PublicKeyError::Data);
    }
    let zeroes = modulus.iter().take_while(|byte| **byte == 0).count();
    let leading = modulus.get(zeroes).map_or(0, |byte| byte.leading_zeros() as usize);
    let bits = (modulus.len() - zeroes) * 8 - leading;
    if bits < LEAST_RSA_BITS { Err(PublicKeyError::Short { bits }) } else { Ok(()) }
}

/// A string of the SSH protocol, and what follows it.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

/// Most characters of a user's name (source: useradd of Linux).
const LONGEST_USER: usize = 32;

/// The name of a user of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User(String);

/// Why a text is not the name of a user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// It is not one that Linux takes.
    #[error(
        "{0:?} is not a user's name: expected at most {LONGEST_USER} letters, digits, - and _, and a letter or _ first"
    )]
    Name(String),
    /// It is root.
    #[error("the extension changes no system account such as root; name another user, who may become root by sudo")]
    Root,
}

impl User {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for User {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        let first = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
        let other = |letter: char| first(letter) || letter.is_ascii_digit() || letter == '-';
        if text == "root" {
            return Err(UserError::Root);
        }
        if text.len() > LONGEST_USER || !text.starts_with(first) || !text.chars().all(other) {
            return Err(UserError::Name(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
