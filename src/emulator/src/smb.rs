//! File shares that can be mounted: Debian's `smbd` for each storage account, on the loopback interface.
//!
//! ARM says which shares exist; with `--smb samba` Samba serves them, each from a folder. Without it nothing happens: no
//! file, no process, no thread, so that tests on paused time can use it. This module never decides whether a share may
//! exist.
//!
//! # How a client reaches an account
//!
//! | of Azure | here |
//! |---|---|
//! | `ACCOUNT.file.core.windows.net`, port 445 | a port of 127.0.0.1 for each account, which `GET /_emulator/smb` tells |
//! | one service for all accounts, which tells them apart by the name | one `smbd` for each account: the name leads to its port, and no account's key opens another's share |
//! | the user is the account, the password one of its two keys | the same, with `key1` alone: Samba keeps one password for each user |
//! | an account that takes no keys refuses them | the same (`allowSharedKeyAccess`) |
//! | an account with secure transfer refuses what is not encrypted | the same (`supportsHttpsTrafficOnly`) |
//! | SMB 2.1, 3.0, 3.1.1 | the same; which of them a file service allows is not regarded |
//! | a share's quota is its size, and no more can be written | its size, as `df` shows it; more can be written |
//! | a deleted share is gone at once | the same: its clients are cut off |
//! | a share that comes back has its files | the same |
//! | a new `key1` | all sessions of the account end; who knows the old key alone cannot sign in any more |
//!
//! Not served: NFS shares, snapshots, Kerberos, access lists, the rules of an account's network, and shares called
//! `global`, `homes` and `printers`. The server of an account starts with its first share and runs until the account is
//! gone. A write to the storage provider is answered when what it changed is served.
//!
//! # Start, stop, kill
//!
//! One emulator at a time uses a root: it holds a lock on `ROOT/lock`. Below `ROOT/accounts/ACCOUNT` are `shares/SHARE`,
//! `deleted/SHARE_VERSION`, and `server`, which is root's alone, because a hash of the key is in it. Files stay until
//! their share is gone for good. A start adopts the folders of the shares that the state file names and removes those of no
//! share; without a state file it begins anew. `smbd` ends with the emulator, however that ends. An `smbd` that ends by itself is started again.

mod config;
mod files;
mod names;
mod plan;
mod server;
mod supervisor;
#[cfg(test)]
mod tests;
mod types;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, mpsc};

use jiff::Timestamp;
use tokio::sync::{oneshot, watch};

pub use self::types::{FileServer, Samba, SmbError};

use self::files::concerns;
use self::server::Programs;
use self::supervisor::{Order, Shown, Supervisor};
use crate::changes::{Follower, Step};
use crate::claim::Claim;
use crate::store::Document;

/// The file servers: none, or Samba's. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Smb(Option<Arc<Inner>>);

struct Inner {
    orders: mpsc::Sender<Order>,
    /// The number of the newest order to serve, and of the newest that is carried out.
    ordered: Arc<AtomicU64>,
    done: watch::Receiver<u64>,
    shown: Shown,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The supervisor may have stopped already, and nobody waits for it.
        let _ = self.orders.send(Order::Stop { done: oneshot::channel().0 });
    }
}

impl Smb {
    /// Serves what the documents say, which is all that exists, and what the follower is told from now on.
    ///
    /// # Errors
    /// When the process is not root, Samba is missing, or the root is in use or cannot be used.
    pub(crate) fn start(
        samba: &Samba,
        documents: BTreeMap<String, Document>,
        seed: u64,
        start: Timestamp,
    ) -> Result<(Self, Follower), SmbError> {
        use std::os::unix::fs::MetadataExt;
        // The owner of /proc/self is the effective user, which needs no further dependency to ask for.
        if !std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
            return Err(SmbError::NotRoot);
        }
        let programs = Programs::find(&samba.programs)?;
        config::plain(&samba.root).map_err(SmbError::Root)?;
        let claim = claim(&samba.root)?;
        let (orders, inbox) = mpsc::channel();
        let (done, carried_out) = watch::channel(0);
        let shown = Shown::default();
        let supervisor = Supervisor::new(&samba.root, claim, programs, orders.clone(), done, Arc::clone(&shown))?;
        std::thread::Builder::new().name("smb".to_owned()).spawn(move || supervisor.run(&inbox)).map_err(|source| {
            SmbError::File { action: "cannot start a thread for", path: samba.root.clone(), source }
        })?;
        let ordered = Arc::new(AtomicU64::new(0));
        let follower = follower(documents, seed, start, orders.clone(), Arc::clone(&ordered));
        Ok((Self(Some(Arc::new(Inner { orders, ordered, done: carried_out, shown }))), follower))
    }

    /// Waits until everything that has been accepted so far is served.
    pub(crate) async fn settled(&self) {
        let Some(inner) = &self.0 else { return };
        let number = inner.ordered.load(Ordering::Acquire);
        // An error: the supervisor has gone, and nothing will be served any more.
        let _ = inner.done.clone().wait_for(|done| *done >= number).await;
    }

    /// The servers, by account.
    pub(crate) fn servers(&self) -> Vec<FileServer> {
        let Some(inner) = &self.0 else { return Vec::new() };
        inner.shown.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Stops the server of an account, or starts it again.
    pub(crate) async fn set_out(&self, account: &str, out: bool) -> Result<(), SmbError> {
        let Some(inner) = &self.0 else { return Err(SmbError::Off) };
        let (done, outcome) = oneshot::channel();
        // Refused when the supervisor has gone, and then no answer comes either.
        let _ = inner.orders.send(Order::Outage { account: account.to_owned(), out, done });
        outcome.await.unwrap_or(Err(SmbError::Off))
    }

    /// Stops all servers.
    pub(crate) async fn shutdown(&self) {
        let Some(inner) = &self.0 else { return };
        let (done, stopped) = oneshot::channel();
        let _ = inner.orders.send(Order::Stop { done });
        // An error: it had stopped already.
        let _ = stopped.await;
    }
}

/// Claims the root, which is new, empty or of an earlier run: what belongs to no share is removed from it.
fn claim(root: &Path) -> Result<Claim, SmbError> {
    let path = root.join("lock");
    server::make_folder(root)?;
    let mut entries = std::fs::read_dir(root).map_err(|source| SmbError::File {
        action: "cannot list",
        path: root.to_owned(),
        source,
    })?;
    if !path.exists() && entries.next().is_some() {
        return Err(SmbError::Foreign { root: root.to_owned() });
    }
    // What is in the shares is for those who have the key.
    server::set_mode(root, 0o700)?;
    match Claim::take(&path) {
        Ok(Some(claim)) => Ok(claim),
        Ok(None) => Err(SmbError::InUse { root: root.to_owned() }),
        Err(source) => Err(SmbError::File { action: "cannot lock", path, source }),
    }
}

/// Sends an order for what exists, and one for each step that changes what is to be served.
fn follower(
    mut documents: BTreeMap<String, Document>,
    seed: u64,
    start: Timestamp,
    orders: mpsc::Sender<Order>,
    ordered: Arc<AtomicU64>,
) -> Follower {
    let concerned = |document: &Document| document["type"].as_str().is_some_and(concerns);
    documents.retain(|_, document| concerned(document));
    let send = move |documents: &BTreeMap<String, Document>, now: Timestamp| {
        let number = ordered.fetch_add(1, Ordering::AcqRel) + 1;
        let files = files::files(documents, seed);
        // Refused when the supervisor has gone: then nothing is served.
        let _ = orders.send(Order::Serve { files, now: now.as_nanosecond(), number });
    };
    send(&documents, start);
    Box::new(move |step: &Step| {
        let mut changed = false;
        for one in &step.documents {
            changed |= match &one.document {
                Some(document) if concerned(document) => {
                    documents.insert(one.key.clone(), document.clone());
                    true
                }
                Some(_) => false,
                None => documents.remove(&one.key).is_some(),
            };
        }
        if changed {
            send(&documents, start + step.at);
        }
    })
}
