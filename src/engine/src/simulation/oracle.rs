//! The laws, judged by the state of the world alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    api::{Api, ApiService, Ask, AskAddress, own_public_ip},
    world::{Address, Azure, FOREIGN_ADDRESS, FrontendAddress, LOAD_BALANCERS, Name, Owner, POISON, SOURCES, owner_of},
};

/// After so long without a change of its spec, no write that was planned from an older one is under way.
const SETTLED: Duration = Duration::from_secs(20);

/// The specs that a Service has had since its state was last exactly as asked for.
#[derive(Debug)]
struct Window {
    asks: Vec<Ask>,
    /// Whether it was a load balancer of ours all that time.
    stayed: bool,
    changed_at: Duration,
    /// The ports and sources that a status has promised: clients know of no others.
    promised: BTreeSet<(u16, u8)>,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    windows: BTreeMap<Owner, Window>,
}

/// What the world showed before a write.
#[derive(Debug)]
pub(super) struct Picture {
    reached: BTreeSet<(Owner, u16, u8, Address)>,
    addresses: BTreeSet<Address>,
    served: Vec<bool>,
}

impl Oracle {
    /// Records a change of a Service by its user.
    pub(super) fn changed(&mut self, owner: Owner, service: Option<&ApiService>, now: Duration) {
        let new = Window { asks: Vec::new(), stayed: true, changed_at: now, promised: BTreeSet::new() };
        let window = self.windows.entry(owner).or_insert(new);
        window.changed_at = now;
        let Some(service) = service else { return };
        window.asks.extend(service.ask.clone().filter(|ask| window.asks.last() != Some(ask)));
        window.stayed &= service.claimed && !service.deleting;
    }

    pub(super) fn picture(&self, azure: &Azure) -> Picture {
        let mut reached = BTreeSet::new();
        let served: Vec<bool> = LOAD_BALANCERS.map(|number| azure.backends(number) > 0).collect();
        for number in LOAD_BALANCERS.filter(|number| served[usize::from(*number)]) {
            let Some(body) = azure.load_balancer(number) else { continue };
            for ((owner, _, port), frontend) in &body.rules {
                let window = self.windows.get(owner);
                if !window.is_some_and(|window| window.asks.iter().any(|ask| ask.ports.contains(port))) {
                    continue;
                }
                let at = body.frontends.get(frontend).and_then(|frontend| azure.address_of(*frontend));
                if let Some(address) = at {
                    let admitted = SOURCES.iter().filter(|source| azure.admits(address, *port, **source));
                    reached.extend(admitted.map(|source| (*owner, *port, *source, address)));
                }
            }
        }
        Picture { reached, addresses: azure.addresses(), served }
    }

    /// Judges a change of Azure that one of our replicas has made.
    pub(super) fn judge(&mut self, before: &Picture, azure: &Azure, api: &Api, now: Duration) -> Result<(), String> {
        azure.foreign_is_untouched()?;
        let after = self.picture(azure);
        for number in LOAD_BALANCERS.map(usize::from) {
            if before.served[number] && !after.served[number] {
                return Err(format!("the pool of load balancer {number} lost its last member"));
            }
        }
        // At an address that another writer has released an old rule may be left: no object shows whose it was.
        for (owner, port, source, address) in after.reached.iter().filter(|(.., address)| !azure.is_lost(*address)) {
            let window = &self.windows[owner];
            if !window.asks.iter().any(|ask| ask.admits(*port, *source)) {
                return Err(format!(
                    "source {source} reaches service {owner} at {address}:{port}, which no spec admits"
                ));
            }
        }
        for (owner, port, source, address) in before.reached.difference(&after.reached) {
            let window = &self.windows[owner];
            let asked = window.stayed && window.asks.iter().all(|ask| ask.admits(*port, *source));
            let unchanged = asked && window.promised.contains(&(*port, *source));
            let is_lost = window.asks.iter().any(|ask| azure.has_lost_public_ip(*owner, ask));
            if !unchanged || is_lost {
                continue;
            }
            let elsewhere = after
                .reached
                .iter()
                .any(|(other, other_port, other_source, _)| (other, other_port, other_source) == (owner, port, source));
            // A public IP that moves to another load balancer is on no frontend in between.
            let balancers: BTreeSet<u8> = window.asks.iter().map(Ask::load_balancer).collect();
            if balancers.len() > 1 && after.addresses.contains(address) {
                continue;
            }
            // In place: one frontend, or one rule, gets another address. Azure allows no overlap.
            let public: BTreeSet<AskAddress> =
                window.asks.iter().filter(|ask| !ask.is_internal()).map(|ask| ask.address).collect();
            let status = api.services.get(owner).and_then(|service| service.status);
            if !elsewhere || (status == Some(*address) && public.len() < 2) {
                return Err(format!(
                    "source {source} does not reach service {owner} at {address}:{port} any more, which every spec admits"
                ));
            }
        }
        for released in before.addresses.difference(&after.addresses) {
            let group = azure.security_group();
            // One that another writer had released before may have become this Service's since.
            if !azure.is_lost(*released) && group.allow.iter().any(|(address, ..)| address == released) {
                return Err(format!("address {released} was released while the security group admits it"));
            }
            let asked = |owner: &Owner, window: &Window| {
                let addresses: BTreeSet<AskAddress> = window.asks.iter().map(|ask| ask.address).collect();
                let status = api.services.get(owner).and_then(|service| service.status);
                window.stayed && addresses.len() == 1 && status == Some(*released)
            };
            if let Some((owner, _)) = self.windows.iter().find(|(owner, window)| asked(owner, window)) {
                return Err(format!("address {released} was released, and every spec of service {owner} asks for it"));
            }
        }
        self.narrow(azure, api, now);
        Ok(())
    }

    /// Drops the older specs of Services whose state is exactly as asked for.
    pub(super) fn narrow(&mut self, azure: &Azure, api: &Api, now: Duration) {
        for (owner, window) in &mut self.windows {
            let Some(service) = api.services.get(owner) else { continue };
            let Some(ask) = service.ask.as_ref().filter(|_| service.claimed && !service.deleting) else { continue };
            let old = now.saturating_sub(window.changed_at) > SETTLED;
            let is_older = window.asks.len() > 1 || !window.stayed;
            let is_in_force = || is_exact(azure, *owner, service, ask).is_ok();
            if old && is_older && is_in_force() && is_trimmed(azure, *owner, service.status, ask) {
                window.asks = vec![ask.clone()];
                window.stayed = true;
                window.promised = ask.promises();
            }
        }
    }

    /// Judges a status that was just set.
    pub(super) fn status(&mut self, owner: Owner, status: Address, azure: &Azure) -> Result<(), String> {
        let Some(window) = self.windows.get_mut(&owner) else {
            return Err("a status of an unknown service".to_owned());
        };
        let Some(last) = window.asks.last() else { return Err("a status of a service without a spec".to_owned()) };
        window.promised.extend(last.promises());
        // Another writer has deleted it, and its address may have become another's before that was read.
        if window.asks.iter().any(|ask| azure.has_lost_public_ip(owner, ask)) {
            return Ok(());
        }
        let links = window.stayed && window.asks.iter().all(|ask| ask.link);
        if links && !is_linked(azure, owner, status) {
            return Err(format!("service {owner} got status {status} without its private link service"));
        }
        for port in &last.ports {
            for source in SOURCES {
                let asked = window.asks.iter().all(|ask| ask.admits(*port, source));
                if asked && window.stayed && !azure.reaches(owner, *port, source, status) {
                    return Err(format!(
                        "service {owner} got status {status}, and source {source} does not reach port {port}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Judges the removal of a finalizer.
    pub(super) fn finalizer_removed(&self, owner: Owner, azure: &Azure) -> Result<(), String> {
        let left = remains(azure, owner);
        if left.is_empty() { Ok(()) } else { Err(format!("service {owner} lost its finalizer and leaves {left:?}")) }
    }

    /// Judges the world after everything has come to rest.
    pub(super) fn at_rest(&self, azure: &Azure, api: &Api) -> Result<(), String> {
        azure.foreign_is_untouched()?;
        for (owner, service) in &api.services {
            match &service.ask {
                _ if service.deleting => return Err(format!("service {owner} was never deleted")),
                _ if !service.claimed => {
                    let left = remains(azure, *owner);
                    if !left.is_empty() || service.finalizer || service.status.is_some() {
                        return Err(format!("service {owner} is not claimed and leaves {left:?}"));
                    }
                }
                Some(ask) if !ask.ports.contains(&POISON) => {
                    is_exact(azure, *owner, service, ask).map_err(|why| format!("service {owner} at rest: {why}"))?;
                }
                _ => {}
            }
        }
        let known: BTreeSet<Owner> = api.services.keys().copied().collect();
        for owner in self.windows.keys().filter(|owner| !known.contains(owner)) {
            let left = remains(azure, *owner);
            if !left.is_empty() {
                return Err(format!("deleted service {owner} leaves {left:?}"));
            }
        }
        for name in azure.names() {
            if let Name::PublicIp(number) = name
                && azure.public_ip(number).is_some_and(|(tags, _)| tags.is_empty())
            {
                return Err(format!("public IP {number} is no Service's"));
            }
        }
        let addresses = azure.addresses();
        let stale = azure.security_group().allow.iter().find(|(address, ..)| {
            *address < FOREIGN_ADDRESS && !addresses.contains(address) && !azure.is_lost(*address)
        });
        if let Some(stale) = stale {
            return Err(format!("the security group admits {stale:?}, which nothing has"));
        }
        // What a Service has whose spec is wrong stays.
        let may_deny = |ask: Option<&Ask>| ask.is_none_or(|ask| ask.deny || ask.ports.contains(&POISON));
        let deniers: Vec<Owner> =
            api.services.iter().filter(|(_, it)| may_deny(it.ask.as_ref())).map(|(it, _)| *it).collect();
        let is_stale = |address: &&Address| {
            let asks = |owner: &Owner| {
                api.services[owner].status == Some(**address) || held_by(azure, *owner).contains(*address)
            };
            // A rule may be left at an address that Services share, when a Service leaves it and its load balancer at once
            // and another process goes on. A denial beside such a rule may guard a Service that is not known.
            let is_asked =
                |port: u16| api.services.values().flat_map(|it| &it.ask).any(|ask| ask.ports.contains(&port));
            let guards = |rule: &(Address, u16, u8)| rule.0 == **address && !is_asked(rule.1);
            **address < FOREIGN_ADDRESS
                && !azure.is_lost(**address)
                && !deniers.iter().any(asks)
                && !azure.security_group().allow.iter().any(guards)
        };
        match azure.security_group().deny.iter().find(is_stale) {
            Some(stale) => Err(format!("the security group denies at {stale}, where no Service asks for it")),
            None => Ok(()),
        }
    }
}

/// The addresses of a Service's public IPs and frontends.
pub(super) fn held_by(azure: &Azure, owner: Owner) -> BTreeSet<Address> {
    let public = azure.names().filter_map(|name| match name {
        Name::PublicIp(number) => azure.public_ip(number).filter(|(tags, _)| tags.contains(&owner)),
        _ => None,
    });
    let balancers = LOAD_BALANCERS.filter_map(|number| azure.load_balancer(number));
    let frontends = balancers.flat_map(|body| &body.frontends).filter(|(name, _)| name.0 == owner);
    let private = frontends.filter_map(|(_, frontend)| azure.address_of(*frontend));
    public.map(|(_, address)| address).chain(private).collect()
}

/// What Azure holds of a Service.
fn remains(azure: &Azure, owner: Owner) -> Vec<String> {
    let mut left = Vec::new();
    for name in azure.names() {
        if let Name::PublicIp(number) = name
            && azure.public_ip(number).is_some_and(|(tags, _)| tags.contains(&owner))
        {
            left.push(format!("a tag on public IP {number}"));
        }
    }
    left.extend(azure.private_link(owner).map(|frontend| format!("a private link service on {frontend:?}")));
    for number in LOAD_BALANCERS {
        let Some(body) = azure.load_balancer(number) else { continue };
        // A frontend whose public IP is another Service's too outlives the one that made it.
        let shared = |frontend: &(Owner, u8)| match body.frontends.get(frontend) {
            Some(FrontendAddress::Public(number)) => {
                azure.public_ip(*number).is_some_and(|(tags, _)| tags.iter().any(|tag| *tag != owner))
            }
            _ => false,
        };
        left.extend(body.rules.keys().filter(|rule| rule.0 == owner).map(|rule| format!("rule {rule:?}")));
        let frontends = body.frontends.keys().filter(|frontend| frontend.0 == owner && !shared(frontend));
        left.extend(frontends.map(|frontend| format!("frontend {frontend:?}")));
    }
    left
}

/// Whether a Service's private link service is on the frontend that has this address.
fn is_linked(azure: &Azure, owner: Owner, address: Address) -> bool {
    let body = azure.load_balancer(1);
    let frontend = azure.private_link(owner).and_then(|name| body?.frontends.get(&name).copied());
    frontend.and_then(|frontend| azure.address_of(frontend)) == Some(address)
}

/// Whether the security group admits only to ports that a Service asks for. Until then an older spec is in force: a port that
/// comes back is open to its sources.
fn is_trimmed(azure: &Azure, owner: Owner, address: Option<Address>, ask: &Ask) -> bool {
    let is_left = |(there, port, _): &(Address, u16, u8)| {
        Some(*there) == address && owner_of(*port) == Some(owner) && !ask.ports.contains(port)
    };
    !azure.security_group().allow.iter().any(is_left)
}

/// Whether Azure holds exactly what a Service asks for.
fn is_exact(azure: &Azure, owner: Owner, service: &ApiService, ask: &Ask) -> Result<(), String> {
    let Some(status) = service.status else { return Err("it has no status".to_owned()) };
    if !service.finalizer {
        return Err("it has no finalizer".to_owned());
    }
    for number in LOAD_BALANCERS {
        let Some(body) = azure.load_balancer(number) else { continue };
        if let Some(rule) = body.rules.keys().find(|rule| rule.0 == owner && !ask.ports.contains(&rule.2)) {
            return Err(format!("it has a rule {rule:?}"));
        }
        for (name, frontend) in body.frontends.iter().filter(|(name, _)| name.0 == owner) {
            let shared = body.rules.iter().any(|(rule, at)| rule.0 != owner && at == name);
            if !shared && azure.address_of(*frontend) != Some(status) {
                return Err(format!("it has a frontend {name:?}"));
            }
        }
        if number != ask.load_balancer() && body.rules.keys().any(|rule| rule.0 == owner) {
            return Err(format!("it has rules on load balancer {number}"));
        }
    }
    for port in &ask.ports {
        if azure.addresses_of(owner, *port) != BTreeSet::from([status]) {
            return Err(format!(
                "port {port} is at {:?}, and the status is {status}",
                azure.addresses_of(owner, *port)
            ));
        }
        for source in SOURCES {
            if azure.admits(status, *port, source) != ask.admits(*port, source) && !azure.is_lost(status) {
                return Err(format!("source {source} at port {port}: {}", azure.admits(status, *port, source)));
            }
        }
    }
    if ask.deny && !azure.security_group().deny.contains(&status) && !azure.is_lost(status) {
        return Err(format!("the security group does not deny at {status}"));
    }
    if ask.link != azure.private_link(owner).is_some() || (ask.link && !is_linked(azure, owner, status)) {
        return Err(format!("its private link service is on {:?}", azure.private_link(owner)));
    }
    let expected = match ask.address {
        AskAddress::Shared => Some(0),
        AskAddress::Own(second) => Some(own_public_ip(owner, second)),
        AskAddress::Internal(_) => None,
    };
    for name in azure.names() {
        if let Name::PublicIp(number) = name
            && let Some((tags, address)) = azure.public_ip(number)
        {
            if tags.contains(&owner) != (expected == Some(number)) {
                return Err(format!("public IP {number} has tags {tags:?}"));
            }
            if expected == Some(number) && address != status {
                return Err(format!("the status is {status}, and the public IP has {address}"));
            }
        }
    }
    Ok(())
}
