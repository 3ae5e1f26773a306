//! Where a logical origin really is.
//!
//! Every client speaks to logical origins: the resource manager, the login authority, instance metadata. In
//! production the table is empty and the logical origin is the real one. Tests, the demo and Azure Stack on a laptop
//! fill it, for the SDK's bearer and authority checks refuse plain http and the metadata address is a constant there.

use std::{collections::BTreeMap, fmt};

use url::{Host, Url};

/// The origin of the instance metadata service (source: Microsoft docs, instance-metadata-service).
pub const IMDS_ORIGIN: &str = "http://169.254.169.254";

/// Logical origin -> the URL that stands for it, possibly with a path in front.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    to: BTreeMap<String, Url>,
    extra_roots_pem: Vec<u8>,
}

/// Why a route is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// It would carry tokens in the clear to another machine.
    #[error("{0} is plain http and not on this machine; tokens travel by https only")]
    PlainHttp(Url),
    /// It is no base URL: it has no host, or has a query, a fragment or credentials in it.
    #[error("{0} cannot stand for an origin: expected scheme, host, optional port and optional path")]
    NotABase(String),
}

/// A URL in one of Azure's answers that leads somewhere else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an answer from {expected} leads to {found}; it is not followed")]
pub struct ForeignLink {
    /// Where the answer came from.
    pub expected: String,
    /// The origin it leads to, or what is wrong with the link; never its query, which may hold a signature.
    pub found: String,
}

/// Whether this is this very machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        None => false,
    }
}

fn is_base(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none()
}

/// The domain of the storage services of the public cloud (source: Azure's own environment, `suffixes.storage`).
const PUBLIC_STORAGE: &str = "core.windows.net";
/// Stands for any account in the origin of a blob service.
const ANY: &str = "*";
/// How the host of a blob service goes on behind the account.
const SERVICE: &str = "blob";

fn check(logical: &Url, physical: &Url) -> Result<(), RouteError> {
    for url in [logical, physical] {
        if !is_base(url) {
            return Err(RouteError::NotABase(url.origin().ascii_serialization()));
        }
    }
    if logical.scheme() == "https" && physical.scheme() == "http" && !is_loopback(physical) {
        return Err(RouteError::PlainHttp(physical.clone()));
    }
    Ok(())
}

impl Routes {
    /// The empty table: every origin is what it says.
    pub fn none() -> Self {
        Self::default()
    }

    /// Sends what is meant for `logical` to `physical`, whose path goes in front of the request's path.
    ///
    /// # Errors
    /// When `physical` is plain http on another machine while `logical` is https (tokens would travel in the clear),
    /// or when either is no base URL.
    pub fn with(mut self, logical: &Url, physical: &Url) -> Result<Self, RouteError> {
        check(logical, physical)?;
        self.to.insert(origin(logical), physical.clone());
        Ok(self)
    }

    /// Sends what is meant for the blob services below a domain (`core.windows.net`) to `physical`, whose path and the
    /// name of the account go in front of the request's path: the form of address that emulators of the blob service
    /// have.
    ///
    /// # Errors
    /// As [`Routes::with`].
    pub fn with_blob_services(mut self, domain: &str, physical: &Url) -> Result<Self, RouteError> {
        let any = format!("https://{ANY}.{SERVICE}.{}", domain.to_ascii_lowercase());
        let logical = Url::parse(&any.replace(ANY, "any")).map_err(|_| RouteError::NotABase(any.clone()))?;
        check(&logical, physical)?;
        self.to.insert(any, physical.clone());
        Ok(self)
    }

    /// The domain of a cloud's storage services, and the table with the route that they need. The suffix of an emulator is the
    /// address where it serves, `127.0.0.1:8443`: no account can have a host below an address or a port. Such accounts
    /// get the names of the public cloud, and what is meant for their blob services goes to that address by https, unless
    /// the table has a route for it.
    ///
    /// # Errors
    /// When the suffix is neither a domain nor an address.
    pub fn for_storage(self, suffix: &str) -> Result<(String, Self), RouteError> {
        let server = Url::parse(&format!("https://{suffix}/")).map_err(|_| RouteError::NotABase(suffix.to_owned()))?;
        let is_domain = matches!(server.host(), Some(Host::Domain(_)));
        if is_domain && !suffix.contains(':') {
            return Ok((suffix.to_owned(), self));
        }
        let mut table = Self::none().with_blob_services(PUBLIC_STORAGE, &server)?;
        table.to.extend(self.to);
        table.extra_roots_pem = self.extra_roots_pem;
        Ok((PUBLIC_STORAGE.to_owned(), table))
    }

    /// Verifies servers by these root certificates too, PEM: those of an emulator have an authority of their own.
    #[must_use]
    pub fn trusting(mut self, roots_pem: &[u8]) -> Self {
        self.extra_roots_pem.extend_from_slice(roots_pem);
        self
    }

    /// The root certificates of [`Routes::trusting`].
    pub(super) fn extra_roots_pem(&self) -> &[u8] {
        &self.extra_roots_pem
    }

    /// Sends what is meant for instance metadata to `physical`.
    ///
    /// # Errors
    /// When `physical` is no base URL.
    pub fn with_imds(self, physical: &Url) -> Result<Self, RouteError> {
        let logical = Url::parse(IMDS_ORIGIN).expect("a constant");
        self.with(&logical, physical)
    }

    /// The logical https origin of a configured endpoint, and the route it needs, if any: an `http://` endpoint on
    /// this machine becomes `https://` of the same host and port with a route to itself.
    ///
    /// # Errors
    /// When the endpoint is plain http on another machine, or no base URL.
    pub fn for_endpoint(endpoint: &Url) -> Result<(Url, Option<(Url, Url)>), RouteError> {
        if !is_base(endpoint) {
            return Err(RouteError::NotABase(endpoint.origin().ascii_serialization()));
        }
        if endpoint.scheme() == "https" {
            return Ok((endpoint.clone(), None));
        }
        if !is_loopback(endpoint) {
            return Err(RouteError::PlainHttp(endpoint.clone()));
        }
        let (Some(host), Some(port)) = (endpoint.host_str(), endpoint.port_or_known_default()) else {
            return Err(RouteError::NotABase(endpoint.origin().ascii_serialization()));
        };
        let logical = Url::parse(&format!("https://{host}:{port}/"))
            .map_err(|_| RouteError::NotABase(endpoint.origin().ascii_serialization()))?;
        Ok((logical.clone(), Some((logical, endpoint.clone()))))
    }

    /// Where a request really goes; `None` when its origin has no route.
    pub(crate) fn physical(&self, logical: &Url) -> Option<Url> {
        let (base, account) = match self.to.get(&origin(logical)) {
            Some(base) => (base, String::new()),
            None => self.blob_service(logical)?,
        };
        let mut physical = base.clone();
        physical.set_path(&format!("{}{account}{}", base.path().trim_end_matches('/'), logical.path()));
        physical.set_query(logical.query());
        Some(physical)
    }

    /// Where the blob service of an account is, and what goes in front of the path.
    fn blob_service(&self, logical: &Url) -> Option<(&Url, String)> {
        let (account, service) = logical.host_str()?.split_once('.')?;
        let any = origin(logical).replacen(&format!("{account}.{service}"), &format!("{ANY}.{service}"), 1);
        self.to.get(&any).map(|base| (base, format!("/{account}")))
    }

    /// Reads a link in an answer from `base` (an operation URL, a `nextLink`): it must lead to the same origin, or
    /// to the URL that stands for it, and is answered as a logical URL.
    ///
    /// # Errors
    /// When it leads anywhere else. Nothing may be sent there, a token least of all.
    pub fn follow(&self, base: &Url, link: &str) -> Result<Url, ForeignLink> {
        let foreign = |found: String| ForeignLink { expected: origin(base), found };
        let link = base.join(link).map_err(|error| foreign(format!("something that is no URL ({error})")))?;
        if !link.username().is_empty() || link.password().is_some() {
            return Err(foreign("a URL with credentials in it".to_owned()));
        }
        if link.origin() == base.origin() {
            return Ok(link);
        }
        let Some(physical) = self.to.get(&origin(base)) else {
            return Err(foreign(origin(&link)));
        };
        let prefix = physical.path().trim_end_matches('/');
        let rest = link.path().strip_prefix(prefix).filter(|rest| rest.starts_with('/'));
        match rest {
            Some(rest) if link.origin() == physical.origin() => {
                let mut logical = base.clone();
                logical.set_path(rest);
                logical.set_query(link.query());
                logical.set_fragment(None);
                Ok(logical)
            }
            _ => Err(foreign(origin(&link))),
        }
    }
}

impl fmt::Display for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (logical, physical)) in self.to.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{logical} -> {physical}")?;
        }
        Ok(())
    }
}

pub(crate) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_route_puts_its_path_in_front_and_keeps_the_query() {
        let routes = Routes::none().with_imds(&url("http://127.0.0.1:8080/_imds/node-0")).unwrap();
        let sent = routes.physical(&url("http://169.254.169.254/metadata/instance?api-version=2021-10-01"));
        assert_eq!(sent, Some(url("http://127.0.0.1:8080/_imds/node-0/metadata/instance?api-version=2021-10-01")));
        assert_eq!(routes.physical(&url("https://management.azure.com/")), None);
    }

    #[test]
    fn the_blob_service_of_any_account_has_a_route_with_its_name_in_front() {
        let server = url("http://127.0.0.1:8080/_azure");
        let routes = Routes::none().with_blob_services("Core.Windows.Net", &server).unwrap();
        let sent = |text: &str| routes.physical(&url(text)).map(|url| url.to_string());
        assert_eq!(
            sent("https://a1.blob.core.windows.net/vhds/d.vhd?comp=page").as_deref(),
            Some("http://127.0.0.1:8080/_azure/a1/vhds/d.vhd?comp=page")
        );
        assert_eq!(sent("https://a1.blob.core.windows.net/").as_deref(), Some("http://127.0.0.1:8080/_azure/a1/"));
        for other in [
            "https://a1.file.core.windows.net/",
            "https://blob.core.windows.net/",
            "https://a.b.blob.core.windows.net/",
            "https://a1.blob.core.chinacloudapi.cn/",
            "http://a1.blob.core.windows.net/",
            "https://a1.blob.core.windows.net:444/",
        ] {
            assert_eq!(sent(other), None, "{other}");
        }
        assert!(Routes::none().with_blob_services("core.windows.net", &url("http://10.0.0.1/")).is_err());
        assert!(Routes::none().with_blob_services("no domain", &server).is_err());
    }

    #[test]
    fn the_storage_services_of_an_emulator_have_names_of_the_public_cloud_and_a_route() {
        for domain in ["core.windows.net", "local.azurestack.external", "localhost"] {
            assert_eq!(Routes::none().for_storage(domain), Ok((domain.to_owned(), Routes::none())));
        }
        let blob = url("https://a1.blob.core.windows.net/vhds/d.vhd");
        for (address, sent) in [
            ("127.0.0.1:8443", "https://127.0.0.1:8443/a1/vhds/d.vhd"),
            ("[::1]:8443", "https://[::1]:8443/a1/vhds/d.vhd"),
            ("10.213.0.1", "https://10.213.0.1/a1/vhds/d.vhd"),
            ("emulator.test:8443", "https://emulator.test:8443/a1/vhds/d.vhd"),
        ] {
            let (domain, routes) = Routes::none().for_storage(address).unwrap();
            assert_eq!(domain, "core.windows.net");
            assert_eq!(routes.physical(&blob), Some(url(sent)), "{address}");
        }
        let chosen = Routes::none().with_blob_services("core.windows.net", &url("http://[::1]:1/")).unwrap();
        assert_eq!(chosen.clone().for_storage("127.0.0.1:8443"), Ok(("core.windows.net".to_owned(), chosen)));
        for wrong in ["", "no domain", "user@127.0.0.1:1", "127.0.0.1:8443?x", "127.0.0.1:port"] {
            assert!(Routes::none().for_storage(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_link_to_where_a_route_leads_becomes_a_logical_url_again() {
        let base = url("https://management.azure.com/subscriptions/s?x=1");
        let routes =
            Routes::none().with(&url("https://management.azure.com"), &url("http://127.0.0.1:8080/arm")).unwrap();
        let logical = url("https://management.azure.com/op/1?t=2");
        for link in [
            "http://127.0.0.1:8080/arm/op/1?t=2",
            "https://management.azure.com/op/1?t=2",
            "https://management.azure.com:443/op/1?t=2",
            "/op/1?t=2",
        ] {
            assert_eq!(routes.follow(&base, link).unwrap(), logical, "{link}");
        }
    }

    #[test]
    fn a_link_to_another_origin_is_refused_and_its_query_is_not_shown() {
        let base = url("https://management.azure.com/");
        let routes =
            Routes::none().with(&url("https://management.azure.com"), &url("http://127.0.0.1:8080/arm")).unwrap();
        for link in [
            "https://evil.example/op?sig=s3cret",
            "//evil.example/op?sig=s3cret",
            "http://management.azure.com/op?sig=s3cret",
            "https://management.azure.com.evil.example/op?sig=s3cret",
            "https://management.azure.com:444/op?sig=s3cret",
            "https://user:s3cret@management.azure.com/op",
            "http://127.0.0.1:8081/arm/op?sig=s3cret",
            "http://127.0.0.1:8080/army/op?sig=s3cret",
            "http://127.0.0.1:8080/op?sig=s3cret",
            "javascript:s3cret",
        ] {
            let error = routes.follow(&base, link).unwrap_err();
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn plain_http_is_for_this_machine_only() {
        let (logical, route) = Routes::for_endpoint(&url("http://127.0.0.1:8080/")).unwrap();
        assert_eq!(logical, url("https://127.0.0.1:8080/"));
        let (from, to) = route.unwrap();
        assert!(Routes::none().with(&from, &to).is_ok());
        assert_eq!(Routes::for_endpoint(&url("https://management.azure.com/")).unwrap().1, None);
        assert!(Routes::for_endpoint(&url("http://localhost/")).is_ok());
        assert_eq!(
            Routes::for_endpoint(&url("http://azure.example/")),
            Err(RouteError::PlainHttp(url("http://azure.example/")))
        );
        assert!(Routes::none().with(&url("https://management.azure.com"), &url("http://10.0.0.1")).is_err());
        // Metadata is plain http in production too, and carries no token of ours.
        assert!(Routes::none().with_imds(&url("http://10.0.2.2:8080/_imds")).is_ok());
    }
}
