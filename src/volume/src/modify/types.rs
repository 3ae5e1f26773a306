//! Which type of disk Azure changes into which other one.
//!
//! Source: Microsoft's pages "disks-convert-types" and "disks-migrate-lrs-zrs". What stands here never works, however often it
//! is tried. That a disk is attached, or was changed twice today, is Azure's to say: it goes by.

use std::fmt::Write as _;

use lazuli_model::{
    Disk,
    SkuName::{self, PremiumLrs, PremiumV2Lrs, PremiumZrs, StandardLrs, StandardSsdLrs, StandardSsdZrs, UltraSsdLrs},
    parameter::{Parameter, ParameterError},
};

use crate::sku::{is_zone_redundant, max_shares};

/// Each type with those that it can become: hard disks and SSDs of any redundancy become each other and PremiumV2_LRS, and
/// PremiumV2_LRS and UltraSSD_LRS stay what they are.
pub(super) const CHANGES: [(SkuName, &[SkuName]); 7] = [
    (StandardLrs, &[StandardSsdLrs, StandardSsdZrs, PremiumLrs, PremiumZrs, PremiumV2Lrs]),
    (StandardSsdLrs, &[StandardLrs, StandardSsdZrs, PremiumLrs, PremiumZrs, PremiumV2Lrs]),
    (StandardSsdZrs, &[StandardLrs, StandardSsdLrs, PremiumLrs, PremiumZrs, PremiumV2Lrs]),
    (PremiumLrs, &[StandardLrs, StandardSsdLrs, StandardSsdZrs, PremiumZrs, PremiumV2Lrs]),
    (PremiumZrs, &[StandardLrs, StandardSsdLrs, StandardSsdZrs, PremiumLrs, PremiumV2Lrs]),
    (PremiumV2Lrs, &[]),
    (UltraSsdLrs, &[]),
];

/// The types that a disk can become.
fn allowed(disk: &Disk, from: SkuName) -> Vec<SkuName> {
    let row = CHANGES.iter().find(|(sku, _)| *sku == from).map_or(&[][..], |(_, to)| to);
    let may_become = |to: SkuName| {
        // Only a disk that is in no zone is spread over all of them.
        let stays_in_zone = disk.zones.is_empty() || !is_zone_redundant(to);
        stays_in_zone && disk.max_shares <= max_shares(to, disk.size)
    };
    row.iter().copied().filter(|to| may_become(*to)).collect()
}

/// Refuses a type that the disk can never become. One that is newer than this program is left to Azure.
pub(super) fn check(parameter: Parameter<'_>, disk: &Disk, to: SkuName) -> Result<(), ParameterError> {
    let Some(from) = disk.sku.filter(|from| *from != to) else { return Ok(()) };
    let allowed = allowed(disk, from);
    if allowed.contains(&to) {
        return Ok(());
    }
    let mut why = format!("the disk is {from}");
    if !disk.zones.is_empty() && is_zone_redundant(to) {
        // Writing to a String cannot fail.
        let _ = write!(why, " in zone {}", disk.zones.join(", "));
    }
    if disk.max_shares > 1 {
        let _ = write!(why, " with maxShares of {}", disk.max_shares);
    }
    let allowed: Vec<&str> = allowed.into_iter().map(SkuName::as_str).collect();
    Err(parameter.refuse(match allowed.as_slice() {
        [] => format!("{why}, which Azure changes to no other type; allowed is {from}, or a new disk from a snapshot"),
        allowed => format!(
            "{why}, which Azure does not change to {to}; allowed are {}, or a new disk from a snapshot",
            allowed.join(", ")
        ),
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lazuli_model::Gib;

    use super::*;

    fn disk(sku: SkuName) -> Disk {
        Disk { sku: Some(sku), size: Gib::new(64), ..Disk::unattached("pvc-1") }
    }

    fn of(disk: &Disk, to: SkuName) -> Result<(), String> {
        check(Parameter { key: "skuName", value: to.as_str() }, disk, to).map_err(|error| error.to_string())
    }

    #[test]
    fn every_type_has_a_row_and_none_becomes_itself_or_ultra() {
        let rows: BTreeSet<SkuName> = CHANGES.iter().map(|(sku, _)| *sku).collect();
        assert_eq!(rows, SkuName::ALL.iter().copied().collect());
        for (from, to) in CHANGES {
            assert!(!to.contains(&from) && !to.contains(&UltraSsdLrs), "{from}");
        }
    }

    #[test]
    fn what_can_never_be_names_both_types_and_what_is_allowed() {
        for (from, to) in [(UltraSsdLrs, PremiumLrs), (UltraSsdLrs, PremiumV2Lrs), (PremiumV2Lrs, PremiumLrs)] {
            let refused = of(&disk(from), to).unwrap_err();
            assert!(refused.contains(from.as_str()) && refused.contains(to.as_str()), "{refused}");
            assert!(refused.contains("from a snapshot"), "{refused}");
        }
        let refused = of(&disk(PremiumLrs), UltraSsdLrs).unwrap_err();
        assert!(refused.contains("allowed are Standard_LRS, StandardSSD_LRS"), "{refused}");
        assert_eq!(of(&disk(PremiumLrs), PremiumLrs), Ok(()));
        assert_eq!(of(&disk(StandardLrs), PremiumV2Lrs), Ok(()));
        assert_eq!(of(&Disk { sku: None, ..disk(PremiumLrs) }, UltraSsdLrs), Ok(()), "Azure judges a newer type");
    }

    #[test]
    fn a_disk_in_a_zone_is_not_spread_over_all_and_a_shared_one_does_not_become_a_hard_disk() {
        let zonal = Disk { zones: vec!["2".into()], ..disk(PremiumLrs) };
        let refused = of(&zonal, PremiumZrs).unwrap_err();
        assert!(
            refused.contains("in zone 2")
                && !refused.contains("allowed are Standard_LRS, StandardSSD_LRS, StandardSSD_ZRS"),
            "{refused}"
        );
        assert_eq!(of(&zonal, StandardSsdLrs), Ok(()));
        assert_eq!(of(&disk(PremiumLrs), PremiumZrs), Ok(()));
        let shared = Disk { max_shares: 2, ..disk(PremiumLrs) };
        assert!(of(&shared, StandardLrs).unwrap_err().contains("maxShares of 2"));
        assert_eq!(of(&shared, StandardSsdLrs), Ok(()));
    }
}
