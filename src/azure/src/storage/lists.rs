//! Lists of accounts and of shares, page by page.

use lazuli_model::{
    ArmId, FileShare, StorageAccount,
    fault::{Effect, Fault},
};
use serde_json::Value;
use tracing::warn;

use super::{
    AZURE_STACK_API_VERSION, RegionStorage, Storage, accounts_path, below_account,
    wire::{decode_account, decode_share},
};
use crate::{
    arm::Pages,
    decode::{DecodeError, undecodable},
    error::{ArmError, Failure, Verb},
    permits::Rank,
    until::Until,
};

/// Which shares a list of an account has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShareList {
    /// Those whose names begin so; all of them when it is empty.
    pub prefix: String,
    /// With the deleted ones that can still be restored.
    pub deleted: bool,
    /// With the snapshots of each.
    pub snapshots: bool,
}

impl ShareList {
    /// The value of `$expand`.
    fn expand(&self) -> Option<&'static str> {
        match (self.deleted, self.snapshots) {
            (false, false) => None,
            (true, false) => Some("deleted"),
            (false, true) => Some("snapshots"),
            (true, true) => Some("deleted,snapshots"),
        }
    }
}

/// An item of a list that cannot be read. A caller that needs every item of some kind decides whether this may be such an
/// item.
#[derive(Debug, Clone)]
pub struct Unreadable {
    /// Its id as Azure spells it, where there is one.
    pub id: Option<String>,
    /// Why it cannot be read.
    pub error: ArmError,
}

/// A list that is read page by page. The caller may stop after any page.
#[derive(Debug)]
pub struct StoragePages<T> {
    pages: Pages,
    path: String,
    decode: fn(&Value) -> Result<T, DecodeError>,
}

impl<T> StoragePages<T> {
    /// Reads the next page; `None` after the last one.
    ///
    /// # Errors
    /// As [`Pages::next_page`].
    pub async fn next_page(&mut self) -> Result<Option<Vec<Result<T, Unreadable>>>, ArmError> {
        let Some(items) = self.pages.next_page::<Value>().await? else { return Ok(None) };
        let item = |raw: Value| {
            (self.decode)(&raw).map_err(|error| {
                let id = raw.get("id").and_then(Value::as_str).map(str::to_owned);
                let error = undecodable(id.as_deref().unwrap_or(&self.path), error);
                Unreadable { id, error }
            })
        };
        Ok(Some(items.into_iter().map(item).collect()))
    }

    /// Reads all pages that are left.
    ///
    /// # Errors
    /// As [`Pages::next_page`]. A page that fails fails the list: a shorter list would be a wrong one.
    pub async fn all(mut self) -> Result<Vec<Result<T, Unreadable>>, ArmError> {
        let mut items = Vec::new();
        while let Some(page) = self.next_page().await? {
            items.extend(page);
        }
        Ok(items)
    }

    /// Reads all pages that are left, and leaves out the items that cannot be read: a log line names each. It is for a
    /// caller to whom an item that it does not see is one that it does not use.
    ///
    /// # Errors
    /// As [`StoragePages::all`].
    pub async fn readable(self) -> Result<Vec<T>, ArmError> {
        let read = |item: Result<T, Unreadable>| {
            item.inspect_err(|Unreadable { id, error }| {
                let resource = id.as_deref().unwrap_or("unknown");
                warn!(resource, %error, "an item of a list cannot be read, and is left out");
            })
            .ok()
        };
        Ok(self.all().await?.into_iter().filter_map(read).collect())
    }

    /// The pages beneath, which say when the first one was asked for and answered.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }
}

impl Storage {
    /// Lists the storage accounts of a subscription, or of one of its resource groups. In which region Azure counts that is
    /// not known, so it counts in all.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for what is no path.
    pub fn list_accounts(
        &self,
        subscription: &str,
        resource_group: Option<&str>,
        rank: impl Into<Rank>,
        until: &Until,
    ) -> Result<StoragePages<StorageAccount>, ArmError> {
        let path = accounts_path(subscription, resource_group);
        let pages = self.arm().pages(&path, self.api_version, &[], rank, until)?;
        Ok(StoragePages { pages, path, decode: decode_account })
    }
}

impl RegionStorage {
    /// Lists the shares of an account. No list shows how much of a share is used.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for what is no path. The pages say
    /// [`Fault::ScopeNotFound`] where there is no such account.
    pub fn list_shares(
        &self,
        account: &ArmId,
        list: &ShareList,
        rank: impl Into<Rank>,
        until: &Until,
    ) -> Result<StoragePages<FileShare>, ArmError> {
        let path = format!("{account}/fileServices/default/shares");
        let mut query: Vec<(&str, &str)> = list.expand().map(|expand| ("$expand", expand)).into_iter().collect();
        if !list.prefix.is_empty() {
            query.push(("$filter", &list.prefix));
        }
        let pages = self.arm.pages(&path, self.api_version, &query, rank, until)?;
        Ok(StoragePages { pages, path, decode: decode_share })
    }

    /// How many shares an account has, with the deleted ones that can be restored and with all snapshots.
    ///
    /// # Errors
    /// Any [`Fault`]; [`Fault::ScopeNotFound`]
    /// where there is no such account, [`Fault::Unsupported`] on Azure Stack Hub.
    pub async fn count_shares(&self, account: &ArmId, rank: impl Into<Rank>, until: &Until) -> Result<u64, ArmError> {
        self.count(account, "fileServices/default/shares", &[("$expand", "deleted,snapshots")], rank.into(), until)
            .await
    }

    /// How many tables an account has.
    ///
    /// # Errors
    /// As [`RegionStorage::count_shares`].
    pub async fn count_tables(&self, account: &ArmId, rank: impl Into<Rank>, until: &Until) -> Result<u64, ArmError> {
        self.count(account, "tableServices/default/tables", &[], rank.into(), until).await
    }

    /// How many queues an account has.
    ///
    /// # Errors
    /// As [`RegionStorage::count_shares`].
    pub async fn count_queues(&self, account: &ArmId, rank: impl Into<Rank>, until: &Until) -> Result<u64, ArmError> {
        self.count(account, "queueServices/default/queues", &[], rank.into(), until).await
    }

    /// How many items a list below an account has. What they are does not count, so none can be unreadable.
    async fn count(
        &self,
        account: &ArmId,
        list: &str,
        query: &[(&str, &str)],
        rank: Rank,
        until: &Until,
    ) -> Result<u64, ArmError> {
        let path = format!("{account}/{list}");
        if self.api_version == AZURE_STACK_API_VERSION {
            let message = "the storage provider of Azure Stack Hub has no such list";
            return Err(Failure::ours(Fault::Unsupported, Effect::None, Verb::Get, &path, message).into());
        }
        let mut pages = self.arm.pages(&path, self.api_version, query, rank, until)?;
        let mut count = 0;
        while let Some(page) = pages.next_page::<serde::de::IgnoredAny>().await.map_err(below_account)? {
            count += u64::try_from(page.len()).unwrap_or(u64::MAX);
        }
        Ok(count)
    }
}
