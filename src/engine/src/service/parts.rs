//! What a Service is made of: its kinds of parts, what is asked of them at which level, and what they show.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// What a Service is made of.
pub trait Service: fmt::Debug + Clone + PartialEq + Sized {
    /// What names the Service's parts: its namespace, name and uid.
    type Identity: fmt::Debug + Clone;
    /// What a valid Service asks for.
    type Spec: fmt::Debug + Clone + PartialEq;
    /// The key of an object of Azure.
    type Key: fmt::Debug + Clone + Ord;
    /// What the Service wants of one object.
    type Want: fmt::Debug + Clone + PartialEq;
    /// What an object shows of the Service: its addresses above all.
    type Report: fmt::Debug + Clone + PartialEq;
    /// The Service's status.
    type Status: fmt::Debug + Clone + PartialEq;
    /// What the wants depend on beside: settings.
    type Inputs;
    /// At which addresses, and at which of their ports, a security group admits or denies for the Service.
    type Admission: fmt::Debug + Clone + Default;
    /// Where a Service may have objects because it names that place: a resource group, which may not exist, or be closed to
    /// this process.
    type Place: fmt::Debug + Clone + Ord;

    /// What kind of part the object is.
    fn role(key: &Self::Key) -> Role;

    /// Where the object is, if Services choose that; `None` where the configuration does.
    fn place(key: &Self::Key) -> Option<Self::Place>;

    /// Whether the object has a part of the Service that is to be removed one day, as its report shows once a want is done;
    /// `None` when that does not tell.
    fn has_part(want: &Self::Want, report: &Self::Report) -> Option<bool>;

    /// Whether a report shows that the object does not exist, or may never hold a part that is to be removed.
    fn is_absent(_: &Self::Report) -> bool {
        false
    }

    /// The objects that the spec needs.
    fn keys(id: &Self::Identity, spec: &Self::Spec, inputs: &Self::Inputs) -> BTreeSet<Self::Key>;

    /// In which order load balancer and security group are written at creation.
    fn order(id: &Self::Identity, spec: &Self::Spec, seen: &Seen<'_, Self>, inputs: &Self::Inputs) -> Order;

    /// What is wanted of an object at a level. `spec` is `None` once everything must go.
    fn want(
        id: &Self::Identity,
        spec: Option<&Self::Spec>,
        key: &Self::Key,
        level: Level,
        seen: &Seen<'_, Self>,
        inputs: &Self::Inputs,
    ) -> Self::Want;

    /// Adds where a want of a security group admits or denies.
    fn note_admission(want: &Self::Want, inputs: &Self::Inputs, noted: &mut Self::Admission);

    /// The status, when every address is known.
    fn status(
        id: &Self::Identity,
        spec: &Self::Spec,
        seen: &Seen<'_, Self>,
        inputs: &Self::Inputs,
    ) -> Option<Self::Status>;

    /// Whether a load balancer that the spec does not need has an address that the spec asks for on another one, and no
    /// other Service uses it there.
    fn gives_way(
        id: &Self::Identity,
        spec: &Self::Spec,
        key: &Self::Key,
        seen: &Seen<'_, Self>,
        inputs: &Self::Inputs,
    ) -> bool;

    /// The object that the Service's backends are still to join, and in words what is waited for: its pool is filled by
    /// others than the Service, and a member is on its way. A status that is not set yet waits for the first.
    fn awaits_members(_: &Self::Spec, _: &Self::Inputs) -> Option<(Self::Key, String)> {
        None
    }

    /// Whether a user asks for the same by two specs. What else a spec holds, such as where the Service is placed, may have
    /// changed.
    fn asks_the_same(one: &Self::Spec, other: &Self::Spec) -> bool {
        one == other
    }

    /// Whether two statuses say the same. One that another controller has set may spell it in another way.
    fn is_same_status(one: &Self::Status, other: &Self::Status) -> bool {
        one == other
    }
}

/// What kind of part an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// An address that is an object of its own.
    PublicIp,
    /// Frontends, rules, probes and backend pools.
    LoadBalancer,
    /// Which sources are admitted.
    SecurityGroup,
    /// The backends of a pool that is filled through network interfaces, and what a private link service needs beside: its
    /// subnet's policies.
    Members,
    /// A private link service on a frontend.
    PrivateLink,
}

impl Role {
    /// Whether Azure may refuse a part of this kind for the state of one of the other kind: a frontend for its public IP or
    /// for another load balancer that has it, a private link service for its frontend.
    pub(super) fn rests_on(self, other: Self) -> bool {
        match self {
            Self::LoadBalancer => matches!(other, Self::PublicIp | Self::LoadBalancer),
            Self::PublicIp => other == Self::LoadBalancer,
            Self::Members | Self::PrivateLink => matches!(other, Self::LoadBalancer | Self::Members),
            Self::SecurityGroup => false,
        }
    }
}

/// How much of the Service's spec an object is told. A higher level asks for more to be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing is present or gone: the object reports what it shows of the Service.
    Look,
    /// Of a load balancer: the frontends are present. Of a security group: what admits to ports that this very load
    /// balancer serves already, and what denies.
    Frontend,
    /// All that the spec asks for is present. What it does not ask for may go only where no address is given up and no
    /// security rule is found by it.
    Make,
    /// Of a load balancer: gone are also the rules that the spec does not ask for and that would be open to more sources
    /// once the security group is trimmed, as those of a private address that a denial protects. Their frontends stay.
    Quiet,
    /// All that the spec does not ask for is gone.
    Clean,
}

/// In which order load balancer and security group are written at creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// At once.
    Parallel,
    /// The security group first: a rule that denies must exist before the load balancer lets traffic in, or a frontend
    /// changes its address in place.
    SecurityFirst,
    /// The security group for the ports that the load balancer serves already ([`Level::Frontend`]), the load balancer,
    /// then the security group. On an address that Services share, a rule of the load balancer is so the record of every
    /// security rule of the Service.
    SecurityAround,
    /// The load balancer first: it gives the address that the security rule admits.
    LoadBalancerFirst,
    /// The frontends, which give the address, then the security group, then the load-balancing rules.
    FrontendFirst,
}

/// Reports, by object.
pub type Reports<S> = BTreeMap<<S as Service>::Key, Box<<S as Service>::Report>>;

/// What the objects show of the Service.
#[derive(Debug)]
pub struct Seen<'a, S: Service> {
    /// The last report of each object.
    pub reports: &'a Reports<S>,
    /// What load balancers showed of the Service before they were written for its spec, until all that it gives up is gone:
    /// on an address that Services share, their rules were the record of its security rules.
    pub left: &'a Reports<S>,
    /// Where the security group was told to admit or to deny since it had last given up everything else. Of an address that
    /// the Service gave up before its status showed it, nothing else need be a record.
    pub told: &'a S::Admission,
    /// The status as the API server has it.
    pub status: Option<&'a S::Status>,
    /// Whether the spec has changed since this process first saw the Service. Until then what an earlier process or another
    /// controller has left over may stay where it does no harm.
    pub has_changed: bool,
    /// Whether every object on which parts of the Service were found, or that may hold parts of any Service, has reported.
    pub is_complete: bool,
}

/// A Service as the API server has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot<S: Service> {
    /// Its resource version. A later state has a greater one.
    pub version: u64,
    /// What it asks for.
    pub desired: Desired<S::Spec>,
    /// Whether it carries our finalizer.
    pub finalizer: bool,
    /// Its status, if it has one.
    pub status: Option<S::Status>,
    /// The objects on which parts of it have been seen, and those that may hold parts of any Service.
    pub found: BTreeSet<S::Key>,
    /// Objects that no Service has any more. Each Service asks for their end, and none of them is a part of it.
    pub ownerless: BTreeSet<S::Key>,
    /// The places that it names now.
    pub named: BTreeSet<S::Place>,
    /// Why parts of it may be where no read has looked yet, a sentence for each place. The finalizer of a Service that goes
    /// stays until there is none.
    pub unread: Vec<String>,
}

/// What a Service asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Desired<P> {
    /// A load balancer of ours.
    Present(P),
    /// A load balancer of ours whose spec is wrong. What it had before stays.
    Invalid(Vec<String>),
    /// It is being deleted, or is no load balancer of ours any more.
    Gone,
}
