//! The look of the product's own reader, for the test and for the program that a guest runs.

use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt as _, time::Duration};

use lazuli_host::{
    Deadline, Host,
    device::{FindError, find_by_lun, wait_for_lun},
};

/// Where a disk says its name.
pub(crate) const NAME_AT: u64 = 64 << 10;
/// How many bytes its name has, with spaces at the end.
pub(crate) const NAME_LENGTH: usize = 32;
/// How often it is looked whether a disk has gone.
const AGAIN: Duration = Duration::from_millis(20);

/// A disk as it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The name that is written on it.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Whether the kernel itself says that it is at the LUN, or what it says proves it.
    pub(crate) is_certain: bool,
}

/// Waits until there are disks at these LUNs, and until there are none at the others.
pub(crate) async fn look(
    host: &Host,
    there: &[u32],
    not_there: &[u32],
    deadline: impl Fn() -> Deadline,
) -> BTreeMap<u32, Found> {
    let mut found = BTreeMap::new();
    for lun in not_there {
        let deadline = deadline();
        loop {
            match find_by_lun(host, *lun).await {
                Err(FindError::NotFound { .. }) => break,
                seen => assert!(!deadline.passed(), "LUN {lun}: {seen:?}"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
    for lun in there {
        let device = wait_for_lun(host, *lun, deadline()).await.unwrap_or_else(|error| panic!("LUN {lun}: {error}"));
        let mut name = [0; NAME_LENGTH];
        File::open(&device.path).unwrap().read_exact_at(&mut name, NAME_AT).unwrap();
        let name = String::from_utf8_lossy(&name).trim_end().to_owned();
        found.insert(*lun, Found { name, bytes: device.size_bytes, is_certain: device.is_lun_certain() });
    }
    found
}
