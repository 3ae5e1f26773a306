//! Laws that are broken on purpose.

/// A law that is broken on purpose, to see that the oracle notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mutant {
    #[default]
    None,
    /// Writes carry no ETag.
    NoEtag,
    /// A write begins from an empty body.
    OverwritesForeign,
    /// A route of a Node that exists goes with those of others.
    RemovesTooMuch,
    /// A subnet is taken from another route table.
    StealsSubnet,
    /// The taint goes before the condition is true.
    UntaintsEarly,
    /// A route that is still to be written counts as written.
    AvailableEarly,
    /// A machine that may not be read counts as gone.
    TrustsRefusals,
    /// A machine whose resource group is not found counts as gone.
    TrustsMissingGroups,
    /// A machine that is not found takes its Node along at once.
    DeletesAtOnce,
    /// A machine that is gone takes no Node along.
    KeepsNodes,
    /// The taints of a stopped machine are not written.
    ForgetsTaints,
    /// Reads of addresses show those that the machine had first.
    KeepsAddresses,
    /// The breaker lets every Node act at once.
    IgnoresBreaker,
    /// A Node that acts while many machines are gone does not read its machine again.
    SkipsLastRead,
    /// Routes outlive their Nodes.
    LeavesRoutes,
    /// What a Node wants while the table is written is dropped.
    DropsWants,
    /// A write starts without enough lease.
    NoFence,
    /// A 429 without its Retry-After.
    ForgetsRetryAfter,
}

impl Mutant {
    pub(super) const ALL: [Self; 18] = [
        Self::NoEtag,
        Self::OverwritesForeign,
        Self::RemovesTooMuch,
        Self::StealsSubnet,
        Self::UntaintsEarly,
        Self::AvailableEarly,
        Self::TrustsRefusals,
        Self::TrustsMissingGroups,
        Self::DeletesAtOnce,
        Self::KeepsNodes,
        Self::ForgetsTaints,
        Self::KeepsAddresses,
        Self::IgnoresBreaker,
        Self::SkipsLastRead,
        Self::LeavesRoutes,
        Self::DropsWants,
        Self::NoFence,
        Self::ForgetsRetryAfter,
    ];
}
