//! The state file: resources only. Tokens, buckets, the call log and incidents are not kept.
//!
//! It is written soon after every change (a burst becomes one write), also while
//! operations run, and at shutdown. Operations in flight at a shutdown are taken to their end first.
//! Those in flight when the process is killed are settled by the next start (`recovery.rs`); their
//! operation URLs are gone.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::sync::Notify;

use crate::state::Shared;
use crate::store::Exported;

/// How long a change waits for others to be written with it, at least: what a kill can lose, besides the
/// time that writing takes.
const QUIET: Duration = Duration::from_millis(20);

/// Wakes the task that writes the file.
#[derive(Debug, Default)]
pub(crate) struct Saver(Notify);

impl Saver {
    /// Something may have changed.
    pub(crate) fn changed(&self) {
        self.0.notify_one();
    }
}

/// The state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// Reading or writing failed.
    #[error("{action} {}", path.display())]
    File {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no state file.
    #[error("{} is no state file of this emulator", path.display())]
    Content {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// Reads a state file; none when there is no such file.
pub(crate) fn load(path: &Path) -> Result<Option<Exported>, StateFileError> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|source| StateFileError::Content { path: path.to_owned(), source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StateFileError::File { action: "read", path: path.to_owned(), source }),
    }
}

fn write(path: &Path, exported: &Exported) -> Result<(), StateFileError> {
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| StateFileError::File { action, path, source }
    };
    let text = serde_json::to_vec_pretty(exported)
        .map_err(|source| StateFileError::Content { path: path.to_owned(), source })?;
    // Written aside and renamed, so that a kill leaves the old file or the new one.
    let aside = path.with_extension("new");
    std::fs::write(&aside, text).map_err(failed("write", &aside))?;
    std::fs::rename(&aside, path).map_err(failed("replace", path))
}

/// Writes the file whenever something changed, until the end. Failures are logged: the emulator goes on.
pub(crate) async fn keep(shared: &Shared, path: &Path) {
    let mut written = None;
    loop {
        let exported = {
            let state = shared.state();
            let revision = state.store.revision();
            (written.replace(revision) != Some(revision)).then(|| state.store.export())
        };
        let begun = tokio::time::Instant::now();
        if let Some(exported) = exported
            && let Err(error) = write(path, &exported)
        {
            tracing::warn!(error = %error, "the state file was not written");
        }
        let took = begun.elapsed();
        shared.saver.0.notified().await;
        // A large state under constant change must not keep a thread busy with nothing but this.
        tokio::time::sleep(QUIET.max(took * 3)).await;
    }
}

/// Saves at shutdown: what runs is taken to its end.
pub(crate) fn save_last(shared: &Shared) -> Result<(), StateFileError> {
    let Some(path) = &shared.options.state_file else {
        return Ok(());
    };
    let exported = {
        let mut state = shared.state();
        state.settle_all();
        state.store.export()
    };
    write(path, &exported)
}
