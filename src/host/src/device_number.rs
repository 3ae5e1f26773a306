//! The number by which the kernel knows a device.

pub use lazuli_staging::DeviceNumber;
use rustix::fs::{major, minor};

/// From `st_rdev` or `st_dev`.
#[must_use]
pub fn of_raw(raw: u64) -> DeviceNumber {
    DeviceNumber { major: major(raw), minor: minor(raw) }
}
