//! Unstaging: whose the staging path is, and which device must be proved released before Azure detaches the disk.
//!
//! What is mounted at the staging path names the device. Where nothing is mounted, the node's record does, and without a
//! record the metadata (a raw block volume that another driver staged). Metadata that do not answer then leave it open whether
//! a disk is attached of which nothing was proved, so the volume stays staged. A device that has the number of one that left is
//! none of the volume's: another volume uses it, and says nothing of whether this one is free.
//!
//! The metadata may have a disk at a LUN while it is not known which disk that is: disks come by NVMe, and nothing proves how
//! their ids count. A volume whose stage was refused for that has no record. So all disks that may be it are proved released,
//! but for those from which other volumes are staged.

use std::path::Path;

use lazuli_model::{Lun, VolumeId};

use super::{AtPath, Device, DeviceNumber, Record, RecordedDevice};

/// Which volume is unstaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The volume id as it came: it may be none.
    pub volume: &'a str,
    /// The staging path.
    pub staging: &'a Path,
}

/// What is at a LUN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtLun {
    /// This disk.
    Disk(Device),
    /// No disk.
    Nothing,
    /// More than one disk, or it cannot be read.
    Unclear,
}

/// Where the metadata has a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedAt {
    /// At this LUN.
    Lun(Lun),
    /// At none: it answers, and lists the volume nowhere.
    Nowhere,
    /// No metadata is used.
    Unused,
    /// It does not answer, for this reason.
    Silent(String),
}

impl ListedAt {
    /// The LUN, where there is one.
    #[must_use]
    pub fn lun(&self) -> Option<Lun> {
        match self {
            Self::Lun(lun) => Some(*lun),
            Self::Nowhere | Self::Unused | Self::Silent(_) => None,
        }
    }
}

/// What was seen so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What is at the staging path.
    pub at_path: Option<AtPath>,
    /// The records of all volumes that are here.
    pub records: Option<Vec<Record>>,
    /// The volume's record.
    pub own: Option<Option<Record>>,
    /// What is at the LUN of that record.
    pub at_lun: Option<AtLun>,
    /// The device with the number that the mount or the record names.
    pub numbered: Option<Option<Device>>,
    /// Where the metadata lists the volume.
    pub listed: Option<ListedAt>,
    /// What is at that LUN.
    pub at_listed: Option<AtListed>,
    /// The disks of which any may be at a LUN; `None` within where a controller does not show its disks now.
    pub data_disks: Option<Option<Vec<Device>>>,
}

/// What is at the LUN where the metadata has a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtListed {
    /// This disk.
    Disk(Device),
    /// No disk.
    Nothing,
    /// It is not known which disk that is.
    Unplaced,
}

/// What to look at. Each look fills the field of [`Seen`] that it is named for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// What is at the staging path: `at_path`.
    StagingPath,
    /// All records: `records`.
    Records,
    /// The volume's record: `own`.
    Own,
    /// The disk at this LUN: `at_lun`.
    AtLun(u32),
    /// The device with this number: `numbered`.
    Numbered(DeviceNumber),
    /// Ask the metadata where the volume is: `listed`.
    Listed,
    /// The disk at this LUN, which must be readable: `at_listed`.
    AtListed(Lun),
    /// The data disks of which none is known to be at a LUN: `data_disks`.
    DataDisks,
}

/// What follows from what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look at this.
    Look(Look),
    /// Unmount the staging path, and prove that this device is released.
    Release(Device),
    /// Unmount the staging path; no device is left to prove anything of.
    Nothing,
    /// Leave it: the staging path is this other volume's.
    PathOfAnother(String),
    /// Unmount the staging path, and prove that each of these devices is released: any of them may be the one at this LUN,
    /// where the metadata has the volume.
    ReleaseAll(Lun, Vec<Device>),
    /// Leave it: the metadata has the volume at this LUN, it is not known which disk that is, and not all disks are seen now.
    DisksHidden(Lun),
    /// Leave it: the metadata alone could say whether the volume's disk is attached, and is silent for this reason.
    Silent(String),
}

impl From<Option<Device>> for Next {
    fn from(device: Option<Device>) -> Self {
        device.map_or(Self::Nothing, Self::Release)
    }
}

impl Seen {
    /// What to look at next, or what to release.
    #[must_use]
    pub fn next(&self, request: Request<'_>) -> Next {
        let Some(at_path) = &self.at_path else { return Next::Look(Look::StagingPath) };
        match at_path.top() {
            // Before the unmount, after which the mount table does not know any more.
            Some(top) => self.mounted(request, top.number()),
            None => match &self.own {
                None => Next::Look(Look::Own),
                Some(Some(record)) => self.recorded(record),
                Some(None) => self.listed(),
            },
        }
    }

    /// A call that pairs a volume with the staging path of another would unmount the other, and answer for a volume that
    /// is still in use that its disk may go.
    fn mounted(&self, request: Request<'_>, number: DeviceNumber) -> Next {
        let Some(records) = &self.records else { return Next::Look(Look::Records) };
        let is_of_it =
            |record: &&Record| record.device == Some(number) && record.staging_path.as_deref() == Some(request.staging);
        let is_own = |record: &&Record| VolumeId::fold(&record.volume_id) == VolumeId::fold(request.volume);
        let owners: Vec<&Record> = records.iter().filter(is_of_it).collect();
        match (owners.first(), owners.iter().any(is_own), &self.numbered) {
            (Some(other), false, _) => Next::PathOfAnother(other.volume_id.clone()),
            (_, _, None) => Next::Look(Look::Numbered(number)),
            (_, _, Some(device)) => device.clone().into(),
        }
    }

    fn recorded(&self, record: &Record) -> Next {
        let Some(number) = record.device else { return Next::Nothing };
        let is_it = |device: &Device| record.names(device) != RecordedDevice::Other;
        // A LUN with nothing or another disk says that the disk has left, but for the device that the record names beyond doubt:
        // which LUN a disk has may not have been known when the record was written, or may not be known now.
        let mut has_left = false;
        if let Some(lun) = record.lun {
            let is_part = |disk: &Device| record.device_name.as_deref().is_some_and(|name| disk.has_part(name));
            match &self.at_lun {
                None => return Next::Look(Look::AtLun(lun)),
                Some(AtLun::Disk(disk)) if is_it(disk) => return Next::Release(disk.clone()),
                Some(AtLun::Nothing) => has_left = true,
                // Another disk is there now; the record may still name a partition of it.
                Some(AtLun::Disk(disk)) if !is_part(disk) && disk.is_lun_certain() => has_left = true,
                Some(AtLun::Disk(_) | AtLun::Unclear) => {}
            }
        }
        let is_there = |device: &Device| match record.names(device) {
            RecordedDevice::Same => true,
            RecordedDevice::SameNumber => !has_left,
            RecordedDevice::Other => false,
        };
        match &self.numbered {
            None => Next::Look(Look::Numbered(number)),
            Some(device) => device.clone().filter(is_there).into(),
        }
    }

    fn listed(&self) -> Next {
        match (&self.listed, &self.at_listed) {
            (None, _) => Next::Look(Look::Listed),
            (Some(ListedAt::Nowhere | ListedAt::Unused), _) => Next::Nothing,
            (Some(ListedAt::Silent(why)), _) => Next::Silent(why.clone()),
            (Some(ListedAt::Lun(lun)), None) => Next::Look(Look::AtListed(*lun)),
            (Some(ListedAt::Lun(_)), Some(AtListed::Disk(device))) if device.is_lun_certain() => {
                Next::Release(device.clone())
            }
            (Some(ListedAt::Lun(_)), Some(AtListed::Nothing)) => Next::Nothing,
            // By an operator's offset alone it may be another disk that is proved free.
            (Some(ListedAt::Lun(lun)), Some(AtListed::Disk(_) | AtListed::Unplaced)) => self.any_disk(*lun),
        }
    }

    /// All disks that may be the volume's: none from which another volume is staged.
    fn any_disk(&self, lun: Lun) -> Next {
        let disks = match &self.data_disks {
            None => return Next::Look(Look::DataDisks),
            Some(None) => return Next::DisksHidden(lun),
            Some(Some(disks)) => disks,
        };
        let Some(records) = &self.records else { return Next::Look(Look::Records) };
        let is_staged = |disk: &Device| records.iter().any(|record| record.is_on(disk));
        match disks.iter().filter(|disk| !is_staged(disk)).cloned().collect::<Vec<_>>() {
            none if none.is_empty() => Next::Nothing,
            disks => Next::ReleaseAll(lun, disks),
        }
    }

    /// The record to write before the unmount of a volume that has none, so that an unstage that is repeated after it still
    /// knows which device to prove released.
    #[must_use]
    pub fn missing_record(&self, request: Request<'_>, device: &Device) -> Option<Record> {
        let is_own = |record: &Record| VolumeId::fold(&record.volume_id) == VolumeId::fold(request.volume);
        let has_own = self.own.iter().flatten().chain(self.records.iter().flatten()).any(is_own);
        (!has_own).then(|| Record {
            volume_id: request.volume.to_owned(),
            lun: device.lun,
            fs_uuid: None,
            fs_type: None,
            staging_path: Some(request.staging.to_owned()),
            device_name: Some(device.name.clone()),
            device: Some(device.number),
            sequence: device.sequence.clone(),
            descends_from: None,
        })
    }
}
