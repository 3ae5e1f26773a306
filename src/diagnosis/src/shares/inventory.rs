//! Which volume each share is.

use lazuli_model::{ArmId, DeletedShare, FileShare, Gib, ShareAccessTier, ShareProtocol, StorageSku};

use super::{AccountShares, ShareVolume};

/// A PersistentVolume of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundVolume {
    /// Its name.
    pub volume: String,
    /// The claim that it is bound to, as `namespace/name`.
    pub claim: Option<String>,
}

/// A share, live or deleted and not yet gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The account.
    pub account: ArmId,
    /// The account's SKU; `None` where Azure names one that is newer than this program.
    pub sku: Option<StorageSku>,
    /// The share.
    pub share: ArmId,
    /// The volumes that name it, by name. A deleted share has them only where no live share has its name.
    pub volumes: Vec<BoundVolume>,
    /// Its quota.
    pub quota: Gib,
    /// How many bytes it holds, where that was asked for.
    pub used_bytes: Option<u64>,
    /// Its access tier.
    pub tier: Option<ShareAccessTier>,
    /// Its protocol; `None` where Azure names a newer one.
    pub protocol: Option<ShareProtocol>,
    /// How many snapshots it has. Those of a deleted share come back with it, and are not counted.
    pub snapshots: usize,
    /// That it is deleted, and can be restored.
    pub deleted: Option<DeletedShare>,
}

/// The rows of the shares of these accounts: by account, share, and live ones first.
pub fn rows(accounts: &[AccountShares], volumes: &[ShareVolume]) -> Vec<Row> {
    let mut rows: Vec<Row> = accounts
        .iter()
        .flat_map(|of| of.shares.iter().filter(|share| share.snapshot.is_none()).map(|share| row(of, share, volumes)))
        .collect();
    let version = |row: &Row| row.deleted.as_ref().map(|deleted| deleted.version.clone());
    rows.sort_by(|one, other| {
        (&one.account, &one.share, version(one)).cmp(&(&other.account, &other.share, version(other)))
    });
    rows
}

fn row(of: &AccountShares, share: &FileShare, volumes: &[ShareVolume]) -> Row {
    let same = |other: &&FileShare| other.id == share.id && other.deleted.is_none();
    let is_replaced = share.deleted.is_some() && of.shares.iter().filter(same).any(FileShare::is_live);
    let account = of.account.name();
    let mut bound: Vec<BoundVolume> = volumes
        .iter()
        .filter(|volume| !is_replaced && volume.names(account, share.name()))
        .map(|volume| BoundVolume { volume: volume.refers.name.clone(), claim: volume.claim.clone() })
        .collect();
    bound.sort_by(|one, other| one.volume.cmp(&other.volume));
    let snapshots = of.shares.iter().filter(same).filter(|one| one.snapshot.is_some() && share.deleted.is_none());
    Row {
        account: of.account.id.clone(),
        sku: of.account.sku,
        share: share.id.clone(),
        volumes: bound,
        quota: share.quota,
        used_bytes: share.used_bytes,
        tier: share.access_tier,
        protocol: share.protocol,
        snapshots: snapshots.count(),
        deleted: share.deleted.clone(),
    }
}
