//! How large a disk becomes.

use super::*;

fn size(sku: &str, required: i64, limit: i64) -> Result<u32, ParameterError> {
    let request = Request { required_bytes: required, limit_bytes: limit, ..request(&[("skuName", sku)]) };
    plan_create(&request, &defaults()).map(|plan| plan.size.get())
}

#[test]
fn sizes_round_up_to_gib_and_to_what_the_type_has() {
    for (sku, required, limit, gib) in [
        ("Premium_LRS", 0, 0, 1),
        ("Premium_LRS", 1, 0, 1),
        ("Premium_LRS", GIB, GIB, 1),
        ("Premium_LRS", GIB + 1, 0, 2),
        ("Premium_LRS", 32767 * GIB, 0, 32767),
        ("UltraSSD_LRS", 0, 0, 4),
        ("UltraSSD_LRS", GIB, 4 * GIB, 4),
        ("UltraSSD_LRS", 65536 * GIB, 0, 65536),
        ("PremiumV2_LRS", GIB, 0, 1),
        ("PremiumV2_LRS", 65536 * GIB, 0, 65536),
    ] {
        assert_eq!(size(sku, required, limit), Ok(gib), "{sku} {required} {limit}");
    }
}

#[test]
fn a_size_that_cannot_be_made_is_out_of_range() {
    for (sku, required, limit) in [
        ("Premium_LRS", 32767 * GIB + 1, 0),
        ("PremiumV2_LRS", 65536 * GIB + 1, 0),
        ("Premium_LRS", i64::MAX, 0),
        ("Premium_LRS", 2 * GIB, GIB),
        ("Premium_LRS", 0, 1),
        ("UltraSSD_LRS", GIB, 2 * GIB),
    ] {
        let error = size(sku, required, limit).unwrap_err();
        assert_eq!(error.kind(), ParameterErrorKind::OutOfRange, "{error}");
        assert!(error.to_string().contains(sku), "{error}");
    }
}

#[test]
fn a_limit_between_two_gib_is_not_exceeded_by_rounding() {
    let error = size("Premium_LRS", GIB + 1, 2 * GIB - 1).unwrap_err();
    assert_eq!((error.parameter.as_str(), error.kind()), ("limit_bytes", ParameterErrorKind::OutOfRange));
}

#[test]
fn a_negative_size_is_invalid() {
    for (required, limit) in [(-1, 0), (0, -1)] {
        let error = size("Premium_LRS", required, limit).unwrap_err();
        assert_eq!(error.kind(), ParameterErrorKind::InvalidArgument);
    }
}
