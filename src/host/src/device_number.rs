//! The number by which the kernel knows a device.

use std::fmt;

use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

/// The kernel's number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// Driver part.
    pub major: u32,
    /// Unit part.
    pub minor: u32,
}

impl DeviceNumber {
    /// From `st_rdev` or `st_dev`.
    #[must_use]
    pub fn from_raw(raw: u64) -> Self {
        Self { major: major(raw), minor: minor(raw) }
    }

    /// From `major:minor` as sysfs and mountinfo print it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}
