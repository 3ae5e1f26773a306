//! Refusals of [`lazuli_staging`] in words.

use std::path::{Path, PathBuf};

use lazuli_host::format::FormatError;
use lazuli_model::Lun;
use lazuli_staging::{
    Filesystem, Past, Refusal, Thing, Unproved,
    device_identity::{Content, Contradiction},
    stage::OnDevice,
};

use super::error::NodeError;

/// What the words name beside the refusal itself.
#[derive(Debug)]
pub(super) struct Context<'a> {
    /// The volume.
    pub(super) volume: &'a str,
    /// Where it was attached.
    pub(super) lun: Lun,
    /// Its staging path.
    pub(super) staging: &'a Path,
    /// Why the metadata does not confirm the disk.
    pub(super) why: &'a str,
    /// What is on the device.
    pub(super) found: String,
    /// The file by which an operator accepts it.
    pub(super) acceptance: PathBuf,
}

impl Context<'_> {
    /// The failure of the call.
    pub(super) fn failure(self, refusal: Refusal) -> NodeError {
        match refusal {
            Refusal::Elsewhere(Contradiction::OtherDisk(found)) => {
                NodeError::OtherDisk { lun: self.lun, found, wanted: self.volume.to_owned() }
            }
            Refusal::Elsewhere(Contradiction::OtherLun(found)) => {
                NodeError::OtherLun { wanted: self.volume.to_owned(), found, told: self.lun }
            }
            Refusal::Changed { before, after } => {
                NodeError::Changed { lun: self.lun, before: thing(*before), after: thing(*after) }
            }
            Refusal::TooSmall { device, found, wanted } => NodeError::Size { device, lun: self.lun, found, wanted },
            Refusal::TooLarge { device, found, listed } => {
                NodeError::Size { device, lun: self.lun, found, wanted: listed }
            }
            Refusal::OffsetNotBorneOut { device, nsid, why } => {
                NodeError::OffsetNotBorneOut { device, nsid, lun: self.lun, why }
            }
            Refusal::NoPartition { partition, disk } => NodeError::NoPartition { partition, device: disk },
            Refusal::Unproved { device, why } => self.unproved(device.display().to_string(), why),
            Refusal::Occupied { found, device, fs, read_only } => {
                let written = |read_only| if read_only { "read-only" } else { "writable" };
                let (source, is) = (found.source.display(), written(found.read_only()));
                let (node, wanted) = (device.path.display(), written(read_only));
                NodeError::Incompatible {
                    path: self.staging.to_owned(),
                    found: format!("{} of {source} ({}), {is}", found.fs_type, found.device),
                    wanted: format!("{fs} of {node} ({}), {wanted}", device.number),
                }
            }
            Refusal::HandedOutRaw { device, place } => {
                let found = "handed out as a raw device";
                NodeError::OtherVolumeMode {
                    device: device.display().to_string(),
                    found,
                    place,
                    wanted: "a file system",
                }
            }
            Refusal::StagedAsFilesystem { device, place } => {
                let (device, wanted) = (device.display().to_string(), "the raw device");
                NodeError::OtherVolumeMode { device, found: "mounted", place, wanted }
            }
            Refusal::Blank { device } => of_content(FormatError::Blank { device: device.display().to_string() }),
            Refusal::WrongType { device, found, wanted } => {
                of_content(FormatError::WrongType { device: device.display().to_string(), found, wanted })
            }
            Refusal::NoFilesystem { device, found } => {
                of_content(FormatError::Refused { device: device.display().to_string(), found })
            }
            Refusal::TwinBtrfs { fsid, other } => NodeError::TwinBtrfs { fsid, other },
            Refusal::NotStaged => NodeError::NotStaged(self.staging.to_owned()),
        }
    }

    fn unproved(self, device: String, unproved: Unproved) -> NodeError {
        let Self { found, acceptance, .. } = self;
        let why = self.why.to_owned();
        match unproved {
            Unproved::WaitForLag(more, past) => {
                NodeError::IdentityMismatch { device, found, had: remembered(&past), more }
            }
            Unproved::WaitForOffset(more) => NodeError::OffsetNew { device, lun: self.lun, more },
            Unproved::Mismatch(past) => {
                NodeError::IdentityUnconfirmed { device, found, had: remembered(&past), why, acceptance }
            }
            Unproved::Contradicted(contradiction) => NodeError::Contradicted {
                wanted: self.volume.into(),
                named: named(contradiction.as_ref(), self.lun).into(),
                device: device.into(),
                found,
                why: why.into(),
                acceptance,
            },
            Unproved::Unconfirmed => NodeError::Unseen { device, why },
            Unproved::UnconfirmedForLong => NodeError::UnseenForLong { device, why },
        }
    }
}

fn of_content(error: FormatError) -> NodeError {
    NodeError::Format(Box::new(error))
}

fn thing(thing: Thing) -> String {
    match thing {
        Thing::Disk(name) => name,
        Thing::Content(None) => "no file system".to_owned(),
        Thing::Content(Some(filesystem)) => described(&filesystem),
    }
}

fn described(filesystem: &Filesystem) -> String {
    format!("{} {}", filesystem.kind, filesystem.uuid.as_deref().unwrap_or("without a UUID"))
}

/// What is on a device, in words; `None`: it is used as it is.
pub(super) fn content(content: Option<&OnDevice>) -> String {
    match content {
        None => "a raw volume".to_owned(),
        Some(OnDevice::Nothing) => "nothing".to_owned(),
        Some(OnDevice::OwnFormat) => "an unfinished format".to_owned(),
        Some(OnDevice::Filesystem { found, .. }) => described(found),
        Some(OnDevice::Other(_)) => "what is no file system".to_owned(),
    }
}

/// What the node remembers of the volume or of its content, in words.
pub(super) fn remembered(past: &Past) -> String {
    match (past.content, &past.other, &past.last) {
        (Content::OfAnother | Content::CopyOfAnother | Content::LastAndCopied, Some(other), _) => {
            format!("that file system was here as {other}'s before")
        }
        (Content::RawOfAnother, ..) => {
            "this volume was staged here from another disk since the machine started".to_owned()
        }
        (_, _, Some(last)) => format!("this volume had the file system {last} when it was here before"),
        (_, _, None) => "this node has never had the volume".to_owned(),
    }
}

/// What the metadata said against a volume at its LUN, in words.
fn named(contradiction: Option<&Contradiction>, lun: Lun) -> String {
    match contradiction {
        None => format!("another disk at LUN {lun}"),
        Some(Contradiction::OtherDisk(found)) => format!("{found} at LUN {lun}"),
        Some(Contradiction::OtherLun(found)) => format!("LUN {found} as its place, not LUN {lun}"),
    }
}
