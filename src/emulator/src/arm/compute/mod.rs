//! The compute provider: disks, snapshots, virtual machines, availability sets, scale sets.

pub(crate) mod attachments;
pub(crate) mod availability_sets;
pub(crate) mod background_copy;
pub(crate) mod base;
pub(crate) mod catalogue;
pub(crate) mod copy_source;
pub(crate) mod data_disks;
pub(crate) mod disk_access;
pub(crate) mod disk_changes;
pub(crate) mod disk_controller;
pub(crate) mod disk_copy;
pub(crate) mod disk_plan;
pub(crate) mod disk_rules;
pub(crate) mod disk_work;
pub(crate) mod disks;
pub(crate) mod extension_views;
pub(crate) mod extensions;
pub(crate) mod images;
pub(crate) mod instance_view;
pub(crate) mod instant_access;
pub(crate) mod quotas;
pub(crate) mod scale_sets;
pub(crate) mod snapshot_copy;
pub(crate) mod snapshot_family;
pub(crate) mod snapshots;
pub(crate) mod vm_create;
pub(crate) mod vm_power;
pub(crate) mod vm_removal;
pub(crate) mod vm_work;
pub(crate) mod vms;

use self::base::OF_MACHINES;
use super::descriptor::{Extra, Handler, Provider};
use super::polling;
use super::protocol::Scope;
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
            headers: OF_MACHINES,
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
    Extra {
        method: "GET",
        scope: Scope::Subscription,
        path,
        operation,
        handler,
        limit: None,
        since: None,
        headers: &[],
    }
}
