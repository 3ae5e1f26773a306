//! Whether a device may be used for a volume: what follows from what was seen. Nothing here reads or waits.
//!
//! Two witnesses tell which disk a device is: the instance metadata, and what is on the device. A file system that is
//! unlike the one that the volume had on this node, or that is known as another volume's, is a *mismatch*. Time never
//! turns a mismatch into a match, and silence never erases one: only metadata that confirms the disk does, for longer
//! than it lags, or an operator who says so.

use lazuli_plan::model::{Gib, Lun};

use super::OnSilence;

/// What one answer of the metadata says of a volume and the LUN where it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The volume is there, with this size if it says one.
    Here(Option<Gib>),
    /// Another disk is there.
    Other(String),
    /// The volume is at another LUN.
    Elsewhere(Lun),
    /// No disk is listed there.
    Unlisted,
}

/// An answer that names another disk at the LUN, or another LUN for the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Contradiction {
    /// Another disk is at the LUN.
    OtherDisk(String),
    /// The volume is at this LUN.
    OtherLun(Lun),
}

/// All that the metadata has said of a volume and a LUN, and how often in a row it has not answered since.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Heard {
    last: Option<Answer>,
    silence: u32,
}

impl Heard {
    /// A conversation that begins with what an earlier one ended with.
    pub(super) fn after(contradiction: Option<Contradiction>) -> Self {
        let last = contradiction.map(|contradiction| match contradiction {
            Contradiction::OtherDisk(found) => Answer::Other(found),
            Contradiction::OtherLun(lun) => Answer::Elsewhere(lun),
        });
        Self { last, silence: 0 }
    }

    /// The metadata has answered: what it said before is out of date.
    pub(super) fn answered(&mut self, answer: Answer) {
        *self = Self { last: Some(answer), silence: 0 };
    }

    /// The metadata has not answered: what it said before stands.
    pub(super) fn unanswered(&mut self) {
        self.silence += 1;
    }

    /// How many questions in a row were not answered.
    pub(super) fn silence(&self) -> u32 {
        self.silence
    }

    /// What the metadata says.
    ///
    /// # Errors
    /// What it said last contradicts that the volume is at the LUN.
    pub(super) fn metadata(&self) -> Result<Metadata, Contradiction> {
        match &self.last {
            Some(Answer::Other(found)) => Err(Contradiction::OtherDisk(found.clone())),
            Some(Answer::Elsewhere(lun)) => Err(Contradiction::OtherLun(*lun)),
            _ if self.silence > 0 => Ok(Metadata::Silent),
            Some(Answer::Here(size)) => Ok(Metadata::Confirms(*size)),
            Some(Answer::Unlisted) | None => Ok(Metadata::Unlisted),
        }
    }
}

/// What the metadata says of the volume at the LUN, where it does not contradict it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metadata {
    /// Exactly this disk is there, with this size if it says one.
    Confirms(Option<Gib>),
    /// It answers, and lists no disk at the LUN.
    Unlisted,
    /// It does not answer.
    Silent,
    /// It is not used on this node.
    Unused,
}

/// What is on a device, as far as it tells whose disk it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
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
    /// The file system of another volume that was here before, or that was staged from this very device.
    OfAnother,
    /// The file system of another volume, which is staged here from another device.
    CopyOfAnother,
    /// A raw device that this node has not staged.
    Raw,
    /// What is neither formatted nor mounted, whichever disk it is.
    Unusable,
}

/// Volumes of this node other than the one asked for that have the same file system UUID.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Others {
    /// One is staged from this very device.
    pub(super) here_on_this_device: bool,
    /// One is staged from another device.
    pub(super) here_on_another: bool,
    /// One was here before.
    pub(super) before: bool,
}

impl Content {
    /// A file system with this UUID, for a volume that had `last` when it was here.
    pub(super) fn of_filesystem(uuid: Option<&str>, last: Option<&str>, others: Others) -> Self {
        let is_last = uuid.zip(last).is_some_and(|(uuid, last)| uuid.eq_ignore_ascii_case(last));
        let here = others.here_on_this_device || others.here_on_another;
        match (is_last, here) {
            (true, false) => Self::Last,
            (true, true) => Self::LastAndCopied,
            (false, true) if others.here_on_this_device => Self::OfAnother,
            (false, true) => Self::CopyOfAnother,
            (false, false) if others.before => Self::OfAnother,
            (false, false) => Self::Unknown,
        }
    }
}

/// All on which the decision rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Evidence {
    pub(super) metadata: Metadata,
    pub(super) content: Content,
    /// Whether this node remembers a file system of the volume.
    pub(super) was_here: bool,
    /// Whether this content has been seen on this device for longer than the metadata lags.
    pub(super) outlasts_lag: bool,
    /// Whether an operator has accepted this content for this volume.
    pub(super) accepted: bool,
    pub(super) on_silence: OnSilence,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// The device is used.
    Use,
    /// Nothing but LUN and size speaks for the device; the operator lets them decide.
    UseByLun,
    /// A mismatch that an operator has accepted: the device is used.
    UseAsAccepted,
    /// A mismatch that the metadata confirms, and may confirm because it lags.
    WaitForLag,
    /// A mismatch that the metadata does not confirm: refused, for as long as that is so.
    Mismatch,
    /// A volume that was never here, and nothing says that this is its disk: refused, for as long as that is so.
    Unconfirmed,
}

/// Whether the device is used.
pub(super) fn decide(evidence: &Evidence) -> Decision {
    let Evidence { metadata, content, was_here, outlasts_lag, accepted, on_silence } = *evidence;
    let confirms = matches!(metadata, Metadata::Confirms(_));
    let is_mismatch = match content {
        Content::OfAnother => true,
        Content::Blank | Content::Unknown => was_here,
        Content::CopyOfAnother => was_here || !confirms,
        Content::LastAndCopied => !confirms,
        Content::Last | Content::OwnFormat | Content::Raw | Content::Unusable => false,
    };
    match metadata {
        _ if is_mismatch && accepted => Decision::UseAsAccepted,
        Metadata::Confirms(_) if is_mismatch && !outlasts_lag => Decision::WaitForLag,
        Metadata::Confirms(_) => Decision::Use,
        _ if is_mismatch => Decision::Mismatch,
        Metadata::Unused => Decision::Use,
        Metadata::Silent | Metadata::Unlisted => match content {
            Content::Last | Content::OwnFormat | Content::Unusable => Decision::Use,
            _ if on_silence == OnSilence::Tolerate => Decision::UseByLun,
            _ => Decision::Unconfirmed,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the metadata may have said, the last first.
    fn conversations() -> Vec<(&'static str, Heard)> {
        let said = |answers: &[Option<Answer>]| {
            let mut heard = Heard::default();
            for answer in answers {
                match answer.clone() {
                    Some(answer) => heard.answered(answer),
                    None => heard.unanswered(),
                }
            }
            heard
        };
        let other = || Some(Answer::Other("b".into()));
        let elsewhere = || Some(Answer::Elsewhere(Lun::try_from(7).unwrap()));
        let silence = || [None, None, None];
        let then_silent = |answer: Option<Answer>| said(&[[answer].as_slice(), &silence()].concat());
        vec![
            ("confirms", said(&[other(), Some(Answer::Here(None))])),
            ("unlisted", said(&[other(), Some(Answer::Unlisted)])),
            ("silent", said(&silence())),
            ("silent after a confirmation", then_silent(Some(Answer::Here(None)))),
            ("silent after an answer without the LUN", then_silent(Some(Answer::Unlisted))),
            ("another disk", said(&[Some(Answer::Here(None)), other()])),
            ("another disk, then silence", then_silent(other())),
            ("another LUN", said(&[elsewhere()])),
            ("another LUN, then silence", then_silent(elsewhere())),
        ]
    }

    const CONTENTS: [Content; 9] = [
        Content::Blank,
        Content::OwnFormat,
        Content::Unknown,
        Content::Last,
        Content::LastAndCopied,
        Content::OfAnother,
        Content::CopyOfAnother,
        Content::Raw,
        Content::Unusable,
    ];

    fn evidence(metadata: Metadata, content: Content) -> Evidence {
        Evidence {
            metadata,
            content,
            was_here: false,
            outlasts_lag: false,
            accepted: false,
            on_silence: OnSilence::Refuse,
        }
    }

    /// Every row of the decision: what the metadata says, what is on the device, whether the volume was here, whether
    /// the operator lets the LUN decide on silence, and what follows before and after the metadata's lag.
    #[test]
    fn a_device_is_used_only_where_a_witness_says_that_it_is_the_volume_s_disk() {
        use Content::{Blank, CopyOfAnother, Last, LastAndCopied, OfAnother, OwnFormat, Raw, Unknown, Unusable};
        use Decision::{Mismatch, Unconfirmed, Use, UseByLun, WaitForLag};
        // (content, was here; confirmed, confirmed for longer than the lag, silent or unlisted, the same where the
        // operator lets the LUN decide, no metadata used)
        let rows = [
            (Blank, false, Use, Use, Unconfirmed, UseByLun, Use),
            (Blank, true, WaitForLag, Use, Mismatch, Mismatch, Mismatch),
            (Unknown, false, Use, Use, Unconfirmed, UseByLun, Use),
            (Unknown, true, WaitForLag, Use, Mismatch, Mismatch, Mismatch),
            (Last, true, Use, Use, Use, Use, Use),
            (LastAndCopied, true, Use, Use, Mismatch, Mismatch, Mismatch),
            (OfAnother, false, WaitForLag, Use, Mismatch, Mismatch, Mismatch),
            (OfAnother, true, WaitForLag, Use, Mismatch, Mismatch, Mismatch),
            (CopyOfAnother, false, Use, Use, Mismatch, Mismatch, Mismatch),
            (CopyOfAnother, true, WaitForLag, Use, Mismatch, Mismatch, Mismatch),
            (OwnFormat, false, Use, Use, Use, Use, Use),
            (OwnFormat, true, Use, Use, Use, Use, Use),
            (Raw, false, Use, Use, Unconfirmed, UseByLun, Use),
            (Last, false, Use, Use, Use, Use, Use),
            (Unusable, false, Use, Use, Use, Use, Use),
            (Unusable, true, Use, Use, Use, Use, Use),
        ];
        for (content, was_here, confirmed, later, silent, tolerated, unused) in rows {
            for (name, heard) in conversations() {
                for (outlasts_lag, on_silence) in [
                    (false, OnSilence::Refuse),
                    (true, OnSilence::Refuse),
                    (false, OnSilence::Tolerate),
                    (true, OnSilence::Tolerate),
                ] {
                    let found = heard.metadata().map(|metadata| {
                        decide(&Evidence { was_here, outlasts_lag, on_silence, ..evidence(metadata, content) })
                    });
                    let expected = match name {
                        "confirms" if outlasts_lag => Ok(later),
                        "confirms" => Ok(confirmed),
                        name if name.starts_with("another disk") => Err(Contradiction::OtherDisk("b".into())),
                        name if name.starts_with("another LUN") => {
                            Err(Contradiction::OtherLun(Lun::try_from(7).unwrap()))
                        }
                        _ if on_silence == OnSilence::Tolerate => Ok(tolerated),
                        _ => Ok(silent),
                    };
                    let row = format!("{name}, {content:?}, here before {was_here}, {outlasts_lag}, {on_silence:?}");
                    assert_eq!(found, expected, "{row}");
                    let off = Evidence { was_here, outlasts_lag, on_silence, ..evidence(Metadata::Unused, content) };
                    assert_eq!(decide(&off), unused, "no metadata, {row}");
                }
            }
        }
    }

    #[test]
    fn another_disk_at_the_lun_outlives_silence_and_only_an_answer_ends_it() {
        let mut heard = Heard::default();
        heard.answered(Answer::Other("b".into()));
        for _ in 0..100 {
            heard.unanswered();
            assert_eq!(heard.metadata(), Err(Contradiction::OtherDisk("b".into())));
        }
        // Nor does the end of the call that heard it.
        let mut next = Heard::after(heard.metadata().err());
        for _ in 0..3 {
            next.unanswered();
        }
        assert_eq!(next.metadata(), Err(Contradiction::OtherDisk("b".into())));
        next.answered(Answer::Unlisted);
        assert_eq!(next.metadata(), Ok(Metadata::Unlisted));
    }

    /// Whatever else is true, time alone changes nothing while the metadata does not confirm the disk.
    #[test]
    fn time_alone_never_turns_a_mismatch_into_a_match() {
        for metadata in [Metadata::Silent, Metadata::Unlisted, Metadata::Unused] {
            for content in CONTENTS {
                for was_here in [false, true] {
                    for on_silence in [OnSilence::Refuse, OnSilence::Tolerate] {
                        let early = Evidence { was_here, on_silence, ..evidence(metadata, content) };
                        let late = Evidence { outlasts_lag: true, ..early };
                        assert_eq!(decide(&early), decide(&late), "{early:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_operator_s_word_is_for_a_mismatch_only() {
        for metadata in [Metadata::Silent, Metadata::Unlisted, Metadata::Unused, Metadata::Confirms(None)] {
            for content in CONTENTS {
                for was_here in [false, true] {
                    let without = Evidence { was_here, ..evidence(metadata, content) };
                    let with = decide(&Evidence { accepted: true, ..without });
                    match decide(&without) {
                        Decision::Mismatch | Decision::WaitForLag => assert_eq!(with, Decision::UseAsAccepted),
                        other => assert_eq!(with, other),
                    }
                }
            }
        }
    }

    #[test]
    fn a_file_system_is_told_by_its_uuid_in_any_letter_case() {
        let none = Others::default();
        let before = Others { before: true, ..none };
        let here = Others { here_on_this_device: true, ..none };
        let copied = Others { here_on_another: true, ..none };
        for (uuid, last, others, expected) in [
            (Some("AB-1"), Some("ab-1"), none, Content::Last),
            (Some("ab-1"), Some("ab-1"), before, Content::Last),
            (Some("ab-1"), Some("ab-1"), here, Content::LastAndCopied),
            (Some("ab-1"), Some("ab-1"), copied, Content::LastAndCopied),
            (Some("cd-2"), Some("ab-1"), none, Content::Unknown),
            (Some("cd-2"), None, none, Content::Unknown),
            (Some("cd-2"), None, before, Content::OfAnother),
            (Some("cd-2"), None, here, Content::OfAnother),
            (Some("cd-2"), Some("ab-1"), copied, Content::CopyOfAnother),
            // A volume that is here on another device is not on this one, whatever was before.
            (Some("cd-2"), None, Others { before: true, ..copied }, Content::CopyOfAnother),
            (None, Some("ab-1"), none, Content::Unknown),
            (None, None, none, Content::Unknown),
        ] {
            assert_eq!(Content::of_filesystem(uuid, last, others), expected, "{uuid:?} {last:?} {others:?}");
        }
    }
}
