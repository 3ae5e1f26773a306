//! How old a picture of the cluster may be, and what that says of the process's readiness.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::error;

use lazuli_telemetry::{Condition, Verdict, panics::catch};

use super::follow::{Change, SILENCE};

/// How old the picture may be. Longer than the silence after which the resources are listed again, so that
/// a healthy but quiet API server never gets here.
pub const STALE_AFTER: Duration = Duration::from_secs(SILENCE.as_secs() + 60);
/// How long after a panic a watch starts anew.
const RESTART: Duration = Duration::from_secs(15);

/// Runs the watch that `keep` makes, until `stop`. A watch that panics starts anew after [`RESTART`]. `cold` marks the
/// snapshot as out of date: before every start, after a panic and at the end.
pub(super) async fn keep_watching<W: Future<Output = ()>>(
    resources: &'static str,
    live: &Condition,
    stop: &CancellationToken,
    cold: impl Fn(),
    keep: impl Fn() -> W,
) {
    let watching = async {
        loop {
            cold();
            let Err(panicked) = catch(Box::pin(keep())).await else { return };
            cold();
            live.not_ready(format!("the watch broke off: {panicked}"));
            error!(error = %panicked, "the watch of {resources} panicked; it starts anew");
            sleep(RESTART).await;
        }
    };
    stop.run_until_cancelled(watching).await;
    cold();
}

/// Whether some resources are followed, for the process's readiness.
pub(super) struct Liveness<'c> {
    condition: &'c Condition,
    /// What is followed, for the message.
    resources: &'static str,
    /// What cannot be followed, and why.
    lost: BTreeMap<&'static str, String>,
    shown: Option<Verdict>,
}

impl<'c> Liveness<'c> {
    pub(super) fn of(condition: &'c Condition, resources: &'static str) -> Self {
        Self { condition, resources, lost: BTreeMap::new(), shown: None }
    }

    pub(super) fn note<V>(&mut self, resource: &'static str, change: &Change<V>) {
        match change {
            Change::Lost(why) => self.lost.insert(resource, why.clone()),
            Change::Replaced(_) | Change::Applied(..) | Change::Deleted(_) | Change::Confirmed => {
                self.lost.remove(resource)
            }
        };
    }

    /// Tells the condition, when it has changed. `synced`: whether the snapshot shows what the API server has.
    pub(super) fn show(&mut self, synced: bool) {
        let verdict = match self.lost.first_key_value() {
            Some((resource, why)) => Verdict::NotReady(format!("{resource} cannot be watched: {why}")),
            None if !synced => Verdict::NotReady(format!("{} have not been listed", self.resources)),
            None => Verdict::Ready(format!("{} are watched", self.resources)),
        };
        if self.shown.as_ref() != Some(&verdict) {
            self.condition.set(verdict.clone());
            self.shown = Some(verdict);
        }
    }
}

/// When a resource was last heard of. Only a list or a bookmark makes it whole; an event keeps it so, as the
/// first of a backlog it would not.
#[derive(Default, Clone, Copy)]
pub(super) struct Heard {
    pub(super) at: Option<Instant>,
}

impl Heard {
    pub(super) fn note<V>(&mut self, change: &Change<V>) {
        let proves =
            matches!(change, Change::Replaced(_)) || (self.at.is_some() && matches!(change, Change::Confirmed));
        let heard = !matches!(change, Change::Lost(_));
        let keeps = heard && self.at.is_some_and(|at| at.elapsed() < STALE_AFTER);
        if proves || keeps {
            self.at = Some(Instant::now());
        }
    }

    pub(super) fn is_fresh(self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < STALE_AFTER)
    }
}
