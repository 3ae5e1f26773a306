//! What this node remembers of its volumes across restarts: one JSON record per volume in a state
//! folder.
//!
//! Its main use is the file system UUID seen when a volume was first mounted: a disk that shows up
//! with a UUID known to belong to another volume is a mix-up (or an unexpected clone), whatever its
//! LUN says. Records are hints from this node's past; a missing or damaged one never blocks a volume,
//! and deciding what a match means is the caller's.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lazuli_model::VolumeId;
pub use lazuli_staging::{Record, RecordedDevice};
use uuid::Uuid;

/// Name space of the file names; a random constant of this format.
const NAME_SPACE: Uuid = Uuid::from_u128(0x1d3a_92c4_0b7e_4e0d_8f35_77a1_5e6b_c209);

/// Why a record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum VolumeRecordsError {
    /// The file system said no.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The record is not one of ours, or torn.
    #[error("record {} is unreadable", path.display())]
    Garbled {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The record is of another volume than its name says.
    #[error("record {} is of volume {found}", path.display())]
    Misplaced {
        /// The file.
        path: PathBuf,
        /// The volume in it.
        found: String,
    },
}

/// The records of one state folder.
#[derive(Clone, Debug)]
pub struct VolumeRecords {
    folder: PathBuf,
}

impl VolumeRecords {
    /// Opens the folder, creating it (mode 0700) when it is missing, and drops what interrupted
    /// writes left behind.
    ///
    /// # Errors
    /// [`VolumeRecordsError::Io`].
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, VolumeRecordsError> {
        use std::os::unix::fs::DirBuilderExt;
        let folder = folder.into();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|source| failed("create", &folder, source))?;
        let records = Self { folder };
        for path in records.files("tmp")? {
            let _ = fs::remove_file(path);
        }
        Ok(records)
    }

    /// Writes a record so that after a crash either the old or the new one is there, whole.
    ///
    /// # Errors
    /// [`VolumeRecordsError::Io`].
    pub fn put(&self, record: &Record) -> Result<(), VolumeRecordsError> {
        let path = self.path(&record.volume_id);
        let temporary = path.with_extension("tmp");
        let text = serde_json::to_vec_pretty(record)
            .map_err(|source| VolumeRecordsError::Garbled { path: path.clone(), source })?;
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(|source| failed("create", &temporary, source))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(|source| failed("write", &temporary, source))?;
        fs::rename(&temporary, &path).map_err(|source| failed("replace", &path, source))?;
        self.sync_folder()
    }

    /// The record of a volume. Ids that differ only in letter case are the same volume.
    ///
    /// # Errors
    /// [`VolumeRecordsError::Garbled`] or [`VolumeRecordsError::Misplaced`]: the caller may go on without.
    pub fn get(&self, volume: &str) -> Result<Option<Record>, VolumeRecordsError> {
        let path = self.path(volume);
        match read(&path)? {
            Some(record) if VolumeId::fold(&record.volume_id) != VolumeId::fold(volume) => {
                Err(VolumeRecordsError::Misplaced { path, found: record.volume_id })
            }
            other => Ok(other),
        }
    }

    /// Removes a volume's record; a missing one is success.
    ///
    /// # Errors
    /// [`VolumeRecordsError::Io`].
    pub fn remove(&self, volume: &str) -> Result<(), VolumeRecordsError> {
        let path = self.path(volume);
        match fs::remove_file(&path) {
            Ok(()) => self.sync_folder(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(failed("remove", &path, source)),
        }
    }

    /// All readable records by lower-cased volume id. Unreadable ones are skipped with a warning.
    ///
    /// # Errors
    /// [`VolumeRecordsError::Io`] when the folder cannot be listed.
    pub fn all(&self) -> Result<BTreeMap<String, Record>, VolumeRecordsError> {
        let mut records = BTreeMap::new();
        for path in self.files("json")? {
            match read(&path) {
                Ok(Some(record)) => {
                    records.insert(VolumeId::fold(&record.volume_id), record);
                }
                Ok(None) => {}
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "a volume record is ignored");
                }
            }
        }
        Ok(records)
    }

    /// Removes the records that were written longest ago, until no more than `most` are left.
    ///
    /// # Errors
    /// [`VolumeRecordsError::Io`].
    pub fn keep_newest(&self, most: usize) -> Result<(), VolumeRecordsError> {
        let mut records: Vec<_> = self
            .files("json")?
            .into_iter()
            .filter_map(|path| Some((fs::metadata(&path).and_then(|found| found.modified()).ok()?, path)))
            .collect();
        records.sort();
        let surplus = records.len().saturating_sub(most);
        for (_, path) in records.drain(..surplus) {
            fs::remove_file(&path).map_err(|source| failed("remove", &path, source))?;
        }
        if surplus > 0 { self.sync_folder() } else { Ok(()) }
    }

    /// Records of *other* volumes with this file system UUID.
    ///
    /// # Errors
    /// See [`VolumeRecords::all`].
    pub fn others_with_uuid(&self, volume: &str, fs_uuid: &str) -> Result<Vec<Record>, VolumeRecordsError> {
        let records = self.all()?.into_values();
        Ok(records
            .filter(|record| VolumeId::fold(&record.volume_id) != VolumeId::fold(volume))
            .filter(|record| {
                let known = record.fs_uuid.as_deref();
                known.is_some_and(|known| known.eq_ignore_ascii_case(fs_uuid))
            })
            .collect())
    }

    /// Volume ids are longer than file names may be and contain slashes, so the name is a UUID made
    /// from the id; the id itself is in the record.
    fn path(&self, volume: &str) -> PathBuf {
        let name = Uuid::new_v5(&NAME_SPACE, VolumeId::fold(volume).as_bytes());
        self.folder.join(format!("{name}.json"))
    }

    fn files(&self, extension: &str) -> Result<Vec<PathBuf>, VolumeRecordsError> {
        let entries = fs::read_dir(&self.folder).map_err(|source| failed("list", &self.folder, source))?;
        let mut paths: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|found| found == extension))
            .collect();
        paths.sort();
        Ok(paths)
    }

    fn sync_folder(&self) -> Result<(), VolumeRecordsError> {
        fs::File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|source| failed("flush", &self.folder, source))
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> VolumeRecordsError {
    VolumeRecordsError::Io { action, path: path.to_path_buf(), source }
}

fn read(path: &Path) -> Result<Option<Record>, VolumeRecordsError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("read", path, source)),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|source| VolumeRecordsError::Garbled { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device_number::DeviceNumber;
    use crate::lab::TempDir;

    fn record(volume: &str, uuid: &str) -> Record {
        Record {
            volume_id: volume.to_owned(),
            lun: Some(3),
            fs_uuid: Some(uuid.to_owned()),
            fs_type: Some("ext4".to_owned()),
            staging_path: Some(PathBuf::from("/var/lib/kubelet/x/globalmount")),
            device_name: Some("sdc".to_owned()),
            device: Some(DeviceNumber { major: 8, minor: 32 }),
            sequence: None,
            descends_from: None,
        }
    }

    #[test]
    fn a_record_survives_reopening_and_is_found_in_any_letter_case() {
        let folder = TempDir::new("records");
        let long = format!("/subscriptions/S/{}", "x/".repeat(200));
        let written = record(&long, "u-1");
        VolumeRecords::open(folder.path()).expect("open").put(&written).expect("put");
        let again = VolumeRecords::open(folder.path()).expect("open");
        assert_eq!(again.get(&long.to_uppercase()).expect("get"), Some(written));
        again.remove(&long).expect("remove");
        again.remove(&long).expect("twice");
        assert_eq!(again.get(&long).expect("get"), None);
    }

    #[test]
    fn two_page_blobs_whose_paths_differ_in_letter_case_have_a_record_each() {
        let folder = TempDir::new("records");
        let records = VolumeRecords::open(folder.path()).expect("open");
        let [lower, upper] = ["d.vhd", "D.vhd"].map(|name| format!("https://acct.blob.core.windows.net/vhds/{name}"));
        let written = [record(&lower, "u"), record(&upper, "u")];
        written.iter().for_each(|record| records.put(record).expect("put"));
        // The host of an address is one in any letter case.
        let spelled = [&lower, &upper].map(|uri| uri.replace("https://acct", "HTTPS://ACCT"));
        for (uri, record) in spelled.iter().zip(&written) {
            assert_eq!(records.get(uri).expect("get").as_ref(), Some(record));
            let others = records.others_with_uuid(uri, "U").expect("list");
            assert!(others.len() == 1 && others[0] != *record, "{others:?}");
        }
        assert_eq!(records.all().expect("list").into_keys().collect::<Vec<_>>(), [upper.clone(), lower.clone()]);
        records.remove(&lower).expect("remove");
        assert_eq!(records.get(&lower).expect("get"), None);
        assert_eq!(records.get(&upper).expect("get").as_ref(), Some(&written[1]));
    }

    /// Files as the first version wrote them: a mounted volume, and a raw block volume that was unstaged.
    const OF_THE_FIRST_VERSION: [(&str, &str); 2] = [
        (
            "f1b51654-1dc9-5132-aabe-72c6c60d3652.json",
            r#"{
  "volume_id": "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/lazuli/providers/Microsoft.Compute/disks/pvc-1",
  "lun": 3,
  "fs_uuid": "0fc63daf-8483-4772-8e79-3d69d8477de4",
  "fs_type": "ext4",
  "staging_path": "/var/lib/kubelet/plugins/kubernetes.io/csi/disk.csi.azure.com/1/globalmount",
  "device_name": "sdc",
  "device": {
    "major": 8,
    "minor": 32
  }
}"#,
        ),
        (
            "7d7f2829-4dcd-5ac3-bed4-8bd54f299ec7.json",
            r#"{
  "volume_id": "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/lazuli/providers/Microsoft.Compute/disks/pvc-block",
  "lun": 0,
  "fs_uuid": null,
  "fs_type": null,
  "staging_path": null,
  "device_name": null,
  "device": null
}"#,
        ),
    ];

    #[test]
    fn records_of_the_first_version_are_read_and_written_byte_by_byte() {
        let folder = TempDir::new("records");
        for (name, text) in OF_THE_FIRST_VERSION {
            fs::write(folder.path().join(name), text).expect("write");
        }
        let records = VolumeRecords::open(folder.path()).expect("open");
        let id = |name: &str| {
            format!(
                "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/lazuli/providers/Microsoft.Compute/\
                 disks/{name}"
            )
        };
        let mounted = records.get(&id("pvc-1").to_uppercase()).expect("get").expect("a record");
        let uuid = "0fc63daf-8483-4772-8e79-3d69d8477de4";
        let staging_path = "/var/lib/kubelet/plugins/kubernetes.io/csi/disk.csi.azure.com/1/globalmount";
        assert_eq!(mounted, Record { staging_path: Some(staging_path.into()), ..record(&id("pvc-1"), uuid) });
        let block = records.get(&id("pvc-block")).expect("get").expect("a record");
        assert_eq!((block.lun, &block.fs_uuid, &block.device), (Some(0), &None, &None));
        assert_eq!(records.others_with_uuid(&id("pvc-2"), uuid).expect("list"), std::slice::from_ref(&mounted));
        // The version before reads what this one writes.
        for (record, (name, text)) in [mounted, block].iter().zip(OF_THE_FIRST_VERSION) {
            fs::remove_file(folder.path().join(name)).expect("remove");
            records.put(record).expect("put");
            assert_eq!(fs::read_to_string(folder.path().join(name)).expect("read"), text);
        }
    }

    #[test]
    fn a_device_is_told_by_its_sequence_within_a_boot_and_by_its_number_across_boots() {
        let device = |minor: u32, sequence: Option<&str>| Device {
            name: "sdc".to_owned(),
            path: "/dev/sdc".into(),
            number: DeviceNumber { major: 8, minor },
            size_bytes: 1 << 30,
            lun: Some(3),
            scsi: None,
            nvme: None,
            read_only: false,
            sequence: sequence.map(str::to_owned),
        };
        let staged = |sequence: Option<&str>| Record { sequence: sequence.map(str::to_owned), ..record("a", "u") };
        let known = Some("boot-1/diskseq/5");
        for (recorded, minor, found, expected) in [
            (known, 32, known, RecordedDevice::Same),
            (known, 32, Some("boot-1/diskseq/6"), RecordedDevice::Other),
            (known, 48, known, RecordedDevice::Other),
            (known, 32, Some("boot-2/diskseq/5"), RecordedDevice::SameNumber),
            (known, 32, Some("boot-1/sysfs/5"), RecordedDevice::SameNumber),
            (None, 32, known, RecordedDevice::SameNumber),
            (known, 32, None, RecordedDevice::SameNumber),
        ] {
            assert_eq!(staged(recorded).names(&device(minor, found)), expected, "{recorded:?} {minor} {found:?}");
        }
        assert_eq!(Record { device: None, ..staged(known) }.names(&device(32, known)), RecordedDevice::Other);
    }

    #[test]
    fn another_volume_with_the_same_uuid_is_found_and_the_same_volume_is_not() {
        let folder = TempDir::new("records");
        let records = VolumeRecords::open(folder.path()).expect("open");
        records.put(&record("a", "ABCD")).expect("put");
        records.put(&record("b", "other")).expect("put");
        let volumes = |volume: &str, uuid: &str| -> Vec<String> {
            let found = records.others_with_uuid(volume, uuid).expect("list");
            found.into_iter().map(|r| r.volume_id).collect()
        };
        assert_eq!(volumes("c", "abcd"), ["a"]);
        assert!(volumes("A", "abcd").is_empty());
        assert!(volumes("c", "none").is_empty());
    }

    #[test]
    fn the_oldest_records_make_room() {
        let folder = TempDir::new("records");
        let records = VolumeRecords::open(folder.path()).expect("open");
        let epoch = std::time::UNIX_EPOCH;
        for (age, volume) in ["c", "a", "b"].into_iter().enumerate() {
            records.put(&record(volume, "u")).expect("put");
            let file = fs::File::options().write(true).open(records.path(volume)).expect("open");
            file.set_modified(epoch + std::time::Duration::from_secs(age as u64)).expect("age");
        }
        records.keep_newest(3).expect("enough room");
        assert_eq!(records.all().expect("list").len(), 3);
        records.keep_newest(2).expect("make room");
        assert_eq!(records.all().expect("list").into_keys().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_garbled_record_is_an_error_by_name_and_skipped_in_lists() {
        let folder = TempDir::new("records");
        let records = VolumeRecords::open(folder.path()).expect("open");
        records.put(&record("good", "u")).expect("put");
        fs::write(records.path("torn"), b"{\"volume_id\": \"to").expect("write");
        assert!(matches!(records.get("torn"), Err(VolumeRecordsError::Garbled { .. })));
        assert_eq!(records.all().expect("list").len(), 1);
        fs::copy(records.path("good"), records.path("moved")).expect("copy");
        assert!(matches!(records.get("moved"), Err(VolumeRecordsError::Misplaced { .. })));
    }

    #[test]
    fn leftovers_of_a_killed_write_are_dropped_and_change_nothing() {
        let folder = TempDir::new("records");
        let records = VolumeRecords::open(folder.path()).expect("open");
        records.put(&record("v", "u")).expect("put");
        let leftover = records.path("v").with_extension("tmp");
        fs::write(&leftover, b"{").expect("write");
        let again = VolumeRecords::open(folder.path()).expect("open");
        assert!(!leftover.exists());
        assert_eq!(again.get("v").expect("get"), Some(record("v", "u")));
    }
}
