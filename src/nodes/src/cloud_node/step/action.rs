//! What the step of a Node has others do.

use lazuli_engine::Id;
use lazuli_model::{ArmId, fault::Fault, node::Machine};
use lazuli_quota::read::Accept;

use crate::{
    cloud_node::{NodeAddress, Taint},
    routing::Want,
};

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Read the machine; a list may answer.
    Read {
        /// The read.
        id: Id,
        /// How it is found.
        lookup: Lookup,
    },
    /// Read the addresses of the machine.
    ReadAddresses {
        /// The read.
        id: Id,
        /// The machine.
        machine: ArmId,
        /// Which reads are an answer.
        accept: Accept,
    },
    /// Read whether the machine runs, by a request of its own, and a control if it is not there.
    Check {
        /// The read.
        id: Id,
        /// The machine.
        machine: ArmId,
    },
    /// Patch the Node.
    Patch {
        /// The patch.
        id: Id,
        /// The uid of the Node.
        uid: String,
        /// The resource version that it is planned from.
        version: u64,
        /// What is changed.
        patch: Patch,
    },
    /// Delete the Node of this uid.
    Delete {
        /// The deletion.
        id: Id,
        /// The uid.
        uid: String,
    },
    /// Ask the breaker.
    Ask,
    /// Stop asking the breaker.
    Withdraw,
    /// Tell the route table which routes the Node needs.
    Route {
        /// The number of the want.
        generation: u64,
        /// The want.
        want: Want,
    },
    /// Tell the route table that the Node has no further interest.
    WithdrawRoutes,
    /// Report to the operator.
    Report(Reason),
    /// After [`Event::Drain`](super::Event::Drain): nothing is in flight any more.
    Drained,
}

/// How the machine of a Node is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// By its id.
    Machine(Machine),
    /// By the Node's name, in this resource group or that of the cluster.
    Named {
        /// The name of the Node: that of the VM, or of the computer in it.
        name: String,
        /// The label `kubernetes.azure.com/resource-group`.
        resource_group: Option<String>,
    },
}

/// A change of a Node.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// Of its status.
    Status {
        /// All its addresses.
        addresses: Option<Vec<NodeAddress>>,
        /// Its condition NetworkUnavailable.
        network: Option<NetworkCondition>,
    },
    /// What initialises it.
    Initialise {
        /// Its provider id, where it has none.
        provider_id: Option<String>,
        /// Labels to set.
        labels: Vec<(&'static str, String)>,
        /// All its taints.
        taints: Vec<Taint>,
    },
    /// All its taints.
    Taints(Vec<Taint>),
    /// Labels that it lacks.
    Labels(Vec<(&'static str, String)>),
}

/// The condition NetworkUnavailable. Its texts are those of the Go managers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkCondition {
    /// Whether it is True.
    pub is_unavailable: bool,
    /// Its reason.
    pub reason: &'static str,
    /// Its message.
    pub message: &'static str,
}

impl NetworkCondition {
    pub(super) const WAITING: Self =
        Self { is_unavailable: true, reason: "NodeInitialization", message: "Waiting for cloud routes" };
    pub(super) const MISSING: Self =
        Self { is_unavailable: true, reason: "NoRouteCreated", message: "RouteController failed to create a route" };
    pub(super) const CREATED: Self =
        Self { is_unavailable: false, reason: "RouteCreated", message: "RouteController created a route" };
}

/// What is reported of a Node, once until another thing is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It is initialised.
    Initialised,
    /// Azure has no machine of its name or provider id.
    NoMachine,
    /// Its machine cannot be read.
    Unreadable(Fault),
    /// Its machine has no address, or not the one that kubelet was given.
    NoAddress(String),
    /// It gets these addresses.
    Readdressed(String),
    /// It is initialised, and keeps its addresses, because its machine cannot be read.
    AddressesUnread(Fault),
    /// The same, because its machine has no address, or not the one that kubelet was given.
    AddressesKept(String),
    /// Its machine is stopped: the Node is tainted.
    Stopped,
    /// Its machine is gone: the Node is deleted.
    Gone,
    /// It was not Ready, and nothing is proved of its machine.
    Unproved(Fault),
    /// It has no pod range, and the operator expects that it gets one.
    NoPodRange,
    /// The route table refuses its routes.
    RouteRefused(String),
    /// It has a route that exists and would not be added now, for this reason.
    RouteKept(&'static str),
}
