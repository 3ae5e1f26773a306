//! The storage accounts of a cluster with their shares, for commands that people run: reads alone, and nothing is decided.

use futures::{StreamExt as _, stream};
use lazuli_azure::{
    Until,
    error::ArmError,
    storage::{ShareList, Storage, Usage},
};
use lazuli_diagnosis::shares::{AccountGroup, AccountShares};
use lazuli_model::{FileShare, StorageAccount};
use lazuli_quota::permit::Priority;

/// So many accounts, and so many shares, are asked about at a time.
const AT_ONCE: usize = 8;

/// What was read of some resource groups.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The accounts that could be read whole.
    pub(super) accounts: Vec<AccountShares>,
    /// The groups whose accounts and shares could all be read.
    pub(super) listed: Vec<AccountGroup>,
    /// What could not be read, with the group it is in.
    pub(super) failed: Vec<(AccountGroup, ArmError)>,
}

/// Reads the accounts of these groups that have a file service and that are `of_interest`, each with its shares, deleted
/// ones and snapshots included.
pub(super) async fn gather(
    storage: &Storage,
    groups: &[AccountGroup],
    of_interest: impl Fn(&StorageAccount) -> bool,
    until: &Until,
) -> Gathered {
    let mut gathered = Gathered::default();
    for group in groups {
        let accounts = match accounts(storage, group, until).await {
            Ok(accounts) => accounts,
            Err(error) => {
                gathered.failed.push((group.clone(), error));
                continue;
            }
        };
        let with_files = accounts.into_iter().filter(|one| AccountShares::has_files(one) && of_interest(one));
        let reads = with_files.map(|account| async move {
            let shares = shares(storage, &account, until).await?;
            Ok::<_, ArmError>(AccountShares { account, shares })
        });
        let failures = gathered.failed.len();
        let read: Vec<Result<AccountShares, ArmError>> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        for one in read {
            match one {
                Ok(of) => gathered.accounts.push(of),
                Err(error) => gathered.failed.push((group.clone(), error)),
            }
        }
        if gathered.failed.len() == failures {
            gathered.listed.push(group.clone());
        }
    }
    gathered
}

async fn accounts(storage: &Storage, group: &AccountGroup, until: &Until) -> Result<Vec<StorageAccount>, ArmError> {
    storage.list_accounts(&group.subscription, Some(&group.name), Priority::Read, until)?.readable().await
}

async fn shares(storage: &Storage, account: &StorageAccount, until: &Until) -> Result<Vec<FileShare>, ArmError> {
    let list = ShareList { prefix: String::new(), deleted: true, snapshots: true };
    let region = storage.in_region(Some(&account.location));
    region.list_shares(&account.id, &list, Priority::Read, until)?.readable().await
}

/// Asks for each live share how much of it is used. One that does not say keeps none.
pub(super) async fn measure(storage: &Storage, accounts: &mut [AccountShares], until: &Until) {
    for of in accounts {
        let region = &storage.in_region(Some(&of.account.location));
        let live: Vec<usize> = (0..of.shares.len()).filter(|at| of.shares[*at].is_live()).collect();
        let ids: Vec<_> = live.iter().map(|at| (*at, of.shares[*at].id.clone())).collect();
        let reads = ids
            .into_iter()
            .map(|(at, id)| async move { (at, region.get_share(&id, Usage::Shown, Priority::Read, until).await) });
        let read: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        for (at, shown) in read {
            match shown {
                Ok(shown) => of.shares[at].used_bytes = shown.model.used_bytes,
                Err(error) => tracing::warn!(share = %of.shares[at].id, %error, "it is not known how much is used"),
            }
        }
    }
}

/// What tests of commands make in the emulator.
#[cfg(test)]
#[cfg(feature = "emulator")]
pub(super) mod fixtures {
    use lazuli_azure::{arm::Write, storage::API_VERSION};
    use lazuli_emulator::scenario;
    use lazuli_model::ArmId;
    use lazuli_quota::poll::Kind;
    use lazuli_rig::cluster::Cluster;
    use serde_json::{Value, json};

    fn share_id(account: &str, share: &str) -> ArmId {
        let account = ArmId::storage_account(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, account).unwrap();
        ArmId::file_share(&account, share).unwrap()
    }

    async fn put(cluster: &Cluster, id: &ArmId, body: Value, kind: Kind) {
        cluster.write_azure(Write::put(id.as_str(), API_VERSION, body, kind)).await.unwrap();
    }

    /// Makes an account of a SKU with these properties.
    pub(in crate::cli) async fn make_account(cluster: &Cluster, name: &str, sku: &str, properties: Value) {
        let id = ArmId::storage_account(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, name).unwrap();
        let kind = if sku.starts_with("Standard_") { "StorageV2" } else { "FileStorage" };
        let body =
            json!({"location": scenario::LOCATION, "sku": {"name": sku}, "kind": kind, "properties": properties});
        put(cluster, &id, body, Kind::StorageAccount).await;
    }

    /// Makes a share of so many GiB.
    pub(in crate::cli) async fn make_share(cluster: &Cluster, account: &str, share: &str, gib: u32) {
        let body = json!({"properties": {"shareQuota": gib}});
        put(cluster, &share_id(account, share), body, Kind::Other).await;
    }

    /// Makes a snapshot of a share.
    pub(in crate::cli) async fn snapshot(cluster: &Cluster, account: &str, share: &str) {
        let id = share_id(account, share);
        let write = Write::put(id.as_str(), API_VERSION, json!({}), Kind::Other).query("$expand", "snapshots");
        cluster.write_azure(write).await.unwrap();
    }

    /// Deletes a share without snapshots.
    pub(in crate::cli) async fn delete_share(cluster: &Cluster, account: &str, share: &str) {
        let id = share_id(account, share);
        cluster.write_azure(Write::delete(id.as_str(), API_VERSION, Kind::Other)).await.unwrap();
    }
}
