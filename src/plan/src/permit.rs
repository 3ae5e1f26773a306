//! stub
/// Who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "stub")]
pub enum Priority { DetachDeadNode, Poll, Detach, Attach, Create, Read, List }
