//! A route table, whole: its planner, its adapter, and an Azure of a few lines.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use lazuli_engine::{
    Acceptance, Outcome, Shared,
    object::{Cause, Event, Failure, Object, Plan, Served, Taint, Write},
};
use lazuli_journal::{Key as JournalKey, Recorder, Standing, Subject, Word};
use lazuli_model::fault::Fault;
use lazuli_quota::{
    permit::Priority,
    poll::{Durations, Expectation, Kind as PollKind},
    read::{Accept, By},
};
use tokio::{sync::mpsc, time::sleep};

use crate::{
    Clock, Lease, LeaseHolder, Workers,
    metrics::Metrics,
    object::{Adapter, Objects, Observed, Polled, Written},
};

// ---- the planner ----

/// A route table: from a node's pod range to the node's address.
#[derive(Debug, Clone, PartialEq)]
struct RouteTable;

/// What a node wants: its route, or none.
type Route = Option<&'static str>;
type Routes = BTreeMap<&'static str, &'static str>;

impl Object for RouteTable {
    type Requester = &'static str;
    type Want = Route;
    type Model = Routes;
    type Inputs = ();
    type Op = Vec<(&'static str, Route)>;
    type Report = ();
    type Related = ();
    const CONDITIONAL: bool = true;

    fn plan(wants: &BTreeMap<&'static str, Route>, actual: Option<&Routes>, (): &()) -> Plan<Self> {
        let now = |node: &str| actual.and_then(|routes| routes.get(node)).copied();
        let op: Vec<_> = wants.iter().filter(|(node, want)| now(node) != **want).map(|(n, want)| (*n, *want)).collect();
        let served = wants
            .iter()
            .map(|(node, want)| (*node, if now(node) == *want { Served::Met(()) } else { Served::Pending }));
        let replaces = op.iter().any(|(node, _)| now(node).is_some());
        let served = served.collect();
        let write: Write<Self> =
            Write { op, priority: Priority::Create, replaces, is_partial: false, taints: Vec::new() };
        Plan { write: (!write.op.is_empty()).then_some(write), served }
    }

    fn is_updating(_: &Routes) -> bool {
        false
    }

    fn removes(want: &Route) -> bool {
        want.is_none()
    }
}

// ---- the adapter ----

#[derive(Debug)]
struct RouteTables {
    azure: Arc<Mutex<Azure>>,
    lease: Lease,
    clock: Clock,
    outcomes: mpsc::UnboundedSender<(&'static str, u64, Outcome<()>)>,
}

impl Adapter<RouteTable> for RouteTables {
    type Key = String;
    type Raw = (u64, Routes);
    type Permit = ();
    type Operation = Duration;
    const NAME: &'static str = "route_table";

    fn shared(&self) -> Shared {
        let (lease, trusted_from) = (self.lease.now(), Duration::ZERO);
        Shared { synced: true, lease, trusted_from, acceptance: Acceptance::Given, resync: None }
    }

    fn inputs(&self, _: &String) -> Arc<()> {
        Arc::new(())
    }

    fn observe(
        &self,
        _: &String,
        not_before: Duration,
        _: Accept,
    ) -> BoxFuture<'static, Observed<RouteTable, (u64, Routes)>> {
        let azure = self.azure.clone();
        Box::pin(async move {
            sleep(Duration::from_millis(30)).await;
            let azure = azure.lock().unwrap();
            Observed {
                sent_at: not_before,
                by: By::Single,
                result: Ok((azure.routes.clone(), (azure.etag, azure.routes.clone()))),
            }
        })
    }

    fn permit(&self, _: &String, _: Priority) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }

    fn write(
        &self,
        _: &String,
        raw: Option<(u64, Routes)>,
        op: Vec<(&'static str, Route)>,
        (): (),
    ) -> BoxFuture<'static, Written<RouteTable, Duration>> {
        let (azure, clock) = (self.azure.clone(), self.clock);
        Box::pin(async move {
            sleep(Duration::from_millis(30)).await;
            let (etag, mut routes) = raw.unwrap_or_default();
            for (node, route) in op {
                _ = match route {
                    Some(route) => routes.insert(node, route),
                    None => routes.remove(node),
                };
            }
            match azure.lock().unwrap().put(etag, routes) {
                Ok(()) => {
                    let expected = Expectation::of(PollKind::Other, &Durations::default(), None);
                    Written::Accepted(clock.now() + Duration::from_secs(3), expected)
                }
                Err(fault) => Written::Failed(Failure { fault, cause: Cause::Unnamed }),
            }
        })
    }

    fn poll(&self, _: &String, ends_at: Duration) -> BoxFuture<'static, Polled<RouteTable, (u64, Routes)>> {
        let ended = self.clock.now() >= ends_at;
        Box::pin(async move { if ended { Polled::Done } else { Polled::Running(Duration::ZERO) } })
    }

    fn tell(&self, _: &String, to: &'static str, generation: u64, outcome: Outcome<()>) {
        _ = self.outcomes.send((to, generation, outcome));
    }

    fn taint(&self, _: Vec<()>, _: Taint) {}

    fn broken_off(&self, _: &String) {}

    fn journal_key(key: &String) -> Option<JournalKey<'_>> {
        Some(JournalKey::new(Subject::RouteTable, key))
    }

    fn requester_key(node: &&'static str) -> Option<JournalKey<'static>> {
        Some(JournalKey::node(node))
    }
}

// ---- its Azure, and the tests ----

#[derive(Debug, Default)]
struct Azure {
    etag: u64,
    routes: Routes,
    puts: u32,
}

impl Azure {
    fn put(&mut self, etag: u64, routes: Routes) -> Result<(), Fault> {
        self.puts += 1;
        if etag != self.etag {
            return Err(Fault::PreconditionFailed);
        }
        self.etag += 1;
        self.routes = routes;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_nodes_makes_one_write_and_a_foreign_write_is_kept() {
    let clock = Clock::start();
    let (holder, lease) = LeaseHolder::new(clock, Duration::from_secs(5));
    holder.renewed(Duration::from_secs(3_600));
    let azure = Arc::new(Mutex::new(Azure::default()));
    azure.lock().unwrap().routes.insert("appliance", "10.9.9.9");
    let (outcomes, mut told) = mpsc::unbounded_channel();
    let adapter = RouteTables { azure: azure.clone(), lease, clock, outcomes };
    let metrics = Metrics::unregistered();
    let workers = Workers::new(Arc::new(Objects::new(Arc::new(adapter), clock)), clock, metrics.clone());
    let key = "rt".to_owned();
    let acceptance = Acceptance::Given;
    let request =
        |from, generation, want| workers.send(&key, Event::Requested { from, generation, want, acceptance }.into());
    let mut done = async |count: usize| {
        let mut done = Vec::new();
        while done.len() < count {
            let (node, generation, outcome) = told.recv().await.unwrap();
            if outcome == Outcome::Done(()) {
                done.push((node, generation));
            }
        }
        done
    };

    request("node-1", 1, Some("10.0.0.1"));
    request("node-2", 1, Some("10.0.0.2"));
    request("node-3", 1, Some("10.0.0.3"));
    assert_eq!(done(3).await, [("node-1", 1), ("node-2", 1), ("node-3", 1)]);
    assert_eq!(azure.lock().unwrap().puts, 1);

    // Another writer: the next write meets its ETag, and keeps its route.
    azure.lock().unwrap().etag += 1;
    azure.lock().unwrap().routes.insert("gateway", "10.8.8.8");
    request("node-2", 2, None);
    assert_eq!(done(1).await, [("node-2", 2)]);
    let routes = Routes::from([
        ("appliance", "10.9.9.9"),
        ("gateway", "10.8.8.8"),
        ("node-1", "10.0.0.1"),
        ("node-3", "10.0.0.3"),
    ]);
    assert_eq!(azure.lock().unwrap().routes, routes);
    assert_eq!(azure.lock().unwrap().puts, 3, "one of them was refused");
    assert_eq!(metrics.actions("route_table", "write"), 3);

    for node in ["node-1", "node-2", "node-3"] {
        workers.send(&key, Event::Withdrawn(node).into());
    }
    workers.drain().await;
    assert!(workers.is_empty());
    assert_eq!(metrics.keys("route_table"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_journal_has_what_was_wanted_seen_and_done_and_what_is_waited_for() {
    let clock = Clock::start();
    let (holder, lease) = LeaseHolder::new(clock, Duration::from_secs(5));
    let azure = Arc::new(Mutex::new(Azure::default()));
    let (outcomes, mut told) = mpsc::unbounded_channel();
    let adapter = RouteTables { azure: azure.clone(), lease, clock, outcomes };
    let journal = Recorder::new(move || clock.now());
    let objects = Arc::new(Objects::new(Arc::new(adapter), clock));
    let workers = Workers::with_journal(objects, clock, Metrics::unregistered(), journal.clone());
    let key = "rt".to_owned();
    let acceptance = Acceptance::Given;
    workers.send(&key, Event::Requested { from: "node-1", generation: 7, want: Some("10.0.0.1"), acceptance }.into());
    sleep(Duration::from_secs(1)).await;
    let table = JournalKey::new(Subject::RouteTable, &*key);
    let story = || journal.look(|journal| journal.story_of(&table)).unwrap().unwrap();
    let open = || story().open().iter().map(|record| record.word).collect::<Vec<_>>();
    assert_eq!((open(), story().standing), (vec![Word::AwaitsLease], Standing::Waits));

    holder.renewed(Duration::from_secs(3_600));
    azure.lock().unwrap().etag += 1;
    workers.wake_all();
    while told.recv().await.unwrap().2 != Outcome::Done(()) {}
    // The task goes on to note what it waits for then.
    sleep(Duration::from_secs(1)).await;
    assert_eq!((open(), story().standing), (vec![], Standing::Settled));
    let lines = journal.lines_of(&table);
    let said: Vec<&str> = lines.iter().map(|line| line.split_once(" s  ").map_or(&**line, |(_, said)| said)).collect();
    let expected = [
        "route table rt waits for nothing, since 4.9 s",
        "asked    Node node-1 wants something of it (want 7)",
        "waits    a read",
        "seen     a read of it alone shows it",
        "decided  tells Node node-1 that it must wait (want 7)",
        "waits    the Lease: a process without it, or with little of it left, writes nothing",
        "waits    a permit to write: Azure takes only so many requests",
        "seen     the permit to write it is granted",
        "decided  sends a write (number 3)",
        "waits    Azure's answer to a write",
        "seen     the write has failed (number 3): it is not as it was read: another writer has changed it",
        "waits    the end of a pause after a failure",
        "waits    a read",
        "seen     a read of it alone shows it",
        "waits    a permit to write: Azure takes only so many requests",
        "seen     the permit to write it is granted",
        "decided  sends a write (number 6)",
        "waits    Azure's answer to a write",
        "waits    the end of an operation that Azure has accepted",
        "seen     the operation still runs (2 times)",
        "seen     the write has succeeded (number 6)",
        "waits    a read",
        "seen     a read of it alone shows it",
        "decided  tells Node node-1 that Azure shows what it wants (want 7)",
        "done     nothing is left to do",
    ];
    assert_eq!(said, expected, "{lines:#?}");
    workers.drain().await;
}
