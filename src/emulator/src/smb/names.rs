//! Names that are safe in a line of Samba's configuration and as a folder's name.
//!
//! Azure refuses other names, but a state file or another hand may bring any text. What is no such name is not served.

/// The name of a storage account: 3 to 24 lower-case letters and digits (documented).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AccountName(String);

/// The name of a file share: 3 to 63 lower-case letters, digits and hyphens (documented).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShareName(String);

/// The name under which the store keeps a deleted share: that of the share and its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeptName(String);

/// Sections to which Samba gives a meaning of its own (source: smb.conf(5), special sections).
const SPECIAL: [&str; 3] = ["global", "homes", "printers"];

fn alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

impl AccountName {
    /// The name, if it is one.
    ///
    /// # Errors
    /// Why it is none, as a sentence about it.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        if (3..=24).contains(&name.len()) && name.bytes().all(alphanumeric) {
            return Ok(Self(name.to_owned()));
        }
        Err(format!("the account {name:?} is not served: its name must have 3 to 24 lower-case letters and digits"))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl ShareName {
    /// The name, if it is one that Samba can serve.
    ///
    /// # Errors
    /// Why it is none, as a sentence about it.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        let plain = (3..=63).contains(&name.len()) && name.bytes().all(|byte| alphanumeric(byte) || byte == b'-');
        if !plain || name.starts_with('-') {
            return Err(format!(
                "the share {name:?} is not served: its name must have 3 to 63 lower-case letters, digits and hyphens"
            ));
        }
        if SPECIAL.contains(&name) {
            return Err(format!(
                "the share {name:?} is not served: Samba gives {} a meaning of their own",
                SPECIAL.join(", ")
            ));
        }
        Ok(Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl KeptName {
    /// The name, if it is the name of a share, an underscore and hexadecimal digits in any letter case.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (share, version) = name.rsplit_once('_')?;
        let hexadecimal = !version.is_empty() && version.len() <= 32 && version.bytes().all(|b| b.is_ascii_hexdigit());
        (hexadecimal && ShareName::parse(share).is_ok()).then(|| Self(name.to_ascii_lowercase()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it was this share.
    pub(crate) fn is_of(&self, share: &ShareName) -> bool {
        self.0.rsplit_once('_').is_some_and(|(name, _)| name == share.as_str())
    }
}
