//! To which volume a staged or published device belongs.
//!
//! kubelet names a volume and a path, and pairs them itself. A call that names one volume and the path of another must
//! neither grow the other's disk nor show it to a pod, so the pair is checked before anything is done with it.
//!
//! What the node recorded when it staged the volume settles it. Where that does not (another driver staged it, and left no
//! record or has made ours stale), the instance metadata does. Where that is silent too, a record that speaks against it
//! counts, and no record at all does not.

use lazuli_model::VolumeId;

use super::{Device, Record, RecordedDevice};

/// What was seen so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The volume's record.
    pub own: Option<Option<Record>>,
    /// The disk at the LUN at which the metadata lists the volume; `Some(None)` where it lists none or no disk is there.
    pub listed: Option<Option<Device>>,
    /// The records of all volumes that are here.
    pub records: Option<Vec<Record>>,
}

/// What to look at. Each look fills the field of [`Seen`] that it is named for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The volume's record: `own`.
    Own,
    /// Ask the metadata for the volume's LUN, and look at the disk there: `listed`.
    Listed,
    /// All records: `records`.
    Records,
}

/// What follows from what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look at this.
    Look(Look),
    /// As far as this node can tell the device is the volume's.
    Own,
    /// It is another's.
    Other,
}

impl Seen {
    /// Whether the device is the volume's, as far as this node can tell.
    #[must_use]
    pub fn next(&self, volume: &str, device: &Device) -> Next {
        let of = |is_own: bool| if is_own { Next::Own } else { Next::Other };
        let Some(own) = &self.own else { return Next::Look(Look::Own) };
        if own.as_ref().is_some_and(|record| record.names(device) != RecordedDevice::Other) {
            return Next::Own;
        }
        match &self.listed {
            None => return Next::Look(Look::Listed),
            Some(Some(disk)) if disk.is_lun_certain() => {
                return of(disk.number == device.number || disk.has_part(&device.name));
            }
            // Which disk is there is an operator's word, or none is.
            Some(Some(_) | None) => {}
        }
        let Some(records) = &self.records else { return Next::Look(Look::Records) };
        let speaks_against = |record: &Record| {
            VolumeId::fold(&record.volume_id) == VolumeId::fold(volume) || record.device == Some(device.number)
        };
        of(!records.iter().any(speaks_against))
    }
}
