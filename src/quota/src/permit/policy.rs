//! The throttle policies that resource providers publish, and the policy of a request.
//!
//! Sources: Microsoft's documents "Throttling limits for virtual machines and virtual machine scale sets"
//! (compute-throttling-limits) and "Understand how Azure Resource Manager throttles requests"
//! (request-limits-and-throttling). Disks and snapshots have no published policy of their own. The names
//! of the compute buckets in `x-ms-ratelimit-remaining-resource` are unverified; a name that is not in this table is
//! kept as an observed bucket.

use super::Direction;

/// What a bucket belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// One resource.
    Resource,
    /// The subscription.
    Subscription,
}

/// One bucket of a policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limit {
    pub(super) owner: Owner,
    /// Tokens of the full bucket.
    pub(super) size: f64,
    /// Tokens that come back in a minute.
    pub(super) per_minute: f64,
    /// The bucket's name in the header, without the provider's; empty where it is not known.
    pub(super) header: &'static str,
}

const fn resource(size: f64, per_minute: f64, header: &'static str) -> Limit {
    Limit { owner: Owner::Resource, size, per_minute, header }
}

const fn subscription(size: f64, per_minute: f64, header: &'static str) -> Limit {
    Limit { owner: Owner::Subscription, size, per_minute, header }
}

/// A throttle policy of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Policy {
    /// PUT, PATCH and actions of a virtual machine.
    UpdateVm,
    /// DELETE of a virtual machine.
    DeleteVm,
    /// GET of a virtual machine and of its instance view.
    LowCostGetVm,
    /// Lists of virtual machines.
    ListVm,
    /// GET of the status of a compute operation.
    GetOperation,
    /// PUT, PATCH and actions of an instance of a scale set.
    UpdateScaleSetVm,
    /// DELETE of an instance of a scale set.
    DeleteScaleSetVm,
    /// Lists of the instances of a scale set.
    HighCostGetScaleSet,
    /// Reads of the network provider.
    ReadNetwork,
    /// Writes and deletes of the network provider.
    WriteNetwork,
    /// Reads of one resource of the storage provider.
    ReadStorage,
    /// Lists of the storage provider.
    ListStorage,
    /// Writes and deletes of the storage provider.
    WriteStorage,
}

impl Policy {
    /// The buckets of the policy as published. The network and storage providers publish counts per five minutes, per
    /// second or per hour; each is a bucket of that count here, which refills in that time.
    pub(super) fn limits(self) -> &'static [Limit] {
        match self {
            Self::UpdateVm => {
                const {
                    &[
                        resource(12.0, 4.0, "UpdateVMResource"),
                        subscription(1_500.0, 500.0, "UpdateVMSubscriptionMaximum"),
                    ]
                }
            }
            Self::DeleteVm => {
                const {
                    &[
                        resource(12.0, 4.0, "DeleteVMResource"),
                        subscription(1_500.0, 500.0, "DeleteVMSubscriptionMaximum"),
                    ]
                }
            }
            Self::LowCostGetVm => {
                const {
                    &[
                        resource(36.0, 12.0, "LowCostGetResource"),
                        subscription(24_000.0, 8_000.0, "LowCostGetSubscriptionMaximum"),
                    ]
                }
            }
            Self::ListVm => const { &[subscription(900.0, 300.0, "ListVMSubscriptionMaximum")] },
            Self::GetOperation => {
                const {
                    &[
                        resource(45.0, 15.0, "GetOperationResource"),
                        subscription(15_000.0, 5_000.0, "GetOperationSubscriptionMaximum"),
                    ]
                }
            }
            Self::UpdateScaleSetVm | Self::DeleteScaleSetVm => {
                const { &[resource(12.0, 4.0, ""), subscription(1_500.0, 500.0, "")] }
            }
            Self::HighCostGetScaleSet => {
                const {
                    &[
                        resource(30.0, 10.0, "HighCostGetVMScaleSetResource"),
                        subscription(1_080.0, 360.0, "HighCostGetVMScaleSetSubscriptionMaximum"),
                    ]
                }
            }
            Self::ReadNetwork => const { &[subscription(10_000.0, 2_000.0, "")] },
            Self::WriteNetwork => const { &[subscription(1_000.0, 200.0, "")] },
            Self::ReadStorage => const { &[subscription(800.0, 160.0, "")] },
            Self::ListStorage => const { &[subscription(100.0, 20.0, "")] },
            Self::WriteStorage => const { &[subscription(10.0, 600.0, ""), subscription(1_200.0, 20.0, "")] },
        }
    }

    /// The policy of a request, by its direction, the provider and what follows the provider in the path, all in lower
    /// case. `None` where none is published.
    pub(super) fn of(direction: Direction, provider: &str, segments: &[&str]) -> Option<Self> {
        use Direction::{Deletes, Reads, Writes};
        let is_list = segments.len() % 2 == 1;
        Some(match (provider, segments, direction) {
            ("microsoft.compute", ["virtualmachines"] | ["locations", _, "virtualmachines"], Reads) => Self::ListVm,
            ("microsoft.compute", ["virtualmachines", _] | ["virtualmachines", _, "instanceview"], Reads) => {
                Self::LowCostGetVm
            }
            ("microsoft.compute", ["virtualmachines", _] | ["virtualmachines", _, _], Writes) => Self::UpdateVm,
            ("microsoft.compute", ["virtualmachines", _], Deletes) => Self::DeleteVm,
            ("microsoft.compute", ["locations", _, "operations", _], Reads) => Self::GetOperation,
            ("microsoft.compute", ["virtualmachinescalesets", _, "virtualmachines", _, ..], Writes) => {
                Self::UpdateScaleSetVm
            }
            ("microsoft.compute", ["virtualmachinescalesets", _, "virtualmachines", _], Deletes) => {
                Self::DeleteScaleSetVm
            }
            ("microsoft.compute", ["virtualmachinescalesets", _, "virtualmachines"], Reads) => {
                Self::HighCostGetScaleSet
            }
            ("microsoft.network", _, Reads) => Self::ReadNetwork,
            ("microsoft.network", _, _) => Self::WriteNetwork,
            ("microsoft.storage", _, Reads) if is_list => Self::ListStorage,
            ("microsoft.storage", _, Reads) => Self::ReadStorage,
            ("microsoft.storage", _, _) => Self::WriteStorage,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_against_the_row_of_its_direction_and_type() {
        use Direction::{Deletes, Reads, Writes};
        for (direction, path, expected) in [
            (Reads, "microsoft.compute/virtualmachines", Some(Policy::ListVm)),
            (Reads, "microsoft.compute/virtualmachines/v", Some(Policy::LowCostGetVm)),
            (Reads, "microsoft.compute/virtualmachines/v/instanceview", Some(Policy::LowCostGetVm)),
            (Writes, "microsoft.compute/virtualmachines/v", Some(Policy::UpdateVm)),
            (Writes, "microsoft.compute/virtualmachines/v/attachdetachdatadisks", Some(Policy::UpdateVm)),
            (Deletes, "microsoft.compute/virtualmachines/v", Some(Policy::DeleteVm)),
            (Reads, "microsoft.compute/locations/l/operations/1", Some(Policy::GetOperation)),
            (Reads, "microsoft.compute/locations/l/diskoperations/1", None),
            (Writes, "microsoft.compute/disks/d", None),
            (
                Writes,
                "microsoft.compute/virtualmachinescalesets/a/virtualmachines/1/attachdetachdatadisks",
                Some(Policy::UpdateScaleSetVm),
            ),
            (Reads, "microsoft.compute/virtualmachinescalesets/a/virtualmachines", Some(Policy::HighCostGetScaleSet)),
            (Reads, "microsoft.compute/virtualmachinescalesets/a/virtualmachines/1", None),
            (Reads, "microsoft.network/loadbalancers/l", Some(Policy::ReadNetwork)),
            (Deletes, "microsoft.network/loadbalancers/l", Some(Policy::WriteNetwork)),
            (Reads, "microsoft.storage/storageaccounts", Some(Policy::ListStorage)),
            (Reads, "microsoft.storage/storageaccounts/a", Some(Policy::ReadStorage)),
            (Writes, "microsoft.storage/storageaccounts/a/listkeys", Some(Policy::WriteStorage)),
        ] {
            let segments: Vec<&str> = path.split('/').collect();
            assert_eq!(Policy::of(direction, segments[0], &segments[1..]), expected, "{direction:?} {path}");
        }
    }
}
