//! The course of a DeleteVolume: the temporary snapshot that has carried the disk's content goes with it.

use std::mem;

use lazuli_engine::single::AzureFailure;
use lazuli_model::ArmId;
use lazuli_quota::read::Accept;
use lazuli_volume::copy::{carrier_by_name, carrier_from, carrier_of, is_carrier_to};

use super::{Call, Event, Next, Report, Step, found, unexpected};

/// The deletion of a disk.
#[derive(Debug)]
pub struct Remove {
    disk: ArmId,
    at: At,
}

#[derive(Debug)]
enum At {
    /// What the disk was made from, if that is known.
    Begin(Option<Option<String>>),
    /// The disk is read to tell what it was made from.
    Disk,
    /// The disk is being deleted, which was made from this carrier.
    Deleting(Option<ArmId>),
    Carrier(ArmId),
    DeletingCarrier(ArmId),
    Over,
}

impl Remove {
    /// A deletion that is asked for now. Its first event is [`Event::Begun`]. `source` is what the disk was made from, where
    /// that is known: `Some(None)` for one that was made empty.
    pub fn new(disk: ArmId, source: Option<Option<String>>) -> Self {
        Self { disk, at: At::Begin(source) }
    }

    /// What follows from an event. Only the disk's own deletion can fail: a carrier that stays is told, and a sweep finds it.
    pub fn step<E: AzureFailure, W: AzureFailure>(&mut self, event: Event<E, W>) -> Step<Result<(), W>, W> {
        let mut reports = Vec::new();
        let next = match (mem::replace(&mut self.at, At::Over), event) {
            (At::Begin(None), Event::Begun) => {
                // Few disks have a carrier: a list that others read too is good enough to tell.
                self.go(At::Disk, Call::ReadDisk { disk: self.disk.clone(), accept: Accept::List })
            }
            (At::Begin(Some(source)), Event::Begun) => {
                self.delete(source.and_then(|source| carrier_from(&self.disk, &source)))
            }
            (At::Disk, Event::Disk(read)) => match found(read) {
                Ok(Some(disk)) => self.delete(carrier_of(&disk)),
                // An earlier call may have been cut off after the disk's deletion.
                Ok(None) => self.delete(carrier_by_name(&self.disk)),
                Err(_) => self.delete(None),
            },
            (At::Deleting(carrier), Event::Deleted(Ok(()))) => match carrier {
                Some(carrier) => self.go(At::Carrier(carrier.clone()), Call::ReadSnapshot(carrier)),
                None => Next::Done(Ok(())),
            },
            (At::Deleting(_), Event::Deleted(Err(error))) => Next::Done(Err(error)),
            (At::Carrier(carrier), Event::Snapshot(read)) => match read {
                Ok(snapshot) if is_carrier_to(&snapshot, &self.disk) => {
                    self.go(At::DeletingCarrier(carrier.clone()), Call::DeleteSnapshot(carrier))
                }
                Ok(_) | Err(_) => Next::Done(Ok(())),
            },
            (At::DeletingCarrier(carrier), Event::Deleted(deleted)) => {
                reports.extend(deleted.err().map(|why| Report::CarrierLeft(carrier, why)));
                Next::Done(Ok(()))
            }
            (at, event) => unexpected(&at, &event),
        };
        Step { reports, next }
    }

    fn delete<T>(&mut self, carrier: Option<ArmId>) -> Next<T> {
        self.go(At::Deleting(carrier), Call::DeleteDisk(self.disk.clone()))
    }

    fn go<T>(&mut self, at: At, call: Call) -> Next<T> {
        self.at = at;
        Next::Call(call)
    }
}
