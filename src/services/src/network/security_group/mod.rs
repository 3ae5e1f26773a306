//! The security group: which sources reach which Service.
//!
//! Services with the same protocol, sources and ports share one rule; each adds its destinations. A rule is named by the
//! MD5 of these three, so that the same Services make the same rules under the Go manager and here. Allow rules take the
//! lowest free priority from 500 on, the deny rules the highest free one from 4095 down.
//!
//! Addresses of nodes are never denied, whatever a Service asks: what denies there denies kubelet, health probes and all
//! other Services.
//!
//! A destination leaves a rule only when a Service that is known to have had it says so ([`Gone`]) and no Service asks for
//! it. The Go manager instead removes every destination that it does not know, also those of another cluster; that is not
//! copied.
//!
//! Rules with names from before 1.30 (`<base>-TCP-80-Internet`, `shared-TCP-80-Internet`) count as present. So does a rule
//! under another hash that allows exactly what is asked for: Go 1.30 named a rule by the ranges as the Service spells them,
//! and later managers by their aggregate. Go 1.30 also allowed `Internet` for `0.0.0.0/0`, which at a private address that no
//! rule denies is the same, for the virtual network is let in by default.

mod edit;
mod model;
mod plan;
mod users;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

pub use edit::{Edit, admits_more, apply, apply_raw, replaces};
pub use model::{SecurityGroup, SecurityRule};
pub use plan::plan;
pub use users::Users;

use lazuli_model::{ArmId, address::Family, tags::TagPolicy};

use crate::ask::{SecurityProtocol, names::BaseName};

/// What a Service asks of the security group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// Who may reach it, in the order in which new rules get their priorities.
    pub allow: Vec<Allow>,
    /// The destinations that no other source may reach. Of these the addresses of nodes are not denied: a denial that is
    /// there stays, and none is made, for it would cut off all that runs on the node.
    pub deny_all: BTreeSet<IpAddr>,
    /// The same, and addresses at which other Services are reached are treated as those of nodes.
    pub deny_alone: BTreeSet<IpAddr>,
    /// The destinations at which a denial that is there stays, and none is made.
    pub keep_denied: BTreeSet<IpAddr>,
    /// The destinations at which the Service gives up nothing, with its ports: rules of these ports stay there, whatever other
    /// Services give up, and so do denials. What is admitted at other ports is not its own.
    pub keep: BTreeMap<IpAddr, BTreeSet<(SecurityProtocol, u16)>>,
    /// What it asks for at addresses of other Services that do not agree.
    pub guest: GuestPart,
    /// Who may reach it where its load-balancing rules are not written yet, and may be refused. A rule that is there stays
    /// as it is. One that is made opens only the ports that have a load-balancing rule already.
    pub ahead: Vec<GuestAllow>,
}

impl Part {
    /// The destinations at which a denial that is there stays.
    pub fn denials_stay(&self) -> impl Iterator<Item = IpAddr> {
        let all = [&self.deny_all, &self.deny_alone, &self.keep_denied, &self.guest.deny_all];
        all.into_iter().flatten().chain(self.keep.keys()).copied()
    }

    /// All that it asks to be allowed.
    pub fn allows(&self) -> impl Iterator<Item = &Allow> {
        self.allow.iter().chain(self.guest.allow.iter().chain(&self.ahead).map(|guest| &guest.asked))
    }

    /// Whether what it asks for depends on what the security group shows.
    pub fn depends_on_shown(&self) -> bool {
        self.guest != GuestPart::default() || !self.ahead.is_empty()
    }

    /// Opens at first only the ports that have a load-balancing rule already.
    pub fn go_ahead(&mut self, balanced: &BTreeSet<(SecurityProtocol, u16)>) {
        let own = std::mem::take(&mut self.allow).into_iter().map(|asked| {
            let is_balanced = |port: &u16| balanced.contains(&(asked.protocol, *port));
            let with_rules = asked.ports.iter().copied().filter(is_balanced).collect();
            GuestAllow { asked, with_rules }
        });
        // At the address of another Service only the rules there count.
        self.ahead = own.chain(std::mem::take(&mut self.guest.allow)).collect();
    }
}

/// What a Service asks for at an address that is another Service's and that the owner does not see. It stays where it is,
/// and is not made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestPart {
    /// Who may reach ports without a load-balancing rule.
    pub allow: Vec<GuestAllow>,
    /// The destinations that no other source may reach.
    pub deny_all: BTreeSet<IpAddr>,
    /// The destinations at which the Service gives up nothing, for what it asks is not known. What other Services give up
    /// there goes all the same, except denials.
    pub keep: BTreeSet<IpAddr>,
}

/// Who may reach ports of another Service's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestAllow {
    /// What is asked for.
    pub asked: Allow,
    /// The ports of it that have a load-balancing rule. The others are not opened: where one is open it stays.
    pub with_rules: BTreeSet<u16>,
}

/// Sources that may reach ports of destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    /// The protocol.
    pub protocol: SecurityProtocol,
    /// The family of sources and destinations.
    pub family: Family,
    /// A service tag or address ranges.
    pub sources: Vec<String>,
    /// The ports.
    pub ports: Vec<u16>,
    /// The addresses: of frontends, or of nodes where floating IP is off.
    pub destinations: BTreeSet<IpAddr>,
}

/// What of a Service is gone by a positive record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gone {
    /// Addresses that the Service is or was reached at, and that no other Service uses. Whatever no Service asks for at them
    /// goes.
    pub destinations: BTreeSet<IpAddr>,
    /// Whether the same holds of the nodes ([`Env::nodes`]), which rules name where floating IP is or was off. What is
    /// admitted there at a port of a Service that does not give up the nodes stays ([`Env::node_ports`]).
    pub nodes: bool,
    /// Addresses that other Services use too, with the ports at which the Service was reached. At them go only allow rules
    /// of these ports, for another Service may not have asked for its rules yet, and a denial once no such rule is left. Once
    /// every Service there has asked, what none asks for goes too ([`Env::users`]).
    pub shared: BTreeMap<IpAddr, BTreeSet<(SecurityProtocol, u16)>>,
    /// The public IPs that these addresses are of.
    pub public_ips: BTreeMap<IpAddr, ArmId>,
    /// The base name of the Service, for rules of its own from before 1.30.
    pub base: Option<BaseName>,
}

impl Gone {
    /// Whether nothing is gone.
    pub fn is_nothing(&self) -> bool {
        self.destinations.is_empty() && self.shared.is_empty() && !self.nodes
    }
}

/// The wants of all Services for the security group.
pub type Wants = super::Wants<Part, Gone>;

/// What all Services of a security group share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Env {
    /// The security group.
    pub id: ArmId,
    /// The tags that it gets.
    pub tags: TagPolicy,
    /// The addresses of the backends.
    pub nodes: BTreeSet<IpAddr>,
    /// The addresses of all Nodes, backends or not.
    pub all_nodes: BTreeSet<IpAddr>,
    /// Where Services are reached by their status, with the base name of the Service in lower case.
    pub reached: BTreeSet<(IpAddr, String)>,
    /// Which Services' rules use the frontends of each load balancer, as read last.
    pub users: Vec<Arc<Users>>,
    /// The addresses of nodes that were backends and have left every pool. No rule of
    /// this provider admits to them any more.
    pub departed: BTreeSet<IpAddr>,
    /// Ports of Services that have no valid specification now, at the addresses that they were given: they stay.
    pub keep: BTreeMap<IpAddr, BTreeSet<(SecurityProtocol, u16)>>,
    /// The ports of the nodes at which Services are reached without floating IP, by the base name of the Service in lower
    /// case: those that rules of load balancers send to, and the node ports of Services that have told nothing yet. Every
    /// Service has a share in the nodes, so that none can give up all that is admitted there.
    pub node_ports: BTreeMap<String, BTreeSet<(SecurityProtocol, u16)>>,
}

impl Env {
    /// Whether an address is that of a Node.
    fn is_node(&self, address: IpAddr) -> bool {
        self.all_nodes.contains(&address) || self.nodes.contains(&address) || self.departed.contains(&address)
    }
}

/// The priorities of rules of this provider, the first one of allow rules.
pub const FIRST_PRIORITY: u32 = 500;
/// The last priority of rules of this provider. New rules stay below it.
pub const LAST_PRIORITY: u32 = 4_096;

/// Limits of Azure (source: azure-subscription-service-limits, network security groups).
pub mod limits {
    /// Rules of a security group.
    pub const RULES: usize = 1_000;
    /// Source prefixes of all its rules.
    pub const SOURCES: usize = 4_000;
    /// Destination prefixes of all its rules.
    pub const DESTINATIONS: usize = 4_000;
}
