//! Every combination of what a raw publish may see.

use lazuli_model::Lun;

use super::{super::raw::Seen, *};
use crate::device_identity::{Contradiction, Identity, Metadata};

#[test]
fn a_raw_device_is_handed_out_where_the_metadata_or_the_record_names_this_very_device() {
    let (one, two) = (device(1), device(2));
    let against = || Some(Contradiction::OtherLun(Lun::try_from(5).unwrap()));
    let identities = [
        (Metadata::Confirms(None), None),
        (Metadata::Contradicts, against()),
        (Metadata::Silent, None),
        (Metadata::Silent, against()),
        (Metadata::Unlisted, None),
        (Metadata::Unlisted, against()),
        (Metadata::Unused, None),
    ];
    let reused = Record { sequence: two.sequence.clone(), ..record("a", &one, None) };
    // Of the first version, or of a boot that the kernel has forgotten: the number alone is not enough.
    let by_number = Record { sequence: None, ..record("a", &one, None) };
    let records = [None, Some(record("a", &one, None)), Some(reused), Some(by_number), Some(record("a", &two, None))];
    let tables = [
        vec![],
        vec![mounted(&one, "/pods/1/own", "ext4", false), mounted(&two, staging(), "ext4", false)],
        vec![mounted(&one, staging(), "btrfs", false)],
        vec![mounted(&one, "/recorded", "ext4", true)],
        vec![handed_out(&one)],
    ];
    let mut handed = 0;
    for (metadata, contradiction) in identities {
        for own in &records {
            for mounts in &tables {
                for node in [None, Some(one.number), Some(two.number)] {
                    let own_place = own.as_ref().map(|_| "/recorded".into());
                    let seen = Seen {
                        device: one.clone(),
                        identity: Identity { metadata, contradiction: contradiction.clone() },
                        node,
                        mounts: mounts.clone(),
                        records: Records { own: own.clone(), own_place, ..Records::default() },
                    };
                    let target = |at: usize| mounts.get(at).map(|mounted| mounted.mount.target.clone());
                    let is_staged = *mounts == tables[2] || own.is_some() && *mounts == tables[3];
                    let is_recorded = *own == Some(record("a", &one, None));
                    // The numbers of disks after the slash are of one boot.
                    let is_swapped = own.as_ref().is_some_and(|own| own.sequence == two.sequence);
                    let is_named = matches!(metadata, Metadata::Confirms(_)) && !is_swapped || is_recorded;
                    let is_elsewhere = matches!(metadata, Metadata::Contradicts | Metadata::Silent);
                    let decided = seen.decide(&staging());
                    if let (true, Some(against)) = (is_elsewhere, contradiction.clone()) {
                        assert_eq!(decided, Err(Refusal::Elsewhere(against)), "{seen:?}");
                    } else if is_staged {
                        let place = target(0).unwrap();
                        assert_eq!(decided, Err(Refusal::StagedAsFilesystem { device: one.path.clone(), place }));
                    } else if is_named && node == Some(one.number) {
                        assert_eq!(decided, Ok(()), "{seen:?}");
                        handed += 1;
                    } else {
                        assert_eq!(decided, Err(Refusal::NotStaged), "{seen:?}");
                    }
                }
            }
        }
    }
    assert!(handed > 20, "{handed}");
}
