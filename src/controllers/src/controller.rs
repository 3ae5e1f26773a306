//! Starts the service controller and feeds it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::Client;
use lazuli_azure::{
    Until,
    compute::Compute,
    error::ArmError,
    network::{API_VERSION, Network, NetworkType},
};
use lazuli_cluster::{Change, Ended, LeaseName, VersionedService, follow_backends, follow_services, lead};
use lazuli_plan::{
    balancing::{Key, Spec},
    engine::{
        freshness,
        object::{EnvChange, Event as ObjectEvent},
        service::{Desired, Event, Snapshot},
    },
    fault::Fault,
    lease::Terms,
    model::{ArmId, ArmIdError},
    network::{
        Cidr, Settings,
        load_balancer::{
            LoadBalancer,
            placement::{Balancer, Surroundings, place},
        },
        public_ip::PublicIp,
    },
    permit::Priority,
    service::{AddressAsk, Existing, PublicIpAsk, ServiceObject, Side, names, parse, wants},
};
use lazuli_reconcile::{Clock, LeaseHolder, Workers, metrics::Metrics, object::Objects};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    informed::{AllWorkers, Found, Informed},
    nodes::{NodeControllers, NodeOptions},
    objects::Of,
    services::Services,
};

/// The remaining lease below which no write starts: the longest time until Azure has taken a write, and a margin. Source:
/// the time-out of one request to Azure.
const LEAST_LEASE: Duration = Duration::from_secs(8);
/// How long the lists of the start may take.
const LISTS: Duration = Duration::from_secs(300);
/// How soon they are tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// What the controller needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the cloud configuration says.
    pub settings: Settings,
    /// The zones of the region.
    pub zones: Vec<String>,
    /// The lease of the controllers.
    pub lease: LeaseName,
    /// The `loadBalancerClass` that is claimed; `None` for Services without one.
    pub class: Option<String>,
}

/// The service controller.
pub struct Controller {
    informed: Arc<Informed>,
    options: Options,
    holder: LeaseHolder,
    metrics: Metrics,
    nodes: Option<NodeControllers>,
    serves_services: bool,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Why a Service has no objects.
#[derive(Debug, thiserror::Error)]
enum SpecError {
    #[error(transparent)]
    Id(#[from] ArmIdError),
    #[error("{0}")]
    Sentence(String),
}

impl Controller {
    /// A controller that has not begun.
    pub fn new(options: Options, network: Network, api: Client, metrics: Metrics) -> Self {
        let clock = Clock::start();
        let (holder, lease) = LeaseHolder::new(clock, LEAST_LEASE);
        let informed =
            Arc::new(Informed::new(clock, lease, options.settings.clone(), options.zones.clone(), network, api));
        fn objects<O>(informed: &Arc<Informed>, clock: Clock, metrics: &Metrics) -> Workers<Objects<O, Of<O>>>
        where
            Objects<O, Of<O>>: lazuli_reconcile::Kind,
            O: lazuli_plan::engine::object::Object,
            Of<O>: lazuli_reconcile::object::Adapter<O>,
        {
            Workers::new(Arc::new(Objects::new(Arc::new(Of::new(informed.clone())), clock)), clock, metrics.clone())
        }
        let workers = AllWorkers {
            public_ips: objects(&informed, clock, &metrics),
            load_balancers: objects(&informed, clock, &metrics),
            security_groups: objects(&informed, clock, &metrics),
            private_links: objects(&informed, clock, &metrics),
            services: Workers::new(Arc::new(Services::new(informed.clone())), clock, metrics.clone()),
        };
        _ = informed.workers.set(workers);
        Self { informed, options, holder, metrics, nodes: None, serves_services: true }
    }

    /// With the controllers of Nodes, by the same lease.
    #[must_use]
    pub fn with_nodes(mut self, options: NodeOptions, compute: Compute) -> Self {
        let Informed { clock, lease, network, api, .. } = &*self.informed;
        let clients = (compute, network.clone(), api.clone());
        self.nodes = Some(NodeControllers::new(options, clients, (*clock, lease.clone()), &self.metrics));
        self
    }

    /// Without the service controller.
    #[must_use]
    pub fn without_services(mut self) -> Self {
        self.serves_services = false;
        self
    }

    /// Runs until `stop`, or until the lease is lost: then the process must end.
    pub async fn run(self, stop: CancellationToken) -> Ended {
        let (until, mut leads) = watch::channel(None);
        let api = self.informed.api.clone();
        let drained = CancellationToken::new();
        let leading = lead(&api, &self.options.lease, Terms::default(), &until, &stop, drained.cancelled());
        let feeding = async {
            let watching = async {
                let mut led = false;
                while leads.changed().await.is_ok() {
                    let until: Option<Instant> = *leads.borrow_and_update();
                    match until {
                        Some(until) => {
                            if !std::mem::replace(&mut led, true) {
                                let now = self.informed.clock.now();
                                self.informed.told().trusted_from = now + freshness::LATE;
                                if let Some(nodes) = &self.nodes {
                                    nodes.leads(now + freshness::LATE);
                                }
                            }
                            self.holder.renewed(self.informed.clock.since(until));
                            self.informed.wake_all();
                            if let Some(nodes) = &self.nodes {
                                nodes.wake_all();
                            }
                        }
                        None => self.holder.released(),
                    }
                }
            };
            tokio::select! {
                () = watching => {}
                () = async { tokio::join!(self.feed(), self.feed_nodes()); } => {}
                () = stop.cancelled() => {}
            }
            if let Some(nodes) = &self.nodes {
                nodes.drain().await;
            }
            if let Some(workers) = self.informed.workers.get() {
                tokio::join!(
                    workers.services.drain(),
                    workers.public_ips.drain(),
                    workers.load_balancers.drain(),
                    workers.security_groups.drain(),
                    workers.private_links.drain(),
                );
            }
            drained.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = leading => ended,
            () = feeding => Ended::Stopped,
        }
    }

    /// Follows the Nodes for their own controllers.
    async fn feed_nodes(&self) {
        if let Some(nodes) = &self.nodes {
            nodes.feed().await;
        }
    }

    /// Follows the cluster and passes its changes on.
    async fn feed(&self) {
        if !self.serves_services {
            return;
        }
        let found = loop {
            match self.list().await {
                Ok(found) => break found,
                Err(error) => {
                    error!(%error, "Azure cannot be listed; it is tried again");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        };
        _ = self.informed.found.set(found);
        let (services, mut of_services) = follow_services(self.informed.api.clone());
        let (nodes, mut of_nodes) = follow_backends(self.informed.api.clone());
        let feeding = async {
            loop {
                tokio::select! {
                    Some(change) = of_services.recv() => self.services_changed(change),
                    Some(change) = of_nodes.recv() => self.nodes_changed(change),
                    else => return,
                }
            }
        };
        tokio::join!(services, nodes, feeding);
    }

    /// What Azure holds: each kind is read once.
    async fn list(&self) -> Result<Found, ArmError> {
        let settings = &self.informed.settings;
        let until = Until::within(LISTS);
        let list = |kind, group| self.informed.network.list(kind, &settings.subscription, group, &until);
        let mut found = Found::default();
        for body in list(NetworkType::PublicIp, &settings.resource_group).await? {
            let Some(ip) = id_of(&body).and_then(|id| PublicIp::read(&id, &body).ok()) else { continue };
            for service in ip.services() {
                found.tagged.entry(service.to_lowercase()).or_default().insert(ip.id.clone());
            }
            if let Some(address) = ip.address {
                found.by_address.insert(address, ip.id);
            }
        }
        for body in list(NetworkType::LoadBalancer, &settings.load_balancer_resource_group).await? {
            let Some(balancer) = id_of(&body).and_then(|id| LoadBalancer::read(&id, &body).ok()) else { continue };
            let side = if balancer.frontends.iter().any(|one| one.public_ip.is_some()) {
                Side::Public
            } else {
                Side::Internal
            };
            let names =
                balancer.frontends.iter().map(|one| &one.name).chain(balancer.rules.iter().map(|one| &one.name));
            for base in names.filter_map(|name| names::base_in(name)) {
                found.sides.insert(base.to_lowercase(), side);
            }
        }
        // A cluster without internal Services needs no virtual network.
        if let Ok(vnet) = settings.vnet_id() {
            let read = self.informed.network.arm().get(vnet.as_str(), API_VERSION, &[], Priority::Read, &until).await;
            let body = match read {
                Ok(read) => read.value,
                Err(error) if error.fault == Fault::NotFound => Value::Null,
                Err(error) => return Err(error),
            };
            let subnets = body.pointer("/properties/subnets").and_then(Value::as_array);
            found.subnets =
                subnets.into_iter().flatten().filter_map(|subnet| Some((id_of(subnet)?, prefixes(subnet)))).collect();
        }
        info!(services = found.tagged.len(), "what Azure holds of Services is known");
        Ok(found)
    }

    fn services_changed(&self, change: Change<VersionedService>) {
        let was_synced = self.informed.shared().synced;
        match change {
            Change::Replaced(all) => {
                let all: BTreeMap<String, VersionedService> = all.into_iter().collect();
                let before = self.informed.told().services.replace(all.clone()).unwrap_or_default();
                for (name, service) in &before {
                    if all.get(name).is_none_or(|now| now.object.key != service.object.key) {
                        self.informed.to_service(&service.object.key, Event::Removed);
                    }
                }
                all.values().for_each(|service| self.changed(service));
            }
            Change::Applied(name, Some(service)) => {
                let before = self.informed.told().services.get_or_insert_default().insert(name, service.clone());
                if let Some(before) = before.filter(|before| before.object.key != service.object.key) {
                    self.informed.to_service(&before.object.key, Event::Removed);
                }
                self.changed(&service);
            }
            Change::Applied(name, None) | Change::Deleted(name) => {
                let before = self.informed.told().services.as_mut().and_then(|services| services.remove(&name));
                if let Some(before) = before {
                    self.informed.to_service(&before.object.key, Event::Removed);
                }
            }
            Change::Confirmed => {}
            Change::Lost(why) => warn!(why, "Services cannot be followed; it is tried again"),
        }
        if !was_synced && self.informed.shared().synced {
            self.informed.wake_all();
        }
    }

    fn nodes_changed(&self, change: Change<lazuli_plan::network::backends::BackendNode>) {
        let was_synced = self.informed.shared().synced;
        let differs = {
            let mut told = self.informed.told();
            match change {
                Change::Replaced(all) => {
                    let all: BTreeMap<_, _> = all.into_iter().collect();
                    let differs = told.nodes.as_ref() != Some(&all);
                    told.nodes = Some(all);
                    differs
                }
                Change::Applied(name, Some(node)) => match &mut told.nodes {
                    Some(nodes) => nodes.insert(name, node.clone()) != Some(node),
                    None => false,
                },
                Change::Applied(name, None) | Change::Deleted(name) => {
                    told.nodes.as_mut().is_some_and(|nodes| nodes.remove(&name).is_some())
                }
                Change::Confirmed | Change::Lost(_) => false,
            }
        };
        if !was_synced && self.informed.shared().synced {
            self.informed.wake_all();
        }
        let Some(workers) = self.informed.workers.get().filter(|_| differs) else { return };
        for id in self.load_balancers() {
            workers.load_balancers.send(&id, ObjectEvent::EnvChanged(EnvChange::Cures).into());
        }
        workers.services.wake_all();
    }

    /// The load balancers of both sides that a Service of this cluster may be on.
    fn load_balancers(&self) -> Vec<ArmId> {
        let settings = &self.informed.settings;
        let stems: Vec<&str> = if settings.configurations.is_empty() {
            vec![settings.load_balancer_name.as_deref().unwrap_or(&settings.cluster_name)]
        } else {
            settings.configurations.iter().map(|one| one.name.as_str()).collect()
        };
        let names = stems.iter().flat_map(|stem| [false, true].map(|inner| names::load_balancer(stem, inner)));
        names.filter_map(|name| settings.load_balancer_id(&name).ok()).collect()
    }

    /// Passes a Service's state on.
    fn changed(&self, service: &VersionedService) {
        let object = &service.object;
        let wants_balancer = object.wants_load_balancer(self.options.class.as_deref());
        if !wants_balancer && !object.has_finalizer {
            return;
        }
        let desired = if wants_balancer { self.desired(object) } else { Desired::Gone };
        let found = self.informed.found.get();
        let mut keys: BTreeSet<Key> = self.load_balancers().into_iter().map(Key::LoadBalancer).collect();
        keys.extend(self.informed.settings.security_group_id().ok().map(Key::SecurityGroup));
        let tagged = found.and_then(|found| found.tagged.get(&object.key.tag_name().to_lowercase()));
        keys.extend(tagged.into_iter().flatten().cloned().map(Key::PublicIp));
        let status = Some(object.ingress.clone()).filter(|ingress| !ingress.is_empty());
        let snapshot =
            Snapshot { version: service.version, desired, finalizer: object.has_finalizer, status, found: keys };
        self.informed.to_service(&object.key, Event::Changed(snapshot));
    }

    fn desired(&self, object: &ServiceObject) -> Desired<Spec> {
        let side = self.informed.found.get().and_then(|found| found.side(&object.key));
        let existing = Existing { side, changed: BTreeSet::new() };
        match parse(object, &self.informed.settings, &existing) {
            Err(mistakes) => Desired::Invalid(mistakes.iter().map(ToString::to_string).collect()),
            Ok(ask) => {
                for warning in &ask.warnings {
                    warn!(service = %object.key, reason = ?warning.reason, "{}", warning.message);
                }
                self.spec(object, ask).map_or_else(|error| Desired::Invalid(vec![error.to_string()]), Desired::Present)
            }
        }
    }

    /// Finds the objects of a Service.
    fn spec(&self, object: &ServiceObject, ask: lazuli_plan::service::Ask) -> Result<Spec, SpecError> {
        let settings = &self.informed.settings;
        let mut public_ips = BTreeMap::new();
        for family in &ask.families {
            let AddressAsk::Public(public) = &family.address else { continue };
            let id = match (wants::public_ip_id(public, settings)?, public) {
                (Some(id), _) => id,
                (None, PublicIpAsk::WithAddress { address, resource_group, .. }) => {
                    let found = self.informed.found.get().and_then(|found| found.by_address.get(address));
                    let missing = || format!("public IP {address} was not found in resource group {resource_group}");
                    found.cloned().ok_or_else(|| SpecError::Sentence(missing()))?
                }
                (None, _) => continue,
            };
            public_ips.insert(family.family, id);
        }
        let existing = self.load_balancers();
        let balancers: Vec<Balancer<'_>> =
            existing.iter().map(|id| Balancer { name: id.name(), actual: None, planned_rules: 0 }).collect();
        let around = Surroundings { balancers: &balancers, vm_sets: &[], public_ip_user: None };
        let name = place(&ask, object, settings, &around).map_err(|refusal| SpecError::Sentence(refusal.message))?;
        let load_balancer = settings.load_balancer_id(&name)?;
        let private_link = match &ask.private_link {
            Some(link) => {
                let frontend = LoadBalancer::frontend_id(&load_balancer, &ask.families[0].frontend);
                let name = lazuli_plan::network::private_link::name(link, &frontend, &[]);
                Some(settings.private_link_id(&link.resource_group, &name)?)
            }
            None => None,
        };
        Ok(Spec { ask, load_balancer, public_ips, private_link })
    }
}

/// The address prefixes of a subnet.
fn prefixes(subnet: &Value) -> Vec<Cidr> {
    let properties = &subnet["properties"];
    let many = properties["addressPrefixes"].as_array().into_iter().flatten();
    let all = many.chain([&properties["addressPrefix"]]);
    all.filter_map(|text| text.as_str()?.parse().ok()).collect()
}

fn id_of(body: &Value) -> Option<ArmId> {
    body.get("id")?.as_str()?.parse().ok()
}
