//! Public IPs, load balancers, security groups and private link services: which calls their actions are.

use std::{
    collections::{BTreeMap, BTreeSet},
    marker::PhantomData,
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use lazuli_azure::{
    Until,
    arm::Operation,
    compute::Freshness,
    error::{ArmError, Verb},
    network::{Network, NetworkType, NetworkWrite},
    permits::Permit,
};
use lazuli_balancing::{
    Key, LoadBalancers, PrivateLinks, PublicIps, Report, SecurityGroups, Subnets,
    interfaces::{Interfaces, Membership, Surroundings},
};
use lazuli_engine::{
    Outcome, Shared, Waiting,
    object::{Cause, Failure, Object, Taint},
    service,
};
use lazuli_journal::{Key as JournalKey, Subject};
use lazuli_model::{ArmId, ServiceKey, fault::Fault, json::BodyError};
use lazuli_quota::{
    permit::Priority,
    read::{Accept, By},
};
use lazuli_reconcile::{
    Lease,
    object::{Adapter, Observed, Polled, Written},
};
use lazuli_services::{
    network::{
        load_balancer::{self, WriteTarget},
        nic::{self, Holder},
        private_link, public_ip, security_group, subnet,
    },
    service::wants,
};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::Instant};

use crate::informed::Informed;

/// How long a read may take, with its waits for permits.
pub(crate) const READ: Duration = Duration::from_secs(120);
/// How long one write may take until Azure has accepted it.
const WRITE: Duration = Duration::from_secs(60);
/// How long the end of an operation is waited for by one poll. Afterwards the step decides.
const OPERATION: Duration = Duration::from_secs(300);

/// What Azure calls a reference to an object that is not provisioned. Source: the Go manager, which repairs the public IP.
const NOT_PROVISIONED: &str = "ReferencedResourceNotProvisioned";

/// How long a write may take: nothing of it is sent any more once this replica leads no more.
pub(crate) fn until_written(lease: &Lease) -> Until {
    let lease = lease.clone();
    Until::within(WRITE).while_leading(move || lease.is_held())
}

/// Where a write goes.
pub(crate) enum Target {
    Whole(Value),
    /// One part by a request of its own: its type, its id and its body.
    Part(NetworkType, ArmId, Value),
    /// Some members of it.
    Some(Value),
    /// An action: the last segment of its path, and its body.
    Action(&'static str, Value),
    Delete,
}

/// An object of the network provider.
pub(crate) trait Planned: Object<Related = Key> {
    const TYPE: NetworkType;
    /// The type of the object of this id, where a kind has several.
    fn resource_type(_: &ArmId) -> NetworkType {
        Self::TYPE
    }
    const NAME: &'static str;
    /// What it is in the journal.
    const SUBJECT: Subject;
    /// A requester in the journal.
    fn requester_key(requester: &Self::Requester) -> Option<JournalKey<'_>>;
    /// The rank of its reads. Many Services wait for one read of what they share.
    const READ_PRIORITY: Priority;
    /// Tells a requester what became of its want.
    fn tell(informed: &Informed, id: &ArmId, to: &Self::Requester, generation: u64, outcome: Outcome<Self::Report>);
    /// Tells requesters that the object has followed the Nodes, or why it cannot.
    fn followed(_: &Informed, _: &ArmId, _: Vec<Self::Requester>, _: Result<(), Fault>) {}
    /// The state of the object was lost.
    fn broken_off(informed: &Informed, id: &ArmId);
    fn read(id: &ArmId, body: &Value) -> Result<Self::Model, BodyError>;
    fn target(id: &ArmId, body: Option<Value>, op: &Self::Op, inputs: &Self::Inputs) -> Target;
    fn inputs(informed: &Informed, id: &ArmId) -> Arc<Self::Inputs>;
    /// A read that was sent at this time, or later, has shown this; `None` when a single read has shown that the object does
    /// not exist.
    fn observed(_: &Informed, _: &ArmId, _sent_at: Duration, _: Option<&Self::Model>) {}
    /// A single read has failed because what is around the object, such as its resource group, does not exist.
    fn scope_not_found(_: &Informed, _: &ArmId) {}
    /// Reads what the planner needs to know beside the object that a read has just shown.
    fn look_beside<'f>(_: &'f Informed, _: &'f ArmId, _: &'f Self::Model) -> BoxFuture<'f, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Whether a failed read shows that the object does not exist.
    fn is_gone<'f>(_: &'f Informed, _: &'f ArmId, fault: &'f Fault) -> BoxFuture<'f, bool> {
        Box::pin(std::future::ready(*fault == Fault::NotFound))
    }
}

fn whole(body: Option<Value>) -> Target {
    body.map_or(Target::Delete, Target::Whole)
}

impl Planned for PublicIps {
    const TYPE: NetworkType = NetworkType::PublicIp;
    const NAME: &'static str = "public_ip";
    const SUBJECT: Subject = Subject::PublicIp;
    const READ_PRIORITY: Priority = Priority::Read;

    fn requester_key(service: &ServiceKey) -> Option<JournalKey<'_>> {
        Some(JournalKey::service(service))
    }

    fn tell(informed: &Informed, id: &ArmId, to: &ServiceKey, generation: u64, outcome: Outcome<Report>) {
        informed.to_service(to, service::Event::Told { key: Key::PublicIp(id.clone()), generation, outcome });
    }

    fn broken_off(informed: &Informed, id: &ArmId) {
        informed.lost_object(Key::PublicIp(id.clone()));
    }

    fn read(id: &ArmId, body: &Value) -> Result<Self::Model, BodyError> {
        public_ip::PublicIp::read(id, body)
    }

    fn target(_: &ArmId, body: Option<Value>, op: &Self::Op, inputs: &Self::Inputs) -> Target {
        whole(public_ip::apply_raw(body, op, inputs))
    }

    fn inputs(informed: &Informed, id: &ArmId) -> Arc<public_ip::Env> {
        let settings = &informed.settings;
        Arc::new(public_ip::Env {
            id: id.clone(),
            cluster_name: settings.cluster_name.clone(),
            location: settings.location.clone(),
            sku: settings.sku,
            edge_zone: settings.edge_zone.clone(),
            zones: informed.zones(),
            tags: settings.tags.clone(),
            may_change_ip_tags: settings.may_change_ip_tags,
        })
    }

    fn observed(informed: &Informed, id: &ArmId, sent_at: Duration, actual: Option<&Self::Model>) {
        let told = &mut *informed.told();
        told.evidence.public_ip_observed(id, sent_at, actual);
        told.balancers.public_ip_observed(id, actual, &informed.settings);
    }

    fn scope_not_found(informed: &Informed, id: &ArmId) {
        informed.told().balancers.public_ip_observed(id, None, &informed.settings);
    }
}

impl Planned for LoadBalancers {
    const TYPE: NetworkType = NetworkType::LoadBalancer;
    const NAME: &'static str = "load_balancer";
    const SUBJECT: Subject = Subject::LoadBalancer;
    const READ_PRIORITY: Priority = Priority::Attach;

    fn requester_key(service: &ServiceKey) -> Option<JournalKey<'_>> {
        Some(JournalKey::service(service))
    }

    fn tell(informed: &Informed, id: &ArmId, to: &ServiceKey, generation: u64, outcome: Outcome<Report>) {
        informed.to_service(to, service::Event::Told { key: Key::LoadBalancer(id.clone()), generation, outcome });
    }

    fn followed(informed: &Informed, id: &ArmId, services: Vec<ServiceKey>, result: Result<(), Fault>) {
        informed.backends_followed(id, services, &result);
    }

    fn broken_off(informed: &Informed, id: &ArmId) {
        informed.lost_object(Key::LoadBalancer(id.clone()));
    }

    fn read(id: &ArmId, body: &Value) -> Result<Self::Model, BodyError> {
        load_balancer::LoadBalancer::read(id, body)
    }

    fn target(id: &ArmId, body: Option<Value>, op: &Self::Op, inputs: &Self::Inputs) -> Target {
        let after = load_balancer::apply_raw(body, op, inputs);
        let part = match load_balancer::write_target(op) {
            WriteTarget::Pool(pool) => {
                after.as_ref().and_then(|after| load_balancer::pool_body(after, &pool)).map(|body| {
                    Target::Part(NetworkType::BackendPool, load_balancer::LoadBalancer::pool_id(id, &pool), body)
                })
            }
            WriteTarget::Migration(pools) => Some(Target::Action("migrateToIpBased", json!({ "pools": pools }))),
            WriteTarget::Whole | WriteTarget::Delete => None,
        };
        part.unwrap_or_else(|| whole(after))
    }

    fn inputs(informed: &Informed, id: &ArmId) -> Arc<load_balancer::Env> {
        let (settings, told) = (&informed.settings, informed.told());
        Arc::new(load_balancer::Env {
            id: id.clone(),
            location: settings.location.clone(),
            sku: settings.sku,
            edge_zone: settings.edge_zone.clone(),
            zones: informed.zones(),
            subnets: informed.found.get().map(|found| found.subnets.clone()).unwrap_or_default(),
            tags: settings.tags.clone(),
            pools: informed.pools(&told, id),
            in_models: informed.pools_in_models(&told, id),
            migrates_pools: settings.migrates_pools,
            maximum_rules: settings.maximum_rules,
            is_preconfigured: settings.is_preconfigured(id),
            sharing: settings.share_addresses,
            peers: Arc::clone(&told.peers),
        })
    }

    fn observed(informed: &Informed, id: &ArmId, sent_at: Duration, actual: Option<&Self::Model>) {
        informed.balancer_observed(id, sent_at, actual);
    }
}

impl Planned for SecurityGroups {
    const TYPE: NetworkType = NetworkType::SecurityGroup;
    const NAME: &'static str = "security_group";
    const SUBJECT: Subject = Subject::SecurityGroup;
    const READ_PRIORITY: Priority = Priority::Attach;

    fn requester_key(service: &ServiceKey) -> Option<JournalKey<'_>> {
        Some(JournalKey::service(service))
    }

    fn tell(informed: &Informed, id: &ArmId, to: &ServiceKey, generation: u64, outcome: Outcome<Report>) {
        informed.to_service(to, service::Event::Told { key: Key::SecurityGroup(id.clone()), generation, outcome });
    }

    fn broken_off(informed: &Informed, id: &ArmId) {
        informed.lost_object(Key::SecurityGroup(id.clone()));
    }

    fn read(id: &ArmId, body: &Value) -> Result<Self::Model, BodyError> {
        security_group::SecurityGroup::read(id, body)
    }

    fn target(_: &ArmId, body: Option<Value>, op: &Self::Op, inputs: &Self::Inputs) -> Target {
        whole(security_group::apply_raw(body, op, inputs))
    }

    fn inputs(informed: &Informed, id: &ArmId) -> Arc<security_group::Env> {
        let all = informed.inputs();
        let (nodes, all_nodes) = (all.nodes.clone(), all.all_nodes.clone());
        let told = informed.told();
        let departed = told.departed(&informed.settings);
        // A Service that has not told the group what it wants, because this process is new or its specification is
        // wrong, keeps what it was given.
        let is_silent = |key: &ServiceKey| !told.at_security_group.contains(key);
        let services = || told.services.iter().flatten().map(|(_, service)| &service.object);
        let services = || services().filter(|object| !object.is_deleting);
        let mut keep: BTreeMap<IpAddr, _> = BTreeMap::new();
        for (address, ports) in services().filter(|object| is_silent(&object.key)).flat_map(wants::kept_ports) {
            keep.entry(address).or_insert_with(BTreeSet::new).extend(ports);
        }
        let node_ports = wants::ports_at_nodes(told.balancers.node_ports(), services(), is_silent);
        let (reached, users) = (wants::reached(services()), told.balancers.users());
        let (id, tags) = (id.clone(), informed.settings.tags.clone());
        Arc::new(security_group::Env { id, tags, nodes, all_nodes, reached, users, departed, keep, node_ports })
    }

    fn observed(informed: &Informed, _: &ArmId, _: Duration, actual: Option<&Self::Model>) {
        informed.group_observed(actual);
    }
}

impl Planned for PrivateLinks {
    const TYPE: NetworkType = NetworkType::PrivateLinkService;
    const NAME: &'static str = "private_link_service";
    const SUBJECT: Subject = Subject::PrivateLink;
    const READ_PRIORITY: Priority = Priority::Read;

    fn requester_key(service: &ServiceKey) -> Option<JournalKey<'_>> {
        Some(JournalKey::service(service))
    }

    fn tell(informed: &Informed, id: &ArmId, to: &ServiceKey, generation: u64, outcome: Outcome<Report>) {
        informed.to_service(to, service::Event::Told { key: Key::PrivateLink(id.clone()), generation, outcome });
    }

    fn broken_off(informed: &Informed, id: &ArmId) {
        informed.lost_object(Key::PrivateLink(id.clone()));
    }

    fn read(id: &ArmId, body: &Value) -> Result<Self::Model, BodyError> {
        private_link::PrivateLink::read(id, body)
    }

    fn target(_: &ArmId, body: Option<Value>, op: &Self::Op, inputs: &Self::Inputs) -> Target {
        whole(private_link::apply_raw(body, op, inputs))
    }

    fn inputs(informed: &Informed, id: &ArmId) -> Arc<private_link::Env> {
        let settings = &informed.settings;
        Arc::new(private_link::Env {
            id: id.clone(),
            cluster_name: settings.cluster_name.clone(),
            location: settings.location.clone(),
            edge_zone: settings.edge_zone.clone(),
            tags: settings.tags.clone(),
        })
    }
}

impl Planned for Subnets {
    const TYPE: NetworkType = NetworkType::Subnet;
    const NAME: &'static str = "subnet";
    const SUBJECT: Subject = Subject::Subnet;
    const READ_PRIORITY: Priority = Priority::Read;

    fn requester_key(service: &ServiceKey) -> Option<JournalKey<'_>> {
        Some(JournalKey::service(service))
    }

    fn tell(informed: &Informed, id: &ArmId, to: &ServiceKey, generation: u64, outcome: Outcome<Report>) {
        informed.to_service(to, service::Event::Told { key: Key::Subnet(id.clone()), generation, outcome });
    }

    fn broken_off(informed: &Informed, id: &ArmId) {
        informed.lost_object(Key::Subnet(id.clone()));
    }

    fn read(id: &ArmId, body: &Value) -> Result<Self::Model, BodyError> {
        subnet::Subnet::read(id, body)
    }

    fn target(_: &ArmId, body: Option<Value>, op: &Self::Op, (): &()) -> Target {
        // A subnet is never made or deleted: without a body there is nothing to write.
        Target::Whole(subnet::apply_raw(body.unwrap_or_default(), op))
    }

    fn inputs(_: &Informed, _: &ArmId) -> Arc<()> {
        Arc::new(())
    }
}

impl Planned for Interfaces {
    const TYPE: NetworkType = NetworkType::Interface;
    const NAME: &'static str = "nic";
    const SUBJECT: Subject = Subject::Interface;
    const READ_PRIORITY: Priority = Priority::Read;

    fn requester_key(_: &Membership) -> Option<JournalKey<'_>> {
        None
    }

    fn resource_type(id: &ArmId) -> NetworkType {
        match Holder::of(id) {
            Holder::Interface => Self::TYPE,
            Holder::Instance => NetworkType::Instance,
            Holder::Model => NetworkType::ScaleSet,
        }
    }

    /// What a NIC cannot join is for the operator. Owners of Services learn whether the backends follow the Nodes.
    fn tell(informed: &Informed, id: &ArmId, _: &Membership, _: u64, outcome: Outcome<Vec<nic::Conflict>>) {
        informed.nic_ended(id, &outcome);
        match outcome {
            Outcome::Done(conflicts) => conflicts.iter().for_each(|conflict| {
                tracing::warn!(nic = id.name(), "the NIC cannot join a pool: {conflict}");
            }),
            Outcome::Refused(refusal) => tracing::warn!(nic = id.name(), ?refusal, "Azure refuses the pools of a NIC"),
            Outcome::Waiting(Waiting::Plan(why)) => informed.model_waits(id, &why),
            Outcome::Waiting(_) => {}
        }
    }

    fn broken_off(informed: &Informed, id: &ArmId) {
        informed.lost_interface(id);
    }

    fn read(id: &ArmId, body: &Value) -> Result<Self::Model, BodyError> {
        nic::Nic::read(id, body)
    }

    fn target(id: &ArmId, body: Option<Value>, op: &Self::Op, _: &Surroundings) -> Target {
        // A NIC is never made or deleted: without a body there is nothing to write.
        let body = nic::write_body(id, body.unwrap_or_default(), op);
        if Holder::of(id) == Holder::Model { Target::Some(body) } else { Target::Whole(body) }
    }

    fn inputs(informed: &Informed, id: &ArmId) -> Arc<Surroundings> {
        Arc::new(informed.told().machines.beside(id))
    }

    fn observed(informed: &Informed, id: &ArmId, _: Duration, actual: Option<&Self::Model>) {
        informed.nic_observed(id, actual);
    }

    fn look_beside<'f>(
        informed: &'f Informed,
        id: &'f ArmId,
        model: &'f Self::Model,
    ) -> BoxFuture<'f, Result<(), Fault>> {
        if !model.upgrades_instances {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async move { informed.look_at_instances(id).await.map_err(|error| error.fault.clone()) })
    }

    fn is_gone<'f>(informed: &'f Informed, id: &'f ArmId, fault: &'f Fault) -> BoxFuture<'f, bool> {
        Box::pin(async move {
            match (fault, Holder::of(id)) {
                (Fault::NotFound, _) => true,
                (Fault::ScopeNotFound | Fault::Invalid, Holder::Instance) => informed.is_instance_gone(id).await,
                _ => false,
            }
        })
    }
}

/// The adapter of one kind.
pub(crate) struct Of<O> {
    informed: Arc<Informed>,
    object: PhantomData<fn() -> O>,
}

impl<O> Of<O> {
    pub(crate) fn new(informed: Arc<Informed>) -> Self {
        Self { informed, object: PhantomData }
    }
}

/// A body with the ETag that it was read with. Thousands of objects rest after one write, so it is kept as text, which
/// takes a fraction of the room of its values.
#[derive(Debug, Clone)]
pub(crate) struct Raw {
    body: Arc<[u8]>,
    pub(crate) etag: Option<String>,
}

impl Raw {
    pub(crate) fn new(body: &Value, etag: Option<String>) -> Self {
        let body = serde_json::to_vec(body).expect("what was parsed from JSON can be written as JSON");
        Self { body: body.into(), etag }
    }

    /// The body, to be edited.
    pub(crate) fn body(&self) -> Value {
        serde_json::from_slice(&self.body).expect("it was written from a value")
    }
}

/// Azure refused a write of an object; events tell its answer.
fn refused<K>(informed: &Informed, object: &ArmId, error: &ArmError) -> Failure<K> {
    informed.refused(object, error);
    failure(error)
}

pub(crate) fn failure<K>(error: &ArmError) -> Failure<K> {
    let cause = if error.code == NOT_PROVISIONED { Cause::Reference } else { Cause::Unnamed };
    tracing::warn!(%error, "Azure refused a write");
    Failure { fault: error.fault.clone(), cause }
}

/// The model of what was read.
pub(crate) fn model<M>(key: &ArmId, read: Result<M, BodyError>) -> Result<M, Fault> {
    read.map_err(|error| {
        tracing::error!(%key, %error, "Azure answered what cannot be read");
        Fault::Malformed
    })
}

/// Waits for the permit to write an object. Without one in time the write asks for one itself, and gives itself back where
/// there is none.
pub(crate) fn permit(network: &Network, key: &ArmId, priority: Priority) -> BoxFuture<'static, Option<Permit>> {
    let (network, key) = (network.clone(), key.clone());
    Box::pin(async move { network.permit(Verb::Put, &key, priority, &Until::within(READ)).await.ok() })
}

/// What the answer to a write is to the step.
pub(crate) fn written<O: Object>(
    answer: Result<Operation, ArmError>,
    failed: impl FnOnce(&ArmError) -> Failure<O::Requester>,
) -> Written<O, Arc<Mutex<Operation>>> {
    match answer {
        Ok(operation) => {
            let expectation = operation.expectation();
            Written::Accepted(Arc::new(Mutex::new(operation)), expectation)
        }
        Err(error) => Written::Failed(failed(&error)),
    }
}

/// The ETag in a body.
fn etag_of(body: &Value) -> Option<String> {
    body.get("etag").and_then(Value::as_str).map(str::to_owned)
}

/// Waits for the end of an operation. What shows the end, alone or in a list, is an observation too.
pub(crate) async fn polled<O: Object>(
    operation: Arc<Mutex<Operation>>,
    observed: impl FnOnce(Instant, &Value, Option<String>) -> Observed<O, Raw>,
    failed: impl FnOnce(&ArmError) -> Failure<O::Requester>,
) -> Polled<O, Raw> {
    let mut operation = operation.lock().await;
    match operation.settle(&Until::within(OPERATION)).await {
        Ok(()) => match operation.shown() {
            Some((body, sent_at)) => {
                let etag = etag_of(body);
                Polled::Shown(observed(sent_at, body, etag))
            }
            None => Polled::Done,
        },
        Err(error) if error.fault == Fault::Deadline => Polled::Running(Duration::ZERO),
        Err(error) => Polled::Failed(failed(&error)),
    }
}

/// What a read has shown.
fn observed<O: Planned>(
    informed: &Informed,
    key: &ArmId,
    sent_at: Instant,
    body: &Value,
    etag: Option<String>,
) -> Observed<O, Raw> {
    let (model, sent_at) = (model(key, O::read(key, body)), informed.clock.since(sent_at));
    if let Ok(model) = &model {
        O::observed(informed, key, sent_at, Some(model));
    }
    let result = model.map(|model| (model, Raw::new(body, etag)));
    Observed { sent_at, by: By::Single, result }
}

impl<O> Adapter<O> for Of<O>
where
    O: Planned + Send + Sync + 'static,
    O::Inputs: Send + Sync,
    O::Op: Send,
    O::Model: Send,
{
    type Key = ArmId;
    type Raw = Raw;
    type Permit = Option<Permit>;
    type Operation = Arc<Mutex<Operation>>;

    const NAME: &'static str = O::NAME;

    fn shared(&self) -> Shared {
        self.informed.shared()
    }

    fn inputs(&self, key: &ArmId) -> Arc<O::Inputs> {
        O::inputs(&self.informed, key)
    }

    fn observe(&self, key: &ArmId, not_before: Duration, accept: Accept) -> BoxFuture<'static, Observed<O, Raw>> {
        let (informed, key) = (self.informed.clone(), key.clone());
        Box::pin(async move {
            // A list lags, which matters after a write, and where it lacks the object: the step then asks for a single read.
            let accept = if informed.wrote_lately(&key) { Accept::Single } else { accept };
            let freshness = Freshness { accept, ..Freshness::any() };
            let freshness = freshness.priority(O::READ_PRIORITY).not_before(informed.clock.at(not_before));
            // Absence is answered only by a read that was sent after it was asked for.
            let asked_at = informed.clock.now().max(not_before);
            let read = informed.network.read(O::resource_type(&key), &key, freshness, &Until::within(READ)).await;
            let mut by = By::Single;
            let result = match read {
                Ok(read) => {
                    let observed = observed::<O>(&informed, &key, read.sent_at, &read.body, read.etag);
                    let Ok((model, _)) = &observed.result else { return observed };
                    match O::look_beside(&informed, &key, model).await {
                        Ok(()) => return observed,
                        Err(fault) => Err(fault),
                    }
                }
                Err(error) if O::is_gone(&informed, &key, &error.fault).await => {
                    by = error.by();
                    if by == By::Single {
                        O::observed(&informed, &key, asked_at, None);
                    }
                    Err(Fault::NotFound)
                }
                Err(error) => {
                    if error.fault == Fault::ScopeNotFound {
                        O::scope_not_found(&informed, &key);
                    }
                    Err(error.fault.clone())
                }
            };
            Observed { sent_at: not_before, by, result }
        })
    }

    fn permit(&self, key: &ArmId, priority: Priority) -> BoxFuture<'static, Option<Permit>> {
        permit(&self.informed.network, key, priority)
    }

    fn write(
        &self,
        key: &ArmId,
        raw: Option<Raw>,
        op: O::Op,
        permit: Option<Permit>,
    ) -> BoxFuture<'static, Written<O, Arc<Mutex<Operation>>>> {
        let (informed, key) = (self.informed.clone(), key.clone());
        Box::pin(async move {
            let inputs = O::inputs(&informed, &key);
            let (body, etag) = raw.map_or((None, None), |raw| (Some(raw.body()), raw.etag));
            informed.writes(&key);
            let until = until_written(&informed.lease);
            let put = |body| NetworkWrite::Put { body, etag: etag.clone() };
            let network = &informed.network;
            let resource_type = O::resource_type(&key);
            let written = match O::target(&key, body, &op, &inputs) {
                Target::Whole(body) => network.write(resource_type, &key, put(body), permit, &until).await,
                Target::Some(body) => {
                    network.write(resource_type, &key, NetworkWrite::Patch { body, etag }, permit, &until).await
                }
                // The observation's ETag is that of the whole; the part has one of its own in its body.
                Target::Part(part, id, body) => {
                    let etag = etag_of(&body);
                    network.write(part, &id, NetworkWrite::Put { body, etag }, permit, &until).await
                }
                Target::Action(action, body) => {
                    network.write(resource_type, &key, NetworkWrite::Post { action, body }, None, &until).await
                }
                Target::Delete => network.write(resource_type, &key, NetworkWrite::Delete { etag }, None, &until).await,
            };
            self::written(written, |error| refused(&informed, &key, error))
        })
    }

    fn poll(&self, key: &ArmId, operation: Arc<Mutex<Operation>>) -> BoxFuture<'static, Polled<O, Raw>> {
        let (informed, key) = (self.informed.clone(), key.clone());
        Box::pin(async move {
            let shown = |sent_at, body: &Value, etag| observed::<O>(&informed, &key, sent_at, body, etag);
            polled(operation, shown, |error| refused(&informed, &key, error)).await
        })
    }

    fn tell(&self, key: &ArmId, to: O::Requester, generation: u64, outcome: Outcome<O::Report>) {
        O::tell(&self.informed, key, &to, generation, outcome);
    }

    fn followed(&self, key: &ArmId, requesters: Vec<O::Requester>, result: Result<(), Fault>) {
        O::followed(&self.informed, key, requesters, result);
    }

    fn taint(&self, keys: Vec<Key>, taint: Taint) {
        self.informed.taint(keys, taint);
    }

    fn broken_off(&self, key: &ArmId) {
        O::broken_off(&self.informed, key);
    }

    fn journal_key(key: &ArmId) -> Option<JournalKey<'_>> {
        Some(JournalKey::new(O::SUBJECT, key.as_str()))
    }

    fn requester_key(requester: &O::Requester) -> Option<JournalKey<'_>> {
        O::requester_key(requester)
    }
}
