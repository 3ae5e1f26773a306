//! `lazuli get shares`: which volume each file share is, in which storage account, and what is deleted and can come back.

use clap::Args;
use lazuli_azure::Until;
use lazuli_cluster::list_share_volumes;
use lazuli_csi::identity::FILE_DRIVER;
use lazuli_diagnosis::shares::{
    AccountGroup, AccountShares, groups,
    inventory::{BoundVolume, Row, rows},
};
use lazuli_model::{DeletedShare, ShareAccessTier, ShareProtocol, StorageAccount};
use serde_json::json;

use super::{
    super::{
        connect::connected,
        output::{Field, Item, List, joined},
        storage_accounts::{Gathered, gather, measure},
        table::{
            Column,
            Shown::{Always, Wide, WithRoom},
        },
    },
    AnyError, Common, PATIENCE,
};

#[derive(Debug, Args)]
pub(super) struct Shares {
    /// Show the shares of this storage account alone.
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Ask Azure how much of each share is used, by a read for each.
    #[arg(long)]
    used: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Why shares cannot be shown.
#[derive(Debug, thiserror::Error)]
enum SharesError {
    #[error("there is no storage account {name} with file shares in {groups}; there are {known}")]
    NoAccount { name: String, groups: String, known: String },
}

pub(super) async fn list(options: &Shares) -> Result<List, AnyError> {
    let (client, config, azure) = connected(&options.common.cloud).await?;
    let until = Until::within(PATIENCE);
    let volumes = match &client {
        Some(client) => list_share_volumes(client, FILE_DRIVER).await?,
        None => Vec::new(),
    };
    let own = AccountGroup {
        subscription: config.cluster.subscription_id.clone(),
        name: config.cluster.resource_group.as_str().to_owned(),
    };
    let asked = groups(&own, &volumes);
    let is_asked_for = |account: &StorageAccount| {
        options.account.as_deref().is_none_or(|name| name.eq_ignore_ascii_case(account.name()))
    };
    let gathered = gather(&azure.storage, &asked, is_asked_for, &until).await;
    let mut accounts = readable(gathered, &own)?;
    if let (Some(name), true) = (&options.account, accounts.is_empty()) {
        let all = gather(&azure.storage, &asked, |_| true, &until).await;
        return Err(no_account(name, &asked, &all.accounts).into());
    }
    if options.used {
        measure(&azure.storage, &mut accounts, &until).await;
    }
    Ok(List::new("share", &COLUMNS, rows(&accounts, &volumes).iter().map(item).collect()))
}

/// The accounts. What another group than the cluster's does not show is left out, and it is said.
fn readable(gathered: Gathered, own: &AccountGroup) -> Result<Vec<AccountShares>, AnyError> {
    for (group, error) in gathered.failed {
        if group == *own {
            return Err(error.into());
        }
        tracing::warn!(group = group.name, %error, "the file shares of a resource group cannot be listed");
    }
    Ok(gathered.accounts)
}

fn no_account(name: &str, groups: &[AccountGroup], accounts: &[AccountShares]) -> SharesError {
    let groups: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    let known: Vec<&str> = accounts.iter().map(|of| of.account.name()).collect();
    SharesError::NoAccount {
        name: name.to_owned(),
        groups: format!("resource group {}", groups.join(", ")),
        known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
    }
}

/// Bytes as people read them.
fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

fn state(deleted: Option<&DeletedShare>) -> String {
    match deleted {
        None => "live".to_owned(),
        Some(DeletedShare { remaining_days: Some(1), .. }) => "deleted, 1 day left".to_owned(),
        Some(DeletedShare { remaining_days: Some(days), .. }) => format!("deleted, {days} days left"),
        Some(DeletedShare { remaining_days: None, .. }) => "deleted".to_owned(),
    }
}

const COLUMNS: [Column; 12] = [
    Column::new("ACCOUNT", Always),
    Column::new("RESOURCE GROUP", WithRoom(1)),
    Column::new("SHARE", Always),
    Column::new("VOLUME", WithRoom(2)),
    Column::new("CLAIM", Always),
    Column::new("QUOTA", WithRoom(7)),
    Column::new("USED", WithRoom(6)),
    Column::new("SKU", WithRoom(5)),
    Column::new("TIER", WithRoom(4)),
    Column::new("PROTOCOL", Wide),
    Column::new("SNAPSHOTS", WithRoom(3)),
    Column::new("STATE", WithRoom(8)),
];

/// The fields of a share.
pub(super) const FIELDS: &[Field] = &[
    ("account", "the storage account"),
    ("resourceGroup", "of the account"),
    ("name", "of the share"),
    ("id", "its ARM id"),
    ("volumes", "the PersistentVolumes that name it, a list: volume; claim (NAMESPACE/NAME, or null)"),
    ("quotaGib", "GiB"),
    ("usedBytes", "bytes; null without --used"),
    ("sku", "of the account"),
    ("tier", "access tier, or null"),
    ("protocol", "SMB or NFS"),
    ("snapshots", "how many"),
    ("deleted", "null, or: version; remainingDays (how long it can be restored)"),
];

fn item(row: &Row) -> Item {
    let volume = |one: &BoundVolume| json!({"volume": one.volume, "claim": one.claim});
    let deleted = |one: &DeletedShare| json!({"version": one.version, "remainingDays": one.remaining_days});
    let (account, group, share) = (row.account.name(), row.account.resource_group(), row.share.name());
    Item {
        name: format!("{account}/{share}"),
        object: json!({"account": account, "resourceGroup": group, "name": share, "id": row.share.as_str(),
            "volumes": row.volumes.iter().map(volume).collect::<Vec<_>>(), "quotaGib": row.quota.get(),
            "usedBytes": row.used_bytes, "sku": row.sku.map(|sku| sku.as_str()),
            "tier": row.tier.map(ShareAccessTier::as_str), "protocol": row.protocol.map(ShareProtocol::as_str),
            "snapshots": row.snapshots, "deleted": row.deleted.as_ref().map(deleted)}),
        cells: vec![
            account.to_owned(),
            group.to_owned(),
            share.to_owned(),
            joined(row.volumes.iter().map(|one| one.volume.clone())),
            joined(row.volumes.iter().filter_map(|one| one.claim.clone())),
            format!("{} GiB", row.quota.get()),
            joined(row.used_bytes.map(gib)),
            joined(row.sku.map(|sku| sku.to_string())),
            joined(row.tier.map(|tier| tier.to_string())),
            joined(row.protocol.map(|protocol| protocol.as_str().to_owned())),
            row.snapshots.to_string(),
            state(row.deleted.as_ref()),
        ],
    }
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests;
