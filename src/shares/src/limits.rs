//! Limits of Azure Files.
//!
//! Source, where a constant names no other: Microsoft's "Scalability and performance targets for Azure Files".

use std::ops::RangeInclusive;

use lazuli_model::{Billing, Gib, StorageSku};

/// How long the name of a share is (source: "Naming and referencing shares").
pub const SHARE_NAME_LENGTH: RangeInclusive<usize> = 3..=63;

/// How long the name of a storage account is (source: the storage API).
pub const ACCOUNT_NAME_LENGTH: RangeInclusive<usize> = 3..=24;

/// How long the names are that the Go driver and this one give to accounts: one character below the limit.
pub const MADE_ACCOUNT_NAME_LENGTH: usize = 23;

/// How many accounts a subscription may have in a region, unless support has raised it.
pub const ACCOUNTS_PER_REGION: usize = 250;

/// How many snapshots a share may have.
pub const SNAPSHOTS_PER_SHARE: usize = 200;

/// The size of a share whose claim asks for none (source: the Go driver).
pub const DEFAULT_SIZE: Gib = Gib::new(100);

/// The smallest `accountQuota` (source: the Go driver).
pub const LEAST_ACCOUNT_QUOTA: Gib = Gib::new(100);

/// How many shares an account holds, soft-deleted ones included; `None` where there is no limit.
pub const fn shares_per_account(billing: Billing) -> Option<u32> {
    match billing {
        Billing::PayAsYouGo => None,
        Billing::ProvisionedV1 => Some(1_024),
        Billing::ProvisionedV2Hdd | Billing::ProvisionedV2Ssd => Some(50),
    }
}

/// The sum of the quotas that an account holds, soft-deleted shares included; `None` where quotas are no promise: a
/// pay-as-you-go account is limited by what its shares hold.
pub const fn quota_per_account(billing: Billing) -> Option<Gib> {
    match billing {
        Billing::PayAsYouGo => None,
        Billing::ProvisionedV1 => Some(Gib::new(102_400)),
        Billing::ProvisionedV2Ssd => Some(Gib::new(262_144)),
        Billing::ProvisionedV2Hdd => Some(Gib::new(4_194_304)),
    }
}

/// The sizes that a share can have.
pub const fn share_size(billing: Billing) -> RangeInclusive<Gib> {
    match billing {
        Billing::PayAsYouGo => Gib::new(1)..=Gib::new(102_400),
        Billing::ProvisionedV1 => Gib::new(100)..=Gib::new(102_400),
        Billing::ProvisionedV2Hdd | Billing::ProvisionedV2Ssd => Gib::new(32)..=Gib::new(262_144),
    }
}

/// What can be provisioned for a share of a v2 SKU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Performance {
    /// Operations per second.
    pub iops: RangeInclusive<u32>,
    /// MiB per second.
    pub bandwidth: RangeInclusive<u32>,
}

/// What can be provisioned for a share; `None` where its size alone decides.
pub const fn performance(billing: Billing) -> Option<Performance> {
    match billing {
        Billing::PayAsYouGo | Billing::ProvisionedV1 => None,
        Billing::ProvisionedV2Hdd => Some(Performance { iops: 500..=50_000, bandwidth: 60..=5_120 }),
        Billing::ProvisionedV2Ssd => Some(Performance { iops: 3_000..=102_400, bandwidth: 100..=10_340 }),
    }
}

/// The operations and the MiB per second of a share of which nothing else is said (source: the Go driver, whose
/// formulas are those that Azure recommends). `None` where its size alone decides.
pub fn recommended(billing: Billing, size: Gib) -> Option<(u32, u32)> {
    let gib = size.get();
    match billing {
        Billing::PayAsYouGo | Billing::ProvisionedV1 => None,
        Billing::ProvisionedV2Hdd => Some(((1_000 + gib.div_ceil(5)).min(50_000), (60 + gib.div_ceil(50)).min(5_120))),
        Billing::ProvisionedV2Ssd => {
            Some((gib.saturating_add(3_000).min(102_400), (100 + gib.div_ceil(10)).min(10_340)))
        }
    }
}

/// How shares are billed where a class names no SKU: as the default SKU's.
pub const DEFAULT_SKU: StorageSku = StorageSku::StandardLrs;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Billing; 4] =
        [Billing::PayAsYouGo, Billing::ProvisionedV1, Billing::ProvisionedV2Hdd, Billing::ProvisionedV2Ssd];

    #[test]
    fn what_is_recommended_can_be_provisioned_for_every_size() {
        for billing in ALL {
            let Some(range) = performance(billing) else {
                assert_eq!(recommended(billing, Gib::new(100)), None);
                continue;
            };
            for gib in [32, 33, 100, 1_024, 102_400, 262_144, u32::MAX] {
                let (iops, bandwidth) = recommended(billing, Gib::new(gib)).unwrap();
                assert!(range.iops.contains(&iops) && range.bandwidth.contains(&bandwidth), "{billing:?} {gib}");
            }
        }
        assert_eq!(recommended(Billing::ProvisionedV2Hdd, Gib::new(100)), Some((1_020, 62)));
        assert_eq!(recommended(Billing::ProvisionedV2Hdd, Gib::new(262_144)), Some((50_000, 5_120)));
        assert_eq!(recommended(Billing::ProvisionedV2Ssd, Gib::new(100)), Some((3_100, 110)));
        assert_eq!(recommended(Billing::ProvisionedV2Ssd, Gib::new(262_144)), Some((102_400, 10_340)));
    }

    #[test]
    fn an_account_holds_the_largest_share_of_its_kind() {
        for billing in ALL {
            let largest = *share_size(billing).end();
            assert!(quota_per_account(billing).is_none_or(|quota| quota >= largest), "{billing:?}");
        }
    }
}
