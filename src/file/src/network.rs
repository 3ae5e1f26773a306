//! Which calls the courses of the network of accounts ([`lazuli_shares::work::network`]) are.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt as _};
use lazuli_azure::{
    Until,
    compute::Freshness,
    error::{ArmError, Verb},
    network::{Network, NetworkType, NetworkWrite, unreadable},
    permits::Permit,
};
use lazuli_engine::single::{Refusal, Written};
use lazuli_journal::Recorder;
use lazuli_model::{ArmId, StorageAccount};
use lazuli_quota::permit::Priority;
use lazuli_reconcile::{
    metrics::Metrics,
    single::{Adapter, Failed, Singles},
};
use lazuli_shares::{
    network::{Connections, Object, Seen, Wanted, Write},
    parameters::Endpoint,
    work::network::{Failure, Network as NetworkCourse, Request, Why},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    ShareError,
    error::{Answer, broken_off, of_step},
    regions::{PATIENCE, Regions},
};

type Course = NetworkCourse<Answer>;

/// How long a write may take: a private endpoint takes a minute or two.
const MAKING: Duration = Duration::from_secs(10 * 60);
/// For so long an account that was found reachable is not looked at again.
const REACHED_LASTS: Duration = Duration::from_secs(10 * 60);
/// How many such accounts are remembered.
const MOST_REACHED: usize = 10_000;

/// What accounts need in the network. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Networks {
    tasks: Singles<NetworkCalls>,
    /// The accounts that were reachable as a class asks, and when.
    reached: Arc<Mutex<BTreeMap<Wanted, Instant>>>,
}

impl Networks {
    pub(crate) fn new(regions: Regions, network: Network, metrics: Metrics, journal: Recorder) -> Self {
        Self { tasks: Singles::new(NetworkCalls { regions, network }, metrics, journal), reached: Arc::default() }
    }

    /// What must be there before an account is made.
    pub(crate) async fn prepare(&self, wanted: Option<Wanted>) -> Result<(), ShareError> {
        match wanted {
            Some(wanted) => self.request(wanted, None).await,
            None => Ok(()),
        }
    }

    /// An account that exists is reached as a class asks.
    pub(crate) async fn reach(&self, endpoint: &Endpoint, account: &StorageAccount) -> Result<(), ShareError> {
        let Endpoint::Private(network) = endpoint else { return Ok(()) };
        let wanted = Wanted::endpoint(&account.id, network).map_err(ShareError::no_id)?;
        let at = Instant::now();
        if self.reached().get(&wanted).is_some_and(|reached| at <= *reached + REACHED_LASTS) {
            return Ok(());
        }
        self.request(wanted.clone(), Some(Connections::from(account))).await?;
        self.remember(wanted, at);
        Ok(())
    }

    /// An account is gone, or is made anew: what was seen of it no longer counts.
    pub(crate) fn forget(&self, account: &ArmId) {
        self.reached().retain(|wanted, _| wanted.id(Object::Account) != Some(account));
    }

    fn reached(&self) -> MutexGuard<'_, BTreeMap<Wanted, Instant>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, wanted: Wanted, at: Instant) {
        let mut reached = self.reached();
        if reached.len() >= MOST_REACHED {
            reached.clear();
        }
        reached.insert(wanted, at);
    }

    async fn request(&self, wanted: Wanted, connections: Option<Connections>) -> Result<(), ShareError> {
        let limits = self.tasks.adapter().regions.limits();
        let request = Request { wanted: wanted.clone(), connections, limits };
        self.tasks.request(&wanted, request, ()).await.map_err(|failed| network_error(failed, &wanted))
    }
}

fn network_error(failed: Failed<Course>, wanted: &Wanted) -> ShareError {
    let Failure { fault, effect, why, azure } = match failed {
        Failed::BrokenOff => return broken_off(wanted),
        Failed::Refused(Refusal::Busy(_)) => unreachable!("a key is what is wanted, and only that is asked for"),
        Failed::Refused(Refusal::Why(failure)) => failure,
    };
    let named = |object: Object| match wanted.id(object) {
        Some(id) => format!("{} {id}", object.words()),
        None => object.words().to_owned(),
    };
    let (message, code) = match why {
        Why::Unreadable(object) => (format!("{} cannot be read", named(object)), None),
        Why::Unwritten(object) => (format!("{} cannot be written", named(object)), None),
        Why::InProgress(object) => (format!("{} has been in the making for too long; retry", named(object)), None),
        Why::Unwanted => (format!("no caller waits for {wanted} any more"), None),
        Why::Refused(refusal) => (refusal.to_string(), Some(refusal.code())),
    };
    let error = of_step(fault, effect, azure, message);
    match code {
        Some(code) => error.with_code(code),
        None => error,
    }
}

/// What the calls go through.
struct NetworkCalls {
    regions: Regions,
    network: Network,
}

/// The id of what the plan names.
fn id_of(wanted: &Wanted, object: Object) -> ArmId {
    wanted.id(object).expect("a plan names only what belongs to what is wanted").clone()
}

fn type_of(object: Object) -> NetworkType {
    match object {
        Object::Subnet(_) => NetworkType::Subnet,
        // The account is the storage provider's and is not asked for here.
        Object::Network | Object::Account => NetworkType::VirtualNetwork,
        Object::Zone => NetworkType::PrivateZone,
        Object::Links => NetworkType::ZoneLink,
        Object::Endpoint => NetworkType::PrivateEndpoint,
        Object::ZoneGroups => NetworkType::ZoneGroup,
    }
}

async fn read(regions: Regions, network: Network, wanted: Wanted, object: Object) -> Result<Seen, ArmError> {
    let until = Until::working(PATIENCE);
    let list = async |above: Object, member: &str| {
        let above = id_of(&wanted, above);
        let listed = network.list_below(type_of(object), &above, member, &until).await?;
        Seen::of_list(object, &listed).map_err(|error| unreadable(&above, &error))
    };
    match object {
        Object::Account => {
            let account = regions.read_account(&id_of(&wanted, object), Priority::Create).await?;
            Ok(Seen::Account(Connections::from(&account)))
        }
        Object::Links => list(Object::Zone, "virtualNetworkLinks").await,
        Object::ZoneGroups => list(Object::Endpoint, "privateDnsZoneGroups").await,
        Object::Subnet(_) | Object::Network | Object::Zone | Object::Endpoint => {
            let id = id_of(&wanted, object);
            let read = network.read(type_of(object), &id, Freshness::single(), &until).await?;
            Seen::of(object, &read.body, read.etag).map_err(|error| unreadable(&id, &error))
        }
    }
}

impl Adapter for NetworkCalls {
    type Key = Wanted;
    type Course = Course;
    type Permit = Permit;
    type Hold = ();

    const NAME: &'static str = "account_network";

    fn env(&self) {}

    fn permit(&self, wanted: &Wanted, object: Object) -> BoxFuture<'static, Result<Permit, Answer>> {
        let (network, id) = (self.network.clone(), id_of(wanted, object));
        let until = Until::cancelled(CancellationToken::new());
        async move { network.permit(Verb::Put, &id, Priority::Create, &until).await.map_err(Answer) }.boxed()
    }

    fn read(&self, wanted: &Wanted, object: Object) -> BoxFuture<'static, Result<Seen, Answer>> {
        read(self.regions.clone(), self.network.clone(), wanted.clone(), object)
            .map(|read| read.map_err(Answer))
            .boxed()
    }

    fn write(
        &self,
        _: &Wanted,
        write: Write,
        permit: Permit,
        wanted: CancellationToken,
    ) -> BoxFuture<'static, Written<Course>> {
        let network = self.network.clone();
        async move {
            let Write { object, id, body, etag } = write;
            let put = NetworkWrite::Put { body, etag };
            let until = Until::working(PATIENCE).while_wanted(wanted);
            let written = match network.write(type_of(object), &id, put, permit, &until).await {
                Err(error) => Written::Refused(Answer(error)),
                Ok(mut operation) => match operation.settle(&Until::working(MAKING)).await {
                    Err(error) => Written::Failed(Answer(error)),
                    Ok(()) => Written::Done(None),
                },
            };
            match &written {
                Written::Done(_) => info!(%id, "{} written for storage accounts", object.words()),
                Written::Refused(Answer(error)) | Written::Failed(Answer(error)) => {
                    warn!(%id, %error, "a write of {} has failed", object.words());
                }
            }
            written
        }
        .boxed()
    }

    fn pause_after(&self, failures: u32) -> Duration {
        self.regions.pause_after(failures)
    }
}
