//! Disks as they were read for the requests of a round.

use std::{collections::BTreeMap, time::Duration};

use lazuli_model::{ArmId, DiskId};
use lazuli_quota::read::{By, Seen};

use super::DiskSeen;
use lazuli_storage::attach::DiskRead;

/// Disks as they were read.
///
/// Reads that lead to a write ([`DiskRead::gives_terms`]) are kept while the permit to write the VM is waited for: many VMs
/// wait for permits at the same time, and each would read its disks again when its permit has come. A kept read serves only
/// the round right after the wait, and no request is answered from one.
#[derive(Debug, Clone)]
pub(super) struct DiskReads<E> {
    pub(super) reads: BTreeMap<DiskId, DiskRead<Duration>>,
    /// Why a disk could not be read.
    pub(super) errors: BTreeMap<DiskId, E>,
}

impl<E> Default for DiskReads<E> {
    fn default() -> Self {
        Self { reads: BTreeMap::new(), errors: BTreeMap::new() }
    }
}

impl<E> DiskReads<E> {
    /// Those that may be kept.
    pub(super) fn that_give_terms(mut self, vm: &ArmId) -> Self {
        self.reads.retain(|_, read| read.gives_terms(vm));
        Self { reads: self.reads, errors: BTreeMap::new() }
    }

    /// Adds reads that were asked for then.
    pub(super) fn add(&mut self, asked_at: Duration, reads: Vec<(DiskId, Result<DiskSeen, E>)>) {
        for (disk, read) in reads {
            let read = match read {
                Ok(read) => DiskRead { disk: Some(read.disk), seen: read.seen },
                Err(error) => {
                    self.errors.insert(disk.clone(), error);
                    DiskRead { disk: None, seen: Seen { by: By::Single, sent_at: asked_at } }
                }
            };
            self.reads.insert(disk, read);
        }
    }
}
