//! Storage accounts, their keys, their file services and file shares: which request is which, and what the answers mean.
//!
//! The provider counts requests by subscription and region (`lazuli_quota::permit`), so a caller that asks about an account
//! says where it is: [`Storage::in_region`]. Only the lists of accounts are asked for without a region.
//!
//! - Nothing here has an ETag. A write is decided on what was read a moment ago, and brings the permit along that its caller
//!   took before: then it goes out once and at once, or not at all ([`Patience::None`]).
//! - Only the creation of an account is a long-running operation. All else ends with its answer.
//! - Chooses nothing. A PUT of an account that exists changes it, so the caller must know that it does not.

mod body;
mod lists;
#[cfg(test)]
mod tests;
mod wire;

use std::{collections::BTreeMap, sync::Arc};

use lazuli_model::{
    AccountKey, ArmId, AzureTime, FileService, FileShare, StorageAccount,
    fault::{Effect, Fault},
    op::{AccountSpec, FileServiceSpec, ShareChange, ShareSpec, ShareWrite},
};
use lazuli_quota::{permit::Priority, poll::Kind};
use serde_json::Value;
use tokio::time::Instant;

pub use lists::{ShareList, StoragePages, Unreadable};
pub use wire::decode_account;

use crate::{
    arm::{Arm, Operation, Patience, Read, Repeat, Write},
    decode::{DecodeError, undecodable},
    error::{ArmError, Failure, Verb},
    permits::{Permit, Rank},
    until::Until,
};

/// The API version of the storage provider (source: what the Go drivers send today).
pub const API_VERSION: &str = "2025-01-01";

/// The API version of the storage provider of Azure Stack Hub (source: what the Go drivers send there). It has accounts and
/// their keys, and no shares, tables and queues (source: the provider's swagger of that version).
pub const AZURE_STACK_API_VERSION: &str = "2018-02-01";

/// The client of the storage provider; clones share everything.
#[derive(Debug, Clone)]
pub struct Storage {
    arm: Arm,
    api_version: &'static str,
}

/// The client of the storage provider for the accounts of one region.
#[derive(Debug, Clone)]
pub struct RegionStorage {
    arm: Arm,
    api_version: &'static str,
}

/// What was read.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageRead<T> {
    /// What decisions rest on.
    pub model: T,
    /// All that Azure said.
    pub raw: Arc<Value>,
    /// When the request that was answered was sent.
    pub sent_at: Instant,
    /// When Azure answered, by its own clock.
    pub answered: Option<AzureTime>,
}

/// What a PUT shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Put<T> {
    /// The resource.
    pub shown: T,
    /// Whether it did not exist before.
    pub is_new: bool,
}

/// Whether a read of a share asks how much of it is used, which the provider then has the file service count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// It does not.
    Omitted,
    /// It does: `$expand=stats`.
    Shown,
}

impl Storage {
    /// A client by [`API_VERSION`].
    pub fn new(arm: Arm) -> Self {
        Self { arm, api_version: API_VERSION }
    }

    /// A client by [`AZURE_STACK_API_VERSION`].
    pub fn of_azure_stack(arm: Arm) -> Self {
        Self { arm, api_version: AZURE_STACK_API_VERSION }
    }

    /// The client underneath.
    pub fn arm(&self) -> &Arm {
        &self.arm
    }

    /// The client for accounts of this region, in either of Azure's spellings. Requests about an account whose region is not
    /// known count in all regions of its subscription: they wait longer, and none is refused.
    pub fn in_region(&self, location: Option<&str>) -> RegionStorage {
        RegionStorage {
            arm: location.map_or_else(|| self.arm.clone(), |location| self.arm.in_region(location)),
            api_version: self.api_version,
        }
    }
}

impl RegionStorage {
    /// Waits for the permit to send one write of this verb to an account, file service or share.
    ///
    /// # Errors
    /// As [`Arm::permit`].
    pub async fn permit(
        &self,
        verb: Verb,
        id: &ArmId,
        rank: impl Into<Rank>,
        until: &Until,
    ) -> Result<Permit, ArmError> {
        self.arm.permit(verb, id.as_str(), rank, until).await
    }

    /// The permit to send one write of this verb, if there is one now and no waiting request goes before.
    pub fn try_permit(&self, verb: Verb, id: &ArmId, priority: Priority) -> Option<Permit> {
        self.arm.try_permit(verb, id.as_str(), priority)
    }

    /// Reads an account.
    ///
    /// # Errors
    /// [`Fault::NotFound`] when exactly it is gone; [`Fault::Malformed`] when the answer cannot be read; any other
    /// [`Fault`].
    pub async fn get_account(
        &self,
        account: &ArmId,
        rank: impl Into<Rank>,
        until: &Until,
    ) -> Result<StorageRead<StorageAccount>, ArmError> {
        let read = self.arm.get(account.as_str(), self.api_version, &[], rank, until).await?;
        decoded(account.as_str(), read, decode_account)
    }

    /// Makes an account. The request is sent once: another may have made the account when it is sent again, and a PUT would
    /// change that one. The operation's result is the account, for [`decode_account`].
    ///
    /// # Errors
    /// Any [`Fault`]. [`Fault::Invalid`] when the name belongs to another account; [`Fault::Exhausted`] when the
    /// subscription may have no more accounts in the region; [`Fault::Conflict`] while the account is being made.
    pub async fn create_account(
        &self,
        account: &ArmId,
        spec: &AccountSpec,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        let write = Write::put(
            account.as_str(),
            self.api_version,
            body::encode_account(spec, self.api_version),
            Kind::StorageAccount,
        );
        self.arm.write(under(write.repeat(Repeat::Never), permit), until).await
    }

    /// Deletes an account with all that is in it; one that is gone already is deleted. Without a permit it is sent
    /// again when its answer is lost.
    ///
    /// # Errors
    /// Any [`Fault`] but [`Fault::NotFound`]. [`Fault::Locked`] under a lock.
    pub async fn delete_account(&self, account: &ArmId, permit: Option<Permit>, until: &Until) -> Result<(), ArmError> {
        let write = Write::delete(account.as_str(), self.api_version, Kind::Other);
        match self.arm.write(under(write, permit), until).await {
            Ok(mut operation) => operation.settle(until).await,
            Err(error) if error.fault == Fault::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Replaces all tags of an account, and changes nothing else of it. The request is sent once: sent again later, it
    /// could undo what another has written.
    ///
    /// # Errors
    /// Any [`Fault`].
    pub async fn set_tags(
        &self,
        account: &ArmId,
        tags: &BTreeMap<String, String>,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<(), ArmError> {
        let write = Write::patch(account.as_str(), self.api_version, body::encode_tags(tags), Kind::Other);
        self.arm.write(under(write, permit), until).await?.settle(until).await
    }

    /// Reads the keys of an account. It is a POST, which the front door counts as a write and the provider as a read.
    ///
    /// # Errors
    /// [`Fault::Conflict`] until the account is provisioned; [`Fault::Locked`] under a lock of the kind `ReadOnly`; any
    /// other [`Fault`]. No error quotes an answer that may hold a key.
    pub async fn list_keys(
        &self,
        account: &ArmId,
        rank: impl Into<Rank>,
        until: &Until,
    ) -> Result<Vec<AccountKey>, ArmError> {
        let path = format!("{account}/listKeys");
        let body = self.arm.ask(&path, self.api_version, rank, until).await?;
        wire::decode_keys(&body).ok_or_else(|| {
            let message = "the answer holds no keys in the expected form";
            Failure::ours(Fault::Malformed, Effect::None, Verb::Post, &path, message).into()
        })
    }

    /// Reads the file service of an account.
    ///
    /// # Errors
    /// [`Fault::ScopeNotFound`] where there is no such account; [`Fault::Invalid`] where its kind has no files; any other
    /// [`Fault`].
    pub async fn get_file_service(
        &self,
        account: &ArmId,
        rank: impl Into<Rank>,
        until: &Until,
    ) -> Result<StorageRead<FileService>, ArmError> {
        let path = file_service_path(account);
        let read = self.arm.get(&path, self.api_version, &[], rank, until).await.map_err(below_account)?;
        decoded(&path, read, wire::decode_file_service)
    }

    /// Changes the file service of an account: all of what was read, with these changes. The request is sent once, as by
    /// [`RegionStorage::set_tags`].
    ///
    /// # Errors
    /// As [`RegionStorage::get_file_service`].
    pub async fn change_file_service(
        &self,
        account: &ArmId,
        read: &StorageRead<FileService>,
        spec: &FileServiceSpec,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<FileService, ArmError> {
        let path = file_service_path(account);
        let write = Write::put(&path, self.api_version, body::edit_file_service(&read.raw, spec), Kind::Other);
        self.write(write.repeat(Repeat::Never), permit, wire::decode_file_service, until).await
    }

    /// Reads a share.
    ///
    /// # Errors
    /// [`Fault::NotFound`] when exactly it is gone; [`Fault::ScopeNotFound`] where there is no such account; any other
    /// [`Fault`].
    pub async fn get_share(
        &self,
        share: &ArmId,
        usage: Usage,
        rank: impl Into<Rank>,
        until: &Until,
    ) -> Result<StorageRead<FileShare>, ArmError> {
        let query: &[(&str, &str)] = match usage {
            Usage::Omitted => &[],
            Usage::Shown => &[("$expand", "stats")],
        };
        let read = self.arm.get(share.as_str(), self.api_version, query, rank, until).await.map_err(below_account)?;
        decoded(share.as_str(), read, wire::decode_share)
    }

    /// Makes a share, or changes the one of this name into what the spec says: then what is shown is not what was made.
    /// Without a permit it is sent again when its answer is lost.
    ///
    /// # Errors
    /// Any [`Fault`]. [`Fault::Conflict`] while a share of this name is being deleted; [`Fault::AccountFull`];
    /// [`Fault::ScopeNotFound`] where there is no such account.
    pub async fn create_share(
        &self,
        share: &ArmId,
        spec: &ShareSpec,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<Put<FileShare>, ArmError> {
        let write = Write::put(share.as_str(), self.api_version, body::encode_share(spec), Kind::Other);
        self.put(write, permit, wire::decode_share, until).await
    }

    /// Changes size or speed of a share. The request is sent once: the share of this name may be another one when it is
    /// sent again.
    ///
    /// # Errors
    /// As [`RegionStorage::create_share`]; [`Fault::NotFound`] when the share is gone.
    pub async fn change_share(
        &self,
        share: &ArmId,
        change: &ShareChange,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<FileShare, ArmError> {
        let write = Write::patch(share.as_str(), self.api_version, body::encode_change(change), Kind::Other);
        self.write(write, permit, wire::decode_share, until).await
    }

    /// Deletes a share, and never its snapshots; one that is gone already is deleted.
    ///
    /// # Errors
    /// Any [`Fault`] but [`Fault::NotFound`]. [`Fault::InUse`] when it has snapshots; [`Fault::PreconditionFailed`] when
    /// another holds a lease of it.
    pub async fn delete_share(&self, share: &ArmId, permit: Option<Permit>, until: &Until) -> Result<(), ArmError> {
        let write = Write::delete(share.as_str(), self.api_version, Kind::Other);
        let write = under(write.query("$include", ShareWrite::DELETE_INCLUDE), permit);
        match self.arm.write(write, until).await.map_err(below_account) {
            Ok(mut operation) => operation.settle(until).await,
            Err(error) if error.fault == Fault::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends a write below an account, and reads what its answer shows.
    async fn write<T>(
        &self,
        write: Write,
        permit: Option<Permit>,
        decode: fn(&Value) -> Result<T, DecodeError>,
        until: &Until,
    ) -> Result<T, ArmError> {
        self.put(write, permit, decode, until).await.map(|put| put.shown)
    }

    async fn put<T>(
        &self,
        write: Write,
        permit: Option<Permit>,
        decode: fn(&Value) -> Result<T, DecodeError>,
        until: &Until,
    ) -> Result<Put<T>, ArmError> {
        let (verb, path) = (write.verb(), write.path().to_owned());
        let mut operation = self.arm.write(under(write, permit), until).await.map_err(below_account)?;
        let is_new = operation.has_made();
        let shown = operation.wait(until).await?.unwrap_or_default();
        let shown = decode(&shown).map_err(|error| {
            let message = format!("the write was accepted, and its answer cannot be used: {error}");
            ArmError::from(Failure::ours(Fault::Malformed, Effect::Possible, verb, &path, message))
        })?;
        Ok(Put { shown, is_new })
    }
}

/// The write under the permit that it brings: once and at once, or not at all.
fn under(write: Write, permit: Option<Permit>) -> Write {
    let patience = if permit.is_some() { Patience::None } else { Patience::AsAzureSays };
    write.patience(patience).with_permit(permit)
}

/// The failure of a request to something below an account. The front door knows accounts alone: that it finds none is not
/// about what the request names.
fn below_account(error: ArmError) -> ArmError {
    let is_of_account =
        ["ResourceNotFound", "StorageAccountNotFound"].iter().any(|code| error.code.eq_ignore_ascii_case(code));
    if error.fault == Fault::NotFound && is_of_account { error.resorted(Fault::ScopeNotFound) } else { error }
}

fn decoded<T>(
    path: &str,
    read: Read,
    decode: fn(&Value) -> Result<T, DecodeError>,
) -> Result<StorageRead<T>, ArmError> {
    let model = decode(&read.value).map_err(|error| undecodable(path, error))?;
    Ok(StorageRead { model, raw: Arc::new(read.value), sent_at: read.sent_at, answered: read.answered })
}

fn file_service_path(account: &ArmId) -> String {
    format!("{account}/fileServices/default")
}

fn accounts_path(subscription: &str, resource_group: Option<&str>) -> String {
    match resource_group {
        Some(group) => {
            format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Storage/storageAccounts")
        }
        None => format!("/subscriptions/{subscription}/providers/Microsoft.Storage/storageAccounts"),
    }
}
