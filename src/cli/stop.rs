//! SIGTERM and SIGINT as a token: the first asks everything to drain, the second ends the process at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled by the first SIGTERM or SIGINT.
///
/// # Errors
/// When signals cannot be listened to.
pub(super) fn on_signal() -> std::io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if first {
                tracing::info!("asked to stop: finishing what is in flight; a second signal stops at once");
                token.cancel();
            } else {
                std::process::exit(130);
            }
        }
    });
    Ok(stop)
}
