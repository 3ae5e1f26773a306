//! A listening socket that is private before it is reachable.
//!
//! A unix socket is bound under a hidden name inside a directory of mode 0700, given mode 0600 and only then renamed
//! onto its final path. So there is no moment at which another user could connect, no process-wide umask is touched,
//! and a reader of the directory (kubelet watches its registration directory) sees one event: the finished socket.
//! The hidden names start with a dot, which kubelet's plugin watcher skips.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    net::{IpAddr, SocketAddr},
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::net::{TcpListener, UnixListener, UnixStream, lookup_host};
use tokio_util::sync::CancellationToken;

use super::Endpoint;

/// How long to wait for an answer from a socket that is already there. A listener whose queue is full is alive.
const PROBE: Duration = Duration::from_secs(1);

/// How often to look whether the socket file is still there. kubelet and the sidecars try again for longer than that.
const LOOK: Duration = Duration::from_secs(5);

/// How long to wait before asking a socket that answered again.
const PROBE_PAUSE: Duration = Duration::from_millis(250);

/// The longest path of a unix socket that a client can name, in bytes (source: unix(7), sun_path without its final NUL).
const LONGEST_PATH: usize = 107;

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process serves this socket.
    #[error("another process is listening on {}; stop it, or use another endpoint", .0.display())]
    InUse(PathBuf),
    /// Something that is no socket has the name.
    #[error("{} exists and is not a socket; remove it, or use another endpoint", .0.display())]
    NotASocket(PathBuf),
    /// No client could connect to it.
    #[error(
        "the socket path {} has {} bytes; allowed are {LONGEST_PATH} at most",
        .0.display(),
        .0.as_os_str().len()
    )]
    TooLong(PathBuf),
    /// The kernel refused.
    #[error("cannot {doing} {}", path.display())]
    Unix {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Other machines could reach it, and the operator has not allowed that.
    #[error(
        "{endpoint} is reachable from other machines ({address} is no loopback address), and CSI has no \
         authentication: allowed are a unix socket, a loopback address, or --allow-remote-endpoint"
    )]
    Exposed {
        /// The endpoint.
        endpoint: Endpoint,
        /// What it resolves to.
        address: IpAddr,
    },
    /// The address does not resolve or is taken.
    #[error("cannot listen on {endpoint}")]
    Tcp {
        /// The endpoint.
        endpoint: Endpoint,
        /// What the kernel or the resolver said.
        #[source]
        source: io::Error,
    },
}

/// A socket that accepts connections.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: Socket,
}

#[derive(Debug)]
pub(super) enum Socket {
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener),
}

/// From where a TCP endpoint may be reached. Any client that reaches it may call every RPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// From this machine only.
    #[default]
    ThisMachine,
    /// From wherever the address is reachable.
    Network,
}

impl Listener {
    /// Listens on the endpoint, as far as it is reachable from this machine only. A socket file that no process serves is
    /// replaced; missing directories are made with mode 0700.
    ///
    /// # Errors
    /// [`BindError::InUse`] when a live process serves the path, [`BindError::Exposed`], and whatever the kernel
    /// refuses.
    pub async fn bind(endpoint: &Endpoint) -> Result<Self, BindError> {
        Self::bind_within(endpoint, Reach::ThisMachine).await
    }

    /// As [`Listener::bind`], with a TCP endpoint that may be reached from here.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub async fn bind_within(endpoint: &Endpoint, reach: Reach) -> Result<Self, BindError> {
        let socket = match endpoint {
            Endpoint::Unix(path) => bind_unix(path).await?,
            Endpoint::Tcp { host, port } => {
                let failed = |source| BindError::Tcp { endpoint: endpoint.clone(), source };
                let addresses: Vec<_> = lookup_host((host.as_str(), *port)).await.map_err(failed)?.collect();
                // Of several addresses the kernel takes the first that is free.
                let outward = addresses.iter().map(SocketAddr::ip).find(|ip| !ip.to_canonical().is_loopback());
                if let (Reach::ThisMachine, Some(address)) = (reach, outward) {
                    return Err(BindError::Exposed { endpoint: endpoint.clone(), address });
                }
                Socket::Tcp(TcpListener::bind(addresses.as_slice()).await.map_err(failed)?)
            }
        };
        Ok(Self { socket })
    }

    /// Where it listens; with the port that the kernel chose.
    pub fn endpoint(&self) -> Option<Endpoint> {
        match &self.socket {
            Socket::Unix(_, file) => Some(Endpoint::Unix(file.path.clone())),
            Socket::Tcp(listener) => {
                let address = listener.local_addr().ok()?;
                Some(Endpoint::Tcp { host: address.ip().to_string(), port: address.port() })
            }
        }
    }

    /// The unix socket and its file, for another protocol than gRPC; `None` of a TCP port. Whoever takes it removes the file
    /// at the end.
    pub fn into_unix(self) -> Option<(UnixListener, SocketFile)> {
        match self.socket {
            Socket::Unix(listener, file) => Some((listener, file)),
            Socket::Tcp(_) => None,
        }
    }

    /// The socket's file, if it has one: to watch whether it is still there.
    pub fn file(&self) -> Option<SocketFile> {
        match &self.socket {
            Socket::Unix(_, file) => Some(file.clone()),
            Socket::Tcp(_) => None,
        }
    }
}

/// The socket file was removed, or replaced by another process's: no client reaches this process any more.
#[derive(Debug, thiserror::Error)]
#[error("the socket file {} was removed or replaced by another process: no client reaches this process by it", .0.display())]
pub struct SocketLost(PathBuf);

/// The name of a bound unix socket and the inode it had when it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to this very socket: not removed, not replaced by another process.
    pub fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| found.dev() == self.device && found.ino() == self.inode)
    }

    /// Watches over the file until `stop`. When it is lost, cancels `stop`: a process that ends is started again and
    /// makes a new socket, and one that goes on would be healthy and deaf.
    ///
    /// # Errors
    /// [`SocketLost`].
    pub async fn keep(self, stop: &CancellationToken) -> Result<(), SocketLost> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(LOOK) => {}
            }
            // The server takes its file away itself, after the stop.
            if !self.is_ours() && !stop.is_cancelled() {
                stop.cancel();
                return Err(SocketLost(self.path));
            }
        }
    }

    /// Removes the file unless another process has put its own there.
    ///
    /// Call it while the listener is open: an open socket pins its inode number, so no other file can have it.
    pub fn remove_if_ours(&self) {
        if self.is_ours() {
            // Another caller was quicker and has done it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

async fn bind_unix(path: &Path) -> Result<Socket, BindError> {
    let failed = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| BindError::Unix { doing, path, source }
    };
    // It could be made, under a shorter name, and no client would find it.
    if path.as_os_str().len() > LONGEST_PATH {
        return Err(BindError::TooLong(path.to_owned()));
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed("make the directory", parent))?;
    refuse_what_is_not_stale(path).await?;

    // The name is short because a socket address holds 107 bytes.
    let hidden = parent.join(format!(".csi{}", std::process::id()));
    let bound = hidden.join(".s");
    match DirBuilder::new().mode(0o700).create(&hidden) {
        // Left by a process of this number that was killed between two steps.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_dir_all(&hidden).map_err(failed("remove", &hidden))?;
            DirBuilder::new().mode(0o700).create(&hidden).map_err(failed("make the directory", &hidden))?;
        }
        other => other.map_err(failed("make the directory", &hidden))?,
    }
    let made = (|| {
        let listener = UnixListener::bind(&bound).map_err(failed("bind", &bound))?;
        fs::set_permissions(&bound, Permissions::from_mode(0o600)).map_err(failed("restrict", &bound))?;
        let found = fs::symlink_metadata(&bound).map_err(failed("read", &bound))?;
        fs::rename(&bound, path).map_err(failed("put the socket at", path))?;
        let file = SocketFile { path: path.to_owned(), device: found.dev(), inode: found.ino() };
        Ok(Socket::Unix(listener, file))
    })();
    // Best effort: an empty hidden directory does no harm, and the next bind removes it.
    let _ = fs::remove_dir_all(&hidden);
    made
}

/// A path without a file, or a socket that no process serves, may be used. Any other file belongs to another program.
async fn refuse_what_is_not_stale(path: &Path) -> Result<(), BindError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(BindError::Unix { doing: "look at", path: path.to_owned(), source }),
        Ok(found) if !found.file_type().is_socket() => return Err(BindError::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    // A child of a killed process holds its sockets between fork and exec: who answers once may be gone a moment later.
    for again in [PROBE_PAUSE, PROBE_PAUSE, PROBE_PAUSE, Duration::ZERO] {
        match tokio::time::timeout(PROBE, UnixStream::connect(path)).await {
            Ok(Err(error)) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                return Ok(());
            }
            Ok(Err(source)) => return Err(BindError::Unix { doing: "connect to", path: path.to_owned(), source }),
            Ok(Ok(_)) | Err(_) => tokio::time::sleep(again).await,
        }
    }
    Err(BindError::InUse(path.to_owned()))
}
