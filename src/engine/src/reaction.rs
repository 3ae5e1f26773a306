//! What the object step does about a fault.

use std::time::Duration;

use lazuli_model::fault::Fault;

/// What follows a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Wait as long as Azure asks, then go on. Nothing was written.
    Pause(Option<Duration>),
    /// The object is not what was read, or another writer is at work: a short pause, then read and plan again.
    ReadAgain,
    /// The write may have happened, or may still arrive: read and plan again, and do not believe absence for a while.
    Lost,
    /// One member of the batch may be the cause: read again and search for it.
    Bisect,
    /// All members have the same problem, which only a change elsewhere cures: tell them, and try again after a pause.
    TellAll,
}

/// The reaction to a fault of a write.
pub fn to_write(fault: &Fault) -> Reaction {
    match fault {
        Fault::Throttled { retry_after } => Reaction::Pause(*retry_after),
        // A write of something that is gone finds that out by reading.
        Fault::Conflict | Fault::PreconditionFailed | Fault::BeingDetached | Fault::Busy | Fault::NotFound => {
            Reaction::ReadAgain
        }
        Fault::OutcomeUnknown | Fault::Deadline => Reaction::Lost,
        Fault::Invalid
        | Fault::InUse
        | Fault::Exhausted
        | Fault::DiskLimit
        | Fault::AccountFull
        | Fault::ZoneMismatch
        | Fault::AttachedElsewhere { .. }
        | Fault::LinkedForbidden
        | Fault::Denied
        | Fault::Unclear
        | Fault::OperationFailed => Reaction::Bisect,
        Fault::ScopeNotFound
        | Fault::Locked
        | Fault::Forbidden
        | Fault::Unauthenticated
        | Fault::Unsupported
        | Fault::Unavailable
        | Fault::Malformed => Reaction::TellAll,
    }
}

/// Whether something other than the refused want or its inputs may cure a fault of one member: another object that uses
/// the resource, a quota, a right, a policy, a failure of Azure's own. Such a member is tried again after a pause.
pub fn may_pass(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::InUse
            | Fault::Exhausted
            | Fault::AccountFull
            | Fault::AttachedElsewhere { .. }
            | Fault::LinkedForbidden
            | Fault::Denied
            | Fault::OperationFailed
    )
}

/// The reaction to a fault of a read other than [`Fault::NotFound`], which is an observation.
pub fn to_read(fault: &Fault) -> Reaction {
    match fault {
        Fault::Throttled { retry_after } => Reaction::Pause(*retry_after),
        _ => Reaction::TellAll,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_azure_asks() {
        let retry_after = Some(Duration::from_secs(7));
        assert_eq!(to_write(&Fault::Throttled { retry_after }), Reaction::Pause(retry_after));
        assert_eq!(to_read(&Fault::Throttled { retry_after }), Reaction::Pause(retry_after));
    }

    #[test]
    fn what_one_member_can_cause_is_bisected_and_what_the_identity_lacks_is_not() {
        for fault in [Fault::Invalid, Fault::OperationFailed, Fault::Exhausted, Fault::LinkedForbidden, Fault::Denied] {
            assert_eq!(to_write(&fault), Reaction::Bisect, "{fault:?}");
        }
        for fault in [Fault::Forbidden, Fault::Locked, Fault::Unauthenticated, Fault::Unavailable] {
            assert_eq!(to_write(&fault), Reaction::TellAll, "{fault:?}");
        }
        assert_eq!(to_write(&Fault::OutcomeUnknown), Reaction::Lost);
        assert_eq!(to_write(&Fault::PreconditionFailed), Reaction::ReadAgain);
    }
}
