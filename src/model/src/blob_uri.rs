//! The address of a blob disk: `https://ACCOUNT.blob.SUFFIX/CONTAINER/NAME`.
//!
//! It is the `volumeHandle` of a CSI volume, the `diskURI` of an in-tree one and `vhd.uri` of a data disk. Scheme and host
//! ignore letter case (source: RFC 3986); container and name do not (source: Microsoft's "Naming and referencing
//! containers, blobs, and metadata").
//!
//! Whoever writes a PersistentVolume chooses this text, and requests go where it says, signed with an account's key. So no
//! text is taken that two programs could read in two ways, and [`BlobUri::check_cloud`] comes before a request. A query may
//! be a shared access signature and the part before `@` a password: no error shows either.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

/// The longest name of a blob, in characters (source: Microsoft's page on naming).
const LONGEST_NAME: usize = 1_024;
/// The longest name of a host, in characters (source: RFC 1035).
const LONGEST_HOST: usize = 253;
/// How much of a text an error shows, in characters.
const SHOWN: usize = 256;

/// A page blob by its address.
///
/// Two addresses are equal where they name the same blob. [`BlobUri::as_str`] keeps the spelling, because
/// external-attacher compares handles by exact text. Clones share the text.
#[derive(Clone)]
pub struct BlobUri {
    text: Arc<str>,
    /// Scheme and host in lower case.
    folded: Arc<str>,
}

/// Why a text is not the address of a blob disk.
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
    /// Another service.
    #[error("the host is not that of a blob service")]
    Host,
    /// Another cloud.
    #[error("the host is not that of this cloud's blob service")]
    OtherCloud,
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

const SCHEME: &str = "https://";

impl BlobUri {
    /// The address of a blob of an account. `suffix` is the domain of the cloud's storage services: `core.windows.net`.
    ///
    /// # Errors
    /// When one of the names is none.
    pub fn of(account: &str, suffix: &str, container: &str, name: &str) -> Result<Self, BlobUriError> {
        format!("https://{account}.blob.{suffix}/{container}/{name}").parse()
    }

    /// Refuses the address of another cloud. `suffix` is the domain of this cloud's storage services.
    ///
    /// # Errors
    /// [`UriDefect::OtherCloud`].
    pub fn check_cloud(&self, suffix: &str) -> Result<(), BlobUriError> {
        if self.suffix().eq_ignore_ascii_case(suffix) {
            return Ok(());
        }
        let suffix = suffix.to_ascii_lowercase();
        Err(BlobUriError { shown: harmless(self.as_str()), suffix, why: UriDefect::OtherCloud })
    }

    /// The address as it was spelled.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The address with scheme and host in lower case: a key for tables, and the handle of a volume that is made.
    pub fn folded(&self) -> &str {
        &self.folded
    }

    /// The host in lower case, and the path without its first slash.
    fn host_and_path(&self) -> (&str, &str) {
        self.folded[SCHEME.len()..].split_once('/').expect("the parser has seen a path")
    }

    /// The storage account, in lower case.
    pub fn account(&self) -> &str {
        self.host_and_path().0.split('.').next().expect("the parser has seen an account")
    }

    /// The domain of the storage services, in lower case.
    fn suffix(&self) -> &str {
        let (_, service) = self.host_and_path().0.split_once('.').expect("the parser has seen a service");
        service.strip_prefix(SERVICE).expect("the parser has seen the blob service")
    }

    /// The container.
    pub fn container(&self) -> &str {
        self.host_and_path().1.split('/').next().expect("the parser has seen a container")
    }

    /// Whether a text that is no address of a blob disk may name this blob to another program: by another scheme, a port, a
    /// query or a domain of one's own. It has the last part of the blob's name then, plain or percent-encoded.
    pub fn may_be(&self, text: &str) -> bool {
        let last = last_part(self.name());
        let plain = percent_decoded(text);
        [text, &plain, &percent_decoded(&plain)].iter().any(|text| {
            let path = text.split(['?', '#']).next().unwrap_or_default();
            last_part(path).eq_ignore_ascii_case(last)
        })
    }

    /// The name of the blob in its container, with slashes where it has folders.
    pub fn name(&self) -> &str {
        self.host_and_path().1.split_once('/').expect("the parser has seen a name").1
    }
}

/// The part of a path behind its last slash, of either kind.
fn last_part(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or_default()
}

/// A text with what is percent-encoded in it (source: RFC 3986) as plain characters.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let decoded =
            digits.filter(|digits| !digits.starts_with('+')).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How the host goes on behind the account.
const SERVICE: &str = "blob.";

impl FromStr for BlobUri {
    type Err = BlobUriError;

    fn from_str(text: &str) -> Result<Self, BlobUriError> {
        match read(text) {
            Ok(folded) => Ok(Self { text: text.into(), folded: folded.into() }),
            Err(why) => Err(BlobUriError { shown: harmless(text), suffix: "SUFFIX".to_owned(), why }),
        }
    }
}

/// The address with scheme and host in lower case.
fn read(text: &str) -> Result<String, UriDefect> {
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
    if host.len() > LONGEST_HOST || !service.strip_prefix(SERVICE).is_some_and(is_domain) {
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
    Ok(format!("{SCHEME}{host}/{path}"))
}

/// Whether it is a domain: labels of letters, digits and hyphens.
fn is_domain(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    text.split('.').all(|label| !label.is_empty() && label.bytes().all(is_letter))
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
        self.folded == other.folded
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
        self.folded.cmp(&other.folded)
    }
}

impl Hash for BlobUri {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded.hash(state);
    }
}

impl fmt::Debug for BlobUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for BlobUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SUFFIX: &str = "core.windows.net";

    fn parse(text: &str) -> Result<BlobUri, UriDefect> {
        let read = |text: &str| text.parse::<BlobUri>().and_then(|uri| uri.check_cloud(SUFFIX).map(|()| uri));
        read(text).map_err(|error| error.why)
    }

    #[test]
    fn the_addresses_that_the_in_tree_plugin_wrote_are_read() {
        let uri = parse("https://ds00000001.blob.core.windows.net/vhds/kubernetes-dynamic-pvc-1.vhd").unwrap();
        assert_eq!(
            (uri.account(), uri.container(), uri.name()),
            ("ds00000001", "vhds", "kubernetes-dynamic-pvc-1.vhd")
        );
        let china: BlobUri = "https://azuretestx.blob.core.chinacloudapi.cn/vhds/folder/d.vhd".parse().unwrap();
        assert_eq!(china.name(), "folder/d.vhd");
        china.check_cloud("core.chinacloudapi.cn").unwrap();
        // A person's disk needs no extension: Azure does not ask for one.
        assert_eq!(parse("https://abc.blob.core.windows.net/disks/d").unwrap().name(), "d");
    }

    #[test]
    fn a_text_that_is_no_address_may_name_a_blob_where_it_has_the_blobs_name() {
        let uri = parse("https://acct.blob.core.windows.net/vhds/folder/Disk-1.vhd").unwrap();
        for text in [
            "http://acct.blob.core.windows.net/vhds/folder/Disk-1.vhd",
            "https://acct.blob.core.windows.net:443/vhds/folder/Disk-1.vhd",
            "https://acct.blob.core.windows.net/vhds/folder%2FDisk%2d1%2Evhd?sv=1",
            "https://acct.blob.core.windows.net/vhds/folder/Disk%252D1.vhd",
            "https://vhds.example.com/vhds/./folder/disk-1.vhd",
            "Disk-1.vhd",
        ] {
            assert!(parse(text).is_err() && uri.may_be(text), "{text}");
        }
        for text in ["http://acct.blob.core.windows.net/vhds/folder/Disk-2.vhd", "", "%", "%zz%+1", "strange"] {
            assert!(!uri.may_be(text), "{text}");
        }
    }

    #[test]
    fn scheme_and_host_ignore_letter_case_and_the_path_does_not() {
        let one = parse("HTTPS://Acct.BLOB.Core.Windows.NET/vhds/Disk.vhd").unwrap();
        assert_eq!(one.folded(), "https://acct.blob.core.windows.net/vhds/Disk.vhd");
        assert_eq!(one.as_str(), "HTTPS://Acct.BLOB.Core.Windows.NET/vhds/Disk.vhd");
        assert_eq!(one, parse(one.folded()).unwrap());
        assert_ne!(one, parse("https://acct.blob.core.windows.net/vhds/disk.vhd").unwrap());
        one.check_cloud("CORE.windows.net").unwrap();
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
            ("https://acct.blob.core.windows.net.evil.example/vhds/d.vhd", UriDefect::OtherCloud),
            ("https://acct.blob.core.windows.net./vhds/d.vhd", UriDefect::Host),
            ("https://acct.blob.core.chinacloudapi.cn/vhds/d.vhd", UriDefect::OtherCloud),
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
        assert_eq!(parse("https://acct.blob./vhds/d.vhd"), Err(UriDefect::Host));
        assert_eq!(parse("https://acct.blob.a_b/vhds/d.vhd"), Err(UriDefect::Host));
        let uri: BlobUri = "https://acct.blob.core.windows.net/vhds/d.vhd".parse().unwrap();
        assert_eq!(uri.check_cloud("").unwrap_err().why, UriDefect::OtherCloud);
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
            let error = text.parse::<BlobUri>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
        }
        let error = "https://acct.blob.core.windows.net/vhds/d.vhd?sig=hush".parse::<BlobUri>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"https://acct.blob.core.windows.net/vhds/d.vhd\" is not the address of a blob disk, \
             https://ACCOUNT.blob.SUFFIX/CONTAINER/NAME: a query is not allowed, neither a shared access \
             signature nor a snapshot"
        );
        assert!("x".repeat(9_000).parse::<BlobUri>().unwrap_err().to_string().len() < 1_000);
    }

    proptest! {
        #[test]
        fn a_canonical_address_is_read_as_itself(
            account in "[a-z0-9]{3,24}", container in "[a-z0-9][a-z0-9]{2,10}(-[a-z0-9]{1,9}){0,3}",
            name in "[A-Za-z0-9_-]{1,20}(/[A-Za-z0-9_-]{1,9}){0,3}(\\.vhd)?",
        ) {
            let uri = BlobUri::of(&account, SUFFIX, &container, &name).unwrap();
            prop_assert_eq!(uri.folded(), uri.as_str());
            let shouted = format!("HTTPS://{}/{container}/{name}",
                format!("{account}.blob.{SUFFIX}").to_uppercase());
            let other = shouted.parse::<BlobUri>().unwrap();
            prop_assert_eq!((other.account(), other.container(), other.name()), (&*account, &*container, &*name));
            prop_assert_eq!(&other, &uri);
            prop_assert_eq!(other.folded(), uri.folded());
        }

        #[test]
        fn no_text_leads_to_another_host(text in "(https://)?\\PC{0,60}", tail in "\\PC{0,20}") {
            for text in [text.clone(), format!("https://acct.blob.{SUFFIX}{tail}"), format!("{text}.blob.{SUFFIX}/vhds/d")] {
                if let Ok(uri) = parse(&text) {
                    let rest = uri.folded().strip_prefix("https://").unwrap().to_owned();
                    prop_assert_eq!(rest.split('/').next().unwrap(), format!("{}.blob.{SUFFIX}", uri.account()));
                    prop_assert!(is_account_name(uri.account()));
                }
            }
        }
    }

    #[test]
    fn an_element_whose_name_only_ends_as_that_of_the_blob_is_another_one() {
        let uri: BlobUri = "https://acct.blob.core.windows.net/vhds/folder/d.vhd".parse().unwrap();
        assert!(!uri.may_be("http://other.blob.core.windows.net/vhds/old.vhd"));
        for text in ["http://a/vhds/D.vhd?sig=x", "folder%2Fd.vhd", "d.vhd", "https://b:1/folder/%2564.vhd"] {
            assert!(uri.may_be(text), "{text}");
        }
    }
}
