//! Kubernetes' quantities of bytes.

/// What a suffix multiplies a number by, as a fraction: factor and divisor (source: Kubernetes, resource.Quantity).
const SUFFIXES: [(&str, i128, i128); 15] = [
    ("Ki", 1 << 10, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
    ("Ti", 1 << 40, 1),
    ("Pi", 1 << 50, 1),
    ("Ei", 1 << 60, 1),
    ("n", 1, 1_000_000_000),
    ("u", 1, 1_000_000),
    ("m", 1, 1_000),
    ("k", 1_000, 1),
    ("M", 1_000_000, 1),
    ("G", 1_000_000_000, 1),
    ("T", 1_000_000_000_000, 1),
    ("P", 1_000_000_000_000_000, 1),
    ("E", 1_000_000_000_000_000_000, 1),
];

/// How many digits are read; more are no size of a disk.
const MOST_DIGITS: usize = 18;

/// The number of bytes of a quantity such as `10Gi`, `1.5T` or `1e12`, rounded up; `None` for a text that is no quantity,
/// is negative, or is more than an `i64` holds.
#[must_use]
pub fn bytes_of_quantity(text: &str) -> Option<i64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > MOST_DIGITS || fraction.contains('.') {
        return None;
    }
    let (factor, divisor) = match suffix {
        "" => (1, 1),
        _ => match SUFFIXES.iter().find(|(known, ..)| *known == suffix) {
            Some((_, factor, divisor)) => (*factor, *divisor),
            None => exponent(suffix)?,
        },
    };
    let digits: i128 = digits.parse().ok()?;
    let divisor = 10_i128.pow(u32::try_from(fraction.len()).ok()?).checked_mul(divisor)?;
    let product = digits.checked_mul(factor)?;
    let rounded = product / divisor + i128::from(product % divisor != 0);
    i64::try_from(rounded).ok()
}

/// A decimal exponent, `e3` or `E-3`.
fn exponent(suffix: &str) -> Option<(i128, i128)> {
    let number = suffix.strip_prefix(['e', 'E'])?;
    let power: i32 = number.parse().ok().filter(|power: &i32| power.unsigned_abs() <= 18)?;
    let scale = 10_i128.pow(power.unsigned_abs());
    Some(if power < 0 { (1, scale) } else { (scale, 1) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quantity_is_a_number_with_a_suffix_or_an_exponent() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("1024", Some(1024)),
            ("10Gi", Some(10 << 30)),
            ("1.5Ti", Some(3 << 39)),
            ("1.", Some(1)),
            (".5k", Some(500)),
            ("12e6", Some(12_000_000)),
            ("1E3", Some(1_000)),
            ("2E", Some(2_000_000_000_000_000_000)),
            ("1e-1", Some(1)),
            ("1500m", Some(2)),
            ("1n", Some(1)),
            ("4398046511104k", Some(4_398_046_511_104_000)),
            ("8Ei", None),
            ("9999999999999999999", None),
            ("", None),
            (".", None),
            ("1..2", None),
            ("Gi", None),
            ("-1Gi", None),
            ("1 Gi", None),
            ("1gi", None),
            ("1e99", None),
            ("1e", None),
            ("\u{661}Gi", None),
        ] {
            assert_eq!(bytes_of_quantity(text), bytes, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn binary_suffixes_are_powers_of_1024(number in 0_i64..1 << 20, power in 1_usize..5) {
            let suffix = ["", "Ki", "Mi", "Gi", "Ti"][power];
            prop_assert_eq!(bytes_of_quantity(&format!("{number}{suffix}")), number.checked_mul(1 << (10 * power)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,30}") {
            prop_assert!(bytes_of_quantity(&text).is_none_or(|bytes| bytes >= 0));
        }
    }
}
