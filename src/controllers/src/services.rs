//! A Service as a key of the engine.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use lazuli_cluster::{PatchServiceError, ServicePatch, patch_service};
use lazuli_plan::{
    balancing::{Balanced, Key},
    engine::service::{self, Action, Env, Event, Patch, PatchFault, Reason},
    service::ServiceKey,
};
use lazuli_reconcile::Kind;
use tracing::{info, warn};

use crate::informed::Informed;

/// The kind of all Services.
pub(crate) struct Services {
    informed: Arc<Informed>,
}

impl Services {
    pub(crate) fn new(informed: Arc<Informed>) -> Self {
        Self { informed }
    }

    fn report(service: &ServiceKey, reason: &Reason<Key>) {
        match reason {
            Reason::Ensured => info!(%service, "the load balancer is as the Service asks"),
            Reason::Deleted => info!(%service, "nothing of the Service is left on Azure"),
            Reason::Invalid(mistakes) => warn!(%service, mistakes = mistakes.join("; "), "the Service is not valid"),
            Reason::Refused(key, refusal) => warn!(%service, object = %key, ?refusal, "the Service is refused"),
            Reason::Retry(key, fault) => warn!(%service, object = %key, ?fault, "a write is tried again"),
            Reason::Held(key) => warn!(%service, object = %key, "a plan waits to be accepted"),
        }
    }
}

impl Kind for Services {
    type Key = ServiceKey;
    type State = service::State<Balanced>;
    type Event = Event<Balanced>;
    type Action = Action<Balanced>;

    const NAME: &'static str = "service";

    fn woke() -> Self::Event {
        Event::Woke
    }

    fn drain() -> Self::Event {
        Event::Drain
    }

    fn is_drained(action: &Self::Action) -> bool {
        *action == Action::Drained
    }

    fn action_name(action: &Self::Action) -> &'static str {
        match action {
            Action::Tell { .. } => "tell",
            Action::Withdraw(_) => "withdraw",
            Action::Patch { .. } => "patch",
            Action::Report(_) => "report",
            Action::Drained => "drained",
        }
    }

    fn step(&self, key: &ServiceKey, state: &mut Self::State, now: Duration, event: Self::Event) -> Vec<Self::Action> {
        let inputs = self.informed.inputs();
        let env = Env { shared: self.informed.shared(), id: key, inputs: &*inputs };
        service::step(state, &env, now, event)
    }

    fn wake_at(&self, state: &Self::State) -> Option<Duration> {
        state.wake_at()
    }

    fn is_idle(&self, state: &Self::State) -> bool {
        state.is_idle()
    }

    fn carry_out(
        &self,
        key: &ServiceKey,
        _: &mut Self::State,
        action: Self::Action,
    ) -> Option<BoxFuture<'static, Self::Event>> {
        match action {
            Action::Tell { key: object, generation, want } => self.informed.want(&object, key, generation, want),
            Action::Withdraw(object) => self.informed.withdraw(&object, key),
            Action::Report(reason) => Self::report(key, &reason),
            Action::Drained => {}
            Action::Patch { id, version, patch } => {
                let (api, key) = (self.informed.api.clone(), key.clone());
                return Some(Box::pin(async move {
                    let patch = match patch {
                        Patch::AddFinalizer => ServicePatch::AddFinalizer,
                        Patch::RemoveFinalizer => ServicePatch::RemoveFinalizer,
                        Patch::SetStatus(addresses) => ServicePatch::SetStatus(addresses),
                        Patch::ClearStatus => ServicePatch::ClearStatus,
                    };
                    let result = patch_service(&api, &key, version, &patch).await.map_err(|error| match error {
                        PatchServiceError::Gone(_) => PatchFault::Gone,
                        PatchServiceError::Changed(_) => PatchFault::Again,
                        PatchServiceError::Failed { .. } => {
                            warn!(service = %key, %error, "the Service cannot be patched");
                            PatchFault::Again
                        }
                    });
                    Event::Patched { id, result }
                }));
            }
        }
        None
    }

    fn broken_off(&self, _: &ServiceKey) {}
}
