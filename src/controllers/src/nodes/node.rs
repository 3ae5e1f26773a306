//! A Node as a key of the engine.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use lazuli_cluster::{WriteNodeError, delete_node, patch_node};
use lazuli_engine::{Acceptance, Awaited, object};
use lazuli_journal::{Key as JournalKey, Note};
use lazuli_nodes::{
    cloud_node::{
        breaker, events,
        step::{Action, Event, Reason, State, step},
    },
    routing::RouteTables,
};
use lazuli_reconcile::Kind;
use tracing::{debug, info, warn};

use super::{breaker::KEY, known::Known, machine};
use crate::notes;

/// The kind of all Nodes.
pub(crate) struct Nodes {
    known: Arc<Known>,
}

impl Nodes {
    pub(super) fn new(known: Arc<Known>) -> Self {
        Self { known }
    }

    fn to_table(&self, event: object::Event<RouteTables>) {
        if let (Some(workers), Some(routes)) = (self.known.workers.get(), &self.known.options.routes) {
            workers.tables.send(&routes.table, event.into());
        }
    }

    fn to_breaker(&self, event: breaker::Event) {
        if let Some(workers) = self.known.workers.get() {
            workers.breaker.send(&KEY, event);
        }
    }

    fn report(node: &str, reason: &Reason) {
        match reason {
            Reason::Initialised => info!(node, "the Node is initialised"),
            Reason::NoMachine => warn!(
                node,
                "Azure has no VM of the Node's name or provider id; the Node keeps its taint until there is one"
            ),
            Reason::Unreadable(fault) => warn!(node, ?fault, "the VM of the Node cannot be read; it is tried again"),
            Reason::NoAddress(why) => warn!(node, "the Node is not initialised: {why}"),
            Reason::Readdressed(addresses) => info!(node, addresses, "the Node gets the addresses of its VM"),
            Reason::AddressesUnread(fault) => {
                warn!(node, ?fault, "the addresses of the VM cannot be read; the Node keeps those that it has");
            }
            Reason::AddressesKept(why) => warn!(node, "the Node keeps the addresses that it has: {why}"),
            Reason::RouteKept(why) => warn!(node, "the route of the Node stays, though its range {why}"),
            Reason::Stopped => info!(node, "the VM of the Node is stopped: the Node is out of service"),
            Reason::Gone => info!(node, "the VM of the Node does not exist in Azure: the Node is deleted"),
            Reason::Unproved(fault) => {
                warn!(node, ?fault, "the Node is not Ready, and Azure does not say what its VM does");
            }
            Reason::NoPodRange => warn!(node, "the Node has no spec.podCIDR, and --allocate-node-cidrs is true"),
            Reason::RouteRefused(why) => warn!(node, "the Node has no route: {why}"),
        }
    }
}

fn failed(error: &WriteNodeError) {
    match error {
        WriteNodeError::Failed { .. } => warn!(%error, "the Node cannot be written; it is tried again"),
        WriteNodeError::Gone(_) | WriteNodeError::Changed(_) => debug!(%error, "the Node is not written"),
    }
}

impl Kind for Nodes {
    type Key = String;
    type State = State;
    type Event = Event;
    type Action = Action;

    const NAME: &'static str = "node";

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
            Action::Read { .. } => "read",
            Action::ReadAddresses { .. } => "read_addresses",
            Action::Check { .. } => "check",
            Action::Patch { .. } => "patch",
            Action::Delete { .. } => "delete",
            Action::Ask => "ask",
            Action::Withdraw => "withdraw",
            Action::Route { .. } => "route",
            Action::WithdrawRoutes => "withdraw_routes",
            Action::Report(_) => "report",
            Action::Drained => "drained",
        }
    }

    fn step(&self, _: &String, state: &mut State, now: Duration, event: Event) -> Vec<Action> {
        step(state, &self.known.env(), now, event)
    }

    fn wake_at(&self, state: &State) -> Option<Duration> {
        state.wake_at()
    }

    fn is_idle(&self, state: &State) -> bool {
        state.is_idle()
    }

    fn carry_out(&self, key: &String, _: &mut State, action: Action) -> Option<BoxFuture<'static, Event>> {
        let (known, node) = (self.known.clone(), key.clone());
        match action {
            Action::Read { id, lookup } => {
                return Some(Box::pin(async move {
                    Event::Read { id, result: machine::instance(&known, &node, &lookup).await }
                }));
            }
            Action::ReadAddresses { id, machine, accept } => {
                return Some(Box::pin(async move {
                    Event::AddressesRead { id, result: machine::addresses(&known, &machine, accept).await }
                }));
            }
            Action::Check { id, machine } => {
                return Some(Box::pin(
                    async move { Event::Checked { id, result: machine::check(&known, &machine).await } },
                ));
            }
            Action::Patch { id, uid, version, patch } => {
                return Some(Box::pin(async move {
                    let patching = patch_node(&known.api.client, &node, &uid, version, &patch);
                    let result = known.api.write(patching).await;
                    let result = result.inspect_err(failed).map_err(|error| error.fault());
                    Event::Patched { id, result }
                }));
            }
            Action::Delete { id, uid } => {
                return Some(Box::pin(async move {
                    let result = known.api.write(delete_node(&known.api.client, &node, &uid)).await;
                    let result = result.inspect_err(failed).map_err(|error| error.fault());
                    Event::Deleted { id, result }
                }));
            }
            Action::Ask => self.to_breaker(breaker::Event::Asked(node)),
            Action::Withdraw => self.to_breaker(breaker::Event::Withdrawn(node)),
            Action::Route { generation, want } => {
                self.to_table(object::Event::Requested { from: node, generation, want, acceptance: Acceptance::Given });
            }
            Action::WithdrawRoutes => {
                self.to_table(object::Event::Withdrawn(node));
                // The routes that have gone left room for one that Azure refused.
                self.to_table(object::Event::EnvChanged(object::EnvChange::Cures));
            }
            Action::Report(reason) => {
                Self::report(key, &reason);
                if reason == Reason::Initialised {
                    known.initialised(key);
                }
                if let Some(event) = events::of_reason(key, &reason) {
                    known.events.send(event);
                }
            }
            Action::Drained => {}
        }
        None
    }

    fn broken_off(&self, key: &String) {
        let node = self.known.told().nodes.as_ref().and_then(|nodes| nodes.get(key)).cloned();
        if let Some(node) = node {
            self.known.to_node(key, Event::Changed(node));
        }
    }

    fn journal_key(key: &String) -> Option<JournalKey<'_>> {
        Some(JournalKey::node(key))
    }

    fn note_of_event(event: &Event) -> Option<Note<'_>> {
        notes::of_node_event(event)
    }

    fn note_of_action(action: &Action) -> Option<Note<'_>> {
        notes::of_node_action(action)
    }

    fn awaited(&self, state: &State, now: Duration) -> Option<Awaited> {
        Some(state.awaited(&self.known.env(), now))
    }
}
