//! A Service as a key of the engine.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use lazuli_balancing::{Balanced, Key, events};
use lazuli_cluster::{PatchServiceError, ServicePatch, patch_service};
use lazuli_engine::{
    Awaited, Outcome,
    service::{self, Action, Env, Event, Patch, PatchFault, Reason},
};
use lazuli_journal::{Key as JournalKey, Note};
use lazuli_model::{ServiceKey, event::Severity};
use lazuli_reconcile::Kind;
use tracing::{info, warn};

use crate::{
    informed::Informed,
    notes,
    operations::{self, Features, Operation},
};

/// The kind of all Services.
pub(crate) struct Services {
    informed: Arc<Informed>,
    /// Of Services that exist, where the Go manager's names are shown: what labels tell of them.
    features: Mutex<BTreeMap<ServiceKey, Features>>,
}

impl Services {
    pub(crate) fn new(informed: Arc<Informed>) -> Self {
        Self { informed, features: Mutex::default() }
    }

    /// Counts the work that a report ends.
    fn count(&self, service: &ServiceKey, state: &service::State<Balanced>, actions: &[Action<Balanced>]) {
        let ended = actions.iter().filter_map(|action| match action {
            Action::Report(reason) => operations::ended(reason, state.is_gone()),
            _ => None,
        });
        for (what, succeeded) in ended {
            let features = self.features().get(service).copied().unwrap_or_default();
            let (source, took) = (service.tag_name(), state.lasted());
            self.informed.operations.ended(&Operation { what, source: &source, succeeded, took, features });
        }
    }

    fn features(&self) -> MutexGuard<'_, BTreeMap<ServiceKey, Features>> {
        // Every change is complete.
        self.features.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a Service asks for, as far as labels tell of it, while it is there.
    fn note_features(&self, service: &ServiceKey) {
        let told = self.informed.told();
        let object = told.services.as_ref().and_then(|services| services.get(&service.tag_name()));
        let features = object.map(|service| Features::of(&service.object));
        drop(told);
        if let Some(features) = features {
            self.features().insert(service.clone(), features);
        }
    }

    fn report(&self, service: &ServiceKey, reason: &Reason<Key>) {
        let object = match reason {
            Reason::Refused(key, _) | Reason::Retry(key, _) | Reason::Held(key) => Some(key.id()),
            Reason::Ensuring
            | Reason::Ensured
            | Reason::Unchanged
            | Reason::Deleting
            | Reason::Deleted
            | Reason::Invalid(_)
            | Reason::Waits(..)
            | Reason::Unread(_) => None,
        };
        let answer = object.map(|object| self.informed.refusal_of(object)).unwrap_or_default();
        let events = events::of_reason(service, reason, &answer);
        if let Some(event) = events.first() {
            match event.reason.severity() {
                Severity::Normal => info!(%service, reason = event.reason.as_str(), "{}", event.note),
                Severity::Warning => warn!(%service, reason = event.reason.as_str(), "{}", event.note),
            }
        }
        events.into_iter().for_each(|event| self.informed.events.send(event));
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
        if let Event::Told { outcome: Outcome::Done(report), .. } = &event {
            report.found.notices.iter().for_each(|notice| self.informed.events.send(events::of_notice(key, notice)));
        }
        let inputs = self.informed.inputs();
        let env = Env { shared: self.informed.shared(), id: key, inputs: &*inputs };
        let is_removed = matches!(event, Event::Removed);
        if matches!(event, Event::Changed(_)) && self.informed.operations.shows_features() {
            self.note_features(key);
        }
        let actions = service::step(state, &env, now, event);
        self.count(key, state, &actions);
        if is_removed {
            self.features().remove(key);
        }
        actions
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
            Action::Tell { key: object, generation, want, acceptance } => {
                self.informed.want(&object, key, generation, want, acceptance);
            }
            Action::Withdraw(object) => self.informed.withdraw(&object, key),
            Action::Report(reason) => self.report(key, &reason),
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
                    let patching = patch_service(&api.client, &key, version, &patch);
                    let result = api.write(patching).await.map_err(|error| match error {
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

    fn broken_off(&self, key: &ServiceKey) {
        self.informed.lost_service(key);
    }

    fn journal_key(key: &ServiceKey) -> Option<JournalKey<'_>> {
        Some(JournalKey::service(key))
    }

    fn note_of_event(event: &Self::Event) -> Option<Note<'_>> {
        notes::of_service_event(event)
    }

    fn note_of_action(action: &Self::Action) -> Option<Note<'_>> {
        notes::of_service_action(action)
    }

    fn awaited(&self, state: &Self::State, now: Duration) -> Option<Awaited> {
        Some(state.awaited(&self.informed.shared(), now))
    }
}
