//! A Service of type LoadBalancer: which objects it needs, in which order they are written, and what it wants of each.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use lazuli_engine::service::{Level, Order, Role, Seen, Service};
use lazuli_model::{ArmId, ServiceKey, address::Family};
use lazuli_services::{
    ask::{AddressAsk, Ask, Denial, PublicIpAsk, SecurityProtocol, Side, names::BaseName},
    network::{self, Settings, load_balancer, private_link, public_ip, security_group, subnet},
    service::{
        Peers,
        wants::{self, Former, Stage},
    },
};

use super::{
    Key, Report,
    discovery::Place,
    report::{Frontend, ports},
    sharing::{self, Standing},
};

/// A Service that Azure balances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balanced;

/// A valid Service with its objects found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// What it asks for.
    pub ask: Ask,
    /// The load balancer that it is placed on.
    pub load_balancer: ArmId,
    /// The public IP of each family of a public Service.
    pub public_ips: BTreeMap<Family, ArmId>,
    /// Its private link service, if it asks for one.
    pub private_link: Option<ArmId>,
    /// The subnet of that, whose policies must let it in.
    pub private_link_subnet: Option<ArmId>,
}

/// What the wants of all Services depend on beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inputs {
    /// The cloud configuration.
    pub settings: Settings,
    /// The addresses of the backends: destinations of security rules where floating IP is off.
    pub nodes: BTreeSet<IpAddr>,
    /// The addresses of all Nodes, backends or not: nothing is denied there.
    pub all_nodes: BTreeSet<IpAddr>,
    /// Load balancers whose pool of NICs has no member yet and gets one.
    pub without_members: BTreeSet<ArmId>,
    /// The Services of the cluster, which may own addresses that others use.
    pub peers: Arc<Peers>,
    /// The security group of the cloud configuration.
    security_group: Option<ArmId>,
}

impl Inputs {
    /// What the settings and the addresses of the backends make.
    pub fn new(settings: Settings, nodes: BTreeSet<IpAddr>) -> Self {
        let security_group = settings.security_group_id().ok();
        let all_nodes = nodes.clone();
        let (without_members, peers) = (BTreeSet::new(), Arc::default());
        Self { settings, nodes, all_nodes, without_members, peers, security_group }
    }
}

/// What a Service wants of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// Of a public IP.
    PublicIp(network::Want<public_ip::Part, public_ip::Gone>),
    /// Of a load balancer.
    LoadBalancer(network::Want<load_balancer::Part, load_balancer::Gone>),
    /// Of the security group.
    SecurityGroup(network::Want<security_group::Part, security_group::Gone>),
    /// Of a private link service.
    PrivateLink(network::Want<private_link::Part, private_link::Gone>),
    /// Of a subnet.
    Subnet(subnet::Want),
}

impl Spec {
    /// Whether an object is among those that the Service needs.
    fn needs(&self, key: &Key, inputs: &Inputs) -> bool {
        match key {
            Key::PublicIp(id) => self.public_ips.values().any(|needed| needed == id),
            Key::LoadBalancer(id) => self.load_balancer == *id,
            Key::SecurityGroup(id) => inputs.security_group.as_ref() == Some(id),
            Key::PrivateLink(id) => self.private_link.as_ref() == Some(id),
            Key::Subnet(id) => self.private_link_subnet.as_ref() == Some(id),
        }
    }

    /// Whether its address may be that of another Service or of a user.
    fn may_share_its_address(&self) -> bool {
        self.ask.families.iter().any(|family| match &family.address {
            AddressAsk::Public(ask) => !matches!(ask, PublicIpAsk::Managed { .. }),
            AddressAsk::Private { address, .. } => address.is_some(),
        })
    }
}

/// The ports of addresses at which a security group admits or denies for a Service. The nodes, which rules name where
/// floating IP is off, are not among the addresses: every Service gives them up by its ports.
pub type Admission = BTreeMap<IpAddr, BTreeSet<(SecurityProtocol, u16)>>;

impl Service for Balanced {
    type Identity = ServiceKey;
    type Spec = Spec;
    type Key = Key;
    type Want = Want;
    type Report = Report;
    /// The addresses, in the order of the status.
    type Status = Vec<IpAddr>;
    type Inputs = Inputs;
    type Admission = Admission;
    type Place = Place;

    fn place(key: &Key) -> Option<Place> {
        Place::of(key)
    }

    fn has_part(want: &Want, report: &Report) -> Option<bool> {
        match want {
            Want::PublicIp(_) if report.is_tagged => Some(true),
            // An absence proves nothing of a write whose answer was lost, before that is looked for to be removed.
            Want::PublicIp(network::Want { gone, .. }) => {
                (report.exists || *gone != public_ip::Gone::Nothing).then_some(false)
            }
            Want::LoadBalancer(_) | Want::SecurityGroup(_) => Some(true),
            Want::PrivateLink(network::Want { present, .. }) if present.link.is_some() => Some(true),
            Want::PrivateLink(network::Want { gone, .. }) => (*gone != private_link::Gone::Nothing).then_some(false),
            // What was let in stays.
            Want::Subnet(_) => Some(false),
        }
    }

    /// A load balancer and a security group always count as parts, and what a subnet let in stays.
    fn is_absent(report: &Report) -> bool {
        !report.exists
    }

    fn role(key: &Key) -> Role {
        match key {
            Key::PublicIp(_) => Role::PublicIp,
            Key::LoadBalancer(_) => Role::LoadBalancer,
            Key::SecurityGroup(_) => Role::SecurityGroup,
            Key::PrivateLink(_) => Role::PrivateLink,
            // Its stage is the one before that of the private link service.
            Key::Subnet(_) => Role::Members,
        }
    }

    fn keys(_: &ServiceKey, spec: &Spec, inputs: &Inputs) -> BTreeSet<Key> {
        let mut keys: BTreeSet<Key> = spec.public_ips.values().cloned().map(Key::PublicIp).collect();
        keys.insert(Key::LoadBalancer(spec.load_balancer.clone()));
        keys.extend(inputs.security_group.clone().map(Key::SecurityGroup));
        keys.extend(spec.private_link.clone().map(Key::PrivateLink));
        keys.extend(spec.private_link_subnet.clone().map(Key::Subnet));
        keys
    }

    fn order(_: &ServiceKey, spec: &Spec, seen: &Seen<'_, Self>, _: &Inputs) -> Order {
        let ask = &spec.ask;
        let denies = ask.access.has_rules && ask.access.denial != Denial::None;
        let shown = seen.reports.get(&Key::LoadBalancer(spec.load_balancer.clone()));
        let serves = shown.is_some_and(|report| !report.frontends.is_empty());
        match ask.side {
            Side::Internal if denies => Order::FrontendFirst,
            Side::Internal => Order::LoadBalancerFirst,
            Side::Public if spec.may_share_its_address() => Order::SecurityAround,
            // Where floating IP is off the rules name nodes, which must admit before a node joins.
            Side::Public if denies || serves || !ask.floating_ip => Order::SecurityFirst,
            Side::Public => Order::Parallel,
        }
    }

    fn want(
        id: &ServiceKey,
        spec: Option<&Spec>,
        key: &Key,
        level: Level,
        seen: &Seen<'_, Self>,
        inputs: &Inputs,
    ) -> Want {
        let stays = spec.is_some_and(|spec| spec.ask.private_link_stays);
        let spec = spec.filter(|spec| spec.needs(key, inputs));
        match key {
            Key::PublicIp(public_ip) => {
                let mut want = of_public_ip(spec, public_ip, level, seen);
                if let Some(usage) = &mut want.present.usage {
                    usage.outside = outside(usage, public_ip, seen, &inputs.settings);
                }
                Want::PublicIp(want)
            }
            Key::LoadBalancer(_) => Want::LoadBalancer(of_load_balancer(id, spec, key, level, seen, inputs)),
            Key::SecurityGroup(_) => Want::SecurityGroup(of_security_group(id, spec, level, seen, inputs)),
            Key::PrivateLink(_) if stays => Want::PrivateLink(network::Want {
                present: private_link::Part::default(),
                gone: private_link::Gone::Nothing,
            }),
            Key::PrivateLink(_) => Want::PrivateLink(of_private_link(id, spec, level, seen, inputs)),
            // What was let in stays: other private link services may have addresses there.
            Key::Subnet(_) => {
                let is_own = spec.is_some_and(|spec| has_own_frontend(id, spec, seen, inputs));
                Want::Subnet(subnet::Want { lets_private_links_in: is_own && level >= Level::Make })
            }
        }
    }

    fn note_admission(want: &Want, inputs: &Inputs, noted: &mut Admission) {
        let Want::SecurityGroup(network::Want { present, .. }) = want else { return };
        let is_node = |address: &IpAddr| inputs.nodes.contains(address);
        // Of what is asked for ahead only the ports with a load-balancing rule count: the others are not made yet.
        let allows = present.allow.iter().chain(present.guest.allow.iter().map(|guest| &guest.asked));
        for allow in allows {
            for address in allow.destinations.iter().filter(|address| !is_node(address)) {
                noted.entry(*address).or_default().extend(allow.ports.iter().map(|port| (allow.protocol, *port)));
            }
        }
        for security_group::GuestAllow { asked, with_rules } in &present.ahead {
            for address in asked.destinations.iter().filter(|address| !is_node(address)) {
                noted.entry(*address).or_default().extend(with_rules.iter().map(|port| (asked.protocol, *port)));
            }
        }
        for address in present.denials_stay().filter(|address| !is_node(address)) {
            noted.entry(address).or_default();
        }
        for (address, ports) in present.keep.iter().filter(|(address, _)| !is_node(address)) {
            noted.entry(*address).or_default().extend(ports);
        }
    }

    fn awaits_members(spec: &Spec, inputs: &Inputs) -> Option<(Key, String)> {
        let what = || "waits until the NIC of a Node has joined its backend pool".to_owned();
        let is_empty = inputs.without_members.contains(&spec.load_balancer);
        is_empty.then(|| (Key::LoadBalancer(spec.load_balancer.clone()), what()))
    }

    fn asks_the_same(one: &Spec, other: &Spec) -> bool {
        one.ask == other.ask
    }

    /// A status that has the same addresses in another order stays as it is: the Go manager writes that of the frontends.
    fn status(_: &ServiceKey, spec: &Spec, seen: &Seen<'_, Self>, _: &Inputs) -> Option<Vec<IpAddr>> {
        let status = wants::ingress(&spec.ask, &addresses(spec, seen))?;
        let is_same = |there: &&Vec<IpAddr>| wants::is_same_ingress(there, &status);
        Some(seen.status.filter(is_same).cloned().unwrap_or(status))
    }

    fn gives_way(_: &ServiceKey, spec: &Spec, key: &Key, seen: &Seen<'_, Self>, _: &Inputs) -> bool {
        let Some(report) = seen.reports.get(key) else { return false };
        let asks = |frontend: &Frontend| {
            spec.ask.families.iter().any(|family| match (&family.address, frontend) {
                (AddressAsk::Public(_), Frontend::Public(id)) => spec.public_ips.get(&family.family) == Some(id),
                (AddressAsk::Private { address, previous, .. }, Frontend::Private(there)) => {
                    address.or(*previous) == Some(*there)
                }
                _ => false,
            })
        };
        report.frontends.difference(&report.shared).any(asks)
    }

    /// The Go manager writes the addresses in the order of the frontends.
    fn is_same_status(one: &Vec<IpAddr>, other: &Vec<IpAddr>) -> bool {
        wants::is_same_ingress(one, other)
    }
}

/// The addresses that the Service is reached at, as far as they are known.
fn addresses(spec: &Spec, seen: &Seen<'_, Balanced>) -> BTreeMap<Family, IpAddr> {
    let balancer = seen.reports.get(&Key::LoadBalancer(spec.load_balancer.clone()));
    let address = |family: Family| match spec.public_ips.get(&family) {
        Some(id) => seen.reports.get(&Key::PublicIp(id.clone()))?.address,
        None => balancer?.found.addresses.get(&family).copied(),
    };
    spec.ask.families.iter().filter_map(|family| Some((family.family, address(family.family)?))).collect()
}

/// The addresses in the Service's status, where it may not name anything of the resource group of a public IP or its prefix.
fn outside(
    usage: &public_ip::Use,
    id: &ArmId,
    seen: &Seen<'_, Balanced>,
    settings: &Settings,
) -> Option<BTreeSet<IpAddr>> {
    let prefix = match &usage.creation {
        public_ip::Creation::Make { prefix } => prefix.as_ref(),
        public_ip::Creation::MustExist => None,
    };
    let is_allowed = |id: &ArmId| settings.allows_group(id.resource_group());
    let is_outside = !is_allowed(id) || !prefix.is_none_or(is_allowed);
    is_outside.then(|| seen.status.into_iter().flatten().copied().collect())
}

fn of_public_ip(spec: Option<&Spec>, id: &ArmId, level: Level, seen: &Seen<'_, Balanced>) -> public_ip::Want {
    let shown = seen.reports.get(&Key::PublicIp(id.clone()));
    // A load balancer has shown that the frontend of it stays.
    let is_kept = seen.reports.values().any(|report| report.found.released.contains(id));
    let nothing = network::Want { present: public_ip::Part::default(), gone: public_ip::Gone::Nothing };
    if level == Level::Look {
        return nothing;
    }
    let asked = spec.and_then(|spec| {
        let family = *spec.public_ips.iter().find(|(_, public_ip)| *public_ip == id)?.0;
        spec.ask.families.iter().find_map(|ask| match &ask.address {
            AddressAsk::Public(public_ip) if ask.family == family => Some(wants::public_ip(public_ip, family)),
            _ => None,
        })
    });
    match asked {
        Some(want) => want,
        None if level < Level::Clean => nothing,
        None if shown.is_some_and(|report| report.is_shared) => wants::public_ip_left_to_others(),
        None if is_kept => wants::public_ip_kept_by_frontend(),
        // A load balancer that has nothing left to remove keeps the frontend for others.
        None if seen.reports.values().any(|report| report.frontends.contains(&Frontend::Public(id.clone()))) => {
            wants::public_ip_released_unless_used()
        }
        None => wants::public_ip_released(),
    }
}

/// How far the Service's stages go with an object.
fn stage(level: Level) -> Stage {
    match level {
        Level::Look => Stage::Looking,
        Level::Frontend => Stage::Frontends,
        Level::Make => Stage::Adding,
        Level::Quiet => Stage::Quieting,
        Level::Clean => Stage::Trimming,
    }
}

fn of_load_balancer(
    id: &ServiceKey,
    spec: Option<&Spec>,
    key: &Key,
    level: Level,
    seen: &Seen<'_, Balanced>,
    inputs: &Inputs,
) -> network::Want<load_balancer::Part, load_balancer::Gone> {
    let settings = &inputs.settings;
    // Only a private address is open to more sources without a security rule. On an address that Services share the rules
    // are the record of which security rules are the Service's own: they outlive those.
    let is_shared = spec.is_some_and(Spec::may_share_its_address)
        || seen.reports.values().any(|report| report.is_tagged && report.is_shared);
    let mut frontends = seen.reports.get(key).into_iter().flat_map(|report| &report.frontends);
    let is_private = frontends.any(|frontend| matches!(frontend, Frontend::Private(_)));
    let stage = match stage(level) {
        Stage::Quieting if is_shared || !is_private => Stage::Adding,
        stage => stage,
    };
    // Without its rules a shared frontend that bears another Service's name shows nothing of this one.
    let former = Former {
        addresses: unshown(spec, seen),
        public_ips: seen.reports.iter().filter_map(|(key, report)| given_up_public_ip(key, report, spec)).collect(),
    };
    let asked = spec.and_then(|spec| wants::load_balancer(&spec.ask, settings, &spec.public_ips, &former, stage).ok());
    asked.unwrap_or_else(|| wants::load_balancer_left(id, settings, &former, stage))
}

/// The public IP that lists the Service and that it does not ask for.
fn given_up_public_ip(key: &Key, report: &Report, spec: Option<&Spec>) -> Option<ArmId> {
    let Key::PublicIp(id) = key else { return None };
    let is_asked = spec.is_some_and(|spec| spec.public_ips.values().any(|public_ip| public_ip == id));
    (report.is_tagged && !is_asked).then(|| id.clone())
}

fn of_security_group(
    id: &ServiceKey,
    spec: Option<&Spec>,
    level: Level,
    seen: &Seen<'_, Balanced>,
    inputs: &Inputs,
) -> network::Want<security_group::Part, security_group::Gone> {
    let mut want = network::Want { present: security_group::Part::default(), gone: security_group::Gone::default() };
    if level == Level::Look {
        return want;
    }
    if let Some(spec) = spec {
        let frontends: BTreeSet<IpAddr> = addresses(spec, seen).into_values().collect();
        let former = Former::default();
        want.present = wants::security_group(&spec.ask, &frontends, &inputs.nodes, &former, Stage::Adding).present;
        wants::at_addresses_of_others(&mut want.present, &of_others(id, spec, seen, inputs));
        if level == Level::Frontend {
            want.present.go_ahead(&ports(seen.reports.values().map(|report| &**report)));
        }
        // The rules that stay may be of ports that only the load balancer still has.
        let shown = ports(seen.reports.values().chain(seen.left.values()).map(|report| &**report));
        want.present.keep.values_mut().for_each(|kept| kept.extend(&shown));
    }
    match level {
        Level::Make => want.gone.destinations = unshown(spec, seen),
        Level::Clean => {
            want.gone = given_up(id, spec, seen);
            // While the cluster has no Node, rules that name nodes stay for the Services that are served.
            let is_at_nodes = spec.is_some_and(|spec| !spec.ask.floating_ip);
            want.gone.nodes &= !(is_at_nodes && inputs.nodes.is_empty());
        }
        Level::Look | Level::Frontend | Level::Quiet => {}
    }
    for address in want.present.guest.keep.iter().chain(want.present.keep.keys()) {
        want.gone.destinations.remove(address);
        want.gone.shared.remove(address);
    }
    // Rules at the nodes stay for it there, if it is reached there.
    want.gone.nodes &= !want.present.keep.keys().any(|address| inputs.nodes.contains(address));
    want
}

/// The addresses of other Services that do not agree with what this one does there beside its load-balancing rules, and the
/// ports for which it has such rules there.
fn of_others(id: &ServiceKey, spec: &Spec, seen: &Seen<'_, Balanced>, inputs: &Inputs) -> Admission {
    let balancer = seen.reports.get(&Key::LoadBalancer(spec.load_balancer.clone()));
    let is_of_others = |family: Family| sharing::standing(id, spec, family, seen, &inputs.peers).is_restricted();
    let ports_at = |family: Family, address: IpAddr| {
        let public = spec.public_ips.get(&family).cloned().map(Frontend::Public);
        let frontend = public.unwrap_or(Frontend::Private(address));
        balancer.and_then(|report| report.ports_at.get(&frontend)).cloned().unwrap_or_default()
    };
    let all = addresses(spec, seen).into_iter().filter(|(family, _)| is_of_others(*family));
    all.map(|(family, address)| (address, ports_at(family, address))).collect()
}

/// The addresses of the status that nothing shows any more. A frontend keeps its name when its address changes, so one write
/// replaces the address; and a frontend that bears another Service's name is shown only while rules use it. From then on
/// only the status is a record of the security rules for the former address: they go before the status changes.
fn unshown(spec: Option<&Spec>, seen: &Seen<'_, Balanced>) -> BTreeSet<IpAddr> {
    let address = |frontend: &Frontend| match frontend {
        Frontend::Private(address) => Some(*address),
        Frontend::Public(id) => seen.reports.get(&Key::PublicIp(id.clone())).and_then(|shown| shown.address),
    };
    let frontends = seen.reports.values().flat_map(|report| &report.frontends);
    let shown: Option<BTreeSet<IpAddr>> = frontends.map(address).collect();
    // An address that is not known may be the one in the status.
    let Some(mut known) = shown.filter(|_| seen.is_complete) else { return BTreeSet::new() };
    known.extend(seen.reports.values().filter(|report| report.is_tagged).filter_map(|report| report.address));
    if let Some(spec) = spec {
        known.extend(addresses(spec, seen).into_values().chain(spec.ask.additional_addresses.iter().copied()));
    }
    seen.status.into_iter().flatten().filter(|address| !known.contains(address)).copied().collect()
}

/// All addresses at which the objects show something of the Service. The planner keeps what any Service asks for there. Of
/// an address that other Services use, only the Service's own ports are given up.
fn given_up(id: &ServiceKey, spec: Option<&Spec>, seen: &Seen<'_, Balanced>) -> security_group::Gone {
    let (mut all, mut shared): (BTreeSet<IpAddr>, BTreeSet<IpAddr>) = Default::default();
    let mut note = |address: Option<IpAddr>, is_shared: bool| {
        all.extend(address);
        shared.extend(address.filter(|_| is_shared));
    };
    let public_ips = seen.reports.iter().filter_map(|(key, report)| match key {
        Key::PublicIp(id) => Some((report.address?, id.clone())),
        _ => None,
    });
    let public_ips: BTreeMap<IpAddr, ArmId> = public_ips.collect();
    for (key, report) in seen.reports {
        if matches!(key, Key::PublicIp(_)) && report.is_tagged {
            note(report.address, report.is_shared);
        }
        for frontend in &report.frontends {
            match frontend {
                Frontend::Private(address) => note(Some(*address), report.shared.contains(frontend)),
                Frontend::Public(id) => {
                    let shown = seen.reports.get(&Key::PublicIp(id.clone()));
                    note(
                        shown.and_then(|shown| shown.address),
                        report.shared.contains(frontend) || shown.is_some_and(|shown| shown.is_shared),
                    );
                }
            }
        }
    }
    let own = ports(seen.reports.values().chain(seen.left.values()).map(|report| &**report));
    let mut destinations: BTreeSet<IpAddr> = all.difference(&shared).copied().collect();
    // The Go manager leaves a rule for the frontend where floating IP was switched off. It does no harm until the Service
    // changes.
    if let Some(spec) = spec.filter(|spec| !spec.ask.floating_ip && !seen.has_changed) {
        let here: BTreeSet<IpAddr> = addresses(spec, seen).into_values().collect();
        destinations.retain(|address| !here.contains(address));
    }
    destinations.extend(spec.iter().flat_map(|spec| &spec.ask.additional_addresses));
    destinations.extend(unshown(spec, seen));
    let told_at = |address: &IpAddr| seen.told.get(address).into_iter().flatten().copied();
    let ports_at = |address: IpAddr| (address, own.iter().copied().chain(told_at(&address)).collect());
    let mut shared: Admission = shared.into_iter().map(ports_at).collect();
    // An address that nothing shows as the Service's may be another's.
    for (address, ports) in seen.told.iter().filter(|(address, _)| !destinations.contains(address)) {
        shared.entry(*address).or_insert_with(|| ports.clone());
    }
    // Where floating IP is or was off, the Service's rules name the nodes.
    security_group::Gone { destinations, nodes: true, shared, public_ips, base: Some(BaseName::of(id)) }
}

/// Whether the frontend that a private link service would be in front of is the Service's own.
fn has_own_frontend(id: &ServiceKey, spec: &Spec, seen: &Seen<'_, Balanced>, inputs: &Inputs) -> bool {
    sharing::standing(id, spec, Family::V4, seen, &inputs.peers) == Standing::Own
}

fn of_private_link(
    id: &ServiceKey,
    spec: Option<&Spec>,
    level: Level,
    seen: &Seen<'_, Balanced>,
    inputs: &Inputs,
) -> network::Want<private_link::Part, private_link::Gone> {
    let asked = spec.filter(|_| level >= Level::Make).and_then(|spec| {
        let balancer = seen.reports.get(&Key::LoadBalancer(spec.load_balancer.clone()))?;
        let frontend = balancer.found.frontends.get(&Family::V4)?;
        let mut want = wants::private_link(&spec.ask, &inputs.settings, frontend).ok()??;
        if let Some(link) = &mut want.present.link {
            link.is_own = has_own_frontend(id, spec, seen, inputs);
            link.is_allowed = inputs.settings.allows_group(&link.ask.resource_group);
        }
        Some(want)
    });
    match spec {
        None if level == Level::Clean => wants::private_link_released(),
        _ => asked.unwrap_or_else(|| network::Want {
            present: private_link::Part::default(),
            gone: private_link::Gone::Nothing,
        }),
    }
}
