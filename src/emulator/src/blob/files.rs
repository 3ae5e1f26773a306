//! The bytes of blobs: a sparse file for each blob and each snapshot.
//!
//! The files are beside the state file, in `STATE.blobs`, and stay with it. Without a state file they are in a folder of their
//! own below the system's folder for temporary files, made with the first blob and removed with the emulator. A file is as
//! long as its blob, and what has not been written takes no room.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, SeekFrom};

use super::pages::Span;
use crate::leases;

/// How many bytes are copied at once.
const CHUNK: u64 = 1 << 20;

/// Tells folders of one process apart.
static FOLDERS: AtomicU64 = AtomicU64::new(0);

/// All files.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    /// The folder goes with the emulator.
    is_temporary: bool,
    /// The number of the next file.
    next: u64,
}

impl Files {
    /// Those beside a state file, or temporary ones. Nothing is made yet.
    pub(super) fn new(state_file: Option<&Path>) -> Self {
        let root = match state_file {
            Some(path) => {
                let mut name = path.as_os_str().to_owned();
                name.push(".blobs");
                PathBuf::from(name)
            }
            None => {
                let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
                std::env::temp_dir().join(format!("lazuli-emulator-blobs-{}-{number}", std::process::id()))
            }
        };
        Self { root, is_temporary: state_file.is_none(), next: 1 }
    }

    /// Where a file is.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Makes a file of so many bytes, all of them zero. Returns its name.
    pub(super) fn create(&mut self, length: u64) -> io::Result<String> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        loop {
            let name = format!("{:08}.blob", self.next);
            self.next += 1;
            match File::options().write(true).create_new(true).mode(0o600).open(self.path(&name)) {
                Ok(file) => {
                    file.set_len(length)?;
                    return Ok(name);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn open(&self, name: &str) -> io::Result<File> {
        File::options().read(true).write(true).open(self.path(name))
    }

    pub(super) fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.open(name)?.write_all_at(bytes, at)
    }

    /// Makes a span zero. Where the file system cannot take its room back, zeros are written.
    pub(super) fn clear(&self, name: &str, (start, end): Span) -> io::Result<()> {
        let file = self.open(name)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if start >= end || rustix::fs::fallocate(&file, flags, start, end - start).is_ok() {
            return Ok(());
        }
        let zeros = vec![0; buffer(CHUNK)];
        for (at, length) in chunks((start, end)) {
            file.write_all_at(zeros.get(..length).unwrap_or_default(), at)?;
        }
        Ok(())
    }

    pub(super) fn resize(&self, name: &str, length: u64) -> io::Result<()> {
        self.open(name)?.set_len(length)
    }

    /// A copy of a file under a new name, as sparse as it is.
    pub(super) fn copy(&mut self, name: &str) -> io::Result<String> {
        let from = self.open(name)?;
        let length = from.metadata()?.len();
        let copy = self.create(length)?;
        let to = self.open(&copy)?;
        let mut bytes = vec![0; buffer(CHUNK)];
        let mut at = 0;
        while let Some(span) = next_data(&from, at, length)? {
            for (at, length) in chunks(span) {
                let bytes = bytes.get_mut(..length).unwrap_or_default();
                from.read_exact_at(bytes, at)?;
                to.write_all_at(bytes, at)?;
            }
            at = span.1;
        }
        Ok(copy)
    }

    /// The spans of a file that are no holes.
    pub(super) fn data(&self, name: &str) -> io::Result<Vec<Span>> {
        let file = self.open(name)?;
        let length = file.metadata()?.len();
        let (mut spans, mut at) = (Vec::new(), 0);
        while let Some(span) = next_data(&file, at, length)? {
            spans.push(span);
            at = span.1;
        }
        Ok(spans)
    }

    /// When a file was last written, in nanoseconds of Unix time.
    pub(super) fn written(&self, name: &str) -> Option<i128> {
        let facts = fs::metadata(self.path(name)).ok()?;
        Some(i128::from(facts.mtime()) * leases::SECOND + i128::from(facts.mtime_nsec()))
    }

    /// Removes a file. One that is gone already is no failure.
    pub(super) fn remove(&self, name: &str) {
        if let Err(error) = fs::remove_file(self.path(name))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = name, error = %error, "the file of a blob was not removed");
        }
    }

    /// Whether a file is there; it is made as long as its blob.
    pub(super) fn adopt(&self, name: &str, length: u64) -> io::Result<bool> {
        match self.open(name) {
            // A file that is written anew, if only in its length, is one that has changed.
            Ok(file) if file.metadata()?.len() == length => Ok(true),
            Ok(file) => file.set_len(length).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the files that are not kept.
    pub(super) fn keep_only(&self, is_kept: impl Fn(&str) -> bool) -> io::Result<()> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let name = entry?.file_name();
            let is_of_blobs = |name: &str| name.ends_with(".blob") || name.ends_with(".copy");
            if let Some(name) = name.to_str().filter(|name| is_of_blobs(name) && !is_kept(name)) {
                self.remove(name);
            }
        }
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.is_temporary && self.root.exists() {
            // What stays is in the folder for temporary files.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// The next bytes of a file that are no hole.
fn next_data(file: &File, at: u64, length: u64) -> io::Result<Option<Span>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        // A file system without holes.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => at,
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(length).min(length);
    Ok((start < end).then_some((start, end)))
}

/// Where each chunk of a span begins, and how long it is.
fn chunks((start, end): Span) -> impl Iterator<Item = (u64, usize)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let length = (end - at.min(end)).min(CHUNK);
        let found = (at, buffer(length));
        at += length;
        (length > 0).then_some(found)
    })
}

/// The length of a buffer for so many bytes, which are few.
fn buffer(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &Files, name: &str, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![9; length];
        files.open(name).unwrap().read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    #[test]
    fn a_file_is_sparse_and_so_is_its_copy() {
        let mut files = Files::new(None);
        let root = files.root.clone();
        let length = (4_u64 << 40) + 512;
        let name = files.create(length).unwrap();
        files.write(&name, 4 << 40, &[7; 512]).unwrap();
        files.write(&name, 3 << 20, &vec![5; 3 << 20]).unwrap();
        files.clear(&name, (4 << 20, 5 << 20)).unwrap();
        let copy = files.copy(&name).unwrap();
        files.clear(&name, (0, length)).unwrap();
        assert_eq!(read(&files, &name, 4 << 40, 512), [0; 512]);
        assert_eq!(read(&files, &copy, 4 << 40, 512), [7; 512]);
        assert_eq!(read(&files, &copy, (4 << 20) - 1, 2), [5, 0]);
        assert_eq!(read(&files, &copy, (5 << 20) - 1, 2), [0, 5]);
        let shown = fs::metadata(files.path(&copy)).unwrap();
        assert_eq!(shown.len(), length);
        assert!(shown.blocks() * 512 < 4 << 20, "{}", shown.blocks());
        files.remove(&name);
        files.keep_only(|_| false).unwrap();
        assert!(!files.adopt(&copy, 1).unwrap());
        drop(files);
        assert!(!root.exists());
    }
}
