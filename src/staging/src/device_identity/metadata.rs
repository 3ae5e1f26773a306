//! What the instance metadata says of a volume and the LUN where it should be, answer by answer.
//!
//! A LUN alone names nothing: a disk that vanished out of band leaves its LUN to another. The metadata tells the disk's
//! id, and lags behind by seconds. So another id, or the disk at another LUN, is asked about again before it is believed;
//! so is a LUN that is not listed.

use lazuli_model::{ArmId, BlobUri, DiskId, Gib, Lun, VolumeId};

/// After so many unanswered questions in a row the metadata is taken as silent.
const UNANSWERED: u32 = 3;

/// A disk of the machine as the metadata lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its LUN.
    pub lun: Lun,
    /// Which one it is.
    pub disk: ListedDisk,
    /// Its size, where the metadata says it.
    pub size: Option<Gib>,
}

/// How the metadata names a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListedDisk {
    /// By its resource id.
    Managed(ArmId),
    /// By the address of its blob.
    Vhd(String),
    /// Not at all.
    Unnamed,
}

impl ListedDisk {
    /// Whether it is the disk of a volume.
    #[must_use]
    pub fn is(&self, volume: &VolumeId) -> bool {
        match (self, volume.disk()) {
            (Self::Managed(listed), DiskId::Managed(id)) => listed == id,
            (Self::Vhd(address), DiskId::Blob(uri)) => address.parse::<BlobUri>().is_ok_and(|listed| listed == *uri),
            (Self::Managed(_) | Self::Vhd(_) | Self::Unnamed, _) => false,
        }
    }
}

/// What one answer of the metadata says of a volume and the LUN where it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The volume is there, with this size if it says one.
    Here(Option<Gib>),
    /// Another disk is there.
    Other(String),
    /// The volume is at another LUN.
    Elsewhere(Lun),
    /// No disk is listed there.
    Unlisted,
}

impl Answer {
    /// What a list of the machine's disks says. What is at the LUN outweighs all else; a disk without a name there counts
    /// as not listed.
    #[must_use]
    pub fn of(volume: &VolumeId, lun: Lun, disks: &[Listed]) -> Self {
        let is_it = |listed: &&Listed| listed.disk.is(volume);
        match disks.iter().find(|listed| listed.lun == lun) {
            Some(listed) if is_it(&listed) => Self::Here(listed.size),
            Some(Listed { disk: ListedDisk::Managed(id), .. }) => Self::Other(id.to_string()),
            Some(Listed { disk: ListedDisk::Vhd(address), .. }) => Self::Other(address.clone()),
            Some(Listed { disk: ListedDisk::Unnamed, .. }) => Self::Unlisted,
            None => disks.iter().find(is_it).map_or(Self::Unlisted, |listed| Self::Elsewhere(listed.lun)),
        }
    }
}

/// An answer that names another disk at the LUN, or another LUN for the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contradiction {
    /// Another disk is at the LUN.
    OtherDisk(String),
    /// The volume is at this LUN.
    OtherLun(Lun),
}

/// What the metadata has said of a volume and a LUN, and how often in a row it has not answered since.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heard {
    last: Option<Answer>,
    contradiction: Option<Contradiction>,
    silence: u32,
}

impl Heard {
    /// A conversation that begins with what an earlier one ended with.
    #[must_use]
    pub fn after(contradiction: Option<Contradiction>) -> Self {
        Self { contradiction, ..Self::default() }
    }

    /// The metadata has answered. Only an answer that names the volume at the LUN ends a contradiction: one without the
    /// LUN does not say which disk is there.
    pub fn answered(&mut self, answer: Answer) {
        match &answer {
            Answer::Here(_) => self.contradiction = None,
            Answer::Other(found) => self.contradiction = Some(Contradiction::OtherDisk(found.clone())),
            Answer::Elsewhere(lun) => self.contradiction = Some(Contradiction::OtherLun(*lun)),
            Answer::Unlisted => {}
        }
        self.last = Some(answer);
        self.silence = 0;
    }

    /// The metadata has not answered: what it said before stands.
    pub fn unanswered(&mut self) {
        self.silence += 1;
    }

    /// How many questions in a row were not answered.
    #[must_use]
    pub fn silence(&self) -> u32 {
        self.silence
    }

    /// What it said against the volume at the LUN since it named the volume there.
    #[must_use]
    pub fn contradiction(&self) -> Option<&Contradiction> {
        self.contradiction.as_ref()
    }

    /// What it says now.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        match &self.last {
            _ if self.silence > 0 => Metadata::Silent,
            None => Metadata::Silent,
            Some(Answer::Here(size)) => Metadata::Confirms(*size),
            Some(Answer::Other(_) | Answer::Elsewhere(_)) => Metadata::Contradicts,
            Some(Answer::Unlisted) => Metadata::Unlisted,
        }
    }

    /// Whether another question would tell no more: the volume is named, or the metadata is taken as silent.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self.metadata(), Metadata::Confirms(_)) || self.silence >= UNANSWERED
    }
}

/// What the metadata says now of the volume at the LUN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metadata {
    /// Exactly this disk is there, with this size if it says one.
    Confirms(Option<Gib>),
    /// Another disk is there, or the volume is elsewhere.
    Contradicts,
    /// It answers, and lists no disk at the LUN.
    Unlisted,
    /// It does not answer.
    Silent,
    /// It is not used on this node.
    Unused,
}

/// What the metadata says of the volume at its LUN, when it has been asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// What it says now.
    pub metadata: Metadata,
    /// What it said against the volume at the LUN since it named the volume there.
    pub contradiction: Option<Contradiction>,
}

impl Identity {
    /// The size of the disk, where the metadata confirms the disk and says it.
    #[must_use]
    pub fn size(&self) -> Option<Gib> {
        match self.metadata {
            Metadata::Confirms(size) => size,
            Metadata::Contradicts | Metadata::Unlisted | Metadata::Silent | Metadata::Unused => None,
        }
    }

    /// Whether the metadata names exactly this disk.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        matches!(self.metadata, Metadata::Confirms(_))
    }

    /// What the metadata says against the disk in its last answer.
    #[must_use]
    pub fn contradicts(&self) -> Option<&Contradiction> {
        self.contradiction.as_ref().filter(|_| self.metadata == Metadata::Contradicts)
    }

    /// What it said against the disk before it fell silent. A volume whose device nothing speaks for but that it is in use
    /// already is refused then.
    #[must_use]
    pub fn contradicted_in_silence(&self) -> Option<&Contradiction> {
        self.contradiction.as_ref().filter(|_| self.metadata == Metadata::Silent)
    }
}

/// The longest part of a disk's name in the name of a file; with the longest names that Azure takes it is one file name.
const LONGEST_NAME: usize = 32;

/// The name of what an operator accepts: the content, and what the metadata said against it. A word that was given before
/// the metadata said so is none about it.
#[must_use]
pub fn although(content: String, contradiction: Option<&Contradiction>) -> String {
    match contradiction {
        None => content,
        Some(Contradiction::OtherDisk(found)) => {
            let name = found.rsplit('/').next().unwrap_or_default();
            let name: String = name.chars().take(LONGEST_NAME).collect();
            format!("{content}.although-{name}")
        }
        Some(Contradiction::OtherLun(lun)) => format!("{content}.although-lun-{lun}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_s_word_names_what_the_metadata_said() {
        let disk = Contradiction::OtherDisk(format!("/subscriptions/s/disks/{}", "b".repeat(80)));
        let lun = Contradiction::OtherLun(Lun::try_from(5).unwrap());
        assert_eq!(although("blank".into(), None), "blank");
        assert_eq!(although("blank".into(), Some(&disk)), format!("blank.although-{}", "b".repeat(32)));
        assert_eq!(although("blank".into(), Some(&lun)), "blank.although-lun-5");
    }

    #[test]
    fn the_metadata_is_asked_again_until_it_names_the_volume_or_three_questions_stay_unanswered() {
        let mut heard = Heard::default();
        for (answer, is_settled) in [
            (Some(Answer::Unlisted), false),
            (Some(Answer::Other("b".into())), false),
            (None, false),
            (None, false),
            (Some(Answer::Unlisted), false),
            (None, false),
            (None, false),
            (None, true),
            (Some(Answer::Elsewhere(Lun::try_from(5).unwrap())), false),
            (Some(Answer::Here(None)), true),
        ] {
            match answer.clone() {
                Some(answer) => heard.answered(answer),
                None => heard.unanswered(),
            }
            assert_eq!(heard.is_settled(), is_settled, "{answer:?}");
        }
    }
}
