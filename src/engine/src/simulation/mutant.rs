//! Laws that are broken on purpose.

/// A law that is broken on purpose, to see that the oracle notices. The steps know nothing of it: it is broken in a
/// planner, in a Service's wants, or in the wiring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mutant {
    #[default]
    None,
    /// A planner removes parts of Services it does not know.
    AbsenceDeletes,
    /// A planner writes its own body instead of edits of the one that was read.
    OverwritesForeign,
    /// A pool loses all members that are no nodes, and the last.
    EmptiesPool,
    /// What a spec does not ask for goes before what it asks for exists.
    BreaksBeforeMake,
    /// A security rule outlives its address.
    ReleasesEarly,
    /// The security group is trimmed before what is new is served.
    ShutsEarly,
    /// The security group is not trimmed.
    LeavesAdmission,
    /// A public IP is not deleted.
    LeavesAddress,
    /// The load-balancing rule exists before the rule that denies.
    DenyLate,
    /// The status is set before the objects are done.
    StatusEarly,
    /// Writes carry no ETag.
    NoEtag,
    /// A write starts without enough lease.
    NoFence,
    /// A new leader believes absence at once.
    TrustsAtOnce,
    /// A lost answer counts as a conflict.
    TrustsAfterLoss,
    /// A 429 without its Retry-After.
    ForgetsRetryAfter,
    /// What is wanted while a write is in flight is dropped.
    DropsWants,
    /// A refusal is forgotten at once.
    RetriesRefusals,
    /// The finalizer goes with the deletion.
    FinalizerEarly,
    /// A Service is gone before what it may own is found.
    ForgetsUnread,
    /// A private link service outlives its Service.
    LeavesLink,
    /// A write that removes does not wait for the operator.
    RemovesUnaccepted,
    /// A want that Azure refused is not tried again when what it refers to is made again.
    ForgetsReferences,
    /// A public IP that no frontend has counts as one that cannot be deleted.
    TrustsUnused,
    /// What a list lacks counts as what a single read does not find.
    TrustsLists,
    /// A new load balancer is written before the old one has given up the address.
    JoinsBeforeLeaving,
    /// A Service does not learn that an object is written for it.
    UnheardWrites,
}

impl Mutant {
    pub(super) const ALL: [Self; 26] = [
        Self::AbsenceDeletes,
        Self::OverwritesForeign,
        Self::EmptiesPool,
        Self::BreaksBeforeMake,
        Self::ReleasesEarly,
        Self::ShutsEarly,
        Self::LeavesAdmission,
        Self::LeavesAddress,
        Self::DenyLate,
        Self::StatusEarly,
        Self::NoEtag,
        Self::NoFence,
        Self::TrustsAtOnce,
        Self::TrustsAfterLoss,
        Self::ForgetsRetryAfter,
        Self::DropsWants,
        Self::RetriesRefusals,
        Self::FinalizerEarly,
        Self::ForgetsUnread,
        Self::LeavesLink,
        Self::RemovesUnaccepted,
        Self::ForgetsReferences,
        Self::TrustsUnused,
        Self::TrustsLists,
        Self::JoinsBeforeLeaving,
        Self::UnheardWrites,
    ];
}
