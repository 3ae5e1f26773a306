//! Which calls the courses of accounts ([`lazuli_shares::work::account`]) are.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use lazuli_azure::{
    Until,
    error::ArmError,
    permits::Permit,
    storage::{StorageRead, decode_account},
};
use lazuli_engine::single::{Refusal, Written};
use lazuli_journal::Recorder;
use lazuli_model::{
    ArmId, FileService,
    fault::Fault,
    op::{AccountWrite, FileServiceSpec},
};
use lazuli_quota::permit::Priority;
use lazuli_reconcile::{
    metrics::Metrics,
    single::{Adapter, Failed, Singles},
};
use lazuli_shares::{
    account::Candidate,
    work::{
        Verb,
        account::{Account, Done, Failure, Op, Query, Request, Seen, Wanted, Why},
        pool::Made,
    },
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    ShareError,
    error::{Answer, broken_off, of_step},
    network::Networks,
    regions::{CREATION, PATIENCE, Regions},
    share::verb,
};

type Course = Account<Answer, StorageRead<FileService>>;
type AccountOp = Op<StorageRead<FileService>>;

/// The accounts that are being made or changed. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Accounts {
    tasks: Singles<AccountCalls>,
    networks: Networks,
}

impl Accounts {
    pub(crate) fn new(regions: Regions, networks: Networks, metrics: Metrics, journal: Recorder) -> Self {
        Self { tasks: Singles::new(AccountCalls(regions), metrics, journal), networks }
    }

    async fn request(&self, account: &ArmId, wanted: Wanted) -> Result<Done, ShareError> {
        let request = Request { wanted, limits: self.tasks.adapter().0.limits() };
        self.tasks.request(account, request, ()).await.map_err(|failed| account_error(failed, account))
    }

    /// Makes an account, if there is none of its name, and before it what it needs in the network.
    pub(crate) async fn make(&self, candidate: Candidate) -> Result<Made, ShareError> {
        let Candidate { account, spec, file_service, network } = candidate;
        self.tasks.adapter().0.learn_location(&account, &spec.location, Some(spec.sku));
        self.networks.forget(&account);
        self.networks.prepare(network).await?;
        match self.request(&account, Wanted::Made { spec: Box::new(spec), file_service }).await? {
            Done::Made(account) | Done::Exists(account) => Ok(Made::There(account)),
            Done::Taken => Ok(Made::Taken),
            Done::AsAsked => unreachable!("an account that is to be made is made, exists, or is another's"),
        }
    }

    /// Changes the file service of an account.
    pub(crate) async fn finish(&self, account: &ArmId, spec: FileServiceSpec) -> Result<(), ShareError> {
        self.request(account, Wanted::Finished(spec)).await.map(drop)
    }

    /// Lets an account be matched again after a share of it was deleted.
    pub(crate) async fn match_again(&self, account: &ArmId) {
        if let Err(error) = self.request(account, Wanted::Matched).await {
            warn!(%account, %error, "the tag that keeps new shares out of the account stays");
        }
    }
}

fn account_error(failed: Failed<Course>, account: &ArmId) -> ShareError {
    let Failure { fault, effect, why, azure } = match failed {
        Failed::BrokenOff => return broken_off(account),
        Failed::Refused(Refusal::Busy(_)) => {
            return ShareError::new(Fault::Busy, format!("the account {account} is being made or changed"));
        }
        Failed::Refused(Refusal::Why(failure)) => failure,
    };
    let message = match why {
        Why::Creation => format!("the storage account {account} cannot be created"),
        Why::FileService => format!("the file service of {account} cannot be changed"),
        Why::Tags => format!("the tags of {account} cannot be changed"),
        Why::Unreadable => format!("{account} cannot be read"),
        Why::InProgress => format!("{account} has been in the making for too long; retry"),
        Why::Unwanted => format!("no caller waits for the work on {account} any more"),
    };
    of_step(fault, effect, azure, message)
}

/// What the calls of all accounts go through.
struct AccountCalls(Regions);

impl AccountCalls {
    async fn write(
        regions: Regions,
        account: ArmId,
        op: AccountOp,
        permit: Permit,
        wanted: CancellationToken,
    ) -> Written<Course> {
        let client = regions.of(&account);
        let until = Until::working(PATIENCE).while_wanted(wanted);
        let permit = Some(permit);
        let refused = |error: ArmError| Written::Refused(Answer(error));
        match op {
            Op::Put(spec) => match client.create_account(&account, &spec, permit, &until).await {
                Err(error) => refused(error),
                Ok(mut operation) => match operation.wait(&Until::working(CREATION)).await {
                    Err(error) => Written::Failed(Answer(error)),
                    // What cannot be read of the answer is read of the account.
                    Ok(shown) => Written::Done(
                        shown.and_then(|raw| decode_account(&raw).ok()).map(|account| Seen::Account(Box::new(account))),
                    ),
                },
            },
            Op::FileService(spec, read) => {
                let changed = client.change_file_service(&account, &read, &spec, permit, &until).await;
                changed.map_or_else(refused, |_| Written::Done(None))
            }
            Op::Tags(AccountWrite::Tags { tags, .. }) => {
                client.set_tags(&account, &tags, permit, &until).await.map_or_else(refused, |()| Written::Done(None))
            }
            Op::Tags(_) => Written::Done(None),
        }
    }
}

impl Adapter for AccountCalls {
    type Key = ArmId;
    type Course = Course;
    type Permit = Permit;
    type Hold = ();

    const NAME: &'static str = "account";

    fn env(&self) {}

    fn permit(&self, account: &ArmId, of: Verb) -> BoxFuture<'static, Result<Permit, Answer>> {
        let (client, account) = (self.0.of(account), account.clone());
        let until = Until::cancelled(CancellationToken::new());
        async move { client.permit(verb(of), &account, Priority::Create, &until).await.map_err(Answer) }.boxed()
    }

    fn read(
        &self,
        account: &ArmId,
        query: Query,
    ) -> BoxFuture<'static, Result<Seen<StorageRead<FileService>>, Answer>> {
        let (regions, account) = (self.0.clone(), account.clone());
        async move {
            match query {
                Query::Account => {
                    let read = regions.read_account(&account, Priority::Create).await;
                    read.map(|account| Seen::Account(Box::new(account)))
                }
                Query::FileService => {
                    let until = Until::working(PATIENCE);
                    let read = regions.of(&account).get_file_service(&account, Priority::Create, &until).await;
                    read.map(Seen::FileService)
                }
            }
            .map_err(Answer)
        }
        .boxed()
    }

    fn write(
        &self,
        account: &ArmId,
        op: AccountOp,
        permit: Permit,
        wanted: CancellationToken,
    ) -> BoxFuture<'static, Written<Course>> {
        let (regions, account) = (self.0.clone(), account.clone());
        async move {
            let is_put = matches!(op, Op::Put(_));
            let written = Self::write(regions, account.clone(), op, permit, wanted).await;
            match &written {
                Written::Done(_) if is_put => info!(%account, "storage account created"),
                Written::Done(_) => info!(%account, "storage account changed"),
                Written::Refused(Answer(error)) | Written::Failed(Answer(error)) => {
                    warn!(%account, %error, "a write of the storage account has failed");
                }
            }
            written
        }
        .boxed()
    }

    fn pause_after(&self, failures: u32) -> Duration {
        self.0.pause_after(failures)
    }
}
