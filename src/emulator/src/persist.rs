//! The state file: resources only. Operations in flight at shutdown are taken to their end first;
//! tokens, buckets, the call log and incidents are not kept.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::state::Shared;
use crate::store::Exported;

/// Which change the file on disk holds.
#[derive(Debug, Default)]
pub(crate) struct Saved(AtomicU64);

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

/// Saves when something changed and no operation runs. Failures are logged: the emulator goes on.
pub(crate) async fn save(shared: &Shared) {
    let Some(path) = &shared.options.state_file else {
        return;
    };
    let exported = {
        let state = shared.state();
        let idle = state.operations.running() == 0;
        let new = shared.saved.0.swap(state.changes, Ordering::Relaxed) != state.changes;
        if !idle {
            shared.saved.0.store(u64::MAX, Ordering::Relaxed);
        }
        (idle && new).then(|| state.store.export())
    };
    if let Some(exported) = exported
        && let Err(error) = write(path, &exported)
    {
        tracing::warn!(error = %error, "the state file was not written");
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
