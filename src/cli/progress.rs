//! A line that says what takes long, for a person at a terminal. It appears after two seconds, counts the seconds, and is gone
//! at the end. In a pipe, with `NO_COLOR` or on a dumb terminal there is none.

use std::{
    io::Write as _,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::terminal::Screen;

/// What is shorter needs no line.
const QUIET: Duration = Duration::from_secs(2);
/// How often the line is written anew.
const EVERY: Duration = Duration::from_secs(1);

/// The line of a piece of work. Dropping it takes it away.
#[must_use = "the line goes with this"]
pub(super) struct Progress {
    is_over: Arc<(Mutex<bool>, Condvar)>,
    writer: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins a piece of work, such as `Azure is asked`.
    pub(super) fn begin(what: impl Into<String>) -> Self {
        let screen = Screen::of_stderr();
        let is_over = Arc::new((Mutex::new(false), Condvar::new()));
        let (seen, what) = (Arc::clone(&is_over), what.into());
        // A thread of its own: the work may block the one that runs everything else.
        let write = move || follow(&seen, &what, screen);
        let writer = screen.is_live.then(|| std::thread::Builder::new().name("progress".into()).spawn(write).ok());
        Self { is_over, writer: writer.flatten() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        *self.is_over.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.is_over.1.notify_all();
        if let Some(writer) = self.writer.take() {
            // A line that could not be written is no reason to fail.
            let _ = writer.join();
        }
    }
}

fn follow(end: &(Mutex<bool>, Condvar), what: &str, screen: Screen) {
    let began = Instant::now();
    let mut pause = QUIET;
    let mut is_shown = false;
    let mut is_over = end.0.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let waited = end.1.wait_timeout_while(is_over, pause, |is_over| !*is_over);
        is_over = waited.unwrap_or_else(PoisonError::into_inner).0;
        if *is_over {
            break;
        }
        let line = line(what, began.elapsed(), screen.width);
        let _ = write!(std::io::stderr(), "\r{line}\u{1b}[K");
        let _ = std::io::stderr().flush();
        (pause, is_shown) = (EVERY, true);
    }
    if is_shown {
        let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        let _ = std::io::stderr().flush();
    }
}

/// The line, which never reaches the last column: a terminal would begin another one.
fn line(what: &str, took: Duration, width: Option<usize>) -> String {
    let seconds = format!(" … {} s", took.as_secs());
    let room = width.unwrap_or(80).saturating_sub(1 + seconds.chars().count());
    let what: String = lazuli_journal::printable(what).chars().take(room).collect();
    format!("{what}{seconds}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_and_says_how_long() {
        assert_eq!(line("Azure is asked", Duration::from_millis(3_900), Some(80)), "Azure is asked … 3 s");
        for width in 1..40 {
            let line = line("attach-storm: 160 disks\u{7} on 10 nodes", Duration::from_secs(12), Some(width));
            assert!(line.chars().count() < width.max(8), "{width}: {line}");
            assert!(!line.contains('\u{7}'));
        }
    }

    #[test]
    fn it_ends_at_once_when_the_work_does() {
        let began = Instant::now();
        let progress = Progress::begin("nothing");
        drop(progress);
        assert!(began.elapsed() < QUIET);
    }
}
