//! What is to be served, as it follows from the store's documents.

use std::collections::BTreeMap;
use std::fmt;

use super::names::{AccountName, KeptName, ShareName};
use crate::arm::kinds;
use crate::arm::storage::own_documents;
use crate::store::Document;

/// The key of an account, which is its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// Everything that is to be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) accounts: BTreeMap<AccountName, Account>,
    /// What is not served, and why; a sentence each.
    pub(crate) refused: Vec<String>,
}

/// An account with its shares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// None where the account takes no keys (`allowSharedKeyAccess`).
    pub(crate) key: Option<Key>,
    /// Whether it refuses what is not encrypted (`supportsHttpsTrafficOnly`).
    pub(crate) encrypted: bool,
    /// The sizes of the shares in GiB. Shares for NFS are not among them.
    pub(crate) shares: BTreeMap<ShareName, u64>,
    /// Deleted shares that can come back, with the moment at which they are over, in nanoseconds of Unix time.
    pub(crate) kept: BTreeMap<KeptName, i128>,
}

/// Whether a document of this type says what is to be served.
pub(super) fn concerns(kind: &str) -> bool {
    [kinds::STORAGE_ACCOUNT, kinds::SHARE, own_documents::DELETED, own_documents::KEYS]
        .iter()
        .any(|own| own.eq_ignore_ascii_case(kind))
}

/// What follows from documents by lower-case id, among which are all that [`concerns`] names.
pub(super) fn files(documents: &BTreeMap<String, Document>, seed: u64) -> Files {
    let mut files = Files::default();
    let of_kind = |kind: &'static str| {
        documents.iter().filter(move |(_, doc)| doc["type"].as_str().is_some_and(|own| own.eq_ignore_ascii_case(kind)))
    };
    for (id, doc) in of_kind(kinds::STORAGE_ACCOUNT) {
        let properties = &doc["properties"];
        match AccountName::parse(last(id)) {
            Ok(name) => {
                let count = documents.get(&own_documents::keys_id(name.as_str()).to_ascii_lowercase());
                let times = count.and_then(|count| count["properties"]["key1"].as_u64()).unwrap_or(0);
                let key = Key(own_documents::key(seed, name.as_str(), "key1", times));
                let account = Account {
                    key: (properties["allowSharedKeyAccess"] != false).then_some(key),
                    encrypted: properties["supportsHttpsTrafficOnly"] != false,
                    ..Account::default()
                };
                files.accounts.insert(name, account);
            }
            Err(why) => files.refused.push(why),
        }
    }
    for (id, doc) in of_kind(kinds::SHARE).filter(|(_, doc)| doc["properties"]["enabledProtocols"] != "NFS") {
        let Some(account) = account_of(&mut files.accounts, id) else { continue };
        match ShareName::parse(last(id)) {
            Ok(name) => {
                account.shares.insert(name, doc["properties"]["shareQuota"].as_u64().unwrap_or(0));
            }
            Err(why) => files.refused.push(why),
        }
    }
    for (id, doc) in of_kind(own_documents::DELETED) {
        let Some(account) = account_of(&mut files.accounts, id) else { continue };
        let over = doc[own_documents::OVER].as_str().and_then(|over| over.parse().ok()).unwrap_or(i128::MAX);
        if let Some(name) = KeptName::parse(last(id)) {
            account.kept.insert(name, over);
        }
    }
    files
}

fn last(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// The account that an id is below of.
fn account_of<'a>(accounts: &'a mut BTreeMap<AccountName, Account>, id: &str) -> Option<&'a mut Account> {
    let mut segments = id.split('/').skip_while(|segment| *segment != "storageaccounts").skip(1);
    accounts.get_mut(&AccountName::parse(segments.next()?).ok()?)
}
