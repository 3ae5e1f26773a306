//! The files that Samba reads: texts that follow from an account and a place.

use std::path::{Path, PathBuf};

use super::files::Account;
use super::names::{AccountName, KeptName, ShareName};

/// The folder of one account.
#[derive(Clone, Debug)]
pub(super) struct Place(PathBuf);

impl Place {
    /// The place of an account below the root of all.
    pub(super) fn new(root: &Path, account: &AccountName) -> Self {
        Self(root.join("accounts").join(account.as_str()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// What is in the shares.
    pub(super) fn shares(&self) -> PathBuf {
        self.0.join("shares")
    }

    pub(super) fn share(&self, share: &ShareName) -> PathBuf {
        self.shares().join(share.as_str())
    }

    /// What was in the shares that can come back.
    pub(super) fn all_kept(&self) -> PathBuf {
        self.0.join("deleted")
    }

    pub(super) fn kept(&self, kept: &KeptName) -> PathBuf {
        self.all_kept().join(kept.as_str())
    }

    /// What Samba needs for itself; for root alone, since a hash of the key is in it.
    pub(super) fn server(&self) -> PathBuf {
        self.0.join("server")
    }

    pub(super) fn configuration(&self) -> PathBuf {
        self.server().join("smb.conf")
    }

    pub(super) fn users(&self) -> PathBuf {
        self.server().join("users")
    }

    pub(super) fn size(&self, share: &ShareName) -> PathBuf {
        self.server().join(format!("size-{}", share.as_str()))
    }

    pub(super) fn log(&self) -> PathBuf {
        self.server().join("log.smbd")
    }
}

/// Folders of Samba's own, by the names of their options (source: smb.conf(5)).
pub(super) const FOLDERS: [(&str, &str); 6] = [
    ("pid directory", "run"),
    ("lock directory", "lock"),
    ("state directory", "state"),
    ("cache directory", "cache"),
    ("private dir", "private"),
    ("ncalrpc dir", "rpc"),
];

/// The longest root, in bytes. Below it are `/accounts/`, the name of an account (24 letters), and the socket of a process,
/// `/server/private/msg.sock/` with its number (7 digits); the path of a socket has 107 bytes (source: unix(7)).
const LONGEST_ROOT: usize = 107 - 10 - 24 - 25 - 7;

/// A path that Samba takes as it is: no substitution, no quotation, no end of a line, and short enough for its sockets.
///
/// # Errors
/// The sentence that says so.
pub(super) fn plain(path: &Path) -> Result<(), String> {
    let fits = path.to_str().is_some_and(|text| {
        text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte))
    });
    if fits && path.as_os_str().len() > LONGEST_ROOT {
        let (path, bytes) = (path.display(), path.as_os_str().len());
        return Err(format!(
            "the folder {path} has {bytes} bytes: Samba's sockets are below it, so {LONGEST_ROOT} are allowed"
        ));
    }
    if fits {
        return Ok(());
    }
    Err(format!("the folder {} must be an absolute path of letters, digits and . _ - /", path.display()))
}

/// `smb.conf` of an account. The place must be [`plain`].
pub(super) fn configuration(account: &AccountName, served: &Account, place: &Place, port: u16) -> String {
    let encryption = if served.encrypted { "required" } else { "desired" };
    // Samba looks this user up among the system's, by the map of users too, which must lead it nowhere.
    let guest = if account.as_str() == "nobody" { "daemon" } else { "nobody" };
    let server = place.server();
    let mut lines: Vec<String> = [
        "server role = standalone server",
        "workgroup = AZURE",
        "netbios name = LAZULI",
        "interfaces = 127.0.0.1",
        "bind interfaces only = yes",
        "disable netbios = yes",
        "multicast dns register = no",
        // Documented: Azure Files speaks 2.1, 3.0 and 3.1.1.
        "server min protocol = SMB2_10",
        "restrict anonymous = 2",
        "map to guest = never",
        "load printers = no",
        "printcap name = /dev/null",
        "disable spoolss = yes",
        "rpc start on demand helpers = no",
        "usershare max shares = 0",
        "idmap config * : range = 100000-199999",
        "server multi channel support = no",
        "log level = 1",
        "max log size = 1000",
    ]
    .map(str::to_owned)
    .to_vec();
    lines.push(format!("smb ports = {port}"));
    lines.push(format!("server smb encrypt = {encryption}"));
    lines.push(format!("guest account = {guest}"));
    lines.push(format!("username map = {}", place.users().display()));
    lines.push(format!("passdb backend = tdbsam:{}", server.join("private/passdb.tdb").display()));
    lines.push(format!("log file = {}", place.log().display()));
    lines.extend(FOLDERS.map(|(option, folder)| format!("{option} = {}", server.join(folder).display())));
    let mut text = section("global", &lines);
    for share in served.shares.keys() {
        let lines = [
            format!("path = {}", place.share(share).display()),
            "read only = no".to_owned(),
            "force user = root".to_owned(),
            format!("dfree command = {}", place.size(share).display()),
            "dfree cache time = 0".to_owned(),
        ];
        text += &section(share.as_str(), &lines);
    }
    text
}

fn section(name: &str, lines: &[String]) -> String {
    format!("[{name}]\n{}", lines.iter().map(|line| format!("\t{line}\n")).collect::<String>())
}

/// The map of users: the account's name means root, and nothing else does. So no user of the system is needed for an
/// account (source: smb.conf(5), `username map`).
pub(super) fn users(account: &AccountName) -> String {
    let name = account.as_str();
    let other = if name == "root" { "" } else { "!no-such-user = root\n" };
    format!("!root = {name}\n{other}")
}

/// The program that says how large a share is and how much of it is free (source: smb.conf(5), `dfree command`).
pub(super) fn size(gib: u64) -> String {
    let total = gib.saturating_mul(1024 * 1024);
    format!(
        "#!/bin/sh\n\
         used=$(du -sk . | cut -f1)\n\
         free=$(({total} - used))\n\
         [ \"$free\" -ge 0 ] || free=0\n\
         echo {total} $free 1024\n"
    )
}
