//! Staging: from what is at a LUN to a raw device or a mounted file system, or to the reason why not.

use std::{path::PathBuf, time::Duration};

use lazuli_model::{Gib, Lun};

use super::{
    AtPath, Device, Filesystem, Lineage, Mounted, Past, Record, Records, Refusal, Thing, Unproved, handed_out_raw,
    staged_as_filesystem,
};
use crate::{
    device_identity::{Content, Decision, Evidence, Identity, Listed, Metadata, OnSilence, Stood, although, decide},
    nvme::{self, is_size},
};
use lazuli_volume::FsType;

/// How a volume is used: CSI's access type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As the device itself.
    Raw,
    /// As a mounted file system.
    Filesystem {
        /// The file system that is asked for.
        fs: FsType,
        /// Whether it is asked for read-only.
        read_only: bool,
    },
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the disk was attached.
    pub lun: Lun,
    /// The size that the volume was provisioned with, where it is known.
    pub size: Option<Gib>,
    /// The partition to use instead of the whole disk.
    pub partition: Option<u32>,
    /// How it is used.
    pub mode: Mode,
    /// Whether the disk was made from something: then it is never blank, and never formatted.
    pub has_content: bool,
    /// The volume, and what its disk was made from, where that is known.
    pub lineage: Lineage,
    /// The id that the volume's btrfs gets where the disk was made from something: that of no other volume.
    pub own_fsid: String,
    /// Whether the disk may be attached to several nodes at a time, so that another one may have it mounted.
    pub is_shared: bool,
    /// The staging path, as the mount table names it.
    pub staging: PathBuf,
    /// For how long the metadata may name a disk that has left.
    pub lag: Duration,
    /// What the operator lets decide on silence.
    pub on_silence: OnSilence,
}

/// What is on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnDevice {
    /// Provably nothing.
    Nothing,
    /// This volume's own unfinished format, and no file system.
    OwnFormat,
    /// One whole file system.
    Filesystem {
        /// The file system.
        found: Filesystem,
        /// This volume's own unfinished format stands beside it.
        is_unfinished: bool,
    },
    /// Something else, in words.
    Other(String),
}

impl OnDevice {
    /// The file system, if one was found.
    #[must_use]
    pub fn filesystem(&self) -> Option<&Filesystem> {
        match self {
            Self::Filesystem { found, .. } => Some(found),
            Self::Nothing | Self::OwnFormat | Self::Other(_) => None,
        }
    }

    /// Its name in what an operator accepts.
    fn key(&self) -> String {
        match self {
            Self::Nothing => "blank".to_owned(),
            Self::OwnFormat => "unfinished".to_owned(),
            Self::Filesystem { found, .. } => found.uuid.as_deref().unwrap_or(&found.kind).to_lowercase(),
            Self::Other(_) => "unusable".to_owned(),
        }
    }

    /// As far as it tells whose disk it is.
    fn class(&self, request: &Request, records: &Records, device: &Device) -> Content {
        match self {
            Self::Nothing => Content::Blank,
            Self::OwnFormat => Content::OwnFormat,
            Self::Other(_) => Content::Unusable,
            Self::Filesystem { found, is_unfinished } => {
                // Another node has given it to the volume since it was here.
                let own = request.own_fsid.as_str();
                let last = records.last_uuid().map(|last| if found.has_uuid(own) { own } else { last });
                match Content::of_filesystem(found.uuid.as_deref(), last, records.others(&request.lineage, device)) {
                    // An unfinished format names the volume that it was begun for.
                    Content::Unknown if *is_unfinished && last.is_none() => Content::OwnFormat,
                    content => content,
                }
            }
        }
    }
}

/// What an operator has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// The content, and what the metadata said against it.
    pub key: String,
    /// Whether the operator has said so.
    pub is_given: bool,
}

/// The file system that a format, or the end of one, has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// What is there.
    pub found: Filesystem,
    /// Whether it was made by this call.
    pub is_new: bool,
}

/// Whether a btrfs got an id of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnFsid {
    /// It has it now.
    Given,
    /// It keeps the one that it has, for this reason.
    Kept(String),
}

/// The members of a btrfs that is mounted on this machine, by whichever process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BtrfsMembers {
    /// Kernel names; none where it is not mounted.
    pub names: Vec<String>,
    /// The kernel name of the volume's device.
    pub own: Option<String>,
}

/// What was seen of a volume so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The disk at the LUN, before the metadata was asked.
    pub found: Option<Device>,
    /// What the metadata says.
    pub identity: Option<Identity>,
    /// All disks that the metadata lists; none where it does not answer.
    pub listed: Vec<Listed>,
    /// The disk at the LUN after that.
    pub disk: Option<Device>,
    /// What the machine shows of NVMe.
    pub nvme: Option<nvme::Machine>,
    /// The same disk when the kernel has read its size anew and was given time to see it.
    pub grown: Option<Device>,
    /// The partition; `Some(None)`: the disk lacks it.
    pub part: Option<Option<Device>>,
    /// What is at the staging path.
    pub at_path: Option<AtPath>,
    /// A dead mount there was taken away.
    pub is_dead_mount_gone: bool,
    /// The mount table.
    pub mounts: Option<Vec<Mounted>>,
    /// This call alone looks at btrfs devices and mounts one, and has waited for that before all else that was seen.
    pub has_btrfs_turn: bool,
    /// What is on the device.
    pub content: Option<OnDevice>,
    /// What the node remembers.
    pub records: Option<Records>,
    /// For how long the device with this content has stood for the volume.
    pub stood: Option<Stood>,
    /// An operator's word.
    pub acceptance: Option<Acceptance>,
    /// It was noted why the device is used.
    pub is_admitted: bool,
    /// What formatting has left.
    pub prepared: Option<Prepared>,
    /// The mount table, when the content was known.
    pub mounts_now: Option<Vec<Mounted>>,
    /// Whether the btrfs got an id of its own.
    pub own_fsid: Option<OwnFsid>,
    /// The members of the btrfs.
    pub btrfs: Option<BtrfsMembers>,
    /// The file system was checked and repaired.
    pub is_repaired: bool,
}

/// What to look at. Each look fills the field of [`Seen`] that it is named for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Wait for the disk at the LUN, and ask the metadata about it: `found`, `identity` and `listed`.
    DiskAndIdentity,
    /// The disk at the LUN now: `disk`.
    Disk,
    /// The NVMe controllers and their namespaces: `nvme`.
    Nvme,
    /// The disk, when it has so many bytes or time is over: `grown`.
    Size(Device, u64),
    /// This partition of the disk: `part`.
    Partition(Device, u32),
    /// What is at the staging path: `at_path`.
    StagingPath,
    /// The mount table: `mounts`.
    Mounts,
    /// Wait until no other call looks at btrfs devices, and begin anew: [`Seen::with_btrfs_turn`].
    BtrfsTurn,
    /// What is on the device: `content`.
    Content(Device),
    /// What is remembered of the volume, and of others with this UUID: `records`.
    Records(Option<String>),
    /// For how long this has stood for the volume, with what the metadata says of it: `stood`.
    Stood(Device, Metadata),
    /// Whether an operator has accepted this: `acceptance`.
    Acceptance(String),
    /// The mount table now: `mounts_now`.
    MountsNow,
    /// The members of this btrfs: `btrfs`.
    BtrfsMembers(Device, String),
}

/// Why a device is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// A witness speaks for it, and none against it.
    Proved,
    /// Its content is unlike what the node remembers, and the metadata has confirmed it for longer than it lags.
    AsConfirmed(Past),
    /// Nothing but LUN and size speaks for it; the operator lets them decide.
    ByLun,
    /// An operator has accepted what speaks against it, by this key.
    AsAccepted(Past, String),
}

/// What to do, and to note in the field of [`Seen`] that it is named for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Unmount what does not answer at the staging path: `is_dead_mount_gone`.
    UnmountDead {
        /// What looking at it said.
        error: String,
    },
    /// Note why the device is used: `is_admitted`.
    Admit(Admission),
    /// Make this file system, if the device is still blank or holds this volume's unfinished format: `prepared`.
    Format(Device, FsType),
    /// Check the file system beside this volume's unfinished format, and end the format: `prepared`.
    FinishFormat(Device, FsType),
    /// Give the btrfs this id, unless it cannot have it: `own_fsid`.
    GiveFsid(Device, String),
    /// Check the file system, and repair it: `is_repaired`.
    Repair(Device),
}

/// How a volume is staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// As a raw device: its record is all that is left to write.
    Raw,
    /// It is mounted already.
    Mounted(FsType),
    /// This file system is there, and is mounted as this type.
    Mount(Filesystem, FsType),
}

/// The end of the looks: what is staged from which device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// The whole disk.
    pub disk: Device,
    /// The disk or its partition.
    pub device: Device,
    /// How.
    pub how: How,
    /// Whether its file system may be grown afterwards.
    pub is_writable: bool,
    /// What an operator has accepted, to be used up.
    pub accepted: Option<String>,
}

/// What follows from what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look at this.
    Look(Look),
    /// Do this.
    Do(Act),
    /// Stage it.
    Stage(Box<Staged>),
    /// Leave it.
    Refuse(Box<Refusal>),
}

/// What a look or a refusal ends.
type Course<T> = Result<T, Box<Next>>;

fn look<T>(look: Look) -> Course<T> {
    Err(Box::new(Next::Look(look)))
}

fn act<T>(act: Act) -> Course<T> {
    Err(Box::new(Next::Do(act)))
}

fn refuse<T>(refusal: Refusal) -> Course<T> {
    Err(Box::new(Next::Refuse(Box::new(refusal))))
}

/// A device that is the disk at the LUN, or its partition, as large as it should be.
#[derive(Clone, Copy)]
struct Found<'a> {
    disk: &'a Device,
    device: &'a Device,
    identity: &'a Identity,
}

impl Found<'_> {
    /// The device, and the disk that it is a part of.
    fn both(&self) -> [&Device; 2] {
        [self.device, self.disk]
    }

    fn staged(&self, how: How, is_writable: bool, accepted: Option<String>) -> Staged {
        Staged { disk: self.disk.clone(), device: self.device.clone(), how, is_writable, accepted }
    }
}

/// The file system that is asked for, on a device that may allow less.
#[derive(Clone, Copy)]
struct Desired {
    fs: FsType,
    read_only: bool,
}

impl Seen {
    /// After the wait for the turn, which may have taken long: what was seen before it is stale, and is looked at again.
    #[must_use]
    pub fn with_btrfs_turn() -> Self {
        Self { has_btrfs_turn: true, ..Self::default() }
    }

    /// What to look at or to do next, or how the volume is staged.
    #[must_use]
    pub fn next(&self, request: &Request) -> Next {
        match self.course(request) {
            Ok(staged) => Next::Stage(Box::new(staged)),
            Err(next) => *next,
        }
    }

    fn course(&self, request: &Request) -> Course<Staged> {
        let (disk, identity) = self.disk(request)?;
        let device = match (request.partition, &self.part) {
            (None, _) => disk,
            (Some(partition), None) => return look(Look::Partition(disk.clone(), partition)),
            (Some(_), Some(Some(part))) => part,
            (Some(partition), Some(None)) => {
                return refuse(Refusal::NoPartition { partition, disk: disk.name.clone() });
            }
        };
        let found = Found { disk, device, identity };
        match request.mode {
            Mode::Raw => self.raw(request, found),
            Mode::Filesystem { fs, read_only } => {
                let desired = Desired { fs, read_only: read_only || device.read_only };
                self.filesystem(request, found, desired)
            }
        }
    }

    /// The disk at the LUN, the same before and after the metadata was asked, and as large as the volume and the metadata
    /// say. A larger one is fine when its size was read anew: it was grown, and what the metadata says is old. Without
    /// that the kernel may go by the size of the disk that was at the LUN before.
    fn disk(&self, request: &Request) -> Course<(&Device, &Identity)> {
        let (Some(found), Some(identity)) = (&self.found, &self.identity) else { return look(Look::DiskAndIdentity) };
        not_elsewhere(identity).or_else(refuse)?;
        // What was found before the disk was identified may have been its predecessor.
        let Some(disk) = &self.disk else { return look(Look::Disk) };
        same(found, disk)?;
        self.borne_out(disk, identity)?;
        let Some(least) = identity.size().max(request.size) else { return Ok((disk, identity)) };
        let wanted = request.fewest_bytes(least);
        let is_larger = identity.size().is_some_and(|size| disk.size_bytes > size.bytes());
        if disk.size_bytes >= wanted && !is_larger {
            return Ok((disk, identity));
        }
        let Some(grown) = &self.grown else { return look(Look::Size(disk.clone(), wanted)) };
        same(disk, grown)?;
        if grown.size_bytes < wanted {
            let found = grown.size_bytes;
            return refuse(Refusal::TooSmall { device: grown.name.clone(), found, wanted });
        }
        Ok((grown, identity))
    }

    /// A LUN that follows from an offset which an operator gave is checked against all that the metadata lists. Where that
    /// lists nothing of the volume, its content alone can speak for it; see [`decide`].
    fn borne_out(&self, disk: &Device, identity: &Identity) -> Course<()> {
        let given = disk.nvme.as_ref().filter(|_| !disk.is_lun_certain());
        let (Some(given), Some(lun)) = (given, disk.lun) else { return Ok(()) };
        if !matches!(identity.metadata, Metadata::Confirms(_) | Metadata::Unlisted) {
            return Ok(());
        }
        let Some(machine) = &self.nvme else { return look(Look::Nvme) };
        machine
            .bears_out(given, lun, &self.listed)
            .or_else(|why| refuse(Refusal::OffsetNotBorneOut { device: disk.name.clone(), nsid: given.nsid, why }))
    }

    fn raw(&self, request: &Request, found: Found<'_>) -> Course<Staged> {
        let Some(records) = &self.records else { return look(Look::Records(None)) };
        let Some(mounts) = &self.mounts else { return look(Look::Mounts) };
        let places: Vec<_> =
            [Some(request.staging.as_path()), records.own_place.as_deref()].into_iter().flatten().collect();
        if let Some(mounted) = staged_as_filesystem(mounts, &places, found.both()) {
            let (device, place) = (found.device.path.clone(), mounted.mount.target.clone());
            return refuse(Refusal::StagedAsFilesystem { device, place });
        }
        let content = match records.names(found.device) {
            true => Content::Last,
            false if records.names_another(found.device) => Content::RawOfAnother,
            false => Content::Raw,
        };
        let accepted = self.admitted(request, found, records, content, "raw".to_owned())?;
        Ok(found.staged(How::Raw, false, accepted))
    }

    fn filesystem(&self, request: &Request, found: Found<'_>, desired: Desired) -> Course<Staged> {
        let is_writable = !desired.read_only;
        if let Some(mounted) = self.mounted_already(found, desired)? {
            return match found.identity.contradicted_in_silence() {
                Some(contradiction) => refuse(Refusal::Elsewhere(contradiction.clone())),
                None => Ok(found.staged(How::Mounted(mounted), is_writable, None)),
            };
        }
        let Some(mounts) = &self.mounts else { return look(Look::Mounts) };
        not_raw(mounts, found)?;
        // Two copies of one btrfs must not be looked at and mounted side by side.
        if desired.fs == FsType::Btrfs && !self.has_btrfs_turn {
            return look(Look::BtrfsTurn);
        }
        let Some(content) = &self.content else { return look(Look::Content(found.device.clone())) };
        let Some(records) = &self.records else {
            return look(Look::Records(content.filesystem().and_then(|found| found.uuid.clone())));
        };
        let class = content.class(request, records, found.device);
        let accepted = self.admitted(request, found, records, class, content.key())?;
        let (filesystem, fs, is_new) = self.prepared(request, found, desired, content)?;
        let filesystem = match is_new {
            true => filesystem,
            false => self.sound(request, found, desired, (filesystem, fs), records)?,
        };
        Ok(found.staged(How::Mount(filesystem, fs), is_writable, accepted))
    }

    /// The file system that is mounted at the staging path already, where it is the volume's.
    fn mounted_already(&self, found: Found<'_>, desired: Desired) -> Course<Option<FsType>> {
        let Desired { fs, read_only } = desired;
        let top = match &self.at_path {
            None => return look(Look::StagingPath),
            Some(AtPath::Nothing) => return Ok(None),
            Some(AtPath::Dead { .. }) if self.is_dead_mount_gone => return Ok(None),
            Some(AtPath::Dead { error, .. }) => return act(Act::UnmountDead { error: error.clone() }),
            Some(AtPath::Mounted(top)) => top,
        };
        let existing = fs.existing(&top.mount.fs_type);
        match existing.filter(|_| top.is_of(found.device) && top.mount.read_only() == read_only) {
            Some(mounted) => Ok(Some(mounted)),
            None => {
                let (found, device) = (Box::new(top.mount.clone()), Box::new(found.device.clone()));
                refuse(Refusal::Occupied { found, device, fs, read_only })
            }
        }
    }

    /// Whether the device is the volume's disk, with what is on it. Gives what an operator has accepted.
    fn admitted(
        &self,
        request: &Request,
        found: Found<'_>,
        records: &Records,
        content: Content,
        key: String,
    ) -> Course<Option<String>> {
        let identity = found.identity;
        let Some(stood) = self.stood else { return look(Look::Stood(found.device.clone(), identity.metadata)) };
        let key = although(key, identity.contradiction.as_ref());
        let Some(acceptance) = &self.acceptance else { return look(Look::Acceptance(key)) };
        let last = records.last_uuid();
        let evidence = Evidence {
            metadata: identity.metadata,
            contradicted: identity.contradiction.is_some(),
            content,
            was_here: last.is_some(),
            seen_for: stood.seen_for,
            confirmed_for: stood.confirmed_for,
            lag: request.lag,
            // A word about another content is none about this one.
            accepted: acceptance.is_given && acceptance.key == key,
            on_silence: request.on_silence,
            is_lun_given: !found.disk.is_lun_certain(),
            is_other_size: found.disk.nvme.is_some()
                && identity.size().is_some_and(|size| !is_size(found.disk.size_bytes, size)),
        };
        let past = Past { content, other: records.other().map(str::to_owned), last: last.map(str::to_owned) };
        let unproved = |why| refuse(Refusal::Unproved { device: found.device.path.clone(), why });
        let (admission, accepted) = match decide(&evidence) {
            Decision::Use => (Admission::Proved, None),
            Decision::UseAsConfirmed => (Admission::AsConfirmed(past), None),
            Decision::UseByLun => (Admission::ByLun, None),
            Decision::UseAsAccepted => (Admission::AsAccepted(past, key.clone()), Some(key)),
            Decision::WaitForLag(more) => return unproved(Unproved::WaitForLag(more, past)),
            Decision::WaitForOffset(more) => return unproved(Unproved::WaitForOffset(more)),
            Decision::Mismatch => return unproved(Unproved::Mismatch(past)),
            Decision::Contradicted => return unproved(Unproved::Contradicted(identity.contradiction.clone())),
            Decision::OtherSize => {
                let listed = identity.size().map(Gib::bytes).unwrap_or_default();
                let (device, found) = (found.disk.name.clone(), found.disk.size_bytes);
                return refuse(Refusal::TooLarge { device, found, listed });
            }
            Decision::Unconfirmed => return unproved(Unproved::Unconfirmed),
            Decision::UnconfirmedForLong => return unproved(Unproved::UnconfirmedForLong),
        };
        if self.is_admitted { Ok(accepted) } else { act(Act::Admit(admission)) }
    }

    /// The file system to mount, of which type, and whether this call made it. A device is formatted only where it is
    /// provably blank, or holds nothing but this volume's own unfinished format.
    fn prepared(
        &self,
        request: &Request,
        found: Found<'_>,
        desired: Desired,
        content: &OnDevice,
    ) -> Course<(Filesystem, FsType, bool)> {
        let (device, path) = (|| found.device.clone(), || found.device.path.clone());
        let existing = |filesystem: &Filesystem| match desired.fs.existing(&filesystem.kind) {
            Some(fs) => Ok(fs),
            None => {
                let (found, wanted) = (filesystem.kind.clone(), desired.fs);
                refuse(Refusal::WrongType { device: path(), found, wanted })
            }
        };
        let prepared = match (content, &self.prepared) {
            (OnDevice::Other(what), _) => {
                return refuse(Refusal::NoFilesystem { device: path(), found: what.clone() });
            }
            (OnDevice::Nothing | OnDevice::OwnFormat, _) if desired.read_only || request.has_content => {
                return refuse(Refusal::Blank { device: path() });
            }
            (OnDevice::Nothing | OnDevice::OwnFormat, None) => return act(Act::Format(device(), desired.fs)),
            (OnDevice::Filesystem { found, is_unfinished: false }, _) => {
                return Ok((found.clone(), existing(found)?, false));
            }
            (OnDevice::Filesystem { found, is_unfinished: true }, None) => {
                existing(found)?;
                return act(Act::FinishFormat(device(), desired.fs));
            }
            (_, Some(prepared)) => prepared,
        };
        // It is looked at again before it is formatted, and another process may have formatted it meanwhile.
        let before = content.filesystem();
        if !prepared.is_new && before.is_none_or(|before| before.uuid != prepared.found.uuid) {
            let (before, after) = (Thing::Content(before.cloned()), Thing::Content(Some(prepared.found.clone())));
            let (before, after) = (Box::new(before), Box::new(after));
            return refuse(Refusal::Changed { before, after });
        }
        Ok((prepared.found.clone(), existing(&prepared.found)?, prepared.is_new))
    }

    /// The file system that was there, as it is mounted: no copy of it is in use, and its check has passed. A repair
    /// writes, and one beside a mount destroys.
    fn sound(
        &self,
        request: &Request,
        found: Found<'_>,
        desired: Desired,
        (filesystem, fs): (Filesystem, FsType),
        records: &Records,
    ) -> Course<Filesystem> {
        let Some(mounts) = &self.mounts_now else { return look(Look::MountsNow) };
        not_raw(mounts, found)?;
        let is_written = !desired.read_only && !mounts.iter().any(|mounted| mounted.is_of(found.device));
        let filesystem = match fs {
            FsType::Btrfs => self.single_btrfs(request, found, filesystem, (mounts, records), is_written)?,
            FsType::Ext4 | FsType::Ext3 | FsType::Ext2 | FsType::Xfs => filesystem,
        };
        match !is_written || self.is_repaired {
            true => Ok(filesystem),
            false => act(Act::Repair(found.device.clone())),
        }
    }

    /// A btrfs that no other device of this machine has in use. One that was copied with its disk first gets an id of its
    /// own, by which it is told from what it was copied from. A disk that several nodes may have keeps its id: another
    /// node may have it mounted, and this one does not see that.
    fn single_btrfs(
        &self,
        request: &Request,
        found: Found<'_>,
        filesystem: Filesystem,
        (mounts, records): (&[Mounted], &Records),
        is_written: bool,
    ) -> Course<Filesystem> {
        let Some(fsid) = filesystem.uuid.clone() else { return Ok(filesystem) };
        let is_copy = !request.lineage.line.is_empty();
        let is_given = match &self.own_fsid {
            _ if !is_copy || !is_written || request.is_shared || filesystem.has_uuid(&request.own_fsid) => false,
            None => return act(Act::GiveFsid(found.device.clone(), request.own_fsid.clone())),
            Some(OwnFsid::Given) => true,
            Some(OwnFsid::Kept(_)) => false,
        };
        let fsid = if is_given { request.own_fsid.clone() } else { fsid };
        let Some(members) = &self.btrfs else {
            return look(Look::BtrfsMembers(found.device.clone(), fsid));
        };
        // What is remembered is of the id that it had.
        let others = if is_given { &[] } else { records.here.as_slice() };
        if let Some(other) = twin(found.device, mounts, others, members) {
            return refuse(Refusal::TwinBtrfs { fsid, other });
        }
        Ok(Filesystem { uuid: Some(fsid), ..filesystem })
    }
}

impl Request {
    /// How many bytes a device of at least this size has. Azure rounds the size of what was made from a source that has no
    /// whole number of GiB.
    fn fewest_bytes(&self, size: Gib) -> u64 {
        match self.has_content {
            true => size.bytes().saturating_sub(Gib::new(1).bytes() - 1),
            false => size.bytes(),
        }
    }
}

/// What the metadata has just said against the disk: it ends the wait for the disk too.
///
/// # Errors
/// [`Refusal::Elsewhere`].
pub fn not_elsewhere(identity: &Identity) -> Result<(), Refusal> {
    identity.contradicts().map_or(Ok(()), |contradiction| Err(Refusal::Elsewhere(contradiction.clone())))
}

fn same(before: &Device, after: &Device) -> Course<()> {
    match before.is_same_as(after) {
        true => Ok(()),
        false => {
            let thing = |device: &Device| Box::new(Thing::Disk(device.name.clone()));
            let (before, after) = (thing(before), thing(after));
            refuse(Refusal::Changed { before, after })
        }
    }
}

fn not_raw(mounts: &[Mounted], found: Found<'_>) -> Course<()> {
    match handed_out_raw(mounts, found.both()) {
        None => Ok(()),
        Some(raw) => {
            let (device, place) = (found.device.path.clone(), raw.mount.target.clone());
            refuse(Refusal::HandedOutRaw { device, place })
        }
    }
}

/// Another volume or device with this btrfs that is mounted: the kernel tells btrfs devices apart by nothing but its id.
fn twin(device: &Device, mounts: &[Mounted], here: &[Record], members: &BtrfsMembers) -> Option<String> {
    let others = here.iter().filter(|other| other.device != Some(device.number));
    let is_mounted = |number| mounts.iter().any(|mounted| mounted.number() == number);
    if let Some(other) = others.into_iter().find(|other| other.device.is_some_and(is_mounted)) {
        return Some(other.volume_id.clone());
    }
    let is_own = |name: &&String| Some(*name) == members.own.as_ref();
    match members.names.iter().any(|name| is_own(&name)) {
        true => None,
        false => members.names.first().cloned(),
    }
}
