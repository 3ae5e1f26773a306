//! The courses of shares, of accounts and of their network on [`lazuli_engine::single`], and the step of the accounts of a resource group.
//!
//! Nothing of Microsoft.Storage has an ETag. So a write rests on a read behind its permit, where it needs one at all: the
//! share of a generated name is PUT and deleted unread, because nobody else makes one of that name; it is read first where
//! its PersistentVolume exists, because it may have grown since.

pub mod account;
pub mod network;
pub mod pool;
pub mod share;

use lazuli_engine::{
    attempts::{self, Attempts, Limits},
    single::{AzureFailure, Rest},
};
use lazuli_model::fault::{Effect, Fault};

/// The kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// PUT
    Put,
    /// PATCH
    Patch,
    /// DELETE
    Delete,
}

/// Why a request failed: `W` is what failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure<W, E> {
    /// What a caller may do about it.
    pub fault: Fault,
    /// Whether a write may be in progress, or has left something.
    pub effect: Effect,
    /// What failed.
    pub why: W,
    /// Azure's answer, where one stands behind it.
    pub azure: Option<E>,
}

impl<W, E: AzureFailure> Failure<W, E> {
    fn new(fault: Fault, tried: &Attempts, why: W) -> Self {
        Self { fault, effect: tried.effect(), why, azure: None }
    }

    /// Azure's answer says it. Azure may also have acted on an earlier try of the request.
    fn azure(why: W, error: E, tried: &Attempts) -> Self {
        let effect = if error.effect() == Effect::Possible { Effect::Possible } else { tried.effect() };
        Self { fault: error.fault().clone(), effect, why, azure: Some(error) }
    }
}

/// The rest after a write that was not accepted; `None` where its failure is the answer.
fn rest_after<E: AzureFailure>(error: &E, attempts: &mut Attempts, limits: Limits) -> Option<Rest> {
    match attempts.failed(error.fault(), error.effect(), limits) {
        attempts::Next::Pause(pause) => Some(Rest::For(pause)),
        attempts::Next::BackOff { failures } => Some(Rest::BackOff { failures }),
        attempts::Next::Stop => None,
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
