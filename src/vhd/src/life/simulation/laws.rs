//! The laws. They look at what is there, and import no rule of the steps.

use super::*;

impl World {
    /// A creation has replaced a blob.
    pub(super) fn is_replaced(&mut self) {
        self.breaks("a blob is replaced by a creation");
    }

    /// Our change of a blob, before it is done.
    pub(super) fn judge_change(&mut self, task: &Task, call: &Call, blob: &SimBlob) {
        if blob.is_foreign && matches!(task.ask, Ask::Create(_)) {
            self.breaks("a stranger's blob is changed by a creation");
        }
        match call {
            Call::WritePage { offset, .. } | Call::ClearPage { offset, .. } if blob.data.contains(offset) => {
                self.breaks("data is written over");
            }
            Call::WritePage { offset, .. } if *offset != blob.size() => {
                self.breaks("a footer is written inside the disk, or behind it");
            }
            Call::ClearPage { offset, .. } if !blob.has_old_footer(*offset) => {
                self.breaks("what is cleared is no old footer");
            }
            Call::ClearPage { .. } if !blob.has_footer() => {
                self.breaks("an old footer is cleared before there is a new one");
            }
            Call::Resize { length, .. } if *length <= blob.length => self.breaks("a blob shrinks"),
            Call::SetMetadata { metadata, .. } => {
                let is_kept = |key: &String| key == super::super::GROWN_FROM_KEY || metadata.contains_key(key);
                if !blob.metadata.keys().all(is_kept) {
                    self.breaks("metadata of others is lost");
                }
            }
            _ => {}
        }
    }

    /// A disk that was whole once has a footer, or one that can be found again.
    pub(super) fn check_footer(&mut self) {
        let Some(blob) = &self.blob else { return };
        if !blob.is_complete || blob.is_foreign {
            return;
        }
        let old = blob.noted();
        let is_found = old.is_some_and(|place| blob.has_old_footer(place) || blob.data.contains(&place));
        if !blob.has_footer() && !is_found {
            self.breaks("a disk without a footer: neither at its end nor where its note says");
        }
    }

    pub(super) fn came_to_size(&mut self, task: &Task, size: u64) {
        self.tell(|| format!("{:?} is answered: {size} bytes", task.ask));
        let Some(blob) = &mut self.blob else {
            return self.breaks("success without a blob");
        };
        let (is_right, has_footer, is_foreign) = (blob.size() == size, blob.has_footer(), blob.is_foreign);
        match task.ask {
            Ask::Create(mib) => {
                blob.is_complete = true;
                if is_foreign {
                    return self.breaks("a stranger's blob is answered");
                }
                if !has_footer {
                    return self.breaks("created without a footer");
                }
                if !is_right || size < mib * MIB {
                    return self.breaks("created with another size");
                }
                self.count(if task.has_made { "created" } else { "found again" });
            }
            Ask::Expand(mib) => {
                if !has_footer {
                    return self.breaks("grown without a footer");
                }
                if !is_right || size < mib * MIB {
                    return self.breaks("grown to another size");
                }
                if let Some(old) = blob.old_footers().first() {
                    let text = format!("an old footer is left: at {old}");
                    return self.breaks(text);
                }
                if blob.noted().is_some() {
                    return self.breaks("a note is left");
                }
                self.count("grown");
                if task.has_written && !task.has_resized {
                    self.count("growth finished for another process");
                }
            }
            Ask::Delete => self.breaks("a deletion has a size"),
        }
    }

    pub(super) fn came_to_deletion(&mut self, task: &Task, deleted: &Deleted) {
        self.tell(|| format!("{:?} is answered: {deleted:?}", task.ask));
        if !task.was_gone {
            return self.breaks("a deletion is answered while the blob is there");
        }
        self.count("deleted");
        match deleted {
            Deleted::Disk => {}
            Deleted::DiskAndAccount => {}
            Deleted::AccountKept(_) => self.count("account kept"),
        }
    }

    pub(super) fn judge_account(&mut self, task: &Task) {
        let is_own = self.account.as_ref().is_some_and(|account| accounts::is_dedicated_to(account, CLUSTER, BLOB));
        if !is_own {
            self.breaks("an account of somebody else is deleted");
        }
        if !task.listed_empty {
            self.breaks("an account with other content is deleted");
        }
    }

    pub(super) fn failed(&mut self, task: &Task, why: &Why) {
        self.tell(|| format!("{:?} fails: {why}", task.ask));
        match why {
            Why::Stranger => self.count("stranger's blob"),
            Why::OtherSize(_) => self.count("size differs"),
            Why::PublicContainer => self.count("public container"),
            Why::Attached { .. } => self.count("attached: refused"),
            Why::Snapshots(_) => self.count("snapshots in the way"),
            Why::Unsettled | Why::NoBlob | Why::NoAccount => self.count("unsettled or deleted meanwhile"),
            Why::Footer(_) | Why::NotAPageBlob | Why::Azure(..) => {}
        }
    }
}
