//! IP families and address ranges.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// An IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Azure's and Kubernetes' spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The address that stands for none.
    pub fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An address range in CIDR notation, with no bit set behind its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    address: IpAddr,
    length: u8,
}

/// Why a text is not an address range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// Not of the form `address/length`.
    #[error("{0:?} is not an address range such as 10.0.0.0/8")]
    Syntax(String),
    /// Bits are set behind the length.
    #[error("{text:?} sets bits behind its length; {masked} is the range")]
    HostBits {
        /// The text.
        text: String,
        /// The range that was probably meant.
        masked: Cidr,
    },
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn address(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits((bits >> 96) as u32).into(),
        Family::V6 => Ipv6Addr::from_bits(bits).into(),
    }
}

/// The bits in front of the length.
fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl Cidr {
    /// The range of an address and a length, its bits behind the length cleared.
    pub fn around(inside: IpAddr, length: u8) -> Self {
        let family = Family::of(inside);
        let length = length.min(Self::full_length(family));
        Self { address: address(family, bits(inside) & mask(length)), length }
    }

    fn full_length(family: Family) -> u8 {
        match family {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    /// Its family.
    pub fn family(&self) -> Family {
        Family::of(self.address)
    }

    /// Whether it holds every address of its family.
    pub fn is_everything(&self) -> bool {
        self.length == 0
    }

    /// Whether an address lies in it.
    pub fn contains(&self, other: IpAddr) -> bool {
        Family::of(other) == self.family() && bits(other) & mask(self.length) == bits(self.address)
    }

    /// Whether every address of another range lies in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// Whether an address lies in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Every range that holds it, the widest first and itself last.
    pub fn around_each(&self) -> impl Iterator<Item = Self> {
        let Self { address, length } = *self;
        (0..=length).map(move |length| Self::around(address, length))
    }

    /// The range of one bit less that holds this one.
    fn parent(&self) -> Option<Self> {
        (self.length > 0).then(|| Self::around(self.address, self.length - 1))
    }

    /// The other half of the parent.
    fn sibling(&self) -> Option<Self> {
        let bit = 1_u128.checked_shl(128 - u32::from(self.length))?;
        (self.length > 0).then(|| Self { address: address(self.family(), bits(self.address) ^ bit), ..*self })
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let syntax = || CidrError::Syntax(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(syntax)?;
        let address: IpAddr = address.parse().map_err(|_| syntax())?;
        if length.is_empty() || (length.len() > 1 && length.starts_with('0')) || length.starts_with('+') {
            return Err(syntax());
        }
        let length: u8 = length.parse().map_err(|_| syntax())?;
        if length > Self::full_length(Family::of(address)) {
            return Err(syntax());
        }
        let masked = Self::around(address, length);
        if masked.address == address { Ok(masked) } else { Err(CidrError::HostBits { text: text.to_owned(), masked }) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// The fewest ranges that hold the same addresses: what another covers goes, and two halves become their whole. The Go
/// manager does the same, so names of security rules depend on it.
pub fn aggregate(ranges: impl IntoIterator<Item = Cidr>) -> Vec<Cidr> {
    let mut kept: BTreeSet<Cidr> = BTreeSet::new();
    for mut range in ranges {
        if kept.iter().any(|other| other.covers(&range)) {
            continue;
        }
        kept.retain(|other| !range.covers(other));
        while let (Some(sibling), Some(parent)) = (range.sibling(), range.parent()) {
            if !kept.remove(&sibling) {
                break;
            }
            range = parent;
        }
        kept.insert(range);
    }
    kept.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_is_read_and_printed() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "192.168.1.2/32", "::/0", "2001:db8::/32", "2001:db8::1/128"] {
            assert_eq!(cidr(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_range_is_refused_and_host_bits_name_the_range_that_was_meant() {
        for text in
            ["", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/08", "10.0.0/8", "::/129", "10.0.0.0/+8", "a/8"]
        {
            assert_eq!(text.parse::<Cidr>(), Err(CidrError::Syntax(text.to_owned())), "{text}");
        }
        let error = "10.0.0.1/8".parse::<Cidr>().unwrap_err();
        assert_eq!(error.to_string(), "\"10.0.0.1/8\" sets bits behind its length; 10.0.0.0/8 is the range");
    }

    #[test]
    fn covered_ranges_go_and_halves_become_their_whole() {
        let all = |list: &[&str]| aggregate(list.iter().map(|text| cidr(text)));
        assert_eq!(all(&["192.168.0.0/16", "192.168.1.0/24", "192.168.0.1/32"]), [cidr("192.168.0.0/16")]);
        assert_eq!(all(&["192.168.0.0/32", "192.168.0.1/32"]), [cidr("192.168.0.0/31")]);
        assert_eq!(all(&["10.0.0.0/10", "10.128.0.0/9", "10.64.0.0/10"]), [cidr("10.0.0.0/8")]);
        assert_eq!(all(&["0.0.0.0/1", "128.0.0.0/1", "::/0"]), [cidr("0.0.0.0/0"), cidr("::/0")]);
        assert_eq!(all(&["8000::/1", "::/1"]), [cidr("::/0")]);
    }

    proptest! {
        #[test]
        fn aggregation_keeps_the_addresses_and_does_not_depend_on_order(
            raw in proptest::collection::vec((0_u8..16, 28_u8..=32), 0..12),
            seed in any::<u64>(),
        ) {
            let ranges: Vec<Cidr> =
                raw.iter().map(|(last, length)| Cidr::around(Ipv4Addr::new(10, 0, 0, *last).into(), *length)).collect();
            let mut shuffled = ranges.clone();
            let count = shuffled.len().max(1);
            shuffled.rotate_left((seed % count as u64) as usize);
            let whole = aggregate(ranges.clone());
            prop_assert_eq!(&whole, &aggregate(shuffled));
            for last in 0_u8..=20 {
                let address = IpAddr::from(Ipv4Addr::new(10, 0, 0, last));
                let before = ranges.iter().any(|range| range.contains(address));
                prop_assert_eq!(before, whole.iter().any(|range| range.contains(address)));
            }
        }
    }
}
