//! IP families and address ranges.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;

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
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An address as a Service may spell it. The API server takes leading zeros in IPv4, as decimal, and IPv4 in the form of
/// IPv6 (source: Kubernetes, `ParseIPSloppy`).
pub fn lax_address(text: &str) -> Option<IpAddr> {
    let without_zeros = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let strict: Option<IpAddr> = text.parse().ok();
    let address = strict.or_else(|| text.split('.').map(without_zeros).collect::<Vec<_>>().join(".").parse().ok());
    address.map(|address| address.to_canonical())
}

/// An address range in CIDR notation, with no bit set behind its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr(IpNet);

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

impl Cidr {
    /// The range of an address and a length, its bits behind the length cleared. A length beyond the address' bits counts as
    /// all of them.
    pub fn around(inside: IpAddr, length: u8) -> Self {
        let whole = IpNet::from(inside);
        Self(IpNet::new(inside, length).unwrap_or(whole).trunc())
    }

    /// Its family.
    pub fn family(&self) -> Family {
        Family::of(self.address())
    }

    /// Whether it holds every address of its family.
    pub fn is_everything(&self) -> bool {
        self.0.prefix_len() == 0
    }

    /// Whether an address lies in it.
    pub fn contains(&self, other: IpAddr) -> bool {
        self.0.contains(&other)
    }

    /// Whether every address of another range lies in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.0.contains(&other.0)
    }

    /// Whether an address lies in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.0.addr()
    }

    /// Every range that holds it, the widest first and itself last.
    pub fn around_each(&self) -> impl Iterator<Item = Self> {
        let address = self.address();
        (0..=self.0.prefix_len()).map(move |length| Self::around(address, length))
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        // The parser of ipnet also takes what neither the API server nor Azure takes, such as a length of 08.
        let syntax = || CidrError::Syntax(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(syntax)?;
        let address: IpAddr = address.parse().map_err(|_| syntax())?;
        if length.is_empty() || (length.len() > 1 && length.starts_with('0')) || length.starts_with('+') {
            return Err(syntax());
        }
        let length: u8 = length.parse().map_err(|_| syntax())?;
        let range = IpNet::new(address, length).map_err(|_| syntax())?;
        let masked = Self(range.trunc());
        if masked.address() == address {
            Ok(masked)
        } else {
            Err(CidrError::HostBits { text: text.to_owned(), masked })
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fewest ranges that hold the same addresses, in order: what another covers goes, and two halves become their whole. The
/// Go manager does the same, so names of security rules depend on it.
pub fn aggregate(ranges: impl IntoIterator<Item = Cidr>) -> Vec<Cidr> {
    let ranges = ranges.into_iter().map(|range| range.0).collect();
    IpNet::aggregate(&ranges).into_iter().map(Cidr).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

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
    fn an_address_is_read_in_each_spelling_that_the_api_server_takes() {
        let address = |text: &str| lax_address(text).map(|address| address.to_string());
        for text in ["20.95.0.11", "020.95.000.011", "::ffff:20.95.0.11", "::ffff:145f:b"] {
            assert_eq!(address(text).as_deref(), Some("20.95.0.11"), "{text}");
        }
        assert_eq!(address("2001:db8::1").as_deref(), Some("2001:db8::1"));
        for text in ["", "None", "20.95.0", "20.95..11", "20.95.0.256", "0x14.1.1.1"] {
            assert_eq!(address(text), None, "{text}");
        }
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
