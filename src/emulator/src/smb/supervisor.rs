//! The thread that holds folders and servers in line with what is to be served.
//!
//! Everything is done here, one thing after the other, by blocking calls: no clock of a runtime, paused or not, has a part
//! in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::config::Place;
use super::files::{Account, Files};
use super::names::{AccountName, KeptName, ShareName};
use super::plan::{self, FolderStep, ServerStep};
use super::server::{self, Programs, Server};
use super::types::{FileServer, SmbError};
use crate::claim::Claim;
use crate::error_chain::chain;

/// How soon after a start a server that has ended by itself is started again.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// What the supervisor is asked.
pub(super) enum Order {
    /// This is to be served from now on; `now` in nanoseconds of Unix time, and the number of the order.
    Serve { files: Files, now: i128, number: u64 },
    /// An account's server stops, or runs again.
    Outage { account: String, out: bool, done: oneshot::Sender<Result<(), SmbError>> },
    /// A server has ended: which, and which start of it.
    Ended { account: AccountName, start: u64 },
    /// Everything stops.
    Stop { done: oneshot::Sender<()> },
}

/// The servers as others see them.
pub(super) type Shown = Arc<Mutex<BTreeMap<String, FileServer>>>;

pub(super) struct Supervisor {
    root: PathBuf,
    /// Released when everything has stopped.
    claim: Option<Claim>,
    programs: Programs,
    orders: Sender<Order>,
    done: watch::Sender<u64>,
    shown: Shown,
    served: Files,
    servers: BTreeMap<AccountName, Running>,
}

struct Running {
    server: Server,
    /// Out of service until somebody says otherwise.
    out: bool,
    problem: Option<String>,
    /// Grows with each start.
    start: u64,
    started: Instant,
}

impl Supervisor {
    pub(super) fn new(
        root: &Path,
        claim: Claim,
        programs: Programs,
        orders: Sender<Order>,
        done: watch::Sender<u64>,
        shown: Shown,
    ) -> Result<Self, SmbError> {
        let (root, served) = (root.to_owned(), found(root)?);
        Ok(Self { root, claim: Some(claim), programs, orders, done, shown, served, servers: BTreeMap::new() })
    }

    /// Works until it is told to stop, or until nobody can tell it anything any more.
    pub(super) fn run(mut self, inbox: &Receiver<Order>) {
        while let Ok(order) = inbox.recv() {
            match order {
                Order::Serve { files, now, number } => {
                    self.serve(files, now);
                    self.show();
                    self.done.send_replace(number);
                }
                Order::Outage { account, out, done } => {
                    let outcome = self.set_out(&account, out);
                    self.show();
                    // Who asked may have gone.
                    let _ = done.send(outcome);
                }
                Order::Ended { account, start } => {
                    self.ended(&account, start);
                    self.show();
                }
                Order::Stop { done } => {
                    self.servers.clear();
                    self.claim = None;
                    self.show();
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    fn serve(&mut self, files: Files, now: i128) {
        for why in files.refused.iter().filter(|why| !self.served.refused.contains(why)) {
            tracing::warn!("{why}");
        }
        let old = std::mem::replace(&mut self.served, files);
        let gone = old.accounts.keys().filter(|account| !self.served.accounts.contains_key(account));
        for account in gone.cloned().collect::<Vec<_>>() {
            self.servers.remove(&account);
            remove(Place::new(&self.root, &account).path());
        }
        let none = Account { encrypted: true, ..Account::default() };
        for (account, new) in self.served.accounts.clone() {
            let old = old.accounts.get(&account).unwrap_or(&none);
            if *old != new || !self.servers.contains_key(&account) {
                self.bring_in_line(&account, old, &new, now);
            }
        }
    }

    fn bring_in_line(&mut self, account: &AccountName, old: &Account, new: &Account, now: i128) {
        let place = Place::new(&self.root, account);
        let (gone, coming): (Vec<_>, Vec<_>) = plan::folder_steps(old, new, now)
            .into_iter()
            .partition(|step| !matches!(step, FolderStep::Make(_) | FolderStep::Restore(..)));
        // What is served is there before it is served, and goes when it is not served any more.
        carry_out(&place, &coming);
        let step = plan::server_step(old, new, self.servers.contains_key(account));
        let outcome = match step {
            ServerStep::Nothing => Ok(()),
            ServerStep::Start => self.add(account, &place),
            ServerStep::Restart => self.start(account),
            ServerStep::Reload { close } => match self.servers.get(account) {
                Some(running) => running.server.reload(new, &close),
                None => Ok(()),
            },
        };
        self.note(account, outcome);
        carry_out(&place, &gone);
    }

    fn note(&mut self, account: &AccountName, outcome: Result<(), SmbError>) {
        let problem = outcome.err().map(|error| chain(&error));
        if let Some(problem) = &problem {
            tracing::error!(account = account.as_str(), error = problem, "the account's shares are not served");
        }
        if let Some(running) = self.servers.get_mut(account) {
            running.problem = problem;
        }
    }

    fn add(&mut self, account: &AccountName, place: &Place) -> Result<(), SmbError> {
        let server = Server::new(account, place.clone(), &self.programs)?;
        let running = Running { server, out: false, problem: None, start: 0, started: Instant::now() };
        self.servers.insert(account.clone(), running);
        self.start(account)
    }

    /// Starts a server, after it has stopped if it ran; one that is out of service stays so.
    fn start(&mut self, account: &AccountName) -> Result<(), SmbError> {
        let (Some(running), Some(served)) = (self.servers.get_mut(account), self.served.accounts.get(account)) else {
            return Ok(());
        };
        running.server.stop();
        if running.out {
            return Ok(());
        }
        running.start += 1;
        running.started = Instant::now();
        let (orders, account, start) = (self.orders.clone(), account.clone(), running.start);
        running.server.start(served, move || {
            // With the supervisor gone, nobody cares.
            let _ = orders.send(Order::Ended { account, start });
        })
    }

    fn ended(&mut self, account: &AccountName, start: u64) {
        let Some(running) = self.servers.get_mut(account).filter(|running| running.start == start) else { return };
        // One that was told to end, or never came up, has no process any more.
        if running.server.pid().is_none() {
            return;
        }
        tracing::warn!(account = account.as_str(), "smbd has ended and is started again");
        thread::sleep(RESTART_AFTER.saturating_sub(running.started.elapsed()));
        let outcome = self.start(account);
        self.note(account, outcome);
    }

    fn set_out(&mut self, account: &str, out: bool) -> Result<(), SmbError> {
        let found = self.servers.keys().find(|name| name.as_str() == account).cloned();
        let Some((account, running)) = found.and_then(|name| self.servers.get_mut(&name).map(|own| (name, own))) else {
            return Err(SmbError::NotServed { account: account.to_owned() });
        };
        running.out = out;
        if out {
            running.server.stop();
            return Ok(());
        }
        if running.server.pid().is_some() { Ok(()) } else { self.start(&account) }
    }

    /// Shows the servers as they are now.
    fn show(&self) {
        let show = |(account, running): (&AccountName, &Running)| {
            let place = Place::new(&self.root, account);
            let shares = self.served.accounts.get(account).into_iter().flat_map(|served| served.shares.keys());
            let server = FileServer {
                account: account.as_str().to_owned(),
                address: running.server.address(),
                pid: running.server.pid(),
                problem: running.problem.clone(),
                log: place.log(),
                shares: shares.map(|share| (share.as_str().to_owned(), place.share(share))).collect(),
            };
            (server.account.clone(), server)
        };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = self.servers.iter().map(show).collect();
    }
}

/// What the folders of an earlier run hold. Their accounts have no keys here, and sizes and times are nobody's.
fn found(root: &Path) -> Result<Files, SmbError> {
    let mut files = Files::default();
    for name in names(&root.join("accounts"))? {
        let Ok(account) = AccountName::parse(&name) else { continue };
        let place = Place::new(root, &account);
        let shares = names(&place.shares())?.into_iter().filter_map(|name| Some((ShareName::parse(&name).ok()?, 0)));
        let kept = names(&place.all_kept())?.into_iter().filter_map(|name| Some((KeptName::parse(&name)?, i128::MAX)));
        let found = Account { key: None, encrypted: true, shares: shares.collect(), kept: kept.collect() };
        files.accounts.insert(account, found);
    }
    Ok(files)
}

fn names(folder: &Path) -> Result<BTreeSet<String>, SmbError> {
    let failed = |source| SmbError::File { action: "cannot list", path: folder.to_owned(), source };
    match fs::read_dir(folder) {
        Ok(entries) => {
            entries.map(|entry| Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned())).collect()
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(failed(error)),
    }
}

fn carry_out(place: &Place, steps: &[FolderStep]) {
    for step in steps {
        match step {
            FolderStep::Make(share) => note(server::make_folder(&place.share(share))),
            FolderStep::Drop(share) => remove(&place.share(share)),
            FolderStep::DropKept(kept) => remove(&place.kept(kept)),
            FolderStep::Keep(share, kept) => {
                note(server::make_folder(&place.all_kept()));
                rename(&place.share(share), &place.kept(kept));
            }
            FolderStep::Restore(kept, share) => rename(&place.kept(kept), &place.share(share)),
        }
    }
}

fn note(outcome: Result<(), SmbError>) {
    if let Err(error) = outcome {
        tracing::error!(error = chain(&error), "the folder of a share is not as it should be");
    }
}

fn rename(from: &Path, to: &Path) {
    note(fs::rename(from, to).map_err(|source| SmbError::File {
        action: "cannot move",
        path: from.to_owned(),
        source,
    }));
}

fn remove(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        outcome => {
            note(outcome.map_err(|source| SmbError::File { action: "cannot remove", path: path.to_owned(), source }));
        }
    }
}
