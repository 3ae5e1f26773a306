//! The growth of a blob disk that no machine has attached.

use lazuli_model::fault::Effect;

use super::{Answer, Blob, Call, GROWN_FROM_KEY, Next, Problem, Progress, Why};
use crate::footer::{Footer, LENGTH, Page, UniqueId, ZEROS, disk_size};

/// How a disk is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpandSpec {
    /// Its least size in bytes, as [`fit`](crate::class::fit) gives it. A disk never shrinks, so 0 asks for its footer alone: what an attach needs first.
    pub size: u64,
    /// The id in its footer, where none of its footers can be read any more.
    pub unique_id: UniqueId,
    /// The time in such a footer.
    pub time_stamp: u32,
}

/// What is known of the disk.
#[derive(Debug, Clone)]
struct Disk {
    blob: Blob,
    /// The last 512 bytes.
    end: Option<Page>,
    /// The 512 bytes where the old footer is noted to be.
    old: Option<Page>,
}

impl Disk {
    /// The size that it has grown from, by its note: inside the disk, or the size that it has.
    fn grown_from(&self, size: u64) -> Option<Result<u64, ()>> {
        let note = self.blob.metadata.get(GROWN_FROM_KEY)?;
        let is_place = |place: &u64| *place > 0 && *place <= size && place.is_multiple_of(LENGTH);
        Some(note.parse().ok().filter(is_place).ok_or(()))
    }
}

/// A growth. It ends with the size of the disk, in bytes.
#[derive(Debug, Clone)]
pub struct Expand {
    spec: ExpandSpec,
    progress: Progress,
    disk: Option<Disk>,
}

impl Expand {
    /// A growth that has not begun.
    pub fn new(spec: ExpandSpec) -> Self {
        Self { spec, progress: Progress::new(), disk: None }
    }

    /// The first call.
    pub fn begin<E>(&mut self) -> Next<u64, E> {
        self.progress.send(Call::ReadBlob)
    }

    /// What comes next, after the answer of the last call.
    pub fn next<E>(&mut self, answer: Answer<E>) -> Next<u64, E> {
        let Some(call) = self.progress.call.take() else { return self.begin() };
        let disk = self.disk.take();
        match (call, answer, disk) {
            (Call::ReadBlob, Answer::Blob(blob), _) => self.seen(*blob),
            (Call::ReadPage { offset, .. }, Answer::Page(page), Some(mut disk)) => {
                let is_end = offset + LENGTH == disk.blob.length;
                *(if is_end { &mut disk.end } else { &mut disk.old }) = Some(*page);
                self.decide(disk)
            }
            (Call::WritePage { page, .. }, Answer::Done(Some(etag)), Some(mut disk)) => {
                disk.blob.etag = etag;
                disk.end = Some(*page);
                self.decide(disk)
            }
            (Call::ClearPage { .. }, Answer::Done(Some(etag)), Some(mut disk)) => {
                disk.blob.etag = etag;
                disk.old = Some(ZEROS);
                self.decide(disk)
            }
            (Call::SetMetadata { metadata, .. }, Answer::Done(Some(etag)), Some(mut disk)) => {
                disk.blob.etag = etag;
                disk.blob.metadata = metadata;
                disk.old = None;
                self.decide(disk)
            }
            (Call::Resize { length, .. }, Answer::Done(Some(etag)), Some(mut disk)) => {
                disk.blob.etag = etag;
                disk.blob.length = length;
                // What a blob grows by is zeros (source: Microsoft's page on Set Blob Properties).
                disk.old = disk.end.replace(ZEROS);
                self.decide(disk)
            }
            (_, Answer::Refused(Problem::NoBlob | Problem::NoContainer, _), _) => self.progress.fail(Why::NoBlob, None),
            (call, Answer::Refused(Problem::Leased, error), disk) if !matches!(call, Call::ReadBlob) => {
                let machine = disk.and_then(|disk| disk.blob.machine());
                self.progress.fail(Why::Attached { machine }, Some(error))
            }
            (_, Answer::Refused(Problem::OtherVersion | Problem::Lost, _) | Answer::Done(None), _) => {
                self.progress.again(Call::ReadBlob)
            }
            (call, Answer::Refused(problem, error), _) => self.progress.refused(&call, problem, error),
            (call, _, _) => self.progress.not_understood(&call),
        }
    }

    fn seen<E>(&mut self, blob: Blob) -> Next<u64, E> {
        if !blob.is_page_blob {
            return self.progress.fail(Why::NotAPageBlob, None);
        }
        if !blob.lease.is_free() {
            return self.progress.fail(Why::Attached { machine: blob.machine() }, None);
        }
        self.decide(Disk { blob, end: None, old: None })
    }

    /// What the disk needs next: a footer, no old one, no note, and the size.
    fn decide<E>(&mut self, disk: Disk) -> Next<u64, E> {
        let size = match disk_size(disk.blob.length) {
            Ok(size) => size,
            Err(defect) => return self.progress.fail(Why::Footer(defect), None),
        };
        let Some(end) = disk.end else { return self.read(disk, size) };
        let grown_from = disk.grown_from(size);
        let footer = match Footer::of_blob(&end, disk.blob.length) {
            Ok(footer) => footer,
            Err(defect) if defect.is_repairable() => {
                let old = match (Footer::read(&end), grown_from, disk.old) {
                    // An old footer stands where the new one goes.
                    (Ok(footer), ..) => Some(footer),
                    (Err(_), Some(Ok(place)), None) if place < size => return self.read(disk, place),
                    (Err(_), Some(Ok(place)), Some(page)) => {
                        Footer::read(&page).ok().filter(|footer| footer.current_size == place)
                    }
                    (Err(_), ..) => None,
                };
                let footer = match old {
                    Some(footer) => footer.resized(size),
                    None => Footer::new(size, self.spec.unique_id, self.spec.time_stamp),
                };
                let (page, if_match) = (Box::new(footer.to_page()), disk.blob.etag.clone());
                return self.write(disk, Call::WritePage { offset: size, page, if_match });
            }
            Err(defect) => return self.progress.fail(Why::Footer(defect), None),
        };
        let if_match = disk.blob.etag.clone();
        match grown_from {
            Some(Ok(place)) if place < size => {
                let Some(old) = disk.old else { return self.read(disk, place) };
                let is_still_there =
                    Footer::read(&old).is_ok_and(|old| old.current_size == place && old.unique_id == footer.unique_id);
                if is_still_there {
                    self.write(disk, Call::ClearPage { offset: place, if_match })
                } else {
                    self.note(disk, None)
                }
            }
            Some(Err(())) => self.note(disk, None),
            Some(Ok(_)) if size < self.spec.size => {
                self.write(disk, Call::Resize { length: self.spec.size + LENGTH, if_match })
            }
            None if size < self.spec.size => self.note(disk, Some(size)),
            // A growth that was not begun.
            Some(Ok(_)) => self.note(disk, None),
            None => Next::End(Ok(size)),
        }
    }

    fn read<E>(&mut self, disk: Disk, offset: u64) -> Next<u64, E> {
        let if_match = disk.blob.etag.clone();
        self.disk = Some(disk);
        self.progress.send(Call::ReadPage { offset, if_match })
    }

    /// Notes the size that the disk grows from, or drops the note. All other metadata stays.
    fn note<E>(&mut self, disk: Disk, size: Option<u64>) -> Next<u64, E> {
        let mut metadata = disk.blob.metadata.clone();
        match size {
            Some(size) => metadata.insert(GROWN_FROM_KEY.to_owned(), size.to_string()),
            None => metadata.remove(GROWN_FROM_KEY),
        };
        let if_match = disk.blob.etag.clone();
        self.write(disk, Call::SetMetadata { metadata, if_match })
    }

    fn write<E>(&mut self, disk: Disk, call: Call) -> Next<u64, E> {
        self.progress.effect = Effect::Possible;
        self.disk = Some(disk);
        self.progress.send(call)
    }
}
