//! What a change of an account asks of its folders and of its server.

use super::files::Account;
use super::names::{KeptName, ShareName};

/// What becomes of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FolderStep {
    /// A new, empty share.
    Make(ShareName),
    /// A share is gone for good.
    Drop(ShareName),
    /// A share is deleted and can come back.
    Keep(ShareName, KeptName),
    /// A share comes back, maybe under another name.
    Restore(KeptName, ShareName),
    /// A deleted share cannot come back any more.
    DropKept(KeptName),
}

/// What becomes of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerStep {
    /// It stays as it is.
    Nothing,
    /// It starts.
    Start,
    /// It takes the new configuration, and these shares end for their clients.
    Reload {
        /// Shares that are gone.
        close: Vec<ShareName>,
    },
    /// All sessions end, and clients must sign in anew.
    Restart,
}

/// What follows for the folders when `old` becomes `new`.
///
/// `now` is in nanoseconds of Unix time: what has vanished before its time came back, and what has vanished after it is
/// over. Folders that were found at a start make an `old` too.
pub(super) fn folder_steps(old: &Account, new: &Account, now: i128) -> Vec<FolderStep> {
    let mut appeared: Vec<&KeptName> = new.kept.keys().filter(|kept| !old.kept.contains_key(kept)).collect();
    let vanished = old.kept.iter().filter(|(kept, _)| !new.kept.contains_key(kept));
    let (over, mut restored): (Vec<_>, Vec<_>) = vanished.partition(|(_, over)| **over <= now);
    let mut steps = Vec::new();
    for share in old.shares.keys().filter(|share| !new.shares.contains_key(share)) {
        steps.push(match appeared.iter().position(|kept| kept.is_of(share)) {
            Some(at) => FolderStep::Keep(share.clone(), appeared.remove(at).clone()),
            None => FolderStep::Drop(share.clone()),
        });
    }
    for share in new.shares.keys().filter(|share| !old.shares.contains_key(share)) {
        // One request brings back one share; several are found at a start only, where the name tells them apart.
        let own = restored.iter().position(|(kept, _)| kept.is_of(share)).or((!restored.is_empty()).then_some(0));
        steps.push(match own {
            Some(at) => FolderStep::Restore(restored.remove(at).0.clone(), share.clone()),
            None => FolderStep::Make(share.clone()),
        });
    }
    steps.extend(over.into_iter().chain(restored).map(|(kept, _)| FolderStep::DropKept(kept.clone())));
    steps
}

/// What follows for the server of an account. It starts with the first share and stays until the account is gone.
pub(super) fn server_step(old: &Account, new: &Account, running: bool) -> ServerStep {
    if !running {
        return if new.shares.is_empty() { ServerStep::Nothing } else { ServerStep::Start };
    }
    if old.key != new.key || old.encrypted != new.encrypted {
        return ServerStep::Restart;
    }
    if old.shares == new.shares {
        return ServerStep::Nothing;
    }
    let close = old.shares.keys().filter(|share| !new.shares.contains_key(share)).cloned().collect();
    ServerStep::Reload { close }
}
