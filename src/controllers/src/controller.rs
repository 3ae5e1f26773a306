//! Starts the service controller and feeds it.

mod around;
mod discover;
mod look;
mod recovery;
mod take_over;

pub use take_over::DryRunError;
pub(crate) use {discover::is_closed, recovery::Lost};

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::{BoxFuture, OptionFuture};
use kube::Client;
use lazuli_azure::{
    Until,
    compute::Compute,
    error::ArmError,
    network::{Network, NetworkType},
};
use lazuli_balancing::{
    Balanced, Key, Spec,
    discovery::{self, Owned, Standing},
    events,
};
use lazuli_cluster::{
    BackendsChange, Change, Ended, LeaseName, LeaseView, VersionedService, follow_backends, follow_endpoints,
    follow_namespaces, follow_services, lead,
};
use lazuli_engine::{
    freshness,
    lease::Terms,
    object::{EnvChange, Event as ObjectEvent},
    service::{Desired, Event, Snapshot},
};
use lazuli_journal::Recorder;
use lazuli_model::{ArmIdError, address::Cidr, fault::Fault};
use lazuli_quota::permit::Priority;
use lazuli_reconcile::{Clock, LeaseHolder, Workers, metrics::Metrics, object::Objects};
use lazuli_services::{
    ask::{AddressAsk, Ask, Mistake, PublicIpAsk},
    network::{
        Settings,
        backends::{BackendNode, BackendNodes},
        load_balancer::LoadBalancer,
        private_link::PrivateLink,
        settings::LoadBalancerSku,
    },
    service::{ClusterAddresses, ServiceObject, parse, wants},
};
use lazuli_telemetry::lossy;
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    api::Api,
    informed::{AllWorkers, Found, Informed},
    nodes::{NodeControllers, NodeOptions},
    objects::Of,
    operations::Operations,
    pools::id_of,
    services::Services,
};

/// The remaining lease below which no write starts: the longest time until Azure has taken a write, and a margin. Source:
/// the time-out of one request to Azure.
const LEAST_LEASE: Duration = Duration::from_secs(8);
/// How long the lists of the start may take.
pub(crate) const LISTS: Duration = Duration::from_secs(300);
/// How soon they are tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// How many changes of Nodes are taken in at once, if they have come: what follows from a change looks at all Nodes.
const BURST: usize = 1_000;

/// What the controller needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the cloud configuration says.
    pub settings: Settings,
    /// The zones that new public IPs and internal frontends get. `None`: those of the region, as Azure tells.
    pub zones: Option<Vec<String>>,
    /// The lease of the controllers.
    pub lease: LeaseName,
    /// Where what is seen of it is shown.
    pub lease_view: LeaseView,
    /// The `loadBalancerClass` that is claimed; `None` for Services without one.
    pub class: Option<String>,
    /// The hash of the plan that the operator has accepted: what it removes or replaces is done at the first leadership too.
    pub accepted_plan: Option<String>,
    /// The ranges that `azure-additional-public-ips` is restricted to, and the ranges of Pods and of Services.
    pub external: ClusterAddresses,
    /// How old an observation may become before its object is read again, to find what others changed; `None` for never.
    pub resync: Option<Duration>,
    /// Where events for the owners of Services go.
    pub events: lossy::Sender<lazuli_model::event::Event>,
    /// Where it is noted what happens to each object.
    pub journal: Recorder,
    /// What is counted of work on Services, routes and new Nodes.
    pub operations: Operations,
}

/// The service controller.
pub struct Controller {
    pub(crate) informed: Arc<Informed>,
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
        let informed = Arc::new(Informed::new(clock, lease, &options, network, Api::new(api)));
        fn objects<O>(
            informed: &Arc<Informed>,
            clock: Clock,
            metrics: &Metrics,
            journal: &Recorder,
        ) -> Workers<Objects<O, Of<O>>>
        where
            Objects<O, Of<O>>: lazuli_reconcile::Kind,
            O: lazuli_engine::object::Object,
            Of<O>: lazuli_reconcile::object::Adapter<O>,
        {
            let objects = Arc::new(Objects::new(Arc::new(Of::new(informed.clone())), clock));
            Workers::with_journal(objects, clock, metrics.clone(), journal.clone())
        }
        let workers = AllWorkers {
            public_ips: objects(&informed, clock, &metrics, &options.journal),
            load_balancers: objects(&informed, clock, &metrics, &options.journal),
            security_groups: objects(&informed, clock, &metrics, &options.journal),
            private_links: objects(&informed, clock, &metrics, &options.journal),
            subnets: objects(&informed, clock, &metrics, &options.journal),
            nics: objects(&informed, clock, &metrics, &options.journal),
            services: Workers::with_journal(
                Arc::new(Services::new(informed.clone())),
                clock,
                metrics.clone(),
                options.journal.clone(),
            ),
        };
        _ = informed.workers.set(workers);
        Self { informed, options, holder, metrics, nodes: None, serves_services: true }
    }

    /// With the controllers of Nodes, by the same lease.
    #[must_use]
    pub fn with_nodes(mut self, options: NodeOptions, compute: Compute) -> Self {
        let Informed { clock, lease, network, api, .. } = &*self.informed;
        let clients = (compute, network.clone(), api.clone());
        let telling = (self.options.events.clone(), self.options.journal.clone(), self.options.operations.clone());
        self.nodes = Some(NodeControllers::new(options, clients, (*clock, lease.clone()), telling, &self.metrics));
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
        let api = self.informed.api.client.clone();
        let drained = CancellationToken::new();
        let shown = (&until, &self.options.lease_view);
        let leading = lead(&api, &self.options.lease, Terms::default(), shown, &stop, drained.cancelled());
        let feeding = async {
            let watching = async {
                let mut led = false;
                let mut taking_over = std::pin::pin!(OptionFuture::from(None));
                loop {
                    tokio::select! {
                        changed = leads.changed() => if changed.is_err() { return },
                        Some(()) = &mut taking_over => {
                            taking_over.set(None.into());
                            continue;
                        }
                    }
                    let until: Option<Instant> = *leads.borrow_and_update();
                    match until {
                        Some(until) => {
                            if !std::mem::replace(&mut led, true) {
                                taking_over.set(Some(self.take_over()).into());
                                let now = self.informed.clock.now();
                                self.informed.told().trusted_from = now + freshness::LATE;
                                self.informed.retry.notify_one();
                                self.leads_now();
                                if let Some(nodes) = &self.nodes {
                                    nodes.leads(now + freshness::LATE);
                                }
                            }
                            // Only a lack of lease has stopped anything, and until its next renewal a lease only runs out.
                            let clock = self.informed.clock;
                            let covered = self.informed.lease.now().covers_write(clock.now());
                            self.holder.renewed(clock.since(until));
                            if !covered {
                                self.informed.wake_all();
                                if let Some(nodes) = &self.nodes {
                                    nodes.wake_all();
                                }
                            }
                        }
                        None => self.holder.released(),
                    }
                }
            };
            // The lease is renewed, and each renewal noted, until what was in flight has ended: nothing of a write is sent
            // without it, and no answer taken.
            let ending = async {
                tokio::select! {
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
                        workers.subnets.drain(),
                        workers.nics.drain(),
                    );
                }
                drained.cancel();
            };
            tokio::join!(watching, ending);
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
            Box::pin(nodes.feed()).await;
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
                    error!(error = error.with_causes(), "Azure cannot be listed; it is tried again");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        };
        _ = self.informed.found.set(found);
        let (services, mut of_services) =
            follow_services(self.informed.api.client.clone(), self.informed.service_labels());
        let (nodes, mut of_nodes) = follow_backends(self.informed.api.client.clone());
        let (namespaces, mut of_namespaces) =
            only_if(self.informed.follows_namespaces(), || follow_namespaces(self.informed.api.client.clone()));
        let (endpoints, mut of_endpoints) =
            only_if(self.informed.follows_endpoints(), || follow_endpoints(self.informed.api.client.clone()));
        let feeding = async {
            let mut nodes_changes = Vec::new();
            loop {
                tokio::select! {
                    Some(change) = of_services.recv() => {
                        let change = self.informed.told().cluster_ips.take_in(change);
                        self.services_changed(change);
                    }
                    1.. = of_nodes.recv_many(&mut nodes_changes, BURST) => {
                        self.nodes_changed(nodes_changes.drain(..));
                    }
                    Some(change) = of_namespaces.recv() => self.namespaces_changed(change),
                    Some(change) = of_endpoints.recv() => self.endpoints_changed(change),
                    else => return,
                }
            }
        };
        let looking = Box::pin(async {
            tokio::join!(self.look(), self.follow_zones(), self.follow_waiting_pools(), self.follow_lost())
        });
        tokio::join!(services, nodes, namespaces, endpoints, feeding, looking);
    }

    /// What Azure holds: each kind is read once.
    async fn list(&self) -> Result<Found, ArmError> {
        let settings = &self.informed.settings;
        let until = Until::within(LISTS);
        self.read_zones(&until).await?;
        let mut found = Found::default();
        let managed = self.informed.load_balancers();
        for place in discovery::configured(settings) {
            match self.read_place(&place, &until).await {
                Err(error) if !is_closed(&error.fault) => return Err(error),
                // Only Services that name it wait for it.
                Ok(_) | Err(_) => {}
            }
        }
        let (kind, group) = (NetworkType::LoadBalancer, &settings.load_balancer_resource_group);
        let sent_at = self.informed.clock.now();
        for body in self.informed.network.list(kind, &settings.subscription, group, &until).await? {
            let Some(balancer) = id_of(&body).and_then(|id| LoadBalancer::read(&id, &body).ok()) else { continue };
            if managed.contains(&balancer.id) {
                self.informed.balancer_observed(&balancer.id, sent_at, Some(&balancer));
            } else {
                self.informed.told().evidence.balancer_seen(&balancer.id, sent_at, Some(&balancer));
            }
            self.informed.told().discovered.load_balancer_listed(&balancer);
        }
        // A cluster without internal Services needs no virtual network.
        if let Ok(vnet) = settings.vnet_id() {
            let body = match self.informed.network.read_alone(&vnet, Priority::Read, &until).await {
                Ok(body) => body,
                Err(error) if error.fault == Fault::NotFound => Value::Null,
                Err(error) => return Err(error),
            };
            let subnets = body.pointer("/properties/subnets").and_then(Value::as_array);
            found.subnets =
                subnets.into_iter().flatten().filter_map(|subnet| Some((id_of(subnet)?, prefixes(subnet)))).collect();
        }
        info!(services = self.informed.told().discovered.services(), "what Azure holds of Services is known");
        Ok(found)
    }

    /// What was listed before this process led may lack what the leader before has made.
    fn leads_now(&self) {
        let services = self.informed.told().services.clone().unwrap_or_default();
        services.values().filter(|service| self.goes(&service.object)).for_each(|service| self.changed(service));
        self.informed.look.notify_one();
    }

    fn services_changed(&self, change: Change<VersionedService>) {
        let was_synced = self.informed.shared().synced;
        let agree_with_others = self.informed.told().note_peers(&change);
        let changed = match &change {
            Change::Applied(name, Some(_)) => Some(Some(name.clone())),
            Change::Replaced(_) => Some(None),
            _ => None,
        };
        match change {
            Change::Replaced(all) => {
                let all: BTreeMap<String, VersionedService> = all.into_iter().collect();
                let before = self.informed.told().services.replace(all.clone()).unwrap_or_default();
                for (name, service) in &before {
                    if all.get(name).is_none_or(|now| now.object.key != service.object.key) {
                        self.removed(service);
                    }
                }
                // All Services are placed before Nodes are spread over the load balancers that they need.
                self.informed.told().holds_nodes = true;
                all.values().for_each(|service| self.changed(service));
                let moved = {
                    let told = &mut *self.informed.told();
                    told.holds_nodes = false;
                    self.informed.assign_nodes(told)
                };
                if moved {
                    self.informed.replan_load_balancers(None);
                }
            }
            Change::Applied(name, Some(service)) => {
                let before = self.informed.told().services.get_or_insert_default().insert(name, service.clone());
                if let Some(before) = before.filter(|before| before.object.key != service.object.key) {
                    self.removed(&before);
                }
                self.changed(&service);
            }
            Change::Applied(name, None) | Change::Deleted(name) => {
                let before = self.informed.told().services.as_mut().and_then(|services| services.remove(&name));
                if let Some(before) = before {
                    self.removed(&before);
                }
            }
            Change::Confirmed => {}
            Change::Lost(why) => warn!(why, "Services cannot be followed; it is tried again"),
        }
        if let Some(workers) = self.informed.workers.get().filter(|_| agree_with_others) {
            workers.services.wake_all();
            self.informed.replan_load_balancers(None);
        }
        self.note_synced(was_synced);
        if changed.is_some_and(|name| !self.due_places(name.as_deref(), &BTreeSet::new()).is_empty()) {
            self.informed.look.notify_one();
        }
    }

    /// Everything waits for the first lists.
    fn note_synced(&self, was_synced: bool) {
        if self.informed.is_listed() {
            self.informed.listed.notify_one();
        }
        if !was_synced && self.informed.shared().synced {
            self.informed.wake_all();
            self.informed.update_nics();
            self.informed.look.notify_one();
            self.informed.retry.notify_one();
        }
    }

    fn removed(&self, service: &VersionedService) {
        let key = &service.object.key;
        {
            let mut told = self.informed.told();
            told.balancers.forget(key);
            told.unplaced.remove(&key.tag_name());
        }
        self.informed.to_service(key, Event::Removed);
    }

    fn nodes_changed(&self, changes: impl Iterator<Item = BackendsChange>) {
        let was_synced = self.informed.shared().synced;
        let labels = self.informed.node_labels();
        let changes = changes.map(|change| {
            change.map(|mut node| {
                node.labels.retain(|key, _| labels.contains(key.as_str()));
                node
            })
        });
        let differs = {
            let told = &mut *self.informed.told();
            let mut before: Vec<BackendNode> = Vec::new();
            let mut apply = |known: &mut Option<BackendNodes>, change| match change {
                Change::Replaced(all) => {
                    let all: BTreeMap<_, _> = all.into_iter().collect();
                    let replaced = known.replace(all);
                    let differs = replaced != *known;
                    before.extend(replaced.into_iter().flat_map(BTreeMap::into_values));
                    differs
                }
                Change::Applied(name, Some(node)) => match known {
                    Some(nodes) if nodes.get(&name) == Some(&node) => false,
                    Some(nodes) => {
                        before.extend(nodes.insert(name, node));
                        true
                    }
                    None => false,
                },
                Change::Applied(name, None) | Change::Deleted(name) => {
                    let removed = known.as_mut().and_then(|nodes| nodes.remove(&name));
                    let differs = removed.is_some();
                    before.extend(removed);
                    differs
                }
                Change::Confirmed | Change::Lost(_) => false,
            };
            let differs = told.change_nodes(|known| {
                let mut differs = false;
                changes.for_each(|change| differs |= apply(known, change));
                differs
            });
            if differs {
                let selection = self.informed.selection();
                let nodes = told.nodes.as_ref();
                let now = || nodes.map(|nodes| selection.destinations(nodes)).unwrap_or_default();
                told.admitted.nodes_changed(before.iter().filter(|node| selection.takes(node)), now);
                self.informed.assign_nodes(told);
            }
            differs
        };
        self.note_synced(was_synced);
        let Some(workers) = self.informed.workers.get().filter(|_| differs) else { return };
        if self.informed.has_no_backends() {
            let told = self.informed.told();
            let services = told.services.iter().flatten().map(|(_, service)| &service.object);
            let served = services.filter(|object| object.wants_load_balancer(self.options.class.as_deref()));
            served.for_each(|object| self.informed.events.send(events::no_backends(&object.key)));
        }
        for id in self.informed.load_balancers() {
            workers.load_balancers.send(&id, ObjectEvent::EnvChanged(EnvChange::Cures).into());
        }
        workers.services.wake_all();
        self.informed.update_nics();
        self.informed.look.notify_one();
    }

    /// Passes a Service's state on.
    fn changed(&self, service: &VersionedService) {
        let Some(snapshot) = self.snapshot(service) else { return };
        self.informed.to_service(&service.object.key, Event::Changed(snapshot));
    }

    /// What a Service asks for; `None` for one that is not served here and never was, or whose place is not known yet.
    fn snapshot(&self, service: &VersionedService) -> Option<Snapshot<Balanced>> {
        let object = &service.object;
        let wants_balancer = object.wants_load_balancer(self.options.class.as_deref());
        if !wants_balancer && !object.has_finalizer {
            return None;
        }
        let mut object = Cow::Borrowed(object);
        if self.informed.follows_namespaces() {
            let told = self.informed.told();
            // Without the labels it has no place; it is changed again when they are known.
            let namespaces = told.namespaces.as_ref()?;
            object.to_mut().namespace_labels = namespaces.get(&object.key.namespace).cloned().unwrap_or_default();
        }
        let object = &*object;
        if self.informed.settings.sku == LoadBalancerSku::Basic && !self.informed.told().has_looked {
            return None;
        }
        let desired = if wants_balancer { self.desired(object)? } else { Desired::Gone };
        if wants_balancer && self.informed.has_no_backends() {
            self.informed.events.send(events::no_backends(&object.key));
        }
        let standing = if wants_balancer { Standing::Served } else { Standing::Going };
        let ask = if wants_balancer { None } else { self.parse(object).ok() };
        let Owned { keys, unread } = {
            let told = self.informed.told();
            told.discovered.owned(object, ask.as_ref(), standing, told.trusted_from, &self.informed.settings)
        };
        let mut found: BTreeSet<Key> = self.informed.load_balancers().into_iter().map(Key::LoadBalancer).collect();
        found.extend(self.informed.settings.security_group_id().ok().map(Key::SecurityGroup));
        found.extend(keys);
        let ownerless: BTreeSet<Key> =
            self.informed.told().balancers.released_public_ips().iter().cloned().map(Key::PublicIp).collect();
        let named = discovery::named(object, &self.informed.settings);
        let status = Some(object.ingress.clone()).filter(|ingress| !ingress.is_empty());
        let (version, finalizer) = (service.version, object.has_finalizer);
        Some(Snapshot { version, desired, finalizer, status, found, ownerless, named, unread })
    }

    fn parse(&self, object: &ServiceObject) -> Result<Ask, Vec<Mistake>> {
        parse(object, &self.informed.settings, &self.informed.existing(object))
    }

    /// What a Service asks for; `None` while what its values are read by may be old.
    fn desired(&self, object: &ServiceObject) -> Option<Desired<Spec>> {
        let name = object.key.tag_name();
        self.informed.told().unplaced.remove(&name);
        let read = self.parse(object);
        let reads_shown = read.as_ref().map_or(true, |ask| ask.reads_shown);
        if self.informed.waits_for_evidence(object, reads_shown) {
            self.informed.told().unplaced.insert(name);
            return None;
        }
        Some(match read {
            Err(mistakes) => {
                // Azure may show by and by what the Service is served with.
                self.informed.told().unplaced.insert(name);
                Desired::Invalid(mistakes.iter().map(ToString::to_string).collect())
            }
            Ok(ask) => {
                for warning in &ask.warnings {
                    self.informed.events.send(events::of_warning(&object.key, warning));
                }
                self.spec(object, ask).map_or_else(
                    |error| {
                        self.informed.told().unplaced.insert(name);
                        Desired::Invalid(vec![error.to_string()])
                    },
                    Desired::Present,
                )
            }
        })
    }

    /// Finds the objects of a Service.
    fn spec(&self, object: &ServiceObject, ask: Ask) -> Result<Spec, SpecError> {
        let settings = &self.informed.settings;
        let mut public_ips = BTreeMap::new();
        for family in &ask.families {
            let AddressAsk::Public(public) = &family.address else { continue };
            let id = match (wants::public_ip_id(public, settings)?, public) {
                (Some(id), _) => id,
                (None, PublicIpAsk::WithAddress { address, resource_group, .. }) => {
                    let missing = || format!("public IP {address} was not found in resource group {resource_group}");
                    let found = self.informed.told().discovered.with_address(*address, resource_group).cloned();
                    found.ok_or_else(|| SpecError::Sentence(missing()))?
                }
                (None, _) => continue,
            };
            public_ips.insert(family.family, id);
        }
        let (load_balancer, moved) = {
            let told = &mut *self.informed.told();
            let sets = if settings.sku == LoadBalancerSku::Basic { self.informed.vm_sets(told) } else { vec![] };
            let placed = told.balancers.place(&ask, object, settings, &sets, &public_ips);
            let (id, begins) = placed.map_err(|refusal| SpecError::Sentence(refusal.message))?;
            (id, begins && self.informed.assign_nodes(told))
        };
        if moved {
            self.informed.replan_load_balancers(None);
        }
        let (mut private_link, mut private_link_subnet) = (None, None);
        if let Some(link) = &ask.private_link {
            let frontend = LoadBalancer::frontend_id(&load_balancer, &ask.families[0].frontend);
            let all: Vec<PrivateLink> = self.informed.told().discovered.private_links().cloned().collect();
            let name = lazuli_services::network::private_link::name(link, &frontend, &all);
            private_link = Some(settings.private_link_id(&link.resource_group, &name)?);
            private_link_subnet = Some(settings.subnet_id(&link.subnet)?);
        }
        Ok(Spec { ask, load_balancer, public_ips, private_link, private_link_subnet })
    }
}

/// What a follower brings.
type Following<'f, V> = (BoxFuture<'f, ()>, mpsc::Receiver<Change<V>>);

/// Follows a kind of objects only where it is needed.
fn only_if<'f, V, F: Future<Output = ()> + Send + 'f>(
    is_needed: bool,
    follow: impl FnOnce() -> (F, mpsc::Receiver<Change<V>>),
) -> Following<'f, V> {
    if !is_needed {
        return (Box::pin(async {}), mpsc::channel(1).1);
    }
    let (following, told) = follow();
    (Box::pin(following), told)
}

/// The address prefixes of a subnet.
fn prefixes(subnet: &Value) -> Vec<Cidr> {
    let properties = &subnet["properties"];
    let many = properties["addressPrefixes"].as_array().into_iter().flatten();
    let all = many.chain([&properties["addressPrefix"]]);
    all.filter_map(|text| text.as_str()?.parse().ok()).collect()
}
