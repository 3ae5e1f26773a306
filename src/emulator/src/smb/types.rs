//! What the module works with, what it shows, and how it fails.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Serialize;

/// Where Samba is, and where it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samba {
    /// Where the files of the shares are: an absolute path of letters, digits and `. _ - /`.
    pub root: PathBuf,
    /// Where Debian's package samba is: unpacked in this folder, or installed when it is `/`.
    pub programs: PathBuf,
}

/// An account's server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileServer {
    /// The account's name, which is the user's name too.
    pub account: String,
    /// Where it listens; stays the same while the emulator runs.
    pub address: SocketAddr,
    /// The process that listens; none while it is out of service.
    pub pid: Option<u32>,
    /// Why it is not as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Samba's log.
    pub log: PathBuf,
    /// The folder of each share.
    pub shares: BTreeMap<String, PathBuf>,
}

/// File shares cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SmbError {
    /// Samba changes users.
    #[error("--smb samba needs root: start the emulator as root, or leave --smb out")]
    NotRoot,
    /// A program of Samba is missing.
    #[error("--smb samba needs {}: install the package samba, or name with --smb-programs where it is unpacked", path.display())]
    NoProgram {
        /// Where it should be.
        path: PathBuf,
    },
    /// A folder's name that Samba would read in its own way.
    #[error("--smb-root: {0}")]
    Root(String),
    /// The root has other files.
    #[error("--smb-root: {} is not empty and not of this emulator; name an empty folder", root.display())]
    Foreign {
        /// The root folder.
        root: PathBuf,
    },
    /// Another process uses the root.
    #[error("another emulator serves the shares of {}", root.display())]
    InUse {
        /// The root folder.
        root: PathBuf,
    },
    /// A file or folder could not be handled.
    #[error("{action} {}", path.display())]
    File {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// No port could be had.
    #[error("there is no port for a server")]
    Port(#[source] io::Error),
    /// A program failed.
    #[error("{program} ended with {status}: {said}")]
    Program {
        /// The program.
        program: String,
        /// How it ended.
        status: String,
        /// What it said.
        said: String,
    },
    /// `smbd` runs and does not listen.
    #[error("smbd does not listen on {address}: {said}")]
    Silent {
        /// Where it should.
        address: SocketAddr,
        /// The end of its log.
        said: String,
    },
    /// No server of this account runs.
    #[error("the account {account:?} is not served: it does not exist, or never had a share")]
    NotServed {
        /// The account's name.
        account: String,
    },
    /// File shares are not served at all.
    #[error("file shares are not served: start the emulator with --smb samba")]
    Off,
}
