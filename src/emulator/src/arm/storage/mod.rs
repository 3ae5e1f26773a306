//! The storage provider: accounts with their keys, file services and file shares.
//!
//! Recorded: the creation of an account answers 202 without a body, with `Location` and `Retry-After: 17`, and so do its
//! polls until the account is there; PATCH and DELETE of accounts are synchronous. Documented: all requests below an
//! account are synchronous; what they refuse, the file service says, with the id and the time of the request in the text.
//! Blob, queue and table services are not emulated, nor is the data plane that the endpoints of an account lead to.

pub(crate) mod accounts;
pub(crate) mod file_services;
pub(crate) mod keys;
pub(crate) mod share_deletion;
pub(crate) mod share_lists;
pub(crate) mod share_sizes;
pub(crate) mod share_snapshots;
pub(crate) mod shares;
pub(crate) mod skus;
pub(crate) mod windows;

use serde_json::Value;

use super::descriptor::{Descriptor, Extra, Family, Handler, Hooks, Own, Provider, Writers};
use super::engine::quotas;
use super::polling;
use super::protocol::{Absent, Answered, Commit, Etags, Latency, Limits, Patch, Put, Schema, Scope, Shape, Stamps};
use crate::answer::Context;
use crate::clock;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::operations::Style;
use crate::path;

pub(crate) static PROVIDER: Provider = Provider {
    namespace: "Microsoft.Storage",
    types: &[&accounts::STORAGE_ACCOUNT, &file_services::FILE_SERVICE, &shares::SHARE],
    other_types: &[
        ("checkNameAvailability", VERSIONS),
        ("locations/asyncoperations", VERSIONS),
        ("locations/usages", VERSIONS),
    ],
    routes: &[
        of_subscription("GET", "locations/*/asyncoperations/*", "operations.get", polling::network_result),
        of_subscription("GET", "locations/*/usages", "usages.listByLocation", quotas::usages),
        of_subscription(
            "POST",
            "checknameavailability",
            "storageAccounts.checkNameAvailability",
            accounts::check_name_availability,
        ),
    ],
};

const VERSIONS: &[&str] = &["2025-01-01", "2023-05-01"];

const fn of_subscription(method: &'static str, path: &'static str, operation: &'static str, handler: Handler) -> Extra {
    Extra { method, scope: Scope::Subscription, path, operation, handler, limit: None, since: None, headers: &[] }
}

/// A POST below a resource.
const fn post(path: &'static str, operation: &'static str, handler: Handler) -> Extra {
    Extra { method: "POST", scope: Scope::Group, path, operation, handler, limit: None, since: None, headers: &[] }
}

pub(crate) static FAMILY: Family = Family {
    style: Style::Storage,
    namespace: "Microsoft.Storage",
    collection: "asyncoperations",
    notification: false,
    // Recorded.
    retry_after: |_| 17,
    etags: Etags::None,
    counted: false,
};

/// What types of the storage provider begin with.
pub(crate) const RESOURCE: Descriptor = Descriptor {
    kind: "",
    path: "",
    operations: None,
    parent: None,
    api_versions: VERSIONS,
    family: &FAMILY,
    lists: &[Scope::Group],
    // The provider counts in windows of a region, which only the account tells: see `windows`.
    limits: Limits::NONE,
    own_buckets: false,
    headers: &[],
    latency: Latency { write: OperationKind::StorageAccount, delete: OperationKind::StorageAccount },
    schema: Schema { name: "", root: "" },
    layout: &["sku", "id", "name", "type", "properties"],
    stamps: Stamps::Nothing,
    put: Put {
        created: Answered::new(201, Shape::Synchronous),
        updated: |_| Answered::new(200, Shape::Synchronous),
        running: |_| "Succeeded",
        commit: Commit::AtOnce,
    },
    creating: None,
    absent: Absent::Stay,
    patch: Patch::None,
    delete: Answered::new(200, Shape::Synchronous),
    writers: Writers::Together,
    children: &[],
    references: &[],
    in_use: &[],
    shows: &[],
    expands: &[],
    quotas: &[],
    hooks: Hooks::NONE,
    own: Own::NONE,
    routes: &[],
};

/// A moment as this provider prints it: `2026-01-01T00:00:00.1234567Z`.
fn stamp(at: time::OffsetDateTime) -> String {
    zulu(&clock::stamp(at))
}

/// The same of a stamp of the resource manager.
fn zulu(stamp: &str) -> String {
    stamp.replace("+00:00", "Z")
}

/// The account of a request to what is below it. Recorded: without it the gateway says that the parent is missing;
/// `action` is `read`, `write` or `delete`.
fn account(context: &Context<'_>, action: &str, kind: &str) -> Result<Document, Fault> {
    context.require_group()?;
    let id = accounts::STORAGE_ACCOUNT.id(context);
    let kind = kind.split_once('/').map_or(kind, |(_, kind)| kind);
    let found = context.state.store.document(&id);
    found.ok_or_else(|| fault::storage_parent_not_found(action, kind, id))
}

/// The account of a request to its file service. Documented: an account that is being created has none yet, and
/// accounts for blobs have none at all.
fn files_account(context: &Context<'_>, action: &str, kind: &str) -> Result<Document, Fault> {
    let account = account(context, action, kind)?;
    require_provisioned(&account)?;
    match skus::has_files(&account) {
        true => Ok(account),
        false => Err(fault::service_unsupported("File")),
    }
}

/// Documented for the keys (azurefile-csi-driver#186); for the rest it is unverified.
fn require_provisioned(account: &Value) -> Result<(), Fault> {
    match account["properties"]["provisioningState"] == "Succeeded" {
        true => Ok(()),
        false => Err(fault::account_not_provisioned()),
    }
}

/// A refusal as the file service says it: with the request's id and time. Recorded.
fn of_service(context: &mut Context<'_>, mut fault: Fault) -> Fault {
    let time = stamp(context.shared.clock.at(context.now));
    fault.message = format!("{}\nRequestId:{}\nTime:{time}", fault.message, context.state.guid());
    fault
}

/// The location of an account.
fn location(account: &Value) -> &str {
    account["location"].as_str().unwrap_or("")
}

/// Whether an id is of the subscription of a request.
fn same_subscription(one: &str, other: &str) -> bool {
    path::subscription_of(one).eq_ignore_ascii_case(path::subscription_of(other))
}
