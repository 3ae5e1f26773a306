//! What a key waits for, derived from its facts, for people who ask. No step reads it.

/// What a key waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Awaited {
    /// Nothing: nothing is asked of it that is not done.
    Nothing,
    /// The first complete lists of the informers.
    Informers,
    /// Enough of a lease to write.
    Lease,
    /// A read.
    Read,
    /// A permit to write.
    Permit,
    /// Azure's answer to a write.
    Answer,
    /// The end of an operation that Azure has accepted.
    Operation,
    /// The end of another writer's operation.
    OtherOperation,
    /// The end of a pause after a failure.
    Pause,
    /// The end of a burst of requests, or the time of the next look.
    Moment,
    /// Reads that prove what a late write may still change.
    FreshReads,
    /// The operator's acceptance of a plan.
    Acceptance,
    /// What must come first by its plan.
    Plan,
    /// A change of what was refused.
    Change,
    /// The objects of a Service.
    Objects,
    /// The API server's answer to a patch.
    Patch,
    /// The first backend of a load balancer.
    Members,
    /// Reads of places where a Service may have parts.
    Places,
    /// A specification without mistakes.
    Specification,
    /// A read of the machine of a Node.
    Machine,
    /// What the plugin of a Node publishes of its machine.
    Metadata,
    /// The breaker.
    Breaker,
    /// The routes of a Node.
    Routes,
    /// A Node that is Ready, or a proof of what its machine does.
    Readiness,
    /// A second proof that a machine is gone.
    Proof,
    /// The cluster's VolumeAttachments.
    Attachments,
    /// The end of the process.
    End,
}
