//! How a resource type answers: data of its descriptor that leads nowhere else.

use crate::latency::OperationKind;
use crate::options::Switches;
use crate::throttle::Policy;

/// What an `etag` looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Etags {
    /// There is none.
    None,
    /// `W/"<guid>"` on the resource and on each of its children; the header on GET only. Recorded.
    Weak,
    /// `"1"`, `"2"` and so on, one more with each write that changes something; the header on PUT too. Recorded for
    /// scale sets: neither the end of a creation nor a PUT that changes nothing counts.
    Counted,
}

/// Where a list or a route stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Subscription,
    Group,
    /// Both of them.
    Either,
    /// `locations/{location}` of a subscription.
    Location,
}

/// The provider's buckets by verb.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) get: Option<Policy>,
    pub(crate) list: Option<Policy>,
    pub(crate) write: Option<Policy>,
    /// PATCH, where it is another bucket than that of PUT.
    pub(crate) change: Option<Policy>,
    pub(crate) delete: Option<Policy>,
}

impl Limits {
    pub(crate) const NONE: Self = Self { get: None, list: None, write: None, change: None, delete: None };
}

/// How long its operations take.
#[derive(Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) write: OperationKind,
    pub(crate) delete: OperationKind,
}

/// A type of `schema.txt`, and the parameter that refusals name.
#[derive(Clone, Copy)]
pub(crate) struct Schema {
    pub(crate) name: &'static str,
    pub(crate) root: &'static str,
}

/// What the engine puts at the start of `properties`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamps {
    Nothing,
    /// `provisioningState`.
    State,
    /// `provisioningState` and `resourceGuid`.
    StateAndGuid,
}

/// How an answer points at an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// It does not: what was asked is done.
    Synchronous,
    /// `Azure-AsyncOperation`.
    AsyncOperation,
    /// `Location`.
    Location,
    /// Both headers.
    Both,
}

/// The answer to a write.
#[derive(Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) shape: Shape,
}

impl Answered {
    pub(crate) const fn new(status: u16, shape: Shape) -> Self {
        Self { status, shape }
    }
}

/// PUT.
#[derive(Clone, Copy)]
pub(crate) struct Put {
    pub(crate) created: Answered,
    pub(crate) updated: fn(&Switches) -> Answered,
    /// `provisioningState` while the operation runs.
    pub(crate) running: fn(&Switches) -> &'static str,
    pub(crate) commit: Commit,
}

/// When a GET shows what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    /// At once. A write that fails late leaves it in the state `Failed`.
    AtOnce,
    /// When the operation ends; until then the old document with another state. A creation that fails late leaves
    /// nothing, a change that fails late changes nothing.
    AtEnd,
}

/// What a PUT makes of members that it leaves out of a resource that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// They go back to their defaults.
    Default,
    /// The same, but for these parts: from this version on they stay.
    DefaultBut { member: &'static str, since: &'static str },
    /// They stay as they are. What is there is replaced, lists as a whole.
    Stay,
}

/// PATCH.
#[derive(Clone, Copy)]
pub(crate) enum Patch {
    /// There is none.
    None,
    /// It replaces the tags at once, with 200, and does nothing else.
    Tags { operation: &'static str, schema: Schema },
    /// What it names is laid over the document; then it is a PUT.
    Merge { operation: &'static str, schema: Schema, answered: Answered },
    /// The hooks get what it names, and decide what that changes.
    Asked { operation: &'static str, schema: Schema, answered: Answered },
}

/// Which requests children answer themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// None.
    Hidden,
    /// GET and list.
    Read,
    /// PUT and DELETE as well.
    Write,
}

/// Whom a refusal names for a reference that stands in a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedBy {
    Child,
    Parent,
}
