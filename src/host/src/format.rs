//! Making a file system on a blank device, so that a crash at any instant loses neither foreign
//! data nor the volume.
//!
//! ```text
//!            claim, look again       write + flush            mkfs         flush, erase the intent
//!   Blank ───────────────────> ─────────────────────> Ours ───────> ──────────────────────────────> Filesystem
//!     ^                              crash: Ours        │ crash: Ours, or Filesystem + unfinished
//!     └── nothing else leads to mkfs ──────────────────┘
//!   Filesystem + unfinished: read-only check passes -> erase the intent -> Filesystem; else an error
//! ```
//!
//! Flags have the effect of the Go driver's (`-F -m0`, `-f`), plus two: discard off, so that `mkfs`
//! does not wipe the intent block with everything else, and the UUID, so that its work is recognised.
//!
//! A running `mkfs` holds the device exclusively, also one whose parent was killed; every attempt
//! claims the device first and so cannot run beside it. One that has not opened the device yet has it as its standard
//! input, and is found by that while the claim keeps it from starting.

use std::sync::Arc;
use std::time::Duration;

use rustix::thread::CapabilitySet;

use super::child::{self, Call, ChildError};
use super::device::Device;
use super::fs_type::{FsType, Make as _};
use super::fsck::{self, CheckError};
use super::intent::{self, IntentBlock};
use super::orphan;
use super::probe::{Filesystem, ProbeError, Verdict, probe};
use super::raw::{RawDisk, RawError};
use super::{Deadline, Host};

/// Whether a blank device may be given a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBlank {
    /// A new, empty disk, staged for writing.
    Format,
    /// A disk made from a snapshot, clone or image, or a read-only stage: blank means that something
    /// is wrong.
    Refuse,
}

/// What is to be on the device.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The volume id; ties an unfinished format to this volume.
    pub volume: &'a str,
    /// The wanted file system. An existing one that it takes ([`FsType::existing`]) is left as it is.
    pub fs: FsType,
    /// What to do with a blank device.
    pub when_blank: WhenBlank,
}

/// How the file system came to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was there.
    Existing(Filesystem),
    /// It was made now.
    Created(Filesystem),
    /// An earlier, interrupted attempt had made it; it was checked and accepted.
    Completed(Filesystem),
}

impl Outcome {
    /// The file system on the device.
    #[must_use]
    pub fn filesystem(&self) -> &Filesystem {
        match self {
            Self::Existing(found) | Self::Created(found) | Self::Completed(found) => found,
        }
    }
}

/// Why there is no usable file system on the device.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The device could not be looked at.
    #[error("cannot tell what is on {device}")]
    Probe {
        /// The device node.
        device: String,
        /// Why.
        #[source]
        source: ProbeError,
    },
    /// The device holds something else. It is left as it is.
    #[error("{device} is not blank and holds no usable file system: {found}; it is left untouched")]
    Refused {
        /// The device node.
        device: String,
        /// What it holds.
        found: String,
    },
    /// Another file system type than the wanted one.
    #[error("{device} holds {found}, {wanted} was asked for")]
    WrongType {
        /// The device node.
        device: String,
        /// What is there.
        found: String,
        /// What was asked for.
        wanted: FsType,
    },
    /// Blank, and it must not be formatted.
    #[error("{device} is blank and must not be formatted: it should hold a file system already")]
    Blank {
        /// The device node.
        device: String,
    },
    /// Too small for an intent block.
    #[error("{device} has {size_bytes} bytes, less than the {} needed", intent::MIN_DEVICE_BYTES)]
    TooSmall {
        /// The device node.
        device: String,
        /// Its size.
        size_bytes: u64,
    },
    /// An interrupted attempt of ours left a file system that does not pass its check. It holds no
    /// data of a pod, but nothing is formatted over a file system.
    #[error("{device} holds a damaged {kind} from an interrupted format of this volume; clear it with wipefs")]
    Unfinished {
        /// The device node.
        device: String,
        /// Its type.
        kind: String,
        /// What the check said.
        #[source]
        source: CheckError,
    },
    /// The device could not be claimed, read or written.
    #[error("cannot prepare the device")]
    Raw(#[source] RawError),
    /// All places for formatting were taken until the deadline.
    #[error("other devices are being formatted, no place became free for {device} in time")]
    Busy {
        /// The device node.
        device: String,
    },
    /// A program that an earlier process of ours started still holds the device.
    #[error("{program} (pid {pid}), started by an earlier process, is still to end on {device}")]
    Orphan {
        /// The device node.
        device: String,
        /// Its program.
        program: String,
        /// Its process id.
        pid: u32,
    },
    /// `mkfs` could not run to its end.
    #[error("cannot make {fs} on {device}")]
    Mkfs {
        /// The device node.
        device: String,
        /// The type.
        fs: FsType,
        /// Why.
        #[source]
        source: ChildError,
    },
    /// `mkfs` said no.
    #[error("mkfs.{fs} failed on {device}: {ending}")]
    MkfsFailed {
        /// The device node.
        device: String,
        /// The type.
        fs: FsType,
        /// Exit code and standard error.
        ending: String,
    },
    /// The blocking task was lost.
    #[error("the formatting task of {device} was lost")]
    Task {
        /// The device node.
        device: String,
    },
}

/// Sees to it that the device holds the wanted file system; formats only a device that is provably
/// blank or holds nothing but this volume's own unfinished format.
///
/// `seen` is what a look at the device said a moment ago, where there was one; before anything is written it is looked
/// at again in any case.
///
/// The caller makes sure that one volume is worked on by one task at a time. Dropping the future
/// kills `mkfs`; the next call recovers.
///
/// # Errors
/// See [`FormatError`].
pub async fn ensure_filesystem(
    host: &Host,
    device: &Device,
    request: Request<'_>,
    seen: Option<Verdict>,
    deadline: Deadline,
) -> Result<Outcome, FormatError> {
    let verdict = match seen {
        Some(verdict) => verdict,
        None => look(host, device, request.volume, deadline).await?,
    };
    match verdict {
        Verdict::Blank | Verdict::Ours(_) => format(host, device, request, deadline).await,
        other => settle(host, device, request, other, deadline).await,
    }
}

/// Handles every verdict that does not lead to `mkfs`.
async fn settle(
    host: &Host,
    device: &Device,
    request: Request<'_>,
    verdict: Verdict,
    deadline: Deadline,
) -> Result<Outcome, FormatError> {
    let name = || device.path.display().to_string();
    match verdict {
        Verdict::Filesystem { found, .. } if request.fs.existing(&found.kind).is_none() => {
            Err(FormatError::WrongType { device: name(), found: found.kind, wanted: request.fs })
        }
        Verdict::Filesystem { found, unfinished: None } => Ok(Outcome::Existing(found)),
        Verdict::Filesystem { found, unfinished: Some(intent) } => {
            accept(host, device, request, found, intent, deadline).await
        }
        other @ (Verdict::PartitionTable { .. }
        | Verdict::Foreign { .. }
        | Verdict::Ambiguous { .. }
        | Verdict::Blank
        | Verdict::Ours(_)) => Err(match other.unusable() {
            Some(found) => FormatError::Refused { device: name(), found },
            None => FormatError::Blank { device: name() },
        }),
    }
}

/// A file system beside an intent block of this volume.
async fn accept(
    host: &Host,
    device: &Device,
    request: Request<'_>,
    found: Filesystem,
    intent: IntentBlock,
    deadline: Deadline,
) -> Result<Outcome, FormatError> {
    // A mkfs that has closed the device and not ended, and one that was only just started, claim nothing.
    refuse_an_orphan(host, device).await?;
    let ours = intent.nonce.to_string();
    let made_by_us = found.uuid.as_deref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(&ours));
    if made_by_us {
        // A mkfs that outlived the process which had started it may still be writing it: then nothing can be said.
        drop(claim(device).await?);
        // Its last writes may not have reached the disk when the machine went down.
        fsck::verify(host, device, request.fs, deadline).await.map_err(|source| FormatError::Unfinished {
            device: device.path.display().to_string(),
            kind: found.kind.clone(),
            source,
        })?;
    }
    // Someone else's file system made the intent a lie; either way it must not stand there when the
    // first superblock is damaged one day.
    on_claimed_disk(device, request.volume, |disk, volume| intent::erase_all(&disk, &volume)).await?;
    Ok(if made_by_us { Outcome::Completed(found) } else { Outcome::Existing(found) })
}

async fn format(
    host: &Host,
    device: &Device,
    request: Request<'_>,
    deadline: Deadline,
) -> Result<Outcome, FormatError> {
    let name = || device.path.display().to_string();
    if request.when_blank == WhenBlank::Refuse {
        return Err(FormatError::Blank { device: name() });
    }
    if device.size_bytes < intent::MIN_DEVICE_BYTES {
        return Err(FormatError::TooSmall { device: name(), size_bytes: device.size_bytes });
    }
    let waited = tokio::time::timeout_at(deadline.instant(), Arc::clone(&host.formats).acquire_owned()).await;
    let Ok(Ok(_place)) = waited else {
        return Err(FormatError::Busy { device: name() });
    };
    // Claimed, so that no other mkfs or mount runs, the device is looked at once more.
    let claim = claim(device).await?;
    match look(host, device, request.volume, deadline).await? {
        Verdict::Blank | Verdict::Ours(_) => {}
        other => {
            drop(claim);
            return settle(host, device, request, other, deadline).await;
        }
    }
    refuse_an_orphan(host, device).await?;
    let intent = IntentBlock::new(request.volume, request.fs, claim.size());
    let written = intent.clone();
    blocking(device, move || intent::write_all(&claim, &written)).await?;
    // The claim ended with the closure: mkfs makes its own.
    run_mkfs(host, device, request.fs, &intent, deadline).await?;
    on_claimed_disk(device, request.volume, |disk, volume| {
        // The file system is on the disk before the intent is not.
        disk.sync()?;
        intent::erase_all(&disk, &volume)
    })
    .await?;
    match look(host, device, request.volume, deadline).await? {
        Verdict::Filesystem { found, unfinished: None } if found.kind == request.fs.as_str() => {
            Ok(Outcome::Created(found))
        }
        other => Err(FormatError::Refused { device: name(), found: format!("after mkfs: {other:?}") }),
    }
}

async fn run_mkfs(
    host: &Host,
    device: &Device,
    fs: FsType,
    intent: &IntentBlock,
    deadline: Deadline,
) -> Result<(), FormatError> {
    let node = device.path.display().to_string();
    let args = fs.arguments(&intent.nonce.to_string(), &node);
    // mkfs.xfs sets the block size of the device.
    let needs = if fs == FsType::Xfs { CapabilitySet::SYS_ADMIN } else { CapabilitySet::empty() };
    let mkfs = Call::new(&fs.program(), &args).writing(device).with(needs);
    let started = tokio::time::Instant::now();
    let ended = child::run_claiming(host, mkfs, device, deadline).await;
    let output = ended.map_err(|source| FormatError::Mkfs { device: node.clone(), fs, source })?;
    if !output.success() {
        return Err(FormatError::MkfsFailed { device: node, fs, ending: output.describe() });
    }
    let took: Duration = started.elapsed();
    tracing::info!(device = %node, %fs, seconds = took.as_secs_f64(), "formatted");
    Ok(())
}

async fn look(host: &Host, device: &Device, volume: &str, deadline: Deadline) -> Result<Verdict, FormatError> {
    probe(host, device, volume, deadline)
        .await
        .map_err(|source| FormatError::Probe { device: device.path.display().to_string(), source })
}

/// Refuses a device that a program of an earlier process holds, whether it claims the device or not.
async fn refuse_an_orphan(host: &Host, device: &Device) -> Result<(), FormatError> {
    let (seen_by, on) = (host.clone(), device.clone());
    match blocking(device, move || Ok(orphan::lasting(&seen_by, &on))).await? {
        None => Ok(()),
        Some((pid, program)) => Err(FormatError::Orphan { device: device.path.display().to_string(), program, pid }),
    }
}

async fn claim(device: &Device) -> Result<RawDisk, FormatError> {
    let claimed = device.clone();
    blocking(device, move || RawDisk::claim(&claimed)).await
}

async fn on_claimed_disk(
    device: &Device,
    volume: &str,
    work: fn(RawDisk, String) -> Result<(), RawError>,
) -> Result<(), FormatError> {
    let disk = claim(device).await?;
    let volume = volume.to_owned();
    blocking(device, move || work(disk, volume)).await
}

async fn blocking<T: Send + 'static>(
    device: &Device,
    work: impl FnOnce() -> Result<T, RawError> + Send + 'static,
) -> Result<T, FormatError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| FormatError::Task { device: device.path.display().to_string() })?
        .map_err(FormatError::Raw)
}
