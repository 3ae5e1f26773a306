//! The address of a blob disk: `https://ACCOUNT.blob.SUFFIX/CONTAINER/NAME`.
//!
//! It is the `volumeHandle` of a CSI volume, the `diskURI` of an in-tree one and `vhd.uri` of a data disk. Scheme and host
//! ignore letter case (source: RFC 3986); container and name do not (source: Microsoft's "Naming and referencing
//! containers, blobs, and metadata").
//!
//! Whoever writes a PersistentVolume chooses this text, and our requests go where it says, signed with an account's key.
//! So only addresses of the cloud's own blob service are taken, and no text that two programs could read in two ways. A
//! query may be a shared access signature and the part before `@` a password: no error shows either.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
};

/// The container of the disks that a driver makes (source: the in-tree plugin of Kubernetes 1.7).
pub const CONTAINER: &str = "vhds";

/// How the names of the blobs that a driver makes end.
pub const EXTENSION: &str = ".vhd";

/// The longest name of a blob, in characters (source: Microsoft's page on naming).
const LONGEST_NAME: usize = 1_024;
/// How much of a text an error shows, in characters.
const SHOWN: usize = 256;

/// A page blob by its address.
///
/// Two addresses are equal where they name the same blob. [`BlobUri::as_str`] keeps the spelling, because
/// external-attacher compares handles by exact text.
#[derive(Debug, Clone)]
pub struct BlobUri {
    spelled: String,
    account: String,
    suffix: String,
    container: String,
    name: String,
}

/// Why a text is not the address of a blob disk of this cloud.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{shown:?} is not the address of a blob disk, https://ACCOUNT.blob.{suffix}/CONTAINER/NAME: {why}")]
pub struct BlobUriError {
    /// The text without what may be secret, and not longer than a reader can bear.
    shown: String,
    suffix: String,
    /// What is wrong with it.
    pub why: UriDefect,
}

/// What is wrong with the address of a blob disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UriDefect {
    /// Another scheme or none.
    #[error("the scheme must be https")]
    Scheme,
    /// A part before `@`.
    #[error("the host must not follow a user name or password")]
    UserInfo,
    /// A query, which is a shared access signature or the time of a snapshot.
    #[error("a query is not allowed, neither a shared access signature nor a snapshot")]
    Query,
    /// A fragment.
    #[error("a fragment is not allowed")]
    Fragment,
    /// A port.
    #[error("a port is not allowed")]
    Port,
    /// Characters with which two programs could read two addresses.
    #[error("only printable ASCII is allowed, without spaces and \" % < > @ [ \\ ] ^ ` {{ | }}")]
    Character,
    /// Another service or another cloud.
    #[error("the host is not that of this cloud's blob service")]
    Host,
    /// No name of a storage account.
    #[error("the account must be 3 to 24 letters and digits")]
    Account,
    /// No name of a container.
    #[error("the container must be 3 to 63 lower-case letters, digits and single hyphens, no hyphen first or last")]
    Container,
    /// No name of a blob.
    #[error("the name of the blob must be 1 to 1024 characters")]
    Name,
    /// An empty part of the path, or one that is `.` or `..`.
    #[error("no part of the path may be empty, end with a dot, or be . or ..")]
    Part,
}

/// Whether Azure takes it as the name of a storage account: 3 to 24 lower-case letters and digits (source: the storage
/// API).
pub fn is_account_name(name: &str) -> bool {
    (3..=24).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Whether Azure takes it as the name of a container. The containers whose names begin with `$` belong to Azure.
fn is_container_name(name: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    (3..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| is_inner(byte) || *byte == b'-')
        && bytes.first().is_some_and(is_inner)
        && bytes.last().is_some_and(is_inner)
        && !name.contains("--")
}

/// Checks the name of a blob. Slashes make folders of it for people.
fn check_name(name: &str) -> Result<(), UriDefect> {
    if !(1..=LONGEST_NAME).contains(&name.chars().count()) {
        return Err(UriDefect::Name);
    }
    if !name.bytes().all(is_plain) {
        return Err(UriDefect::Character);
    }
    // Azure's clients drop a dot at the end of a part.
    if name.split('/').any(|part| part.is_empty() || part.ends_with('.')) {
        return Err(UriDefect::Part);
    }
    Ok(())
}

/// Whether every program reads it as itself in a path.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"#%<>?@[\\]^`{|}".contains(&byte)
}

impl BlobUri {
    /// Reads an address. `suffix` is the domain of the cloud's storage services: `core.windows.net`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, suffix: &str) -> Result<Self, BlobUriError> {
        let suffix = suffix.to_ascii_lowercase();
        match read(text, &suffix) {
            Ok((account, container, name)) => Ok(Self { spelled: text.to_owned(), account, suffix, container, name }),
            Err(why) => Err(BlobUriError { shown: harmless(text), suffix, why }),
        }
    }

    /// The address of a blob of an account, canonical.
    ///
    /// # Errors
    /// When one of the names is none.
    pub fn of(account: &str, suffix: &str, container: &str, name: &str) -> Result<Self, BlobUriError> {
        Self::parse(&format!("https://{account}.blob.{suffix}/{container}/{name}"), suffix)
    }

    /// The address as it was spelled.
    pub fn as_str(&self) -> &str {
        &self.spelled
    }

    /// The address with scheme and host in lower case: the handle of a volume that is made.
    pub fn canonical(&self) -> String {
        format!("https://{}.blob.{}/{}/{}", self.account, self.suffix, self.container, self.name)
    }

    /// The storage account, in lower case.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// The container.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// The name of the blob in its container, with slashes where it has folders.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn key(&self) -> (&str, &str, &str, &str) {
        (&self.account, &self.suffix, &self.container, &self.name)
    }
}

/// Account, container and name.
fn read(text: &str, suffix: &str) -> Result<(String, String, String), UriDefect> {
    let (scheme, rest) = text.split_once("://").ok_or(UriDefect::Scheme)?;
    if !scheme.eq_ignore_ascii_case("https") {
        return Err(UriDefect::Scheme);
    }
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return Err(UriDefect::UserInfo);
    }
    match rest.find(['?', '#']).map(|at| rest.as_bytes()[at]) {
        Some(b'?') => return Err(UriDefect::Query),
        Some(_) => return Err(UriDefect::Fragment),
        None => {}
    }
    if authority.contains(':') {
        return Err(UriDefect::Port);
    }
    if !authority.bytes().chain(path.bytes()).all(is_plain) {
        return Err(UriDefect::Character);
    }
    let host = authority.to_ascii_lowercase();
    let (account, service) = host.split_once('.').ok_or(UriDefect::Host)?;
    if suffix.is_empty() || service.strip_prefix("blob.") != Some(suffix) {
        return Err(UriDefect::Host);
    }
    if !is_account_name(account) {
        return Err(UriDefect::Account);
    }
    let path = path.strip_prefix('/').unwrap_or(path);
    let (container, name) = path.split_once('/').ok_or(UriDefect::Name)?;
    if !is_container_name(container) {
        return Err(UriDefect::Container);
    }
    check_name(name)?;
    Ok((account.to_owned(), container.to_owned(), name.to_owned()))
}

/// A text without what may be secret.
fn harmless(text: &str) -> String {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let text = &text[..end];
    let text = match text.rfind('@') {
        Some(at) => format!("…{}", &text[at..]),
        None => text.to_owned(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl PartialEq for BlobUri {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for BlobUri {}

impl PartialOrd for BlobUri {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BlobUri {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for BlobUri {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for BlobUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SUFFIX: &str = "core.windows.net";

    fn parse(text: &str) -> Result<BlobUri, UriDefect> {
        BlobUri::parse(text, SUFFIX).map_err(|error| error.why)
    }

    #[test]
    fn the_addresses_that_the_in_tree_plugin_wrote_are_read() {
        let uri = parse("https://ds00000001.blob.core.windows.net/vhds/kubernetes-dynamic-pvc-1.vhd").unwrap();
        assert_eq!(
            (uri.account(), uri.container(), uri.name()),
            ("ds00000001", "vhds", "kubernetes-dynamic-pvc-1.vhd")
        );
        let china =
            BlobUri::parse("https://azuretestx.blob.core.chinacloudapi.cn/vhds/folder/d.vhd", "core.chinacloudapi.cn");
        assert_eq!(china.unwrap().name(), "folder/d.vhd");
        // A person's disk needs no extension: Azure does not ask for one.
        assert_eq!(parse("https://abc.blob.core.windows.net/disks/d").unwrap().name(), "d");
    }

    #[test]
    fn scheme_and_host_ignore_letter_case_and_the_path_does_not() {
        let one = parse("HTTPS://Acct.BLOB.Core.Windows.NET/vhds/Disk.vhd").unwrap();
        assert_eq!(one.canonical(), "https://acct.blob.core.windows.net/vhds/Disk.vhd");
        assert_eq!(one.as_str(), "HTTPS://Acct.BLOB.Core.Windows.NET/vhds/Disk.vhd");
        assert_eq!(one, parse(&one.canonical()).unwrap());
        assert_ne!(one, parse("https://acct.blob.core.windows.net/vhds/disk.vhd").unwrap());
        assert_eq!(one, BlobUri::parse(one.as_str(), "CORE.windows.net").unwrap());
    }

    #[test]
    fn what_is_no_address_of_a_blob_disk_of_this_cloud_is_refused_by_name() {
        for (text, why) in [
            ("", UriDefect::Scheme),
            ("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d", UriDefect::Scheme),
            ("http://acct.blob.core.windows.net/vhds/d.vhd", UriDefect::Scheme),
            (" https://acct.blob.core.windows.net/vhds/d.vhd", UriDefect::Scheme),
            ("https://user:pw@acct.blob.core.windows.net/vhds/d.vhd", UriDefect::UserInfo),
            ("https://acct.blob.core.windows.net@evil.example/vhds/d.vhd", UriDefect::UserInfo),
            ("https://acct.blob.core.windows.net/vhds/d.vhd?sv=1&sig=x", UriDefect::Query),
            ("https://acct.blob.core.windows.net/vhds/d.vhd?snapshot=2020", UriDefect::Query),
            ("https://acct.blob.core.windows.net?a/vhds/d.vhd", UriDefect::Query),
            ("https://acct.blob.core.windows.net/vhds/d.vhd#x", UriDefect::Fragment),
            ("https://acct.blob.core.windows.net:443/vhds/d.vhd", UriDefect::Port),
            ("https://acct.blob.core.windows.net/vhds/d%2e.vhd", UriDefect::Character),
            ("https://acct.blob.core.windows.net/vhds/d e.vhd", UriDefect::Character),
            ("https://acct.blob.core.windows.net/vhds/ä.vhd", UriDefect::Character),
            ("https://acct.blob.core.windows.net\\vhds\\d.vhd", UriDefect::Character),
            ("https://acct.blob.core.windows.net/vhds/d\n.vhd", UriDefect::Character),
            ("https://acct.blob.core.windows.net.evil.example/vhds/d.vhd", UriDefect::Host),
            ("https://acct.blob.core.windows.net./vhds/d.vhd", UriDefect::Host),
            ("https://acct.blob.core.chinacloudapi.cn/vhds/d.vhd", UriDefect::Host),
            ("https://acct.file.core.windows.net/vhds/d.vhd", UriDefect::Host),
            ("https://acct.z01.blob.core.windows.net/vhds/d.vhd", UriDefect::Host),
            ("https://blob.core.windows.net/vhds/d.vhd", UriDefect::Host),
            ("https://localhost/vhds/d.vhd", UriDefect::Host),
            ("https://.blob.core.windows.net/vhds/d.vhd", UriDefect::Account),
            ("https://acct-secondary.blob.core.windows.net/vhds/d.vhd", UriDefect::Account),
            ("https://aa.blob.core.windows.net/vhds/d.vhd", UriDefect::Account),
            ("https://acct.blob.core.windows.net", UriDefect::Name),
            ("https://acct.blob.core.windows.net/d.vhd", UriDefect::Name),
            ("https://acct.blob.core.windows.net/vhds/", UriDefect::Name),
            ("https://acct.blob.core.windows.net//d.vhd", UriDefect::Container),
            ("https://acct.blob.core.windows.net/VHDS/d.vhd", UriDefect::Container),
            ("https://acct.blob.core.windows.net/$root/d.vhd", UriDefect::Container),
            ("https://acct.blob.core.windows.net/../vhds/d.vhd", UriDefect::Container),
            ("https://acct.blob.core.windows.net/vhds/../d.vhd", UriDefect::Part),
            ("https://acct.blob.core.windows.net/vhds/./d.vhd", UriDefect::Part),
            ("https://acct.blob.core.windows.net/vhds//d.vhd", UriDefect::Part),
            ("https://acct.blob.core.windows.net/vhds/d.vhd/", UriDefect::Part),
            ("https://acct.blob.core.windows.net/vhds/d.", UriDefect::Part),
        ] {
            assert_eq!(parse(text), Err(why), "{text}");
        }
        assert_eq!(BlobUri::parse("https://acct.blob./vhds/d.vhd", "").unwrap_err().why, UriDefect::Host);
        let long = format!("https://acct.blob.core.windows.net/vhds/{}", "a".repeat(1_025));
        assert_eq!(parse(&long), Err(UriDefect::Name));
    }

    #[test]
    fn no_error_shows_a_signature_or_a_password() {
        for text in [
            "https://acct.blob.core.windows.net/vhds/d.vhd?sig=hush",
            "https://acct.blob.core.windows.net/vhds/d.vhd#hush",
            "https://acct:hush@acct.blob.core.windows.net/vhds/d.vhd",
            "https://acct:hush@x@acct.blob.core.windows.net/vhds/d.vhd",
            "http://acct:hush@acct.blob.core.windows.net/vhds/d.vhd?sig=hush",
        ] {
            let error = BlobUri::parse(text, SUFFIX).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
        }
        let error = BlobUri::parse("https://acct.blob.core.windows.net/vhds/d.vhd?sig=hush", SUFFIX).unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"https://acct.blob.core.windows.net/vhds/d.vhd\" is not the address of a blob disk, \
             https://ACCOUNT.blob.core.windows.net/CONTAINER/NAME: a query is not allowed, neither a shared access \
             signature nor a snapshot"
        );
        assert!(BlobUri::parse(&"x".repeat(9_000), SUFFIX).unwrap_err().to_string().len() < 1_000);
    }

    proptest! {
        #[test]
        fn a_canonical_address_is_read_as_itself(
            account in "[a-z0-9]{3,24}", container in "[a-z0-9][a-z0-9]{2,10}(-[a-z0-9]{1,9}){0,3}",
            name in "[A-Za-z0-9_-]{1,20}(/[A-Za-z0-9_-]{1,9}){0,3}(\\.vhd)?",
        ) {
            let uri = BlobUri::of(&account, SUFFIX, &container, &name).unwrap();
            prop_assert_eq!(uri.canonical(), uri.as_str());
            let shouted = format!("HTTPS://{}/{container}/{name}",
                format!("{account}.blob.{SUFFIX}").to_uppercase());
            let other = BlobUri::parse(&shouted, SUFFIX).unwrap();
            prop_assert_eq!((other.account(), other.container(), other.name()), (&*account, &*container, &*name));
            prop_assert_eq!(&other, &uri);
            prop_assert_eq!(other.canonical(), uri.canonical());
        }

        #[test]
        fn no_text_leads_to_another_host(text in "(https://)?\\PC{0,60}", tail in "\\PC{0,20}") {
            for text in [text.clone(), format!("https://acct.blob.{SUFFIX}{tail}"), format!("{text}.blob.{SUFFIX}/vhds/d")] {
                if let Ok(uri) = BlobUri::parse(&text, SUFFIX) {
                    let rest = uri.canonical().strip_prefix("https://").unwrap().to_owned();
                    prop_assert_eq!(rest.split('/').next().unwrap(), format!("{}.blob.{SUFFIX}", uri.account()));
                    prop_assert!(is_account_name(uri.account()));
                }
            }
        }
    }
}
