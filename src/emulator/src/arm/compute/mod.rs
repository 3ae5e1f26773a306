//! The compute provider: disks, snapshots, virtual machines, availability sets, scale sets.

pub(crate) mod attachments;
pub(crate) mod availability_sets;
pub(crate) mod catalogue;
pub(crate) mod copy_source;
pub(crate) mod data_disks;
pub(crate) mod disk_access;
pub(crate) mod disk_plan;
pub(crate) mod disk_rules;
pub(crate) mod disk_work;
pub(crate) mod disks;
pub(crate) mod extensions;
pub(crate) mod images;
pub(crate) mod instance_view;
pub(crate) mod quotas;
pub(crate) mod scale_sets;
pub(crate) mod snapshot_copy;
pub(crate) mod snapshots;
pub(crate) mod vm_create;
pub(crate) mod vm_power;
pub(crate) mod vm_work;
pub(crate) mod vms;

use super::descriptor::{
    Absent, Answered, Commit, Descriptor, Etags, Extra, Family, Handler, Hooks, Latency, Limits, Own, Patch, Provider,
    Put, Schema, Scope, Shape, Stamps, Writers,
};
use super::polling;
use crate::latency::OperationKind;
use crate::operations::Style;
use crate::throttle::GET_OPERATION;

pub(crate) static PROVIDER: Provider = Provider {
    namespace: "Microsoft.Compute",
    types: &[
        &availability_sets::AVAILABILITY_SET,
        &disks::DISK,
        &snapshots::SNAPSHOT,
        &vms::VIRTUAL_MACHINE,
        &extensions::EXTENSION,
        &scale_sets::SCALE_SET,
        &scale_sets::instances::INSTANCE,
        &scale_sets::interfaces::INSTANCE_INTERFACE,
        &scale_sets::addresses::INSTANCE_ADDRESS,
        &extensions::INSTANCE_EXTENSION,
    ],
    other_types: &[
        ("locations/usages", &["2025-04-01", "2024-07-01"]),
        ("locations/vmSizes", &["2025-04-01", "2024-07-01"]),
        ("locations/publishers", &["2025-04-01", "2024-07-01"]),
    ],
    routes: &[
        of_subscription("locations/*/diskoperations/*", "operations.get", polling::compute),
        Extra {
            limit: Some(GET_OPERATION),
            ..of_subscription("locations/*/operations/*", "operations.get", polling::compute)
        },
        of_subscription("locations/*/vmsizes", "virtualMachineSizes.list", catalogue::vm_sizes),
        of_subscription("locations/*/usages", "usage.list", quotas::usages),
        of_subscription("skus", "resourceSkus.list", catalogue::skus),
        of_subscription("locations/*/publishers", "virtualMachineImages.listPublishers", images::publishers),
        of_subscription(
            "locations/*/publishers/*/artifacttypes/vmimage/offers",
            "virtualMachineImages.listOffers",
            images::offers,
        ),
        of_subscription(
            "locations/*/publishers/*/artifacttypes/vmimage/offers/*/skus",
            "virtualMachineImages.listSkus",
            images::skus,
        ),
        of_subscription(
            "locations/*/publishers/*/artifacttypes/vmimage/offers/*/skus/*/versions",
            "virtualMachineImages.list",
            images::versions,
        ),
        of_subscription(
            "locations/*/publishers/*/artifacttypes/vmimage/offers/*/skus/*/versions/*",
            "virtualMachineImages.get",
            images::version,
        ),
    ],
};

const fn of_subscription(path: &'static str, operation: &'static str, handler: Handler) -> Extra {
    Extra { method: "GET", scope: Scope::Subscription, path, operation, handler, limit: None }
}

/// A POST below a resource.
const fn post(path: &'static str, operation: &'static str, handler: Handler) -> Extra {
    Extra { method: "POST", scope: Scope::Group, path, operation, handler, limit: None }
}

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
    retry_after: |_| vm_work::RETRY_AFTER,
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
