//! Why a node call failed, and the code that kubelet gets.
//!
//! kubelet reads `CANCELLED`, `DEADLINE_EXCEEDED`, `UNAVAILABLE`, `RESOURCE_EXHAUSTED` and `ABORTED` as "may have
//! happened": it will call the reverse operation. Every other code of a stage or publish is final: it believes that
//! nothing is mounted and will not unstage. So what fails after a mount is always `UNAVAILABLE`
//! ([`NodeError::AfterMount`]), and all of these are tried again.

use std::{path::PathBuf, time::Duration};

use lazuli_azure::imds::ImdsError;
use lazuli_host::{
    RawError, device::FindError, format::FormatError, fsck::CheckError, mount::MountError, options::OptionError,
    release::ReleaseError, resize::ResizeError, stats::StatsError, tuning::TuningError,
    volume_records::VolumeRecordsError,
};
use lazuli_model::{Lun, VolumeIdError, fault::Code};
use lazuli_staging::nvme::Disagreement;
use lazuli_telemetry::panics::Panicked;
use lazuli_volume::{CapabilityError, ParameterError};

use crate::{calls::CallError, fields::FieldError, locks::InProgress, mount_code::of_mount};

/// Why a node call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodeError {
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("the volume id cannot be used")]
    VolumeId(#[source] VolumeIdError),
    #[error("the volume capability cannot be used")]
    Capability(#[source] CapabilityError),
    #[error("the volume's parameters cannot be used")]
    Parameter(#[source] ParameterError),
    #[error("the mount flags cannot be used")]
    Flags(#[source] OptionError),
    #[error(transparent)]
    InProgress(#[from] InProgress),
    #[error("{}", not_found(.0))]
    Find(#[source] FindError),
    #[error(
        "{device}, namespace {nsid}, would be the disk at LUN {lun} by the offset {}; because --nvme-lun-offset is given, it is \
         used only while the instance metadata bears that offset out, and now it does not: {why}",
        nsid.saturating_sub(u32::from(lun.get()))
    )]
    OffsetNotBorneOut { device: String, nsid: u32, lun: Lun, why: Disagreement },
    #[error(
        "{device} is the disk at LUN {lun} by --nvme-lun-offset, and the instance metadata agrees, but may lack disks because \
         it lags; the volume is used once it has agreed for {} s more", more.as_secs()
    )]
    OffsetNew { device: String, lun: Lun, more: Duration },
    #[error(
        "the instance metadata has the disk at LUN {lun}, it is not known which disk of this node that is, and {device} may be \
         it, which is not released; this node has no record of the volume, so no other disk will do"
    )]
    AnyRelease { lun: Lun, device: String, source: ReleaseError },
    #[error(
        "the instance metadata has the disk at LUN {lun}, it is not known which disk of this node that is, and an NVMe \
         controller does not show its disks now; this node has no record of the volume, so it waits for all of them"
    )]
    DisksHidden { lun: Lun },
    #[error("partition {partition} of {device} is not there")]
    NoPartition { partition: u32, device: String },
    #[error("LUN {lun} holds {found}, not {wanted}")]
    OtherDisk { lun: Lun, found: String, wanted: String },
    #[error("{wanted} is at LUN {found}, not at LUN {told} where it was attached")]
    OtherLun { wanted: String, found: Lun, told: Lun },
    #[error(
        "{device} holds {found}, but {had}; the instance metadata names this disk and may lag, so the volume is used \
         once the metadata has named it for {} s more", more.as_secs()
    )]
    IdentityMismatch { device: String, found: String, had: String, more: Duration },
    #[error(
        "{device} holds {found}, but {had}, and the instance metadata does not confirm which disk it is: {why}; the \
         disk is not used for as long as that is so: see that http://169.254.169.254 can be reached from this node and \
         lists the disk at its LUN, or, if it is this volume's disk all the same, create the empty file {} in the node \
         plugin's container{}", acceptance.display(), of_blank(found)
    )]
    IdentityUnconfirmed { device: String, found: String, had: String, why: String, acceptance: PathBuf },
    #[error(
        "the instance metadata has named {named} since it last named {wanted} there, and does not confirm which disk \
         {device} with {found} is: {why}; the disk is not used for as long as that is so: see that \
         http://169.254.169.254 can be reached from this node and lists the disk at its LUN, or, if it is this volume's \
         disk all the same, create the empty file {} in the node plugin's container{}",
        acceptance.display(), of_blank(found)
    )]
    Contradicted {
        wanted: Box<str>,
        named: Box<str>,
        device: Box<str>,
        found: String,
        why: Box<str>,
        acceptance: PathBuf,
    },
    #[error(
        "{device} is where the disk should be, and the instance metadata does not say which disk it is: {why}; this \
         node has never had the volume, so it waits for an answer"
    )]
    Unseen { device: String, why: String },
    #[error(
        "{device} is where the disk should be, and for more than a minute the instance metadata has not said which \
         disk it is: {why}; this node has never had the volume, so it waits for an answer: see that \
         http://169.254.169.254 can be reached from this node and lists the disk at its LUN, or let the LUN decide \
         with the node plugin's --on-silent-imds=tolerate"
    )]
    UnseenForLong { device: String, why: String },
    #[error("{device} at LUN {lun} has {found} bytes, {wanted} were expected")]
    Size { device: String, lun: Lun, found: u64, wanted: u64 },
    #[error("the device at LUN {lun} changed from {before} to {after} while it was looked at")]
    Changed { lun: Lun, before: String, after: String },
    #[error(
        "btrfs {fsid} is in use on {other} already; mounting a copy of it on the same node would damage both: use \
         another node, or give the copy its own id with btrfstune -m"
    )]
    TwinBtrfs { fsid: String, other: String },
    #[error("cannot prepare the file system")]
    Format(#[source] Box<FormatError>),
    #[error("the file system cannot be mounted")]
    Check(#[source] CheckError),
    #[error("a device setting of the volume cannot be applied")]
    Setting(#[source] TuningError),
    #[error("cannot mount or unmount")]
    Mount(#[source] MountError),
    #[error("{} has {found} mounted, {wanted} was asked for", path.display())]
    Incompatible { path: PathBuf, found: String, wanted: String },
    #[error("{device} is {found} at {}, and {wanted} was asked for: a disk is one of the two at a time", place.display())]
    OtherVolumeMode { device: String, found: &'static str, place: PathBuf, wanted: &'static str },
    #[error("{} is the staging path of {other}, which is left as it is", path.display())]
    StagingOfAnother { path: PathBuf, other: String },
    #[error("the volume is mounted, but not ready")]
    AfterMount(#[source] Box<Self>),
    #[error("the volume is not staged at {}", .0.display())]
    NotStaged(PathBuf),
    #[error("the volume is published at {} and its access mode allows one pod only", .0.display())]
    PublishedElsewhere(PathBuf),
    #[error(
        "nothing is mounted at {}, and this node has no record of the volume, so the instance metadata alone can say whether \
         its disk is still attached, and is silent: {why}; the volume stays staged until the metadata answers: see that \
         http://169.254.169.254 can be reached from this node",
        path.display()
    )]
    ReleaseUnproved { path: PathBuf, why: String },
    #[error("the disk cannot be released")]
    Release(#[source] ReleaseError),
    #[error("the volume cannot be grown")]
    Grow(#[source] ResizeError),
    #[error("{} is mounted read-only and cannot be grown", .0.display())]
    ReadOnly(PathBuf),
    #[error("{why}")]
    Range { why: String },
    #[error("no volume is at {}", .0.display())]
    NoVolume(PathBuf),
    #[error("what is mounted at {} does not answer: {error}", path.display())]
    Dead { path: PathBuf, error: String },
    #[error("the disk {disk} of what is mounted at {} is gone from this machine", path.display())]
    DiskGone { path: PathBuf, disk: String },
    #[error("the volume cannot be measured")]
    Stats(#[source] StatsError),
    #[error("cannot keep the node's record of the volume")]
    VolumeRecords(#[source] VolumeRecordsError),
    #[error("what this machine is cannot be told, and is not remembered from before")]
    Instance(#[source] ImdsError),
    #[error("the instance metadata service did not answer within {0:?}, and nothing is remembered from before")]
    Silent(Duration),
    #[error("the task of this call was lost")]
    Task,
    #[error("the call was broken off; the log of this process says where")]
    Panicked(#[source] Panicked),
}

impl CallError for NodeError {
    /// The code; see the module for how kubelet reads it.
    fn code(&self) -> Code {
        match self {
            Self::Field(_)
            | Self::VolumeId(_)
            | Self::Capability(CapabilityError::NoCapability | CapabilityError::NoAccessType)
            | Self::Flags(_) => Code::InvalidArgument,
            // CSI's own code for a capability that the volume does not have.
            Self::Capability(_) => Code::FailedPrecondition,
            Self::Parameter(error) => error.code(),
            Self::InProgress(_) => Code::Aborted,
            Self::Find(FindError::Read { .. } | FindError::Task { .. }) => Code::Internal,
            Self::Find(_)
            | Self::NoPartition { .. }
            | Self::OtherDisk { .. }
            | Self::OtherLun { .. }
            | Self::OffsetNotBorneOut { .. }
            | Self::OffsetNew { .. }
            | Self::AnyRelease { .. }
            | Self::DisksHidden { .. }
            | Self::Size { .. }
            | Self::Changed { .. }
            | Self::IdentityMismatch { .. }
            | Self::IdentityUnconfirmed { .. }
            | Self::Contradicted { .. }
            | Self::Unseen { .. }
            | Self::UnseenForLong { .. }
            | Self::AfterMount(_)
            | Self::ReleaseUnproved { .. }
            | Self::Instance(_)
            | Self::Silent(_)
            // What it did before it was lost may have taken effect: kubelet must not take it for undone.
            | Self::Task
            | Self::Panicked(_) => Code::Unavailable,
            Self::TwinBtrfs { .. }
            | Self::StagingOfAnother { .. }
            | Self::NotStaged(_)
            | Self::PublishedElsewhere(_)
            | Self::ReadOnly(_) => Code::FailedPrecondition,
            Self::Format(error) => match **error {
                // The user asked for something else than what is there: no retry cures that.
                FormatError::WrongType { .. }
                | FormatError::Refused { .. }
                | FormatError::Blank { .. }
                | FormatError::TooSmall { .. }
                | FormatError::Unfinished { .. } => Code::FailedPrecondition,
                FormatError::Busy { .. } => Code::Unavailable,
                // A mkfs that survived the process which had started it: it ends.
                FormatError::Orphan { .. } | FormatError::Raw(RawError::InUse { .. }) => Code::Unavailable,
                _ => Code::Internal,
            },
            Self::Check(CheckError::Uncorrected { .. }) => Code::FailedPrecondition,
            Self::Setting(TuningError::Outside(_)) => Code::InvalidArgument,
            Self::Check(_) | Self::Setting(_) => Code::Internal,
            Self::Mount(error) => of_mount(error),
            Self::Incompatible { .. } | Self::OtherVolumeMode { .. } => Code::AlreadyExists,
            Self::Release(ReleaseError::InUse { .. }) => Code::FailedPrecondition,
            Self::Release(ReleaseError::Call(_)) => Code::Unavailable,
            Self::Grow(
                ResizeError::TooSmall { .. }
                | ResizeError::Call(_)
                | ResizeError::Rescan { .. }
                | ResizeError::Find { .. },
            ) => Code::Unavailable,
            Self::Stats(StatsError::Call(_)) => Code::Unavailable,
            Self::Range { .. } => Code::OutOfRange,
            Self::NoVolume(_) => Code::NotFound,
            Self::Release(_)
            | Self::Grow(_)
            | Self::Dead { .. }
            | Self::DiskGone { .. }
            | Self::Stats(_)
            | Self::VolumeRecords(_) => Code::Internal,
        }
    }

    fn lost() -> Self {
        Self::Task
    }

    fn panicked(panicked: Panicked) -> Self {
        Self::Panicked(panicked)
    }
}

/// What it means that no disk was found at a LUN.
fn not_found(error: &FindError) -> &'static str {
    match error {
        FindError::Unplaced { .. } => "it is not known which disk of this node is the volume's",
        _ => "the disk is not visible on this node yet",
    }
}

/// What becomes of an accepted disk that holds nothing.
fn of_blank(found: &str) -> &'static str {
    if found == "nothing" { ", and it is formatted" } else { "" }
}
