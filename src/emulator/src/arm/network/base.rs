//! What the types of the network provider begin with.

use crate::arm::descriptor::{Children, Descriptor, Extra, Family, Handler, Hooks, Own, Writers};
use crate::arm::protocol::{
    Absent, Access, Answered, Commit, Etags, Latency, Limits, NamedBy, Patch, Put, Schema, Scope, Shape, Stamps,
};
use crate::arm::writes;
use crate::latency::OperationKind;
use crate::operations::Style;
use crate::throttle::{READ_NETWORK, WRITE_NETWORK};

/// A GET of what the provider makes of a resource.
pub(crate) const fn read(path: &'static str, operation: &'static str, handler: Handler) -> Extra {
    let limit = Some(READ_NETWORK);
    Extra { method: "GET", scope: Scope::Group, path, operation, handler, limit, since: None, headers: &[] }
}

pub(crate) static FAMILY: Family = Family {
    style: Style::Network,
    namespace: "Microsoft.Network",
    collection: "operations",
    notification: true,
    // Unverified for these types.
    retry_after: |_| 10,
    etags: Etags::Weak,
    counted: false,
};

/// A PUT that is done at once.
pub(crate) const SYNCHRONOUS: Put = Put {
    created: Answered::new(201, Shape::Synchronous),
    updated: |_| Answered::new(200, Shape::Synchronous),
    running: |_| "Succeeded",
    commit: Commit::AtOnce,
};

pub(crate) const CREATED: Answered = Answered::new(201, Shape::AsyncOperation);
pub(crate) const UPDATED: Answered = Answered::new(200, Shape::AsyncOperation);

/// What types of the network provider begin with.
pub(crate) const RESOURCE: Descriptor = Descriptor {
    kind: "",
    path: "",
    operations: None,
    parent: None,
    api_versions: &["2025-05-01", "2024-03-01"],
    family: &FAMILY,
    lists: &[Scope::Either],
    limits: Limits {
        get: Some(READ_NETWORK),
        list: Some(READ_NETWORK),
        write: Some(WRITE_NETWORK),
        delete: Some(WRITE_NETWORK),
        ..Limits::NONE
    },
    own_buckets: false,
    headers: &[],
    latency: Latency { write: OperationKind::Network, delete: OperationKind::Network },
    schema: Schema { name: "", root: "" },
    layout: &["name", "id", "etag", "type", "location", "tags", "properties"],
    stamps: Stamps::StateAndGuid,
    put: Put { created: CREATED, updated: |_| UPDATED, running: |_| "Updating", commit: Commit::AtOnce },
    creating: None,
    absent: Absent::Default,
    patch: Patch::Tags { operation: "updateTags", schema: Schema { name: "TagsObject", root: "parameters" } },
    delete: Answered::new(202, Shape::Both),
    writers: Writers::Together,
    children: &[],
    references: &[],
    in_use: &[],
    shows: &[],
    expands: &[],
    quotas: &[],
    hooks: Hooks { name: writes::check_name, ..Hooks::NONE },
    own: Own::NONE,
    routes: &[],
};

/// What their children begin with.
pub(crate) const CHILDREN: Children = Children {
    kind: "",
    member: "",
    access: Access::Write,
    schema: Schema { name: "", root: "" },
    layout: &["name", "id", "etag", "properties", "type"],
    least: 0,
    references: &[],
    named_by: NamedBy::Child,
    in_use: &[],
    shows: &[],
    settled: false,
    complete: |_, part| Ok(part.asked["properties"].clone()),
};
