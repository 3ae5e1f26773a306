//! How a disk grows.

use super::*;

fn disk(gib: u32) -> Disk {
    Disk { size: Gib::new(gib), ..made(&plan(&[])) }
}

fn attached(disk: Disk) -> Disk {
    let vm = ArmId::virtual_machine("s", "g", "vm").unwrap();
    Disk { managed_by: Some(vm), state: Some(DiskState::Attached), ..disk }
}

fn grow(to: u32, needs_detach: Option<DetachReason>) -> Result<Expand, ParameterError> {
    Ok(Expand::Grow { to: Gib::new(to), needs_detach })
}

#[test]
fn a_disk_that_is_large_enough_needs_nothing() {
    for (required, limit) in [(0, 0), (GIB, 0), (10 * GIB, 0), (10 * GIB, 10 * GIB), (0, 11 * GIB)] {
        assert_eq!(plan_expand(&disk(10), required, limit), Ok(Expand::Enough(Gib::new(10))));
    }
}

#[test]
fn a_disk_grows_to_the_next_gib() {
    assert_eq!(plan_expand(&disk(10), 10 * GIB + 1, 0), grow(11, None));
    assert_eq!(plan_expand(&disk(10), 10 * GIB + 1, 11 * GIB), grow(11, None));
}

#[test]
fn a_size_that_cannot_be_reached_is_out_of_range() {
    for (gib, required, limit) in [
        (10, 0, 9 * GIB),
        (10, 5 * GIB, 9 * GIB),
        (10, 10 * GIB + 1, 11 * GIB - 1),
        (10, 32768 * GIB, 0),
        (10, i64::MAX, 0),
    ] {
        let error = plan_expand(&disk(gib), required, limit).unwrap_err();
        assert_eq!(error.kind(), ParameterErrorKind::OutOfRange, "{error}");
    }
    assert_eq!(plan_expand(&disk(10), -1, 0).unwrap_err().kind(), ParameterErrorKind::InvalidArgument);
}

#[test]
fn an_attached_disk_grows_unless_it_crosses_4_tib() {
    let crosses = Some(DetachReason::CrossesFourTib);
    for (from, to, reason) in
        [(10, 4095, None), (10, 4096, crosses), (4095, 4096, crosses), (4096, 4097, crosses), (4097, 8192, None)]
    {
        let required = i64::from(to) * GIB;
        assert_eq!(plan_expand(&attached(disk(from)), required, 0), grow(to, reason), "{from} {to}");
        assert_eq!(plan_expand(&disk(from), required, 0), grow(to, None), "{from} {to}");
    }
    for sku in [SkuName::UltraSsdLrs, SkuName::PremiumV2Lrs] {
        let fast = Disk { sku: Some(sku), ..attached(disk(10)) };
        assert_eq!(plan_expand(&fast, 5000 * GIB, 0), grow(5000, None));
    }
}

#[test]
fn a_shared_disk_grows_only_while_no_vm_has_it() {
    let shared = Disk { max_shares: 2, ..disk(10) };
    assert_eq!(plan_expand(&shared, 11 * GIB, 0), grow(11, None));
    assert_eq!(plan_expand(&attached(shared), 11 * GIB, 0), grow(11, Some(DetachReason::Shared)));
}
