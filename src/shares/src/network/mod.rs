//! What is done in the network before and after a storage account is made: as the Go driver does it, and never to what a
//! person has made.
//!
//! ```text
//!   serviceEndpoint:  subnets get the service endpoint ──▶ account is made, and lets them in
//!   privateEndpoint:  zone ──▶ link ──▶ account is made ──▶ private endpoint ──▶ DNS zone group
//! ```
//!
//! The names are the Go driver's, and follow from the account and the class. So a process that comes after one that was
//! killed finds what that one has begun, and two processes at once ask for the same things.
//!
//! - A resource that exists is used as it is. It is never PUT again, whoever made it. A subnet alone is changed, and only
//!   where it lacks the service endpoint: its whole body goes back with one item more, under the etag that was read.
//! - A zone and a link are PUT under `If-None-Match: *`. Of a private endpoint Azure checks no such condition: it is PUT
//!   only after a read, behind the permit, that finds neither it nor any connection of the account.
//! - An account that has private endpoints, and none of this name, is a person's own arrangement: nothing is made for it,
//!   and nothing of the network is read. The same holds for an endpoint of this name whose records are in other zones.
//! - Azure no longer wants the network policies of a subnet switched off for private endpoints, and the Go driver does it
//!   only where a subnet does not say: subnets are left alone for them.
//!
//! [`plan`] says what comes next of what was read, and [`work::network`](crate::work::network) does it.

mod body;
mod read;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt};

use lazuli_model::{ArmId, ArmIdError, ProvisioningState, fault::Code};
use serde_json::Value;

pub use crate::parameters::PrivateNetwork;
pub use read::Unreadable;

/// What is to be in the network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// Each of these subnets has a service endpoint for storage.
    ServiceEndpoints(Vec<ArmId>),
    /// The zone exists and is linked to the network.
    Zone(PrivateNetwork),
    /// A private endpoint leads to the files of the account, and its name is in the zone.
    Endpoint(Box<EndpointWanted>),
}

/// A private endpoint, with the names of what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointWanted {
    account: ArmId,
    network: PrivateNetwork,
    endpoint: ArmId,
    group: ArmId,
}

/// What is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// The subnet of this number.
    Subnet(usize),
    /// The virtual network, which also says which subnets it has.
    Network,
    /// The account, which says which private endpoints lead to it.
    Account,
    /// The private DNS zone.
    Zone,
    /// The links of the zone; written is the one of the network.
    Links,
    /// The private endpoint.
    Endpoint,
    /// The DNS zone groups of the endpoint; written is the one of the account.
    ZoneGroups,
}

/// What it means that a read of an object finds nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Missing {
    /// It is not there.
    Fact(Seen),
    /// This, which holds it, has gone since it was read.
    Parent(Object),
}

impl Object {
    /// What it means that a read finds nothing. `None`: it must be there.
    pub fn missing(self) -> Option<Missing> {
        Some(match self {
            Self::Subnet(at) => Missing::Fact(Seen::Subnet(at, None)),
            Self::Network => Missing::Fact(Seen::Network(None)),
            Self::Zone => Missing::Fact(Seen::Zone(None)),
            Self::Endpoint => Missing::Fact(Seen::Endpoint(None)),
            Self::Links => Missing::Parent(Self::Zone),
            Self::ZoneGroups => Missing::Parent(Self::Endpoint),
            Self::Account => return None,
        })
    }

    /// Its name in errors.
    pub fn words(self) -> &'static str {
        match self {
            Self::Subnet(_) => "the subnet",
            Self::Network => "the virtual network",
            Self::Account => "the storage account",
            Self::Zone => "the private DNS zone",
            Self::Links => "the virtual network link",
            Self::Endpoint => "the private endpoint",
            Self::ZoneGroups => "the private DNS zone group",
        }
    }
}

impl Wanted {
    /// The private endpoint of an account, as the Go driver calls it.
    ///
    /// # Errors
    /// When the names make no id.
    pub fn endpoint(account: &ArmId, network: &PrivateNetwork) -> Result<Self, ArmIdError> {
        let name = format!("{}-pvtendpoint", account.name());
        let (subscription, resource_group) = (network.network.subscription(), network.network.resource_group());
        let endpoint = ArmId::resource(subscription, resource_group, "Microsoft.Network/privateEndpoints", &name)?;
        let group = format!("{endpoint}/privateDnsZoneGroups/{}-dnszonegroup", account.name()).parse()?;
        Ok(Self::Endpoint(Box::new(EndpointWanted {
            account: account.clone(),
            network: network.clone(),
            endpoint,
            group,
        })))
    }

    /// The id of the private endpoint, where it is one that is wanted.
    pub(crate) fn endpoint_id(&self) -> Option<&ArmId> {
        match self {
            Self::Endpoint(wanted) => Some(&wanted.endpoint),
            Self::ServiceEndpoints(_) | Self::Zone(_) => None,
        }
    }

    fn network(&self) -> Option<&PrivateNetwork> {
        match self {
            Self::ServiceEndpoints(_) => None,
            Self::Zone(network) => Some(network),
            Self::Endpoint(wanted) => Some(&wanted.network),
        }
    }

    /// The resource that an object is: for [`Object::Links`] and [`Object::ZoneGroups`] the one that is written. `None` for
    /// an object that does not belong to what is wanted.
    pub fn id(&self, object: Object) -> Option<&ArmId> {
        match (self, object) {
            (Self::ServiceEndpoints(subnets), Object::Subnet(at)) => subnets.get(at),
            (Self::Endpoint(wanted), Object::Account) => Some(&wanted.account),
            (Self::Endpoint(wanted), Object::Endpoint) => Some(&wanted.endpoint),
            (Self::Endpoint(wanted), Object::ZoneGroups) => Some(&wanted.group),
            (_, Object::Network) => self.network().map(|network| &network.network),
            (_, Object::Zone) => self.network().map(|network| &network.zone),
            (_, Object::Links) => self.network().map(|network| &network.link),
            _ => None,
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceEndpoints(subnets) => {
                let names: Vec<&str> = subnets.iter().map(ArmId::as_str).collect();
                write!(f, "the service endpoints of {}", names.join(", "))
            }
            Self::Zone(network) => write!(f, "the private DNS zone {} of {}", network.zone, network.network),
            Self::Endpoint(wanted) => write!(f, "the private endpoint {}", wanted.endpoint),
        }
    }
}

/// A subnet, as a read shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Subnet {
    has_service_endpoint: bool,
    state: ProvisioningState,
    body: Value,
    etag: Option<String>,
}

/// A virtual network, as a read shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    location: String,
    subnets: Vec<String>,
}

/// What leads to an account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Connections {
    /// How many private endpoints have a connection with it.
    pub count: usize,
    /// Those of which Azure says the id.
    pub endpoints: Vec<ArmId>,
}

/// A private endpoint, as a read shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateEndpoint {
    state: ProvisioningState,
    service: Option<ArmId>,
    status: Option<String>,
}

/// A link of a zone, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    name: String,
    network: Option<ArmId>,
    state: ProvisioningState,
}

/// A DNS zone group, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneGroup {
    zones: Vec<ArmId>,
    state: ProvisioningState,
}

/// What a read shows. What is not there is `None`.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// The subnet of this number.
    Subnet(usize, Option<Box<Subnet>>),
    /// The virtual network.
    Network(Option<Network>),
    /// What leads to the account.
    Account(Connections),
    /// The zone: where its last operation is.
    Zone(Option<ProvisioningState>),
    /// All links of the zone.
    Links(Vec<Link>),
    /// The private endpoint.
    Endpoint(Option<PrivateEndpoint>),
    /// All DNS zone groups of the endpoint.
    ZoneGroups(Vec<ZoneGroup>),
}

/// What is known. `None` is what was not read; `Some(None)` was read and is not there.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    subnets: BTreeMap<usize, Option<Box<Subnet>>>,
    network: Option<Option<Network>>,
    account: Option<Connections>,
    zone: Option<Option<ProvisioningState>>,
    links: Option<Vec<Link>>,
    endpoint: Option<Option<PrivateEndpoint>>,
    groups: Option<Vec<ZoneGroup>>,
}

impl Facts {
    /// What a list of accounts tells, without a read of its own.
    pub fn of_account(connections: Option<Connections>) -> Self {
        Self { account: connections, ..Self::default() }
    }

    /// Takes in what a read shows.
    pub fn learn(&mut self, seen: Seen) {
        match seen {
            Seen::Subnet(at, subnet) => drop(self.subnets.insert(at, subnet)),
            Seen::Network(network) => self.network = Some(network),
            Seen::Account(connections) => self.account = Some(connections),
            Seen::Zone(zone) => self.zone = Some(zone),
            Seen::Links(links) => self.links = Some(links),
            Seen::Endpoint(endpoint) => self.endpoint = Some(endpoint),
            Seen::ZoneGroups(groups) => self.groups = Some(groups),
        }
    }

    /// What a write of this object rests on is read anew: of an endpoint also that no other leads to the account.
    pub fn forget_before_write(&mut self, object: Object) {
        self.forget(object);
        if object == Object::Endpoint {
            self.forget(Object::Account);
        }
    }

    /// An object is read anew.
    pub fn forget(&mut self, object: Object) {
        match object {
            Object::Subnet(at) => drop(self.subnets.remove(&at)),
            Object::Network => self.network = None,
            Object::Account => self.account = None,
            Object::Zone => self.zone = None,
            Object::Links => self.links = None,
            Object::Endpoint => self.endpoint = None,
            Object::ZoneGroups => self.groups = None,
        }
    }
}

/// A write.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// What is written.
    pub object: Object,
    /// Its id.
    pub id: ArmId,
    /// The whole body.
    pub body: Value,
    /// The version that it replaces; `None` makes a resource that is not there.
    pub etag: Option<String>,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Read this.
    Read(Object),
    /// Take a permit, read anew what it rests on, and send this.
    Write(Box<Write>),
    /// Azure is working on this: read it again later.
    Wait(Object),
    /// All is as wanted.
    Done,
    /// It cannot be made so.
    Refused(Refusal),
}

/// Why the network cannot be made as wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The class or the cloud configuration names a subnet that is not there.
    #[error(
        "there is no subnet {0}: vnetResourceGroup, vnetName and subnetName of the class, or else of the cloud \
         configuration, must name one that exists"
    )]
    NoSubnet(ArmId),
    /// The last operation on it has failed.
    #[error("{} {id} is in the state Failed: delete it, and it is made anew, or repair it", .object.words())]
    Failed {
        /// What it is.
        object: Object,
        /// Its id.
        id: ArmId,
    },
    /// A link of this name is to another network.
    #[error("the link {link} is to {network} and not to {wanted}: give the class another vnetLinkName")]
    LinkTaken {
        /// The link.
        link: ArmId,
        /// The network that it is to.
        network: String,
        /// The network of the class.
        wanted: ArmId,
    },
    /// An endpoint of this name leads elsewhere.
    #[error("the private endpoint {endpoint} leads to {service} and not to {account}: delete it, and it is made anew")]
    EndpointTaken {
        /// The endpoint.
        endpoint: ArmId,
        /// Where it leads.
        service: String,
        /// The account.
        account: ArmId,
    },
    /// The connection of the endpoint is not approved.
    #[error(
        "the connection of the private endpoint {endpoint} with the storage account is {status:?}, and must be Approved: \
         approve it, or delete the endpoint, and it is made anew"
    )]
    NotApproved {
        /// The endpoint.
        endpoint: ArmId,
        /// Azure's word.
        status: String,
    },
}

impl Refusal {
    /// The gRPC code.
    pub fn code(&self) -> Code {
        match self {
            Self::NoSubnet(_) => Code::InvalidArgument,
            Self::Failed { .. } | Self::LinkTaken { .. } | Self::EndpointTaken { .. } | Self::NotApproved { .. } => {
                Code::FailedPrecondition
            }
        }
    }
}

/// What comes next for what is wanted, by what is known.
pub fn plan(wanted: &Wanted, facts: &Facts) -> Step {
    match wanted {
        Wanted::ServiceEndpoints(subnets) => service_endpoints(subnets, facts),
        Wanted::Zone(network) => subnet_exists(network, facts)
            .and_then(|_| zone_is_linked(network, facts))
            .map_or_else(|step| step, |()| Step::Done),
        Wanted::Endpoint(wanted) => endpoint(wanted, facts).map_or_else(|step| step, |()| Step::Done),
    }
}

/// Reads all subnets before it changes one: a name that is wrong is refused before any write.
fn service_endpoints(subnets: &[ArmId], facts: &Facts) -> Step {
    let mut known = Vec::new();
    for (at, id) in subnets.iter().enumerate() {
        match facts.subnets.get(&at) {
            None => return Step::Read(Object::Subnet(at)),
            Some(None) => return Step::Refused(Refusal::NoSubnet(id.clone())),
            Some(Some(subnet)) => known.push((Object::Subnet(at), id, subnet)),
        }
    }
    // An account is refused while one of them is being changed.
    let busy = known.iter().find(|(_, _, subnet)| subnet.state == ProvisioningState::InProgress);
    let lacking = known.iter().find(|(_, _, subnet)| !subnet.has_service_endpoint);
    match (busy, lacking) {
        (Some((object, ..)), _) => Step::Wait(*object),
        (None, None) => Step::Done,
        (None, Some((object, id, subnet))) => Step::Write(Box::new(Write {
            object: *object,
            id: (*id).clone(),
            body: body::with_service_endpoint(&subnet.body),
            etag: subnet.etag.clone(),
        })),
    }
}

/// What is in order, or the step that comes before.
type Checked<T> = Result<T, Step>;

/// The region of the network, whose subnet exists.
fn subnet_exists<'a>(network: &PrivateNetwork, facts: &'a Facts) -> Checked<&'a str> {
    let Some(known) = &facts.network else { return Err(Step::Read(Object::Network)) };
    let name = network.subnet.name();
    match known {
        Some(known) if known.subnets.iter().any(|subnet| subnet.eq_ignore_ascii_case(name)) => Ok(&known.location),
        _ => Err(Step::Refused(Refusal::NoSubnet(network.subnet.clone()))),
    }
}

/// Whether a resource that exists can be used.
fn settled(state: ProvisioningState, object: Object, id: &ArmId) -> Checked<()> {
    match state {
        ProvisioningState::Succeeded => Ok(()),
        ProvisioningState::InProgress => Err(Step::Wait(object)),
        ProvisioningState::Failed | ProvisioningState::Canceled => {
            Err(Step::Refused(Refusal::Failed { object, id: id.clone() }))
        }
    }
}

fn new(object: Object, id: &ArmId, body: Value) -> Step {
    Step::Write(Box::new(Write { object, id: id.clone(), body, etag: None }))
}

fn zone_is_linked(network: &PrivateNetwork, facts: &Facts) -> Checked<()> {
    match facts.zone {
        None => return Err(Step::Read(Object::Zone)),
        Some(None) => return Err(new(Object::Zone, &network.zone, body::zone())),
        Some(Some(state)) => settled(state, Object::Zone, &network.zone)?,
    }
    let Some(links) = &facts.links else { return Err(Step::Read(Object::Links)) };
    if let Some(link) = links.iter().find(|link| link.network.as_ref() == Some(&network.network)) {
        return settled(link.state, Object::Links, &network.link);
    }
    match links.iter().find(|link| link.name.eq_ignore_ascii_case(network.link.name())) {
        Some(taken) => Err(Step::Refused(Refusal::LinkTaken {
            link: network.link.clone(),
            network: taken.network.as_ref().map_or_else(|| "no network".to_owned(), ToString::to_string),
            wanted: network.network.clone(),
        })),
        None => Err(new(Object::Links, &network.link, body::link(&network.network))),
    }
}

fn endpoint(wanted: &EndpointWanted, facts: &Facts) -> Checked<()> {
    let EndpointWanted { account, network, endpoint, group } = wanted;
    let Some(connections) = &facts.account else { return Err(Step::Read(Object::Account)) };
    if connections.count > 0 && !connections.endpoints.contains(endpoint) {
        return Ok(());
    }
    let Some(there) = &facts.endpoint else { return Err(Step::Read(Object::Endpoint)) };
    let Some(there) = there else {
        let location = subnet_exists(network, facts)?;
        zone_is_linked(network, facts)?;
        return Err(new(Object::Endpoint, endpoint, body::endpoint(account, &network.subnet, location)));
    };
    if there.service.as_ref() != Some(account) {
        let service = there.service.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
        return Err(Step::Refused(Refusal::EndpointTaken {
            endpoint: endpoint.clone(),
            service,
            account: account.clone(),
        }));
    }
    settled(there.state, Object::Endpoint, endpoint)?;
    if let Some(status) = there.status.as_ref().filter(|status| !status.eq_ignore_ascii_case("Approved")) {
        return Err(Step::Refused(Refusal::NotApproved { endpoint: endpoint.clone(), status: status.clone() }));
    }
    let Some(groups) = &facts.groups else { return Err(Step::Read(Object::ZoneGroups)) };
    groups.iter().try_for_each(|there| settled(there.state, Object::ZoneGroups, group))?;
    let is_in_zone = groups.iter().any(|group| group.zones.contains(&network.zone));
    if !groups.is_empty() && !is_in_zone {
        return Ok(());
    }
    zone_is_linked(network, facts)?;
    if is_in_zone {
        return Ok(());
    }
    Err(new(Object::ZoneGroups, group, body::zone_group(&network.zone)))
}
