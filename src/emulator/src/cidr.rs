//! Address prefixes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// First and last address of a prefix.
pub(crate) fn range(prefix: &str) -> Option<(IpAddr, IpAddr)> {
    let (base, length) = prefix.split_once('/')?;
    let (base, length): (IpAddr, u32) = (base.parse().ok()?, length.parse().ok()?);
    let hosts = match base {
        IpAddr::V4(_) if length <= 32 => u32::MAX.checked_shr(length).unwrap_or(0).into(),
        IpAddr::V6(_) if length <= 128 => u128::MAX.checked_shr(length).unwrap_or(0),
        _ => return None,
    };
    Some((with_bits(base, bits(base) & !hosts), with_bits(base, bits(base) | hosts)))
}

/// An address as a number.
pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address of the same family with this number.
pub(crate) fn with_bits(family: IpAddr, bits: u128) -> IpAddr {
    match family {
        // What is above 32 bits belongs to no address of IPv4.
        IpAddr::V4(_) => Ipv4Addr::from_bits(u32::try_from(bits & u128::from(u32::MAX)).unwrap_or(0)).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_spans_its_addresses() {
        let span = |first: &str, last: &str| Some((first.parse().unwrap(), last.parse().unwrap()));
        assert_eq!(range("10.1.2.3/16"), span("10.1.0.0", "10.1.255.255"));
        assert_eq!(range("0.0.0.0/0"), span("0.0.0.0", "255.255.255.255"));
        assert_eq!(range("1.2.3.4/32"), span("1.2.3.4", "1.2.3.4"));
        assert_eq!(range("fd00:1::/64"), span("fd00:1::", "fd00:1::ffff:ffff:ffff:ffff"));
        for none in ["1.2.3.4/33", "fd00::/129", "10.0.0.0", "10.0.0/8", "10.0.0.0/x"] {
            assert_eq!(range(none), None, "{none}");
        }
    }
}
