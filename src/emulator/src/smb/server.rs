//! One account's `smbd`.
//!
//! Every function blocks. The standard input of `smbd` is a socket, whose other end is here. `smbd` ends when its input
//! does, and its processes for connections end with it: so all end with this process, however that ends (source:
//! `smbd_stdin_handler` and `reinit_after_fork` of Samba). They all hold the socket: here it ends when the last of them has.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpSocket;

use super::config::{self, Place};
use super::files::Account;
use super::names::{AccountName, ShareName};
use super::types::SmbError;

/// How long `smbd` may take to listen and to end: it takes a fifth of a second.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a condition that announces itself by no event is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Where Debian's package samba is: unpacked in a folder, or installed in `/`.
#[derive(Clone, Debug)]
pub(super) struct Programs(PathBuf);

impl Programs {
    /// The programs below a folder.
    ///
    /// # Errors
    /// When one is not there.
    pub(super) fn find(folder: &Path) -> Result<Self, SmbError> {
        let programs = Self(folder.to_owned());
        for name in ["sbin/smbd", "bin/smbpasswd", "bin/smbcontrol"] {
            if !programs.path(name).exists() {
                return Err(SmbError::NoProgram { path: programs.path(name) });
            }
        }
        Ok(programs)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join("usr").join(name)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.path(name));
        command.env("LC_ALL", "C");
        if self.0 != Path::new("/") {
            // Debian's name of the folder of libraries, and the one below it for Samba's own.
            let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
            let folders = ["usr/lib", "lib"].map(|lib| self.0.join(lib).join(&triplet));
            let own = folders[0].join("samba");
            let all = [&folders[0], &folders[1], &own].map(|folder| folder.display().to_string());
            command.env("LD_LIBRARY_PATH", all.join(":"));
        }
        command
    }

    /// Runs a program to its end; `input` is written to its standard input, and appears nowhere else.
    fn run(&self, name: &str, arguments: &[&str], input: &str) -> Result<(), SmbError> {
        let failed = |source| SmbError::File { action: "cannot run", path: self.path(name), source };
        let mut command = self.command(name);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // What reads nothing says why in its output.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        Err(SmbError::Program { program: name.to_owned(), status: output.status.to_string(), said: said.join(" ") })
    }
}

/// The server of one account.
#[derive(Debug)]
pub(super) struct Server {
    account: AccountName,
    place: Place,
    programs: Programs,
    /// Holds the port while no `smbd` listens on it: a socket that is bound and does not listen.
    _reserved: TcpSocket,
    address: SocketAddr,
    /// Its process, and what is its standard input.
    running: Option<(Child, UnixStream)>,
}

impl Server {
    /// A server that does not run yet, with a port of its own.
    pub(super) fn new(account: &AccountName, place: Place, programs: &Programs) -> Result<Self, SmbError> {
        let reserve = || -> io::Result<(TcpSocket, SocketAddr)> {
            let socket = TcpSocket::new_v4()?;
            // smbd says the same of its socket, and then the kernel lets it have this port too.
            socket.set_reuseaddr(true)?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        let (reserved, address) = reserve().map_err(SmbError::Port)?;
        let (account, programs) = (account.clone(), programs.clone());
        Ok(Self { account, place, programs, _reserved: reserved, address, running: None })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The id of its process, if it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|(child, _)| child.id())
    }

    /// Writes what Samba reads.
    fn write(&self, account: &Account) -> Result<(), SmbError> {
        let server = self.place.server();
        make_folder(&server)?;
        set_mode(&server, 0o700)?;
        for (_, folder) in config::FOLDERS {
            make_folder(&server.join(folder))?;
        }
        write(&self.place.users(), &config::users(&self.account), 0o600)?;
        for (share, gib) in &account.shares {
            write(&self.place.size(share), &config::size(*gib), 0o700)?;
        }
        let text = config::configuration(&self.account, account, &self.place, self.address.port());
        write(&self.place.configuration(), &text, 0o600)
    }

    /// Starts it, and waits until it listens. `ended` is called when it has ended, whatever ended it.
    ///
    /// # Errors
    /// When it does not; it does not run then.
    pub(super) fn start(&mut self, account: &Account, ended: impl FnOnce() + Send + 'static) -> Result<(), SmbError> {
        self.write(account)?;
        let configuration = self.place.configuration().display().to_string();
        // A new list of users each time: whoever was in it is not any more.
        match fs::remove_file(self.place.server().join("private/passdb.tdb")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(SmbError::File {
                    action: "cannot remove the list of users in",
                    path: self.place.server(),
                    source: error,
                });
            }
            _ => {}
        }
        if let Some(key) = &account.key {
            let twice = format!("{0}\n{0}\n", key.reveal());
            self.programs.run("bin/smbpasswd", &["-c", &configuration, "-a", "-s", "root"], &twice)?;
        }
        let mut command = self.programs.command("sbin/smbd");
        command.args(["--daemon", "--foreground", "--no-process-group", "--configfile", &configuration]);
        command.args(["--log-basename", &self.place.server().display().to_string()]);
        let failed = |source| SmbError::File { action: "cannot run", path: self.programs.path("sbin/smbd"), source };
        let (mut own, other) = UnixStream::pair().map_err(failed)?;
        // It takes a socket for a connection to serve, unless it is told to be a daemon.
        command.stdin(OwnedFd::from(other)).stdout(Stdio::null()).stderr(Stdio::null());
        // It ends its children by a signal to its group, which is its own from the start.
        command.process_group(0);
        let input = own.try_clone().map_err(failed)?;
        let mut child = command.spawn().map_err(failed)?;
        // The command holds the other end of the socket too.
        drop(command);
        thread::spawn(move || {
            // Nothing is written to it, and an error is an end too.
            let _ = own.read(&mut [0]);
            ended();
        });
        let began = Instant::now();
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(SmbError::Program {
                    program: "smbd".to_owned(),
                    status: status.to_string(),
                    said: self.last_words(),
                });
            }
            if TcpStream::connect(self.address).is_ok() {
                self.running = Some((child, input));
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                return Err(SmbError::Silent { address: self.address, said: self.last_words() });
            }
            thread::sleep(LOOK);
        }
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.place.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().map(str::trim).collect();
        lines[lines.len().saturating_sub(6)..].join(" ")
    }

    /// Takes a changed configuration, and ends the shares that are gone for their clients. Other clients notice nothing.
    pub(super) fn reload(&self, account: &Account, close: &[ShareName]) -> Result<(), SmbError> {
        let Some(pid) = self.pid() else { return Ok(()) };
        self.write(account)?;
        let (configuration, pid) = (self.place.configuration().display().to_string(), pid.to_string());
        let control = |words: &[&str]| {
            let arguments = [&["--configfile", &configuration][..], words].concat();
            self.programs.run("bin/smbcontrol", &arguments, "")
        };
        control(&["all", "reload-config"])?;
        for share in close {
            control(&["all", "close-share", share.as_str()])?;
        }
        // Messages are taken in order: it has read the configuration when it answers.
        control(&["--timeout", "10", &pid, "ping"])
    }

    /// Ends it with all sessions, and waits until it has ended.
    pub(super) fn stop(&mut self) {
        let Some((mut child, input)) = self.running.take() else { return };
        // It may have ended already.
        let _ = input.shutdown(Shutdown::Write);
        let began = Instant::now();
        while began.elapsed() < PATIENCE / 10 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(LOOK);
        }
        // Stopped by a signal, maybe.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(super) fn make_folder(path: &Path) -> Result<(), SmbError> {
    fs::create_dir_all(path).map_err(|source| SmbError::File {
        action: "cannot make the folder",
        path: path.to_owned(),
        source,
    })
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Result<(), SmbError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|source| SmbError::File {
        action: "cannot set the mode of",
        path: path.to_owned(),
        source,
    })
}

/// Writes a file so that a reader finds all of it or what was there before.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), SmbError> {
    let aside = path.with_extension("new");
    let failed = |source| SmbError::File { action: "cannot write", path: path.to_owned(), source };
    fs::write(&aside, text).map_err(failed)?;
    set_mode(&aside, mode)?;
    fs::rename(&aside, path).map_err(failed)
}
