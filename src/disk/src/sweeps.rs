//! Which calls the steps of sweeps ([`lazuli_storage::copies::sweep`]) are. It chooses nothing. A sweep runs in a task
//! of its own, for which no request waits.

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt as _};
use lazuli_azure::{compute::Freshness, error::Verb, permits::Permit};
use lazuli_model::ArmId;
use lazuli_reconcile::{Clock, Kind, Workers, metrics::Metrics};
use lazuli_storage::{
    copies::{
        Next,
        sweep::{self, Call, Occurrence, Report, Resting, Step, Sweep},
    },
    list::ResourceGroup,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{client::Client, error::Answer};

type Event = sweep::Event<Answer>;

/// The sweeps of this process. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Sweeps {
    workers: Workers<Sweeping>,
    group: String,
}

impl Sweeps {
    pub(crate) fn new(client: Client, cluster: &ResourceGroup, metrics: Metrics) -> Self {
        let clock = Clock::start();
        let kind = Sweeping { client, cluster: cluster.clone(), clock };
        Self { workers: Workers::new(Arc::new(kind), clock, metrics), group: cluster.name.clone() }
    }

    /// A request was served: where a sweep is due, it begins.
    pub(crate) fn served(&self) {
        self.workers.send(&self.group, Occurrence::Served);
    }
}

struct Sweeping {
    client: Client,
    cluster: ResourceGroup,
    clock: Clock,
}

impl Kind for Sweeping {
    /// The resource group of the cluster: the only one.
    type Key = String;
    type State = sweep::Sweeps;
    type Event = Occurrence;
    /// A sweep, by what the last one has left.
    type Action = Resting;

    const NAME: &'static str = "copy_sweep";

    /// A sweep begins only behind a request, so nothing is to be woken for.
    fn woke() -> Occurrence {
        Occurrence::Woke
    }

    fn drain() -> Occurrence {
        Occurrence::Drain
    }

    /// The work ends when it is forgotten.
    fn is_drained(_: &Resting) -> bool {
        false
    }

    fn action_name(_: &Resting) -> &'static str {
        "sweep"
    }

    fn step(&self, _: &String, state: &mut sweep::Sweeps, now: Duration, occurrence: Occurrence) -> Vec<Resting> {
        state.step(now, occurrence).into_iter().collect()
    }

    fn wake_at(&self, _: &sweep::Sweeps) -> Option<Duration> {
        None
    }

    fn is_idle(&self, state: &sweep::Sweeps) -> bool {
        state.is_over()
    }

    fn carry_out(&self, _: &String, _: &mut sweep::Sweeps, before: Resting) -> Option<BoxFuture<'static, Occurrence>> {
        let sweep = Sweep::new(&self.cluster.subscription, &self.cluster.name, self.client.subscriptions(), before);
        Some(carry_out(self.client.clone(), self.clock, sweep).boxed())
    }

    /// The next request begins anew.
    fn broken_off(&self, _: &String) {}
}

async fn carry_out(client: Client, clock: Clock, mut sweep: Sweep) -> Occurrence {
    let mut permit = None;
    let mut event = Event::Begun;
    loop {
        let Step { report, next } = sweep.step(clock.now(), event);
        report.into_iter().for_each(tell);
        match next {
            Next::Call(next) => event = call(&client, &mut permit, next).await,
            Next::Done(resting) => return Occurrence::Swept(resting),
        }
    }
}

/// Carries out a call. `permit` is the one that is held.
async fn call(client: &Client, permit: &mut Option<Permit>, call: Call) -> Event {
    match call {
        Call::List(scope) => {
            let listed = client.list_snapshots(&scope.subscription, scope.resource_group.as_deref()).await;
            Event::Snapshots(listed.map(|list| (list.snapshots, list.answered)).map_err(Answer))
        }
        Call::Look(disk) => {
            *permit = None;
            Event::Disk(read_disk(client, &disk).await)
        }
        Call::Permit(carrier) => {
            let given = client.permit_snapshot(Verb::Delete, &carrier).await;
            Event::Permitted(given.map(|given| *permit = Some(given)).map_err(Answer))
        }
        Call::ReadDisk(disk) => Event::Disk(read_disk(client, &disk).await),
        Call::ReadSnapshot(carrier) => {
            let read = client.read_snapshot(&carrier, Freshness::single()).await;
            Event::Snapshot(read.map(|read| Box::new(read.model)).map_err(Answer))
        }
        Call::Delete(carrier) => {
            let permit = permit.take().expect("the step waits for a permit first");
            Event::Deleted(delete(client, &carrier, permit).await)
        }
    }
}

async fn read_disk(client: &Client, disk: &ArmId) -> Result<Box<lazuli_model::Disk>, Answer> {
    let read = client.read_disk(disk, Freshness::single()).await;
    read.map(|read| Box::new(read.model)).map_err(Answer)
}

async fn delete(client: &Client, carrier: &ArmId, permit: Permit) -> Result<(), Answer> {
    let deletion = client.delete_snapshot(carrier, permit, &CancellationToken::new()).await.map_err(Answer)?;
    client.deleted(deletion).await.map_err(Answer)
}

fn tell(report: Report<Answer>) {
    match report {
        Report::Left(snapshot, Answer(error)) => {
            warn!(%snapshot, %error, "a temporary snapshot stays for now; it is deleted by a later sweep");
        }
        Report::Swept(snapshot) => info!(%snapshot, "a temporary snapshot that was left over is deleted"),
    }
}
