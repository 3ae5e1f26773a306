//! What a node remembers of a volume, and whether it is about a device.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use lazuli_model::{DiskId, VolumeId};
use lazuli_volume::copy::{Line, are_related};

use super::{Device, DeviceNumber};
use crate::device_identity::Others;

/// A file system that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filesystem {
    /// `blkid`'s name of it: `ext4`, `xfs`, `btrfs`…
    pub kind: String,
    /// Its UUID as printed.
    pub uuid: Option<String>,
    /// Its label.
    pub label: Option<String>,
}

impl Filesystem {
    /// Whether it has this UUID, in any letter case.
    #[must_use]
    pub fn has_uuid(&self, uuid: &str) -> bool {
        self.uuid.as_deref().is_some_and(|found| found.eq_ignore_ascii_case(uuid))
    }
}

/// A volume as this node knew it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The volume id, in the spelling of the request.
    pub volume_id: String,
    /// Where it was attached.
    pub lun: Option<u32>,
    /// UUID of its file system when first seen; none for raw block.
    pub fs_uuid: Option<String>,
    /// Its type.
    pub fs_type: Option<String>,
    /// Where it was staged.
    pub staging_path: Option<PathBuf>,
    /// Kernel name of its device, for the unstage after a restart.
    pub device_name: Option<String>,
    /// The device's number then.
    pub device: Option<DeviceNumber>,
    /// What distinguished it from every other device that has had its number since; see [`Device::sequence`].
    /// Records of the first version lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<String>,
    /// What its disk was made from ([`Line::to_context`]). Records of volumes that were made empty lack it, and so do those
    /// of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descends_from: Option<String>,
}

/// A volume, and what its disk was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// The disk.
    pub disk: DiskId,
    /// What it was made from; empty where it was made empty, or nothing is known of it.
    pub line: Line,
}

impl Lineage {
    /// Whether a recorded volume should have the same file system.
    fn is_related(&self, record: &Record) -> bool {
        let Ok(other) = record.volume_id.parse::<VolumeId>() else { return false };
        let line = record.descends_from.as_deref().map(Line::parse).unwrap_or_default();
        are_related((&self.disk, &self.line), (other.disk(), &line))
    }
}

/// Whether a record is about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedDevice {
    /// It is the device with which the volume was staged.
    Same,
    /// It has the number of that device, and nothing tells more: the record is of the first version, or of an earlier
    /// boot, in which the kernel counted its disks anew.
    SameNumber,
    /// It is another one, also where the kernel has given it the number of the one that left.
    Other,
}

impl Record {
    /// Whether the volume was staged with this device.
    #[must_use]
    pub fn names(&self, device: &Device) -> RecordedDevice {
        if self.device != Some(device.number) {
            return RecordedDevice::Other;
        }
        let (Some(recorded), Some(found)) = (&self.sequence, &device.sequence) else {
            return RecordedDevice::SameNumber;
        };
        match recorded == found {
            true => RecordedDevice::Same,
            false if boot(recorded) == boot(found) => RecordedDevice::Other,
            false => RecordedDevice::SameNumber,
        }
    }

    /// Whether the volume was certainly staged with this disk, or with a partition of it.
    #[must_use]
    pub fn is_on(&self, disk: &Device) -> bool {
        let is_part = self.device_name.as_deref().is_some_and(|name| disk.has_part(name));
        // A partition has the sequence of its disk.
        match is_part {
            true => self.sequence.is_some() && self.sequence == disk.sequence,
            false => self.names(disk) == RecordedDevice::Same,
        }
    }

    /// Whether the volume was staged, since the machine has started, with another disk. In another boot the kernel has counted
    /// its disks anew, so the record says nothing of it.
    #[must_use]
    pub fn names_another(&self, device: &Device) -> bool {
        let both = self.sequence.as_deref().zip(device.sequence.as_deref());
        self.device.is_some() && both.is_some_and(|(one, two)| one != two && boot(one) == boot(two))
    }
}

/// The boot, and how the kernel counted its disks.
fn boot(sequence: &str) -> Option<&str> {
    sequence.rsplit_once('/').map(|(boot, _)| boot)
}

/// What the node remembers of a volume, and of others with the same file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The volume's record, while it is here.
    pub own: Option<Record>,
    /// The staging path of that record, as the mount table names it.
    pub own_place: Option<PathBuf>,
    /// What was kept of the volume when it left.
    pub past: Option<Record>,
    /// Other volumes that are here and have the UUID that was found.
    pub here: Vec<Record>,
    /// Other volumes that were here and had it.
    pub before: Vec<Record>,
}

impl Records {
    /// The UUID of the file system that was on the volume when it was last here. The record of a volume that is here
    /// outweighs the one of an earlier time.
    #[must_use]
    pub fn last_uuid(&self) -> Option<&str> {
        self.own.as_ref().or(self.past.as_ref())?.fs_uuid.as_deref()
    }

    /// Whether the volume is recorded as staged from this very device: the number alone is not enough, because the
    /// kernel gives it to another disk when this one has left.
    #[must_use]
    pub fn names(&self, device: &Device) -> bool {
        self.own.as_ref().is_some_and(|record| record.names(device) == RecordedDevice::Same)
    }

    /// Whether the volume is recorded as staged from another disk since the machine has started.
    #[must_use]
    pub fn names_another(&self, device: &Device) -> bool {
        self.own.as_ref().is_some_and(|record| record.names_another(device))
    }

    /// Where the other volumes with this UUID are or were, and whether one of them is of the volume's line.
    #[must_use]
    pub fn others(&self, volume: &Lineage, device: &Device) -> Others {
        let is_this = |record: &Record| record.device == Some(device.number);
        Others {
            here_on_this_device: self.here.iter().any(is_this),
            here_on_another: self.here.iter().any(|record| !is_this(record)),
            before: !self.before.is_empty(),
            related: self.here.iter().chain(&self.before).any(|record| volume.is_related(record)),
        }
    }

    /// The name of one of them.
    #[must_use]
    pub fn other(&self) -> Option<&str> {
        self.here.iter().chain(&self.before).next().map(|record| record.volume_id.as_str())
    }
}
