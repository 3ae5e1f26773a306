//! Which proxy stands before the API server: the kubeconfig's `proxy-url`, else the variables that Go's programs read.
//!
//! The client library knows these variables for kubeconfigs only, and compares `NO_PROXY` with the proxy's own address.

use std::collections::BTreeMap;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::Kubeconfig;

/// A proxy that cannot be used. Without its URL, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin} names no proxy that can be used; expected http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT")]
pub struct ProxyError {
    origin: String,
}

/// The `proxy-url` of the cluster that the current context names.
pub(super) fn named_in(kubeconfig: &Kubeconfig) -> Result<Option<Uri>, ProxyError> {
    let context = kubeconfig.current_context.as_deref();
    let context = kubeconfig.contexts.iter().find(|named| Some(named.name.as_str()) == context);
    let cluster = context.and_then(|named| named.context.as_ref()).map(|context| context.cluster.as_str());
    let cluster = kubeconfig.clusters.iter().find(|named| Some(named.name.as_str()) == cluster);
    let url = cluster.and_then(|named| named.cluster.as_ref()).and_then(|cluster| cluster.proxy_url.as_deref());
    url.filter(|url| !url.is_empty()).map(|url| parse(url, "the proxy-url of the kubeconfig")).transpose()
}

/// The proxy of the environment for this server (source: Go's `net/http`, ProxyFromEnvironment): `HTTPS_PROXY` or
/// `HTTP_PROXY` by the server's scheme, else `ALL_PROXY`, in upper or lower case; none for what `NO_PROXY` names and
/// for this machine.
pub(super) fn of_environment(server: &Uri, variables: &BTreeMap<String, String>) -> Result<Option<Uri>, ProxyError> {
    let find = |name: &str| {
        [name.to_owned(), name.to_ascii_lowercase()]
            .into_iter()
            .find_map(|name| Some((variables.get(&name).filter(|value| !value.is_empty())?, name)))
    };
    let by_scheme = if server.scheme_str() == Some("https") { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    let Some((url, name)) = find(by_scheme).or_else(|| find("ALL_PROXY")) else { return Ok(None) };
    let except = find("NO_PROXY").map_or("", |(list, _)| list.as_str());
    let any = Matcher::builder().all("http://proxy").no(except).build();
    if is_this_machine(server.host().unwrap_or_default()) || any.intercept(server).is_none() {
        return Ok(None);
    }
    parse(url, &format!("the variable {name}")).map(Some)
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn parse(url: &str, origin: &str) -> Result<Uri, ProxyError> {
    let refused = || ProxyError { origin: origin.to_owned() };
    // Names are resolved by a SOCKS proxy in any case; a proxy without a scheme is one of HTTP, as in Go.
    let url = match url.split_once("://") {
        Some(("socks5h", rest)) => format!("socks5://{rest}"),
        Some(_) => url.to_owned(),
        None => format!("http://{url}"),
    };
    let url: Uri = url.parse().map_err(|_| refused())?;
    let known = matches!(url.scheme_str(), Some("http" | "https" | "socks5"));
    if known && url.host().is_some_and(|host| !host.is_empty()) { Ok(url) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(server: &str, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        of_environment(&server.parse().unwrap(), &variables)
            .map(|proxy| proxy.map(|proxy| proxy.to_string()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_environment_names_the_proxy_by_the_servers_scheme() {
        let some = |url: &str| Ok(Some(url.to_owned()));
        let server = "https://10.0.0.1:443";
        assert_eq!(environment(server, &[]), Ok(None));
        assert_eq!(environment(server, &[("HTTPS_PROXY", "")]), Ok(None));
        assert_eq!(environment(server, &[("HTTPS_PROXY", "http://p:1")]), some("http://p:1/"));
        assert_eq!(environment(server, &[("https_proxy", "p:1"), ("ALL_PROXY", "http://q:1")]), some("http://p:1/"));
        assert_eq!(environment(server, &[("all_proxy", "socks5h://p:1")]), some("socks5://p:1/"));
        assert_eq!(environment(server, &[("HTTP_PROXY", "http://p:1")]), Ok(None));
        assert_eq!(environment("http://api.team:80", &[("HTTP_PROXY", "http://p:1")]), some("http://p:1/"));
    }

    #[test]
    fn what_no_proxy_names_and_this_machine_are_reached_directly() {
        let with = |server: &str, except: &str| {
            environment(server, &[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", except)]).unwrap().is_some()
        };
        for (server, except, proxied) in [
            ("https://10.0.0.1:443", "", true),
            ("https://10.0.0.1:443", "10.0.0.0/16,.svc", false),
            ("https://10.0.0.1:443", "10.1.0.0/16", true),
            ("https://kubernetes.default.svc:443", ".svc", false),
            ("https://kubernetes.default.svc:443", "default.svc", false),
            ("https://kubernetes.default.svc:443", "*", false),
            // The proxy's own address says nothing of the server.
            ("https://10.0.0.1:443", "p", true),
            ("https://127.0.0.1:6443", "", false),
            ("https://localhost:6443", "", false),
            ("https://[::1]:6443", "", false),
        ] {
            assert_eq!(with(server, except), proxied, "{server} {except}");
        }
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_named_without_its_password() {
        for url in ["ftp://user:hunter2@p:1", "http://", "http://user:hunter2@ p"] {
            let error = environment("https://10.0.0.1", &[("HTTPS_PROXY", url)]).unwrap_err();
            assert!(error.contains("HTTPS_PROXY") && error.contains("socks5://HOST:PORT"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
