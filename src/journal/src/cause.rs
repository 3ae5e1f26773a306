//! Why something failed or was refused: a fault of Azure, or a reason of a planner.

use lazuli_model::fault::Fault;

macro_rules! faults {
    ($($name:ident $text:literal)*) => {
        /// A [`Fault`] without what Azure has put into it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum FaultKind {
            $(#[doc = $text] $name,)*
        }

        impl FaultKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What it means.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }

        impl From<&Fault> for FaultKind {
            fn from(fault: &Fault) -> Self {
                match fault { $(Fault::$name { .. } => Self::$name,)* }
            }
        }
    };
}

faults! {
    NotFound "it does not exist"
    ScopeNotFound "something around it does not exist, such as its resource group"
    Conflict "Azure is busy with it, or another write overtook this one"
    PreconditionFailed "it is not as it was read: another writer has changed it"
    Throttled "Azure gets too many requests"
    Exhausted "a quota is used up, or the region, zone or size has no capacity"
    DiskLimit "the VM takes no more data disks"
    AccountFull "the storage account takes no more shares, or none of this size"
    ZoneMismatch "the disk is in a zone, and the VM is not in it"
    AttachedElsewhere "another VM has the disk"
    BeingDetached "the disk is being detached"
    InUse "it is in use"
    Locked "a management lock forbids it"
    Invalid "Azure says that the request is wrong"
    Forbidden "the identity may not do this"
    LinkedForbidden "the identity lacks a right on a resource that the request names"
    Denied "Azure denies this very request, such as by a policy"
    Unauthenticated "Azure takes no token of this identity"
    Unsupported "this Azure does not know the action or the version of its API"
    Unclear "Azure's code says too little"
    OperationFailed "Azure accepted the write, and its operation failed"
    Unavailable "Azure cannot be reached, or had a failure of its own"
    OutcomeUnknown "the answer was lost: the write may have happened"
    Deadline "the time is over; a write goes on"
    Busy "another request for the same is under way"
    Malformed "the answer cannot be understood"
}

/// A cause in a byte: none, a kind of fault, or one of the reasons that the journal has met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cause(u8);

/// The number of the first reason; the numbers below it are those of faults, after that of none.
const FIRST_REASON: u8 = FaultKind::ALL.len() as u8 + 1;
/// How many reasons there is room for.
pub(crate) const REASONS: usize = u8::MAX as usize - FIRST_REASON as usize + 1;

impl Cause {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn fault(kind: FaultKind) -> Self {
        Self(kind as u8 + 1)
    }

    /// The reason of this number. One without room is none: the word says that there was one.
    pub(crate) fn reason(number: usize) -> Self {
        u8::try_from(number).ok().and_then(|number| FIRST_REASON.checked_add(number)).map_or(Self::NONE, Self)
    }

    /// The text, from the reasons that were met.
    pub(crate) fn text(self, reasons: &[&'static str]) -> Option<&'static str> {
        let number = usize::from(self.0.checked_sub(1)?);
        match FaultKind::ALL.get(number) {
            Some(kind) => Some(kind.text()),
            None => reasons.get(number - FaultKind::ALL.len()).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_holds_each_fault_and_each_reason() {
        let reasons: Vec<&'static str> = vec!["SharedAddress"; REASONS];
        assert_eq!(Cause::NONE.text(&reasons), None);
        for kind in FaultKind::ALL {
            assert_eq!(Cause::fault(*kind).text(&reasons), Some(kind.text()));
        }
        for number in [0, REASONS - 1] {
            assert_eq!(Cause::reason(number).text(&reasons), Some("SharedAddress"), "{number}");
        }
        assert_eq!(Cause::reason(REASONS), Cause::NONE);
    }

    #[test]
    fn a_fault_loses_what_azure_has_put_into_it() {
        let throttled = Fault::Throttled { retry_after: Some(std::time::Duration::from_secs(7)) };
        assert_eq!(FaultKind::from(&throttled), FaultKind::Throttled);
        assert_eq!(FaultKind::from(&Fault::AttachedElsewhere { holder: None }), FaultKind::AttachedElsewhere);
    }
}
