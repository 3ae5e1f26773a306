//! Azure's limits of copies.

use lazuli_model::event::Reason;

use super::*;

fn filling(n: usize, source: &Snapshot, unique_id: Option<&str>) -> Disk {
    Disk {
        id: ArmId::disk("sub", "rg", &format!("copy-{n}")).unwrap(),
        source: Some(source.id.to_string().to_uppercase()),
        source_unique_id: unique_id.map(str::to_owned),
        completion: Some(Completion::from_percent(1.0)),
        ..Disk::unattached("copy")
    }
}

fn many(count: usize, source: &Snapshot, unique_id: Option<&str>) -> Vec<Disk> {
    (0..count).map(|n| filling(n, source, unique_id)).collect()
}

fn spec(sku: &str) -> DiskSpec {
    restored(&request(10, &[("skuName", sku)]), &snapshot(10 * GIB)).create.spec
}

#[test]
fn five_disks_are_filled_from_a_snapshot_at_a_time() {
    let source = snapshot(10 * GIB);
    let of = |sku, disks: &[Disk]| AZURE_COPY_LIMITS.of(&spec(sku), &source, disks, &[]);
    let five = many(5, &source, Some("S-1"));
    let reached = of("PremiumV2_LRS", &five).unwrap();
    assert_eq!(reached, CopyLimit::FromSnapshot { snapshot: source.id.clone(), filling: 5 });
    assert_eq!((reached.code(), reached.reason()), (Code::Unavailable, Reason::OperationsLimited));
    assert_eq!(of("PremiumV2_LRS", &five[1..]), None);
    assert_eq!(of("Premium_LRS", &five), None, "others are not limited");
    assert_eq!(of("PremiumV2_LRS", &many(9, &source, Some("s-0"))), None, "an earlier snapshot of the name");
    assert!(of("PremiumV2_LRS", &many(5, &source, None)).is_some(), "without unique ids the names tell");
    let mut filled = five.clone();
    filled[0].completion = Some(Completion::COMPLETE);
    assert_eq!(of("PremiumV2_LRS", &filled), None);
    filled[0].provisioning_state = ProvisioningState::InProgress;
    assert!(of("PremiumV2_LRS", &filled).is_some());
}

#[test]
fn fifteen_disks_are_filled_by_the_instant_access_of_one_disk() {
    let instant = |name: &str, unique: &str| Snapshot {
        id: ArmId::snapshot("sub", "backup", name).unwrap(),
        unique_id: Some(unique.into()),
        family: Some("f".into()),
        access: Some(SnapshotAccessState::InstantAccess),
        ..snapshot(10 * GIB)
    };
    let (one, other) = (instant("a", "a"), instant("b", "b"));
    let complete = Snapshot { access: Some(SnapshotAccessState::Available), ..instant("c", "c") };
    let disks = [many(7, &one, Some("a")), many(8, &other, Some("b"))].concat();
    let of =
        |disks: &[Disk], snapshots: &[Snapshot]| AZURE_COPY_LIMITS.of(&spec("UltraSSD_LRS"), &one, disks, snapshots);
    let all = [one.clone(), other.clone(), complete.clone()];
    assert!(matches!(of(&disks, &all), Some(CopyLimit::FromSnapshot { filling: 15, .. })));
    assert_eq!(of(&disks[1..], &all), None);
    let from_complete = [many(7, &one, Some("a")), many(8, &complete, Some("c"))].concat();
    assert_eq!(of(&from_complete, &all), None);
    let stranger = Snapshot { family: Some("g".into()), ..other };
    assert_eq!(of(&disks, &[one.clone(), stranger]), None);
}

#[test]
fn fifty_disks_of_a_subscription_are_filled_at_a_time() {
    let (source, other) = (snapshot(10 * GIB), Snapshot { id: ArmId::snapshot("s", "g", "x").unwrap(), ..snapshot(1) });
    let fifty = many(50, &other, Some("x"));
    let of = |disks: &[Disk]| AZURE_COPY_LIMITS.of(&spec("PremiumV2_LRS"), &source, disks, &[]);
    assert_eq!(of(&fifty), Some(CopyLimit::InSubscription { filling: 50 }));
    assert_eq!(of(&fifty[1..]), None);
    let mut turned = fifty;
    turned.reverse();
    assert_eq!(of(&turned), Some(CopyLimit::InSubscription { filling: 50 }));
}
