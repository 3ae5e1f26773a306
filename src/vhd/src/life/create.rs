//! The creation of a blob disk.

use std::ops::RangeInclusive;

use lazuli_model::fault::Effect;

use super::{Answer, Blob, CREATED_BY, Call, ETag, Metadata, Next, Problem, Progress, VOLUME_KEY, Why};
use crate::footer::{Footer, LENGTH, Page, UniqueId, disk_size};

/// The disk to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSpec {
    /// Whose it is: the value of [`VOLUME_KEY`].
    pub mark: String,
    /// Its size in bytes.
    pub size: u64,
    /// The sizes with which a disk that an earlier try made is the one that is asked for, in bytes.
    pub accepted: RangeInclusive<u64>,
    /// The id in its footer.
    pub unique_id: UniqueId,
    /// The time in its footer.
    pub time_stamp: u32,
}

impl CreateSpec {
    fn metadata(&self) -> Metadata {
        metadata(&self.mark)
    }

    fn is_mine(&self, blob: &Blob) -> bool {
        self.metadata().iter().all(|(key, value)| blob.metadata.get(key) == Some(value))
    }
}

/// Whether after this refusal an earlier try may have made the blob: what would show it was not read. A write that is
/// refused for want of a right does not show it either.
fn hides_the_blob(call: &Call, problem: &Problem) -> bool {
    match call {
        Call::ReadContainer | Call::ReadBlob => *problem != Problem::NoAccount,
        Call::MakeBlob { .. } => problem.fault().is_refusal(),
        _ => false,
    }
}

/// The metadata of the blob of a volume.
pub(super) fn metadata(mark: &str) -> Metadata {
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    Metadata::from([text(CREATED_BY), text((VOLUME_KEY, mark))])
}

/// A creation. It ends with the size of the disk, in bytes.
#[derive(Debug, Clone)]
pub struct Create {
    spec: CreateSpec,
    progress: Progress,
    /// The blob, by the last read of it.
    blob: Option<Blob>,
    /// A read has shown that there is none.
    is_new: bool,
    /// Everybody may read the container.
    is_public: bool,
}

impl Create {
    /// A creation that has not begun.
    pub fn new(spec: CreateSpec) -> Self {
        Self { spec, progress: Progress::new(), blob: None, is_new: false, is_public: false }
    }

    /// The first call.
    pub fn begin<E>(&mut self) -> Next<u64, E> {
        self.progress.send(Call::ReadContainer)
    }

    /// What comes next, after the answer of the last call.
    pub fn next<E>(&mut self, answer: Answer<E>) -> Next<u64, E> {
        let Some(call) = self.progress.call.take() else { return self.begin() };
        match (&call, answer) {
            // An earlier try may have made the blob before somebody opened the container.
            (Call::ReadContainer, Answer::Container { is_public: true }) => {
                self.is_public = true;
                self.progress.send(Call::ReadBlob)
            }
            (Call::ReadBlob, Answer::Blob(blob)) if self.is_public => {
                if self.spec.is_mine(&blob) {
                    self.progress.effect = Effect::Possible;
                }
                self.progress.fail(Why::PublicContainer, None)
            }
            (Call::ReadBlob, Answer::Refused(Problem::NoBlob, _)) if self.is_public => {
                self.progress.fail(Why::PublicContainer, None)
            }
            (Call::ReadContainer, Answer::Container { is_public: false }) | (Call::MakeContainer, Answer::Done(_)) => {
                self.is_public = false;
                self.make()
            }
            (Call::ReadContainer, Answer::Refused(Problem::NoContainer, _)) => {
                self.is_new = true;
                self.progress.send(Call::MakeContainer)
            }
            // Somebody else has made it, and perhaps not private.
            (Call::MakeContainer, Answer::Refused(Problem::Exists | Problem::Lost, _)) => {
                self.progress.again(Call::ReadContainer)
            }
            (Call::MakeBlob { length, .. }, Answer::Done(Some(etag))) => {
                self.progress.effect = Effect::Possible;
                let size = length - LENGTH;
                let page = Footer::new(size, self.spec.unique_id, self.spec.time_stamp).to_page();
                self.write(size, page, etag)
            }
            (Call::MakeBlob { .. }, Answer::Refused(Problem::Lost, _) | Answer::Done(None)) => {
                self.progress.effect = Effect::Possible;
                self.progress.again(Call::ReadBlob)
            }
            // Some services answer a condition that is not met instead.
            (Call::MakeBlob { .. }, Answer::Refused(Problem::Exists | Problem::OtherVersion | Problem::Leased, _)) => {
                self.progress.again(Call::ReadBlob)
            }
            (Call::MakeBlob { .. } | Call::ReadBlob, Answer::Refused(Problem::NoContainer | Problem::NoBlob, _)) => {
                self.progress.again(Call::ReadContainer)
            }
            (Call::ReadBlob, Answer::Blob(blob)) => self.seen(*blob),
            (Call::ReadPage { .. }, Answer::Page(page)) => self.footer(&page),
            (Call::WritePage { offset, .. }, Answer::Done(_)) => Next::End(Ok(*offset)),
            (
                Call::ReadPage { .. } | Call::WritePage { .. },
                Answer::Refused(
                    Problem::OtherVersion | Problem::Leased | Problem::Lost | Problem::NoBlob | Problem::NoContainer,
                    _,
                ),
            ) => self.progress.again(Call::ReadBlob),
            (call, Answer::Refused(problem, error)) => {
                if !self.is_new && hides_the_blob(call, &problem) {
                    self.progress.effect = Effect::Possible;
                }
                self.progress.refused(call, problem, error)
            }
            (call, _) => self.progress.not_understood(call),
        }
    }

    fn make<E>(&mut self) -> Next<u64, E> {
        let metadata = self.spec.metadata();
        self.progress.send(Call::MakeBlob { length: self.spec.size + LENGTH, metadata })
    }

    /// There is a blob of the name.
    fn seen<E>(&mut self, blob: Blob) -> Next<u64, E> {
        if !blob.is_page_blob || !self.spec.is_mine(&blob) {
            return self.progress.fail(Why::Stranger, None);
        }
        // It is there, whoever has sent the request that made it.
        self.progress.effect = Effect::Possible;
        let size = match disk_size(blob.length) {
            Ok(size) => size,
            Err(defect) => return self.progress.fail(Why::Footer(defect), None),
        };
        if !self.spec.accepted.contains(&size) {
            return self.progress.fail(Why::OtherSize(size), None);
        }
        let if_match = blob.etag.clone();
        self.blob = Some(blob);
        self.progress.send(Call::ReadPage { offset: size, if_match })
    }

    /// The end of the blob that is there.
    fn footer<E>(&mut self, page: &Page) -> Next<u64, E> {
        let Some(blob) = self.blob.take() else { return self.progress.again(Call::ReadBlob) };
        let size = blob.length - LENGTH;
        let defect = match Footer::of_blob(page, blob.length) {
            Ok(_) => return Next::End(Ok(size)),
            Err(defect) => defect,
        };
        if !defect.is_repairable() {
            return self.progress.fail(Why::Footer(defect), None);
        }
        if !blob.lease.is_free() {
            return self.progress.fail(Why::Attached { machine: blob.machine() }, None);
        }
        let footer = match Footer::read(page) {
            Ok(footer) => footer.resized(size),
            Err(_) => Footer::new(size, self.spec.unique_id, self.spec.time_stamp),
        };
        self.write(size, footer.to_page(), blob.etag)
    }

    fn write<E>(&mut self, offset: u64, page: Page, if_match: ETag) -> Next<u64, E> {
        self.progress.send(Call::WritePage { offset, page: Box::new(page), if_match })
    }
}
