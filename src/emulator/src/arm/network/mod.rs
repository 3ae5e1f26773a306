//! The network provider.
//!
//! Recorded: PUT answers 201 or 200 with the asynchronous header, except for network interfaces, whose PUT is
//! synchronous; deletes answer 202 with both headers; etags are weak GUIDs on the resource and on every child, and
//! change with each write; the `ETag` header comes on GET only. Documented: PATCH changes tags, at once.

pub(crate) mod backends;
pub(crate) mod balancing;
pub(crate) mod interfaces;
pub(crate) mod load_balancers;
pub(crate) mod private_addresses;
pub(crate) mod private_links;
pub(crate) mod public_ip_addresses;
pub(crate) mod public_ip_prefixes;
pub(crate) mod route_tables;
pub(crate) mod security_groups;
pub(crate) mod virtual_networks;

use super::descriptor::{Children, Descriptor, Extra, Family, Handler, Hooks, Own, Provider, Writers};
use super::engine::quotas;
use super::protocol::{
    Absent, Access, Answered, Commit, Etags, Latency, Limits, NamedBy, Patch, Put, Schema, Scope, Shape, Stamps,
};
use super::{polling, writes};
use crate::latency::OperationKind;
use crate::operations::Style;
use crate::throttle::{READ_NETWORK, WRITE_NETWORK};

pub(crate) static PROVIDER: Provider = Provider {
    namespace: "Microsoft.Network",
    types: &[
        &interfaces::NETWORK_INTERFACE,
        &virtual_networks::VIRTUAL_NETWORK,
        &public_ip_addresses::PUBLIC_IP_ADDRESS,
        &public_ip_prefixes::PUBLIC_IP_PREFIX,
        &load_balancers::LOAD_BALANCER,
        &security_groups::SECURITY_GROUP,
        &route_tables::ROUTE_TABLE,
        &private_links::PRIVATE_LINK_SERVICE,
        &private_links::PRIVATE_ENDPOINT,
    ],
    other_types: &[],
    routes: &[
        operation("locations/*/operations/*", polling::network),
        operation("locations/*/operationresults/*", polling::network_result),
        Extra { operation: "usages.list", ..operation("locations/*/usages", quotas::usages) },
    ],
};

const fn operation(path: &'static str, handler: Handler) -> Extra {
    let limit = Some(READ_NETWORK);
    let operation = "operations.get";
    Extra { method: "GET", scope: Scope::Subscription, path, operation, handler, limit, since: None, headers: &[] }
}

/// A GET of what the provider makes of a resource.
const fn read(path: &'static str, operation: &'static str, handler: Handler) -> Extra {
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
const SYNCHRONOUS: Put = Put {
    created: Answered::new(201, Shape::Synchronous),
    updated: |_| Answered::new(200, Shape::Synchronous),
    running: |_| "Succeeded",
    commit: Commit::AtOnce,
};

const CREATED: Answered = Answered::new(201, Shape::AsyncOperation);
const UPDATED: Answered = Answered::new(200, Shape::AsyncOperation);

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
