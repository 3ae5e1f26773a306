//! The breaker as a key of the engine; there is one.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use lazuli_nodes::cloud_node::{
    breaker::{Action, Event, LEAST_LIMIT, PACE, State, limit, step},
    events, step,
};
use lazuli_reconcile::Kind;
use tracing::{error, info};

use super::known::Known;

/// The one key.
pub(super) const KEY: &str = "all";

/// The kind of the breaker.
pub(crate) struct Breaker {
    known: Arc<Known>,
}

impl Breaker {
    pub(super) fn new(known: Arc<Known>) -> Self {
        Self { known }
    }
}

impl Kind for Breaker {
    type Key = &'static str;
    type State = State;
    type Event = Event;
    type Action = Action;

    const NAME: &'static str = "node_breaker";

    fn woke() -> Event {
        Event::Woke
    }

    fn drain() -> Event {
        Event::Drain
    }

    fn is_drained(action: &Action) -> bool {
        *action == Action::Drained
    }

    fn action_name(action: &Action) -> &'static str {
        match action {
            Action::Grant { reads_again: false, .. } => "grant",
            Action::Grant { reads_again: true, .. } => "grant_slowly",
            Action::Slow(true) => "slow",
            Action::Slow(false) => "slow_ended",
            Action::Drained => "drained",
        }
    }

    fn step(&self, _: &&'static str, state: &mut State, now: Duration, event: Event) -> Vec<Action> {
        step(state, self.known.count(), now, event)
    }

    fn wake_at(&self, state: &State) -> Option<Duration> {
        state.wake_at()
    }

    fn is_idle(&self, state: &State) -> bool {
        state.is_idle()
    }

    fn carry_out(&self, _: &&'static str, _: &mut State, action: Action) -> Option<BoxFuture<'static, Event>> {
        match action {
            Action::Grant { node, reads_again } => {
                if reads_again {
                    self.known.events.send(events::slowed(&node, limit(self.known.count())));
                }
                self.known.to_node(&node, step::Event::Granted { reads_again });
            }
            Action::Slow(true) => {
                let nodes = self.known.count();
                error!(
                    nodes,
                    limit = limit(nodes),
                    least_limit = LEAST_LIMIT,
                    "more VMs than the limit are gone or stopped at once: Nodes are deleted or tainted one every {} s, each \
                     after another read; check the rights of this identity and the state of the region",
                    PACE.as_secs()
                );
            }
            Action::Slow(false) => {
                info!("fewer VMs than the limit are gone or stopped: Nodes are handled at once again")
            }
            Action::Drained => {}
        }
        None
    }

    fn broken_off(&self, _: &&'static str) {
        // Each Node asks again when its proof is renewed.
        self.known.wake_all();
    }
}
