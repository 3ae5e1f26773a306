//! Each of Azure's limits, and what a snapshot forbids to its disk.

use lazuli_model::event::Reason;

use super::*;

const NOW: AzureTime = AzureTime::from_unix_seconds(1_000_000);

fn ago(seconds: i64) -> AzureTime {
    AzureTime::from_unix_seconds(NOW.unix_seconds() - seconds)
}

fn of_disk(n: u16, seconds: i64) -> Snapshot {
    let id = ArmId::snapshot("sub", "disks", &format!("snapshot-{n}")).unwrap();
    Snapshot {
        created: ago(seconds),
        source_unique_id: Some("U-1".into()),
        family: Some("f".into()),
        ..Snapshot::complete(id, &disk().id)
    }
}

fn incomplete(n: u16) -> Snapshot {
    pending(of_disk(n, 3_600))
}

fn limit(spec: &SnapshotSpec, disk: &Disk, there: &[Snapshot]) -> Option<SnapshotLimit> {
    AZURE_LIMITS.of_disk(spec, disk, there, NOW)
}

#[test]
fn seven_incremental_snapshots_of_a_disk_are_made_in_five_minutes() {
    let six: Vec<Snapshot> = (0..6).map(|n| of_disk(n, 10 + i64::from(n))).collect();
    let with = |more: Snapshot| [six.clone(), vec![more]].concat();
    assert_eq!(limit(&spec(&[]), &disk(), &six), None);
    let reached = limit(&spec(&[]), &disk(), &with(of_disk(6, 299))).unwrap();
    assert_eq!(reached, SnapshotLimit::TooFast { disk: disk().id, made: 7, wait_seconds: 1 });
    assert_eq!((reached.code(), reached.reason()), (Code::Aborted, Reason::OperationsLimited));
    assert!(reached.to_string().contains("possible in 1 s"), "{reached}");
    for free in [
        of_disk(6, 300),
        Snapshot { incremental: false, ..of_disk(6, 1) },
        Snapshot { source_unique_id: Some("u-0".into()), ..of_disk(6, 1) },
        Snapshot { method: Some(CopyMethod::CopyStart), ..of_disk(6, 1) },
    ] {
        assert_eq!(limit(&spec(&[]), &disk(), &with(free)), None);
    }
    assert_eq!(limit(&spec(&[("incremental", "false")]), &disk(), &with(of_disk(6, 1))), None);
    // With eight in the window, two must leave it.
    let eight: Vec<Snapshot> = (0..8).map(|n| of_disk(n, i64::from(n) * 10)).collect();
    let reached = limit(&spec(&[]), &disk(), &eight).unwrap();
    assert_eq!(reached, SnapshotLimit::TooFast { disk: disk().id, made: 8, wait_seconds: 240 });
}

#[test]
fn a_disk_keeps_five_hundred_and_then_a_person_must_delete_some() {
    let all: Vec<Snapshot> = (0..500).map(|n| of_disk(n, 1)).collect();
    let reached = limit(&spec(&[]), &disk(), &all).unwrap();
    assert_eq!(reached, SnapshotLimit::TooMany { disk: disk().id, there: 500 });
    assert_eq!((reached.code(), reached.reason()), (Code::ResourceExhausted, Reason::SnapshotLimitReached));
    assert!(matches!(limit(&spec(&[]), &disk(), &all[1..]), Some(SnapshotLimit::TooFast { .. })));
}

#[test]
fn three_snapshots_of_a_disk_with_performance_of_its_own_are_incomplete_at_a_time() {
    let three = [incomplete(2), incomplete(0), incomplete(1)];
    let ids = [0, 1, 2].map(|n| incomplete(n).id).to_vec();
    let reached = limit(&spec(&[]), &v2(), &three);
    assert_eq!(reached, Some(SnapshotLimit::Incomplete { disk: disk().id, snapshots: ids }));
    assert_eq!(reached.unwrap().code(), Code::Aborted);
    assert_eq!(limit(&spec(&[]), &v2(), &three[1..]), None);
    assert_eq!(limit(&spec(&[]), &disk(), &three), None, "others are complete at once");
    let failed = Snapshot { copy_error: Some("x".into()), ..incomplete(2) };
    assert_eq!(limit(&spec(&[]), &v2(), &[failed, incomplete(0), incomplete(1)]), None);
}

fn spec_of(pairs: Pairs<'_>) -> SnapshotSpec {
    match planned(pairs, &v2()).unwrap().route {
        Route::InRegion(spec) => *spec,
        Route::AcrossRegions { copy, .. } => *copy,
    }
}

#[test]
fn a_disk_that_is_being_filled_gives_no_instant_access() {
    let filling = Disk { completion: Some(Completion::from_percent(99.9)), ..v2() };
    let instant = [("instantAccessDurationMinutes", "60")];
    assert_eq!(limit(&spec_of(&instant), &filling, &[]), Some(SnapshotLimit::Hydrating(disk().id)));
    assert_eq!(limit(&spec(&[]), &filling, &[]), None);
    assert_eq!(limit(&spec_of(&instant), &v2(), &[]), None);
}

fn copies() -> (SnapshotSpec, Snapshot) {
    let plan = plan(&[("location", "westus")]);
    let Route::AcrossRegions { local, of_disk, copy } = plan.route else { panic!() };
    (*copy, Snapshot { family: Some("f".into()), created: ago(100), ..made(&local, &of_disk) })
}

fn copy_of(n: u16, region: &str, family: &str) -> Snapshot {
    let id = ArmId::snapshot("sub", "disks", &format!("copy-{n}")).unwrap();
    let source = ArmId::snapshot("sub", "disks", &format!("local_{n}")).unwrap();
    pending(Snapshot {
        location: region.into(),
        method: Some(CopyMethod::CopyStart),
        family: Some(family.into()),
        created: ago(50),
        ..Snapshot::complete(id, &source)
    })
}

#[test]
fn azure_copies_one_snapshot_of_a_disk_at_a_time_and_in_their_order() {
    let (spec, local) = copies();
    let of = |there: &[Snapshot]| AZURE_LIMITS.of_copy(&spec, &local, there, NOW);
    assert_eq!(of(std::slice::from_ref(&local)), None);
    let running = copy_of(1, "northeurope", "F");
    assert_eq!(of(std::slice::from_ref(&running)), Some(SnapshotLimit::CopyUnderWay(running.id.clone())));
    let complete = Snapshot { access: Some(SnapshotAccessState::Available), completion: None, ..running.clone() };
    assert_eq!(of(&[complete, copy_of(2, "westus", "g")]), None);
    let failed = Snapshot { copy_error: Some("CopySourceNotFound".into()), ..running };
    assert_eq!(of(&[failed]), None);

    let older = |seconds: i64| Snapshot {
        id: ArmId::snapshot("sub", "disks", "local_snapshot-0").unwrap(),
        created: ago(seconds),
        ..local.clone()
    };
    assert_eq!(of(&[older(101)]), Some(SnapshotLimit::OlderFirst(older(101).id)));
    assert_eq!(of(&[older(99)]), None, "a newer one waits for this one");
    assert_eq!(of(&[older(24 * 3_600)]), None, "no request asks for it any more");
    assert_eq!(of(&[Snapshot { tags: BTreeMap::new(), ..older(101) }]), None, "it is no driver's");
    assert_eq!(of(&[Snapshot { family: Some("g".into()), ..older(101) }]), None);
    let of_older = Snapshot {
        source: Some(older(101).id.to_string().to_uppercase()),
        access: Some(SnapshotAccessState::Available),
        completion: None,
        ..copy_of(1, "westus", "f")
    };
    assert_eq!(of(&[older(101), of_older]), None, "its copy is there");
}

#[test]
fn a_hundred_copies_into_a_region_run_at_a_time() {
    let (spec, local) = copies();
    let of = |there: &[Snapshot]| AZURE_LIMITS.of_copy(&spec, &local, there, NOW);
    let mut all: Vec<Snapshot> = (0..100).map(|n| copy_of(n, "West US", &format!("other-{n}"))).collect();
    assert_eq!(of(&all), Some(SnapshotLimit::CopiesToRegion { region: "westus".into(), running: 100 }));
    all[7].location = "northeurope".into();
    assert_eq!(of(&all), None);
}

#[test]
fn a_disk_neither_grows_nor_goes_before_its_snapshots_are_complete() {
    let there = [incomplete(2), of_disk(0, 10), incomplete(1)];
    let blocked = may_grow(&v2(), &there).unwrap_err();
    assert_eq!((blocked.code(), blocked.snapshots.clone()), (Code::Aborted, [1, 2].map(|n| incomplete(n).id).to_vec()));
    assert!(blocked.to_string().contains("snapshot-1, ") && blocked.to_string().contains("snapshot-2"), "{blocked}");
    let depend = may_delete(&v2(), &there).unwrap_err();
    assert_eq!(depend.code(), Code::FailedPrecondition);
    assert!(depend.to_string().contains("snapshot-2"), "{depend}");
    for (disk, there) in
        [(disk(), &there[..]), (v2(), &there[1..2]), (Disk { unique_id: Some("u-2".into()), ..v2() }, &there[..])]
    {
        assert_eq!((may_grow(&disk, there), may_delete(&disk, there)), (Ok(()), Ok(())));
    }
    // Without unique ids the names tell; a type that is newer than this program may have incomplete snapshots.
    let unknown = Disk { unique_id: None, sku: None, ..v2() };
    assert!(may_grow(&unknown, &there).is_err() && may_delete(&unknown, &there).is_err());
}

proptest! {
    /// In which order Azure lists the snapshots changes nothing.
    #[test]
    fn the_order_of_a_list_changes_no_limit(
        kinds in proptest::collection::vec((0u8..4, 0u8..3, 0i64..400), 0..14), by in 0usize..14,
    ) {
        let (copy, local) = copies();
        let there: Vec<Snapshot> = kinds.iter().enumerate().map(|(n, (kind, family, seconds))| {
            let n = u16::try_from(n).unwrap();
            match kind {
                0 => of_disk(n, *seconds),
                1 => incomplete(n),
                2 => copy_of(n, "westus", ["f", "g", "h"][usize::from(*family)]),
                _ => Snapshot {
                    id: ArmId::snapshot("sub", "disks", &format!("local_{n}")).unwrap(),
                    created: ago(*seconds),
                    ..local.clone()
                },
            }
        }).collect();
        let mut turned = there.clone();
        turned.rotate_left(by.min(there.len()));
        for disk in [disk(), v2()] {
            prop_assert_eq!(limit(&spec(&[]), &disk, &there), limit(&spec(&[]), &disk, &turned));
            prop_assert_eq!(may_grow(&disk, &there), may_grow(&disk, &turned));
        }
        prop_assert_eq!(
            AZURE_LIMITS.of_copy(&copy, &local, &there, NOW),
            AZURE_LIMITS.of_copy(&copy, &local, &turned, NOW)
        );
    }

    /// After the wait that the error names the limit is gone.
    #[test]
    fn the_wait_of_a_fast_disk_is_exact(ages in proptest::collection::vec(0i64..300, 7..12)) {
        let there: Vec<Snapshot> = (0u16..).zip(&ages).map(|(n, age)| of_disk(n, *age)).collect();
        let reached = limit(&spec(&[]), &disk(), &there);
        let Some(SnapshotLimit::TooFast { wait_seconds, .. }) = reached else { panic!("{reached:?}") };
        let after = |seconds: u64| {
            let later = AzureTime::from_unix_seconds(NOW.unix_seconds() + i64::try_from(seconds).unwrap());
            AZURE_LIMITS.of_disk(&spec(&[]), &disk(), &there, later)
        };
        prop_assert_eq!(after(wait_seconds), None);
        prop_assert!(after(wait_seconds - 1).is_some());
    }
}
