//! The host names under which the emulator is reached: by these it answers, and for these its certificate is made.
//!
//! A web page elsewhere can point a name of its own at a loopback address (DNS rebinding) and would then speak to the
//! emulator as to itself. Its requests still carry that name in `Host`, which is none of these.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A host name under which the emulator is reached besides `localhost`: in lower case, without a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostName(String);

/// What was given is no host name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{given}\" is no host name: give a DNS name such as emulator.test.svc, without scheme, port and wildcard")]
pub struct HostNameError {
    given: String,
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(given: &str) -> Result<Self, HostNameError> {
        let name = given.trim().trim_end_matches('.').to_ascii_lowercase();
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let address = name.parse::<IpAddr>().is_ok();
        if name.len() <= 253 && name.split('.').all(label) && !address {
            Ok(Self(name))
        } else {
            Err(HostNameError { given: given.to_owned() })
        }
    }
}

impl std::fmt::Display for HostName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// All of them: `localhost`, the loopback addresses, the addresses it listens on, and the configured names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedNames {
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    /// It listens on all addresses of the machine and does not know them. An address in a URL is an address: no other
    /// site can be reached by it, so each one is as good as a known one.
    any_address: bool,
}

impl ServedNames {
    /// Those of an emulator that listens there and has these names.
    pub(crate) fn new(listening: impl IntoIterator<Item = SocketAddr>, given: &[HostName]) -> Self {
        let mut names = vec!["localhost".to_owned()];
        for HostName(name) in given {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let mut any_address = false;
        for listening in listening {
            let address = listening.ip().to_canonical();
            any_address |= address.is_unspecified();
            if !address.is_unspecified() && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Self { names, addresses, any_address }
    }

    /// The DNS names.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The addresses that are known.
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Whether a `Host` header or the authority of a URL, with or without a port, names this emulator.
    pub(crate) fn serve(&self, authority: &str) -> bool {
        let host = host_of(authority);
        match host.parse::<IpAddr>() {
            Ok(address) => {
                let address = address.to_canonical();
                self.any_address || address.is_loopback() || self.addresses.contains(&address)
            }
            Err(_) => self.names.iter().any(|name| name.eq_ignore_ascii_case(host.trim_end_matches('.'))),
        }
    }

    /// The same for the planes of Azure, which any address may reach, and any name below `localhost`.
    pub(crate) fn serve_planes(&self, authority: &str) -> bool {
        let host = host_of(authority);
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        host.parse::<IpAddr>().is_ok() || name.ends_with(".localhost") || self.serve(authority)
    }
}

/// For people: `localhost, 127.0.0.1, ::1`.
impl std::fmt::Display for ServedNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses = self.addresses.iter().map(ToString::to_string);
        let rest = self.any_address.then(|| "every address of this machine".to_owned());
        let all: Vec<String> = self.names.iter().cloned().chain(addresses).chain(rest).collect();
        f.write_str(&all.join(", "))
    }
}

/// An authority without its port and without the brackets of an IPv6 address.
fn host_of(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
            _ => authority,
        };
    }
    authority.split_once(':').map_or(authority, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(listening: &str, names: &[&str]) -> ServedNames {
        let names: Vec<HostName> = names.iter().map(|name| name.parse().unwrap()).collect();
        ServedNames::new([listening.parse().unwrap()], &names)
    }

    #[test]
    fn loopback_and_configured_names_are_served_and_no_other() {
        let served = served("127.0.0.1:8181", &["Emulator.Test."]);
        for yes in [
            "localhost",
            "LOCALHOST:1",
            "localhost.:8181",
            "127.0.0.1:8181",
            "127.8.9.10",
            "[::1]:8181",
            "[::1]",
            "emulator.test:80",
            "EMULATOR.TEST",
        ] {
            assert!(served.serve(yes), "{yes}");
        }
        for no in [
            "",
            "evil.example",
            "localhost.evil.example:8181",
            "x.localhost",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "test",
            "localhost evil.example",
            "[::1].evil.example",
            "[::2]",
            "evil.example#localhost",
        ] {
            assert!(!served.serve(no), "{no}");
        }
    }

    #[test]
    fn the_planes_answer_to_every_address_and_to_no_name_that_can_be_pointed_here() {
        let served = served("127.0.0.1:8181", &["emulator.test"]);
        for yes in
            ["localhost:1", "10.1.2.3:8181", "169.254.169.254", "[fd00::1]:1", "arm.localhost:1", "emulator.test"]
        {
            assert!(served.serve_planes(yes), "{yes}");
        }
        for no in [
            "",
            "rebound.example:8181",
            "localhost.example",
            "notlocalhost",
            "127.0.0.1.example",
            "management.azure.com",
        ] {
            assert!(!served.serve_planes(no), "{no}");
        }
    }

    #[test]
    fn an_emulator_on_all_addresses_is_reached_by_each_and_by_no_other_name() {
        let served = served("0.0.0.0:8181", &[]);
        assert!(served.serve("10.1.2.3:8181") && served.serve("[fd00::1]:8181"));
        assert!(!served.serve("evil.example"));
        assert_eq!(served.to_string(), "localhost, 127.0.0.1, ::1, every address of this machine");
    }

    #[test]
    fn an_emulator_on_one_address_is_reached_by_it() {
        let served = served("10.1.2.3:8181", &[]);
        assert!(served.serve("10.1.2.3") && !served.serve("10.1.2.4"));
    }

    #[test]
    fn what_is_no_host_name_is_refused() {
        for wrong in ["", "http://a", "a:80", "*.a", "a b", "10.0.0.1", "::1", "-a", "a..b"] {
            assert!(wrong.parse::<HostName>().is_err(), "{wrong}");
        }
        assert_eq!("A_1.svc".parse::<HostName>().unwrap().to_string(), "a_1.svc");
    }
}
