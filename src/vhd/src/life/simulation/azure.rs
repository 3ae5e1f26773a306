//! Azure, machines and other people.

use super::*;
use crate::{
    footer::{Footer, ZEROS},
    lease::Lease,
    life::{Blob, Contents, ETag, GROWN_FROM_KEY},
};

impl SimBlob {
    fn page(&self, offset: u64) -> Page {
        self.pages.get(&offset).copied().unwrap_or(ZEROS)
    }

    pub(super) fn size(&self) -> u64 {
        self.length - LENGTH
    }

    fn end(&self) -> Page {
        self.page(self.size())
    }

    pub(super) fn has_footer(&self) -> bool {
        Footer::of_blob(&self.end(), self.length).is_ok()
    }

    fn etag(&self) -> ETag {
        ETag(format!("{}-{}", self.number, self.version))
    }

    /// The place that an old footer is noted to be at, inside the disk.
    pub(super) fn noted(&self) -> Option<u64> {
        self.metadata.get(GROWN_FROM_KEY)?.parse().ok().filter(|place| *place < self.size())
    }

    /// Whether an old footer of this disk is here, that no machine and no tool has written.
    pub(super) fn has_old_footer(&self, place: u64) -> bool {
        place < self.size()
            && !self.data.contains(&place)
            && Footer::read(&self.page(place)).is_ok_and(|footer| footer.current_size == place)
    }

    pub(super) fn old_footers(&self) -> Vec<u64> {
        self.pages.keys().copied().filter(|place| self.has_old_footer(*place)).collect()
    }
}

/// Bytes that a machine or a tool writes.
fn data(number: u64) -> Page {
    let mut page = [0xDA; LENGTH as usize];
    page[0] = u8::try_from(number % 251).expect("it is below 251");
    page
}

/// Whether a request names the version that must be there.
fn is_conditional(call: &Call) -> bool {
    matches!(
        call,
        Call::WritePage { .. }
            | Call::ClearPage { .. }
            | Call::Resize { .. }
            | Call::SetMetadata { .. }
            | Call::DeleteBlob { .. }
    )
}

impl World {
    /// A request reaches Azure, or does not.
    pub(super) fn send(&mut self, task: &mut Task, call: &Call, fate: Fate) -> Answer<()> {
        let is_write = !matches!(
            call,
            Call::ReadContainer
                | Call::ReadBlob
                | Call::ReadPage { .. }
                | Call::ListSnapshots
                | Call::ReadAccount
                | Call::ReadContents
        );
        match fate {
            Fate::Refused => {
                self.count("refused");
                refused(Problem::Other(Fault::Unavailable))
            }
            Fate::LostDone | Fate::LostNotDone | Fate::LostLate if !is_write => {
                refused(Problem::Other(Fault::Unavailable))
            }
            // A blob and an account have no version to compare before they are made or deleted.
            Fate::LostLate if is_conditional(call) => {
                self.late.push((task.clone(), call.clone()));
                refused(Problem::Lost)
            }
            Fate::LostNotDone | Fate::LostLate => {
                self.count("answer lost, not done");
                if self.is(Mutant::Optimist) {
                    return Answer::Done(Some(self.blob.as_ref().map_or(ETag("0-0".into()), SimBlob::etag)));
                }
                refused(Problem::Lost)
            }
            Fate::LostDone => {
                self.count("answer lost, done");
                let _ = self.serve(task, call);
                refused(Problem::Lost)
            }
            Fate::Served => self.serve(task, call),
        }
    }

    /// A request that was sent long ago reaches Azure.
    pub(super) fn arrives(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let which = usize::try_from(self.numbers.below(self.late.len() as u64)).expect("they are few");
        let (mut task, call) = self.late.swap_remove(which);
        let answer = self.serve(&mut task, &call);
        self.tell(|| format!("late: {call:?} -> {answer:?}").chars().take(180).collect());
        let is_done = matches!(answer, Answer::Done(_));
        self.count(if is_done { "answer lost, done late" } else { "late, and refused" });
        for task in self.tasks.iter_mut().flatten() {
            task.was_gone |= self.blob.is_none();
        }
    }

    fn serve(&mut self, task: &mut Task, call: &Call) -> Answer<()> {
        if self.account.is_none() {
            return refused(Problem::NoAccount);
        }
        match call {
            Call::ReadAccount => return self.read_account(),
            Call::ReadContents => return self.read_contents(task),
            Call::DeleteAccount => return self.delete_account(task),
            Call::ReadContainer => {
                return match self.container {
                    None => refused(Problem::NoContainer),
                    Some(is_public) => Answer::Container { is_public: is_public && !self.is(Mutant::BlindContainer) },
                };
            }
            Call::MakeContainer => {
                if self.container.is_some() {
                    return refused(Problem::Exists);
                }
                self.container = Some(false);
                return Answer::Done(None);
            }
            _ => {}
        }
        if self.container.is_none() {
            return refused(Problem::NoContainer);
        }
        match call {
            Call::MakeBlob { length, metadata } => self.make_blob(task, *length, metadata),
            Call::ReadBlob => self.read_blob(task),
            Call::ReadPage { offset, if_match } => self.read_page(*offset, if_match),
            Call::ListSnapshots => match &self.blob {
                _ if self.is(Mutant::DeletesSnapshots) => Answer::Snapshots(Vec::new()),
                None => refused(Problem::NoBlob),
                Some(blob) => Answer::Snapshots((0..blob.snapshots).map(|number| format!("t{number}")).collect()),
            },
            Call::WritePage { if_match, .. }
            | Call::ClearPage { if_match, .. }
            | Call::Resize { if_match, .. }
            | Call::SetMetadata { if_match, .. }
            | Call::DeleteBlob { if_match } => self.change_blob(task, call, if_match),
            Call::ReadAccount
            | Call::ReadContents
            | Call::DeleteAccount
            | Call::ReadContainer
            | Call::MakeContainer => unreachable!("they are served above"),
        }
    }

    fn make_blob(&mut self, task: &mut Task, length: u64, metadata: &Metadata) -> Answer<()> {
        if self.blob.is_some() {
            if !self.is(Mutant::NoIfNoneMatch) {
                return refused(Problem::Exists);
            }
            self.is_replaced();
        }
        if self.container == Some(true) && self.is(Mutant::BlindContainer) {
            self.breaks("made where everybody may read it");
        }
        self.put_blob(length, metadata.clone(), false);
        task.has_made = true;
        task.read_leased = false;
        Answer::Done(self.blob.as_ref().map(SimBlob::etag))
    }

    fn put_blob(&mut self, length: u64, metadata: Metadata, is_foreign: bool) {
        self.made += 1;
        self.blob = Some(SimBlob {
            number: self.made,
            version: 1,
            length,
            metadata,
            pages: BTreeMap::new(),
            data: BTreeSet::new(),
            is_leased: false,
            snapshots: 0,
            is_foreign,
            is_complete: false,
        });
    }

    fn read_blob(&mut self, task: &mut Task) -> Answer<()> {
        let Some(blob) = &self.blob else { return refused(Problem::NoBlob) };
        task.read_leased = blob.is_leased;
        let lease = if blob.is_leased && !self.is(Mutant::BlindLease) { Lease::Held } else { Lease::Free };
        let mut metadata = blob.metadata.clone();
        if self.is(Mutant::OurMark)
            && let Ask::Create(_) = task.ask
        {
            metadata.extend(crate::life::create::metadata(&crate::life::mark(CLUSTER, "pvc-1")));
        }
        Answer::Blob(Box::new(Blob { etag: blob.etag(), length: blob.length, is_page_blob: true, lease, metadata }))
    }

    fn read_page(&mut self, offset: u64, if_match: &ETag) -> Answer<()> {
        let Some(blob) = &self.blob else { return refused(Problem::NoBlob) };
        if blob.etag() != *if_match && !self.is(Mutant::NoIfMatch) {
            self.count("other version met");
            return refused(Problem::OtherVersion);
        }
        let is_end = offset + LENGTH == blob.length;
        let good = |size| Answer::Page(Box::new(Footer::new(size, unique_id(self.uri.folded()), 7).to_page()));
        if self.is(Mutant::BlindFooter) || (self.is(Mutant::ClearsUnread) && !is_end) {
            return good(offset);
        }
        Answer::Page(Box::new(blob.page(offset)))
    }

    fn change_blob(&mut self, task: &mut Task, call: &Call, if_match: &ETag) -> Answer<()> {
        let Some(mut blob) = self.blob.clone() else { return refused(Problem::NoBlob) };
        if task.read_leased {
            self.breaks("a write to a leased blob is sent");
        }
        if blob.is_leased {
            if !self.is(Mutant::BreaksLease) {
                self.count("attached: refused");
                return refused(Problem::Leased);
            }
            self.breaks("a leased blob is changed");
        }
        if blob.etag() != *if_match && !self.is(Mutant::NoIfMatch) {
            self.count("other version met");
            return refused(Problem::OtherVersion);
        }
        self.judge_change(task, call, &blob);
        blob.version += 1;
        let etag = blob.etag();
        match call {
            Call::WritePage { offset, page, .. } => {
                if offset + LENGTH > blob.length {
                    return refused(Problem::Other(Fault::Invalid));
                }
                blob.pages.insert(*offset, **page);
                blob.data.remove(offset);
                task.has_written = true;
                if matches!(task.ask, Ask::Create(_)) && !task.has_made {
                    self.count("footer repaired");
                }
            }
            Call::ClearPage { offset, .. } => {
                blob.pages.remove(offset);
                self.count("old footer cleared");
            }
            Call::Resize { length, .. } => {
                if self.is(Mutant::ClearsFirst) {
                    let place = blob.size();
                    blob.pages.remove(&place);
                }
                task.has_resized = true;
                blob.pages.retain(|place, _| *place < *length);
                blob.length = *length;
            }
            Call::SetMetadata { metadata, .. } => {
                let forgets = self.is(Mutant::ForgetsPlace);
                if !metadata.contains_key(GROWN_FROM_KEY)
                    && blob.noted().is_some_and(|place| blob.data.contains(&place))
                {
                    self.count("old footer not cleared, written over");
                }
                blob.metadata = metadata.clone();
                if forgets {
                    blob.metadata.remove(GROWN_FROM_KEY);
                }
            }
            Call::DeleteBlob { .. } => {
                if blob.snapshots > 0 {
                    if !self.is(Mutant::DeletesSnapshots) {
                        self.count("snapshots in the way");
                        return refused(Problem::HasSnapshots);
                    }
                    self.breaks("snapshots are deleted");
                }
                self.blob = None;
                return Answer::Done(None);
            }
            _ => unreachable!("it is no change of a blob"),
        }
        self.blob = Some(blob);
        Answer::Done(Some(etag))
    }

    fn read_account(&mut self) -> Answer<()> {
        let mut account = self.account.clone().expect("it is there");
        if self.is(Mutant::OurTags) {
            account.tags.insert(accounts::DISK_TAG.into(), BLOB.into());
        }
        Answer::Account(Box::new(account))
    }

    fn read_contents(&mut self, task: &mut Task) -> Answer<()> {
        let blobs = u64::from(self.blob.is_some());
        task.listed_empty = blobs + self.others == 0;
        if self.is(Mutant::EmptyAccount) {
            return Answer::Contents(Contents::default());
        }
        let mut contents = Contents { blobs, ..Contents::default() };
        contents.containers.extend(self.container.map(|_| "vhds".to_owned()));
        match self.others % 5 {
            _ if self.others == 0 => {}
            0 => contents.shares = 1,
            1 => contents.tables = 1,
            2 => contents.queues = 1,
            3 => contents.blobs += 1,
            _ => contents.containers.push("other".into()),
        }
        Answer::Contents(contents)
    }

    fn delete_account(&mut self, task: &mut Task) -> Answer<()> {
        self.judge_account(task);
        self.count("account deleted");
        self.account = None;
        self.container = None;
        self.blob = None;
        self.others = 0;
        Answer::Done(None)
    }

    /// What machines and people do.
    pub(super) fn others_do(&mut self, incident: Incident) {
        self.tell(|| format!("{incident:?}"));
        let number = self.numbers.draw();
        match (incident, &mut self.blob) {
            (Incident::Stranger(has_footer), None) => {
                if self.account.is_none() {
                    return;
                }
                self.container.get_or_insert(false);
                self.put_blob(MIB + LENGTH, Metadata::new(), true);
                if has_footer && let Some(blob) = &mut self.blob {
                    blob.pages.insert(MIB, Footer::new(MIB, [9; 16], 1).to_page());
                }
            }
            (Incident::OtherContent(is_there), _) => self.others = if is_there { 1 + number % 5 } else { 0 },
            (Incident::Public(is_public), _) if self.account.is_some() && (is_public || self.container.is_some()) => {
                self.container = Some(is_public);
            }
            (Incident::Attach, Some(blob)) if !blob.is_leased => {
                if blob.has_footer() {
                    blob.is_leased = true;
                    self.count("attached");
                } else if number.is_multiple_of(4) {
                    blob.is_leased = true;
                    self.count("leased by a tool");
                } else {
                    self.count("attach refused for the footer");
                }
            }
            (Incident::Detach, Some(blob)) => blob.is_leased = false,
            (Incident::MachineWrites(which) | Incident::ToolWrites(which), Some(blob)) => {
                let is_machine = matches!(incident, Incident::MachineWrites(_));
                // A tool knows what it does, and does nothing to a disk that is not whole.
                if is_machine != blob.is_leased || !blob.has_footer() {
                    return;
                }
                let old = blob.old_footers().first().copied();
                let place = match old {
                    Some(old) if which < 4 => old,
                    _ => (which * MIB / 2) % blob.size() / LENGTH * LENGTH,
                };
                let is_old = old == Some(place);
                blob.version += 1;
                blob.pages.insert(place, data(number));
                blob.data.insert(place);
                if is_old {
                    self.count("machine wrote where the old footer was");
                }
            }
            (Incident::Touch, Some(blob)) if !blob.is_leased => {
                blob.version += 1;
                blob.metadata.insert("touched".into(), number.to_string());
            }
            (Incident::Drop, Some(blob)) if !blob.is_leased && blob.snapshots == 0 => self.blob = None,
            (Incident::Snapshot, Some(blob)) => blob.snapshots += 1,
            (Incident::DropSnapshots, Some(blob)) => blob.snapshots = 0,
            _ => {}
        }
        for task in self.tasks.iter_mut().flatten() {
            task.was_gone |= self.blob.is_none();
        }
    }
}
