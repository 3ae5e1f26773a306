//! Planners for the world's objects and the Service of the simulation: as small as they can be.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_quota::permit::Priority;

use super::{
    api::{Ask, AskAddress, own_public_ip},
    mutant::Mutant,
    world::{
        Address, Body, FrontendAddress, FrontendName, INTERNAL, LOAD_BALANCERS, LoadBalancer, Name, Owner,
        Provisioning, RuleName, VIRTUAL_NETWORK, Version, takes_away,
    },
};
use crate::{
    object::{Object, Plan, Served, Write},
    service::{Level, Order, Role, Seen, Service},
};

/// Every object of the world.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Arm;

/// The nodes, and how pools are filled.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Inputs {
    pub(super) nodes: BTreeSet<u8>,
    pub(super) by_interface: bool,
    /// The addresses of Services that have told the security group nothing.
    pub(super) kept: BTreeSet<Address>,
    pub(super) mutant: Mutant,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Want {
    Nothing,
    PublicIp(Tag),
    LoadBalancer {
        frontends: BTreeMap<FrontendName, FrontendAddress>,
        rules: BTreeMap<RuleName, FrontendName>,
        gone: Gone,
        /// The public IPs that the Service gives up: their frontends go when no rule uses them.
        released: BTreeSet<u8>,
    },
    SecurityGroup {
        allow: BTreeSet<(Address, u16, u8)>,
        deny: BTreeSet<Address>,
        gone: BTreeMap<Address, GoneAt>,
    },
    Member(Name),
    /// Of the Service's private link service: the frontend that it is on.
    PrivateLink(FrontendName),
    NoPrivateLink,
}

/// What a Service wants of a public IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Present,
    /// The tag goes, unless it is the last: the last Service trims the security group for the whole address first.
    Leaves,
    /// The tag goes, and the address with the last.
    Gone,
}

/// What goes of an address.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum GoneAt {
    /// Everything: no other Service uses it.
    All,
    Ports(BTreeSet<u16>),
}

impl GoneAt {
    fn contains(&self, port: u16) -> bool {
        match self {
            Self::All => true,
            Self::Ports(ports) => ports.contains(&port),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gone {
    Nothing,
    /// Own rules that are not wanted, of frontends that are wanted.
    OwnRulesOfKept,
    /// Own rules that are not wanted, of private frontends.
    OwnPrivateRules,
    /// All of its own that is not wanted.
    Own,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Op {
    Put(Body),
    Delete,
}

/// What an object shows of a Service.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Report {
    /// Whether the object exists.
    pub(super) exists: bool,
    /// Frontends of its own, and those on which it has rules: their addresses.
    pub(super) frontends: BTreeMap<FrontendName, FrontendAddress>,
    /// The ports of its own rules.
    pub(super) ports: BTreeSet<u16>,
    /// The address of a public IP.
    pub(super) address: Option<Address>,
    /// Whether the public IP has the Service's tag.
    pub(super) tagged: bool,
    /// Whether it has another's tag too.
    pub(super) shared: bool,
    /// The frontend that the private link service is on.
    pub(super) link: Option<FrontendName>,
}

impl Object for Arm {
    type Requester = Owner;
    type Want = Want;
    type Model = Version;
    type Inputs = Inputs;
    type Op = Op;
    type Report = Report;
    type Related = Name;

    const CONDITIONAL: bool = true;

    fn plan(wants: &BTreeMap<Owner, Want>, actual: Option<&Version>, inputs: &Inputs) -> Plan<Self> {
        let body = actual.map(|version| &version.body);
        let failed = actual.is_some_and(|version| version.provisioning == Provisioning::Failed);
        let planned = |only: Option<Owner>| plan_body(wants, body, inputs, only);
        let after = planned(None);
        let changed = after.as_ref() != body || (failed && body.is_some());
        let write = changed.then(|| Write {
            taints: match &after {
                Some(Body::LoadBalancer(after)) => after.frontends.values().filter_map(public).collect(),
                Some(Body::Interface { .. }) => LOAD_BALANCERS.map(Name::LoadBalancer).collect(),
                Some(Body::PrivateLink { .. }) => vec![INTERNAL],
                None if matches!(body, Some(Body::PrivateLink { .. })) => vec![INTERNAL],
                _ => Vec::new(),
            },
            op: after.clone().map_or(Op::Delete, Op::Put),
            priority: Priority::Create,
            replaces: takes_away(body, after.as_ref()) && inputs.mutant != Mutant::RemovesUnaccepted,
            is_partial: plan_body(wants, after.as_ref(), inputs, None) != after,
        });
        let served = wants.iter().map(|(owner, want)| {
            let is_whole = !(failed && body.is_some());
            let met = is_whole && (*want == Want::Nothing || planned(Some(*owner)).as_ref() == body);
            (*owner, if met { Served::Met(report(*owner, body)) } else { Served::Pending })
        });
        Plan { write, served: served.collect() }
    }

    fn is_updating(version: &Version) -> bool {
        version.provisioning == Provisioning::Updating
    }

    fn removes(want: &Want) -> bool {
        match want {
            Want::Nothing | Want::Member(_) | Want::PrivateLink(_) => false,
            Want::NoPrivateLink => true,
            Want::PublicIp(tag) => *tag != Tag::Present,
            Want::LoadBalancer { gone, .. } => *gone != Gone::Nothing,
            Want::SecurityGroup { gone, .. } => !gone.is_empty(),
        }
    }

    /// Tags, own rules and own frontends are named after the Service; addresses are not.
    fn spent(want: &Want) -> Want {
        let mut spent = want.clone();
        match &mut spent {
            Want::Nothing | Want::Member(_) | Want::PublicIp(_) | Want::PrivateLink(_) | Want::NoPrivateLink => {}
            Want::LoadBalancer { released, .. } => released.clear(),
            Want::SecurityGroup { gone, .. } => gone.clear(),
        }
        spent
    }

    fn is_threatened(want: &Want, actual: Option<&Version>) -> bool {
        match want {
            Want::Nothing | Want::Member(_) | Want::NoPrivateLink => false,
            // Azure does not delete one that is in use.
            Want::PublicIp(tag) => *tag == Tag::Present && actual.is_some_and(|version| !version.is_used),
            Want::LoadBalancer { frontends, .. } => !frontends.is_empty(),
            Want::SecurityGroup { allow, deny, .. } => !allow.is_empty() || !deny.is_empty(),
            Want::PrivateLink(_) => true,
        }
    }

    fn references(want: &Want) -> Vec<Name> {
        match want {
            Want::LoadBalancer { frontends, .. } => frontends.values().filter_map(public).collect(),
            Want::PrivateLink(_) => vec![INTERNAL],
            _ => Vec::new(),
        }
    }
}

fn public(frontend: &FrontendAddress) -> Option<Name> {
    match frontend {
        FrontendAddress::Public(number) => Some(Name::PublicIp(*number)),
        FrontendAddress::Private(_) => None,
    }
}

/// The body as all wants ask for it, or as one does.
fn plan_body(all: &BTreeMap<Owner, Want>, body: Option<&Body>, inputs: &Inputs, only: Option<Owner>) -> Option<Body> {
    let only_one = only.is_some();
    let wants = all.iter().filter(|(owner, _)| only.is_none_or(|only| only == **owner));
    // What any want asks for stays, whatever another says is gone.
    let (mut allowed, mut denied): (BTreeSet<(Address, u16, u8)>, BTreeSet<Address>) = Default::default();
    // Only what is gone asks for that.
    let removes = |want: &&Want| matches!(want, Want::SecurityGroup { gone, .. } if !gone.is_empty());
    if wants.clone().any(|(_, want)| removes(&want)) {
        for want in all.values() {
            if let Want::SecurityGroup { allow, deny, .. } = want {
                allowed.extend(allow);
                denied.extend(deny);
            }
        }
    }
    let mut after = body.cloned();
    let fresh = inputs.mutant == Mutant::OverwritesForeign;
    // A public IP that another Service asks for is not made anew.
    for (owner, _) in wants.clone().filter(|(_, want)| **want == Want::PublicIp(Tag::Present)) {
        match &mut after {
            Some(Body::PublicIp { tags, .. }) => _ = tags.insert(*owner),
            _ => after = Some(Body::PublicIp { tags: [*owner].into(), address: 0, note: 0 }),
        }
    }
    for (owner, want) in wants.clone() {
        match want {
            Want::Nothing | Want::PublicIp(Tag::Present) => {}
            Want::PublicIp(Tag::Leaves) => match &mut after {
                Some(Body::PublicIp { tags, .. }) if tags.len() > 1 => _ = tags.remove(owner),
                _ => {}
            },
            Want::PublicIp(Tag::Gone) => {
                if let Some(Body::PublicIp { tags, .. }) = &mut after
                    && tags.remove(owner)
                    && tags.is_empty()
                    && inputs.mutant != Mutant::LeavesAddress
                {
                    after = None;
                }
            }
            Want::LoadBalancer { .. } => {
                let present = after.get_or_insert_with(|| Body::LoadBalancer(LoadBalancer::default()));
                if let Body::LoadBalancer(present) = present {
                    plan_load_balancer(*owner, want, present);
                }
            }
            Want::SecurityGroup { gone, .. } => {
                if let Some(Body::SecurityGroup(group)) = &mut after {
                    let goes = |rule: &(Address, u16, u8)| {
                        gone.get(&rule.0).is_some_and(|gone| gone.contains(rule.1)) && !allowed.contains(rule)
                    };
                    group.allow.retain(|rule| !goes(rule));
                    // A denial stays where it may guard a Service that has told nothing.
                    let guards = |at: &Address| group.allow.iter().any(|rule| rule.0 == *at && !allowed.contains(rule));
                    let goes = |at: &Address| gone.get(at).is_some_and(|gone| *gone == GoneAt::All || !guards(at));
                    let stays = |at: &Address| denied.contains(at) || inputs.kept.contains(at) || !goes(at);
                    group.deny.retain(stays);
                }
            }
            Want::Member(pool) => {
                if let Some(Body::Interface { pools, .. }) = &mut after {
                    pools.insert(*pool);
                }
            }
            Want::PrivateLink(on) => match &mut after {
                Some(Body::PrivateLink { frontend, .. }) => *frontend = *on,
                _ => after = Some(Body::PrivateLink { frontend: *on, note: 0 }),
            },
            Want::NoPrivateLink => after = None,
        }
    }
    // What is present goes before what is gone.
    for (_, want) in wants.clone() {
        if let (Want::SecurityGroup { allow, deny, .. }, Some(Body::SecurityGroup(group))) = (want, &mut after) {
            group.allow.extend(allow);
            group.deny.extend(deny);
        }
    }
    if let Some(Body::LoadBalancer(present)) = &mut after {
        if fresh && after_differs(present, body) {
            present.note = 0;
        }
        if inputs.mutant == Mutant::AbsenceDeletes && !only_one {
            let known: BTreeSet<Owner> = wants.map(|(owner, _)| *owner).collect();
            present.rules.retain(|rule, _| known.contains(&rule.0));
        }
        // With the interfaces as members, or without a rule, the pool has no members of its own.
        if !inputs.by_interface && !only_one && !present.rules.is_empty() {
            plan_members(present, inputs);
        }
    }
    // A load balancer without a frontend is not made.
    match (&after, body) {
        (Some(Body::LoadBalancer(made)), None) if made.frontends.is_empty() => None,
        _ => after,
    }
}

fn after_differs(present: &LoadBalancer, body: Option<&Body>) -> bool {
    body != Some(&Body::LoadBalancer(present.clone()))
}

/// Members that are no nodes leave one at a time, and the last never.
fn plan_members(present: &mut LoadBalancer, inputs: &Inputs) {
    if inputs.mutant == Mutant::EmptiesPool && present.members.iter().any(|member| !inputs.nodes.contains(member)) {
        present.members.clear();
        return;
    }
    present.members.extend(&inputs.nodes);
    let leaves = present.members.iter().find(|member| !inputs.nodes.contains(member)).copied();
    if let Some(leaves) = leaves.filter(|_| present.members.len() > 1) {
        present.members.remove(&leaves);
    }
}

fn plan_load_balancer(owner: Owner, want: &Want, present: &mut LoadBalancer) {
    let Want::LoadBalancer { frontends, rules, gone, released } = want else { return };
    let mut at: BTreeMap<FrontendName, FrontendName> = BTreeMap::new();
    for (name, address) in frontends {
        // A public IP has one frontend, whichever Service made it.
        let same = present
            .frontends
            .iter()
            .find(|(_, other)| matches!(address, FrontendAddress::Public(_)) && *other == address);
        // A frontend that serves another's rules keeps its address; the Service gets another frontend.
        let serves_others = present.rules.iter().any(|(rule, at)| rule.0 != owner && at == name);
        let free = if serves_others && present.frontends.get(name) != Some(address) { (name.0, 2) } else { *name };
        let name_there = same.map_or(free, |(name, _)| *name);
        let keeps = matches!(
            (present.frontends.get(&name_there), address),
            (Some(FrontendAddress::Private(_)), FrontendAddress::Private(0))
        );
        if !keeps {
            present.frontends.insert(name_there, *address);
        }
        at.insert(*name, name_there);
    }
    for (rule, frontend) in rules {
        present.rules.insert(*rule, at.get(frontend).copied().unwrap_or(*frontend));
    }
    let private: BTreeSet<FrontendName> = present
        .frontends
        .iter()
        .filter(|(_, address)| matches!(address, FrontendAddress::Private(_)))
        .map(|(name, _)| *name)
        .collect();
    present.rules.retain(|rule, frontend| {
        let kept = at.values().any(|name| name == frontend);
        let goes = match gone {
            Gone::Nothing => false,
            Gone::OwnRulesOfKept => kept,
            Gone::OwnPrivateRules => private.contains(frontend),
            Gone::Own => true,
        };
        rule.0 != owner || rules.contains_key(rule) || !goes
    });
    if *gone == Gone::Own {
        let used: BTreeSet<FrontendName> = present.rules.values().copied().collect();
        let is_released = |address: &FrontendAddress| match address {
            FrontendAddress::Public(number) => released.contains(number),
            FrontendAddress::Private(_) => false,
        };
        present.frontends.retain(|name, address| {
            (name.0 != owner && !is_released(address)) || at.values().any(|kept| kept == name) || used.contains(name)
        });
    }
}

pub(super) fn report(owner: Owner, body: Option<&Body>) -> Report {
    let mut report = Report { exists: body.is_some(), ..Report::default() };
    match body {
        Some(Body::PublicIp { address, tags, .. }) => {
            report.address = Some(*address);
            report.tagged = tags.contains(&owner);
            report.shared = tags.iter().any(|tag| *tag != owner);
        }
        Some(Body::LoadBalancer(body)) => {
            let has_rule =
                |frontend: &FrontendName| body.rules.iter().any(|(rule, at)| rule.0 == owner && at == frontend);
            for (name, address) in body.frontends.iter().filter(|(name, _)| name.0 == owner || has_rule(name)) {
                report.frontends.insert(*name, *address);
            }
            report.ports = body.rules.keys().filter(|rule| rule.0 == owner).map(|rule| rule.2).collect();
        }
        Some(Body::PrivateLink { frontend, .. }) => report.link = Some(*frontend),
        _ => {}
    }
    report
}

impl Service for Arm {
    type Identity = Owner;
    type Spec = Ask;
    type Key = Name;
    type Want = Want;
    type Report = Report;
    type Status = Address;
    type Inputs = Inputs;
    type Admission = BTreeMap<Address, BTreeSet<u16>>;
    /// All objects are in one resource group, which is always there.
    type Place = ();

    fn place(_: &Name) -> Option<()> {
        None
    }

    fn has_part(want: &Want, report: &Report) -> Option<bool> {
        match want {
            Want::PublicIp(_) | Want::Nothing if report.tagged || report.link.is_some() => Some(true),
            Want::Nothing if report.address.is_some() => Some(false),
            // An absence proves nothing of a write whose answer was lost, before that is looked for to be removed.
            Want::PublicIp(Tag::Present) | Want::Nothing => None,
            Want::PublicIp(Tag::Leaves | Tag::Gone) | Want::NoPrivateLink => Some(false),
            Want::LoadBalancer { .. } | Want::SecurityGroup { .. } | Want::PrivateLink(_) => Some(true),
            // The node stays a member.
            Want::Member(_) => Some(false),
        }
    }

    /// A load balancer and the security group always count as parts.
    fn is_absent(report: &Report) -> bool {
        !report.exists
    }

    fn role(key: &Name) -> Role {
        match key {
            Name::PublicIp(_) => Role::PublicIp,
            Name::LoadBalancer(_) => Role::LoadBalancer,
            Name::SecurityGroup => Role::SecurityGroup,
            Name::Interface(_) => Role::Members,
            Name::PrivateLink(_) => Role::PrivateLink,
        }
    }

    fn keys(owner: &Owner, ask: &Ask, inputs: &Inputs) -> BTreeSet<Name> {
        let mut keys = BTreeSet::from([load_balancer(ask), Name::SecurityGroup]);
        keys.extend(public_ip(*owner, ask).map(Name::PublicIp));
        keys.extend(ask.link.then_some(Name::PrivateLink(*owner)));
        if inputs.by_interface {
            keys.extend([Name::Interface(0), Name::Interface(1)]);
        }
        keys
    }

    fn order(_: &Owner, ask: &Ask, seen: &Seen<'_, Self>, inputs: &Inputs) -> Order {
        if inputs.mutant == Mutant::DenyLate {
            return Order::LoadBalancerFirst;
        }
        let serves = seen.reports.get(&load_balancer(ask)).is_some_and(|report| !report.frontends.is_empty());
        match (ask.is_internal(), ask.deny) {
            (true, true) => Order::FrontendFirst,
            (true, false) => Order::LoadBalancerFirst,
            (false, _) if ask.address == AskAddress::Shared => Order::SecurityAround,
            (false, deny) if deny || serves => Order::SecurityFirst,
            (false, _) => Order::Parallel,
        }
    }

    fn want(
        owner: &Owner,
        ask: Option<&Ask>,
        key: &Name,
        level: Level,
        seen: &Seen<'_, Self>,
        inputs: &Inputs,
    ) -> Want {
        let level = match (inputs.mutant, level, key) {
            (Mutant::BreaksBeforeMake, Level::Look, Name::LoadBalancer(_)) => Level::Clean,
            (Mutant::ReleasesEarly, Level::Make, Name::LoadBalancer(_)) => Level::Clean,
            (Mutant::LeavesAdmission, Level::Clean, Name::SecurityGroup) => Level::Make,
            _ => level,
        };
        let ask = ask.filter(|ask| needs(*owner, ask, *key, inputs));
        match key {
            Name::PublicIp(_) => match level {
                Level::Look => Want::Nothing,
                _ if ask.is_some() => Want::PublicIp(Tag::Present),
                Level::Clean if seen.reports.get(key).is_some_and(|report| report.shared) => {
                    Want::PublicIp(Tag::Leaves)
                }
                Level::Clean => Want::PublicIp(Tag::Gone),
                _ => Want::Nothing,
            },
            Name::LoadBalancer(_) => want_of_load_balancer(*owner, ask, level, seen),
            Name::SecurityGroup if inputs.mutant == Mutant::ShutsEarly && level == Level::Make => {
                // Only what admits: no law but that of reachability notices.
                let mut want = want_of_security_group(*owner, ask, Level::Clean, seen);
                if let Want::SecurityGroup { gone, .. } = &mut want {
                    gone.values_mut().for_each(|gone| *gone = GoneAt::Ports((80..130).collect()));
                }
                want
            }
            Name::SecurityGroup => want_of_security_group(*owner, ask, level, seen),
            Name::Interface(_) => match ask {
                Some(ask) if level >= Level::Make => Want::Member(load_balancer(ask)),
                _ => Want::Nothing,
            },
            Name::PrivateLink(_) => match ask {
                Some(ask) if level >= Level::Make => Want::PrivateLink(frontend(*owner, ask)),
                None if level == Level::Clean && inputs.mutant != Mutant::LeavesLink => Want::NoPrivateLink,
                _ => Want::Nothing,
            },
        }
    }

    fn note_admission(want: &Want, _: &Inputs, noted: &mut BTreeMap<Address, BTreeSet<u16>>) {
        let Want::SecurityGroup { allow, deny, .. } = want else { return };
        for (address, port, _) in allow {
            noted.entry(*address).or_default().insert(*port);
        }
        deny.iter().for_each(|address| _ = noted.entry(*address).or_default());
    }

    fn status(owner: &Owner, ask: &Ask, seen: &Seen<'_, Self>, _: &Inputs) -> Option<Address> {
        address_of(*owner, ask, seen)
    }

    fn gives_way(owner: &Owner, ask: &Ask, key: &Name, seen: &Seen<'_, Self>, inputs: &Inputs) -> bool {
        if inputs.mutant == Mutant::JoinsBeforeLeaving {
            return false;
        }
        let Some(number) = public_ip(*owner, ask) else { return false };
        let report = seen.reports.get(key);
        report.is_some_and(|report| report.frontends.values().any(|at| *at == FrontendAddress::Public(number)))
    }
}

/// Whether an object is one of the keys that a spec needs.
fn needs(owner: Owner, ask: &Ask, key: Name, inputs: &Inputs) -> bool {
    match key {
        Name::PublicIp(number) => public_ip(owner, ask) == Some(number),
        Name::LoadBalancer(_) => key == load_balancer(ask),
        Name::SecurityGroup => true,
        Name::Interface(_) => inputs.by_interface,
        Name::PrivateLink(of) => ask.link && of == owner,
    }
}

fn load_balancer(ask: &Ask) -> Name {
    Name::LoadBalancer(ask.load_balancer())
}

pub(super) fn public_ip(owner: Owner, ask: &Ask) -> Option<u8> {
    match ask.address {
        AskAddress::Shared => Some(0),
        AskAddress::Own(second) => Some(own_public_ip(owner, second)),
        AskAddress::Internal(_) => None,
    }
}

fn frontend(owner: Owner, ask: &Ask) -> FrontendName {
    (owner, u8::from(ask.address == AskAddress::Internal(true)))
}

/// The address of the frontend that the spec asks for.
fn address_of(owner: Owner, ask: &Ask, seen: &Seen<'_, Arm>) -> Option<Address> {
    match public_ip(owner, ask) {
        Some(number) => seen.reports.get(&Name::PublicIp(number))?.address,
        None => match seen.reports.get(&Name::LoadBalancer(1))?.frontends.get(&frontend(owner, ask))? {
            FrontendAddress::Private(address) => Some(*address),
            FrontendAddress::Public(_) => None,
        },
    }
}

fn want_of_load_balancer(owner: Owner, ask: Option<&Ask>, level: Level, seen: &Seen<'_, Arm>) -> Want {
    let (mut frontends, mut rules) = (BTreeMap::new(), BTreeMap::new());
    if let Some(ask) = ask.filter(|_| level >= Level::Frontend) {
        let name = frontend(owner, ask);
        let address = public_ip(owner, ask).map_or(FrontendAddress::Private(0), FrontendAddress::Public);
        frontends.insert(name, address);
        if level >= Level::Make {
            rules.extend(ask.ports.iter().map(|port| ((owner, name.1, *port), name)));
        }
    }
    // Another Service may join an address while this one leaves it.
    let kept = ask.and_then(|ask| public_ip(owner, ask));
    let leaves = seen.reports.iter().any(|(name, report)| match name {
        Name::PublicIp(number) => report.tagged && kept != Some(*number),
        _ => false,
    });
    let shared = leaves || ask.is_none_or(|ask| ask.address == AskAddress::Shared);
    let gone = match level {
        Level::Clean => Gone::Own,
        Level::Quiet => Gone::OwnPrivateRules,
        // On a shared address the rules are the record of which security rules are the Service's own.
        Level::Make if !shared => Gone::OwnRulesOfKept,
        _ => Gone::Nothing,
    };
    let released = seen.reports.iter().filter_map(|(name, report)| match name {
        Name::PublicIp(number) if report.tagged && kept != Some(*number) => Some(*number),
        _ => None,
    });
    let released = if level == Level::Clean { released.collect() } else { BTreeSet::new() };
    Want::LoadBalancer { frontends, rules, gone, released }
}

fn want_of_security_group(owner: Owner, ask: Option<&Ask>, level: Level, seen: &Seen<'_, Arm>) -> Want {
    if level == Level::Look {
        return Want::Nothing;
    }
    let (mut allow, mut deny, mut gone) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    if let Some((ask, address)) = ask.and_then(|ask| Some((ask, address_of(owner, ask, seen)?))) {
        let here = seen.reports.get(&load_balancer(ask));
        let served = |port: &&u16| level > Level::Frontend || here.is_some_and(|report| report.ports.contains(port));
        for port in ask.ports.iter().filter(served) {
            allow.extend(
                ask.sources
                    .iter()
                    .filter(|source| **source != VIRTUAL_NETWORK || !ask.deny)
                    .map(|source| (address, *port, *source)),
            );
        }
        if ask.deny {
            deny.insert(address);
        }
    }
    if level < Level::Clean {
        return Want::SecurityGroup { allow, deny, gone: BTreeMap::new() };
    }
    let reports = seen.reports.values().chain(seen.left.values());
    let ports: BTreeSet<u16> = reports.flat_map(|report| report.ports.iter().copied()).collect();
    let own = |address: &Address| ports.iter().chain(seen.told.get(address).into_iter().flatten()).copied().collect();
    let public = |number: u8| seen.reports.get(&Name::PublicIp(number)).filter(|report| report.tagged);
    for (key, report) in seen.reports {
        let mut give_up = |address: Address, shared: bool| {
            let all = if shared { GoneAt::Ports(own(&address)) } else { GoneAt::All };
            gone.insert(address, all);
        };
        match key {
            Name::PublicIp(_) if report.tagged => _ = report.address.map(|address| give_up(address, report.shared)),
            Name::LoadBalancer(_) => {
                for address in report.frontends.values() {
                    match address {
                        FrontendAddress::Private(address) => give_up(*address, false),
                        FrontendAddress::Public(number) => {
                            let address = public(*number).and_then(|report| Some((report.address?, report.shared)));
                            _ = address.map(|(address, shared)| give_up(address, shared));
                        }
                    }
                }
            }
            _ => {}
        }
    }
    // An address that nothing shows as the Service's may be another's.
    for (address, ports) in seen.told {
        gone.entry(*address).or_insert_with(|| GoneAt::Ports(ports.clone()));
    }
    Want::SecurityGroup { allow, deny, gone }
}
