//! What the steps of requests share: how they take the answers to their calls.

use std::fmt;

use lazuli_engine::single::AzureFailure;
use lazuli_model::fault::Fault;

/// Azure's code for a resource group that does not exist. A group is deleted with everything in it.
pub(crate) const NO_GROUP: &str = "ResourceGroupNotFound";

/// The answer to a call that was not made. The caller of the steps gives each call's answer, so it never comes.
pub(crate) fn unexpected(at: &dyn fmt::Debug, event: &dyn fmt::Debug) -> ! {
    unreachable!("{at:?} waits for no {event:?}")
}

/// A read of a thing that may not exist: a missing one is no failure.
pub(crate) fn found<T, E: AzureFailure>(read: Result<T, E>) -> Result<Option<T>, E> {
    match read {
        Ok(model) => Ok(Some(model)),
        Err(error) if *error.fault() == Fault::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same, where a resource group that does not exist has none either.
pub(crate) fn found_beside<T, E: AzureFailure>(read: Result<T, E>) -> Result<Option<T>, E> {
    match found(read) {
        Err(error) if *error.fault() == Fault::ScopeNotFound && error.code() == NO_GROUP => Ok(None),
        found => found,
    }
}
