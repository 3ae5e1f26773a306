//! Which calls the courses of accounts ([`lazuli_vhd::work::account`]) are.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use lazuli_azure::{Until, error::Verb, permits::Permit, storage::decode_account};
use lazuli_engine::single::{Action, Event, Refusal, Written};
use lazuli_journal::{Key as JournalKey, Note, Recorder, Word};
use lazuli_model::{ArmId, StorageAccount, fault::Effect, op::AccountSpec};
use lazuli_quota::permit::Priority;
use lazuli_reconcile::{
    metrics::Metrics,
    single::{Adapter, Failed, Singles},
};
use lazuli_vhd::{
    accounts::NewAccount,
    work::{
        account::{Account, Done, Failure, Request, Why},
        pool::Made,
    },
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    calls::{Calls, PATIENCE},
    error::CallError,
    notes,
};

type Course = Account<CallError>;

/// How long the creation of an account may take: it takes about 20 s.
const CREATION: Duration = Duration::from_secs(10 * 60);

/// The accounts that are being made. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Accounts {
    tasks: Singles<AccountCalls>,
    journal: Recorder,
}

/// An account that is made, and its region.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    id: ArmId,
    location: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.id.fmt(f)
    }
}

impl Accounts {
    pub(crate) fn new(calls: Calls, metrics: Metrics, journal: Recorder) -> Self {
        Self { tasks: Singles::new(AccountCalls(calls), metrics, journal.clone()), journal }
    }

    /// Makes an account of the cluster's resource group, if there is none of its name.
    pub(crate) async fn make(&self, new: NewAccount) -> Result<Made, CallError> {
        let calls = &self.tasks.adapter().0;
        let limits = calls.limits();
        let id = ArmId::storage_account(&calls.subscription, &calls.resource_group, &new.name)
            .map_err(|_| CallError::no_id())?;
        let key = Key { id, location: new.spec.location.clone() };
        let made = self.tasks.request(&key, Request { spec: new.spec, limits }, ()).await;
        self.journal.note(&JournalKey::storage_account(&key.id), Word::AwaitsNothing);
        Ok(match made.map_err(failed)? {
            Done::Made(account) => Made::New(account),
            Done::Exists(account) => Made::Exists(account),
            Done::Taken => Made::Taken,
        })
    }
}

fn failed(failed: Failed<Course>) -> CallError {
    let Failure { fault, effect, why, azure } = match failed {
        Failed::BrokenOff => return CallError::broken_off(),
        Failed::Refused(Refusal::Busy(_)) => return CallError::busy(),
        Failed::Refused(Refusal::Why(failure)) => failure,
    };
    let message = match why {
        Why::Creation => "it cannot be created",
        Why::Unreadable => "it cannot be read",
        Why::InProgress => "it has been in the making for too long; retry",
        Why::Unwanted => "no caller waits for it any more",
    };
    match (azure, effect) {
        (Some(CallError::Arm(error)), Effect::Possible) => CallError::Arm(error.after_a_change()),
        (Some(error), _) => error,
        (None, effect) => CallError::ours(fault, effect, message),
    }
}

/// What the calls of all accounts go through.
struct AccountCalls(Calls);

impl AccountCalls {
    async fn put(
        calls: Calls,
        key: Key,
        spec: AccountSpec,
        permit: Permit,
        wanted: CancellationToken,
    ) -> Written<Course> {
        let until = Until::working(PATIENCE).while_wanted(wanted);
        match calls.region(&key.location).create_account(&key.id, &spec, Some(permit), &until).await {
            Err(error) => Written::Refused(CallError::Arm(error)),
            Ok(mut operation) => match operation.wait(&Until::working(CREATION)).await {
                Err(error) => Written::Failed(CallError::Arm(error)),
                // What cannot be read of the answer is read of the account.
                Ok(shown) => Written::Done(shown.and_then(|raw| decode_account(&raw).ok()).map(Box::new)),
            },
        }
    }
}

impl Adapter for AccountCalls {
    type Key = Key;
    type Course = Course;
    type Permit = Permit;
    type Hold = ();

    const NAME: &'static str = "blob_account";

    fn env(&self) {}

    fn permit(&self, key: &Key, (): ()) -> BoxFuture<'static, Result<Permit, CallError>> {
        let (client, id) = (self.0.region(&key.location), key.id.clone());
        let until = Until::cancelled(CancellationToken::new());
        async move { client.permit(Verb::Put, &id, Priority::Create, &until).await.map_err(CallError::Arm) }.boxed()
    }

    fn read(&self, key: &Key, (): ()) -> BoxFuture<'static, Result<Box<StorageAccount>, CallError>> {
        let (client, id) = (self.0.region(&key.location), key.id.clone());
        async move {
            let read = client.get_account(&id, Priority::Create, &Until::working(PATIENCE)).await;
            read.map(|read| Box::new(read.model)).map_err(CallError::Arm)
        }
        .boxed()
    }

    fn write(
        &self,
        key: &Key,
        spec: AccountSpec,
        permit: Permit,
        wanted: CancellationToken,
    ) -> BoxFuture<'static, Written<Course>> {
        let (calls, key) = (self.0.clone(), key.clone());
        async move {
            let account = key.to_string();
            let written = Self::put(calls, key, spec, permit, wanted).await;
            match &written {
                Written::Done(_) => info!(account, "storage account created"),
                Written::Refused(error) | Written::Failed(error) => {
                    warn!(account, %error, "the creation of the storage account has failed");
                }
            }
            written
        }
        .boxed()
    }

    fn pause_after(&self, failures: u32) -> Duration {
        self.0.pause_after(failures)
    }

    fn journal_key(key: &Key) -> Option<JournalKey<'_>> {
        Some(JournalKey::storage_account(&key.id))
    }

    fn note_of_event(event: &Event<Course>) -> Option<Note<'_>> {
        notes::of_account_event(event)
    }

    fn note_of_action(action: &Action<Course>) -> Option<Note<'_>> {
        notes::of_account_action(action)
    }
}
