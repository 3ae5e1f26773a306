//! The objects of Azure's network that Services share, and the planner of each.
//!
//! | module | decides |
//! |---|---|
//! | [`load_balancer`] | frontends, rules, probes and pools of a load balancer, and where a Service is placed |
//! | [`security_group`] | the security rules of all Services |
//! | [`public_ip`] | one public IP: its tags, its DNS label, its end |
//! | [`nic`] | the pools that the NICs of a node belong to |
//! | [`private_link`] | one private link service |
//! | [`subnet`] | the network policy of a subnet that holds addresses of private link services |
//! | [`backends`] | which Nodes are backends |
//! | [`settings`] | nothing: what the cloud configuration says of all these |
//!
//! # One shape
//!
//! Every planner of an object that Services share has the same functions:
//!
//! ```text
//! Model::read(&id, &body)                                     what Azure answered, as far as it matters
//! plan(&wants, actual: Option<&Model>, &Env) -> Plan<Edit>    one write, and how far each Service is
//! apply(Option<Model>, &[Edit], &Env) -> Option<Model>        what the edits do to the model
//! apply_raw(Option<body>, &[Edit], &Env) -> Option<body>      and to the body that goes back to Azure
//! replaces(&[Edit], actual) -> bool                           whether something that exists is removed or replaced
//! ```
//!
//! `None` is an object that does not exist. A property test holds `apply` and `apply_raw` equal. NICs and subnets have no
//! wants of Services: what they need follows from nodes and from private link services, and they are never made or deleted.
//!
//! A load balancer is one write, whatever changes; a change of pool members alone is a write of one pool
//! ([`load_balancer::write_target`]). A new pool of addresses goes out with its members, so that its first Service does not
//! wait for a second write.
//!
//! How far a Service is ([`Served`]) is judged by what was observed, so a Service is done though others still change the
//! object.
//!
//! # Absence deletes nothing
//!
//! A [`Want`] says what must be present, and what is gone by a positive record: a deletion with our finalizer, a change of
//! type or of the specification. What no want names stays, whichever Service, person or controller made it. A planner therefore cannot delete for a
//! Service that it does not know.
//!
//! # Five laws
//!
//! A planner converges (`plan` of what it planned is empty), leaves what is foreign alone, keeps every prefix of its
//! edits safe, does not depend on the order of its input, and is quiet when only letter case, order or defaults that
//! Azure filled in differ.

pub mod backends;
pub mod load_balancer;
pub mod nic;
pub mod private_link;
pub mod public_ip;
pub mod security_group;
pub mod settings;
pub mod subnet;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use lazuli_model::{ArmId, ServiceKey, address::Family};

pub use settings::Settings;

/// What one Service asks of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want<P, G> {
    /// What must be there.
    pub present: P,
    /// What must no longer be there; it rests on a positive record.
    pub gone: G,
}

/// The wants of all Services for one object.
pub type Wants<P, G> = BTreeMap<ServiceKey, Want<P, G>>;

/// What a planner decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan<E> {
    /// What one write changes; empty when nothing is to be written now.
    pub edits: Vec<E>,
    /// How far each Service is, judged by what was observed, not by the edits.
    pub served: BTreeMap<ServiceKey, Served>,
    /// What the write of the edits would leave to a further write.
    pub is_partial: bool,
}

impl<E> Plan<E> {
    /// Whether there is nothing to write.
    pub fn is_quiet(&self) -> bool {
        self.edits.is_empty()
    }
}

/// How far an object serves one Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// The object is observed to be as the Service asks.
    Done(Found),
    /// The edits of this plan, or of one after it, bring it there.
    Pending,
    /// Something else must happen first.
    Waiting(Waiting),
    /// The Service cannot be served until it or the object changes. Its parts stay as they are.
    Refused(Refusal),
}

/// What an object tells a Service that it serves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The addresses that the Service is reached at, as far as this object knows them: a public IP its own, a load
    /// balancer those of internal frontends.
    pub addresses: BTreeMap<Family, IpAddr>,
    /// The frontend that serves each family; it is another Service's where an address is shared.
    pub frontends: BTreeMap<Family, ArmId>,
    /// The host name of a public IP with a DNS label.
    pub host_name: Option<String>,
    /// What was asked and is left undone on purpose, for an event.
    pub notices: Vec<Refusal>,
    /// Of a load balancer: the public IP of a frontend that no Service has any more and that stays because it was the last.
    pub released: BTreeSet<ArmId>,
}

/// What must happen first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waiting {
    /// This object must exist and be provisioned.
    For(ArmId),
    /// Azure has yet to assign an address.
    Address,
    /// This object still refers to the one that is to go.
    ReferencedBy(ArmId),
    /// This Service asks for the object too and is refused: the object is not deleted under it.
    Refused(ServiceKey),
    /// NICs must leave these pools before their load balancer is deleted.
    MembersLeave(Vec<ArmId>),
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(id) => write!(f, "waits for {id}"),
            Self::Address => f.write_str("waits for Azure to assign an address"),
            Self::ReferencedBy(id) => write!(f, "waits until {id} no longer refers to it"),
            Self::Refused(service) => {
                write!(f, "waits until Service {service}, which is refused, is served or gives it up")
            }
            Self::MembersLeave(pools) => {
                f.write_str("waits until the NICs have left ")?;
                for (index, pool) in pools.iter().enumerate() {
                    write!(f, "{}{pool}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
        }
    }
}

/// Why a Service is refused: the reason of an event and a sentence for the owner of the Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason of the event.
    pub reason: RefusalReason,
    /// One sentence: what was found, what is allowed, what to do.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The reason of an event about a refused Service; a bounded set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalReason {
    /// Another Service, or a rule that is not ours, uses the port on this frontend.
    PortConflict,
    /// A limit of Azure would be exceeded.
    LimitExceeded,
    /// An object that the Service names does not exist.
    NotFound,
    /// An object belongs to another cluster, Service or person.
    ForeignOwner,
    /// The change would need a new address, and none was permitted.
    WouldReplaceAddress,
    /// No load balancer fits the Service.
    NoPlacement,
    /// The object is not of the kind that the Service needs.
    Mismatch,
    /// A frontend that no Service has any more stays, because it is the last of a load balancer that stays.
    LastFrontend,
    /// The address is another Service's, and not all that is asked is done there.
    SharedAddress,
    /// What exists stays the Service's, and would not be given to a new one.
    KeptValue,
}

impl RefusalReason {
    /// The reason, as an event spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PortConflict => "PortConflict",
            Self::LimitExceeded => "LimitExceeded",
            Self::NotFound => "NotFound",
            Self::ForeignOwner => "ForeignOwner",
            Self::WouldReplaceAddress => "WouldReplaceAddress",
            Self::NoPlacement => "NoPlacement",
            Self::Mismatch => "Mismatch",
            Self::LastFrontend => "LastFrontend",
            Self::SharedAddress => "SharedAddress",
            Self::KeptValue => "KeptValue",
        }
    }
}

impl Refusal {
    /// A refusal.
    pub fn new(reason: RefusalReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}
