//! What a load balancer needs for all Services at once.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Env, FrontendAddress, FrontendPart, Gone, Part, RulePart, Wants,
    edit::Edit,
    limits,
    model::{Frontend, LoadBalancer, Pool, Probe, Rule},
    pool,
};
use crate::{
    model::ArmId,
    network::{Family, Found, Plan, Refusal, RefusalReason, Served, Waiting, settings::LoadBalancerSku},
    service::{ProbeAsk, ServiceKey, TransportProtocol, names},
};

/// A Service's part with its frontends found: every name and id is known.
struct Placed<'a> {
    service: &'a ServiceKey,
    part: &'a Part,
    gone: &'a Gone,
    /// The frontend of each family, as it is to be.
    frontends: BTreeMap<Family, Frontend>,
    rules: Vec<Rule>,
    probes: Vec<Probe>,
}

impl Placed<'_> {
    fn names_rule(&self, name: &str) -> bool {
        self.rules.iter().any(|rule| rule.name.eq_ignore_ascii_case(name))
    }

    fn names_probe(&self, name: &str) -> bool {
        self.probes.iter().any(|probe| probe.name.eq_ignore_ascii_case(name))
    }

    fn uses_frontend(&self, name: &str) -> bool {
        self.frontends.values().any(|frontend| frontend.name.eq_ignore_ascii_case(name))
    }
}

/// Plans one write of the load balancer.
pub fn plan(wants: &Wants, actual: Option<&LoadBalancer>, env: &Env) -> Plan<Edit> {
    let mut served: BTreeMap<ServiceKey, Served> = BTreeMap::new();
    let mut placed: Vec<Placed> = Vec::new();
    // Services that the load balancer already serves go first: a newcomer never takes a port from one of them.
    let mut order: Vec<_> = wants.iter().collect();
    order.sort_by_key(|(service, want)| (!is_served(&want.present, actual), *service));
    for (service, want) in order {
        let found = place(service, &want.present, &want.gone, &placed, wants, actual, env)
            .and_then(|part| refuse_conflicts(&part, &placed, wants, actual).map(|()| part))
            .and_then(|part| refuse_excess(&part, &placed, actual, env).map(|()| part));
        match found {
            Ok(part) => placed.push(part),
            Err(refusal) => {
                served.insert(service.clone(), Served::Refused(refusal));
            }
        }
    }
    placed.sort_by_key(|part| part.service);

    let mut edits = Vec::new();
    if placed.iter().any(|part| !part.part.frontends.is_empty()) && actual.is_none() {
        edits.push(Edit::Create);
    }
    let mut waits = None;
    if actual.is_some() || !edits.is_empty() {
        let kept = add(&placed, actual, env, &mut edits);
        remove(&placed, actual, &kept, &mut edits);
        match ending(&placed, actual, &edits, env) {
            Ending::Stays => {}
            Ending::Deletes => edits = vec![Edit::Delete],
            Ending::Waits(pools) => {
                edits.clear();
                waits = Some(pools);
            }
        }
    }
    let is_partial = add_members(actual, env, &mut edits);

    for part in &placed {
        let state = match (&waits, is_gone_from(part, actual)) {
            (Some(pools), false) if part.part.frontends.is_empty() => {
                Served::Waiting(Waiting::MembersLeave(pools.clone()))
            }
            _ => judge(part, actual, env),
        };
        served.insert(part.service.clone(), state);
    }
    Plan { edits, served, is_partial }
}

/// Whether the load balancer has a rule or a frontend of this part.
fn is_served(part: &Part, actual: Option<&LoadBalancer>) -> bool {
    actual.is_some_and(|actual| {
        part.rules.iter().any(|rule| actual.rule(&rule.ask.name).is_some())
            || part.frontends.iter().any(|frontend| actual.frontend(&frontend.name).is_some())
    })
}

/// Whether a frontend has the address that is asked for.
fn has_address(frontend: &Frontend, part: &FrontendPart) -> bool {
    match &part.address {
        FrontendAddress::Public(public_ip) => frontend.public_ip.as_ref() == Some(public_ip),
        FrontendAddress::Private { subnet, is_subnet_named, address, .. } => {
            frontend.public_ip.is_none()
                && (!is_subnet_named || frontend.subnet.as_ref().is_none_or(|there| there == subnet))
                && address.is_none_or(|address| frontend.private_address == Some(address))
        }
    }
}

/// Whether a frontend of another name can serve: it has the public IP or the address that the Service names.
fn is_shareable(frontend: &Frontend, part: &FrontendPart) -> bool {
    match &part.address {
        FrontendAddress::Public(_) => has_address(frontend, part),
        FrontendAddress::Private { address, .. } => address.is_some() && has_address(frontend, part),
    }
}

fn new_frontend(part: &FrontendPart, env: &Env) -> Frontend {
    let empty = Frontend {
        name: part.name.clone(),
        public_ip: None,
        subnet: None,
        private_address: None,
        is_static: false,
        family: Family::V4,
        zones: vec![],
    };
    match &part.address {
        FrontendAddress::Public(public_ip) => Frontend { public_ip: Some(public_ip.clone()), ..empty },
        FrontendAddress::Private { subnet, address, previous, .. } => {
            let address = address.or(*previous);
            let is_zonal = env.sku == LoadBalancerSku::Standard && env.edge_zone.is_none();
            Frontend {
                subnet: Some(subnet.clone()),
                private_address: address,
                is_static: address.is_some(),
                family: part.family,
                zones: if is_zonal { env.zones.clone() } else { vec![] },
                ..empty
            }
        }
    }
}

/// Finds or names the frontends of a Service, and with them the ids that its rules hold.
fn place<'a>(
    service: &'a ServiceKey,
    part: &'a Part,
    gone: &'a Gone,
    placed: &[Placed],
    wants: &Wants,
    actual: Option<&LoadBalancer>,
    env: &Env,
) -> Result<Placed<'a>, Refusal> {
    let mut frontends = BTreeMap::new();
    for asked in &part.frontends {
        let own = actual.and_then(|actual| actual.frontend(&asked.name));
        let others = || {
            let planned = placed.iter().flat_map(|part| part.frontends.values());
            actual.into_iter().flat_map(|actual| &actual.frontends).chain(planned)
        };
        let frontend = match own {
            Some(own) if has_address(own, asked) => own.clone(),
            _ => match others().find(|frontend| is_shareable(frontend, asked)) {
                Some(shared) => shared.clone(),
                None => {
                    if let Some(own) = own {
                        refuse_if_shared(service, own, placed, wants, actual, env)?;
                    }
                    let new = new_frontend(asked, env);
                    // Zones of a frontend cannot change.
                    Frontend { zones: own.map_or(new.zones, |own| own.zones.clone()), ..new }
                }
            },
        };
        frontends.insert(asked.family, frontend);
    }
    let rules = part.rules.iter().map(|rule| wanted_rule(rule, &frontends, env)).collect();
    let probes = part.probes.iter().map(wanted_probe).collect();
    Ok(Placed { service, part, gone, frontends, rules, probes })
}

/// Refuses to give a frontend another address while other Services' rules use it.
fn refuse_if_shared(
    service: &ServiceKey,
    own: &Frontend,
    placed: &[Placed],
    wants: &Wants,
    actual: Option<&LoadBalancer>,
    env: &Env,
) -> Result<(), Refusal> {
    let id = LoadBalancer::frontend_id(&env.id, &own.name);
    let base = names::BaseName::of(service);
    let user = actual
        .into_iter()
        .flat_map(|actual| &actual.rules)
        .find(|rule| rule.frontend.as_ref() == Some(&id) && !base.owns(&rule.name));
    let planned = placed.iter().find(|part| part.uses_frontend(&own.name));
    let by = match (user, planned) {
        (Some(rule), _) => owner_of(&rule.name, wants),
        (None, Some(part)) => format!("Service {}", part.service),
        (None, None) => return Ok(()),
    };
    Err(Refusal::new(
        RefusalReason::WouldReplaceAddress,
        format!(
            "frontend {} of load balancer {} cannot get another address while {by} uses it; move that Service first",
            own.name,
            env.id.name()
        ),
    ))
}

/// The owner of a rule, in words.
fn owner_of(rule: &str, wants: &Wants) -> String {
    match wants.keys().find(|service| names::BaseName::of(service).owns(rule)) {
        Some(service) => format!("Service {service}"),
        None => format!("rule {rule}, which belongs to no known Service,"),
    }
}

fn wanted_rule(rule: &RulePart, frontends: &BTreeMap<Family, Frontend>, env: &Env) -> Rule {
    let ask = &rule.ask;
    Rule {
        name: ask.name.clone(),
        protocol: Some(ask.protocol),
        frontend: frontends.get(&rule.family).map(|frontend| LoadBalancer::frontend_id(&env.id, &frontend.name)),
        pool: Some(LoadBalancer::pool_id(&env.id, &rule.pool)),
        probe: ask.probe.as_ref().map(|probe| LoadBalancer::probe_id(&env.id, probe)),
        frontend_port: ask.frontend_port,
        backend_port: ask.backend_port,
        floating_ip: ask.floating_ip,
        idle_timeout_minutes: Some(ask.idle_timeout_minutes),
        tcp_reset: ask.tcp_reset,
        affinity: Some(ask.affinity),
        disable_outbound_snat: ask.disable_outbound_snat,
    }
}

fn wanted_probe(probe: &ProbeAsk) -> Probe {
    Probe {
        name: probe.name.clone(),
        protocol: Some(probe.protocol),
        port: probe.port,
        path: probe.path.clone(),
        interval_seconds: probe.interval_seconds,
        threshold: probe.threshold,
    }
}

/// Whether two rules of one frontend would take the same traffic.
fn collide(one: &Rule, other: &Rule) -> bool {
    let takes_all = |rule: &Rule| rule.protocol == Some(TransportProtocol::All) && rule.frontend_port == 0;
    takes_all(one)
        || takes_all(other)
        || (one.frontend_port == other.frontend_port && one.protocol.is_some() && one.protocol == other.protocol)
}

/// Refuses a Service whose port somebody else has on the same frontend.
fn refuse_conflicts(
    part: &Placed,
    placed: &[Placed],
    wants: &Wants,
    actual: Option<&LoadBalancer>,
) -> Result<(), Refusal> {
    let base = names::BaseName::of(part.service);
    for rule in &part.rules {
        let Some(frontend) = &rule.frontend else { continue };
        let at = |what: String| {
            let protocol = rule.protocol.map_or("?", TransportProtocol::as_str);
            Refusal::new(
                RefusalReason::PortConflict,
                format!(
                    "port {} ({protocol}) of frontend {} is taken by {what}; choose another port or another address",
                    rule.frontend_port,
                    frontend.name()
                ),
            )
        };
        if let Some(other) = placed.iter().find(|other| {
            other.rules.iter().any(|theirs| theirs.frontend.as_ref() == Some(frontend) && collide(theirs, rule))
        }) {
            return Err(at(format!("Service {}", other.service)));
        }
        let Some(actual) = actual else { continue };
        let taken = actual.rules.iter().find(|theirs| {
            theirs.frontend.as_ref() == Some(frontend)
                && collide(theirs, rule)
                && !base.owns(&theirs.name)
                && !is_leaving(&theirs.name, wants)
                && !placed.iter().any(|other| other.names_rule(&theirs.name))
        });
        if let Some(theirs) = taken {
            return Err(at(owner_of(&theirs.name, wants)));
        }
        let range = actual.nat.iter().find(|range| {
            range.frontend.as_ref() == Some(frontend)
                && range.ports.contains(&rule.frontend_port)
                && (range.protocol == rule.protocol
                    || range.protocol == Some(TransportProtocol::All)
                    || rule.protocol == Some(TransportProtocol::All))
        });
        if let Some(range) = range {
            return Err(at(format!("inbound NAT {} ({}-{})", range.name, range.ports.start(), range.ports.end())));
        }
    }
    Ok(())
}

/// Whether the rule of this name goes because its Service no longer asks for it.
fn is_leaving(rule: &str, wants: &Wants) -> bool {
    wants.values().any(|want| {
        want.gone.base.as_ref().is_some_and(|base| base.owns(rule))
            && !want.present.rules.iter().any(|part| part.ask.name.eq_ignore_ascii_case(rule))
    })
}

/// Refuses a Service that would exceed a limit of Azure. What exists is never refused.
fn refuse_excess(part: &Placed, placed: &[Placed], actual: Option<&LoadBalancer>, env: &Env) -> Result<(), Refusal> {
    let sku = actual.map_or(env.sku, |actual| actual.sku);
    let (most_rules, most_frontends) = match sku {
        LoadBalancerSku::Standard => (limits::STANDARD_RULES, limits::STANDARD_FRONTENDS),
        LoadBalancerSku::Basic => {
            let configured = usize::try_from(env.maximum_rules).unwrap_or(usize::MAX);
            (if configured == 0 { limits::BASIC_RULES } else { configured }, limits::BASIC_FRONTENDS)
        }
    };
    let exists = |name: &str| actual.is_some_and(|actual| actual.rule(name).is_some());
    if part.rules.iter().all(|rule| exists(&rule.name)) {
        return Ok(());
    }
    let refuse = |what: &str, count: usize, most: usize| {
        Err(Refusal::new(
            RefusalReason::LimitExceeded,
            format!(
                "load balancer {} would have {count} {what} with this Service; Azure allows {most}. \
                 Remove Services or use several load balancers",
                env.id.name()
            ),
        ))
    };
    let there = actual.map_or(0, |actual| actual.rules.len());
    let planned = placed.iter().chain([part]).flat_map(|part| &part.rules);
    let rules = there + planned.clone().filter(|rule| !exists(&rule.name)).count();
    if rules > most_rules {
        return refuse("rules", rules, most_rules);
    }
    let mut frontends: BTreeSet<String> =
        actual.into_iter().flat_map(|actual| &actual.frontends).map(|item| item.name.to_lowercase()).collect();
    let planned_frontends = placed.iter().chain([part]).flat_map(|part| part.frontends.values());
    frontends.extend(planned_frontends.map(|item| item.name.to_lowercase()));
    if frontends.len() > most_frontends {
        return refuse("frontends", frontends.len(), most_frontends);
    }
    for name in part.rules.iter().filter_map(|rule| rule.pool.as_ref()) {
        let has_nics = actual.and_then(|actual| actual.pool(name.name())).is_some_and(Pool::has_nics);
        let on_pool = actual
            .map_or(0, |actual| actual.rules.iter().filter(|rule| rule.pool.as_ref() == Some(name)).count())
            + planned.clone().filter(|rule| rule.pool.as_ref() == Some(name) && !exists(&rule.name)).count();
        if has_nics && on_pool > limits::RULES_PER_NIC {
            return refuse("rules for each NIC", on_pool, limits::RULES_PER_NIC);
        }
    }
    Ok(())
}

/// What is there after the additions, by kind and in lower case.
#[derive(Default)]
struct Kept {
    rules: BTreeSet<String>,
    probes: BTreeSet<String>,
    pools: BTreeSet<String>,
}

/// Adds and changes what the Services ask for.
fn add(placed: &[Placed], actual: Option<&LoadBalancer>, env: &Env, edits: &mut Vec<Edit>) -> Kept {
    let change = env.tags.change(&actual.map(|actual| actual.tags.clone()).unwrap_or_default());
    let mut kept = Kept::default();
    let mut puts = Vec::new();
    let mut frontends = BTreeSet::new();
    for part in placed {
        for pool in &part.part.pools {
            if kept.pools.insert(pool.to_lowercase()) && actual.is_none_or(|actual| actual.pool(pool).is_none()) {
                puts.push(Edit::AddPool(pool.clone()));
            }
        }
    }
    for part in placed {
        for frontend in part.frontends.values() {
            let there = actual.and_then(|actual| actual.frontend(&frontend.name));
            if frontends.insert(frontend.name.to_lowercase()) && there != Some(frontend) {
                puts.push(Edit::PutFrontend(frontend.clone()));
            }
        }
    }
    for part in placed {
        for probe in &part.probes {
            let there = actual.and_then(|actual| actual.probe(&probe.name));
            if kept.probes.insert(probe.name.to_lowercase()) && !there.is_some_and(|there| there.serves(probe)) {
                puts.push(Edit::PutProbe(probe.clone()));
            }
        }
    }
    for part in placed {
        for rule in &part.rules {
            let there = actual.and_then(|actual| actual.rule(&rule.name));
            if kept.rules.insert(rule.name.to_lowercase()) && !there.is_some_and(|there| there.serves(rule)) {
                puts.push(Edit::PutRule(rule.clone()));
            }
        }
    }
    if !change.is_empty() && placed.iter().any(|part| !part.part.frontends.is_empty()) {
        edits.push(Edit::Tags { set: change.set, remove: change.remove });
    }
    edits.extend(puts);
    kept
}

/// Removes what is gone by a positive record and nothing else uses.
fn remove(placed: &[Placed], actual: Option<&LoadBalancer>, kept: &Kept, edits: &mut Vec<Edit>) {
    let Some(actual) = actual else { return };
    let is_gone = |name: &str| placed.iter().any(|part| part.gone.base.as_ref().is_some_and(|base| base.owns(name)));
    let leaving: Vec<&Rule> = actual
        .rules
        .iter()
        .filter(|rule| is_gone(&rule.name) && !kept.rules.contains(&rule.name.to_lowercase()))
        .collect();
    let planned =
        |name: &str| placed.iter().flat_map(|part| &part.rules).find(|rule| rule.name.eq_ignore_ascii_case(name));
    // The rules as they are after the write: changed ones count with what they refer to then.
    let staying: Vec<&Rule> = actual
        .rules
        .iter()
        .filter(|rule| !leaving.iter().any(|gone| gone.name == rule.name))
        .map(|rule| planned(&rule.name).unwrap_or(rule))
        .chain(placed.iter().flat_map(|part| &part.rules))
        .collect();
    let changed: Vec<&Rule> =
        actual.rules.iter().filter(|rule| planned(&rule.name).is_some_and(|new| !rule.serves(new))).collect();
    let refers = |id: &Option<ArmId>, kind: &str, name: &str| {
        id.as_ref().is_some_and(|id| *id == LoadBalancer::child_id(&actual.id, kind, name))
    };

    edits.extend(leaving.iter().map(|rule| Edit::RemoveRule(rule.name.clone())));
    for probe in &actual.probes {
        let is_shared = probe.name.eq_ignore_ascii_case(names::SHARED_PROBE);
        let loses_its_rules = || leaving.iter().chain(&changed).any(|rule| refers(&rule.probe, "probes", &probe.name));
        let is_ours = is_gone(&probe.name) || (is_shared && loses_its_rules());
        let is_used = kept.probes.contains(&probe.name.to_lowercase())
            || staying.iter().any(|rule| refers(&rule.probe, "probes", &probe.name));
        if is_ours && !is_used {
            edits.push(Edit::RemoveProbe(probe.name.clone()));
        }
    }
    for frontend in &actual.frontends {
        let id = LoadBalancer::frontend_id(&actual.id, &frontend.name);
        // The frontend of a Service that went earlier stays for those that share it, and goes with the last of them.
        let loses_its_rules = || {
            names::base_in(&frontend.name).is_some()
                && leaving.iter().chain(&changed).any(|rule| rule.frontend.as_ref() == Some(&id))
                && !placed.iter().any(|part| {
                    !part.part.frontends.is_empty() && names::BaseName::of(part.service).owns(&frontend.name)
                })
        };
        let is_used = placed.iter().any(|part| part.uses_frontend(&frontend.name))
            || staying.iter().any(|rule| rule.frontend.as_ref() == Some(&id))
            || actual.outbound_rules.iter().any(|rule| rule.frontends.contains(&id))
            || actual.nat.iter().any(|range| range.frontend.as_ref() == Some(&id));
        if (is_gone(&frontend.name) || loses_its_rules()) && !is_used {
            edits.push(Edit::RemoveFrontend(frontend.name.clone()));
        }
    }
    for pool in &actual.pools {
        let is_gone =
            placed.iter().any(|part| part.gone.pools.iter().any(|name| name.eq_ignore_ascii_case(&pool.name)));
        let is_used = kept.pools.contains(&pool.name.to_lowercase())
            || staying.iter().any(|rule| refers(&rule.pool, "backendAddressPools", &pool.name))
            || actual.outbound_rules.iter().any(|rule| refers(&rule.pool, "backendAddressPools", &pool.name));
        if is_gone && !is_used {
            edits.push(Edit::RemovePool(pool.name.clone()));
        }
    }
}

/// What becomes of a load balancer.
enum Ending {
    Stays,
    Deletes,
    Waits(Vec<ArmId>),
}

/// A load balancer goes with its last frontend, once no NIC names its pools. One that has something of others stays.
fn ending(placed: &[Placed], actual: Option<&LoadBalancer>, edits: &[Edit], env: &Env) -> Ending {
    let Some(actual) = actual else { return Ending::Stays };
    let removed = |name: &String| edits.contains(&Edit::RemoveFrontend(name.clone()));
    let is_last = !actual.frontends.is_empty()
        && actual.frontends.iter().all(|frontend| removed(&frontend.name))
        && !placed.iter().any(|part| !part.part.frontends.is_empty())
        && !edits.iter().any(|edit| matches!(edit, Edit::PutFrontend(_)));
    let is_pool_ours = |pool: &Pool| {
        env.pools.keys().any(|name| name.eq_ignore_ascii_case(&pool.name))
            || placed.iter().any(|part| part.gone.pools.iter().any(|name| name.eq_ignore_ascii_case(&pool.name)))
    };
    let has_others = !actual.outbound_rules.is_empty()
        || !actual.nat.is_empty()
        || actual.pools.iter().any(|pool| !is_pool_ours(pool))
        || actual.rules.iter().any(|rule| !edits.contains(&Edit::RemoveRule(rule.name.clone())));
    if !is_last || has_others {
        return Ending::Stays;
    }
    let with_nics: Vec<ArmId> = actual
        .pools
        .iter()
        .filter(|pool| pool.has_nics())
        .map(|pool| LoadBalancer::pool_id(&actual.id, &pool.name))
        .collect();
    if with_nics.is_empty() { Ending::Deletes } else { Ending::Waits(with_nics) }
}

/// Adds the changes of members: to a write that goes out anyway all of them, otherwise those of one pool.
fn add_members(actual: Option<&LoadBalancer>, env: &Env, edits: &mut Vec<Edit>) -> bool {
    if edits.contains(&Edit::Delete) {
        return false;
    }
    let is_added =
        |name: &String| edits.iter().any(|edit| matches!(edit, Edit::AddPool(new) if new.eq_ignore_ascii_case(name)));
    let mut changes: Vec<(Edit, bool)> = Vec::new();
    for (name, members) in &env.pools {
        let there = actual.and_then(|actual| actual.pool(name));
        if there.is_some() || is_added(name) {
            changes.extend(pool::change(name, there, members));
        }
    }
    let is_limited = changes.iter().any(|(_, is_limited)| *is_limited);
    if edits.is_empty() {
        let is_partial = is_limited || changes.len() > 1;
        edits.extend(changes.into_iter().map(|(edit, _)| edit).take(1));
        is_partial
    } else {
        edits.extend(changes.into_iter().map(|(edit, _)| edit));
        is_limited
    }
}

/// Whether nothing that bears the name of a gone Service is left.
fn is_gone_from(part: &Placed, actual: Option<&LoadBalancer>) -> bool {
    let Some(actual) = actual else { return true };
    let Some(base) = &part.gone.base else { return true };
    let is_left = |name: &str, asked: bool| base.owns(name) && !asked;
    let used = |frontend: &Frontend| {
        let id = LoadBalancer::frontend_id(&actual.id, &frontend.name);
        actual.rules.iter().any(|rule| rule.frontend.as_ref() == Some(&id) && !base.owns(&rule.name))
            || actual.outbound_rules.iter().any(|rule| rule.frontends.contains(&id))
            || actual.nat.iter().any(|range| range.frontend.as_ref() == Some(&id))
    };
    let probe_used = |probe: &Probe| {
        let id = LoadBalancer::probe_id(&actual.id, &probe.name);
        actual.rules.iter().any(|rule| rule.probe.as_ref() == Some(&id) && !base.owns(&rule.name))
    };
    !actual.rules.iter().any(|rule| is_left(&rule.name, part.names_rule(&rule.name)))
        && !actual.probes.iter().any(|probe| is_left(&probe.name, part.names_probe(&probe.name)) && !probe_used(probe))
        && !actual.frontends.iter().any(|item| is_left(&item.name, part.uses_frontend(&item.name)) && !used(item))
}

/// How far the load balancer serves a Service, as it was observed.
fn judge(part: &Placed, actual: Option<&LoadBalancer>, env: &Env) -> Served {
    if !is_gone_from(part, actual) {
        return Served::Pending;
    }
    if part.part.frontends.is_empty() {
        return Served::Done(Found::default());
    }
    let Some(actual) = actual else { return Served::Pending };
    let mut found = Found::default();
    let mut is_waiting = false;
    for asked in &part.part.frontends {
        let Some(frontend) = part.frontends.get(&asked.family) else { return Served::Pending };
        let Some(there) = actual.frontend(&frontend.name).filter(|there| has_address(there, asked)) else {
            return Served::Pending;
        };
        found.frontends.insert(asked.family, LoadBalancer::frontend_id(&actual.id, &there.name));
        if matches!(asked.address, FrontendAddress::Private { .. }) {
            match there.private_address {
                Some(address) => {
                    found.addresses.insert(asked.family, address);
                }
                None => is_waiting = true,
            }
        }
    }
    let rules = part.rules.iter().all(|rule| actual.rule(&rule.name).is_some_and(|there| there.serves(rule)));
    let probes = part.probes.iter().all(|probe| actual.probe(&probe.name).is_some_and(|there| there.serves(probe)));
    let pools = part.part.pools.iter().all(|name| {
        actual.pool(name).is_some_and(|pool| env.pools.get(name).is_none_or(|members| pool::has_some(pool, members)))
    });
    match (rules && probes && pools, is_waiting) {
        (false, _) => Served::Pending,
        (true, true) => Served::Waiting(Waiting::Address),
        (true, false) => Served::Done(found),
    }
}
