//! Unstaging: whose the staging path is, and which device must be proved released before Azure detaches the disk.
//!
//! What is mounted at the staging path names the device. Where nothing is mounted, the node's record does, and without a
//! record the metadata (a raw block volume that another driver staged). A device that has the number of one that left is
//! none of the volume's: another volume uses it, and says nothing of whether this one is free.

use std::path::Path;

use lazuli_model::Lun;

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
    /// The LUN at which the metadata lists the volume.
    pub listed: Option<Option<Lun>>,
    /// What is at that LUN.
    pub at_listed: Option<Option<Device>>,
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
    /// Ask the metadata for the volume's LUN: `listed`.
    Listed,
    /// The disk at this LUN, which must be readable: `at_listed`.
    AtListed(Lun),
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
        let is_own = |record: &&Record| record.volume_id.eq_ignore_ascii_case(request.volume);
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
        if let Some(lun) = record.lun {
            let is_part = |disk: &Device| record.device_name.as_deref().is_some_and(|name| disk.has_part(name));
            match &self.at_lun {
                None => return Next::Look(Look::AtLun(lun)),
                Some(AtLun::Disk(disk)) if is_it(disk) => return Next::Release(disk.clone()),
                Some(AtLun::Nothing) => return Next::Nothing,
                // Another disk is there now; the record may still name a partition of it.
                Some(AtLun::Disk(disk)) if !is_part(disk) => return Next::Nothing,
                Some(AtLun::Disk(_) | AtLun::Unclear) => {}
            }
        }
        match &self.numbered {
            None => Next::Look(Look::Numbered(number)),
            Some(device) => device.clone().filter(is_it).into(),
        }
    }

    fn listed(&self) -> Next {
        match (self.listed, &self.at_listed) {
            (None, _) => Next::Look(Look::Listed),
            (Some(None), _) => Next::Nothing,
            (Some(Some(lun)), None) => Next::Look(Look::AtListed(lun)),
            (Some(Some(_)), Some(device)) => device.clone().into(),
        }
    }
}
