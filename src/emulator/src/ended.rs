//! Operations that have ended, for who tells what happens.

use std::time::Duration;

use crate::control::Control;
use crate::latency::OperationKind;
use crate::operations::Status;

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedOperation {
    /// Lower-case id of the resource that it changed.
    pub resource: String,
    /// What it did.
    pub kind: OperationKind,
    /// Emulated time from its acceptance to its end.
    pub took: Duration,
    /// How it ended.
    pub end: OperationEnd,
    /// Lower-case ids of the disks that it attached to a machine.
    pub attached: Vec<String>,
    /// Lower-case ids of the disks that it detached from a machine.
    pub detached: Vec<String>,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationEnd {
    /// As asked.
    Succeeded,
    /// It failed, with this error code of Azure.
    Failed(String),
    /// A newer one replaced it.
    Canceled,
}

impl Control {
    /// The operations that have ended beyond the first `count` of this run, in the order of their ends, and how many have
    /// ended so far: the `count` to ask with next. The oldest of very many are forgotten, as for those who poll.
    #[must_use]
    pub fn ended_operations(&self, count: u64) -> (u64, Vec<EndedOperation>) {
        let state = self.shared.state();
        let (count, ended) = state.operations.ended_after(count);
        let told = |operation: &crate::operations::Operation<_>| {
            let accepted = state.phases.accepted.iter().rev().find(|accepted| accepted.id == operation.id);
            let (attached, detached) =
                accepted.map(|one| (one.attached.clone(), one.detached.clone())).unwrap_or_default();
            EndedOperation {
                resource: operation.resource.to_lowercase(),
                kind: operation.kind,
                took: operation.ended.unwrap_or(operation.due).saturating_sub(operation.started),
                end: match &operation.status {
                    Status::Failed(fault) => OperationEnd::Failed(fault.code.to_string()),
                    Status::Canceled(_) => OperationEnd::Canceled,
                    Status::Running | Status::Succeeded => OperationEnd::Succeeded,
                },
                attached,
                detached,
            }
        };
        (count, ended.map(told).collect())
    }
}
