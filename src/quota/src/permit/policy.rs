//! The throttle policies that resource providers publish, and the policy of a request.
//!
//! Sources: Microsoft's documents "Throttling limits for virtual machines and virtual machine scale sets"
//! (compute-throttling-limits) and "Understand how Azure Resource Manager throttles requests"
//! (request-limits-and-throttling). Disks and snapshots have no published policy of their own. The names
//! of the compute buckets in `x-ms-ratelimit-remaining-resource` are unverified; a name that is not in this table is
//! kept as an observed bucket.

use std::time::Duration;

use super::Direction;

/// What a limit belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// One resource.
    Resource,
    /// The subscription.
    Subscription,
    /// The subscription in one region.
    Region,
}

/// How Azure counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rule {
    /// In a token bucket.
    Bucket {
        /// Tokens of the full bucket.
        size: f64,
        /// Tokens that come back in a minute.
        per_minute: f64,
    },
    /// In windows of time, whose beginnings are not known.
    Window {
        /// The requests that one window takes, at least one.
        requests: usize,
        /// How long a window is.
        length: Duration,
    },
}

/// One limit of a policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limit {
    pub(super) owner: Owner,
    pub(super) rule: Rule,
    /// The limit's name in the header, without the provider's; empty where it is not known.
    pub(super) header: &'static str,
}

impl Limit {
    /// Whether Azure counts in windows of time.
    pub(super) fn is_window(&self) -> bool {
        matches!(self.rule, Rule::Window { .. })
    }
}

const fn resource(size: f64, per_minute: f64, header: &'static str) -> Limit {
    Limit { owner: Owner::Resource, rule: Rule::Bucket { size, per_minute }, header }
}

const fn subscription(size: f64, per_minute: f64, header: &'static str) -> Limit {
    Limit { owner: Owner::Subscription, rule: Rule::Bucket { size, per_minute }, header }
}

const fn regional(requests: usize, seconds: u64) -> Limit {
    let rule = Rule::Window { requests, length: Duration::from_secs(seconds) };
    Limit { owner: Owner::Region, rule, header: "" }
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
    /// Reads of one resource of the storage provider, and of the keys of an account.
    ReadStorage,
    /// Lists of the storage provider.
    ListStorage,
    /// Writes and deletes of the storage provider.
    WriteStorage,
}

impl Policy {
    /// The limits of the policy as published. The network provider publishes counts in five minutes: each is a bucket of that
    /// count here, which refills in that time. The storage provider publishes counts for a subscription and region.
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
            Self::ReadStorage => const { &[regional(800, 300)] },
            Self::ListStorage => const { &[regional(100, 300)] },
            Self::WriteStorage => const { &[regional(10, 1), regional(1_200, 3_600)] },
        }
    }

    /// Whether it has a limit of a region.
    pub(super) fn is_regional(self) -> bool {
        self.limits().iter().any(|limit| limit.owner == Owner::Region)
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
            // The front door counts this POST as a write (source: Azure/azure-rest-api-specs#6363), the provider as a read
            // (source: its refusals in microsoft/onefuzz#2100 and velero-io/velero#4282 name the limit of reads).
            ("microsoft.storage", ["storageaccounts", _, "listkeys"], Writes) => Self::ReadStorage,
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
            (Writes, "microsoft.storage/storageaccounts/a/listkeys", Some(Policy::ReadStorage)),
            (Writes, "microsoft.storage/storageaccounts/a/regeneratekey", Some(Policy::WriteStorage)),
            (Reads, "microsoft.storage/storageaccounts/a/fileservices/default/shares", Some(Policy::ListStorage)),
            (Reads, "microsoft.storage/storageaccounts/a/fileservices/default/shares/s", Some(Policy::ReadStorage)),
            (Deletes, "microsoft.storage/storageaccounts/a/fileservices/default/shares/s", Some(Policy::WriteStorage)),
        ] {
            let segments: Vec<&str> = path.split('/').collect();
            assert_eq!(Policy::of(direction, segments[0], &segments[1..]), expected, "{direction:?} {path}");
        }
    }
}
