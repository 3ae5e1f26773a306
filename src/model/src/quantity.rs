//! Small numbers with a meaning.

use std::{fmt, str::FromStr};

/// The slot of a data disk on a VM, 0 to 63 (source: the range Azure names when it refuses another, lisa#692).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(into = "u8", try_from = "i64")]
pub struct Lun(u8);

/// Why a number or a text is not a LUN.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a LUN; expected a whole number from 0 to 63")]
pub struct LunError(String);

impl Lun {
    /// How many LUNs a VM has.
    pub const COUNT: u8 = 64;

    /// All LUNs, lowest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<i64> for Lun {
    type Error = LunError;

    fn try_from(value: i64) -> Result<Self, LunError> {
        u8::try_from(value)
            .ok()
            .filter(|value| *value < Self::COUNT)
            .map(Self)
            .ok_or_else(|| LunError(value.to_string()))
    }
}

impl From<Lun> for u8 {
    fn from(lun: Lun) -> Self {
        lun.0
    }
}

impl FromStr for Lun {
    type Err = LunError;

    /// The number, or the device path that early versions of the Go driver recorded in place of it: a
    /// VolumeAttachment keeps what was once written.
    fn from_str(text: &str) -> Result<Self, LunError> {
        let number = match text.strip_prefix("/dev/disk/azure/scsi") {
            Some(path) => path.rsplit_once("/lun").map_or("", |(_, number)| number),
            None => text,
        };
        number
            .parse::<i64>()
            .ok()
            .filter(|_| number.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|value| Self::try_from(value).ok())
            .ok_or_else(|| LunError(text.to_owned()))
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A size in GiB (2^30 bytes), the unit of every Azure disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Gib(u32);

impl Gib {
    const BYTES: u64 = 1 << 30;

    /// So many GiB.
    pub const fn new(gib: u32) -> Self {
        Self(gib)
    }

    /// The smallest whole number of GiB that holds so many bytes; `None` beyond four EiB.
    pub fn holding(bytes: u64) -> Option<Self> {
        u32::try_from(bytes.div_ceil(Self::BYTES)).ok().map(Self)
    }

    /// The largest whole number of GiB in so many bytes.
    pub fn within(bytes: u64) -> Self {
        Self(u32::try_from(bytes / Self::BYTES).unwrap_or(u32::MAX))
    }

    /// The number of GiB.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0 as u64 * Self::BYTES
    }
}

impl fmt::Display for Gib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GiB", self.0)
    }
}

/// How much of a disk or snapshot a background copy has filled: hundredths of a percent, rounded down, so that nothing is
/// called complete before it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Completion(u16);

impl Completion {
    const WHOLE: u16 = 10_000;
    /// All of it.
    pub const COMPLETE: Self = Self(Self::WHOLE);

    /// From Azure's `completionPercent`. What is no number from 0 to 100 counts as the nearest of them, and as 0 where it
    /// is none at all.
    pub fn from_percent(percent: f64) -> Self {
        let hundredths = (percent * 100.0).floor().clamp(0.0, f64::from(Self::WHOLE));
        // The value is a whole number in the type's range; not a number becomes 0.
        Self(hundredths as u16)
    }

    /// Whether all of it is there.
    pub fn is_complete(self) -> bool {
        self.0 >= Self::WHOLE
    }

    /// The percentage, rounded down.
    pub fn percent(self) -> u16 {
        self.0 / 100
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} percent", self.percent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lun_is_0_to_63_and_nothing_else() {
        assert_eq!("63".parse::<Lun>().unwrap().get(), 63);
        for text in ["64", "-1", "+1", "", "3 ", "0x1", "999999999999999999999"] {
            assert!(text.parse::<Lun>().is_err(), "{text:?}");
        }
        assert_eq!(
            Lun::try_from(64).unwrap_err().to_string(),
            "\"64\" is not a LUN; expected a whole number from 0 to 63"
        );
        assert_eq!(Lun::all().count(), 64);
    }

    #[test]
    fn a_lun_is_read_from_the_path_that_the_go_driver_once_recorded() {
        assert_eq!("/dev/disk/azure/scsi1/lun12".parse::<Lun>().unwrap().get(), 12);
        assert_eq!("/dev/disk/azure/scsi0/lun0".parse::<Lun>().unwrap().get(), 0);
        for path in
            ["/dev/disk/azure/scsi1/lun64", "/dev/disk/azure/scsi1/lun", "/dev/disk/azure/scsi1", "/dev/sdc/lun1"]
        {
            assert!(path.parse::<Lun>().is_err(), "{path:?}");
        }
    }

    #[test]
    fn nothing_is_complete_before_it_is() {
        for (percent, shown, complete) in [
            (0.0, 0, false),
            (0.009, 0, false),
            (99.999, 99, false),
            (100.0, 100, true),
            (100.5, 100, true),
            (-1.0, 0, false),
            (f64::NAN, 0, false),
            (f64::INFINITY, 100, true),
        ] {
            let completion = Completion::from_percent(percent);
            assert_eq!((completion.percent(), completion.is_complete()), (shown, complete), "{percent}");
        }
        assert!(Completion::COMPLETE.is_complete());
        assert_eq!(Completion::from_percent(42.7).to_string(), "42 percent");
    }

    #[test]
    fn bytes_round_up_to_gib() {
        assert_eq!(Gib::holding(1), Some(Gib::new(1)));
        assert_eq!(Gib::holding(1 << 30), Some(Gib::new(1)));
        assert_eq!(Gib::holding((1 << 30) + 1), Some(Gib::new(2)));
        assert_eq!(Gib::holding(u64::MAX), None);
        assert_eq!(Gib::new(u32::MAX).bytes(), u64::from(u32::MAX) << 30);
        assert_eq!([0, 1, (2 << 30) - 1, 2 << 30].map(Gib::within), [0, 0, 1, 2].map(Gib::new));
    }
}
