//! What a Service is read beside: what load balancers show of it, and the addresses that it may not name.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_azure::Until;
use lazuli_plan::{
    fault::Fault,
    model::ArmId,
    network::{load_balancer::LoadBalancer, public_ip::PublicIp},
    permit::Priority,
    service::{
        ClusterAddresses, Existing, ServiceObject, Shown,
        annotation::key::ADDITIONAL_IPS,
        names::{self, BaseName},
        shown::ShownServices,
    },
};
use tracing::warn;

use crate::{
    controller::LISTS,
    informed::{Informed, Told},
};

/// What reads and lists have shown last of objects that Services may share.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// By load balancer, what it shows of each Service.
    balancers: BTreeMap<ArmId, ShownServices>,
    /// Those that workers have read since this process began to lead.
    read: BTreeSet<ArmId>,
    /// The addresses of public IPs, which never change.
    public_ips: BTreeMap<ArmId, IpAddr>,
    /// Whether all load balancers have been read since this process began to lead: before, another one writes them.
    pub(crate) is_of_leader: bool,
    /// Whether a Service waits for that.
    pub(crate) is_wanted: bool,
}

impl Evidence {
    /// The process begins to lead: what was read before may be old.
    pub(crate) fn leads(&mut self) {
        self.read.clear();
    }

    /// The worker of a load balancer has read this of it, or that it does not exist.
    pub(crate) fn balancer_observed(&mut self, id: &ArmId, actual: Option<&LoadBalancer>) {
        self.read.insert(id.clone());
        self.set(id, actual);
    }

    /// A list, or a read beside the worker's, has shown this. What the worker has read may be newer.
    pub(crate) fn balancer_seen(&mut self, id: &ArmId, actual: Option<&LoadBalancer>) {
        if !self.read.contains(id) {
            self.set(id, actual);
        }
    }

    fn set(&mut self, id: &ArmId, actual: Option<&LoadBalancer>) {
        match actual {
            Some(actual) => _ = self.balancers.insert(id.clone(), Shown::all(actual)),
            None => _ = self.balancers.remove(id),
        }
    }

    /// A read or a list has shown this of a public IP, or that it does not exist.
    pub(crate) fn public_ip_observed(&mut self, id: &ArmId, actual: Option<&PublicIp>) {
        match actual.and_then(|actual| actual.address) {
            Some(address) => _ = self.public_ips.insert(id.clone(), address),
            None => _ = self.public_ips.remove(id),
        }
    }

    /// The address of a public IP.
    fn address(&self, id: &ArmId) -> Option<IpAddr> {
        self.public_ips.get(id).copied()
    }
}

impl Told {
    /// The addresses that a Service may not name as its own.
    fn cluster_addresses(&self, informed: &Informed, object: &ServiceObject) -> ClusterAddresses {
        let mut all = informed.external.clone();
        for node in self.nodes.iter().flat_map(BTreeMap::values) {
            all.nodes.extend(node.addresses.iter().chain(&node.other_addresses));
            all.pods.extend(&node.pod_ranges);
        }
        let services = self.services.iter().flat_map(BTreeMap::values).map(|service| &service.object);
        services.for_each(|other| all.note_service(object, other));
        let base = BaseName::of(&object.key).as_str().to_lowercase();
        // What bears no name of a Service may be a load balancer in front of several clusters.
        let is_anothers = |there: &str| there != base && names::base_in(there).is_some();
        let shown = self.evidence.balancers.values().flatten().filter(|(there, _)| is_anothers(there));
        for (_, shown) in shown {
            all.frontends.extend(shown.addresses(|id| self.evidence.address(id)).into_iter().flatten());
        }
        let own = Shown::of(&BaseName::of(&object.key), self.evidence.balancers.values());
        for address in own.iter().flat_map(|own| own.addresses(|id| self.evidence.address(id))).flatten() {
            all.frontends.remove(&address);
            all.own.insert(address);
        }
        all
    }
}

impl Informed {
    /// Reads the load balancers if a Service waits for what they show now, and this process leads.
    pub(crate) async fn look_at_evidence(&self) {
        let trusted_from = {
            let told = self.told();
            if !told.evidence.is_wanted
                || told.evidence.is_of_leader
                || !self.lease.now().covers_write(self.clock.now())
            {
                return;
            }
            told.trusted_from
        };
        // Until then a write of the leader before may arrive.
        tokio::time::sleep_until(self.clock.at(trusted_from)).await;
        let until = Until::within(LISTS);
        for id in self.load_balancers() {
            let read = match self.network.read_alone(&id, Priority::Read, &until).await {
                Ok(body) => LoadBalancer::read(&id, &body).ok(),
                Err(error) if error.fault == Fault::NotFound => None,
                Err(error) => {
                    let error = error.with_causes();
                    return warn!(error, balancer = id.name(), "a load balancer cannot be read; it is tried again");
                }
            };
            self.told().evidence.balancer_seen(&id, read.as_ref());
        }
        self.told().evidence.is_of_leader = true;
    }

    /// Whether what a Service is read beside is not known well enough: the addresses of Nodes, where it names addresses of its
    /// own; and what load balancers show, where that decides and another process may have written them since.
    pub(crate) fn waits_for_evidence(&self, object: &ServiceObject, reads_shown: bool) -> bool {
        let told = &mut *self.told();
        if object.annotations.contains_key(ADDITIONAL_IPS) && told.nodes.is_none() {
            return true;
        }
        let waits = reads_shown && !told.evidence.is_of_leader;
        if waits && !std::mem::replace(&mut told.evidence.is_wanted, true) {
            self.retry.notify_one();
        }
        waits
    }

    /// Whether a Service waits for what load balancers show.
    pub(crate) fn lacks_evidence(&self) -> bool {
        let told = self.told();
        told.evidence.is_wanted && !told.evidence.is_of_leader
    }

    /// What a Service is read beside.
    pub(crate) fn existing(&self, object: &ServiceObject) -> Existing {
        let told = self.told();
        let shown = Shown::of(&BaseName::of(&object.key), told.evidence.balancers.values());
        let own =
            shown.as_ref().and_then(|shown| shown.addresses(|id| told.evidence.address(id)).into_iter().collect());
        let names_others = object.annotations.contains_key(ADDITIONAL_IPS);
        let cluster = names_others.then(|| told.cluster_addresses(self, object)).unwrap_or_default();
        Existing { shown, own_addresses: own, cluster }
    }
}
