//! Why a share is not mounted, in words that say what to do.

use std::io;

use crate::bounded::CallError;
use crate::child::ChildError;
use crate::mount::MountError;
use crate::options::OptionError;

/// Why a share is not mounted.
#[derive(Debug, thiserror::Error)]
pub enum SmbError {
    /// The server does not take the user with this password, or not from here.
    #[error(
        "the server does not let account {user} mount {source_name}{}: its key may have been rotated, or the firewall of \
         the storage account does not let this node in; renew the key where the volume has it from, or allow the node's \
         network",
        log_of(log)
    )]
    Refused {
        /// The source of the mount.
        source_name: String,
        /// The user.
        user: String,
        /// What the kernel said besides.
        log: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The server has no such share or folder.
    #[error(
        "the server has no share or folder {source_name}{}: see whether the share was deleted, make the folder or set \
         createFolderIfNotExist; a kernel that lacks the modules of its ciphers says the same",
        log_of(log)
    )]
    NoShare {
        /// The source of the mount.
        source_name: String,
        /// What the kernel said besides.
        log: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The server cannot be reached.
    #[error(
        "the server of {source_name} does not answer on TCP port 445{}: see whether a network policy, firewall, route or \
         private endpoint keeps this node from it; it is tried again",
        log_of(log)
    )]
    Unreachable {
        /// The source of the mount.
        source_name: String,
        /// What the kernel said besides.
        log: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The name of the server is not known.
    #[error(
        "the name {server} is not resolved on this node: see whether the storage account exists, and whether the node's \
         DNS knows its private zone; it is tried again"
    )]
    Unresolved {
        /// The server.
        server: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The resolver does not answer.
    #[error("the node's DNS does not say in time what address {server} has; it is tried again")]
    ResolverSilent {
        /// The server.
        server: String,
        /// Why not.
        #[source]
        source: CallError,
    },
    /// The name has no address.
    #[error("the name {server} has no address on this node: see whether the node's DNS knows the server's zone")]
    NoAddress {
        /// The server.
        server: String,
    },
    /// The kernel has no SMB client.
    #[error(
        "the kernel of this node has no module cifs, which mounts SMB shares: install it (on Debian and Ubuntu in the \
         packages linux-image-* and linux-modules-extra-*), or keep the volume's pods off this node"
    )]
    NoModule,
    /// The kernel does not know how to do what the server wants, or the other way round.
    #[error(
        "kernel and server agree on no dialect, cipher or login for {source_name}{}: leave out vers= and sec= in \
         mountOptions, or look at what the file service of the account allows",
        log_of(log)
    )]
    NotSupported {
        /// The source of the mount.
        source_name: String,
        /// What the kernel said besides.
        log: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// An option cannot be used for any mount.
    #[error("the mount options cannot be used")]
    Option(#[source] OptionError),
    /// The kernel does not take an option.
    #[error("the kernel does not take {option} for {source_name}{}: correct mountOptions or leave it out", log_of(log))]
    Rejected {
        /// The source of the mount.
        source_name: String,
        /// The option, or all of them.
        option: String,
        /// What the kernel said.
        log: String,
    },
    /// A value is longer than the kernel takes.
    #[error("{key} has {length} bytes; the kernel takes {} at most", super::settings::LONGEST)]
    TooLong {
        /// What it is for.
        key: String,
        /// Its length in bytes.
        length: usize,
    },
    /// A folder cannot be made in the share.
    #[error("the folder {source_name} cannot be made")]
    Folder {
        /// The folder, as a source.
        source_name: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The target is not as it should be, or a dead mount cannot be taken away.
    #[error("the share cannot be mounted at its target")]
    Target(#[source] MountError),
    /// The call did not return, or was not tried. The mount may still come to be.
    #[error("the server or the kernel does not answer")]
    Call(#[source] CallError),
    /// `mount.cifs` did not run.
    #[error("mount.cifs, which this old kernel needs, did not run to its end")]
    Program(#[source] ChildError),
    /// `mount.cifs` said something that is not understood.
    #[error("mount.cifs did not mount {source_name}: {said}")]
    ProgramFailed {
        /// The source of the mount.
        source_name: String,
        /// How it ended, and what it wrote.
        said: String,
    },
    /// The kernel lacks the mount API: `mount.cifs` is used.
    #[error("the kernel has no mount API")]
    NoMountApi,
    /// Anything else.
    #[error("cannot {action} {source_name}{}", log_of(log))]
    Kernel {
        /// What was tried.
        action: &'static str,
        /// The source of the mount.
        source_name: String,
        /// What the kernel said besides.
        log: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl SmbError {
    /// Whether another address of the server may do better.
    pub(super) fn may_be_of_the_address(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

fn log_of(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" ({log})") }
}

/// The error that an error number of the kernel means.
pub(super) fn of_errno(
    action: &'static str,
    source_name: &str,
    server: &str,
    user: &str,
    source: io::Error,
    log: String,
) -> SmbError {
    use nix::libc;
    let (source_name, user) = (source_name.to_owned(), user.to_owned());
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EKEYREJECTED | libc::EKEYEXPIRED | libc::EKEYREVOKED) => {
            SmbError::Refused { source_name, user, log, source }
        }
        Some(libc::ENOENT) => SmbError::NoShare { source_name, log, source },
        Some(
            libc::ECONNREFUSED
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::ETIMEDOUT
            | libc::ECONNRESET
            | libc::ECONNABORTED
            | libc::ENOTCONN
            | libc::EAGAIN,
        ) => SmbError::Unreachable { source_name, log, source },
        Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT) => SmbError::NotSupported { source_name, log, source },
        Some(libc::ENODEV) => SmbError::NoModule,
        Some(libc::EINVAL) => SmbError::Rejected { source_name, option: "one of the mount options".to_owned(), log },
        Some(libc::EDESTADDRREQ) => SmbError::NoAddress { server: server.to_owned() },
        _ => SmbError::Kernel { action, source_name, log, source },
    }
}
