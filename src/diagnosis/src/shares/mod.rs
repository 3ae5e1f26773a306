//! File shares for people: which volume each share is, and what is wrong with shares, their accounts and their volumes.
//!
//! | file | what it tells |
//! |---|---|
//! | [`inventory`] | which volume each share is |
//! | [`accounts`] | accounts whose key, network or limits stand in the way |
//! | [`volumes`] | volumes that no node can mount, and volumes without their share |
//! | [`snapshots`] | share snapshots that no VolumeSnapshotContent names |
//! | [`kernel`] | whether the kernel of this node can mount a share |

pub mod accounts;
pub mod inventory;
pub mod kernel;
pub mod snapshots;
#[cfg(test)]
mod tests;
pub mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{AccountKind, FileShare, StorageAccount, file_share::CREATED_BY};
use lazuli_shares::{
    deletion::{DRIVER_NAME, VolumeRef},
    name,
    secret::{SecretRef, key_source},
    volume_id::ShareVolumeId,
};

use super::some;

/// A PersistentVolume of the file driver, or of the in-tree plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareVolume {
    /// What it says of its share.
    pub refers: VolumeRef,
    /// The claim that it is bound to, as `namespace/name`.
    pub claim: Option<String>,
    /// `spec.csi.volumeAttributes`; empty for one of the in-tree plugin.
    pub attributes: BTreeMap<String, String>,
    /// `spec.csi.nodeStageSecretRef`: the Secret that kubelet passes when it stages.
    pub stage_secret: Option<SecretRef>,
    /// `spec.mountOptions`.
    pub mount_options: Vec<String>,
}

impl ShareVolume {
    /// Its account, where it names one.
    fn account(&self) -> Option<&str> {
        self.refers.account.as_deref().map(str::trim)
    }

    /// Its share, without folders behind the name, where it names one.
    fn share(&self) -> Option<&str> {
        let name = self.refers.share.as_deref()?.trim_start_matches('/').split(['/', '\\']).next();
        name.filter(|name| !name.is_empty())
    }

    /// Whether it names this account. The name of an account is taken once in all of Azure.
    fn names_account(&self, account: &str) -> bool {
        self.account().is_some_and(|name| name.eq_ignore_ascii_case(account))
    }

    /// Whether it names this share.
    fn names(&self, account: &str, share: &str) -> bool {
        self.names_account(account) && self.share().is_some_and(|name| name.eq_ignore_ascii_case(share))
    }
}

/// A resource group in which accounts are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountGroup {
    /// Its subscription.
    pub subscription: String,
    /// Its name.
    pub name: String,
}

/// The resource groups in which the accounts of these volumes are: the cluster's first, then those that volumes name, each
/// once in any letter case.
pub fn groups(own: &AccountGroup, volumes: &[ShareVolume]) -> Vec<AccountGroup> {
    let mut all = vec![own.clone()];
    let mut seen = BTreeSet::from([folded(own)]);
    for volume in volumes {
        let Some(Place { group, .. }) = place_of(volume, own) else { continue };
        if seen.insert(folded(&group)) {
            all.push(group);
        }
    }
    all
}

fn folded(group: &AccountGroup) -> (String, String) {
    (group.subscription.to_ascii_lowercase(), group.name.to_ascii_lowercase())
}

/// Where the account of a volume is looked for.
struct Place {
    group: AccountGroup,
    /// Whether the volume names the group. The account of one that does not, and that is mounted by a Secret, may be in any.
    is_named: bool,
}

/// Where a volume says that its account is; `None` where its attributes cannot be read.
fn place_of(volume: &ShareVolume, own: &AccountGroup) -> Option<Place> {
    let id = volume.refers.volume_id.as_deref().and_then(|id| ShareVolumeId::parse(id).ok());
    let key = key_source(&volume.attributes, id.as_ref()).ok()?;
    let is_named = key.resource_group.is_some();
    let group = AccountGroup {
        subscription: key.subscription.unwrap_or_else(|| own.subscription.clone()),
        name: key.resource_group.unwrap_or_else(|| own.name.clone()),
    };
    Some(Place { group, is_named })
}

/// An account with its shares, deleted ones and snapshots included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountShares {
    /// The account.
    pub account: StorageAccount,
    /// Its shares.
    pub shares: Vec<FileShare>,
}

impl AccountShares {
    /// Whether an account of this kind has a file service.
    pub fn has_files(account: &StorageAccount) -> bool {
        !matches!(account.kind, Some(AccountKind::BlobStorage | AccountKind::BlockBlobStorage))
    }

    /// The names of the volumes that name the account.
    fn volumes<'a>(&self, volumes: &'a [ShareVolume]) -> Vec<&'a str> {
        let of_account = volumes.iter().filter(|volume| volume.names_account(self.account.name()));
        of_account.map(|volume| volume.refers.name.as_str()).collect()
    }
}

/// Whether a driver made the share, by its mark or its name.
fn is_of_driver(share: &FileShare) -> bool {
    let is_marked = share.metadata(CREATED_BY).is_some_and(|by| by.eq_ignore_ascii_case(DRIVER_NAME));
    is_marked || name::is_generated(share.name(), None) || name::is_in_tree(share.name())
}

/// `PersistentVolume a` or `PersistentVolumes a, b`.
fn volumes_named<S: AsRef<str>>(names: &[S]) -> String {
    let word = if names.len() == 1 { "PersistentVolume" } else { "PersistentVolumes" };
    format!("{word} {}", some(names))
}
