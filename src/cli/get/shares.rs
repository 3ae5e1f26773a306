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
use serde_json::{Value, json};

use super::{
    super::{
        connect::connected,
        output::Format,
        storage_accounts::{Gathered, gather, measure},
    },
    AnyError, Common, PATIENCE, Table, or_none,
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
    common: Common,
}

/// Why shares cannot be shown.
#[derive(Debug, thiserror::Error)]
enum SharesError {
    #[error("there is no storage account {name} with file shares in {groups}; there are {known}")]
    NoAccount { name: String, groups: String, known: String },
}

pub(super) async fn printed(options: &Shares) -> Result<String, AnyError> {
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
    Ok(of_shares(&rows(&accounts, &volumes), options.common.output))
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

fn of_shares(rows: &[Row], format: Format) -> String {
    match format {
        Format::Json => {
            let volume = |one: &BoundVolume| json!({"volume": one.volume, "claim": one.claim});
            let deleted = |one: &DeletedShare| json!({"version": one.version, "remainingDays": one.remaining_days});
            let share = |row: &Row| -> Value {
                json!({"account": row.account.name(), "resourceGroup": row.account.resource_group(),
                    "name": row.share.name(), "id": row.share.as_str(),
                    "volumes": row.volumes.iter().map(volume).collect::<Vec<_>>(),
                    "quotaGib": row.quota.get(), "usedBytes": row.used_bytes, "sku": row.sku.map(|sku| sku.as_str()),
                    "tier": row.tier.map(ShareAccessTier::as_str), "protocol": row.protocol.map(ShareProtocol::as_str),
                    "snapshots": row.snapshots, "deleted": row.deleted.as_ref().map(deleted)})
            };
            format!("{}\n", json!({"shares": rows.iter().map(share).collect::<Vec<_>>()}))
        }
        Format::Text => {
            let cells = |row: &Row| {
                vec![
                    row.account.name().to_owned(),
                    row.account.resource_group().to_owned(),
                    row.share.name().to_owned(),
                    or_none(row.volumes.iter().map(|one| one.volume.clone())),
                    or_none(row.volumes.iter().filter_map(|one| one.claim.clone())),
                    format!("{} GiB", row.quota.get()),
                    or_none(row.used_bytes.map(gib)),
                    or_none(row.sku.map(|sku| sku.to_string())),
                    or_none(row.tier.map(|tier| tier.to_string())),
                    row.snapshots.to_string(),
                    state(row.deleted.as_ref()),
                ]
            };
            let columns = &[
                "account",
                "resource group",
                "share",
                "volume",
                "claim",
                "quota",
                "used",
                "sku",
                "tier",
                "snapshots",
                "state",
            ];
            Table { columns, rows: rows.iter().map(cells).collect() }.print(Format::Text)
        }
    }
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests;
