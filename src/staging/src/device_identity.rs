//! Whether a node uses the device at a LUN for a volume: what follows from what was seen. Nothing here reads or waits.
//!
//! Two witnesses tell which disk a device is: the instance metadata, and what is on the device.
//!
//! | what was seen | what follows |
//! |---|---|
//! | the metadata names the volume at the LUN | it is used; with content unlike what the node remembers only after the lag |
//! | it names another disk there, or another LUN for the volume | it is refused |
//! | it did so before, and has not answered since | the same, whatever is on the device |
//! | it did so before, and lists no disk at the LUN since | the same, unless an unfinished format on it names the volume |
//! | it does not answer, or lists no disk at the LUN | the content decides; where the node knows nothing of it, the operator |
//!
//! A disk of an NVMe machine that is larger than the metadata says is refused until the two agree, unless its content is the
//! volume's own: a disk that is grown shows so, and so does a neighbour of the disk. A disk whose LUN rests on an operator's
//! word alone is used where the metadata has confirmed it for longer than it lags, or where its content is the volume's
//! own; see [`crate::nvme`].
//!
//! A file system that is unlike the one that the volume had on this node, or that is known as another volume's, is a
//! *mismatch*, and so is a raw device that is not the disk from which the volume was staged since the machine has started;
//! another disk at the LUN is a *contradiction*. Time never turns either into a match, and silence never
//! erases one. Only metadata that confirms the disk does, for a mismatch twice and further apart than it lags, or an
//! operator who accepts this content for this volume.
//!
//! A volume that was made from another has its file system, and so has every other one that was made from that
//! ([`lazuli_volume::copy::are_related`]). The file system of such a volume is no mismatch where the metadata confirms the
//! disk, and is none of a volume that was never here. Without the metadata it does not tell which of them a disk is.

use std::time::Duration;

mod metadata;
mod sighting;

pub use metadata::{Answer, Contradiction, Heard, Identity, Listed, ListedDisk, Metadata, although};
pub use sighting::{LONGEST_GAP, Sighting, Stood};

/// After so long a refusal for want of metadata says what to do about it: before, it may be one throttled answer.
const LONG: Duration = Duration::from_secs(60);

/// What to do with a volume that this node has never had while the instance metadata does not answer, or does not list
/// a disk at its LUN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnSilence {
    /// Refuse it until the metadata answers.
    #[default]
    Refuse,
    /// Go by LUN and size.
    Tolerate,
}

/// What is on a device, as far as it tells whose disk it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing: the device would be formatted.
    Blank,
    /// An unfinished format that names this volume.
    OwnFormat,
    /// A file system that this node knows of no volume.
    Unknown,
    /// What this volume had when it was last here. A raw device: the very device that it was staged with.
    Last,
    /// The same, and another volume that is staged here has it too: one is a copy of the other.
    LastAndCopied,
    /// The same, and another volume that was here before had it too: one is a copy of the other, and without the metadata
    /// nothing tells which of them this is.
    LastOfSeveral,
    /// The file system of another volume that was here before, or that was staged from this very device.
    OfAnother,
    /// The file system of another volume, which is staged here from another device, or which is known to have the same
    /// file system: one of the two volumes was made from the other, or both from one.
    CopyOfAnother,
    /// A raw device that this node has not staged.
    Raw,
    /// A raw device, while this node has staged the volume from another disk since the machine has started.
    RawOfAnother,
    /// What is neither formatted nor mounted, whichever disk it is.
    Unusable,
}

/// Volumes of this node other than the one asked for that have the same file system UUID.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Others {
    /// One is staged from this very device.
    pub here_on_this_device: bool,
    /// One is staged from another device.
    pub here_on_another: bool,
    /// One was here before.
    pub before: bool,
    /// One of them has the same line of descent, so that the volume should have its file system. What has the UUID of one
    /// of a line is of that line.
    pub related: bool,
}

impl Content {
    /// A file system with this UUID, for a volume that had `last` when it was here.
    #[must_use]
    pub fn of_filesystem(uuid: Option<&str>, last: Option<&str>, others: Others) -> Self {
        let is_last = uuid.zip(last).is_some_and(|(uuid, last)| uuid.eq_ignore_ascii_case(last));
        let here = others.here_on_this_device || others.here_on_another;
        match (is_last, here) {
            (true, false) if others.before => Self::LastOfSeveral,
            (true, false) => Self::Last,
            (true, true) => Self::LastAndCopied,
            (false, true) if others.here_on_this_device => Self::OfAnother,
            (false, true) => Self::CopyOfAnother,
            (false, false) if others.before && others.related => Self::CopyOfAnother,
            (false, false) if others.before => Self::OfAnother,
            (false, false) => Self::Unknown,
        }
    }

    /// Whether it speaks for the volume by itself, or does no harm whichever disk it is.
    fn is_own(self) -> bool {
        matches!(self, Self::Last | Self::OwnFormat | Self::Unusable)
    }

    /// Whether it speaks against the disk.
    fn is_mismatch(self, was_here: bool, confirms: bool) -> bool {
        match self {
            Self::OfAnother | Self::RawOfAnother => true,
            Self::Blank | Self::Unknown => was_here,
            Self::CopyOfAnother => was_here || !confirms,
            Self::LastAndCopied => !confirms,
            Self::Last | Self::LastOfSeveral | Self::OwnFormat | Self::Raw | Self::Unusable => false,
        }
    }
}

/// All on which the decision rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// What the metadata says now.
    pub metadata: Metadata,
    /// Whether it has named another disk at the LUN, or another LUN for the volume, since it named the volume there.
    pub contradicted: bool,
    /// What is on the device.
    pub content: Content,
    /// Whether this node remembers a file system of the volume.
    pub was_here: bool,
    /// For how long this content has been seen on this device.
    pub seen_for: Duration,
    /// How long ago the metadata first confirmed this device with this content; it has not contradicted it since.
    pub confirmed_for: Duration,
    /// For how long the metadata may name a disk that has left.
    pub lag: Duration,
    /// Whether an operator has accepted this content for this volume.
    pub accepted: bool,
    /// What the operator lets decide on silence.
    pub on_silence: OnSilence,
    /// Whether the LUN of the device follows from an offset that an operator gave.
    pub is_lun_given: bool,
    /// Whether an NVMe disk has another size than the metadata says.
    pub is_other_size: bool,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The device is used.
    Use,
    /// The device is used although its content is unlike what this node remembers: the metadata has confirmed it for
    /// longer than it lags.
    UseAsConfirmed,
    /// Nothing but LUN and size speaks for the device; the operator lets them decide.
    UseByLun,
    /// An operator has accepted what speaks against the device: it is used.
    UseAsAccepted,
    /// A mismatch that the metadata confirms, and may confirm because it lags; so long it has to confirm it yet.
    WaitForLag(Duration),
    /// An operator's offset found the disk, and the metadata bears it out, but may lack disks because it lags; so long it
    /// has to go on doing so.
    WaitForOffset(Duration),
    /// A mismatch that the metadata does not confirm: refused, for as long as that is so.
    Mismatch,
    /// The disk has another size than the metadata says: refused, for as long as that is so.
    OtherSize,
    /// The metadata has named another disk, and has not named the volume since: refused, for as long as that is so.
    Contradicted,
    /// Nothing says that this is the volume's disk, as for one that was never here: refused, for as long as that is so.
    Unconfirmed,
    /// The same for more than a minute: the refusal says what to do.
    UnconfirmedForLong,
}

/// Whether the device is used.
#[must_use]
pub fn decide(evidence: &Evidence) -> Decision {
    let Evidence { metadata, content, .. } = *evidence;
    let confirms = matches!(metadata, Metadata::Confirms(_));
    let is_contradicted = evidence.contradicted
        && match metadata {
            Metadata::Confirms(_) | Metadata::Unused => false,
            Metadata::Contradicts | Metadata::Silent => true,
            // What the volume had here before is on each copy of it too, and the metadata has said that this is another disk.
            Metadata::Unlisted => !matches!(content, Content::OwnFormat | Content::Unusable),
        };
    let is_mismatch = content.is_mismatch(evidence.was_here, confirms);
    // Blank disks look alike, so that neither silence nor a word about blank content makes one of them the volume's.
    let is_unplaced = evidence.is_lun_given && !confirms && !content.is_own();
    match metadata {
        // The metadata speaks now, and against what the operator said before.
        Metadata::Contradicts => Decision::Contradicted,
        _ if is_unplaced => Decision::Unconfirmed,
        // With a list that lacks a disk a wrong offset may agree as well as the right one, and whoever accepted what is on the
        // disk did not say which disk it is.
        Metadata::Confirms(_)
            if evidence.is_lun_given && !content.is_own() && evidence.confirmed_for < evidence.lag =>
        {
            Decision::WaitForOffset(evidence.lag - evidence.confirmed_for)
        }
        _ if (is_mismatch || is_contradicted) && evidence.accepted => Decision::UseAsAccepted,
        _ if is_contradicted => Decision::Contradicted,
        Metadata::Confirms(_) if evidence.is_other_size && !content.is_own() => Decision::OtherSize,
        Metadata::Confirms(_) if is_mismatch => match evidence.lag.saturating_sub(evidence.confirmed_for) {
            Duration::ZERO => Decision::UseAsConfirmed,
            more => Decision::WaitForLag(more),
        },
        Metadata::Confirms(_) => Decision::Use,
        _ if is_mismatch => Decision::Mismatch,
        Metadata::Unused => Decision::Use,
        Metadata::Silent | Metadata::Unlisted if content.is_own() => Decision::Use,
        Metadata::Silent | Metadata::Unlisted => match evidence.on_silence {
            OnSilence::Tolerate => Decision::UseByLun,
            OnSilence::Refuse if evidence.seen_for < LONG => Decision::Unconfirmed,
            OnSilence::Refuse => Decision::UnconfirmedForLong,
        },
    }
}

#[cfg(test)]
use lazuli_model::Lun;

#[cfg(test)]
mod tests;
