//! What the types of the compute provider begin with.

use crate::arm::descriptor::{Descriptor, Extra, Family, Handler, Headers, Hooks, Own, Writers};
use crate::arm::protocol::{
    Absent, Answered, Commit, Etags, Latency, Limits, Patch, Put, Schema, Scope, Shape, Stamps,
};
use crate::latency::OperationKind;
use crate::operations::Style;

/// Versions of disks and snapshots that the provider's document names.
pub(crate) const DISK_VERSIONS: &[&str] = &["2025-01-02", "2024-03-02"];

/// Seconds told to those who poll a machine's operation: recorded (10).
pub(crate) const RETRY_AFTER: u64 = 10;

/// A POST below a resource.
pub(crate) const fn post(path: &'static str, operation: &'static str, handler: Handler) -> Extra {
    Extra { method: "POST", scope: Scope::Group, path, operation, handler, limit: None, since: None, headers: &[] }
}

/// Recorded on answers about machines and their sets, on refusals and polls as well.
pub(crate) const OF_MACHINES: Headers = &[("x-ms-need-to-refresh-epl-cache", "False")];

/// Operations on disks and snapshots. Recorded: `DiskOperations`, both headers, no notification.
pub(crate) static DISK_FAMILY: Family = Family {
    style: Style::Compute,
    namespace: "Microsoft.Compute",
    collection: "DiskOperations",
    notification: false,
    retry_after: |options| options.unverified.disk_retry_after,
    etags: Etags::None,
    counted: true,
};

/// Operations on virtual machines and what belongs to them. Recorded.
pub(crate) const VM_FAMILY: Family = Family {
    style: Style::Compute,
    namespace: "Microsoft.Compute",
    collection: "operations",
    notification: true,
    retry_after: |_| RETRY_AFTER,
    etags: Etags::None,
    counted: true,
};

/// What types of the compute provider begin with: written with 202, visible at the end, one writer at a time.
pub(crate) const RESOURCE: Descriptor = Descriptor {
    kind: "",
    path: "",
    operations: None,
    parent: None,
    api_versions: &["2025-04-01", "2024-07-01"],
    family: &DISK_FAMILY,
    lists: &[Scope::Either],
    limits: Limits::NONE,
    own_buckets: false,
    headers: &[],
    latency: Latency { write: OperationKind::DiskUpdate, delete: OperationKind::DiskDelete },
    schema: Schema { name: "", root: "" },
    layout: &["name", "id", "type", "location", "tags", "zones", "sku", "properties"],
    stamps: Stamps::State,
    put: Put {
        created: Answered::new(202, Shape::Both),
        updated: |_| Answered::new(202, Shape::Both),
        running: |_| "Updating",
        commit: Commit::AtEnd,
    },
    creating: None,
    absent: Absent::Default,
    patch: Patch::None,
    delete: Answered::new(202, Shape::Both),
    writers: Writers::Refuse,
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
