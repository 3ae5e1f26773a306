//! Mounting SMB shares with the kernel's client.
//!
//! The kernel's mount API is used: a context for `cifs` is opened, the source and each option are set in it, then the share
//! is connected to as a mount that is nowhere yet, and last that mount is moved to its target. So a dead mount at the target
//! is taken away only when the new one is there. The password goes into the context and nowhere else. A kernel without this
//! API (before 5.2) is served by `mount.cifs`, which reads the password from its standard input.
//!
//! The kernel resolves no names: that is done here, and each address is tried.
//!
//! ```text
//! resolve -> fsopen -> fsconfig ... -> create -> fsmount -> [unmount the dead one] -> move_mount
//!               |          |             |
//!           no module   bad option    no answer, wrong key, no share
//! ```
//!
//! The mount belongs to the network namespace of this process: a node plugin runs in that of the host.

mod error;
mod program;
mod settings;
#[cfg(test)]
mod tests;

use std::ffi::CString;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lazuli_model::Secret;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MoveMountFlags};

use super::mountinfo::Mount;
use super::options::Options;
use super::{Deadline, Host, bounded, mount};
use settings::Setting;

pub use error::SmbError;

/// The port of SMB, for resolving names.
const PORT: u16 = 445;

/// A share as it is to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The server: a name or an address.
    pub server: String,
    /// The share.
    pub share: String,
    /// The folder of the share that is mounted, without slashes around it.
    pub folder: Option<String>,
    /// Whether a missing folder is made.
    pub makes_folder: bool,
    /// Options of `cifs` and of mounts. None holds a credential.
    pub options: Vec<String>,
    /// Whether nothing can be written.
    pub is_read_only: bool,
}

impl Share {
    /// The source of the mount: `//server/share/folder`.
    #[must_use]
    pub fn source(&self) -> String {
        self.source_of(self.folder.as_deref())
    }

    fn source_of(&self, folder: Option<&str>) -> String {
        let Self { server, share, .. } = self;
        folder.map_or_else(|| format!("//{server}/{share}"), |folder| format!("//{server}/{share}/{folder}"))
    }

    /// Whether a mount is of this share and folder, whichever program mounted it. Servers and shares have no letter case.
    #[must_use]
    pub fn is_at(&self, found: &Mount) -> bool {
        is_share(found) && Source::of(&found.source.to_string_lossy()) == Source::of(&self.source())
    }

    /// Whether a mount is of a share and folder of these names, at whichever server.
    #[must_use]
    pub fn is_at_some_server(&self, found: &Mount) -> bool {
        let found_at = Source::of(&found.source.to_string_lossy());
        let share = self.share.to_ascii_lowercase();
        let folder = self.folder.clone().unwrap_or_default();
        is_share(found) && found_at.share == share && found_at.folder == folder
    }
}

/// The source of a mount, in parts; server and share in lower case.
#[derive(PartialEq, Eq)]
struct Source {
    server: String,
    share: String,
    folder: String,
}

impl Source {
    fn of(source: &str) -> Self {
        let source = source.replace('\\', "/");
        let mut parts = source.trim_matches('/').splitn(3, '/').map(str::to_owned);
        let mut folded = || parts.next().unwrap_or_default().to_ascii_lowercase();
        Self { server: folded(), share: folded(), folder: parts.next().unwrap_or_default() }
    }
}

/// Whether a mount is one of the kernel's SMB client.
#[must_use]
pub fn is_share(found: &Mount) -> bool {
    matches!(found.fs_type.as_str(), "cifs" | "smb3")
}

/// The user that mounts, and the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The name of the user: the storage account.
    pub user: String,
    /// The password: the key of the account.
    pub password: Secret,
}

/// What may be at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaces {
    /// Nothing is mounted there.
    Nothing,
    /// A mount that does not answer: it is taken away when the new one is there.
    Dead,
}

/// Mounts a share at a folder that exists.
///
/// # Errors
/// See [`SmbError`]. After [`SmbError::Call`] the mount may still come to be; after any other it has not.
pub async fn mount(
    host: &Host,
    share: &Share,
    login: &Login,
    target: &Path,
    replaces: Replaces,
    deadline: Deadline,
) -> Result<(), SmbError> {
    let options = Options::parse(&share.options).map_err(SmbError::Option)?;
    let addresses = match settings::address(&options) {
        // The user has chosen one.
        Some(_) => vec![None],
        None => resolve(host, &share.server, deadline).await?.into_iter().map(Some).collect(),
    };
    let attempt = Attempt {
        share: share.clone(),
        login: login.clone(),
        options,
        addresses: addresses.clone(),
        target: target.to_owned(),
        table: host.proc.join("self/mountinfo"),
        replaces,
        until: Instant::now() + deadline.remaining(),
    };
    let done = bounded::call(&host.mounts, "mount", target, deadline, move || attempt.run()).await;
    match done.map_err(SmbError::Call)? {
        Err(SmbError::NoMountApi) => {}
        done => return done,
    }
    if replaces == Replaces::Dead {
        mount::unmount(host, target, deadline).await.map_err(SmbError::Target)?;
    }
    let mut last = SmbError::NoAddress { server: share.server.clone() };
    for address in addresses {
        match program::mount(host, share, login, address, target, deadline).await {
            Err(error) if error.may_be_of_the_address() => last = error,
            done => return done,
        }
    }
    Err(last)
}

/// The addresses of a server, in the order of the resolver.
async fn resolve(host: &Host, server: &str, deadline: Deadline) -> Result<Vec<IpAddr>, SmbError> {
    if let Ok(address) = server.trim_matches(['[', ']']).parse() {
        return Ok(vec![address]);
    }
    let name = server.to_owned();
    let found = bounded::call(&host.names, "getaddrinfo", Path::new(server), deadline, move || {
        (name.as_str(), PORT).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect::<Vec<_>>())
    });
    let unresolved = |source| SmbError::Unresolved { server: server.to_owned(), source };
    let mut addresses = match found.await {
        Ok(found) => found.map_err(unresolved)?,
        Err(error) => return Err(SmbError::ResolverSilent { server: server.to_owned(), source: error }),
    };
    let mut seen = std::collections::BTreeSet::new();
    addresses.retain(|address| seen.insert(*address));
    if addresses.is_empty() {
        return Err(SmbError::NoAddress { server: server.to_owned() });
    }
    Ok(addresses)
}

/// All that the thread needs which mounts.
struct Attempt {
    share: Share,
    login: Login,
    options: Options,
    /// `None`: the one that the options name.
    addresses: Vec<Option<IpAddr>>,
    target: PathBuf,
    table: PathBuf,
    replaces: Replaces,
    /// When the caller stops waiting.
    until: Instant,
}

impl Attempt {
    fn run(&self) -> Result<(), SmbError> {
        let mut last = SmbError::NoAddress { server: self.share.server.clone() };
        for address in &self.addresses {
            match self.connect_or_make_folder(*address) {
                Ok(mounted) => return self.attach(&mounted),
                Err(error) if error.may_be_of_the_address() && Instant::now() < self.until => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn connect_or_make_folder(&self, address: Option<IpAddr>) -> Result<OwnedFd, SmbError> {
        let folder = self.share.folder.as_deref();
        match (self.connect(address, folder), folder) {
            (Err(SmbError::NoShare { .. }), Some(folder)) if self.share.makes_folder => {
                self.make_folder(address, folder)?;
                self.connect(address, Some(folder))
            }
            (connected, _) => connected,
        }
    }

    /// Makes a folder in the share through a mount that nobody sees.
    fn make_folder(&self, address: Option<IpAddr>, folder: &str) -> Result<(), SmbError> {
        let mut parent = self.connect(address, None)?;
        let mut made = String::new();
        for part in folder.split('/') {
            made = if made.is_empty() { part.to_owned() } else { format!("{made}/{part}") };
            let failed = |errno: Errno| SmbError::Folder {
                source_name: self.share.source_of(Some(&made)),
                source: errno.into(),
            };
            match rustix::fs::mkdirat(&parent, part, rustix::fs::Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
            // A link in the share may lead anywhere on this machine.
            let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC;
            parent = rustix::fs::openat(&parent, part, flags, rustix::fs::Mode::empty()).map_err(failed)?;
        }
        Ok(())
    }

    /// Connects to the share: a mount that is nowhere yet, and ends with the descriptor.
    fn connect(&self, address: Option<IpAddr>, folder: Option<&str>) -> Result<OwnedFd, SmbError> {
        let source = self.share.source_of(folder);
        let context = match rustix::mount::fsopen("cifs", FsOpenFlags::FSOPEN_CLOEXEC) {
            Ok(context) => context,
            Err(Errno::NOSYS) => return Err(SmbError::NoMountApi),
            Err(Errno::NODEV) => return Err(SmbError::NoModule),
            Err(errno) => return Err(self.failed("open a mount context for", &source, errno, String::new())),
        };
        let failed = |action, errno| self.failed(action, &source, errno, self.log_of(&context));
        let settings = settings::settings(&self.share, &self.login, &self.options, address, &source)?;
        for setting in &settings {
            let set = match setting {
                Setting::Flag(key) => rustix::mount::fsconfig_set_flag(&context, key.as_str()),
                Setting::Text(key, value) => text(value)
                    .and_then(|value| rustix::mount::fsconfig_set_string(&context, key.as_str(), value.as_c_str())),
                Setting::Password(password) => text(password.expose())
                    .and_then(|value| rustix::mount::fsconfig_set_string(&context, "password", value.as_c_str())),
            };
            set.map_err(|errno| match errno {
                Errno::INVAL => self.rejected(setting, &source, self.log_of(&context)),
                errno => failed("set the options of", errno),
            })?;
        }
        rustix::mount::fsconfig_create(&context).map_err(|errno| failed("mount", errno))?;
        let attributes = settings::attributes(&self.options, self.share.is_read_only);
        rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
            .map_err(|errno| failed("mount", errno))
    }

    /// Moves the mount to its target.
    fn attach(&self, mounted: &OwnedFd) -> Result<(), SmbError> {
        let place = mount::as_mounted(&self.target);
        match self.replaces {
            Replaces::Nothing => mount::refuse_occupied(&self.table, &place).map_err(SmbError::Target)?,
            Replaces::Dead => {
                mount::unmount_all(&self.table, &place).map_err(SmbError::Target)?;
            }
        }
        rustix::mount::move_mount(mounted, "", CWD, place.as_path(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|errno| mount::system("move the mount to", &place, errno.into()))
            .map_err(SmbError::Target)
    }

    fn rejected(&self, setting: &Setting, source: &str, log: String) -> SmbError {
        SmbError::Rejected { source_name: source.to_owned(), option: setting.shown(), log: self.scrubbed(log) }
    }

    fn failed(&self, action: &'static str, source: &str, errno: Errno, log: String) -> SmbError {
        let user = &self.login.user;
        error::of_errno(action, source, &self.share.server, user, errno.into(), self.scrubbed(log))
    }

    /// What the kernel has written about its refusal, on one line; empty for nothing.
    fn log_of(&self, context: &OwnedFd) -> String {
        let mut lines = Vec::new();
        let mut buffer = [0_u8; 1024];
        while lines.len() < 8 {
            match rustix::io::read(context, &mut buffer) {
                Ok(length) if length > 0 => {
                    let line = String::from_utf8_lossy(&buffer[..length]).trim().to_owned();
                    // `e`, `w` or `i`, and a space (source: the kernel's description of its mount API).
                    lines.push(line.split_once(' ').map_or(line.clone(), |(_, words)| words.to_owned()));
                }
                _ => break,
            }
        }
        lines.join("; ")
    }

    /// A text of the kernel, which is not known to hold no password.
    fn scrubbed(&self, text: String) -> String {
        let password = self.login.password.expose();
        if password.is_empty() { text } else { text.replace(password, lazuli_model::REDACTED) }
    }
}

fn text(value: &str) -> Result<CString, Errno> {
    CString::new(value).map_err(|_| Errno::INVAL)
}
