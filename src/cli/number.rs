//! Numbers of the command line.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

/// Reads a whole number of a range. What is allowed is said of every value that is none.
pub(super) fn whole<N>(range: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let number = text.trim().parse::<N>().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("allowed: a whole number from {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_or_out_of_range_is_told_what_is_allowed() {
        let seconds = whole::<u64>(0..=86_400);
        assert_eq!([seconds("0"), seconds(" 25 "), seconds("86400")], [Ok(0), Ok(25), Ok(86_400)]);
        for text in ["", "x", "-1", "1.5", "86401", "99999999999999999999999"] {
            assert_eq!(seconds(text), Err("allowed: a whole number from 0 to 86400".to_owned()), "{text}");
        }
    }
}
