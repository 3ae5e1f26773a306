//! What changes of namespaces and of endpoints are to Services.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::OptionFuture;
use lazuli_balancing::LocalPools;
use lazuli_cluster::{Change, EndpointNodes, EndpointsChange, NamespacesChange};
use lazuli_engine::object::{EnvChange, Event as ObjectEvent};
use lazuli_model::ArmId;

use super::Controller;

impl Controller {
    pub(super) fn namespaces_changed(&self, change: NamespacesChange) {
        let was_synced = self.informed.shared().synced;
        let differ: BTreeSet<String> = {
            let mut told = self.informed.told();
            let known = told.namespaces.get_or_insert_default();
            match change {
                Change::Replaced(all) => {
                    let all: BTreeMap<_, _> = all.into_iter().collect();
                    let before = std::mem::replace(known, all);
                    let names = before.keys().chain(known.keys()).cloned();
                    names.filter(|name| before.get(name) != known.get(name)).collect()
                }
                Change::Applied(name, Some(labels)) => {
                    let differs = known.insert(name.clone(), labels.clone()) != Some(labels);
                    differs.then_some(name).into_iter().collect()
                }
                // Its Services go one by one.
                Change::Applied(name, None) | Change::Deleted(name) => {
                    known.remove(&name);
                    BTreeSet::new()
                }
                Change::Confirmed | Change::Lost(_) => BTreeSet::new(),
            }
        };
        let services = self.informed.told().services.clone().unwrap_or_default();
        services.values().filter(|one| differ.contains(&one.object.key.namespace)).for_each(|one| self.changed(one));
        self.note_synced(was_synced);
    }

    pub(super) fn endpoints_changed(&self, change: EndpointsChange) {
        let was_synced = self.informed.shared().synced;
        let now = self.informed.clock.now();
        let differ: BTreeSet<String> = {
            let mut told = self.informed.told();
            let interval = self.informed.settings.pool_update_interval;
            let known = told.endpoints.get_or_insert_with(|| LocalPools::new(interval));
            let nodes = |slice: EndpointNodes| (slice.service, slice.nodes);
            match change {
                Change::Replaced(all) => known.replace(all.into_iter().map(|(name, slice)| (name, nodes(slice))), now),
                Change::Applied(name, slice) => known.slice(&name, slice.map(nodes), now),
                Change::Deleted(name) => known.slice(&name, None, now),
                Change::Confirmed | Change::Lost(_) => BTreeSet::new(),
            }
        };
        self.pools_changed(&differ);
        self.informed.pools_wait.notify_one();
        self.note_synced(was_synced);
    }

    /// Follows the changes of endpoints that waited for the end of their interval.
    pub(super) async fn follow_waiting_pools(&self) {
        loop {
            let wake_at = self.informed.told().endpoints.as_ref().and_then(LocalPools::wake_at);
            let due = OptionFuture::from(wake_at.map(|at| tokio::time::sleep_until(self.informed.clock.at(at))));
            tokio::select! {
                () = self.informed.pools_wait.notified() => {}
                Some(()) = due => {
                    let now = self.informed.clock.now();
                    let differ = self.informed.told().endpoints.as_mut().map(|known| known.due(now));
                    self.pools_changed(&differ.unwrap_or_default());
                }
            }
        }
    }

    /// The pools of these Services have other members now.
    pub(super) fn pools_changed(&self, differing: &BTreeSet<String>) {
        let on: BTreeSet<ArmId> = {
            let told = self.informed.told();
            let services = told.services.iter().flatten().map(|(_, service)| &service.object);
            let local = services.filter(|object| object.is_local && differing.contains(&object.key.tag_name()));
            local.filter_map(|object| told.balancers.place_of(&object.key).cloned()).collect()
        };
        if let Some(workers) = self.informed.workers.get() {
            on.iter().for_each(|id| workers.load_balancers.send(id, ObjectEvent::EnvChanged(EnvChange::Replan).into()));
        }
    }
}
