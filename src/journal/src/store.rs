//! The bounded store of records.
//!
//! ```text
//!   names  ──sorted──▶ keys ──oldest──▶ chunk ──▶ chunk ──▶ chunk ◀──newest── keys
//!                       │                3 records of 16 bytes each
//!                       └── in one of four lists, by who loses records first
//! ```
//!
//! Records are in chunks of three, so that a chunk for each of 5,000 disks has room, with what finds it, in [`LIMIT`]. A
//! key has a chunk at least; without one it is forgotten.
//!
//! # Who loses records first
//!
//! | rank | keys | what one of them loses at a time |
//! |---|---|---|
//! | 1 | settled: nothing is asked of them that is not done | its oldest chunk, and with the last one its name |
//! | 2 | waiting or failed, with several chunks | its oldest chunk |
//! | 3 | waiting or failed VMs, whose disks say the same | its chunk |
//! | 4 | waiting or failed | its chunk, for another one that waits or failed and is not known yet |
//!
//! Within a rank the key goes first of which nothing has been noted for longest. A record of a settled key takes room
//! from settled keys alone. What was asked last of a waiting key outlives its other records.

use std::{cmp::Ordering, sync::Arc, time::Duration};

use crate::{
    cause::{Cause, REASONS},
    note::{Key, Note, NoteCause, Subject},
    record::{FORGOTTEN, NO_OTHER, Record},
    words::{Group, Standing, Word},
};

/// How many bytes all records may take, with all that finds them, beside the names of their objects.
pub const LIMIT: usize = 512 * 1024;
/// The records of a chunk.
const CHUNK: usize = 3;
/// How many chunks there may be: those of 5,000 waiting disks, and 500 more.
const CHUNKS: u16 = 5_500;
/// How many chunks one key may have.
const MOST: u8 = 16;
/// The longest name that is kept, in bytes. Source: the longest ARM id that this program takes; the names of others are
/// shorter, and what is longer comes from who may mean harm.
const LONGEST_NAME: usize = 1_024;
/// By how many chunks the store grows.
const GROWTH: usize = 128;
/// No chunk, or no key.
const NONE: u16 = u16::MAX;

const _: () = assert!(
    (size_of::<Chunk>() + size_of::<Entry>() + size_of::<u16>()) * CHUNKS as usize
        + REASONS * size_of::<&str>()
        + size_of::<Journal>()
        <= LIMIT
);

/// The records of all objects of a process, in bounded memory.
#[derive(Debug)]
pub struct Journal {
    chunks: Vec<Chunk>,
    keys: Vec<Entry>,
    free_keys: u16,
    /// The keys that have a name, in the order of [`compare`].
    names: Vec<u16>,
    ranks: [List; 4],
    /// The number of the newest key.
    serial: u32,
    /// The reasons of planners that were met.
    reasons: Vec<&'static str>,
    limit: u16,
    /// When something was noted last.
    last: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    records: [Record; CHUNK],
    /// The next chunk of the same key, towards its newest.
    newer: u16,
    len: u8,
}

#[derive(Debug)]
struct Entry {
    /// `None` of a free one.
    name: Option<Arc<str>>,
    /// Records of other keys name it by this number. It is never given again.
    serial: u32,
    /// Since when it stands as it does, in tenths of a second.
    since: u32,
    oldest: u16,
    newest: u16,
    /// Its neighbours in the list of its rank; of a free one `after` is the next free one.
    before: u16,
    after: u16,
    chunks: u8,
    subject: Subject,
    standing: Standing,
    rank: Rank,
}

/// Who loses records first; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Rank {
    Settled,
    Several,
    Beside,
    Single,
}

impl Rank {
    const ALL: [Self; 4] = [Self::Settled, Self::Several, Self::Beside, Self::Single];

    fn of(standing: Standing, chunks: u8, subject: Subject) -> Self {
        match (standing, chunks, subject) {
            (Standing::Settled, ..) => Self::Settled,
            (_, 2.., _) => Self::Several,
            (_, _, Subject::Vm) => Self::Beside,
            _ => Self::Single,
        }
    }
}

/// A list of keys: first that of which nothing has been noted for longest.
#[derive(Debug, Clone, Copy)]
struct List {
    first: u16,
    last: u16,
}

/// A record as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordView {
    /// When, since the start of the process. Of what was noted several times in a row: the last time, and of a wait the
    /// first.
    pub at: Duration,
    /// How often it was noted in a row.
    pub times: u8,
    /// What it says.
    pub word: Word,
    /// The number in it.
    pub number: Option<u32>,
    /// The cause of a failure.
    pub cause: Option<&'static str>,
    /// The other object.
    pub other: Other,
}

/// The other object of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Other {
    /// There is none.
    None,
    /// Its name is kept no more.
    Forgotten,
    /// It has this name.
    Named(Subject, Arc<str>),
}

/// What is known of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// What it is.
    pub subject: Subject,
    /// Its name.
    pub name: Arc<str>,
    /// How it stands.
    pub standing: Standing,
    /// Since when, since the start of the process.
    pub since: Duration,
    /// Its records, oldest first.
    pub records: Vec<RecordView>,
}

impl Story {
    /// What it waits for, or failed for: of each other object, and of itself, the newest record, where that leaves something
    /// open.
    pub fn open(&self) -> Vec<&RecordView> {
        let mut newest: Vec<&RecordView> = Vec::new();
        for record in &self.records {
            match record.word.group() {
                // An end ends everything.
                Group::Done => newest.clear(),
                Group::Waits => newest.retain(|earlier| earlier.other != record.other),
                _ if record.other == Other::None => continue,
                _ => newest.retain(|earlier| earlier.other != record.other),
            }
            newest.push(record);
        }
        newest.retain(|record| record.word.effect().is_open);
        if self.standing == Standing::Settled {
            newest.clear();
        }
        newest
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self::with_limit(CHUNKS)
    }
}

impl Journal {
    /// An empty one of this many chunks.
    pub(crate) fn with_limit(limit: u16) -> Self {
        let empty = List { first: NONE, last: NONE };
        Self {
            chunks: Vec::new(),
            keys: Vec::new(),
            free_keys: NONE,
            names: Vec::new(),
            ranks: [empty; 4],
            serial: NO_OTHER,
            reasons: Vec::new(),
            limit,
            last: None,
        }
    }

    /// How many bytes it takes, beside the names of objects.
    pub fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk>()
            + self.keys.capacity() * size_of::<Entry>()
            + self.names.capacity() * size_of::<u16>()
            + self.reasons.capacity() * size_of::<&str>()
            + size_of::<Self>()
    }

    /// How many objects have records.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// When something was noted last, since the start of the process.
    pub fn last(&self) -> Option<Duration> {
        self.last
    }

    /// Notes something of an object. `now` is the time since the start of the process, which never goes back.
    pub fn note(&mut self, now: Duration, key: &Key<'_>, note: &Note<'_>) {
        self.last = Some(now);
        // First, so that it takes no room from the object itself.
        let other = match &note.about {
            None => NO_OTHER,
            Some(other) => self.named(now, other),
        };
        let cause = self.cause(note.cause);
        let record = Record::new(now, note.word, cause, note.number, other);
        let standing = note.word.effect().standing;
        let at = match self.find(key) {
            Some(at) => at,
            None => {
                let standing = standing.unwrap_or(Standing::Settled);
                let Some(at) = self.insert(now, key, standing, record) else { return };
                self.place(at);
                return;
            }
        };
        let entry = &mut self.keys[usize::from(at)];
        if let Some(standing) = standing.filter(|standing| *standing != entry.standing) {
            (entry.standing, entry.since) = (standing, tenths(now));
        }
        self.append(at, record);
        self.unlink(at);
        self.place(at);
    }

    /// What is known of the objects of these kinds that have this name, or whose names end with a slash and it; at most so
    /// many, and how many more there are.
    pub fn stories(&self, subjects: &[Subject], name: &str, most: usize) -> (Vec<Story>, usize) {
        let is_asked = |at: &&u16| {
            let entry = &self.keys[usize::from(**at)];
            subjects.contains(&entry.subject) && entry.name.as_deref().is_some_and(|whole| is_named(whole, name))
        };
        let mut found: Vec<u16> = self.names.iter().filter(is_asked).copied().collect();
        found.sort_by(|one, other| self.keys[usize::from(*one)].name.cmp(&self.keys[usize::from(*other)].name));
        let more = found.len().saturating_sub(most);
        (found.iter().take(most).map(|at| self.story(*at)).collect(), more)
    }

    /// What is known of the object of exactly this name.
    pub fn story_of(&self, key: &Key<'_>) -> Option<Story> {
        Some(self.story(self.find(key)?))
    }

    /// What is known of those that wait or have failed: first of those that do so since longest.
    pub fn unsettled(&self, most: usize) -> (Vec<Story>, usize) {
        let entry = |at: u16| &self.keys[usize::from(at)];
        let mut found: Vec<u16> =
            self.names.iter().copied().filter(|at| entry(*at).standing != Standing::Settled).collect();
        found.sort_by_key(|at| (entry(*at).since, entry(*at).serial));
        let more = found.len().saturating_sub(most);
        (found.iter().take(most).map(|at| self.story(*at)).collect(), more)
    }

    fn story(&self, at: u16) -> Story {
        let entry = &self.keys[usize::from(at)];
        let view = |record: &Record| RecordView {
            at: record.at(),
            times: record.times,
            word: record.word,
            number: record.number(),
            cause: record.cause.text(&self.reasons),
            other: self.other(record.other),
        };
        Story {
            subject: entry.subject,
            name: entry.name.clone().unwrap_or_default(),
            standing: entry.standing,
            since: Duration::from_millis(u64::from(entry.since) * 100),
            records: self.records(at).map(view).collect(),
        }
    }

    fn other(&self, serial: u32) -> Other {
        if serial == NO_OTHER {
            return Other::None;
        }
        let named = self.keys.iter().find(|entry| entry.serial == serial && entry.name.is_some());
        match named.and_then(|entry| Some((entry.subject, entry.name.clone()?))) {
            Some((subject, name)) => Other::Named(subject, name),
            None => Other::Forgotten,
        }
    }

    /// The records of a key, oldest first.
    fn records(&self, at: u16) -> impl Iterator<Item = &Record> {
        let mut next = self.keys[usize::from(at)].oldest;
        let chunks = std::iter::from_fn(move || {
            let chunk = self.chunks.get(usize::from(next))?;
            next = chunk.newer;
            Some(chunk)
        });
        chunks.flat_map(|chunk| &chunk.records[..usize::from(chunk.len)])
    }

    /// The number of another object that a record names. One without records gets one that says that it was named.
    fn named(&mut self, now: Duration, key: &Key<'_>) -> u32 {
        let at = match self.find(key) {
            Some(at) => Some(at),
            None => {
                let record = Record::new(now, Word::Named, Cause::NONE, None, NO_OTHER);
                self.insert(now, key, Standing::Settled, record).inspect(|at| self.place(*at))
            }
        };
        at.map_or(FORGOTTEN, |at| self.keys[usize::from(at)].serial)
    }

    fn cause(&mut self, cause: NoteCause) -> Cause {
        match cause {
            NoteCause::None => Cause::NONE,
            NoteCause::Fault(kind) => Cause::fault(kind),
            NoteCause::Reason(reason) => {
                let number = self.reasons.iter().position(|met| *met == reason).unwrap_or_else(|| {
                    if self.reasons.len() < REASONS {
                        self.reasons.reserve_exact(1);
                        self.reasons.push(reason);
                        return self.reasons.len() - 1;
                    }
                    REASONS
                });
                Cause::reason(number)
            }
        }
    }

    fn find(&self, key: &Key<'_>) -> Option<u16> {
        let place = self.place_of(key).ok()?;
        self.names.get(place).copied()
    }

    /// Where the key is among the names, or belongs.
    fn place_of(&self, key: &Key<'_>) -> Result<usize, usize> {
        self.names.binary_search_by(|at| {
            let entry = &self.keys[usize::from(*at)];
            let name = entry.name.as_deref().unwrap_or_default();
            compare((entry.subject, name), (key.subject, &key.name))
        })
    }

    /// Adds a key with its first record, in no list yet. `None` when there is no room for it, or its name is too long.
    fn insert(&mut self, now: Duration, key: &Key<'_>, standing: Standing, record: Record) -> Option<u16> {
        if key.name.len() > LONGEST_NAME {
            return None;
        }
        let chunk = self.chunk(Rank::of(standing, 1, key.subject))?;
        self.chunks[usize::from(chunk)] = Chunk { records: [record; CHUNK], newer: NONE, len: 1 };
        self.serial = match self.serial {
            // After four thousand million keys.
            number if number >= FORGOTTEN - 1 => NO_OTHER + 1,
            number => number + 1,
        };
        let entry = Entry {
            name: Some(Arc::from(&*key.name)),
            serial: self.serial,
            since: tenths(now),
            oldest: chunk,
            newest: chunk,
            before: NONE,
            after: NONE,
            chunks: 1,
            subject: key.subject,
            standing,
            rank: Rank::Settled,
        };
        let at = match self.free_keys {
            NONE => {
                grow(&mut self.keys, self.limit);
                self.keys.push(entry);
                u16::try_from(self.keys.len() - 1).expect("there are no more keys than chunks")
            }
            free => {
                self.free_keys = self.keys[usize::from(free)].after;
                self.keys[usize::from(free)] = entry;
                free
            }
        };
        // To make room may have moved the names.
        let place = self.place_of(key).unwrap_or_else(|place| place);
        grow(&mut self.names, self.limit);
        self.names.insert(place, at);
        Some(at)
    }

    /// Appends a record to a key. Where there is no room, an older record of the key itself goes.
    fn append(&mut self, at: u16, record: Record) {
        let Entry { newest, chunks, standing, subject, .. } = self.keys[usize::from(at)];
        let chunk = &mut self.chunks[usize::from(newest)];
        let len = usize::from(chunk.len);
        if chunk.records[len - 1].takes_in(&record) {
            return;
        }
        if len < CHUNK {
            chunk.records[len] = record;
            chunk.len += 1;
            return;
        }
        // Its own oldest chunk stays out of reach while another one is looked for.
        let last = Rank::of(standing, 2, subject);
        let fresh = if chunks < MOST { self.without(at, |journal| journal.chunk(last)) } else { None };
        let fresh = match fresh {
            Some(fresh) => {
                self.keys[usize::from(at)].chunks += 1;
                fresh
            }
            None if chunks > 1 => self.take_oldest(at),
            None => {
                self.rotate(at, record);
                return;
            }
        };
        self.chunks[usize::from(fresh)] = Chunk { records: [record; CHUNK], newer: NONE, len: 1 };
        let newest = std::mem::replace(&mut self.keys[usize::from(at)].newest, fresh);
        self.chunks[usize::from(newest)].newer = fresh;
    }

    /// Does something while a key is in no list.
    fn without<T>(&mut self, at: u16, work: impl FnOnce(&mut Self) -> T) -> T {
        self.unlink(at);
        let result = work(self);
        self.place(at);
        result
    }

    /// Puts a record into the one chunk of a key, which is full. What was asked last stays.
    fn rotate(&mut self, at: u16, record: Record) {
        let chunk = &mut self.chunks[usize::from(self.keys[usize::from(at)].newest)];
        let asked = chunk.records.iter().rposition(|record| record.word.group() == Group::Asked);
        let goes = if asked == Some(0) && record.word.group() != Group::Asked { 1 } else { 0 };
        chunk.records.copy_within(goes + 1.., goes);
        chunk.records[CHUNK - 1] = record;
    }

    /// Takes the oldest of several chunks from a key, and leaves a full chunk at least. What was asked last of it stays: it
    /// takes the place of the oldest record that is left.
    fn take_oldest(&mut self, at: u16) -> u16 {
        let is_asked = |record: &Record| record.word.group() == Group::Asked;
        let Entry { oldest, standing, .. } = self.keys[usize::from(at)];
        let taken = self.chunks[usize::from(oldest)];
        let in_all = self.records(at).filter(|record| is_asked(record)).count();
        let next = &mut self.chunks[usize::from(taken.newer)];
        let len = usize::from(next.len);
        let (lost, left) = taken.records.split_at(len);
        next.records.copy_within(..len, CHUNK - len);
        next.records[..CHUNK - len].copy_from_slice(left);
        next.len = CHUNK as u8;
        let lost: Vec<&Record> = lost.iter().filter(|record| is_asked(record)).collect();
        if let Some(asked) = lost.last().filter(|_| lost.len() == in_all && standing != Standing::Settled) {
            next.records[0] = **asked;
        }
        self.keys[usize::from(at)].oldest = taken.newer;
        oldest
    }

    /// A chunk, from a key in a list of this rank or one before if need be.
    fn chunk(&mut self, last: Rank) -> Option<u16> {
        if self.chunks.len() < usize::from(self.limit) {
            grow(&mut self.chunks, self.limit);
            let nothing = Record::new(Duration::ZERO, Word::Named, Cause::NONE, None, NO_OTHER);
            self.chunks.push(Chunk { records: [nothing; CHUNK], newer: NONE, len: 0 });
            return u16::try_from(self.chunks.len() - 1).ok();
        }
        let mut firsts = Rank::ALL.into_iter().filter(|rank| *rank <= last).map(|rank| self.ranks[rank as usize].first);
        let from = firsts.find(|first| *first != NONE)?;
        if self.keys[usize::from(from)].chunks == 1 {
            return Some(self.forget(from));
        }
        let taken = self.take_oldest(from);
        self.keys[usize::from(from)].chunks -= 1;
        // It stays the first of its rank, and becomes the first of another one.
        self.unlink(from);
        self.place_first(from);
        Some(taken)
    }

    /// Removes a key that has one chunk. Returns the chunk.
    fn forget(&mut self, at: u16) -> u16 {
        self.unlink(at);
        let place = self.names.iter().position(|named| *named == at).expect("each key has a name");
        self.names.remove(place);
        let entry = &mut self.keys[usize::from(at)];
        entry.name = None;
        entry.after = std::mem::replace(&mut self.free_keys, at);
        entry.newest
    }

    fn rank_of(&self, at: u16) -> Rank {
        let Entry { standing, chunks, subject, .. } = self.keys[usize::from(at)];
        Rank::of(standing, chunks, subject)
    }

    /// Puts a key at the end of its rank: something was noted of it.
    fn place(&mut self, at: u16) {
        let rank = self.rank_of(at);
        let list = &mut self.ranks[rank as usize];
        let before = std::mem::replace(&mut list.last, at);
        match before {
            NONE => list.first = at,
            before => self.keys[usize::from(before)].after = at,
        }
        let entry = &mut self.keys[usize::from(at)];
        (entry.rank, entry.before, entry.after) = (rank, before, NONE);
    }

    fn place_first(&mut self, at: u16) {
        let rank = self.rank_of(at);
        let list = &mut self.ranks[rank as usize];
        let after = std::mem::replace(&mut list.first, at);
        match after {
            NONE => list.last = at,
            after => self.keys[usize::from(after)].before = at,
        }
        let entry = &mut self.keys[usize::from(at)];
        (entry.rank, entry.before, entry.after) = (rank, NONE, after);
    }

    /// Takes a key out of the list of its rank.
    fn unlink(&mut self, at: u16) {
        let Entry { before, after, rank, .. } = self.keys[usize::from(at)];
        match before {
            NONE => self.ranks[rank as usize].first = after,
            before => self.keys[usize::from(before)].after = after,
        }
        match after {
            NONE => self.ranks[rank as usize].last = before,
            after => self.keys[usize::from(after)].before = before,
        }
    }
}

/// Makes room for one more, and for no more than may ever be.
fn grow<T>(all: &mut Vec<T>, limit: u16) {
    if all.len() == all.capacity() {
        let more = GROWTH.max(all.len() / 4).min(usize::from(limit).saturating_sub(all.len()));
        all.reserve_exact(more.max(1));
    }
}

fn tenths(at: Duration) -> u32 {
    u32::try_from(at.as_millis() / 100).unwrap_or(u32::MAX)
}

/// The order of names. It looks at their ends first, for the ids of one cluster begin alike.
fn compare((one_subject, one): (Subject, &str), (other_subject, other): (Subject, &str)) -> Ordering {
    one_subject.cmp(&other_subject).then(one.len().cmp(&other.len())).then_with(|| {
        let one = one.bytes().rev().map(|byte| byte.to_ascii_lowercase());
        one.cmp(other.bytes().rev().map(|byte| byte.to_ascii_lowercase()))
    })
}

/// Whether a whole name is this one, or ends with a slash and it.
fn is_named(whole: &str, name: &str) -> bool {
    let Some(start) = whole.len().checked_sub(name.len()) else { return false };
    let ends = whole.as_bytes()[start..].eq_ignore_ascii_case(name.as_bytes());
    !name.is_empty() && ends && (start == 0 || whole.as_bytes()[start - 1] == b'/')
}

#[cfg(test)]
mod tests;
