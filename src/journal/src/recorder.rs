//! The handle by which the parts of a process write into its one journal.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    note::{Key, Note},
    store::Journal,
};

/// Writes into the journal of a process. Clones share it. The default writes nowhere.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<Shared>>);

struct Shared {
    journal: Mutex<Journal>,
    runs: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = self.0.as_ref().map(|shared| shared.journal().len());
        f.debug_struct("Recorder").field("objects", &objects).finish()
    }
}

impl Shared {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        // A panic inside would be a bug of the store itself; what is printed after it is better than nothing.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder {
    /// A journal that is empty. `runs` is the time since the start of the process; it never goes back.
    pub fn new(runs: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(Shared { journal: Mutex::default(), runs: Box::new(runs) })))
    }

    /// One that writes nowhere.
    pub fn nowhere() -> Self {
        Self::default()
    }

    /// Whether it writes somewhere.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Notes something of an object.
    pub fn note<'a>(&self, key: &Key<'_>, note: impl Into<Note<'a>>) {
        if let Some(shared) = &self.0 {
            let now = (shared.runs)();
            shared.journal().note(now, key, &note.into());
        }
    }

    /// For how long the process has run; none where nothing is written.
    pub fn runs(&self) -> Duration {
        self.0.as_ref().map(|shared| (shared.runs)()).unwrap_or_default()
    }

    /// Looks at the journal; `None` where nothing is written. Nothing is noted meanwhile, so `look` is short.
    pub fn look<T>(&self, look: impl FnOnce(&Journal) -> T) -> Option<T> {
        self.0.as_ref().map(|shared| look(&shared.journal()))
    }

    /// What is known of an object, a line each: for the log, when the work on it was broken off.
    pub fn lines_of(&self, key: &Key<'_>) -> Vec<String> {
        let story = self.look(|journal| journal.story_of(key)).flatten();
        story.map(|story| story.lines()).unwrap_or_default()
    }

    /// What is known of all that waits or has failed, a line each.
    pub fn lines_of_unsettled(&self, most: usize) -> Vec<String> {
        let Some((stories, more)) = self.look(|journal| journal.unsettled(most)) else { return vec![] };
        let mut lines: Vec<String> = stories.iter().flat_map(|story| story.lines()).collect();
        if more > 0 {
            lines.push(format!("{more} more wait or have failed"));
        }
        lines
    }
}

/// Prints what waits or has failed to stderr, where it is dropped because a test has failed.
#[derive(Debug, Default)]
pub struct PrintedAtFailure(Mutex<Vec<(String, Recorder)>>);

/// How many objects a failed test prints.
const MOST_AT_FAILURE: usize = 12;

impl PrintedAtFailure {
    /// A new journal for a process of this name; `runs` as of [`Recorder::new`].
    pub fn recorder(
        &self,
        process: impl Into<String>,
        runs: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Recorder {
        let recorder = Recorder::new(runs);
        self.all().push((process.into(), recorder.clone()));
        recorder
    }

    fn all(&self) -> MutexGuard<'_, Vec<(String, Recorder)>> {
        // An entry is added whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is printed.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (process, recorder) in &*self.all() {
            let lines = recorder.lines_of_unsettled(MOST_AT_FAILURE);
            text.push_str(&format!("the journal of {process} after {:.3} s:\n", recorder.runs().as_secs_f64()));
            match lines.is_empty() {
                true => text.push_str("  nothing waits or has failed\n"),
                false => lines.iter().for_each(|line| text.push_str(&format!("  {line}\n"))),
            }
        }
        text
    }
}

impl Drop for PrintedAtFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprint!("{}", self.text());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{Subject, Word};

    #[test]
    fn clones_write_into_one_journal_and_the_default_writes_nowhere() {
        let seconds = Arc::new(AtomicU64::new(5));
        let clock = seconds.clone();
        let printed = PrintedAtFailure::default();
        let recorder = printed.recorder("controller", move || Duration::from_secs(clock.load(Ordering::Relaxed)));
        let (disk, vm) = (Key::new(Subject::Disk, "d\u{1b}"), Key::new(Subject::Vm, "v"));
        recorder.clone().note(&disk, Word::AttachAsked.about(vm.clone()));
        seconds.store(7, Ordering::Relaxed);
        recorder.note(&disk, Word::AwaitsPermit);
        let lines = [
            "disk d\\u{1b} waits, since 5.0 s",
            "     5.000 s  asked    the attach to VM v is requested",
            "     7.000 s  waits    a permit to write: Azure takes only so many requests",
        ];
        assert_eq!(recorder.lines_of(&disk), lines);
        assert_eq!(recorder.lines_of_unsettled(9), lines);
        assert_eq!(recorder.lines_of_unsettled(0), ["1 more wait or have failed"]);
        assert!(printed.text().starts_with("the journal of controller after 7.000 s:\n  disk d\\u{1b} waits"));

        let nowhere = Recorder::nowhere();
        nowhere.note(&disk, Word::AwaitsPermit);
        assert_eq!((nowhere.is_on(), nowhere.lines_of(&disk).len(), nowhere.runs()), (false, 0, Duration::ZERO));
    }
}
