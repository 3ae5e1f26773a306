//! System calls that may hang in the kernel, run so that their callers do not.
//!
//! A `statvfs` or `umount` on a dead server or disk can sleep without end and no signal reaches it.
//! Each such call gets a thread of its own; the caller waits until its deadline and goes on. The
//! abandoned thread is counted, its key (a path) is refused until it returns, and when too many are
//! stuck new calls of that kind are refused instead of eating threads.
//!
//! Never used for what can be killed: that is a [`super::child`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use super::Deadline;

/// Why a bounded call gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The call did not return in time. It may still take effect later.
    #[error("{call} of {} did not return before the deadline", path.display())]
    Deadline {
        /// The system call.
        call: &'static str,
        /// What it was called on.
        path: PathBuf,
    },
    /// An earlier call on this path has still not returned.
    #[error("an earlier call on {} is still stuck in the kernel, {call} was not tried", path.display())]
    StillStuck {
        /// The system call.
        call: &'static str,
        /// What it was to be called on.
        path: PathBuf,
    },
    /// The cap on stuck calls is reached.
    #[error("{stuck} earlier calls are stuck in the kernel, {call} of {} was not tried", path.display())]
    TooManyStuck {
        /// The system call.
        call: &'static str,
        /// What it was to be called on.
        path: PathBuf,
        /// How many are stuck.
        stuck: usize,
    },
    /// No thread could be started, or it ended without an answer.
    #[error("no thread for {call} of {}", path.display())]
    Thread {
        /// The system call.
        call: &'static str,
        /// What it was to be called on.
        path: PathBuf,
        /// Why, when the system said so.
        #[source]
        source: Option<std::io::Error>,
    },
}

/// Counts the abandoned calls of one kind.
#[derive(Debug)]
pub(super) struct Gate {
    limit: usize,
    stuck: Mutex<BTreeSet<PathBuf>>,
}

impl Gate {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, stuck: Mutex::new(BTreeSet::new()) }
    }

    pub(super) fn stuck(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        // A set of paths has no broken middle state.
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `f` on a thread of its own and waits for it until the deadline.
pub(super) async fn call<T, F>(
    gate: &Arc<Gate>,
    call: &'static str,
    path: &Path,
    deadline: Deadline,
    f: F,
) -> Result<T, CallError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let path = path.to_path_buf();
    {
        let stuck = gate.lock();
        if stuck.contains(&path) {
            return Err(CallError::StillStuck { call, path });
        }
        if stuck.len() >= gate.limit {
            return Err(CallError::TooManyStuck { call, stuck: stuck.len(), path });
        }
    }
    let gate = Arc::clone(gate);
    let thread_path = path.clone();
    // The wait is on the blocking pool with the system's own clock: a paused tokio clock would
    // otherwise jump to the deadline while the call is in the kernel.
    let remaining = deadline.remaining();
    let waited = tokio::task::spawn_blocking(move || {
        let (answer, answers) = mpsc::channel();
        let returned = Arc::clone(&gate);
        let key = thread_path.clone();
        thread::Builder::new()
            .name(format!("host-{call}"))
            .spawn(move || {
                let value = f();
                // Under the lock, so that "answered" and "abandoned" exclude each other.
                let mut stuck = returned.lock();
                let _abandoned = answer.send(value);
                stuck.remove(&key);
            })
            .map_err(|source| CallError::Thread { call, path: thread_path.clone(), source: Some(source) })?;
        match answers.recv_timeout(remaining) {
            Ok(value) => Ok(value),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let mut stuck = gate.lock();
                match answers.try_recv() {
                    Ok(value) => Ok(value),
                    Err(mpsc::TryRecvError::Empty) => {
                        stuck.insert(thread_path.clone());
                        Err(CallError::Deadline { call, path: thread_path })
                    }
                    Err(mpsc::TryRecvError::Disconnected) => {
                        Err(CallError::Thread { call, path: thread_path, source: None })
                    }
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(CallError::Thread { call, path: thread_path, source: None })
            }
        }
    })
    .await;
    match waited {
        Ok(result) => result,
        Err(_) => Err(CallError::Thread { call, path, source: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_hung_call_answers_by_its_deadline_and_is_counted_until_it_returns() {
        let gate = Arc::new(Gate::new(2));
        let (release, hung) = mpsc::channel::<()>();
        let (done, finished) = mpsc::channel::<()>();
        let soon = || Deadline::after(Duration::from_millis(30));
        let long = || Deadline::after(Duration::from_secs(30));
        let error = call(&gate, "statvfs", Path::new("/hung"), soon(), move || {
            let _ = hung.recv();
            drop(done);
        })
        .await
        .expect_err("it hangs");
        assert!(matches!(error, CallError::Deadline { .. }), "{error}");
        assert_eq!(gate.stuck(), 1);

        let again = call(&gate, "statvfs", Path::new("/hung"), long(), || 1).await;
        assert!(matches!(again, Err(CallError::StillStuck { .. })));
        let other = call(&gate, "statvfs", Path::new("/fine"), long(), || 1).await;
        assert_eq!(other.expect("others are not held up"), 1);

        drop(release);
        let _ = finished.recv();
        // The entry leaves under the lock right after the closure ends.
        while gate.stuck() != 0 {
            thread::yield_now();
        }
        let healed = call(&gate, "statvfs", Path::new("/hung"), long(), || 2).await;
        assert_eq!(healed.expect("healed"), 2);
    }

    #[tokio::test]
    async fn stuck_calls_are_capped() {
        let gate = Arc::new(Gate::new(1));
        let (release, hung) = mpsc::channel::<()>();
        let soon = Deadline::after(Duration::from_millis(10));
        let _ = call(&gate, "umount", Path::new("/a"), soon, move || hung.recv()).await;
        let refused = call(&gate, "umount", Path::new("/b"), soon, || ()).await;
        assert!(matches!(refused, Err(CallError::TooManyStuck { stuck: 1, .. })));
        drop(release);
    }
}
