//! Where a server listens.

use std::fmt;
use std::io;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::net::TcpListener;

/// Where to listen: `127.0.0.1:9600`, `[::1]:9600`, or `:9600` for every address of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// One address.
    At(SocketAddr),
    /// Every address, IPv6 and IPv4.
    Everywhere(u16),
}

impl Listen {
    /// Whether only processes of this machine, or of this pod's network, can reach it.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::At(address) => address.ip().to_canonical().is_loopback(),
            Self::Everywhere(_) => false,
        }
    }

    /// Takes the port.
    pub(super) async fn bind(self) -> io::Result<TcpListener> {
        match self {
            Self::At(address) => TcpListener::bind(address).await,
            Self::Everywhere(port) => {
                let any = |ip: IpAddr| SocketAddr::new(ip, port);
                match TcpListener::bind(any(Ipv6Addr::UNSPECIFIED.into())).await {
                    // The kernel was started without IPv6.
                    Err(error) if no_ipv6(&error) => TcpListener::bind(any(Ipv4Addr::UNSPECIFIED.into())).await,
                    other => other,
                }
            }
        }
    }
}

fn no_ipv6(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || error.raw_os_error() == Some(nix::errno::Errno::EAFNOSUPPORT as i32)
}

/// Why a text does not say where to listen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an address to listen at, expected HOST-ADDRESS:PORT or :PORT")]
pub struct ListenError {
    text: String,
    #[source]
    source: Option<AddrParseError>,
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        let error = |source| ListenError { text: text.to_owned(), source };
        if let Some(port) = text.strip_prefix(':') {
            return port.parse().map(Self::Everywhere).map_err(|_| error(None));
        }
        text.parse().map(Self::At).map_err(|source| error(Some(source)))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Everywhere(port) => write!(f, ":{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_leave_out_the_host() {
        assert_eq!(":9600".parse(), Ok(Listen::Everywhere(9600)));
        assert_eq!("[::1]:9600".parse::<Listen>().expect("parses").to_string(), "[::1]:9600");
        for text in ["9600", "host:9600", ":", ":99999", ""] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_a_loopback_address_is_closed_to_other_machines() {
        let listen = |text: &str| text.parse::<Listen>().expect("parses");
        for closed in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(listen(closed).is_loopback(), "{closed}");
        }
        for open in [":1", "0.0.0.0:1", "[::]:1", "10.0.0.4:1", "[fe80::1]:1"] {
            assert!(!listen(open).is_loopback(), "{open}");
        }
    }
}
