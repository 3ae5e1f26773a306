//! Address prefixes of IPv4.

use std::net::Ipv4Addr;

/// Addresses of a prefix, first and last; `None` for what is none of IPv4.
pub(crate) fn range(prefix: &str) -> Option<(u32, u32)> {
    let (base, length) = prefix.split_once('/')?;
    let base = u32::from(base.parse::<Ipv4Addr>().ok()?);
    let hosts = u32::MAX.checked_shr(length.parse().ok()?).unwrap_or(0);
    Some((base & !hosts, base | hosts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_spans_its_addresses() {
        assert_eq!(range("10.1.2.3/16"), Some((0x0a01_0000, 0x0a01_ffff)));
        assert_eq!(range("0.0.0.0/0"), Some((0, u32::MAX)));
        assert_eq!(range("1.2.3.4/32"), Some((0x0102_0304, 0x0102_0304)));
        assert_eq!(range("fd00::/8"), None);
    }
}
