//! Lists the resource groups in which Services may own something.

use std::collections::BTreeSet;

use lazuli_azure::{Until, error::ArmError, network::NetworkType};
use lazuli_balancing::discovery::{self, Kind, Place, Standing};
use lazuli_cluster::VersionedService;
use lazuli_model::fault::Fault;
use lazuli_services::{
    ask::{AddressAsk, PublicIpAsk},
    network::{private_link::PrivateLink, public_ip::PublicIp},
    service::ServiceObject,
};
use tracing::warn;

use super::{Controller, LISTS};
use crate::{informed::answer, pools::id_of};

/// Whether a resource group does not exist, or is closed to the identity. Asking again soon is of no use.
pub(crate) fn is_closed(fault: &Fault) -> bool {
    matches!(fault, Fault::NotFound | Fault::ScopeNotFound | Fault::Forbidden | Fault::Denied)
}

impl Controller {
    /// Whether everything of a Service is to go.
    pub(super) fn goes(&self, object: &ServiceObject) -> bool {
        object.has_finalizer && !object.wants_load_balancer(self.options.class.as_deref())
    }

    /// The Services, as `namespace/name`, that name an address which no known public IP has.
    fn lacking_addresses(&self) -> BTreeSet<String> {
        let unplaced: Vec<(String, VersionedService)> = {
            let told = self.informed.told();
            let known = |name: &String| Some((name.clone(), told.services.as_ref()?.get(name)?.clone()));
            told.unplaced.iter().filter_map(known).collect()
        };
        let names_address = |object: &ServiceObject| {
            let ask = self.parse(object).ok();
            let mut families = ask.iter().flat_map(|ask| &ask.families);
            families.any(|family| matches!(family.address, AddressAsk::Public(PublicIpAsk::WithAddress { .. })))
        };
        unplaced.into_iter().filter(|(_, service)| names_address(&service.object)).map(|(name, _)| name).collect()
    }

    /// The places that are to be listed now: for one Service, or for all. `lacking` are those that name an address which no
    /// known public IP has.
    pub(super) fn due_places(&self, of: Option<&str>, lacking: &BTreeSet<String>) -> BTreeSet<Place> {
        let told = self.informed.told();
        let services = told.services.iter().flatten().filter(|(name, _)| of.is_none_or(|of| *name == of));
        let subjects = services.filter_map(|(name, service)| {
            let object = &service.object;
            let standing = match object.wants_load_balancer(self.options.class.as_deref()) {
                true if lacking.contains(name) => Standing::LacksAddress,
                true => Standing::Served,
                false if object.has_finalizer => Standing::Going,
                false => return None,
            };
            Some((object, standing))
        });
        told.discovered.due(subjects, told.trusted_from, &self.informed.settings)
    }

    /// Lists what is to be listed, and tells the Services that it concerns.
    pub(super) async fn discover(&self) {
        self.forget();
        let lacking = self.lacking_addresses();
        let due = self.due_places(None, &lacking);
        if due.is_empty() {
            return;
        }
        // An earlier list may lack what the leader before makes late.
        let trusted_from = self.informed.told().trusted_from;
        tokio::time::sleep_until(self.informed.clock.at(trusted_from)).await;
        let mut concerned = BTreeSet::new();
        for place in &due {
            match self.read_place(place, &Until::within(LISTS)).await {
                Ok(services) => concerned.extend(services),
                Err(error) => {
                    warn!(error = error.with_causes(), "{place} cannot be listed; Services that name it wait")
                }
            }
        }
        let services: Vec<VersionedService> =
            self.informed.told().services.iter().flat_map(|all| all.values().cloned()).collect();
        for service in &services {
            let key = &service.object.key;
            let is_named =
                || discovery::named(&service.object, &self.informed.settings).iter().any(|one| due.contains(one));
            let waits = lacking.contains(&key.tag_name()) || (self.goes(&service.object) && is_named());
            if waits || discovery::is_concerned(key, &concerned) {
                self.changed(service);
            }
        }
    }

    /// Forgets what was listed for Services that do not name it any more.
    fn forget(&self) {
        let told = &mut *self.informed.told();
        // Before the first list no Service is known, and each may name what was listed at the start.
        let Some(services) = &told.services else { return };
        let objects = services.values().map(|service| &service.object);
        told.discovered.forget_unnamed(objects, &self.informed.settings);
        told.evidence.forget_unused(self.informed.clock.now());
    }

    /// Lists one place. Returns the Services that own something there, as their tags say.
    pub(super) async fn read_place(&self, place: &Place, until: &Until) -> Result<BTreeSet<String>, ArmError> {
        let settings = &self.informed.settings;
        let kind = match place.kind {
            Kind::PublicIp => NetworkType::PublicIp,
            Kind::PrivateLink => NetworkType::PrivateLinkService,
        };
        let sent_at = self.informed.clock.now();
        let listed = self.informed.network.list(kind, &settings.subscription, &place.group, until).await;
        let told = &mut *self.informed.told();
        let discovered = &mut told.discovered;
        let bodies = match listed {
            Ok(bodies) => bodies,
            Err(error) => {
                discovered.not_listed(place, format!("Azure answered {}", answer(&error)));
                if error.fault == Fault::ScopeNotFound && place.kind == Kind::PublicIp {
                    told.balancers.group_is_gone(&place.group);
                }
                return Err(error);
            }
        };
        let bodies = bodies.iter().filter_map(|body| Some((id_of(body)?, body)));
        Ok(match place.kind {
            Kind::PublicIp => {
                let all: Vec<_> = bodies.filter_map(|(id, body)| PublicIp::read(&id, body).ok()).collect();
                for ip in &all {
                    told.evidence.public_ip_observed(&ip.id, sent_at, Some(ip));
                    told.balancers.public_ip_observed(&ip.id, Some(ip), settings);
                }
                discovered.public_ips_listed(place, sent_at, all, settings)
            }
            Kind::PrivateLink => {
                let all = bodies.filter_map(|(id, body)| PrivateLink::read(&id, body).ok());
                discovered.private_links_listed(place, sent_at, all, settings)
            }
        })
    }
}
