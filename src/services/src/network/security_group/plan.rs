//! What a security group needs for all Services at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::{
    ServiceKey,
    address::{Cidr, Family, aggregate},
};

use super::{
    Allow, Env, FIRST_PRIORITY, Gone, GuestAllow, GuestPart, LAST_PRIORITY, Part, Wants,
    edit::Edit,
    limits,
    model::{SecurityGroup, SecurityRule, same_prefix},
    users,
};
use crate::{
    ask::{
        SecurityProtocol,
        names::{self, BaseName, OldSecurityRule},
    },
    network::{Found, Plan, Refusal, RefusalReason, Served},
};

/// The service tag of all addresses outside virtual networks.
const INTERNET: &str = "Internet";

/// A rule of this provider and the destinations that a Service asks it to have.
#[derive(Debug, Clone)]
struct Asked {
    /// The rule without destinations and priority.
    rule: SecurityRule,
    destinations: BTreeSet<IpAddr>,
    is_deny: bool,
}

fn asked_allow(allow: &Allow) -> Asked {
    let mut sources = allow.sources.clone();
    sources.sort_unstable();
    sources.dedup();
    let mut ports = allow.ports.clone();
    ports.sort_unstable();
    ports.dedup();
    Asked {
        rule: SecurityRule {
            name: names::allow_rule(allow.protocol, allow.family, &sources, &ports),
            priority: 0,
            is_allow: true,
            is_inbound: true,
            protocol: allow.protocol.as_str().to_owned(),
            sources,
            source_ports: vec!["*".to_owned()],
            destinations: vec![],
            ports: names::port_texts(&ports),
            has_groups: false,
        },
        destinations: allow.destinations.clone(),
        is_deny: false,
    }
}

fn asked_deny(family: Family, destinations: BTreeSet<IpAddr>) -> Asked {
    let all = || vec!["*".to_owned()];
    Asked {
        rule: SecurityRule {
            name: names::deny_all_rule(family),
            priority: 0,
            is_allow: false,
            is_inbound: true,
            protocol: SecurityProtocol::Any.as_str().to_owned(),
            sources: all(),
            source_ports: all(),
            destinations: vec![],
            ports: all(),
            has_groups: false,
        },
        destinations,
        is_deny: true,
    }
}

/// The destinations at which something is allowed for Services, with the Services.
type Allowed<'a> = BTreeMap<IpAddr, Vec<&'a ServiceKey>>;

fn allowed(wants: &Wants) -> Allowed<'_> {
    let mut all = Allowed::new();
    // Only who spares others asks.
    if wants.values().any(|want| !want.present.deny_alone.is_empty()) {
        for (service, want) in wants {
            for address in want.present.allows().flat_map(|allow| &allow.destinations) {
                all.entry(*address).or_default().push(service);
            }
        }
    }
    all
}

/// The destinations that a part of a Service denies.
fn denied(service: &ServiceKey, part: &Part, allowed: &Allowed, env: &Env) -> BTreeSet<IpAddr> {
    let is_anothers = |address: &IpAddr| {
        let base = lower(&BaseName::of(service));
        let mut by_status = env.reached.range((*address, String::new())..).take_while(|(there, _)| there == address);
        allowed.get(address).is_some_and(|services| services.iter().any(|there| *there != service))
            || by_status.any(|(_, there)| *there != base)
    };
    let alone = part.deny_alone.iter().filter(|address| !is_anothers(address));
    part.deny_all.iter().chain(alone).copied().filter(|address| !env.is_node(*address)).collect()
}

/// The rules that a part asks for. Deny rules come first: they exist before what they guard is reachable.
fn asked(part: &Part, denied: &BTreeSet<IpAddr>) -> Vec<Asked> {
    let denied = [Family::V4, Family::V6].into_iter().filter_map(|family| {
        let of_family: BTreeSet<IpAddr> =
            denied.iter().filter(|address| Family::of(**address) == family).copied().collect();
        (!of_family.is_empty()).then(|| asked_deny(family, of_family))
    });
    let allowed = part.allow.iter().filter(|allow| !allow.destinations.is_empty()).map(asked_allow);
    denied.chain(allowed).collect()
}

/// The rules that a part asks for at addresses of others: those that the group shows, and what is made beside them. `out` gets
/// the addresses where something is not made.
fn as_guest(part: &GuestPart, shown: &Index, out: &mut BTreeSet<IpAddr>) -> Vec<Asked> {
    let mut rules = Vec::new();
    for family in [Family::V4, Family::V6] {
        let of_family = part.deny_all.iter().copied().filter(|address| Family::of(*address) == family);
        let asked = asked_deny(family, of_family.collect());
        let (there, missing): (BTreeSet<_>, BTreeSet<_>) =
            asked.destinations.iter().copied().partition(|address| shown.serves(&asked, *address));
        out.extend(missing);
        if !there.is_empty() {
            rules.push(Asked { destinations: there, ..asked });
        }
    }
    for GuestAllow { asked, with_rules } in &part.allow {
        for address in &asked.destinations {
            let may_be_open = |port: &&u16| with_rules.contains(port) || shown.admits(asked, *address, **port);
            let ports: Vec<u16> = asked.ports.iter().filter(may_be_open).copied().collect();
            out.extend(Some(*address).filter(|_| ports.len() < asked.ports.len()));
            if !ports.is_empty() {
                let destinations = [*address].into();
                rules.push(asked_allow(&Allow { ports, destinations, ..asked.clone() }));
            }
        }
    }
    rules
}

/// The rules that a part asks for before the load balancer has its rules.
fn ahead(part: &Part, shown: &Index) -> Vec<Asked> {
    let mut rules = Vec::new();
    for GuestAllow { asked, with_rules } in &part.ahead {
        let at = |address: &IpAddr| Allow { destinations: [*address].into(), ..asked.clone() };
        for address in &asked.destinations {
            let whole = asked_allow(&at(address));
            if shown.serves(&whole, *address) {
                rules.push(whole);
                continue;
            }
            let ports: Vec<u16> = asked.ports.iter().copied().filter(|port| with_rules.contains(port)).collect();
            if !ports.is_empty() {
                rules.push(asked_allow(&Allow { ports, ..at(address) }));
            }
        }
    }
    rules
}

/// The event of a Service that asks for more at the address of another one than is made there.
fn not_made(addresses: &BTreeSet<IpAddr>) -> Refusal {
    let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    let message = format!(
        "{} is the address of another Service, whose owner has not agreed: ports without a load-balancing rule get no security \
         rule there, and what no range admits is not denied",
        addresses.join(", ")
    );
    Refusal::new(RefusalReason::SharedAddress, message)
}

/// Whether a rule of this provider, under whatever hash, allows at a destination exactly what another one would.
fn allows_the_same(there: &SecurityRule, rule: &SecurityRule, destination: IpAddr, denied: &BTreeSet<IpAddr>) -> bool {
    let is_default_let_in = is_private(destination) && !denied.contains(&destination);
    there.is_managed()
        && there.is_allow
        && rule.is_allow
        && there.has_same_effect(&SecurityRule { sources: there.sources.clone(), ..rule.clone() })
        && sources_in_short(&there.sources, is_default_let_in) == sources_in_short(&rule.sources, is_default_let_in)
}

/// The fewest sources that say the same: ranges aggregated, service tags in lower case. Where the virtual network is let in
/// by default, `Internet` stands for all addresses.
fn sources_in_short(sources: &[String], is_default_let_in: bool) -> BTreeSet<String> {
    let ranges = aggregate(sources.iter().filter_map(|source| source.parse::<Cidr>().ok()));
    let tags = sources.iter().filter(|source| source.parse::<Cidr>().is_err()).map(|tag| tag.to_ascii_lowercase());
    let range = |range: &Cidr| {
        if is_default_let_in && range.is_everything() { INTERNET.to_ascii_lowercase() } else { range.to_string() }
    };
    ranges.iter().map(range).chain(tags).collect()
}

/// Whether an address is one of a virtual network for certain.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

/// The destinations of a rule that are addresses.
fn addresses(rule: &SecurityRule) -> impl Iterator<Item = IpAddr> {
    rule.destinations.iter().filter_map(|text| text.parse().ok())
}

/// A rule of the security group with its destinations parsed: each Service asks about them.
struct Shown<'a> {
    rule: &'a SecurityRule,
    addresses: BTreeSet<IpAddr>,
}

/// What the security group shows, by rule.
struct Index<'a> {
    by_name: BTreeMap<String, Shown<'a>>,
    /// The rules of this provider that allow, by destination.
    allowing: BTreeMap<IpAddr, Vec<&'a SecurityRule>>,
    /// The rules from before 1.30 that allow.
    old: Vec<Shown<'a>>,
    /// The destinations that a rule of this provider denies, or is to deny.
    denied: BTreeSet<IpAddr>,
}

impl<'a> Index<'a> {
    fn of<'b>(actual: &'a SecurityGroup, asked: impl IntoIterator<Item = &'b Asked>) -> Self {
        let shown = |rule: &'a SecurityRule| Shown { rule, addresses: addresses(rule).collect() };
        let mut by_name = BTreeMap::new();
        let mut allowing: BTreeMap<IpAddr, Vec<&SecurityRule>> = BTreeMap::new();
        let asked = asked.into_iter().filter(|asked| asked.is_deny);
        let mut denied: BTreeSet<IpAddr> = asked.flat_map(|asked| asked.destinations.iter().copied()).collect();
        for rule in &actual.rules {
            by_name.entry(rule.name.to_ascii_lowercase()).or_insert_with(|| shown(rule));
            if !rule.is_managed() {
                continue;
            }
            match rule.is_allow {
                true => addresses(rule).for_each(|address| allowing.entry(address).or_default().push(rule)),
                false => denied.extend(addresses(rule)),
            }
        }
        let is_old =
            |rule: &&SecurityRule| rule.is_allow && rule.is_inbound && names::old_security_rule(&rule.name).is_some();
        Self { by_name, allowing, old: actual.rules.iter().filter(is_old).map(shown).collect(), denied }
    }

    /// Whether the security group does for one destination what a rule asks.
    fn serves(&self, asked: &Asked, destination: IpAddr) -> bool {
        let by_name = self
            .by_name
            .get(&asked.rule.name.to_ascii_lowercase())
            .is_some_and(|there| there.addresses.contains(&destination) && there.rule.has_same_effect(&asked.rule));
        let by_meaning = || {
            let there = self.allowing.get(&destination).into_iter().flatten();
            there.copied().any(|there| allows_the_same(there, &asked.rule, destination, &self.denied))
        };
        by_name || by_meaning() || self.serves_by_old(&asked.rule, destination)
    }

    /// Whether a port of a destination is open to the sources of an allow rule.
    fn admits(&self, allow: &Allow, destination: IpAddr, port: u16) -> bool {
        let by_name = self.allowing.get(&destination).into_iter().flatten().copied();
        let old = self.old.iter().filter(|old| old.addresses.contains(&destination)).map(|old| old.rule);
        by_name.chain(old).any(|rule| {
            let has = |source: &String| rule.sources.iter().any(|there| same_prefix(there, source));
            admits(rule, allow.protocol, port) && allow.sources.iter().all(has)
        })
    }

    /// Whether rules from before 1.30 do for a destination what an allow rule would do.
    fn serves_by_old(&self, rule: &SecurityRule, destination: IpAddr) -> bool {
        rule.is_allow
            && rule.sources.iter().all(|source| {
                rule.ports.iter().all(|port| {
                    self.old.iter().any(|old| {
                        old.addresses.contains(&destination)
                            && old.rule.protocol.eq_ignore_ascii_case(&rule.protocol)
                            && old.rule.ports.iter().any(|there| there == port)
                            && old.rule.sources.iter().any(|there| same_prefix(there, source))
                    })
                })
            })
    }

    fn serves_all(&self, rules: &[Asked]) -> bool {
        rules.iter().all(|rule| rule.destinations.iter().all(|address| self.serves(rule, *address)))
    }
}

/// Plans one write of the security group.
pub fn plan(wants: &Wants, actual: Option<&SecurityGroup>, env: &Env) -> Plan<Edit> {
    let Some(actual) = actual else { return without_group(wants, env) };
    let allowed = allowed(wants);
    let depends_on_shown = wants.values().any(|want| want.present.depends_on_shown());
    let shown = depends_on_shown.then(|| Index::of(actual, std::iter::empty()));
    let mut left_out: BTreeMap<&ServiceKey, BTreeSet<IpAddr>> = BTreeMap::new();
    let mut parts: BTreeMap<&ServiceKey, Vec<Asked>> = BTreeMap::new();
    for (service, want) in wants {
        let mut rules = asked(&want.present, &denied(service, &want.present, &allowed, env));
        if let Some(shown) = &shown {
            let out = left_out.entry(service).or_default();
            rules.extend(as_guest(&want.present.guest, shown, out));
            rules.extend(ahead(&want.present, shown));
        }
        parts.insert(service, rules);
    }
    let all: Vec<&Asked> = parts.values().flatten().collect();
    let index = Index::of(actual, all.iter().copied());
    // Services that are served already add nothing. A newcomer that exceeds a limit is the one that is refused.
    let is_newcomer = |service: &&ServiceKey| !index.serves_all(&parts[service]);
    let newcomers: BTreeSet<&ServiceKey> = wants.keys().filter(is_newcomer).collect();
    let mut refused: BTreeMap<ServiceKey, Refusal> = BTreeMap::new();
    let mut accepted: BTreeSet<&ServiceKey> = wants.keys().filter(|service| !newcomers.contains(service)).collect();
    let mut next = Rules::of(actual);
    for service in &newcomers {
        let service = *service;
        let mut with = next.clone();
        with.add(&parts[service], &index);
        match with.excess(&next) {
            None => {
                next = with;
                accepted.insert(service);
            }
            Some(message) => {
                let message = format!("security group {} {message}", env.id.name());
                refused.insert(service.clone(), Refusal::new(RefusalReason::LimitExceeded, message));
            }
        }
    }
    let gone: Vec<&Gone> = wants
        .iter()
        .filter(|(service, want)| accepted.contains(service) && !want.gone.is_nothing())
        .map(|(_, want)| &want.gone)
        .collect();
    let stays = Stays::of(wants);
    let (denied, at_nodes, known) = (&index.denied, AtNodes::of(wants, env), users::known(wants, &gone, env));
    let kept = Kept { actual, all: &all, stays, denied, env, at_nodes, known };
    next.remove(&Given::up(&gone), &kept);

    let mut edits = next.edits(actual);
    let change = env.tags.change(&actual.tags);
    if !change.is_empty() && parts.values().any(|rules| !rules.is_empty()) {
        edits.push(Edit::Tags { set: change.set, remove: change.remove });
    }
    let served = wants
        .iter()
        .map(|(service, want)| {
            let state = match refused.remove(service) {
                Some(refusal) => Served::Refused(refusal),
                None if !newcomers.contains(service) && !is_left(&want.gone, actual, &kept) => {
                    let notice = left_out.get(service).filter(|out| !out.is_empty()).map(not_made);
                    Served::Done(Found { notices: notice.into_iter().collect(), ..Found::default() })
                }
                None => Served::Pending,
            };
            (service.clone(), state)
        })
        .collect();
    Plan { edits, served, is_partial: false }
}

fn without_group(wants: &Wants, env: &Env) -> Plan<Edit> {
    let served = wants.iter().map(|(service, want)| {
        let part = &want.present;
        let state = if asked(part, &part.deny_all).is_empty() && !part.depends_on_shown() {
            Served::Done(Found::default())
        } else {
            let message = format!("security group {} does not exist; create it or correct securityGroupName", env.id);
            Served::Refused(Refusal::new(RefusalReason::NotFound, message))
        };
        (service.clone(), state)
    });
    Plan { edits: vec![], served: served.collect(), is_partial: false }
}

/// The destinations at which Services leave as it is what they do not ask for.
struct Stays {
    denials: BTreeSet<IpAddr>,
    /// Of rules that allow, those of these ports.
    ports: BTreeMap<IpAddr, BTreeSet<(SecurityProtocol, u16)>>,
}

impl Stays {
    fn of(wants: &Wants) -> Self {
        let parts = || wants.values().map(|want| &want.present);
        let mut ports: BTreeMap<IpAddr, BTreeSet<(SecurityProtocol, u16)>> = BTreeMap::new();
        for (address, own) in parts().flat_map(|part| &part.keep) {
            ports.entry(*address).or_default().extend(own);
        }
        Self { denials: parts().flat_map(Part::denials_stay).collect(), ports }
    }

    fn keeps(&self, rule: &SecurityRule, address: IpAddr) -> bool {
        match rule.is_allow {
            true => self.ports.get(&address).is_some_and(|ports| admits_one_of(rule, ports)),
            false => self.denials.contains(&address),
        }
    }
}

/// What keeps destinations in rules.
struct Kept<'a> {
    actual: &'a SecurityGroup,
    /// What all Services ask for.
    all: &'a [&'a Asked],
    stays: Stays,
    denied: &'a BTreeSet<IpAddr>,
    env: &'a Env,
    at_nodes: AtNodes<'a>,
    /// The shared addresses whose Services have all asked for their rules.
    known: BTreeSet<IpAddr>,
}

/// Which Services are reached at which ports of the nodes, by the base names of the Services.
struct AtNodes<'a> {
    by_port: BTreeMap<(SecurityProtocol, u16), Vec<&'a str>>,
    /// Those that have not told what they want.
    silent: Vec<&'a str>,
}

impl<'a> AtNodes<'a> {
    fn of(wants: &Wants, env: &'a Env) -> Self {
        let known: BTreeSet<String> = wants.keys().map(|service| lower(&BaseName::of(service))).collect();
        let mut by_port: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for (base, ports) in &env.node_ports {
            ports.iter().for_each(|port| by_port.entry(*port).or_default().push(base));
        }
        let silent = env.node_ports.keys().filter(|base| !known.contains(*base)).map(String::as_str).collect();
        Self { by_port, silent }
    }
}

pub(super) fn lower(base: &BaseName) -> String {
    base.as_str().to_lowercase()
}

/// What some Services give up.
struct Given<'a> {
    all: &'a [&'a Gone],
    /// The base names of those that give up the nodes; `None` when none does.
    nodes_of: Option<BTreeSet<String>>,
}

impl<'a> Given<'a> {
    fn up(all: &'a [&'a Gone]) -> Self {
        let give_up = || all.iter().filter(|gone| gone.nodes);
        let bases = || give_up().filter_map(|gone| gone.base.as_ref()).map(lower).collect();
        Self { all, nodes_of: give_up().next().map(|_| bases()) }
    }
}

impl Kept<'_> {
    fn asks_for(&self, rule: &SecurityRule, address: IpAddr) -> bool {
        if self.stays.keeps(rule, address) {
            return true;
        }
        let is_old = names::old_security_rule(&rule.name).is_some();
        self.all.iter().filter(|asked| asked.destinations.contains(&address)).any(|asked| {
            let same_traffic = is_old
                && asked.rule.is_allow == rule.is_allow
                && asked.rule.protocol.eq_ignore_ascii_case(&rule.protocol)
                && rule.ports.iter().any(|port| asked.rule.ports.contains(port))
                && rule.sources.iter().any(|source| asked.rule.sources.iter().any(|there| same_prefix(there, source)));
            asked.rule.name.eq_ignore_ascii_case(&rule.name)
                || same_traffic
                || allows_the_same(rule, &asked.rule, address, self.denied)
        })
    }

    /// Whether a Service without a valid specification may need it.
    fn may_need(&self, rule: &SecurityRule, address: IpAddr) -> bool {
        self.env.keep.get(&address).is_some_and(|ports| !rule.is_allow || admits_one_of(rule, ports))
    }

    /// Whether a rule at the nodes is given up: no Service that keeps the nodes is reached there through it. Which denials
    /// are its own is not known: they stay until it has told what it wants.
    fn gives_up_at_nodes(&self, rule: &SecurityRule, given: &Given) -> bool {
        let Some(nodes_of) = &given.nodes_of else { return false };
        let keeps = |base: &&str| !nodes_of.contains(*base);
        if !rule.is_allow {
            return !self.at_nodes.silent.iter().any(keeps);
        }
        let protocols = [SecurityProtocol::Tcp, SecurityProtocol::Udp, SecurityProtocol::Any];
        let protocol = protocols.into_iter().find(|one| rule.protocol.eq_ignore_ascii_case(one.as_str()));
        let ports = rule.ports.iter().filter_map(|text| Some((protocol?, text.parse().ok()?)));
        !ports.filter_map(|port| self.at_nodes.by_port.get(&port)).flatten().any(keeps)
    }

    /// Whether a denial guards an address for a Service that is not known: an allow rule stays there that no Service asks for.
    fn guards_others(&self, address: IpAddr, given: &Given) -> bool {
        self.actual.rules.iter().any(|rule| {
            let is_ours = rule.is_managed() || names::old_security_rule(&rule.name).is_some();
            let stays = || !self.asks_for(rule, address) && !self.lets_go(rule, address, given);
            rule.is_allow && is_ours && rule.has_destination(address) && stays()
        })
    }

    /// Whether a destination may leave a rule: a Service is known to have had it, and none asks for it.
    fn lets_go(&self, rule: &SecurityRule, address: IpAddr, given: &Given) -> bool {
        let gone = given.all;
        let is_ours = match names::old_security_rule(&rule.name) {
            None => rule.is_managed(),
            Some(OldSecurityRule::Shared) => true,
            Some(OldSecurityRule::Own { base }) => {
                gone.iter().any(|gone| gone.base.as_ref().is_some_and(|ours| ours.as_str().eq_ignore_ascii_case(base)))
            }
        };
        let is_node = self.env.nodes.contains(&address);
        let is_nobodys = rule.is_allow && self.known.contains(&address);
        let takes = |gone: &Gone| gone.takes(rule, address) || (is_nobodys && gone.shared.contains_key(&address));
        let is_given_up = |gone: &&Gone| gone.destinations.contains(&address) || takes(gone);
        let is_recorded = gone.iter().any(is_given_up)
            || self.env.departed.contains(&address)
            || (is_node && self.gives_up_at_nodes(rule, given))
            || (!rule.is_allow
                && gone.iter().any(|gone| gone.shared.contains_key(&address))
                && !self.guards_others(address, given));
        is_ours && is_recorded && !self.asks_for(rule, address) && !self.may_need(rule, address)
    }
}

/// Whether a rule names a port of a protocol.
fn admits(rule: &SecurityRule, protocol: SecurityProtocol, port: u16) -> bool {
    rule.protocol.eq_ignore_ascii_case(protocol.as_str()) && rule.ports.iter().any(|there| *there == port.to_string())
}

fn admits_one_of(rule: &SecurityRule, ports: &BTreeSet<(SecurityProtocol, u16)>) -> bool {
    ports.iter().any(|(protocol, port)| admits(rule, *protocol, *port))
}

impl Gone {
    /// Whether all ports of an allow rule are those at which the Service was reached at an address that others use too.
    fn takes(&self, rule: &SecurityRule, address: IpAddr) -> bool {
        let Some(own) = self.shared.get(&address).filter(|_| rule.is_allow) else { return false };
        rule.ports.iter().all(|text| {
            own.iter().any(|(protocol, port)| {
                rule.protocol.eq_ignore_ascii_case(protocol.as_str()) && *text == port.to_string()
            })
        })
    }
}

/// Whether something of a gone Service is left.
fn is_left(gone: &Gone, actual: &SecurityGroup, kept: &Kept) -> bool {
    let given = [gone];
    let given = Given::up(&given);
    let lets_go = |rule: &SecurityRule| addresses(rule).any(|address| kept.lets_go(rule, address, &given));
    !gone.is_nothing() && actual.rules.iter().any(lets_go)
}

/// The rules as they are to be.
#[derive(Debug, Clone)]
struct Rules {
    rules: Vec<SecurityRule>,
    /// Priorities in use, those of rules that leave included: Azure compares within one write.
    priorities: BTreeSet<u32>,
    is_exhausted: bool,
}

impl Rules {
    fn of(actual: &SecurityGroup) -> Self {
        Self {
            rules: actual.rules.clone(),
            priorities: actual.rules.iter().map(|rule| rule.priority).collect(),
            is_exhausted: false,
        }
    }

    /// Adds destinations to the rules, which are made where they are missing.
    fn add(&mut self, asked: &[Asked], index: &Index) {
        for wanted in asked {
            let missing: Vec<IpAddr> =
                wanted.destinations.iter().filter(|address| !index.serves(wanted, **address)).copied().collect();
            if missing.is_empty() {
                continue;
            }
            let position = self.rules.iter().position(|rule| rule.name.eq_ignore_ascii_case(&wanted.rule.name));
            let rule = match position {
                Some(position) => &mut self.rules[position],
                None => {
                    let Some(priority) = self.free_priority(wanted.is_deny) else {
                        self.is_exhausted = true;
                        continue;
                    };
                    self.priorities.insert(priority);
                    self.rules.push(SecurityRule { priority, ..wanted.rule.clone() });
                    self.rules.last_mut().expect("it was just pushed")
                }
            };
            if !rule.has_same_effect(&wanted.rule) {
                let destinations = std::mem::take(&mut rule.destinations);
                *rule = SecurityRule {
                    name: rule.name.clone(),
                    priority: rule.priority,
                    has_groups: rule.has_groups,
                    destinations,
                    ..wanted.rule.clone()
                };
            }
            let new = missing.iter().filter(|address| !rule.has_destination(**address)).map(IpAddr::to_string);
            rule.destinations.extend(new.collect::<Vec<_>>());
            rule.sort_destinations();
        }
    }

    fn free_priority(&self, is_deny: bool) -> Option<u32> {
        let is_free = |priority: &u32| !self.priorities.contains(priority);
        let mut all = FIRST_PRIORITY..LAST_PRIORITY;
        if is_deny { all.rev().find(is_free) } else { all.find(is_free) }
    }

    /// Takes away what is gone; a rule without destinations goes.
    fn remove(&mut self, given: &Given, kept: &Kept) {
        for rule in &mut self.rules {
            let (before, copy) = (rule.destinations.len(), rule.clone());
            rule.destinations
                .retain(|text| text.parse::<IpAddr>().map_or(true, |address| !kept.lets_go(&copy, address, given)));
            if rule.destinations.len() < before {
                rule.sort_destinations();
            }
        }
    }

    /// Why this is more than Azure takes, unless it was so before.
    fn excess(&self, before: &Self) -> Option<String> {
        if self.is_exhausted && !before.is_exhausted {
            return Some(format!("has no free priority from {FIRST_PRIORITY} to {}", LAST_PRIORITY - 1));
        }
        let (now, was) = (self.counts(), before.counts());
        let most = [
            ("rules", limits::RULES),
            ("source prefixes", limits::SOURCES),
            ("destination prefixes", limits::DESTINATIONS),
        ];
        most.into_iter().zip(now.into_iter().zip(was)).find(|((_, most), (now, was))| now > most && now > was).map(
            |((what, most), (now, _))| {
                format!("would have {now} {what} with this Service; Azure allows {most}. Remove Services or use wider ranges")
            },
        )
    }

    /// How many rules, source prefixes and destination prefixes there are.
    fn counts(&self) -> [usize; 3] {
        let sources = self.rules.iter().map(|rule| rule.sources.len()).sum();
        let destinations = self.rules.iter().map(|rule| rule.destinations.len()).sum();
        [self.rules.len(), sources, destinations]
    }

    /// What leads from the actual rules to these. Deny rules come before allow rules, removals last.
    fn edits(&self, actual: &SecurityGroup) -> Vec<Edit> {
        let mut puts: Vec<(bool, Edit)> = Vec::new();
        let mut removals = Vec::new();
        for rule in &self.rules {
            match actual.rule(&rule.name) {
                Some(there) if there == rule => {}
                Some(_) if rule.destinations.is_empty() && !rule.has_groups => {
                    removals.push((!rule.is_allow, Edit::RemoveRule(rule.name.clone())));
                }
                Some(there) if there.has_same_effect(rule) => {
                    let change =
                        |destinations: Vec<String>| Edit::Destinations { rule: rule.name.clone(), destinations };
                    let is_new = |text: &&String| !there.destinations.contains(*text);
                    let mut all = there.clone();
                    all.destinations.extend(rule.destinations.iter().filter(is_new).cloned());
                    all.sort_destinations();
                    // What comes is there before what leaves is gone.
                    if all.destinations.len() > there.destinations.len() {
                        puts.push((rule.is_allow, change(all.destinations.clone())));
                    }
                    if all.destinations.len() > rule.destinations.len() {
                        removals.push((!rule.is_allow, change(rule.destinations.clone())));
                    }
                }
                _ => puts.push((rule.is_allow, Edit::PutRule(rule.clone()))),
            }
        }
        puts.sort_by_key(|(is_allow, _)| *is_allow);
        removals.sort_by_key(|(is_deny, _)| *is_deny);
        puts.into_iter().chain(removals).map(|(_, edit)| edit).collect()
    }
}
