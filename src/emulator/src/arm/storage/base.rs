//! What types of the storage provider begin with, and what its answers have in common.

use jiff::Timestamp;
use serde_json::Value;

use crate::answer::Context;
use crate::arm::descriptor::{Descriptor, Extra, Family, Handler, Hooks, Own, Writers};
use crate::arm::protocol::{
    Absent, Answered, Commit, Etags, Latency, Limits, Patch, Put, Schema, Scope, Shape, Stamps,
};
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::operations::Style;
use crate::path;

pub(super) const VERSIONS: &[&str] = &["2025-01-01", "2023-05-01"];

pub(super) const fn of_subscription(
    method: &'static str,
    path: &'static str,
    operation: &'static str,
    handler: Handler,
) -> Extra {
    Extra { method, scope: Scope::Subscription, path, operation, handler, limit: None, since: None, headers: &[] }
}

/// A GET below a resource.
pub(super) const fn get(path: &'static str, operation: &'static str, handler: Handler) -> Extra {
    Extra { method: "GET", scope: Scope::Group, path, operation, handler, limit: None, since: None, headers: &[] }
}

/// A POST below a resource.
pub(super) const fn post(path: &'static str, operation: &'static str, handler: Handler) -> Extra {
    Extra { method: "POST", scope: Scope::Group, path, operation, handler, limit: None, since: None, headers: &[] }
}

pub(super) static FAMILY: Family = Family {
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
pub(super) const RESOURCE: Descriptor = Descriptor {
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
pub(super) fn stamp(at: Timestamp) -> String {
    format!("{at:.7}")
}

/// The same of a stamp of the resource manager.
pub(super) fn zulu(stamp: &str) -> String {
    stamp.replace("+00:00", "Z")
}

/// Documented for the keys (azurefile-csi-driver#186); for the rest it is unverified.
pub(super) fn require_provisioned(account: &Value) -> Result<(), Fault> {
    match account["properties"]["provisioningState"] == "Succeeded" {
        true => Ok(()),
        false => Err(fault::account_not_provisioned()),
    }
}

/// A refusal as the file service says it: with the request's id and time. Recorded.
pub(super) fn of_service(context: &mut Context<'_>, mut fault: Fault) -> Fault {
    let time = stamp(context.shared.clock.at(context.now));
    fault.message = format!("{}\nRequestId:{}\nTime:{time}", fault.message, context.state.guid());
    fault
}

/// The location of an account.
pub(super) fn location(account: &Value) -> &str {
    account["location"].as_str().unwrap_or("")
}

/// Whether an id is of the subscription of a request.
pub(super) fn same_subscription(one: &str, other: &str) -> bool {
    path::subscription_of(one).eq_ignore_ascii_case(path::subscription_of(other))
}
