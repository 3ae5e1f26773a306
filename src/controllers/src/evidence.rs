//! What a Service is read beside: what load balancers show of it, and the addresses that it may not name.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use lazuli_azure::Until;
use lazuli_balancing::discovery::KEPT;
use lazuli_model::{ArmId, fault::Fault};
use lazuli_quota::permit::Priority;
use lazuli_services::{
    ask::names::{self, BaseName},
    network::{load_balancer::LoadBalancer, public_ip::PublicIp},
    service::{
        ClusterAddresses, Existing, ServiceObject, Shown, annotation::key::ADDITIONAL_IPS, shown::ShownServices,
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
    /// By load balancer, what it shows of each Service, also of one that does not exist, and when the request for that was
    /// sent. The newest one counts, whoever has sent it.
    balancers: BTreeMap<ArmId, (Duration, ShownServices)>,
    /// The addresses of public IPs, which never change, and when each was shown last.
    public_ips: BTreeMap<ArmId, (IpAddr, Duration)>,
    /// Whether all load balancers have been read since this process began to lead: before, another one writes them.
    pub(crate) is_of_leader: bool,
    /// Whether a Service waits for that.
    pub(crate) is_wanted: bool,
}

impl Evidence {
    /// A read, a list or the end of a write that was sent at this time, or later, has shown this of a load balancer, or that
    /// it does not exist.
    pub(crate) fn balancer_seen(&mut self, id: &ArmId, sent_at: Duration, actual: Option<&LoadBalancer>) {
        if self.balancers.get(id).is_none_or(|(newest, _)| *newest <= sent_at) {
            self.balancers.insert(id.clone(), (sent_at, actual.map(Shown::all).unwrap_or_default()));
        }
    }

    /// What each load balancer shows.
    fn shown(&self) -> impl Iterator<Item = &ShownServices> {
        self.balancers.values().map(|(_, shown)| shown)
    }

    /// A read or a list that was sent at this time has shown this of a public IP, or that it does not exist.
    pub(crate) fn public_ip_observed(&mut self, id: &ArmId, sent_at: Duration, actual: Option<&PublicIp>) {
        match actual.and_then(|actual| actual.address) {
            Some(address) => _ = self.public_ips.insert(id.clone(), (address, sent_at)),
            None => _ = self.public_ips.remove(id),
        }
    }

    /// Forgets the addresses of public IPs that no frontend uses and that nothing has shown for [`KEPT`].
    pub(crate) fn forget_unused(&mut self, now: Duration) {
        let frontends =
            self.balancers.values().flat_map(|(_, shown)| shown.values()).flat_map(|one| one.frontends.values());
        let used: BTreeSet<&ArmId> = frontends.filter_map(|frontend| frontend.public_ip.as_ref()).collect();
        self.public_ips.retain(|id, (_, shown_at)| used.contains(id) || *shown_at + KEPT >= now);
    }

    /// Of how many public IPs the address is known.
    #[cfg(test)]
    pub(crate) fn addresses(&self) -> usize {
        self.public_ips.len()
    }

    /// The address of a public IP.
    fn address(&self, id: &ArmId) -> Option<IpAddr> {
        self.public_ips.get(id).map(|(address, _)| *address)
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
        all.cluster_ips.extend(self.cluster_ips.iter());
        all.external_ips.extend(self.cluster_ips.external());
        let services = self.services.iter().flat_map(BTreeMap::values).map(|service| &service.object);
        services.for_each(|other| all.note_service(object, other));
        let base = BaseName::of(&object.key).as_str().to_lowercase();
        // What bears no name of a Service may be a load balancer in front of several clusters.
        let is_anothers = |there: &str| there != base && names::base_in(there).is_some();
        let shown = self.evidence.shown().flatten().filter(|(there, _)| is_anothers(there));
        for (_, shown) in shown {
            all.frontends.extend(shown.addresses(|id| self.evidence.address(id)).into_iter().flatten());
        }
        let own = Shown::of(&BaseName::of(&object.key), self.evidence.shown());
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
            let sent_at = self.clock.now();
            let read = match self.network.read_alone(&id, Priority::Read, &until).await {
                Ok(body) => LoadBalancer::read(&id, &body).ok(),
                Err(error) if error.fault == Fault::NotFound => None,
                Err(error) => {
                    let error = error.with_causes();
                    return warn!(error, balancer = id.name(), "a load balancer cannot be read; it is tried again");
                }
            };
            self.told().evidence.balancer_seen(&id, sent_at, read.as_ref());
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
        let shown = Shown::of(&BaseName::of(&object.key), told.evidence.shown());
        let own =
            shown.as_ref().and_then(|shown| shown.addresses(|id| told.evidence.address(id)).into_iter().collect());
        let names_others = object.annotations.contains_key(ADDITIONAL_IPS);
        let cluster = if names_others { told.cluster_addresses(self, object) } else { ClusterAddresses::default() };
        Existing { shown, own_addresses: own, cluster }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id() -> ArmId {
        crate::tests::settings().load_balancer_id("kubernetes").unwrap()
    }

    /// A load balancer with these frontends.
    fn with(frontends: &[&str]) -> LoadBalancer {
        let all: Vec<_> = frontends.iter().map(|name| json!({"name": name, "properties": {}})).collect();
        LoadBalancer::read(&id(), &json!({"properties": {"frontendIPConfigurations": all}})).unwrap()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The Services that are shown after these observations, in the order in which they arrive.
    fn shown(observations: &[(u64, Option<&[&str]>)]) -> Vec<String> {
        let mut evidence = Evidence::default();
        for (sent_at, frontends) in observations {
            evidence.balancer_seen(&id(), at(*sent_at), frontends.map(with).as_ref());
        }
        evidence.shown().flat_map(BTreeMap::keys).cloned().collect()
    }

    #[test]
    fn what_was_sent_last_is_what_a_load_balancer_shows_whenever_it_arrives() {
        let (older, newer): (Option<&[&str]>, Option<&[&str]>) = (Some(&["aold"]), Some(&["anew"]));
        assert_eq!(shown(&[(1, older), (2, newer)]), ["anew"]);
        assert_eq!(shown(&[(2, newer), (1, older)]), ["anew"]);
        assert_eq!(shown(&[(2, older), (2, newer)]), ["anew"], "what arrives later, where both may be newest");
        assert_eq!(shown(&[(2, newer), (1, None)]), ["anew"], "it was made since");
    }

    #[test]
    fn the_address_of_a_public_ip_is_forgotten_when_no_frontend_has_used_it_for_long() {
        let settings = crate::tests::settings();
        let ip = |name: &str| settings.public_ip_id("group", name).unwrap();
        let mut evidence = Evidence::default();
        for (name, shown_at) in [("in-use", 0), ("old", 0), ("new", 1)] {
            let body = json!({"properties": {"ipAddress": "20.0.0.1"}});
            let read = PublicIp::read(&ip(name), &body).unwrap();
            evidence.public_ip_observed(&ip(name), at(shown_at), Some(&read));
        }
        let frontend = json!({"name": "aweb", "properties": {"publicIPAddress": {"id": ip("in-use").as_str()}}});
        let body = json!({"properties": {"frontendIPConfigurations": [frontend]}});
        evidence.balancer_seen(&id(), at(1), Some(&LoadBalancer::read(&id(), &body).unwrap()));
        let known = |evidence: &Evidence| ["in-use", "old", "new"].map(|name| evidence.address(&ip(name)).is_some());
        evidence.forget_unused(KEPT);
        assert_eq!(known(&evidence), [true, true, true]);
        evidence.forget_unused(KEPT + at(1));
        assert_eq!(known(&evidence), [true, false, true]);
        evidence.balancer_seen(&id(), at(2), None);
        evidence.forget_unused(2 * KEPT);
        assert_eq!(evidence.addresses(), 0);
    }

    #[test]
    fn an_older_list_brings_back_no_frontend_that_was_removed_since() {
        assert_eq!(shown(&[(2, Some(&["aother"])), (1, Some(&["aother", "aweb"]))]), ["aother"]);
        assert_eq!(shown(&[(2, None), (1, Some(&["aweb"]))]), Vec::<String>::new(), "nor a load balancer");
        assert_eq!(shown(&[(2, None), (3, Some(&["aweb"]))]), ["aweb"]);
    }
}
