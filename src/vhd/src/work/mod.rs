//! The courses of blob disks and of accounts on [`lazuli_engine::single`], and the step of the accounts of a cluster.
//!
//! | module | is the step of |
//! |---|---|
//! | [`pool`] | the accounts: in which one a disk is made, and which one an address names |
//! | [`account`] | an account that is made |
//! | [`disk`] | a disk that is made, grows or is deleted |

pub mod account;
pub mod disk;
pub mod pool;

use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    ArmId, StorageAccount, StorageSku,
    fault::{Effect, Fault},
};

use crate::life::{Answer, Problem};

/// The account of a disk: what requests to it need to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// Its id.
    pub id: ArmId,
    /// Its region.
    pub location: String,
    /// Its SKU.
    pub sku: Option<StorageSku>,
}

impl Home {
    /// The account.
    pub fn of(account: &StorageAccount) -> Self {
        Self { id: account.id.clone(), location: account.location.clone(), sku: account.sku }
    }

    /// Whether it has blobs alone: accounts of premium page blobs have no files, tables and queues, and Azure refuses
    /// their lists (source: Microsoft's table of the services of each kind of account).
    pub fn has_blobs_alone(&self) -> bool {
        self.sku == Some(StorageSku::PremiumLrs)
    }
}

/// Azure has not done a call. `E` is its error as the call gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused<E> {
    /// Why.
    pub problem: Problem,
    /// Azure's error.
    pub error: E,
    fault: Fault,
}

impl<E> Refused<E> {
    /// A call that was not done.
    pub fn new(problem: Problem, error: E) -> Self {
        Self { fault: problem.fault(), problem, error }
    }

    /// A call to the resource manager about an account that failed.
    pub fn by_manager(error: E) -> Self
    where
        E: AzureFailure,
    {
        let problem = match error.fault() {
            // What is missing around it says nothing of the account.
            Fault::NotFound => Problem::NoAccount,
            _ if error.effect() == Effect::Possible => Problem::Lost,
            fault => Problem::Other(fault.clone()),
        };
        Self::new(problem, error)
    }

    /// The same as an answer.
    pub fn answer(self) -> Answer<E> {
        Answer::Refused(self.problem, self.error)
    }
}

impl<E: std::fmt::Debug + Clone> AzureFailure for Refused<E> {
    fn fault(&self) -> &Fault {
        &self.fault
    }

    fn effect(&self) -> Effect {
        if self.problem == Problem::Lost { Effect::Possible } else { Effect::None }
    }

    fn code(&self) -> &str {
        ""
    }
}

/// An answer as a result.
///
/// # Errors
/// When the call was not done.
pub fn result<E>(answer: Answer<E>) -> Result<Answer<E>, Refused<E>> {
    match answer {
        Answer::Refused(problem, error) => Err(Refused::new(problem, error)),
        answer => Ok(answer),
    }
}
