//! The course of a DeleteVolume: the temporary snapshot that has carried the disk's content goes with it.

use std::mem;

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, Snapshot};
use lazuli_quota::permit::Priority;
use lazuli_volume::copy::{carrier_from, is_carrier_to};

use super::{Call, Event, Next, Report, Step};
use crate::calls::unexpected;

/// The deletion of a disk.
#[derive(Debug)]
pub struct Remove {
    disk: ArmId,
    at: At,
}

#[derive(Debug)]
enum At {
    /// This may be the disk's carrier.
    Begin(Option<ArmId>),
    Deleting(Option<ArmId>),
    Carrier(ArmId),
    DeletingCarrier(ArmId),
    Over,
}

impl Remove {
    /// A deletion that is asked for now. Its first event is [`Event::Begun`]. `source` is what the disk was made from, where
    /// that is known, and `listed` is the disk's carrier by a list of snapshots. Where neither names one, a sweep may.
    pub fn new(disk: ArmId, source: Option<&str>, listed: Option<ArmId>) -> Self {
        let carrier = source.and_then(|source| carrier_from(&disk, source)).or(listed);
        Self { disk, at: At::Begin(carrier) }
    }

    /// The carrier to a disk by a list of snapshots.
    pub fn carrier_in(snapshots: &[Snapshot], disk: &ArmId) -> Option<ArmId> {
        snapshots.iter().find(|snapshot| is_carrier_to(snapshot, disk)).map(|carrier| carrier.id.clone())
    }

    /// What follows from an event. Only the disk's own deletion can fail: a carrier that stays is told, and a sweep finds it.
    pub fn step<E: AzureFailure, W: AzureFailure>(&mut self, event: Event<E, W>) -> Step<Result<(), W>, W> {
        let mut reports = Vec::new();
        let next = match (mem::replace(&mut self.at, At::Over), event) {
            (At::Begin(carrier), Event::Begun) => {
                let call = Call::DeleteDisk(self.disk.clone());
                self.go(At::Deleting(carrier), call)
            }
            (At::Deleting(carrier), Event::Deleted(Ok(()))) => match carrier {
                Some(carrier) => {
                    let call = Call::ReadSnapshot { snapshot: carrier.clone(), priority: Priority::Create };
                    self.go(At::Carrier(carrier), call)
                }
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

    fn go<T>(&mut self, at: At, call: Call) -> Next<T> {
        self.at = at;
        Next::Call(call)
    }
}
