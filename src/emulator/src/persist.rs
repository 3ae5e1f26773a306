//! The state file: resources only, claimed by one process at a time. Tokens, buckets, the call log and incidents are not kept.
//!
//! It is written soon after every change (a burst becomes one write), also while
//! operations run, and at shutdown. Operations in flight at a shutdown are taken to their end first.
//! Those in flight when the process is killed are settled by the next start (`recovery.rs`); their
//! operation URLs are gone. The bytes of blobs are in files beside it, which the next start brings in line (`blob`).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::claim::Claim;
use crate::path;
use crate::state::Shared;
use crate::store::{Exported, Store};

/// How long a change waits for others to be written with it, at least: what a kill can lose, besides the
/// time that writing takes.
const QUIET: Duration = Duration::from_millis(20);

/// The state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// Reading or writing failed.
    #[error("{action} {}", path.display())]
    File {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no state file, or a damaged one.
    #[error("{} is no state file of this emulator; move it away to start anew", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// It is JSON, and no state.
    #[error("{} is no state file of this emulator: {why}; move it away to start anew", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A newer emulator wrote it.
    #[error("{} has the format {format}, and this emulator knows formats up to {FORMAT}; use a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u64,
    },
    /// Another emulator works on it.
    #[error("another emulator uses the state file {}; stop it or name another file", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
}

/// The format that is written. Files of format 0 have no number, and are read as they are.
const FORMAT: u64 = 1;

/// The file beside a state file, by adding to its name.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Claims a state file for this process, until the claim is dropped or the process ends.
///
/// The lock is on a file beside it, which stays: the state file itself is replaced with every write.
pub(crate) fn claim(path: &Path) -> Result<Claim, StateFileError> {
    let lock = beside(path, ".lock");
    match Claim::take(&lock) {
        Ok(Some(claim)) => Ok(claim),
        Ok(None) => Err(StateFileError::InUse { path: path.to_owned() }),
        Err(source) => Err(StateFileError::File { action: "lock", path: lock, source }),
    }
}

/// Whether a JSON document is a state of this emulator.
fn check(path: &Path, document: &Value) -> Result<(), StateFileError> {
    let foreign = |why: &str| Err(StateFileError::Foreign { path: path.to_owned(), why: why.to_owned() });
    let format = document["format"].as_u64().unwrap_or(0);
    if format > FORMAT {
        return Err(StateFileError::Newer { path: path.to_owned(), format });
    }
    if !document["subscriptions"].is_array() {
        return foreign("it has no list `subscriptions`");
    }
    let Some(resources) = document["resources"].as_object() else {
        return foreign("it has no object `resources`");
    };
    for (key, resource) in resources {
        let doc = &resource["doc"];
        let own = doc["id"].as_str().is_some_and(|id| path::key(id) == *key);
        if !own || !doc["type"].is_string() || !doc["properties"].is_object() {
            return foreign(&format!("the resource {key} has no document of that id with type and properties"));
        }
    }
    Ok(())
}

/// Reads a state file; none when there is no such file.
pub(crate) fn load(path: &Path) -> Result<Option<Exported>, StateFileError> {
    match std::fs::read(path) {
        Ok(bytes) => {
            let damaged = |source| StateFileError::Content { path: path.to_owned(), source };
            let document: Value = serde_json::from_slice(&bytes).map_err(damaged)?;
            check(path, &document)?;
            serde_json::from_value(document).map(Some).map_err(damaged)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StateFileError::File { action: "read", path: path.to_owned(), source }),
    }
}

/// The file's contents, resource by resource as they were written last: of thousands only those that changed
/// since are written out anew, and only for these the emulator is stopped.
#[derive(Default)]
struct Written {
    subscriptions: Vec<String>,
    /// Revision and text by key.
    resources: BTreeMap<String, (u64, String)>,
}

impl Written {
    fn follow(&mut self, store: &Store) {
        self.subscriptions = store.subscriptions().cloned().collect();
        for (key, resource) in store.iter() {
            if self.resources.get(key).is_none_or(|(revision, _)| *revision != resource.revision) {
                // Documents and counters: nothing in a resource has no JSON.
                let text = serde_json::to_string(resource).unwrap_or_default();
                self.resources.insert(key.clone(), (resource.revision, text));
            }
        }
        self.resources.retain(|key, _| store.contains(key));
    }

    /// One resource a line.
    fn text(&self) -> String {
        let lines: Vec<String> =
            self.resources.iter().map(|(key, (_, text))| format!("{}: {text}", Value::from(key.as_str()))).collect();
        format!(
            "{{\"format\": {FORMAT}, \"subscriptions\": {}, \"resources\": {{\n{}\n}}}}\n",
            Value::from(self.subscriptions.clone()),
            lines.join(",\n")
        )
    }
}

fn write(path: &Path, written: &Written) -> Result<(), StateFileError> {
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| StateFileError::File { action, path, source }
    };
    // Written aside and renamed, so that a kill leaves the old file or the new one.
    let aside = beside(path, ".new");
    std::fs::write(&aside, written.text()).map_err(failed("write", &aside))?;
    std::fs::rename(&aside, path).map_err(failed("replace", path))
}

/// Writes the file whenever something changed, until the end. Failures are logged: the emulator goes on.
pub(crate) async fn keep(shared: &Shared, path: &Path) {
    let (mut last, mut written) = (None, Written::default());
    loop {
        let begun = tokio::time::Instant::now();
        let changed = {
            let state = shared.state();
            let revision = state.store.revision();
            let changed = last.replace(revision) != Some(revision);
            if changed {
                written.follow(&state.store);
            }
            changed
        };
        if changed && let Err(error) = write(path, &written) {
            tracing::warn!(error = %error, "the state file was not written");
        }
        let took = begun.elapsed();
        shared.saver.change().await;
        // A large state under constant change must not keep a thread busy with nothing but this.
        tokio::time::sleep(QUIET.max(took * 3)).await;
    }
}

/// Saves at shutdown: what runs is taken to its end.
pub(crate) fn save_last(shared: &Shared) -> Result<(), StateFileError> {
    let Some(path) = &shared.options.state_file else {
        return Ok(());
    };
    let mut written = Written::default();
    {
        let mut state = shared.state();
        state.settle_all();
        written.follow(&state.store);
    }
    write(path, &written)
}
