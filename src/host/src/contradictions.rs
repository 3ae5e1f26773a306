//! What the instance metadata has said against a volume and its LUN, until it names the volume there.
//!
//! It outlives silence, answers without the LUN, the end of a call, an unstage (the LUN may be the same afterwards) and
//! the process: less is known then than when the metadata said that the LUN is another disk's.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use lazuli_model::{Lun, VolumeId};
use lazuli_staging::device_identity::Contradiction;
use serde::{Deserialize, Serialize};

/// How many are kept: more than a machine has LUNs. The oldest go first.
const MOST: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    volume: String,
    lun: u8,
    /// The disk that is at the LUN instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other_disk: Option<String>,
    /// The LUN where the volume is instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other_lun: Option<u8>,
}

impl Entry {
    fn new(volume: &VolumeId, lun: Lun, contradiction: &Contradiction) -> Self {
        let (other_disk, other_lun) = match contradiction {
            Contradiction::OtherDisk(found) => (Some(found.clone()), None),
            Contradiction::OtherLun(found) => (None, Some(found.get())),
        };
        Self { volume: volume.as_str().to_owned(), lun: lun.get(), other_disk, other_lun }
    }

    fn is_of(&self, volume: &VolumeId, lun: Lun) -> bool {
        self.lun == lun.get() && VolumeId::fold(&self.volume) == volume.disk().folded()
    }

    fn contradiction(&self) -> Option<Contradiction> {
        let disk = self.other_disk.clone().map(Contradiction::OtherDisk);
        disk.or_else(|| Lun::try_from(i64::from(self.other_lun?)).ok().map(Contradiction::OtherLun))
    }
}

/// The contradictions of a node; clones share everything.
#[derive(Debug, Clone)]
pub struct Contradictions {
    file: PathBuf,
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Contradictions {
    /// Those that a process before this one left in the file.
    pub fn read(file: PathBuf) -> Self {
        let entries = match read(&file) {
            Ok(entries) => entries,
            Err(error) => {
                let file = file.display().to_string();
                tracing::warn!(file, %error, "what the instance metadata said against volumes cannot be read");
                Vec::new()
            }
        };
        Self { file, entries: Arc::new(Mutex::new(entries)) }
    }

    /// What the metadata said against the volume at this LUN since it named the volume there.
    pub fn of(&self, volume: &VolumeId, lun: Lun) -> Option<Contradiction> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().find(|entry| entry.is_of(volume, lun))?.contradiction()
    }

    /// Keeps what speaks against the volume at this LUN now, instead of what did before.
    pub async fn note(&self, volume: &VolumeId, lun: Lun, contradiction: Option<Contradiction>) {
        if contradiction == self.of(volume, lun) {
            return;
        }
        let (this, volume) = (self.clone(), volume.clone());
        let written = tokio::task::spawn_blocking(move || {
            let mut entries = this.entries.lock().unwrap_or_else(PoisonError::into_inner);
            entries.retain(|entry| !entry.is_of(&volume, lun));
            entries.extend(contradiction.map(|contradiction| Entry::new(&volume, lun, &contradiction)));
            let surplus = entries.len().saturating_sub(MOST);
            entries.drain(..surplus);
            write(&this.file, &entries)
        });
        if let Ok(Err(error)) = written.await {
            let file = self.file.display().to_string();
            tracing::warn!(file, %error, "what the instance metadata says against a volume is not kept over a restart");
        }
    }
}

fn read(file: &Path) -> io::Result<Vec<Entry>> {
    match fs::read(file) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn write(file: &Path, entries: &[Entry]) -> io::Result<()> {
    // Whole or not at all.
    let part = file.with_extension("part");
    let mut written = fs::File::create(&part)?;
    written.write_all(&serde_json::to_vec(entries)?)?;
    written.sync_all()?;
    fs::rename(&part, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::TempDir;

    fn volume(name: &str) -> VolumeId {
        format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/{name}").parse().unwrap()
    }

    fn lun(number: i64) -> Lun {
        Lun::try_from(number).unwrap()
    }

    #[tokio::test]
    async fn a_contradiction_of_a_page_blob_is_not_that_of_one_whose_path_differs_in_letter_case() {
        let folder = TempDir::new("contradictions");
        let kept = Contradictions::read(folder.path().join("kept.json"));
        let blob = |address: &str| -> VolumeId { format!("{address}.vhd").parse().unwrap() };
        let found = Contradiction::OtherLun(lun(4));
        kept.note(&blob("https://acct.blob.core.windows.net/vhds/d"), lun(3), Some(found.clone())).await;
        assert_eq!(kept.of(&blob("https://ACCT.blob.core.windows.net/vhds/d"), lun(3)), Some(found));
        assert_eq!(kept.of(&blob("https://acct.blob.core.windows.net/vhds/D"), lun(3)), None);
    }

    #[tokio::test]
    async fn a_contradiction_is_of_one_volume_at_one_lun_and_outlives_the_process() {
        let folder = TempDir::new("contradictions");
        let file = folder.path().join("contradictions.json");
        let known = Contradictions::read(file.clone());
        let (other, elsewhere) = (Contradiction::OtherDisk("b".into()), Contradiction::OtherLun(lun(5)));
        known.note(&volume("a"), lun(3), Some(other.clone())).await;
        known.note(&volume("c"), lun(4), Some(elsewhere.clone())).await;
        known.note(&volume("a"), lun(4), None).await;
        for known in [&known, &Contradictions::read(file.clone())] {
            assert_eq!(known.of(&volume("A"), lun(3)), Some(other.clone()));
            assert_eq!(known.of(&volume("a"), lun(4)), None);
            assert_eq!(known.of(&volume("c"), lun(4)), Some(elsewhere.clone()));
        }
        known.note(&volume("a"), lun(3), None).await;
        for known in [&known, &Contradictions::read(file.clone())] {
            assert_eq!(known.of(&volume("a"), lun(3)), None);
            assert_eq!(known.of(&volume("c"), lun(4)), Some(elsewhere.clone()));
        }
        // A torn file blocks nothing.
        fs::write(&file, "[{").unwrap();
        assert_eq!(Contradictions::read(file).of(&volume("c"), lun(4)), None);
    }
}
