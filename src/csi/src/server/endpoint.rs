//! Where a gRPC server listens, as the command line spells it.

use std::{fmt, path::PathBuf, str::FromStr};

/// The host of `tcp://:port`. gRPC here has no authentication, so nothing but this machine is let in unless the
/// operator names an address.
const LOOPBACK: &str = "127.0.0.1";

/// A parsed `--endpoint`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A TCP port. Any client that reaches it may call every RPC; other addresses than loopback must be allowed
    /// ([`Reach`](super::Reach)).
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// The port; 0 lets the kernel choose.
        port: u16,
    },
}

/// Why a text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The scheme is neither `unix` nor `tcp`.
    #[error("{0:?} is not an endpoint; expected unix:///path/to/socket or tcp://host:port")]
    Scheme(String),
    /// `unix:` without a path.
    #[error("the endpoint {0:?} names no socket; expected unix:///path/to/socket")]
    NoPath(String),
    /// `tcp:` without a usable port.
    #[error("the endpoint {0:?} has no port from 0 to 65535; expected tcp://host:port")]
    NoPort(String),
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    /// Reads `unix:///path`, `unix://path` (which is `/path`, as the Go driver reads it), `unix:path` and
    /// `tcp://host:port`.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if let Some(rest) = text.strip_prefix("unix:") {
            let path = match rest.strip_prefix("//") {
                Some(path) if path.starts_with('/') => path.to_owned(),
                Some("") => String::new(),
                Some(path) => format!("/{path}"),
                None => rest.to_owned(),
            };
            if path.is_empty() || path.ends_with('/') {
                return Err(EndpointError::NoPath(text.to_owned()));
            }
            return Ok(Self::Unix(path.into()));
        }
        let Some(address) = text.strip_prefix("tcp://") else {
            return Err(EndpointError::Scheme(text.to_owned()));
        };
        let no_port = || EndpointError::NoPort(text.to_owned());
        let (host, port) = address.rsplit_once(':').ok_or_else(no_port)?;
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(no_port());
        }
        let port = port.parse().map_err(|_| no_port())?;
        let host = match host {
            "" => LOOPBACK,
            bracketed => bracketed.trim_start_matches('[').trim_end_matches(']'),
        };
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) if path.is_absolute() => write!(f, "unix://{}", path.display()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &str) -> Result<Endpoint, EndpointError> {
        Ok(Endpoint::Unix(path.into()))
    }

    fn tcp(host: &str, port: u16) -> Result<Endpoint, EndpointError> {
        Ok(Endpoint::Tcp { host: host.into(), port })
    }

    #[test]
    fn the_spellings_of_the_go_drivers_and_of_grpc_are_understood() {
        assert_eq!("unix:///csi/csi.sock".parse(), unix("/csi/csi.sock"));
        assert_eq!("unix://tmp/csi.sock".parse(), unix("/tmp/csi.sock"));
        assert_eq!("unix:/tmp/csi.sock".parse(), unix("/tmp/csi.sock"));
        assert_eq!("unix:csi.sock".parse(), unix("csi.sock"));
        assert_eq!("tcp://127.0.0.1:10000".parse(), tcp("127.0.0.1", 10000));
        assert_eq!("tcp://[::1]:0".parse(), tcp("::1", 0));
    }

    #[test]
    fn a_tcp_endpoint_without_a_host_is_loopback() {
        assert_eq!("tcp://:29612".parse(), tcp("127.0.0.1", 29612));
    }

    #[test]
    fn anything_else_is_refused_with_what_was_expected() {
        for text in ["", "/csi/csi.sock", "http://x:1", "UNIX:///a", "tcp:1.2.3.4:5"] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert_eq!(error, EndpointError::Scheme(text.into()));
            assert!(error.to_string().contains("expected unix:///path/to/socket or tcp://host:port"));
        }
        for text in ["unix:", "unix://", "unix:///", "unix:///csi/"] {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::NoPath(text.into())));
        }
        for text in ["tcp://host", "tcp://host:", "tcp://host:+1", "tcp://host:65536", "tcp://host:x"] {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::NoPort(text.into())));
        }
    }

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for text in ["unix:///csi/csi.sock", "unix:csi.sock", "tcp://localhost:1", "tcp://[::1]:2"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
    }
}
