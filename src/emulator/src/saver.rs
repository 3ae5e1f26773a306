//! The signal that the state may have changed, for the task that writes the state file.

use tokio::sync::Notify;

/// Wakes the task that writes the file.
#[derive(Debug, Default)]
pub(crate) struct Saver(Notify);

impl Saver {
    /// Something may have changed.
    pub(crate) fn changed(&self) {
        self.0.notify_one();
    }

    /// Waits until something may have changed since the last time.
    pub(crate) async fn change(&self) {
        self.0.notified().await;
    }
}
