//! Why a request failed, as a value, and its code.

use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    ArmId,
    fault::{self, Code, Effect, Fault, Rpc},
};
use lazuli_volume::{
    ParameterError,
    snapshot::{SnapshotLimit, SnapshotRefusal},
};

/// A failed request.
#[derive(Debug, Clone)]
pub struct Failure<E, W> {
    /// What failed.
    pub cause: Box<Cause<E, W>>,
    /// Whether something of the request may be there or in the making.
    pub effect: Effect,
}

/// What failed.
#[derive(Debug, Clone)]
pub enum Cause<E, W> {
    /// A value of the request cannot be used.
    Parameter(ParameterError),
    /// What is there does not allow it.
    Refused(SnapshotRefusal),
    /// One of Azure's limits is reached.
    Limit(SnapshotLimit),
    /// A read has failed.
    Azure(Why, E),
    /// The work on one snapshot has failed.
    Work(W),
    /// Azure makes no snapshot in the region that the class names.
    Region(ParameterError, W),
}

/// What the read was of that has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The disk of which the snapshot is.
    #[error("{0} cannot be read, of which a snapshot is asked for")]
    Source(ArmId),
    /// A snapshot.
    #[error("the snapshot {0} cannot be read")]
    Snapshot(ArmId),
    /// The snapshots of a subscription.
    #[error("the snapshots of the subscription {0} cannot be listed")]
    List(String),
}

impl<E, W> Failure<E, W> {
    pub(super) fn new(cause: Cause<E, W>, effect: Effect) -> Self {
        Self { cause: Box::new(cause), effect }
    }
}

impl<E: AzureFailure, W: AzureFailure> Failure<E, W> {
    /// What a caller may do about it; `None` where the reason is no answer of Azure's.
    pub fn fault(&self) -> Option<&Fault> {
        match &*self.cause {
            Cause::Azure(_, error) => Some(error.fault()),
            Cause::Work(error) | Cause::Region(_, error) => Some(error.fault()),
            Cause::Parameter(_) | Cause::Refused(_) | Cause::Limit(_) => None,
        }
    }

    /// The gRPC code. external-snapshotter forgets a snapshot after a final one, so none is given while something of the
    /// request may be there.
    pub fn code(&self, rpc: Rpc) -> Code {
        let code = match &*self.cause {
            Cause::Parameter(error) | Cause::Region(error, _) => error.code(),
            Cause::Refused(refusal) => refusal.code(),
            Cause::Limit(limit) => limit.code(),
            Cause::Azure(_, error) => fault::code(rpc, error.fault(), self.effect),
            Cause::Work(error) => fault::code(rpc, error.fault(), self.effect),
        };
        match (rpc, self.effect) {
            (Rpc::CreateSnapshot, Effect::Possible) if !code.may_be_in_progress() => Code::Unavailable,
            _ => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone)]
    struct Failed(Fault, Effect);

    impl AzureFailure for Failed {
        fn fault(&self) -> &Fault {
            &self.0
        }

        fn effect(&self) -> Effect {
            self.1
        }

        fn code(&self) -> &str {
            ""
        }
    }

    impl std::fmt::Display for Failed {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{:?}", self.0)
        }
    }

    #[test]
    fn no_code_forgets_a_snapshot_that_may_be_there_and_a_deletion_tells_its_own() {
        let snapshot = ArmId::snapshot("s", "g", "snapshot-1").unwrap();
        let faults = [
            (Fault::Forbidden, Code::PermissionDenied),
            (Fault::Invalid, Code::InvalidArgument),
            (Fault::ScopeNotFound, Code::InvalidArgument),
            (Fault::NotFound, Code::NotFound),
            (Fault::Locked, Code::FailedPrecondition),
            (Fault::Unauthenticated, Code::Unauthenticated),
            (Fault::Exhausted, Code::ResourceExhausted),
            (Fault::Busy, Code::Aborted),
            (Fault::Throttled { retry_after: None }, Code::Unavailable),
            (Fault::Deadline, Code::DeadlineExceeded),
        ];
        for (fault, code) in faults {
            for effect in [Effect::None, Effect::Possible] {
                let failed = || Failed(fault.clone(), Effect::None);
                let read: Failure<_, Failed> =
                    Failure::new(Cause::Azure(Why::Snapshot(snapshot.clone()), failed()), effect);
                let work: Failure<Failed, _> = Failure::new(Cause::Work(failed()), effect);
                let codes = [read.code(Rpc::CreateSnapshot), work.code(Rpc::CreateSnapshot)];
                let is_kept = effect == Effect::None || code.may_be_in_progress();
                assert_eq!(codes, [if is_kept { code } else { Code::Unavailable }; 2], "{fault:?} {effect:?}");
            }
        }
        let refused: Failure<Failed, Failed> = Failure::new(
            Cause::Parameter(ParameterError::invalid("incremental", "maybe", "allowed is true")),
            Effect::Possible,
        );
        assert_eq!(refused.code(Rpc::CreateSnapshot), Code::Unavailable);
        assert_eq!(refused.fault(), None);
        let gone: Failure<Failed, _> = Failure::new(Cause::Work(Failed(Fault::Locked, Effect::None)), Effect::None);
        assert_eq!(gone.code(Rpc::DeleteSnapshot), Code::FailedPrecondition);
    }
}
