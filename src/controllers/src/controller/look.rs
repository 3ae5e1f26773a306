//! What Services or Nodes name and no list has shown so far: machines, and public IPs that are named by their address. And
//! the zones of the region.

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use lazuli_azure::{Until, compute::Freshness, error::ArmError, network::NetworkType};
use lazuli_balancing::interfaces::Unknown;
use lazuli_cluster::VersionedService;
use lazuli_model::{ArmId, fault::Fault};
use lazuli_quota::permit::Priority;
use lazuli_services::network::{Settings, nic::Nic, settings::LoadBalancerSku};
use serde_json::Value;
use tokio::time::MissedTickBehavior;
use tracing::warn;

use super::{Controller, LISTS};
use crate::pools::id_of;

/// How often a public IP is looked for that a Service names and that is not there.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How often the zones of the region are read again: a region gets new ones once in years.
const ZONES_AGAIN: Duration = Duration::from_secs(24 * 3_600);
/// The least pause between two looks for the machines of new Nodes.
const LOOK_SOON: Duration = Duration::from_secs(5);

/// Whether asking again for the zones is of no use: Azure forbids it, or is one that does not tell them. Services are served
/// without zones then.
fn is_final(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Forbidden
            | Fault::Denied
            | Fault::NotFound
            | Fault::ScopeNotFound
            | Fault::Unsupported
            | Fault::Invalid
            | Fault::Malformed
    )
}

impl Controller {
    /// Looks for what Services or Nodes name and no list has shown so far.
    pub(super) async fn look(&self) {
        let mut again = tokio::time::interval(LOOK_AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.informed.retry.notified() => {
                    self.informed.look_at_evidence().await;
                    self.place_again();
                }
                () = self.informed.look.notified() => {
                    self.look_for_machines().await;
                    self.discover().await;
                    // Nodes join one after another.
                    tokio::time::sleep(LOOK_SOON).await;
                }
                _ = again.tick() => {
                    self.look_for_machines().await;
                    if !self.informed.told().unplaced.is_empty() {
                        self.informed.look_at_evidence().await;
                    }
                    self.discover().await;
                    self.place_again();
                }
            }
        }
    }

    /// Reads the zones of the region, unless the operator names them. Without the right to do so there are none.
    pub(super) async fn read_zones(&self, until: &Until) -> Result<(), ArmError> {
        if self.options.zones.is_some() {
            return Ok(());
        }
        let Settings { subscription, location, .. } = &self.informed.settings;
        match self.informed.network.zones(subscription, location, until).await {
            Ok(zones) => self.informed.set_zones(zones),
            Err(error) if is_final(&error.fault) => warn!(
                %error,
                "the availability zones of the region cannot be read, so that new public IPs and internal frontends get \
                 none: assign Microsoft.Resources/subscriptions/providers/read on the subscription, or name the zones with \
                 --zones"
            ),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads them again from time to time.
    pub(super) async fn follow_zones(&self) {
        loop {
            tokio::time::sleep(ZONES_AGAIN).await;
            if let Err(error) = self.read_zones(&Until::within(LISTS)).await {
                warn!(%error, "the availability zones of the region cannot be read; those read before hold");
            }
        }
    }

    /// Looks for the NICs and sets of machines.
    pub(super) async fn look_for_machines(&self) {
        let mut looked = Unknown::default();
        let mut next = self.informed.unknown_machines(&looked);
        let groups = self.groups_of_sets(&next);
        if next == Unknown::default() && groups.is_empty() {
            self.note_looked();
            return;
        }
        let until = Until::within(LISTS);
        for (subscription, group) in groups {
            match self.informed.network.list_scale_sets(&subscription, &group, &until).await {
                Ok(bodies) => self.nics_shown(&bodies),
                Err(error) => warn!(error = error.with_causes(), group, "scale sets cannot be listed"),
            }
        }
        while next != Unknown::default() {
            self.look_at(&next, &until).await;
            looked.add(next);
            next = self.informed.unknown_machines(&looked);
        }
        let moved = self.informed.assign_nodes(&mut self.informed.told());
        if moved {
            self.informed.replan_load_balancers(None);
        }
        self.note_looked();
        self.informed.update_nics();
        self.place_again();
    }

    /// Reads what is not known of machines.
    async fn look_at(&self, unknown: &Unknown, until: &Until) {
        let network = &self.informed.network;
        for set in &unknown.scale_sets {
            if let Err(error) = self.informed.look_at_instances(set).await {
                let error = error.with_causes();
                warn!(error, set = set.name(), "the instances of a scale set cannot be listed; it is tried again");
            }
        }
        for (subscription, group) in &unknown.nic_groups {
            match network.list(NetworkType::Interface, subscription, group, until).await {
                Ok(bodies) => self.nics_shown(&bodies),
                Err(error) => {
                    warn!(error = error.with_causes(), group, "network interfaces cannot be listed; it is tried again")
                }
            }
        }
        for (subscription, group) in &unknown.machine_groups {
            match network.list_machines(subscription, group, until).await {
                Ok(bodies) => {
                    let told = &mut *self.informed.told();
                    bodies.iter().for_each(|body| {
                        if let Some(id) = id_of(body) {
                            told.machines.machine_observed(id, body);
                        }
                    });
                }
                Err(error) => warn!(error = error.with_causes(), group, "machines cannot be listed; it is tried again"),
            }
        }
        // Many reads of one group become a list of it.
        let by_id = unknown.nics.iter().map(|nic| async move {
            let freshness = Freshness::any().priority(Priority::Read);
            (nic, network.read(NetworkType::Interface, nic, freshness, until).await)
        });
        for (nic, read) in join_all(by_id).await {
            match read {
                Ok(read) => self.nics_shown([&*read.body]),
                Err(error) => warn!(
                    error = error.with_causes(),
                    nic = %nic,
                    "a network interface that a machine names cannot be read; it is tried again"
                ),
            }
        }
    }

    /// Takes in the NICs, or models of scale sets, that a read or list has shown.
    fn nics_shown<'b>(&self, bodies: impl IntoIterator<Item = &'b Value>) {
        let told = &mut *self.informed.told();
        for body in bodies {
            let Some(id) = id_of(body) else { continue };
            if let Ok(nic) = Nic::read(&id, body) {
                told.machines.observed(&id, Some(&nic));
            }
        }
    }

    /// The resource groups whose scale sets are to be listed, as subscription and name: those of new Nodes, and at the
    /// first look that of the cluster, for a set without Nodes may name a pool.
    fn groups_of_sets(&self, unknown: &Unknown) -> BTreeSet<(String, String)> {
        let of = |set: &ArmId| (set.subscription().to_lowercase(), set.resource_group().to_lowercase());
        let mut groups: BTreeSet<(String, String)> = unknown.scale_sets.iter().map(of).collect();
        let told = self.informed.told();
        if !told.has_looked && told.nodes.is_some() && self.informed.needs(&told).nics {
            let settings = &self.informed.settings;
            groups.insert((settings.compute_subscription.to_lowercase(), settings.resource_group.to_lowercase()));
        }
        groups
    }

    /// Services whose place depends on machines wait for the first look.
    fn note_looked(&self) {
        let is_first = {
            let told = &mut *self.informed.told();
            told.nodes.is_some() && !std::mem::replace(&mut told.has_looked, true)
        };
        if is_first && self.informed.settings.sku == LoadBalancerSku::Basic {
            let services = self.informed.told().services.clone().unwrap_or_default();
            services.values().for_each(|service| self.changed(service));
        }
    }

    /// Tries the Services again that had no place.
    pub(super) fn place_again(&self) {
        let services: Vec<VersionedService> = {
            let mut told = self.informed.told();
            let unplaced = std::mem::take(&mut told.unplaced);
            unplaced.iter().filter_map(|name| told.services.as_ref()?.get(name).cloned()).collect()
        };
        services.iter().for_each(|service| self.changed(service));
    }
}
