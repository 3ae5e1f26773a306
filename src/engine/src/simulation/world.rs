//! A small Azure. It knows nothing of the planner or of the engine.
//!
//! Azure holds three load balancers, a security group, public IP addresses, network interfaces and private link services, with
//! ETags, operations that take time, reads that lag, and the checks of references that the real one makes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::api::{Ask, AskAddress, own_public_ip};

/// A Service, by its number. Those from [`FOREIGN`] on belong to another cluster.
pub(super) type Owner = u8;
/// The first owner of another cluster. Addresses from this on are another cluster's too.
pub(super) const FOREIGN: Owner = 100;
pub(super) type Address = u32;
pub(super) const FOREIGN_ADDRESS: Address = 200;
/// The source that a private address admits without a rule.
pub(super) const VIRTUAL_NETWORK: u8 = 9;
/// How many network interfaces there are.
const INTERFACES: u8 = 2;
/// All sources.
pub(super) const SOURCES: [u8; 5] = [1, 2, 3, 4, VIRTUAL_NETWORK];
/// A port that Azure refuses.
pub(super) const POISON: u16 = 6666;

/// A frontend: its Service, and which of the Service's frontends.
pub(super) type FrontendName = (Owner, u8);
/// A rule: its Service, which of its frontends, and its port.
pub(super) type RuleName = (Owner, u8, u16);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    PublicIp(u8),
    /// 0 and 2 are public, 1 is internal.
    LoadBalancer(u8),
    SecurityGroup,
    Interface(u8),
    /// The private link service of a Service, on a frontend of the internal load balancer.
    PrivateLink(Owner),
}

/// The load balancer that private link services lie on.
pub(super) const INTERNAL: Name = Name::LoadBalancer(1);
/// The load balancers, by their number.
pub(super) const LOAD_BALANCERS: std::ops::Range<u8> = 0..3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FrontendAddress {
    Public(u8),
    /// 0 asks for any free one.
    Private(Address),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    PublicIp { tags: BTreeSet<Owner>, address: Address, note: u32 },
    LoadBalancer(LoadBalancer),
    SecurityGroup(SecurityGroup),
    Interface { pools: BTreeSet<Name>, note: u32 },
    PrivateLink { frontend: FrontendName, note: u32 },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LoadBalancer {
    pub(super) frontends: BTreeMap<FrontendName, FrontendAddress>,
    pub(super) rules: BTreeMap<RuleName, FrontendName>,
    pub(super) members: BTreeSet<u8>,
    pub(super) note: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SecurityGroup {
    pub(super) allow: BTreeSet<(Address, u16, u8)>,
    pub(super) deny: BTreeSet<Address>,
    pub(super) note: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provisioning {
    Succeeded,
    Updating,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) body: Body,
    pub(super) etag: u64,
    pub(super) provisioning: Provisioning,
    /// Of a public IP that was read: whether a frontend has it.
    pub(super) is_used: bool,
}

/// What Azure answers at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    NotFound,
    Precondition,
    Busy,
    Invalid,
    InUse,
    ReferenceNotProvisioned,
}

/// How an accepted operation will end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    Succeeds,
    /// It ends as failed and has changed nothing.
    Fails,
    /// It ends as failed and has changed a part.
    FailsPartly,
}

#[derive(Debug)]
struct Resource {
    /// The versions, with the time from which on each is current. `None` where it does not exist.
    history: Vec<(Duration, Option<Version>)>,
}

#[derive(Debug, Default)]
pub(super) struct Azure {
    resources: BTreeMap<Name, Resource>,
    etag: u64,
    /// The operations that run, with what they will make of their object.
    running: BTreeMap<u64, (Name, Option<Body>, Course)>,
    /// The operations that have ended, and whether they succeeded.
    ended: BTreeMap<u64, bool>,
    operations: u64,
    /// What other writers have written last, by object.
    notes: BTreeMap<Name, u32>,
    /// Until when a resource of another writer uses a public IP.
    held: BTreeMap<Name, Duration>,
    /// The addresses that another writer has released.
    lost: BTreeSet<Address>,
    /// The public IPs that another writer has deleted.
    lost_public_ips: BTreeSet<u8>,
    /// Whether a write of an object that is busy is refused for that, whatever its ETag.
    busy_first: bool,
}

impl Azure {
    pub(super) fn new(internal: bool, busy_first: bool) -> Self {
        let mut azure = Self { busy_first, ..Self::default() };
        let mut load_balancer = LoadBalancer::default();
        load_balancer.frontends.insert((FOREIGN, 0), FrontendAddress::Private(FOREIGN_ADDRESS));
        load_balancer.rules.insert((FOREIGN, 0, 443), (FOREIGN, 0));
        let group =
            SecurityGroup { allow: [(FOREIGN_ADDRESS, 443, 1)].into(), deny: [FOREIGN_ADDRESS].into(), note: 0 };
        azure.set(
            Duration::ZERO,
            Name::LoadBalancer(0),
            Some(Body::LoadBalancer(load_balancer)),
            Provisioning::Succeeded,
        );
        azure.set(Duration::ZERO, Name::SecurityGroup, Some(Body::SecurityGroup(group)), Provisioning::Succeeded);
        for interface in 0..INTERFACES {
            let body = Body::Interface { pools: BTreeSet::new(), note: 0 };
            azure.set(Duration::ZERO, Name::Interface(interface), Some(body), Provisioning::Succeeded);
        }
        if internal {
            let body = Body::LoadBalancer(LoadBalancer::default());
            azure.set(Duration::ZERO, Name::LoadBalancer(1), Some(body), Provisioning::Succeeded);
        }
        azure
    }

    fn set(&mut self, now: Duration, name: Name, body: Option<Body>, provisioning: Provisioning) {
        self.etag += 1;
        let version = body.map(|body| Version { body, etag: self.etag, provisioning, is_used: false });
        self.resources.entry(name).or_insert_with(|| Resource { history: Vec::new() }).history.push((now, version));
    }

    pub(super) fn current(&self, name: Name) -> Option<&Version> {
        self.resources.get(&name)?.history.last()?.1.as_ref()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = Name> {
        self.resources.keys().copied()
    }

    /// A read that shows the state of some time ago.
    pub(super) fn read(&self, name: Name, as_of: Duration) -> Option<Version> {
        let mut version = self.at(name, as_of)?.clone();
        if let Name::PublicIp(number) = name {
            let mut balancers = LOAD_BALANCERS.filter_map(|number| self.at(Name::LoadBalancer(number), as_of));
            version.is_used = balancers.any(|version| match &version.body {
                Body::LoadBalancer(body) => {
                    body.frontends.values().any(|frontend| *frontend == FrontendAddress::Public(number))
                }
                _ => false,
            });
        }
        Some(version)
    }

    fn at(&self, name: Name, as_of: Duration) -> Option<&Version> {
        let history = &self.resources.get(&name)?.history;
        history.iter().rev().find(|(since, _)| *since <= as_of).and_then(|(_, version)| version.as_ref())
    }

    pub(super) fn load_balancer(&self, number: u8) -> Option<&LoadBalancer> {
        match &self.current(Name::LoadBalancer(number))?.body {
            Body::LoadBalancer(body) => Some(body),
            _ => None,
        }
    }

    pub(super) fn security_group(&self) -> &SecurityGroup {
        match self.current(Name::SecurityGroup).map(|version| &version.body) {
            Some(Body::SecurityGroup(body)) => body,
            _ => unreachable!("the security group always exists"),
        }
    }

    pub(super) fn public_ip(&self, number: u8) -> Option<(&BTreeSet<Owner>, Address)> {
        match &self.current(Name::PublicIp(number))?.body {
            Body::PublicIp { tags, address, .. } => Some((tags, *address)),
            _ => None,
        }
    }

    /// The frontend that a Service's private link service is on.
    pub(super) fn private_link(&self, owner: Owner) -> Option<FrontendName> {
        match &self.current(Name::PrivateLink(owner))?.body {
            Body::PrivateLink { frontend, .. } => Some(*frontend),
            _ => None,
        }
    }

    /// The frontends that private link services are on.
    fn linked(&self) -> impl Iterator<Item = FrontendName> {
        self.names().filter_map(|name| match name {
            Name::PrivateLink(owner) => self.private_link(owner),
            _ => None,
        })
    }

    /// The number of backends behind a load balancer.
    pub(super) fn backends(&self, number: u8) -> usize {
        let pool = Name::LoadBalancer(number);
        let in_pool = |name: Name| match self.current(name).map(|version| &version.body) {
            Some(Body::Interface { pools, .. }) => pools.contains(&pool),
            _ => false,
        };
        let members = self.load_balancer(number).map_or(0, |body| body.members.len());
        members + (0..INTERFACES).filter(|number| in_pool(Name::Interface(*number))).count()
    }

    pub(super) fn address_of(&self, frontend: FrontendAddress) -> Option<Address> {
        match frontend {
            FrontendAddress::Public(number) => self.public_ip(number).map(|(_, address)| address),
            FrontendAddress::Private(address) => Some(address),
        }
    }

    /// Every address that a public IP or a frontend holds.
    pub(super) fn addresses(&self) -> BTreeSet<Address> {
        let mut all = BTreeSet::new();
        for name in self.names() {
            match self.current(name).map(|version| &version.body) {
                Some(Body::PublicIp { address, .. }) => _ = all.insert(*address),
                Some(Body::LoadBalancer(body)) => {
                    all.extend(body.frontends.values().filter_map(|frontend| self.address_of(*frontend)));
                }
                _ => {}
            }
        }
        all
    }

    /// Whether another writer has released an address. Who admits it has no record of that.
    pub(super) fn is_lost(&self, address: Address) -> bool {
        self.lost.contains(&address)
    }

    /// Whether another writer has deleted the public IP of a Service: it may get another address at any time.
    pub(super) fn has_lost_public_ip(&self, owner: Owner, ask: &Ask) -> bool {
        match ask.address {
            AskAddress::Shared => self.lost_public_ips.contains(&0),
            AskAddress::Own(second) => self.lost_public_ips.contains(&own_public_ip(owner, second)),
            AskAddress::Internal(_) => false,
        }
    }

    fn free_address(&self, from: Address, taken: &BTreeSet<Address>) -> Address {
        (from..).find(|address| !taken.contains(address)).expect("there are free addresses")
    }

    /// The body that Azure makes of what is written, or why it refuses.
    fn check(&self, name: Name, body: Body) -> Result<Body, Refused> {
        let taken = self.addresses();
        Ok(match body {
            Body::PublicIp { tags, address: 0, note } => {
                Body::PublicIp { tags, address: self.free_address(1, &taken), note }
            }
            Body::LoadBalancer(mut body) => {
                let mut seen = BTreeSet::new();
                let mut taken = taken;
                for frontend in body.frontends.values_mut() {
                    match frontend {
                        FrontendAddress::Public(number) => {
                            let version = self.current(Name::PublicIp(*number)).ok_or(Refused::Invalid)?;
                            if version.provisioning != Provisioning::Succeeded {
                                return Err(Refused::ReferenceNotProvisioned);
                            }
                        }
                        FrontendAddress::Private(address) if *address == 0 => {
                            *address = self.free_address(50, &taken);
                            taken.insert(*address);
                        }
                        FrontendAddress::Private(_) => {}
                    }
                    if !seen.insert(*frontend) {
                        return Err(Refused::Invalid);
                    }
                }
                let mut ports = BTreeSet::new();
                for (rule, frontend) in &body.rules {
                    if rule.2 == POISON || !body.frontends.contains_key(frontend) || !ports.insert((*frontend, rule.2))
                    {
                        return Err(Refused::Invalid);
                    }
                }
                let others = self.names().filter(|other| *other != name);
                let foreign = others.filter_map(|other| match &self.current(other)?.body {
                    Body::LoadBalancer(body) => Some(body.frontends.values().copied().collect::<Vec<_>>()),
                    _ => None,
                });
                if foreign.flatten().any(|frontend| seen.contains(&frontend)) {
                    return Err(Refused::Invalid);
                }
                if name == INTERNAL {
                    let before = self.load_balancer(1);
                    let moves =
                        |linked| body.frontends.get(&linked) != before.and_then(|before| before.frontends.get(&linked));
                    if self.linked().any(moves) {
                        return Err(Refused::InUse);
                    }
                }
                Body::LoadBalancer(body)
            }
            Body::PrivateLink { frontend, note } => {
                let version = self.current(INTERNAL).ok_or(Refused::Invalid)?;
                if version.provisioning != Provisioning::Succeeded {
                    return Err(Refused::ReferenceNotProvisioned);
                }
                if self.load_balancer(1).is_none_or(|body| !body.frontends.contains_key(&frontend)) {
                    return Err(Refused::Invalid);
                }
                Body::PrivateLink { frontend, note }
            }
            other => other,
        })
    }

    /// Takes a write. `None` deletes. Returns the number of the operation.
    pub(super) fn write(
        &mut self,
        now: Duration,
        name: Name,
        etag: Option<u64>,
        body: Option<Body>,
        course: Course,
    ) -> Result<u64, Refused> {
        let current = self.current(name);
        // A creation that will fail shows nothing while it runs.
        let busy = self.is_busy(name) || self.running.values().any(|(running, ..)| *running == name);
        if busy && self.busy_first {
            return Err(Refused::Busy);
        }
        if etag != current.map(|version| version.etag) {
            return Err(if current.is_none() { Refused::NotFound } else { Refused::Precondition });
        }
        if busy {
            return Err(Refused::Busy);
        }
        let before = current.map(|version| version.body.clone());
        let body = match body {
            None if self.is_used(name, now) => return Err(Refused::InUse),
            None => None,
            Some(body) => Some(self.check(name, body)?),
        };
        self.operations += 1;
        let after = match course {
            Course::Succeeds => body,
            Course::Fails => before.clone(),
            Course::FailsPartly => partly(before.clone(), body),
        };
        // The object shows the new body while it is updated; one that is deleted shows the old one.
        let shown = if after.is_some() { after.clone() } else { before };
        self.set(now, name, shown, Provisioning::Updating);
        self.touch_related(now, name);
        self.running.insert(self.operations, (name, after, course));
        Ok(self.operations)
    }

    /// Whether a frontend, or a resource of another writer, uses a public IP.
    fn is_used(&self, name: Name, now: Duration) -> bool {
        let Name::PublicIp(number) = name else { return false };
        if self.held.get(&name).is_some_and(|until| now < *until) {
            return true;
        }
        let refers = |number_of: u8| {
            self.load_balancer(number_of).is_some_and(|body| {
                body.frontends.values().any(|frontend| *frontend == FrontendAddress::Public(number))
            })
        };
        LOAD_BALANCERS.into_iter().any(refers)
    }

    /// An operation on a private link service changes the ETag of its load balancer.
    fn touch_related(&mut self, now: Duration, name: Name) {
        if let (Name::PrivateLink(_), Some(version)) = (name, self.current(INTERNAL).cloned()) {
            self.set(now, INTERNAL, Some(version.body), version.provisioning);
        }
    }

    /// Ends an operation.
    pub(super) fn end(&mut self, now: Duration, operation: u64) {
        let Some((name, after, course)) = self.running.remove(&operation) else { return };
        let succeeds = course == Course::Succeeds;
        if after.is_none() {
            self.notes.remove(&name);
        }
        self.set(now, name, after, if succeeds { Provisioning::Succeeded } else { Provisioning::Failed });
        self.touch_related(now, name);
        self.ended.insert(operation, succeeds);
    }

    /// Whether an operation has succeeded; `None` while it runs.
    pub(super) fn outcome(&self, operation: u64) -> Option<bool> {
        self.ended.get(&operation).copied()
    }

    pub(super) fn is_busy(&self, name: Name) -> bool {
        self.current(name).is_some_and(|version| version.provisioning == Provisioning::Updating)
    }

    /// Another writer changes something of its own.
    pub(super) fn write_by_other(&mut self, now: Duration, name: Name, provisioning: Provisioning) {
        let Some(version) = self.current(name) else { return };
        let mut body = version.body.clone();
        let note = match &mut body {
            Body::PublicIp { note, .. } | Body::Interface { note, .. } | Body::PrivateLink { note, .. } => note,
            Body::LoadBalancer(body) => &mut body.note,
            Body::SecurityGroup(body) => &mut body.note,
        };
        *note += 1;
        self.notes.insert(name, *note);
        self.set(now, name, Some(body), provisioning);
    }

    /// Another writer's operation ends.
    pub(super) fn other_ended(&mut self, now: Duration, name: Name) {
        let Some(version) = self.current(name) else { return };
        let body = version.body.clone();
        self.set(now, name, Some(body), Provisioning::Succeeded);
    }

    /// Another writer deletes a public IP that nothing uses. Returns whether it was there.
    pub(super) fn delete_by_other(&mut self, now: Duration, name: Name) -> bool {
        let deletes = self.current(name).is_some() && !self.is_busy(name) && !self.is_used(name, now);
        if deletes {
            if let Name::PublicIp(number) = name {
                self.lost.extend(self.public_ip(number).map(|(_, address)| address));
                self.lost_public_ips.insert(number);
            }
            self.notes.remove(&name);
            self.set(now, name, None, Provisioning::Succeeded);
        }
        deletes
    }

    /// A resource of another writer begins to use a public IP, until the given time. Returns whether it could.
    pub(super) fn hold(&mut self, name: Name, until: Duration) -> bool {
        let holds = self.current(name).is_some();
        if holds {
            self.held.insert(name, until);
        }
        holds
    }

    /// Whether everything that is not of our Services is as its owner left it.
    pub(super) fn foreign_is_untouched(&self) -> Result<(), String> {
        for (name, note) in &self.notes {
            let Some(version) = self.current(*name) else { continue };
            let shown = match &version.body {
                Body::PublicIp { note, .. } | Body::Interface { note, .. } | Body::PrivateLink { note, .. } => *note,
                Body::LoadBalancer(body) => body.note,
                Body::SecurityGroup(body) => body.note,
            };
            if shown != *note {
                return Err(format!("{name:?} shows note {shown} of another writer, who wrote {note}"));
            }
        }
        let public = self.load_balancer(0).ok_or("the load balancer is gone")?;
        let frontend = public.frontends.get(&(FOREIGN, 0)) == Some(&FrontendAddress::Private(FOREIGN_ADDRESS));
        let rule = public.rules.get(&(FOREIGN, 0, 443)) == Some(&(FOREIGN, 0));
        let group = self.security_group();
        let admits = group.allow.contains(&(FOREIGN_ADDRESS, 443, 1)) && group.deny.contains(&FOREIGN_ADDRESS);
        if frontend && rule && admits { Ok(()) } else { Err("a part of another cluster is gone".to_owned()) }
    }

    /// Whether a source reaches a port of a Service at an address.
    pub(super) fn reaches(&self, owner: Owner, port: u16, source: u8, address: Address) -> bool {
        self.addresses_of(owner, port).contains(&address) && self.admits(address, port, source)
    }

    /// Whether a load balancer has a rule for a port of a Service at an address, with backends or without.
    fn is_balanced(&self, owner: Owner, port: u16, address: Address) -> bool {
        LOAD_BALANCERS.filter_map(|number| self.load_balancer(number)).any(|body| {
            let rules = body.rules.iter().filter(|(rule, _)| rule.0 == owner && rule.2 == port);
            let frontends = rules.filter_map(|(_, frontend)| body.frontends.get(frontend));
            frontends.filter_map(|frontend| self.address_of(*frontend)).any(|there| there == address)
        })
    }

    /// The addresses at which a load-balancing rule with backends serves a port of a Service.
    pub(super) fn addresses_of(&self, owner: Owner, port: u16) -> BTreeSet<Address> {
        let mut found = BTreeSet::new();
        for number in LOAD_BALANCERS {
            let Some(body) = self.load_balancer(number).filter(|_| self.backends(number) > 0) else { continue };
            for (_, frontend) in body.rules.iter().filter(|(rule, _)| rule.0 == owner && rule.2 == port) {
                found.extend(body.frontends.get(frontend).and_then(|frontend| self.address_of(*frontend)));
            }
        }
        found
    }

    /// Whether the security group admits a source.
    pub(super) fn admits(&self, address: Address, port: u16, source: u8) -> bool {
        let group = self.security_group();
        if group.allow.contains(&(address, port, source)) {
            return true;
        }
        let private = (50..FOREIGN_ADDRESS).contains(&address);
        private && source == VIRTUAL_NETWORK && !group.deny.contains(&address)
    }
}

/// What an operation leaves that fails half way.
fn partly(before: Option<Body>, after: Option<Body>) -> Option<Body> {
    match (before, after) {
        (Some(Body::LoadBalancer(before)), Some(Body::LoadBalancer(mut after))) => {
            // Frontends are made; nothing is removed, and no rule is made or moved.
            let made = std::mem::replace(&mut after.frontends, before.frontends.clone());
            let used: BTreeSet<FrontendAddress> = before.frontends.values().copied().collect();
            for (name, address) in made {
                if !used.contains(&address) {
                    after.frontends.entry(name).or_insert(address);
                }
            }
            Some(Body::LoadBalancer(LoadBalancer { rules: before.rules, members: before.members, ..after }))
        }
        (Some(Body::SecurityGroup(before)), Some(Body::SecurityGroup(mut after))) => {
            // Half of the new rules are made, and nothing is removed.
            let made: Vec<_> = after.allow.difference(&before.allow).copied().collect();
            after.allow.clone_from(&before.allow);
            after.allow.extend(made.iter().take(made.len() / 2));
            after.deny.extend(before.deny);
            Some(Body::SecurityGroup(after))
        }
        (None, after) => after,
        (before, _) => before,
    }
}

/// Whether a write takes away or replaces something that is there.
pub(super) fn takes_away(before: Option<&Body>, after: Option<&Body>) -> bool {
    match (before, after) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(Body::PublicIp { tags: before, .. }), Some(Body::PublicIp { tags: after, .. })) => {
            !before.is_subset(after)
        }
        (Some(Body::LoadBalancer(before)), Some(Body::LoadBalancer(after))) => {
            before.frontends.iter().any(|(name, address)| after.frontends.get(name) != Some(address))
                || before.rules.iter().any(|(name, frontend)| after.rules.get(name) != Some(frontend))
                || !before.members.is_subset(&after.members)
        }
        (Some(Body::SecurityGroup(before)), Some(Body::SecurityGroup(after))) => {
            !before.allow.is_subset(&after.allow) || !before.deny.is_subset(&after.deny)
        }
        (Some(Body::Interface { pools: before, .. }), Some(Body::Interface { pools: after, .. })) => {
            !before.is_subset(after)
        }
        (before, after) => before != after,
    }
}

/// The Service that a port belongs to. Every Service may ask for [`POISON`], and another cluster has a port of its own.
pub(super) fn owner_of(port: u16) -> Option<Owner> {
    let number = port.checked_sub(80)? / 10;
    Owner::try_from(number).ok().filter(|owner| *owner < 10)
}

/// The Services from which a write takes away or replaces something that is there.
pub(super) fn losers(azure: &Azure, name: Name, before: Option<&Body>, after: Option<&Body>) -> BTreeSet<Owner> {
    let mut losers = BTreeSet::new();
    match (before, after) {
        (Some(Body::PublicIp { tags: before, .. }), after) => {
            let kept = match after {
                Some(Body::PublicIp { tags, .. }) => tags.clone(),
                _ => BTreeSet::new(),
            };
            losers.extend(before.difference(&kept));
        }
        (Some(Body::LoadBalancer(before)), Some(Body::LoadBalancer(after))) => {
            let all = before.rules.keys().map(|rule| rule.0);
            if !before.members.is_subset(&after.members) {
                losers.extend(all);
            }
            let is_kept = |name: &FrontendName| after.frontends.get(name) == before.frontends.get(name);
            losers.extend(before.rules.iter().filter(|(_, at)| !is_kept(at)).map(|(rule, _)| rule.0));
            let moved = before.rules.iter().filter(|(rule, at)| after.rules.get(*rule) != Some(at));
            losers.extend(moved.map(|(rule, _)| rule.0));
        }
        (Some(Body::SecurityGroup(before)), Some(Body::SecurityGroup(after))) => {
            // What admits to an address at which no load balancer has the port of the Service is of no use to it: the Service
            // has left the address, or another writer has released that.
            let gone = before.allow.difference(&after.allow);
            let gone = gone.filter_map(|(address, port, _)| Some((owner_of(*port)?, *port, *address)));
            let gone = gone.filter(|(owner, port, address)| {
                !azure.is_lost(*address) && azure.is_balanced(*owner, *port, *address)
            });
            losers.extend(gone.map(|(owner, ..)| owner));
        }
        (Some(before @ Body::PrivateLink { .. }), after) if after != Some(before) => {
            if let Name::PrivateLink(owner) = name {
                losers.insert(owner);
            }
        }
        _ => {}
    }
    losers
}
