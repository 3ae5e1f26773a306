//! Why an operation on a blob disk failed.

use std::{fmt, sync::Arc};

use lazuli_azure::{blob::BlobError, error::ArmError};
use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    BlobUri,
    blob_uri::BlobUriError,
    fault::{self, Code, Effect, Fault, Rpc},
    parameter::ParameterError,
};
use lazuli_vhd::{
    accounts::Refusal,
    class::Place,
    life::Failure,
    work::pool::{Scope, Unplaced, What},
};

/// A call to Azure that failed.
#[derive(Debug, Clone)]
pub enum CallError {
    /// The resource manager's answer.
    Arm(ArmError),
    /// The blob service's.
    Blob(BlobError),
    /// None of Azure's.
    Ours {
        /// What a caller may do about it.
        fault: Fault,
        /// Whether a write may be in progress.
        effect: Effect,
        /// For people.
        message: &'static str,
    },
}

impl CallError {
    /// Names that make no id of Azure's.
    pub(crate) fn no_id() -> Self {
        let message = "the resource group of the cluster, or the account, has no name that Azure takes";
        Self::ours(Fault::Invalid, Effect::None, message)
    }

    /// Another request is being served.
    pub(crate) fn busy() -> Self {
        Self::ours(Fault::Busy, Effect::None, "it is being made in another way")
    }

    /// A bug of this program has broken the work off.
    pub(crate) fn broken_off() -> Self {
        Self::ours(Fault::OutcomeUnknown, Effect::Possible, "the work on it was broken off")
    }

    pub(crate) fn ours(fault: Fault, effect: Effect, message: &'static str) -> Self {
        Self::Ours { fault, effect, message }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arm(error) => error.fmt(f),
            Self::Blob(error) => error.fmt(f),
            Self::Ours { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Arm(error) => error.source(),
            Self::Blob(error) => error.source(),
            Self::Ours { .. } => None,
        }
    }
}

impl AzureFailure for CallError {
    fn fault(&self) -> &Fault {
        match self {
            Self::Arm(error) => &error.fault,
            Self::Blob(error) => error.fault(),
            Self::Ours { fault, .. } => fault,
        }
    }

    fn effect(&self) -> Effect {
        match self {
            Self::Arm(error) => error.effect,
            // What it may have done, the step says.
            Self::Blob(_) => Effect::None,
            Self::Ours { effect, .. } => *effect,
        }
    }

    fn code(&self) -> &str {
        match self {
            Self::Arm(error) => &error.code,
            Self::Blob(error) => error.code(),
            Self::Ours { .. } => "",
        }
    }
}

/// A failed operation: what a caller may do about it, and a sentence for the reader. Cheap to clone, because all
/// callers that wait for one write get the same failure.
#[derive(Debug, Clone)]
pub struct BlobDiskError {
    inner: Arc<Inner>,
    /// Whether something may be there of the disk of this caller, whatever the failed call has done.
    leaves: Effect,
}

#[derive(Debug)]
struct Inner {
    message: String,
    why: Why,
    source: Option<CallError>,
}

#[derive(Debug)]
enum Why {
    /// The step of the disk says it.
    Life(Failure<()>),
    /// The fault says it.
    Fault(Fault, Effect),
    /// What was asked says it, whatever Azure holds.
    Code(Fault, Code),
}

impl BlobDiskError {
    fn new(message: impl Into<String>, why: Why, source: Option<CallError>) -> Self {
        Self { inner: Arc::new(Inner { message: message.into(), why, source }), leaves: Effect::None }
    }

    /// The same failure of a creation for which an account was found or made. That of one disk goes with the disk alone: a
    /// final code would leave it to nobody.
    pub(crate) fn in_account_of(self, place: &Place) -> Self {
        match place {
            Place::Dedicated => Self { leaves: Effect::Possible, ..self },
            Place::Shared | Place::Account(_) => self,
        }
    }

    /// The step of a disk has ended so.
    pub(crate) fn life(uri: &BlobUri, failure: Failure<CallError>) -> Self {
        let Failure { why, effect, azure } = failure;
        Self::new(format!("the blob disk {uri}: {why}"), Why::Life(Failure { why, effect, azure: None }), azure)
    }

    /// Another request to the disk is being served.
    pub(crate) fn busy(uri: &BlobUri, running: &str) -> Self {
        let message = format!("the blob disk {uri} is busy: {running} is in progress");
        Self::new(message, Why::Fault(Fault::Busy, Effect::None), None)
    }

    /// A bug of this program has broken the work off.
    pub(crate) fn broken_off(what: &impl fmt::Display) -> Self {
        let message = format!("the work on {what} was broken off");
        Self::new(message, Why::Fault(Fault::OutcomeUnknown, Effect::Possible), None)
    }

    /// A creation has no account. Where Azure does not show what earlier tries have left, they may have left the disk, or
    /// the account that is the disk's own.
    pub(crate) fn unplaced_creation(unplaced: Unplaced<CallError>, place: &Place) -> Self {
        let leaves = may_be_begun(&unplaced, place);
        Self { leaves, ..Self::unplaced(unplaced) }
    }

    /// There is no account for the disk.
    pub(crate) fn unplaced(unplaced: Unplaced<CallError>) -> Self {
        let fault = unplaced.fault();
        let (message, source) = match unplaced {
            Unplaced::Refused(refusal, error) => (refusal.to_string(), error),
            Unplaced::NoAccount(name) => (format!("there is no storage account {name} in the subscription"), None),
            Unplaced::Unsettled => {
                ("what Azure shows of the storage accounts changes with every look; retry".to_owned(), None)
            }
            Unplaced::Azure(what, error) => {
                let message = match what {
                    What::List(Scope::Group) => {
                        "the storage accounts of the cluster's resource group cannot be listed".to_owned()
                    }
                    What::List(Scope::Subscription) => {
                        "the storage accounts of the subscription cannot be listed".to_owned()
                    }
                    What::Blobs(account) => format!("the blobs of the storage account {account} cannot be listed"),
                    What::Creation(account) => format!("the storage account {account} cannot be created"),
                    What::Account(account) => format!("{account} cannot be read"),
                };
                (message, Some(error))
            }
        };
        let effect = source.as_ref().map_or(Effect::None, AzureFailure::effect);
        Self::new(message, Why::Fault(fault, effect), source)
    }

    /// The blobs of an account cannot be listed.
    pub(crate) fn list(account: &str, container: &str, error: BlobError) -> Self {
        let message = format!("the container {container} of the storage account {account} cannot be listed");
        let fault = error.fault().clone();
        Self::new(message, Why::Fault(fault, Effect::None), Some(CallError::Blob(error)))
    }

    /// The footer of a disk cannot be read.
    pub(crate) fn footer(uri: &BlobUri, error: CallError) -> Self {
        let (fault, effect) = (error.fault().clone(), error.effect());
        Self::new(format!("the footer of the blob disk {uri} cannot be read"), Why::Fault(fault, effect), Some(error))
    }

    /// What is asked cannot be done, whatever Azure holds.
    pub(crate) fn parameter(error: &ParameterError) -> Self {
        Self::new(error.to_string(), Why::Code(Fault::Invalid, error.code()), None)
    }

    /// An address that is none of this cloud's.
    pub(crate) fn address(error: &BlobUriError) -> Self {
        Self::new(error.to_string(), Why::Fault(Fault::Invalid, Effect::None), None)
    }

    /// The gRPC code.
    pub fn code(&self, rpc: Rpc) -> Code {
        match &self.inner.why {
            Why::Life(failure) => Failure { effect: self.effect(), ..failure.clone() }.code(rpc),
            Why::Fault(fault, _) => fault::code(rpc, fault, self.effect()),
            Why::Code(_, code) => *code,
        }
    }

    /// What a caller may do about it.
    pub fn fault(&self) -> Fault {
        match &self.inner.why {
            Why::Life(failure) => failure.fault(),
            Why::Fault(fault, _) | Why::Code(fault, _) => fault.clone(),
        }
    }

    /// What the step of the disk says, where it has ended so.
    pub fn why(&self) -> Option<&lazuli_vhd::life::Why> {
        match &self.inner.why {
            Why::Life(failure) => Some(&failure.why),
            Why::Fault(..) | Why::Code(..) => None,
        }
    }

    /// Azure's error code; empty when Azure gave none.
    pub fn azure_code(&self) -> &str {
        self.inner.source.as_ref().map_or("", |source| source.code())
    }

    /// The action of Azure's role-based access control that the failed call needs.
    pub fn action(&self) -> Option<String> {
        let error = self.by_manager()?;
        lazuli_model::rbac::action(error.verb.as_str(), &error.resource)
    }

    /// The answer of the resource manager, where one stands behind the failure: also that to the request for an account's
    /// keys.
    pub fn by_manager(&self) -> Option<&ArmError> {
        match self.inner.source.as_ref()? {
            CallError::Arm(error) => Some(error),
            CallError::Blob(error) => error.by_manager(),
            CallError::Ours { .. } => None,
        }
    }

    /// Whether a write may be in progress, or something of the disk may be there.
    pub fn effect(&self) -> Effect {
        match &self.inner.why {
            Why::Code(..) => Effect::None,
            _ if self.leaves == Effect::Possible => Effect::Possible,
            Why::Life(failure) => failure.effect,
            Why::Fault(_, effect) => *effect,
        }
    }
}

/// Whether an earlier try may have begun the disk that gets no account now.
fn may_be_begun<E>(unplaced: &Unplaced<E>, place: &Place) -> Effect {
    match unplaced {
        // What was not read may show it.
        Unplaced::Azure(What::List(_) | What::Blobs(_) | What::Account(_), _)
        | Unplaced::Refused(Refusal::Unreadable(_), _)
        | Unplaced::Unsettled => Effect::Possible,
        // It is there.
        Unplaced::Refused(Refusal::Unfit { .. }, _) if *place == Place::Dedicated => Effect::Possible,
        // What was read shows nothing. The failure itself says what the creation of an account has left.
        Unplaced::Refused(..) | Unplaced::NoAccount(_) | Unplaced::Azure(What::Creation(_), _) => Effect::None,
    }
}

impl fmt::Display for BlobDiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl std::error::Error for BlobDiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_ref().map(|source| source as _)
    }
}
