//! Which account, container and blob a request is about.
//!
//! | form | when |
//! |---|---|
//! | `https://ACCOUNT.blob.SUFFIX/CONTAINER/BLOB` | `SUFFIX` is `core.windows.net` or a name under which the emulator is reached, such as `localhost` |
//! | `http://HOST:PORT/ACCOUNT/CONTAINER/BLOB` | the request is signed with a key of the account (`SharedKey`, or an access signature); the form that clients know from Azurite |
//!
//! No other site can point a name below `blob.core.windows.net` at this machine, so that these need no check.

use std::borrow::Cow;

use http::request::Parts;

use crate::endpoints;
use crate::served_names::ServedNames;

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(super) account: String,
    /// Decoded.
    pub(super) container: Option<String>,
    /// Decoded; it may hold slashes.
    pub(super) blob: Option<String>,
    /// Where the account is reached, with a slash at the end.
    pub(super) endpoint: String,
}

/// The address of a request to the blob service; none of any other request.
pub(crate) fn of(parts: &Parts, names: &ServedNames, url: &str) -> Option<Address> {
    let authority = endpoints::authority(parts);
    let base = endpoints::base(parts, url);
    if let Some(account) = authority.as_deref().and_then(|authority| host_account(authority, names)) {
        return Some(split(account, parts.uri.path(), format!("{base}/")));
    }
    let is_reached = authority.as_deref().is_none_or(|authority| names.serve_planes(authority));
    if is_reached && is_signed(parts) { by_path(parts.uri.path(), &base) } else { None }
}

/// The address that a URL names, as that of a copy's source.
pub(super) fn of_url(text: &str, names: &ServedNames) -> Option<Address> {
    let url = url::Url::parse(text).ok()?;
    let host = url.host_str()?;
    let base = url.origin().ascii_serialization();
    match host_account(host, names) {
        Some(account) => Some(split(account, url.path(), format!("{base}/"))),
        None if names.serve_planes(host) => by_path(url.path(), &base),
        None => None,
    }
}

/// The address of a VHD, whatever the suffix of its cloud is.
pub(super) fn of_vhd(text: &str) -> Option<Address> {
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let base = url.origin().ascii_serialization();
    match url.host_str()?.split_once(".blob.") {
        Some((account, _)) => Some(split(account.to_owned(), url.path(), format!("{base}/"))),
        None => by_path(url.path(), &base),
    }
}

fn is_signed(parts: &Parts) -> bool {
    let header = parts.headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let query = parts.uri.query().unwrap_or("");
    let has = |name: &str| query.split('&').any(|pair| pair.starts_with(name));
    header.is_some_and(|header| header.starts_with("SharedKey")) || has("sig=") && has("sv=")
}

/// The account in a host name.
fn host_account(authority: &str, names: &ServedNames) -> Option<String> {
    let host = authority.split(':').next().unwrap_or("").trim_end_matches('.').to_ascii_lowercase();
    let (account, suffix) = host.split_once(".blob.")?;
    let is_ours = suffix == "core.windows.net" || names.names().iter().any(|name| name == suffix);
    (is_ours && !account.is_empty() && !account.contains('.')).then(|| account.to_owned())
}

fn by_path(path: &str, base: &str) -> Option<Address> {
    let rest = path.strip_prefix('/')?;
    let (account, below) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    (!account.is_empty()).then(|| split(account.to_owned(), below, format!("{base}/{account}/")))
}

fn split(account: String, path: &str, endpoint: String) -> Address {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (container, blob) = match path.split_once('/') {
        Some((container, blob)) => (container, Some(blob).filter(|blob| !blob.is_empty())),
        None => (path, None),
    };
    let container = Some(container).filter(|container| !container.is_empty()).map(decoded);
    Address { account, container, blob: blob.map(decoded), endpoint }
}

/// A part of a path. `+` stands for itself there.
fn decoded(text: &str) -> String {
    let escaped: Cow<'_, str> = if text.contains('+') { text.replace('+', "%2B").into() } else { text.into() };
    // The form's separators would end the text.
    let escaped = escaped.replace('&', "%26").replace('=', "%3D");
    url::form_urlencoded::parse(escaped.as_bytes()).next().map(|(name, _)| name.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn names() -> ServedNames {
        ServedNames::new(["127.0.0.1:1".parse().unwrap()], &["emulator.test".parse().unwrap()])
    }

    fn found(host: &str, path: &str, authorization: &str) -> Option<(String, Option<String>, Option<String>, String)> {
        let request = Request::get(path).header("host", host).header("authorization", authorization);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        of(&parts, &names(), "http://127.0.0.1:1")
            .map(|found| (found.account, found.container, found.blob, found.endpoint))
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn an_account_is_named_by_the_host_or_by_the_path_of_a_signed_request() {
        for host in ["a1.blob.core.windows.net", "A1.blob.localhost:7", "a1.blob.emulator.test."] {
            let (account, container, blob, endpoint) = found(host, "/vhds/x/y%20z+%2B.vhd?comp=page", "").unwrap();
            assert_eq!((account.as_str(), container, blob), ("a1", some("vhds"), some("x/y z++.vhd")));
            assert_eq!(endpoint, format!("http://{host}/"));
        }
        let signed = "SharedKey a1:x";
        let (account, container, blob, endpoint) = found("127.0.0.1:7", "/a1/vhds/a&b=c.vhd", signed).unwrap();
        assert_eq!((account.as_str(), container, blob), ("a1", some("vhds"), some("a&b=c.vhd")));
        assert_eq!(endpoint, "http://127.0.0.1:7/a1/");
        assert_eq!(found("localhost", "/a1", signed).unwrap().1, None);
        assert_eq!(found("a1.blob.localhost", "/vhds/", "").unwrap().2, None);
    }

    #[test]
    fn all_else_is_for_the_other_planes() {
        for (host, path, authorization) in [
            ("127.0.0.1:7", "/a1/vhds", "Bearer x"),
            ("127.0.0.1:7", "/subscriptions/x?sig=1", ""),
            ("127.0.0.1:7", "/", "SharedKey a1:x"),
            ("a1.blob.example.com", "/vhds", "SharedKey a1:x"),
            ("a1.file.core.windows.net", "/share", "SharedKey a1:x"),
            ("a.b.blob.core.windows.net", "/vhds", ""),
        ] {
            assert_eq!(found(host, path, authorization), None, "{host} {path}");
        }
        assert!(found("127.0.0.1", "/a1/vhds/x?sv=2020-02-10&sig=x", "").is_some());
    }

    #[test]
    fn the_source_of_a_copy_is_named_by_a_url() {
        let source = |url: &str| of_url(url, &names()).map(|found| (found.account, found.container, found.blob));
        let expected = Some(("a1".to_owned(), some("c"), some("x y")));
        assert_eq!(source("https://a1.blob.core.windows.net/c/x%20y?snapshot=1"), expected);
        assert_eq!(source("http://127.0.0.1:7/a1/c/x%20y"), expected);
        assert_eq!(source("https://example.com/c/x"), None);
        assert_eq!(source("no url"), None);
    }
}
