//! Route tables and subnets: which calls their actions are.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use lazuli_azure::{
    Until,
    arm::Operation,
    compute::Freshness,
    network::{NetworkType, NetworkWrite},
    permits::Permit,
};
use lazuli_engine::{
    Outcome, Refusal, Shared,
    object::{EnvChange, Event, Object, Taint},
};
use lazuli_journal::{Key as JournalKey, Subject};
use lazuli_model::{ArmId, fault::Fault, json::BodyError};
use lazuli_nodes::{
    cloud_node::step,
    routing::{self, AssociatedSubnet, Edit, Report, RouteTable, RouteTables, SubnetAssociations},
};
use lazuli_quota::{
    permit::Priority,
    read::{Accept, By},
};
use lazuli_reconcile::object::{Adapter, Observed, Polled, Written};
use serde_json::Value;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};
use tracing::{error, info, warn};

use super::known::Known;
use crate::{
    objects::{READ, Raw, failure, model, permit, polled, until_written, written},
    operations::{self, Features, What},
};

/// An object that routes need.
pub(crate) trait Routed: Object<Related = ArmId> {
    const TYPE: NetworkType;
    const NAME: &'static str;
    const SUBJECT: Subject;
    /// A requester in the journal.
    fn requester_key(requester: &Self::Requester) -> JournalKey<'_>;
    fn read(id: &ArmId, body: &Value) -> Result<Self::Model, BodyError>;
    fn body(body: Option<Value>, op: &Self::Op, inputs: &Self::Inputs) -> Option<Value>;
    fn inputs(known: &Known) -> Self::Inputs;
    /// When the next write may begin; `None` for at once.
    fn due(_: &Known) -> Option<Instant> {
        None
    }
    /// A write begins.
    fn writes(_: &Known) {}
    /// The routes that a write makes or removes.
    fn routes(_: &Self::Op) -> Vec<(What, String)> {
        Vec::new()
    }
    fn tell(known: &Known, key: &ArmId, to: Self::Requester, generation: u64, outcome: Outcome<Self::Report>);
    fn broken_off(known: &Known);
}

impl Routed for RouteTables {
    const TYPE: NetworkType = NetworkType::RouteTable;
    const NAME: &'static str = "route_table";
    const SUBJECT: Subject = Subject::RouteTable;

    fn requester_key(node: &String) -> JournalKey<'_> {
        JournalKey::node(node)
    }

    fn read(id: &ArmId, body: &Value) -> Result<RouteTable, BodyError> {
        RouteTable::read(id, body)
    }

    fn body(body: Option<Value>, op: &Self::Op, inputs: &routing::Env) -> Option<Value> {
        routing::apply_raw(body, op, inputs)
    }

    fn inputs(known: &Known) -> routing::Env {
        let routes = known.options.routes.as_ref();
        known.route_env(routes.expect("no Node asks for routes without a route table"))
    }

    fn due(known: &Known) -> Option<Instant> {
        known.table_due()
    }

    fn writes(known: &Known) {
        known.writes_table();
    }

    fn routes(edits: &Vec<Edit>) -> Vec<(What, String)> {
        operations::of_routes(edits)
    }

    fn tell(known: &Known, key: &ArmId, to: String, generation: u64, outcome: Outcome<Report>) {
        if let Outcome::Done(Report { is_associated: false, .. }) = outcome {
            known.associate(key);
        }
        if !known.told().without_node.contains(&to) {
            known.to_node(&to, step::Event::Routed { generation, outcome });
        } else if let (Outcome::Done(Report { is_provisioned: true, .. }), Some(workers)) =
            (&outcome, known.workers.get())
        {
            // A Node of the name that has come meanwhile asks with a greater generation.
            known.told().without_node.remove(&to);
            if generation == 0 {
                workers.tables.send(key, Event::Withdrawn(to).into());
            } else {
                known.to_node(&to, step::Event::Routed { generation, outcome });
            }
        }
    }

    fn broken_off(known: &Known) {
        let nodes: Vec<String> = known.told().nodes.iter().flat_map(|nodes| nodes.keys().cloned()).collect();
        nodes.iter().for_each(|node| known.to_node(node, step::Event::RoutesLost));
    }
}

impl Routed for SubnetAssociations {
    const TYPE: NetworkType = NetworkType::Subnet;
    const NAME: &'static str = "subnet";
    const SUBJECT: Subject = Subject::Subnet;

    fn requester_key(table: &ArmId) -> JournalKey<'_> {
        JournalKey::new(Subject::RouteTable, table.as_str())
    }

    fn read(id: &ArmId, body: &Value) -> Result<AssociatedSubnet, BodyError> {
        AssociatedSubnet::read(id, body)
    }

    fn body(body: Option<Value>, table: &ArmId, (): &()) -> Option<Value> {
        body.map(|body| routing::associate(body, table))
    }

    fn inputs(_: &Known) {}

    fn tell(_: &Known, key: &ArmId, table: ArmId, _: u64, outcome: Outcome<()>) {
        match outcome {
            Outcome::Done(()) => info!(subnet = key.name(), table = table.name(), "the route table serves the subnet"),
            Outcome::Refused(Refusal::Plan(why)) => error!(subnet = %key, "routes have no effect: {}", why.message),
            Outcome::Refused(Refusal::Azure(fault)) => {
                error!(subnet = %key, ?fault, "routes have no effect: Azure refuses to give the subnet the route table");
            }
            Outcome::Waiting(_) => {}
        }
    }

    fn broken_off(known: &Known) {
        known.association_lost();
    }
}

/// What a read has shown.
fn observed<O: Routed>(
    known: &Known,
    key: &ArmId,
    sent_at: Instant,
    body: &Value,
    etag: Option<String>,
) -> Observed<O, Raw> {
    let model = model(key, O::read(key, body));
    let result = model.map(|model| (model, Raw::new(body, etag)));
    Observed { sent_at: known.clock.since(sent_at), by: By::Single, result }
}

/// The routes that a write in flight makes or removes, for what is counted of them.
#[derive(Debug, Clone)]
struct Work {
    begun: Instant,
    routes: Vec<(What, String)>,
}

impl Work {
    fn ended(&self, known: &Known, succeeded: bool) {
        let (took, features) = (self.begun.elapsed(), Features::default());
        for (what, source) in &self.routes {
            known.operations.ended(&operations::Operation { what: *what, source, succeeded, took, features });
        }
    }

    /// What is made of an answer to the write: one that ends it ends the work.
    fn written<O: Object>(self, known: &Known, answer: Written<O, Arc<Mutex<Operation>>>) -> Written<O, InFlight> {
        match answer {
            Written::Accepted(operation, expectation) => {
                Written::Accepted(InFlight { operation, work: self }, expectation)
            }
            Written::Done => {
                self.ended(known, true);
                Written::Done
            }
            Written::Failed(failure) => {
                self.ended(known, false);
                Written::Failed(failure)
            }
        }
    }

    /// Takes in an answer to a poll.
    fn polled<O: Object>(&self, known: &Known, answer: &Polled<O, Raw>) {
        match answer {
            Polled::Running(_) => {}
            Polled::Done | Polled::Shown(_) => self.ended(known, true),
            Polled::Failed(_) => self.ended(known, false),
        }
    }
}

/// An operation of Azure.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    operation: Arc<Mutex<Operation>>,
    work: Work,
}

/// The adapter of one kind.
pub(crate) struct RoutingOf<O> {
    known: Arc<Known>,
    object: PhantomData<fn() -> O>,
}

impl<O> RoutingOf<O> {
    pub(super) fn new(known: Arc<Known>) -> Self {
        Self { known, object: PhantomData }
    }
}

impl<O> Adapter<O> for RoutingOf<O>
where
    O: Routed + Send + Sync + 'static,
    O::Inputs: Send + Sync,
    O::Op: Send,
    O::Model: Send,
    O::Requester: Send,
{
    type Key = ArmId;
    type Raw = Raw;
    type Permit = Option<Permit>;
    type Operation = InFlight;

    const NAME: &'static str = O::NAME;

    fn shared(&self) -> Shared {
        self.known.shared()
    }

    fn inputs(&self, _: &ArmId) -> Arc<O::Inputs> {
        Arc::new(O::inputs(&self.known))
    }

    fn observe(&self, key: &ArmId, not_before: Duration, _: Accept) -> BoxFuture<'static, Observed<O, Raw>> {
        let (known, key) = (self.known.clone(), key.clone());
        Box::pin(async move {
            let freshness = Freshness::single().not_before(known.clock.at(not_before));
            let read = match known.network.read(O::TYPE, &key, freshness, &Until::within(READ)).await {
                Ok(read) => read,
                Err(error) => {
                    if error.fault != Fault::NotFound {
                        warn!(%error, "{} cannot be read", key.name());
                    }
                    return Observed { sent_at: not_before, by: By::Single, result: Err(error.fault.clone()) };
                }
            };
            observed::<O>(&known, &key, read.sent_at, &read.body, read.etag)
        })
    }

    fn permit(&self, key: &ArmId, priority: Priority) -> BoxFuture<'static, Option<Permit>> {
        let (due, permit) = (O::due(&self.known), permit(&self.known.network, key, priority));
        Box::pin(async move {
            // What is asked for meanwhile is in the same write.
            if let Some(due) = due {
                sleep_until(due).await;
            }
            permit.await
        })
    }

    fn write(
        &self,
        key: &ArmId,
        raw: Option<Raw>,
        op: O::Op,
        permit: Option<Permit>,
    ) -> BoxFuture<'static, Written<O, InFlight>> {
        let (known, key) = (self.known.clone(), key.clone());
        Box::pin(async move {
            let (body, etag) = raw.map_or((None, None), |raw| (Some(raw.body()), raw.etag));
            let Some(body) = O::body(body, &op, &O::inputs(&known)) else { return Written::Done };
            let put = NetworkWrite::Put { body, etag };
            O::writes(&known);
            let work = Work { begun: Instant::now(), routes: O::routes(&op) };
            let answer = known.network.write(O::TYPE, &key, put, permit, &until_written(&known.lease)).await;
            work.written(&known, written(answer, failure))
        })
    }

    fn poll(&self, key: &ArmId, in_flight: InFlight) -> BoxFuture<'static, Polled<O, Raw>> {
        let (known, key) = (self.known.clone(), key.clone());
        Box::pin(async move {
            let shown = |sent_at, body: &Value, etag| observed::<O>(&known, &key, sent_at, body, etag);
            let answer = polled(in_flight.operation, shown, failure).await;
            in_flight.work.polled(&known, &answer);
            answer
        })
    }

    fn tell(&self, key: &ArmId, to: O::Requester, generation: u64, outcome: Outcome<O::Report>) {
        O::tell(&self.known, key, to, generation, outcome);
    }

    fn taint(&self, tables: Vec<ArmId>, taint: Taint) {
        let Some(workers) = self.known.workers.get() else { return };
        for table in tables {
            workers.tables.send(&table, Event::Tainted(taint).into());
            // It is read at once: nothing else asks for it, and a table that is not read is not read again in time.
            workers.tables.send(&table, Event::EnvChanged(EnvChange::Replan).into());
        }
    }

    fn broken_off(&self, _: &ArmId) {
        O::broken_off(&self.known);
    }

    fn journal_key(key: &ArmId) -> Option<JournalKey<'_>> {
        Some(JournalKey::new(O::SUBJECT, key.as_str()))
    }

    fn requester_key(requester: &O::Requester) -> Option<JournalKey<'_>> {
        Some(O::requester_key(requester))
    }
}
